/* work_test.c - the laboratory's auditors: what they read of honest work and of
 * lies, and that the run goes on as if nobody had looked.
 *
 * A model of a few thousand parameters on a made text; what an audit can tell
 * on prose is measured by `loco sim work`.
 */
#include "train/lab/work.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "proto/base/err.h"
#include "proto/base/errmsg.h"
#include "proto/base/rng.h"
#include "train/sync/preset.h"

#define TEXT_BYTES 40000
#include "tests/unit/train/lab_text.h"

#define SEQ    16
#define BATCH  4
#define PERIOD 4
#define ROUNDS 4
#define PEERS  5
#define MAKERS 2

struct readings {
    uint32_t n;
    struct work_reading r[2 * MAKERS * WORK_KINDS];
};
static struct readings got;

static void note(void *data, const struct work_reading *r)
{
    struct readings *to = data;

    assert_true(to->n < sizeof to->r / sizeof to->r[0]);
    to->r[to->n++] = *r;
}

static const struct work_options audits = {.turns = {1, ROUNDS},
                                           .n_turns = 2,
                                           .makers = MAKERS,
                                           .liars = 2,
                                           .reference = false,
                                           .reading = note,
                                           .data = &got};

static struct lab_options options(const char *preset)
{
    const struct preset *p;
    struct lab_options o = {
        .model = {.dim = 16,
                  .layers = 2,
                  .heads = 2,
                  .kv_heads = 2,
                  .ffn = 32,
                  .vocab = 256,
                  .seq = SEQ,
                  .tied = true,
                  .rope_theta = 10000,
                  .norm_eps = 1e-5F},
        .optimizer = optimizer_defaults(),
        .schedule = {SCHEDULE_CONSTANT, 0.01, 0.01, 0, 0, 0},
        .peers = PEERS,
        .tokens = (uint64_t)PEERS * ROUNDS * PERIOD * SEQ * BATCH,
        .batch = BATCH,
        .micro_batch = BATCH,
        .seq = SEQ,
        .seed = 1,
        .machines = machines,
        .train = &train_shard,
        .n_train = 1,
        .val = &val_shard,
        .eval_tokens = 512,
        .threads = 1,
        .reference = true,
    };

    assert_int_equal(preset_find(preset, &p, NULL), 0);
    o.method = p->method;
    if (p->optimizer != NULL) {
        assert_int_equal(optimizer_rule_named(p->optimizer, &o.optimizer.rule),
                         0);
    }
    o.method.period = o.method.period > 0 ? PERIOD : 0;
    return o;
}

static struct lab_result run(const struct lab_options *o)
{
    struct lab_result r;
    char errmsg[ERRMSG_SIZE] = "";

    got.n = 0;
    if (lab_run(o, &r, errmsg) != 0) {
        fail_msg("%s", errmsg);
    }
    return r;
}

static void audit(const char *preset)
{
    struct lab_options o = options(preset);
    struct lab_result r;

    o.work = &audits;
    r = run(&o);
    lab_result_free(&r);
}

static const struct work_reading *find(int kind, uint64_t turn, uint32_t maker)
{
    for (uint32_t i = 0; i < got.n; i++) {
        if ((int)got.r[i].kind == kind && got.r[i].turn == turn &&
            got.r[i].maker == maker) {
            return &got.r[i];
        }
    }
    return NULL;
}

static const struct work_reading *told(enum lab_lie lie)
{
    return find(WORK_TOLD + (int)lie, ROUNDS, 1);
}

static bool near(double a, double b, double tolerance)
{
    return fabs(a - b) <= tolerance;
}

static void each_kind_is_read_of_each_pair_once(void **state)
{
    (void)state;
    audit("favg-keep");
    /* Before the first round nothing was sent. */
    assert_int_equal(got.n, MAKERS * (2 * WORK_KINDS - 2));
    for (int kind = 0; kind < WORK_KINDS; kind++) {
        bool past = kind == WORK_STALE || kind == WORK_LAST;

        for (uint32_t maker = 1; maker <= MAKERS; maker++) {
            assert_true((find(kind, 1, maker) == NULL) == past);
            assert_non_null(find(kind, ROUNDS, maker));
        }
    }
}

static void the_moments_of_the_maker_give_its_bits(void **state)
{
    static const char *const presets[] = {"favg-keep", "diloco", "muloco"};

    (void)state;
    for (size_t i = 0; i < sizeof presets / sizeof presets[0]; i++) {
        audit(presets[i]);
        for (uint32_t maker = 1; maker <= MAKERS; maker++) {
            const struct work_reading *exact = find(WORK_EXACT, ROUNDS, maker);
            const struct work_reading *other =
                find(WORK_MOMENTS, ROUNDS, maker);
            const struct work_reading *rough = find(WORK_ROUGH, ROUNDS, maker);
            const struct work_reading *own = find(WORK_REPEAT, ROUNDS, maker);

            assert_true(near(exact->cosine, 1, 1e-12));
            assert_true(near(exact->own, 1, 1e-12));
            assert_true(near(exact->length, 1, 1e-12));
            assert_true(other->cosine > 0.9999 && other->cosine < 1 - 1e-14);
            assert_true(rough->cosine > own->cosine && rough->cosine < 1);
            assert_true(own->cosine > 0.3 && own->cosine < 0.999);
        }
    }
}

/* Moments begin anew in each round: an auditor has the maker's. */
static void without_moments_each_auditor_has_the_bits(void **state)
{
    (void)state;
    audit("favg-reset");
    for (uint32_t maker = 1; maker <= MAKERS; maker++) {
        assert_true(near(find(WORK_REPEAT, ROUNDS, maker)->cosine, 1, 1e-6));
        assert_true(find(WORK_TEXT, ROUNDS, maker)->own < 0.9);
    }
}

static void the_own_work_is_the_measure(void **state)
{
    (void)state;
    audit("favg-keep");
    for (uint32_t i = 0; i < got.n; i++) {
        const struct work_reading *r = &got.r[i];
        const struct work_reading *self = find(WORK_SELF, r->turn, r->maker);

        assert_int_not_equal(r->maker, r->auditor);
        if (self->own > 0) {
            assert_true(near(r->share * self->own, r->own, 1e-9));
        }
        assert_true(near(r->near * self->cosine, r->cosine, 1e-9));
    }
}

static void lies_are_read_as_what_they_are(void **state)
{
    const struct work_reading *honest;

    (void)state;
    audit("favg-keep");
    honest = find(WORK_REPEAT, ROUNDS, 1);
    assert_true(near(told(LAB_LIE_FLIP)->cosine, -honest->cosine, 1e-9));
    assert_true(near(told(LAB_LIE_SCALE)->cosine, honest->cosine, 1e-6));
    assert_true(near(told(LAB_LIE_SCALE)->length, 1000 * honest->length, 1e-2));
    assert_true(told(LAB_LIE_ZERO)->cosine == 0);
    assert_true(told(LAB_LIE_ZERO)->length == 0);
    assert_true(fabs(told(LAB_LIE_NOISE)->cosine) < 0.1);
    assert_true(told(LAB_LIE_AGAINST)->cosine < -0.2);
    assert_true(told(LAB_LIE_COPY)->own < honest->own - 0.1);
    assert_true(near(find(WORK_TILT, ROUNDS, 1)->cosine,
                     honest->cosine / sqrt(1.25), 0.02));
    assert_true(find(WORK_LEAN, ROUNDS, 1)->cosine < honest->cosine);
    /* One step of four says less of this text than all. */
    assert_true(find(WORK_STEP, ROUNDS, 1)->own < honest->own);
}

static void all_blocks_in_a_sample_would_be_the_whole(void **state)
{
    const struct work_reading *r;

    (void)state;
    audit("favg-keep");
    r = find(WORK_REPEAT, ROUNDS, 1);
    for (int i = 1; i < WORK_SAMPLES; i++) {
        assert_true(work_sample_blocks(i) > work_sample_blocks(i - 1));
        assert_true(r->sampled[i] < r->sampled[i - 1]);
        assert_true(r->sampled[i] > 0 && r->exact_sampled[i] > 0);
    }
}

static void the_run_does_not_notice(void **state)
{
    static const char *const presets[] = {"favg-keep", "muon-avg"};

    (void)state;
    for (size_t i = 0; i < sizeof presets / sizeof presets[0]; i++) {
        struct lab_options o = options(presets[i]);
        struct lab_result alone = run(&o), audited;

        assert_int_equal(got.n, 0);
        o.work = &audits;
        audited = run(&o);
        assert_true(got.n > 0);
        assert_true(audited.bits_per_byte == alone.bits_per_byte);
        assert_true(audited.loss == alone.loss);
        assert_int_equal(audited.tokens, alone.tokens);
        assert_int_equal(audited.bytes_sent, alone.bytes_sent);
        lab_result_free(&alone);
        lab_result_free(&audited);
    }
}

static void what_cannot_be_audited_is_refused(void **state)
{
    static const char *const presets[] = {"ddp", "noloco", "async-dn",
                                          "adloco"};
    struct work_options w = audits;
    struct lab_result r;
    char errmsg[ERRMSG_SIZE];

    (void)state;
    for (size_t i = 0; i < sizeof presets / sizeof presets[0]; i++) {
        struct lab_options o = options(presets[i]);

        o.work = &audits;
        assert_int_equal(lab_run(&o, &r, errmsg), LOCO_EINVAL);
        if (strstr(errmsg, "in one piece") == NULL) {
            fail_msg("%s: %s", presets[i], errmsg);
        }
        lab_result_free(&r);
    }
    for (int i = 0; i < 3; i++) {
        struct lab_options o = options("favg-keep");

        w = audits;
        w.makers = i == 0 ? 0 : i == 1 ? PEERS : w.makers;
        w.liars = i == 2 ? 0 : w.liars;
        o.work = &w;
        assert_int_equal(lab_run(&o, &r, errmsg), LOCO_EINVAL);
        assert_non_null(strstr(errmsg, "fewer than the peers"));
        lab_result_free(&r);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_kind_is_read_of_each_pair_once),
        cmocka_unit_test(the_moments_of_the_maker_give_its_bits),
        cmocka_unit_test(without_moments_each_auditor_has_the_bits),
        cmocka_unit_test(the_own_work_is_the_measure),
        cmocka_unit_test(lies_are_read_as_what_they_are),
        cmocka_unit_test(all_blocks_in_a_sample_would_be_the_whole),
        cmocka_unit_test(the_run_does_not_notice),
        cmocka_unit_test(what_cannot_be_audited_is_refused),
    };

    return cmocka_run_group_tests(tests, make_text, NULL);
}
