/* probe.c - see probe.h. */
#include "p2p/uv/probe.h"

#include "p2p/uv/conn_internal.h"
#include "proto/base/err.h"

static void report(struct shell *s, uint64_t request, int rc)
{
    struct event e = {.type = EVENT_PROBED, .probed = {request, rc}};

    shell_note(s, &e);
}

static void on_up(struct conn *c)
{
    report(c->shell, c->request, 0);
    conn_hang_up(c);
}

static void on_fail(struct conn *c, int rc)
{
    if (c->state != CONN_UP) { /* else it is reported */
        report(c->shell, c->request, rc != 0 ? rc : LOCO_ECLOSED);
    }
    conn_close(c);
}

static void on_closed(struct conn *c)
{
    (void)c;
}

static const struct conn_ops probe_ops = {
    .on_up = on_up,
    .on_fail = on_fail,
    .on_closed = on_closed,
};

void probe_dial(struct shell *s, const struct action_probe *probe)
{
    struct conn *c;
    int rv = conn_dial(s, &probe_ops, CONNECTION_PROBE, &probe->address,
                       &probe->peer, &c);

    if (rv != 0) {
        report(s, probe->request, rv);
        return;
    }
    c->request = probe->request;
    conn_set_deadline(c, s->opt.probe_ms);
}
