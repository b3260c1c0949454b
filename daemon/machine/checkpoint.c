/* checkpoint.c - the state of the last commit, to disk.
 *
 * After every round, where that costs little. Writing some gigabytes each
 * minute would take a share of the processor from training, and years from a
 * disk: writing takes at most checkpoint_percent of the time, so that after one
 * which took 2 s the next is written 18 s later. What is lost by that is the
 * rounds since, if all members die at once; who comes back alone fetches the
 * state of the others. What was put off is written behind the first round whose
 * time has come, or without one where none comes soon: not while the members
 * exchange, when they would wait for a busy machine. A daemon that ends in
 * order writes the newest.
 *
 * A state of a GPU has inner moments only if it is to be written, which is
 * foreseen before it is put in place: fetching them takes as long as the rest.
 * One that is written unforeseen, since no round came or the daemon ends, gets
 * them as they are then; where inner steps were made since, their count says
 * so. Without any, the optimizer would begin anew: so it does where the GPU is
 * lost before they are fetched, or no memory is here for them, and the log says
 * it.
 *
 * Each host of a stage writes after every round: where all of them come back,
 * they must have a round in common. The state that a run ends with is written
 * at once too: people look at it then.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/machine/internal.h"
#include "proto/base/clock.h"
#include "proto/base/err.h"
#include "proto/base/log.h"

struct checkpoint_job {
    struct machine_job job;
    uint64_t took_ms;
    struct snapshot *snapshot; /* one owner is the job */
    char tokens[24], commit[ID_HEX_MAX];
    char numbers[REPLICA_NUMBERS_MAX * sizeof "16777216"]; /* "": none */
    char stage[12];                                        /* "": no pipeline */
    char *record; /* of its commit, in hex; NULL: none */
};

/* The vectors of a snapshot beside phi: moments that are not in the state are
 * this peer's own. */
static size_t list_vectors(const struct snapshot *s,
                           const struct method *method,
                           const struct replica_names *names,
                           struct checkpoint_vector out[CHECKPOINT_MORE_MAX])
{
    size_t n = 0;

    for (; n < names->n; n++) {
        out[n] = (struct checkpoint_vector){names->name[n],
                                            s->state + (n + 1) * s->n};
    }
    if (s->moments == NULL) {
        return n;
    }
    if (!replica_shares_u(method)) {
        out[n++] = (struct checkpoint_vector){"adam_u", s->moments};
    }
    if (!replica_shares_v(method)) {
        out[n++] = (struct checkpoint_vector){"adam_v", s->moments + s->n};
    }
    return n;
}

static void checkpoint_run(struct machine_job *job)
{
    struct checkpoint_job *j = (struct checkpoint_job *)job;
    struct machine *m = job->m;
    const struct snapshot *s = j->snapshot;
    char run[ID_HEX_MAX];
    struct st_meta extra[5] = {{.key = "commit", .value = j->commit},
                               {.key = "run_tokens", .value = j->tokens}};
    size_t n_extra = 2;
    struct checkpoint_vector more[CHECKPOINT_MORE_MAX];
    struct replica_names names;
    uint64_t began_ms = monotonic_ms();
    struct checkpoint_state state = {
        .n = s->n,
        .phi = s->state,
        .more = more,
        .round = s->round,
        .inner_step = s->inner_step,
        .moment_steps = s->moment_steps,
        .tokens = s->tokens,
        .run_id = run,
    };

    replica_state_names(&m->replica.method, &names);
    state.n_more = list_vectors(s, &m->replica.method, &names, more);
    if (j->numbers[0] != '\0') {
        extra[n_extra++] =
            (struct st_meta){.key = "numbers", .value = j->numbers};
    }
    if (j->stage[0] != '\0') {
        extra[n_extra++] = (struct st_meta){.key = "stage", .value = j->stage};
    }
    if (j->record != NULL) {
        extra[n_extra++] =
            (struct st_meta){.key = "record", .value = j->record};
    }
    hash32_hex(&m->opt.run_id, run);
    job->rc = checkpoint_save(m->checkpoints, &state, extra, n_extra,
                              (unsigned)atomic_load(&m->use.keep), job->errmsg);
    j->took_ms = monotonic_ms() - began_ms;
    machine_disk_measure(m);
}

/* It is written, or could not be. */
static void written(const struct checkpoint_job *j)
{
    struct machine *m = j->job.m;

    m->saving = false;
    if (j->job.rc == 0) {
        m->saved_number = j->snapshot->number;
        pace_done(&m->save_pace, uv_now(m->loop), j->took_ms,
                  atomic_load(&m->use.checkpoint_percent));
        return;
    }
    log_error("state",
              "the checkpoint of round %llu was not written: %s; the one "
              "before is intact",
              (unsigned long long)j->snapshot->round, j->job.errmsg);
    if (j->job.rc == LOCO_EDISK) {
        machine_stop(m, LOCO_EXIT_RESOURCES);
    }
}

static void checkpoint_done(struct machine_job *job, int status)
{
    struct checkpoint_job *j = (struct checkpoint_job *)job;

    if (status == 0) {
        written(j);
    }
    machine_snapshot_drop(job->m, j->snapshot);
    free(j->record);
}

static const struct job_kind checkpoint_kind = {
    .size = sizeof(struct checkpoint_job),
    .pool = POOL_DISK,
    .run = checkpoint_run,
    .done = checkpoint_done,
};

/* The record of the commit in place, in hex; NULL: there is none. */
static char *record_text(const struct machine *m)
{
    const struct commit *c = node_record(m->node);
    uint8_t *bytes = c == NULL ? NULL : malloc(FRAME_CONTROL_MAX);
    char *text = NULL;
    int n;

    if (bytes == NULL) {
        return NULL;
    }
    n = msg_encode(&commit_schema, c, bytes, FRAME_CONTROL_MAX);
    if (n > 0) {
        text = malloc(2 * (size_t)n + 1);
    }
    if (text != NULL) {
        hex_encode(bytes, (size_t)n, text);
    }
    free(bytes);
    return text;
}

/* A state that just came, whose record did not: the checkpoint before stays. */
static bool lacks_record(const struct machine *m, const struct node_status *s)
{
    return m->terms.lease_quota > 0 && s->round > 0 &&
           node_record(m->node) == NULL;
}

/* The newest state that the trainer published of the round that the node has;
 * at the end the trainer may have applied one that the node was not told of.
 * NULL: none. */
static struct snapshot *to_save(const struct machine *m, uint64_t round)
{
    for (int i = 0; i < KEPT_STATES; i++) {
        struct snapshot *s = m->past.kept.last[i].state;

        if (s != NULL && s->round == round) {
            return i == 0 || s->number > m->saved_number ? s : NULL;
        }
    }
    return NULL;
}

/* What the file says beside the vectors. */
static void describe(struct checkpoint_job *j, const struct node_status *s)
{
    const struct machine *m = j->job.m;
    const struct snapshot *snap = j->snapshot;
    struct replica_names names;

    (void)snprintf(j->tokens, sizeof j->tokens, "%llu",
                   (unsigned long long)s->run_tokens);
    hash32_hex(&s->commit_hash, j->commit);
    j->record = record_text(m);
    if (m->stage.held) {
        (void)snprintf(j->stage, sizeof j->stage, "%u", m->stage.number);
    }
    replica_state_names(&m->replica.method, &names);
    for (size_t i = (1 + names.n) * snap->n, at = 0;
         i < snap->n_state && at < sizeof j->numbers; i++) {
        at += (size_t)snprintf(j->numbers + at, sizeof j->numbers - at, "%.0f ",
                               (double)snap->state[i]);
    }
}

void machine_tell_without(const struct snapshot *s)
{
    if (s->moments == NULL) {
        log_warn("state",
                 "the state of round %" PRIu64 " is written without the "
                 "optimizer's moments, which cannot be had: whoever starts "
                 "from it begins them anew",
                 s->round);
    }
}

/* Whether it has what it is to be written with. False: that is on its way, and
 * writing is owed. */
static bool is_whole(struct machine *m, struct snapshot *s)
{
    const struct trainer_command c = {.job.type = JOB_CHECKPOINT};

    if (s->lacks && m->closing) { /* the trainer has stopped */
        s->lacks = false;
        free(s->idle); /* others come, and that is what was counted */
        s->idle = NULL;
        s->moments = trainer_moments(m->trainer, &s->moment_steps);
        machine_tell_without(s);
    }
    if (!s->lacks) {
        return true;
    }
    if (m->past.asked == NULL && machine_command(m, &c) == 0) {
        m->past.asked = s;
        s->refs++;
        free(s->idle); /* others come, and that is what was counted */
        s->idle = NULL;
    }
    (void)pace_want(&m->save_pace, uv_now(m->loop), true);
    return false;
}

void machine_save_checkpoint(struct machine *m)
{
    struct checkpoint_job *j = NULL;
    struct node_status *s;
    struct snapshot *snap;

    machine_snapshots_collect(m);
    s = malloc(sizeof *s);
    if (s == NULL || m->saving) {
        free(s);
        return;
    }
    node_status(m->node, s);
    snap = to_save(m, s->round);
    if (snap != NULL && !lacks_record(m, s) && is_whole(m, snap)) {
        j = machine_job_new(m, &checkpoint_kind, NULL);
    }
    if (j != NULL) {
        j->snapshot = snap;
        snap->refs++;
        describe(j, s);
        m->saving = true;
        m->saving_ms = uv_now(m->loop);
        machine_job_submit(&j->job);
    }
    free(s);
}

/* No pause: of a stage each round is written, and after the run's end there is
 * nothing that writing could slow. */
static bool is_eager(const struct machine *m)
{
    return m->stage.held || node_state(m->node) == NODE_FINISHED;
}

bool machine_expects_checkpoint(struct machine *m)
{
    uint64_t now = uv_now(m->loop);
    uint64_t since = m->asked_ms == 0 ? 0 : now - m->asked_ms;

    /* Who follows missed rounds makes some in a second, and then waits for one
     * of minutes: the longest of late counts, and a quarter more. */
    m->asked_ms = now;
    m->between_ms = since > m->between_ms / 2 ? since : m->between_ms / 2;
    return is_eager(m) ||
           pace_expects(&m->save_pace, now,
                        m->saving ? now - m->saving_ms : PACE_IDLE,
                        m->between_ms + m->between_ms / 4);
}

void machine_round_checkpoint(struct machine *m)
{
    const struct snapshot *s;
    bool unforeseen;

    machine_snapshots_collect(m); /* what leaves its place lends its memory */
    s = machine_newest(m);
    unforeseen = s != NULL && s->lacks; /* the next one will have moments */
    if (is_eager(m)) {
        pace_again(&m->save_pace);
    }
    if (pace_want(&m->save_pace, uv_now(m->loop), m->saving || unforeseen)) {
        machine_save_checkpoint(m);
    }
}

void machine_tick(struct machine *m)
{
    if (!m->closing && (pace_due(&m->save_pace, uv_now(m->loop), m->saving) ||
                        (is_eager(m) && pace_now(&m->save_pace, m->saving)))) {
        machine_save_checkpoint(m);
    }
}
