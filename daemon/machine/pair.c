/* pair.c - the bytes of an exchange between two replicas.
 *
 * What we send is encoded as it goes: the anchor from the newest snapshot,
 * which nobody changes, the displacement from the trainer's contribution, which
 * stays until the next TRAIN. Both are those of turn t as long as no step t was
 * taken; afterwards a frame that still waits for its turn to be written is
 * refused. What arrives lies in m->pair.in until the step is taken. A worker
 * hashes both payloads; while it does nothing may arrive.
 */
#include <stdlib.h>

#include "daemon/machine/internal.h"
#include "proto/base/err.h"

/* The hash of both payloads. */
struct pair_job {
    struct machine_job job;
    bool first;              /* our own goes first */
    struct snapshot *anchor; /* one owner is the job */
    struct pair_payload own;
};

/* The snapshot of the anchor that turn `turn` starts from; NULL. */
static struct snapshot *anchor_of(struct machine *m, uint64_t turn)
{
    struct snapshot *newest;

    machine_snapshots_collect(m);
    newest = machine_newest(m);
    return newest != NULL && newest->round < turn ? newest : NULL;
}

static struct pair_payload own_payload(const struct machine *m,
                                       const struct snapshot *anchor)
{
    return (struct pair_payload){.codec = m->codec,
                                 .n = m->n,
                                 .anchor = anchor->state,
                                 .displacement =
                                     trainer_contribution(m->trainer)};
}

int machine_pair_fill(struct machine *m, const struct segment *s, uint8_t *dst)
{
    const struct snapshot *anchor = anchor_of(m, s->index);
    struct pair_payload own;

    if (anchor == NULL || m->trainer == NULL) {
        return LOCO_ENOENT;
    }
    own = own_payload(m, anchor);
    return pair_payload_fill(&own, s, dst);
}

uint8_t *machine_pair_at(struct machine *m, const struct segment *s)
{
    if (m->pair.hashing > 0) {
        return NULL;
    }
    if (m->pair.in == NULL) {
        m->pair.in = malloc(pair_payload_bytes(m->codec, m->n));
    }
    return m->pair.in == NULL ? NULL
                              : m->pair.in + pair_payload_at(m->codec, m->n, s);
}

/* ---- the hash of both ------------------------------------------------- */

static void hash_run(struct machine_job *job)
{
    struct pair_job *j = (struct pair_job *)job;

    job->rc = pair_payload_hash(&j->own, job->m->pair.in, j->first,
                                &job->answer.hashed.hash);
}

static void hash_done(struct machine_job *job, int status)
{
    (void)status;
    job->m->pair.hashing--;
    machine_snapshot_drop(job->m, ((struct pair_job *)job)->anchor);
}

static const struct job_kind hash_kind = {
    .size = sizeof(struct pair_job),
    .pool = POOL_WORKERS,
    .run = hash_run,
    .done = hash_done,
};

int machine_pair_hash(struct machine *m, const struct job *job)
{
    struct snapshot *anchor = anchor_of(m, job->hash.index);
    struct pair_job *j;

    if (anchor == NULL || m->pair.in == NULL || m->trainer == NULL) {
        return LOCO_ENOENT;
    }
    j = machine_job_new(m, &hash_kind, job);
    if (j == NULL) {
        return LOCO_ENOMEM;
    }
    j->first = job->hash.first;
    j->anchor = anchor;
    j->own = own_payload(m, anchor);
    anchor->refs++;
    m->pair.hashing++;
    machine_job_submit(&j->job);
    return 0;
}

int machine_pair_apply(struct machine *m, const struct job *job)
{
    const struct trainer_command c = {
        .job = *job, .wire = job->pair.alone ? NULL : m->pair.in};

    if (!job->pair.alone && m->pair.in == NULL) {
        return LOCO_ENOENT;
    }
    machine_snapshots_leave(m);
    return machine_command(m, &c);
}
