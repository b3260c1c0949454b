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
 * Every other time it is one that is thought dead: that finds the other half of
 * a swarm that was cut. Not by chance: who is dead does not answer, and tables
 * are compared with the others. One that is thought alive and cannot be reached
 * is doubted: so rows whose neighbours died with them do not stay for ever. Now
 * and then the target becomes a neighbour in the place of another, at once
 * where it was thought dead: or two swarms with all the neighbours that they
 * want would know of each other and stay two.
 */
#include "p2p/swarm/members_internal.h"

#include "proto/base/bytes.h"
#include "proto/base/rng.h"

/* Neighbours above the minimum that are accepted while not yet founding. */
#define ROOM          3
#define SWAP_ONE_IN   4 /* probes that make their target a neighbour */
#define SHUFFLE_ROWS  8 /* of rows drawn at random */
#define SHUFFLES_VAIN 8 /* that teach nothing, before it is left at that */

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

bool members_seeks_many(const struct members *m)
{
    return least(m) > MEMBERS_ACTIVE_MIN + ROOM && m->n_active < least(m);
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
    members_keep_begins(m, p);
    m->active[slot] = peer;
    m->n_active++;
    p->active = true;
    p->active_ms = m->now_ms;
    members_rumour_slot(m, slot);
    if (!m->shuffled) {
        m->probe_at_ms = m->now_ms; /* whom else is there? */
    }
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

static void ask(struct members *m, int peer, bool urgent, struct out *out)
{
    struct member *p = &m->peers[peer];

    p->asked = true;
    p->ask_at_ms = m->now_ms + (uint64_t)m->opt.heartbeat_ms * ASK_BEATS;
    if (urgent && m->n_active >= most(m) && m->n_active > 0) {
        drop_one(m, out); /* room for its answer */
    }
    say(m, peer,
        urgent || m->n_active == 0 ? NEIGHBOUR_ASK_URGENT : NEIGHBOUR_ASK, out);
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

static bool can_dial(const struct members *m, const struct member *p)
{
    return p->address.port != 0 && members_dialable(p) &&
           m->now_ms >= p->dial_at_ms;
}

static bool may_ask(const struct members *m, int i)
{
    const struct member *p = &m->peers[i];

    return p->used && !p->active && !p->asked && !p->dialing &&
           m->now_ms >= p->ask_at_ms &&
           (p->n_links > 0 || (p->state == PEER_ALIVE && can_dial(m, p)));
}

/* Nobody is left of those thought alive: whoever there is. */
static bool may_try(const struct members *m, int i)
{
    const struct member *p = &m->peers[i];

    return p->used && p->n_links == 0 && !p->dialing && can_dial(m, p);
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
            ask(m, i, false, out);
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

static uint32_t part_of(const struct peer_id *id)
{
    return id->b[0] >> 2;
}

static void digest_of(const struct members *m, struct shuffle *msg)
{
    msg->n_digest = MESSAGE_DIGEST;
    msg->digest[part_of(&m->opt.self)] = get_u16(m->opt.self.b + 2);
    for (uint32_t i = 0; i < m->n_peers; i++) {
        const struct member *p = &m->peers[i];

        if (p->used && p->confirmed && p->state <= PEER_SUSPECT) {
            msg->digest[part_of(&p->id)] ^= get_u16(p->id.b + 2);
        }
    }
}

/* A part in which the tables differ, each in its turn: what one side must
 * contradict takes a while to agree; MESSAGE_DIGEST: none, or the other one is
 * not known. */
static uint32_t differs(struct members *m,
                        const struct shuffle *ours,
                        const struct shuffle *theirs)
{
    for (uint32_t k = 0; theirs != NULL && k < theirs->n_digest; k++) {
        uint32_t i = (m->next_part + k) % MESSAGE_DIGEST;

        if (i < theirs->n_digest && ours->digest[i] != theirs->digest[i]) {
            m->next_part = i + 1;
            return i;
        }
    }
    return MESSAGE_DIGEST;
}

static void add_part(struct members *m, uint32_t part, struct shuffle *msg)
{
    uint32_t from = (uint32_t)rng_below(&m->rng, m->n_peers);

    for (uint32_t k = 0; k < m->n_peers && msg->n_peers < MESSAGE_PEERS_MAX;
         k++) {
        int i = (int)((from + k) % m->n_peers);

        if (part_of(&m->peers[i].id) == part && is_told(m, i)) {
            msg->peers[msg->n_peers++] = members_info(m, i);
        }
    }
}

static void add_random(struct members *m, int except, struct shuffle *msg)
{
    for (int k = 0; k < SHUFFLE_ROWS && msg->n_peers < SHUFFLE_ROWS; k++) {
        int i = members_random(m, is_told);
        bool twice = i == MEMBERS_NONE || i == except;

        for (uint32_t j = 0; j < msg->n_peers && !twice; j++) {
            twice = id_eq(&msg->peers[j].id, &m->peers[i].id);
        }
        if (!twice) {
            msg->peers[msg->n_peers++] = members_info(m, i);
        }
    }
}

/* Rows of a part in which `theirs` differs; where it does not, or is not known,
 * random ones. False: our table is theirs. */
static bool shuffle(struct members *m,
                    int peer,
                    bool reply,
                    const struct shuffle *theirs,
                    struct out *out)
{
    struct members_link *l = members_link_of_peer(m, peer);
    struct shuffle msg = {.reply = reply};
    uint32_t part;

    digest_of(m, &msg);
    part = differs(m, &msg, theirs);
    if (l == NULL || (theirs != NULL && !reply && part == MESSAGE_DIGEST)) {
        return false;
    }
    if (m->self.address.port != 0) {
        msg.peers[msg.n_peers++] = m->self;
    }
    if (part < MESSAGE_DIGEST) {
        add_part(m, part, &msg);
    } else {
        add_random(m, peer, &msg);
    }
    return members_send_link(m, out, l, MESSAGE_SHUFFLE, &msg);
}

void members_on_shuffle(struct members *m,
                        int peer,
                        const struct shuffle *msg,
                        struct out *out)
{
    uint32_t before = m->n_alive;

    if (!msg->reply) {
        (void)shuffle(m, peer, true, msg, out);
    }
    for (uint32_t i = 0; i < msg->n_peers; i++) {
        members_rumour(m, &msg->peers[i], PEER_ALIVE, true, peer, out);
    }
    /* A newcomer, or one that missed something, goes on part by part until the
     * tables are the same. In a swarm that is larger than the table all
     * differ. */
    if (msg->reply && m->n_peers < m->rows - m->rows / 64 &&
        (m->n_alive > before || m->more_shuffles > 0)) {
        m->more_shuffles =
            m->n_alive > before ? SHUFFLES_VAIN : m->more_shuffles - 1;
        (void)shuffle(m, peer, false, msg, out);
    }
}

static bool is_probed(const struct members *m, int i)
{
    const struct member *p = &m->peers[i];

    return p->used && p->state <= PEER_SUSPECT && p->n_links == 0 &&
           !p->dialing && can_dial(m, p);
}

static bool is_cut_off(const struct members *m, int i)
{
    const struct member *p = &m->peers[i];

    return p->used && p->state == PEER_DEAD && p->n_links == 0 && !p->dialing &&
           can_dial(m, p);
}

/* A newcomer asks its first neighbour. */
static void first_shuffle(struct members *m, struct out *out)
{
    for (int k = 0; k < MEMBERS_ACTIVE_MAX && !m->shuffled; k++) {
        if (m->active[k] != MEMBERS_NONE) {
            m->more_shuffles = SHUFFLES_VAIN;
            m->shuffled = shuffle(m, m->active[k], false, NULL, out);
        }
    }
}

static void probe(struct members *m, struct out *out)
{
    uint64_t beats_ms = (uint64_t)m->opt.heartbeat_ms * PROBE_BEATS;
    bool dead = m->n_dead > 0 && !m->probed_dead;
    int i = dead ? members_random(m, is_cut_off) : MEMBERS_NONE;

    dead = i != MEMBERS_NONE;
    i = i == MEMBERS_NONE ? members_random(m, is_probed) : i;
    m->probe_at_ms =
        m->now_ms + beats_ms / 2 + rng_below(&m->rng, beats_ms + 1);
    if (i != MEMBERS_NONE && members_dial_row(m, i, out)) {
        m->peers[i].probed = true;
        m->probed_dead = dead;
        m->counts.probes++;
    }
}

/* ---- time ------------------------------------------------------------- */

/* A link is up, perhaps dialled for this: ask, or shuffle. After the owner said
 * HELLO. */
static void linked(struct members *m, int peer, struct out *out)
{
    struct member *p = &m->peers[peer];

    if (p->probed && !p->active && m->n_active >= MEMBERS_ACTIVE_MIN &&
        (p->state == PEER_DEAD || rng_below(&m->rng, SWAP_ONE_IN) == 0)) {
        ask(m, peer, true, out);
    }
    if (p->probed) {
        p->probed = false;
        m->more_shuffles = SHUFFLES_VAIN;
        (void)shuffle(m, peer, false, NULL, out);
    }
    if (p->sought) {
        p->sought = false;
        m->n_seeking--;
        if (!p->active && m->n_active < least(m)) {
            ask(m, peer, false, out);
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
            members_doubt(m, peer, 0, m->opt.redial_ms + m->opt.redial_ms / 2,
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
        members_doubt(m, peer, m->opt.heartbeat_ms * 2 / 3,
                      m->opt.dead_ms - doubt_ms + doubt_ms / 8, out);
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
        first_shuffle(m, out);
        probe(m, out);
    }
    *due = m->probe_at_ms < *due ? m->probe_at_ms : *due;
}
