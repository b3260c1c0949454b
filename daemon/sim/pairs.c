/* pairs.c - peers of the crowd, and one run of it; see pairs.h. */
#include "daemon/sim/pairs.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/sim/fellow.h"
#include "daemon/sim/sim.h"
#include "proto/base/err.h"
#include "proto/base/rng.h"

#define HOP_MS 2000
/* Training begins when nine in ten know of each other, or after this. */
#define START_MS 60000

uint64_t pairs_draw(struct pairs *s, uint64_t n)
{
    return rng_below(&s->rng, n);
}

bool pairs_healthy(const struct pairs *s, uint32_t q)
{
    return world_alive(s->world, q) && !world_frozen(s->world, q);
}

bool pairs_quiet(const struct pairs *s)
{
    return s->opt.fault == PAIRS_PLAIN || s->opt.fault == PAIRS_SLOW;
}

/* ---- one peer --------------------------------------------------------- */

/* A message of the pair's, from the peer in that row. */
static void on_message(struct pairs_peer *p,
                       int row,
                       enum message_type type,
                       struct out *out)
{
    const void *msg = p->crowd->scratch;

    if (type == MESSAGE_PAIR) {
        pair_on_offer(&p->pair, row, msg, p->members.now_ms, out);
    } else if (type == MESSAGE_PAIR_HAVE) {
        pair_on_have(&p->pair, row, msg, p->members.now_ms, out);
    }
}

static void on_local(struct pairs_peer *p,
                     const struct local_event *e,
                     uint64_t now_ms,
                     struct out *out)
{
    if (e->type == LOCAL_TRAINED) {
        p->training = false;
        p->packed_ms = now_ms;
        pair_pack(&p->pair, now_ms, out);
    } else if (e->type == LOCAL_HASHED) {
        pair_hashed(&p->pair, e->hashed.request, e->rc, &e->hashed.hash, now_ms,
                    out);
    } else if (e->type == LOCAL_APPLIED) {
        p->applying = false;
        p->round = e->applied.round;
        pair_finish(&p->pair, out);
    }
}

static void train(struct pairs_peer *p, struct out *out)
{
    struct job *job = out_job(out, JOB_TRAIN);

    if (job != NULL) {
        job->train.steps = 1;
        p->training = true;
    }
}

static void apply(struct pairs_peer *p, struct out *out)
{
    struct job *job = out_job(out, JOB_PAIR);

    if (job != NULL) {
        job->pair.turn = p->pair.turn;
        job->pair.alone = !pair_with_partner(&p->pair);
        p->applying = true;
    }
}

/* What follows from the state as it is, as in daemon/node/pairs.c. */
static void advance(struct pairs_peer *p, uint64_t now_ms, struct out *out)
{
    struct pairs *s = p->crowd;

    if (!p->loaded && p->members.n_linked > 0) {
        p->loaded = pairs_load(s, p->number);
        p->beat.has_view = p->loaded;
    }
    if (p->loaded && p->round < s->opt.rounds && p->pair.phase == PAIR_IDLE &&
        !p->applying &&
        (p->round > 0 || now_ms > START_MS ||
         pair_n_members(&p->pair) > s->opt.peers * 9 / 10)) {
        pair_begin(&p->pair, p->round + 1, s->opt.rounds, now_ms, out);
        train(p, out);
    }
    if (p->pair.phase != PAIR_IDLE) {
        pair_tick(&p->pair, now_ms, out);
    }
    if (p->pair.phase == PAIR_DECIDED && !p->applying) {
        pairs_check_decided(s, p->number);
        apply(p, out);
    }
    p->beat.round = p->round;
}

static void step(void *self, const struct event *ev, struct out *out)
{
    struct pairs_peer *p = self;
    struct members_lost lost;
    int row;

    if (ev->now_ms - p->stepped_ms > FELLOW_GAP_MS && p->stepped_ms != 0) {
        members_gap(&p->members, ev->now_ms);
        pair_gap(&p->pair, ev->now_ms);
    }
    p->stepped_ms = ev->now_ms;
    row = fellow_event(&p->members, p->life, p->crowd->scratch, ev, out);
    if (row == LOCO_EPROTO) {
        sim_fail(p->crowd->r, "peer %u got a malformed message", p->number);
    } else if (row != MEMBERS_NONE) {
        on_message(p, row, (enum message_type)ev->recv.message, out);
    } else if (ev->type == EVENT_SEG_DONE) {
        if (ev->seg_done.rc == 0 && !ev->seg_done.sent) {
            members_alive(&p->members, &ev->seg_done.segment.peer, ev->now_ms);
        }
        pair_seg_done(&p->pair, &ev->seg_done, ev->now_ms, out);
    } else if (ev->type == EVENT_LOCAL) {
        on_local(p, &ev->local, ev->now_ms, out);
    }
    advance(p, ev->now_ms, out);
    members_tick(&p->members, ev->now_ms, &p->beat, out);
    while (members_next_lost(&p->members, &lost)) {
    }
}

static uint64_t deadline(const void *self)
{
    const struct pairs_peer *p = self;
    uint64_t a = members_deadline(&p->members), b = pair_deadline(&p->pair);

    return a < b ? a : b;
}

static void bootstrap(struct pairs *s, struct pairs_peer *p)
{
    for (uint32_t k = 0; k < 3 && s->opt.peers > 1; k++) {
        uint32_t q = (uint32_t)pairs_draw(s, p->lives > 1    ? s->opt.peers
                                             : p->number > 0 ? p->number
                                                             : s->opt.peers);
        struct address a = world_address(s->world, q);

        if (q != p->number && (p->number > 0 || p->lives > 1)) {
            members_bootstrap_add(&p->members, &a);
        }
    }
}

void pairs_start(void *data, uint64_t number)
{
    struct pairs *s = data;
    struct pairs_peer *p = &s->peers[number];
    const struct identity *id = world_identity(s->world, (uint32_t)number);
    uint64_t words[] = {s->opt.seed, number, ++p->lives};
    struct members_options mo = fellow_options(id, rng_mix(words, 3));
    struct pair_options po = {.self = id->id,
                              .life = mo.life,
                              .seed = s->opt.seed,
                              .first_attempt = (mo.life >> 24) << 20,
                              .hop_ms = HOP_MS};
    struct core core = {p, step, deadline};

    mo.hedge_ms = 700;
    p->life = mo.life;
    p->stepped_ms = 0;
    p->beat = (struct heartbeat){.life = p->life};
    if (p->members_memory == NULL) {
        p->members_memory = malloc(members_bytes(&mo));
    }
    if (p->members_memory == NULL) {
        sim_fail(s->r, "out of memory");
        return;
    }
    members_init(&p->members, &mo, p->members_memory, world_now(s->world));
    p->members.observed.port = world_address(s->world, p->number).port;
    bootstrap(s, p);
    pair_init(&p->pair, &po, &p->members);
    pair_configure(&p->pair, &s->terms);
    world_start(s->world, p->number, &core);
}

static void on_after(void *self,
                     uint32_t number,
                     const struct event *ev,
                     const struct out *out)
{
    struct pairs *s = self;

    (void)ev;
    (void)out;
    s->r->invariants_checked++;
    if (s->peers[number].members.n_linked > LINKS_MAX / 2 &&
        world_now(s->world) > START_MS) {
        sim_fail(s->r, "peer %u has %u links", number,
                 s->peers[number].members.n_linked);
    }
}

/* ---- one run ---------------------------------------------------------- */

static int take_memory(struct pairs *s)
{
    size_t n = s->opt.n_params * sizeof(float);
    int rc = 0;

    s->peers = calloc(s->opt.peers, sizeof *s->peers);
    s->group = calloc(s->opt.peers, sizeof *s->group);
    s->scratch = malloc(message_struct_max());
    s->a = malloc(n);
    s->b = malloc(n);
    if (s->peers == NULL || s->group == NULL || s->scratch == NULL ||
        s->a == NULL || s->b == NULL) {
        return LOCO_ENOMEM;
    }
    for (uint32_t q = 0; q < s->opt.peers && rc == 0; q++) {
        rc = pairs_machine_open(s, q);
    }
    return rc;
}

static int make(struct pairs *s, bool print_trace)
{
    struct world_options wo = {.seed = s->opt.seed,
                               .n_peers = s->opt.peers,
                               .latency_min_ms = 5,
                               .latency_max_ms = 100,
                               .jitter_ms = 10,
                               .bytes_per_s =
                                   1000, /* a payload takes a second */
                               .dial_timeout_ms = 5000,
                               .transport_timeout_ms = 20000,
                               .cut = pairs_cut,
                               .cut_self = s,
                               .print_trace = print_trace};
    const struct world_calls calls = {.self = s, .after = on_after};
    int rc;

    s->codec = codec_get(s->opt.wire);
    s->vector_bytes = s->codec->bytes(s->opt.n_params);
    s->terms =
        (struct run_terms){.n_params = s->opt.n_params,
                           .block = s->codec->block,
                           .segment_elements = s->opt.segment_elements,
                           .segment_wire_bytes = (uint32_t)s->codec->bytes(
                               s->opt.segment_elements),
                           .grace_ms = s->opt.grace_ms,
                           .progress_floor_bytes_per_s = 100,
                           .stop_rounds = s->opt.rounds};
    rc = take_memory(s);
    rc = rc != 0 ? rc : world_open(&s->world, &wo, &calls);
    if (rc == 0) {
        pairs_machines_serve(s);
    }
    return rc;
}

static void release(struct pairs *s)
{
    world_close(s->world);
    for (uint32_t q = 0; s->peers != NULL && q < s->opt.peers; q++) {
        pairs_machine_free(&s->peers[q]);
    }
    free(s->peers);
    free(s->group);
    free(s->scratch);
    free(s->a);
    free(s->b);
}

static void figures(struct pairs *s)
{
    const struct world_stats *w = world_stats(s->world);
    char why[SIM_TEXT_MAX];
    struct sim_result *r = s->r;
    double turns = (double)(s->n_with + s->n_alone);

    r->trace_hash = world_trace_hash(s->world);
    sim_figure(r, "virtual_ms", (double)world_now(s->world), SIM_SUM);
    sim_figure(r, "steps", (double)w->steps, SIM_SUM);
    sim_figure(r, "turns_with_partner", (double)s->n_with, SIM_SUM);
    sim_figure(r, "turns_alone", (double)s->n_alone, SIM_SUM);
    sim_figure(r, "alone_odd", (double)s->ends[PAIR_END_ODD], SIM_SUM);
    sim_figure(r, "alone_unmet", (double)s->ends[PAIR_END_UNMET], SIM_SUM);
    sim_figure(r, "alone_passed", (double)s->ends[PAIR_END_PASSED], SIM_SUM);
    sim_figure(r, "alone_late", (double)s->ends[PAIR_END_LATE], SIM_SUM);
    sim_figure(r, "unconfirmed", (double)s->n_holder, SIM_SUM);
    sim_figure(r, "one_sided", (double)s->n_one_sided, SIM_SUM);
    sim_figure(r, "pairs_checked", (double)s->n_checked, SIM_SUM);
    sim_figure(r, "share_with_partner",
               turns > 0 ? (double)s->n_with / turns : 0, SIM_MEAN);
    sim_figure(r, "transfers_resumed", (double)s->n_resumed, SIM_SUM);
    sim_figure(r, "moved_on", (double)s->n_moved_on, SIM_SUM);
    sim_figure(r, "longest_wait_ms", s->longest_ms, SIM_MAX);
    sim_figure(r, "spread_1e6", 1e6 * pairs_spread(s), SIM_MEAN);
    if (!world_is_sound(s->world, why, sizeof why)) {
        sim_fail(s->r, "%s", why);
    }
}

static bool all_done(const struct pairs *s)
{
    for (uint32_t q = 0; q < s->opt.peers; q++) {
        if (world_alive(s->world, q) && s->peers[q].round < s->opt.rounds) {
            return false;
        }
    }
    return true;
}

static void run(struct pairs *s)
{
    uint64_t look = 0;

    pairs_schedule(s);
    while (s->r->violations == 0 && world_step(s->world, s->end_ms)) {
        if (world_now(s->world) >= look) {
            look = world_now(s->world) + 1000;
            if (world_now(s->world) > 10000 && all_done(s)) {
                break;
            }
        }
    }
    if (s->r->violations == 0) {
        pairs_check_end(s);
    }
    figures(s);
}

int sim_pairs_run(const struct sim_options *opt, struct sim_result *result)
{
    struct pairs s = {.r = result};
    struct pairs_options *o = &s.opt;
    int rc;

    *o = (struct pairs_options){.peers = opt->peers,
                                .faults = opt->peers / 4 + 1,
                                .fault = UINT32_MAX,
                                .n_params = 256,
                                .segment_elements = 16,
                                .train_ms = 8000,
                                .work_ms = 20,
                                .grace_ms = 5000,
                                .rounds = opt->rounds > 0 ? opt->rounds : 8,
                                .seed = opt->seed,
                                .wire = CODEC_BF16};
    const struct sim_setting table[] = {
        {"fault", "", 0, PAIRS_FAULT_COUNT - 1, .u32 = &o->fault},
        {"faults", "", 0, 1e5, .u32 = &o->faults},
        {"train_ms", "", 1, 1e6, .u32 = &o->train_ms},
        {"grace_ms", "", 100, 1e6, .u32 = &o->grace_ms},
        {"params", "", 1, 1e6, .u32 = &o->n_params},
        {"segment_elements", "", 1, 1e6, .u32 = &o->segment_elements},
    };

    rc = sim_settings(opt, table, sizeof table / sizeof table[0], result);
    if (rc != 0) {
        return rc;
    }
    s.rng = opt->seed ^ 0x7061697273;
    if (o->fault >= PAIRS_FAULT_COUNT) {
        o->fault = (uint32_t)pairs_draw(&s, PAIRS_FAULT_COUNT);
    }
    rc = make(&s, opt->print_trace);
    if (rc == 0) {
        run(&s);
        if (result->violations > 0 && !opt->quiet_failure) {
            world_print_trace(s.world);
            fprintf(stderr, "sim: pairs, fault %u: %s\n", o->fault,
                    result->violation);
        }
    }
    release(&s);
    return rc != 0 ? rc : result->violations > 0;
}
