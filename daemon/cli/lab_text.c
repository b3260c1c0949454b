/* lab_text.c - the text that the laboratory trains on; see lab_files.h. */
#include "daemon/cli/lab_files.h"

#include <errno.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <jansson.h>

#include "daemon/cli/cli.h"
#include "proto/base/err.h"
#include "proto/base/errmsg.h"
#include "proto/base/file.h"
#include "train/data/pack.h"

/* ---- the text that is always there -------------------------------------- */

static int run_script(char *script, char *out, char *errmsg)
{
    char sh[] = "sh";
    char *argv[] = {sh, script, out, NULL};
    int status = -1;
    pid_t pid;

    if (posix_spawnp(&pid, "sh", NULL, NULL, argv, environ) != 0 ||
        waitpid(pid, &status, 0) != pid || status != 0) {
        return errmsg_fail(errmsg, LOCO_ENOENT,
                           "no text: give --data DIR, which loco data pack "
                           "writes, or install sword-comm-tdavid and "
                           "libsword-utils");
    }
    return 0;
}

static int make_directory(const char *path, char *errmsg)
{
    if (mkdir(path, 0755) == 0 || errno == EEXIST) {
        return 0;
    }
    return errmsg_fail(errmsg, LOCO_EIO, "%s: %s", path, strerror(errno));
}

/* $XDG_CACHE_HOME/loco or ~/.cache/loco, made where it is missing. */
static int cache_directory(char dir[FILE_PATH_MAX], char *errmsg)
{
    const char *cache = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
    char base[FILE_PATH_MAX];
    int rv;

    if (cache != NULL && cache[0] == '/') {
        rv = file_path_join(base, cache, "", errmsg);
    } else {
        rv = file_path_join(base, home == NULL ? "/tmp" : home, ".cache",
                            errmsg);
    }
    rv = rv != 0 ? rv : make_directory(base, errmsg);
    rv = rv != 0 ? rv : file_path_join(dir, base, "loco", errmsg);
    return rv != 0 ? rv : make_directory(dir, errmsg);
}

static int make_text(const char *cache, const char *dir, char *errmsg)
{
    const struct pack_options options = {
        .val_bytes = 131072,
        .shards = 1,
        .tokenizer = "byte",
        .source = "C. H. Spurgeon, The Treasury of David (1869-1885), Debian "
                  "package sword-comm-tdavid, module TDavid",
        .licence = "Public Domain",
    };
    char name[64], text[FILE_PATH_MAX], script[FILE_PATH_MAX] = "";
    const char *inputs[1] = {text};
    struct pack_result packed;
    int rv;

    (void)snprintf(name, sizeof name, "prose-%ld.txt", (long)getpid());
    rv = file_path_join(text, cache, name, errmsg);
    if (rv == 0 && cli_tree_file(script, "deploy/text.sh", NULL) != 0) {
        rv = errmsg_fail(errmsg, LOCO_ENOENT,
                         "no text: give --data DIR, which loco data pack "
                         "writes (%s is not there)",
                         script);
    }
    rv = rv != 0 ? rv : run_script(script, text, errmsg);
    if (rv == 0) {
        rv = pack_text(inputs, 1, dir, &options, &packed);
        if (rv != 0) {
            (void)errmsg_fail(errmsg, rv, "%s", packed.errmsg);
        }
    }
    (void)unlink(text);
    return rv;
}

/* Packed once; two that do it at the same time write the same bytes. */
static int default_text(char dir[FILE_PATH_MAX], char *errmsg)
{
    char cache[FILE_PATH_MAX], list[FILE_PATH_MAX];
    int rv = cache_directory(cache, errmsg);

    rv = rv != 0 ? rv : file_path_join(dir, cache, "prose", errmsg);
    rv = rv != 0 ? rv : file_path_join(list, dir, "data.json", errmsg);
    if (rv != 0 || access(list, R_OK) == 0) {
        return rv;
    }
    return make_text(cache, dir, errmsg);
}

/* ---- shards ------------------------------------------------------------- */

static int
open_shard(struct shard *s, const char *dir, const json_t *entry, char *errmsg)
{
    const char *name = json_string_value(json_object_get(entry, "name"));
    char path[FILE_PATH_MAX];
    int rv;

    if (name == NULL || strchr(name, '/') != NULL) {
        return errmsg_fail(errmsg, LOCO_EFORMAT,
                           "%s/data.json names a shard without a plain name; "
                           "run loco data pack again",
                           dir);
    }
    rv = file_path_join(path, dir, name, errmsg);
    return rv != 0 ? rv : shard_open(s, path, errmsg);
}

static int
open_all(struct lab_text *t, const char *dir, const json_t *root, char *errmsg)
{
    const json_t *train = json_object_get(root, "train");
    const json_t *val = json_object_get(root, "val");
    size_t n = json_array_size(train);
    int rv = 0;

    if (n == 0 || n > LAB_TEXT_SHARDS_MAX || !json_is_object(val)) {
        return errmsg_fail(errmsg, LOCO_EFORMAT,
                           "%s/data.json: 1 to %d shards and a held-out part "
                           "are needed; run loco data pack with --val-bytes",
                           dir, LAB_TEXT_SHARDS_MAX);
    }
    t->train = calloc(n, sizeof *t->train);
    if (t->train == NULL) {
        return errmsg_fail(errmsg, LOCO_ENOMEM, "out of memory");
    }
    for (size_t i = 0; i < n && rv == 0; i++) {
        t->n_train++;
        rv = open_shard(&t->train[i], dir, json_array_get(train, i), errmsg);
    }
    if (rv == 0) {
        t->has_val = true;
        rv = open_shard(&t->val, dir, val, errmsg);
    }
    return rv;
}

json_t *lab_text_list(const char *dir, char *errmsg)
{
    char path[FILE_PATH_MAX];
    json_error_t where;
    json_t *root;

    if (file_path_join(path, dir, "data.json", errmsg) != 0) {
        return NULL;
    }
    root = json_load_file(path, JSON_REJECT_DUPLICATES, &where);
    if (root == NULL) {
        (void)errmsg_fail(errmsg, LOCO_ENOENT,
                          "%s: %s; loco data pack writes it", path, where.text);
    }
    return root;
}

int lab_text_open(struct lab_text *t, const char *dir, char *errmsg)
{
    char cached[FILE_PATH_MAX];
    json_t *root;
    int rv = 0;

    memset(t, 0, sizeof *t);
    if (dir == NULL) {
        rv = default_text(cached, errmsg);
        dir = cached;
    }
    if (rv != 0) {
        return rv;
    }
    root = lab_text_list(dir, errmsg);
    if (root == NULL) {
        return LOCO_ENOENT;
    }
    rv = open_all(t, dir, root, errmsg);
    json_decref(root);
    return rv;
}

void lab_text_close(struct lab_text *t)
{
    for (size_t i = 0; i < t->n_train; i++) {
        shard_close(&t->train[i]);
    }
    free(t->train);
    if (t->has_val) {
        shard_close(&t->val);
    }
    memset(t, 0, sizeof *t);
}
