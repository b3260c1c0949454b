/* ready_of.c - the READY that a plan is made of, where it is not here.
 *
 * Who follows a plan that is not true of a member, by the READY that it has of
 * it, doubts the plan (vote.c): a coordinator that lies would have work in a
 * commit that nobody made. If READYs were not passed on, one member that shows
 * its own to the coordinator alone, or shows the others another one, and denies
 * its vote would have all others doubt each plan, so that no view decides and
 * no round ends any more.
 *
 * So whoever is in a plan and lacks a READY of it asks the coordinator, which
 * passes on the one that it has. It is signed, so nobody can make it up: with
 * it the plan is true of its member, whatever that member said besides. What
 * the plan is made of stays until the attempt ends: who says another READY
 * after the plan harms nobody but itself.
 *
 * Nobody is named for two READYs: an honest member may say that it has work
 * after all, or that it asks for an earlier state.
 */
#include <string.h>

#include "p2p/round/internal.h"

bool round_is_true_of(const struct plan_member *m, const struct ready_body *c)
{
    return m->tokens == c->tokens && m->first_step == c->first_step &&
           m->last_step == c->last_step && m->lease == c->lease &&
           m->astray == c->astray && m->text.first == c->text.first &&
           m->text.end == c->text.end && hash32_eq(&m->offer, &c->offer) &&
           m->n_moments == c->n_moments;
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

bool round_lacks_ready(const struct round *r, uint32_t rank)
{
    const struct plan_member *m = &r->plan.body.members[rank];

    return !(r->ready >> m->index & 1) ||
           !round_is_true_of(m, &r->readies[m->index]);
}

bool round_ready_stays(const struct round *r, uint32_t index)
{
    uint32_t k = r->has_plan ? rank_of(r, index) : 0;

    return r->has_plan && r->plan.body.n_rollback == 0 &&
           k < r->plan.body.n_members && !round_lacks_ready(r, k);
}

static void send(struct round *r,
                 int row,
                 uint32_t index,
                 const struct ready *ready,
                 struct out *out)
{
    struct ready_of m = {.epoch = r->epoch,
                         .view = r->ballot->hash,
                         .round = r->round,
                         .index = index,
                         .n_ready = ready != NULL};

    if (ready != NULL) {
        m.ready[0] = *ready;
    }
    (void)members_send(r->members, out, row, MESSAGE_READY_OF, &m);
}

void round_ready_ask(struct round *r, struct out *out)
{
    uint32_t maker = view_coordinator(round_view(r), r->round);

    if (!r->has_plan || !r->in_plan || maker == round_self(r) ||
        r->plan.body.n_rollback > 0) {
        return;
    }
    for (uint32_t k = 0; k < r->plan.body.n_members; k++) {
        if (round_lacks_ready(r, k)) {
            send(r, r->ballot->rows[maker], r->plan.body.members[k].index, NULL,
                 out);
        }
    }
}

static void answer(struct round *r, int peer, uint32_t index, struct out *out)
{
    struct ready said = {.body = r->readies[index]};

    if (r->ready >> index & 1) {
        memcpy(said.sig, r->ready_sig[index], sizeof said.sig);
        send(r, peer, index, &said, out);
    }
}

/* What the coordinator passes on. */
static void take(struct round *r, uint32_t index, const struct ready *said)
{
    uint32_t k = rank_of(r, index);

    if (k == r->plan.body.n_members || !round_lacks_ready(r, k) ||
        index == round_self(r) || said->body.epoch != r->epoch ||
        said->body.round != r->round ||
        !hash32_eq(&said->body.view, &r->ballot->hash) ||
        !hash32_eq(&said->body.state, &r->plan.body.state) ||
        !round_is_true_of(&r->plan.body.members[k], &said->body)) {
        return;
    }
    if (!round_ready_valid(r, &said->body) ||
        !message_verify(&r->opt.signer,
                        round_view(r)->members[index].public_key,
                        &ready_body_schema, &said->body, said->sig)) {
        r->malformed++;
        return;
    }
    r->ready |= BIT(index);
    r->readies[index] = said->body;
    memcpy(r->ready_sig[index], said->sig, sizeof said->sig);
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
        answer(r, peer, m->index, out);
    } else if (maker == (uint32_t)from && m->n_ready > 0) {
        take(r, m->index, &m->ready[0]);
    }
}
