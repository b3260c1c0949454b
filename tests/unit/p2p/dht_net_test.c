/* dht_net_test.c - many DHT nodes in one process: virtual time, random
 * latency, dead nodes, one seed.
 *
 * Node i listens at 10.x.y.z with i in the last three bytes. A message takes
 * 5 to 150 ms. A dead node swallows half of what it is sent (the asker's
 * time-out must notice) and refuses the other half (dht_failed()). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "p2p/dht/dht.h"
#include "proto/base/err.h"
#include "proto/base/rng.h"
#include "proto/hash.h"

#define WALL_S   1700000000U
#define DONE_MAX 16

enum item_type { ITEM_MESSAGE, ITEM_REFUSED, ITEM_TICK };

struct item {
    uint64_t at_ms, seq;
    enum item_type type;
    uint32_t from, to;
    uint16_t message;
    uint32_t len;
    uint8_t *bytes;
};

struct node {
    struct identity identity;
    struct dht d;
    void *memory;
    bool dead;
    uint64_t tick_ms; /* earliest tick in the heap */
};

/* The last lookup that finished at a node under test. */
struct result {
    uint64_t lookup;
    bool ready;
    int rc;
    uint32_t hops, requests, n_stored, n_contacts, n_records;
    struct peer_id closest[KBUCKET_K_MAX];
    struct record records[DONE_MAX];
};

struct net {
    uint32_t n;
    struct node *node;
    struct item *heap;
    size_t n_heap, cap;
    uint64_t now_ms, seq, rng, trace;
    struct result result;
    struct dht_out out;
};

/* ---- the heap of what will happen ------------------------------------- */

static bool before(const struct item *a, const struct item *b)
{
    return a->at_ms != b->at_ms ? a->at_ms < b->at_ms : a->seq < b->seq;
}

static void push(struct net *net, struct item item)
{
    size_t i = net->n_heap++;

    if (net->n_heap > net->cap) {
        net->cap = net->cap * 2 + 64;
        net->heap = realloc(net->heap, net->cap * sizeof *net->heap);
        assert_non_null(net->heap);
    }
    item.seq = ++net->seq;
    for (; i > 0 && before(&item, &net->heap[(i - 1) / 2]); i = (i - 1) / 2) {
        net->heap[i] = net->heap[(i - 1) / 2];
    }
    net->heap[i] = item;
}

static struct item pop(struct net *net)
{
    struct item top = net->heap[0], last = net->heap[--net->n_heap];
    size_t i = 0;

    for (size_t c; (c = 2 * i + 1) < net->n_heap; i = c) {
        c += c + 1 < net->n_heap && before(&net->heap[c + 1], &net->heap[c]);
        if (!before(&net->heap[c], &last)) {
            break;
        }
        net->heap[i] = net->heap[c];
    }
    net->heap[i] = last;
    return top;
}

/* ---- nodes ------------------------------------------------------------ */

static struct address address_of(uint32_t i)
{
    struct address a = {.port = 4000};

    a.ip[10] = a.ip[11] = 255;
    a.ip[12] = 10;
    a.ip[13] = (uint8_t)(i >> 16);
    a.ip[14] = (uint8_t)(i >> 8);
    a.ip[15] = (uint8_t)i;
    return a;
}

static uint32_t index_of(const struct address *a)
{
    return (uint32_t)a->ip[13] << 16 | (uint32_t)a->ip[14] << 8 | a->ip[15];
}

static uint64_t wall_s(const struct net *net)
{
    return WALL_S + net->now_ms / 1000;
}

static uint64_t latency_ms(struct net *net)
{
    return 5 + rng_below(&net->rng, 146);
}

static void note_done(struct net *net)
{
    for (uint32_t i = 0; i < net->out.n_done; i++) {
        const struct dht_done *done = &net->out.done[i];
        struct result *r = &net->result;

        if (done->lookup != r->lookup) {
            continue;
        }
        r->ready = true;
        r->rc = done->rc;
        r->hops = done->hops;
        r->requests = done->requests;
        r->n_stored = done->n_stored;
        r->n_contacts = done->n_contacts;
        r->n_records = done->n_records;
        assert_true(done->n_records <= DONE_MAX);
        for (uint32_t j = 0; j < done->n_records; j++) {
            r->records[j] = done->records[j];
        }
        for (uint32_t j = 0; j < done->n_contacts; j++) {
            r->closest[j] = done->contacts[j].id;
        }
    }
}

/* Put what node `from` said on the wire and plan its next tick. */
static void flush(struct net *net, uint32_t from, bool watched)
{
    struct node *node = &net->node[from];
    uint64_t due = dht_deadline(&node->d);

    for (uint32_t i = 0; i < net->out.n_sends; i++) {
        const struct dht_send *s = &net->out.sends[i];
        uint32_t to = index_of(&s->address);
        struct item item = {.at_ms = net->now_ms + latency_ms(net),
                            .from = from,
                            .to = to,
                            .message = s->message,
                            .len = s->len};

        assert_true(to < net->n);
        assert_memory_equal(s->peer.b, net->node[to].identity.id.b, ID_BYTES);
        assert_true(s->len <= msg_bytes_max(dht_msg_schema(s->message)));
        if (net->node[to].dead) {
            if (rng_below(&net->rng, 2) == 0) {
                item.type = ITEM_REFUSED;
                push(net, item);
            }
            continue;
        }
        item.bytes = malloc(s->len);
        assert_non_null(item.bytes);
        memcpy(item.bytes, net->out.bytes + s->bytes, s->len);
        push(net, item);
    }
    if (watched) {
        note_done(net);
    }
    due = due > net->now_ms ? due : net->now_ms;
    if (due < node->tick_ms) {
        node->tick_ms = due;
        push(net, (struct item){.at_ms = due, .type = ITEM_TICK, .to = from});
    }
}

static void deliver(struct net *net, const struct item *m)
{
    struct node *to = &net->node[m->to];
    struct dht_input in = {.peer = net->node[m->from].identity.id,
                           .address = address_of(m->from),
                           .message = m->message,
                           .bytes = m->bytes,
                           .len = m->len,
                           .now_ms = net->now_ms,
                           .wall_s = wall_s(net)};
    int rv = dht_recv(&to->d, &in, &net->out);

    assert_true(rv == 0 || rv == LOCO_ESTALE || rv == LOCO_EBUSY);
}

static void step(struct net *net, uint32_t watched)
{
    struct item item = pop(net);
    uint64_t words[4] = {net->trace, item.at_ms, item.to, item.message};
    struct node *node = &net->node[item.to];

    assert_true(item.at_ms >= net->now_ms);
    net->now_ms = item.at_ms;
    net->trace = rng_mix(words, 4);
    if (item.type == ITEM_REFUSED) {
        if (!net->node[item.from].dead) {
            dht_failed(&net->node[item.from].d, &node->identity.id, net->now_ms,
                       &net->out);
            flush(net, item.from, item.from == watched);
        }
    } else if (item.type == ITEM_TICK) {
        if (item.at_ms == node->tick_ms) {
            node->tick_ms = CORE_NEVER;
        }
        if (!node->dead && dht_deadline(&node->d) <= net->now_ms) {
            dht_tick(&node->d, net->now_ms, wall_s(net), &net->out);
            flush(net, item.to, item.to == watched);
        } else if (!node->dead && node->tick_ms == CORE_NEVER) {
            net->out.n_sends = net->out.n_done = 0;
            flush(net, item.to, false);
        }
    } else if (!node->dead) {
        deliver(net, &item);
        flush(net, item.to, item.to == watched);
    }
    free(item.bytes);
}

static void run_until(struct net *net, uint64_t at_ms)
{
    while (net->n_heap > 0 && net->heap[0].at_ms <= at_ms) {
        step(net, UINT32_MAX);
    }
    net->now_ms = at_ms;
}

/* Run until the lookup that was just started at `who` is over. */
static const struct result *wait_for(struct net *net, uint32_t who)
{
    uint64_t limit_ms = net->now_ms + 120000;

    flush(net, who, true);
    while (!net->result.ready) {
        assert_true(net->n_heap > 0 && net->heap[0].at_ms <= limit_ms);
        step(net, who);
    }
    return &net->result;
}

static struct dht_options small_options(void)
{
    struct dht_options opt = dht_options_default();

    opt.table.k = 8;
    opt.table.cache = 4;
    opt.table.contacts_max = 128;
    opt.store.records_max = 48;
    opt.limiter.peers_max = 64;
    opt.requests_max = 32;
    opt.results_max = DONE_MAX;
    opt.lookups_max = 4;
    opt.published_max = 2;
    opt.server = true;
    return opt;
}

static void link_up(struct net *net, uint32_t a, uint32_t b)
{
    struct address at_a = address_of(a), at_b = address_of(b);

    dht_seen(&net->node[a].d, &net->node[b].identity.id, &at_b, net->now_ms);
    dht_seen(&net->node[b].d, &net->node[a].identity.id, &at_a, net->now_ms);
    net->out.n_sends = net->out.n_done = 0;
    flush(net, a, false);
    flush(net, b, false);
}

/* n nodes that joined one after another, each by one random older node. */
static struct net *net_make(uint32_t n, uint64_t seed)
{
    struct dht_options opt = small_options();
    struct net *net = calloc(1, sizeof *net);

    assert_non_null(net);
    net->n = n;
    net->rng = seed;
    net->node = calloc(n, sizeof *net->node);
    assert_non_null(net->node);
    for (uint32_t i = 0; i < n; i++) {
        struct node *node = &net->node[i];

        identity_fake(&node->identity, i + 1000 * seed);
        opt.table.self = node->identity.id;
        opt.signer = signer_keyed(&node->identity);
        opt.seed = rng_next(&net->rng);
        node->memory = malloc(dht_bytes(&opt));
        assert_non_null(node->memory);
        dht_init(&node->d, &opt, node->memory, net->now_ms);
        node->tick_ms = CORE_NEVER;
        net->out.n_sends = net->out.n_done = 0;
        flush(net, i, false);
        if (i > 0) {
            link_up(net, i, (uint32_t)rng_below(&net->rng, i));
        }
        run_until(net, net->now_ms + 50);
    }
    run_until(net, net->now_ms + 60000);
    return net;
}

static void net_free(struct net *net)
{
    for (size_t i = 0; i < net->n_heap; i++) {
        free(net->heap[i].bytes);
    }
    for (uint32_t i = 0; i < net->n; i++) {
        free(net->node[i].memory);
    }
    free(net->heap);
    free(net->node);
    free(net);
}

static void kill_tenth(struct net *net)
{
    for (uint32_t i = 0; i < net->n / 10; i++) {
        uint32_t who;

        do {
            who = (uint32_t)rng_below(&net->rng, net->n);
        } while (net->node[who].dead);
        net->node[who].dead = true;
    }
}

static uint32_t pick_live(struct net *net)
{
    for (;;) {
        uint32_t who = (uint32_t)rng_below(&net->rng, net->n);

        if (!net->node[who].dead) {
            return who;
        }
    }
}

static void expect(struct net *net, uint64_t lookup)
{
    net->result.lookup = lookup;
    net->result.ready = false;
}

static struct record make_record(struct net *net, uint32_t who, uint8_t key)
{
    struct signer signer = signer_keyed(&net->node[who].identity);
    struct record r = {.value_len = 1,
                       .value = {key},
                       .sequence = 1,
                       .expiry_s = wall_s(net) + 3600};

    hash_bytes("test", &key, 1, &r.key);
    assert_int_equal(record_sign(&r, &signer), 0);
    return r;
}

static const struct result *
put(struct net *net, uint32_t who, const struct record *r)
{
    struct node *node = &net->node[who];
    uint64_t lookup;
    int rv = dht_put(&node->d, r, net->now_ms, wall_s(net), &lookup, &net->out);

    assert_int_equal(rv, 0);
    expect(net, lookup);
    return wait_for(net, who);
}

static const struct result *
get(struct net *net, uint32_t who, const struct hash32 *key)
{
    uint64_t lookup;

    assert_int_equal(
        dht_get(&net->node[who].d, key, net->now_ms, &lookup, &net->out), 0);
    expect(net, lookup);
    return wait_for(net, who);
}

static uint32_t log2_floor(uint32_t n)
{
    uint32_t l = 0;

    while (n >>= 1) {
        l++;
    }
    return l;
}

/* ---- tests ------------------------------------------------------------ */

/* Bounded tables are what makes it safe to run for months. */
static void check_bounds(const struct net *net)
{
    for (uint32_t i = 0; i < net->n; i++) {
        const struct dht *d = &net->node[i].d;

        assert_true(d->table.n + d->table.n_cached <=
                    d->opt.table.contacts_max);
        assert_true(d->store.n <= d->opt.store.records_max);
        assert_int_equal(d->counts.malformed, 0);
        assert_int_equal(d->counts.bad_records, 0);
        assert_int_equal(d->counts.limited, 0);
    }
}

/* `n_keys` records, each read from `n_readers` nodes (0: from every one). */
static void
every_record_is_found(uint32_t n, uint8_t n_keys, uint32_t n_readers)
{
    struct net *net = net_make(n, 1);
    uint32_t hops_max = 0, readers = n_readers == 0 ? n : n_readers;
    uint32_t publisher[64];

    for (uint8_t key = 0; key < n_keys; key++) {
        const struct result *r;
        struct record record;

        if (key == n_keys / 2) {
            kill_tenth(net);
        }
        publisher[key] = pick_live(net);
        record = make_record(net, publisher[key], key);
        r = put(net, publisher[key], &record);
        assert_int_equal(r->rc, 0);
        assert_in_range(r->n_stored, 6, 8 + 1);
    }
    for (uint8_t key = 0; key < n_keys; key++) {
        struct hash32 name;

        hash_bytes("test", &key, 1, &name);
        for (uint32_t i = 0; i < readers; i++) {
            uint32_t who = n_readers == 0 ? i : pick_live(net);
            const struct result *r;

            if (net->node[who].dead) {
                continue;
            }
            r = get(net, who, &name);
            assert_int_equal(r->rc, 0);
            assert_int_equal(r->n_records, 1);
            assert_int_equal(r->records[0].value[0], key);
            assert_memory_equal(r->records[0].publisher,
                                net->node[publisher[key]].identity.public,
                                SIGN_PUBLIC_BYTES);
            hops_max = r->hops > hops_max ? r->hops : hops_max;
        }
    }
    assert_true(hops_max <= log2_floor(n) + 2);
    check_bounds(net);
    net_free(net);
}

static void sixty_four_nodes_find_every_record_from_every_node(void **state)
{
    (void)state;
    every_record_is_found(64, 16, 0);
}

static void five_hundred_nodes_find_every_record_from_any_node(void **state)
{
    (void)state;
    every_record_is_found(500, 32, 12);
}

static void find_returns_the_true_closest_live_nodes(void **state)
{
    struct net *net = net_make(200, 2);
    uint32_t n_right = 0, n_all = 0;

    (void)state;
    kill_tenth(net);
    for (int i = 0; i < 40; i++) {
        uint32_t who = pick_live(net);
        const struct result *r;
        struct peer_id target;
        uint64_t lookup;

        for (int b = 0; b < ID_BYTES; b++) {
            target.b[b] = (uint8_t)rng_next(&net->rng);
        }
        assert_int_equal(dht_find(&net->node[who].d, &target, net->now_ms,
                                  &lookup, &net->out),
                         0);
        expect(net, lookup);
        r = wait_for(net, who);
        assert_int_equal(r->rc, 0);
        assert_int_equal(r->n_contacts, 8);
        for (uint32_t j = 0; j < r->n_contacts; j++) {
            uint32_t closer = 0;

            for (uint32_t m = 0; m < net->n; m++) {
                const struct peer_id *id = &net->node[m].identity.id;

                closer += m != who && !net->node[m].dead &&
                          id_xor_cmp(&target, id, &r->closest[j]) < 0;
            }
            n_right += closer < 8;
            n_all++;
        }
        assert_true(n_all > 0);
    }
    assert_true(n_right * 100 >= n_all * 98);
    net_free(net);
}

static void one_key_gives_the_records_of_all_its_publishers(void **state)
{
    struct net *net = net_make(64, 3);
    struct hash32 key;
    uint8_t name = 7;
    unsigned seen = 0;
    const struct result *r;

    (void)state;
    for (uint32_t i = 0; i < 10; i++) {
        struct record record = make_record(net, i, name);

        record.value[0] = (uint8_t)i;
        assert_int_equal(record_sign(&record, &net->node[i].d.opt.signer), 0);
        assert_int_equal(put(net, i, &record)->rc, 0);
    }
    hash_bytes("test", &name, 1, &key);
    r = get(net, 40, &key);
    assert_int_equal(r->n_records, 10);
    for (uint32_t i = 0; i < r->n_records; i++) {
        seen |= 1U << r->records[i].value[0];
    }
    assert_int_equal(seen, 0x3FF);
    net_free(net);
}

static void the_newest_sequence_wins_everywhere(void **state)
{
    struct net *net = net_make(64, 4);
    struct record old = make_record(net, 5, 9), new = old;
    const struct result *r;

    (void)state;
    new.sequence = 2;
    new.value[0] = 77;
    assert_int_equal(record_sign(&new, &net->node[5].d.opt.signer), 0);
    assert_int_equal(put(net, 5, &new)->rc, 0);
    /* A replay of the old one by somebody else is refused by every holder. */
    r = put(net, 30, &old);
    assert_int_equal(r->n_stored, 0);
    assert_int_equal(r->rc, LOCO_ENOENT);
    r = get(net, 50, &old.key);
    assert_int_equal(r->n_records, 1);
    assert_int_equal(r->records[0].sequence, 2);
    assert_int_equal(r->records[0].value[0], 77);
    net_free(net);
}

static void a_published_record_outlives_its_holders(void **state)
{
    struct net *net = net_make(64, 5);
    struct hash32 key = {.b = {0xAB, 1}};
    uint32_t publisher = 3, n_killed = 0;
    const struct result *r;
    uint64_t first;

    (void)state;
    assert_int_equal(
        dht_publish(&net->node[publisher].d, &key, "here", 4, 1800), 0);
    net->out.n_sends = net->out.n_done = 0;
    flush(net, publisher, false);
    run_until(net, net->now_ms + 20000);
    r = get(net, 20, &key);
    assert_int_equal(r->n_records, 1);
    assert_memory_equal(r->records[0].value, "here", 4);
    first = r->records[0].sequence;
    for (uint32_t i = 0; i < net->n; i++) {
        if (i != publisher && net->node[i].d.store.n > 0) {
            net->node[i].dead = true;
            n_killed++;
        }
    }
    assert_in_range(n_killed, 6, 9);
    run_until(net, net->now_ms + 960000); /* one republish period */
    do {
        uint32_t who = pick_live(net);

        if (who != publisher) {
            r = get(net, who, &key);
            break;
        }
    } while (true);
    assert_int_equal(r->n_records, 1);
    assert_true(r->records[0].sequence > first);
    assert_int_equal(dht_withdraw(&net->node[publisher].d, &key), 0);
    assert_int_equal(dht_withdraw(&net->node[publisher].d, &key), LOCO_ENOENT);
    run_until(net, net->now_ms + 1900000); /* its lifetime passes */
    assert_int_equal(get(net, pick_live(net), &key)->rc, LOCO_ENOENT);
    for (uint32_t i = 0; i < net->n; i++) {
        assert_true(net->node[i].dead || net->node[i].d.store.n == 0);
    }
    net_free(net);
}

static void four_nodes_all_know_each_other(void **state)
{
    struct net *net = net_make(4, 6);

    (void)state;
    for (uint32_t i = 0; i < 4; i++) {
        assert_int_equal(net->node[i].d.table.n, 3);
        assert_true(net->node[i].d.bootstrapped);
    }
    net_free(net);
}

static void the_same_seed_gives_the_same_trace(void **state)
{
    struct net *a = net_make(48, 8), *b = net_make(48, 8), *c = net_make(48, 9);

    (void)state;
    assert_true(a->trace == b->trace);
    assert_true(a->seq == b->seq);
    assert_true(a->trace != c->trace);
    net_free(a);
    net_free(b);
    net_free(c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(four_nodes_all_know_each_other),
        cmocka_unit_test(sixty_four_nodes_find_every_record_from_every_node),
        cmocka_unit_test(five_hundred_nodes_find_every_record_from_any_node),
        cmocka_unit_test(find_returns_the_true_closest_live_nodes),
        cmocka_unit_test(one_key_gives_the_records_of_all_its_publishers),
        cmocka_unit_test(the_newest_sequence_wins_everywhere),
        cmocka_unit_test(a_published_record_outlives_its_holders),
        cmocka_unit_test(the_same_seed_gives_the_same_trace),
    };

    return cmocka_run_group_tests_name("dht_net", tests, NULL, NULL);
}
