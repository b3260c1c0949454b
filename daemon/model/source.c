/* source.c - see model/source.h. */
#include "daemon/model/source.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "daemon/settings/run_model.h"
#include "daemon/settings/state_dir.h"
#include "proto/base/err.h"
#include "proto/base/pages.h"
#include "proto/manifest.h"

void model_source_close(struct model_source *s)
{
    checkpoint_close(&s->checkpoint);
    model_stages_close(&s->stages);
    weights_close(&s->weights);
    tensor_list_free(&s->tensors);
    s->phi = NULL;
}

/* ---- a state directory -------------------------------------------------- */

static void take_tokenizer(struct model_source *s,
                           const struct manifest_data *data,
                           const char *dir)
{
    if (strcmp(data->tokenizer, "byte") == 0) {
        (void)snprintf(s->tokenizer, sizeof s->tokenizer, "byte");
    } else if (snprintf(s->tokenizer, sizeof s->tokenizer,
                        "%s/" STATE_DIR_SHARDS "/%s", dir,
                        data->tokenizer) >= (int)sizeof s->tokenizer ||
               access(s->tokenizer, F_OK) != 0) {
        s->tokenizer[0] = '\0';
    }
}

static void take_manifest(struct model_source *s, const struct manifest *f)
{
    s->config.model = run_model(&f->model);
    (void)snprintf(s->facts.run_name, sizeof s->facts.run_name, "%s", f->name);
    (void)snprintf(s->facts.method, sizeof s->facts.method, "%s",
                   f->sync.preset);
    (void)snprintf(s->facts.licence, sizeof s->facts.licence, "%s",
                   f->data.licence);
}

/* The daemon keeps the layout that the author signed beside its shards. */
static int read_layout(struct model_source *s,
                       const char *dir,
                       const struct manifest_model *m,
                       char *errmsg)
{
    char shards[FILE_PATH_MAX], path[FILE_PATH_MAX], problem[ERRMSG_SIZE];
    struct file_map map;
    int rv = file_path_join(shards, dir, STATE_DIR_SHARDS, errmsg);

    rv = rv == 0 ? file_path_join(path, shards, m->layout, errmsg) : rv;
    rv = rv == 0 ? file_map_open(&map, path, errmsg) : rv;
    if (rv != 0) {
        return rv;
    }
    tensor_list_free(&s->tensors); /* of another directory of the same run */
    rv = tensor_list_parse(&s->tensors, map.data, map.size, problem);
    file_map_close(&map);
    return rv == 0 ? 0
                   : errmsg_fail(errmsg, rv, "the run's layout, %.120s: %.120s",
                                 path, problem);
}

/* *stages, *run: of its run. */
static int manifest_read(struct model_source *s,
                         const char *dir,
                         uint32_t *stages,
                         struct hash32 *run,
                         char *errmsg)
{
    struct signer signer = signer_sodium(NULL);
    struct manifest *manifest = malloc(sizeof *manifest);
    char path[FILE_PATH_MAX];
    struct file_map map;
    int rv;

    if (manifest == NULL) {
        return errmsg_fail(errmsg, LOCO_ENOMEM, "out of memory");
    }
    rv = file_path_join(path, dir, STATE_DIR_MANIFEST, errmsg);
    rv = rv == 0 ? file_map_open(&map, path, errmsg) : rv;
    if (rv == 0) {
        rv = manifest_unpack(map.data, map.size, &signer, manifest, NULL, run,
                             errmsg);
        if (rv != 0) {
            rv = errmsg_fail(errmsg, LOCO_EFORMAT,
                             "%.180s is not a run manifest: %s", path,
                             loco_strerror(rv));
        }
        file_map_close(&map);
    }
    if (rv == 0) {
        *stages = manifest->stages;
        take_manifest(s, manifest);
        take_tokenizer(s, &manifest->data, dir);
    }
    if (rv == 0 && manifest_has_tensors(manifest)) {
        rv = read_layout(s, dir, &manifest->model, errmsg);
    }
    free(manifest);
    return rv;
}

static void take_facts(struct model_source *s, const struct checkpoint_state *c)
{
    s->mapped = true;
    s->facts.round = c->round;
    s->facts.inner_steps = c->inner_step;
    s->facts.tokens = c->tokens;
    (void)snprintf(s->facts.run_id, sizeof s->facts.run_id, "%s",
                   c->run_id == NULL ? "" : c->run_id);
}

static int
take_checkpoint(struct model_source *s, const char *state_dir, char *errmsg)
{
    const struct checkpoint_state *c = &s->checkpoint.state;
    uint64_t n = s->tensors.n > 0 ? s->tensors.numel
                                  : (uint64_t)llama_numel(&s->config.model);
    char dir[FILE_PATH_MAX];
    int rv = file_path_join(dir, state_dir, STATE_DIR_CHECKPOINTS, errmsg);

    rv = rv == 0 ? checkpoint_open_newest(&s->checkpoint, dir, errmsg) : rv;
    if (rv == LOCO_ENOENT) {
        return errmsg_fail(errmsg, LOCO_ENOENT,
                           "%.180s holds no checkpoint yet: the run has not "
                           "committed a round",
                           dir);
    }
    if (rv == 0 && c->n != n) {
        rv = errmsg_fail(errmsg, LOCO_EFORMAT,
                         "the checkpoint holds %llu parameters, the run's "
                         "model has %llu",
                         (unsigned long long)c->n, (unsigned long long)n);
    }
    if (rv == 0) {
        s->phi = c->phi;
        take_facts(s, c);
    }
    return rv;
}

/* All directories are of one run; *stages of it. */
static int read_manifests(struct model_source *s,
                          const char *const *dirs,
                          size_t n,
                          uint32_t *stages,
                          char *errmsg)
{
    struct hash32 first, run;
    int rv = manifest_read(s, dirs[0], stages, &first, errmsg);

    for (size_t i = 1; i < n && rv == 0; i++) {
        rv = manifest_read(s, dirs[i], stages, &run, errmsg);
        if (rv == 0 && !hash32_eq(&first, &run)) {
            rv = errmsg_invalid(errmsg, "%.120s and %.120s are of two runs",
                                dirs[0], dirs[i]);
        }
    }
    return rv;
}

int model_source_state(struct model_source *s,
                       const char *const *state_dirs,
                       size_t n_dirs,
                       char errmsg[ERRMSG_SIZE])
{
    const char *reason = "";
    uint32_t stages = 1;
    int rv;

    memset(s, 0, sizeof *s);
    s->config.bos = s->config.eos = HF_NO_TOKEN;
    rv = read_manifests(s, state_dirs, n_dirs, &stages, errmsg);
    if (rv == 0 && s->tensors.n == 0 &&
        llama_config_check(&s->config.model, &reason) != 0) {
        rv = errmsg_invalid(errmsg, "model: %.120s", reason);
    }
    if (rv == 0 && stages > 1) {
        rv = model_stages_open(&s->stages, &s->config.model, stages, state_dirs,
                               n_dirs, errmsg);
        if (rv == 0) {
            take_facts(s, &s->stages.stage[0].checkpoint.state);
        }
        return rv;
    }
    if (rv == 0 && n_dirs > 1) {
        rv = errmsg_invalid(errmsg, "the run's model is not cut into stages: "
                                    "one --state has the whole model");
    }
    return rv == 0 ? take_checkpoint(s, state_dirs[0], errmsg) : rv;
}

/* ---- files -------------------------------------------------------------- */

/* A directory has tokenizer.json in it, a file FILE.tokenizer.json beside it.
 * Without one, 256 tokens are the bytes. */
static void find_tokenizer(struct model_source *s, const char *path)
{
    struct stat st;
    bool is_dir = stat(path, &st) == 0 && S_ISDIR(st.st_mode);
    int n = snprintf(s->tokenizer, sizeof s->tokenizer, "%s%stokenizer.json",
                     path, is_dir ? "/" : ".");

    if (n < 0 || (size_t)n >= sizeof s->tokenizer ||
        access(s->tokenizer, F_OK) != 0) {
        (void)snprintf(s->tokenizer, sizeof s->tokenizer, "%s",
                       s->config.model.vocab == 256 ? "byte" : "");
    }
}

int model_source_files(struct model_source *s,
                       const char *path,
                       char errmsg[ERRMSG_SIZE])
{
    int rv;

    memset(s, 0, sizeof *s);
    rv = weights_open(&s->weights, path, errmsg);
    if (rv == 0) {
        s->config = s->weights.config;
        find_tokenizer(s, path);
    }
    return rv;
}

void model_source_memory(struct model_source *s,
                         const struct llama_config *config,
                         const float *theta)
{
    memset(s, 0, sizeof *s);
    s->config.model = *config;
    s->config.bos = s->config.eos = HF_NO_TOKEN;
    s->phi = theta;
    (void)snprintf(s->tokenizer, sizeof s->tokenizer, "%s",
                   config->vocab == 256 ? "byte" : "");
}

/* ---- reading ------------------------------------------------------------ */

static const float *tensor_at(const struct model_source *s, int i)
{
    struct llama_view v;

    if (s->tensors.n > 0) {
        return s->phi + s->tensors.at[i].offset;
    }
    llama_tensor(&s->config.model, i, &v);
    return s->stages.n > 0 ? model_stages_at(&s->stages, v.offset)
                           : s->phi + v.offset;
}

void model_source_read(
    const struct model_source *s, int i, int64_t first, int64_t n, float *out)
{
    if (s->phi == NULL && s->stages.n == 0) {
        weights_read(&s->weights, i, first, n, out);
        return;
    }
    memcpy(out, tensor_at(s, i) + first, (size_t)n * sizeof *out);
}

static uint64_t numel_of(const struct model_source *s, int i)
{
    struct llama_view v;

    if (s->tensors.n > 0) {
        return s->tensors.at[i].numel;
    }
    llama_tensor(&s->config.model, i, &v);
    return (uint64_t)v.numel;
}

void model_source_forget(const struct model_source *s, int i)
{
    if (s->phi == NULL && s->stages.n == 0) {
        weights_forget(&s->weights, i);
    } else if (s->mapped) {
        pages_forget(tensor_at(s, i), numel_of(s, i) * sizeof *s->phi);
    }
}
