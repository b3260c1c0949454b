/* Logits that Hugging Face transformers computed for a model made here, on 64
 * prompts: golden_logits.bin, (64, VOCAB) fp32.
 *
 * use: test_daemon_model_golden            compare
 *      test_daemon_model_golden --write DIR   export the model, with the
 *                        prompts; tests/interop/model_tests.py makes the file
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "daemon/model/model.h"
#include "kernels/backend.h"
#include "proto/base/rng.h"
#include "train/model/decode.h"
#include "train/model/llama.h"

#define PROMPTS 64
#define VOCAB   64
#define SEQ     32

static const struct llama_config config = {32,    2,   4,     2,       48,
                                           VOCAB, SEQ, false, 5000.0F, 1e-5F};

/* The bits are the same with every compiler: sums of integers, products with
 * small whole numbers. */
static float *theta_new(void)
{
    int64_t n = llama_numel(&config);
    float *theta = malloc((size_t)n * sizeof *theta);

    assert_non_null(theta);
    llama_init_params(&config, theta, 20260101);
    for (int64_t i = 0; i < n; i++) {
        theta[i] = theta[i] == 1.0F ? 0.75F + (float)(i % 5) / 8 : 6 * theta[i];
    }
    return theta;
}

/* Prompt p has 1 + p % SEQ tokens. */
static int64_t prompt(int p, uint32_t tokens[SEQ])
{
    uint64_t rng = rng_mix(&(uint64_t){(uint64_t)p}, 1);

    for (int i = 0; i < SEQ; i++) {
        tokens[i] = (uint32_t)rng_below(&rng, VOCAB);
    }
    return 1 + p % SEQ;
}

static int write_all(const char *dir)
{
    const struct model_export_options opt = {.dtype = ST_F32};
    float *theta = theta_new();
    struct model_source s;
    char path[512], errmsg[ERRMSG_SIZE];
    FILE *f;

    model_source_memory(&s, &config, theta);
    if (model_export(&s, dir, &opt, errmsg) != 0) {
        (void)fprintf(stderr, "%s\n", errmsg);
        return 1;
    }
    free(theta);
    (void)snprintf(path, sizeof path, "%s/prompts.txt", dir);
    f = fopen(path, "w");
    if (f == NULL) {
        return 1;
    }
    for (int p = 0; p < PROMPTS; p++) {
        uint32_t tokens[SEQ];
        int64_t n = prompt(p, tokens);

        for (int64_t i = 0; i < n; i++) {
            (void)fprintf(f, "%u%c", tokens[i], i + 1 == n ? '\n' : ' ');
        }
    }
    return fclose(f) == 0 ? 0 : 1;
}

static void close_to(const float *got, const float *want)
{
    for (int v = 0; v < VOCAB; v++) {
        assert_true(fabsf(got[v] - want[v]) <= 1e-4F);
    }
}

static void logits_are_those_of_transformers(void **state)
{
    static float want[PROMPTS][VOCAB];
    float *theta = theta_new();
    struct backend be;
    struct decoder *d;
    struct llama *m;
    FILE *f = fopen(LOCO_GOLDEN, "rb");
    float largest = 0;

    (void)state;
    assert_non_null(f);
    assert_int_equal(fread(want, sizeof want, 1, f), 1);
    (void)fclose(f);
    assert_int_equal(backend_cpu(&be, 1), 0);
    assert_int_equal(llama_open(&m, &config, &be, 1, LLAMA_RECOMPUTE_LAYERS),
                     0);
    assert_int_equal(decoder_open(&d, &config, &be, theta), 0);
    for (int p = 0; p < PROMPTS; p++) {
        uint32_t tokens[SEQ];
        float got[VOCAB];
        int64_t n = prompt(p, tokens);

        assert_int_equal(llama_logits(m, theta, tokens, n, got), 0);
        close_to(got, want[p]);
        decoder_reset(d);
        assert_int_equal(decoder_read(d, tokens, n, got), 0);
        close_to(got, want[p]);
        for (int v = 0; v < VOCAB; v++) {
            largest = fabsf(got[v]) > largest ? fabsf(got[v]) : largest;
        }
    }
    assert_true(largest > 1); /* the comparison means something */
    decoder_close(d);
    llama_close(m);
    backend_close(&be);
    free(theta);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(logits_are_those_of_transformers),
    };

    if (argc == 3 && strcmp(argv[1], "--write") == 0) {
        return write_all(argv[2]);
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
