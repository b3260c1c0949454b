/* owners_internal.h - what the owners*.c files share; nobody else includes it.
 *
 *   owners.c       views, roles, the log, time
 *   owners_say.c   what members say to each other
 *   owners_move.c  the ways of bytes
 */
#ifndef LOCO_P2P_OWNERS_INTERNAL_H
#define LOCO_P2P_OWNERS_INTERNAL_H

#include "p2p/owners.h"

#define OWNERS_BIT(k) (1ULL << (k))

/* ---- owners.c --------------------------------------------------------- */

struct owners_action *owners_add(struct owners_out *out,
                                 enum owners_action_type type);

/* A message about slice i to the members in `to`. The action is finished by
 * the caller. */
struct owners_message *owners_say(const struct owners *o,
                                  struct owners_out *out,
                                  uint64_t to,
                                  enum owners_kind kind,
                                  uint32_t i);

/* Position of a member in the view; -1: none. */
int owners_member_of(const struct owners *o, const struct peer_id *id);

/* Ask all what they hold of slice i, which is ours. */
void owners_ask(struct owners *o, uint32_t i, struct owners_out *out);
/* Somebody has this; is it the newest? */
void owners_consider(struct owners_slice *s,
                     uint32_t who,
                     bool reading,
                     uint64_t generation,
                     uint64_t position);
/* All have said what they hold. */
void owners_choose(struct owners *o, uint32_t i, struct owners_out *out);
void owners_build(struct owners *o, uint32_t i, struct owners_out *out);
void owners_open(struct owners *o, uint32_t i);

/* What was fetched is in s->at: the backup must have the same. */
void owners_feed(struct owners *o, uint32_t i, struct owners_out *out);

/* s->at has one more arrival, which is in this slot. */
void owners_append(struct owners *o,
                   uint32_t i,
                   uint32_t slot,
                   uint32_t next_size,
                   struct owners_out *out);

/* ---- owners_say.c ----------------------------------------------------- */

void owners_say_submit(struct owners *o, struct owners_out *out);

/* The record under way is at the backup too, or there is none: it counts. */
void owners_shipped(struct owners *o, uint32_t i, struct owners_out *out);

/* The piece in this slot is no numbers. */
void owners_refuse(struct owners *o, uint32_t slot, struct owners_out *out);

/* ---- owners_move.c ---------------------------------------------------- */

void owners_drop(struct owners *o, uint32_t slot, struct owners_out *out);

/* Ask for what is missing, as far as there are slots, and ship what is here. */
void owners_pump(struct owners *o, struct owners_out *out);

void owners_on_want(struct owners *o,
                    uint32_t from,
                    const struct owners_message *m,
                    struct owners_out *out);
void owners_on_head(struct owners *o,
                    uint32_t from,
                    const struct owners_message *m,
                    const uint64_t *task,
                    struct owners_out *out);

/* How long nothing may come into a slot that was asked for. */
uint64_t owners_patience_ms(const struct owners *o,
                            const struct owners_slot *t);
/* Ask again where nothing has come. */
void owners_retry(struct owners *o, struct owners_out *out);
void owners_say_log(struct owners *o, uint32_t i, struct owners_out *out);

#endif
