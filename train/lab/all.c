/* all.c - everybody averages with everybody, in step.
 *
 * All live peers make step k, then the turns that are due happen. A turn that
 * overlaps with compute is averaged when it begins, from what was packed then,
 * and applied when it ends; nobody waits unless its bytes are still on the way.
 */
#include <string.h>

#include "train/lab/internal.h"
#include "train/lab/lies.h"

#define PIECE 1024 /* that is clipped together where a type has no blocks */

/* Fragments never overlap, so each has its place in the residual: behind those
 * before it. */
static uint64_t
residual_at(const struct engine *e, size_t s, const struct stream_turn *turn)
{
    uint64_t at = 0;

    for (uint32_t f = 0; f < turn->fragment; f++) {
        const struct stream_turn other = {turn->number, f};

        at += engine_len(e, s, &other);
    }
    return at;
}

/* The last of the first peers are liars. */
bool lab_lies(const struct lab *lab, uint32_t peer)
{
    return peer < lab->opt.peers && peer + lab->opt.liars >= lab->opt.peers;
}

/* What the liars among `who` have packed becomes their lie. */
static void lie(struct lab *lab, const uint32_t *who, uint32_t n, uint64_t len)
{
    const struct lab_options *o = &lab->opt;
    uint32_t block = codec_get(o->method.wire)->block;
    struct lies_group g = {
        .lie = o->lie,
        .clip = o->clip,
        .block = block > 1 ? block : PIECE,
        .seed = o->seed,
        .turn = lab->turns,
        .len = len,
        .n = n,
    };

    for (uint32_t i = 0; i < n; i++) {
        g.x[i] = lab->packed[who[i]];
        g.number[i] = who[i];
        g.liar[i] = lab_lies(lab, who[i]);
    }
    lies_tell(&g);
}

static int average(struct lab *lab,
                   const uint32_t *who,
                   uint32_t n,
                   size_t s,
                   const struct stream_turn *turn,
                   float *mean)
{
    const struct engine *first = &lab->peers[who[0]].e;
    uint64_t at = residual_at(first, s, turn);
    struct lab_part parts[LAB_PEERS_MAX];
    int rv = 0;

    for (uint32_t i = 0; i < n; i++) {
        struct lab_peer *p = &lab->peers[who[i]];

        rv = engine_pack(&p->e, s, turn, lab->packed[who[i]]);

        if (rv != 0) {
            return errmsg_fail(lab->errmsg, rv,
                               "peer %u: its contribution is not finite",
                               who[i]);
        }
        parts[i] = (struct lab_part){
            lab->packed[who[i]], p->residual == NULL ? NULL : p->residual + at,
            1.0};
    }
    if (first->streams[s].tensor == STREAM_PARAMETERS) {
        rv = lab_work_measure(lab);
    }
    lie(lab, who, n, engine_len(first, s, turn));
    n = lab_watch_begin(lab, who, n, parts);
    rv = rv != 0 ? rv
                 : lab_average(lab, parts, n, engine_len(first, s, turn), mean);
    lab_watch_end(lab);
    if (rv == 0 && first->streams[s].tensor == STREAM_PARAMETERS) {
        lab_work_end(lab, mean);
    }
    return rv;
}

static int apply(struct lab *lab,
                 const uint32_t *who,
                 uint32_t n,
                 size_t s,
                 const struct stream_turn *turn,
                 const struct engine_average *a)
{
    int rv = 0;

    for (uint32_t i = 0; i < n && rv == 0; i++) {
        struct engine *e = &lab->peers[who[i]].e;

        rv = engine_apply(e, s, turn, a);
        if (e->moments_reset) {
            lab->peers[who[i]].optimizer.t = 0;
            e->moments_reset = false;
        }
    }
    return rv == 0 ? 0
                   : errmsg_fail(lab->errmsg, rv,
                                 "the outer step is not finite; lower "
                                 "sync.outer_lr or sync.outer_momentum");
}

static void all_wait(struct lab *lab, const uint32_t *who, uint32_t n, double t)
{
    for (uint32_t i = 0; i < n; i++) {
        struct lab_peer *p = &lab->peers[who[i]];

        p->clock_s = t > p->clock_s ? t : p->clock_s;
    }
}

/* The end of a turn that overlapped: lab->mean_phi is its average. */
static int land(struct lab *lab,
                const uint32_t *who,
                uint32_t n,
                size_t s,
                struct lab_flight *f)
{
    const struct engine_average a = {lab->mean_phi, 1.0 / f->members, 1};
    int rv;

    all_wait(lab, who, n, f->due_s);
    rv = apply(lab, who, n, s, &f->turn, &a);
    f->any = false;
    return rv != 0 ? rv : lab_point(lab, s, lab->peers[who[0]].e.phi);
}

/* What is due after a step, for one stream. */
static int turns(struct lab *lab, size_t s, struct lab_flight *f)
{
    uint32_t who[LAB_PEERS_MAX];
    uint32_t n = lab_alive(lab, who);
    const struct engine *first = &lab->peers[who[0]].e;
    const struct engine_average a = {lab->mean, 1.0 / n, 1};
    bool overlaps = first->streams[s].overlap > 0;
    struct stream_turn turn;
    uint64_t bytes;
    int rv = 0;

    if (first->streams[s].tensor == STREAM_GRADIENT) {
        return 0;
    }
    if (overlaps && f->any && engine_ends(first, s, &turn)) {
        rv = land(lab, who, n, s, f);
    }
    if (rv != 0 || !engine_begins(first, s, &turn)) {
        return rv;
    }
    rv = average(lab, who, n, s, &turn, overlaps ? lab->mean_phi : lab->mean);
    bytes = lab_wire_bytes(lab, engine_len(first, s, &turn));
    f->due_s = lab_latest(lab, who, n) + lab_ring(lab, who, n, bytes);
    if (rv != 0 || overlaps) {
        f->any = true;
        f->turn = turn;
        f->members = n;
        return rv;
    }
    all_wait(lab, who, n, f->due_s);
    rv = apply(lab, who, n, s, &turn, &a);
    return rv != 0 ? rv : lab_point(lab, s, first->theta);
}

int lab_turns_all(struct lab *lab, struct lab_flight *flights)
{
    uint32_t who[LAB_PEERS_MAX];
    int rv = 0;

    if (lab_alive(lab, who) == 0) {
        return 0;
    }
    for (size_t s = 0; rv == 0 && s < lab->peers[who[0]].e.n_streams; s++) {
        rv = turns(lab, s, &flights[s]);
    }
    return rv;
}

/* Gradients of all, averaged before anybody's step (DDP). */
int lab_gradients_all(struct lab *lab)
{
    uint32_t who[LAB_PEERS_MAX];
    uint32_t n = lab_alive(lab, who);
    struct lab_part parts[LAB_PEERS_MAX];
    double due;
    int rv;

    for (uint32_t i = 0; i < n; i++) {
        struct lab_peer *p = &lab->peers[who[i]];

        parts[i] = (struct lab_part){p->e.grad, p->residual, 1.0};
    }
    rv = lab_average(lab, parts, n, lab->n, lab->mean);
    for (uint32_t i = 0; i < n && rv == 0; i++) {
        memcpy(lab->peers[who[i]].e.grad, lab->mean,
               (size_t)lab->n * sizeof(float));
    }
    due = lab_latest(lab, who, n) +
          lab_ring(lab, who, n, lab_wire_bytes(lab, lab->n));
    all_wait(lab, who, n, due);
    return rv;
}

static int step(struct lab *lab)
{
    uint32_t who[LAB_PEERS_MAX];
    uint32_t n = lab_alive(lab, who);
    int rv = 0;

    if (!lab->opt.method.gradients) {
        for (uint32_t i = 0; i < n && rv == 0; i++) {
            rv = lab_step(lab, &lab->peers[who[i]]);
        }
        return rv;
    }
    for (uint32_t i = 0; i < n && rv == 0; i++) {
        rv = lab_gradient(lab, &lab->peers[who[i]], lab->opt.batch);
    }
    rv = rv != 0 ? rv : lab_gradients_all(lab);
    for (uint32_t i = 0; i < n && rv == 0; i++) {
        rv = lab_update(lab, &lab->peers[who[i]], lab->opt.batch);
    }
    return rv != 0 ? rv : lab_point(lab, 0, lab->peers[who[0]].e.theta);
}

/* Whether nothing is under way and the parameters were just averaged. */
static bool at_boundary(const struct lab *lab, const struct lab_flight *f)
{
    uint32_t who[LAB_PEERS_MAX];
    const struct engine *e;

    if (lab_alive(lab, who) == 0) {
        return true;
    }
    e = &lab->peers[who[0]].e;
    return !f->any &&
           (lab->opt.method.gradients || method_packs_theta(&lab->opt.method) ||
            e->k % lab->opt.method.period == 0);
}

int lab_run_all(struct lab *lab)
{
    struct lab_flight flights[METHOD_STREAMS_MAX];
    int rv = 0;

    memset(flights, 0, sizeof flights);
    while (rv == 0 && lab_goes_on(lab)) {
        rv = lab_events(lab, at_boundary(lab, &flights[0]));
        if (rv != 0 || !lab_goes_on(lab)) {
            break;
        }
        if (at_boundary(lab, &flights[0])) {
            lab_work_begin(lab);
        }
        rv = step(lab);
        rv = rv != 0 ? rv : lab_turns_all(lab, flights);
    }
    return rv;
}
