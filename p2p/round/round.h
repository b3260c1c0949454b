/* round.h - one averaging round: ready, plan, reduce, vote, commit.
 *
 * Everybody says READY with the weight of its contribution. The coordinator,
 * a different member every round, names who takes part in which order
 * (PLAN): all, or after grace_ms those in time if they are more than half of
 * the view. Each member follows one plan per (epoch, round). The exchange
 * runs (a ring, or a butterfly: exchange.h); whoever holds all reduced bytes
 * votes for their hash; who has no part in the plan is its *witness* and says
 * at once that it follows it. With the votes of every member of the plan the
 * round is committed, if these and the witnesses are a Byzantine quorum (a
 * coordinator that makes two plans commits one at most). No member can commit
 * while another member of the plan has not voted. Where one never does, or
 * votes for other bytes, the next view decides: half of the votes are enough
 * there (ballot.h).
 *
 * Until the commit nothing but the wire buffer was touched; an attempt that
 * fails leaves the contribution as it was.
 *
 * What a failed attempt had finished is not done again. READY of the next
 * attempt claims the elements of the wire buffer that are final here (whole
 * stripes, exchange.h) and names the plan that made them. The coordinator
 * inherits the longest claim among those who take part: these elements stay the
 * mean of the members of the plan that made them, a dead one's contribution
 * with them; who lacks some gets them from its neighbour first; only the rest
 * is reduced anew. A contribution is *exposed* once it entered an exchange:
 * from then on parts of it may be in the result although its maker is out.
 *
 * Deadlines: a plan is due plan_ms after it became possible, a segment of the
 * exchange hop_ms plus a segment's time at the floor rate after the last one,
 * votes vote_ms after one's own. In a butterfly segments to all others share a
 * line: they get the time of all of them, as long as bytes move (EVENT_MOVED).
 * A missed one asks for a change of view.
 *
 * Order. The coordinator's alone; the others check only that it is a valid one.
 * That of the last commit stays, so that connections stay in use, until
 * measured rates promise a clearly faster one (rates.h), a member goes or
 * comes, or a plan of the same members failed: then another one is drawn.
 *
 * Leases. In a run with leases (lease.h) a plan has the ledger after its
 * commit. It follows from the record of the commit before, so whoever has no
 * such record makes no plan, and offers nothing.
 *
 * Kind. A plan without shares and gateways is a ring. With shares it is a
 * butterfly, in a run of rings too, where the terms allow it (`adapts`) and the
 * map says that a slow line makes the ring slower by a quarter, or two attempts
 * failed: a butterfly in which all own as much shows who gives nothing
 * (idle.c). With gateways, in a run with sites, it is one of two levels. The
 * gateway of a site is the last one if it is there and nothing failed, else one
 * that is drawn. So a gateway that dies has a successor with the next plan, and
 * nothing else about an attempt depends on its kind.
 *
 * Audits. In a run with them READY announces what will be sent, block by block
 * (proto/blocks.h); the plan repeats it, and the owner of a slice checks what
 * comes by it. So nobody chooses its contribution by what others sent, and a
 * sum can be repeated (audit.h). No attempt inherits from one that failed: what
 * is inherited was summed under another plan, and nobody could repeat it.
 *
 * Pure: messages through members.h, segments through exchange.h.
 */
#ifndef LOCO_P2P_ROUND_ROUND_H
#define LOCO_P2P_ROUND_ROUND_H

#include "p2p/exchange/bandwidth.h"
#include "p2p/exchange/exchange.h"
#include "p2p/round/ballot.h"
#include "p2p/round/inherit.h"
#include "p2p/round/rests.h"
#include "p2p/swarm/members.h"
#include "p2p/terms.h"

/* Tokens that one contribution can weigh: no machine makes more in a round, and
 * the sum over a view cannot overflow. */
#define ROUND_TOKENS_MAX (1ULL << 48)

/* A commit whose record is held; of round 0 nothing is in it. */
struct round_record {
    bool known;
    struct hash32 hash;
    struct commit commit;
};

struct round_options {
    struct peer_id self;
    struct signer signer;
    /* Borrowed; for the plans that we make. NULL: nothing is known. */
    const struct bandwidth *bandwidth;
    /* Borrowed; in runs with leases the commit whose state is in place. */
    const struct round_record *record;
    const struct text_span *text; /* borrowed, too: what is here; NULL: all */
    /* Borrowed; whom READY names for which reason; NULL: nobody. */
    const struct rests *silence, *astray;
    uint32_t site; /* where this machine stands; 0: at none */
    uint32_t plan_ms, vote_ms, hop_ms;
};

enum round_phase {
    ROUND_TRAINING,  /* no contribution yet */
    ROUND_READY,     /* contributed, no plan or not in it */
    ROUND_REDUCING,  /* in the exchange */
    ROUND_HASHING,   /* all bytes here, hash not yet */
    ROUND_VOTED,     /* own vote is out */
    ROUND_COMMITTED, /* decided; the owner applies it and starts the next */
    ROUND_PHASE_COUNT
};

/* The plan of our last commit: the next plan keeps its order. */
struct round_order {
    uint32_t n;
    struct peer_id peer[VIEW_MEMBERS_MAX];
    bool leads[VIEW_MEMBERS_MAX]; /* of them the gateways */
    enum exchange_kind kind;
};

/* Whose contributions attempts waited for that failed (idle.c). */
struct round_idle {
    struct rests rests;   /* READY names them as silent.. */
    struct rests drawn;   /* ..and those that were left out by lot */
    uint64_t stuck_round; /* for which members were drawn last; 0: none */
    uint32_t n_away;      /* full members that are not in this plan */
    uint32_t n_out;       /* of this plan: who offers work and is not in it */
    struct peer_id out[VIEW_MEMBERS_MAX];
    /* Of the plan that is followed. */
    struct peer_id maker;
    uint64_t untrue; /* by rank: whose READY here is another one */
    uint64_t told;   /* members of the view to whom it was passed on */
    bool two_plans;  /* its maker made two */
    /* Whose sums the last attempt that stood still lacked, of this round. */
    uint32_t n_unheard;
    struct peer_id unheard[VIEW_MEMBERS_MAX];
    bool late; /* nothing moved for half of the time that it may take */
};

/* Why a plan that is followed leaves out our work: members named us (rests.h),
 * or could not use what we sent. */
enum round_rests {
    ROUND_RESTS_NOT,
    ROUND_RESTS_SILENT,
    ROUND_RESTS_ASTRAY,
    ROUND_RESTS_REJECTED
};

/* Attempts that a contribution was exposed in, of which one may be committed.
 */
#define ROUND_EXPOSED_MAX 16

struct round {
    struct round_options opt;
    struct run_terms terms;  /* times already scaled */
    struct members *members; /* borrowed */
    struct ballot *ballot;   /* borrowed: the view */

    uint64_t epoch, round; /* the attempt; round = last committed + 1 */
    struct hash32 view;    /* in which it is made */
    struct hash32 base;    /* commit that it builds on */
    struct hash32 state;   /* hash of the state that it starts from */
    uint64_t tokens_before;
    bool has_state; /* the base is applied here */
    enum round_phase phase;
    bool frozen; /* gave a closing statement: votes no more */
    /* Frames of attempts up to this one are dropped; 0: of none. */
    uint64_t cancelled_up_to;

    bool contributed;
    struct ready_body mine;
    struct hash32 blocks; /* of what is contributed, as in round_work */
    struct hash32 ends;   /* the same */
    bool begun_anew;      /* as round_work has it */
    bool has_moments;     /* with which a lease from that state begins */
    struct moments moments;
    struct hash32 moments_state;

    uint64_t ready; /* bit i: member i of the view */
    struct ready_body readies[VIEW_MEMBERS_MAX];
    uint8_t ready_sig[VIEW_MEMBERS_MAX][SIGN_BYTES];
    /* READY of the next round, from members who knew of the commit of this one
     * before we did; checked, and taken in when it begins. */
    uint64_t early;
    struct ready_body earlies[VIEW_MEMBERS_MAX];
    uint8_t early_sig[VIEW_MEMBERS_MAX][SIGN_BYTES];
    /* Who rests after the newest commit, as so many of those that made it saw
     * them go astray (astray.c). */
    uint32_t n_astray;
    struct peer_id astray[VIEW_MEMBERS_MAX];
    uint64_t possible_ms;   /* since when a plan is possible; 0: not yet */
    uint64_t half_ready_ms; /* since when more than half is ready; 0: no */
    uint64_t quorum_ms;     /* the same, whether or not any of them has work */

    bool has_plan, in_plan;
    struct plan plan;
    struct hash32 plan_hash;
    uint8_t plan_keys[VIEW_MEMBERS_MAX][32]; /* of its members, in order */
    uint64_t plan_mask;
    uint32_t rank;
    enum round_rests rests; /* by the last plan that we had work for */

    struct exchange exchange;
    uint64_t exchange_progress, progress_ms;
    uint64_t moved_ms; /* when bytes of a segment moved, not only whole ones */
    bool quiet;        /* no progress for half of what a hop may take */
    struct round_order order;
    uint32_t n_failed; /* members of a plan that failed since; 0: none did */
    uint32_t n_tries;  /* attempts at this round that failed.. */
    uint32_t n_unexplained; /* ..of them those that nothing explains */
    struct round_idle idle;
    bool has_rejected; /* in this round: no usable numbers came from */
    struct peer_id rejected;

    struct inherit kept; /* of failed attempts at this round */
    bool spoiled;        /* the wire buffer of this attempt is not to be kept */
    bool exposed;        /* `mine` was in an exchange.. */
    uint32_t n_exposed;  /* ..of plans of these views, there as this member */
    struct {
        struct hash32 view;
        uint32_t index;
    } exposed_in[ROUND_EXPOSED_MAX]; /* by n_exposed, the newest */
    uint64_t n_inherited;            /* elements, of all commits we were in */
    struct hash32 result, commit_hash;
    uint64_t voted; /* bit i: votes[i] is in */
    struct vote votes[VIEW_MEMBERS_MAX];
    uint64_t vote_due_ms, resend_ms, started_ms;

    bool has_last;
    struct commit last; /* newest commit record held */
    struct hash32 last_hash;

    int broken; /* row whose data link failed, MEMBERS_NONE */
    uint32_t n_broken;

    bool committed;   /* for round_take_commit() */
    bool want_change; /* for round_take_trouble() */
    bool overdue;     /* a change was asked for: no more deadlines */
    const char *why;  /* static text for want_change */
    uint32_t malformed;
    uint64_t n_aborted;
};

void round_init(struct round *r,
                const struct round_options *opt,
                struct members *members,
                struct ballot *ballot);

/* The run is known. */
void round_configure(struct round *r, const struct run_terms *terms);

/* An earlier life of this process was in that epoch: what is still on its way
 * for it is dropped, or it would hold up a data connection for ever. */
void round_cancel_epoch(struct round *r, uint64_t epoch, struct out *out);

/* Start attempt `round` in the view just adopted or after a commit. `state` is
 * NULL while the base is not applied here (catching up). The contribution, if
 * there is one, is offered at once. */
void round_begin(struct round *r,
                 uint64_t round,
                 const struct hash32 *base,
                 const struct hash32 *state,
                 uint64_t tokens_before,
                 uint64_t now_ms,
                 struct out *out);

/* What is packed: weight in tokens, its inner steps, what they read. */
struct round_work {
    uint64_t tokens, first_step, last_step;
    uint64_t lease;       /* as in READY */
    struct hash32 blocks; /* in a run with audits: the root of its blocks */
    struct hash32 ends;   /* of work: of the moments that it ended with */
    bool begun_anew;      /* not made from the moments of its state */
    /* No work, but the wish to have the state after round rollback.round again
     * (rollback.h). */
    bool asks_rollback;
    struct rollback rollback;
};

/* In a run with audits of work: the inner moments with which a lease from that
 * state begins. NULL: none does, the one under way goes on. A contribution
 * names them as long as it starts from that state. */
void round_moments(struct round *r,
                   const struct moments *m,
                   const struct hash32 *state);

/* The local contribution is packed. */
void round_contribute(struct round *r,
                      const struct round_work *work,
                      uint64_t now_ms,
                      struct out *out);

/* The contribution is spent or thrown away. */
void round_contribution_clear(struct round *r);

/* From a peer (row). */
void round_on_ready(struct round *r,
                    int peer,
                    const struct ready *m,
                    uint64_t now_ms);
void round_on_ready_of(struct round *r,
                       int peer,
                       const struct ready_of *m,
                       struct out *out);
void round_on_plan(struct round *r,
                   int peer,
                   const struct plan *p,
                   uint64_t now_ms,
                   struct out *out);
void round_on_vote(struct round *r, int peer, const struct vote *v);

void round_seg_done(struct round *r,
                    const struct event_seg_done *ev,
                    struct out *out);

/* Bytes of the exchange move. */
void round_moved(struct round *r, uint64_t now_ms);

/* INHERIT into that attempt failed: what earlier ones had finished is gone. */
void round_disinherited(struct round *r, uint64_t attempt, struct out *out);

/* What the shares or the gateways of a valid plan make it. */
enum exchange_kind round_kind(const struct plan_body *p);

/* Tokens that a plan adds to the run: those of its members. Who is only in
 * inherited ranges has left, and its count with it. */
uint64_t plan_tokens(const struct plan_body *plan);

/* Whether this plan has the contribution that we offer: it was in the exchange
 * of that attempt. What else the plan says of us may not be true. */
bool round_is_exposed_in(const struct round *r, const struct plan_body *plan);

/* Hash of the reduced bytes; `request` is the attempt that asked. */
void round_hashed(struct round *r,
                  uint64_t request,
                  int rc,
                  const struct hash32 *hash,
                  uint64_t now_ms,
                  struct out *out);

/* A closing statement was given: leave the exchange, vote no more. */
void round_freeze(struct round *r, struct out *out);

/* The statement, as of now, into a promise. */
void round_closing(const struct round *r, struct statement *closing);

/* The attempt that we voted in was committed under this hash, as a view or a
 * record says: make the record of it, with the votes that are here. False: that
 * was not our vote. */
bool round_decided(struct round *r, const struct hash32 *commit);

/* Whether this record proves a commit of `round` to us: votes of all members
 * of its plan in the current view, or the view itself names it. */
bool round_commit_valid(const struct round *r, const struct commit *c);

/* Whether the plan of the attempt that waits for one is ours to make. */
bool round_coordinates(const struct round *r);

/* Whether a member whose READY starts from our state has work. */
bool round_has_work(const struct round *r);

/* Whether more than half of a deadline of the attempt is over. */
bool round_is_late(const struct round *r, uint64_t now_ms);

void round_tick(struct round *r, uint64_t now_ms, struct out *out);

uint64_t round_deadline(const struct round *r);

/* ---- for the owner ---- */

/* Whether a commit was made since this was asked last. */
bool round_take_commit(struct round *r);

/* Why a change of view is needed, since this was asked last; NULL: it is not.
 * Static text. */
const char *round_take_trouble(struct round *r);

/* This process slept: silence so far proves nothing. */
void round_gap(struct round *r, uint64_t now_ms);

/* A commit of our view that others told us of is the newest one. */
void round_learn(struct round *r,
                 const struct commit *c,
                 const struct hash32 *hash);

/* Our view is given up, with whatever is under way in it. */
void round_leave(struct round *r, struct out *out);

/* What was offered is taken back: where no plan has it, something else may be
 * offered to the same attempt. */
void round_retract(struct round *r);

/* The contribution is withdrawn, and what attempts left of it. */
void round_withdraw(struct round *r);

/* Begin anew, in another group; what was counted stays. */
void round_restart(struct round *r);

#endif
