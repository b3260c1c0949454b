/* node_eval_test.c - one host's node/eval_pass.c by hand: who begins an
 * evaluation, what goes from host to host, and what ends it. Whole swarms that
 * evaluate while hosts die are the simulator's (sim stages). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "proto/base/err.h"
#include "tests/unit/daemon/hand.h"

#define STAGES  3
#define EVERY   2
#define ROUND   4 /* that is evaluated: the third of them, turn 2 */
#define MICROS  5
#define PIECES  3
#define SEGMENT 16
#define DEAD_MS 2000
#define SLOTS   2 /* of the steps; those of an evaluation come after them */

/* The node in a stage of three, and a puppet in each other one; the third
 * puppet stands by. All hold the commit of `round`. */
struct rig {
    struct hand *h;
    const struct node_eval *eval;
    uint64_t round;
    uint32_t at[STAGES]; /* which puppet holds that stage */
};

static void hosts(struct rig *r, uint32_t p, uint32_t stage, uint64_t round)
{
    const struct heartbeat b = {.life = r->h->life,
                                .configured = true,
                                .ready = true,
                                .has_view = true,
                                .state = NODE_TRAINING,
                                .round = round,
                                .stage = (uint16_t)(stage + 1)};

    hand_set_beat(r->h, p, &b);
}

static struct rig *open_rig(uint64_t round, uint32_t stage)
{
    const struct hand_options opt = {.node.timing.dead_ms = DEAD_MS};
    const struct heartbeat none = {.life = 7, .configured = true};
    struct rig *r = calloc(1, sizeof *r);
    struct hand *h = hand_open_as(HAND_PUPPETS, &opt);
    uint32_t p = 0;

    r->h = h;
    r->eval = h->in.eval;
    r->round = round;
    h->bulk_by_hand = true;
    h->terms.stages = STAGES;
    h->terms.stage_fits = 7;
    h->terms.min_peers = STAGES;
    h->terms.fork_after_ms = 1; /* nobody else of its stage comes back */
    h->terms.micro_batches = 1;
    h->terms.pipe_slots = SLOTS;
    h->terms.cut_elements = PIECES * SEGMENT;
    h->terms.cut_segment = SEGMENT;
    h->terms.eval_every = EVERY;
    h->terms.eval_micros = MICROS;
    h->terms.holds_state = true;
    h->terms.held_stage = stage;
    h->terms.held_round = round;
    for (uint32_t s = 0; s < STAGES; s++) {
        if (s != stage) {
            r->at[s] = p;
            hosts(r, p++, s, round);
        }
    }
    hand_set_beat(h, p, &none);
    return r;
}

/* The node is in the view of its stage. */
static void begin(struct rig *r)
{
    struct event e = {.type = EVENT_LOCAL, .local.type = LOCAL_STAGED};

    hand_wait(r->h, 1);
    assert_int_equal(r->h->n_jobs[JOB_STAGE], 1);
    e.local.staged.terms = &r->h->terms;
    hand_step(r->h, &e);
    for (int ms = 0; ms < 20000 && !r->h->in.ballot->have; ms++) {
        hand_forget(r->h);
        hand_wait(r->h, 1);
    }
    assert_true(r->h->in.ballot->have);
}

static struct rig *take(uint32_t stage)
{
    struct rig *r = open_rig(ROUND, stage);

    begin(r);
    return r;
}

static void close_rig(struct rig *r)
{
    hand_close(r->h);
    free(r);
}

static void advance(struct rig *r, uint64_t ms)
{
    hand_forget(r->h);
    hand_pass(r->h, ms);
}

static const struct job_pipe *piping(const struct rig *r)
{
    const struct job *job = hand_find_job(r->h, JOB_PIPE);

    return job == NULL ? NULL : &job->pipe;
}

/* The attempt whose segments are to be dropped; NULL: none is. */
static const uint64_t *cancelled(const struct rig *r)
{
    const struct action *a;

    for (uint32_t k = 0; (a = hand_find(r->h, ACTION_CANCEL, k)) != NULL; k++) {
        if (a->cancel.stream == STREAM_EVAL) {
            return &a->cancel.attempt;
        }
    }
    return NULL;
}

static void
hear(struct rig *r, uint32_t p, enum message_type type, const void *m)
{
    hand_forget(r->h);
    hand_say(r->h, p, type, m);
    hand_drain(r->h, HAND_EVENTS);
}

/* The STAGE_EVAL over the hosts of the rig. */
static struct stage_eval way(const struct rig *r, uint32_t attempt)
{
    struct stage_eval m = {
        .round = ROUND, .attempt = attempt, .n_hosts = STAGES};

    for (uint32_t s = 0; s < STAGES; s++) {
        m.hosts[s] = s == r->h->in.stages->own ? r->h->self.id
                                               : r->h->puppet[r->at[s]].id;
    }
    return m;
}

static uint32_t attempt_of(const struct rig *r)
{
    return (uint32_t)(r->eval->pass.tag & 0xffff);
}

static void place(struct rig *r, uint32_t stage, uint32_t micro)
{
    const struct eval_take m = {
        .round = ROUND, .attempt = attempt_of(r), .micro = micro};

    hear(r, r->at[stage], MESSAGE_EVAL_TAKE, &m);
}

static void piped(struct rig *r, uint64_t tag, uint32_t micro, int rc)
{
    const struct local_event e = {.type = LOCAL_PIPED,
                                  .rc = rc,
                                  .piped = {.op = PIPE_EVAL_FORWARD,
                                            .attempt = tag,
                                            .index = micro,
                                            .bits_per_byte = 2.5}};

    hand_forget(r->h);
    hand_local(r->h, &e);
    hand_drain(r->h, HAND_EVENTS);
}

static void moved(struct rig *r, uint32_t micro, bool sent, int rc)
{
    const struct event e = {
        .type = EVENT_SEG_DONE,
        .seg_done = {.sent = sent,
                     .rc = rc,
                     .segment = {.stream = STREAM_EVAL,
                                 .attempt = r->eval->pass.tag,
                                 .index = micro}}};

    hand_forget(r->h);
    hand_post(r->h, &e);
    hand_drain(r->h, HAND_EVENTS);
}

/* ---- who begins ---------------------------------------------------------- */

static void the_first_stage_names_a_host_of_each(void **state)
{
    struct rig *r = take(0);
    struct stage_eval m;

    (void)state;
    assert_true(r->eval->pass.active);
    assert_true(hand_heard(r->h, r->at[1], MESSAGE_STAGE_EVAL, 0, &m));
    assert_int_equal(m.round, ROUND);
    assert_int_equal(m.n_hosts, STAGES);
    assert_true(id_eq(&m.hosts[0], &r->h->self.id));
    assert_true(id_eq(&m.hosts[1], &r->h->puppet[r->at[1]].id));
    assert_true(id_eq(&m.hosts[2], &r->h->puppet[r->at[2]].id));
    assert_int_equal(m.attempt, 1 << 8); /* the first try, by number 0 */
    assert_false(hand_heard(r->h, r->at[2], MESSAGE_STAGE_EVAL, 0, &m));
    assert_int_equal(piping(r)->op, PIPE_EVAL_FORWARD);
    assert_int_equal(piping(r)->index, 0);
    assert_true(piping(r)->slot >= SLOTS);
    close_rig(r);
}

/* Somebody says how good the state of that round is. */
static void tell(struct rig *r, uint64_t round)
{
    struct evaluated m = {.body = {.round = round, .microbits = 1}};

    hand_sign(r->h, 0, &evaluated_body_schema, &m.body, m.sig);
    hear(r, 0, MESSAGE_EVALUATED, &m);
}

static void other_stages_and_other_rounds_begin_nothing(void **state)
{
    struct rig *r = take(1);

    (void)state;
    advance(r, 1000);
    assert_false(r->eval->pass.active);
    close_rig(r);
    r = open_rig(ROUND + 1, 0);
    begin(r);
    advance(r, 1000);
    assert_false(r->eval->pass.active);
    close_rig(r);
    r = take(0);
    tell(r, ROUND - EVERY);
    assert_true(r->eval->pass.active);
    tell(r, ROUND); /* nothing is to be done any more */
    assert_false(r->eval->pass.active);
    advance(r, 2 * DEAD_MS);
    assert_false(r->eval->pass.active);
    close_rig(r);
}

/* The others hold the next commit: so does the node, after a round without
 * steps. */
static void next_round(struct rig *r)
{
    hosts(r, r->at[1], 1, ROUND + 1);
    hosts(r, r->at[2], 2, ROUND + 1);
}

/* The last round is evaluated whatever its number. */
static void the_end_of_the_run_is_evaluated(void **state)
{
    struct rig *r = open_rig(ROUND, 0);

    (void)state;
    r->h->terms.stop_rounds = ROUND + 1;
    next_round(r);
    begin(r);
    for (int ms = 0; ms < 1000 && r->h->in.held->applied.round == ROUND; ms++) {
        assert_false(r->eval->pass.active);
        hand_wait(r->h, 1);
    }
    assert_int_equal(r->h->in.held->applied.round, ROUND + 1);
    advance(r, 100);
    assert_true(r->eval->pass.active);
    close_rig(r);
}

/* Puppet 2 is in the view of stage 0, too, before the others are level. */
static void two_of_the_first_stage(struct rig *r)
{
    r->h->has_beat[2] = false;
    r->h->stage[2] = 1;
    for (uint32_t s = 1; s < STAGES; s++) {
        r->h->beat[r->at[s]].round = r->round - 1;
        hand_say_beat(r->h, r->at[s]);
    }
    begin(r);
    hand_wait(r->h, 1500);
    assert_false(r->eval->pass.active);
    hand_forget(r->h);
    for (uint32_t s = 1; s < STAGES; s++) {
        r->h->beat[r->at[s]].round = r->round;
        hand_say_beat(r->h, r->at[s]);
    }
    hand_wait(r->h, 100);
}

/* Of two hosts of the first stage, numbered by id, turn 2 is number 0's. */
static void the_turn_goes_round(void **state)
{
    (void)state;
    for (uint32_t turn = 1; turn <= 2; turn++) {
        struct rig *r = open_rig(ROUND, 0); /* the lowest id of all */

        r->h->terms.eval_every = ROUND / turn;
        two_of_the_first_stage(r);
        assert_int_equal(r->h->in.ballot->cert.body.n_members, 2);
        assert_int_equal(r->eval->pass.active, turn == 2);
        close_rig(r);
    }
}

static void who_is_late_is_waited_for_but_not_for_long(void **state)
{
    struct rig *r = open_rig(ROUND, 0);

    (void)state;
    hosts(r, 2, 1, ROUND - 1);
    begin(r);
    advance(r,
            r->eval->pass.since_ms + r->h->terms.grace_ms - 1 - r->h->now_ms);
    assert_false(r->eval->pass.active);
    advance(r, 1);
    assert_true(r->eval->pass.active);
    close_rig(r);
}

static void without_a_host_of_each_stage_there_is_none(void **state)
{
    struct rig *r = open_rig(ROUND, 0);
    struct goodbye m = {.body.peer = r->h->puppet[r->at[2]].id};

    (void)state;
    hand_sign(r->h, r->at[2], &goodbye_body_schema, &m.body, m.sig);
    hand_say(r->h, r->at[2], MESSAGE_GOODBYE, &m);
    r->h->link[r->at[2]] = 0;
    begin(r);
    advance(r, 2 * r->h->terms.grace_ms);
    assert_false(r->eval->pass.active);
    close_rig(r);
}

/* ---- the way of a micro-batch -------------------------------------------- */

static void activations_leave_where_there_is_a_place(void **state)
{
    struct rig *r = take(0);
    struct eval_take other = {.round = ROUND};
    uint64_t tag;

    (void)state;
    advance(r, 0);
    tag = r->eval->pass.tag;
    piped(r, tag, 0, 0);
    assert_int_equal(piping(r)->index, 1); /* and then the next */
    assert_int_equal(hand_count(r->h, ACTION_SEND_SEG), 0);
    other.attempt = attempt_of(r) + 1; /* of a try that is none */
    hear(r, r->at[1], MESSAGE_EVAL_TAKE, &other);
    other.attempt = attempt_of(r);
    hear(r, r->at[2], MESSAGE_EVAL_TAKE, &other); /* not from the next one */
    other.micro = MICROS;
    hear(r, r->at[1], MESSAGE_EVAL_TAKE, &other); /* there is no such one */
    assert_int_equal(r->eval->pass.wanted, 0);
    place(r, 1, 0);
    assert_int_equal(hand_count(r->h, ACTION_SEND_SEG), PIECES);
    for (uint32_t i = 0; i < PIECES; i++) {
        const struct segment s = hand_find(r->h, ACTION_SEND_SEG, i)->segment;

        assert_int_equal(s.stream, STREAM_EVAL);
        assert_int_equal(s.attempt, tag);
        assert_int_equal(s.seg, i);
        assert_int_equal(s.offset, i * SEGMENT);
        assert_true(id_eq(&s.peer, &r->h->puppet[r->at[1]].id));
    }
    place(r, 1, 0); /* again: it is on its way */
    assert_int_equal(hand_count(r->h, ACTION_SEND_SEG), 0);
    moved(r, 0, true, 0);
    moved(r, 0, true, 0);
    assert_int_equal(r->eval->pass.n_done, 0);
    moved(r, 0, true, 0);
    assert_int_equal(r->eval->pass.n_done, 1);
    close_rig(r);
}

static void a_host_between_makes_places_and_says_so(void **state)
{
    struct rig *r = take(1);
    struct stage_eval m;
    struct eval_take t;

    (void)state;
    m = way(r, 1 << 8);
    hear(r, r->at[0], MESSAGE_STAGE_EVAL, &m);
    assert_true(r->eval->pass.active);
    assert_int_equal(hand_count(r->h, ACTION_POST_RECV), EVAL_SLOTS * PIECES);
    for (uint32_t k = 0; k < EVAL_SLOTS; k++) {
        assert_true(hand_heard(r->h, r->at[0], MESSAGE_EVAL_TAKE, k, &t));
        assert_int_equal(t.micro, k);
    }
    for (uint32_t i = 0; i < PIECES; i++) {
        assert_null(piping(r));
        moved(r, 0, false, 0);
    }
    assert_int_equal(piping(r)->op, PIPE_EVAL_FORWARD);
    assert_int_equal(piping(r)->index, 0);
    /* It is told on, and what was said is said again, until it is heard. */
    advance(r, r->h->in.pipe->core.opt.resend_ms);
    assert_true(hand_heard(r->h, r->at[2], MESSAGE_STAGE_EVAL, 0, &m));
    assert_true(hand_heard(r->h, r->at[0], MESSAGE_EVAL_TAKE, 0, &t));
    assert_int_equal(t.micro, 1);
    close_rig(r);
}

/* The last one's figure is one of all windows in their order. */
static void windows_are_computed_in_order(void **state)
{
    struct rig *r = take(2);
    struct stage_eval m;

    (void)state;
    m = way(r, 1 << 8);
    hear(r, r->at[1], MESSAGE_STAGE_EVAL, &m);
    for (uint32_t i = 0; i < PIECES; i++) {
        moved(r, 1, false, 0);
    }
    assert_null(piping(r)); /* the one before it is not here */
    for (uint32_t i = 0; i < PIECES; i++) {
        moved(r, 0, false, 0);
    }
    assert_int_equal(piping(r)->index, 0);
    piped(r, r->eval->pass.tag, 0, 0);
    assert_int_equal(piping(r)->index, 1);
    close_rig(r);
}

/* Each of these alone makes it nothing. */
static void what_is_not_ours_to_take_part_in_is_nothing(void **state)
{
    struct rig *r = take(1);
    struct stage_eval m;

    (void)state;
    m = way(r, 1 << 8);
    hear(r, r->at[2], MESSAGE_STAGE_EVAL, &m); /* is not before us on it */
    assert_false(r->eval->pass.active);
    m.round = ROUND - EVERY;
    hear(r, r->at[0], MESSAGE_STAGE_EVAL, &m);
    assert_false(r->eval->pass.active);
    m = way(r, 1 << 16); /* would be one of the next round */
    hear(r, r->at[0], MESSAGE_STAGE_EVAL, &m);
    assert_false(r->eval->pass.active);
    m = way(r, 1 << 8);
    m.n_hosts = STAGES - 1;
    hear(r, r->at[0], MESSAGE_STAGE_EVAL, &m);
    assert_false(r->eval->pass.active);
    m = way(r, 1 << 8);
    m.hosts[1] = r->h->puppet[2].id; /* another host of our stage */
    hear(r, r->at[0], MESSAGE_STAGE_EVAL, &m);
    assert_false(r->eval->pass.active);
    m = way(r, 1 << 8);
    m.hosts[2].b[0] ^= 1; /* nobody knows it */
    hear(r, r->at[0], MESSAGE_STAGE_EVAL, &m);
    assert_false(r->eval->pass.active);
    close_rig(r);
}

static void a_later_try_takes_the_place_of_an_earlier_one(void **state)
{
    struct rig *r = take(1);
    struct stage_eval first, later;

    (void)state;
    first = way(r, 1 << 8);
    later = way(r, 2 << 8);
    hear(r, r->at[0], MESSAGE_STAGE_EVAL, &later);
    hear(r, r->at[0], MESSAGE_STAGE_EVAL, &first);
    assert_int_equal(attempt_of(r), 2 << 8);
    later = way(r, 3 << 8);
    hear(r, r->at[0], MESSAGE_STAGE_EVAL, &later);
    assert_int_equal(attempt_of(r), 3 << 8);
    assert_non_null(cancelled(r));
    assert_int_equal(*cancelled(r) & 0xffff, 2 << 8);
    close_rig(r);
}

static void the_last_stage_says_what_came_of_it(void **state)
{
    struct rig *r = take(2);
    struct stage_eval m;
    struct evaluated figure;

    (void)state;
    m = way(r, 1 << 8);
    hear(r, r->at[1], MESSAGE_STAGE_EVAL, &m);
    for (uint32_t k = 0; k < MICROS; k++) {
        assert_false(r->eval->has_bits);
        for (uint32_t i = 0; i < PIECES; i++) {
            moved(r, k, false, 0);
        }
        assert_int_equal(piping(r)->op, PIPE_EVAL_SCORE);
        assert_int_equal(piping(r)->index, k);
        piped(r, r->eval->pass.tag, k, 0);
    }
    assert_false(r->eval->pass.active);
    assert_true(r->eval->has_bits);
    assert_int_equal(r->eval->bits_round, ROUND);
    assert_true(r->eval->bits > 2.49 && r->eval->bits < 2.51);
    assert_true(hand_heard(r->h, r->at[0], MESSAGE_EVALUATED, 0, &figure));
    assert_int_equal(figure.body.round, ROUND);
    assert_int_equal(figure.body.microbits, 2500000);
    close_rig(r);
}

/* What does not fit goes out in the next step. */
static void segments_that_find_no_room_come_later(void **state)
{
    const uint32_t pieces = CORE_OUT_MAX / 2;
    struct rig *r = open_rig(ROUND, 1);
    struct stage_eval m;
    uint32_t first;

    (void)state;
    r->h->terms.cut_elements = pieces * SEGMENT;
    begin(r);
    m = way(r, 1 << 8);
    hear(r, r->at[0], MESSAGE_STAGE_EVAL, &m);
    first = hand_count(r->h, ACTION_POST_RECV);
    assert_in_range(first, 1, EVAL_SLOTS * pieces - 1);
    assert_int_equal(node_eval_deadline(r->h->node), r->h->now_ms);
    advance(r, 0);
    assert_int_equal(hand_count(r->h, ACTION_POST_RECV),
                     EVAL_SLOTS * pieces - first);
    assert_int_equal(node_eval_deadline(r->h->node), CORE_NEVER);
    close_rig(r);
}

/* ---- training has the right of way -------------------------------------- */

static void steps_come_first_but_not_for_ever(void **state)
{
    struct rig *r = take(0);
    const struct hand_message *m = &r->h->last[MESSAGE_STAGE_HELLO];
    struct stage_hello hello;

    (void)state;
    assert_int_equal(msg_decode(&stage_hello_schema, m->bytes, m->len, &hello),
                     0);
    hear(r, 0, MESSAGE_STAGE_HELLO, &hello);
    hear(r, 1, MESSAGE_STAGE_HELLO, &hello);
    assert_int_equal(piping(r)->op, PIPE_FORWARD); /* of a step */
    assert_true(r->eval->pass.active);
    piped(r, r->eval->pass.tag, 0, 0);
    assert_null(piping(r));
    advance(r, r->h->in.pipe->core.opt.resend_ms);
    assert_int_equal(piping(r)->op, PIPE_EVAL_FORWARD);
    assert_int_equal(piping(r)->index, 1);
    close_rig(r);
}

static void half_of_the_grace_is_waited_for_it(void **state)
{
    struct rig *r = open_rig(ROUND, 0);
    uint64_t since_ms = r->h->now_ms;

    (void)state;
    assert_false(node_eval_holds(r->h->node, since_ms));
    begin(r);
    advance(r, 0);
    since_ms = r->h->now_ms;
    assert_true(node_eval_holds(r->h->node, since_ms));
    advance(r, r->h->terms.grace_ms / 2);
    assert_true(r->eval->pass.active);
    assert_false(node_eval_holds(r->h->node, since_ms));
    close_rig(r);
}

/* ---- its end ------------------------------------------------------------ */

static void the_next_commit_ends_it(void **state)
{
    struct rig *r = open_rig(ROUND, 0);
    uint64_t tag;

    (void)state;
    for (uint32_t s = 1; s < STAGES; s++) { /* they make no steps */
        r->h->beat[r->at[s]].state = NODE_FINISHED;
        hand_say_beat(r->h, r->at[s]);
    }
    begin(r);
    assert_true(r->eval->pass.active);
    tag = r->eval->pass.tag;
    hand_forget(r->h);
    next_round(r);
    hand_wait(r->h, 1000);
    assert_int_equal(r->h->in.held->applied.round, ROUND + 1);
    assert_false(r->eval->pass.active);
    assert_non_null(cancelled(r));
    assert_int_equal(*cancelled(r), tag);
    piped(r, tag, 0, 0); /* the machine had begun */
    assert_int_equal(r->eval->pass.n_computed, 0);
    close_rig(r);
}

/* Its process ends, and another one is there at once. */
static void restart(struct rig *r, uint32_t p, uint32_t stage)
{
    const struct event down = {.type = EVENT_LINK_DOWN,
                               .link_down.link = r->h->link[p]};

    hand_post(r->h, &down);
    r->h->life++;
    r->h->beat[p].life = r->h->life;
    r->h->beat[p].stage = (uint16_t)(stage + 1);
    hand_link(r->h, p);
    hand_drain(r->h, HAND_EVENTS);
}

static void
a_host_that_restarts_ends_it_and_another_takes_its_place(void **state)
{
    struct rig *r = open_rig(ROUND, 0);
    struct peer_id first;

    (void)state;
    hosts(r, 2, 1, ROUND); /* two of stage 1: turn 2 goes over the lower id */
    begin(r);
    assert_true(r->eval->pass.active);
    first = r->eval->pass.hosts[1];
    restart(r, id_eq(&first, &r->h->puppet[2].id) ? 2 : r->at[1], 1);
    assert_false(r->eval->pass.active);
    advance(r, DEAD_MS - 1);
    assert_false(r->eval->pass.active); /* not at once */
    advance(r, 1);
    assert_true(r->eval->pass.active);
    assert_int_equal(attempt_of(r), 2 << 8);
    assert_false(id_eq(&r->eval->pass.hosts[1], &first));
    close_rig(r);
}

static void it_is_not_tried_for_ever(void **state)
{
    struct rig *r = take(0);
    uint32_t tries = 0;

    (void)state;
    for (uint32_t k = 0; k < 40; k++) {
        advance(r, DEAD_MS);
        tries += r->eval->pass.active;
        piped(r, r->eval->pass.tag, 0, LOCO_ENOMEM);
        assert_false(r->eval->pass.active);
    }
    assert_int_equal(tries, 8);
    close_rig(r);
}

static void what_breaks_ends_it(void **state)
{
    struct rig *r = take(1);
    struct stage_eval m;

    (void)state;
    m = way(r, 1 << 8);
    hear(r, r->at[0], MESSAGE_STAGE_EVAL, &m);
    moved(r, 1 + EVAL_SLOTS, false, LOCO_ECLOSED); /* of another number */
    assert_true(r->eval->pass.active);
    moved(r, 1, false, LOCO_ECLOSED);
    assert_false(r->eval->pass.active);
    assert_non_null(cancelled(r));
    close_rig(r);
}

static void where_nothing_moves_it_ends(void **state)
{
    struct rig *r = take(0);
    uint64_t stall_ms = r->h->in.pipe->core.opt.stall_ms;

    (void)state;
    advance(r, 0);
    advance(r, stall_ms);
    assert_true(r->eval->pass.active);
    advance(r, 1);
    assert_false(r->eval->pass.active);
    assert_non_null(cancelled(r));
    close_rig(r);
}

/* Stage 1 has more work than its host can do: one of two of stage 0 goes. */
static void who_leaves_its_stage_gives_it_up_and_says_goodbye(void **state)
{
    struct rig *r = open_rig(8, 0);
    const struct hash32 run = {{0}};
    struct hash32 group;
    struct goodbye bye;

    (void)state;
    r->h->beat[r->at[1]].queue = 64;
    two_of_the_first_stage(r);
    assert_non_null(hand_find_job(r->h, JOB_STAGE));
    assert_int_equal(hand_find_job(r->h, JOB_STAGE)->stage.stage, 1);
    assert_non_null(cancelled(r));
    assert_false(r->eval->pass.active);
    assert_true(hand_heard(r->h, 2, MESSAGE_GOODBYE, 0, &bye));
    assert_int_equal(r->h->in.stages->own, 1);
    assert_int_equal(r->h->in.stages->staging, STAGING_ASKED);
    assert_false(r->h->in.held->loaded); /* and it keeps nothing */
    assert_int_equal(r->h->in.held->applied.round, 0);
    group = node_group_of(&run, 1);
    assert_memory_equal(&r->h->in.ballot->opt.run, &group, sizeof group);
    close_rig(r);
}

int main(void)
{
#define T(name) cmocka_unit_test(name)
    const struct CMUnitTest tests[] = {
        T(the_first_stage_names_a_host_of_each),
        T(other_stages_and_other_rounds_begin_nothing),
        T(the_end_of_the_run_is_evaluated),
        T(the_turn_goes_round),
        T(who_is_late_is_waited_for_but_not_for_long),
        T(without_a_host_of_each_stage_there_is_none),
        T(activations_leave_where_there_is_a_place),
        T(a_host_between_makes_places_and_says_so),
        T(windows_are_computed_in_order),
        T(what_is_not_ours_to_take_part_in_is_nothing),
        T(a_later_try_takes_the_place_of_an_earlier_one),
        T(the_last_stage_says_what_came_of_it),
        T(segments_that_find_no_room_come_later),
        T(steps_come_first_but_not_for_ever),
        T(half_of_the_grace_is_waited_for_it),
        T(the_next_commit_ends_it),
        T(a_host_that_restarts_ends_it_and_another_takes_its_place),
        T(it_is_not_tried_for_ever),
        T(what_breaks_ends_it),
        T(where_nothing_moves_it_ends),
        T(who_leaves_its_stage_gives_it_up_and_says_goodbye),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
