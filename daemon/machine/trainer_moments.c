/* trainer_moments.c - see trainer_moments.h. */
#include "daemon/machine/trainer_moments.h"

#include <stdlib.h>

#include "proto/base/err.h"

int trainer_moments_set(struct replica *r,
                        const uint8_t *moments,
                        uint64_t steps)
{
    float *x = malloc(2 * r->n * sizeof *x);
    int rv = x == NULL ? LOCO_ENOMEM
                       : codec_get(CODEC_BF16)->decode(x, moments, 2 * r->n);

    if (rv == 0) {
        replica_set_moments(r, x, x + r->n, steps);
    }
    free(x);
    return rv;
}

void trainer_moments_end(const struct trainer_options *opt,
                         const struct replica *r,
                         struct hash32 *ends)
{
    const struct offer_cut cut = {
        .codec = codec_get(CODEC_BF16),
        .block = opt->moments_block,
        .elements = 2 * r->n,
    };
    struct offer o;
    float *x;

    if (cut.block == 0 || !r->have_optimizer) {
        return;
    }
    x = malloc(cut.elements * sizeof *x);
    if (x == NULL) {
        return;
    }
    if (replica_moments(r, x) == 0 && offer_make(&o, &cut, x) == 0) {
        o.round = r->round + 2;
        *ends = *offer_root(&o);
        opt->take_moments(opt->self, &o, r->optimizer.t, true);
    }
    free(x);
}
