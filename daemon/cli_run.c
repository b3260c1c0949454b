/* cli_run.c - loco run create, run sign: a manifest is made and signed. */
#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <jansson.h>
#include <sodium.h>

#include "daemon/cli.h"
#include "daemon/cli_invite.h"
#include "daemon/method_manifest.h"
#include "daemon/model_file.h"
#include "daemon/run_yaml.h"
#include "proto/base/err.h"
#include "train/file.h"

#define AUTHOR_KEY "author.key"

struct arguments {
    const char *name, *model, *data, *sync, *key, *out;
    struct cli_list set, url;
};

/* ---- create ------------------------------------------------------------- */

static int fill_preset(struct manifest *m, const char *name)
{
    const struct preset *preset;
    char errmsg[ERRMSG_SIZE];

    if (preset_find(name, &preset, errmsg) != 0) {
        return cli_fail(TROUBLE_RUN_SETTINGS, "run create: %s", errmsg);
    }
    manifest_from_preset(&m->sync, preset);
    return 0;
}

static int fill_model(struct manifest *m, const char *name)
{
    struct llama_config c;
    char errmsg[ERRMSG_SIZE];

    if (model_find(name, &c, errmsg) != 0) {
        return cli_fail(TROUBLE_RUN_SETTINGS, "run create: %s", errmsg);
    }
    m->model = (struct manifest_model){
        .dim = c.dim,
        .ffn = c.ffn,
        .heads = c.heads,
        .kv_heads = c.kv_heads,
        .layers = c.layers,
        .norm_eps = manifest_real(c.norm_eps),
        .rope_theta = manifest_real(c.rope_theta),
        .seq = c.seq,
        .tied = c.tied,
        .vocab = c.vocab,
    };
    m->inner.seq = c.seq;
    return 0;
}

static int add_shard(struct manifest_data *data, const json_t *entry, bool val)
{
    const char *name = json_string_value(json_object_get(entry, "name"));
    const char *hash = json_string_value(json_object_get(entry, "blake2b"));
    json_int_t bytes = json_integer_value(json_object_get(entry, "bytes"));
    json_int_t tokens = json_integer_value(json_object_get(entry, "tokens"));
    struct manifest_shard *s;

    if (data->n_shards == MANIFEST_SHARDS_MAX) {
        return cli_fail(TROUBLE_DATA,
                        "run create: more than %d shards; pack fewer",
                        MANIFEST_SHARDS_MAX);
    }
    s = &data->shards[data->n_shards];
    if (name == NULL || strlen(name) >= sizeof s->name || hash == NULL ||
        hash32_parse_hex(hash, &s->blake2b) != 0 || bytes <= 0 || tokens <= 0) {
        return cli_fail(TROUBLE_DATA,
                        "run create: data.json names a shard without name, "
                        "size or hash; run loco data pack again");
    }
    memcpy(s->name, name, strlen(name) + 1);
    s->bytes = (uint64_t)bytes;
    s->tokens = (uint64_t)tokens;
    s->val = val;
    data->n_shards++;
    return 0;
}

static int add_shards(struct manifest_data *data, const json_t *root)
{
    const json_t *train = json_object_get(root, "train");
    const json_t *val = json_object_get(root, "val");
    const char *licence = json_string_value(json_object_get(root, "licence"));
    const char *tok = json_string_value(json_object_get(root, "tokenizer"));
    int rv = 0;

    for (size_t i = 0; rv == 0 && i < json_array_size(train); i++) {
        rv = add_shard(data, json_array_get(train, i), false);
    }
    if (rv == 0 && json_is_object(val)) {
        rv = add_shard(data, val, true);
    }
    (void)snprintf(data->licence, sizeof data->licence, "%s",
                   licence == NULL ? "" : licence);
    (void)snprintf(data->tokenizer, sizeof data->tokenizer, "%s",
                   tok == NULL ? "byte" : tok);
    return rv;
}

/* It stands beside the shards, and travels as one of them. */
static int
add_tokenizer(struct manifest_data *data, const json_t *root, const char *dir)
{
    const char *hash =
        json_string_value(json_object_get(root, "tokenizer_blake2b"));
    struct manifest_shard *s = &data->shards[data->n_shards];
    char path[FILE_PATH_MAX], errmsg[ERRMSG_SIZE];
    struct stat st;

    if (strcmp(data->tokenizer, "byte") == 0) {
        return 0;
    }
    if (data->n_shards == MANIFEST_SHARDS_MAX || hash == NULL ||
        hash32_parse_hex(hash, &data->tokenizer_blake2b) != 0 ||
        file_path_join(path, dir, data->tokenizer, errmsg) != 0 ||
        stat(path, &st) != 0) {
        return cli_fail(TROUBLE_DATA,
                        "run create: the tokenizer %s is not in %s or has no "
                        "hash in data.json; run loco data pack again",
                        data->tokenizer, dir);
    }
    memcpy(s->name, data->tokenizer, sizeof s->name);
    s->blake2b = data->tokenizer_blake2b;
    s->bytes = (uint64_t)st.st_size;
    data->n_shards++;
    return 0;
}

/* More ids than the model knows could not be trained on. */
static int check_vocabulary(const struct manifest *m, const json_t *root)
{
    json_int_t vocab = json_integer_value(json_object_get(root, "vocab"));

    return vocab <= (json_int_t)m->model.vocab
               ? 0
               : cli_fail(TROUBLE_RUN_SETTINGS,
                          "run create: the data has %lld token ids, the model "
                          "knows %u: take a model file with vocab: %lld",
                          (long long)vocab, m->model.vocab, (long long)vocab);
}

static int fill_data(struct manifest *m, const char *dir)
{
    char path[FILE_PATH_MAX], errmsg[ERRMSG_SIZE];
    json_error_t where;
    json_t *root;
    int rv;

    if (file_path_join(path, dir, "data.json", errmsg) != 0) {
        return cli_fail(TROUBLE_DATA, "run create: %s", errmsg);
    }
    root = json_load_file(path, JSON_REJECT_DUPLICATES, &where);
    if (root == NULL) {
        return cli_fail(TROUBLE_DATA,
                        "run create: %s: %s; loco data pack writes it", path,
                        where.text);
    }
    rv = add_shards(&m->data, root);
    rv = rv == 0 ? add_tokenizer(&m->data, root, dir) : rv;
    rv = rv == 0 ? check_vocabulary(m, root) : rv;
    json_decref(root);
    return rv;
}

/* Every shard is at BASE/NAME of each server. */
static int fill_urls(struct manifest_data *data, const struct cli_list *bases)
{
    for (size_t k = 0; k < bases->n; k++) {
        const char *base = bases->item[k];
        size_t len = strlen(base);

        for (uint32_t i = 0; i < data->n_shards; i++) {
            struct manifest_shard *s = &data->shards[i];
            char url[MANIFEST_URL_MAX];

            if (s->n_urls == MANIFEST_URLS_MAX ||
                snprintf(url, sizeof url, "%s%s%s", base,
                         len > 0 && base[len - 1] == '/' ? "" : "/",
                         s->name) >= (int)sizeof url) {
                return cli_fail(TROUBLE_USAGE,
                                "run create: --url: at most %d, of %d "
                                "characters with the file's name",
                                MANIFEST_URLS_MAX, MANIFEST_URL_MAX - 1);
            }
            memcpy(s->urls[s->n_urls++], url, sizeof url);
        }
    }
    return 0;
}

static int apply_settings(struct manifest *m, const struct cli_list *set)
{
    for (size_t i = 0; i < set->n; i++) {
        const char *equals = strchr(set->item[i], '=');
        char path[DOC_PATH_MAX], errmsg[LOCO_ERRMSG_MAX];

        if (equals == NULL || (size_t)(equals - set->item[i]) >= sizeof path) {
            return cli_fail(TROUBLE_USAGE,
                            "run create: --set %.80s: write path=value, as in "
                            "sync.period=20",
                            set->item[i]);
        }
        memcpy(path, set->item[i], (size_t)(equals - set->item[i]));
        path[equals - set->item[i]] = '\0';
        if (doc_set(manifest_schema(), m, path, equals + 1, errmsg) != 0) {
            return cli_fail(TROUBLE_RUN_SETTINGS, "run create: %s", errmsg);
        }
    }
    return 0;
}

/* A wire type that is never summed brings the topology along that can carry
 * it, unless one was named. */
static void fit_topology(struct manifest_sync *sync, const struct cli_list *set)
{
    const char *key = "sync.topology=";

    for (size_t i = 0; i < set->n; i++) {
        if (strncmp(set->item[i], key, strlen(key)) == 0) {
            return;
        }
    }
    if (!codec_adds(codec_find(sync->wire))) {
        (void)snprintf(sync->topology, sizeof sync->topology, "butterfly");
    }
}

/* What no machine would train: better said to the author. */
static int check_method(const struct manifest *m, const char *command)
{
    struct method method;
    char errmsg[ERRMSG_SIZE];

    if (method_from_manifest(&method, &m->sync, errmsg) != 0 ||
        method_check_run(&method, m, errmsg) != 0) {
        return cli_fail(TROUBLE_RUN_SETTINGS, "run %s: %s", command, errmsg);
    }
    return 0;
}

/* A batch that was set alone takes its micro-batches along. */
static void fit_micro_batch(struct manifest_inner *inner)
{
    if (inner->batch % inner->micro_batch != 0) {
        inner->micro_batch =
            inner->batch < inner->micro_batch ? inner->batch : 1;
    }
}

static int
author_load(const char *key, const char *out, struct identity *author)
{
    char beside[FILE_PATH_MAX], errmsg[LOCO_ERRMSG_MAX];
    const char *slash = strrchr(out, '/');
    const char *path = key;
    int rv;

    if (path == NULL) {
        (void)snprintf(beside, sizeof beside, "%.*s" AUTHOR_KEY,
                       slash == NULL ? 0 : (int)(slash - out) + 1, out);
        path = beside;
    }
    rv = identity_load(author, path, errmsg);
    if (rv == LOCO_ENOENT) {
        rv = identity_generate(author, NULL);
        if (rv == 0) {
            rv = identity_save(author, path, errmsg);
        }
        if (rv == 0) {
            (void)fprintf(stderr, "new author key: %s\n", path);
        }
    }
    if (rv != 0) {
        return cli_fail(TROUBLE_AUTHOR_KEY, "author: %s", errmsg);
    }
    return 0;
}

static int fill(struct manifest *m, const struct arguments *a)
{
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
    rv = fill_model(m, a->model);
    if (rv == 0) {
        rv = fill_data(m, a->data);
    }
    if (rv == 0) {
        rv = fill_urls(&m->data, &a->url);
    }
    if (rv == 0) {
        rv = fill_preset(m, a->sync);
    }
    if (rv == 0) {
        rv = apply_settings(m, &a->set);
    }
    fit_micro_batch(&m->inner);
    fit_topology(&m->sync, &a->set);
    return rv == 0 ? check_method(m, "create") : rv;
}

/* The daemon that starts the run looks for shards beside run.yaml: put links
 * there where the data lies elsewhere. */
static int link_shard(const char *dir, const char *name, const char *from)
{
    char path[FILE_PATH_MAX], target[FILE_PATH_MAX], errmsg[ERRMSG_SIZE];
    struct stat here, there;

    if (file_path_join(path, dir, name, errmsg) != 0 ||
        file_path_join(target, from, name, errmsg) != 0) {
        return cli_fail(TROUBLE_DATA, "run create: %s", errmsg);
    }
    if (stat(target, &there) != 0) {
        return cli_fail(TROUBLE_DATA,
                        "run create: %s: %s; run loco data pack again", target,
                        strerror(errno));
    }
    if (stat(path, &here) == 0) {
        return here.st_dev == there.st_dev && here.st_ino == there.st_ino
                   ? 0
                   : cli_fail(TROUBLE_DATA,
                              "run create: %s is another file; write run.yaml "
                              "into the data directory or into an empty one",
                              path);
    }
    if (symlink(target, path) != 0) {
        return cli_fail(TROUBLE_FILE, "run create: link %s: %s", path,
                        strerror(errno));
    }
    return 0;
}

static int link_shards(const struct manifest_data *data,
                       const struct arguments *a)
{
    const char *slash = strrchr(a->out, '/');
    char dir[FILE_PATH_MAX];
    char *from = realpath(a->data, NULL);
    int rv = 0;

    if (from == NULL) {
        return cli_fail(TROUBLE_DATA, "run create: %s: %s", a->data,
                        strerror(errno));
    }
    (void)snprintf(dir, sizeof dir, "%.*s",
                   slash == NULL ? 1 : (int)(slash - a->out) + 1,
                   slash == NULL ? "." : a->out);
    for (uint32_t i = 0; rv == 0 && i < data->n_shards; i++) {
        rv = link_shard(dir, data->shards[i].name, from);
    }
    free(from);
    return rv;
}

static int create(struct run_yaml *r, const struct arguments *a)
{
    struct identity author;
    char errmsg[LOCO_ERRMSG_MAX], hex[ID_HEX_MAX];
    int rv = fill(&r->manifest, a);

    if (rv != 0) {
        return rv;
    }
    rv = author_load(a->key, a->out, &author);
    if (rv != 0) {
        return rv;
    }
    memcpy(r->manifest.author, author.public, sizeof r->manifest.author);
    rv = manifest_validate(&r->manifest, errmsg);
    if (rv == 0) {
        rv = run_yaml_sign(r, &author);
        (void)snprintf(errmsg, sizeof errmsg, "sign: %s", loco_strerror(rv));
    }
    if (rv == 0) {
        rv = run_yaml_save(r, a->out, errmsg);
    }
    if (rv != 0) {
        identity_wipe(&author);
        return cli_fail(cli_trouble_of(rv, TROUBLE_MANIFEST), "run create: %s",
                        errmsg);
    }
    rv = cli_invite_own(r, a->out, &author);
    identity_wipe(&author);
    if (rv != 0) {
        return rv;
    }
    rv = link_shards(&r->manifest.data, a);
    if (rv != 0) {
        return rv;
    }
    hash32_hex(&r->run_id, hex);
    (void)printf("%s\n", hex);
    return LOCO_EXIT_OK;
}

int cli_run_create(const struct cli_call *call)
{
    struct arguments a = {.sync = "opendiloco", .out = "run.yaml"};
    const struct cli_option options[] = {
        {"--name", CLI_TEXT, &a.name, "NAME", "of the run, for people"},
        {"--model", CLI_TEXT, &a.model, "NAME|FILE", "shape of the model"},
        {"--data", CLI_TEXT, &a.data, "DIR", "what loco data pack wrote"},
        {"--sync", CLI_TEXT, &a.sync, "PRESET", "method (opendiloco)"},
        {"--url", CLI_LIST, &a.url, "BASE",
         "the data can be downloaded from BASE/NAME; many times"},
        {"--set", CLI_LIST, &a.set, "PATH=VALUE", "any key; many times"},
        {"--key", CLI_TEXT, &a.key, "FILE",
         "author's key, made on first use (author.key beside run.yaml)"},
        {"--out", CLI_TEXT, &a.out, "FILE", "what to write (run.yaml)"},
    };
    struct run_yaml *r;
    int rv = CLI_PARSE(call, options, NULL, 0, 0);

    if (rv != CLI_GO) {
        return rv;
    }
    if (a.name == NULL || a.model == NULL || a.data == NULL) {
        return cli_fail(TROUBLE_USAGE,
                        "run create: --name, --model and --data are needed");
    }
    r = calloc(1, sizeof *r);
    if (r == NULL) {
        return cli_fail(TROUBLE_RESOURCES, "out of memory");
    }
    rv = create(r, &a);
    free(r);
    return rv;
}

/* ---- sign --------------------------------------------------------------- */

static int sign(struct run_yaml *r, const char *path, const char *key)
{
    char errmsg[LOCO_ERRMSG_MAX], hex[ID_HEX_MAX];
    struct identity author;
    int rv = run_yaml_load(path, RUN_YAML_ANY, r, errmsg);

    if (rv != 0) {
        return cli_fail(TROUBLE_MANIFEST, "%s", errmsg);
    }
    rv = check_method(&r->manifest, "sign");
    if (rv != 0) {
        return rv;
    }
    rv = author_load(key, path, &author);
    if (rv != 0) {
        return rv;
    }
    memcpy(r->manifest.author, author.public, sizeof r->manifest.author);
    rv = run_yaml_sign(r, &author);
    (void)snprintf(errmsg, sizeof errmsg, "%s", loco_strerror(rv));
    if (rv == 0) {
        rv = run_yaml_save(r, path, errmsg);
    }
    if (rv != 0) {
        identity_wipe(&author);
        return cli_fail(cli_trouble_of(rv, TROUBLE_MANIFEST), "run sign: %s",
                        errmsg);
    }
    rv = cli_invite_own(r, path, &author);
    identity_wipe(&author);
    if (rv != 0) {
        return rv;
    }
    hash32_hex(&r->run_id, hex);
    (void)printf("%s\n", hex);
    return LOCO_EXIT_OK;
}

int cli_run_sign(const struct cli_call *call)
{
    struct cli_list words = {0};
    const char *key = NULL;
    const struct cli_option options[] = {
        {"--key", CLI_TEXT, &key, "FILE",
         "author's key, made on first use (author.key beside the file)"},
    };
    struct run_yaml *r;
    int rv = CLI_PARSE(call, options, &words, 1, 1);

    if (rv != CLI_GO) {
        return rv;
    }
    r = calloc(1, sizeof *r);
    if (r == NULL) {
        return cli_fail(TROUBLE_RESOURCES, "out of memory");
    }
    rv = sign(r, words.item[0], key);
    free(r);
    return rv;
}
