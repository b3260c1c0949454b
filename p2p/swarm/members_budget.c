/* members_budget.c - what strangers may cost.
 *
 * A stranger's frame is charged before it is decoded, and each signature that
 * it made us verify is charged when that was done. Who has used up its budget,
 * or where all strangers have, its frames are dropped before they cost more;
 * those that cost no signature pass while there are bytes. What was answered
 * at once is charged as well: a short question may have a long answer. Not so
 * the bytes of a FETCH, which have a limit of their own. See budget.h.
 *
 * An address that others only name is dialled seldom: whoever owns it may have
 * nothing to do with the run, and all peers of a swarm hear the same name. Not
 * so where a link was, or where our own view says that a member is.
 *
 * A bad signature counts as forged only if it should be the sender's own: an
 * honest peer passes on certificates that somebody else spoilt. So does a JOIN
 * with a wrong proof of the state. Who forged FORGED_MAX is hung up, and its
 * group of addresses of the internet waits for WAIT_MS. Behind a private
 * address many are honest: there one peer waits.
 */
#include <string.h>

#include "p2p/prefix.h"
#include "p2p/swarm/members_internal.h"
#include "p2p/swarm/reach.h"

#define FORGED_MAX 3
#define WAIT_MS    600000
/* What the shortest frame costs, in bytes: a step of the node takes some 50 us
 * of a core, so 2,000 a second are a tenth of it. */
#define FRAME_COST_BYTES 512
/* Between two dials of one address that strangers name; twice as long after
 * each one in vain, so often at most. */
#define REDIAL_MS      60000
#define REDIAL_DOUBLED 5 /* 16 min */
/* Dials in REDIAL_MS of one network of the internet that nobody answers. */
#define UNANSWERED_MAX 8

static bool is_ours(const struct members *m, const struct member *p)
{
    if (p->watched || p->named) {
        return true;
    }
    for (unsigned i = 0; i < m->n_bootstrap; i++) {
        if (id_eq(&m->bootstrap[i].id, &p->id)) {
            return true;
        }
    }
    return false;
}

static bool is_known(const struct members *m, const struct members_link *l)
{
    return l->trusted || is_ours(m, &m->peers[l->peer]);
}

/* ---- groups of addresses ------------------------------------------------ */

static bool is_from(const struct members_group *g, const struct address *a)
{
    return g->used &&
           (reach_is_global(a)
                ? reach_is_global(&g->from) && prefix_eq(g->from.ip, a->ip)
                : memcmp(g->from.ip, a->ip, sizeof a->ip) == 0);
}

static const struct members_group *group_find(const struct members *m,
                                              const struct address *from)
{
    for (uint32_t i = 0; i < MEMBERS_GROUPS_MAX; i++) {
        if (is_from(&m->strangers.groups[i], from)) {
            return &m->strangers.groups[i];
        }
    }
    return NULL;
}

/* The row for it; one that waits is given up last. */
static struct members_group *group_take(struct members *m,
                                        const struct address *from)
{
    struct members_group *g = &m->strangers.groups[0];

    for (uint32_t i = 0; i < MEMBERS_GROUPS_MAX; i++) {
        struct members_group *k = &m->strangers.groups[i];
        bool waits = k->until_ms > m->now_ms;
        bool g_waits = g->until_ms > m->now_ms;

        if (is_from(k, from)) {
            return k;
        }
        if (waits != g_waits ? g_waits : k->at_ms < g->at_ms) {
            g = k;
        }
    }
    *g = (struct members_group){.used = true, .from = *from};
    return g;
}

void members_refused(struct members *m,
                     const struct address *from,
                     enum stranger_refusal why)
{
    struct members_group *g = group_take(m, from);

    g->at_ms = m->now_ms;
    g->refused[why]++;
    m->counts.stranger_refused[why]++;
    if (why == STRANGER_SIGNATURES || why == STRANGER_BYTES ||
        why == STRANGER_FETCH) {
        m->counts.stranger_frames++;
    } else {
        m->counts.strangers++;
    }
}

/* The row of that group among the first n; n: it has none. */
static uint32_t
row_of(const struct strangers_row *rows, uint32_t n, const struct address *from)
{
    for (uint32_t i = 0; i < n; i++) {
        const struct members_group g = {.used = true, .from = rows[i].from};

        if (is_from(&g, from)) {
            return i;
        }
    }
    return n;
}

uint32_t members_strangers(const struct members *m,
                           struct strangers_row *rows,
                           uint32_t max)
{
    uint32_t n = 0, at;

    for (uint32_t i = 0; i < MEMBERS_GROUPS_MAX && n < max; i++) {
        const struct members_group *g = &m->strangers.groups[i];

        if (g->used) {
            rows[n] = (struct strangers_row){.from = g->from};
            rows[n].waits_ms =
                g->until_ms > m->now_ms ? g->until_ms - m->now_ms : 0;
            memcpy(rows[n].refused, g->refused, sizeof g->refused);
            n++;
        }
    }
    for (uint32_t i = 0; i < m->n_links_used; i++) {
        const struct members_link *l = &m->links[i];

        if (!l->used || is_known(m, l)) {
            continue;
        }
        at = row_of(rows, n, &l->from);
        if (at == n) {
            if (n == max) {
                continue;
            }
            rows[n++] = (struct strangers_row){.from = l->from};
        }
        rows[at].n_links++;
        rows[at].n_overdrawn += budget_is_overdrawn(&l->budget, m->now_ms);
    }
    return n;
}

bool members_is_ours(const struct members *m, int peer)
{
    return is_ours(m, &m->peers[peer]);
}

struct peer_id members_group(struct members *m, int peer)
{
    const struct members_link *l = members_link_of_peer(m, peer);
    struct peer_id group = m->peers[peer].id;

    if (l != NULL && l->relayed) {
        return l->relay;
    }
    if (l != NULL && reach_is_global(&l->from)) {
        /* An id is a hash: none begins with zeros. */
        memset(&group, 0, sizeof group);
        memcpy(group.b + sizeof group.b - sizeof l->from.ip, l->from.ip,
               prefix_bytes(l->from.ip));
    }
    return group;
}

void members_fetch_refused(struct members *m, int peer)
{
    const struct members_link *l = members_link_of_peer(m, peer);

    if (l != NULL) {
        members_refused(m, &l->from, STRANGER_FETCH);
    }
}

bool members_waits(const struct members *m,
                   int peer,
                   const struct address *from)
{
    const struct members_group *g =
        reach_is_global(from) ? group_find(m, from) : NULL;

    return m->peers[peer].wait_until_ms > m->now_ms ||
           (g != NULL && g->until_ms > m->now_ms);
}

/* ---- dials -------------------------------------------------------------- */

static struct members_dialled *dialled_at(struct members *m,
                                          const struct address *a)
{
    for (uint32_t i = 0; i < MEMBERS_DIALLED_MAX; i++) {
        struct members_dialled *d = &m->strangers.dialled[i];

        if (d->at_ms != 0 && address_eq(&d->address, a)) {
            return d;
        }
    }
    return NULL;
}

/* Of the last REDIAL_MS, in the /24 or /48 of that address: dials that nobody
 * of the run answered. Behind a private address are others' machines only where
 * we are, too. */
static uint32_t n_unanswered(const struct members *m, const struct address *a)
{
    uint32_t n = 0;

    for (uint32_t i = 0; i < MEMBERS_DIALLED_MAX && reach_is_global(a); i++) {
        const struct members_dialled *d = &m->strangers.dialled[i];

        n += d->at_ms != 0 && !d->up && m->now_ms - d->at_ms < REDIAL_MS &&
             prefix_eq(d->address.ip, a->ip);
    }
    return n;
}

/* The one that may be forgotten first: what fails often is remembered. */
static struct members_dialled *dialled_take(struct members *m)
{
    struct members_dialled *d = &m->strangers.dialled[0];

    for (uint32_t i = 1; i < MEMBERS_DIALLED_MAX; i++) {
        if (m->strangers.dialled[i].until_ms < d->until_ms) {
            d = &m->strangers.dialled[i];
        }
    }
    *d = (struct members_dialled){0};
    return d;
}

bool members_may_dial_at(struct members *m, const struct address *a)
{
    struct members_dialled *d = dialled_at(m, a);

    if ((d != NULL && m->now_ms < d->until_ms) ||
        n_unanswered(m, a) >= UNANSWERED_MAX ||
        !budget_take(&m->strangers.budget, BUDGET_DIALS, m->now_ms)) {
        m->counts.stranger_dials++;
        return false;
    }
    d = d != NULL ? d : dialled_take(m);
    d->address = *a;
    d->at_ms = m->now_ms;
    d->until_ms = m->now_ms + REDIAL_MS;
    d->up = false;
    return true;
}

bool members_may_dial(struct members *m, int peer)
{
    const struct member *p = &m->peers[peer];

    if (!p->hearsay && (p->guest || is_ours(m, p))) {
        return true;
    }
    if (members_waits(m, peer, &p->address)) {
        return false;
    }
    return address_eq(&p->address, &p->met) ||
           members_may_dial_at(m, &p->address);
}

void members_dialled(struct members *m, uint64_t request, bool up)
{
    if (request < m->n_peers) {
        members_dialled_at(m, &m->peers[request].address, up);
    }
}

void members_dialled_at(struct members *m, const struct address *a, bool up)
{
    struct members_dialled *d = dialled_at(m, a);

    if (d == NULL || m->now_ms - d->at_ms >= REDIAL_MS) {
        return;
    }
    d->up = up;
    d->failures = up ? 0 : d->failures + (d->failures < REDIAL_DOUBLED);
    if (!up) {
        d->until_ms = m->now_ms + (REDIAL_MS << (d->failures - 1));
    }
}

/* ---- links -------------------------------------------------------------- */

void members_trust_tick(struct members *m, struct out *out)
{
    for (uint32_t i = 0; i < m->n_links_used; i++) {
        struct members_link *l = &m->links[i];
        bool known = l->used && !l->closing && is_known(m, l);
        struct action *a = known == l->told || !l->used || l->closing
                               ? NULL
                               : out_add(out, ACTION_TRUST);

        if (a != NULL) {
            a->trust = (struct action_trust){.link = l->link, .trusted = known};
            l->told = known;
        }
    }
}

void members_link_full(struct members *m, uint32_t link)
{
    const struct members_link *l = members_link_find(m, link);

    if (l != NULL && !l->told) {
        members_refused(m, &l->from, STRANGER_QUEUE);
    }
}

/* ---- frames and signatures ---------------------------------------------- */

/* Whether the handler of such a frame verifies nothing. */
static bool is_unsigned(uint16_t type)
{
    switch (type) {
    case MESSAGE_HELLO:
    case MESSAGE_HEARTBEAT:
    case MESSAGE_PULSE:
    case MESSAGE_NEIGHBOUR:
    case MESSAGE_SHUFFLE:
    case MESSAGE_GOSSIP:
    case MESSAGE_GET_MANIFEST:
    case MESSAGE_MANIFEST:
    case MESSAGE_GET_VIEW:
    case MESSAGE_LINEAGE:
    case MESSAGE_GET_PROOF:
    case MESSAGE_GET_COMMIT:
    case MESSAGE_FETCH:
    case MESSAGE_FETCH_NO:
    case MESSAGE_PROBE:
    case MESSAGE_PROBED:
    case MESSAGE_CALL:
    case MESSAGE_CALLED:
        return true;
    default:
        return false;
    }
}

bool members_affords(struct members *m,
                     const struct event_recv *frame,
                     bool trusted,
                     uint64_t now_ms)
{
    struct members_link *l = members_link_find(m, frame->link);

    if (l == NULL) {
        return true; /* not let in: its first bad frame is its last */
    }
    m->now_ms = now_ms;
    l->trusted = trusted;
    if (is_known(m, l)) {
        return true;
    }
    if (!budget_allows(&m->strangers.budget, &l->budget, BUDGET_BYTES,
                       now_ms)) {
        members_refused(m, &l->from, STRANGER_BYTES);
        return false;
    }
    budget_use(&m->strangers.budget, &l->budget, BUDGET_BYTES,
               frame->len + FRAME_COST_BYTES, now_ms);
    if (!is_unsigned(frame->message) &&
        !budget_allows(&m->strangers.budget, &l->budget, BUDGET_SIGNATURES,
                       now_ms)) {
        members_refused(m, &l->from, STRANGER_SIGNATURES);
        return false;
    }
    return true;
}

void members_answered(struct members *m,
                      uint32_t link,
                      uint32_t frames,
                      uint64_t bytes)
{
    struct members_link *l = members_link_find(m, link);

    if (l != NULL && !is_known(m, l)) {
        budget_answered(&m->strangers.budget, &l->budget,
                        bytes + (uint64_t)frames * FRAME_COST_BYTES, m->now_ms);
    }
}

void members_forged(struct members *m, uint32_t link, struct out *out)
{
    struct members_link *l = members_link_find(m, link);
    struct member *p;

    if (l == NULL || is_known(m, l) || ++l->n_forged < FORGED_MAX ||
        l->closing) {
        return;
    }
    p = &m->peers[l->peer];
    members_refused(m, &l->from, STRANGER_FORGED);
    p->wait_until_ms = m->now_ms + WAIT_MS;
    if (reach_is_global(&l->from)) {
        group_take(m, &l->from)->until_ms = m->now_ms + WAIT_MS;
    }
    members_hang_up(m, l, out);
}

void members_verified(struct members *m,
                      uint32_t link,
                      const uint8_t public_key[32],
                      bool good,
                      struct out *out)
{
    struct members_link *l = members_link_find(m, link);
    const struct member *p;

    if (l == NULL || is_known(m, l)) {
        return;
    }
    m->counts.stranger_signatures++;
    budget_use(&m->strangers.budget, &l->budget, BUDGET_SIGNATURES, 1,
               m->now_ms);
    p = &m->peers[l->peer];
    if (!good && memcmp(p->public_key, public_key, sizeof p->public_key) == 0) {
        members_forged(m, link, out);
    }
}
