/* work.h - audits of work: leases of others, made again.
 *
 * After each commit a member draws, by a number that nobody else knows, whether
 * it audits the contribution of another one, the *maker*, and whose (repeat.h:
 * one round in REPEAT_EVERY). It fetches from the maker the inner moments that
 * the lease began with, some blocks of what the maker sent, and some of the
 * moments that its next lease began with; all three were announced before
 * anybody could ask. Then it makes the lease again (JOB_REPEAT), and leaves out
 * one round of its own for that. Where the work is bad it says so (VERDICT).
 * That opens a *case*: each full member does the same and says what it read,
 * and of whom more than half say that the work is bad, is convicted.
 *
 * *Moments* are announced (MOMENTS) with the state in place, before the lease
 * is trained. Without them a maker could invent, after it was asked, moments
 * that lead to whatever it sent; and with them alone it could train nothing and
 * announce such ones each round. So those of the next lease must be those with
 * which the repeat ended (repeat.h, `after`).
 *
 * *Silence.* Who contributes to two commits in a row and announced nothing for
 * the second, or does not serve what it announced, is named in READY
 * (silence.h), and so is who was read as bad: a liar that serves some members
 * and not others is either convicted or in no plan. Who missed a commit may
 * have begun its lease before it, and is not asked.
 *
 * *Time.* The pieces come while both train. A repeat that was drawn begins when
 * the trainer is free, that is between two rounds; in a case at once, and the
 * own round is late. Who does not serve what the last commits have is silent;
 * of older ones an honest member holds nothing any more. A maker may hold a
 * commit later than its auditor: what it refuses is asked for again, AGAIN_MAX
 * times, later each time.
 *
 * What it does not see: repeat.h, who misses every second commit, and more:
 * STRANGERS.md, section 5. So no run can ask for it yet.
 *
 * Pure. One lease at a time. REPEAT_COMMITS and WORK_COMMITS commits.
 */
#ifndef LOCO_P2P_ROUND_WORK_H
#define LOCO_P2P_ROUND_WORK_H

#include "p2p/core.h"
#include "p2p/round/repeat.h"
#include "p2p/swarm/members.h"
#include "proto/messages.h"

/* Commits whose contributions are still served. A verdict comes about two
 * rounds after the commit, and others need one more to look for themselves. */
#define WORK_COMMITS 4

/* Blocks that are read, of what was sent and of the next moments. */
#define WORK_DRAWS 16

#define WORK_WINDOW 4 /* pieces asked for at a time */
#define WORK_SAID   (3 * VIEW_MEMBERS_MAX)

/* A member of the view of a commit. */
struct work_maker {
    bool again;            /* it was in the commit before as well */
    struct hash32 offer;   /* of its contribution (proto/blocks.h) */
    struct hash32 moments; /* announced for that round; zeros: not heard */
    uint64_t moment_steps; /* of its optimizer then */
    uint32_t steps;        /* that it trained.. */
    struct lease lease;    /* ..of these positions */
};

struct work_commit {
    struct repeat_commit what;
    uint64_t elements; /* of a contribution; of moments twice as many */
    uint32_t block;    /* that both are cut at */
    struct work_maker maker[VIEW_MEMBERS_MAX]; /* as what.member */
};

/* What a member announced. */
struct work_said {
    struct peer_id id;
    uint64_t round; /* whose lease begins with them; 0: free */
    struct hash32 root;
    uint64_t steps;
};

enum work_phase {
    WORK_IDLE,
    WORK_FETCHING,
    WORK_WAITING, /* all is here, the trainer is not free */
    WORK_REPEATING
};

struct work {
    struct members *members; /* borrowed */
    struct peer_id self;
    uint32_t wait_ms;
    uint64_t attempt; /* of STREAM_WORK; grows for ever */

    struct repeat repeat;
    uint32_t n_commits;
    struct work_commit commit[WORK_COMMITS]; /* the newest first */
    struct work_said said[WORK_SAID];
    uint64_t draw; /* state of the generator */
    bool has_draw; /* commit[0] is to be audited.. */
    uint32_t whom; /* ..this maker's */

    enum work_phase phase;
    bool is_case;             /* others asked for it */
    struct work_commit about; /* unless idle */
    uint32_t maker;           /* place in it */
    struct hash32 after;      /* moments of its next lease; zeros: not heard */
    uint64_t sent_at[WORK_DRAWS], after_at[WORK_DRAWS]; /* elements */
    uint32_t n_pieces, next, n_flying;
    uint64_t flying[WORK_WINDOW]; /* piece + 1; 0: free */
    uint64_t due_ms;              /* for the next piece */
    uint32_t n_again;             /* it was asked for again so many times.. */
    bool again;                   /* ..and is to be.. */
    uint64_t again_ms; /* ..from then on; 0: the next tick says when */

    uint32_t n_silent; /* for work_take_silent() */
    struct peer_id silent[VIEW_MEMBERS_MAX];

    uint64_t n_read, n_bad, n_unclear, n_unserved; /* leases */
};

void work_init(struct work *w,
               struct members *members,
               const struct peer_id *self,
               uint32_t wait_ms,
               uint64_t first_attempt);

/* A commit that we were in is in place. `moments` and `again` of the makers are
 * filled in here. `secret`: a number of this commit that others cannot guess.
 */
void work_commit(struct work *w, const struct work_commit *c, uint64_t secret);

/* No commit any more: the group is left, or its state was taken back. */
void work_stop(struct work *w, struct out *out);

/* A member of our view announced the moments of its next lease; `round`: the
 * one that is being made here. */
void work_on_moments(struct work *w,
                     const struct peer_id *id,
                     const struct moments *m,
                     uint64_t round);

/* What a full member says that it read. REPEAT_CONVICTED: m->accused is. */
enum repeat_end work_on_verdict(struct work *w,
                                const struct peer_id *speaker,
                                const struct verdict_body *m);

void work_seg_done(struct work *w,
                   const struct event_seg_done *ev,
                   struct out *out);
void work_refused(struct work *w,
                  int peer,
                  const struct fetch_no *no,
                  struct out *out);

/* Begin the next lease; ask for pieces; give up one that does not come. */
void work_tick(struct work *w, uint64_t now_ms, struct out *out);
uint64_t work_deadline(const struct work *w);

/* The trainer is free: JOB_REPEAT, if all is here. True: this member leaves out
 * the round that begins. */
bool work_begin_repeat(struct work *w, struct out *out);

/* What REPEATED says. True: the verdict is to be said to all; *end: what
 * follows from it. */
bool work_repeated(struct work *w,
                   const struct local_event *e,
                   struct verdict_body *say,
                   enum repeat_end *end);

/* Members that are to be named silent in READY, one after the other. */
bool work_take_silent(struct work *w, struct peer_id *who);

#endif
