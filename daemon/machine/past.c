/* past.c - rounds that are over, for those who come later.
 *
 * States: the trainer publishes one after every commit; the last two can be
 * fetched. The older one leaves when the next commit is applied: its memory is
 * where the new state is made. Fetching a large one takes longer than a round,
 * so that the one that somebody fetches is kept (*pinned*, without inner
 * moments) until PIN_MS after the last piece of it was asked for; one at a
 * time. With audits of work older ones are kept to make leases again: of these
 * the parameters alone, and nobody can fetch them.
 *
 * Reduced bytes: a worker writes those of every round to rounds/ROUND.wire, and
 * deletes what is older than ROUNDS_MAX or more than run_results(): so long
 * that who fetches a state finds what was made meanwhile, where its line can
 * follow the rounds at all (node/follow.c), and audits of work their results.
 * They are no part of what must survive: not flushed, checked by who fetches
 * them, and one that finds no room is left out.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "daemon/jobs/run_needs.h"
#include "daemon/machine/internal.h"
#include "daemon/settings/state_dir.h"
#include "proto/base/err.h"
#include "proto/base/log.h"

#define PIN_MS     60000
#define ROUNDS_MAX 64 /* NODE_PAST_MAX: what a node says that it has */

/* ---- states ------------------------------------------------------------- */

static uint64_t lease_ms(const struct machine *m)
{
    return PIN_MS * (uint64_t)m->opt.time_scale;
}

/* For the next one that is made. */
static void spare(struct machine *m, struct snapshot *s)
{
    struct snapshot *before;

    (void)pthread_mutex_lock(&m->mutex);
    before = m->past.spare;
    m->past.spare = s;
    (void)pthread_mutex_unlock(&m->mutex);
    snapshot_free(before);
}

void machine_snapshot_drop(struct machine *m, struct snapshot *s)
{
    /* A room goes back at once: until the next commit nobody needs it. */
    if (s != NULL && s->refs == 1 && s->room == NULL) {
        spare(m, s);
    } else {
        snapshot_free(s);
    }
}

void machine_snapshots_leave(struct machine *m)
{
    const struct snapshot *newest;
    struct snapshot *s;

    machine_snapshots_collect(m);
    newest = machine_newest(m);
    if (newest == NULL || newest->room == NULL) {
        return; /* states are copied after the commit */
    }
    s = kept_leave(&m->past.kept, uv_now(m->loop) + 1, lease_ms(m));
    if (s != NULL && s->refs == 1) {
        spare(m, s);
    } else {
        snapshot_free(s);
    }
}

/* It was fetched when it left its place; nobody begins with its moments. */
static void trim(struct snapshot *s)
{
    if (s != NULL && s->refs == 1) { /* nobody writes it to disk */
        free(s->moments);
        free(s->idle);
        s->moments = s->idle = NULL;
    }
}

/* Nobody else but who makes leases again has it. */
static bool reduce(void *self, void *state)
{
    const struct machine *m = self;
    struct snapshot *s = state;

    return s->refs == 1 + machine_work_holds(m, s) &&
           snapshot_reduce(s, &m->replica.method);
}

static void keep(struct machine *m, struct snapshot *s)
{
    const struct kept_state state = {
        .state = s, .round = s->round, .name = s->name};
    void *unpinned, *left;

    kept_push(&m->past.kept, &state, uv_now(m->loop) + 1, lease_ms(m),
              &unpinned, &left);
    trim(m->past.kept.pinned.state);
    snapshot_free(unpinned);
    machine_snapshot_drop(m, left);
    kept_reduce(&m->past.kept, uv_now(m->loop) + 1, lease_ms(m), reduce, m);
}

/* Moments that were asked for, to the state that they are of. */
static void collect_late(struct machine *m)
{
    struct snapshot *s = NULL;
    float *late = NULL;

    (void)pthread_mutex_lock(&m->mutex);
    if (m->past.late_here) {
        s = m->past.asked;
        late = m->past.late;
        m->past.asked = NULL;
        m->past.late = NULL;
        m->past.late_here = false;
    }
    if (s != NULL) {
        s->lacks = false;
        s->moments = late;
        s->moment_steps = m->past.late_steps;
    }
    (void)pthread_mutex_unlock(&m->mutex);
    if (s != NULL) {
        machine_tell_without(s);
    }
    machine_snapshot_drop(m, s);
}

void machine_snapshots_collect(struct machine *m)
{
    struct snapshot *in[KEPT_STATES] = {NULL};

    (void)pthread_mutex_lock(&m->mutex);
    memcpy(in, m->past.incoming, sizeof in);
    memset(m->past.incoming, 0, sizeof m->past.incoming);
    (void)pthread_mutex_unlock(&m->mutex);
    for (int i = 0; i < KEPT_STATES; i++) {
        if (in[i] != NULL) {
            keep(m, in[i]);
        }
    }
    collect_late(m);
}

struct snapshot *machine_newest(const struct machine *m)
{
    return m->past.kept.last[0].state;
}

const struct snapshot *machine_snapshot(struct machine *m,
                                        const struct segment *s)
{
    struct kept_state *kept;

    machine_snapshots_collect(m);
    kept = kept_whole(&m->past.kept, s->index, s->name);
    if (kept == NULL) {
        return NULL;
    }
    kept->asked_ms = uv_now(m->loop) + 1; /* 0: never */
    return kept->state;
}

void machine_snapshots_free(struct machine *m)
{
    struct snapshot *s;

    while ((s = kept_pop(&m->past.kept)) != NULL) {
        snapshot_free(s);
    }
    for (int i = 0; i < KEPT_STATES; i++) {
        snapshot_free(m->past.incoming[i]);
        m->past.incoming[i] = NULL;
    }
    snapshot_free(m->past.asked); /* the trainer brings nothing any more */
    free(m->past.late);
    m->past.asked = NULL;
    m->past.late = NULL;
    m->past.late_here = false;
    snapshot_free(m->past.spare);
    m->past.spare = NULL; /* a move to another stage makes others */
}

/* ---- reduced bytes ------------------------------------------------------ */

bool machine_round_path(const struct machine *m,
                        uint64_t round,
                        char path[MACHINE_PATH_MAX])
{
    int n = m->past.rounds == NULL
                ? 0
                : snprintf(path, MACHINE_PATH_MAX, "%s/%" PRIu64 ".wire",
                           m->past.rounds, round);

    return n > 0 && n < MACHINE_PATH_MAX;
}

static uint64_t rounds_kept(const struct machine *m)
{
    uint64_t n = run_results(&m->vector, m->terms.state_bytes, m->n_wire);

    return n < ROUNDS_MAX ? n : ROUNDS_MAX;
}

/* Delete all but the `kept` ones up to `newest`: what is too long ago,
 * whichever rounds this peer was not there for or skipped, and what is of a
 * branch that was left. */
static void
prune_rounds(const struct machine *m, uint64_t newest, uint64_t kept)
{
    DIR *d = opendir(m->past.rounds);
    struct dirent *e;

    while (d != NULL && (e = readdir(d)) != NULL) {
        char path[MACHINE_PATH_MAX], name[32];
        uint64_t round;

        if (sscanf(e->d_name, "%" SCNu64, &round) != 1 ||
            snprintf(name, sizeof name, "%" PRIu64 ".wire", round) < 0 ||
            strcmp(name, e->d_name) != 0) {
            continue; /* none of ours */
        }
        if ((round > newest || newest - round >= kept) &&
            machine_round_path(m, round, path)) {
            (void)unlink(path);
        }
    }
    if (d != NULL) {
        (void)closedir(d);
    }
}

void machine_rounds_forget(const struct machine *m)
{
    if (m->past.rounds != NULL) {
        prune_rounds(m, 0, 0);
    }
}

/* What a worker writes of a round. */
struct round_job {
    struct machine_job job;
    uint64_t round;
    struct wire_slot *slot; /* pinned */
};

static void round_run(struct machine_job *job)
{
    const struct round_job *j = (const struct round_job *)job;
    const struct machine *m = job->m;
    char path[MACHINE_PATH_MAX];
    size_t bytes = m->codec->bytes(terms_elements(&m->terms, j->round));
    int fd;

    prune_rounds(m, j->round, rounds_kept(m));
    if (!machine_round_path(m, j->round, path)) {
        return;
    }
    (void)unlink(path); /* of a branch that was left; or of an earlier life */
    fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
    job->rc =
        fd < 0 ? LOCO_EIO : machine_write_at(fd, 0, j->slot->bytes, bytes);
    if (fd >= 0) {
        (void)close(fd);
    }
    if (job->rc != 0) {
        (void)unlink(path);
    }
}

static void round_done(struct machine_job *job, int status)
{
    struct round_job *j = (struct round_job *)job;
    struct wire_slot *slot = j->slot;

    slot->pins--;
    slot->saved = status == 0 && job->rc == 0 && slot->use == WIRE_REDUCED &&
                  slot->key == j->round;
    job->m->past.round_saving = false;
    machine_wire_release(job->m);
}

static const struct job_kind round_kind = {
    .size = sizeof(struct round_job),
    .pool = POOL_DISK,
    .run = round_run,
    .done = round_done,
};

void machine_round_save(struct machine *m,
                        struct wire_slot *slot,
                        uint64_t round)
{
    struct round_job *j;

    if (m->past.rounds == NULL || m->past.round_saving || rounds_kept(m) == 0) {
        return;
    }
    j = machine_job_new(m, &round_kind, NULL);
    if (j != NULL) {
        j->round = round;
        j->slot = slot;
        slot->pins++;
        m->past.round_saving = true; /* a slow disk skips rounds */
        machine_job_submit(&j->job);
    }
}

int machine_round_fill(struct machine *m, const struct segment *s, uint8_t *dst)
{
    size_t at = m->codec->bytes(s->offset), len = m->codec->bytes(s->len);
    char path[MACHINE_PATH_MAX];
    int fd, rv;

    if (!machine_round_path(m, s->index, path)) {
        return LOCO_ENOENT;
    }
    fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
        return LOCO_ENOENT;
    }
    rv = machine_read_at(fd, at, dst, len);
    (void)close(fd);
    return rv;
}
