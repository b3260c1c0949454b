/* pace.h - the caps on bulk traffic: what may be written and read now.
 *
 * Two token buckets (p2p/bucket.h) for the whole shell, one a direction. With
 * an upload cap bulk writes go to the kernel in small pieces, the connection
 * that was served longest ago first; with a download cap a bulk connection is
 * read in small pieces and not at all while the bucket is empty, and TCP makes
 * the sender wait. Control connections pass by and are not counted: about 2 kB
 * a second each, and rounds depend on them.
 *
 * Without a cap nothing here is in the way. Internal to p2p/uv, loop thread.
 */
#ifndef LOCO_P2P_UV_PACE_H
#define LOCO_P2P_UV_PACE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <uv.h>

#include "p2p/bucket.h"
#include "p2p/swarm/budget.h"

struct conn;
struct conn_write;
struct segment;
struct shell;

struct pace {
    struct bucket up, down;
    uv_timer_t timer;
    uint64_t served;         /* pieces written so far: who was served when */
    struct budget strangers; /* all together */
    struct conn *asks;       /* whose frame the core handles; NULL */
};

/* The shell is released when the timer is closed. */
void pace_init(struct shell *s);
void pace_close(struct shell *s);

/* As conn_write(), for a bulk connection, n <= 2. */
int pace_write(struct conn *c,
               struct conn_write *w,
               const uv_buf_t *bufs,
               unsigned n,
               void (*done)(struct conn_write *w, int status));

/* What waits ends with UV_ECANCELED: the last handle of `c` is closed. */
void pace_drop(struct conn *c);

/* Most bytes that the next read may take. */
size_t pace_room(const struct conn *c, size_t len);

/* So many were read; may stop the reading for now. */
void pace_read(struct conn *c, size_t bytes);

/* A control connection of a stranger (conn->strange) is read no faster than the
 * core takes what it says (budget.h, BUDGET_BYTES; members_budget.c): what is
 * too early waits here and in the kernel, and is not dropped there. So it costs
 * a little more here: each frame PACE_FRAME_BYTES more than it has, and so does
 * what is said while the core handles it. Records are whole: thousands of short
 * frames fit in, and those that are beyond the budget are skipped. */
#define PACE_FRAME_BYTES 512
/* It is a stranger's from its begin on. */
void pace_stranger(struct conn *c);
/* Whether its next record is to wait. */
bool pace_waits(struct conn *c);
/* The next frame of it, and so many bytes of the same record behind it. False:
 * it and those are skipped. */
bool pace_frame(struct conn *c, size_t len, size_t behind);
/* So much is answered. */
void pace_answer(struct conn *c, size_t len);
/* That segment is sent, to whom the core hears perhaps: a FETCH. */
void pace_served(struct shell *s, const struct segment *segment);
/* It is no stranger's any more, or is one's again. */
void pace_trust(struct conn *c, bool strange);

#endif
