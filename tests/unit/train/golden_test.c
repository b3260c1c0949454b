/* golden_test.c - the same bits everywhere.
 *
 * The whole way from contributions to committed parameters, displacement,
 * encode, two hops, decode, rule N, twice, on a fixed vector that has
 * ordinary, sub-normal and huge blocks. The hash of the resulting bits is a
 * constant: every compiler, optimisation level and instruction set must give
 * it. golden_bits.sh compiles this file many ways. The constants, but for
 * CENTRED_BITS, were computed a second time in Python, from the texts of the
 * headers, the essays of codec_TYPE.c and PROTOCOL.md 16 alone.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "proto/base/rng.h"
#include "train/sync/codec/centre.h"
#include "train/sync/codec/codec.h"
#include "train/sync/rule.h"

#define N         10001
#define N_MEMBERS 3

/* See a_centred_butterfly_gives_the_stored_bits(). */
#define CENTRED_BITS 0x9135e8296def65a1U
/* See shares_of_eight_are_the_stored_bits(). */
#define SHARES_BITS 0x75ceeecc7448dda6U

static float phi[N];
static float m[N];
static float theta[N];
static float g[N];
static uint8_t wire[4 * N];
static float sum[N];
static float residuals[N_MEMBERS + 1][N]; /* the last: the owner's */

/* FNV-1a over the bits, low byte first. */
static uint64_t hash_floats(const float *x, size_t n, uint64_t h)
{
    for (size_t i = 0; i < n; i++) {
        uint32_t bits;

        memcpy(&bits, &x[i], sizeof bits);
        for (unsigned k = 0; k < 32; k += 8) {
            h = (h ^ (bits >> k & 0xffU)) * 0x100000001B3U;
        }
    }
    return h;
}

/* One block near 1, one of sub-normal displacements, one near 2^90. */
static int magnitude_at(size_t i)
{
    return i < 4096 ? 0 : i < 8192 ? -136 : 90;
}

static void fill_phi(void)
{
    uint64_t seed = 2024;

    for (size_t i = 0; i < N; i++) {
        phi[i] = ldexpf(rng_float(&seed) - 0.5F, magnitude_at(i));
        m[i] = ldexpf(rng_float(&seed) - 0.5F, magnitude_at(i) - 6);
    }
}

static void train_member(unsigned round, unsigned member)
{
    const uint64_t words[2] = {round, member};
    uint64_t seed = rng_mix(words, 2);

    for (size_t i = 0; i < N; i++) {
        float u = rng_float(&seed) - 0.5F;
        int tail = (int)rng_below(&seed, 16);
        float step = ldexpf(u, magnitude_at(i) - 4 - tail);

        theta[i] = phi[i] + step;
    }
}

static uint64_t run_two_rounds(const struct codec *c, const struct rule *rule)
{
    static const float weights[N_MEMBERS] = {0.5F, 0.3F, 0.2F};
    struct outer_state s = {phi, m};
    uint64_t h = 0xcbf29ce484222325U;

    fill_phi();
    for (unsigned round = 0; round < 2; round++) {
        for (unsigned i = 0; i < N_MEMBERS; i++) {
            train_member(round, i);
            assert_int_equal(rule_displacement(g, phi, theta, N), 0);
            assert_int_equal(i == 0 ? c->encode(wire, g, N, weights[i])
                                    : c->add(wire, wire, g, N, weights[i]),
                             0);
        }
        assert_int_equal(c->decode(g, wire, N), 0);
        assert_int_equal(rule_apply(rule, &s, &s, g, N), 0);
        h = hash_floats(g, N, h);
        h = hash_floats(phi, N, h);
        h = hash_floats(m, N, h);
    }
    return h;
}

/* A butterfly with error feedback: members encode, the owner decodes them all,
 * sums in member order and encodes once; then all residuals go on. */
static void reduce_by_owner(const struct codec *c, unsigned round)
{
    static const float weights[N_MEMBERS] = {0.5F, 0.3F, 0.2F};
    struct codec_op owner = {.own = sum,
                             .n = N,
                             .scale = 1.0F,
                             .residual = residuals[N_MEMBERS],
                             .next = residuals[N_MEMBERS]};

    for (unsigned i = 0; i < N_MEMBERS; i++) {
        struct codec_op op = {
            .own = g, .n = N, .scale = weights[i], .residual = residuals[i]};

        train_member(round, i);
        assert_int_equal(rule_displacement(g, phi, theta, N), 0);
        assert_int_equal(c->encode_op(wire, &op), 0);
        op.next = residuals[i];
        assert_int_equal(c->encode_op(wire, &op), 0);
        assert_int_equal(c->decode(theta, wire, N), 0);
        for (size_t k = 0; k < N; k++) {
            sum[k] = i == 0 ? theta[k] : sum[k] + theta[k];
        }
    }
    assert_int_equal(c->encode_op(wire, &owner), 0);
    assert_int_equal(c->decode(g, wire, N), 0);
}

static uint64_t run_two_butterflies(const struct codec *c,
                                    const struct rule *rule)
{
    struct outer_state s = {phi, m};
    uint64_t h = 0xcbf29ce484222325U;

    fill_phi();
    memset(residuals, 0, sizeof residuals);
    for (unsigned round = 0; round < 2; round++) {
        reduce_by_owner(c, round);
        assert_int_equal(rule_apply(rule, &s, &s, g, N), 0);
        h = hash_floats(g, N, h);
        h = hash_floats(phi, N, h);
        h = hash_floats(m, N, h);
        h = hash_floats(residuals[0], (N_MEMBERS + 1) * (size_t)N, h);
    }
    return h;
}

/* A butterfly whose owner computes a centre. */
static uint64_t run_two_centred(const struct codec *c)
{
    static const float weights[N_MEMBERS] = {0.5F, 0.3F, 0.2F};
    static uint8_t sent[N_MEMBERS][4 * N];
    const uint8_t *const terms[N_MEMBERS] = {sent[0], sent[1], sent[2]};
    const struct rule rule = {.lr = 1.0F};
    struct outer_state s = {phi, m};
    uint64_t h = 0xcbf29ce484222325U;

    fill_phi();
    for (unsigned round = 0; round < 2; round++) {
        struct codec_sum op = {.terms = terms,
                               .scale = weights,
                               .n_terms = N_MEMBERS,
                               .n = N,
                               .clip = 1,
                               .centred = true,
                               .result = g};

        for (unsigned i = 0; i < N_MEMBERS; i++) {
            train_member(round, i);
            assert_int_equal(rule_displacement(sum, phi, theta, N), 0);
            assert_int_equal(c->encode(sent[i], sum, N, 1), 0);
        }
        assert_int_equal(c->sum(wire, &op), 0);
        assert_int_equal(rule_apply(&rule, &s, &s, g, N), 0);
        h = hash_floats(g, N, h);
        h = hash_floats(phi, N, h);
    }
    return h;
}

static void a_centred_butterfly_gives_the_stored_bits(void **state)
{
    static const char *const isas[] = {"portable", "avx2", "avx512"};

    (void)state;
    for (size_t i = 0; i < sizeof isas / sizeof isas[0]; i++) {
        const struct codec *c = codec_get_isa(CODEC_E3M0, isas[i]);
        uint64_t got = c == NULL ? 0 : run_two_centred(c);

        if (c != NULL && got != CENTRED_BITS) {
            fail_msg("%s: %016llx", isas[i], (unsigned long long)got);
        }
    }
}

/* Eight members: two are alike, two are copies, one is far away, one has no
 * weight. Of three, as above, no two are ever alike. */
static void shares_of_eight_are_the_stored_bits(void **state)
{
    static const float weights[8] = {0.125F, 0.0625F, 0.125F, 0.25F,
                                     0.125F, 0.1875F, 0.125F, 0};
    static const float zeros[100];
    static float v[8][100], share[8];
    static struct centre c = {.n = 8, .weight = weights, .clip = 0.75F};
    uint64_t seed = 88, h = 0xcbf29ce484222325U;

    (void)state;
    for (unsigned i = 0; i < 800; i++) {
        v[i / 100][i % 100] = rng_float(&seed) - 0.25F;
    }
    for (unsigned i = 0; i < 100; i++) {
        v[2][i] = v[1][i] + 0.5F * v[2][i];
        v[4][i] = v[3][i];
        v[5][i] = 50 * v[5][i];
    }
    for (uint32_t k = 0; k < 8; k++) {
        c.length[k] = centre_apart(v[k], zeros, 100);
        for (uint32_t i = 0; i < k; i++) {
            c.apart[centre_pair(i, k)] = centre_apart(v[i], v[k], 100);
        }
    }
    centre_shares(&c, share);
    h = hash_floats(share, 8, h);
    if (h != SHARES_BITS) {
        fail_msg("%016llx", (unsigned long long)h);
    }
}

static void check_rule(unsigned id, const struct rule *rule, uint64_t want)
{
    static const char *const isas[] = {"portable", "avx2", "avx512"};

    for (size_t i = 0; i < sizeof isas / sizeof isas[0]; i++) {
        const struct codec *c = codec_get_isa(id, isas[i]);
        uint64_t got;

        if (c == NULL) {
            continue;
        }
        got = codec_adds(c) ? run_two_rounds(c, rule)
                            : run_two_butterflies(c, rule);
        if (got != want) {
            print_error("%s by %s: %016llx, stored %016llx\n", c->name, isas[i],
                        (unsigned long long)got, (unsigned long long)want);
        }
        assert_true(got == want);
    }
}

static void check(unsigned id, uint64_t want)
{
    check_rule(id, &(struct rule){.lr = 0.7F, .mu = 0.9F}, want);
}

static void two_rounds_in_fp32_give_the_stored_bits(void **state)
{
    (void)state;
    check(CODEC_FP32, 0x24f99f1f6d524438U);
}

static void two_rounds_in_bf16_give_the_stored_bits(void **state)
{
    (void)state;
    check(CODEC_BF16, 0x2da7b3420fbfabd5U);
}

static void two_rounds_in_fp16_give_the_stored_bits(void **state)
{
    (void)state;
    check(CODEC_FP16, 0x18671ce700da56afU);
}

static void two_rounds_in_int8_give_the_stored_bits(void **state)
{
    (void)state;
    check(CODEC_INT8, 0x4dcac493622e4dceU);
}

static void two_rounds_in_e3m0_give_the_stored_bits(void **state)
{
    (void)state;
    check(CODEC_E3M0, 0x62ef63a238c6a25cU);
}

static void two_rounds_in_int2_give_the_stored_bits(void **state)
{
    (void)state;
    check(CODEC_INT2, 0x1ea8f63f78d8c791U);
}

static void two_rounds_in_sparse_give_the_stored_bits(void **state)
{
    (void)state;
    check(CODEC_SPARSE, 0xd20168f5ef36f333U);
}

/* The outer steps of the presets that have Muon inside. */
static void two_rounds_of_muloco_give_the_stored_bits(void **state)
{
    (void)state;
    check_rule(CODEC_FP32, &(struct rule){.lr = 0.9F, .mu = 0.8F},
               0x021fafd3ac438232U);
}

static void two_rounds_of_muon_avg_give_the_stored_bits(void **state)
{
    (void)state;
    check_rule(CODEC_E3M0, &(struct rule){.lr = 1.0F}, 0x6bcaeb408e1d6a0cU);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(two_rounds_in_fp32_give_the_stored_bits),
        cmocka_unit_test(two_rounds_in_bf16_give_the_stored_bits),
        cmocka_unit_test(two_rounds_in_fp16_give_the_stored_bits),
        cmocka_unit_test(two_rounds_in_int8_give_the_stored_bits),
        cmocka_unit_test(two_rounds_in_e3m0_give_the_stored_bits),
        cmocka_unit_test(two_rounds_in_int2_give_the_stored_bits),
        cmocka_unit_test(two_rounds_in_sparse_give_the_stored_bits),
        cmocka_unit_test(two_rounds_of_muloco_give_the_stored_bits),
        cmocka_unit_test(two_rounds_of_muon_avg_give_the_stored_bits),
        cmocka_unit_test(a_centred_butterfly_gives_the_stored_bits),
        cmocka_unit_test(shares_of_eight_are_the_stored_bits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
