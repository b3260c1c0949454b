/* batch_size.h - how large a batch the noise of the gradient asks for.
 *
 * AdLoCo (arXiv:2508.18182) grows the batch when the noise of a batch gradient
 * is no longer small beside the gradient (algorithms page 10.2, which corrects
 * the paper). With per-sample gradients f_i, batch mean g:
 *
 *     norm test       b' = ceil( trace cov(f) / (eta^2 |g|^2) )
 *     inner product   b' = ceil( Var(<f_i, g>) / (vartheta^2 |g|^4) )
 *     augmented       max of that and
 *                     ceil( trace cov(f_i - <f_i, g> / |g|^2 g) / (nu^2 |g|^2))
 *
 * Per-sample gradients are never made. n micro-batches of s samples with means
 * g_j give unbiased estimates from |g_j|^2 and <g_j, g> alone: the variance of
 * a mean of s samples is 1/s of one sample's.
 *
 * The norm test is the one of the paper's algorithm 3, and the default; its
 * section 3.3.2 calls the augmented test impractical.
 *
 * The norms can be summed while the backward pass makes each layer's gradient,
 * so nothing is stored. The inner products need g before it exists: with n = 2
 * they follow from |g_1|^2, |g_2|^2, |g|^2; else the caller keeps the gradients
 * of one step per round.
 *
 * Pure; double precision.
 */
#ifndef LOCO_TRAIN_SYNC_BATCH_SIZE_H
#define LOCO_TRAIN_SYNC_BATCH_SIZE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum batch_test {
    BATCH_FIXED,
    BATCH_NORM,
    BATCH_INNER_PRODUCT,
    BATCH_AUGMENTED,
    BATCH_TEST_COUNT
};

struct batch_rule {
    enum batch_test test;
    double eta, vartheta, nu;
    uint64_t cap;  /* largest request */
    double growth; /* a request grows at most by this factor a
                      round, so that one small |g| does not explode
                      it; 0: no limit */
};

/* The paper's constants (Table 1), and our own: a request of at most BATCH_CAP
 * times what fits in memory, and BATCH_GROWTH times the last one. */
#define BATCH_ETA      0.8
#define BATCH_VARTHETA 0.01
#define BATCH_NU       0.3
#define BATCH_CAP      64
#define BATCH_GROWTH   2.0
#define BATCH_MOST_MAX 4096 /* sequences in a micro-batch */

/* What one accumulated step shows. */
struct batch_sample {
    uint32_t n;        /* micro-batches; fewer than 2 tell nothing */
    uint32_t s;        /* samples in each */
    double norm2;      /* |g|^2 of the mean of all */
    double sum_norm2;  /* sum |g_j|^2 */
    bool has_inner;    /* the two below are known */
    double sum_inner2; /* sum <g_j, g>^2; sum <g_j, g> is n |g|^2 */
};

/* The two of n = 2 halves; inner products derived. */
struct batch_sample batch_sample_of_halves(uint32_t s,
                                           double norm2_first,
                                           double norm2_second,
                                           double norm2_mean);

/* The same where norms2 has |.|^2 of the sums of gradients over `positions` in
 * each half, and of the sum of both. */
struct batch_sample
batch_sample_of_sums(uint32_t s, const double norms2[3], double positions);

/* The same from the gradients of both halves, each a sum over `positions` in s
 * sequences; `second` (n) becomes the sum of both. */
struct batch_sample batch_sample_of_gradients(
    const float *first, float *second, size_t n, uint32_t s, double positions);

/* trace cov(f): the variance of one sample's gradient. */
double batch_variance(const struct batch_sample *b);

/* Unrounded b' of one test; 0 where the sample tells nothing. */
double batch_norm_ratio(const struct batch_sample *b, double eta);
double batch_inner_ratio(const struct batch_sample *b, double vartheta);
double batch_ortho_ratio(const struct batch_sample *b, double nu);

/* The next request: at least `now`, never above the cap. */
uint64_t batch_request(const struct batch_rule *rule,
                       const struct batch_sample *b,
                       uint64_t now);

/* How a request is run (10.3, switch mode): above multiple * most the rest is
 * accumulated, else it is cut to one micro-batch of at most `most`. */
struct batch_shape {
    uint64_t micro, accumulate;
};
struct batch_shape
batch_switch(uint64_t request, uint64_t most, uint64_t multiple);

/* Sequences of a step for such a request, with the paper's multiple of 2; and
 * of a step that tests the noise, whose halves are equal. */
uint32_t batch_rows(uint64_t request, uint64_t most);
uint32_t batch_rows_tested(uint32_t rows);

#endif
