/* dht_lookup.c - iterative lookups of a DHT node; see dht.h.
 *
 * A lookup, happy path
 *   1. dht_lookup_start() lists our closest contacts;
 *   2. dht_pump() keeps alpha questions in flight: ask() -> dht_emit();
 *   3. dht_on_answer() matches the request, lists what it names;
 *   4. when the k closest have answered, dht_search_over(): PUT goes on with
 *      STOREs to them, the others dht_lookup_finish().
 * What can go wrong: no answer (dht_request_end() after rpc_timeout_ms, or at
 * once by dht_failed()); an answer under another name or from another peer
 * (counted, dropped); no free request or full `out` (the lookup waits for the
 * next call); endless new names (lookup_requests_max, lookup_timeout_ms). */
#include "p2p/dht_internal.h"

#include <assert.h>
#include <string.h>

#include "proto/base/err.h"

uint32_t dht_lookup_index(const struct dht *d, const struct dht_lookup *l)
{
    return (uint32_t)(l - d->lookup);
}

static struct record *results_of(struct dht *d, const struct dht_lookup *l)
{
    return d->results + (size_t)dht_lookup_index(d, l) * d->opt.results_max;
}

bool dht_lookup_is_running(const struct dht_lookup *l)
{
    return l->state == DHT_LOOKUP_SEARCHING || l->state == DHT_LOOKUP_STORING;
}

/* Keep one verified record of a GET: the newest of each publisher. */
void dht_result_add(struct dht *d, struct dht_lookup *l, const struct record *r)
{
    struct record *have = results_of(d, l);

    for (uint32_t i = 0; i < l->n_records; i++) {
        if (memcmp(have[i].publisher, r->publisher, sizeof r->publisher) == 0) {
            if (record_replaces(r, &have[i])) {
                have[i] = *r;
            }
            return;
        }
    }
    if (l->n_records < d->opt.results_max) {
        have[l->n_records++] = *r;
    }
}

struct dht_lookup *dht_lookup_start(struct dht *d,
                                    enum dht_kind kind,
                                    const struct peer_id *target)
{
    const struct kbucket_contact *near[KBUCKET_K_MAX];
    struct dht_lookup *l = NULL;
    size_t n;

    for (uint32_t i = 0; i < d->opt.lookups_max && l == NULL; i++) {
        if (d->lookup[i].state == DHT_LOOKUP_FREE) {
            l = &d->lookup[i];
        }
    }
    if (l == NULL) {
        return NULL;
    }
    memset(l, 0, sizeof *l);
    l->state = DHT_LOOKUP_SEARCHING;
    l->kind = kind;
    l->handle = ++d->n_handles;
    l->deadline_ms = d->now_ms + d->opt.lookup_timeout_ms;
    l->published = UINT32_MAX;
    shortlist_init(&l->list, target);
    n = kbucket_closest(&d->table, target, d->opt.table.k, true, near);
    for (size_t i = 0; i < n; i++) {
        (void)shortlist_add(&l->list, &near[i]->id, &near[i]->address, 1);
    }
    kbucket_touch(&d->table, target, d->now_ms);
    d->counts.lookups++;
    return l;
}

/* Later answers no longer belong to this lookup. */
static void detach(struct dht *d, const struct dht_lookup *l)
{
    for (uint32_t i = 0; i < d->opt.requests_max; i++) {
        if (d->request[i].used &&
            d->request[i].lookup == dht_lookup_index(d, l)) {
            d->request[i].lookup = DHT_NO_LOOKUP;
        }
    }
}

/* Only the k closest that answered stay listed. */
static void keep_answered(struct dht_lookup *l, uint32_t k)
{
    uint32_t n = 0;

    for (uint32_t i = 0; i < l->list.n && n < k; i++) {
        if (l->list.entry[i].state == SHORTLIST_ANSWERED) {
            l->list.entry[n++] = l->list.entry[i];
        }
    }
    l->list.n = n;
}

static void after_maintenance(struct dht *d, const struct dht_lookup *l, int rc)
{
    if (l->published < d->opt.published_max && rc != 0) {
        d->published[l->published].due_ms = d->now_ms + DHT_RETRY_MS;
    }
    if (l->kind == DHT_MAINTAIN && id_eq(&l->list.target, &d->opt.table.self)) {
        bool few = d->table.n < d->opt.table.k;

        d->bootstrap_ms = d->now_ms + (few ? DHT_RETRY_MS : d->opt.refresh_ms);
        if (!d->bootstrapped) {
            d->bootstrapped = true;
            kbucket_expire_refresh(&d->table, d->now_ms, d->opt.refresh_ms);
        }
    }
    if (d->maintain_ms > d->now_ms + DHT_MAINTAIN_GAP_MS) {
        d->maintain_ms = d->now_ms + DHT_MAINTAIN_GAP_MS;
    }
}

void dht_lookup_finish(struct dht *d, struct dht_lookup *l, struct dht_out *out)
{
    bool found = l->kind == DHT_GET   ? l->n_records > 0
                 : l->kind == DHT_PUT ? l->n_stored > 0
                                      : l->list.n > 0;
    int rc = l->cut ? LOCO_ETIMEOUT : found ? 0 : LOCO_ENOENT;
    struct dht_done *done;
    uint32_t hops = 0;

    detach(d, l);
    for (uint32_t i = 0; i < l->list.n; i++) {
        hops = l->list.entry[i].depth > hops ? l->list.entry[i].depth : hops;
    }
    if (l->silent) {
        l->state = DHT_LOOKUP_FREE;
        after_maintenance(d, l, rc);
        return;
    }
    l->state = DHT_LOOKUP_DONE;
    assert(out->n_done < DHT_LOOKUPS_MAX);
    done = &out->done[out->n_done++];
    *done = (struct dht_done){.lookup = l->handle,
                              .kind = l->kind,
                              .rc = rc,
                              .hops = hops,
                              .requests = l->n_sent,
                              .n_stored = l->n_stored,
                              .n_contacts = l->list.n,
                              .n_records = l->n_records,
                              .contacts = l->list.entry,
                              .records = results_of(d, l)};
}

/* A PUT found its k peers: keep a copy if we are one of them, and let the
 * entries stand for the STOREs from here on. */
static void store_begin(struct dht *d, struct dht_lookup *l, uint64_t wall_s)
{
    const struct peer_id *target = &l->list.target;
    uint32_t closer = 0;

    for (uint32_t i = 0; i < l->list.n; i++) {
        closer +=
            id_xor_cmp(target, &l->list.entry[i].id, &d->opt.table.self) < 0;
        l->list.entry[i].state = SHORTLIST_NEW;
    }
    if (d->opt.server && closer < d->opt.table.k &&
        store_put(&d->store, &l->record, &d->opt.signer, wall_s) == 0) {
        l->n_stored++;
    }
    l->state = DHT_LOOKUP_STORING;
    l->n_flying = 0;
    l->deadline_ms = d->now_ms + 2 * (uint64_t)d->opt.rpc_timeout_ms;
}

void dht_search_over(struct dht *d, struct dht_lookup *l, struct dht_out *out)
{
    keep_answered(l, d->opt.table.k);
    if (l->kind == DHT_PUT) {
        detach(d, l);
        store_begin(d, l, d->wall_s);
        return;
    }
    dht_lookup_finish(d, l, out);
}

/* So many failed that fewer than k answered: list all contacts we have, once.
 * Without this the death of all k neighbours of a key would end a lookup that
 * started with just them. */
static bool refill(struct dht *d, struct dht_lookup *l)
{
    uint32_t n = 0;

    for (uint32_t i = 0; i < l->list.n; i++) {
        n += l->list.entry[i].state == SHORTLIST_ANSWERED;
    }
    if (l->refilled || n >= d->opt.table.k) {
        return false;
    }
    l->refilled = true;
    for (int b = KBUCKET_COUNT - 1; b >= 0; b--) {
        const struct kbucket_contact *c = kbucket_first(&d->table, b);

        for (; c != NULL; c = kbucket_after(&d->table, c)) {
            (void)shortlist_add(&l->list, &c->id, &c->address, 1);
        }
    }
    return true;
}

/* One question of the lookup to `e`. */
static bool ask(struct dht *d,
                struct dht_lookup *l,
                struct shortlist_entry *e,
                struct dht_out *out)
{
    union dht_question q;
    uint16_t message;

    memset(&q, 0, sizeof q);
    if (l->state == DHT_LOOKUP_STORING) {
        message = DHT_MSG_STORE;
        q.store.record = l->record;
    } else if (l->kind == DHT_GET) {
        message = DHT_MSG_FIND_VALUE;
        memcpy(q.find_value.key.b, l->list.target.b, ID_BYTES);
    } else {
        message = DHT_MSG_FIND_NODE;
        q.find_node.target = l->list.target;
    }
    if (!dht_request_send(d, out, e, message, &q, dht_lookup_index(d, l))) {
        return false;
    }
    e->state = SHORTLIST_ASKED;
    l->n_flying++;
    l->n_sent++;
    return true;
}

/* Carry one lookup as far as it goes now. */
static void
lookup_pump(struct dht *d, struct dht_lookup *l, struct dht_out *out)
{
    while (dht_lookup_is_running(l)) {
        bool storing = l->state == DHT_LOOKUP_STORING, settled;
        uint32_t k = storing ? SHORTLIST_MAX : d->opt.table.k;
        struct shortlist_entry *e = shortlist_next(&l->list, k, &settled);

        if (settled && storing) {
            dht_lookup_finish(d, l, out);
        } else if (settled && !refill(d, l)) {
            dht_search_over(d, l, out);
        } else if (settled) {
            continue;
        } else if (e == NULL || (!storing && l->n_flying >= d->opt.alpha)) {
            return;
        } else if (!storing && l->n_sent >= d->opt.lookup_requests_max) {
            l->cut = true;
            dht_search_over(d, l, out);
        } else if (!ask(d, l, e, out)) {
            return;
        }
    }
}

void dht_pump(struct dht *d, struct dht_out *out)
{
    for (uint32_t i = 0; i < d->opt.lookups_max; i++) {
        lookup_pump(d, &d->lookup[i], out);
    }
}
