/* owners.c - arrivals one by one at the owners of slices (sync/slices.h).
 *
 * Each peer works on a task: so many inner steps from what it read. When it is
 * over, each slice of it goes to its owner, from there to the backup, and moves
 * the slice when both have it. Of the tasks for one slice each waits for the
 * one before. A worker whose slices have all been acknowledged reads all of
 * them, as they are when its question comes, and begins the next task. So
 * nobody waits for another worker; slices see arrivals in different orders, and
 * what a worker reads is of slightly different times.
 *
 * The numbers of a slice are here once: what owner and backup hold is equal. A
 * new view freezes all slices until their owners have asked everybody and the
 * backup has a state; what was on its way to a dead owner or backup is sent
 * again. Not modelled: how long a death takes to be noticed, owner and backup
 * dying together, lines that several share.
 *
 * Messages cost their delay: SUBMIT, WANT and the piece; LOG, WANT, the record
 * and HELD; ACK. What is being sent shares its sender's line with what this
 * worker has sent before, not with what others have.
 *
 * At the end of the tokens nobody begins a task, and what is on its way is
 * still taken.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "proto/base/err.h"
#include "proto/base/rng.h"
#include "train/lab/internal.h"
#include "train/sync/slices.h"

enum phase { REST, TRAIN, SUBMIT, READ };

struct worker {
    enum phase phase;
    bool knows; /* has read, or began with the first weights */
    uint32_t steps;
    double due_s;             /* TRAIN: its end */
    uint32_t left;            /* slices of SUBMIT, READ that are not done */
    double line_s;            /* its line is busy until then */
    double done_s;            /* the last answer came */
    double at_s[SLICES_MAX];  /* the next thing that happens; INFINITY: none */
    bool shipped[SLICES_MAX]; /* SUBMIT: on its way to the backup */
};

struct owned {
    struct slices cut;
    const struct codec *wire, *reading;
    struct delayed_state at[SLICES_MAX];
    uint64_t flushes[SLICES_MAX], round;
    uint32_t owner[SLICES_MAX], backup[SLICES_MAX]; /* peers; NOBODY */
    double busy_s[SLICES_MAX]; /* the record before is at the backup */
    double open_s[SLICES_MAX]; /* of this view */
    uint64_t members;          /* bits: of this view */
    double now_s;
    struct worker of[LAB_PEERS_MAX];
};

#define NOBODY     UINT32_MAX
#define OWNERS_TAG 0x4f574e455253U /* "OWNERS" */

static double later(double a, double b)
{
    return a > b ? a : b;
}

static uint64_t piece_bytes(const struct owned *o, uint32_t i)
{
    return o->wire->bytes((size_t)slices_len(&o->cut, i));
}

/* ---- views -------------------------------------------------------------- */

/* The peer with the highest weight owns the slice, the one with the next is its
 * backup: when somebody goes, no other slice moves. */
static uint64_t weight(uint64_t seed, uint32_t slice, uint32_t peer)
{
    uint64_t words[7] = {seed, OWNERS_TAG, slice};

    for (uint64_t k = 0; k < 4; k++) { /* for the 32 bytes of a peer's id */
        uint64_t id[3] = {seed, peer, k};

        words[3 + k] = rng_mix(id, 3);
    }
    return rng_mix(words, 7);
}

/* Who has slice i now; true: somebody has a role that had none in it. */
static bool give_roles(const struct lab *lab,
                       struct owned *o,
                       uint32_t i,
                       const uint32_t *who,
                       uint32_t n)
{
    uint32_t owner = NOBODY, backup = NOBODY;
    uint64_t first = 0, second = 0;
    bool changed;

    for (uint32_t k = 0; k < n; k++) {
        uint64_t w = weight(lab->opt.seed, i, who[k]);

        if (owner == NOBODY || w > first) {
            backup = owner;
            second = first;
            owner = who[k];
            first = w;
        } else if (backup == NOBODY || w > second) {
            backup = who[k];
            second = w;
        }
    }
    changed = owner != o->owner[i] || backup != o->backup[i];
    o->owner[i] = owner;
    o->backup[i] = backup;
    return changed;
}

/* A piece that was on its way to who is gone, or has another role now. */
static void send_again(struct lab *lab, struct owned *o, uint32_t i)
{
    for (uint32_t w = 0; w < LAB_PEERS_MAX; w++) {
        struct worker *t = &o->of[w];
        uint64_t bytes = piece_bytes(o, i);

        if (t->phase != SUBMIT || !lab->peers[w].alive || isinf(t->at_s[i])) {
            continue;
        }
        t->shipped[i] = false;
        t->at_s[i] = later(t->at_s[i], o->open_s[i]) +
                     lab_way(lab, w, o->owner[i], bytes) +
                     lab_delay(lab, w, o->owner[i]);
        lab->peers[w].sent += w != o->owner[i] ? bytes : 0;
    }
}

/* Slices that changed hands: the backup gets a state. `line_s`: of owners. */
static void
hand_over(struct lab *lab, struct owned *o, uint32_t i, double *line)
{
    uint32_t owner = o->owner[i], backup = o->backup[i];
    uint64_t vectors = lab->opt.method.delayed ? 3 : 2;
    uint64_t bytes = vectors * slices_len(&o->cut, i) * sizeof(float);

    if (backup != NOBODY) {
        line[owner] += lab_way(lab, owner, backup, bytes);
        lab->peers[owner].sent += bytes;
    }
    o->open_s[i] = later(o->open_s[i], line[owner]);
    send_again(lab, o, i);
}

/* All slices are frozen while their owners ask (ASK, HOLDING, FOLLOW, HELD). */
static void view(struct lab *lab, struct owned *o)
{
    uint32_t who[LAB_PEERS_MAX];
    uint32_t n = lab_alive(lab, who);
    double line[LAB_PEERS_MAX], longest = 0.0;
    uint64_t members = 0;
    bool first = o->members == 0;

    for (uint32_t k = 0; k < n; k++) {
        members |= 1ULL << who[k];
        longest = later(longest, lab->peers[who[k]].machine.delay_s);
    }
    if (members == o->members || n == 0) {
        return;
    }
    for (uint32_t k = 0; k < LAB_PEERS_MAX; k++) {
        line[k] = first || n == 1 ? o->now_s : o->now_s + 4.0 * longest;
    }
    o->members = members;
    for (uint32_t i = 0; i < o->cut.count; i++) {
        bool changed = give_roles(lab, o, i, who, n);

        delayed_resize(&o->at[i], n);
        if (!first) {
            o->open_s[i] = line[o->owner[i]];
            if (changed) {
                hand_over(lab, o, i, line);
            }
        }
    }
}

/* ---- tasks -------------------------------------------------------------- */

static void begin(struct lab *lab, struct owned *o, uint32_t who)
{
    struct lab_peer *p = &lab->peers[who];
    struct worker *t = &o->of[who];
    double seconds;

    if (t->knows) {
        t->phase = TRAIN;
        t->steps = lab_task_steps(lab, p, &seconds);
        t->due_s = p->clock_s + seconds;
        return;
    }
    t->phase = READ;
    t->left = o->cut.count;
    t->line_s = t->done_s = p->clock_s;
    for (uint32_t i = 0; i < o->cut.count; i++) {
        t->at_s[i] = p->clock_s + lab_delay(lab, who, o->owner[i]);
    }
}

/* What the wire makes of a task, slice by slice. */
static int through_wire(struct lab *lab, struct owned *o, uint32_t who)
{
    const struct lab_peer *p = &lab->peers[who];
    int rv = 0;

    for (uint32_t i = 0; i < o->cut.count && rv == 0; i++) {
        uint64_t at = slices_offset(&o->cut, i);
        float *residual = p->residual == NULL ? NULL : p->residual + at;
        const struct codec_op op = {
            .own = lab->packed[who] + at,
            .n = (size_t)slices_len(&o->cut, i),
            .scale = 1.0F,
            .residual = residual,
            .next = residual,
            .result = lab->decoded + at,
        };

        rv = o->wire->encode_op(lab->wire, &op);
    }
    if (rv != 0) {
        return errmsg_fail(lab->errmsg, rv,
                           "peer %u: a task does not fit the wire type %s: "
                           "training has diverged",
                           who, o->wire->name);
    }
    memcpy(lab->packed[who], lab->decoded, (size_t)lab->n * sizeof(float));
    return 0;
}

static int work(struct lab *lab, struct owned *o, uint32_t who)
{
    struct lab_peer *p = &lab->peers[who];
    struct worker *t = &o->of[who];
    int rv = lab_task(lab, p, t->steps);

    rv = rv != 0 ? rv : through_wire(lab, o, who);
    t->phase = SUBMIT;
    t->left = o->cut.count;
    t->line_s = t->done_s = p->clock_s;
    for (uint32_t i = 0; i < o->cut.count; i++) {
        uint32_t owner = o->owner[i];
        uint64_t bytes = piece_bytes(o, i);
        double delay = lab_delay(lab, who, owner);

        t->shipped[i] = false;
        t->at_s[i] = p->clock_s;
        if (owner != who) {
            t->line_s = later(t->line_s, p->clock_s + 2.0 * delay) +
                        lab_way(lab, who, owner, bytes);
            t->at_s[i] = t->line_s + delay;
            p->sent += bytes;
        }
    }
    return rv;
}

/* A piece is at its owner: when is it at the backup too? */
static void ship(struct lab *lab, struct owned *o, uint32_t who, uint32_t i)
{
    struct worker *t = &o->of[who];
    uint32_t owner = o->owner[i], backup = o->backup[i];
    double at = later(t->at_s[i], later(o->busy_s[i], o->open_s[i]));

    if (backup != NOBODY) {
        uint64_t bytes = piece_bytes(o, i);

        at += lab_way(lab, owner, backup, bytes) +
              4.0 * lab_delay(lab, owner, backup);
        lab->peers[owner].sent += bytes;
    }
    o->busy_s[i] = t->at_s[i] = at;
    t->shipped[i] = true;
}

static int tell_round(struct lab *lab, struct owned *o)
{
    uint64_t round = UINT64_MAX;

    for (uint32_t i = 0; i < o->cut.count; i++) {
        round = o->flushes[i] < round ? o->flushes[i] : round;
    }
    if (round == o->round) {
        return 0;
    }
    o->round = round;
    return lab_point(lab, 0, lab->owned);
}

static int arrive(struct lab *lab, struct owned *o, uint32_t who, uint32_t i)
{
    struct worker *t = &o->of[who];
    struct lab_peer *p = &lab->peers[who];
    uint64_t at = slices_offset(&o->cut, i);
    int rv = slices_arrive(&lab->opt.method, &o->at[i], lab->packed[who] + at,
                           1, slices_len(&o->cut, i));

    if (rv != 0) {
        return errmsg_fail(lab->errmsg, rv,
                           "the outer step is not finite; lower sync.outer_lr "
                           "or sync.outer_momentum");
    }
    t->done_s = later(t->done_s, t->at_s[i] + lab_delay(lab, o->owner[i], who));
    t->at_s[i] = INFINITY;
    if (--t->left == 0) {
        p->clock_s = t->done_s;
        t->phase = REST;
        t->knows = false;
    }
    o->flushes[i] += o->at[i].count == 0;
    return o->at[i].count == 0 ? tell_round(lab, o) : 0;
}

static int
read_slice(struct lab *lab, struct owned *o, uint32_t who, uint32_t i)
{
    struct worker *t = &o->of[who];
    struct lab_peer *p = &lab->peers[who];
    uint64_t at = slices_offset(&o->cut, i), len = slices_len(&o->cut, i);
    const float *phi = o->at[i].phi;
    uint32_t owner = o->owner[i];
    int rv = 0;

    if (owner != who) {
        uint64_t bytes = o->reading->bytes((size_t)len);

        rv = o->reading->encode(lab->wire, phi, (size_t)len, 1.0F);
        rv = rv != 0 ? rv
                     : o->reading->decode(lab->decoded, lab->wire, (size_t)len);
        phi = lab->decoded;
        lab->peers[owner].sent += bytes;
        t->line_s = later(t->line_s, t->at_s[i] + lab_delay(lab, owner, who)) +
                    lab_way(lab, owner, who, bytes);
    }
    if (rv != 0) {
        return errmsg_fail(lab->errmsg, rv,
                           "slice %u does not fit the wire type %s: training "
                           "has diverged",
                           i, o->reading->name);
    }
    engine_read(&p->e, at, len, phi);
    t->done_s = later(t->done_s, owner == who ? t->at_s[i] : t->line_s);
    t->at_s[i] = INFINITY;
    if (--t->left == 0) {
        engine_begin_task(&p->e);
        if (p->e.moments_reset) {
            p->optimizer.t = 0;
            p->e.moments_reset = false;
        }
        p->clock_s = t->done_s;
        t->phase = REST;
        t->knows = true;
    }
    return 0;
}

/* ---- what happens next -------------------------------------------------- */

struct next {
    double at_s;
    uint32_t who, slice; /* slice NOBODY: a task ends */
};

/* The earliest; of several the lowest peer, then the lowest slice. `drain`:
 * only what is on its way to owners. */
static bool find_next(const struct lab *lab,
                      const struct owned *o,
                      bool drain,
                      struct next *out)
{
    *out = (struct next){INFINITY, NOBODY, NOBODY};
    for (uint32_t w = 0; w < LAB_PEERS_MAX; w++) {
        const struct worker *t = &o->of[w];

        if (!lab->peers[w].alive || t->phase == REST ||
            (drain && t->phase != SUBMIT)) {
            continue;
        }
        if (t->phase == TRAIN && t->due_s < out->at_s) {
            *out = (struct next){t->due_s, w, NOBODY};
        }
        for (uint32_t i = 0; t->phase != TRAIN && i < o->cut.count; i++) {
            if (t->at_s[i] < out->at_s) {
                *out = (struct next){t->at_s[i], w, i};
            }
        }
    }
    return out->who != NOBODY;
}

static int happen(struct lab *lab, struct owned *o, const struct next *n)
{
    struct worker *t = &o->of[n->who];

    o->now_s = later(o->now_s, n->at_s);
    if (n->slice == NOBODY) {
        return work(lab, o, n->who);
    }
    if (t->phase == SUBMIT) {
        if (t->shipped[n->slice]) {
            return arrive(lab, o, n->who, n->slice);
        }
        ship(lab, o, n->who, n->slice);
        return 0;
    }
    if (t->at_s[n->slice] < o->open_s[n->slice]) {
        t->at_s[n->slice] = o->open_s[n->slice];
        return 0;
    }
    return read_slice(lab, o, n->who, n->slice);
}

static int
open_slices(struct lab *lab, struct owned *o, const struct lab_peer *first)
{
    size_t n = (size_t)lab->n;

    lab->owned = calloc(3 * n, sizeof(float));
    if (lab->owned == NULL) {
        return errmsg_fail(lab->errmsg, LOCO_ENOMEM,
                           "out of memory for the owners' slices");
    }
    memcpy(lab->owned, first->e.theta, n * sizeof(float));
    o->wire = codec_get(lab->opt.method.wire);
    o->reading = codec_get(slices_reading(lab->opt.method.wire));
    o->cut = slices_cut(lab->n, o->wire->block > o->reading->block
                                    ? o->wire->block
                                    : o->reading->block);
    for (uint32_t i = 0; i < o->cut.count; i++) {
        float *at = lab->owned + slices_offset(&o->cut, i);

        o->at[i] = (struct delayed_state){
            at, at + n, at + 2 * n, lab->opt.peers, lab->opt.peers, 0};
    }
    for (uint32_t w = 0; w < LAB_PEERS_MAX; w++) {
        o->of[w].knows = lab->peers[w].used;
    }
    return 0;
}

int lab_run_owners(struct lab *lab)
{
    struct owned *o = calloc(1, sizeof *o);
    struct next next;
    bool more = true;
    int rv = o == NULL ? errmsg_fail(lab->errmsg, LOCO_ENOMEM, "out of memory")
                       : open_slices(lab, o, &lab->peers[0]);

    while (rv == 0 && more && !lab->stopped) {
        uint32_t who[LAB_PEERS_MAX];
        uint32_t n;

        rv = lab_events(lab, true);
        view(lab, o);
        n = lab_alive(lab, who);
        for (uint32_t k = 0; k < n && lab_goes_on(lab); k++) {
            if (o->of[who[k]].phase == REST) {
                begin(lab, o, who[k]);
            }
        }
        more = rv == 0 && find_next(lab, o, !lab_goes_on(lab), &next);
        rv = rv != 0 || !more ? rv : happen(lab, o, &next);
    }
    free(o);
    return rv;
}
