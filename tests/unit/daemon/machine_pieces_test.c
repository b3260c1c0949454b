/* machine_pieces_test.c - leaf lists and pieces, and what of rounds that are
 * over can still be fetched. */
#include "p2p/swarm/transfer.h"
#include "tests/unit/daemon/rig_jobs.h"

#define N     ((uint64_t)300000) /* elements: 2 pieces, of which one short */
#define STATE (2 * N * 4)        /* phi, and the outer momentum */
#define PIECE (1U << 20)

/* The loop's clock, as the machine sees it (-Wl,--wrap). */
static uint64_t clock_ms = 1000;

uint64_t __wrap_uv_now(const uv_loop_t *loop);
uint64_t __wrap_uv_now(const uv_loop_t *loop)
{
    (void)loop;
    return clock_ms;
}

/* A run whose states are that large. */
static struct rig *make_with_state(const char *preset)
{
    struct rig *g = make_rig(preset);

    set_size(g, N);
    set_wire(g, "fp32");
    add_text(g, "a.ltk", false);
    return g;
}

static struct rig *open_with_state(const char *preset)
{
    struct rig *g = make_with_state(preset);

    start_rig(g);
    assert_true(g->terms.n_params == N && g->terms.state_bytes == STATE);
    return g;
}

static int fill(struct rig *g,
                enum buffer_kind buffer,
                uint64_t round,
                uint64_t at,
                uint32_t len,
                uint8_t *dst)
{
    struct segment s = {
        .buffer = buffer, .index = round, .offset = at, .len = len};

    return g->calls.fill(g->calls.self, &s, dst);
}

static int take(struct rig *g,
                enum buffer_kind buffer,
                uint64_t round,
                uint64_t at,
                uint32_t len,
                const void *src)
{
    struct segment s = {
        .buffer = buffer, .index = round, .offset = at, .len = len};

    return g->calls.take(g->calls.self, &s, src, len);
}

static void publish(struct rig *g, uint64_t round)
{
    (void)load_state(g, round, (uint32_t)round, 0);
}

/* What the check of this piece says. */
static const struct local_event *
verify(struct rig *g, enum buffer_kind buffer, uint64_t index, uint32_t piece)
{
    struct job job = {.type = JOB_VERIFY,
                      .verify = {.buffer = buffer,
                                 .index = index,
                                 .request = 5ULL << 32 | piece}};

    g->n_told = 0;
    g->calls.local(g->calls.self, &job, NULL);
    until(g, NULL, 1);
    assert_int_equal(g->told[0].type, LOCAL_VERIFIED);
    assert_true(g->told[0].verified.request == job.verify.request);
    return &g->told[0];
}

/* A fetch was granted, and then the owner mixed: it has another state of that
 * round now. What goes out is what was asked for, or nothing: it would make a
 * liar of an honest peer. */
static void of_two_states_of_a_round_the_named_one_goes_out(void **state)
{
    struct rig *g = open_with_state("noloco");
    float *asked = make_state(4, 3), got[4];
    struct segment s = {.buffer = BUFFER_STATE, .index = 3, .len = sizeof got};
    struct segment leaves = {
        .buffer = BUFFER_STATE_LEAVES, .index = 3, .len = 32};
    uint64_t mean;
    uint8_t first[32], then[32];

    (void)state;
    s.name = leaves.name = load_state(g, 3, 3, 0);
    assert_int_equal(g->calls.fill(g->calls.self, &s, (uint8_t *)got), 0);
    assert_int_equal(g->calls.fill(g->calls.self, &leaves, first), 0);
    mean = load_state(g, 3, 9, 0.5); /* at the same round */
    assert_true(mean != s.name);
    assert_int_equal(g->calls.fill(g->calls.self, &s, (uint8_t *)got), 0);
    assert_memory_equal(got, asked, sizeof got);
    assert_int_equal(g->calls.fill(g->calls.self, &leaves, then), 0);
    assert_memory_equal(first, then, sizeof first);
    s.name = leaves.name = mean;
    assert_int_equal(g->calls.fill(g->calls.self, &s, (uint8_t *)got), 0);
    assert_memory_not_equal(got, asked, sizeof got);
    assert_int_equal(g->calls.fill(g->calls.self, &leaves, then), 0);
    assert_memory_not_equal(first, then, sizeof first);
    s.name = mean + 1;
    assert_int_equal(g->calls.fill(g->calls.self, &s, (uint8_t *)got),
                     LOCO_ENOENT);
    free(asked);
    close_rig(g);
}

static void a_state_goes_over_piece_by_piece_and_a_bad_one_is_seen(void **state)
{
    struct rig *from = open_with_state("diloco");
    struct rig *to = open_with_state("diloco");
    uint8_t *buf = malloc(PIECE), leaves[4 * 32];
    float *x = make_state(2 * N, 6);
    struct transfer_object o = {.total = STATE, .first = 4 * N, .piece = PIECE};
    struct hash32 params, rest;
    const struct local_event *e;

    (void)state;
    assert_non_null(buf);
    publish(from, 6);
    assert_int_equal(transfer_pieces(&o), 4);
    assert_int_equal(
        fill(from, BUFFER_STATE_LEAVES, 6, 0, sizeof leaves, leaves), 0);
    assert_int_equal(fill(from, BUFFER_STATE_LEAVES, 6, 0, 129, buf),
                     LOCO_ERANGE);
    assert_int_equal(fill(from, BUFFER_STATE_LEAVES, 7, 0, 32, buf),
                     LOCO_ENOENT);
    assert_int_equal(take(to, BUFFER_STATE_LEAVES, 6, 0, sizeof leaves, leaves),
                     0);
    e = verify(to, BUFFER_STATE, 6, TRANSFER_LEAVES);
    assert_int_equal(e->rc, 0);
    hash_tree(x, 4 * N, &params);
    hash_tree(x + N, 4 * N, &rest);
    assert_true(hash32_eq(&e->verified.params_hash, &params));
    assert_true(hash32_eq(&e->verified.momentum_hash, &rest));
    assert_int_equal(verify(to, BUFFER_STATE, 6, 0)->rc, LOCO_EHASH);
    for (uint32_t piece = 0; piece < 4; piece++) {
        uint32_t len;
        uint64_t at = transfer_piece_at(&o, piece, &len);

        assert_int_equal(fill(from, BUFFER_STATE, 6, at, len, buf), 0);
        buf[len / 2] ^= piece == 2;
        assert_int_equal(take(to, BUFFER_STATE, 6, at, len, buf), 0);
        assert_int_equal(verify(to, BUFFER_STATE, 6, piece)->rc,
                         piece == 2 ? LOCO_EHASH : 0);
    }
    assert_int_equal(verify(to, BUFFER_STATE, 6, 4)->rc, LOCO_ENOENT);
    assert_int_equal(verify(to, BUFFER_STATE, 7, 0)->rc, LOCO_ENOENT);
    free(buf);
    free(x);
    close_rig(from);
    close_rig(to);
}

/* The lease is a minute, or time_scale of them, from the last piece on that was
 * asked for. */
static void a_state_that_is_being_fetched_outlives_its_round(void **state)
{
    struct rig *g = make_with_state("diloco");
    uint8_t buf[64];

    (void)state;
    g->time_scale = 2;
    start_rig(g);
    publish(g, 1);
    publish(g, 2);
    assert_int_equal(fill(g, BUFFER_STATE, 1, 0, 64, buf), 0);
    for (uint64_t r = 3; r < 9; r++) {
        publish(g, r);
    }
    assert_int_equal(fill(g, BUFFER_STATE_LEAVES, 1, 0, 32, buf), 0);
    assert_int_equal(fill(g, BUFFER_STATE, 2, 0, 64, buf), LOCO_ENOENT);
    assert_int_equal(fill(g, BUFFER_STATE, 8, 0, 64, buf), 0);
    for (uint64_t r = 9; r < 11; r++) {
        clock_ms += 119999;
        publish(g, r);
        assert_int_equal(fill(g, BUFFER_STATE, 1, 0, 64, buf), 0);
    }
    clock_ms += 120000;
    publish(g, 11);
    assert_int_equal(fill(g, BUFFER_STATE, 1, 0, 64, buf), LOCO_ENOENT);
    assert_int_equal(fill(g, BUFFER_STATE, 11, 0, 64, buf), 0);
    close_rig(g);
}

/* ---- reduced bytes ------------------------------------------------------- */

/* A round without this machine commits: its vector is one byte all over. */
static void commit(struct rig *g, uint64_t round, uint8_t with)
{
    struct job job = {.type = JOB_APPLY,
                      .apply = {.round = round,
                                .buffer = BUFFER_RING,
                                .rebase = true,
                                .arrivals = 2,
                                .members = 3}};

    receive(g, round, with);
    hash_whole_ring(g, round);
    assert_int_equal(ask(g, &job, LOCAL_APPLIED)->rc, 0);
}

/* A worker has written the bytes of the round to disk, all of them. */
static void until_written(struct rig *g, uint64_t round)
{
    uint64_t hang_ns = uv_hrtime() + HANG_S * 1000000000ULL;
    uint64_t bytes = 4 * terms_elements(&g->terms, round);
    struct stat st = {.st_size = 0};
    char name[64];

    (void)snprintf(name, sizeof name, STATE_DIR_ROUNDS "/%u.wire",
                   (unsigned)round);
    while ((uint64_t)st.st_size < bytes) {
        (void)uv_run(&g->loop, UV_RUN_NOWAIT);
        (void)stat(rig_path(g, name), &st);
        assert_true(uv_hrtime() < hang_ns);
    }
    assert_int_equal(st.st_size, bytes);
}

static void reduced_bytes_of_a_round_are_served_from_disk(void **state)
{
    struct rig *g = open_with_state("diloco");
    uint8_t *buf = calloc(4, 4096);

    (void)state;
    assert_non_null(buf);
    publish(g, 3);
    commit(g, 4, 8);
    until_written(g, 4);
    commit(g, 5, 9); /* in memory only the last one is kept */
    assert_int_equal(fill(g, BUFFER_REDUCED, 4, 0, 4096, buf), 0);
    assert_int_equal(buf[0], 8);
    assert_int_equal(buf[4 * 4096 - 1], 8);
    assert_int_equal(fill(g, BUFFER_REDUCED, 5, 0, 4096, buf), 0);
    assert_int_equal(buf[0], 9);
    assert_int_equal(fill(g, BUFFER_REDUCED, 6, 0, 4096, buf), LOCO_ENOENT);
    assert_int_equal(fill(g, BUFFER_REDUCED, 4, N, 1, buf), LOCO_ERANGE);
    assert_int_equal(unlink(rig_path(g, STATE_DIR_ROUNDS "/4.wire")), 0);
    assert_int_equal(fill(g, BUFFER_REDUCED, 4, 0, 4096, buf), LOCO_ENOENT);
    free(buf);
    close_rig(g);
}

/* Of rounds of two lengths: a file is no longer than its round's vector. */
static void a_short_round_is_as_short_on_disk(void **state)
{
    struct rig *g = make_rig("diloco");
    uint8_t *buf = calloc(4, 4096);
    uint64_t n, round;

    (void)state;
    assert_non_null(buf);
    g->manifest.sync.fragments = g->manifest.sync.period = 2;
    g->manifest.model.vocab = 4096;
    add_text(g, "a.ltk", false);
    start_rig(g);
    assert_int_equal(g->terms.n_turns, 2);
    round = g->terms.turns[1].elements < g->terms.turns[0].elements ? 4 : 5;
    n = terms_elements(&g->terms, round);
    assert_true(n < 4096 && n < terms_elements(&g->terms, round + 1) / 2);
    publish(g, round - 1);
    commit(g, round, 0);
    until_written(g, round); /* of just this length */
    commit(g, round + 1, 0);
    assert_int_equal(fill(g, BUFFER_REDUCED, round, 0, (uint32_t)n, buf), 0);
    assert_int_equal(fill(g, BUFFER_REDUCED, round, n, 1, buf), LOCO_ERANGE);
    free(buf);
    close_rig(g);
}

static void leave(const struct rig *g, const char *name)
{
    put_file(g, name, "", 0);
}

/* It was away, and on another branch: one file a round was never enough. */
static void
bytes_of_rounds_long_ago_are_deleted_whoever_skipped_some(void **state)
{
    struct rig *g = open_with_state("diloco");

    (void)state;
    leave(g, STATE_DIR_ROUNDS "/7.wire");
    leave(g, STATE_DIR_ROUNDS "/36.wire");
    leave(g, STATE_DIR_ROUNDS "/37.wire");
    leave(g, STATE_DIR_ROUNDS "/99.wire");
    leave(g, STATE_DIR_ROUNDS "/07.wire");
    publish(g, 39);
    commit(g, 40, 0);
    until_written(g, 40);
    assert_true(is_there(g, STATE_DIR_ROUNDS "/37.wire"));
    /* Twice a state: four of them. */
    assert_false(is_there(g, STATE_DIR_ROUNDS "/36.wire"));
    assert_false(is_there(g, STATE_DIR_ROUNDS "/7.wire"));
    assert_false(is_there(g, STATE_DIR_ROUNDS "/99.wire"));
    assert_true(is_there(g, STATE_DIR_ROUNDS "/07.wire")); /* none of ours */
    close_rig(g);
}

/* ---- shards -------------------------------------------------------------- */

/* 2.5 pieces; an earlier life has left the first, and a part of the second. */
static void what_an_earlier_life_left_of_a_shard_is_found(void **state)
{
    struct rig *g = make_rig("diloco");
    const size_t len = 5 * PIECE / 2;
    uint8_t *bytes = calloc(1, len);
    struct hash32 leaves[3], root;
    const struct local_event *e;

    (void)state;
    assert_non_null(bytes);
    for (size_t i = 0; i < len; i++) {
        bytes[i] = (uint8_t)(i % 251);
    }
    hash_tree_keep(bytes, len, leaves, &root);
    (void)name_shard(g, "a.ltk", bytes, len);
    put_file(g, STATE_DIR_SHARDS "/a.ltk.part", bytes, PIECE + 1000);
    start_rig(g);
    assert_int_equal(take(g, BUFFER_SHARD_LEAVES, 0, 0, sizeof leaves, leaves),
                     0);
    e = verify(g, BUFFER_SHARD, 0, TRANSFER_LEAVES);
    assert_int_equal(e->rc, 0);
    assert_true(hash32_eq(&e->verified.hash, &root));
    assert_non_null(e->verified.held);
    assert_int_equal(e->verified.held[0], 1);
    assert_int_equal(verify(g, BUFFER_SHARD, 0, 1)->rc, LOCO_EIO);
    assert_int_equal(take(g, BUFFER_SHARD, 0, PIECE, PIECE, bytes + PIECE), 0);
    assert_int_equal(verify(g, BUFFER_SHARD, 0, 1)->rc, 0);
    free(bytes);
    close_rig(g);
}

/* A shard that is missing, the first of the run: text, or the tokenizer, whose
 * bytes nobody reads here. */
static struct rig *make_without(const uint8_t *bytes, bool tokenizer)
{
    struct rig *g = make_rig("diloco");
    struct manifest_data *data = &g->manifest.data;
    struct manifest_shard *s = name_shard(g, "a.ltk", bytes, TEXT_BYTES);

    if (tokenizer) {
        s->tokens = 0;
        memcpy(data->tokenizer, s->name, sizeof s->name);
        data->tokenizer_blake2b = s->blake2b;
        add_text(g, "b.ltk", false);
    }
    return g;
}

/* It is held from now on. */
static void serves(struct rig *g, const uint8_t *bytes)
{
    uint8_t got[TEXT_BYTES];

    assert_int_equal(fill(g, BUFFER_SHARD, 0, 0, TEXT_BYTES, got), 0);
    assert_memory_equal(got, bytes, TEXT_BYTES);
    assert_true(is_there(g, STATE_DIR_SHARDS "/a.ltk"));
    assert_false(is_there(g, STATE_DIR_SHARDS "/a.ltk.part"));
    assert_false(is_there(g, STATE_DIR_SHARDS "/a.ltk.url"));
}

/* A URL broke off, and peers gave the shard. */
static void what_a_url_left_goes_when_peers_gave_the_shard(void **state)
{
    static uint8_t bytes[TEXT_BYTES], got[1];
    struct job keep = {.type = JOB_KEEP};

    (void)state;
    make_text(bytes);
    for (int tokenizer = 0; tokenizer < 2; tokenizer++) {
        struct rig *g;

        bytes[0] ^= (uint8_t)tokenizer; /* no text any more */
        g = make_without(bytes, tokenizer);
        put_file(g, STATE_DIR_SHARDS "/a.ltk.part", bytes, 1);
        put_file(g, STATE_DIR_SHARDS "/a.ltk.url", bytes, 500);
        start_rig(g);
        assert_int_equal(take(g, BUFFER_SHARD, 0, 0, sizeof bytes, bytes), 0);
        assert_int_equal(fill(g, BUFFER_SHARD, 0, 0, 1, got), LOCO_ENOENT);
        give(g, &keep);
        serves(g, bytes);
        close_rig(g);
    }
}

/* What lay here before did not come by URL, and is asked for by nobody. */
static void a_url_goes_on_and_only_what_it_sent_is_counted(void **state)
{
    static uint8_t bytes[TEXT_BYTES], got[1];
    struct job get = {.type = JOB_DOWNLOAD};

    (void)state;
    make_text(bytes);
    for (int tokenizer = 0; tokenizer < 2; tokenizer++) {
        struct rig *g;

        bytes[0] ^= (uint8_t)tokenizer; /* no text any more */
        g = make_without(bytes, tokenizer);
        assert_int_equal(mkdir(rig_path(g, "from"), 0700), 0);
        put_file(g, "from/a.ltk", bytes, sizeof bytes);
        put_file(g, STATE_DIR_SHARDS "/a.ltk.part", bytes, 1);
        put_file(g, STATE_DIR_SHARDS "/a.ltk.url", bytes, 400);
        (void)snprintf(g->settings.data_mirror, sizeof g->settings.data_mirror,
                       "file://%s/from", g->dir);
        start_rig(g);
        assert_int_equal(fill(g, BUFFER_SHARD, 0, 0, 1, got), LOCO_ENOENT);
        assert_int_equal(ask(g, &get, LOCAL_DOWNLOADED)->rc, 0);
        assert_int_equal(machine_url_bytes(g->m), sizeof bytes - 400);
        serves(g, bytes);
        close_rig(g);
    }
}

/* ---- a state that was on its way ----------------------------------------- */

static void what_an_earlier_life_left_of_a_state_is_found(void **state)
{
    struct rig *g = open_with_state("diloco");
    struct job load = {.type = JOB_LOAD, .load.round = 6};
    struct job then = {.type = JOB_RESUME};
    float *x = make_state(2 * N, 6);
    const uint8_t *bytes = (const uint8_t *)x;
    struct hash32 leaves[4], root;
    const struct local_event *e;

    (void)state;
    hash_tree_keep(x, 4 * N, leaves, &root);
    hash_tree_keep(x + N, 4 * N, leaves + 2, &root);
    assert_int_equal(take(g, BUFFER_STATE, 6, 0, PIECE, bytes), 0);
    assert_int_equal(take(g, BUFFER_STATE, 6, 4 * N, 4000, bytes + 4 * N), 0);
    stop_rig(g); /* as a SIGKILL leaves it: the file is shared memory */
    assert_true(is_there(g, STATE_DIR_INCOMING));
    start_rig(g);
    assert_int_equal(take(g, BUFFER_STATE_LEAVES, 6, 0, sizeof leaves, leaves),
                     0);
    e = verify(g, BUFFER_STATE, 6, TRANSFER_LEAVES);
    assert_int_equal(e->rc, 0);
    assert_non_null(e->verified.held);
    assert_int_equal(e->verified.held[0], 1);
    assert_int_equal(ask(g, &load, LOCAL_LOADED)->rc, 0);
    give(g, &then); /* the trainer has taken the state over: it goes */
    assert_false(is_there(g, STATE_DIR_INCOMING));
    free(x);
    close_rig(g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(of_two_states_of_a_round_the_named_one_goes_out),
        CASE(a_state_goes_over_piece_by_piece_and_a_bad_one_is_seen),
        CASE(a_state_that_is_being_fetched_outlives_its_round),
        CASE(reduced_bytes_of_a_round_are_served_from_disk),
        CASE(a_short_round_is_as_short_on_disk),
        CASE(bytes_of_rounds_long_ago_are_deleted_whoever_skipped_some),
        CASE(what_an_earlier_life_left_of_a_shard_is_found),
        CASE(what_a_url_left_goes_when_peers_gave_the_shard),
        CASE(a_url_goes_on_and_only_what_it_sent_is_counted),
        CASE(what_an_earlier_life_left_of_a_state_is_found),
    };

    if (sign_start() != 0) {
        return 1;
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
