/* pair_mean.c - see pair_mean.h. */
#include "train/sync/pair_mean.h"

/* Elements at a time: a multiple of every codec's block. */
#define PIECE ((size_t)CODEC_FP16_BLOCK)

void pair_mean_step(float *mean, const float *low, const float *high, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        float a = 0.5F * low[i];
        float b = 0.5F * high[i];

        mean[i] = a + b;
    }
}

void pair_mean_anchor(float *mean,
                      const float *phi,
                      const float *own,
                      const float *theirs,
                      size_t n)
{
    for (size_t i = 0; i < n; i++) {
        float d = theirs[i] - own[i];
        float half = 0.5F * d;

        mean[i] = phi[i] + half;
    }
}

/* What the wire makes of x, and what came; both decoded. */
static int decode_both(const struct codec *codec,
                       float *own,
                       float *theirs,
                       const float *x,
                       const uint8_t *wire,
                       size_t n)
{
    uint8_t encoded[sizeof(float) * PIECE];
    int rv = codec->encode(encoded, x, n, 1.0F);

    rv = rv != 0 ? rv : codec->decode(own, encoded, n);
    return rv != 0 ? rv : codec->decode(theirs, wire, n);
}

/* The same for n <= PIECE elements; the partner's begin at wire[]. */
static int step_piece(const struct pair_mean *p,
                      const struct rule *rule,
                      const struct outer_state *out,
                      const struct outer_state *in,
                      const float *g,
                      const uint8_t *const wire[2],
                      size_t n)
{
    float mean[PIECE], own[PIECE], theirs[PIECE];
    int rv = decode_both(p->codec, own, theirs, g, wire[1], n);

    if (rv != 0) {
        return rv;
    }
    pair_mean_step(mean, p->first ? own : theirs, p->first ? theirs : own, n);
    rv = decode_both(p->codec, own, theirs, in->phi, wire[0], n);
    if (rv != 0) {
        return rv;
    }
    pair_mean_anchor(theirs, in->phi, own, theirs, n);
    return rule_apply_pulled(rule, out, in, mean, theirs, n);
}

int pair_mean_apply(const struct pair_mean *p,
                    const struct rule *rule,
                    const struct outer_state *out,
                    const struct outer_state *in,
                    const float *g,
                    size_t n)
{
    if (p->wire == NULL) {
        return rule_apply(rule, out, in, g, n);
    }
    for (size_t at = 0; at < n; at += PIECE) {
        const struct outer_state to = {out->phi + at, out->m + at};
        const struct outer_state from = {in->phi + at, in->m + at};
        const uint8_t *anchor = p->wire + p->codec->bytes(at);
        const uint8_t *const wire[2] = {anchor, anchor + p->codec->bytes(n)};
        size_t len = n - at < PIECE ? n - at : PIECE;
        int rv = step_piece(p, rule, &to, &from, g + at, wire, len);

        if (rv != 0) {
            return rv;
        }
    }
    return 0;
}
