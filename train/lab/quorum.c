/* quorum.c - who is ready averages; nobody waits for the slow.
 *
 * Each peer works on a task: so many inner steps from the anchor that it read.
 * The first to finish opens the grace window; all who finish within it go into
 * one quorum (delayed Nesterov), or arrive one by one (the naive baseline).
 * Everybody applies the result to the common anchor; only who was in it begins
 * a new task. With DyLU the steps follow the speeds, so that slow peers arrive
 * as often as fast ones, with less.
 *
 * A task is computed when it is due: its result depends on nothing that happens
 * meanwhile.
 */
#include "proto/base/dylu.h"
#include "proto/base/err.h"
#include "train/lab/internal.h"

struct task {
    uint32_t steps;
    double due_s;
};

struct tasks {
    struct task of[LAB_PEERS_MAX];
    bool begun[LAB_PEERS_MAX];
};

static double fastest(const struct lab *lab)
{
    uint32_t who[LAB_PEERS_MAX];
    uint32_t n = lab_alive(lab, who);
    double v = 0.0;

    for (uint32_t i = 0; i < n; i++) {
        double t = lab->peers[who[i]].machine.tokens_per_s;

        v = t > v ? t : v;
    }
    return v;
}

uint32_t
lab_task_steps(const struct lab *lab, const struct lab_peer *p, double *seconds)
{
    uint32_t steps = lab->opt.method.period;
    double speed = p->machine.tokens_per_s;

    if (lab->opt.method.dylu) {
        steps = dylu_steps(steps, speed, fastest(lab));
    }
    *seconds = (double)steps * lab->opt.batch * lab->opt.seq / speed;
    return steps;
}

static void begin(struct lab *lab, struct tasks *t, uint32_t who)
{
    struct lab_peer *p = &lab->peers[who];
    double seconds;

    t->of[who].steps = lab_task_steps(lab, p, &seconds);
    t->of[who].due_s = p->clock_s + seconds;
    t->begun[who] = true;
}

/* The live peers that finish within the window of the first, in id order. */
static uint32_t gather(const struct lab *lab,
                       const struct tasks *t,
                       const uint32_t *who,
                       uint32_t n,
                       uint32_t in[LAB_PEERS_MAX])
{
    uint32_t first = who[0], count = 0;

    for (uint32_t i = 1; i < n; i++) {
        first = t->of[who[i]].due_s < t->of[first].due_s ? who[i] : first;
    }
    if (!lab->opt.method.delayed) {
        in[0] = first; /* one by one */
        return 1;
    }
    for (uint32_t i = 0; i < n; i++) {
        if (t->of[who[i]].due_s <= t->of[first].due_s + lab->opt.grace_s) {
            in[count++] = who[i];
        }
    }
    return count;
}

int lab_task(struct lab *lab, struct lab_peer *p, uint32_t steps)
{
    const struct stream_turn turn = {0, 0};
    int rv = 0;

    for (uint32_t k = 0; k < steps && rv == 0; k++) {
        rv = lab_step(lab, p);
    }
    if (rv == 0 && engine_pack(&p->e, 0, &turn, lab->packed[p->number]) != 0) {
        rv = errmsg_fail(lab->errmsg, LOCO_ENUMERIC,
                         "peer %u: its contribution is not finite", p->number);
    }
    return rv;
}

static int apply(struct lab *lab,
                 const uint32_t *who,
                 uint32_t n,
                 const uint32_t *in,
                 uint32_t q)
{
    const struct stream_turn turn = {lab->turns, 0};
    int rv = 0;

    for (uint32_t i = 0; i < n && rv == 0; i++) {
        struct engine_average a = {lab->mean, 0.0, q};

        for (uint32_t j = 0; j < q; j++) {
            a.share = in[j] == who[i] ? 1.0 / q : a.share;
        }
        rv = engine_apply(&lab->peers[who[i]].e, 0, &turn, &a);
        delayed_resize(&lab->peers[who[i]].e.delayed, n);
    }
    return rv == 0 ? 0
                   : errmsg_fail(lab->errmsg, rv,
                                 "the outer step is not finite; lower "
                                 "sync.outer_lr or sync.outer_momentum");
}

static int
quorum(struct lab *lab, struct tasks *t, const uint32_t *who, uint32_t n)
{
    struct lab_part parts[LAB_PEERS_MAX];
    uint32_t in[LAB_PEERS_MAX];
    uint32_t q = gather(lab, t, who, n, in);
    uint64_t bytes = lab_wire_bytes(lab, lab->n);
    double done;
    int rv = 0;

    for (uint32_t i = 0; i < q && rv == 0; i++) {
        rv = lab_task(lab, &lab->peers[in[i]], t->of[in[i]].steps);
        t->begun[in[i]] = false;
        parts[i] = (struct lab_part){lab->packed[in[i]],
                                     lab->peers[in[i]].residual, 1.0};
    }
    rv = rv != 0 ? rv : lab_average(lab, parts, q, lab->n, lab->mean);
    rv = rv != 0 ? rv : apply(lab, who, n, in, q);
    done = lab_latest(lab, in, q);
    done += q == 1 ? lab_scatter(lab, in[0], n, bytes)
                   : lab_ring(lab, in, q, bytes);
    if (q > 1) { /* the others get the result from the quorum */
        lab->peers[in[0]].sent += (uint64_t)(n - q) * bytes;
    }
    for (uint32_t i = 0; i < q; i++) {
        lab->peers[in[i]].clock_s = done;
    }
    return rv != 0 ? rv : lab_point(lab, 0, lab->peers[who[0]].e.phi);
}

int lab_run_quorum(struct lab *lab)
{
    struct tasks tasks = {0};
    int rv = 0;

    while (rv == 0 && lab_goes_on(lab)) {
        uint32_t who[LAB_PEERS_MAX];
        uint32_t n;

        rv = lab_events(lab, true);
        n = lab_alive(lab, who);
        if (rv != 0 || n == 0) {
            break;
        }
        for (uint32_t i = 0; i < n; i++) {
            if (!tasks.begun[who[i]]) {
                begin(lab, &tasks, who[i]);
            }
        }
        rv = quorum(lab, &tasks, who, n);
    }
    return rv;
}
