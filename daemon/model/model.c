/* model.c - loading a model; see model.h. */
#include "daemon/model/model.h"

#include <stdlib.h>
#include <string.h>

#include "proto/base/err.h"

static int load(struct model *m, const struct model_source *s, char *errmsg)
{
    int count;

    if (s->tensors.n > 0) {
        return errmsg_invalid(errmsg,
                              "the run's model is a list of tensors, which "
                              "only the program that trains it can use; `loco "
                              "export` writes it as model.safetensors");
    }
    count = llama_tensor_count(&s->config.model);
    m->config = s->config.model;
    m->round = s->facts.round;
    m->bos = s->config.bos;
    m->eos = s->config.eos;
    memcpy(m->run_id, s->facts.run_id, sizeof m->run_id);
    memcpy(m->tokenizer, s->tokenizer, sizeof m->tokenizer);
    m->theta = malloc((size_t)llama_numel(&m->config) * sizeof *m->theta);
    if (m->theta == NULL) {
        return errmsg_fail(errmsg, LOCO_ENOMEM, "no memory for %lld parameters",
                           (long long)llama_numel(&m->config));
    }
    for (int i = 0; i < count; i++) {
        struct llama_view v;

        llama_tensor(&m->config, i, &v);
        model_source_read(s, i, 0, v.numel, m->theta + v.offset);
        model_source_forget(s, i);
    }
    return 0;
}

int model_open_state(struct model *m,
                     const char *const *state_dirs,
                     size_t n_dirs,
                     char errmsg[ERRMSG_SIZE])
{
    struct model_source s;
    int rv = model_source_state(&s, state_dirs, n_dirs, errmsg);

    memset(m, 0, sizeof *m);
    rv = rv == 0 ? load(m, &s, errmsg) : rv;
    model_source_close(&s);
    return rv;
}

int model_open_files(struct model *m,
                     const char *path,
                     char errmsg[ERRMSG_SIZE])
{
    struct model_source s;
    int rv = model_source_files(&s, path, errmsg);

    memset(m, 0, sizeof *m);
    rv = rv == 0 ? load(m, &s, errmsg) : rv;
    model_source_close(&s);
    return rv;
}

void model_close(struct model *m)
{
    free(m->theta);
    m->theta = NULL;
}
