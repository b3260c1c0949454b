/* lab_trainer.c - AdLoCo: several trainers, growing batches, mergers.
 *
 * Peers are divided among trainers; each trainer runs DiLoCo with its own peers
 * and its own batch request, which the noise of the gradients raises
 * (batch_size.h). Every merge_every turns the two that ask for least become one
 * (merge.h) and the peers are divided anew by demand. Trainers start from one
 * state and never average otherwise.
 *
 * The test needs the norms of micro-batch gradients: the first step after a
 * turn keeps them (algorithms page 10.2). A batch that fits one micro-batch is
 * halved for it.
 */
#include <string.h>

#include "train/lab/lab_internal.h"

struct trainer {
    bool used;
    uint64_t request; /* sequences per step of one peer */
    uint32_t turns;
};

struct trainers {
    struct trainer of[LAB_PEERS_MAX];
};

static uint32_t
peers_of(const struct lab *lab, uint32_t trainer, uint32_t out[LAB_PEERS_MAX])
{
    uint32_t who[LAB_PEERS_MAX];
    uint32_t n = lab_alive(lab, who), count = 0;

    for (uint32_t i = 0; i < n; i++) {
        if (lab->peers[who[i]].trainer == trainer) {
            out[count++] = who[i];
        }
    }
    return count;
}

/* Gradient of `rows` sequences in parts of `part`, with what the test needs:
 * e.grad ends as the sum over all. Inner products need the mean, so parts run
 * twice only where the test asks for them: here with two halves, of which the
 * norms say everything. */
static int tested_gradient(struct lab *lab,
                           struct lab_peer *p,
                           uint32_t rows,
                           struct batch_sample *sample)
{
    int rv = lab_gradient(lab, p, rows / 2);

    if (rv != 0) {
        return rv;
    }
    memcpy(lab->micro, p->e.grad, (size_t)lab->n * sizeof(float));
    rv = lab_gradient(lab, p, rows / 2);
    if (rv != 0) {
        return rv;
    }
    *sample =
        batch_sample_of_gradients(lab->micro, p->e.grad, (size_t)lab->n,
                                  rows / 2, (double)(rows / 2) * lab->opt.seq);
    return 0;
}

/* One peer's inner steps of a turn; adds its request of the first step. */
static int work(struct lab *lab,
                struct lab_peer *p,
                const struct trainer *t,
                uint64_t *asked)
{
    const struct method *m = &lab->opt.method;
    const struct batch_rule rule = batch_rule_default(m->batch, m->batch_most);
    struct batch_shape shape = batch_switch(t->request, m->batch_most, 2);
    uint32_t rows = (uint32_t)(shape.micro * shape.accumulate);
    int rv = 0;

    for (uint32_t k = 0; k < m->period && rv == 0; k++) {
        if (k == 0) {
            uint32_t even = rows < 2 ? 2 : rows / 2 * 2;
            struct batch_sample sample = {0};

            rv = tested_gradient(lab, p, even, &sample);
            *asked = batch_request(&rule, &sample, t->request);
            rv = rv != 0 ? rv : lab_update(lab, p, even);
        } else {
            rv = lab_gradient(lab, p, rows);
            rv = rv != 0 ? rv : lab_update(lab, p, rows);
        }
    }
    return rv;
}

static int average(struct lab *lab, const uint32_t *who, uint32_t n)
{
    const struct stream_turn turn = {lab->turns, 0};
    const struct engine_average a = {lab->mean, NULL, 1.0 / n, 1};
    struct lab_part parts[LAB_PEERS_MAX];
    double due;
    int rv = 0;

    for (uint32_t i = 0; i < n && rv == 0; i++) {
        struct lab_peer *p = &lab->peers[who[i]];

        rv = engine_pack(&p->e, 0, &turn, lab->packed[who[i]]);
        parts[i] = (struct lab_part){lab->packed[who[i]], p->residual, 1.0};
    }
    rv = rv != 0 ? rv : lab_average(lab, parts, n, lab->n, lab->mean);
    due = lab_latest(lab, who, n) +
          lab_ring(lab, who, n, lab_wire_bytes(lab, lab->n));
    for (uint32_t i = 0; i < n && rv == 0; i++) {
        rv = engine_apply(&lab->peers[who[i]].e, 0, &turn, &a);
        lab->peers[who[i]].clock_s = due;
    }
    return rv == 0 ? 0
                   : errmsg_fail(lab->errmsg, rv,
                                 "a trainer's step is not finite; lower "
                                 "sync.outer_lr or inner.lr");
}

static int turn_of(struct lab *lab, uint32_t number, struct trainer *t)
{
    uint32_t who[LAB_PEERS_MAX];
    uint32_t n = peers_of(lab, number, who);
    uint64_t sum = 0;
    int rv = 0;

    for (uint32_t i = 0; i < n && rv == 0; i++) {
        uint64_t asked = t->request;

        rv = work(lab, &lab->peers[who[i]], t, &asked);
        sum += asked;
    }
    if (rv != 0 || n == 0) {
        return rv;
    }
    rv = average(lab, who, n);
    t->request = (sum + n - 1) / n;
    t->turns++;
    return rv != 0 ? rv : lab_point(lab, 0, lab->peers[who[0]].e.phi);
}

/* A peer goes over to a trainer: it takes that trainer's anchor. */
static void
adopt(struct lab *lab, struct lab_peer *p, const float *phi, uint32_t trainer)
{
    size_t bytes = (size_t)lab->n * sizeof(float);

    memcpy(p->e.phi, phi, bytes);
    memcpy(p->e.theta, phi, bytes);
    p->trainer = trainer;
}

/* Live trainers, ascending, with their requests; a trainer without peers has
 * ended. */
static size_t list(const struct lab *lab,
                   struct trainers *ts,
                   uint32_t *numbers,
                   uint64_t *requests)
{
    size_t n = 0;

    for (uint32_t i = 0; i < LAB_PEERS_MAX; i++) {
        uint32_t who[LAB_PEERS_MAX];

        if (!ts->of[i].used) {
            continue;
        }
        if (peers_of(lab, i, who) == 0) {
            ts->of[i].used = false;
            continue;
        }
        numbers[n] = i;
        requests[n++] = ts->of[i].request;
    }
    return n;
}

/* Divide all peers by demand; who stays keeps its state. `phi` (n) holds the
 * merged trainer's anchor, those of others are at their peers. */
static void divide(struct lab *lab,
                   const uint32_t *numbers,
                   const uint64_t *requests,
                   size_t n)
{
    uint32_t who[LAB_PEERS_MAX], want[LAB_PEERS_MAX], have[LAB_PEERS_MAX];
    uint32_t alive = lab_alive(lab, who);

    memset(have, 0, sizeof have);
    if (merge_nodes(requests, n, alive, want) != 0) {
        return;
    }
    for (uint32_t i = 0; i < alive; i++) {
        struct lab_peer *p = &lab->peers[who[i]];

        for (size_t t = 0; t < n; t++) {
            if (numbers[t] == p->trainer && have[t] < want[t]) {
                have[t]++;
                who[i] = UINT32_MAX; /* stays */
                break;
            }
        }
    }
    for (uint32_t i = 0; i < alive; i++) {
        for (size_t t = 0; t < n && who[i] != UINT32_MAX; t++) {
            uint32_t at[LAB_PEERS_MAX];

            if (have[t] == want[t] || peers_of(lab, numbers[t], at) == 0) {
                continue;
            }
            have[t]++;
            lab->peers[at[0]].sent += lab->n * sizeof(float);
            adopt(lab, &lab->peers[who[i]], lab->peers[at[0]].e.phi,
                  numbers[t]);
            who[i] = UINT32_MAX;
        }
    }
}

static void merge(struct lab *lab, struct trainers *ts)
{
    uint32_t numbers[LAB_PEERS_MAX], set[LAB_PEERS_MAX], kept;
    uint64_t requests[LAB_PEERS_MAX], weights[2];
    const float *parts[2];
    uint32_t who[LAB_PEERS_MAX];
    size_t n = list(lab, ts, numbers, requests);

    if (merge_set(requests, n, 2, set, &kept) != 2) {
        return;
    }
    for (int i = 0; i < 2; i++) {
        (void)peers_of(lab, numbers[set[i]], who);
        parts[i] = lab->peers[who[0]].e.phi;
        weights[i] = requests[set[i]];
        lab->peers[who[0]].sent += set[i] == kept ? 0 : lab->n * sizeof(float);
    }
    merge_mean(lab->mean, parts, weights, 2, (size_t)lab->n);
    for (int i = 0; i < 2; i++) {
        uint32_t count = peers_of(lab, numbers[set[i]], who);

        for (uint32_t k = 0; k < count; k++) {
            adopt(lab, &lab->peers[who[k]], lab->mean, numbers[kept]);
        }
        ts->of[numbers[set[i]]].used = set[i] == kept;
    }
    n = list(lab, ts, numbers, requests);
    divide(lab, numbers, requests, n);
}

static void start(struct lab *lab, struct trainers *ts)
{
    uint32_t k = lab->opt.method.trainers;

    k = k > lab->opt.peers ? lab->opt.peers : k;
    for (uint32_t i = 0; i < lab->opt.peers; i++) {
        lab->peers[i].trainer = i % k;
        ts->of[i % k].used = true;
        ts->of[i % k].request = lab->opt.batch;
    }
}

int lab_run_trainers(struct lab *lab)
{
    struct trainers ts;
    uint32_t numbers[LAB_PEERS_MAX];
    uint64_t requests[LAB_PEERS_MAX];
    uint32_t turns = 0;
    size_t n;
    int rv = 0;

    memset(&ts, 0, sizeof ts);
    start(lab, &ts);
    while (rv == 0 && lab_goes_on(lab)) {
        rv = lab_events(lab, true);
        n = list(lab, &ts, numbers, requests);
        for (size_t i = 0; i < n && rv == 0 && lab_goes_on(lab); i++) {
            rv = turn_of(lab, numbers[i], &ts.of[numbers[i]]);
        }
        turns++;
        if (rv == 0 && n > 1 && lab->opt.method.merge_every > 0 &&
            turns % lab->opt.method.merge_every == 0) {
            merge(lab, &ts);
        }
    }
    n = list(lab, &ts, numbers, requests);
    lab->result->trainers = (uint32_t)n;
    for (size_t i = 0; i < n; i++) {
        lab->result->batch += (double)requests[i] / (double)n;
    }
    return rv;
}
