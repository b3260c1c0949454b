/* stage.c - a machine that holds one stage of a model.
 *
 * STAGE makes it that of a stage: the replica of its slice, the slots that
 * micro-batches pass through, and everything that is as long as the model
 * anew. It happens when no job of the stage before runs any more. PIPE goes to
 * the trainer; segments of activations meet the slots (stage_slots.h).
 *
 * A machine keeps the checkpoint of the stage that it holds; that of another
 * one is used only when the node moves back there.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/machine/internal.h"
#include "kernels/device.h"
#include "proto/base/err.h"
#include "proto/base/errmsg.h"
#include "proto/base/log.h"
#include "proto/base/pages.h"

/* ---- another stage ----------------------------------------------------- */

/* A GPU that failed is not taken up again: what fits is another thing now. */
static void leave_gpu(struct machine *m)
{
    m->replica.device = NULL;
    machine_find_stages(m);
}

static void forget(struct machine *m)
{
    if (m->trainer != NULL) {
        trainer_stop(m->trainer);
        m->stage.tokens_seen = trainer_tokens_seen(m->trainer);
        if (trainer_left_gpu(m->trainer)) {
            leave_gpu(m);
        }
    }
    trainer_close(m->trainer);
    m->trainer = NULL;
    stage_slots_close(&m->stage.slots);
    machine_snapshots_free(m);
    machine_state_close(m, false);
    for (int i = 0; i < WIRE_SLOTS; i++) {
        pages_give(m->wire.slots.slot[i].bytes, m->wire.slots.slot[i].room);
        m->wire.slots.slot[i].bytes = NULL;
        m->wire.slots.slot[i].use = WIRE_FREE;
    }
    free(m->pair.in);
    free(m->wire.error);
    m->pair.in = NULL;
    m->wire.error = NULL;
}

/* What is free of the GPU's memory now: other programs may have taken some
 * since the start. A GPU that cannot be opened any more is left, where the
 * processor may take its place. */
static int measure_gpu(struct machine *m, uint64_t *have, char *errmsg)
{
    char why[PLUGIN_ERRMSG];
    struct backend be;
    int rv = backend_device(&be, m->replica.device, why);

    if (rv == 0) {
        *have = device_info(be.device)->free_bytes;
        backend_close(&be);
    } else if (m->opt.cpu_fallback) {
        log_warn("train", "continuing on the processor: %s", why);
        leave_gpu(m);
        rv = m->terms.stage_fits != 0
                 ? 0
                 : errmsg_fail(errmsg, LOCO_EDEVICE,
                               "no stage fits into this machine's memory "
                               "without the GPU");
    } else {
        rv = errmsg_fail(errmsg, rv == LOCO_ENOMEM ? rv : LOCO_EDEVICE,
                         "%.200s", why);
    }
    return rv;
}

/* Before anything of the stage is taken, so that the node can choose another
 * one: whether this machine has the memory for it. */
static int
see_memory(struct machine *m, uint32_t stage, uint64_t *have, char *errmsg)
{
    struct machine_gpu_need need;
    int rv = m->replica.device == NULL ? 0 : measure_gpu(m, have, errmsg);

    if (rv != 0) {
        return rv;
    }
    if (!machine_stage_fits_gpu(m, stage, *have, &need)) {
        m->terms.stage_fits &= ~(1ULL << stage);
        return errmsg_fail(errmsg, LOCO_ENOMEM,
                           "stage %u needs %llu MB of the GPU's memory, or "
                           "%llu MB %s; %llu MB of the GPU's may be used now",
                           stage + 1, ERRMSG_MB_UP(need.kept),
                           ERRMSG_MB_UP(need.least), need.how,
                           ERRMSG_MB(*have));
    }
    if (!machine_stage_fits_memory(m, stage, *have)) {
        m->terms.stage_fits &= ~(1ULL << stage);
        return errmsg_fail(errmsg, LOCO_ENOMEM,
                           "stage %u does not fit into this machine's memory",
                           stage + 1);
    }
    return 0;
}

static int become(struct machine *m, uint32_t stage, char *errmsg)
{
    struct replica_options *r = &m->replica;
    const struct stage_wire wire = {m->stage.activations, r->model.dim,
                                    r->model.vocab};
    uint64_t have = 0;
    int rv =
        llama_part_of_stage(&r->model, m->terms.stages, stage, &r->part, NULL);

    if (rv != 0) {
        return errmsg_fail(errmsg, rv, "the run has no stage %u", stage);
    }
    rv = see_memory(m, stage, &have, errmsg);
    if (rv != 0) {
        return rv;
    }
    m->n = (uint64_t)r->part.numel;
    rv = machine_read_part(m, errmsg);
    if (rv == 0) {
        machine_stage_room(m, stage, have);
    }
    rv = rv != 0
             ? rv
             : stage_slots_open(&m->stage.slots, &wire, r->slots + EVAL_SLOTS,
                                r->micro_batch * r->seq);
    return rv == 0
               ? 0
               : errmsg_fail(errmsg, rv, "out of memory for stage %u", stage);
}

static void switch_now(struct machine *m)
{
    uint32_t stage = m->stage.wanted - 1;
    struct local_event ev = {.type = LOCAL_STAGED, .staged.stage = stage};
    char errmsg[ERRMSG_SIZE] = "";
    bool moved = m->stage.held && m->stage.number != stage;

    m->stage.wanted = 0;
    if (!m->stage.held || moved) {
        forget(m);
        if (moved) {
            machine_rounds_forget(m); /* of the stage before */
        }
        ev.rc = become(m, stage, errmsg);
        m->stage.held = ev.rc == 0;
        m->stage.number = stage;
    }
    if (ev.rc != 0) {
        log_error("run", "%s", errmsg);
    }
    m->terms.holds_state = m->found.held && m->terms.held_stage == stage &&
                           m->found.file.state.n == m->n;
    ev.staged.terms = &m->terms;
    machine_post(m, &ev);
}

void machine_stage_advance(struct machine *m)
{
    if (m->stage.wanted > 0 && m->n_jobs == 0 && m->shell != NULL &&
        !m->closing) {
        switch_now(m);
    }
}

void machine_stage_move(struct machine *m, uint32_t stage)
{
    m->stage.wanted = stage + 1;
    if (m->stage.held && m->stage.number != stage && m->trainer != NULL) {
        trainer_stop(m->trainer); /* it begins no more jobs */
    }
    machine_stage_advance(m);
}

/* ---- what passes through ----------------------------------------------- */

int machine_pipe(struct machine *m, const struct job *job)
{
    const struct trainer_command c = {.job = *job};

    if (m->trainer == NULL || m->stage.slots.n == 0) {
        return job->pipe.op == PIPE_CLEAR ? 0 : LOCO_ENOENT;
    }
    return machine_command(m, &c);
}

/* False: no rows of a slot. */
static bool piece_of(const struct machine *m,
                     const struct segment *s,
                     struct stage_piece *p)
{
    uint32_t dim = m->stage.slots.wire.dim;

    if (dim == 0 || s->offset % dim != 0 || s->len % dim != 0 ||
        s->offset / dim > UINT32_MAX) {
        return false;
    }
    *p = (struct stage_piece){.tag = s->attempt,
                              .slot = s->slot,
                              .first = (uint32_t)(s->offset / dim),
                              .rows = s->len / dim,
                              .forth = s->buffer == BUFFER_FORTH};
    return stage_slots_has(&m->stage.slots, p);
}

/* Of a segment that does not fit: whatever, it is refused. */
size_t machine_stage_len(const struct machine *m, const struct segment *s)
{
    struct stage_piece p;

    return piece_of(m, s, &p) ? stage_slots_len(&m->stage.slots, &p) : s->len;
}

int machine_stage_fill(struct machine *m, const struct segment *s, uint8_t *dst)
{
    struct stage_piece p;

    return piece_of(m, s, &p) ? stage_slots_fill(&m->stage.slots, &p, dst)
                              : LOCO_ERANGE;
}

int machine_stage_take(struct machine *m,
                       const struct segment *s,
                       const uint8_t *src)
{
    struct stage_piece p;

    return piece_of(m, s, &p) ? stage_slots_take(&m->stage.slots, &p, src)
                              : LOCO_ERANGE;
}
