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

#include "daemon/status_dht.h"
#include "daemon/status_json.h"
#include "p2p/reach.h"

/* A number of the status, or of an object in it ("links.dialled"). */
static const struct {
    const char *field;
    const char *metric;
    const char *type;
    double unit; /* of the field in the metric's */
    const char *help;
} metrics[] = {
    {"round", "loco_round", "gauge", 1, "Last committed round of the run"},
    {"inner_step", "loco_inner_steps_total", "counter", 1, "Inner steps taken"},
    {"tokens", "loco_tokens_total", "counter", 1, "Tokens trained on"},
    {"tokens_per_s", "loco_tokens_per_second", "gauge", 1, "Training speed"},
    {"loss", "loco_loss_nats", "gauge", 1, "Training loss per token"},
    {"bits_per_byte", "loco_held_out_bpb", "gauge", 1,
     "Held-out bits per byte of the shared model"},
    {"peers_alive", "loco_peers_alive", "gauge", 1, "Live peers, this one too"},
    {"peers_in_round", "loco_peers_in_round", "gauge", 1,
     "Members of the round"},
    {"bytes_sent", "loco_sent_bytes_total", "counter", 1,
     "Bytes sent on all sockets"},
    {"bytes_received", "loco_received_bytes_total", "counter", 1,
     "Bytes received on all sockets"},
    {"bytes_relayed", "loco_relayed_bytes_total", "counter", 1,
     "Bytes carried for others"},
    {"last_round_ms", "loco_last_round_seconds", "gauge", 1e-3,
     "From the last commit but one to the last"},
    {"rounds_committed", "loco_rounds_committed_total", "counter", 1,
     "Rounds committed with this peer"},
    {"rounds_aborted", "loco_rounds_aborted_total", "counter", 1,
     "Attempts of rounds that were given up"},
    {"elements_inherited", "loco_elements_inherited_total", "counter", 1,
     "Parameters that failed attempts had finished for the next one"},
    {"tokens_dropped", "loco_tokens_dropped_total", "counter", 1,
     "Tokens whose training was thrown away"},
    {"progress", "loco_progress_ratio", "gauge", 1, "Done, from 0 to 1"},
    {"eta_s", "loco_eta_seconds", "gauge", 1, "Estimate of the time left"},
    {"fork", "loco_fork", "gauge", 1, "Whether the view is marked as a fork"},
    {"replicas_equal", "loco_replicas_equal", "gauge", 1,
     "Whether all peers hold the same parameters"},
    {"stage.number", "loco_stage", "gauge", 1,
     "Stage of the model that this peer holds; absent: it holds all"},
    {"stage.queue", "loco_stage_queue", "gauge", 1,
     "Micro-batches that waited for this peer, mean of the last round"},
    {"stage.idle", "loco_stage_idle_ratio", "gauge", 1,
     "Part of the last round's steps in which this peer computed nothing"},
    {"caps.upload_bytes_per_s", "loco_upload_cap_bytes_per_second", "gauge", 1,
     "Most tensor data sent a second; absent: no cap"},
    {"caps.bytes_this_month", "loco_month_bytes", "gauge", 1,
     "Bytes sent and received this calendar month"},
    {"caps.bytes_per_month", "loco_month_cap_bytes", "gauge", 1,
     "The month's quota; absent: none"},
    {"caps.disk_bytes_used", "loco_disk_bytes", "gauge", 1,
     "Bytes that the state directory takes"},
    {"caps.disk_bytes", "loco_disk_cap_bytes", "gauge", 1,
     "Most that the state directory may take; absent: no cap"},
    {"caps.on_battery", "loco_on_battery", "gauge", 1,
     "Whether this machine runs on battery"},
    {"caps.download_bytes_per_s", "loco_download_cap_bytes_per_second", "gauge",
     1, "Most tensor data received a second; absent: no cap"},
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
    for (size_t i = 0; i < sizeof metrics / sizeof metrics[0]; i++) {
        const json_t *value = field_of(status, metrics[i].field);

        if (!json_is_number(value) && !json_is_boolean(value)) {
            continue;
        }
        head(to, metrics[i].metric, metrics[i].type, metrics[i].help);
        (void)fprintf(to, "%s %.15g\n", metrics[i].metric,
                      json_is_boolean(value)
                          ? (double)json_is_true(value)
                          : json_number_value(value) * metrics[i].unit);
    }
}

/* One series a word of a list; the present one is 1. */
static void print_states(FILE *to, const json_t *status)
{
    const char *state = json_string_value(json_object_get(status, "state"));
    const char *reach =
        json_string_value(json_object_get(status, "reachability"));

    head(to, "loco_state", "gauge", "1 for what the daemon does now");
    for (int i = 0; i < NODE_STATE_COUNT; i++) {
        const char *name = node_state_name((enum node_state)i);

        (void)fprintf(to, "loco_state{state=\"%s\"} %d\n", name,
                      state != NULL && strcmp(state, name) == 0);
    }
    head(to, "loco_reachability", "gauge", "1 for how others reach this peer");
    for (int i = 0; i < REACH_CLASS_COUNT; i++) {
        const char *name = reach_name((enum reach_class)i);

        (void)fprintf(to, "loco_reachability{class=\"%s\"} %d\n", name,
                      reach != NULL && strcmp(reach, name) == 0);
    }
}

static void print_links(FILE *to, const json_t *status)
{
    static const char *const kinds[] = {"dialled", "accepted", "relayed"};
    const json_t *links = json_object_get(status, "links");

    if (!json_is_object(links)) {
        return;
    }
    head(to, "loco_links", "gauge", "Links to peers, by who made them");
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
        (void)fprintf(
            to, "loco_links{kind=\"%s\"} %lld\n", kinds[i],
            (long long)json_integer_value(json_object_get(links, kinds[i])));
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
         "Of segments that really went to or came from that peer");
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
        print_links(to, status);
        status_dht_metrics(to, json_object_get(status, "dht"));
        status_refused_metrics(to, json_object_get(status, "refused"));
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
