/* stage.c - the fake machine of a stage: STAGE, PIPE and the bytes that
 * micro-batches travel as. See local.h.
 *
 * Every stage has a vector of n_params, with its own seed. What is sent of a
 * micro-batch says what it is: (tag, number, the stage that made it, direction,
 * element), so that a receiver sees whether it got the right one. The first
 * element of activations is the origin instead: the peer that entered the
 * micro-batch and the draw that names its tokens. A backward pass adds the
 * origin to the sum; STEP hands the sum to the owner, who counts. Held-out
 * windows have origins of their own, which no sum may have.
 */
#include "daemon/sim/machine/internal.h"

#include <assert.h>
#include <string.h>

#include "proto/base/bytes.h"
#include "proto/base/err.h"
#include "proto/base/rng.h"

/* Bytes of one element on the wire. */
#define ELEMENT 4

/* More than any draw has: lives * micro-batches. */
#define ORIGIN_DRAW_BITS 24

/* Of held-out windows: no peer has such a number. */
#define ORIGIN_EVAL (0xffU << ORIGIN_DRAW_BITS)

size_t local_cut_bytes(const struct segment *seg)
{
    return (size_t)seg->len * ELEMENT;
}

static uint32_t
word_of(const struct segment *seg, uint32_t maker, uint64_t element)
{
    uint64_t words[] = {seg->attempt, seg->index,
                        maker * 2ULL + (seg->buffer == BUFFER_BACK), element};

    return (uint32_t)rng_mix(words, 4);
}

static bool is_origin(const struct segment *seg, uint32_t i)
{
    return seg->buffer == BUFFER_FORTH && seg->offset + i == 0;
}

static bool in_range(const struct local *l, const struct segment *seg)
{
    return seg->offset <= l->opt.cut_elements &&
           seg->len <= l->opt.cut_elements - seg->offset &&
           seg->slot < PIPELINE_SLOTS_MAX + EVAL_SLOTS;
}

int local_cut_fill(const struct local *l,
                   const struct machine *m,
                   const struct segment *seg,
                   uint8_t *dst)
{
    const struct local_micro *slot = &m->micros[seg->slot];
    bool there = seg->buffer == BUFFER_FORTH ? slot->forth : slot->back;

    if (!in_range(l, seg)) {
        return LOCO_ERANGE;
    }
    if (slot->tag != seg->attempt || slot->number != seg->index || !there) {
        return LOCO_ENOENT; /* nothing of that is computed */
    }
    for (uint32_t i = 0; i < seg->len; i++) {
        put_u32(dst + (size_t)i * ELEMENT,
                is_origin(seg, i) ? slot->origin
                                  : word_of(seg, m->stage, seg->offset + i));
    }
    return 0;
}

int local_cut_take(const struct local *l,
                   struct machine *m,
                   const struct segment *seg,
                   const uint8_t *src)
{
    struct local_micro *slot = &m->micros[seg->slot];
    uint32_t maker = seg->buffer == BUFFER_FORTH ? m->stage - 1 : m->stage + 1;

    if (!in_range(l, seg)) {
        return LOCO_ERANGE;
    }
    if (seg->buffer == BUFFER_FORTH &&
        (slot->tag != seg->attempt || slot->number != seg->index)) {
        *slot = (struct local_micro){.tag = seg->attempt,
                                     .number = (uint32_t)seg->index};
    }
    for (uint32_t i = 0; i < seg->len; i++) {
        uint32_t word = get_u32(src + (size_t)i * ELEMENT);

        if (is_origin(seg, i)) {
            slot->origin = word;
        } else if (word != word_of(seg, maker, seg->offset + i)) {
            l->calls.wrong(l->calls.self, "a micro-batch that is another one");
            return LOCO_EFORMAT;
        }
    }
    if (seg->buffer == BUFFER_FORTH) {
        slot->in += seg->len;
    } else {
        slot->gradient += seg->len;
    }
    return 0;
}

/* ---- PIPE --------------------------------------------------------------- */

static void
sum_up(struct local *l, struct machine *m, uint32_t number, uint32_t origin)
{
    for (uint32_t i = 0; i < m->n_sum; i++) {
        if (m->sum[i] == number || m->origins[i] == origin) {
            l->calls.wrong(l->calls.self, "a micro-batch twice in a sum");
        }
    }
    if (origin >= ORIGIN_EVAL) {
        l->calls.wrong(l->calls.self, "held-out windows in a sum");
    }
    assert(m->n_sum < LOCAL_SUM_MAX);
    m->origins[m->n_sum] = origin;
    m->sum[m->n_sum++] = number;
}

static void compute(struct local *l, uint32_t peer, const struct job_pipe *job)
{
    struct machine *m = &l->machines[peer];
    uint32_t origin = peer << ORIGIN_DRAW_BITS | job->count;
    struct local_micro *slot = &m->micros[job->slot];
    bool known = slot->tag == job->attempt && slot->number == job->index;
    uint32_t all = l->opt.cut_elements;

    if (!known && m->stage == 0 && job->op == PIPE_FORWARD) {
        *slot = (struct local_micro){.tag = job->attempt,
                                     .number = (uint32_t)job->index,
                                     .origin = origin};
    } else if (!known) {
        l->calls.wrong(l->calls.self, "work on a micro-batch not in its slot");
        return;
    }
    if (m->stage == 0 && slot->origin != origin) {
        l->calls.wrong(l->calls.self, "another draw than in the forward pass");
    }
    if (m->stage > 0 && slot->in != all) {
        l->calls.wrong(l->calls.self, "work on an input that is not here");
    }
    if (job->op == PIPE_BACKWARD && slot->gradient != all) {
        l->calls.wrong(l->calls.self, "work on a gradient that is not here");
    }
    if (job->op != PIPE_BACKWARD) {
        slot->forth = true;
    }
    if (job->op != PIPE_FORWARD) {
        slot->back = true;
        sum_up(l, m, (uint32_t)job->index, slot->origin);
    }
}

/* The sum is as of the action: what the trainer does after it comes later. */
void local_pipe_step(struct local *l, uint32_t peer, const struct job_pipe *job)
{
    struct machine *m = &l->machines[peer];
    struct local_step s = {.round = job->round,
                           .inner = m->inner_step,
                           .step = job->step,
                           .stage = m->stage,
                           .n = m->n_sum,
                           .origins = m->origins};

    if (job->count != m->n_sum) {
        l->calls.wrong(l->calls.self, "a step of another number than summed");
    }
    l->calls.stepped(l->calls.self, peer, &s);
    m->n_sum = 0;
}

/* Held-out windows, in order; a figure for all of them only. */
static void evaluate(struct local *l,
                     uint32_t peer,
                     const struct job_pipe *job,
                     double *bits)
{
    struct machine *m = &l->machines[peer];
    struct local_micro *slot = &m->micros[job->slot];
    uint32_t number = (uint32_t)job->index;

    if (m->stage == 0) {
        *slot = (struct local_micro){.tag = job->attempt,
                                     .number = number,
                                     .origin = ORIGIN_EVAL | number};
    } else if (slot->tag != job->attempt || slot->number != number ||
               slot->in != l->opt.cut_elements ||
               slot->origin != (ORIGIN_EVAL | number)) {
        l->calls.wrong(l->calls.self, "other windows than were to come");
    }
    slot->forth = true;
    if (job->op != PIPE_EVAL_SCORE) {
        return;
    }
    if (m->eval_tag != job->attempt) {
        m->eval_tag = job->attempt;
        m->eval_scored = 0;
    }
    if (number != m->eval_scored++) {
        l->calls.wrong(l->calls.self, "windows are scored out of order");
    }
    *bits =
        m->eval_scored == l->opt.eval_micros ? local_bits_of(job->round) : 1e3;
}

static bool is_eval(const struct job_pipe *job)
{
    return job->op == PIPE_EVAL_FORWARD || job->op == PIPE_EVAL_SCORE;
}

bool local_pipe_is_void(const struct machine *m, const struct job_pipe *job)
{
    return job->attempt <= m->pipe_void && job->op != PIPE_STEP &&
           !is_eval(job);
}

int local_pipe(struct local *l,
               uint32_t peer,
               const struct job_pipe *job,
               struct report_piped *report)
{
    struct machine *m = &l->machines[peer];

    if (is_eval(job)) {
        if (job->round != m->round) {
            return LOCO_ESTALE;
        }
        evaluate(l, peer, job, &report->bits_per_byte);
        return 0;
    }
    if (job->op == PIPE_STEP) {
        local_step_once(l, peer);
    } else {
        compute(l, peer, job);
    }
    report->inner_step = m->inner_step;
    return 0;
}

void local_pipe_clear(struct local *l, uint32_t peer, uint64_t tag)
{
    l->machines[peer].n_sum = 0;
    l->machines[peer].pipe_void = tag;
}

/* ---- STAGE -------------------------------------------------------------- */

void local_stage(struct local *l,
                 struct machine *m,
                 struct report_staged *report)
{
    size_t bytes = l->opt.n_params * sizeof(float);

    m->stage = report->stage;
    m->staged = true;
    m->n_sum = 0;
    memset(m->micros, 0, sizeof m->micros);
    memset(m->phi, 0, bytes);
    memset(m->m, 0, bytes);
    memset(m->theta, 0, bytes);
    memset(m->residual, 0, bytes);
    local_states_forget(m);
    for (uint32_t k = 0; k < LOCAL_REDUCED; k++) {
        m->reduced[k].used = false;
    }
    for (uint32_t k = 0; k < WIRE_SLOTS; k++) {
        m->wire.slot[k].use = WIRE_FREE;
    }
    m->incoming.used = m->packed = false;
    m->base_step = m->inner_step;
    m->round = 0;
    local_fill_terms(l, m);
    report->terms = m->terms;
}
