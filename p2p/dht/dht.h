/* dht.h - Kademlia: find peers close to an id, keep and find signed records.
 *
 * Maymounkov & Mazieres 2002 over authenticated links: iterative lookups in
 * few hops, records at the peers closest to their key. One pure core: bytes,
 * monotonic milliseconds and wall seconds come in with calls; messages to send
 * and finished lookups come out in `out`.
 *
 * Words
 *   request  one message that wants one answer, named by 64 random bits. An
 *            answer counts only under the name that was given to this very
 *            peer; everything else is dropped and counted
 *   lookup   FIND (the k closest peers of an id), GET (all records of a key,
 *            from all of its holders: a key has several publishers), PUT (find
 *            the holders, then store one record there)
 *   path     a lookup is several searches side by side that tell each other
 *            nothing, no peer being asked on two of them (S/Kademlia: Baumgart
 *            & Mies 2007): a liar misleads the one path that asked it. What
 *            all paths found together is the result
 *   root     where a record lives: next to each of DHT_ROOTS ids made from its
 *            key (dht_msg.h). Path i of a GET or PUT goes to root i, so peers
 *            that crowd around the key hide one third of the copies (replica
 *            roots: Castro et al. 2002, section 5.2)
 *   width    how many closest peers must have answered before a path is over:
 *            k where all paths have one target, k / paths where each has its
 *            own, so that a record has about k copies either way
 *   server   a peer that can be dialled. Others are clients: they ask, nobody
 *            lists them or stores at them
 *   publish  keep a record of ours alive: signed anew with a higher sequence
 *            and PUT every republish_ms
 *
 * Trust: the routing table lists only peers whose links proved their id. Peers
 * named in answers are tried in that lookup and nothing more; the caller dials
 * them with the id pinned. Records are verified where they are stored and
 * again where they are read. Nobody is banned: what is wrong is dropped and
 * counted by its reason, and who asks too fast is not answered.
 * What it cannot do: peers in k different networks (prefix.h) that crowd around
 * every root of a key can hide that key.
 *
 * Bounds: every table has its size in the options; answers carry at most
 * DHT_CONTACTS_MAX contacts and DHT_RECORDS_MAX records; a request of a peer
 * that asks faster than limiter.per_s is dropped. A lookup ends after
 * lookup_timeout_ms or lookup_requests_max with what it has.
 *
 * What the caller does: tell dht_seen() of every authenticated link with the
 * address at which that peer listens; after each call send `out`, over a link
 * that exists or is dialled for it; tell dht_failed() when a peer could not be
 * reached; call dht_tick() at dht_deadline(). The first contact starts the
 * bootstrap (a lookup of our own id, then of every far bucket) by itself.
 *
 * Failures: bad bytes are LOCO_EPROTO, unknown answers LOCO_ESTALE, too many
 * requests LOCO_EBUSY; all are counted, none changes any state. One thread;
 * no allocation after init; memory is borrowed from the caller.
 */
#ifndef LOCO_P2P_DHT_DHT_H
#define LOCO_P2P_DHT_DHT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "p2p/core.h"
#include "p2p/dht/kbucket.h"
#include "p2p/dht/shortlist.h"
#include "p2p/dht/store.h"
#include "p2p/limiter.h"
#include "proto/dht_msg.h"
#include "proto/record.h"
#include "proto/sign.h"

/* One answer with 16 full records is 11 KB; eight lookups start with alpha
 * requests of 50 bytes each, and k STOREs of 700 bytes are 14 KB. What does
 * not fit waits: the deadline is then "now". */
#define DHT_SENDS_MAX     64
#define DHT_PATHS_MAX     DHT_ROOTS
#define DHT_OUT_BYTES_MAX (48U << 10)
#define DHT_LOOKUPS_MAX   64

struct dht_options {
    struct kbucket_options table; /* with our own id */
    struct store_options store;
    struct limiter_options limiter;
    struct signer signer; /* borrowed `self`; verifies all, signs publish */
    uint64_t seed;        /* secret: request names come from it */
    bool server;          /* we can be dialled */
    uint32_t paths;       /* of a lookup, 1..DHT_PATHS_MAX */
    uint32_t alpha;       /* requests in flight per path */
    uint32_t lookups_max; /* at once, our own maintenance included */
    uint32_t requests_max;
    uint32_t results_max;   /* records one GET returns */
    uint32_t published_max; /* records of ours that are kept alive */
    uint32_t lookup_requests_max;
    uint32_t rpc_timeout_ms;
    uint32_t lookup_timeout_ms;
    uint32_t refresh_ms; /* a bucket without lookup is refreshed after this */
    uint32_t republish_ms;
};

struct dht_send {
    struct peer_id peer;
    struct address address;
    uint16_t message; /* enum dht_message */
    uint32_t bytes;   /* offset in out->bytes */
    uint32_t len;
};

enum dht_kind { DHT_FIND, DHT_GET, DHT_PUT, DHT_MAINTAIN, DHT_KIND_COUNT };

/* A finished lookup. The pointers are good until the next call that takes
 * `out`. */
struct dht_done {
    uint64_t lookup; /* what dht_find(), dht_get(), dht_put() returned */
    enum dht_kind kind;
    int rc;            /* 0; ENOENT: nobody to ask, no record, nobody stored;
                          ETIMEOUT: ended by a bound, what is there is given */
    uint32_t hops;     /* depth of the deepest of the closest peers */
    uint32_t requests; /* sent */
    uint32_t answers;  /* received */
    uint32_t n_stored; /* PUT: peers that hold it, ourselves included */
    uint32_t n_contacts;
    uint32_t n_records;
    const struct shortlist_entry *contacts; /* that answered; closest first */
    const struct record *records; /* GET: verified, one per publisher */
};

struct dht_out {
    uint32_t n_sends, n_done, n_bytes;
    struct dht_send sends[DHT_SENDS_MAX];
    struct dht_done done[DHT_LOOKUPS_MAX];
    uint8_t bytes[DHT_OUT_BYTES_MAX];
};

/* Why a record was not taken, from a STORE or out of an answer. */
enum dht_reject {
    DHT_REJECT_FORGED, /* the signature is not its publisher's */
    DHT_REJECT_FUTURE, /* expires too far ahead */
    DHT_REJECT_EXPIRED,
    DHT_REJECT_REPLAYED,  /* an older sequence than the one held */
    DHT_REJECT_FULL,      /* a cap: per key, per publisher, in total */
    DHT_REJECT_MISPLACED, /* not of the key that was asked for */
    DHT_REJECT_COUNT
};

struct dht_counts {
    uint64_t requests_sent, answers_sent;
    uint64_t answers;     /* that belonged to a request of ours */
    uint64_t unknown;     /* answers that did not: late, doubled or forged */
    uint64_t malformed;   /* bytes that are no message */
    uint64_t limited;     /* requests dropped by the rate limit */
    uint64_t timeouts;    /* requests nobody answered in time */
    uint64_t self_named;  /* answers that name who gave them as a contact */
    uint64_t misnamed;    /* contacts whose address another one of the path has,
                             or that a peer outside names in our LAN */
    uint64_t bad_records; /* in answers, all reasons */
    uint64_t refused;     /* records that others wanted stored, all reasons */
    uint64_t rejected[DHT_REJECT_COUNT]; /* both of these by reason */
    uint64_t lookups;
    uint64_t lookups_cut; /* ended by a bound */
};

struct dht_request;
struct dht_lookup;
struct dht_published;

struct dht {
    struct dht_options opt;
    struct kbucket_table table;
    struct store store;
    struct limiter limiter;
    struct dht_counts counts;
    /* private */
    struct dht_request *request;     /* requests_max */
    struct dht_lookup *lookup;       /* lookups_max */
    struct record *results;          /* lookups_max * results_max */
    struct dht_published *published; /* published_max */
    uint64_t rng;
    uint64_t n_handles;
    uint64_t now_ms;
    uint64_t wall_s;
    uint64_t maintain_ms;  /* next look at refresh, republish, expiry */
    uint64_t bootstrap_ms; /* next lookup of our own id */
    bool bootstrapped;     /* the first of them is over */
    bool more;             /* `out` was full */
};

/* The daemon's values. k 20: as published; the others are derived in dht.c. Set
 * `table.self`, `signer`, `seed`, `server` yourself. */
struct dht_options dht_options_default(void);

/* Bytes of memory that init borrows (defaults: 0.9 MB). */
size_t dht_bytes(const struct dht_options *opt);

/* `memory`: dht_bytes(), aligned for any type, borrowed for the DHT's life. */
void dht_init(struct dht *d,
              const struct dht_options *opt,
              void *memory,
              uint64_t now_ms);

/* "forged", ..., for metrics. Static string. */
const char *dht_reject_name(enum dht_reject reason);

/* There is an authenticated link to `peer`, which listens at `address` (port
 * 0: it does not). Work that follows from it waits for the next tick. */
void dht_seen(struct dht *d,
              const struct peer_id *peer,
              const struct address *address,
              uint64_t now_ms);

/* `peer` could not be reached: a dial failed, or the link broke while a request
 * was under way. Its requests end now and the failure counts against it. */
void dht_failed(struct dht *d,
                const struct peer_id *peer,
                uint64_t now_ms,
                struct dht_out *out);

/* One message of an authenticated peer (address as in dht_seen). 0, or why it
 * was ignored; only LOCO_EPROTO is worth hanging up for. */
struct dht_input {
    struct peer_id peer;
    struct address address;
    uint16_t message;
    const uint8_t *bytes; /* borrowed for the call */
    size_t len;
    uint64_t now_ms;
    uint64_t wall_s;
};
int dht_recv(struct dht *d, const struct dht_input *in, struct dht_out *out);

/* Start a lookup: *lookup names it. LOCO_EBUSY: lookups_max are running. */
int dht_find(struct dht *d,
             const struct peer_id *target,
             uint64_t now_ms,
             uint64_t *lookup,
             struct dht_out *out);
int dht_get(struct dht *d,
            const struct hash32 *key,
            uint64_t now_ms,
            uint64_t *lookup,
            struct dht_out *out);

/* The record is copied; it must verify (LOCO_ESIG otherwise). */
int dht_put(struct dht *d,
            const struct record *record,
            uint64_t now_ms,
            uint64_t wall_s,
            uint64_t *lookup,
            struct dht_out *out);

/* Sign {key, value} with our key and keep it alive in the DHT until withdrawn;
 * a second value of the same key replaces the first. Sent at the next tick.
 * LOCO_EFULL: published_max; LOCO_ERANGE: value or lifetime too long. */
int dht_publish(struct dht *d,
                const struct hash32 *key,
                const void *value,
                size_t len,
                uint32_t lifetime_s);

/* Stop renewing; copies elsewhere expire. LOCO_ENOENT: no such key. */
int dht_withdraw(struct dht *d, const struct hash32 *key);

/* Time has come to dht_deadline(): time-outs, refresh, republish, expiry. */
void dht_tick(struct dht *d,
              uint64_t now_ms,
              uint64_t wall_s,
              struct dht_out *out);

/* Monotonic ms of the next tick wanted; in the past: at once. */
uint64_t dht_deadline(const struct dht *d);

#endif
