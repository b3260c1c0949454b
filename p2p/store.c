/* store.c - see store.h. */
#include "p2p/store.h"

#include <assert.h>
#include <string.h>

#include "p2p/prefix.h"
#include "proto/base/err.h"
#include "proto/base/rng.h"
#include "proto/dht_msg.h"

#define NONE UINT32_MAX

size_t store_bytes(const struct store_options *opt)
{
    return opt->records_max *
           (sizeof(struct record) + sizeof(struct peer_id) + 16);
}

void store_init(struct store *s, const struct store_options *opt, void *memory)
{
    assert(opt->records_max >= 1);
    *s = (struct store){.opt = *opt, .record = memory};
    s->near = (struct peer_id *)(s->record + opt->records_max);
    s->ip = (void *)(s->near + opt->records_max);
}

static bool same_publisher(const struct record *a, const struct record *b)
{
    return memcmp(a->publisher, b->publisher, sizeof a->publisher) == 0;
}

static struct peer_id nearest_root(const struct store *s,
                                   const struct hash32 *key)
{
    struct peer_id best = dht_root(key, 0);

    for (uint32_t i = 1; i < DHT_ROOTS; i++) {
        struct peer_id root = dht_root(key, i);

        if (id_xor_cmp(&s->opt.self, &root, &best) < 0) {
            best = root;
        }
    }
    return best;
}

/* The record whose nearest root is farthest from us, if farther than `near`. */
static uint32_t farther_than(const struct store *s, const struct peer_id *near)
{
    const struct peer_id *worst = near;
    uint32_t at = NONE;

    for (uint32_t i = 0; i < s->n; i++) {
        if (id_xor_cmp(&s->opt.self, &s->near[i], worst) > 0) {
            worst = &s->near[i];
            at = i;
        }
    }
    return at;
}

/* Where `record` may go, s->n for a new place; or why not. */
static int place(const struct store *s,
                 const struct record *r,
                 const struct peer_id *near,
                 const uint8_t *ip,
                 uint32_t *at)
{
    bool priced =
        s->opt.per_prefix_max > 0 && ip != NULL && !prefix_is_private(ip);
    uint32_t n_key = 0, n_publisher = 0, n_prefix = 0;

    for (uint32_t i = 0; i < s->n; i++) {
        const struct record *held = &s->record[i];
        bool key = hash32_eq(&held->key, &r->key);
        bool publisher = same_publisher(held, r);

        if (key && publisher) {
            *at = i;
            return r->sequence > held->sequence ? 0 : LOCO_ESTALE;
        }
        n_key += key;
        n_publisher += publisher;
        n_prefix += priced && key && prefix_eq(s->ip[i], ip);
    }
    if (n_key >= s->opt.per_key_max ||
        n_publisher >= s->opt.per_publisher_max ||
        (n_prefix >= s->opt.per_prefix_max && priced &&
         n_key >= s->opt.per_key_max / 2)) {
        return LOCO_EFULL;
    }
    *at = s->n < s->opt.records_max ? s->n : farther_than(s, near);
    return *at == NONE ? LOCO_EFULL : 0;
}

int store_put(struct store *s,
              const struct record *record,
              const struct signer *signer,
              const uint8_t *ip,
              uint64_t wall_s)
{
    struct peer_id near = nearest_root(s, &record->key);
    uint32_t at = NONE;
    int rv;

    (void)store_expire(s, wall_s);
    rv = place(s, record, &near, ip, &at);
    if (rv == LOCO_ESTALE && s->record[at].sequence == record->sequence &&
        memcmp(s->record[at].signature, record->signature,
               sizeof record->signature) == 0) {
        return 0;
    }
    if (rv != 0) {
        return rv;
    }
    rv = record_verify(record, signer, wall_s);
    if (rv != 0) {
        return rv;
    }
    assert(at < s->opt.records_max);
    s->record[at] = *record;
    s->near[at] = near;
    memset(s->ip[at], 0, sizeof s->ip[at]);
    if (ip != NULL) {
        memcpy(s->ip[at], ip, sizeof s->ip[at]);
    }
    if (at == s->n) {
        s->n++;
    }
    return 0;
}

size_t store_get(const struct store *s,
                 const struct hash32 *key,
                 uint64_t wall_s,
                 uint64_t *rng,
                 const struct record **out,
                 size_t max)
{
    size_t n_seen = 0, n_out = 0;

    for (uint32_t i = 0; i < s->n && max > 0; i++) {
        const struct record *r = &s->record[i];

        if (!hash32_eq(&r->key, key) || r->expiry_s <= wall_s) {
            continue;
        }
        /* Reservoir sampling (Vitter 1985, algorithm R). */
        n_seen++;
        if (n_out < max) {
            out[n_out++] = r;
        } else {
            uint64_t j = rng_below(rng, n_seen);

            if (j < max) {
                out[j] = r;
            }
        }
    }
    return n_out;
}

uint32_t store_expire(struct store *s, uint64_t wall_s)
{
    uint32_t n = 0, n_dropped;

    for (uint32_t i = 0; i < s->n; i++) {
        if (s->record[i].expiry_s > wall_s) {
            if (n != i) {
                s->record[n] = s->record[i];
                s->near[n] = s->near[i];
                memcpy(s->ip[n], s->ip[i], sizeof s->ip[n]);
            }
            n++;
        }
    }
    n_dropped = s->n - n;
    s->n = n;
    return n_dropped;
}
