/* world.c - see world.h. */
#include "daemon/sim/world/world.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/sim/world/internal.h"
#include "p2p/prefix.h"
#include "proto/base/err.h"
#include "proto/base/rng.h"

void *world_alloc(size_t bytes)
{
    void *p = calloc(1, bytes > 0 ? bytes : 1);

    if (p == NULL) {
        fprintf(stderr, "sim: out of memory\n");
        abort();
    }
    return p;
}

static void *grow(void *p, uint32_t *cap, size_t size)
{
    *cap = *cap == 0 ? 64 : *cap * 2;
    p = realloc(p, *cap * size);
    if (p == NULL) {
        fprintf(stderr, "sim: out of memory\n");
        abort();
    }
    return p;
}

/* ---- what will happen ------------------------------------------------- */

/* With its old seq: what waited goes before what came later. */
void world_push_again(struct world *w, struct entry e)
{
    if (!agenda_put_again(&w->agenda, &e)) {
        fprintf(stderr, "sim: out of memory\n");
        abort();
    }
}

void world_push(struct world *w, struct entry e)
{
    e.seq = w->seq++;
    world_push_again(w, e);
}

void entry_list_add(struct entry_list *list, const struct entry *entry)
{
    if (list->n == list->cap) {
        list->at = grow(list->at, &list->cap, sizeof *list->at);
    }
    list->at[list->n++] = *entry;
}

/* Channels and data connections are owned elsewhere. */
void entry_free(struct entry *e)
{
    if (e->kind == ENTRY_EVENT || e->kind == ENTRY_CALL ||
        e->kind == ENTRY_DIAL || e->kind == ENTRY_LINK_UP ||
        e->kind == ENTRY_MESSAGE || e->kind == ENTRY_SAVED ||
        e->kind == ENTRY_HELD) {
        free(e->ptr);
    }
    e->ptr = NULL;
}

/* ---- open, close, who is who ------------------------------------------ */

static void name_peers(struct world *w)
{
    for (uint32_t i = 0; i < w->opt.n_peers; i++) {
        struct world_peer *p = &w->peers[i];
        uint64_t words[] = {w->opt.seed, 0x70656572, i};
        uint32_t at = i;

        identity_fake(&p->identity, rng_mix(words, 3));
        if (w->opt.twin_of > 0 && i == w->opt.n_peers - 1) {
            p->identity = w->peers[w->opt.twin_of - 1].identity;
        }
        prefix_map_v4(p->address.ip);
        p->address.ip[12] =
            i >= w->opt.public_from && i < w->opt.public_to ? 89 : 10;
        p->address.ip[13] = (uint8_t)(i >> 16);
        p->address.ip[14] = (uint8_t)(i >> 8);
        p->address.ip[15] = (uint8_t)i;
        p->address.port = 4000;
        p->armed_ms = CORE_NEVER;
        for (; at > 0 && id_cmp(&w->peers[w->by_id[at - 1]].identity.id,
                                &p->identity.id) > 0;
             at--) {
            w->by_id[at] = w->by_id[at - 1];
        }
        w->by_id[at] = i;
    }
}

int world_open(struct world **world,
               const struct world_options *opt,
               const struct world_calls *calls)
{
    struct world *w = calloc(1, sizeof *w);

    assert(opt->n_peers > 0 && opt->latency_max_ms >= opt->latency_min_ms);
    if (w == NULL) {
        return LOCO_ENOMEM;
    }
    w->opt = *opt;
    w->calls = *calls;
    w->rng = opt->seed ^ 0x776f726c64;
    w->trace = 0xCBF29CE484222325U;
    w->now_ms = 1000;
    w->agenda.size = sizeof(struct entry);
    w->peers = world_alloc(opt->n_peers * sizeof *w->peers);
    w->by_id = world_alloc(opt->n_peers * sizeof *w->by_id);
    w->bulks =
        world_alloc((size_t)opt->n_peers * opt->n_peers * sizeof *w->bulks);
    w->out = world_alloc(sizeof *w->out);
    name_peers(w);
    *world = w;
    return 0;
}

void world_set_machines(struct world *w, const struct world_machines *machines)
{
    w->machines = *machines;
}

void world_close(struct world *w)
{
    struct entry e;

    if (w == NULL) {
        return;
    }
    for (uint32_t i = 0; i < w->opt.n_peers; i++) {
        struct world_peer *p = &w->peers[i];

        for (uint32_t k = 0; k < p->deferred.n; k++) {
            entry_free(&p->deferred.at[k]);
        }
        free(p->deferred.at);
        free(p->record);
    }
    while (agenda_take(&w->agenda, &e)) {
        entry_free(&e);
    }
    agenda_free(&w->agenda);
    link_free(w);
    world_bulk_free(w);
    relay_free(w);
    free(w->peers);
    free(w->by_id);
    free(w->bulks);
    free(w->out);
    free(w);
}

uint64_t world_now(const struct world *w)
{
    return w->now_ms;
}

uint64_t world_trace_hash(const struct world *w)
{
    return w->trace;
}

const struct world_stats *world_stats(const struct world *w)
{
    return &w->stats;
}

const struct identity *world_identity(const struct world *w, uint32_t peer)
{
    return &w->peers[peer].identity;
}

struct address world_address(const struct world *w, uint32_t peer)
{
    return w->peers[peer].address;
}

uint32_t world_find(const struct world *w, const struct peer_id *id)
{
    uint32_t lo = 0, hi = w->opt.n_peers;

    while (lo < hi) {
        uint32_t mid = (lo + hi) / 2;

        if (id_cmp(&w->peers[w->by_id[mid]].identity.id, id) < 0) {
            lo = mid + 1;
        } else {
            hi = mid;
        }
    }
    return lo < w->opt.n_peers && id_eq(&w->peers[w->by_id[lo]].identity.id, id)
               ? w->by_id[lo]
               : w->opt.n_peers;
}

bool world_alive(const struct world *w, uint32_t peer)
{
    return w->peers[peer].alive;
}

bool world_frozen(const struct world *w, uint32_t peer)
{
    return w->peers[peer].frozen;
}

bool world_blocked(const struct world *w, uint32_t from, uint32_t to, bool bulk)
{
    return w->peers[from].group != w->peers[to].group ||
           (w->opt.cut != NULL && w->opt.cut(w->opt.cut_self, from, to, bulk));
}

bool world_cut(const struct world *w, uint32_t a, uint32_t b)
{
    return world_blocked(w, a, b, false) || world_blocked(w, b, a, false);
}

uint64_t world_resend_ms(struct world *w)
{
    uint64_t wait_ms = w->opt.resend_ms, late_ms = 0;

    while (w->opt.resend_per_million > 0 && late_ms < 60000 &&
           rng_below(&w->rng, 1000000) < w->opt.resend_per_million) {
        late_ms += wait_ms;
        wait_ms *= 2;
    }
    return late_ms;
}

/* The base of a directed pair is a function of the seed: no table. */
uint32_t world_least_latency(struct world *w, uint32_t from, uint32_t to)
{
    uint64_t words[] = {w->opt.seed, 0x6c6174, from, to};
    uint32_t span = w->opt.latency_max_ms - w->opt.latency_min_ms + 1;

    if (w->opt.latency != NULL) {
        return w->opt.latency(w->opt.rate_self, from, to);
    }
    return w->opt.latency_min_ms + (uint32_t)(rng_mix(words, 4) % span);
}

uint32_t world_latency(struct world *w, uint32_t from, uint32_t to)
{
    uint32_t ms = world_least_latency(w, from, to);

    if (w->opt.jitter_ms > 0) {
        ms += (uint32_t)rng_below(&w->rng, w->opt.jitter_ms + 1);
    }
    return ms;
}

/* ---- steps ------------------------------------------------------------ */

/* Whether the peer asks for one tick after the other without end. */
static bool spins(struct world *w, uint32_t peer)
{
    struct world_peer *p = &w->peers[peer];

    if (p->spin_ms != w->now_ms) {
        p->spin_ms = w->now_ms;
        p->spin = 0;
    }
    return p->spin > WORLD_SPIN_MAX;
}

static void arm(struct world *w, uint32_t peer)
{
    struct world_peer *p = &w->peers[peer];
    uint64_t at = p->core.deadline(p->core.self);

    if (at == CORE_NEVER || at >= p->armed_ms) {
        return;
    }
    at = at > w->now_ms ? at : w->now_ms;
    if (at == w->now_ms && spins(w, peer)) {
        at++;
    }
    p->armed_ms = at;
    world_push(
        w, (struct entry){
               .at_ms = at, .kind = ENTRY_TICK, .peer = peer, .life = p->life});
}

void world_start(struct world *w, uint32_t peer, const struct core *core)
{
    struct world_peer *p = &w->peers[peer];

    assert(!p->alive);
    p->core = *core;
    p->alive = true;
    p->frozen = false;
    p->life++;
    p->armed_ms = CORE_NEVER;
    memset(p->cancelled_any, 0, sizeof p->cancelled_any);
    memset(p->cancel_seq, 0, sizeof p->cancel_seq);
    world_note(w, peer, "start");
    arm(w, peer);
}

const uint8_t *world_record(const struct world *w, uint32_t peer, size_t *len)
{
    *len = w->peers[peer].record_len;
    return w->peers[peer].record;
}

void world_event(struct world *w,
                 uint32_t peer,
                 uint64_t at_ms,
                 const struct event *event)
{
    struct event *copy = world_alloc(sizeof *copy);

    *copy = *event;
    world_push(w, (struct entry){.at_ms = at_ms,
                                 .kind = ENTRY_EVENT,
                                 .peer = peer,
                                 .life = w->peers[peer].life,
                                 .ptr = copy});
}

void world_post(struct world *w, uint32_t peer, const struct event *event)
{
    if (w->peers[peer].alive) {
        world_event(w, peer, w->now_ms, event);
    }
}

void world_timer(struct world *w,
                 uint32_t peer,
                 uint32_t delay_ms,
                 uint64_t token)
{
    world_push(w, (struct entry){.at_ms = w->now_ms + delay_ms,
                                 .kind = ENTRY_TIMER,
                                 .peer = peer,
                                 .life = w->peers[peer].life,
                                 .a = token});
}

void world_call(
    struct world *w, uint64_t at_ms, world_fn fn, void *data, uint64_t arg)
{
    struct errand *call = world_alloc(sizeof *call);

    *call = (struct errand){fn, data, arg};
    world_push(w, (struct entry){.at_ms = at_ms > w->now_ms ? at_ms : w->now_ms,
                                 .kind = ENTRY_CALL,
                                 .peer = NOBODY,
                                 .ptr = call});
}

/* False: a SAVE failed. */
static bool execute(struct world *w, uint32_t peer, const struct action *a)
{
    switch (a->type) {
    case ACTION_SEND:
        world_link_send(w, peer, &a->send);
        break;
    case ACTION_DIAL:
        world_link_dial(w, peer, &a->dial);
        break;
    case ACTION_HANG_UP:
        world_link_hang_up(w, peer, a->hang_up.link);
        break;
    case ACTION_BULK_OPEN:
        world_bulk_open(w, peer, &a->bulk_open);
        break;
    case ACTION_PROBE:
        relay_probe(w, peer, &a->probe);
        break;
    case ACTION_RELAY_COME:
        relay_come(w, peer, &a->relay_come);
        break;
    case ACTION_RELAY_JOIN:
        relay_join(w, peer, &a->relay_join);
        break;
    case ACTION_RELAY_REFUSE:
        relay_refuse(w, peer, a->relay_refuse.request);
        break;
    case ACTION_PUNCH:
        relay_punch(w, peer, &a->punch);
        break;
    case ACTION_POST_RECV:
        world_bulk_post(w, peer, &a->segment);
        break;
    case ACTION_SEND_SEG:
        world_bulk_send(w, peer, &a->segment);
        break;
    case ACTION_SUM:
        world_bulk_sum(w, peer, &a->segment);
        break;
    case ACTION_CANCEL:
        world_bulk_cancel(w, peer, a->cancel.stream, a->cancel.attempt);
        break;
    case ACTION_SAVE:
        return disk_save(w, peer, &a->save);
    case ACTION_JOB:
        if (w->machines.local != NULL) {
            w->machines.local(w->machines.self, peer, &a->job, w->out);
        }
        break;
    case ACTION_TRUST: /* queues have no end here */
    case ACTION_TYPE_COUNT:
        break;
    }
    return true;
}

void world_deliver(struct world *w, uint32_t peer, struct event *event)
{
    struct world_peer *p = &w->peers[peer];
    struct out *out = w->out;
    uint32_t life = p->life;
    bool silent = false; /* a SAVE failed: nothing that rests on it is said */

    assert(p->alive && !p->frozen);
    event->now_ms = w->now_ms;
    event->wall_s = 1800000000U + w->now_ms / 1000;
    w->stats.steps++;
    trace_event(w, peer, event);
    out->n = out->n_bytes = out->dropped = 0;
    p->core.step(p->core.self, event, out);
    w->stats.dropped += out->dropped;
    for (uint32_t k = 0; k < out->n; k++) {
        /* Nothing here follows from TRUST: it is no moment to die at. */
        p->actions += out->action[k].type != ACTION_TRUST;
        if (p->die_at != 0 && p->actions >= p->die_at) {
            world_note(w, peer, "dies before an action");
            p->die_at = 0;
            world_kill(w, peer);
        }
        if (!p->alive || p->life != life) {
            break;
        }
        if (!(silent && out->action[k].type == ACTION_SEND) &&
            !disk_keeps(w, peer, &out->action[k]) &&
            !execute(w, peer, &out->action[k])) {
            silent = true;
        }
    }
    w->calls.after(w->calls.self, peer, event, out);
    if (p->alive && p->life == life && !p->frozen) {
        arm(w, peer);
    }
}

static void tick(struct world *w, const struct entry *e)
{
    struct world_peer *p = &w->peers[e->peer];
    struct event event = {.type = EVENT_TICK};

    if (e->at_ms != p->armed_ms) {
        return; /* An earlier one was armed since. */
    }
    p->armed_ms = CORE_NEVER;
    if (p->core.deadline(p->core.self) <= w->now_ms) {
        p->spin += p->spin_ms == w->now_ms;
        if (p->spin == WORLD_SPIN_MAX) {
            world_note(w, e->peer, "SPINS: its deadline does not move on");
            w->stats.spins++;
        }
        world_deliver(w, e->peer, &event);
    } else {
        arm(w, e->peer);
    }
}

static void on_event(struct world *w, struct entry *e)
{
    struct event *event = e->ptr;

    if (event->type == EVENT_SEG_DONE &&
        e->seq < w->peers[e->peer].cancel_seq[event->seg_done.segment.stream] &&
        bulk_cancelled(&w->peers[e->peer], &event->seg_done.segment,
                       event->seg_done.sent)) {
        return;
    }
    world_deliver(w, e->peer, event);
}

static void dispatch(struct world *w, struct entry *e)
{
    struct errand *call;

    switch (e->kind) {
    case ENTRY_TICK:
        tick(w, e);
        break;
    case ENTRY_EVENT:
        on_event(w, e);
        break;
    case ENTRY_TIMER:
        w->machines.timer(w->machines.self, e->peer, e->a);
        break;
    case ENTRY_CALL:
        call = e->ptr;
        call->fn(call->data, call->arg);
        break;
    case ENTRY_DIAL:
    case ENTRY_LINK_UP:
    case ENTRY_MESSAGE:
    case ENTRY_LINK_DOWN:
        link_on_entry(w, e);
        return; /* It may have kept what the entry points to. */
    case ENTRY_BULK_UP:
    case ENTRY_BULK_SENT:
    case ENTRY_BULK_HERE:
    case ENTRY_BULK_STALE:
    case ENTRY_BULK_BREAK:
    case ENTRY_BULK_DENIED:
        bulk_on_entry(w, e);
        break;
    case ENTRY_CARRY:
        relay_on_entry(w, e);
        break;
    case ENTRY_SAVED:
    case ENTRY_HELD:
        disk_on_entry(w, e);
        break;
    }
    entry_free(e);
}

/* More steps in this second than peers can have a reason for. */
static bool is_storm(struct world *w)
{
    if (w->second != w->now_ms / 1000) {
        w->second = w->now_ms / 1000;
        w->second_steps = 0;
    }
    if (++w->second_steps <= (uint64_t)WORLD_STORM_MAX * w->opt.n_peers) {
        return false;
    }
    w->stats.storms++;
    return true;
}

bool world_is_sound(const struct world *w, char *why, size_t size)
{
    const struct world_stats *x = &w->stats;

    if (x->dropped == 0 && x->broke_rules == 0 && x->spins == 0 &&
        x->storms == 0) {
        return true;
    }
    (void)snprintf(why, size,
                   "%" PRIu64 " actions dropped, %" PRIu64 " rules broken, "
                   "%" PRIu64 " spins, %" PRIu64 " storms of messages",
                   x->dropped, x->broke_rules, x->spins, x->storms);
    return false;
}

bool world_step(struct world *w, uint64_t end_ms)
{
    struct entry e;
    struct world_peer *p;

    if (agenda_when(&w->agenda) > end_ms) {
        w->now_ms = end_ms > w->now_ms ? end_ms : w->now_ms;
        return false;
    }
    (void)agenda_take(&w->agenda, &e);
    assert(e.at_ms >= w->now_ms);
    w->now_ms = e.at_ms;
    if (is_storm(w)) {
        entry_free(&e);
        return false;
    }
    if (e.peer == NOBODY) {
        dispatch(w, &e);
        return true;
    }
    p = &w->peers[e.peer];
    if (!p->alive || p->life != e.life) {
        entry_free(&e);
    } else if (p->frozen && e.kind == ENTRY_TICK) {
        entry_free(&e); /* The thaw arms again. */
    } else if (p->frozen) {
        entry_list_add(&p->deferred, &e);
    } else {
        dispatch(w, &e);
    }
    return true;
}

/* ---- faults ----------------------------------------------------------- */

void world_kill(struct world *w, uint32_t peer)
{
    struct world_peer *p = &w->peers[peer];

    if (!p->alive) {
        return;
    }
    world_note(w, peer, "kill");
    p->alive = false;
    p->frozen = false;
    p->die_at = 0;
    for (uint32_t k = 0; k < p->deferred.n; k++) {
        entry_free(&p->deferred.at[k]);
    }
    p->deferred.n = 0;
    disk_peer_died(w, peer);
    link_peer_died(w, peer);
    bulk_peer_died(w, peer);
    relay_peer_died(w, peer);
    if (w->machines.died != NULL) {
        w->machines.died(w->machines.self, peer);
    }
    if (w->calls.died != NULL) {
        w->calls.died(w->calls.self, peer);
    }
}

void world_kill_at_action(struct world *w, uint32_t peer, uint64_t k)
{
    w->peers[peer].die_at = k == 0 ? 0 : w->peers[peer].actions + k;
}

uint64_t world_actions(const struct world *w, uint32_t peer)
{
    return w->peers[peer].actions;
}

void world_freeze(struct world *w, uint32_t peer)
{
    if (w->peers[peer].alive) {
        w->peers[peer].frozen = true;
        world_note(w, peer, "freeze");
    }
}

void world_thaw(struct world *w, uint32_t peer)
{
    struct world_peer *p = &w->peers[peer];

    if (!p->alive || !p->frozen) {
        return;
    }
    world_note(w, peer, "thaw");
    p->frozen = false;
    for (uint32_t k = 0; k < p->deferred.n; k++) {
        p->deferred.at[k].at_ms = w->now_ms;
        world_push_again(w, p->deferred.at[k]);
    }
    p->deferred.n = 0;
    p->armed_ms = CORE_NEVER;
    arm(w, peer);
    bulk_on_thaw(w, peer);
}

void world_partition(struct world *w, const uint32_t *group)
{
    for (uint32_t i = 0; i < w->opt.n_peers; i++) {
        w->peers[i].group = group[i];
    }
    w->cut_serial++;
    world_note(w, 0, "partition");
    link_on_cut(w);
    bulk_on_cut(w);
}

void world_heal(struct world *w)
{
    for (uint32_t i = 0; i < w->opt.n_peers; i++) {
        w->peers[i].group = 0;
    }
    w->cut_serial++;
    world_note(w, 0, "heal");
    link_on_heal(w);
    bulk_on_heal(w);
}

void world_lossy(struct world *w, uint32_t lose_per_million)
{
    w->opt.lose_per_million = lose_per_million;
}

void world_spiky(struct world *w, uint32_t per_million, uint32_t spike_ms)
{
    w->opt.spike_per_million = per_million;
    w->opt.spike_ms = spike_ms;
}
