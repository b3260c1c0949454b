/* trio.h - three toys (toy.h), one of which carries or introduces, for tests.
 */
#ifndef LOCO_TESTS_UNIT_UV_TRIO_H
#define LOCO_TESTS_UNIT_UV_TRIO_H

#include "tests/unit/uv/pair.h"

/* `a` wants `b`; `r` carries. */
struct trio {
    uv_loop_t loop;
    struct node a, r, b;
    bool meet; /* r introduces, and carries nothing */
};

static inline void
trio_open_with(struct trio *t, uint64_t rate, uint32_t handshake_ms)
{
    struct shell_options opt;

    t->meet = false;
    uv_loop_init(&t->loop);
    node_start(&t->a, &t->loop, 1);
    node_start(&t->b, &t->loop, 2);
    opt = node_init(&t->r, 3);
    opt.relay_bytes_per_s = rate;
    opt.handshake_ms = handshake_ms;
    node_open(&t->r, &t->loop, &opt);
}

static inline void trio_open(struct trio *t)
{
    trio_open_with(t, 100U << 20, 30000);
}

static inline void trio_close(struct trio *t)
{
    node_close(&t->a, &t->loop);
    node_close(&t->b, &t->loop);
    node_close(&t->r, &t->loop);
    loop_end(&t->loop);
}

/* from asks r for `to`: what r's core is told. */
static inline struct event_relay
asked(struct trio *t, struct node *from, struct node *to, enum action_type how)
{
    uint32_t n = t->r.toy.counts[EVENT_RELAY];
    struct action *act = node_act(from, how);

    if (how == ACTION_DIAL) {
        act->dial = (struct action_dial){77, to->id.id, loopback(t->r.port),
                                         t->r.id.id, t->meet};
    } else {
        act->bulk_open = (struct action_bulk_open){
            to->id.id, loopback(t->r.port), t->r.id.id, t->meet};
    }
    RUN_UNTIL(&t->loop, t->r.toy.counts[EVENT_RELAY] > n);
    return node_event(&t->r, EVENT_RELAY, n)->event.relay;
}

/* `who` comes to r with a token, for `from`. */
static inline struct event_relay
came(struct trio *t, struct node *who, struct node *from, uint64_t token)
{
    uint32_t n = t->r.toy.counts[EVENT_RELAY];
    struct action *act = node_act(who, ACTION_RELAY_COME);

    act->relay_come.peer = from->id.id;
    act->relay_come.relay = t->r.id.id;
    act->relay_come.address = loopback(t->r.port);
    act->relay_come.token = token;
    act->relay_come.meet = t->meet;
    RUN_UNTIL(&t->loop, t->r.toy.counts[EVENT_RELAY] > n);
    return node_event(&t->r, EVENT_RELAY, n)->event.relay;
}

static inline void
join(struct trio *t, const struct event_relay *x, const struct event_relay *y)
{
    struct action *act = node_act(&t->r, ACTION_RELAY_JOIN);

    act->relay_join.request = x->request;
    act->relay_join.other_request = y->request;
    act->relay_join.meet = t->meet;
}

#endif
