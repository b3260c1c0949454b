/* members_test.c - who is there: links, silence, hearsay; neighbours, rumours,
 * and members without a link. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "p2p/swarm/members.h"
#include "proto/base/err.h"
#include "proto/base/rng.h"
#include "proto/hash.h"
#include "proto/sign.h"

#define DEAD_MS   2400
#define REDIAL_MS 1000

struct fixture {
    struct members m;
    struct identity self, peer[6];
    struct out out;
    uint64_t now_ms;
};

static struct fixture *fixture_of(uint32_t rows)
{
    struct members_options opt = {.seed = 1,
                                  .rows = rows,
                                  .heartbeat_ms = 400,
                                  .suspect_ms = 1200,
                                  .dead_ms = DEAD_MS,
                                  .redial_ms = REDIAL_MS,
                                  .links_wanted = 8};
    struct fixture *f = calloc(1, sizeof *f + members_bytes(&opt));

    assert_non_null(f);
    identity_fake(&f->self, 50);
    for (uint64_t i = 0; i < 6; i++) {
        identity_fake(&f->peer[i], i);
    }
    opt.self = f->self.id;
    opt.signer = signer_keyed(&f->self);
    opt.life = 9;
    f->now_ms = 10000;
    members_init(&f->m, &opt, f + 1, f->now_ms);
    return f;
}

static int open_fixture(void **state)
{
    *state = fixture_of(0);
    return 0;
}

static int close_fixture(void **state)
{
    free(*state);
    return 0;
}

static void clear(struct fixture *f)
{
    f->out.n = f->out.n_bytes = f->out.dropped = 0;
}

static uint32_t count(const struct fixture *f, enum action_type type)
{
    uint32_t n = 0;

    for (uint32_t i = 0; i < f->out.n; i++) {
        n += f->out.action[i].type == type;
    }
    return n;
}

static bool up(struct fixture *f, int who, uint32_t link)
{
    struct event e = {.type = EVENT_LINK_UP,
                      .now_ms = f->now_ms,
                      .link_up.link = link,
                      .link_up.inbound = true,
                      .link_up.peer = f->peer[who].id,
                      .link_up.address = {.port = (uint16_t)(4000 + who)}};

    memcpy(e.link_up.public_key, f->peer[who].public, 32);
    clear(f);
    return members_link_up(&f->m, &e.link_up, e.now_ms, &f->out);
}

static void tick(struct fixture *f, uint64_t after_ms)
{
    struct heartbeat beat = {0};

    f->now_ms += after_ms;
    clear(f);
    members_tick(&f->m, f->now_ms, &beat, &f->out);
}

static int row(const struct fixture *f, int who)
{
    return members_find(&f->m, &f->peer[who].id);
}

static void watch(struct fixture *f, int who)
{
    int r = row(f, who);

    members_watch(&f->m, &r, 1, NULL, f->now_ms);
}

static void expect_lost(struct fixture *f, int who, const char *reason)
{
    struct members_lost lost;

    assert_true(members_next_lost(&f->m, &lost));
    assert_int_equal(lost.peer, row(f, who));
    assert_string_equal(lost.reason, reason);
    assert_false(members_next_lost(&f->m, &lost));
}

static void expect_nobody_lost(struct fixture *f)
{
    struct members_lost lost;

    assert_false(members_next_lost(&f->m, &lost));
}

static void silence_loses_a_watched_peer_once(void **state)
{
    struct fixture *f = *state;

    assert_true(up(f, 0, 1));
    watch(f, 0);
    tick(f, DEAD_MS);
    expect_nobody_lost(f);
    tick(f, 1);
    expect_lost(f, 0, "no sign of life");
    assert_int_equal(count(f, ACTION_HANG_UP), 1);
    tick(f, DEAD_MS);
    expect_nobody_lost(f);
}

static void any_byte_is_a_sign_of_life(void **state)
{
    struct fixture *f = *state;

    assert_true(up(f, 0, 1));
    watch(f, 0);
    for (int i = 0; i < 5; i++) {
        tick(f, 2000);
        if (i % 2 == 0) {
            assert_int_equal(members_heard(&f->m, 1, f->now_ms), row(f, 0));
        } else {
            members_alive(&f->m, &f->peer[0].id, f->now_ms);
        }
    }
    expect_nobody_lost(f);
}

static void a_gap_of_the_own_process_loses_nobody(void **state)
{
    struct fixture *f = *state;

    assert_true(up(f, 0, 1));
    assert_true(up(f, 1, 2));
    {
        int rows[] = {row(f, 0), row(f, 1)};

        members_watch(&f->m, rows, 2, NULL, f->now_ms);
    }
    members_link_down(&f->m, 2, f->now_ms);
    f->now_ms += 60000;
    members_gap(&f->m, f->now_ms);
    tick(f, 0);
    expect_nobody_lost(f);
    tick(f, REDIAL_MS + 1);
    expect_lost(f, 1, "connection lost");
}

/* The link of a watched peer breaks and dialling it ends with `rc`. */
static void fail_redial(struct fixture *f, int rc)
{
    struct event e = {.type = EVENT_DIAL_FAILED, .dial_failed.rc = rc};

    assert_true(up(f, 0, 1));
    watch(f, 0);
    members_link_down(&f->m, 1, f->now_ms);
    tick(f, 10);
    assert_int_equal(count(f, ACTION_DIAL), 1);
    expect_nobody_lost(f);
    e.dial_failed.request = (uint64_t)row(f, 0);
    e.now_ms = f->now_ms;
    members_dial_failed(&f->m, e.dial_failed.request, e.dial_failed.rc,
                        e.now_ms);
    tick(f, 1);
}

static void a_refused_dial_after_a_lost_link_loses_at_once(void **state)
{
    struct fixture *f = *state;

    fail_redial(f, -ECONNREFUSED);
    expect_lost(f, 0, "connection closed and refused");
}

/* Others saw its end first. */
static void who_goes_from_the_view_without_a_link_is_doubted(void **state)
{
    struct fixture *f = *state;
    int rows[2];

    assert_true(up(f, 0, 1));
    assert_true(up(f, 1, 2));
    rows[0] = row(f, 0);
    rows[1] = row(f, 1);
    members_watch(&f->m, rows, 2, NULL, f->now_ms);
    tick(f, 10);
    (void)members_link_down(&f->m, 1, f->now_ms);
    tick(f, 10);
    expect_nobody_lost(f);
    members_watch(&f->m, rows + 1, 1, NULL, f->now_ms);
    tick(f, 10);
    assert_int_equal(f->m.peers[rows[0]].state, PEER_SUSPECT);
    (void)members_heard(&f->m, 2, f->now_ms);
    tick(f, REDIAL_MS + REDIAL_MS / 2);
    assert_int_equal(f->m.peers[rows[0]].state, PEER_DEAD);
    assert_int_equal(f->m.peers[rows[1]].state, PEER_ALIVE);
}

static void another_failed_dial_is_no_refusal(void **state)
{
    static const struct {
        int rc;
        const char *reason;
    } cases[] = {
        {LOCO_ETIMEOUT, "connection lost, dialling times out"},
        {-ETIMEDOUT, "connection lost, dialling times out"},
        {-ENETUNREACH, "connection lost, no route to it"},
        {-EHOSTUNREACH, "connection lost, no route to it"},
        {LOCO_EPROTO, "connection lost, handshake failed"},
        {LOCO_ERUN, "connection lost, it left for another run"},
        {LOCO_ECLOSED, "connection lost, dialling fails"},
        {-ECONNRESET, "connection lost, dialling fails"},
    };

    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct fixture *f;

        if (i > 0) {
            (void)close_fixture(state);
            (void)open_fixture(state);
        }
        f = *state;
        fail_redial(f, cases[i].rc);
        tick(f, REDIAL_MS - 12);
        expect_nobody_lost(f);
        tick(f, 2);
        expect_lost(f, 0, cases[i].reason);
    }
}

static void an_old_refusal_says_nothing_about_the_next_loss(void **state)
{
    struct fixture *f = *state;

    fail_redial(f, -ECONNREFUSED);
    expect_lost(f, 0, "connection closed and refused");
    assert_true(up(f, 0, 2));
    members_link_down(&f->m, 2, f->now_ms);
    tick(f, REDIAL_MS);
    expect_nobody_lost(f);
    tick(f, 1);
    expect_lost(f, 0, "connection lost");
}

/* The only dial of this step. */
static const struct action *dialled(const struct fixture *f)
{
    assert_int_equal(count(f, ACTION_DIAL), 1);
    for (uint32_t i = 0; i < f->out.n; i++) {
        if (f->out.action[i].type == ACTION_DIAL) {
            return &f->out.action[i];
        }
    }
    return NULL;
}

static void an_unreached_bootstrap_is_never_given_up(void **state)
{
    struct fixture *f = *state;
    struct address a = {.port = 4009};

    members_bootstrap_add(&f->m, &a);
    assert_true(up(f, 0, 1)); /* somebody, who may know as little as we do */
    for (int i = 0; i < 12; i++) {
        struct event e = {.type = EVENT_DIAL_FAILED,
                          .dial_failed.rc = LOCO_ETIMEOUT};
        uint64_t from_ms = f->now_ms;

        do {
            tick(f, 100);
            assert_true(f->now_ms - from_ms <= 60000);
        } while (count(f, ACTION_DIAL) == 0);
        assert_true(address_eq(&dialled(f)->dial.address, &a));
        e.dial_failed.request = dialled(f)->dial.request;
        e.now_ms = f->now_ms;
        members_dial_failed(&f->m, e.dial_failed.request, e.dial_failed.rc,
                            e.now_ms);
    }
    {
        struct event e = {.type = EVENT_LINK_UP,
                          .link_up.link = 2,
                          .link_up.peer = f->peer[1].id,
                          .link_up.address = a};

        tick(f, 60000);
        e.link_up.request = dialled(f)->dial.request;
        e.now_ms = f->now_ms;
        clear(f);
        assert_true(members_link_up(&f->m, &e.link_up, e.now_ms, &f->out));
    }
    assert_false(f->m.bootstrap[0].dialing);
    tick(f, 120000);
    assert_int_equal(count(f, ACTION_DIAL), 0);
}

static void a_link_that_comes_back_in_time_loses_nobody(void **state)
{
    struct fixture *f = *state;

    assert_true(up(f, 0, 1));
    watch(f, 0);
    members_link_down(&f->m, 1, f->now_ms);
    tick(f, REDIAL_MS);
    assert_true(up(f, 0, 2));
    tick(f, 10);
    expect_nobody_lost(f);
}

static void who_was_never_missed_gets_time_to_be_linked(void **state)
{
    struct fixture *f = *state;
    struct address a = {.port = 4003};

    assert_true(members_learn(&f->m, &f->peer[3].id, &a, f->now_ms) >= 0);
    f->now_ms += 10 * REDIAL_MS;
    watch(f, 3); /* a new view names it */
    tick(f, REDIAL_MS);
    expect_nobody_lost(f);
    assert_true(f->m.peers[row(f, 3)].dialing);
    tick(f, 1);
    expect_lost(f, 3, "connection lost");
    /* Watched already: a further view gives no more time. */
    watch(f, 3);
    tick(f, 1);
    expect_nobody_lost(f);
}

static void of_two_links_the_lower_id_closes_the_older(void **state)
{
    struct fixture *f = *state;

    for (int who = 0; who < 6; who++) {
        bool lower = id_cmp(&f->self.id, &f->peer[who].id) < 0;
        uint32_t first = 10 + 2 * (uint32_t)who;

        assert_true(up(f, who, first));
        assert_true(up(f, who, first + 1));
        assert_int_equal(count(f, ACTION_HANG_UP), lower ? 1 : 0);
        if (lower) {
            assert_int_equal(f->out.action[0].hang_up.link, first);
        }
        members_link_down(&f->m, first, f->now_ms);
        assert_true(members_linked(&f->m, row(f, who)));
        members_link_down(&f->m, first + 1, f->now_ms);
        assert_false(members_linked(&f->m, row(f, who)));
    }
}

static void one_peer_cannot_take_all_links(void **state)
{
    struct fixture *f = *state;
    uint32_t taken = 0;

    for (uint32_t link = 1; link <= 2 * LINKS_MAX; link++) {
        taken += up(f, 0, link);
    }
    assert_true(taken <= 8);
    assert_true(up(f, 1, 5000));
}

static void hearsay_does_not_keep_out_who_is_here(void **state)
{
    struct fixture *f = *state;
    struct gossip msg = {.n_peers = MESSAGE_PEERS_MAX};
    uint64_t rng = 9;

    assert_true(up(f, 0, 1));
    for (int k = 0; k < 2 * PEERS_MAX / MESSAGE_PEERS_MAX; k++) {
        for (uint32_t i = 0; i < MESSAGE_PEERS_MAX; i++) {
            uint64_t words[] = {rng_next(&rng)};

            memcpy(msg.peers[i].id.b, words, sizeof words);
            msg.peers[i].address.port = 4000;
        }
        members_on_gossip(&f->m, row(f, 0), &msg, &f->out);
    }
    assert_int_equal(f->m.n_peers, PEERS_MAX);
    assert_true(up(f, 1, 2));
    assert_true(members_linked(&f->m, row(f, 1)));
    assert_true(members_linked(&f->m, row(f, 0)));
}

static void oneself_and_nobody_are_not_learnt(void **state)
{
    struct fixture *f = *state;
    struct address a = {.port = 4000};
    struct peer_id zero = {0};

    assert_int_equal(members_learn(&f->m, &f->self.id, &a, 0), MEMBERS_NONE);
    assert_int_equal(members_learn(&f->m, &zero, &a, 0), MEMBERS_NONE);
    assert_int_equal(f->m.n_peers, 0);
}

static void a_message_to_many_is_encoded_once(void **state)
{
    struct fixture *f = *state;
    struct get_commit ask = {.round = 7};
    int rows[4];
    uint32_t n = 0;

    for (int who = 0; who < 3; who++) {
        assert_true(up(f, who, (uint32_t)who + 1));
        rows[n++] = row(f, who);
    }
    rows[n++] = MEMBERS_NONE;
    clear(f);
    members_broadcast(&f->m, &f->out, rows, n, MESSAGE_GET_COMMIT, &ask);
    assert_int_equal(f->out.n, 3);
    assert_true(f->out.n_bytes > 0);
    for (uint32_t i = 0; i < 3; i++) {
        assert_int_equal(f->out.action[i].type, ACTION_SEND);
        assert_int_equal(f->out.action[i].send.link, i + 1);
        assert_int_equal(f->out.action[i].send.bytes.at, 0);
        assert_int_equal(f->out.action[i].send.bytes.len, f->out.n_bytes);
    }
}

/* ---- pulses, neighbours, rumours, others of the view ------------------- */

/* The first message of that type in the last step, decoded. */
static bool
said(const struct fixture *f, uint16_t type, void *obj, uint32_t *to)
{
    for (uint32_t i = 0; i < f->out.n; i++) {
        const struct action *a = &f->out.action[i];

        if (a->type == ACTION_SEND && a->send.message == type) {
            assert_int_equal(msg_decode(message_schema(type),
                                        f->out.bytes + a->send.bytes.at,
                                        a->send.bytes.len, obj),
                             0);
            *to = a->send.link;
            return true;
        }
    }
    return false;
}

/* The first n peers are linked and the members of a view, in this order, and
 * the fixture is member n. */
static void in_view(struct fixture *f, uint32_t n)
{
    struct hash32 view = {{7, 1}};
    int rows[6];

    for (uint32_t i = 0; i < n; i++) {
        assert_true(up(f, (int)i, i + 1));
        rows[i] = row(f, (int)i);
    }
    rows[n] = MEMBERS_NONE;
    members_watch(&f->m, rows, n + 1, &view, f->now_ms);
}

static void hears(struct fixture *f, int who, uint64_t mask)
{
    struct pulse p = {.flags = PULSE_KEEP,
                      .at = (uint16_t)(f->now_ms / 16),
                      .view = 0x0107,
                      .hears = mask};

    (void)members_heard(&f->m, (uint32_t)who + 1, f->now_ms);
    members_on_pulse(&f->m, row(f, who), &p, &f->out);
}

/* Bytes of a message that a member without a link sent us over another one. */
static void
forward_of(struct fixture *f, int from, uint64_t number, struct forward *w)
{
    struct signer s = signer_keyed(&f->peer[from]);

    memset(w, 0, sizeof *w);
    w->body = (struct forward_body){.view = {{7, 1}},
                                    .from = f->peer[from].id,
                                    .to = f->self.id,
                                    .life = 5,
                                    .number = number,
                                    .message = MESSAGE_GET_COMMIT};
    w->n_bytes = 2;
    w->bytes[0] = 0x91;
    hash_bytes("loco-forward-1", w->bytes, w->n_bytes, &w->body.digest);
    assert_int_equal(message_sign(&s, &forward_body_schema, &w->body, w->sig),
                     0);
}

/* Its data came between two ticks, and the clock of the last one counts. */
static void who_sent_data_since_the_last_tick_is_heard(void **state)
{
    struct fixture *f = *state;

    in_view(f, 3);
    tick(f, 400);
    f->now_ms += 50;
    members_alive(&f->m, &f->peer[0].id, f->now_ms);
    assert_true(members_edge(&f->m, 0, 3));
    assert_true(members_hears_now(&f->m, row(f, 0)));
    tick(f, 1201); /* it has been silent since */
    assert_false(members_edge(&f->m, 0, 3));
    assert_false(members_hears_now(&f->m, row(f, 0)));
}

static void a_member_that_others_hear_is_not_lost(void **state)
{
    struct fixture *f = *state;

    in_view(f, 3);
    for (int t = 0; t < 15; t++) {
        tick(f, 400);
        hears(f, 1, 0xf); /* they hear 0, which is silent here */
        hears(f, 2, 0xf);
    }
    expect_nobody_lost(f);
    assert_true(f->m.peers[row(f, 0)].indirect);
    assert_false(members_edge(&f->m, 0, 3));
    assert_true(members_edge(&f->m, 1, 3));
    hears(f, 1, 0xe);
    hears(f, 2, 0xf);
    tick(f, 1);
    expect_nobody_lost(f); /* one is enough */
    hears(f, 2, 0xe);
    tick(f, 1);
    expect_lost(f, 0, "no sign of life");
}

/* The others, or one that lies, say that they hear it: its own word must come,
 * too. */
static void who_is_heard_by_others_alone_must_say_so_itself(void **state)
{
    struct fixture *f = *state;
    struct forward w;

    in_view(f, 3);
    for (uint64_t t = 1; t <= 100; t++) {
        tick(f, 400);
        hears(f, 1, 0xf);
        hears(f, 2, 0xe);
        if (t == 15 || t == 30) {
            forward_of(f, 0, t, &w);
            assert_int_equal(members_forwarded(&f->m, row(f, 1), &w, &f->out),
                             row(f, 0));
        }
        if (t <= 30 + 20) { /* heartbeats */
            expect_nobody_lost(f);
        }
    }
    expect_lost(f, 0, "no sign of life");
    tick(f, 400);
    assert_true(f->m.peers[row(f, 0)].lost); /* and does not come back */
}

/* We slept, and could not hear what it said. */
static void a_gap_loses_nobody_who_is_heard_by_others(void **state)
{
    struct fixture *f = *state;

    in_view(f, 3);
    members_link_down(&f->m, 1, f->now_ms);
    hears(f, 1, 0xf);
    tick(f, REDIAL_MS + 1);
    assert_true(f->m.peers[row(f, 0)].indirect);
    f->now_ms += 60000;
    members_gap(&f->m, f->now_ms);
    hears(f, 1, 0xf);
    hears(f, 2, 0xf);
    tick(f, REDIAL_MS + 1);
    expect_nobody_lost(f);
}

/* One of those that could pass it on drops what it gets. */
static void what_is_forwarded_takes_two_ways_each_time_others(void **state)
{
    struct fixture *f = *state;
    struct goodbye bye = {.body = {.peer = f->self.id}};
    struct forward w;
    uint32_t to = 0, n[5] = {0};

    in_view(f, 4);
    members_link_down(&f->m, 1, f->now_ms);
    for (int i = 1; i < 4; i++) {
        hears(f, i, 0x1f);
    }
    for (int i = 0; i < 64; i++) {
        clear(f);
        assert_true(
            members_send(&f->m, &f->out, row(f, 0), MESSAGE_GOODBYE, &bye));
        assert_int_equal(f->out.n, 2);
        assert_true(said(f, MESSAGE_FORWARD, &w, &to));
        n[to]++;
    }
    for (int i = 2; i <= 4; i++) {
        assert_in_range(n[i], 8, 48);
    }
}

static void forwards_may_overtake_each_other(void **state)
{
    static const struct {
        uint64_t number;
        bool counts;
    } got[] = {{9, true},    {7, true},   {7, false}, {8, true},   {9, false},
               {100, true},  {36, false}, {37, true}, {37, false}, {101, true},
               {100, false}, {102, true}, {99, true}};
    struct fixture *f = *state;
    struct forward w;

    in_view(f, 3);
    for (size_t i = 0; i < sizeof got / sizeof got[0]; i++) {
        forward_of(f, 0, got[i].number, &w);
        assert_int_equal(members_forwarded(&f->m, row(f, 1), &w, &f->out),
                         got[i].counts ? row(f, 0) : MEMBERS_NONE);
    }
}

static void the_word_of_a_silent_member_counts_for_nothing(void **state)
{
    struct fixture *f = *state;
    struct members_lost lost;

    in_view(f, 2);
    hears(f, 1, 0x7);
    tick(f, DEAD_MS + 1); /* both died at once */
    assert_true(members_next_lost(&f->m, &lost));
    assert_true(members_next_lost(&f->m, &lost));
}

static void who_stops_hearing_a_member_says_so_at_once(void **state)
{
    struct fixture *f = *state;
    struct pulse p;
    uint32_t to;

    in_view(f, 2);
    tick(f, 0);
    tick(f, 1000);
    (void)members_heard(&f->m, 2, f->now_ms);
    tick(f, 201); /* suspect_ms of the first one is over */
    assert_true(said(f, MESSAGE_PULSE, &p, &to));
    assert_int_equal(p.view, 0x0107);
    assert_int_equal(p.hears, 0x6);
}

static void
a_forwarded_message_counts_once_and_only_as_it_was_signed(void **state)
{
    struct fixture *f = *state;
    struct forward w;

    in_view(f, 3);
    forward_of(f, 0, 4, &w);
    assert_int_equal(members_forwarded(&f->m, row(f, 1), &w, &f->out),
                     row(f, 0));
    assert_int_equal(members_forwarded(&f->m, row(f, 1), &w, &f->out),
                     MEMBERS_NONE); /* a copy */
    forward_of(f, 0, 5, &w);
    w.bytes[1] ^= 1;
    assert_int_equal(members_forwarded(&f->m, row(f, 1), &w, &f->out),
                     MEMBERS_NONE);
    forward_of(f, 0, 6, &w);
    w.body.view.b[0]++;
    assert_int_equal(members_forwarded(&f->m, row(f, 1), &w, &f->out),
                     MEMBERS_NONE);
    forward_of(f, 0, 7, &w);
    w.sig[3] ^= 1;
    assert_int_equal(members_forwarded(&f->m, row(f, 1), &w, &f->out),
                     MEMBERS_NONE);
    forward_of(f, 0, 8, &w);
    assert_int_equal(members_forwarded(&f->m, row(f, 2), &w, &f->out),
                     row(f, 0));
}

static void only_members_are_forwarded_to_and_from(void **state)
{
    struct fixture *f = *state;
    struct forward w, got;
    uint32_t to;

    in_view(f, 2);
    assert_true(up(f, 4, 5)); /* linked, no member */
    forward_of(f, 0, 1, &w);
    w.body.to = f->peer[1].id;
    clear(f);
    (void)members_forwarded(&f->m, row(f, 0), &w, &f->out);
    assert_true(said(f, MESSAGE_FORWARD, &got, &to));
    assert_int_equal(to, 2);
    assert_memory_equal(&got.body, &w.body, sizeof w.body);
    clear(f);
    (void)members_forwarded(&f->m, row(f, 1), &w, &f->out);
    assert_int_equal(f->out.n, 0); /* not from its maker: a second hop */
    w.body.to = f->peer[4].id;
    (void)members_forwarded(&f->m, row(f, 0), &w, &f->out);
    assert_int_equal(f->out.n, 0);
    w.body.to = f->peer[1].id;
    (void)members_forwarded(&f->m, row(f, 4), &w, &f->out);
    assert_int_equal(f->out.n, 0);
}

/* A goodbye must not look like a death to who has no link to its sender. */
static void what_is_told_to_all_reaches_members_without_a_link(void **state)
{
    struct fixture *f = *state;
    struct goodbye bye = {.body = {.peer = f->self.id}}, got;
    struct forward w;
    uint32_t to;

    in_view(f, 2);
    assert_true(up(f, 4, 5)); /* linked, no member */
    members_link_down(&f->m, 1, f->now_ms);
    hears(f, 1, 0x7); /* member 1 hears member 0 */
    clear(f);
    members_tell_all(&f->m, &f->out, MESSAGE_GOODBYE, &bye);
    assert_int_equal(f->out.n, 3);
    assert_true(said(f, MESSAGE_GOODBYE, &got, &to));
    assert_true(said(f, MESSAGE_FORWARD, &w, &to));
    assert_int_equal(to, 2);
    assert_true(id_eq(&w.body.to, &f->peer[0].id));
    assert_int_equal(w.body.message, MESSAGE_GOODBYE);
}

static void what_is_passed_on_has_a_budget(void **state)
{
    struct fixture *f = *state;
    uint32_t passed = 0;
    struct forward w;

    in_view(f, 2);
    forward_of(f, 0, 1, &w);
    w.body.to = f->peer[1].id;
    w.n_bytes = MESSAGE_FORWARD_MAX;
    for (int i = 0; i < 100; i++) {
        clear(f);
        (void)members_forwarded(&f->m, row(f, 0), &w, &f->out);
        passed += f->out.n;
    }
    assert_in_range(passed, 1, 8);
    tick(f, 1000);
    clear(f);
    (void)members_forwarded(&f->m, row(f, 0), &w, &f->out);
    assert_int_equal(f->out.n, 1);
}

static void
rumour(struct fixture *f, int from, int about, uint8_t state, uint32_t inc)
{
    struct gossip g = {.n_rumours = 1};

    g.rumours[0] =
        (struct rumour){.id = about < 0 ? f->self.id : f->peer[about].id,
                        .incarnation = inc,
                        .state = state};
    members_on_gossip(&f->m, row(f, from), &g, &f->out);
}

static void neighbour(struct fixture *f, int who, uint8_t kind)
{
    struct neighbour n = {.kind = kind};

    clear(f);
    members_on_neighbour(&f->m, row(f, who), &n, &f->out);
}

static void who_hears_that_it_is_suspected_contradicts(void **state)
{
    struct fixture *f = *state;
    struct gossip g;
    uint32_t to;

    assert_true(up(f, 0, 1));
    neighbour(f, 0, NEIGHBOUR_ASK);
    tick(f, 100);
    rumour(f, 0, -1, PEER_DEAD, 6);
    assert_int_equal(f->m.self.incarnation, 7);
    tick(f, 100);
    assert_true(said(f, MESSAGE_GOSSIP, &g, &to));
    assert_int_equal(g.n_rumours, 1);
    assert_true(id_eq(&g.rumours[0].id, &f->self.id));
    assert_int_equal(g.rumours[0].state, PEER_ALIVE);
    assert_int_equal(g.rumours[0].incarnation, 7);
    rumour(f, 0, -1, PEER_DEAD, 6); /* an old one */
    assert_int_equal(f->m.self.incarnation, 7);
}

/* A peer that nobody knows, with an id of its own, dials us from 1.2.net.n of
 * `first`.2. */
static bool stranger(
    struct fixture *f, uint32_t n, uint8_t first, uint8_t net, uint32_t link)
{
    struct event e = {.type = EVENT_LINK_UP,
                      .now_ms = f->now_ms,
                      .link_up.link = link,
                      .link_up.inbound = true};
    struct identity id;

    identity_fake(&id, 10000 + n);
    e.link_up.peer = id.id;
    memcpy(e.link_up.public_key, id.public, 32);
    memcpy(e.link_up.address.ip,
           (uint8_t[16]){[10] = 255, 255, first, 2, net, (uint8_t)n}, 16);
    e.link_up.address.port = 4000;
    clear(f);
    return members_link_up(&f->m, &e.link_up, e.now_ms, &f->out);
}

/* Their links go down as they are hung up. */
static uint32_t hung_up(struct fixture *f)
{
    uint32_t n = 0;

    for (uint32_t i = 0; i < f->out.n; i++) {
        if (f->out.action[i].type == ACTION_HANG_UP) {
            (void)members_link_down(&f->m, f->out.action[i].hang_up.link,
                                    f->now_ms);
            n++;
        }
    }
    return n;
}

/* 60 came from 8.2.3.0/24, one from 8.2.4.0/24. */
static void expect_shown(const struct fixture *f)
{
    struct strangers_row rows[4];

    assert_int_equal(members_strangers(&f->m, rows, 4), 2);
    assert_int_equal(rows[0].from.ip[14], 3);
    assert_int_equal(rows[0].n_links, STRANGERS_OF_GROUP_MAX);
    assert_int_equal(rows[0].refused[STRANGER_LINKS],
                     60 - STRANGERS_OF_GROUP_MAX);
    assert_int_equal(rows[1].from.ip[14], 4);
    assert_int_equal(rows[1].n_links, 1);
    assert_int_equal(members_strangers(&f->m, rows, 1), 1); /* no more room */
}

/* Who forges is let in no more, nor is anybody of its network. */
static void a_network_that_forges_waits(void **state)
{
    struct fixture *f = *state;
    struct strangers_row row[1];
    struct identity id;
    uint8_t other[32] = {1};

    assert_true(stranger(f, 1, 8, 3, 1));
    assert_true(stranger(f, 2, 8, 3, 2));
    identity_fake(&id, 10001);
    for (int k = 0; k < 3; k++) { /* what somebody else spoilt is not its own */
        members_verified(&f->m, 1, other, false, &f->out);
    }
    assert_int_equal(count(f, ACTION_HANG_UP), 0);
    for (int k = 0; k < 3; k++) {
        assert_int_equal(count(f, ACTION_HANG_UP), 0);
        members_verified(&f->m, 1, id.public, false, &f->out);
    }
    assert_int_equal(hung_up(f), 1);
    assert_false(stranger(f, 3, 8, 3, 3));
    assert_true(stranger(f, 4, 8, 4, 4));
    assert_int_equal(members_strangers(&f->m, row, 1), 1);
    assert_int_equal(row[0].refused[STRANGER_WAITS], 1);
    assert_int_equal(row[0].waits_ms, 600000);
    f->now_ms += 600001;
    assert_true(stranger(f, 5, 8, 3, 5));
}

static void one_network_holds_few_links(void **state)
{
    struct fixture *f = *state;
    uint32_t n = 0;

    for (uint32_t i = 0; i < 60; i++) {
        n += stranger(f, i, 8, 3, 1 + i);
    }
    assert_int_equal(n, STRANGERS_OF_GROUP_MAX);
    assert_int_equal(f->m.counts.strangers, 60 - STRANGERS_OF_GROUP_MAX);
    assert_true(stranger(f, 60, 8, 4, 61)); /* another network */
    expect_shown(f);
    for (uint32_t i = 0; i < 60; i++) { /* behind one router many are honest */
        assert_true(stranger(f, 100 + i, 10, 3, 200 + i));
    }
}

static bool has_link(const struct fixture *f, uint32_t link)
{
    for (uint32_t i = 0; i < f->m.n_links_used; i++) {
        if (f->m.links[i].used && f->m.links[i].link == link) {
            return true;
        }
    }
    return false;
}

/* All have the same time to ask for what they need, and who fetches more. */
static void who_came_first_and_does_not_fetch_makes_room(void **state)
{
    const uint32_t most = LINKS_MAX - LINKS_RESERVED;
    struct fixture *f = *state;
    uint32_t fetches = 5;

    for (uint32_t i = 1; i <= 3 * most; i++) {
        f->now_ms++;
        assert_true(stranger(f, i, 127, 3, i));
        assert_int_equal(hung_up(f), i > most);
        if (i % 100 == 5) {
            members_fetch_served(&f->m, members_at(&f->m, fetches), 1);
        }
        assert_true(has_link(f, fetches) || i < fetches);
        assert_true(has_link(f, i > most - 2 ? i - (most - 2) + 1 : 1));
    }
    f->now_ms += 10000; /* it fetches no more */
    assert_true(stranger(f, 1000, 127, 3, 1000));
    assert_int_equal(hung_up(f), 1);
    assert_false(has_link(f, fetches));
}

/* Strangers that fetch a little each, as often as needed, and come again. */
static void who_fetches_leaves_others_their_seconds(void **state)
{
    const uint32_t most = LINKS_MAX - LINKS_RESERVED;
    struct fixture *f = *state;
    uint32_t honest = 2 * most;

    for (uint32_t i = 1; i <= honest + most / 2; i++) {
        f->now_ms += 20;
        assert_true(stranger(f, i, 127, 3, i));
        (void)hung_up(f);
        for (uint32_t k = 1; k <= i; k++) {
            if (k != honest && has_link(f, k)) {
                members_fetch_served(&f->m, members_at(&f->m, k), 1);
            }
        }
        assert_true(i < honest || has_link(f, honest));
    }
}

/* Frames of the first stranger in 10 s, while 60 others say too much. */
static uint32_t heard_in_a_crowd(struct fixture *f, uint64_t served)
{
    struct event_recv frame = {.message = MESSAGE_FETCH};
    uint32_t n = 0;

    for (uint32_t ms = 0; ms < 10000; ms++) {
        f->now_ms++;
        for (uint32_t i = 2; i <= 61; i++) {
            frame.link = i;
            frame.len = 30000;
            (void)members_affords(&f->m, &frame, false, f->now_ms);
        }
        frame.link = 1;
        frame.len = 100;
        if (members_affords(&f->m, &frame, false, f->now_ms)) {
            members_fetch_served(&f->m, members_at(&f->m, 1), served);
            n++;
        }
    }
    return n;
}

static void in_a_crowd_who_is_served_is_heard_more_often(void **state)
{
    struct fixture *f = *state;
    uint32_t little;

    for (uint32_t i = 1; i <= 61; i++) {
        f->now_ms++;
        assert_true(stranger(f, i, 127, 3, i));
    }
    (void)heard_in_a_crowd(f, 1); /* bursts */
    little = heard_in_a_crowd(f, 1);
    assert_true(heard_in_a_crowd(f, 262144) > 3 * little);
}

static void strangers_keep_nobody_out(void **state)
{
    struct fixture *f = *state;
    uint32_t n = 0, gone = 0;

    for (uint32_t i = 0; i < 1000; i++) { /* of one machine, say */
        assert_true(stranger(f, i, 127, 3, 1 + i));
        gone += hung_up(f);
    }
    assert_int_equal(1000 - gone, LINKS_MAX - LINKS_RESERVED);
    /* Who comes from elsewhere stays, however many come after it. */
    assert_true(stranger(f, 2000, 9, 9, 2000));
    (void)hung_up(f);
    for (uint32_t i = 0; i < 500; i++) {
        assert_true(stranger(f, 3000 + i, 127, 3, 3000 + i));
        (void)hung_up(f);
    }
    for (uint32_t i = 0; i < f->m.n_links_used; i++) {
        n += f->m.links[i].used && f->m.links[i].link == 2000;
    }
    assert_int_equal(n, 1);
    /* A member of the view has a link of its own. */
    assert_true(up(f, 0, 5000));
    (void)hung_up(f);
    watch(f, 0);
    (void)members_link_down(&f->m, 5000, f->now_ms);
    assert_true(up(f, 0, 5001));
    assert_int_equal(hung_up(f), 0);
}

/* Else a liar could name the highest number, and nothing would outdo it. */
static void nobody_uses_the_incarnations_up(void **state)
{
    static const uint32_t leaps[] = {(1U << 31) - 1, UINT32_MAX, 5,
                                     (1U << 31) + 4};
    struct fixture *f = *state;
    struct address a = {.port = 4009};

    assert_true(up(f, 0, 1));
    assert_true(members_learn(&f->m, &f->peer[3].id, &a, f->now_ms) >= 0);
    for (unsigned i = 0; i < sizeof leaps / sizeof leaps[0]; i++) {
        rumour(f, 0, -1, PEER_DEAD, leaps[i]);
        assert_int_equal(f->m.self.incarnation, leaps[i] + 1U);
        /* Another peer contradicts, too, and is believed. */
        rumour(f, 0, 3, PEER_DEAD, leaps[i]);
        assert_int_equal(f->m.peers[row(f, 3)].state, PEER_DEAD);
        rumour(f, 0, 3, PEER_ALIVE, leaps[i] + 1U);
        assert_int_equal(f->m.peers[row(f, 3)].state, PEER_ALIVE);
    }
}

static void later_statements_outdo_earlier_ones(void **state)
{
    static const struct {
        uint8_t state;
        uint32_t inc;
        uint8_t want;
    } steps[] = {
        {PEER_ALIVE, 1, PEER_ALIVE},     {PEER_SUSPECT, 0, PEER_ALIVE},
        {PEER_SUSPECT, 1, PEER_SUSPECT}, {PEER_ALIVE, 1, PEER_SUSPECT},
        {PEER_ALIVE, 2, PEER_ALIVE},     {PEER_DEAD, 2, PEER_DEAD},
        {PEER_SUSPECT, 2, PEER_DEAD},    {PEER_ALIVE, 3, PEER_ALIVE},
        {PEER_LEFT, 3, PEER_LEFT},
    };
    struct fixture *f = *state;
    struct address a = {.port = 4003};

    assert_true(up(f, 0, 1));
    assert_true(members_learn(&f->m, &f->peer[3].id, &a, f->now_ms) >= 0);
    for (size_t i = 0; i < sizeof steps / sizeof steps[0]; i++) {
        rumour(f, 0, 3, steps[i].state, steps[i].inc);
        assert_int_equal(f->m.peers[row(f, 3)].state, steps[i].want);
        assert_int_equal(members_n_alive(&f->m),
                         steps[i].want <= PEER_SUSPECT ? 1U : 0U);
    }
}

static void a_rumour_goes_once_to_each_neighbour_but_its_source(void **state)
{
    struct fixture *f = *state;
    uint32_t n = 0;

    for (int who = 0; who < 3; who++) {
        assert_true(up(f, who, (uint32_t)who + 1));
        neighbour(f, who, NEIGHBOUR_ASK);
    }
    tick(f, 100);
    tick(f, 100); /* our own announcement is out */
    rumour(f, 0, 5, PEER_DEAD, 0);
    tick(f, 100);
    for (uint32_t i = 0; i < f->out.n; i++) {
        if (f->out.action[i].type == ACTION_SEND &&
            f->out.action[i].send.message == MESSAGE_GOSSIP) {
            assert_int_not_equal(f->out.action[i].send.link, 1);
            n++;
        }
    }
    assert_int_equal(n, 2);
    rumour(f, 1, 5, PEER_DEAD, 0); /* known */
    tick(f, 100);
    assert_false(count(f, ACTION_DIAL) > 0);
    for (uint32_t i = 0; i < f->out.n; i++) {
        assert_int_not_equal(f->out.action[i].send.message, MESSAGE_GOSSIP);
    }
}

/* Who slept, or lost a link, holds a suspicion that was contradicted meanwhile:
 * it is told, by the one that is meant as by any other. */
static void old_ill_word_is_answered_to_who_says_it(void **state)
{
    struct fixture *f = *state;
    struct address a = {.port = 4003};
    struct gossip g;
    uint32_t to;

    assert_true(up(f, 0, 1));
    assert_true(members_learn(&f->m, &f->peer[3].id, &a, f->now_ms) >= 0);
    neighbour(f, 0, NEIGHBOUR_ASK);
    tick(f, 100);
    rumour(f, 0, 3, PEER_ALIVE, 1);
    rumour(f, 0, -1, PEER_SUSPECT, 0);
    tick(f, 100);
    clear(f);
    rumour(f, 0, 3, PEER_DEAD, 0);
    rumour(f, 0, -1, PEER_DEAD, 0);
    assert_false(said(f, MESSAGE_GOSSIP, &g, &to)); /* it is on its way */
    for (int t = 0; t < 50; t++) {
        (void)members_heard(&f->m, 1, f->now_ms);
        tick(f, 100);
    }
    for (int about = 3; about >= -1; about -= 4) {
        clear(f);
        rumour(f, 0, about, PEER_DEAD, 0);
        assert_true(said(f, MESSAGE_GOSSIP, &g, &to));
        assert_int_equal(to, 1);
        assert_int_equal(g.n_rumours, 1);
        assert_true(id_eq(&g.rumours[0].id,
                          about < 0 ? &f->self.id : &f->peer[about].id));
        assert_int_equal(g.rumours[0].state, PEER_ALIVE);
        assert_int_equal(g.rumours[0].incarnation, 1);
        clear(f);
        rumour(f, 0, about, PEER_ALIVE, 0); /* old, but no ill word */
        assert_false(said(f, MESSAGE_GOSSIP, &g, &to));
    }
}

static void ill_of_a_peer_that_we_hear_is_told_to_it_alone(void **state)
{
    struct fixture *f = *state;
    struct gossip g;
    uint32_t to;

    assert_true(up(f, 0, 1));
    assert_true(up(f, 1, 2));
    tick(f, 100); /* so that there are some bytes for gossip */
    clear(f);
    rumour(f, 0, 1, PEER_DEAD, 0);
    assert_true(said(f, MESSAGE_GOSSIP, &g, &to));
    assert_int_equal(to, 2);
    assert_int_equal(g.rumours[0].state, PEER_SUSPECT);
    assert_int_equal(f->m.peers[row(f, 1)].state, PEER_SUSPECT);
    assert_int_equal(members_n_alive(&f->m), 2);
    for (int t = 0; t < 100; t++) { /* it is heard all the time */
        (void)members_heard(&f->m, 1, f->now_ms);
        (void)members_heard(&f->m, 2, f->now_ms);
        tick(f, 100);
    }
    assert_int_equal(f->m.peers[row(f, 1)].state, PEER_ALIVE);
}

static void a_silent_neighbour_is_suspected_before_it_is_dead(void **state)
{
    struct fixture *f = *state;

    assert_true(up(f, 0, 1));
    assert_true(up(f, 1, 2));
    neighbour(f, 0, NEIGHBOUR_ASK);
    tick(f, 0);
    for (int t = 0; t < 19; t++) {
        tick(f, 100);
        (void)members_heard(&f->m, 2, f->now_ms);
    }
    assert_true(f->m.peers[row(f, 0)].dialing); /* another connection? */
    assert_int_equal(f->m.peers[row(f, 0)].state, PEER_ALIVE);
    for (int t = 0; t < 3; t++) {
        tick(f, 100);
        (void)members_heard(&f->m, 2, f->now_ms);
    }
    assert_int_equal(f->m.peers[row(f, 0)].state, PEER_SUSPECT);
    rumour(f, 1, 0, PEER_ALIVE, 1); /* it contradicts, by others */
    for (int t = 0; t < 10; t++) {
        tick(f, 100);
        (void)members_heard(&f->m, 2, f->now_ms);
    }
    assert_int_equal(f->m.peers[row(f, 0)].state, PEER_ALIVE);
    assert_int_equal(f->m.counts.declared, 0);
    assert_false(members_linked(&f->m, row(f, 0))); /* that link is no good */
}

static void a_silent_neighbour_that_says_nothing_is_dead(void **state)
{
    struct fixture *f = *state;

    assert_true(up(f, 0, 1));
    neighbour(f, 0, NEIGHBOUR_ASK);
    for (int t = 0; t < 31; t++) {
        tick(f, 100);
    }
    assert_int_equal(f->m.peers[row(f, 0)].state, PEER_DEAD);
    assert_int_equal(f->m.counts.declared, 1);
    assert_int_equal(f->m.n_active, 0);
}

/* A lost packet holds up a connection, not the peer: nobody else hears of it.
 */
static void a_new_connection_settles_a_suspicion_quietly(void **state)
{
    struct fixture *f = *state;
    struct gossip g;
    uint32_t to;

    assert_true(up(f, 0, 1));
    assert_true(up(f, 1, 2));
    neighbour(f, 0, NEIGHBOUR_ASK);
    neighbour(f, 1, NEIGHBOUR_ASK);
    for (int t = 0; t < 19; t++) {
        tick(f, 100);
        (void)members_heard(&f->m, 2, f->now_ms);
    }
    assert_true(f->m.peers[row(f, 0)].dialing);
    f->now_ms += 100;
    assert_true(up(f, 0, 3));
    for (int t = 0; t < 12; t++) {
        tick(f, 100);
        (void)members_heard(&f->m, 2, f->now_ms);
        assert_true(!said(f, MESSAGE_GOSSIP, &g, &to) ||
                    id_eq(&g.peers[0].id, &f->m.opt.self));
        assert_int_equal(f->m.peers[row(f, 0)].state, PEER_ALIVE);
    }
}

static void nobody_has_more_neighbours_than_it_wants(void **state)
{
    struct fixture *f = *state;
    struct neighbour got;
    uint32_t to;

    members_want_links(&f->m, 3);
    for (int who = 0; who < 4; who++) {
        assert_true(up(f, who, (uint32_t)who + 1));
        neighbour(f, who, NEIGHBOUR_ASK);
        assert_true(said(f, MESSAGE_NEIGHBOUR, &got, &to));
        assert_int_equal(got.kind, who < 3 ? NEIGHBOUR_YES : NEIGHBOUR_NO);
    }
    neighbour(f, 3, NEIGHBOUR_ASK_URGENT); /* one makes room and is told */
    assert_int_equal(f->m.n_active, 3);
    assert_true(f->m.peers[row(f, 3)].active);
    assert_true(said(f, MESSAGE_NEIGHBOUR, &got, &to));
    assert_int_equal(got.kind, NEIGHBOUR_NO);
    assert_in_range(to, 1, 3);
    neighbour(f, 3, NEIGHBOUR_NO);
    assert_int_equal(f->m.n_active, 2);
}

/* Which of the peers are told so now: bit k is peer k, whose link is k + 1. */
static uint32_t told(const struct fixture *f, uint8_t kind)
{
    uint32_t who = 0;

    for (uint32_t i = 0; i < f->out.n; i++) {
        const struct action *a = &f->out.action[i];
        struct neighbour got;

        if (a->type == ACTION_SEND && a->send.message == MESSAGE_NEIGHBOUR) {
            assert_int_equal(msg_decode(&neighbour_schema,
                                        f->out.bytes + a->send.bytes.at,
                                        a->send.bytes.len, &got),
                             0);
            who |= got.kind == kind ? 1U << (a->send.link - 1) : 0;
        }
    }
    return who;
}

static uint32_t asked(const struct fixture *f)
{
    return told(f, NEIGHBOUR_ASK) | told(f, NEIGHBOUR_ASK_URGENT);
}

/* Six peers are linked: how many are asked by somebody who wants so many. */
static uint32_t n_asked(struct fixture *f, uint32_t wanted)
{
    members_want_links(&f->m, wanted);
    for (int who = 0; who < 6; who++) {
        assert_true(up(f, who, (uint32_t)who + 1));
    }
    tick(f, 1);
    return (uint32_t)__builtin_popcount(asked(f));
}

/* Who founds a view needs links to many; the others leave room for those who
 * ask them. */
static void a_few_are_asked_unless_many_are_wanted(void **state)
{
    static const uint32_t n[][2] = {{0, 0}, {3, 3}, {5, 5}, {8, 5}, {9, 6}};

    for (size_t i = 0; i < sizeof n / sizeof n[0]; i++) {
        (void)close_fixture(state);
        (void)open_fixture(state);
        assert_int_equal(n_asked(*state, n[i][0]), n[i][1]);
    }
}

static void
an_answer_that_comes_when_all_places_are_taken_is_too_late(void **state)
{
    struct fixture *f = *state;
    struct pulse p = {.flags = PULSE_KEEP | PULSE_ACTIVE};
    uint32_t left, late;

    assert_int_equal(n_asked(f, 3), 3);
    left = asked(f);
    late = (uint32_t)__builtin_ctz(left);
    for (int who = 0; who < 6; who++) { /* others ask first */
        if ((left >> who & 1) == 0) {
            neighbour(f, who, NEIGHBOUR_ASK);
            assert_int_equal(told(f, NEIGHBOUR_YES), 1 << who);
        }
    }
    assert_int_equal(f->m.n_active, 3);
    neighbour(f, (int)late, NEIGHBOUR_YES);
    assert_int_equal(told(f, NEIGHBOUR_NO), 1 << late);
    neighbour(f, (int)late, NEIGHBOUR_NO); /* it has understood */
    clear(f);
    members_on_pulse(&f->m, row(f, (int)late), &p, &f->out); /* and forgotten */
    assert_int_equal(told(f, NEIGHBOUR_NO), 1 << late);
    assert_int_equal(f->m.n_active, 3);
}

/* A yes that nobody asked for. */
static void nobody_becomes_a_neighbour_unasked(void **state)
{
    struct fixture *f = *state;

    assert_true(up(f, 0, 1));
    neighbour(f, 0, NEIGHBOUR_YES);
    assert_int_equal(told(f, NEIGHBOUR_NO), 1);
    assert_int_equal(f->m.n_active, 0);
}

static void neighbours_that_are_too_many_are_told_to_go(void **state)
{
    struct fixture *f = *state;
    uint32_t gone = 0;

    assert_int_equal(n_asked(f, 20), 6);
    for (int who = 0; who < 6; who++) {
        neighbour(f, who, NEIGHBOUR_YES);
    }
    assert_int_equal(f->m.n_active, 6);
    members_want_links(&f->m, 2); /* the view is founded */
    for (int k = 0; k < 6; k++) {
        tick(f, 10);
        gone |= told(f, NEIGHBOUR_NO);
    }
    assert_int_equal(f->m.n_active, 2);
    assert_int_equal(__builtin_popcount(gone), 4);
}

/* It is none of ours, and we ask nobody to be one. */
static void a_link_that_nobody_keeps_is_closed(void **state)
{
    struct fixture *f = *state;

    members_want_links(&f->m, 0);
    assert_true(up(f, 0, 1));
    tick(f, 7900);
    assert_int_equal(asked(f), 0);
    assert_int_equal(count(f, ACTION_HANG_UP), 0);
    members_used(&f->m, 1, 0x20); /* somebody asks the DHT */
    tick(f, 7900);
    assert_int_equal(asked(f), 0);
    assert_int_equal(count(f, ACTION_HANG_UP), 0);
    tick(f, 200);
    assert_int_equal(count(f, ACTION_HANG_UP), 1);
}

static void a_missed_heartbeat_is_asked_for(void **state)
{
    struct fixture *f = *state;
    struct heartbeat beat = {.life = 3, .number = 4};
    struct pulse p = {.flags = PULSE_KEEP, .number = 4};
    uint32_t to;

    assert_true(up(f, 0, 1));
    members_guest(&f->m, row(f, 0), true);
    members_beat(&f->m, row(f, 0), &beat, f->now_ms);
    members_on_pulse(&f->m, row(f, 0), &p, &f->out);
    tick(f, 10);
    p.number = 5;
    members_on_pulse(&f->m, row(f, 0), &p, &f->out);
    tick(f, 10);
    assert_true(said(f, MESSAGE_PULSE, &p, &to));
    assert_true(p.flags & PULSE_ASK);
    /* And who is asked sends it. */
    p = (struct pulse){.flags = PULSE_ASK};
    members_on_pulse(&f->m, row(f, 0), &p, &f->out);
    tick(f, 10);
    assert_true(said(f, MESSAGE_HEARTBEAT, &beat, &to));
}

static void rows_of_the_long_dead_make_room(void **state)
{
    struct fixture *f = *state;
    struct address a = {.port = 4000};
    uint64_t rng = 3;
    uint32_t here = 0;

    assert_true(up(f, 0, 1));
    for (int k = 0; k < 3 * PEERS_MAX; k++) {
        struct peer_id id = {{0}};
        uint64_t word = rng_next(&rng);
        int r;

        memcpy(id.b, &word, sizeof word);
        r = members_learn(&f->m, &id, &a, f->now_ms);
        if (r != MEMBERS_NONE) {
            struct gossip g = {.n_rumours = 1};

            assert_int_equal(members_find(&f->m, &id), r);
            g.rumours[0] = (struct rumour){
                .id = id, .state = k < PEERS_MAX ? PEER_DEAD : PEER_ALIVE};
            members_on_gossip(&f->m, row(f, 0), &g, &f->out);
        }
    }
    for (uint32_t i = 0; i < f->m.n_peers; i++) {
        here += f->m.peers[i].state == PEER_ALIVE;
        assert_int_equal(members_find(&f->m, &f->m.peers[i].id), i);
    }
    assert_true(here > PEERS_MAX * 7 / 8);
    assert_true(members_linked(&f->m, row(f, 0)));
}

static void hear_links(struct fixture *f, uint32_t n)
{
    for (uint32_t link = 1; link <= n; link++) {
        (void)members_heard(&f->m, link, f->now_ms);
        members_used(&f->m, link, MESSAGE_FETCH);
    }
}

/* What the queue has forgotten is not news when another copy comes: a rumour
 * about somebody without a row would go round for ever. */
static void a_rumour_about_a_stranger_is_passed_on_once(void **state)
{
    struct fixture *f = fixture_of(16);
    uint64_t rumours;

    (void)state;
    for (int who = 0; who < 3; who++) {
        assert_true(up(f, who, (uint32_t)who + 1));
        neighbour(f, who, NEIGHBOUR_ASK);
    }
    for (int pass = 0; pass < 2; pass++) {
        rumours = f->m.counts.rumours;
        for (uint32_t k = 0; k < 2 * MEMBERS_RUMOURS_MAX - 100; k++) {
            struct gossip g = {.n_rumours = 1};
            struct peer_id id = {{1, 2, 3}}; /* each its own slot */

            id.b[4] = (uint8_t)k;
            id.b[5] = (uint8_t)(k >> 8);
            g.rumours[0] = (struct rumour){.id = id, .state = PEER_DEAD};
            members_on_gossip(&f->m, row(f, pass), &g, &f->out);
            tick(f, 100);
            hear_links(f, 3);
        }
    }
    assert_true(rumours > 2 * MEMBERS_RUMOURS_MAX);
    assert_true(f->m.counts.rumours == rumours);
    free(f);
}

/* `n` peers that nobody saw before are told to be alive. */
static void strangers(struct fixture *f, uint64_t *rng, int n)
{
    for (int k = 0; k < n; k++) {
        struct gossip g = {.n_peers = 1};
        uint64_t word = rng_next(rng);

        memcpy(g.peers[0].id.b, &word, sizeof word);
        memcpy(g.peers[0].address.ip, &word, sizeof word);
        g.peers[0].address.port = 4000;
        members_on_gossip(&f->m, row(f, 0), &g, &f->out);
        tick(f, 100);
        hear_links(f, 2);
    }
}

static void a_full_table_stays_a_sample_and_keeps_who_is_here(void **state)
{
    struct fixture *f = fixture_of(16);
    struct address a = {.port = 4000};
    int rows[3] = {0};
    uint64_t rng = 5;

    (void)state;
    assert_true(up(f, 0, 1));
    assert_true(up(f, 1, 2));
    strangers(f, &rng, 200);
    /* A view needs a row for each of its members. */
    for (int who = 2; who < 5; who++) {
        rows[who - 2] = members_name(&f->m, &f->peer[who].id, &a,
                                     f->peer[who].public, f->now_ms);
        assert_true(rows[who - 2] != MEMBERS_NONE);
    }
    strangers(f, &rng, 200);
    for (int who = 2; who < 5; who++) {
        assert_int_equal(row(f, who), rows[who - 2]);
    }
    members_watch(&f->m, rows + 1, 2, NULL, f->now_ms);
    strangers(f, &rng, 400);
    assert_int_equal(f->m.n_peers, 16);
    assert_int_equal(row(f, 2), MEMBERS_NONE); /* named no more */
    assert_int_equal(row(f, 3), rows[1]);
    up(f, 2, 3);
    for (int who = 0; who < 3; who++) {
        assert_true(members_linked(&f->m, row(f, who)));
    }
    free(f);
}

/* Fails all dials of this step; the state of the row that was probed, or -1. */
static int fail_dials(struct fixture *f)
{
    int probed = -1;

    for (uint32_t i = 0; i < f->out.n; i++) {
        const struct action *a = &f->out.action[i];
        struct event e = {.type = EVENT_DIAL_FAILED,
                          .dial_failed.rc = LOCO_ETIMEOUT,
                          .now_ms = f->now_ms,
                          .dial_failed.request = a->dial.request};

        if (a->type == ACTION_DIAL && a->dial.request < f->m.n_peers) {
            const struct member *p = &f->m.peers[a->dial.request];

            probed = p->probed ? p->state : probed;
            members_dial_failed(&f->m, e.dial_failed.request, e.dial_failed.rc,
                                e.now_ms);
        }
    }
    return probed;
}

/* Peer 0 names so many peers, at one address or each at its own, and they are
 * all wanted; dials in the next seconds. */
static uint32_t
dials_of_named(struct fixture *f, uint32_t n, bool at_one, uint32_t seconds)
{
    uint32_t dials = 0;

    for (uint32_t k = 0; k < n; k++) {
        struct gossip g = {.n_peers = 1};
        struct peer_id id = {{0x66, (uint8_t)k, 1}};

        g.peers[0].id = id;
        memcpy(g.peers[0].address.ip,
               (uint8_t[16]){[10] = 255, 255, 9, 9, at_one ? 9 : (uint8_t)k, 9},
               16);
        g.peers[0].address.port = 4000;
        members_on_gossip(&f->m, row(f, 0), &g, &f->out);
        members_want(&f->m, members_find(&f->m, &id), true);
    }
    for (uint32_t t = 0; t < seconds * 10; t++) {
        hear_links(f, 1);
        tick(f, 100);
        dials += count(f, ACTION_DIAL);
        (void)fail_dials(f);
    }
    return dials;
}

static void an_address_that_many_ids_have_is_dialled_once_a_minute(void **state)
{
    struct fixture *f = *state;

    assert_true(up(f, 0, 1));
    assert_int_equal(dials_of_named(f, 200, true, 59), 1);
    assert_int_equal(dials_of_named(f, 200, true, 59), 1);
}

/* 4 a second, and a burst of 16. */
static void named_addresses_are_dialled_slowly(void **state)
{
    struct fixture *f = *state;

    assert_true(up(f, 0, 1));
    assert_in_range(dials_of_named(f, 200, false, 20), 16 + 4 * 20 - 1,
                    16 + 4 * 20);
}

static void a_member_is_dialled_whatever_strangers_named(void **state)
{
    struct fixture *f = *state;
    struct address a = {.port = 4000};
    uint32_t n = 0;

    assert_true(up(f, 0, 1));
    (void)dials_of_named(f, 200, false, 5);
    memcpy(a.ip, (uint8_t[16]){[10] = 255, 255, 9, 9, 9, 1}, 16);
    assert_true(members_name(&f->m, &f->peer[2].id, &a, f->peer[2].public,
                             f->now_ms) != MEMBERS_NONE);
    watch(f, 2);
    for (int t = 0; t < 20; t++) {
        tick(f, 100);
        for (uint32_t i = 0; i < f->out.n; i++) {
            n += f->out.action[i].type == ACTION_DIAL &&
                 id_eq(&f->out.action[i].dial.peer, &f->peer[2].id);
        }
        (void)fail_dials(f);
    }
    assert_true(n >= 2);
}

/* Who is dead does not answer, and tables are compared with the others. */
static void of_two_probes_one_is_of_a_live_peer(void **state)
{
    struct fixture *f = *state;
    uint32_t n = 0, n_dead = 0;
    uint64_t rng = 5;
    int last = -1;

    for (int who = 0; who < 5; who++) { /* enough: no others are dialled */
        assert_true(up(f, who, (uint32_t)who + 1));
        neighbour(f, who, NEIGHBOUR_ASK);
    }
    strangers(f, &rng, 60);
    for (uint32_t i = 0; i < f->m.n_peers; i += 2) {
        if (f->m.peers[i].n_links == 0) {
            struct gossip g = {.n_rumours = 1};

            g.rumours[0] =
                (struct rumour){.id = f->m.peers[i].id, .state = PEER_DEAD};
            members_on_gossip(&f->m, row(f, 0), &g, &f->out);
        }
    }
    for (int t = 0; t < 6000 && n < 30; t++) {
        int probed;

        hear_links(f, 5);
        tick(f, 100);
        probed = fail_dials(f);
        if (probed >= 0) {
            assert_false(probed == PEER_DEAD && last == PEER_DEAD);
            last = probed;
            n_dead += probed == PEER_DEAD;
            n++;
        }
    }
    assert_int_equal(n, 30);
    assert_in_range(n_dead, 14, 15);
}

#define T(name)                                                                \
    cmocka_unit_test_setup_teardown(name, open_fixture, close_fixture)

int main(void)
{
    const struct CMUnitTest tests[] = {
        T(a_network_that_forges_waits),
        T(an_address_that_many_ids_have_is_dialled_once_a_minute),
        T(named_addresses_are_dialled_slowly),
        T(a_member_is_dialled_whatever_strangers_named),
        T(silence_loses_a_watched_peer_once),
        T(any_byte_is_a_sign_of_life),
        T(a_gap_of_the_own_process_loses_nobody),
        T(a_refused_dial_after_a_lost_link_loses_at_once),
        T(who_goes_from_the_view_without_a_link_is_doubted),
        T(another_failed_dial_is_no_refusal),
        T(an_old_refusal_says_nothing_about_the_next_loss),
        T(an_unreached_bootstrap_is_never_given_up),
        T(a_link_that_comes_back_in_time_loses_nobody),
        T(who_was_never_missed_gets_time_to_be_linked),
        T(of_two_links_the_lower_id_closes_the_older),
        T(one_peer_cannot_take_all_links),
        T(hearsay_does_not_keep_out_who_is_here),
        T(oneself_and_nobody_are_not_learnt),
        T(a_message_to_many_is_encoded_once),
        T(who_sent_data_since_the_last_tick_is_heard),
        T(a_member_that_others_hear_is_not_lost),
        T(the_word_of_a_silent_member_counts_for_nothing),
        T(who_stops_hearing_a_member_says_so_at_once),
        T(who_is_heard_by_others_alone_must_say_so_itself),
        T(a_gap_loses_nobody_who_is_heard_by_others),
        T(what_is_forwarded_takes_two_ways_each_time_others),
        T(forwards_may_overtake_each_other),
        T(a_forwarded_message_counts_once_and_only_as_it_was_signed),
        T(only_members_are_forwarded_to_and_from),
        T(what_is_told_to_all_reaches_members_without_a_link),
        T(what_is_passed_on_has_a_budget),
        T(who_hears_that_it_is_suspected_contradicts),
        T(nobody_uses_the_incarnations_up),
        T(one_network_holds_few_links),
        T(who_came_first_and_does_not_fetch_makes_room),
        T(who_fetches_leaves_others_their_seconds),
        T(in_a_crowd_who_is_served_is_heard_more_often),
        T(strangers_keep_nobody_out),
        T(later_statements_outdo_earlier_ones),
        T(a_rumour_goes_once_to_each_neighbour_but_its_source),
        T(old_ill_word_is_answered_to_who_says_it),
        T(of_two_probes_one_is_of_a_live_peer),
        T(ill_of_a_peer_that_we_hear_is_told_to_it_alone),
        T(a_silent_neighbour_is_suspected_before_it_is_dead),
        T(a_silent_neighbour_that_says_nothing_is_dead),
        T(a_new_connection_settles_a_suspicion_quietly),
        T(nobody_has_more_neighbours_than_it_wants),
        T(a_few_are_asked_unless_many_are_wanted),
        T(an_answer_that_comes_when_all_places_are_taken_is_too_late),
        T(nobody_becomes_a_neighbour_unasked),
        T(neighbours_that_are_too_many_are_told_to_go),
        T(a_link_that_nobody_keeps_is_closed),
        T(a_missed_heartbeat_is_asked_for),
        T(rows_of_the_long_dead_make_room),
        T(a_rumour_about_a_stranger_is_passed_on_once),
        T(a_full_table_stays_a_sample_and_keeps_who_is_here),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
