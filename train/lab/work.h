/* work.h - audits of work in the laboratory: what an auditor would read.
 *
 * An auditor repeats what another member, the *maker*, should have done in a
 * round: the same text, as many steps, from the same state. It has its own
 * moments, as nobody sends these. Then it compares what the maker sent, as the
 * wire gives it, with what it got itself, the *repeat*:
 *
 *   cosine  of the two; 0 where one of them is nothing
 *   own     the same after the mean of the other members was taken from both:
 *           what is common to all texts is gone, what this text says stays
 *   length  of what was sent, in lengths of the repeat
 *
 * How near honest work can come depends on the round: where training is wild,
 * other moments lead elsewhere. So the auditor repeats its own work, too, with
 * the moments that it has now, and takes that as its measure:
 *
 *   near    cosine, in parts of the cosine of its own work
 *   share   own, in parts of the own of its own work
 *
 * Were the maker's moments sent, in bf16, an auditor would read
 *
 *   exact   the cosine with a repeat that begins with these
 *   exact_own     the same without the mean of the others
 *   exact_length  of what was sent, in lengths of that repeat
 *   best, best_own  of the repeat after the wire: what rounding alone leaves
 *   block   the least cosine with it of any block of WORK_BLOCK elements
 *   steady  own of that repeat and one on other kernels: how far honest
 *           machines may be from each other in this round
 *   after   the lesser of the cosines of both moments at the end of that
 *           repeat with those that the maker has then
 *   next    of what the next step is made of then (train/sync/moments.h): how
 *           far the maker is from repeats on its and on other kernels, where
 *           both are so far apart, by work_options.next; the worst of all
 *           blocks of WORK_BLOCK elements
 *   next_once  the same where one repeat alone is known
 *
 * A reading is of one pair and one *kind*: of honest work, seen by auditors
 * that differ from the maker in some way; or of a lie in place of that work.
 * Lies of lies.h are told by the maker and by the members that follow it.
 *
 * `sampled` says what the cosine is on a few blocks of WORK_BLOCK elements in
 * place of all.
 *
 * Cost: a pair repeats about twelve rounds of one member. Memory: 4 bytes *
 * parameters * (3 a peer and 17). Methods: all average parameters in one piece,
 * in step. Errors are the laboratory's.
 */
#ifndef LOCO_TRAIN_LAB_WORK_H
#define LOCO_TRAIN_LAB_WORK_H

#include "train/lab/lab.h"

#define WORK_BLOCK     1024
#define WORK_SAMPLES   3 /* sizes of samples: 4, 16 and 64 blocks */
#define WORK_TURNS_MAX 16

enum work_kind {
    WORK_REPEAT,           /* the auditor's moments, kernels as the maker's */
    WORK_KERNELS,          /* the auditor's moments, other kernels */
    WORK_FRESH,            /* moments of 0, as a newcomer has them */
    WORK_SELF,             /* the auditor's own work: what the shares are of */
    WORK_MOMENTS,          /* the maker's moments, other kernels */
    WORK_ROUGH,            /* the maker's moments in bf16 */
    WORK_EXACT,            /* the maker's moments and kernels: to the bit */
    WORK_LIES,             /* from here on somebody lies */
    WORK_TEXT = WORK_LIES, /* as many steps on other text */
    WORK_HALF,             /* half of the steps, twice as long */
    WORK_STEP,             /* one step, as long as all would be */
    WORK_THIN,             /* a quarter of each batch */
    WORK_STALE,            /* what it sent in the round before */
    WORK_LAST,             /* the mean of the round before */
    WORK_TILT,             /* honest work, and half its length of noise */
    WORK_LEAN, /* honest work, less half its length of the others' mean */
    WORK_TOLD, /* + enum lab_lie */
    WORK_KINDS = WORK_TOLD + LAB_LIE_COUNT
};

struct work_reading {
    enum work_kind kind;
    uint64_t turn;
    uint32_t maker, auditor;
    double cosine, own, length, near, share, exact;
    double exact_own, exact_length, block, steady, after, next, next_once;
    double best, best_own;
    double self_cosine, self_own; /* of the auditor's own work */
    /* Root of the mean square, over draws of a sample, of the difference to
     * `cosine`, and to `exact`. */
    double sampled[WORK_SAMPLES], exact_sampled[WORK_SAMPLES];
};

struct work_options {
    uint64_t turns[WORK_TURNS_MAX]; /* that are audited, from 1 on */
    size_t n_turns;
    uint32_t makers; /* audited in each: the peers from number 1 on */
    uint32_t liars;  /* together in lies that need more than one */
    double (*next)(double apart, double agree); /* repeat_next(); NULL: none */
    bool reference; /* "other kernels": plain loops; else products.. */
    enum backend_dtype other; /* ..of that kind */
    void (*reading)(void *data, const struct work_reading *r);
    void *data;
};

const char *work_kind_name(int kind); /* "repeat", "text", "flip" .. */
uint32_t work_sample_blocks(int sample);

#endif
