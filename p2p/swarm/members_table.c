/* members_table.c - the rows of the table of peers; see members.h.
 *
 * A row is taken for whoever is heard of and kept until the table is full. Then
 * rows without a link are given up in this order: the longest dead, beyond a
 * few that may only be cut off; hearsay that nobody confirmed; and for a peer
 * that is here, is to be dialled now or is named by a view, any. So in a swarm
 * larger than the table the rows are a sample of it, which shuffles renew.
 *
 * Ids are found by an index of open addressing, made anew when a row changes
 * hands, which is rare.
 */
#include "p2p/swarm/members_internal.h"

#include <string.h>

#include "proto/base/rng.h"

/* Dead rows that are kept when the table is full: the other half, perhaps. */
#define DEAD_KEPT(m) ((m)->rows / 16)
/* Looks at random before a search gives up. */
#define TRIES 48

static uint32_t slot_of(const struct members *m, const struct peer_id *id)
{
    return (uint32_t)id_u64(id) & m->index_mask;
}

int members_find(const struct members *m, const struct peer_id *id)
{
    uint32_t at = slot_of(m, id);

    while (m->index[at] != 0) {
        if (id_eq(&m->peers[m->index[at] - 1].id, id)) {
            return m->index[at] - 1;
        }
        at = (at + 1) & m->index_mask;
    }
    return MEMBERS_NONE;
}

static void index_add(struct members *m, int row)
{
    uint32_t at = slot_of(m, &m->peers[row].id);

    while (m->index[at] != 0) {
        at = (at + 1) & m->index_mask;
    }
    m->index[at] = (uint16_t)(row + 1);
}

static void index_rebuild(struct members *m, int without)
{
    memset(m->index, 0, (m->index_mask + 1) * sizeof m->index[0]);
    for (uint32_t i = 0; i < m->n_peers; i++) {
        if ((int)i != without) {
            index_add(m, (int)i);
        }
    }
}

/* ---- who has no row --------------------------------------------------- */

static struct members_seen *seen_set(struct members *m, uint64_t word)
{
    uint64_t sets = MEMBERS_SEEN_MAX / MEMBERS_SEEN_WAYS;

    return &m->seen[(word >> 32 & (sets - 1)) * MEMBERS_SEEN_WAYS];
}

void members_seen_note(struct members *m,
                       const struct peer_id *id,
                       uint32_t incarnation,
                       enum peer_state state)
{
    uint64_t word = id_u64(id);
    struct members_seen *set = seen_set(m, word), *s = set;

    for (int k = 0; k < MEMBERS_SEEN_WAYS; k++) {
        if (set[k].word == word) {
            s = &set[k];
            break;
        }
        /* Also where the count has gone round. */
        if (m->n_noted - set[k].noted > m->n_noted - s->noted) {
            s = &set[k];
        }
    }
    *s = (struct members_seen){
        .word = word,
        .incarnation = incarnation,
        .noted = ++m->n_noted,
        .state = (uint8_t)state,
    };
}

const struct members_seen *members_seen_of(struct members *m,
                                           const struct peer_id *id)
{
    uint64_t word = id_u64(id);
    const struct members_seen *set = seen_set(m, word);

    for (int k = 0; word != 0 && k < MEMBERS_SEEN_WAYS; k++) {
        if (set[k].word == word) {
            return &set[k];
        }
    }
    return NULL;
}

/* ---- states ----------------------------------------------------------- */

static bool counts_alive(const struct member *p)
{
    return p->confirmed && p->state <= PEER_SUSPECT;
}

static bool counts_dead(const struct member *p)
{
    return p->used && p->state >= PEER_DEAD;
}

static bool counts_suspect(const struct member *p)
{
    return p->used && p->state == PEER_SUSPECT;
}

static void uncount(struct members *m, const struct member *p)
{
    m->n_alive -= counts_alive(p);
    m->n_dead -= counts_dead(p);
    m->n_suspect -= counts_suspect(p);
}

static void count(struct members *m, const struct member *p)
{
    m->n_alive += counts_alive(p);
    m->n_dead += counts_dead(p);
    m->n_suspect += counts_suspect(p);
}

void members_state(struct members *m,
                   int peer,
                   enum peer_state state,
                   uint32_t incarnation)
{
    struct member *p = &m->peers[peer];

    uncount(m, p);
    if (p->state != state || p->info.incarnation != incarnation) {
        p->state_ms = m->now_ms;
    }
    p->state = (uint8_t)state;
    p->info.incarnation = incarnation;
    count(m, p);
}

void members_confirm(struct members *m, int peer)
{
    struct member *p = &m->peers[peer];

    uncount(m, p);
    p->confirmed = true;
    count(m, p);
}

uint32_t members_n_alive(const struct members *m)
{
    return m->n_alive;
}

/* ---- taking a row ----------------------------------------------------- */

static bool is_free(const struct member *p)
{
    return p->n_links == 0 && !p->watched && !p->dialing && !p->active &&
           !p->wanted && !p->guest && !p->named && !p->way.relaying;
}

static int longest_dead(const struct members *m)
{
    int best = MEMBERS_NONE;

    for (int i = 0; i < (int)m->n_peers; i++) {
        const struct member *p = &m->peers[i];

        if (is_free(p) && p->state >= PEER_DEAD &&
            (best == MEMBERS_NONE || p->state_ms < m->peers[best].state_ms)) {
            best = i;
        }
    }
    return best;
}

static bool is_hearsay(const struct members *m, int i)
{
    return is_free(&m->peers[i]) && !m->peers[i].confirmed;
}

static bool is_spare(const struct members *m, int i)
{
    return is_free(&m->peers[i]);
}

int members_random(struct members *m,
                   bool (*want)(const struct members *m, int peer))
{
    uint32_t from;

    if (m->n_peers == 0) {
        return MEMBERS_NONE;
    }
    for (int k = 0; k < TRIES; k++) {
        int i = (int)rng_below(&m->rng, m->n_peers);

        if (want(m, i)) {
            return i;
        }
    }
    if (m->n_peers > 4 * TRIES) {
        return MEMBERS_NONE;
    }
    from = (uint32_t)rng_below(&m->rng, m->n_peers);
    for (uint32_t k = 0; k < m->n_peers; k++) {
        int i = (int)((from + k) % m->n_peers);

        if (want(m, i)) {
            return i;
        }
    }
    return MEMBERS_NONE;
}

/* A row to be given to somebody who is `here`, or only heard of. */
static int row_give_up(struct members *m, bool here)
{
    int row = MEMBERS_NONE;

    if (m->n_dead > DEAD_KEPT(m) || here) {
        row = longest_dead(m);
    }
    if (row == MEMBERS_NONE) {
        row = members_random(m, is_hearsay);
    }
    for (uint32_t i = 0; row == MEMBERS_NONE && here && i < m->n_peers; i++) {
        row = is_hearsay(m, (int)i) ? (int)i : MEMBERS_NONE;
    }
    /* One in eight newcomers of whom we only hear takes the place of another
     * of that kind: the sample stays young and does not churn. */
    if (row == MEMBERS_NONE && (here || rng_below(&m->rng, 8) == 0)) {
        row = members_random(m, is_spare);
    }
    for (uint32_t i = 0; row == MEMBERS_NONE && here && i < m->n_peers; i++) {
        row = is_spare(m, (int)i) ? (int)i : MEMBERS_NONE;
    }
    return row;
}

static void forget(struct members *m, int row)
{
    for (int k = 0; k < MEMBERS_DOUBTS_MAX; k++) {
        if (m->doubts[k].peer == row) {
            m->doubts[k].peer = MEMBERS_NONE;
        }
    }
    uncount(m, &m->peers[row]);
    if (m->peers[row].confirmed) {
        members_seen_note(m, &m->peers[row].id, m->peers[row].info.incarnation,
                          (enum peer_state)m->peers[row].state);
    }
    for (uint32_t i = 0; i < m->n_peers; i++) {
        for (int k = 0; k < MEMBERS_VIA_MAX; k++) {
            if (m->peers[i].way.via[k] == row) {
                m->peers[i].way.via[k] = MEMBERS_NONE;
            }
        }
    }
    index_rebuild(m, row);
}

static int row_take(struct members *m, bool here)
{
    int row;

    if (m->n_peers < m->rows) {
        return (int)m->n_peers++;
    }
    row = row_give_up(m, here);
    if (row != MEMBERS_NONE) {
        forget(m, row);
    }
    return row;
}

/* Whether hearsay does not change its address: while there is hope to find the
 * peer there, nobody leads us away from it. */
static bool stays(const struct member *p)
{
    return (p->watched || p->named || p->guest) && p->address.port != 0 &&
           !p->hearsay && p->backoff_ms < DIAL_BACKOFF_MAX_MS;
}

static int learn(struct members *m,
                 const struct peer_id *id,
                 const struct address *address,
                 uint64_t now_ms,
                 bool here)
{
    int i = members_find(m, id);
    struct member *p;

    if (id_eq(id, &m->opt.self) || id_is_zero(id)) {
        return MEMBERS_NONE;
    }
    if (i == MEMBERS_NONE) {
        i = row_take(m, here);
        if (i == MEMBERS_NONE) {
            return MEMBERS_NONE;
        }
        p = &m->peers[i];
        memset(p, 0, sizeof *p);
        p->used = true;
        p->id = *id;
        p->heard_ms = p->down_ms = p->state_ms = now_ms;
        p->dial_at_ms = members_dial_turn(m, id, now_ms);
        members_way_init(&p->way);
        /* Pairs that meet at a relay do not all begin with the same one. */
        p->way.next_via = (uint32_t)(id_u64(id) ^ id_u64(&m->opt.self));
        index_add(m, i);
    }
    p = &m->peers[i];
    if (p->n_links == 0 && address->port != 0 &&
        !address_eq(&p->address, address) && !stays(p)) {
        p->address = *address;
        p->hearsay = true;
    }
    return i;
}

int members_learn(struct members *m,
                  const struct peer_id *id,
                  const struct address *address,
                  uint64_t now_ms)
{
    return learn(m, id, address, now_ms, false);
}

int members_learn_here(struct members *m,
                       const struct peer_id *id,
                       const struct address *address,
                       uint64_t now_ms)
{
    return learn(m, id, address, now_ms, true);
}

int members_name(struct members *m,
                 const struct peer_id *id,
                 const struct address *address,
                 const uint8_t public_key[32],
                 uint64_t now_ms)
{
    int row = learn(m, id, address, now_ms, true);

    if (row != MEMBERS_NONE) {
        struct member *p = &m->peers[row];

        if (p->n_links == 0 && address->port != 0) {
            p->address = *address;
        }
        p->hearsay = p->hearsay && !address_eq(&p->address, address);
        members_key(m, row, public_key);
        p->named = true;
    }
    return row;
}

void members_key(struct members *m, int peer, const uint8_t public_key[32])
{
    memcpy(m->peers[peer].public_key, public_key, 32);
    m->peers[peer].has_key = true;
}

void members_want(struct members *m, int peer, bool wanted)
{
    struct member *p = &m->peers[peer];

    if (p->wanted != wanted) {
        m->n_wanted += wanted ? 1 : UINT32_MAX;
        p->wanted = wanted;
        m->due_ms = 0;
    }
}

void members_guest(struct members *m, int peer, bool guest)
{
    struct member *p = &m->peers[peer];

    if (p->guest != guest) {
        m->n_wanted += guest ? 1 : UINT32_MAX;
        members_keep_begins(m, p);
        p->guest = guest;
    }
}
