/* snapshot_test.c - the leaves that a snapshot keeps have the roots that
 * members agree on, whichever vectors the method's members share. */
#include "daemon/snapshot.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "p2p/transfer.h"
#include "proto/hash.h"
#include "train/errmsg.h"
#include "train/sync/preset.h"

static uint8_t text[2000];
static struct shard shard;

static struct replica_options options(const char *preset)
{
    const struct preset *p;
    char errmsg[ERRMSG_SIZE];

    assert_int_equal(preset_find(preset, &p, errmsg), 0);
    return (struct replica_options){
        .model = {.dim = 64, /* 300,000 parameters: two pieces */
                  .layers = 6,
                  .heads = 2,
                  .kv_heads = 2,
                  .ffn = 192,
                  .vocab = 256,
                  .seq = 16,
                  .tied = true,
                  .rope_theta = 10000,
                  .norm_eps = 1e-5f},
        .optimizer = optimizer_defaults(),
        .schedule = {SCHEDULE_CONSTANT, 1e-3, 1e-3, 0, 0, 0},
        .method = p->method,
        .members = 2,
        .codec = codec_find("fp32"),
        .batch = 1,
        .micro_batch = 1,
        .seq = 16,
        .train = &shard,
        .n_train = 1,
        .threads = 1,
        .reference = true,
    };
}

static void check(const char *preset, uint64_t behind_min)
{
    struct replica_options opt = options(preset);
    struct hash32 params, rest, want_params, want_rest;
    struct transfer_object o = {.piece = HASH_PIECE_BYTES};
    struct snapshot *s;
    struct replica r;
    char errmsg[ERRMSG_SIZE];
    size_t n;

    assert_int_equal(replica_open(&r, &opt, errmsg), 0);
    s = snapshot_make(&r);
    assert_non_null(s);
    assert_true(s->n_state - s->n >= behind_min * s->n);
    assert_true(behind_min > 0 || s->n_state == s->n);
    snapshot_hash(&r, NULL, &want_params, &want_rest);
    snapshot_hash(&r, s, &params, &rest);
    assert_true(hash32_eq(&params, &want_params));
    assert_true(hash32_eq(&rest, &want_rest));
    assert_non_null(s->leaves);
    /* As many as those who fetch it ask for, cut at the same place. */
    o.total = s->n_state * sizeof(float);
    o.first = s->n * sizeof(float);
    n = (size_t)hash_tree_pieces(o.first);
    assert_true(n > 1);
    hash_tree_root(s->leaves + n, transfer_pieces(&o) - n, &rest);
    hash_tree_root(s->leaves, n, &params);
    assert_true(hash32_eq(&params, &want_params));
    assert_true(hash32_eq(&rest, &want_rest));
    snapshot_free(s);
    replica_close(&r);
}

static void leaves_have_the_roots_of_the_state(void **state)
{
    (void)state;
    check("diloco", 1);
    check("local-adam", 2);
    check("async-dn", 2);
}

static void parameters_alone_are_a_state(void **state)
{
    (void)state;
    check("favg-keep", 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(leaves_have_the_roots_of_the_state),
        cmocka_unit_test(parameters_alone_are_a_state),
    };

    memset(text, 'x', sizeof text);
    shard_from_text(&shard, text, sizeof text);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
