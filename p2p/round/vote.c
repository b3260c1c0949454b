/* vote.c - votes, and the commit that they make. See round.h. */
#include <string.h>

#include "p2p/round/chain.h"
#include "p2p/round/internal.h"

/* Whether members voted for different bytes, or for another plan: nobody knows
 * whose are right. */
bool round_votes_differ(const struct round *r)
{
    const struct vote_body *first = NULL;

    for (uint32_t i = 0; i < VIEW_MEMBERS_MAX; i++) {
        const struct vote_body *v = &r->votes[i].body;

        if (!(r->voted & r->plan_mask & BIT(i))) {
            continue;
        }
        first = first == NULL ? v : first;
        if (!hash32_eq(&v->plan, &r->plan_hash) ||
            !hash32_eq(&v->result, &first->result)) {
            return true;
        }
    }
    return false;
}

bool round_voted_alike(const struct round *r, uint32_t rank)
{
    const uint32_t at = r->plan.body.members[rank].index;
    const struct vote_body *v = &r->votes[at].body;

    return (r->voted >> at & 1) && hash32_eq(&v->plan, &r->plan_hash) &&
           hash32_eq(&v->result, &r->result);
}

/* Members that have no part in this plan, and follow no other. */
static uint64_t witnesses(const struct round *r)
{
    static const struct hash32 none;
    uint64_t mask = 0;

    for (uint32_t i = 0; i < round_view(r)->n_members; i++) {
        const struct vote_body *v = &r->votes[i].body;

        if ((r->voted & ~r->plan_mask & BIT(i)) &&
            hash32_eq(&v->plan, &r->plan_hash) &&
            hash32_eq(&v->result, &none)) {
            mask |= BIT(i);
        }
    }
    return mask & view_full(round_view(r));
}

/* This plan worked: the next one has its order. */
static void keep_order(struct round *r)
{
    if (r->plan.body.n_rollback > 0) {
        return; /* it has none */
    }
    r->order.n = r->plan.body.n_members;
    r->order.kind = round_kind(&r->plan.body);
    r->n_failed = 0;
    for (uint32_t k = 0; k < r->order.n; k++) {
        r->order.peer[k] = id_of_public(r->plan_keys[k]);
        r->order.leads[k] = r->plan.body.members[k].gateway;
    }
}

static void add_vote(struct round *r, uint32_t member)
{
    struct view_signature *v = &r->last.votes[r->last.n_votes++];

    memcpy(v->public_key, round_view(r)->members[member].public_key, 32);
    memcpy(v->sig, r->votes[member].sig, SIGN_BYTES);
}

/* Every member of the plan voted for this result. */
static void commit(struct round *r, const struct hash32 *result)
{
    uint64_t beside = witnesses(r), followers = r->plan_mask | beside;

    if (!view_byzantine_quorum(round_view(r), followers,
                               r->ballot->departed.mask & ~followers)) {
        return;
    }
    memset(&r->last, 0, sizeof r->last);
    r->last.plan = r->plan;
    r->last.result = *result;
    for (uint32_t k = 0; k < r->plan.body.n_members; k++) {
        add_vote(r, r->plan.body.members[k].index);
    }
    for (; beside != 0; beside &= beside - 1) {
        add_vote(r, (uint32_t)__builtin_ctzll(beside));
    }
    message_commit_hash(&r->plan.body, result, &r->last_hash);
    r->has_last = true;
    r->phase = ROUND_COMMITTED;
    r->committed = true;
    keep_order(r);
    round_note_astray(r);
    round_note_stuck(r);
    r->n_inherited += r->in_plan ? inherit_total(&r->plan.body) : 0;
    r->n_broken = 0;
    r->broken = MEMBERS_NONE;
}

/* Complete? Every member of the plan voted for this plan and one result. */
void round_try_commit(struct round *r)
{
    const struct vote_body *first = NULL;

    if (!r->has_plan || r->frozen || r->phase == ROUND_COMMITTED ||
        (r->voted & r->plan_mask) != r->plan_mask) {
        return;
    }
    for (uint32_t k = 0; k < r->plan.body.n_members; k++) {
        const struct vote_body *v =
            &r->votes[r->plan.body.members[k].index].body;

        first = first == NULL ? v : first;
        if (!hash32_eq(&v->plan, &r->plan_hash) ||
            !hash32_eq(&v->result, &first->result)) {
            round_change(r, "votes differ");
            return;
        }
    }
    commit(r, &first->result);
}

/* Sign and send our vote for that result; false: it could not be signed. */
static bool say(struct round *r, const struct hash32 *result, struct out *out)
{
    struct vote msg = {0};

    msg.body.epoch = r->epoch;
    msg.body.view = r->ballot->hash;
    msg.body.round = r->round;
    msg.body.plan = r->plan_hash;
    msg.body.result = *result;
    if (message_sign(&r->opt.signer, &vote_body_schema, &msg.body, msg.sig) !=
        0) {
        return false;
    }
    r->voted |= BIT(round_self(r));
    r->votes[round_self(r)] = msg;
    round_broadcast(r, out, UINT64_MAX, MESSAGE_VOTE, &msg);
    return true;
}

void round_witness(struct round *r, uint64_t now_ms, struct out *out)
{
    static const struct hash32 none;

    if (view_is_full(round_view(r), round_self(r)) && say(r, &none, out)) {
        r->resend_ms = now_ms + RESEND_MS;
    }
    round_try_commit(r); /* votes may have come first */
}

void round_vote(struct round *r,
                const struct hash32 *result,
                uint64_t now_ms,
                struct out *out)
{
    r->result = *result;
    if (!say(r, result, out)) {
        return;
    }
    r->phase = ROUND_VOTED;
    message_commit_hash(&r->plan.body, &r->result, &r->commit_hash);
    r->vote_due_ms = now_ms + r->opt.vote_ms + round_fill_limit_ms(r);
    r->resend_ms = now_ms + RESEND_MS;
    round_try_commit(r);
}

void round_hashed(struct round *r,
                  uint64_t request,
                  int rc,
                  const struct hash32 *hash,
                  uint64_t now_ms,
                  struct out *out)
{
    if (r->phase != ROUND_HASHING || r->frozen ||
        request != r->exchange.attempt) {
        return;
    }
    if (rc != 0) {
        round_change(r, "this peer cannot use the reduced bytes");
        return;
    }
    round_vote(r, hash, now_ms, out);
}

void round_on_vote(struct round *r, int peer, const struct vote *v)
{
    int index = round_member(r, peer);

    if (index < 0 || v->body.epoch != r->epoch || v->body.round != r->round ||
        !hash32_eq(&v->body.view, &r->ballot->hash) ||
        (r->voted >> index & 1)) {
        return;
    }
    if (!message_verify(&r->opt.signer,
                        round_view(r)->members[index].public_key,
                        &vote_body_schema, &v->body, v->sig)) {
        r->malformed++;
        return;
    }
    r->voted |= BIT(index);
    r->votes[index] = *v;
    round_try_commit(r);
}

/* Who holds up a butterfly that stands still: of a few who owe something the
 * one that owes most. Where most do, the fault is on our side. MEMBERS_NONE:
 * nobody. */
static int laggard(const struct round *r)
{
    const struct butterfly *b = &r->exchange.butterfly;
    uint32_t behind;
    bool sends;

    if (!r->in_plan || round_kind(&r->plan.body) != EXCHANGE_BUTTERFLY ||
        r->phase != ROUND_REDUCING || !r->quiet || r->plan.body.n_members < 3) {
        return MEMBERS_NONE;
    }
    behind = (uint32_t)__builtin_popcountll(butterfly_missing(b));
    return behind == 0 || 2 * behind >= r->plan.body.n_members
               ? MEMBERS_NONE
               : members_find(r->members, butterfly_laggard(b, &sends));
}

/* With whom no data can be exchanged although it is there. */
static void closing_broken(const struct round *r, struct statement *closing)
{
    int late = laggard(r), row = r->n_broken >= 2 ? r->broken : late;

    closing->has_broken =
        row != MEMBERS_NONE && members_linked(r->members, row);
    if (closing->has_broken) {
        closing->broken = r->members->peers[row].id;
    }
}

/* Members of the plan of the newest commit, where this view made it. */
static uint64_t made_by(const struct round *r, uint64_t round)
{
    const struct plan_body *p = &r->last.plan.body;
    uint64_t mask = 0;

    if (!r->has_last || p->round != round ||
        !hash32_eq(&p->view, &r->ballot->hash)) {
        return 0;
    }
    for (uint32_t k = 0; k < p->n_members; k++) {
        mask |= BIT(p->members[k].index % VIEW_MEMBERS_MAX);
    }
    return mask;
}

void round_closing(const struct round *r, struct statement *closing)
{
    const struct plan_body *p = &r->plan.body;
    bool butterfly = r->has_plan && round_kind(p) == EXCHANGE_BUTTERFLY;
    struct exchange_stall stall;

    closing->closing = CLOSING_NONE;
    closing->followed = r->has_plan ? hash32_u64(&r->plan_hash) : 0;
    closing->made_by = made_by(r, closing->round);
    closing->in_ring = r->has_plan && r->in_plan && p->n_members > 2 &&
                       p->n_rollback == 0 && r->phase >= ROUND_REDUCING &&
                       exchange_stall_of(&r->exchange, &stall);
    if (closing->in_ring) {
        closing->ring_next = p->members[stall.next[0]].index;
        closing->ring_sent = stall.sent[0];
        closing->ring_got = stall.got[0];
        closing->gate_next = p->members[stall.next[1]].index;
        closing->gate_sent = stall.sent[1];
        closing->gate_got = stall.got[1];
    }
    closing_broken(r, closing);
    closing->ring_quiet = (closing->in_ring || butterfly) &&
                          r->phase == ROUND_REDUCING && r->quiet;
    if (r->phase != ROUND_VOTED || r->round != closing->round + 1) {
        return;
    }
    closing->closing = round_doubts(r) ? CLOSING_DOUBTED : CLOSING_VOTED;
    closing->plan_members = r->plan_mask;
    closing->plan_tokens = p->tokens_before + plan_tokens(p);
    closing->voted = r->commit_hash;
}

bool round_decided(struct round *r, const struct hash32 *commit)
{
    if (r->phase != ROUND_VOTED || !hash32_eq(&r->commit_hash, commit)) {
        return false;
    }
    memset(&r->last, 0, sizeof r->last);
    r->last.plan = r->plan;
    r->last.result = r->result;
    r->last.n_votes = r->plan.body.n_members;
    for (uint32_t k = 0; k < r->last.n_votes; k++) {
        memcpy(r->last.votes[k].public_key, r->plan_keys[k], 32);
        if (round_voted_alike(r, k)) {
            memcpy(r->last.votes[k].sig,
                   r->votes[r->plan.body.members[k].index].sig, SIGN_BYTES);
        }
    }
    r->last_hash = r->commit_hash;
    r->has_last = true;
    r->phase = ROUND_COMMITTED;
    keep_order(r);
    round_note_astray(r);
    round_note_stuck(r);
    return true;
}

bool round_commit_valid(const struct round *r, const struct commit *c)
{
    return r->ballot->have &&
           chain_commit_valid(round_view(r), &r->ballot->hash,
                              r->ballot->departed.mask, c, &r->opt.signer);
}
