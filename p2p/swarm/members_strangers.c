/* members_strangers.c - which links strangers may hold.
 *
 * A *stranger* dialled us, and nothing of ours needs it: it is no member of the
 * view, no guest, no neighbour, and we did not look for it. Ids are free, so
 * one machine could fill the table of links, and nobody else would come in.
 *
 *   - LINKS_RESERVED links are for all others;
 *   - one group of addresses of the internet (IPv4 /24, IPv6 /48) holds at most
 *     STRANGERS_OF_GROUP_MAX. Behind one router, or on one machine, many are
 *     honest;
 *   - where strangers hold all that they may, the next one takes the place of
 *     one of the largest group: so whoever comes from elsewhere stays. It is
 *     the one that has been there for longest, who fetches last: a newcomer has
 *     some seconds to ask for what it needs, and the time to fetch it. But who
 *     fetches holds half of these links at most: else strangers that fetch a
 *     little each would leave no second to the next newcomer.
 */
#include "p2p/prefix.h"
#include "p2p/swarm/members_internal.h"
#include "p2p/swarm/reach.h"

/* A piece on a slow line takes so long. */
#define SERVED_MS 10000

#define STRANGERS_MAX (LINKS_MAX - LINKS_RESERVED)

bool members_needs(const struct member *p)
{
    return p->watched || p->named || p->guest || p->active || p->wanted;
}

static bool is_stranger(const struct members *m, const struct members_link *l)
{
    return l->used && !l->closing && l->inbound &&
           !members_needs(&m->peers[l->peer]);
}

/* Strangers with a link from the group of that address. */
static uint32_t n_of_group(const struct members *m, const struct address *from)
{
    uint32_t n = 0;

    for (uint32_t i = 0; i < m->n_links_used; i++) {
        n += is_stranger(m, &m->links[i]) &&
             prefix_eq(from->ip, m->links[i].from.ip);
    }
    return n;
}

static bool is_served(const struct members *m, const struct members_link *l)
{
    return l->served_ms != 0 && m->now_ms - l->served_ms < SERVED_MS;
}

static bool too_many_are_served(const struct members *m)
{
    uint32_t n = 0;

    for (uint32_t i = 0; i < m->n_links_used; i++) {
        n += is_stranger(m, &m->links[i]) && is_served(m, &m->links[i]);
    }
    return n > STRANGERS_MAX / 2;
}

static bool goes_before(const struct members *m,
                        const struct members_link *l,
                        const struct members_link *other,
                        bool served_first)
{
    if (is_served(m, l) != is_served(m, other)) {
        return is_served(m, l) == served_first;
    }
    return l->since_ms < other->since_ms;
}

/* Who makes room: one of the largest group; NULL: no stranger has a link. */
static struct members_link *one_of_largest(struct members *m)
{
    bool served_first = too_many_are_served(m);
    struct members_link *found = NULL;
    uint32_t most = 0;

    for (uint32_t i = 0; i < m->n_links_used; i++) {
        struct members_link *l = &m->links[i];
        bool alike = found != NULL && prefix_eq(l->from.ip, found->from.ip);
        uint32_t n = !is_stranger(m, l) ? 0
                     : alike            ? most /* already counted */
                                        : n_of_group(m, &l->from);

        if (n > most ||
            (n == most && n > 0 && goes_before(m, l, found, served_first))) {
            most = n;
            found = l;
        }
    }
    return found;
}

void members_fetch_served(struct members *m, int peer, uint64_t bytes)
{
    struct members_link *l = members_link_of_peer(m, peer);

    if (l != NULL) {
        l->served_ms = m->now_ms;
        budget_served(&l->budget, bytes, m->now_ms);
    }
}

bool members_may_be_at(const struct members *m,
                       uint32_t link,
                       const uint8_t ip[16])
{
    for (uint32_t i = 0; i < m->n_links_used; i++) {
        const struct members_link *l = &m->links[i];

        if (l->used && l->link == link) {
            return l->relayed || !reach_is_global(&l->from) ||
                   prefix_eq(l->from.ip, ip);
        }
    }
    return true;
}

bool members_stranger_may(struct members *m,
                          int peer,
                          const struct address *from,
                          struct out *out)
{
    struct members_link *l;
    uint32_t n = 0;

    if (members_waits(m, peer, from)) {
        members_refused(m, from, STRANGER_WAITS);
        return false;
    }
    for (uint32_t i = 0; i < m->n_links_used; i++) {
        n += is_stranger(m, &m->links[i]);
    }
    if (reach_is_global(from) &&
        n_of_group(m, from) >= STRANGERS_OF_GROUP_MAX) {
        members_refused(m, from, STRANGER_LINKS);
        return false;
    }
    l = n >= STRANGERS_MAX ? one_of_largest(m) : NULL;
    if (l != NULL) {
        members_refused(m, &l->from, STRANGER_LINKS);
        members_hang_up(m, l, out);
    }
    return true;
}
