/* run_needs.c - see run_needs.h. */
#include "daemon/run_needs.h"

#include "train/llama_config.h"
#include "train/sync/codec.h"

static uint64_t parameters(const struct manifest_model *m)
{
    struct llama_config c = {.dim = m->dim,
                             .layers = m->layers,
                             .heads = m->heads,
                             .kv_heads = m->kv_heads,
                             .ffn = m->ffn,
                             .vocab = m->vocab,
                             .seq = m->seq,
                             .tied = m->tied,
                             .rope_theta = (float)m->rope_theta,
                             .norm_eps = (float)m->norm_eps};

    return llama_config_check(&c, NULL) == 0 ? (uint64_t)llama_numel(&c) : 0;
}

struct run_needs run_needs(const struct manifest *m)
{
    struct run_needs needs = {.parameters = parameters(&m->model)};
    const struct codec *codec = codec_find(m->sync.wire);
    uint64_t data_bytes = 0;

    for (uint32_t i = 0; i < m->data.n_shards; i++) {
        data_bytes += m->data.shards[i].bytes;
    }
    needs.disk_bytes = m->limits.disk_bytes;
    if (needs.disk_bytes == 0) {
        needs.disk_bytes =
            data_bytes + 3 * 5 * sizeof(float) * needs.parameters;
    }
    needs.memory_bytes = m->limits.memory_bytes;
    if (needs.memory_bytes == 0) {
        needs.memory_bytes = 7 * sizeof(float) * needs.parameters;
    }
    /* Every parameter about twice. */
    needs.round_bytes =
        codec == NULL ? 0 : 2 * codec->bytes((size_t)needs.parameters);
    return needs;
}
