/* core.h - the contract between the protocol cores and what runs them.
 *
 * A core is a struct with x_init, x_step(event, out) and x_deadline. Bytes,
 * time and randomness come in with events; actions go out. A core owns no
 * socket, clock, thread, file or tensor byte and allocates nothing after init.
 * Two shells execute the actions: p2p/uv (the daemon) and tests/sim (virtual
 * time). They do so after the step returned, in order; nothing re-enters.
 *
 * Words
 *   link     an authenticated control connection to one peer; messages only
 *   bulk     the data connection(s) to one peer; segments only
 *   segment  a named piece of a buffer that travels or is awaited; the core
 *            names it, the shell moves the bytes
 *   relay    a peer that carries the bytes of a connection between two others;
 *            it cannot read them: the handshake is between the two ends
 *   attempt  a 64-bit tag that all segments of one exchange carry. On one
 *            stream it only grows, so a late frame of a dead attempt is known
 *
 * Rules for a shell
 *   - every DIAL ends in one LINK_UP or one DIAL_FAILED with its request;
 *   - every PROBE ends in one PROBED; every RELAY is answered with one
 *     RELAY_JOIN or RELAY_REFUSE, or ends by itself after a time;
 *   - every POST_RECV, SEND_SEG and SUM ends in exactly one SEG_DONE unless its
 *     attempt was cancelled, after which none is reported;
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
 *     the connection at once;
 *   - while segments of STREAM_RING wait and bytes of them move, in a part of
 *     one too, MOVED says so about every second. A shell may leave it out where
 *     no segment takes that long;
 *   - SAVE is a barrier for speech: a SEND that follows it in the same `out`
 *     goes out only when the bytes are on disk. If that fails these SENDs are
 *     discarded, everything else is executed, and SAVE_FAILED is reported.
 */
#ifndef LOCO_P2P_CORE_H
#define LOCO_P2P_CORE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "p2p/owners.h"
#include "p2p/terms.h"
#include "proto/id.h"

#define CORE_OUT_MAX       2048        /* actions one step may emit */
#define CORE_OUT_BYTES_MAX (512 << 10) /* message bytes one step may emit */
#define CORE_NEVER         UINT64_MAX  /* deadline of a core that waits */
/* How long a frame may wait for its posting: longer than any attempt that it
 * could belong to goes on without progress. */
#define UNPOSTED_MS   30000
#define CORE_TEXT_MAX 200 /* bytes of a log line, NUL included */

/* IPv4 addresses are mapped (::ffff:a.b.c.d). Port in host order. */
struct address {
    uint8_t ip[16];
    uint16_t port;
};

/* What a segment does to the buffer it names. */
enum segment_op {
    SEGMENT_COPY,   /* receive: bytes replace the piece; send: bytes as held */
    SEGMENT_ADD,    /* receive: piece = enc(dec(bytes) + own contribution) */
    SEGMENT_ENCODE, /* send: first encode the own contribution, then send it */
    SEGMENT_LANE,   /* receive: bytes wait in `lane`, `slot` for a SUM */
    SEGMENT_SUM,    /* ACTION_SUM: piece = enc(sum of scale * dec(lane)) */
    SEGMENT_OP_COUNT
};

/* Buffers that segments can name. The owner of the shell resolves them. */
enum buffer_kind {
    BUFFER_RING,    /* wire bytes of the round in flight */
    BUFFER_REDUCED, /* wire bytes of the last committed round; `index` round */
    BUFFER_STATE,   /* what all members hold alike, the parameters first;
                       `index` round */
    BUFFER_SHARD,   /* data shard `index` of the manifest */
    BUFFER_STATE_LEAVES, /* hashes of the pieces of that state: parameters,
                            then momentum (proto/hash.h), 32 bytes each */
    BUFFER_SHARD_LEAVES, /* the same of that shard */
    BUFFER_ANCHOR, /* pairs, turn `index`: parameters. What is sent is our own,
                      what is received is the partner's */
    BUFFER_STEP,   /* pairs, the same: displacement since the anchor */
    BUFFER_FORTH,  /* stages: activations of micro-batch `index`, elements of
                      the cut. Received: input of `slot`; sent: its output */
    BUFFER_BACK,   /* stages, their gradient. Received: that of the output of
                      `slot`; sent: that of its input */
    /* Owners of slices, slice `index`. Received: into `slot`; sent: what GIVE
     * put into `slot`, if it was for this attempt. */
    BUFFER_PIECE,   /* of a task: wire type */
    BUFFER_SLICE,   /* fp32: parameters, momentum, sum; elements of all three */
    BUFFER_READING, /* parameters, in the type of readings */
    BUFFER_KIND_COUNT
};

struct segment {
    struct peer_id peer;
    uint64_t attempt;
    uint32_t stream; /* one counter space of attempts: STREAM_RING, ... */
    uint32_t seg;    /* number within the attempt and direction */
    enum buffer_kind buffer;
    uint64_t index;  /* which round, shard or micro-batch, see buffer_kind */
    uint64_t name;   /* STATE, its leaves; sent: which of that round, by the
                        first bytes of its hash, since a branch, or the mean at
                        the end of pairs, has another; 0: any */
    uint64_t offset; /* STATE, SHARD: bytes; others: elements */
    uint32_t len;    /* STATE, SHARD: bytes; others: elements */
    enum segment_op op;
    double scale; /* factor of the own contribution for ADD, ENCODE and SUM;
                     LANE: of what arrives, in the sum */
    bool final;   /* RING: what the piece then holds, or what is sent of it, is
                     the result */
    uint8_t lane; /* LANE: of this contribution; SUM: the own one, and in a
                     SEG_DONE that failed the one that could not be summed */
    uint8_t lanes, slot; /* LANE, SUM: lanes in all; place in each of them.
                            FORTH, BACK: where the micro-batch is kept here */
};

/* A fetch from one of several sources at a time is a stream of its own. */
#define STREAM_FETCHES 8
#define STREAM_SLOTS   16
enum {
    STREAM_RING,
    STREAM_FETCH,
    STREAM_PAIR = STREAM_FETCH + STREAM_FETCHES,
    STREAM_PIPE,   /* stages: attempts are the tags of p2p/pipeline.h */
    STREAM_EVAL,   /* stages: held-out windows, daemon/node_eval.c */
    STREAM_OWNERS, /* one for each slot of p2p/owners.h: slots end in any order
                    */
    STREAM_COUNT = STREAM_OWNERS + STREAM_SLOTS
};

/* Places of a stage for held-out windows, beside those of its pipeline. */
#define EVAL_SLOTS 2

/* What a stage does with the micro-batches of a step. */
enum pipe_op {
    PIPE_FORWARD,
    PIPE_SCORE,    /* the last stage: forward, loss and backward */
    PIPE_BACKWARD, /* adds to the sum of gradients */
    PIPE_CLEAR,    /* the sum, and what is kept for backward passes */
    PIPE_STEP,     /* the optimizer, with the sum; it is empty then */
    /* Held-out windows through the parameters of the commit `round`, not those
     * that the steps have moved; nothing of it is kept or summed. */
    PIPE_EVAL_FORWARD,
    PIPE_EVAL_SCORE, /* the last stage */
    PIPE_OP_COUNT
};

/* What a machine does with a slice of the parameters: the actions of
 * p2p/owners.h, one after the other in the order in which they come. */
enum slice_op {
    SLICE_CHECK, /* slot: what came is of `what`; LOCO_ENUMERIC: no numbers */
    SLICE_FILL,  /* slot: the own piece, of the task that was packed last */
    SLICE_GIVE,  /* what, as it is now, into the sender's buffer `give`, for
                    `attempt` of the peer. PIECE: the own; RECORD: of slot */
    SLICE_APPLY, /* slot: arrival `count` of a cycle of `size`; cycles behind
                    it have `next`. Its maker is `peer`, its task `request` */
    SLICE_BUILD, /* from the initial weights; cycles have `size` */
    SLICE_LOAD,  /* slot: STATE; COPY: momentum and sum are 0, cycles have
                    `size`; slot SLICE_NO_SLOT: of the own reading */
    SLICE_FORGET,
    SLICE_KEEP, /* slot: was read, version `at`; SLICE_NO_SLOT: of the own
                   state */
    SLICE_MARK, /* the state is version `at` now: to the disk with it, as soon
                   as that has time, in the place of the mark before */
    SLICE_READ, /* all are read: the next task begins from there */
    SLICE_OP_COUNT
};
#define SLICE_NO_SLOT UINT32_MAX

struct slice_job {
    enum slice_op op;
    enum owners_what what;
    uint32_t slice, slot, give;
    uint32_t size, count, next;
    struct slice_version at;
    uint64_t serial; /* each job is answered under its number */
};

/* ---- into the core ---------------------------------------------------- */

enum event_type {
    EVENT_TICK,        /* deadline has passed */
    EVENT_LINK_UP,     /* link, peer, address, inbound, request */
    EVENT_LINK_DOWN,   /* link, rc */
    EVENT_DIAL_FAILED, /* request, address, rc: -ECONNREFUSED only where a live
                          host refused */
    EVENT_RECV,        /* link, message type, bytes */
    EVENT_SEG_DONE,    /* segment (as posted), sent, rc */
    EVENT_MOVED,       /* bytes of segments of STREAM_RING moved since it was
                          said last */
    EVENT_SAVE_FAILED, /* rc */
    EVENT_PROBED,      /* request, rc */
    EVENT_RELAY,       /* a connection wants to be carried: request names it;
                          peer asks for `other` (token 0), or comes because we
                          called it with `token` */
    EVENT_RELAY_MOVED, /* request of the first of a joined pair, n_bytes since
                          the last report; rc not 0: it has ended */
    EVENT_LOCAL,       /* from this machine's trainer, workers or operator */
    EVENT_TYPE_COUNT
};

/* What arrives from the own machine; `local` of an event. */
enum local_type {
    LOCAL_CONFIGURED,  /* manifest accepted and memory ready (or rc) */
    LOCAL_LOADED,      /* LOAD done: parameters in place (or rc); hashes,
                          inner_step */
    LOCAL_PROGRESS,    /* while training: inner_step, tokens, loss, speed */
    LOCAL_TRAINED,     /* TRAIN done: contribution packed; inner_step, tokens */
    LOCAL_APPLIED,     /* APPLY done: hashes of the new state */
    LOCAL_EVALUATED,   /* EVAL done: bits_per_byte */
    LOCAL_HASHED,      /* HASH done: hash of the named buffer (or rc) */
    LOCAL_INHERITED,   /* INHERIT failed: that buffer is gone (rc) */
    LOCAL_VERIFIED,    /* VERIFY done: rc, LOCO_EHASH where the piece is bad; of
                          a leaf list: the roots, held */
    LOCAL_DOWNLOADING, /* DOWNLOAD under way: index, here_bytes */
    LOCAL_DOWNLOADED,  /* DOWNLOAD done: index; rc 0: verified and kept */
    LOCAL_PAUSE,
    LOCAL_RESUME,
    LOCAL_DRAIN,   /* finish the commit in flight, say goodbye, stop */
    LOCAL_MAPPED,  /* the router maps a port to us (rc 0), or does not (rc) */
    LOCAL_REVOKED, /* a REVOCATION that the author, or an earlier life, has:
                      bytes */
    LOCAL_NEARBY,  /* somebody of this run is heard on the LAN: address */
    LOCAL_STAGED,  /* STAGE done: terms of that stage (or rc) */
    LOCAL_PIPED,   /* PIPE done (or rc): op, attempt, index. STEP: also
                      inner_step. EVAL_SCORE: bits_per_byte of the windows of
                      that attempt up to these */
    LOCAL_SLICED,  /* SLICE done (or rc): job. READ: also params_hash,
                      inner_step */
    LOCAL_TYPE_COUNT
};

struct local_event {
    enum local_type type;
    int rc;
    uint64_t round;
    uint64_t inner_step;
    uint64_t tokens; /* TRAINED: in this contribution; PROGRESS: ever; LOADED,
                        APPLIED: of the steps since the state that the new one
                        replaced them with, 0 where they were kept (rebase) */
    float loss;
    float tokens_per_s;
    double bits_per_byte;
    enum buffer_kind buffer;
    uint64_t index;
    uint64_t here_bytes; /* DOWNLOADING */
    uint64_t request;    /* HASHED, INHERITED, VERIFIED: that of the action */
    /* VERIFIED, of a leaf list: bit i, piece i is here already and good;
     * borrowed for the call, NULL: none. */
    const uint8_t *held;
    struct hash32 hash;          /* HASHED; VERIFIED: root of a shard's list */
    struct hash32 params_hash;   /* LOADED, APPLIED; VERIFIED: of a state's */
    struct hash32 momentum_hash; /* LOADED, APPLIED; VERIFIED: the same */
    const struct run_terms *terms; /* CONFIGURED, STAGED: borrowed */
    enum pipe_op op;               /* PIPED */
    uint64_t attempt;              /* PIPED: that of the action */
    struct slice_job job;          /* SLICED: that of the action */
    struct address address;        /* MAPPED: outer one; NEARBY */
    /* REVOKED; CONFIGURED: the record of terms.held_commit, as
     * ACTION_CHECKPOINT found it, len 0: none. Borrowed until it was handled.
     */
    uint32_t n_bytes;
    const uint8_t *bytes;
};

struct event {
    enum event_type type;
    uint64_t now_ms; /* monotonic; never goes back */
    uint64_t wall_s; /* seconds since 1970, only for expiry of records */
    int rc;
    uint32_t link;
    uint64_t request;
    bool inbound;
    bool sent;              /* SEG_DONE: it was a SEND_SEG */
    struct peer_id peer;    /* LINK_UP: authenticated */
    uint8_t public_key[32]; /* LINK_UP: authenticated */
    struct address address; /* LINK_UP: where the peer listens (port 0: does
                               not, or a relay is between us); DIAL_FAILED:
                               what was dialled */
    struct peer_id relay;   /* LINK_UP: through whom; zero: directly */
    struct peer_id other;   /* RELAY */
    uint64_t token;         /* RELAY */
    uint64_t n_bytes;       /* RELAY_MOVED */
    /* RECV: the shortest round trip of that connection of late, as the kernel
     * saw it; 0: not known, or through a relay */
    uint32_t rtt_us;
    uint16_t message;     /* RECV: type */
    const uint8_t *bytes; /* RECV: borrowed for the call */
    size_t len;
    struct segment segment; /* SEG_DONE */
    /* SEG_DONE, received: so many of its bytes arrived in so many microseconds
     * while nothing else was waited for; 0: not known (bandwidth.h) */
    uint64_t busy_bytes, busy_us;
    struct local_event local;
};

/* ---- out of the core -------------------------------------------------- */

enum action_type {
    /* network, executed by the shell */
    ACTION_SEND,       /* link, message, bytes */
    ACTION_DIAL,       /* request, address, peer (zero: anyone); through `relay`
                          where that is not zero: address is the relay's */
    ACTION_HANG_UP,    /* link; LINK_DOWN follows with LOCO_ECLOSED */
    ACTION_BULK_OPEN,  /* peer, address: make sure a bulk connection exists;
                          through `relay` as DIAL. Without one: a direct one */
    ACTION_PROBE,      /* request, peer, address: connect, see that it is that
                          peer, close */
    ACTION_RELAY_COME, /* address, relay: connect there, say `token`, and let
                          `peer`, which is at the other end, shake hands */
    ACTION_RELAY_JOIN, /* request, other_request: carry bytes between them */
    ACTION_RELAY_REFUSE, /* request: close it, joined or not */
    ACTION_POST_RECV,    /* segment */
    ACTION_SEND_SEG,     /* segment */
    ACTION_SUM,          /* segment, op SUM */
    ACTION_CANCEL,       /* stream, attempt: receives <= it, sends = it end */
    ACTION_SAVE,         /* bytes: replaces the durable record (barrier) */
    /* this machine, executed by the owner of the shell */
    ACTION_CONFIGURE,  /* bytes: a manifest in wire form, hash verified */
    ACTION_LOAD,       /* round; from_seed, or from_disk (the held state of the
                          terms), else BUFFER_STATE; rebase */
    ACTION_TRAIN,      /* round, steps: so many inner steps, then pack what that
                          round averages (stages: 0 steps, those were made).
                          Who makes some beside a round that is under way makes
                          fewer here. members, rank: of the view, and the own
                          place in it. bytes: a struct lease, which the steps
                          read from its front on; len 0: the peer's own order.
                          A LOAD, or an APPLY without rebase, that comes before
                          TRAINED makes them begin at the front again */
    ACTION_APPLY,      /* round, buffer RING or REDUCED, rebase, share,
                          arrivals, members; after the steps made beside it.
                          The bytes stay readable as BUFFER_REDUCED `round`
                          afterwards. Buffer STEP: the step of turn `index`,
                          with what came of the partner, or `alone` */
    ACTION_EVAL,       /* round: the parameters of the last APPLIED or LOADED */
    ACTION_HASH,       /* buffer RING or REDUCED, index; of STEP: both payloads
                          of that turn, our own first if `first` */
    ACTION_VERIFY,     /* buffer, index, request: a piece of it against its leaf
                          list; TRANSFER_LEAVES: the roots of that list */
    ACTION_INHERIT,    /* BUFFER_RING of `attempt` becomes that of attempt
                          `request`, of which segment.offset elements are final
                          here; LOCAL_INHERITED only when it cannot */
    ACTION_KEEP,       /* buffer SHARD, index: verified, make it durable */
    ACTION_DOWNLOAD,   /* buffer SHARD, index: from elsewhere than peers, all of
                          it, verify it, make it durable; one at a time, and not
                          while a fetch of it goes on */
    ACTION_CHECKPOINT, /* round: write the state of the last APPLIED/LOADED, and
                          the record of its commit where there is one
                          (node_record()) */
    ACTION_PEERS,      /* bytes: replaces the peers cache (p2p/peers.h) */
    ACTION_CHAIN,      /* bytes: replaces the chain of views (p2p/chain.h) */
    ACTION_REVOKED,    /* bytes: replaces the list of revoked invitations */
    ACTION_STAGE,      /* index: this machine becomes that stage's; what it had
                          of another one is dropped. Before any LOAD of it */
    ACTION_PIPE,       /* op, attempt, index, slot, round, steps: number of the
                          step in that round, from 0; count. Each but
                          CLEAR is answered. CLEAR: all work of attempts up to
                          its own is void, what is under way too; an answer to
                          it may still come. EVAL_*: round is that of the
                          commit, attempts are of their own, CLEAR is nothing
                          to them */
    ACTION_SLICE,      /* job, attempt, peer, request: slice_op. Answered */
    ACTION_PAUSE,      /* stop between two inner steps until TRAIN or RESUME */
    ACTION_RESUME,
    ACTION_STOP, /* the node is drained; rc is the exit code */
    ACTION_LOG,  /* level, bytes: text, request: log_event() */
    ACTION_TYPE_COUNT
};

struct action {
    enum action_type type;
    uint32_t link;
    uint64_t request;
    struct peer_id peer;
    struct address address;
    uint16_t message;
    uint32_t bytes; /* offset in out->bytes */
    uint32_t len;
    struct segment segment;
    uint32_t stream;
    uint64_t attempt;
    uint64_t round;
    uint32_t steps;
    enum buffer_kind buffer;
    uint64_t index;
    bool from_seed; /* LOAD: derive from the manifest's seed */
    bool from_disk;
    bool rebase;  /* APPLY, LOAD: keep live progress made since the anchor */
    double share; /* APPLY: weight of the own contribution, 0 with rebase.
                     LOAD: of the state, in a mean with the one in place; 0: it
                     takes its place */
    uint32_t arrivals, members; /* APPLY: contributions in it that weigh
                                   anything, of so many members of the plan;
                                   TRAIN: of the view, and `rank` */
    uint32_t rank;
    bool encode; /* HASH of RING: first encode the own contribution from
                    segment.offset to the end (a round of one member) */
    bool alone;  /* APPLY of STEP: a bye */
    bool first;  /* HASH, APPLY of STEP: our id is the lower one */
    int level;   /* LOG */
    int rc;      /* STOP */
    struct peer_id relay;   /* DIAL, BULK_OPEN, RELAY_COME; zero: none */
    uint64_t token;         /* RELAY_COME */
    uint64_t other_request; /* RELAY_JOIN */
    enum pipe_op op;        /* PIPE */
    uint32_t slot, count;   /* PIPE: where the micro-batch is kept; STEP:
                               those in the sum, else, on the first stage, the
                               draw that names its tokens */
    struct slice_job job;   /* SLICE */
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

/* "192.0.2.1:7700" or "[2001:db8:0:0:0:0:0:1]:7700", for logs. */
#define ADDRESS_TEXT_MAX 48
void address_text(const struct address *a, char out[ADDRESS_TEXT_MAX]);

bool address_eq(const struct address *a, const struct address *b);

#endif
