/* segments.c - see segments.h. */
#include "daemon/jobs/segments.h"

#include "daemon/jobs/pieces.h"
#include "proto/base/err.h"

static bool in_elements(const struct segment *s)
{
    return s->buffer == BUFFER_RING || s->buffer == BUFFER_REDUCED ||
           s->buffer == BUFFER_OFFER || s->buffer == BUFFER_MOMENTS ||
           segment_is_pair(s);
}

/* Moments have a form of their own: what a wire of few bits leaves of them is
 * of no use to who goes on from there. */
static const struct codec *codec_of(const struct codec *c,
                                    const struct segment *s)
{
    return s->buffer == BUFFER_MOMENTS ? codec_get(CODEC_BF16) : c;
}

struct offer_cut segment_cut(const struct run_terms *t,
                             const struct codec *c,
                             const struct segment *s)
{
    return (struct offer_cut){
        .codec = codec_of(c, s),
        .block = t->block,
        .elements = s->buffer == BUFFER_MOMENTS
                        ? 2 * t->n_params
                        : terms_elements(t, segment_round(s)),
    };
}

size_t segment_wire_len(const struct run_terms *t,
                        const struct codec *c,
                        const struct segment *s)
{
    size_t len = in_elements(s) ? codec_of(c, s)->bytes(s->len) : s->len;

    if (s->proven) {
        const struct offer_cut cut = segment_cut(t, c, s);

        len += offer_proof_bytes(&cut, s);
    }
    return len;
}

/* Elements or bytes of the buffer; 0: there is no such buffer. */
static uint64_t size_of(const struct run_terms *t, const struct segment *s)
{
    switch (s->buffer) {
    case BUFFER_RING:
        return terms_elements(t, attempt_round(s->attempt));
    case BUFFER_REDUCED:
    case BUFFER_OFFER:
    case BUFFER_ANCHOR:
    case BUFFER_STEP:
        return terms_elements(t, s->index);
    case BUFFER_MOMENTS:
        return t->audits_work ? 2 * t->n_params : 0;
    case BUFFER_STATE:
        return t->state_bytes;
    case BUFFER_SHARD:
        return s->index < t->n_shards ? t->shards[s->index].bytes : 0;
    case BUFFER_STATE_LEAVES:
    case BUFFER_SHARD_LEAVES:
        return pieces_list_bytes(t, s->buffer, s->index);
    case BUFFER_FORTH:
    case BUFFER_BACK:
    case BUFFER_KIND_COUNT:
        break;
    }
    return 0;
}

int segment_place(const struct run_terms *t,
                  const struct codec *c,
                  const struct segment *s,
                  size_t *at)
{
    uint64_t size = size_of(t, s);

    if (s->len == 0 || s->offset > size || s->len > size - s->offset ||
        (in_elements(s) && s->offset % codec_of(c, s)->block != 0)) {
        return LOCO_ERANGE;
    }
    *at = in_elements(s) ? codec_of(c, s)->bytes(s->offset) : (size_t)s->offset;
    return 0;
}
