/* scenarios.c - the DHT's scenarios: who joins, dies and lies, and what
 * is looked up. Common parts are in sim/dht/drill.h, what must hold in
 * sim/dht/check.c.
 */
#include <math.h>
#include <string.h>

#include "daemon/sim/dht/drill.h"
#include "daemon/sim/dht/scenarios.h"
#include "proto/base/rng.h"

#define TAG_PUT   (1U << 31) /* as in sim/dht/drill.c */
#define SETTLE_MS 90000      /* from the last join to the first lookup */
#define DRAIN_MS  90000      /* from the last lookup to the end */

/* A node's record is under its own id, out PUBLISH_MS after it joined; then a
 * lookup may expect it. */
#define PUBLISH_MS 20000
#define STORED_MS  40000

static struct drill defaults(const struct sim_options *opt)
{
    return (struct drill){
        .world = swarm_options_default(),
        .join_gap_ms = 20,
        .records = opt->peers < 1000 ? opt->peers : 1000,
        .readers = 2,
        .lookups = 4 * opt->peers,
        .need = 1,
        .median_uptime_s = 600,
        .uptime_shape = 1,
        .offline_s = 60,
        .returns = 0.5,
        .minutes = 30,
        .attack_share = 0.3,
        .mirrors = 0.05,
        .attack_roots = 1,
    };
}

static struct hash32 key_of(const struct drill *d, uint64_t i)
{
    uint64_t words[] = {d->opt->seed, 0x6b6579, i};
    uint64_t rng = rng_mix(words, 3);
    struct hash32 key;

    for (size_t b = 0; b < sizeof key.b; b++) {
        key.b[b] = (uint8_t)rng_next(&rng);
    }
    return key;
}

/* ---- dht ---------------------------------------------------------------- */

static void put_call(struct swarm *s, uint64_t i)
{
    struct drill *d = s->data;
    uint32_t slot = swarm_pick(s, 0);
    struct hash32 key = key_of(d, i);
    struct record r = swarm_record(s, slot, &key);

    drill_expect(d, (uint32_t)i, slot, &key);
    if (!swarm_put(s, slot, &r, (uint32_t)i | TAG_PUT)) {
        swarm_at(s, s->now_ms + 1000, put_call, i);
    }
}

static void get_call(struct swarm *s, uint64_t i)
{
    if (!drill_get(s->data, swarm_pick(s, 0), (uint32_t)i, false)) {
        swarm_at(s, s->now_ms + 1000, get_call, i);
    }
}

int swarm_dht_run(const struct sim_options *opt, struct sim_result *r)
{
    struct drill d = defaults(opt);
    uint64_t at;
    int rc = drill_open(&d, opt, r);

    if (rc != 0) {
        return rc;
    }
    at = (uint64_t)d.n * d.join_gap_ms + SETTLE_MS;
    d.end_ms = at + 25ULL * d.records + DRAIN_MS +
               5ULL * d.records * d.readers + DRAIN_MS;
    if (drill_join(&d, SETTLE_MS)) {
        for (uint32_t i = 0; i < d.records; i++) {
            swarm_at(d.s, at += 25, put_call, i);
        }
        at += DRAIN_MS;
        for (uint32_t i = 0; i < d.records * d.readers; i++) {
            swarm_at(d.s, at += 5, get_call, i % d.records);
        }
        (void)drill_run(&d, at + DRAIN_MS);
    }
    for (uint32_t i = 0; i < d.records; i++) {
        if (!d.record[i].put) {
            swarm_fail(d.s, "record %u was stored nowhere", i);
        }
    }
    rc = drill_end(&d, r);
    drill_close(&d);
    return rc;
}

/* ---- churn -------------------------------------------------------------- */

/* Weibull: shape 1 is exponential, below 1 many leave at once and few stay. */
static uint64_t uptime_ms(struct drill *d)
{
    double u = 1 - swarm_unit(d->s);
    double scale = d->median_uptime_s / pow(log(2), 1 / d->uptime_shape);

    return (uint64_t)(1000 * scale * pow(-log(u), 1 / d->uptime_shape));
}

static void publish_call(struct swarm *s, uint64_t arg)
{
    struct drill *d = s->data;
    uint32_t slot = (uint32_t)arg;
    struct swarm_node *n = &s->node[slot];
    struct hash32 key;
    struct record r;

    if (!n->up || n->life != arg >> 32) {
        return;
    }
    memcpy(key.b, n->identity.id.b, sizeof key.b);
    r = swarm_record(s, slot, &key);
    drill_expect(d, slot, slot, &key);
    (void)dht_publish(&n->d, &key, r.value, r.value_len, 7200);
    n->published_ms = s->now_ms;
    s->out.n_sends = s->out.n_done = 0;
    swarm_flush(s, slot);
}

static void publish_later(struct swarm *s, uint32_t slot)
{
    swarm_at(s, s->now_ms + PUBLISH_MS, publish_call,
             (uint64_t)s->node[slot].life << 32 | slot);
}

static void back_call(struct swarm *s, uint64_t slot);

static void die_call(struct swarm *s, uint64_t slot)
{
    struct drill *d = s->data;
    double offline_ms = -1000 * d->offline_s * log(1 - swarm_unit(s));

    swarm_kill(s, (uint32_t)slot);
    d->deaths++;
    swarm_at(s, s->now_ms + (uint64_t)offline_ms, back_call, slot);
}

static void back_call(struct swarm *s, uint64_t slot)
{
    struct drill *d = s->data;

    swarm_start(s, (uint32_t)slot, swarm_unit(s) >= d->returns);
    publish_later(s, (uint32_t)slot);
    swarm_at(s, s->now_ms + uptime_ms(d), die_call, slot);
}

/* Somebody looks for somebody; both have been here for a minute. */
static void seek_call(struct swarm *s, uint64_t arg)
{
    struct drill *d = s->data;
    uint32_t who = UINT32_MAX;

    (void)arg;
    for (int i = 0; i < 1000 && who == UINT32_MAX; i++) {
        uint32_t slot = swarm_pick(s, PUBLISH_MS + STORED_MS);

        if (slot != UINT32_MAX && s->node[slot].published_ms > 0 &&
            s->node[slot].published_ms + STORED_MS <= s->now_ms) {
            who = slot;
        }
    }
    if (who != UINT32_MAX) {
        (void)drill_get(d, swarm_pick(s, PUBLISH_MS + STORED_MS), who, false);
    }
}

/* `lookups` of them, evenly over [from, to). */
static void seek_all(struct drill *d, uint64_t from, uint64_t to)
{
    for (uint64_t i = 0; i < d->lookups; i++) {
        swarm_at(d->s, from + (to - from) * i / d->lookups, seek_call, 0);
    }
}

int swarm_churn_run(const struct sim_options *opt, struct sim_result *r)
{
    struct drill d = defaults(opt);
    uint64_t from, to;
    int rc;

    d.need = 0.99;
    rc = drill_open(&d, opt, r);
    if (rc != 0) {
        return rc;
    }
    from = (uint64_t)d.n * d.join_gap_ms + SETTLE_MS;
    to = from + (uint64_t)(d.minutes * 60000);
    d.end_ms = to + DRAIN_MS;
    if (drill_join(&d, SETTLE_MS)) {
        for (uint32_t i = 0; i < d.n; i++) {
            publish_later(d.s, i);
            swarm_at(d.s, d.s->now_ms + uptime_ms(&d), die_call, i);
        }
        /* Churn for a third of the time before anybody looks. */
        seek_all(&d, from + (to - from) / 3, to);
        (void)drill_run(&d, d.end_ms);
    }
    rc = drill_end(&d, r);
    drill_close(&d);
    return rc;
}

/* ---- eclipse ------------------------------------------------------------ */

/* Key 0 is the victim's. Colluder j sits next to root j mod attack.roots: its
 * id shares 40 bits with it, closer than any honest node can be. Its network is
 * its own, or one of attack.networks. */
static void collude(struct drill *d)
{
    struct hash32 key = key_of(d, 0);
    uint32_t want = (uint32_t)(d->attack_share * d->n);

    while (d->s->n_colluders < want) {
        uint32_t slot =
            (uint32_t)swarm_below(d->s, d->n - SWARM_ENTRIES) + SWARM_ENTRIES;
        struct swarm_node *n = &d->s->node[slot];
        uint32_t j = d->s->n_colluders;
        struct peer_id root = dht_root(&key, j % d->attack_roots);

        if (n->role != SWARM_HONEST) {
            continue;
        }
        d->s->colluder[d->s->n_colluders++] = slot;
        n->role = SWARM_COLLUDER;
        n->client = false;
        identity_fake(&n->identity, 0x636f6c0000ULL + j);
        memcpy(n->identity.id.b, root.b, 5);
        if (d->attack_networks > 0) {
            uint32_t net = j % d->attack_networks;

            n->address.ip[12] = 60;
            n->address.ip[13] = (uint8_t)(net >> 8);
            n->address.ip[14] = (uint8_t)net;
        }
    }
}

static void seek_key_call(struct swarm *s, uint64_t arg)
{
    struct drill *d = s->data;
    uint32_t i = (uint32_t)arg;

    if (!drill_get(d, (uint32_t)(arg >> 32), i, i >= d->records)) {
        swarm_at(s, s->now_ms + 1000, seek_key_call, arg);
    }
}

/* Records of `records` honest publishers under the victim key, one more under a
 * key of nobody's interest; every honest node looks for one of each. */
int swarm_eclipse_run(const struct sim_options *opt, struct sim_result *r)
{
    struct drill d = defaults(opt);
    uint64_t at;
    int rc;

    d.records = 4;
    d.need = 0.95;
    rc = drill_open(&d, opt, r);
    if (rc != 0) {
        return rc;
    }
    collude(&d);
    at = (uint64_t)d.n * d.join_gap_ms + SETTLE_MS;
    d.end_ms = at + 2 * DRAIN_MS + 20ULL * d.n;
    if (drill_join(&d, SETTLE_MS)) {
        for (uint32_t i = 0; i <= d.records; i++) {
            uint32_t slot = swarm_pick(d.s, 0);
            struct hash32 key = key_of(&d, i == d.records);
            struct record record = swarm_record(d.s, slot, &key);

            drill_expect(&d, i, slot, &key);
            (void)swarm_put(d.s, slot, &record, i | TAG_PUT);
        }
        at += DRAIN_MS;
        for (uint32_t i = 0; i < d.n; i++) {
            uint64_t who = (uint64_t)i << 32;

            if (d.s->node[i].role == SWARM_HONEST) {
                swarm_at(d.s, at += 10, seek_key_call, who | i % d.records);
                swarm_at(d.s, at += 10, seek_key_call, who | d.records);
            }
        }
        (void)drill_run(&d, at + DRAIN_MS);
    }
    sim_figure(r, "colluders", d.s->n_colluders, SIM_MEAN);
    rc = drill_end(&d, r);
    drill_close(&d);
    return rc;
}

/* ---- flood -------------------------------------------------------------- */

static void enlist(struct drill *d, enum swarm_role role, double share)
{
    for (uint32_t left = (uint32_t)(share * d->n); left > 0;) {
        uint32_t slot =
            (uint32_t)swarm_below(d->s, d->n - SWARM_ENTRIES) + SWARM_ENTRIES;

        if (d->s->node[slot].role == SWARM_HONEST) {
            d->s->node[slot].role = role;
            d->s->node[slot].client = false;
            left--;
        }
    }
}

/* Each kind of wrong message must have been counted under its name. */
static void check_counted(struct drill *d, const struct sim_result *r)
{
    static const char *const names[] = {
        "malformed", "limited",  "unknown_answers", "forged",
        "future",    "replayed", "self_named"};

    for (size_t k = 0; k < sizeof names / sizeof names[0]; k++) {
        for (uint32_t i = 0; i < r->n_figures; i++) {
            if (strcmp(r->figure[i].name, names[k]) == 0 &&
                r->figure[i].value == 0) {
                swarm_fail(d->s, "nobody counted %s", names[k]);
            }
        }
    }
}

int swarm_flood_run(const struct sim_options *opt, struct sim_result *r)
{
    struct drill d = defaults(opt);
    uint64_t from, to;
    int rc;

    d.attack_share = 0.1;
    d.need = 0.99;
    d.minutes = 2;
    /* Made-up publishers fill every key: the daemon's room for answers. */
    d.world.dht.results_max = 64;
    d.lookups = opt->peers;
    rc = drill_open(&d, opt, r);
    if (rc != 0) {
        return rc;
    }
    enlist(&d, SWARM_FLOODER, d.attack_share);
    enlist(&d, SWARM_MIRROR, d.mirrors);
    d.s->target = 0;
    from = (uint64_t)d.n * d.join_gap_ms + SETTLE_MS;
    to = from + (uint64_t)(d.minutes * 60000);
    d.end_ms = to + DRAIN_MS;
    if (drill_join(&d, SETTLE_MS)) {
        for (uint32_t i = 0; i < d.n; i++) {
            if (d.s->node[i].role == SWARM_HONEST) {
                publish_later(d.s, i);
            }
        }
        seek_all(&d, from + PUBLISH_MS + STORED_MS, to);
        (void)drill_run(&d, d.end_ms);
    }
    rc = drill_end(&d, r);
    if (rc == 0) {
        check_counted(&d, r);
        rc = d.s->violation[0] != '\0' ? drill_end(&d, r) : 0;
    }
    drill_close(&d);
    return rc;
}
