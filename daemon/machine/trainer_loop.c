/* trainer_loop.c - see trainer_loop.h. */
#include "daemon/machine/trainer_loop.h"

#include <math.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/machine/trainer_internal.h"
#include "p2p/round/lease.h"
#include "proto/base/err.h"
#include "proto/base/errmsg.h"
#include "proto/base/log.h"

#define HOLD_MS     120000 /* for a GIVE or a TAKE to be answered */
#define LONG_STEPS  8.0    /* and so many of its longest steps more */
#define LAST_TAKE_S 5.0    /* for the last one, when the trainer ends */

struct trainer_loop {
    struct loop_socket socket;
    uint64_t tokens_most; /* that a step may count */
    double hold_s;        /* HOLD_MS, or what a test sets */
    bool over;            /* the run: no more steps will be asked for */
    bool loaded;          /* there is a state: theta means something */
    atomic_bool here;     /* who asks for the status reads it, too */
    /* Of the loop that is here: */
    bool held;    /* it makes no steps: it waits for us */
    bool answers; /* what it was told is not answered yet */
    bool scores;  /* ... and the answer is SCORED: */
    double nats;
    bool current;                /* theta is what it has, or is to take */
    bool fresh;                  /* it has not been told of theta */
    bool reset;                  /* with that, its optimizer begins anew */
    bool read;                   /* it asked for the text of this step */
    uint64_t steps;              /* of the GO that are left */
    double stepped_s, longest_s; /* its last step, the longest one */
};

bool trainer_loop_is_here(const struct trainer_loop *loop)
{
    return loop->here;
}

void trainer_loop_wake(struct trainer_loop *loop)
{
    loop_socket_wake(&loop->socket);
}

/* ---- what it says ------------------------------------------------------- */

static void arrived(struct trainer *t)
{
    struct trainer_loop *l = t->loop;
    const struct trainer_hello *h = &l->socket.hello;

    l->here = l->held = l->current = l->fresh = true;
    l->answers = l->scores = l->reset = l->read = false;
    l->steps = 0;
    l->longest_s = 0;
    log_info("train", "a training loop is here: process %u, %.*s", h->pid,
             (int)h->n_name, (const char *)h->name);
}

/* Steps of which theta has nothing are lost. */
static void left(struct trainer *t)
{
    struct trainer_loop *l = t->loop;

    l->here = l->held = l->answers = l->scores = false;
    if (l->over) {
        log_info("train", "the training loop left: the run has ended");
        return;
    }
    if (!l->current) {
        uint64_t lost = t->replica.since;

        replica_abandon(&t->replica);
        lost -= t->replica.since;
        t->n_leased = t->training ? 0 : t->n_leased;
        log_warn("train",
                 "the training loop left, %llu of its steps are lost; this "
                 "peer is a member without work until a loop is here again",
                 (unsigned long long)lost);
        return;
    }
    log_warn("train", "the training loop left; this peer is a member without "
                      "work until a loop is here again");
}

static void dismiss(struct trainer *t, const char *why)
{
    log_warn("train", "the training loop is dismissed: %s", why);
    loop_socket_dismiss(&t->loop->socket, 1, why);
}

static double double_of(uint64_t bits)
{
    double x;

    memcpy(&x, &bits, sizeof x);
    return x;
}

static void stepped(struct trainer *t, const struct trainer_step *s)
{
    struct trainer_loop *l = t->loop;
    double now = trainer_now_s(), took = now - l->stepped_s;
    char why[TRAINER_TEXT_MAX];

    if (l->held || l->steps == 0) {
        dismiss(t, "it made a step that nobody asked for");
        return;
    }
    if (s->tokens > l->tokens_most) {
        (void)snprintf(why, sizeof why,
                       "a step counted %llu tokens, and the run allows %llu "
                       "(inner.batch times inner.seq)",
                       (unsigned long long)s->tokens,
                       (unsigned long long)l->tokens_most);
        dismiss(t, why);
        return;
    }
    l->stepped_s = now;
    l->longest_s = took > l->longest_s ? took : l->longest_s;
    l->read = false;
    l->steps--;
    l->held = l->steps == 0;
    l->current = false;
    t->loss = (float)double_of(s->loss);
    replica_count_step(&t->replica, s->tokens);
    trainer_stepped(t, s->tokens, took);
}

/* The text of the next step, into the shared memory. */
static void read_text(struct trainer *t)
{
    struct trainer_loop *l = t->loop;
    struct replica *r = &t->replica;
    struct trainer_msg m = {.type = TRAINER_MSG_TEXT};
    uint64_t at = r->inner_step;
    bool leased = lease_at(&t->lease, t->n_leased, &at);
    int rc;

    if (l->held || l->read) {
        dismiss(t, l->read ? "it asked for text twice within one step"
                           : "it asked for text while it was held");
        return;
    }
    replica_read(r, leased, at);
    rc = l->socket.tokens == NULL
             ? LOCO_ENOENT
             : replica_text(r, l->socket.tokens, l->socket.targets);
    if (rc != 0) {
        dismiss(t, rc == LOCO_ENOENT ? "the run has no text to read"
                                     : "the text could not be read");
        return;
    }
    l->read = true;
    m.text = (struct trainer_rows){
        .position = at, .rows = r->opt.batch, .own = !leased};
    loop_socket_send(&l->socket, &m);
}

static void on_message(struct trainer *t, const struct trainer_msg *m)
{
    struct trainer_loop *l = t->loop;

    switch (m->type) {
    case TRAINER_MSG_STEP:
        stepped(t, &m->step);
        return;
    case TRAINER_MSG_READ:
        read_text(t);
        return;
    case TRAINER_MSG_GIVEN:
    case TRAINER_MSG_TAKEN:
        if (l->answers && !l->scores) {
            l->answers = false;
            l->held = l->current = true;
            l->steps = 0;
            return;
        }
        break;
    case TRAINER_MSG_SCORED:
        if (l->answers && l->scores) {
            l->answers = l->scores = false;
            l->nats = double_of(m->scored.nats);
            return;
        }
        break;
    default:
        break;
    }
    dismiss(t, "it answered what nobody asked");
}

static bool on_event(struct trainer *t)
{
    struct trainer_msg m;

    switch (loop_socket_next(&t->loop->socket, &m)) {
    case LOOP_ARRIVED:
        arrived(t);
        return true;
    case LOOP_MESSAGE:
        on_message(t, &m);
        return true;
    case LOOP_LEFT:
        left(t);
        return true;
    case LOOP_NOTHING:
        break;
    }
    return false;
}

/* ---- what it is told ---------------------------------------------------- */

static void give(struct trainer *t)
{
    const struct trainer_msg m = {.type = TRAINER_MSG_GIVE,
                                  .give.round = t->replica.round + 1};

    t->loop->answers = true; /* after the step that may be under way */
    loop_socket_send(&t->loop->socket, &m);
}

static void take(struct trainer *t)
{
    struct trainer_loop *l = t->loop;
    const struct replica *r = &t->replica;
    const struct trainer_msg m = {.type = TRAINER_MSG_TAKE,
                                  .take = {.round = r->round,
                                           .reset = l->reset,
                                           .clock = replica_clock(r),
                                           .tokens = r->tokens_seen}};

    l->answers = true;
    l->fresh = l->reset = false;
    loop_socket_send(&l->socket, &m);
}

static void go(struct trainer *t, uint64_t steps)
{
    struct trainer_loop *l = t->loop;
    const struct trainer_msg m = {
        .type = TRAINER_MSG_GO,
        .go = {.steps = steps, .inner_step = t->replica.inner_step}};

    l->held = l->current = l->read = false;
    l->steps = steps;
    l->stepped_s = trainer_now_s();
    loop_socket_send(&l->socket, &m);
}

/* Until it has answered what it was told, or left. False: the time is over, or
 * the trainer is closing. */
static bool settle(struct trainer *t, double most_s, bool closing_too)
{
    struct trainer_loop *l = t->loop;
    double until = trainer_now_s() + most_s;

    while (l->here && l->answers) {
        double s = until - trainer_now_s();

        if (s <= 0 || (trainer_is_closing(t) && !closing_too)) {
            return false;
        }
        if (!on_event(t)) {
            loop_socket_wait(&l->socket, (int)(s * 1000) + 1);
        }
    }
    return true;
}

/* It answers, or it is let go. */
static void settle_or_part(struct trainer *t)
{
    struct trainer_loop *l = t->loop;
    char why[TRAINER_TEXT_MAX];
    double most_s = l->hold_s + LONG_STEPS * l->longest_s;

    if (settle(t, most_s, false) || trainer_is_closing(t)) {
        return;
    }
    (void)snprintf(why, sizeof why,
                   "it did not come back within %.0f s: does the loop still "
                   "make steps?",
                   most_s);
    dismiss(t, why);
    (void)settle(t, l->hold_s, false); /* it leaves */
}

bool trainer_loop_hold(struct trainer *t)
{
    struct trainer_loop *l = t->loop;
    bool was_here = l->here;

    settle_or_part(t);
    if (l->here && !l->current) {
        give(t);
        settle_or_part(t);
    }
    return (l->here || !was_here) && !trainer_is_closing(t);
}

/* ---- held-out text ------------------------------------------------------ */

/* One batch, which lies where the loop reads it: an eval_loss. */
static int loss_of_loop(void *self, const struct llama_batch *b, double *nats)
{
    struct trainer *t = self;
    struct trainer_loop *l = t->loop;
    const struct trainer_msg m = {.type = TRAINER_MSG_WINDOWS,
                                  .windows.rows = (uint32_t)b->b};

    l->answers = l->scores = true;
    loop_socket_send(&l->socket, &m);
    settle_or_part(t);
    if (!l->here || l->answers) {
        return LOCO_ENOENT;
    }
    *nats = l->nats;
    return 0;
}

/* The loop has what theta is, and measures. */
static int measure(struct trainer *t, uint64_t draw, double *bits_per_byte)
{
    struct trainer_loop *l = t->loop;
    const struct replica_measure by = {loss_of_loop, t, l->socket.welcome.batch,
                                       l->socket.tokens, l->socket.targets};

    if (l->fresh) {
        take(t);
        settle_or_part(t);
    }
    return l->here && !l->answers
               ? replica_eval_by(&t->replica, &by, draw, bits_per_byte)
               : LOCO_ENOENT;
}

/* The same with phi in theta's place for a while. */
static int measure_phi(struct trainer *t, uint64_t draw, double *bits_per_byte)
{
    struct trainer_loop *l = t->loop;
    size_t bytes = l->socket.welcome.n * sizeof(float);
    float *own = malloc(bytes);
    int rv;

    if (own == NULL) {
        return LOCO_ENOMEM;
    }
    memcpy(own, l->socket.theta, bytes);
    memcpy(l->socket.theta, t->replica.phi, bytes);
    l->fresh = true;
    rv = measure(t, draw, bits_per_byte);
    memcpy(l->socket.theta, own, bytes);
    l->fresh = true;
    free(own);
    return rv;
}

int trainer_loop_eval(struct trainer *t, uint64_t draw, double *bits_per_byte)
{
    struct trainer_loop *l = t->loop;
    bool can = l->here && l->socket.hello.measures && l->loaded &&
               l->socket.tokens != NULL;

    if (!can || !trainer_loop_hold(t)) {
        return LOCO_ENOENT;
    }
    return memcmp(l->socket.theta, t->replica.phi,
                  l->socket.welcome.n * sizeof(float)) == 0
               ? measure(t, draw, bits_per_byte)
               : measure_phi(t, draw, bits_per_byte);
}

/* ---- the thread's work -------------------------------------------------- */

/* Whether that commit leaves theta as it is: a quorum's, without us. */
static bool leaves_theta(const struct trainer *t, const struct job *job)
{
    return job->type == JOB_APPLY && job->apply.share <= 0 &&
           t->replica.opt.method.group == METHOD_QUORUM;
}

static void run(struct trainer *t, const struct trainer_command *c)
{
    struct trainer_loop *l = t->loop;
    const struct job *job = &c->job;
    bool moves = job->type == JOB_LOAD || job->type == JOB_PAIR ||
                 (job->type == JOB_APPLY && !leaves_theta(t, job));

    l->over = job->type == JOB_OVER || (l->over && job->type != JOB_TRAIN);
    if (moves || job->type == JOB_OVER) {
        (void)trainer_loop_hold(t);
    }
    if (job->type == JOB_OVER) {
        l->fresh = replica_rest(&t->replica) || l->fresh;
    }
    if (trainer_is_closing(t)) {
        return; /* nobody waits for the answer any more */
    }
    trainer_run_command(t, c);
    if (moves) {
        l->loaded = l->fresh = l->current = true;
        l->reset = l->reset || (job->type == JOB_LOAD && job->load.anew) ||
                   (job->type == JOB_APPLY && job->apply.share > 0 &&
                    t->replica.opt.method.moments == METHOD_RESET);
    }
}

/* Tell it what is due. Returns for how long nothing more is, in ms; -1: until
 * something happens. */
static int advance(struct trainer *t)
{
    struct trainer_loop *l = t->loop;
    const struct trainer_leave leave = trainer_leave(t);
    uint64_t steps;

    if (!l->here || l->answers || !l->loaded) {
        return -1;
    }
    if (!l->held) {
        if (leave.paused) {
            give(t);
        }
        return -1;
    }
    steps = trainer_steps_left(t);
    if (t->training && steps == 0) {
        trainer_trained(t, 0);
        return 0;
    }
    if (l->fresh) {
        take(t);
        return -1;
    }
    if (l->over) {
        loop_socket_dismiss(&l->socket, 0, "the run has ended");
        return -1;
    }
    if (leave.paused || steps == 0) {
        return -1;
    }
    if (leave.rest_s > 0) {
        return (int)(leave.rest_s * 1000) + 1;
    }
    go(t, leave.one_by_one ? 1 : steps);
    return -1;
}

/* The last parameters, and the end. */
static void end(struct trainer *t)
{
    struct trainer_loop *l = t->loop;

    (void)settle(t, LAST_TAKE_S, true);
    if (l->here && l->held && !l->answers && l->loaded && l->fresh) {
        take(t);
        (void)settle(t, LAST_TAKE_S, true);
    }
    if (l->here) {
        loop_socket_dismiss(&l->socket, 0, "the daemon ends");
    }
}

void trainer_loop_run(struct trainer *t)
{
    struct trainer_command c;

    while (!trainer_is_closing(t)) {
        int wait_ms;

        if (on_event(t)) {
            continue;
        }
        if (trainer_take_command(t, &c)) {
            run(t, &c);
            continue;
        }
        wait_ms = advance(t);
        if (wait_ms != 0 && !trainer_is_closing(t)) {
            loop_socket_wait(&t->loop->socket, wait_ms);
        }
    }
    end(t);
}

/* ---- life --------------------------------------------------------------- */

int trainer_loop_open(struct trainer_loop **loop,
                      const struct trainer_options *opt,
                      struct replica_options *r,
                      char *errmsg)
{
    struct trainer_loop *l = calloc(1, sizeof *l);
    int rv;

    *loop = l;
    if (l == NULL) {
        return errmsg_fail(errmsg, LOCO_ENOMEM, "out of memory");
    }
    rv = loop_socket_open(&l->socket, opt->loop, errmsg);
    if (rv == 0) {
        r->shared_theta = l->socket.theta;
        l->tokens_most = opt->loop->welcome.tokens_most;
        l->hold_s =
            (opt->loop->hold_ms > 0 ? opt->loop->hold_ms : HOLD_MS) / 1000.0;
        log_info("train",
                 "a training loop makes the inner steps: waiting for "
                 "it at %s/" TRAINER_SOCKET,
                 opt->loop->dir);
    }
    return rv;
}

void trainer_loop_close(struct trainer_loop *loop)
{
    if (loop != NULL) {
        loop_socket_close(&loop->socket);
        free(loop);
    }
}
