/* reduce.c - see reduce.h. */
#include "daemon/jobs/reduce.h"

#include <string.h>

#include "p2p/exchange/butterfly.h"
#include "proto/base/err.h"

static float *at(float *vector, const struct segment *s)
{
    return vector == NULL ? NULL : vector + s->offset;
}

static struct codec_op op_of(const struct reduce_vectors *v,
                             const struct segment *s)
{
    return (struct codec_op){
        .own = v->own + s->offset,
        .n = s->len,
        .scale = (float)s->scale,
        .next = at(v->error, s),
    };
}

/* From the unit of the mean to that of the own contribution. */
static void unscale(const struct codec_op *op)
{
    for (size_t i = 0; op->next != NULL && i < op->n; i++) {
        op->next[i] = op->scale > 0 ? op->next[i] / op->scale : 0;
    }
}

int reduce_encode(const struct reduce *r,
                  const struct reduce_vectors *v,
                  const struct segment *s,
                  uint8_t *dst)
{
    struct codec_op op = op_of(v, s);
    int rv = r->codec->encode_op(dst, &op);

    unscale(&op);
    return rv;
}

int reduce_add(const struct reduce *r,
               const struct reduce_vectors *v,
               const struct segment *s,
               uint8_t *dst,
               const uint8_t *src)
{
    struct codec_op op = op_of(v, s);
    int rv;

    op.result = s->final ? at(v->result, s) : NULL;
    rv = r->codec->add_op(dst, src, &op);
    unscale(&op);
    return rv;
}

uint8_t *reduce_lane(struct reduce *r, const struct segment *s)
{
    return s->len <= r->segment_elements &&
                   lanes_fit(&r->lanes, r->codec, r->segment_elements, s->lanes,
                             butterfly_slots(s->lanes)) == 0
               ? lanes_at(&r->lanes, s->lane, s->slot)
               : NULL;
}

int reduce_keep(struct reduce *r, const struct segment *s, const uint8_t *src)
{
    uint8_t *to = reduce_lane(r, s);

    if (to == NULL) {
        return LOCO_EBUSY;
    }
    if (src != to) {
        memcpy(to, src, r->codec->bytes(s->len));
    }
    lanes_keep(&r->lanes, s->attempt, s->lane, s->slot, s->len,
               (float)s->scale);
    return 0;
}

int reduce_usable(const struct reduce *r,
                  const struct segment *s,
                  const uint8_t *src)
{
    float x[CODEC_BLOCK_MAX];
    uint32_t n;
    int rv = 0;

    for (uint32_t at = 0; at < s->len && rv == 0; at += n) {
        n = s->len - at < CODEC_BLOCK_MAX ? s->len - at : CODEC_BLOCK_MAX;
        rv = r->codec->decode(x, src + r->codec->bytes(at), n);
    }
    return rv;
}

/* Where that fails nothing of the segment counts. */
static void see(struct reduce *r, const struct segment *s, const uint8_t *dst)
{
    const uint8_t *lane[CODEC_TERMS_MAX];
    const struct stray_sum sum = {
        .attempt = s->attempt,
        .offset = r->before + s->offset,
        .n = s->len,
        .lanes = s->lanes,
        .lane = lane,
        .sum = dst,
    };

    for (uint32_t i = 0; i < s->lanes; i++) {
        lane[i] = lanes_at(&r->lanes, i, s->slot);
    }
    (void)strays_see(r->strays, r->codec, &sum);
}

int reduce_sum(struct reduce *r,
               const struct reduce_vectors *v,
               struct segment *s,
               uint8_t *dst)
{
    struct lanes_sum sum = {
        .attempt = s->attempt,
        .lane = s->lane,
        .slot = s->slot,
        .n = s->len,
        .own = v->own + s->offset,
        .encoded = v->encoded,
        .raw = r->raw,
        .scale = (float)s->scale,
        .clip = r->clip,
        .centred = r->centred,
        .dst = dst,
        .next = at(v->error, s),
        .result = at(v->result, s),
    };
    int rv = lanes_sum(&r->lanes, &sum);

    if (rv == 0 && r->strays != NULL) {
        see(r, s, dst);
    }
    s->lane = (uint8_t)sum.bad;
    return rv;
}
