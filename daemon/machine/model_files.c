/* model_files.c - the files of the model that travel as shards do: the layout
 * of a list of tensors, and the parameters that round 0 begins from.
 *
 * Both have the hashes that the author signed, so that all members read the
 * same bytes; what they say is the author's, and is checked before it is used.
 */
#include <math.h>
#include <string.h>

#include "daemon/machine/internal.h"
#include "proto/base/err.h"
#include "proto/base/errmsg.h"
#include "proto/base/log.h"
#include "proto/base/pages.h"

void machine_close_model(struct machine *m)
{
    tensor_list_free(&m->model.tensors);
    memset(&m->model, 0, sizeof m->model);
}

/* A file of the model; the manifest is valid, so it is one of the shards. */
static const struct file_map *map_of(const struct machine *m, const char *name)
{
    return &m->files[manifest_shard_named(&m->manifest->data, name)].shard.map;
}

static int read_layout(struct machine *m, char *errmsg)
{
    const struct manifest_model *f = &m->manifest->model;
    const struct file_map *map;
    char problem[ERRMSG_SIZE];
    int rv;

    if (!manifest_has_tensors(m->manifest)) {
        rv = tensor_list_of_llama(&m->model.tensors, &m->replica.model);
        return rv == 0 ? 0 : errmsg_fail(errmsg, rv, "out of memory");
    }
    map = map_of(m, f->layout);
    rv = tensor_list_parse(&m->model.tensors, map->data, map->size, problem);
    if (rv != 0) {
        return errmsg_fail(errmsg, rv, "the run's layout, %s: %.180s",
                           f->layout, problem);
    }
    return m->model.tensors.numel == f->params
               ? 0
               : errmsg_invalid(errmsg,
                                "the run's layout, %s, has %llu elements, and "
                                "model.params is %llu",
                                f->layout,
                                (unsigned long long)m->model.tensors.numel,
                                (unsigned long long)f->params);
}

/* On the trainer's thread. The file was checked but for its numbers: a model
 * that begins with one that is not finite could never be averaged. */
static int read_init(void *self, float *theta)
{
    const struct machine_model *model = self;

    memcpy(theta, model->init, model->n * sizeof *theta);
    pages_forget(model->init, model->n * sizeof *theta);
    for (uint64_t i = 0; i < model->n; i++) {
        if (!isfinite(theta[i])) {
            log_error("train",
                      "the run begins from %s, whose element %llu is "
                      "not finite: nobody can train it",
                      model->name, (unsigned long long)i);
            return LOCO_ENUMERIC;
        }
    }
    return 0;
}

/* Same names, shapes and order as the layout: the file's data is theta. */
static int check_init(struct machine *m, char *errmsg)
{
    const struct file_map *map = map_of(m, m->manifest->model.init);
    struct machine_model *model = &m->model;
    char problem[ERRMSG_SIZE];
    struct tensor_list of = {0};
    struct safetensors st;
    int rv = safetensors_open_memory(&st, map->data, map->size, problem);

    rv = rv == 0 ? tensor_list_of_file(&of, &st, problem) : rv;
    if (rv == 0) {
        rv = tensor_list_same(&model->tensors,
                              manifest_has_tensors(m->manifest)
                                  ? "the run's layout"
                                  : "the run's model",
                              &of, "the file", problem);
    }
    if (rv == 0) {
        model->init = (const uint8_t *)st.tensors[0].data +
                      (uint64_t)m->replica.part.offset * sizeof(float);
        model->n = m->n;
        model->name = m->manifest->model.init;
    } else {
        (void)errmsg_fail(errmsg, rv, "the run begins from %s: %.180s",
                          m->manifest->model.init, problem);
    }
    tensor_list_free(&of);
    safetensors_close(&st);
    return rv;
}

int machine_open_init(struct machine *m, char *errmsg)
{
    const char *name = m->manifest->model.init;

    if (name[0] == '\0' || m->model.init != NULL) {
        return 0;
    }
    if (map_of(m, name)->data == NULL) {
        return errmsg_fail(errmsg, LOCO_ENOENT, "%s is missing", name);
    }
    return check_init(m, errmsg);
}

int machine_open_model(struct machine *m, char *errmsg)
{
    int rv;

    machine_close_model(m);
    m->replica.init = NULL;
    rv = read_layout(m, errmsg);
    if (rv == 0 && m->manifest->model.init[0] != '\0') {
        m->replica.init = read_init;
        m->replica.init_self = &m->model;
    }
    return rv;
}
