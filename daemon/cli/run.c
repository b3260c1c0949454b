/* run.c - loco run create, run sign: a manifest is made and signed. */
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include <sodium.h>

#include "daemon/cli/cli.h"
#include "daemon/cli/invite.h"
#include "daemon/cli/run_data.h"
#include "daemon/cli/run_defences.h"
#include "daemon/cli/run_init.h"
#include "daemon/cli/run_recipe.h"
#include "daemon/settings/method_manifest.h"
#include "daemon/settings/model_file.h"
#include "daemon/settings/run_yaml.h"
#include "proto/base/err.h"
#include "proto/base/file.h"

#define AUTHOR_KEY       "author.key"
#define PROBATION_ROUNDS 3 /* of newcomers to a run that anybody may join */

struct arguments {
    const char *name, *model, *init, *data, *sync, *key, *out;
    struct cli_list set, url;
    struct run_plan plan;
    struct recipe chosen;
    struct run_init begin; /* with --init */
};

/* ---- create ------------------------------------------------------------- */

static int fill_preset(struct manifest *m, const char *name)
{
    const struct preset *preset;
    char errmsg[ERRMSG_SIZE];

    if (preset_find(name, &preset, errmsg) != 0) {
        return cli_fail(TROUBLE_RUN_SETTINGS, "run create: %s", errmsg);
    }
    manifest_from_preset(m, preset);
    return 0;
}

static void fill_llama(struct manifest *m, const struct llama_config *c)
{
    m->model = (struct manifest_model){
        .dim = c->dim,
        .ffn = c->ffn,
        .heads = c->heads,
        .kv_heads = c->kv_heads,
        .layers = c->layers,
        .norm_eps = manifest_real(c->norm_eps),
        .rope_theta = manifest_real(c->rope_theta),
        .seq = c->seq,
        .tied = c->tied,
        .vocab = c->vocab,
    };
    m->inner.seq = c->seq;
}

/* The model, by name or by the weights that it begins from. */
static int fill_model(struct manifest *m, struct arguments *a)
{
    struct llama_config c;
    char errmsg[ERRMSG_SIZE];
    bool as_tensors = a->model != NULL && strcmp(a->model, "tensors") == 0;
    int rv;

    if (a->init != NULL) {
        rv = run_init_open(&a->begin, a->init, as_tensors);
        if (rv == 0 && a->begin.is_llama) {
            fill_llama(m, &a->begin.weights.config.model);
        } else if (rv == 0) {
            run_init_tensors(&a->begin, m, a->data != NULL);
        }
        return rv;
    }
    if (model_find(a->model, &c, errmsg) != 0) {
        return cli_fail(TROUBLE_RUN_SETTINGS, "run create: %s", errmsg);
    }
    fill_llama(m, &c);
    return 0;
}

static int fill_data(struct manifest *m, const struct arguments *a)
{
    if (a->data != NULL) {
        return run_data_fill(m, a->data, &a->url);
    }
    return manifest_has_tensors(m)
               ? 0
               : cli_fail(TROUBLE_USAGE,
                          "run create: the built-in trainer needs text: --data "
                          "DIR (loco data pack writes it)");
}

static int apply_settings(struct manifest *m, const struct cli_list *set)
{
    for (size_t i = 0; i < set->n; i++) {
        char path[DOC_PATH_MAX], errmsg[LOCO_ERRMSG_MAX];
        const char *value = cli_set_split("run create", set->item[i], path);

        if (value == NULL) {
            return LOCO_EXIT_USAGE;
        }
        if (doc_set(manifest_schema(), m, path, value, errmsg) != 0) {
            return cli_fail(TROUBLE_RUN_SETTINGS, "run create: %s", errmsg);
        }
    }
    return 0;
}

/* A wire type that is never summed brings the topology along that can carry
 * it, unless one was named. */
static void fit_topology(struct manifest_sync *sync, const struct cli_list *set)
{
    if (!cli_is_set(set, "sync.topology") &&
        !codec_adds(codec_find(sync->wire))) {
        (void)snprintf(sync->topology, sizeof sync->topology, "butterfly");
    }
}

/* Where anybody may join, newcomers show first that they take part. */
static void fit_probation(struct manifest *m, const struct cli_list *set)
{
    struct method method;
    char errmsg[ERRMSG_SIZE];

    if (!cli_is_set(set, "probation_rounds") && !m->invited &&
        method_from_manifest(&method, m, SCOPE_RUN, errmsg) == 0 &&
        method.group != METHOD_PAIR) {
        m->probation_rounds = PROBATION_ROUNDS;
    }
}

/* A batch that was set alone takes its micro-batches along. Those of trainers
 * are the request with which they begin. */
static void fit_micro_batch(struct manifest *m, const struct cli_list *set)
{
    struct manifest_inner *inner = &m->inner;

    if (m->sync.trainers == 0 && !cli_is_set(set, "inner.micro_batch") &&
        inner->batch % inner->micro_batch != 0) {
        inner->micro_batch =
            inner->batch < inner->micro_batch ? inner->batch : 1;
    }
}

/* What no machine would train: better said to the author. */
static int check_method(const struct manifest *m, const char *command)
{
    struct method method;
    char errmsg[ERRMSG_SIZE];

    if (method_from_manifest(&method, m, SCOPE_RUN, errmsg) != 0) {
        return cli_fail(TROUBLE_RUN_SETTINGS, "run %s: %s", command, errmsg);
    }
    return 0;
}

static int
author_load(const char *key, const char *out, struct identity *author)
{
    char beside[FILE_PATH_MAX], errmsg[LOCO_ERRMSG_MAX];
    const char *path = key == NULL ? beside : key;
    int rv;

    file_beside(beside, out, AUTHOR_KEY);
    rv = identity_load(author, path, errmsg);
    if (rv == LOCO_ENOENT) {
        rv = identity_generate(author, NULL);
        rv = rv == 0 ? identity_save(author, path, errmsg) : rv;
        if (rv == 0) {
            (void)fprintf(stderr, "new author key: %s\n", path);
        }
    }
    if (rv != 0) {
        return cli_fail(TROUBLE_AUTHOR_KEY, "author: %s", errmsg);
    }
    return 0;
}

/* What --sync auto counts its rounds by. */
static int check_auto(const struct manifest *m, const struct cli_list *set)
{
    static const char *const keys[] = {"sync.preset", "sync.fragments",
                                       "sync.period_u", "sync.period_v",
                                       "inner.steps"};

    if (manifest_has_tensors(m)) {
        return cli_fail(TROUBLE_RUN_SETTINGS,
                        "run create: --sync auto knows how long a step of the "
                        "built-in model takes, not one of your training loop: "
                        "name a preset, say --sync opendiloco");
    }
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++) {
        if (cli_is_set(set, keys[i])) {
            return cli_fail(TROUBLE_RUN_SETTINGS,
                            "run create: --sync auto cannot count the rounds "
                            "with --set %s=..: name a preset",
                            keys[i]);
        }
    }
    return 0;
}

/* Settings count before the choice, which looks at the wire and the batch, and
 * after it. */
static int fill_auto(struct manifest *m, struct arguments *a)
{
    int rv = check_auto(m, &a->set);

    rv = rv == 0 ? run_recipe_begin(m, &a->plan) : rv;
    rv = rv == 0 ? apply_settings(m, &a->set) : rv;
    fit_micro_batch(m, &a->set);
    fit_topology(&m->sync, &a->set);
    rv = rv == 0 ? run_recipe_choose(m, &a->plan, &a->chosen) : rv;
    rv = rv == 0 ? apply_settings(m, &a->set) : rv;
    if (rv == 0 && !cli_is_set(&a->set, "stop.rounds")) {
        m->stop.rounds = (m->inner.steps + m->sync.period - 1) / m->sync.period;
    }
    return rv;
}

/* The method, and what --set changes of it. */
static int fill_sync(struct manifest *m, struct arguments *a)
{
    int rv = run_recipe_check(&a->plan, a->sync);

    rv = rv == 0 ? fill_preset(m, a->sync) : rv;
    if (rv == 0) {
        run_recipe_peers(m, &a->plan);
    }
    return rv == 0 ? apply_settings(m, &a->set) : rv;
}

static int fill(struct manifest *m, struct arguments *a)
{
    bool automatic = strcmp(a->sync, "auto") == 0;
    int rv;

    manifest_default(m);
    if (strlen(a->name) >= sizeof m->name) {
        return cli_fail(TROUBLE_USAGE, "run create: --name is too long");
    }
    memcpy(m->name, a->name, strlen(a->name) + 1);
    /* Two runs with the same settings are two runs. 53 bits: every reader of
     * JSON or YAML holds the number exactly. */
    randombytes_buf(&m->seed, sizeof m->seed);
    m->seed >>= 11;
    rv = fill_model(m, a);
    rv = rv == 0 ? fill_data(m, a) : rv;
    rv = rv != 0 ? rv : automatic ? fill_auto(m, a) : fill_sync(m, a);
    fit_micro_batch(m, &a->set);
    fit_topology(&m->sync, &a->set);
    run_defences_fit(m, &a->set);
    fit_probation(m, &a->set);
    rv = rv == 0 ? check_method(m, "create") : rv;
    rv = rv == 0 ? run_data_check(m, "create") : rv;
    if (rv == 0 && automatic) {
        run_recipe_say(m, &a->plan, &a->chosen);
    }
    if (rv == 0) {
        run_recipe_warn(m);
        run_defences_say(m, &a->set);
    }
    return rv;
}

/* Put the author's name under the run, and what goes beside it; then its id is
 * printed. */
static int
sign(struct run_yaml *r, const char *path, const char *key, const char *command)
{
    struct identity author;
    char errmsg[LOCO_ERRMSG_MAX], hex[ID_HEX_MAX];
    int rv = author_load(key, path, &author);

    if (rv != 0) {
        return rv;
    }
    memcpy(r->manifest.author, author.public, sizeof r->manifest.author);
    rv = manifest_validate(&r->manifest, errmsg);
    if (rv == 0) {
        rv = run_yaml_sign(r, &author);
        (void)snprintf(errmsg, sizeof errmsg, "sign: %s", loco_strerror(rv));
    }
    rv = rv == 0 ? run_yaml_save(r, path, errmsg) : rv;
    rv = rv == 0 ? cli_invite_own(r, path, &author)
                 : cli_fail(cli_trouble_of(rv, TROUBLE_MANIFEST), "run %s: %s",
                            command, errmsg);
    identity_wipe(&author);
    if (rv == 0) {
        hash32_hex(&r->run_id, hex);
        (void)printf("%s\n", hex);
    }
    return rv;
}

static int create(struct run_yaml *r, struct arguments *a)
{
    int rv = fill(&r->manifest, a);

    if (rv == 0 && a->data != NULL) {
        rv = run_data_link(&r->manifest.data, a->data, a->out);
    }
    if (rv == 0 && a->init != NULL) {
        rv = run_init_write(&a->begin, &r->manifest, &a->url, a->out);
    }
    run_init_close(&a->begin);
    return rv == 0 ? sign(r, a->out, a->key, "create") : rv;
}

int cli_run_create(const struct cli_call *call)
{
    struct arguments a = {.sync = "opendiloco", .out = "run.yaml"};
    const struct cli_option options[] = {
        {"--name", CLI_TEXT, &a.name, "NAME", "name of the run"},
        {"--model", CLI_TEXT, &a.model, "NAME|FILE",
         "model: a preset or a YAML file; tensors: with --init, as they are"},
        {"--init", CLI_TEXT, &a.init, "DIR|FILE",
         "begin from these weights: a Hugging Face Llama, any safetensors"},
        {"--data", CLI_TEXT, &a.data, "DIR",
         "directory that loco data pack wrote"},
        {"--sync", CLI_TEXT, &a.sync, "PRESET|auto",
         "training method; auto: what fits --steps and the line (opendiloco)"},
        {"--steps", CLI_COUNT, &a.plan.steps, "N",
         "--sync auto: inner steps of each peer"},
        {"--peers", CLI_COUNT, &a.plan.peers, "N",
         "--sync auto or muloco: peers that are expected (8)"},
        {"--mbit", CLI_REAL, &a.plan.mbit, "M",
         "--sync auto: slowest line, up, in Mbit/s (20)"},
        {"--step-ms", CLI_REAL, &a.plan.step_ms, "T",
         "--sync auto: an inner step on the slowest machine (from the model)"},
        {"--url", CLI_LIST, &a.url, "BASE",
         "download address of the data, as BASE/NAME; repeatable"},
        {"--set", CLI_LIST, &a.set, "PATH=VALUE",
         "set a key of run.yaml; repeatable"},
        {"--key", CLI_TEXT, &a.key, "FILE",
         "author's key, made on first use (author.key beside run.yaml)"},
        {"--out", CLI_TEXT, &a.out, "FILE", "file to write (run.yaml)"},
    };
    static struct run_yaml r;
    int rv = CLI_PARSE(call, options, NULL, 0, 0);

    if (rv != CLI_GO) {
        return rv;
    }
    if (a.name == NULL || (a.model == NULL && a.init == NULL)) {
        return cli_fail(TROUBLE_USAGE,
                        "run create: --name and --model (or --init) are "
                        "needed, and --data but for lists of tensors");
    }
    if (a.init != NULL && a.model != NULL && strcmp(a.model, "tensors") != 0) {
        return cli_fail(TROUBLE_USAGE,
                        "run create: --init brings its model along: leave out "
                        "--model %s",
                        a.model);
    }
    return create(&r, &a);
}

/* ---- sign --------------------------------------------------------------- */

int cli_run_sign(const struct cli_call *call)
{
    struct cli_list words = {0};
    const char *key = NULL;
    const struct cli_option options[] = {
        {"--key", CLI_TEXT, &key, "FILE",
         "author's key, made on first use (author.key beside the file)"},
    };
    static struct run_yaml r;
    char errmsg[LOCO_ERRMSG_MAX];
    int rv = CLI_PARSE(call, options, &words, 1, 1);

    if (rv != CLI_GO) {
        return rv;
    }
    if (run_yaml_load(words.item[0], RUN_YAML_ANY, &r, errmsg) != 0) {
        return cli_fail(TROUBLE_MANIFEST, "%s", errmsg);
    }
    rv = check_method(&r.manifest, "sign");
    rv = rv == 0 ? run_data_check(&r.manifest, "sign") : rv;
    return rv == 0 ? sign(&r, words.item[0], key, "sign") : rv;
}
