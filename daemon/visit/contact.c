/* contact.c - see contact.h. */
#include "daemon/visit/contact.h"

#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include <sodium.h>

#include "daemon/visit/dialogue.h"
#include "p2p/uv/addr.h"
#include "proto/base/bytes.h"
#include "proto/base/clock.h"
#include "proto/base/err.h"
#include "proto/dht_msg.h"
#include "proto/messages.h"

#define ANSWER_MS    1500 /* for one question; a peer may not serve it */
#define PIECE_BYTES  262144U
#define WINDOW       8
#define HEADER_BYTES 20 /* of a segment */

struct visit {
    const struct contact_options *opt;
    struct contact *c;
    struct identity self;
    struct signer signer;
    uint64_t deadline_ms;
    struct dialogue *control;
    union {
        struct hello hello;
        struct manifest_part part;
        struct dht_values values;
    } in;
};

/* The next message of that type into v->in; others pass by. */
static int hear(struct visit *v,
                uint16_t wanted,
                const struct msg_schema *schema,
                uint64_t until_ms)
{
    const uint8_t *bytes = NULL;
    uint8_t type;
    int n;

    do {
        n = dialogue_recv(v->control, until_ms, &type, &bytes);
    } while (n >= 0 && type != wanted);
    return n < 0 ? n : msg_decode(schema, bytes, (size_t)n, &v->in);
}

/* When to give a question up: no visit is longer than it was to be. */
static uint64_t answer_by(const struct visit *v)
{
    uint64_t until_ms = monotonic_ms() + ANSWER_MS;

    return until_ms < v->deadline_ms ? until_ms : v->deadline_ms;
}

/* ---- steps ------------------------------------------------------------ */

static enum dialogue_step dial(struct visit *v, bool bulk, struct dialogue **d)
{
    struct dialogue_options opt = {
        .address = v->c->address,
        .run_id = v->opt->run_id,
        .version = HANDSHAKE_VERSION,
        .signer = &v->signer,
        .expected = v->opt->pin,
        .bulk = bulk,
        .deadline_ms = v->deadline_ms,
    };

    return dialogue_open(d, &opt, &v->c->rc);
}

/* Each address of the name until one answers; false: none did. */
static bool reach(struct visit *v, const struct addrinfo *list)
{
    struct contact *c = v->c;

    c->step = CONTACT_CONNECT;
    for (const struct addrinfo *a = list;
         a != NULL && c->n_addresses < CONTACT_ADDRESSES_MAX; a = a->ai_next) {
        uint64_t began_ms = monotonic_ms();
        enum dialogue_step step;

        if (address_from_sockaddr(a->ai_addr, &c->address) != 0) {
            continue;
        }
        c->n_addresses++;
        step = dial(v, false, &v->control);
        c->connect_ms = (uint32_t)(monotonic_ms() - began_ms);
        if (step == DIALOGUE_UP) {
            c->peer = *dialogue_peer(v->control);
            return true;
        }
        if (step == DIALOGUE_HANDSHAKE) {
            c->step = CONTACT_HANDSHAKE;
            return false; /* somebody is there: the other addresses are his */
        }
    }
    return false;
}

static bool resolve_and_reach(struct visit *v)
{
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM}, *list;
    uint64_t began_ms = monotonic_ms();
    char port[8];
    bool up;

    (void)snprintf(port, sizeof port, "%u", v->opt->host.port);
    v->c->step = CONTACT_RESOLVE;
    v->c->rc = getaddrinfo(v->opt->host.host, port, &hints, &list);
    v->c->resolve_ms = (uint32_t)(monotonic_ms() - began_ms);
    if (v->c->rc != 0) {
        return false;
    }
    up = reach(v, list);
    freeaddrinfo(list);
    return up;
}

static int take_hello(struct visit *v)
{
    struct hello mine = {
        .life = 1, .oldest = PROTO_OLDEST, .newest = PROTO_NEWEST};
    int rv = hear(v, MESSAGE_HELLO, &hello_schema, v->deadline_ms);

    if (rv != 0) {
        return rv;
    }
    memcpy(v->c->observed.ip, v->in.hello.observed.ip,
           sizeof v->c->observed.ip);
    v->c->oldest = v->in.hello.oldest;
    v->c->newest = v->in.hello.newest;
    if (!hello_fits(&v->in.hello, PROTO_OLDEST, PROTO_NEWEST)) {
        return LOCO_ERUN;
    }
    memcpy(mine.observed.ip, v->c->address.ip, sizeof mine.observed.ip);
    return dialogue_say(v->control, MESSAGE_HELLO, &mine);
}

/* The whole wire form; LOCO_ETIMEOUT where the peer has none yet. */
static int fetch_manifest(struct visit *v, uint8_t *wire, size_t *len)
{
    struct get_manifest ask = {0};
    uint32_t got = 0, total = 0;
    int rv;

    do {
        ask.offset = got;
        rv = dialogue_say(v->control, MESSAGE_GET_MANIFEST, &ask);
        rv = rv != 0 ? rv
                     : hear(v, MESSAGE_MANIFEST, &manifest_part_schema,
                            answer_by(v));
        if (rv != 0) {
            return rv;
        }
        if (v->in.part.offset != got || v->in.part.n_bytes == 0 ||
            v->in.part.total > MANIFEST_WIRE_MAX || v->in.part.total < got ||
            v->in.part.n_bytes > v->in.part.total - got) {
            return LOCO_EPROTO;
        }
        memcpy(wire + got, v->in.part.bytes, v->in.part.n_bytes);
        got += v->in.part.n_bytes;
        total = v->in.part.total;
    } while (got < total);
    *len = got;
    return 0;
}

static void ask_manifest(struct visit *v)
{
    struct signer check = signer_sodium(NULL);
    struct contact *c = v->c;
    uint8_t *wire = malloc(MANIFEST_WIRE_MAX);
    char errmsg[LOCO_ERRMSG_MAX] = "";
    size_t len;

    c->manifest = malloc(sizeof *c->manifest);
    if (wire != NULL && c->manifest != NULL &&
        fetch_manifest(v, wire, &len) == 0) {
        c->has_manifest = manifest_unpack(wire, len, &check, c->manifest, NULL,
                                          &c->manifest_run, errmsg) == 0;
        (void)snprintf(c->errmsg, sizeof c->errmsg, "%s", errmsg);
    }
    if (!c->has_manifest) {
        free(c->manifest);
        c->manifest = NULL;
    }
    free(wire);
}

/* What others published under the run id, as this peer keeps it. */
static void ask_records(struct visit *v)
{
    struct dht_find_value ask = {.key = v->opt->run_id};

    randombytes_buf(&ask.request, sizeof ask.request);
    if (dialogue_say(v->control, DHT_MSG_FIND_VALUE, &ask) != 0 ||
        hear(v, DHT_MSG_VALUES, &dht_values_schema, answer_by(v)) != 0) {
        return;
    }
    for (uint32_t i = 0; i < v->in.values.n_records; i++) {
        uint64_t expiry_s = v->in.values.records[i].expiry_s;

        if (expiry_s > v->c->newest_expiry_s) {
            v->c->newest_expiry_s = expiry_s;
        }
    }
}

/* ---- the transfer ----------------------------------------------------- */

static int ask_piece(struct visit *v, uint32_t seg)
{
    const struct manifest_shard *s = &v->c->manifest->data.shards[0];
    uint64_t n = (s->bytes + PIECE_BYTES - 1) / PIECE_BYTES;
    struct fetch ask = {.buffer = BUFFER_SHARD,
                        .attempt = 1,
                        .seg = seg,
                        .len = PIECE_BYTES,
                        .stream = STREAM_FETCH};

    ask.offset = seg % n * PIECE_BYTES;
    if (s->bytes - ask.offset < ask.len) {
        ask.len = (uint32_t)(s->bytes - ask.offset);
    }
    return dialogue_say(v->control, MESSAGE_FETCH, &ask);
}

/* One whole segment: its payload bytes, or a negative code. */
static int take_segment(struct dialogue *bulk, uint64_t until_ms)
{
    const uint8_t *bytes = NULL;
    uint32_t len, got = 0;
    int n = dialogue_record(bulk, until_ms, &bytes);

    if (n != HEADER_BYTES) {
        return n < 0 ? n : LOCO_EPROTO;
    }
    len = get_u32(bytes);
    if (len > PIECE_BYTES) {
        return LOCO_EPROTO;
    }
    while (got < len) {
        n = dialogue_record(bulk, until_ms, &bytes);
        if (n <= 0) {
            return n < 0 ? n : LOCO_EPROTO;
        }
        got += (uint32_t)n;
    }
    return (int)got;
}

static void transfer(struct visit *v)
{
    struct contact *c = v->c;
    struct dialogue *bulk = NULL;
    uint64_t began_us = monotonic_us(), until_ms;
    uint32_t asked = 0, got = 0, most;

    if (!c->has_manifest || c->manifest->data.n_shards == 0 ||
        dial(v, true, &bulk) != DIALOGUE_UP) {
        c->transfer_rc = c->rc != 0 ? c->rc : LOCO_ENOENT;
        c->rc = 0;
        return;
    }
    most = (uint32_t)((v->opt->transfer_bytes + PIECE_BYTES - 1) / PIECE_BYTES);
    until_ms = monotonic_ms() + v->opt->transfer_ms;
    while (got < most && c->transfer_rc == 0 && monotonic_ms() < until_ms) {
        int n = 0;

        while (asked < most && asked < got + WINDOW && n == 0) {
            n = ask_piece(v, asked++);
        }
        n = n < 0 ? n : take_segment(bulk, until_ms);
        if (n < 0) {
            c->transfer_rc = n;
        } else {
            c->transfer_bytes += (uint64_t)n;
            c->transfer_us = monotonic_us() - began_us;
            got++;
        }
    }
    dialogue_close(bulk);
}

/* ---- the visit -------------------------------------------------------- */

void contact_visit(const struct contact_options *opt, struct contact *c)
{
    struct visit *v = calloc(1, sizeof *v);

    memset(c, 0, sizeof *c);
    if (v == NULL || identity_generate(&v->self, NULL) != 0) {
        free(v);
        c->rc = EAI_MEMORY;
        return;
    }
    v->opt = opt;
    v->c = c;
    v->signer = signer_sodium(&v->self);
    v->deadline_ms = monotonic_ms() + opt->limit_ms;
    if (resolve_and_reach(v)) {
        c->step = CONTACT_HELLO;
        c->rc = take_hello(v);
        if (c->rc == 0) {
            c->step = CONTACT_TALKED;
            ask_manifest(v);
            if (!opt->manifest_only) {
                ask_records(v);
            }
        }
        if (c->rc == 0 && opt->transfer_bytes > 0) {
            transfer(v);
        }
    }
    dialogue_leave(v->control, &v->self.id);
    identity_wipe(&v->self);
    free(v);
}
