/* ready_of.c - the READY that a plan is made of, where another one is here.
 *
 * Who follows a plan that is not true of a member, by the READY that it has of
 * it, doubts the plan: a coordinator that lies would have work in a commit that
 * nobody made. If READYs were not passed on, one member that shows its own to
 * the coordinator alone, or shows the others another one, and denies its vote
 * would have all others doubt each plan, so that no view decides and no round
 * ends any more.
 *
 * So whoever lacks that READY, or has another one, asks the coordinator, which
 * passes on the one that it has. It is signed, so nobody can make it up. With
 * it the plan is true of its member. Two of a member for one attempt that have
 * work, and not the same, prove that it lies: an honest one says no more than
 * that it has work after all (`node_work_leaves_out`). Whoever asks says what
 * it has, so both see that, and name the member in READY (rests.h). Those that
 * had another one are more than half wherever it ends attempts.
 */
#include <string.h>

#include "p2p/round/internal.h"
#include "proto/base/log.h"

static bool same_text(const struct text_span *a, const struct text_span *b)
{
    return a->first == b->first && a->end == b->end;
}

bool round_is_true_of(const struct plan_member *m, const struct ready_body *c)
{
    return m->tokens == c->tokens && m->first_step == c->first_step &&
           m->last_step == c->last_step && m->lease == c->lease &&
           m->astray == c->astray && same_text(&m->text, &c->text) &&
           hash32_eq(&m->offer, &c->offer) && m->n_moments == c->n_moments;
}

/* Work that both announce, and not the same. */
static bool contradict(const struct ready_body *a, const struct ready_body *b)
{
    return a->tokens > 0 && b->tokens > 0 && hash32_eq(&a->state, &b->state) &&
           (a->tokens != b->tokens || a->first_step != b->first_step ||
            a->last_step != b->last_step || a->lease != b->lease ||
            a->astray != b->astray || a->n_moments != b->n_moments ||
            !same_text(&a->text, &b->text) || !hash32_eq(&a->offer, &b->offer));
}

/* Of this attempt, said by that member. */
static bool is_said(struct round *r, uint32_t index, const struct ready *m)
{
    if (m->body.epoch != r->epoch || m->body.round != r->round ||
        !hash32_eq(&m->body.view, &r->ballot->hash)) {
        return false;
    }
    if (!round_ready_valid(r, &m->body) ||
        !message_verify(&r->opt.signer,
                        round_view(r)->members[index].public_key,
                        &ready_body_schema, &m->body, m->sig)) {
        r->malformed++;
        return false;
    }
    return true;
}

/* Rank in the plan; n_members: not in it. */
static uint32_t rank_of(const struct round *r, uint32_t index)
{
    uint32_t k = 0;

    while (k < r->plan.body.n_members &&
           r->plan.body.members[k].index != index) {
        k++;
    }
    return k;
}

static bool lacks(const struct round *r, uint32_t rank)
{
    const struct plan_member *m = &r->plan.body.members[rank];

    return !(r->ready >> m->index & 1) ||
           !round_is_true_of(m, &r->readies[m->index]);
}

static void send(struct round *r, int row, uint32_t index, struct out *out)
{
    struct ready_of m = {.epoch = r->epoch,
                         .view = r->ballot->hash,
                         .round = r->round,
                         .index = index,
                         .n_ready = r->ready >> index & 1};

    if (m.n_ready > 0) {
        m.ready[0].body = r->readies[index];
        memcpy(m.ready[0].sig, r->ready_sig[index], SIGN_BYTES);
    }
    (void)members_send(r->members, out, row, MESSAGE_READY_OF, &m);
}

void round_ready_ask(struct round *r, struct out *out)
{
    uint32_t maker = view_coordinator(round_view(r), r->round);

    if (!r->has_plan || maker == round_self(r) || r->plan.body.n_rollback > 0) {
        return;
    }
    for (uint32_t k = 0; k < r->plan.body.n_members; k++) {
        if (lacks(r, k)) {
            send(r, r->ballot->rows[maker], r->plan.body.members[k].index, out);
        }
    }
}

static void note_two(struct round *r, uint32_t index, struct out *out)
{
    char text[ID_SHORT_MAX];

    if (r->idle.two_readies >> index & 1) {
        return;
    }
    r->idle.two_readies |= BIT(index);
    rests_add(&r->idle.rests, &r->ballot->ids[index], r->round);
    id_short(&r->ballot->ids[index], text);
    out_log(out, LOG_WARN,
            "round %llu: %s says two different things of its work; if most say "
            "so, the next rounds are made without it",
            (unsigned long long)r->round, text);
}

/* A member asks. */
static void
answer(struct round *r, int peer, const struct ready_of *m, struct out *out)
{
    if (!(r->ready >> m->index & 1)) {
        return;
    }
    if (m->n_ready > 0 && !(r->idle.two_readies >> m->index & 1) &&
        contradict(&m->ready[0].body, &r->readies[m->index]) &&
        is_said(r, m->index, &m->ready[0])) {
        note_two(r, m->index, out);
    }
    send(r, peer, m->index, out);
}

/* What the coordinator has; where ours is as good a proof, of no other use than
 * to show what the plan is made of. */
static void take(struct round *r, const struct ready_of *m, struct out *out)
{
    const struct ready *said = &m->ready[0];
    uint32_t k = rank_of(r, m->index);
    bool here = r->ready >> m->index & 1, two;

    if (m->n_ready == 0 || k == r->plan.body.n_members || !lacks(r, k) ||
        m->index == round_self(r) ||
        !round_is_true_of(&r->plan.body.members[k], &said->body)) {
        return;
    }
    two = here && contradict(&said->body, &r->readies[m->index]);
    if ((here && !two && r->readies[m->index].tokens > 0) ||
        !is_said(r, m->index, said)) {
        return;
    }
    if (two) {
        note_two(r, m->index, out);
    }
    r->ready |= BIT(m->index);
    r->readies[m->index] = said->body;
    memcpy(r->ready_sig[m->index], said->sig, SIGN_BYTES);
    r->idle.untrue &= ~BIT(k);
}

void round_on_ready_of(struct round *r,
                       int peer,
                       const struct ready_of *m,
                       struct out *out)
{
    uint32_t maker;
    int from = round_member(r, peer);

    if (from < 0 || !r->has_plan || m->epoch != r->epoch ||
        m->round != r->round || !hash32_eq(&m->view, &r->ballot->hash) ||
        m->index >= round_view(r)->n_members || r->plan.body.n_rollback > 0) {
        return;
    }
    maker = view_coordinator(round_view(r), r->round);
    if (maker == round_self(r)) {
        answer(r, peer, m, out);
    } else if (maker == (uint32_t)from) {
        take(r, m, out);
    }
}
