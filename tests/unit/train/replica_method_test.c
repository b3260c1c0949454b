/* replica_method_test.c - every method that averages among all members or in
 * pairs, as replicas run it: the bits of the laboratory; equal states; late
 * members, joiners, and bytes that are no numbers. */
#include "train/replica/replica.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "proto/base/err.h"
#include "proto/base/pairing.h"
#include "proto/base/rng.h"
#include "tests/unit/train/short_method.h"
#include "tests/unit/train/small_run.h"
#include "train/lab/lab.h"
#include "train/replica/pair.h"
#include "train/sync/codec/lanes.h"

#define PEERS 2
#define STEPS 24
#define BATCH 2
#define SEQ   16

static uint32_t width = 16; /* of the model */
static uint8_t text[SMALL_TEXT];
static struct shard shard;
static char errmsg[ERRMSG_SIZE];

static int setup(void **state)
{
    (void)state;
    small_text(text, &shard);
    return 0;
}

static struct replica_options options(const struct method *m, uint64_t number)
{
    const uint64_t words[2] = {11, number};
    struct llama_config model = small_model(2, SEQ);

    model.dim = width;
    return (struct replica_options){
        .model = model,
        .optimizer = optimizer_defaults(),
        .schedule = {SCHEDULE_CONSTANT, 3e-3, 3e-3, 0, 0, 0},
        .method = *m,
        .members = PEERS,
        .codec = codec_get(m->wire),
        .batch = BATCH,
        .micro_batch = BATCH,
        .seq = SEQ,
        .seed = 11,
        .peer = rng_mix(words, 2),
        .train = &shard,
        .n_train = 1,
        .val = &shard,
        .eval_tokens = 512,
        .threads = 1,
        .reference = true,
    };
}

struct swarm {
    struct replica r[PEERS + 1];
    uint32_t n;
    uint8_t *wire;
    uint64_t round;
    bool under_way;
    float *residual[PEERS + 1]; /* with error feedback in a butterfly */
};

static void open_one(struct swarm *s, const struct method *m)
{
    const struct replica_options o = options(m, s->n);

    assert_int_equal(replica_open(&s->r[s->n], &o, errmsg), 0);
    replica_init(&s->r[s->n]);
    s->n++;
}

static void swarm_open(struct swarm *s, const struct method *m, uint32_t n)
{
    *s = (struct swarm){0};
    while (s->n < n) {
        open_one(s, m);
    }
    s->wire = malloc(s->r[0].opt.codec->bytes(s->r[0].n_wire));
    assert_non_null(s->wire);
}

static void swarm_close(struct swarm *s)
{
    for (uint32_t i = 0; i < s->n; i++) {
        replica_close(&s->r[i]);
    }
    free(s->wire);
}

static void step(struct replica *r)
{
    float loss;

    assert_int_equal(replica_step(r, &loss), 0);
}

/* The reduced bytes of what replicas [0, n) have packed. */
static void reduce(struct swarm *s, uint32_t n)
{
    const struct codec *c = s->r[0].opt.codec;
    uint64_t len = replica_elements(&s->r[0]);
    float weight = 1.0F / (float)n;

    assert_int_equal(c->encode(s->wire, s->r[0].contribution, len, weight), 0);
    for (uint32_t i = 1; i < n; i++) {
        assert_int_equal(
            c->add(s->wire, s->wire, s->r[i].contribution, len, weight), 0);
    }
}

/* What owner `owner` makes of [at, at + n) of x. */
static void
sum_slice(struct swarm *s, uint32_t owner, float **x, uint64_t at, size_t n)
{
    const struct codec *c = s->r[0].opt.codec;
    const float weight = 1.0F / (float)s->n;
    struct lanes l = {0};
    struct lanes_sum sum = {.attempt = 1,
                            .lane = owner,
                            .n = (uint32_t)n,
                            .own = x[owner] + at,
                            .raw = lanes_raw(c->id, false),
                            .scale = weight,
                            .dst = s->wire + c->bytes(at),
                            .next = s->residual[owner] + at};

    assert_int_equal(lanes_fit(&l, c, n, s->n, 1), 0);
    for (uint32_t i = 0; i < s->n; i++) {
        const struct codec_op op = {
            .own = x[i] + at, .n = n, .scale = 1, .next = s->residual[i] + at};

        if (i != owner) {
            assert_int_equal(c->encode_op(lanes_at(&l, i, 0), &op), 0);
            lanes_keep(&l, 1, i, 0, (uint32_t)n, weight);
        }
    }
    assert_int_equal(lanes_sum(&l, &sum), 0);
    lanes_free(&l);
}

/* As reduce(), by the owners of equal slices, with error feedback: as
 * daemon/machine does it. */
static void reduce_by_owners(struct swarm *s)
{
    uint32_t block = s->r[0].opt.codec->block;
    uint64_t len = replica_elements(&s->r[0]);
    uint64_t per = ((len + block - 1) / block + s->n - 1) / s->n * block;
    float *x[PEERS + 1];

    for (uint32_t i = 0; i < s->n; i++) {
        x[i] = malloc((size_t)len * sizeof *x[i]);
        assert_non_null(x[i]);
        for (uint64_t k = 0; k < len; k++) {
            x[i][k] = s->r[i].contribution[k] + s->residual[i][k];
        }
    }
    for (uint64_t at = 0; at < len; at += per) {
        sum_slice(s, (uint32_t)(at / per), x, at,
                  (size_t)(len - at < per ? len - at : per));
    }
    for (uint32_t i = 0; i < s->n; i++) {
        free(x[i]);
    }
}

static void apply(struct swarm *s, uint32_t i, double share)
{
    const struct replica_commit c = {s->round, s->wire, share, s->n, s->n};

    assert_int_equal(replica_commit(&s->r[i], &c), 0);
}

/* In step, as daemons are: pack when it is time, apply when it is due. */
static void make_steps(struct swarm *s, uint64_t steps)
{
    for (;;) {
        if (s->under_way && replica_beside(&s->r[0]) == 0) {
            s->under_way = false;
            for (uint32_t i = 0; i < s->n; i++) {
                apply(s, i, 1.0 / s->n);
            }
        } else if (!s->under_way && replica_left(&s->r[0]) == 0) {
            for (uint32_t i = 0; i < s->n; i++) {
                assert_true(replica_left(&s->r[i]) == 0);
                assert_int_equal(replica_pack(&s->r[i]), 0);
            }
            if (s->residual[0] != NULL) {
                reduce_by_owners(s);
            } else {
                reduce(s, s->n);
            }
            s->round++;
            s->under_way = true;
        } else if (steps == 0) {
            return;
        } else {
            for (uint32_t i = 0; i < s->n; i++) {
                step(&s->r[i]);
            }
            steps--;
        }
    }
}

static const char *const names[] = {
    "localsgd", "diloco", "favg-keep", "favg-reset", "local-adam",
    "desloc",   "ddp",    "streaming", "eager",      "async-dn"};
#define N_NAMES (sizeof names / sizeof names[0])

/* ---- the laboratory ----------------------------------------------------- */

static struct lab_result in_the_laboratory(const struct method *m,
                                           uint32_t peers)
{
    static const struct lab_machine machines[LAB_PEERS_MAX] = {
        {1000, 0, 0, 0}, {1000, 0, 0, 0}, {1000, 0, 0, 0}};
    const struct replica_options o = options(m, 0);
    const struct lab_options lab = {
        .method = *m,
        .model = o.model,
        .optimizer = o.optimizer,
        .schedule = o.schedule,
        .peers = peers,
        .tokens = (uint64_t)peers * STEPS * SEQ * BATCH,
        .batch = BATCH,
        .micro_batch = BATCH,
        .seq = SEQ,
        .seed = o.seed,
        .machines = machines,
        .grace_s = 1.0, /* equal machines are all in the quorum */
        .train = &shard,
        .n_train = 1,
        .val = &shard,
        .eval_tokens = o.eval_tokens,
        .threads = 1,
        .reference = true,
    };
    struct lab_result result;

    if (lab_run(&lab, &result, errmsg) != 0) {
        fail_msg("%s", errmsg);
    }
    assert_true(result.bits_per_byte < result.bits_per_byte_before - 0.2);
    lab_result_free(&result); /* the points */
    return result;
}

/* Of the mean of the live models, as the laboratory measures. */
static double bits_of_mean(struct swarm *s)
{
    struct replica *r = &s->r[0];
    double bits;

    for (uint64_t i = 0; i < r->n; i++) {
        double sum = 0;

        for (uint32_t k = 0; k < s->n; k++) {
            sum += (double)s->r[k].theta[i];
        }
        r->phi[i] = (float)(sum / s->n);
    }
    assert_int_equal(replica_eval(r, 0, &bits), 0);
    return bits;
}

static void every_method_gives_the_bits_of_the_laboratory(void **state)
{
    (void)state;
    for (size_t i = 0; i < N_NAMES; i++) {
        struct method m = method_of(names[i]);
        double want = in_the_laboratory(&m, PEERS).bits_per_byte, got;
        struct swarm s;

        swarm_open(&s, &m, PEERS);
        make_steps(&s, STEPS);
        got = bits_of_mean(&s);
        if (got != want) { /* exactly */
            fail_msg("%s: %.17g, in the laboratory %.17g", names[i], got, want);
        }
        swarm_close(&s);
    }
}

static void feedback_in_a_butterfly_is_that_of_the_laboratory(void **state)
{
    static const enum codec_id wires[] = {CODEC_INT8, CODEC_E3M0, CODEC_INT2,
                                          CODEC_SPARSE};

    (void)state;
    for (size_t i = 0; i < sizeof wires / sizeof wires[0]; i++) {
        struct method m = method_of("localsgd");
        double want, got;
        struct swarm s;

        m.wire = wires[i];
        m.error_feedback = true;
        want = in_the_laboratory(&m, PEERS).bits_per_byte;
        swarm_open(&s, &m, PEERS);
        for (uint32_t k = 0; k < PEERS; k++) {
            s.residual[k] = calloc((size_t)s.r[0].n, sizeof(float));
            assert_non_null(s.residual[k]);
        }
        make_steps(&s, STEPS);
        got = bits_of_mean(&s);
        if (got != want) { /* exactly */
            fail_msg("wire %u: %.17g, in the laboratory %.17g", wires[i], got,
                     want);
        }
        for (uint32_t k = 0; k < PEERS; k++) {
            free(s.residual[k]);
        }
        swarm_close(&s);
    }
}

/* How far the replicas are from each other, as the laboratory measures. */
static double spread_of(const struct swarm *s)
{
    double square = 0;

    for (uint64_t i = 0; i < s->r[0].n; i++) {
        double sum = 0;

        for (uint32_t k = 0; k < s->n; k++) {
            sum += (double)s->r[k].theta[i];
        }
        for (uint32_t k = 0; k < s->n; k++) {
            double d = (double)s->r[k].theta[i] - sum / s->n;

            square += d * d;
        }
    }
    return sqrt(square / ((double)s->r[0].n * s->n));
}

/* Anchor and displacement, as the daemon sends them to a partner. */
static uint8_t *payload(const struct replica *r)
{
    const struct codec *c = r->opt.codec;
    uint8_t *p = malloc(2 * c->bytes(r->n));

    assert_non_null(p);
    assert_int_equal(c->encode(p, r->phi, r->n, 1.0F), 0);
    assert_int_equal(c->encode(p + c->bytes(r->n), r->contribution, r->n, 1.0F),
                     0);
    return p;
}

static void step_in_pairs(struct swarm *s, uint64_t turn)
{
    uint8_t *sent[PEERS + 1];
    uint32_t scratch[PEERS + 1];

    for (uint32_t i = 0; i < s->n; i++) {
        while (replica_left(&s->r[i]) > 0) {
            step(&s->r[i]);
        }
        assert_int_equal(replica_pack(&s->r[i]), 0);
        sent[i] = payload(&s->r[i]);
    }
    for (uint32_t i = 0; i < s->n; i++) {
        uint32_t j = pairing_partner(11, 1, turn, s->n, i, scratch);

        assert_int_equal(replica_apply_pair(&s->r[i], turn + 1,
                                            j == PAIRING_BYE ? NULL : sent[j],
                                            i < j),
                         0);
    }
    for (uint32_t i = 0; i < s->n; i++) {
        free(sent[i]);
    }
}

/* Three peers: every turn has a pair and a bye. */
static void pairs_give_the_bits_of_the_laboratory(void **state)
{
    static const enum codec_id wires[] = {CODEC_FP32, CODEC_BF16, CODEC_FP16};

    (void)state;
    for (size_t i = 0; i < 3; i++) {
        struct method m = method_of("noloco");
        struct lab_result want;
        struct swarm s;

        m.wire = wires[i];
        want = in_the_laboratory(&m, 3);
        swarm_open(&s, &m, 3);
        for (uint64_t turn = 0; turn < STEPS / m.period; turn++) {
            step_in_pairs(&s, turn);
        }
        assert_true(spread_of(&s) > 0);
        assert_true(spread_of(&s) == want.spread);
        assert_true(bits_of_mean(&s) == want.bits_per_byte);
        swarm_close(&s);
    }
}

/* ---- equal states ------------------------------------------------------- */

static void check_equal(const char *name, struct swarm *s)
{
    struct replica_vector a[REPLICA_STATE_MAX], b[REPLICA_STATE_MAX];
    size_t n = replica_state(&s->r[0], a);

    for (uint32_t i = 1; i < s->n; i++) {
        assert_int_equal(replica_state(&s->r[i], b), n);
        for (size_t v = 0; v < n; v++) {
            if (memcmp(a[v].x, b[v].x, a[v].n * sizeof(float)) != 0) {
                fail_msg("%s: vector %zu of the state differs in round %llu",
                         name, v, (unsigned long long)s->round);
            }
        }
    }
}

static void copy_state(const struct replica *r, float *out)
{
    struct replica_vector at[REPLICA_STATE_MAX];
    size_t n = replica_state(r, at);

    for (size_t i = 0; i < n; i++) {
        memcpy(out, at[i].x, at[i].n * sizeof(float));
        out += at[i].n;
    }
}

/* Members begin equal, one comes in the middle with the state of another, and
 * all hold the same bits after every round. */
static void members_and_joiners_hold_the_same_state(void **state)
{
    (void)state;
    for (size_t i = 0; i < N_NAMES; i++) {
        struct method m = method_of(names[i]);
        struct swarm s;
        float *at;

        swarm_open(&s, &m, PEERS);
        make_steps(&s, 12);
        check_equal(names[i], &s);
        if (s.under_way) { /* it ends first: joins happen between rounds */
            for (uint32_t k = 0; k < s.n; k++) {
                apply(&s, k, 0.5);
            }
            s.under_way = false;
        }
        at = calloc(REPLICA_STATE_MAX * s.r[0].n, sizeof *at);
        assert_non_null(at);
        copy_state(&s.r[0], at);
        open_one(&s, &m);
        assert_int_equal(replica_load(&s.r[PEERS], s.round, at, false), 0);
        check_equal(names[i], &s);
        if (m.eager) { /* others have all steps of their next round behind */
            while (replica_left(&s.r[PEERS]) > 0) {
                step(&s.r[PEERS]);
            }
        }
        make_steps(&s, 12);
        check_equal(names[i], &s);
        if (m.gradients || m.period_u == m.period) {
            assert_true(s.r[0].optimizer.t == s.r[PEERS].optimizer.t);
        }
        free(at);
        swarm_close(&s);
    }
}

/* All parts of a round together are shorter than a block of a codec. */
static void also_where_the_model_is_tiny(void **state)
{
    width = 4;
    members_and_joiners_hold_the_same_state(state);
    width = 16;
}

/* Replica 1 is not in the round after step 4 (of desloc: of x), and is back in
 * the next, whose vector is another: its displacement is in there again. */
static void who_was_late_packs_for_the_next_round(void **state)
{
    struct method m = method_of("desloc");
    struct swarm s;
    float *moved;

    (void)state;
    swarm_open(&s, &m, PEERS);
    for (int k = 0; k < 4; k++) {
        step(&s.r[0]);
        step(&s.r[1]);
    }
    assert_int_equal(replica_pack(&s.r[0]), 0);
    assert_int_equal(replica_pack(&s.r[1]), 0);
    reduce(&s, 1);
    s.round = 1;
    moved = malloc(s.r[1].n * sizeof *moved);
    assert_non_null(moved);
    memcpy(moved, s.r[1].contribution, s.r[1].n * sizeof *moved);
    apply(&s, 0, 1.0);
    apply(&s, 1, 0.0);
    check_equal("desloc", &s);
    for (uint64_t i = 0; i < s.r[1].n; i++) {
        float is = s.r[1].phi[i] - s.r[1].theta[i], off = is - moved[i];

        assert_true(off < 1e-6F && off > -1e-6F);
        /* Round 2 averages u alone. */
        assert_true(s.r[1].contribution[i] == s.r[1].optimizer.u[i]);
    }
    assert_true(replica_elements(&s.r[1]) == s.r[1].n);
    /* The others make two steps; it enters with what it has. */
    step(&s.r[0]);
    step(&s.r[0]);
    assert_true(replica_left(&s.r[0]) == 0 && replica_left(&s.r[1]) == 0);
    assert_int_equal(replica_pack(&s.r[0]), 0);
    reduce(&s, 2);
    s.round = 2;
    apply(&s, 0, 0.5);
    apply(&s, 1, 0.5);
    check_equal("desloc", &s);
    assert_memory_equal(s.r[0].optimizer.u, s.r[1].optimizer.u,
                        s.r[0].n * sizeof(float));
    free(moved);
    swarm_close(&s);
}

/* A quorum of others moves the anchor beside a task, and nothing else. */
static void who_is_in_the_middle_of_a_task_goes_on(void **state)
{
    struct method m = method_of("async-dn");
    struct replica_commit c = {.round = 1, .arrivals = 1, .members = 2};
    struct swarm s;
    float *theta;

    (void)state;
    swarm_open(&s, &m, PEERS);
    for (int k = 0; k < 4; k++) {
        step(&s.r[0]);
    }
    step(&s.r[1]);
    step(&s.r[1]);
    assert_int_equal(replica_pack(&s.r[0]), 0);
    reduce(&s, 1);
    theta = malloc(s.r[1].n * sizeof *theta);
    assert_non_null(theta);
    memcpy(theta, s.r[1].theta, s.r[1].n * sizeof *theta);
    c.wire = s.wire;
    c.share = 1.0;
    assert_int_equal(replica_commit(&s.r[0], &c), 0);
    c.share = 0.0;
    assert_int_equal(replica_commit(&s.r[1], &c), 0);
    check_equal("async-dn", &s);
    assert_true(s.r[0].arrivals[2] == 1.0F); /* one of a cycle of two */
    assert_memory_equal(theta, s.r[1].theta, s.r[1].n * sizeof *theta);
    assert_true(replica_left(&s.r[1]) == 2);
    /* Its displacement is from where the task began. */
    for (int k = 0; k < 2; k++) {
        step(&s.r[1]);
    }
    assert_int_equal(replica_pack(&s.r[1]), 0);
    for (uint64_t i = 0; i < s.r[1].n; i++) {
        assert_true(s.r[1].contribution[i] ==
                    s.r[1].engine.base[i] - s.r[1].theta[i]);
    }
    free(theta);
    swarm_close(&s);
}

/* What comes from others is not believed. */
static void a_state_without_meaning_is_refused(void **state)
{
    static const float bad[][3] = {
        {0, 1, 0}, {2, 2, 2}, {1e9F, 1, 0}, {2, 0, 0}, {2, 2, -1}};
    struct method m = method_of("async-dn");
    struct swarm s;
    uint64_t n;
    float *at;

    (void)state;
    swarm_open(&s, &m, PEERS);
    n = replica_state_elements(&m, s.r[0].n);
    at = calloc(n, sizeof *at);
    assert_non_null(at);
    copy_state(&s.r[0], at);
    assert_int_equal(replica_load(&s.r[1], 3, at, false), 0);
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        memcpy(at + n - 4, bad[i], sizeof bad[i]);
        assert_int_equal(replica_load(&s.r[1], 4, at, false), LOCO_EPROTO);
        assert_true(s.r[1].round == 3);
    }
    free(at);
    swarm_close(&s);
}

/* A gradient that a round did not take belongs to parameters that are gone. */
static void a_late_gradient_is_spent_and_the_replicas_stay_equal(void **state)
{
    struct method m = method_of("ddp");
    struct swarm s;

    (void)state;
    swarm_open(&s, &m, PEERS);
    step(&s.r[0]);
    step(&s.r[1]);
    assert_int_equal(replica_pack(&s.r[0]), 0);
    reduce(&s, 1);
    s.round = 1;
    apply(&s, 0, 1.0);
    apply(&s, 1, 0.0);
    check_equal("ddp", &s);
    assert_true(replica_left(&s.r[1]) == 1);
    assert_true(s.r[1].tokens_pending == 0);
    make_steps(&s, 3);
    check_equal("ddp", &s);
    assert_true(s.r[1].optimizer.t == 4);
    swarm_close(&s);
}

/* Wherever in the vector: nothing has changed. */
static void bytes_that_are_no_numbers_change_nothing(void **state)
{
    (void)state;
    for (size_t i = 0; i < N_NAMES; i++) {
        struct method m = method_of(names[i]);
        struct swarm s;
        struct replica *r = &s.r[0];
        struct replica_commit c;
        float *before, *after;
        uint64_t len;

        swarm_open(&s, &m, PEERS);
        while (s.under_way || layout_elements(&r->layout, s.round + 1) <
                                  layout_most(&r->layout)) {
            make_steps(&s, 1); /* up to the first of the longest rounds */
        }
        while (replica_left(r) > 0) {
            step(r);
        }
        assert_int_equal(replica_pack(r), 0);
        reduce(&s, 1);
        s.round++;
        len = replica_elements(r);
        memset(s.wire + 4 * (len - 1), 0xff, 4); /* a NaN at the end */
        before = calloc(REPLICA_STATE_MAX * r->n, sizeof *before);
        after = calloc(REPLICA_STATE_MAX * r->n, sizeof *after);
        assert_true(before != NULL && after != NULL);
        copy_state(r, before);
        c = (struct replica_commit){s.round, s.wire, 1.0, 1, 1};
        assert_true(replica_commit(r, &c) < 0);
        copy_state(r, after);
        assert_memory_equal(before, after,
                            REPLICA_STATE_MAX * r->n * sizeof *before);
        assert_true(r->round == s.round - 1);
        free(before);
        free(after);
        swarm_close(&s);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_method_gives_the_bits_of_the_laboratory),
        cmocka_unit_test(feedback_in_a_butterfly_is_that_of_the_laboratory),
        cmocka_unit_test(pairs_give_the_bits_of_the_laboratory),
        cmocka_unit_test(members_and_joiners_hold_the_same_state),
        cmocka_unit_test(also_where_the_model_is_tiny),
        cmocka_unit_test(who_was_late_packs_for_the_next_round),
        cmocka_unit_test(a_late_gradient_is_spent_and_the_replicas_stay_equal),
        cmocka_unit_test(who_is_in_the_middle_of_a_task_goes_on),
        cmocka_unit_test(a_state_without_meaning_is_refused),
        cmocka_unit_test(bytes_that_are_no_numbers_change_nothing),
    };

    return cmocka_run_group_tests(tests, setup, NULL);
}
