/* answer.c - the answering half of a DHT node; see dht.h.
 *
 * Every answer is a function of our tables and the question; nothing is
 * remembered of the asker but its tokens. An answer is bounded by its struct:
 * 1.1 KB of contacts, or 12 KB with records, which cost more tokens. */
#include "p2p/dht/internal.h"

#include <assert.h>
#include <string.h>

#include "proto/base/err.h"

/* Tokens. A VALUES answer is ten times a NODES answer; a STORE costs us the
 * check of a signature (0.1 ms). */
#define COST_SMALL 1U
#define COST_VALUE 4U
#define COST_STORE 4U

static int
answer_ping(struct dht *d, const struct dht_input *in, struct dht_out *out)
{
    struct dht_ping ask;
    struct dht_pong say;

    if (msg_decode(&dht_ping_schema, in->bytes, in->len, &ask) != 0) {
        return LOCO_EPROTO;
    }
    say.request = ask.request;
    (void)dht_emit(d, out, &in->peer, &in->address, DHT_MSG_PONG, &say);
    return 0;
}

/* Our live contacts closest to `target`, without the one who asks. */
static uint32_t contacts_for(const struct dht *d,
                             const struct peer_id *asker,
                             const struct peer_id *target,
                             struct dht_contact *to)
{
    const struct kbucket_contact *near[KBUCKET_K_MAX];
    size_t n = kbucket_closest(&d->table, target, d->opt.table.k, false, near);
    uint32_t n_to = 0;

    assert(n <= DHT_CONTACTS_MAX);
    for (size_t i = 0; i < n; i++) {
        if (id_eq(&near[i]->id, asker)) {
            continue;
        }
        to[n_to].id = near[i]->id;
        memcpy(to[n_to].ip, near[i]->address.ip, sizeof to[n_to].ip);
        to[n_to].port = near[i]->address.port;
        n_to++;
    }
    return n_to;
}

static int
answer_find_node(struct dht *d, const struct dht_input *in, struct dht_out *out)
{
    struct dht_find_node ask;
    struct dht_nodes say;

    if (msg_decode(&dht_find_node_schema, in->bytes, in->len, &ask) != 0) {
        return LOCO_EPROTO;
    }
    say.request = ask.request;
    say.n_contacts = contacts_for(d, &in->peer, &ask.target, say.contacts);
    (void)dht_emit(d, out, &in->peer, &in->address, DHT_MSG_NODES, &say);
    return 0;
}

static int answer_find_value(struct dht *d,
                             const struct dht_input *in,
                             struct dht_out *out)
{
    const struct record *held[DHT_RECORDS_MAX];
    struct dht_find_value ask;
    struct dht_values say;

    if (msg_decode(&dht_find_value_schema, in->bytes, in->len, &ask) != 0) {
        return LOCO_EPROTO;
    }
    say.request = ask.request;
    say.n_records = (uint32_t)store_get(&d->store, &ask.key, in->wall_s,
                                        &d->rng, held, DHT_RECORDS_MAX);
    for (uint32_t i = 0; i < say.n_records; i++) {
        say.records[i] = *held[i];
    }
    say.n_contacts = contacts_for(d, &in->peer, &ask.target, say.contacts);
    (void)dht_emit(d, out, &in->peer, &in->address, DHT_MSG_VALUES, &say);
    return 0;
}

int dht_reject(struct dht *d, const struct record *r, int rv)
{
    enum dht_reject reason = DHT_REJECT_FULL;

    if (rv == LOCO_ESTALE) {
        reason =
            r->expiry_s <= d->wall_s ? DHT_REJECT_EXPIRED : DHT_REJECT_REPLAYED;
    } else if (rv == LOCO_ERANGE) {
        reason = DHT_REJECT_FUTURE;
    } else if (rv == LOCO_ESIG) {
        reason = DHT_REJECT_FORGED;
    }
    d->counts.rejected[reason]++;
    return rv;
}

const char *dht_reject_name(enum dht_reject reason)
{
    static const char *const names[DHT_REJECT_COUNT] = {
        [DHT_REJECT_FORGED] = "forged",   [DHT_REJECT_FUTURE] = "future",
        [DHT_REJECT_EXPIRED] = "expired", [DHT_REJECT_REPLAYED] = "replayed",
        [DHT_REJECT_FULL] = "full",       [DHT_REJECT_MISPLACED] = "misplaced",
    };

    return reason < DHT_REJECT_COUNT ? names[reason] : "?";
}

static int
answer_store(struct dht *d, const struct dht_input *in, struct dht_out *out)
{
    struct dht_stored say;
    struct dht_store ask;
    int rv;

    if (msg_decode(&dht_store_schema, in->bytes, in->len, &ask) != 0) {
        return LOCO_EPROTO;
    }
    say.request = ask.request;
    rv = store_put(&d->store, &ask.record, &d->opt.signer, in->address.ip,
                   in->wall_s);
    say.kept = rv == 0;
    if (!say.kept) {
        d->counts.refused++;
        (void)dht_reject(d, &ask.record, rv);
    }
    (void)dht_emit(d, out, &in->peer, &in->address, DHT_MSG_STORED, &say);
    return 0;
}

int dht_answer(struct dht *d, const struct dht_input *in, struct dht_out *out)
{
    static const struct {
        uint16_t message;
        uint32_t cost;
        int (*answer)(struct dht *d,
                      const struct dht_input *in,
                      struct dht_out *out);
    } rows[] = {
        {DHT_MSG_PING, COST_SMALL, answer_ping},
        {DHT_MSG_FIND_NODE, COST_SMALL, answer_find_node},
        {DHT_MSG_FIND_VALUE, COST_VALUE, answer_find_value},
        {DHT_MSG_STORE, COST_STORE, answer_store},
    };

    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        int rv;

        if (rows[i].message != in->message) {
            continue;
        }
        if (!limiter_take(&d->limiter, &in->peer, rows[i].cost, in->now_ms)) {
            d->counts.limited++;
            return LOCO_EBUSY;
        }
        rv = rows[i].answer(d, in, out);
        d->counts.answers_sent += rv == 0;
        return rv;
    }
    return LOCO_EPROTO;
}
