/* swarm.c - the peers that a node knows of, see node.h. */
#include "daemon/node/internal.h"

#include <string.h>

/* Rows are taken in this order. */
enum rank { IN_VIEW, LINKED, HEARD_OF, GONE, RANK_COUNT };

static bool in_view(const struct node *n, const struct peer_id *id)
{
    for (uint32_t i = 0; n->ballot.have && i < n->ballot.cert.body.n_members;
         i++) {
        if (id_eq(&n->ballot.ids[i], id)) {
            return true;
        }
    }
    return false;
}

static uint8_t state_of(const struct member *p)
{
    if (p->lost && p->state < PEER_DEAD) {
        return PEER_DEAD;
    }
    return p->state == PEER_ALIVE && p->suspected ? (uint8_t)PEER_SUSPECT
                                                  : p->state;
}

static enum rank rank_of(const struct node *n, const struct member *p)
{
    if (in_view(n, &p->id)) {
        return IN_VIEW;
    }
    if (state_of(p) >= PEER_DEAD) {
        return GONE;
    }
    return p->n_links > 0 ? LINKED : HEARD_OF;
}

static void fill_self(const struct node *n, struct node_peer *o)
{
    *o = (struct node_peer){
        .id = n->opt.self,
        .self = true,
        .in_view = in_view(n, &n->opt.self),
        .state = PEER_ALIVE,
        .reach = reach_class(&n->reach.core),
        .stage = n->stages.staging != STAGING_NONE ? n->stages.own + 1 : 0,
        .round = n->held.applied.round,
        .inner_step = n->training.inner_step,
        .tokens_per_s = n->training.tokens_per_s > 0
                            ? (uint32_t)n->training.tokens_per_s
                            : 0,
    };
}

static void fill_link(const struct node *n, int row, struct node_peer *o)
{
    for (int i = 0; i < LINKS_MAX; i++) {
        const struct members_link *l = &n->members.links[i];

        if (l->used && !l->closing && l->peer == row) {
            o->linked = true;
            o->relayed = l->relayed;
            o->inbound = l->inbound;
            o->punched = l->punched;
            if (!l->relayed) {
                return;
            }
        }
    }
}

static void
fill(const struct node *n, int row, uint64_t now_ms, struct node_peer *o)
{
    const struct member *p = &n->members.peers[row];
    uint8_t reach = p->has_beat ? p->beat.reach : p->info.reach;

    *o = (struct node_peer){
        .id = p->id,
        .in_view = in_view(n, &p->id),
        .convicted = convicts_has(&n->ballot.convicts, &p->id),
        .state = state_of(p),
        .reach = reach < REACH_CLASS_COUNT ? reach : REACH_UNKNOWN,
        .stage = p->info.stage,
        .round = p->has_beat ? p->beat.round : p->info.round,
        .inner_step = p->has_beat ? p->beat.inner_step : p->info.step,
        .tokens_per_s =
            p->has_beat ? p->beat.tokens_per_s : p->info.tokens_per_s,
        .silent_ms = UINT64_MAX,
    };
    if (p->real_ms > 0) {
        o->silent_ms = now_ms > p->real_ms ? now_ms - p->real_ms : 0;
    }
    fill_link(n, row, o);
}

uint32_t node_swarm(const struct node *n,
                    struct node_peer *out,
                    uint32_t max,
                    uint64_t now_ms)
{
    uint32_t count = 0;

    if (max > 0) {
        fill_self(n, &out[count++]);
    }
    for (int rank = 0; rank < RANK_COUNT; rank++) {
        for (uint32_t i = 0; i < n->members.n_peers && count < max; i++) {
            const struct member *p = &n->members.peers[i];

            if (p->used && (p->confirmed || p->watched) &&
                (int)rank_of(n, p) == rank) {
                fill(n, (int)i, now_ms, &out[count++]);
            }
        }
    }
    return count;
}
