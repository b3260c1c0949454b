/* members_punch_test.c - two that nobody can dial meet, and what a liar gets.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "p2p/swarm/members.h"
#include "p2p/swarm/transfer.h"
#include "proto/base/err.h"
#include "proto/sign.h"

#define PEERS    80
#define RELAY    0 /* peers by number: a public one, */
#define OTHER    1 /* and one behind a router, as we are; */
#define SECOND   2 /* another public one, where a test has it */
#define CROWD    10
#define LINK(k)  ((uint32_t)(k) + 1)
#define PUNCH_MS 60000U
#define MAX_MS   3600000U
#define HOUR_MS  3600000U

struct fixture {
    struct members m;
    struct identity self, peer[PEERS];
    struct out out;
    uint64_t now_ms;
    bool near;  /* RELAY is in our own network */
    bool crowd; /* from CROWD on they can be dialled, all in one network */
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

/* A link to that peer: direct, through RELAY, or by a meeting there that the
 * peer asked for, or that we did. */
enum kind { DIRECT, RELAYED, PUNCHED, ASKED };
static void up(struct fixture *f, int who, uint32_t link, enum kind kind)
{
    struct event_link_up ev = {.link = link,
                               .inbound = kind == PUNCHED,
                               .request = UINT32_MAX,
                               .peer = f->peer[who].id,
                               .address = public_at((uint8_t)who, 1, 7700)};
    bool crowd = f->crowd && who >= CROWD;
    bool public = who == RELAY || who == SECOND || crowd;
    struct heartbeat beat = {.reach = public ? REACH_PUBLIC : REACH_RESTRICTED,
                             .relays = public};

    memcpy(ev.public_key, f->peer[who].public, 32);
    if (f->near && who == RELAY) {
        ev.address = v4(192, 168, 1, 9, 7700);
    }
    if (crowd) {
        ev.address = public_at(200, (uint8_t)who, 7700);
    }
    if (kind == RELAYED) {
        ev.relay = f->peer[who == RELAY ? SECOND : RELAY].id;
        ev.address = (struct address){0};
    } else if (kind != DIRECT) {
        ev.met_at = f->peer[RELAY].id;
    }
    if (kind == ASKED) {
        ev.request = (4ULL << 32) + (uint64_t)row(f, who);
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
                           .request = (4ULL << 32) + (uint64_t)row(f, who),
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

/* Something is said on that link, HELLO or more. */
static void said(struct fixture *f, uint32_t link, uint16_t type)
{
    (void)members_heard(&f->m, link, f->now_ms);
    members_used(&f->m, link, type);
}

static void down(struct fixture *f, uint32_t link)
{
    (void)members_link_down(&f->m, link, f->now_ms);
}

/* Whether that link is hung up by what was done since clear(). */
static bool hangs_up(const struct fixture *f, uint32_t link)
{
    for (uint32_t i = 0; i < f->out.n; i++) {
        if (f->out.action[i].type == ACTION_HANG_UP &&
            f->out.action[i].hang_up.link == link) {
            return true;
        }
    }
    return false;
}

/* A link by a meeting, asked for by us or not, that works at both ends and has
 * taken the place of the relayed one. */
static void punch(struct fixture *f, enum kind kind)
{
    up(f, OTHER, LINK(OTHER + PEERS), kind);
    said(f, LINK(OTHER + PEERS), MESSAGE_HELLO);
    said(f, LINK(OTHER + PEERS), MESSAGE_PULSE);
    down(f, LINK(OTHER));
    clear(f);
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
    punch(f, ASKED);
    assert_false(members_relayed(&f->m, row(f, OTHER)));
    assert_true(members_punched(&f->m, row(f, OTHER)));
    assert_false(members_apart(&f->m, MEMBERS_NONE, row(f, OTHER)));
    free(f);
}

/* The other end has let it in when it speaks on it. */
static void
who_was_called_hangs_up_the_relayed_link_when_both_have_it(void **state)
{
    struct fixture *f = fixture_new(false);
    uint32_t link = LINK(OTHER + PEERS);

    (void)state;
    clear(f);
    up(f, OTHER, link, PUNCHED);
    said(f, link, MESSAGE_HELLO);
    assert_false(hangs_up(f, LINK(OTHER)));
    tick(f, 500);
    assert_false(hangs_up(f, LINK(OTHER)));
    assert_true(members_relayed(&f->m, row(f, OTHER))); /* is used still */
    said(f, link, MESSAGE_PULSE);
    assert_true(members_punched(&f->m, row(f, OTHER)));
    tick(f, 500);
    assert_true(hangs_up(f, LINK(OTHER)));
    assert_false(hangs_up(f, link));
    free(f);
}

static void who_asked_for_the_meeting_keeps_the_relayed_link(void **state)
{
    struct fixture *f = fixture_new(true);
    uint32_t link = LINK(OTHER + PEERS);

    (void)state;
    clear(f);
    up(f, OTHER, link, ASKED);
    said(f, link, MESSAGE_HELLO);
    said(f, link, MESSAGE_PULSE);
    assert_false(hangs_up(f, LINK(OTHER)));
    for (int k = 0; k < 20; k++) {
        tick(f, 500);
        assert_false(hangs_up(f, LINK(OTHER)) || hangs_up(f, link));
    }
    assert_true(members_punched(&f->m, row(f, OTHER)));
    free(f);
}

static void a_punched_link_that_dies_at_once_changes_nothing(void **state)
{
    struct fixture *f = fixture_new(false);

    (void)state;
    for (int k = 0; k < 2; k++) { /* before and after HELLO */
        up(f, OTHER, LINK(OTHER + PEERS), PUNCHED);
        if (k == 1) {
            said(f, LINK(OTHER + PEERS), MESSAGE_HELLO);
        }
        down(f, LINK(OTHER + PEERS));
        clear(f);
        tick(f, 500);
        assert_null(action(f, ACTION_HANG_UP));
        assert_true(members_relayed(&f->m, row(f, OTHER)));
        assert_int_equal(f->m.n_punched, 0);
    }
    free(f);
}

/* One by a meeting is direct when both ends have it. */
static void a_relayed_link_comes_beside_a_hole_that_never_worked(void **state)
{
    struct fixture *f = fixture_new(false);

    (void)state;
    up(f, OTHER, LINK(OTHER + PEERS), PUNCHED);
    said(f, LINK(OTHER + PEERS), MESSAGE_HELLO);
    down(f, LINK(OTHER));
    clear(f);
    up(f, OTHER, LINK(OTHER), RELAYED);
    assert_false(hangs_up(f, LINK(OTHER)));
    assert_true(members_relayed(&f->m, row(f, OTHER)));
    down(f, LINK(OTHER));
    said(f, LINK(OTHER + PEERS), MESSAGE_PULSE);
    clear(f);
    up(f, OTHER, LINK(OTHER), RELAYED);
    assert_true(hangs_up(f, LINK(OTHER)));
    free(f);
}

static void a_punched_link_takes_no_direct_ones_place(void **state)
{
    struct fixture *f = fixture_new(true);

    (void)state;
    up(f, OTHER, LINK(OTHER + PEERS), DIRECT);
    down(f, LINK(OTHER));
    clear(f);
    up(f, OTHER, LINK(OTHER), PUNCHED);
    assert_true(hangs_up(f, LINK(OTHER)));
    assert_false(hangs_up(f, LINK(OTHER + PEERS)));
    assert_false(members_punched(&f->m, row(f, OTHER)));
    free(f);
}

/* Who can be dialled by now is dialled, whatever the link was made by. */
static void a_punched_link_is_given_up_for_one_that_is_dialled(void **state)
{
    struct heartbeat public = {.reach = REACH_PUBLIC};
    struct fixture *f = fixture_new(true);
    const struct action *a = NULL;

    (void)state;
    punch(f, ASKED);
    members_beat(&f->m, row(f, OTHER), &public, f->now_ms);
    for (int k = 0; k < 80 && a == NULL; k++) {
        tick(f, 500);
        a = action(f, ACTION_DIAL);
    }
    assert_non_null(a);
    assert_true(id_eq(&a->dial.peer, &f->peer[OTHER].id));
    assert_true(id_is_zero(&a->dial.relay) && !a->dial.meet);
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

/* Where it is, anybody may have said: a link through another one proves no
 * address. */
static void nobody_dials_a_relay_that_is_reached_through_another(void **state)
{
    struct fixture *f = fixture_new(true);

    (void)state;
    up(f, SECOND, LINK(SECOND), DIRECT);
    meets(f, SECOND, true);
    down(f, LINK(RELAY));
    up(f, RELAY, LINK(RELAY + PEERS), RELAYED);
    meets(f, RELAY, true);
    for (int k = 0; k < 100; k++) {
        tick(f, 1000);
        assert_true(meeting(f) == NULL ||
                    !id_eq(&meeting(f)->relay, &f->peer[RELAY].id));
    }
    free(f);
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

/* How many meetings in a day make a hole that is gone after `lasts_ms`. */
static unsigned made_in_a_day(uint64_t lasts_ms)
{
    struct fixture *f = fixture_new(true);
    uint64_t end = f->now_ms + 24 * HOUR_MS;
    unsigned n = 0;

    while (f->now_ms < end) {
        tick(f, 1000);
        if (meeting(f) != NULL) {
            n++;
            punch(f, ASKED);
            for (uint64_t ms = 0; ms < lasts_ms; ms += 1000) {
                tick(f, 1000);
            }
            down(f, LINK(OTHER + PEERS));
            up(f, OTHER, LINK(OTHER), RELAYED);
            meets(f, OTHER, true);
        }
    }
    free(f);
    return n;
}

static void holes_that_die_young_become_rare(void **state)
{
    unsigned n;

    (void)state;
    n = made_in_a_day(5000);
    assert_true(n >= 20 && n <= 32); /* as where there are none */
    n = made_in_a_day(HOUR_MS);      /* one that lasts is made again at once */
    assert_true(n >= 22 && n <= 24);
}

/* Ticks to the next meeting, in s. */
static unsigned until_meeting(struct fixture *f)
{
    unsigned s = 0;

    do {
        tick(f, 1000);
        assert_true(++s < 24 * 3600);
    } while (meeting(f) == NULL);
    return s;
}

/* A hole is made, lasts so long, and is gone. */
static void hole(struct fixture *f, unsigned lasts_s)
{
    punch(f, ASKED);
    for (unsigned s = 0; s < lasts_s; s++) {
        tick(f, 1000);
    }
    down(f, LINK(OTHER + PEERS));
    up(f, OTHER, LINK(OTHER), RELAYED);
    meets(f, OTHER, true);
}

static void
a_hole_that_died_young_counts_as_young_however_late_it_is_made_again(
    void **state)
{
    struct fixture *f = fixture_new(true);

    (void)state;
    (void)until_meeting(f);
    hole(f, 60);
    meets(f, OTHER, false); /* nobody meets */
    for (unsigned s = 0; s < 1800; s++) {
        tick(f, 1000);
    }
    meets(f, OTHER, true);
    assert_true(until_meeting(f) < 5);
    hole(f, 1);
    assert_in_range(until_meeting(f), 115, 155); /* twice PUNCH_MS */
    hole(f, 1500); /* ten minutes and more, however late */
    meets(f, OTHER, false);
    for (unsigned s = 0; s < 1800; s++) {
        tick(f, 1000);
    }
    meets(f, OTHER, true);
    (void)until_meeting(f);
    hole(f, 1);
    assert_in_range(until_meeting(f), 55, 80);
    free(f);
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
    punch(f, PUNCHED);
    assert_true(comes(f, RELAY, OTHER, at)); /* for data */
    free(f);
}

static void only_the_relay_of_a_link_or_one_that_serves_introduces(void **state)
{
    struct fixture *f = fixture_new(false);
    struct address at = public_at(OTHER, 1, 40000);
    struct heartbeat full = {.reach = REACH_PUBLIC};

    (void)state;
    up(f, 5, LINK(5), DIRECT); /* linked, and no relay */
    meets(f, 5, true);
    assert_false(comes(f, 5, OTHER, at));
    assert_false(met(f, OTHER, 5, at));
    up(f, SECOND, LINK(SECOND), DIRECT);
    assert_false(met(f, OTHER, SECOND, at)); /* knows no meetings */
    meets(f, SECOND, true);
    assert_true(comes(f, SECOND, OTHER, at));
    assert_true(met(f, OTHER, SECOND, at));
    members_beat(&f->m, row(f, SECOND), &full, f->now_ms);
    assert_false(met(f, OTHER, SECOND, public_at(9, 1, 40000)));
    members_beat(&f->m, row(f, RELAY), &full, f->now_ms); /* relieved by it */
    assert_true(met(f, OTHER, RELAY, public_at(9, 1, 40000)));
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
    assert_false(met(f, OTHER, RELAY, v4(192, 168, 2, 1, 4000)));
    assert_false(met(f, OTHER, RELAY, v4(10, 0, 0, 1, 4000)));
    assert_false(met(f, OTHER, RELAY, v4(127, 0, 0, 1, 4000)));
    free(f);
}

/* How many dials that one has in an hour, each time to another network. */
static unsigned in_an_hour(struct fixture *f, int by)
{
    unsigned n = 0;

    for (unsigned s = 0; s < 3600; s++) {
        f->now_ms += 1000;
        n += met(f, OTHER, by, v4(20, (uint8_t)(s >> 8), (uint8_t)s, 1, 4000));
    }
    f->now_ms += 1000;
    return n;
}

static void a_liar_has_few_dials_an_hour(void **state)
{
    struct fixture *f = fixture_new(true);

    (void)state;
    members_guest(&f->m, row(f, RELAY), false);
    assert_int_equal(in_an_hour(f, RELAY), 16); /* a stranger */
    assert_int_equal(in_an_hour(f, RELAY), 16); /* another hour */
    members_guest(&f->m, row(f, RELAY), true);
    assert_int_equal(in_an_hour(f, RELAY), 64); /* a guest */
    free(f);
}

/* It asks its relay, which is honest, for one meeting after the other. */
static void
one_that_meets_again_and_again_leaves_half_of_its_relays_hour(void **state)
{
    struct fixture *f = fixture_new(true);
    unsigned n = 0, of_others = 0;

    (void)state;
    for (unsigned k = 0; k < 300; k++) {
        f->now_ms += 10000;
        n += met(f, OTHER, RELAY, v4(20, 0, 1, (uint8_t)k, 4000));
    }
    assert_int_equal(n, 32);
    for (unsigned k = 0; k < 50; k++) {
        f->now_ms += 10000;
        of_others += met(f, OTHER, RELAY, v4(21, 0, (uint8_t)k, 1, 4000));
    }
    assert_int_equal(of_others, 32);
    free(f);
}

/* Strangers that serve as relays, and lie: one machine with many keys. */
static unsigned crowd(struct fixture *f, struct address at, bool elsewhere)
{
    unsigned n = 0;

    f->crowd = true;
    for (int k = CROWD; k < PEERS; k++) {
        up(f, k, LINK(k), DIRECT);
        meets(f, k, true);
    }
    for (unsigned k = 0; k < 1500; k++) {
        f->now_ms += 2000;
        at.port++;
        at.ip[13] = elsewhere ? (uint8_t)(k >> 8) : at.ip[13];
        at.ip[14] = elsewhere ? (uint8_t)k : at.ip[14];
        n += met(f, OTHER, CROWD + (int)(k % (PEERS - CROWD)), at);
    }
    return n;
}

static void
many_keys_at_one_place_leave_half_of_what_strangers_have(void **state)
{
    struct fixture *f;

    (void)state;
    for (int proven = 0; proven < 2; proven++) {
        struct address at =
            proven ? public_at(OTHER, 1, 3000) : v4(21, 0, 0, 1, 3000);

        f = fixture_new(true);
        up(f, SECOND, LINK(SECOND), DIRECT); /* an honest stranger */
        meets(f, SECOND, true);
        punch(f, ASKED);
        assert_int_equal(crowd(f, at, !proven), proven ? 128 : 32);
        for (int k = 0; k < 8; k++) {
            f->now_ms += 10000;
            at.port++;
            assert_true(met(f, OTHER, SECOND, at));
        }
        free(f);
    }
}

static void punched(struct fixture *f, struct address at, bool is_up)
{
    struct event_punched ev = {.address = at, .up = is_up};

    members_on_punched(&f->m, &ev, f->now_ms);
}

/* How often an address is dialled in an hour, as whoever was called. */
static unsigned dialled_in_an_hour(bool answers)
{
    struct fixture *f = fixture_new(false);
    struct address at = v4(20, 0, 0, 1, 4000);
    unsigned n = 0;

    for (unsigned s = 0; s < 3600; s++) {
        f->now_ms += 1000;
        if (met(f, OTHER, RELAY, at)) {
            n++;
            f->now_ms += 4000;
            punched(f, at, answers);
        }
    }
    free(f);
    return n;
}

static void
who_is_called_dials_where_nobody_answers_ever_more_seldom(void **state)
{
    (void)state;
    assert_in_range(dialled_in_an_hour(false), 5, 7);  /* 1, 2, 4, .. min */
    assert_in_range(dialled_in_an_hour(true), 32, 40); /* all that it may */
}

/* A meeting for a link and one for data may go on at a time. */
static void each_dial_is_noted_for_itself(void **state)
{
    struct fixture *f = fixture_new(true);
    struct address link = v4(20, 0, 0, 1, 4000), bulk = v4(21, 0, 0, 1, 4000);

    (void)state;
    assert_true(met(f, OTHER, RELAY, link));
    assert_true(met(f, OTHER, RELAY, bulk));
    for (int k = 0; k < 2; k++) { /* twice in vain */
        punched(f, link, false);
    }
    punched(f, bulk, true);
    f->now_ms += 61000;
    assert_false(met(f, OTHER, RELAY, link));
    assert_true(met(f, OTHER, RELAY, bulk));
    free(f);
}

/* Many that found a run at once: most have to come again. */
static void a_dial_that_is_refused_for_now_costs_nothing(void **state)
{
    struct fixture *f = fixture_new(true);
    unsigned n = 0;

    (void)state;
    for (unsigned k = 0; k < 200; k++) {
        n += met(f, OTHER, RELAY, v4(20, 1, (uint8_t)k, 1, 4000));
    }
    assert_in_range(n, 1, 32); /* what may be dialled at once */
    for (unsigned k = 0; k < 200; k++) {
        f->now_ms += 1000;
        n += met(f, OTHER, RELAY, v4(20, 2, (uint8_t)k, 1, 4000));
    }
    assert_int_equal(n, 64); /* all of the hour */
    free(f);
}

/* Who lies of a peer does not spend what an honest relay has for it. */
static void who_says_an_address_is_charged_for_it(void **state)
{
    struct fixture *f = fixture_new(true);

    (void)state;
    up(f, SECOND, LINK(SECOND), DIRECT);
    meets(f, SECOND, true);
    for (unsigned k = 0; k < 600; k++) {
        f->now_ms += 1000;
        (void)met(f, OTHER, SECOND, v4(20, 0, (uint8_t)k, 1, 4000));
    }
    assert_false(met(f, OTHER, SECOND, v4(21, 0, 0, 1, 4000)));
    assert_true(met(f, OTHER, RELAY, v4(21, 0, 0, 1, 4000)));
    free(f);
}

/* Many identities of one liar, all linked to us through its relay. */
static void many_liars_have_few_dials_an_hour_together(void **state)
{
    struct fixture *f = fixture_new(true);
    unsigned n = 0, most_in_a_minute = 0;

    (void)state;
    members_guest(&f->m, row(f, RELAY), false);
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

/* A data connection to OTHER is wanted: what is done for it. */
struct opened {
    bool relayed, met, plain, called;
    struct peer_id relay, at;
};

static struct opened data(struct fixture *f)
{
    struct opened o = {0};

    clear(f);
    f->m.now_ms = f->now_ms;
    members_bulk_open(&f->m, &f->out, row(f, OTHER));
    for (uint32_t i = 0; i < f->out.n; i++) {
        const struct action *a = &f->out.action[i];

        o.called = o.called || a->type == ACTION_SEND;
        if (a->type != ACTION_BULK_OPEN) {
            continue;
        }
        assert_true(id_eq(&a->bulk_open.peer, &f->peer[OTHER].id));
        if (a->bulk_open.meet) {
            o.met = true;
            o.at = a->bulk_open.relay;
        } else if (!id_is_zero(&a->bulk_open.relay)) {
            o.relayed = true;
            o.relay = a->bulk_open.relay;
        } else {
            o.plain = true;
        }
    }
    return o;
}

static void bulk_met(struct fixture *f, bool is_up, bool made)
{
    struct event_bulk_met ev = {
        .peer = f->peer[OTHER].id, .up = is_up, .made = made};

    members_on_bulk_met(&f->m, &ev, f->now_ms);
}

static void data_is_carried_while_the_two_meet_for_it(void **state)
{
    struct fixture *f = fixture_new(true);
    struct opened o;

    (void)state;
    o = data(f);
    assert_true(o.relayed && !o.met); /* the link goes through a relay, too */
    punch(f, ASKED);
    o = data(f);
    assert_true(o.relayed && o.met && !o.plain);
    assert_true(id_eq(&o.relay, &f->peer[RELAY].id));
    assert_true(id_eq(&o.at, &f->peer[RELAY].id));
    o = data(f);
    assert_true(o.relayed && !o.met); /* one at a time */
    bulk_met(f, true, false);         /* the other end's was there */
    assert_false(data(f).met);
    f->now_ms += 1000;
    assert_true(data(f).met);
    free(f);
}

/* Every second data is wanted, and there is no hole or none that lasts. */
static unsigned data_meetings_in_a_day(bool made)
{
    struct fixture *f = fixture_new(true);
    unsigned n = 0;

    punch(f, ASKED);
    for (unsigned s = 0; s < 24 * 3600; s++) {
        struct opened o;

        f->now_ms += 1000;
        (void)members_heard(&f->m, LINK(RELAY), f->now_ms);
        (void)members_heard(&f->m, LINK(OTHER + PEERS), f->now_ms);
        o = data(f);
        assert_true(o.relayed);
        if (o.met) {
            n++;
            bulk_met(f, made, made);
        }
    }
    free(f);
    return n;
}

static void meetings_for_data_become_rare(void **state)
{
    unsigned n;

    (void)state;
    n = data_meetings_in_a_day(false);
    assert_true(n >= 20 && n <= 36);
    n = data_meetings_in_a_day(true);
    assert_true(n >= 20 && n <= 36);
}

/* The relay is full, and still introduces those whom it carries. */
static void
where_nothing_carries_data_a_meeting_is_due_each_minute(void **state)
{
    struct fixture *f = fixture_new(true);
    struct heartbeat full = {.reach = REACH_PUBLIC};
    unsigned n = 0, rare = 0;

    (void)state;
    punch(f, ASKED);
    for (unsigned s = 0; s < 4 * 3600; s++) {
        bool is_full = s >= 3 * 3600;
        struct opened o;

        f->now_ms += 1000;
        (void)members_heard(&f->m, LINK(RELAY), f->now_ms);
        (void)members_heard(&f->m, LINK(OTHER + PEERS), f->now_ms);
        if (is_full) {
            members_beat(&f->m, row(f, RELAY), &full, f->now_ms);
        }
        o = data(f);
        assert_true(o.relayed != is_full);
        if (o.met) {
            n += is_full;
            rare += !is_full && s >= 2 * 3600;
            bulk_met(f, false, false);
        }
    }
    assert_in_range(rare, 0, 2);
    assert_in_range(n, 58, 61);
    free(f);
}

/* Data was wanted once, then not for half an hour: what is known of the hole?
 */
static void
a_hole_for_data_lasted_if_it_was_seen_after_ten_minutes(void **state)
{
    (void)state;
    for (int seen = 0; seen < 2; seen++) {
        struct fixture *f = fixture_new(true);
        unsigned s = 0;

        punch(f, ASKED);
        assert_true(data(f).met);
        bulk_met(f, true, true);
        f->now_ms += 700000;
        if (seen) {
            assert_true(data(f).met);
            bulk_met(f, true, false); /* it is there */
        }
        f->now_ms += 1100000;
        assert_true(data(f).met);
        bulk_met(f, true, true);
        do {
            f->now_ms += 500;
            s++;
        } while (!data(f).met);
        assert_in_range(s, seen ? 14 : 29, seen ? 20 : 39); /* 7.5 s or 15 */
        free(f);
    }
}

/* It began through the relay of the link. */
static void a_fetch_looks_for_a_hole_that_came_later(void **state)
{
    struct transfer_object o = {.buffer = BUFFER_STATE,
                                .leaves = BUFFER_KIND_COUNT,
                                .total = 1000,
                                .piece = 100,
                                .part = 100,
                                .sources = 1};
    struct fixture *f = fixture_new(true);
    struct transfer *t = calloc(1, sizeof *t);
    unsigned opened = 0;

    (void)state;
    assert_non_null(t);
    transfer_init(t, &f->m, 3600000, 1000);
    clear(f);
    assert_true(transfer_start(t, &o, f->now_ms, &f->out));
    transfer_source(t, row(f, OTHER), f->now_ms, &f->out);
    assert_false(action(f, ACTION_BULK_OPEN)->bulk_open.meet);
    clear(f);
    for (unsigned s = 0; s < 100; s++) { /* as long as there is no hole */
        f->now_ms += 1000;
        transfer_tick(t, f->now_ms, &f->out);
        assert_null(action(f, ACTION_BULK_OPEN));
    }
    punch(f, ASKED);
    for (unsigned s = 0; s < 1000; s++) {
        f->now_ms += 1000;
        f->m.now_ms = f->now_ms;
        (void)members_heard(&f->m, LINK(OTHER + PEERS), f->now_ms);
        clear(f);
        transfer_tick(t, f->now_ms, &f->out);
        for (uint32_t i = 0; i < f->out.n; i++) {
            if (f->out.action[i].type == ACTION_BULK_OPEN &&
                f->out.action[i].bulk_open.meet) {
                opened++;
                bulk_met(f, false, false); /* in vain */
            }
        }
    }
    assert_in_range(opened, 5, 8); /* 0, 7.5, 22.5 .. s */
    free(t);
    free(f);
}

static void a_relay_that_is_gone_is_asked_for_nothing(void **state)
{
    struct fixture *f = fixture_new(true);
    struct opened o;

    (void)state;
    up(f, SECOND, LINK(SECOND), DIRECT);
    meets(f, SECOND, true);
    punch(f, ASKED);
    down(f, LINK(RELAY));
    o = data(f);
    assert_false(o.relayed || o.met);
    assert_true(o.plain); /* who waits is told that it failed */
    assert_false(o.called);
    /* A fetch that goes on does not dial again and again. */
    assert_false(members_bulk_better(&f->m, row(f, OTHER), f->now_ms));
    members_set_reach(&f->m, REACH_PUBLIC);
    assert_true(data(f).called);
    members_set_reach(&f->m, REACH_RESTRICTED);
    /* It has told us of OTHER: they are linked, perhaps. */
    f->m.peers[row(f, OTHER)].way.via[0] = row(f, SECOND);
    assert_true(members_bulk_better(&f->m, row(f, OTHER), f->now_ms));
    o = data(f);
    assert_true(o.relayed && o.met && !o.plain);
    assert_true(id_eq(&o.relay, &f->peer[SECOND].id));
    assert_true(id_eq(&o.at, &f->peer[SECOND].id));
    free(f);
}

/* All four are members; the relay of the link says that it does not hear OTHER.
 */
static void a_relay_that_does_not_hear_the_peer_is_passed_over(void **state)
{
    struct fixture *f = fixture_new(true);
    struct hash32 view = {.b = {7, 1}};
    int rows[4];
    struct pulse pulse = {.view = 0x107, .hears = 15};
    struct opened o;

    (void)state;
    up(f, SECOND, LINK(SECOND), DIRECT);
    meets(f, SECOND, true);
    punch(f, ASKED);
    rows[0] = MEMBERS_NONE;
    rows[1] = row(f, RELAY);
    rows[2] = row(f, OTHER);
    rows[3] = row(f, SECOND);
    members_watch(&f->m, rows, 4, &view, f->now_ms);
    pulse.at = (uint16_t)(f->now_ms / 16);
    for (int k = 0; k < 3; k++) {
        (void)members_heard(&f->m, LINK(k == OTHER ? OTHER + PEERS : k),
                            f->now_ms);
        members_on_pulse(&f->m, row(f, k), &pulse, &f->out);
    }
    o = data(f);
    assert_true(o.relayed && id_eq(&o.relay, &f->peer[RELAY].id));
    assert_true(o.met && id_eq(&o.at, &f->peer[RELAY].id));
    bulk_met(f, false, false);
    f->now_ms += 20000;
    pulse.at = (uint16_t)(f->now_ms / 16);
    for (int k = 0; k < 3; k++) {
        (void)members_heard(&f->m, LINK(k == OTHER ? OTHER + PEERS : k),
                            f->now_ms);
        pulse.hears = k == RELAY ? 11 : 15;
        members_on_pulse(&f->m, row(f, k), &pulse, &f->out);
    }
    o = data(f);
    assert_true(o.relayed && id_eq(&o.relay, &f->peer[SECOND].id));
    assert_true(o.met && id_eq(&o.at, &f->peer[SECOND].id));
    free(f);
}

/* There it is known to be: on any port, whatever others had us dial. */
static void where_a_hole_comes_from_is_dialled_often(void **state)
{
    struct fixture *f = fixture_new(true);
    unsigned n = 0;

    (void)state;
    punch(f, ASKED);
    for (int k = 0; k < 1000; k++) {
        n += met(f, OTHER, RELAY, public_at(OTHER, 1, (uint16_t)(3000 + k)));
    }
    assert_int_equal(n, 128); /* in an hour: half of what its relay has */
    assert_true(met(f, OTHER, RELAY, public_at(OTHER, 2, 3000)));
    f->now_ms += HOUR_MS;
    assert_true(met(f, OTHER, RELAY, public_at(OTHER, 1, 3000)));
    free(f);
}

#define T(name) cmocka_unit_test(name)

int main(void)
{
    const struct CMUnitTest tests[] = {
        T(two_behind_routers_meet_at_their_relay),
        T(who_was_called_hangs_up_the_relayed_link_when_both_have_it),
        T(who_asked_for_the_meeting_keeps_the_relayed_link),
        T(a_punched_link_that_dies_at_once_changes_nothing),
        T(a_relayed_link_comes_beside_a_hole_that_never_worked),
        T(a_punched_link_takes_no_direct_ones_place),
        T(a_punched_link_is_given_up_for_one_that_is_dialled),
        T(nobody_asks_for_a_meeting_that_cannot_be),
        T(nobody_dials_a_relay_that_is_reached_through_another),
        T(meetings_in_vain_become_rare),
        T(holes_that_die_young_become_rare),
        T(a_hole_that_died_young_counts_as_young_however_late_it_is_made_again),
        T(who_is_called_comes_for_a_peer_that_it_is_linked_to),
        T(only_the_relay_of_a_link_or_one_that_serves_introduces),
        T(a_relay_names_no_address_that_may_be_anybodys),
        T(a_liar_has_few_dials_an_hour),
        T(one_that_meets_again_and_again_leaves_half_of_its_relays_hour),
        T(many_keys_at_one_place_leave_half_of_what_strangers_have),
        T(who_is_called_dials_where_nobody_answers_ever_more_seldom),
        T(each_dial_is_noted_for_itself),
        T(a_dial_that_is_refused_for_now_costs_nothing),
        T(who_says_an_address_is_charged_for_it),
        T(many_liars_have_few_dials_an_hour_together),
        T(data_is_carried_while_the_two_meet_for_it),
        T(meetings_for_data_become_rare),
        T(where_nothing_carries_data_a_meeting_is_due_each_minute),
        T(a_hole_for_data_lasted_if_it_was_seen_after_ten_minutes),
        T(a_fetch_looks_for_a_hole_that_came_later),
        T(a_relay_that_is_gone_is_asked_for_nothing),
        T(a_relay_that_does_not_hear_the_peer_is_passed_over),
        T(where_a_hole_comes_from_is_dialled_often),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
