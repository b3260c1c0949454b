/* store.c - see store.h. */
#include "p2p/dht/store.h"

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
           (sizeof(struct record) + sizeof(struct store_about));
}

void store_init(struct store *s, const struct store_options *opt, void *memory)
{
    assert(opt->records_max >= 1);
    *s = (struct store){.opt = *opt, .record = memory};
    s->about = (struct store_about *)(s->record + opt->records_max);
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

/* What is counted of the records held before one more is taken. */
struct census {
    bool priced; /* the bringer's network has a price (prefix.h) */
    uint32_t key, publisher;
    uint32_t net, net_key; /* of the bringer's network; under the key, too */
};

static bool same_net(const struct store *s, uint32_t i, const uint8_t *ip)
{
    return prefix_eq(s->about[i].ip, ip);
}

static bool has_share(const struct store *s, const struct census *c)
{
    return c->priced && c->net >= (s->opt.records_max + 15) / 16;
}

/* Of a full store the record to give up for one at `near`: the farthest of what
 * is surplus; else the farthest of all, if it is farther. Who has its share
 * gives up its own. NONE: the newcomer stays out. */
static uint32_t victim(const struct store *s,
                       const struct census *c,
                       const struct peer_id *near,
                       const uint8_t *ip)
{
    bool own = has_share(s, c);
    uint32_t far = NONE, surplus = NONE;

    for (uint32_t i = 0; i < s->n; i++) {
        const struct peer_id *here = &s->about[i].near;

        if (own && !same_net(s, i, ip)) {
            continue;
        }
        if (!own && s->about[i].surplus &&
            (surplus == NONE ||
             id_xor_cmp(&s->opt.self, here, &s->about[surplus].near) > 0)) {
            surplus = i;
        }
        if (id_xor_cmp(&s->opt.self, here,
                       far == NONE ? near : &s->about[far].near) > 0) {
            far = i;
        }
    }
    return surplus != NONE ? surplus : far;
}

/* Where `record` may go, s->n for a new place; or why not. */
static int place(const struct store *s,
                 const struct record *r,
                 const struct peer_id *near,
                 const uint8_t *ip,
                 struct census *c,
                 uint32_t *at)
{
    *c = (struct census){.priced = s->opt.per_prefix_max > 0 && ip != NULL &&
                                   !prefix_is_private(ip)};
    for (uint32_t i = 0; i < s->n; i++) {
        const struct record *held = &s->record[i];
        bool key = hash32_eq(&held->key, &r->key);
        bool publisher = same_publisher(held, r);
        bool net = c->priced && same_net(s, i, ip);

        if (key && publisher) {
            *at = i;
            return r->sequence > held->sequence ? 0 : LOCO_ESTALE;
        }
        c->key += key;
        c->publisher += publisher;
        c->net += net;
        c->net_key += net && key;
    }
    if (c->key >= s->opt.per_key_max ||
        c->publisher >= s->opt.per_publisher_max ||
        (c->priced && c->net_key >= s->opt.per_prefix_max &&
         c->key >= s->opt.per_key_max / 2)) {
        return LOCO_EFULL;
    }
    *at = s->n < s->opt.records_max ? s->n : victim(s, c, near, ip);
    return *at == NONE ? LOCO_EFULL : 0;
}

int store_put(struct store *s,
              const struct record *record,
              const struct signer *signer,
              const uint8_t *ip,
              uint64_t wall_s)
{
    struct peer_id near = nearest_root(s, &record->key);
    struct census c;
    uint32_t at = NONE;
    int rv;

    (void)store_expire(s, wall_s);
    rv = place(s, record, &near, ip, &c, &at);
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
    s->about[at] =
        (struct store_about){.near = near, .surplus = has_share(s, &c)};
    if (ip != NULL) {
        memcpy(s->about[at].ip, ip, sizeof s->about[at].ip);
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
                s->about[n] = s->about[i];
            }
            n++;
        }
    }
    n_dropped = s->n - n;
    s->n = n;
    return n_dropped;
}
