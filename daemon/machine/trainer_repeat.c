/* trainer_repeat.c - see trainer_repeat.h. */
#include "daemon/machine/trainer_repeat.h"

#include <stdlib.h>
#include <string.h>

#include "daemon/jobs/answer.h"
#include "daemon/machine/trainer_moments.h"
#include "p2p/round/lease.h"
#include "proto/base/err.h"
#include "proto/base/errmsg.h"
#include "proto/base/log.h"

static void close_ghost(struct trainer_repeat *r)
{
    if (r->open) {
        replica_close(&r->ghost);
        r->open = false;
    }
}

void trainer_repeat_close(struct trainer_repeat *r)
{
    close_ghost(r);
    free(r->first);
    *r = (struct trainer_repeat){.wild = r->wild};
}

static bool with_own(const struct trainer_repeat *r)
{
    return r->pass >= REPEAT_OWN_FIRST;
}

/* At the beginning of the lease. */
static int open_ghost(struct trainer_repeat *r)
{
    const struct job_repeat *job = &r->command.job.repeat;
    const uint8_t *moments =
        with_own(r) ? r->command.own : r->command.room->moments;
    char errmsg[ERRMSG_SIZE] = "";
    int rv;

    if (moments == NULL) {
        return LOCO_ENOENT;
    }
    r->open = true;
    r->made = 0;
    rv = replica_open(&r->ghost, &r->opt, errmsg);
    rv = rv != 0
             ? rv
             : replica_load(&r->ghost, job->round - 1, r->command.state, false);
    rv = rv != 0 ? rv
                 : trainer_moments_set(&r->ghost, moments,
                                       with_own(r) ? r->command.moment_steps
                                                   : job->moment_steps);
    if (rv != 0) {
        log_debug("train", "the lease of another member is not made again: %s",
                  errmsg[0] == '\0' ? loco_strerror(rv) : errmsg);
        close_ghost(r);
        return rv;
    }
    return 0;
}

/* What the next pass is made with: products of the other kind, then our own
 * moments with products of either. LOCO_EDEVICE: a GPU has one kind. */
static int next_pass(struct trainer_repeat *r)
{
    if (r->ghost.backend.device != NULL) {
        return LOCO_EDEVICE;
    }
    if (r->pass == REPEAT_FIRST) {
        r->dtype[0] = r->opt.dtype;
        r->dtype[1] = r->ghost.backend.bf16 ? BACKEND_FP32 : BACKEND_ROUNDED;
    }
    close_ghost(r);
    r->pass++;
    r->opt.dtype = r->dtype[r->pass % 2];
    return open_ghost(r);
}

bool trainer_repeat_begin(struct trainer_repeat *r,
                          const struct replica_options *opt,
                          const struct trainer_command *command,
                          int *rc)
{
    const struct work_room *room = command->room;
    const struct job_repeat *job = &command->job.repeat;
    bool fits = room != NULL && work_room_is_full(room) &&
                work_room_is_of(room, job->round, job->base, &job->maker);

    trainer_repeat_close(r);
    r->command = *command;
    r->opt = *opt;
    if (opt->device != NULL) {
        r->device = *opt->device;
        r->device.n_others = 0;
        r->opt.device = &r->device;
        r->opt.moments_stay = true; /* the host's memory is counted without */
    }
    *rc = !fits || opt->shared || opt->slots > 0 ||
                  lease_count(&command->lease) < command->job.repeat.steps
              ? LOCO_EINVAL
              : open_ghost(r);
    r->active = *rc == 0;
    return r->active;
}

/* What the pass after it is compared with; of the first one the moments, too,
 * which are those that are read. */
static int keep(struct trainer_repeat *r)
{
    const uint64_t n = r->ghost.n;

    r->first = r->first == NULL ? malloc(3 * n * sizeof *r->first) : r->first;
    if (r->first == NULL) {
        return LOCO_ENOMEM;
    }
    memcpy(r->first, r->ghost.contribution, n * sizeof *r->first);
    return r->pass == REPEAT_FIRST ? replica_moments(&r->ghost, r->first + n)
                                   : 0;
}

static void read_stretch(struct trainer_repeat *r)
{
    const struct work_own_moments own = {
        .moments = r->command.own,
        .steps = r->command.moment_steps,
        .beta1 = (double)r->opt.optimizer.beta1,
        .beta2 = (double)r->opt.optimizer.beta2};

    r->reading.begins =
        !work_room_settled(own.beta2, r->command.job.repeat.moment_steps);
    r->reading.has_stretch = work_room_stretch(
        r->command.room, &own, r->command.job.repeat.moment_steps,
        &r->reading.stretch);
}

/* With what this pass came to. */
static int read(struct trainer_repeat *r)
{
    struct work_repeat w = {.codec = r->opt.codec};
    struct repeat_reading reading;
    bool second =
        r->pass == REPEAT_OTHER || r->pass == REPEAT_OWN_FIRST + REPEAT_OTHER;
    int rv = second ? 0 : keep(r);

    if (rv != 0 || r->pass == REPEAT_OWN_FIRST) {
        return rv;
    }
    w.repeat = r->first;
    w.moments = r->first + r->ghost.n;
    w.leads = r->command.job.repeat.leads;
    w.eps = r->opt.optimizer.eps;
    w.steady = second ? r->ghost.contribution : NULL;
    if (second && !with_own(r)) { /* on a processor: next_pass() */
        w.steady_u = r->ghost.optimizer.u;
        w.steady_v = r->ghost.optimizer.v;
    }
    rv = work_room_read(r->command.room, &w, &reading);
    if (with_own(r)) {
        r->reading.has_calm = rv == 0;
        r->reading.calm = reading.steady;
    } else {
        r->reading = reading;
        read_stretch(r);
    }
    return rv;
}

/* Work that nobody can make again as its moments lead nowhere: no honest member
 * had a contribution from there. Like any bad reading it is made twice. */
static void nowhere(struct trainer_repeat *r)
{
    r->reading = (struct repeat_reading){.best = 1,
                                         .best_own = 1,
                                         .has_steady = r->pass == REPEAT_OTHER,
                                         .steady = 1};
}

static struct local_event answer(const struct trainer_repeat *r,
                                 enum repeat_verdict verdict)
{
    struct local_event e = job_answer(&r->command.job, 0);

    e.repeated.verdict = (uint8_t)verdict;
    e.repeated.cosine = (float)r->reading.cosine;
    e.repeated.own = (float)r->reading.own;
    e.repeated.length = (float)r->reading.length;
    return e;
}

/* Whether our own moments would say what they said a few rounds ago. */
static bool is_known_as_wild(const struct trainer_repeat *r)
{
    const uint64_t round = r->command.job.repeat.round;

    return r->pass == REPEAT_OTHER && r->wild > 0 && round >= r->wild &&
           round < r->wild + REPEAT_WILD_ROUNDS;
}

/* A pass is made, or failed. True: nothing is to follow. */
static bool finish(struct trainer_repeat *r, int rc, struct local_event *done)
{
    enum repeat_verdict verdict = REPEAT_AGAIN;

    rc = rc == 0 ? replica_pack(&r->ghost) : rc;
    if (rc == 0 && r->pass == REPEAT_OTHER && r->first == NULL) {
        rc = LOCO_ENOENT; /* the first time led nowhere, this time did not */
    }
    rc = rc == 0 ? read(r) : rc;
    if (rc == LOCO_ENUMERIC && !with_own(r)) {
        nowhere(r);
        rc = 0;
    }
    if (r->pass != REPEAT_OWN_FIRST) {
        verdict = rc == 0 ? repeat_judge(&r->reading) : REPEAT_UNCLEAR;
    }
    if (rc == 0 && r->reading.has_calm && !(r->reading.calm >= REPEAT_CALM)) {
        r->wild = r->command.job.repeat.round;
    }
    if (rc == 0 && verdict == REPEAT_AGAIN && is_known_as_wild(r)) {
        verdict = REPEAT_UNCLEAR;
    }
    if (rc == 0 && verdict == REPEAT_AGAIN) {
        rc = next_pass(r);
        if (rc == 0) {
            return false;
        }
    }
    log_debug("train",
              "a lease made again: steady %.4f, calm %.4f, after %.3f of %.2f, "
              "next %.2f, moments %.2f",
              r->reading.has_steady ? r->reading.steady : 1,
              r->reading.has_calm ? r->reading.calm : 1,
              r->reading.has_after ? r->reading.after : 1,
              r->reading.has_after ? r->reading.after_stretch : 1,
              r->reading.has_next ? r->reading.next : 0,
              r->reading.has_stretch ? r->reading.stretch : 1);
    *done = answer(r, rc == 0 ? verdict : REPEAT_UNCLEAR);
    done->rc = rc;
    trainer_repeat_close(r);
    return true;
}

static bool is_stopped(const struct trainer_repeat *r)
{
    return r->command.stop != NULL && atomic_load(r->command.stop);
}

bool trainer_repeat_step(struct trainer_repeat *r, struct local_event *done)
{
    uint64_t at = 0;
    float loss;
    int rc;

    if (is_stopped(r)) {
        *done = job_answer(&r->command.job, LOCO_ECANCELED);
        trainer_repeat_close(r);
        return true;
    }
    if (r->made == r->command.job.repeat.steps) {
        return finish(r, 0, done);
    }
    (void)lease_at(&r->command.lease, r->made, &at);
    replica_read(&r->ghost, true, at);
    rc = replica_step(&r->ghost, &loss);
    r->made++;
    return rc != 0 && finish(r, rc, done);
}
