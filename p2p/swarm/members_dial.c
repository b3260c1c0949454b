/* members_dial.c - whom to dial, and when again.
 *
 * Watched, wanted and guest peers are dialled whenever they have no link,
 * bootstrap addresses while nobody is linked or until each was reached once;
 * possible neighbours and probes when members_active.c says so. A dial is named
 * by its row; above REQUEST_BOOTSTRAP by the number of the bootstrap address. A
 * failed one is tried again with back-off. Whoever says that it cannot be
 * dialled is not; what is done then, and when a dial gets no answer, is in
 * members_reach.c.
 *
 * Codes: the system's pass through as libuv gives them, -errno; the deadline of
 * a dial and what the handshake found are ours.
 */
#include "p2p/swarm/members_internal.h"

#include <errno.h>

#include "proto/base/err.h"
#include "proto/base/rng.h"

#define DIAL_BACKOFF_MIN_MS 300
/* Where the peer was never met: it may have named the address of somebody that
 * has nothing to do with it, and all members dial there. */
#define UNMET_BACKOFF_MS 60000
/* The peer with the higher id dials first; the other one only if that did not
 * help, so that two peers rarely open two links at once. */
#define DIAL_POLITE_MS 400

struct dial_code {
    int rc;
    const char *text, *lost;
};

static const struct dial_code dial_codes[] = {
    {0, "not tried yet", "connection lost"},
    {-ECONNREFUSED, "refused", "connection closed and refused"},
    {LOCO_ETIMEOUT, "timed out", "connection lost, dialling times out"},
    {-ETIMEDOUT, "timed out", "connection lost, dialling times out"},
    {-EHOSTUNREACH, "no route to it", "connection lost, no route to it"},
    {-ENETUNREACH, "no route to it", "connection lost, no route to it"},
    {LOCO_EPROTO, "handshake failed", "connection lost, handshake failed"},
    {LOCO_ESIG, "handshake failed", "connection lost, handshake failed"},
    {LOCO_ETWIN, "has our identity", "connection lost, it has our identity"},
    {LOCO_ERUN, "another run", "connection lost, it left for another run"},
};

static const struct dial_code *dial_code(int rc)
{
    static const struct dial_code other = {0, "failed",
                                           "connection lost, dialling fails"};

    for (size_t i = 0; i < sizeof dial_codes / sizeof dial_codes[0]; i++) {
        if (dial_codes[i].rc == rc) {
            return &dial_codes[i];
        }
    }
    return &other;
}

const char *members_dial_text(int rc)
{
    return dial_code(rc)->text;
}

const char *members_dial_lost(int rc)
{
    return dial_code(rc)->lost;
}

bool members_dial_refused(int rc)
{
    return rc == -ECONNREFUSED;
}

void members_bootstrap_add(struct members *m, const struct address *address)
{
    if (m->n_bootstrap < MEMBERS_BOOTSTRAP_MAX) {
        m->bootstrap[m->n_bootstrap++].address = *address;
    }
}

uint64_t members_dial_turn(const struct members *m,
                           const struct peer_id *id,
                           uint64_t now_ms)
{
    return now_ms + (id_cmp(&m->opt.self, id) > 0 ? 0 : DIAL_POLITE_MS);
}

void members_dial_done(struct members *m,
                       uint64_t request,
                       bool up,
                       uint64_t now_ms)
{
    if (members_way_done(m, request, up, now_ms)) {
        return;
    }
    if (request >= REQUEST_BOOTSTRAP) {
        uint64_t b = request - REQUEST_BOOTSTRAP;

        if (b < m->n_bootstrap) {
            m->bootstrap[b].dialing = false;
            m->bootstrap[b].reached = m->bootstrap[b].reached || up;
        }
    } else if (request < m->n_peers) {
        m->peers[request].dialing = false;
    }
}

void members_bootstrap_is(struct members *m,
                          uint64_t request,
                          const struct peer_id *id)
{
    uint64_t b = request - REQUEST_BOOTSTRAP;

    if (request >= REQUEST_BOOTSTRAP && b < m->n_bootstrap) {
        m->bootstrap[b].id = *id;
    }
}

/* What the dial was for has failed, too. */
static void dial_in_vain(struct members *m, int peer)
{
    struct member *p = &m->peers[peer];

    if (p->sought) {
        p->sought = false;
        m->n_seeking--;
    }
    if (p->probed && p->n_links == 0 && p->state == PEER_ALIVE) {
        members_doubt(m, peer, 0, m->opt.dead_ms, NULL);
    }
    p->probed = false;
}

/* While nobody is linked, every 6.4 s at last. With others here it is no hurry,
 * but never given up: they may know as little of the run as we do. */
static void bootstrap_failed(const struct members *m,
                             struct members_bootstrap *b,
                             int rc,
                             uint64_t now_ms)
{
    uint32_t most = members_n_linked(m) == 0 ? 5 : 8;

    b->rc = rc;
    b->failures++;
    b->dial_at_ms =
        now_ms + 200 * (1ULL << (b->failures < most ? b->failures : most));
}

void members_dial_failed(struct members *m,
                         uint64_t request,
                         int rc,
                         uint64_t now_ms)
{
    m->now_ms = now_ms;
    m->due_ms = 0;
    members_dialled(m, request, false);
    members_dial_done(m, request, false, now_ms);
    if (request >= REQUEST_RELAY) {
        return;
    }
    if (request >= REQUEST_BOOTSTRAP) {
        uint64_t k = request - REQUEST_BOOTSTRAP;

        if (k < m->n_bootstrap) {
            bootstrap_failed(m, &m->bootstrap[k], rc, now_ms);
        }
    } else if (request < m->n_peers) {
        struct member *p = &m->peers[request];
        uint32_t most = address_eq(&p->address, &p->met) ? DIAL_BACKOFF_MAX_MS
                                                         : UNMET_BACKOFF_MS;

        p->dial_rc = p->n_links == 0 ? rc : 0;
        p->backoff_ms =
            p->backoff_ms == 0 ? DIAL_BACKOFF_MIN_MS : p->backoff_ms * 2;
        p->backoff_ms = p->backoff_ms < most ? p->backoff_ms : most;
        p->dial_at_ms =
            now_ms + p->backoff_ms + rng_below(&m->rng, p->backoff_ms / 4 + 1);
        dial_in_vain(m, (int)request);
    }
}

static void dial(uint64_t request,
                 const struct address *address,
                 const struct peer_id *peer,
                 struct out *out)
{
    struct action *a = out_add(out, ACTION_DIAL);

    if (a != NULL) {
        a->dial.request = request;
        a->dial.address = *address;
        a->dial.peer = *peer;
    }
}

bool members_dial_row(struct members *m, int peer, struct out *out)
{
    struct member *p = &m->peers[peer];

    if (p->dialing || p->address.port == 0 || !members_dialable(p) ||
        !members_may_dial(m, peer)) {
        return false;
    }
    p->dialing = true;
    p->way.dial_began_ms = m->now_ms;
    dial((uint64_t)peer, &p->address, &p->id, out);
    return true;
}

/* A peer that is to be linked whatever the number of links. */
static void row_due(struct members *m, int peer, uint64_t *due, struct out *out)
{
    struct member *p = &m->peers[peer];

    if (p->n_links > 0) {
        return;
    }
    if (m->now_ms >= p->dial_at_ms) {
        (void)members_dial_row(m, peer, out);
    } else if (!p->dialing && p->address.port != 0 && members_dialable(p) &&
               p->dial_at_ms < *due) {
        *due = p->dial_at_ms;
    }
    members_ways_due(m, peer, due, out);
}

static void bootstrap_due(struct members *m, uint64_t *due, struct out *out)
{
    for (unsigned i = 0; i < m->n_bootstrap; i++) {
        struct members_bootstrap *b = &m->bootstrap[i];

        if (b->dialing || (m->n_linked > 0 && b->reached)) {
            continue;
        }
        if (m->now_ms >= b->dial_at_ms) {
            b->dialing = true;
            dial(REQUEST_BOOTSTRAP + i, &b->address, &m->opt.pin, out);
        } else if (b->dial_at_ms < *due) {
            *due = b->dial_at_ms;
        }
    }
}

void members_dial_due(struct members *m, uint64_t *due, struct out *out)
{
    bool many = members_seeks_many(m);

    bootstrap_due(m, due, out);
    members_nearby_due(m, m->now_ms, out);
    for (uint32_t i = 0; i < m->n_links_used && m->n_relayed + m->n_punched > 0;
         i++) {
        if (m->links[i].used && (m->links[i].relayed || m->links[i].punched)) {
            members_upgrade_due(m, m->links[i].peer, m->now_ms, out);
        }
    }
    for (uint32_t i = 0; i < m->n_watch; i++) {
        if (m->watch[i] != MEMBERS_NONE && m->peers[m->watch[i]].watched) {
            row_due(m, m->watch[i], due, out);
        }
    }
    for (uint32_t i = 0; i < m->n_peers && (m->n_wanted > 0 || many); i++) {
        const struct member *p = &m->peers[i];

        if (p->wanted || p->guest) {
            row_due(m, (int)i, due, out);
        } else if (many && p->used && p->n_links == 0 &&
                   p->state == PEER_ALIVE) {
            members_ways_due(m, (int)i, due, out);
        }
    }
}
