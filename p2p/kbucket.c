/* kbucket.c - see kbucket.h. */
#include "p2p/kbucket.h"

#include <assert.h>
#include <string.h>

#include "proto/base/rng.h"

#define NONE UINT16_MAX

/* ---- lists in the pool ------------------------------------------------ */

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

static bool is_v4(const uint8_t ip[16])
{
    static const uint8_t mapped[12] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 255, 255};

    return memcmp(ip, mapped, sizeof mapped) == 0;
}

/* Machines in one private net share a prefix without sharing an operator's
 * cheap supply of public addresses: RFC 1918, 3927, 4193, 4291. */
static bool is_private(const uint8_t ip[16])
{
    static const uint8_t loopback6[16] = {[15] = 1};

    if (is_v4(ip)) {
        return ip[12] == 10 || ip[12] == 127 ||
               (ip[12] == 172 && (ip[13] & 0xF0) == 16) ||
               (ip[12] == 192 && ip[13] == 168) ||
               (ip[12] == 169 && ip[13] == 254);
    }
    return (ip[0] & 0xFE) == 0xFC ||
           (ip[0] == 0xFE && (ip[1] & 0xC0) == 0x80) ||
           memcmp(ip, loopback6, sizeof loopback6) == 0;
}

static bool same_prefix(const uint8_t a[16], const uint8_t b[16])
{
    /* /24 of a mapped IPv4 address are the first 15 bytes, /48 are 6. */
    return memcmp(a, b, is_v4(a) ? 15 : 6) == 0;
}

/* Whether one more contact at `a` stays within the cap; `except` not counted.*/
static bool prefix_ok(const struct kbucket_table *t,
                      const struct kbucket *b,
                      const struct address *a,
                      uint16_t except)
{
    uint32_t n = 0;

    if (t->opt.prefix_max == 0 || is_private(a->ip)) {
        return true;
    }
    for (uint16_t i = b->live.head; i != NONE; i = t->pool[i].next) {
        n += i != except && same_prefix(t->pool[i].address.ip, a->ip);
    }
    return n < t->opt.prefix_max;
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
        t->n--;
    }
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

        if (prefix_ok(t, b, &t->pool[i].address, NONE)) {
            list_cut(t, &b->cache, i);
            t->n_cached--;
            t->pool[i].cached = false;
            list_push(t, &b->live, i);
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
    c->failures = 0;
    c->seen_ms = now_ms;
}

/* Drop the first stale member, if any, so that a live peer has its place. */
static void make_room(struct kbucket_table *t, struct kbucket *b)
{
    for (uint16_t i = b->live.head; i != NONE; i = t->pool[i].next) {
        if (is_stale(t, i)) {
            entry_free(t, b, i);
            return;
        }
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

    if (!prefix_ok(t, b, address, NONE)) {
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
        if (prefix_ok(t, b, address, i)) {
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

/* Live before stale, then by distance. */
static bool goes_before(const struct kbucket_table *t,
                        const struct peer_id *target,
                        const struct kbucket_contact *a,
                        const struct kbucket_contact *b)
{
    bool stale_a = a->failures >= t->opt.failures_max;
    bool stale_b = b->failures >= t->opt.failures_max;

    if (stale_a != stale_b) {
        return stale_b;
    }
    return id_xor_cmp(target, &a->id, &b->id) < 0;
}

size_t kbucket_closest(const struct kbucket_table *t,
                       const struct peer_id *target,
                       size_t n,
                       bool stale_too,
                       const struct kbucket_contact **out)
{
    size_t n_out = 0;

    assert(n <= KBUCKET_K_MAX);
    for (int b = KBUCKET_COUNT - 1; b >= 0 && n > 0; b--) {
        uint16_t i = t->bucket[b].live.head;

        for (; i != NONE; i = t->pool[i].next) {
            const struct kbucket_contact *c = &t->pool[i];
            size_t at;

            if (!stale_too && is_stale(t, i)) {
                continue;
            }
            if (n_out == n && !goes_before(t, target, c, out[n - 1])) {
                continue;
            }
            at = n_out < n ? n_out++ : n - 1;
            for (; at > 0 && goes_before(t, target, c, out[at - 1]); at--) {
                out[at] = out[at - 1];
            }
            out[at] = c;
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
    int b = 0;

    while (b < KBUCKET_COUNT && t->bucket[b].live.n == 0) {
        b++;
    }
    return b;
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
        t->bucket[b].refreshed_ms = now_ms - period_ms; /* may wrap: see next */
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
