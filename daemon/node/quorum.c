/* quorum.c - rounds of those who are ready (AsyncDiLoCo,
 * arXiv:2401.09135).
 *
 * A peer works on a task, so many inner steps; the first to finish says READY
 * and opens a window. Who has not finished when it closes takes part in the
 * round without weight: it is in the ring like all others, so that it has the
 * result, and goes on with its task. A task that is finished while such a
 * round is under way waits for the next one. So a round is as any other to
 * p2p/round/round.h: each member says READY once, and all are bound by the
 * commit.
 *
 * Who is dead or does not answer is left out as always, by round.grace_ms; the
 * window is a quarter of that.
 *
 * With terms.by_speed a task has steps in proportion to the machine's speed
 * beside the fastest member's (DyLU: floor(H v / max v), at least 1), so that
 * all finish at about the same time.
 */
#include "daemon/node/internal.h"

#include "p2p/round/text.h"
#include "proto/base/dylu.h"

static uint64_t window_ms(const struct node *n)
{
    return n->terms.grace_ms / 4;
}

bool node_quorum_offered(const struct node *n)
{
    const struct round *r = &n->round;

    for (uint32_t i = 0; i < n->ballot.cert.body.n_members; i++) {
        if ((int)i != n->ballot.self_index && (r->ready >> i & 1) &&
            view_is_full(&n->ballot.cert.body, i) && r->readies[i].tokens > 0) {
            return true;
        }
    }
    return false;
}

bool node_quorum_idle(const struct node *n)
{
    return (n->terms.quorum || text_comes_later(&n->terms)) &&
           n->round.mine.tokens == 0 && !n->work.left_out;
}

/* The pieces that are kept from an attempt in which we had no weight go, too:
 * they cannot contain the task that is finished now. */
void node_quorum_withdraw(struct node *n)
{
    if (n->round.contributed && node_quorum_idle(n)) {
        round_withdraw(&n->round);
    }
}

bool node_quorum_defer(struct node *n, const struct local_event *e)
{
    if (!n->terms.quorum || !n->round.contributed) {
        return false;
    }
    n->quorum.task =
        (struct node_task){true, e->trained.tokens, e->trained.inner_step};
    return true;
}

void node_quorum_forget(struct node *n)
{
    n->quorum.task.waits = false;
}

void node_quorum_advance(struct node *n)
{
    if (!n->terms.quorum || !n->ballot.have || n->held.applying ||
        !node_point_eq(&n->held.applied, &n->held.known) ||
        n->round.contributed) {
        n->quorum.arrival_ms = 0;
        return;
    }
    if (n->quorum.task.waits) {
        n->quorum.task.waits = false;
        round_contribute(
            &n->round,
            &(struct round_work){.tokens = n->quorum.task.tokens,
                                 .first_step = n->training.first_step,
                                 .last_step = n->quorum.task.last_step},
            n->now, n->out);
        return;
    }
    if (!n->training.active || !node_quorum_offered(n)) {
        n->quorum.arrival_ms = 0;
        return;
    }
    n->quorum.arrival_ms =
        n->quorum.arrival_ms == 0 ? n->now : n->quorum.arrival_ms;
    if (n->now - n->quorum.arrival_ms >= window_ms(n)) {
        round_contribute(
            &n->round,
            &(struct round_work){.first_step = n->training.first_step,
                                 .last_step = n->training.first_step},
            n->now, n->out);
    }
}

uint64_t node_quorum_deadline(const struct node *n)
{
    return n->quorum.arrival_ms == 0 ? CORE_NEVER
                                     : n->quorum.arrival_ms + window_ms(n);
}

uint32_t node_quorum_steps(const struct node *n)
{
    const double own = (double)n->training.tokens_per_s;
    double most = own;

    for (uint32_t i = 0; i < n->ballot.cert.body.n_members; i++) {
        int row = n->ballot.rows[i];

        if (row != MEMBERS_NONE && n->members.peers[row].has_beat &&
            (double)n->members.peers[row].beat.tokens_per_s > most) {
            most = (double)n->members.peers[row].beat.tokens_per_s;
        }
    }
    return n->terms.by_speed ? dylu_steps(n->terms.period, own, most)
                             : n->terms.period;
}
