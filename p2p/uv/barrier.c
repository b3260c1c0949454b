/* barrier.c - see barrier.h. */
#include "p2p/uv/barrier.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "p2p/uv/shell.h"
#include "proto/base/err.h"

struct held {
    struct held *next;
    struct action action; /* SEND or HANG_UP */
    uint8_t bytes[];      /* of a SEND */
};

/* ---- what is held ------------------------------------------------------- */

static void put(struct barrier_queue *q, struct held *h)
{
    h->next = NULL;
    if (q->last != NULL) {
        q->last->next = h;
    } else {
        q->first = h;
    }
    q->last = h;
}

static size_t length(const struct action *a)
{
    return a->type == ACTION_SEND ? a->send.bytes.len : 0;
}

static bool is_unbound(const struct shell *s, const struct action_send *send)
{
    return send->message < s->opt.n_rules &&
           s->opt.rules[send->message].unbound;
}

bool barrier_keeps(struct shell *s, const struct action *a)
{
    struct barrier *b = &s->barrier;
    struct held *h;

    if (!b->saving || (a->type != ACTION_SEND && a->type != ACTION_HANG_UP) ||
        (a->type == ACTION_SEND && is_unbound(s, &a->send))) {
        return false;
    }
    if (a->type == ACTION_SEND && !link_hold(s, &a->send, b->held_bytes)) {
        return true;
    }
    h = shell_alloc(sizeof *h + length(a));
    h->action = *a;
    if (a->type == ACTION_SEND) {
        memcpy(h->bytes, s->out->bytes + a->send.bytes.at, length(a));
    }
    b->held_bytes += length(a);
    put(b->next.bytes == NULL ? &b->held : &b->later, h);
    return true;
}

/* They go out; of a record that is not on disk nothing is said. */
static void release(struct shell *s, struct barrier_queue *q, bool silent)
{
    struct held *h;

    while ((h = q->first) != NULL) {
        q->first = h->next;
        q->last = h->next == NULL ? NULL : q->last;
        s->barrier.held_bytes -= length(&h->action);
        if (h->action.type == ACTION_HANG_UP) {
            link_hang_up(s, h->action.hang_up.link);
        } else {
            link_unhold(s, &h->action.send);
        }
        if (h->action.type == ACTION_SEND && !silent) {
            link_send(s, &h->action.send, h->bytes);
        }
        free(h);
    }
}

static void forget(struct barrier *b, struct barrier_queue *q, uint32_t link)
{
    struct held **at = &q->first, *h;

    q->last = NULL;
    while ((h = *at) != NULL) {
        if (h->action.type == ACTION_SEND && h->action.send.link == link) {
            b->held_bytes -= h->action.send.bytes.len;
            *at = h->next;
            free(h);
        } else {
            q->last = h;
            at = &h->next;
        }
    }
}

void barrier_forget(struct shell *s, uint32_t link)
{
    forget(&s->barrier, &s->barrier.held, link);
    forget(&s->barrier, &s->barrier.later, link);
}

/* ---- the record --------------------------------------------------------- */

static void run(struct worker_job *job)
{
    struct shell *s = job->data;
    struct barrier *b = &s->barrier;

    b->rc = s->calls.save(s->calls.self, b->now.bytes, b->now.len);
}

static void saved(struct worker_job *job, int status);

static void begin(struct shell *s, struct barrier_record record)
{
    struct barrier *b = &s->barrier;
    int rv;

    b->now = record;
    b->saving = true;
    b->job.data = s;
    rv = worker_submit(&b->pool, &b->job, run, saved);
    assert(rv == 0); /* it is closed after the last one only */
    (void)rv;
}

static void saved(struct worker_job *job, int status)
{
    struct shell *s = job->data;
    struct barrier *b = &s->barrier;
    struct barrier_record next = b->next;
    struct event failed = {.type = EVENT_SAVE_FAILED, .save_failed.rc = b->rc};
    bool silent = status != 0 || b->rc < 0;

    free(b->now.bytes);
    b->now = b->next = (struct barrier_record){0};
    b->saving = false;
    release(s, &b->held, silent);
    b->held = b->later;
    b->later = (struct barrier_queue){0};
    if (next.bytes != NULL) {
        begin(s, next);
    }
    if (silent) { /* before the core hears anything else: it says no more that
                     what it promised is on its way to the disk */
        shell_step(s, &failed);
    }
    if (!b->saving) {
        shell_saved(s);
    }
}

void barrier_save(struct shell *s, const uint8_t *bytes, size_t len)
{
    struct barrier *b = &s->barrier;
    struct barrier_record r = {shell_alloc(len + 1), len}; /* not of 0 bytes */

    memcpy(r.bytes, bytes, len);
    if (b->saving) {
        free(b->next.bytes);
        b->next = r;
    } else {
        begin(s, r);
    }
}

/* ---- life --------------------------------------------------------------- */

static void closed(struct worker_pool *pool)
{
    shell_release(pool->data);
}

int barrier_open(struct shell *s)
{
    s->barrier.pool.data = s;
    return worker_open(&s->barrier.pool, s->loop, 1, 0);
}

void barrier_close(struct shell *s)
{
    assert(!s->barrier.saving);
    worker_close(&s->barrier.pool, closed);
}
