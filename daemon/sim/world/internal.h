/* internal.h - what the files of the world share. See world.h.
 *
 * world.c: heap, peers, steps, faults; sim/world/disk.c: durable records;
 * sim/world/link.c: control links;
 * sim/world/relay.c: NAT and relays; sim/world/bulk.c: data connections;
 * sim/world/trace.c: hash and last lines.
 */
#ifndef LOCO_DAEMON_SIM_WORLD_INTERNAL_H
#define LOCO_DAEMON_SIM_WORLD_INTERNAL_H

#include "daemon/sim/world/agenda.h"
#include "daemon/sim/world/world.h"

enum entry_kind {
    ENTRY_TICK,
    ENTRY_EVENT,       /* ptr: struct event */
    ENTRY_TIMER,       /* a: token */
    ENTRY_CALL,        /* ptr: struct errand */
    ENTRY_DIAL,        /* ptr: struct dial */
    ENTRY_LINK_UP,     /* a: link, b: side; ptr: struct dial (dialler) */
    ENTRY_MESSAGE,     /* a: link, b: side; ptr: struct packet */
    ENTRY_LINK_DOWN,   /* a: link, b: side | forced << 1 */
    ENTRY_BULK_UP,     /* ptr: bulk, a: generation, b: 1 = answer is known */
    ENTRY_BULK_SENT,   /* ptr: channel, a: generation */
    ENTRY_BULK_HERE,   /* ptr: channel, a: generation */
    ENTRY_BULK_STALE,  /* ptr: channel, a: generation, b: frame */
    ENTRY_BULK_BREAK,  /* ptr: bulk, a: generation, b: forced */
    ENTRY_BULK_DENIED, /* ptr: bulk, a: generation, b: the dialler's side */
    ENTRY_CARRY,       /* a: name of a carry, b: its time is over */
    ENTRY_SAVED,       /* ptr: struct record */
    ENTRY_HELD         /* ptr: struct held */
};

#define NOBODY UINT32_MAX /* `peer` of an entry that has none */

struct entry {
    uint64_t at_ms, seq; /* the key of the agenda */
    enum entry_kind kind;
    uint32_t peer, life; /* whose process it needs */
    uint64_t a, b;
    void *ptr;
};

struct packet {
    uint16_t type;
    uint32_t len;
    uint8_t bytes[];
};

struct errand {
    world_fn fn;
    void *data;
    uint64_t arg;
};

struct dial {
    uint32_t from, life, to; /* to: NOBODY where nothing listens */
    uint64_t request, started_ms;
    struct address address;
    struct peer_id expected;
};

struct entry_list {
    struct entry *at;
    uint32_t n, cap;
};

enum end_state { END_OPENING, END_UP, END_DOWN };

struct link {
    uint32_t peer[2], life[2];
    uint32_t via; /* the relay's number + 1; 0: direct */
    uint32_t met; /* where the two met, + 1; 0: nowhere */
    enum end_state end[2];
    uint64_t last_ms[2];    /* last arrival planned at that side: FIFO */
    struct entry_list held; /* arrived while cut */
};

struct frame {
    struct segment segment; /* as the sender named it */
    uint8_t *bytes;         /* NULL until written */
    size_t len;
    bool sent, here;
    uint64_t waiting; /* number of its wait for a posting; 0: none */
    bool silent;      /* cancelled: it travels, nothing is reported */
    struct frame *next;
};

struct frame_queue {
    struct frame *head, **tail;
    uint32_t n;
};

/* One direction of one data connection. */
struct channel {
    struct bulk *bulk;
    uint32_t side; /* the sender's */
    uint64_t busy_until_ms, last_ms;
    struct frame_queue queued[STREAM_COUNT];
    struct frame_queue wire; /* of all streams, in order */
};

enum bulk_state { BULK_NONE, BULK_DIALLING, BULK_UP };

/* The data connection between two peers. */
struct bulk {
    uint32_t peer[2], life[2];
    enum bulk_state state;
    uint64_t generation, started_ms;
    bool break_on_heal;
    uint64_t via;               /* the carry that it goes through; 0: direct */
    struct channel channels[2]; /* by sender's side */
    struct bulk *next;          /* all of them */
};

struct post {
    struct segment segment;
    struct post *next;
};

enum carry_state {
    CARRY_COMING,
    CARRY_WAITING,
    CARRY_JOINED,
    CARRY_MET,
    CARRY_OVER
};

/* A connection to a relay, see sim/world/relay.c. */
struct carry {
    enum carry_state state;
    uint64_t name; /* for the relay's core */
    uint32_t end, life, relay, relay_life;
    uint32_t other; /* the end that it wants, or was called by */
    uint64_t token; /* 0: it asks */
    bool bulk;
    bool meet, dialled; /* a meeting; this end dials the other */
    uint64_t pair;      /* met: the name of the other end's */
    uint64_t made_as;   /* a meeting for data: the generation that it made */
    uint64_t request;   /* of the DIAL */
    struct address address;
    uint32_t link; /* joined: its index */
};

struct world_peer {
    struct identity identity;
    struct address address;
    struct core core;
    bool alive, frozen, fail_save;
    enum world_nat nat; /* nobody can dial it */
    uint32_t life, group;
    uint64_t armed_ms;
    uint64_t line_until_ms;     /* it is taking data until then */
    struct entry_list deferred; /* while frozen */
    uint8_t *record;
    size_t record_len;
    uint32_t disk_ms, n_held;   /* it takes so long at most; disk.c */
    uint64_t busy_ms, saved_ms; /* it writes; all that it was given is there */
    bool cancelled_any[STREAM_COUNT];
    uint64_t cancelled[STREAM_COUNT];
    uint64_t cancel_seq[STREAM_COUNT]; /* entries before it are void */
    struct post *posts;
    uint32_t n_posts;
    uint64_t actions, die_at;
    uint64_t spin_ms;
    uint32_t spin;
};

struct trace_line {
    uint64_t at_ms, step;
    uint32_t peer;
    char text[96];
};

struct world {
    struct world_options opt;
    struct world_calls calls;
    struct world_machines machines;
    uint64_t now_ms, seq, rng, trace, cut_serial, n_waits;
    uint64_t second, second_steps; /* of virtual time; steps in it */
    struct agenda agenda;          /* of struct entry */
    struct world_peer *peers;
    uint32_t *by_id; /* peers sorted by id */
    struct link *links;
    uint32_t n_links, cap_links;
    struct bulk **bulks; /* n_peers * n_peers, lower number first */
    struct bulk *all_bulks;
    struct carry **carries;
    uint32_t n_carries, cap_carries;
    struct out *out;
    struct world_stats stats;
    struct trace_line lines[WORLD_TRACE_LINES];
    uint64_t n_lines;
};

void *world_alloc(size_t bytes);
void world_push(struct world *w, struct entry entry);
void world_push_again(struct world *w, struct entry entry);
void entry_list_add(struct entry_list *list, const struct entry *entry);
void entry_free(struct entry *entry);
uint32_t world_latency(struct world *w, uint32_t from, uint32_t to);
/* Without jitter. */
uint32_t world_least_latency(struct world *w, uint32_t from, uint32_t to);
/* One direction, one kind of connection. */
bool world_blocked(const struct world *w,
                   uint32_t from,
                   uint32_t to,
                   bool bulk);
/* How much later a packet comes because it was lost on the way. */
uint64_t world_resend_ms(struct world *w);
/* Queue an event as an entry: it is delivered after what is due before. */
void world_event(struct world *w,
                 uint32_t peer,
                 uint64_t at_ms,
                 const struct event *event);
/* Step a core now. */
void world_deliver(struct world *w, uint32_t peer, struct event *event);

/* sim/world/disk.c. SAVE: false when it fails, and what follows must not be
 * said; whether an action waits for the disk. */
bool disk_save(struct world *w, uint32_t peer, const struct out_span *record);
bool disk_keeps(struct world *w, uint32_t peer, const struct action *a);
void disk_on_entry(struct world *w, struct entry *e);
void disk_peer_died(struct world *w, uint32_t peer);

/* sim/world/link.c */
void world_link_dial(struct world *w,
                     uint32_t peer,
                     const struct action_dial *dial);
void world_link_send(struct world *w,
                     uint32_t peer,
                     const struct action_send *send);
void world_link_hang_up(struct world *w, uint32_t peer, uint32_t link);
void link_on_entry(struct world *w, struct entry *e);
void link_peer_died(struct world *w, uint32_t peer);
void link_on_cut(struct world *w);
void link_on_heal(struct world *w);
void link_free(struct world *w);

/* A link between the ends of a carry, or of a meeting; both are told. */
uint32_t link_through(struct world *w, const struct carry *c);
void link_drop(struct world *w, uint32_t link);

/* sim/world/relay.c */
void relay_dial(struct world *w, uint32_t peer, const struct action_dial *dial);
void relay_bulk(struct world *w,
                uint32_t peer,
                const struct action_bulk_open *open);
void relay_come(struct world *w,
                uint32_t peer,
                const struct action_relay_come *come);
/* Nothing goes through that carry any more. */
void relay_left(struct world *w, uint64_t carry);
void relay_probe(struct world *w,
                 uint32_t peer,
                 const struct action_probe *probe);
void relay_join(struct world *w,
                uint32_t peer,
                const struct action_relay_join *join);
void relay_refuse(struct world *w, uint32_t peer, uint64_t request);
void relay_punch(struct world *w,
                 uint32_t peer,
                 const struct action_punch *punch);
void relay_on_entry(struct world *w, const struct entry *e);
void relay_link_gone(struct world *w, uint32_t link);
void relay_peer_died(struct world *w, uint32_t peer);
void relay_free(struct world *w);

/* sim/world/bulk.c */
void world_bulk_open(struct world *w,
                     uint32_t peer,
                     const struct action_bulk_open *open);
void world_bulk_post(struct world *w, uint32_t peer, const struct segment *seg);
void world_bulk_send(struct world *w, uint32_t peer, const struct segment *seg);
void world_bulk_sum(struct world *w, uint32_t peer, const struct segment *seg);
void world_bulk_cancel(struct world *w,
                       uint32_t peer,
                       uint32_t stream,
                       uint64_t at);
void bulk_on_entry(struct world *w, struct entry *e);
/* A dial of `peer` has failed; the other side may have made a connection. */
void bulk_denied(struct world *w, uint32_t peer, uint32_t to, int rc);
/* A relay has joined the two (`via`: its carry), or they have met (0). False:
 * there is another connection already, which is no worse. */
bool bulk_through(struct world *w, uint32_t a, uint32_t b, uint64_t via);
/* That one is gone. */
void bulk_carry_gone(struct world *w, uint32_t a, uint32_t b, uint64_t via);
/* A direct one ends, if it is still there. */
void bulk_hole_gone(struct world *w, uint32_t a, uint32_t b, uint64_t made_as);
uint64_t bulk_generation(struct world *w, uint32_t a, uint32_t b);
void bulk_peer_died(struct world *w, uint32_t peer);
void bulk_on_cut(struct world *w);
void bulk_on_heal(struct world *w);
void bulk_on_thaw(struct world *w, uint32_t peer);
bool bulk_cancelled(const struct world_peer *p,
                    const struct segment *seg,
                    bool sent);
void world_bulk_free(struct world *w);

/* sim/world/trace.c */
void trace_event(struct world *w, uint32_t peer, const struct event *e);

#endif
