/* internal.h - what the pair*.c files share; nobody else includes it.
 *
 *   pair.c        the life of a turn, deadlines
 *   pair/list.c   the soft view and who is drawn from it
 *   pair/talk.c   what the two say to each other
 *   pair/move.c   segments, hashes
 */
#ifndef LOCO_P2P_PAIR_INTERNAL_H
#define LOCO_P2P_PAIR_INTERNAL_H

#include "p2p/pair/pair.h"

#define PAIR_RESEND_MS 1000 /* PAIR and PAIR_HAVE are said again after this */
#define PAIR_LOOK_MS   250  /* the list is looked at again after this */
#define PAIR_STABLE_MS 1000 /* and followed when it was the same for this */

/* ---- pair.c ----------------------------------------------------------- */

/* The turn is over for us; says PASS where a partner must know. */
void pair_decide(struct pair *p, enum pair_end end, struct out *out);

/* No partner any more in this turn, which goes on. */
void pair_part(struct pair *p, struct out *out);

/* ---- pair/list.c ------------------------------------------------------ */

/* The partner of p->turn by the list: row, or MEMBERS_NONE for a bye. */
int pair_draw(const struct pair *p);

/* ---- pair/talk.c ------------------------------------------------------ */

void pair_say(struct pair *p, enum pair_kind kind, struct out *out);

/* Look at the list; if it draws another partner, offer to that one. */
void pair_seek(struct pair *p, uint64_t now_ms, struct out *out);

void pair_resend(struct pair *p, uint64_t now_ms, struct out *out);

/* ---- pair/move.c ------------------------------------------------------ */

/* Both agreed: get ready to receive. */
void pair_move_begin(struct pair *p, uint64_t now_ms, struct out *out);
/* The partner's frames to it carry this attempt now, from segment `from` on. */
void pair_move_to(struct pair *p,
                  uint64_t attempt,
                  uint32_t from,
                  struct out *out);
/* Send and post what there is room for. */
void pair_pump(struct pair *p, struct out *out);
/* Receive again from where it broke. */
void pair_move_renew(struct pair *p, uint64_t now_ms, struct out *out);
void pair_move_end(struct pair *p, struct out *out);
/* All of the partner's payload is here. */
bool pair_holds(const struct pair *p);
void pair_try_hash(struct pair *p, struct out *out);

#endif
