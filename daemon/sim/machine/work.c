/* work.c - moments that are announced, and leases of others made again; as
 * daemon/machine/work.c.
 *
 * The fake machine has no moments, and what it learns cannot be made again. So
 * moments are any numbers, that follow from the steps made, 0 before the first
 * one, and a reading is
 * drawn: that of a lie where the maker lied (local_lie()), else one as honest
 * machines of different kinds have it (p2p/round/STRANGERS.md, section 5). In
 * one round of WILD training is wild for all, and honest machines part.
 */
#include "daemon/sim/machine/internal.h"

#include <stdlib.h>
#include <string.h>

#include "daemon/sim/world/internal.h"
#include "proto/base/err.h"
#include "proto/base/rng.h"

#define WILD 8

void local_lie(struct local *l, uint32_t peer, bool on)
{
    l->machines[peer].lies = on;
}

void local_accuse(struct local *l, uint32_t peer, bool on)
{
    l->machines[peer].accuses = on;
}

void local_mute(struct local *l, uint32_t peer, bool on)
{
    l->machines[peer].mute = on;
}

void local_idle(struct local *l, uint32_t peer, bool on)
{
    l->machines[peer].idle = on;
}

void local_forge(struct local *l, uint32_t peer, bool on)
{
    l->machines[peer].forges = on;
}

void local_anew(struct local *l, uint32_t peer, bool on)
{
    l->machines[peer].anew = on;
}

void local_note_lie(struct local *l, uint32_t peer)
{
    uint64_t round = l->machines[peer].round + 1;
    uint64_t *lied = &l->lied[peer * LOCAL_LIED + round % LOCAL_LIED];

    *lied = round << 1 | l->machines[peer].lies;
}

/* ---- moments --------------------------------------------------------------
 */

/* Those that the machine has now are kept as those of that round, in `to`. */
static void keep(struct local *l,
                 struct machine *m,
                 struct offer *to,
                 uint64_t round,
                 struct hash32 *blocks)
{
    const struct offer_cut cut = {codec_get(CODEC_BF16), m->terms->block,
                                  2 * (uint64_t)l->opt.n_params};
    uint64_t rng = m->moments_at;
    struct offer *o = &to[round % LOCAL_MOMENTS];
    float *x = world_alloc(cut.elements * sizeof *x);

    for (uint64_t i = 0; i < cut.elements; i++) {
        x[i] = m->moment_steps == 0 ? 0 : rng_float(&rng);
    }
    offer_free(o);
    if (offer_make(o, &cut, x) == 0) {
        o->round = round;
        *blocks = *offer_root(o);
    }
    free(x);
}

void local_moments(struct local *l, uint32_t peer, struct report_state *report)
{
    struct machine *m = &l->machines[peer];
    uint64_t words[] = {l->opt.seed, peer, m->life, m->round};

    if (!m->terms->audits_work || m->mute || report->broken) {
        return; /* as if it had none */
    }
    if (m->anew) {
        local_begin_anew(m);
    }
    if ((m->forges && m->round % 2 == 1) ||
        m->moments_at == 0) { /* it begins */
        m->moments_at = rng_mix(words, 4);
    }
    m->begin.round = m->round + 1;
    m->begin.at = m->moments_at;
    m->begin.steps = report->moment_steps = m->moment_steps;
    keep(l, m, m->moments, m->round + 1, &report->moments);
}

void local_moments_end(struct local *l, uint32_t peer, struct hash32 *ends)
{
    struct machine *m = &l->machines[peer];

    if (m->terms->audits_work && !m->mute) {
        keep(l, m, m->ends, m->round + 2, ends);
    }
}

void local_moments_step(struct machine *m)
{
    uint64_t words[] = {m->moments_at, m->inner_step};

    m->moments_at = rng_mix(words, 2);
    m->moment_steps++;
}

void local_begin_anew(struct machine *m)
{
    m->moments_at = m->moment_steps = 0;
}

void local_end_task(struct machine *m)
{
    if (m->terms->audits_work) {
        m->train_gen++;
        m->training = false;
    }
}

void local_undo(struct machine *m, uint64_t round, struct report_state *report)
{
    if (round == 0) {
        return;
    }
    local_end_task(m);
    report->broken = m->begin.round != round;
    if (!report->broken) {
        m->moments_at = m->begin.at;
        m->moment_steps = m->begin.steps;
    }
}

int local_moments_fill(const struct local *l,
                       const struct machine *m,
                       const struct segment *s,
                       uint8_t *dst)
{
    const struct offer_cut cut = segment_cut(m->terms, l->codec, s);
    const struct offer *all[] = {&m->moments[s->index % LOCAL_MOMENTS],
                                 &m->ends[s->index % LOCAL_MOMENTS]};

    for (size_t i = 0; i < 2; i++) {
        if (all[i]->n > 0 && hash32_u64(offer_root(all[i])) == s->name) {
            return offer_fill(all[i], &cut, s, dst);
        }
    }
    return LOCO_ENOENT;
}

void local_work_free(struct machine *m)
{
    for (uint32_t i = 0; i < LOCAL_MOMENTS; i++) {
        offer_free(&m->moments[i]);
        offer_free(&m->ends[i]);
    }
    for (uint32_t i = 0; i < WORK_ROOMS; i++) {
        work_room_free(&m->rooms[i]);
    }
}

/* ---- rooms ----------------------------------------------------------------
 */

/* NULL: there is none. */
static struct work_room *room_of(struct machine *m,
                                 uint64_t round,
                                 uint64_t base,
                                 const struct peer_id *maker)
{
    uint32_t k = work_rooms_find(m->rooms, round, base, maker);

    return k < WORK_ROOMS ? &m->rooms[k] : NULL;
}

/* The state before its round is held from the first piece on. */
int local_work_take(struct machine *m,
                    const struct offer_cut *cut,
                    const struct segment *s,
                    const uint8_t *src)
{
    const uint64_t round = work_round(s);
    uint32_t k = work_rooms_find(m->rooms, round, s->name, &s->maker);

    if (k == WORK_ROOMS) {
        if (kept_find(&m->states, round - 1, s->name) == NULL) {
            return LOCO_ENOENT;
        }
        k = work_rooms_free(m->rooms, round, WORK_ROOMS);
    }
    return k == WORK_ROOMS ? LOCO_EBUSY
                           : work_room_take(&m->rooms[k], cut, s, src);
}

void local_work_stop(struct machine *m, const struct job_repeat *job)
{
    struct work_room *r = room_of(m, job->round, job->base, &job->maker);

    if (r != NULL) {
        work_room_free(r);
    }
}

/* ---- a lease made again ---------------------------------------------------
 */

/* From `least` on, up to 1. */
static double from(uint64_t *rng, double least)
{
    return least + (1 - least) * (double)rng_float(rng);
}

/* What auditors of different kinds read, in a round like that. */
static enum repeat_verdict
read(const struct local *l, uint32_t peer, uint64_t round, bool lie)
{
    uint64_t words[] = {l->opt.seed, peer, round};
    uint64_t all[] = {l->opt.seed, round};
    uint64_t rng = rng_mix(words, 3);
    bool wild = rng_mix(all, 2) % WILD == 0;
    struct repeat_reading r = {
        .cosine = lie ? from(&rng, 0) * 0.93 : from(&rng, wild ? 0.93 : 0.968),
        .own = lie ? from(&rng, 0) * 0.93 : from(&rng, wild ? 0.9 : 0.965),
        .length = from(&rng, 0.96),
        .best = 1,
        .best_own = 1,
        .has_steady = true,
        .steady = wild ? from(&rng, 0.85) * 0.98 : from(&rng, 0.985),
        .has_next = true,
        .next = (1 - from(&rng, 0)) * (wild ? 3 : 0.9),
        .has_calm = true,
        .calm = wild ? from(&rng, 0.85) * 0.98 : from(&rng, 0.985),
    };

    return repeat_judge(&r);
}

int local_repeat(const struct local *l,
                 uint32_t peer,
                 const struct job_repeat *job,
                 struct report_repeated *report)
{
    struct machine *m = &l->machines[peer];
    const struct work_room *room =
        room_of(m, job->round, job->base, &job->maker);
    int maker = world_find(l->world, &job->maker);
    uint64_t lied;

    if (room == NULL || room->n_have * room->block < room->n || maker < 0) {
        return LOCO_EINVAL;
    }
    lied = l->lied[(uint32_t)maker * LOCAL_LIED + job->round % LOCAL_LIED];
    if (lied >> 1 != job->round) {
        return LOCO_ENOENT; /* long ago */
    }
    report->verdict =
        m->accuses ? REPEAT_BAD : (uint8_t)read(l, peer, job->round, lied & 1);
    return 0;
}

/* What a machine saw of a member in earlier rounds takes a while to tell. */
static bool sees(const struct job_strays *job, uint32_t peer, uint32_t who)
{
    const uint64_t words[] = {job->attempt, peer, who};

    return rng_mix(words, 3) % 4 == 0;
}

void local_strays(struct local *l,
                  uint32_t peer,
                  const struct job_strays *job,
                  const struct out *out)
{
    struct machine *m = &l->machines[peer];
    struct local_member one;

    m->strays = 0;
    for (uint32_t k = 0; k < job->n; k++) {
        uint32_t who;

        memcpy(&one, out->bytes + job->member.at + k * sizeof one, sizeof one);
        who = world_find(l->world, &one.id);
        if (m->accuses ? !l->machines[who].lies
                       : l->machines[who].lies && sees(job, peer, who)) {
            m->strays |= 1ULL << k;
        }
    }
}
