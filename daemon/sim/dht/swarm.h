/* swarm.h - thousands of DHT nodes over modelled links, in virtual time.
 *
 * The light world beside world.h: every node runs the real p2p/dht core, and
 * nothing else of a peer exists. 10,000 nodes need about 1.2 GB. One thread,
 * one seed: the same options give the same trace hash.
 *
 * Words
 *   slot    a machine: address, place, link quality; its index names it
 *   life    one run of a process there, with an identity of its own or the
 *           one before
 *   client  a slot that cannot be dialled (NAT); its links go out only
 *   role    honest, or what kind of liar the slot is (sim/dht/liar.c)
 *
 * Links: one way takes the distance of two places on a torus, what both ends
 * add (log-normal) and jitter; a lost packet costs a TCP time-out, doubled for
 * each further loss; a slow uplink queues. Who has no link dials first: two
 * round trips (TCP, Noise). A dead slot refuses or swallows, by its nature.
 *
 * Invariants are looked at after every step of a node (sim/dht/check.c): the
 * first one that breaks ends the run with its name.
 */
#ifndef LOCO_DAEMON_SIM_DHT_SWARM_H
#define LOCO_DAEMON_SIM_DHT_SWARM_H

#include "daemon/sim/world/agenda.h"
#include "daemon/sim/world/scenario.h"
#include "p2p/dht/dht.h"
#include "p2p/swarm/peers.h"

#define SWARM_WALL_S    1800000000U
#define SWARM_SLOTS_MAX 60000 /* ports name slots */
#define SWARM_LINKS     32    /* that one node keeps */
#define SWARM_ASKS      4     /* lookups of the scenario at one node */
#define SWARM_TRACE     200   /* lines kept */
#define SWARM_ENTRIES   3     /* slots that an invitation names */

enum swarm_role {
    SWARM_HONEST,
    SWARM_COLLUDER, /* names colluders only, drops what it is given */
    SWARM_MIRROR,   /* answers every question with itself */
    SWARM_FLOODER,  /* asks and stores as fast as it can, most of it wrong */
    SWARM_ROLE_COUNT
};

struct swarm_options {
    uint64_t seed;
    uint32_t n; /* slots */
    struct dht_options dht;
    double clients;              /* share of the honest slots */
    double loss;                 /* per packet */
    double silent;               /* share of dead slots that swallow */
    double reach_ms;             /* one way across half of the torus */
    double access_ms;            /* median of what an end adds */
    uint64_t uplink_bytes_per_s; /* 0: no limit */
    uint32_t networks;           /* /24 nets of all slots; 0: one each */
    bool print_trace;
};

struct swarm_link {
    uint32_t slot, life;
    uint64_t used_ms;
};

/* A lookup that the scenario waits for. */
struct swarm_ask {
    uint64_t lookup; /* 0: free */
    uint64_t start_ms;
    uint32_t tag;
};

struct swarm_node {
    struct dht d;
    void *memory;
    struct identity identity;
    struct address address;
    enum swarm_role role;
    bool up, client, silent;
    uint32_t life;
    uint64_t up_ms;   /* since when */
    uint64_t tick_ms; /* earliest tick in the heap */
    uint64_t uplink_us;
    float x, y;
    uint32_t access_ms;
    uint64_t published_ms; /* its record is out since; 0: not */
    struct peers cache;    /* of the life before */
    struct swarm_link link[SWARM_LINKS];
    struct swarm_ask ask[SWARM_ASKS];
    uint32_t spins;
};

struct swarm;

/* A lookup ended; `done` is borrowed. */
typedef void (*swarm_done_fn)(struct swarm *s,
                              uint32_t slot,
                              const struct swarm_ask *ask,
                              const struct dht_done *done);

typedef void (*swarm_call_fn)(struct swarm *s, uint64_t arg);

struct swarm_trace {
    uint64_t at_ms;
    uint32_t from, to;
    uint16_t message;
    uint32_t len;
};

struct swarm {
    struct swarm_options opt;
    struct swarm_node *node;
    uint32_t entry[SWARM_ENTRIES];
    struct agenda agenda; /* of struct swarm_item */
    uint64_t now_ms, rng, trace, steps;
    uint64_t messages, bytes, checked;
    struct dht_out out;
    struct swarm_trace line[SWARM_TRACE];
    uint64_t n_lines;
    uint32_t reply_to; /* slot whose message is being answered; UINT32_MAX */
    char violation[SIM_TEXT_MAX];
    swarm_done_fn on_done;
    void *data;         /* of the scenario */
    uint32_t *colluder; /* slots, whom colluders name */
    uint32_t n_colluders;
    uint32_t target; /* of half of the flooders; UINT32_MAX: none */
};

/* Small tables for many nodes; k, paths and times are the daemon's. */
struct swarm_options swarm_options_default(void);

/* NULL: out of memory. All slots are down. */
struct swarm *swarm_open(const struct swarm_options *opt);
void swarm_close(struct swarm *s);

uint64_t swarm_wall_s(const struct swarm *s);

/* A number below n, or in [0, 1), from the seed. */
uint64_t swarm_below(struct swarm *s, uint64_t n);
double swarm_unit(struct swarm *s);

/* Begin a life; `fresh`: with a new identity. It joins by the cache of its last
 * life and by the entries. */
void swarm_start(struct swarm *s, uint32_t slot, bool fresh);

/* The process is gone. */
void swarm_kill(struct swarm *s, uint32_t slot);

/* Call `fn` later. */
void swarm_at(struct swarm *s, uint64_t at_ms, swarm_call_fn fn, uint64_t arg);

/* One event; false: nothing before `until_ms`, or a violation. */
bool swarm_step(struct swarm *s, uint64_t until_ms);

/* Run to `until_ms`; false on a violation. */
bool swarm_run(struct swarm *s, uint64_t until_ms);

/* Begin a lookup; on_done() hears of it. False: the node is busy. */
bool swarm_get(struct swarm *s,
               uint32_t slot,
               const struct hash32 *key,
               uint32_t tag);
bool swarm_put(struct swarm *s,
               uint32_t slot,
               const struct record *record,
               uint32_t tag);

/* A record of this slot under `key`, its value made from both. */
struct record
swarm_record(struct swarm *s, uint32_t slot, const struct hash32 *key);

/* A live honest node that has been up for `age_ms`; UINT32_MAX: hard to find */
uint32_t swarm_pick(struct swarm *s, uint64_t age_ms);

/* The slot that an address names, UINT32_MAX: none. */
uint32_t swarm_slot(const struct swarm *s, const struct address *a);

/* Execute what a core of `slot` wants. */
void swarm_flush(struct swarm *s, uint32_t slot);

/* Put bytes of `from` on their way to `to`, dialling if need be. */
void swarm_send(struct swarm *s,
                uint32_t from,
                uint32_t to,
                const struct peer_id *expect,
                uint16_t message,
                const uint8_t *bytes,
                uint32_t len);

/* The first violation ends the run. */
void swarm_fail(struct swarm *s, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));

/* Last lines of the trace, to stderr. */
void swarm_print_trace(const struct swarm *s);

/* sim/dht/check.c */
void swarm_check_send(struct swarm *s, uint32_t from, const struct dht_send *m);
void swarm_check_step(struct swarm *s, uint32_t slot);
void swarm_check_node(struct swarm *s, uint32_t slot); /* all of its tables */

/* sim/dht/liar.c */

/* A message reaches a liar. True: it needs no core of its own for that. */
bool swarm_liar_recv(struct swarm *s,
                     uint32_t slot,
                     uint32_t from,
                     uint16_t message,
                     const uint8_t *bytes,
                     uint32_t len);
/* The rest of its time, from now on. */
void swarm_liar_start(struct swarm *s, uint32_t slot);

#endif
