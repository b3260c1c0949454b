/* model.c - reading models; see model.h. */
#include "daemon/model.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/state_dir.h"
#include "proto/base/err.h"
#include "proto/manifest.h"
#include "train/checkpoint.h"
#include "train/file.h"
#include "train/safetensors.h"

/* ---- from a state directory ---------------------------------------------- */

static void config_of_manifest(struct llama_config *c,
                               const struct manifest_model *m)
{
    *c = (struct llama_config){
        .dim = m->dim,
        .layers = m->layers,
        .heads = m->heads,
        .kv_heads = m->kv_heads,
        .ffn = m->ffn,
        .vocab = m->vocab,
        .seq = m->seq,
        .tied = m->tied,
        .rope_theta = (float)m->rope_theta,
        .norm_eps = (float)m->norm_eps,
    };
}

static int manifest_read(struct llama_config *c, const char *dir, char *errmsg)
{
    struct signer signer = signer_sodium(NULL);
    struct manifest *manifest = malloc(sizeof *manifest);
    char path[FILE_PATH_MAX];
    struct file_map map;
    struct hash32 run;
    int rv;

    if (manifest == NULL) {
        return errmsg_fail(errmsg, LOCO_ENOMEM, "out of memory");
    }
    rv = file_path_join(path, dir, STATE_DIR_MANIFEST, errmsg);
    if (rv == 0) {
        rv = file_map_open(&map, path, errmsg);
    }
    if (rv == 0) {
        rv = manifest_unpack(map.data, map.size, &signer, manifest, NULL, &run,
                             errmsg);
        if (rv != 0) {
            rv = errmsg_fail(errmsg, LOCO_EFORMAT,
                             "%.180s is not a run manifest: %s", path,
                             loco_strerror(rv));
        }
        file_map_close(&map);
    }
    if (rv == 0) {
        config_of_manifest(c, &manifest->model);
    }
    free(manifest);
    return rv;
}

static int config_usable(const struct llama_config *c, char *errmsg)
{
    const char *reason = "";

    return llama_config_check(c, &reason) == 0
               ? 0
               : errmsg_fail(errmsg, LOCO_EINVAL, "model: %.120s", reason);
}

static int theta_take(struct model *m, const struct checkpoint *c, char *errmsg)
{
    size_t n = (size_t)llama_numel(&m->config);

    if (c->state.n != n) {
        return errmsg_fail(errmsg, LOCO_EFORMAT,
                           "the checkpoint holds %llu parameters, the run's "
                           "model has %zu",
                           (unsigned long long)c->state.n, n);
    }
    m->theta = malloc(n * sizeof *m->theta);
    if (m->theta == NULL) {
        return errmsg_fail(errmsg, LOCO_ENOMEM, "out of memory");
    }
    memcpy(m->theta, c->state.phi, n * sizeof *m->theta);
    m->round = c->state.round;
    (void)snprintf(m->run_id, sizeof m->run_id, "%s",
                   c->state.run_id == NULL ? "" : c->state.run_id);
    return 0;
}

int model_open_state(struct model *m,
                     const char *state_dir,
                     char errmsg[ERRMSG_SIZE])
{
    struct checkpoint checkpoint = {0};
    char dir[FILE_PATH_MAX];
    int rv;

    memset(m, 0, sizeof *m);
    rv = manifest_read(&m->config, state_dir, errmsg);
    if (rv == 0) {
        rv = config_usable(&m->config, errmsg);
    }
    if (rv == 0) {
        rv = file_path_join(dir, state_dir, STATE_DIR_CHECKPOINTS, errmsg);
    }
    if (rv != 0) {
        return rv;
    }
    rv = checkpoint_open_newest(&checkpoint, dir, errmsg);
    if (rv == 0) {
        rv = theta_take(m, &checkpoint, errmsg);
    } else if (rv == LOCO_ENOENT) {
        rv = errmsg_fail(errmsg, LOCO_ENOENT,
                         "%.180s holds no checkpoint yet: the run has not "
                         "committed a round",
                         dir);
    }
    checkpoint_close(&checkpoint);
    return rv;
}

/* ---- from an export ------------------------------------------------------ */

/* A whole number of config.json; 0 when it is not there. */
static uint32_t count_of(const json_t *o, const char *key)
{
    json_int_t v = json_integer_value(json_object_get(o, key));

    return v < 0 || v > UINT32_MAX ? 0 : (uint32_t)v;
}

static float real_of(const json_t *o, const char *key, float otherwise)
{
    const json_t *v = json_object_get(o, key);

    return json_is_number(v) ? (float)json_number_value(v) : otherwise;
}

static int config_read(struct llama_config *c, const char *dir, char *errmsg)
{
    char path[FILE_PATH_MAX];
    json_error_t where;
    const json_t *rope;
    const char *type;
    json_t *o;
    int rv = file_path_join(path, dir, "config.json", errmsg);

    if (rv != 0) {
        return rv;
    }
    o = json_load_file(path, 0, &where);
    if (o == NULL) {
        return errmsg_fail(errmsg, LOCO_ENOENT, "%.160s: %.80s", path,
                           where.text);
    }
    type = json_string_value(json_object_get(o, "model_type"));
    rope = json_object_get(o, "rope_parameters");
    *c = (struct llama_config){
        .dim = count_of(o, "hidden_size"),
        .layers = count_of(o, "num_hidden_layers"),
        .heads = count_of(o, "num_attention_heads"),
        .kv_heads = count_of(o, "num_key_value_heads"),
        .ffn = count_of(o, "intermediate_size"),
        .vocab = count_of(o, "vocab_size"),
        .seq = count_of(o, "max_position_embeddings"),
        .tied = json_is_true(json_object_get(o, "tie_word_embeddings")),
        .rope_theta =
            real_of(o, "rope_theta", real_of(rope, "rope_theta", 10000.0F)),
        .norm_eps = real_of(o, "rms_norm_eps", 1e-5F),
    };
    rv = type != NULL && strcmp(type, "llama") == 0
             ? config_usable(c, errmsg)
             : errmsg_fail(errmsg, LOCO_EINVAL,
                           "%.160s: model_type is not 'llama'", path);
    json_decref(o);
    return rv;
}

static int tensor_take(float *theta,
                       const struct safetensors *file,
                       const struct llama_view *view,
                       char *errmsg)
{
    const struct st_tensor *t = safetensors_find(file, view->name);
    uint64_t bytes = (uint64_t)view->numel * sizeof *theta;

    if (t == NULL || t->dtype != ST_F32 || t->bytes != bytes) {
        return errmsg_fail(errmsg, LOCO_EFORMAT, "tensor %s: %s", view->name,
                           t == NULL ? "is missing"
                                     : "has another shape or is not F32");
    }
    memcpy(theta + view->offset, t->data, bytes);
    return 0;
}

int model_open_export(struct model *m,
                      const char *dir,
                      char errmsg[ERRMSG_SIZE])
{
    struct safetensors file = {0};
    char path[FILE_PATH_MAX];
    int rv;

    memset(m, 0, sizeof *m);
    rv = config_read(&m->config, dir, errmsg);
    if (rv == 0) {
        rv = file_path_join(path, dir, "model.safetensors", errmsg);
    }
    if (rv != 0) {
        return rv;
    }
    m->theta = malloc((size_t)llama_numel(&m->config) * sizeof *m->theta);
    if (m->theta == NULL) {
        return errmsg_fail(errmsg, LOCO_ENOMEM, "out of memory");
    }
    rv = safetensors_open(&file, path, errmsg);
    for (int i = 0; rv == 0 && i < llama_tensor_count(&m->config); i++) {
        struct llama_view view;

        llama_tensor(&m->config, i, &view);
        rv = tensor_take(m->theta, &file, &view, errmsg);
    }
    safetensors_close(&file);
    return rv;
}

void model_close(struct model *m)
{
    free(m->theta);
    m->theta = NULL;
}
