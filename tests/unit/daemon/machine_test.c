/* machine_test.c - the bytes of a round: lanes, sums, hashes that go on while
 * an attempt is given up, and closing. Also run under ThreadSanitizer. */
#include "p2p/butterfly.h"
#include "proto/hash.h"
#include "tests/unit/daemon/rig.h"

#define N ((uint64_t)3 << 20) /* elements: 12 pieces of a hash */

static void a_hash_is_that_of_the_whole_vector(void **state)
{
    struct rig *g = open_rig("fp32", N);
    struct hash32 want;
    uint8_t *bytes = malloc(4 * N);

    (void)state;
    assert_non_null(bytes);
    memset(bytes, 3, 4 * N);
    hash_tree(bytes, 4 * N, &want);
    receive(g, 9, 3);
    act(g, ACTION_HASH, 0, 9);
    until(g, NULL, 1);
    assert_int_equal(g->told[0].type, LOCAL_HASHED);
    assert_int_equal(g->told[0].rc, 0);
    assert_int_equal(g->told[0].request, 9);
    assert_true(hash32_eq(&g->told[0].hash, &want));
    free(bytes);
    close_rig(g);
}

/* A segment of the vector whose bytes will not change any more. */
static void
receive_final(struct rig *g, uint64_t attempt, uint64_t at, uint8_t with)
{
    struct segment s = {
        .attempt = attempt, .offset = at, .len = 1 << 16, .final = true};
    size_t len = g->calls.wire_len(g->calls.self, &s);
    uint8_t *to = g->calls.place(g->calls.self, &s);

    assert_non_null(to);
    memset(to, with, len);
    assert_int_equal(g->calls.take(g->calls.self, &s, to, len), 0);
}

static uint32_t leaves_made(struct wire_slot *slot)
{
    uint32_t made = 0;

    (void)pthread_mutex_lock(&slot->lock);
    for (uint64_t p = 0; p < slot->leaves.n; p++) {
        made += slot->leaves.made[p];
    }
    (void)pthread_mutex_unlock(&slot->lock);
    return made;
}

static void until_unpinned(struct rig *g, const struct wire_slot *slot)
{
    uint64_t hang_ns = uv_hrtime() + HANG_S * 1000000000ULL;

    while (slot->pins > 0) {
        (void)uv_run(&g->loop, UV_RUN_NOWAIT);
        assert_true(uv_hrtime() < hang_ns);
    }
}

/* From the end to the beginning; all pieces are hashed before HASH is said. */
static void a_hash_is_made_while_segments_arrive(void **state)
{
    struct rig *g = open_rig("fp32", N);
    struct wire_slot *slot;
    struct hash32 want;
    uint8_t *bytes = malloc(4 * N);

    (void)state;
    assert_non_null(bytes);
    for (uint64_t at = N; at > 0; at -= 1 << 16) {
        receive_final(g, 9, at - (1 << 16), (uint8_t)(at >> 16));
        memset(bytes + 4 * (at - (1 << 16)), (uint8_t)(at >> 16), 4 << 16);
    }
    slot = machine_slot_find(g->m, WIRE_RING, 9);
    until_unpinned(g, slot);
    assert_int_equal(leaves_made(slot), 12);
    hash_tree(bytes, 4 * N, &want);
    act(g, ACTION_HASH, 0, 9);
    until(g, NULL, 1);
    assert_true(hash32_eq(&g->told[0].hash, &want));
    free(bytes);
    close_rig(g);
}

/* Rounds 1, 3 .. of N elements, rounds 2, 4 .. of a quarter: each one's hash is
 * that of its own length, whatever its slot held before. */
static void a_hash_is_as_long_as_the_round(void **state)
{
    struct rig *g = open_rig("fp32", N);
    uint8_t *bytes = malloc(4 * N);

    (void)state;
    assert_non_null(bytes);
    g->m->terms.n_turns = 2;
    g->m->terms.turns[0].elements = N;
    g->m->terms.turns[1].elements = N / 4;
    for (uint64_t round = 1; round <= 6; round++) {
        uint64_t n = terms_elements(&g->m->terms, round);
        struct segment beyond = {.attempt = round, .offset = n, .len = 1 << 16};
        struct wire_slot *slot;
        struct hash32 want;

        for (uint64_t at = 0; at < n; at += 1 << 16) {
            receive_final(g, round, at, (uint8_t)round);
        }
        slot = machine_slot_find(g->m, WIRE_RING, round);
        until_unpinned(g, slot);
        assert_int_equal(leaves_made(slot), 4 * n / HASH_PIECE_BYTES);
        assert_int_equal(g->calls.take(g->calls.self, &beyond, bytes, 4 << 16),
                         LOCO_ERANGE);
        memset(bytes, (int)round, 4 * n);
        hash_tree(bytes, 4 * n, &want);
        g->n_told = 0;
        act(g, ACTION_HASH, 0, round);
        until(g, NULL, 1);
        assert_int_equal(g->told[0].rc, 0);
        assert_true(hash32_eq(&g->told[0].hash, &want));
    }
    free(bytes);
    close_rig(g);
}

/* What was hashed of an attempt that failed is not taken for the next one's,
 * nor what is hashed of it just now; the same after a LOAD. */
static void what_was_hashed_of_other_bytes_is_forgotten(void **state)
{
    (void)state;
    for (int load = 0; load < 2; load++) {
        struct rig *g = open_rig("fp32", N);
        struct hash32 want;
        uint8_t *bytes = malloc(4 * N);
        uint64_t again = load ? 9 : 10;

        assert_non_null(bytes);
        for (uint64_t at = 0; at < N - (1 << 18); at += 1 << 16) {
            receive_final(g, 9, at, 3);
        }
        if (load) {
            machine_leaves_stop(g->m);
        } else {
            act(g, ACTION_INHERIT, 9, 10);
        }
        for (uint64_t at = 0; at < N; at += 1 << 16) {
            receive_final(g, again, at, 4);
        }
        act(g, ACTION_HASH, 0, again);
        until(g, NULL, 1);
        memset(bytes, 4, 4 * N);
        hash_tree(bytes, 4 * N, &want);
        assert_int_equal(g->told[0].rc, 0);
        assert_true(hash32_eq(&g->told[0].hash, &want));
        free(bytes);
        close_rig(g);
    }
}

/* The next attempt takes the bytes over at once and writes into them, while a
 * worker may still read them for the attempt that failed. */
static void inheriting_neither_waits_for_a_hash_nor_copies(void **state)
{
    struct rig *g = open_rig("fp32", N);
    const struct wire_slot *before, *after;
    struct hash32 want;
    uint8_t *bytes = malloc(4 * N);

    (void)state;
    assert_non_null(bytes);
    receive(g, 9, 3);
    before = machine_slot_find(g->m, WIRE_RING, 9);
    act(g, ACTION_HASH, 0, 9);
    (void)uv_run(&g->loop, UV_RUN_NOWAIT);
    act(g, ACTION_INHERIT, 9, 10);
    after = machine_slot_find(g->m, WIRE_RING, 10);
    assert_ptr_equal(before, after);
    assert_null(machine_slot_find(g->m, WIRE_RING, 9));
    receive(g, 10, 4); /* while the worker is at it, or before it began */
    act(g, ACTION_HASH, 0, 10);
    until(g, NULL, 2);
    assert_int_equal(g->told[0].request, 9);
    assert_true(g->told[0].rc == 0 || g->told[0].rc == LOCO_ECANCELED);
    assert_int_equal(g->told[1].request, 10);
    assert_int_equal(g->told[1].rc, 0);
    memset(bytes, 4, 4 * N);
    hash_tree(bytes, 4 * N, &want);
    assert_true(hash32_eq(&g->told[1].hash, &want));
    free(bytes);
    close_rig(g);
}

static void what_is_gone_is_not_inherited_nor_sent(void **state)
{
    struct rig *g = open_rig("fp32", 1 << 16);
    struct segment s = {.attempt = 10, .len = 1 << 16};

    (void)state;
    act(g, ACTION_INHERIT, 9, 10);
    until(g, NULL, 1);
    assert_int_equal(g->told[0].type, LOCAL_INHERITED);
    assert_int_equal(g->told[0].request, 10);
    assert_int_not_equal(g->told[0].rc, 0);
    assert_null(g->calls.lend(g->calls.self, &s));
    close_rig(g);
}

/* Contributions of two others and the own one, summed where they wait. */
static void lanes_are_summed_into_the_vector(void **state)
{
    struct rig *g = open_rig("int8", 4096);
    const struct codec *c = codec_find("int8");
    static float own[4096], x[4096], got[4096];
    uint8_t *wire = malloc(c->bytes(4096));
    struct segment s = {.attempt = 5,
                        .offset = 1024,
                        .len = 1024,
                        .op = SEGMENT_LANE,
                        .lanes = 3,
                        .slot = 2};
    size_t len = c->bytes(1024);

    (void)state;
    assert_non_null(wire);
    memcpy(own, trainer_contribution(g->m->trainer), sizeof own);
    g->m->error = calloc(4096, sizeof(float));
    for (s.lane = 0; s.lane < 3; s.lane += 2) {
        uint8_t *at = g->calls.place(g->calls.self, &s);

        assert_non_null(at);
        for (size_t i = 0; i < 1024; i++) {
            x[i] = (float)(s.lane + 1);
        }
        assert_int_equal(c->encode(at, x, 1024, 1), 0);
        s.scale = 0.25;
        assert_int_equal(g->calls.take(g->calls.self, &s, at, len), 0);
    }
    s.op = SEGMENT_SUM;
    s.lane = 1;
    s.scale = 0.5;
    assert_int_equal(g->calls.sum(g->calls.self, &s), 0);
    s.op = SEGMENT_COPY;
    assert_int_equal(g->calls.fill(g->calls.self, &s, wire), 0);
    assert_int_equal(c->decode(got, wire, 1024), 0);
    for (size_t i = 0; i < 1024; i++) {
        double want = 0.25 * 1 + 0.25 * 3 + 0.5 * (double)own[1024 + i];
        double off = (double)got[i] - want;

        assert_true(off < 0.01 && off > -0.01);
        /* What the mean lacks is half of what the residual has. */
        off = (double)got[i] + 0.5 * (double)g->m->error[1024 + i] - want;
        assert_true(off < 1e-6 && off > -1e-6);
    }
    s.op = SEGMENT_SUM;
    s.lane = 1;
    assert_int_equal(g->calls.sum(g->calls.self, &s), LOCO_ENOENT); /* used */
    s.offset = 4096;
    assert_int_equal(g->calls.sum(g->calls.self, &s), LOCO_ERANGE);
    s.op = SEGMENT_LANE;
    s.offset = 0;
    s.lane = 3; /* of three */
    assert_null(g->calls.place(g->calls.self, &s));
    free(wire);
    close_rig(g);
}

/* The encoding of a lone member runs on a worker: it may read the contribution
 * until it is done. */
static void closing_while_a_contribution_is_encoded_is_safe(void **state)
{
    struct rig *g = open_rig("fp32", 4096);
    struct action a = {.type = ACTION_HASH,
                       .buffer = BUFFER_RING,
                       .request = 9,
                       .encode = true};

    (void)state;
    g->calls.local(g->calls.self, &a, NULL);
    machine_close(g->m, set_flag, &g->machine_closed);
    a.request = 10;
    g->calls.local(g->calls.self, &a, NULL); /* nothing is begun any more */
    until(g, &g->machine_closed, 0);
    (void)uv_run(&g->loop, UV_RUN_NOWAIT);
    for (uint32_t i = 0; i < g->n_told; i++) {
        assert_int_equal(g->told[i].request, 9);
    }
    shell_close(g->shell, set_flag, &g->shell_closed);
    until(g, &g->shell_closed, 0);
    (void)uv_run(&g->loop, UV_RUN_DEFAULT);
    assert_int_equal(uv_loop_close(&g->loop), 0);
    free(g);
}

/* A worker and the trainer may tell something when the shell has gone. */
static void what_ends_after_the_shell_is_told_to_nobody(void **state)
{
    struct rig *g = open_rig("fp32", 4096);
    struct action a = {.type = ACTION_HASH,
                       .buffer = BUFFER_RING,
                       .request = 9,
                       .encode = true};
    struct local_event late = {.type = LOCAL_HASHED};

    (void)state;
    g->calls.local(g->calls.self, &a, NULL);
    machine_disconnect(g->m);
    a.request = 10;
    g->calls.local(g->calls.self, &a, NULL); /* nothing is begun any more */
    shell_close(g->shell, set_flag, &g->shell_closed);
    until(g, &g->shell_closed, 0);
    machine_post(g->m, &late);
    assert_int_equal(g->n_told, 0);
    machine_close(g->m, set_flag, &g->machine_closed);
    until(g, &g->machine_closed, 0);
    (void)uv_run(&g->loop, UV_RUN_DEFAULT);
    assert_int_equal(uv_loop_close(&g->loop), 0);
    free(g);
}

static void
expect_reading(const struct machine *m, uint64_t number, const char *versions)
{
    const struct snapshot s = {.reading = number};
    const char *found = machine_reading(m, &s);

    if (versions == NULL) {
        assert_null(found);
    } else {
        assert_non_null(found);
        assert_string_equal(found, versions);
    }
}

static uint64_t read_at(struct machine *m, uint64_t position)
{
    struct slice_version *seen =
        (struct slice_version *)slice_store_seen(m->slices);

    seen[0] = (struct slice_version){.generation = 1, .position = position};
    return machine_note_reading(m);
}

/* The trainer may not have taken the newest reading when its snapshot of the
 * one before is written. */
static void a_snapshot_has_the_versions_of_its_own_reading(void **state)
{
    static const struct method method = {.group = METHOD_OWNERS};
    struct rig *g = open_rig("fp32", 4096);
    const struct slice_store_options opt = {.n = 4096,
                                            .count = 1,
                                            .each = 4096,
                                            .codec = g->m->codec,
                                            .method = &method};

    (void)state;
    assert_int_equal(slice_store_open(&g->m->slices, &opt), 0);
    g->m->terms.n_slices = 1;
    expect_reading(g->m, 0, NULL);
    assert_int_equal(read_at(g->m, 5), 1);
    expect_reading(g->m, 0, NULL);
    expect_reading(g->m, 1, "1 5 0 0 0 ");
    assert_int_equal(read_at(g->m, 7), 2);
    expect_reading(g->m, 1, "1 5 0 0 0 ");
    expect_reading(g->m, 2, "1 7 0 0 0 ");
    assert_int_equal(read_at(g->m, 9), 3);
    expect_reading(g->m, 1, NULL);
    expect_reading(g->m, 2, "1 7 0 0 0 ");
    expect_reading(g->m, 3, "1 9 0 0 0 ");
    close_rig(g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_hash_is_that_of_the_whole_vector),
        cmocka_unit_test(a_hash_is_as_long_as_the_round),
        cmocka_unit_test(a_hash_is_made_while_segments_arrive),
        cmocka_unit_test(what_was_hashed_of_other_bytes_is_forgotten),
        cmocka_unit_test(inheriting_neither_waits_for_a_hash_nor_copies),
        cmocka_unit_test(what_is_gone_is_not_inherited_nor_sent),
        cmocka_unit_test(lanes_are_summed_into_the_vector),
        cmocka_unit_test(closing_while_a_contribution_is_encoded_is_safe),
        cmocka_unit_test(what_ends_after_the_shell_is_told_to_nobody),
        cmocka_unit_test(a_snapshot_has_the_versions_of_its_own_reading),
    };

    if (sign_start() != 0) {
        return 1;
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
