/* recv.c - a message on its way from its link to its handler; see internal.h.
 *
 * take() is all that stands before the table: gates, decoding, the envelope of
 * a message that another peer carried. Messages of another view, round or run
 * are dropped by the cores; here they are counted, for the metrics. Some are
 * honest: what was under way when the view changed. Many are somebody who
 * replays what was said before.
 *
 * Below it are the handlers that only pass a message on to its core.
 */
#include "daemon/node/internal.h"

#include <string.h>

/* Who said it, and what; the message itself is in n->scratch. */
struct said {
    int peer; /* MEMBERS_NONE: the link's peer need not be admitted */
    enum message_type type;
};

void node_hang_up(struct node *n, uint32_t link)
{
    struct action *a = out_add(n->out, ACTION_HANG_UP);

    if (a != NULL) {
        a->hang_up.link = link;
    }
}

bool node_decode(struct node *n, const struct event_recv *ev)
{
    const struct msg_schema *schema = message_schema(ev->message);

    if (schema == NULL ||
        msg_decode(schema, ev->bytes, ev->len, n->scratch) != 0) {
        n->malformed++;
        node_hang_up(n, ev->link);
        return false;
    }
    return true;
}

/* What a member without a link to us says over another one. The bytes stand in
 * the scratch memory that the message in them is decoded to. */
static bool open_envelope(struct node *n, struct said *s)
{
    const struct forward *f = n->scratch;
    int from = members_forwarded(&n->members, s->peer, f, n->out);
    uint16_t type = f->body.message;
    uint8_t bytes[MESSAGE_FORWARD_MAX];
    uint32_t len = f->n_bytes;

    if (from == MEMBERS_NONE) {
        return false;
    }
    memcpy(bytes, f->bytes, len);
    if (msg_decode(message_schema(type), bytes, len, n->scratch) != 0) {
        n->malformed++;
        return false;
    }
    *s = (struct said){.peer = from, .type = (enum message_type)type};
    return true;
}

/* HELLO of a process that speaks our version and is the only one. */
static bool holds(struct node *n, int peer, uint32_t link)
{
    return node_admit_version(n, link, &n->members.peers[peer].id,
                              n->scratch) &&
           node_twin_hello(n, peer, link, n->scratch);
}

/* Whether the peer at that link may cost us what it needs, though it is no
 * member of our view: one of a proven view, whoever serves another stage of the
 * model, and who founds our first view: we check what all others promised it.
 * What it says of itself counts for nothing. */
static bool is_trusted(struct node *n, uint32_t link)
{
    int peer = members_at(&n->members, link);

    return peer != MEMBERS_NONE &&
           (node_proven_of(n, peer) != NULL ||
            ballot_founds(&n->ballot, peer) ||
            (!n->inner->whole && n->members.peers[peer].guest));
}

bool node_affords(struct node *n, const struct event *event)
{
    const struct event_recv *ev = &event->recv;

    return event->type != EVENT_RECV ||
           members_affords(&n->members, ev, is_trusted(n, ev->link),
                           event->now_ms);
}

void node_answered(struct node *n, const struct event *event, uint32_t n_said)
{
    uint64_t bytes = 0;
    uint32_t frames = 0;

    for (uint32_t i = 0; event->type == EVENT_RECV && i < n->out->n; i++) {
        const struct action *a = &n->out->action[i];

        /* What is said later in the step is due by itself, but for the
         * HEARTBEAT that a PULSE asks for. */
        if (a->type == ACTION_SEND && a->send.link == event->recv.link &&
            (i < n_said || a->send.message == MESSAGE_HEARTBEAT)) {
            bytes += a->send.bytes.len;
            frames++;
        }
    }
    if (frames > 0) {
        members_answered(&n->members, event->recv.link, frames, bytes);
    }
}

/* False: nothing of it is for a handler. */
static bool take(struct node *n, const struct event_recv *ev, struct said *s)
{
    const struct message_row *row = message_row(ev->message);

    *s = (struct said){.peer = MEMBERS_NONE,
                       .type = (enum message_type)ev->message};
    if (row != NULL && row->gate == GATE_LINK) {
        return node_decode(n, ev);
    }
    if (node_admit_recv(n, ev) || node_twin_recv(n, ev)) {
        return false;
    }
    s->peer = members_heard(&n->members, ev->link, n->now);
    if (s->peer == MEMBERS_NONE) {
        return false;
    }
    members_used(&n->members, ev->link, ev->message);
    members_round_trip(&n->members, s->peer, ev->rtt_us);
    if (row == NULL) {
        node_dht_recv(n, s->peer, ev);
        return false;
    }
    if (!node_decode(n, ev)) {
        return false;
    }
    if (row->gate == GATE_ENVELOPE) {
        return open_envelope(n, s);
    }
    return s->type != MESSAGE_HELLO || holds(n, s->peer, ev->link);
}

static bool is_other_view(const struct node *n, const struct message_attempt *a)
{
    return a->epoch != n->ballot.cert.body.epoch ||
           !hash32_eq(&a->view, &n->ballot.hash);
}

static bool is_stale(const struct node *n, enum message_stale stale)
{
    const struct hash32 *run = n->scratch;
    struct message_attempt at;

    memcpy(&at, n->scratch, sizeof at);
    switch (stale) {
    case STALE_NEVER:
        return false;
    case STALE_RUN:
        return n->inner->whole && !hash32_eq(run, &n->opt.run_id);
    case STALE_GROUP:
        return !hash32_eq(run, &n->group);
    case STALE_VIEW:
        return n->ballot.have && is_other_view(n, &at);
    case STALE_ATTEMPT:
        /* A round that is over; one of later is kept, or comes again. */
        return n->ballot.have &&
               (at.round < n->round.round || is_other_view(n, &at));
    }
    return false;
}

static void handle(struct node *n, const struct event_recv *ev, struct said s)
{
    n->stale += is_stale(n, message_row((uint16_t)s.type)->stale);
    switch (s.type) {
#define HANDLE_LINK(schema)     node_on_##schema(n, ev->link, n->scratch)
#define HANDLE_PEER(schema)     node_on_##schema(n, s.peer, n->scratch)
#define HANDLE_SECOND(schema)   HANDLE_PEER(schema)
#define HANDLE_ENVELOPE(schema) (void)0 /* take() has opened it */
#define X(name, value, schema, gate, ...)                                      \
    case value:                                                                \
        HANDLE_##gate(schema);                                                 \
        return;
        MESSAGE_MAP(X)
#undef X
    }
}

void node_on_recv(struct node *n, const struct event *event)
{
    const struct event_recv *ev = &event->recv;
    struct said s;

    n->heard_link = ev->link;
    if (take(n, ev, &s)) {
        handle(n, ev, s);
    }
    n->heard_link = 0;
}

/* ---- handlers that pass it on ------------------------------------------- */

void node_on_neighbour(struct node *n, int peer, const struct neighbour *m)
{
    members_on_neighbour(&n->members, peer, m, n->out);
}

void node_on_shuffle(struct node *n, int peer, const struct shuffle *m)
{
    members_on_shuffle(&n->members, peer, m, n->out);
}

void node_on_gossip(struct node *n, int peer, const struct gossip *m)
{
    members_on_gossip(&n->members, peer, m, n->out);
}

void node_on_call(struct node *n, int peer, const struct call *m)
{
    members_on_call(&n->members, peer, m, n->now, n->out);
}

void node_on_called(struct node *n, int peer, const struct called *m)
{
    members_on_called(&n->members, peer, m, n->now, n->out);
}

void node_on_fetch_no(struct node *n, int peer, const struct fetch_no *m)
{
    transfer_refused(&n->transfer, peer, m, n->now, n->out);
    audit_refused(&n->audit.core, peer, m, n->out);
    work_refused(&n->work.core, peer, m, n->out);
}

/* SUSPECT, PREPARE, PROMISE, ACCEPT, ACCEPTED. */
#define X(schema)                                                              \
    void node_on_##schema(struct node *n, int peer, const struct schema *m)    \
    {                                                                          \
        struct ballot_context c;                                               \
                                                                               \
        if (n->finished) {                                                     \
            return; /* nothing is left to be decided */                        \
        }                                                                      \
        c = node_context(n);                                                   \
        ballot_on_##schema(&n->ballot, &c, peer, m);                           \
        if (n->ballot.frozen) {                                                \
            round_freeze(&n->round, n->out);                                   \
        }                                                                      \
    }
X(suspect)
X(prepare)
X(promise)
X(accept)
X(accepted)
#undef X

void node_on_ready(struct node *n, int peer, const struct ready *m)
{
    round_on_ready(&n->round, peer, m, n->now);
}

void node_on_ready_of(struct node *n, int peer, const struct ready_of *m)
{
    round_on_ready_of(&n->round, peer, m, n->out);
}

void node_on_plan(struct node *n, int peer, const struct plan *m)
{
    round_on_plan(&n->round, peer, m, n->now, n->out);
}

void node_on_vote(struct node *n, int peer, const struct vote *m)
{
    round_on_vote(&n->round, peer, m);
}

void node_on_get_commit(struct node *n, int peer, const struct get_commit *m)
{
    struct commit record;

    if (history_get(&n->history, m->round, &record)) {
        (void)members_send(&n->members, n->out, peer, MESSAGE_COMMIT, &record);
    }
}

void node_on_pair_offer(struct node *n, int peer, const struct pair_offer *m)
{
    if (n->terms.pairs && n->held.loaded) {
        pair_on_offer(&n->pair, peer, m, n->now, n->out);
    }
}

void node_on_pair_have(struct node *n, int peer, const struct pair_have *m)
{
    if (n->terms.pairs && n->held.loaded) {
        pair_on_have(&n->pair, peer, m, n->now, n->out);
    }
}
