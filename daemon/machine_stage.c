/* machine_stage.c - a machine that holds one stage of a model.
 *
 * STAGE makes it that of a stage: the replica of its slice, the slots that
 * micro-batches pass through, and everything that is as long as the model
 * anew. It happens when no job of the stage before runs any more. PIPE goes to
 * the trainer; segments of activations meet the slots (stage_slots.h).
 *
 * A machine keeps the checkpoint of the stage that it holds; that of another
 * one is used only when the node moves back there.
 */
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "daemon/machine_internal.h"
#include "proto/base/err.h"
#include "proto/base/log.h"
#include "train/errmsg.h"

/* ---- memory ------------------------------------------------------------ */

uint64_t machine_stage_need(const struct machine *m, uint32_t stage)
{
    struct replica_options r = m->replica;

    if (llama_part_of_stage(&r.model, m->terms.stages, stage, &r.part, NULL) !=
        0) {
        return UINT64_MAX;
    }
    return machine_replica_need(m, &r) +
           stage_slots_bytes(r.slots + EVAL_SLOTS, r.micro_batch * r.seq,
                             r.model.dim);
}

/* ---- another stage ----------------------------------------------------- */

/* Reduced bytes of rounds are those of the stage before. */
static void forget_rounds(const struct machine *m)
{
    DIR *dir = m->rounds == NULL ? NULL : opendir(m->rounds);
    const struct dirent *e;

    while (dir != NULL && (e = readdir(dir)) != NULL) {
        if (strstr(e->d_name, ".wire") != NULL) {
            (void)unlinkat(dirfd(dir), e->d_name, 0);
        }
    }
    if (dir != NULL) {
        (void)closedir(dir);
    }
}

static void forget(struct machine *m)
{
    trainer_close(m->trainer);
    m->trainer = NULL;
    stage_slots_close(&m->slots);
    machine_snapshots_free(m);
    machine_state_close(m, false);
    for (int i = 0; i < WIRE_SLOTS; i++) {
        free(m->wire[i].bytes);
        m->wire[i].bytes = NULL;
        m->wire[i].use = WIRE_FREE;
    }
    free(m->pair_in);
    free(m->error);
    m->pair_in = NULL;
    m->error = NULL;
}

static int become(struct machine *m, uint32_t stage, char *errmsg)
{
    struct replica_options *r = &m->replica;
    const struct stage_wire wire = {m->activations, r->model.dim,
                                    r->model.vocab};
    int rv =
        llama_part_of_stage(&r->model, m->terms.stages, stage, &r->part, NULL);

    if (rv != 0) {
        return errmsg_fail(errmsg, rv, "the run has no stage %u", stage);
    }
    m->n = (uint64_t)r->part.numel;
    rv = machine_read_part(m, errmsg);
    if (rv == 0) {
        m->memory_need = machine_stage_need(m, stage);
    }
    rv = rv != 0 ? rv
                 : stage_slots_open(&m->slots, &wire, r->slots + EVAL_SLOTS,
                                    r->micro_batch * r->seq);
    return rv == 0
               ? 0
               : errmsg_fail(errmsg, rv, "out of memory for stage %u", stage);
}

static void switch_now(struct machine *m)
{
    uint32_t stage = m->stage_wanted - 1;
    struct local_event ev = {.type = LOCAL_STAGED, .index = stage};
    char errmsg[ERRMSG_SIZE] = "";
    bool moved = m->staged && m->stage != stage;

    m->stage_wanted = 0;
    if (!m->staged || moved) {
        forget(m);
        if (moved) {
            forget_rounds(m);
        }
        ev.rc = become(m, stage, errmsg);
        m->staged = ev.rc == 0;
        m->stage = stage;
    }
    if (ev.rc != 0) {
        log_error("run", "%s", errmsg);
    }
    m->terms.holds_state = m->restoring && m->terms.held_stage == stage &&
                           m->restore.state.n == m->n;
    ev.terms = &m->terms;
    machine_post(m, &ev);
}

void machine_stage_advance(struct machine *m)
{
    if (m->stage_wanted > 0 && m->n_jobs == 0 && m->shell != NULL &&
        !m->closing) {
        switch_now(m);
    }
}

static void move(struct machine *m, const struct action *a)
{
    m->stage_wanted = (uint32_t)a->index + 1;
    if (m->staged && m->stage != a->index && m->trainer != NULL) {
        trainer_stop(m->trainer); /* it begins no more jobs */
    }
    machine_stage_advance(m);
}

/* ---- what passes through ----------------------------------------------- */

static void run_pipe(struct machine *m, const struct action *a)
{
    const struct trainer_command c = {
        .type = TRAINER_PIPE,
        .pipe = {.op = a->op,
                 .tag = a->attempt,
                 .micro = (uint32_t)a->index,
                 .slot = a->slot,
                 .round = a->round,
                 .step = a->steps,
                 .count = a->count},
    };
    struct local_event ev = {.type = LOCAL_PIPED,
                             .rc = LOCO_ENOENT,
                             .op = a->op,
                             .attempt = a->attempt,
                             .index = a->index};

    if (a->op != PIPE_CLEAR && (m->trainer == NULL || m->slots.n == 0)) {
        machine_post(m, &ev);
    } else if (m->trainer != NULL && !trainer_post(m->trainer, &c)) {
        ev.rc = LOCO_EFULL;
        machine_post(m, &ev);
    }
}

void machine_stage_act(struct machine *m, const struct action *a)
{
    if (a->type == ACTION_STAGE) {
        move(m, a);
    } else {
        run_pipe(m, a);
    }
}

bool machine_is_stage(const struct segment *s)
{
    return s->buffer == BUFFER_FORTH || s->buffer == BUFFER_BACK;
}

/* False: no rows of a slot. */
static bool piece_of(const struct machine *m,
                     const struct segment *s,
                     struct stage_piece *p)
{
    uint32_t dim = m->slots.wire.dim;

    if (dim == 0 || s->offset % dim != 0 || s->len % dim != 0 ||
        s->offset / dim > UINT32_MAX) {
        return false;
    }
    *p = (struct stage_piece){.tag = s->attempt,
                              .slot = s->slot,
                              .first = (uint32_t)(s->offset / dim),
                              .rows = s->len / dim,
                              .forth = s->buffer == BUFFER_FORTH};
    return stage_slots_has(&m->slots, p);
}

/* Of a segment that does not fit: whatever, it is refused. */
size_t machine_stage_len(const struct machine *m, const struct segment *s)
{
    struct stage_piece p;

    return piece_of(m, s, &p) ? stage_slots_len(&m->slots, &p) : s->len;
}

int machine_stage_fill(struct machine *m, const struct segment *s, uint8_t *dst)
{
    struct stage_piece p;

    return piece_of(m, s, &p) ? stage_slots_fill(&m->slots, &p, dst)
                              : LOCO_ERANGE;
}

int machine_stage_take(struct machine *m,
                       const struct segment *s,
                       const uint8_t *src)
{
    struct stage_piece p;

    return piece_of(m, s, &p) ? stage_slots_take(&m->slots, &p, src)
                              : LOCO_ERANGE;
}
