/* node_budget_test.c - what a stranger may cost a node, and a member. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "tests/unit/daemon/hand.h"

#define STRANGER 2 /* this puppet; the others are members of the view */

static void come(struct hand *h)
{
    hand_link(h, STRANGER);
    hand_wait(h, 1);
}

/* The node, two members and a stranger. */
static struct hand *open_hand(void)
{
    const struct hand_options opt = {.highest = false};
    const struct heartbeat none = {.life = 7, .configured = true};
    struct hand *h = hand_open_as(HAND_PUPPETS, &opt);

    h->terms.min_peers = HAND_PUPPETS;
    hand_set_beat(h, STRANGER, &none);
    h->n_puppets = STRANGER; /* that the others know */
    for (int ms = 0; ms < 20000 && !h->in.ballot->have; ms++) {
        hand_wait(h, 1);
    }
    assert_true(h->in.ballot->have);
    assert_int_equal(h->in.ballot->cert.body.n_members, HAND_PUPPETS);
    assert_true(hand_index(h, STRANGER) < 0);
    h->n_puppets = HAND_PUPPETS;
    h->obedient = false; /* nothing else is verified from now on */
    return h;
}

static void say_goodbye(struct hand *h, uint32_t p, bool forged)
{
    struct goodbye m = {.body.peer = h->puppet[p].id};

    memset(m.body.run.b, 0, sizeof m.body.run.b);
    hand_sign(h, p, &goodbye_body_schema, &m.body, m.sig);
    m.sig[5] ^= forged;
    hand_say(h, p, MESSAGE_GOODBYE, &m);
}

static void say_evaluated(struct hand *h, uint32_t p, uint64_t microbits)
{
    struct evaluated m = {.body.microbits = microbits};

    hand_sign(h, p, &evaluated_body_schema, &m.body, m.sig);
    hand_say(h, p, MESSAGE_EVALUATED, &m);
}

static double bits_before(const struct hand *h)
{
    struct node_status s;

    node_status(h->node, &s);
    return s.bits_per_byte_before;
}

/* 10 s: a burst of 20, 10 a second, and one that overdraws. */
static void a_stranger_gets_few_signatures_checked(void **state)
{
    struct hand *h = open_hand();
    uint64_t before = h->n_verified;

    (void)state;
    for (int ms = 0; ms < 10000; ms += 10) {
        say_goodbye(h, STRANGER, false);
        hand_wait(h, 10);
    }
    assert_in_range(h->n_verified - before, 20 + 100 - 1, 20 + 100 + 1);
    hand_close(h);
}

static void members_get_all_signatures_checked(void **state)
{
    struct hand *h = open_hand();
    uint64_t before = h->n_verified;

    (void)state;
    for (int ms = 0; ms < 1000; ms++) {
        say_evaluated(h, 0, 1000000);
        hand_wait(h, 1);
    }
    assert_int_equal(h->n_verified - before, 1000);
    hand_close(h);
}

static void what_a_stranger_measured_is_not_even_verified(void **state)
{
    struct hand *h = open_hand();
    uint64_t before = h->n_verified;

    (void)state;
    say_evaluated(h, STRANGER, 5000000);
    hand_wait(h, 1);
    assert_int_equal(h->n_verified, before);
    assert_true(bits_before(h) != 5.0);
    say_evaluated(h, 1, 4000000);
    hand_wait(h, 1);
    assert_int_equal(h->n_verified, before + 1);
    assert_true(bits_before(h) == 4.0);
    hand_close(h);
}

static uint32_t hang_ups_of(struct hand *h, uint32_t link)
{
    const struct action *a = &h->last_action[ACTION_HANG_UP];

    return h->n_actions[ACTION_HANG_UP] > 0 && a->hang_up.link == link;
}

static void who_forges_three_signatures_is_hung_up_and_waits(void **state)
{
    struct hand *h = open_hand();
    uint32_t link = h->link[STRANGER];

    (void)state;
    for (int k = 0; k < 3; k++) {
        assert_false(hang_ups_of(h, link));
        say_goodbye(h, STRANGER, true);
        hand_wait(h, 1);
    }
    assert_true(hang_ups_of(h, link));
    hand_wait(h, 590000);
    come(h);
    assert_int_equal(h->link[STRANGER], 0);
    hand_wait(h, 10000);
    come(h);
    assert_int_not_equal(h->link[STRANGER], 0);
    hand_close(h);
}

/* A frame that cannot be decoded closes its link; so one that is dropped was
 * not decoded. */
static void what_a_stranger_says_too_much_is_not_decoded(void **state)
{
    uint8_t bytes[32 << 10] = {0};
    struct manifest_part part = {.total = sizeof part.bytes,
                                 .n_bytes = sizeof part.bytes};
    struct hand *h = open_hand();

    (void)state;
    memset(bytes, 0xff, sizeof bytes);
    for (int k = 0; k < 12; k++) { /* 384 KiB at once */
        hand_say(h, STRANGER, MESSAGE_MANIFEST, &part);
        hand_say(h, 0, MESSAGE_MANIFEST, &part);
    }
    hand_wait(h, 1);
    hand_say_bytes(h, STRANGER, MESSAGE_MANIFEST, bytes, sizeof bytes);
    hand_wait(h, 1);
    assert_int_not_equal(h->link[STRANGER], 0);
    hand_wait(h, 2000);
    hand_say_bytes(h, STRANGER, MESSAGE_MANIFEST, bytes, sizeof bytes);
    hand_wait(h, 1);
    assert_int_equal(h->link[STRANGER], 0);
    hand_say_bytes(h, 0, MESSAGE_MANIFEST, bytes, sizeof bytes);
    hand_wait(h, 1);
    assert_int_equal(h->link[0], 0); /* a member's is */
    hand_close(h);
}

/* GET_VIEW costs 514 bytes; the VIEW as much again and what it has. */
static void what_a_stranger_is_answered_is_charged(void **state)
{
    const struct get_view ask = {0};
    struct hand *h = open_hand();
    uint32_t before = h->n_sent[MESSAGE_VIEW];

    (void)state;
    for (int k = 0; k < 1000; k++) {
        hand_say(h, STRANGER, MESSAGE_GET_VIEW, &ask);
    }
    hand_wait(h, 1);
    assert_in_range(h->n_sent[MESSAGE_VIEW] - before, 100, 300000 / 1200);
    before = h->n_sent[MESSAGE_VIEW];
    for (int k = 0; k < 1000; k++) {
        hand_say(h, 0, MESSAGE_GET_VIEW, &ask);
    }
    hand_wait(h, 1);
    assert_int_equal(h->n_sent[MESSAGE_VIEW] - before, 1000);
    hand_close(h);
}

static uint32_t served(struct hand *h, uint32_t p, uint32_t n)
{
    struct fetch f = {.stream = STREAM_FETCH,
                      .buffer = BUFFER_SHARD,
                      .attempt = 1,
                      .len = 1000};
    uint32_t before = h->n_send_segs;

    for (uint32_t k = 0; k < n; k++) {
        f.seg = k;
        hand_say(h, p, MESSAGE_FETCH, &f);
    }
    hand_wait(h, 1);
    return h->n_send_segs - before;
}

/* Text and state are 3,048 bytes: sixteen newcomers come in at once, eight of
 * one group of addresses. */
#define NEWCOMER 4 /* fetches */

static void strangers_fetch_what_newcomers_need(void **state)
{
    const uint32_t burst = 16 * 3048 / 1000 / 2 + 1;
    struct hand *h = open_hand();
    uint32_t refused;

    (void)state;
    h->has_beat[STRANGER] = true;
    assert_int_equal(served(h, STRANGER, 200), burst);
    refused = h->n_sent[MESSAGE_FETCH_NO];
    assert_int_equal(refused, 200 - burst);
    assert_int_equal(served(h, 0, 200), 200); /* a member */
    hand_wait(h, 20);                         /* 1 MB a second: 20,000 bytes */
    assert_in_range(served(h, STRANGER, 200), 20, 22);
    hand_close(h);
}

/* The same peer, of another address. */
static void move(struct hand *h, uint8_t a, uint8_t b, uint8_t c, uint8_t d)
{
    struct event e = {.type = EVENT_LINK_DOWN,
                      .link_down.link = h->link[STRANGER]};

    if (e.link_down.link != 0) {
        hand_post(h, &e);
    }
    h->from[STRANGER] = (struct address){.ip = {[10] = 0xff, 0xff, a, b, c, d}};
    come(h);
    assert_int_not_equal(h->link[STRANGER], 0);
}

static void who_fetches_without_end_leaves_others_their_share(void **state)
{
    struct hand *h = open_hand();

    (void)state;
    h->has_beat[STRANGER] = true;
    for (uint8_t group = 1; group <= 3; group++) {
        move(h, 11, group, 0, 1);
        assert_true(served(h, STRANGER, 200) > 0);
        move(h, 11, group, 0, 2); /* of that group: what fell off in 2 ms */
        assert_in_range(served(h, STRANGER, 200), 0, 2);
    }
    move(h, 12, 0, 0, 1);
    assert_int_equal(served(h, STRANGER, NEWCOMER), NEWCOMER);
    hand_close(h);
}

static void a_member_is_not_hung_up_for_bad_signatures(void **state)
{
    struct hand *h = open_hand();
    uint32_t link = h->link[0];

    (void)state;
    for (int k = 0; k < 10; k++) {
        say_goodbye(h, 0, true);
        hand_wait(h, 1);
    }
    assert_false(hang_ups_of(h, link));
    hand_close(h);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_stranger_gets_few_signatures_checked),
        cmocka_unit_test(members_get_all_signatures_checked),
        cmocka_unit_test(what_a_stranger_measured_is_not_even_verified),
        cmocka_unit_test(who_forges_three_signatures_is_hung_up_and_waits),
        cmocka_unit_test(what_a_stranger_says_too_much_is_not_decoded),
        cmocka_unit_test(what_a_stranger_is_answered_is_charged),
        cmocka_unit_test(strangers_fetch_what_newcomers_need),
        cmocka_unit_test(who_fetches_without_end_leaves_others_their_share),
        cmocka_unit_test(a_member_is_not_hung_up_for_bad_signatures),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
