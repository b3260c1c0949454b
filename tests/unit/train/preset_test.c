/* preset_test.c - names of methods and what they stand for. */
#include "train/sync/preset.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "proto/base/err.h"
#include "train/errmsg.h"

static void
check(const char *name, enum codec_id wire, uint32_t period, float lr, float mu)
{
    const struct preset *p;

    assert_int_equal(preset_find(name, &p, NULL), 0);
    assert_string_equal(p->name, name);
    assert_int_equal(p->wire, wire);
    assert_int_equal(p->period, period);
    assert_true(p->rule.lr == lr && p->rule.mu == mu);
}

static void the_three_presets_have_the_settings_of_their_papers(void **state)
{
    (void)state;
    check("opendiloco", CODEC_FP16, 500, 0.7F, 0.9F);
    check("diloco", CODEC_FP32, 500, 0.7F, 0.9F);
    check("localsgd", CODEC_FP32, 100, 1.0F, 0.0F);
}

static void every_listed_preset_is_found_by_its_name(void **state)
{
    size_t n = 0;

    (void)state;
    for (; preset_at(n) != NULL; n++) {
        const struct preset *p;

        assert_int_equal(preset_find(preset_at(n)->name, &p, NULL), 0);
        assert_ptr_equal(p, preset_at(n));
        assert_non_null(codec_get(p->wire));
        assert_true(p->period > 0);
    }
    assert_int_equal(n, 3);
}

static void an_unknown_preset_is_answered_with_the_nearest_name(void **state)
{
    static const char *const pairs[][2] = {{"dilocco", "diloco"},
                                           {"open-diloco", "opendiloco"},
                                           {"localsdg", "localsgd"},
                                           {"des-loc", "desloc"},
                                           {"noloko", "noloco"}};
    const struct preset *p;
    char errmsg[ERRMSG_SIZE];
    char want[64];

    (void)state;
    for (size_t i = 0; i < sizeof pairs / sizeof pairs[0]; i++) {
        assert_int_equal(preset_find(pairs[i][0], &p, errmsg), LOCO_ENOENT);
        assert_null(p);
        (void)snprintf(want, sizeof want, "did you mean \"%s\"?", pairs[i][1]);
        assert_non_null(strstr(errmsg, want));
        assert_non_null(strstr(errmsg, pairs[i][0]));
    }
}

static void a_name_of_any_length_is_refused_without_harm(void **state)
{
    const struct preset *p;
    char errmsg[ERRMSG_SIZE];
    char name[5000];

    (void)state;
    memset(name, 'x', sizeof name - 1);
    name[sizeof name - 1] = '\0';
    assert_int_equal(preset_find(name, &p, errmsg), LOCO_ENOENT);
    assert_true(strlen(errmsg) < sizeof errmsg);
    assert_int_equal(preset_find("", &p, errmsg), LOCO_ENOENT);
}

static void a_method_of_the_design_that_is_not_built_says_so(void **state)
{
    static const char *const names[] = {"ddp",         "streaming", "eager",
                                        "async-naive", "async-dn",  "noloco",
                                        "local-adam",  "desloc",    "favg-keep",
                                        "favg-reset",  "adloco"};
    const struct preset *p;
    char errmsg[ERRMSG_SIZE];

    (void)state;
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        assert_int_equal(preset_find(names[i], &p, errmsg), LOCO_EINVAL);
        assert_non_null(strstr(errmsg, "not built yet"));
        assert_non_null(strstr(errmsg, "runs: opendiloco, diloco, localsgd"));
        assert_non_null(strstr(errmsg, names[i]));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_three_presets_have_the_settings_of_their_papers),
        cmocka_unit_test(every_listed_preset_is_found_by_its_name),
        cmocka_unit_test(an_unknown_preset_is_answered_with_the_nearest_name),
        cmocka_unit_test(a_name_of_any_length_is_refused_without_harm),
        cmocka_unit_test(a_method_of_the_design_that_is_not_built_says_so),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
