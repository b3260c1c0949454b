/* core.h - the contract between the protocol cores and what runs them.
 *
 * Events and actions of the network; those of the own machine are in local.h.
 * Each kind has one payload, the member of the union with its name (POST_RECV,
 * SEND_SEG and SUM share `segment`). A kind without a member says everything by
 * its type. Members overlap: only that of the kind may be read.
 *
 * A core is a struct with x_init, x_step(event, out) and x_deadline. Bytes,
 * time and randomness come in with events; actions go out. A core owns no
 * socket, clock, thread, file or tensor byte and allocates nothing after init.
 * Two shells execute the actions: p2p/uv (the daemon) and daemon/sim (virtual
 * time). They do so after the step returned, in order; nothing re-enters.
 *
 * Words
 *   link     an authenticated control connection to one peer; messages only
 *   bulk     the data connection(s) to one peer; segments only
 *   segment  a named piece of a buffer that travels or is awaited; the core
 *            names it, the shell moves the bytes
 *   relay    a peer that carries the bytes of a connection between two others;
 *            it cannot read them: the handshake is between the two ends
 *   meeting  a relay that carries nothing: it tells each of two peers where it
 *            sees the other, and both dial at once (hole punching)
 *   attempt  a 64-bit tag that all segments of one exchange carry. On one
 *            stream it only grows, so a late frame of a dead attempt is known
 *
 * Rules for a shell
 *   - every DIAL ends in one LINK_UP or one DIAL_FAILED with its request;
 *   - MET says where the other end of a meeting is seen. It is dialled only
 *     after PUNCH, a few times in a short while;
 *   - a BULK_OPEN that fails ends what waits for a data connection, where there
 *     is none and no other one is under way, also what is queued in the same
 *     step. One that meets looks for a direct connection beside those that
 *     there are, and ends in one BULK_MET. A direct connection is used before a
 * relayed one;
 *   - every PROBE ends in one PROBED; every RELAY is answered with one
 *     RELAY_JOIN or RELAY_REFUSE, or ends by itself after a time;
 *   - every POST_RECV, SEND_SEG and SUM ends in exactly one SEG_DONE unless its
 *     attempt was cancelled, after which none is reported;
 *   - a SEND_SEG of a fetch that has no data connection to go over may end with
 *     the last link to its peer;
 *   - received bytes reach the buffer only when their tag verified. A shell may
 *     receive straight into the piece that a COPY or LANE names: until SEG_DONE
 *     it then holds anything, and where a tag was bad the part behind the last
 *     good one is zeroed. Nobody reads a piece that is not done;
 *   - SUM adds up one slot of all lanes, the own contribution in its own lane,
 *     in the order of the lanes, in fp32, and encodes once. It is asked for
 *     when every other lane of the slot is done, and before the slot is posted
 *     again. It moves no bytes between peers and ends in order;
 *   - CANCEL ends the posted receives of a stream up to the named attempt, and
 *     the sends not yet done that carry exactly this attempt: a send may carry
 *     the attempt of the peer that asked for it, which counts for itself. With
 *     attempt 0 it forgets that bound (another branch counts from elsewhere)
 *     and closes bulk connections that wait with a frame of this stream;
 *   - a bulk frame whose attempt is at or below the last CANCEL of its stream
 *     is read and dropped; one that is not posted yet waits (the connection is
 *     not read: that is the back-pressure), but no longer than UNPOSTED_MS,
 *     then the connection is closed: whatever is wrong, what is behind the
 *     frame gets through on a new one. One that contradicts its posting closes
 *     the connection at once; one of STREAM_RING waits like one that is not
 *     posted: two honest members may follow two plans of a coordinator that
 *     lies, and no line between them is to blame;
 *   - while segments of STREAM_RING wait and bytes of them move, in a part of
 *     one too, MOVED says so about every second. A shell may leave it out where
 *     no segment takes that long;
 *   - SAVE is a barrier for speech: a SEND or HANG_UP that follows it, in the
 *     same `out` or a later one, goes out only when the bytes are on disk, in
 *     order; only messages that bind nobody (frame_rule) may overtake. The
 *     core is stepped meanwhile. If it fails the SENDs that waited are
 *     discarded, everything else is executed, and SAVE_FAILED is reported.
 */
#ifndef LOCO_P2P_CORE_H
#define LOCO_P2P_CORE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "p2p/address.h"
#include "p2p/local.h"
#include "p2p/segment.h"
#include "proto/id.h"

#define CORE_OUT_MAX       2048        /* actions one step may emit */
#define CORE_OUT_BYTES_MAX (512 << 10) /* message bytes one step may emit */
#define CORE_NEVER         UINT64_MAX  /* deadline of a core that waits */
/* How long a frame may wait for its posting: longer than any attempt that it
 * could belong to goes on without progress. */
#define UNPOSTED_MS   30000
#define CORE_TEXT_MAX 200 /* bytes of a log line, NUL included */

/* ---- into the core ---------------------------------------------------- */

enum event_type {
    EVENT_TICK, /* deadline has passed */
    EVENT_LINK_UP,
    EVENT_LINK_DOWN,
    EVENT_DIAL_FAILED,
    EVENT_RECV,
    EVENT_SEG_DONE,
    EVENT_MOVED, /* bytes of segments of STREAM_RING moved since it was said
                    last */
    EVENT_SAVE_FAILED,
    EVENT_PROBED,
    EVENT_RELAY,
    EVENT_RELAY_MOVED,
    EVENT_MET,
    EVENT_BULK_MET,
    EVENT_PUNCHED,
    EVENT_LOCAL, /* a report of this machine (local.h) */
    EVENT_TYPE_COUNT
};

struct event_link_up {
    uint32_t link;
    bool inbound;
    uint64_t request;    /* of the DIAL; 0: inbound */
    struct peer_id peer; /* authenticated, and so is the key */
    uint8_t public_key[32];
    struct address address; /* where the peer listens (port 0: does not, or a
                               relay is between us) */
    struct peer_id relay;   /* through whom; zero: directly */
    struct peer_id met_at;  /* who introduced us; zero: nobody */
};

struct event_link_down {
    uint32_t link;
    int rc;
};

struct event_dial_failed {
    uint64_t request;
    struct address address; /* what was dialled */
    int rc;                 /* -ECONNREFUSED only where a live host refused */
};

struct event_recv {
    uint32_t link;
    /* The shortest round trip of that connection of late, as the kernel saw it;
     * 0: not known, or through a relay. */
    uint32_t rtt_us;
    uint16_t message;     /* type */
    const uint8_t *bytes; /* borrowed for the call */
    size_t len;
};

struct event_seg_done {
    struct segment segment; /* as posted */
    bool sent;              /* it was a SEND_SEG */
    int rc;
    /* Received: so many of its bytes arrived in so many microseconds while
     * nothing else was waited for; 0: not known (bandwidth.h). */
    uint64_t busy_bytes, busy_us;
};

struct event_save_failed {
    int rc;
};

struct event_probed {
    uint64_t request;
    int rc;
};

/* A connection wants to be carried, or introduced (`meet`): its peer asks for
 * `other` (token 0), or comes because we called it with `token`. */
struct event_relay {
    uint64_t request; /* the name of the connection */
    struct peer_id peer, other;
    uint64_t token;
    bool meet;
    struct address from; /* where we see that connection come from */
};

struct event_relay_moved {
    uint64_t request; /* of the first of a joined pair */
    uint64_t n_bytes; /* since the last report */
    int rc;           /* not 0: the connection has ended */
};

/* `relay` sees `peer`, which is told the same of us, at that address. */
struct event_met {
    uint64_t meeting; /* its name */
    uint64_t request; /* of our DIAL; 0: for data, or the other one asked */
    struct peer_id peer, relay;
    struct address address;
};

/* A BULK_OPEN that meets is over. */
struct event_bulk_met {
    struct peer_id peer;
    bool up;   /* there is a direct data connection, */
    bool made; /* and this meeting made it */
};

/* A PUNCH that dialled is over; `up`: a peer of the run, the one that was
 * expected, answered there. */
struct event_punched {
    struct address address;
    bool up;
};

struct event {
    enum event_type type;
    uint64_t now_ms; /* monotonic; never goes back */
    uint64_t wall_s; /* seconds since 1970, only for expiry of records */
    union {
        struct event_link_up link_up;
        struct event_link_down link_down;
        struct event_dial_failed dial_failed;
        struct event_recv recv;
        struct event_seg_done seg_done;
        struct event_save_failed save_failed;
        struct event_probed probed;
        struct event_relay relay;
        struct event_relay_moved relay_moved;
        struct event_met met;
        struct event_bulk_met bulk_met;
        struct event_punched punched;
        struct local_event local;
    };
};

/* ---- out of the core -------------------------------------------------- */

enum action_type {
    ACTION_SEND,
    ACTION_DIAL,
    ACTION_HANG_UP, /* LINK_DOWN follows with LOCO_ECLOSED */
    ACTION_TRUST,   /* until then a link is a stranger's */
    ACTION_BULK_OPEN,
    ACTION_PROBE,
    ACTION_RELAY_COME,
    ACTION_RELAY_JOIN,
    ACTION_RELAY_REFUSE,
    ACTION_PUNCH,
    ACTION_POST_RECV, /* these three: segment */
    ACTION_SEND_SEG,
    ACTION_SUM, /* op SUM */
    ACTION_CANCEL,
    ACTION_SAVE, /* replaces the durable record (barrier) */
    ACTION_JOB,  /* of this machine (local.h): executed by the shell's owner */
    ACTION_TYPE_COUNT
};

struct action_send {
    uint32_t link;
    uint16_t message; /* type */
    struct out_span bytes;
};

struct action_dial {
    uint64_t request;
    struct peer_id peer;    /* expected; zero: anyone */
    struct address address; /* of the relay, where there is one */
    struct peer_id relay;   /* through whom; zero: directly */
    bool meet;              /* the relay is to introduce us */
};

struct action_hang_up {
    uint32_t link;
};

/* Whether a link may hold as much of our memory as its peer needs. */
struct action_trust {
    uint32_t link;
    bool trusted;
};

/* Make sure that a bulk connection exists; without a relay: a direct one. meet:
 * look for a direct one beside it. */
struct action_bulk_open {
    struct peer_id peer;
    struct address address; /* these three: as in DIAL */
    struct peer_id relay;
    bool meet;
};

/* Connect, see that it is that peer, close. */
struct action_probe {
    uint64_t request;
    struct peer_id peer;
    struct address address;
};

/* Connect to the relay, say `token`, and let `peer`, which is at the other end,
 * shake hands. */
struct action_relay_come {
    struct peer_id relay;
    struct address address; /* of the relay */
    struct peer_id peer;
    uint64_t token;
    bool meet;
};

/* Carry bytes between two connections that want it, or tell each where the
 * other comes from. */
struct action_relay_join {
    uint64_t request, other_request;
    bool meet;
};

/* Dial the other end of a meeting where it was seen; port 0: do not. */
struct action_punch {
    uint64_t meeting;
    struct address address;
};

/* Close a connection that is carried, or wants it. */
struct action_relay_refuse {
    uint64_t request;
};

/* Receives up to this attempt end, and sends of exactly this attempt. */
struct action_cancel {
    uint32_t stream;
    uint64_t attempt;
};

struct action {
    enum action_type type;
    union {
        struct action_send send;
        struct action_dial dial;
        struct action_hang_up hang_up;
        struct action_trust trust;
        struct action_bulk_open bulk_open;
        struct action_probe probe;
        struct action_relay_come relay_come;
        struct action_relay_join relay_join;
        struct action_relay_refuse relay_refuse;
        struct action_punch punch;
        struct segment segment; /* POST_RECV, SEND_SEG, SUM */
        struct action_cancel cancel;
        struct out_span save;
        struct job job;
    };
};

/* Filled by a step. What does not fit is lost like a message on the wire and
 * counted: every protocol here survives a lost message. */
struct out {
    uint32_t n, n_bytes;
    uint32_t dropped;
    struct action action[CORE_OUT_MAX];
    uint8_t bytes[CORE_OUT_BYTES_MAX];
};

/* Any core that a shell can drive. `step` overwrites `out`. */
struct core {
    void *self;
    void (*step)(void *self, const struct event *event, struct out *out);
    uint64_t (*deadline)(const void *self);
};

/* Append an action; NULL when full (counted in out->dropped). */
struct action *out_add(struct out *out, enum action_type type);

/* The same for a job of this machine. */
struct job *out_job(struct out *out, enum job_type type);

/* Copy `len` bytes behind the action's arena; returns the offset, or
 * UINT32_MAX when they do not fit. */
uint32_t out_bytes(struct out *out, const void *bytes, size_t len);

/* Queue one message; false when it did not fit. */
bool out_send(struct out *out,
              uint32_t link,
              uint16_t message,
              const void *bytes,
              size_t len);

/* Queue the same bytes for one more link: `at`, `len` name what out_bytes()
 * took before. */
bool out_send_again(
    struct out *out, uint32_t link, uint16_t message, uint32_t at, size_t len);

/* Queue one log line (cut at CORE_TEXT_MAX). Level as in proto/base/log.h. */
void out_log(struct out *out, int level, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

#endif
