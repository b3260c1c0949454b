/* history.h - what a daemon remembers for people who look later.
 *
 * Three bounded tables, in memory only:
 *   samples   the curves of a dashboard. One each `interval_ms`; when the table
 *             is full every second one goes and the interval doubles, so that
 *             it always holds the whole life of the process, ever coarser
 *   events    the last things worth a sentence, each with a number that grows:
 *             changes of state, peers that came or went, rounds given up or
 *             taken back, liars
 *   shares    what each peer gave to the committed rounds that this daemon saw:
 *             tokens and rounds, from the plans that their members signed. Of
 *             a full table the smallest share makes room
 *
 * history_update() compares what it is shown with what it was shown last; it
 * decides nothing. About 200 KB, allocated by the owner; nothing here fails.
 * Pure: times come in. One thread at a time.
 */
#ifndef LOCO_DAEMON_CONTROL_HISTORY_H
#define LOCO_DAEMON_CONTROL_HISTORY_H

#include <stdbool.h>
#include <stdint.h>

#include "daemon/node/node.h"

#define HISTORY_SAMPLES     512
#define HISTORY_INTERVAL_MS 1000
#define HISTORY_EVENTS      128
#define HISTORY_SHARES      256
#define HISTORY_TEXT_MAX    232

struct history_sample {
    uint64_t number;      /* 1, 2, ... over the life of the process */
    uint64_t wall_s;      /* since 1970 */
    uint64_t round;       /* last committed of the run */
    uint64_t tokens;      /* trained here */
    uint64_t run_tokens;  /* committed in the run */
    double loss;          /* NaN: none yet, also below */
    double bits_per_byte; /* held out */
    double tokens_per_s;
    uint32_t peers_alive;
    uint64_t bytes_sent, bytes_received;
};

enum history_kind {
    HISTORY_STATE,    /* this daemon does something else now */
    HISTORY_PEER_IN,  /* somebody is here */
    HISTORY_PEER_OUT, /* somebody said goodbye */
    HISTORY_PEER_LOST,
    HISTORY_ROUND_FAILED, /* an attempt was given up */
    HISTORY_FORK,
    HISTORY_HEALED,
    HISTORY_ROLLED_BACK, /* a commit that made the model worse */
    HISTORY_CONVICTED,   /* a peer that lied, as this one knows */
    HISTORY_EVALUATED,   /* the shared model's bits per byte are new */
    HISTORY_SETTING,     /* a limit of this machine changed */
    HISTORY_REFUSED,     /* one that was asked for cannot be */
    HISTORY_KIND_COUNT
};

struct history_event {
    uint64_t number; /* 1, 2, ... */
    uint64_t wall_s;
    enum history_kind kind;
    bool has_peer;
    struct peer_id peer;
    uint64_t round;
    char text[HISTORY_TEXT_MAX]; /* a sentence without its full stop */
};

struct history_share {
    struct peer_id peer;
    uint64_t tokens, rounds;
};

struct history {
    uint64_t interval_ms, sampled_ms;
    uint32_t n_samples;
    uint64_t sample_number;
    struct history_sample sample[HISTORY_SAMPLES];

    uint64_t event_number; /* of the newest: event[(number - 1) % EVENTS] */
    struct history_event event[HISTORY_EVENTS];

    uint32_t n_shares;
    struct history_share share[HISTORY_SHARES];
    uint64_t round_serial; /* attempts up to this one are counted */
    /* Of committed rounds with this peer, each phase, since the start. */
    uint64_t phase_ms[TIMELINE_DONE];
    uint64_t kinds[HISTORY_KIND_COUNT]; /* events ever */

    /* What was seen last. */
    bool started, fork;
    enum node_state state;
    char reason[CORE_TEXT_MAX];
    double bits_per_byte;
    uint64_t rollbacks;
    uint32_t n_peers;
    struct node_peer peer[NODE_SWARM_MAX];
};

/* What happened between two looks and is to become an event. Beyond the table
 * nothing is kept: the log has it. */
#define HISTORY_NOTES 8
struct history_notes {
    uint32_t n;
    struct {
        enum history_kind kind;
        char text[HISTORY_TEXT_MAX];
    } note[HISTORY_NOTES];
};

/* What is looked at; all of it borrowed for the call. */
struct history_look {
    const struct node_status *status;
    const char *reason; /* as shown to people */
    const struct timeline *rounds;
    const struct node_peer *peer; /* node_swarm() */
    uint32_t n_peers;
    struct history_notes *notes; /* taken: emptied; NULL: none */
    uint64_t bytes_sent, bytes_received;
    uint64_t now_ms, wall_s;
};

void history_init(struct history *h);

void history_note(struct history_notes *notes,
                  enum history_kind kind,
                  const char *fmt,
                  ...) __attribute__((format(printf, 3, 4)));

/* Take in the present; true when there is a new event. */
bool history_update(struct history *h, const struct history_look *look);

/* The event of that number, NULL when it is gone or yet to come. */
const struct history_event *history_event_at(const struct history *h,
                                             uint64_t number);

/* The number of the oldest that is kept; one above the newest where none is. */
uint64_t history_oldest(const struct history *h);

/* The newest sample, NULL: none yet. */
const struct history_sample *history_newest(const struct history *h);

/* What that peer gave, NULL: nothing seen. */
const struct history_share *history_share_of(const struct history *h,
                                             const struct peer_id *id);

/* "state", "peer_in", "peer_out", "peer_lost", "round_failed", "fork",
 * "healed", "rolled_back", "convicted", "evaluated", "setting",
 * "setting_refused" */
const char *history_kind_name(enum history_kind kind);

#endif
