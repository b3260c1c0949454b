/* offer_fuzz.c - any bytes as a piece of a contribution with its proof.
 *
 * Two readings of an input. As they are, behind a head that chooses codec,
 * length and place: bytes from outside are what was announced only if they are
 * those of the announced vector, all of them. And as a vector that its maker
 * announced, whatever it is: each of its blocks is proven, and its sum has
 * other bytes than a result that is wrong, or there is none. The pieces lie in
 * blocks of their own size, so that reading past their end is seen.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/jobs/audit_room.h"
#include "p2p/exchange/exchange.h"
#include "proto/base/err.h"
#include "proto/hash.h"

#define HEAD  6
#define ROUND 9
#define LANES 2

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(bool holds)
{
    if (!holds) {
        abort();
    }
}

static void *need(size_t bytes)
{
    void *p = calloc(1, bytes == 0 ? 1 : bytes);

    check(p != NULL);
    return p;
}

/* The vector that is announced: small numbers of its length. */
static void announce(const struct offer_cut *cut, struct offer *o)
{
    float *own = need(cut->elements * sizeof *own);

    for (uint64_t i = 0; i < cut->elements; i++) {
        own[i] = (float)(i % 17) - 8;
    }
    check(offer_make(o, cut, own) == 0);
    free(own);
}

/* Some blocks of the vector, by two bytes. */
static struct segment place(const struct offer_cut *cut,
                            const struct offer *o,
                            uint8_t from,
                            uint8_t blocks)
{
    uint64_t first = from % o->n, end = first + 1 + blocks % 5;
    struct segment s = {.buffer = BUFFER_OFFER,
                        .index = ROUND,
                        .offset = first * cut->block,
                        .maker = {{3}},
                        .scale = 0.5,
                        .lanes = LANES};

    end = (end < o->n ? end : o->n) * cut->block;
    end = end < cut->elements ? end : cut->elements;
    s.len = (uint32_t)(end - s.offset);
    blocks_offer(&s.maker, ROUND, offer_root(o), &s.offer);
    return s;
}

static size_t wire_len(const struct offer_cut *cut, const struct segment *s)
{
    return cut->codec->bytes(s->len) + offer_proof_bytes(cut, s);
}

/* What is announced, changed by the input where that is not 0. */
static void changed(const struct offer_cut *cut,
                    const struct segment *s,
                    const struct offer *o,
                    const uint8_t *data,
                    size_t size)
{
    size_t len = wire_len(cut, s);
    uint8_t *bytes = need(len);
    bool same = true;

    check(offer_fill(o, cut, s, bytes) == 0);
    check(offer_check(cut, s, ROUND, bytes) == 0);
    for (size_t i = 0; i < size; i++) { /* longer ones go over it again */
        bytes[i % len] ^= data[i];
    }
    {
        uint8_t *good = need(len);

        check(offer_fill(o, cut, s, good) == 0);
        same = memcmp(good, bytes, len) == 0;
        free(good);
    }
    check(offer_check(cut, s, ROUND, bytes) == (same ? 0 : LOCO_EHASH));
    check(offer_check(cut, s, ROUND + 1, bytes) == LOCO_EHASH);
    free(bytes);
}

/* The input alone is the piece. */
static void raw(const struct offer_cut *cut,
                const struct segment *s,
                const struct offer *o,
                const uint8_t *data,
                size_t size)
{
    size_t len = wire_len(cut, s);
    uint8_t *bytes = need(len), *good = need(len);

    memcpy(bytes, data, size < len ? size : len);
    check(offer_fill(o, cut, s, good) == 0);
    check((offer_check(cut, s, ROUND, bytes) == 0) ==
          (memcmp(bytes, good, len) == 0));
    free(bytes);
    free(good);
}

/* The vector of who announces what it likes. */
static void forge(const struct offer_cut *cut,
                  struct offer *o,
                  const uint8_t *data,
                  size_t size)
{
    size_t whole = cut->codec->bytes(cut->block);
    size_t all = cut->codec->bytes(cut->elements);

    memcpy(o->bytes, data, size < all ? size : all);
    for (uint64_t i = 0; i < o->n; i++) {
        size_t at = i * whole, len = all - at < whole ? all - at : whole;

        hash_tree_leaf(o->bytes + at, len, &o->nodes[i]);
    }
    blocks_build(o->nodes, o->n);
}

static void take(struct audit_room *room,
                 const struct offer_cut *cut,
                 const struct offer *o,
                 uint8_t lane,
                 uint8_t from)
{
    struct segment s = place(cut, o, from, 0);
    uint8_t *bytes = need(wire_len(cut, &s));

    s.lane = lane;
    check(offer_fill(o, cut, &s, bytes) == 0);
    check(audit_room_take(room, cut, &s, bytes) == 0);
    free(bytes);
}

/* Its block beside an honest one: a sum, or none, but always an answer. */
static void
repeat(const struct offer_cut *cut, const struct offer *liar, uint8_t from)
{
    struct audit_room room = {0};
    struct offer honest;
    size_t len = cut->codec->bytes(cut->block);
    uint8_t *result = need(len);
    const uint8_t *terms[LANES];
    const float scale[LANES] = {0.5F, 0.5F};
    bool wrong = false;
    int rv;

    announce(cut, &honest);
    take(&room, cut, &honest, 0, from);
    take(&room, cut, liar, 1, from);
    for (uint8_t i = 0; i < LANES; i++) {
        terms[i] = audit_room_at(&room, ROUND, room.offset, i);
        check(terms[i] != NULL);
    }
    for (int clip = 0; clip < 3; clip++) {
        struct codec_sum sum = {.terms = terms,
                                .scale = scale,
                                .n_terms = LANES,
                                .n = room.len,
                                .clip = clip > 0 ? 2 : 0,
                                .centred = clip == 2};
        const struct audit_sum how = {cut->codec, sum.clip, sum.centred,
                                      result};

        rv = cut->codec->sum(result, &sum);
        check(audit_room_sum(&room, &how, &wrong) == 0 && wrong == (rv != 0));
        result[0] ^= 1;
        check(audit_room_sum(&room, &how, &wrong) == 0 && wrong);
    }
    free(result);
    offer_free(&honest);
    audit_room_free(&room);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct offer_cut cut;
    struct offer o;
    struct segment s;

    if (size < HEAD) {
        return 0;
    }
    cut.codec = codec_get(data[0] % CODEC_COUNT);
    cut.block = exchange_block(EXCHANGE_BUTTERFLY, cut.codec->block);
    cut.elements =
        1 + (data[1] % 9) * cut.block + (data[2] << 8 | data[3]) % cut.block;
    announce(&cut, &o);
    s = place(&cut, &o, data[4], data[5]);
    changed(&cut, &s, &o, data + HEAD, size - HEAD);
    raw(&cut, &s, &o, data + HEAD, size - HEAD);
    forge(&cut, &o, data + HEAD, size - HEAD);
    repeat(&cut, &o, data[4]);
    offer_free(&o);
    return 0;
}
