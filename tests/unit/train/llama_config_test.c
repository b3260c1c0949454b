/* Layout, names and initial weights of the flat parameter vector. */
#include "train/model/llama_config.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "proto/base/err.h"

/* of quickstart-1m with seed 42, the same with gcc and clang, -O0 and -O3 */
#define GOLDEN 0x60CDE38032FFF51DU
static const struct llama_config tiny = {8,  2,  4,     2,    6,
                                         10, 16, false, 1e4f, 1e-5f};

static void named_models_have_their_published_sizes(void **state)
{
    static const struct {
        const char *name;
        int64_t numel;
    } rows[] = {
        {"quickstart-1m", 1022336}, /* about 1.02 M */
        {"stories15m", 15191712},   /* llama2.c's 15M */
        {"llama-60m", 102898688},   /* 65.5 M of it embedding and head */
        {"llama-150m", 214983680},  /* 215.0 M: OpenDiLoCo */
        {"llama-1b", 1100048384},   /* TinyLlama's 1100.05 M */
    };
    struct llama_config c;
    const char *reason;

    (void)state;
    for (int i = 0; i < 5; i++) {
        assert_int_equal(llama_config_named(rows[i].name, &c), 0);
        assert_int_equal(llama_config_check(&c, &reason), 0);
        assert_null(reason);
        assert_int_equal(llama_numel(&c), rows[i].numel);
        assert_string_equal(llama_config_name(i), rows[i].name);
    }
    assert_null(llama_config_name(5));
    assert_null(llama_config_name(-1));
    assert_int_equal(llama_config_named("gpt-5", &c), LOCO_ENOENT);
}

static void tensors_follow_each_other_without_gaps(void **state)
{
    (void)state;
    for (int tied = 0; tied < 2; tied++) {
        struct llama_config c = tiny;
        int64_t at = 0;
        int n;

        c.tied = tied == 1;
        n = llama_tensor_count(&c);
        assert_int_equal(n, 1 + 2 * 9 + 1 + (tied ? 0 : 1));
        for (int i = 0; i < n; i++) {
            struct llama_view v;

            llama_tensor(&c, i, &v);
            assert_int_equal(v.offset, at);
            assert_int_equal(v.numel, v.shape[0] * v.shape[1]);
            assert_int_equal(v.decay, v.ndim == 2);
            at += v.numel;
        }
        assert_int_equal(at, llama_numel(&c));
    }
}

static void check_view(int i, const char *name, int64_t rows, int64_t columns)
{
    struct llama_view v;

    llama_tensor(&tiny, i, &v);
    assert_string_equal(v.name, name);
    assert_int_equal(v.shape[0], rows);
    assert_int_equal(v.shape[1], columns);
}

static void tensors_have_hugging_face_names_and_shapes(void **state)
{
    (void)state;
    check_view(0, "model.embed_tokens.weight", 10, 8);
    check_view(1, "model.layers.0.input_layernorm.weight", 8, 1);
    check_view(2, "model.layers.0.self_attn.q_proj.weight", 8, 8);
    check_view(3, "model.layers.0.self_attn.k_proj.weight", 4, 8);
    check_view(4, "model.layers.0.self_attn.v_proj.weight", 4, 8);
    check_view(5, "model.layers.0.self_attn.o_proj.weight", 8, 8);
    check_view(6, "model.layers.0.post_attention_layernorm.weight", 8, 1);
    check_view(7, "model.layers.0.mlp.gate_proj.weight", 6, 8);
    check_view(8, "model.layers.0.mlp.up_proj.weight", 6, 8);
    check_view(9, "model.layers.0.mlp.down_proj.weight", 8, 6);
    check_view(10, "model.layers.1.input_layernorm.weight", 8, 1);
    check_view(19, "model.norm.weight", 8, 1);
    check_view(20, "lm_head.weight", 10, 8);
}

static void offsets_by_id_agree_with_the_list(void **state)
{
    struct llama_config c = tiny;
    struct llama_view v;

    (void)state;
    llama_tensor(&c, 12, &v); /* k_proj of layer 1 */
    assert_int_equal(llama_offset(&c, LLAMA_K, 1), v.offset);
    llama_tensor(&c, 19, &v);
    assert_int_equal(llama_offset(&c, LLAMA_NORM, 0), v.offset);
    llama_tensor(&c, 20, &v);
    assert_int_equal(llama_offset(&c, LLAMA_HEAD, 0), v.offset);
    assert_int_equal(llama_offset(&c, LLAMA_EMBED, 1), 0);
    c.tied = true;
    assert_int_equal(llama_offset(&c, LLAMA_HEAD, 0), 0);
}

/* FNV-1a over the bits, little-endian. */
static uint64_t bits_hash(const float *x, int64_t n)
{
    uint64_t h = 0xCBF29CE484222325U;

    for (int64_t i = 0; i < n; i++) {
        uint32_t bits;

        memcpy(&bits, &x[i], sizeof bits);
        for (int k = 0; k < 4; k++) {
            h = (h ^ (bits >> 8 * k & 0xFF)) * 0x100000001B3U;
        }
    }
    return h;
}

static void initial_weights_have_golden_bits(void **state)
{
    struct llama_config c;
    float *theta;

    (void)state;
    assert_int_equal(llama_config_named("quickstart-1m", &c), 0);
    theta = malloc((size_t)llama_numel(&c) * sizeof *theta);
    assert_non_null(theta);
    llama_init_params(&c, theta, 42);
    assert_true(bits_hash(theta, llama_numel(&c)) == GOLDEN);
    llama_init_params(&c, theta, 43);
    assert_true(bits_hash(theta, llama_numel(&c)) != GOLDEN);
    free(theta);
}

static void initial_weights_are_normal_with_deviation_002(void **state)
{
    struct llama_config c;
    struct llama_view v;
    float *theta;
    double sum = 0;
    double squares = 0;
    int beyond = 0;

    (void)state;
    assert_int_equal(llama_config_named("quickstart-1m", &c), 0);
    theta = malloc((size_t)llama_numel(&c) * sizeof *theta);
    assert_non_null(theta);
    llama_init_params(&c, theta, 1);
    llama_tensor(&c, 7, &v); /* 344 x 128 */
    for (int64_t i = 0; i < v.numel; i++) {
        double x = (double)theta[v.offset + i];

        sum += x;
        squares += x * x;
        beyond += fabs(x) > 0.04;
    }
    assert_true(fabs(sum / (double)v.numel) < 4e-4);
    assert_true(fabs(sqrt(squares / (double)v.numel) - 0.02) < 2e-4);
    /* 4.55 % of a normal lie beyond two deviations */
    assert_true(fabs(beyond / (double)v.numel - 0.0455) < 0.005);
    llama_tensor(&c, 1, &v);
    for (int64_t i = 0; i < v.numel; i++) {
        assert_true(theta[v.offset + i] == 1);
    }
    free(theta);
}

static void refuse(struct llama_config c)
{
    const char *reason = NULL;

    assert_int_equal(llama_config_check(&c, &reason), LOCO_EINVAL);
    assert_non_null(reason);
}

#define REFUSE(field, value)                                                   \
    do {                                                                       \
        struct llama_config bad = tiny;                                        \
        bad.field = value;                                                     \
        refuse(bad);                                                           \
    } while (0)

static void configs_out_of_range_are_refused_with_a_reason(void **state)
{
    (void)state;
    REFUSE(dim, 0);
    REFUSE(dim, LLAMA_DIM_MAX + 8);
    REFUSE(dim, 12); /* heads of 3: odd */
    REFUSE(layers, 0);
    REFUSE(layers, UINT32_MAX);
    REFUSE(heads, 0);
    REFUSE(heads, 3);
    REFUSE(kv_heads, 0);
    REFUSE(kv_heads, 3);
    REFUSE(kv_heads, 8);
    REFUSE(ffn, 0);
    REFUSE(ffn, UINT32_MAX);
    REFUSE(vocab, 1);
    REFUSE(vocab, UINT32_MAX);
    REFUSE(seq, 0);
    REFUSE(seq, UINT32_MAX);
    REFUSE(rope_theta, 0);
    REFUSE(rope_theta, NAN);
    REFUSE(norm_eps, -1);
    REFUSE(norm_eps, NAN);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(named_models_have_their_published_sizes),
        cmocka_unit_test(tensors_follow_each_other_without_gaps),
        cmocka_unit_test(tensors_have_hugging_face_names_and_shapes),
        cmocka_unit_test(offsets_by_id_agree_with_the_list),
        cmocka_unit_test(initial_weights_have_golden_bits),
        cmocka_unit_test(initial_weights_are_normal_with_deviation_002),
        cmocka_unit_test(configs_out_of_range_are_refused_with_a_reason),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
