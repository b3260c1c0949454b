/* methods_test.c - every method on a GPU. The engine works on copies of what
 * lies there (train/replica/device.h):
 *   - with the processor in the GPU's place, which keeps the copies, the bits
 *     are those of a replica that never had any;
 *   - on the GPU the numbers are the processor's but for rounding;
 *   - a GPU that is lost takes nothing of the state with it;
 *   - AdLoCo's test of the batch runs on the GPU where it has room for it.
 * Needs the emulator only for the last two. */
#include "tests/unit/cuda/bench.h"

#include "tests/unit/train/short_method.h"
#include "train/replica/pair.h"
#include "train/replica/plan.h"
#include "train/replica/replica.h"

#define STEPS 14

static char errmsg[ERRMSG_SIZE];
static struct device_options device;

static struct replica_options options(const char *name, bool on_gpu)
{
    struct replica_options opt = small_replica();
    const struct preset *p;

    assert_int_equal(preset_find(name, &p, NULL), 0);
    if (p->optimizer != NULL) {
        assert_int_equal(
            optimizer_rule_named(p->optimizer, &opt.optimizer.rule), 0);
    }
    device = (struct device_options){.plugin = plugin_path};
    opt.device = on_gpu ? &device : NULL;
    opt.model.layers = 2;
    opt.method = method_of(name);
    opt.codec = codec_find("fp32");
    return opt;
}

static void open_replica(struct replica *r, const char *name, bool on_gpu)
{
    const struct replica_options opt = options(name, on_gpu);

    if (replica_open(r, &opt, errmsg) != 0) {
        fail_msg("%s: %s", name, errmsg);
    }
    replica_init(r);
}

/* A turn with a partner that is at the same anchor and went half as far; with
 * share 0 alone, and then the mean with a replica of zeros. */
static void turn(struct replica *r, double share)
{
    const struct codec *c = r->opt.codec;
    uint64_t n = r->n;
    uint8_t *wire = malloc(2 * c->bytes(n));
    float *zeros = calloc(2 * n, sizeof *zeros);

    assert_true(wire != NULL && zeros != NULL);
    assert_int_equal(c->encode(wire, r->phi, n, 1.0F), 0);
    assert_int_equal(c->encode(wire + c->bytes(n), r->contribution, n, 0.5F),
                     0);
    assert_int_equal(
        replica_apply_pair(r, r->round + 1, share > 0 ? wire : NULL, true), 0);
    if (share <= 0) {
        assert_int_equal(replica_mix(r, zeros, 0.125), 0);
    }
    free(zeros);
    free(wire);
}

/* A mean of two: the own contribution and nothing. */
static void commit(struct replica *r, double share)
{
    uint64_t n = replica_elements(r);
    uint8_t *wire;
    struct replica_commit c = {r->round + 1, NULL, share, 2, 2};

    if (r->opt.method.group == METHOD_PAIR) {
        turn(r, share);
        return;
    }
    c.wire = wire = malloc(r->opt.codec->bytes(n));
    assert_non_null(wire);
    assert_int_equal(r->opt.codec->encode(wire, r->contribution, n, 0.5F), 0);
    assert_int_equal(replica_commit(r, &c), 0);
    free(wire);
}

/* Rounds as they come; every third is without this replica. */
static void train(struct replica *r, int steps)
{
    float loss;

    while (steps > 0 || r->packed) {
        if (r->packed && replica_beside(r) == 0) {
            commit(r, r->round % 3 == 2 ? 0 : 0.5);
        } else if (!r->packed && replica_left(r) == 0) {
            assert_int_equal(replica_pack(r), 0);
        } else if (steps > 0) {
            assert_int_equal(replica_step(r, &loss), 0);
            assert_true(isfinite(loss));
            steps--;
        } else {
            commit(r, 0.5);
        }
    }
}

static void same_state(const char *name, struct replica *a, struct replica *b)
{
    uint64_t n = replica_state_elements(&a->opt.method, a->n);
    float *x = state_of(a), *y = state_of(b);

    if (memcmp(x, y, n * sizeof *x) != 0) {
        fail_msg("%s: the states differ in round %llu", name,
                 (unsigned long long)a->round);
    }
    free(x);
    free(y);
}

static void copies_change_no_bit(void **state)
{
    const struct preset *p;

    (void)state;
    for (size_t i = 0; (p = preset_at(i)) != NULL; i++) {
        struct replica plain, copied;
        double want, got;

        open_replica(&plain, p->name, false);
        open_replica(&copied, p->name, true);
        assert_int_equal(replica_recover(&copied, false, errmsg), 0);
        assert_ptr_not_equal(copied.engine.theta, copied.theta);
        train(&plain, STEPS);
        train(&copied, STEPS);
        assert_true(plain.round >= 2 && plain.round == copied.round);
        same_state(p->name, &plain, &copied);
        if (memcmp(plain.theta, copied.theta, plain.n * sizeof(float)) != 0 ||
            memcmp(plain.optimizer.v, copied.optimizer.v,
                   plain.n * sizeof(float)) != 0) {
            fail_msg("%s: theta or v differ", p->name);
        }
        assert_int_equal(replica_eval(&plain, 0, &want), 0);
        assert_int_equal(replica_eval(&copied, 0, &got), 0);
        assert_true(want == got);
        replica_close(&copied);
        replica_close(&plain);
    }
}

static void joiners_and_restarts_change_no_bit(void **state)
{
    const struct preset *p;

    (void)state;
    for (size_t i = 0; (p = preset_at(i)) != NULL; i++) {
        struct replica plain, copied;
        float *at, *moments, loss;

        open_replica(&plain, p->name, false);
        open_replica(&copied, p->name, true);
        train(&plain, STEPS);
        at = state_of(&plain);
        moments = malloc(2 * plain.n * sizeof *moments);
        assert_non_null(moments);
        replica_moments(&plain, moments);
        assert_int_equal(replica_recover(&copied, false, errmsg), 0);
        assert_int_equal(replica_restore(&copied, plain.round, at, moments,
                                         moments + plain.n, STEPS, STEPS,
                                         STEPS),
                         0);
        assert_int_equal(replica_restore(&plain, plain.round, at, moments,
                                         moments + plain.n, STEPS, STEPS,
                                         STEPS),
                         0);
        copied.engine.share = plain.engine.share; /* of the last mean */
        assert_int_equal(replica_step(&copied, &loss), 0);
        assert_int_equal(replica_step(&plain, &loss), 0);
        assert_int_equal(replica_load(&copied, plain.round, at, true), 0);
        assert_int_equal(replica_load(&plain, plain.round, at, true), 0);
        assert_memory_equal(plain.theta, copied.theta, plain.n * sizeof(float));
        assert_int_equal(replica_load(&copied, plain.round, at, false), 0);
        assert_int_equal(replica_load(&plain, plain.round, at, false), 0);
        train(&copied, STEPS);
        train(&plain, STEPS);
        same_state(p->name, &plain, &copied);
        free(moments);
        free(at);
        replica_close(&copied);
        replica_close(&plain);
    }
}

static void a_gpu_gives_the_numbers_of_the_processor(void **state)
{
    const struct preset *p;

    (void)state;
    for (size_t i = 0; (p = preset_at(i)) != NULL; i++) {
        struct replica plain, r;
        float *begin, *want, *got;
        double moved, off, a, b;

        open_replica(&plain, p->name, false);
        begin = state_of(&plain);
        open_replica(&r, p->name, true);
        train(&plain, STEPS);
        train(&r, STEPS);
        want = state_of(&plain);
        got = state_of(&r);
        /* Adam turns rounding of gradients near 0 into whole steps. */
        moved = norm_of(want, begin, (int64_t)r.n);
        off = norm_of(got, want, (int64_t)r.n);
        if (!(moved > 0 && off < 0.1 * moved)) {
            fail_msg("%s: moved %g, off by %g", p->name, moved, off);
        }
        assert_int_equal(replica_eval(&plain, 0, &a), 0);
        assert_int_equal(replica_eval(&r, 0, &b), 0);
        assert_true(fabs(a - b) < 0.01);
        free(got);
        free(want);
        free(begin);
        replica_close(&r);
        replica_close(&plain);
    }
}

/* Lost in the middle of a round and beside one under way. */
static void a_lost_gpu_keeps_the_state(void **state)
{
    const struct preset *p;

    (void)state;
    for (size_t i = 0; (p = preset_at(i)) != NULL; i++) {
        struct replica r;
        uint64_t n;
        float *before, *after;
        float loss;

        open_replica(&r, p->name, true);
        train(&r, STEPS);
        while (replica_left(&r) > 0) {
            assert_int_equal(replica_step(&r, &loss), 0);
        }
        assert_int_equal(replica_pack(&r), 0);
        before = state_of(&r);
        emu->sticky = 700; /* an illegal address */
        if (r.opt.method.gradients) {
            uint8_t *wire = malloc(r.opt.codec->bytes(r.n_wire));
            const struct replica_commit c = {r.round + 1, wire, 0.5, 1, 2};

            assert_non_null(wire);
            assert_int_equal(r.opt.codec->encode(wire, r.contribution,
                                                 replica_elements(&r), 0.5F),
                             0);
            assert_int_equal(replica_commit(&r, &c), LOCO_ECUDA);
            free(wire);
        } else {
            assert_int_equal(replica_step(&r, &loss), LOCO_ECUDA);
        }
        emu->sticky = 0;
        assert_int_equal(replica_recover(&r, i % 2 == 0, errmsg), 0);
        after = state_of(&r);
        n = replica_state_elements(&r.opt.method, r.n);
        assert_memory_equal(before, after, n * sizeof *after);
        commit(&r, 0.5); /* of what was packed before */
        train(&r, STEPS);
        free(after);
        free(before);
        replica_close(&r);
    }
}

/* All that a step of Muon works in is taken when the replica opens, and is in
 * the plan. */
static void muon_takes_its_memory_when_it_opens(void **state)
{
    struct replica_options opt = options("muon-avg", true);
    struct replica_plan plan, adamw;
    uint64_t before = emu->used, opened;
    struct replica r;

    (void)state;
    replica_plan(&opt, UINT64_MAX, &plan);
    opt.optimizer.rule = OPTIMIZER_ADAMW;
    replica_plan(&opt, UINT64_MAX, &adamw);
    assert_true(plan.state_bytes > adamw.state_bytes);
    open_replica(&r, "muon-avg", true);
    assert_true(r.optimizer.scratch_bytes ==
                plan.state_bytes - adamw.state_bytes);
    opened = emu->used;
    assert_true(opened - before >= plan.state_bytes);
    train(&r, 2);
    assert_true(emu->used - opened < plan.work_bytes + plan.outer_bytes);
    replica_close(&r);
    assert_int_equal(emu->used, before);
}

/* ---- the batch test ------------------------------------------------------ */

static void open_adloco(struct replica *r, bool on_gpu)
{
    struct replica_options opt = options("adloco", on_gpu);

    opt.method.trainers = opt.method.merge_every = 1;
    opt.method.batch_eta = 0.1; /* small: it asks for more */
    opt.method.batch_most = 4;
    opt.batch = opt.micro_batch = 4;
    if (replica_open(r, &opt, errmsg) != 0) {
        fail_msg("%s", errmsg);
    }
    replica_init(r);
}

/* A step with the test, as the processor makes it: what it asks for, and what
 * the mean of both halves does. */
static void same_step(struct replica *r, const struct replica *want, float at)
{
    float *moved = malloc(r->n * sizeof *moved), loss;

    assert_non_null(moved);
    assert_int_equal(replica_step(r, &loss), 0);
    assert_true(fabsf(loss - at) <= 1e-4f * at);
    assert_int_equal(r->asked, want->asked);
    r->backend.get(&r->backend, moved, r->grad, r->n * sizeof *moved);
    check_close(moved, want->grad, (int64_t)r->n, 1e-4, "the gradient");
    free(moved);
}

static void the_batch_test_runs_on_the_gpu(void **state)
{
    struct replica plain, r;
    uint64_t used = emu->used;
    float loss;

    (void)state;
    open_adloco(&plain, false);
    assert_int_equal(replica_step(&plain, &loss), 0);
    assert_true(plain.asked > 4); /* it tells something */
    open_adloco(&r, true);
    assert_non_null(r.outer.half);
    same_step(&r, &plain, loss);
    assert_non_null(r.outer.half);
    replica_close(&r);
    /* Each allocation of the step fails once: in the first half, in the second,
     * of the norms. That memory goes, the step is the same. */
    for (int n = 1;; n++) {
        bool failed;

        open_adloco(&r, true);
        emu->fail_malloc = n;
        same_step(&r, &plain, loss);
        failed = emu->fail_malloc == 0;
        emu->fail_malloc = 0;
        assert_true(failed == (r.outer.half == NULL));
        replica_close(&r);
        if (!failed) {
            assert_true(n > 3);
            break;
        }
    }
    replica_close(&plain);
    assert_int_equal(emu->used, used);
}

static int setup(void **state)
{
    (void)state;
    open_text();
    open_gpu(false);
    backend_close(&gpu);
    return emu == NULL ? -1 : 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(copies_change_no_bit),
        cmocka_unit_test(joiners_and_restarts_change_no_bit),
        cmocka_unit_test(a_gpu_gives_the_numbers_of_the_processor),
        cmocka_unit_test(muon_takes_its_memory_when_it_opens),
        cmocka_unit_test(a_lost_gpu_keeps_the_state),
        cmocka_unit_test(the_batch_test_runs_on_the_gpu),
    };

    return cmocka_run_group_tests(tests, setup, NULL);
}
