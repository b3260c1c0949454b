/* outer_test.c - the outer step on the GPU (train/replica/outer.h) beside the
 * engine's on copies of what lies there: the same bits of contribution, anchor,
 * momentum and live parameters, round after round; what is refused changes
 * nothing; a GPU that fails at any moment of it takes nothing away. What the
 * emulator must inject is left out on a GPU. use: test_cuda_outer [PLUGIN] */
#include "tests/unit/cuda/bench.h"

#include "proto/base/errmsg.h"
#include "train/replica/outer.h"
#include "train/replica/outer_pass.h"
#include "train/replica/pair.h"
#include "train/sync/preset.h"

static char errmsg[ERRMSG_SIZE];
static struct device_options device;

static const char *const names[] = {"localsgd",    "diloco",     "opendiloco",
                                    "streaming",   "favg-reset", "noloco",
                                    "async-naive", "async-dn"};
#define N_NAMES (sizeof names / sizeof names[0])

static struct replica_options options(const char *name)
{
    const struct preset *p;
    struct replica_options opt = small_replica();

    /* The emulator's deadline; a real GPU has the usual one. */
    device = (struct device_options){
        .plugin = plugin_path,
        .gpu = {.bf16 = true, .timeout_ms = emu == NULL ? 0 : 50}};
    opt.device = &device;
    opt.model.dim = opt.model.ffn = opt.model.seq = opt.seq = 8;
    opt.model.vocab = 1024;
    opt.eval_tokens = 8;
    assert_int_equal(preset_find(name, &p, errmsg), 0);
    opt.method = p->method;
    opt.method.period = opt.method.fragments > 1 ? 4 : 1;
    opt.method.fragments = opt.method.fragments > 1 ? 2 : 1;
    assert_int_equal(method_check(&opt.method, errmsg), 0);
    opt.codec = codec_get_portable(opt.method.wire);
    return opt;
}

static void open_replica(struct replica *r, const char *name, bool outer)
{
    const struct replica_options opt = options(name);

    if (replica_open(r, &opt, errmsg) != 0) {
        fail_msg("%s: %s", name, errmsg);
    }
    if (!outer) {
        replica_outer_close(r);
    }
    assert_true(r->outer.on == outer);
    r->outer.most = 4096; /* several pieces */
    replica_init(r);
}

static bool is_pair(const struct replica *r)
{
    return r->opt.method.group == METHOD_PAIR;
}

static bool is_quorum(const struct replica *r)
{
    return r->opt.method.group == METHOD_QUORUM;
}

/* The mean of two, as it comes from the wire; of a pair: a partner that is
 * elsewhere and went half as far. */
static uint8_t *mean_of(const struct replica *r)
{
    const struct codec *c = r->opt.codec;
    uint64_t n = replica_elements(r);
    uint8_t *wire = malloc(2 * c->bytes(n)), *to = wire;

    assert_non_null(wire);
    if (is_pair(r)) {
        assert_int_equal(c->encode(to, r->phi, n, 0.75F), 0);
        to += c->bytes(n);
    }
    assert_int_equal(c->encode(to, r->contribution, n, 0.5F), 0);
    return wire;
}

/* With share 0 without it: a pair's is alone. */
static int try_commit(struct replica *r, const uint8_t *wire, double share)
{
    struct replica_commit c = {r->round + 1, wire, share, 2, 2};

    c.arrivals = 1 + 2 * (uint32_t)(c.round % 3); /* a quorum's */
    return is_pair(r) ? replica_apply_pair(r, c.round, share > 0 ? wire : NULL,
                                           c.round % 2 == 0)
                      : replica_commit(r, &c);
}

static void commit(struct replica *r, double share)
{
    uint8_t *wire = mean_of(r);

    assert_int_equal(try_commit(r, wire, share), 0);
    free(wire);
}

static float *theta_of(struct replica *r)
{
    float *x = malloc(r->n * sizeof *x);

    assert_non_null(x);
    r->backend.get(&r->backend, x, r->theta, r->n * sizeof *x);
    assert_int_equal(r->backend.finish(&r->backend), 0);
    return x;
}

static void check_same(const char *name, struct replica *a, struct replica *b)
{
    float *x = theta_of(a), *y = theta_of(b);
    size_t bytes = a->n * sizeof *x;

    if (a->round != b->round || memcmp(a->phi, b->phi, bytes) != 0 ||
        (a->m != NULL && memcmp(a->m, b->m, bytes) != 0)) {
        fail_msg("%s: the state of round %llu differs", name,
                 (unsigned long long)a->round);
    }
    if (is_quorum(a) &&
        (memcmp(a->engine.base, b->engine.base, bytes) != 0 ||
         memcmp(a->arrivals, b->arrivals, sizeof a->arrivals) != 0)) {
        fail_msg("%s: the base or counts differ", name);
    }
    if (a->engine.sum != NULL &&
        memcmp(a->engine.sum, b->engine.sum, bytes) != 0) {
        fail_msg("%s: the sum differs", name);
    }
    if (memcmp(x, y, bytes) != 0) {
        fail_msg("%s: theta differs in round %llu", name,
                 (unsigned long long)a->round);
    }
    free(x);
    free(y);
}

static void step(struct replica *r)
{
    float loss;

    assert_int_equal(replica_step(r, &loss), 0);
}

/* Up to where the contribution is there. */
static void make_contribution(struct replica *r)
{
    while (replica_left(r) > 0) {
        step(r);
    }
    assert_int_equal(replica_pack(r), 0);
}

static void make_beside(struct replica *r)
{
    while (replica_beside(r) > 0) {
        step(r);
    }
}

/* Rounds of both, every third without them, a state from elsewhere. */
static void outer_steps_have_the_bits_of_the_engine(void **state)
{
    (void)state;
    for (size_t i = 0; i < N_NAMES; i++) {
        struct replica there, here;
        double a, b;

        open_replica(&there, names[i], true);
        open_replica(&here, names[i], false);
        for (int round = 1; round <= 4; round++) {
            double share = round % 3 == 0 ? 0 : 0.5;

            if (is_quorum(&here)) { /* in the middle of a task */
                commit(&there, 0);
                commit(&here, 0);
                check_same(names[i], &there, &here);
            }
            make_contribution(&there);
            make_contribution(&here);
            assert_memory_equal(there.contribution, here.contribution,
                                replica_elements(&here) * sizeof(float));
            make_beside(&there);
            make_beside(&here);
            commit(&there, share);
            commit(&here, share);
            check_same(names[i], &there, &here);
            if (share == 0) { /* the open contribution goes on */
                commit(&there, 0.5);
                commit(&here, 0.5);
            }
        }
        if (is_quorum(&here)) { /* the anchor is not the base */
            commit(&there, 0);
            commit(&here, 0);
        }
        assert_int_equal(replica_eval(&there, 0, &a), 0);
        assert_int_equal(replica_eval(&here, 0, &b), 0);
        assert_true(a == b);
        assert_true(there.outer.on && there.outer.current);
        step(&there); /* an evaluation leaves theta as it was */
        step(&here);
        check_same(names[i], &there, &here);
        replica_close(&here);
        replica_close(&there);
    }
}

/* A joiner's state and one that is rebased on move the GPU's anchor, too. */
static void a_state_from_others_is_the_next_anchor(void **state)
{
    (void)state;
    for (size_t i = 0; i < N_NAMES; i++) {
        struct replica there, here, other;
        float *x;

        open_replica(&other, names[i], true);
        make_contribution(&other);
        commit(&other, 0.5);
        x = state_of(&other);
        open_replica(&there, names[i], true);
        open_replica(&here, names[i], false);
        make_contribution(&there);
        make_contribution(&here);
        make_beside(&there);
        make_beside(&here);
        commit(&there, 0.5);
        commit(&here, 0.5);
        for (int rebase = 1; rebase >= 0; rebase--) {
            step(&there);
            step(&here);
            assert_int_equal(replica_load(&there, 1, x, rebase != 0), 0);
            assert_int_equal(replica_load(&here, 1, x, rebase != 0), 0);
            check_same(names[i], &there, &here);
            make_contribution(&there);
            make_contribution(&here);
            commit(&there, 0.5);
            commit(&here, 0.5);
            check_same(names[i], &there, &here);
        }
        free(x);
        replica_close(&here);
        replica_close(&there);
        replica_close(&other);
    }
}

/* A mean that is not finite, bytes that no encoder writes. */
static void what_is_refused_changes_nothing(void **state)
{
    (void)state;
    for (size_t i = 0; i < N_NAMES; i++) {
        struct replica r, before;
        uint8_t *wire;
        uint64_t n;
        int refused = 0;

        open_replica(&r, names[i], true);
        open_replica(&before, names[i], true);
        make_contribution(&r);
        make_contribution(&before);
        n = replica_elements(&r);
        wire = mean_of(&r);
        for (int what = 0; what < 2; what++) {
            const struct codec *codec = r.opt.codec;
            uint8_t *bad = wire; /* a pair's displacement, then its anchor */
            int rv;

            bad += is_pair(&r) && what == 0 ? codec->bytes(n) : 0;
            /* a number that is none; a scale that is none */
            memset(bad + (what == 0 ? codec->bytes(n) - 4
                                    : codec->bytes((n - 1) / 4096 * 4096)),
                   0xff, 4);
            rv = codec->decode(r.average, bad, n);
            if (rv == 0) {
                continue; /* codes of e3m0 */
            }
            refused++;
            assert_int_equal(try_commit(&r, wire, 0.5), rv);
            check_same(names[i], &r, &before);
            if (is_pair(&r)) { /* of the other one alone */
                free(wire);
                wire = mean_of(&r);
            }
        }
        free(wire);
        if (refused == 0) {
            fail_msg("%s: nothing was refused", names[i]);
        }
        commit(&r, 0.5);
        commit(&before, 0.5);
        check_same(names[i], &r, &before);
        replica_close(&before);
        replica_close(&r);
    }
}

/* An anchor near the end of the numbers, so that the rule leaves them. */
static void leave_the_numbers(const char *name)
{
    struct replica r, before;
    float *x;
    uint64_t n;
    uint8_t *wire;

    open_replica(&r, name, true);
    open_replica(&before, name, true);
    x = state_of(&r);
    x[r.n + 3] = 3e38f; /* the momentum */
    assert_int_equal(replica_load(&r, 1, x, false), 0);
    assert_int_equal(replica_load(&before, 1, x, false), 0);
    n = replica_elements(&r);
    memset(r.contribution, 0, n * sizeof(float));
    r.contribution[3] = 3e38f;
    wire = mean_of(&r);
    assert_int_equal(
        r.opt.codec->encode(wire + (is_pair(&r) ? r.opt.codec->bytes(n) : 0),
                            r.contribution, n, 1),
        0);
    assert_int_equal(try_commit(&r, wire, 0.5), LOCO_ENUMERIC);
    check_same(name, &r, &before);
    if (outer_passes(&r.opt.method)) { /* and without it */
        assert_int_equal(try_commit(&r, wire, 0), LOCO_ENUMERIC);
        check_same(name, &r, &before);
    }
    free(wire);
    free(x);
    replica_close(&before);
    replica_close(&r);
}

static void a_rule_that_leaves_the_numbers_changes_nothing(void **state)
{
    (void)state;
    leave_the_numbers("diloco");
    leave_the_numbers("noloco");
    leave_the_numbers("async-dn");
}

static int renew(void **state)
{
    (void)state;
    emu_as_new();
    return 0;
}

/* Every launch of pack and commit breaks the GPU, or is never answered: the
 * state is as it was, the contribution, once packed, too, and the commit is
 * made on what takes the GPU's place with the bits that it always has. */
static void try_failure(const char *name, bool hang, bool again)
{
    struct replica want;
    bool done = false;

    open_replica(&want, name, true);
    make_contribution(&want);
    commit(&want, 0.5);
    for (int n = 1; !done; n++) {
        struct replica r;
        uint8_t *wire;
        float *packed, *before;
        int rv;

        (void)renew(NULL);
        open_replica(&r, name, true);
        make_contribution(&r);
        packed = malloc(replica_elements(&r) * sizeof *packed);
        assert_non_null(packed);
        memcpy(packed, r.contribution, replica_elements(&r) * sizeof *packed);
        before = state_of(&r);
        wire = mean_of(&r);
        *(hang ? &emu->hang_after : &emu->fail_launch) = n;
        rv = try_commit(&r, wire, 0.5);
        done = rv == 0;
        if (!done) {
            float *after = state_of(&r);

            assert_int_equal(rv, hang ? LOCO_ETIMEOUT : LOCO_ECUDA);
            assert_true(device_message(r.backend.device)[0] != '\0');
            assert_memory_equal(before, after,
                                REPLICA_STATE_MAX * r.n * sizeof *after);
            assert_memory_equal(packed, r.contribution,
                                replica_elements(&r) * sizeof *packed);
            free(after);
            (void)renew(NULL); /* it works again */
            assert_int_equal(replica_recover(&r, again, errmsg), 0);
            assert_true(r.outer.on == again);
            assert_int_equal(try_commit(&r, wire, 0.5), 0);
        }
        (void)renew(NULL);
        assert_memory_equal(r.phi, want.phi, r.n * sizeof(float));
        if (r.m != NULL) {
            assert_memory_equal(r.m, want.m, r.n * sizeof(float));
        }
        if (r.engine.sum != NULL) {
            assert_memory_equal(r.engine.sum, want.engine.sum,
                                r.n * sizeof(float));
        }
        free(wire);
        free(packed);
        free(before);
        replica_close(&r);
    }
    replica_close(&want);
}

static void a_gpu_that_fails_in_a_commit_takes_nothing_away(void **state)
{
    (void)state;
    try_failure("diloco", false, true);
    try_failure("streaming", false, false);
    try_failure("localsgd", true, true);
    try_failure("noloco", false, true);
    try_failure("async-naive", true, true);
    try_failure("async-dn", false, false);
}

/* While packing: the state is as it was; the steps since the last commit are
 * lost with the GPU, and the replica says so by a contribution of no tokens. */
static void a_gpu_that_fails_while_packing_keeps_the_state(void **state)
{
    (void)state;
    for (size_t i = 0; i < N_NAMES; i++) {
        struct replica r;
        float *before, *after;

        open_replica(&r, names[i], true);
        make_contribution(&r);
        commit(&r, 0.5);
        while (replica_left(&r) > 0) {
            step(&r);
        }
        before = state_of(&r);
        emu->fail_launch = 1;
        assert_int_equal(replica_pack(&r), LOCO_ECUDA);
        after = state_of(&r);
        assert_memory_equal(before, after,
                            REPLICA_STATE_MAX * r.n * sizeof *after);
        (void)renew(NULL);
        assert_int_equal(replica_recover(&r, true, errmsg), 0);
        assert_int_equal(r.tokens_pending, 0);
        make_contribution(&r);
        commit(&r, 0.5);
        free(after);
        free(before);
        replica_close(&r);
    }
}

/* The plan counts all that it takes. */
static void its_memory_is_what_was_counted(void **state)
{
    (void)state;
    for (size_t i = 0; i < N_NAMES; i++) {
        const struct replica_options opt = options(names[i]);
        struct replica r;
        uint64_t with, counted;

        open_replica(&r, names[i], true);
        with = emu->used;
        counted = replica_outer_bytes(&opt, r.n);
        replica_outer_close(&r);
        if (with - emu->used > counted ||
            with - emu->used + 2 * 8192 * sizeof(float) < counted) {
            fail_msg("%s: takes %llu of %llu bytes", names[i],
                     (unsigned long long)(with - emu->used),
                     (unsigned long long)counted);
        }
        replica_close(&r);
    }
}

/* Memory for it is the first to be given back, and it need not be there. */
static void try_without_room(const char *name)
{
    struct replica_options opt = options(name);
    struct replica r, want;
    uint64_t used = emu->used;

    open_replica(&want, name, false);
    make_contribution(&want);
    commit(&want, 0.5);
    /* just too little for it; too little pinned memory */
    for (int what = 0; what < 3; what++) {
        emu->fail_pin = what == 1 ? 3 : 0;
        emu->memory = what == 0 ? emu->used + (emu->used - used) + 4000 +
                                      PLUGIN_SPARE_BYTES
                                : (uint64_t)8 << 30;
        assert_int_equal(replica_open(&r, &opt, errmsg), 0);
        assert_true(r.outer.on == (what == 2));
        assert_int_equal(r.micro_batch, 1);
        emu->memory = (uint64_t)8 << 30;
        replica_init(&r);
        if (what == 2) {
            emu->fail_malloc = 1; /* a launcher's memory in a step */
            step(&r);
            assert_true(!r.outer.on && r.micro_batch == 1);
        }
        make_contribution(&r);
        commit(&r, 0.5);
        check_same(name, &r, &want);
        replica_close(&r);
    }
    replica_close(&want);
    assert_int_equal(emu->used, used);
}

static void without_room_the_engine_does_it(void **state)
{
    (void)state;
    try_without_room("diloco");
    try_without_room("noloco");
    try_without_room("async-dn");
}

/* Every preset is in one of the lists, which train/replica/outer.h explains.
 * methods_test.c looks at what the engine does with copies. */
static void methods_with_more_than_an_anchor_go_through_the_engine(void **state)
{
    static const char *const there =
        " localsgd diloco opendiloco streaming "
        "favg-keep favg-reset muloco muon-avg noloco "
        "async-naive async-dn ";
    static const char *const engine = " ddp eager "
                                      "local-adam desloc adloco ";
    const struct preset *p;

    (void)state;
    for (size_t i = 0; (p = preset_at(i)) != NULL; i++) {
        char name[64];

        (void)snprintf(name, sizeof name, " %s ", p->name);
        assert_non_null(
            strstr(replica_outer_serves(&p->method) ? there : engine, name));
    }
}

static int setup(void **state)
{
    (void)state;
    open_text();
    open_gpu(true);
    backend_close(&gpu);
    return 0;
}

/* Of a test that injects what only the emulator knows. */
#define INJECTED(name)                                                         \
    static void name##_(void **state)                                          \
    {                                                                          \
        if (emu != NULL) {                                                     \
            name(state);                                                       \
        }                                                                      \
    }
/* clang-format off */
INJECTED(a_gpu_that_fails_in_a_commit_takes_nothing_away)
INJECTED(a_gpu_that_fails_while_packing_keeps_the_state)
INJECTED(its_memory_is_what_was_counted)
INJECTED(without_room_the_engine_does_it)
/* clang-format on */

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(outer_steps_have_the_bits_of_the_engine, renew),
        cmocka_unit_test_setup(a_state_from_others_is_the_next_anchor, renew),
        cmocka_unit_test_setup(what_is_refused_changes_nothing, renew),
        cmocka_unit_test_setup(a_rule_that_leaves_the_numbers_changes_nothing,
                               renew),
        cmocka_unit_test_setup(a_gpu_that_fails_in_a_commit_takes_nothing_away_,
                               renew),
        cmocka_unit_test_setup(a_gpu_that_fails_while_packing_keeps_the_state_,
                               renew),
        cmocka_unit_test_setup(its_memory_is_what_was_counted_, renew),
        cmocka_unit_test_setup(without_room_the_engine_does_it_, renew),
        cmocka_unit_test_setup(
            methods_with_more_than_an_anchor_go_through_the_engine, renew),
    };

    plugin_path = argc > 1 ? argv[1] : plugin_path;
    return cmocka_run_group_tests(tests, setup, NULL);
}
