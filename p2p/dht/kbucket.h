/* kbucket.h - the routing table: which peers a DHT node knows, by distance.
 *
 * 256 buckets; a contact lives in the bucket of the highest bit in which its
 * id differs from ours (bucket 255: half of all peers). A bucket lists at most
 * k contacts, the least recently seen first, and beside them a few newcomers
 * in its *cache*, which wait for a place (Maymounkov & Mazieres 2002, sections
 * 2.2 and 4.1). Lookup by id O(k), closest() the buckets that it takes from.
 * Memory: 80 bytes a contact from one pool (1,024: 80 KB; buckets are lists in
 * it, so empty ones cost nothing) and 8 KB of bucket heads.
 *
 * Words
 *   contact  id and address of a peer that proved its id to us once
 *   stale    a contact that failed failures_max times; kept while nobody is
 *            there to replace it (our own network may be what failed), never
 *            told to others
 *   check    a full bucket wants its oldest contact pinged because a newcomer
 *            waits: the old one stays if it answers. Long-lived peers stay
 *            longest, and a flood of fresh ids cannot push them out
 *
 * The caller must tell this table only of authenticated peers. Peers that
 * cannot be dialled (port 0) are never contacts. Against one operator with
 * many ids, at most prefix_max contacts of a bucket and table_prefix_max of the
 * table may share an IPv4 /24 or IPv6 /48 (prefix.h). Not so while fewer than
 * diverse_min of other networks are known: one campus may be a whole run.
 *
 * Pure: no clock, no failure, no allocation; memory is borrowed from the
 * caller for the table's life.
 */
#ifndef LOCO_P2P_DHT_KBUCKET_H
#define LOCO_P2P_DHT_KBUCKET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "p2p/core.h"
#include "proto/id.h"

#define KBUCKET_COUNT 256

/* Maymounkov & Mazieres 2002, section 2.2: so large that all k failing within
 * an hour is very unlikely. Also the contacts in one answer (wire). */
#define KBUCKET_K_MAX 20

#define KBUCKET_CONTACTS_MAX 65534U /* indices are 16 bits */

struct kbucket_options {
    struct peer_id self;
    uint32_t contacts_max;     /* pool; 1,024 serves millions of peers */
    uint32_t k;                /* 1..KBUCKET_K_MAX */
    uint32_t cache;            /* newcomers kept beside a full bucket */
    uint32_t failures_max;     /* in a row, then a contact is stale; >= 1 */
    uint32_t prefix_max;       /* per bucket and address prefix; 0: no cap */
    uint32_t table_prefix_max; /* per table and address prefix; 0: no cap */
    uint32_t diverse_min;      /* contacts elsewhere from which they hold */
};

struct kbucket_contact {
    struct peer_id id;
    struct address address;
    uint8_t failures; /* in a row, saturating */
    bool cached;      /* waits in the cache, not a member of the bucket */
    bool used;        /* this entry of the pool */
    uint16_t prev, next;
    uint64_t since_ms, seen_ms; /* first and last sign of life */
};

struct kbucket_list {
    uint16_t head, tail; /* head: least recently seen */
    uint16_t n;
};

enum kbucket_check {
    KBUCKET_CHECK_NONE,
    KBUCKET_CHECK_WANTED,
    KBUCKET_CHECKING
};

struct kbucket {
    struct kbucket_list live, cache;
    enum kbucket_check check; /* of the contact at live.head when it began */
    uint16_t checked;         /* which one */
    uint64_t refreshed_ms;    /* last lookup into this bucket's range */
};

struct kbucket_table {
    struct kbucket_options opt;
    struct kbucket_contact *pool; /* borrowed for the table's life */
    uint16_t free;                /* list of unused pool entries */
    uint32_t n;                   /* contacts, without cached ones */
    uint32_t n_cached;
    uint32_t n_wanted;  /* buckets in KBUCKET_CHECK_WANTED */
    uint64_t n_crowded; /* newcomers refused by a prefix cap */
    uint64_t filled[4]; /* bit b: bucket b has members */
    struct kbucket bucket[KBUCKET_COUNT];
};

enum kbucket_result {
    KBUCKET_KNOWN,   /* was there; moved to the most recent end */
    KBUCKET_ADDED,   /* is now a contact */
    KBUCKET_CACHED,  /* waits in the cache of a full bucket */
    KBUCKET_REFUSED, /* ourselves, a client, prefix cap, or no room */
    KBUCKET_RESULT_COUNT
};

/* Bytes of memory that init borrows. */
size_t kbucket_bytes(const struct kbucket_options *opt);

/* `memory`: kbucket_bytes(), aligned for any type. */
void kbucket_init(struct kbucket_table *t,
                  const struct kbucket_options *opt,
                  void *memory,
                  uint64_t now_ms);

/* An authenticated sign of life. Port 0 removes a contact that we had. */
enum kbucket_result kbucket_seen(struct kbucket_table *t,
                                 const struct peer_id *id,
                                 const struct address *address,
                                 uint64_t now_ms);

/* The peer did not answer or could not be reached. Unknown ids are fine. */
void kbucket_failed(struct kbucket_table *t, const struct peer_id *id);

void kbucket_remove(struct kbucket_table *t, const struct peer_id *id);

/* The contact (not a cached one), or NULL. Valid until the table changes. */
const struct kbucket_contact *kbucket_find(const struct kbucket_table *t,
                                           const struct peer_id *id);

/* One contact that should be pinged now, marked as being checked, or NULL.
 * kbucket_seen() or kbucket_failed() of it ends the check. */
const struct kbucket_contact *kbucket_next_check(struct kbucket_table *t);

/* At most n (<= KBUCKET_K_MAX) contacts closest to target, closest first. With
 * `stale_too`, stale ones fill what live ones leave free, behind them. */
size_t kbucket_closest(const struct kbucket_table *t,
                       const struct peer_id *target,
                       size_t n,
                       bool stale_too,
                       const struct kbucket_contact **out);

/* A lookup went through this target's bucket: no refresh needed for a while. */
void kbucket_touch(struct kbucket_table *t,
                   const struct peer_id *target,
                   uint64_t now_ms);

/* Farthest bucket, from that of the closest contact on, that no lookup touched
 * since now - period; -1 if none. */
int kbucket_refresh_next(const struct kbucket_table *t,
                         uint64_t now_ms,
                         uint64_t period_ms);

/* Every bucket that is not full is due for a refresh now (after joining). */
void kbucket_expire_refresh(struct kbucket_table *t,
                            uint64_t now_ms,
                            uint64_t period_ms);

/* An id that falls into `bucket`, its lower bits from *rng. */
struct peer_id
kbucket_random_id(const struct kbucket_table *t, int bucket, uint64_t *rng);

/* Walk the contacts of a bucket, least recently seen first; NULL at the end.
 * For a peers cache on disk, for status, for a lookup that ran dry. */
const struct kbucket_contact *kbucket_first(const struct kbucket_table *t,
                                            int bucket);
const struct kbucket_contact *kbucket_after(const struct kbucket_table *t,
                                            const struct kbucket_contact *c);

#endif
