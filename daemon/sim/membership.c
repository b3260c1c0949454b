/* membership.c - see membership.h. */
#include "daemon/sim/membership.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/sim/fellow.h"
#include "daemon/sim/membership_internal.h"
#include "daemon/sim/sim.h"
#include "p2p/swarm/members.h"
#include "proto/base/err.h"
#include "proto/base/rng.h"

/* Frame header, record length, tag: what a message costs beside its payload. */
#define MESSAGE_COST 28
/* Our half of the three handshake records with their lengths. */
#define HANDSHAKE_COST 210

uint64_t crowd_draw(struct crowd *s, uint64_t n)
{
    return rng_below(&s->rng, n);
}

/* ---- one peer --------------------------------------------------------- */

static void step(void *self, const struct event *ev, struct out *out)
{
    struct crowd_peer *p = self;
    struct members_lost lost;
    int row;

    if (ev->now_ms - p->stepped_ms > FELLOW_GAP_MS && p->stepped_ms != 0) {
        members_gap(&p->members, ev->now_ms);
    }
    p->stepped_ms = ev->now_ms;
    row = fellow_event(&p->members, p->beat.life, p->crowd->scratch, ev, out);
    if (row == LOCO_EPROTO) {
        sim_fail(p->crowd->r, "peer %u got a malformed message", p->number);
    } else if (row != MEMBERS_NONE && ev->recv.message == MESSAGE_FORWARD) {
        (void)members_forwarded(&p->members, row, p->crowd->scratch, out);
    }
    members_tick(&p->members, ev->now_ms, &p->beat, out);
    while (members_next_lost(&p->members, &lost)) {
        crowd_lost(p->crowd, p->number, &p->members.peers[lost.peer].id);
    }
}

/* As a node, which looks every 250 ms. */
static uint64_t deadline(const void *self)
{
    const struct crowd_peer *p = self;

    return members_deadline(&p->members);
}

static void watch_group(struct crowd *s, uint32_t number)
{
    struct crowd_peer *p = &s->peers[number];
    uint32_t first = s->place[number] / s->group * s->group, n = 0;
    int rows[VIEW_MEMBERS_MAX];
    struct hash32 view = {{1}};

    view.b[0] = (uint8_t)(1 + first % 251);
    view.b[1] = (uint8_t)(first / 251);
    for (uint32_t k = first; k < first + s->group && k < s->n; k++) {
        uint32_t q = s->at_place[k];
        const struct identity *id = world_identity(s->world, q);
        struct address a = world_address(s->world, q);

        rows[n++] = members_name(&p->members, &id->id, &a, id->public,
                                 world_now(s->world));
    }
    members_watch(&p->members, rows, n, &view, world_now(s->world));
}

void crowd_watch(void *data, uint64_t number)
{
    struct crowd *s = data;

    if (world_alive(s->world, (uint32_t)number)) {
        watch_group(s, (uint32_t)number);
    }
}

void crowd_start(void *data, uint64_t number)
{
    struct crowd *s = data;
    struct crowd_peer *p = &s->peers[number];
    const struct identity *id = world_identity(s->world, (uint32_t)number);
    uint64_t words[] = {s->opt.seed, number, ++p->life};
    struct members_options opt = fellow_options(id, rng_mix(words, 3));
    struct core core = {p, step, deadline};
    struct address boot;

    opt.rows = s->rows;
    p->crowd = s;
    p->number = (uint32_t)number;
    p->stepped_ms = 0;
    p->beat = (struct heartbeat){.life = opt.life};
    p->memory = p->memory == NULL ? malloc(members_bytes(&opt)) : p->memory;
    if (p->memory == NULL) {
        sim_fail(s->r, "out of memory");
        return;
    }
    members_init(&p->members, &opt, p->memory, world_now(s->world));
    p->members.observed.port = world_address(s->world, p->number).port;
    for (int k = 0; k < 2 && number > 0; k++) {
        boot = world_address(s->world, (uint32_t)crowd_draw(s, number));
        members_bootstrap_add(&p->members, &boot);
    }
    if (number == 0 && p->life > 1) {
        boot = world_address(s->world, 1);
        members_bootstrap_add(&p->members, &boot);
    }
    world_start(s->world, p->number, &core);
}

/* ---- what is looked at after each step -------------------------------- */

static void
count_bytes(struct crowd_peer *p, const struct event *ev, const struct out *out)
{
    for (uint32_t k = 0; k < out->n; k++) {
        const struct action_send *send = &out->action[k].send;

        if (out->action[k].type == ACTION_SEND) {
            p->bytes += send->bytes.len + MESSAGE_COST;
            p->bytes_of[send->message & 31] += send->bytes.len + MESSAGE_COST;
        }
    }
    p->bytes += ev->type == EVENT_LINK_UP ? HANDSHAKE_COST : 0;
}

static void note_declared(struct crowd *s, struct crowd_peer *p, uint64_t now)
{
    const struct members *m = &p->members;

    if (m->counts.declared == p->declared) {
        return;
    }
    p->declared = m->counts.declared;
    for (uint32_t i = 0; i < m->n_rumours; i++) {
        const struct members_rumour *r = &m->rumours[i];

        if (r->used && r->at_ms == now && r->state == PEER_DEAD) {
            crowd_declared(s, p->number, &r->info.id);
        }
    }
}

static void on_after(void *self,
                     uint32_t number,
                     const struct event *ev,
                     const struct out *out)
{
    struct crowd *s = self;
    struct crowd_peer *p = &s->peers[number];

    count_bytes(p, ev, out);
    s->r->invariants_checked++;
    if (!world_alive(s->world, number)) {
        return;
    }
    note_declared(s, p, world_now(s->world));
    crowd_look(s, number);
    if (p->members.n_active > p->members.opt.links_wanted) {
        sim_fail(s->r, "peer %u has %u neighbours", number,
                 p->members.n_active);
    }
    if (p->members.n_linked >
        (world_now(s->world) < s->idle_from_ms ? LINKS_MAX : CROWD_LINKS_MAX)) {
        sim_fail(s->r, "peer %u has %u links", number, p->members.n_linked);
    }
}

/* ---- one run ---------------------------------------------------------- */

static int make(struct crowd *s)
{
    struct world_options wo = {.seed = s->opt.seed,
                               .n_peers = s->n,
                               .latency_min_ms = 5,
                               .latency_max_ms = 100,
                               .jitter_ms = 10,
                               .bytes_per_s = 1 << 20,
                               .dial_timeout_ms = 5000,
                               .transport_timeout_ms = 20000,
                               .resend_per_million = s->opt.loss_per_million,
                               .resend_ms = 200,
                               .cut = crowd_cut,
                               .cut_self = s};
    const struct world_calls calls = {.self = s, .after = on_after};

    s->peers = calloc(s->n, sizeof *s->peers);
    s->place = calloc(s->n, sizeof *s->place);
    s->at_place = calloc(s->n, sizeof *s->at_place);
    s->parts = calloc(s->n, sizeof *s->parts);
    s->scratch = malloc(message_struct_max());
    if (s->peers == NULL || s->place == NULL || s->at_place == NULL ||
        s->parts == NULL || s->scratch == NULL) {
        return LOCO_ENOMEM;
    }
    rng_perm(s->at_place, s->n, s->opt.seed);
    for (uint32_t k = 0; k < s->n; k++) {
        s->place[s->at_place[k]] = k;
    }
    return world_open(&s->world, &wo, &calls);
}

static void finish(struct crowd *s)
{
    const struct world_stats *stats = world_stats(s->world);
    char why[SIM_TEXT_MAX];

    s->r->trace_hash = world_trace_hash(s->world);
    sim_figure(s->r, "virtual_ms", (double)world_now(s->world), SIM_SUM);
    sim_figure(s->r, "steps", (double)stats->steps, SIM_SUM);
    if (!world_is_sound(s->world, why, sizeof why)) {
        sim_fail(s->r, "%s", why);
    }
}

/* 0; 1 where an invariant broke; LOCO_ENOMEM. */
static int run(struct crowd *s)
{
    struct membership_options *o = &s->opt;
    int rc;

    s->rng = o->seed ^ 0x737761726d;
    s->n = o->peers > 0 ? o->peers : 200;
    s->group = o->group > 0 ? o->group : o->partition ? 1 : 16;
    s->rows = o->rows > 0 ? o->rows : s->n > 2000 ? 256 : PEERS_MAX;
    s->start_step = s->n > 2000 ? 5 : 10;
    o->parts = o->parts > 0 ? o->parts : 2;
    o->cut_ms = o->cut_ms > 0 ? o->cut_ms : 60000;
    o->faults = o->faults > 0 ? o->faults : 20;
    rc = make(s);
    if (rc == 0) {
        crowd_schedule(s);
        while (s->r->violations == 0 && !s->done &&
               world_step(s->world, s->end_ms)) {
        }
        if (s->r->violations == 0) {
            crowd_finish(s);
        }
        finish(s);
    }
    world_close(s->world);
    for (uint32_t q = 0; s->peers != NULL && q < s->n; q++) {
        free(s->peers[q].memory);
    }
    free(s->peers);
    free(s->place);
    free(s->at_place);
    free(s->parts);
    free(s->delays);
    free(s->scratch);
    return rc != 0 ? rc : s->r->violations > 0;
}

/* ---- the scenarios ---------------------------------------------------- */

static void figures_of_deaths(const struct membership_result *m,
                              struct sim_result *r)
{
    sim_figure(r, "faults", m->faults, SIM_SUM);
    sim_figure(r, "group_ms_max", m->group_ms_max, SIM_MAX);
    sim_figure(r, "all_ms_median", m->all_ms_median, SIM_MEAN);
    sim_figure(r, "all_ms_p99", m->all_ms_p99, SIM_MAX);
    sim_figure(r, "all_ms_max", m->all_ms_max, SIM_MAX);
    sim_figure(r, "unknown", m->unknown, SIM_SUM);
}

static void figures(const struct membership_result *m, struct sim_result *r)
{
    sim_figure(r, "bytes_per_s_idle", m->idle_bytes_per_s, SIM_MEAN);
    sim_figure(r, "bytes_per_s_idle_max", m->idle_bytes_per_s_max, SIM_MAX);
    sim_figure(r, "links", m->links, SIM_MEAN);
    sim_figure(r, "neighbours", m->neighbours, SIM_MEAN);
    sim_figure(r, "false_alarms", (double)m->false_alarms, SIM_SUM);
    sim_figure(r, "peer_days", m->peer_days, SIM_SUM);
    sim_figure(r, "heartbeat_bytes_per_s", m->by_type[MESSAGE_HEARTBEAT],
               SIM_MEAN);
    sim_figure(r, "pulse_bytes_per_s", m->by_type[MESSAGE_PULSE], SIM_MEAN);
    sim_figure(r, "rumour_bytes_per_s", m->by_type[MESSAGE_GOSSIP], SIM_MEAN);
    sim_figure(r, "shuffle_bytes_per_s", m->by_type[MESSAGE_SHUFFLE], SIM_MEAN);
    sim_figure(r, "stale_share", m->stale_share, SIM_MAX);
    sim_figure(r, "known_by_mean", m->known_by_mean, SIM_MEAN);
    sim_figure(r, "known_by_min", m->known_by_min, SIM_MIN);
}

static int scenario(const struct sim_options *opt,
                    bool partition,
                    struct sim_result *result)
{
    struct crowd s = {
        .opt = {.partition = partition, .peers = opt->peers, .seed = opt->seed},
        .r = result};
    struct membership_options *o = &s.opt;
    const struct sim_setting table[] = {
        {"group", "", 1, VIEW_MEMBERS_MAX, .u32 = &o->group},
        {"rows", "", 128, PEERS_MAX, .u32 = &o->rows},
        {"faults", "", 1, 1e6, .u32 = &o->faults},
        {"link.loss_per_million", "", 0, 900000, .u32 = &o->loss_per_million},
        {"parts", "", 1, 1000, .u32 = &o->parts},
        {"cut_ms", "", 1, 1e7, .u64 = &o->cut_ms},
    };
    int rc = sim_settings(opt, table, sizeof table / sizeof table[0], result);

    rc = rc == 0 ? run(&s) : rc;
    if (rc < 0) {
        return rc;
    }
    figures(&s.m, result);
    if (partition) {
        sim_figure(result, "noticed_ms", (double)s.m.noticed_ms, SIM_MAX);
        sim_figure(result, "whole_ms", (double)s.m.whole_ms, SIM_MAX);
    } else {
        figures_of_deaths(&s.m, result);
    }
    return rc;
}

int membership_deaths_run(const struct sim_options *opt,
                          struct sim_result *result)
{
    return scenario(opt, false, result);
}

int membership_partition_run(const struct sim_options *opt,
                             struct sim_result *result)
{
    return scenario(opt, true, result);
}
