/* offers.c - see offers.h. */
#include "daemon/jobs/offers.h"

#include <stdlib.h>
#include <string.h>

#include "proto/base/err.h"
#include "proto/hash.h"

static uint64_t blocks_of(const struct offer_cut *cut, uint64_t elements)
{
    return (elements + cut->block - 1) / cut->block;
}

/* Hashes of the blocks of encoded elements, of which the last may be short. */
static void hash_blocks(const struct offer_cut *cut,
                        const uint8_t *bytes,
                        uint64_t elements,
                        struct hash32 *leaves)
{
    size_t whole = cut->codec->bytes(cut->block);

    for (uint64_t at = 0; at < elements; at += cut->block) {
        uint64_t n = elements - at < cut->block ? elements - at : cut->block;

        hash_tree_leaf(bytes, cut->codec->bytes(n), leaves++);
        bytes += whole;
    }
}

_Static_assert(ENGINE_WINDOW % CODEC_BLOCK_MAX == 0, "windows are blocks");

/* What is encoded block by block is the same, however it is cut. */
static int encode_from(const struct offer *o,
                       const struct offer_cut *cut,
                       const struct engine_source *source)
{
    float window[ENGINE_WINDOW];
    int rv = 0;

    for (uint64_t at = 0; at < o->elements && rv == 0; at += ENGINE_WINDOW) {
        uint64_t left = o->elements - at;
        uint64_t n = left < ENGINE_WINDOW ? left : ENGINE_WINDOW;
        const struct codec_op op = {.own = window, .n = n, .scale = 1};

        rv = source->bring(source->self, at, n, window);
        rv = rv != 0 ? rv
                     : cut->codec->encode_op(
                           o->bytes + cut->codec->bytes((size_t)at), &op);
    }
    return rv;
}

/* Of `own`, or where that is NULL of the source. */
static int make(struct offer *o,
                const struct offer_cut *cut,
                const float *own,
                const struct engine_source *source)
{
    const struct codec_op op = {.own = own, .n = cut->elements, .scale = 1};
    int rv = LOCO_ENOMEM;

    *o = (struct offer){.elements = cut->elements,
                        .n = blocks_of(cut, cut->elements)};
    o->bytes = malloc(cut->codec->bytes(o->elements));
    o->nodes = malloc(blocks_nodes(o->n) * sizeof *o->nodes);
    if (o->bytes != NULL && o->nodes != NULL) {
        rv = own != NULL ? cut->codec->encode_op(o->bytes, &op)
                         : encode_from(o, cut, source);
    }
    if (rv != 0) {
        offer_free(o);
        return rv;
    }
    hash_blocks(cut, o->bytes, o->elements, o->nodes);
    blocks_build(o->nodes, o->n);
    return 0;
}

int offer_make(struct offer *o, const struct offer_cut *cut, const float *own)
{
    return make(o, cut, own, NULL);
}

int offer_make_from(struct offer *o,
                    const struct offer_cut *cut,
                    const struct engine_source *source)
{
    return make(o, cut, NULL, source);
}

void offer_free(struct offer *o)
{
    free(o->bytes);
    free(o->nodes);
    *o = (struct offer){0};
}

const struct hash32 *offer_root(const struct offer *o)
{
    return &o->nodes[blocks_nodes(o->n) - 1];
}

void offers_open(struct offers *s, struct offer *o)
{
    offer_free(&s->open);
    s->open = *o;
    *o = (struct offer){0};
}

void offers_spend(struct offers *s, uint64_t round)
{
    if (s->open.n == 0) {
        s->past[0].round = round; /* the commit before came to nothing */
        return;
    }
    offer_free(&s->past[OFFERS_PAST + s->more - 1]);
    for (uint32_t i = OFFERS_PAST + s->more - 1; i > 0; i--) {
        s->past[i] = s->past[i - 1];
    }
    s->past[0] = s->open;
    s->past[0].round = round;
    s->open = (struct offer){0};
}

const struct offer *offers_find(const struct offers *s, uint64_t round)
{
    const struct offer *o;

    if (round == 0) {
        o = s->open.n > 0 ? &s->open : &s->past[0];
        return o->n > 0 ? o : NULL;
    }
    for (uint32_t i = 0; i < OFFERS_PAST_MAX; i++) {
        if (s->past[i].n > 0 && s->past[i].round == round) {
            return &s->past[i];
        }
    }
    return s->open.n > 0 && round > s->past[0].round ? &s->open : NULL;
}

void offers_free(struct offers *s)
{
    offer_free(&s->open);
    for (uint32_t i = 0; i < OFFERS_PAST_MAX; i++) {
        offer_free(&s->past[i]);
    }
}

size_t offer_proof_bytes(const struct offer_cut *cut, const struct segment *s)
{
    return sizeof(struct hash32) *
           blocks_proof_len(blocks_of(cut, cut->elements),
                            s->offset / cut->block,
                            blocks_of(cut, s->offset + s->len));
}

int offer_prove(const struct offer *o,
                const struct offer_cut *cut,
                const struct segment *s,
                uint8_t *proof)
{
    if (o->elements != cut->elements || s->offset % cut->block != 0 ||
        s->len == 0 || s->offset + s->len > o->elements) {
        return LOCO_ERANGE;
    }
    blocks_prove(o->nodes, o->n, s->offset / cut->block,
                 blocks_of(cut, s->offset + s->len), proof);
    return 0;
}

int offer_fill(const struct offer *o,
               const struct offer_cut *cut,
               const struct segment *s,
               uint8_t *dst)
{
    size_t len = cut->codec->bytes(s->len);
    int rv = offer_prove(o, cut, s, dst + len);

    if (rv == 0) {
        memcpy(dst, o->bytes + cut->codec->bytes(s->offset), len);
    }
    return rv;
}

const uint8_t *offer_at(const struct offer *o,
                        const struct offer_cut *cut,
                        uint64_t offset,
                        uint64_t len)
{
    return o->elements == cut->elements && offset % cut->block == 0 &&
                   len <= o->elements && offset <= o->elements - len
               ? o->bytes + cut->codec->bytes((size_t)offset)
               : NULL;
}

bool offer_has(const struct offer *o,
               const struct offer_cut *cut,
               const struct segment *s,
               const uint8_t *encoded)
{
    const uint8_t *at = offer_at(o, cut, s->offset, s->len);

    return at != NULL && memcmp(at, encoded, cut->codec->bytes(s->len)) == 0;
}

int offer_check(const struct offer_cut *cut,
                const struct segment *s,
                uint64_t round,
                const uint8_t *src)
{
    uint64_t from = s->offset / cut->block;
    uint64_t to = blocks_of(cut, s->offset + s->len);
    struct hash32 *leaves = malloc((to - from) * sizeof *leaves);
    struct hash32 root, offer;

    if (leaves == NULL) {
        return LOCO_ENOMEM;
    }
    hash_blocks(cut, src, s->len, leaves);
    blocks_root(leaves, blocks_of(cut, cut->elements), from, to,
                src + cut->codec->bytes(s->len), &root);
    free(leaves);
    blocks_offer(&s->maker, round, &root, &offer);
    return hash32_eq(&offer, &s->offer) ? 0 : LOCO_EHASH;
}
