/* work.h - audits of work: leases of others, made again.
 *
 * A READY of work names the inner moments that its lease began with, and the
 * plan repeats them: so a commit says of each member what it sent, from which
 * state, moments and positions it came, and says the same to all. After each
 * commit a member draws, by a number that nobody else knows, whether it audits
 * a contribution to the commit *before* it, and of which *maker* (repeat.h: one
 * round in REPEAT_EVERY). It fetches from the maker the moments of that lease,
 * some blocks of what the maker sent, and some of the moments that the lease
 * ended with; all three were in a commit before anybody could ask. Then it
 * makes the lease again (JOB_REPEAT), and leaves out one round of its own for
 * that. Where the work is bad it says so (VERDICT). That opens a *case*: each
 * full member does the same and says what it read, and of whom more than half
 * say that the work is bad, is convicted.
 *
 * *A chain of moments.* A maker could announce any moments that lead to
 * whatever it sent. So it announces those that its lease ended with, too: the
 * repeat must come to them (repeat.h, `after`), and its next lease must begin
 * with them, by their hash, however many rounds are between the two. Work that
 * missed a commit is undone by its maker, moments and all, so that this is no
 * exception. A lease may also begin where the one before began, once (a member
 * that slept does not know that its last work was taken; but whoever chose
 * moments once would have them in all of its leases), or anew, with moments of
 * no step, which needs an excuse where the method does not do it: young moments
 * are wild (repeat.h, `calm`). Of moments that are implausible beside the
 * auditor's own (`stretch`) no work is good.
 *
 * *Silence.* Who works of no lease that can be made again is named in READY
 * (rests.h), whatever text it says that it has: who can read nothing of its
 * lease makes no step. So is who does not serve what it announced, and who was
 * read as bad: a liar that serves some members and not others is either
 * convicted or in no plan. Once in WORK_EXCUSE rounds it is excused: a GPU may
 * be lost. Chains are followed from the records of commits, by members of their
 * plans and others alike; over a record that never came here, or a state that
 * is taken back, no chain leads, and the next lease may begin with any moments,
 * which it has to name. Where more than half of all are to be named, it is no
 * maker's doing.
 *
 * *Room.* Each case that is looked into has a room, and so has one lease that
 * was drawn: else anybody could end audits by accusing somebody, and two
 * accusers each other's cases. Pieces come for one at a time, for cases first,
 * and each for wait_ms at most while another one waits. Bad work
 * of which no case comes, as there is no room for one or as it was read when
 * others could not look into it any more, is looked for once more.
 * A lease that was read is not read again for a case.
 *
 * *Time.* The pieces come while both train. A repeat begins when the trainer is
 * free, between two rounds. In a case all have one to make: each waits for its
 * turn, one round in WORK_TURNS, so that a plan keeps most of the honest work.
 * Who does not serve what the
 * last commits have is silent; of older ones an honest member holds nothing any
 * more. A maker may hold a commit later than its auditor: what it refuses is
 * asked for again, AGAIN_MAX times, later each time.
 *
 * What it does not see: repeat.h, and more: STRANGERS.md, section 5.
 *
 * Pure. WORK_ROOMS leases at a time, one of them is made again. WORK_COMMITS
 * commits.
 */
#ifndef LOCO_P2P_ROUND_WORK_H
#define LOCO_P2P_ROUND_WORK_H

#include "p2p/core.h"
#include "p2p/round/convicts.h"
#include "p2p/round/repeat.h"
#include "p2p/swarm/members.h"
#include "proto/messages.h"

/* Commits whose contributions are still served, as OFFERS_PAST_MAX: one until
 * the draw, two until the verdict, and others need one more to fetch. */
#define WORK_COMMITS 5

/* Blocks that are read, of what was sent and of the next moments. */
#define WORK_DRAWS 16

/* Leases that are looked into at a time: each case, and one that was drawn. */
#define WORK_ROOMS (1 + REPEAT_CASES_MAX)

#define WORK_WINDOW 4  /* pieces asked for at a time */
#define WORK_TURNS  8  /* in a case at most one member in so many repeats */
#define WORK_EXCUSE 16 /* rounds */
#define WORK_WORDS  8
#define WORK_KNOWN  8 /* readings that are remembered */
/* Makers whose moments are followed, in the view or not: a new seat is no new
 * beginning. Of more, who worked longest ago is forgotten. */
#define WORK_CHAINS (2 * VIEW_MEMBERS_MAX)
#define WORK_LOOKS  4 /* makers that are to be looked at again */

/* A member of the view of a commit, and what the plan says of it. */
struct work_maker {
    bool works;            /* it contributed tokens.. */
    bool owes;             /* ..so of a lease, as the ledger is known here */
    struct hash32 offer;   /* of its contribution (proto/blocks.h) */
    struct hash32 moments; /* that its lease began with; zeros: not said */
    struct hash32 ends;    /* and ended with */
    uint64_t moment_steps; /* of its optimizer when it began */
    uint32_t steps;        /* that it trained.. */
    struct lease lease;    /* ..of these positions */
    bool leads;            /* it has more than REPEAT_SHARE of the tokens */
};

/* Where the moments of a member are, as of its last lease in a commit. */
struct work_chain {
    struct peer_id id;
    uint64_t round;             /* of that lease */
    struct hash32 began, ended; /* zeros: it named none */
    uint64_t began_steps, ended_steps;
    bool again; /* it began where the one before had begun, too */
};

struct work_commit {
    struct repeat_commit what; /* lease: of what can be made again */
    struct hash32 before;      /* the commit that it follows */
    struct hash32 zeros;       /* root of the blocks of moments of nothing */
    bool inherits;      /* parts were made before: it is of no use to audits */
    bool takes_back;    /* a state: it has no work */
    bool anew;          /* moments begin anew with each round */
    struct hash32 base; /* the state that the leases began from */
    uint64_t elements;  /* of a contribution; of moments twice as many */
    uint32_t block;     /* that both are cut at */
    struct work_maker maker[VIEW_MEMBERS_MAX]; /* as what.member */
};

enum work_phase {
    WORK_IDLE,
    WORK_FETCHING,
    WORK_WAITING, /* all is here, the trainer is not free, or not our turn */
    WORK_REPEATING
};

/* A lease that is looked into. */
struct work_task {
    enum work_phase phase;
    bool is_case;             /* others asked for it */
    struct work_commit about; /* unless idle */
    uint32_t maker;           /* place in it */
    uint64_t sent_at[WORK_DRAWS], after_at[WORK_DRAWS]; /* elements */
    uint32_t n_pieces, next;
    uint32_t n_busy;       /* so often our own room was in use.. */
    uint32_t n_again;      /* it was asked for again so many times.. */
    bool again;            /* ..and is to be.. */
    uint64_t again_ms;     /* ..from then on; 0: the next tick says when.. */
    uint32_t again_for_ms; /* ..that is */
};

/* What this member says of a lease. */
struct work_word {
    struct verdict_body body;
    enum repeat_end end;           /* what follows from it.. */
    struct repeat_counted counted; /* ..if that is not REPEAT_NONE */
};

struct work {
    struct members *members; /* borrowed */
    struct peer_id self;
    uint32_t wait_ms;
    uint64_t attempt; /* of STREAM_WORK; grows for ever */

    struct repeat repeat;
    struct convicts convicts; /* nobody looks at their work any more */
    uint32_t n_commits;
    struct work_commit commit[WORK_COMMITS]; /* the newest first */
    uint64_t draw;                           /* state of the generator */
    struct hash32 followed; /* the last commit that chains were followed to */
    uint32_t n_chains;
    struct work_chain chain[WORK_CHAINS];
    /* Whose lease of commit i is to be audited, its place + 1; 0: nobody's. */
    uint32_t drawn[WORK_COMMITS];
    struct verdict_body known[WORK_KNOWN]; /* what we read: a case may follow */
    uint32_t n_known;                      /* ever */
    /* Whose work we read as bad while nobody looked into that. */
    uint32_t n_looks;
    struct peer_id looks[WORK_LOOKS];
    struct {
        struct peer_id id;
        uint64_t round; /* its last excuse; 0: a free place */
    } excused[VIEW_MEMBERS_MAX];

    struct work_task task[WORK_ROOMS];
    /* The one whose pieces come; WORK_ROOMS: none. One at a time, as a CANCEL
     * ends all older attempts. */
    uint32_t active, last; /* the last one that was */
    uint32_t n_flying;
    uint64_t flying[WORK_WINDOW]; /* piece + 1; 0: free */
    uint64_t due_ms;              /* for the next piece */
    uint64_t since_ms;            /* it is this one's turn */

    uint32_t n_silent; /* for work_take_silent() */
    struct peer_id silent[VIEW_MEMBERS_MAX];
    uint32_t n_words; /* for work_take_word() */
    struct work_word words[WORK_WORDS];

    uint64_t n_read, n_bad, n_unclear, n_unserved; /* leases */
};

void work_init(struct work *w,
               struct members *members,
               const struct peer_id *self,
               uint32_t wait_ms,
               uint64_t first_attempt);

/* What a plan says of a member's work. `lease`: what the ledger gives it, which
 * may be nothing; NULL: the ledger is not known here. `most`: steps of the
 * longest round. True: it can be made again. */
bool work_describe(struct work_maker *m,
                   const struct plan_member *p,
                   const struct lease *lease,
                   uint64_t most);

/* A commit was made, with us or without: whose work goes on, and who is to be
 * named. One after the other; what.lease is changed. */
void work_follow(struct work *w, struct work_commit *c);

/* One that we were in is in place; it was followed. `secret`: a number of this
 * commit that others cannot guess. */
void work_commit(struct work *w,
                 const struct work_commit *c,
                 uint64_t secret,
                 struct out *out);

/* No commit any more: the group is left, or the state in place is another one.
 * Chains stay, as they are of commits, whoever holds them. */
void work_stop(struct work *w, struct out *out);

/* What a full member says that it read. REPEAT_CONVICTED: m->accused is. */
enum repeat_end work_on_verdict(struct work *w,
                                const struct peer_id *speaker,
                                const struct verdict_body *m);

/* That one is convicted, here: we draw its work and accuse it no more. It
 * leaves, and serves nobody, so that we would pay for a case that nobody can
 * look into. In cases of others we speak of it as ever: they may not hold what
 * we do. */
void work_convict(struct work *w, const struct peer_id *id);

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

/* The trainer is free for that round: JOB_REPEAT, if all is here and it is our
 * turn. True: this member leaves the round out. */
bool work_begin_repeat(struct work *w, uint64_t round, struct out *out);

bool work_is_repeating(const struct work *w);

/* What REPEATED says. False: it is not the one that was asked for. */
bool work_repeated(struct work *w,
                   const struct local_event *e,
                   struct out *out);

/* What is to be said to all, one after the other. */
bool work_take_word(struct work *w, struct work_word *word);

/* Members that are to be named silent in READY, one after the other. */
bool work_take_silent(struct work *w, struct peer_id *who);

/* Of the moments that a lease ended with half of the blocks that are read are
 * of u, and behind each comes the block of v that has most of the same
 * elements: where it begins, for the one of u at `at`. */
uint64_t work_v_block(uint64_t elements, uint32_t block, uint64_t at);

/* Bytes of a piece of moments (2 an element) or of a contribution (4 at most),
 * of a vector of so many elements, with its proof. */
uint64_t work_piece_bytes(uint64_t elements,
                          uint32_t block,
                          uint32_t width,
                          uint64_t offset,
                          uint32_t len);

/* Bytes of all pieces that an audit of one lease asks its maker for, at most.
 */
uint64_t work_lease_bytes(uint64_t n_params, uint32_t block);

#endif
