/* dht_fuzz.c - a DHT node in the hands of its peers: any sequence of calls and
 * any bytes as messages, tables stay within their bounds, nothing crashes.
 *
 * The input is a list of steps {u8 operation, u8 peer, what it needs}. Bytes
 * arrive raw as a message, or as the fields of a well-formed one that answers
 * a question which the node really asked, so that also the code behind a
 * matching request sees garbage. Missing input reads as zeros.
 *
 * corpus/dht/seed-N is 256 * N bytes of SplitMix64 from state N. */
#include <stdlib.h>
#include <string.h>

#include "p2p/dht/dht.h"
#include "proto/base/rng.h"

#define WALL_S    1700000000U
#define PEERS     32
#define STEPS_MAX 400
#define ASKED     16 /* questions of the node that are remembered */

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

struct asked {
    struct peer_id peer;
    struct address address;
    uint16_t message;
    uint64_t request;
    struct peer_id target;
};

struct world {
    const uint8_t *in;
    size_t left;
    struct dht d;
    void *memory;
    struct dht_out *out;
    uint64_t now_ms;
    struct asked asked[ASKED];
    uint32_t n_asked;
};

/* One assertion that stays in every build of the fuzzer. */
static void must(bool holds)
{
    if (!holds) {
        abort();
    }
}

static uint8_t take(struct world *w)
{
    if (w->left == 0) {
        return 0;
    }
    w->left--;
    return *w->in++;
}

static void take_bytes(struct world *w, void *to, size_t n)
{
    uint8_t *p = to;

    while (n-- > 0) {
        *p++ = take(w);
    }
}

static struct identity identity_of(uint8_t i)
{
    struct identity id;

    identity_fake(&id, i % PEERS);
    return id;
}

static struct address address_of(uint8_t i)
{
    struct address a = {.port = i};

    a.ip[10] = a.ip[11] = 255;
    a.ip[12] = i & 1 ? 10 : 93; /* private and public */
    a.ip[14] = i >> 4;
    a.ip[15] = i;
    return a;
}

/* What the node said must decode; its questions are kept for answers. */
static void read_out(struct world *w)
{
    static union {
        uint64_t request;
        struct dht_find_node find_node;
        struct dht_find_value find_value;
        struct dht_values values;
        struct dht_store store;
    } q;

    must(w->out->n_sends <= DHT_SENDS_MAX);
    must(w->out->n_bytes <= DHT_OUT_BYTES_MAX);
    for (uint32_t i = 0; i < w->out->n_sends; i++) {
        const struct dht_send *s = &w->out->sends[i];
        struct asked *a = &w->asked[w->n_asked % ASKED];

        must(s->len <= msg_bytes_max(dht_msg_schema(s->message)));
        must(msg_decode(dht_msg_schema(s->message), w->out->bytes + s->bytes,
                        s->len, &q) == 0);
        if (s->message % 2 != 0) {
            continue; /* an answer */
        }
        *a = (struct asked){.peer = s->peer,
                            .address = s->address,
                            .message = s->message,
                            .request = q.request};
        if (s->message == DHT_MSG_FIND_NODE) {
            a->target = q.find_node.target;
        } else if (s->message == DHT_MSG_FIND_VALUE) {
            memcpy(a->target.b, q.find_value.key.b, ID_BYTES);
        }
        w->n_asked++;
    }
    for (uint32_t i = 0; i < w->out->n_done; i++) {
        must(w->out->done[i].n_contacts <= KBUCKET_K_MAX);
        must(w->out->done[i].n_records <= w->d.opt.results_max);
    }
}

static void deliver(struct world *w,
                    const struct peer_id *peer,
                    const struct address *address,
                    uint16_t message,
                    const uint8_t *bytes,
                    size_t len)
{
    struct dht_input in = {.peer = *peer,
                           .address = *address,
                           .message = message,
                           .bytes = bytes,
                           .len = len,
                           .now_ms = w->now_ms,
                           .wall_s = WALL_S + w->now_ms / 1000};

    must(dht_recv(&w->d, &in, w->out) <= 0);
    read_out(w);
}

static void raw(struct world *w, uint8_t who)
{
    struct identity id = identity_of(who);
    struct address at = address_of(who);
    uint16_t message = (uint16_t)(0x1F + take(w) % 10);
    uint8_t bytes[256];
    size_t n = take(w);

    take_bytes(w, bytes, n);
    deliver(w, &id.id, &at, message, bytes, n);
}

static struct record record_of(struct world *w, uint8_t who)
{
    struct identity id = identity_of(who);
    struct signer signer = signer_keyed(&id);
    struct record r = {.value_len = who % 8, .sequence = take(w)};

    memset(r.key.b, take(w) % 4, sizeof r.key.b);
    r.expiry_s = WALL_S + 60U * take(w);
    must(record_sign(&r, &signer) == 0);
    r.signature[0] ^= who == 7; /* one peer forges */
    return r;
}

static uint32_t contacts_of(struct world *w, struct dht_contact *to)
{
    uint32_t n = take(w) % (DHT_CONTACTS_MAX + 1);

    for (uint32_t i = 0; i < n; i++) {
        uint8_t who = take(w);
        struct address at = address_of(who);

        to[i].id = identity_of(who).id;
        take_bytes(w, to[i].id.b + 28, who % 5);
        memcpy(to[i].ip, at.ip, sizeof to[i].ip);
        to[i].port = at.port;
    }
    return n;
}

/* A well-formed answer to a question that was asked. */
static void answer(struct world *w, uint8_t which)
{
    static uint8_t bytes[16 << 10];
    static struct dht_values say;
    static struct dht_nodes nodes;
    struct asked *a = &w->asked[which % ASKED];
    uint16_t message = (uint16_t)(a->message + 1);
    struct dht_stored stored = {.request = a->request, .kept = which & 1};
    const void *object = &stored;
    int n;

    if (which % ASKED >= w->n_asked) {
        return;
    }
    if (message == DHT_MSG_NODES) {
        nodes.request = a->request;
        nodes.n_contacts = contacts_of(w, nodes.contacts);
        object = &nodes;
    } else if (message == DHT_MSG_VALUES) {
        say.request = a->request;
        say.n_records = take(w) % (DHT_RECORDS_MAX + 1);
        for (uint32_t i = 0; i < say.n_records; i++) {
            say.records[i] = record_of(w, take(w));
        }
        say.n_contacts = contacts_of(w, say.contacts);
        object = &say;
    }
    n = msg_encode(dht_msg_schema(message), object, bytes, sizeof bytes);
    must(n > 0);
    deliver(w, &a->peer, &a->address, message, bytes, (size_t)n);
}

/* A well-formed question. */
static void question(struct world *w, uint8_t who)
{
    struct identity id = identity_of(who);
    struct address at = address_of(who);
    struct dht_store store = {.request = who};
    struct dht_find_value find = {.request = who};
    uint16_t message = (uint16_t)(DHT_MSG_PING + 2 * (take(w) % 4));
    const void *object = &find; /* same layout as dht_find_node, dht_ping */
    uint8_t bytes[1024];
    int n;

    store.record = record_of(w, who);
    find.key = store.record.key;
    memcpy(find.target.b, find.key.b, ID_BYTES);
    if (message == DHT_MSG_STORE) {
        object = &store;
    }
    n = msg_encode(dht_msg_schema(message), object, bytes, sizeof bytes);
    must(n > 0);
    deliver(w, &id.id, &at, message, bytes, (size_t)n);
}

static void start(struct world *w, uint8_t what)
{
    struct record r = record_of(w, what);
    struct peer_id target;
    uint64_t lookup;

    memcpy(target.b, r.key.b, sizeof target.b);
    switch (what % 5) {
    case 0:
        (void)dht_find(&w->d, &target, w->now_ms, &lookup, w->out);
        break;
    case 1:
        (void)dht_get(&w->d, &r.key, w->now_ms, &lookup, w->out);
        break;
    case 2:
        (void)dht_put(&w->d, &r, w->now_ms, WALL_S, &lookup, w->out);
        break;
    case 3:
        (void)dht_publish(&w->d, &r.key, r.value, r.value_len, what);
        return;
    default:
        (void)dht_withdraw(&w->d, &r.key);
        return;
    }
    read_out(w);
}

static void step(struct world *w)
{
    uint8_t operation = take(w), who = take(w);
    struct identity id = identity_of(who);
    struct address at = address_of(who);

    switch (operation % 8) {
    case 0:
        raw(w, who);
        break;
    case 1:
    case 2:
        answer(w, who);
        break;
    case 3:
        question(w, who);
        break;
    case 4:
        start(w, who);
        break;
    case 5:
        dht_seen(&w->d, &id.id, &at, w->now_ms);
        break;
    case 6:
        dht_failed(&w->d, &id.id, w->now_ms, w->out);
        read_out(w);
        break;
    default: {
        uint64_t due = dht_deadline(&w->d);

        w->now_ms = due > w->now_ms && who & 1 ? due : w->now_ms + who * 4U;
        dht_tick(&w->d, w->now_ms, WALL_S + w->now_ms / 1000, w->out);
        read_out(w);
        break;
    }
    }
    must(w->d.table.n + w->d.table.n_cached <= w->d.opt.table.contacts_max);
    must(w->d.store.n <= w->d.opt.store.records_max);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct dht_out out;
    struct dht_options opt = dht_options_default();
    struct identity self;
    struct world w = {.in = data, .left = size, .out = &out, .now_ms = 1};

    identity_fake(&self, 0); /* peer 0 claims to be us */
    opt.table.self = self.id;
    opt.table.k = 4;
    opt.table.cache = 2;
    opt.table.contacts_max = 12;
    opt.store.records_max = 8;
    opt.limiter.peers_max = 4;
    opt.requests_max = 6;
    opt.results_max = 3;
    opt.lookups_max = 3;
    opt.lookup_requests_max = 30;
    opt.signer = signer_keyed(&self);
    opt.server = size % 2 == 0;
    w.memory = malloc(dht_bytes(&opt));
    must(w.memory != NULL);
    dht_init(&w.d, &opt, w.memory, w.now_ms);
    for (int i = 0; i < STEPS_MAX && w.left > 0; i++) {
        step(&w);
    }
    free(w.memory);
    return 0;
}
