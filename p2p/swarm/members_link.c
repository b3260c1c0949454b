/* members_link.c - links to peers and what is said on them.
 *
 * Two peers that dial each other at once get two links; the side with the lower
 * id closes the older. One through a relay is given up for a direct one; for
 * one by a meeting only by who was called to it, and only when the other end
 * has spoken on it: both let it in, then. Either side may have given a link up
 * without the other's knowing (half-open), so what is said goes over the link
 * that was heard of last, and a link that stays silent while another is not is
 * closed. So is one that is silent although we keep it, and one that nobody
 * keeps and nobody uses.
 */
#include "p2p/swarm/members_internal.h"

#include <assert.h>

/* Two for a moment when both sides dial; more only when one side does not close
 * the older. */
#define LINKS_PER_PEER_MAX 4

struct members_link *members_link_find(struct members *m, uint32_t link)
{
    for (uint32_t i = 0; i < m->n_links_used; i++) {
        if (m->links[i].used && m->links[i].link == link) {
            return &m->links[i];
        }
    }
    return NULL;
}

static bool link_usable(const struct members_link *l, int peer)
{
    return l->used && l->peer == peer && !l->closing;
}

bool members_link_works(const struct members_link *l)
{
    return !l->relayed && (!l->punched || l->works);
}

/* Which of two links to one peer is better, if both are alive. */
static int worth(const struct members_link *l)
{
    return members_link_works(l) ? 2 : l->relayed;
}

struct members_link *members_link_of_peer(struct members *m, int peer)
{
    struct members_link *best = NULL;
    uint64_t newest = 0;

    for (uint32_t i = 0; i < m->n_links_used; i++) {
        if (link_usable(&m->links[i], peer) && m->links[i].heard_ms > newest) {
            newest = m->links[i].heard_ms;
        }
    }
    for (uint32_t i = 0; i < m->n_links_used; i++) {
        struct members_link *l = &m->links[i];

        if (link_usable(l, peer) && l->heard_ms + m->opt.suspect_ms >= newest &&
            (best == NULL || worth(l) > worth(best))) {
            best = l;
        }
    }
    return best;
}

void members_hang_up(struct members *m, struct members_link *l, struct out *out)
{
    struct action *a = out_add(out, ACTION_HANG_UP);

    if (a != NULL) {
        a->hang_up.link = l->link;
        m->peers[l->peer].n_open -= !l->closing;
        l->closing = true;
    }
}

void members_keep_begins(struct members *m, struct member *p)
{
    if (!members_keeps(p)) {
        p->heard_ms = m->now_ms;
        for (uint32_t i = 0; i < m->n_links_used; i++) {
            if (m->links[i].used && &m->peers[m->links[i].peer] == p) {
                m->links[i].heard_ms = m->now_ms;
            }
        }
    }
    p->nudge = true;
    m->due_ms = 0;
}

void members_hang_up_all(struct members *m, int peer, struct out *out)
{
    struct members_link *l;

    while ((l = members_link_of_peer(m, peer)) != NULL) {
        members_hang_up(m, l, out);
        if (!l->closing) {
            return;
        }
    }
}

/* A direct one does what this relayed one did, at both ends. */
static bool is_replaced(const struct members *m, const struct members_link *l)
{
    for (uint32_t i = 0; i < m->n_links_used && l->relayed; i++) {
        const struct members_link *o = &m->links[i];

        if (link_usable(o, l->peer) && members_link_works(o) &&
            m->now_ms - o->heard_ms <= m->opt.suspect_ms &&
            (o->inbound || !o->punched)) {
            return true;
        }
    }
    return false;
}

/* Whether this link is to be closed; *due: when to look again. */
static bool
is_over(struct members *m, const struct members_link *l, uint64_t *due)
{
    const struct member *p = &m->peers[l->peer];
    uint64_t silent_ms = m->now_ms - l->heard_ms;
    uint64_t idle_ms = (uint64_t)m->opt.heartbeat_ms * IDLE_BEATS;
    bool keeps = members_keeps(p);

    if (silent_ms > m->opt.dead_ms && p->n_links > 1 &&
        members_link_of_peer(m, l->peer) != l) {
        return true;
    }
    if (p->n_links > 1 && is_replaced(m, l)) {
        return true;
    }
    if (keeps && !p->watched && !p->active && silent_ms > m->opt.dead_ms) {
        return true; /* half-open: the other side is gone */
    }
    if (keeps || p->kept) {
        return false;
    }
    if (l->used_ms + idle_ms < *due) {
        *due = l->used_ms + idle_ms;
    }
    return m->now_ms - l->used_ms >= idle_ms;
}

void members_links_tick(struct members *m, uint64_t *due, struct out *out)
{
    for (uint32_t i = 0; i < m->n_links_used; i++) {
        struct members_link *l = &m->links[i];

        if (l->used && !l->closing && is_over(m, l, due)) {
            members_hang_up(m, l, out);
        }
    }
}

static bool refuse(struct out *out, uint32_t link)
{
    struct action *a = out_add(out, ACTION_HANG_UP);

    if (a != NULL) {
        a->hang_up.link = link;
    }
    return false;
}

static struct members_link *link_free(struct members *m)
{
    for (uint32_t i = 0; i < m->n_links_used; i++) {
        if (!m->links[i].used) {
            return &m->links[i];
        }
    }
    return m->n_links_used < LINKS_MAX ? &m->links[m->n_links_used++] : NULL;
}

static void note_up(struct members *m,
                    int i,
                    const struct event_link_up *up,
                    uint64_t now_ms)
{
    struct member *p = &m->peers[i];

    bool relayed = !id_is_zero(&up->relay);

    m->n_linked += p->n_links++ == 0;
    p->n_open++;
    m->n_relayed += relayed;
    m->n_punched += !id_is_zero(&up->met_at);
    if (!relayed) {
        p->address = p->met = up->address;
        p->hearsay = false;
        p->way.upgrade_at_ms = 0;
    }
    members_key(m, i, up->public_key);
    p->heard_ms = p->real_ms = now_ms;
    p->lost = p->suspected = p->indirect = false;
    p->fresh = p->greet = p->nudge = true;
    p->n_pulses = p->late_ms = 0;
    p->dial_rc = 0;
    p->backoff_ms = 0;
    m->reached = true;
    m->due_ms = 0;
}

/* A link of that kind has no use beside one that the peer has: one through a
 * relay beside a direct one, one by a meeting beside one that was dialled. Also
 * where the peer has lost that one, and we have not noticed: until we do,
 * others pass on what we say, and no data is sent over a connection that may be
 * as dead. */
static bool is_useless(const struct members *m, int peer, bool relayed)
{
    for (uint32_t i = 0; i < m->n_links_used; i++) {
        const struct members_link *l = &m->links[i];

        if (link_usable(l, peer) && members_link_works(l) &&
            (relayed || !l->punched)) {
            return true;
        }
    }
    return false;
}

/* Whether a link may come up to that peer. */
static bool may_come_up(struct members *m,
                        int peer,
                        const struct event_link_up *up,
                        struct out *out)
{
    bool relayed = !id_is_zero(&up->relay), met = !id_is_zero(&up->met_at);

    return peer != MEMBERS_NONE &&
           !((relayed || met) && is_useless(m, peer, relayed)) &&
           (!up->inbound || members_needs(&m->peers[peer]) ||
            members_stranger_may(m, peer, &up->address, out));
}

/* Of two links to one peer the side with the lower id closes the older: it may
 * be one that the other side has already given up. Both do without the one
 * through a relay, but beside one by a meeting it stays until that works. */
static bool is_over_now(const struct members *m,
                        const struct members_link *old,
                        const struct members_link *now)
{
    if (old->relayed != now->relayed) {
        return old->relayed && !now->punched;
    }
    return id_cmp(&m->opt.self, &m->peers[now->peer].id) < 0;
}

bool members_link_up(struct members *m,
                     const struct event_link_up *up,
                     uint64_t now_ms,
                     struct out *out)
{
    bool relayed = !id_is_zero(&up->relay), punched = !id_is_zero(&up->met_at);
    struct members_link *old, *slot;
    struct member *p;
    int i;

    m->now_ms = now_ms;
    if (!up->inbound) {
        members_dialled(m, up->request, true);
        members_dial_done(m, up->request, true, now_ms);
        members_bootstrap_is(m, up->request, &up->peer);
    }
    i = members_learn_here(m, &up->peer, &up->address, now_ms);
    slot =
        !may_come_up(m, i, up, out) || m->peers[i].n_links >= LINKS_PER_PEER_MAX
            ? NULL
            : link_free(m);
    if (slot == NULL) {
        return refuse(out, up->link);
    }
    p = &m->peers[i];
    old = members_link_of_peer(m, i);
    *slot = (struct members_link){.used = true,
                                  .inbound = up->inbound,
                                  .relayed = relayed,
                                  .punched = punched,
                                  .relay = relayed ? up->relay : up->met_at,
                                  .from = up->address,
                                  .link = up->link,
                                  .peer = i,
                                  .since_ms = now_ms,
                                  .heard_ms = now_ms,
                                  .sent_ms = now_ms,
                                  .used_ms = now_ms};
    budget_link_init(&slot->budget, now_ms);
    note_up(m, i, up, now_ms);
    if (old != NULL && is_over_now(m, old, slot)) {
        members_hang_up(m, old, out);
    }
    if (p->way.bulk_wanted) {
        p->way.bulk_wanted = false;
        members_bulk_open(m, out, i);
    }
    return true;
}

int members_link_down(struct members *m, uint32_t link, uint64_t now_ms)
{
    struct members_link *l = members_link_find(m, link);
    struct member *p;

    if (l == NULL) {
        return MEMBERS_NONE;
    }
    m->now_ms = now_ms;
    m->due_ms = 0;
    p = &m->peers[l->peer];
    l->used = false;
    members_hole_seen(m, l);
    p->n_open -= !l->closing;
    m->n_relayed -= l->relayed;
    m->n_punched -= l->punched;
    while (m->n_links_used > 0 && !m->links[m->n_links_used - 1].used) {
        m->n_links_used--;
    }
    assert(p->n_links > 0);
    p->n_links--;
    if (p->n_links == 0) {
        m->n_linked--;
        p->rtt_us = 0;
        p->down_ms = now_ms;
        p->dial_rc = 0;
        p->dial_at_ms = p->shun_until_ms > now_ms ? p->shun_until_ms : now_ms;
        p->kept = p->asked = false;
        p->way.call_at_ms = p->way.relay_at_ms = now_ms;
        p->way.called = false;
    }
    return l->peer;
}

void members_shun(struct members *m, uint32_t link, uint64_t until_ms)
{
    const struct members_link *l = members_link_find(m, link);
    struct member *p = l == NULL ? NULL : &m->peers[l->peer];

    if (p == NULL) {
        return;
    }
    p->shun_until_ms = until_ms;
    for (unsigned i = 0; i < m->n_bootstrap; i++) {
        if (id_eq(&m->bootstrap[i].id, &p->id)) {
            m->bootstrap[i].dial_at_ms = until_ms;
        }
    }
}

void members_sign(struct members *m, struct member *p)
{
    uint64_t at = m->now_ms - p->late_ms;

    p->heard_ms = at > p->heard_ms ? at : p->heard_ms;
    p->real_ms = at > p->real_ms ? at : p->real_ms;
}

int members_at(struct members *m, uint32_t link)
{
    const struct members_link *l = members_link_find(m, link);

    return l == NULL ? MEMBERS_NONE : l->peer;
}

int members_heard(struct members *m, uint32_t link, uint64_t now_ms)
{
    struct members_link *l = members_link_find(m, link);
    struct member *p;

    if (l == NULL) {
        return MEMBERS_NONE;
    }
    p = &m->peers[l->peer];
    m->now_ms = now_ms;
    l->heard_ms = now_ms;
    p->heard_before_ms = p->heard_ms;
    p->real_before_ms = p->real_ms;
    /* Not younger than the pulse that came before it on the same stream. */
    members_sign(m, p);
    if (p->suspected) {
        p->suspected = false;
        m->due_ms = 0; /* say so */
    }
    return l->peer;
}

/* Whether the message is more than a sign of life. */
static bool is_use(uint16_t type)
{
    return type != MESSAGE_PULSE && type != MESSAGE_HEARTBEAT &&
           type != MESSAGE_HELLO;
}

void members_used(struct members *m, uint32_t link, uint16_t type)
{
    struct members_link *l = members_link_find(m, link);

    if (l != NULL && is_use(type)) {
        l->used_ms = m->now_ms;
    }
    if (l != NULL && l->punched && !l->works && type != MESSAGE_HELLO) {
        l->works = true;
        m->due_ms = 0; /* a relayed link may go */
    }
}

void members_alive(struct members *m, const struct peer_id *id, uint64_t now)
{
    int i = members_find(m, id);

    if (i != MEMBERS_NONE) {
        m->peers[i].heard_ms = m->peers[i].real_ms = now;
        m->peers[i].suspected = false;
    }
}

bool members_linked(const struct members *m, int peer)
{
    return peer != MEMBERS_NONE && m->peers[peer].n_open > 0;
}

void members_round_trip(struct members *m, int peer, uint32_t rtt_us)
{
    if (rtt_us > 0) {
        m->peers[peer].rtt_us = rtt_us;
    }
}

uint32_t members_rtt_us(const struct members *m, int peer)
{
    return members_linked(m, peer) ? m->peers[peer].rtt_us : 0;
}

uint32_t members_n_linked(const struct members *m)
{
    return m->n_linked;
}

/* ---- sending ---------------------------------------------------------- */

static void
note_sent(const struct members *m, struct members_link *l, uint16_t type)
{
    l->sent_ms = m->now_ms;
    if (is_use(type)) {
        l->used_ms = m->now_ms;
    }
}

static int encode(enum message_type type,
                  const void *obj,
                  uint8_t bytes[FRAME_CONTROL_MAX])
{
    int n = msg_encode(message_schema((uint16_t)type), obj, bytes,
                       FRAME_CONTROL_MAX);

    assert(n >= 0); /* our own struct: a failure is a local bug */
    return n;
}

bool members_send_link(struct members *m,
                       struct out *out,
                       struct members_link *l,
                       enum message_type type,
                       const void *obj)
{
    uint8_t bytes[FRAME_CONTROL_MAX];
    int n = encode(type, obj, bytes);

    if (n < 0 || !out_send(out, l->link, (uint16_t)type, bytes, (size_t)n)) {
        return false;
    }
    note_sent(m, l, (uint16_t)type);
    return true;
}

/* A message to several peers: encoded when the first one needs it. */
struct shared {
    struct members *m;
    struct out *out;
    enum message_type type;
    const void *obj;
    bool encoded;
    uint32_t at;
    size_t len;
};

static bool shared_encode(struct shared *s)
{
    uint8_t bytes[FRAME_CONTROL_MAX];

    if (!s->encoded) {
        int n = encode(s->type, s->obj, bytes);

        s->encoded = true;
        s->len = n < 0 ? 0 : (size_t)n;
        s->at = n < 0 ? UINT32_MAX : out_bytes(s->out, bytes, s->len);
    }
    return s->at != UINT32_MAX;
}

static bool shared_send(struct shared *s, int peer)
{
    struct members_link *l =
        peer == MEMBERS_NONE ? NULL : members_link_of_peer(s->m, peer);

    bool indirect = peer != MEMBERS_NONE &&
                    (l == NULL || s->m->peers[peer].suspected) &&
                    members_has_way(s->m, peer);

    if ((l == NULL && !indirect) || !shared_encode(s)) {
        return false;
    }
    /* A link that is silent may still carry it, or may not: both ways. */
    if (indirect) {
        indirect = members_forward(s->m, s->out, peer, (uint16_t)s->type,
                                   s->out->bytes + s->at, s->len);
    }
    if (l == NULL) {
        return indirect;
    }
    if (!out_send_again(s->out, l->link, (uint16_t)s->type, s->at, s->len)) {
        return false;
    }
    note_sent(s->m, l, (uint16_t)s->type);
    return true;
}

bool members_send(struct members *m,
                  struct out *out,
                  int peer,
                  enum message_type type,
                  const void *obj)
{
    struct shared s = {.m = m, .out = out, .type = type, .obj = obj};

    return shared_send(&s, peer);
}

void members_broadcast(struct members *m,
                       struct out *out,
                       const int *rows,
                       uint32_t n,
                       enum message_type type,
                       const void *obj)
{
    struct shared s = {.m = m, .out = out, .type = type, .obj = obj};

    for (uint32_t i = 0; i < n; i++) {
        (void)shared_send(&s, rows[i]);
    }
}

void members_tell_all(struct members *m,
                      struct out *out,
                      enum message_type type,
                      const void *obj)
{
    struct shared s = {.m = m, .out = out, .type = type, .obj = obj};

    for (uint32_t i = 0; i < m->n_links_used; i++) {
        struct members_link *l = &m->links[i];

        if (l->used && !l->closing && members_link_of_peer(m, l->peer) == l) {
            (void)shared_send(&s, l->peer);
        }
    }
    for (uint32_t i = 0; i < m->n_watch; i++) {
        if (!members_linked(m, m->watch[i])) {
            (void)shared_send(&s, m->watch[i]); /* over another member */
        }
    }
}

bool members_send_raw(struct members *m,
                      struct out *out,
                      int peer,
                      uint16_t type,
                      const void *bytes,
                      size_t len)
{
    struct members_link *l =
        peer == MEMBERS_NONE ? NULL : members_link_of_peer(m, peer);

    if (l == NULL || !out_send(out, l->link, type, bytes, len)) {
        return false;
    }
    note_sent(m, l, type);
    return true;
}
