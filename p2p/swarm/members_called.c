/* members_called.c - somebody says that a peer waits for us to dial it.
 *
 * CALLED names any id and any address: one small message is one connection to
 * whom the sender likes. So
 *   - an address of a private network counts only if the sender has one, too:
 *     nobody outside points us at a machine of our LAN;
 *   - a member of the view has CALLED_OF_MEMBER connections in CALLED_MS, which
 *     is each other member once; all others together have CALLED_OF_OTHERS.
 * What is over that is counted and dropped: the caller calls again every 2 s.
 * Who is called to a meeting comes only for a peer that has a link to it
 * already, through a relay or by a meeting, and only to the relay of that link
 * or to a peer that serves as one: members_punch.c.
 */
#include "p2p/swarm/members_internal.h"

#include <string.h>

#include "p2p/swarm/reach.h"

#define CALLED_MS        4000
#define CALLED_OF_MEMBER 64
#define CALLED_OF_OTHERS 16

bool members_take(struct members_calls *c,
                  uint32_t most,
                  uint32_t window_ms,
                  uint64_t now_ms)
{
    if (c->n == 0 || now_ms - c->since_ms >= window_ms) {
        *c = (struct members_calls){.since_ms = now_ms};
    }
    if (c->n >= most) {
        return false;
    }
    c->n++;
    return true;
}

static bool within_budget(struct members *m, int peer, uint64_t now_ms)
{
    struct member *p = &m->peers[peer];
    bool member = p->watched || p->named;

    if (member
            ? members_take(&p->way.calls, CALLED_OF_MEMBER, CALLED_MS, now_ms)
            : members_take(&m->calls, CALLED_OF_OTHERS, CALLED_MS, now_ms)) {
        return true;
    }
    m->counts.refused++;
    return false;
}

static void come(const struct members *m,
                 int relay,
                 const struct called *msg,
                 struct out *out)
{
    struct action *a = out_add(out, ACTION_RELAY_COME);

    if (a != NULL) {
        a->relay_come.relay = m->peers[relay].id;
        a->relay_come.address = m->peers[relay].address;
        a->relay_come.peer = msg->from;
        a->relay_come.token = msg->token;
        a->relay_come.meet = msg->address.port != 0;
    }
}

static const struct address *named(const struct called *msg, struct address *a)
{
    *a = (struct address){.port = msg->address.port};
    memcpy(a->ip, msg->address.ip, sizeof a->ip);
    return a;
}

/* The address of the caller, if the peer may name that one. */
static bool
names(const struct member *by, const struct called *msg, struct address *a)
{
    (void)named(msg, a);
    return a->port != 0 &&
           (reach_is_global(a) || !reach_is_global(&by->address));
}

/* Whether we come to that meeting. */
static bool comes(struct members *m, int by, int row, const struct address *a)
{
    const struct members_link *l =
        row == MEMBERS_NONE ? NULL : members_link_of_peer(m, row);

    return l != NULL && (l->relayed || l->punched) && members_meets(m, row) &&
           members_may_introduce(m, by, row) &&
           members_may_name(&m->peers[by], a);
}

void members_on_called(struct members *m,
                       int peer,
                       const struct called *msg,
                       uint64_t now_ms,
                       struct out *out)
{
    int row = members_find(m, &msg->from);
    struct address a;
    struct member *p;

    if (members_relayed(m, peer) || id_eq(&msg->from, &m->opt.self)) {
        return;
    }
    if (msg->token != 0) {
        if ((msg->address.port == 0 || comes(m, peer, row, named(msg, &a))) &&
            within_budget(m, peer, now_ms)) {
            come(m, peer, msg, out);
        }
        return;
    }
    if (row != MEMBERS_NONE &&
        (m->peers[row].n_links > 0 || m->peers[row].dialing)) {
        return;
    }
    if (!names(&m->peers[peer], msg, &a) || !within_budget(m, peer, now_ms)) {
        return;
    }
    row = members_learn(m, &msg->from, &a, now_ms);
    if (row == MEMBERS_NONE) {
        return;
    }
    p = &m->peers[row];
    members_want(m, row, true);
    p->way.reach = REACH_UNKNOWN; /* it thinks that it can be dialled */
    if (p->backoff_ms < DIAL_BACKOFF_MAX_MS) {
        p->dial_at_ms = now_ms;
    }
    m->due_ms = 0;
}
