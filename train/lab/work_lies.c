/* work_lies.c - what members would send that did not do their work; see work.h.
 *
 * Those of lies.h, and the lies of the lazy, who want the reward of work for
 * less of it.
 */
#include <math.h>
#include <string.h>

#include "train/lab/lies.h"
#include "train/lab/work_internal.h"

#define THIN 4 /* a batch is cut by so much */
#define TILT 0.5

/* Of those that did not do what they should. */
static int lazy(struct lab *lab, struct work_reading *r)
{
    struct lab_work *w = lab->work;
    const struct work_past *maker = &w->past[r->maker];
    const uint32_t steps = lab->opt.method.period, rows = lab->opt.batch;
    const uint64_t away = lab->loaders[r->maker].n_windows / 2;
    const struct work_task task[] = {
        {r->maker, maker->row + away, steps, rows, 1, maker->u, maker->v,
         maker->t, false},
        {r->maker, maker->row, (steps + 1) / 2, rows, 2, maker->u, maker->v,
         maker->t, false},
        {r->maker, maker->row, 1, rows, steps, maker->u, maker->v, maker->t,
         false},
        {r->maker, maker->row, steps, (rows + THIN - 1) / THIN, 1, maker->u,
         maker->v, maker->t, false},
    };
    int rv = 0;

    for (int i = 0; i < 4 && rv == 0; i++) {
        r->kind = (enum work_kind)(WORK_TEXT + i);
        rv = work_do(lab, &task[i], w->claim);
        rv = rv != 0 ? rv : work_read(lab, w->claim, r);
    }
    r->kind = WORK_STALE;
    rv = rv != 0 || r->turn == 1 ? rv : work_read(lab, maker->sent, r);
    r->kind = WORK_LAST;
    return rv != 0 || r->turn == 1 ? rv : work_read(lab, w->last, r);
}

/* Honest work, and noise of a part of its length. */
static int tilt(struct lab *lab, struct work_reading *r)
{
    struct lab_work *w = lab->work;
    struct lies_group g = {.lie = LAB_LIE_NOISE,
                           .block = WORK_BLOCK,
                           .turn = r->turn,
                           .len = lab->n,
                           .n = 1,
                           .x = {w->claim},
                           .number = {r->maker},
                           .liar = {true}};

    memcpy(w->claim, lab->packed[r->maker], (size_t)lab->n * sizeof(float));
    lies_tell(&g);
    for (uint64_t i = 0; i < lab->n; i++) {
        w->claim[i] = lab->packed[r->maker][i] + (float)TILT * w->claim[i];
    }
    r->kind = WORK_TILT;
    return work_read(lab, w->claim, r);
}

static double norm_of(const float *x, uint64_t n)
{
    double sum = 0;

    for (uint64_t i = 0; i < n; i++) {
        sum += (double)x[i] * (double)x[i];
    }
    return sqrt(sum);
}

/* Honest work, less the others' mean in a part of its length. */
static int lean(struct lab *lab, struct work_reading *r)
{
    struct lab_work *w = lab->work;
    const float *work = lab->packed[r->maker];
    double length = norm_of(w->mean, lab->n);
    double part = length > 0 ? TILT * norm_of(work, lab->n) / length : 0;

    for (uint64_t i = 0; i < lab->n; i++) {
        w->claim[i] = (float)((double)work[i] - part * (double)w->mean[i]);
    }
    r->kind = WORK_LEAN;
    return work_read(lab, w->claim, r);
}

static int told(struct lab *lab, struct work_reading *r, enum lab_lie lie)
{
    const struct lab_options *o = &lab->opt;
    struct lies_group g = {.lie = lie,
                           .clip = o->clip,
                           .block = WORK_BLOCK,
                           .seed = o->seed,
                           .turn = r->turn,
                           .len = lab->n,
                           .n = o->peers};

    for (uint32_t i = 0; i < o->peers; i++) {
        uint32_t behind = (i + o->peers - r->maker) % o->peers;

        g.number[i] = i;
        g.liar[i] = behind < o->work->liars;
        g.x[i] = g.liar[i] ? lab->work->told[behind] : lab->packed[i];
        if (g.liar[i]) {
            memcpy(g.x[i], lab->packed[i], (size_t)lab->n * sizeof(float));
        }
    }
    lies_tell(&g);
    r->kind = (enum work_kind)(WORK_TOLD + (int)lie);
    return work_read(lab, g.x[r->maker], r);
}

int work_read_lies(struct lab *lab, struct work_reading *r)
{
    int rv = lazy(lab, r);

    rv = rv != 0 ? rv : tilt(lab, r);
    rv = rv != 0 ? rv : lean(lab, r);
    for (int lie = 0; lie < LAB_LIE_COUNT && rv == 0; lie++) {
        rv = told(lab, r, (enum lab_lie)lie);
    }
    return rv;
}
