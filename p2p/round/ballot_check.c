/* ballot_check.c - a proposal of somebody else: made again before it is signed.
 *
 * The owner of a ballot collects promises and JOINs, and could choose what it
 * likes: whom it "heard", what was "accepted" before. So a proposal carries
 * both, signed by those who said them, and the value must be what they give.
 * What is left to its owner is whom it does not mention. There a member goes by
 * what it hears itself (ballot_agrees): it refuses a view without a member
 * that it hears, until a second owner proposes a view without that one, and
 * newcomers that should be linked to it and are not, prove no state, or lied by
 * a proof that it holds.
 *
 * What a liar costs: the value is made first (no signature is looked at), then
 * signatures until the first bad one. A ballot whose proposal did not hold gets
 * no second look (`refused`).
 */
#include "p2p/round/ballot_internal.h"

#include <string.h>

bool ballot_owner_signed(const struct ballot *b,
                         const uint8_t key[32],
                         uint64_t ballot,
                         const struct hash32 *view,
                         const uint8_t sig[SIGN_BYTES])
{
    struct ballot_body body = {.ballot = ballot, .view = *view};

    return message_verify(&b->opt.signer, key, &ballot_body_schema, &body, sig);
}

/* Each member once, in order. */
static bool in_order(const struct promised *promises, uint32_t n, uint32_t most)
{
    for (uint32_t i = 0; i < n; i++) {
        if (promises[i].member >= most ||
            (i > 0 && promises[i].member <= promises[i - 1].member)) {
            return false;
        }
    }
    return true;
}

static bool promises_signed(const struct ballot *b,
                            const struct ballot_making *m,
                            uint64_t ballot,
                            const struct promised *promises,
                            uint32_t n)
{
    struct promise_body body = {.mode = (uint8_t)m->mode, .ballot = ballot};

    if (m->mode != VIEW_FOUND) {
        body.epoch = b->cert.body.epoch;
        body.view = b->hash;
    }
    for (uint32_t i = 0; i < n; i++) {
        body.said = promises[i].said;
        if (!message_verify(&b->opt.signer,
                            m->members[promises[i].member].public_key,
                            &promise_body_schema, &body, promises[i].sig)) {
            return false;
        }
    }
    return true;
}

static bool joins_signed(const struct ballot *b, const struct proposal *p)
{
    for (uint32_t i = 0; i < p->n_joins; i++) {
        const struct joining *j = &p->joins[i];

        if (!hash32_eq(&j->join.body.run, &p->value.run) ||
            !message_verify(&b->opt.signer, j->public_key, &join_body_schema,
                            &j->join.body, j->join.sig)) {
            return false;
        }
    }
    return true;
}

/* Every JOIN that is shown brought somebody in. */
static bool joins_count(const struct proposal *p, uint64_t epoch)
{
    for (uint32_t i = 0; i < p->n_joins; i++) {
        int at = view_index_key(&p->value, p->joins[i].public_key);

        if (at < 0 || p->value.members[at].joined != epoch) {
            return false;
        }
    }
    return true;
}

static struct ballot_making
making_of(const struct ballot *b, enum view_mode mode, const struct proposal *p)
{
    struct ballot_making m = ballot_making_after(b, mode);

    if (mode == VIEW_FOUND) {
        m.epoch = p->value.epoch;
        m.prev = b->opt.run;
        m.old = NULL; /* its founder's, which need not be ours */
        m.members = p->value.members;
        m.n_members = p->value.n_members;
    }
    m.departed = mode == VIEW_FOUND ? 0 : p->value.departed;
    m.promises = p->promises;
    m.n_promises = p->n_promises;
    m.joins = p->joins;
    m.n_joins = p->n_joins;
    return m;
}

bool ballot_proposal_holds(const struct ballot *b,
                           enum view_mode mode,
                           const struct proposal *p)
{
    struct ballot_making m = making_of(b, mode, p);
    struct view_body v;
    struct hash32 want, made;
    uint64_t answered, claims;

    if (!view_well_formed(&p->value) || p->value.mode != mode ||
        !in_order(p->promises, p->n_promises, m.n_members)) {
        return false;
    }
    answered = ballot_promised(p->promises, p->n_promises, &claims);
    if (mode == VIEW_MAJORITY &&
        (!view_quorum(m.old, answered, m.departed) ||
         ballot_is_bound(m.old, answered, claims, m.departed))) {
        return false;
    }
    if (!ballot_make_value(&m, &v)) {
        return false;
    }
    if (mode == VIEW_FOUND) { /* of its founder's old view */
        v.fork = p->value.fork;
        v.n_roots = p->value.n_roots;
        memcpy(v.roots, p->value.roots, sizeof v.roots);
    }
    view_hash(&v, &made);
    view_hash(&p->value, &want);
    return hash32_eq(&made, &want) && joins_count(p, p->value.epoch) &&
           (m.departed & ~view_parted(m.old, p->partings, p->n_partings,
                                      &b->opt.signer)) == 0 &&
           promises_signed(b, &m, p->ballot, p->promises, p->n_promises) &&
           joins_signed(b, p);
}

/* Whether those promises allow the owner of `a->ballot` to propose `value`. It
 * need not be bound by them: who is, depends on goodbyes that not all know. */
static bool may_repeat(const struct ballot *b,
                       const struct accept *a,
                       const struct hash32 *value)
{
    struct ballot_making m = ballot_making_after(b, VIEW_MAJORITY);
    const struct statement *highest = NULL;
    uint64_t answered, claims;

    if (!in_order(a->promises, a->n_promises, m.n_members)) {
        return false;
    }
    answered = ballot_promised(a->promises, a->n_promises, &claims);
    if (claims == 0 ||
        !view_quorum(m.old, answered, a->of.proposal.value.departed)) {
        return false;
    }
    for (uint32_t i = 0; i < a->n_promises; i++) {
        const struct statement *s = &a->promises[i].said;

        if (s->has_accepted &&
            (highest == NULL || s->accepted_ballot > highest->accepted_ballot ||
             (s->accepted_ballot == highest->accepted_ballot &&
              hash32_cmp(&s->accepted_view, &highest->accepted_view) < 0))) {
            highest = s;
        }
    }
    return highest != NULL && highest->accepted_ballot < a->ballot &&
           hash32_eq(&highest->accepted_view, value) &&
           promises_signed(b, &m, a->ballot, a->promises, a->n_promises);
}

bool ballot_accept_holds(const struct ballot *b,
                         const struct accept *a,
                         const uint8_t owner_key[32])
{
    const struct proposal *p = &a->of.proposal;
    struct hash32 hash;

    view_hash(&p->value, &hash);
    if (a->ballot != p->ballot &&
        (a->mode != VIEW_MAJORITY || p->ballot > a->ballot ||
         !may_repeat(b, a, &hash))) {
        return false;
    }
    return ballot_owner_signed(b, owner_key, a->ballot, &hash, a->of.sig) &&
           ballot_proposal_holds(b, (enum view_mode)a->mode, p);
}

/* ---- whom it does not mention ------------------------------------------- */

/* Full members whom we hear and who made no promise in that proposal. */
static uint64_t left_out(const struct ballot *b, const struct proposal *p)
{
    uint64_t claims;
    uint64_t answered = ballot_promised(p->promises, p->n_promises, &claims);
    uint64_t out = 0;

    for (uint32_t i = 0; i < b->cert.body.n_members; i++) {
        if (view_is_full(&b->cert.body, i) && !(answered >> i & 1) &&
            !(b->departed.mask >> i & 1) && !(b->lost >> i & 1) &&
            (int)i != b->self_index &&
            members_hears_now(b->members, b->rows[i])) {
            out |= BIT(i);
        }
    }
    return out;
}

/* Whether a joiner is there, as far as we can tell: who should be linked to us
 * is, or else more than half of the others are to say so. */
static bool is_there(const struct ballot *b, const struct joining *j)
{
    struct peer_id id = id_of_public(j->public_key);
    int row = members_find(b->members, &id);

    return ballot_join_links(&j->join.body, &b->opt.self)
               ? row != MEMBERS_NONE && members_linked(b->members, row)
               : ballot_join_is_known(b, &j->join.body);
}

/* It holds the value's commit, or the one before, which that follows. What was
 * before that is not known here. */
static bool holds_commit(const struct ballot_context *ctx,
                         const struct view_body *v,
                         const struct join_body *j)
{
    static const struct hash32 unknown;
    const struct statement *we = &ctx->closing;
    struct hash32 base = unknown;

    if (j->round == v->round) {
        return hash32_eq(&j->commit, &v->commit);
    }
    if (we->round == v->round && hash32_eq(&we->commit, &v->commit)) {
        base = ctx->base;
    } else if (we->round + 1 == v->round) {
        base = we->commit;
    }
    return j->round + 1 < v->round || hash32_eq(&base, &unknown) ||
           hash32_eq(&base, &j->commit);
}

/* Whether it proves the state that it names, where we had that one: an owner
 * could show the JOIN of a friend that holds nothing. */
static bool proves_state(const struct ballot_context *ctx,
                         const struct joining *j)
{
    const struct join_body *body = &j->join.body;
    struct peer_id id = id_of_public(j->public_key);
    struct hash32 proof;

    for (uint32_t i = 0; i < ctx->n_past; i++) {
        const struct past_state *p = &ctx->past[i];

        if (p->round == body->round && hash32_eq(&p->commit, &body->commit)) {
            message_join_proof(body, &p->sample, &id, &proof);
            return hash32_eq(&p->state, &body->state) &&
                   hash32_eq(&proof, &body->proof);
        }
    }
    return true;
}

/* Of those whom that proposal leaves out, whom to refuse it for. */
static uint64_t
refuse_for(struct ballot *b, const struct proposal *p, bool again)
{
    uint32_t by = view_ballot_owner(&b->cert.body, p->ballot);
    uint64_t out = left_out(b, p), first = 0;

    for (uint32_t i = 0; i < b->cert.body.n_members; i++) {
        bool known = b->refused_without >> i & 1;

        if ((out >> i & 1) && !(known && (again || b->refused_of[i] != by))) {
            first |= BIT(i);
            b->refused_of[i] = (uint8_t)by;
        }
    }
    b->refused_without |= first;
    return first;
}

bool ballot_agrees(struct ballot *b,
                   const struct ballot_context *ctx,
                   const struct proposal *p,
                   bool again)
{
    int self = view_index(&b->cert.body, &b->opt.self);
    uint64_t claims;

    if (!again &&
        (self < 0 ||
         !(ballot_promised(p->promises, p->n_promises, &claims) >> self & 1))) {
        return false;
    }
    for (uint32_t i = 0; i < p->n_joins && !again; i++) {
        struct peer_id id = id_of_public(p->joins[i].public_key);

        if (ballot_is_convict(b, &id) || !is_there(b, &p->joins[i]) ||
            !holds_commit(ctx, &p->value, &p->joins[i].join.body) ||
            !proves_state(ctx, &p->joins[i])) {
            return false;
        }
    }
    return refuse_for(b, p, again) == 0;
}
