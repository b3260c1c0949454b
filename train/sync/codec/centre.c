/* centre.c - see centre.h.
 *
 * A robust mean of n vectors of which less than half are lies. It knows
 * nothing but their lengths and the squared distances D(i, j) between them, so
 * that its turns cost nothing: the vectors are read for these, n (n - 1) / 2
 * passes over a block, and once more for the sum.
 *
 * 0. *Length.* A term that is longer than the lower median of all counts as
 * long as that, and distances are those of terms that are cut so. A lie that
 * adds to what all have learnt, the outer step is too long then in each round,
 * has to be long; three of eight that do it move the sum by 0.2 honest spreads
 * in place of 0.4, and a run of 60 rounds ends 1 % higher in place of 14
 *    (tests/bench). Terms LONG times as long as most are left to 3.
 * 1. *Reach.* m(i) is the lower median of D(i, j) over the others: an honest
 *    member has as many honest others as that. The typical one is the lower
 *    median m of all m(i). Honest members differ from their mean at right
 *    angles, so they are sqrt(m / 2) away from it.
 * 2. *One voice for those who say the same.* Two terms are alike by
 *    a(i, j) = 1 - 1.25 D(i, j) / min(m(i), m(j)), at least 0: copies by 1, two
 *    honest ones by about 0; without the 1.25 those of little noise shared
 *    their voice. The weight of term i is divided by 1 plus all
 *    a(i, j). Liars gain by saying the same, the mean then goes where they are;
 *    so they count as one, and copies of an honest member count as that member
 *    (compare FoolsGold, Fung et al. 2018, arXiv:1808.04866).
 * 3. *A centre.* It begins at the term with the least m(i) and moves
 *    CODEC_CENTRE_TURNS times to the mean in which a term at squared distance
 *    r > R = clip^2 m / 2 counts R / r of its weight: what is far away pulls
 *    the less, the farther it is. Centred clipping (Karimireddy et al. 2021,
 *    arXiv:2012.10333) has sqrt(R / r): there every lie pulls with all its
 *    might, however far away it is. A radius below that of honest members would
 *    draw the centre to the one with most weight, as it is nearest then.
 *
 * The centre is the sum of s(i) v(i), and all s(i) add up to 1, so that its
 * squared distance to term k is f(k) - g / 2, with f(k) the sum of s(j) D(k, j)
 * over j and g the sum of s(k) f(k) over k.
 *
 * What it does not do: liars that differ from each other as honest members do
 * and share a small push are not to be told from honest ones by distances.
 * Three of eight move the centre so by 0.4 honest spreads (tests/bench).
 *
 * Only products, quotients, sums and differences of fp64 in the order written
 * here, rounded to nearest even.
 */
#include "train/sync/codec/centre.h"

#include <math.h>

#define LANES 8
#define NEAR  1.25
#define LONG  4.0

double centre_apart(const float *x, const float *y, size_t n)
{
    double sum[LANES] = {0};
    size_t i = 0;

    for (; i + LANES <= n; i += LANES) {
        for (size_t k = 0; k < LANES; k++) {
            double d = (double)x[i + k] - (double)y[i + k];

            sum[k] += d * d;
        }
    }
    for (size_t k = 0; i + k < n; k++) {
        double d = (double)x[i + k] - (double)y[i + k];

        sum[k] += d * d;
    }
    return ((sum[0] + sum[1]) + (sum[2] + sum[3])) +
           ((sum[4] + sum[5]) + (sum[6] + sum[7]));
}

/* The terms with weight, of which there are n; term[k] are their numbers. */
struct voters {
    const struct centre *centre;
    uint32_t n, term[CODEC_TERMS_MAX];
    double cut[CODEC_TERMS_MAX];    /* what is left of its length */
    double reach[CODEC_TERMS_MAX];  /* squared */
    double weight[CODEC_TERMS_MAX]; /* of voices */
    double share[CODEC_TERMS_MAX];  /* the centre */
};

/* Squared distance of two terms that are cut: with a and b for what is left of
 * x and y, |a x - b y|^2 = a^2 |x|^2 + b^2 |y|^2 - a b (|x|^2 + |y|^2 - |x -
 * y|^2).
 */
static double apart(const struct voters *v, uint32_t i, uint32_t k)
{
    uint32_t a = v->term[i], b = v->term[k];
    double x = v->centre->length[a], y = v->centre->length[b], d, sum;

    if (a == b) {
        return 0;
    }
    d = v->centre->apart[a < b ? centre_pair(a, b) : centre_pair(b, a)];
    if (v->cut[i] >= 1 && v->cut[k] >= 1) {
        return d;
    }
    sum = v->cut[i] * v->cut[i] * x + v->cut[k] * v->cut[k] * y;
    d = sum - v->cut[i] * v->cut[k] * (x + y - d);
    return d > 0 ? d : 0;
}

double centre_median(double *x, uint32_t n)
{
    for (uint32_t i = 1; i < n; i++) {
        double one = x[i];
        uint32_t k = i;

        for (; k > 0 && x[k - 1] > one; k--) {
            x[k] = x[k - 1];
        }
        x[k] = one;
    }
    return n == 0 ? 0 : x[(n - 1) / 2];
}

/* No term counts longer than most are; but LONG times as long is far away
 * (3.) as it is, and products of its length would lose all digits. */
static void fill_cut(struct voters *v)
{
    double length[CODEC_TERMS_MAX], most;

    for (uint32_t i = 0; i < v->n; i++) {
        length[i] = v->centre->length[v->term[i]];
    }
    most = centre_median(length, v->n);
    for (uint32_t i = 0; i < v->n; i++) {
        double own = v->centre->length[v->term[i]];

        v->cut[i] =
            own > most && own <= LONG * LONG * most ? sqrt(most / own) : 1;
    }
}

static void fill_reach(struct voters *v)
{
    for (uint32_t i = 0; i < v->n; i++) {
        double others[CODEC_TERMS_MAX];
        uint32_t n = 0;

        for (uint32_t k = 0; k < v->n; k++) {
            if (k != i) {
                others[n++] = apart(v, i, k);
            }
        }
        v->reach[i] = centre_median(others, n);
    }
}

/* From 0, strangers, to 1, copies. */
static double alike(const struct voters *v, uint32_t i, uint32_t k)
{
    double least = v->reach[i] < v->reach[k] ? v->reach[i] : v->reach[k];
    double d = NEAR * apart(v, i, k);

    if (d < least) {
        return 1 - d / least;
    }
    return d > 0 ? 0 : 1;
}

static void fill_weights(struct voters *v)
{
    for (uint32_t i = 0; i < v->n; i++) {
        double voices = 1;

        for (uint32_t k = 0; k < v->n; k++) {
            voices += k == i ? 0 : alike(v, i, k);
        }
        v->weight[i] = (double)v->centre->weight[v->term[i]] / voices;
    }
}

/* The centre is where the term with the least reach is. */
static void begin(struct voters *v)
{
    uint32_t best = 0;

    for (uint32_t i = 0; i < v->n; i++) {
        v->share[i] = 0;
        best = v->reach[i] < v->reach[best] ? i : best;
    }
    v->share[best] = 1;
}

static void move(struct voters *v, double radius)
{
    double to[CODEC_TERMS_MAX], inner = 0, total = 0;

    for (uint32_t i = 0; i < v->n; i++) {
        to[i] = 0;
        for (uint32_t k = 0; k < v->n; k++) {
            to[i] += v->share[k] * apart(v, i, k);
        }
        inner += v->share[i] * to[i];
    }
    for (uint32_t i = 0; i < v->n; i++) {
        double r = to[i] - inner / 2;

        v->share[i] = r > radius ? v->weight[i] * (radius / r) : v->weight[i];
        total += v->share[i];
    }
    for (uint32_t i = 0; i < v->n; i++) {
        v->share[i] = v->share[i] / total;
    }
}

void centre_shares(const struct centre *c, float *share)
{
    struct voters v = {.centre = c};
    double sorted[CODEC_TERMS_MAX], radius;

    for (uint32_t i = 0; i < c->n; i++) {
        share[i] = 0;
        if (c->weight[i] > 0) {
            v.term[v.n++] = i;
        }
    }
    if (v.n == 0) {
        return;
    }
    fill_cut(&v);
    fill_reach(&v);
    fill_weights(&v);
    for (uint32_t i = 0; i < v.n; i++) {
        sorted[i] = v.reach[i];
    }
    radius =
        (double)c->clip * (double)c->clip * (centre_median(sorted, v.n) / 2);
    begin(&v);
    for (int turn = 0; turn < CODEC_CENTRE_TURNS; turn++) {
        move(&v, radius);
    }
    for (uint32_t i = 0; i < v.n; i++) {
        share[v.term[i]] = (float)(v.share[i] * v.cut[i]);
    }
}
