/* node_stale.c - messages that belong to another view, round or run.
 *
 * The cores drop them by themselves; here they are counted, for the metrics.
 * Some are honest: what was under way when the view changed. Many are somebody
 * who replays what was said before.
 */
#include "daemon/node_internal.h"

static bool
is_other_view(const struct node *n, uint64_t epoch, const struct hash32 *view)
{
    return n->ballot.have && (epoch != n->ballot.cert.body.epoch ||
                              !hash32_eq(view, &n->ballot.hash));
}

/* A round that is over; one of later is kept, or comes again. */
static bool is_old(const struct node *n, uint64_t round)
{
    return n->ballot.have && round < n->round.round;
}

void node_note_stale(struct node *n, enum message_type type, const void *m)
{
    const struct ready_body *ready = &((const struct ready *)m)->body;
    const struct plan_body *plan = &((const struct plan *)m)->body;
    const struct vote_body *vote = &((const struct vote *)m)->body;
    const struct prepare *prepare = m;
    const struct accept *accept = m;
    bool stale = false;

    if (type == MESSAGE_READY) {
        stale = is_other_view(n, ready->epoch, &ready->view) ||
                is_old(n, ready->round);
    } else if (type == MESSAGE_PLAN) {
        stale = is_other_view(n, plan->epoch, &plan->view) ||
                is_old(n, plan->round);
    } else if (type == MESSAGE_VOTE) {
        stale = is_other_view(n, vote->epoch, &vote->view) ||
                is_old(n, vote->round);
    } else if (type == MESSAGE_PREPARE) {
        stale = is_other_view(n, prepare->epoch, &prepare->view);
    } else if (type == MESSAGE_ACCEPT) {
        stale = is_other_view(n, accept->epoch, &accept->view);
    } else if (type == MESSAGE_GOODBYE) {
        const struct hash32 *run = &((const struct goodbye *)m)->body.run;

        stale = !terms_staged(&n->terms) && !hash32_eq(run, &n->opt.run_id);
    } else if (type == MESSAGE_JOIN) {
        stale = !hash32_eq(&((const struct join *)m)->body.run, &n->group);
    }
    n->stale += stale;
}
