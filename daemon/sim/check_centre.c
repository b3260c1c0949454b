/* check_centre.c - what each member counts in a robust mean, a second time.
 *
 * The steps of PROTOCOL.md 16 with its names, over all members and the whole
 * table of distances, and without a line of train/sync/codec/centre.c. Where
 * the two differ in a bit, the replay of a commit (check_replay.c) says so.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/sim/check_internal.h"
#include "daemon/sim/sim_internal.h"
#include "daemon/sim/world/internal.h"

/* The lower median of the distances of members with tokens, by counting. */
double check_median(const double *q, const float *w, uint32_t n)
{
    double median = 0;
    uint32_t count = 0, below;

    for (uint32_t k = 0; k < n; k++) {
        count += w[k] > 0;
    }
    for (uint32_t k = 0; k < n; k++) {
        below = 0;
        for (uint32_t i = 0; i < n; i++) {
            below += w[i] > 0 && (q[i] < q[k] || (q[i] == q[k] && i < k));
        }
        median = w[k] > 0 && below == (count - 1) / 2 ? q[k] : median;
    }
    return median;
}

struct crowd {
    uint32_t n;
    const float *w;
    double z[VIEW_MEMBERS_MAX], c[VIEW_MEMBERS_MAX];
    double d[VIEW_MEMBERS_MAX][VIEW_MEMBERS_MAX];
    double m[VIEW_MEMBERS_MAX], u[VIEW_MEMBERS_MAX], s[VIEW_MEMBERS_MAX];
};

static double apart(const float *x, const float *y, uint64_t n)
{
    double p[8] = {0};

    for (uint64_t i = 0; i < n; i++) {
        double e = (double)x[i] - (double)y[i];

        p[i % 8] += e * e;
    }
    return ((p[0] + p[1]) + (p[2] + p[3])) + ((p[4] + p[5]) + (p[6] + p[7]));
}

/* z(k): the squared length; c(k): what is left of it. Distances follow. */
static void cut(struct crowd *c, const struct check_crowd *of)
{
    double most;

    for (uint32_t k = 0; k < c->n; k++) {
        for (uint64_t i = 0; i < of->len; i++) {
            double x = (double)of->in[k * of->stride + i];

            c->z[k] += x * x;
        }
    }
    most = check_median(c->z, c->w, c->n);
    for (uint32_t k = 0; k < c->n; k++) {
        bool is_long = c->z[k] > most && c->z[k] <= 16 * most;

        c->c[k] = is_long ? sqrt(most / c->z[k]) : 1;
    }
    for (uint32_t k = 0; k < c->n; k++) {
        for (uint32_t i = 0; i < c->n; i++) {
            double both =
                c->c[k] * c->c[k] * c->z[k] + c->c[i] * c->c[i] * c->z[i];

            if (i != k && (c->c[k] < 1 || c->c[i] < 1)) {
                c->d[k][i] = fmax(both - c->c[k] * c->c[i] *
                                             (c->z[k] + c->z[i] - c->d[k][i]),
                                  0);
            }
        }
    }
}

/* m(k): the median of the distances to others with tokens. */
static void measure(struct crowd *c)
{
    for (uint32_t k = 0; k < c->n; k++) {
        float others[VIEW_MEMBERS_MAX];

        memcpy(others, c->w, c->n * sizeof *others);
        others[k] = 0;
        c->m[k] = check_median(c->d[k], others, c->n);
    }
}

/* u(k): the weight that is left where others say the same. */
static void share_voices(struct crowd *c)
{
    for (uint32_t k = 0; k < c->n; k++) {
        double voices = 1;

        for (uint32_t i = 0; i < c->n; i++) {
            double least = fmin(c->m[k], c->m[i]), d = 1.25 * c->d[k][i];

            if (i == k || !(c->w[i] > 0)) {
                continue;
            }
            if (d == 0) {
                voices += 1;
            } else if (d < least) {
                voices += 1 - d / least;
            }
        }
        c->u[k] = (double)c->w[k] / voices;
    }
}

/* s moves once; r2 is the squared radius. */
static void turn(struct crowd *c, double r2)
{
    double far[VIEW_MEMBERS_MAX], all = 0, sum = 0;

    for (uint32_t k = 0; k < c->n; k++) {
        far[k] = 0;
        for (uint32_t i = 0; i < c->n; i++) {
            far[k] += c->s[i] * c->d[k][i];
        }
        all += c->s[k] * far[k];
    }
    for (uint32_t k = 0; k < c->n; k++) {
        double q = far[k] - all / 2;

        c->s[k] = q > r2 ? c->u[k] * (r2 / q) : c->u[k];
        sum += c->s[k];
    }
    for (uint32_t k = 0; k < c->n; k++) {
        c->s[k] /= sum;
    }
}

void check_centre(const struct check_crowd *c, float *w)
{
    struct crowd *all = world_alloc(sizeof *all);
    uint32_t first = c->n;
    double r2;

    *all = (struct crowd){.n = c->n, .w = w};
    for (uint32_t k = 0; k < c->n; k++) {
        for (uint32_t i = 0; i < c->n; i++) {
            if (w[k] > 0 && w[i] > 0) {
                all->d[k][i] =
                    apart(c->in + k * c->stride, c->in + i * c->stride, c->len);
            }
        }
    }
    cut(all, c);
    measure(all);
    share_voices(all);
    for (uint32_t k = 0; k < c->n; k++) {
        if (w[k] > 0 && (first == c->n || all->m[k] < all->m[first])) {
            first = k;
        }
    }
    r2 = c->clip * c->clip * (check_median(all->m, w, c->n) / 2);
    if (first < c->n) {
        all->s[first] = 1;
        for (int i = 0; i < CODEC_CENTRE_TURNS; i++) {
            turn(all, r2);
        }
        for (uint32_t k = 0; k < c->n; k++) {
            w[k] = (float)(all->s[k] * all->c[k]);
        }
    }
    free(all);
}
