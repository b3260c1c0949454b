/* members.c - see members.h. */
#include "p2p/members.h"

#include <assert.h>
#include <string.h>

#include "proto/base/rng.h"

#define DIAL_BACKOFF_MIN_MS 300
#define DIAL_BACKOFF_MAX_MS 5000
/* The peer with the higher id dials first; the other one only if that did not
 * help, so that two peers rarely open two links at once. */
#define DIAL_POLITE_MS 400
/* Two for a moment when both sides dial; more only when one side does not close
 * the older. */
#define LINKS_PER_PEER_MAX 4
#define REQUEST_BOOTSTRAP  (1ULL << 32) /* requests above name a bootstrap */

void members_init(struct members *m,
                  const struct members_options *opt,
                  uint64_t now_ms)
{
    memset(m, 0, sizeof *m);
    m->opt = *opt;
    m->rng = opt->seed;
    m->beat_at_ms = now_ms;
}

void members_bootstrap_add(struct members *m, const struct address *address)
{
    if (m->n_bootstrap < MEMBERS_BOOTSTRAP_MAX) {
        m->bootstrap[m->n_bootstrap++].address = *address;
    }
}

int members_find(const struct members *m, const struct peer_id *id)
{
    for (uint32_t i = 0; i < m->n_peers; i++) {
        if (m->peers[i].used && id_eq(&m->peers[i].id, id)) {
            return (int)i;
        }
    }
    return MEMBERS_NONE;
}

/* A row for a new peer: a free one, or that of a forgotten unlinked peer. */
static int row_take(struct members *m)
{
    if (m->n_peers < PEERS_MAX) {
        return (int)m->n_peers++;
    }
    for (int i = 0; i < PEERS_MAX; i++) {
        struct member *p = &m->peers[i];

        if (p->n_links == 0 && !p->watched && !p->dialing &&
            p->backoff_ms >= DIAL_BACKOFF_MAX_MS) {
            return i;
        }
    }
    /* Hearsay must not keep out who is here. */
    for (int i = 0; i < PEERS_MAX; i++) {
        struct member *p = &m->peers[i];

        if (p->n_links == 0 && !p->watched && !p->dialing && !p->has_key) {
            return i;
        }
    }
    return MEMBERS_NONE;
}

int members_learn(struct members *m,
                  const struct peer_id *id,
                  const struct address *address,
                  uint64_t now_ms)
{
    int i = members_find(m, id);
    struct member *p;

    if (id_eq(id, &m->opt.self) || id_is_zero(id)) {
        return MEMBERS_NONE;
    }
    if (i == MEMBERS_NONE) {
        i = row_take(m);
        if (i == MEMBERS_NONE) {
            return MEMBERS_NONE;
        }
        p = &m->peers[i];
        memset(p, 0, sizeof *p);
        p->used = true;
        p->id = *id;
        p->heard_ms = p->down_ms = now_ms;
        p->dial_at_ms =
            now_ms + (id_cmp(&m->opt.self, id) > 0 ? 0 : DIAL_POLITE_MS);
    }
    p = &m->peers[i];
    if (p->n_links == 0 && address->port != 0) {
        p->address = *address;
    }
    return i;
}

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

/* Where to speak to a peer. The other side may have given up one of two links
 * without our knowing (half-open): not one that is silent while another is
 * not. */
static struct members_link *link_of_peer(struct members *m, int peer)
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

static void hang_up(struct members_link *l, struct out *out)
{
    struct action *a = out_add(out, ACTION_HANG_UP);

    if (a != NULL) {
        a->link = l->link;
        l->closing = true;
    }
}

/* Close what has been silent for long while another link to it was not. */
static void half_open_close(struct members *m, uint64_t now_ms, struct out *out)
{
    for (int i = 0; i < LINKS_MAX; i++) {
        struct members_link *l = &m->links[i];

        if (l->used && !l->closing && m->peers[l->peer].n_links > 1 &&
            now_ms - l->heard_ms > m->opt.dead_ms &&
            link_of_peer(m, l->peer) != l) {
            hang_up(l, out);
        }
    }
}

static void request_done(struct members *m, uint64_t request)
{
    if (request >= REQUEST_BOOTSTRAP) {
        uint64_t b = request - REQUEST_BOOTSTRAP;

        if (b < m->n_bootstrap) {
            m->bootstrap[b].dialing = false;
        }
    } else if (request < m->n_peers) {
        m->peers[request].dialing = false;
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
    int i;

    if (!event->inbound) {
        request_done(m, event->request);
        if (event->request >= REQUEST_BOOTSTRAP &&
            event->request - REQUEST_BOOTSTRAP < m->n_bootstrap) {
            m->bootstrap[event->request - REQUEST_BOOTSTRAP].reached = true;
        }
    }
    i = members_learn(m, &event->peer, &event->address, event->now_ms);
    for (int k = 0; k < LINKS_MAX && slot == NULL; k++) {
        slot = m->links[k].used ? NULL : &m->links[k];
    }
    if (i == MEMBERS_NONE || slot == NULL ||
        m->peers[i].n_links >= LINKS_PER_PEER_MAX) {
        return refuse(out, event->link);
    }
    p = &m->peers[i];
    old = link_of_peer(m, i);
    *slot = (struct members_link){.used = true,
                                  .link = event->link,
                                  .peer = i,
                                  .heard_ms = event->now_ms};
    p->n_links++;
    p->address = event->address;
    memcpy(p->public_key, event->public_key, sizeof p->public_key);
    p->has_key = true;
    p->heard_ms = event->now_ms;
    p->lost = p->suspected = p->refused = false;
    p->backoff_ms = 0;
    m->reached = true;
    /* Of two links to one peer the side with the lower id closes the older:
     * it may be one that the other side has already given up. */
    if (old != NULL && id_cmp(&m->opt.self, &p->id) < 0) {
        hang_up(old, out);
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
    assert(p->n_links > 0);
    p->n_links--;
    if (p->n_links == 0) {
        p->down_ms = now_ms;
        p->refused = false;
        p->dial_at_ms = now_ms;
    }
}

void members_dial_failed(struct members *m, const struct event *event)
{
    request_done(m, event->request);
    if (event->request >= REQUEST_BOOTSTRAP) {
        uint64_t k = event->request - REQUEST_BOOTSTRAP;

        if (k < m->n_bootstrap) {
            m->bootstrap[k].rc = event->rc;
            m->bootstrap[k].failures++;
            m->bootstrap[k].dial_at_ms =
                event->now_ms + 200 * (1U << (m->bootstrap[k].failures < 5
                                                  ? m->bootstrap[k].failures
                                                  : 5));
        }
    } else if (event->request < m->n_peers) {
        struct member *p = &m->peers[event->request];

        p->refused = p->n_links == 0;
        p->backoff_ms =
            p->backoff_ms == 0 ? DIAL_BACKOFF_MIN_MS : p->backoff_ms * 2;
        if (p->backoff_ms > DIAL_BACKOFF_MAX_MS) {
            p->backoff_ms = DIAL_BACKOFF_MAX_MS;
        }
        p->dial_at_ms = event->now_ms + p->backoff_ms +
                        rng_below(&m->rng, p->backoff_ms / 4 + 1);
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

void members_alive(struct members *m, const struct peer_id *id, uint64_t now)
{
    int i = members_find(m, id);

    if (i != MEMBERS_NONE) {
        m->peers[i].heard_ms = now;
        m->peers[i].suspected = false;
    }
}

void members_beat(struct members *m,
                  int peer,
                  const struct heartbeat *beat,
                  uint64_t now_ms)
{
    struct member *p = &m->peers[peer];

    p->beat = *beat;
    p->beat.n_rumours = 0;
    p->has_beat = true;
    p->life = beat->life;
    for (uint32_t k = 0; k < beat->n_rumours; k++) {
        const struct peer_info *info = &beat->rumours[k];
        struct address a = {.port = info->address.port};

        memcpy(a.ip, info->address.ip, sizeof a.ip);
        if (a.port != 0) {
            (void)members_learn(m, &info->id, &a, now_ms);
        }
    }
}

static void watch_begin(struct members *m, struct member *p, uint64_t now_ms)
{
    uint64_t due =
        now_ms + (id_cmp(&m->opt.self, &p->id) > 0 ? 0 : DIAL_POLITE_MS);

    p->watched = true;
    if (p->n_links == 0 && !p->lost) {
        p->down_ms = now_ms;
        p->refused = false;
        p->dial_at_ms = due < p->dial_at_ms ? due : p->dial_at_ms;
    }
}

void members_watch(struct members *m,
                   const int *rows,
                   uint32_t n,
                   uint64_t now_ms)
{
    for (uint32_t i = 0; i < m->n_peers; i++) {
        struct member *p = &m->peers[i];
        bool in = false;

        for (uint32_t k = 0; k < n && !in; k++) {
            in = rows[k] == (int)i;
        }
        if (!in) {
            p->watched = false;
        } else if (!p->watched) {
            watch_begin(m, p, now_ms);
        }
    }
}

void members_gap(struct members *m, uint64_t now_ms)
{
    for (uint32_t i = 0; i < m->n_peers; i++) {
        m->peers[i].heard_ms = now_ms;
        m->peers[i].down_ms = now_ms;
        m->peers[i].refused = false;
    }
    for (int i = 0; i < LINKS_MAX; i++) {
        m->links[i].heard_ms = now_ms;
    }
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

bool members_send(struct members *m,
                  struct out *out,
                  int peer,
                  enum message_type type,
                  const void *obj)
{
    uint8_t bytes[FRAME_CONTROL_MAX];
    struct members_link *l;
    int n;

    l = peer == MEMBERS_NONE ? NULL : link_of_peer(m, peer);
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
            rows[i] == MEMBERS_NONE ? NULL : link_of_peer(m, rows[i]);

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
            m->peers[i].n_links == 0 ? NULL : link_of_peer(m, (int)i);

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
        peer == MEMBERS_NONE ? NULL : link_of_peer(m, peer);

    return l != NULL && out_send(out, l->link, type, bytes, len);
}

uint32_t members_n_linked(const struct members *m)
{
    uint32_t n = 0;

    for (uint32_t i = 0; i < m->n_peers; i++) {
        n += m->peers[i].n_links > 0;
    }
    return n;
}

/* Up to MESSAGE_PEERS_MAX linked, dialable peers, a different window each
 * time: what we know first-hand. */
static void rumours_fill(struct members *m, struct heartbeat *beat)
{
    uint32_t looked = 0;

    beat->n_rumours = 0;
    while (looked < m->n_peers && beat->n_rumours < MESSAGE_PEERS_MAX) {
        const struct member *p;

        m->rumour_next = (m->rumour_next + 1) % m->n_peers;
        p = &m->peers[m->rumour_next];
        looked++;
        if (p->used && p->n_links > 0 && p->address.port != 0) {
            struct peer_info *info = &beat->rumours[beat->n_rumours++];

            info->id = p->id;
            memcpy(info->address.ip, p->address.ip, sizeof p->address.ip);
            info->address.port = p->address.port;
        }
    }
}

static void
beats_send(struct members *m, struct heartbeat *beat, struct out *out)
{
    struct shared s = {.out = out, .type = MESSAGE_HEARTBEAT, .obj = beat};

    rumours_fill(m, beat);
    for (int i = 0; i < LINKS_MAX; i++) {
        if (m->links[i].used && !m->links[i].closing) {
            shared_send(&s, &m->links[i]);
        }
    }
}

static void lose(struct members *m,
                 int peer,
                 uint64_t now_ms,
                 const char *reason,
                 struct out *out)
{
    struct member *p = &m->peers[peer];
    struct members_link *l;

    p->lost = true;
    while ((l = link_of_peer(m, peer)) != NULL) {
        hang_up(l, out);
        if (!l->closing) {
            break;
        }
    }
    if (m->n_lost < VIEW_MEMBERS_MAX) {
        m->lost[m->n_lost++] = (struct members_lost){
            .peer = peer,
            .silent_ms = (uint32_t)(now_ms - p->heard_ms),
            .reason = reason,
        };
    }
}

static void
detect(struct members *m, int peer, uint64_t now_ms, struct out *out)
{
    struct member *p = &m->peers[peer];
    uint64_t silent_ms = now_ms - p->heard_ms;

    if (p->n_links > 0) {
        p->suspected = silent_ms > m->opt.suspect_ms;
        if (silent_ms > m->opt.dead_ms) {
            lose(m, peer, now_ms, "no sign of life", out);
        }
    } else if (p->refused) {
        lose(m, peer, now_ms, "connection closed and refused", out);
    } else if (now_ms - p->down_ms > m->opt.redial_ms) {
        lose(m, peer, now_ms, "connection lost", out);
    }
}

static void dial(struct members *m,
                 uint64_t request,
                 const struct address *address,
                 const struct peer_id *peer,
                 struct out *out)
{
    struct action *a = out_add(out, ACTION_DIAL);

    (void)m;
    if (a != NULL) {
        a->request = request;
        a->address = *address;
        a->peer = *peer;
    }
}

static void dial_due(struct members *m, uint64_t now_ms, struct out *out)
{
    static const struct peer_id anyone;
    uint32_t linked = members_n_linked(m);

    for (unsigned i = 0; i < m->n_bootstrap; i++) {
        struct members_bootstrap *b = &m->bootstrap[i];

        if (!b->dialing && now_ms >= b->dial_at_ms &&
            (linked == 0 || (!b->reached && b->failures < 4))) {
            b->dialing = true;
            dial(m, REQUEST_BOOTSTRAP + i, &b->address,
                 m->has_pin ? &m->pin : &anyone, out);
        }
    }
    for (uint32_t i = 0; i < m->n_peers; i++) {
        struct member *p = &m->peers[i];

        if (p->used && p->n_links == 0 && !p->dialing && p->address.port != 0 &&
            now_ms >= p->dial_at_ms &&
            (p->watched || p->wanted || linked < m->opt.links_wanted)) {
            p->dialing = true;
            dial(m, i, &p->address, &p->id, out);
        }
    }
}

void members_tick(struct members *m,
                  uint64_t now_ms,
                  struct heartbeat *beat,
                  struct out *out)
{
    for (uint32_t i = 0; i < m->n_peers; i++) {
        struct member *p = &m->peers[i];

        if (p->used && p->watched && !p->lost) {
            detect(m, (int)i, now_ms, out);
        } else if (p->used && p->n_links > 0 && !p->watched &&
                   now_ms - p->heard_ms > m->opt.dead_ms) {
            struct members_link *l = link_of_peer(m, (int)i);

            if (l != NULL) {
                hang_up(l, out); /* half-open: the other side is gone */
            }
        }
    }
    half_open_close(m, now_ms, out);
    dial_due(m, now_ms, out);
    if (now_ms >= m->beat_at_ms) {
        beats_send(m, beat, out);
        m->beat_at_ms = now_ms + m->opt.heartbeat_ms;
    }
}

bool members_next_lost(struct members *m, struct members_lost *lost)
{
    if (m->n_lost == 0) {
        return false;
    }
    *lost = m->lost[--m->n_lost];
    return true;
}

uint64_t members_deadline(const struct members *m)
{
    uint64_t due = m->beat_at_ms;

    for (uint32_t i = 0; i < m->n_peers; i++) {
        const struct member *p = &m->peers[i];

        if (!p->used || !p->watched || p->lost) {
            continue;
        }
        if (p->n_links == 0) {
            uint64_t at = p->down_ms + m->opt.redial_ms + 1;

            due = at < due ? at : due;
            if (!p->dialing && p->address.port != 0 && p->dial_at_ms < due) {
                due = p->dial_at_ms;
            }
        }
    }
    return due;
}
