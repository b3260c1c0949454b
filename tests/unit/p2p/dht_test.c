/* dht_test.c - one DHT node under the eyes of its peers: messages, forged
 * answers, limits, time. What many nodes do together: dht_net_test.c. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "p2p/dht/dht.h"
#include "proto/base/err.h"
#include "proto/base/rng.h"

#define WALL_S  1700000000U
#define PEERS   12
#define MSG_MAX (16 << 10)

struct fixture {
    struct identity self;
    struct identity peer[PEERS];
    struct signer signer[PEERS];
    struct dht d;
    void *memory;
    uint64_t now_ms;
    struct dht_out out;
};

static struct address address_of(int i)
{
    struct address a = {.port = (uint16_t)(4000 + i)};

    a.ip[10] = a.ip[11] = 255;
    a.ip[12] = 10;
    a.ip[15] = (uint8_t)i;
    return a;
}

static struct dht_options options(void)
{
    struct dht_options opt = dht_options_default();

    opt.table.k = 8;
    opt.paths = 1;
    opt.alpha = 3;
    opt.table.contacts_max = 64;
    opt.store.records_max = 32;
    opt.limiter.peers_max = 16;
    opt.requests_max = 16;
    opt.results_max = 4;
    opt.lookups_max = 3;
    opt.server = true;
    opt.seed = 42;
    return opt;
}

static struct fixture *setup(struct dht_options opt)
{
    struct fixture *f = calloc(1, sizeof *f);

    assert_non_null(f);
    identity_fake(&f->self, 1000);
    for (int i = 0; i < PEERS; i++) {
        identity_fake(&f->peer[i], (uint64_t)i);
        f->signer[i] = signer_keyed(&f->peer[i]);
    }
    opt.table.self = f->self.id;
    opt.signer = signer_keyed(&f->self);
    f->memory = malloc(dht_bytes(&opt));
    assert_non_null(f->memory);
    f->now_ms = 1000;
    dht_init(&f->d, &opt, f->memory, f->now_ms);
    return f;
}

static void teardown(struct fixture *f)
{
    free(f->memory);
    free(f);
}

static void meet(struct fixture *f, int i)
{
    struct address a = address_of(i);

    dht_seen(&f->d, &f->peer[i].id, &a, f->now_ms);
}

/* Peer i says `object`; returns what the node makes of it. */
static int say(struct fixture *f, int i, uint16_t message, const void *object)
{
    uint8_t bytes[MSG_MAX];
    int len = msg_encode(dht_msg_schema(message), object, bytes, sizeof bytes);
    struct dht_input in = {.peer = f->peer[i].id,
                           .address = address_of(i),
                           .message = message,
                           .bytes = bytes,
                           .len = (size_t)len,
                           .now_ms = f->now_ms,
                           .wall_s = WALL_S};

    assert_true(len > 0);
    return dht_recv(&f->d, &in, &f->out);
}

/* The node's n-th message of this type in `out`, decoded; its peer's number. */
static int heard(struct fixture *f, uint16_t message, int n, void *object)
{
    for (uint32_t i = 0; i < f->out.n_sends; i++) {
        const struct dht_send *s = &f->out.sends[i];

        if (s->message != message || n-- > 0) {
            continue;
        }
        assert_int_equal(msg_decode(dht_msg_schema(message),
                                    f->out.bytes + s->bytes, s->len, object),
                         0);
        return s->address.port - 4000;
    }
    return -1;
}

static struct record
make_record(const struct fixture *f, int i, uint8_t key, uint64_t sequence)
{
    struct record r = {.key = {.b = {key}},
                       .value_len = 2,
                       .value = {key, (uint8_t)i},
                       .sequence = sequence,
                       .expiry_s = WALL_S + 600};

    assert_int_equal(record_sign(&r, &f->signer[i]), 0);
    return r;
}

/* ---- messages --------------------------------------------------------- */

/* Decoding what was encoded gives the same bytes again, and no cut, longer or
 * wrong-typed form is taken. */
static void round_trip(uint16_t message, const void *object)
{
    const struct msg_schema *s = dht_msg_schema(message);
    uint8_t a[MSG_MAX], b[MSG_MAX];
    void *copy = calloc(1, s->size);
    int n = msg_encode(s, object, a, sizeof a);

    assert_non_null(copy);
    assert_true(msg_schema_ok(s));
    assert_in_range(n, 1, msg_bytes_max(dht_msg_schema(message)));
    assert_int_equal(msg_decode(s, a, (size_t)n, copy), 0);
    assert_int_equal(msg_encode(s, copy, b, sizeof b), n);
    assert_memory_equal(a, b, (size_t)n);
    for (int cut = 0; cut < n; cut++) {
        assert_int_equal(msg_decode(s, a, (size_t)cut, copy), LOCO_EPROTO);
    }
    a[n] = 0;
    assert_int_equal(msg_decode(s, a, (size_t)n + 1, copy), LOCO_EPROTO);
    free(copy);
}

static void every_message_round_trips(void **state)
{
    struct fixture *f = setup(options());
    struct dht_ping ping = {.request = UINT64_MAX};
    struct dht_pong pong = {.request = 0};
    struct dht_find_node find_node = {.request = 7, .target = {{1, 2}}};
    struct dht_find_value find_value = {.request = 8, .key = {{3}}};
    struct dht_store store = {.request = 9, .record = make_record(f, 1, 5, 6)};
    struct dht_stored stored = {.request = 10, .kept = true};
    struct dht_nodes nodes = {.request = 11, .n_contacts = DHT_CONTACTS_MAX};
    struct dht_values values = {.request = 12,
                                .n_records = DHT_RECORDS_MAX,
                                .n_contacts = DHT_CONTACTS_MAX};

    (void)state;
    for (uint32_t i = 0; i < DHT_CONTACTS_MAX; i++) {
        nodes.contacts[i].id = f->peer[i % PEERS].id;
        nodes.contacts[i].port = (uint16_t)(65535 - i);
        values.contacts[i] = nodes.contacts[i];
    }
    for (uint32_t i = 0; i < DHT_RECORDS_MAX; i++) {
        values.records[i] = make_record(f, (int)(i % PEERS), 5, i);
    }
    round_trip(DHT_MSG_PING, &ping);
    round_trip(DHT_MSG_PONG, &pong);
    round_trip(DHT_MSG_FIND_NODE, &find_node);
    round_trip(DHT_MSG_NODES, &nodes);
    round_trip(DHT_MSG_FIND_VALUE, &find_value);
    round_trip(DHT_MSG_VALUES, &values);
    round_trip(DHT_MSG_STORE, &store);
    round_trip(DHT_MSG_STORED, &stored);
    assert_null(dht_msg_schema(0x1F));
    assert_null(dht_msg_schema(0x28));
    assert_null(dht_msg_schema(0x28));
    assert_true(msg_bytes_max(dht_msg_schema(DHT_MSG_NODES)) < 1300);
    assert_true(msg_bytes_max(dht_msg_schema(DHT_MSG_VALUES)) < 13000);
    teardown(f);
}

/* ---- answering -------------------------------------------------------- */

static void it_answers_each_question_under_the_name_it_came_with(void **state)
{
    struct fixture *f = setup(options());
    struct dht_ping ping = {.request = 1};
    struct dht_find_node find = {.request = 2};
    struct dht_find_value value = {.request = 4, .key = {{5}}};
    struct dht_store store = {.request = 3, .record = make_record(f, 2, 5, 6)};
    struct dht_pong pong;
    struct dht_nodes nodes;
    struct dht_stored stored;
    struct dht_values values;

    (void)state;
    for (int i = 0; i < 5; i++) {
        meet(f, i);
    }
    assert_int_equal(say(f, 0, DHT_MSG_PING, &ping), 0);
    assert_int_equal(heard(f, DHT_MSG_PONG, 0, &pong), 0);
    assert_true(pong.request == 1);
    assert_int_equal(say(f, 1, DHT_MSG_FIND_NODE, &find), 0);
    assert_int_equal(heard(f, DHT_MSG_NODES, 0, &nodes), 1);
    assert_true(nodes.request == 2);
    assert_int_equal(nodes.n_contacts, 4); /* all but the asker */
    for (uint32_t i = 0; i < nodes.n_contacts; i++) {
        assert_false(id_eq(&nodes.contacts[i].id, &f->peer[1].id));
    }
    assert_int_equal(say(f, 2, DHT_MSG_STORE, &store), 0);
    assert_int_equal(heard(f, DHT_MSG_STORED, 0, &stored), 2);
    assert_true(stored.request == 3 && stored.kept);
    assert_int_equal(say(f, 3, DHT_MSG_FIND_VALUE, &value), 0);
    assert_int_equal(heard(f, DHT_MSG_VALUES, 0, &values), 3);
    assert_true(values.request == 4);
    assert_int_equal(values.n_records, 1);
    assert_true(values.records[0].sequence == 6);
    assert_int_equal(values.n_contacts, 4);
    store.record.sequence = 7; /* no longer what was signed */
    assert_int_equal(say(f, 2, DHT_MSG_STORE, &store), 0);
    assert_int_equal(heard(f, DHT_MSG_STORED, 0, &stored), 2);
    assert_false(stored.kept);
    assert_int_equal(f->d.counts.refused, 1);
    teardown(f);
}

static void clients_are_answered_and_never_listed(void **state)
{
    struct fixture *f = setup(options());
    struct dht_ping ping = {.request = 1};
    uint8_t bytes[32];
    int n = msg_encode(&dht_ping_schema, &ping, bytes, sizeof bytes);
    struct dht_input in = {.peer = f->peer[0].id,
                           .message = DHT_MSG_PING,
                           .bytes = bytes,
                           .len = (size_t)n,
                           .now_ms = f->now_ms,
                           .wall_s = WALL_S};
    struct dht_pong pong;

    (void)state;
    assert_int_equal(dht_recv(&f->d, &in, &f->out), 0);
    assert_int_equal(heard(f, DHT_MSG_PONG, 0, &pong), -4000);
    assert_int_equal(f->d.table.n, 0);
    teardown(f);
}

static void a_peer_that_asks_too_fast_is_not_answered(void **state)
{
    struct dht_options opt = options();
    struct dht_find_node find = {.request = 2};
    struct fixture *f;
    int n = 0;

    (void)state;
    opt.limiter.burst = 10;
    opt.limiter.per_s = 2;
    f = setup(opt);
    for (int i = 0; i < 100; i++) {
        int rv = say(f, 0, DHT_MSG_FIND_NODE, &find);

        assert_true(rv == 0 || rv == LOCO_EBUSY);
        assert_int_equal(f->out.n_sends, rv == 0);
        n += rv == 0;
    }
    assert_int_equal(n, 10);
    assert_int_equal(f->d.counts.limited, 90);
    assert_int_equal(say(f, 1, DHT_MSG_FIND_NODE, &find), 0);
    f->now_ms += 1000;
    assert_int_equal(say(f, 0, DHT_MSG_FIND_NODE, &find), 0);
    assert_int_equal(say(f, 0, DHT_MSG_FIND_NODE, &find), 0);
    assert_int_equal(say(f, 0, DHT_MSG_FIND_NODE, &find), LOCO_EBUSY);
    teardown(f);
}

static void bad_bytes_are_an_error_and_change_nothing(void **state)
{
    struct fixture *f = setup(options());
    uint8_t bytes[64] = {0x91, 0xC1};
    struct dht_input in = {.peer = f->peer[0].id,
                           .address = address_of(0),
                           .bytes = bytes,
                           .now_ms = f->now_ms,
                           .wall_s = WALL_S};

    (void)state;
    for (uint16_t message = 0x1E; message <= 0x2A; message++) {
        in.message = message;
        for (in.len = 0; in.len <= sizeof bytes; in.len++) {
            assert_int_equal(dht_recv(&f->d, &in, &f->out), LOCO_EPROTO);
            assert_int_equal(f->out.n_sends, 0);
            f->now_ms += 1000;
            in.now_ms = f->now_ms;
        }
    }
    assert_int_equal(f->d.counts.malformed, 13 * 65);
    assert_int_equal(f->d.store.n, 0);
    teardown(f);
}

/* ---- asking ----------------------------------------------------------- */

/* Answer every lookup of the node's own, which its first contacts begin, until
 * only the clock is left: nothing more goes out for some seconds. */
static void settle(struct fixture *f)
{
    uint64_t quiet_ms = f->now_ms;

    do {
        uint64_t due = dht_deadline(&f->d);
        struct dht_send sends[DHT_SENDS_MAX];
        struct dht_find_node ask[DHT_SENDS_MAX];
        uint32_t n;

        f->now_ms = due > f->now_ms ? due : f->now_ms;
        dht_tick(&f->d, f->now_ms, WALL_S, &f->out);
        n = f->out.n_sends;
        for (uint32_t i = 0; i < n; i++) {
            sends[i] = f->out.sends[i];
            assert_int_equal(sends[i].message, DHT_MSG_FIND_NODE);
            assert_int_equal(msg_decode(&dht_find_node_schema,
                                        f->out.bytes + sends[i].bytes,
                                        sends[i].len, &ask[i]),
                             0);
        }
        for (uint32_t i = 0; i < n; i++) {
            struct dht_nodes none = {.request = ask[i].request};

            assert_int_equal(
                say(f, sends[i].address.port - 4000, DHT_MSG_NODES, &none), 0);
            quiet_ms = f->now_ms;
        }
    } while (f->now_ms < quiet_ms + 5000);
}

static void unknown_doubled_and_forged_answers_are_ignored(void **state)
{
    struct fixture *f = setup(options());
    struct dht_nodes lie = {.n_contacts = 1};
    struct dht_find_node ask;
    struct dht_stored stored;
    struct peer_id target = {{9}};
    uint64_t lookup;
    int who;

    (void)state;
    meet(f, 0);
    meet(f, 1);
    assert_int_equal(dht_find(&f->d, &target, f->now_ms, &lookup, &f->out), 0);
    assert_int_equal(f->out.n_sends, 2);
    who = heard(f, DHT_MSG_FIND_NODE, 0, &ask);
    assert_in_range(who, 0, 1);
    assert_memory_equal(ask.target.b, target.b, ID_BYTES);
    lie.contacts[0] = (struct dht_contact){.id = f->peer[5].id, .port = 4005};
    lie.request = ask.request + 1; /* a guess */
    assert_int_equal(say(f, who, DHT_MSG_NODES, &lie), LOCO_ESTALE);
    lie.request = ask.request; /* the right name, from somebody else */
    assert_int_equal(say(f, 1 - who, DHT_MSG_NODES, &lie), LOCO_ESTALE);
    assert_int_equal(say(f, 7, DHT_MSG_NODES, &lie), LOCO_ESTALE);
    stored = (struct dht_stored){.request = ask.request, .kept = true};
    assert_int_equal(say(f, who, DHT_MSG_STORED, &stored), LOCO_ESTALE);
    assert_int_equal(f->d.counts.unknown, 4);
    assert_int_equal(f->d.counts.answers, 0);
    assert_int_equal(f->out.n_sends, 0); /* peer 5 was not asked */
    assert_int_equal(say(f, who, DHT_MSG_NODES, &lie), 0);
    assert_int_equal(f->out.n_sends, 1); /* now it is */
    assert_memory_equal(f->out.sends[0].peer.b, f->peer[5].id.b, ID_BYTES);
    assert_int_equal(say(f, who, DHT_MSG_NODES, &lie), LOCO_ESTALE);
    assert_int_equal(f->d.counts.unknown, 5);
    /* An unproven name never enters the table. */
    assert_null(kbucket_find(&f->d.table, &f->peer[5].id));
    teardown(f);
}

static void clients_and_ourselves_in_an_answer_are_not_asked(void **state)
{
    struct fixture *f = setup(options());
    struct dht_nodes nodes = {.n_contacts = 2};
    struct dht_find_node ask;
    struct peer_id target = {{9}};
    uint64_t lookup;

    (void)state;
    meet(f, 0);
    (void)dht_find(&f->d, &target, f->now_ms, &lookup, &f->out);
    assert_int_equal(heard(f, DHT_MSG_FIND_NODE, 0, &ask), 0);
    nodes.request = ask.request;
    nodes.contacts[0] = (struct dht_contact){.id = f->peer[3].id, .port = 0};
    nodes.contacts[1] = (struct dht_contact){.id = f->self.id, .port = 4000};
    assert_int_equal(say(f, 0, DHT_MSG_NODES, &nodes), 0);
    assert_int_equal(f->out.n_sends, 0);
    assert_int_equal(f->out.n_done, 1);
    assert_true(f->out.done[0].lookup == lookup);
    assert_int_equal(f->out.done[0].rc, 0);
    assert_int_equal(f->out.done[0].hops, 1);
    assert_int_equal(f->out.done[0].n_contacts, 1);
    teardown(f);
}

static void get_returns_only_records_that_verify_one_per_publisher(void **state)
{
    struct fixture *f = setup(options());
    struct dht_values values = {.n_records = 5};
    struct hash32 key = {{5}};
    struct dht_find_value ask;
    const struct dht_done *done;
    uint64_t lookup;

    (void)state;
    meet(f, 0);
    assert_int_equal(dht_get(&f->d, &key, f->now_ms, &lookup, &f->out), 0);
    assert_int_equal(heard(f, DHT_MSG_FIND_VALUE, 0, &ask), 0);
    values.request = ask.request;
    values.records[0] = make_record(f, 1, 5, 3);
    values.records[1] = make_record(f, 1, 5, 4); /* the newer */
    values.records[2] = make_record(f, 2, 5, 1);
    values.records[2].value[0] = 66;             /* forged */
    values.records[3] = make_record(f, 3, 6, 1); /* another key */
    values.records[4] = make_record(f, 4, 5, 1);
    assert_int_equal(say(f, 0, DHT_MSG_VALUES, &values), 0);
    assert_int_equal(f->d.counts.bad_records, 2);
    assert_int_equal(f->out.n_done, 1);
    done = &f->out.done[0];
    assert_int_equal(done->kind, DHT_GET);
    assert_int_equal(done->n_records, 2);
    assert_true(done->records[0].sequence == 4);
    assert_int_equal(done->records[1].value[1], 4);
    teardown(f);
}

static void a_silent_peer_times_out_and_becomes_stale(void **state)
{
    struct fixture *f = setup(options());
    struct peer_id target = {{9}};
    uint64_t lookup, start_ms;
    int n_done = 0;

    (void)state;
    meet(f, 0);
    settle(f); /* only this lookup */
    start_ms = f->now_ms;
    assert_int_equal(dht_find(&f->d, &target, f->now_ms, &lookup, &f->out), 0);
    for (int i = 0; i < 100 && n_done == 0; i++) {
        uint64_t due = dht_deadline(&f->d);

        f->now_ms = due > f->now_ms ? due : f->now_ms;
        dht_tick(&f->d, f->now_ms, WALL_S, &f->out);
        n_done += (int)f->out.n_done;
    }
    assert_int_equal(n_done, 1);
    assert_int_equal(f->now_ms, start_ms + f->d.opt.rpc_timeout_ms);
    assert_int_equal(f->out.done[0].rc, LOCO_ENOENT);
    assert_int_equal(f->d.counts.timeouts, 1);
    assert_int_equal(kbucket_find(&f->d.table, &f->peer[0].id)->failures, 1);
    dht_failed(&f->d, &f->peer[0].id, f->now_ms, &f->out);
    assert_int_equal(kbucket_find(&f->d.table, &f->peer[0].id)->failures, 2);
    teardown(f);
}

static void lookups_without_contacts_end_at_once(void **state)
{
    struct fixture *f = setup(options());
    struct record r = make_record(f, 1, 5, 1), bad = r;
    struct hash32 key = {{5}};
    uint64_t lookup;

    (void)state;
    assert_int_equal(dht_get(&f->d, &key, f->now_ms, &lookup, &f->out), 0);
    assert_int_equal(f->out.n_done, 1);
    assert_int_equal(f->out.done[0].rc, LOCO_ENOENT);
    bad.signature[3] ^= 1;
    assert_int_equal(dht_put(&f->d, &bad, f->now_ms, WALL_S, &lookup, &f->out),
                     LOCO_ESIG);
    assert_int_equal(dht_put(&f->d, &r, f->now_ms, WALL_S, &lookup, &f->out),
                     0);
    assert_int_equal(f->out.n_done, 1);
    assert_int_equal(f->out.done[0].n_stored, 1); /* we are the closest */
    assert_int_equal(dht_get(&f->d, &key, f->now_ms, &lookup, &f->out), 0);
    assert_int_equal(f->out.done[0].n_records, 1);
    teardown(f);
}

static void lookups_and_requests_stay_within_their_bounds(void **state)
{
    struct fixture *f = setup(options());
    struct peer_id target = {{9}};
    uint64_t lookup;
    uint32_t n_sent = 0;

    (void)state;
    for (int i = 0; i < PEERS; i++) {
        meet(f, i);
    }
    for (int i = 0; i < 3; i++) {
        assert_int_equal(dht_find(&f->d, &target, f->now_ms, &lookup, &f->out),
                         0);
        n_sent += f->out.n_sends;
    }
    assert_int_equal(n_sent, 9); /* 3 lookups, alpha 3 */
    assert_int_equal(dht_find(&f->d, &target, f->now_ms, &lookup, &f->out),
                     LOCO_EBUSY);
    for (int i = 0; i < 3; i++) { /* slow peers are joined by others */
        f->now_ms += 500;
        dht_tick(&f->d, f->now_ms, WALL_S, &f->out);
        n_sent += f->out.n_sends;
    }
    assert_int_equal(n_sent, 16); /* requests_max */
    assert_true(f->d.counts.requests_sent == 16);
    assert_true(dht_deadline(&f->d) > f->now_ms); /* it waits, not spins */
    teardown(f);
}

static void what_does_not_fit_into_out_follows_at_once(void **state)
{
    struct dht_options opt = options();
    struct peer_id target = {{9}};
    struct fixture *f;
    uint64_t lookup;

    (void)state;
    opt.lookups_max = 30;
    opt.requests_max = 256;
    f = setup(opt);
    for (int i = 0; i < PEERS; i++) {
        meet(f, i);
    }
    settle(f);
    for (int i = 0; i < 30; i++) {
        assert_int_equal(dht_find(&f->d, &target, f->now_ms, &lookup, &f->out),
                         0);
    }
    /* All 90 requests turn slow in one tick: 90 others are asked as well. */
    f->now_ms += f->d.opt.rpc_timeout_ms / 4;
    assert_int_equal(dht_deadline(&f->d), f->now_ms);
    dht_tick(&f->d, f->now_ms, WALL_S, &f->out);
    assert_int_equal(f->out.n_sends, DHT_SENDS_MAX);
    assert_true(dht_deadline(&f->d) <= f->now_ms);
    dht_tick(&f->d, f->now_ms, WALL_S, &f->out);
    assert_int_equal(f->out.n_sends, 90 - DHT_SENDS_MAX);
    assert_true(dht_deadline(&f->d) > f->now_ms);
    teardown(f);
}

/* The first peer that was asked answers with 20 closer ones, all made up and
 * each ready to do the same: their ids begin with ever more zero bytes. They
 * live at NET.0.0.0. */
static void lie(struct fixture *f, int round, uint8_t net, uint64_t *rng)
{
    struct dht_send to = f->out.sends[0];
    size_t n_zero = (size_t)round * 3 / 4;
    struct dht_nodes nodes = {.n_contacts = DHT_CONTACTS_MAX};
    struct dht_find_node ask;
    uint8_t bytes[MSG_MAX];
    struct dht_input in = {.peer = to.peer,
                           .address = to.address,
                           .message = DHT_MSG_NODES,
                           .bytes = bytes,
                           .now_ms = f->now_ms,
                           .wall_s = WALL_S};

    assert_true(heard(f, DHT_MSG_FIND_NODE, 0, &ask) >= 0);
    nodes.request = ask.request;
    for (uint32_t c = 0; c < DHT_CONTACTS_MAX; c++) {
        for (size_t b = n_zero; b < ID_BYTES; b++) {
            nodes.contacts[c].id.b[b] = (uint8_t)rng_next(rng);
        }
        nodes.contacts[c].port =
            (uint16_t)(4000 + n_zero * DHT_CONTACTS_MAX + c);
        nodes.contacts[c].ip[10] = nodes.contacts[c].ip[11] = 255;
        nodes.contacts[c].ip[12] = net;
    }
    in.len = (size_t)msg_encode(&dht_nodes_schema, &nodes, bytes, MSG_MAX);
    assert_int_equal(dht_recv(&f->d, &in, &f->out), 0);
}

static void endless_lies_end_by_the_bound(void **state)
{
    struct dht_options opt = options();
    struct peer_id target = {{0}};
    uint64_t lookup, rng = 3;
    struct fixture *f;
    int round = 0;

    (void)state;
    opt.lookup_requests_max = 40;
    f = setup(opt);
    meet(f, 0);
    (void)dht_find(&f->d, &target, f->now_ms, &lookup, &f->out);
    for (; f->out.n_done == 0; round++) {
        assert_true(round < 40);
        lie(f, round, 10, &rng);
    }
    assert_int_equal(f->out.done[0].rc, LOCO_ETIMEOUT);
    assert_int_equal(f->out.done[0].requests, 40);
    assert_int_equal(f->out.done[0].n_contacts, 8);
    teardown(f);
}

static uint32_t sent_to(const struct fixture *f, uint8_t net)
{
    uint32_t n = 0;

    for (uint32_t i = 0; i < f->out.n_sends; i++) {
        n += f->out.sends[i].address.ip[12] == net;
    }
    return n;
}

static void names_at_one_public_network_wait_for_all_others(void **state)
{
    struct dht_options opt = options();
    struct peer_id target = {{0}};
    uint64_t lookup, rng = 3;
    struct fixture *f;

    (void)state;
    opt.alpha = 16;
    f = setup(opt);
    for (int i = 0; i < PEERS; i++) {
        meet(f, i);
    }
    (void)dht_find(&f->d, &target, f->now_ms, &lookup, &f->out);
    assert_int_equal(f->out.n_sends, 8);
    lie(f, 20, 93, &rng); /* far closer than anybody else */
    assert_int_equal(sent_to(f, 93), f->d.opt.table.prefix_max);
    teardown(f);
    /* But where nobody else is known they are asked. */
    f = setup(opt);
    meet(f, 0);
    (void)dht_find(&f->d, &target, f->now_ms, &lookup, &f->out);
    lie(f, 20, 93, &rng);
    assert_int_equal(sent_to(f, 93), 7);
    teardown(f);
}

static void an_answer_that_names_its_sender_is_refused(void **state)
{
    struct fixture *f = setup(options());
    struct dht_nodes nodes = {.n_contacts = 2};
    struct dht_find_node ask;
    struct peer_id target = {{9}};
    uint64_t lookup;
    int who;

    (void)state;
    meet(f, 0);
    meet(f, 1);
    (void)dht_find(&f->d, &target, f->now_ms, &lookup, &f->out);
    who = heard(f, DHT_MSG_FIND_NODE, 0, &ask);
    nodes.request = ask.request;
    nodes.contacts[0] = (struct dht_contact){.id = f->peer[5].id, .port = 4005};
    nodes.contacts[1] =
        (struct dht_contact){.id = f->peer[who].id, .port = 4000};
    assert_int_equal(say(f, who, DHT_MSG_NODES, &nodes), LOCO_EINVAL);
    assert_int_equal(f->d.counts.self_named, 1);
    assert_int_equal(f->out.n_sends, 0); /* peer 5 is not asked */
    assert_non_null(kbucket_find(&f->d.table, &f->peer[who].id));
    teardown(f);
}

/* Who is asked by the k-th message that goes out, and under which name. */
static void
asked(struct fixture *f, uint32_t k, struct peer_id *peer, uint64_t *request)
{
    const struct dht_send *s = &f->out.sends[k];
    struct dht_find_node ask;

    assert_int_equal(msg_decode(dht_msg_schema(DHT_MSG_FIND_NODE),
                                f->out.bytes + s->bytes, s->len, &ask),
                     0);
    *peer = s->peer;
    *request = ask.request;
}

/* Three paths, twelve contacts: nobody is asked twice, and what one path was
 * told is asked by that path only. */
static void paths_of_a_lookup_share_no_peer(void **state)
{
    struct dht_options opt = options();
    struct peer_id target = {{9}};
    struct peer_id seen[64];
    uint64_t request[64];
    uint32_t n_seen = 0;
    struct fixture *f;
    uint64_t lookup;

    (void)state;
    opt.paths = 3;
    opt.alpha = 1;
    opt.requests_max = 64;
    f = setup(opt);
    for (int i = 0; i < PEERS; i++) {
        meet(f, i);
    }
    (void)dht_find(&f->d, &target, f->now_ms, &lookup, &f->out);
    assert_int_equal(f->out.n_sends, 3); /* one a path */
    for (uint32_t i = 0; i < 3; i++) {
        asked(f, i, &seen[n_seen], &request[n_seen]);
        n_seen++;
    }
    for (uint32_t at = 0; f->out.n_done == 0; at++) {
        struct dht_nodes nodes = {.n_contacts = 0};
        int who;

        assert_true(at < n_seen);
        nodes.request = request[at];
        for (who = 0; !id_eq(&f->peer[who].id, &seen[at]); who++) {
            assert_true(who < PEERS);
        }
        assert_int_equal(say(f, who, DHT_MSG_NODES, &nodes), 0);
        for (uint32_t i = 0; i < f->out.n_sends; i++) {
            for (uint32_t k = 0; k < n_seen; k++) {
                assert_false(id_eq(&seen[k], &f->out.sends[i].peer));
            }
            asked(f, i, &seen[n_seen], &request[n_seen]);
            n_seen++;
        }
    }
    assert_int_equal(f->out.done[0].n_contacts, 8);
    assert_in_range(n_seen, 8, PEERS);
    teardown(f);
}

static void what_is_refused_is_counted_by_its_reason(void **state)
{
    struct fixture *f = setup(options());
    struct dht_store store = {.request = 1, .record = make_record(f, 2, 5, 6)};

    (void)state;
    (void)say(f, 2, DHT_MSG_STORE, &store);
    assert_int_equal(f->d.counts.refused, 0);
    store.record = make_record(f, 2, 5, 5);
    (void)say(f, 3, DHT_MSG_STORE, &store);
    assert_int_equal(f->d.counts.rejected[DHT_REJECT_REPLAYED], 1);
    store.record = make_record(f, 2, 5, 7);
    store.record.value[0] ^= 1;
    (void)say(f, 3, DHT_MSG_STORE, &store);
    assert_int_equal(f->d.counts.rejected[DHT_REJECT_FORGED], 1);
    store.record = make_record(f, 2, 5, 8);
    store.record.expiry_s = WALL_S + RECORD_LIFETIME_MAX_S + 1;
    assert_int_equal(record_sign(&store.record, &f->signer[2]), 0);
    (void)say(f, 2, DHT_MSG_STORE, &store);
    assert_int_equal(f->d.counts.rejected[DHT_REJECT_FUTURE], 1);
    store.record.expiry_s = WALL_S - 1;
    assert_int_equal(record_sign(&store.record, &f->signer[2]), 0);
    (void)say(f, 2, DHT_MSG_STORE, &store);
    assert_int_equal(f->d.counts.rejected[DHT_REJECT_EXPIRED], 1);
    for (uint8_t key = 10; key < 18; key++) {
        store.record = make_record(f, 2, key, 1);
        (void)say(f, 2, DHT_MSG_STORE, &store);
    }
    assert_int_equal(f->d.counts.rejected[DHT_REJECT_FULL], 1);
    assert_int_equal(f->d.counts.refused, 5);
    for (int i = 0; i < DHT_REJECT_COUNT; i++) {
        assert_true(strcmp(dht_reject_name((enum dht_reject)i), "?") != 0);
    }
    teardown(f);
}

static void the_oldest_contact_is_pinged_when_a_newcomer_waits(void **state)
{
    struct fixture *f = setup(options());
    struct dht_ping ping;
    struct dht_pong pong;
    struct peer_id oldest;

    (void)state;
    meet(f, 1);
    settle(f); /* nothing but the ping is due */
    for (int i = 0; f->d.table.n_wanted == 0; i++) {
        struct identity many;
        struct address a = address_of(0);

        identity_fake(&many, (uint64_t)(5000 + i));
        if (id_xor_bucket(&many.id, &f->self.id) == 255) {
            f->now_ms++;
            dht_seen(&f->d, &many.id, &a, f->now_ms);
        }
    }
    oldest = kbucket_first(&f->d.table, 255)->id;
    assert_true(dht_deadline(&f->d) <= f->now_ms);
    dht_tick(&f->d, f->now_ms, WALL_S, &f->out);
    assert_int_equal(f->out.n_sends, 1);
    assert_int_equal(heard(f, DHT_MSG_PING, 0, &ping), 0);
    assert_memory_equal(f->out.sends[0].peer.b, oldest.b, ID_BYTES);
    assert_true(dht_deadline(&f->d) > f->now_ms);
    f->peer[0].id = oldest;
    pong.request = ping.request;
    assert_int_equal(say(f, 0, DHT_MSG_PONG, &pong), 0);
    assert_non_null(kbucket_find(&f->d.table, &oldest));
    assert_false(id_eq(&kbucket_first(&f->d.table, 255)->id, &oldest));
    teardown(f);
}

static void publish_refuses_what_it_cannot_keep(void **state)
{
    struct fixture *f = setup(options());
    struct hash32 key = {{1}};
    uint8_t value[RECORD_VALUE_MAX + 1] = {0};

    (void)state;
    assert_int_equal(dht_publish(&f->d, &key, value, sizeof value, 60),
                     LOCO_ERANGE);
    assert_int_equal(
        dht_publish(&f->d, &key, value, 1, RECORD_LIFETIME_MAX_S + 1),
        LOCO_ERANGE);
    assert_int_equal(dht_publish(&f->d, &key, value, 1, 0), LOCO_ERANGE);
    for (uint8_t i = 0; i < f->d.opt.published_max; i++) {
        key.b[1] = i;
        assert_int_equal(dht_publish(&f->d, &key, value, 1, 60), 0);
    }
    assert_int_equal(dht_publish(&f->d, &key, value, 2, 60), 0); /* again */
    key.b[1] = 99;
    assert_int_equal(dht_publish(&f->d, &key, value, 1, 60), LOCO_EFULL);
    teardown(f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_message_round_trips),
        cmocka_unit_test(it_answers_each_question_under_the_name_it_came_with),
        cmocka_unit_test(clients_are_answered_and_never_listed),
        cmocka_unit_test(a_peer_that_asks_too_fast_is_not_answered),
        cmocka_unit_test(bad_bytes_are_an_error_and_change_nothing),
        cmocka_unit_test(unknown_doubled_and_forged_answers_are_ignored),
        cmocka_unit_test(clients_and_ourselves_in_an_answer_are_not_asked),
        cmocka_unit_test(
            get_returns_only_records_that_verify_one_per_publisher),
        cmocka_unit_test(a_silent_peer_times_out_and_becomes_stale),
        cmocka_unit_test(lookups_without_contacts_end_at_once),
        cmocka_unit_test(lookups_and_requests_stay_within_their_bounds),
        cmocka_unit_test(what_does_not_fit_into_out_follows_at_once),
        cmocka_unit_test(endless_lies_end_by_the_bound),
        cmocka_unit_test(names_at_one_public_network_wait_for_all_others),
        cmocka_unit_test(an_answer_that_names_its_sender_is_refused),
        cmocka_unit_test(paths_of_a_lookup_share_no_peer),
        cmocka_unit_test(what_is_refused_is_counted_by_its_reason),
        cmocka_unit_test(the_oldest_contact_is_pinged_when_a_newcomer_waits),
        cmocka_unit_test(publish_refuses_what_it_cannot_keep),
    };

    return cmocka_run_group_tests_name("dht", tests, NULL, NULL);
}
