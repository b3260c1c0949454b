/* node_dht.c - the DHT's messages travel over the node's links.
 *
 * A request to a peer without a link waits in `pending` while the peer is
 * dialled; if that fails the DHT hears of it. Our own record under the run id
 * says where we listen; peers of the run are found by a GET of that key.
 */
#include "daemon/node_internal.h"

#include <stdlib.h>
#include <string.h>

#include "proto/base/bytes.h"
#include "proto/base/err.h"
#include "proto/base/rng.h"

#define GET_MS            15000
#define RECORD_LIFETIME_S 7200
#define VALUE_BYTES       18 /* ip, port little-endian */

int node_dht_open(struct node *n)
{
    struct dht_options opt = dht_options_default();

    opt.table.self = n->opt.self;
    opt.signer = n->opt.signer;
    opt.seed = rng_next(&n->rng);
    opt.server = n->opt.dialable;
    n->dht_memory = malloc(dht_bytes(&opt));
    if (n->dht_memory == NULL) {
        return LOCO_ENOMEM;
    }
    dht_init(&n->dht, &opt, n->dht_memory, n->now);
    n->dht_get_ms = n->now;
    return 0;
}

static void out_reset(struct node *n)
{
    n->dht_out.n_sends = n->dht_out.n_done = n->dht_out.n_bytes = 0;
}

static void keep_pending(struct node *n, const struct dht_send *send, int peer)
{
    for (int i = 0; i < NODE_PENDING_MAX; i++) {
        struct node_pending *p = &n->pending[i];

        if (!p->used && send->len <= sizeof p->bytes) {
            p->used = true;
            p->peer = peer;
            p->message = send->message;
            p->len = send->len;
            memcpy(p->bytes, n->dht_out.bytes + send->bytes, send->len);
            members_want(&n->members, peer, true);
            return;
        }
    }
}

static void learn_records(struct node *n, const struct dht_done *done)
{
    for (uint32_t i = 0; i < done->n_records; i++) {
        const struct record *r = &done->records[i];
        struct peer_id id = id_of_public(r->publisher);
        struct address a;

        if (r->value_len != VALUE_BYTES) {
            continue;
        }
        memcpy(a.ip, r->value, sizeof a.ip);
        a.port = get_u16(r->value + 16);
        if (a.port != 0) {
            (void)members_learn(&n->members, &id, &a, n->now);
        }
    }
}

/* Execute what the DHT wants; sending may make it want more (a peer that is
 * not acceptable fails at once), but never more than once around. */
static void flush(struct node *n)
{
    for (uint32_t i = 0; i < n->dht_out.n_sends; i++) {
        const struct dht_send *s = &n->dht_out.sends[i];
        int peer = members_learn(&n->members, &s->peer, &s->address, n->now);

        if (peer == MEMBERS_NONE) {
            continue;
        }
        if (!members_send_raw(&n->members, n->out, peer, s->message,
                              n->dht_out.bytes + s->bytes, s->len)) {
            keep_pending(n, s, peer);
        }
    }
    for (uint32_t i = 0; i < n->dht_out.n_done; i++) {
        if (n->dht_out.done[i].kind == DHT_GET) {
            learn_records(n, &n->dht_out.done[i]);
        }
    }
}

void node_dht_link_up(struct node *n, int peer)
{
    const struct member *m = &n->members.peers[peer];

    dht_seen(&n->dht, &m->id, &m->address, n->now);
    for (int i = 0; i < NODE_PENDING_MAX; i++) {
        struct node_pending *p = &n->pending[i];

        if (p->used && p->peer == peer) {
            p->used = false;
            (void)members_send_raw(&n->members, n->out, peer, p->message,
                                   p->bytes, p->len);
        }
    }
    members_want(&n->members, peer, false);
}

void node_dht_unreachable(struct node *n, int peer)
{
    for (int i = 0; i < NODE_PENDING_MAX; i++) {
        if (n->pending[i].used && n->pending[i].peer == peer) {
            n->pending[i].used = false;
        }
    }
    members_want(&n->members, peer, false);
    out_reset(n);
    dht_failed(&n->dht, &n->members.peers[peer].id, n->now, &n->dht_out);
    flush(n);
}

void node_dht_recv(struct node *n, int peer, const struct event *ev)
{
    const struct member *m = &n->members.peers[peer];
    struct dht_input in = {
        .peer = m->id,
        .address = m->address,
        .message = ev->message,
        .bytes = ev->bytes,
        .len = ev->len,
        .now_ms = n->now,
        .wall_s = n->wall_s,
    };

    out_reset(n);
    if (dht_recv(&n->dht, &in, &n->dht_out) == LOCO_EPROTO) {
        struct action *a = out_add(n->out, ACTION_HANG_UP);

        n->malformed++;
        if (a != NULL) {
            a->link = ev->link;
        }
    }
    flush(n);
}

static void publish(struct node *n)
{
    uint8_t value[VALUE_BYTES];
    const struct address *a = &n->members.observed;
    static const uint8_t nowhere[16];

    if (n->published || a->port == 0 ||
        memcmp(a->ip, nowhere, sizeof nowhere) == 0) {
        return;
    }
    memcpy(value, a->ip, sizeof a->ip);
    put_u16(value + 16, a->port);
    n->published = dht_publish(&n->dht, &n->opt.run_id, value, sizeof value,
                               RECORD_LIFETIME_S) == 0;
}

void node_dht_advance(struct node *n)
{
    uint64_t lookup;

    publish(n);
    if (n->now >= n->dht_get_ms && n->members.reached) {
        n->dht_get_ms = n->now + GET_MS;
        out_reset(n);
        (void)dht_get(&n->dht, &n->opt.run_id, n->now, &lookup, &n->dht_out);
        flush(n);
    }
    if (n->now >= dht_deadline(&n->dht)) {
        out_reset(n);
        dht_tick(&n->dht, n->now, n->wall_s, &n->dht_out);
        flush(n);
    }
}

uint64_t node_dht_deadline(const struct node *n)
{
    uint64_t due = dht_deadline(&n->dht);

    return due > n->now ? due : n->now + 1;
}
