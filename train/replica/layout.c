/* layout.c - see layout.h. */
#include "train/replica/layout.h"

#include <stdlib.h>
#include <string.h>

#include "proto/base/err.h"
#include "proto/base/errmsg.h"

static uint32_t fragment_of(const struct llama_view *v,
                            const struct llama_part *part,
                            uint32_t f)
{
    const char *at = strstr(v->name, "layers.");

    if (at == NULL) {
        return f - 1;
    }
    at += strlen("layers.");
    return ((uint32_t)strtoul(at, NULL, 10) - part->first) % f;
}

static int cut_by_layers(const struct llama_config *model,
                         const struct llama_part *part,
                         uint32_t f,
                         struct engine_fragments *out)
{
    int n = llama_tensor_count(model);
    struct engine_span *spans = calloc((size_t)n, sizeof *spans);
    uint32_t *first = calloc((size_t)f + 1, sizeof *first);
    uint32_t count = 0;

    *out = (struct engine_fragments){spans, first};
    if (spans == NULL || first == NULL) {
        return LOCO_ENOMEM;
    }
    for (uint32_t k = 0; k < f; k++) {
        first[k] = count;
        for (int i = 0; i < n; i++) {
            struct llama_view v;

            if (!llama_part_tensor(model, part, i, &v) ||
                fragment_of(&v, part, f) != k) {
                continue;
            }
            spans[count++] =
                (struct engine_span){(uint64_t)v.offset, (uint64_t)v.numel};
        }
    }
    first[f] = count;
    return 0;
}

/* A list of tensors has no layers that we know: pieces of one size, one behind
 * the other, which Streaming DiLoCo calls sequential. */
static int cut_evenly(uint64_t n, uint32_t f, struct engine_fragments *out)
{
    struct engine_span *spans = calloc(f, sizeof *spans);
    uint32_t *first = calloc((size_t)f + 1, sizeof *first);
    uint64_t at = 0;

    *out = (struct engine_fragments){spans, first};
    if (spans == NULL || first == NULL) {
        return LOCO_ENOMEM;
    }
    for (uint32_t k = 0; k < f; k++) {
        uint64_t end = n / f * (k + 1) + (k < n % f ? k + 1 : n % f);

        spans[k] = (struct engine_span){at, end - at};
        first[k] = k;
        at = end;
    }
    first[f] = f;
    return 0;
}

int layout_fragments(const struct llama_config *model,
                     const struct llama_part *part,
                     uint32_t f,
                     struct engine_fragments *out)
{
    if (model->dim == 0) {
        return cut_evenly((uint64_t)part->numel, f, out);
    }
    return cut_by_layers(model, part, f, out);
}

void layout_fragments_free(struct engine_fragments *f)
{
    free((void *)(uintptr_t)f->spans);
    free((void *)(uintptr_t)f->first);
    *f = (struct engine_fragments){NULL, NULL};
}

/* A fragment without a tensor would be a round without bytes. */
static int check_fragments(const struct method *m,
                           const struct llama_config *model,
                           const struct llama_part *part,
                           char *errmsg)
{
    bool whole = part->layers == model->layers;
    uint32_t most = part->layers + (part->embeds || part->scores);

    if (model->dim == 0 && m->fragments > part->numel) {
        return errmsg_invalid(errmsg,
                              "sync.fragments is %u and the model has %lld "
                              "parameters",
                              m->fragments, (long long)part->numel);
    }
    if (model->dim == 0 || m->fragments <= most) {
        return 0;
    }
    return errmsg_invalid(errmsg,
                          "sync.fragments is %u and %s has %u layers: some "
                          "fragments would hold nothing; take at most %u",
                          m->fragments, whole ? "the model" : "a stage",
                          part->layers, most);
}

struct trainers
layout_trainers(const struct method *m, uint64_t n, uint32_t block)
{
    return (struct trainers){
        .count = m->trainers,
        .merge_every = m->merge_every,
        .most = BATCH_CAP * m->batch_most,
        .block = block,
        .n = n,
    };
}

int layout_open_part(struct layout *l,
                     const struct method *method,
                     const struct llama_config *model,
                     const struct llama_part *part,
                     uint32_t block,
                     char *errmsg)
{
    int rv;

    *l = (struct layout){.n = (uint64_t)part->numel, .block = block};
    l->trainers = layout_trainers(method, l->n, block);
    rv = cycle_init(&l->cycle, method, errmsg);
    rv = rv != 0 ? rv : check_fragments(method, model, part, errmsg);
    if (rv != 0) {
        return rv;
    }
    rv = layout_fragments(model, part, method->fragments, &l->fragments);
    return rv == 0 ? 0 : errmsg_fail(errmsg, rv, "out of memory");
}

int layout_open(struct layout *l,
                const struct method *method,
                const struct llama_config *model,
                uint32_t block,
                char *errmsg)
{
    struct llama_part whole;

    llama_part_whole(model, &whole);
    return layout_open_part(l, method, model, &whole, block, errmsg);
}

void layout_close(struct layout *l)
{
    layout_fragments_free(&l->fragments);
}

static uint64_t fragment_len(const struct layout *l, uint32_t fragment)
{
    uint64_t n = 0;

    for (uint32_t i = l->fragments.first[fragment];
         i < l->fragments.first[fragment + 1]; i++) {
        n += l->fragments.spans[i].len;
    }
    return n;
}

size_t layout_parts(const struct layout *l,
                    uint64_t round,
                    struct layout_part out[METHOD_STREAMS_MAX])
{
    uint64_t at = 0;
    size_t n = 0;

    for (size_t s = 0; s < l->cycle.n_streams; s++) {
        struct layout_part *p = &out[n];

        if (!cycle_due(&l->cycle, round, s, &p->turn)) {
            continue;
        }
        p->s = s;
        p->at = at;
        p->len = l->cycle.streams[s].fragments > 1
                     ? fragment_len(l, p->turn.fragment)
                     : l->n;
        p->room = (p->len + l->block - 1) / l->block * l->block;
        at += p->room;
        n++;
    }
    if (n > 0) { /* nothing follows the last one */
        out[n - 1].room = out[n - 1].len;
    }
    return n;
}

uint32_t layout_turns(const struct layout *l, uint32_t *once)
{
    *once = l->trainers.count > 0 ? (uint32_t)trainers_rounds(&l->trainers) : 0;
    return *once + l->cycle.n;
}

uint64_t layout_elements(const struct layout *l, uint64_t round)
{
    struct layout_part parts[METHOD_STREAMS_MAX];
    size_t n;

    if (l->trainers.count > 0) {
        return trainers_elements(&l->trainers, round);
    }
    n = layout_parts(l, round, parts);
    return n == 0 ? 0 : parts[n - 1].at + parts[n - 1].room;
}

uint64_t layout_most(const struct layout *l)
{
    uint64_t most = 0;

    if (l->trainers.count > 0) {
        return trainers_most(&l->trainers);
    }
    for (uint32_t i = 1; i <= l->cycle.n; i++) {
        uint64_t n = layout_elements(l, i);

        most = n > most ? n : most;
    }
    return most;
}

uint64_t layout_fragment_at(const struct layout *l, uint32_t fragment)
{
    uint64_t at = 0;

    for (uint32_t i = 0; i < fragment; i++) {
        at += fragment_len(l, i);
    }
    return at;
}
