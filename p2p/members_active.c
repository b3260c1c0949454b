/* members_active.c - neighbours, and how the table stays a fresh sample.
 *
 * While there are fewer than MEMBERS_ACTIVE_MIN neighbours a random peer that
 * is thought alive is asked; links_wanted is the most that we accept. Who has
 * none asks urgently and is never refused: a random neighbour makes room and is
 * told. Both sides say in their pulses that they are neighbours, so a lost
 * answer mends itself.
 *
 * A neighbour outside the view that is silent, or whose link broke, is doubted
 * (members_rumour.c); watched ones are members_watch.c's.
 *
 * Every PROBE_BEATS a random row is dialled and some rows exchanged with it.
 * Half of the time it is one that is thought dead: that finds the other half of
 * a swarm that was cut. One that is thought alive and cannot be reached is
 * doubted: so rows whose neighbours died with them do not stay for ever.
 */
#include "p2p/members_internal.h"

#include "proto/base/rng.h"

/* Neighbours above the minimum that are accepted while not yet founding. */
#define ROOM 3

static uint32_t most(const struct members *m)
{
    return m->opt.links_wanted < MEMBERS_ACTIVE_MAX ? m->opt.links_wanted
                                                    : MEMBERS_ACTIVE_MAX;
}

/* While a view is to be founded many are looked for, else a few. */
static uint32_t least(const struct members *m)
{
    uint32_t n = most(m);

    return n > MEMBERS_ACTIVE_MIN + ROOM ? n
           : n < MEMBERS_ACTIVE_MIN      ? n
                                         : MEMBERS_ACTIVE_MIN;
}

int members_slot(const struct members *m, int peer)
{
    for (int k = 0; k < MEMBERS_ACTIVE_MAX; k++) {
        if (m->active[k] == peer) {
            return k;
        }
    }
    return -1;
}

static bool add(struct members *m, int peer)
{
    int slot = members_slot(m, MEMBERS_NONE);
    struct member *p = &m->peers[peer];

    p->asked = false;
    if (p->active) {
        return true;
    }
    if (slot < 0) {
        return false;
    }
    m->active[slot] = peer;
    m->n_active++;
    m->due_ms = 0;
    p->active = p->nudge = true;
    p->active_ms = m->now_ms;
    members_rumour_slot(m, slot);
    return true;
}

void members_active_remove(struct members *m, int peer)
{
    int slot = members_slot(m, peer);

    if (slot >= 0) {
        m->active[slot] = MEMBERS_NONE;
        m->n_active--;
        m->due_ms = 0;
        m->peers[peer].active = false;
        m->peers[peer].nudge = true;
    }
    m->peers[peer].ask_at_ms =
        m->now_ms + (uint64_t)m->opt.heartbeat_ms * ASK_BEATS;
}

static void
say(struct members *m, int peer, enum neighbour_kind kind, struct out *out)
{
    struct neighbour msg = {.kind = (uint8_t)kind};
    struct members_link *l = members_link_of_peer(m, peer);

    if (l != NULL) {
        (void)members_send_link(m, out, l, MESSAGE_NEIGHBOUR, &msg);
    }
}

/* A random neighbour makes room. */
static void drop_one(struct members *m, struct out *out)
{
    uint64_t k = rng_below(&m->rng, m->n_active);

    for (int i = 0; i < MEMBERS_ACTIVE_MAX; i++) {
        int peer = m->active[i];

        if (peer != MEMBERS_NONE && k-- == 0) {
            members_active_remove(m, peer);
            say(m, peer, NEIGHBOUR_NO, out);
            return;
        }
    }
}

static void ask(struct members *m, int peer, struct out *out)
{
    struct member *p = &m->peers[peer];

    p->asked = true;
    p->ask_at_ms = m->now_ms + (uint64_t)m->opt.heartbeat_ms * ASK_BEATS;
    say(m, peer, m->n_active == 0 ? NEIGHBOUR_ASK_URGENT : NEIGHBOUR_ASK, out);
}

void members_on_neighbour(struct members *m,
                          int peer,
                          const struct neighbour *msg,
                          struct out *out)
{
    struct member *p = &m->peers[peer];

    if (msg->kind == NEIGHBOUR_NO) {
        p->asked = false;
        members_active_remove(m, peer);
        return;
    }
    if (msg->kind == NEIGHBOUR_YES) {
        if (!p->asked || m->n_active >= most(m) || !add(m, peer)) {
            say(m, peer, NEIGHBOUR_NO, out);
        }
        return;
    }
    if (msg->kind >= NEIGHBOUR_KIND_COUNT) {
        return;
    }
    if (!p->active && m->n_active >= most(m) &&
        msg->kind == NEIGHBOUR_ASK_URGENT && m->n_active > 0) {
        drop_one(m, out);
    }
    say(m, peer,
        p->active || (m->n_active < most(m) && add(m, peer)) ? NEIGHBOUR_YES
                                                             : NEIGHBOUR_NO,
        out);
}

void members_active_agree(struct members *m,
                          int peer,
                          bool active,
                          struct out *out)
{
    struct member *p = &m->peers[peer];

    if (active && !p->active && !p->asked &&
        (m->n_active >= most(m) || !add(m, peer))) {
        say(m, peer, NEIGHBOUR_NO, out);
    } else if (!active && p->active &&
               m->now_ms - p->active_ms > 2ULL * m->opt.heartbeat_ms) {
        members_active_remove(m, peer); /* its NO was lost */
    }
}

/* ---- looking for neighbours ------------------------------------------- */

static bool may_ask(const struct members *m, int i)
{
    const struct member *p = &m->peers[i];

    return p->used && !p->active && !p->asked && !p->dialing &&
           m->now_ms >= p->ask_at_ms &&
           (p->n_links > 0 || (p->state == PEER_ALIVE && p->address.port != 0 &&
                               m->now_ms >= p->dial_at_ms));
}

/* Nobody is left of those thought alive: whoever there is. */
static bool may_try(const struct members *m, int i)
{
    const struct member *p = &m->peers[i];

    return p->used && p->n_links == 0 && !p->dialing && p->address.port != 0 &&
           m->now_ms >= p->dial_at_ms;
}

/* Asked or dialled for it and not decided yet. */
static uint32_t n_seeking(const struct members *m)
{
    uint32_t n = 0;

    for (uint32_t i = 0; i < m->n_links_used; i++) {
        n += m->links[i].used && m->peers[m->links[i].peer].asked;
    }
    return n + m->n_seeking;
}

static void seek(struct members *m, uint64_t *due, struct out *out)
{
    uint32_t n = n_seeking(m), want = least(m);

    for (int k = 0; k < 8 && m->n_active + n < want; k++) {
        int i = members_random(m, may_ask);

        if (i == MEMBERS_NONE && m->n_linked == 0) {
            i = members_random(m, may_try);
        }
        if (i == MEMBERS_NONE) {
            break;
        }
        n++;
        if (m->peers[i].n_links > 0) {
            ask(m, i, out);
        } else if (members_dial_row(m, i, out)) {
            m->peers[i].sought = true;
            m->n_seeking++;
        }
    }
    if (m->n_active < want) {
        m->seek_at_ms = m->now_ms + m->opt.heartbeat_ms / 2;
        *due = m->seek_at_ms < *due ? m->seek_at_ms : *due;
    }
}

/* ---- shuffles --------------------------------------------------------- */

static bool is_told(const struct members *m, int i)
{
    const struct member *p = &m->peers[i];

    return p->used && p->confirmed && p->state == PEER_ALIVE &&
           p->address.port != 0;
}

static void shuffle(struct members *m, int peer, bool reply, struct out *out)
{
    struct members_link *l = members_link_of_peer(m, peer);
    struct shuffle msg = {.reply = reply};

    if (l == NULL) {
        return;
    }
    if (m->self.address.port != 0) {
        msg.peers[msg.n_peers++] = m->self;
    }
    for (int k = 0; k < MESSAGE_PEERS_MAX; k++) {
        int i = members_random(m, is_told);
        bool twice = i == MEMBERS_NONE || i == peer;

        for (uint32_t j = 0; j < msg.n_peers && !twice; j++) {
            twice = id_eq(&msg.peers[j].id, &m->peers[i].id);
        }
        if (!twice && msg.n_peers < MESSAGE_PEERS_MAX) {
            msg.peers[msg.n_peers++] = members_info(m, i);
        }
    }
    (void)members_send_link(m, out, l, MESSAGE_SHUFFLE, &msg);
}

void members_on_shuffle(struct members *m,
                        int peer,
                        const struct shuffle *msg,
                        struct out *out)
{
    if (!msg->reply) {
        shuffle(m, peer, true, out);
    }
    for (uint32_t i = 0; i < msg->n_peers; i++) {
        members_rumour(m, &msg->peers[i], PEER_ALIVE, true, peer, out);
    }
}

static bool is_probed(const struct members *m, int i)
{
    const struct member *p = &m->peers[i];

    return p->used && p->state <= PEER_SUSPECT && p->n_links == 0 &&
           !p->dialing && p->address.port != 0 && m->now_ms >= p->dial_at_ms;
}

static bool is_cut_off(const struct members *m, int i)
{
    const struct member *p = &m->peers[i];

    return p->used && p->state == PEER_DEAD && p->n_links == 0 && !p->dialing &&
           p->address.port != 0 && m->now_ms >= p->dial_at_ms;
}

static void probe(struct members *m, struct out *out)
{
    uint64_t beats_ms = (uint64_t)m->opt.heartbeat_ms * PROBE_BEATS;
    bool dead = m->n_dead > 0 && rng_below(&m->rng, 2) == 0;
    int i = dead ? members_random(m, is_cut_off) : MEMBERS_NONE;

    i = i == MEMBERS_NONE ? members_random(m, is_probed) : i;
    m->probe_at_ms =
        m->now_ms + beats_ms / 2 + rng_below(&m->rng, beats_ms + 1);
    if (i != MEMBERS_NONE && members_dial_row(m, i, out)) {
        m->peers[i].probed = true;
        m->counts.probes++;
    }
}

/* ---- time ------------------------------------------------------------- */

/* A link is up, perhaps dialled for this: ask, or shuffle. After the owner said
 * HELLO. */
static void linked(struct members *m, int peer, struct out *out)
{
    struct member *p = &m->peers[peer];

    if (p->probed) {
        p->probed = false;
        shuffle(m, peer, false, out);
    }
    if (p->sought) {
        p->sought = false;
        m->n_seeking--;
        if (!p->active && m->n_active < least(m)) {
            ask(m, peer, out);
        }
    }
    if (p->state != PEER_ALIVE) {
        members_tell_of(m, peer, peer, out); /* it will contradict */
    }
    members_confirm(m, peer);
    members_state(m, peer, PEER_ALIVE, p->info.incarnation);
}

/* Neighbours that are silent or gone; watched ones are dealt with already. */
static void look_at(struct members *m, int peer, uint64_t *due, struct out *out)
{
    struct member *p = &m->peers[peer];
    uint64_t silent_ms = m->now_ms - p->heard_ms;
    uint32_t doubt_ms = m->opt.dead_ms / 4 * 3;
    uint64_t at;

    if (p->n_links == 0) {
        members_active_remove(m, peer);
        if (!p->watched) {
            members_doubt(m, peer, m->opt.redial_ms + m->opt.redial_ms / 2,
                          out);
            (void)members_dial_row(m, peer, out);
        }
        return;
    }
    if (p->watched) {
        if (p->indirect) {
            members_active_remove(m, peer);
        }
        return;
    }
    if (silent_ms > doubt_ms) {
        members_doubt(m, peer, m->opt.dead_ms - doubt_ms + doubt_ms / 8, out);
    }
    if (silent_ms > 2ULL * m->opt.dead_ms) { /* alive, but not on this link */
        members_hang_up_all(m, peer, out);
        members_active_remove(m, peer);
        return;
    }
    at = p->heard_ms + 1 +
         (silent_ms > doubt_ms ? 2 * m->opt.dead_ms : doubt_ms);
    *due = at < *due ? at : *due;
}

void members_active_tick(struct members *m, uint64_t *due, struct out *out)
{
    for (uint32_t i = 0; i < m->n_links_used; i++) {
        if (m->links[i].used && m->peers[m->links[i].peer].fresh) {
            m->peers[m->links[i].peer].fresh = false;
            linked(m, m->links[i].peer, out);
        }
    }
    for (int k = 0; k < MEMBERS_ACTIVE_MAX; k++) {
        if (m->active[k] != MEMBERS_NONE) {
            look_at(m, m->active[k], due, out);
        }
    }
    if (m->n_active > most(m)) {
        drop_one(m, out); /* the many are not needed any more */
        m->due_ms = 0;
    }
    if (m->n_active < least(m)) {
        if (m->now_ms >= m->seek_at_ms) {
            seek(m, due, out);
        } else if (m->seek_at_ms < *due) {
            *due = m->seek_at_ms;
        }
    }
    if (m->now_ms >= m->probe_at_ms) {
        probe(m, out);
    }
    *due = m->probe_at_ms < *due ? m->probe_at_ms : *due;
}
