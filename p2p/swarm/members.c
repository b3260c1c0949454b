/* members.c - time: what is due, in which order; see members.h.
 *
 * members_tick() is called after every event of the node and returns at once
 * unless something is due or has changed (due_ms 0). Then: losses in the view,
 * links, dials, neighbours, rumours, and the pulses last, so that they say
 * what has just been found.
 */
#include "p2p/swarm/members_internal.h"

#include <string.h>

#include "proto/base/rng.h"

static uint32_t rows_of(const struct members_options *opt)
{
    return opt->rows == 0 || opt->rows > PEERS_MAX ? PEERS_MAX : opt->rows;
}

/* At most half full, or searches become long. */
static uint32_t index_size(uint32_t rows)
{
    uint32_t n = 16;

    while (n <= 2 * rows) {
        n *= 2;
    }
    return n;
}

size_t members_bytes(const struct members_options *opt)
{
    uint32_t rows = rows_of(opt);

    return rows * sizeof(struct member) + index_size(rows) * sizeof(uint16_t);
}

void members_init(struct members *m,
                  const struct members_options *opt,
                  void *memory,
                  uint64_t now_ms)
{
    memset(m, 0, sizeof *m);
    m->opt = *opt;
    m->observed.port = opt->port;
    m->rows = rows_of(opt);
    m->index_mask = index_size(m->rows) - 1;
    m->peers = memory; /* a row is cleared when it is taken */
    m->index = (uint16_t *)(m->peers + m->rows);
    memset(m->index, 0, (m->index_mask + 1) * sizeof m->index[0]);
    m->rng = opt->seed;
    m->now_ms = m->beat_at_ms = m->gossip_ms = now_ms;
    m->full_at_ms = now_ms;
    /* The swarm shall not shuffle in step. */
    m->probe_at_ms = now_ms + (uint64_t)opt->heartbeat_ms * PROBE_BEATS / 4 +
                     rng_below(&m->rng, opt->heartbeat_ms * PROBE_BEATS + 1);
    m->gossip_saved = GOSSIP_SAVED_BYTES / 4;
    m->next_part = (uint32_t)rng_below(&m->rng, MESSAGE_DIGEST);
    m->self.id = opt->self;
    for (int i = 0; i < MEMBERS_ACTIVE_MAX; i++) {
        m->active[i] = MEMBERS_NONE;
    }
    for (int i = 0; i < MEMBERS_DOUBTS_MAX; i++) {
        m->doubts[i].peer = MEMBERS_NONE;
    }
}

void members_gap(struct members *m, uint64_t now_ms)
{
    m->now_ms = now_ms;
    m->due_ms = 0;
    for (uint32_t i = 0; i < m->n_peers; i++) {
        m->peers[i].heard_ms = m->peers[i].word_ms = now_ms;
        m->peers[i].down_ms = now_ms;
        m->peers[i].dial_rc = 0;
    }
    for (uint32_t i = 0; i < m->n_links_used; i++) {
        m->links[i].heard_ms = m->links[i].used_ms = now_ms;
    }
    for (int i = 0; i < MEMBERS_DOUBTS_MAX; i++) {
        m->doubts[i].peer = MEMBERS_NONE;
    }
    m->shuffled = false; /* rumours were missed: ask like a newcomer */
    m->probe_at_ms = now_ms;
}

void members_observed(struct members *m, const struct msg_address *seen)
{
    if (memcmp(m->observed.ip, seen->ip, sizeof seen->ip) != 0) {
        memcpy(m->observed.ip, seen->ip, sizeof seen->ip);
        m->announced = false;
        m->due_ms = 0;
    }
}

void members_set_port(struct members *m, uint16_t port)
{
    m->observed.port = port;
}

void members_set_reach(struct members *m, enum reach_class reach)
{
    m->reach = reach;
}

void members_want_links(struct members *m, uint32_t n)
{
    m->opt.links_wanted = n;
}

void members_left(struct members *m, int peer)
{
    struct member *p = &m->peers[peer];

    p->watched = false;
    p->has_beat = false;
    members_active_remove(m, peer);
    members_declare(m, peer, PEER_LEFT, NULL);
    m->due_ms = 0;
}

/* Whether what others base decisions on has changed. */
static bool says_news(const struct heartbeat *a, const struct heartbeat *b)
{
    return a->life != b->life || a->state != b->state ||
           a->configured != b->configured || a->ready != b->ready ||
           a->has_view != b->has_view || a->fork != b->fork ||
           a->epoch != b->epoch || !hash32_eq(&a->view, &b->view) ||
           a->round != b->round || a->tokens != b->tokens ||
           !hash32_eq(&a->commit, &b->commit) ||
           !hash32_eq(&a->params, &b->params) ||
           !hash32_eq(&a->state_hash, &b->state_hash) ||
           a->linked_candidates != b->linked_candidates ||
           a->end_phase != b->end_phase || a->reach != b->reach ||
           a->relays != b->relays || a->stage != b->stage ||
           a->queue != b->queue;
}

static void note_beat(struct members *m, const struct heartbeat *beat)
{
    uint32_t features = beat->has_view ? PEER_IN_VIEW : 0;
    uint8_t number = m->beat.number;

    if (!m->has_beat || says_news(&m->beat, beat)) {
        m->has_beat = true;
        number++;
        m->full_at_ms = m->now_ms;
        m->due_ms = 0;
    }
    m->beat = *beat;
    m->beat.number = number;
    if (m->self.reach != beat->reach || m->self.features != features ||
        m->self.stage != beat->stage) {
        m->self.reach = beat->reach;
        m->self.stage = beat->stage;
        m->self.features = features;
        m->self.incarnation++; /* news, or nobody would pass it on */
        m->announced = false;
    }
    m->self.address.port = m->observed.port;
    memcpy(m->self.address.ip, m->observed.ip, sizeof m->observed.ip);
    m->self.round = beat->round;
    m->self.step = beat->inner_step;
    m->self.tokens_per_s = beat->tokens_per_s;
}

void members_tick(struct members *m,
                  uint64_t now_ms,
                  const struct heartbeat *beat,
                  struct out *out)
{
    uint64_t due = now_ms + LOOK_MS;

    m->now_ms = now_ms;
    note_beat(m, beat);
    if (now_ms < m->due_ms) {
        return;
    }
    m->due_ms = CORE_NEVER; /* what is found on the way may lower it */
    members_watch_tick(m, &due, out);
    members_links_tick(m, &due, out);
    members_trust_tick(m, out);
    members_active_tick(m, &due, out);
    members_dial_due(m, &due, out);
    members_rumour_tick(m, &due, out);
    members_pulse_tick(m, &due, out);
    if (m->due_ms == 0) {
        due = now_ms + 1; /* something followed from it */
    }
    m->due_ms = due;
}

uint64_t members_deadline(const struct members *m)
{
    return m->due_ms;
}
