/* node_eval_test.c - one host's node_eval.c by hand: who begins an evaluation,
 * what goes from host to host, and what ends it. Whole swarms that evaluate
 * while hosts die are the simulator's (sim stages). */
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
#define SLOTS   2 /* of the steps; those of an evaluation come after them */

/* The node in a stage of three, and a puppet in each other one; the third
 * puppet stands by. All hold the commit of ROUND. */
struct rig {
    struct hand *h;
    struct node *n;
    struct member *puppet[HAND_PUPPETS];
    uint32_t at[STAGES]; /* which puppet holds that stage */
};

static void step_begins(struct rig *r)
{
    r->n->out = r->h->out;
    r->h->out->n = r->h->out->n_bytes = 0;
}

static void advance(struct rig *r, uint64_t ms)
{
    r->n->now += ms;
    step_begins(r);
    node_eval_advance(r->n);
}

static void hosts(struct rig *r, uint32_t p, uint32_t stage)
{
    struct heartbeat *b = &r->puppet[p]->beat;

    *b = hand_beat(r->h);
    b->stage = (uint16_t)(stage + 1);
    b->has_view = b->ready = true;
    b->round = ROUND;
    r->puppet[p]->has_beat = true;
}

static int setup(void **state)
{
    struct rig *r = calloc(1, sizeof *r);
    struct node *n;

    r->h = hand_open(HAND_PUPPETS);
    n = r->n = r->h->node;
    hand_drain(r->h, 16); /* links and their first words */
    n->terms = r->h->terms;
    n->terms.stages = STAGES;
    n->terms.micro_batches = 1;
    n->terms.pipe_slots = SLOTS;
    n->terms.cut_elements = PIECES * SEGMENT;
    n->terms.cut_segment = SEGMENT;
    n->terms.eval_every = EVERY;
    n->terms.eval_micros = MICROS;
    n->terms.stop_rounds = 0;
    n->now = r->h->now_ms;
    node_pipe_configured(n);
    assert_true(n->pipe_open);
    n->configured = n->loaded = n->ballot.have = true;
    n->applying = n->has_bits = false;
    n->applied.round = ROUND;
    n->known = n->applied;
    for (uint32_t p = 0; p < HAND_PUPPETS; p++) {
        int row = members_find(&n->members, &r->h->puppet[p].id);

        r->puppet[p] = &n->members.peers[row];
        r->puppet[p]->has_beat = false; /* stands by */
    }
    *state = r;
    return 0;
}

/* The node takes that stage, puppets 0 and 1 the others in order. */
static void take(struct rig *r, uint32_t stage)
{
    uint32_t p = 0;

    r->n->stage = stage;
    for (uint32_t s = 0; s < STAGES; s++) {
        if (s != stage) {
            r->at[s] = p;
            hosts(r, p++, s);
        }
    }
}

static int teardown(void **state)
{
    struct rig *r = *state;

    hand_close(r->h);
    free(r);
    return 0;
}

static uint32_t count(const struct rig *r, enum action_type type)
{
    uint32_t n = 0;

    for (uint32_t i = 0; i < r->h->out->n; i++) {
        n += r->h->out->action[i].type == type;
    }
    return n;
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

/* The k-th message of that type of this step into `m`, to a link of puppet p.
 */
static bool
said(struct rig *r, uint32_t p, enum message_type type, uint32_t k, void *m)
{
    for (uint32_t i = 0; i < r->h->out->n; i++) {
        const struct action *a = &r->h->out->action[i];

        if (a->type == ACTION_SEND && a->message == (uint16_t)type &&
            hand_puppet_of(r->h, a->link) == p && k-- == 0) {
            assert_int_equal(msg_decode(message_schema((uint16_t)type),
                                        r->h->out->bytes + a->bytes, a->len, m),
                             0);
            return true;
        }
    }
    return false;
}

static void
hear(struct rig *r, uint32_t p, enum message_type type, const void *m)
{
    step_begins(r);
    node_on_eval_message(
        r->n, members_find(&r->n->members, &r->h->puppet[p].id), type, m);
    node_eval_advance(r->n);
}

/* The STAGE_EVAL over the hosts that take() has placed. */
static struct stage_eval way(const struct rig *r, uint32_t attempt)
{
    struct stage_eval m = {
        .round = ROUND, .attempt = attempt, .n_hosts = STAGES};

    for (uint32_t s = 0; s < STAGES; s++) {
        m.hosts[s] =
            s == r->n->stage ? r->h->self.id : r->h->puppet[r->at[s]].id;
    }
    return m;
}

static uint32_t attempt_of(const struct rig *r)
{
    return (uint32_t)(r->n->eval.tag & 0xffff);
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
                                  .attempt = tag,
                                  .index = micro,
                                  .rc = rc,
                                  .bits_per_byte = 2.5};

    step_begins(r);
    node_eval_piped(r->n, &e);
    node_eval_advance(r->n);
}

static void moved(struct rig *r, uint32_t micro, bool sent, int rc)
{
    struct event e = {.type = EVENT_SEG_DONE, .sent = sent, .rc = rc};

    e.segment.attempt = r->n->eval.tag;
    e.segment.index = micro;
    step_begins(r);
    node_eval_seg_done(r->n, &e);
    node_eval_advance(r->n);
}

/* ---- who begins ---------------------------------------------------------- */

static void the_first_stage_names_a_host_of_each(void **state)
{
    struct rig *r = *state;
    struct stage_eval m;

    take(r, 0);
    advance(r, 0);
    assert_true(r->n->eval.active);
    assert_true(said(r, r->at[1], MESSAGE_STAGE_EVAL, 0, &m));
    assert_int_equal(m.round, ROUND);
    assert_int_equal(m.n_hosts, STAGES);
    assert_true(id_eq(&m.hosts[0], &r->h->self.id));
    assert_true(id_eq(&m.hosts[1], &r->h->puppet[r->at[1]].id));
    assert_true(id_eq(&m.hosts[2], &r->h->puppet[r->at[2]].id));
    assert_int_equal(m.attempt, 1 << 8); /* the first try, by number 0 */
    assert_false(said(r, r->at[2], MESSAGE_STAGE_EVAL, 0, &m));
    assert_int_equal(find(r, ACTION_PIPE)->op, PIPE_EVAL_FORWARD);
    assert_int_equal(find(r, ACTION_PIPE)->index, 0);
    assert_true(find(r, ACTION_PIPE)->slot >= SLOTS);
}

static void other_stages_and_other_rounds_begin_nothing(void **state)
{
    struct rig *r = *state;

    take(r, 1);
    advance(r, 0);
    assert_false(r->n->eval.active);
    take(r, 0);
    r->n->applied.round = r->n->known.round = ROUND + 1;
    advance(r, 0);
    assert_false(r->n->eval.active);
    r->n->applied.round = r->n->known.round = ROUND;
    r->n->has_bits = true; /* somebody has said it */
    r->n->bits_round = ROUND;
    advance(r, 0);
    assert_false(r->n->eval.active);
    r->n->bits_round = ROUND - EVERY;
    advance(r, 0);
    assert_true(r->n->eval.active);
}

/* The last round is evaluated whatever its number. */
static void the_end_of_the_run_is_evaluated(void **state)
{
    struct rig *r = *state;

    take(r, 0);
    r->n->applied.round = r->n->known.round = ROUND + 1;
    hosts(r, r->at[1], 1);
    hosts(r, r->at[2], 2);
    r->puppet[r->at[1]]->beat.round = ROUND + 1;
    r->puppet[r->at[2]]->beat.round = ROUND + 1;
    r->n->terms.stop_rounds = ROUND + 1;
    advance(r, 0);
    assert_true(r->n->eval.active);
}

/* Of two hosts of the first stage, numbered by id, turn 2 is number 0's. */
static void the_turn_goes_round(void **state)
{
    struct rig *r = *state;

    take(r, 0); /* the node has the lowest id of all */
    hosts(r, 2, 0);
    r->n->terms.eval_every = ROUND; /* turn 1 */
    advance(r, 0);
    assert_false(r->n->eval.active);
    r->n->terms.eval_every = EVERY;
    advance(r, 0);
    assert_true(r->n->eval.active);
}

static void who_is_late_is_waited_for_but_not_for_long(void **state)
{
    struct rig *r = *state;

    take(r, 0);
    hosts(r, 2, 1);
    r->puppet[2]->beat.round = ROUND - 1;
    advance(r, 0);
    advance(r, r->n->terms.grace_ms - 1);
    assert_false(r->n->eval.active);
    advance(r, 1);
    assert_true(r->n->eval.active);
}

static void without_a_host_of_each_stage_there_is_none(void **state)
{
    struct rig *r = *state;

    take(r, 0);
    r->puppet[r->at[2]]->lost = true;
    advance(r, r->n->terms.grace_ms);
    advance(r, r->n->terms.grace_ms);
    assert_false(r->n->eval.active);
}

/* ---- the way of a micro-batch -------------------------------------------- */

static void activations_leave_where_there_is_a_place(void **state)
{
    struct rig *r = *state;
    struct eval_take other = {.round = ROUND};
    uint64_t tag;

    take(r, 0);
    advance(r, 0);
    tag = r->n->eval.tag;
    piped(r, tag, 0, 0);
    assert_int_equal(find(r, ACTION_PIPE)->index, 1); /* and then the next */
    assert_int_equal(count(r, ACTION_SEND_SEG), 0);
    other.attempt = attempt_of(r) + 1; /* of a try that is none */
    hear(r, r->at[1], MESSAGE_EVAL_TAKE, &other);
    other.attempt = attempt_of(r);
    hear(r, r->at[2], MESSAGE_EVAL_TAKE, &other); /* not from the next one */
    other.micro = MICROS;
    hear(r, r->at[1], MESSAGE_EVAL_TAKE, &other); /* there is no such one */
    assert_int_equal(r->n->eval.wanted, 0);
    place(r, 1, 0);
    assert_int_equal(count(r, ACTION_SEND_SEG), PIECES);
    for (uint32_t i = 0; i < PIECES; i++) {
        const struct segment s = r->h->out->action[i].segment;

        assert_int_equal(s.stream, STREAM_EVAL);
        assert_int_equal(s.attempt, tag);
        assert_int_equal(s.seg, i);
        assert_int_equal(s.offset, i * SEGMENT);
        assert_true(id_eq(&s.peer, &r->h->puppet[r->at[1]].id));
    }
    place(r, 1, 0); /* again: it is on its way */
    assert_int_equal(count(r, ACTION_SEND_SEG), 0);
    moved(r, 0, true, 0);
    moved(r, 0, true, 0);
    assert_int_equal(r->n->eval.n_done, 0);
    moved(r, 0, true, 0);
    assert_int_equal(r->n->eval.n_done, 1);
}

static void a_host_between_makes_places_and_says_so(void **state)
{
    struct rig *r = *state;
    struct stage_eval m;
    struct eval_take t;

    take(r, 1);
    m = way(r, 1 << 8);
    hear(r, r->at[0], MESSAGE_STAGE_EVAL, &m);
    assert_true(r->n->eval.active);
    assert_int_equal(count(r, ACTION_POST_RECV), EVAL_SLOTS * PIECES);
    for (uint32_t k = 0; k < EVAL_SLOTS; k++) {
        assert_true(said(r, r->at[0], MESSAGE_EVAL_TAKE, k, &t));
        assert_int_equal(t.micro, k);
    }
    for (uint32_t i = 0; i < PIECES; i++) {
        assert_null(find(r, ACTION_PIPE));
        moved(r, 0, false, 0);
    }
    assert_int_equal(find(r, ACTION_PIPE)->op, PIPE_EVAL_FORWARD);
    assert_int_equal(find(r, ACTION_PIPE)->index, 0);
    /* It is told on, and what was said is said again, until it is heard. */
    advance(r, r->n->pipe.opt.resend_ms);
    assert_true(said(r, r->at[2], MESSAGE_STAGE_EVAL, 0, &m));
    assert_true(said(r, r->at[0], MESSAGE_EVAL_TAKE, 0, &t));
    assert_int_equal(t.micro, 1);
}

/* The last one's figure is one of all windows in their order. */
static void windows_are_computed_in_order(void **state)
{
    struct rig *r = *state;
    struct stage_eval m;

    take(r, 2);
    m = way(r, 1 << 8);
    hear(r, r->at[1], MESSAGE_STAGE_EVAL, &m);
    for (uint32_t i = 0; i < PIECES; i++) {
        moved(r, 1, false, 0);
    }
    assert_null(find(r, ACTION_PIPE)); /* the one before it is not here */
    for (uint32_t i = 0; i < PIECES; i++) {
        moved(r, 0, false, 0);
    }
    assert_int_equal(find(r, ACTION_PIPE)->index, 0);
    piped(r, r->n->eval.tag, 0, 0);
    assert_int_equal(find(r, ACTION_PIPE)->index, 1);
}

/* Each of these alone makes it nothing. */
static void what_is_not_ours_to_take_part_in_is_nothing(void **state)
{
    struct rig *r = *state;
    struct stage_eval m;

    take(r, 1);
    m = way(r, 1 << 8);
    hear(r, r->at[2], MESSAGE_STAGE_EVAL, &m); /* is not before us on it */
    assert_false(r->n->eval.active);
    m.round = ROUND - EVERY;
    hear(r, r->at[0], MESSAGE_STAGE_EVAL, &m);
    assert_false(r->n->eval.active);
    m = way(r, 1 << 16); /* would be one of the next round */
    hear(r, r->at[0], MESSAGE_STAGE_EVAL, &m);
    assert_false(r->n->eval.active);
    m = way(r, 1 << 8);
    m.n_hosts = STAGES - 1;
    hear(r, r->at[0], MESSAGE_STAGE_EVAL, &m);
    assert_false(r->n->eval.active);
    m = way(r, 1 << 8);
    m.hosts[1] = r->h->puppet[2].id; /* another host of our stage */
    hear(r, r->at[0], MESSAGE_STAGE_EVAL, &m);
    assert_false(r->n->eval.active);
    m = way(r, 1 << 8);
    m.hosts[2].b[0] ^= 1; /* nobody knows it */
    hear(r, r->at[0], MESSAGE_STAGE_EVAL, &m);
    assert_false(r->n->eval.active);
}

static void a_later_try_takes_the_place_of_an_earlier_one(void **state)
{
    struct rig *r = *state;
    struct stage_eval first, later;

    take(r, 1);
    first = way(r, 1 << 8);
    later = way(r, 2 << 8);
    hear(r, r->at[0], MESSAGE_STAGE_EVAL, &later);
    hear(r, r->at[0], MESSAGE_STAGE_EVAL, &first);
    assert_int_equal(attempt_of(r), 2 << 8);
    later = way(r, 3 << 8);
    hear(r, r->at[0], MESSAGE_STAGE_EVAL, &later);
    assert_int_equal(attempt_of(r), 3 << 8);
    assert_int_equal(find(r, ACTION_CANCEL)->stream, STREAM_EVAL);
    assert_int_equal(find(r, ACTION_CANCEL)->attempt & 0xffff, 2 << 8);
}

static void the_last_stage_says_what_came_of_it(void **state)
{
    struct rig *r = *state;
    struct stage_eval m;
    struct evaluated figure;

    take(r, 2);
    m = way(r, 1 << 8);
    hear(r, r->at[1], MESSAGE_STAGE_EVAL, &m);
    for (uint32_t k = 0; k < MICROS; k++) {
        assert_false(r->n->has_bits);
        for (uint32_t i = 0; i < PIECES; i++) {
            moved(r, k, false, 0);
        }
        assert_int_equal(find(r, ACTION_PIPE)->op, PIPE_EVAL_SCORE);
        assert_int_equal(find(r, ACTION_PIPE)->index, k);
        piped(r, r->n->eval.tag, k, 0);
    }
    assert_false(r->n->eval.active);
    assert_true(r->n->has_bits);
    assert_int_equal(r->n->bits_round, ROUND);
    assert_true(r->n->bits > 2.49 && r->n->bits < 2.51);
    assert_true(said(r, r->at[0], MESSAGE_EVALUATED, 0, &figure));
    assert_int_equal(figure.body.round, ROUND);
    assert_int_equal(figure.body.microbits, 2500000);
}

/* What does not fit goes out in the next step. */
static void segments_that_find_no_room_come_later(void **state)
{
    struct rig *r = *state;
    struct stage_eval m;

    take(r, 1);
    m = way(r, 1 << 8);
    step_begins(r);
    while (r->h->out->n < CORE_OUT_MAX - CORE_OUT_MAX / 4) {
        (void)out_add(r->h->out, ACTION_LOG);
    }
    node_on_eval_message(
        r->n, members_find(&r->n->members, &r->h->puppet[r->at[0]].id),
        MESSAGE_STAGE_EVAL, &m);
    node_eval_advance(r->n);
    assert_int_equal(count(r, ACTION_POST_RECV), 0);
    assert_int_equal(node_eval_deadline(r->n), r->n->now);
    advance(r, 0);
    assert_int_equal(count(r, ACTION_POST_RECV), EVAL_SLOTS * PIECES);
    assert_int_equal(node_eval_deadline(r->n), CORE_NEVER);
}

/* ---- training has the right of way ----------------------------------------
 */

static void steps_come_first_but_not_for_ever(void **state)
{
    struct rig *r = *state;

    take(r, 0);
    r->n->pipe.computing = true;
    advance(r, 0);
    assert_true(r->n->eval.active);
    assert_null(find(r, ACTION_PIPE));
    advance(r, r->n->pipe.opt.resend_ms);
    assert_int_equal(find(r, ACTION_PIPE)->op, PIPE_EVAL_FORWARD);
}

static void half_of_the_grace_is_waited_for_it(void **state)
{
    struct rig *r = *state;
    uint64_t since_ms;

    take(r, 0);
    assert_false(node_eval_holds(r->n, r->n->now));
    advance(r, 0);
    since_ms = r->n->now;
    assert_true(node_eval_holds(r->n, since_ms));
    r->n->now += r->n->terms.grace_ms / 2;
    assert_false(node_eval_holds(r->n, since_ms));
}

/* ---- its end --------------------------------------------------------------
 */

static void the_next_commit_ends_it(void **state)
{
    struct rig *r = *state;
    uint64_t tag;

    take(r, 0);
    advance(r, 0);
    tag = r->n->eval.tag;
    r->n->applied.round = r->n->known.round = ROUND + 1;
    advance(r, 0);
    assert_false(r->n->eval.active);
    assert_int_equal(find(r, ACTION_CANCEL)->stream, STREAM_EVAL);
    assert_int_equal(find(r, ACTION_CANCEL)->attempt, tag);
    piped(r, tag, 0, 0); /* the machine had begun */
    assert_int_equal(r->n->eval.n_computed, 0);
}

static void
a_host_that_restarts_ends_it_and_another_takes_its_place(void **state)
{
    struct rig *r = *state;
    struct stage_eval m;

    take(r, 0);
    hosts(r, 2, 1); /* two of stage 1: turn 2 goes over the lower id */
    advance(r, 0);
    assert_true(r->n->eval.active);
    for (uint32_t p = 0; p < HAND_PUPPETS; p++) {
        if (id_eq(&r->n->eval.hosts[1], &r->h->puppet[p].id)) {
            r->puppet[p]->life++;
        }
    }
    m.hosts[1] = r->n->eval.hosts[1];
    advance(r, 0);
    assert_false(r->n->eval.active);
    advance(r, r->n->t.dead_ms - 1);
    assert_false(r->n->eval.active); /* not at once */
    advance(r, 1);
    assert_true(r->n->eval.active);
    assert_int_equal(attempt_of(r), 2 << 8);
    assert_false(id_eq(&r->n->eval.hosts[1], &m.hosts[1]));
}

static void it_is_not_tried_for_ever(void **state)
{
    struct rig *r = *state;
    uint32_t tries = 0;

    take(r, 0);
    for (uint32_t k = 0; k < 40; k++) {
        advance(r, r->n->t.dead_ms);
        tries += r->n->eval.active;
        piped(r, r->n->eval.tag, 0, LOCO_EDEVICE);
        assert_false(r->n->eval.active);
    }
    assert_int_equal(tries, 8);
}

static void what_breaks_ends_it(void **state)
{
    struct rig *r = *state;
    struct stage_eval m;

    take(r, 1);
    m = way(r, 1 << 8);
    hear(r, r->at[0], MESSAGE_STAGE_EVAL, &m);
    moved(r, 1 + EVAL_SLOTS, false, LOCO_ECLOSED); /* of another number */
    assert_true(r->n->eval.active);
    moved(r, 1, false, LOCO_ECLOSED);
    assert_false(r->n->eval.active);
    assert_non_null(find(r, ACTION_CANCEL));
}

static void where_nothing_moves_it_ends(void **state)
{
    struct rig *r = *state;
    uint64_t stall_ms = r->n->pipe.opt.stall_ms;

    take(r, 0);
    advance(r, 0);
    advance(r, stall_ms);
    assert_true(r->n->eval.active);
    advance(r, 1);
    assert_false(r->n->eval.active);
    assert_non_null(find(r, ACTION_CANCEL));
}

static void who_leaves_its_stage_gives_it_up(void **state)
{
    struct rig *r = *state;

    take(r, 0);
    advance(r, 0);
    step_begins(r);
    node_eval_forget(r->n);
    assert_false(r->n->eval.active);
    assert_int_equal(find(r, ACTION_CANCEL)->stream, STREAM_EVAL);
}

int main(void)
{
#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
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
        T(who_leaves_its_stage_gives_it_up),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
