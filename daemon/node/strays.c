/* strays.c - see strays.h. */
#include "daemon/node/strays.h"

#include "daemon/node/internal.h"
#include "proto/base/log.h"

/* Rests are of 64, 128 and 256 rounds. */
#define MORE_LOG2 5
#define MOST_LOG2 3

void node_strays_open(struct node *n)
{
    n->strays.rests.more_log2 = MORE_LOG2;
    n->strays.rests.most_log2 = MOST_LOG2;
}

void node_strays_committed(struct node *n)
{
    const struct plan_body *p = &n->round.last.plan.body;
    struct local_member member[VIEW_MEMBERS_MAX];
    struct node_strays *s = &n->strays;
    struct job *job;
    uint32_t at;

    if (!n->terms.watches || !n->round.in_plan || p->n_rollback > 0 ||
        round_kind(p) != EXCHANGE_BUTTERFLY) {
        return;
    }
    s->attempt = n->round.exchange.attempt;
    s->round = p->round;
    s->n = p->n_members;
    for (uint32_t k = 0; k < s->n; k++) {
        s->member[k] = id_of_public(n->round.plan_keys[k]);
        member[k] = (struct local_member){s->member[k], p->members[k].tokens};
    }
    at = out_bytes(n->out, member, s->n * sizeof *member);
    job = at == UINT32_MAX ? NULL : out_job(n->out, JOB_STRAYS);
    if (job != NULL) {
        job->strays.attempt = s->attempt;
        job->strays.n = s->n;
        job->strays.member =
            (struct out_span){at, s->n * (uint32_t)sizeof *member};
    }
}

void node_on_strays(struct node *n, const struct local_event *e)
{
    struct node_strays *s = &n->strays;
    char name[ID_SHORT_MAX];

    if (e->rc != 0 || e->strays.attempt != s->attempt) {
        return;
    }
    for (uint32_t k = 0; k < s->n; k++) {
        if (!(e->strays.mask >> k & 1) || id_eq(&s->member[k], &n->opt.self)) {
            continue;
        }
        rests_add(&s->rests, &s->member[k], s->round + 1);
        id_short(&s->member[k], name);
        out_log(n->out, LOG_WARN,
                "round %llu: what %s contributes goes another way than what "
                "the others do; if half of them say so, it rests",
                (unsigned long long)s->round, name);
    }
}

void node_strays_status(const struct node *n, struct node_status *s)
{
    uint64_t mask = !n->ballot.have
                        ? 0
                        : rests_mask(&n->strays.rests, n->ballot.ids,
                                     n->ballot.cert.body.n_members,
                                     n->held.known.round + 1);

    s->watches = n->terms.watches;
    s->strays_named = (uint32_t)__builtin_popcountll(mask);
    s->strays_seen = n->strays.rests.n_seen;
}
