/* run_vector.c - see run_vector.h. */
#include "daemon/jobs/run_vector.h"

#include <string.h>

#include "daemon/settings/method_manifest.h"
#include "daemon/settings/run_model.h"
#include "p2p/exchange/exchange.h"
#include "proto/base/err.h"
#include "proto/base/errmsg.h"
#include "proto/base/rules.h"
#include "train/replica/layout.h"

_Static_assert(TERMS_TURNS_MAX >= CYCLE_TURNS_MAX, "a cycle fits the terms");
_Static_assert(TERMS_TURNS_MAX > TRAINERS_MERGES, "so do mergers, and one");

int run_vector_read(struct run_vector *v,
                    const struct manifest *f,
                    char *errmsg)
{
    const struct manifest_sync *s = &f->sync;
    int rv = method_from_manifest(&v->method, f, SCOPE_RUN, errmsg);

    if (rv != 0) {
        return rv;
    }
    v->codec = codec_get(v->method.wire);
    v->exchange = strcmp(s->topology, "butterfly") == 0 ? EXCHANGE_BUTTERFLY
                                                        : EXCHANGE_RING;
    if (v->exchange == EXCHANGE_RING && f->sites > 1) {
        v->exchange = EXCHANGE_SITES;
    }
    v->clip = (float)s->norm_clip;
    v->centred = strcmp(s->robust, "centred") == 0;
    v->audits_work = text_is(s->audit, "work");
    v->audits = audit_has_sums(s->audit);
    v->raw = lanes_raw(v->method.wire, v->audits);
    return 0;
}

uint32_t run_vector_segment(const struct run_vector *v)
{
    uint32_t block = exchange_block(v->exchange, v->codec->block);
    uint64_t blocks = RUN_SEGMENT_BYTES / v->codec->bytes(block);

    if (blocks > RUN_SEGMENT_ELEMENTS / block) {
        blocks = RUN_SEGMENT_ELEMENTS / block;
    }
    return (uint32_t)(blocks > 0 ? blocks : 1) * block;
}

void run_vector_cut(const struct run_vector *v, struct run_terms *t)
{
    t->exchange = v->exchange;
    t->audits = v->audits && v->exchange == EXCHANGE_BUTTERFLY;
    t->audits_work = t->audits && v->audits_work;
    t->watches = v->centred && v->exchange == EXCHANGE_BUTTERFLY;
    t->moments_anew = v->method.moments == METHOD_RESET;
    t->block = exchange_block(v->exchange, v->codec->block);
    t->segment_elements = run_vector_segment(v);
    t->chunk_segments = RING_CHUNK_SEGMENTS;
    t->segment_wire_bytes = (uint32_t)v->codec->bytes(t->segment_elements);
}

int run_vector_turns(const struct run_vector *v,
                     const struct llama_config *model,
                     const struct llama_part *part,
                     struct run_terms *t,
                     uint64_t *most,
                     char *errmsg)
{
    struct layout layout;
    int rv = layout_open_part(&layout, &v->method, model, part, v->codec->block,
                              errmsg);

    if (rv == 0) {
        *most = layout_most(&layout);
        t->n_turns = layout_turns(&layout, &t->n_once);
    }
    for (uint32_t i = 0; rv == 0 && i < t->n_turns; i++) {
        uint64_t round = i + t->n_turns; /* the first one may begin early */

        t->turns[i].elements = layout_elements(&layout, i + 1);
        t->turns[i].steps = (uint32_t)(cycle_step(&layout.cycle, round + 1) -
                                       cycle_step(&layout.cycle, round));
    }
    layout_close(&layout);
    return rv;
}

int run_vector_terms(struct run_vector *v,
                     const struct manifest *f,
                     struct run_terms *t,
                     char *errmsg)
{
    struct llama_config model;
    struct llama_part whole;
    const char *reason = NULL;
    uint64_t most;
    int rv = run_model_whole(f, &model, &whole, &reason);

    if (rv != 0) {
        return errmsg_fail(errmsg, rv, "%s", reason);
    }
    rv = run_vector_read(v, f, errmsg);
    if (rv != 0) {
        return rv;
    }
    run_vector_cut(v, t);
    t->n_params = (uint64_t)whole.numel;
    return run_vector_turns(v, &model, &whole, t, &most, errmsg);
}
