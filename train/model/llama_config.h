/* llama_config.h - a model's shape, and where each tensor lies in the flat
 * parameter vector.
 *
 * Llama decoder (Touvron et al. 2023): RMSNorm, rotary positions, SwiGLU,
 * grouped-query attention, tied or own output head. All parameters are one
 * fp32 vector theta in the order of LLAMA_PARAMS; tensors are [out, in]
 * row-major under Hugging Face's names, so an export copies and a peer syncs
 * slices of one array.
 *
 * Letters, declared here once for train/: B batch, T time, C channels (dim), H
 * heads, KV key/value heads, D head size = C/H, F ffn, V vocabulary, L layers,
 * N = B*T rows.
 *
 * llama_config_check() bounds every field, since a config may come from a
 * stranger's manifest; all other functions expect a checked config.
 */
#ifndef LOCO_TRAIN_MODEL_LLAMA_CONFIG_H
#define LOCO_TRAIN_MODEL_LLAMA_CONFIG_H

#include <stdbool.h>
#include <stdint.h>

#define LLAMA_DIM_MAX    32768
#define LLAMA_LAYERS_MAX 512
#define LLAMA_FFN_MAX    131072
#define LLAMA_VOCAB_MAX  1048576
#define LLAMA_SEQ_MAX    131072

/* Longest tensor name with its NUL. */
#define LLAMA_NAME_MAX 64

struct llama_config {
    uint32_t dim;
    uint32_t layers;
    uint32_t heads;
    uint32_t kv_heads;
    uint32_t ffn;
    uint32_t vocab;
    uint32_t seq; /* longest window */
    bool tied;    /* the output head is the embedding */
    float rope_theta;
    float norm_eps;
};

/* clang-format off */
/* One row per kind of tensor, in the order of theta: the embedding, then the
 * layers one after the other, then the final norm and the head.
 * X(id, in each layer, rows, columns or 0 for a vector, name)
 * Neighbours that one matrix product makes together (q k v; gate up) must stay
 * neighbours. Matrices decay, vectors (the norms) do not. */
#define LLAMA_PARAMS(X)                                                        \
    X(EMBED,     false, c->vocab,  c->dim, "model.embed_tokens.weight")        \
    X(ATTN_NORM, true,  c->dim,    0,      "input_layernorm.weight")           \
    X(Q,         true,  c->dim,    c->dim, "self_attn.q_proj.weight")          \
    X(K,         true,  kv_dim,    c->dim, "self_attn.k_proj.weight")          \
    X(V,         true,  kv_dim,    c->dim, "self_attn.v_proj.weight")          \
    X(O,         true,  c->dim,    c->dim, "self_attn.o_proj.weight")          \
    X(FFN_NORM,  true,  c->dim,    0,      "post_attention_layernorm.weight")  \
    X(GATE,      true,  c->ffn,    c->dim, "mlp.gate_proj.weight")             \
    X(UP,        true,  c->ffn,    c->dim, "mlp.up_proj.weight")               \
    X(DOWN,      true,  c->dim,    c->ffn, "mlp.down_proj.weight")             \
    X(NORM,      false, c->dim,    0,      "model.norm.weight")                \
    X(HEAD,      false, head_rows, c->dim, "lm_head.weight")
/* clang-format on */

enum llama_param {
#define X(id, layered, rows, columns, name) LLAMA_##id,
    LLAMA_PARAMS(X)
#undef X
        LLAMA_PARAM_COUNT
};

/* One tensor of theta. */
struct llama_view {
    char name[LLAMA_NAME_MAX]; /* Hugging Face's */
    int64_t offset;            /* of the first element in theta */
    int64_t numel;
    int64_t shape[2]; /* [1] is 1 for a vector */
    int ndim;
    bool decay;   /* weight decay applies */
    bool layered; /* of a layer: neither embedding, final norm nor head */
};

/* Fill *c from a model's name; LOCO_ENOENT for an unknown one. */
int llama_config_named(const char *name, struct llama_config *c);

/* The i-th known name, NULL past the end. */
const char *llama_config_name(int i);

/* 0, or LOCO_EINVAL with what is wrong in *reason (static text; may be
 * NULL). */
int llama_config_check(const struct llama_config *c, const char **reason);

/* Elements of theta. */
int64_t llama_numel(const struct llama_config *c);

int llama_tensor_count(const struct llama_config *c);

/* Tensor i of theta, 0 <= i < count, in order of offsets. */
void llama_tensor(const struct llama_config *c, int i, struct llama_view *v);

/* Offset of a tensor in theta; layer is ignored for tensors outside layers.
 * LLAMA_HEAD of a tied model is the embedding's. */
int64_t
llama_offset(const struct llama_config *c, enum llama_param id, int64_t layer);

/* theta (numel) = N(0, 0.02) matrices, 1 for norms; tensor i's values depend
 * only on (seed, i, shape). The same bits with every compiler: each value is
 * 12 uniform 16-bit integers added, one conversion, one product. */
void llama_init_params(const struct llama_config *c,
                       float *theta,
                       uint64_t seed);

/* The same of tensor i alone: x (its numel). */
void llama_init_tensor(const struct llama_config *c,
                       int i,
                       float *x,
                       uint64_t seed);

#endif
