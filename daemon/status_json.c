/* status_json.c - see status_json.h. */
#include "daemon/status_json.h"

#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/status_dht.h"
#include "p2p/reach.h"

/* Enough digits for a double to read back the same. */
#define JSON_DIGITS 17

double status_progress(const struct node_status *s, uint64_t stop_tokens)
{
    double rounds = -1, tokens = -1;
    double most;

    if (s->state == NODE_FINISHED) {
        return 1;
    }
    if (s->state == NODE_SYNCING && s->fetch_total_bytes > 0) {
        most = (double)s->fetched_bytes / (double)s->fetch_total_bytes;
        return most > 1 ? 1 : most;
    }
    if (s->stop_rounds > 0) {
        rounds = (double)s->round / (double)s->stop_rounds;
    }
    if (stop_tokens > 0) {
        tokens = (double)s->run_tokens / (double)stop_tokens;
    }
    /* The run ends at the first of its two limits. */
    most = rounds > tokens ? rounds : tokens;
    return most > 1 ? 1 : most;
}

double
status_eta_update(struct status_eta *eta, double progress, uint64_t now_ms)
{
    double gained, passed_s;

    if (progress < 0) {
        eta->started = false;
        return -1;
    }
    if (!eta->started || progress < eta->progress) {
        eta->started = true;
        eta->progress = progress;
        eta->at_ms = now_ms;
    }
    if (progress >= 1) {
        return 0;
    }
    gained = progress - eta->progress;
    passed_s = (double)(now_ms - eta->at_ms) / 1000.0;
    if (gained <= 0) {
        return -1;
    }
    return (1 - progress) * passed_s / gained;
}

static json_t *real_or_null(double v)
{
    return isfinite(v) ? json_real(v) : json_null();
}

static json_t *count(uint64_t v)
{
    return json_integer(v > INT64_MAX ? INT64_MAX : (json_int_t)v);
}

/* Text from elsewhere may not be UTF-8, which JSON cannot hold: bytes outside
 * ASCII then become '?'. */
static json_t *safe_text(const char *text)
{
    json_t *o = json_string(text);
    char *copy;

    if (o != NULL || text == NULL) {
        return o;
    }
    copy = strdup(text);
    for (char *c = copy; c != NULL && *c != '\0'; c++) {
        *c = (unsigned char)*c < 0x80 ? *c : '?';
    }
    o = json_string(copy);
    free(copy);
    return o;
}

static json_t *hash_text(const struct hash32 *hash)
{
    char hex[ID_HEX_MAX];

    if (hash32_is_zero(hash)) {
        return json_null();
    }
    hash32_hex(hash, hex);
    return json_string(hex);
}

static json_t *id_text(const struct peer_id *id)
{
    char hex[ID_HEX_MAX];

    id_hex(id, hex);
    return json_string(hex);
}

static json_t *lost_list(const struct node_status *s)
{
    json_t *list = json_array();
    uint32_t n = s->n_lost < NODE_LOST_MAX ? s->n_lost : NODE_LOST_MAX;

    for (uint32_t i = 0; i < n; i++) {
        const struct node_lost *lost = &s->lost[i];
        json_t *one = json_object();
        const char *reason = lost->reason == NULL ? "" : lost->reason;

        json_object_set_new(one, "peer_id", id_text(&lost->peer));
        json_object_set_new(one, "round", count(lost->round));
        json_object_set_new(one, "reason", json_string(reason));
        json_object_set_new(one, "detected_ms", count(lost->detected_ms));
        json_array_append_new(list, one);
    }
    return list;
}

static json_t *cap(uint64_t value)
{
    return value == 0 ? json_null() : count(value);
}

static json_t *links(const struct node_status *s)
{
    json_t *o = json_object();

    json_object_set_new(o, "dialled", count(s->links_dialled));
    json_object_set_new(o, "accepted", count(s->links_accepted));
    json_object_set_new(o, "relayed", count(s->links_relayed));
    return o;
}

/* What a newcomer fetches; null: nothing. */
static json_t *fetch(const struct node_status *s)
{
    json_t *o;

    if (s->fetch_total_bytes == 0) {
        return json_null();
    }
    o = json_object();
    json_object_set_new(o, "bytes", count(s->fetched_bytes));
    json_object_set_new(o, "of_bytes", count(s->fetch_total_bytes));
    json_object_set_new(o, "bytes_per_s", count(s->fetch_bytes_per_s));
    json_object_set_new(o, "from",
                        json_string(s->fetch_by_url ? "url" : "peers"));
    json_object_set_new(o, "sources", count(s->fetch_sources));
    json_object_set_new(o, "rounds_behind", count(s->rounds_behind));
    json_object_set_new(o, "catch_up_s",
                        s->catch_up_ms == 0
                            ? json_null()
                            : json_real((double)s->catch_up_ms / 1e3));
    return o;
}

/* How much of the data is here; null: nothing is known of it. */
static json_t *shards(const struct node_status *s)
{
    json_t *o;

    if (s->shards == 0) {
        return json_null();
    }
    o = json_object();
    json_object_set_new(o, "here", count(s->shards_here));
    json_object_set_new(o, "of", count(s->shards));
    json_object_set_new(o, "left_s",
                        s->shards_left_ms == 0
                            ? json_null()
                            : json_real((double)s->shards_left_ms / 1e3));
    return o;
}

static json_t *caps_object(const struct status_extra *x)
{
    json_t *caps = json_object();

    json_object_set_new(caps, "threads", count(x->cap_threads));
    json_object_set_new(caps, "rounds", cap(x->cap_rounds));
    json_object_set_new(caps, "upload_bytes_per_s",
                        cap(x->cap_upload_bytes_per_s));
    json_object_set_new(caps, "download_bytes_per_s",
                        cap(x->cap_download_bytes_per_s));
    json_object_set_new(caps, "bytes_per_month", cap(x->cap_month_bytes));
    json_object_set_new(caps, "bytes_this_month", count(x->month_bytes));
    json_object_set_new(caps, "disk_bytes", cap(x->cap_disk_bytes));
    json_object_set_new(caps, "disk_bytes_used", count(x->disk_bytes));
    json_object_set_new(caps, "cpu_percent", count(x->cap_cpu_percent));
    json_object_set_new(caps, "memory_bytes", cap(x->cap_memory_bytes));
    json_object_set_new(caps, "memory_bytes_needed", count(x->memory_bytes));
    json_object_set_new(caps, "idle_minutes", cap(x->cap_idle_minutes));
    json_object_set_new(caps, "gpu_memory_bytes", cap(x->cap_gpu_memory_bytes));
    json_object_set_new(caps, "nice", count(x->nice));
    json_object_set_new(caps, "idle_io", json_boolean(x->idle_io));
    json_object_set_new(caps, "in_use", json_boolean(x->in_use));
    json_object_set_new(caps, "schedule",
                        x->schedule == NULL ? json_null()
                                            : safe_text(x->schedule));
    json_object_set_new(caps, "battery",
                        x->battery == NULL ? json_null()
                                           : safe_text(x->battery));
    json_object_set_new(caps, "on_battery", json_boolean(x->on_battery));
    return caps;
}

void status_edges(struct status_extra *x,
                  const struct bandwidth *map,
                  const struct peer_id *self,
                  uint64_t now_ms)
{
    x->n_edges = 0;
    for (uint32_t i = 0; i < map->cap && x->n_edges < STATUS_EDGES_MAX; i++) {
        const struct bandwidth_row *r = &map->row[i];
        struct bandwidth_rate rate;

        if (!r->used || (!id_eq(&r->from, self) && !id_eq(&r->to, self))) {
            continue;
        }
        rate = bandwidth_edge(map, &r->from, &r->to, now_ms);
        if (rate.confidence > 0) {
            x->edges[x->n_edges++] = (struct status_edge){r->from, r->to, rate};
        }
    }
}

static json_t *edge_list(const struct status_extra *x)
{
    json_t *list = json_array();

    for (uint32_t i = 0; i < x->n_edges; i++) {
        const struct status_edge *e = &x->edges[i];
        json_t *one = json_object();

        json_object_set_new(one, "from", id_text(&e->from));
        json_object_set_new(one, "to", id_text(&e->to));
        json_object_set_new(one, "bytes_per_s", count(e->rate.bytes_per_s));
        json_object_set_new(one, "confidence", count(e->rate.confidence));
        json_object_set_new(one, "age_ms", count(e->rate.age_ms));
        json_array_append_new(list, one);
    }
    return list;
}

static void
add_who(json_t *o, const struct node_status *s, const struct status_extra *x)
{
    json_object_set_new(o, "version", json_string(x->version));
    json_object_set_new(o, "peer_id", id_text(&x->peer_id));
    json_object_set_new(o, "run_id", hash_text(&x->run_id));
    json_object_set_new(o, "run_name",
                        x->run_name == NULL ? json_null()
                                            : safe_text(x->run_name));
    json_object_set_new(o, "state", json_string(node_state_name(s->state)));
    json_object_set_new(o, "fork", json_boolean(s->fork));
}

static void add_training(json_t *o, const struct node_status *s)
{
    /* A bits per byte of exactly 0 means that nothing was evaluated: no model
     * of text reaches it. */
    double after = s->bits_per_byte > 0 ? s->bits_per_byte : (double)NAN;
    double before =
        s->bits_per_byte_before > 0 ? s->bits_per_byte_before : (double)NAN;

    json_object_set_new(o, "round", count(s->round));
    json_object_set_new(o, "inner_step", count(s->inner_step));
    json_object_set_new(o, "tokens", count(s->tokens));
    json_object_set_new(o, "tokens_per_s",
                        real_or_null((double)s->tokens_per_s));
    json_object_set_new(o, "loss",
                        s->inner_step == 0 || s->stage != s->stages
                            ? json_null()
                            : real_or_null((double)s->loss));
    json_object_set_new(o, "bits_per_byte", real_or_null(after));
    json_object_set_new(o, "bits_per_byte_before", real_or_null(before));
}

/* Which part of the model this peer holds; null: all of it. */
static json_t *stage(const struct node_status *s, const struct status_extra *x)
{
    json_t *o, *hosts;

    if (s->stages == 0) {
        return json_null();
    }
    o = json_object();
    hosts = json_array();
    for (uint32_t k = 0; k < s->stages && k < ROUTE_STAGES_MAX; k++) {
        json_array_append_new(hosts, count(s->stage_hosts[k]));
    }
    json_object_set_new(o, "number", cap(s->stage));
    json_object_set_new(o, "of", count(s->stages));
    json_object_set_new(o, "hosts", hosts);
    json_object_set_new(o, "queue", real_or_null((double)s->queue));
    json_object_set_new(o, "idle", real_or_null((double)s->idle));
    json_object_set_new(o, "moves", count(s->stage_moves));
    json_object_set_new(o, "memory_bytes", count(x->memory_bytes));
    return o;
}

static void
add_swarm(json_t *o, const struct node_status *s, const struct status_extra *x)
{
    json_object_set_new(o, "peers_alive", count(s->peers_alive));
    json_object_set_new(o, "peers_in_round", count(s->peers_in_round));
    json_object_set_new(o, "params_hash", hash_text(&s->params_hash));
    json_object_set_new(o, "replicas_equal", json_boolean(s->replicas_equal));
    json_object_set_new(o, "bytes_sent", count(x->bytes_sent));
    json_object_set_new(o, "bytes_received", count(x->bytes_received));
    json_object_set_new(o, "last_round_ms", count(s->last_round_ms));
    json_object_set_new(o, "rounds_committed", count(s->rounds_committed));
    json_object_set_new(o, "rounds_aborted", count(s->rounds_aborted));
    json_object_set_new(o, "elements_inherited", count(s->elements_inherited));
    json_object_set_new(o, "tokens_dropped", count(s->tokens_dropped));
    json_object_set_new(o, "peers_lost", lost_list(s));
    json_object_set_new(o, "reachability", json_string(reach_name(s->reach)));
    json_object_set_new(o, "reachability_reason", safe_text(s->reach_reason));
    json_object_set_new(o, "stage", stage(s, x));
    json_object_set_new(o, "links", links(s));
    json_object_set_new(o, "fetch", fetch(s));
    json_object_set_new(o, "shards", shards(s));
    json_object_set_new(o, "sources_dropped", count(s->sources_shunned));
    json_object_set_new(o, "bytes_relayed", count(s->bytes_relayed));
    json_object_set_new(o, "listen",
                        x->listen == NULL ? json_null() : safe_text(x->listen));
    json_object_set_new(o, "reason", safe_text(s->reason));
    json_object_set_new(o, "dht", status_dht_object(s));
    json_object_set_new(o, "refused", status_refused_object(s, &x->refused));
}

char *status_json(const struct node_status *s, const struct status_extra *x)
{
    double progress = status_progress(s, x->stop_tokens);
    json_t *o = json_object();
    char *text;

    if (o == NULL) {
        return NULL;
    }
    add_who(o, s, x);
    add_training(o, s);
    add_swarm(o, s, x);
    json_object_set_new(o, "progress",
                        progress < 0 ? json_null() : real_or_null(progress));
    json_object_set_new(o, "eta_s",
                        x->eta_s < 0 ? json_null() : real_or_null(x->eta_s));
    json_object_set_new(o, "bandwidth", edge_list(x));
    json_object_set_new(o, "caps", caps_object(x));
    text = json_dumps(o, JSON_COMPACT | JSON_PRESERVE_ORDER |
                             JSON_REAL_PRECISION(JSON_DIGITS));
    json_decref(o);
    return text;
}
