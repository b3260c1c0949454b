/* loop.h - the shell: sockets and one timer around a pure core.
 *
 * A *shell* turns what happens on a libuv loop into events of one core
 * (p2p/core.h) and executes the actions that come back, in order, after each
 * step. It knows nothing of rounds, views or peers' roles; what it decides is
 * named in its options. Jobs of this machine (p2p/local.h) go to the owner's
 * `local` callback untouched.
 *
 * Words: a *link* is an authenticated control connection, a *bulk* connection
 * carries segments, a *post* is a POST_RECV that waits, a *slab* is a staging
 * buffer of one segment, to *pause* is to stop reading a connection.
 *
 * Cost: one system call per control message, one write and two or three reads
 * per segment of bulk; memory is 1 MB + 130 KB per link + 260 KB per encrypted
 * bulk connection + the slabs, bounded by the options. Latency: an event is
 * stepped in the callback that saw it; what a step causes is reported within
 * the same loop iteration.
 *
 * What can go wrong: a peer that breaks the protocol loses its connection and
 * is counted in the statistics; too many of anything (connections, posts,
 * queued bytes) is refused with LOCO_EFULL or LOCO_EBUSY; nothing is retried
 * here, the core decides.
 *
 * Threads: the one that called shell_open() runs the loop and calls everything
 * here, except shell_post(), which any thread may call until shell_close(), and
 * calls.save, which a thread of the shell calls. The buffer callbacks run on
 * the loop thread; sealing and codecs are cheap enough for that at loopback
 * speed, and moving them to workers changes nothing in this interface.
 */
#ifndef LOCO_P2P_UV_LOOP_H
#define LOCO_P2P_UV_LOOP_H

#include <stddef.h>
#include <stdint.h>

#include <uv.h>

#include "p2p/core.h"
#include "p2p/swarm/arrivals.h"
#include "proto/frame.h"
#include "proto/sign.h"

#define SHELL_LISTEN_MAX 4 /* listening sockets: IPv4 and IPv6, two ports */

struct shell;

struct shell_options {
    const struct signer *signer; /* borrowed for the shell's life */
    struct hash32 run_id;
    uint16_t version;
    uint64_t features;
    /* Segments may travel without encryption and tags where the peer says so
     * too (handshake.h). Control connections are always encrypted. */
    bool plain_bulk;
    /* Seal segments with AES-256-GCM where the peer says so too; by default
     * what this processor is good at. */
    bool aes_bulk;
    /* What control messages exist and how long they may be, by type; borrowed
     * for the shell's life. Only FRAME_WHOLE rows count. */
    const struct frame_rule *rules;
    size_t n_rules;
    /* Limits, and what happens beyond each. A message longer than its rule
     * allows: LINK_DOWN, LOCO_EPROTO. */
    uint32_t segment_bytes_max;
    uint32_t slabs;        /* staging buffers, for sending and receiving each;
                              connections wait */
    uint32_t handshake_ms; /* from connect or accept to authenticated; closed */
    uint32_t linger_ms;    /* to flush what was sent before a HANG_UP: our side
                              stops writing, the other closes, then we do */
    uint32_t
        accept_retry_ms;    /* the listener's pause when descriptors ran out */
    uint32_t accepts_per_s; /* also the burst; the listener sleeps */
    /* Who of these shakes hands when; the others wait, are too many or too
     * late, and are closed: room.h. */
    struct arrivals_options arrivals;
    uint32_t conns_max;     /* connections of all kinds, any state; closed at
                               once, DIAL_FAILED LOCO_EFULL */
    uint32_t half_open_max; /* accepted and not yet authenticated; the oldest
                               is closed */
    uint32_t bulks_per_peer_max; /* the oldest is closed */
    uint32_t sends_max;   /* SEND_SEG that wait, per peer and stream; SEG_DONE
                             LOCO_EFULL */
    uint32_t posts_max;   /* POST_RECV that wait, in all; SEG_DONE LOCO_EFULL */
    uint32_t unposted_ms; /* that a segment waits for its post; the connection
                             is closed */
    uint32_t link_queue_bytes_max; /* unsent bytes; LINK_DOWN LOCO_EBUSY */
    /* The same for a link that the core did not TRUST, and for all of these
     * together: then the one that has most unsent goes. */
    uint32_t stranger_queue_bytes_max, strangers_queue_bytes_max;
    /* Messages that wait for the disk, of all links (barrier.h); LINK_DOWN
     * LOCO_EBUSY. */
    uint32_t held_bytes_max;
    bool strangers_paced; /* they are read slowly: pace.h */
    /* Staging buffers that segments to such peers hold; 0: all. Where they hold
     * so many, one that took no byte for stranger_stall_ms is closed. */
    uint32_t stranger_slabs, stranger_stall_ms;
    uint32_t spare_ms; /* memory that is not used goes back after it: spare.h */
    /* Caps on bulk traffic, all peers together; 0: none. Control traffic is
     * neither held up nor counted. */
    uint64_t upload_bytes_per_s, download_bytes_per_s;
    uint32_t probe_ms;          /* a PROBE ends within this */
    uint64_t relay_bytes_per_s; /* carried for others, all pipes together */
    uint32_t pipe_idle_ms;      /* a pipe that carries nothing is closed */
    /* Of a meeting: how long, and how often, the other end is dialled. */
    uint32_t punch_ms, punch_tries;
};

/* Sizes and times for a home connection. signer, run_id and rules are left
 * for the caller to set. */
void shell_options_default(struct shell_options *opt);

/* What the owner provides. A segment's bytes on the wire are `wire_len` long;
 * they may change with the codec, but not between POST/SEND and SEG_DONE. */
struct shell_calls {
    void *self;
    size_t (*wire_len)(void *self, const struct segment *segment);
    /* Write wire_len bytes: 0, or a negative code that ends the segment. The
     * buffer is read at any time until SEG_DONE or CANCEL. */
    int (*fill)(void *self, const struct segment *segment, uint8_t *dst);
    /* Optional, asked before fill: where wire_len bytes to send lie that do
     * not change before SEG_DONE or CANCEL; NULL: use fill. After a CANCEL they
     * may change, but stay readable until the shell is closed. */
    const uint8_t *(*lend)(void *self, const struct segment *segment);
    /* Optional: where wire_len bytes may be received, piece by piece, each
     * verified; NULL: the shell keeps them until they are complete. They mean
     * nothing before `take`, which then gets this pointer as src. After CANCEL
     * it is not written to any more. */
    uint8_t *(*place)(void *self, const struct segment *segment);
    /* All bytes of a segment, verified. A negative code becomes SEG_DONE's. */
    int (*take)(void *self,
                const struct segment *segment,
                const uint8_t *src,
                size_t len);
    /* ACTION_SUM: 0, or a negative code that becomes SEG_DONE's; `lane` then
     * names the one at fault. NULL: no butterfly here. */
    int (*sum)(void *self, struct segment *segment);
    /* Replace the durable record; back when it is on disk. Called on a thread
     * of the shell, one at a time, never after shell_close()'s callback. */
    int (*save)(void *self, const uint8_t *bytes, size_t len);
    /* ACTION_JOB; `job` and `out` are borrowed for the call. */
    void (*local)(void *self, const struct job *job, const struct out *out);
};

struct shell_stats {
    uint64_t bytes_sent; /* on sockets, all overhead of ours included */
    uint64_t bytes_received;
    uint64_t handshakes_failed;
    uint64_t frames_refused;   /* control: unknown type, oversize, garbage; a
                                  stranger's that says far too much */
    uint64_t segments_refused; /* bulk: bad header, contradicts its post */
    uint64_t segments_skipped; /* bulk: of a cancelled attempt */
    uint64_t accepts_refused;  /* over conns_max or half_open_max, or waited
                                  in vain */
    uint64_t accept_pauses;    /* rate limit or out of descriptors */
    uint64_t links_full;       /* closed because their queue was full */
    uint64_t trims;            /* memory went back to the system */
    uint64_t sends_refused;    /* messages of the core that no rule allows */
    uint64_t actions_dropped;  /* what a step could not emit */
    uint64_t bulks_aes;        /* bulk connections that took AES, ever */
    uint64_t bytes_relayed;    /* carried between two others */
    uint64_t punched;          /* connections by a meeting, ever */
    uint32_t pipes;            /* that carry now */
    uint32_t conns, half_open, links, bulks;
    uint32_t waiting;      /* accepted, for their turn to shake hands */
    uint32_t posts, sends; /* segments that wait */
    uint32_t paused;       /* bulk connections that wait for a post */
};

struct shell_peer_stats {
    uint64_t bytes_sent;
    uint64_t bytes_received;
};

typedef void (*shell_close_cb)(void *data);

/* Make a shell on `loop`. The core must be ready to step before the loop runs;
 * options and calls are copied. Returned: freed by shell_close(). */
int shell_open(struct shell **shell,
               uv_loop_t *loop,
               const struct core *core,
               const struct shell_options *opt,
               const struct shell_calls *calls);

/* Listen on a numeric address; "::" also takes IPv4. Port 0 lets the system
 * choose; *bound (may be NULL) is the port. UV_EADDRINUSE when anybody, even
 * of the same user, listens there already. The first port is the one that
 * peers are told. */
int shell_listen(struct shell *s,
                 const char *host,
                 uint16_t port,
                 uint16_t *bound);

/* Tell peers another port than the one that is bound: a router maps it. 0: the
 * bound one again. Connections that are up keep what they said. */
void shell_told_port(struct shell *s, uint16_t port);

/* Any thread: `event` is copied and reaches the core as EVENT_LOCAL on the
 * loop. LOCO_ECLOSED after shell_close(), LOCO_EFULL when 64 Ki wait. */
int shell_post(struct shell *s, const struct local_event *event);

/* Milliseconds of the clock that events carry. */
uint64_t shell_now_ms(void);

/* Other caps from now on, on bulk of all connections; 0: none. */
void shell_set_caps(struct shell *s,
                    uint64_t upload_bytes_per_s,
                    uint64_t download_bytes_per_s);

void shell_stats(const struct shell *s, struct shell_stats *out);

/* Bytes exchanged with one peer; zero for an unknown or long forgotten one. */
void shell_peer_stats(const struct shell *s,
                      const struct peer_id *peer,
                      struct shell_peer_stats *out);

/* Flush links (at most linger_ms), close everything, then `cb` (may be NULL)
 * after the shell's memory is gone. The core is not stepped again. Nobody may
 * be inside shell_post() when cb fires. Idempotent. */
void shell_close(struct shell *s, shell_close_cb cb, void *data);

#endif
