/* kept.h - which states of rounds can be fetched.
 *
 * The last few states are kept. Fetching a large one takes longer than a round,
 * so that one that somebody fetches is *pinned* when it leaves its place, until
 * nobody has asked for it for a while; one at a time.
 *
 * Pure: a state is a pointer of the caller's, who frees what is given back.
 */
#ifndef LOCO_DAEMON_JOBS_KEPT_H
#define LOCO_DAEMON_JOBS_KEPT_H

#include <stdbool.h>
#include <stdint.h>

#define KEPT_STATES 2
/* In runs with audits of work: the state before each contribution that others
 * may ask about (OFFERS_PAST_MAX), and the newest. */
#define KEPT_STATES_MAX 6

struct kept_state {
    void *state;          /* NULL: none */
    uint64_t round, name; /* as struct segment has them */
    uint64_t asked_ms;    /* by who fetches it, the last time; 0: never */
    bool reduced;         /* nobody can fetch it: kept_reduce() */
};

struct kept {
    uint32_t more; /* so many states beyond KEPT_STATES */
    struct kept_state last[KEPT_STATES_MAX]; /* newest first */
    struct kept_state pinned;
};

/* Name 0: any of that round, the newest. NULL: it is not kept. */
struct kept_state *kept_find(struct kept *k, uint64_t round, uint64_t name);

/* The same, and all of it is here. */
struct kept_state *kept_whole(struct kept *k, uint64_t round, uint64_t name);

/* Of those beyond KEPT_STATES only the parameters are wanted. One that somebody
 * fetches stays whole, if none is pinned. `reduce` gives the rest of a state
 * back; false: it cannot be now. */
void kept_reduce(struct kept *k,
                 uint64_t now_ms,
                 uint64_t lease_ms,
                 bool (*reduce)(void *self, void *state),
                 void *self);

/* The newest one. Those that are not kept any more, NULL for none: the one that
 * was pinned, and the one that leaves its place. */
void kept_push(struct kept *k,
               const struct kept_state *s,
               uint64_t now_ms,
               uint64_t lease_ms,
               void **unpinned,
               void **left);

/* The oldest place is to be free for the next one: what leaves it. NULL:
 * nothing lies there, or somebody fetches it. */
void *kept_leave(struct kept *k, uint64_t now_ms, uint64_t lease_ms);

/* One of them, which is not kept any more; NULL: there are none. */
void *kept_pop(struct kept *k);

#endif
