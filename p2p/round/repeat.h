/* repeat.h - leases of others, repeated: the decisions of an audit of work.
 *
 * A lease says which text a member trains, and its offer fixes what it says it
 * learnt from that. So another member, the *auditor*, can do the same work
 * again from the same state, with the moments that the maker began with (it
 * announced their hash before and sends them, in bf16), and look whether the
 * result, the *repeat*, points where the offer points. Honest work does, on
 * other kernels, too; the auditor's own moments in their place make an audit of
 * little use (STRANGERS.md, section 5; measured by `loco sim work`).
 *
 * Words
 *   reading  what an auditor measured of one contribution
 *   own      a cosine after the result of the round was taken from both: what
 *            is common to all texts is gone, what this text says stays. Where
 *            nearly nothing stays it is as without that (REPEAT_SHARE)
 *   case     an accusation: every member repeats that lease and says what it
 *            read
 *
 * Who audits whom: each member draws for itself, by a number that nobody else
 * knows. A draw that follows from the commit can be checked by all, but the
 * last one to fix a part of a commit could try variants until liars are drawn
 * to audit liars; and a list of the drawn ones says whose line to cut. The
 * price of secrecy is that anybody may claim to have been drawn, so a case is
 * no evidence, and costs its accuser: after one that convicted nobody, it opens
 * none for REPEAT_WAIT rounds, then for twice as many. A liar costs each member
 * a repeat a case: five cases in the first thousand rounds.
 *
 * REPEAT_CASES_MAX cases are looked into at a time, so that liars cannot have
 * all members do nothing else. Others wait, and words about them count. One
 * that is too old when there is room costs its accuser nothing, who is to look
 * at that maker again. So does one that read it too late for others to look
 * into it (REPEAT_FRESH).
 *
 * Who is convicted: of whom more than half of all full members, each having
 * measured, say that the work is bad. The accused has no vote and counts in the
 * whole. Liars below half convict nobody without honest members, and save
 * nobody whom more than half read as bad. Statements are signed by their
 * makers, so that they are evidence of the conviction. All repeat the same if
 * the maker told all the same moments; then honest members that differ in
 * kernels alone say the same.
 *
 * What it does not see: an addition to honest work of less than 0.3 of its
 * length (the robust mean bounds it, too), a round too wild to tell, and work
 * that nobody drew.
 *
 * Pure: no clock, no message, no allocation. REPEAT_COMMITS commits, a case of
 * each member, REPEAT_ACCOUNTS accounts.
 */
#ifndef LOCO_P2P_ROUND_REPEAT_H
#define LOCO_P2P_ROUND_REPEAT_H

#include <stdbool.h>
#include <stdint.h>

#include "proto/id.h"
#include "proto/limits.h"

/* A member audits in one round of so many: 5 % of its work. */
#define REPEAT_EVERY 20

/* Of fewer full members none can be convicted: more than half must say so, and
 * the accused has no word. */
#define REPEAT_FULL_MIN 3

#define REPEAT_CASES_MAX 2 /* that are looked into at a time; others wait */

/* Rounds about which members may still speak: until each had its turn to make
 * the lease of each case again (work.h, WORK_TURNS: 8 rounds), and in short
 * rounds some more. */
#define REPEAT_COMMITS (8 * REPEAT_CASES_MAX + 8)
/* Of older commits nobody serves anything any more, when it is looked into. */
#define REPEAT_FRESH     4
#define REPEAT_ACCOUNTS  128
#define REPEAT_WAIT      64 /* rounds */
#define REPEAT_WAIT_BITS 10 /* and twice as many so often */

/* ---- readings ----------------------------------------------------------- */

/* Cosine and own in parts of what the wire leaves of the repeat itself.
 * Measured (STRANGERS.md, section 5): honest work 0.979 and 0.968 or more, the
 * nearest of 18 lies (half of the steps, twice as long) 0.937 and 0.936 where
 * training is calm; honest lengths 0.98 to 1.03. Moments forget within some 20
 * steps, so they part sooner than the work: honest ones 0.76 after 500 steps.
 */
#define REPEAT_NEAR   0.96
#define REPEAT_OWN    0.95
#define REPEAT_LENGTH 1.1 /* times as long or as short */
#define REPEAT_AFTER  0.5
/* Times as long or as short. Other text gives moments of another direction, not
 * of another length. */
#define REPEAT_AFTER_STRETCH 2.0
/* And block by block, what the next step is made of (train/sync/moments.h): how
 * far apart the maker's end and that of the repeat may be; and so many times
 * what is between two repeats of the auditor with products of different kinds.
 * 0.08 is a cosine of 0.96, or a length of 1.33. */
#define REPEAT_NEXT       0.08
#define REPEAT_NEXT_AGREE 4.0
/* The same of the maker's moments beside the auditor's own. Whoever invents
 * long ones steers each repeat, and whoever invents short ones makes it wild;
 * but text of several kinds does it, too (up to 37), so nothing is said then.
 */
#define REPEAT_STRETCH 4.0
/* Less of its own than this: rounding hides what the text says. */
#define REPEAT_CLEAR 0.5
/* Who has more than this part of a plan's tokens made most of its result: what
 * is left without that is no word about its text. The figures above are of
 * plans of three to six equal members. */
#define REPEAT_SHARE 0.4
/* Nor is what is left where it is a smaller part of a contribution: moments
 * that were rounded to bf16 move a repeat by up to a third of that. */
#define REPEAT_APART 0.02
/* Where training is wild, honest machines differ by more than this. */
#define REPEAT_STEADY 0.98
/* Is it wild with the maker's moments alone? With the auditor's own ones it is
 * calm from here on: then the maker chose wild ones. */
#define REPEAT_CALM 0.995
/* But not so wildly that work which has nothing to do with the repeat could be
 * honest: where they agree to this.. */
#define REPEAT_WILD 0.9
/* ..and what was sent does not even to that. */
#define REPEAT_FAR 0.5

struct repeat_reading {
    /* Of what was sent and the repeat, over the drawn blocks; length in what
     * the wire leaves of the repeat: few bits make it a tenth shorter. */
    double cosine, own, length;
    /* Of the repeat before and after the wire. */
    double best, best_own;
    /* Own of the repeat and of another one that differs as honest machines do:
     * its products are of operands rounded to bf16, or of fp32 where the first
     * ones were rounded. Asked for by REPEAT_AGAIN only. */
    bool has_steady;
    double steady;
    /* The moments with which the maker began its next lease, beside those at
     * the end of the repeat: the lesser cosine of both. */
    bool has_after;
    double after;
    double after_stretch; /* how many times as long or short; the worse one */
    /* The same, block by block: how far apart what the next step is made of is,
     * in parts of what is allowed (repeat_next()); the worst. */
    bool has_next;
    double next;
    /* The moments with which the lease began, beside those of the auditor at
     * that state, each corrected for its age: how many times as long (u), as
     * long or as short (v); the worse one. */
    bool has_stretch;
    double stretch;
    /* As `steady`, both with the auditor's moments. Of a maker that begins it
     * says nothing: young moments are wild by themselves. */
    bool has_calm, begins;
    double calm;
};

/* UNCLEAR: nothing can be told. AGAIN: bad, if `steady` is as it should be, or,
 * where that is known, if `calm` is. */
enum repeat_verdict { REPEAT_UNCLEAR, REPEAT_GOOD, REPEAT_AGAIN, REPEAT_BAD };

enum repeat_verdict repeat_judge(const struct repeat_reading *r);

/* `next` of a block: how far apart the maker's end and the repeat's are there,
 * and the ends of two repeats; 0: there is no second one yet. No number where
 * the auditor has none there: that says nothing. */
double repeat_next(double apart, double agree);

/* ---- draws -------------------------------------------------------------- */

/* A commit whose work can be audited. */
struct repeat_commit {
    uint64_t round;
    struct hash32 hash;
    uint32_t n; /* members of its view */
    struct peer_id member[VIEW_MEMBERS_MAX];
    uint64_t full;  /* bit i: member i counts */
    uint64_t lease; /* bit i: it contributed steps of a lease */
    uint32_t every; /* we audit in one round of so many; 0: REPEAT_EVERY */
};

/* Whether we, a full member, audit a contribution of this commit; then whose (a
 * place in `member`). `self` is our place; `secret`: a number of this commit
 * that others cannot guess. */
bool repeat_draw(const struct repeat_commit *c,
                 uint32_t self,
                 uint64_t secret,
                 uint32_t *whom);

/* ---- cases -------------------------------------------------------------- */

struct repeat_case {
    bool open;
    bool waits;      /* it is not looked into: there was no room */
    uint32_t commit; /* its place in repeat.commit */
    uint32_t accused, accuser;
    uint64_t said, bad; /* bit i: member i said something; said bad */
};

/* The last word that counted. */
struct repeat_counted {
    uint32_t place, speaker; /* of its case; of who said it, in the view */
    uint64_t bad; /* of the case then: who said so, the speaker too */
};

struct repeat_account {
    struct peer_id id;
    uint32_t n_failed;   /* cases that convicted nobody; 0: a free place */
    uint64_t next_round; /* not before that commit */
};

struct repeat {
    uint32_t n_commits;
    struct repeat_commit commit[REPEAT_COMMITS]; /* the newest first */
    uint64_t settled[REPEAT_COMMITS]; /* bit i: a case about member i ended */
    struct repeat_case cases[VIEW_MEMBERS_MAX]; /* one of each accuser */
    struct repeat_account account[REPEAT_ACCOUNTS];
    struct repeat_counted counted;
};

enum repeat_end {
    REPEAT_NONE,      /* nothing follows */
    REPEAT_NEW,       /* a case was opened: read that lease and repeat_say() */
    REPEAT_WAITS,     /* the same, but there is no room for it yet */
    REPEAT_OPEN,      /* it goes on */
    REPEAT_CONVICTED, /* more than half read bad work */
    REPEAT_DISMISSED  /* more than half never will; the accuser pays */
};

void repeat_init(struct repeat *r);

/* A commit was made: cases of commits that are too old now are dismissed. */
void repeat_commit(struct repeat *r, const struct repeat_commit *c);

/* So many commits came after that one; REPEAT_COMMITS: it is not here. */
uint32_t repeat_age(const struct repeat *r, const struct hash32 *commit);

/* Whether a case about that work is open. */
bool repeat_is_open(const struct repeat *r,
                    const struct hash32 *commit,
                    const struct peer_id *accused);

/* That member is convicted: cases about it end, and nobody pays. */
void repeat_close(struct repeat *r, const struct peer_id *accused);

/* NULL: nobody speaks about that commit any more, or yet. */
const struct repeat_commit *repeat_commit_of(const struct repeat *r,
                                             const struct hash32 *hash);

/* Whether that peer may open a case when that commit is the newest. */
bool repeat_may_accuse(const struct repeat *r,
                       const struct peer_id *id,
                       uint64_t round);

/* The accuser says that the accused did bad work for that commit; so does a
 * second accuser, whose word is one more of the same case. REPEAT_NONE: it is
 * not looked at: of another commit, of no full member, of no lease, of itself,
 * too early, of so few members that nobody can be convicted, after a case about
 * the same work ended, with one of the accuser open, or so late that nobody can
 * look into it any more. */
enum repeat_end repeat_accuse(struct repeat *r,
                              const struct peer_id *accuser,
                              const struct hash32 *commit,
                              const struct peer_id *accused);

/* What a full member read; its first word counts. */
enum repeat_end repeat_say(struct repeat *r,
                           const struct peer_id *speaker,
                           const struct hash32 *commit,
                           const struct peer_id *accused,
                           enum repeat_verdict verdict);

#endif
