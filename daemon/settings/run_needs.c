/* run_needs.c - see run_needs.h. */
#include "daemon/settings/run_needs.h"

#include "daemon/settings/method_manifest.h"
#include "train/replica/replica.h"

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

/* Wire bytes of all rounds of a cycle, in sync.period steps on average. */
static uint64_t
wire_bytes(const struct layout *l, const struct codec *codec, uint32_t period)
{
    uint64_t sum = 0;

    for (uint32_t i = 1; i <= l->cycle.n; i++) {
        sum += codec->bytes((size_t)layout_elements(l, i));
    }
    return (uint64_t)((double)sum * period / (double)l->cycle.steps);
}

struct run_needs run_needs(const struct manifest *m)
{
    struct run_needs needs = {0};
    struct llama_config model;
    struct llama_part whole;
    struct method method;
    struct layout l = {0};
    uint64_t data_bytes = 0, n;

    if (run_model_whole(m, &model, &whole, NULL) != 0 ||
        method_from_manifest(&method, m, SCOPE_SETTINGS, NULL) != 0 ||
        layout_open_part(&l, &method, &model, &whole,
                         codec_get(method.wire)->block, NULL) != 0) {
        layout_close(&l);
        return needs; /* not a run that this build knows */
    }
    needs.parameters = n = l.n;
    for (uint32_t i = 0; i < m->data.n_shards; i++) {
        data_bytes += m->data.shards[i].bytes;
    }
    needs.disk_bytes = m->limits.disk_bytes;
    if (needs.disk_bytes == 0) {
        needs.disk_bytes =
            data_bytes +
            3 * sizeof(float) * (replica_state_elements(&method, n) + 2 * n);
        /* A state that is fetched; reduced bytes of rounds that are over. */
        needs.disk_bytes +=
            3 * sizeof(float) * replica_state_elements(&method, n);
    }
    needs.memory_bytes = m->limits.memory_bytes;
    if (needs.memory_bytes == 0) {
        needs.memory_bytes = replica_vector_bytes(&method, n, layout_most(&l));
    }
    /* Every element about twice. */
    needs.round_bytes =
        2 * wire_bytes(&l, codec_get(method.wire), m->sync.period);
    layout_close(&l);
    return needs;
}
