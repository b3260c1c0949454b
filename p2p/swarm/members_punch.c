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
 *   - for one that introduces us MEETS_OF_RELAY times an hour if it is of our
 *     view or a guest, all guests together MEETS_OF_GUESTS; else
 *     MEETS_OF_STRANGER, all of these together MEETS_OF_STRANGERS.
 * Where a link by a meeting is from that address already, the last two do not
 * count, and PROVEN_MAX is the limit. Who says the address is charged, not whom
 * it is said of. What is refused costs nothing. The peer that is named can use
 * up what its relay has: it asks for one meeting after the other.
 */
#include "p2p/swarm/members_internal.h"

#include <string.h>

#include "p2p/prefix.h"
#include "p2p/swarm/reach.h"
#include "proto/base/rng.h"

#define HOUR_MS            3600000U
#define MEETS_OF_RELAY     64
#define MEETS_OF_STRANGER  16
#define MEETS_OF_STRANGERS 64
#define MEETS_OF_GUESTS    256
#define PROVEN_MAX         256
#define PORT_MIN           1024
#define LASTS_MS           600000
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
    bool lasted = t->lasted_at_ms != 0 && now_ms >= t->lasted_at_ms;
    uint32_t next = lasted ? 0 : t->backoff_ms * 2;

    t->under_way = false;
    t->backoff_ms = next < least_ms              ? least_ms
                    : next < m->opt.punch_max_ms ? next
                                                 : m->opt.punch_max_ms;
    t->at_ms =
        now_ms + t->backoff_ms + rng_below(&m->rng, t->backoff_ms / 4 + 1);
    t->lasted_at_ms = made ? t->at_ms + LASTS_MS : 0;
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
        w->dialled = false;
    }
}

void members_punch_done(struct members *m, int peer, bool up, uint64_t now_ms)
{
    struct member_way *w = &m->peers[peer].way;
    uint32_t least =
        up || w->dialled ? m->opt.punch_ms : m->opt.punch_ms / UNDIALLED;

    if (w->dialled) {
        members_dialled_at(m, &w->seen, up);
    }
    w->dialled = false;
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

/* Of who says it. */
static bool
within_budget(struct members *m, int by, bool proven, const struct address *a)
{
    struct member *b = &m->peers[by];
    bool ours = b->watched || b->named;
    struct members_meets *all = b->guest ? &m->guests_meets : &m->meets;
    struct members_calls *of_one = &b->way.meets.named;
    uint32_t most = ours || b->guest ? MEETS_OF_RELAY : MEETS_OF_STRANGER;
    uint32_t most_of_all = b->guest ? MEETS_OF_GUESTS : MEETS_OF_STRANGERS;

    if (proven) {
        return members_take(ours ? &b->way.meets.proven : &all->proven,
                            PROVEN_MAX, HOUR_MS, m->now_ms);
    }
    if (!members_take(of_one, most, HOUR_MS, m->now_ms)) {
        return false;
    }
    if (!ours && !members_take(&all->named, most_of_all, HOUR_MS, m->now_ms)) {
        of_one->n--;
        return false;
    }
    if (!members_may_dial_at(m, a)) { /* too many at once */
        of_one->n--;
        all->named.n -= !ours;
        return false;
    }
    return true;
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
          within_budget(m, by, is_proven(m, peer, to), to);
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
