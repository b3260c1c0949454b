/* work_room_test.c - what an auditor of work holds: pieces of one lease, and
 * what its own moments can say of them. */
#include "daemon/jobs/work_room.h"

#include <math.h>
#include <string.h>

#include "proto/base/err.h"
#include "proto/base/rng.h"
#include "proto/hash.h"
#include "tests/unit/daemon/announced.h"

#define N     64U /* parameters */
#define BLOCK 32U
#define ROUND 17

static const struct peer_id maker = {{7}};
static float moments[2 * N];

static struct offer_cut cut_of(void)
{
    return (struct offer_cut){codec_find("bf16"), BLOCK, 2 * N};
}

/* One piece of them, for a lease from that state. */
static int
deliver(struct work_room *r, uint64_t base, uint64_t from, uint32_t n)
{
    const struct offer_cut cut = cut_of();
    struct segment s = {.buffer = BUFFER_MOMENTS,
                        .op = SEGMENT_COPY,
                        .index = ROUND,
                        .name = base,
                        .offset = from,
                        .len = n,
                        .proven = true,
                        .maker = maker};
    uint8_t bytes[2 * 2 * N + 32 * BLOCKS_PROOF_MAX];
    struct offer o;
    int rv;

    assert_int_equal(offer_make(&o, &cut, moments), 0);
    blocks_offer(&maker, 0, offer_root(&o), &s.offer);
    assert_int_equal(offer_fill(&o, &cut, &s, bytes), 0);
    rv = work_room_take(r, &cut, &s, bytes);
    offer_free(&o);
    return rv;
}

static void lay(void)
{
    for (uint32_t i = 0; i < 2 * N; i++) {
        moments[i] = i < N ? 0.5F : 0.25F;
    }
}

/* After a rollback the same maker works for the same round once more. */
static void pieces_of_two_branches_are_not_mixed(void **state)
{
    struct work_room r = {0};

    (void)state;
    lay();
    assert_int_equal(deliver(&r, 5, 0, N), 0);
    assert_int_equal(r.n_have, N / BLOCK);
    assert_true(work_room_is_of(&r, ROUND, 5, &maker));
    assert_int_equal(deliver(&r, 6, N, N), 0);
    assert_int_equal(r.n_have, N / BLOCK); /* not all of them */
    assert_true(work_room_is_of(&r, ROUND, 6, &maker));
    assert_false(work_room_is_of(&r, ROUND, 5, &maker));
    work_room_free(&r);
}

/* `stretch` of the maker's moments beside ours; -1: nothing can be told. */
static double stretch_beside(const float *own)
{
    uint8_t bf16[2 * 2 * N];
    const struct work_own_moments o = {
        .moments = bf16, .steps = 1000, .beta1 = 0.9, .beta2 = 0.95};
    struct work_room r = {0};
    double worst = -1;

    for (uint32_t i = 0; i < 2 * N; i++) { /* also of what is no number */
        uint32_t bits;

        memcpy(&bits, own + i, sizeof bits);
        bf16[2 * i] = (uint8_t)(bits >> 16);
        bf16[2 * i + 1] = (uint8_t)(bits >> 24);
    }
    assert_int_equal(deliver(&r, 5, 0, 2 * N), 0);
    worst = work_room_stretch(&r, &o, 1000, &worst) ? worst : -1;
    work_room_free(&r);
    return worst;
}

static void own_moments_of_nothing_convict_nobody(void **state)
{
    float own[2 * N];

    (void)state;
    lay();
    memcpy(own, moments, sizeof own);
    assert_true(fabs(stretch_beside(own) - 1) < 1e-6);
    own[0] = NAN;
    assert_true(stretch_beside(own) == -1);
    memset(own, 0, sizeof own);
    assert_true(stretch_beside(own) == -1);
    for (uint32_t i = 0; i < N; i++) {
        own[i] = 0.5F; /* of Muon's matrices v is nothing */
    }
    assert_true(fabs(stretch_beside(own) - 1) < 1e-6);
    own[N] = INFINITY;
    assert_true(fabs(stretch_beside(own) - 1) < 1e-6);
    moments[0] = 1000;
    assert_true(stretch_beside(own) > REPEAT_STRETCH); /* they are long */
    memset(moments, 0, N * sizeof moments[0]); /* ADOPT, after its first step */
    assert_true(stretch_beside(own) == -1);
}

static void each_lease_has_a_room_of_its_own(void **state)
{
    struct work_room rooms[WORK_ROOMS] = {0};

    (void)state;
    lay();
    for (uint32_t k = 0; k < WORK_ROOMS; k++) {
        assert_int_equal(work_rooms_find(rooms, ROUND, 1 + k, &maker),
                         WORK_ROOMS);
        assert_int_equal(work_rooms_free(rooms, ROUND, WORK_ROOMS), k);
        assert_int_equal(deliver(&rooms[k], 1 + k, 0, BLOCK), 0);
    }
    assert_int_equal(work_rooms_free(rooms, ROUND, WORK_ROOMS), WORK_ROOMS);
    for (uint32_t k = 0; k < WORK_ROOMS; k++) {
        assert_int_equal(work_rooms_find(rooms, ROUND, 1 + k, &maker), k);
    }
    assert_int_equal(work_rooms_find(rooms, ROUND + 1, 1, &maker), WORK_ROOMS);
    work_room_free(&rooms[1]);
    assert_int_equal(work_rooms_find(rooms, ROUND, 2, &maker), WORK_ROOMS);
    assert_int_equal(work_rooms_free(rooms, ROUND, WORK_ROOMS), 1);
    for (uint32_t k = 0; k < WORK_ROOMS; k++) {
        work_room_free(&rooms[k]);
    }
}

/* Nobody empties it any more: it must not be lost. */
static void a_room_of_long_ago_is_free_again(void **state)
{
    struct work_room rooms[WORK_ROOMS] = {0};
    const uint64_t late = ROUND + REPEAT_COMMITS + 1;

    (void)state;
    lay();
    for (uint32_t k = 0; k < WORK_ROOMS; k++) {
        assert_int_equal(deliver(&rooms[k], 1 + k, 0, BLOCK), 0);
    }
    assert_int_equal(work_rooms_free(rooms, late - 1, WORK_ROOMS), WORK_ROOMS);
    assert_int_equal(work_rooms_free(rooms, late, WORK_ROOMS), 0);
    assert_int_equal(work_rooms_free(rooms, late, 0), 1); /* a REPEAT reads */
    for (uint32_t k = 0; k < WORK_ROOMS; k++) {
        work_room_free(&rooms[k]);
    }
}

/* ---- readings ----------------------------------------------------------- */

/* A contribution that is `sent`, one block of it, in a round with that result,
 * read beside a repeat. A block is whole groups of every codec. */
static struct repeat_reading reading_over(const char *wire,
                                          const float *sent,
                                          const float *mean,
                                          const float *repeat,
                                          bool leads)
{
    const struct codec *codec = codec_find(wire);
    const struct offer_cut cut = {codec, N, N};
    const struct work_repeat w = {
        .codec = codec, .repeat = repeat, .steady = repeat, .leads = leads};
    struct segment s = {.buffer = BUFFER_OFFER,
                        .op = SEGMENT_LANE,
                        .index = ROUND,
                        .name = 5,
                        .len = N,
                        .proven = true,
                        .maker = maker};
    uint8_t bytes[4 * N + 32 * BLOCKS_PROOF_MAX];
    struct work_room r = {0};
    struct repeat_reading reading;
    struct offer o;

    assert_int_equal(offer_make(&o, &cut, sent), 0);
    blocks_offer(&maker, ROUND, offer_root(&o), &s.offer);
    assert_int_equal(offer_fill(&o, &cut, &s, bytes), 0);
    assert_int_equal(work_room_take(&r, &cut, &s, bytes), 0);
    assert_int_equal(codec->encode(bytes, mean, N, 1), 0);
    assert_int_equal(work_room_mean(&r, 0, codec, bytes), 0);
    assert_int_equal(work_room_read(&r, &w, &reading), 0);
    offer_free(&o);
    work_room_free(&r);
    return reading;
}

static struct repeat_reading reading_of(const float *sent,
                                        const float *mean,
                                        const float *repeat,
                                        bool leads)
{
    return reading_over("fp16", sent, mean, repeat, leads);
}

static float sent[N], other[N], repeat[N], mean[N];

/* Honest work, made again with moments that were rounded; another member's. */
static void lay_work(void)
{
    uint64_t rng = 1;

    for (uint32_t i = 0; i < N; i++) {
        sent[i] = (float)rng_below(&rng, 1000) / 1000 - 0.5F;
        other[i] = (float)rng_below(&rng, 1000) / 1000 - 0.5F;
        repeat[i] =
            sent[i] + ((float)rng_below(&rng, 1000) / 1000 - 0.5F) / 100;
        mean[i] = (sent[i] + other[i]) / 2;
    }
}

/* Its result is its own contribution: nothing is left but what rounding took,
 * and two repeats agree on that. */
static void the_only_one_in_a_round_is_read_as_it_is(void **state)
{
    struct repeat_reading r;

    (void)state;
    lay_work();
    r = reading_of(sent, sent, repeat, true);
    assert_true(r.own > 0.99 && r.best_own > 0.99);
    assert_int_equal(repeat_judge(&r), REPEAT_GOOD);
    r = reading_of(sent, sent, repeat, false); /* by its length alone */
    assert_int_equal(repeat_judge(&r), REPEAT_GOOD);
    r = reading_of(other, other, repeat, true); /* and a lie is one */
    assert_int_equal(repeat_judge(&r), REPEAT_BAD);
}

static void beside_others_what_is_its_own_is_read(void **state)
{
    struct repeat_reading r;

    (void)state;
    lay_work();
    r = reading_of(sent, mean, repeat, false);
    assert_int_equal(repeat_judge(&r), REPEAT_GOOD);
    r = reading_of(mean, mean, repeat, false); /* what all have in common */
    assert_true(r.cosine > 0.5 && r.own < 0.1);
    assert_int_equal(repeat_judge(&r), REPEAT_BAD);
}

/* E3M0 has powers of two: all of this is rounded down. */
static void few_bits_make_honest_work_shorter(void **state)
{
    struct repeat_reading r;

    (void)state;
    for (uint32_t i = 0; i < N; i++) {
        sent[i] = i == 0 ? 1 : (i % 2 == 0 ? 0.7F : -0.7F);
    }
    r = reading_over("e3m0", sent, sent, sent, true);
    assert_int_equal(repeat_judge(&r), REPEAT_GOOD);
    for (uint32_t i = 0; i < N; i++) {
        mean[i] = 2 * sent[i];
    }
    r = reading_over("e3m0", mean, mean, sent, true);
    assert_int_equal(repeat_judge(&r), REPEAT_BAD);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(few_bits_make_honest_work_shorter),
        cmocka_unit_test(the_only_one_in_a_round_is_read_as_it_is),
        cmocka_unit_test(beside_others_what_is_its_own_is_read),
        cmocka_unit_test(pieces_of_two_branches_are_not_mixed),
        cmocka_unit_test(own_moments_of_nothing_convict_nobody),
        cmocka_unit_test(each_lease_has_a_room_of_its_own),
        cmocka_unit_test(a_room_of_long_ago_is_free_again),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
