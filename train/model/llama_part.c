/* llama_part.c - see llama_part.h. */
#include "train/model/llama_part.h"

#include <stddef.h>

#include "proto/base/err.h"

/* Elements before the first tensor of layer i; after the last layer: of the
 * final norm. */
static int64_t layer_begin(const struct llama_config *c, uint32_t i)
{
    return i == c->layers ? llama_offset(c, LLAMA_NORM, 0)
                          : llama_offset(c, LLAMA_ATTN_NORM, i);
}

/* Layers [first, end) with what belongs to its ends. */
static void
fill(const struct llama_config *c, struct llama_part *p, uint32_t end)
{
    int64_t to = end == c->layers ? llama_numel(c) : layer_begin(c, end);

    p->layers = end - p->first;
    p->embeds = p->first == 0;
    p->scores = end == c->layers;
    p->offset = p->embeds ? 0 : layer_begin(c, p->first);
    p->numel = to - p->offset;
}

void llama_part_whole(const struct llama_config *c, struct llama_part *p)
{
    p->first = 0;
    fill(c, p, c->layers);
}

bool llama_part_tensor(const struct llama_config *c,
                       const struct llama_part *p,
                       int i,
                       struct llama_view *v)
{
    llama_tensor(c, i, v);
    v->offset -= p->offset;
    return v->offset >= 0 && v->offset < p->numel;
}

void llama_part_init(const struct llama_config *c,
                     const struct llama_part *p,
                     float *theta,
                     uint64_t seed)
{
    int n = llama_tensor_count(c);

    for (int i = 0; i < n; i++) {
        struct llama_view v;

        if (llama_part_tensor(c, p, i, &v)) {
            llama_init_tensor(c, i, theta + v.offset, seed);
        }
    }
}

/* In multiply-adds a token: whole numbers, so that every machine cuts alike.
 * The norms cost nothing beside the matrices. */
static uint64_t layer_cost(const struct llama_config *c, uint64_t t)
{
    uint64_t kv_dim = (uint64_t)c->dim / c->heads * c->kv_heads;

    return (uint64_t)c->dim * (2 * (uint64_t)c->dim + 2 * kv_dim) +
           3 * (uint64_t)c->dim * c->ffn + (uint64_t)c->dim * t;
}

static uint64_t head_cost(const struct llama_config *c)
{
    return (uint64_t)c->vocab * c->dim;
}

double llama_part_cost(const struct llama_config *c,
                       const struct llama_part *p,
                       int64_t t)
{
    uint64_t cost = p->layers * layer_cost(c, (uint64_t)t);

    return (double)(cost + (p->scores ? head_cost(c) : 0));
}

/* How many layers the last of S > 1 stages takes: as many as keep the largest
 * cost of all smallest; of equal ones the most. */
static uint32_t layers_of_last(const struct llama_config *c, uint32_t stages)
{
    uint64_t layer = layer_cost(c, c->seq);
    uint64_t least = UINT64_MAX;
    uint32_t best = 1;

    for (uint32_t n = 1; n <= c->layers - (stages - 1); n++) {
        uint32_t others = (c->layers - n + stages - 2) / (stages - 1);
        uint64_t last = n * layer + head_cost(c);
        uint64_t most = others * layer > last ? others * layer : last;

        if (most <= least) {
            least = most;
            best = n;
        }
    }
    return best;
}

/* The layers before the last stage's are shared out evenly; the first stages
 * take what is left over last, as the very first also holds the embedding. */
static uint32_t
begin_of(const struct llama_config *c, uint32_t stages, uint32_t s)
{
    uint32_t shared, each, more, late;

    if (s == 0 || s == stages) {
        return s == 0 ? 0 : c->layers;
    }
    shared = c->layers - layers_of_last(c, stages);
    each = shared / (stages - 1);
    more = shared % (stages - 1); /* of the later ones have one more */
    late = s > stages - 1 - more ? s - (stages - 1 - more) : 0;
    return s * each + late;
}

static const char *
fault_of(const struct llama_config *c, uint32_t stages, uint32_t s)
{
    if (stages == 0 || stages > LLAMA_STAGES_MAX) {
        return "stages must be between 1 and 64";
    }
    if (stages > c->layers) {
        return "more stages than layers: each stage needs one at least";
    }
    if (stages > 1 && c->tied) {
        return "a tied head needs the embedding on the first and on the last "
               "stage: set model.tied to false";
    }
    return s >= stages ? "no such stage" : NULL;
}

int llama_part_of_stage(const struct llama_config *c,
                        uint32_t stages,
                        uint32_t s,
                        struct llama_part *p,
                        const char **reason)
{
    const char *fault = fault_of(c, stages, s);

    if (reason != NULL) {
        *reason = fault;
    }
    if (fault != NULL) {
        return LOCO_EINVAL;
    }
    p->first = begin_of(c, stages, s);
    fill(c, p, begin_of(c, stages, s + 1));
    return 0;
}
