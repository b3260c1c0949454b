/* ready.c - offering one's own contribution, and taking in those of the
 * others until a plan is possible. See round.h. */
#include "p2p/round/internal.h"
#include "p2p/round/rollback.h"
#include "p2p/round/text.h"
#include "proto/blocks.h"

#define LATE_ROUNDS 2 /* a READY of that many rounds ago counts as work */

void round_ready_send(struct round *r, uint64_t mask, struct out *out)
{
    struct ready msg = {.body = r->readies[round_self(r)]};

    memcpy(msg.sig, r->ready_sig[round_self(r)], sizeof msg.sig);
    round_broadcast(r, out, mask, MESSAGE_READY, &msg);
}

/* Members that a packet reaches and comes back from in the site's time. */
static uint64_t near_mask(const struct round *r)
{
    uint64_t mask = 0;

    if (r->terms.exchange != EXCHANGE_SITES || r->terms.site_rtt_us == 0) {
        return 0;
    }
    for (uint32_t i = 0; i < round_view(r)->n_members; i++) {
        uint32_t us = members_rtt_us(r->members, r->ballot->rows[i]);

        mask |= us > 0 && us <= r->terms.site_rtt_us ? BIT(i) : 0;
    }
    return mask;
}

static uint64_t named(const struct round *r, const struct rests *rests)
{
    return rests == NULL ? 0
                         : rests_mask(rests, r->ballot->ids,
                                      round_view(r)->n_members, r->round);
}

/* Offer the contribution to this attempt. */
void round_offer(struct round *r, uint64_t now_ms, struct out *out)
{
    r->mine.epoch = r->epoch;
    r->mine.view = r->ballot->hash;
    r->mine.round = r->round;
    r->mine.state = r->state;
    inherit_claims(&r->kept, &r->mine);
    r->mine.n_rejected = r->has_rejected;
    r->mine.rejected[0] = r->rejected;
    r->mine.site = r->opt.site;
    r->mine.text =
        r->opt.text == NULL ? (struct text_span){0, 0} : *r->opt.text;
    r->mine.near = near_mask(r);
    r->mine.silent = named(r, r->opt.silence) | named(r, &r->idle.rests) |
                     named(r, &r->idle.drawn);
    r->mine.astray = r->terms.watches ? named(r, r->opt.astray) : 0;
    memset(&r->mine.offer, 0, sizeof r->mine.offer);
    if (r->terms.audits && r->mine.n_rollback == 0) {
        blocks_offer(&r->opt.self, r->round, &r->blocks, &r->mine.offer);
    }
    /* Work that stays open while the state changes began before it. */
    r->mine.n_moments = r->terms.audits_work && r->mine.tokens > 0 &&
                        r->has_moments && !r->begun_anew &&
                        !hash32_is_zero(&r->ends) &&
                        hash32_eq(&r->moments_state, &r->state);
    r->mine.moments[0] = (struct moments){0};
    if (r->mine.n_moments > 0) {
        r->mine.moments[0] = r->moments;
        blocks_offer(&r->opt.self, 0, &r->ends, &r->mine.moments[0].ends);
    }
    if (r->mine.tokens > 0) {
        probation_worked(&r->ballot->probation, &r->opt.self, r->round);
    }
    if (message_sign(&r->opt.signer, &ready_body_schema, &r->mine,
                     r->ready_sig[round_self(r)]) != 0) {
        return;
    }
    r->phase = ROUND_READY;
    r->ready |= BIT(round_self(r));
    r->readies[round_self(r)] = r->mine;
    r->resend_ms = now_ms + RESEND_MS;
    round_ready_send(r, UINT64_MAX, out);
}

uint64_t round_ready_mask(const struct round *r)
{
    uint64_t mask = 0;

    for (uint32_t i = 0; i < round_view(r)->n_members; i++) {
        if ((r->ready >> i & 1) && view_is_full(round_view(r), i) &&
            hash32_eq(&r->readies[i].state, &r->state)) {
            mask |= BIT(i);
        }
    }
    return mask;
}

static uint64_t all_mask(const struct round *r)
{
    return view_full(round_view(r)) & ~r->ballot->departed.mask;
}

static uint64_t tokens_of(const struct round *r, uint64_t mask)
{
    uint64_t tokens = 0;

    for (uint32_t i = 0; i < round_view(r)->n_members; i++) {
        tokens += mask >> i & 1 ? r->readies[i].tokens : 0;
    }
    return tokens;
}

bool round_has_work(const struct round *r)
{
    return tokens_of(r, round_ready_mask(r) & ~rollback_asks(r)) > 0;
}

/* Note since when a plan is possible: everybody is ready, or more than half
 * has been for grace_ms. */
void round_watch_ready(struct round *r, uint64_t now_ms)
{
    uint64_t mask = round_ready_mask(r) & ~rollback_asks(r);
    bool quorum = view_quorum(round_view(r), mask, r->ballot->departed.mask);
    /* A plan that is refused for who rests is no plan: wait for others. */
    bool without = !round_shows_astray(r) ||
                   view_quorum(round_view(r), mask & ~round_astray(r),
                               r->ballot->departed.mask);
    struct rollback to;

    if (!r->has_state || r->has_plan) {
        return;
    }
    if (rollback_wanted(r, &to) != 0) { /* nobody waits for work */
        r->half_ready_ms = r->half_ready_ms == 0 ? now_ms : r->half_ready_ms;
        r->possible_ms = r->possible_ms == 0 ? now_ms : r->possible_ms;
        return;
    }
    r->quorum_ms = !quorum ? 0 : r->quorum_ms == 0 ? now_ms : r->quorum_ms;
    if (!quorum || tokens_of(r, mask) == 0) {
        r->half_ready_ms = r->possible_ms = 0; /* a READY was replaced */
        return;
    }
    if (r->half_ready_ms == 0) {
        r->half_ready_ms = now_ms;
    }
    if (r->possible_ms == 0 &&
        ((all_mask(r) & ~mask) == 0 ||
         now_ms - r->half_ready_ms >= r->terms.grace_ms * (without ? 1 : 2))) {
        r->possible_ms = now_ms;
    }
}

bool round_work_fair(const struct run_terms *t,
                     uint64_t tokens,
                     uint64_t first_step,
                     uint64_t last_step)
{
    uint64_t steps = last_step - first_step, most = terms_most_steps(t);

    if (last_step < first_step || tokens > ROUND_TOKENS_MAX) {
        return false;
    }
    steps = steps < most ? steps : most;
    return t->step_tokens_most == 0 || tokens <= steps * t->step_tokens_most;
}

bool round_offer_fair(const struct run_terms *t,
                      bool work,
                      const struct hash32 *offer)
{
    return hash32_is_zero(offer) != (t->audits && work);
}

bool round_moments_fair(const struct run_terms *t,
                        uint64_t tokens,
                        uint32_t n_moments)
{
    return n_moments == 0 || (t->audits_work && tokens > 0);
}

/* Nobody waits for a peer on probation: its READY may come when the round is
 * over, and shows all the same that it takes part. Rounds before this view do
 * not count: a newcomer was not there. */
static bool counts_late(const struct round *r, uint32_t index, uint64_t round)
{
    return round < r->round && round > round_view(r)->round &&
           round + LATE_ROUNDS >= r->round &&
           !view_is_full(round_view(r), index);
}

static void
note_work(struct round *r, uint32_t index, const struct ready_body *m)
{
    if (m->tokens > 0) {
        probation_worked(&r->ballot->probation, &r->ballot->ids[index],
                         m->round);
    }
}

void round_count_early(struct round *r)
{
    for (uint32_t i = 0; i < round_view(r)->n_members; i++) {
        if (r->ready >> i & 1) {
            note_work(r, i, &r->readies[i]);
        }
    }
}

bool round_ready_valid(const struct round *r, const struct ready_body *m)
{
    return round_work_fair(&r->terms, m->tokens, m->first_step, m->last_step) &&
           round_offer_fair(&r->terms, m->n_rollback == 0, &m->offer) &&
           round_moments_fair(&r->terms, m->tokens, m->n_moments) &&
           (m->astray == 0 || r->terms.watches) &&
           (!r->terms.audits || m->n_claims == 0) && rollback_fair(m) &&
           text_span_valid(&m->text) &&
           inherit_claims_valid(m, terms_elements(&r->terms, m->round),
                                r->terms.block);
}

void round_on_ready(struct round *r,
                    int peer,
                    const struct ready *m,
                    uint64_t now_ms)
{
    bool early = m->body.round == r->round + 1;
    int index = round_member(r, peer);
    bool late = index >= 0 && counts_late(r, (uint32_t)index, m->body.round);

    if (index < 0 || m->body.epoch != r->epoch ||
        (m->body.round != r->round && !early && !late) ||
        !hash32_eq(&m->body.view, &r->ballot->hash)) {
        return;
    }
    if (!message_verify(&r->opt.signer,
                        round_view(r)->members[index].public_key,
                        &ready_body_schema, &m->body, m->sig)) {
        r->malformed++;
        return;
    }
    if (!round_ready_valid(r, &m->body)) {
        r->malformed++;
        return;
    }
    if (early) { /* it counts when that round begins */
        r->early |= BIT(index);
        r->earlies[index] = m->body;
        memcpy(r->early_sig[index], m->sig, SIGN_BYTES);
        return;
    }
    note_work(r, (uint32_t)index, &m->body);
    if (late || round_ready_stays(r, (uint32_t)index)) {
        return;
    }
    r->ready |= BIT(index);
    r->readies[index] = m->body;
    memcpy(r->ready_sig[index], m->sig, SIGN_BYTES);
    round_watch_ready(r, now_ms);
}
