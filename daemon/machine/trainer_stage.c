/* trainer_stage.c - see trainer_stage.h. */
#include "daemon/machine/trainer_stage.h"

#include <stdlib.h>
#include <string.h>

#include "p2p/pipeline/pipeline.h"
#include "proto/base/err.h"

_Static_assert(PIPELINE_MICRO_MAX <= REPLICA_MICRO_MAX, "each has tokens");

int trainer_stage_open(struct trainer_stage *t, struct stage_slots *slots)
{
    size_t rows = slots->rows;

    *t = (struct trainer_stage){
        .slots = slots,
        .x = malloc(rows * slots->wire.dim * sizeof *t->x),
        .tokens = malloc(rows * sizeof *t->tokens),
        .targets = malloc(rows * sizeof *t->targets),
    };
    return t->x == NULL || t->tokens == NULL || t->targets == NULL ? LOCO_ENOMEM
                                                                   : 0;
}

void trainer_stage_close(struct trainer_stage *t)
{
    free(t->x);
    free(t->tokens);
    free(t->targets);
    memset(t, 0, sizeof *t);
}

/* The first stage's own input. */
static int
draw(struct trainer_stage *t, const struct replica *r, const struct job_pipe *c)
{
    uint64_t step = cycle_step(&r->layout.cycle, c->round - 1) + c->step;

    if (c->op == PIPE_EVAL_FORWARD) {
        return replica_stage_windows(r, (uint32_t)c->index, t->tokens,
                                     t->targets);
    }
    return replica_stage_tokens(r, step, c->count, t->tokens, t->targets);
}

static int read_low(struct trainer_stage *t, const struct job_pipe *c)
{
    return stage_slots_read(t->slots, c->slot, c->attempt, STAGE_LOW, t->x,
                            t->targets);
}

/* EVAL_FORWARD: through the commit's parameters. */
static int
forward(struct trainer_stage *t, struct replica *r, const struct job_pipe *c)
{
    bool first = r->opt.part.embeds;
    const uint32_t *tokens = first ? t->tokens : NULL;
    const float *x = first ? NULL : t->x, *y = NULL;
    int rv = first ? draw(t, r, c) : read_low(t, c);

    if (rv == 0 && first) {
        rv = stage_slots_begin(t->slots, c->slot, c->attempt);
    }
    if (rv == 0) {
        rv = c->op == PIPE_FORWARD
                 ? replica_stage_forward(r, c->slot, tokens, x, &y)
                 : replica_stage_eval_forward(r, tokens, x, &y);
    }
    return rv != 0 ? rv
                   : stage_slots_write(t->slots, c->slot, c->attempt,
                                       STAGE_HIGH, y, t->targets);
}

static int
score(struct trainer_stage *t, struct replica *r, const struct job_pipe *c)
{
    bool first = r->opt.part.embeds;
    const float *dx = NULL;
    int rv = first ? draw(t, r, c) : read_low(t, c);

    rv = rv != 0 ? rv
                 : replica_stage_score(r, first ? t->tokens : NULL, t->targets,
                                       first ? NULL : t->x, &dx);
    return rv != 0 || first ? rv
                            : stage_slots_write(t->slots, c->slot, c->attempt,
                                                STAGE_LOW, dx, NULL);
}

static int
backward(struct trainer_stage *t, struct replica *r, const struct job_pipe *c)
{
    bool first = r->opt.part.embeds;
    const float *dx = NULL;
    int rv =
        stage_slots_read(t->slots, c->slot, c->attempt, STAGE_HIGH, t->x, NULL);

    rv = rv == 0 && first ? draw(t, r, c) : rv;
    rv = rv != 0 ? rv
                 : replica_stage_backward(r, c->slot, first ? t->tokens : NULL,
                                          t->x, &dx);
    return rv != 0 || first ? rv
                            : stage_slots_write(t->slots, c->slot, c->attempt,
                                                STAGE_LOW, dx, NULL);
}

/* In order: a figure is of all of them, each once. */
static int
judge(struct trainer_stage *t, struct replica *r, const struct job_pipe *c)
{
    double nats = 0;
    uint64_t bytes = 0;
    int rv;

    if (c->index == 0) {
        t->eval_tag = c->attempt;
        t->eval_scored = 0;
        t->nats = 0;
        t->bytes = 0;
    }
    if (c->attempt != t->eval_tag || c->index != t->eval_scored) {
        return LOCO_EINVAL;
    }
    rv = read_low(t, c);
    rv = rv != 0 ? rv
                 : replica_stage_eval_score(r, t->targets, t->x, &nats, &bytes);
    if (rv == 0) {
        t->eval_scored++;
        t->nats += nats;
        t->bytes += bytes;
    }
    return rv;
}

double trainer_stage_bits(const struct trainer_stage *t)
{
    return t->bytes == 0 ? 0 : t->nats / (double)t->bytes / 0.69314718055994531;
}

int trainer_stage_run(struct trainer_stage *t,
                      struct replica *r,
                      const struct job_pipe *c,
                      float *loss)
{
    switch (c->op) {
    case PIPE_FORWARD:
        return forward(t, r, c);
    case PIPE_SCORE:
        return score(t, r, c);
    case PIPE_BACKWARD:
        return backward(t, r, c);
    case PIPE_STEP:
        return replica_stage_step(r, c->step, c->count, loss);
    case PIPE_CLEAR:
        replica_stage_clear(r);
        return 0;
    case PIPE_EVAL_FORWARD:
        return c->round == r->round ? forward(t, r, c) : LOCO_ESTALE;
    case PIPE_EVAL_SCORE:
        return c->round == r->round ? judge(t, r, c) : LOCO_ESTALE;
    case PIPE_OP_COUNT:
        break;
    }
    return LOCO_EINVAL;
}
