/* members_punch.c - a direct link between two peers that nobody can dial.
 *
 * A home router lets in only what answers. If both peers dial at the same
 * moment, each one's first packet is the question to which the other's is the
 * answer. Each must know the port that its router gives the other, so they
 * *meet* at a peer that both are linked to: each dials it anew from a fresh
 * port, it tells each where it sees the other, and from the same ports they
 * dial each other. No other connection needs a certain port: data connections
 * meet anew, with ports of their own.
 *
 *   link  a link through a relay comes first and is not delayed. Over it both
 *         say that they know meetings, and its relay is where they meet. The
 *         one with the higher id asks at once, then after punch_ms, doubled up
 *         to punch_max_ms. Both do without the relayed link when it worked
 *   data  of a link that came about so: they meet at the same peer again, or at
 *         another one that hears both
 *
 * It works through routers that give one inner port one outer port, whomever it
 * talks to. Through others (symmetric NAT) the relay stays.
 *
 * Who lies at a meeting has us dial whom it likes. So we come only to a peer
 * that we are linked to, for one that we are linked to through a relay or by a
 * meeting; and we dial (members_on_met)
 *   - unicast, not below PORT_MIN, where most services of third parties are;
 *   - of a private network only what a private peer names;
 *   - within the budget of addresses that others name (members_budget.c);
 *   - MEETS_OF_PEER times an hour for one peer, MEETS_OF_OTHERS for all peers
 *     together that are no members.
 * Only where a link by a meeting is from that address already the last two do
 * not count.
 */
#include "p2p/swarm/members_internal.h"

#include <string.h>

#include "p2p/prefix.h"
#include "p2p/swarm/reach.h"
#include "proto/base/rng.h"

#define HOUR_MS         3600000U
#define MEETS_OF_PEER   16
#define MEETS_OF_OTHERS 64
#define PORT_MIN        1024
/* Nobody was dialled: it is tried again so much sooner. */
#define UNDIALLED 8

void members_features(struct members *m, int peer, uint32_t bits)
{
    m->peers[peer].features = bits;
    m->due_ms = 0; /* a meeting may be due */
}

bool members_meets(const struct members *m, int peer)
{
    return peer != MEMBERS_NONE && members_linked(m, peer) &&
           (m->peers[peer].features & HELLO_MEETS) != 0;
}

bool members_punched(struct members *m, int peer)
{
    const struct members_link *l = members_link_of_peer(m, peer);

    return l != NULL && l->punched;
}

/* ---- a link ------------------------------------------------------------- */

void members_punch_due(struct members *m,
                       int peer,
                       uint64_t now_ms,
                       struct out *out)
{
    const struct members_link *l = members_link_of_peer(m, peer);
    struct member *p = &m->peers[peer];
    struct member_way *w = &p->way;
    int via = l == NULL ? MEMBERS_NONE : members_find(m, &l->relay);
    struct action *a;

    if (m->opt.punch_ms == 0 || w->meeting || now_ms < w->punch_at_ms ||
        id_cmp(&m->opt.self, &p->id) < 0 || !members_meets(m, peer) ||
        !members_meets(m, via) || !members_apart(m, MEMBERS_NONE, peer)) {
        return;
    }
    a = out_add(out, ACTION_DIAL);
    if (a != NULL) {
        a->dial.request = REQUEST_PUNCH + (uint64_t)peer;
        a->dial.peer = p->id;
        a->dial.relay = m->peers[via].id;
        a->dial.address = m->peers[via].address;
        a->dial.meet = true;
        w->meeting = true;
    }
}

void members_punch_done(struct members *m, int peer, bool up, uint64_t now_ms)
{
    struct member_way *w = &m->peers[peer].way;
    uint32_t least =
        up || w->dialled ? m->opt.punch_ms : m->opt.punch_ms / UNDIALLED;
    uint32_t next = up ? least : w->punch_backoff_ms * 2;

    if (w->dialled) {
        members_dialled_at(m, &w->seen, up);
    }
    w->meeting = w->dialled = false;
    w->punch_backoff_ms = next < least                 ? least
                          : next < m->opt.punch_max_ms ? next
                                                       : m->opt.punch_max_ms;
    w->punch_at_ms = now_ms + w->punch_backoff_ms +
                     rng_below(&m->rng, w->punch_backoff_ms / 4 + 1);
}

/* ---- data --------------------------------------------------------------- */

int members_meet_at(struct members *m, int peer)
{
    const struct members_link *l = members_link_of_peer(m, peer);
    int via = l == NULL ? MEMBERS_NONE : members_find(m, &l->relay);

    return members_meets(m, via) && members_serves(m, via, peer) ? via
                                                                 : MEMBERS_NONE;
}

/* ---- whom we dial ------------------------------------------------------- */

static bool is_loopback(const uint8_t ip[16])
{
    static const uint8_t one[16] = {[15] = 1};

    return prefix_is_v4(ip) ? ip[12] == 127 : memcmp(ip, one, sizeof one) == 0;
}

static bool is_unicast(const uint8_t ip[16])
{
    return prefix_is_v4(ip) ? ip[12] != 0 && ip[12] < 224
                            : !prefix_is_nowhere(ip) && ip[0] != 0xff;
}

bool members_may_name(const struct member *by, const struct address *a)
{
    return a->port >= PORT_MIN && is_unicast(a->ip) &&
           (!is_loopback(a->ip) || is_loopback(by->address.ip)) &&
           (reach_is_global(a) || !reach_is_global(&by->address));
}

static bool is_proven(struct members *m, int peer, const struct address *a)
{
    const struct members_link *l = members_link_of_peer(m, peer);

    return l != NULL && l->punched &&
           memcmp(l->from.ip, a->ip, sizeof a->ip) == 0;
}

static bool within_budget(struct members *m, int peer, const struct address *a)
{
    struct member *p = &m->peers[peer];

    return members_take(&p->way.meets, MEETS_OF_PEER, HOUR_MS, m->now_ms) &&
           (p->watched || p->named ||
            members_take(&m->meets, MEETS_OF_OTHERS, HOUR_MS, m->now_ms)) &&
           members_may_dial_at(m, a);
}

void members_on_met(struct members *m,
                    const struct event_met *met,
                    uint64_t now_ms,
                    struct out *out)
{
    int peer = members_find(m, &met->peer), by = members_find(m, &met->relay);
    const struct address *to = &met->address;
    struct action *a = out_add(out, ACTION_PUNCH);
    bool may;

    m->now_ms = now_ms;
    may = a != NULL && members_linked(m, peer) && members_linked(m, by) &&
          members_may_name(&m->peers[by], to) &&
          (is_proven(m, peer, to) || within_budget(m, peer, to));
    if (a == NULL) {
        return; /* the shell gives it up after a time */
    }
    a->punch.meeting = met->meeting;
    a->punch.address = may ? *to : (struct address){0};
    m->counts.refused += !may;
    if (may) {
        m->peers[peer].way.seen = *to;
        m->peers[peer].way.dialled = true;
    }
}
