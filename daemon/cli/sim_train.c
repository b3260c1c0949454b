/* sim_train.c - loco sim train: a method on real text, before the run; its
 * settings and files: lab_setup.h.
 */
#include <stdbool.h>
#include <stdio.h>
#include <unistd.h>

#include <jansson.h>

#include "daemon/cli/lab_setup.h"
#include "proto/base/err.h"
#include "proto/base/errmsg.h"

struct train {
    struct lab_setup setup;
    const char *csv, *plot;
    bool json;
};

/* ---- what it says ------------------------------------------------------- */

static bool show_progress(void *data, const struct lab_point *p)
{
    const struct train *t = data;

    if (isatty(STDERR_FILENO)) {
        (void)fprintf(stderr,
                      "\r%3.0f%%  %llu tokens  turn %llu  loss %.3f  %.1f MB "
                      "sent  %.2f virtual hours ",
                      100.0 * (double)p->tokens / (double)t->setup.lab.tokens,
                      (unsigned long long)p->tokens,
                      (unsigned long long)p->turns, p->loss,
                      (double)p->bytes_sent / 1e6, p->virtual_s / 3600.0);
        (void)fflush(stderr);
    }
    return true;
}

static const char *const stream_names[STREAM_TENSOR_COUNT] = {
    "gradients", "parameters", "first moments", "second moments"};

static void warn_unsynced(const struct train *t, const struct lab_result *r)
{
    struct stream streams[METHOD_STREAMS_MAX];
    size_t n = method_streams(&t->setup.lab.method, streams);

    for (size_t i = 0; i < n; i++) {
        if (r->never_synced[i]) {
            (void)fprintf(stderr,
                          "loco: sim train: the %s were never averaged: %u "
                          "inner steps between two averages, but the run has "
                          "%llu; give more --tokens or a shorter period\n",
                          stream_names[streams[i].tensor], streams[i].period,
                          (unsigned long long)t->setup.manifest.inner.steps);
        }
    }
}

static int print_json(const struct train *t, const struct lab_result *r)
{
    bool unsynced = false;
    json_t *o;

    for (size_t i = 0; i < METHOD_STREAMS_MAX; i++) {
        unsynced = unsynced || r->never_synced[i];
    }
    o = json_pack(
        "{s:s, s:I, s:f, s:f, s:f, s:I, s:I, s:I, s:f, s:I, s:f, s:b}", "sync",
        t->setup.a.sync, "peers", (json_int_t)t->setup.a.peers, "bits_per_byte",
        r->bits_per_byte, "bits_per_byte_before", r->bits_per_byte_before,
        "loss", r->loss, "tokens", (json_int_t)r->tokens, "bytes_sent",
        (json_int_t)r->bytes_sent, "bytes_sent_most", (json_int_t)r->bytes_most,
        "virtual_hours", r->virtual_s / 3600.0, "rounds", (json_int_t)r->turns,
        "spread", r->spread, "never_synchronised", unsynced);
    if (t->setup.lab.stages > 1) {
        json_object_set_new(o, "stages", json_integer(t->setup.lab.stages));
        json_object_set_new(o, "bits_per_byte_routes",
                            json_real(r->bits_per_byte_routes));
    }
    if (t->setup.lab.method.group == METHOD_TRAINER) {
        json_object_set_new(o, "trainers",
                            json_integer((json_int_t)r->trainers));
        json_object_set_new(o, "batch", json_real(r->batch));
    }
    return cli_print_json(o, JSON_REAL_PRECISION(9));
}

static void print_text(const struct train *t, const struct lab_result *r)
{
    (void)printf("%s, %llu peers, %llu tokens in all\n", t->setup.a.sync,
                 (unsigned long long)t->setup.a.peers,
                 (unsigned long long)r->tokens);
    (void)printf("  held-out bits per byte  %.4f (untrained %.4f)\n",
                 r->bits_per_byte, r->bits_per_byte_before);
    (void)printf("  loss, last tenth        %.4f nats per token\n", r->loss);
    (void)printf("  rounds                  %llu\n",
                 (unsigned long long)r->turns);
    (void)printf("  sent per peer           %.2f MB\n",
                 (double)r->bytes_sent / 1e6 / (double)t->setup.a.peers);
    (void)printf("  virtual time            %.3f hours\n",
                 r->virtual_s / 3600.0);
    if (t->setup.lab.stages > 1) {
        (void)printf("  mean of the columns     %.4f bits per byte\n",
                     r->bits_per_byte_routes);
    }
    if (!method_replicas_equal(&t->setup.lab.method)) {
        (void)printf("  spread of the replicas  %.3g\n", r->spread);
    }
    if (t->setup.lab.method.group == METHOD_TRAINER) {
        (void)printf("  trainers, mean batch    %u, %.1f sequences\n",
                     r->trainers, r->batch);
    }
}

static int report(const struct train *t, const struct lab_result *r)
{
    char errmsg[ERRMSG_SIZE];
    int rv = 0;

    if (isatty(STDERR_FILENO)) {
        (void)fputc('\n', stderr);
    }
    warn_unsynced(t, r);
    if (t->csv != NULL) {
        rv = lab_csv_write(t->csv, r, errmsg);
    }
    if (rv == 0 && t->plot != NULL) {
        rv = lab_plot_write(t->plot, t->setup.a.sync, r, errmsg);
    }
    if (rv != 0) {
        return cli_fail(cli_trouble_of(rv, TROUBLE_RUN_SETTINGS),
                        "sim train: %s", errmsg);
    }
    if (t->json) {
        return print_json(t, r);
    }
    print_text(t, r);
    return LOCO_EXIT_OK;
}

/* ---- the command -------------------------------------------------------- */

static int run(struct train *t)
{
    struct lab_result result;
    char errmsg[ERRMSG_SIZE] = "";
    int rv;

    t->setup.lab.progress = show_progress;
    t->setup.lab.progress_data = t;
    rv = lab_run(&t->setup.lab, &result, errmsg);
    if (rv != 0) {
        rv = cli_fail(cli_trouble_of(rv, TROUBLE_RUN_SETTINGS), "sim train: %s",
                      errmsg[0] != '\0' ? errmsg : loco_strerror(rv));
    } else {
        rv = report(t, &result);
    }
    lab_result_free(&result);
    return rv;
}

int cli_sim_train(const struct cli_call *call)
{
    static struct train t;
    struct lab_arguments *a = &t.setup.a;
    const struct cli_option options[] = {
        {"--sync", CLI_TEXT, &a->sync, "PRESET",
         "training method (opendiloco)"},
        {"--peers", CLI_COUNT, &a->peers, "M", "number of replicas (4)"},
        {"--tokens", CLI_COUNT, &a->tokens, "N",
         "tokens, summed over the peers (2000000)"},
        {"--model", CLI_TEXT, &a->model, "NAME|FILE",
         "model to train (quickstart-1m)"},
        {"--set", CLI_LIST, &a->set, "path=value",
         "set a key of the run, or lab.*; repeatable"},
        {"--members", CLI_TEXT, &a->members, "FILE",
         "peers that join and leave"},
        {"--links", CLI_TEXT, &a->links, "FILE",
         "speeds of machines and links"},
        {"--data", CLI_TEXT, &a->data, "DIR",
         "directory that loco data pack wrote (public domain prose)"},
        {"--csv", CLI_TEXT, &t.csv, "FILE", "write one row per round"},
        {"--plot", CLI_TEXT, &t.plot, "FILE", "draw the curves as SVG"},
        {"--seed", CLI_COUNT, &a->seed, "S",
         "seed of weights, data and pairs (1)"},
        {"--threads", CLI_COUNT, &a->threads, "K", "processor threads (1)"},
        {"--dtype", CLI_TEXT, &a->dtype, "fp32|bf16|auto",
         "operands of matrix products (auto)"},
        {"--json", CLI_FLAG, &t.json, NULL, "print one JSON object"},
    };
    int rv;

    t.json = false;
    *a = (struct lab_arguments){.command = "sim train",
                                .sync = "opendiloco",
                                .model = "quickstart-1m",
                                .dtype = "auto",
                                .peers = 4,
                                .tokens = 2000000,
                                .seed = 1,
                                .threads = 1};
    rv = CLI_PARSE(call, options, NULL, 0, 0);
    if (rv != CLI_GO) {
        return rv;
    }
    rv = lab_setup_open(&t.setup);
    rv = rv != 0 ? rv : run(&t);
    lab_setup_close(&t.setup);
    return rv;
}
