/* punch.c - see punch.h.
 *
 * Happy path: punch_bind() -> the leg connects, asks (conn_leg.c) ->
 * punch_met()
 * -> EVENT_MET -> punch_dial() -> try_start() -> on_connect() -> the handshake
 * of the two ends -> on_try_up(): the try takes over what the leg was for.
 */
#include "p2p/uv/punch.h"

#include <assert.h>
#include <string.h>

#include <sodium.h>

#include "p2p/link/ask.h"
#include "p2p/prefix.h"
#include "p2p/uv/addr.h"
#include "p2p/uv/conn_internal.h"
#include "proto/base/err.h"

/* A router that refuses the other end's packet forgets ours, too. Ours stands
 * in it for as long as the refusal takes to come, so the next one follows after
 * no more than that, by chance: two ends that keep step would miss each other.
 * A router nearby refuses at once: after AGAIN_QUICK tries the time doubles
 * with each one, so that they are not over before the other end begins.
 */
#define AGAIN_MS      20
#define AGAIN_QUICK   5
#define AGAIN_MOST_MS 640

/* Any address of ours of that family, with a port. */
static int bind_to(struct conn *c, const struct address *like, uint16_t port)
{
    struct address a = {.port = port};
    struct sockaddr_storage ss;

    if (prefix_is_v4(like->ip)) {
        prefix_map_v4(a.ip);
    }
    address_to_sockaddr(&a, &ss);
    /* libuv sets SO_REUSEADDR, so that both may have the port. */
    return uv_tcp_bind(&c->tcp, (const struct sockaddr *)&ss, 0);
}

int punch_bind(struct conn *leg)
{
    return bind_to(leg, &leg->address, 0);
}

static int port_of(const struct conn *leg, uint16_t *port)
{
    struct sockaddr_storage ss;
    int len = sizeof ss, rv;
    struct address a;

    rv = uv_tcp_getsockname(&leg->tcp, (struct sockaddr *)&ss, &len);
    rv = rv == 0 ? address_from_sockaddr((const struct sockaddr *)&ss, &a) : rv;
    *port = rv == 0 ? a.port : 0;
    return rv;
}

int punch_met(struct conn *leg)
{
    struct shell *s = leg->shell;
    struct event e = {.type = EVENT_MET};
    uint8_t plain[MET_BYTES];
    struct met met;
    int rv = noise_open(&leg->recv, leg->head + RECORD_HEAD_BYTES,
                        sizeof plain + NOISE_TAG_BYTES, plain);

    rv = rv < 0 ? rv : met_read(plain, &met);
    if (rv < 0) {
        return rv;
    }
    sodium_memzero(&leg->send, sizeof leg->send);
    sodium_memzero(&leg->recv, sizeof leg->recv);
    conn_stop_reading(leg); /* it has no more to say */
    conn_set_deadline(leg, s->opt.punch_ms);
    leg->leg = LEG_MET;
    leg->meeting = ++s->n_meetings;
    e.met.meeting = leg->meeting;
    e.met.request = leg->token == 0 ? leg->request : 0;
    e.met.peer = leg->expected;
    e.met.relay = leg->relay;
    memcpy(e.met.address.ip, met.ip, sizeof met.ip);
    e.met.address.port = met.port;
    shell_note(s, &e);
    return 0;
}

/* ---- tries ------------------------------------------------------------ */

/* How it ended, once. */
static void tell_over(struct conn *leg, bool up)
{
    struct event e = {.type = EVENT_PUNCHED,
                      .punched = {.address = leg->met, .up = up}};

    if (leg->leg == LEG_MET && leg->met.port != 0) {
        leg->met.port = 0;
        shell_note(leg->shell, &e);
    }
}

static void on_connect(uv_connect_t *req, int status)
{
    struct conn *c = CONTAINER_OF(req, struct conn, connect);

    if (c->state == CONN_CLOSING) {
        return;
    }
    if (status != 0) {
        conn_fail(c, status);
        return;
    }
    if (c->token != 0) { /* the other one asked for the meeting */
        c->inbound = true;
        c->kind = CONNECTION_NONE;
        c->shell->stats.half_open++;
    }
    conn_start_shaking(c);
}

static void on_due(uv_timer_t *timer)
{
    struct conn *c = timer->data;
    struct sockaddr_storage ss;
    uint16_t port;
    int rv = port_of(c->other, &port);

    c->dialled_ms = shell_now_ms();
    rv = rv == 0 ? bind_to(c, &c->address, port) : rv;
    if (rv == 0) {
        address_to_sockaddr(&c->address, &ss);
        rv = uv_tcp_connect(&c->connect, &c->tcp, (const struct sockaddr *)&ss,
                            on_connect);
    }
    if (rv != 0) {
        conn_fail(c, rv);
    }
}

static void try_start(struct conn *leg, uint64_t after_ms);

uint32_t punch_again_ms(uint32_t n_tries)
{
    uint32_t ms = AGAIN_MS;

    for (uint32_t i = AGAIN_QUICK; i < n_tries && ms < AGAIN_MOST_MS; i++) {
        ms *= 2;
    }
    return ms;
}

static void on_try_fail(struct conn *c, int rc)
{
    struct conn *leg = c->other;
    bool answered = c->state != CONN_CONNECTING; /* by somebody else */
    uint64_t took_ms = shell_now_ms() - c->dialled_ms;
    uint32_t most_ms = punch_again_ms(leg->n_tries);

    most_ms = took_ms > most_ms ? (uint32_t)took_ms : most_ms;

    conn_close(c);
    if (!answered && leg->n_tries < leg->shell->opt.punch_tries &&
        !leg->shell->closing) {
        try_start(leg, randombytes_uniform(most_ms + 1));
    } else {
        conn_fail(leg, rc);
    }
}

static void on_try_up(struct conn *c)
{
    struct conn *leg = c->other;

    c->ops = leg->ops;
    c->owner = leg->owner;
    leg->ops = &conn_ops_none;
    leg->owner = NULL;
    c->other = leg->other = NULL;
    tell_over(leg, true);
    conn_close(leg);
    c->shell->stats.punched++;
    c->ops->on_up(c);
}

static void on_try_closed(struct conn *c)
{
    (void)c;
}

static const struct conn_ops try_ops = {
    .on_up = on_try_up,
    .on_fail = on_try_fail,
    .on_closed = on_try_closed,
};

static void try_start(struct conn *leg, uint64_t after_ms)
{
    struct conn *c = conn_new(leg->shell, &try_ops, leg->kind);

    c->address = leg->met;
    c->expected = leg->expected;
    c->request = leg->request;
    c->token = leg->token;
    c->met_at = leg->relay;
    c->other = leg;
    leg->other = c;
    leg->n_tries++;
    conn_shake_init(c);
    uv_timer_start(&c->timer, on_due, after_ms, 0);
}

void punch_dial(struct shell *s, const struct action_punch *punch)
{
    struct conn *leg = s->conns;

    while (leg != NULL && (leg->meeting != punch->meeting ||
                           leg->leg != LEG_MET || leg->other != NULL)) {
        leg = leg->next;
    }
    if (leg == NULL) {
        return; /* its time was over */
    }
    if (punch->address.port == 0 ||
        prefix_is_v4(punch->address.ip) != prefix_is_v4(leg->address.ip)) {
        conn_fail(leg, LOCO_EINVAL);
        return;
    }
    leg->met = punch->address;
    try_start(leg, 0);
}

void punch_closed(struct conn *c)
{
    struct conn *other = c->other;

    tell_over(c, false);
    if (other == NULL) {
        return;
    }
    c->other = other->other = NULL;
    if (c->leg == LEG_MET) {
        other->ops = &conn_ops_none;
        conn_close(other);
    }
}
