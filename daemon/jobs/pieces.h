/* pieces.h - leaf lists: what lets a part of a long object be checked alone.
 *
 * An object is a state (parameters, then the rest, with a tree hash each) or a
 * shard. Its *leaf list* is the hashes of its pieces. Who fetches an object
 * gets the list first and sees by its roots whether it is the right one; from
 * then on each piece is checked against its leaf.
 *
 *     (pieces_take)* -> pieces_roots -> (pieces_check)*
 *
 * The list of one object at a time; a part of another object's list begins a
 * new one. Pure. Memory: 32 bytes a piece. Fails with LOCO_ENOMEM, LOCO_EHASH.
 */
#ifndef LOCO_DAEMON_JOBS_PIECES_H
#define LOCO_DAEMON_JOBS_PIECES_H

#include "p2p/swarm/transfer.h"
#include "p2p/terms.h"
#include "proto/hash.h"

/* The leaf list of what is being fetched. */
struct pieces {
    enum buffer_kind buffer; /* STATE or SHARD */
    uint64_t index;
    size_t n;
    struct hash32 *leaves; /* (n); NULL: none */
};

struct piece_roots {
    struct hash32 hash;             /* SHARD */
    struct hash32 params, momentum; /* STATE */
};

/* How the object behind a buffer, which may be that of a list, is cut. The
 * index of a shard is within the run's. */
struct transfer_object pieces_object(const struct run_terms *t,
                                     enum buffer_kind buffer,
                                     uint64_t index);

/* Bytes of the list that a buffer holds; 0: there is no such object. */
uint64_t pieces_list_bytes(const struct run_terms *t,
                           enum buffer_kind buffer,
                           uint64_t index);

/* The object whose list this is. */
enum buffer_kind pieces_object_kind(enum buffer_kind leaves);

/* The list of an object that is here. */
void pieces_make(const struct transfer_object *o,
                 const uint8_t *object,
                 struct hash32 *leaves);

/* Bytes of a list that came; where they lie was checked. */
int pieces_take(struct pieces *p,
                const struct run_terms *t,
                const struct segment *s,
                const uint8_t *src);

/* Whether it is the list of that object, and the object has such a piece.
 * TRANSFER_LEAVES: the list itself. */
bool pieces_has(const struct pieces *p,
                enum buffer_kind buffer,
                uint64_t index,
                uint32_t piece);

int pieces_roots(const struct pieces *p,
                 const struct run_terms *t,
                 struct piece_roots *roots);

/* Whether these are the bytes of a piece. */
int pieces_check(const struct pieces *p,
                 uint32_t piece,
                 const uint8_t *bytes,
                 size_t len);

void pieces_free(struct pieces *p);

#endif
