/* engine.h - one member's side of every sync method.
 *
 * The engine owns no vector, no thread and no message. It knows, for a method
 * (method.h) and a count of inner steps, what leaves now, what is due now, and
 * what to do with an average when it is there. The laboratory (`loco sim
 * train`), the tests and the daemon's trainer drive it the same way:
 *
 *     for each inner step:
 *         gradient
 *         if the gradient stream is due: engine_pack, average, engine_apply
 *         inner optimizer
 *         engine_step(e)
 *         for each stream s:
 *             if engine_ends(e, s, &turn) and it overlapped:
 *                 engine_apply(e, s, &turn, the average of that turn)
 *             if engine_begins(e, s, &turn): engine_pack(e, s, &turn, wire)
 *             if it does not overlap: wait, engine_apply
 *
 * Words (algorithms page 0.2): theta live parameters, phi anchor, m outer
 * momentum, g = phi - theta pseudo-gradient. Turns, fragments: stream.h.
 *
 * What is packed     gradient stream    the gradient
 *                    parameters         phi - theta of the fragment
 *                    moments            u or v
 * What is applied    gradient stream    replaces the gradient
 *                    parameters         phi = rule(phi, mean); theta takes it
 * in moments            u = mean, v = mean
 *
 * Pairs average anchors too: they pack here and step by pair_mean.h. A quorum's
 * members who were not in time apply the same average to phi and keep theta and
 * the base of their task; those who were go on from phi.
 *
 * The eager form (algorithms page 5.2) takes the outer step twice: phi moves
 * with the mean when that is there, one turn late and with the same bits for
 * all; `own` moves when the turn is packed, with the own fresh part (its share
 * of the mean times g) less the part that was put in early the turn before and
 * is in the mean by now. theta begins at phi + own, where the paper's anchor of
 * this worker is: the rules are linear, so this is the mean of the turn before
 * with the own part exchanged for the fresh one. Before the first mean, and
 * where the share changes, nothing is counted twice or left behind.
 *
 * With owners of slices (slices.h) a worker applies nothing. Its task is packed
 * as a whole, begins at base and ends at theta; then it reads all slices, each
 * of which is base and theta of the next task.
 *
 * A turn that came to nothing needs no call: anchors stay, so the next
 * displacement contains this one; moments keep their live values.
 *
 * Vectors are borrowed for the engine's life; engine_needs() says which. All
 * have n elements; wire vectors have engine_len() of the turn. No allocation.
 * Errors: LOCO_ENUMERIC as in rule.h; the vectors are then useless (but see
 * next_phi).
 */
#ifndef LOCO_TRAIN_SYNC_ENGINE_H
#define LOCO_TRAIN_SYNC_ENGINE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "train/sync/delayed.h"
#include "train/sync/method.h"

/* A run of elements of the parameter vector. */
struct engine_span {
    uint64_t offset, len;
};

/* Which elements a fragment has: spans[first[f] .. first[f + 1]). NULL spans:
 * one fragment, everything. Borrowed. */
struct engine_fragments {
    const struct engine_span *spans;
    const uint32_t *first; /* (fragments + 1) */
};

enum engine_vector {
    ENGINE_PHI = 1 << 0,
    ENGINE_M = 1 << 1,
    ENGINE_SUM = 1 << 2,  /* D of delayed Nesterov */
    ENGINE_BASE = 1 << 3, /* phi that the task began from (quorum, owners) */
    ENGINE_SENT =
        1 << 4,          /* pseudo-gradient on its way; eager: own part of it */
    ENGINE_OWN = 1 << 5, /* eager: own anchor less phi */
    ENGINE_OWN_M = 1 << 6 /* its momentum */
};

#define ENGINE_VECTORS 7 /* of these */

struct engine {
    struct method method;
    struct stream streams[METHOD_STREAMS_MAX];
    size_t n_streams;
    struct engine_fragments fragments;
    uint64_t n;                                       /* elements */
    uint64_t k;                                       /* inner steps made */
    float *theta, *grad, *u, *v;                      /* the trainer's */
    float *phi, *m, *sum, *base, *sent, *own, *own_m; /* engine_needs() */
    /* Optional, of the longest fragment: a new anchor and its momentum are made
     * here, so that a result that is not finite leaves everything as it was.
     * next_phi may be the memory of the mean; next_m is not read without m.
     * exchanges: where a turn has all elements what was made changes places
     * with phi and m, instead of being copied (see engine_apply()). */
    float *next_phi, *next_m;
    bool exchanges;
    struct delayed_state delayed; /* its vectors are phi, m, sum */
    double share;       /* own weight in the last mean; first 1 / members */
    bool moments_reset; /* set when u, v went to 0: the inner optimizer counts
                           from the start again; the caller clears it */
};

/* The average of one turn. */
struct engine_average {
    const float *mean; /* (engine_len) */
    double share;      /* own weight in the mean, 0: was not in it */
    uint32_t arrivals; /* quorum: contributions in it; else 1 */
};

#define ENGINE_WINDOW 4096 /* elements; they stay in the nearest cache */

/* A mean that is made while the rule reads it: `bring` writes elements
 * [at, at + n) of the turn to out, which has room for ENGINE_WINDOW. `at` is a
 * multiple of that; each element once, in order. */
struct engine_source {
    int (*bring)(void *self, uint64_t at, uint64_t n, float *out);
    void *self;
};

/* Bits of enum engine_vector that the method reads. */
unsigned engine_needs(const struct method *m);

/* How many vectors these bits are; where in an engine they go, bit by bit. */
size_t engine_count(unsigned needs);
void engine_slots(struct engine *e, float **slots[ENGINE_VECTORS]);

/* The method must have passed method_check(). Vectors are set by the caller
 * before engine_start(). */
void engine_init(struct engine *e,
                 const struct method *m,
                 const struct engine_fragments *fragments,
                 uint64_t n,
                 uint32_t members);

/* phi = theta, everything else 0. */
void engine_start(struct engine *e);

/* An inner step was made. */
void engine_step(struct engine *e);

bool engine_begins(const struct engine *e, size_t s, struct stream_turn *turn);
bool engine_ends(const struct engine *e, size_t s, struct stream_turn *turn);

/* Elements of a turn. */
uint64_t
engine_len(const struct engine *e, size_t s, const struct stream_turn *turn);

/* wire (engine_len) = what is averaged. The eager form takes its step here. */
int engine_pack(struct engine *e,
                size_t s,
                const struct stream_turn *turn,
                float *wire);

/* e->phi, next_phi, m and next_m may be other ones of these four afterwards. */
int engine_apply(struct engine *e,
                 size_t s,
                 const struct stream_turn *turn,
                 const struct engine_average *a);

/* The new anchor and momentum change places with the old ones. */
void engine_exchange(struct engine *e);

/* Whether the turn's mean may come from a source: the anchor moves, beside the
 * one before (next_phi), and all elements are one run. */
bool engine_streams_mean(const struct engine *e,
                         size_t s,
                         const struct stream_turn *turn);

/* engine_apply() where engine_streams_mean(); a->mean is not read. An error of
 * the source leaves everything as it was, too. */
int engine_apply_from(struct engine *e,
                      size_t s,
                      const struct stream_turn *turn,
                      const struct engine_average *a,
                      const struct engine_source *source);

/* Owners: elements from offset on are what an owner holds of them now. */
void engine_read(struct engine *e,
                 uint64_t offset,
                 uint64_t len,
                 const float *phi);

/* All of them were read. */
void engine_begin_task(struct engine *e);

#endif
