/* audit.h - sums of other owners, repeated at random places.
 *
 * The owner of a slice of a butterfly sums what all members send it, and nobody
 * sees whether it did. In a run with audits contributions are fixed before the
 * round begins (proto/blocks.h), so everybody can ask for a block of each of
 * them afterwards, and make its sum again: the arithmetic gives the same bits
 * everywhere.
 *
 * After each commit that it was in, a member draws blocks, by a number that
 * nobody else knows: if the draws followed from the commit, an owner could try
 * results until no draw met what it altered. For each one it fetches the block
 * of each other member from its maker, checks it by its offer in the plan, and
 * has the machine compare the sum with the result (JOB_AUDIT). Where the bytes
 * differ the owner lied: it voted for this result, this plan and these offers,
 * so its own vote is the evidence (daemon/jobs/evidence.h). Who finds that
 * tells the others where to look (ACCUSE). They believe nothing: each fetches
 * the same blocks, with their proofs, from the accuser and repeats the sum
 * itself. So a false accusation costs a few fetches, and convicts nobody.
 *
 * An owner that alters a share f of its slice is found in a round with
 * probability 1 - (1 - f)^d: the n members draw d blocks each, and an n-th of
 * all draws is in its slice. The blocks are audit_draws(): at most 3 % of what
 * a round moves anyway.
 *
 * *Silence.* No sum can be repeated without the contribution of each member. An
 * owner that lies can serve its own to nobody, or a friend of it can. A draw
 * that misses the contributions of a few (of half of the others at most: else
 * the fault is on our side) is said to the others (ACCUSE with `silent`). Each
 * of them asks for the same block, of the makers, and sees for itself: it is
 * answered, then it repeats the sum, and a lie convicts; or it is not, then it
 * names the silent member in READY, and whom more than half name owns no slice
 * for some rounds (rests.h). An honest member answers, and nothing follows.
 *
 * What it does not see: what a member contributed (that is for an audit of
 * work). In rounds shorter than about twice `patience_ms` a commit comes before
 * anybody is known to be silent.
 *
 * *Time.* Draws are spread over the first half of the time that a round takes
 * (the shorter one of the last two, or whoever holds up one round would meet
 * few draws in the next), so that members of a large view do not all ask at
 * once, and an answer may take an 8th of that, at most `wait_ms`. Members hold
 * a result at different times, and the first ones have nobody yet that serves.
 * So a draw that is refused, or of which a source is away, is asked for again
 * after a 32nd of that patience, a 16th, .. a half, and then given up.
 *
 * What others say and own draws take turns, and of several accusations the next
 * one is drawn: members that accuse falsely and then say nothing hold up
 * neither the draws nor a true accusation for more than the patience each. Of
 * blocks that are said to be unserved no more are looked at than are drawn, and
 * whoever said so of a block that we were served has its next words looked at
 * last, when three quarters of the round are over (for 2, 4, 8 .. 64 rounds).
 *
 * Pure. One block at a time; at most one accusation and one word about silence
 * of each member.
 */
#ifndef LOCO_P2P_ROUND_AUDIT_H
#define LOCO_P2P_ROUND_AUDIT_H

#include "p2p/exchange/butterfly.h"
#include "p2p/round/rests.h"
#include "p2p/swarm/members.h"
#include "proto/messages.h"

#define AUDIT_DRAWS_MAX 16

/* A commit that can be audited: a butterfly of this peer, with offers. */
struct audit_commit {
    uint64_t round;
    struct hash32 hash;
    struct butterfly_shape shape;
    uint32_t rank; /* ours */
    struct peer_id member[VIEW_MEMBERS_MAX];
    struct hash32 offer[VIEW_MEMBERS_MAX];
    double scale[VIEW_MEMBERS_MAX]; /* of its contribution in the sum */
};

/* A block of its result. */
struct audit_block {
    uint64_t offset; /* of its first element */
    uint32_t len;
    uint32_t owner; /* rank of who summed it */
    int source;     /* row of who has all contributions to it; MEMBERS_NONE:
                       each its own */
};

enum audit_phase { AUDIT_IDLE, AUDIT_FETCHING, AUDIT_SUMMING };

/* What members say about blocks of this commit. */
struct audit_words {
    uint64_t heard;                /* bit i: member i said it.. */
    uint64_t waiting;              /* ..and nobody looked yet.. */
    uint64_t at[VIEW_MEMBERS_MAX]; /* ..at the block of this element */
};

struct audit {
    struct members *members; /* borrowed */
    uint32_t wait_ms;
    uint64_t attempt; /* of STREAM_AUDIT; grows for ever */

    bool has; /* a commit */
    struct audit_commit commit;
    uint64_t draw;        /* state of the generator */
    uint32_t left;        /* blocks to draw.. */
    uint64_t gap_ms;      /* ..one after so long.. */
    uint64_t next_ms;     /* ..and not before that time */
    uint64_t patience_ms; /* for an answer */
    uint64_t took_ms;     /* the round before the last one; 0: unknown */
    enum audit_phase phase;
    struct audit_block block; /* unless idle */
    uint64_t missing;         /* bit i: contribution i has not come */
    uint64_t due_ms;
    struct audit_words wrong, unserved;
    uint8_t whom[VIEW_MEMBERS_MAX]; /* unserved by that rank */
    uint64_t heard_twice;   /* bit i: i accused once more, as its blocks did not
                               come */
    uint32_t unserved_left; /* words of silence that are looked at */
    struct rests vain;      /* who said such words, and we were served.. */
    uint64_t last;          /* ..bit i: so that of member i comes last.. */
    uint64_t last_ms;       /* ..not before that time */
    uint32_t sayer;         /* of the block, where it is one of `unserved` */
    bool was_said;          /* the block before was one that others named */
    /* The last draw, which may be asked for again. */
    struct audit_block drawn;
    bool is_own;       /* not one of `unserved` */
    uint32_t n_again;  /* it was put off so many times.. */
    bool again;        /* ..and is to be asked for again.. */
    uint64_t again_ms; /* ..from then on; 0: the next tick says when */
    uint64_t silent;   /* bit i: contribution i could not be had.. */
    uint64_t known;    /* ..and of those that were asked for */
    bool has_word;     /* that is to be said to the others.. */
    bool was_word;     /* ..once about a commit */
    struct accuse word;

    uint64_t n_blocks, n_unanswered, n_wrong, n_false; /* n_false: accusations
                                                          that were none */
};

void audit_init(struct audit *a,
                struct members *members,
                uint32_t wait_ms,
                uint64_t first_attempt);

/* Blocks that a member of n draws. */
uint32_t audit_draws(const struct butterfly_shape *shape);

/* A commit was made: what was left of the one before is given up. `secret`: a
 * number of this commit that others cannot guess. `round_ms`: what a round
 * takes of late; 0: unknown. */
void audit_begin(struct audit *a,
                 const struct audit_commit *c,
                 uint64_t secret,
                 uint64_t now_ms,
                 uint64_t round_ms,
                 struct out *out);

/* No commit any more: the group is left. */
void audit_stop(struct audit *a, struct out *out);

/* That peer (row) says that a block is wrong, or that a contribution to it is
 * not served. False: it is not looked at: of another commit, of no member, of
 * ourselves, or its second one. */
bool audit_on_accuse(struct audit *a, int peer, const struct accuse *m);

/* The members (ranks, bits) whose contribution could not be had since this was
 * asked last. *says: `word` is for the others. */
uint64_t audit_take_silent(struct audit *a, struct accuse *word, bool *says);

void audit_seg_done(struct audit *a,
                    const struct event_seg_done *ev,
                    struct out *out);

void audit_refused(struct audit *a,
                   int peer,
                   const struct fetch_no *no,
                   struct out *out);

/* What JOB_AUDIT found. True: the sum of block `b` is wrong. Nothing more of
 * this commit is looked at then: the machine keeps the contributions to that
 * block for those who want to see. */
bool audit_summed(struct audit *a,
                  const struct local_event *e,
                  struct audit_block *b);

/* Begin the next block; give up one whose source is silent. */
void audit_tick(struct audit *a, uint64_t now_ms, struct out *out);
uint64_t audit_deadline(const struct audit *a);

#endif
