/* lanes_test.c - the sum of encoded contributions, and where they wait. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "proto/base/err.h"
#include "proto/base/rng.h"
#include "train/sync/codec/lanes.h"

#define N       (2 * CODEC_FP16_BLOCK + 1301)
#define MEMBERS 5U
#define SLOTS   3U

static float in[MEMBERS][N];
static uint8_t wire[MEMBERS][4 * N];
static uint8_t out[4 * N], other[4 * N];
static float decoded[N], sum[N], error[N];

static void fill(uint64_t seed, int magnitude)
{
    for (uint32_t k = 0; k < MEMBERS; k++) {
        for (size_t i = 0; i < N; i++) {
            in[k][i] = ldexpf(rng_float(&seed) - 0.5F,
                              magnitude - (int)rng_below(&seed, 6));
        }
    }
}

static void encode_all(const struct codec *c)
{
    for (uint32_t k = 0; k < MEMBERS; k++) {
        assert_int_equal(c->encode(wire[k], in[k], N, 1), 0);
    }
}

/* As codec.h says it, with the reference's decode and encode only. */
static void reference(const struct codec *c, const float *scale)
{
    for (uint32_t k = 0; k < MEMBERS; k++) {
        assert_int_equal(c->decode(decoded, wire[k], N), 0);
        for (size_t i = 0; i < N; i++) {
            float x = scale[k] * decoded[i];

            sum[i] = k == 0 ? x : sum[i] + x;
        }
    }
    assert_int_equal(c->encode(other, sum, N, 1), 0);
}

static void a_sum_is_decode_add_in_order_and_encode_once(void **state)
{
    static const char *const isas[] = {"portable", "avx2", "avx512"};
    static const float scale[MEMBERS] = {0.1F, 0.3F, 0, 0.4F, 0.2F};
    const uint8_t *terms[MEMBERS];

    (void)state;
    for (uint32_t k = 0; k < MEMBERS; k++) {
        terms[k] = wire[k];
    }
    for (unsigned id = 0; id < CODEC_COUNT; id++) {
        fill(17 + id, 3);
        encode_all(codec_get_portable(id));
        reference(codec_get_portable(id), scale);
        for (unsigned i = 0; i < 3; i++) {
            const struct codec *c = codec_get_isa(id, isas[i]);
            struct codec_sum s = {.terms = terms,
                                  .scale = scale,
                                  .n_terms = MEMBERS,
                                  .n = N,
                                  .result = decoded,
                                  .next = error,
                                  .next_scale = 4};

            if (c == NULL) {
                continue; /* not on this CPU */
            }
            memset(error, 0, sizeof error);
            assert_int_equal(c->sum(out, &s), 0);
            assert_memory_equal(out, other, c->bytes(N));
            assert_int_equal(c->decode(in[0], out, N), 0);
            assert_memory_equal(decoded, in[0], sizeof decoded);
            for (size_t k = 0; k < N; k++) {
                assert_true(error[k] == (sum[k] - decoded[k]) * 4);
            }
        }
    }
}

/* Whoever owns the slice, and whether its part is encoded already: the bits of
 * the result are the same. */
static void the_result_does_not_depend_on_the_owner(void **state)
{
    (void)state;
    for (unsigned id = 0; id < CODEC_COUNT; id++) {
        const struct codec *c = codec_get(id);

        fill(3, 1);
        encode_all(c);
        for (uint32_t owner = 0; owner < MEMBERS; owner++) {
            struct lanes l = {0};
            struct lanes_sum s = {.attempt = 9,
                                  .lane = owner,
                                  .slot = 1,
                                  .n = N,
                                  .own = in[owner],
                                  .scale = (float)(owner + 1) / 15,
                                  .dst = owner == 0 ? other : out};

            if (owner % 2 == 1) {
                s.encoded = wire[owner];
                s.own = in[0]; /* is not read */
            }
            assert_int_equal(lanes_fit(&l, c, N, MEMBERS, SLOTS), 0);
            for (uint32_t k = 0; k < MEMBERS; k++) {
                if (k != owner) {
                    memcpy(lanes_at(&l, k, 1), wire[k], c->bytes(N));
                    lanes_keep(&l, 9, k, 1, N, (float)(k + 1) / 15);
                }
            }
            assert_int_equal(lanes_sum(&l, &s), 0);
            if (owner > 0) {
                assert_memory_equal(out, other, c->bytes(N));
            }
            lanes_free(&l);
        }
    }
}

/* The reference's sum with that member's floats as they are; what the encoding
 * took away is in the unit of its contribution. */
static void raw_reference(const struct codec *c, uint32_t owner)
{
    for (uint32_t k = 0; k < MEMBERS; k++) {
        assert_int_equal(c->decode(decoded, wire[k], N), 0);
        for (size_t i = 0; i < N; i++) {
            float x = (float)(k + 1) / 15 * (k == owner ? in[k] : decoded)[i];

            sum[i] = k == 0 ? x : sum[i] + x;
        }
    }
    assert_int_equal(c->encode(other, sum, N, 1), 0);
    assert_int_equal(c->decode(decoded, other, N), 0);
    for (size_t i = 0; i < N; i++) {
        error[i] = (sum[i] - decoded[i]) * (1 / ((float)(owner + 1) / 15));
    }
}

static void a_raw_contribution_is_never_encoded(void **state)
{
    static float next[N], result[N];

    (void)state;
    for (unsigned id = 0; id < CODEC_COUNT; id++) {
        fill(11, 1);
        encode_all(codec_get_portable(id));
        for (uint32_t owner = 0; owner < MEMBERS; owner++) {
            const struct codec *c = codec_get(id);
            struct lanes l = {0};
            struct lanes_sum s = {.attempt = 9,
                                  .lane = owner,
                                  .slot = 1,
                                  .n = N,
                                  .own = in[owner],
                                  .raw = true,
                                  .scale = (float)(owner + 1) / 15,
                                  .dst = out,
                                  .next = next,
                                  .result = result};

            memset(next, 0xff, sizeof next);
            raw_reference(codec_get_portable(id), owner);
            assert_int_equal(lanes_fit(&l, c, N, MEMBERS, SLOTS), 0);
            for (uint32_t k = 0; k < MEMBERS; k++) {
                if (k != owner) {
                    memcpy(lanes_at(&l, k, 1), wire[k], c->bytes(N));
                    lanes_keep(&l, 9, k, 1, N, (float)(k + 1) / 15);
                }
            }
            assert_int_equal(lanes_sum(&l, &s), 0);
            assert_memory_equal(out, other, c->bytes(N));
            assert_memory_equal(result, decoded, sizeof result);
            for (size_t i = 0; i < N; i++) {
                assert_true(next[i] == error[i]);
            }
            lanes_free(&l);
        }
    }
}

static void only_parts_that_nobody_sums_again_are_raw(void **state)
{
    (void)state;
    for (unsigned id = 0; id < CODEC_COUNT; id++) {
        assert_int_equal(lanes_raw(id, false), id == CODEC_SPARSE);
        assert_false(lanes_raw(id, true));
    }
}

/* A rig of lanes that are full but for the own one (0). */
static struct lanes full(const struct codec *c, uint64_t attempt)
{
    struct lanes l = {0};

    fill(5, 0);
    encode_all(c);
    assert_int_equal(lanes_fit(&l, c, N, MEMBERS, SLOTS), 0);
    for (uint32_t k = 1; k < MEMBERS; k++) {
        memcpy(lanes_at(&l, k, 0), wire[k], c->bytes(N));
        lanes_keep(&l, attempt, k, 0, N, 0.2F);
    }
    return l;
}

static struct lanes_sum own(uint64_t attempt)
{
    return (struct lanes_sum){
        .attempt = attempt, .n = N, .own = in[0], .scale = 0.2F, .dst = out};
}

static void a_lane_that_is_no_numbers_is_named(void **state)
{
    (void)state;
    for (unsigned id = 0; id < CODEC_COUNT; id++) {
        const struct codec *c = codec_get(id);

        for (uint32_t bad = 0; bad < MEMBERS; bad++) {
            struct lanes l = full(c, 7);
            struct lanes_sum s = own(7);
            int rv;

            if (bad == 0) {
                in[0][N - 1] = NAN;
            } else { /* the scale, or the numbers, of the last block */
                size_t last = N / CODEC_FP16_BLOCK * CODEC_FP16_BLOCK;

                last = id >= CODEC_INT8
                           ? N / CODEC_INT8_BLOCK * CODEC_INT8_BLOCK
                           : last;
                memset(lanes_at(&l, bad, 0) + c->bytes(last), 0xff, 4);
            }
            s.clip = bad % 2 == 0 ? 0 : 2;
            rv = lanes_sum(&l, &s);
            assert_true(rv == LOCO_ENUMERIC || rv == LOCO_EPROTO);
            assert_int_equal(s.bad, bad);
            lanes_free(&l);
        }
        for (uint32_t raw = 0; raw < 2; raw++) { /* the own floats */
            struct lanes l = full(c, 7);
            struct lanes_sum s = own(7);

            in[0][1] = raw == 0 ? NAN : -INFINITY;
            s.raw = true;
            assert_int_equal(lanes_sum(&l, &s), LOCO_ENUMERIC);
            assert_int_equal(s.bad, 0);
            lanes_free(&l);
        }
    }
}

static void finite_terms_with_an_infinite_sum_blame_nobody(void **state)
{
    struct lanes l = full(codec_find("fp32"), 7);
    struct lanes_sum s = own(7);
    float huge = 3e38F;

    (void)state;
    for (uint32_t k = 1; k < MEMBERS; k++) {
        memcpy(lanes_at(&l, k, 0), &huge, sizeof huge);
        lanes_keep(&l, 7, k, 0, N, 1);
    }
    assert_int_equal(lanes_sum(&l, &s), LOCO_ENUMERIC);
    assert_int_equal(s.bad, MEMBERS);
    lanes_free(&l);
}

static void a_slot_counts_once_and_for_its_attempt_only(void **state)
{
    const struct codec *c = codec_find("int8");
    struct lanes l = full(c, 7);
    struct lanes_sum s = own(8), again = own(7), shorter = own(7);

    (void)state;
    assert_int_equal(lanes_sum(&l, &s), LOCO_ENOENT); /* of another attempt */
    assert_int_equal(s.bad, MEMBERS);
    lanes_free(&l);
    l = full(c, 7);
    shorter.n = N - 1;
    assert_int_equal(lanes_sum(&l, &shorter), LOCO_ENOENT);
    lanes_free(&l);
    l = full(c, 7);
    assert_int_equal(lanes_sum(&l, &again), 0);
    assert_int_equal(lanes_sum(&l, &again), LOCO_ENOENT); /* used up */
    again.slot = SLOTS;
    assert_int_equal(lanes_sum(&l, &again), LOCO_EINVAL);
    assert_null(lanes_at(&l, MEMBERS, 0));
    assert_null(lanes_at(&l, 0, SLOTS));
    assert_int_equal(lanes_fit(&l, c, N, CODEC_TERMS_MAX + 1, 1), LOCO_EINVAL);
    lanes_free(&l);
}

/* Norm of n decoded values. */
static double norm(const float *x, size_t n)
{
    double s = 0;

    for (size_t i = 0; i < n; i++) {
        s += (double)x[i] * (double)x[i];
    }
    return sqrt(s);
}

/* One member sends a thousand times as much: with a clip of 2 its share of a
 * block is what two median members would add. */
static void a_clip_bounds_what_one_member_can_do(void **state)
{
    const struct codec *c = codec_find("fp32");
    const float scale[MEMBERS] = {0.2F, 0.2F, 0.2F, 0.2F, 0.2F};
    const uint8_t *terms[MEMBERS];
    struct codec_sum s = {
        .terms = terms, .scale = scale, .n_terms = MEMBERS, .n = N};
    double honest[MEMBERS], median, moved;

    (void)state;
    fill(8, 0);
    for (uint32_t k = 0; k < MEMBERS; k++) {
        terms[k] = wire[k];
        honest[k] = norm(in[k], CODEC_PIECE);
    }
    median = honest[0];
    for (uint32_t k = 1; k < MEMBERS; k++) { /* an upper bound of it */
        median = honest[k] > median ? honest[k] : median;
    }
    encode_all(c);
    s.clip = 2;
    s.result = decoded;
    assert_int_equal(c->sum(out, &s), 0);
    s.clip = 0; /* members of about the same length are not touched */
    assert_int_equal(c->sum(other, &s), 0);
    assert_memory_equal(out, other, c->bytes(N));
    for (size_t i = 0; i < N; i++) {
        in[3][i] *= 1000;
    }
    encode_all(c);
    s.clip = 2;
    s.result = sum;
    assert_int_equal(c->sum(out, &s), 0);
    for (size_t i = 0; i < CODEC_PIECE; i++) {
        decoded[i] -= sum[i];
    }
    moved = norm(decoded, CODEC_PIECE);
    assert_true(moved <= 0.2 * 3.01 * median);
    assert_true(moved > 0.2 * 0.9 * median / 2); /* it still counts */
    s.clip = 0;
    assert_int_equal(c->sum(out, &s), 0);
    assert_true(norm(sum, CODEC_PIECE) > 100 * median);
}

/* One of five sends what it likes: the centre is where the others are, far
 * nearer than the clipped sum, with the same bits in every set. */
static void a_centre_stays_where_most_are(void **state)
{
    static const char *const isas[] = {"portable", "avx2", "avx512"};
    const float scale[MEMBERS] = {0.2F, 0.2F, 0.2F, 0.2F, 0.2F};
    const struct codec *c = codec_find("fp32");
    const uint8_t *terms[MEMBERS];
    struct codec_sum s = {.terms = terms,
                          .scale = scale,
                          .n_terms = MEMBERS,
                          .n = N,
                          .clip = 1,
                          .result = sum};
    double clipped;

    (void)state;
    fill(8, 0);
    for (size_t i = 0; i < N; i++) {
        for (uint32_t k = 0; k < MEMBERS; k++) { /* four that nearly agree */
            in[k][i] = k < 4 ? in[0][i] + 0.01F * in[k][i] : -1000;
            terms[k] = wire[k];
        }
    }
    encode_all(c);
    assert_int_equal(c->sum(out, &s), 0);
    for (size_t i = 0; i < CODEC_PIECE; i++) {
        sum[i] -= in[0][i];
    }
    clipped = norm(sum, CODEC_PIECE);
    s.centred = true;
    assert_int_equal(c->sum(out, &s), 0);
    for (size_t i = 0; i < CODEC_PIECE; i++) {
        decoded[i] = sum[i] - in[0][i];
    }
    assert_true(norm(decoded, CODEC_PIECE) < clipped / 10);
    assert_true(norm(decoded, CODEC_PIECE) < 0.03 * norm(in[0], CODEC_PIECE));
    for (size_t i = 0; i < sizeof isas / sizeof isas[0]; i++) {
        const struct codec *other_set = codec_get_isa(c->id, isas[i]);

        if (other_set != NULL) {
            assert_int_equal(other_set->sum(other, &s), 0);
            assert_memory_equal(other, out, c->bytes(N));
        }
    }
}

/* All the same: the centre is they, whatever the clip; of a term that does not
 * decode the number is told. */
static void a_centre_of_equals_is_they(void **state)
{
    const float scale[MEMBERS] = {0.2F, 0.2F, 0.2F, 0.2F, 0.2F};
    const struct codec *c = codec_find("fp16");
    const uint8_t *terms[MEMBERS];
    struct codec_sum s = {.terms = terms,
                          .scale = scale,
                          .n_terms = MEMBERS,
                          .n = N,
                          .clip = 1,
                          .centred = true,
                          .result = sum};
    double off;

    (void)state;
    fill(9, 0);
    for (uint32_t k = 0; k < MEMBERS; k++) {
        memcpy(in[k], in[0], sizeof in[0]);
        terms[k] = wire[k];
    }
    encode_all(c);
    assert_int_equal(c->sum(out, &s), 0);
    for (size_t i = 0; i < N; i++) {
        decoded[i] = sum[i] - in[0][i];
    }
    off = norm(decoded, N);
    assert_true(off < 2e-3 * norm(in[0], N));
    memset(wire[3], 0xff, c->bytes(N)); /* no fp16 block is that */
    assert_int_not_equal(c->sum(out, &s), 0);
    assert_int_equal(s.bad, 3);
}

/* Error feedback: over many rounds of constant contributions the mean of the
 * results is the mean of the contributions, with a new owner each round, though
 * one round alone is far off. */
static void what_rounding_takes_comes_back_whoever_rounded(void **state)
{
    const struct codec *c = codec_find("e3m0");
    static float residual[MEMBERS][N], x[MEMBERS][N];
    static double total[N];
    const unsigned rounds = 60;
    double worst = 0, first = 0;

    (void)state;
    fill(21, 0);
    memset(residual, 0, sizeof residual);
    memset(total, 0, sizeof total);
    for (unsigned r = 0; r < rounds; r++) {
        uint32_t owner = r % MEMBERS;
        struct lanes l = {0};
        struct lanes_sum s = {.attempt = r + 1,
                              .lane = owner,
                              .n = N,
                              .own = x[owner],
                              .scale = 1.0F / MEMBERS,
                              .dst = out,
                              .next = residual[owner],
                              .result = decoded};

        assert_int_equal(lanes_fit(&l, c, N, MEMBERS, SLOTS), 0);
        for (uint32_t k = 0; k < MEMBERS; k++) {
            struct codec_op op = {
                .own = x[k], .n = N, .scale = 1, .next = residual[k]};

            for (size_t i = 0; i < N; i++) {
                x[k][i] = in[k][i] + residual[k][i];
            }
            if (k != owner) {
                assert_int_equal(c->encode_op(lanes_at(&l, k, 0), &op), 0);
                lanes_keep(&l, r + 1, k, 0, N, 1.0F / MEMBERS);
            }
        }
        assert_int_equal(lanes_sum(&l, &s), 0);
        lanes_free(&l);
        for (size_t i = 0; i < N; i++) {
            total[i] += (double)decoded[i];
        }
        if (r == 0) {
            for (size_t i = 0; i < N; i++) {
                double want = 0;

                for (uint32_t k = 0; k < MEMBERS; k++) {
                    want += (double)in[k][i] / MEMBERS;
                }
                first = fmax(first, fabs(total[i] - want));
            }
        }
    }
    for (size_t i = 0; i < N; i++) {
        double want = 0;

        for (uint32_t k = 0; k < MEMBERS; k++) {
            want += (double)in[k][i] / MEMBERS;
        }
        worst = fmax(worst, fabs(total[i] / rounds - want));
    }
    assert_true(worst < first / 10);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_sum_is_decode_add_in_order_and_encode_once),
        cmocka_unit_test(the_result_does_not_depend_on_the_owner),
        cmocka_unit_test(a_raw_contribution_is_never_encoded),
        cmocka_unit_test(only_parts_that_nobody_sums_again_are_raw),
        cmocka_unit_test(a_lane_that_is_no_numbers_is_named),
        cmocka_unit_test(finite_terms_with_an_infinite_sum_blame_nobody),
        cmocka_unit_test(a_slot_counts_once_and_for_its_attempt_only),
        cmocka_unit_test(a_clip_bounds_what_one_member_can_do),
        cmocka_unit_test(a_centre_stays_where_most_are),
        cmocka_unit_test(a_centre_of_equals_is_they),
        cmocka_unit_test(what_rounding_takes_comes_back_whoever_rounded),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
