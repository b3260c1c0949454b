/* members_pulse.c - HEARTBEAT when something changed, PULSE to say that nothing
 * has.
 *
 * A link is worth pulses when one of its ends keeps it; the flag in the pulse
 * says so, and the other end answers in kind. A pulse is left out (three times
 * at most) where another byte went out on that link lately, but not to members
 * of the view: what it says of whom we hear must be young. The number in it is
 * that of the last HEARTBEAT: who missed one asks for it.
 */
#include "p2p/swarm/members_internal.h"

#define PULSES_SKIPPED_MAX 3
#define TICK_MS            16 /* of the clock in a pulse */
#define CLOCK_PULSES       16 /* in a window: 10 s */
/* Pulses are not forwarded; whole heartbeats are, at every such beat. */
#define INDIRECT_BEATS 4

bool members_keeps(const struct member *p)
{
    return p->active || p->watched || p->guest;
}

static struct pulse pulse_for(const struct members *m, const struct member *p)
{
    struct pulse out = {.number = m->beat.number,
                        .at = (uint16_t)(m->now_ms / TICK_MS)};

    out.flags = (uint8_t)((members_keeps(p) ? PULSE_KEEP : 0) |
                          (p->active ? PULSE_ACTIVE : 0));
    if (members_keeps(p) && (!p->has_beat || p->behind)) {
        out.flags |= PULSE_ASK;
    }
    if (p->watched) {
        out.view = members_view_word(m);
        out.hears = m->hears;
    }
    return out;
}

static void
pulse_send(struct members *m, struct members_link *l, struct out *out)
{
    struct pulse p = pulse_for(m, &m->peers[l->peer]);

    if (members_send_link(m, out, l, MESSAGE_PULSE, &p)) {
        l->skipped = 0;
    }
}

/* The whole heartbeat to who has not got it yet. */
static void greet(struct members *m, struct members_link *l, struct out *out)
{
    if (members_send_link(m, out, l, MESSAGE_HEARTBEAT, &m->beat)) {
        m->peers[l->peer].greet = false;
    }
}

/* Members that we cannot link hear of us over others. */
static void greet_indirect(struct members *m, struct out *out)
{
    for (uint32_t i = 0; i < m->n_watch; i++) {
        int row = m->watch[i];

        if (row != MEMBERS_NONE && m->peers[row].n_links == 0 &&
            members_has_way(m, row)) {
            (void)members_send(m, out, row, MESSAGE_HEARTBEAT, &m->beat);
        }
    }
}

void members_pulse_tick(struct members *m, uint64_t *due, struct out *out)
{
    bool due_now = m->now_ms >= m->beat_at_ms;
    bool full = m->now_ms >= m->full_at_ms;

    for (uint32_t i = 0; i < m->n_links_used; i++) {
        struct members_link *l = &m->links[i];
        struct member *p = &m->peers[l->peer];
        bool kept;

        if (!l->used || l->closing) {
            continue;
        }
        kept = members_keeps(p) || p->kept;
        if (p->greet || (full && kept)) {
            greet(m, l, out);
        }
        if (p->nudge ||
            (due_now && kept &&
             (p->watched || m->now_ms - l->sent_ms >= m->opt.heartbeat_ms / 2 ||
              l->skipped++ >= PULSES_SKIPPED_MAX))) {
            pulse_send(m, l, out);
        }
    }
    for (uint32_t i = 0; i < m->n_links_used; i++) {
        m->peers[m->links[i].peer].nudge = false;
    }
    if (full) {
        m->full_at_ms = m->now_ms + (uint64_t)m->opt.heartbeat_ms * FULL_BEATS;
    }
    if (full || (due_now && ++m->n_beats % INDIRECT_BEATS == 0)) {
        greet_indirect(m, out);
    }
    if (due_now) {
        m->beat_at_ms = m->now_ms + m->opt.heartbeat_ms;
    }
    *due = m->beat_at_ms < *due ? m->beat_at_ms : *due;
}

void members_beat(struct members *m,
                  int peer,
                  const struct heartbeat *beat,
                  uint64_t now_ms)
{
    struct member *p = &m->peers[peer];

    m->now_ms = now_ms > m->now_ms ? now_ms : m->now_ms;
    p->beat = *beat;
    p->has_beat = true;
    p->behind = false;
    p->life = beat->life;
    p->way.reach = beat->reach;
    p->info.round = beat->round;
    p->info.step = beat->inner_step;
    p->info.tokens_per_s = beat->tokens_per_s;
    p->info.features = beat->has_view ? PEER_IN_VIEW : 0;
    p->info.stage = beat->stage;
}

static int after(uint16_t a, uint16_t b)
{
    return (int16_t)(uint16_t)(a - b);
}

/* How much later than usual a pulse came: TCP sends again what is lost, and
 * what then comes is no sign of life of now. */
static void note_late(struct members *m, struct member *p, uint16_t at)
{
    uint16_t offset = (uint16_t)(m->now_ms / TICK_MS - at);
    int late;

    if (p->n_pulses++ == 0) {
        p->clock[0] = p->clock[1] = offset;
    } else if (p->n_pulses % CLOCK_PULSES == 0) {
        p->clock[1] = p->clock[0];
        p->clock[0] = offset;
    } else if (after(offset, p->clock[0]) < 0) {
        p->clock[0] = offset;
    }
    late = after(offset, after(p->clock[1], p->clock[0]) < 0 ? p->clock[1]
                                                             : p->clock[0]);
    p->late_ms = late > 0 ? (uint32_t)late * TICK_MS : 0;
    /* When it came it was taken for as late as the one before. */
    p->heard_ms = p->heard_before_ms;
    p->real_ms = p->real_before_ms;
    members_sign(m, p);
}

void members_on_pulse(struct members *m,
                      int peer,
                      const struct pulse *msg,
                      struct out *out)
{
    struct member *p = &m->peers[peer];
    bool news = p->hears != msg->hears || p->hears_view != msg->view;

    note_late(m, p, msg->at);
    p->hears_ms = m->now_ms - p->late_ms;
    p->kept = (msg->flags & PULSE_KEEP) != 0;
    p->hears = msg->hears;
    p->hears_view = msg->view;
    p->greet = p->greet || (msg->flags & PULSE_ASK) != 0;
    if (p->has_beat && p->beat.number != msg->number && !p->behind) {
        p->behind = p->nudge = true; /* one was lost: ask */
        news = true;
    }
    members_active_agree(m, peer, (msg->flags & PULSE_ACTIVE) != 0, out);
    if (news || p->greet) {
        m->due_ms = 0;
    }
}
