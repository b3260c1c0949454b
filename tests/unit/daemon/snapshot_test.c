/* snapshot_test.c - the leaves that a snapshot keeps have the roots that
 * members agree on, whichever vectors the method's members share. */
#include "daemon/machine/snapshot.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

#include "p2p/swarm/transfer.h"
#include "proto/base/errmsg.h"
#include "proto/hash.h"
#include "proto/sample.h"
#include "train/sync/preset.h"

static uint8_t text[2000];
static struct shard shard;

static struct replica_options options(const char *preset)
{
    const struct preset *p;
    char errmsg[ERRMSG_SIZE];

    assert_int_equal(preset_find(preset, &p, errmsg), 0);
    return (struct replica_options){
        .model = {.dim = 64, /* 300,000 parameters: two pieces */
                  .layers = 6,
                  .heads = 2,
                  .kv_heads = 2,
                  .ffn = 192,
                  .vocab = 256,
                  .seq = 16,
                  .tied = true,
                  .rope_theta = 10000,
                  .norm_eps = 1e-5f},
        .optimizer = optimizer_defaults(),
        .schedule = {SCHEDULE_CONSTANT, 1e-3, 1e-3, 0, 0, 0},
        .method = p->method,
        .members = 2,
        .codec = codec_find("fp32"),
        .batch = 1,
        .micro_batch = 1,
        .seq = 16,
        .train = &shard,
        .n_train = 1,
        .threads = 1,
        .reference = true,
    };
}

static void check(const char *preset, uint64_t behind_min)
{
    struct replica_options opt = options(preset);
    struct hash32 params, rest, want_params, want_rest;
    struct transfer_object o = {.piece = HASH_PIECE_BYTES};
    struct snapshot *s;
    struct replica r;
    char errmsg[ERRMSG_SIZE];
    size_t n;

    assert_int_equal(replica_open(&r, &opt, errmsg), 0);
    s = snapshot_make(&r, NULL);
    assert_non_null(s);
    assert_true(s->n_state - s->n >= behind_min * s->n);
    assert_true(behind_min > 0 || s->n_state == s->n);
    snapshot_hash(&r, NULL, &want_params, &want_rest);
    snapshot_hash(&r, s, &params, &rest);
    assert_true(hash32_eq(&params, &want_params));
    assert_true(hash32_eq(&rest, &want_rest));
    assert_non_null(s->leaves);
    /* As many as those who fetch it ask for, cut at the same place. */
    o.total = s->n_state * sizeof(float);
    o.first = s->n * sizeof(float);
    n = (size_t)hash_tree_pieces(o.first);
    assert_true(n > 1);
    hash_tree_root(s->leaves + n, transfer_pieces(&o) - n, &rest);
    hash_tree_root(s->leaves, n, &params);
    assert_true(hash32_eq(&params, &want_params));
    assert_true(hash32_eq(&rest, &want_rest));
    snapshot_free(s);
    replica_close(&r);
}

static void leaves_have_the_roots_of_the_state(void **state)
{
    (void)state;
    check("diloco", 1);
    check("local-adam", 2);
    check("async-dn", 2);
}

static void parameters_alone_are_a_state(void **state)
{
    (void)state;
    check("favg-keep", 0);
}

/* Whoever has no memory for a copy samples the vectors themselves. */
static void the_sample_is_of_the_bytes_that_are_served(void **state)
{
    static const char *const presets[] = {"diloco", "local-adam", "async-dn",
                                          "favg-keep"};
    const struct hash32 name = {{9, 8, 7, 6, 5, 4, 3, 2, 1}};
    char errmsg[ERRMSG_SIZE];

    (void)state;
    for (size_t i = 0; i < sizeof presets / sizeof presets[0]; i++) {
        struct replica_options opt = options(presets[i]);
        struct hash32 sample[2], want;
        struct sample_part part;
        struct snapshot *s;
        struct replica r;

        assert_int_equal(replica_open(&r, &opt, errmsg), 0);
        replica_init(&r);
        s = snapshot_make(&r, NULL);
        assert_non_null(s);
        part = (struct sample_part){s->state, s->n_state * sizeof(float)};
        assert_true(part.len > SAMPLE_BLOCKS * SAMPLE_BLOCK_BYTES);
        sample_state(&name, &part, 1, &want);
        snapshot_sample(&r, s, &name, &sample[0]);
        snapshot_sample(&r, NULL, &name, &sample[1]);
        assert_true(hash32_eq(&sample[0], &want));
        assert_true(hash32_eq(&sample[1], &want));
        snapshot_free(s);
        replica_close(&r);
    }
}

/* Of the room of a state. */
static size_t resident_pages(const struct snapshot *s)
{
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    const size_t n = (s->n_state * sizeof(float) + page - 1) / page;
    unsigned char *in = malloc(n);
    size_t count = 0;

    assert_non_null(in);
    assert_int_equal(mincore(s->state, n * page, in), 0);
    for (size_t i = 0; i < n; i++) {
        count += in[i] & 1U;
    }
    free(in);
    return count;
}

/* A state that leases are made again from, and that nobody fetches. */
static void reduce(const char *preset, bool is_less)
{
    struct replica_options opt = options(preset);
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    struct snapshot *s;
    struct replica r;
    char errmsg[ERRMSG_SIZE];
    float *phi;
    size_t pages;

    assert_int_equal(replica_open(&r, &opt, errmsg), 0);
    replica_init(&r);
    s = snapshot_make(&r, NULL);
    assert_non_null(s);
    assert_non_null(s->room);
    assert_non_null(s->moments);
    phi = malloc(s->n * sizeof *phi);
    assert_non_null(phi);
    memcpy(phi, s->state, s->n * sizeof *phi);
    assert_false(snapshot_reduce(s, &opt.method)); /* the replica's, too */
    replica_close(&r);
    for (uint64_t i = s->n; i < s->n_state; i++) {
        s->state[i] = 1; /* as after some commits */
    }
    pages = resident_pages(s);
    assert_true(pages * page >= s->n_state * sizeof(float));
    assert_true(snapshot_reduce(s, &opt.method));
    assert_null(s->moments);
    assert_null(s->leaves);
    assert_memory_equal(s->state, phi, s->n * sizeof *phi);
    if (is_less) {
        assert_true(resident_pages(s) * page <=
                    s->n * sizeof(float) + 2 * page);
        assert_true(s->state[s->n_state - page] == 0);
    } else {
        assert_int_equal(resident_pages(s), pages);
        assert_true(s->state[s->n_state - 1] == 1);
    }
    snapshot_free(s);
    free(phi);
}

static void of_an_older_state_the_parameters_are_enough(void **state)
{
    (void)state;
    reduce("diloco", true);
    reduce("local-adam", false); /* leases begin with its moments */
}

/* Several threads share the work where the replica has them. */
static void many_threads_make_the_same(void **state)
{
    struct replica_options opt = options("local-adam");
    struct hash32 params[2], rest[2];
    struct snapshot *s[2];
    struct replica r[2];
    char errmsg[ERRMSG_SIZE];
    uint64_t moved = 0;
    float loss;

    (void)state;
    opt.reference = false;
    for (int i = 0; i < 2; i++) {
        opt.threads = i == 0 ? 1 : 3;
        assert_int_equal(replica_open(&r[i], &opt, errmsg), 0);
        replica_init(&r[i]);
    }
    assert_int_equal(replica_step(&r[0], &loss), 0);
    assert_non_null(r[1].backend.pool);
    memcpy(r[1].optimizer.u, r[0].optimizer.u, r[0].n * sizeof(float));
    memcpy(r[1].optimizer.v, r[0].optimizer.v, r[0].n * sizeof(float));
    for (int i = 0; i < 2; i++) {
        s[i] = snapshot_make(&r[i], NULL);
        assert_non_null(s[i]);
        snapshot_hash(&r[i], s[i], &params[i], &rest[i]);
    }
    assert_true(hash32_eq(&params[0], &params[1]));
    assert_true(hash32_eq(&rest[0], &rest[1]));
    assert_memory_equal(s[0]->state, s[1]->state,
                        s[0]->n_state * sizeof(float));
    assert_memory_equal(s[0]->moments, s[1]->moments,
                        2 * s[0]->n * sizeof(float));
    for (uint64_t k = 0; k < 2 * s[0]->n; k++) {
        moved += s[0]->moments[k] != 0;
    }
    assert_true(moved > s[0]->n / 2);
    for (int i = 0; i < 2; i++) {
        snapshot_free(s[i]);
        replica_close(&r[i]);
    }
}

/* Nobody copies a state that lies in a room. */
static void a_room_is_held(void **state)
{
    struct replica_options opt = options("diloco");
    struct state_room *room;
    struct snapshot *s;
    struct replica r;
    char errmsg[ERRMSG_SIZE];

    (void)state;
    assert_int_equal(replica_open(&r, &opt, errmsg), 0);
    assert_int_equal(replica_init(&r), 0);
    s = snapshot_make(&r, NULL);
    assert_non_null(s);
    assert_ptr_equal(s->state, r.phi);
    assert_true(state_room_is_shared(r.room));
    snapshot_free(s);
    assert_false(state_room_is_shared(r.room));
    s = snapshot_make(&r, NULL);
    replica_close(&r);
    assert_true(s->state[0] == s->state[0]); /* it outlives the replica */
    room = snapshot_take_room(s);
    assert_non_null(room);
    assert_null(snapshot_take_room(s));
    assert_null(snapshot_take_room(NULL));
    snapshot_free(s);
    state_room_drop(room);
}

/* The memory of a copy that nobody needs is that of the next one, where it
 * fits; of what it said nothing is left. */
static void memory_is_used_again(void **state)
{
    struct replica_options opt = options("ddp");
    struct hash32 params, rest, want_params, want_rest;
    struct snapshot *s, *other;
    struct replica r, small;
    char errmsg[ERRMSG_SIZE];
    const float *was;

    (void)state;
    assert_int_equal(replica_open(&r, &opt, errmsg), 0);
    opt.model.layers = 1;
    assert_int_equal(replica_open(&small, &opt, errmsg), 0);
    replica_init(&r);
    s = snapshot_make(&r, NULL);
    assert_non_null(s);
    snapshot_hash(&r, s, &want_params, &want_rest);
    was = s->state;
    memset(s->state, 0xff, s->n_state * sizeof(float));
    memset(s->moments, 0xff, 2 * s->n * sizeof(float));
    s = snapshot_make(&r, s);
    assert_non_null(s);
    assert_ptr_equal(s->state, was);
    snapshot_hash(&r, s, &params, &rest);
    assert_true(hash32_eq(&params, &want_params));
    assert_true(hash32_eq(&rest, &want_rest));
    assert_true(s->moments[0] == 0 && s->moments[2 * s->n - 1] == 0);
    free(s->moments); /* one that somebody fetched has none */
    s->moments = NULL;
    s = snapshot_make(&r, s);
    assert_non_null(s);
    assert_true(s->moments[0] == 0 && s->moments[2 * s->n - 1] == 0);
    other = snapshot_make(&small, s);
    assert_non_null(other);
    assert_true(other->n == small.n && other->n < r.n);
    snapshot_free(other);
    replica_close(&small);
    replica_close(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(leaves_have_the_roots_of_the_state),
        cmocka_unit_test(parameters_alone_are_a_state),
        cmocka_unit_test(the_sample_is_of_the_bytes_that_are_served),
        cmocka_unit_test(of_an_older_state_the_parameters_are_enough),
        cmocka_unit_test(many_threads_make_the_same),
        cmocka_unit_test(a_room_is_held),
        cmocka_unit_test(memory_is_used_again),
    };

    memset(text, 'x', sizeof text);
    shard_from_text(&shard, text, sizeof text);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
