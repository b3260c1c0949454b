/* status_metrics.c - the status as Prometheus text (format 0.0.4).
 *
 * Names follow prometheus.io/docs/practices/naming: base units last, _total on
 * counters. Labels are bounded: words of our own lists, and for links the short
 * ids of at most STATUS_EDGES_MAX edges.
 */
#include <ctype.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "daemon/control/status_json.h"
#include "p2p/swarm/reach.h"

/* clang-format off */
#define NO_METRIC                 {NULL, NULL, 0, NULL}
#define GAUGE(name, unit, help)   {name, "gauge", unit, help}
#define COUNTER(name, unit, help) {name, "counter", unit, help}
/* clang-format on */

/* The numbers of the status, and of the objects in it ("links.dialled"). */
static const struct {
    const char *field;
    struct {
        const char *name, *type;
        double unit; /* of the field in the metric's */
        const char *help;
    } metric; /* name NULL: it has none */
} fields[] = {
#define FIELD(type, member, key, kind, metric, part) {key, metric},
#define SHOWN(value, key, kind, metric, part)        {key, metric},
#define METRIC(key, metric)                          {key, metric},
#include "daemon/node/status.def"
};

/* One metric of all numbers of an object, with their names as a label. */
static const struct {
    const char *object, *metric, *type, *label, *help;
} families[] = {
    {"links", "loco_links", "gauge", "kind",
     "Links to peers, by how they were made"},
    {"dht.rejected", "loco_dht_rejected_total", "counter", "reason",
     "Records that were not taken, by reason"},
    {"strangers.refused", "loco_strangers_refused_total", "counter", "why",
     "Links and frames of strangers refused, by reason"},
    {"refused", "loco_refused_total", "counter", "what",
     "Connections, frames and messages refused, by kind"},
};

static void head(FILE *to, const char *name, const char *type, const char *help)
{
    (void)fprintf(to, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, type);
}

static const json_t *field_of(const json_t *status, const char *field)
{
    const char *dot = strchr(field, '.');
    char outer[32];

    if (dot == NULL) {
        return json_object_get(status, field);
    }
    (void)snprintf(outer, sizeof outer, "%.*s", (int)(dot - field), field);
    return json_object_get(json_object_get(status, outer), dot + 1);
}

static void print_numbers(FILE *to, const json_t *status)
{
    for (size_t i = 0; i < sizeof fields / sizeof fields[0]; i++) {
        const char *name = fields[i].metric.name;
        const json_t *value =
            name == NULL ? NULL : field_of(status, fields[i].field);

        if (!json_is_number(value) && !json_is_boolean(value)) {
            continue;
        }
        head(to, name, fields[i].metric.type, fields[i].metric.help);
        (void)fprintf(to, "%s %.15g\n", name,
                      json_is_boolean(value)
                          ? (double)json_is_true(value)
                          : json_number_value(value) * fields[i].metric.unit);
    }
}

/* One series a word of a list; the present one is 1. */
static void print_states(FILE *to, const json_t *status)
{
    const char *state = json_string_value(json_object_get(status, "state"));
    const char *reach =
        json_string_value(json_object_get(status, "reachability"));

    head(to, "loco_state", "gauge", "1 for the current state of the daemon");
    for (int i = 0; i < NODE_STATE_COUNT; i++) {
        const char *name = node_state_name((enum node_state)i);

        (void)fprintf(to, "loco_state{state=\"%s\"} %d\n", name,
                      state != NULL && strcmp(state, name) == 0);
    }
    head(to, "loco_reachability", "gauge",
         "1 for the current reachability of this peer");
    for (int i = 0; i < REACH_CLASS_COUNT; i++) {
        const char *name = reach_name((enum reach_class)i);

        (void)fprintf(to, "loco_reachability{class=\"%s\"} %d\n", name,
                      reach != NULL && strcmp(reach, name) == 0);
    }
}

static void print_families(FILE *to, const json_t *status)
{
    for (size_t i = 0; i < sizeof families / sizeof families[0]; i++) {
        const json_t *o = field_of(status, families[i].object);
        const char *key;
        const json_t *value;

        if (!json_is_object(o)) {
            continue;
        }
        head(to, families[i].metric, families[i].type, families[i].help);
        json_object_foreach((json_t *)(uintptr_t)o, key, value)
        {
            (void)fprintf(to, "%s{%s=\"%s\"} %" JSON_INTEGER_FORMAT "\n",
                          families[i].metric, families[i].label, key,
                          json_integer_value(value));
        }
    }
}

/* The id of a peer as a label; ours come from status_json(). */
static void brief(const char *hex, char out[ID_SHORT_MAX])
{
    struct peer_id id;

    (void)snprintf(out, ID_SHORT_MAX, "unknown");
    if (hex != NULL && hex_decode(hex, id.b, sizeof id.b) == 0) {
        id_short(&id, out);
    }
}

static void print_bandwidth(FILE *to, const json_t *status)
{
    const json_t *list = json_object_get(status, "bandwidth");
    const char *self = json_string_value(json_object_get(status, "peer_id"));
    char who[ID_SHORT_MAX];

    head(to, "loco_link_bytes_per_second", "gauge",
         "Measured rate of segments to and from that peer");
    for (size_t i = 0; self != NULL && i < json_array_size(list); i++) {
        const json_t *one = json_array_get(list, i);
        const char *from = json_string_value(json_object_get(one, "from"));
        bool sends = from != NULL && strcmp(from, self) == 0;

        brief(sends ? json_string_value(json_object_get(one, "to")) : from,
              who);
        (void)fprintf(
            to,
            "loco_link_bytes_per_second{peer=\"%s\",direction=\"%s\"} %lld\n",
            who, sends ? "send" : "receive",
            (long long)json_integer_value(json_object_get(one, "bytes_per_s")));
    }
}

/* A text field as a label's value: our own words and hex, or nothing. */
static const char *word(const json_t *status, const char *key)
{
    const char *text = json_string_value(json_object_get(status, key));

    for (const char *c = text; c != NULL && *c != '\0'; c++) {
        if (!isalnum((unsigned char)*c) && strchr(".-+_", *c) == NULL) {
            return "";
        }
    }
    return text == NULL ? "" : text;
}

static void print_info(FILE *to, const json_t *status)
{
    head(to, "loco_build_info", "gauge", "Version, peer and run; always 1");
    (void)fprintf(
        to, "loco_build_info{version=\"%s\",peer_id=\"%s\",run_id=\"%s\"} 1\n",
        word(status, "version"), word(status, "peer_id"),
        word(status, "run_id"));
}

/* The names that all Prometheus clients use for their process. */
static void print_process(FILE *to)
{
    unsigned long long size, resident;
    struct rusage usage;
    FILE *f = fopen("/proc/self/statm", "re");

    if (f != NULL) {
        if (fscanf(f, "%llu %llu", &size, &resident) == 2) {
            head(to, "process_resident_memory_bytes", "gauge",
                 "Resident memory");
            (void)fprintf(to, "process_resident_memory_bytes %llu\n",
                          resident * (unsigned long long)sysconf(_SC_PAGESIZE));
        }
        (void)fclose(f);
    }
    if (getrusage(RUSAGE_SELF, &usage) == 0) {
        head(to, "process_cpu_seconds_total", "counter",
             "CPU time, user and system");
        (void)fprintf(to, "process_cpu_seconds_total %.3f\n",
                      (double)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
                          1e-6 * (double)(usage.ru_utime.tv_usec +
                                          usage.ru_stime.tv_usec));
    }
}

char *status_metrics(const char *json)
{
    json_t *status = json_loads(json, 0, NULL);
    char *text = NULL;
    size_t size = 0;
    FILE *to;

    if (!json_is_object(status)) {
        json_decref(status);
        return NULL;
    }
    to = open_memstream(&text, &size);
    if (to != NULL) {
        print_info(to, status);
        print_states(to, status);
        print_numbers(to, status);
        print_families(to, status);
        print_bandwidth(to, status);
        print_process(to);
        if (fclose(to) != 0) {
            free(text);
            text = NULL;
        }
    }
    json_decref(status);
    return text;
}
