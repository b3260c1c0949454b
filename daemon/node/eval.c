/* eval.c - the loss on the held-out text, where a machine holds the whole
 * model.
 *
 * After each k-th commit one member measures it, in turn; it signs the figure
 * and tells all. What the stages of a model do instead is in eval_pass.c.
 */
#include "daemon/node/internal.h"

#include "proto/base/log.h"

void node_evaluate(struct node *n)
{
    struct job *job;

    if (!n->eval.active && !n->draining && n->inner->whole &&
        n->regime->evaluates(n, &n->held.applied)) {
        n->eval.active = true;
        n->eval.point = n->held.applied;
        job = out_job(n->out, JOB_EVAL);
        if (job != NULL) {
            job->eval.round = n->held.applied.round;
        }
    }
}

void node_on_evaluated_own(struct node *n, const struct local_event *e)
{
    struct evaluated msg = {0};

    n->eval.active = false;
    if (e->rc != 0 || !(e->evaluated.bits_per_byte >= 0 &&
                        e->evaluated.bits_per_byte < 1e6)) {
        return;
    }
    msg.body.commit = n->eval.point.commit;
    msg.body.round = n->eval.point.round;
    msg.body.microbits = (uint64_t)(e->evaluated.bits_per_byte * 1e6);
    node_on_evaluated(n, MEMBERS_NONE, &msg);
    if (message_sign(&n->opt.signer, &evaluated_body_schema, &msg.body,
                     msg.sig) == 0) {
        members_tell_all(&n->members, n->out, MESSAGE_EVALUATED, &msg);
    }
}

/* Whether its figure is taken: it costs a signature. It is a member of our
 * view; where the model is cut, a host of a stage; in a run without views, a
 * partner. */
static bool may_measure(const struct node *n, int peer)
{
    const struct member *p = &n->members.peers[peer];

    if (!n->inner->whole) {
        return p->has_beat && p->beat.stage > 0;
    }
    return n->ballot.have ? ballot_index(&n->ballot, &p->id) >= 0
                          : p->watched || p->guest;
}

void node_on_evaluated(struct node *n, int peer, const struct evaluated *m)
{
    if (peer != MEMBERS_NONE && !may_measure(n, peer)) {
        return;
    }
    if (peer != MEMBERS_NONE &&
        !message_verify(&n->opt.signer, n->members.peers[peer].public_key,
                        &evaluated_body_schema, &m->body, m->sig)) {
        n->malformed++;
        return;
    }
    if (n->ballot.have && m->body.round > n->held.known.round + 1) {
        return; /* no such round yet */
    }
    if (m->body.round == 0) {
        n->eval.bits_before = (double)m->body.microbits / 1e6;
        n->eval.has_before = true;
    }
    if (!n->eval.has_bits || m->body.round >= n->eval.bits_round) {
        n->eval.bits = (double)m->body.microbits / 1e6;
        n->eval.bits_round = m->body.round;
        n->eval.has_bits = true;
        out_log(n->out, LOG_INFO,
                "round %llu: %.4f bits per byte of held-out text",
                (unsigned long long)m->body.round, n->eval.bits);
    }
}
