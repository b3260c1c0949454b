/* transfer.h - one object, fetched piece by piece from several peers at once.
 *
 * An *object* is a buffer that others hold too: the state of a round, a data
 * shard, the reduced bytes of a commit. It is cut into *pieces*, each fetched
 * whole from one source, in *parts* of one segment each. Where the object has
 * a tree hash that is known (proto/hash.h), its *leaf list* comes first, from
 * one source; the owner checks it against the root that it trusts, and from
 * then on every piece is checked by itself before it counts: a source that
 * sent a bad one is *shunned*, and named by who calls.
 *
 * Every source has a *slot*: a stream of its own, so that giving one up cancels
 * nothing of the others. How many pieces it is asked for at a time grows while
 * they come fast. A source that is silent, refuses or is not linked any more
 * gives its pieces back; so does one that keeps the end waiting while another
 * could have sent them in half the time (nobody waits for the slowest).
 *
 * Words: a *flight* is a piece that is asked for, arriving, or being checked.
 * In one piece no two sources ever write.
 *
 * Pure. One object at a time. Memory: two bits a piece, TRANSFER_PIECES_MAX.
 */
#ifndef LOCO_P2P_SWARM_TRANSFER_H
#define LOCO_P2P_SWARM_TRANSFER_H

#include "p2p/core.h"
#include "p2p/swarm/members.h"

#define TRANSFER_SOURCES    STREAM_FETCHES
#define TRANSFER_FLIGHTS    32
#define TRANSFER_PART       (256U << 10) /* bytes, most of one segment */
#define TRANSFER_PIECES_MAX (1U << 18)   /* 256 GiB in pieces of 1 MiB */
#define TRANSFER_SHUNNED    16           /* peers; the oldest is forgotten */
#define TRANSFER_AWAY       16           /* sources given up, of one object */
/* The number of the leaf list among the pieces. The `request` of VERIFY has the
 * piece in its lower half. */
#define TRANSFER_LEAVES UINT32_MAX

struct transfer_object {
    enum buffer_kind buffer;
    enum buffer_kind leaves; /* its leaf list; BUFFER_KIND_COUNT: none */
    uint64_t index;
    struct hash32 root; /* sources have another object where it differs */
    uint64_t total;     /* in the unit of the buffer */
    uint64_t first;     /* of them have a tree of their own, and the rest
                           another; 0: all have one */
    uint32_t piece, part;
    uint32_t sources;           /* at a time, at most TRANSFER_SOURCES */
    uint32_t floor_bytes_per_s; /* slower is silent; 0: no allowance */
};

struct transfer_source {
    bool used;
    int peer; /* row */
    uint64_t attempt;
    uint32_t seg;      /* number of the next part */
    uint32_t window;   /* pieces asked for at a time */
    uint32_t n_flight; /* of them not here yet */
    uint32_t piece_ms; /* the last one took so long, asking to done; 0: none */
    uint64_t progress_ms;
    uint64_t bytes;   /* that counted */
    bool around;      /* not known to come directly from its peer; */
    uint64_t look_ms; /* then whether it may, by now */
};

struct transfer_flight {
    bool used, arrived, checking;
    int peer; /* row of its source, which may have left the slot since */
    uint32_t piece, slot, first_seg, n_parts, n_done;
    uint64_t asked_ms;
};

struct transfer {
    struct members *members; /* borrowed */
    uint32_t fetch_ms;
    uint64_t attempt; /* the last one given out; grows for ever */
    uint32_t most;    /* flights that may be on their way at a time */

    bool active, finished;
    uint32_t generation; /* of objects: a VERIFIED of another is void */
    struct transfer_object object;
    uint32_t n_pieces, n_done, low;
    bool has_leaves;
    uint32_t n_lists_silent; /* sources that the leaf list did not come from */
    uint64_t done_units;     /* in the unit of the buffer */
    uint64_t started_ms, resumed_units;
    uint64_t news_ms; /* when a part came, or it began */
    uint8_t have[TRANSFER_PIECES_MAX / 8], busy[TRANSFER_PIECES_MAX / 8];
    struct transfer_source sources[TRANSFER_SOURCES];
    struct transfer_flight flights[TRANSFER_FLIGHTS];
    struct {
        int peer;
        uint64_t until_ms;
    } away[TRANSFER_AWAY];
    uint32_t n_away;
    uint32_t n_shunned;
    struct peer_id shunned[TRANSFER_SHUNNED];
};

void transfer_init(struct transfer *t,
                   struct members *members,
                   uint32_t fetch_ms,
                   uint64_t first_attempt);

/* Begin an object; the owner then names sources. An unfinished one ends. False:
 * too large. */
bool transfer_start(struct transfer *t,
                    const struct transfer_object *object,
                    uint64_t now_ms,
                    struct out *out);

void transfer_stop(struct transfer *t, struct out *out);

/* What is here, in the unit of the buffer: pieces that count, and what has come
 * of others. */
uint64_t transfer_units(const struct transfer *t);

/* Whether one more source would have something to do. */
bool transfer_wants(const struct transfer *t);

/* Whether that peer (row) can be one: not yet one, not given up just now, not
 * shunned. */
bool transfer_may(const struct transfer *t, int peer, uint64_t now_ms);

/* Nothing came for longer than two sources may be silent, one after the other:
 * it may be that nobody has it any more. Where there are many peers there is
 * always one more to ask (TRANSFER_AWAY), so that alone ends nothing. */
bool transfer_starves(const struct transfer *t, uint64_t now_ms);

/* What it gave has its hash and is of no use: it is no source any more. */
void transfer_shun(struct transfer *t, int peer);

/* Whether it spoiled something that was fetched, in this process's life. */
bool transfer_shuns(const struct transfer *t, int peer);

uint32_t transfer_n_sources(const struct transfer *t);

/* How long the last piece took, of the slowest source; 0: not known. */
uint32_t transfer_piece_ms(const struct transfer *t);

/* So many pieces may be on their way at a time, of all objects from now on, so
 * that the line is free for what matters more: 0: only those that are. */
void transfer_limit(struct transfer *t, uint32_t most);

/* Fetch from this linked peer (row), too. */
void transfer_source(struct transfer *t,
                     int peer,
                     uint64_t now_ms,
                     struct out *out);

void transfer_seg_done(struct transfer *t,
                       const struct event_seg_done *ev,
                       uint64_t now_ms,
                       struct out *out);

void transfer_refused(struct transfer *t,
                      int peer,
                      const struct fetch_no *no,
                      uint64_t now_ms,
                      struct out *out);

/* What JOB_VERIFY found; `request` is that of the job. rc 0: it is good.
 * LOCO_EHASH: who sent it is shunned, and returned (row). Else it is fetched
 * again. MEMBERS_NONE where nobody is to be named. */
int transfer_verified(struct transfer *t,
                      uint64_t request,
                      int rc,
                      uint64_t now_ms,
                      struct out *out);

/* With the leaf list verified: these pieces (bit i of `held`) were here from an
 * earlier life, and are good. */
void transfer_held(struct transfer *t, const uint8_t *held);

/* The whole did not have its hash (an object without leaf list): its only
 * source is shunned and returned, or MEMBERS_NONE where there were several. */
int transfer_spoiled(struct transfer *t);

/* A link to this peer ended, and with it perhaps what was asked on it. It may
 * be asked anew as soon as it is linked: two that dialled each other have two
 * links at first, and the second one may still be held back when the first one
 * ends (daemon/node/twin.c). */
void transfer_link_down(struct transfer *t,
                        int peer,
                        uint64_t now_ms,
                        struct out *out);

/* The process slept: silence so far proves nothing. */
void transfer_gap(struct transfer *t, uint64_t now_ms);

void transfer_tick(struct transfer *t, uint64_t now_ms, struct out *out);

uint64_t transfer_deadline(const struct transfer *t);

/* Where a piece lies in its object, in the unit of the buffer. */
uint64_t transfer_piece_at(const struct transfer_object *o,
                           uint32_t piece,
                           uint32_t *len);

/* Pieces of an object, 0 where it is empty. */
uint64_t transfer_pieces(const struct transfer_object *o);

#endif
