/* pages_test.c - large memory, and pages that are given back. */
#include "tests/unit/proto/suite.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "proto/base/pages.h"

#define MB ((size_t)1 << 20)

static size_t page(void)
{
    return (size_t)sysconf(_SC_PAGESIZE);
}

static void whole_pages_are_the_least_that_hold_the_bytes(void **state)
{
    (void)state;
    assert_int_equal(pages_whole(0), 0);
    assert_int_equal(pages_whole(1), page());
    assert_int_equal(pages_whole(page()), page());
    assert_int_equal(pages_whole(page() + 1), 2 * page());
}

static void memory_begins_with_a_page_and_is_zeros(void **state)
{
    static const size_t sizes[] = {1, 4097, 2 * MB, 7 * MB + 5};

    (void)state;
    for (size_t i = 0; i < N_OF(sizes); i++) {
        uint8_t *p = pages_take(sizes[i]);

        assert_non_null(p);
        assert_int_equal((uintptr_t)p % page(), 0);
        for (size_t k = 0; k < sizes[i]; k++) {
            assert_int_equal(p[k], 0);
        }
        memset(p, 1, sizes[i]);
        pages_give(p, sizes[i]);
    }
    pages_give(NULL, MB);
}

static void more_than_the_machine_has_is_refused(void **state)
{
    (void)state;
    assert_null(pages_take(SIZE_MAX / 2));
}

/* Neither the bytes before nor those behind on the same page. */
static void only_pages_that_lie_wholly_in_it_are_forgotten(void **state)
{
    const size_t n = 5 * MB;
    uint8_t *p = pages_take(n);

    (void)state;
    assert_non_null(p);
    memset(p, 7, n);
    pages_forget(p + 1, n - 2);
    for (size_t k = 0; k < n; k++) {
        bool edge = k < page() || k >= n - page();

        assert_int_equal(p[k], edge ? 7 : 0);
    }
    memset(p, 7, n);
    pages_forget(p + 1, page() - 1); /* no whole one */
    pages_forget(p + page() + 1, page());
    for (size_t k = 0; k < n; k++) {
        assert_int_equal(p[k], 7);
    }
    pages_give(p, n);
}

static void advice_about_any_memory_changes_no_byte(void **state)
{
    const size_t n = 5 * MB + 3;
    uint8_t *p = malloc(n);

    (void)state;
    assert_non_null(p);
    memset(p, 9, n);
    pages_prefer_large(p, n);
    pages_prefer_large(p, 10);
    pages_prefer_large(p, 0);
    for (size_t k = 0; k < n; k++) {
        assert_int_equal(p[k], 9);
    }
    free(p);
}

static void pages_that_were_lent_can_be_used_again(void **state)
{
    const size_t n = 5 * MB;
    uint8_t *p = pages_take(n);

    (void)state;
    assert_non_null(p);
    memset(p, 7, n);
    pages_lend(p + 1, n - 2);
    assert_int_equal(p[0], 7); /* pages at the edges are not lent */
    assert_int_equal(p[n - 1], 7);
    for (size_t k = page(); k < n - page(); k++) {
        assert_true(p[k] == 7 || p[k] == 0);
    }
    memset(p, 8, n);
    for (size_t k = 0; k < n; k++) {
        assert_int_equal(p[k], 8);
    }
    pages_give(p, n);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(whole_pages_are_the_least_that_hold_the_bytes),
        cmocka_unit_test(memory_begins_with_a_page_and_is_zeros),
        cmocka_unit_test(more_than_the_machine_has_is_refused),
        cmocka_unit_test(only_pages_that_lie_wholly_in_it_are_forgotten),
        cmocka_unit_test(advice_about_any_memory_changes_no_byte),
        cmocka_unit_test(pages_that_were_lent_can_be_used_again),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
