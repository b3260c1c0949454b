/* ballot_internal.h - what the ballot_*.c files share; nobody else includes it.
 *
 *   ballot.c           wishes, joiners, losses, time, whose turn it is
 *   ballot_view.c      the view that we are in; what is on disk
 *   ballot_acceptor.c  promises and signatures
 *   ballot_convicts.c  members that lied, by proofs that we hold
 *   ballot_asks.c      who asked for a change, and whether that is enough
 *   ballot_proposer.c  gathering them for a proposal of ours
 *   ballot_value.c     the proposal itself, from closing statements
 *   ballot_own.c       a proposal of ours, with what it is made of
 *   ballot_check.c     a proposal of somebody else, made again
 *   ballot_edges.c     who can exchange data with whom, and what follows
 */
#ifndef LOCO_P2P_ROUND_BALLOT_INTERNAL_H
#define LOCO_P2P_ROUND_BALLOT_INTERNAL_H

#include "p2p/round/ballot.h"

#define FORK_BALLOT (1ULL << 40) /* above every majority ballot */
#define BIT(i)      (1ULL << (i))

/* Commits since its JOIN that a joiner may be fetching: rounds can be as short
 * as that takes. */
#define JOIN_BEHIND_MAX 2

/* ---- ballot.c --------------------------------------------------------- */

/* A joiner that went away, or against which we hold a proof, frees its place.
 */
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

/* Accept a proposal in that ballot (not when founding), whose owner's signature
 * is `sig` (NULL: we are), and sign its value. 0 or the signer's error. */
int ballot_sign_value(struct ballot *b,
                      const struct ballot_context *ctx,
                      uint64_t ballot,
                      const struct proposal *proposal,
                      const uint8_t *sig,
                      struct accepted *out);

/* ---- ballot_asks.c ---------------------------------------------------- */

/* Whether we promise a ballot of our epoch that is its sender's: it is its
 * owner's turn, and the round in flight may end for it. */
bool ballot_gives_way(struct ballot *b,
                      const struct ballot_context *ctx,
                      const struct prepare *p);

/* We cannot promise that ballot: its owner is told above which we could. */
void ballot_say_higher(struct ballot *b,
                       const struct ballot_context *ctx,
                       int peer,
                       const struct prepare *p);

/* What a ballot may take. Where those of several owners came to nothing, disks
 * or lines may be slow: promises and signatures wait for both. So it doubles
 * with each second such owner, and each time that all were, three times at
 * most. By owners, as one that lies can begin ballots without end. */
#define PATIENT_OWNERS 2
#define PATIENCE_MAX   3
static inline uint32_t ballot_time_ms(const struct ballot *b)
{
    uint32_t doubled = b->slow_turns +
                       (uint32_t)__builtin_popcountll(b->slow) / PATIENT_OWNERS;

    return b->opt.ballot_ms
           << (doubled < PATIENCE_MAX ? doubled : PATIENCE_MAX);
}

/* The ballot that we promised last may have had its time. alive: who may own
 * one (bits). */
void ballot_note_slow(struct ballot *b, uint64_t alive, uint64_t now_ms);

/* The owner of that ballot has our promise. */
void ballot_note_turn(struct ballot *b, uint64_t ballot, uint64_t now_ms);

/* Its owner is at work: it has half of a ballot's time for each of its two
 * steps, and after one more half, however much it says, we turn to the next
 * owner. */
void ballot_wait_for_owner(struct ballot *b,
                           enum view_mode mode,
                           uint64_t now_ms);

/* In whose name we ask: that of the member whose word it was, or our own.
 * Nonzero: we cannot sign. */
int ballot_asker(const struct ballot *b,
                 const struct ballot_context *ctx,
                 struct asker *m);

/* The round for which a change was asked is committed all the same. */
void ballot_forget_wish(struct ballot *b, const struct ballot_context *ctx);

/* The view ends: who asked for that without a cause pays. */
void ballot_charge_askers(struct ballot *b, const struct view_body *next);

/* Whether others would let us propose a view for a joiner. */
bool ballot_may_ask(const struct ballot *b, const struct ballot_context *ctx);

/* ---- ballot_convicts.c ------------------------------------------------ */

/* Members of our view against whom we hold a proof (bits). */
uint64_t ballot_convict_mask(const struct ballot *b);

/* Whether one of those on probation is to go, for which the coordinator
 * proposes a view between two rounds. */
bool ballot_convict_waits(const struct ballot *b);

/* Ask for a view without a full one, if it is time. */
void ballot_convicts_tick(struct ballot *b, const struct ballot_context *ctx);

/* Before the view `next` is entered: whether our word was in its making. */
void ballot_convicts_heard(struct ballot *b, const struct view_body *next);

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

/* Who of the view `old` exchanges data with whom: bit k of of[i]. */
struct ballot_edges {
    const struct view_body *old; /* borrowed */
    enum exchange_kind exchange;
    uint64_t of[VIEW_MEMBERS_MAX];
};

/* Our own row, for a promise; and all that members say in their pulses. */
uint64_t ballot_own_edges(const struct ballot *b);
void ballot_edges_heard(const struct ballot *b, struct ballot_edges *k);

/* Whether that joiner says that it has a link to more than half of the view. */
bool ballot_join_is_known(const struct ballot *b, const struct join_body *j);

/* Whether that joiner says that it has a link to that member. */
bool ballot_join_links(const struct join_body *j, const struct peer_id *id);

/* Whether the view `v` with that joiner has a ring of more than half. */
bool ballot_join_fits(const struct ballot_edges *k,
                      const struct view_body *v,
                      const struct join_body *j);

/* Where too few members of `v` can form a ring, only those who can stay. */
void ballot_prune(const struct ballot_edges *k, struct view_body *v);

/* It was left out because of its edges when that round was the newest. */
void ballot_oust(struct ballot *b, const uint8_t key[32], uint64_t round);

/* Whether it has to wait still. */
bool ballot_is_ousted(const struct ballot *b,
                      const uint8_t key[32],
                      uint64_t round);

/* ---- ballot_value.c --------------------------------------------------- */

/* What a value is made of. */
struct ballot_making {
    enum view_mode mode;
    enum exchange_kind exchange;
    struct hash32 run;
    uint64_t epoch; /* of the value */
    struct hash32 prev;
    /* The view before; founding: that of its founder, or NULL. Borrowed. */
    const struct view_body *old;
    uint64_t departed;
    bool probation; /* newcomers do not count yet */
    /* Who was asked, by promised.member: founding: in any order. Borrowed. */
    const struct view_member *members;
    uint32_t n_members;
    uint32_t n_promises, n_joins; /* each member at most once */
    const struct promised *promises;
    const struct joining *joins;
};

/* The value: everybody who answered and was not restarted, and joiners who fit.
 * A function of *m alone. False: nobody would be left. */
bool ballot_make_value(const struct ballot_making *m, struct view_body *v);

/* For a value that follows our view by that mode. */
struct ballot_making ballot_making_after(const struct ballot *b,
                                         enum view_mode mode);

/* Members (bits) that answered in `promises`, and who had accepted a value. */
uint64_t
ballot_promised(const struct promised *promises, uint32_t n, uint64_t *claims);

/* Whether so many of the view may have accepted a value that it is in force,
 * when of those who `answered` only `claims` say that they did, and `departed`
 * said goodbye. Then no other
 * one may be proposed. */
bool ballot_is_bound(const struct view_body *view,
                     uint64_t answered,
                     uint64_t claims,
                     uint64_t departed);

/* ---- ballot_own.c ----------------------------------------------------- */

/* Fill in who waits for us to let it in: the promises say who is linked to it.
 * `linked`: what that member's says, bits of that list. */
void ballot_name_joiners(struct ballot *b, struct prepare *p);
void ballot_note_linked(struct ballot *b, uint32_t member, uint32_t linked);

/* `proposal` of our ballot, from those who answered. False: nobody is left. */
bool ballot_make_own(struct ballot *b);

/* ---- ballot_check.c --------------------------------------------------- */

/* Whether a proposal of somebody else is what its promises and joins give, and
 * these are signed. */
bool ballot_proposal_holds(const struct ballot *b,
                           enum view_mode mode,
                           const struct proposal *p);

/* Whether the owner of its ballot, with that key, may propose that: a new value
 * where nobody is bound, else the one of the highest ballot. */
bool ballot_accept_holds(const struct ballot *b,
                         const struct accept *a,
                         const uint8_t owner_key[32]);

/* Whether we agree to who is in that value and who is out; `again`: somebody
 * else than its maker proposes it. A refusal is remembered: for each member
 * that is left out there is one, and the next owner goes through. */
bool ballot_agrees(struct ballot *b,
                   const struct ballot_context *ctx,
                   const struct proposal *p,
                   bool again);

/* Who has that key signed that it proposes the view of that hash. */
bool ballot_owner_signed(const struct ballot *b,
                         const uint8_t key[32],
                         uint64_t ballot,
                         const struct hash32 *view,
                         const uint8_t sig[SIGN_BYTES]);

#endif
