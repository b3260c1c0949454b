/* round.c - see round.h.
 *
 * Happy path: round_begin -> round_contribute -> (coordinator) make_plan ->
 * on_plan -> ring -> HASH -> vote_own -> on_vote* -> try_commit.
 *
 * What can go wrong
 *   1. a member is late: make_plan leaves it out after grace_ms;
 *   2. the coordinator dies: plan_ms, then a change of view;
 *   3. a hop stalls or breaks: hop_ms or SEG_DONE with an error, the same;
 *   4. a vote is missing or differs: vote_ms, the same;
 *   5. a message is lost: READY, PLAN and VOTE are repeated every second.
 */
#include "p2p/round.h"

#include <assert.h>
#include <string.h>

#include "p2p/order.h"
#include "proto/base/err.h"
#include "proto/base/rng.h"

#define BIT(i)    (1ULL << (i))
#define RESEND_MS 1000

void round_init(struct round *r,
                const struct round_options *opt,
                struct members *members,
                struct ballot *ballot)
{
    memset(r, 0, sizeof *r);
    r->opt = *opt;
    r->members = members;
    r->ballot = ballot;
    r->broken = MEMBERS_NONE;
}

void round_configure(struct round *r, const struct run_terms *terms)
{
    r->terms = *terms;
}

static const struct view_body *view_of(const struct round *r)
{
    return &r->ballot->cert.body;
}

static uint32_t self_of(const struct round *r)
{
    assert(r->ballot->self_index >= 0);
    return (uint32_t)r->ballot->self_index;
}

static void broadcast(struct round *r,
                      struct out *out,
                      uint64_t mask,
                      enum message_type type,
                      const void *msg)
{
    int rows[VIEW_MEMBERS_MAX];

    for (uint32_t i = 0; i < view_of(r)->n_members; i++) {
        rows[i] = mask >> i & 1 ? r->ballot->rows[i] : MEMBERS_NONE;
    }
    members_broadcast(r->members, out, rows, view_of(r)->n_members, type, msg);
}

static int index_of_peer(const struct round *r, int peer)
{
    for (uint32_t i = 0; i < view_of(r)->n_members; i++) {
        if (r->ballot->rows[i] == peer) {
            return (int)i;
        }
    }
    return -1;
}

static void change(struct round *r, const char *why)
{
    r->want_change = r->overdue = true;
    r->why = why;
}

static uint64_t attempt_of(uint64_t epoch, uint64_t round)
{
    return epoch << 32 | (round & 0xffffffff);
}

/* End all attempts up to this one. */
static void cancel(uint64_t attempt, struct out *out)
{
    struct action *a = out_add(out, ACTION_CANCEL);

    if (a != NULL) {
        a->stream = STREAM_RING;
        a->attempt = attempt;
    }
}

static void ready_send(struct round *r, uint64_t mask, struct out *out)
{
    struct ready msg = {.body = r->mine};

    if (message_sign(&r->opt.signer, &ready_body_schema, &msg.body, msg.sig) ==
        0) {
        broadcast(r, out, mask, MESSAGE_READY, &msg);
    }
}

/* Whether members voted for different bytes: nobody knows whose are right. */
static bool votes_differ(const struct round *r)
{
    const struct vote_body *first = NULL;

    for (uint32_t i = 0; i < VIEW_MEMBERS_MAX; i++) {
        const struct vote_body *v = &r->votes[i].body;

        if (!(r->voted & r->plan_mask & BIT(i)) ||
            !hash32_eq(&v->plan, &r->plan_hash)) {
            continue;
        }
        first = first == NULL ? v : first;
        if (!hash32_eq(&v->result, &first->result)) {
            return true;
        }
    }
    return false;
}

/* The attempt that ends here failed: what of it is final stays, unless the next
 * one would inherit what made this one fail. */
static void keep(struct round *r)
{
    struct peer_id ids[VIEW_MEMBERS_MAX];

    if (r->spoiled || votes_differ(r)) {
        r->kept.n = 0;
        return;
    }

    if (!r->in_plan || r->plan.body.n_members < 2) {
        return; /* the buffer is as the attempt before left it */
    }
    for (uint32_t k = 0; k < r->plan.body.n_members; k++) {
        ids[k] = id_of_public(r->plan_keys[k]);
    }
    inherit_keep(&r->kept, &r->plan.body, &r->plan_hash, ids,
                 ring_final(&r->ring), r->ring.attempt);
}

/* Offer the contribution to this attempt. */
static void offer(struct round *r, uint64_t now_ms, struct out *out)
{
    r->mine.epoch = r->epoch;
    r->mine.view = r->ballot->hash;
    r->mine.round = r->round;
    r->mine.state = r->state;
    inherit_claims(&r->kept, &r->mine);
    r->phase = ROUND_READY;
    r->ready |= BIT(self_of(r));
    r->readies[self_of(r)] = r->mine;
    r->resend_ms = now_ms + RESEND_MS;
    ready_send(r, UINT64_MAX, out);
}

void round_bar(struct round *r, uint64_t epoch, struct out *out)
{
    r->barred = attempt_of(epoch, UINT32_MAX);
    cancel(r->barred, out);
}

void round_begin(struct round *r,
                 uint64_t round,
                 const struct hash32 *base,
                 const struct hash32 *state,
                 uint64_t tokens_before,
                 uint64_t now_ms,
                 struct out *out)
{
    bool next; /* follows in the same view */

    if (r->phase != ROUND_COMMITTED && r->epoch == view_of(r)->epoch &&
        r->round == round && hash32_eq(&r->view, &r->ballot->hash) &&
        hash32_eq(&r->base, base)) {
        /* The same attempt, now that its base is in place. What others said
         * of it in the meantime stands. */
        if (state != NULL) {
            r->has_state = true;
            r->state = *state;
        }
        if (r->contributed && r->has_state && r->phase == ROUND_TRAINING &&
            !r->frozen) {
            offer(r, now_ms, out);
        }
        return;
    }
    if (r->has_plan && r->phase != ROUND_COMMITTED) {
        r->n_aborted++;
        keep(r);
        if (r->phase == ROUND_REDUCING && !r->frozen) {
            cancel(r->ring.attempt, out); /* our own sends, too */
        }
    }
    if (r->phase == ROUND_COMMITTED || r->round != round ||
        !hash32_eq(&r->base, base)) {
        r->kept.n = 0; /* of another round */
    }
    next = r->epoch == view_of(r)->epoch && r->round + 1 == round &&
           hash32_eq(&r->view, &r->ballot->hash);
    /* Every earlier attempt is over, also those that we took no part in: a
     * frame of one of them must not block a data connection for ever. */
    if (attempt_of(view_of(r)->epoch, round) <= r->barred) {
        cancel(0, out); /* another branch counts its epochs from lower */
        r->barred = 0;
    }
    cancel(attempt_of(view_of(r)->epoch, round) - 1, out);
    r->epoch = view_of(r)->epoch;
    r->view = r->ballot->hash;
    r->round = round;
    r->base = *base;
    r->has_state = state != NULL;
    if (state != NULL) {
        r->state = *state;
    }
    r->tokens_before = tokens_before;
    r->phase = ROUND_TRAINING;
    r->frozen = r->has_plan = r->in_plan = r->spoiled = false;
    r->ready = next ? r->early : 0;
    memcpy(r->readies, r->earlies, sizeof r->readies);
    r->early = r->voted = r->plan_mask = 0;
    r->possible_ms = r->half_ready_ms = 0;
    r->committed = r->want_change = r->overdue = false;
    if (r->contributed && r->has_state) {
        offer(r, now_ms, out);
    }
}

void round_contribute(struct round *r,
                      uint64_t tokens,
                      uint64_t first_step,
                      uint64_t last_step,
                      uint64_t now_ms,
                      struct out *out)
{
    r->contributed = true;
    r->mine.tokens = tokens;
    r->mine.first_step = first_step;
    r->mine.last_step = last_step;
    if (r->ballot->have && r->has_state && r->phase == ROUND_TRAINING &&
        !r->frozen) {
        offer(r, now_ms, out);
    }
}

void round_contribution_clear(struct round *r)
{
    r->contributed = false;
    r->exposed = false;
    memset(&r->mine, 0, sizeof r->mine);
}

void round_disinherited(struct round *r, uint64_t attempt, struct out *out)
{
    if (!r->in_plan || attempt != r->ring.attempt ||
        (r->phase != ROUND_REDUCING && r->phase != ROUND_HASHING)) {
        return;
    }
    r->spoiled = true;
    r->phase = ROUND_READY; /* neither the ring nor a hash goes on */
    cancel(attempt, out);
    change(r, "what earlier attempts had finished is gone here");
}

/* ---- the plan --------------------------------------------------------- */

/* Which members can exchange data, as far as pulses and the view's list of
 * broken edges tell. */
static void graph_of(const struct round *r, struct order_graph *g)
{
    const struct view_body *v = view_of(r);

    order_init(g, v->n_members);
    for (uint32_t i = 0; i < v->n_members; i++) {
        for (uint32_t k = i + 1; k < v->n_members; k++) {
            if (!members_edge(r->members, i, k)) {
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
    uint64_t words[] = {hash32_u64(&view_of(r)->run), r->epoch, r->round, 3};

    return rng_mix(words, 4);
}

/* Of those in `mask` who fit into one ring; who does not is another one in the
 * next round. */
static uint64_t fitting(const struct round *r, uint64_t mask)
{
    static const uint64_t even[VIEW_MEMBERS_MAX];
    struct order_graph g;

    graph_of(r, &g);
    return order_largest(&g, mask, even, order_seed(r));
}

/* Ring order: one that (run, epoch, round) names. */
static void
ring_order(const struct round *r, uint64_t mask, struct plan_body *p)
{
    uint8_t ring[VIEW_MEMBERS_MAX];
    struct order_graph g;

    graph_of(r, &g);
    if (!order_ring(&g, mask, order_seed(r), ring)) {
        p->n_members = 0;
        return;
    }
    p->n_members = (uint32_t)__builtin_popcountll(mask);
    for (uint32_t k = 0; k < p->n_members; k++) {
        const struct ready_body *c = &r->readies[ring[k]];

        p->members[k] = (struct plan_member){
            .index = ring[k],
            .tokens = c->tokens,
            .first_step = c->first_step,
            .last_step = c->last_step,
        };
    }
}

static uint64_t ready_mask(const struct round *r)
{
    uint64_t mask = 0;

    for (uint32_t i = 0; i < view_of(r)->n_members; i++) {
        if ((r->ready >> i & 1) && hash32_eq(&r->readies[i].state, &r->state)) {
            mask |= BIT(i);
        }
    }
    return mask;
}

static uint64_t all_mask(const struct round *r)
{
    uint32_t n = view_of(r)->n_members;

    return (n == 64 ? UINT64_MAX : BIT(n) - 1) & ~r->ballot->departed;
}

/* Note since when a plan is possible: everybody is ready, or more than half
 * has been for grace_ms. */
static void watch_ready(struct round *r, uint64_t now_ms)
{
    uint64_t mask = ready_mask(r), tokens = 0;

    if (!r->has_state || r->has_plan) {
        return;
    }
    for (uint32_t i = 0; i < view_of(r)->n_members; i++) {
        tokens += mask >> i & 1 ? r->readies[i].tokens : 0;
    }
    if (tokens == 0 || !view_quorum(view_of(r), mask, r->ballot->departed)) {
        r->half_ready_ms = r->possible_ms = 0; /* a READY was replaced */
        return;
    }
    if (r->half_ready_ms == 0) {
        r->half_ready_ms = now_ms;
    }
    if (r->possible_ms == 0 &&
        ((all_mask(r) & ~mask) == 0 ||
         now_ms - r->half_ready_ms >= r->terms.grace_ms)) {
        r->possible_ms = now_ms;
    }
}

static void on_plan(struct round *r,
                    int index,
                    const struct plan *p,
                    uint64_t now_ms,
                    struct out *out);

bool round_coordinates(const struct round *r)
{
    return r->ballot->have && r->round > 0 && !r->has_plan && !r->frozen &&
           r->epoch == view_of(r)->epoch &&
           view_coordinator(view_of(r), r->round) == self_of(r);
}

static void make_plan(struct round *r, uint64_t now_ms, struct out *out)
{
    struct plan msg = {0};
    uint64_t ready = fitting(r, ready_mask(r)), mask;

    msg.body.epoch = r->epoch;
    msg.body.view = r->ballot->hash;
    msg.body.round = r->round;
    msg.body.base = r->base;
    msg.body.state = r->state;
    msg.body.tokens_before = r->tokens_before;
    mask =
        inherit_choose(&r->kept, r->readies, r->ballot->ids, ready, &msg.body);
    if (!view_quorum(view_of(r), fitting(r, mask), r->ballot->departed)) {
        mask = ready; /* too few were in it: all begin again */
        msg.body.n_ranges = 0;
    }
    ring_order(r, fitting(r, mask), &msg.body);
    inherit_holds(r->readies, &msg.body);
    if (message_sign(&r->opt.signer, &plan_body_schema, &msg.body, msg.sig) !=
        0) {
        return;
    }
    on_plan(r, (int)self_of(r), &msg, now_ms, out);
    if (!r->has_plan) {
        change(r, "no plan of these contributions is possible");
        return;
    }
    broadcast(r, out, UINT64_MAX, MESSAGE_PLAN, &msg);
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

        if (m->index >= view_of(r)->n_members || (mask >> m->index & 1) ||
            m->tokens > ROUND_TOKENS_MAX) {
            return false;
        }
        mask |= BIT(m->index);
        tokens += m->tokens;
        if (m->index == self_of(r) &&
            (r->phase != ROUND_READY || m->tokens != r->mine.tokens ||
             m->first_step != r->mine.first_step ||
             m->last_step != r->mine.last_step ||
             !hash32_eq(&p->state, &r->state))) {
            return false;
        }
        rank = m->index == self_of(r) ? k : rank;
    }
    return inherit_fits(&r->kept, p, &r->opt.self, rank, r->terms.n_params,
                        r->terms.block) &&
           tokens > 0 && view_quorum(view_of(r), mask, r->ballot->departed);
}

/* All bytes are here: hash them. */
static void reduced(struct round *r, struct out *out)
{
    struct action *a;

    r->phase = ROUND_HASHING;
    cancel(r->ring.attempt, out); /* late duplicates are dropped */
    a = out_add(out, ACTION_HASH);
    if (a != NULL) {
        a->buffer = BUFFER_RING;
        a->index = r->round;
        a->request = r->ring.attempt;
    }
}

uint64_t plan_tokens(const struct plan_body *plan)
{
    uint64_t tokens = 0;

    for (uint32_t k = 0; k < plan->n_members; k++) {
        tokens += plan->members[k].tokens;
    }
    return tokens;
}

/* The wire buffer of the attempt before is this one's. */
static void take_over(struct round *r, struct out *out)
{
    uint64_t holds = r->plan.body.members[r->rank].holds;
    struct action *a;

    if (holds > 0) {
        a = out_add(out, ACTION_INHERIT);
        if (a == NULL) {
            r->spoiled = true;
            return;
        }
        a->attempt = r->kept.attempt;
        a->request = r->ring.attempt;
        inherit_move(&r->kept, holds, r->ring.attempt);
    }
}

/* Nobody to exchange with: encode the rest, then hash. */
static void alone(struct round *r, struct out *out)
{
    struct action *a;

    r->phase = ROUND_HASHING;
    take_over(r, out);
    a = out_add(out, ACTION_HASH);
    if (a != NULL) {
        a->buffer = BUFFER_RING;
        a->index = r->round;
        a->request = r->ring.attempt;
        a->encode = true;
        a->segment.offset = inherit_total(&r->plan.body);
    }
}

static void ring_start(struct round *r, uint64_t now_ms, struct out *out)
{
    const struct plan_body *p = &r->plan.body;
    uint32_t n = p->n_members, next = (r->rank + 1) % n;
    struct ring_shape shape = {
        .elements = r->terms.n_params,
        .from = inherit_total(p),
        .block = r->terms.block,
        .segment_elements = r->terms.segment_elements,
        .chunk_segments = r->terms.chunk_segments,
        .n = n,
    };
    struct action *a;

    r->phase = ROUND_REDUCING;
    r->progress_ms = now_ms;
    r->quiet = false;
    r->ring_progress = 0;
    r->exposed = true;
    r->ring.attempt = attempt_of(r->epoch, r->round);
    if (n == 1) {
        alone(r, out);
        return;
    }
    ring_init(&r->ring, &shape, r->rank, p->members[r->rank].holds,
              p->members[next].holds);
    r->ring.attempt = attempt_of(r->epoch, r->round);
    r->ring.scale = (double)r->mine.tokens / (double)plan_tokens(p);
    r->ring.next = r->ballot->ids[p->members[next].index];
    r->ring.prev = r->ballot->ids[p->members[(r->rank + n - 1) % n].index];
    a = out_add(out, ACTION_BULK_OPEN);
    if (a != NULL) {
        int row = r->ballot->rows[p->members[next].index];

        a->peer = r->ring.next;
        a->address = r->members->peers[row].address;
    }
    take_over(r, out);
    if (ring_finished(&r->ring)) {
        reduced(r, out); /* all of it was inherited, and is here */
        return;
    }
    ring_pump(&r->ring, out);
}

static void try_commit(struct round *r);

static void on_plan(struct round *r,
                    int index,
                    const struct plan *p,
                    uint64_t now_ms,
                    struct out *out)
{
    if (r->has_plan || r->frozen ||
        (uint32_t)index != view_coordinator(view_of(r), r->round) ||
        !plan_valid(r, &p->body)) {
        return;
    }
    if (index != (int)self_of(r) &&
        !message_verify(&r->opt.signer, view_of(r)->members[index].public_key,
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
               view_of(r)->members[p->body.members[k].index].public_key, 32);
        if (p->body.members[k].index == self_of(r)) {
            r->in_plan = true;
            r->rank = k;
        }
    }
    if (r->in_plan) {
        ring_start(r, now_ms, out);
    } else {
        try_commit(r); /* votes may have come first */
    }
}

/* ---- votes ------------------------------------------------------------ */

/* Complete? Every member of the plan voted for this plan and one result. */
static void try_commit(struct round *r)
{
    const struct vote_body *first = NULL;
    uint32_t k;

    if (!r->has_plan || r->phase == ROUND_COMMITTED ||
        (r->voted & r->plan_mask) != r->plan_mask) {
        return;
    }
    for (k = 0; k < r->plan.body.n_members; k++) {
        const struct vote_body *v =
            &r->votes[r->plan.body.members[k].index].body;

        first = first == NULL ? v : first;
        if (!hash32_eq(&v->plan, &r->plan_hash) ||
            !hash32_eq(&v->result, &first->result)) {
            change(r, "votes differ");
            return;
        }
    }
    memset(&r->last, 0, sizeof r->last);
    r->last.plan = r->plan;
    r->last.result = first->result;
    r->last.n_votes = r->plan.body.n_members;
    for (k = 0; k < r->plan.body.n_members; k++) {
        uint32_t at = r->plan.body.members[k].index;

        memcpy(r->last.votes[k].public_key, view_of(r)->members[at].public_key,
               32);
        memcpy(r->last.votes[k].sig, r->votes[at].sig, SIGN_BYTES);
    }
    message_commit_hash(&r->plan.body, &first->result, &r->last_hash);
    r->has_last = true;
    r->phase = ROUND_COMMITTED;
    r->committed = true;
    r->n_inherited += r->in_plan ? inherit_total(&r->plan.body) : 0;
    r->n_broken = 0;
    r->broken = MEMBERS_NONE;
}

/* The longest that one segment may take. */
static uint64_t hop_limit_ms(const struct round *r)
{
    uint64_t floor = r->terms.progress_floor_bytes_per_s;

    return r->opt.hop_ms +
           (floor > 0 ? r->terms.segment_wire_bytes * 1000ULL / floor : 0);
}

/* Who has all votes soon while another member still gets what it lacked of the
 * inherited part: so long that may take. */
static uint64_t fill_limit_ms(const struct round *r)
{
    const struct plan_body *p = &r->plan.body;
    uint64_t total = inherit_total(p), most = 0;

    for (uint32_t k = 0; k < p->n_members; k++) {
        uint64_t lacks = total - p->members[k].holds;

        most = lacks > most ? lacks : most;
    }
    return (most + r->terms.segment_elements - 1) / r->terms.segment_elements *
           hop_limit_ms(r);
}

/* A ring that others are in may take the whole vector twice at the floor rate;
 * they watch it hop by hop, this is only the last resort of who does not. */
static uint64_t ring_limit_ms(const struct round *r)
{
    uint64_t floor = r->terms.progress_floor_bytes_per_s;
    uint64_t segments = r->terms.n_params / r->terms.segment_elements + 1;

    return 4ULL * r->opt.vote_ms + r->terms.grace_ms +
           (floor > 0
                ? 2 * segments * (r->terms.segment_wire_bytes * 1000ULL / floor)
                : 0);
}

static void vote_own(struct round *r, uint64_t now_ms, struct out *out)
{
    struct vote msg = {0};

    msg.body.epoch = r->epoch;
    msg.body.view = r->ballot->hash;
    msg.body.round = r->round;
    msg.body.plan = r->plan_hash;
    msg.body.result = r->result;
    if (message_sign(&r->opt.signer, &vote_body_schema, &msg.body, msg.sig) !=
        0) {
        return;
    }
    r->phase = ROUND_VOTED;
    message_commit_hash(&r->plan.body, &r->result, &r->commit_hash);
    r->vote_due_ms = now_ms + r->opt.vote_ms + fill_limit_ms(r);
    r->resend_ms = now_ms + RESEND_MS;
    r->voted |= BIT(self_of(r));
    r->votes[self_of(r)] = msg;
    broadcast(r, out, UINT64_MAX, MESSAGE_VOTE, &msg);
    try_commit(r);
}

void round_hashed(struct round *r,
                  uint64_t request,
                  int rc,
                  const struct hash32 *hash,
                  uint64_t now_ms,
                  struct out *out)
{
    if (r->phase != ROUND_HASHING || r->frozen || request != r->ring.attempt) {
        return;
    }
    if (rc != 0) {
        change(r, "the reduced bytes are not usable here");
        return;
    }
    r->result = *hash;
    vote_own(r, now_ms, out);
}

static void on_vote(struct round *r, int index, const struct vote *v)
{
    if (v->body.epoch != r->epoch || v->body.round != r->round ||
        !hash32_eq(&v->body.view, &r->ballot->hash) ||
        (r->voted >> index & 1)) {
        return;
    }
    if (!message_verify(&r->opt.signer, view_of(r)->members[index].public_key,
                        &vote_body_schema, &v->body, v->sig)) {
        r->malformed++;
        return;
    }
    r->voted |= BIT(index);
    r->votes[index] = *v;
    try_commit(r);
}

static void
on_ready(struct round *r, int index, const struct ready *m, uint64_t now_ms)
{
    bool early = m->body.round == r->round + 1;

    if (m->body.epoch != r->epoch || (m->body.round != r->round && !early) ||
        !hash32_eq(&m->body.view, &r->ballot->hash)) {
        return;
    }
    if (!message_verify(&r->opt.signer, view_of(r)->members[index].public_key,
                        &ready_body_schema, &m->body, m->sig)) {
        r->malformed++;
        return;
    }
    if (m->body.tokens > ROUND_TOKENS_MAX ||
        !inherit_claims_valid(&m->body, r->terms.n_params, r->terms.block)) {
        r->malformed++;
        return;
    }
    if (early) {
        r->early |= BIT(index);
        r->earlies[index] = m->body;
        return;
    }
    r->ready |= BIT(index);
    r->readies[index] = m->body;
    watch_ready(r, now_ms);
}

void round_recv(struct round *r,
                int peer,
                enum message_type type,
                const void *msg,
                uint64_t now_ms,
                struct out *out)
{
    int index = r->ballot->have ? index_of_peer(r, peer) : -1;

    if (index < 0) {
        return;
    }
    if (type == MESSAGE_READY) {
        on_ready(r, index, msg, now_ms);
    } else if (type == MESSAGE_PLAN) {
        on_plan(r, index, msg, now_ms, out);
    } else if (type == MESSAGE_VOTE) {
        on_vote(r, index, msg);
    }
}

/* ---- the ring --------------------------------------------------------- */

void round_seg_done(struct round *r, const struct event *ev, struct out *out)
{
    int peer;

    if (r->phase != ROUND_REDUCING || r->frozen ||
        ev->segment.attempt != r->ring.attempt) {
        return;
    }
    if (ev->rc != 0 || ring_done(&r->ring, ev) != 0) {
        peer = members_find(r->members, &ev->segment.peer);
        r->n_broken = peer == r->broken ? r->n_broken + 1 : 1;
        r->broken = peer;
        change(r, ev->rc == LOCO_ENUMERIC ? "a contribution is not finite"
                                          : "a data connection failed");
        return;
    }
    if (!ring_finished(&r->ring)) {
        ring_pump(&r->ring, out);
        return;
    }
    reduced(r, out);
}

void round_freeze(struct round *r, struct out *out)
{
    if (r->frozen) {
        return;
    }
    r->frozen = true;
    if (r->phase == ROUND_REDUCING) {
        cancel(r->ring.attempt, out);
    }
}

void round_closing(const struct round *r, struct promise_body *closing)
{
    const struct plan_body *p = &r->plan.body;

    closing->closing = CLOSING_NONE;
    closing->in_ring = r->has_plan && r->in_plan && p->n_members > 2 &&
                       r->phase >= ROUND_REDUCING;
    if (closing->in_ring) {
        closing->ring_quiet = r->phase == ROUND_REDUCING && r->quiet;
        closing->ring_next = p->members[(r->rank + 1) % p->n_members].index;
        closing->ring_sent = r->ring.send.number;
        closing->ring_got = r->ring.received.number;
    }
    closing->has_broken = r->n_broken >= 2 && r->broken != MEMBERS_NONE &&
                          members_linked(r->members, r->broken);
    if (closing->has_broken) {
        closing->broken = r->members->peers[r->broken].id;
    }
    if (r->phase != ROUND_VOTED || r->round != closing->round + 1) {
        return;
    }
    closing->closing = CLOSING_VOTED;
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
    }
    r->last_hash = r->commit_hash;
    r->has_last = true;
    r->phase = ROUND_COMMITTED;
    return true;
}

bool round_commit_valid(const struct round *r, const struct commit *c)
{
    const struct view_body *v = view_of(r);
    struct vote_body body = {.round = c->plan.body.round};
    struct hash32 hash;
    uint64_t mask = 0;

    message_commit_hash(&c->plan.body, &c->result, &hash);
    if (r->ballot->have && v->round == c->plan.body.round) {
        return hash32_eq(&v->commit, &hash);
    }
    if (!r->ballot->have || c->plan.body.epoch != v->epoch ||
        !hash32_eq(&c->plan.body.view, &r->ballot->hash) ||
        c->n_votes != c->plan.body.n_members) {
        return false;
    }
    body.epoch = c->plan.body.epoch;
    body.view = c->plan.body.view;
    body.result = c->result;
    message_hash(&plan_body_schema, "loco-plan-1", &c->plan.body, &body.plan);
    for (uint32_t k = 0; k < c->n_votes; k++) {
        uint32_t at = c->plan.body.members[k].index;

        if (at >= v->n_members ||
            !message_verify(&r->opt.signer, v->members[at].public_key,
                            &vote_body_schema, &body, c->votes[k].sig)) {
            return false;
        }
        mask |= BIT(at);
    }
    return view_quorum(v, mask, r->ballot->departed);
}

/* ---- time ------------------------------------------------------------- */

static void resend(struct round *r, uint64_t now_ms, struct out *out)
{
    if (now_ms < r->resend_ms || r->frozen) {
        return;
    }
    r->resend_ms = now_ms + RESEND_MS;
    if (r->phase == ROUND_READY && !r->has_plan) {
        ready_send(r, UINT64_MAX, out);
    }
    if (r->has_plan && r->phase != ROUND_COMMITTED &&
        view_coordinator(view_of(r), r->round) == self_of(r)) {
        broadcast(r, out, ~r->voted, MESSAGE_PLAN, &r->plan);
    }
    if (r->phase == ROUND_VOTED) {
        broadcast(r, out, ~r->voted, MESSAGE_VOTE, &r->votes[self_of(r)]);
    }
}

void round_tick(struct round *r, uint64_t now_ms, struct out *out)
{
    if (!r->ballot->have || r->round == 0) {
        return;
    }
    resend(r, now_ms, out);
    if (r->frozen || r->overdue) {
        return; /* the next view ends this attempt */
    }
    watch_ready(r, now_ms);
    if (r->possible_ms != 0 && !r->has_plan) {
        if (view_coordinator(view_of(r), r->round) == self_of(r)) {
            make_plan(r, now_ms, out);
        } else if (now_ms - r->possible_ms >= r->opt.plan_ms) {
            change(r, "the coordinator made no plan");
        }
    }
    if (r->phase == ROUND_REDUCING) {
        r->quiet = now_ms - r->progress_ms >= hop_limit_ms(r) / 2;
        if (ring_progress(&r->ring) != r->ring_progress) {
            r->ring_progress = ring_progress(&r->ring);
            r->progress_ms = now_ms;
            r->quiet = false;
        } else if (now_ms - r->progress_ms >= hop_limit_ms(r)) {
            change(r, "the ring stands still");
        }
    } else if (r->phase == ROUND_VOTED && now_ms >= r->vote_due_ms) {
        change(r, "votes are missing");
    } else if (r->has_plan && !r->in_plan && r->phase != ROUND_COMMITTED &&
               now_ms - r->started_ms >= ring_limit_ms(r)) {
        change(r, "a round that others hold does not end");
    }
}

uint64_t round_deadline(const struct round *r)
{
    uint64_t due = CORE_NEVER, at = CORE_NEVER;

    if (!r->ballot->have || r->round == 0 || r->frozen) {
        return due;
    }
    if (r->phase == ROUND_READY || r->phase == ROUND_REDUCING ||
        r->phase == ROUND_VOTED) {
        due = r->resend_ms;
    }
    if (r->overdue) {
        return due;
    }
    if (!r->has_plan && r->possible_ms != 0) {
        at = r->possible_ms + r->opt.plan_ms;
        if (view_coordinator(view_of(r), r->round) == self_of(r)) {
            at = r->possible_ms;
        }
    } else if (!r->has_plan && r->half_ready_ms != 0) {
        at = r->half_ready_ms + r->terms.grace_ms;
    } else if (r->phase == ROUND_REDUCING) {
        at = r->progress_ms + hop_limit_ms(r);
    } else if (r->phase == ROUND_VOTED) {
        at = r->vote_due_ms;
    }
    return at < due ? at : due;
}
