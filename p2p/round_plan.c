/* round_plan.c - who takes part and in which order: made by the coordinator,
 * checked and followed by everybody. See round.h. */
#include <string.h>

#include "p2p/order.h"
#include "p2p/rates.h"
#include "p2p/round_internal.h"
#include "p2p/text.h"
#include "proto/base/rng.h"

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

static uint64_t order_seed(const struct round *r)
{
    uint64_t words[] = {hash32_u64(&round_view(r)->run), r->epoch, r->round, 3};

    return rng_mix(words, 4);
}

/* Of those in `mask` who fit into one ring, or into a butterfly, where
 * everybody sends to everybody; who does not is another one in the next
 * round. */
static uint64_t fitting(const struct round *r, uint64_t mask)
{
    static const uint64_t even[VIEW_MEMBERS_MAX];
    struct order_graph g;

    graph_of(r, false, &g);
    return r->terms.exchange == EXCHANGE_BUTTERFLY
               ? order_clique(&g, mask, even, order_seed(r))
               : order_largest(&g, mask, even, order_seed(r));
}

/* The order of the last commit, of those in `mask`, who is new at its end;
 * false: it has none of them, or is no ring of this graph, or a plan of as many
 * members failed since. */
static bool last_order(const struct round *r,
                       const struct order_graph *g,
                       uint64_t mask,
                       uint8_t at[VIEW_MEMBERS_MAX])
{
    uint32_t n = 0, all = (uint32_t)__builtin_popcountll(mask);
    uint64_t left = mask;

    for (uint32_t k = 0; k < r->n_order; k++) {
        for (uint32_t i = 0; i < round_view(r)->n_members; i++) {
            if ((left >> i & 1) && id_eq(&r->ballot->ids[i], &r->order[k])) {
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

/* The last order, or one that is drawn, or a faster one; false: there is no
 * ring in this graph. */
static bool find_ring(const struct round *r,
                      const struct order_graph *g,
                      uint64_t mask,
                      uint64_t now_ms,
                      uint8_t at[VIEW_MEMBERS_MAX])
{
    const struct view_body *v = round_view(r);
    struct rates rates;

    if (!last_order(r, g, mask, at) &&
        !order_ring(g, mask, order_seed(r), at)) {
        return false;
    }
    rates_init(&rates, r->opt.bandwidth, r->ballot->ids, v->n_members, now_ms);
    (void)rates_order(&rates, g, mask, order_seed(r), at);
    return true;
}

/* A ring that needs no relay where there is one. In a butterfly all are
 * neighbours: any order. */
static bool find_order(const struct round *r,
                       uint64_t mask,
                       uint64_t now_ms,
                       uint8_t at[VIEW_MEMBERS_MAX])
{
    struct order_graph g;

    if (r->terms.exchange == EXCHANGE_BUTTERFLY) {
        order_init(&g, round_view(r)->n_members);
        return order_ring(&g, mask, order_seed(r), at);
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

    for (uint32_t k = 0; k < r->n_order && r->n_failed == 0; k++) {
        for (uint32_t i = 0; i < round_view(r)->n_members; i++) {
            if (r->leads[k] && id_eq(&r->ballot->ids[i], &r->order[k])) {
                mask |= BIT(i);
            }
        }
    }
    return mask;
}

/* Site by site, where that is something else than a ring; marks[k] > 0: at[k]
 * is a gateway. */
static bool find_sites(const struct round *r,
                       uint64_t mask,
                       uint8_t at[VIEW_MEMBERS_MAX],
                       uint32_t marks[VIEW_MEMBERS_MAX])
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
    if (order_nested(&g, mask, &s, order_seed(r), at, marks)) {
        return true;
    }
    graph_of(r, false, &g);
    return order_nested(&g, mask, &s, order_seed(r), at, marks);
}

static void plan_order(const struct round *r,
                       uint64_t mask,
                       uint64_t now_ms,
                       struct plan_body *p)
{
    uint32_t marks[VIEW_MEMBERS_MAX] = {0};
    uint8_t at[VIEW_MEMBERS_MAX];

    p->n_members = 0;
    if (r->terms.exchange != EXCHANGE_SITES ||
        !find_sites(r, mask, at, marks)) {
        memset(marks, 0, sizeof marks);
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
            .share = marks[k],
        };
    }
}

/* Who stays out: those whose contribution somebody could not use, as long as
 * enough are left. One word is enough, as only the owner of a slice sees what
 * is wrong with it; what it can do by lying is to keep another one out, and
 * no member can name more than one in a round. */
static uint64_t without_rejected(const struct round *r, uint64_t mask)
{
    uint64_t left = mask, tokens = 0;

    for (uint32_t i = 0; i < round_view(r)->n_members; i++) {
        const struct ready_body *c = &r->readies[i];

        for (uint32_t k = 0; k < round_view(r)->n_members; k++) {
            if ((mask >> i & 1) && c->n_rejected > 0 &&
                id_eq(&c->rejected[0], &r->ballot->ids[k])) {
                left &= ~BIT(k);
            }
        }
    }
    for (uint32_t i = 0; i < round_view(r)->n_members; i++) {
        tokens += left >> i & 1 ? r->readies[i].tokens : 0;
    }
    return tokens > 0 && view_quorum(round_view(r), left, r->ballot->departed)
               ? left
               : mask;
}

/* Whether all of a plan can exchange data with each other. */
static bool all_joined(const struct round *r, const struct plan_body *p)
{
    static const uint64_t even[VIEW_MEMBERS_MAX];
    struct order_graph g;
    uint64_t mask = 0;

    for (uint32_t k = 0; k < p->n_members; k++) {
        mask |= BIT(p->members[k].index);
    }
    graph_of(r, true, &g);
    return order_clique(&g, mask, even, 0) == mask;
}

/* Whether this plan, a ring, is better a butterfly: a line that is slower than
 * half of the fastest holds up a ring 2 (n - 1) / n times as long as one that
 * only gives its vector and takes the result. Where the last plan was a
 * butterfly, what its edges showed is a part of a line each, so the lines are
 * compared. */
static bool butterfly_pays(const struct round *r,
                           const struct rates *rates,
                           const struct butterfly_rate *lines,
                           const struct plan_body *p)
{
    uint64_t slowest = UINT64_MAX, fastest = 0, ring;
    double n = p->n_members, time = butterfly_time(lines, p->n_members);
    uint8_t at[VIEW_MEMBERS_MAX];

    if (!r->terms.adapts || r->n_failed > 0 || time <= 0 || !all_joined(r, p)) {
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
        r->order_kind == EXCHANGE_BUTTERFLY && ring < slowest ? slowest : ring;
    return slowest < fastest / 2 &&
           time * ROUND_BUTTERFLY_GAIN < 2 * (n - 1) / n / (double)ring;
}

/* What each member owns of a stripe. */
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
    if (r->terms.exchange == EXCHANGE_RING &&
        !butterfly_pays(r, &rates, lines, p)) {
        return;
    }
    butterfly_shares(lines, p->n_members, shares);
    for (uint32_t k = 0; k < p->n_members; k++) {
        p->members[k].share = shares[k];
    }
}

enum exchange_kind round_kind(const struct run_terms *terms,
                              const struct plan_body *p)
{
    bool shared = false;

    for (uint32_t k = 0; k < p->n_members; k++) {
        shared = shared || p->members[k].share > 0;
    }
    if (!shared) {
        return EXCHANGE_RING;
    }
    return terms->exchange == EXCHANGE_SITES ? EXCHANGE_SITES
                                             : EXCHANGE_BUTTERFLY;
}

/* Sites begin with the first member and are as small as the terms say. */
static bool sites_valid(const struct run_terms *terms,
                        const struct plan_body *p)
{
    uint32_t size = 0;

    for (uint32_t k = 0; k < p->n_members; k++) {
        size = p->members[k].share > 0 ? 1 : size + 1;
        if (terms->site_members > 0 && size > terms->site_members) {
            return false;
        }
    }
    return p->members[0].share > 0;
}

/* Shares make a plan what the terms allow. */
static bool shares_valid(const struct round *r, const struct plan_body *p)
{
    enum exchange_kind kind = round_kind(&r->terms, p);

    for (uint32_t k = 0; k < p->n_members; k++) {
        if (p->members[k].share > BUTTERFLY_SHARE_MAX) {
            return false;
        }
    }
    switch (r->terms.exchange) {
    case EXCHANGE_RING:
        return kind == EXCHANGE_RING || (r->terms.adapts && p->n_members > 2);
    case EXCHANGE_BUTTERFLY:
        return kind == EXCHANGE_BUTTERFLY;
    case EXCHANGE_SITES:
        return kind == EXCHANGE_RING || sites_valid(&r->terms, p);
    }
    return false;
}

bool round_coordinates(const struct round *r)
{
    return r->ballot->have && r->round > 0 && !r->has_plan && !r->frozen &&
           r->epoch == round_view(r)->epoch &&
           view_coordinator(round_view(r), r->round) == round_self(r);
}

void round_make_plan(struct round *r, uint64_t now_ms, struct out *out)
{
    struct plan msg = {0};
    uint64_t ready = round_ready_mask(r), usable = without_rejected(r, ready);
    bool anew = usable != ready; /* all parts with the same contributors */
    uint64_t fit, mask;

    msg.body.epoch = r->epoch;
    msg.body.view = r->ballot->hash;
    msg.body.round = r->round;
    msg.body.base = r->base;
    msg.body.state = r->state;
    msg.body.tokens_before = r->tokens_before;
    fit = fitting(r, usable);
    mask = inherit_choose(&r->kept, r->readies, r->ballot->ids,
                          round_view(r)->members, fit, &msg.body);
    if (!view_quorum(round_view(r), fitting(r, mask), r->ballot->departed) ||
        anew) {
        mask = fit; /* too few were in it: all begin again */
        msg.body.n_ranges = 0;
    }
    plan_order(r, fitting(r, mask), now_ms, &msg.body);
    inherit_holds(r->readies, &msg.body);
    plan_shares(r, now_ms, &msg.body);
    if (!round_ledger_make(r, &msg.body) ||
        message_sign(&r->opt.signer, &plan_body_schema, &msg.body, msg.sig) !=
            0) {
        return;
    }
    round_on_plan(r, (int)round_self(r), &msg, now_ms, out);
    if (!r->has_plan) {
        round_change(r, "no plan of these contributions is possible");
        return;
    }
    round_broadcast(r, out, UINT64_MAX, MESSAGE_PLAN, &msg);
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
            m->tokens > ROUND_TOKENS_MAX || !text_span_valid(&m->text)) {
            return false;
        }
        mask |= BIT(m->index);
        tokens += m->tokens;
        if (m->index == round_self(r) &&
            (r->phase != ROUND_READY || m->tokens != r->mine.tokens ||
             m->first_step != r->mine.first_step ||
             m->last_step != r->mine.last_step || m->lease != r->mine.lease ||
             m->text.first != r->mine.text.first ||
             m->text.end != r->mine.text.end ||
             !hash32_eq(&p->state, &r->state))) {
            return false;
        }
        rank = m->index == round_self(r) ? k : rank;
    }
    return shares_valid(r, p) &&
           inherit_fits(&r->kept, p, &r->opt.self, rank,
                        terms_elements(&r->terms, r->round), r->terms.block) &&
           tokens > 0 &&
           view_quorum(round_view(r), mask, r->ballot->departed) &&
           round_ledger_valid(r, p);
}

uint64_t plan_tokens(const struct plan_body *plan)
{
    uint64_t tokens = 0;

    for (uint32_t k = 0; k < plan->n_members; k++) {
        tokens += plan->members[k].tokens;
    }
    return tokens;
}

void round_on_plan(struct round *r,
                   int index,
                   const struct plan *p,
                   uint64_t now_ms,
                   struct out *out)
{
    if (r->has_plan || r->frozen ||
        (uint32_t)index != view_coordinator(round_view(r), r->round) ||
        !plan_valid(r, &p->body)) {
        return;
    }
    if (index != (int)round_self(r) &&
        !message_verify(&r->opt.signer,
                        round_view(r)->members[index].public_key,
                        &plan_body_schema, &p->body, p->sig)) {
        r->malformed++;
        return;
    }
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
    if (r->in_plan) {
        round_reduce(r, now_ms, out);
    } else {
        round_try_commit(r); /* votes may have come first */
    }
}
