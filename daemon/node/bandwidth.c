/* bandwidth.c - feeds the map of p2p/exchange/bandwidth.h and spreads what is
 * ours.
 *
 * Received segments say how fast each peer sends to us; what changed by an
 * eighth is told to the members of the view, at most every TELL_MS, so that an
 * idle peer says nothing. What a member says is taken for edges into itself.
 */
#include <stdlib.h>

#include "daemon/node/internal.h"
#include "proto/base/err.h"

#define TELL_MS 5000

int node_bandwidth_open(struct node *n)
{
    uint32_t cap = n->opt.edges > 0 ? n->opt.edges : NODE_EDGES_MIN;

    n->bandwidth.memory = malloc(bandwidth_bytes(cap));
    if (n->bandwidth.memory == NULL) {
        return LOCO_ENOMEM;
    }
    bandwidth_init(&n->bandwidth.map, n->bandwidth.memory, cap,
                   n->opt.edge_sample_us);
    return 0;
}

const struct bandwidth *node_bandwidth(const struct node *n)
{
    return &n->bandwidth.map;
}

void node_set_rate(struct node *n,
                   const struct peer_id *from,
                   const struct peer_id *to,
                   uint64_t bytes_per_s,
                   uint64_t now_ms)
{
    bandwidth_told(&n->bandwidth.map, from, to, bytes_per_s,
                   BANDWIDTH_CONFIDENCE, now_ms);
}

void node_bandwidth_note(struct node *n, const struct event_seg_done *ev)
{
    bandwidth_note(&n->bandwidth.map, &ev->segment.peer, &n->opt.self,
                   ev->busy_bytes, ev->busy_us, n->now);
}

void node_bandwidth_advance(struct node *n)
{
    const struct bandwidth_row *news[MESSAGE_EDGES_MAX];
    struct bandwidth_report msg = {0};

    if (!n->ballot.have || n->stopped ||
        n->now < n->bandwidth.told_ms + TELL_MS) {
        return;
    }
    msg.n_edges = bandwidth_news(&n->bandwidth.map, &n->opt.self, news,
                                 MESSAGE_EDGES_MAX);
    n->bandwidth.told_ms = n->now;
    for (uint32_t i = 0; i < msg.n_edges; i++) {
        msg.edges[i].from = news[i]->from;
        msg.edges[i].bytes_per_s = news[i]->bytes_per_s;
        msg.edges[i].confidence = news[i]->confidence;
    }
    if (msg.n_edges > 0) {
        members_broadcast(&n->members, n->out, n->ballot.rows,
                          n->ballot.cert.body.n_members, MESSAGE_BANDWIDTH,
                          &msg);
    }
}

void node_on_bandwidth_report(struct node *n,
                              int peer,
                              const struct bandwidth_report *m)
{
    const struct peer_id *to = &n->members.peers[peer].id;

    if (ballot_index(&n->ballot, to) < 0) {
        return; /* strangers could fill the map */
    }
    for (uint32_t i = 0; i < m->n_edges; i++) {
        if (ballot_index(&n->ballot, &m->edges[i].from) >= 0) {
            bandwidth_told(&n->bandwidth.map, &m->edges[i].from, to,
                           m->edges[i].bytes_per_s, m->edges[i].confidence,
                           n->now);
        }
    }
}
