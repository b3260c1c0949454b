/* members.c - the table of peers and who of them is lost; see members.h.
 *
 * A row is taken for whoever is heard of and kept until the table is full;
 * then rows of unlinked peers that were long dialled in vain, or never
 * authenticated, are given to new ones. members_tick() is where time passes:
 * losses, half-open links, dials, heartbeats.
 */
#include "p2p/members_internal.h"

#include <string.h>

#include "p2p/reach.h"

void members_init(struct members *m,
                  const struct members_options *opt,
                  uint64_t now_ms)
{
    memset(m, 0, sizeof *m);
    m->opt = *opt;
    m->rng = opt->seed;
    m->beat_at_ms = now_ms;
}

/* ---- peers ------------------------------------------------------------ */

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
        p->dial_at_ms = members_dial_turn(m, id, now_ms);
        members_way_init(&p->way);
    }
    p = &m->peers[i];
    if (p->n_links == 0 && address->port != 0) {
        p->address = *address;
    }
    return i;
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
    p->way.reach = beat->reach;
    for (uint32_t k = 0; k < beat->n_rumours; k++) {
        const struct peer_info *info = &beat->rumours[k];
        struct address a = {.port = info->address.port};

        memcpy(a.ip, info->address.ip, sizeof a.ip);
        if (reach_is_global(&p->address) && !reach_is_global(&a)) {
            a.port = 0; /* of the sender's LAN: no use to us */
        }
        if (info->address.port != 0) {
            int i = members_learn(m, &info->id, &a, now_ms);

            if (i != MEMBERS_NONE) {
                members_via(m, i, peer);
            }
            if (i != MEMBERS_NONE && m->peers[i].n_links == 0) {
                m->peers[i].way.reach = info->reach;
            }
        }
    }
}

/* ---- losses ----------------------------------------------------------- */

static void watch_begin(struct members *m, struct member *p, uint64_t now_ms)
{
    uint64_t due = members_dial_turn(m, &p->id, now_ms);

    p->watched = true;
    if (p->n_links == 0 && !p->lost) {
        p->down_ms = now_ms;
        p->dial_rc = 0;
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
        m->peers[i].dial_rc = 0;
    }
    for (int i = 0; i < LINKS_MAX; i++) {
        m->links[i].heard_ms = now_ms;
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
    while ((l = members_link_of_peer(m, peer)) != NULL) {
        members_hang_up(l, out);
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
    } else if (members_dial_refused(p->dial_rc)) {
        lose(m, peer, now_ms, members_dial_lost(p->dial_rc), out);
    } else if (now_ms - p->down_ms > m->opt.redial_ms) {
        lose(m, peer, now_ms, members_dial_lost(p->dial_rc), out);
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

/* ---- time ------------------------------------------------------------- */

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
            struct members_link *l = members_link_of_peer(m, (int)i);

            if (l != NULL) {
                members_hang_up(l, out); /* half-open: the other side is gone */
            }
        }
    }
    members_half_open_close(m, now_ms, out);
    members_dial_due(m, now_ms, out);
    if (now_ms >= m->beat_at_ms) {
        members_beats_send(m, beat, out);
        m->beat_at_ms = now_ms + m->opt.heartbeat_ms;
    }
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
            if (!p->dialing && p->address.port != 0 && members_dialable(p) &&
                p->dial_at_ms < due) {
                due = p->dial_at_ms;
            }
        }
    }
    return due;
}
