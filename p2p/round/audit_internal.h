/* audit_internal.h - shared by the files of audit.h.
 *
 *   audit.c        a commit, draws, what others say, which block is next
 *   audit_fetch.c  the contributions to a block, and who does not serve his
 */
#ifndef LOCO_P2P_ROUND_AUDIT_INTERNAL_H
#define LOCO_P2P_ROUND_AUDIT_INTERNAL_H

#include "p2p/round/audit.h"

#define AUDIT_BIT(i) (1ULL << (i))

/* The rank of the member in that row; n: none. */
uint32_t audit_rank_of(const struct audit *a, int peer);

/* Ask for all contributions to a->block, or put that off. */
void audit_fetch(struct audit *a, uint64_t now_ms, struct out *out);

/* The answers to a->block took too long. */
void audit_time_out(struct audit *a, struct out *out);

void audit_give_up(struct audit *a, struct out *out);

#endif
