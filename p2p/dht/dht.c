/* dht.c - memory, entry points and time of a DHT node; see dht.h. */
#include "p2p/dht/internal.h"

#include <assert.h>
#include <string.h>

#include "proto/base/err.h"
#include "proto/base/rng.h"

/* Look at refresh, republish and expiry this often, when nothing is due. */
#define MAINTAIN_MS 5000U

/* A peer that joined near a key of ours gets the record after this, so that
 * several newcomers share one PUT. */
#define NEWCOMER_MS 3000U

struct dht_options dht_options_default(void)
{
    struct dht_options opt = {
        .table = {.contacts_max = 1024,
                  .k = KBUCKET_K_MAX,
                  .cache = 8, /* 36 full buckets of 28: 2^40 peers */
                  .failures_max = 2,
                  .prefix_max = 2,
                  .table_prefix_max = 10,
                  .diverse_min = 2 * KBUCKET_K_MAX},
        .store = {.records_max = 512,
                  .per_key_max = 128, /* of one run: 16 a reply, drawn anew */
                  .per_publisher_max = 8,
                  .per_prefix_max = 8},
        /* A lookup asks one peer once; 4 tokens a second and ten lookups at
         * once are more than any honest neighbour needs. */
        .limiter = {.peers_max = 256, .per_s = 20, .burst = 200},
        /* Six in flight: twice the published 3, for three searches. */
        .paths = DHT_PATHS_MAX,
        .alpha = 2,
        .lookups_max = 8,
        .requests_max = 64,
        .results_max = 64,
        .published_max = 4,
        .lookup_requests_max = 200,
        .rpc_timeout_ms = 2000,
        .lookup_timeout_ms = 60000,
        .refresh_ms = 3600000, /* as published, section 2.3 */
        .republish_ms = 900000,
    };

    return opt;
}

/* ---- memory -------------------------------------------------------------- */

static_assert(KBUCKET_K_MAX == DHT_CONTACTS_MAX, "k is one number");

enum { TABLE, STORE, LIMITER, REQUEST, LOOKUP, RESULTS, PUBLISHED, N_PARTS };

/* Offsets of the parts in the borrowed memory; the total is at [N_PARTS]. */
static void parts(const struct dht_options *o, size_t at[N_PARTS + 1])
{
    const size_t bytes[N_PARTS] = {
        [TABLE] = kbucket_bytes(&o->table),
        [STORE] = store_bytes(&o->store),
        [LIMITER] = limiter_bytes(&o->limiter),
        [REQUEST] = o->requests_max * sizeof(struct dht_request),
        [LOOKUP] = o->lookups_max * sizeof(struct dht_lookup),
        [RESULTS] =
            (size_t)o->lookups_max * o->results_max * sizeof(struct record),
        [PUBLISHED] = o->published_max * sizeof(struct dht_published)};

    at[0] = 0;
    for (int i = 0; i < N_PARTS; i++) {
        at[i + 1] = at[i] + ((bytes[i] + 15) & ~(size_t)15);
    }
}

size_t dht_bytes(const struct dht_options *opt)
{
    size_t at[N_PARTS + 1];

    parts(opt, at);
    return at[N_PARTS];
}

void dht_init(struct dht *d,
              const struct dht_options *opt,
              void *memory,
              uint64_t now_ms)
{
    size_t at[N_PARTS + 1];
    uint8_t *base = memory;

    assert(opt->paths >= 1 && opt->paths <= DHT_PATHS_MAX);
    assert(opt->alpha >= 1 && opt->requests_max >= 1 && opt->results_max >= 1);
    assert(opt->lookups_max >= 1 && opt->lookups_max <= DHT_LOOKUPS_MAX);
    assert(opt->rpc_timeout_ms >= 4);
    parts(opt, at);
    memset(memory, 0, at[N_PARTS]);
    memset(d, 0, sizeof *d);
    d->opt = *opt;
    d->opt.store.self = opt->table.self;
    kbucket_init(&d->table, &d->opt.table, base + at[TABLE], now_ms);
    store_init(&d->store, &d->opt.store, base + at[STORE]);
    limiter_init(&d->limiter, &d->opt.limiter, base + at[LIMITER]);
    d->request = (void *)(base + at[REQUEST]);
    d->lookup = (void *)(base + at[LOOKUP]);
    d->results = (void *)(base + at[RESULTS]);
    d->published = (void *)(base + at[PUBLISHED]);
    d->rng = opt->seed;
    d->now_ms = now_ms;
    d->maintain_ms = now_ms + MAINTAIN_MS;
    d->bootstrap_ms = CORE_NEVER;
}

/* ---- public -------------------------------------------------------------- */

/* Every call that takes `out` begins here. */
static void begin(struct dht *d, uint64_t now_ms, struct dht_out *out)
{
    assert(now_ms >= d->now_ms);
    d->now_ms = now_ms;
    d->more = false;
    out->n_sends = out->n_done = out->n_bytes = 0;
    for (uint32_t i = 0; i < d->opt.lookups_max; i++) {
        if (d->lookup[i].state == DHT_LOOKUP_DONE) {
            d->lookup[i].state = DHT_LOOKUP_FREE;
        }
    }
}

/* Whether `peer`, of whom we know now, is one of the closest to the root. */
static bool is_close(const struct dht *d,
                     const struct peer_id *root,
                     const struct peer_id *peer)
{
    const struct kbucket_contact *near[KBUCKET_K_MAX];
    uint32_t width = (d->opt.table.k + d->opt.paths - 1) / d->opt.paths;
    size_t n = kbucket_closest(&d->table, root, width, false, near);

    return n > 0 && id_xor_cmp(root, peer, &near[n - 1]->id) <= 0;
}

/* A new contact close to a root of what we publish should hold the record. */
static void on_newcomer(struct dht *d, const struct peer_id *peer)
{
    for (uint32_t i = 0; i < d->opt.published_max; i++) {
        struct dht_published *p = &d->published[i];
        bool close = false;

        if (!p->used || p->due_ms <= d->now_ms + NEWCOMER_MS) {
            continue;
        }
        for (uint32_t k = 0; k < d->opt.paths && !close; k++) {
            close = is_close(d, &p->root[k], peer);
        }
        if (close) {
            p->due_ms = d->now_ms + NEWCOMER_MS;
            d->maintain_ms =
                d->maintain_ms < p->due_ms ? d->maintain_ms : p->due_ms;
        }
    }
}

void dht_seen(struct dht *d,
              const struct peer_id *peer,
              const struct address *address,
              uint64_t now_ms)
{
    d->now_ms = now_ms;
    if (kbucket_seen(&d->table, peer, address, now_ms) != KBUCKET_ADDED) {
        return;
    }
    if (d->bootstrap_ms == CORE_NEVER) {
        d->bootstrap_ms = now_ms;
    }
    on_newcomer(d, peer);
}

void dht_failed(struct dht *d,
                const struct peer_id *peer,
                uint64_t now_ms,
                struct dht_out *out)
{
    begin(d, now_ms, out);
    for (uint32_t i = 0; i < d->opt.requests_max; i++) {
        if (d->request[i].used && id_eq(&d->request[i].peer, peer)) {
            (void)dht_request_end(d, &d->request[i], SHORTLIST_FAILED);
        }
    }
    kbucket_failed(&d->table, peer);
    dht_pump(d, out);
}

int dht_recv(struct dht *d, const struct dht_input *in, struct dht_out *out)
{
    int rv;

    begin(d, in->now_ms, out);
    d->wall_s = in->wall_s;
    dht_seen(d, &in->peer, &in->address, in->now_ms);
    switch (in->message) {
    case DHT_MSG_PONG:
    case DHT_MSG_NODES:
    case DHT_MSG_VALUES:
    case DHT_MSG_STORED:
        rv = dht_on_answer(d, in);
        break;
    default:
        rv = dht_answer(d, in, out);
        break;
    }
    if (rv == LOCO_EPROTO) {
        d->counts.malformed++;
    }
    dht_pump(d, out);
    return rv;
}

int dht_find(struct dht *d,
             const struct peer_id *target,
             uint64_t now_ms,
             uint64_t *lookup,
             struct dht_out *out)
{
    struct dht_lookup *l;

    begin(d, now_ms, out);
    l = dht_lookup_start(d, DHT_FIND, target);
    if (l == NULL) {
        return LOCO_EBUSY;
    }
    *lookup = l->handle;
    dht_pump(d, out);
    return 0;
}

int dht_get(struct dht *d,
            const struct hash32 *key,
            uint64_t now_ms,
            uint64_t *lookup,
            struct dht_out *out)
{
    const struct record *held[DHT_RECORDS_MAX];
    struct peer_id target;
    struct dht_lookup *l;
    size_t n;

    begin(d, now_ms, out);
    memcpy(target.b, key->b, sizeof target.b);
    l = dht_lookup_start(d, DHT_GET, &target);
    if (l == NULL) {
        return LOCO_EBUSY;
    }
    *lookup = l->handle;
    n = store_get(&d->store, key, d->wall_s, &d->rng, held, DHT_RECORDS_MAX);
    for (size_t i = 0; i < n; i++) {
        dht_result_add(d, l, held[i]);
    }
    dht_pump(d, out);
    return 0;
}

static struct dht_lookup *put_start(struct dht *d, const struct record *record)
{
    struct dht_lookup *l;
    struct peer_id target;

    memcpy(target.b, record->key.b, sizeof target.b);
    l = dht_lookup_start(d, DHT_PUT, &target);
    if (l != NULL) {
        l->record = *record;
    }
    return l;
}

int dht_put(struct dht *d,
            const struct record *record,
            uint64_t now_ms,
            uint64_t wall_s,
            uint64_t *lookup,
            struct dht_out *out)
{
    struct dht_lookup *l;
    int rv;

    begin(d, now_ms, out);
    d->wall_s = wall_s;
    rv = record_verify(record, &d->opt.signer, wall_s);
    if (rv != 0) {
        return rv;
    }
    l = put_start(d, record);
    if (l == NULL) {
        return LOCO_EBUSY;
    }
    *lookup = l->handle;
    dht_pump(d, out);
    return 0;
}

static struct dht_published *published_find(struct dht *d,
                                            const struct hash32 *key)
{
    for (uint32_t i = 0; i < d->opt.published_max; i++) {
        if (d->published[i].used && hash32_eq(&d->published[i].key, key)) {
            return &d->published[i];
        }
    }
    return NULL;
}

int dht_publish(struct dht *d,
                const struct hash32 *key,
                const void *value,
                size_t len,
                uint32_t lifetime_s)
{
    struct dht_published *p = published_find(d, key);

    if (len > RECORD_VALUE_MAX || lifetime_s == 0 ||
        lifetime_s > RECORD_LIFETIME_MAX_S) {
        return LOCO_ERANGE;
    }
    for (uint32_t i = 0; i < d->opt.published_max && p == NULL; i++) {
        if (!d->published[i].used) {
            p = &d->published[i];
            *p = (struct dht_published){.used = true, .key = *key};
            for (uint32_t k = 0; k < DHT_ROOTS; k++) {
                p->root[k] = dht_root(key, k);
            }
        }
    }
    if (p == NULL) {
        return LOCO_EFULL;
    }
    if (len > 0) {
        memcpy(p->value, value, len);
    }
    p->len = (uint32_t)len;
    p->lifetime_s = lifetime_s;
    p->due_ms = d->now_ms;
    d->maintain_ms = d->now_ms;
    return 0;
}

int dht_withdraw(struct dht *d, const struct hash32 *key)
{
    struct dht_published *p = published_find(d, key);

    if (p == NULL) {
        return LOCO_ENOENT;
    }
    p->used = false;
    return 0;
}

/* ---- time ---------------------------------------------------------------- */

static void requests_tick(struct dht *d)
{
    for (uint32_t i = 0; i < d->opt.requests_max; i++) {
        struct dht_request *r = &d->request[i];
        uint64_t age_ms = d->now_ms - r->sent_ms;

        if (!r->used) {
            continue;
        }
        if (age_ms >= d->opt.rpc_timeout_ms) {
            struct peer_id peer = r->peer;

            d->counts.timeouts++;
            (void)dht_request_end(d, r, SHORTLIST_FAILED);
            kbucket_failed(&d->table, &peer);
        } else if (age_ms >= d->opt.rpc_timeout_ms / 4 && !r->slow) {
            struct dht_lookup *l = dht_lookup_of(d, r);

            /* Ask somebody else meanwhile, but still hear this one. */
            r->slow = true;
            if (l != NULL) {
                l->path[r->path].n_flying--;
            }
        }
    }
}

static void lookups_tick(struct dht *d, struct dht_out *out)
{
    for (uint32_t i = 0; i < d->opt.lookups_max; i++) {
        struct dht_lookup *l = &d->lookup[i];

        if (!dht_lookup_is_running(l) || d->now_ms < l->deadline_ms) {
            continue;
        }
        l->cut = true;
        if (l->state == DHT_LOOKUP_STORING) {
            dht_lookup_finish(d, l, out);
        } else {
            dht_search_over(d, l, out);
        }
    }
}

/* Ping the contacts that stand in the way of newcomers. */
static void checks_tick(struct dht *d, struct dht_out *out)
{
    while (d->table.n_wanted > 0 && dht_request_free(d) != NULL &&
           out->n_sends < DHT_SENDS_MAX / 2) {
        const struct kbucket_contact *c = kbucket_next_check(&d->table);
        struct shortlist_entry to = {.id = c->id, .address = c->address};
        union dht_question q;
        bool sent;

        /* A slot and half of `out` are free, so this cannot fail. */
        sent = dht_request_send(d, out, &to, DHT_MSG_PING, &q, NULL, 0);
        assert(sent);
        (void)sent;
    }
}

/* Maintenance leaves half of the lookups to the user, at least one. */
static bool may_maintain(const struct dht *d)
{
    uint32_t n = 0;

    for (uint32_t i = 0; i < d->opt.lookups_max; i++) {
        n += d->lookup[i].state != DHT_LOOKUP_FREE && d->lookup[i].silent;
    }
    return 2 * n < d->opt.lookups_max;
}

static struct dht_lookup *maintain(struct dht *d, const struct peer_id *target)
{
    struct dht_lookup *l =
        may_maintain(d) ? dht_lookup_start(d, DHT_MAINTAIN, target) : NULL;

    if (l != NULL) {
        l->silent = true;
    }
    return l;
}

/* A record is renewed at half of its lifetime at the latest. */
static uint64_t republish_period_ms(const struct dht *d,
                                    const struct dht_published *p)
{
    uint64_t half_ms = (uint64_t)p->lifetime_s * 500;

    return half_ms < d->opt.republish_ms ? half_ms : d->opt.republish_ms;
}

/* Sign and PUT what is due; false when a lookup must come free first. */
static bool republish(struct dht *d, struct dht_published *p)
{
    struct dht_lookup *l;
    struct record r = {.key = p->key, .value_len = p->len};

    memcpy(r.value, p->value, p->len);
    /* Wall seconds as the base, so that a restart goes on above. */
    r.sequence = p->sequence + 1 > d->wall_s ? p->sequence + 1 : d->wall_s;
    r.expiry_s = d->wall_s + p->lifetime_s;
    if (!may_maintain(d)) {
        return false;
    }
    if (record_sign(&r, &d->opt.signer) != 0) {
        p->used = false; /* a signer without key: nothing can be published */
        return true;
    }
    l = put_start(d, &r);
    if (l == NULL) {
        return false;
    }
    l->silent = true;
    l->published = (uint32_t)(p - d->published);
    p->sequence = r.sequence;
    p->due_ms = d->now_ms + republish_period_ms(d, p);
    return true;
}

static void maintain_tick(struct dht *d)
{
    bool waiting = false;
    int bucket;

    (void)store_expire(&d->store, d->wall_s);
    d->maintain_ms = d->now_ms + MAINTAIN_MS;
    for (uint32_t i = 0; i < d->opt.published_max && d->bootstrapped; i++) {
        struct dht_published *p = &d->published[i];

        if (p->used && d->now_ms >= p->due_ms) {
            waiting |= !republish(d, p);
        } else if (p->used && p->due_ms < d->maintain_ms) {
            d->maintain_ms = p->due_ms;
        }
    }
    if (!d->bootstrapped) {
        return;
    }
    bucket = kbucket_refresh_next(&d->table, d->now_ms, d->opt.refresh_ms);
    if (bucket >= 0) {
        struct peer_id target = kbucket_random_id(&d->table, bucket, &d->rng);

        (void)maintain(d, &target);
        waiting = true;
    }
    if (waiting && d->maintain_ms > d->now_ms + DHT_MAINTAIN_GAP_MS) {
        d->maintain_ms = d->now_ms + DHT_MAINTAIN_GAP_MS;
    }
}

void dht_tick(struct dht *d,
              uint64_t now_ms,
              uint64_t wall_s,
              struct dht_out *out)
{
    begin(d, now_ms, out);
    d->wall_s = wall_s;
    requests_tick(d);
    lookups_tick(d, out);
    checks_tick(d, out);
    if (now_ms >= d->bootstrap_ms) {
        /* Set anew when it is over; until then not a second one. */
        bool started = maintain(d, &d->opt.table.self) != NULL;

        d->bootstrap_ms =
            now_ms + (started ? 2 * (uint64_t)d->opt.lookup_timeout_ms
                              : DHT_MAINTAIN_GAP_MS);
    }
    if (now_ms >= d->maintain_ms) {
        maintain_tick(d);
    }
    dht_pump(d, out);
}

static uint64_t min_u64(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

uint64_t dht_deadline(const struct dht *d)
{
    uint64_t due = min_u64(d->maintain_ms, d->bootstrap_ms);
    uint32_t n_used = 0;

    for (uint32_t i = 0; i < d->opt.requests_max; i++) {
        const struct dht_request *r = &d->request[i];
        uint32_t wait_ms =
            r->slow ? d->opt.rpc_timeout_ms : d->opt.rpc_timeout_ms / 4;

        if (r->used) {
            due = min_u64(due, r->sent_ms + wait_ms);
            n_used++;
        }
    }
    for (uint32_t i = 0; i < d->opt.lookups_max; i++) {
        if (dht_lookup_is_running(&d->lookup[i])) {
            due = min_u64(due, d->lookup[i].deadline_ms);
        }
    }
    if (d->more || (d->table.n_wanted > 0 && n_used < d->opt.requests_max)) {
        due = min_u64(due, d->now_ms);
    }
    return due;
}
