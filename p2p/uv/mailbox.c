/* mailbox.c - see mailbox.h. */
#include "p2p/uv/mailbox.h"

#include <stddef.h>

#include "proto/base/err.h"

static void drain(struct mailbox *m, bool cancelled)
{
    struct mailbox_item *item, *next;

    uv_mutex_lock(&m->mutex);
    item = m->head;
    m->head = m->tail = NULL;
    m->n = 0;
    uv_mutex_unlock(&m->mutex);
    for (; item != NULL; item = next) {
        next = item->next;
        m->take(m, item, cancelled);
    }
}

static void on_async(uv_async_t *async)
{
    struct mailbox *m = async->data;

    /* What is posted from here on sends again: nothing is left behind, and
     * one fast producer cannot hold the loop. */
    drain(m, false);
}

static void on_closed(uv_handle_t *handle)
{
    struct mailbox *m = handle->data;

    drain(m, true);
    uv_mutex_destroy(&m->mutex);
    if (m->close_cb != NULL) {
        m->close_cb(m); /* May free `m`: keep this the last statement. */
    }
}

int mailbox_open(struct mailbox *m,
                 uv_loop_t *loop,
                 uint32_t n_max,
                 mailbox_take_cb take)
{
    int rv;

    *m = (struct mailbox){.data = m->data, .n_max = n_max, .take = take};
    rv = uv_mutex_init(&m->mutex);
    if (rv != 0) {
        return rv;
    }
    rv = uv_async_init(loop, &m->async, on_async);
    if (rv != 0) {
        uv_mutex_destroy(&m->mutex);
        return rv;
    }
    m->async.data = m;
    return 0;
}

int mailbox_post(struct mailbox *m, struct mailbox_item *item)
{
    int rv = 0;

    item->next = NULL;
    uv_mutex_lock(&m->mutex);
    if (m->closed) {
        rv = LOCO_ECLOSED;
    } else if (m->n >= m->n_max) {
        rv = LOCO_EFULL;
    } else {
        if (m->tail != NULL) {
            m->tail->next = item;
        } else {
            m->head = item;
        }
        m->tail = item;
        m->n++;
        /* Under the lock: once closed, nobody touches the handle. */
        uv_async_send(&m->async);
    }
    uv_mutex_unlock(&m->mutex);
    return rv;
}

void mailbox_close(struct mailbox *m, mailbox_close_cb cb)
{
    bool was_closed;

    uv_mutex_lock(&m->mutex);
    was_closed = m->closed;
    m->closed = true;
    uv_mutex_unlock(&m->mutex);
    if (was_closed) {
        return;
    }
    m->close_cb = cb;
    uv_close((uv_handle_t *)&m->async, on_closed);
}
