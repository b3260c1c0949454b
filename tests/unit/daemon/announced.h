/* announced.h - contributions that some members announced, for the tests of
 * offers and of repeated sums. Everything is static in this header. */
#ifndef LOCO_TESTS_UNIT_DAEMON_ANNOUNCED_H
#define LOCO_TESTS_UNIT_DAEMON_ANNOUNCED_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "daemon/jobs/offers.h"
#include "p2p/exchange/exchange.h"
#include "proto/base/err.h"
#include "proto/base/rng.h"

/* Behind the encoded elements of a segment. */
#define PROOF_ROOM (BLOCKS_PROOF_MAX * sizeof(struct hash32))

/* A vector of one member, and what it announced of it for one round. */
struct announced {
    struct offer_cut cut;
    struct peer_id maker;
    uint64_t round;
    float *own;
    struct offer offer;
    struct hash32 root; /* in READY */
};

/* As butterflies with that codec cut. */
static inline struct offer_cut announced_cut(unsigned id, uint64_t elements)
{
    const struct codec *c = codec_get(id);

    return (struct offer_cut){
        .codec = c,
        .block = exchange_block(EXCHANGE_BUTTERFLY, c->block),
        .elements = elements,
    };
}

/* Numbers from the seed. */
static inline float *announced_vector(uint64_t elements, uint64_t seed)
{
    float *own = malloc(elements * sizeof *own);

    assert_non_null(own);
    for (uint64_t i = 0; i < elements; i++) {
        own[i] = rng_float(&seed) - 0.5F;
    }
    return own;
}

static inline void announced_open(struct announced *a,
                                  const struct offer_cut *cut,
                                  uint8_t maker,
                                  uint64_t round)
{
    *a = (struct announced){.cut = *cut, .maker = {{maker}}, .round = round};
    a->own = announced_vector(cut->elements, 100ULL * maker + round);
    assert_int_equal(offer_make(&a->offer, cut, a->own), 0);
    blocks_offer(&a->maker, round, offer_root(&a->offer), &a->root);
}

static inline void announced_close(struct announced *a)
{
    offer_free(&a->offer);
    free(a->own);
}

static inline uint64_t announced_blocks(const struct offer_cut *cut)
{
    return (cut->elements + cut->block - 1) / cut->block;
}

/* Blocks [from, to) of the vector, as whoever awaits them names them. */
static inline struct segment
announced_piece(const struct announced *a, uint64_t from, uint64_t to)
{
    uint64_t end = to * a->cut.block;

    end = end < a->cut.elements ? end : a->cut.elements;
    return (struct segment){
        .buffer = BUFFER_OFFER,
        .index = a->round,
        .offset = from * a->cut.block,
        .len = (uint32_t)(end - from * a->cut.block),
        .proven = true,
        .maker = a->maker,
        .offer = a->root,
    };
}

/* Its bytes, for free(): the elements, the proof, and what is not of it. */
static inline uint8_t *announced_bytes(const struct announced *a,
                                       const struct segment *s)
{
    uint8_t *bytes = calloc(1, a->cut.codec->bytes(s->len) + PROOF_ROOM);

    assert_non_null(bytes);
    assert_int_equal(offer_fill(&a->offer, &a->cut, s, bytes), 0);
    return bytes;
}

#endif
