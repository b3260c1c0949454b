/* training.c - see training.h. */
#include "daemon/node/internal.h"

#include "proto/base/err.h"

struct job_train *
node_training_begin(struct node *n, uint64_t round, uint32_t steps)
{
    struct job *job = out_job(n->out, JOB_TRAIN);

    if (job != NULL) {
        job->train.round = round;
        job->train.steps = steps;
        n->training.active = true;
        n->training.told_over = false;
        n->training.since_ms = n->now;
        n->training.steps = steps;
    }
    return job == NULL ? NULL : &job->train;
}

void node_on_progress(struct node *n, const struct local_event *e)
{
    n->training.inner_step = e->progress.inner_step;
    n->training.own_tokens = e->progress.tokens;
    n->training.loss = e->progress.loss;
    n->training.tokens_per_s = e->progress.tokens_per_s;
}

/* A pause in the middle of a task only makes it shorter. */
static void note_steps(struct node *n)
{
    uint32_t steps = n->training.steps > 0 ? n->training.steps : 1;
    uint64_t step_ms = (n->now - n->training.since_ms + steps - 1) / steps;

    if (step_ms > n->training.step_ms) {
        n->training.step_ms = step_ms;
    }
}

void node_on_trained(struct node *n, const struct local_event *e)
{
    if (!n->training.active) {
        return; /* not asked for */
    }
    n->training.active = n->training.hangs = false;
    if (!n->work.left_out) { /* then no step was made */
        note_steps(n);
    }
    n->training.inner_step = e->trained.inner_step;
    if (e->rc == LOCO_ENUMERIC && node_judge_again(n)) {
        return;
    }
    if (e->rc == LOCO_EDEVICE) { /* it was tried once more */
        node_device_lost(n);
        return;
    }
    if (e->rc != 0 || e->trained.tokens > ROUND_TOKENS_MAX) {
        n->reason = "the trainer failed";
        return;
    }
    node_judge_trained(n);
    n->regime->trained(n, e);
}

void node_training_finish(struct node *n, bool finished)
{
    n->finished = finished;
    if (finished && !n->training.told_over) {
        n->training.told_over = out_job(n->out, JOB_OVER) != NULL;
    }
}

void node_on_pause(struct node *n, bool paused)
{
    n->training.paused = paused;
    n->training.since_ms = n->now; /* a task under way rested, too */
    if (paused) {
        node_pipe_leave(n);
    }
    (void)out_job(n->out, paused ? JOB_PAUSE : JOB_RESUME);
}

void node_training_packed(struct node *n)
{
    n->training.packed = true;
}

/* Its tokens are counted by whom it is lost to: the event that says which state
 * came in its place. */
void node_forget_contribution(struct node *n)
{
    n->training.packed = false;
    node_quorum_forget(n);
    round_contribution_clear(&n->round);
}

void node_training_first(struct node *n, uint64_t step)
{
    n->training.first_step = step;
}

void node_training_restart(struct node *n, uint64_t step)
{
    n->training.first_step = n->training.inner_step = step;
}

void node_training_at(struct node *n, uint64_t step)
{
    if (step > n->training.inner_step) {
        n->training.inner_step = step;
    }
}

void node_training_end(struct node *n)
{
    n->training.active = false;
}

void node_training_drop(struct node *n, uint64_t tokens)
{
    n->training.tokens_dropped += tokens;
}

void node_training_hang(struct node *n, bool hangs)
{
    n->training.hangs = hangs;
}

void node_training_gap(struct node *n)
{
    n->training.since_ms = n->now;
}

void node_training_forget(struct node *n)
{
    n->training.active = n->training.packed = false;
}

/* ---- the driver: this machine alone ------------------------------------- */

/* In a view of two neither can make a round without the other; in larger ones
 * the others go on after the grace. So whose trainer takes so much longer for a
 * step than it ever did that it must hang, while the other waits, leaves by
 * itself. What the first task of a process may take nobody knows. */
static bool hangs_alone(const struct node *n)
{
    uint64_t limit_ms = n->terms.grace_ms + node_scaled(n, UNPOSTED_MS) +
                        8 * n->training.step_ms * n->training.steps;

    return n->training.active && n->training.step_ms > 0 && n->ballot.have &&
           !n->training.paused && n->ballot.cert.body.n_members == 2 &&
           (n->round.ready & ~(1ULL << n->ballot.self_index)) != 0 &&
           n->now - n->training.since_ms >= limit_ms;
}

static void machine_tick(struct node *n)
{
    if (!n->stopped && hangs_alone(n)) {
        node_training_hang(n, true);
        node_leave_view(n, "local trainer not responding");
    }
}

static void machine_train(struct node *n)
{
    uint64_t round = node_held_stand(&n->held)->round + 1;
    uint32_t steps =
        n->terms.quorum ? node_quorum_steps(n) : terms_steps(&n->terms, round);
    struct job_train *train = NULL;

    if (node_text_allows(n, &steps)) {
        train = node_training_begin(n, round, steps);
    }
    if (train != NULL) {
        train->members = n->ballot.cert.body.n_members;
        train->rank = (uint32_t)n->ballot.self_index;
        node_lease_name(n, train);
    }
}

static const char *machine_wait(const struct node *n)
{
    return n->training.hangs && !n->ballot.have
               ? "local trainer not responding; the other peer continues"
               : NULL;
}

static void nothing(struct node *n)
{
    (void)n;
}

const struct inner inner_machine = {
    .whole = true,
    .configured = node_proof_configured,
    .choose = nothing,
    .tick = machine_tick,
    .train = machine_train,
    .wait = machine_wait,
};
