/* internal.h - what the four files of the DHT share; nobody else includes
 * it. dht.c: memory, entry points, time. dht/request.c: our questions and
 * their answers. dht/lookup.c: lookups. dht/answer.c: questions of others. */
#ifndef LOCO_P2P_DHT_INTERNAL_H
#define LOCO_P2P_DHT_INTERNAL_H

#include "p2p/dht/dht.h"

#define DHT_NO_LOOKUP UINT32_MAX

/* Between two maintenance lookups, so that they never come in one burst. */
#define DHT_MAINTAIN_GAP_MS 500U

/* While we know fewer than k peers, or nobody stored what we publish. */
#define DHT_RETRY_MS 30000U

/* A question of ours that waits for its answer. */
struct dht_request {
    uint64_t name; /* 64 random bits */
    struct peer_id peer;
    uint64_t sent_ms;
    uint32_t lookup; /* index, DHT_NO_LOOKUP: a ping or a lookup that ended */
    uint8_t path;    /* of that lookup */
    uint16_t answer; /* message type awaited */
    bool used;
    bool slow; /* no longer counts against alpha */
};

enum dht_lookup_state {
    DHT_LOOKUP_FREE,
    DHT_LOOKUP_SEARCHING,
    DHT_LOOKUP_STORING, /* PUT: entries of path 0 now stand for STOREs */
    DHT_LOOKUP_DONE,    /* reported; freed by the next call */
    DHT_LOOKUP_STATE_COUNT
};

/* One of the searches of a lookup. */
struct dht_path {
    uint32_t n_flying; /* asked, neither answered nor slow */
    bool refilled;     /* every contact of the table was listed */
    struct shortlist list;
};

struct dht_lookup {
    enum dht_lookup_state state;
    enum dht_kind kind;
    bool silent; /* our own maintenance: not reported */
    bool cut;    /* a bound ended the search */
    uint64_t handle;
    uint64_t deadline_ms;
    uint32_t n_sent, n_answered;
    uint32_t n_stored;
    uint32_t n_records; /* in d->results + index * results_max */
    uint32_t published; /* silent PUT: which of ours */
    uint32_t width;     /* answers that end a path */
    uint32_t n_paths;
    struct peer_id target; /* GET, PUT: the key */
    struct dht_path path[DHT_PATHS_MAX];
    struct record record; /* PUT */
};

struct dht_published {
    bool used;
    uint32_t len;
    uint32_t lifetime_s;
    struct hash32 key;
    struct peer_id root[DHT_ROOTS];
    uint64_t sequence;
    uint64_t due_ms;
    uint8_t value[RECORD_VALUE_MAX];
};

/* A question as its message struct; all begin with the request's name. */
union dht_question {
    uint64_t request;
    struct dht_ping ping;
    struct dht_find_node find_node;
    struct dht_find_value find_value;
    struct dht_store store;
};

/* ---- dht/request.c ---------------------------------------------------- */

/* Append one message; false (and d->more) when `out` is full. */
bool dht_emit(struct dht *d,
              struct dht_out *out,
              const struct peer_id *peer,
              const struct address *address,
              uint16_t message,
              const void *object);

/* A free slot, or NULL: requests_max are waiting. */
struct dht_request *dht_request_free(struct dht *d);

/* Send `q` (named here) and wait for its answer; `lookup` (NULL: a ping) is
 * told on `path`. False: no room now. */
bool dht_request_send(struct dht *d,
                      struct dht_out *out,
                      const struct shortlist_entry *to,
                      uint16_t message,
                      union dht_question *q,
                      const struct dht_lookup *lookup,
                      uint32_t path);

/* Free the slot; the peer's entry in the lookup, if that still runs, takes
 * `state` and is returned. */
struct shortlist_entry *dht_request_end(struct dht *d,
                                        struct dht_request *r,
                                        enum shortlist_state state);

/* The running lookup that a request belongs to, or NULL. */
struct dht_lookup *dht_lookup_of(struct dht *d, const struct dht_request *r);

/* An answer of somebody. Codes as dht_recv(). */
int dht_on_answer(struct dht *d, const struct dht_input *in);

/* ---- dht/lookup.c ----------------------------------------------------- */

uint32_t dht_lookup_index(const struct dht *d, const struct dht_lookup *l);
bool dht_lookup_is_running(const struct dht_lookup *l);

/* A new lookup that starts from our contacts; NULL: lookups_max are running. */
struct dht_lookup *dht_lookup_start(struct dht *d,
                                    enum dht_kind kind,
                                    const struct peer_id *target);

/* Count a record that was not taken; returns `rv`, a code of record_verify() or
 * store_put(). */
int dht_reject(struct dht *d, const struct record *r, int rv);

/* Keep one verified record of a GET: the newest of each publisher. */
void dht_result_add(struct dht *d,
                    struct dht_lookup *l,
                    const struct record *r);

/* The search part ends: PUT begins to store, the others finish. */
void dht_search_over(struct dht *d, struct dht_lookup *l, struct dht_out *out);

void dht_lookup_finish(struct dht *d,
                       struct dht_lookup *l,
                       struct dht_out *out);

/* Carry every lookup as far as it goes now. */
void dht_pump(struct dht *d, struct dht_out *out);

/* ---- dht/answer.c ----------------------------------------------------- */

/* A question of somebody: rate limit, answer. Codes as dht_recv(). */
int dht_answer(struct dht *d, const struct dht_input *in, struct dht_out *out);

#endif
