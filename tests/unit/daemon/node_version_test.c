/* node_version_test.c - peers that speak other versions of the protocol. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "proto/base/err.h"
#include "tests/unit/daemon/hand.h"

/* Puppet 0 comes anew and says what it speaks; ours are 2 and 3. */
static struct hand *meet(uint8_t oldest, uint8_t newest, uint32_t features)
{
    const struct hand_options ours = {
        .node = {.oldest = 2, .newest = 3, .features = 6}};
    struct hand *h = hand_open_as(1, &ours);
    struct event up = {
        .type = EVENT_LINK_UP, .link_up.link = 99, .link_up.inbound = true};
    struct hello hello = {
        .life = 7, .features = features, .oldest = oldest, .newest = newest};

    while (h->head != h->tail) { /* the first HELLO is not to be seen */
        struct event *e = &h->queue[h->head++ % HAND_EVENTS];

        if (e->type == EVENT_RECV) {
            free((void *)(uintptr_t)e->recv.bytes);
        }
    }
    up.link_up.peer = h->puppet[0].id;
    memcpy(up.link_up.public_key, h->puppet[0].public, 32);
    h->link[0] = up.link_up.link;
    hand_post(h, &up);
    hand_say(h, 0, MESSAGE_HELLO, &hello);
    hand_drain(h, HAND_EVENTS);
    return h;
}

static const struct member *puppet(const struct hand *h)
{
    int row = members_find(h->in.members, &h->puppet[0].id);

    return row == MEMBERS_NONE ? NULL : &h->in.members->peers[row];
}

static void the_newest_version_of_both_is_spoken(void **state)
{
    static const struct {
        uint8_t oldest, newest, spoken;
    } cases[] = {{2, 2, 2}, {1, 2, 2}, {2, 3, 3}, {3, 3, 3}, {3, 9, 3}};

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct hand *h = meet(cases[i].oldest, cases[i].newest, 12);

        assert_int_equal(h->n_sent[MESSAGE_REFUSED], 0);
        assert_int_equal(puppet(h)->version, cases[i].spoken);
        assert_int_equal(puppet(h)->features, 4); /* what both say */
        assert_int_equal(puppet(h)->n_links, 1);
        hand_close(h);
    }
}

static void who_shares_no_version_is_refused_and_told(void **state)
{
    static const uint8_t ranges[][2] = {{1, 1},   {4, 4}, {0, 0},
                                        {4, 250}, {3, 2}, {9, 1}};

    (void)state;
    for (size_t i = 0; i < sizeof ranges / sizeof ranges[0]; i++) {
        struct hand *h = meet(ranges[i][0], ranges[i][1], 0);
        struct refused r;

        assert_int_equal(h->n_sent[MESSAGE_REFUSED], 1);
        assert_int_equal(h->last_to[MESSAGE_REFUSED], 99);
        assert_int_equal(msg_decode(&refused_schema,
                                    h->last[MESSAGE_REFUSED].bytes,
                                    h->last[MESSAGE_REFUSED].len, &r),
                         0);
        assert_int_equal(r.reason, REFUSAL_VERSION);
        assert_int_equal(h->last_action[ACTION_HANG_UP].hang_up.link, 99);
        assert_int_equal(puppet(h)->version, 0);
        assert_int_equal(puppet(h)->n_links, 0);
        assert_non_null(strstr(node_refusal(h->node), "update the older"));
        hand_close(h);
    }
}

/* A peer of the version before: both are named, and what to do. */
static void the_refusal_names_both_versions(void **state)
{
    struct hand *h = meet(1, 1, 0);
    struct refused r = {.reason = REFUSAL_VERSION};

    (void)state;
    assert_string_equal(node_refusal(h->node),
                        "it speaks version 1 of the protocol, this one "
                        "versions 2 to 3: update the older of the two");
    /* What it says of us says less. */
    hand_say(h, 0, MESSAGE_REFUSED, &r);
    assert_non_null(strstr(node_refusal(h->node), "version 1 "));
    hand_close(h);
}

static void we_say_what_we_speak(void **state)
{
    struct hand *h = meet(2, 3, 0);
    struct hello m;

    (void)state;
    assert_int_equal(msg_decode(&hello_schema, h->last[MESSAGE_HELLO].bytes,
                                h->last[MESSAGE_HELLO].len, &m),
                     0);
    assert_int_equal(m.oldest, 2);
    assert_int_equal(m.newest, 3);
    assert_int_equal(m.features, 6);
    hand_close(h);
}

/* A joiner that knows nothing of the run yet, and its time. */
struct joiner {
    struct node *node;
    struct out *out;
    uint64_t now_ms;
};

static void joiner_open(struct joiner *j)
{
    struct identity self;
    struct node_options o = {.seed = 1, .time_scale = 1};

    identity_fake(&self, 5);
    o.self = self.id;
    memcpy(o.public_key, self.public, 32);
    o.signer = signer_keyed(&self);
    j->out = calloc(1, sizeof *j->out);
    assert_non_null(j->out);
    j->now_ms = 1000;
    assert_int_equal(node_open(&j->node, &o, j->now_ms), 0);
}

static void joiner_close(struct joiner *j)
{
    node_close(j->node);
    free(j->out);
}

static void
joiner_hears(struct joiner *j, uint32_t link, uint8_t oldest, uint8_t newest)
{
    struct hello m = {.life = 7, .oldest = oldest, .newest = newest};
    struct event e = {.type = EVENT_RECV,
                      .recv.link = link,
                      .recv.message = MESSAGE_HELLO,
                      .now_ms = j->now_ms};
    uint8_t bytes[64];
    int len = msg_encode(&hello_schema, &m, bytes, sizeof bytes);

    assert_true(len > 0);
    e.recv.bytes = bytes;
    e.recv.len = (uint32_t)len;
    node_step(j->node, &e, j->out);
}

static void joiner_meets(struct joiner *j, uint32_t link, uint8_t seed)
{
    struct event up = {
        .type = EVENT_LINK_UP, .link_up.link = link, .now_ms = j->now_ms};
    struct identity other;

    identity_fake(&other, seed);
    up.link_up.peer = other.id;
    memcpy(up.link_up.public_key, other.public, 32);
    node_step(j->node, &up, j->out);
}

static void joiner_loses(struct joiner *j, uint32_t link)
{
    struct event down = {
        .type = EVENT_LINK_DOWN, .link_down.link = link, .now_ms = j->now_ms};

    node_step(j->node, &down, j->out);
}

/* What it stops with in `ms`; -1: it goes on. `link`: a host of our version
 * that speaks all the time; 0: none. */
static int joiner_stops(struct joiner *j, uint64_t ms, uint32_t link)
{
    struct event e = {.type = EVENT_TICK};
    uint64_t end_ms = j->now_ms + ms;
    int rc = -1;

    while (rc < 0 && j->now_ms < end_ms) {
        j->now_ms += 250;
        if (link != 0) {
            joiner_hears(j, link, PROTO_NEWEST, PROTO_NEWEST);
        }
        e.now_ms = j->now_ms;
        node_step(j->node, &e, j->out);
        for (uint32_t i = 0; i < j->out->n; i++) {
            const struct action *a = &j->out->action[i];

            if (a->type == ACTION_JOB && a->job.type == JOB_STOP) {
                rc = a->job.stop.exit_code;
            }
        }
    }
    return rc;
}

/* It would wait for ever for somebody who lets it in. */
static void a_joiner_that_is_too_old_ends_with_the_reason(void **state)
{
    struct joiner j;

    (void)state;
    joiner_open(&j);
    joiner_meets(&j, 5, 6);
    joiner_hears(&j, 5, PROTO_NEWEST + 1, PROTO_NEWEST + 2);
    assert_int_equal(joiner_stops(&j, 20000, 0), LOCO_EXIT_INCOMPATIBLE);
    joiner_close(&j);
}

static void
what_one_host_refuses_does_not_end_a_joiner_with_another(void **state)
{
    struct joiner j;

    (void)state;
    joiner_open(&j);
    joiner_meets(&j, 5, 6);
    joiner_hears(&j, 5, PROTO_NEWEST + 1, PROTO_NEWEST + 2);
    joiner_loses(&j, 5);
    joiner_meets(&j, 7, 8);
    assert_int_equal(joiner_stops(&j, 10000, 7), -1);
    /* That one goes, too: some seconds to come back, then the reason. */
    joiner_loses(&j, 7);
    assert_int_equal(joiner_stops(&j, 4000, 0), -1);
    assert_int_equal(joiner_stops(&j, 20000, 0), LOCO_EXIT_INCOMPATIBLE);
    joiner_close(&j);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_newest_version_of_both_is_spoken),
        cmocka_unit_test(who_shares_no_version_is_refused_and_told),
        cmocka_unit_test(the_refusal_names_both_versions),
        cmocka_unit_test(we_say_what_we_speak),
        cmocka_unit_test(a_joiner_that_is_too_old_ends_with_the_reason),
        cmocka_unit_test(
            what_one_host_refuses_does_not_end_a_joiner_with_another),
    };

    return cmocka_run_group_tests_name("node_version", tests, NULL, NULL);
}
