/* train.c - the fake machine's inner steps, one timer each.
 *
 * A step moves the live parameters by a pseudo-random displacement; the last
 * one of a TRAIN packs the contribution. See local.h.
 */
#include "daemon/sim/machine/internal.h"

#include <string.h>

#include "daemon/sim/world/internal.h"
#include "p2p/round/lease.h"
#include "proto/base/rng.h"
#include "train/sync/rule.h"

uint64_t local_open_tokens(const struct local *l, const struct machine *m)
{
    return (m->inner_step - m->base_step) * l->opt.tokens_per_step;
}

static void arm_step(struct local *l, uint32_t peer)
{
    struct machine *m = &l->machines[peer];

    world_timer(l->world, peer, l->opt.step_ms * m->slow + m->hang_ms,
                STEP_TOKEN | m->train_gen);
    m->hang_ms = 0;
}

/* The vector of the next round. */
static int fill(struct local *l, uint32_t peer)
{
    struct machine *m = &l->machines[peer];
    uint64_t first, n = local_elements(l, m->round + 1, &first);
    struct local_contribution c = {
        .peer = peer,
        .life = m->life,
        .first_step = m->base_step,
        .last_step = m->packed_step,
        .tokens = (m->packed_step - m->base_step) * l->opt.tokens_per_step,
        .lease = &m->lease,
        .values = m->contribution,
        .n = n,
    };
    int rc = l->trainers.count > 0
                 ? local_trainers_fill(l, peer)
                 : rule_displacement(m->contribution, m->phi + first,
                                     m->theta + first, n);

    for (uint64_t i = 0; i < n; i++) {
        m->contribution[i] = m->ruins
                                 ? (i % 2 == 0 ? 1000.0F : -1000.0F)
                                 : m->contribution[i] + m->residual[first + i];
        m->contribution[i] = m->lies ? -m->contribution[i] : m->contribution[i];
    }
    if (l->watch.contributed != NULL) {
        l->watch.contributed(l->watch.self, &c);
    }
    return rc;
}

void local_pack_again(struct local *l, uint32_t peer)
{
    if (l->machines[peer].packed &&
        (l->opt.fragments > 1 || l->trainers.count > 0)) {
        (void)fill(l, peer);
    }
}

void local_pack_nothing(struct local *l, uint32_t peer)
{
    struct machine *m = &l->machines[peer];
    struct local_event e = {
        .type = LOCAL_TRAINED,
        .trained = {.round = m->round, .inner_step = m->inner_step},
    };

    memset(m->contribution, 0, l->opt.n_params * sizeof *m->contribution);
    m->train_gen++;
    m->training = false;
    m->packed = true;
    m->packed_step = m->inner_step;
    e.rc = local_announce(l, m, &e.trained.blocks);
    local_tell(l, peer, &e);
}

static void pack(struct local *l, uint32_t peer)
{
    struct machine *m = &l->machines[peer];
    struct local_event e = {
        .type = LOCAL_TRAINED,
        .trained = {.round = m->round,
                    .inner_step = m->inner_step,
                    .tokens = local_open_tokens(l, m),
                    .loss = 5.0f / (float)(m->inner_step + 1)},
    };

    m->training = false;
    m->packed = true;
    m->packed_step = m->inner_step;
    e.rc = fill(l, peer);
    local_note_lie(l, peer);
    e.rc = e.rc == 0 ? local_announce(l, m, &e.trained.blocks) : e.rc;
    local_moments_end(l, peer, &e.trained.ends);
    local_tell(l, peer, &e);
    m->beside_left = l->opt.overlap;
    if (m->beside_left > 0) {
        arm_step(l, peer);
    }
}

/* The step's text must be on this machine. */
static void read_text(struct local *l, const struct machine *m)
{
    const struct local_options *o = &l->opt;
    uint64_t at;

    if (o->shard_windows > 0 && m->terms->lease_quota > 0 &&
        lease_at(&m->lease, m->inner_step - m->base_step, &at)) {
        l->blind_steps += !m->held[at / o->shard_windows % o->n_shards];
        return;
    }
    for (uint32_t s = 0; s < o->n_shards; s++) { /* of an order of its own */
        if (!m->held[s] && !m->terms->shards[s].begins) {
            l->blind_steps++;
            return;
        }
    }
}

uint64_t local_blind_steps(const struct local *l)
{
    return l->blind_steps;
}

void local_step_once(struct local *l, uint32_t peer)
{
    struct machine *m = &l->machines[peer];
    uint64_t words[] = {l->opt.seed, peer, m->life, m->inner_step};
    uint64_t rng = rng_mix(words, 4);

    for (uint32_t i = 0; i < l->opt.n_params; i++) {
        m->theta[i] += 0.01f * (rng_float(&rng) - 0.5f);
    }
    m->inner_step++;
    local_moments_step(m);
    m->tokens += l->opt.tokens_per_step;
}

static void inner_step(struct local *l, uint32_t peer)
{
    struct machine *m = &l->machines[peer];
    struct local_event e = {.type = LOCAL_PROGRESS};

    read_text(l, m);
    local_step_once(l, peer);
    if (m->training) {
        m->steps_left--;
    } else {
        m->beside_left--;
    }
    if (m->inner_step % 4 == 0) {
        e.progress.inner_step = m->inner_step;
        e.progress.tokens = m->tokens;
        e.progress.loss = 5.0f / (float)(m->inner_step + 1);
        e.progress.tokens_per_s = (float)l->opt.tokens_per_step * 1000.0f /
                                  (float)(l->opt.step_ms * m->slow);
        local_tell(l, peer, &e);
    }
    if (m->training && m->steps_left == 0) {
        pack(l, peer);
    } else if (m->training || m->beside_left > 0) {
        arm_step(l, peer);
    }
}

void local_on_step(struct local *l, uint32_t peer, uint64_t gen)
{
    struct machine *m = &l->machines[peer];
    uint64_t now = world_now(l->world);

    if ((!m->training && m->beside_left == 0) || gen != m->train_gen) {
        return;
    }
    if (m->busy_until_ms > now) { /* The trainer loads or applies first. */
        world_timer(l->world, peer,
                    (uint32_t)(m->busy_until_ms - now) + l->opt.step_ms,
                    STEP_TOKEN | m->train_gen);
        return;
    }
    inner_step(l, peer);
}

void local_take_lease(struct machine *m,
                      const struct out_span *lease,
                      const struct out *out)
{
    memset(&m->lease, 0, sizeof m->lease);
    if (lease->len == sizeof m->lease) {
        memcpy(&m->lease, out->bytes + lease->at, sizeof m->lease);
    }
}

void local_train_round(struct local *l, uint32_t peer, uint32_t steps)
{
    struct machine *m = &l->machines[peer];
    uint64_t made = l->opt.overlap > 0 ? m->inner_step - m->base_step : 0;

    m->beside_left = 0;
    if (made < steps || m->terms == NULL) {
        local_train(l, peer, steps - (uint32_t)made);
    } else {
        pack(l, peer);
    }
}

void local_train(struct local *l, uint32_t peer, uint32_t steps)
{
    struct machine *m = &l->machines[peer];

    m->train_gen++;
    m->steps_left = steps;
    m->training = steps > 0 && m->terms != NULL;
    if (m->training) {
        arm_step(l, peer);
    }
}
