/* trainers.c - see trainers.h. */
#include "train/sync/trainers.h"

#include <string.h>

#include "proto/base/err.h"
#include "train/sync/finite.h"
#include "train/sync/merge.h"

uint32_t trainers_in(const struct trainers *t, uint64_t round)
{
    uint64_t merged = t->merge_every == 0 ? 0 : (round - 1) / t->merge_every;

    return merged < t->count - 1 ? (uint32_t)(t->count - merged) : 1;
}

uint64_t trainers_rounds(const struct trainers *t)
{
    return (uint64_t)(t->count - 1) * t->merge_every;
}

static uint64_t padded(const struct trainers *t, uint64_t n)
{
    return (n + t->block - 1) / t->block * t->block;
}

uint64_t trainers_section(const struct trainers *t, uint32_t trainer)
{
    return trainer * padded(t, t->n);
}

/* Behind the sections of k trainers: their shares, then their requests. */
static uint64_t requests_at(const struct trainers *t, uint32_t k)
{
    return trainers_section(t, k) + (k > 1 ? padded(t, k) : 0);
}

uint64_t trainers_elements(const struct trainers *t, uint64_t round)
{
    uint32_t k = trainers_in(t, round);

    return requests_at(t, k) + k;
}

uint64_t trainers_most(const struct trainers *t)
{
    return trainers_elements(t, 1);
}

void trainers_begin(const struct trainers *t, float *numbers, uint32_t request)
{
    uint32_t first = request < t->most ? request : t->most;

    for (uint64_t i = 0; i < trainers_numbers(t); i++) {
        numbers[i] = (float)first;
    }
}

uint32_t
trainers_request(const struct trainers *t, const float *numbers, uint32_t of)
{
    float x = of < t->count ? numbers[of] : 0.0F;

    return x >= 1.0F && x <= (float)t->most ? (uint32_t)x : 1;
}

/* ---- who works for whom ------------------------------------------------- */

/* The trainer with peers that comes in place `rank` where only `members` of k
 * have one: those that ask for most, ties to the lower place. */
static uint32_t
few_peers(const float *demand, uint32_t k, uint32_t members, uint32_t rank)
{
    for (uint32_t i = 0; i < k; i++) {
        uint32_t before = 0;

        for (uint32_t j = 0; j < k; j++) {
            before +=
                demand[j] > demand[i] || (demand[j] == demand[i] && j < i);
        }
        if (before < members && rank-- == 0) {
            return i;
        }
    }
    return 0;
}

uint32_t trainers_assign(const struct trainers *t,
                         const float *numbers,
                         uint64_t round,
                         uint32_t members,
                         uint32_t rank)
{
    const float *demand = numbers + t->count;
    uint32_t k = trainers_in(t, round), peers[TRAINERS_MAX], upto = 0;
    uint64_t want[TRAINERS_MAX] = {0};

    members = members > 0 ? members : 1;
    rank %= members;
    if (members < k) {
        return few_peers(demand, k, members, rank);
    }
    for (uint32_t i = 0; i < k; i++) {
        want[i] = trainers_request(t, demand, i);
    }
    (void)merge_nodes(want, k, members, peers);
    for (uint32_t i = 0; i < k; i++) {
        upto += peers[i];
        if (rank < upto) {
            return i;
        }
    }
    return 0;
}

/* ---- a round ------------------------------------------------------------ */

void trainers_fill(const struct trainers *t,
                   uint64_t round,
                   uint32_t trainer,
                   uint32_t request,
                   float *vector)
{
    uint32_t k = trainers_in(t, round);

    memset(vector, 0, trainers_elements(t, round) * sizeof *vector);
    if (k > 1) {
        vector[trainers_section(t, k) + trainer] = 1.0F;
    }
    vector[requests_at(t, k) + trainer] = (float)request;
}

/* The mean displacement of a section's own peers, and what they ask for. */
static void unshare(float *g, float *request, float share, uint64_t n)
{
    for (uint64_t i = 0; i < n; i++) {
        g[i] = g[i] / share;
    }
    *request = *request / share;
}

/* Nobody asks for less than before, for parts of a sequence, or, whatever
 * somebody sent, for more than the run allows. */
static float next_request(const struct trainers *t, float now, float asked)
{
    float most = (float)t->most;
    float near = asked + 0.5F;

    if (!(near > now)) {
        return now;
    }
    return near < most ? (float)(uint32_t)near : most;
}

int trainers_step(const struct trainers *t,
                  const struct rule *rule,
                  uint64_t round,
                  float *mean,
                  const float *anchors,
                  const float *numbers)
{
    uint32_t k = trainers_in(t, round);
    float *requests = mean + requests_at(t, k);
    const float *shares = mean + trainers_section(t, k);

    for (uint32_t i = 0; i < k; i++) {
        float *g = mean + trainers_section(t, i);
        struct outer_state in = {(float *)(uintptr_t)(anchors + i * t->n),
                                 NULL};
        struct outer_state out = {g, NULL};
        float share = k > 1 ? shares[i] : 1.0F;
        int rv;

        if (not_finite(share) || not_finite(requests[i])) {
            return LOCO_ENUMERIC;
        }
        if (!(share > 0.0F)) { /* it rests */
            memcpy(g, in.phi, t->n * sizeof *g);
            requests[i] = numbers[i];
            continue;
        }
        unshare(g, &requests[i], share, t->n);
        requests[i] = next_request(t, numbers[i], requests[i]);
        rv = rule_apply(rule, &out, &in, g, t->n);
        if (rv != 0) {
            return rv;
        }
    }
    return 0;
}

/* The trainer in place `gone` has ended: those behind it move up, and the last
 * place is empty. */
static void close_gap(const struct trainers *t,
                      uint32_t k,
                      uint32_t gone,
                      float *anchors,
                      float *numbers)
{
    for (uint32_t i = gone; i + 1 < k; i++) {
        memcpy(anchors + i * t->n, anchors + (i + 1) * t->n,
               t->n * sizeof *anchors);
        numbers[i] = numbers[i + 1];
    }
    memset(anchors + (k - 1) * t->n, 0, t->n * sizeof *anchors);
    numbers[k - 1] = 0.0F;
}

/* The two of k that ask for least become one, in the lower place. Where the
 * trainer in place `own` is then. */
static uint32_t merge(const struct trainers *t,
                      uint32_t k,
                      float *anchors,
                      float *numbers,
                      uint32_t own)
{
    uint32_t set[TRAINERS_MAX], kept;
    uint64_t requests[TRAINERS_MAX], weights[2];
    const float *parts[2];
    float *to;

    for (uint32_t i = 0; i < k; i++) {
        requests[i] = trainers_request(t, numbers, i);
    }
    (void)merge_set(requests, k, 2, set, &kept);
    for (int i = 0; i < 2; i++) {
        parts[i] = anchors + set[i] * t->n;
        weights[i] = requests[set[i]];
    }
    to = anchors + set[0] * t->n;
    merge_mean(to, parts, weights, 2, (size_t)t->n);
    numbers[set[0]] = numbers[kept];
    close_gap(t, k, set[1], anchors, numbers);
    memcpy(numbers + t->count, numbers, t->count * sizeof *numbers);
    return own == set[1] ? set[0] : own > set[1] ? own - 1 : own;
}

uint32_t trainers_take(const struct trainers *t,
                       uint64_t round,
                       const float *made,
                       float *anchors,
                       float *numbers,
                       uint32_t own)
{
    uint32_t k = trainers_in(t, round);

    for (uint32_t i = 0; i < k; i++) {
        memcpy(anchors + i * t->n, made + trainers_section(t, i),
               t->n * sizeof *anchors);
        numbers[i] = made[requests_at(t, k) + i];
    }
    return trainers_in(t, round + 1) < k ? merge(t, k, anchors, numbers, own)
                                         : own;
}
