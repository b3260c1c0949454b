/* run_init.c - see run_init.h.
 *
 * The files are named by their content, so that two runs in one folder keep
 * theirs and a command that is repeated writes the same file again.
 */
#include "daemon/cli/run_init.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "daemon/cli/run_data.h"
#include "daemon/settings/file_hash.h"
#include "proto/base/err.h"
#include "proto/base/errmsg.h"
#include "proto/base/file.h"

#define TENSORS_SEQ 1024 /* where there is text */
#define HEX_SHOWN   16   /* of a file's hash, in its name */

void run_init_close(struct run_init *init)
{
    tensor_list_free(&init->tensors);
    weights_close(&init->weights);
    free(init->given);
    free(init->from);
    memset(init, 0, sizeof *init);
}

/* ---- what is there ------------------------------------------------------- */

static int check_dtype(const struct st_tensor *t, char *errmsg)
{
    return t->dtype == ST_F32 || t->dtype == ST_F16 || t->dtype == ST_BF16
               ? 0
               : errmsg_invalid(errmsg,
                                "tensor %.120s is %s; weights are F32, F16 or "
                                "BF16: leave out of the file what is not "
                                "trained",
                                t->name, st_dtype_name(t->dtype));
}

/* init->from has the tensors in the order of theta. */
static int take_tensors(struct run_init *init, char *errmsg)
{
    int rv = 0;

    init->from = calloc(init->tensors.n, sizeof *init->from);
    if (init->from == NULL) {
        return errmsg_fail(errmsg, LOCO_ENOMEM, "no memory");
    }
    for (size_t i = 0; i < init->tensors.n && rv == 0; i++) {
        init->from[i] =
            init->is_llama ? init->weights.tensors[i] : &init->given[i];
        rv = check_dtype(init->from[i], errmsg);
    }
    return rv;
}

static int open_llama(struct run_init *init, const char *path, char *errmsg)
{
    int rv = weights_open(&init->weights, path, errmsg);

    init->is_llama = true;
    rv = rv == 0
             ? tensor_list_of_llama(&init->tensors, &init->weights.config.model)
             : rv;
    return rv;
}

static int open_tensors(struct run_init *init, const char *path, char *errmsg)
{
    int rv = weights_open_files(&init->weights, path, errmsg);
    size_t n = 0;

    for (size_t i = 0; rv == 0 && i < init->weights.n_files; i++) {
        n += init->weights.files[i].n_tensors;
    }
    init->given = rv == 0 ? calloc(n + 1, sizeof *init->given) : NULL;
    if (rv != 0 || init->given == NULL) {
        return rv != 0 ? rv : errmsg_fail(errmsg, LOCO_ENOMEM, "no memory");
    }
    n = 0;
    for (size_t i = 0; i < init->weights.n_files; i++) {
        const struct safetensors *st = &init->weights.files[i];

        memcpy(init->given + n, st->tensors,
               st->n_tensors * sizeof *st->tensors);
        n += st->n_tensors;
    }
    return tensor_list_of_tensors(&init->tensors, init->given, n, errmsg);
}

static bool is_folder(const char *path)
{
    struct stat st;

    return stat(path, &st) == 0 && S_ISDIR(st.st_mode);
}

/* Whether loco import wrote it. */
static bool says_llama(const char *path)
{
    struct safetensors st;
    char errmsg[ERRMSG_SIZE];
    bool says = safetensors_open(&st, path, errmsg) == 0 &&
                safetensors_meta(&st, WEIGHTS_META) != NULL;

    safetensors_close(&st);
    return says;
}

int run_init_open(struct run_init *init, const char *path, bool as_tensors)
{
    char errmsg[ERRMSG_SIZE];
    bool folder = is_folder(path);
    bool llama = !as_tensors && (folder || says_llama(path));
    int rv;

    memset(init, 0, sizeof *init);
    rv = llama ? open_llama(init, path, errmsg)
               : open_tensors(init, path, errmsg);
    rv = rv == 0 ? take_tensors(init, errmsg) : rv;
    if (rv == 0) {
        return 0;
    }
    return cli_fail(cli_trouble_of(rv, TROUBLE_RUN_SETTINGS),
                    "run create: --init: %s%s", errmsg,
                    llama && folder
                        ? "; for a training loop of your own, --model tensors "
                          "takes the tensors of its files as they are"
                        : "");
}

void run_init_tensors(const struct run_init *init,
                      struct manifest *m,
                      bool text)
{
    m->model = (struct manifest_model){.params = init->tensors.numel};
    m->inner.seq = text ? TENSORS_SEQ : 1;
}

/* ---- the files ----------------------------------------------------------- */

/* Some of a tensor as F32, by its place in init->from. */
static int fill(void *data,
                const struct st_tensor *t,
                uint64_t offset,
                void *out,
                size_t bytes,
                char *errmsg)
{
    const struct st_tensor *from = t->data;
    float *x = out;
    int64_t n = (int64_t)(bytes / sizeof *x);

    (void)data;
    weights_floats(from, (int64_t)(offset / sizeof *x), n, x);
    for (int64_t i = 0; i < n; i++) {
        if (!isfinite(x[i])) {
            return errmsg_invalid(
                errmsg,
                "tensor %.120s has an element that is not "
                "finite (number %lld): nobody could train it",
                from->name, (long long)(offset / sizeof *x) + (long long)i);
        }
    }
    return 0;
}

/* theta as a safetensors file. */
static int
write_weights(const struct run_init *init, const char *path, char *errmsg)
{
    struct st_tensor *list = calloc(init->tensors.n, sizeof *list);
    int rv;

    if (list == NULL) {
        return errmsg_fail(errmsg, LOCO_ENOMEM, "no memory");
    }
    for (size_t i = 0; i < init->tensors.n; i++) {
        const struct tensor_entry *e = &init->tensors.at[i];

        list[i] = (struct st_tensor){.name = e->name,
                                     .dtype = ST_F32,
                                     .n_dims = e->n_dims,
                                     .data = init->from[i],
                                     .bytes = e->numel * sizeof(float)};
        memcpy(list[i].shape, e->shape, sizeof e->shape);
    }
    rv = safetensors_stream_as_given(path, list, init->tensors.n, NULL, 0, fill,
                                     NULL, errmsg);
    free(list);
    return rv;
}

static int
write_layout(const struct run_init *init, const char *path, char *errmsg)
{
    char *text = tensor_list_text(&init->tensors);
    int rv = text == NULL ? errmsg_fail(errmsg, LOCO_ENOMEM, "no memory")
                          : file_write_whole(path, text, strlen(text), errmsg);

    free(text);
    return rv;
}

/* A shard of what `write` writes: KIND-HASH.SUFFIX beside `out`. */
struct made {
    const char *kind, *suffix;
    int (*write)(const struct run_init *init, const char *path, char *errmsg);
    char *name; /* (MANIFEST_NAME_MAX), of the manifest's model */
};

static int make(const struct run_init *init,
                struct manifest_data *data,
                const struct made *what,
                const char *out)
{
    struct manifest_shard *s = &data->shards[data->n_shards];
    char first[FILE_PATH_MAX], last[FILE_PATH_MAX], errmsg[ERRMSG_SIZE];
    char hex[ID_HEX_MAX];
    struct stat st;
    int rv;

    if (data->n_shards == MANIFEST_SHARDS_MAX) {
        return cli_fail(TROUBLE_DATA,
                        "run create: more than %d files; pack fewer shards",
                        MANIFEST_SHARDS_MAX);
    }
    (void)snprintf(s->name, sizeof s->name, "%s.new", what->kind);
    file_beside(first, out, s->name);
    rv = what->write(init, first, errmsg);
    rv = rv == 0 ? file_hash(first, &s->blake2b, errmsg) : rv;
    if (rv == 0 && stat(first, &st) != 0) {
        rv = errmsg_fail(errmsg, LOCO_EIO, "%.200s went away", first);
    }
    if (rv == 0) {
        hash32_hex(&s->blake2b, hex);
        (void)snprintf(s->name, sizeof s->name, "%s-%.*s.%s", what->kind,
                       HEX_SHOWN, hex, what->suffix);
        s->bytes = (uint64_t)st.st_size;
        file_beside(last, out, s->name);
        rv = rename(first, last) == 0
                 ? 0
                 : errmsg_fail(errmsg, LOCO_EIO, "%.200s cannot be named %.60s",
                               first, s->name);
    }
    if (rv != 0) {
        (void)unlink(first);
        return cli_fail(cli_trouble_of(rv, TROUBLE_FILE), "run create: %s",
                        errmsg);
    }
    data->n_shards++;
    memcpy(what->name, s->name, strlen(s->name) + 1);
    return 0;
}

int run_init_write(const struct run_init *init,
                   struct manifest *m,
                   const struct cli_list *bases,
                   const char *out)
{
    const struct made weights = {"init", "safetensors", write_weights,
                                 m->model.init};
    const struct made layout = {"layout", "json", write_layout,
                                m->model.layout};
    uint32_t first = m->data.n_shards;
    int rv = make(init, &m->data, &weights, out); /* it may be refused */

    rv = rv == 0 && !init->is_llama ? make(init, &m->data, &layout, out) : rv;
    return rv == 0 ? run_data_urls(&m->data, bases, first) : rv;
}
