/* reach.c - who can dial us, and what we do for those who cannot.
 *
 * Our own class: a round of tests is due (p2p/swarm/reach.h) -> PROBE to the
 * linked peers that it picks -> PROBED. For others: PROBE -> the shell dials
 * where we see the asker, and nowhere else -> PROBED. A connection to be
 * carried (p2p/swarm/relay.h): the shell reports who wants whom -> CALLED to
 * the other end, which comes -> joined.
 *
 * What can go wrong: a peer asks for one probe after another (a token bucket
 * per peer and a table of NODE_PROBES_MAX); the one that is wanted is not
 * linked here, or never comes (refused, or given up after a time).
 */
#include "daemon/node/internal.h"

#include <stdlib.h>
#include <string.h>

#include "proto/base/err.h"
#include "proto/base/log.h"
#include "proto/base/rng.h"

/* A round of tests asks once; three rounds in a row are fine. */
#define PROBE_COST     30
#define PROBE_BURST    90
#define PIPES_PER_PEER 64 /* a link and data with half of a view */
/* With each member that is behind a router, too, for the link and for data. */
#define MEET_BURST          128
#define RELAY_WAIT_MS       4000
#define SETTLE_MS           5000
#define PROBE_LIMITER_PEERS 64

int node_reach_open(struct node *n)
{
    struct limiter_options lo = {
        .peers_max = PROBE_LIMITER_PEERS, .per_s = 1, .burst = PROBE_BURST};
    struct limiter_options meet = {
        .peers_max = PROBE_LIMITER_PEERS, .per_s = 1, .burst = MEET_BURST};
    struct reach_options ro = {
        .listens = n->opt.dialable,
        .seed = rng_next(&n->rng),
        .answer_ms = n->t.probe_ms,
        .settle_ms = SETTLE_MS * n->opt.time_scale,
        .retest_ms = n->t.retest_ms,
    };
    struct relay_options rel = {
        .bytes_per_hour = n->opt.relay_bytes_per_hour,
        .pipes_per_peer = PIPES_PER_PEER,
        .wait_ms = RELAY_WAIT_MS * n->opt.time_scale,
        .seed = rng_next(&n->rng),
    };

    n->reach.probe_memory = malloc(limiter_bytes(&lo));
    n->reach.meet_memory = malloc(limiter_bytes(&meet));
    if (n->reach.probe_memory == NULL || n->reach.meet_memory == NULL) {
        return LOCO_ENOMEM;
    }
    limiter_init(&n->reach.meet_limiter, &meet, n->reach.meet_memory);
    limiter_init(&n->reach.probe_limiter, &lo, n->reach.probe_memory);
    reach_init(&n->reach.core, &ro, n->now);
    relay_init(&n->reach.relay, &rel, n->now);
    return 0;
}

/* ---- our own class ------------------------------------------------------ */

static const char *
way_text(const struct node *n, int peer, const struct event_link_up *ev)
{
    if (!id_is_zero(&ev->relay)) {
        return "through a relay";
    }
    if (!id_is_zero(&ev->met_at)) {
        return "punched";
    }
    if (!ev->inbound) {
        return "dialled";
    }
    return n->members.peers[peer].way.called ? "reversed" : "accepted";
}

void node_reach_link_up(struct node *n,
                        int peer,
                        const struct event_link_up *ev)
{
    char text[ID_SHORT_MAX], at[ADDRESS_TEXT_MAX];

    id_short(&ev->peer, text);
    address_text(&ev->address, at);
    out_log(n->out, LOG_DEBUG, "linked to %s, %s: %s", text, at,
            way_text(n, peer, ev));
    if (ev->inbound && id_is_zero(&ev->relay) && id_is_zero(&ev->met_at)) {
        reach_dialled(&n->reach.core, n->now);
    }
}

void node_on_observed(struct node *n, const struct msg_address *at)
{
    static const uint8_t nowhere[16];
    struct address a = {.port = n->members.observed.port};
    struct msg_address seen = {.port = a.port};

    if (memcmp(at->ip, nowhere, sizeof nowhere) == 0) {
        return; /* it sees the relay, not us */
    }
    memcpy(a.ip, at->ip, sizeof a.ip);
    reach_seen(&n->reach.core, &a, n->now);
    memcpy(seen.ip, n->reach.core.seen.ip, sizeof seen.ip);
    members_observed(&n->members, &seen);
}

void node_on_mapped(struct node *n, const struct local_event *e)
{
    bool mapped = e->rc == 0 && e->mapped.address.port != 0;
    uint16_t port = mapped ? e->mapped.address.port : n->opt.listen_port;

    port = n->opt.dialable ? port : 0;
    members_set_port(&n->members, port);
    n->reach.core.seen.port = port;
    reach_mapped(&n->reach.core, mapped ? &e->mapped.address : NULL, n->now);
}

/* Linked directly, and of our protocol: it sent a heartbeat. */
static uint32_t
candidates_find(struct node *n, struct reach_candidate *candidates, int *rows)
{
    uint32_t found = 0;

    for (uint32_t i = 0; i < n->members.n_peers && found < LINKS_MAX; i++) {
        const struct member *p = &n->members.peers[i];

        if (p->used && p->n_links > 0 && p->has_beat &&
            !members_relayed(&n->members, (int)i)) {
            rows[found] = (int)i;
            candidates[found++] = (struct reach_candidate){
                .peer = p->id,
                .address = p->address,
            };
        }
    }
    return found;
}

static void test(struct node *n)
{
    struct reach_candidate candidates[LINKS_MAX] = {0};
    int rows[LINKS_MAX];
    uint32_t found = candidates_find(n, candidates, rows);
    uint32_t who[REACH_TESTS_MAX];
    uint64_t request[REACH_TESTS_MAX];
    unsigned picked =
        reach_begin(&n->reach.core, candidates, found, n->now, who, request);

    if (found == 0) {
        n->reach.core.next_ms = n->now + n->t.tick_ms;
    }
    for (unsigned i = 0; i < picked; i++) {
        struct probe msg = {.request = request[i]};

        (void)members_send(&n->members, n->out, rows[who[i]], MESSAGE_PROBE,
                           &msg);
    }
}

static void class_changed(struct node *n, enum reach_class was)
{
    enum reach_class is = reach_class(&n->reach.core);
    char why[CORE_TEXT_MAX];

    members_set_reach(&n->members, is);
    if (is == was) {
        return;
    }
    reach_reason(&n->reach.core, why);
    out_log(n->out, LOG_INFO, "reachability: %s: %.150s", reach_name(is), why);
}

/* To carry that connection. */
static void refuse(struct node *n, uint64_t request)
{
    struct action *a = out_add(n->out, ACTION_RELAY_REFUSE);

    if (a != NULL) {
        a->relay_refuse.request = request;
    }
}

void node_reach_advance(struct node *n)
{
    uint64_t request;
    uint32_t n_apart, n_relays;

    reach_relayed(&n->reach.core, n->members.n_relayed);
    reach_tick(&n->reach.core, n->now);
    if (reach_due(&n->reach.core, n->now)) {
        test(n);
    }
    class_changed(n, n->members.reach);
    if (n->now < n->reach.relay_ms) {
        return;
    }
    n->reach.relay_ms = n->now + n->t.tick_ms;
    n_apart = members_n_apart(&n->members, &n_relays);
    reach_apart(&n->reach.core, n_apart, n_relays);
    while (relay_next_over(&n->reach.relay, n->now, &request)) {
        refuse(n, request);
    }
}

void node_on_probed(struct node *n, int peer, const struct probed *m)
{
    reach_answer(&n->reach.core, &n->members.peers[peer].id, m->request,
                 m->reached, n->now);
}

/* ---- for others --------------------------------------------------------- */

static void answer(struct node *n, const struct node_probe *p, bool reached)
{
    struct probed msg = {.request = p->request, .reached = reached};
    int peer = members_find(&n->members, &p->peer);

    memcpy(msg.address.ip, p->address.ip, sizeof msg.address.ip);
    msg.address.port = p->address.port;
    (void)members_send(&n->members, n->out, peer, MESSAGE_PROBED, &msg);
}

/* The address that is dialled is the one that the asker's own link came from,
 * or was made to: nobody can point us at somebody else. */
void node_on_probe(struct node *n, int peer, const struct probe *m)
{
    const struct member *p = &n->members.peers[peer];
    struct node_probe *slot = NULL;
    struct action *a;

    for (int i = 0; i < NODE_PROBES_MAX && slot == NULL; i++) {
        slot = n->reach.probes[i].used ? NULL : &n->reach.probes[i];
    }
    if (slot == NULL || p->address.port == 0 ||
        members_relayed(&n->members, peer) ||
        !limiter_take(&n->reach.probe_limiter, &p->id, PROBE_COST, n->now)) {
        n->reach.probes_refused++;
        return;
    }
    a = out_add(n->out, ACTION_PROBE);
    if (a == NULL) {
        return;
    }
    *slot = (struct node_probe){
        .used = true,
        .name = ++n->reach.probe_name,
        .peer = p->id,
        .request = m->request,
        .address = p->address,
    };
    a->probe.request = slot->name;
    a->probe.peer = p->id;
    a->probe.address = p->address;
}

void node_on_probe_done(struct node *n, const struct event *event)
{
    const struct event_probed *ev = &event->probed;

    for (int i = 0; i < NODE_PROBES_MAX; i++) {
        struct node_probe *p = &n->reach.probes[i];

        if (p->used && p->name == ev->request) {
            answer(n, p, ev->rc == 0);
            p->used = false;
        }
    }
}

static void join(struct node *n, const struct event_relay *ev)
{
    struct action *a;
    uint64_t with;

    if (!relay_came(&n->reach.relay, ev->request, &ev->peer, ev->token,
                    ev->meet, &with)) {
        refuse(n, ev->request);
        return;
    }
    a = out_add(n->out, ACTION_RELAY_JOIN);
    if (a != NULL) {
        a->relay_join.request = with;
        a->relay_join.other_request = ev->request;
        a->relay_join.meet = ev->meet;
    }
}

/* Where there is a view, or hosts of other stages, it is theirs first. */
static bool is_ours(const struct node *n, const struct peer_id *id)
{
    int row = members_find(&n->members, id);
    const struct member *p =
        row == MEMBERS_NONE ? NULL : &n->members.peers[row];

    return !n->ballot.have || (p != NULL && (p->watched || p->guest));
}

/* Both ends of a meeting know what it is, and an asker has so many. */
static bool may_meet(struct node *n, const struct event_relay *ev, int to)
{
    int from = members_find(&n->members, &ev->peer);

    return !ev->meet ||
           (members_meets(&n->members, from) &&
            members_meets(&n->members, to) &&
            limiter_take(&n->reach.meet_limiter, &ev->peer, 1, n->now));
}

void node_on_relay(struct node *n, const struct event *event)
{
    const struct event_relay *ev = &event->relay;
    struct called msg = {.from = ev->peer};
    int to = members_find(&n->members, &ev->other);
    struct relay_ask ask = {
        .request = ev->request,
        .from = &ev->peer,
        .to = &ev->other,
        .member = is_ours(n, &ev->peer),
        .meet = ev->meet,
    };

    if (!node_is_admitted(n, &ev->peer)) {
        refuse(n, ev->request);
        return;
    }
    if (ev->token != 0) {
        join(n, ev);
        return;
    }
    if (members_linked(&n->members, to) && !members_relayed(&n->members, to) &&
        may_meet(n, ev, to)) {
        msg.token = relay_asked(&n->reach.relay, &ask, n->now);
    }
    if (msg.token == 0) {
        refuse(n, ev->request);
        return;
    }
    if (ev->meet) {
        memcpy(msg.address.ip, ev->from.ip, sizeof msg.address.ip);
        msg.address.port = ev->from.port;
    }
    (void)members_send(&n->members, n->out, to, MESSAGE_CALLED, &msg);
}

void node_on_relay_moved(struct node *n, const struct event *event)
{
    const struct event_relay_moved *ev = &event->relay_moved;

    relay_moved(&n->reach.relay, ev->request, ev->n_bytes, ev->rc != 0, n->now);
    n->reach.relay_ms = n->now; /* is the budget spent? */
}

void node_on_met(struct node *n, const struct event *event)
{
    members_on_met(&n->members, &event->met, n->now, n->out);
}

void node_on_bulk_met(struct node *n, const struct event *event)
{
    members_on_bulk_met(&n->members, &event->bulk_met, n->now);
}

void node_on_punched(struct node *n, const struct event *event)
{
    members_on_punched(&n->members, &event->punched, n->now);
}
