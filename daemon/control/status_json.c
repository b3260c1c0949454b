/* status_json.c - see status_json.h. */
#include "daemon/control/status_json.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/control/json.h"
#include "p2p/prefix.h"
#include "p2p/swarm/reach.h"

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
        rounds = ((double)s->round + s->round_trained) / (double)s->stop_rounds;
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

/* Not looked for yet: nothing is known. */
static const struct status_share *share_of(const struct status_extra *x)
{
    static const struct status_share none = {.reason = ""};

    return x->share == NULL ? &none : x->share;
}

static const char *share_uri(const struct status_extra *x)
{
    return share_of(x)->uri[0] == '\0' ? NULL : share_of(x)->uri;
}

/* NULL: null. Text from elsewhere may not be UTF-8, which JSON cannot hold:
 * bytes outside ASCII then become '?'. */
static json_t *safe_text(const char *text)
{
    json_t *o = text == NULL ? json_null() : json_string(text);
    char *copy;

    if (o != NULL) {
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

static json_t *strangers_refused(const uint64_t n[STRANGER_REFUSAL_COUNT])
{
#define NAME_OF(name, text) text,
    static const char *const names[] = {STRANGER_REFUSAL_MAP(NAME_OF)};
#undef NAME_OF
    json_t *o = json_object();

    for (uint32_t i = 0; i < STRANGER_REFUSAL_COUNT; i++) {
        json_object_set_new(o, names[i], json_of_count(n[i]));
    }
    return o;
}

/* "1.2.3.0/24", "2001:db8:1::/48", or one private address. */
static json_t *network_of(const struct address *from)
{
    char text[ADDRESS_TEXT_MAX];
    const uint8_t *b = from->ip;

    if (prefix_is_v4(b)) {
        bool one = prefix_is_private(b);

        (void)snprintf(text, sizeof text, "%u.%u.%u.%u%s", b[12], b[13], b[14],
                       one ? b[15] : 0U, one ? "" : "/24");
    } else {
        (void)snprintf(text, sizeof text, "%x:%x:%x::/48", b[0] << 8 | b[1],
                       b[2] << 8 | b[3], b[4] << 8 | b[5]);
    }
    return json_string(text);
}

static json_t *strangers_list(const struct node_status *s)
{
    json_t *list = json_array();

    for (uint32_t i = 0; i < s->n_strangers; i++) {
        const struct strangers_row *r = &s->strangers[i];
        json_t *one = json_object();
        uint64_t refused[STRANGER_REFUSAL_COUNT];

        for (uint32_t k = 0; k < STRANGER_REFUSAL_COUNT; k++) {
            refused[k] = r->refused[k];
        }
        json_object_set_new(one, "network", network_of(&r->from));
        json_object_set_new(one, "links", json_of_count(r->n_links));
        json_object_set_new(one, "overdrawn", json_of_count(r->n_overdrawn));
        json_object_set_new(one, "waits_s", json_of_count(r->waits_ms / 1000));
        json_object_set_new(one, "refused", strangers_refused(refused));
        json_array_append_new(list, one);
    }
    return list;
}

static json_t *lost_list(const struct node_status *s)
{
    json_t *list = json_array();
    uint32_t n = s->n_lost < NODE_LOST_MAX ? s->n_lost : NODE_LOST_MAX;

    for (uint32_t i = 0; i < n; i++) {
        const struct node_lost *lost = &s->lost[i];
        json_t *one = json_object();
        const char *reason = lost->reason == NULL ? "" : lost->reason;

        json_object_set_new(one, "peer_id", json_of_id(&lost->peer));
        json_object_set_new(one, "round", json_of_count(lost->round));
        json_object_set_new(one, "reason", json_string(reason));
        json_object_set_new(one, "detected_ms",
                            json_of_count(lost->detected_ms));
        json_array_append_new(list, one);
    }
    return list;
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

        json_object_set_new(one, "from", json_of_id(&e->from));
        json_object_set_new(one, "to", json_of_id(&e->to));
        json_object_set_new(one, "bytes_per_s",
                            json_of_count(e->rate.bytes_per_s));
        json_object_set_new(one, "confidence",
                            json_of_count(e->rate.confidence));
        json_object_set_new(one, "age_ms", json_of_count(e->rate.age_ms));
        json_array_append_new(list, one);
    }
    return list;
}

/* How many peers hold each stage. */
static json_t *stage_hosts(const struct node_status *s)
{
    json_t *hosts = json_array();

    for (uint32_t k = 0; k < s->stages && k < ROUTE_STAGES_MAX; k++) {
        json_array_append_new(hosts, json_of_count(s->stage_hosts[k]));
    }
    return hosts;
}

static json_t *dht_rejected(const struct node_status *s)
{
    json_t *o = json_object();

    for (int i = 0; i < DHT_REJECT_COUNT; i++) {
        json_object_set_new(o, dht_reject_name((enum dht_reject)i),
                            json_of_count(s->dht.rejected[i]));
    }
    return o;
}

/* It is known after the first step, and where the model ends. */
static double shown_loss(const struct node_status *s)
{
    return s->inner_step == 0 || s->stage != s->stages ? (double)NAN
                                                       : (double)s->loss;
}

static double shown_progress(const struct node_status *s,
                             const struct status_extra *x)
{
    double progress = status_progress(s, x->stop_tokens);

    return progress < 0 ? (double)NAN : progress;
}

/* ---- the rows of the tables ---------------------------------------------- */

#define AS_COUNT(v)   json_of_count(v)
#define AS_LIMIT(v)   ((v) == 0 ? json_null() : json_of_count(v))
#define AS_FLAG(v)    json_boolean(v)
#define AS_REAL(v)    json_of_real((double)(v))
#define AS_SCORE(v)   ((v) > 0 ? json_of_real((double)(v)) : json_null())
#define AS_SECONDS(v) ((v) == 0 ? json_null() : json_real((double)(v) / 1e3))
#define AS_TEXT(v)    safe_text(v)
#define AS_HASH(v)    hash_text(v)
#define AS_ID(v)      json_of_id(v)
#define AS_JSON(v)    (v)

#define CAP_VALUE(kind, name) json_object_set_new(o, #name, AS_##kind(c->name));
#define CAP_LIMIT(kind, name) json_object_set_new(o, #name, AS_LIMIT(c->name));
#define CAP_HIDDEN(kind, name)

/* The settings that are limits of this machine. */
static json_t *settings_object(const struct status_extra *x)
{
    const struct config *c = x->settings;
    json_t *o = json_object();

#define OPTION(name, kind, value, min, max, when, cap, argument, help)         \
    CAP_##cap(kind, name)
#include "daemon/settings/options.def"
    return o;
}

/* "key" of o, or "inner" of its object "outer" where `key` is "outer.inner". It
 * is dropped where that object is null. */
static void put(json_t *o, const char *key, json_t *value)
{
    const char *dot = strchr(key, '.');
    char outer[32];

    if (dot != NULL) {
        (void)snprintf(outer, sizeof outer, "%.*s", (int)(dot - key), key);
        o = json_object_get(o, outer);
        key = dot + 1;
    }
    /* It takes the value even where o is no object. */
    (void)json_object_set_new(o, key, value);
}

static void
add_fields(json_t *o, const struct node_status *s, const struct status_extra *x)
{
/* clang-format off */
#define FIELD(type, member, key, kind, metric, part)                           \
    put(o, key, AS_##kind(s->member));
#define SHOWN(value, key, kind, metric, part) put(o, key, AS_##kind(value));
#define OBJECT(key, there)                                                     \
    put(o, key, (there) ? json_object() : json_null());
/* clang-format on */
#include "daemon/node/status.def"
}

char *status_json(const struct node_status *s, const struct status_extra *x)
{
    json_t *o = json_object();
    char *text;

    if (o == NULL) {
        return NULL;
    }
    add_fields(o, s, x);
    text = json_dumps(o, JSON_COMPACT | JSON_PRESERVE_ORDER |
                             JSON_REAL_PRECISION(JSON_DIGITS));
    json_decref(o);
    return text;
}
