/* drill.c - see sim/dht/drill.h. */
#include "daemon/sim/dht/drill.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/sim/world/internal.h"
#include "proto/base/bytes.h"
#include "proto/base/err.h"

#define TAG_PUT     (1U << 31)
#define TAG_CONTROL (1U << 30)
#define TAG_INDEX   (TAG_CONTROL - 1)

#define PROGRESS_STEPS 65536

/* ---- opening ------------------------------------------------------------ */

static int settings(struct drill *d, struct sim_result *r)
{
    struct swarm_options *w = &d->world;
    struct dht_options *h = &w->dht;
    const struct sim_setting table[] = {
        {"link.loss", "", 0, 0.5, .real = &w->loss},
        {"link.reach_ms", "", 0, 5000, .real = &w->reach_ms},
        {"link.access_ms", "", 0, 5000, .real = &w->access_ms},
        {"link.uplink_bytes_per_s", "", 0, 1e11, .u64 = &w->uplink_bytes_per_s},
        {"networks", "", 0, 60000, .u32 = &w->networks},
        {"clients", "", 0, 0.95, .real = &w->clients},
        {"silent", "", 0, 1, .real = &w->silent},
        {"dht.k", "", 1, KBUCKET_K_MAX, .u32 = &h->table.k},
        {"dht.paths", "", 1, DHT_PATHS_MAX, .u32 = &h->paths},
        {"dht.alpha", "", 1, 20, .u32 = &h->alpha},
        {"dht.records_max", "", 1, 10000, .u32 = &h->store.records_max},
        {"dht.rpc_timeout_ms", "", 100, 60000, .u32 = &h->rpc_timeout_ms},
        {"dht.republish_ms", "", 1000, 1e8, .u32 = &h->republish_ms},
        {"dht.refresh_ms", "", 1000, 1e8, .u32 = &h->refresh_ms},
        {"dht.prefix_max", "", 0, 1000, .u32 = &h->table.prefix_max},
        {"join_gap_ms", "", 0, 60000, .u32 = &d->join_gap_ms},
        {"records", "", 1, DRILL_KEYS_MAX, .u32 = &d->records},
        {"readers", "", 1, 1000, .u32 = &d->readers},
        {"lookups", "", 1, 1e7, .u32 = &d->lookups},
        {"need", "", 0, 1, .real = &d->need},
        {"churn.median_uptime_s", "", 10, 1e7, .real = &d->median_uptime_s},
        {"churn.shape", "", 0.2, 5, .real = &d->uptime_shape},
        {"churn.offline_s", "", 1, 1e6, .real = &d->offline_s},
        {"churn.returns", "", 0, 1, .real = &d->returns},
        {"churn.minutes", "", 1, 1e5, .real = &d->minutes},
        {"attack.share", "", 0, 0.9, .real = &d->attack_share},
        {"attack.mirrors", "", 0, 0.9, .real = &d->mirrors},
        {"attack.roots", "", 1, DHT_ROOTS, .u32 = &d->attack_roots},
        {"attack.networks", "", 0, 60000, .u32 = &d->attack_networks},
    };

    return sim_settings(d->opt, table, sizeof table / sizeof table[0], r);
}

static void on_done(struct swarm *s,
                    uint32_t slot,
                    const struct swarm_ask *ask,
                    const struct dht_done *done);

int drill_open(struct drill *d,
               const struct sim_options *opt,
               struct sim_result *r)
{
    int rc;

    d->opt = opt;
    d->n = opt->peers;
    d->world.seed = opt->seed;
    d->world.n = opt->peers;
    d->world.print_trace = opt->print_trace;
    if (d->n < 8 || d->n > SWARM_SLOTS_MAX) {
        (void)snprintf(r->violation, sizeof r->violation,
                       "--peers: this scenario wants 8 to %u", SWARM_SLOTS_MAX);
        return LOCO_EINVAL;
    }
    rc = settings(d, r);
    if (rc != 0) {
        return rc;
    }
    d->s = swarm_open(&d->world);
    d->s->on_done = on_done;
    d->s->data = d;
    d->record = world_alloc(DRILL_KEYS_MAX * sizeof *d->record);
    return 0;
}

void drill_close(struct drill *d)
{
    swarm_close(d->s);
    free(d->record);
    free(d->get.ms);
    free(d->control.ms);
}

/* ---- running ------------------------------------------------------------ */

bool drill_run(struct drill *d, uint64_t until_ms)
{
    struct swarm *s = d->s;

    while (swarm_step(s, until_ms)) {
        if (d->opt->progress != NULL && s->steps % PROGRESS_STEPS == 0 &&
            d->end_ms > 0) {
            d->opt->progress(d->opt->progress_data,
                             (double)s->now_ms / (double)d->end_ms);
        }
    }
    return swarm_run(s, until_ms);
}

static void start_call(struct swarm *s, uint64_t slot)
{
    swarm_start(s, (uint32_t)slot, s->node[slot].role != SWARM_COLLUDER);
}

bool drill_join(struct drill *d, uint64_t settle_ms)
{
    uint64_t at = 0;

    for (uint32_t i = 0; i < d->n; i++) {
        swarm_at(d->s, at, start_call, i);
        at += d->join_gap_ms;
    }
    return drill_run(d, at + settle_ms);
}

void drill_expect(struct drill *d,
                  uint32_t i,
                  uint32_t slot,
                  const struct hash32 *key)
{
    const struct swarm_node *n = &d->s->node[slot];
    struct drill_record *r = &d->record[i];

    *r = (struct drill_record){.key = *key,
                               .value =
                                   hash32_u64(key) ^ id_u64(&n->identity.id),
                               .slot = slot,
                               .life = n->life};
    memcpy(r->publisher, n->identity.public, sizeof r->publisher);
    d->n_records = d->n_records > i ? d->n_records : i + 1;
}

bool drill_get(struct drill *d, uint32_t slot, uint32_t i, bool control)
{
    return swarm_get(d->s, slot, &d->record[i].key,
                     i | (control ? TAG_CONTROL : 0));
}

static bool is_found(const struct drill_record *want,
                     const struct dht_done *done)
{
    for (uint32_t k = 0; k < done->n_records; k++) {
        const struct record *r = &done->records[k];

        if (memcmp(r->publisher, want->publisher, sizeof r->publisher) == 0 &&
            r->value_len == 8 && get_u64(r->value) == want->value) {
            return true;
        }
    }
    return false;
}

static void tally(struct drill_tally *t,
                  const struct dht_done *done,
                  bool found,
                  uint64_t ms)
{
    if (t->n == t->cap) {
        size_t cap = t->cap * 2 + 1024;
        uint32_t *all = world_alloc(cap * sizeof *all);

        if (t->n > 0) {
            memcpy(all, t->ms, t->n * sizeof *all);
        }
        free(t->ms);
        t->ms = all;
        t->cap = cap;
    }
    t->ms[t->n++] = (uint32_t)ms;
    t->found += found;
    t->hops += done->hops;
    t->requests += done->requests;
    t->answers += done->answers;
    t->cut += done->rc == LOCO_ETIMEOUT;
}

static void on_done(struct swarm *s,
                    uint32_t slot,
                    const struct swarm_ask *ask,
                    const struct dht_done *done)
{
    struct drill *d = s->data;
    struct drill_record *r = &d->record[ask->tag & TAG_INDEX];

    (void)slot;
    if ((ask->tag & TAG_PUT) != 0) {
        d->n_put++;
        d->put_requests += done->requests;
        d->put_stored += done->n_stored;
        r->n_stored = done->n_stored;
        r->put = done->n_stored > 0;
        return;
    }
    tally((ask->tag & TAG_CONTROL) != 0 ? &d->control : &d->get, done,
          is_found(r, done), s->now_ms - ask->start_ms);
}

/* ---- the end ------------------------------------------------------------ */

static int by_size(const void *a, const void *b)
{
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;

    return x < y ? -1 : x > y;
}

static double ratio(uint64_t a, uint64_t b)
{
    return b == 0 ? 0 : (double)a / (double)b;
}

static void tally_figures(struct drill_tally *t, struct sim_result *r)
{
    if (t->n > 0) {
        qsort(t->ms, t->n, sizeof *t->ms, by_size);
    }
    sim_figure(r, "lookups", (double)t->n, SIM_SUM);
    sim_figure(r, "found", (double)t->found, SIM_SUM);
    sim_figure(r, "success", ratio(t->found, t->n), SIM_MIN);
    sim_figure(r, "hops_mean", ratio(t->hops, t->n), SIM_MEAN);
    sim_figure(r, "requests_per_lookup", ratio(t->requests, t->n), SIM_MEAN);
    sim_figure(r, "messages_per_lookup", ratio(t->requests + t->answers, t->n),
               SIM_MEAN);
    sim_figure(r, "lookup_ms_p50", t->n > 0 ? t->ms[t->n / 2] : 0, SIM_MEAN);
    sim_figure(r, "lookup_ms_p99", t->n > 0 ? t->ms[t->n * 99 / 100] : 0,
               SIM_MAX);
    sim_figure(r, "lookups_cut", (double)t->cut, SIM_SUM);
}

/* What all honest nodes counted, those that are up now. */
static void node_figures(struct drill *d, struct sim_result *r)
{
    struct dht_counts c = {0};
    uint64_t n_up = 0, n_servers = 0, contacts = 0, records = 0, joined = 0;

    for (uint32_t i = 0; i < d->n; i++) {
        const struct swarm_node *n = &d->s->node[i];
        const struct dht_counts *k = &n->d.counts;

        if (!n->up || n->role != SWARM_HONEST) {
            continue;
        }
        swarm_check_node(d->s, i);
        n_up++;
        n_servers += !n->client;
        joined += n->d.bootstrapped;
        contacts += n->d.table.n;
        records += n->d.store.n;
        c.timeouts += k->timeouts;
        c.malformed += k->malformed;
        c.limited += k->limited;
        c.unknown += k->unknown;
        c.self_named += k->self_named;
        c.bad_records += k->bad_records;
        for (int j = 0; j < DHT_REJECT_COUNT; j++) {
            c.rejected[j] += k->rejected[j];
        }
    }
    sim_figure(r, "peers", (double)n_up, SIM_MEAN);
    sim_figure(r, "servers", (double)n_servers, SIM_MEAN);
    sim_figure(r, "joined", (double)joined, SIM_MEAN);
    sim_figure(r, "contacts_mean", ratio(contacts, n_up), SIM_MEAN);
    sim_figure(r, "records_mean", ratio(records, n_servers), SIM_MEAN);
    sim_figure(r, "timeouts", (double)c.timeouts, SIM_SUM);
    sim_figure(r, "malformed", (double)c.malformed, SIM_SUM);
    sim_figure(r, "limited", (double)c.limited, SIM_SUM);
    sim_figure(r, "unknown_answers", (double)c.unknown, SIM_SUM);
    sim_figure(r, "self_named", (double)c.self_named, SIM_SUM);
    sim_figure(r, "bad_records", (double)c.bad_records, SIM_SUM);
    sim_figure(r, "forged", (double)c.rejected[DHT_REJECT_FORGED], SIM_SUM);
    sim_figure(r, "future", (double)c.rejected[DHT_REJECT_FUTURE], SIM_SUM);
    sim_figure(r, "replayed", (double)c.rejected[DHT_REJECT_REPLAYED], SIM_SUM);
    sim_figure(r, "full", (double)c.rejected[DHT_REJECT_FULL], SIM_SUM);
}

static void verdict(struct drill *d)
{
    if (d->get.n == 0) {
        swarm_fail(d->s, "not one lookup was made");
    } else if (ratio(d->get.found, d->get.n) < d->need) {
        swarm_fail(d->s,
                   "%" PRIu64 " of %" PRIu64 " lookups succeed (%.2f%%), "
                   "less than %.2f%%",
                   d->get.found, d->get.n, 100 * ratio(d->get.found, d->get.n),
                   100 * d->need);
    }
}

int drill_end(struct drill *d, struct sim_result *r)
{
    struct swarm *s = d->s;

    node_figures(d, r);
    if (s->violation[0] == '\0') {
        verdict(d);
    }
    tally_figures(&d->get, r);
    if (d->control.n > 0) {
        sim_figure(r, "control_success", ratio(d->control.found, d->control.n),
                   SIM_MIN);
    }
    if (d->n_put > 0) {
        sim_figure(r, "puts", (double)d->n_put, SIM_SUM);
        sim_figure(r, "stored_mean", ratio(d->put_stored, d->n_put), SIM_MEAN);
        sim_figure(r, "requests_per_put", ratio(d->put_requests, d->n_put),
                   SIM_MEAN);
    }
    sim_figure(r, "deaths", (double)d->deaths, SIM_SUM);
    sim_figure(r, "messages", (double)s->messages, SIM_SUM);
    sim_figure(r, "bytes", (double)s->bytes, SIM_SUM);
    sim_figure(r, "steps", (double)s->steps, SIM_SUM);
    sim_figure(r, "virtual_ms", (double)s->now_ms, SIM_SUM);
    sim_figure(r, "bytes_per_node",
               (double)(dht_bytes(&d->world.dht) + sizeof *s->node), SIM_MAX);
    r->trace_hash = s->trace;
    r->invariants_checked = s->checked;
    if (s->violation[0] == '\0') {
        return 0;
    }
    r->violations = 1;
    (void)snprintf(r->violation, sizeof r->violation, "%s", s->violation);
    if (!d->opt->quiet_failure) {
        swarm_print_trace(s);
        fprintf(stderr,
                "sim: VIOLATION %s\n"
                "sim: scenario %s, --peers %u --seed %" PRIu64 ", at %" PRIu64
                " ms, step %" PRIu64 "\n",
                s->violation, d->opt->scenario, d->n, d->opt->seed, s->now_ms,
                s->steps);
    }
    return 1;
}
