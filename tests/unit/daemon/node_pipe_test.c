/* node_pipe_test.c - one host's node_pipe.c by hand: what the pipeline wants as
 * actions, and what comes of what the shell and the machine say. Whole nodes in
 * all faults are the simulator's (sim stages). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "proto/base/err.h"
#include "tests/unit/daemon/hand.h"

#define ROUND   1 /* that is under way */
#define PIECES  3
#define SEGMENT 16

/* The node and puppets 0 to 2 in a run of two stages: the node and puppet 1
 * hold stage 0, the others stage 1. Only the pipeline is alive. */
struct rig {
    struct hand *h;
    struct node *n;
    struct pipeline_host host[HAND_PUPPETS + 1]; /* by id: the node first */
    struct stage_hello hello;
};

static void step_begins(struct node *n, struct out *out)
{
    n->out = out;
    out->n = 0;
    out->n_bytes = 0;
}

static void tick(struct rig *r, uint64_t ms)
{
    r->n->now += ms;
    step_begins(r->n, r->h->out);
    node_pipe_tick(r->n);
}

/* Puppet p says the HELLO of the attempt that the node is in. */
static void hear(struct rig *r, uint32_t p)
{
    int row = members_find(&r->n->members, &r->h->puppet[p].id);

    r->hello.attempt = r->n->pipe.attempt;
    node_on_stage_message(r->n, row, MESSAGE_STAGE_HELLO, &r->hello);
}

static void begin(struct rig *r)
{
    struct node *n = r->n;

    r->hello = (struct stage_hello){.round = ROUND, .n_hosts = 4};
    for (uint32_t k = 0; k < 4; k++) {
        r->hello.hosts[k].id = r->host[k].id;
        r->hello.hosts[k].stage = (uint16_t)r->host[k].stage;
        n->pipe_life[k] = k == 0 ? n->life : 7;
    }
    step_begins(n, r->h->out);
    assert_int_equal(
        pipeline_begin(&n->pipe, ROUND, r->host, 4, n->now, &n->pipe_out), 0);
    for (uint32_t p = 0; p < 3; p++) {
        hear(r, p);
    }
    assert_int_equal(n->pipe.state, PIPELINE_RUN);
}

static int setup(void **state)
{
    struct rig *r = calloc(1, sizeof *r);
    uint32_t rank[HAND_PUPPETS];

    r->h = hand_open(HAND_PUPPETS);
    r->n = r->h->node;
    hand_drain(r->h, 16); /* links and their first words */
    r->n->terms = r->h->terms;
    r->n->terms.stages = 2;
    r->n->terms.pipe_seed = 1;
    r->n->terms.micro_batches = 1;
    r->n->terms.pipe_slots = 2;
    r->n->terms.cut_elements = PIECES * SEGMENT;
    r->n->terms.cut_segment = SEGMENT;
    r->n->now = r->h->now_ms;
    r->n->stage = 0;
    node_pipe_configured(r->n);
    assert_true(r->n->pipe_open);
    r->host[0] = (struct pipeline_host){.id = r->h->self.id};
    for (uint32_t p = 0; p < HAND_PUPPETS; p++) {
        rank[p] = 1;
        for (uint32_t q = 0; q < HAND_PUPPETS; q++) {
            rank[p] += id_cmp(&r->h->puppet[q].id, &r->h->puppet[p].id) < 0;
        }
        r->host[rank[p]] = (struct pipeline_host){.id = r->h->puppet[p].id,
                                                  .stage = p == 1 ? 0 : 1};
    }
    begin(r);
    *state = r;
    return 0;
}

static int teardown(void **state)
{
    struct rig *r = *state;

    hand_close(r->h);
    free(r);
    return 0;
}

static const struct action *find(const struct rig *r, enum action_type type)
{
    for (uint32_t i = 0; i < r->h->out->n; i++) {
        if (r->h->out->action[i].type == type) {
            return &r->h->out->action[i];
        }
    }
    return NULL;
}

static uint32_t count(const struct rig *r, enum action_type type)
{
    uint32_t n = 0;

    for (uint32_t i = 0; i < r->h->out->n; i++) {
        n += r->h->out->action[i].type == type;
    }
    return n;
}

static void piped(struct rig *r, enum pipe_op op, uint64_t tag, int rc)
{
    const struct local_event e = {
        .type = LOCAL_PIPED, .op = op, .attempt = tag, .rc = rc};

    step_begins(r->n, r->h->out);
    node_on_piped(r->n, &e);
}

static uint64_t tag_of(const struct rig *r)
{
    return pipeline_tag(r->n->pipe.attempt, r->n->pipe.step);
}

static void
segment_done(struct rig *r, const struct segment *s, bool sent, int rc)
{
    const struct event e = {.type = EVENT_SEG_DONE,
                            .now_ms = r->n->now,
                            .segment = *s,
                            .sent = sent,
                            .rc = rc};

    step_begins(r->n, r->h->out);
    node_pipe_seg_done(r->n, &e);
}

/* The forward pass of micro-batch 0 is done: its gradient is posted. */
static struct segment awaited(struct rig *r)
{
    piped(r, PIPE_FORWARD, tag_of(r), 0);
    assert_int_equal(count(r, ACTION_POST_RECV), PIECES);
    assert_null(find(r, ACTION_SEND_SEG));
    return find(r, ACTION_POST_RECV)->segment;
}

static uint32_t position(const struct rig *r, const struct peer_id *id)
{
    for (uint32_t k = 0; k < 4; k++) {
        if (id_eq(&r->host[k].id, id)) {
            return k;
        }
    }
    fail();
    return 0;
}

static void a_gradient_is_awaited_in_pieces_and_comes_whole(void **state)
{
    struct rig *r = *state;
    struct segment s = awaited(r);
    struct stage_take take = {.round = ROUND,
                              .step = 0,
                              .attempt = r->n->pipe.attempt,
                              .micro = (uint32_t)s.index};

    assert_int_equal(s.stream, STREAM_PIPE);
    assert_int_equal(s.buffer, BUFFER_BACK);
    assert_int_equal(s.attempt, tag_of(r));
    step_begins(r->n, r->h->out);
    node_on_stage_message(r->n, members_find(&r->n->members, &s.peer),
                          MESSAGE_STAGE_TAKE, &take);
    assert_int_equal(count(r, ACTION_SEND_SEG), PIECES);
    for (uint32_t i = 0; i < PIECES; i++) {
        struct segment t = r->h->out->action[i].segment;

        assert_int_equal(t.offset, i * SEGMENT);
        assert_int_equal(t.seg, s.index * 2 * PIECES + i);
    }
    s.buffer = BUFFER_FORTH;
    for (uint32_t i = 0; i < PIECES; i++) {
        segment_done(r, &s, true, 0);
    }
    s.buffer = BUFFER_BACK;
    for (uint32_t i = 0; i < PIECES; i++) {
        assert_null(find(r, ACTION_PIPE));
        segment_done(r, &s, false, 0);
    }
    assert_int_equal(find(r, ACTION_PIPE)->op, PIPE_BACKWARD);
}

static void what_is_no_micro_batch_costs_its_sender(void **state)
{
    struct rig *r = *state;
    struct segment s = awaited(r);
    uint32_t k = position(r, &s.peer);
    uint32_t attempt = r->n->pipe.attempt;

    segment_done(r, &s, false, LOCO_EPROTO);
    assert_int_equal(r->n->pipe.layout, 15 & ~(1U << k));
    assert_int_equal(r->n->pipe.attempt, attempt + 1);
    assert_true((r->n->pipe.layout & 1) != 0); /* not us */
}

static void a_line_that_breaks_costs_nobody_at_once(void **state)
{
    struct rig *r = *state;
    struct segment s = awaited(r);
    uint32_t k = position(r, &s.peer);

    segment_done(r, &s, false, LOCO_ECLOSED);
    assert_int_equal(r->n->pipe_bad_ms[k], r->n->now);
    segment_done(r, &s, true, LOCO_EPROTO); /* what we sent: nothing known */
    assert_int_equal(r->n->pipe.layout, 15);
}

/* Else a host that broke once is thrown out of an attempt that goes well. */
static void a_new_attempt_begins_with_good_lines(void **state)
{
    struct rig *r = *state;
    struct segment s = awaited(r);
    uint32_t k = position(r, &s.peer);
    const struct peer_id other = r->host[k == 1 ? 2 : 1].id;

    segment_done(r, &s, false, LOCO_ECLOSED);
    assert_int_not_equal(r->n->pipe_bad_ms[k], 0);
    step_begins(r->n, r->h->out);
    r->n->pipe_out.n = 0;
    r->n->members.peers[members_find(&r->n->members, &other)].lost = true;
    tick(r, 0); /* another one is lost: the attempt is over */
    assert_non_null(find(r, ACTION_CANCEL));
    assert_int_equal(r->n->pipe_bad_ms[k], 0);
}

/* What does not fit goes out in the next step, and nothing is taken for done
 * before. */
static void segments_that_find_no_room_come_later(void **state)
{
    struct rig *r = *state;
    uint64_t dropped = r->h->out->dropped;
    const struct local_event e = {
        .type = LOCAL_PIPED, .op = PIPE_FORWARD, .attempt = tag_of(r)};

    step_begins(r->n, r->h->out);
    while (r->h->out->n < CORE_OUT_MAX - CORE_OUT_MAX / 4) {
        (void)out_add(r->h->out, ACTION_LOG);
    }
    node_on_piped(r->n, &e);
    assert_int_equal(count(r, ACTION_POST_RECV), 0);
    assert_int_equal(node_pipe_deadline(r->n), r->n->now);
    tick(r, 0);
    assert_int_equal(count(r, ACTION_POST_RECV), PIECES);
    assert_true(node_pipe_deadline(r->n) > r->n->now);
    assert_int_equal(r->h->out->dropped, dropped);
}

static void take_to_step(struct rig *r)
{
    struct segment s = awaited(r);
    struct stage_take take = {.round = ROUND,
                              .attempt = r->n->pipe.attempt,
                              .micro = (uint32_t)s.index};
    struct stage_ready ready = {.round = ROUND, .attempt = take.attempt};

    node_on_stage_message(r->n, members_find(&r->n->members, &s.peer),
                          MESSAGE_STAGE_TAKE, &take);
    for (uint32_t i = 0; i < 2 * PIECES; i++) {
        s.buffer = i < PIECES ? BUFFER_FORTH : BUFFER_BACK;
        segment_done(r, &s, i < PIECES, 0);
    }
    piped(r, PIPE_BACKWARD, tag_of(r), 0);
    step_begins(r->n, r->h->out);
    for (uint32_t p = 0; p < HAND_PUPPETS; p++) {
        node_on_stage_message(r->n,
                              members_find(&r->n->members, &r->h->puppet[p].id),
                              MESSAGE_STAGE_READY, &ready);
    }
    assert_int_equal(find(r, ACTION_PIPE)->op, PIPE_STEP);
    assert_true(r->n->pipe.stepping);
}

/* Its tag is that of the step which is counted already. */
static void a_step_that_fails_takes_this_host_out(void **state)
{
    struct rig *r = *state;
    uint64_t tag;

    take_to_step(r);
    tag = find(r, ACTION_PIPE)->attempt;
    assert_int_not_equal(tag, tag_of(r));
    piped(r, PIPE_STEP, tag, LOCO_ENOMEM);
    assert_int_equal(r->n->pipe.state, PIPELINE_OUT);
    assert_false(r->n->pipe.stepping);
    assert_false(node_pipe_runs(r->n));
}

static void a_step_that_is_made_goes_on(void **state)
{
    struct rig *r = *state;

    take_to_step(r);
    piped(r, PIPE_STEP, find(r, ACTION_PIPE)->attempt, 0);
    assert_int_equal(r->n->pipe.state, PIPELINE_RUN);
    assert_int_equal(r->n->pipe.step, 1);
}

/* The machine may have answered before it heard of the end of the attempt. */
static void a_failure_of_an_attempt_that_is_over_is_nothing(void **state)
{
    struct rig *r = *state;

    piped(r, PIPE_FORWARD, tag_of(r) - 1, LOCO_ENOMEM);
    assert_int_equal(r->n->pipe.state, PIPELINE_RUN);
    piped(r, PIPE_FORWARD, tag_of(r), LOCO_ENOMEM);
    assert_int_equal(r->n->pipe.state, PIPELINE_OUT);
}

/* 30 ms of the 100 that the steps took it worked. */
static void idle_is_the_time_in_which_nothing_is_computed(void **state)
{
    struct rig *r = *state;

    r->n->busy_ms = 0;
    r->n->queue_ms = r->n->queue_at_ms = r->n->now;
    assert_true(r->n->busy); /* the forward pass */
    r->n->now += 30;
    piped(r, PIPE_FORWARD, tag_of(r), 0);
    assert_false(r->n->busy);
    tick(r, 70);
    assert_int_equal(r->n->busy_ms, 30);
    assert_int_equal(r->n->queue_at_ms - r->n->queue_ms, 100);
}

/* Its process lives and answers; only its device does not. */
static void a_machine_that_hangs_takes_this_host_out(void **state)
{
    struct rig *r = *state;
    uint64_t stall_ms = r->n->terms.grace_ms + UNPOSTED_MS;

    for (uint64_t ms = 0; ms < stall_ms; ms += 100) {
        assert_int_equal(r->n->pipe.state, PIPELINE_RUN);
        for (uint32_t p = 0; p < HAND_PUPPETS; p++) {
            r->n->members
                .peers[members_find(&r->n->members, &r->h->puppet[p].id)]
                .heard_ms = r->n->now + 100;
        }
        tick(r, 100);
    }
    assert_int_equal(r->n->pipe.state, PIPELINE_OUT);
    assert_true(r->n->hangs); /* and it is in no view */
    assert_non_null(node_stage_wait(r->n));
    piped(r, PIPE_FORWARD, 0, LOCO_EFULL); /* there is no room for more */
    assert_true(r->n->hangs);
    piped(r, PIPE_FORWARD, 0, LOCO_ESTALE); /* it answers, however late */
    assert_false(r->n->hangs);
}

/* ---- what is late, twice, or of another time ----------------------------- */

static void
say_ready(struct rig *r, uint32_t p, uint64_t round, uint32_t attempt)
{
    const struct stage_ready ready = {.round = round, .attempt = attempt};

    step_begins(r->n, r->h->out);
    node_on_stage_message(r->n,
                          members_find(&r->n->members, &r->h->puppet[p].id),
                          MESSAGE_STAGE_READY, &ready);
}

static void words_of_another_round_or_attempt_are_nothing(void **state)
{
    struct rig *r = *state;
    uint32_t attempt = r->n->pipe.attempt;
    struct stage_hello other = r->hello;

    say_ready(r, 0, ROUND + 1, attempt);
    say_ready(r, 0, ROUND - 1, attempt);
    say_ready(r, 0, ROUND, attempt - 1);
    say_ready(r, 0, ROUND, attempt + 1);
    assert_int_equal(r->n->pipe.ready, 0);
    other.round = ROUND + 1;
    other.attempt = attempt + 1;
    other.n_hosts = 1; /* would leave us out */
    node_on_stage_message(r->n,
                          members_find(&r->n->members, &r->h->puppet[0].id),
                          MESSAGE_STAGE_HELLO, &other);
    assert_int_equal(r->n->pipe.state, PIPELINE_RUN);
    assert_int_equal(r->n->pipe.attempt, attempt);
    say_ready(r, 0, ROUND, attempt);
    assert_int_not_equal(r->n->pipe.ready, 0);
}

/* Its gradient may have left before the other host heard of the end. */
static void a_segment_of_an_attempt_that_is_over_is_nothing(void **state)
{
    struct rig *r = *state;
    struct segment s = awaited(r);

    s.attempt--;
    for (uint32_t i = 0; i < 2 * PIECES; i++) {
        segment_done(r, &s, i < PIECES, 0);
    }
    segment_done(r, &s, false, LOCO_EPROTO); /* nor anybody's fault */
    assert_int_equal(r->n->pipe.layout, 15);
    assert_int_equal(r->n->pipe.micro[0].state, MICRO_AWAY);
    assert_false(r->n->pipe.micro[0].returned);
}

static void a_gradient_that_comes_twice_is_summed_once(void **state)
{
    struct rig *r = *state;
    struct segment s = awaited(r);
    struct stage_take take = {.round = ROUND,
                              .attempt = r->n->pipe.attempt,
                              .micro = (uint32_t)s.index};
    uint64_t tag = tag_of(r);

    node_on_stage_message(r->n, members_find(&r->n->members, &s.peer),
                          MESSAGE_STAGE_TAKE, &take);
    for (uint32_t i = 0; i < 2 * PIECES; i++) {
        s.buffer = i < PIECES ? BUFFER_FORTH : BUFFER_BACK;
        segment_done(r, &s, i < PIECES, 0);
    }
    assert_int_equal(find(r, ACTION_PIPE)->op, PIPE_BACKWARD);
    for (uint32_t i = 0; i < PIECES; i++) {
        segment_done(r, &s, false, 0);
        assert_null(find(r, ACTION_PIPE));
    }
    piped(r, PIPE_BACKWARD, tag, 0);
    assert_int_equal(r->n->pipe.state, PIPELINE_HELD);
    piped(r, PIPE_BACKWARD, tag, 0); /* nor is it reported twice */
    assert_int_equal(r->n->pipe.held_count, 1);
    assert_int_equal(r->n->pipe.n_done, 1);
}

/* ---- who moves ----------------------------------------------------------- */

/* All hosts are level at `round`, with these queues: of the node, of puppets 0
 * to 2. The next round's steps may begin. */
static void level(struct rig *r, uint64_t round, const uint32_t queue[4])
{
    struct node *n = r->n;

    n->applied.round = round;
    n->ballot.self_index = 0; /* as in a view */
    n->queue = queue[0];
    n->terms.stage_fits = 3;
    for (uint32_t p = 0; p < HAND_PUPPETS; p++) {
        int row = members_find(&n->members, &r->h->puppet[p].id);
        struct member *m = &n->members.peers[row];

        m->confirmed = true;
        m->has_beat = true;
        m->info.stage = p == 1 ? 1 : 2;
        m->info.features = PEER_IN_VIEW;
        m->beat = (struct heartbeat){.life = 7,
                                     .state = NODE_TRAINING,
                                     .ready = true,
                                     .has_view = true,
                                     .round = round,
                                     .stage = m->info.stage,
                                     .queue = (uint16_t)queue[1 + p]};
    }
    step_begins(n, r->h->out);
    node_pipe_advance(n);
}

static void once_in_eight_rounds_a_host_moves_to_where_more_waits(void **state)
{
    static const uint32_t queue[4] = {0, 64, 16, 64};
    struct rig *r = *state;

    level(r, 7, queue);
    assert_null(find(r, ACTION_STAGE));
    assert_int_equal(r->n->pipe.state, PIPELINE_GATHER);
    assert_int_equal(r->n->pipe.round, 8);
    level(r, 8, queue);
    assert_non_null(find(r, ACTION_STAGE));
    assert_int_equal(find(r, ACTION_STAGE)->index, 1);
    assert_int_equal(r->n->pipe.round, 8); /* it begins no steps */
}

/* All see the same queues: who goes is not waited for. */
static void a_host_that_moves_is_not_in_the_next_round(void **state)
{
    static const uint32_t queue[4] = {16, 64, 0, 64};
    struct rig *r = *state;

    level(r, 8, queue);
    assert_null(find(r, ACTION_STAGE));
    assert_int_equal(r->n->pipe.round, 9);
    assert_int_equal(r->n->pipe.n, 3);
    for (uint32_t k = 0; k < 3; k++) {
        assert_false(id_eq(&r->n->pipe.host[k].id, &r->h->puppet[1].id));
    }
}

static void nobody_moves_for_little(void **state)
{
    static const uint32_t much[4] = {0, 64, 16, 64};
    static const uint32_t little[4] = {16, 40, 24, 40};
    struct rig *r = *state;

    level(r, 8, little);
    assert_null(find(r, ACTION_STAGE));
    assert_int_equal(r->n->pipe.n, 4);
    r->n->balanced_round = 0;
    r->n->pipe.state = PIPELINE_IDLE;
    level(r, 16, much);
    assert_non_null(find(r, ACTION_STAGE)); /* it is the queues */
}

int main(void)
{
#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(a_gradient_is_awaited_in_pieces_and_comes_whole),
        TEST(what_is_no_micro_batch_costs_its_sender),
        TEST(a_line_that_breaks_costs_nobody_at_once),
        TEST(a_new_attempt_begins_with_good_lines),
        TEST(segments_that_find_no_room_come_later),
        TEST(a_step_that_fails_takes_this_host_out),
        TEST(a_step_that_is_made_goes_on),
        TEST(a_failure_of_an_attempt_that_is_over_is_nothing),
        TEST(idle_is_the_time_in_which_nothing_is_computed),
        TEST(a_machine_that_hangs_takes_this_host_out),
        TEST(words_of_another_round_or_attempt_are_nothing),
        TEST(a_segment_of_an_attempt_that_is_over_is_nothing),
        TEST(a_gradient_that_comes_twice_is_summed_once),
        TEST(once_in_eight_rounds_a_host_moves_to_where_more_waits),
        TEST(a_host_that_moves_is_not_in_the_next_round),
        TEST(nobody_moves_for_little),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
