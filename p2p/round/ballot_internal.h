/* ballot_internal.h - what the ballot_*.c files share; nobody else includes it.
 *
 *   ballot.c           wishes, joiners, losses, time, whose turn it is
 *   ballot_view.c      the view that we are in; what is on disk
 *   ballot_acceptor.c  promises and signatures
 *   ballot_proposer.c  gathering them for a proposal of ours
 *   ballot_value.c     the proposal itself, from closing statements
 *   ballot_edges.c     who can exchange data with whom, and what follows
 */
#ifndef LOCO_P2P_ROUND_BALLOT_INTERNAL_H
#define LOCO_P2P_ROUND_BALLOT_INTERNAL_H

#include "p2p/round/ballot.h"

#define FORK_BALLOT (1ULL << 40) /* above every majority ballot */
#define BIT(i)      (1ULL << (i))

/* ---- ballot.c --------------------------------------------------------- */

/* A joiner that went away frees its place. */
bool ballot_joiner_here(const struct ballot *b, const struct ballot_joiner *j);

/* It holds that commit, which is what a member must have. */
bool ballot_joiner_holds(const struct ballot_joiner *j,
                         uint64_t round,
                         const struct hash32 *commit);

/* ---- ballot_view.c ---------------------------------------------------- */

/* Emit the SAVE of all that must survive a restart. */
void ballot_save(struct ballot *b, const struct ballot_context *ctx);

/* Enter a view that names us and whose certificate has been checked. */
void ballot_adopt(struct ballot *b,
                  const struct ballot_context *ctx,
                  const struct view_cert *cert);

/* Whether {epoch, view} is what we could be asked to replace. */
bool ballot_names_our_view(const struct ballot *b,
                           uint64_t epoch,
                           const struct hash32 *view);

/* ---- ballot_acceptor.c ------------------------------------------------ */

/* Highest ballot that is answered now. */
uint64_t ballot_limit(const struct ballot *b, enum view_mode mode);

/* What we would promise on `p`: our closing statement and what we accepted. */
struct promise_body ballot_own_promise(struct ballot *b,
                                       const struct ballot_context *ctx,
                                       const struct prepare *p);

/* From now on bound by the prepare of that peer. */
void ballot_bind(struct ballot *b,
                 const struct ballot_context *ctx,
                 const struct peer_id *by,
                 const struct prepare *p);

/* Accept a value (not when founding), and sign it. 0 or the signer's error. */
int ballot_sign_value(struct ballot *b,
                      const struct ballot_context *ctx,
                      uint64_t ballot,
                      const struct view_body *value,
                      struct accepted *out);

/* ---- ballot_proposer.c ------------------------------------------------ */

/* Ask everybody for a promise. */
void ballot_propose(struct ballot *b,
                    const struct ballot_context *ctx,
                    enum view_mode mode,
                    uint64_t ballot);

/* Gathering is over: propose a value, or give up. */
void ballot_conclude(struct ballot *b, const struct ballot_context *ctx);
void ballot_ask_again(struct ballot *b, const struct ballot_context *ctx);

/* Leave this ballot; try again after a moment that differs between members. */
void ballot_give_up(struct ballot *b, const struct ballot_context *ctx);

/* ---- ballot_edges.c --------------------------------------------------- */

/* Whether the view `v` with that joiner has a ring of more than half. */
bool ballot_joiner_fits(const struct ballot *b,
                        const struct view_body *v,
                        const struct ballot_joiner *j);

/* Where too few members of `v` can form a ring, only those who can stay. */
void ballot_prune(const struct ballot *b, struct view_body *v);

/* It was left out because of its edges when that round was the newest. */
void ballot_oust(struct ballot *b, const uint8_t key[32], uint64_t round);

/* Whether it has to wait still. */
bool ballot_is_ousted(const struct ballot *b,
                      const uint8_t key[32],
                      uint64_t round);

/* ---- ballot_value.c --------------------------------------------------- */

/* A new value from the promises: everybody who answered and was not restarted,
 * and waiting joiners. False: nobody would be left. */
bool ballot_make_value(struct ballot *b, struct view_body *v);

#endif
