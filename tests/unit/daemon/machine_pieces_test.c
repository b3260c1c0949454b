/* machine_pieces_test.c - leaf lists and pieces, and what of rounds that are
 * over can still be fetched. */
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "p2p/transfer.h"
#include "proto/hash.h"
#include "tests/unit/daemon/rig.h"
#include "tests/unit/train/tmpdir.h"

#define N     ((uint64_t)300000) /* elements: 2 pieces, of which one short */
#define STATE (2 * N * 4)
#define PIECE (1U << 20)

static struct tmpdir dir;

static int setup(void **state)
{
    (void)state;
    tmpdir_make(&dir);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    (void)unlink(tmpdir_file(&dir, "4.wire"));
    (void)unlink(tmpdir_file(&dir, "a.ltk.part"));
    (void)unlink(tmpdir_file(&dir, "incoming.state"));
    tmpdir_remove(&dir);
    return 0;
}

static struct rig *open_with_state(void)
{
    struct rig *g = open_rig("fp32", N);

    g->m->terms.state_bytes = STATE;
    g->m->saved_number = UINT64_MAX; /* no checkpoint at the end: no node */
    return g;
}

static float *pattern(uint64_t n, uint32_t seed)
{
    float *x = malloc(n * sizeof *x);

    assert_non_null(x);
    for (uint64_t i = 0; i < n; i++) {
        x[i] = (float)(i * 7 + seed);
    }
    return x;
}

/* As the trainer hands them over. `name`: 1000 * round where there is one of
 * each round. */
static void publish_named(struct rig *g, uint64_t round, uint64_t name)
{
    struct snapshot *s = calloc(1, sizeof *s);
    size_t n = (size_t)hash_tree_pieces(4 * N);
    struct hash32 root;

    assert_non_null(s);
    s->refs = 1;
    s->round = round;
    s->name = name;
    s->n = N;
    s->state = pattern(2 * N, (uint32_t)(name / 1000 + name % 1000));
    s->moments = calloc(2 * N, sizeof(float));
    s->leaves = malloc(2 * n * sizeof *s->leaves);
    assert_true(s->moments != NULL && s->leaves != NULL);
    hash_tree_keep(s->state, 4 * N, s->leaves, &root);
    hash_tree_keep(s->state + N, 4 * N, s->leaves + n, &root);
    g->m->incoming[0] = g->m->incoming[1];
    g->m->incoming[1] = s;
    machine_snapshots_collect(g->m);
}

static void publish(struct rig *g, uint64_t round)
{
    publish_named(g, round, 1000 * round);
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

/* What the check of this piece says. */
static const struct local_event *
verify(struct rig *g, enum buffer_kind buffer, uint64_t index, uint32_t piece)
{
    struct action a = {.type = ACTION_VERIFY,
                       .buffer = buffer,
                       .index = index,
                       .request = 5ULL << 32 | piece};

    g->n_told = 0;
    g->calls.local(g->calls.self, &a, NULL);
    until(g, NULL, 1);
    assert_int_equal(g->told[0].type, LOCAL_VERIFIED);
    assert_true(g->told[0].request == a.request);
    return &g->told[0];
}

/* A fetch was granted, and then the owner mixed: it has another state of that
 * round now. What goes out is what was asked for, or nothing: it would make a
 * liar of an honest peer. */
static void of_two_states_of_a_round_the_named_one_goes_out(void **state)
{
    struct rig *g = open_with_state();
    float *asked = pattern(4, 3), got[4];
    struct segment s = {
        .buffer = BUFFER_STATE, .index = 3, .len = sizeof got, .name = 3000};
    struct segment leaves = {
        .buffer = BUFFER_STATE_LEAVES, .index = 3, .len = 32, .name = 3000};
    uint8_t first[32], then[32];

    (void)state;
    publish(g, 3);
    assert_int_equal(g->calls.fill(g->calls.self, &s, (uint8_t *)got), 0);
    assert_int_equal(g->calls.fill(g->calls.self, &leaves, first), 0);
    publish_named(g, 3, 3007); /* the mean, at the same round */
    assert_int_equal(g->calls.fill(g->calls.self, &s, (uint8_t *)got), 0);
    assert_memory_equal(got, asked, sizeof got);
    assert_int_equal(g->calls.fill(g->calls.self, &leaves, then), 0);
    assert_memory_equal(first, then, sizeof first);
    s.name = 3007;
    assert_int_equal(g->calls.fill(g->calls.self, &s, (uint8_t *)got), 0);
    assert_memory_not_equal(got, asked, sizeof got);
    s.name = 3009;
    assert_int_equal(g->calls.fill(g->calls.self, &s, (uint8_t *)got),
                     LOCO_ENOENT);
    free(asked);
    close_rig(g);
}

static void a_state_goes_over_piece_by_piece_and_a_bad_one_is_seen(void **state)
{
    struct rig *from = open_with_state(), *to = open_with_state();
    char here[64];
    uint8_t *buf = malloc(PIECE), leaves[4 * 32];
    float *x = pattern(2 * N, 6);
    struct transfer_object o = {.total = STATE, .first = 4 * N, .piece = PIECE};
    struct hash32 params, rest;
    const struct local_event *e;

    (void)state;
    assert_non_null(buf);
    (void)snprintf(here, sizeof here, "%s", dir.path);
    to->m->opt.state_dir = here;
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
    assert_true(hash32_eq(&e->params_hash, &params));
    assert_true(hash32_eq(&e->momentum_hash, &rest));
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

static void a_state_that_is_being_fetched_outlives_its_round(void **state)
{
    struct rig *g = open_with_state();
    uint8_t buf[64];

    (void)state;
    g->m->opt.time_scale = 1;
    publish(g, 1);
    publish(g, 2);
    assert_int_equal(fill(g, BUFFER_STATE, 1, 0, 64, buf), 0);
    for (uint64_t r = 3; r < 9; r++) {
        publish(g, r);
    }
    assert_int_equal(fill(g, BUFFER_STATE, 1, 0, 64, buf), 0);
    assert_int_equal(fill(g, BUFFER_STATE_LEAVES, 1, 0, 32, buf), 0);
    assert_int_equal(fill(g, BUFFER_STATE, 2, 0, 64, buf), LOCO_ENOENT);
    assert_int_equal(fill(g, BUFFER_STATE, 8, 0, 64, buf), 0);
    g->m->opt.time_scale = 0; /* no lease: the next one that is fetched */
    publish(g, 9);
    publish(g, 10);
    assert_int_equal(fill(g, BUFFER_STATE, 1, 0, 64, buf), LOCO_ENOENT);
    close_rig(g);
}

static void reduced_bytes_of_a_round_are_served_from_disk(void **state)
{
    struct rig *g = open_with_state();
    struct segment s = {.attempt = 9, .len = 4096};
    struct wire_slot *slot;
    uint8_t *buf = malloc(4 * 4096);

    (void)state;
    assert_non_null(buf);
    memset(buf, 8, 4 * 4096);
    assert_int_equal(g->calls.take(g->calls.self, &s, buf, 4 * 4096), 0);
    slot = machine_slot_find(g->m, WIRE_RING, 9);
    assert_non_null(slot);
    slot->use = WIRE_REDUCED;
    slot->round = 4;
    g->m->rounds = strdup(dir.path);
    machine_round_save(g->m, slot, 4);
    while (g->m->round_saving) {
        (void)uv_run(&g->loop, UV_RUN_ONCE);
    }
    slot->use = WIRE_FREE;
    memset(buf, 0, 4 * 4096);
    assert_int_equal(fill(g, BUFFER_REDUCED, 4, 0, 4096, buf), 0);
    assert_int_equal(buf[0], 8);
    assert_int_equal(buf[4 * 4096 - 1], 8);
    assert_int_equal(fill(g, BUFFER_REDUCED, 5, 0, 4096, buf), LOCO_ENOENT);
    assert_int_equal(fill(g, BUFFER_REDUCED, 4, N, 1, buf), LOCO_ERANGE);
    free(buf);
    close_rig(g);
}

/* Round 4 of rounds of two lengths: its file is no longer than its vector. */
static void a_short_round_is_as_short_on_disk(void **state)
{
    struct rig *g = open_with_state();
    struct segment s = {.attempt = 4, .len = 4096};
    uint8_t *buf = calloc(4, 4096);
    struct wire_slot *slot;
    struct stat st;

    (void)state;
    assert_non_null(buf);
    g->m->terms.n_turns = 2;
    g->m->terms.turns[0].elements = N;
    g->m->terms.turns[1].elements = 8192;
    assert_int_equal(g->calls.take(g->calls.self, &s, buf, 4 * 4096), 0);
    slot = machine_slot_find(g->m, WIRE_RING, 4);
    assert_non_null(slot);
    slot->use = WIRE_REDUCED;
    slot->round = 4;
    g->m->rounds = strdup(dir.path);
    machine_round_save(g->m, slot, 4);
    while (g->m->round_saving) {
        (void)uv_run(&g->loop, UV_RUN_ONCE);
    }
    slot->use = WIRE_FREE;
    assert_int_equal(stat(tmpdir_file(&dir, "4.wire"), &st), 0);
    assert_int_equal(st.st_size, 4 * 8192);
    assert_int_equal(fill(g, BUFFER_REDUCED, 4, 4096, 4096, buf), 0);
    assert_int_equal(fill(g, BUFFER_REDUCED, 4, 8192, 1, buf), LOCO_ERANGE);
    free(buf);
    close_rig(g);
}

static void leave(const char *name)
{
    int fd = open(tmpdir_file(&dir, name), O_RDWR | O_CREAT, 0600);

    assert_true(fd >= 0);
    (void)close(fd);
}

static bool is_left(const char *name)
{
    return access(tmpdir_file(&dir, name), F_OK) == 0;
}

/* It was away, and on another branch: one file a round was never enough. */
static void
bytes_of_rounds_long_ago_are_deleted_whoever_skipped_some(void **state)
{
    struct rig *g = open_with_state();
    struct segment s = {.attempt = 40, .len = 4096};
    uint8_t *buf = calloc(4, 4096);
    struct wire_slot *slot;

    (void)state;
    assert_non_null(buf);
    leave("7.wire");
    leave("36.wire");
    leave("37.wire");
    leave("99.wire");
    leave("07.wire");
    assert_int_equal(g->calls.take(g->calls.self, &s, buf, 4 * 4096), 0);
    slot = machine_slot_find(g->m, WIRE_RING, 40);
    assert_non_null(slot);
    slot->use = WIRE_REDUCED;
    slot->round = 40;
    g->m->rounds = strdup(dir.path);
    machine_round_save(g->m, slot, 40);
    while (g->m->round_saving) {
        (void)uv_run(&g->loop, UV_RUN_ONCE);
    }
    slot->use = WIRE_FREE;
    assert_true(is_left("40.wire"));
    assert_true(is_left("37.wire"));
    assert_false(is_left("36.wire")); /* twice a state: four of them */
    assert_false(is_left("7.wire"));
    assert_false(is_left("99.wire"));
    assert_true(is_left("07.wire")); /* no name of ours */
    (void)unlink(tmpdir_file(&dir, "40.wire"));
    (void)unlink(tmpdir_file(&dir, "37.wire"));
    (void)unlink(tmpdir_file(&dir, "07.wire"));
    free(buf);
    close_rig(g);
}

/* 2.5 pieces; an earlier life has left the first, and a part of the second. */
static void what_an_earlier_life_left_of_a_shard_is_found(void **state)
{
    struct rig *g = open_with_state();
    const size_t len = 5 * PIECE / 2;
    uint8_t *bytes = calloc(1, len);
    struct hash32 leaves[3], root;
    const struct local_event *e;
    int fd;

    (void)state;
    assert_non_null(bytes);
    for (size_t i = 0; i < len; i++) {
        bytes[i] = (uint8_t)(i % 251);
    }
    hash_tree_keep(bytes, len, leaves, &root);
    fd = open(tmpdir_file(&dir, "a.ltk.part"), O_RDWR | O_CREAT, 0600);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, bytes, PIECE + 1000), PIECE + 1000);
    (void)close(fd);
    g->m->terms.n_shards = 1;
    g->m->terms.shards[0].bytes = len;
    g->m->files = calloc(1, sizeof *g->m->files);
    assert_non_null(g->m->files);
    g->m->files[0].fd = -1;
    (void)snprintf(g->m->files[0].path, sizeof g->m->files[0].path, "%s/a.ltk",
                   dir.path);
    assert_int_equal(take(g, BUFFER_SHARD_LEAVES, 0, 0, sizeof leaves, leaves),
                     0);
    e = verify(g, BUFFER_SHARD, 0, TRANSFER_LEAVES);
    assert_int_equal(e->rc, 0);
    assert_true(hash32_eq(&e->hash, &root));
    assert_non_null(e->held);
    assert_int_equal(e->held[0], 1);
    assert_int_equal(verify(g, BUFFER_SHARD, 0, 1)->rc, LOCO_EIO);
    assert_int_equal(take(g, BUFFER_SHARD, 0, PIECE, PIECE, bytes + PIECE), 0);
    assert_int_equal(verify(g, BUFFER_SHARD, 0, 1)->rc, 0);
    free(bytes);
    close_rig(g);
}

/* The one shard of a run, as large as this; what it is nobody reads. */
static void one_shard(struct rig *g, const uint8_t *bytes, size_t len)
{
    struct manifest_data *data;

    g->m->manifest = calloc(1, sizeof *g->m->manifest);
    g->m->files = calloc(1, sizeof *g->m->files);
    assert_true(g->m->manifest != NULL && g->m->files != NULL);
    data = &g->m->manifest->data;
    data->n_shards = 1;
    (void)snprintf(data->shards[0].name, sizeof data->shards[0].name, "a.ltk");
    (void)snprintf(data->tokenizer, sizeof data->tokenizer, "a.ltk");
    g->m->terms.n_shards = 1;
    g->m->terms.shards[0].bytes = len;
    hash_tree(bytes, len, &g->m->terms.shards[0].hash);
    g->m->files[0].fd = -1;
    (void)snprintf(g->m->files[0].path, sizeof g->m->files[0].path, "%s/a.ltk",
                   dir.path);
}

/* A URL broke off, and peers gave the shard. */
static void what_a_url_left_goes_when_peers_gave_the_shard(void **state)
{
    struct rig *g = open_with_state();
    static uint8_t bytes[1000] = {1, 2, 3};
    struct action keep = {.type = ACTION_KEEP, .buffer = BUFFER_SHARD};

    (void)state;
    one_shard(g, bytes, sizeof bytes);
    tmpdir_put(&dir, "a.ltk.part", bytes, 1);
    tmpdir_put(&dir, "a.ltk.url", bytes, 500);
    assert_int_equal(take(g, BUFFER_SHARD, 0, 0, sizeof bytes, bytes), 0);
    g->calls.local(g->calls.self, &keep, NULL);
    assert_true(g->m->files[0].held && is_left("a.ltk"));
    assert_false(is_left("a.ltk.part"));
    assert_false(is_left("a.ltk.url"));
    (void)unlink(tmpdir_file(&dir, "a.ltk"));
    close_rig(g);
}

/* What lay here before did not come by URL, and is asked for by nobody. */
static void a_url_goes_on_and_only_what_it_sent_is_counted(void **state)
{
    struct rig *g = open_with_state();
    static uint8_t bytes[1000] = {1, 2, 3};
    struct action get = {.type = ACTION_DOWNLOAD, .buffer = BUFFER_SHARD};
    char mirror[128];

    (void)state;
    one_shard(g, bytes, sizeof bytes);
    (void)snprintf(mirror, sizeof mirror, "file://%s/from", dir.path);
    assert_int_equal(mkdir(tmpdir_file(&dir, "from"), 0700), 0);
    tmpdir_put(&dir, "from/a.ltk", bytes, sizeof bytes);
    tmpdir_put(&dir, "a.ltk.part", bytes, 1);
    tmpdir_put(&dir, "a.ltk.url", bytes, 400);
    g->m->opt.mirror = mirror;
    g->m->opt.time_scale = 1;
    g->calls.local(g->calls.self, &get, NULL);
    while (g->n_told == 0 || g->told[g->n_told - 1].type != LOCAL_DOWNLOADED) {
        until(g, NULL, g->n_told + 1);
    }
    assert_int_equal(g->told[g->n_told - 1].rc, 0);
    assert_int_equal(machine_url_bytes(g->m), 600);
    assert_true(g->m->files[0].held && is_left("a.ltk"));
    assert_false(is_left("a.ltk.part") || is_left("a.ltk.url"));
    (void)unlink(tmpdir_file(&dir, "a.ltk"));
    (void)unlink(tmpdir_file(&dir, "from/a.ltk"));
    (void)rmdir(tmpdir_file(&dir, "from"));
    close_rig(g);
}

static void what_an_earlier_life_left_of_a_state_is_found(void **state)
{
    struct rig *g = open_with_state();
    float *x = pattern(2 * N, 6);
    const uint8_t *bytes = (const uint8_t *)x;
    struct hash32 leaves[4], root;
    const struct local_event *e;

    (void)state;
    g->m->opt.state_dir = dir.path;
    hash_tree_keep(x, 4 * N, leaves, &root);
    hash_tree_keep(x + N, 4 * N, leaves + 2, &root);
    assert_int_equal(take(g, BUFFER_STATE, 6, 0, PIECE, bytes), 0);
    assert_int_equal(take(g, BUFFER_STATE, 6, 4 * N, 4000, bytes + 4 * N), 0);
    close_rig(g); /* as a SIGKILL leaves it: the file is shared memory */
    g = open_with_state();
    g->m->opt.state_dir = dir.path;
    assert_int_equal(take(g, BUFFER_STATE_LEAVES, 6, 0, sizeof leaves, leaves),
                     0);
    e = verify(g, BUFFER_STATE, 6, TRANSFER_LEAVES);
    assert_int_equal(e->rc, 0);
    assert_non_null(e->held);
    assert_int_equal(e->held[0], 1);
    machine_state_close(g->m, true);
    assert_int_equal(access(tmpdir_file(&dir, "incoming.state"), F_OK), -1);
    free(x);
    close_rig(g);
}

#define CASE(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(of_two_states_of_a_round_the_named_one_goes_out),
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
