/* members_rumour.c - who is alive, suspected, dead or gone, told by everybody
 * to everybody.
 *
 * A statement {id, incarnation, state} outdoes another about the same peer when
 * its incarnation is higher, or equal and its state later in the list alive,
 * suspect, dead, left. One that outdoes what is known here is kept and passed
 * on once to each neighbour but the one that it came from: about as many copies
 * as neighbours reach everybody, in as many hops as the logarithm of the swarm.
 *
 * Who hears ill of itself says ALIVE with a higher incarnation. Who hears ill
 * of a peer that it is linked to and hears tells that peer alone: it answers
 * for itself. Who hears ill that was contradicted a while ago says so to whom
 * it heard it from: that one slept meanwhile, or lost the link on which the
 * contradiction was to come. Only who misses a peer on its own link declares it
 * dead, after a suspicion that could be contradicted (a *doubt*); others that
 * hear a suspicion and nothing after it take it for true after a while and are
 * silent about it.
 *
 * In a swarm larger than the table, what is remembered of the others cannot
 * hold all of them, and news that are forgotten come round again for ever. So
 * there who hears of a stranger passes it on only where it took a row for it,
 * one time in eight: less than one in the mean of six neighbours does, and it
 * ends. Ill news and contradictions go to all; they are few.
 *
 * Budget: GOSSIP_BYTES_PER_S on all links together, GOSSIP_MEAN_PER_S over a
 * minute. Bad news and contradictions
 * go first, and into debt if they must: a late contradiction is a false death.
 * What has no room waits. News of others' life that waited long are given up,
 * as are the oldest of them when the queue is full: shuffles make up for it.
 */
#include "p2p/swarm/members_internal.h"

#include <string.h>

#include "p2p/swarm/reach.h"

/* Frame header, record length and tag around a message. */
#define FRAME_COST_BYTES 28
/* A neighbour that is new hears what is younger than this many beats. */
#define YOUNG_BEATS 10
/* Gathered for this part of a beat, so that one message carries several. */
#define FLUSH_PARTS 16

/* Numbers go on after the highest one, as those of DNS serials do (RFC 1982):
 * whoever names the highest for another peer would else silence that peer. */
static bool is_later(uint32_t a, uint32_t b)
{
    return a != b && a - b < 1U << 31;
}

static bool outdoes(uint32_t incarnation,
                    enum peer_state state,
                    uint32_t than,
                    enum peer_state than_state)
{
    return is_later(incarnation, than) ||
           (incarnation == than && state > than_state);
}

/* ---- the queue -------------------------------------------------------- */

static struct members_rumour *queued(struct members *m,
                                     const struct peer_id *id)
{
    for (uint32_t i = 0; i < m->n_rumours; i++) {
        if (m->rumours[i].used && id_eq(&m->rumours[i].info.id, id)) {
            return &m->rumours[i];
        }
    }
    return NULL;
}

/* What is said already goes first, then news of life, then the oldest. */
static uint64_t worth(const struct members_rumour *r)
{
    return (r->mask != 0 ? 2ULL << 60 : 0) +
           (r->mask != 0 && r->state != PEER_ALIVE ? 1ULL << 60 : 0) + r->at_ms;
}

static struct members_rumour *queue_slot(struct members *m,
                                         const struct peer_id *id)
{
    struct members_rumour *r = queued(m, id), *least = &m->rumours[0];

    if (r != NULL) {
        return r;
    }
    if (m->n_rumours < MEMBERS_RUMOURS_MAX) {
        return &m->rumours[m->n_rumours++];
    }
    for (uint32_t i = 1; i < m->n_rumours; i++) {
        if (worth(&m->rumours[i]) < worth(least)) {
            least = &m->rumours[i];
        }
    }
    return least;
}

static void flush_soon(struct members *m)
{
    uint64_t at = m->now_ms + m->opt.heartbeat_ms / FLUSH_PARTS;

    m->flush_at_ms =
        m->flush_at_ms > m->now_ms && m->flush_at_ms < at ? m->flush_at_ms : at;
    m->due_ms = m->due_ms < m->flush_at_ms ? m->due_ms : m->flush_at_ms;
}

/* Tell all neighbours but `except`. */
static void enqueue(struct members *m,
                    const struct peer_info *info,
                    enum peer_state state,
                    bool full,
                    int except)
{
    struct members_rumour *r = queue_slot(m, &info->id);

    *r = (struct members_rumour){.used = true,
                                 .full = full && info->address.port != 0,
                                 .state = (uint8_t)state,
                                 .at_ms = m->now_ms,
                                 .info = *info};
    for (int k = 0; k < MEMBERS_ACTIVE_MAX; k++) {
        if (m->active[k] != MEMBERS_NONE && m->active[k] != except) {
            r->mask |= BIT(k);
        }
    }
    flush_soon(m);
}

void members_rumour_slot(struct members *m, int slot)
{
    uint64_t young_ms = (uint64_t)m->opt.heartbeat_ms * YOUNG_BEATS;

    for (uint32_t i = 0; i < m->n_rumours; i++) {
        struct members_rumour *r = &m->rumours[i];

        r->mask &= ~BIT(slot);
        if (r->used && m->now_ms - r->at_ms < young_ms) {
            r->mask |= BIT(slot);
        }
    }
    flush_soon(m);
}

void members_announce(struct members *m)
{
    m->announced = true;
    enqueue(m, &m->self, PEER_ALIVE, true, MEMBERS_NONE);
}

/* ---- saying ----------------------------------------------------------- */

/* Bad news and one's own word before news of others' life. */
static void fill(struct members *m, int slot, bool bad, struct gossip *g)
{
    uint64_t young_ms = (uint64_t)m->opt.heartbeat_ms * YOUNG_BEATS;

    for (uint32_t i = 0; i < m->n_rumours; i++) {
        struct members_rumour *r = &m->rumours[i];
        bool first;

        if (!(r->mask & BIT(slot))) {
            continue; /* most of them, mostly */
        }
        first = r->state != PEER_ALIVE || !r->full ||
                id_eq(&r->info.id, &m->opt.self);
        if (first != bad) {
            continue;
        }
        if (!first && m->now_ms - r->at_ms > young_ms) {
            r->mask = 0; /* shuffles will tell */
            continue;
        }
        if (r->full && r->state == PEER_ALIVE) {
            if (g->n_peers == MESSAGE_PEERS_MAX) {
                continue;
            }
            g->peers[g->n_peers++] = r->info;
        } else if (g->n_rumours == MESSAGE_RUMOURS_MAX) {
            continue;
        } else {
            g->rumours[g->n_rumours++] =
                (struct rumour){.id = r->info.id,
                                .incarnation = r->info.incarnation,
                                .state = r->state};
        }
        r->mask &= ~BIT(slot);
        m->counts.rumours++;
    }
}

static void earn(struct members *m)
{
    uint64_t ms = m->now_ms - m->gossip_ms;

    m->gossip_bytes += (int64_t)(ms * GOSSIP_BYTES_PER_S / 1000);
    if (m->gossip_bytes > GOSSIP_BURST_BYTES) {
        m->gossip_bytes = GOSSIP_BURST_BYTES;
    }
    m->gossip_saved += (int64_t)(ms * GOSSIP_MEAN_PER_S / 1000);
    if (m->gossip_saved > GOSSIP_SAVED_BYTES) {
        m->gossip_saved = GOSSIP_SAVED_BYTES;
    }
    m->gossip_ms = m->now_ms;
}

/* More than 0: what can wait may go, too. */
static int64_t budget(const struct members *m)
{
    return m->gossip_bytes < m->gossip_saved ? m->gossip_bytes
                                             : m->gossip_saved;
}

static void spend(struct members *m, const struct gossip *g)
{
    int64_t bytes = FRAME_COST_BYTES + 3 + 42 * (int64_t)g->n_rumours +
                    90 * (int64_t)g->n_peers;

    m->gossip_bytes -= bytes;
    m->gossip_saved -= bytes;
}

/* The neighbours that somebody's rumour still has to go to. */
static uint64_t waiting(const struct members *m)
{
    uint64_t mask = 0;

    for (uint32_t i = 0; i < m->n_rumours; i++) {
        mask |= m->rumours[i].mask;
    }
    return mask;
}

/* A neighbour is gone, and with it what was to be said to it. */
static void unask(struct members *m, int slot)
{
    for (uint32_t i = 0; i < m->n_rumours; i++) {
        m->rumours[i].mask &= ~BIT(slot);
    }
}

static void flush(struct members *m, struct out *out)
{
    for (uint64_t left = waiting(m); left != 0; left &= left - 1) {
        int k = __builtin_ctzll(left);
        struct gossip g = {0};
        struct members_link *l;

        if (m->active[k] == MEMBERS_NONE) {
            unask(m, k);
            continue;
        }
        l = members_link_of_peer(m, m->active[k]);
        if (l == NULL || budget(m) < -GOSSIP_BURST_BYTES) {
            continue;
        }
        fill(m, k, true, &g);
        if (budget(m) > 0) {
            fill(m, k, false, &g);
        }
        if (g.n_rumours + g.n_peers > 0) {
            (void)members_send_link(m, out, l, MESSAGE_GOSSIP, &g);
            spend(m, &g);
        }
    }
    if (waiting(m) != 0) {
        flush_soon(m);
    } else {
        m->flush_at_ms = 0;
    }
}

/* To this peer alone. */
static void tell(struct members *m,
                 int peer,
                 const struct peer_id *about,
                 uint32_t incarnation,
                 enum peer_state state,
                 struct out *out)
{
    struct members_link *l = members_link_of_peer(m, peer);
    struct gossip g = {.n_rumours = 1};

    g.rumours[0] = (struct rumour){
        .id = *about, .incarnation = incarnation, .state = (uint8_t)state};
    earn(m);
    if (l != NULL && out != NULL && budget(m) > 0) {
        spend(m, &g);
        (void)members_send_link(m, out, l, MESSAGE_GOSSIP, &g);
    }
}

void members_tell_of(struct members *m, int peer, int about, struct out *out)
{
    const struct member *p = &m->peers[about];

    /* As a suspicion: whoever hears the peer lets it answer. */
    tell(m, peer, &p->id, p->info.incarnation,
         p->state == PEER_ALIVE ? PEER_ALIVE : PEER_SUSPECT, out);
}

struct peer_info members_info(const struct members *m, int peer)
{
    const struct member *p = &m->peers[peer];
    struct peer_info info = p->info;

    info.id = p->id;
    info.reach = p->way.reach;
    info.address.port = p->address.port;
    memcpy(info.address.ip, p->address.ip, sizeof p->address.ip);
    return info;
}

/* ---- hearing ---------------------------------------------------------- */

/* Copies of it are perhaps still on their way. */
static bool is_young(const struct members *m, uint64_t since_ms)
{
    return m->now_ms - since_ms <= (uint64_t)m->opt.heartbeat_ms * YOUNG_BEATS;
}

static void about_self(struct members *m,
                       uint32_t incarnation,
                       enum peer_state state,
                       int from,
                       struct out *out)
{
    const struct members_rumour *r;

    if (is_later(incarnation, m->self.incarnation) ||
        (state != PEER_ALIVE && incarnation == m->self.incarnation)) {
        m->self.incarnation = incarnation + 1;
        m->counts.refuted++;
        enqueue(m, &m->self, PEER_ALIVE, false, MEMBERS_NONE);
    } else if (state != PEER_ALIVE && from != MEMBERS_NONE) {
        r = queued(m, &m->self.id);
        if (r == NULL || !is_young(m, r->at_ms)) {
            tell(m, from, &m->self.id, m->self.incarnation, PEER_ALIVE, out);
        }
    }
}

/* `from` speaks ill of a peer that has contradicted this since. While the
 * contradiction is young it is on its way there, too. */
static void correct(
    struct members *m, int row, uint32_t incarnation, int from, struct out *out)
{
    const struct member *p = &m->peers[row];

    if (p->state == PEER_ALIVE && is_later(p->info.incarnation, incarnation) &&
        !is_young(m, p->state_ms)) {
        members_tell_of(m, from, row, out);
    }
}

static void take_info(struct members *m, int row, const struct peer_info *info)
{
    struct member *p = &m->peers[row];
    uint32_t incarnation = p->info.incarnation;

    /* Its last heartbeat may be older: not every link gets the next one. */
    p->info.features = info->features;
    p->info.stage = info->stage;
    if (!p->has_beat || p->n_links == 0) {
        p->info = *info;
        p->info.incarnation = incarnation;
    }
    if (p->n_links == 0) {
        p->way.reach = info->reach;
    }
}

static bool is_heard(const struct members *m, int row)
{
    return row != MEMBERS_NONE && m->peers[row].n_links > 0 &&
           m->now_ms - m->peers[row].real_ms <= m->opt.suspect_ms;
}

/* A row for whom a rumour of `from` tells the address of. An address of the
 * sender's LAN is no use to us outside of it. */
static int take_row(struct members *m, const struct peer_info *info, int from)
{
    struct address a = {.port = info->address.port};
    int row;

    if (a.port == 0) {
        return MEMBERS_NONE;
    }
    memcpy(a.ip, info->address.ip, sizeof a.ip);
    if (from != MEMBERS_NONE && reach_is_global(&m->peers[from].address) &&
        !reach_is_global(&a)) {
        a.port = 0;
    }
    row = members_learn(m, &info->id, &a, m->now_ms);
    if (row != MEMBERS_NONE && from != MEMBERS_NONE && row != from) {
        members_way_told(m, row, from);
    }
    return row;
}

/* It is known already, or outdone. `was`: the state that is known. */
static void stale(struct members *m,
                  int row,
                  const struct peer_info *info,
                  enum peer_state was,
                  int from,
                  struct out *out)
{
    if (row == MEMBERS_NONE || !m->peers[row].confirmed) {
        /* Only rumours without its address came by before. */
        row = was >= PEER_DEAD ? MEMBERS_NONE : take_row(m, info, from);
        if (row != MEMBERS_NONE) {
            members_confirm(m, row);
            members_state(m, row, was, info->incarnation);
            take_info(m, row, info);
        }
        return;
    }
    if (m->peers[row].state >= PEER_DEAD && from != MEMBERS_NONE) {
        members_tell_of(m, from, row, out); /* let it contradict */
    } else if (info->incarnation == m->peers[row].info.incarnation) {
        take_info(m, row, info);
    }
}

/* What is known: of a row, or of a rumour about somebody without one, which may
 * have left the queue while copies of it are still on their way. */
static bool known(struct members *m,
                  int row,
                  const struct peer_id *id,
                  uint32_t *incarnation,
                  enum peer_state *state)
{
    const struct members_seen *s = members_seen_of(m, id);
    const struct members_rumour *r;

    if (row != MEMBERS_NONE && m->peers[row].confirmed) {
        *incarnation = m->peers[row].info.incarnation;
        *state = (enum peer_state)m->peers[row].state;
        return true;
    }
    r = s != NULL ? NULL : queued(m, id); /* a search */
    if (r != NULL) {
        *incarnation = r->info.incarnation;
        *state = (enum peer_state)r->state;
    } else if (s != NULL) {
        *incarnation = s->incarnation;
        *state = (enum peer_state)s->state;
    }
    return r != NULL || s != NULL;
}

void members_rumour(struct members *m,
                    const struct peer_info *info,
                    enum peer_state state,
                    bool full,
                    int from,
                    struct out *out)
{
    int row = members_find(m, &info->id);
    enum peer_state was;
    uint32_t inc;
    bool heard_of;

    if (id_eq(&info->id, &m->opt.self)) {
        about_self(m, info->incarnation, state, from, out);
        return;
    }
    heard_of = known(m, row, &info->id, &inc, &was);
    if (heard_of && !outdoes(info->incarnation, state, inc, was)) {
        if (state == PEER_ALIVE && full) {
            stale(m, row, info, was, from, out);
        } else if (state != PEER_ALIVE && row != MEMBERS_NONE &&
                   from != MEMBERS_NONE) {
            correct(m, row, info->incarnation, from, out);
        }
        return;
    }
    if (state == PEER_ALIVE && full) {
        int taken = take_row(m, info, from);

        row = taken == MEMBERS_NONE ? row : taken;
    }
    if (row != MEMBERS_NONE) {
        bool contradicts =
            state != PEER_ALIVE && from != MEMBERS_NONE && is_heard(m, row);

        members_confirm(m, row);
        /* What we hear ourselves is at most suspect: the sweep decides. */
        members_state(m, row, contradicts ? PEER_SUSPECT : state,
                      info->incarnation);
        if (full) {
            take_info(m, row, info);
        }
        if (contradicts) {
            members_tell_of(m, row, row, out); /* it answers for itself */
            return;
        }
    }
    if (row == MEMBERS_NONE) {
        members_seen_note(m, &info->id, info->incarnation, state);
    }
    if (row == MEMBERS_NONE && full && !heard_of && m->n_peers == m->rows) {
        return; /* a stranger in a large swarm: see the top */
    }
    enqueue(m, info, state, full, from);
}

void members_on_gossip(struct members *m,
                       int peer,
                       const struct gossip *msg,
                       struct out *out)
{
    for (uint32_t i = 0; i < msg->n_rumours; i++) {
        const struct rumour *r = &msg->rumours[i];
        struct peer_info info = {.id = r->id, .incarnation = r->incarnation};

        if (r->state < PEER_STATE_COUNT) {
            members_rumour(m, &info, (enum peer_state)r->state, false, peer,
                           out);
        }
    }
    for (uint32_t i = 0; i < msg->n_peers; i++) {
        members_rumour(m, &msg->peers[i], PEER_ALIVE, true, peer, out);
    }
}

/* ---- doubts ----------------------------------------------------------- */

void members_declare(struct members *m,
                     int peer,
                     enum peer_state state,
                     struct out *out)
{
    struct peer_info info = members_info(m, peer);

    (void)out;
    if (m->peers[peer].state >= PEER_DEAD) {
        return;
    }
    m->counts.declared += state == PEER_DEAD;
    members_confirm(m, peer);
    members_state(m, peer, state, info.incarnation);
    enqueue(m, &info, state, false, MEMBERS_NONE);
}

static struct members_doubt *doubt_of(struct members *m, int peer)
{
    for (int i = 0; i < MEMBERS_DOUBTS_MAX; i++) {
        if (m->doubts[i].peer == peer) {
            return &m->doubts[i];
        }
    }
    return NULL;
}

/* Ask the swarm: whoever hears it lets it answer. */
static void tell_doubt(struct members *m, struct members_doubt *d)
{
    struct peer_info info = members_info(m, d->peer);

    d->told = true;
    members_confirm(m, d->peer);
    if (m->peers[d->peer].state == PEER_ALIVE) {
        members_state(m, d->peer, PEER_SUSPECT, info.incarnation);
    }
    enqueue(m, &info, PEER_SUSPECT, false, MEMBERS_NONE);
}

void members_doubt(struct members *m,
                   int peer,
                   uint32_t quiet_ms,
                   uint32_t wait_ms,
                   struct out *out)
{
    struct member *p = &m->peers[peer];
    struct members_doubt *d = doubt_of(m, peer);

    if (d != NULL || p->state >= PEER_DEAD) {
        return;
    }
    d = doubt_of(m, MEMBERS_NONE);
    if (d == NULL) {
        return; /* somebody else will notice, or we when there is room */
    }
    if (quiet_ms > 0 && !members_dial_row(m, peer, out)) {
        quiet_ms = 0;
    }
    *d = (struct members_doubt){.peer = peer,
                                .incarnation = p->info.incarnation,
                                .since_ms = m->now_ms,
                                .tell_ms = m->now_ms + quiet_ms,
                                .due_ms = m->now_ms + quiet_ms + wait_ms};
    m->due_ms = 0;
    if (quiet_ms == 0) {
        tell_doubt(m, d);
    }
}

/* It spoke to us, or for itself to the swarm. */
static bool settled(const struct members *m, const struct members_doubt *d)
{
    const struct member *p = &m->peers[d->peer];

    return (p->n_links > 0 && p->heard_ms > d->since_ms) ||
           is_later(p->info.incarnation, d->incarnation) ||
           p->state >= PEER_DEAD;
}

static void look_at_doubts(struct members *m, uint64_t *due, struct out *out)
{
    for (int i = 0; i < MEMBERS_DOUBTS_MAX; i++) {
        struct members_doubt *d = &m->doubts[i];
        struct member *p;

        if (d->peer == MEMBERS_NONE) {
            continue;
        }
        p = &m->peers[d->peer];
        if (settled(m, d)) {
            if (p->state == PEER_SUSPECT &&
                p->info.incarnation == d->incarnation) {
                members_state(m, d->peer, PEER_ALIVE, d->incarnation);
            }
            if (p->n_links > 0 && p->heard_ms <= d->since_ms) {
                /* It lives, but not for us on this link. */
                members_hang_up_all(m, d->peer, out);
                members_active_remove(m, d->peer);
            }
            d->peer = MEMBERS_NONE;
        } else if (m->now_ms >= d->due_ms ||
                   (p->n_links == 0 && members_dial_refused(p->dial_rc))) {
            int peer = d->peer;

            d->peer = MEMBERS_NONE;
            members_hang_up_all(m, peer, out);
            members_active_remove(m, peer);
            members_declare(m, peer, PEER_DEAD, out);
        } else {
            uint64_t next = d->told ? d->due_ms : d->tell_ms;

            if (!d->told && m->now_ms >= d->tell_ms) {
                tell_doubt(m, d);
                next = d->due_ms;
            }
            *due = next < *due ? next : *due;
        }
    }
}

/* ---- time ------------------------------------------------------------- */

/* A suspicion that nobody contradicted was right, unless we hear the peer; who
 * began it may be dead. */
static void sweep(struct members *m)
{
    uint64_t stale_ms = (uint64_t)m->opt.heartbeat_ms * STALE_BEATS;

    for (uint32_t i = 0; i < m->n_peers && m->n_suspect > 0; i++) {
        const struct member *p = &m->peers[i];

        if (p->used && p->state == PEER_SUSPECT &&
            m->now_ms - p->state_ms > stale_ms) {
            members_state(m, (int)i,
                          is_heard(m, (int)i) ? PEER_ALIVE : PEER_DEAD,
                          p->info.incarnation);
        }
    }
}

void members_rumour_tick(struct members *m, uint64_t *due, struct out *out)
{
    look_at_doubts(m, due, out);
    if (m->now_ms >= m->sweep_at_ms) {
        sweep(m);
        m->sweep_at_ms = m->now_ms + m->opt.heartbeat_ms;
    }
    if (!m->announced && m->n_active > 0) {
        members_announce(m);
    }
    if (m->flush_at_ms != 0 && m->now_ms >= m->flush_at_ms) {
        earn(m);
        flush(m, out);
    }
    if (m->flush_at_ms != 0 && m->flush_at_ms < *due) {
        *due = m->flush_at_ms;
    }
}
