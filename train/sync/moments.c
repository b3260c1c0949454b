/* moments.c - see moments.h. */
#include "train/sync/moments.h"

#include <math.h>

#define STEP_NOTHING 0.01
#define U_NOTHING    1e-15 /* alone it has no scale: what is rounded away */

struct sums {
    double xx, rr, xr;
};

static void add(struct sums *s, double x, double r)
{
    s->xx += x * x;
    s->rr += r * r;
    s->xr += x * r;
}

static double apart(const struct sums *s, uint64_t n, double nothing)
{
    double between = fmax(s->xx + s->rr - 2 * s->xr, 0);
    double d =
        between / (sqrt(s->xx) * sqrt(s->rr) + (double)n * nothing * nothing);

    return isfinite(s->xx) ? d : INFINITY;
}

double moments_apart(const struct moments_part *x,
                     const struct moments_part *r,
                     uint64_t n,
                     double eps)
{
    struct sums step = {0}, v = {0}, bare = {0};

    for (uint64_t i = 0; i < n; i++) {
        double xu = (double)x->u[i], xv = (double)x->v[i];
        double ru = (double)r->u[i], rv = (double)r->v[i];

        add(&v, xv + eps * eps, rv + eps * eps);
        if (xv == 0 && rv == 0) {
            add(&bare, xu, ru);
        } else {
            add(&step, xu / (sqrt(xv) + eps), ru / (sqrt(rv) + eps));
        }
    }
    if (!isfinite(step.rr) || !isfinite(v.rr) || !isfinite(bare.rr)) {
        return NAN;
    }
    return fmax(apart(&step, n, STEP_NOTHING),
                fmax(apart(&v, n, eps * eps), apart(&bare, n, U_NOTHING)));
}
