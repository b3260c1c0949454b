/* pipeline.c - the scenarios of pipelines, and what must hold in them.
 *
 *   pipeline         nobody dies: throughput, idle share of each stage
 *   pipeline-deaths  hosts die, freeze, lose edges, messages and work
 *
 * The oracle: every gradient is in one sum once; who takes part to the end has
 * counted all steps, each from the same attempt as those it counted with; of
 * one attempt no micro-batch is counted by two hosts of a stage, and where all
 * its hosts count, all micro-batches are. Where hosts only lose work nobody is
 * left out.
 */
#include <stdio.h>

#include "daemon/sim/pipeline_world.h"
#include "daemon/sim/sim.h"
#include "proto/base/err.h"

static const char *const idle_names[] = {
    "idle_stage_0", "idle_stage_1", "idle_stage_2", "idle_stage_3",
    "idle_stage_4", "idle_stage_5", "idle_stage_6", "idle_stage_7",
};

#define IDLE_MAX (sizeof idle_names / sizeof idle_names[0])

static struct pw_options defaults(const struct sim_options *opt)
{
    return (struct pw_options){
        .seed = opt->seed,
        .hosts = opt->peers,
        .stages = 3,
        .micro_batches = 8,
        .steps = 10,
        .slots = 4,
        .compute_ms = 100,
        .compute_sigma = 0.3,
        .backward = 2,
        .link_ms = 25,
        .link_sigma = 0.3,
        .transfer_ms = 20,
        .gather_ms = 3000,
        .notice_ms = 3000,
        .end_ms = 7200000,
    };
}

struct faults {
    uint32_t strikes, cuts, losses;
};

static int settings(const struct sim_options *opt,
                    struct pw_options *o,
                    struct faults *f,
                    struct sim_result *r)
{
    const struct sim_setting table[] = {
        {"stages", "of the model", 1, 16, NULL, &o->stages, NULL},
        {"micro_batches", "of a step, per host of the first stage", 1, 64, NULL,
         &o->micro_batches, NULL},
        {"steps", "inner steps", 1, 1000, NULL, &o->steps, NULL},
        {"slots", "micro-batches that a host holds", 1, 64, NULL, &o->slots,
         NULL},
        {"fixed", "1: routes do not change", 0, 1, NULL, &o->fixed, NULL},
        {"compute_ms", "a forward pass", 0, 1e6, &o->compute_ms, NULL, NULL},
        {"compute_sigma", "of its logarithm", 0, 3, &o->compute_sigma, NULL,
         NULL},
        {"backward", "a backward pass, in forward passes", 0, 10, &o->backward,
         NULL, NULL},
        {"link_ms", "one way", 0, 1e5, &o->link_ms, NULL, NULL},
        {"link_sigma", "of its logarithm", 0, 3, &o->link_sigma, NULL, NULL},
        {"transfer_ms", "activations of one micro-batch", 0, 1e6,
         &o->transfer_ms, NULL, NULL},
        {"unequal", "sigma of the hosts' speeds", 0, 3, &o->unequal, NULL,
         NULL},
        {"blind", "1: hosts do not know their speeds", 0, 1, NULL, &o->blind,
         NULL},
        {"lose", "of a thousand messages", 0, 200, NULL, &o->lose, NULL},
        {"strikes", "hosts that die or freeze", 0, 64, NULL, &f->strikes, NULL},
        {"cuts", "edges that break", 0, 64, NULL, &f->cuts, NULL},
        {"losses", "hosts that lose an attempt's work and go on", 0, 64, NULL,
         &f->losses, NULL},
    };
    int rv = sim_settings(opt, table, sizeof table / sizeof table[0], r);

    if (rv != 0) {
        return rv;
    }
    if (o->hosts < o->stages || o->hosts > PIPELINE_HOSTS_MAX ||
        (o->hosts / o->stages + 1) * o->micro_batches > PIPELINE_MICRO_MAX) {
        (void)snprintf(r->violation, sizeof r->violation,
                       "a pipeline has %u to %u peers, and at most %u "
                       "micro-batches a step",
                       o->stages, PIPELINE_HOSTS_MAX, PIPELINE_MICRO_MAX);
        return LOCO_EINVAL;
    }
    return 0;
}

/* ---- the oracle ------------------------------------------------------- */

static bool takes_part(const struct pw_host *h)
{
    return !h->dead && h->p.state != PIPELINE_OUT &&
           h->p.state != PIPELINE_STARVED;
}

static uint32_t micro_batches_of(const struct pipeline_world *w,
                                 uint64_t layout)
{
    uint32_t entries = 0;

    for (uint32_t k = 0; k < w->opt.hosts; k++) {
        entries += (layout >> k & 1) != 0 && w->list[k].stage == 0;
    }
    return entries * w->opt.micro_batches;
}

/* One stage of the attempt that host `first` counted the step from: adds up
 * what its hosts counted, and returns who did. */
static uint64_t add_stage(struct pipeline_world *w,
                          uint32_t step,
                          const struct pw_record *r,
                          uint32_t stage,
                          struct pw_set *all)
{
    uint64_t counted = 0;

    for (uint32_t i = 0; i < w->opt.hosts; i++) {
        const struct pw_record *q = &w->host[i].steps[step];

        if (!q->counted || q->attempt != r->attempt || q->layout != r->layout ||
            w->list[i].stage != stage) {
            continue;
        }
        counted |= 1ULL << i;
        for (size_t k = 0; k < PW_SET_WORDS; k++) {
            w->checked++;
            if ((all->word[k] & q->set.word[k]) != 0) {
                pw_fail(w, "step %u: two hosts of stage %u count the same",
                        step, stage);
            }
            all->word[k] |= q->set.word[k];
        }
    }
    return counted;
}

static void check_attempt(struct pipeline_world *w, uint32_t step, uint32_t i)
{
    const struct pw_record *r = &w->host[i].steps[step];
    uint32_t want = micro_batches_of(w, r->layout);

    if (pw_set_count(&r->set) == 0) {
        return; /* a sum of nothing names no attempt */
    }
    for (uint32_t s = 0; s < w->opt.stages; s++) {
        struct pw_set all = {{0}};
        uint64_t counted = add_stage(w, step, r, s, &all);
        uint64_t hosts = 0;

        for (uint32_t k = 0; k < w->opt.hosts; k++) {
            if (w->list[k].stage == s && (r->layout >> k & 1) != 0) {
                hosts |= 1ULL << k;
            }
        }
        if (pw_set_count(&all) > want ||
            (counted == hosts && pw_set_count(&all) != want)) {
            pw_fail(w, "step %u: stage %u counts %u of %u micro-batches", step,
                    s, pw_set_count(&all), want);
        }
    }
}

/* Both lists have the other to the end. (One that the others took for dead,
 * frozen for too long, may go on with others like it: two pipelines then.) */
static bool together(const struct pipeline_world *w, uint32_t i, uint32_t k)
{
    return takes_part(&w->host[i]) && takes_part(&w->host[k]) &&
           (w->host[i].p.layout >> k & 1) != 0 &&
           (w->host[k].p.layout >> i & 1) != 0;
}

/* Host i counted with host k: it had its READY, so k counts the same. */
static void
check_pair(struct pipeline_world *w, uint32_t step, uint32_t i, uint32_t k)
{
    const struct pw_record *a = &w->host[i].steps[step];
    const struct pw_record *b = &w->host[k].steps[step];

    w->checked++;
    if (pw_set_count(&a->set) > 0 && pw_set_count(&b->set) > 0 &&
        (a->layout >> k & 1) != 0 &&
        (a->attempt != b->attempt || a->layout != b->layout)) {
        pw_fail(w, "step %u: host %u counts attempt %u, host %u attempt %u",
                step, i, a->attempt, k, b->attempt);
    }
}

static void check_step(struct pipeline_world *w, uint32_t step)
{
    for (uint32_t i = 0; i < w->opt.hosts; i++) {
        const struct pw_host *h = &w->host[i];

        if (h->steps[step].counted) {
            check_attempt(w, step, i);
        }
        if (!takes_part(h)) {
            continue;
        }
        w->checked++;
        if (!h->steps[step].counted) {
            pw_fail(w, "host %u did not count step %u", i, step);
        }
        for (uint32_t k = 0; k < w->opt.hosts; k++) {
            if (k != i && together(w, i, k)) {
                check_pair(w, step, i, k);
            }
        }
    }
}

static void check(struct pipeline_world *w)
{
    for (uint32_t step = 0; step < w->opt.steps; step++) {
        check_step(w, step);
    }
    for (uint32_t i = 0; i < w->opt.hosts; i++) {
        const struct pw_host *h = &w->host[i];

        if (takes_part(h) && (!h->ended || h->p.state != PIPELINE_FINISHED)) {
            pw_fail(w, "host %u is not at the end", i);
        }
    }
}

/* Where nothing worse happens than work that is lost. */
static void check_all_are_in(struct pipeline_world *w)
{
    for (uint32_t i = 0; i < w->opt.hosts; i++) {
        w->checked++;
        if (w->host[i].p.state != PIPELINE_FINISHED) {
            pw_fail(w, "host %u was left out, and nothing had happened to it",
                    i);
        }
    }
}

/* ---- figures ---------------------------------------------------------- */

/* Hosts that died early count as idle. */
static void idle_figures(const struct pipeline_world *w,
                         uint64_t end_us,
                         struct sim_result *r)
{
    for (uint32_t s = 0; s < w->opt.stages && s < IDLE_MAX; s++) {
        double busy = 0;
        uint32_t hosts = 0;

        for (uint32_t i = 0; i < w->opt.hosts; i++) {
            if (w->list[i].stage == s) {
                busy += (double)w->host[i].busy_us;
                hosts++;
            }
        }
        sim_figure(r, idle_names[s], 1 - busy / hosts / (double)end_us,
                   SIM_MEAN);
    }
}

static void figures(const struct pipeline_world *w, struct sim_result *r)
{
    uint64_t end_us = 1, passes = 0, wasted = 0, states[3] = {0};
    uint32_t steps_made = 0;

    for (uint32_t i = 0; i < w->opt.hosts; i++) {
        const struct pw_host *h = &w->host[i];

        end_us = h->ended_us > end_us ? h->ended_us : end_us;
        passes += h->passes;
        wasted += h->wasted;
        states[0] += !h->dead && h->p.state == PIPELINE_FINISHED;
        states[1] += !h->dead && h->p.state == PIPELINE_OUT;
        states[2] += !h->dead && h->p.state == PIPELINE_STARVED;
        steps_made = h->p.step > steps_made ? h->p.step : steps_made;
    }
    sim_figure(r, "hosts_finished", (double)states[0], SIM_SUM);
    sim_figure(r, "hosts_left_out", (double)states[1], SIM_SUM);
    sim_figure(r, "hosts_starved", (double)states[2], SIM_SUM);
    sim_figure(r, "steps", steps_made, SIM_MIN);
    if (states[0] > 0) {
        double s = (double)end_us / 1e6;

        sim_figure(r, "virtual_s", s, SIM_MEAN);
        sim_figure(r, "micro_batches_per_s",
                   (double)(passes - wasted) / w->opt.stages / s, SIM_MEAN);
        idle_figures(w, end_us, r);
    }
    sim_figure(r, "work_thrown_away",
               passes > 0 ? (double)wasted / (double)passes : 0, SIM_MEAN);
    sim_figure(r, "sums_decided_by_another", (double)w->decided, SIM_SUM);
}

/* ---- scenarios -------------------------------------------------------- */

static void inflict(struct pipeline_world *w, const struct faults *f)
{
    /* Of a computing time without faults. */
    uint64_t span = (uint64_t)((double)(w->opt.steps * w->opt.micro_batches) *
                               w->opt.compute_ms * (1 + w->opt.backward)) +
                    1000;

    for (uint32_t i = 0; i < f->strikes; i++) {
        pw_strike(w, (uint32_t)pw_below(w, w->opt.hosts), pw_below(w, span),
                  pw_below(w, 2) * (500 + pw_below(w, 6000)));
    }
    for (uint32_t i = 0; i < f->cuts && w->opt.hosts > 1; i++) {
        uint32_t a = (uint32_t)pw_below(w, w->opt.hosts);
        uint32_t b = (uint32_t)pw_below(w, w->opt.hosts - 1);

        pw_cut(w, a, b + (b >= a), pw_below(w, span));
    }
    for (uint32_t i = 0; i < f->losses; i++) {
        pw_lose_work(w, (uint32_t)pw_below(w, w->opt.hosts), pw_below(w, span));
    }
}

static int run(const struct sim_options *opt,
               struct pw_options *o,
               struct faults *f,
               struct sim_result *r)
{
    struct pipeline_world *w;
    int rv = settings(opt, o, f, r);

    if (rv != 0) {
        return rv;
    }
    w = pw_open(o);
    if (w == NULL) {
        return LOCO_ENOMEM;
    }
    inflict(w, f);
    pw_run(w);
    if (w->why[0] == '\0') {
        check(w);
    }
    if (w->why[0] == '\0' && f->strikes + f->cuts + o->lose == 0) {
        check_all_are_in(w);
    }
    figures(w, r);
    r->trace_hash = w->hash;
    r->invariants_checked = w->checked;
    if (w->why[0] != '\0') {
        r->violations = 1;
        (void)snprintf(r->violation, sizeof r->violation, "%s", w->why);
        fprintf(stderr, "sim: %s --seed %llu: %s\n", opt->scenario,
                (unsigned long long)opt->seed, w->why);
    }
    pw_close(w);
    return r->violations == 0 ? 0 : 1;
}

int pipeline_plain_run(const struct sim_options *opt, struct sim_result *r)
{
    struct pw_options o = defaults(opt);
    struct faults f = {0};

    return run(opt, &o, &f, r);
}

/* Small steps with short times, so that faults meet every phase; shapes and
 * slots vary with the seed. */
int pipeline_deaths_run(const struct sim_options *opt, struct sim_result *r)
{
    struct pw_options o = defaults(opt);
    struct faults f = {1 + (uint32_t)(opt->seed % 3),
                       (uint32_t)(opt->seed / 3 % 2), 0};

    o.stages = 1 + (uint32_t)(opt->seed / 7 % (o.hosts < 4 ? o.hosts : 4));
    o.micro_batches = 1 + (uint32_t)(opt->seed % 4);
    o.slots = 1 + (uint32_t)(opt->seed / 5 % 3);
    o.steps = 6;
    o.lose = opt->seed % 4 == 0 ? 50 : 0;
    o.unequal = opt->seed / 2 % 2 == 0 ? 0.7 : 0;
    o.compute_ms = 10;
    o.link_ms = 20;
    o.link_sigma = 0.8;
    o.transfer_ms = 5;
    o.gather_ms = 2000;
    return run(opt, &o, &f, r);
}
