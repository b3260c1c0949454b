/* weights.c - see weights.h.
 *
 * Happy path: config.json is parsed, every file opened, each tensor of the
 * model looked up and its shape compared, and every tensor that is in the
 * files accounted for.
 */
#include "train/model/weights.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "proto/base/bytes.h"
#include "proto/base/err.h"
#include "proto/base/errmsg.h"
#include "proto/base/file.h"
#include "proto/base/half.h"
#include "proto/base/pages.h"

#define SINGLE "model.safetensors"
#define INDEX  "model.safetensors.index.json"

void weights_close(struct weights *w)
{
    for (size_t i = 0; i < w->n_files; i++) {
        safetensors_close(&w->files[i]);
    }
    free(w->files);
    free(w->tensors);
    memset(w, 0, sizeof *w);
}

/* ---- files --------------------------------------------------------------- */

static int read_config(struct weights *w, const char *dir, char *errmsg)
{
    char path[FILE_PATH_MAX], problem[ERRMSG_SIZE];
    struct file_map map;
    int rv = file_path_join(path, dir, "config.json", errmsg);

    rv = rv == 0 ? file_map_open(&map, path, errmsg) : rv;
    if (rv != 0) {
        return rv;
    }
    rv = hf_config_parse(&w->config, map.data, map.size, problem);
    file_map_close(&map);
    return rv == 0 ? 0 : errmsg_fail(errmsg, rv, "%.120s: %s", path, problem);
}

/* Names come from the file: none may leave the directory. */
static int name_check(const char *name, char *errmsg)
{
    return name[0] != '\0' && name[0] != '.' && strchr(name, '/') == NULL
               ? 0
               : errmsg_fail(errmsg, LOCO_EFORMAT,
                             INDEX ": \"%.80s\" is not a plain file name",
                             name);
}

static int open_one(struct weights *w, const char *path, char *errmsg)
{
    int rv = safetensors_open(&w->files[w->n_files], path, errmsg);

    w->n_files += rv == 0;
    return rv;
}

/* Every file that the index names, once, in order of first mention. */
static int
open_named(struct weights *w, const char *dir, json_t *map, char *errmsg)
{
    const char **names = calloc(WEIGHTS_FILES_MAX, sizeof(const char *));
    const char *tensor;
    json_t *value;
    size_t n = 0;
    int rv = 0;

    w->files = calloc(WEIGHTS_FILES_MAX, sizeof *w->files);
    if (names == NULL || w->files == NULL) {
        free(names);
        return errmsg_fail(errmsg, LOCO_ENOMEM, "no memory for an index");
    }
    json_object_foreach(map, tensor, value)
    {
        const char *name = json_string_value(value);
        char path[FILE_PATH_MAX];
        size_t i = 0;

        rv = name_check(name == NULL ? "" : name, errmsg);
        while (rv == 0 && i < n && strcmp(names[i], name) != 0) {
            i++;
        }
        if (rv == 0 && i == n && n == WEIGHTS_FILES_MAX) {
            rv = errmsg_fail(errmsg, LOCO_EFORMAT, INDEX ": more than %d files",
                             WEIGHTS_FILES_MAX);
        } else if (rv == 0 && i == n) {
            names[n++] = name;
            rv = file_path_join(path, dir, name, errmsg);
            rv = rv == 0 ? open_one(w, path, errmsg) : rv;
        }
        if (rv != 0) {
            break;
        }
    }
    free(names);
    return rv;
}

static int open_index(struct weights *w, const char *dir, char *errmsg)
{
    char path[FILE_PATH_MAX];
    json_error_t where = {.text = ""};
    json_t *map;
    json_t *o;
    int rv = file_path_join(path, dir, INDEX, errmsg);

    if (rv != 0) {
        return rv;
    }
    o = json_load_file(path, JSON_REJECT_DUPLICATES, &where);
    map = json_object_get(o, "weight_map");
    if (!json_is_object(map) || json_object_size(map) == 0) {
        rv = errmsg_fail(errmsg, LOCO_EFORMAT, "%.140s: no weight_map %.80s",
                         path, where.text);
    } else {
        rv = open_named(w, dir, map, errmsg);
    }
    json_decref(o);
    return rv;
}

static bool is_there(const char *dir, const char *name)
{
    char path[FILE_PATH_MAX];

    return file_path_join(path, dir, name, NULL) == 0 &&
           access(path, F_OK) == 0;
}

static int open_files(struct weights *w, const char *dir, char *errmsg)
{
    char path[FILE_PATH_MAX];
    int rv;

    if (!is_there(dir, SINGLE) && is_there(dir, INDEX)) {
        return open_index(w, dir, errmsg);
    }
    if (!is_there(dir, SINGLE) && is_there(dir, "pytorch_model.bin")) {
        return errmsg_invalid(
            errmsg,
            "%.160s has pytorch_model.bin only, which can hold "
            "programs: save it as safetensors",
            dir);
    }
    w->files = calloc(1, sizeof *w->files);
    if (w->files == NULL) {
        return errmsg_fail(errmsg, LOCO_ENOMEM, "no memory");
    }
    rv = file_path_join(path, dir, SINGLE, errmsg);
    return rv == 0 ? open_one(w, path, errmsg) : rv;
}

static int open_directory(struct weights *w, const char *dir, char *errmsg)
{
    int rv = read_config(w, dir, errmsg);

    return rv == 0 ? open_files(w, dir, errmsg) : rv;
}

int weights_open_files(struct weights *w, const char *path, char *errmsg)
{
    struct stat st;

    memset(w, 0, sizeof *w);
    if (stat(path, &st) == 0 && S_ISDIR(st.st_mode)) {
        return open_files(w, path, errmsg);
    }
    w->files = calloc(1, sizeof *w->files);
    return w->files == NULL ? errmsg_fail(errmsg, LOCO_ENOMEM, "no memory")
                            : open_one(w, path, errmsg);
}

static int open_file(struct weights *w, const char *path, char *errmsg)
{
    char problem[ERRMSG_SIZE];
    const char *config;
    int rv;

    w->files = calloc(1, sizeof *w->files);
    if (w->files == NULL) {
        return errmsg_fail(errmsg, LOCO_ENOMEM, "no memory");
    }
    rv = open_one(w, path, errmsg);
    if (rv != 0) {
        return rv;
    }
    config = safetensors_meta(&w->files[0], WEIGHTS_META);
    if (config == NULL) {
        return errmsg_fail(errmsg, LOCO_EFORMAT,
                           "%.140s: no \"" WEIGHTS_META "\" in its metadata: "
                           "loco import writes it; else name the directory",
                           path);
    }
    rv = hf_config_parse(&w->config, config, strlen(config), problem);
    return rv == 0 ? 0 : errmsg_fail(errmsg, rv, "%.120s: %s", path, problem);
}

/* ---- tensors ------------------------------------------------------------- */

static const struct st_tensor *find(const struct weights *w, const char *name)
{
    for (size_t i = 0; i < w->n_files; i++) {
        const struct st_tensor *t = safetensors_find(&w->files[i], name);

        if (t != NULL) {
            return t;
        }
    }
    return NULL;
}

static int take(struct weights *w, int i, char *errmsg)
{
    struct llama_view v;
    const struct st_tensor *t;

    llama_tensor(&w->config.model, i, &v);
    t = find(w, v.name);
    if (t == NULL) {
        return errmsg_fail(errmsg, LOCO_EFORMAT, "tensor %s is missing",
                           v.name);
    }
    if (t->n_dims != (unsigned)v.ndim || t->shape[0] != (uint64_t)v.shape[0] ||
        (v.ndim == 2 && t->shape[1] != (uint64_t)v.shape[1])) {
        return errmsg_fail(
            errmsg, LOCO_EFORMAT,
            "tensor %s has another shape than config.json says: "
            "%llu x %llu in %u dimensions",
            v.name, (unsigned long long)(t->n_dims > 0 ? t->shape[0] : 1),
            (unsigned long long)(t->n_dims > 1 ? t->shape[1] : 1), t->n_dims);
    }
    if (t->dtype != ST_F32 && t->dtype != ST_BF16 && t->dtype != ST_F16) {
        return errmsg_fail(errmsg, LOCO_EFORMAT,
                           "tensor %s is %s; F32, BF16 and F16 can be read",
                           v.name, st_dtype_name(t->dtype));
    }
    w->tensors[i] = t;
    return 0;
}

/* May be there although no tensor of ours has that name. */
static bool is_ignored(const struct weights *w, const char *name)
{
    static const char end[] = ".rotary_emb.inv_freq";
    size_t n = strlen(name);

    return (n > sizeof end && strcmp(name + n - (sizeof end - 1), end) == 0) ||
           (w->config.model.tied && strcmp(name, "lm_head.weight") == 0);
}

static int compare_pointers(const void *a, const void *b)
{
    const struct st_tensor *x = *(const struct st_tensor *const *)a;
    const struct st_tensor *y = *(const struct st_tensor *const *)b;

    return x < y ? -1 : x > y;
}

/* Everything in the files must be something that we read. */
static int check_rest(const struct weights *w, int count, char *errmsg)
{
    const struct st_tensor **known =
        malloc((size_t)count * sizeof(const struct st_tensor *));
    int rv = 0;

    if (known == NULL) {
        return errmsg_fail(errmsg, LOCO_ENOMEM, "no memory");
    }
    memcpy(known, w->tensors, (size_t)count * sizeof(const struct st_tensor *));
    qsort(known, (size_t)count, sizeof(const struct st_tensor *),
          compare_pointers);
    for (size_t f = 0; rv == 0 && f < w->n_files; f++) {
        for (size_t i = 0; rv == 0 && i < w->files[f].n_tensors; i++) {
            const struct st_tensor *t = &w->files[f].tensors[i];

            if (bsearch(&t, known, (size_t)count,
                        sizeof(const struct st_tensor *),
                        compare_pointers) == NULL &&
                !is_ignored(w, t->name)) {
                rv = errmsg_invalid(errmsg,
                                    "tensor %.80s does not belong to a plain "
                                    "Llama, or is there twice",
                                    t->name);
            }
        }
    }
    free(known);
    return rv;
}

static int take_all(struct weights *w, char *errmsg)
{
    struct llama_config *c = &w->config.model;
    int count;
    int rv = 0;

    if (w->config.tied_unsaid && find(w, "lm_head.weight") == NULL) {
        c->tied = true;
    }
    count = llama_tensor_count(c);
    w->tensors = calloc((size_t)count, sizeof(const struct st_tensor *));
    if (w->tensors == NULL) {
        return errmsg_fail(errmsg, LOCO_ENOMEM, "no memory");
    }
    for (int i = 0; rv == 0 && i < count; i++) {
        rv = take(w, i, errmsg);
    }
    return rv == 0 ? check_rest(w, count, errmsg) : rv;
}

int weights_open(struct weights *w, const char *path, char *errmsg)
{
    char problem[ERRMSG_SIZE];
    struct stat st;
    int rv;

    memset(w, 0, sizeof *w);
    if (stat(path, &st) == 0 && !S_ISDIR(st.st_mode)) {
        rv = open_file(w, path, errmsg);
    } else {
        rv = open_directory(w, path, errmsg);
    }
    if (rv == 0) {
        rv = take_all(w, problem);
        if (rv != 0) {
            (void)errmsg_fail(errmsg, rv, "%.100s: %.150s", path, problem);
        }
    }
    if (rv != 0) {
        weights_close(w);
    }
    return rv;
}

/* ---- reading ------------------------------------------------------------- */

void weights_floats(const struct st_tensor *t,
                    int64_t first,
                    int64_t n,
                    float *out)
{
    const uint8_t *p = t->data;

    if (t->dtype == ST_F32) {
        memcpy(out, p + 4 * first, (size_t)n * sizeof *out);
        return;
    }
    p += 2 * first; /* at any address */
    for (int64_t k = 0; k < n; k++) {
        uint16_t bits = get_u16(p + 2 * k);

        out[k] = t->dtype == ST_BF16 ? float_from_bits((uint32_t)bits << 16)
                                     : half_to_float(bits);
    }
}

void weights_read(
    const struct weights *w, int i, int64_t first, int64_t n, float *out)
{
    weights_floats(w->tensors[i], first, n, out);
}

void weights_forget(const struct weights *w, int i)
{
    const struct st_tensor *t = w->tensors[i];

    pages_forget(t->data, t->bytes);
}
