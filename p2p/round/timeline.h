/* timeline.h - what happened in the last rounds, for people who ask why.
 *
 * One row per *attempt*: an (epoch, round) of the view that tried it. The last
 * `cap` of them are kept in a ring. A row says when each *phase* began, who was
 * ready and voted when, how many bytes moved, how it ended and, where it did
 * not end well, who is to *blame*: the member that fell silent, the one that a
 * segment did not come from, the one without a vote. A *suspicion* (a stall
 * seen from here) gives way to what is known (a member was lost), never the
 * other way.
 *
 * Times are milliseconds of the core's clock; TIMELINE_NEVER: it has not
 * happened. A row's texts are static.
 *
 * Pure; the owner tells it what happens and decides nothing by it. Memory: the
 * caller's, timeline_bytes(cap), about 4.5 KB a row. Nothing here fails.
 */
#ifndef LOCO_P2P_ROUND_TIMELINE_H
#define LOCO_P2P_ROUND_TIMELINE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "proto/id.h"
#include "proto/limits.h"

#define TIMELINE_NEVER UINT64_MAX

/* One attempt of a member goes through these in order; one that is not in the
 * plan stays in WAIT. SCATTER and GATHER overlap, stripe by stripe: their times
 * are those in which the segments of each kind were arriving. */
enum timeline_phase {
    TIMELINE_TRAIN,  /* until the own contribution is packed */
    TIMELINE_WAIT,   /* for the contributions of others */
    TIMELINE_PLAN,   /* enough are ready: until the coordinator's plan */
    TIMELINE_REDUCE, /* segments travel */
    TIMELINE_HASH,
    TIMELINE_VOTE,  /* until all votes are here */
    TIMELINE_APPLY, /* committed: until the outer step is in place */
    TIMELINE_DONE,
    TIMELINE_PHASE_COUNT
};

enum timeline_outcome {
    TIMELINE_RUNNING,
    TIMELINE_COMMITTED,
    TIMELINE_ABORTED,  /* there was a plan; nothing is lost but time */
    TIMELINE_RENEWED,  /* the view changed before there was a plan */
    TIMELINE_ELSEWHERE /* the others committed it; its bytes were fetched */
};

enum timeline_guilt {
    TIMELINE_NOBODY,
    /* suspicions */
    TIMELINE_SENT_NOTHING, /* the segment that is due does not come */
    TIMELINE_TOOK_NOTHING, /* what was sent to it is not taken */
    TIMELINE_NO_VOTE,
    TIMELINE_NO_PLAN,
    TIMELINE_LINK_BROKE, /* the data connection to it */
    /* known */
    TIMELINE_LEFT, /* it said goodbye */
    TIMELINE_LOST
};

/* Whether segments were due from the culprit, or to it. */
enum timeline_edge { TIMELINE_NO_EDGE, TIMELINE_FROM, TIMELINE_TO };

struct timeline_member {
    struct peer_id id;
    uint64_t ready_ms, voted_ms;
    uint64_t tokens;  /* of its contribution, once a plan names it */
    bool planned;     /* it is in the plan ... */
    bool gateway;     /* ... and speaks for its site (p2p/exchange/sites.h) */
    const char *lost; /* why it was lost in this attempt; NULL: it was not */
};

struct timeline_attempt {
    uint64_t round, epoch;
    uint64_t serial;                      /* 1, 2, ... over all attempts */
    uint64_t wall_s;                      /* when it began, since 1970 */
    uint64_t at_ms[TIMELINE_PHASE_COUNT]; /* begin of each phase */
    enum timeline_outcome outcome;
    bool has_plan, in_plan;
    uint64_t sent_bytes, received_bytes; /* payload of its segments */
    uint32_t sent, received;             /* segments done */
    uint32_t to_send, to_receive;        /* in all */
    uint64_t scatter_ms, gather_ms, last_segment_ms;
    uint64_t inherited; /* elements that an earlier attempt had finished */
    const char *why;    /* NULL: nothing went wrong */
    enum timeline_guilt guilt;
    uint32_t culprit;        /* index of member, with a guilt */
    enum timeline_edge edge; /* between it and us, when it was found out ... */
    uint32_t edge_done; /* ... and the segments that were through by then */
    uint64_t culprit_ms;
    uint32_t self, n;
    struct timeline_member member[VIEW_MEMBERS_MAX]; /* of the view */
};

struct timeline {
    uint32_t cap, n;
    uint64_t serial;  /* of the newest row */
    uint64_t changes; /* grows with every call that changed something */
    struct timeline_attempt *row; /* ring: row[serial % cap] */
};

size_t timeline_bytes(uint32_t cap);

/* `memory`: timeline_bytes(cap), borrowed for the timeline's life; cap >= 1. */
void timeline_init(struct timeline *t, void *memory, uint32_t cap);

/* An attempt begins; one that still runs ends: with another round as
 * ELSEWHERE, else as ABORTED (it had a plan) or RENEWED. */
void timeline_begin(struct timeline *t,
                    uint64_t round,
                    uint64_t epoch,
                    const struct peer_id *ids,
                    uint32_t n,
                    uint32_t self,
                    uint64_t now_ms,
                    uint64_t wall_s);

/* The running attempt, NULL: none. Fields may be filled in by the owner. */
struct timeline_attempt *timeline_running(struct timeline *t);

/* It is in that phase now; going back is ignored. */
void timeline_enter(struct timeline *t,
                    enum timeline_phase phase,
                    uint64_t now_ms);

/* Bits of members that are ready, and that voted, as of now. */
void timeline_seen(struct timeline *t,
                   uint64_t ready,
                   uint64_t voted,
                   uint64_t now_ms);

/* One segment of the running attempt is done. `gather`: it was final bytes. */
void timeline_segment(struct timeline *t,
                      bool sent,
                      bool gather,
                      uint64_t bytes,
                      uint64_t now_ms);

/* Something went wrong; the first reason stays. */
void timeline_trouble(struct timeline *t, const char *why);

/* That member is why. A suspicion replaces nothing. */
void timeline_blame(struct timeline *t,
                    const struct peer_id *id,
                    enum timeline_guilt guilt,
                    enum timeline_edge edge,
                    uint64_t now_ms);

/* The running attempt ends without a commit: there is no view any more. */
void timeline_leave(struct timeline *t, uint64_t now_ms);

/* The running attempt was committed. */
void timeline_commit(struct timeline *t, uint64_t now_ms);

/* Its result is in place; what trains now trains from here. */
void timeline_applied(struct timeline *t, uint64_t round, uint64_t now_ms);

/* Rows from the newest (0) on; NULL beyond the oldest. */
const struct timeline_attempt *timeline_at(const struct timeline *t,
                                           uint32_t back);

/* Milliseconds in a phase; an attempt that runs counts until now. */
uint64_t timeline_phase_ms(const struct timeline_attempt *a,
                           enum timeline_phase phase,
                           uint64_t now_ms);

/* From the plan to the end: what a failed attempt cost (training is no part of
 * that); without a plan from the own READY on, or the begin. */
uint64_t timeline_took_ms(const struct timeline_attempt *a, uint64_t now_ms);

/* The member whose READY came last, after ours; n: we were last ourselves. */
uint32_t timeline_waited_for(const struct timeline_attempt *a,
                             uint64_t *waited_ms);

/* Make `to` (same cap) what `from` is; copies only rows that may differ. */
void timeline_copy(struct timeline *to, const struct timeline *from);

/* Why it did not commit, as a sentence without its full stop: "peer
 * g7j7-2aew-hf stopped sending at segment 18/64: no sign of life". */
#define TIMELINE_REASON_MAX 200
void timeline_reason(const struct timeline_attempt *a,
                     char out[TIMELINE_REASON_MAX]);

const char *timeline_phase_name(enum timeline_phase phase);
const char *timeline_outcome_name(enum timeline_outcome outcome);

#endif
