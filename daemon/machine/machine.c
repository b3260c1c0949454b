/* machine.c - see machine.h. */
#include "daemon/machine/machine.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "daemon/machine/internal.h"
#include "daemon/settings/state_dir.h"
#include "proto/base/err.h"
#include "proto/base/errmsg.h"
#include "proto/base/file.h"
#include "proto/base/log.h"
#include "proto/base/pages.h"

#define WORKERS 1 /* of each kind */

/* Behind the trainer's threads (TRAINER_NICE): the files of a commit are
 * written while its outer step is made, for which a training loop waits. A
 * `nice` that is set while the daemon runs is that of all threads
 * (settings/courtesy.h). */
#define DISK_NICE 10

void machine_stop(struct machine *m, int exit_code)
{
    if (!m->stopped) {
        m->stopped = true;
        m->on_stop(m->data, exit_code);
    }
}

void machine_post(struct machine *m, const struct local_event *ev)
{
    (void)pthread_mutex_lock(&m->mutex);
    if (m->shell != NULL) {
        (void)shell_post(m->shell, ev);
    }
    (void)pthread_mutex_unlock(&m->mutex);
}

int machine_command(struct machine *m, const struct trainer_command *command)
{
    struct trainer_command c = *command;

    if (m->trainer == NULL) {
        return LOCO_ENOENT;
    }
    c.saves = (c.job.type == JOB_LOAD || c.job.type == JOB_APPLY ||
               c.job.type == JOB_PAIR) &&
              machine_expects_checkpoint(m);
    return trainer_post(m->trainer, &c) ? 0 : LOCO_EFULL;
}

/* ---- worker jobs ------------------------------------------------------ */

void *machine_job_new(struct machine *m,
                      const struct job_kind *kind,
                      const struct job *job)
{
    struct machine_job *j = calloc(1, kind->size);

    if (j != NULL) {
        j->m = m;
        j->kind = kind;
        j->asked = job != NULL;
    }
    if (j != NULL && j->asked) {
        j->answer = job_answer(job, 0);
    }
    return j;
}

static void job_run(struct worker_job *w)
{
    struct machine_job *j = w->data;

    j->kind->run(j);
}

static void close_workers(struct machine *m);

static void job_done(struct worker_job *w, int status)
{
    struct machine_job *j = w->data;
    struct machine *m = j->m;
    bool saving = m->saving;

    m->n_jobs--;
    j->kind->done(j, status);
    if (j->asked) {
        j->answer.rc = status != 0 ? status : j->rc;
        machine_post(m, &j->answer);
    }
    free(j);
    machine_stage_advance(m);
    if (m->closing && saving && !m->saving) {
        close_workers(m); /* it waited for that checkpoint */
    }
}

void machine_job_submit(struct machine_job *j)
{
    struct machine *m = j->m;
    struct worker_pool *const pools[] = {[POOL_WORKERS] = &m->workers,
                                         [POOL_DISK] = &m->disk,
                                         [POOL_URLS] = &m->urls.pool};

    m->n_jobs++;
    j->work.data = j;
    if (worker_submit(pools[j->kind->pool], &j->work, job_run, job_done) != 0) {
        job_done(&j->work, LOCO_ECLOSED);
    }
}

/* ---- files of the state directory -------------------------------------- */

struct file_job {
    struct bytes_job b;
    const char *name, *what;
};

static void file_run(struct machine_job *job)
{
    const struct file_job *j = (const struct file_job *)job;
    char path[MACHINE_PATH_MAX];

    job->rc = file_path_join(path, job->m->opt.state_dir, j->name, job->errmsg);
    if (job->rc == 0) {
        job->rc = file_write_whole(path, j->b.bytes, j->b.len, job->errmsg);
    }
}

static void file_done(struct machine_job *job, int status)
{
    struct file_job *j = (struct file_job *)job;

    if (status == 0 && job->rc != 0) {
        log_warn("state", "%s was not written: %s", j->what, job->errmsg);
    }
    free(j->b.bytes);
}

static const struct job_kind file_kind = {
    .size = sizeof(struct file_job),
    .pool = POOL_DISK,
    .run = file_run,
    .done = file_done,
};

/* ---- actions ---------------------------------------------------------- */

/* A job that works on a copy of the action's bytes; it begins with a bytes_job.
 * NULL: no memory. */
static void *job_with_bytes(struct machine *m,
                            const struct job_kind *kind,
                            const struct job *job,
                            const struct out_span *span,
                            const struct out *out)
{
    struct bytes_job *j = machine_job_new(m, kind, job);

    if (j != NULL) {
        j->bytes = malloc(span->len);
    }
    if (j == NULL || j->bytes == NULL) {
        free(j);
        return NULL;
    }
    memcpy(j->bytes, out->bytes + span->at, span->len);
    j->len = span->len;
    return j;
}

static int
configure(struct machine *m, const struct job *job, const struct out *out)
{
    struct bytes_job *j =
        job_with_bytes(m, &machine_configure_job, job, &job->configure, out);

    if (j == NULL) {
        return LOCO_ENOMEM;
    }
    machine_job_submit(&j->job);
    return 0;
}

/* Bytes that replace a file; lost for want of memory, they come again. */
static void
replace(struct machine *m, const struct job *job, const struct out *out)
{
    const struct out_span *span = job->type == JOB_PEERS   ? &job->peers
                                  : job->type == JOB_CHAIN ? &job->chain
                                                           : &job->revoked;
    struct file_job *j = job_with_bytes(m, &file_kind, NULL, span, out);

    if (j == NULL) {
        return;
    }
    if (job->type == JOB_PEERS) {
        j->name = STATE_DIR_PEERS;
        j->what = "the peers cache";
    } else if (job->type == JOB_CHAIN) {
        j->name = STATE_DIR_CHAIN;
        j->what = "the chain of views";
    } else {
        j->name = STATE_DIR_REVOKED;
        j->what = "the list of revoked invitations";
    }
    machine_job_submit(&j->b.job);
}

static void trainer_event(void *self, const struct local_event *event)
{
    struct machine *m = self;

    if (event->type == LOCAL_LOADED) {
        atomic_store(&m->in.loaded, true);
    }
    if (event->type == LOCAL_PLACED) {
        atomic_store(&m->wire.applied, event->placed.round);
    }
    if (event->type == LOCAL_APPLIED && event->rc == 0) {
        atomic_store(&m->wire.applied, event->applied.round);
    }
    if (event->type == LOCAL_REPEATED) {
        atomic_store(&m->work.done, true);
    }
    machine_post(m, event);
}

/* On a thread of the trainer's. */
static void take_snapshot(void *self, struct snapshot *s)
{
    struct machine *m = self;
    struct snapshot *old;

    (void)pthread_mutex_lock(&m->mutex);
    s->number = ++m->past.n_snapshots;
    old = m->past.incoming[0];
    m->past.incoming[0] = m->past.incoming[1];
    m->past.incoming[1] = s;
    (void)pthread_mutex_unlock(&m->mutex);
    snapshot_free(old);
}

/* Likewise. */
static struct snapshot *spare_snapshot(void *self)
{
    struct machine *m = self;
    struct snapshot *s;

    (void)pthread_mutex_lock(&m->mutex);
    s = m->past.spare;
    m->past.spare = NULL;
    (void)pthread_mutex_unlock(&m->mutex);
    return s;
}

/* Likewise. */
static void take_late(void *self, float *moments, uint64_t steps)
{
    struct machine *m = self;

    (void)pthread_mutex_lock(&m->mutex);
    free(m->past.late);
    m->past.late = moments;
    m->past.late_steps = steps;
    m->past.late_here = true;
    (void)pthread_mutex_unlock(&m->mutex);
}

/* What a training loop of its own is told of the run. */
static int
describe_run(const struct machine *m, struct trainer_welcome *w, char *errmsg)
{
    const struct manifest *f = m->manifest;
    int name =
        snprintf((char *)w->run_name, sizeof w->run_name, "%.63s", f->name);
    int preset =
        snprintf((char *)w->preset, sizeof w->preset, "%s", f->sync.preset);

    w->n_run_name = (uint8_t)name;
    w->n_preset = (uint8_t)preset;
    w->run_id = m->opt.run_id;
    w->batch = m->replica.batch;
    w->seq = m->replica.seq;
    w->vocab = m->replica.vocab;
    w->period = f->sync.period;
    w->tokens_most = (uint64_t)w->batch * w->seq;
    return name > 0 && preset > 0
               ? 0
               : errmsg_fail(errmsg, LOCO_EFORMAT, "the run has no name");
}

static int
open_trainer(struct machine *m, struct trainer_options *opt, char *errmsg)
{
    struct loop_socket_options loop = {.dir = m->opt.state_dir,
                                       .has_text = m->replica.n_train > 0};
    int rv;

    if (!m->replica.shared) {
        return trainer_open(&m->trainer, opt, errmsg);
    }
    rv = describe_run(m, &loop.welcome, errmsg);
    loop.list = &m->model.tensors;
    opt->loop = &loop;
    return rv != 0 ? rv : trainer_open(&m->trainer, opt, errmsg);
}

bool machine_waits_for_loop(const struct machine *m)
{
    return m->trainer != NULL && trainer_waits_for_loop(m->trainer);
}

/* 0; else the machine stops. */
static int start_trainer(struct machine *m)
{
    struct trainer_options opt = {
        .self = m,
        .post = trainer_event,
        .take_snapshot = take_snapshot,
        .spare_snapshot = spare_snapshot,
        .take_late = take_late,
    };
    char errmsg[ERRMSG_SIZE] = "out of memory";
    int rv;

    if (m->trainer != NULL) {
        return 0;
    }
    rv = machine_open_data(m, errmsg);
    if (rv == 0) {
        opt.replica = m->replica;
        m->wire.slots.sparing = m->replica.device == NULL;
        opt.slots = m->stage.slots.n > 0 ? &m->stage.slots : NULL;
        opt.tokens_seen = m->stage.tokens_seen;
        opt.error_feedback = m->wire.error != NULL;
        opt.take_offer = machine_take_offer;
        opt.offer_block = m->terms.audits ? m->terms.block : 0;
        if (m->terms.audits_work) {
            m->past.kept.more = KEPT_STATES_MAX - KEPT_STATES;
            m->wire.offers.more = OFFERS_PAST_MAX - OFFERS_PAST;
        }
        opt.take_moments = machine_take_moments;
        opt.moments_block = m->terms.audits_work ? m->terms.block : 0;
        opt.cpu_fallback = m->use.cpu_fallback;
        rv = open_trainer(m, &opt, errmsg);
    }
    if (rv == 0) {
        trainer_configure(m->trainer, m->opt.settings);
    }
    if (rv != 0) {
        log_error("train", "cannot start the trainer: %s", errmsg);
        machine_stop(m, rv == LOCO_ENOMEM ? LOCO_EXIT_RESOURCES
                        : rv == LOCO_EDEVICE || rv == LOCO_ECUDA
                            ? LOCO_EXIT_DEVICE
                            : LOCO_EXIT_CONFIG);
    }
    return rv;
}

/* What a state has behind its vectors; what the text does not say is 0. */
static void copy_numbers(const struct machine *m, float *to)
{
    const char *text = checkpoint_text(&m->found.file, "numbers");
    const float *end = m->found.state + m->terms.state_bytes / sizeof *to;

    for (; to < end; to++) {
        char *next = NULL;

        *to = text == NULL ? 0.0F : strtof(text, &next);
        text = next;
    }
}

/* What was handed to the trainer, which has taken it over. */
static void forget_found(struct machine *m)
{
    free(m->found.state);
    free(m->found.moments);
    m->found.state = m->found.moments = NULL;
}

/* For a state that is handed to the trainer. */
static bool has_room(struct machine *m)
{
    if (m->found.state == NULL) { /* else of a LOAD before */
        m->found.state = malloc(m->terms.state_bytes);
    }
    return m->found.state != NULL;
}

/* The checkpoint's vectors, contiguous as the trainer wants them. Which ones it
 * has was seen when it was found. */
static int copy_checkpoint(struct machine *m)
{
    const struct checkpoint *c = &m->found.file;
    const float *u = checkpoint_vector(c, "adam_u");
    const float *v = checkpoint_vector(c, "adam_v");
    size_t bytes = m->n * sizeof(float);
    struct replica_names names;
    float *at;

    if (m->found.moments == NULL) { /* else of a try that failed */
        m->found.moments = calloc(2, bytes);
    }
    if (!has_room(m) || m->found.moments == NULL) {
        return LOCO_ENOMEM;
    }
    at = m->found.state;
    memcpy(at, c->state.phi, bytes);
    replica_state_names(&m->replica.method, &names);
    for (size_t i = 0; i < names.n; i++) {
        memcpy(at += m->n, checkpoint_vector(c, names.name[i]), bytes);
    }
    copy_numbers(m, at + m->n);
    if (u != NULL && v != NULL) {
        memcpy(m->found.moments, u, bytes);
        memcpy(m->found.moments + m->n, v, bytes);
    }
    pages_forget(c->file.map.data, c->file.map.size);
    return 0;
}

/* The checkpoint that was found, to the trainer. */
static int restore(struct machine *m, const struct job *job)
{
    struct trainer_command c = {.job = *job};

    if (copy_checkpoint(m) != 0) {
        return LOCO_ENOMEM;
    }
    c.state = m->found.state;
    c.moments = m->found.moments;
    c.moment_steps = m->found.file.state.moment_steps;
    c.inner_step = m->found.file.state.inner_step;
    c.tokens = m->found.file.state.tokens;
    return machine_command(m, &c);
}

/* One of the last states, to the trainer, which may publish another one before
 * it has read it: a copy. */
static int load_kept(struct machine *m, const struct job *job)
{
    const struct job_load *what = &job->load;
    struct trainer_command c = {.job = *job};
    const struct kept_state *kept;

    machine_snapshots_collect(m);
    kept = kept_whole(&m->past.kept, what->kept_round, what->kept_name);
    if (kept == NULL) {
        return LOCO_ENOENT;
    }
    if (!has_room(m)) {
        return LOCO_ENOMEM;
    }
    memcpy(m->found.state, ((const struct snapshot *)kept->state)->state,
           m->terms.state_bytes);
    c.state = m->found.state;
    return machine_command(m, &c);
}

/* The trainer can begin with round 0. The author signed the file's hash, so one
 * that nobody can begin with stops every machine that tries. */
static int open_beginning(struct machine *m)
{
    char errmsg[ERRMSG_SIZE];
    int rv = machine_open_init(m, errmsg);

    if (rv != 0) {
        log_error("train", "cannot begin: %s", errmsg);
    }
    if (rv != 0 && rv != LOCO_ENOENT) {
        machine_stop(m, rv == LOCO_ENOMEM ? LOCO_EXIT_RESOURCES
                                          : LOCO_EXIT_CONFIG);
    }
    return rv;
}

static int load(struct machine *m, const struct job *job)
{
    struct trainer_command c = {.job = *job, .state = m->in.state};
    const struct job_load *what = &job->load;
    int rv;

    /* Maybe of another branch, which counts its own rounds. */
    machine_leaves_stop(m);
    if (start_trainer(m) != 0) {
        return 0; /* nobody is there any more to be told */
    }
    if (what->from_kept) {
        return load_kept(m, job);
    }
    if (what->share <= 0 && what->from_disk && !what->from_seed) {
        return restore(m, job);
    }
    if (c.state == NULL && (what->share > 0 || !what->from_seed)) {
        return LOCO_ENOENT;
    }
    if (what->from_seed && (rv = open_beginning(m)) != 0) {
        return rv;
    }
    machine_work_undo(m, what->undo, &c);
    return machine_command(m, &c);
}

static int apply(struct machine *m, const struct job *job)
{
    bool ring = job->apply.buffer == BUFFER_RING;
    struct wire_slot *slot = wire_slots_apply(
        &m->wire.slots, ring ? WIRE_RING : WIRE_FETCHED, job->apply.round);
    struct trainer_command c = {
        .job = *job,
        /* of what the round has taken */
        .error = job->apply.ours ? m->wire.error : NULL,
    };

    if (slot == NULL || m->trainer == NULL) {
        return LOCO_ENOENT;
    }
    c.wire = slot->bytes;
    c.wire_room = slot->room;
    machine_snapshots_leave(m);
    machine_wire_give(m, job->apply.round);
    if (job->apply.ours && m->terms.audits) {
        machine_spend_offer(m, job->apply.round);
    }
    machine_round_save(m, slot, job->apply.round);
    machine_work_undo(m, job->apply.undo, &c);
    return machine_command(m, &c);
}

static void
train(struct machine *m, const struct job *job, const struct out *out)
{
    const struct out_span *lease = &job->train.lease;
    struct trainer_command c = {.job = *job};

    if (lease->len == sizeof c.lease) {
        memcpy(&c.lease, out->bytes + lease->at, sizeof c.lease);
    }
    (void)machine_command(m, &c);
}

static int evaluate(struct machine *m, const struct job *job)
{
    const struct trainer_command c = {.job = *job};

    return machine_command(m, &c);
}

void machine_configure(struct machine *m)
{
    const struct config *settings = m->opt.settings;

    atomic_store(&m->use.upload_cap, settings->upload_bytes_per_s);
    atomic_store(&m->use.download_cap, settings->download_bytes_per_s);
    atomic_store(&m->use.disk_quota, settings->disk_bytes);
    atomic_store(&m->use.keep, settings->keep);
    if (atomic_exchange(&m->use.checkpoint_percent,
                        settings->checkpoint_percent) !=
        settings->checkpoint_percent) {
        pace_again(&m->save_pace);
    }
    atomic_store(&m->use.memory_cap, settings->memory_bytes);
    if (m->trainer != NULL) {
        trainer_configure(m->trainer, settings);
    }
}

/* A loop of its own ends; other trainers rest anyway. */
static void tell_over(struct machine *m, const struct job *job)
{
    const struct trainer_command c = {.job = *job};

    if (m->replica.shared) {
        (void)machine_command(m, &c);
    }
}

static void pause_trainer(struct machine *m, bool paused)
{
    if (m->trainer != NULL) {
        trainer_pause(m->trainer, paused);
    }
}

static void
tell_strays(struct machine *m, const struct job *job, const struct out *out)
{
    const struct job_strays *of = &job->strays;
    struct stray_member member[CODEC_TERMS_MAX] = {0};
    struct local_event answer = job_answer(job, 0);
    struct local_member one;

    _Static_assert(VIEW_MEMBERS_MAX <= CODEC_TERMS_MAX, "a lane for each");
    for (uint32_t k = 0; k < of->n; k++) {
        memcpy(&one, out->bytes + of->member.at + k * sizeof one, sizeof one);
        memcpy(member[k].id, one.id.b, sizeof member[k].id);
        member[k].tokens = one.tokens;
    }
    answer.strays.mask =
        strays_commit(&m->wire.strays, of->attempt, member, of->n);
    machine_post(m, &answer);
}

/* 0: it is done, or its end will be reported. */
static int
begin(struct machine *m, const struct job *job, const struct out *out)
{
    switch (job->type) {
    case JOB_CONFIGURE:
        return configure(m, job, out);
    case JOB_LOAD:
        return load(m, job);
    case JOB_TRAIN:
        train(m, job, out);
        return 0;
    case JOB_APPLY:
        return apply(m, job);
    case JOB_PAIR:
        return machine_pair_apply(m, job);
    case JOB_EVAL:
        return evaluate(m, job);
    case JOB_HASH:
        return machine_hash(m, job);
    case JOB_AUDIT:
        return machine_audit(m, job);
    case JOB_STRAYS:
        tell_strays(m, job, out);
        return 0;
    case JOB_REPEAT:
        return machine_repeat(m, job, out);
    case JOB_EVIDENCE:
        return machine_evidence(m, job, out);
    case JOB_INHERIT:
        return machine_inherit(m, &job->inherit);
    case JOB_VERIFY:
        return machine_verify(m, job);
    case JOB_KEEP:
        machine_keep(m, job->keep.index);
        return 0;
    case JOB_DOWNLOAD:
        return machine_download(m, job);
    case JOB_CHECKPOINT:
        machine_round_checkpoint(m);
        return 0;
    case JOB_PEERS:
    case JOB_CHAIN:
    case JOB_REVOKED:
        replace(m, job, out);
        return 0;
    case JOB_STAGE:
        machine_stage_move(m, job->stage.stage);
        return 0;
    case JOB_PIPE:
        return machine_pipe(m, job);
    case JOB_OVER:
        tell_over(m, job);
        return 0;
    case JOB_PAUSE:
    case JOB_RESUME:
        pause_trainer(m, job->type == JOB_PAUSE);
        return 0;
    case JOB_STOP:
        machine_stop(m, job->stop.exit_code);
        return 0;
    case JOB_LOG:
        log_write_event((enum log_level)job->log.level, "node", job->log.event,
                        (const char *)out->bytes + job->log.text.at);
        return 0;
    case JOB_TYPE_COUNT:
        break;
    }
    return 0;
}

static void
machine_local(void *self, const struct job *job, const struct out *out)
{
    struct machine *m = self;
    struct local_event answer;
    int rc;

    if (m->closing || m->shell == NULL) {
        return; /* its worker and its trainer take no more */
    }
    if (atomic_exchange(&m->in.loaded, false)) {
        machine_state_close(m, true);
        forget_found(m);
    }
    machine_wire_release(m);
    rc = begin(m, job, out);
    if (rc != 0) {
        answer = job_answer(job, rc);
        machine_post(m, &answer);
    }
}

static int machine_save(void *self, const uint8_t *bytes, size_t len)
{
    struct machine *m = self;
    char path[MACHINE_PATH_MAX], errmsg[ERRMSG_SIZE];
    int rv = file_path_join(path, m->opt.state_dir, STATE_DIR_RECORD, errmsg);

    rv = rv != 0 ? rv : file_write_whole(path, bytes, len, errmsg);
    if (rv != 0) {
        log_error("state", "%s", errmsg);
    }
    return rv;
}

/* ---- life ------------------------------------------------------------- */

struct shell_calls machine_calls(struct machine *m)
{
    return (struct shell_calls){
        .self = m,
        .wire_len = machine_wire_len,
        .fill = machine_fill,
        .lend = machine_lend,
        .place = machine_place,
        .take = machine_take,
        .sum = machine_sum,
        .save = machine_save,
        .local = machine_local,
    };
}

/* There was no second thread to be had. */
static void never_opened(struct worker_pool *pool)
{
    free(pool->data);
}

int machine_open(struct machine **machine,
                 uv_loop_t *loop,
                 const struct machine_options *opt,
                 machine_stop_cb on_stop,
                 void *data)
{
    struct machine *m = calloc(1, sizeof *m);
    int rv;

    if (m == NULL) {
        return LOCO_ENOMEM;
    }
    m->opt = *opt;
    m->loop = loop;
    m->on_stop = on_stop;
    m->data = data;
    m->urls.stop = -1;
    m->work.reading = WORK_ROOMS;
    machine_configure(m);
    rv = worker_open(&m->workers, loop, WORKERS, 0);
    if (rv != 0) {
        free(m);
        return rv;
    }
    rv = worker_open(&m->disk, loop, WORKERS, DISK_NICE);
    if (rv != 0) {
        m->workers.data = m;
        worker_close(&m->workers, never_opened);
        return rv;
    }
    (void)pthread_mutex_init(&m->mutex, NULL);
    for (int i = 0; i < WIRE_SLOTS; i++) {
        (void)pthread_mutex_init(&m->wire.guard[i].lock, NULL);
    }
    *machine = m;
    return 0;
}

void machine_connect(struct machine *m,
                     struct shell *shell,
                     const struct node *node)
{
    m->shell = shell;
    m->node = node;
}

void machine_disconnect(struct machine *m)
{
    (void)pthread_mutex_lock(&m->mutex);
    m->shell = NULL;
    (void)pthread_mutex_unlock(&m->mutex);
    m->stopped = true; /* whatever fails now stops nothing */
}

const struct manifest *machine_manifest(const struct machine *m)
{
    return m->configured ? m->manifest : NULL;
}

static void free_all(struct machine *m)
{
    for (int i = 0; i < WIRE_SLOTS; i++) {
        pages_give(m->wire.slots.slot[i].bytes, m->wire.slots.slot[i].room);
        leaves_free(&m->wire.guard[i].leaves);
        (void)pthread_mutex_destroy(&m->wire.guard[i].lock);
    }
    machine_work_free(m); /* it may hold a state */
    machine_snapshots_free(m);
    if (m->urls.stop >= 0) {
        (void)close(m->urls.stop);
    }
    for (uint32_t i = 0; m->files != NULL && i < m->terms.n_shards; i++) {
        if (m->files[i].fd >= 0) {
            (void)close(m->files[i].fd);
        }
        shard_close(&m->files[i].shard);
        free(m->files[i].leaves);
    }
    pieces_free(&m->in.list);
    free(m->in.held);
    if (m->found.held) {
        checkpoint_close(&m->found.file);
    }
    stage_slots_close(&m->stage.slots);
    lanes_free(&m->wire.reduce.lanes);
    strays_free(&m->wire.strays);
    machine_audit_free(m);
    free(m->wire.zeros);
    free(m->wire.error);
    free(m->pair.in);
    free(m->found.record);
    forget_found(m);
    machine_state_close(m, false);
    free(m->files);
    free(m->train);
    free(m->token_bytes);
    machine_close_model(m);
    free(m->checkpoints);
    free(m->past.rounds);
    free(m->manifest);
    (void)pthread_mutex_destroy(&m->mutex);
    free(m);
}

static void disk_closed(struct worker_pool *pool)
{
    struct machine *m = pool->data;
    void (*done)(void *data) = m->close_done;
    void *data = m->close_data;

    trainer_close(m->trainer); /* jobs could read its contribution until now */
    free_all(m);
    done(data);
}

static void urls_closed(struct worker_pool *pool)
{
    struct machine *m = pool->data;

    m->disk.data = m;
    worker_close(&m->disk, disk_closed);
}

static void workers_closed(struct worker_pool *pool)
{
    struct machine *m = pool->data;

    m->urls.pool.data = m;
    if (m->urls.open) {
        worker_close(&m->urls.pool, urls_closed);
    } else {
        urls_closed(&m->urls.pool);
    }
}

/* Workers end when the newest state is on disk, or could not be written. */
static void close_workers(struct machine *m)
{
    const struct snapshot *newest = machine_newest(m);

    if (m->saving) {
        return; /* its end calls again */
    }
    if (!m->final_save && newest != NULL && newest->number > m->saved_number) {
        m->final_save = true;
        machine_save_checkpoint(m);
        if (m->saving) {
            return;
        }
    }
    m->workers.data = m;
    worker_close(&m->workers, workers_closed);
}

void machine_close(struct machine *m, void (*done)(void *data), void *data)
{
    m->stopped = m->closing = true;
    m->close_done = done;
    m->close_data = data;
    if (m->urls.stop >= 0) {
        (void)eventfd_write(m->urls.stop, 1);
    }
    trainer_stop(m->trainer);
    machine_snapshots_collect(m);
    close_workers(m);
}
