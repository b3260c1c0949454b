/* sim_train.c - loco sim train: a method on real text, before the run.
 *
 * Settings are those of a run manifest (--set sync.period=16), read by the same
 * code; what only the laboratory has is lab.* (lab_numbers below). Machines
 * come from --links, the comings and goings from --members; both are small
 * tables in text, `#` begins a comment:
 *
 * --set sync.topology=owners, which only the laboratory has, takes arrivals one
 * by one at the owners of slices (async-dn, async-naive) in place of quorums.
 * With --set stages=S peers are the hosts of S stages (lab.h), and
 * lab.fixed_routes=1 keeps every micro-batch in its column.
 *
 *   links    PEER|* TOKENS_PER_S UP_MBIT DOWN_MBIT DELAY_MS
 *   members  TOKENS join|leave|die PEER
 *            TOKENS speed PEER TOKENS_PER_S
 */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <jansson.h>

#include "daemon/cli/cli.h"
#include "daemon/cli/lab_files.h"
#include "daemon/settings/method_manifest.h"
#include "daemon/settings/model_file.h"
#include "p2p/pipeline/route.h"
#include "proto/base/err.h"
#include "train/lab/lab.h"

struct arguments {
    const char *sync, *model, *data, *members, *links, *csv, *plot, *dtype;
    uint64_t peers, tokens, seed, threads;
    struct cli_list set;
    bool json;
};

struct setup {
    struct arguments a;
    struct manifest manifest;
    struct lab_options lab;
    struct lab_machine machines[LAB_PEERS_MAX];
    struct lab_event events[LAB_EVENTS_MAX];
    struct lab_text text;
};

/* ---- settings ----------------------------------------------------------- */

/* What a manifest has no field for. */
struct lab_number {
    const char *path;
    double least, most;
    double value;
};

enum {
    LAB_EVAL_EVERY,
    LAB_EVAL_TOKENS,
    LAB_FIXED_ROUTES,
    LAB_GRACE_S,
    LAB_LIARS,
    LAB_NUMBERS
};

static const struct lab_number lab_numbers[LAB_NUMBERS] = {
    [LAB_EVAL_EVERY] = {"lab.eval_every_tokens", 0, 1e15, -1},
    [LAB_EVAL_TOKENS] = {"lab.eval_tokens", 0, 1e15, 32768},
    [LAB_FIXED_ROUTES] = {"lab.fixed_routes", 0, 1, 0},
    [LAB_GRACE_S] = {"lab.grace_s", 0, 1e9, -1},
    [LAB_LIARS] = {"lab.liars", 0, LAB_PEERS_MAX, 0},
};

static int
set_lab(struct lab_number *numbers, const char *path, const char *text)
{
    for (size_t i = 0; i < LAB_NUMBERS; i++) {
        char *end;
        double v;

        if (strcmp(numbers[i].path, path) != 0) {
            continue;
        }
        v = strtod(text, &end);
        if (end == text || *end != '\0' || !(v >= numbers[i].least) ||
            !(v <= numbers[i].most)) {
            return cli_fail(TROUBLE_RUN_SETTINGS,
                            "sim train: %s is a number from %g to %g, not "
                            "\"%.40s\"",
                            path, numbers[i].least, numbers[i].most, text);
        }
        numbers[i].value = v;
        return 0;
    }
    return cli_fail(TROUBLE_RUN_SETTINGS,
                    "sim train: unknown setting %.60s; the laboratory's own "
                    "are lab.eval_every_tokens, lab.eval_tokens, "
                    "lab.fixed_routes, lab.grace_s, lab.liars, lab.lie and "
                    "lab.activations",
                    path);
}

/* The wire type between stages. */
static int set_activations(struct setup *s, const char *name)
{
    const struct codec *c = codec_find(name);

    if (c == NULL) {
        return cli_fail(TROUBLE_RUN_SETTINGS,
                        "sim train: lab.activations is %s, not \"%.40s\"",
                        codec_names, name);
    }
    s->lab.activations = c->id;
    return 0;
}

static int set_lie(struct setup *s, const char *name)
{
    return lab_lie_named(name, &s->lab.lie)
               ? 0
               : cli_fail(TROUBLE_RUN_SETTINGS,
                          "sim train: lab.lie is noise, flip, scale, huge, "
                          "zero, drift, against or copy, not \"%.40s\"",
                          name);
}

static int apply_set(struct setup *s, struct lab_number *numbers, bool *steps)
{
    for (size_t i = 0; i < s->a.set.n; i++) {
        char path[DOC_PATH_MAX], errmsg[LOCO_ERRMSG_MAX];
        const char *value = cli_set_split("sim train", s->a.set.item[i], path);
        int rv = 0;

        if (value == NULL) {
            return LOCO_EXIT_USAGE;
        }
        if (strcmp(path, "lab.activations") == 0) {
            rv = set_activations(s, value);
        } else if (strcmp(path, "lab.lie") == 0) {
            rv = set_lie(s, value);
        } else if (strncmp(path, "lab.", 4) == 0) {
            rv = set_lab(numbers, path, value);
        } else if (doc_set(manifest_schema(), &s->manifest, path, value,
                           errmsg) != 0) {
            rv = cli_fail(TROUBLE_RUN_SETTINGS, "sim train: %s", errmsg);
        }
        if (rv != 0) {
            return rv;
        }
        *steps = *steps || strcmp(path, "inner.steps") == 0;
    }
    return 0;
}

/* The first values: those of the quick start, which suit a small model and a
 * short run. */
static void first_values(struct manifest_inner *inner)
{
    inner->batch = 4;
    inner->micro_batch = 4;
    inner->lr = 0.003;
    inner->lr_min = 0.0003;
    inner->warmup = 20;
}

static int fill_inner(struct setup *s, char *errmsg)
{
    const struct manifest_inner *inner = &s->manifest.inner;
    struct lab_options *o = &s->lab;
    const char *reason = NULL;

    o->batch = inner->batch;
    o->micro_batch = inner->micro_batch;
    o->seq = inner->seq;
    o->optimizer = (struct optimizer_options){
        .beta1 = inner->beta1,
        .beta2 = inner->beta2,
        .eps = inner->eps,
        .weight_decay = inner->weight_decay,
        .clip_norm = inner->clip,
        .muon_lr = inner->muon_lr,
    };
    o->schedule = (struct schedule){
        .peak = inner->lr,
        .lowest = inner->lr_min,
        .warmup_steps = inner->warmup,
        .total_steps = inner->steps,
        .decay_steps = inner->decay,
    };
    if (optimizer_rule_named(inner->optimizer, &o->optimizer.rule) != 0) {
        return errmsg_invalid(
            errmsg,
            "inner.optimizer is adamw, adopt, muon, sgdm or sgd, not "
            "%.16s",
            inner->optimizer);
    }
    if (optimizer_check(&o->optimizer, &reason) != 0 ||
        schedule_kind_named(inner->schedule, &o->schedule.kind) != 0 ||
        schedule_check(&o->schedule, &reason) != 0) {
        return errmsg_invalid(errmsg, "inner: %s",
                              reason == NULL ? "unknown schedule" : reason);
    }
    return 0;
}

_Static_assert(LLAMA_STAGES_MAX <= ROUTE_STAGES_MAX, "each cut has routes");

/* The routes of p2p/pipeline/pipeline.h. */
static void random_route(void *data,
                         uint64_t step,
                         uint64_t mb,
                         uint32_t columns,
                         uint32_t stages,
                         uint32_t entry,
                         uint32_t *path)
{
    const struct setup *s = data;
    const struct route_draw d = {.seed = s->a.seed, .step = step};
    uint32_t hosts[ROUTE_STAGES_MAX];

    for (uint32_t i = 0; i < stages; i++) {
        hosts[i] = columns;
    }
    route_path(&d, mb, hosts, stages, entry, path);
}

static void fill_stages(struct setup *s, bool fixed)
{
    s->lab.stages = s->manifest.stages;
    s->lab.route = fixed ? NULL : random_route;
    s->lab.route_data = s;
}

static void fill_lab(struct setup *s, const struct lab_number *numbers)
{
    struct lab_options *o = &s->lab;
    double every = numbers[LAB_EVAL_EVERY].value;
    double step_s = (double)o->batch * o->seq / s->machines[0].tokens_per_s;

    fill_stages(s, numbers[LAB_FIXED_ROUTES].value > 0);
    o->eval_every = every < 0 ? s->a.tokens / 20 : (uint64_t)every;
    o->eval_tokens = (uint64_t)numbers[LAB_EVAL_TOKENS].value;
    o->liars = (uint32_t)numbers[LAB_LIARS].value;
    o->butterfly = strcmp(s->manifest.sync.topology, "butterfly") == 0;
    o->clip = (float)s->manifest.sync.norm_clip;
    o->centred = strcmp(s->manifest.sync.robust, "centred") == 0;
    /* About one inner step (algorithms page 6.3). */
    o->grace_s =
        numbers[LAB_GRACE_S].value < 0 ? step_s : numbers[LAB_GRACE_S].value;
}

/* What would be ignored: better said. */
static int check_lies(const struct setup *s, uint64_t peers)
{
    const struct lab_options *o = &s->lab;
    bool sums = o->butterfly || !codec_adds(codec_get(o->method.wire));

    if (o->liars > 0 && (o->liars >= peers || o->method.gradients ||
                         o->method.group != METHOD_ALL)) {
        return cli_fail(
            TROUBLE_RUN_SETTINGS,
            "sim train: lab.liars is below --peers, and for methods "
            "in which all peers average parameters");
    }
    return o->clip > 0 && !sums
               ? cli_fail(TROUBLE_RUN_SETTINGS,
                          "sim train: sync.norm_clip is of a butterfly: set "
                          "sync.topology=butterfly")
               : 0;
}

static int fill_settings(struct setup *s)
{
    struct manifest *m = &s->manifest;
    struct lab_number numbers[LAB_NUMBERS];
    const struct preset *preset;
    char errmsg[ERRMSG_SIZE];
    bool steps_set = false;
    uint64_t steps;
    int rv;

    memcpy(numbers, lab_numbers, sizeof numbers);
    manifest_default(m);
    first_values(&m->inner);
    if (model_find(s->a.model, &s->lab.model, errmsg) != 0 ||
        preset_find(s->a.sync, &preset, errmsg) != 0) {
        return cli_fail(TROUBLE_RUN_SETTINGS, "sim train: %s", errmsg);
    }
    m->inner.seq = s->lab.model.seq;
    manifest_from_preset(m, preset);
    rv = apply_set(s, numbers, &steps_set);
    if (rv != 0) {
        return rv;
    }
    steps = s->a.tokens * m->stages /
            ((uint64_t)s->a.peers * m->inner.batch * m->inner.seq);
    if (!steps_set) {
        m->inner.steps = steps > 0 ? steps : 1;
        m->inner.warmup =
            m->inner.warmup < m->inner.steps ? m->inner.warmup : 0;
    }
    if (method_from_manifest(&s->lab.method, m, SCOPE_SETTINGS, errmsg) != 0 ||
        fill_inner(s, errmsg) != 0) {
        return cli_fail(TROUBLE_RUN_SETTINGS, "sim train: %s", errmsg);
    }
    fill_lab(s, numbers);
    return check_lies(s, s->a.peers);
}

static int fill_rest(struct setup *s)
{
    struct lab_options *o = &s->lab;
    char errmsg[ERRMSG_SIZE];
    int rv;

    o->peers = (uint32_t)s->a.peers;
    o->tokens = s->a.tokens;
    o->seed = s->a.seed;
    o->threads = (int)s->a.threads;
    o->machines = s->machines;
    o->events = s->events;
    rv = lab_links_read(s->a.links, s->machines, errmsg);
    rv = rv != 0
             ? rv
             : lab_members_read(s->a.members, s->events, &o->n_events, errmsg);
    if (rv != 0) {
        return cli_fail(TROUBLE_RUN_SETTINGS, "sim train: %s", errmsg);
    }
    rv = lab_text_open(&s->text, s->a.data, errmsg);
    if (rv != 0) {
        return cli_fail(cli_trouble_of(rv, TROUBLE_RUN_SETTINGS),
                        "sim train: %s", errmsg);
    }
    o->train = s->text.train;
    o->n_train = s->text.n_train;
    o->val = &s->text.val;
    return 0;
}

/* ---- what it says ------------------------------------------------------- */

static bool show_progress(void *data, const struct lab_point *p)
{
    const struct setup *s = data;

    if (isatty(STDERR_FILENO)) {
        (void)fprintf(stderr,
                      "\r%3.0f%%  %llu tokens  turn %llu  loss %.3f  %.1f MB "
                      "sent  %.2f virtual hours ",
                      100.0 * (double)p->tokens / (double)s->lab.tokens,
                      (unsigned long long)p->tokens,
                      (unsigned long long)p->turns, p->loss,
                      (double)p->bytes_sent / 1e6, p->virtual_s / 3600.0);
        (void)fflush(stderr);
    }
    return true;
}

static const char *const stream_names[STREAM_TENSOR_COUNT] = {
    "gradients", "parameters", "first moments", "second moments"};

static void warn_unsynced(const struct setup *s, const struct lab_result *r)
{
    struct stream streams[METHOD_STREAMS_MAX];
    size_t n = method_streams(&s->lab.method, streams);

    for (size_t i = 0; i < n; i++) {
        if (r->never_synced[i]) {
            (void)fprintf(stderr,
                          "loco: sim train: the %s were never averaged: %u "
                          "inner steps between two averages, but the run has "
                          "%llu; give more --tokens or a shorter period\n",
                          stream_names[streams[i].tensor], streams[i].period,
                          (unsigned long long)s->manifest.inner.steps);
        }
    }
}

static int print_json(const struct setup *s, const struct lab_result *r)
{
    bool unsynced = false;
    json_t *o;

    for (size_t i = 0; i < METHOD_STREAMS_MAX; i++) {
        unsynced = unsynced || r->never_synced[i];
    }
    o = json_pack(
        "{s:s, s:I, s:f, s:f, s:f, s:I, s:I, s:I, s:f, s:I, s:f, s:b}", "sync",
        s->a.sync, "peers", (json_int_t)s->a.peers, "bits_per_byte",
        r->bits_per_byte, "bits_per_byte_before", r->bits_per_byte_before,
        "loss", r->loss, "tokens", (json_int_t)r->tokens, "bytes_sent",
        (json_int_t)r->bytes_sent, "bytes_sent_most", (json_int_t)r->bytes_most,
        "virtual_hours", r->virtual_s / 3600.0, "rounds", (json_int_t)r->turns,
        "spread", r->spread, "never_synchronised", unsynced);
    if (s->lab.stages > 1) {
        json_object_set_new(o, "stages", json_integer(s->lab.stages));
        json_object_set_new(o, "bits_per_byte_routes",
                            json_real(r->bits_per_byte_routes));
    }
    if (s->lab.method.group == METHOD_TRAINER) {
        json_object_set_new(o, "trainers",
                            json_integer((json_int_t)r->trainers));
        json_object_set_new(o, "batch", json_real(r->batch));
    }
    return cli_print_json(o, JSON_REAL_PRECISION(9));
}

static void print_text(const struct setup *s, const struct lab_result *r)
{
    (void)printf("%s, %llu peers, %llu tokens in all\n", s->a.sync,
                 (unsigned long long)s->a.peers, (unsigned long long)r->tokens);
    (void)printf("  held-out bits per byte  %.4f (untrained %.4f)\n",
                 r->bits_per_byte, r->bits_per_byte_before);
    (void)printf("  loss, last tenth        %.4f nats per token\n", r->loss);
    (void)printf("  rounds                  %llu\n",
                 (unsigned long long)r->turns);
    (void)printf("  sent per peer           %.2f MB\n",
                 (double)r->bytes_sent / 1e6 / (double)s->a.peers);
    (void)printf("  virtual time            %.3f hours\n",
                 r->virtual_s / 3600.0);
    if (s->lab.stages > 1) {
        (void)printf("  mean of the columns     %.4f bits per byte\n",
                     r->bits_per_byte_routes);
    }
    if (!method_replicas_equal(&s->lab.method)) {
        (void)printf("  spread of the replicas  %.3g\n", r->spread);
    }
    if (s->lab.method.group == METHOD_TRAINER) {
        (void)printf("  trainers, mean batch    %u, %.1f sequences\n",
                     r->trainers, r->batch);
    }
}

static int report(const struct setup *s, const struct lab_result *r)
{
    char errmsg[ERRMSG_SIZE];
    int rv = 0;

    if (isatty(STDERR_FILENO)) {
        (void)fputc('\n', stderr);
    }
    warn_unsynced(s, r);
    if (s->a.csv != NULL) {
        rv = lab_csv_write(s->a.csv, r, errmsg);
    }
    if (rv == 0 && s->a.plot != NULL) {
        rv = lab_plot_write(s->a.plot, s->a.sync, r, errmsg);
    }
    if (rv != 0) {
        return cli_fail(cli_trouble_of(rv, TROUBLE_RUN_SETTINGS),
                        "sim train: %s", errmsg);
    }
    if (s->a.json) {
        return print_json(s, r);
    }
    print_text(s, r);
    return LOCO_EXIT_OK;
}

/* ---- the command -------------------------------------------------------- */

static int run(struct setup *s)
{
    struct lab_result result;
    char errmsg[ERRMSG_SIZE] = "";
    int rv;

    s->lab.progress = show_progress;
    s->lab.progress_data = s;
    rv = lab_run(&s->lab, &result, errmsg);
    if (rv != 0) {
        rv = cli_fail(cli_trouble_of(rv, TROUBLE_RUN_SETTINGS), "sim train: %s",
                      errmsg[0] != '\0' ? errmsg : loco_strerror(rv));
    } else {
        rv = report(s, &result);
    }
    lab_result_free(&result);
    return rv;
}

static int check_arguments(const struct arguments *a, enum backend_dtype *dtype)
{
    if (a->peers == 0 || a->peers > LAB_PEERS_MAX || a->tokens == 0 ||
        a->threads == 0 || a->threads > BACKEND_THREADS_MAX) {
        return cli_fail(TROUBLE_USAGE,
                        "sim train: --peers is 1 to %d, --tokens at least 1, "
                        "--threads 1 to %d",
                        LAB_PEERS_MAX, BACKEND_THREADS_MAX);
    }
    if (!backend_dtype_named(a->dtype, dtype)) {
        return cli_fail(TROUBLE_USAGE,
                        "sim train: --dtype is fp32, bf16 or auto, not %s",
                        a->dtype);
    }
    return 0;
}

int cli_sim_train(const struct cli_call *call)
{
    static struct setup s;
    const struct cli_option options[] = {
        {"--sync", CLI_TEXT, &s.a.sync, "PRESET",
         "training method (opendiloco)"},
        {"--peers", CLI_COUNT, &s.a.peers, "M", "number of replicas (4)"},
        {"--tokens", CLI_COUNT, &s.a.tokens, "N",
         "tokens, summed over the peers (2000000)"},
        {"--model", CLI_TEXT, &s.a.model, "NAME|FILE",
         "model to train (quickstart-1m)"},
        {"--set", CLI_LIST, &s.a.set, "path=value",
         "set a key of the run, or lab.*; repeatable"},
        {"--members", CLI_TEXT, &s.a.members, "FILE",
         "peers that join and leave"},
        {"--links", CLI_TEXT, &s.a.links, "FILE",
         "speeds of machines and links"},
        {"--data", CLI_TEXT, &s.a.data, "DIR",
         "directory that loco data pack wrote (public domain prose)"},
        {"--csv", CLI_TEXT, &s.a.csv, "FILE", "write one row per round"},
        {"--plot", CLI_TEXT, &s.a.plot, "FILE", "draw the curves as SVG"},
        {"--seed", CLI_COUNT, &s.a.seed, "S",
         "seed of weights, data and pairs (1)"},
        {"--threads", CLI_COUNT, &s.a.threads, "K", "processor threads (1)"},
        {"--dtype", CLI_TEXT, &s.a.dtype, "fp32|bf16|auto",
         "operands of matrix products (auto)"},
        {"--json", CLI_FLAG, &s.a.json, NULL, "print one JSON object"},
    };
    int rv;

    s.a = (struct arguments){.sync = "opendiloco",
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
    rv = check_arguments(&s.a, &s.lab.dtype);
    rv = rv != 0 ? rv : fill_rest(&s);
    rv = rv != 0 ? rv : fill_settings(&s);
    rv = rv != 0 ? rv : run(&s);
    lab_text_close(&s.text);
    return rv;
}
