/* jobs_test.c - the books below a node: what a segment names, which vector lies
 * in which slot, which states are kept, whose pieces are right. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "daemon/jobs/kept.h"
#include "daemon/jobs/pace.h"
#include "daemon/jobs/pair_payload.h"
#include "daemon/jobs/pieces.h"
#include "daemon/jobs/reduce.h"
#include "daemon/jobs/segments.h"
#include "daemon/jobs/wire_slots.h"
#include "proto/base/err.h"

#define N 4096 /* parameters */

static struct run_terms terms(void)
{
    struct run_terms t = {.n_params = N,
                          .state_bytes = 2 * N * sizeof(float),
                          .piece_bytes = 1000,
                          .n_shards = 1};

    t.shards[0].bytes = 2500;
    return t;
}

static int
place(enum buffer_kind buffer, uint64_t index, uint64_t offset, uint32_t len)
{
    const struct run_terms t = terms();
    const struct segment s = {
        .buffer = buffer, .index = index, .offset = offset, .len = len};
    size_t at;

    return segment_place(&t, codec_find("int8"), &s, &at);
}

static void a_segment_outside_of_its_buffer_has_no_place(void **state)
{
    (void)state;
    assert_int_equal(place(BUFFER_RING, 0, 1024, 3072), 0);
    assert_int_equal(place(BUFFER_RING, 0, 1024, 3073), LOCO_ERANGE);
    assert_int_equal(place(BUFFER_RING, 0, 1, 16), LOCO_ERANGE); /* no block */
    assert_int_equal(place(BUFFER_RING, 0, 0, 0), LOCO_ERANGE);
    assert_int_equal(place(BUFFER_STATE, 7, 1, 8 * N - 1), 0);
    assert_int_equal(place(BUFFER_STATE, 7, UINT64_MAX, 2), LOCO_ERANGE);
    assert_int_equal(place(BUFFER_SHARD, 0, 0, 2500), 0);
    assert_int_equal(place(BUFFER_SHARD, 1, 0, 1), LOCO_ERANGE);
    assert_int_equal(place(BUFFER_SHARD_LEAVES, 0, 64, 32), 0);
    assert_int_equal(place(BUFFER_SHARD_LEAVES, 0, 64, 33), LOCO_ERANGE);
    assert_int_equal(place(BUFFER_SHARD_LEAVES, 1, 0, 1), LOCO_ERANGE);
    assert_int_equal(place(BUFFER_FORTH, 0, 0, 1), LOCO_ERANGE);
}

static void vectors_are_placed_by_encoded_bytes(void **state)
{
    const struct run_terms t = terms();
    const struct codec *c = codec_find("int8");
    struct segment s = {.buffer = BUFFER_RING, .offset = 2048, .len = 1024};
    size_t at;

    (void)state;
    assert_int_equal(segment_place(&t, c, &s, &at), 0);
    assert_int_equal(at, c->bytes(2048));
    assert_int_equal(segment_wire_len(&t, c, &s), c->bytes(1024));
    s.buffer = BUFFER_STATE;
    assert_int_equal(segment_place(&t, c, &s, &at), 0);
    assert_int_equal(at, 2048);
    assert_int_equal(segment_wire_len(&t, c, &s), 1024);
}

static struct wire_slot *begin(struct wire_slots *w, uint64_t attempt)
{
    struct wire_slot *s = wire_slots_choose(w);

    assert_non_null(s);
    wire_slots_begin(w, s, WIRE_RING, attempt);
    return s;
}

static void neither_the_last_commit_nor_what_is_read_gives_way(void **state)
{
    struct wire_slots w = {.n_made = 0};
    struct wire_slot *commit = begin(&w, 1), *read = begin(&w, 2);

    (void)state;
    wire_slots_hashed(&w, commit);
    assert_ptr_equal(wire_slots_apply(&w, WIRE_RING, 1), commit);
    read->pins = 1;
    for (uint64_t attempt = 3; attempt < 20; attempt++) {
        (void)begin(&w, attempt);
    }
    assert_ptr_equal(wire_slots_find(&w, WIRE_REDUCED, 1), commit);
    assert_ptr_equal(wire_slots_find(&w, WIRE_RING, 2), read);
    assert_non_null(wire_slots_find(&w, WIRE_RING, 18));
    assert_null(wire_slots_find(&w, WIRE_RING, 17));
}

static void the_attempt_hashed_last_is_applied(void **state)
{
    const uint64_t again = 1ULL << 32;
    struct wire_slots w = {.n_made = 0};
    struct wire_slot *first = begin(&w, 5), *second = begin(&w, again | 5);

    (void)state;
    assert_null(wire_slots_apply(&w, WIRE_RING, 5)); /* none is hashed */
    wire_slots_hashed(&w, second);
    wire_slots_hashed(&w, first);
    assert_null(wire_slots_apply(&w, WIRE_RING, 6));
    assert_null(wire_slots_apply(&w, WIRE_FETCHED, 5));
    assert_ptr_equal(wire_slots_apply(&w, WIRE_RING, 5), first);
    assert_null(wire_slots_find(&w, WIRE_RING, 5));
}

static void an_attempt_that_inherits_nothing_is_refused(void **state)
{
    struct wire_slots w = {.n_made = 0};
    struct wire_slot *old = begin(&w, 5), *other = begin(&w, 6);

    (void)state;
    wire_slots_hashed(&w, old);
    assert_null(wire_slots_inherit(&w, 4, 7));
    assert_int_equal(w.refused, 7);
    assert_ptr_equal(wire_slots_inherit(&w, 5, 6), old);
    assert_int_equal(old->hashed, 0);
    assert_ptr_equal(wire_slots_find(&w, WIRE_RING, 6), old);
    assert_int_equal(other->use, WIRE_FREE); /* another branch's */
    assert_null(wire_slots_find(&w, WIRE_RING, 5));
}

static void what_is_over_is_free_and_used_last(void **state)
{
    struct wire_slots w = {.sparing = true};
    struct wire_slot *failed = begin(&w, 5), *read = begin(&w, 6);
    struct wire_slot *commit = begin(&w, 7), *next;

    (void)state;
    read->pins = 1;
    wire_slots_hashed(&w, commit);
    assert_ptr_equal(wire_slots_apply(&w, WIRE_RING, 7), commit);
    wire_slots_forget(&w, 7);
    assert_int_equal(failed->use, WIRE_FREE);
    assert_int_equal(read->use, WIRE_RING);
    assert_int_equal(commit->use, WIRE_REDUCED);
    wire_slots_release(&w); /* no file has it */
    assert_ptr_equal(wire_slots_find(&w, WIRE_REDUCED, 7), commit);
    commit->saved = true;
    commit->pins = 1;
    wire_slots_release(&w);
    assert_int_equal(commit->use, WIRE_REDUCED);
    commit->pins = 0;
    wire_slots_release(&w);
    assert_int_equal(commit->use, WIRE_FREE);
    /* One that was never used, then those that were used longest ago. */
    next = begin(&w, 8);
    assert_true(next != failed && next != read && next != commit);
    assert_ptr_equal(begin(&w, 9), failed);
    assert_ptr_equal(begin(&w, 10), commit);
    wire_slots_hashed(&w, commit);
    assert_ptr_equal(wire_slots_apply(&w, WIRE_RING, 10), commit);
    assert_false(commit->saved); /* that was another vector */
    wire_slots_forget(&w, 9);
    assert_int_equal(next->use, WIRE_FREE);
    assert_int_equal(failed->use, WIRE_RING); /* of the round itself */
}

/* One commit after the other: bytes for the last one may still come, and a
 * third one would need new pages. */
static void rounds_take_two_slots_in_turns(void **state)
{
    struct wire_slots w = {.sparing = true};
    struct wire_slot *before = NULL, *two[2] = {NULL, NULL};
    uint8_t bytes[WIRE_SLOTS];

    (void)state;
    for (uint64_t round = 1; round < 20; round++) {
        struct wire_slot *s = begin(&w, round);
        unsigned n_kept = 0;

        s->bytes = &bytes[s - w.slot];
        assert_ptr_not_equal(s, before);
        if (round <= 2) {
            two[round - 1] = s;
        }
        assert_ptr_equal(s, two[(round - 1) % 2]);
        wire_slots_hashed(&w, s);
        assert_ptr_equal(wire_slots_apply(&w, WIRE_RING, round), s);
        s->saved = true;
        wire_slots_release(&w);
        assert_int_equal(s->use, WIRE_FREE);
        for (int i = 0; i < WIRE_SLOTS; i++) {
            n_kept += wire_slots_keeps(&w, &w.slot[i]);
        }
        assert_int_equal(n_kept, round < 2 ? 1 : 2);
        assert_true(wire_slots_keeps(&w, s));
        before = s;
    }
    /* The other one has no pages: as good as one that was never used. */
    two[1]->lean = true;
    before = begin(&w, 20);
    assert_true(before != two[0] && before != two[1]);
}

/* The state that is given back when another one comes; which, by its round. */
static uint64_t push(struct kept *k, int *rounds, uint64_t round, uint64_t now)
{
    const struct kept_state s = {
        .state = &rounds[round], .round = round, .name = 10 * round};
    void *unpinned, *left;

    kept_push(k, &s, now, 100, &unpinned, &left);
    assert_true(unpinned == NULL || left == NULL);
    left = left == NULL ? unpinned : left;
    return left == NULL ? 0 : (uint64_t)((int *)left - rounds);
}

static void a_state_that_is_fetched_stays_until_nobody_asks(void **state)
{
    int rounds[16];
    struct kept k = {.pinned = {.state = NULL}};

    (void)state;
    assert_int_equal(push(&k, rounds, 1, 1), 0);
    assert_int_equal(push(&k, rounds, 2, 2), 0);
    assert_null(kept_find(&k, 2, 11));
    kept_find(&k, 2, 20)->asked_ms = 50;
    assert_int_equal(push(&k, rounds, 3, 60), 1);
    assert_int_equal(push(&k, rounds, 4, 70), 0); /* 2 is pinned */
    assert_non_null(kept_find(&k, 2, 0));
    kept_find(&k, 3, 0)->asked_ms = 80;
    assert_int_equal(push(&k, rounds, 5, 90), 3); /* one at a time */
    kept_find(&k, 2, 0)->asked_ms = 120;
    assert_int_equal(push(&k, rounds, 6, 219), 4);
    assert_non_null(kept_find(&k, 2, 0));
    assert_null(kept_find(&k, 4, 0));
    k.last[1].asked_ms = 220; /* takes the place of the other */
    assert_int_equal(push(&k, rounds, 7, 220), 2);
    assert_ptr_equal(kept_pop(&k), &rounds[7]);
    assert_ptr_equal(kept_pop(&k), &rounds[6]);
    assert_ptr_equal(kept_pop(&k), &rounds[5]);
    assert_null(kept_pop(&k));
}

static void the_oldest_state_leaves_before_the_next_one_comes(void **state)
{
    int rounds[16];
    struct kept k = {.pinned = {.state = NULL}};

    (void)state;
    assert_int_equal(push(&k, rounds, 1, 1), 0);
    assert_null(kept_leave(&k, 2, 100)); /* the only one stays */
    assert_int_equal(push(&k, rounds, 2, 2), 0);
    kept_find(&k, 1, 0)->asked_ms = 3;
    assert_null(kept_leave(&k, 102, 100)); /* somebody fetches it */
    assert_non_null(kept_find(&k, 1, 0));
    assert_ptr_equal(kept_leave(&k, 103, 100), &rounds[1]);
    assert_null(kept_find(&k, 1, 0));
    assert_non_null(kept_find(&k, 2, 0));
    assert_null(kept_leave(&k, 103, 100));
    assert_int_equal(push(&k, rounds, 3, 104), 0);
    assert_non_null(kept_find(&k, 2, 0));
}

/* What was reduced is negative; what is in use (1000 and more) cannot be. */
static bool reduce(void *self, void *state)
{
    int *round = state;

    if (*round >= 1000) {
        return false;
    }
    *(uint32_t *)self += 1;
    *round = -*round;
    return true;
}

static void of_older_states_the_parameters_alone_are_kept(void **state)
{
    int rounds[16];
    struct kept k = {.more = KEPT_STATES_MAX - KEPT_STATES};
    uint32_t n = 0;

    (void)state;
    for (int i = 0; i < 16; i++) {
        rounds[i] = i;
    }
    for (uint64_t i = 1; i <= 6; i++) {
        assert_int_equal(push(&k, rounds, i, i), 0);
    }
    kept_find(&k, 3, 0)->asked_ms = 10; /* fetched */
    kept_find(&k, 4, 0)->asked_ms = 10; /* the same, but one is enough */
    rounds[2] += 1000;
    kept_reduce(&k, 20, 100, reduce, &n);
    assert_int_equal(n, 2);
    assert_null(kept_whole(&k, 1, 0));
    assert_non_null(kept_find(&k, 1, 10)); /* leases can be made again */
    assert_null(kept_whole(&k, 4, 40));
    for (uint64_t i = 2; i <= 6; i++) {
        assert_true((kept_whole(&k, i, 0) != NULL) == (i != 4));
    }
    rounds[2] -= 1000;
    kept_reduce(&k, 20, 100, reduce, &n);
    assert_int_equal(n, 3);
    kept_reduce(&k, 200, 100, reduce, &n); /* nobody fetches any more */
    assert_int_equal(n, 4);
    kept_reduce(&k, 200, 100, reduce, &n);
    assert_int_equal(n, 4); /* once each, and never the newest ones */
    assert_int_equal(rounds[5], 5);
    assert_int_equal(rounds[6], 6);
}

static void a_piece_is_checked_by_the_list_of_its_object(void **state)
{
    const struct run_terms t = terms();
    struct transfer_object o = pieces_object(&t, BUFFER_SHARD, 0);
    struct segment s = {.buffer = BUFFER_SHARD_LEAVES, .len = 32};
    struct pieces p = {.leaves = NULL};
    struct piece_roots roots;
    struct hash32 list[3], want;
    uint8_t shard[2500];

    (void)state;
    memset(shard, 7, sizeof shard);
    pieces_make(&o, shard, list);
    for (; s.offset < sizeof list; s.offset += 32) {
        assert_int_equal(pieces_take(&p, &t, &s, (uint8_t *)list + s.offset),
                         0);
    }
    assert_true(pieces_has(&p, BUFFER_SHARD, 0, 2));
    assert_false(pieces_has(&p, BUFFER_SHARD, 0, 3));
    assert_false(pieces_has(&p, BUFFER_SHARD, 1, TRANSFER_LEAVES));
    assert_false(pieces_has(&p, BUFFER_STATE, 0, TRANSFER_LEAVES));
    assert_int_equal(pieces_check(&p, 2, shard, 500), 0);
    assert_int_equal(pieces_check(&p, 2, shard, 501), LOCO_EHASH);
    assert_int_equal(pieces_roots(&p, &t, &roots), 0);
    hash_tree_root(list, 3, &want);
    assert_true(hash32_eq(&roots.hash, &want));
    pieces_free(&p);
}

/* The error is kept in the unit of the contribution, whatever its weight. */
static void what_rounding_took_is_kept(void **state)
{
    const struct codec *c = codec_find("int8");
    static float own[N], error[N], got[N];
    uint8_t *wire = malloc(c->bytes(N));
    const struct reduce r = {.codec = c, .segment_elements = N};
    const struct reduce_vectors v = {.own = own, .error = error};
    const struct segment s = {
        .buffer = BUFFER_RING, .offset = 1024, .len = 2048, .scale = 0.25};

    (void)state;
    assert_non_null(wire);
    for (uint32_t i = 0; i < N; i++) {
        own[i] = (float)(i % 1000) / 7;
    }
    assert_int_equal(reduce_encode(&r, &v, &s, wire), 0);
    assert_int_equal(c->decode(got, wire, 2048), 0);
    for (uint32_t i = 0; i < 2048; i++) {
        float lost = own[1024 + i] - 4 * got[i];

        assert_float_equal(error[1024 + i], lost, 1e-4);
    }
    assert_true(error[1023] == 0 && error[3072] == 0);
    free(wire);
}

static void both_peers_of_a_pair_make_one_hash(void **state)
{
    const struct codec *c = codec_find("fp16");
    static float a[2][N], b[2][N];
    const struct pair_payload one = {c, N, a[0], a[1]};
    const struct pair_payload two = {c, N, b[0], b[1]};
    uint8_t *wire[2];
    struct hash32 left, right;

    (void)state;
    a[1][3] = 1;
    b[0][4] = 2;
    for (int i = 0; i < 2; i++) {
        struct segment s = {.buffer = BUFFER_ANCHOR, .len = N};

        wire[i] = malloc(pair_payload_bytes(c, N));
        assert_non_null(wire[i]);
        for (; s.buffer <= BUFFER_STEP; s.buffer++) {
            assert_int_equal(
                pair_payload_fill(i == 0 ? &one : &two, &s,
                                  wire[i] + pair_payload_at(c, N, &s)),
                0);
        }
    }
    assert_int_equal(pair_payload_hash(&one, wire[1], true, &left), 0);
    assert_int_equal(pair_payload_hash(&two, wire[0], false, &right), 0);
    assert_true(hash32_eq(&left, &right));
    assert_int_equal(pair_payload_hash(&two, wire[0], true, &right), 0);
    assert_false(hash32_eq(&left, &right));
    free(wire[0]);
    free(wire[1]);
}

static void what_is_put_off_is_done_when_its_time_has_come(void **state)
{
    struct pace p = {0};

    (void)state;
    assert_true(pace_want(&p, 1000, false));
    assert_false(pace_due(&p, 1000, false)); /* nothing is owed */
    assert_false(pace_want(&p, 2000, true)); /* one is under way */
    pace_done(&p, 3000, 2000, 10);
    assert_false(pace_due(&p, 3000, false));
    assert_false(pace_want(&p, 20999, false));
    /* 18 s after 2 s behind a round, or when none has come for a while. */
    assert_false(pace_due(&p, 21000 + PACE_PATIENCE_MS - 1, false));
    assert_true(pace_due(&p, 21000 + PACE_PATIENCE_MS, false));
    assert_false(pace_due(&p, 21000 + PACE_PATIENCE_MS, false));
    pace_done(&p, 60000, 2000, 10);
    assert_false(pace_want(&p, 77999, false));
    assert_true(pace_want(&p, 78000, false));
    assert_false(pace_due(&p, 78000 + PACE_PATIENCE_MS, false));
    pace_done(&p, 80000, PACE_CHEAP_MS - 1, 10);
    assert_true(pace_want(&p, 80000, false));
    pace_done(&p, 82000, 2000, 100); /* all of the time */
    assert_true(pace_want(&p, 82000, false));
    pace_done(&p, 90000, 6000, 1);
    assert_false(pace_want(&p, 100000, false));
    assert_false(pace_now(&p, true)); /* one is under way */
    assert_true(pace_now(&p, false));
    assert_false(pace_now(&p, false)); /* nothing is owed */
    assert_false(pace_want(&p, 100000, false));
    pace_again(&p);
    assert_true(pace_due(&p, 100000, false));
}

/* What takes long to prepare is prepared before the round's end. */
static void what_may_be_done_behind_a_round_is_foreseen(void **state)
{
    const uint64_t cheap = PACE_CHEAP_MS, patience = PACE_PATIENCE_MS;
    struct pace p = {0};

    (void)state;
    assert_true(pace_expects(&p, 1000, PACE_IDLE, 0));
    assert_true(pace_want(&p, 1000, false));
    assert_true(pace_expects(&p, 1100, 100, 0)); /* it may be over then */
    assert_false(pace_expects(&p, 1000 + cheap, cheap, 0));
    assert_false(pace_expects(&p, 1000 + cheap, cheap, patience));
    assert_true(pace_expects(&p, 1000 + cheap, cheap, patience + 1));
    pace_done(&p, 3000, 2000, 10);
    assert_false(pace_expects(&p, 20999, PACE_IDLE, 0));
    assert_true(pace_expects(&p, 21000, PACE_IDLE, 0));
    /* Rounds that are so far apart that it will not wait for the next. */
    assert_false(pace_expects(&p, 11000, PACE_IDLE, 9999 + patience));
    assert_true(pace_expects(&p, 11000, PACE_IDLE, 10000 + patience));
    assert_true(pace_want(&p, 21000, false)); /* nothing was spent by asking */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_segment_outside_of_its_buffer_has_no_place),
        cmocka_unit_test(vectors_are_placed_by_encoded_bytes),
        cmocka_unit_test(neither_the_last_commit_nor_what_is_read_gives_way),
        cmocka_unit_test(the_attempt_hashed_last_is_applied),
        cmocka_unit_test(what_is_put_off_is_done_when_its_time_has_come),
        cmocka_unit_test(what_may_be_done_behind_a_round_is_foreseen),
        cmocka_unit_test(an_attempt_that_inherits_nothing_is_refused),
        cmocka_unit_test(what_is_over_is_free_and_used_last),
        cmocka_unit_test(rounds_take_two_slots_in_turns),
        cmocka_unit_test(a_state_that_is_fetched_stays_until_nobody_asks),
        cmocka_unit_test(of_older_states_the_parameters_alone_are_kept),
        cmocka_unit_test(the_oldest_state_leaves_before_the_next_one_comes),
        cmocka_unit_test(a_piece_is_checked_by_the_list_of_its_object),
        cmocka_unit_test(what_rounding_took_is_kept),
        cmocka_unit_test(both_peers_of_a_pair_make_one_hash),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
