/* members_punch_test.c - two that nobody can dial meet, and what a liar gets.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "p2p/swarm/members.h"
#include "proto/base/err.h"
#include "proto/sign.h"

#define PEERS    80
#define RELAY    0 /* peers by number: a public one, */
#define OTHER    1 /* and one behind a router, as we are */
#define LINK(k)  ((uint32_t)(k) + 1)
#define PUNCH_MS 60000U
#define MAX_MS   3600000U
#define HOUR_MS  3600000U

struct fixture {
    struct members m;
    struct identity self, peer[PEERS];
    struct out out;
    uint64_t now_ms;
    bool near; /* RELAY is in our own network */
};

static struct address public_at(uint8_t net, uint8_t host, uint16_t port)
{
    return (struct address){.ip = {[10] = 0xff, 0xff, 11, 0, net, host},
                            .port = port};
}

static struct address v4(uint8_t a, uint8_t b, uint8_t c, uint8_t d, uint16_t p)
{
    return (struct address){.ip = {[10] = 0xff, 0xff, a, b, c, d}, .port = p};
}

static int row(const struct fixture *f, int who)
{
    return members_find(&f->m, &f->peer[who].id);
}

static void clear(struct fixture *f)
{
    f->out.n = f->out.n_bytes = f->out.dropped = 0;
}

static void tick(struct fixture *f, uint64_t after_ms)
{
    struct heartbeat beat = {0};

    f->now_ms += after_ms;
    for (int k = 0; k < PEERS; k++) {
        (void)members_heard(&f->m, LINK(k), f->now_ms);
        (void)members_heard(&f->m, LINK(k + PEERS), f->now_ms);
    }
    clear(f);
    members_tick(&f->m, f->now_ms, &beat, &f->out);
}

/* A link to that peer: direct, through RELAY (`relayed`), or by a meeting. */
enum kind { DIRECT, RELAYED, PUNCHED };
static void up(struct fixture *f, int who, uint32_t link, enum kind kind)
{
    struct event_link_up ev = {.link = link,
                               .inbound = kind == PUNCHED,
                               .request = UINT32_MAX,
                               .peer = f->peer[who].id,
                               .address = public_at((uint8_t)who, 1, 7700)};
    struct heartbeat beat = {.reach =
                                 who == RELAY ? REACH_PUBLIC : REACH_RESTRICTED,
                             .relays = who == RELAY};

    memcpy(ev.public_key, f->peer[who].public, 32);
    if (f->near && who == RELAY) {
        ev.address = v4(192, 168, 1, 9, 7700);
    }
    if (kind == RELAYED) {
        ev.relay = f->peer[RELAY].id;
        ev.address = (struct address){0};
    } else if (kind == PUNCHED) {
        ev.met_at = f->peer[RELAY].id;
    }
    (void)members_link_up(&f->m, &ev, f->now_ms, &f->out);
    members_beat(&f->m, row(f, who), &beat, f->now_ms);
}

/* As HELLO has agreed. */
static void meets(struct fixture *f, int who, bool does)
{
    members_features(&f->m, row(f, who), does ? HELLO_MEETS : 0);
}

/* We, of the higher or the lower id, are linked to OTHER through RELAY. */
static struct fixture *fixture_new(bool high)
{
    struct members_options opt = {.seed = 1,
                                  .heartbeat_ms = 400,
                                  .suspect_ms = 1200,
                                  .dead_ms = 2400,
                                  .redial_ms = 1000,
                                  .links_wanted = 8,
                                  .hedge_ms = 700,
                                  .upgrade_ms = 30000,
                                  .punch_ms = PUNCH_MS,
                                  .punch_max_ms = MAX_MS};
    struct fixture *f = calloc(1, sizeof *f + members_bytes(&opt));
    uint64_t seed = 100;

    assert_non_null(f);
    for (uint64_t i = 0; i < PEERS; i++) {
        identity_fake(&f->peer[i], i);
    }
    do {
        identity_fake(&f->self, seed++);
    } while ((id_cmp(&f->self.id, &f->peer[OTHER].id) > 0) != high);
    opt.self = f->self.id;
    f->now_ms = 10000;
    members_init(&f->m, &opt, f + 1, f->now_ms);
    members_set_reach(&f->m, REACH_RESTRICTED);
    up(f, RELAY, LINK(RELAY), DIRECT);
    up(f, OTHER, LINK(OTHER), RELAYED);
    meets(f, RELAY, true);
    meets(f, OTHER, true);
    for (int k = 0; k < 2; k++) {
        members_guest(&f->m, row(f, k), true);
    }
    return f;
}

static const struct action *action(const struct fixture *f,
                                   enum action_type type)
{
    for (uint32_t i = 0; i < f->out.n; i++) {
        if (f->out.action[i].type == type) {
            return &f->out.action[i];
        }
    }
    return NULL;
}

/* The dial by a meeting that was asked for just now. */
static const struct action_dial *meeting(const struct fixture *f)
{
    const struct action *a = action(f, ACTION_DIAL);

    return a != NULL && a->dial.meet ? &a->dial : NULL;
}

/* `by` says where it sees `who`: whether we dial there. */
static bool met(struct fixture *f, int who, int by, struct address at)
{
    struct event_met ev = {.meeting = 7,
                           .peer = f->peer[who].id,
                           .relay = f->peer[by].id,
                           .address = at};
    const struct action *a;

    clear(f);
    members_on_met(&f->m, &ev, f->now_ms, &f->out);
    a = action(f, ACTION_PUNCH);
    assert_non_null(a);
    assert_int_equal(a->punch.meeting, 7);
    assert_true(a->punch.address.port == 0 ||
                address_eq(&a->punch.address, &at));
    return a->punch.address.port != 0;
}

static void failed(struct fixture *f, uint64_t request)
{
    members_dial_failed(&f->m, request, LOCO_ETIMEOUT, f->now_ms);
}

static void two_behind_routers_meet_at_their_relay(void **state)
{
    struct fixture *f = fixture_new(true);
    const struct action_dial *d;
    struct address relay = public_at(RELAY, 1, 7700);

    (void)state;
    tick(f, 500);
    d = meeting(f);
    assert_non_null(d);
    assert_true(id_eq(&d->peer, &f->peer[OTHER].id));
    assert_true(id_eq(&d->relay, &f->peer[RELAY].id));
    assert_true(address_eq(&d->address, &relay));
    tick(f, 500);
    assert_null(meeting(f)); /* one at a time */
    up(f, OTHER, LINK(OTHER + PEERS), PUNCHED);
    assert_int_equal(action(f, ACTION_HANG_UP)->hang_up.link, LINK(OTHER));
    (void)members_link_down(&f->m, LINK(OTHER), f->now_ms);
    assert_false(members_relayed(&f->m, row(f, OTHER)));
    assert_true(members_punched(&f->m, row(f, OTHER)));
    assert_false(members_apart(&f->m, MEMBERS_NONE, row(f, OTHER)));
    free(f);
}

static void nobody_asks_for_a_meeting_that_cannot_be(void **state)
{
    struct {
        bool high, relay_meets, peer_meets, dialable;
    } cases[] = {
        {false, true, true, false}, /* the one with the higher id asks */
        {true, false, true, false}, /* the relay is of a version before */
        {true, true, false, false}, /* so is the peer */
        {true, true, true, true},   /* we can be dialled: CALL does it */
    };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct fixture *f = fixture_new(cases[i].high);

        meets(f, RELAY, cases[i].relay_meets);
        meets(f, OTHER, cases[i].peer_meets);
        members_set_reach(&f->m,
                          cases[i].dialable ? REACH_PUBLIC : REACH_RESTRICTED);
        for (int k = 0; k < 100; k++) {
            tick(f, 1000);
            assert_null(meeting(f));
        }
        free(f);
    }
}

/* How many meetings, all in vain, in a day; `dials`: they get to dialling. */
static unsigned in_a_day(bool dials)
{
    struct fixture *f = fixture_new(true);
    uint64_t end = f->now_ms + 24 * HOUR_MS, last = 0, gap = 0;
    unsigned n = 0;

    while (f->now_ms < end) {
        tick(f, 1000);
        if (meeting(f) != NULL) {
            uint64_t request = meeting(f)->request;

            n++;
            if (n > 2) {
                assert_true(f->now_ms - last >= gap);
            }
            gap = last == 0 ? 0 : f->now_ms - last;
            gap = gap > MAX_MS / 2 ? MAX_MS / 2 : gap;
            last = f->now_ms;
            if (dials) {
                assert_true(met(f, OTHER, RELAY, public_at(OTHER, 1, 5000)));
            }
            f->now_ms += 4000;
            failed(f, request);
        }
    }
    free(f);
    return n;
}

static void meetings_in_vain_become_rare(void **state)
{
    unsigned n;

    (void)state;
    n = in_a_day(true);
    assert_true(n >= 20 && n <= 32); /* 6 in the first hour, then 1 */
    n = in_a_day(false);
    assert_true(n >= 20 && n <= 36);
}

/* CALLED to a meeting: whether we come. */
static bool comes(struct fixture *f, int by, int who, struct address at)
{
    struct called msg = {
        .from = f->peer[who].id, .token = 9, .address.port = at.port};
    const struct action *a;

    memcpy(msg.address.ip, at.ip, sizeof at.ip);
    clear(f);
    members_on_called(&f->m, row(f, by), &msg, f->now_ms, &f->out);
    a = action(f, ACTION_RELAY_COME);
    assert_true(a == NULL || a->relay_come.meet);
    return a != NULL;
}

static void who_is_called_comes_for_a_peer_that_it_is_linked_to(void **state)
{
    struct fixture *f = fixture_new(false);
    struct address at = public_at(OTHER, 1, 40000);

    (void)state;
    assert_true(comes(f, RELAY, OTHER, at));
    assert_false(comes(f, RELAY, 5, at)); /* never heard of */
    up(f, 5, LINK(5), DIRECT);
    meets(f, 5, true);
    assert_false(comes(f, RELAY, 5, at));     /* it has a link */
    assert_false(comes(f, OTHER, OTHER, at)); /* through a relay itself */
    meets(f, OTHER, false);
    assert_false(comes(f, RELAY, OTHER, at));
    meets(f, OTHER, true);
    assert_false(comes(f, RELAY, OTHER, public_at(OTHER, 1, 80)));
    up(f, OTHER, LINK(OTHER + PEERS), PUNCHED);
    assert_true(comes(f, RELAY, OTHER, at)); /* for data */
    free(f);
}

static void a_relay_names_no_address_that_may_be_anybodys(void **state)
{
    struct fixture *f = fixture_new(true);
    struct address six = {.ip = {0xff, 2, [15] = 1}, .port = 4000};
    struct address nowhere = {.port = 4000};

    (void)state;
    assert_false(met(f, OTHER, RELAY, v4(11, 0, 9, 1, 1023))); /* a service */
    assert_false(met(f, OTHER, RELAY, v4(11, 0, 9, 1, 22)));
    assert_false(met(f, OTHER, RELAY, v4(192, 168, 1, 1, 4000)));
    assert_false(met(f, OTHER, RELAY, v4(10, 0, 0, 1, 4000)));
    assert_false(met(f, OTHER, RELAY, v4(127, 0, 0, 1, 4000)));
    assert_false(met(f, OTHER, RELAY, v4(169, 254, 1, 1, 4000)));
    assert_false(met(f, OTHER, RELAY, v4(224, 0, 0, 1, 4000)));
    assert_false(met(f, OTHER, RELAY, v4(255, 255, 255, 255, 4000)));
    assert_false(met(f, OTHER, RELAY, v4(0, 1, 2, 3, 4000)));
    assert_false(met(f, OTHER, RELAY, six));
    assert_false(met(f, OTHER, RELAY, nowhere));
    assert_int_equal(f->m.counts.refused, 11);
    assert_false(met(f, 5, RELAY, v4(11, 0, 9, 1, 4000))); /* no link to it */
    assert_false(met(f, OTHER, 5, v4(11, 0, 9, 1, 4000)));
    assert_true(met(f, OTHER, RELAY, v4(11, 0, 9, 1, 4000)));
    /* A relay in our own network may name its neighbours, never ourselves. */
    f->near = true;
    up(f, RELAY, LINK(RELAY + PEERS), DIRECT);
    assert_true(met(f, OTHER, RELAY, v4(192, 168, 1, 1, 4000)));
    assert_false(met(f, OTHER, RELAY, v4(127, 0, 0, 1, 4000)));
    free(f);
}

static void a_liar_has_few_dials_an_hour(void **state)
{
    struct fixture *f = fixture_new(true);
    unsigned n = 0;

    (void)state;
    for (unsigned s = 0; s < 3600; s++) { /* each time another network */
        f->now_ms += 1000;
        n += met(f, OTHER, RELAY,
                 v4(20, (uint8_t)(s >> 8), (uint8_t)s, 1, 4000));
    }
    assert_int_equal(n, 16);
    f->now_ms += 1000;
    assert_true(met(f, OTHER, RELAY, v4(21, 0, 0, 1, 4000)));
    free(f);
}

/* Many identities of one liar, all linked to us through its relay. */
static void many_liars_have_few_dials_an_hour_together(void **state)
{
    struct fixture *f = fixture_new(true);
    unsigned n = 0, most_in_a_minute = 0;

    (void)state;
    for (int k = 2; k < PEERS; k++) {
        up(f, k, LINK(k), RELAYED);
        meets(f, k, true);
    }
    for (unsigned minute = 0; minute < 60; minute++) {
        unsigned of_minute = 0;

        f->now_ms += 60000;
        for (int k = 2; k < PEERS; k++) { /* one victim, any port */
            of_minute +=
                met(f, k, RELAY,
                    v4(20, 0, 0, 1, (uint16_t)(2000 + 80 * minute + k)));
        }
        n += of_minute;
        most_in_a_minute =
            of_minute > most_in_a_minute ? of_minute : most_in_a_minute;
    }
    assert_true(most_in_a_minute > 0 && most_in_a_minute <= 8);
    assert_true(n > 0 && n <= 64);
    free(f);
}

static void data_meets_where_the_link_did(void **state)
{
    struct fixture *f = fixture_new(true);
    const struct action *a;

    (void)state;
    up(f, OTHER, LINK(OTHER + PEERS), PUNCHED);
    (void)members_link_down(&f->m, LINK(OTHER), f->now_ms);
    clear(f);
    members_bulk_open(&f->m, &f->out, row(f, OTHER));
    a = action(f, ACTION_BULK_OPEN);
    assert_non_null(a);
    assert_true(a->bulk_open.meet);
    assert_true(id_eq(&a->bulk_open.peer, &f->peer[OTHER].id));
    assert_true(id_eq(&a->bulk_open.relay, &f->peer[RELAY].id));
    /* There it is known to be: as often as it likes, on any port. */
    for (int k = 0; k < 100; k++) {
        assert_true(
            met(f, OTHER, RELAY, public_at(OTHER, 1, (uint16_t)(3000 + k))));
    }
    assert_true(met(f, OTHER, RELAY, public_at(OTHER, 2, 3000)));
    free(f);
}

#define T(name) cmocka_unit_test(name)

int main(void)
{
    const struct CMUnitTest tests[] = {
        T(two_behind_routers_meet_at_their_relay),
        T(nobody_asks_for_a_meeting_that_cannot_be),
        T(meetings_in_vain_become_rare),
        T(who_is_called_comes_for_a_peer_that_it_is_linked_to),
        T(a_relay_names_no_address_that_may_be_anybodys),
        T(a_liar_has_few_dials_an_hour),
        T(many_liars_have_few_dials_an_hour_together),
        T(data_meets_where_the_link_did),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
