/* dials_test.c - whom a stranger's word can make us dial, and how often. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "p2p/dht/dht.h"
#include "p2p/swarm/members.h"
#include "proto/base/rng.h"

#define WALL_S  1700000000U
#define CALLS   1000 /* that a liar says at once */
#define LINK    1
#define LIAR_AT 11 /* first byte of its address, which is global */
#define LAN_AT  10

static struct address at(uint8_t net, uint16_t port)
{
    return (struct address){.ip = {[10] = 0xff, 0xff, net, 0, 0, 1},
                            .port = port};
}

/* ---- CALLED ---------------------------------------------------------------
 */

struct table {
    struct members m;
    struct identity self, liar;
    struct out out;
    uint64_t now_ms;
    int row; /* of the liar */
};

static void tick(struct table *t, uint64_t after_ms)
{
    struct heartbeat beat = {0};

    t->now_ms += after_ms;
    t->out.n = t->out.n_bytes = t->out.dropped = 0;
    (void)members_heard(&t->m, LINK, t->now_ms);
    members_tick(&t->m, t->now_ms, &beat, &t->out);
}

/* With a liar that dialled us from that network. */
static struct table *table_new(uint8_t net)
{
    struct members_options opt = {.seed = 1,
                                  .heartbeat_ms = 400,
                                  .suspect_ms = 1200,
                                  .dead_ms = 2400,
                                  .redial_ms = 1000,
                                  .hedge_ms = 700,
                                  .upgrade_ms = 30000};
    struct table *t = calloc(1, sizeof *t + members_bytes(&opt));
    struct event_link_up e = {
        .link = LINK, .inbound = true, .address = at(net, 7700)};

    assert_non_null(t);
    identity_fake(&t->self, 1);
    identity_fake(&t->liar, 2);
    opt.self = t->self.id;
    t->now_ms = 10000;
    members_init(&t->m, &opt, t + 1, t->now_ms);
    e.request = UINT32_MAX;
    e.peer = t->liar.id;
    memcpy(e.public_key, t->liar.public, 32);
    (void)members_link_up(&t->m, &e, t->now_ms, &t->out);
    t->row = members_find(&t->m, &t->liar.id);
    return t;
}

/* The liar calls for `n` made-up peers at that address; connections that are
 * made for it, relayed ones too. */
static unsigned
called(struct table *t, unsigned n, struct address where, uint64_t token)
{
    unsigned dials = 0;

    t->out.n = 0;
    for (unsigned i = 0; i < n; i++) {
        struct called msg = {.address.port = where.port, .token = token};
        struct identity nobody;

        identity_fake(&nobody, 1000 + i);
        msg.from = nobody.id;
        memcpy(msg.address.ip, where.ip, sizeof where.ip);
        members_on_called(&t->m, t->row, &msg, t->now_ms, &t->out);
        dials += t->out.n > 0; /* comes to a relay */
        tick(t, 0);
        dials += t->out.n > 0 && t->out.action[0].type == ACTION_DIAL;
        t->out.n = 0;
    }
    return dials;
}

static void a_stranger_calls_sixteen_times_in_four_seconds(void **state)
{
    struct table *t = table_new(LIAR_AT);

    (void)state;
    assert_in_range(called(t, CALLS, at(12, 80), 0), 1, 16);
    assert_int_equal(t->m.counts.refused, CALLS - 16);
    tick(t, 3900);
    assert_int_equal(called(t, CALLS, at(12, 0), 5), 0);
    tick(t, 200);
    /* To meetings with peers that have no link to us we do not come. */
    assert_int_equal(called(t, CALLS, at(12, 4000), 5), 0);
    assert_int_equal(called(t, CALLS, at(12, 0), 5), 16); /* a relay's word */
    free(t);
}

static void a_member_of_the_view_calls_for_all_others(void **state)
{
    struct table *t = table_new(LIAR_AT);
    struct address liar_at = at(LIAR_AT, 7700);

    (void)state;
    t->row =
        members_name(&t->m, &t->liar.id, &liar_at, t->liar.public, t->now_ms);
    assert_int_equal(called(t, CALLS, at(12, 0), 5), 64);
    free(t);
}

static void nobody_outside_names_a_machine_of_our_network(void **state)
{
    struct table *t = table_new(LIAR_AT);

    (void)state;
    assert_int_equal(called(t, 1, at(LAN_AT, 80), 0), 0);
    assert_int_equal(called(t, 1, at(127, 80), 0), 0);
    assert_int_equal(t->m.n_peers, 1); /* nor is it remembered */
    assert_int_equal(called(t, 1, at(12, 80), 0), 1);
    free(t);
    t = table_new(LAN_AT); /* who is in it may */
    assert_int_equal(called(t, 1, at(LAN_AT, 80), 0), 1);
    free(t);
}

/* ---- GOSSIP ---------------------------------------------------------------
 */

#define VICTIM 99 /* first byte of its address */

/* The liar says that `n` made-up peers, others each time, are at ports `step`
 * apart of the victim's address, or of its network. */
static void
gossip(struct table *t, uint64_t first, unsigned n, uint16_t step, uint8_t host)
{
    struct gossip msg = {.n_peers = n};

    for (unsigned i = 0; i < n; i++) {
        struct peer_info *p = &msg.peers[i];
        struct address where = at(VICTIM, (uint16_t)(80 + i * step));
        struct identity nobody;

        identity_fake(&nobody, 1000 + first + i);
        *p = (struct peer_info){.id = nobody.id, .reach = REACH_PUBLIC};
        where.ip[15] = (uint8_t)(1 + i * host);
        memcpy(p->address.ip, where.ip, sizeof where.ip);
        p->address.port = where.port;
    }
    members_on_gossip(&t->m, t->row, &msg, &t->out);
}

/* Dials of the victim's network in the next `s` seconds; all fail. */
static unsigned victim_dials(struct table *t, unsigned s)
{
    unsigned n = 0;

    for (unsigned k = 0; k < s * 10; k++) {
        uint64_t failed[64];
        unsigned n_failed = 0;

        tick(t, 100);
        for (uint32_t i = 0; i < t->out.n; i++) {
            const struct action *a = &t->out.action[i];

            if (a->type == ACTION_DIAL && a->dial.address.ip[12] == VICTIM &&
                n_failed < 64) {
                failed[n_failed++] = a->dial.request;
            }
        }
        for (unsigned i = 0; i < n_failed; i++) {
            members_dial_failed(&t->m, failed[i], -ECONNREFUSED, t->now_ms);
        }
        n += n_failed;
    }
    return n;
}

/* At 0, 1, 3, 7 and 15 minutes. */
static void an_address_of_gossip_is_dialled_less_and_less(void **state)
{
    struct table *t = table_new(LIAR_AT);
    unsigned n = 0;

    (void)state;
    for (unsigned s = 0; s < 1200; s++) {
        gossip(t, s * 20ULL, 20, 0, 0);
        n += victim_dials(t, 1);
    }
    assert_in_range(n, 1, 5);
    free(t);
}

static void ports_and_neighbours_of_an_address_count_as_it(void **state)
{
    (void)state;
    for (int hosts = 0; hosts < 2; hosts++) {
        struct table *t = table_new(LIAR_AT);
        unsigned n = 0;

        members_want_links(&t->m, 64);
        for (unsigned s = 0; s < 59; s++) {
            gossip(t, s * 20ULL, 20, (uint16_t)(hosts ? 0 : 1 + s),
                   (uint8_t)(hosts ? 1 + s : 0));
            n += victim_dials(t, 1);
        }
        assert_in_range(n, 8, 8);
        free(t);
    }
}

/* A member without a link: whoever names another address for it. */
static void hearsay_does_not_move_a_member(void **state)
{
    struct table *t = table_new(LIAR_AT);
    struct gossip msg = {.n_peers = 1};
    struct address there = at(12, 7700), victim = at(VICTIM, 80);
    struct identity honest;
    const struct hash32 view = {{1}};
    int row;

    (void)state;
    identity_fake(&honest, 3);
    row = members_name(&t->m, &honest.id, &there, honest.public, t->now_ms);
    members_watch(&t->m, &row, 1, &view, t->now_ms);
    msg.peers[0] = (struct peer_info){.id = honest.id, .reach = REACH_PUBLIC};
    memcpy(msg.peers[0].address.ip, victim.ip, sizeof victim.ip);
    msg.peers[0].address.port = victim.port;
    for (unsigned s = 0; s < 5; s++) {
        msg.peers[0].incarnation = s;
        members_on_gossip(&t->m, t->row, &msg, &t->out);
        assert_int_equal(victim_dials(t, 1), 0);
    }
    assert_true(address_eq(&t->m.peers[row].address, &there));
    free(t);
}

/* A member that said so of itself, and that nobody ever met there. */
static void where_no_member_was_met_it_is_looked_for_each_minute(void **state)
{
    struct table *t = table_new(LIAR_AT);
    struct address victim = at(VICTIM, 80);
    struct identity liar;
    const struct hash32 view = {{1}};
    int row;

    (void)state;
    identity_fake(&liar, 3);
    row = members_name(&t->m, &liar.id, &victim, liar.public, t->now_ms);
    members_watch(&t->m, &row, 1, &view, t->now_ms);
    assert_in_range(victim_dials(t, 60), 2, 9);
    assert_in_range(victim_dials(t, 600), 8, 12);
    free(t);
}

/* Such as of a view that strangers founded. */
static void who_is_only_named_is_dialled_as_hearsay_is(void **state)
{
    struct table *t = table_new(LIAR_AT);
    struct address victim = at(VICTIM, 80);

    (void)state;
    for (unsigned i = 0; i < 60; i++) {
        struct identity nobody;
        int row;

        identity_fake(&nobody, 1000 + i);
        row = members_learn_here(&t->m, &nobody.id, &victim, t->now_ms);
        members_guest(&t->m, row, true);
    }
    assert_int_equal(victim_dials(t, 59), 1);
    free(t);
}

/* ---- who forged ------------------------------------------------------------
 */

/* Connections to the liar that are begun within a minute; each fails. */
static unsigned dials_of_liar(struct table *t)
{
    unsigned n = 0;

    for (unsigned k = 0; k < 600; k++) {
        tick(t, 100);
        for (uint32_t i = 0; i < t->out.n; i++) {
            const struct action *a = &t->out.action[i];

            if (a->type == ACTION_DIAL) {
                n += id_eq(&a->dial.peer, &t->liar.id);
                members_dial_failed(&t->m, a->dial.request, -1, t->now_ms);
            }
        }
    }
    return n;
}

/* Its link goes down; we know where it listens. */
static void who_forged_is_not_dialled_while_it_waits(void **state)
{
    (void)state;
    for (unsigned n = 2; n <= 3; n++) {
        struct table *t = table_new(LIAR_AT);
        struct address liar_at = at(LIAR_AT, 7700);

        members_learn_here(&t->m, &t->liar.id, &liar_at, t->now_ms);
        for (unsigned k = 0; k < n; k++) {
            members_forged(&t->m, LINK, &t->out);
        }
        (void)members_link_down(&t->m, LINK, t->now_ms);
        assert_int_equal(dials_of_liar(t) > 0, n < 3);
        free(t);
    }
}

/* ---- the LAN ----------------------------------------------------------------
 */

/* The peer at that address of the LAN is there. */
static void answer(struct table *t, const struct action_dial *dial)
{
    struct event_link_up e = {.link = dial->address.port,
                              .request = dial->request,
                              .address = dial->address};
    struct identity id;

    identity_fake(&id, dial->address.port);
    e.peer = id.id;
    memcpy(e.public_key, id.public, 32);
    (void)members_link_up(&t->m, &e, t->now_ms, &t->out);
}

/* Connections to addresses of the LAN that are asked for in `ms`; each is up at
 * once, or fails. */
static unsigned nearby_dials(struct table *t, unsigned ms, bool up)
{
    unsigned n = 0;

    for (unsigned k = 0; k < ms; k += 100) {
        struct action_dial dials[16];
        unsigned n_dials = 0;

        tick(t, 100);
        for (uint32_t i = 0; i < t->out.n && n_dials < 16; i++) {
            const struct action *a = &t->out.action[i];

            if (a->type == ACTION_DIAL && a->dial.address.ip[12] == LAN_AT &&
                id_is_zero(&a->dial.peer)) {
                dials[n_dials++] = a->dial;
            }
        }
        for (unsigned i = 0; i < n_dials; i++) {
            if (up) {
                answer(t, &dials[i]);
            } else {
                members_dial_failed(&t->m, dials[i].request, -1, t->now_ms);
            }
        }
        n += n_dials;
    }
    return n;
}

static void hear(struct table *t, unsigned from, unsigned n)
{
    for (unsigned i = from; i < from + n; i++) {
        struct address a = at(LAN_AT, (uint16_t)(1000 + i));

        members_nearby(&t->m, &a, t->now_ms);
    }
}

static void a_flood_in_the_lan_is_two_dials_a_second(void **state)
{
    struct table *t = table_new(LAN_AT);
    unsigned n = 0;

    (void)state;
    for (unsigned s = 0; s < 60; s++) {
        hear(t, s % 2 * 10, 10); /* as many as lan_hear() lets through */
        n += nearby_dials(t, 1000, false);
    }
    assert_in_range(n, 60, 60 * 2 + 8);
    free(t);
}

static void eight_in_the_lan_that_answer_keep_out_nobody(void **state)
{
    struct table *t = table_new(LAN_AT);
    struct address honest = at(LAN_AT, 7777);

    (void)state;
    hear(t, 0, 100);
    assert_int_equal(nearby_dials(t, 20000, true), 8);
    members_nearby(&t->m, &honest, t->now_ms);
    assert_int_equal(nearby_dials(t, 1000, true), 1);
    free(t);
}

/* ---- contacts of the DHT --------------------------------------------------
 */

struct node {
    struct identity self, liar;
    struct dht d;
    void *memory;
    struct dht_out out;
    struct address liar_at;
};

static struct node *node_new(uint8_t net)
{
    struct dht_options opt = dht_options_default();
    struct node *n = calloc(1, sizeof *n);

    assert_non_null(n);
    identity_fake(&n->self, 1);
    identity_fake(&n->liar, 2);
    n->liar_at = at(net, 7700);
    opt.table.self = n->self.id;
    opt.signer = signer_keyed(&n->self);
    opt.server = true;
    opt.seed = 3;
    n->memory = malloc(dht_bytes(&opt));
    assert_non_null(n->memory);
    dht_init(&n->d, &opt, n->memory, 1000);
    dht_seen(&n->d, &n->liar.id, &n->liar_at, 1000);
    return n;
}

static void node_free(struct node *n)
{
    free(n->memory);
    free(n);
}

/* Some lookups, one of ours and those of the start; the liar answers every
 * question with `say`'s contacts, all others are silent. How many others are
 * asked, which costs a dial each. */
static unsigned asked_for(struct node *n, struct dht_nodes *say)
{
    struct peer_id target = {{9}};
    uint64_t lookup, now_ms = 1000;
    unsigned asked = 0;

    assert_int_equal(dht_find(&n->d, &target, now_ms, &lookup, &n->out), 0);
    for (int turn = 0; turn < 100; turn++) {
        struct dht_find_node ask = {0};

        for (uint32_t i = 0; i < n->out.n_sends; i++) {
            const struct dht_send *s = &n->out.sends[i];

            if (!id_eq(&s->peer, &n->liar.id)) {
                asked++;
            } else if (s->message == DHT_MSG_FIND_NODE) {
                assert_int_equal(msg_decode(dht_msg_schema(s->message),
                                            n->out.bytes + s->bytes, s->len,
                                            &ask),
                                 0);
            }
        }
        n->out.n_sends = n->out.n_done = n->out.n_bytes = 0;
        now_ms += 100;
        if (ask.request != 0) {
            uint8_t bytes[4096];
            struct dht_input in = {.peer = n->liar.id,
                                   .address = n->liar_at,
                                   .message = DHT_MSG_NODES,
                                   .bytes = bytes,
                                   .now_ms = now_ms,
                                   .wall_s = WALL_S};

            say->request = ask.request;
            in.len = (size_t)msg_encode(dht_msg_schema(in.message), say, bytes,
                                        sizeof bytes);
            assert_int_equal(dht_recv(&n->d, &in, &n->out), 0);
        } else {
            dht_tick(&n->d, now_ms, WALL_S, &n->out);
        }
    }
    return asked;
}

/* All the contacts that fit, at addresses from `where` on, a port or none
 * apart. */
static struct dht_nodes crowd(struct address where, uint16_t step)
{
    struct dht_nodes say = {.n_contacts = DHT_CONTACTS_MAX};
    uint64_t rng = 7;

    for (uint32_t i = 0; i < say.n_contacts; i++) {
        struct dht_contact *c = &say.contacts[i];

        for (size_t b = 0; b < sizeof c->id.b; b++) {
            c->id.b[b] = (uint8_t)rng_next(&rng);
        }
        memcpy(c->ip, where.ip, sizeof where.ip);
        c->port = (uint16_t)(where.port + i * step);
    }
    return say;
}

static void many_ids_at_one_address_are_asked_once_a_lookup(void **state)
{
    struct node *n = node_new(LIAR_AT);
    struct dht_nodes one = crowd(at(12, 80), 0), many = crowd(at(12, 80), 1);
    unsigned asked;

    (void)state;
    asked = asked_for(n, &one);
    assert_in_range(asked, 1, n->d.counts.lookups);
    assert_in_range(n->d.counts.misnamed, DHT_CONTACTS_MAX - 1, 1000);
    node_free(n);
    n = node_new(LIAR_AT); /* so it is the address that counts */
    assert_in_range(asked_for(n, &many), DHT_CONTACTS_MAX, 200);
    node_free(n);
}

static void a_contact_in_our_network_is_not_taken_from_outside(void **state)
{
    struct node *n = node_new(LIAR_AT);
    struct dht_nodes lan = crowd(at(LAN_AT, 80), 1);

    (void)state;
    assert_int_equal(asked_for(n, &lan), 0);
    node_free(n);
    n = node_new(LAN_AT);
    assert_in_range(asked_for(n, &lan), DHT_CONTACTS_MAX, 200);
    node_free(n);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_stranger_calls_sixteen_times_in_four_seconds),
        cmocka_unit_test(a_member_of_the_view_calls_for_all_others),
        cmocka_unit_test(nobody_outside_names_a_machine_of_our_network),
        cmocka_unit_test(who_forged_is_not_dialled_while_it_waits),
        cmocka_unit_test(an_address_of_gossip_is_dialled_less_and_less),
        cmocka_unit_test(ports_and_neighbours_of_an_address_count_as_it),
        cmocka_unit_test(hearsay_does_not_move_a_member),
        cmocka_unit_test(where_no_member_was_met_it_is_looked_for_each_minute),
        cmocka_unit_test(who_is_only_named_is_dialled_as_hearsay_is),
        cmocka_unit_test(a_flood_in_the_lan_is_two_dials_a_second),
        cmocka_unit_test(eight_in_the_lan_that_answer_keep_out_nobody),
        cmocka_unit_test(many_ids_at_one_address_are_asked_once_a_lookup),
        cmocka_unit_test(a_contact_in_our_network_is_not_taken_from_outside),
    };

    return cmocka_run_group_tests_name("dials", tests, NULL, NULL);
}
