/* mailbox.h - messages from any thread to the loop thread, with ownership.
 *
 * A *mailbox* is a mutex, a queue and one uv_async_t. mailbox_post() hands an
 * item over; on the loop thread `take` gets every item, in the order of
 * posting. Wake-ups coalesce, so the receiver always drains what it finds
 * (libuv, uv_async_send). Cost: one lock and at most one write(2) per post.
 *
 * An item is a struct of the caller with a mailbox_item inside. Fails with
 * LOCO_EFULL (bound reached) or LOCO_ECLOSED; the item is then still the
 * caller's. Items that were not delivered at close go to `take` with
 * `cancelled`, so each item that was accepted is taken exactly once.
 *
 * The struct belongs to the caller and must not move; it may be freed from the
 * close callback on, when no thread is inside mailbox_post() any more.
 */
#ifndef LOCO_P2P_UV_MAILBOX_H
#define LOCO_P2P_UV_MAILBOX_H

#include <stdbool.h>
#include <stdint.h>

#include <uv.h>

struct mailbox;

struct mailbox_item {
    struct mailbox_item *next; /* private */
};

typedef void (*mailbox_take_cb)(struct mailbox *m,
                                struct mailbox_item *item,
                                bool cancelled);
typedef void (*mailbox_close_cb)(struct mailbox *m);

struct mailbox {
    void *data; /* caller's */
    /* private */
    uv_async_t async;
    uv_mutex_t mutex; /* guards the next four */
    struct mailbox_item *head, *tail;
    uint32_t n;
    bool closed;
    uint32_t n_max;
    mailbox_take_cb take;
    mailbox_close_cb close_cb;
};

/* After 0, mailbox_close() is mandatory. `data` must be set before. */
int mailbox_open(struct mailbox *m,
                 uv_loop_t *loop,
                 uint32_t n_max,
                 mailbox_take_cb take);

/* Any thread. Taken on success. */
int mailbox_post(struct mailbox *m, struct mailbox_item *item);

/* Loop thread; idempotent. */
void mailbox_close(struct mailbox *m, mailbox_close_cb cb);

#endif
