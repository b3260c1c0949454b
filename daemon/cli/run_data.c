/* run_data.c - see run_data.h. */
#include "daemon/cli/run_data.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <jansson.h>

#include "daemon/cli/lab_files.h"
#include "proto/base/errmsg.h"
#include "proto/base/file.h"
#include "train/data/loader.h"

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

    return vocab <= (json_int_t)m->model.vocab || manifest_has_tensors(m)
               ? 0
               : cli_fail(TROUBLE_RUN_SETTINGS,
                          "run create: the data has %lld token ids, the model "
                          "only %u: use a model file with vocab: %lld",
                          (long long)vocab, m->model.vocab, (long long)vocab);
}

static int fill_shards(struct manifest *m, const char *dir)
{
    char errmsg[ERRMSG_SIZE];
    json_t *root = lab_text_list(dir, errmsg);
    int rv;

    if (root == NULL) {
        return cli_fail(TROUBLE_DATA, "run create: %s", errmsg);
    }
    rv = add_shards(&m->data, root);
    rv = rv == 0 ? add_tokenizer(&m->data, root, dir) : rv;
    rv = rv == 0 ? check_vocabulary(m, root) : rv;
    json_decref(root);
    return rv;
}

int run_data_urls(struct manifest_data *data,
                  const struct cli_list *bases,
                  uint32_t first)
{
    for (size_t k = 0; k < bases->n; k++) {
        const char *base = bases->item[k];
        size_t len = strlen(base);

        for (uint32_t i = first; i < data->n_shards; i++) {
            struct manifest_shard *s = &data->shards[i];
            char url[MANIFEST_URL_MAX];

            if (s->n_urls == MANIFEST_URLS_MAX ||
                snprintf(url, sizeof url, "%s%s%s", base,
                         len > 0 && base[len - 1] == '/' ? "" : "/",
                         s->name) >= (int)sizeof url) {
                return cli_fail(TROUBLE_USAGE,
                                "run create: --url: at most %d URLs, of at "
                                "most %d characters each with the file name",
                                MANIFEST_URLS_MAX, MANIFEST_URL_MAX - 1);
            }
            memcpy(s->urls[s->n_urls++], url, sizeof url);
        }
    }
    return 0;
}

int run_data_fill(struct manifest *m,
                  const char *dir,
                  const struct cli_list *bases)
{
    int rv = fill_shards(m, dir);

    return rv == 0 ? run_data_urls(&m->data, bases, 0) : rv;
}

/* A step reads `batch` windows of seq tokens and the target of the last one; a
 * window lies in one shard (train/data/loader.h). */
int run_data_check(const struct manifest *m, const char *command)
{
    const struct manifest_inner *inner = &m->inner;
    uint64_t windows = 0;
    bool text = !manifest_has_tensors(m); /* a loop can have its own */

    for (uint32_t i = 0; i < m->data.n_shards; i++) {
        const struct manifest_shard *s = &m->data.shards[i];

        if (s->val || s->tokens == 0) {
            continue;
        }
        text = true;
        if (loader_windows(s->tokens, inner->seq) == 0) {
            return cli_fail(TROUBLE_RUN_SETTINGS,
                            "run %s: %s has %llu tokens, and one training "
                            "window takes %u: pack more text, or set inner.seq "
                            "to at most %llu",
                            command, s->name, (unsigned long long)s->tokens,
                            inner->seq + 1, (unsigned long long)s->tokens - 1);
        }
        windows += loader_windows(s->tokens, inner->seq);
    }
    return windows >= inner->batch || !text
               ? 0
               : cli_fail(
                     TROUBLE_RUN_SETTINGS,
                     "run %s: the data has %llu window%s of %u tokens, and "
                     "one step takes %u: pack more text, or set "
                     "inner.batch to at most %llu",
                     command, (unsigned long long)windows,
                     windows == 1 ? "" : "s", inner->seq, inner->batch,
                     (unsigned long long)windows);
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
                   : cli_fail(
                         TROUBLE_DATA,
                         "run create: %s is a different file; write run.yaml "
                         "into the data directory or into an empty one",
                         path);
    }
    if (symlink(target, path) != 0) {
        return cli_fail(TROUBLE_FILE, "run create: link %s: %s", path,
                        strerror(errno));
    }
    return 0;
}

int run_data_link(const struct manifest_data *data,
                  const char *folder,
                  const char *out)
{
    char dir[FILE_PATH_MAX];
    char *from = realpath(folder, NULL);
    int rv = 0;

    if (from == NULL) {
        return cli_fail(TROUBLE_DATA, "run create: %s: %s", folder,
                        strerror(errno));
    }
    file_folder(dir, out);
    for (uint32_t i = 0; rv == 0 && i < data->n_shards; i++) {
        rv = link_shard(dir, data->shards[i].name, from);
    }
    free(from);
    return rv;
}
