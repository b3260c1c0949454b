/* wire.c - averages as the network makes them, roundings included.
 *
 * Ring, where partial sums may travel: chunk c of n begins at member c, which
 * encodes its weighted values; each next one decodes, adds its own in fp32 and
 * encodes; all decode the final bytes. Butterfly, for the other types and where
 * it was asked for: each part is encoded once, the owner decodes all, sums in
 * fp32 in member order (codec_sum), encodes once, and all decode that. One
 * member alone encodes once. Error feedback is the member's: what the rounding
 * at its hop took goes into its next contribution, and the owner's has what the
 * encoding of its slice of the sum took, too (sync/codec/lanes.h). Where
 * lanes_raw() says so, the owner's own contribution is not encoded.
 */
#include <string.h>

#include "train/lab/internal.h"
#include "train/sync/codec/lanes.h"

static const struct codec *codec_of(const struct lab *lab)
{
    return codec_get(lab->opt.method.wire);
}

uint64_t lab_wire_bytes(const struct lab *lab, uint64_t len)
{
    return codec_of(lab)->bytes((size_t)len);
}

static double weight_sum(const struct lab_part *parts, uint32_t n)
{
    double sum = 0.0;

    for (uint32_t i = 0; i < n; i++) {
        sum += parts[i].weight;
    }
    return sum;
}

/* Elements [begin, end) of chunk c, cut at the codec's blocks. */
static void chunk_of(uint64_t len,
                     uint32_t block,
                     uint32_t n,
                     uint32_t c,
                     uint64_t *begin,
                     uint64_t *end)
{
    uint64_t blocks = (len + block - 1) / block;
    uint64_t per = (blocks + n - 1) / n * block;

    *begin = (uint64_t)c * per < len ? (uint64_t)c * per : len;
    *end = *begin + per < len ? *begin + per : len;
}

static int ring(struct lab *lab,
                const struct codec *codec,
                const struct lab_part *parts,
                uint32_t n,
                uint64_t len,
                float *out)
{
    double sum = weight_sum(parts, n);

    for (uint32_t c = 0; c < n; c++) {
        uint64_t begin, end;
        int rv = 0;

        chunk_of(len, codec->block, n, c, &begin, &end);
        for (uint32_t hop = 0; hop < n && rv == 0 && begin < end; hop++) {
            const struct lab_part *p = &parts[(c + hop) % n];
            const struct codec_op op = {
                .own = p->x + begin,
                .n = (size_t)(end - begin),
                .scale = (float)(p->weight / sum),
                .residual = p->residual == NULL ? NULL : p->residual + begin,
                .next = p->residual == NULL ? NULL : p->residual + begin,
                .result = hop + 1 == n ? out + begin : NULL,
            };

            rv = hop == 0 ? codec->encode_op(lab->wire, &op)
                          : codec->add_op(lab->wire, lab->wire, &op);
        }
        if (rv != 0) {
            return rv;
        }
    }
    return 0;
}

static bool owner_is_raw(const struct lab *lab, const struct lab_part *p)
{
    return p->residual != NULL && lanes_raw(lab->opt.method.wire, false);
}

/* The contribution with its residual, which is zeros then; it lies in `out`. */
static const float *
own_of(const struct lab_part *p, uint64_t begin, uint64_t end, float *out)
{
    for (uint64_t i = begin; i < end; i++) {
        out[i] = p->x[i] + p->residual[i];
        p->residual[i] = 0;
    }
    return out + begin;
}

/* Each member's slice of the sum: terms and scale are those of all members, of
 * vectors that are encoded one behind the other in lab->wire. */
static int sum_slices(struct lab *lab,
                      const struct codec *codec,
                      const struct lab_part *parts,
                      uint64_t len,
                      struct codec_sum *sum)
{
    uint32_t block = codec->block == 1 ? CODEC_PIECE : codec->block;
    const uint8_t *terms[LAB_PEERS_MAX];
    float *out = sum->result;
    int rv = 0;

    sum->terms = terms;
    for (uint32_t c = 0; c < sum->n_terms && rv == 0; c++) {
        uint64_t begin, end;
        uint8_t *at, *to;

        chunk_of(len, block, sum->n_terms, c, &begin, &end);
        at = lab->wire + codec->bytes((size_t)begin);
        for (uint32_t i = 0; i < sum->n_terms; i++) {
            terms[i] = at + i * codec->bytes((size_t)len);
        }
        sum->n = (size_t)(end - begin);
        sum->result = out + begin;
        sum->own = owner_is_raw(lab, &parts[c])
                       ? own_of(&parts[c], begin, end, out)
                       : NULL;
        sum->own_term = c;
        sum->next = parts[c].residual == NULL || sum->scale[c] <= 0
                        ? NULL
                        : parts[c].residual + begin;
        sum->next_scale = sum->next == NULL ? 0 : 1 / sum->scale[c];
        to = at + sum->n_terms * codec->bytes((size_t)len);
        rv = codec->sum(to, sum);
        rv = rv == 0 ? lab_watch_see(lab, codec, begin, sum, to) : rv;
    }
    return rv;
}

/* Elements [begin, end) of a part to their place in `wire`. */
static int encode_part(const struct codec *codec,
                       const struct lab_part *p,
                       uint64_t begin,
                       uint64_t end,
                       uint8_t *wire)
{
    float *residual = p->residual == NULL ? NULL : p->residual + begin;
    const struct codec_op op = {
        .own = p->x + begin,
        .n = (size_t)(end - begin),
        .scale = 1.0F,
        .residual = residual,
        .next = residual,
    };

    return begin < end
               ? codec->encode_op(wire + codec->bytes((size_t)begin), &op)
               : 0;
}

static int butterfly(struct lab *lab,
                     const struct codec *codec,
                     const struct lab_part *parts,
                     uint32_t n,
                     uint64_t len,
                     float *out)
{
    double total = weight_sum(parts, n);
    size_t bytes = codec->bytes((size_t)len);
    float scale[LAB_PEERS_MAX];
    struct codec_sum sum = {.scale = scale,
                            .n_terms = n,
                            .clip = lab->opt.clip,
                            .centred = lab->opt.centred,
                            .result = out};
    int rv = 0;

    for (uint32_t i = 0; i < n && rv == 0; i++) {
        uint64_t begin = len, end = len;

        if (owner_is_raw(lab, &parts[i])) {
            chunk_of(len, codec->block == 1 ? CODEC_PIECE : codec->block, n, i,
                     &begin, &end);
        }
        scale[i] = (float)(parts[i].weight / total);
        rv = encode_part(codec, &parts[i], 0, begin, lab->wire + i * bytes);
        rv = rv == 0 ? encode_part(codec, &parts[i], end, len,
                                   lab->wire + i * bytes)
                     : rv;
    }
    return rv != 0 ? rv : sum_slices(lab, codec, parts, len, &sum);
}

int lab_average(struct lab *lab,
                const struct lab_part *parts,
                uint32_t n_parts,
                uint64_t len,
                float *out)
{
    const struct codec *codec = codec_of(lab);
    bool adds = (codec_adds(codec) && !lab->opt.butterfly) || n_parts == 1;
    int rv = adds ? ring(lab, codec, parts, n_parts, len, out)
                  : butterfly(lab, codec, parts, n_parts, len, out);

    return rv == 0
               ? 0
               : errmsg_fail(lab->errmsg, rv,
                             "a contribution does not fit the wire type %s: "
                             "training has diverged",
                             codec->name);
}
