/* sync.h - getting the state that a member must hold.
 *
 * The phase says what is under way; sync.c says how the phases follow each
 * other, and what counts under which hash. follow.c is the part of it that goes
 * commit by commit: it moves the phase, too.
 */
#ifndef LOCO_DAEMON_NODE_SYNC_H
#define LOCO_DAEMON_NODE_SYNC_H

#include <stdbool.h>
#include <stdint.h>

#include "daemon/node/fetch.h"
#include "daemon/node/held.h"
#include "p2p/core.h"
#include "p2p/swarm/members.h"
#include "proto/messages.h"

struct node;

enum node_sync_phase {
    SYNC_IDLE,
    SYNC_WALK,    /* asking for records, from the newest back to what we hold */
    SYNC_COMMIT,  /* asked for the record of the next commit */
    SYNC_REDUCED, /* fetching its reduced bytes */
    SYNC_REDUCED_HASH,
    SYNC_STATE, /* fetching parameters and momentum */
    SYNC_LOAD   /* LOAD or APPLY under way */
};

struct node_sync {
    enum node_sync_phase phase;
    uint64_t since_ms;
    bool delta_failed; /* take the whole state */
    bool load_rebase;  /* the LOAD under way was asked for with rebase */
    bool rebase;       /* keep our displacement over the next LOAD */
    struct commit delta;
    struct hash32 expect; /* state hash or result hash */
    /* Whose record was asked for, and the state that most members named with
     * it. */
    struct node_point asked;
    struct hash32 asked_state;
    uint64_t attest_ms;
};

void node_sync_advance(struct node *n);
void node_sync_reset(struct node *n);
/* The machine applies a commit; it could not; another state is in place. */
void node_sync_busy(struct node *n, bool rebase);
/* LOAD of a state that is here was begun: nothing made since is kept. */
void node_sync_loads(struct node *n);
void node_sync_failed(struct node *n);
void node_sync_taken(struct node *n);
/* The hash that the state which is fetched must have. */
void node_sync_expect(struct node *n, const struct hash32 *hash);
/* Whether our displacement stays over the next LOAD. */
void node_sync_keep(struct node *n, bool rebase);
/* Of the group that is left. */
void node_sync_forget(struct node *n);
void node_on_placed(struct node *n, const struct local_event *e);
void node_on_applied(struct node *n, const struct local_event *e);
void node_on_hashed(struct node *n, const struct local_event *e);
void node_on_loaded(struct node *n, const struct local_event *e);

/* Whether a peer of the run has spoken, or there is none to wait for. */
bool node_heard_anybody(const struct node *n);
/* Who holds the target (held.h); who is past it and may still have what led to
 * it: if not, it says so. */
bool node_sync_holds(const struct node *n, const struct member *p);
bool node_sync_is_past(const struct node *n, const struct member *p);
/* Rounds: the hash of the target's state, as the members of its view name it.
 */
bool node_sync_name_state(struct node *n);

/* ---- follow.c: the commits behind a state, one by one ------------------- */

/* A commit on the way from the state that is here, or on its way here, to the
 * newest one; `linked`: the record of the next one names it. */
struct node_way_commit {
    uint64_t round; /* 0: none */
    struct hash32 commit;
    bool linked;
};

/* What a newcomer's line makes of it. */
struct node_follow_speed {
    uint64_t round_ms; /* the others take for one; 0: not known */
    uint64_t wire_ms;  /* the bytes of one take on our line */
    bool slow;         /* it cannot follow */
    uint32_t behind;   /* rounds */
    uint64_t left_ms;  /* until it is there; 0: not known */
};

struct node_way {
    struct node_way_commit step[NODE_PAST_MAX]; /* of a round: at round % MAX */
    uint64_t asked, ask_ms; /* whose record; when it is asked for again */
    bool has_next;
    struct commit next; /* the record of the next commit to be applied */
    /* How fast the others are, and our line (0: not known); when a pause began
     * in which no state is fetched (0: there is none), how long it is. */
    uint64_t seen_round, seen_ms, round_ms, bytes_per_s;
    bool began; /* seen_ms is when that round was made */
    uint64_t paused_ms, pause_ms;
};

/* The way to the newest commit, which is trusted: ask for what is not known of
 * it. */
void node_follow_look(struct node *n, const struct node_point *tip);
/* Commits that are taken one by one rather than the state whole: as many as
 * have no more bytes than it. */
uint64_t node_follow_max(const struct node *n);
/* A fetch has ended well: how fast was it? */
void node_follow_fetched(struct node *n);
void node_follow_speed(const struct node *n, struct node_follow_speed *s);
/* Our state is too old, and another one would soon be: not again for a while.
 */
bool node_follow_pauses(struct node *n);
/* Fetch the commit after the one that is applied; what it waits for. */
void node_follow_next(struct node *n);
void node_follow_wait(struct node *n);
/* A record, of whatever commit. */
void node_follow_record(struct node *n, const struct commit *c);
/* Bytes of so many units of what is fetched. */
uint64_t node_fetched_bytes(const struct node *n, uint64_t units);

/* Of the group that is left. */
void node_follow_forget(struct node *n);

#endif
