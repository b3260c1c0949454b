/* check.c - what must hold in a swarm; see swarm.h.
 *
 *   A  tables keep their bounds: contacts, records, requests
 *   B  only servers are listed, told to others or asked; with their address
 *   C  a record is held only as its publisher signed it, not expired long ago,
 *      and a key or a publisher has no more of them than its cap
 *   D  no lookup outlives its deadline
 *   E  honest peers are never refused nor called malformed (sim/dht/link.c)
 *   F  deadlines move on (swarm.c)
 *
 * A and D after every step. B of what is sent: every question, and every 16th
 * answer. The tables as a whole: every 64th step of the swarm, at the death of
 * a node and of all nodes at the end.
 */
#include "daemon/sim/dht/internal.h"

#include <inttypes.h>
#include <string.h>

#include "p2p/dht/inspect.h"

/* A tick may come this late: the swarm has none, the daemon's loop some. */
#define LATE_MS 1000

#define TABLES_EVERY  64
#define ANSWERS_EVERY 16

static void check_contact(struct swarm *s,
                          uint32_t slot,
                          const struct address *a,
                          const char *where)
{
    uint32_t who = swarm_slot(s, a);

    s->checked++;
    if (who != UINT32_MAX && s->node[who].client) {
        swarm_fail(s, "B: slot %u %s slot %u, a client", slot, where, who);
    } else if (who == UINT32_MAX) {
        swarm_fail(s, "B: slot %u %s an address where nobody lives", slot,
                   where);
    } else if (who == slot) {
        swarm_fail(s, "B: slot %u %s itself", slot, where);
    }
}

static void
check_named(struct swarm *s, uint32_t from, const struct dht_send *m)
{
    static union {
        struct dht_nodes nodes;
        struct dht_values values;
    } say;
    const struct dht_contact *c;
    uint32_t n;

    if (msg_decode(dht_msg_schema(m->message), s->out.bytes + m->bytes, m->len,
                   &say) != 0) {
        swarm_fail(s, "E: slot %u says what it would not take", from);
        return;
    }
    c = m->message == DHT_MSG_NODES ? say.nodes.contacts : say.values.contacts;
    n = m->message == DHT_MSG_NODES ? say.nodes.n_contacts
                                    : say.values.n_contacts;
    for (uint32_t i = 0; i < n; i++) {
        struct address a = {.port = c[i].port};

        memcpy(a.ip, c[i].ip, sizeof a.ip);
        check_contact(s, from, &a, "tells of");
    }
}

void swarm_check_send(struct swarm *s, uint32_t from, const struct dht_send *m)
{
    if (s->node[from].role != SWARM_HONEST) {
        return;
    }
    if (m->message % 2 == 0) {
        uint32_t to = swarm_slot(s, &m->address);

        s->checked++;
        if (to != UINT32_MAX && s->node[to].client) {
            swarm_fail(s, "B: slot %u asks slot %u, a client", from, to);
        }
    } else if ((m->message == DHT_MSG_NODES || m->message == DHT_MSG_VALUES) &&
               s->messages % ANSWERS_EVERY == 0) {
        check_named(s, from, m);
    }
}

static void check_lookups(struct swarm *s, uint32_t slot)
{
    const struct dht *d = &s->node[slot].d;

    for (uint32_t i = 0; i < d->opt.lookups_max; i++) {
        uint64_t due_ms = dht_lookup_deadline(d, i);

        if (due_ms > 0 && s->now_ms > due_ms + LATE_MS) {
            swarm_fail(s,
                       "D: slot %u: a lookup lives %" PRIu64
                       " ms longer than its deadline",
                       slot, s->now_ms - due_ms);
        }
        s->checked++;
    }
}

void swarm_check_step(struct swarm *s, uint32_t slot)
{
    const struct swarm_node *n = &s->node[slot];
    const struct dht *d = &n->d;

    if (n->role != SWARM_HONEST) {
        return;
    }
    s->checked += 2;
    if (d->table.n + d->table.n_cached > d->opt.table.contacts_max) {
        swarm_fail(s, "A: slot %u lists %u + %u contacts", slot, d->table.n,
                   d->table.n_cached);
    }
    if (d->store.n > d->opt.store.records_max) {
        swarm_fail(s, "A: slot %u holds %u records", slot, d->store.n);
    }
    check_lookups(s, slot);
    if (s->steps % TABLES_EVERY == 0) {
        swarm_check_node(s, slot);
    }
}

static void check_buckets(struct swarm *s, uint32_t slot)
{
    const struct kbucket_table *t = &s->node[slot].d.table;
    uint32_t n = 0;

    for (int b = 0; b < KBUCKET_COUNT; b++) {
        const struct kbucket_contact *c = kbucket_first(t, b);
        uint32_t n_bucket = 0;

        for (; c != NULL; c = kbucket_after(t, c)) {
            check_contact(s, slot, &c->address, "lists");
            n_bucket++;
        }
        if (n_bucket > t->opt.k) {
            swarm_fail(s, "A: slot %u: bucket %d has %u contacts", slot, b,
                       n_bucket);
        }
        n += n_bucket;
    }
    if (n != t->n) {
        swarm_fail(s, "A: slot %u counts %u contacts and has %u", slot, t->n,
                   n);
    }
}

static void check_records(struct swarm *s, uint32_t slot)
{
    const struct dht *d = &s->node[slot].d;
    const struct store *st = &d->store;

    for (uint32_t i = 0; i < st->n; i++) {
        const struct record *r = &st->record[i];
        uint32_t n_key = 0, n_publisher = 0;
        /* It may be expired since, but not wrong. */
        uint64_t at_s =
            r->expiry_s > swarm_wall_s(s) ? swarm_wall_s(s) : r->expiry_s - 1;

        if (record_verify(r, &d->opt.signer, at_s) != 0) {
            swarm_fail(s, "C: slot %u holds what nobody signed", slot);
        }
        for (uint32_t k = 0; k < st->n; k++) {
            n_key += hash32_eq(&st->record[k].key, &r->key);
            n_publisher += memcmp(st->record[k].publisher, r->publisher,
                                  sizeof r->publisher) == 0;
        }
        if (n_key > st->opt.per_key_max ||
            n_publisher > st->opt.per_publisher_max) {
            swarm_fail(s, "C: slot %u: %u records of a key, %u of a publisher",
                       slot, n_key, n_publisher);
        }
        s->checked++;
    }
}

void swarm_check_node(struct swarm *s, uint32_t slot)
{
    if (s->node[slot].role == SWARM_HONEST) {
        check_buckets(s, slot);
        check_records(s, slot);
    }
}
