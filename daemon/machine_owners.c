/* machine_owners.c - a machine whose node owns slices of the parameters: the
 * jobs of ACTION_SLICE (p2p/core.h) on a worker, one after the other, in the
 * order of the actions; the store has the numbers (slice_store.h).
 *
 * Arrivals do not wait for an inner step, so slices are not the trainer's. It
 * meets them twice: pieces of a task are encoded out of its contribution, which
 * stands from TRAINED to the TRAIN that follows the next READ; and READ, which
 * waits here for the jobs before it, gives it what was read, which stands until
 * the node, answered, reads again.
 *
 * The initial weights come from the seed, all at once: they are made for the
 * first BUILD and kept until the first READ, when no slice is built any more.
 */
#include <stdlib.h>
#include <string.h>

#include "daemon/machine_internal.h"
#include "proto/base/err.h"
#include "proto/base/log.h"
#include "train/sync/slices.h"

_Static_assert(SLICES_MAX <= OWNERS_SLICES_MAX, "each slice has an owner");

/* Elements that are whole blocks of both wire types. */
static uint32_t block_of(const struct machine *m)
{
    const struct codec *reading = codec_get(slices_reading(m->codec->id));

    return (uint32_t)(m->codec->block > reading->block ? m->codec->block
                                                       : reading->block);
}

void machine_owners_terms(struct machine *m)
{
    struct run_terms *t = &m->terms;
    struct slices cut = slices_cut(m->n, block_of(m));
    uint32_t block = block_of(m);
    uint32_t blocks = MACHINE_SEGMENT_BYTES / (uint32_t)sizeof(float) / block;

    t->n_slices = cut.count;
    t->slice_elements = cut.each;
    t->slice_segment = (blocks > 0 ? blocks : 1) * block;
    t->slice_seed = m->manifest->seed;
}

bool machine_owns(const struct machine *m)
{
    return m->replica.method.group == METHOD_OWNERS;
}

uint64_t machine_owners_need(const struct machine *m, uint64_t n)
{
    uint64_t initial = n * sizeof(float);

    return slice_store_most(n, slices_cut(n, block_of(m)).each) + initial;
}

/* On the worker. */
static int initial(void *self, uint64_t at, uint64_t len, float *out)
{
    struct machine *m = self;
    const struct replica_options *r = &m->replica;

    if (m->initial == NULL) {
        m->initial = malloc(m->n * sizeof *m->initial);
        if (m->initial == NULL) {
            return LOCO_ENOMEM;
        }
        llama_part_init(&r->model, &r->part, m->initial, r->seed);
    }
    memcpy(out, m->initial + at, len * sizeof *out);
    return 0;
}

int machine_owners_open(struct machine *m)
{
    const struct slice_store_options opt = {
        .n = m->n,
        .count = m->terms.n_slices,
        .each = m->terms.slice_elements,
        .codec = m->codec,
        .method = &m->replica.method,
        .self = m,
        .initial = initial,
    };

    return m->slices != NULL ? 0 : slice_store_open(&m->slices, &opt);
}

void machine_owners_free(struct machine *m)
{
    slice_store_close(m->slices);
    free(m->initial);
    free(m->read[0]);
    free(m->read[1]);
}

/* A job that is not done leaves a slice unlike its backup. */
static void no_memory(struct machine *m)
{
    log_error("train", "out of memory for the slices of the parameters");
    machine_stop(m, LOCO_EXIT_RESOURCES);
}

/* The trainer, with the moments and counts of an earlier life. */
static int start(struct machine *m)
{
    int rv;

    if (m->trainer != NULL) {
        return 0;
    }
    rv = machine_start_trainer(m);
    if (rv == 0 && m->restoring) {
        machine_restore(m, m->terms.held_round);
    }
    return rv;
}

void machine_slice(struct machine *m, const struct action *a)
{
    struct machine_job *j;

    if (m->slices == NULL || start(m) != 0) {
        return; /* no job of an earlier run; the machine stops */
    }
    j = machine_job_new(m, JOB_SLICE);
    if (j == NULL) {
        no_memory(m);
        return;
    }
    j->action = *a;
    machine_job_submit(m, j);
}

void machine_slice_run(struct machine_job *j)
{
    struct machine *m = j->m;

    if (j->action.job.op != SLICE_READ) {
        j->rc = slice_store_run(m->slices, &j->action,
                                trainer_contribution(m->trainer));
        return;
    }
    free(m->initial);
    m->initial = NULL;
}

void machine_sliced(struct machine *m, struct machine_job *j)
{
    struct local_event ev = {.type = LOCAL_SLICED,
                             .rc = j->rc,
                             .job = j->action.job,
                             .attempt = j->action.attempt};
    struct trainer_command c = {
        .type = TRAINER_READ, .round = j->action.round, .job = j->action.job};

    if (j->rc == LOCO_ENOMEM) {
        no_memory(m);
    } else if (j->action.job.op != SLICE_READ) {
        machine_post(m, &ev);
    }
    if (j->action.job.op != SLICE_READ) {
        if (j->action.job.op == SLICE_MARK) {
            machine_marks_advance(m);
        }
        return;
    }
    c.reading = machine_note_reading(m);
    c.state = slice_store_reading(m->slices);
    if (!trainer_post(m->trainer, &c)) {
        ev.rc = LOCO_EFULL;
        machine_post(m, &ev);
    }
}

/* ---- segments ---------------------------------------------------------- */

size_t machine_slice_len(const struct machine *m, const struct segment *s)
{
    return m->slices == NULL ? 0 : slice_store_wire_len(m->slices, s);
}

int machine_slice_fill(struct machine *m, const struct segment *s, uint8_t *dst)
{
    return m->slices == NULL ? LOCO_ENOENT
                             : slice_store_fill(m->slices, s, dst);
}

int machine_slice_take(struct machine *m,
                       const struct segment *s,
                       const uint8_t *src,
                       size_t len)
{
    return m->slices == NULL ? LOCO_ENOENT
                             : slice_store_take(m->slices, s, src, len);
}
