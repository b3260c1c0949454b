/* node_twin_test.c - two processes with one identity, seen by the others and by
 * each of the two. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "proto/base/err.h"
#include "tests/unit/daemon/hand.h"

#define SECOND_LINK 1000 /* of puppet 0 */
#define FIRST_LIFE  7    /* as hand.h says */
#define SECOND_LIFE 8

static struct node_status status_of(const struct hand *h)
{
    struct node_status s;

    node_status(h->node, &s);
    return s;
}

/* Of the node, as its HELLO says. */
static uint64_t life_of(const struct hand *h)
{
    const struct hand_message *m = &h->last[MESSAGE_HELLO];
    struct hello hello;

    hand_check(msg_decode(&hello_schema, m->bytes, m->len, &hello) == 0);
    return hello.life;
}

static struct hand *in_a_view(void)
{
    struct hand *h = hand_open(HAND_PUPPETS);

    hand_wait(h, 5000);
    assert_true(h->in.ballot->have);
    return h;
}

/* Somebody who proved to be puppet 0 is on the line, and says HELLO. */
static void second_comes(struct hand *h, uint32_t link, uint64_t life)
{
    struct event up = {.type = EVENT_LINK_UP,
                       .link_up.link = link,
                       .link_up.inbound = true,
                       .link_up.peer = h->puppet[0].id,
                       .link_up.address = {.port = 5555}};
    struct hello hello = {
        .life = life, .oldest = PROTO_OLDEST, .newest = PROTO_NEWEST};
    uint32_t first = h->link[0];

    memcpy(up.link_up.public_key, h->puppet[0].public, 32);
    hand_post(h, &up);
    h->link[0] = link;
    hand_say(h, 0, MESSAGE_HELLO, &hello);
    h->link[0] = first;
    hand_drain(h, HAND_EVENTS);
}

static struct present present(const struct signer *pen,
                              uint64_t life,
                              uint64_t other,
                              uint64_t age_ms)
{
    struct present m = {
        .body = {.life = life, .other = other, .age_ms = age_ms}};

    hand_check(message_sign(pen, &present_body_schema, &m.body, m.sig) == 0);
    return m;
}

static void say_present(struct hand *h,
                        uint32_t p,
                        const struct signer *pen,
                        uint64_t life,
                        uint64_t other,
                        uint64_t age_ms)
{
    struct present m = present(pen, life, other, age_ms);

    hand_say(h, p, MESSAGE_PRESENT, &m);
    hand_drain(h, HAND_EVENTS);
}

static const struct member *puppet_0(const struct hand *h)
{
    int row = members_find(h->in.members, &h->puppet[0].id);

    return &h->in.members->peers[row];
}

static void the_second_process_is_refused_while_the_first_answers(void **state)
{
    struct hand *h = in_a_view();
    uint64_t round = h->in.held->known.round;
    struct refused r;
    struct claim c;

    (void)state;
    second_comes(h, SECOND_LINK, SECOND_LIFE);
    assert_int_equal(h->n_sent[MESSAGE_CLAIM], 1);
    assert_int_equal(h->last_to[MESSAGE_CLAIM], h->link[0]);
    assert_int_equal(msg_decode(&claim_schema, h->last[MESSAGE_CLAIM].bytes,
                                h->last[MESSAGE_CLAIM].len, &c),
                     0);
    assert_int_equal(c.life, SECOND_LIFE);
    assert_int_equal(c.from.port, 5555);
    assert_int_equal(h->n_hang_ups, 0);
    say_present(h, 0, &h->puppet_pen[0], FIRST_LIFE, SECOND_LIFE, 5);
    assert_int_equal(h->n_sent[MESSAGE_PRESENT], 1);
    assert_int_equal(h->last_to[MESSAGE_PRESENT], SECOND_LINK);
    assert_int_equal(h->last_to[MESSAGE_REFUSED], SECOND_LINK);
    assert_int_equal(msg_decode(&refused_schema, h->last[MESSAGE_REFUSED].bytes,
                                h->last[MESSAGE_REFUSED].len, &r),
                     0);
    assert_int_equal(r.reason, REFUSAL_TWIN);
    assert_int_equal(h->n_hang_ups, 1);
    assert_int_equal(h->last_action[ACTION_HANG_UP].hang_up.link, SECOND_LINK);
    hand_wait(h, 20000);
    /* The first one has noticed nothing. */
    assert_int_equal(h->n_hang_ups, 1);
    assert_int_equal(status_of(h).n_lost, 0);
    assert_int_equal(h->in.twin->n, 0);
    assert_int_equal(puppet_0(h)->life, FIRST_LIFE);
    assert_int_equal(puppet_0(h)->address.port, 4001);
    assert_true(h->in.held->known.round > round + 2);
    hand_close(h);
}

static void a_restart_is_let_in_when_nobody_answers_for_the_first(void **state)
{
    struct hand *h = in_a_view();

    (void)state;
    second_comes(h, SECOND_LINK, SECOND_LIFE);
    hand_wait(h, 1500); /* pulses and heartbeats are no answer */
    assert_int_equal(puppet_0(h)->life, FIRST_LIFE);
    assert_true(h->n_sent[MESSAGE_CLAIM] > 1);
    hand_wait(h, 600);
    assert_int_equal(puppet_0(h)->life, SECOND_LIFE);
    assert_int_equal(puppet_0(h)->address.port, 5555);
    assert_int_equal(h->n_sent[MESSAGE_REFUSED], 0);
    assert_int_equal(h->in.twin->n, 0);
    assert_int_equal(status_of(h).n_lost, 1); /* as any restart */
    hand_close(h);
}

/* The answer came while this process stood still, and lies behind a tick. */
static void who_stood_still_waits_for_the_answer_again(void **state)
{
    struct hand *h = in_a_view();

    (void)state;
    second_comes(h, SECOND_LINK, SECOND_LIFE);
    h->now_ms += 4000;
    hand_wait(h, 1);
    assert_int_equal(puppet_0(h)->life, FIRST_LIFE);
    assert_int_equal(h->n_hang_ups, 0);
    say_present(h, 0, &h->puppet_pen[0], FIRST_LIFE, SECOND_LIFE, 5);
    assert_int_equal(h->n_hang_ups, 1);
    assert_int_equal(h->last_action[ACTION_HANG_UP].hang_up.link, SECOND_LINK);
    assert_int_equal(puppet_0(h)->life, FIRST_LIFE);
    hand_close(h);
}

static void a_restart_is_let_in_when_the_links_of_the_first_end(void **state)
{
    struct hand *h = in_a_view();
    struct event down = {.type = EVENT_LINK_DOWN, .link_down.link = h->link[0]};

    (void)state;
    second_comes(h, SECOND_LINK, SECOND_LIFE);
    assert_int_equal(puppet_0(h)->life, FIRST_LIFE);
    hand_post(h, &down);
    hand_drain(h, HAND_EVENTS);
    assert_int_equal(puppet_0(h)->life, SECOND_LIFE);
    assert_int_equal(h->n_hang_ups, 0);
    assert_int_equal(h->n_sent[MESSAGE_REFUSED], 0);
    hand_close(h);
}

static void the_same_process_dials_again_and_is_let_in(void **state)
{
    struct hand *h = in_a_view();

    (void)state;
    second_comes(h, SECOND_LINK, FIRST_LIFE);
    assert_int_equal(h->n_sent[MESSAGE_CLAIM], 0);
    assert_int_equal(h->in.twin->n, 0);
    assert_int_not_equal(h->last_action[ACTION_HANG_UP].hang_up.link,
                         SECOND_LINK);
    assert_int_equal(status_of(h).n_lost, 0);
    hand_close(h);
}

static void an_answer_that_is_none_moves_nobody(void **state)
{
    struct hand *h = in_a_view();

    (void)state;
    second_comes(h, SECOND_LINK, SECOND_LIFE);
    /* To an earlier claim; of another life; by another key; by another peer. */
    say_present(h, 0, &h->puppet_pen[0], FIRST_LIFE, SECOND_LIFE - 1, 5);
    say_present(h, 0, &h->puppet_pen[0], FIRST_LIFE + 3, SECOND_LIFE, 5);
    say_present(h, 0, &h->puppet_pen[1], FIRST_LIFE, SECOND_LIFE, 5);
    say_present(h, 1, &h->puppet_pen[1], FIRST_LIFE, SECOND_LIFE, 5);
    assert_int_equal(h->n_sent[MESSAGE_REFUSED], 0);
    assert_int_equal(h->n_hang_ups, 0);
    hand_close(h);
}

static void who_says_no_hello_is_not_waited_for(void **state)
{
    struct hand *h = in_a_view();
    struct event up = {.type = EVENT_LINK_UP,
                       .link_up.link = SECOND_LINK,
                       .link_up.inbound = true,
                       .link_up.peer = h->puppet[0].id};

    (void)state;
    for (uint32_t i = 0; i <= NODE_TWINS_MAX; i++) {
        up.link_up.link = SECOND_LINK + i;
        memcpy(up.link_up.public_key, h->puppet[0].public, 32);
        hand_post(h, &up);
    }
    hand_drain(h, HAND_EVENTS);
    assert_int_equal(h->in.twin->n, NODE_TWINS_MAX);
    assert_int_equal(h->n_hang_ups, 1); /* one too many */
    hand_wait(h, 5500);
    assert_int_equal(h->in.twin->n, 0);
    assert_int_equal(h->n_hang_ups, NODE_TWINS_MAX + 1);
    assert_int_equal(status_of(h).n_lost, 0);
    hand_close(h);
}

/* ---- as one of the two --------------------------------------------------- */

static void whoever_is_asked_signs_that_it_is_there(void **state)
{
    struct hand *h = in_a_view();
    struct claim m = {.life = 4711};
    struct present p;

    (void)state;
    hand_say(h, 1, MESSAGE_CLAIM, &m);
    hand_drain(h, HAND_EVENTS);
    assert_int_equal(h->n_sent[MESSAGE_PRESENT], 1);
    assert_int_equal(h->last_to[MESSAGE_PRESENT], h->link[1]);
    assert_int_equal(msg_decode(&present_schema, h->last[MESSAGE_PRESENT].bytes,
                                h->last[MESSAGE_PRESENT].len, &p),
                     0);
    assert_true(message_verify(&h->pen, h->self.public, &present_body_schema,
                               &p.body, p.sig));
    assert_int_equal(p.body.life, life_of(h));
    assert_int_equal(p.body.other, 4711);
    assert_int_equal(p.body.age_ms, h->now_ms - 1000);
    m.life = life_of(h); /* there is nobody else */
    hand_say(h, 1, MESSAGE_CLAIM, &m);
    hand_drain(h, HAND_EVENTS);
    assert_int_equal(h->n_sent[MESSAGE_PRESENT], 1);
    hand_close(h);
}

static void a_proven_older_process_stops_a_young_one(void **state)
{
    struct hand *h = in_a_view();
    uint64_t life = life_of(h), age_ms = h->now_ms - 1000;

    (void)state;
    /* What only a peer says, a proof for another life, a younger one. */
    say_present(h, 0, &h->puppet_pen[0], 99, life, age_ms + 10000);
    say_present(h, 0, &h->pen, 99, life + 1, age_ms + 10000);
    say_present(h, 0, &h->pen, 99, life, age_ms - 1);
    assert_false(h->stopped);
    assert_int_equal(status_of(h).malformed, 1);
    say_present(h, 0, &h->pen, 99, life, age_ms + 10000);
    assert_true(h->stopped);
    assert_int_equal(h->last_job[JOB_STOP].stop.exit_code, LOCO_EXIT_IDENTITY);
    hand_close(h);
}

static void nobody_stops_one_that_takes_part(void **state)
{
    struct hand *h = in_a_view();
    uint64_t round;

    (void)state;
    hand_wait(h, 60000);
    round = h->in.held->known.round;
    say_present(h, 0, &h->pen, 99, life_of(h), UINT64_MAX);
    assert_false(h->stopped);
    assert_non_null(node_twin_reason(h->node));
    hand_wait(h, 61000);
    assert_false(h->stopped);
    assert_null(node_twin_reason(h->node)); /* and nothing new */
    assert_true(h->in.held->known.round > round);
    hand_close(h);
}

static void a_refusal_without_a_proof_stops_nobody(void **state)
{
    struct hand *h = hand_open(1);
    struct refused m = {.reason = REFUSAL_TWIN};

    (void)state;
    hand_say(h, 0, MESSAGE_REFUSED, &m);
    hand_wait(h, 20000);
    assert_false(h->stopped);
    hand_close(h);
}

/* ---- the address of the invitation --------------------------------------- */

static int stop_code(uint64_t after_ms)
{
    struct identity self;
    struct signer pen;
    struct node_options o = {.seed = 1, .time_scale = 1, .n_bootstrap = 1};
    struct event e = {.type = EVENT_TICK, .now_ms = 1000};
    struct out *out = calloc(1, sizeof *out);
    struct node *n;
    int rc = -1;

    assert_non_null(out);
    identity_fake(&self, 5);
    pen = signer_keyed(&self);
    o.self = self.id;
    memcpy(o.public_key, self.public, 32);
    o.signer = pen;
    o.bootstrap[0].port = 7700;
    assert_int_equal(node_open(&n, &o, e.now_ms), 0);
    node_step(n, &e, out);
    for (uint32_t i = 0; i < out->n; i++) {
        if (out->action[i].type == ACTION_DIAL) {
            e.dial_failed.request = out->action[i].dial.request;
            e.dial_failed.address = out->action[i].dial.address;
        }
    }
    e.type = EVENT_DIAL_FAILED;
    e.dial_failed.rc = LOCO_ETWIN;
    e.now_ms += after_ms;
    node_step(n, &e, out);
    for (uint32_t i = 0; i < out->n; i++) {
        const struct action *a = &out->action[i];

        if (a->type == ACTION_JOB && a->job.type == JOB_STOP) {
            rc = a->job.stop.exit_code;
        }
    }
    node_close(n);
    free(out);
    return rc;
}

static void who_finds_itself_where_it_wants_to_join_stops(void **state)
{
    (void)state;
    assert_int_equal(stop_code(50), LOCO_EXIT_IDENTITY);
    /* One that has run for long was the first. */
    assert_int_not_equal(stop_code(61000), LOCO_EXIT_IDENTITY);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_second_process_is_refused_while_the_first_answers),
        cmocka_unit_test(a_restart_is_let_in_when_nobody_answers_for_the_first),
        cmocka_unit_test(who_stood_still_waits_for_the_answer_again),
        cmocka_unit_test(a_restart_is_let_in_when_the_links_of_the_first_end),
        cmocka_unit_test(the_same_process_dials_again_and_is_let_in),
        cmocka_unit_test(an_answer_that_is_none_moves_nobody),
        cmocka_unit_test(who_says_no_hello_is_not_waited_for),
        cmocka_unit_test(whoever_is_asked_signs_that_it_is_there),
        cmocka_unit_test(a_proven_older_process_stops_a_young_one),
        cmocka_unit_test(nobody_stops_one_that_takes_part),
        cmocka_unit_test(a_refusal_without_a_proof_stops_nobody),
        cmocka_unit_test(who_finds_itself_where_it_wants_to_join_stops),
    };

    return cmocka_run_group_tests_name("node_twin", tests, NULL, NULL);
}
