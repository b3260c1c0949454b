/* offers.h - contributions that were announced, and what shows that a piece is
 * of one.
 *
 * In a run with audits a member fixes what it sends before it sees anything of
 * the others: READY has a hash over all blocks of its encoded contribution
 * (proto/blocks.h). An *offer* is that contribution, encoded, with the hashes
 * of its blocks. Each piece that goes out carries its proof behind its bytes:
 * to the owner of a slice, who checks it before it sums, and for two rounds
 * after the commit to whoever repeats a sum (p2p/round/audit.h).
 *
 *     offer_make -> offers_open -> offers_spend
 *
 * The bytes are those that reduce_encode() makes: encoding is a pure function,
 * block by block. Memory: the encoded vector and 64 bytes a block, three times
 * at most. offer_make() and offer_check() may run on any thread; the rest is
 * for one.
 */
#ifndef LOCO_DAEMON_JOBS_OFFERS_H
#define LOCO_DAEMON_JOBS_OFFERS_H

#include "p2p/core.h"
#include "proto/blocks.h"
#include "train/sync/codec/codec.h"
#include "train/sync/engine.h"

/* Rounds that others may ask about: of their sums; and of their work. */
#define OFFERS_PAST     2
#define OFFERS_PAST_MAX 5

struct offer {
    uint64_t round;       /* which commit has it; 0: none yet */
    uint64_t elements, n; /* of the vector; its blocks, 0: there is no offer */
    uint8_t *bytes;       /* encoded */
    struct hash32 *nodes; /* blocks_nodes(n), the root last */
};

struct offers {
    uint32_t more; /* so many rounds beyond OFFERS_PAST */
    struct offer open, past[OFFERS_PAST_MAX];
};

/* How a vector is cut. */
struct offer_cut {
    const struct codec *codec;
    uint32_t block; /* elements, as in the terms */
    uint64_t elements;
};

/* Encode and hash `own`. LOCO_ENOMEM, or a code of codec.h where a number is
 * not finite: there is no offer then. */
int offer_make(struct offer *o, const struct offer_cut *cut, const float *own);

/* The same of elements that come window by window; the codes of the source. */
int offer_make_from(struct offer *o,
                    const struct offer_cut *cut,
                    const struct engine_source *source);
void offer_free(struct offer *o);

/* The root of the tree over its blocks. */
const struct hash32 *offer_root(const struct offer *o);

/* It takes the place of the one that is open; *o is empty then. */
void offers_open(struct offers *s, struct offer *o);

/* The open one is in the commit of `round`. The oldest goes. */
void offers_spend(struct offers *s, uint64_t round);

/* Which that commit has: one that is newer than those that are spent has the
 * open one, if any. 0: the open one, or where a commit was lost again, with the
 * contribution still the same, the last one. NULL: it is not here. */
const struct offer *offers_find(const struct offers *s, uint64_t round);
void offers_free(struct offers *s);

/* Bytes of the proof of a segment: elements [offset, offset + len) of the
 * vector, from the begin of a block. */
size_t offer_proof_bytes(const struct offer_cut *cut, const struct segment *s);

/* Write the encoded elements and their proof. LOCO_ERANGE: as offer_prove(). */
int offer_fill(const struct offer *o,
               const struct offer_cut *cut,
               const struct segment *s,
               uint8_t *dst);

/* Write the proof alone. LOCO_ERANGE: the segment is not of this offer. */
int offer_prove(const struct offer *o,
                const struct offer_cut *cut,
                const struct segment *s,
                uint8_t *proof);

/* The encoded elements, borrowed; NULL: the segment is not of this offer. */
const uint8_t *offer_at(const struct offer *o,
                        const struct offer_cut *cut,
                        uint64_t offset,
                        uint64_t len);

/* Whether the encoded elements are those of this offer. */
bool offer_has(const struct offer *o,
               const struct offer_cut *cut,
               const struct segment *s,
               const uint8_t *encoded);

/* Whether encoded bytes with their proof behind them are what s->maker
 * announced for `round` by s->offer. LOCO_EHASH: no. LOCO_ENOMEM: not known. */
int offer_check(const struct offer_cut *cut,
                const struct segment *s,
                uint64_t round,
                const uint8_t *src);

#endif
