/* swarm.c - time, lives and lookups of a swarm; see swarm.h. */
#include "daemon/sim/dht/internal.h"

#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/sim/world/internal.h"
#include "p2p/prefix.h"
#include "proto/base/bytes.h"
#include "proto/base/rng.h"

#define JOIN_RETRY_MS 5000

/* A tick that leaves a deadline of now, so often in one millisecond: a shell
 * would burn a core. */
#define SPINS_MAX 100

/* ---- what will happen --------------------------------------------------- */

struct swarm_event *
swarm_push(struct swarm *s, uint64_t at_ms, enum swarm_item_type type)
{
    struct swarm_event *e = world_alloc(sizeof *e);
    struct swarm_item item = {.at_ms = at_ms, .event = e};

    e->type = type;
    if (!agenda_put(&s->agenda, &item)) {
        swarm_fail(s, "out of memory");
    }
    return e;
}

void swarm_at(struct swarm *s, uint64_t at_ms, swarm_call_fn fn, uint64_t arg)
{
    struct swarm_event *e = swarm_push(s, at_ms, ITEM_CALL);

    e->fn = fn;
    e->arg = arg;
}

/* ---- small things -------------------------------------------------------- */

uint64_t swarm_wall_s(const struct swarm *s)
{
    return SWARM_WALL_S + s->now_ms / 1000;
}

uint64_t swarm_below(struct swarm *s, uint64_t n)
{
    return rng_below(&s->rng, n);
}

double swarm_unit(struct swarm *s)
{
    return (double)(rng_next(&s->rng) >> 11) * 0x1p-53;
}

void swarm_fail(struct swarm *s, const char *fmt, ...)
{
    va_list args;

    if (s->violation[0] != '\0') {
        return;
    }
    va_start(args, fmt);
    (void)vsnprintf(s->violation, sizeof s->violation, fmt, args);
    va_end(args);
}

static void print_line(const struct swarm_trace *t)
{
    fprintf(stderr, "%9" PRIu64 " ms %5u -> %5u  type %02x  %u bytes\n",
            t->at_ms, t->from, t->to, t->message, t->len);
}

void swarm_print_trace(const struct swarm *s)
{
    uint64_t from = s->n_lines > SWARM_TRACE ? s->n_lines - SWARM_TRACE : 0;

    for (uint64_t i = from; i < s->n_lines; i++) {
        print_line(&s->line[i % SWARM_TRACE]);
    }
}

/* message 0: a tick */
static void note(struct swarm *s, const struct swarm_event *e)
{
    struct swarm_trace t = {s->now_ms, e->from, e->to, e->message, e->len};
    uint64_t words[] = {s->trace, t.at_ms, (uint64_t)t.from << 32 | t.to,
                        (uint64_t)e->type << 48 | (uint64_t)t.message << 32 |
                            t.len};

    s->trace = rng_mix(words, 4);
    if (e->type == ITEM_MESSAGE) {
        s->line[s->n_lines++ % SWARM_TRACE] = t;
        if (s->opt.print_trace) {
            print_line(&t);
        }
    }
}

uint32_t swarm_pick(struct swarm *s, uint64_t age_ms)
{
    for (int i = 0; i < 10000; i++) {
        uint32_t slot = (uint32_t)swarm_below(s, s->opt.n);
        const struct swarm_node *n = &s->node[slot];

        if (n->up && n->role == SWARM_HONEST &&
            n->up_ms + age_ms <= s->now_ms) {
            return slot;
        }
    }
    return UINT32_MAX;
}

/* ---- lives --------------------------------------------------------------- */

static void join_call(struct swarm *s, uint64_t arg);

static void join(struct swarm *s, uint32_t slot)
{
    struct swarm_node *n = &s->node[slot];

    for (int i = 0; i < SWARM_ENTRIES; i++) {
        if (s->entry[i] != slot) {
            swarm_meet(s, slot, s->entry[i]);
        }
    }
    for (uint32_t i = 0; i < n->cache.n && i < 8; i++) {
        struct address a = {.port = n->cache.contact[i].port};
        uint32_t to;

        memcpy(a.ip, n->cache.contact[i].ip, sizeof a.ip);
        to = swarm_slot(s, &a);
        if (to != UINT32_MAX && to != slot) {
            swarm_meet(s, slot, to);
        }
    }
    swarm_at(s, s->now_ms + JOIN_RETRY_MS, join_call,
             (uint64_t)n->life << 32 | slot);
}

static void join_call(struct swarm *s, uint64_t arg)
{
    struct swarm_node *n = &s->node[(uint32_t)arg];

    if (n->up && n->life == arg >> 32 && n->d.table.n == 0) {
        join(s, (uint32_t)arg);
    }
}

void swarm_start(struct swarm *s, uint32_t slot, bool fresh)
{
    struct swarm_node *n = &s->node[slot];
    struct dht_options opt = s->opt.dht;

    n->life++;
    if (fresh) {
        uint64_t words[] = {s->opt.seed, slot, n->life};

        identity_fake(&n->identity, rng_mix(words, 3));
        n->cache.n = 0;
    }
    opt.table.self = n->identity.id;
    opt.signer = signer_keyed(&n->identity);
    opt.seed = rng_next(&s->rng);
    opt.server = !n->client;
    if (n->memory == NULL) {
        n->memory = world_alloc(dht_bytes(&opt));
    }
    dht_init(&n->d, &opt, n->memory, s->now_ms);
    n->up = true;
    n->up_ms = s->now_ms;
    n->tick_ms = CORE_NEVER;
    n->published_ms = 0;
    memset(n->link, 0, sizeof n->link);
    memset(n->ask, 0, sizeof n->ask);
    s->out.n_sends = s->out.n_done = 0;
    swarm_flush(s, slot);
    join(s, slot);
    if (n->role != SWARM_HONEST) {
        swarm_liar_start(s, slot);
    }
}

void swarm_kill(struct swarm *s, uint32_t slot)
{
    struct swarm_node *n = &s->node[slot];

    if (n->up) {
        swarm_check_node(s, slot);
        peers_collect(&n->cache, &n->d.table);
        n->up = false;
        n->life++;
        n->silent = swarm_unit(s) < s->opt.silent;
    }
}

/* ---- lookups ------------------------------------------------------------- */

static struct swarm_ask *
ask_begin(struct swarm *s, struct swarm_node *n, uint32_t tag)
{
    for (int i = 0; i < SWARM_ASKS; i++) {
        if (n->ask[i].lookup == 0) {
            n->ask[i] = (struct swarm_ask){.start_ms = s->now_ms, .tag = tag};
            return &n->ask[i];
        }
    }
    return NULL;
}

bool swarm_get(struct swarm *s,
               uint32_t slot,
               const struct hash32 *key,
               uint32_t tag)
{
    struct swarm_node *n = &s->node[slot];
    struct swarm_ask *ask = ask_begin(s, n, tag);

    if (ask == NULL ||
        dht_get(&n->d, key, s->now_ms, &ask->lookup, &s->out) != 0) {
        return false;
    }
    swarm_flush(s, slot);
    return true;
}

bool swarm_put(struct swarm *s,
               uint32_t slot,
               const struct record *record,
               uint32_t tag)
{
    struct swarm_node *n = &s->node[slot];
    struct swarm_ask *ask = ask_begin(s, n, tag);

    if (ask == NULL || dht_put(&n->d, record, s->now_ms, swarm_wall_s(s),
                               &ask->lookup, &s->out) != 0) {
        return false;
    }
    swarm_flush(s, slot);
    return true;
}

struct record
swarm_record(struct swarm *s, uint32_t slot, const struct hash32 *key)
{
    struct swarm_node *n = &s->node[slot];
    struct signer signer = signer_keyed(&n->identity);
    struct record r = {.key = *key,
                       .value_len = 8,
                       .sequence = swarm_wall_s(s),
                       .expiry_s = swarm_wall_s(s) + 7200};

    put_u64(r.value, hash32_u64(key) ^ id_u64(&n->identity.id));
    (void)record_sign(&r, &signer);
    return r;
}

static void dones(struct swarm *s, uint32_t slot)
{
    struct swarm_node *n = &s->node[slot];

    for (uint32_t k = 0; k < s->out.n_done; k++) {
        const struct dht_done *done = &s->out.done[k];

        for (int i = 0; i < SWARM_ASKS; i++) {
            if (n->ask[i].lookup == done->lookup && done->lookup != 0) {
                struct swarm_ask ask = n->ask[i];

                n->ask[i].lookup = 0;
                if (s->on_done != NULL) {
                    s->on_done(s, slot, &ask, done);
                }
            }
        }
    }
}

void swarm_flush(struct swarm *s, uint32_t slot)
{
    struct swarm_node *n = &s->node[slot];
    uint64_t due = dht_deadline(&n->d);

    for (uint32_t i = 0; i < s->out.n_sends; i++) {
        const struct dht_send *m = &s->out.sends[i];

        uint32_t to = swarm_slot(s, &m->address);

        /* An answer goes back over the link that the question came on: also
         * to a client, which has no address. */
        if (s->reply_to != UINT32_MAX && m->message % 2 != 0) {
            to = s->reply_to;
        }
        swarm_check_send(s, slot, m);
        swarm_send(s, slot, to, &m->peer, m->message, s->out.bytes + m->bytes,
                   m->len);
    }
    dones(s, slot);
    swarm_check_step(s, slot);
    due = due > s->now_ms ? due : s->now_ms;
    if (due < n->tick_ms) {
        struct swarm_event *e = swarm_push(s, due, ITEM_TICK);

        n->tick_ms = due;
        e->to = e->from = slot;
        e->to_life = n->life;
    }
}

/* ---- time ---------------------------------------------------------------- */

static void tick(struct swarm *s, const struct swarm_event *e)
{
    struct swarm_node *n = &s->node[e->to];

    if (!n->up || n->life != e->to_life || n->tick_ms != s->now_ms) {
        return;
    }
    n->tick_ms = CORE_NEVER;
    s->out.n_sends = s->out.n_done = 0;
    if (dht_deadline(&n->d) <= s->now_ms) {
        note(s, e);
        dht_tick(&n->d, s->now_ms, swarm_wall_s(s), &s->out);
        n->spins = dht_deadline(&n->d) <= s->now_ms ? n->spins + 1 : 0;
        if (n->spins > SPINS_MAX) {
            swarm_fail(s, "slot %u: its deadline stays in the past", e->to);
        }
    }
    swarm_flush(s, e->to);
}

static void failed(struct swarm *s, const struct swarm_event *e)
{
    struct swarm_node *n = &s->node[e->from];

    if (n->up && n->life == e->from_life) {
        dht_failed(&n->d, &e->expect, s->now_ms, &s->out);
        swarm_flush(s, e->from);
    }
}

bool swarm_step(struct swarm *s, uint64_t until_ms)
{
    struct swarm_item item;

    if (s->violation[0] != '\0' || agenda_when(&s->agenda) > until_ms ||
        !agenda_take(&s->agenda, &item)) {
        return false;
    }
    s->now_ms = item.at_ms;
    s->steps++;
    switch (item.event->type) {
    case ITEM_MESSAGE:
        note(s, item.event);
        swarm_deliver(s, item.event);
        break;
    case ITEM_FAILED:
        note(s, item.event);
        failed(s, item.event);
        break;
    case ITEM_MEET:
        note(s, item.event);
        swarm_met(s, item.event);
        break;
    case ITEM_TICK:
        tick(s, item.event);
        break;
    case ITEM_CALL:
        item.event->fn(s, item.event->arg);
        break;
    }
    free(item.event->bytes);
    free(item.event);
    return s->violation[0] == '\0';
}

bool swarm_run(struct swarm *s, uint64_t until_ms)
{
    while (swarm_step(s, until_ms)) {
    }
    if (s->violation[0] != '\0') {
        return false;
    }
    s->now_ms = until_ms;
    return true;
}

/* ---- opening ------------------------------------------------------------- */

struct swarm_options swarm_options_default(void)
{
    struct swarm_options opt = {
        .dht = dht_options_default(),
        .clients = 0.3,
        .loss = 0.01,
        .silent = 0.5,
        .reach_ms = 80,
        .access_ms = 6,
    };

    opt.dht.table.contacts_max = 256; /* enough for 60,000 nodes */
    opt.dht.table.cache = 4;
    opt.dht.store.records_max = 64;
    opt.dht.limiter.peers_max = 64;
    opt.dht.requests_max = 24;
    opt.dht.lookups_max = 3;
    opt.dht.results_max = 8;
    opt.dht.published_max = 1;
    return opt;
}

/* Where a slot lives. Places and links are those of the seed. */
static void place(struct swarm *s, uint32_t slot)
{
    struct swarm_node *n = &s->node[slot];
    uint32_t net = s->opt.networks > 0 ? slot % s->opt.networks : slot;
    double gauss = -6;

    n->address.port = (uint16_t)(1024 + slot);
    prefix_map_v4(n->address.ip);
    n->address.ip[12] = 20;
    n->address.ip[13] = (uint8_t)(net >> 8);
    n->address.ip[14] = (uint8_t)net;
    n->address.ip[15] = 1;
    n->x = (float)swarm_unit(s);
    n->y = (float)swarm_unit(s);
    for (int i = 0; i < 12; i++) {
        gauss += swarm_unit(s);
    }
    n->access_ms = (uint32_t)lrint(s->opt.access_ms * exp(0.7 * gauss));
    n->client = swarm_unit(s) < s->opt.clients && slot >= SWARM_ENTRIES;
}

struct swarm *swarm_open(const struct swarm_options *opt)
{
    struct swarm *s = world_alloc(sizeof *s);

    s->opt = *opt;
    s->agenda.size = sizeof(struct swarm_item);
    s->rng = opt->seed ^ 0x737761726d;
    s->reply_to = s->target = UINT32_MAX;
    s->node = world_alloc(opt->n * sizeof *s->node);
    s->colluder = world_alloc(opt->n * sizeof *s->colluder);
    for (uint32_t i = 0; i < opt->n; i++) {
        place(s, i);
    }
    for (uint32_t i = 0; i < SWARM_ENTRIES; i++) {
        s->entry[i] = i < opt->n ? i : 0;
    }
    return s;
}

void swarm_close(struct swarm *s)
{
    struct swarm_item item;

    if (s == NULL) {
        return;
    }
    while (agenda_take(&s->agenda, &item)) {
        free(item.event->bytes);
        free(item.event);
    }
    agenda_free(&s->agenda);
    for (uint32_t i = 0; i < s->opt.n; i++) {
        free(s->node[i].memory);
    }
    free(s->node);
    free(s->colluder);
    free(s);
}
