/* ballot.h - how a view is replaced: single-decree Paxos per epoch.
 *
 * The members of the current view are the acceptors. Ballot b belongs to the
 * member at hash(epoch, b) mod n, so the role passes on by itself. Its owner
 * asks everybody (PREPARE); each answers once per ballot with a signed
 * PROMISE: never to accept a lower ballot, and its closing statement about the
 * round in flight. From then on it takes no part in rounds of this epoch
 * (*frozen*), so what the statement says stays true. With promises of more
 * than half of the view the owner proposes the next view (ACCEPT): the value
 * of the highest ballot already accepted by one of them, where half of the view
 * may have accepted it, or a new one made of everybody who answered, with the
 * fate of the round in flight:
 *     somebody committed it, all left members of its plan voted the same, or
 *     half of all members did
 *     -> committed; else -> aborted, and tried again in the new epoch.
 * Nobody believes the owner: ACCEPT carries the promises and the JOINs that the
 * value is made of, and whoever signs it makes it again (ballot_value.c).
 * Signatures of more than half on one ballot are the certificate (view.h).
 * Lamport 2001, "Paxos made simple"; the closing statements are ours.
 *
 * Two more uses of the same messages: a side of a cut without a majority may,
 * after fork_after_ms in doubt, found a view that all its members sign (FORK);
 * peers without any view found the first one (FOUND).
 *
 * What must survive a restart goes out as SAVE before the message it allows.
 *
 * Pure: messages through members.h, time in the context.
 */
#ifndef LOCO_P2P_ROUND_BALLOT_H
#define LOCO_P2P_ROUND_BALLOT_H

#include "p2p/round/asking.h"
#include "p2p/round/convicts.h"
#include "p2p/round/probation.h"
#include "p2p/round/view.h"
#include "p2p/swarm/members.h"
#include "p2p/terms.h"

#define BALLOT_JOINERS_MAX VIEW_JOINS_MAX
#define BALLOT_OUSTED_MAX  16

struct ballot_options {
    struct peer_id self;
    uint8_t public_key[32];
    struct signer signer;
    struct hash32 run;
    uint32_t ballot_ms;
    uint32_t fork_after_ms;
    uint64_t seed;
    enum exchange_kind exchange; /* of the run: what members must be able to */
    uint32_t probation_rounds;   /* of newcomers; 0: they are full at once */
};

enum ballot_phase { BALLOT_IDLE, BALLOT_GATHER, BALLOT_SIGN };

enum ballot_want {
    BALLOT_WANT_NOTHING,
    BALLOT_WANT_JOIN,  /* for a joiner, or for who is on probation: the
                          coordinator proposes it, before the next plan */
    BALLOT_WANT_CHANGE /* at once */
};

/* A view that follows no other, or whose predecessor this peer was in before it
 * restarted. */
struct ballot_founding {
    uint64_t epoch;
    uint32_t least;     /* members of it */
    uint32_t least_old; /* members of it that were in the view that we were
                           in */
};

struct ballot_joiner {
    bool used;
    bool tried; /* a view made at `tried_round` left it out */
    uint64_t tried_round;
    int peer;
    uint64_t said_ms; /* its last JOIN came */
    uint64_t round;   /* of the commit that it holds now */
    struct hash32 commit;
    uint8_t public_key[32];
    uint64_t linked;  /* bit i: member i says so, or is it, in our ballot */
    struct join join; /* as it said it, maybe one commit ago */
};

/* Was left out because of its edges; not taken in before that round. */
struct ballot_ousted {
    uint8_t public_key[32];
    uint32_t times; /* 0: free */
    uint64_t until_round;
};

/* Members of the view that said goodbye, and how they said it. */
struct departures {
    uint64_t mask;
    struct parting said[VIEW_MEMBERS_MAX]; /* by member */
};

struct ballot {
    struct ballot_options opt;
    struct members *members; /* borrowed */
    uint64_t rng;

    /* The view that we are in (have), or were in before a restart. */
    bool have, restored;
    struct view_cert cert;
    struct hash32 hash; /* of cert.body */
    /* The one that it followed here, and its hash; zeros: none. */
    struct view_body before;
    struct hash32 before_hash;
    int self_index; /* in the view; -1 when !have */
    struct peer_id ids[VIEW_MEMBERS_MAX];
    int rows[VIEW_MEMBERS_MAX]; /* in members; MEMBERS_NONE for oneself */
    struct departures departed;
    uint64_t lost; /* members that are not left: lost, restarted */

    /* Acceptor of the next view. */
    bool frozen, has_promised, fork_bound;
    uint64_t promised, accepted_ballot;
    bool has_accepted;
    struct standing accepted;
    uint64_t refused; /* 1 + the ballot whose value came out otherwise */
    uint64_t refused_without; /* members whom a refused value left out.. */
    uint8_t refused_of[VIEW_MEMBERS_MAX];  /* ..and the member that made it */
    uint64_t found_ballot, found_until_ms; /* bound to a founder until then */
    struct peer_id found_by;
    struct asking asks; /* who asked for a change without a cause */

    /* Proposer. */
    enum ballot_phase phase;
    enum view_mode mode;
    uint64_t current, deadline_ms;
    struct prepare asked; /* BALLOT_GATHER, said again at again_ms */
    uint64_t again_ms;
    uint32_t n_electors;
    uint8_t elector_keys[VIEW_MEMBERS_MAX][32];
    int elector_rows[VIEW_MEMBERS_MAX];
    uint64_t answered; /* bit i: promises[i] is in */
    struct promised promises[VIEW_MEMBERS_MAX];
    bool has_claim; /* somebody accepted `proposal` in ballot `claimed` */
    uint64_t claimed;
    struct proposal proposal; /* BALLOT_SIGN: ours */
    struct hash32 value_hash; /* of its value */
    struct accept asking;     /* what is sent; no stack holds it */
    uint32_t n_sigs;
    struct view_signature sigs[VIEW_MEMBERS_MAX];

    enum ballot_want want;
    uint64_t try_at_ms, next_ballot, doubt_since_ms;
    uint64_t slow; /* owners (bits) whose ballot had its time, and no view */
    uint32_t slow_turns;             /* so often all of them were */
    bool unsaved;                    /* what was promised may not be on disk */
    struct ballot_founding founding; /* ours */
    struct ballot_joiner joiners[BALLOT_JOINERS_MAX];
    struct ballot_ousted ousted[BALLOT_OUSTED_MAX];
    struct probation probation;
    struct convicts convicts;

    /* A view that names us and follows one that we do not know: its signers
     * mean nothing to us. The owner confirms it when enough of its other
     * members say that they are in it. */
    bool has_pending;
    struct view_cert pending;
    struct hash32 pending_hash;

    bool adopted;        /* for ballot_take_view() */
    uint32_t n_left_out; /* members before it who neither stay nor said
                            goodbye, and of whose loss we had not heard */
    struct peer_id left_out[VIEW_MEMBERS_MAX];
    uint64_t adopted_ms;
    uint32_t malformed;

    uint32_t n_lineage;
    struct {
        uint64_t epoch;
        struct hash32 hash;
    } lineage[LINEAGE_MAX];
};

/* A state that was in place here. */
struct past_state {
    uint64_t round;
    struct hash32 commit, state;
    struct hash32 sample; /* of that state: what a joiner must know of it */
    struct hash32 result; /* reduced bytes that led to it; zero: not known */
};

/* What the owner knows at the moment of a call. */
struct ballot_context {
    uint64_t now_ms;
    struct out *out;
    struct statement closing; /* round.. broken; the rest is filled in */
    struct hash32 base;       /* of the commit that `closing` names; zero: not
                                 known */
    const struct past_state *past; /* (n_past) borrowed: what joiners prove */
    uint32_t n_past;
    bool in_flight;   /* a plan is known in this epoch */
    bool late;        /* more than half of a deadline of the round in
                         flight is over */
    bool coordinates; /* the next plan is ours to make */
    bool may_found;   /* viewless, and ready to train */
};

/* The last SAVE failed. */
void ballot_save_failed(struct ballot *b);

void ballot_init(struct ballot *b,
                 const struct ballot_options *opt,
                 struct members *members,
                 uint64_t now_ms);

/* Take back what an earlier life saved. */
void ballot_restore(struct ballot *b, const struct ballot_record *record);

/* Ask for a change of view; an earlier, stronger wish stays. */
void ballot_want(struct ballot *b, enum ballot_want want, uint64_t now_ms);

/* Found a view with these linked peers (rows) and oneself. */
void ballot_found(struct ballot *b,
                  const struct ballot_context *ctx,
                  const int *rows,
                  uint32_t n,
                  const struct ballot_founding *founding);

/* From a peer (row). */
void ballot_on_suspect(struct ballot *b,
                       const struct ballot_context *ctx,
                       int peer,
                       const struct suspect *s);
void ballot_on_prepare(struct ballot *b,
                       const struct ballot_context *ctx,
                       int peer,
                       const struct prepare *p);
void ballot_on_accept(struct ballot *b,
                      const struct ballot_context *ctx,
                      int peer,
                      const struct accept *a);
void ballot_on_promise(struct ballot *b,
                       const struct ballot_context *ctx,
                       int peer,
                       const struct promise *p);
void ballot_on_accepted(struct ballot *b,
                        const struct ballot_context *ctx,
                        int peer,
                        const struct accepted *a);

/* From anybody: the certificate speaks for itself. */
void ballot_on_view(struct ballot *b,
                    const struct ballot_context *ctx,
                    const struct view_cert *cert);

/* A peer wants in that holds the newest commit, which is the one of that round,
 * or fetches it and holds the one before, which its JOIN names. */
void ballot_joiner_add(struct ballot *b,
                       int peer,
                       const struct join *join,
                       uint64_t round,
                       const struct hash32 *commit,
                       uint64_t now_ms);

/* There is a newer commit, made from `base`: who said since `since_ms` that it
 * holds that wants in still, and fetches the new one. Where members train for a
 * moment only, whoever says so after the commit comes too late each time. */
void ballot_joiners_follow(struct ballot *b,
                           const struct hash32 *base,
                           uint64_t round,
                           const struct hash32 *commit,
                           uint64_t since_ms);

/* Whether we, who have no view, are bound to that peer (row) as its founder. */
bool ballot_founds(const struct ballot *b, int peer);

/* The view of that hash, if it is ours or the one before it here: a commit that
 * our view decided was planned in that one. NULL: it is another one. */
const struct view_body *ballot_view_of(const struct ballot *b,
                                       const struct hash32 *view);

/* Which member of our view this is; -1: none, or we are in none. */
int ballot_index(const struct ballot *b, const struct peer_id *id);

/* A member said goodbye, to the run or group of our view: its signature was
 * checked. */
void ballot_departed(struct ballot *b, const struct goodbye *m);

/* A member is lost, or was restarted. */
void ballot_lost(struct ballot *b, const struct peer_id *id);

/* A view without it is wanted: at once if it is full; who is on probation ends
 * no round by going. */
void ballot_want_without(struct ballot *b,
                         const struct peer_id *id,
                         uint64_t now_ms);

/* A proof that this peer lied was checked here. It goes out of the views when
 * more than half of their full members hold one, and comes into none with our
 * signature; a view without it is asked for. Said again it changes nothing. */
void ballot_convict(struct ballot *b, const struct peer_id *id);

/* Whether we hold one. */
bool ballot_is_convict(const struct ballot *b, const struct peer_id *id);

void ballot_tick(struct ballot *b, const struct ballot_context *ctx);

uint64_t ballot_deadline(const struct ballot *b);

/* Enter the pending view. */
void ballot_confirm(struct ballot *b, const struct ballot_context *ctx);

/* Leave the current view: a joiner from now on, who still votes on the view
 * that follows the one it left. */
void ballot_drop_view(struct ballot *b, uint64_t now_ms);

/* The run is over, and the view of an earlier life was the last: be in it
 * again, for others to see whose end this is. The owner asks for nothing there
 * and hands in no message of a ballot any more. False: there is none. */
bool ballot_return(struct ballot *b, uint64_t now_ms);

/* Whether a view hash is a recent ancestor of ours, or ours. */
bool ballot_descends_from(const struct ballot *b, const struct hash32 *hash);

/* Whether more than half of the view can be reached now, and are in no other
 * view. */
bool ballot_sees_majority(const struct ballot *b);

/* ---- for the owner ---- */

/* Whether a view was adopted since this was asked last. */
bool ballot_take_view(struct ballot *b);

/* Those whom the adopted view left out, see n_left_out; asked once. */
uint32_t ballot_take_left_out(struct ballot *b,
                              struct peer_id ids[VIEW_MEMBERS_MAX]);

/* This process slept: doubt begins now. */
void ballot_gap(struct ballot *b, uint64_t now_ms);

/* The run is known: times already scaled. */
void ballot_configure(struct ballot *b,
                      uint32_t fork_after_ms,
                      enum exchange_kind exchange,
                      uint32_t probation_rounds);

/* Views are of this group from now on. */
void ballot_set_group(struct ballot *b, const struct hash32 *group);

/* Begin anew, in another group; what was counted stays. */
void ballot_restart(struct ballot *b, uint64_t now_ms);

#endif
