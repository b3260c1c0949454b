/* barrier.h - what rests on the durable record is said once that is on disk.
 *
 * A SAVE is written on a thread of its own (shell_calls.save): a disk that
 * takes seconds for a flush, because a checkpoint is being written or the card
 * is slow, must not stop the loop. Its owner would send no sign of life and be
 * lost to all others. Meanwhile the core is stepped as ever, and what it says
 * is *held*, in order: SEND and HANG_UP, of this step and of later ones. Only
 * messages whose rule says `unbound` are sent at once. So for others a slow
 * disk looks like a slow line.
 *
 *     SAVE -> thread -> saved -> what is held goes out -> the next SAVE, if any
 *
 * While one is written at most one more waits, the newest: a record replaces
 * the one before, and holds all that was promised then. What was said between
 * the two waits for the first only.
 *
 * What can go wrong: it was not written: SAVE_FAILED, and no held SEND is sent.
 * What is held counts as queued on its link, with the limits of that; beyond
 * held_bytes_max in all the link of that message is closed. The shell is
 * closed: what is held goes out first. Internal to p2p/uv, loop thread only.
 */
#ifndef LOCO_P2P_UV_BARRIER_H
#define LOCO_P2P_UV_BARRIER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "p2p/core.h"
#include "p2p/uv/worker.h"

struct shell;
struct held;

struct barrier_record {
    uint8_t *bytes; /* NULL: none */
    size_t len;
};

struct barrier_queue {
    struct held *first, *last;
};

struct barrier {
    struct worker_pool pool;
    struct worker_job job;
    bool saving;
    int rc;                           /* of the last one, from its thread */
    struct barrier_record now, next;  /* is written; comes after it */
    struct barrier_queue held, later; /* wait for `now`; for `next` */
    size_t held_bytes;                /* of both */
};

/* Retains the shell until barrier_close() is through. */
int barrier_open(struct shell *s);

/* ACTION_SAVE; `bytes` are copied. */
void barrier_save(struct shell *s, const uint8_t *bytes, size_t len);

/* Whether this action waits for the disk; it is kept then. */
bool barrier_keeps(struct shell *s, const struct action *a);

/* That link is gone, and what is held for it. */
void barrier_forget(struct shell *s, uint32_t link);

/* Not while one is written. */
void barrier_close(struct shell *s);

#endif
