/* machine_test.c - the bytes of a round: lanes, sums, hashes that go on while
 * an attempt is given up, and closing. Also run under ThreadSanitizer. */
#include "tests/unit/daemon/rig_jobs.h"

#define N     ((uint64_t)3 << 20) /* elements: 12 pieces of a hash */
#define PIECE ((uint64_t)1 << 18) /* elements of a piece, fp32 */

/* With so many elements in a round, fp32 on the wire; round 8 is over. */
static struct rig *open_rig(uint64_t n)
{
    struct rig *g = make_rig("localsgd");

    set_size(g, n);
    add_text(g, "a.ltk", false);
    start_rig(g);
    assert_true(g->terms.n_params == n);
    (void)load_state(g, 8, 1, 0);
    g->n_told = 0;
    return g;
}

/* Of so many elements of fp32 whose bytes are all the same. */
static struct hash32 hash_of(uint8_t byte, uint64_t n)
{
    uint8_t *bytes = malloc(4 * n);
    struct hash32 hash;

    assert_non_null(bytes);
    memset(bytes, byte, 4 * n);
    hash_tree(bytes, 4 * n, &hash);
    free(bytes);
    return hash;
}

/* The machine hashes the vector of that attempt. */
static struct hash32 hash(struct rig *g, uint64_t attempt)
{
    g->n_told = 0;
    hash_ring(g, attempt);
    until(g, NULL, 1);
    assert_int_equal(g->told[0].type, LOCAL_HASHED);
    assert_int_equal(g->told[0].rc, 0);
    assert_true(g->told[0].hashed.request == attempt);
    return g->told[0].hashed.hash;
}

static bool hashes_to(struct rig *g, uint64_t attempt, const struct hash32 *h)
{
    const struct hash32 got = hash(g, attempt);

    return hash32_eq(&got, h);
}

static void a_hash_is_that_of_the_whole_vector(void **state)
{
    struct rig *g = open_rig(N);
    struct hash32 want = hash_of(3, N);

    (void)state;
    receive(g, 9, 3);
    assert_true(hashes_to(g, 9, &want));
    close_rig(g);
}

/* Whatever a worker was given before this is done: it takes one job after the
 * other, and this is the last one. `attempt`: one of its own. */
static void wait_for_worker(struct rig *g, uint64_t attempt)
{
    receive_piece(g, attempt, 0, 0, false);
    (void)hash(g, attempt);
}

/* The bytes of the vector change, which nobody tells the machine: a hash of
 * what they were is one that was made before. */
static void spoil(struct rig *g, uint64_t attempt)
{
    uint64_t n = terms_elements(&g->terms, attempt);

    for (uint64_t at = 0; at < n; at += 1 << 16) {
        struct segment s = ring_piece(g, attempt, at);
        uint8_t *bytes = g->calls.place(g->calls.self, &s);

        assert_non_null(bytes);
        memset(bytes, 0xff, g->calls.wire_len(g->calls.self, &s));
    }
}

/* From the end to the beginning; all pieces are hashed before HASH is said. */
static void a_hash_is_made_while_segments_arrive(void **state)
{
    struct rig *g = open_rig(N);
    struct hash32 want;
    uint8_t *bytes = malloc(4 * N);

    (void)state;
    assert_non_null(bytes);
    for (uint64_t at = N; at > 0; at -= 1 << 16) {
        receive_piece(g, 9, at - (1 << 16), (uint8_t)(at >> 16), true);
        memset(bytes + 4 * (at - (1 << 16)), (uint8_t)(at >> 16), 4 << 16);
    }
    hash_tree(bytes, 4 * N, &want);
    wait_for_worker(g, 10);
    spoil(g, 9);
    assert_true(hashes_to(g, 9, &want));
    free(bytes);
    close_rig(g);
}

/* Bytes that may still change are hashed when HASH is said, not before. */
static void a_hash_is_not_made_of_what_may_change(void **state)
{
    struct rig *g = open_rig(N);
    struct hash32 want = hash_of(0xff, N);

    (void)state;
    receive(g, 9, 3);
    wait_for_worker(g, 10);
    spoil(g, 9);
    assert_true(hashes_to(g, 9, &want));
    close_rig(g);
}

/* Rounds take turns: the layer, and the larger rest of the model. */
static struct rig *open_turns(void)
{
    struct rig *g = make_rig("diloco");

    g->manifest.sync.fragments = g->manifest.sync.period = 2;
    g->manifest.model.dim = 256;
    g->manifest.model.ffn = 512;
    g->manifest.model.vocab = 6144;
    add_text(g, "a.ltk", false);
    start_rig(g);
    (void)load_state(g, 8, 1, 0);
    assert_int_equal(g->terms.n_turns, 2);
    assert_true(terms_elements(&g->terms, 1) != terms_elements(&g->terms, 2));
    return g;
}

/* Rounds 1, 3 .. of some elements, rounds 2, 4 .. of others: each one's hash is
 * that of its own length, whatever its slot held before. */
static void a_hash_is_as_long_as_the_round(void **state)
{
    struct rig *g = open_turns();
    static uint8_t bytes[4 << 16];

    (void)state;
    for (uint64_t round = 1; round <= 6; round++) {
        uint64_t n = terms_elements(&g->terms, round);
        struct segment beyond = {.attempt = round, .offset = n, .len = 1 << 16};
        struct hash32 want = hash_of((uint8_t)round, n);

        assert_true(n > PIECE && n % PIECE != 0);
        for (uint64_t at = 0; at < n; at += 1 << 16) {
            receive_piece(g, round, at, (uint8_t)round, true);
        }
        wait_for_worker(g, 100 + round);
        assert_int_equal(
            g->calls.take(g->calls.self, &beyond, bytes, sizeof bytes),
            LOCO_ERANGE);
        spoil(g, round); /* all pieces of the hash are made already */
        assert_true(hashes_to(g, round, &want));
    }
    close_rig(g);
}

/* What was hashed of an attempt that failed is not taken for the next one's,
 * nor what is hashed of it just now; the same after a LOAD. Nor does it matter
 * whether the new bytes are said to be final. */
static void what_was_hashed_of_other_bytes_is_forgotten(void **state)
{
    (void)state;
    for (int turn = 0; turn < 4; turn++) {
        bool load = turn & 1, final = turn & 2;
        struct rig *g = open_rig(N);
        struct hash32 want = hash_of(4, N);
        uint64_t again = load ? 9 : 10;

        for (uint64_t at = 0; at < N - PIECE; at += 1 << 16) {
            receive_piece(g, 9, at, 3, true);
        }
        if (load) {
            (void)load_state(g, 8, 2, 0);
        } else {
            inherit(g, 9, 10);
        }
        for (uint64_t at = 0; at < N; at += 1 << 16) {
            receive_piece(g, again, at, 4, final);
        }
        assert_true(hashes_to(g, again, &want));
        close_rig(g);
    }
}

/* The next attempt takes the bytes over at once and writes into them, while a
 * worker may still read them for the attempt that failed. */
static void inheriting_neither_waits_for_a_hash_nor_copies(void **state)
{
    struct rig *g = open_rig(N);
    struct segment first = {.attempt = 9, .len = 1 << 16};
    struct hash32 want = hash_of(4, N);
    const uint8_t *before;

    (void)state;
    receive(g, 9, 3);
    before = g->calls.place(g->calls.self, &first);
    hash_ring(g, 9);
    (void)uv_run(&g->loop, UV_RUN_NOWAIT);
    inherit(g, 9, 10);
    first.attempt = 10;
    assert_ptr_equal(g->calls.place(g->calls.self, &first), before);
    receive(g, 10, 4); /* while the worker is at it, or before it began */
    hash_ring(g, 10);
    until(g, NULL, 2);
    assert_int_equal(g->told[0].hashed.request, 9);
    assert_true(g->told[0].rc == 0 || g->told[0].rc == LOCO_ECANCELED);
    assert_int_equal(g->told[1].hashed.request, 10);
    assert_int_equal(g->told[1].rc, 0);
    assert_true(hash32_eq(&g->told[1].hashed.hash, &want));
    hash_ring(g, 9); /* there is no such attempt any more */
    until(g, NULL, 3);
    assert_int_equal(g->told[2].rc, LOCO_ENOENT);
    close_rig(g);
}

static void what_is_gone_is_not_inherited_nor_sent(void **state)
{
    struct rig *g = open_rig(1 << 16);
    struct segment s = {.attempt = 11, .len = 1 << 16};

    (void)state;
    assert_non_null(g->calls.lend(g->calls.self, &s));
    s.attempt = 10;
    inherit(g, 9, 10);
    until(g, NULL, 1);
    assert_int_equal(g->told[0].type, LOCAL_INHERITED);
    assert_int_equal(g->told[0].inherited.request, 10);
    assert_int_not_equal(g->told[0].rc, 0);
    assert_null(g->calls.lend(g->calls.self, &s));
    close_rig(g);
}

/* ---- lanes --------------------------------------------------------------- */

#define SMALL ((uint64_t)8192)

/* The rate falls to nothing after the first step: what is contributed then is
 * what rounding took from the contribution before. */
static struct rig *open_one_step(const char *wire)
{
    struct rig *g = make_rig("localsgd");

    set_size(g, SMALL);
    set_wire(g, wire);
    g->manifest.sync.error_feedback = true;
    g->manifest.inner.lr = 1;
    g->manifest.inner.lr_min = 0;
    g->manifest.inner.steps = 1;
    add_text(g, "a.ltk", false);
    start_rig(g);
    load_seed(g);
    train(g, 1);
    return g;
}

/* A lone member's: what it would contribute, as the wire has it. */
static void read_own(struct rig *g, uint64_t attempt, float x[SMALL])
{
    const struct codec *c = codec_find(g->manifest.sync.wire);
    struct job job = {
        .type = JOB_HASH,
        .hash = {.buffer = BUFFER_RING, .request = attempt, .encode = true}};
    struct segment s = {.attempt = attempt, .len = SMALL};
    uint8_t *wire = malloc(c->bytes(SMALL));

    assert_non_null(wire);
    assert_int_equal(ask(g, &job, LOCAL_HASHED)->rc, 0);
    assert_int_equal(g->calls.fill(g->calls.self, &s, wire), 0);
    assert_int_equal(c->decode(x, wire, SMALL), 0);
    free(wire);
}

/* 1024 equal elements of another member arrive in a lane, to weigh 1/4. */
static void receive_lane(struct rig *g, struct segment s, float value)
{
    const struct codec *c = codec_find("int8");
    uint8_t *at = g->calls.place(g->calls.self, &s);
    float x[1024];

    assert_non_null(at);
    for (size_t i = 0; i < 1024; i++) {
        x[i] = value;
    }
    assert_int_equal(c->encode(at, x, 1024, 1), 0);
    s.scale = 0.25;
    assert_int_equal(g->calls.take(g->calls.self, &s, at, c->bytes(1024)), 0);
}

/* The mean of round 1 is taken in. */
static void apply_first(struct rig *g)
{
    struct job job = {.type = JOB_APPLY,
                      .apply = {.round = 1,
                                .buffer = BUFFER_RING,
                                .share = 0.5,
                                .ours = true,
                                .arrivals = 3,
                                .members = 3}};

    hash_whole_ring(g, 1);
    assert_int_equal(ask(g, &job, LOCAL_APPLIED)->rc, 0);
}

static void sums_out_of_place_are_refused(struct rig *g, struct segment s)
{
    s.op = SEGMENT_SUM;
    s.lane = 1;
    assert_int_equal(g->calls.sum(g->calls.self, &s), LOCO_ENOENT); /* used */
    s.offset = SMALL;
    assert_int_equal(g->calls.sum(g->calls.self, &s), LOCO_ERANGE);
    s.op = SEGMENT_LANE;
    s.offset = 0;
    s.lane = 3; /* of three */
    assert_null(g->calls.place(g->calls.self, &s));
}

/* Contributions of two others and the own one, which a twin with exact numbers
 * on the wire tells, summed where they wait. */
static void lanes_are_summed_into_the_vector(void **state)
{
    struct rig *g = open_one_step("int8"), *twin = open_one_step("fp32");
    const struct codec *c = codec_find("int8");
    static float own[SMALL], next[SMALL], got[1024];
    uint8_t *wire = malloc(c->bytes(1024));
    struct segment s = {.attempt = 1,
                        .offset = 1024,
                        .len = 1024,
                        .op = SEGMENT_LANE,
                        .lanes = 3,
                        .slot = 2};
    double lost = 0, off;

    (void)state;
    assert_non_null(wire);
    read_own(twin, 1, own);
    receive(g, 1, 0); /* the rest of the vector */
    receive_lane(g, s, 1);
    s.lane = 2;
    receive_lane(g, s, 3);
    s.op = SEGMENT_SUM;
    s.lane = 1;
    s.scale = 0.5;
    assert_int_equal(g->calls.sum(g->calls.self, &s), 0);
    s.op = SEGMENT_COPY;
    assert_int_equal(g->calls.fill(g->calls.self, &s, wire), 0);
    assert_int_equal(c->decode(got, wire, 1024), 0);
    apply_first(g);
    train(g, 2);
    read_own(g, 2, next);
    for (size_t i = 0; i < 1024; i++) {
        double want = 0.25 * 1 + 0.25 * 3 + 0.5 * (double)own[1024 + i];

        off = (double)got[i] - want;
        assert_true(off < 0.01 && off > -0.01);
        lost += off * off;
        /* What the mean lacks is half of what the next round is given. */
        off = (double)got[i] + 0.5 * (double)next[1024 + i] - want;
        assert_true(off < 1e-4 && off > -1e-4);
    }
    assert_true(lost > 1024 * 1e-3 * 1e-3); /* it is no small matter */
    sums_out_of_place_are_refused(g, s);
    free(wire);
    close_rig(g);
    close_rig(twin);
}

/* ---- closing ------------------------------------------------------------- */

/* The encoding of a lone member runs on a worker: it may read the contribution
 * until it is done. */
static void closing_while_a_contribution_is_encoded_is_safe(void **state)
{
    struct rig *g = open_one_step("fp32");
    struct job job = {
        .type = JOB_HASH,
        .hash = {.buffer = BUFFER_RING, .request = 9, .encode = true}};

    (void)state;
    g->n_told = 0;
    give(g, &job);
    begin_to_close_machine(g);
    job.hash.request = 10;
    give(g, &job); /* nothing is begun any more */
    until(g, &g->machine_closed, 0);
    (void)uv_run(&g->loop, UV_RUN_NOWAIT);
    for (uint32_t i = 0; i < g->n_told; i++) {
        assert_int_equal(g->told[i].hashed.request, 9);
    }
    close_rig(g);
}

/* A worker and the trainer may tell something when the shell has gone. The
 * trainer does so after each step, and is stopped in the middle of one. */
static void what_ends_after_the_shell_is_told_to_nobody(void **state)
{
    struct rig *g = make_rig("localsgd");
    struct job hash = {
        .type = JOB_HASH,
        .hash = {.buffer = BUFFER_RING, .request = 9, .encode = true}};
    struct job train = {.type = JOB_TRAIN,
                        .train = {.round = 1, .steps = 1U << 30}};

    (void)state;
    g->manifest.sync.period = 1U << 30;
    add_text(g, "a.ltk", false);
    start_rig(g);
    load_seed(g);
    give(g, &hash);
    give(g, &train);
    machine_disconnect(g->m);
    hash.hash.request = 10;
    give(g, &hash); /* nothing is begun any more */
    g->n_counted = 0;
    close_shell(g);
    begin_to_close_machine(g);
    until(g, &g->machine_closed, 0);
    assert_int_equal(g->n_counted, 0);
    close_rig(g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(a_hash_is_that_of_the_whole_vector),
        CASE(a_hash_is_as_long_as_the_round),
        CASE(a_hash_is_made_while_segments_arrive),
        CASE(a_hash_is_not_made_of_what_may_change),
        CASE(what_was_hashed_of_other_bytes_is_forgotten),
        CASE(inheriting_neither_waits_for_a_hash_nor_copies),
        CASE(what_is_gone_is_not_inherited_nor_sent),
        CASE(lanes_are_summed_into_the_vector),
        CASE(closing_while_a_contribution_is_encoded_is_safe),
        CASE(what_ends_after_the_shell_is_told_to_nobody),
    };

    if (sign_start() != 0) {
        return 1;
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
