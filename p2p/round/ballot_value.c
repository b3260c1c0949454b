/* ballot_value.c - the next view, made of promises and JOINs.
 *
 * A function of what the proposal shows (struct ballot_making): who stays, who
 * comes in and which slot it has (lease.h), which edges rings avoid, whether it
 * is a fork, and the fate of the round in flight, which is the only place where
 * a round can be decided without all its voters. The owner of the ballot makes
 * the value with it and everybody who is asked to sign makes it again.
 *
 * When an owner may make a new value: only what more than half of the view
 * accepted can be in force. Each of these either promised, and then says that
 * it accepted, or did not answer. Where both together are not more than half,
 * nothing is in force, whatever one of them claims (ballot_is_bound).
 */
#include "p2p/round/ballot_internal.h"
#include "p2p/round/lease.h"
#include "p2p/round/seats.h"

#include <string.h>

/* Broken edges go over into the next view, but into every such one not: they
 * may have healed. */
#define EDGES_KEPT 4

/* While a value is made. */
struct making {
    const struct ballot_making *of;
    const struct statement *said[VIEW_MEMBERS_MAX]; /* by member; or NULL */
    uint64_t left;                                  /* members that stay, */
    uint64_t counts; /* and whose word counts: the full ones of them */
    struct peer_id ids[VIEW_MEMBERS_MAX];
    struct view_body *v;
};

/* ---- the round ---------------------------------------------------------- */

static uint32_t n_of(uint64_t mask)
{
    return (uint32_t)__builtin_popcountll(mask);
}

/* What q says of that commit: 1, it holds it or voted for it; -1, it did not;
 * 0, nothing. */
static int
says_of(const struct statement *q, uint64_t round, const struct hash32 *commit)
{
    if (q->round >= round) {
        return q->round > round ? 0 : hash32_eq(&q->commit, commit) ? 1 : -1;
    }
    return q->round + 1 == round && q->closing != CLOSING_NONE &&
                   hash32_eq(&q->voted, commit)
               ? 1
               : -1;
}

/* Whether a plan of those members can have been: it names full members only,
 * and more than half of all who are left or in it. Of half of four or more at
 * least two have to be `n_for` it: the other one may be made up beside a dead
 * one. */
static bool is_plan(const struct making *m, uint64_t plan, uint32_t n_for)
{
    uint32_t n = n_of(plan), of = n_of(m->counts | plan);

    return (plan & ~view_full(m->of->old)) == 0 &&
           (2 * n > of || (2 * n == of && (of < 4 || n_for >= 2)));
}

/* Whether the newest commit that p names can be one. All members of its plan,
 * who are more than half, voted for it: nobody honest among them denies it. So
 * one member of four can neither invent a commit nor take one back, whichever
 * plan it names. */
static bool is_credible(const struct making *m, const struct statement *p)
{
    const struct view_body *old = m->of->old;
    uint32_t n_for = 0, n_against = 0;

    if (m->of->mode == VIEW_FOUND || p->round < old->round) {
        return true;
    }
    if (p->round == old->round) {
        return hash32_eq(&p->commit, &old->commit);
    }
    for (uint32_t i = 0; i < m->of->n_members; i++) {
        if (m->counts >> i & 1) {
            int said = says_of(m->said[i], p->round, &p->commit);

            n_for += said > 0;
            n_against += said < 0 && (p->made_by >> i & 1);
        }
    }
    return is_plan(m, p->made_by, n_for) &&
           (n_against == 0 || n_for > n_against);
}

/* Of two credible ones. Founders come from anywhere: more work wins. */
static bool is_newer(const struct making *m,
                     const struct statement *p,
                     const struct statement *q)
{
    if (p->round != q->round) {
        return p->round > q->round;
    }
    if (m->of->mode == VIEW_FOUND && p->tokens != q->tokens) {
        return p->tokens > q->tokens;
    }
    return hash32_cmp(&p->commit, &q->commit) < 0;
}

static uint64_t tokens_at(const struct statement *q, uint64_t round)
{
    return q->round == round ? q->tokens : q->plan_tokens;
}

/* Tokens after that commit, as most of those say who are for it. */
static uint64_t
tokens_of(const struct making *m, uint64_t round, const struct hash32 *commit)
{
    uint64_t best = 0;
    uint32_t most = 0;

    for (uint32_t i = 0; i < m->of->n_members; i++) {
        uint32_t n = 0;
        uint64_t tokens;

        if (!(m->counts >> i & 1) || says_of(m->said[i], round, commit) <= 0) {
            continue;
        }
        tokens = tokens_at(m->said[i], round);
        for (uint32_t k = 0; k < m->of->n_members; k++) {
            n += (m->counts >> k & 1) &&
                 says_of(m->said[k], round, commit) > 0 &&
                 tokens_at(m->said[k], round) == tokens;
        }
        if (n > most || (n == most && tokens < best)) {
            most = n;
            best = tokens;
        }
    }
    return best;
}

static void newest_commit(const struct making *m)
{
    const struct statement *best = NULL;
    const struct view_body *old = m->of->old;
    struct view_body *v = m->v;

    for (uint32_t i = 0; i < m->of->n_members; i++) {
        const struct statement *p = m->said[i];

        if ((m->counts >> i & 1) && is_credible(m, p) &&
            (best == NULL || is_newer(m, p, best))) {
            best = p;
        }
    }
    if (best == NULL ||
        (m->of->mode != VIEW_FOUND && best->round == old->round)) {
        v->round = old->round;
        v->tokens = old->tokens;
        v->commit = old->commit;
        return;
    }
    v->round = best->round;
    v->commit = best->commit;
    v->tokens = m->of->mode == VIEW_FOUND
                    ? best->tokens
                    : tokens_of(m, best->round, &best->commit);
}

/* How many of its plan voted as member i did on the round after, if that
 * decides it; 0: it does not.
 *
 * A commit is made by the votes of all members of a plan: then no honest one
 * that is left denies it. Where one does, nothing was committed, or it lies.
 * Either way it may be committed now, if honest members hold its bytes, two at
 * least, as one of them may die: so half of all full members, or two more than
 * may lie, say that they do. Who lacks them gets them as after any commit. So
 * no member that denies its vote, votes otherwise, or is kept from the bytes
 * ends a round. The vote of a member also says that what the plan has of it is
 * true; without it those that know that it is not do not count. */
static uint32_t n_decide(const struct making *m, uint32_t i)
{
    const struct statement *p = m->said[i];
    uint32_t n_for = 0, n_sure = 0, n_against = 0;

    if (p->round != m->v->round || p->closing == CLOSING_NONE ||
        !(p->plan_members >> i & 1)) {
        return 0;
    }
    for (uint32_t k = 0; k < m->of->n_members; k++) {
        if (m->counts & p->plan_members & BIT(k)) {
            bool same = says_of(m->said[k], p->round + 1, &p->voted) > 0;

            n_for += same;
            n_sure += same && m->said[k]->closing != CLOSING_DOUBTED;
            n_against += !same;
        }
    }
    if (!is_plan(m, p->plan_members, n_for) ||
        (n_against > 0 &&
         n_sure < view_deciders(m->of->old, m->of->departed))) {
        return 0;
    }
    return n_for;
}

/* The fate of the round in flight, from the closing statements of those who
 * are left: what most are for. Founders were in no plan together. */
static void decide_round(const struct making *m)
{
    struct view_body *v = m->v;
    const struct hash32 *best = NULL;
    uint32_t most = 0;

    newest_commit(m);
    for (uint32_t i = 0; i < m->of->n_members && m->of->mode != VIEW_FOUND;
         i++) {
        uint32_t n = m->counts >> i & 1 ? n_decide(m, i) : 0;

        if (n > most ||
            (n > 0 && n == most && hash32_cmp(&m->said[i]->voted, best) < 0)) {
            most = n;
            best = &m->said[i]->voted;
        }
    }
    if (best != NULL) {
        v->commit = *best;
        v->tokens = tokens_of(m, ++v->round, best);
    }
}

/* ---- members ---------------------------------------------------------- */

static void member_add(struct view_body *v, const struct view_member *m)
{
    if (v->n_members < VIEW_MEMBERS_MAX &&
        view_index_key(v, m->public_key) < 0) {
        v->members[v->n_members++] = *m;
    }
}

static void member_drop(struct view_body *v, uint32_t i)
{
    v->n_members--;
    memmove(&v->members[i], &v->members[i + 1],
            (v->n_members - i) * sizeof v->members[0]);
    memset(&v->members[v->n_members], 0, sizeof v->members[0]);
}

/* Members of whom more than half of all full members say that they lied. Those
 * who stay without them are more than half of the view, or none is named: then
 * so many lied, or say so of each other, that no majority knows better. */
static uint64_t convicted(const struct making *m)
{
    const struct ballot_making *of = m->of;
    uint64_t out = 0;

    for (uint32_t i = 0; i < of->n_members; i++) {
        uint32_t n = 0;

        for (uint32_t k = 0; k < of->n_members; k++) {
            n += m->said[k] != NULL && view_is_full(of->old, k) &&
                 (m->said[k]->convicted >> i & 1);
        }
        out |= 2 * n > view_n_full(of->old) ? BIT(i) : 0;
    }
    return view_quorum(of->old, m->left & ~out, of->departed) ? out : 0;
}

/* Who answered and was not restarted, and did not lie. */
static void find_those_left(struct making *m)
{
    const struct ballot_making *of = m->of;

    for (uint32_t i = 0; i < of->n_members; i++) {
        if (m->said[i] != NULL && !m->said[i]->restarted &&
            !(of->departed >> i & 1)) {
            m->left |= BIT(i);
        }
    }
    if (of->mode != VIEW_FOUND) {
        m->left &= ~convicted(m);
    }
    m->counts = of->mode == VIEW_FOUND ? m->left : m->left & view_full(of->old);
    if (m->counts == 0) {
        m->counts = m->left; /* a fork of those on probation */
    }
}

/* From which epoch on member i counts: of a founding all do, and of a fork that
 * has nobody else. */
static uint32_t full_since(const struct making *m, uint32_t i)
{
    const struct ballot_making *of = m->of;

    if (of->mode == VIEW_FOUND || (m->counts & view_full(of->old)) == 0) {
        return (uint32_t)m->v->epoch;
    }
    return of->old->members[i].full_since <= of->old->epoch
               ? of->old->members[i].full_since
               : FULL_NEVER;
}

/* Whether more than half of the full members vouch for member i. */
static bool is_vouched_for(const struct making *m, uint32_t i)
{
    const struct ballot_making *of = m->of;
    uint64_t vouch = 0;

    for (uint32_t k = 0; k < of->n_members; k++) {
        vouch |=
            (m->counts >> k & 1) && (m->said[k]->vouched >> i & 1) ? BIT(k) : 0;
    }
    return view_quorum(of->old, vouch, of->departed);
}

static void add_those_left(const struct making *m)
{
    const struct ballot_making *of = m->of;

    for (uint32_t i = 0; i < of->n_members; i++) {
        struct view_member to = {.joined = m->v->epoch};

        if (!(m->left >> i & 1)) {
            continue;
        }
        memcpy(to.public_key, of->members[i].public_key, 32);
        to.address = m->said[i]->address;
        to.full_since = full_since(m, i);
        if (of->mode != VIEW_FOUND) {
            const struct view_member *was = &of->old->members[i];
            bool moves = to.address.port != 0 &&
                         seats_may_move(&was->address, &to.address);

            to.joined = was->joined;
            to.address = moves ? to.address : was->address;
        }
        member_add(m->v, &to);
    }
}

/* Those on probation for whom others vouch count from now on. `v` has all who
 * stay, in order, and nobody else yet. */
static void end_probation(const struct making *m)
{
    struct view_body *v = m->v;
    uint32_t at = 0;

    for (uint32_t i = 0; i < m->of->n_members; i++) {
        if (!(m->left >> i & 1)) {
            continue;
        }
        if (!view_is_full(v, at) && is_vouched_for(m, i) &&
            seats_may_count(v, &v->members[at].address)) {
            v->members[at].full_since = (uint32_t)v->epoch;
        }
        at++;
    }
}

/* Whether more than half of the full members say that it was full before. */
static bool is_back(const struct making *m, const uint8_t key[32])
{
    struct peer_id id = id_of_public(key);
    uint64_t vouch = 0;

    for (uint32_t k = 0; k < m->of->n_members; k++) {
        for (uint32_t i = 0; (m->counts >> k & 1) && i < m->said[k]->n_back;
             i++) {
            vouch |= m->said[k]->back[i] == id_u64(&id) ? BIT(k) : 0;
        }
    }
    return view_quorum(m->of->old, vouch, m->of->departed);
}

/* It takes a seat, if need be that of somebody on probation. */
static void seat(struct view_body *v,
                 const struct ballot_edges *k,
                 const struct joining *j,
                 bool full)
{
    const struct join_body *body = &j->join.body;
    struct view_member to = {.address = body->address, .joined = v->epoch};
    struct view_member goes;
    int at = view_index_key(v, j->public_key) >= 0
                 ? -1
                 : seats_find(v, &body->address, full);
    bool free = at == (int)v->n_members;

    if (at < 0) {
        return;
    }
    memcpy(to.public_key, j->public_key, 32);
    to.full_since = full ? (uint32_t)v->epoch : FULL_NEVER;
    if (!free) {
        goes = v->members[at];
        member_drop(v, (uint32_t)at);
    }
    if (ballot_join_fits(k, v, body)) {
        member_add(v, &to);
    } else if (!free) {
        member_add(v, &goes);
    }
}

static void add_joiners(const struct making *m, const struct ballot_edges *k)
{
    struct view_body *v = m->v;

    for (uint32_t i = 0; i < m->of->n_joins; i++) {
        const struct joining *j = &m->of->joins[i];
        const struct join_body *body = &j->join.body;
        bool holds =
            body->round == v->round && hash32_eq(&body->commit, &v->commit);

        if (holds || (body->round < v->round &&
                      body->round + JOIN_BEHIND_MAX >= v->round)) {
            seat(v, k, j,
                 !m->of->probation || (is_back(m, j->public_key) &&
                                       seats_may_count(v, &body->address)));
        }
    }
}

/* ---- edges ------------------------------------------------------------ */

static void
edge_add(struct view_body *v, const struct peer_id *a, const struct peer_id *b)
{
    int x = view_index(v, a), y = view_index(v, b);

    for (uint32_t e = 0; e < v->n_edges; e++) {
        if (v->edges[e] == (x | y << 8) || v->edges[e] == (y | x << 8)) {
            return;
        }
    }
    if (x >= 0 && y >= 0 && x != y && v->n_edges < 16) {
        v->edges[v->n_edges++] = (uint16_t)(x | y << 8);
    }
}

/* Whether these members followed one plan. What another's plan says they
 * neither send nor take: no fault of the line between them, but of the
 * coordinator, that made two. */
static bool same_plan(const struct statement *p, const struct statement *q)
{
    return p->followed == q->followed;
}

/* Whether that statement's `broken` counts. Of a butterfly that stood still one
 * says who holds it up; not so one that stopped by itself, which others wait
 * for as well: it was not quiet. */
static bool is_broken(const struct making *m, const struct statement *p)
{
    bool waits = p->ring_quiet && !p->in_ring;

    for (uint32_t k = 0; k < m->of->n_members && waits; k++) {
        if (id_eq(&m->ids[k], &p->broken)) {
            return p->has_broken && m->said[k] != NULL &&
                   m->said[k]->ring_quiet && same_plan(p, m->said[k]);
        }
    }
    return p->has_broken;
}

/* What member `to` says, to whom member i gave something out, if nothing had
 * come there for a while. */
static const struct statement *
waiter(const struct making *m, uint32_t i, uint32_t to)
{
    const struct statement *q =
        to < m->of->n_members && (m->left >> to & 1) ? m->said[to] : NULL;

    return m->said[i]->in_ring && to != i && q != NULL && q->in_ring &&
                   q->ring_quiet && same_plan(m->said[i], q)
               ? q
               : NULL;
}

/* Edges of which rings go around: those that failed a live member twice, and
 * where a ring stood still: what was given out to a member to which nothing
 * came for a while is stuck in between. */
static void note_edges(const struct making *m)
{
    const struct view_body *old = m->of->old;
    const struct peer_id *ids = m->ids;
    struct view_body *v = m->v;

    for (uint32_t e = 0; e < old->n_edges && v->epoch % EDGES_KEPT != 0; e++) {
        edge_add(v, &ids[old->edges[e] & 0xff], &ids[old->edges[e] >> 8]);
    }
    for (uint32_t i = 0; i < m->of->n_members; i++) {
        const struct statement *p = m->said[i], *q;

        if (!(m->left >> i & 1)) {
            continue;
        }
        if (is_broken(m, p)) {
            edge_add(v, &ids[i], &p->broken);
        }
        q = waiter(m, i, p->ring_next);
        if (q != NULL && p->ring_sent > q->ring_got) {
            edge_add(v, &ids[i], &ids[p->ring_next]);
        }
        q = waiter(m, i, p->gate_next);
        if (q != NULL && p->gate_sent > q->gate_got) {
            edge_add(v, &ids[i], &ids[p->gate_next]);
        }
    }
}

/* Who exchanges data with whom, as those say who answered. */
static void edges_said(const struct making *m, struct ballot_edges *k)
{
    *k = (struct ballot_edges){.old = m->of->old, .exchange = m->of->exchange};
    for (uint32_t i = 0; i < VIEW_MEMBERS_MAX; i++) {
        k->of[i] = m->said[i] == NULL ? UINT64_MAX : m->said[i]->edges;
    }
}

/* ---- the value -------------------------------------------------------- */

static void mark_fork(const struct making *m)
{
    const struct view_body *old = m->of->old;
    struct view_body *v = m->v;

    if (old == NULL || (m->of->mode == VIEW_MAJORITY && !old->fork)) {
        return; /* unmarked: its roots are its own members */
    }
    v->n_roots = view_roots(old, v->roots);
    v->fork = !view_holds_half(v, v->roots, v->n_roots);
    if (!v->fork) {
        v->n_roots = 0;
    }
}

bool ballot_make_value(const struct ballot_making *of, struct view_body *v)
{
    struct making m = {.of = of, .v = v};
    struct ballot_edges k;

    memset(v, 0, sizeof *v);
    v->run = of->run;
    v->mode = (uint8_t)of->mode;
    v->epoch = of->epoch;
    v->prev = of->prev;
    v->departed = of->departed;
    for (uint32_t i = 0; i < of->n_promises; i++) {
        if (of->promises[i].member < of->n_members) {
            m.said[of->promises[i].member] = &of->promises[i].said;
        }
    }
    for (uint32_t i = 0; i < of->n_members; i++) {
        m.ids[i] = id_of_public(of->members[i].public_key);
    }
    find_those_left(&m);
    if (m.left == 0) {
        return false;
    }
    add_those_left(&m);
    decide_round(&m);
    if (of->mode == VIEW_FOUND) {
        (void)view_sort(v);
        mark_fork(&m);
        lease_slots(NULL, v);
        return true;
    }
    edges_said(&m, &k);
    if (of->mode == VIEW_MAJORITY) {
        end_probation(&m);
        add_joiners(&m, &k);
    }
    (void)view_sort(v);
    note_edges(&m);
    ballot_prune(&k, v);
    mark_fork(&m);
    lease_slots(of->old, v);
    return true;
}

struct ballot_making ballot_making_after(const struct ballot *b,
                                         enum view_mode mode)
{
    return (struct ballot_making){
        .mode = mode,
        .exchange = b->opt.exchange,
        .run = b->opt.run,
        .epoch = b->cert.body.epoch + 1,
        .prev = b->hash,
        .old = &b->cert.body,
        .members = b->cert.body.members,
        .n_members = b->cert.body.n_members,
        .probation = b->opt.probation_rounds > 0,
    };
}

/* ---- whether it may be new -------------------------------------------- */

uint64_t
ballot_promised(const struct promised *promises, uint32_t n, uint64_t *claims)
{
    uint64_t answered = 0;

    *claims = 0;
    for (uint32_t i = 0; i < n; i++) {
        answered |= BIT(promises[i].member % VIEW_MEMBERS_MAX);
        *claims |= promises[i].said.has_accepted
                       ? BIT(promises[i].member % VIEW_MEMBERS_MAX)
                       : 0;
    }
    return answered;
}

bool ballot_is_bound(const struct view_body *view,
                     uint64_t answered,
                     uint64_t claims,
                     uint64_t departed)
{
    uint64_t full = view_full(view);
    uint32_t n = n_of((claims | ~answered | departed) & full);

    /* Who said goodbye did not count then, whether it is back or not. Of two
     * halves either may be the one that counts. */
    return (claims & full) != 0 && 2 * n >= n_of(full);
}
