/* sets_test.c - which kernels `auto` and names choose, and the table of them in
 * kernels/README.md, which `test_kernels_sets --print` writes. */
#include "kernels/sets.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "kernels/backend.h"
#include "proto/base/err.h"

static bool everything(const struct kernel_set *set)
{
    (void)set;
    return true;
}

static const struct kernel_set *only;

static bool one(const struct kernel_set *set)
{
    return set == only;
}

static bool has_run(const struct kernel_set *set)
{
    return set->fp32_ran != SET_RAN_model && set->bf16_ran != SET_RAN_model;
}

/* On a processor that has all sets; that has one; on this one. */
static void auto_takes_no_set_that_only_a_model_has_run(void **state)
{
    size_t n;
    const struct kernel_set *sets = kernel_sets(&n);

    (void)state;
    assert_true(has_run(kernel_set_auto(everything)));
    for (size_t i = 0; i < n; i++) {
        only = &sets[i];
        assert_true(kernel_set_auto(one) == (has_run(only) ? only : NULL));
    }
    assert_true(has_run(kernel_set_auto(kernel_set_here)));
}

static void auto_takes_the_first_row_that_it_may(void **state)
{
    size_t n, i = 0;
    const struct kernel_set *sets = kernel_sets(&n);
    struct backend be;

    (void)state;
    while (!has_run(&sets[i]) || !kernel_set_here(&sets[i])) {
        i++;
    }
    assert_true(i < n);
    assert_int_equal(backend_cpu(&be, 1), 0);
    assert_string_equal(be.isa, sets[i].name);
    backend_close(&be);
    assert_int_equal(backend_cpu_isa(&be, 1, "auto"), 0);
    assert_string_equal(be.isa, sets[i].name);
    backend_close(&be);
}

/* Also what `auto` leaves. */
static void a_name_takes_any_set_that_is_here(void **state)
{
    size_t n;
    const struct kernel_set *sets = kernel_sets(&n);

    (void)state;
    for (size_t i = 0; i < n; i++) {
        bool here = kernel_set_here(&sets[i]);
        struct backend be;

        assert_true(kernel_set_named(sets[i].name) == (here ? &sets[i] : NULL));
        assert_int_equal(backend_cpu_isa(&be, 1, sets[i].name),
                         here ? 0 : LOCO_EDEVICE);
        print_message("%s: %s\n", sets[i].name, here ? "here" : "not here");
        if (here) {
            assert_string_equal(be.isa, sets[i].name);
            backend_close(&be);
        }
    }
    assert_true(kernel_set_named("vax") == NULL);
}

/* ---- the table ---------------------------------------------------------- */

#define TABLE_MAX 4096

static char table[TABLE_MAX];

static const char *cell(const char *text)
{
    return text == NULL ? "-" : text;
}

static void make_table(void)
{
    static const char *const ran[] = {
        [SET_RAN_real] = "real",
        [SET_RAN_emulated] = "emulated",
        [SET_RAN_model] = "model only",
    };
    size_t n, at = 0;
    const struct kernel_set *sets = kernel_sets(&n);

    at += (size_t)snprintf(table, TABLE_MAX,
                           "| `isa` | products in fp32 | tested on | products "
                           "in bf16 | tested on | chosen by |\n"
                           "|---|---|---|---|---|---|\n");
    for (size_t i = 0; i < n; i++) {
        const struct kernel_set *s = &sets[i];

        at += (size_t)snprintf(table + at, TABLE_MAX - at,
                               "| `%s` | %s | %s | %s | %s | %s |\n", s->name,
                               s->fp32, ran[s->fp32_ran], cell(s->bf16),
                               s->bf16 == NULL ? "-" : ran[s->bf16_ran],
                               has_run(s) ? "`auto`, name" : "name only");
        assert_true(at < TABLE_MAX);
    }
}

static void the_page_has_the_table(void **state)
{
#ifdef KERNELS_README
    FILE *f = fopen(KERNELS_README, "r");
    char *page = calloc(1, 65536);

    (void)state;
    assert_true(f != NULL && page != NULL);
    assert_true(fread(page, 1, 65535, f) > 0);
    (void)fclose(f);
    make_table();
    if (strstr(page, table) == NULL) {
        free(page);
        fail_msg("kernels/README.md has another table than "
                 "`test_kernels_sets --print`");
    }
    free(page);
#else
    (void)state;
#endif
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(auto_takes_no_set_that_only_a_model_has_run),
        cmocka_unit_test(auto_takes_the_first_row_that_it_may),
        cmocka_unit_test(a_name_takes_any_set_that_is_here),
        cmocka_unit_test(the_page_has_the_table),
    };

    if (argc == 2 && strcmp(argv[1], "--print") == 0) {
        make_table();
        (void)fputs(table, stdout);
        return 0;
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
