/* trainer.c - AdLoCo: several trainers, growing batches, mergers.
 *
 * All trainers share one round, as in a swarm (sync/trainers.h): its vector has
 * a section for each of them, and everybody waits for the slowest. What a peer
 * does in a round is what a replica does (replica/trainers.h). All peers hold
 * the same state, so the laboratory has it once: lab->anchors, lab->numbers.
 */
#include <string.h>

#include "train/lab/internal.h"

/* Each peer takes a trainer, its anchor and its batch. */
static void begin(struct lab *lab, uint64_t round)
{
    const struct trainers *t = &lab->trainers;
    uint32_t who[LAB_PEERS_MAX];
    uint32_t n = lab_alive(lab, who);

    for (uint32_t i = 0; i < n; i++) {
        struct lab_peer *p = &lab->peers[who[i]];

        p->trainer = trainers_assign(t, lab->numbers, round, n, i);
        p->asked = trainers_request(t, lab->numbers, p->trainer);
        p->rows = batch_rows(p->asked, lab->opt.method.batch_most);
        p->pending = 0;
        p->e.phi = lab->anchors + p->trainer * lab->n;
        memcpy(p->e.theta, p->e.phi, (size_t)lab->n * sizeof(float));
    }
}

int lab_trainer_gradient(struct lab *lab, struct lab_peer *p, uint32_t *rows)
{
    const struct batch_rule rule = method_batch_rule(&lab->opt.method);
    struct batch_sample sample;
    uint32_t half;
    int rv;

    *rows = p->pending == 0 ? batch_rows_tested(p->rows) : p->rows;
    if (p->pending > 0) {
        p->pending += (uint64_t)*rows * lab->opt.seq;
        return lab_gradient(lab, p, *rows);
    }
    half = *rows / 2;
    p->pending = (uint64_t)*rows * lab->opt.seq;
    rv = lab_gradient(lab, p, half);
    if (rv != 0) {
        return rv;
    }
    memcpy(lab->micro, p->e.grad, (size_t)lab->n * sizeof(float));
    rv = lab_gradient(lab, p, half);
    if (rv != 0) {
        return rv;
    }
    sample = batch_sample_of_gradients(lab->micro, p->e.grad, (size_t)lab->n,
                                       half, (double)half * lab->opt.seq);
    p->asked = (uint32_t)batch_request(&rule, &sample, p->asked);
    return 0;
}

static int pack(struct lab *lab, struct lab_peer *p, uint64_t round)
{
    const struct trainers *t = &lab->trainers;
    float *vector = lab->packed[p->number];

    trainers_fill(t, round, p->trainer, p->asked, vector);
    return rule_displacement(vector + trainers_section(t, p->trainer), p->e.phi,
                             p->e.theta, (size_t)lab->n);
}

static int turn(struct lab *lab, uint64_t round)
{
    const struct trainers *t = &lab->trainers;
    uint64_t len = trainers_elements(t, round);
    struct lab_part parts[LAB_PEERS_MAX];
    uint32_t who[LAB_PEERS_MAX];
    uint32_t n = lab_alive(lab, who);
    double due;
    int rv = 0;

    for (uint32_t i = 0; i < n && rv == 0; i++) {
        struct lab_peer *p = &lab->peers[who[i]];

        rv = pack(lab, p, round);
        parts[i] =
            (struct lab_part){lab->packed[who[i]], NULL, (double)p->pending};
    }
    rv = rv != 0 ? rv : lab_average(lab, parts, n, len, lab->mean);
    rv = rv != 0 ? rv
                 : trainers_step(t, &lab->opt.method.rule, round, lab->mean,
                                 lab->anchors, lab->numbers);
    if (rv != 0) {
        return errmsg_fail(lab->errmsg, rv,
                           "a trainer's step is not finite; lower "
                           "sync.outer_lr or inner.lr");
    }
    (void)trainers_take(t, round, lab->mean, lab->anchors, lab->numbers, 0);
    due = lab_latest(lab, who, n) +
          lab_ring(lab, who, n, lab_wire_bytes(lab, len));
    for (uint32_t i = 0; i < n; i++) {
        lab->peers[who[i]].clock_s = due;
    }
    return 0;
}

int lab_run_trainers(struct lab *lab)
{
    uint64_t round = 1;
    int rv = 0;

    while (rv == 0 && lab_goes_on(lab)) {
        uint32_t who[LAB_PEERS_MAX];

        rv = lab_events(lab, true);
        begin(lab, round);
        rv = rv != 0 ? rv : lab_period(lab);
        if (rv == 0 && lab_alive(lab, who) > 0) {
            rv = turn(lab, round++);
            rv = rv != 0 ? rv : lab_point(lab, 0, lab->anchors);
        }
    }
    begin(lab, round); /* the spread is that of the anchors */
    lab->result->trainers = trainers_in(&lab->trainers, round);
    for (uint32_t i = 0; i < lab->result->trainers; i++) {
        lab->result->batch += (double)lab->numbers[i] / lab->result->trainers;
    }
    return rv;
}
