/* talk.c - offers, agreement, HAVE and PASS. See pair.h. */
#include "p2p/pair/internal.h"

void pair_say(struct pair *p, enum pair_kind kind, struct out *out)
{
    bool moving = kind == PAIR_AGREED || kind == PAIR_PACKED;
    struct pair_offer m = {
        .kind = (uint8_t)kind,
        .turn = p->turn,
        .epoch = p->epoch,
        .life = p->opt.life,
        .attempt = moving ? p->attempt : 0,
        .from = moving ? p->got : 0,
    };

    if (p->row != MEMBERS_NONE) {
        (void)members_send(p->members, out, p->row, MESSAGE_PAIR, &m);
    }
}

static void say_state(struct pair *p, struct out *out)
{
    pair_say(p, p->packed ? PAIR_PACKED : PAIR_AGREED, out);
}

static void say_have(struct pair *p, struct out *out)
{
    struct pair_have m = {.turn = p->turn,
                          .epoch = p->epoch,
                          .life = p->opt.life,
                          .hash = p->hash};

    (void)members_send(p->members, out, p->row, MESSAGE_PAIR_HAVE, &m);
}

void pair_resend(struct pair *p, uint64_t now_ms, struct out *out)
{
    if (now_ms < p->resend_ms) {
        return;
    }
    p->resend_ms = now_ms + PAIR_RESEND_MS;
    if (p->phase == PAIR_OPEN) {
        pair_say(p, PAIR_OFFER, out);
    } else if (p->phase != PAIR_IDLE && p->phase != PAIR_DECIDED) {
        say_state(p, out);
        if (p->phase == PAIR_HOLDING) {
            say_have(p, out);
        }
    }
}

/* ---- who -------------------------------------------------------------- */

static bool is_refused(const struct pair *p, const struct peer_id *peer)
{
    return p->refused.epoch == p->epoch && id_eq(&p->refused.peer, peer);
}

static void note_offer(struct pair *p)
{
    struct pair_offered *o = &p->offered[p->n_offered++ % PAIR_OFFERS];

    o->epoch = p->epoch;
    o->peer = p->peer;
}

static bool
was_offered(const struct pair *p, uint64_t epoch, const struct peer_id *peer)
{
    uint32_t n = p->n_offered < PAIR_OFFERS ? p->n_offered : PAIR_OFFERS;

    for (uint32_t i = 0; i < n; i++) {
        if (p->offered[i].epoch == epoch && id_eq(&p->offered[i].peer, peer)) {
            return true;
        }
    }
    return false;
}

/* The peer in that row, or nobody, is to be our partner. */
static void turn_to(struct pair *p, int row, uint64_t epoch)
{
    if (p->row != row && p->row != MEMBERS_NONE) {
        members_guest(p->members, p->row, false);
    }
    p->row = row;
    p->epoch = epoch;
    if (row != MEMBERS_NONE) {
        p->peer = p->members->peers[row].id;
        members_guest(p->members, row, true);
    }
}

/* Offer to whom the list of now draws. */
static void draw(struct pair *p, uint64_t now_ms, struct out *out)
{
    turn_to(p, pair_draw(p), p->list.epoch);
    p->drawn = true;
    if (p->row != MEMBERS_NONE) {
        note_offer(p);
        p->resend_ms = now_ms + PAIR_RESEND_MS;
        pair_say(p, PAIR_OFFER, out);
    }
}

/* Each draw may dial somebody: a list that keeps changing is left alone until
 * it has been the same for a while, unless another peer names it, too. */
void pair_seek(struct pair *p, uint64_t now_ms, struct out *out)
{
    if (p->phase != PAIR_OPEN || now_ms < p->look_ms) {
        return;
    }
    p->look_ms = now_ms + PAIR_LOOK_MS;
    pair_look_again(p);
    if (p->list.epoch != p->seen_epoch) {
        p->seen_epoch = p->list.epoch;
        p->seen_ms = now_ms;
    }
    if (!p->drawn ||
        (p->list.epoch != p->epoch && now_ms - p->seen_ms >= PAIR_STABLE_MS)) {
        draw(p, now_ms, out);
    }
}

static void agree(struct pair *p,
                  int row,
                  const struct pair_offer *m,
                  uint64_t now_ms,
                  struct out *out)
{
    turn_to(p, row, m->epoch);
    p->phase = PAIR_MOVING;
    p->peer_life = m->life;
    p->peer_packed = p->peer_has = false;
    p->down_ms = 0;
    p->resend_ms = now_ms + PAIR_RESEND_MS;
    pair_move_begin(p, now_ms, out);
    say_state(p, out);
}

/* ---- hearing ---------------------------------------------------------- */

/* To a peer that is not our partner now, or no more in that turn. */
static void
pass(struct pair *p, int row, const struct pair_offer *m, struct out *out)
{
    struct pair_offer no = {.kind = PAIR_PASS,
                            .turn = m->turn,
                            .epoch = m->epoch,
                            .life = p->opt.life};

    if (m->kind != PAIR_PASS) {
        (void)members_send(p->members, out, row, MESSAGE_PAIR, &no);
    }
}

/* About a turn that is behind us. Who only offers has nothing of ours; who
 * moved bytes may hold all of them, and must hear how we ended. What this
 * process does not know any more its own deadline has to decide. */
static void
past(struct pair *p, int row, const struct pair_offer *m, struct out *out)
{
    uint32_t n = p->n_past < PAIR_PAST ? p->n_past : PAIR_PAST;
    bool known = m->kind == PAIR_OFFER;

    for (uint32_t i = 0; i < n; i++) {
        const struct pair_past *q = &p->past[i];
        struct pair_have have = {.turn = q->turn,
                                 .epoch = q->epoch,
                                 .life = p->opt.life,
                                 .done = true,
                                 .hash = q->hash};

        if (q->turn == m->turn && q->epoch == m->epoch && q->with &&
            id_eq(&q->peer, &p->members->peers[row].id)) {
            if (m->kind != PAIR_PASS) {
                (void)members_send(p->members, out, row, MESSAGE_PAIR_HAVE,
                                   &have);
            }
            return;
        }
        known = known || q->turn <= m->turn;
    }
    if (known) {
        pass(p, row, m, out);
    }
}

static void
on_pass(struct pair *p, int row, const struct pair_offer *m, struct out *out)
{
    if (p->row != row || m->epoch != p->epoch) {
        return;
    }
    p->refused = (struct pair_offered){.epoch = p->epoch, .peer = p->peer};
    if (p->phase != PAIR_OPEN && p->packed) {
        pair_decide(p, PAIR_END_PASSED, out);
    } else if (p->phase != PAIR_OPEN) {
        pair_part(p, out);
    }
}

/* From our partner, about this turn and epoch. */
static void on_state(struct pair *p,
                     const struct pair_offer *m,
                     uint64_t now_ms,
                     struct out *out)
{
    if (m->life != p->peer_life) {
        agree(p, p->row, m, now_ms, out); /* it forgot everything */
    }
    if (m->kind == PAIR_OFFER) {
        say_state(p, out); /* ours was lost */
        return;
    }
    if (m->kind == PAIR_PACKED && !p->peer_packed) {
        p->peer_packed = true;
        p->progress_ms = now_ms;
    }
    if (m->attempt != 0) {
        pair_move_to(p, m->attempt, m->from, out);
    }
}

static void on_offer(struct pair *p,
                     int row,
                     const struct pair_offer *m,
                     uint64_t now_ms,
                     struct out *out)
{
    const struct peer_id *id = &p->members->peers[row].id;

    if (p->phase != PAIR_OPEN) {
        if (row == p->row && m->epoch == p->epoch) {
            on_state(p, m, now_ms, out);
        } else if (row == p->row && m->kind == PAIR_OFFER) {
            say_state(p, out); /* it had lost us, and its list has changed */
        } else {
            pass(p, row, m, out); /* we are taken */
        }
        return;
    }
    if (m->epoch != p->epoch) {
        pair_seek(p, now_ms, out);
        if (m->epoch != p->epoch && m->epoch == p->list.epoch) {
            draw(p, now_ms, out);
        }
    }
    if (is_refused(p, id)) {
        return;
    }
    if ((row == p->row && m->epoch == p->epoch) ||
        (m->kind != PAIR_OFFER && was_offered(p, m->epoch, id))) {
        agree(p, row, m, now_ms, out);
        on_state(p, m, now_ms, out);
    }
}

/* The turn in p->turn is over, or none has begun. */
static bool is_behind(const struct pair *p)
{
    return p->phase == PAIR_DECIDED || p->phase == PAIR_IDLE;
}

static void on_pair(struct pair *p,
                    int row,
                    const struct pair_offer *m,
                    uint64_t now_ms,
                    struct out *out)
{
    if (m->kind >= PAIR_KIND_COUNT) {
        p->malformed++;
        return;
    }
    if (m->turn > p->turn) {
        return; /* it says it again */
    }
    if (m->turn < p->turn || is_behind(p)) {
        past(p, row, m, out);
    } else if (m->kind == PAIR_PASS) {
        on_pass(p, row, m, out);
    } else {
        on_offer(p, row, m, now_ms, out);
    }
}

static void
on_have(struct pair *p, int row, const struct pair_have *m, struct out *out)
{
    struct pair_offer as = {
        .kind = PAIR_PACKED, .turn = m->turn, .epoch = m->epoch};
    bool ours = row == p->row && m->turn == p->turn && m->epoch == p->epoch &&
                m->life == p->peer_life;

    if (ours && p->phase >= PAIR_MOVING && p->phase <= PAIR_HOLDING) {
        p->peer_has = true;
        p->peer_hash = m->hash;
        return; /* the tick decides */
    }
    if (!m->done &&
        (m->turn < p->turn || (m->turn == p->turn && is_behind(p)))) {
        past(p, row, &as, out); /* if we stepped alone, so must it */
    }
}

static void go_on(struct pair *p, struct out *out)
{
    if (p->phase != PAIR_IDLE) {
        pair_tick(p, p->now_ms, out);
    }
}

void pair_on_offer(struct pair *p,
                   int row,
                   const struct pair_offer *m,
                   uint64_t now_ms,
                   struct out *out)
{
    p->now_ms = now_ms;
    on_pair(p, row, m, now_ms, out);
    go_on(p, out);
}

void pair_on_have(struct pair *p,
                  int row,
                  const struct pair_have *m,
                  uint64_t now_ms,
                  struct out *out)
{
    p->now_ms = now_ms;
    on_have(p, row, m, out);
    go_on(p, out);
}
