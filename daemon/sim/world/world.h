/* world.h - many cores in one process, on a virtual clock and network.
 *
 * The second shell of p2p/core.h: everything that happens is one entry of a
 * binary heap ordered by (at_ms, seq), all chance comes from one seed, and a
 * hash over every step names the whole run: same seed, same trace hash. It
 * executes the actions of a core exactly as core.h's "Rules for a shell" say;
 * jobs go to the machines below the peers (daemon/sim/machine).
 *
 * Words
 *   peer    a number 0..n-1; its id, key and address derive from it
 *   life    one process of a peer: a restart begins the next one
 *   cut     two peers in different groups: bytes between them wait, and the
 *           connections end after transport_timeout_ms
 *   frozen  SIGSTOP: its kernel still accepts bytes, nothing is delivered
 *
 * Links are ordered byte streams: what is sent arrives in order, or the link
 * goes down. lose_per_million additionally loses single control messages,
 * which TCP does not, and an `out` that is full does.
 *
 * Cost: about 1 us per entry beside the core's own step. Memory: per pair of
 * peers 8 bytes, per bulk connection about 1 KB. Aborts where memory ran out.
 *
 * The world borrows its options' callbacks and the cores; it is not
 * re-entered from a step: callbacks may schedule, kill and start peers.
 */
#ifndef LOCO_DAEMON_SIM_WORLD_WORLD_H
#define LOCO_DAEMON_SIM_WORLD_WORLD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "p2p/core.h"
#include "proto/sign.h"

#define WORLD_TRACE_LINES 200
#define WORLD_EREFUSED    (-111) /* as libuv says it on Linux */
#define WORLD_SPIN_MAX    100    /* ticks in a row of one peer in one ms */
/* Steps of all peers in one second of virtual time, for each: the busiest
 * scenario has a few hundred. A world with more stands still (world_step): it
 * would never end, and its queues take all memory. */
#define WORLD_STORM_MAX 20000

struct world;

struct world_options {
    uint64_t seed;
    uint32_t n_peers;
    uint32_t latency_min_ms; /* one way, base of a directed pair */
    uint32_t latency_max_ms;
    /* ... or as this says; NULL: drawn for each pair. */
    uint32_t (*latency)(void *self, uint32_t from, uint32_t to);
    uint32_t jitter_ms;   /* added to each message */
    uint64_t bytes_per_s; /* of each bulk connection and direction ... */
    /* ... or as this says; NULL: all are alike. */
    uint64_t (*rate)(void *self, uint32_t from, uint32_t to);
    /* Bytes a second that one peer takes from all others together; 0, or NULL:
     * as many as their connections bring. */
    uint64_t (*line)(void *self, uint32_t peer);
    void *rate_self; /* of rate, line and latency */
    uint32_t dial_timeout_ms;
    /* The last peer has the identity of this one, minus 1; 0: its own. By id
     * only the first of the two is found. */
    uint32_t twin_of;
    /* Peers from, up to but not including, have addresses of one public /24;
     * all others are in private ones. */
    uint32_t public_from, public_to;
    uint32_t transport_timeout_ms; /* 0: a cut connection stays silent */
    uint32_t lose_per_million;     /* control messages */
    uint32_t spike_per_million;    /* control messages that are late ... */
    uint32_t spike_ms;             /* ... by up to this */
    uint32_t resend_per_million;   /* TCP: this share of packets is lost ... */
    uint32_t resend_ms; /* ... and sent again after this, doubling each time */
    /* Whether bytes cannot go from one peer to the other (one way; `bulk`: data
     * connections), beside world_partition(). NULL: they can. When its answer
     * changes, world_partition() or world_heal() is called. */
    bool (*cut)(void *self, uint32_t from, uint32_t to, bool bulk);
    /* Two that dial each other through cones may miss each other, and what they
     * make ends by itself within so long; 0: it lasts. */
    uint32_t holes_fail_per_million, hole_lasts_ms;
    /* A liar made peers post and send what does not fit: no rule is broken. */
    bool frames_contradict;
    void *cut_self;
    /* What a peer says can be something else on its way: returns the new
     * length, at most cap. NULL: nothing is. */
    uint32_t (*tamper)(void *self,
                       uint32_t from,
                       uint32_t to,
                       uint16_t message,
                       uint8_t *bytes,
                       uint32_t len,
                       uint32_t cap);
    void *tamper_self;
    /* The same of a segment: its bytes may be others. True: it is not sent, and
     * its sender takes it for sent. NULL: all are sent as they are. */
    bool (*tamper_bulk)(void *self,
                        uint32_t from,
                        uint32_t to,
                        const struct segment *seg,
                        uint8_t *bytes,
                        size_t len);
    bool print_trace;
};

/* What the owner is told; all get the peer's number. */
struct world_calls {
    void *self;
    /* The process is gone; may be NULL. */
    void (*died)(void *self, uint32_t peer);
    /* After every step and its actions. */
    void (*after)(void *self,
                  uint32_t peer,
                  const struct event *event,
                  const struct out *out);
};

/* What is below each peer; all get its number. As shell_calls. */
struct world_machines {
    void *self;
    size_t (*wire_len)(void *self, uint32_t peer, const struct segment *seg);
    int (*fill)(void *self,
                uint32_t peer,
                const struct segment *seg,
                uint8_t *dst);
    int (*take)(void *self,
                uint32_t peer,
                const struct segment *seg,
                const uint8_t *src,
                size_t len);
    int (*sum)(void *self, uint32_t peer, struct segment *seg);
    void (*local)(void *self,
                  uint32_t peer,
                  const struct job *job,
                  const struct out *out);
    /* A timer of world_timer() ran off. */
    void (*timer)(void *self, uint32_t peer, uint64_t token);
    /* The process is gone: forget what was in its memory. */
    void (*died)(void *self, uint32_t peer);
};

typedef void (*world_fn)(void *data, uint64_t arg);

struct world_stats {
    uint64_t steps, messages, messages_lost, segments, bytes;
    uint64_t dropped;     /* actions that did not fit an `out` */
    uint64_t broke_rules; /* contradicting frames, sends on unknown links */
    uint64_t unposted;    /* connections closed for a frame never posted */
    uint64_t nowhere;     /* dials of addresses that nobody has */
    uint64_t relayed;     /* links and data connections through a relay */
    uint64_t punches;     /* ends of a meeting that dialled the other, */
    uint64_t punched;     /* and connections that this made */
    uint64_t broken;      /* holes that ended by themselves */
    uint64_t spins;       /* a core asked for ticks without end */
    uint64_t storms;      /* peers answered each other without end */
    uint32_t queue_max;   /* longest queue of sends or posts of one peer */
};

/* LOCO_ENOMEM. */
int world_open(struct world **world,
               const struct world_options *opt,
               const struct world_calls *calls);
void world_close(struct world *w);

/* Without machines jobs are lost, and there are no segments. */
void world_set_machines(struct world *w, const struct world_machines *machines);

uint64_t world_now(const struct world *w);
uint64_t world_trace_hash(const struct world *w);
const struct world_stats *world_stats(const struct world *w);

/* Who a peer is. */
const struct identity *world_identity(const struct world *w, uint32_t peer);
struct address world_address(const struct world *w, uint32_t peer);
/* Number of a peer by id, or n_peers. */
uint32_t world_find(const struct world *w, const struct peer_id *id);

/* Start a process with this core; its first deadline is armed. The durable
 * record of the life before, if any, is world_record(). */
void world_start(struct world *w, uint32_t peer, const struct core *core);
const uint8_t *world_record(const struct world *w, uint32_t peer, size_t *len);
bool world_alive(const struct world *w, uint32_t peer);
bool world_frozen(const struct world *w, uint32_t peer);
/* Whether control cannot pass, in one of the two directions at least. */
bool world_cut(const struct world *w, uint32_t a, uint32_t b);

/* An event for one peer, now: how LOCAL events come in. */
void world_post(struct world *w, uint32_t peer, const struct event *event);
/* Call timer(peer, token) after delay_ms, unless the life ends before. */
void world_timer(struct world *w,
                 uint32_t peer,
                 uint32_t delay_ms,
                 uint64_t token);
/* Call fn at a time, whatever lives: for scenarios. */
void world_call(
    struct world *w, uint64_t at_ms, world_fn fn, void *data, uint64_t arg);

/* One entry of the heap; false: nothing before end_ms is left, and the clock
 * stands there; or a storm. */
bool world_step(struct world *w, uint64_t end_ms);

/* What cores owe the shell, whatever is going on: false, with a sentence in
 * `why`, which is left alone otherwise. */
bool world_is_sound(const struct world *w, char *why, size_t size);

/* Note a line in the trace (a short copy is kept). */
void world_note(struct world *w, uint32_t peer, const char *text);
/* The last WORLD_TRACE_LINES entries, to stderr. */
void world_print_trace(const struct world *w);

/* Nobody can dial a peer behind NAT; from the start, before any dial. Two that
 * meet get through only if both NATs keep a port, whoever is at the other end
 * (CONE). */
enum world_nat { WORLD_OPEN, WORLD_NAT_SYMMETRIC, WORLD_NAT_CONE };
void world_set_nat(struct world *w, uint32_t peer, enum world_nat nat);
enum world_nat world_nat(const struct world *w, uint32_t peer);

/* ---- faults ---- */
void world_kill(struct world *w, uint32_t peer);
/* The process dies before it executes its k-th next action (1: the next one):
 * between a SAVE and the message it allows, for example. 0: never. */
void world_kill_at_action(struct world *w, uint32_t peer, uint64_t k);
/* Actions that the peer has executed in all its lives. */
uint64_t world_actions(const struct world *w, uint32_t peer);
void world_freeze(struct world *w, uint32_t peer);
void world_thaw(struct world *w, uint32_t peer);
/* Peers with different group numbers cannot talk; all 0 heals. */
void world_partition(struct world *w, const uint32_t *group);
void world_heal(struct world *w);
/* Control links between two peers go down on both ends. */
void world_drop_links(struct world *w, uint32_t a, uint32_t b);
/* Data connections between two peers break. */
void world_drop_bulk(struct world *w, uint32_t a, uint32_t b);
void world_lossy(struct world *w, uint32_t lose_per_million);
void world_spiky(struct world *w, uint32_t per_million, uint32_t spike_ms);
/* The next SAVE of this peer fails. */
void world_fail_save(struct world *w, uint32_t peer);
/* From now on a SAVE of it takes up to so long; 0: none. */
void world_slow_disk(struct world *w, uint32_t peer, uint32_t most_ms);
bool world_disk_is_slow(const struct world *w, uint32_t peer);

#endif
