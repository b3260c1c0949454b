/* batch_size.c - see batch_size.h. */
#include "train/sync/batch_size.h"

#include <math.h>

/* Below this |g|^2 a ratio to it is noise. */
#define NORM2_MIN 1e-12
/* What a request can be, whatever a ratio says: fits a double exactly. */
#define REQUEST_MAX 0x1p53

struct batch_sample batch_sample_of_halves(uint32_t s,
                                           double norm2_first,
                                           double norm2_second,
                                           double norm2_mean)
{
    /* <g1, g2> from |g1 + g2|^2 = |2 g|^2. */
    double cross = (4.0 * norm2_mean - norm2_first - norm2_second) / 2.0;
    double a = (norm2_first + cross) / 2.0;
    double b = (norm2_second + cross) / 2.0;
    struct batch_sample out = {
        .n = 2,
        .s = s,
        .norm2 = norm2_mean,
        .sum_norm2 = norm2_first + norm2_second,
        .has_inner = true,
        .sum_inner2 = a * a + b * b,
    };

    return out;
}

static double square_norm(const float *x, size_t n)
{
    double sum = 0.0;

    for (size_t k = 0; k < n; k++) {
        sum += (double)x[k] * (double)x[k];
    }
    return sum;
}

struct batch_sample
batch_sample_of_sums(uint32_t s, const double norms2[3], double positions)
{
    double square = positions * positions;

    return batch_sample_of_halves(s, norms2[0] / square, norms2[1] / square,
                                  norms2[2] / square / 4.0);
}

struct batch_sample batch_sample_of_gradients(
    const float *first, float *second, size_t n, uint32_t s, double positions)
{
    double norms2[3] = {square_norm(first, n), square_norm(second, n), 0.0};

    for (size_t k = 0; k < n; k++) {
        second[k] = second[k] + first[k];
    }
    norms2[2] = square_norm(second, n);
    return batch_sample_of_sums(s, norms2, positions);
}

static double at_least_zero(double x)
{
    return x > 0.0 ? x : 0.0;
}

double batch_variance(const struct batch_sample *b)
{
    double n = (double)b->n;

    if (b->n < 2) {
        return 0.0;
    }
    return at_least_zero((double)b->s / (n - 1.0) *
                         (b->sum_norm2 - n * b->norm2));
}

static bool tells(const struct batch_sample *b)
{
    return b->n >= 2 && b->norm2 >= NORM2_MIN && isfinite(b->sum_norm2);
}

double batch_norm_ratio(const struct batch_sample *b, double eta)
{
    return tells(b) ? batch_variance(b) / (eta * eta * b->norm2) : 0.0;
}

double batch_inner_ratio(const struct batch_sample *b, double vartheta)
{
    double n = (double)b->n, mean = b->norm2, variance;

    if (!tells(b) || !b->has_inner) {
        return 0.0;
    }
    variance = (double)b->s / (n - 1.0) * (b->sum_inner2 - n * mean * mean);
    return at_least_zero(variance) /
           (vartheta * vartheta * b->norm2 * b->norm2);
}

double batch_ortho_ratio(const struct batch_sample *b, double nu)
{
    double n = (double)b->n, variance;

    if (!tells(b) || !b->has_inner) {
        return 0.0;
    }
    /* The parts orthogonal to g have mean 0. */
    variance =
        (double)b->s / (n - 1.0) * (b->sum_norm2 - b->sum_inner2 / b->norm2);
    return at_least_zero(variance) / (nu * nu * b->norm2);
}

static double larger(double a, double b)
{
    return a > b ? a : b;
}

uint64_t batch_request(const struct batch_rule *rule,
                       const struct batch_sample *b,
                       uint64_t now)
{
    double want = 0.0;
    uint64_t most = rule->cap > now ? rule->cap : now;
    uint64_t request;

    switch (rule->test) {
    case BATCH_NORM:
        want = batch_norm_ratio(b, rule->eta);
        break;
    case BATCH_INNER_PRODUCT:
        want = batch_inner_ratio(b, rule->vartheta);
        break;
    case BATCH_AUGMENTED:
        want = larger(batch_inner_ratio(b, rule->vartheta),
                      batch_ortho_ratio(b, rule->nu));
        break;
    default:
        return now;
    }
    want = ceil(want);
    if (rule->growth > 0.0 && want > (double)now * rule->growth) {
        want = floor((double)now * rule->growth);
    }
    if (!(want > (double)now)) {
        return now;
    }
    request = want < REQUEST_MAX ? (uint64_t)want : (uint64_t)REQUEST_MAX;
    return request < most ? request : most;
}

struct batch_shape
batch_switch(uint64_t request, uint64_t most, uint64_t multiple)
{
    struct batch_shape s = {request < most ? request : most, 1};

    if (request > multiple * most) {
        s.micro = most;
        s.accumulate = (request + most - 1) / most;
    }
    return s;
}

uint32_t batch_rows(uint64_t request, uint64_t most)
{
    struct batch_shape s = batch_switch(request, most, 2);

    return (uint32_t)(s.micro * s.accumulate);
}

uint32_t batch_rows_tested(uint32_t rows)
{
    return rows < 2 ? 2 : rows / 2 * 2;
}
