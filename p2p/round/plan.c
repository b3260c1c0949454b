/* plan.c - who takes part and in which order: made by the coordinator,
 * checked and followed by everybody. See round.h. */
#include <string.h>

#include "p2p/exchange/order.h"
#include "p2p/exchange/rates.h"
#include "p2p/round/internal.h"
#include "p2p/round/rollback.h"
#include "p2p/round/text.h"
#include "proto/base/log.h"
#include "proto/base/rng.h"

/* After so many failed attempts a plan shows who gives nothing (idle.c). */
#define TRIES 2

/* Which members can exchange data, directly or through a relay, as far as
 * pulses and the view's list of broken edges tell; `direct`: without those that
 * need a relay. */
static void graph_of(const struct round *r, bool direct, struct order_graph *g)
{
    const struct view_body *v = round_view(r);
    const int *rows = r->ballot->rows;

    order_init(g, v->n_members);
    for (uint32_t i = 0; i < v->n_members; i++) {
        for (uint32_t k = i + 1; k < v->n_members; k++) {
            if (!members_edge(r->members, i, k) ||
                (direct && members_apart(r->members, rows[i], rows[k]))) {
                order_cut(g, i, k);
            }
        }
    }
    for (uint32_t e = 0; e < v->n_edges; e++) {
        order_cut(g, v->edges[e] & 0xff, v->edges[e] >> 8);
    }
}

uint64_t round_order_seed(const struct round *r)
{
    uint64_t words[] = {hash32_u64(&round_view(r)->run), r->epoch, r->round, 3};

    return rng_mix(words, 4);
}

/* Whether rings failed, so that the next plan is to be a butterfly, which shows
 * for whom it waits (idle.c). */
static bool shows_idle(const struct round *r)
{
    return r->n_tries >= TRIES && r->terms.adapts;
}

/* The members of `mask` that fit into one ring, or into a butterfly, where
 * every member sends to every other. In the next round other members are left
 * out. */
uint64_t round_fitting(const struct round *r, uint64_t mask)
{
    static const uint64_t even[VIEW_MEMBERS_MAX];
    struct order_graph g;
    uint64_t all;

    graph_of(r, false, &g);
    if (r->terms.exchange == EXCHANGE_BUTTERFLY || shows_idle(r)) {
        all = order_clique(&g, mask, even, round_order_seed(r));
        if (r->terms.exchange == EXCHANGE_BUTTERFLY ||
            view_quorum(round_view(r), all, r->ballot->departed.mask)) {
            return all;
        }
    }
    return order_largest(&g, mask, even, round_order_seed(r));
}

/* The members of `mask` in the order of the last commit, new ones at its end.
 * False: the last commit had none of them, or this order is no ring of the
 * graph, or a plan of as many members failed since. */
static bool last_order(const struct round *r,
                       const struct order_graph *g,
                       uint64_t mask,
                       uint8_t at[VIEW_MEMBERS_MAX])
{
    uint32_t n = 0, all = (uint32_t)__builtin_popcountll(mask);
    uint64_t left = mask;

    for (uint32_t k = 0; k < r->order.n; k++) {
        for (uint32_t i = 0; i < round_view(r)->n_members; i++) {
            if ((left >> i & 1) &&
                id_eq(&r->ballot->ids[i], &r->order.peer[k])) {
                at[n++] = (uint8_t)i;
                left &= ~BIT(i);
            }
        }
    }
    if (n == 0 || (r->n_failed > 0 && all >= r->n_failed)) {
        return false;
    }
    for (; left != 0; left &= left - 1) {
        at[n++] = (uint8_t)__builtin_ctzll(left);
    }
    return order_closes(g, at, n);
}

/* The last order, or a drawn one, then a faster one if there is any; false:
 * this graph has no ring. */
static bool find_ring(const struct round *r,
                      const struct order_graph *g,
                      uint64_t mask,
                      uint64_t now_ms,
                      uint8_t at[VIEW_MEMBERS_MAX])
{
    const struct view_body *v = round_view(r);
    struct rates rates;

    if (!last_order(r, g, mask, at) &&
        !order_ring(g, mask, round_order_seed(r), at)) {
        return false;
    }
    rates_init(&rates, r->opt.bandwidth, r->ballot->ids, v->n_members, now_ms);
    (void)rates_order(&rates, g, mask, round_order_seed(r), at);
    return true;
}

/* A ring without relays if there is one. In a butterfly all members are
 * neighbours: any order will do. */
static bool find_order(const struct round *r,
                       uint64_t mask,
                       uint64_t now_ms,
                       uint8_t at[VIEW_MEMBERS_MAX])
{
    struct order_graph g;

    if (r->terms.exchange == EXCHANGE_BUTTERFLY) {
        order_init(&g, round_view(r)->n_members);
        return order_ring(&g, mask, round_order_seed(r), at);
    }
    graph_of(r, true, &g);
    if (find_ring(r, &g, mask, now_ms, at)) {
        return true;
    }
    graph_of(r, false, &g);
    return find_ring(r, &g, mask, now_ms, at);
}

/* The gateways of the last commit, unless a plan failed since. */
static uint64_t last_leads(const struct round *r)
{
    uint64_t mask = 0;

    for (uint32_t k = 0; k < r->order.n && r->n_failed == 0; k++) {
        for (uint32_t i = 0; i < round_view(r)->n_members; i++) {
            if (r->order.leads[k] &&
                id_eq(&r->ballot->ids[i], &r->order.peer[k])) {
                mask |= BIT(i);
            }
        }
    }
    return mask;
}

/* Site by site. False: there is no such order, or it would be a plain ring. */
static bool find_sites(const struct round *r,
                       uint64_t mask,
                       uint8_t at[VIEW_MEMBERS_MAX],
                       bool gateway[VIEW_MEMBERS_MAX])
{
    struct order_sites s = {
        .most = r->terms.site_members,
        .lead = last_leads(r),
    };
    uint64_t near[VIEW_MEMBERS_MAX] = {0};
    struct order_graph g;

    for (uint32_t i = 0; i < round_view(r)->n_members; i++) {
        s.site[i] = r->readies[i].site;
        near[i] = r->readies[i].near;
    }
    order_near(mask, near, &s);
    graph_of(r, true, &g);
    if (order_nested(&g, mask, &s, round_order_seed(r), at, gateway)) {
        return true;
    }
    graph_of(r, false, &g);
    return order_nested(&g, mask, &s, round_order_seed(r), at, gateway);
}

static void plan_order(const struct round *r,
                       uint64_t mask,
                       uint64_t now_ms,
                       struct plan_body *p)
{
    bool gateway[VIEW_MEMBERS_MAX] = {false};
    uint8_t at[VIEW_MEMBERS_MAX];

    p->n_members = 0;
    if (r->terms.exchange != EXCHANGE_SITES ||
        !find_sites(r, mask, at, gateway)) {
        memset(gateway, 0, sizeof gateway);
        if (!find_order(r, mask, now_ms, at)) {
            return; /* no plan */
        }
    }
    p->n_members = (uint32_t)__builtin_popcountll(mask);
    for (uint32_t k = 0; k < p->n_members; k++) {
        const struct ready_body *c = &r->readies[at[k]];

        p->members[k] = (struct plan_member){
            .index = at[k],
            .tokens = c->tokens,
            .first_step = c->first_step,
            .last_step = c->last_step,
            .lease = c->lease,
            .text = c->text,
            .gateway = gateway[k],
            .offer = c->offer,
            .astray = c->astray,
            .n_moments = c->n_moments,
            .moments = {c->moments[0]},
        };
    }
}

bool round_is_enough(const struct round *r, uint64_t mask)
{
    uint64_t tokens = 0;

    for (uint32_t i = 0; i < round_view(r)->n_members; i++) {
        tokens += mask >> i & 1 ? r->readies[i].tokens : 0;
    }
    return tokens > 0 &&
           view_quorum(round_view(r), mask, r->ballot->departed.mask);
}

/* The member (bit) whose contribution or sum member i could not use, if both
 * are in the mask; 0: none. */
static uint64_t rejected_by(const struct round *r, uint32_t i, uint64_t mask)
{
    const struct ready_body *c = &r->readies[i];

    for (uint32_t k = 0; k < round_view(r)->n_members; k++) {
        if ((mask >> i & 1) && c->n_rejected > 0 &&
            id_eq(&c->rejected[0], &r->ballot->ids[k])) {
            return mask & BIT(k);
        }
    }
    return 0;
}

/* Those who name themselves, or whom more than half of all full members name.
 */
static uint64_t rejected_by_most(const struct round *r, uint64_t mask)
{
    uint64_t full = view_full(round_view(r)), most = 0;
    uint32_t n_naming[VIEW_MEMBERS_MAX] = {0};

    for (uint32_t i = 0; i < round_view(r)->n_members; i++) {
        uint64_t named = rejected_by(r, i, mask);
        uint32_t k = named == 0 ? 0 : (uint32_t)__builtin_ctzll(named);

        n_naming[k] += named != 0 && (full >> i & 1);
        most |= named & BIT(i);
        most |= 2 * n_naming[k] > view_n_full(round_view(r)) ? named : 0;
    }
    return most;
}

/* Whether nobody of the mask names member i. */
static bool is_unnamed(const struct round *r, uint32_t i, uint64_t mask)
{
    for (uint32_t k = 0; k < round_view(r)->n_members; k++) {
        if (rejected_by(r, k, mask) & BIT(i)) {
            return false;
        }
    }
    return true;
}

/* Leave out whose contribution or sum another member could not use. Only the
 * owner of a slice sees what is wrong with it, so nobody knows which of the two
 * is to blame: both stay out, as in player elimination (Hirt, Maurer, Przydatek
 * 2000). So members that name honest ones go with them, and liars do not become
 * more than they were among those that stay. If both would leave too few, the
 * one that is named goes; who is named itself is heard last, or a liar that
 * names somebody would stay in, beside another one that cannot use its bytes.
 * Whose turn it is to be heard follows from the commit before. */
static uint64_t without_rejected(const struct round *r, uint64_t mask)
{
    uint32_t n = round_view(r)->n_members;
    uint32_t first = (uint32_t)((hash32_u64(&r->base) + r->epoch) % n);
    uint64_t left = mask & ~rejected_by_most(r, mask);

    left = round_is_enough(r, left) ? left : mask;
    for (uint32_t turn = 0; turn < 3; turn++) { /* both, one, one */
        for (uint32_t k = 0; k < n; k++) {
            uint32_t i = (first + k) % n;
            uint64_t named = rejected_by(r, i, left);
            uint64_t out = named | (turn == 0 ? BIT(i) : 0);

            if (named != 0 && (turn != 1 || is_unnamed(r, i, left)) &&
                round_is_enough(r, left & ~out)) {
                left &= ~out;
            }
        }
    }
    return left;
}

static uint32_t n_finding_silent(const struct round *r, uint32_t k)
{
    uint64_t full = view_full(round_view(r)) & r->ready;
    uint32_t n = 0;

    for (uint32_t i = 0; i < round_view(r)->n_members; i++) {
        n += (full >> i & 1) && (r->readies[i].silent >> k & 1);
    }
    return n;
}

/* Leave out, as long as enough remain, who strays (astray.c), then whom more
 * than half of all full members found silent (rests.h). */
static uint64_t without_resting(const struct round *r, uint64_t mask)
{
    uint64_t left = mask;

    for (uint32_t i = 0; i < r->n_astray; i++) { /* most named first */
        for (uint32_t k = 0; k < round_view(r)->n_members; k++) {
            if (id_eq(&r->astray[i], &r->ballot->ids[k]) &&
                round_is_enough(r, left & ~BIT(k))) {
                left &= ~BIT(k);
            }
        }
    }
    for (uint32_t k = 0; k < round_view(r)->n_members; k++) {
        if (2 * n_finding_silent(r, k) > view_n_full(round_view(r)) &&
            round_is_enough(r, left & ~BIT(k))) {
            left &= ~BIT(k);
        }
    }
    return left;
}

/* Whether two of the mask are there of which one rejects the other. */
static bool quarrels(const struct round *r, uint64_t mask)
{
    for (uint32_t i = 0; i < round_view(r)->n_members; i++) {
        if (rejected_by(r, i, mask) != 0) {
            return true;
        }
    }
    return false;
}

/* Of those that are ready whom the plan may have. A rest is counted
 * in rounds: where there is no plan without a member that rests, as those left
 * cannot exchange data or quarrel, there would be no round any more. So as
 * many of these as needed come back, then those that were rejected. */
static uint64_t usable(const struct round *r, uint64_t ready)
{
    uint64_t calm = without_rejected(r, ready);
    const uint64_t some[] = {without_rejected(r, without_resting(r, ready)),
                             without_resting(r, calm), calm, ready};

    for (int strict = 1; strict >= 0; strict--) {
        for (int k = 0; k < 4; k++) {
            if (round_is_enough(r, round_fitting(r, some[k])) &&
                !(strict && quarrels(r, some[k]))) {
                return some[k];
            }
        }
    }
    return some[0];
}

/* Whether every two members of the plan can exchange data; `direct`: without a
 * relay. */
static bool
all_joined(const struct round *r, const struct plan_body *p, bool direct)
{
    static const uint64_t even[VIEW_MEMBERS_MAX];
    struct order_graph g;
    uint64_t mask = 0;

    for (uint32_t k = 0; k < p->n_members; k++) {
        mask |= BIT(p->members[k].index);
    }
    graph_of(r, direct, &g);
    return order_clique(&g, mask, even, 0) == mask;
}

/* Whether a butterfly is faster than the ring of this plan. A line slower than
 * half of the fastest holds up a ring 2 (n - 1) / n times as long as a line
 * that only gives its vector and takes the result. If the last plan was a
 * butterfly, each of its edges showed only a part of a line, so lines are
 * compared. */
static bool butterfly_pays(const struct round *r,
                           const struct rates *rates,
                           const struct butterfly_rate *lines,
                           const struct plan_body *p)
{
    uint64_t slowest = UINT64_MAX, fastest = 0, ring;
    double n = p->n_members, time = butterfly_time(lines, p->n_members);
    uint8_t at[VIEW_MEMBERS_MAX];

    if (!r->terms.adapts || r->n_failed > 0 || time <= 0 ||
        !all_joined(r, p, true)) {
        return false;
    }
    for (uint32_t k = 0; k < p->n_members; k++) {
        uint64_t line =
            lines[k].up < lines[k].down ? lines[k].up : lines[k].down;

        slowest = line < slowest ? line : slowest;
        fastest = line > fastest ? line : fastest;
        at[k] = (uint8_t)k;
    }
    ring = rates_ring(rates, at, p->n_members);
    ring =
        r->order.kind == EXCHANGE_BUTTERFLY && ring < slowest ? slowest : ring;
    return slowest < fastest / 2 &&
           time * ROUND_BUTTERFLY_GAIN < 2 * (n - 1) / n / (double)ring;
}

/* The share of a stripe that each member owns. */
static void
plan_shares(const struct round *r, uint64_t now_ms, struct plan_body *p)
{
    struct butterfly_rate lines[VIEW_MEMBERS_MAX];
    struct peer_id ids[VIEW_MEMBERS_MAX];
    uint32_t shares[VIEW_MEMBERS_MAX];
    struct rates rates;

    if (r->terms.exchange == EXCHANGE_SITES) {
        return;
    }
    for (uint32_t k = 0; k < p->n_members; k++) {
        ids[k] = r->ballot->ids[p->members[k].index];
    }
    rates_init(&rates, r->opt.bandwidth, ids, p->n_members, now_ms);
    rates_lines(&rates, lines);
    if (r->n_tries >= TRIES) {
        memset(lines, 0, sizeof lines); /* all see who gives nothing */
    }
    if (r->terms.exchange == EXCHANGE_RING &&
        !(shows_idle(r) && p->n_members > 2 && all_joined(r, p, false)) &&
        !butterfly_pays(r, &rates, lines, p)) {
        return;
    }
    butterfly_shares(lines, p->n_members, shares);
    for (uint32_t k = 0; k < p->n_members; k++) {
        p->members[k].share = shares[k];
    }
}

enum exchange_kind round_kind(const struct plan_body *p)
{
    bool shared = false;

    for (uint32_t k = 0; k < p->n_members; k++) {
        if (p->members[k].gateway) {
            return EXCHANGE_SITES;
        }
        shared = shared || p->members[k].share > 0;
    }
    return shared ? EXCHANGE_BUTTERFLY : EXCHANGE_RING;
}

/* The first member begins a site, no site is larger than the terms allow, and
 * no member has a share. */
static bool sites_valid(const struct run_terms *terms,
                        const struct plan_body *p)
{
    uint32_t size = 0;

    for (uint32_t k = 0; k < p->n_members; k++) {
        size = p->members[k].gateway ? 1 : size + 1;
        if (p->members[k].share > 0 ||
            (terms->site_members > 0 && size > terms->site_members)) {
            return false;
        }
    }
    return p->members[0].gateway;
}

/* Whether shares and gateways make a plan that the terms allow. */
static bool kind_valid(const struct round *r, const struct plan_body *p)
{
    enum exchange_kind kind = round_kind(p);

    for (uint32_t k = 0; k < p->n_members; k++) {
        if (p->members[k].share > BUTTERFLY_SHARE_MAX) {
            return false;
        }
    }
    switch (r->terms.exchange) {
    case EXCHANGE_RING:
        return kind == EXCHANGE_RING || (kind == EXCHANGE_BUTTERFLY &&
                                         r->terms.adapts && p->n_members > 2);
    case EXCHANGE_BUTTERFLY:
        return kind == EXCHANGE_BUTTERFLY;
    case EXCHANGE_SITES:
        return kind == EXCHANGE_RING ||
               (kind == EXCHANGE_SITES && sites_valid(&r->terms, p));
    }
    return false;
}

bool round_coordinates(const struct round *r)
{
    return r->ballot->have && r->round > 0 && !r->has_plan && !r->frozen &&
           r->epoch == round_view(r)->epoch &&
           view_coordinator(round_view(r), r->round) == round_self(r);
}

static bool has_our_moments(const struct round *r, const struct plan_member *m)
{
    const struct ready_body *own = &r->mine;

    return m->n_moments == own->n_moments &&
           (m->n_moments == 0 ||
            (m->moments[0].steps == own->moments[0].steps &&
             hash32_eq(&m->moments[0].ends, &own->moments[0].ends) &&
             hash32_eq(&m->moments[0].root, &own->moments[0].root)));
}

/* A plan that we may follow: of this attempt, of distinct members that are
 * more than half of the view, and true about ourselves. */
static bool plan_valid(const struct round *r, const struct plan_body *p)
{
    uint64_t mask = 0, tokens = 0;
    uint32_t rank = UINT32_MAX;

    if (p->epoch != r->epoch || p->round != r->round ||
        !hash32_eq(&p->view, &r->ballot->hash) ||
        !hash32_eq(&p->base, &r->base) ||
        p->tokens_before != r->tokens_before || p->n_members == 0) {
        return false;
    }
    for (uint32_t k = 0; k < p->n_members; k++) {
        const struct plan_member *m = &p->members[k];

        if (m->index >= round_view(r)->n_members || (mask >> m->index & 1) ||
            !view_is_full(round_view(r), m->index) ||
            !round_work_fair(&r->terms, m->tokens, m->first_step,
                             m->last_step) ||
            !round_offer_fair(&r->terms, p->n_rollback == 0, &m->offer) ||
            !round_moments_fair(&r->terms, m->tokens, m->n_moments) ||
            (m->astray != 0 && !r->terms.watches) ||
            !text_span_valid(&m->text)) {
            return false;
        }
        mask |= BIT(m->index);
        tokens += m->tokens;
        if (m->index == round_self(r) &&
            (r->phase != ROUND_READY || m->tokens != r->mine.tokens ||
             m->first_step != r->mine.first_step ||
             m->last_step != r->mine.last_step || m->lease != r->mine.lease ||
             m->astray != r->mine.astray ||
             m->text.first != r->mine.text.first ||
             m->text.end != r->mine.text.end ||
             !hash32_eq(&m->offer, &r->mine.offer) || !has_our_moments(r, m) ||
             p->n_rollback != r->mine.n_rollback ||
             !hash32_eq(&p->state, &r->state))) {
            return false;
        }
        rank = m->index == round_self(r) ? k : rank;
    }
    if (p->n_rollback > 0) {
        return rollback_plan_valid(r, p, mask) && round_ledger_valid(r, p);
    }
    return !round_has_astray(r, mask) && kind_valid(r, p) &&
           (p->n_ranges == 0 || !r->terms.audits) &&
           inherit_fits(&r->kept, p, &r->opt.self, rank,
                        terms_elements(&r->terms, r->round), r->terms.block) &&
           tokens > 0 &&
           view_quorum(round_view(r), mask, r->ballot->departed.mask) &&
           round_ledger_valid(r, p);
}

static bool may_follow(const struct round *r, const struct plan_body *p)
{
    return !r->has_plan && !r->frozen && plan_valid(r, p);
}

static enum round_rests why_without_us(const struct round *r)
{
    const uint32_t self = round_self(r);
    const uint64_t full = view_full(round_view(r));

    if (r->in_plan || !(full >> self & 1)) {
        return ROUND_RESTS_NOT;
    }
    if (round_astray(r) >> self & 1) {
        return ROUND_RESTS_ASTRAY;
    }
    if (2 * n_finding_silent(r, self) > view_n_full(round_view(r))) {
        return ROUND_RESTS_SILENT;
    }
    return is_unnamed(r, self, round_ready_mask(r)) ? ROUND_RESTS_NOT
                                                    : ROUND_RESTS_REJECTED;
}

/* Its owner is told: who rests has done nothing wrong that it knows of. */
static void note_rests(struct round *r, struct out *out)
{
    static const char *const why[] = {
        [ROUND_RESTS_SILENT] = "most members waited in vain for what it sends, "
                               "or drew it after attempts that failed",
        [ROUND_RESTS_ASTRAY] = "half of the members say that it goes another "
                               "way than theirs",
        [ROUND_RESTS_REJECTED] = "a member could not use what it sent",
    };
    enum round_rests now = why_without_us(r);

    if (r->mine.tokens == 0 || r->plan.body.n_rollback > 0 || now == r->rests ||
        (now == ROUND_RESTS_NOT && !r->in_plan)) {
        return;
    }
    r->rests = now;
    if (now == ROUND_RESTS_NOT) {
        out_log(out, LOG_INFO, "round %llu has the work of this peer again",
                (unsigned long long)r->round);
    } else {
        out_log(out, LOG_WARN,
                "round %llu is made without the work of this peer: %s",
                (unsigned long long)r->round, why[now]);
    }
}

static void
follow(struct round *r, const struct plan *p, uint64_t now_ms, struct out *out)
{
    r->has_plan = true;
    r->plan = *p;
    r->started_ms = now_ms;
    r->resend_ms = now_ms + RESEND_MS;
    message_hash(&plan_body_schema, "loco-plan-1", &p->body, &r->plan_hash);
    r->plan_mask = 0;
    r->in_plan = false;
    for (uint32_t k = 0; k < p->body.n_members; k++) {
        r->plan_mask |= BIT(p->body.members[k].index);
        memcpy(r->plan_keys[k],
               round_view(r)->members[p->body.members[k].index].public_key, 32);
        if (p->body.members[k].index == round_self(r)) {
            r->in_plan = true;
            r->rank = k;
        }
    }
    round_idle_follow(r);
    note_rests(r, out);
    round_ready_ask(r, out);
    if (r->in_plan && r->round == round_view(r)->round + 1) {
        /* Who entered this view after us did not take it, and doubts the plan
         * without it (idle.c). */
        round_ready_send(r, UINT64_MAX, out);
    }
    if (p->body.n_rollback > 0) {
        if (r->in_plan) {
            round_vote(r, &p->body.rollback[0].state, now_ms, out);
        } else {
            round_try_commit(r); /* votes may have come first */
        }
    } else if (r->in_plan) {
        round_reduce(r, now_ms, out);
    } else {
        round_witness(r, now_ms, out);
    }
}

/* The part of those who offer work. */
static void
plan_work(const struct round *r, uint64_t now_ms, struct plan_body *p)
{
    uint64_t ready = round_ready_mask(r) & ~rollback_asks(r);
    uint64_t may = round_without_drawn(r, usable(r, ready));
    uint64_t fit = round_fitting(r, may), mask;
    bool anew = may != ready; /* all parts with the same contributors */

    mask = inherit_choose(&r->kept, r->readies, r->ballot->ids,
                          round_view(r)->members, fit, p);
    if (!view_quorum(round_view(r), round_fitting(r, mask),
                     r->ballot->departed.mask) ||
        anew) {
        mask = fit; /* too few were in it: all begin again */
        p->n_ranges = 0;
    }
    plan_order(r, round_fitting(r, mask), now_ms, p);
    inherit_holds(r->readies, p);
    plan_shares(r, now_ms, p);
}

void round_make_plan(struct round *r, uint64_t now_ms, struct out *out)
{
    struct plan msg = {0};
    struct rollback to;
    uint64_t back = rollback_wanted(r, &to);

    msg.body.epoch = r->epoch;
    msg.body.view = r->ballot->hash;
    msg.body.round = r->round;
    msg.body.base = r->base;
    msg.body.state = r->state;
    msg.body.tokens_before = r->tokens_before;
    if (back != 0) {
        rollback_plan(r, back, &to, &msg.body);
    } else {
        plan_work(r, now_ms, &msg.body);
    }
    if (!round_ledger_make(r, &msg.body) ||
        message_sign(&r->opt.signer, &plan_body_schema, &msg.body, msg.sig) !=
            0) {
        return;
    }
    if (may_follow(r, &msg.body)) {
        follow(r, &msg, now_ms, out);
    }
    if (!r->has_plan) {
        round_change(r, "no plan is possible with these contributions");
        return;
    }
    round_broadcast(r, out, UINT64_MAX, MESSAGE_PLAN, &msg);
}

uint64_t plan_tokens(const struct plan_body *plan)
{
    uint64_t tokens = 0;

    for (uint32_t k = 0; k < plan->n_members; k++) {
        tokens += plan->members[k].tokens;
    }
    return tokens;
}

static bool is_our_plan(const struct round *r, const struct plan_body *p)
{
    struct hash32 hash;

    message_hash(&plan_body_schema, "loco-plan-1", p, &hash);
    return hash32_eq(&hash, &r->plan_hash);
}

/* From anybody: who waits for us passes it on (idle.c). */
void round_on_plan(struct round *r,
                   int peer,
                   const struct plan *p,
                   uint64_t now_ms,
                   struct out *out)
{
    uint32_t maker;

    if (round_member(r, peer) < 0 || p->body.epoch != r->epoch ||
        p->body.round != r->round ||
        !hash32_eq(&p->body.view, &r->ballot->hash) ||
        (r->has_plan ? r->idle.two_plans || is_our_plan(r, &p->body)
                     : !may_follow(r, &p->body))) {
        return;
    }
    maker = view_coordinator(round_view(r), r->round);
    if (!message_verify(&r->opt.signer,
                        round_view(r)->members[maker].public_key,
                        &plan_body_schema, &p->body, p->sig)) {
        r->malformed++;
        return;
    }
    if (!r->has_plan) {
        follow(r, p, now_ms, out);
        return;
    }
    /* Whoever made both lied: those that follow the other are to know it. */
    r->idle.two_plans = true;
    (void)members_send(r->members, out, peer, MESSAGE_PLAN, &r->plan);
}
