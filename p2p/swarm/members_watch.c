/* members_watch.c - members of the view: who is silent, who is lost.
 *
 * Each says in its pulses which others it hears. So a peer that is silent here
 * and heard elsewhere is known to live: the line between us is bad (a partial
 * cut, or a long loss on one connection). It is *indirect* then, and not lost.
 * All say at once when they stop hearing somebody, so for a real death the last
 * word of everybody is in well before dead_ms. What they say of one that says
 * nothing itself, over them, ends to count: one liar could keep a dead member
 * in the view.
 *
 * What others say counts only while we hear them, and under the same view.
 */
#include "p2p/swarm/members_internal.h"

#include "proto/base/bytes.h"
#include "proto/base/rng.h"

/* Who is heard by others alone says so itself (FORWARD) every fourth heartbeat:
 * it may miss four of five. */
#define WORD_BEATS 20

uint16_t members_view_word(const struct members *m)
{
    return m->n_watch == 0 ? 0 : get_u16(m->watch_view.b);
}

/* Data that comes is noted at its time (members_alive), and our clock follows
 * with the next tick. */
static uint64_t since(const struct members *m, uint64_t at_ms)
{
    return m->now_ms > at_ms ? m->now_ms - at_ms : 0;
}

static bool heard(const struct members *m, int peer)
{
    const struct member *p = &m->peers[peer];

    return p->n_links > 0 && since(m, p->real_ms) <= m->opt.suspect_ms;
}

static int number_of(const struct members *m, int peer)
{
    for (uint32_t i = 0; i < m->n_watch; i++) {
        if (m->watch[i] == peer) {
            return (int)i;
        }
    }
    return -1;
}

/* Whether watched peer k says now whom of our view it hears. */
static bool says(const struct members *m, uint32_t k)
{
    int row = m->watch[k];

    return row != MEMBERS_NONE && heard(m, row) &&
           m->peers[row].hears_view == members_view_word(m) &&
           since(m, m->peers[row].hears_ms) <= m->opt.suspect_ms;
}

/* Whether watched peer k, as far as we hear it, says that it hears number i. */
static bool says_hears(const struct members *m, uint32_t k, int i)
{
    return (int)k != i && says(m, k) &&
           (m->peers[m->watch[k]].hears & BIT(i)) != 0;
}

bool members_deaf(const struct members *m, int row, int peer)
{
    int k = number_of(m, row), i = number_of(m, peer);

    return k >= 0 && i >= 0 && says(m, (uint32_t)k) &&
           (m->peers[row].hears & BIT(i)) == 0;
}

bool members_says_hears(const struct members *m, uint32_t k, int peer)
{
    int i = number_of(m, peer);

    return i >= 0 && says_hears(m, k, i);
}

bool members_vouched(const struct members *m, int peer)
{
    int i = number_of(m, peer);

    for (uint32_t k = 0; i >= 0 && k < m->n_watch; k++) {
        if (says_hears(m, k, i)) {
            return true;
        }
    }
    return false;
}

/* A member may say that it hears whom nobody hears. */
static bool lives_elsewhere(const struct members *m, int peer)
{
    const struct member *p = &m->peers[peer];
    uint64_t last = p->word_ms > p->real_ms ? p->word_ms : p->real_ms;

    return since(m, last) <= (uint64_t)m->opt.heartbeat_ms * WORD_BEATS &&
           members_vouched(m, peer);
}

uint32_t members_ways(const struct members *m, int peer, int ways[WAYS_MAX])
{
    int i = peer == MEMBERS_NONE ? -1 : number_of(m, peer);
    int all[VIEW_MEMBERS_MAX];
    uint32_t n = 0, first;

    if (i < 0 || m->peers[peer].lost) {
        return 0;
    }
    for (uint32_t k = 0; k < m->n_watch; k++) {
        if (says_hears(m, k, i) && members_linked(m, m->watch[k])) {
            all[n++] = m->watch[k];
        }
    }
    first = n == 0 ? 0 : (uint32_t)(rng_mix(&m->forward_number, 1) % n);
    for (uint32_t k = 0; k < n && k < WAYS_MAX; k++) {
        ways[k] = all[(first + k) % n];
    }
    return n < WAYS_MAX ? n : WAYS_MAX;
}

bool members_has_way(const struct members *m, int peer)
{
    int ways[WAYS_MAX];

    return members_ways(m, peer, ways) > 0;
}

bool members_reaches(const struct members *m, int peer)
{
    return members_linked(m, peer) || members_has_way(m, peer);
}

bool members_edge(const struct members *m, uint32_t i, uint32_t k)
{
    int ri = i < m->n_watch ? m->watch[i] : MEMBERS_NONE;
    int rk = k < m->n_watch ? m->watch[k] : MEMBERS_NONE;
    uint16_t word = members_view_word(m);

    if (ri == MEMBERS_NONE || rk == MEMBERS_NONE) { /* one of them is us */
        int row = ri == MEMBERS_NONE ? rk : ri;

        return row == MEMBERS_NONE ||
               (members_linked(m, row) && heard(m, row) &&
                !m->peers[row].indirect);
    }
    /* Of whom nothing is known the best is believed. */
    return !(m->peers[ri].hears_view == word &&
             (m->peers[ri].hears & BIT(k)) == 0) &&
           !(m->peers[rk].hears_view == word &&
             (m->peers[rk].hears & BIT(i)) == 0);
}

bool members_hears_now(const struct members *m, int peer)
{
    return members_linked(m, peer) && !m->peers[peer].lost &&
           since(m, m->peers[peer].heard_ms) <= 2ULL * m->opt.heartbeat_ms;
}

/* ---- losses ----------------------------------------------------------- */

static void watch_begin(struct members *m, struct member *p, uint64_t now_ms)
{
    uint64_t due = members_dial_turn(m, &p->id, now_ms);

    members_keep_begins(m, p);
    p->watched = true;
    p->word_ms = now_ms;
    p->lost = false; /* others have taken it in: they hear it, perhaps */
    if (p->n_links == 0) {
        p->down_ms = now_ms;
        p->dial_rc = 0;
        p->dial_at_ms = due < p->dial_at_ms ? due : p->dial_at_ms;
    }
}

static bool holds(const int *rows, uint32_t n, int row)
{
    for (uint32_t k = 0; k < n; k++) {
        if (rows[k] == row) {
            return true;
        }
    }
    return false;
}

/* Others were faster: the view went on without it while its link was down and
 * we did not know yet whether it comes back. Nobody else here would ask. */
static void doubt_unwatched(struct members *m, int row)
{
    const struct member *p = &m->peers[row];

    if (p->watched && !p->lost && !p->indirect && p->n_links == 0) {
        members_doubt(m, row, 0, m->opt.redial_ms + m->opt.redial_ms / 2, NULL);
    }
}

void members_watch(struct members *m,
                   const int *rows,
                   uint32_t n,
                   const struct hash32 *view,
                   uint64_t now_ms)
{
    bool was[VIEW_MEMBERS_MAX] = {false};

    m->now_ms = now_ms > m->now_ms ? now_ms : m->now_ms;
    m->due_ms = 0;
    for (uint32_t k = 0; k < n; k++) {
        was[k] = rows[k] != MEMBERS_NONE && m->peers[rows[k]].watched;
    }
    for (uint32_t i = 0; i < m->n_watch; i++) {
        if (m->watch[i] != MEMBERS_NONE) {
            struct member *p = &m->peers[m->watch[i]];

            if (!holds(rows, n, m->watch[i])) {
                doubt_unwatched(m, m->watch[i]);
            }
            /* Nobody can vouch for it before others are in the new view. */
            p->down_ms = p->indirect ? now_ms : p->down_ms;
            p->dial_rc = p->indirect ? 0 : p->dial_rc;
            p->watched = p->indirect = false;
            p->nudge = true;
        }
    }
    for (uint32_t i = 0; i < m->n_peers; i++) {
        m->peers[i].named = false;
    }
    for (uint32_t k = 0; k < n; k++) {
        m->watch[k] = rows[k];
        if (rows[k] == MEMBERS_NONE) {
            continue;
        }
        m->peers[rows[k]].named = true;
        if (was[k]) {
            m->peers[rows[k]].watched = true;
        } else {
            watch_begin(m, &m->peers[rows[k]], now_ms);
        }
    }
    m->n_watch = n;
    m->watch_view = view != NULL ? *view : (struct hash32){{0}};
}

static void
lose(struct members *m, int peer, const char *reason, struct out *out)
{
    struct member *p = &m->peers[peer];

    p->lost = true;
    p->indirect = false;
    members_hang_up_all(m, peer, out);
    members_active_remove(m, peer);
    members_declare(m, peer, PEER_DEAD, out);
    if (m->n_lost < VIEW_MEMBERS_MAX) {
        m->lost[m->n_lost++] = (struct members_lost){
            .peer = peer,
            .silent_ms = (uint32_t)(m->now_ms - p->heard_ms),
            .reason = reason,
        };
    }
}

static void sooner(uint64_t *due, uint64_t at)
{
    *due = at < *due ? at : *due;
}

static void detect(struct members *m, int peer, uint64_t *due, struct out *out)
{
    struct member *p = &m->peers[peer];
    uint64_t silent_ms = m->now_ms - p->heard_ms;
    const char *why = members_dial_lost(p->dial_rc);
    bool gone;

    if (p->n_links > 0) {
        p->suspected = silent_ms > m->opt.suspect_ms;
        gone = silent_ms > m->opt.dead_ms;
        why = "no sign of life";
        sooner(due, p->heard_ms + 1 +
                        (p->suspected ? m->opt.dead_ms : m->opt.suspect_ms));
        p->indirect = p->indirect && p->suspected;
    } else {
        gone = members_dial_refused(p->dial_rc) ||
               m->now_ms - p->down_ms > m->opt.redial_ms ||
               (p->indirect && silent_ms > m->opt.dead_ms);
        sooner(due, p->down_ms + m->opt.redial_ms + 1);
    }
    if (!gone) {
        return;
    }
    if (!lives_elsewhere(m, peer)) {
        lose(m, peer, why, out);
        return;
    }
    p->indirect = true;
    if (p->n_links > 0) {
        members_hang_up_all(m, peer, out); /* a new one may do better */
    }
}

/* Whom we hear; a change is said at once. */
static void note_hears(struct members *m)
{
    uint64_t hears = 0;

    for (uint32_t i = 0; i < m->n_watch; i++) {
        int row = m->watch[i];

        if (row == MEMBERS_NONE || (heard(m, row) && !m->peers[row].lost)) {
            hears |= BIT(i);
        }
    }
    if (hears == m->hears) {
        return;
    }
    m->hears = hears;
    for (uint32_t i = 0; i < m->n_watch; i++) {
        if (m->watch[i] != MEMBERS_NONE) {
            m->peers[m->watch[i]].nudge = true;
        }
    }
}

void members_watch_tick(struct members *m, uint64_t *due, struct out *out)
{
    for (uint32_t i = 0; i < m->n_watch; i++) {
        int row = m->watch[i];

        if (row == MEMBERS_NONE || !m->peers[row].watched) {
            continue;
        }
        if (m->peers[row].lost && lives_elsewhere(m, row)) {
            m->peers[row].lost = false; /* it is back, for others */
            m->peers[row].indirect = true;
        }
        if (!m->peers[row].lost) {
            detect(m, row, due, out);
        }
    }
    note_hears(m);
    if (*due <= m->now_ms) {
        *due = m->now_ms + LOOK_MS; /* somebody vouches: look again */
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
