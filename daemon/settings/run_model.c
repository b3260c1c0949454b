/* run_model.c - see run_model.h. */
#include "daemon/settings/run_model.h"

struct llama_config run_model(const struct manifest_model *m)
{
    return (struct llama_config){.dim = m->dim,
                                 .layers = m->layers,
                                 .heads = m->heads,
                                 .kv_heads = m->kv_heads,
                                 .ffn = m->ffn,
                                 .vocab = m->vocab,
                                 .seq = m->seq,
                                 .tied = m->tied,
                                 .rope_theta = (float)m->rope_theta,
                                 .norm_eps = (float)m->norm_eps};
}

int run_model_whole(const struct manifest *m,
                    struct llama_config *model,
                    struct llama_part *whole,
                    const char **reason)
{
    int rv;

    *model = run_model(&m->model);
    if (manifest_has_tensors(m)) {
        *whole = (struct llama_part){
            .embeds = true, .scores = true, .numel = (int64_t)m->model.params};
        return 0;
    }
    rv = llama_config_check(model, reason);
    if (rv == 0) {
        llama_part_whole(model, whole);
    }
    return rv;
}
