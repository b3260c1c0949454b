/* lookup.c - iterative lookups of a DHT node; see dht.h.
 *
 * A lookup, happy path
 *   1. dht_lookup_start() lists our closest contacts on every path;
 *   2. dht_pump() keeps alpha questions per path in flight: ask();
 *   3. dht_on_answer() matches the request, lists what it names on the path
 *      that asked;
 *   4. when the `width` closest of every path have answered,
 *      dht_search_over(): PUT goes on with STOREs to them, the others
 *      dht_lookup_finish().
 * Paths learn nothing from each other but who was asked: such an entry counts
 * as if it had answered here, without what it said (elsewhere()).
 * What can go wrong: no answer (dht_request_end() after rpc_timeout_ms, or at
 * once by dht_failed()); an answer under another name or from another peer
 * (counted, dropped); no free request or full `out` (the lookup waits for the
 * next call); endless new names (lookup_requests_max, lookup_timeout_ms). */
#include "p2p/dht/inspect.h"
#include "p2p/dht/internal.h"

#include <assert.h>
#include <stddef.h>
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

uint64_t dht_lookup_deadline(const struct dht *d, uint32_t i)
{
    const struct dht_lookup *l = &d->lookup[i];

    return dht_lookup_is_running(l) ? l->deadline_ms : 0;
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

/* Our contacts closest to where the path goes. */
static void
path_start(struct dht *d, struct dht_path *path, const struct peer_id *target)
{
    const struct kbucket_contact *near[KBUCKET_K_MAX];
    size_t n;

    shortlist_init(&path->list, target, d->opt.table.prefix_max);
    n = kbucket_closest(&d->table, target, d->opt.table.k, true, near);
    for (size_t i = 0; i < n; i++) {
        (void)shortlist_add(&path->list, &near[i]->id, &near[i]->address, 1);
    }
}

static struct dht_lookup *lookup_free(struct dht *d)
{
    for (uint32_t i = 0; i < d->opt.lookups_max; i++) {
        if (d->lookup[i].state == DHT_LOOKUP_FREE) {
            return &d->lookup[i];
        }
    }
    return NULL;
}

struct dht_lookup *dht_lookup_start(struct dht *d,
                                    enum dht_kind kind,
                                    const struct peer_id *target)
{
    bool refresh = kind == DHT_MAINTAIN && !id_eq(target, &d->opt.table.self);
    bool roots = kind == DHT_GET || kind == DHT_PUT;
    uint32_t n_paths = refresh ? 1 : d->opt.paths;
    uint32_t shares = roots ? n_paths : refresh ? DHT_PATHS_MAX : 1;
    struct dht_lookup *l = lookup_free(d);
    struct hash32 key;

    if (l == NULL) {
        return NULL;
    }
    memset(l, 0, offsetof(struct dht_lookup, path));
    l->state = DHT_LOOKUP_SEARCHING;
    l->kind = kind;
    l->handle = ++d->n_handles;
    l->deadline_ms = d->now_ms + d->opt.lookup_timeout_ms;
    l->published = UINT32_MAX;
    l->target = *target;
    l->n_paths = n_paths;
    /* A refresh wants some contacts, not the k closest of a random id. */
    l->width = (d->opt.table.k + shares - 1) / shares;
    memcpy(key.b, target->b, sizeof key.b);
    for (uint32_t p = 0; p < n_paths; p++) {
        struct peer_id root = roots ? dht_root(&key, p) : *target;

        l->path[p].n_flying = 0;
        l->path[p].refilled = false;
        path_start(d, &l->path[p], &root);
        kbucket_touch(&d->table, &root, d->now_ms);
    }
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

/* Path 0 now lists the `most` closest that answered on each path. */
static void merge(struct dht_lookup *l, uint32_t most, uint8_t state)
{
    struct shortlist all;

    shortlist_init(&all, &l->target, 0);
    for (uint32_t p = 0; p < l->n_paths; p++) {
        const struct shortlist *list = &l->path[p].list;

        for (uint32_t i = 0, n = 0; i < list->n && n < most; i++) {
            const struct shortlist_entry *e = &list->entry[i];

            if (e->state == SHORTLIST_ANSWERED) {
                (void)shortlist_add(&all, &e->id, &e->address, e->depth);
                n++;
            }
        }
    }
    for (uint32_t i = 0; i < all.n; i++) {
        all.entry[i].state = state;
    }
    l->path[0] = (struct dht_path){.list = all};
    l->n_paths = 1;
}

static void after_maintenance(struct dht *d, const struct dht_lookup *l, int rc)
{
    if (l->published < d->opt.published_max && rc != 0) {
        d->published[l->published].due_ms = d->now_ms + DHT_RETRY_MS;
    }
    if (l->kind == DHT_MAINTAIN && id_eq(&l->target, &d->opt.table.self)) {
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
                                      : l->path[0].list.n > 0;
    const struct shortlist *list = &l->path[0].list;
    int rc = l->cut ? LOCO_ETIMEOUT : found ? 0 : LOCO_ENOENT;
    struct dht_done *done;
    uint32_t hops = 0;

    detach(d, l);
    for (uint32_t i = 0; i < list->n; i++) {
        hops = list->entry[i].depth > hops ? list->entry[i].depth : hops;
    }
    d->counts.lookups_cut += l->cut;
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
                              .answers = l->n_answered,
                              .n_stored = l->n_stored,
                              .n_contacts = list->n,
                              .n_records = l->n_records,
                              .contacts = list->entry,
                              .records = results_of(d, l)};
}

/* Whether we are one of the `width` closest servers of some root ourselves. */
static bool we_hold(const struct dht *d, const struct dht_lookup *l)
{
    for (uint32_t p = 0; p < l->n_paths && d->opt.server; p++) {
        const struct shortlist *list = &l->path[p].list;
        uint32_t closer = 0;

        for (uint32_t i = 0; i < list->n; i++) {
            closer += list->entry[i].state == SHORTLIST_ANSWERED &&
                      id_xor_cmp(&list->target, &list->entry[i].id,
                                 &d->opt.table.self) < 0;
        }
        if (closer < l->width) {
            return true;
        }
    }
    return false;
}

/* A PUT found its peers: keep a copy if we are one of them, and let the
 * entries of path 0 stand for the STOREs from here on. */
static void store_begin(struct dht *d, struct dht_lookup *l)
{
    bool ours = we_hold(d, l);

    detach(d, l);
    merge(l, l->width, SHORTLIST_NEW);
    if (ours && store_put(&d->store, &l->record, &d->opt.signer, NULL,
                          d->wall_s) == 0) {
        l->n_stored++;
    }
    l->state = DHT_LOOKUP_STORING;
    l->deadline_ms = d->now_ms + 2 * (uint64_t)d->opt.rpc_timeout_ms;
}

void dht_search_over(struct dht *d, struct dht_lookup *l, struct dht_out *out)
{
    if (l->kind == DHT_PUT) {
        store_begin(d, l);
        return;
    }
    merge(l, d->opt.table.k, SHORTLIST_ANSWERED);
    if (l->path[0].list.n > d->opt.table.k) {
        l->path[0].list.n = d->opt.table.k;
    }
    dht_lookup_finish(d, l, out);
}

/* So many failed that too few answered: list all contacts we have, once.
 * Without this the death of all neighbours of a key would end a path that
 * started with just them. */
static bool
refill(struct dht *d, const struct dht_lookup *l, struct dht_path *path)
{
    uint32_t n = 0;

    for (uint32_t i = 0; i < path->list.n; i++) {
        n += path->list.entry[i].state == SHORTLIST_ANSWERED;
    }
    if (path->refilled || n >= l->width) {
        return false;
    }
    path->refilled = true;
    for (int b = KBUCKET_COUNT - 1; b >= 0; b--) {
        const struct kbucket_contact *c = kbucket_first(&d->table, b);

        for (; c != NULL; c = kbucket_after(&d->table, c)) {
            (void)shortlist_add(&path->list, &c->id, &c->address, 1);
        }
    }
    return true;
}

/* What another path knows of an entry that this one may not ask. */
static uint8_t
elsewhere(struct dht_lookup *l, uint32_t p, const struct peer_id *id)
{
    for (uint32_t q = 0; q < l->n_paths; q++) {
        const struct shortlist_entry *e =
            q == p ? NULL : shortlist_find(&l->path[q].list, id);

        if (e == NULL) {
            continue;
        }
        if (e->state == SHORTLIST_ASKED) {
            return SHORTLIST_ELSEWHERE;
        }
        if (e->state == SHORTLIST_ANSWERED || e->state == SHORTLIST_FAILED) {
            return e->state;
        }
    }
    return SHORTLIST_NEW;
}

/* Bring the entries that decide over path p up to what the others know. */
static void resolve(struct dht_lookup *l, uint32_t p)
{
    struct shortlist *list = &l->path[p].list;
    uint32_t live = 0;

    for (uint32_t i = 0; i < list->n && live < l->width && l->n_paths > 1;
         i++) {
        struct shortlist_entry *e = &list->entry[i];

        if (e->state == SHORTLIST_NEW || e->state == SHORTLIST_ELSEWHERE) {
            e->state = elsewhere(l, p, &e->id);
        }
        live += e->state != SHORTLIST_FAILED;
    }
}

/* One question of the lookup to `e`, an entry of path p. */
static bool ask(struct dht *d,
                struct dht_lookup *l,
                uint32_t p,
                struct shortlist_entry *e,
                struct dht_out *out)
{
    struct dht_path *path = &l->path[p];
    union dht_question q;
    uint16_t message;

    memset(&q, 0, sizeof q);
    if (l->state == DHT_LOOKUP_STORING) {
        message = DHT_MSG_STORE;
        q.store.record = l->record;
    } else if (l->kind == DHT_GET) {
        message = DHT_MSG_FIND_VALUE;
        memcpy(q.find_value.key.b, l->target.b, ID_BYTES);
        q.find_value.target = path->list.target;
    } else {
        message = DHT_MSG_FIND_NODE;
        q.find_node.target = path->list.target;
    }
    if (!dht_request_send(d, out, e, message, &q, l, p)) {
        return false;
    }
    e->state = SHORTLIST_ASKED;
    path->n_flying++;
    l->n_sent++;
    return true;
}

enum path_step { PATH_ASKED, PATH_WAITS, PATH_OVER, PATH_NO_ROOM, PATH_CUT };

/* One question on path p, if it may ask one now. */
static enum path_step
path_step(struct dht *d, struct dht_lookup *l, uint32_t p, struct dht_out *out)
{
    struct dht_path *path = &l->path[p];
    struct shortlist_entry *e;
    bool settled;

    resolve(l, p);
    e = shortlist_next(&path->list, l->width, &settled);
    if (settled && refill(d, l, path)) {
        resolve(l, p);
        e = shortlist_next(&path->list, l->width, &settled);
    }
    if (settled) {
        return PATH_OVER;
    }
    if (e == NULL || path->n_flying >= d->opt.alpha) {
        return PATH_WAITS;
    }
    if (l->n_sent >= d->opt.lookup_requests_max) {
        return PATH_CUT;
    }
    return ask(d, l, p, e, out) ? PATH_ASKED : PATH_NO_ROOM;
}

/* The paths take turns, one question each, so that none takes all that they
 * have in common. False: nothing more to be done now. */
static bool
search_pump(struct dht *d, struct dht_lookup *l, struct dht_out *out)
{
    uint32_t n_over = 0;
    bool asked = false;

    for (uint32_t p = 0; p < l->n_paths; p++) {
        enum path_step step = path_step(d, l, p, out);

        if (step == PATH_NO_ROOM) {
            return false;
        }
        if (step == PATH_CUT) {
            l->cut = true;
            dht_search_over(d, l, out);
            return true;
        }
        n_over += step == PATH_OVER;
        asked |= step == PATH_ASKED;
    }
    if (n_over == l->n_paths) {
        dht_search_over(d, l, out);
        return true;
    }
    return asked;
}

static bool store_pump(struct dht *d, struct dht_lookup *l, struct dht_out *out)
{
    bool settled;
    struct shortlist_entry *e =
        shortlist_next(&l->path[0].list, SHORTLIST_MAX, &settled);

    if (settled) {
        dht_lookup_finish(d, l, out);
    }
    return e != NULL && ask(d, l, 0, e, out);
}

void dht_pump(struct dht *d, struct dht_out *out)
{
    for (uint32_t i = 0; i < d->opt.lookups_max; i++) {
        struct dht_lookup *l = &d->lookup[i];
        bool more = true;

        while (more && dht_lookup_is_running(l)) {
            more = l->state == DHT_LOOKUP_STORING ? store_pump(d, l, out)
                                                  : search_pump(d, l, out);
        }
    }
}
