/* pair.h - one turn after the other with a random partner (NoLoCo).
 *
 * No ballots, no majority, no chain. Everybody has a *soft view*: the peers
 * that are alive and take part, as the membership core knows them; its *epoch*
 * is a digest of that list, so that two who name the same epoch mean the same
 * peers. The partner of turn t is drawn from (run, epoch, t), the same way
 * everywhere (proto/base/pairing.h); with an odd number one has a *bye*.
 *
 *   turn begins    OFFER{turn, epoch} to the partner that our list draws; a
 *                  list that changes draws again
 *   both named it  *agreed*: each posts receives for the partner's payload and
 *                  says so (AGREED, with the attempt of the frames to it). A
 *                  pair that has agreed stays one for this turn, whatever
 *                  happens to the list
 *   meanwhile      the anchor travels: it is final since the last step, so its
 *                  bytes go beside compute
 *   packed         the displacement follows (PACKED)
 *   all is here    hash of both payloads, HAVE{turn, hash}
 *   decided        the owner takes the step: with the partner, or alone (bye)
 *
 * A peer that said HAVE steps with its partner when the partner says HAVE too,
 * or when the partner cannot be asked any more (the link stays down for
 * grace_ms, or nothing moves for longer than that); it steps alone when the
 * partner says PASS. A peer that does not hold everything at its deadline says
 * PASS and steps alone. So both do the same as long as one message gets
 * through, and the mean over the replicas is what it would have been without
 * pairs. If none gets through, one of them may mix while the other does not:
 * the mean moves by at most |phi_i - phi_j| * gamma / 2 + |g_i - g_j| * lr / 2,
 * over the number of replicas (algorithms page 8.7).
 *
 * Turns: a peer that finds most peers around it some turns ahead goes on from
 * their turn. A turn number only decides the partner; the work is kept.
 *
 * Deadlines, all from the moment when we have packed: grace_ms for a partner to
 * agree and to pack, hop_ms plus a segment's time at the floor rate without a
 * byte. Before that the partner is waited for, since we have work to do.
 *
 * Limit: every change of the list draws all pairs of an epoch again. Where
 * peers come and go faster than rumours spread (some seconds), lists seldom
 * agree, and most peers take their turns alone. A pair that has agreed is not
 * affected.
 *
 * What a liar can do: not agree, give up, or send any finite payload: that is
 * one replica's step. It can hold that replica up, too, by asking for segments
 * again and again: not for longer than grace_ms and hop_ms for each segment
 * after it has packed. Nobody else waits for it. Half of the peers around a
 * replica can take it along to a later turn.
 *
 * Pure: messages through members.h, segments as core.h says. Memory: the list,
 * 4 KB. Cost of a change of the list: O(N log N) on its next use.
 */
#ifndef LOCO_P2P_PAIR_PAIR_H
#define LOCO_P2P_PAIR_PAIR_H

#include "p2p/core.h"
#include "p2p/swarm/members.h"
#include "p2p/terms.h"

#define PAIR_WINDOW 16 /* segments under way in each direction */
#define PAIR_OFFERS 4  /* of one turn that are remembered */
#define PAIR_PAST   8  /* turns behind us, for a partner that asks again */

struct pair_options {
    struct peer_id self;
    uint64_t life;
    uint64_t seed;          /* of the draw: the same for the whole run */
    uint64_t first_attempt; /* random, large steps apart from other lives */
    uint32_t hop_ms;
};

enum pair_phase {
    PAIR_IDLE,    /* between two turns */
    PAIR_OPEN,    /* no partner yet, or a bye */
    PAIR_MOVING,  /* agreed; payloads on their way */
    PAIR_HASHING, /* all is here */
    PAIR_HOLDING, /* HAVE is said */
    PAIR_DECIDED, /* the owner takes the step */
    PAIR_PHASE_COUNT
};

/* How a turn came to its end. */
enum pair_end {
    PAIR_END_NONE,
    PAIR_END_BOTH,     /* with the partner, confirmed */
    PAIR_END_HOLDER,   /* with the partner, who could not confirm */
    PAIR_END_ODD,      /* alone: nobody was drawn for us */
    PAIR_END_UNMET,    /* alone: the partner was not there in time, or has
                          another list or turn */
    PAIR_END_PASSED,   /* alone: the partner gave up or was taken */
    PAIR_END_LATE,     /* alone: the payload was not whole in time */
    PAIR_END_MISMATCH, /* alone: the two hold different bytes */
    PAIR_END_COUNT
};

struct pair_list {
    bool made;
    uint64_t epoch;
    uint64_t places;         /* a sum, too: which rows they have */
    uint32_t n, self;        /* peers in it; our own place */
    int rows[PEERS_MAX + 1]; /* sorted by id; MEMBERS_NONE: ourselves */
};

struct pair_offered {
    uint64_t epoch;
    struct peer_id peer;
};

/* How a turn ended here. */
struct pair_past {
    uint64_t turn, epoch;
    struct peer_id peer;
    struct hash32 hash;
    bool with; /* we stepped with that peer */
};

struct pair {
    struct pair_options opt;
    struct run_terms terms;  /* times already scaled */
    struct members *members; /* borrowed */
    struct pair_list list;
    uint64_t now_ms;
    uint64_t seen_epoch, seen_ms; /* of the list, and since when */
    uint64_t look_ms; /* the list is not looked at again before this */

    enum pair_phase phase;
    uint64_t turn, last;   /* last: of the run; 0: no limit */
    bool drawn;            /* once in this turn */
    bool packed, moved_on; /* moved_on: to a later turn, once, while waiting */
    uint64_t packed_ms;
    uint32_t n_offered;
    struct pair_offered offered[PAIR_OFFERS];
    struct pair_offered refused; /* it said PASS in this turn */

    /* The partner: drawn in OPEN, agreed from MOVING on. */
    int row; /* MEMBERS_NONE: a bye */
    struct peer_id peer;
    uint64_t epoch, peer_life;
    bool peer_packed;
    uint64_t resend_ms, progress_ms;
    bool linked;      /* when looked at last */
    uint64_t down_ms; /* since when it is not */

    /* Segments: the anchor's, then the displacement's. */
    uint32_t n_segments; /* of one vector */
    uint64_t attempt;    /* of frames to us */
    uint32_t posted, got;
    bool broken; /* a receive failed: begin again from `got` */
    uint64_t renewed_ms;
    uint64_t to_attempt; /* of frames to the partner; 0: not named yet */
    uint32_t to_next, to_flying;
    bool to_broken;

    bool peer_has;
    struct hash32 hash, peer_hash;

    uint32_t n_past; /* turns decided; the last ones are kept */
    struct pair_past past[PAIR_PAST];

    enum pair_end end; /* of `turn`, once DECIDED */
    uint64_t ends[PAIR_END_COUNT];
    uint64_t n_resumed; /* transfers that went on after a break */
    uint64_t n_moved_on;
    uint32_t malformed;
};

void pair_init(struct pair *p,
               const struct pair_options *opt,
               struct members *members);

/* The run is known. */
void pair_configure(struct pair *p, const struct run_terms *terms);

/* Make the list anew where it changed. */
void pair_look_again(struct pair *p);

/* Peers that take part, as known here, and ourselves. Looks again. */
uint32_t pair_n_members(struct pair *p);

/* Whose turn most of the peers around us are in; 0: nobody is linked. */
uint64_t pair_turn_of_others(const struct pair *p);

/* The anchor is final: turn `turn` begins, or a later one when the others are
 * there already (at most `last`; 0: no limit). p->turn says which. */
void pair_begin(struct pair *p,
                uint64_t turn,
                uint64_t last,
                uint64_t now_ms,
                struct out *out);

/* The displacement is packed, too. */
void pair_pack(struct pair *p, uint64_t now_ms, struct out *out);

/* From a peer (row). */
void pair_on_offer(struct pair *p,
                   int row,
                   const struct pair_offer *m,
                   uint64_t now_ms,
                   struct out *out);
void pair_on_have(struct pair *p,
                  int row,
                  const struct pair_have *m,
                  uint64_t now_ms,
                  struct out *out);

void pair_seg_done(struct pair *p,
                   const struct event_seg_done *ev,
                   uint64_t now_ms,
                   struct out *out);

/* HASH of STEP is done; `request` is the attempt that asked. */
void pair_hashed(struct pair *p,
                 uint64_t request,
                 int rc,
                 const struct hash32 *hash,
                 uint64_t now_ms,
                 struct out *out);

/* DECIDED: whether the step is taken with the partner. */
bool pair_with_partner(const struct pair *p);

/* The step is taken (or the turn given up, when not DECIDED): IDLE. */
void pair_finish(struct pair *p, struct out *out);

/* The own process slept: restart the deadlines. */
void pair_gap(struct pair *p, uint64_t now_ms);

void pair_tick(struct pair *p, uint64_t now_ms, struct out *out);

uint64_t pair_deadline(const struct pair *p);

/* "both", "bye: ...", for people. */
const char *pair_end_text(enum pair_end end);

#endif
