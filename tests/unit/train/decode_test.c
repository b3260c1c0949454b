/* The decoder with its cache against whole windows, and its limits. */
#include "train/model/decode.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>

#include <cmocka.h>

#include "proto/base/err.h"
#include "proto/base/rng.h"
#include "train/model/llama.h"

#define SEQ 150

struct made {
    struct backend be;
    struct llama_config c;
    struct llama *m;
    struct decoder *d;
    float *theta;
    float want[37], got[37];
    uint32_t tokens[SEQ];
};

static void make(struct made *s, uint32_t kv_heads, bool tied, bool fast)
{
    uint64_t rng = 3;

    s->c = (struct llama_config){48, 3,   6,    kv_heads, 40,
                                 37, SEQ, tied, 500.0F,   1e-5F};
    if (fast) {
        assert_int_equal(backend_cpu(&s->be, 2), 0);
    } else {
        backend_cpu_ref(&s->be);
    }
    s->theta = malloc((size_t)llama_numel(&s->c) * sizeof(float));
    assert_non_null(s->theta);
    llama_init_params(&s->c, s->theta, 9);
    for (int64_t i = 0; i < llama_numel(&s->c); i++) {
        s->theta[i] *= 4; /* logits of some size */
    }
    for (int i = 0; i < SEQ; i++) {
        s->tokens[i] = (uint32_t)rng_below(&rng, 37);
    }
    assert_int_equal(
        llama_open(&s->m, &s->c, &s->be, 1, LLAMA_RECOMPUTE_LAYERS), 0);
    assert_int_equal(decoder_open(&s->d, &s->c, &s->be, s->theta), 0);
}

static void done(struct made *s)
{
    decoder_close(s->d);
    llama_close(s->m);
    backend_close(&s->be);
    free(s->theta);
}

/* The logits behind token n - 1, of which the last `more` were just read. */
static void agree(struct made *s, int64_t n, int64_t more)
{
    assert_int_equal(decoder_read(s->d, s->tokens + n - more, more, s->got), 0);
    assert_int_equal(llama_logits(s->m, s->theta, s->tokens, n, s->want), 0);
    for (int v = 0; v < 37; v++) {
        assert_true(fabsf(s->got[v] - s->want[v]) <=
                    1e-4F * (1 + fabsf(s->want[v])));
    }
}

static void logits_are_those_of_the_whole_window(void **state)
{
    (void)state;
    for (int kind = 0; kind < 4; kind++) {
        struct made s;

        make(&s, kind % 2 ? 2 : 6, kind / 2, kind % 2);
        agree(&s, 1, 1);
        agree(&s, 2, 1);
        agree(&s, 9, 7);
        agree(&s, 140, 131); /* more than go through the layers at once */
        agree(&s, SEQ, 10);
        decoder_reset(s.d);
        agree(&s, 65, 65);
        done(&s);
    }
}

static void what_does_not_fit_is_refused(void **state)
{
    struct made s;
    uint32_t unknown = 37;
    struct llama_config bad;
    struct decoder *d;

    (void)state;
    make(&s, 6, true, false);
    assert_int_equal(decoder_read(s.d, s.tokens, 0, s.got), LOCO_ERANGE);
    assert_int_equal(decoder_read(s.d, &unknown, 1, s.got), LOCO_ERANGE);
    agree(&s, SEQ, SEQ);
    assert_int_equal(decoder_read(s.d, s.tokens, 1, s.got), LOCO_ERANGE);
    bad = s.c;
    bad.heads = 5;
    assert_int_equal(decoder_open(&d, &bad, &s.be, s.theta), LOCO_EINVAL);
    done(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(logits_are_those_of_the_whole_window),
        cmocka_unit_test(what_does_not_fit_is_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
