/* trainer_state.c - another state takes the place of the one that the replica
 * has: LOAD, APPLY and PAIR, on the trainer's thread. */
#include "daemon/jobs/answer.h"
#include "daemon/machine/trainer_internal.h"
#include "proto/base/err.h"
#include "train/replica/pair.h"

/* After a commit without this peer the replica packs anew where the next
 * round's vector is another one; the residual is in none of it yet. */
static void repacked(struct trainer *t)
{
    if (t->replica.packed && t->replica.layout.cycle.n > 1) {
        trainer_residual_add(t);
    }
}

/* The lease of that round is in no commit. `c` has the moments with which it
 * began, if they are still here. */
static void
undo(struct trainer *t, const struct trainer_command *c, uint64_t of)
{
    if (of == 0) {
        return;
    }
    t->training = false;
    if (c->own == NULL ||
        trainer_moments_set(&t->replica, c->own, c->moment_steps) != 0) {
        chain_break(&t->chain);
    } else {
        chain_mend(&t->chain);
    }
}

static int load_state(struct trainer *t,
                      const struct trainer_command *c,
                      struct report_state *report)
{
    const struct job_load *job = &c->job.load;
    struct replica *r = &t->replica;
    int rc;

    report->tokens = job->rebase ? 0 : replica_replaced(r, true);
    t->n_leased = job->rebase ? t->n_leased : 0;
    rc = replica_load(r, job->round, c->state, job->rebase);
    if (trainer_lost_gpu(t, rc) && trainer_recover(t, rc)) {
        rc = replica_load(r, job->round, c->state, job->rebase);
    }
    if (rc == 0 && job->anew) {
        replica_forget_moments(r); /* they may be what ruined the model */
    }
    if (rc == 0) {
        undo(t, c, job->undo);
    }
    if (job->rebase) {
        repacked(t);
    } else {
        trainer_residual_drop(t);
    }
    return rc;
}

static int load(struct trainer *t,
                const struct trainer_command *c,
                struct report_state *report)
{
    const struct job_load *job = &c->job.load;
    struct replica *r = &t->replica;
    int rc = 0;

    if (job->share > 0) {
        rc = replica_mix(r, c->state, job->share);
    } else if (job->from_seed || job->from_disk) {
        t->n_leased = 0;
        if (job->from_seed) {
            rc = replica_init(r);
        } else {
            rc = replica_restore(r, job->round, c->state, c->moments,
                                 c->moments == NULL ? NULL : c->moments + r->n,
                                 c->moment_steps, c->inner_step,
                                 c->tokens > r->tokens_seen ? c->tokens
                                                            : r->tokens_seen);
        }
        trainer_residual_drop(t);
    } else {
        rc = load_state(t, c, report);
    }
    if (rc == 0 && !job->rebase && t->opt.moments_block > 0) {
        t->training = false; /* so it is for the node: its next TRAIN has
                                another lease */
    }
    return rc;
}

static int apply(struct trainer *t,
                 const struct trainer_command *c,
                 struct report_state *report)
{
    const struct job_apply *job = &c->job.apply;
    const struct replica_commit commit = {job->round, c->wire, job->share,
                                          job->arrivals, job->members};
    struct replica *r = &t->replica;
    int rc;

    if (job->share > 0) {
        report->tokens = replica_replaced(r, false);
        t->n_leased = 0;
    }
    replica_know_wire(r, c->wire, c->wire_room);
    rc = replica_commit(r, &commit);
    if (trainer_lost_gpu(t, rc) && trainer_recover(t, rc)) {
        rc = replica_commit(r, &commit);
    }
    if (rc != 0) {
        return rc;
    }
    undo(t, c, job->undo);
    if (job->undo != 0) {
        return 0; /* nothing of ours was sent: the residual is what it was */
    }
    if (job->share > 0 && !t->idle) {
        trainer_residual_set(t, job->round, c->error);
    } else if (job->share <= 0) {
        repacked(t);
    }
    return 0;
}

static int apply_pair(struct trainer *t, const struct trainer_command *c)
{
    const struct job_pair *job = &c->job.pair;
    struct replica *r = &t->replica;
    int rc = replica_apply_pair(r, job->turn, c->wire, job->first);

    if (trainer_lost_gpu(t, rc) && trainer_recover(t, rc)) {
        rc = replica_apply_pair(r, job->turn, c->wire, job->first);
    }
    return rc;
}

/* The steps are made elsewhere: threads of this process are free meanwhile. (A
 * pool whose threads are pinned is the trainer's alone.) */
static bool hashes_beside(const struct trainer *t)
{
    return (t->loop != NULL || t->replica.backend.device != NULL) &&
           t->opt.slots == NULL && t->opt.replica.affinity.n == 0;
}

/* A GPU that was lost behind the last contribution took with it the moments
 * that this one ended with. */
static void note_broken(struct trainer *t, struct local_event *ev)
{
    struct report_state *state =
        ev->type == LOCAL_LOADED ? &ev->loaded : &ev->applied;

    state->broken = chain_next(&t->chain);
}

void trainer_run_state(struct trainer *t, const struct trainer_command *c)
{
    struct local_event ev = job_answer(&c->job, 0);

    replica_offer_room(&t->replica, publisher_room(t->publisher));
    if (c->job.type == JOB_LOAD) {
        ev.rc = load(t, c, &ev.loaded);
    } else if (c->job.type == JOB_APPLY) {
        ev.rc = apply(t, c, &ev.applied);
    } else {
        ev.rc = apply_pair(t, c);
    }
    if (ev.rc == 0) {
        note_broken(t, &ev);
        publisher_publish(t->publisher, &ev, hashes_beside(t), c->saves);
    } else {
        t->opt.post(t->opt.self, &ev);
    }
}
