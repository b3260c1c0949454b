/* work_internal.h - the inside of work.h.
 *
 *   work.c        commits, whose lease is made again, what is said
 *   work_plan.c   what a commit says of its makers, and who is silent
 *   work_fetch.c  what is fetched for it
 */
#ifndef LOCO_P2P_ROUND_WORK_INTERNAL_H
#define LOCO_P2P_ROUND_WORK_INTERNAL_H

#include "p2p/round/work.h"

static inline const struct work_maker *work_maker_of(const struct work_task *t)
{
    return &t->about.maker[t->maker];
}

static inline const struct peer_id *work_maker_id(const struct work_task *t)
{
    return &t->about.what.member[t->maker];
}

/* ---- work.c ------------------------------------------------------------- */

/* It is not made again: the machine lets go of what it has of it. */
void work_give_up(struct work *w, struct work_task *t, struct out *out);

/* The same, and in a case the others hear that we cannot tell. */
void work_pass(struct work *w, struct work_task *t, struct out *out);

/* The same, and the maker is to blame. */
void work_unserved(struct work *w, struct work_task *t, struct out *out);

/* ---- work_plan.c -------------------------------------------------------- */

/* Place of a member in that view; c->n: none. */
uint32_t work_place(const struct repeat_commit *c, const struct peer_id *id);

void work_name_silent(struct work *w, const struct peer_id *id);

/* ---- work_fetch.c ------------------------------------------------------- */

/* Ask for what `about`, `maker` and `after` say. */
void work_fetch_begin(struct work *w, struct work_task *t);

/* Nothing of it may come any more, if it is this one's turn. */
void work_fetch_end(struct work *w, struct work_task *t, struct out *out);

void work_fetch_tick(struct work *w, uint64_t now_ms, struct out *out);

#endif
