/* example.h - one small valid manifest that several tests start from. */
#ifndef LOCO_TESTS_UNIT_PROTO_EXAMPLE_H
#define LOCO_TESTS_UNIT_PROTO_EXAMPLE_H

#include <stdio.h>
#include <string.h>

#include "proto/manifest.h"

/* The quickstart model on two training shards and one held-out shard. */
static inline void example_manifest(struct manifest *m)
{
    static const char *const names[3] = {"a.bin", "b.bin", "val.bin"};

    manifest_default(m);
    (void)snprintf(m->name, sizeof m->name, "%s", "example");
    m->seed = 42;
    m->model.dim = 128;
    m->model.layers = 5;
    m->model.heads = 4;
    m->model.kv_heads = 4;
    m->model.ffn = 344;
    m->model.vocab = 256;
    m->model.seq = 256;
    m->model.tied = true;
    m->data.n_shards = 3;
    for (uint32_t i = 0; i < 3; i++) {
        struct manifest_shard *s = &m->data.shards[i];

        (void)snprintf(s->name, sizeof s->name, "%s", names[i]);
        memset(s->blake2b.b, (int)i + 1, ID_BYTES);
        s->bytes = 1000000 + i;
        s->tokens = 1000000;
        s->val = i == 2;
    }
    m->data.shards[0].n_urls = 1;
    (void)snprintf(m->data.shards[0].urls[0], sizeof m->data.shards[0].urls[0],
                   "%s", "https://example.org/a.bin");
    (void)snprintf(m->data.licence, sizeof m->data.licence, "%s", "CC0");
    m->stop.rounds = 100;
}

/* The same text for a list of tensors of 100 elements, whose files are the last
 * two shards. */
static inline void example_tensors(struct manifest *m)
{
    static const char *const names[2] = {"layout.json", "init.safetensors"};

    example_manifest(m);
    memset(&m->model, 0, sizeof m->model);
    m->model.params = 100;
    for (uint32_t i = 0; i < 2; i++) {
        struct manifest_shard *s = &m->data.shards[m->data.n_shards++];

        (void)snprintf(s->name, sizeof s->name, "%s", names[i]);
        memset(s->blake2b.b, (int)i + 4, ID_BYTES);
        s->bytes = i == 0 ? 90 : 500;
    }
    (void)snprintf(m->model.layout, sizeof m->model.layout, "%s", names[0]);
    (void)snprintf(m->model.init, sizeof m->model.init, "%s", names[1]);
}

#endif
