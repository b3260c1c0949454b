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
    struct hand *h = hand_open(1);
    struct event up = {.type = EVENT_LINK_UP, .link = 99, .inbound = true};
    struct hello hello = {
        .life = 7, .features = features, .oldest = oldest, .newest = newest};

    while (h->head != h->tail) { /* the first HELLO is not to be seen */
        struct event *e = &h->queue[h->head++ % HAND_EVENTS];

        if (e->type == EVENT_RECV) {
            free((void *)(uintptr_t)e->bytes);
        }
    }
    h->node->opt.oldest = 2;
    h->node->opt.newest = 3;
    h->node->opt.features = 6;
    up.peer = h->puppet[0].id;
    memcpy(up.public_key, h->puppet[0].public, 32);
    h->link[0] = up.link;
    hand_post(h, &up);
    hand_say(h, 0, MESSAGE_HELLO, &hello);
    hand_drain(h, HAND_EVENTS);
    return h;
}

static const struct member *puppet(const struct hand *h)
{
    int row = members_find(&h->node->members, &h->puppet[0].id);

    return row == MEMBERS_NONE ? NULL : &h->node->members.peers[row];
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
        assert_int_equal(h->last_action[ACTION_HANG_UP].link, 99);
        assert_int_equal(puppet(h)->version, 0);
        assert_int_equal(puppet(h)->n_links, 0);
        assert_non_null(strstr(node_refusal(h->node), "update the older"));
        hand_close(h);
    }
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

/* It would wait for ever for somebody who lets it in. */
static void a_joiner_that_is_too_old_ends_with_the_reason(void **state)
{
    struct identity self, other;
    struct node_options o = {.seed = 1, .time_scale = 1};
    struct event up = {.type = EVENT_LINK_UP, .link = 5, .now_ms = 1000};
    struct event e = {.type = EVENT_RECV,
                      .link = 5,
                      .message = MESSAGE_HELLO,
                      .now_ms = 1000};
    struct hello m = {
        .life = 7, .oldest = PROTO_NEWEST + 1, .newest = PROTO_NEWEST + 2};
    struct out *out = calloc(1, sizeof *out);
    struct signer pen;
    uint8_t bytes[64];
    struct node *n;
    int len, rc = -1;

    (void)state;
    assert_non_null(out);
    identity_fake(&self, 5);
    identity_fake(&other, 6);
    pen = signer_keyed(&self);
    o.self = self.id;
    memcpy(o.public_key, self.public, 32);
    o.signer = pen;
    assert_int_equal(node_open(&n, &o, e.now_ms), 0);
    up.peer = other.id;
    memcpy(up.public_key, other.public, 32);
    node_step(n, &up, out);
    len = msg_encode(&hello_schema, &m, bytes, sizeof bytes);
    assert_true(len > 0);
    e.bytes = bytes;
    e.len = (uint32_t)len;
    node_step(n, &e, out);
    e = (struct event){.type = EVENT_TICK, .now_ms = 1000};
    while (rc < 0 && e.now_ms < 20000) {
        e.now_ms += 250;
        node_step(n, &e, out);
        for (uint32_t i = 0; i < out->n; i++) {
            rc = out->action[i].type == ACTION_STOP ? out->action[i].rc : rc;
        }
    }
    assert_int_equal(rc, LOCO_EXIT_INCOMPATIBLE);
    node_close(n);
    free(out);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_newest_version_of_both_is_spoken),
        cmocka_unit_test(who_shares_no_version_is_refused_and_told),
        cmocka_unit_test(we_say_what_we_speak),
        cmocka_unit_test(a_joiner_that_is_too_old_ends_with_the_reason),
    };

    return cmocka_run_group_tests_name("node_version", tests, NULL, NULL);
}
