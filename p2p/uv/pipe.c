/* pipe.c - see pipe.h. */
#include "p2p/uv/pipe.h"

#include <stdlib.h>
#include <string.h>

#include <sodium.h>
#include <utlist.h>

#include "p2p/link/ask.h"
#include "p2p/uv/conn_internal.h"
#include "proto/base/err.h"

#define FILL_MS   20
#define REPORT_MS 1000

static struct pipe_end *find(const struct shell *s, uint64_t request)
{
    struct pipe_end *e;

    DL_FOREACH(s->pipe.ends, e)
    {
        if (e->request == request) {
            return e;
        }
    }
    return NULL;
}

/* ---- endings ----------------------------------------------------------- */

static void report(struct shell *s, struct pipe_end *e, int rc)
{
    struct event ev = {
        .type = EVENT_RELAY_MOVED,
        .relay_moved = {.request = e->request, .n_bytes = e->moved, .rc = rc}};

    e->moved = 0;
    shell_note(s, &ev);
}

/* Both ends of a pipe, or the one there is; idempotent. */
static void end(struct pipe_end *e, int rc)
{
    struct shell *s = e->conn->shell;
    struct pipe_end *other = e->other;

    if (e->conn->state == CONN_CLOSING) {
        return;
    }
    if (other != NULL && other->first) {
        end(other, rc); /* the first one reports */
        return;
    }
    report(s, e, rc != 0 ? rc : LOCO_ECLOSED);
    conn_close(e->conn);
    if (other != NULL) {
        conn_close(other->conn);
    }
}

static void on_fail(struct conn *c, int rc)
{
    end(c->owner, rc);
}

/* The bytes of an end live in the other one's write until that is over, which
 * is before its connection is closed: both are freed when both are gone. */
static void on_closed(struct conn *c)
{
    struct pipe_end *e = c->owner, *other = e->other;
    struct shell *s = c->shell;

    if (other != NULL) {
        other->other = NULL;
    }
    DL_DELETE(s->pipe.ends, e);
    if (e->first || other == NULL) {
        s->stats.pipes -= e->first ? 1 : 0;
    }
    e->conn = NULL;
    if (!e->busy) {
        free(e);
    }
}

/* ---- bytes move --------------------------------------------------------- */

static void shut(struct pipe_end *to)
{
    struct conn *c = to->conn;

    if (c->state == CONN_CARRIED &&
        uv_shutdown(&c->shutdown, (uv_stream_t *)&c->tcp, NULL) != 0) {
        end(to, LOCO_ECLOSED);
        return;
    }
    conn_set_deadline(c, c->shell->opt.linger_ms);
}

static void read_on(struct pipe_end *e)
{
    struct conn *c = e->conn;

    if (c->state != CONN_CARRIED || e->busy || e->ended || c->reading) {
        return;
    }
    e->held = c->shell->pipe.tokens <= 0;
    if (!e->held && conn_start_reading(c) != 0) {
        end(e, LOCO_ECLOSED);
    }
}

static void on_written(struct conn_write *w, int status)
{
    struct pipe_end *e = CONTAINER_OF(w, struct pipe_end, w);

    e->busy = false;
    if (e->conn == NULL) {
        free(e); /* closed meanwhile */
        return;
    }
    if (status != 0) {
        end(e, status);
    } else if (e->ended && e->other != NULL) {
        shut(e->other);
    } else {
        read_on(e);
    }
}

static uint8_t *on_room(struct conn *c, size_t *len)
{
    struct pipe_end *e = c->owner;

    *len = sizeof e->bytes;
    return e->bytes;
}

static void on_bytes(struct conn *c, size_t len)
{
    struct pipe_end *e = c->owner;
    struct shell *s = c->shell;
    uv_buf_t buf = conn_bytes(e->bytes, len);
    int rv;

    conn_stop_reading(c);
    s->pipe.tokens -= (int64_t)len;
    s->stats.bytes_relayed += len;
    (e->first ? e : e->other)->moved += len;
    e->moved_ms = e->other->moved_ms = shell_now_ms();
    e->busy = true;
    rv = conn_write(e->other->conn, &e->w, &buf, 1, on_written);
    if (rv != 0) {
        e->busy = false;
        end(e, rv);
    }
}

/* Reading ended: no more from this end. */
static void on_end(struct conn *c, int rc)
{
    struct pipe_end *e = c->owner;

    if (rc != LOCO_ECLOSED || e->other == NULL || e->ended || e->other->ended ||
        c->state != CONN_CARRIED) {
        end(e, rc);
        return;
    }
    e->ended = true;
    conn_stop_reading(c);
    conn_set_deadline(c, c->shell->opt.linger_ms);
    if (!e->busy) {
        shut(e->other);
    }
}

static const struct conn_ops waiting_ops = {
    .on_fail = on_fail,
    .on_closed = on_closed,
};
static const struct conn_ops carried_ops = {
    .on_room = on_room,
    .on_bytes = on_bytes,
    .on_fail = on_end,
    .on_closed = on_closed,
};

/* ---- asked, joined, refused --------------------------------------------- */

int pipe_asked(struct conn *c)
{
    struct shell *s = c->shell;
    struct event ev = {.type = EVENT_RELAY};
    struct pipe_end *e;
    uint8_t plain[ASK_BYTES];
    struct ask ask;
    int n = noise_open(&c->recv, c->head + RECORD_HEAD_BYTES,
                       sizeof plain + NOISE_TAG_BYTES, plain);

    n = n < 0 ? n : ask_read(plain, &ask);
    if (n < 0 || c->ops == &waiting_ops) {
        return n < 0 ? n : LOCO_EPROTO;
    }
    e = shell_alloc(sizeof *e);
    memset(e, 0, offsetof(struct pipe_end, bytes));
    e->conn = c;
    e->request = ++s->pipe.n_requests;
    e->moved_ms = shell_now_ms();
    e->meets = ask.meet;
    c->owner = e;
    c->ops = &waiting_ops;
    DL_APPEND(s->pipe.ends, e);
    conn_stop_reading(c);
    conn_set_deadline(c, s->opt.handshake_ms);
    ev.relay.request = e->request;
    ev.relay.peer = c->remote.id;
    ev.relay.other = ask.other;
    ev.relay.token = ask.token;
    ev.relay.meet = ask.meet;
    ev.relay.from = c->address;
    shell_note(s, &ev);
    return 0;
}

/* Say ready; the records end here. */
static int carry(struct pipe_end *e)
{
    struct conn *c = e->conn;
    uint8_t plain[READY_BYTES];
    uint8_t record[RECORD_HEAD_BYTES + READY_BYTES + NOISE_TAG_BYTES];
    int n;

    ready_write(plain);
    n = conn_seal(c, plain, sizeof plain, record);
    n = n < 0 ? n : conn_write_copy(c, record, (size_t)n);
    if (n < 0) {
        return n;
    }
    sodium_memzero(&c->send, sizeof c->send);
    sodium_memzero(&c->recv, sizeof c->recv);
    c->state = CONN_CARRIED;
    c->shell->stats.half_open--;
    c->ops = &carried_ops;
    uv_timer_stop(&c->timer);
    return 0;
}

/* Tell one end where the other one is. It closes when it has dialled that. */
static int introduce(struct pipe_end *e, const struct pipe_end *other)
{
    struct conn *c = e->conn;
    struct met met = {.port = other->conn->address.port};
    uint8_t plain[MET_BYTES];
    uint8_t record[RECORD_HEAD_BYTES + MET_BYTES + NOISE_TAG_BYTES];
    int n;

    memcpy(met.ip, other->conn->address.ip, sizeof met.ip);
    met_write(&met, plain);
    n = conn_seal(c, plain, sizeof plain, record);
    n = n < 0 ? n : conn_write_copy(c, record, (size_t)n);
    if (n < 0) {
        return n;
    }
    e->told = true;
    conn_set_deadline(c, c->shell->opt.punch_ms + c->shell->opt.linger_ms);
    return conn_start_reading(c); /* its end is to be seen */
}

static void on_timer(uv_timer_t *timer);

static bool
is_ready(const struct pipe_end *e, const struct pipe_end *other, bool meet)
{
    return e != NULL && e != other && e->other == NULL && !e->told &&
           e->meets == meet && e->conn->state == CONN_SHAKING;
}

void pipe_join(struct shell *s, const struct action_relay_join *join)
{
    struct pipe_end *x = find(s, join->request),
                    *y = find(s, join->other_request);
    struct event gone = {
        .type = EVENT_RELAY_MOVED,
        .relay_moved = {.request = join->request, .rc = LOCO_ECLOSED}};
    bool ready = is_ready(x, y, join->meet) && is_ready(y, x, join->meet);

    if (ready && join->meet && introduce(x, y) == 0 && introduce(y, x) == 0) {
        return;
    }
    if (!ready || join->meet || carry(x) != 0 || carry(y) != 0) {
        pipe_refuse(s, join->other_request);
        pipe_refuse(s, join->request);
        if (x == NULL) {
            shell_note(s, &gone);
        }
        return;
    }
    x->first = true;
    x->other = y;
    y->other = x;
    s->stats.pipes++;
    if (!uv_is_active((uv_handle_t *)&s->pipe.timer)) {
        s->pipe.filled_ms = s->pipe.reported_ms = shell_now_ms();
        s->pipe.tokens = (int64_t)s->opt.relay_bytes_per_s / 4;
        uv_timer_start(&s->pipe.timer, on_timer, FILL_MS, FILL_MS);
    }
    read_on(x);
    read_on(y);
}

void pipe_refuse(struct shell *s, uint64_t request)
{
    struct pipe_end *e = find(s, request);

    if (e != NULL) {
        end(e, LOCO_ECLOSED);
    }
}

/* ---- time --------------------------------------------------------------- */

static void fill(struct shell *s, uint64_t now_ms)
{
    struct pipe_state *p = &s->pipe;
    int64_t rate = (int64_t)s->opt.relay_bytes_per_s;

    p->tokens += (int64_t)(now_ms - p->filled_ms) * rate / 1000;
    p->filled_ms = now_ms;
    if (p->tokens > rate / 4) {
        p->tokens = rate / 4; /* a burst of a quarter second */
    }
}

static void on_timer(uv_timer_t *timer)
{
    struct shell *s = timer->data;
    uint64_t now_ms = shell_now_ms();
    bool due = now_ms - s->pipe.reported_ms >= REPORT_MS;
    struct pipe_end *e, *tmp;

    fill(s, now_ms);
    if (due) {
        s->pipe.reported_ms = now_ms;
    }
    DL_FOREACH_SAFE(s->pipe.ends, e, tmp)
    {
        if (e->held && e->conn->state == CONN_CARRIED) {
            read_on(e);
        }
        if (due && e->first && e->moved > 0 && e->conn->state == CONN_CARRIED) {
            report(s, e, 0);
        }
        if (e->first && now_ms - e->moved_ms > s->opt.pipe_idle_ms) {
            end(e, LOCO_ETIMEOUT);
        }
    }
    if (s->stats.pipes == 0) {
        uv_timer_stop(timer);
    }
}

void pipe_init(struct shell *s)
{
    uv_timer_init(s->loop, &s->pipe.timer); /* Cannot fail. */
    s->pipe.timer.data = s;
}

void pipe_close(struct shell *s)
{
    uv_close((uv_handle_t *)&s->pipe.timer, shell_handle_closed);
}
