/* pace.c - see pace.h.
 *
 * Happy path: pace_write -> round -> write_piece -> on_piece -> round ... done;
 * with an empty bucket the timer calls round again. What can go wrong: the
 * connection ends between two pieces: nothing of it is with the kernel then,
 * and pace_drop ends the write when the handles are gone.
 */
#include "p2p/uv/pace.h"

#include <utlist.h>

#include "p2p/uv/conn_internal.h"

static bool is_bulk(const struct conn *c)
{
    return c->kind == CONNECTION_BULK && c->state == CONN_UP;
}

static void round_of(struct shell *s);
static void resume_reading(struct shell *s);

static void on_timer(uv_timer_t *timer)
{
    struct shell *s = timer->data;

    if (!s->closing) {
        resume_reading(s);
        round_of(s);
    }
}

static void wake_in(struct shell *s, uint64_t wait_ms)
{
    if (s->closing || (uv_is_active((uv_handle_t *)&s->pace.timer) &&
                       uv_timer_get_due_in(&s->pace.timer) <= wait_ms)) {
        return;
    }
    uv_update_time(s->loop);
    uv_timer_start(&s->pace.timer, on_timer, wait_ms, 0);
}

/* ---- writing ---------------------------------------------------------- */

/* The write at the head of `c` is over. */
static void finish(struct conn *c, int status)
{
    struct conn_write *w = c->paced;

    LL_DELETE(c->paced, w);
    w->done(w, status); /* May free `w`. */
}

static void on_piece(uv_write_t *req, int status)
{
    struct conn_write *w = CONTAINER_OF(req, struct conn_write, req);
    struct conn *c = w->conn;
    struct shell *s = c->shell;

    c->piece_with_kernel = false;
    if (status == 0) {
        s->stats.bytes_sent += w->piece;
        if (c->peer != NULL) {
            c->peer->stats.bytes_sent += w->piece;
        }
        w->rest[0].base += w->piece;
        w->rest[0].len -= w->piece;
        if (w->rest[0].len == 0) {
            w->rest[0] = w->rest[1];
            w->rest[1].len = 0;
        }
    }
    if (status != 0 || w->rest[0].len == 0) {
        finish(c, status);
    }
    if (status != 0 && status != UV_ECANCELED) {
        conn_fail(c, status);
    }
    if (!s->closing) {
        round_of(s);
    }
}

static void write_piece(struct conn *c)
{
    struct conn_write *w = c->paced;
    struct pace *p = &c->shell->pace;
    size_t most = bucket_piece(&p->up);
    uv_buf_t buf = w->rest[0];

    buf.len = buf.len < most ? buf.len : most;
    w->piece = buf.len;
    if (uv_write(&w->req, (uv_stream_t *)&c->tcp, &buf, 1, on_piece) != 0) {
        conn_set_deadline(c, 0);     /* it is dead: told from the timer */
        c->piece_with_kernel = true; /* never served again */
        return;
    }
    c->piece_with_kernel = true;
    c->served = ++p->served;
    bucket_spend(&p->up, w->piece, shell_now_ms());
}

/* Pieces to whoever was served longest ago, while there is a budget. */
static void round_of(struct shell *s)
{
    for (;;) {
        struct conn *c, *next = NULL;
        uint64_t wait_ms;

        DL_FOREACH(s->conns, c)
        {
            if (c->paced != NULL && !c->piece_with_kernel && is_bulk(c) &&
                (next == NULL || c->served < next->served)) {
                next = c;
            }
        }
        if (next == NULL) {
            return;
        }
        wait_ms = bucket_wait_ms(&s->pace.up, shell_now_ms());
        if (wait_ms > 0) {
            wake_in(s, wait_ms);
            return;
        }
        write_piece(next);
    }
}

int pace_write(struct conn *c,
               struct conn_write *w,
               const uv_buf_t *bufs,
               unsigned n,
               void (*done)(struct conn_write *w, int status))
{
    /* What waits goes first, also when the cap has just been taken off. */
    if (c->shell->pace.up.rate_bytes_per_s == 0 && c->paced == NULL) {
        return conn_write(c, w, bufs, n, done);
    }
    w->conn = c;
    w->done = done;
    w->next = NULL;
    w->rest[0] = bufs[0];
    w->rest[1] = n > 1 ? bufs[1] : uv_buf_init(NULL, 0);
    LL_APPEND(c->paced, w);
    round_of(c->shell);
    return 0;
}

void pace_drop(struct conn *c)
{
    while (c->paced != NULL) {
        finish(c, UV_ECANCELED);
    }
}

/* ---- reading ---------------------------------------------------------- */

size_t pace_room(const struct conn *c, size_t len)
{
    size_t most = bucket_piece(&c->shell->pace.down);

    return is_bulk(c) && most < len ? most : len;
}

/* The core counts from its own step on. */
#define CORE_LATER_MS 5

void pace_stranger(struct conn *c)
{
    c->strange = c->shell->opt.strangers_paced;
    budget_link_init(&c->spoke, shell_now_ms() + CORE_LATER_MS);
}

static void charge(struct conn *c, size_t bytes, uint64_t now_ms)
{
    budget_use(&c->shell->pace.strangers, &c->spoke, BUDGET_BYTES, bytes,
               now_ms);
}

bool pace_frame(struct conn *c, size_t len, size_t behind)
{
    uint64_t now_ms;
    bool may;

    if (!c->strange) {
        return true;
    }
    now_ms = shell_now_ms();
    may = budget_allows(&c->shell->pace.strangers, &c->spoke, BUDGET_BYTES,
                        now_ms);
    charge(c,
           FRAME_HEADER_BYTES + len + (may ? (size_t)PACE_FRAME_BYTES : behind),
           now_ms);
    return may;
}

void pace_answer(struct conn *c, size_t len)
{
    if (c->strange && c->shell->pace.asks == c) {
        budget_answered(&c->shell->pace.strangers, &c->spoke,
                        FRAME_HEADER_BYTES + len + PACE_FRAME_BYTES,
                        shell_now_ms());
    }
}

void pace_served(struct shell *s, const struct segment *segment)
{
    struct conn *c = s->pace.asks;

    if (c != NULL && c->strange && id_eq(&c->remote.id, &segment->peer)) {
        budget_served(&c->spoke, s->calls.wire_len(s->calls.self, segment),
                      shell_now_ms());
    }
}

/* Not looked at each millisecond: there may be hundreds. */
#define STRANGERS_MS 20

/* Until that stranger may be heard again; 0: it may. */
static uint64_t stranger_wait_ms(const struct conn *c, uint64_t now_ms)
{
    uint64_t wait_ms;

    if (!c->strange) {
        return 0;
    }
    wait_ms = budget_wait_ms(&c->shell->pace.strangers, &c->spoke, BUDGET_BYTES,
                             now_ms);
    return wait_ms > 0 && wait_ms < STRANGERS_MS ? STRANGERS_MS : wait_ms;
}

void pace_trust(struct conn *c, bool strange)
{
    c->strange = strange;
    if (c->throttled) {
        wake_in(c->shell, 0);
    }
}

static void stop_reading(struct conn *c, uint64_t wait_ms)
{
    if (wait_ms > 0) {
        conn_stop_reading(c);
        c->throttled = true;
        wake_in(c->shell, wait_ms);
    }
}

bool pace_waits(struct conn *c)
{
    uint64_t wait_ms = c->strange ? stranger_wait_ms(c, shell_now_ms()) : 0;

    stop_reading(c, wait_ms);
    return wait_ms > 0;
}

void pace_read(struct conn *c, size_t bytes)
{
    struct shell *s = c->shell;

    if (!is_bulk(c) || s->pace.down.rate_bytes_per_s == 0) {
        return;
    }
    bucket_spend(&s->pace.down, bytes, shell_now_ms());
    if (c->reading) {
        stop_reading(c, bucket_wait_ms(&s->pace.down, shell_now_ms()));
    }
}

/* Find those that may be read again, and when the others may. */
static void find_resumed(struct shell *s)
{
    uint64_t now_ms = shell_now_ms();
    struct conn *c;

    DL_FOREACH(s->conns, c)
    {
        uint64_t wait_ms;

        if (!c->throttled || c->state != CONN_UP) {
            continue;
        }
        wait_ms = is_bulk(c) ? bucket_wait_ms(&s->pace.down, now_ms)
                             : stranger_wait_ms(c, now_ms);
        c->resumed = wait_ms == 0;
        if (wait_ms > 0) {
            wake_in(s, wait_ms);
        }
    }
}

/* What a connection says may end any other one, so the list is looked through
 * anew each time. */
static void resume_reading(struct shell *s)
{
    struct conn *c;

    find_resumed(s);
    while (!s->closing) {
        for (c = s->conns; c != NULL && !c->resumed; c = c->next) {
        }
        if (c == NULL) {
            return;
        }
        c->resumed = c->throttled = false;
        if (c->state == CONN_UP && !c->paused) {
            conn_go_on(c);
        }
    }
}

/* ---- life ------------------------------------------------------------- */

void pace_init(struct shell *s)
{
    bucket_init(&s->pace.up, s->opt.upload_bytes_per_s, shell_now_ms());
    bucket_init(&s->pace.down, s->opt.download_bytes_per_s, shell_now_ms());
    uv_timer_init(s->loop, &s->pace.timer); /* Cannot fail in libuv. */
    s->pace.timer.data = s;
}

void shell_set_caps(struct shell *s,
                    uint64_t upload_bytes_per_s,
                    uint64_t download_bytes_per_s)
{
    if (s->opt.upload_bytes_per_s != upload_bytes_per_s) {
        s->opt.upload_bytes_per_s = upload_bytes_per_s;
        bucket_init(&s->pace.up, upload_bytes_per_s, shell_now_ms());
    }
    if (s->opt.download_bytes_per_s != download_bytes_per_s) {
        s->opt.download_bytes_per_s = download_bytes_per_s;
        bucket_init(&s->pace.down, download_bytes_per_s, shell_now_ms());
    }
    wake_in(s, 0); /* whoever waits under the old ones */
}

void pace_close(struct shell *s)
{
    uv_close((uv_handle_t *)&s->pace.timer, shell_handle_closed);
}
