/* pair_payload.c - see pair_payload.h. */
#include "daemon/jobs/pair_payload.h"

#include <stdlib.h>

#include "proto/base/err.h"
#include "proto/hash.h"

/* Elements that are encoded and hashed at a time: a multiple of all blocks. */
#define PIECE ((uint64_t)1 << 16)

size_t pair_payload_bytes(const struct codec *c, uint64_t n)
{
    return 2 * c->bytes(n);
}

size_t
pair_payload_at(const struct codec *c, uint64_t n, const struct segment *s)
{
    return (s->buffer == BUFFER_STEP ? c->bytes(n) : 0) + c->bytes(s->offset);
}

int pair_payload_fill(const struct pair_payload *own,
                      const struct segment *s,
                      uint8_t *dst)
{
    const float *from =
        s->buffer == BUFFER_ANCHOR ? own->anchor : own->displacement;

    return own->codec->encode(dst, from + s->offset, s->len, 1.0F);
}

static int hash_vector(const struct pair_payload *own,
                       const float *x,
                       uint8_t *wire,
                       struct hash_tree_state *h)
{
    int rv = 0;

    for (uint64_t at = 0; at < own->n && rv == 0; at += PIECE) {
        uint64_t n = own->n - at < PIECE ? own->n - at : PIECE;

        rv = own->codec->encode(wire, x + at, n, 1.0F);
        if (rv == 0) {
            hash_tree_update(h, wire, own->codec->bytes(n));
        }
    }
    return rv;
}

static int hash_own(const struct pair_payload *own, struct hash32 *hash)
{
    struct hash_tree_state h;
    uint8_t *wire = malloc(own->codec->bytes(own->n < PIECE ? own->n : PIECE));
    int rv = wire == NULL ? LOCO_ENOMEM : 0;

    hash_tree_init(&h);
    rv = rv != 0 ? rv : hash_vector(own, own->anchor, wire, &h);
    rv = rv != 0 ? rv : hash_vector(own, own->displacement, wire, &h);
    hash_tree_final(&h, hash);
    free(wire);
    return rv;
}

int pair_payload_hash(const struct pair_payload *own,
                      const uint8_t *partner,
                      bool first,
                      struct hash32 *hash)
{
    struct hash32 both[2];
    int rv = hash_own(own, &both[first ? 0 : 1]);

    if (rv == 0) {
        hash_tree(partner, pair_payload_bytes(own->codec, own->n),
                  &both[first ? 1 : 0]);
        hash_bytes("loco-pair-1", both, sizeof both, hash);
    }
    return rv;
}
