/* preset_test.c - names of methods and what they stand for. */
#include "train/sync/preset.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "proto/base/err.h"
#include "proto/base/errmsg.h"

static void
check(const char *name, enum codec_id wire, uint32_t period, float lr, float mu)
{
    const struct preset *p;

    assert_int_equal(preset_find(name, &p, NULL), 0);
    assert_string_equal(p->name, name);
    assert_int_equal(p->method.wire, wire);
    assert_int_equal(p->method.period, period);
    assert_true(p->method.rule.lr == lr && p->method.rule.mu == mu);
}

static void presets_have_the_settings_of_their_papers(void **state)
{
    (void)state;
    check("opendiloco", CODEC_FP16, 500, 0.7F, 0.9F);
    check("diloco", CODEC_FP32, 500, 0.7F, 0.9F);
    check("localsgd", CODEC_FP32, 100, 1.0F, 0.0F);
    check("muloco", CODEC_FP32, 30, 0.9F, 0.8F);
}

/* Muon inside, a plain mean outside, 4 bits with error feedback between. */
static void two_presets_come_with_muon(void **state)
{
    const struct preset *p;

    (void)state;
    check("muon-avg", CODEC_E3M0, 32, 1.0F, 0.0F);
    assert_int_equal(preset_find("muon-avg", &p, NULL), 0);
    assert_true(p->method.error_feedback);
    assert_false(method_has_momentum(&p->method));
    for (size_t i = 0; (p = preset_at(i)) != NULL; i++) {
        if (strncmp(p->name, "mu", 2) == 0) {
            assert_string_equal(p->optimizer, "muon");
        } else {
            assert_null(p->optimizer);
        }
    }
}

static void every_preset_makes_sense_and_those_of_old_runs_stay(void **state)
{
    static const char *const names[] = {
        "ddp",        "localsgd",   "diloco",      "opendiloco",
        "streaming",  "eager",      "async-naive", "async-dn",
        "noloco",     "local-adam", "desloc",      "favg-keep",
        "favg-reset", "adloco",     "muloco",      "muon-avg"};
    char errmsg[ERRMSG_SIZE];
    size_t n = 0;

    (void)state;
    for (; preset_at(n) != NULL; n++) {
        const struct preset *p;

        assert_int_equal(preset_find(preset_at(n)->name, &p, NULL), 0);
        assert_ptr_equal(p, preset_at(n));
        assert_non_null(codec_get(p->method.wire));
        if (method_check(&p->method, errmsg) != 0) {
            fail_msg("%s: %s", p->name, errmsg);
        }
    }
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        const struct preset *p;

        assert_int_equal(preset_find(names[i], &p, NULL), 0);
    }
}

static void an_unknown_preset_is_answered_with_a_near_name_or_all(void **state)
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
    assert_int_equal(preset_find("foo", &p, errmsg), LOCO_ENOENT);
    assert_null(strstr(errmsg, "did you mean"));
    for (size_t i = 0; preset_at(i) != NULL; i++) {
        assert_non_null(strstr(errmsg, preset_at(i)->name));
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

/* ---- what makes no sense together (algorithms page 11.4) --------------- */

static struct method of(const char *name)
{
    const struct preset *p;

    assert_int_equal(preset_find(name, &p, NULL), 0);
    return p->method;
}

static void refused(struct method m, const char *why)
{
    char errmsg[ERRMSG_SIZE] = "";

    assert_int_equal(method_check(&m, errmsg), LOCO_EINVAL);
    if (strstr(errmsg, why) == NULL) {
        fail_msg("\"%s\" does not say \"%s\"", errmsg, why);
    }
}

#define REFUSED(NAME, CHANGE, WHY)                                             \
    do {                                                                       \
        struct method m = of(NAME);                                            \
        CHANGE;                                                                \
        refused(m, WHY);                                                       \
    } while (0)

static void
what_makes_no_sense_is_refused_with_the_nearest_setting(void **state)
{
    (void)state;
    REFUSED("noloco", m.rule.gamma = 0.0F, "set sync.gamma=0.7");
    REFUSED("noloco", m.rule.gamma = 1.3F, "do not come together");
    REFUSED("noloco", m.rule.mu = 0.9F, "do not come together");
    REFUSED("diloco", m.rule.gamma = 0.1F, "or sync.preset=noloco");
    REFUSED("async-naive", m.baseline = false, "set sync.preset=async-dn");
    REFUSED("diloco", m.delayed = true, "set sync.preset=diloco");
    REFUSED("ddp", m.period = 10, "or sync.preset=localsgd");
    REFUSED("desloc", m.wire = CODEC_INT8,
            "set sync.wire=bf16, or sync.wire=fp32");
    REFUSED("noloco", m.wire = CODEC_E3M0,
            "set sync.wire=bf16, or sync.wire=fp32");
    REFUSED("desloc", m.error_feedback = true, "set sync.error_feedback=false");
    REFUSED("streaming", m.overlap = 25,
            "set sync.overlap=0, or less than the turn");
    REFUSED("streaming", m.fragments = 3, "or a divisor");
    REFUSED("streaming", m.mix = 1.0F, "set sync.mix=0.5");
    REFUSED("eager", m.group = METHOD_TRAINER, "set sync.preset=eager");
    REFUSED("eager", m.overlap = 5, "or sync.preset=eager");
    REFUSED("diloco", m.overlap = 500, "set sync.overlap=0");
    REFUSED("adloco", m.overlap = 5, "set sync.overlap=0");
    REFUSED("diloco", m.batch = BATCH_NORM, "or sync.preset=adloco");
    REFUSED("diloco", m.period = 0, "give the number of inner steps");
    REFUSED("noloco", m.take = METHOD_REBASE, "set sync.mix=0");
    REFUSED("noloco", m.fragments = 2, "set sync.fragments=1");
    REFUSED("noloco", m.overlap = 1, "set sync.overlap=0");
    REFUSED("noloco", m.period_u = 100, "set sync.period_u=0");
    REFUSED("noloco", m.error_feedback = true, "already use the rounded");
    REFUSED("async-dn", m.fragments = 2, "set sync.fragments=1");
    REFUSED("async-dn", m.overlap = 1, "set sync.overlap=0");
    REFUSED("async-dn", m.period_u = 50, "set sync.period_u=0");
    REFUSED("async-dn", m.period_v = 50, "sync.period_v=0");
    REFUSED("async-dn", m.take = METHOD_MIX; m.mix = 0.5F, "set sync.mix=0");
    REFUSED("async-dn", m.gradients = true;
            m.period = 0, "set sync.preset=ddp");
    REFUSED("async-naive", m.group = METHOD_OWNERS;
            m.baseline = false, "set sync.preset=async-dn");
    REFUSED("async-dn", m.group = METHOD_OWNERS;
            m.fragments = 2, "set sync.fragments=1");
    REFUSED("eager", m.group = METHOD_OWNERS;
            m.rule.mu = 0, "set sync.preset=eager");
    REFUSED("eager", m.group = METHOD_PAIR; m.rule.mu = 0.5F;
            m.rule.gamma = 0.7F, "set sync.preset=eager");
    REFUSED("desloc", m.wire = CODEC_FP16,
            "set sync.wire=bf16, or sync.wire=fp32");
    REFUSED("streaming", m.period_v = 100,
            "set sync.wire=bf16, or sync.wire=fp32");
    REFUSED("eager", m.take = METHOD_MIX; m.mix = 0.5F, "set sync.mix=0");
    REFUSED("diloco", m.gradients = true; m.period = 0;
            m.period_u = 7, "or sync.preset=localsgd");
    REFUSED("async-dn", m.trainers = 2, "or sync.preset=adloco");
    REFUSED("adloco", m.trainers = 0, "there are 1 to 16 trainers");
    REFUSED("adloco", m.trainers = 17, "there are 1 to 16 trainers");
    REFUSED("adloco", m.merge_every = 22, "within 63 rounds");
    REFUSED("adloco", m.batch_most = 0, "set sync.batch_most=16");
    REFUSED("adloco", m.rule.mu = 0.9F, "set sync.outer_momentum=0");
    REFUSED("adloco", m.fragments = 2, "set sync.fragments=1");
    REFUSED("adloco", m.period_u = 200, "set sync.period_u=0");
    REFUSED("adloco", m.wire = CODEC_E3M0,
            "set sync.wire=fp16, or sync.wire=fp32");
    REFUSED("adloco", m.error_feedback = true, "set sync.error_feedback=false");
    REFUSED("adloco", m.batch = BATCH_FIXED, "set sync.batch_test=norm");
    REFUSED("adloco", m.batch_vartheta = 0.02, "sync.batch_vartheta=0");
    REFUSED("adloco", m.batch_eta = 1;
            m.batch = BATCH_AUGMENTED, "sync.batch_eta=0");
    REFUSED("diloco", m.trainers = 2, "or sync.preset=adloco");
}

static void which_replicas_are_equal_is_known(void **state)
{
    (void)state;
    for (size_t i = 0; preset_at(i) != NULL; i++) {
        const struct preset *p = preset_at(i);
        bool differ = strcmp(p->name, "noloco") == 0 ||
                      strcmp(p->name, "adloco") == 0 ||
                      strcmp(p->name, "eager") == 0;

        assert_int_equal(method_replicas_equal(&p->method), !differ);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(presets_have_the_settings_of_their_papers),
        cmocka_unit_test(two_presets_come_with_muon),
        cmocka_unit_test(every_preset_makes_sense_and_those_of_old_runs_stay),
        cmocka_unit_test(an_unknown_preset_is_answered_with_a_near_name_or_all),
        cmocka_unit_test(a_name_of_any_length_is_refused_without_harm),
        cmocka_unit_test(
            what_makes_no_sense_is_refused_with_the_nearest_setting),
        cmocka_unit_test(which_replicas_are_equal_is_known),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
