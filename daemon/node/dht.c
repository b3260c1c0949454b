/* dht.c - the DHT's messages travel over the node's links.
 *
 * A request to a peer without a link waits in `pending` while the peer is
 * dialled; if that fails the DHT hears of it. Our own record under the run id
 * says where we listen; peers of the run are found by a GET of that key.
 *
 * The peers cache (p2p/swarm/peers.h) is written from the routing table and
 * learnt from after a restart: then no bootstrap need be up.
 */
#include "daemon/node/internal.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "p2p/prefix.h"
#include "proto/base/bytes.h"
#include "proto/base/err.h"
#include "proto/base/log.h"
#include "proto/base/rng.h"
#include "proto/hash.h"

#define GET_MS            15000
#define GET_MAX_MS        960000
#define RECORD_LIFETIME_S 7200
#define PEERS_FIRST_MS    5000
#define PEERS_MS          60000
#define VALUE_BYTES       18 /* ip, port little-endian */

#define ADDRESS_RECORDS_MAX 2

/* Whom an earlier life knew. They are dialled like everybody we know of, with
 * their ids expected, so it does no harm when a bootstrap answers as well. */
static void learn_cache(struct node *n)
{
    struct peers cache;

    if (n->opt.peers == NULL) {
        return;
    }
    if (peers_decode(n->opt.peers, n->opt.peers_len, &cache) != 0) {
        n->dht.peers_damaged = true;
        return;
    }
    for (uint32_t i = 0; i < cache.n; i++) {
        struct address a = {.port = cache.contact[i].port};

        memcpy(a.ip, cache.contact[i].ip, sizeof a.ip);
        (void)members_learn(&n->members, &cache.contact[i].id, &a, n->now);
    }
}

/* Write the cache soon after there is something in it, later now and then, and
 * only where it changed. */
static void save_cache(struct node *n)
{
    uint8_t bytes[PEERS_BYTES_MAX];
    struct peers cache;
    struct job *job;
    struct hash32 hash;
    uint32_t at;
    int len;

    n->dht.peers_ms = n->now + PEERS_FIRST_MS;
    peers_collect(&cache, &n->dht.core.table);
    if (cache.n == 0) {
        return; /* what is on disk is better than nothing */
    }
    len = peers_encode(&cache, bytes, sizeof bytes);
    assert(len > 0);
    hash_bytes("loco-peers-1", bytes, (size_t)len, &hash);
    if (hash32_eq(&hash, &n->dht.peers_saved)) {
        return;
    }
    at = out_bytes(n->out, bytes, (size_t)len);
    job = at == UINT32_MAX ? NULL : out_job(n->out, JOB_PEERS);
    if (job != NULL) {
        job->peers.at = at;
        job->peers.len = (uint32_t)len;
        n->dht.peers_saved = hash;
        n->dht.peers_ms = n->now + PEERS_MS;
    }
}

int node_dht_open(struct node *n)
{
    struct dht_options opt = dht_options_default();

    opt.table.self = n->opt.self;
    opt.signer = n->opt.signer;
    opt.seed = rng_next(&n->rng);
    opt.server = n->opt.dialable;
    n->dht.memory = malloc(dht_bytes(&opt));
    if (n->dht.memory == NULL) {
        return LOCO_ENOMEM;
    }
    dht_init(&n->dht.core, &opt, n->dht.memory, n->now);
    n->dht.get_ms = n->now;
    n->dht.peers_ms = n->now + PEERS_FIRST_MS;
    learn_cache(n);
    return 0;
}

static void out_reset(struct node *n)
{
    n->dht.out.n_sends = n->dht.out.n_done = n->dht.out.n_bytes = 0;
}

static void keep_pending(struct node *n, const struct dht_send *send, int peer)
{
    for (int i = 0; i < NODE_PENDING_MAX; i++) {
        struct node_pending *p = &n->dht.pending[i];

        if (!p->used && send->len <= sizeof p->bytes) {
            p->used = true;
            p->peer = peer;
            p->message = send->message;
            p->len = send->len;
            memcpy(p->bytes, n->dht.out.bytes + send->bytes, send->len);
            members_want(&n->members, peer, true);
            return;
        }
    }
}

/* Publishers are free, so one address counts for ADDRESS_RECORDS_MAX of them:
 * who took a new identity there, and who had it before. */
static bool is_crowded(const struct dht_done *done, uint32_t i)
{
    uint32_t n = 0;

    for (uint32_t k = 0; k < i; k++) {
        n += done->records[k].value_len == VALUE_BYTES &&
             memcmp(done->records[k].value, done->records[i].value,
                    VALUE_BYTES) == 0;
    }
    return n >= ADDRESS_RECORDS_MAX;
}

/* Who is seen from outside looks for nobody in a private network by what a
 * stranger stored: the LAN tells of its own. */
static void learn_records(struct node *n, const struct dht_done *done)
{
    bool outside = reach_is_global(&n->reach.core.seen);

    for (uint32_t i = 0; i < done->n_records; i++) {
        const struct record *r = &done->records[i];
        struct peer_id id = id_of_public(r->publisher);
        struct address a;

        if (r->value_len != VALUE_BYTES || is_crowded(done, i)) {
            continue;
        }
        memcpy(a.ip, r->value, sizeof a.ip);
        a.port = get_u16(r->value + 16);
        if (a.port != 0 && (reach_is_global(&a) || !outside)) {
            (void)members_learn(&n->members, &id, &a, n->now);
        }
    }
}

/* Execute what the DHT wants; sending may make it want more (a peer that is
 * not acceptable fails at once), but never more than once around. */
static void flush(struct node *n)
{
    for (uint32_t i = 0; i < n->dht.out.n_sends; i++) {
        const struct dht_send *s = &n->dht.out.sends[i];
        int peer =
            members_learn_here(&n->members, &s->peer, &s->address, n->now);

        if (peer == MEMBERS_NONE) {
            continue;
        }
        if (!members_send_raw(&n->members, n->out, peer, s->message,
                              n->dht.out.bytes + s->bytes, s->len)) {
            keep_pending(n, s, peer);
        }
    }
    for (uint32_t i = 0; i < n->dht.out.n_done; i++) {
        if (n->dht.out.done[i].kind == DHT_GET) {
            learn_records(n, &n->dht.out.done[i]);
        }
    }
}

/* Where a peer listens, for the routing table: a client (port 0) where nobody
 * can dial it, as far as it says or its link shows. */
static struct address listens_at(struct node *n, int peer)
{
    const struct member *m = &n->members.peers[peer];
    struct address a = m->address;

    if (members_relayed(&n->members, peer) || !members_dialable(m) ||
        (m->way.reach == REACH_UNKNOWN && members_inbound(&n->members, peer))) {
        a.port = 0;
    }
    return a;
}

void node_dht_seen(struct node *n, int peer)
{
    struct address a = listens_at(n, peer);

    dht_seen(&n->dht.core, &n->members.peers[peer].id, &a, n->now);
}

void node_dht_link_up(struct node *n, int peer)
{
    node_dht_seen(n, peer);
    for (int i = 0; i < NODE_PENDING_MAX; i++) {
        struct node_pending *p = &n->dht.pending[i];

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
        if (n->dht.pending[i].used && n->dht.pending[i].peer == peer) {
            n->dht.pending[i].used = false;
        }
    }
    members_want(&n->members, peer, false);
    out_reset(n);
    dht_failed(&n->dht.core, &n->members.peers[peer].id, n->now, &n->dht.out);
    flush(n);
}

void node_dht_recv(struct node *n, int peer, const struct event_recv *ev)
{
    const struct member *m = &n->members.peers[peer];
    struct dht_input in = {
        .peer = m->id,
        .address = listens_at(n, peer),
        .message = ev->message,
        .bytes = ev->bytes,
        .len = ev->len,
        .now_ms = n->now,
        .wall_s = n->wall_s,
    };

    out_reset(n);
    if (dht_recv(&n->dht.core, &in, &n->dht.out) == LOCO_EPROTO) {
        n->malformed++;
        node_hang_up(n, ev->link);
    }
    flush(n);
}

/* Our own record, as long as others can dial us there. */
static void publish(struct node *n)
{
    enum reach_class c = reach_class(&n->reach.core);
    uint8_t value[VALUE_BYTES];
    struct address a = n->members.observed;

    n->dht.core.opt.server =
        n->opt.dialable && (c == REACH_UNKNOWN || reach_is_dialable(c));
    if (!reach_is_dialable(c) || prefix_is_nowhere(a.ip)) {
        a.port = 0;
    }
    if (a.port == n->dht.published.port &&
        (a.port == 0 || address_eq(&a, &n->dht.published))) {
        return;
    }
    if (a.port == 0 && c != REACH_UNKNOWN) {
        (void)dht_withdraw(&n->dht.core, &n->opt.run_id);
        n->dht.published.port = 0;
        return;
    }
    memcpy(value, a.ip, sizeof a.ip);
    put_u16(value + 16, a.port);
    if (a.port != 0 && dht_publish(&n->dht.core, &n->opt.run_id, value,
                                   sizeof value, RECORD_LIFETIME_S) == 0) {
        n->dht.published = a;
    }
}

/* Until the next look for peers of the run: soon while links are missing, ever
 * less often once there are enough, for rumours do the rest. A GET is some 100
 * KB in a large run. */
static uint64_t get_gap_ms(struct node *n)
{
    uint64_t gap_ms = n->dht.gap_ms;

    gap_ms = gap_ms == 0 || members_n_linked(&n->members) < NODE_LINKS_WANTED
                 ? GET_MS
                 : 2 * gap_ms;
    n->dht.gap_ms = gap_ms < GET_MAX_MS ? gap_ms : GET_MAX_MS;
    return n->dht.gap_ms;
}

void node_dht_advance(struct node *n)
{
    uint64_t lookup;

    if (n->dht.peers_damaged) {
        n->dht.peers_damaged = false;
        out_log(n->out, LOG_WARN,
                "the peers cache in the state directory is damaged: going on "
                "without it");
    }
    if (n->now >= n->dht.peers_ms) {
        save_cache(n);
    }
    publish(n);
    if (n->now >= n->dht.get_ms && n->members.reached) {
        n->dht.get_ms = n->now + get_gap_ms(n);
        out_reset(n);
        (void)dht_get(&n->dht.core, &n->opt.run_id, n->now, &lookup,
                      &n->dht.out);
        flush(n);
    }
    if (n->now >= dht_deadline(&n->dht.core)) {
        out_reset(n);
        dht_tick(&n->dht.core, n->now, n->wall_s, &n->dht.out);
        flush(n);
    }
}

uint64_t node_dht_deadline(const struct node *n)
{
    uint64_t due = dht_deadline(&n->dht.core);

    return due > n->now ? due : n->now + 1;
}
