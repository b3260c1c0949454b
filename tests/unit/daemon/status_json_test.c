/* status_json_test.c - the status object and what is made from it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/control/status_json.h"

static struct config settings; /* main(): the defaults */

static struct node_status status_example(void)
{
    struct node_status s = {
        .state = NODE_TRAINING,
        .round = 7,
        .inner_step = 140,
        .tokens = 1000,
        .run_tokens = 4000,
        .loss = 2.5F,
        .tokens_per_s = 123.0F,
        .bits_per_byte = 2.25,
        .peers_alive = 4,
        .peers_in_round = 3,
        .rounds_committed = 6,
        .stop_rounds = 28,
        .n_lost = 1,
        .replicas_equal = true,
    };

    memset(s.params_hash.b, 0xab, sizeof s.params_hash.b);
    s.lost[0].round = 5;
    s.lost[0].detected_ms = 900;
    s.lost[0].reason = "silent";
    memset(s.lost[0].peer.b, 0xcd, sizeof s.lost[0].peer.b);
    return s;
}

static json_t *object_of(const struct node_status *s,
                         const struct status_extra *x)
{
    char *text = status_json(s, x);
    json_t *o;

    assert_non_null(text);
    assert_null(strchr(text, '\n'));
    o = json_loads(text, JSON_REJECT_DUPLICATES, NULL);
    free(text);
    assert_true(json_is_object(o));
    return o;
}

static void every_field_of_the_contract_is_there(void **state)
{
    static const char *const fields[] = {
        "version",
        "pid",
        "peer_id",
        "run_id",
        "run_name",
        "state",
        "fork",
        "round",
        "inner_step",
        "tokens",
        "tokens_per_s",
        "loss",
        "bits_per_byte",
        "peers_alive",
        "peers_in_round",
        "peers_on_probation",
        "params_hash",
        "replicas_equal",
        "bytes_sent",
        "bytes_received",
        "last_round_ms",
        "rounds_committed",
        "rounds_aborted",
        "rollbacks",
        "audits",
        "strays",
        "elements_inherited",
        "tokens_dropped",
        "peers_lost",
        "reachability",
        "reason",
        "progress",
        "eta_s",
        "listen",
        "bandwidth",
        "caps",
        "bits_per_byte_before",
        "dht",
        "strangers",
        "refused",
        "links",
        "fetch",
        "shards",
        "sources_dropped",
        "reachability_reason",
        "bytes_relayed",
        "stage",
        "share",
        "probation",
    };
    struct node_status s = status_example();
    struct status_extra x = {
        .version = "1", .settings = &settings, .eta_s = -1};
    json_t *o = object_of(&s, &x);

    (void)state;
    for (size_t i = 0; i < sizeof fields / sizeof fields[0]; i++) {
        if (json_object_get(o, fields[i]) == NULL) {
            fail_msg("no field %s", fields[i]);
        }
    }
    assert_int_equal(json_object_size(o), sizeof fields / sizeof fields[0]);
    json_decref(o);
}

static void values_are_those_of_the_node(void **state)
{
    struct node_status s = status_example();
    struct status_extra x = {.version = "1",
                             .settings = &settings,
                             .run_name = "a \"name\"",
                             .net.bytes_sent = 1U << 31,
                             .eta_s = 12.5};
    json_t *o = object_of(&s, &x);
    const json_t *lost = json_array_get(json_object_get(o, "peers_lost"), 0);
    const char *hash = json_string_value(json_object_get(o, "params_hash"));

    (void)state;
    assert_string_equal(json_string_value(json_object_get(o, "state")),
                        "training");
    assert_string_equal(json_string_value(json_object_get(o, "run_name")),
                        "a \"name\"");
    assert_int_equal(json_integer_value(json_object_get(o, "round")), 7);
    assert_int_equal(json_integer_value(json_object_get(o, "bytes_sent")),
                     INT64_C(1) << 31);
    assert_true(json_is_true(json_object_get(o, "replicas_equal")));
    assert_true(json_is_false(json_object_get(o, "fork")));
    assert_int_equal(strlen(hash), 64);
    assert_memory_equal(hash, "abab", 4);
    assert_int_equal(json_integer_value(json_object_get(lost, "detected_ms")),
                     900);
    assert_string_equal(json_string_value(json_object_get(lost, "reason")),
                        "silent");
    assert_memory_equal(json_string_value(json_object_get(lost, "peer_id")),
                        "cdcd", 4);
    assert_true(json_number_value(json_object_get(o, "progress")) == 0.25);
    assert_true(json_number_value(json_object_get(o, "eta_s")) == 12.5);
    json_decref(o);
}

static void what_is_not_known_is_null(void **state)
{
    static const char *const fields[] = {
        "loss",        "bits_per_byte", "bits_per_byte_before",
        "params_hash", "run_id",        "run_name",
        "progress",    "eta_s"};
    struct node_status s = {.state = NODE_STARTING};
    struct status_extra x = {
        .version = "1", .settings = &settings, .eta_s = -1};
    json_t *o;

    (void)state;
    s.tokens_per_s = (float)NAN;
    o = object_of(&s, &x);
    for (size_t i = 0; i < sizeof fields / sizeof fields[0]; i++) {
        if (!json_is_null(json_object_get(o, fields[i]))) {
            fail_msg("%s is not null", fields[i]);
        }
    }
    assert_true(json_is_null(json_object_get(o, "tokens_per_s")));
    json_decref(o);
}

static void text_that_is_not_utf8_leaves_the_object_whole(void **state)
{
    struct node_status s = status_example();
    struct status_extra x = {
        .version = "1", .settings = &settings, .run_name = "\xff\xfe"};
    json_t *o;

    (void)state;
    s.reason[0] = (char)0xff;
    o = object_of(&s, &x);
    assert_int_equal(json_integer_value(json_object_get(o, "round")), 7);
    assert_non_null(json_object_get(o, "reason"));
    assert_non_null(json_object_get(o, "run_name"));
    json_decref(o);
}

static void shards_that_are_here_are_counted(void **state)
{
    struct node_status s = status_example();
    struct status_extra x = {
        .version = "1", .settings = &settings, .eta_s = 90};
    json_t *o, *shards;

    (void)state;
    s.shards = 9;
    s.shards_here = 4;
    o = object_of(&s, &x);
    shards = json_object_get(o, "shards");
    assert_int_equal(json_integer_value(json_object_get(shards, "here")), 4);
    assert_int_equal(json_integer_value(json_object_get(shards, "of")), 9);
    assert_true(json_is_null(json_object_get(shards, "left_s")));
    json_decref(o);
    s.shards_left_ms = 1500;
    o = object_of(&s, &x);
    shards = json_object_get(o, "shards");
    assert_true(json_real_value(json_object_get(shards, "left_s")) == 1.5);
    json_decref(o);
    s.shards = 0;
    o = object_of(&s, &x);
    assert_true(json_is_null(json_object_get(o, "shards")));
    json_decref(o);
}

static void a_fetch_says_how_far_behind_it_is(void **state)
{
    struct node_status s = status_example();
    struct status_extra x = {
        .version = "1", .settings = &settings, .eta_s = 90};
    json_t *o, *fetch;

    (void)state;
    s.fetched_bytes = 30;
    s.fetch_total_bytes = 40;
    s.rounds_behind = 5;
    s.catch_up_ms = 2500;
    o = object_of(&s, &x);
    fetch = json_object_get(o, "fetch");
    assert_int_equal(json_integer_value(json_object_get(fetch, "bytes")), 30);
    assert_int_equal(
        json_integer_value(json_object_get(fetch, "rounds_behind")), 5);
    assert_true(json_real_value(json_object_get(fetch, "catch_up_s")) == 2.5);
    json_decref(o);
}

static void the_line_for_others_is_null_where_there_is_none(void **state)
{
    struct status_share share = {.scope = NULL, .reason = "no address"};
    struct node_status s = status_example();
    struct status_extra x = {.settings = &settings, .share = &share};
    json_t *o = object_of(&s, &x), *shown = json_object_get(o, "share");

    (void)state;
    assert_true(json_is_null(json_object_get(shown, "uri")));
    assert_true(json_is_null(json_object_get(shown, "scope")));
    assert_string_equal(json_string_value(json_object_get(shown, "reason")),
                        "no address");
    json_decref(o);
    (void)snprintf(share.uri, sizeof share.uri, "loco://first.example:7700/0");
    share.scope = "internet";
    o = object_of(&s, &x);
    shown = json_object_get(o, "share");
    assert_string_equal(json_string_value(json_object_get(shown, "uri")),
                        share.uri);
    assert_string_equal(json_string_value(json_object_get(shown, "scope")),
                        "internet");
    json_decref(o);
}

static void limits_that_are_settings_are_shown_as_they_are_set(void **state)
{
    static const char *const keys[] = {
        "threads",
        "rounds",
        "upload_bytes_per_s",
        "idle_io",
        "bytes_per_month",
        "download_bytes_per_s",
        "bytes_this_month",
        "disk_bytes",
        "disk_bytes_used",
        "cpu_percent",
        "memory_bytes",
        "memory_bytes_needed",
        "idle_minutes",
        "nice",
        "gpu_memory_bytes",
        "in_use",
        "schedule",
        "battery",
        "on_battery",
    };
    static struct config set;
    struct node_status s = status_example();
    struct status_extra x = {.version = "1", .settings = &set};
    json_t *o, *caps;

    (void)state;
    config_init(&set);
    set.cpu_percent = 50;
    o = object_of(&s, &x);
    caps = json_object_get(o, "caps");
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++) {
        if (json_object_get(caps, keys[i]) == NULL) {
            fail_msg("no limit %s", keys[i]);
        }
    }
    assert_int_equal(json_object_size(caps), sizeof keys / sizeof keys[0]);
    assert_int_equal(json_integer_value(json_object_get(caps, "cpu_percent")),
                     50);
    assert_int_equal(json_integer_value(json_object_get(caps, "threads")), 1);
    assert_int_equal(json_integer_value(json_object_get(caps, "nice")), 0);
    assert_true(json_is_false(json_object_get(caps, "idle_io")));
    assert_true(json_is_null(json_object_get(caps, "upload_bytes_per_s")));
    assert_string_equal(json_string_value(json_object_get(caps, "battery")),
                        "pause");
    json_decref(o);
}

static void progress_is_of_the_nearer_limit(void **state)
{
    struct node_status s = status_example();

    (void)state;
    assert_true(status_progress(&s, 0) == 0.25);
    assert_true(status_progress(&s, 8000) == 0.5);
    assert_true(status_progress(&s, 3000) == 1);
    s.stop_rounds = 0;
    assert_true(status_progress(&s, 0) < 0);
    s.state = NODE_SYNCING;
    s.fetched_bytes = 30;
    s.fetch_total_bytes = 40;
    assert_true(status_progress(&s, 0) == 0.75);
    s.state = NODE_FINISHED;
    assert_true(status_progress(&s, 0) == 1);
}

/* A peer that trains alone may have one round that is the whole run. */
static void progress_moves_within_a_round(void **state)
{
    struct node_status s = status_example();

    (void)state;
    s.round_trained = 0.5;
    assert_true(status_progress(&s, 0) == 7.5 / 28);
    s.round = 0;
    s.stop_rounds = 1;
    assert_true(status_progress(&s, 0) == 0.5);
    s.round_trained = 1;
    assert_true(status_progress(&s, 0) == 1);
}

static void eta_extrapolates_and_starts_anew_when_progress_falls(void **state)
{
    struct status_eta eta = {0};

    (void)state;
    assert_true(status_eta_update(&eta, -1, 0) < 0);
    assert_true(status_eta_update(&eta, 0.2, 1000) < 0);
    assert_true(fabs(status_eta_update(&eta, 0.4, 3000) - 6) < 1e-9);
    assert_true(status_eta_update(&eta, 0.1, 4000) < 0);
    assert_true(fabs(status_eta_update(&eta, 0.55, 5000) - 1) < 1e-9);
    assert_true(status_eta_update(&eta, 1, 9000) == 0);
}

static void metrics_name_figures_in_base_units(void **state)
{
    struct node_status s = status_example();
    struct status_extra x = {
        .version = "1", .settings = &settings, .eta_s = -1};
    char *json, *text;

    (void)state;
    s.dht_contacts = 12;
    s.dht.self_named = 3;
    s.dht.misnamed = 7;
    s.stranger_refused[STRANGER_BYTES] = 6;
    s.stranger_links = 9;
    s.dht.rejected[DHT_REJECT_REPLAYED] = 5;
    s.stale = 6;
    x.net.accepts_refused = 940;
    json = status_json(&s, &x);
    text = status_metrics(json);
    assert_non_null(text);
    assert_non_null(strstr(text, "\nloco_dht_contacts 12\n"));
    assert_non_null(strstr(text, "\nloco_dht_self_named_total 3\n"));
    assert_non_null(strstr(text, "\nloco_dht_misnamed_total 7\n"));
    assert_non_null(strstr(text, "\nloco_stranger_links 9\n"));
    assert_non_null(
        strstr(text, "\nloco_strangers_refused_total{why=\"bytes\"} 6\n"));
    assert_non_null(
        strstr(text, "\nloco_dht_rejected_total{reason=\"replayed\"} 5\n"));
    assert_non_null(strstr(text, "\nloco_refused_total{what=\"stale\"} 6\n"));
    assert_non_null(
        strstr(text, "\nloco_refused_total{what=\"connections\"} 940\n"));
    assert_non_null(strstr(text, "\nloco_round 7\n"));
    assert_non_null(strstr(text, "\nloco_held_out_bpb 2.25\n"));
    assert_non_null(strstr(text, "\nloco_state{state=\"training\"} 1\n"));
    assert_non_null(strstr(text, "\nloco_state{state=\"paused\"} 0\n"));
    assert_non_null(strstr(text, "loco_build_info{version=\"1\",peer_id=\""));
    assert_non_null(strstr(text, "\nloco_last_round_seconds 0\n"));
    assert_non_null(strstr(text, "\nloco_replicas_equal 1\n"));
    assert_null(strstr(text, "loco_upload_cap"));
    free(text);
    free(json);
    assert_null(status_metrics("not json"));
    assert_null(status_metrics("[1]"));
}

static void a_label_cannot_be_broken_out_of(void **state)
{
    char *text = status_metrics("{\"version\":\"1\\\"} 2\\nevil 3\"}");

    (void)state;
    assert_non_null(text);
    assert_null(strstr(text, "evil"));
    free(text);
}

static void each_link_is_named_by_its_other_end(void **state)
{
    struct node_status s = status_example();
    struct status_extra x = {
        .version = "1", .settings = &settings, .eta_s = -1, .n_edges = 2};
    char *json, *text, who[ID_SHORT_MAX], want[160];

    (void)state;
    x.edges[0].from = x.edges[1].to = x.peer_id;
    x.edges[0].to.b[0] = x.edges[1].from.b[0] = 7;
    x.edges[0].rate.bytes_per_s = 111;
    x.edges[1].rate.bytes_per_s = 222;
    json = status_json(&s, &x);
    text = status_metrics(json);
    assert_non_null(text);
    id_short(&x.edges[0].to, who);
    (void)snprintf(want, sizeof want, "{peer=\"%s\",direction=\"send\"} 111\n",
                   who);
    assert_non_null(strstr(text, want));
    (void)snprintf(want, sizeof want,
                   "{peer=\"%s\",direction=\"receive\"} 222\n", who);
    assert_non_null(strstr(text, want));
    free(text);
    free(json);
}

static void metrics_leave_out_what_is_null(void **state)
{
    struct node_status s = {.state = NODE_STARTING};
    struct status_extra x = {
        .version = "1", .settings = &settings, .eta_s = -1};
    char *json = status_json(&s, &x);
    char *text = status_metrics(json);

    (void)state;
    assert_non_null(text);
    assert_null(strstr(text, "loco_loss"));
    free(text);
    free(json);
}

static void a_stage_says_what_it_holds_and_how_busy_it_is(void **state)
{
    struct node_status s = status_example();
    struct status_extra x = {.version = "1",
                             .settings = &settings,
                             .eta_s = -1,
                             .memory_bytes = 12345};
    json_t *o = object_of(&s, &x), *stage;

    (void)state;
    assert_true(json_is_null(json_object_get(o, "stage")));
    assert_true(json_is_number(json_object_get(o, "loss")));
    json_decref(o);
    s.stages = 3;
    s.stage = 2;
    s.stage_hosts[0] = s.stage_hosts[2] = 2;
    s.stage_hosts[1] = 1;
    s.queue = 1.5F;
    s.idle = 0.25F;
    o = object_of(&s, &x);
    stage = json_object_get(o, "stage");
    assert_int_equal(json_integer_value(json_object_get(stage, "number")), 2);
    assert_int_equal(json_integer_value(json_object_get(stage, "of")), 3);
    assert_int_equal(json_array_size(json_object_get(stage, "hosts")), 3);
    assert_int_equal(
        json_integer_value(json_array_get(json_object_get(stage, "hosts"), 1)),
        1);
    assert_true(json_real_value(json_object_get(stage, "queue")) == 1.5);
    assert_true(json_real_value(json_object_get(stage, "idle")) == 0.25);
    assert_int_equal(json_integer_value(json_object_get(stage, "memory_bytes")),
                     12345);
    assert_true(json_is_null(json_object_get(o, "loss"))); /* not known here */
    json_decref(o);
    s.stage = 3;
    o = object_of(&s, &x);
    assert_true(json_is_number(json_object_get(o, "loss")));
    json_decref(o);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_field_of_the_contract_is_there),
        cmocka_unit_test(values_are_those_of_the_node),
        cmocka_unit_test(what_is_not_known_is_null),
        cmocka_unit_test(text_that_is_not_utf8_leaves_the_object_whole),
        cmocka_unit_test(shards_that_are_here_are_counted),
        cmocka_unit_test(a_fetch_says_how_far_behind_it_is),
        cmocka_unit_test(the_line_for_others_is_null_where_there_is_none),
        cmocka_unit_test(limits_that_are_settings_are_shown_as_they_are_set),
        cmocka_unit_test(progress_is_of_the_nearer_limit),
        cmocka_unit_test(progress_moves_within_a_round),
        cmocka_unit_test(eta_extrapolates_and_starts_anew_when_progress_falls),
        cmocka_unit_test(metrics_name_figures_in_base_units),
        cmocka_unit_test(metrics_leave_out_what_is_null),
        cmocka_unit_test(a_label_cannot_be_broken_out_of),
        cmocka_unit_test(each_link_is_named_by_its_other_end),
        cmocka_unit_test(a_stage_says_what_it_holds_and_how_busy_it_is),
    };

    config_init(&settings);
    return cmocka_run_group_tests_name("status_json", tests, NULL, NULL);
}
