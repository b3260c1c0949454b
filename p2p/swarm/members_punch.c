/* members_punch.c - a direct link between two peers that nobody can dial.
 *
 * A home router lets in only what answers. If both peers dial at the same
 * moment, each one's first packet is the question to which the other's is the
 * answer. Each must know the port that its router gives the other, so they
 * *meet* at a peer that both are linked to: each dials it anew from a fresh
 * port, it tells each where it sees the other, and from the same ports they
 * dial each other. No other connection needs a certain port: data connections
 * meet anew, with ports of their own (members_data.c).
 *
 * A link through a relay comes first and is not delayed. Over it both say that
 * they know meetings, and its relay is where they meet. The one with the higher
 * id asks at once, then after punch_ms, doubled up to punch_max_ms: also where
 * it worked, so that a hole that dies young is not made again and again. One
 * that lasted LASTS_MS begins anew. The relayed link goes when the new one
 * works at both ends (members_link.c).
 *
 * It works through routers that give one inner port one outer port, whomever it
 * talks to. Through others (symmetric NAT) the relay stays.
 *
 * Who lies at a meeting has us dial whom it likes. So we meet only at the relay
 * of a link that is relayed or came about by a meeting, or at a peer that
 * serves as a relay, for the peer of that link; and we dial (members_on_met)
 *   - unicast, not below PORT_MIN, where most services of third parties are;
 *   - of a private network only what is in the /24 of the one who names it;
 *   - within the budget of addresses that others name (members_budget.c);
 *   - so often an hour as members_meets.c says, for the one who names it.
 * Who says the address is charged, not whom it is said of. How a dial ended is
 * noted at both ends, so that an address at which nobody of the run answers is
 * dialled ever more seldom.
 */
#include "p2p/swarm/members_internal.h"

#include <string.h>

#include "p2p/prefix.h"
#include "p2p/swarm/reach.h"
#include "proto/base/rng.h"

#define PORT_MIN 1024
#define LASTS_MS 600000
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
    const struct members_link *l =
        m->n_punched == 0 ? NULL : members_link_of_peer(m, peer);

    return l != NULL && l->punched;
}

bool members_may_introduce(struct members *m, int by, int peer)
{
    const struct members_link *l =
        peer == MEMBERS_NONE ? NULL : members_link_of_peer(m, peer);

    return l != NULL && (l->relayed || l->punched) && members_meets(m, by) &&
           !members_relayed(m, by) &&
           (id_eq(&m->peers[by].id, &l->relay) ||
            members_serves(m, by, peer, SERVICE_MEET));
}

/* ---- when --------------------------------------------------------------- */

bool members_tries_may(const struct members_tries *t, uint64_t now_ms)
{
    return !t->under_way && now_ms >= t->at_ms;
}

void members_tries_over(struct members *m,
                        struct members_tries *t,
                        bool made,
                        uint32_t least_ms,
                        uint64_t now_ms)
{
    bool lasted = t->lasts_ms != 0 && t->alive_ms >= t->lasts_ms;
    uint32_t next = lasted ? 0 : t->backoff_ms * 2;

    t->under_way = false;
    t->over_ms = now_ms;
    t->backoff_ms = next < least_ms              ? least_ms
                    : next < m->opt.punch_max_ms ? next
                                                 : m->opt.punch_max_ms;
    t->at_ms =
        now_ms + t->backoff_ms + rng_below(&m->rng, t->backoff_ms / 4 + 1);
    t->lasts_ms = made ? t->at_ms + LASTS_MS : 0;
}

void members_hole_seen(struct members *m, const struct members_link *l)
{
    struct members_tries *t = &m->peers[l->peer].way.punch;

    if (l->punched && l->heard_ms > t->alive_ms) {
        t->alive_ms = l->heard_ms;
    }
}

/* One that is silent may still be open. */
static void holes_seen(struct members *m, int peer)
{
    for (uint32_t i = 0; i < m->n_links_used; i++) {
        if (m->links[i].used && m->links[i].peer == peer) {
            members_hole_seen(m, &m->links[i]);
        }
    }
}

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

    if (m->opt.punch_ms == 0 || l == NULL || !l->relayed ||
        !members_tries_may(&w->punch, now_ms) ||
        id_cmp(&m->opt.self, &p->id) < 0 || !members_meets(m, peer) ||
        !members_may_introduce(m, via, peer) ||
        !members_apart(m, MEMBERS_NONE, peer)) {
        return; /* a relay that we reach through another one may say any
                 * address to be its own */
    }
    a = out_add(out, ACTION_DIAL);
    if (a != NULL) {
        a->dial.request = REQUEST_PUNCH + (uint64_t)peer;
        a->dial.peer = p->id;
        a->dial.relay = m->peers[via].id;
        a->dial.address = m->peers[via].address;
        a->dial.meet = true;
        w->punch.under_way = true;
        w->punch_dialled = false;
        holes_seen(m, peer);
    }
}

void members_punch_done(struct members *m, int peer, bool up, uint64_t now_ms)
{
    struct member_way *w = &m->peers[peer].way;
    uint32_t least =
        up || w->punch_dialled ? m->opt.punch_ms : m->opt.punch_ms / UNDIALLED;

    members_tries_over(m, &w->punch, up, least, now_ms);
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
           (reach_is_global(a) || prefix_eq(a->ip, by->address.ip));
}

static bool is_proven(struct members *m, int peer, const struct address *a)
{
    const struct members_link *l = members_link_of_peer(m, peer);

    return l != NULL && l->punched &&
           memcmp(l->from.ip, a->ip, sizeof a->ip) == 0;
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
    may = a != NULL && members_may_introduce(m, by, peer) &&
          members_may_name(&m->peers[by], to) &&
          members_meets_take(m, by, is_proven(m, peer, to), to);
    if (a == NULL) {
        return; /* the shell gives it up after a time */
    }
    a->punch.meeting = met->meeting;
    a->punch.address = may ? *to : (struct address){0};
    m->counts.refused += !may;
    if (may && met->request == REQUEST_PUNCH + (uint64_t)peer) {
        m->peers[peer].way.punch_dialled = true;
    }
}

void members_on_punched(struct members *m,
                        const struct event_punched *punched,
                        uint64_t now_ms)
{
    m->now_ms = now_ms;
    members_dialled_at(m, &punched->address, punched->up);
}
