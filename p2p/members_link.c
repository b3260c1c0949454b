/* members_link.c - links to peers and what is said on them.
 *
 * Two peers that dial each other at once get two links; the side with the lower
 * id closes the older. Either side may have given a link up without the other's
 * knowing (half-open), so what is said goes over the link that was heard of
 * last, and a link that stays silent while another is not is closed.
 */
#include "p2p/members_internal.h"

#include <assert.h>
#include <string.h>

/* Two for a moment when both sides dial; more only when one side does not close
 * the older. */
#define LINKS_PER_PEER_MAX 4

static struct members_link *link_find(struct members *m, uint32_t link)
{
    for (int i = 0; i < LINKS_MAX; i++) {
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

struct members_link *members_link_of_peer(struct members *m, int peer)
{
    uint64_t newest = 0;

    for (int i = 0; i < LINKS_MAX; i++) {
        if (link_usable(&m->links[i], peer) && m->links[i].heard_ms > newest) {
            newest = m->links[i].heard_ms;
        }
    }
    for (int i = 0; i < LINKS_MAX; i++) {
        if (link_usable(&m->links[i], peer) &&
            m->links[i].heard_ms + m->opt.suspect_ms >= newest) {
            return &m->links[i];
        }
    }
    return NULL;
}

void members_hang_up(struct members_link *l, struct out *out)
{
    struct action *a = out_add(out, ACTION_HANG_UP);

    if (a != NULL) {
        a->link = l->link;
        l->closing = true;
    }
}

void members_half_open_close(struct members *m,
                             uint64_t now_ms,
                             struct out *out)
{
    for (int i = 0; i < LINKS_MAX; i++) {
        struct members_link *l = &m->links[i];

        if (l->used && !l->closing && m->peers[l->peer].n_links > 1 &&
            now_ms - l->heard_ms > m->opt.dead_ms &&
            members_link_of_peer(m, l->peer) != l) {
            members_hang_up(l, out);
        }
    }
}

static bool refuse(struct out *out, uint32_t link)
{
    struct action *a = out_add(out, ACTION_HANG_UP);

    if (a != NULL) {
        a->link = link;
    }
    return false;
}

bool members_link_up(struct members *m,
                     const struct event *event,
                     struct out *out)
{
    struct members_link *old, *slot = NULL;
    struct member *p;
    bool relayed;
    int i;

    if (!event->inbound) {
        members_dial_done(m, event->request, true, event->now_ms);
    }
    i = members_learn(m, &event->peer, &event->address, event->now_ms);
    relayed = !id_is_zero(&event->relay);
    if (i != MEMBERS_NONE && relayed && m->peers[i].n_links > 0 &&
        !members_relayed(m, i)) {
        return refuse(out, event->link); /* a direct one came first */
    }
    for (int k = 0; k < LINKS_MAX && slot == NULL; k++) {
        slot = m->links[k].used ? NULL : &m->links[k];
    }
    if (i == MEMBERS_NONE || slot == NULL ||
        m->peers[i].n_links >= LINKS_PER_PEER_MAX) {
        return refuse(out, event->link);
    }
    p = &m->peers[i];
    old = members_link_of_peer(m, i);
    *slot = (struct members_link){.used = true,
                                  .inbound = event->inbound,
                                  .relayed = relayed,
                                  .relay = event->relay,
                                  .link = event->link,
                                  .peer = i,
                                  .heard_ms = event->now_ms};
    p->n_links++;
    m->n_relayed += relayed;
    if (!relayed) {
        p->address = event->address;
    }
    memcpy(p->public_key, event->public_key, sizeof p->public_key);
    p->has_key = true;
    p->heard_ms = event->now_ms;
    p->lost = p->suspected = false;
    p->dial_rc = 0;
    p->backoff_ms = 0;
    m->reached = true;
    /* Of two links to one peer the side with the lower id closes the older:
     * it may be one that the other side has already given up. Both do without
     * the one through a relay. */
    if (old != NULL &&
        ((old->relayed && !relayed) || id_cmp(&m->opt.self, &p->id) < 0)) {
        members_hang_up(old, out);
    }
    if (p->way.bulk_wanted) {
        p->way.bulk_wanted = false;
        members_bulk_open(m, out, i);
    }
    return true;
}

void members_link_down(struct members *m, uint32_t link, uint64_t now_ms)
{
    struct members_link *l = link_find(m, link);
    struct member *p;

    if (l == NULL) {
        return;
    }
    p = &m->peers[l->peer];
    l->used = false;
    m->n_relayed -= l->relayed;
    assert(p->n_links > 0);
    p->n_links--;
    if (p->n_links == 0) {
        p->down_ms = now_ms;
        p->dial_rc = 0;
        p->dial_at_ms = now_ms;
        p->way.call_at_ms = p->way.relay_at_ms = now_ms;
        p->way.called = false;
    }
}

int members_heard(struct members *m, uint32_t link, uint64_t now_ms)
{
    struct members_link *l = link_find(m, link);

    if (l == NULL) {
        return MEMBERS_NONE;
    }
    l->heard_ms = now_ms;
    m->peers[l->peer].heard_ms = now_ms;
    m->peers[l->peer].suspected = false;
    return l->peer;
}

bool members_linked(const struct members *m, int peer)
{
    if (peer == MEMBERS_NONE || m->peers[peer].n_links == 0) {
        return false;
    }
    for (int i = 0; i < LINKS_MAX; i++) {
        if (m->links[i].used && !m->links[i].closing &&
            m->links[i].peer == peer) {
            return true;
        }
    }
    return false;
}

uint32_t members_n_linked(const struct members *m)
{
    uint32_t n = 0;

    for (uint32_t i = 0; i < m->n_peers; i++) {
        n += m->peers[i].n_links > 0;
    }
    return n;
}

/* ---- sending ---------------------------------------------------------- */

bool members_send(struct members *m,
                  struct out *out,
                  int peer,
                  enum message_type type,
                  const void *obj)
{
    uint8_t bytes[FRAME_CONTROL_MAX];
    struct members_link *l;
    int n;

    l = peer == MEMBERS_NONE ? NULL : members_link_of_peer(m, peer);
    if (l == NULL) {
        return false;
    }
    n = msg_encode(message_schema((uint16_t)type), obj, bytes, sizeof bytes);
    assert(n >= 0); /* our own struct: a failure is a local bug */
    return n >= 0 && out_send(out, l->link, (uint16_t)type, bytes, (size_t)n);
}

/* A message on its way to several links: encoded when the first one needs it.
 */
struct shared {
    struct out *out;
    enum message_type type;
    const void *obj;
    bool encoded;
    uint32_t at;
    size_t len;
};

static void shared_send(struct shared *s, const struct members_link *l)
{
    uint8_t bytes[FRAME_CONTROL_MAX];
    int n;

    if (!s->encoded) {
        n = msg_encode(message_schema((uint16_t)s->type), s->obj, bytes,
                       sizeof bytes);
        assert(n >= 0); /* our own struct: a failure is a local bug */
        s->encoded = true;
        s->len = n < 0 ? 0 : (size_t)n;
        s->at = n < 0 ? UINT32_MAX : out_bytes(s->out, bytes, s->len);
    }
    if (s->at != UINT32_MAX) {
        (void)out_send_again(s->out, l->link, (uint16_t)s->type, s->at, s->len);
    }
}

void members_broadcast(struct members *m,
                       struct out *out,
                       const int *rows,
                       uint32_t n,
                       enum message_type type,
                       const void *obj)
{
    struct shared s = {.out = out, .type = type, .obj = obj};

    for (uint32_t i = 0; i < n; i++) {
        const struct members_link *l =
            rows[i] == MEMBERS_NONE ? NULL : members_link_of_peer(m, rows[i]);

        if (l != NULL) {
            shared_send(&s, l);
        }
    }
}

void members_tell_all(struct members *m,
                      struct out *out,
                      enum message_type type,
                      const void *obj)
{
    struct shared s = {.out = out, .type = type, .obj = obj};

    for (uint32_t i = 0; i < m->n_peers; i++) {
        const struct members_link *l =
            m->peers[i].n_links == 0 ? NULL : members_link_of_peer(m, (int)i);

        if (l != NULL) {
            shared_send(&s, l);
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

    return l != NULL && out_send(out, l->link, type, bytes, len);
}

/* ---- heartbeats ------------------------------------------------------- */

/* Up to MESSAGE_PEERS_MAX peers that are linked directly, a different window
 * each time: what we know first-hand. */
static void rumours_fill(struct members *m, struct heartbeat *beat)
{
    uint32_t looked = 0;

    beat->n_rumours = 0;
    while (looked < m->n_peers && beat->n_rumours < MESSAGE_PEERS_MAX) {
        const struct member *p;

        m->rumour_next = (m->rumour_next + 1) % m->n_peers;
        p = &m->peers[m->rumour_next];
        looked++;
        if (p->used && p->n_links > 0 && p->address.port != 0 &&
            !members_relayed(m, (int)m->rumour_next)) {
            struct peer_info *info = &beat->rumours[beat->n_rumours++];

            info->id = p->id;
            memcpy(info->address.ip, p->address.ip, sizeof p->address.ip);
            info->address.port = p->address.port;
            info->reach = p->way.reach;
        }
    }
}

void members_beats_send(struct members *m,
                        struct heartbeat *beat,
                        struct out *out)
{
    struct shared s = {.out = out, .type = MESSAGE_HEARTBEAT, .obj = beat};

    rumours_fill(m, beat);
    for (int i = 0; i < LINKS_MAX; i++) {
        if (m->links[i].used && !m->links[i].closing) {
            shared_send(&s, &m->links[i]);
        }
    }
}
