/* node_pipe_test.c - one host's node/pipe.c by hand: what the pipeline wants as
 * actions, and what comes of what the shell and the machine say. Whole nodes in
 * all faults are the simulator's (sim stages). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "proto/base/err.h"
#include "tests/unit/daemon/hand.h"

#define STAGES  2
#define HOSTS   (HAND_PUPPETS + 1)
#define ALL     ((1U << HOSTS) - 1)
#define ROUND   1 /* that is under way */
#define PIECES  3
#define SEGMENT 16
#define MATE    1 /* the puppet in the node's stage */

/* The node and puppets 0 to 2 in a run of two stages: the node and puppet MATE
 * hold stage 0, the others stage 1. */
struct rig {
    struct hand *h;
    const struct node_pipe *pipe;
    uint64_t round; /* that all hold */
    struct stage_hello hello;
};

/* ---- the way into a state ------------------------------------------------ */

/* Puppet p sends this heartbeat from now on: MATE one of the node's own state,
 * the others one from a view of stage 1. */
static void
says(struct rig *r, uint32_t p, bool ready, uint32_t queue, uint8_t linked)
{
    struct heartbeat b = {.life = r->h->life,
                          .configured = true,
                          .has_view = true,
                          .state = NODE_TRAINING,
                          .round = r->round};

    if (p == MATE) {
        b = hand_beat(r->h);
    }
    b.stage = p == MATE ? 1 : 2;
    b.ready = ready;
    b.queue = (uint16_t)queue;
    b.linked_candidates = linked;
    hand_set_beat(r->h, p, &b);
}

static void set_terms(struct run_terms *t, uint64_t round)
{
    t->stages = STAGES;
    t->stage_fits = (1U << STAGES) - 1;
    t->fork_after_ms = 1; /* nobody else of its stage comes back */
    t->pipe_seed = 1;
    t->micro_batches = 1;
    t->pipe_slots = 2;
    t->cut_elements = PIECES * SEGMENT;
    t->cut_segment = SEGMENT;
    t->eval_every = 0;
    t->holds_state = true;
    t->held_stage = 0;
    t->held_round = round;
}

/* The node's machine does not have its stage yet, and nobody is ready: no steps
 * begin. */
static struct rig *open_rig(uint64_t round, bool highest)
{
    const struct hand_options opt = {.highest = highest};
    struct rig *r = calloc(1, sizeof *r);

    r->h = hand_open_as(HAND_PUPPETS, &opt);
    r->pipe = r->h->in.pipe;
    r->round = round;
    r->h->bulk_by_hand = true;
    set_terms(&r->h->terms, round);
    for (uint32_t p = 0; p < HAND_PUPPETS; p++) {
        says(r, p, false, 0, 1);
    }
    return r;
}

static void close_rig(struct rig *r)
{
    hand_close(r->h);
    free(r);
}

/* The node and MATE are in a view of stage 0. The node founds it: MATE is
 * linked to fewer. */
static void found(struct rig *r)
{
    struct hand *h = r->h;
    struct event e = {.type = EVENT_LOCAL, .local.type = LOCAL_STAGED};

    hand_wait(h, 1);
    assert_int_equal(h->n_jobs[JOB_STAGE], 1);
    e.local.staged.terms = &h->terms;
    hand_step(h, &e);
    for (int ms = 0; ms < 1000 && !h->in.held->loaded; ms++) {
        hand_wait(h, 1);
    }
    says(r, MATE, true, 0, 1);
    for (int ms = 0; ms < 20000 && !h->in.ballot->have; ms++) {
        hand_wait(h, 1);
    }
    assert_true(h->in.ballot->have);
    assert_int_equal(h->in.ballot->cert.body.n_members, 2);
    assert_int_equal(h->in.held->applied.round, r->round);
    assert_true(r->pipe->open);
    assert_int_equal(r->pipe->core.state, PIPELINE_IDLE);
}

/* All hosts are level, with these queues of puppets 0 to 2; that of the node,
 * which made no steps, is 0. The steps of the next round may begin. */
static void level(struct rig *r, const uint32_t queue[HAND_PUPPETS])
{
    found(r);
    hand_forget(r->h);
    says(r, MATE, true, queue[MATE], 2); /* before the others are ready */
    for (uint32_t p = 0; p < HAND_PUPPETS; p++) {
        if (p != MATE) {
            says(r, p, true, queue[p], 2);
        }
    }
    hand_drain(r->h, HAND_EVENTS);
}

static void
hear(struct rig *r, uint32_t p, enum message_type type, const void *m)
{
    hand_forget(r->h);
    hand_say(r->h, p, type, m);
    hand_drain(r->h, HAND_EVENTS);
}

/* The first attempt of ROUND runs: the node computes. */
static struct rig *run(uint32_t pieces)
{
    static const uint32_t none[HAND_PUPPETS] = {0};
    struct rig *r = open_rig(ROUND - 1, false);
    const struct hand_message *said = &r->h->last[MESSAGE_STAGE_HELLO];

    r->h->terms.cut_elements = pieces * SEGMENT;
    level(r, none);
    assert_int_equal(r->pipe->core.state, PIPELINE_GATHER);
    assert_int_equal(
        msg_decode(&stage_hello_schema, said->bytes, said->len, &r->hello), 0);
    assert_int_equal(r->hello.round, ROUND);
    assert_int_equal(r->hello.n_hosts, HOSTS);
    for (uint32_t p = 0; p < HAND_PUPPETS; p++) {
        hear(r, p, MESSAGE_STAGE_HELLO, &r->hello);
    }
    assert_int_equal(r->pipe->core.state, PIPELINE_RUN);
    assert_int_equal(r->pipe->core.layout, ALL);
    assert_int_equal(r->pipe->core.self, 0);
    return r;
}

static int setup(void **state)
{
    *state = run(PIECES);
    return 0;
}

static int teardown(void **state)
{
    close_rig(*state);
    return 0;
}

/* ---- what is said, and what comes of it ---------------------------------- */

static const struct job_pipe *piping(const struct rig *r)
{
    const struct job *job = hand_find_job(r->h, JOB_PIPE);

    return job == NULL ? NULL : &job->pipe;
}

static void piped(struct rig *r, enum pipe_op op, uint64_t tag, int rc)
{
    const struct event e = {.type = EVENT_LOCAL,
                            .local = {.type = LOCAL_PIPED,
                                      .rc = rc,
                                      .piped = {.op = op, .attempt = tag}}};

    hand_forget(r->h);
    hand_step(r->h, &e);
}

static uint64_t tag_of(const struct rig *r)
{
    return pipeline_tag(r->pipe->core.attempt, r->pipe->core.step);
}

static void
segment_done(struct rig *r, const struct segment *s, bool sent, int rc)
{
    const struct event e = {
        .type = EVENT_SEG_DONE,
        .seg_done = {.segment = *s, .sent = sent, .rc = rc}};

    hand_forget(r->h);
    hand_step(r->h, &e);
}

/* The forward pass of micro-batch 0 is done: its gradient is posted. */
static struct segment awaited(struct rig *r)
{
    piped(r, PIPE_FORWARD, tag_of(r), 0);
    assert_int_equal(hand_count(r->h, ACTION_POST_RECV), PIECES);
    assert_null(hand_find(r->h, ACTION_SEND_SEG, 0));
    return hand_find(r->h, ACTION_POST_RECV, 0)->segment;
}

static uint32_t puppet_of(const struct rig *r, const struct peer_id *id)
{
    for (uint32_t p = 0; p < HAND_PUPPETS; p++) {
        if (id_eq(&r->h->puppet[p].id, id)) {
            return p;
        }
    }
    fail();
    return 0;
}

/* Among the hosts of the round. */
static uint32_t position(const struct rig *r, const struct peer_id *id)
{
    for (uint32_t k = 0; k < r->pipe->core.n; k++) {
        if (id_eq(&r->pipe->core.host[k].id, id)) {
            return k;
        }
    }
    fail();
    return 0;
}

/* The host that a segment goes to has a place for its micro-batch. */
static void say_take(struct rig *r, const struct segment *s)
{
    const struct stage_take take = {.round = ROUND,
                                    .attempt = r->pipe->core.attempt,
                                    .micro = (uint32_t)s->index};

    hear(r, puppet_of(r, &s->peer), MESSAGE_STAGE_TAKE, &take);
}

/* The activations left, the gradient came. */
static void came_back(struct rig *r, struct segment s)
{
    say_take(r, &s);
    for (uint32_t i = 0; i < 2 * PIECES; i++) {
        s.buffer = i < PIECES ? BUFFER_FORTH : BUFFER_BACK;
        segment_done(r, &s, i < PIECES, 0);
    }
    assert_int_equal(piping(r)->op, PIPE_BACKWARD);
}

static void
say_ready(struct rig *r, uint32_t p, uint64_t round, uint32_t attempt)
{
    const struct stage_ready ready = {.round = round, .attempt = attempt};

    hear(r, p, MESSAGE_STAGE_READY, &ready);
}

static void a_gradient_is_awaited_in_pieces_and_comes_whole(void **state)
{
    struct rig *r = *state;
    struct segment s = awaited(r);

    assert_int_equal(s.stream, STREAM_PIPE);
    assert_int_equal(s.buffer, BUFFER_BACK);
    assert_int_equal(s.attempt, tag_of(r));
    say_take(r, &s);
    assert_int_equal(hand_count(r->h, ACTION_SEND_SEG), PIECES);
    for (uint32_t i = 0; i < PIECES; i++) {
        const struct segment t = hand_find(r->h, ACTION_SEND_SEG, i)->segment;

        assert_int_equal(t.offset, i * SEGMENT);
        assert_int_equal(t.seg, s.index * 2 * PIECES + i);
    }
    s.buffer = BUFFER_FORTH;
    for (uint32_t i = 0; i < PIECES; i++) {
        segment_done(r, &s, true, 0);
        assert_null(piping(r));
    }
    s.buffer = BUFFER_BACK;
    for (uint32_t i = 0; i < PIECES; i++) {
        assert_null(piping(r));
        segment_done(r, &s, false, 0);
    }
    assert_int_equal(piping(r)->op, PIPE_BACKWARD);
}

static void what_is_no_micro_batch_costs_its_sender(void **state)
{
    struct rig *r = *state;
    struct segment s = awaited(r);
    uint32_t k = position(r, &s.peer);
    uint32_t attempt = r->pipe->core.attempt;

    segment_done(r, &s, false, LOCO_EPROTO);
    assert_int_equal(r->pipe->core.layout, ALL & ~(1U << k));
    assert_int_equal(r->pipe->core.attempt, attempt + 1);
    assert_true((r->pipe->core.layout & 1) != 0); /* not us */
}

static void a_line_that_breaks_costs_nobody_at_once(void **state)
{
    struct rig *r = *state;
    struct segment s = awaited(r);
    uint32_t k = position(r, &s.peer);

    segment_done(r, &s, false, LOCO_ECLOSED);
    assert_int_equal(r->pipe->bad_ms[k], r->h->now_ms);
    segment_done(r, &s, true, LOCO_EPROTO); /* what we sent: nothing known */
    assert_int_equal(r->pipe->core.layout, ALL);
}

static void leaves(struct rig *r, uint32_t p)
{
    struct goodbye m = {.body.peer = r->h->puppet[p].id};

    hand_sign(r->h, p, &goodbye_body_schema, &m.body, m.sig);
    hear(r, p, MESSAGE_GOODBYE, &m);
}

/* Else a host that broke once is thrown out of an attempt that goes well. */
static void a_new_attempt_begins_with_good_lines(void **state)
{
    struct rig *r = *state;
    struct segment s = awaited(r);
    uint32_t k = position(r, &s.peer), p = puppet_of(r, &s.peer);
    uint32_t attempt = r->pipe->core.attempt;

    segment_done(r, &s, false, LOCO_ECLOSED);
    assert_int_not_equal(r->pipe->bad_ms[k], 0);
    leaves(r, p == 0 ? 2 : 0); /* the attempt is over */
    assert_int_equal(r->pipe->core.attempt, attempt + 1);
    assert_non_null(hand_find(r->h, ACTION_CANCEL, 0));
    assert_int_equal(hand_find(r->h, ACTION_CANCEL, 0)->cancel.stream,
                     STREAM_PIPE);
    assert_true((r->pipe->core.layout >> k & 1) != 0);
    assert_int_equal(r->pipe->bad_ms[k], 0);
}

/* What does not fit goes out in the next step, and nothing is taken for done
 * before. */
static void segments_that_find_no_room_come_later(void **state)
{
    const uint32_t pieces = CORE_OUT_MAX;
    const struct event tick = {.type = EVENT_TICK};
    struct rig *r = run(pieces);
    struct segment s;
    uint32_t first;

    (void)state;
    piped(r, PIPE_FORWARD, tag_of(r), 0);
    assert_int_equal(r->h->out->dropped, 0);
    first = hand_count(r->h, ACTION_POST_RECV);
    /* A quarter is for the rest of a step. */
    assert_in_range(first, 1, CORE_OUT_MAX - CORE_OUT_MAX / 4);
    assert_int_equal(node_pipe_deadline(r->h->node), r->h->now_ms);
    s = hand_find(r->h, ACTION_POST_RECV, 0)->segment;
    for (uint32_t i = 0; i < first; i++) {
        const struct event e = {.type = EVENT_SEG_DONE, .seg_done.segment = s};

        hand_post(r->h, &e);
    }
    hand_forget(r->h);
    hand_step(r->h, &tick);
    assert_int_equal(r->h->out->dropped, 0);
    assert_int_equal(hand_count(r->h, ACTION_POST_RECV), pieces - first);
    assert_int_equal(hand_find(r->h, ACTION_POST_RECV, 0)->segment.offset,
                     first * SEGMENT);
    assert_true(node_pipe_deadline(r->h->node) > r->h->now_ms);
    hand_drain(r->h, HAND_EVENTS);
    assert_false(r->pipe->core.micro[0].returned);
    for (uint32_t i = first; i < pieces; i++) {
        assert_false(r->pipe->core.micro[0].returned);
        segment_done(r, &s, false, 0);
    }
    assert_true(r->pipe->core.micro[0].returned);
    close_rig(r);
}

static void take_to_step(struct rig *r)
{
    uint32_t attempt = r->pipe->core.attempt;

    came_back(r, awaited(r));
    piped(r, PIPE_BACKWARD, tag_of(r), 0);
    for (uint32_t p = 0; p < HAND_PUPPETS; p++) {
        assert_false(r->pipe->core.stepping);
        say_ready(r, p, ROUND, attempt);
    }
    assert_int_equal(piping(r)->op, PIPE_STEP);
    assert_true(r->pipe->core.stepping);
}

/* Its tag is that of the step which is counted already. */
static void a_step_that_fails_takes_this_host_out(void **state)
{
    struct rig *r = *state;
    uint64_t tag;

    take_to_step(r);
    tag = piping(r)->attempt;
    assert_int_not_equal(tag, tag_of(r));
    piped(r, PIPE_STEP, tag, LOCO_ENOMEM);
    assert_int_equal(r->pipe->core.state, PIPELINE_OUT);
    assert_false(r->pipe->core.stepping);
}

static void a_step_that_is_made_goes_on(void **state)
{
    struct rig *r = *state;

    take_to_step(r);
    piped(r, PIPE_STEP, piping(r)->attempt, 0);
    assert_int_equal(r->pipe->core.state, PIPELINE_RUN);
    assert_int_equal(r->pipe->core.step, 1);
}

/* The machine has its state and the memory for another attempt: the step is
 * made again by all, this host among them. A sum that is complete is not lost.
 */
static void a_machine_that_made_room_is_in_the_next_attempt(void **state)
{
    static const enum pipe_op ops[] = {PIPE_FORWARD, PIPE_BACKWARD};
    struct stage_hello said;

    (void)state;
    for (int i = 0; i < 2; i++) {
        struct rig *r = run(PIECES);
        uint32_t attempt = r->pipe->core.attempt;
        const struct hand_message *m = &r->h->last[MESSAGE_STAGE_HELLO];

        if (ops[i] == PIPE_BACKWARD) {
            came_back(r, awaited(r));
        }
        piped(r, ops[i], tag_of(r), LOCO_EBUSY);
        assert_int_equal(r->pipe->core.state, PIPELINE_GATHER);
        assert_int_equal(r->pipe->core.layout, ALL);
        assert_int_equal(r->pipe->core.attempt, attempt + 1);
        assert_int_equal(
            msg_decode(&stage_hello_schema, m->bytes, m->len, &said), 0);
        assert_int_equal(said.attempt, attempt + 1);
        assert_int_equal(said.n_hosts, HOSTS);
        r->hello.attempt = attempt + 1;
        for (uint32_t p = 0; p < HAND_PUPPETS; p++) {
            hear(r, p, MESSAGE_STAGE_HELLO, &r->hello);
        }
        assert_int_equal(r->pipe->core.state, PIPELINE_RUN);
        assert_int_equal(r->pipe->core.step, 0);
        piped(r, PIPE_FORWARD, pipeline_tag(attempt, 0), LOCO_EBUSY);
        assert_int_equal(r->pipe->core.attempt, attempt + 1); /* not of it */
        close_rig(r);
    }
}

/* Held-out text may use another slot, but it is the same GPU: with that the
 * micro-batches went away. Where it only had no memory they are there. */
static void a_gpu_that_breaks_beside_the_steps_takes_this_host_out(void **state)
{
    struct rig *r = *state;

    piped(r, PIPE_EVAL_FORWARD, 0, LOCO_ENOMEM);
    assert_int_equal(r->pipe->core.state, PIPELINE_RUN);
    piped(r, PIPE_EVAL_FORWARD, 0, LOCO_ECUDA);
    assert_int_equal(r->pipe->core.state, PIPELINE_OUT);
}

/* Its machine said why: whatever it was that it could not do. */
static void a_machine_without_a_device_stops(void **state)
{
    static const enum pipe_op ops[] = {PIPE_FORWARD, PIPE_EVAL_FORWARD};

    (void)state;
    for (int i = 0; i < 2; i++) {
        struct rig *r = run(PIECES);

        piped(r, ops[i], tag_of(r), LOCO_EDEVICE);
        assert_non_null(hand_find_job(r->h, JOB_STOP));
        assert_int_equal(hand_find_job(r->h, JOB_STOP)->stop.exit_code,
                         LOCO_EXIT_DEVICE);
        close_rig(r);
    }
}

/* The machine may have answered before it heard of the end of the attempt. */
static void a_failure_of_an_attempt_that_is_over_is_nothing(void **state)
{
    struct rig *r = *state;

    piped(r, PIPE_FORWARD, tag_of(r) - 1, LOCO_ENOMEM);
    assert_int_equal(r->pipe->core.state, PIPELINE_RUN);
    piped(r, PIPE_FORWARD, tag_of(r), LOCO_ENOMEM);
    assert_int_equal(r->pipe->core.state, PIPELINE_OUT);
}

/* 30 ms of the 100 that the steps took it worked. */
static void idle_is_the_time_in_which_nothing_is_computed(void **state)
{
    struct rig *r = *state;

    assert_int_equal(r->pipe->queue.ms, r->h->now_ms); /* they began now */
    assert_true(r->pipe->busy);                        /* the forward pass */
    hand_wait(r->h, 30);
    piped(r, PIPE_FORWARD, tag_of(r), 0);
    assert_false(r->pipe->busy);
    hand_pass(r->h, 70);
    assert_int_equal(r->pipe->busy_ms, 30);
    assert_int_equal(r->pipe->queue.at_ms - r->pipe->queue.ms, 100);
}

/* Its process lives and answers; only its device does not. */
static void a_machine_that_hangs_takes_this_host_out(void **state)
{
    struct rig *r = *state;
    uint64_t stall_ms = r->h->terms.grace_ms + UNPOSTED_MS;

    for (uint64_t ms = 0; ms < stall_ms; ms += 100) {
        assert_int_equal(r->pipe->core.state, PIPELINE_RUN);
        assert_false(r->h->in.training->hangs);
        hand_wait(r->h, 100);
    }
    assert_int_equal(r->pipe->core.state, PIPELINE_OUT);
    assert_true(r->h->in.training->hangs);
    assert_false(r->h->in.ballot->have); /* and it is in no view */
    assert_non_null(node_stage_wait(r->h->node));
    piped(r, PIPE_FORWARD, 0, LOCO_EFULL); /* there is no room for more */
    assert_true(r->h->in.training->hangs);
    piped(r, PIPE_FORWARD, 0, LOCO_ESTALE); /* it answers, however late */
    assert_false(r->h->in.training->hangs);
}

/* ---- what is late, twice, or of another time ----------------------------- */

static void words_of_another_round_or_attempt_are_nothing(void **state)
{
    struct rig *r = *state;
    uint32_t attempt = r->pipe->core.attempt;
    struct stage_hello other = r->hello;

    say_ready(r, 0, ROUND + 1, attempt);
    say_ready(r, 0, ROUND - 1, attempt);
    say_ready(r, 0, ROUND, attempt - 1);
    say_ready(r, 0, ROUND, attempt + 1);
    assert_int_equal(r->pipe->core.ready, 0);
    other.round = ROUND + 1;
    other.attempt = attempt + 1;
    other.n_hosts--; /* without us, who have the lowest id */
    memmove(other.hosts, other.hosts + 1,
            other.n_hosts * sizeof other.hosts[0]);
    hear(r, 0, MESSAGE_STAGE_HELLO, &other);
    assert_int_equal(r->pipe->core.state, PIPELINE_RUN);
    assert_int_equal(r->pipe->core.attempt, attempt);
    say_ready(r, 0, ROUND, attempt);
    assert_int_not_equal(r->pipe->core.ready, 0);
    other.round = ROUND;
    hear(r, 0, MESSAGE_STAGE_HELLO, &other); /* it is the round */
    assert_int_equal(r->pipe->core.state, PIPELINE_OUT);
}

/* Its gradient may have left before the other host heard of the end. */
static void a_segment_of_an_attempt_that_is_over_is_nothing(void **state)
{
    struct rig *r = *state;
    struct segment s = awaited(r);

    say_take(r, &s);
    s.attempt--;
    for (uint32_t i = 0; i < 2 * PIECES; i++) {
        s.buffer = i < PIECES ? BUFFER_FORTH : BUFFER_BACK;
        segment_done(r, &s, i < PIECES, 0);
    }
    segment_done(r, &s, false, LOCO_EPROTO); /* nor anybody's fault */
    assert_int_equal(r->pipe->core.layout, ALL);
    assert_int_equal(r->pipe->core.micro[0].state, MICRO_AWAY);
    assert_false(r->pipe->core.micro[0].left);
    assert_false(r->pipe->core.micro[0].returned);
}

static void a_gradient_that_comes_twice_is_summed_once(void **state)
{
    struct rig *r = *state;
    struct segment s = awaited(r);
    uint64_t tag = tag_of(r);

    came_back(r, s);
    for (uint32_t i = 0; i < PIECES; i++) {
        segment_done(r, &s, false, 0);
        assert_null(piping(r));
    }
    piped(r, PIPE_BACKWARD, tag, 0);
    assert_int_equal(r->pipe->core.state, PIPELINE_HELD);
    piped(r, PIPE_BACKWARD, tag, 0); /* nor is it reported twice */
    assert_int_equal(r->pipe->core.held_count, 1);
    assert_int_equal(r->pipe->core.n_done, 1);
}

/* ---- who moves ----------------------------------------------------------- */

/* Who has least work of its stage goes, whatever its id. */
static void once_in_eight_rounds_a_host_moves_to_where_more_waits(void **state)
{
    static const uint32_t queue[HAND_PUPPETS] = {64, 16, 64};
    struct rig *r = open_rig(7, false);

    (void)state;
    level(r, queue);
    assert_null(hand_find_job(r->h, JOB_STAGE));
    assert_int_equal(r->pipe->core.state, PIPELINE_GATHER);
    assert_int_equal(r->pipe->core.round, 8);
    close_rig(r);
    for (int highest = 0; highest < 2; highest++) {
        r = open_rig(8, highest != 0);
        level(r, queue);
        assert_non_null(hand_find_job(r->h, JOB_STAGE));
        assert_int_equal(hand_find_job(r->h, JOB_STAGE)->stage.stage, 1);
        assert_int_equal(r->pipe->core.state, PIPELINE_IDLE);
        assert_int_equal(r->pipe->core.round, 0); /* it begins no steps */
        close_rig(r);
    }
}

/* All see the same queues: who goes is not waited for. Of equal ones the lower
 * id goes. */
static void a_host_that_moves_is_not_in_the_next_round(void **state)
{
    static const uint32_t queue[HAND_PUPPETS] = {64, 0, 64};
    struct rig *r = open_rig(8, true);

    (void)state;
    level(r, queue);
    assert_null(hand_find_job(r->h, JOB_STAGE));
    assert_int_equal(r->pipe->core.round, 9);
    assert_int_equal(r->pipe->core.n, HOSTS - 1);
    for (uint32_t k = 0; k < HOSTS - 1; k++) {
        assert_false(id_eq(&r->pipe->core.host[k].id, &r->h->puppet[MATE].id));
    }
    close_rig(r);
}

/* Twice the work of a host, and half a micro-batch (8) more: 32. */
static void nobody_moves_for_little(void **state)
{
    static const uint32_t little[HAND_PUPPETS] = {31, 24, 31};
    static const uint32_t much[HAND_PUPPETS] = {32, 24, 32};
    struct rig *r = open_rig(8, false);

    (void)state;
    level(r, little);
    assert_null(hand_find_job(r->h, JOB_STAGE));
    assert_int_equal(r->pipe->core.round, 9);
    assert_int_equal(r->pipe->core.n, HOSTS);
    close_rig(r);
    r = open_rig(16, false);
    level(r, much);
    assert_non_null(hand_find_job(r->h, JOB_STAGE)); /* it is the queues */
    close_rig(r);
}

int main(void)
{
#define TEST(f)  cmocka_unit_test_setup_teardown(f, setup, teardown)
#define ALONE(f) cmocka_unit_test(f)
    const struct CMUnitTest tests[] = {
        TEST(a_gradient_is_awaited_in_pieces_and_comes_whole),
        TEST(what_is_no_micro_batch_costs_its_sender),
        TEST(a_line_that_breaks_costs_nobody_at_once),
        TEST(a_new_attempt_begins_with_good_lines),
        ALONE(segments_that_find_no_room_come_later),
        TEST(a_step_that_fails_takes_this_host_out),
        TEST(a_step_that_is_made_goes_on),
        ALONE(a_machine_that_made_room_is_in_the_next_attempt),
        TEST(a_gpu_that_breaks_beside_the_steps_takes_this_host_out),
        ALONE(a_machine_without_a_device_stops),
        TEST(a_failure_of_an_attempt_that_is_over_is_nothing),
        TEST(idle_is_the_time_in_which_nothing_is_computed),
        TEST(a_machine_that_hangs_takes_this_host_out),
        TEST(words_of_another_round_or_attempt_are_nothing),
        TEST(a_segment_of_an_attempt_that_is_over_is_nothing),
        TEST(a_gradient_that_comes_twice_is_summed_once),
        ALONE(once_in_eight_rounds_a_host_moves_to_where_more_waits),
        ALONE(a_host_that_moves_is_not_in_the_next_round),
        ALONE(nobody_moves_for_little),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
