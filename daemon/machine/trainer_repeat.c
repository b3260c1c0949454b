/* trainer_repeat.c - see trainer_repeat.h. */
#include "daemon/machine/trainer_repeat.h"

#include <stdlib.h>
#include <string.h>

#include "daemon/jobs/answer.h"
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
    *r = (struct trainer_repeat){0};
}

/* At the beginning of the lease. */
static int open_ghost(struct trainer_repeat *r)
{
    const struct job_repeat *job = &r->command.job.repeat;
    const float *moments = r->command.room->moments;
    char errmsg[ERRMSG_SIZE] = "";
    int rv;

    r->open = true;
    r->made = 0;
    rv = replica_open(&r->ghost, &r->opt, errmsg);
    rv = rv != 0
             ? rv
             : replica_load(&r->ghost, job->round - 1, r->command.state, false);
    if (rv != 0) {
        log_debug("train", "the lease of another member is not made again: %s",
                  errmsg[0] == '\0' ? loco_strerror(rv) : errmsg);
        close_ghost(r);
        return rv;
    }
    replica_set_moments(&r->ghost, moments, moments + r->ghost.n,
                        job->moment_steps);
    return 0;
}

/* Products of the other kind. LOCO_EDEVICE: a GPU has one kind. */
static int other_products(struct trainer_repeat *r)
{
    if (r->ghost.backend.device != NULL) {
        return LOCO_EDEVICE;
    }
    r->opt.dtype = r->ghost.backend.bf16 ? BACKEND_FP32 : BACKEND_ROUNDED;
    return 0;
}

bool trainer_repeat_begin(struct trainer_repeat *r,
                          const struct replica_options *opt,
                          const struct trainer_command *command,
                          int *rc)
{
    const struct work_room *room = command->room;
    bool fits = room != NULL && work_room_is_full(room) &&
                room->round == command->job.repeat.round;

    trainer_repeat_close(r);
    r->command = *command;
    r->opt = *opt;
    *rc = !fits || opt->shared || opt->slots > 0 ||
                  lease_count(&command->lease) < command->job.repeat.steps
              ? LOCO_EINVAL
              : open_ghost(r);
    r->active = *rc == 0;
    return r->active;
}

/* Copies of what came of the first time: its moments are those that are read.
 */
static int keep_first(struct trainer_repeat *r)
{
    const uint64_t n = r->ghost.n;

    r->first = malloc(3 * n * sizeof *r->first);
    if (r->first == NULL) {
        return LOCO_ENOMEM;
    }
    memcpy(r->first, r->ghost.contribution, n * sizeof *r->first);
    replica_moments(&r->ghost, r->first + n);
    return 0;
}

/* The contribution of the second time is what the first one is compared with.
 */
static int read(struct trainer_repeat *r, struct repeat_reading *reading)
{
    const uint64_t n = r->ghost.n;
    struct work_repeat w = {.codec = r->opt.codec};
    int rv = r->again ? 0 : keep_first(r);

    if (rv != 0) {
        return rv;
    }
    w.repeat = r->first;
    w.moments = r->first + n;
    w.steady = r->again ? r->ghost.contribution : NULL;
    return work_room_read(r->command.room, &w, reading);
}

/* Work that nobody can make again as its moments lead nowhere: no honest member
 * had a contribution from there. Like any bad reading it is made twice. */
static void nowhere(const struct trainer_repeat *r,
                    struct repeat_reading *reading)
{
    *reading = (struct repeat_reading){
        .best = 1, .best_own = 1, .has_steady = r->again, .steady = 1};
}

static struct local_event answer(const struct trainer_repeat *r,
                                 const struct repeat_reading *reading,
                                 enum repeat_verdict verdict)
{
    struct local_event e = job_answer(&r->command.job, 0);

    e.repeated.verdict = (uint8_t)verdict;
    e.repeated.cosine = (float)reading->cosine;
    e.repeated.own = (float)reading->own;
    e.repeated.length = (float)reading->length;
    return e;
}

/* All steps are made, or one failed. True: so is the work. */
static bool finish(struct trainer_repeat *r, int rc, struct local_event *done)
{
    struct repeat_reading reading = {0};
    enum repeat_verdict verdict;

    rc = rc == 0 ? replica_pack(&r->ghost) : rc;
    if (rc == 0 && r->again && r->first == NULL) {
        rc = LOCO_ENOENT; /* the first time led nowhere, this time did not */
    }
    rc = rc == 0 ? read(r, &reading) : rc;
    if (rc == LOCO_ENUMERIC) {
        nowhere(r, &reading);
        rc = 0;
    }
    verdict = rc == 0 ? repeat_judge(&reading) : REPEAT_UNCLEAR;
    if (verdict == REPEAT_AGAIN) {
        rc = other_products(r);
        close_ghost(r);
        r->again = true;
        rc = rc == 0 ? open_ghost(r) : rc;
        if (rc == 0) {
            return false;
        }
        verdict = REPEAT_UNCLEAR;
    }
    *done = answer(r, &reading, verdict);
    done->rc = rc;
    trainer_repeat_close(r);
    return true;
}

bool trainer_repeat_step(struct trainer_repeat *r, struct local_event *done)
{
    uint64_t at = 0;
    float loss;
    int rc;

    if (r->made == r->command.job.repeat.steps) {
        return finish(r, 0, done);
    }
    (void)lease_at(&r->command.lease, r->made, &at);
    replica_read(&r->ghost, true, at);
    rc = replica_step(&r->ghost, &loss);
    r->made++;
    return rc != 0 && finish(r, rc, done);
}
