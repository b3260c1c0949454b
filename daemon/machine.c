/* machine.c - see machine.h. */
#include "daemon/machine.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "daemon/machine_internal.h"
#include "daemon/state_dir.h"
#include "proto/base/err.h"
#include "proto/base/log.h"
#include "train/errmsg.h"
#include "train/file.h"

#define KEEP    2 /* checkpoints */
#define WORKERS 1 /* of each kind */

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

static void post(struct machine *m, enum local_type type, int rc)
{
    struct local_event ev = {.type = type, .rc = rc};

    machine_post(m, &ev);
}

/* ---- worker jobs ------------------------------------------------------ */

struct machine_job *machine_job_new(struct machine *m, int kind)
{
    struct machine_job *j = calloc(1, sizeof *j);

    if (j != NULL) {
        j->m = m;
        j->kind = kind;
    }
    return j;
}

static void checkpoint_run(struct machine_job *j)
{
    struct machine *m = j->m;
    const struct snapshot *s = j->snapshot;
    char run[ID_HEX_MAX];
    struct st_meta extra[6] = {{.key = "commit", .value = j->extra_commit},
                               {.key = "run_tokens", .value = j->extra_tokens}};
    size_t n_extra = 2;
    struct checkpoint_vector others[TRAINERS_MAX];
    char names[TRAINERS_MAX][MACHINE_TRAINER_NAME];
    struct checkpoint_state state = {
        .n = s->n,
        .phi = s->phi,
        .m = s->m,
        .adam_u = s->u,
        .adam_v = s->v,
        .sum = s->sum,
        .more = others,
        .n_more = s->n_others,
        .round = s->round,
        .inner_step = s->inner_step,
        .tokens = s->tokens,
        .run_id = run,
    };

    if (s->n_numbers > 0) {
        extra[n_extra++] =
            (struct st_meta){.key = "numbers", .value = j->extra_numbers};
    }
    if (j->extra_stage[0] != '\0') {
        extra[n_extra++] =
            (struct st_meta){.key = "stage", .value = j->extra_stage};
    }
    if (j->extra_record != NULL) {
        extra[n_extra++] =
            (struct st_meta){.key = "record", .value = j->extra_record};
    }
    if (j->extra_slices != NULL) {
        extra[n_extra++] =
            (struct st_meta){.key = "slices", .value = j->extra_slices};
    }
    for (size_t i = 0; i < s->n_others; i++) {
        machine_trainer_name(names[i], i + 1);
        others[i] = (struct checkpoint_vector){names[i], s->others + i * s->n};
    }
    hash32_hex(&m->opt.run_id, run);
    j->rc = checkpoint_save(m->checkpoints, &state, extra, n_extra,
                            (unsigned)atomic_load(&m->keep), j->errmsg);
    machine_disk_measure(m);
}

static void file_run(struct machine_job *j)
{
    char path[MACHINE_PATH_MAX];

    j->rc = file_path_join(path, j->m->opt.state_dir,
                           j->kind == JOB_PEERS   ? STATE_DIR_PEERS
                           : j->kind == JOB_CHAIN ? STATE_DIR_CHAIN
                                                  : STATE_DIR_REVOKED,
                           j->errmsg);
    if (j->rc == 0) {
        j->rc = file_write_whole(path, j->bytes, j->len, j->errmsg);
    }
}

static void job_run(struct worker_job *w)
{
    struct machine_job *j = w->data;

    if (j->kind == JOB_CONFIGURE) {
        machine_configure_run(j);
    } else if (j->kind == JOB_HASH) {
        machine_hash_run(j);
    } else if (j->kind == JOB_LEAF) {
        machine_leaf_run(j);
    } else if (j->kind == JOB_VERIFY) {
        machine_verify_run(j);
    } else if (j->kind == JOB_ROUND) {
        machine_round_run(j);
    } else if (j->kind == JOB_DOWNLOAD) {
        machine_download_run(j);
    } else if (j->kind == JOB_SLICE) {
        machine_slice_run(j);
    } else if (j->kind == JOB_MARK) {
        machine_mark_run(j);
    } else if (j->kind == JOB_PEERS || j->kind == JOB_CHAIN ||
               j->kind == JOB_REVOKED) {
        file_run(j);
    } else {
        checkpoint_run(j);
    }
}

static void close_workers(struct machine *m);

static void checkpoint_done(struct machine *m, struct machine_job *j)
{
    m->saving = false;
    if (j->rc == 0) {
        m->saved_number = j->snapshot->number;
        return;
    }
    log_error("state",
              "the checkpoint of round %llu was not written: %s; the one "
              "before is intact",
              (unsigned long long)j->snapshot->round, j->errmsg);
    if (j->rc == LOCO_EDISK) {
        machine_stop(m, LOCO_EXIT_RESOURCES);
    }
}

static void job_done(struct worker_job *w, int status)
{
    struct machine_job *j = w->data;
    struct machine *m = j->m;
    struct local_event ev = {
        .type = LOCAL_HASHED,
        .rc = j->rc,
        .buffer = j->buffer,
        .index = j->index,
        .request = j->request,
        .hash = j->hash,
        .params_hash = j->params_hash,
        .momentum_hash = j->momentum_hash,
    };

    m->n_jobs--;
    if (j->slot != NULL) {
        j->slot->pins--;
    }
    m->pair_hashing -= j->kind == JOB_HASH && j->buffer == BUFFER_STEP;
    if (j->kind == JOB_ROUND) {
        m->round_saving = false;
    } else if (j->kind == JOB_DOWNLOAD) {
        j->rc = status != 0 ? LOCO_ECLOSED : j->rc;
        machine_downloaded(m, j);
    } else if (j->kind == JOB_VERIFY) {
        j->rc = status != 0 ? status : j->rc;
        machine_verified(m, j);
    } else if (status == 0 && j->kind == JOB_CONFIGURE) {
        machine_configured(m, j);
    } else if (status == 0 && j->kind == JOB_SLICE) {
        machine_sliced(m, j);
    } else if (j->kind == JOB_MARK) {
        machine_mark_done(m, j);
    } else if (status == 0 && j->kind == JOB_HASH) {
        machine_post(m, &ev);
    } else if (status == 0 && j->kind == JOB_CHECKPOINT) {
        checkpoint_done(m, j);
    } else if (status == 0 && j->kind == JOB_PEERS && j->rc != 0) {
        log_warn("state", "the peers cache was not written: %s", j->errmsg);
    } else if (status == 0 && j->kind == JOB_CHAIN && j->rc != 0) {
        log_warn("state", "the chain of views was not written: %s", j->errmsg);
    }
    machine_snapshot_drop(m, j->snapshot);
    machine_stage_advance(m);
    if ((j->kind == JOB_CHECKPOINT || j->kind == JOB_MARK) && m->closing) {
        close_workers(m);
    }
    free(j->extra_record);
    free(j->extra_slices);
    free(j->bytes);
    free(j);
}

void machine_job_submit(struct machine *m, struct machine_job *j)
{
    /* A vote waits for a hash, and a hash must not wait for the disk. */
    bool disk = j->kind == JOB_CHECKPOINT || j->kind == JOB_ROUND ||
                j->kind == JOB_MARK || j->kind == JOB_PEERS ||
                j->kind == JOB_CHAIN || j->kind == JOB_REVOKED;
    struct worker_pool *pool = j->kind == JOB_DOWNLOAD ? &m->urls
                               : disk                  ? &m->disk
                                                       : &m->workers;

    m->n_jobs++;
    j->job.data = j;
    if (worker_submit(pool, &j->job, job_run, job_done) != 0) {
        j->job.data = j;
        job_done(&j->job, LOCO_ECLOSED);
    }
}

/* ---- actions ---------------------------------------------------------- */

/* A job that works on a copy of the action's bytes. LOCO_ENOMEM. */
static int job_with_bytes(struct machine *m,
                          int kind,
                          const struct action *a,
                          const struct out *out)
{
    struct machine_job *j = machine_job_new(m, kind);

    if (j != NULL) {
        j->bytes = malloc(a->len);
    }
    if (j == NULL || j->bytes == NULL) {
        free(j);
        return LOCO_ENOMEM;
    }
    memcpy(j->bytes, out->bytes + a->bytes, a->len);
    j->len = a->len;
    machine_job_submit(m, j);
    return 0;
}

static void
configure(struct machine *m, const struct action *a, const struct out *out)
{
    if (job_with_bytes(m, JOB_CONFIGURE, a, out) != 0) {
        post(m, LOCAL_CONFIGURED, LOCO_ENOMEM);
    }
}

static void trainer_event(void *self, const struct local_event *event)
{
    struct machine *m = self;

    if (event->type == LOCAL_LOADED) {
        atomic_store(&m->state_loaded, true);
    }

    machine_post(m, event);
}

/* On the trainer thread. */
static void take_snapshot(void *self, struct snapshot *s)
{
    struct machine *m = self;
    struct snapshot *old;

    (void)pthread_mutex_lock(&m->mutex);
    s->number = ++m->n_snapshots;
    old = m->incoming[0];
    m->incoming[0] = m->incoming[1];
    m->incoming[1] = s;
    (void)pthread_mutex_unlock(&m->mutex);
    snapshot_free(old);
}

/* Likewise. */
static struct snapshot *spare_snapshot(void *self)
{
    struct machine *m = self;
    struct snapshot *s;

    (void)pthread_mutex_lock(&m->mutex);
    s = m->spare;
    m->spare = NULL;
    (void)pthread_mutex_unlock(&m->mutex);
    return s;
}

int machine_start_trainer(struct machine *m)
{
    struct trainer_options opt = {
        .self = m,
        .post = trainer_event,
        .take_snapshot = take_snapshot,
        .spare_snapshot = spare_snapshot,
    };
    char errmsg[ERRMSG_SIZE] = "out of memory";
    int rv;

    if (m->trainer != NULL) {
        return 0;
    }
    rv = machine_open_data(m, errmsg);
    if (rv == 0) {
        opt.replica = m->replica;
        opt.slots = m->slots.n > 0 ? &m->slots : NULL;
        opt.error_feedback =
            m->error != NULL ||
            (machine_owns(m) && m->manifest->sync.error_feedback);
        opt.cpu_fallback = m->opt.cpu_fallback;
        rv = trainer_open(&m->trainer, &opt, errmsg);
    }
    if (rv == 0) {
        trainer_set_share(m->trainer, m->opt.cpu_percent);
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

void machine_trainer_name(char name[MACHINE_TRAINER_NAME], size_t trainer)
{
    (void)snprintf(name, MACHINE_TRAINER_NAME, "trainer_%u", (unsigned)trainer);
}

/* What a state has behind its vectors; what the text does not say is 0. */
static void copy_numbers(const struct machine *m, float *to)
{
    const char *text = checkpoint_text(&m->restore, "numbers");
    size_t n = (size_t)(m->terms.state_bytes / sizeof *to) -
               (size_t)(to - m->restore_state);

    for (size_t i = 0; i < n; i++) {
        char *end = NULL;

        to[i] = text == NULL ? 0.0F : strtof(text, &end);
        text = end;
    }
}

/* The checkpoint's vectors, contiguous as the trainer wants them. Which ones it
 * has was seen when it was found. */
static int copy_checkpoint(struct machine *m)
{
    const struct checkpoint_state *s = &m->restore.state;
    const struct method *method = &m->replica.method;
    size_t bytes = m->n * sizeof(float);
    float *at;

    if (m->restore_state == NULL) { /* else of a try that failed */
        m->restore_state = malloc(m->terms.state_bytes);
    }
    if (m->restore_moments == NULL) {
        m->restore_moments = malloc(2 * bytes);
    }
    if (m->restore_state == NULL || m->restore_moments == NULL) {
        return LOCO_ENOMEM;
    }
    at = m->restore_state;
    memcpy(at, s->phi, bytes);
    if (replica_shares_m(method)) {
        memcpy(at += m->n, s->m, bytes);
    }
    if (replica_shares_u(method)) {
        memcpy(at += m->n, s->adam_u, bytes);
    }
    if (replica_shares_v(method)) {
        memcpy(at += m->n, s->adam_v, bytes);
    }
    if (replica_shares_sum(method)) {
        memcpy(at += m->n, s->sum, bytes);
    }
    for (uint32_t i = 1; i < method->trainers; i++) {
        char name[MACHINE_TRAINER_NAME];

        machine_trainer_name(name, i);
        memcpy(at += m->n, checkpoint_vector(&m->restore, name), bytes);
    }
    copy_numbers(m, at + m->n);
    if (s->adam_u != NULL && s->adam_v != NULL) {
        memcpy(m->restore_moments, s->adam_u, bytes);
        memcpy(m->restore_moments + m->n, s->adam_v, bytes);
    } else {
        memset(m->restore_moments, 0, 2 * bytes);
    }
    return 0;
}

void machine_restore(struct machine *m, uint64_t round)
{
    struct trainer_command c = {.type = TRAINER_RESTORE, .round = round};

    if (copy_checkpoint(m) != 0) {
        post(m, LOCAL_LOADED, LOCO_ENOMEM);
        return;
    }
    c.state = m->restore_state;
    c.moments = m->restore_moments;
    c.inner_step = m->restore.state.inner_step;
    c.tokens = m->restore.state.tokens;
    (void)trainer_post(m->trainer, &c);
}

static void load(struct machine *m, const struct action *a)
{
    struct trainer_command c = {
        .type = TRAINER_LOAD,
        .round = a->round,
        .rebase = a->rebase,
        .state = m->state_in,
    };

    if (machine_start_trainer(m) != 0) {
        return;
    }
    if (a->share > 0) {
        c.type = TRAINER_MIX;
        c.share = a->share;
    } else if (a->from_seed) {
        c.type = TRAINER_INIT;
    } else if (a->from_disk) {
        machine_restore(m, a->round);
        return;
    }
    if ((c.type == TRAINER_LOAD || c.type == TRAINER_MIX) && c.state == NULL) {
        post(m, LOCAL_LOADED, LOCO_ENOENT);
        return;
    }
    (void)trainer_post(m->trainer, &c);
}

static void apply(struct machine *m, const struct action *a)
{
    struct wire_slot *slot;
    struct trainer_command c = {
        .type = TRAINER_APPLY,
        .round = a->round,
        .share = a->share,
        .arrivals = a->arrivals,
        .members = a->members,
    };

    if (a->buffer == BUFFER_STEP) {
        machine_pair_apply(m, a);
        return;
    }
    slot = machine_slot_applied(m, a->buffer, a->round);
    if (slot == NULL || m->trainer == NULL) {
        post(m, LOCAL_APPLIED, LOCO_ENOENT);
        return;
    }
    c.wire = slot->bytes;
    c.wire_room = slot->room;
    if (a->buffer == BUFFER_RING) {
        c.error = m->error; /* that of what the round has taken */
    }
    (void)trainer_post(m->trainer, &c);
    machine_round_save(m, slot, a->round);
}

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
 * Owned slices go on while a reading of them is taken. NULL: none. */
static struct snapshot *to_save(const struct machine *m, uint64_t round)
{
    if (machine_owns(m)) {
        return m->snapshots[0];
    }
    for (int i = 0; i < SNAPSHOTS_MAX; i++) {
        struct snapshot *s = m->snapshots[i];

        if (s != NULL && s->round == round) {
            return i == 0 || s->number > m->saved_number ? s : NULL;
        }
    }
    return NULL;
}

/* If nothing is being saved. A busy disk skips rounds; the last one is always
 * written (machine_close). */
static void save_checkpoint(struct machine *m)
{
    struct machine_job *j;
    struct node_status *s;
    struct snapshot *snap;
    const char *text;

    machine_snapshots_collect(m);
    s = malloc(sizeof *s);
    if (s == NULL || m->saving) {
        free(s);
        return;
    }
    node_status(m->node, s);
    snap = to_save(m, s->round);
    j = snap != NULL && !lacks_record(m, s) ? machine_job_new(m, JOB_CHECKPOINT)
                                            : NULL;
    if (j != NULL) {
        (void)snprintf(j->extra_tokens, sizeof j->extra_tokens, "%llu",
                       (unsigned long long)s->run_tokens);
        hash32_hex(&s->commit_hash, j->extra_commit);
        j->extra_record = record_text(m);
        text = machine_reading(m, snap);
        j->extra_slices = text == NULL ? NULL : strdup(text);
        if (m->staged) {
            (void)snprintf(j->extra_stage, sizeof j->extra_stage, "%u",
                           m->stage);
        }
        for (size_t i = 0, at = 0;
             i < snap->n_numbers && at < sizeof j->extra_numbers; i++) {
            at += (size_t)snprintf(j->extra_numbers + at,
                                   sizeof j->extra_numbers - at, "%.0f ",
                                   (double)snap->numbers[i]);
        }
        j->snapshot = snap;
        snap->refs++;
        m->saving = true;
        machine_job_submit(m, j);
    }
    free(s);
}

static void
train(struct machine *m, const struct action *a, const struct out *out)
{
    struct trainer_command c = {
        .type = TRAINER_TRAIN,
        .round = a->round,
        .steps = a->steps,
        .members = a->members,
        .rank = a->rank,
    };

    if (a->len == sizeof c.lease) {
        memcpy(&c.lease, out->bytes + a->bytes, sizeof c.lease);
    }
    if (m->trainer != NULL) {
        (void)trainer_post(m->trainer, &c);
    }
}

static void evaluate(struct machine *m, const struct action *a)
{
    struct trainer_command c = {.type = TRAINER_EVAL, .round = a->round};

    if (m->trainer != NULL) {
        (void)trainer_post(m->trainer, &c);
    }
}

void machine_set_cpu(struct machine *m, unsigned percent)
{
    m->opt.cpu_percent = percent;
    if (m->trainer != NULL) {
        trainer_set_share(m->trainer, percent);
    }
}

static void pause_trainer(struct machine *m, bool paused)
{
    if (m->trainer != NULL) {
        trainer_pause(m->trainer, paused);
    }
}

/* What comes from elsewhere. */
static void fetched(struct machine *m, const struct action *a)
{
    if (a->type == ACTION_VERIFY) {
        machine_verify(m, a);
    } else if (a->type == ACTION_KEEP) {
        machine_keep(m, a->index);
    } else {
        machine_download(m, a);
    }
}

/* Bytes that replace a file of the state directory. */
static int job_of(enum action_type type)
{
    return type == ACTION_PEERS   ? JOB_PEERS
           : type == ACTION_CHAIN ? JOB_CHAIN
                                  : JOB_REVOKED;
}

/* Of a model whose stages, or whose slices, are at several machines. */
static void part(struct machine *m, const struct action *a)
{
    if (a->type == ACTION_SLICE) {
        machine_slice(m, a);
    } else {
        machine_stage_act(m, a);
    }
}

static void
execute(struct machine *m, const struct action *a, const struct out *out)
{
    switch (a->type) {
    case ACTION_CONFIGURE:
        configure(m, a, out);
        return;
    case ACTION_LOAD: /* maybe of another branch, which counts its own rounds */
        machine_leaves_stop(m);
        load(m, a);
        return;
    case ACTION_TRAIN:
        train(m, a, out);
        return;
    case ACTION_APPLY:
        apply(m, a);
        return;
    case ACTION_EVAL:
        evaluate(m, a);
        return;
    case ACTION_HASH:
        machine_hash(m, a);
        return;
    case ACTION_INHERIT:
        machine_inherit(m, a);
        return;
    case ACTION_VERIFY:
    case ACTION_KEEP:
    case ACTION_DOWNLOAD:
        fetched(m, a);
        return;
    case ACTION_CHECKPOINT:
        save_checkpoint(m);
        return;
    case ACTION_PEERS:
    case ACTION_CHAIN: /* lost for want of memory: it comes again */
    case ACTION_REVOKED:
        (void)job_with_bytes(m, job_of(a->type), a, out);
        return;
    case ACTION_STAGE:
    case ACTION_PIPE:
    case ACTION_SLICE:
        part(m, a);
        return;
    case ACTION_PAUSE:
    case ACTION_RESUME:
        pause_trainer(m, a->type == ACTION_PAUSE);
        return;
    case ACTION_STOP:
        machine_stop(m, a->rc);
        return;
    case ACTION_LOG:
        log_write_event((enum log_level)a->level, "node", (uint32_t)a->request,
                        (const char *)out->bytes + a->bytes);
        return;
    case ACTION_SEND:
    case ACTION_DIAL:
    case ACTION_HANG_UP:
    case ACTION_BULK_OPEN:
    case ACTION_PROBE:
    case ACTION_RELAY_COME:
    case ACTION_RELAY_JOIN:
    case ACTION_RELAY_REFUSE:
    case ACTION_POST_RECV:
    case ACTION_SEND_SEG:
    case ACTION_SUM:
    case ACTION_CANCEL:
    case ACTION_SAVE:
    case ACTION_TYPE_COUNT:
        return; /* the shell's */
    }
}

static void
machine_local(void *self, const struct action *a, const struct out *out)
{
    struct machine *m = self;

    if (m->closing || m->shell == NULL) {
        return; /* its worker and its trainer take no more */
    }
    if (atomic_exchange(&m->state_loaded, false)) {
        machine_state_close(m, true);
    }
    execute(m, a, out);
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
    m->opt.mirror = opt->mirror == NULL ? "" : opt->mirror;
    m->opt.cpu_percent = opt->cpu_percent == 0 ? 100 : opt->cpu_percent;
    m->loop = loop;
    m->on_stop = on_stop;
    m->data = data;
    m->url_stop = -1;
    atomic_init(&m->url_cap, opt->download_bytes_per_s);
    atomic_init(&m->disk_quota, opt->disk_bytes);
    atomic_init(&m->memory_cap, opt->memory_bytes);
    atomic_init(&m->keep, opt->keep == 0 ? KEEP : opt->keep);
    rv = worker_open(&m->workers, loop, WORKERS);
    if (rv != 0) {
        free(m);
        return rv;
    }
    rv = worker_open(&m->disk, loop, WORKERS);
    if (rv != 0) {
        m->workers.data = m;
        worker_close(&m->workers, never_opened);
        return rv;
    }
    (void)pthread_mutex_init(&m->mutex, NULL);
    for (int i = 0; i < WIRE_SLOTS; i++) {
        (void)pthread_mutex_init(&m->wire[i].lock, NULL);
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
        free(m->wire[i].bytes);
        leaves_free(&m->wire[i].leaves);
        (void)pthread_mutex_destroy(&m->wire[i].lock);
    }
    machine_snapshots_free(m);
    if (m->url_stop >= 0) {
        (void)close(m->url_stop);
    }
    for (uint32_t i = 0; m->files != NULL && i < m->terms.n_shards; i++) {
        if (m->files[i].fd >= 0) {
            (void)close(m->files[i].fd);
        }
        shard_close(&m->files[i].shard);
        free(m->files[i].leaves);
    }
    free(m->incoming_leaves.leaves);
    free(m->incoming_leaves.held);
    if (m->restoring) {
        checkpoint_close(&m->restore);
    }
    stage_slots_close(&m->slots);
    lanes_free(&m->lanes);
    machine_owners_free(m);
    free(m->zeros);
    free(m->error);
    free(m->pair_in);
    free(m->record);
    free(m->restore_state);
    free(m->restore_moments);
    machine_state_close(m, false);
    free(m->files);
    free(m->train);
    free(m->token_bytes);
    free(m->checkpoints);
    free(m->rounds);
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

    m->urls.data = m;
    if (m->urls_open) {
        worker_close(&m->urls, urls_closed);
    } else {
        urls_closed(&m->urls);
    }
}

/* Workers end when the newest state is on disk, or could not be written. */
static void close_workers(struct machine *m)
{
    if (m->saving || m->marking) {
        return; /* its end calls again */
    }
    if (!m->final_save && m->snapshots[0] != NULL &&
        m->snapshots[0]->number > m->saved_number) {
        m->final_save = true;
        save_checkpoint(m);
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
    if (m->url_stop >= 0) {
        (void)eventfd_write(m->url_stop, 1);
    }
    trainer_stop(m->trainer);
    machine_snapshots_collect(m);
    close_workers(m);
}
