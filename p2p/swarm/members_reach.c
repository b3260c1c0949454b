/* members_reach.c - peers that cannot be dialled: calls, relays, the LAN.
 *
 * A peer that we want and have no link to is dialled by members_dial.c unless
 * it says that nobody can. Beside that, at once for such a peer and after
 * hedge_ms for one whose host does not answer:
 *   call   a neighbour that is linked to it passes on "dial this one", where
 *          we may be dialled ourselves;
 *   relay  a dial through a neighbour that carries bytes for others, where a
 *          call did not help or nobody can dial us either.
 * Members of the view say in their pulses whom they hear; of others it is known
 * only who told of them, and each neighbour is tried in turn. A link through a
 * relay is given up for one by a meeting there (members_punch.c), and both for
 * a link that one of the two dials: that is looked for every upgrade_ms.
 *
 * What can go wrong: a neighbour lies or is gone: the next one is asked. One
 * has us dial somebody who never asked: members_called.c bounds that.
 */
#include "p2p/swarm/members_internal.h"

#include <string.h>

#include "p2p/swarm/reach.h"
#include "proto/base/log.h"

#define CALL_MS      2000 /* between two calls for one peer */
#define RELAY_MIN_MS 500  /* between two tries through relays, doubled */
#define RELAY_MAX_MS 8000
#define NEARBY_MS    5000
#define NEARBY_TRIES 3 /* more, until it is heard again */

void members_way_init(struct member_way *way)
{
    memset(way, 0, sizeof *way);
    for (int k = 0; k < MEMBERS_VIA_MAX; k++) {
        way->via[k] = MEMBERS_NONE;
    }
}

static bool undialable(unsigned reach)
{
    return reach == REACH_RESTRICTED || reach == REACH_RELAYED;
}

bool members_dialable(const struct member *p)
{
    return !undialable(p->way.reach);
}

bool members_relayed(struct members *m, int peer)
{
    const struct members_link *l =
        m->n_relayed == 0 ? NULL : members_link_of_peer(m, peer);

    return l != NULL && l->relayed;
}

bool members_inbound(struct members *m, int peer)
{
    const struct members_link *l = members_link_of_peer(m, peer);

    return l != NULL && l->inbound && !l->relayed;
}

void members_way_told(struct members *m, int peer, int from)
{
    struct member_way *w = &m->peers[peer].way;
    int k = 0;

    while (k < MEMBERS_VIA_MAX - 1 && w->via[k] != from) {
        k++;
    }
    for (; k > 0; k--) {
        w->via[k] = w->via[k - 1];
    }
    w->via[0] = from;
}

/* ---- over whom ---------------------------------------------------------- */

#define OVER_MAX (VIEW_MEMBERS_MAX + MEMBERS_VIA_MAX + MEMBERS_ACTIVE_MAX)

struct over {
    uint32_t n;
    int rows[OVER_MAX];
};

bool members_serves(struct members *m,
                    int row,
                    int peer,
                    enum members_service service)
{
    const struct member *p;

    if (row == MEMBERS_NONE || row == peer || row >= (int)m->n_peers ||
        !members_linked(m, row) || members_relayed(m, row) ||
        (service == SERVICE_MEET && !members_meets(m, row))) {
        return false;
    }
    p = &m->peers[row];
    return service == SERVICE_CALL ||
           (p->has_beat && p->beat.relays && members_dialable(p));
}

static void over_add(struct members *m,
                     struct over *o,
                     int row,
                     int peer,
                     enum members_service service)
{
    for (uint32_t i = 0; i < o->n; i++) {
        if (o->rows[i] == row) {
            return;
        }
    }
    if (members_serves(m, row, peer, service)) {
        o->rows[o->n++] = row;
    }
}

/* Members of the view say whom they hear. Of others only hearsay is known: who
 * told of the peer is linked to it, perhaps, and so is any neighbour. */
int members_pick_via(struct members *m, int peer, enum members_service service)
{
    struct member_way *w = &m->peers[peer].way;
    struct over o = {0};

    for (uint32_t i = 0; i < m->n_watch; i++) {
        if (members_says_hears(m, i, peer)) {
            over_add(m, &o, m->watch[i], peer, service);
        }
    }
    for (int k = 0; k < MEMBERS_VIA_MAX && o.n == 0; k++) {
        over_add(m, &o, w->via[k], peer, service);
    }
    for (int k = 0; k < MEMBERS_ACTIVE_MAX && !m->peers[peer].watched; k++) {
        over_add(m, &o, m->active[k], peer, service);
    }
    return o.n == 0 ? MEMBERS_NONE : o.rows[w->next_via++ % o.n];
}

/* ---- the ways ----------------------------------------------------------- */

void members_call(
    struct members *m, int peer, int via, bool bulk, struct out *out)
{
    struct call msg = {.to = m->peers[peer].id, .bulk = bulk};

    (void)members_send(m, out, via, MESSAGE_CALL, &msg);
}

static void dial_relay(
    struct members *m, int peer, int via, uint64_t now_ms, struct out *out)
{
    struct member *p = &m->peers[peer];
    struct action *a = out_add(out, ACTION_DIAL);

    if (a != NULL) {
        a->dial.request = REQUEST_RELAY + (uint64_t)peer;
        a->dial.peer = p->id;
        a->dial.relay = m->peers[via].id;
        a->dial.address = m->peers[via].address;
        p->way.relaying = true;
        p->way.relay_at_ms = now_ms;
    }
}

static void sooner(const struct members *m, uint64_t *due, uint64_t at)
{
    if (at > m->now_ms && at < *due) {
        *due = at;
    }
}

void members_ways_due(struct members *m,
                      int peer,
                      uint64_t *due,
                      struct out *out)
{
    uint64_t now_ms = m->now_ms;
    struct member *p = &m->peers[peer];
    struct member_way *w = &p->way;
    bool silent = p->dialing && now_ms - w->dial_began_ms >= m->opt.hedge_ms;
    bool dialled = p->backoff_ms > 0 && !members_dial_refused(p->dial_rc);
    bool alone = undialable(m->reach); /* nobody can dial us either */
    int via;

    if (members_dialable(p) && p->address.port != 0 && !silent && !dialled) {
        if (p->dialing) {
            sooner(m, due, w->dial_began_ms + m->opt.hedge_ms);
        }
        return;
    }
    if (!alone && now_ms >= w->call_at_ms) {
        via = members_pick_via(m, peer, SERVICE_CALL);
        if (via != MEMBERS_NONE) {
            members_call(m, peer, via, false, out);
            w->called = true;
            w->call_at_ms = now_ms + CALL_MS;
            if (w->relay_at_ms < now_ms + m->opt.hedge_ms) {
                w->relay_at_ms = now_ms + m->opt.hedge_ms;
            }
        }
    }
    if (!w->relaying && now_ms >= w->relay_at_ms &&
        id_cmp(&m->opt.self, &p->id) > 0) {
        via = members_pick_via(m, peer, SERVICE_CARRY);
        if (via != MEMBERS_NONE) {
            dial_relay(m, peer, via, now_ms, out);
        }
    }
    sooner(m, due, w->call_at_ms);
    sooner(m, due, w->relay_at_ms);
}

/* Neither end dialled the other: through a relay, or by a meeting. */
static bool is_around(struct members *m, int peer)
{
    return members_relayed(m, peer) || members_punched(m, peer);
}

void members_upgrade_due(struct members *m,
                         int peer,
                         uint64_t now_ms,
                         struct out *out)
{
    struct member *p = &m->peers[peer];
    struct member_way *w = &p->way;

    if (!is_around(m, peer)) {
        w->upgrade_at_ms = 0;
        return;
    }
    members_punch_due(m, peer, now_ms, out);
    if (w->upgrade_at_ms == 0) {
        w->upgrade_at_ms = now_ms + m->opt.upgrade_ms;
    }
    if (now_ms < w->upgrade_at_ms || p->dialing) {
        return;
    }
    w->upgrade_at_ms = now_ms + m->opt.upgrade_ms;
    if (members_dialable(p) && p->address.port != 0) {
        struct action *a =
            members_may_dial(m, peer) ? out_add(out, ACTION_DIAL) : NULL;

        if (a != NULL) {
            a->dial.request = (uint64_t)peer;
            a->dial.peer = p->id;
            a->dial.address = p->address;
            p->dialing = true;
            w->dial_began_ms = now_ms;
        }
    } else if (!undialable(m->reach)) {
        members_call(m, peer, peer, false, out);
    }
}

bool members_way_done(struct members *m,
                      uint64_t request,
                      bool up,
                      uint64_t now_ms)
{
    if (request >= REQUEST_PUNCH) {
        if (request - REQUEST_PUNCH < m->n_peers) {
            members_punch_done(m, (int)(request - REQUEST_PUNCH), up, now_ms);
        }
        return true;
    }
    if (request >= REQUEST_NEARBY) {
        uint64_t k = request - REQUEST_NEARBY;

        if (k < m->n_nearby) {
            m->nearby[k].dialing = false;
            m->nearby[k].failures += !up;
            m->nearby[k].dial_at_ms = up ? CORE_NEVER : now_ms + NEARBY_MS;
        }
        return true;
    }
    if (request >= REQUEST_RELAY) {
        uint64_t i = request - REQUEST_RELAY;

        if (i < m->n_peers) {
            struct member_way *w = &m->peers[i].way;

            w->relaying = false;
            w->relay_backoff_ms = up ? 0
                                  : w->relay_backoff_ms == 0
                                      ? RELAY_MIN_MS
                                      : w->relay_backoff_ms * 2;
            if (w->relay_backoff_ms > RELAY_MAX_MS) {
                w->relay_backoff_ms = RELAY_MAX_MS;
            }
            w->relay_at_ms = now_ms + w->relay_backoff_ms;
        }
        return true;
    }
    return false;
}

/* ---- messages ----------------------------------------------------------- */

/* The sender cannot dial us. */
static void called_by(
    struct members *m, int peer, bool bulk, uint64_t now_ms, struct out *out)
{
    struct member *p = &m->peers[peer];

    if (bulk) {
        members_bulk_called(m, peer, now_ms, out);
    } else if (is_around(m, peer)) {
        p->way.reach = REACH_UNKNOWN; /* it thinks so */
        p->way.upgrade_at_ms = now_ms;
        m->due_ms = 0;
    }
}

void members_on_call(struct members *m,
                     int peer,
                     const struct call *msg,
                     uint64_t now_ms,
                     struct out *out)
{
    const struct member *from = &m->peers[peer];
    struct called on = {.from = from->id};
    int to = members_find(m, &msg->to);

    if (id_eq(&msg->to, &m->opt.self)) {
        called_by(m, peer, msg->bulk, now_ms, out);
        return;
    }
    /* Passed on once: to a peer of our own, with the address that we see. */
    if (to == MEMBERS_NONE || to == peer || !members_linked(m, to) ||
        members_relayed(m, to) || members_relayed(m, peer) ||
        from->address.port == 0) {
        return;
    }
    memcpy(on.address.ip, from->address.ip, sizeof on.address.ip);
    on.address.port = from->address.port;
    (void)members_send(m, out, to, MESSAGE_CALLED, &on);
}

/* Of two others: who says RESTRICTED has no link through a relay. */
bool members_apart(struct members *m, int a, int b)
{
    int peer = a == MEMBERS_NONE ? b : a;
    const struct members_link *l;

    if (a != MEMBERS_NONE && b != MEMBERS_NONE) {
        return m->peers[a].way.reach == REACH_RELAYED &&
               m->peers[b].way.reach == REACH_RELAYED;
    }
    if (peer == MEMBERS_NONE || !undialable(m->reach) ||
        !undialable(m->peers[peer].way.reach)) {
        return false;
    }
    l = members_link_of_peer(m, peer);
    return l == NULL || l->relayed;
}

uint32_t members_n_apart(struct members *m, uint32_t *relays)
{
    uint32_t n = 0;

    *relays = 0;
    for (uint32_t i = 0; i < m->n_peers; i++) {
        const struct member *p = &m->peers[i];

        n += (p->watched || p->guest) && p->n_links == 0 &&
             members_apart(m, MEMBERS_NONE, (int)i);
        *relays += p->n_links > 0 &&
                   members_serves(m, (int)i, MEMBERS_NONE, SERVICE_CARRY);
    }
    return n;
}

/* ---- the LAN ------------------------------------------------------------ */

void members_nearby(struct members *m,
                    const struct address *address,
                    uint64_t now_ms)
{
    m->due_ms = 0;
    for (uint32_t i = 0; i < m->n_peers; i++) {
        if (m->peers[i].used && m->peers[i].n_links > 0 &&
            address_eq(&m->peers[i].address, address)) {
            return;
        }
    }
    for (unsigned k = 0; k < m->n_nearby; k++) {
        struct members_nearby *b = &m->nearby[k];

        if (address_eq(&b->address, address)) {
            if (b->dial_at_ms == CORE_NEVER || b->failures > NEARBY_TRIES) {
                b->dial_at_ms = now_ms;
                b->failures = 0;
            }
            return;
        }
    }
    for (unsigned k = 0; k < MEMBERS_NEARBY_MAX; k++) {
        struct members_nearby *b = &m->nearby[k];

        /* A free row, or one of an address where nobody was, or that is done:
         * eight that answered would keep out every later one. */
        if (k == m->n_nearby ||
            (!b->dialing &&
             (b->failures > NEARBY_TRIES || b->dial_at_ms == CORE_NEVER))) {
            m->n_nearby += k == m->n_nearby;
            *b = (struct members_nearby){.address = *address,
                                         .dial_at_ms = now_ms};
            return;
        }
    }
}

void members_nearby_due(struct members *m, uint64_t now_ms, struct out *out)
{
    for (unsigned k = 0; k < m->n_nearby; k++) {
        struct members_nearby *b = &m->nearby[k];
        struct action *a;

        if (b->dialing || now_ms < b->dial_at_ms ||
            b->failures > NEARBY_TRIES) {
            continue;
        }
        a = out_add(out, ACTION_DIAL);
        if (a != NULL) {
            a->dial.request = REQUEST_NEARBY + k;
            a->dial.address = b->address;
            b->dialing = true;
        }
    }
}
