/* kbucket.c - see kbucket.h. */
#include "p2p/dht/kbucket.h"

#include <assert.h>
#include <string.h>

#include "p2p/prefix.h"
#include "proto/base/rng.h"

#define NONE UINT16_MAX

/* ---- lists in the pool ------------------------------------------------ */

/* Which buckets have members: a table of 256 mostly empty ones is walked often,
 * and each look at one costs a cache line. */
static void mark(struct kbucket_table *t, const struct kbucket *b)
{
    size_t at = (size_t)(b - t->bucket);
    uint64_t bit = 1ULL << (at % 64);

    if (b->live.n > 0) {
        t->filled[at / 64] |= bit;
    } else {
        t->filled[at / 64] &= ~bit;
    }
}

static void
list_push(struct kbucket_table *t, struct kbucket_list *l, uint16_t i)
{
    struct kbucket_contact *c = &t->pool[i];

    c->next = NONE;
    c->prev = l->tail;
    if (l->tail == NONE) {
        l->head = i;
    } else {
        t->pool[l->tail].next = i;
    }
    l->tail = i;
    l->n++;
}

static void
list_cut(struct kbucket_table *t, struct kbucket_list *l, uint16_t i)
{
    struct kbucket_contact *c = &t->pool[i];

    assert(l->n > 0);
    if (c->prev == NONE) {
        l->head = c->next;
    } else {
        t->pool[c->prev].next = c->next;
    }
    if (c->next == NONE) {
        l->tail = c->prev;
    } else {
        t->pool[c->next].prev = c->prev;
    }
    l->n--;
}

static uint16_t list_find(const struct kbucket_table *t,
                          const struct kbucket_list *l,
                          const struct peer_id *id)
{
    for (uint16_t i = l->head; i != NONE; i = t->pool[i].next) {
        if (id_eq(&t->pool[i].id, id)) {
            return i;
        }
    }
    return NONE;
}

/* ---- address prefixes ------------------------------------------------- */

/* Whether one more member of `b` at `a` is too many of its network; `except` is
 * not counted. While we know few of other networks there is nobody whose place
 * it would take: peers that all live in one net find each other. */
static bool crowds(const struct kbucket_table *t,
                   const struct kbucket *b,
                   const struct address *a,
                   uint16_t except)
{
    uint32_t n_bucket = 0, n_table = 0, n_other = 0;

    if ((t->opt.prefix_max == 0 && t->opt.table_prefix_max == 0) ||
        prefix_is_private(a->ip)) {
        return false;
    }
    for (uint16_t i = 0; i < t->opt.contacts_max; i++) {
        bool same = t->pool[i].used && i != except &&
                    prefix_eq(t->pool[i].address.ip, a->ip);

        n_table += same;
        n_other += t->pool[i].used && !same;
    }
    for (uint16_t i = b->live.head; i != NONE; i = t->pool[i].next) {
        n_bucket += i != except && prefix_eq(t->pool[i].address.ip, a->ip);
    }
    return n_other >= t->opt.diverse_min &&
           ((t->opt.prefix_max > 0 && n_bucket >= t->opt.prefix_max) ||
            (t->opt.table_prefix_max > 0 &&
             n_table >= t->opt.table_prefix_max));
}

/* A member beyond its network's share of the bucket, from the time when we knew
 * few others: the one that came last. NONE: there is none. */
static uint16_t surplus(const struct kbucket_table *t, const struct kbucket *b)
{
    uint16_t worst = NONE;

    for (uint16_t i = b->live.head; i != NONE; i = t->pool[i].next) {
        const struct kbucket_contact *c = &t->pool[i];
        uint32_t n = 0;

        if (t->opt.prefix_max == 0 || prefix_is_private(c->address.ip)) {
            continue;
        }
        for (uint16_t k = b->live.head; k != NONE; k = t->pool[k].next) {
            n += prefix_eq(t->pool[k].address.ip, c->address.ip);
        }
        if (n > t->opt.prefix_max &&
            (worst == NONE || c->since_ms >= t->pool[worst].since_ms)) {
            worst = i;
        }
    }
    return worst;
}

/* ---- checks ----------------------------------------------------------- */

static void check_end(struct kbucket_table *t, struct kbucket *b)
{
    if (b->check == KBUCKET_CHECK_WANTED) {
        t->n_wanted--;
    }
    b->check = KBUCKET_CHECK_NONE;
    b->checked = NONE;
}

/* Ask for the oldest contact to be pinged, once at a time. */
static void check_want(struct kbucket_table *t, struct kbucket *b)
{
    if (b->check == KBUCKET_CHECK_NONE && b->live.head != NONE) {
        b->check = KBUCKET_CHECK_WANTED;
        b->checked = b->live.head;
        t->n_wanted++;
    }
}

/* ---- members ---------------------------------------------------------- */

static bool is_stale(const struct kbucket_table *t, uint16_t i)
{
    return t->pool[i].failures >= t->opt.failures_max;
}

static void entry_free(struct kbucket_table *t, struct kbucket *b, uint16_t i)
{
    struct kbucket_contact *c = &t->pool[i];

    if (c->cached) {
        list_cut(t, &b->cache, i);
        t->n_cached--;
    } else {
        if (b->checked == i) {
            check_end(t, b);
        }
        list_cut(t, &b->live, i);
        mark(t, b);
        t->n--;
    }
    c->used = false;
    c->next = t->free;
    t->free = i;
}

/* A pool entry; when there is none, the oldest cached one of any bucket. */
static uint16_t entry_take(struct kbucket_table *t)
{
    uint16_t i;

    if (t->free == NONE && t->n_cached > 0) {
        for (int b = KBUCKET_COUNT - 1; t->free == NONE; b--) {
            assert(b >= 0);
            if (t->bucket[b].cache.head != NONE) {
                entry_free(t, &t->bucket[b], t->bucket[b].cache.head);
            }
        }
    }
    i = t->free;
    if (i != NONE) {
        t->free = t->pool[i].next;
    }
    return i;
}

/* Fill a free place of the bucket with the newcomer seen last. */
static void promote(struct kbucket_table *t, struct kbucket *b)
{
    uint16_t i = b->cache.tail;

    while (i != NONE && b->live.n < t->opt.k) {
        uint16_t older = t->pool[i].prev;

        if (!crowds(t, b, &t->pool[i].address, i)) {
            list_cut(t, &b->cache, i);
            t->n_cached--;
            t->pool[i].cached = false;
            list_push(t, &b->live, i);
            mark(t, b);
            t->n++;
        }
        i = older;
    }
}

static void fill(struct kbucket_contact *c,
                 const struct peer_id *id,
                 const struct address *address,
                 uint64_t now_ms)
{
    c->id = *id;
    c->address = *address;
    c->used = true;
    c->failures = 0;
    c->since_ms = c->seen_ms = now_ms;
}

/* Drop the first stale member, or one too many of its network, so that a live
 * peer of another has its place. */
static void make_room(struct kbucket_table *t, struct kbucket *b)
{
    uint16_t worst;

    for (uint16_t i = b->live.head; i != NONE; i = t->pool[i].next) {
        if (is_stale(t, i)) {
            entry_free(t, b, i);
            return;
        }
    }
    worst = surplus(t, b);
    if (worst != NONE) {
        entry_free(t, b, worst);
    }
}

static enum kbucket_result add(struct kbucket_table *t,
                               struct kbucket *b,
                               const struct peer_id *id,
                               const struct address *address,
                               uint64_t now_ms)
{
    bool cached;
    uint16_t i;

    if (crowds(t, b, address, NONE)) {
        t->n_crowded++;
        return KBUCKET_REFUSED;
    }
    if (b->live.n == t->opt.k) {
        make_room(t, b);
    }
    cached = b->live.n == t->opt.k;
    if (cached && t->opt.cache == 0) {
        check_want(t, b);
        return KBUCKET_REFUSED;
    }
    if (cached && b->cache.n == t->opt.cache) {
        entry_free(t, b, b->cache.head);
    }
    i = entry_take(t);
    if (i == NONE) {
        return KBUCKET_REFUSED;
    }
    fill(&t->pool[i], id, address, now_ms);
    t->pool[i].cached = cached;
    if (cached) {
        list_push(t, &b->cache, i);
        t->n_cached++;
        check_want(t, b);
        return KBUCKET_CACHED;
    }
    list_push(t, &b->live, i);
    mark(t, b);
    t->n++;
    return KBUCKET_ADDED;
}

/* ---- public ----------------------------------------------------------- */

size_t kbucket_bytes(const struct kbucket_options *opt)
{
    return opt->contacts_max * sizeof(struct kbucket_contact);
}

void kbucket_init(struct kbucket_table *t,
                  const struct kbucket_options *opt,
                  void *memory,
                  uint64_t now_ms)
{
    assert(opt->k >= 1 && opt->k <= KBUCKET_K_MAX);
    assert(opt->contacts_max >= 1 && opt->contacts_max <= KBUCKET_CONTACTS_MAX);
    assert(opt->failures_max >= 1 && opt->failures_max <= UINT8_MAX);
    memset(t, 0, sizeof *t);
    t->opt = *opt;
    t->pool = memory;
    for (uint32_t i = 0; i < opt->contacts_max; i++) {
        t->pool[i].used = false;
        t->pool[i].next = i + 1 < opt->contacts_max ? (uint16_t)(i + 1) : NONE;
    }
    for (int b = 0; b < KBUCKET_COUNT; b++) {
        t->bucket[b].live = (struct kbucket_list){NONE, NONE, 0};
        t->bucket[b].cache = (struct kbucket_list){NONE, NONE, 0};
        t->bucket[b].checked = NONE;
        t->bucket[b].refreshed_ms = now_ms;
    }
}

enum kbucket_result kbucket_seen(struct kbucket_table *t,
                                 const struct peer_id *id,
                                 const struct address *address,
                                 uint64_t now_ms)
{
    int at = id_xor_bucket(&t->opt.self, id);
    struct kbucket *b;
    uint16_t i;

    if (at < 0) {
        return KBUCKET_REFUSED;
    }
    if (address->port == 0) {
        kbucket_remove(t, id);
        return KBUCKET_REFUSED;
    }
    b = &t->bucket[at];
    i = list_find(t, &b->live, id);
    if (i != NONE) {
        if (b->checked == i) {
            check_end(t, b);
        }
        /* A member that moved keeps its old address in a prefix that is
         * full: nobody walks around the cap by changing addresses. */
        if (!address_eq(&t->pool[i].address, address) &&
            !crowds(t, b, address, i)) {
            t->pool[i].address = *address;
        }
        t->pool[i].failures = 0;
        t->pool[i].seen_ms = now_ms;
        list_cut(t, &b->live, i);
        list_push(t, &b->live, i);
        return KBUCKET_KNOWN;
    }
    i = list_find(t, &b->cache, id);
    if (i != NONE) {
        entry_free(t, b, i);
    }
    return add(t, b, id, address, now_ms);
}

void kbucket_failed(struct kbucket_table *t, const struct peer_id *id)
{
    int at = id_xor_bucket(&t->opt.self, id);
    struct kbucket *b;
    uint16_t i;

    if (at < 0) {
        return;
    }
    b = &t->bucket[at];
    i = list_find(t, &b->cache, id);
    if (i != NONE) {
        entry_free(t, b, i);
        return;
    }
    i = list_find(t, &b->live, id);
    if (i == NONE) {
        return;
    }
    if (t->pool[i].failures < UINT8_MAX) {
        t->pool[i].failures++;
    }
    if (b->checked == i) {
        check_end(t, b);
    }
    if (b->cache.n > 0 && is_stale(t, i)) {
        entry_free(t, b, i);
        promote(t, b);
    } else if (b->cache.n > 0) {
        check_want(t, b);
    }
}

void kbucket_remove(struct kbucket_table *t, const struct peer_id *id)
{
    int at = id_xor_bucket(&t->opt.self, id);
    struct kbucket *b;
    uint16_t i;

    if (at < 0) {
        return;
    }
    b = &t->bucket[at];
    i = list_find(t, &b->live, id);
    if (i == NONE) {
        i = list_find(t, &b->cache, id);
    }
    if (i != NONE) {
        entry_free(t, b, i);
        promote(t, b);
    }
}

const struct kbucket_contact *kbucket_find(const struct kbucket_table *t,
                                           const struct peer_id *id)
{
    int at = id_xor_bucket(&t->opt.self, id);
    uint16_t i;

    if (at < 0) {
        return NULL;
    }
    i = list_find(t, &t->bucket[at].live, id);
    return i == NONE ? NULL : &t->pool[i];
}

const struct kbucket_contact *kbucket_next_check(struct kbucket_table *t)
{
    for (int b = KBUCKET_COUNT - 1; b >= 0 && t->n_wanted > 0; b--) {
        struct kbucket *bucket = &t->bucket[b];

        if (bucket->check == KBUCKET_CHECK_WANTED) {
            assert(bucket->checked != NONE);
            bucket->check = KBUCKET_CHECKING;
            t->n_wanted--;
            return &t->pool[bucket->checked];
        }
    }
    return NULL;
}

/* The bucket to look at after `b`, closest to the target first, -1 behind the
 * last; b = KBUCKET_COUNT begins. With D = self XOR target, members of bucket i
 * are closer to the target than we are if bit i of D is set, the higher i the
 * closer, else farther, the higher i the farther. So the order is: buckets of
 * set bits downwards, then those of clear bits upwards. */
static int next_bucket(const struct kbucket_table *t,
                       const uint64_t d[4],
                       int b,
                       bool *down)
{
    while (*down && --b >= 0) {
        uint64_t here =
            t->filled[b / 64] & d[b / 64] & (UINT64_MAX >> (63 - b % 64));

        if (here != 0) {
            return b / 64 * 64 + 63 - __builtin_clzll(here);
        }
        b = b / 64 * 64;
    }
    if (*down) {
        *down = false;
        b = -1;
    }
    while (++b < KBUCKET_COUNT) {
        uint64_t here =
            t->filled[b / 64] & ~d[b / 64] & (UINT64_MAX << (b % 64));

        if (here != 0) {
            return b / 64 * 64 + __builtin_ctzll(here);
        }
        b = b / 64 * 64 + 63;
    }
    return -1;
}

/* Insert the members of one bucket behind the first `from` of out, sorted. */
static size_t take_bucket(const struct kbucket_table *t,
                          int b,
                          const struct peer_id *target,
                          bool stale,
                          size_t n,
                          const struct kbucket_contact **out,
                          size_t n_out)
{
    size_t from = n_out;

    for (uint16_t i = t->bucket[b].live.head; i != NONE; i = t->pool[i].next) {
        const struct kbucket_contact *c = &t->pool[i];
        size_t at;

        if (is_stale(t, i) != stale ||
            (n_out == n && id_xor_cmp(target, &c->id, &out[n - 1]->id) >= 0)) {
            continue;
        }
        at = n_out < n ? n_out++ : n - 1;
        for (; at > from && id_xor_cmp(target, &c->id, &out[at - 1]->id) < 0;
             at--) {
            out[at] = out[at - 1];
        }
        out[at] = c;
    }
    return n_out;
}

size_t kbucket_closest(const struct kbucket_table *t,
                       const struct peer_id *target,
                       size_t n,
                       bool stale_too,
                       const struct kbucket_contact **out)
{
    uint64_t d[4];
    size_t n_out = 0;

    assert(n <= KBUCKET_K_MAX);
    for (int w = 0; w < 4; w++) {
        d[w] = 0;
        for (int i = 0; i < 8; i++) { /* bit 0 is the last of byte 31 */
            int byte = ID_BYTES - 1 - 8 * w - i;

            d[w] |= (uint64_t)(t->opt.self.b[byte] ^ target->b[byte])
                    << (8 * i);
        }
    }
    for (int stale = 0; stale <= (stale_too ? 1 : 0); stale++) {
        bool down = true;
        int b = next_bucket(t, d, KBUCKET_COUNT, &down);

        for (; b >= 0 && n_out < n; b = next_bucket(t, d, b, &down)) {
            n_out = take_bucket(t, b, target, stale == 1, n, out, n_out);
        }
    }
    return n_out;
}

void kbucket_touch(struct kbucket_table *t,
                   const struct peer_id *target,
                   uint64_t now_ms)
{
    int at = id_xor_bucket(&t->opt.self, target);

    if (at >= 0) {
        t->bucket[at].refreshed_ms = now_ms;
    }
}

/* Bucket of the closest contact; KBUCKET_COUNT when there is none. Closer
 * buckets are empty because nobody lives there, a refresh finds nothing. */
static int lowest(const struct kbucket_table *t)
{
    for (int w = 0; w < 4; w++) {
        if (t->filled[w] != 0) {
            return 64 * w + __builtin_ctzll(t->filled[w]);
        }
    }
    return KBUCKET_COUNT;
}

int kbucket_refresh_next(const struct kbucket_table *t,
                         uint64_t now_ms,
                         uint64_t period_ms)
{
    int low = lowest(t);

    for (int b = KBUCKET_COUNT - 1; b >= low; b--) {
        /* Unsigned difference: right also where refreshed_ms wrapped. */
        if (now_ms - t->bucket[b].refreshed_ms >= period_ms) {
            return b;
        }
    }
    return -1;
}

void kbucket_expire_refresh(struct kbucket_table *t,
                            uint64_t now_ms,
                            uint64_t period_ms)
{
    for (int b = 0; b < KBUCKET_COUNT; b++) {
        if (t->bucket[b].live.n < t->opt.k) {
            /* May wrap: see kbucket_refresh_next(). */
            t->bucket[b].refreshed_ms = now_ms - period_ms;
        }
    }
}

struct peer_id
kbucket_random_id(const struct kbucket_table *t, int bucket, uint64_t *rng)
{
    int byte = (KBUCKET_COUNT - 1 - bucket) / 8, bit = bucket % 8;
    unsigned flip = 1U << bit, below = flip - 1;
    struct peer_id id = t->opt.self;

    assert(bucket >= 0 && bucket < KBUCKET_COUNT);
    id.b[byte] ^= (uint8_t)(flip | (rng_next(rng) & below));
    for (int i = byte + 1; i < ID_BYTES; i++) {
        id.b[i] = (uint8_t)rng_next(rng);
    }
    return id;
}

const struct kbucket_contact *kbucket_first(const struct kbucket_table *t,
                                            int bucket)
{
    uint16_t i = t->bucket[bucket].live.head;

    return i == NONE ? NULL : &t->pool[i];
}

const struct kbucket_contact *kbucket_after(const struct kbucket_table *t,
                                            const struct kbucket_contact *c)
{
    return c->next == NONE ? NULL : &t->pool[c->next];
}
