/* The fast kernels of every instruction set against the references, on odd
 * sizes, with outputs that start as NaN where the kernel overwrites them. The
 * references against loops in double where they are not those loops already;
 * the model's finite differences (unit/train/llama) check them as a whole. */
#include "kernels/backend.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "kernels/cpu/softmax.h"
#include "proto/base/err.h"
#include "proto/base/rng.h"

#define FLOATS_MAX 140000 /* an output and what is read beside it */

static const char *const isas[] = {"baseline", "neon", "avx2", "avx512"};

#define ISA_COUNT 4

static struct backend ref;

/* Two sets of buffers: `a` for the reference, `b` for the tested kernel. */
struct bench {
    struct backend be;
    float *in[4];
    float *a[4];
    float *b[4];
    uint64_t rng;
};

static float *floats(void)
{
    float *x = malloc(FLOATS_MAX * sizeof *x);

    assert_non_null(x);
    return x;
}

static void fill_random(float *x, int64_t n, uint64_t *rng)
{
    for (int64_t i = 0; i < n; i++) {
        x[i] = rng_float(rng) * 2 - 1;
    }
}

static void poison(struct bench *s)
{
    for (int i = 0; i < 4; i++) { /* all bits set: a NaN */
        memset(s->a[i], 0xff, FLOATS_MAX * sizeof(float));
        memset(s->b[i], 0xff, FLOATS_MAX * sizeof(float));
    }
}

/* The same start on both sides, for what a kernel adds to. */
static void start_same(struct bench *s, int i, int64_t n)
{
    fill_random(s->a[i], n, &s->rng);
    memcpy(s->b[i], s->a[i], (size_t)n * sizeof(float));
}

static void check(const struct bench *s, int i, int64_t n, double tolerance)
{
    assert_true(n < FLOATS_MAX);
    for (int64_t j = 0; j < n; j++) {
        double want = (double)s->a[i][j];
        double diff = fabs((double)s->b[i][j] - want);

        if (!(diff <= tolerance * fmax(1, fabs(want)))) {
            fail_msg("%s: output %d[%lld] is %.9g, reference %.9g", s->be.isa,
                     i, (long long)j, (double)s->b[i][j], want);
        }
    }
    /* nothing is written past the end */
    assert_true(isnan(s->b[i][n]));
}

static void open_bench(struct bench *s)
{
    s->rng = 7;
    for (int i = 0; i < 4; i++) {
        s->in[i] = floats();
        s->a[i] = floats();
        s->b[i] = floats();
        fill_random(s->in[i], FLOATS_MAX, &s->rng);
    }
    poison(s);
}

static void close_bench(struct bench *s)
{
    for (int i = 0; i < 4; i++) {
        free(s->in[i]);
        free(s->a[i]);
        free(s->b[i]);
    }
}

typedef void (*bench_body)(struct bench *s);

/* Run the body for every instruction set that this processor has, with one
 * and with three threads. */
static void for_each_backend(bench_body body)
{
    int ran = 0;

    backend_cpu_ref(&ref);
    for (int i = 0; i < ISA_COUNT * 2; i++) {
        struct bench s;
        int rv =
            backend_cpu_isa(&s.be, i < ISA_COUNT ? 1 : 3, isas[i % ISA_COUNT]);

        if (rv == LOCO_EDEVICE) {
            print_message("%s: skipped, not on this processor\n",
                          isas[i % ISA_COUNT]);
            continue;
        }
        assert_int_equal(rv, 0);
        open_bench(&s);
        body(&s);
        close_bench(&s);
        backend_close(&s.be);
        ran++;
    }
    assert_true(ran >= 2);
}

static void
check_matmul(const struct matmul *op, const float *before, double tolerance)
{
    /* op(a)[i, k], op(b)[k, j] */
    int64_t ai = op->ta ? 1 : op->lda, ak = op->ta ? op->lda : 1;
    int64_t bk = op->tb ? 1 : op->ldb, bj = op->tb ? op->ldb : 1;

    for (int64_t i = 0; i < op->m; i++) {
        for (int64_t j = 0; j < op->n; j++) {
            double sum = 0;
            double diff;

            for (int64_t k = 0; k < op->k; k++) {
                sum += (double)op->a[i * ai + k * ak] *
                       (double)op->b[k * bk + j * bj];
            }
            sum *= (double)op->alpha;
            if (op->beta != 0) {
                sum += (double)op->beta * (double)before[i * op->ldc + j];
            }
            diff = fabs((double)op->c[i * op->ldc + j] - sum);
            assert_true(diff <= tolerance * (double)op->k);
        }
    }
}

static void try_matmul(struct bench *s, const struct backend *be, int64_t *mnk)
{
    for (int kind = 0; kind < 8; kind++) {
        struct matmul op = {
            .m = mnk[0],
            .n = mnk[1],
            .k = mnk[2],
            .a = s->in[0],
            .b = s->in[1],
            .c = s->b[0],
            .ta = (kind & 1) != 0,
            .tb = (kind & 2) != 0,
            .alpha = 0.5f,
            .beta = (kind & 4) != 0 ? 1.0f : 0.0f,
        };
        int64_t n = op.m * (op.n + 3);

        op.lda = (op.ta ? op.m : op.k) + 1;
        op.ldb = (op.tb ? op.k : op.n) + 2;
        op.ldc = op.n + 3;
        poison(s);
        if (op.beta != 0) {
            start_same(s, 0, n);
        }
        be->matmul(be, &op);
        check_matmul(&op, s->a[0], 1e-6);
    }
}

static void try_matmuls(struct bench *s, const struct backend *be)
{
    int64_t sizes[][3] = {{1, 1, 1},    {1, 17, 5},    {5, 1, 70},
                          {33, 65, 7},  {64, 64, 64},  {67, 129, 131},
                          {3, 200, 66}, {5, 1000, 120}};

    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        try_matmul(s, be, sizes[i]);
    }
}

static void matmul_body(struct bench *s)
{
    try_matmuls(s, &s->be);
}

static void matmul_equals_a_double_sum_for_all_kinds_and_sizes(void **state)
{
    struct bench s;

    (void)state;
    for_each_backend(matmul_body);
    open_bench(&s);
    try_matmuls(&s, &ref);
    close_bench(&s);
}

static void rmsnorm_body(struct bench *s)
{
    const int64_t widths[] = {1, 3, 16, 37, 128, 257};

    for (int i = 0; i < 6; i++) {
        int64_t n = 9;
        int64_t c = widths[i];
        struct rmsnorm op = {
            .x = s->a[0],
            .add = i % 2 == 0 ? s->in[0] : NULL,
            .w = s->in[1],
            .y = s->a[1],
            .rrms = s->a[2],
            .n = n,
            .c = c,
            .eps = 1e-5f,
        };

        poison(s);
        start_same(s, 0, n * c);
        ref.rmsnorm_fwd(&ref, &op);
        op.x = s->b[0];
        op.y = s->b[1];
        op.rrms = s->b[2];
        s->be.rmsnorm_fwd(&s->be, &op);
        check(s, 0, n * c, 0);
        check(s, 1, n * c, 2e-6);
        check(s, 2, n, 2e-6);
    }
}

static void rmsnorm_back_body(struct bench *s)
{
    const int64_t widths[] = {1, 3, 16, 37, 128, 257};

    for (int i = 0; i < 6; i++) {
        int64_t n = 9;
        int64_t c = widths[i];
        struct rmsnorm op = {
            .x = s->in[0],
            .w = s->in[1],
            .rrms = s->in[2],
            .dy = s->in[3],
            .dx = s->a[0],
            .dw = s->a[1],
            .n = n,
            .c = c,
        };

        poison(s);
        start_same(s, 0, n * c);
        start_same(s, 1, c);
        ref.rmsnorm_bwd(&ref, &op);
        ref.rmsnorm_dw(&ref, &op);
        op.dx = s->b[0];
        op.dw = s->b[1];
        s->be.rmsnorm_bwd(&s->be, &op);
        s->be.rmsnorm_dw(&s->be, &op);
        check(s, 0, n * c, 5e-6);
        check(s, 1, c, 5e-6);
    }
}

static void fast_rmsnorm_equals_the_reference(void **state)
{
    (void)state;
    for_each_backend(rmsnorm_body);
    for_each_backend(rmsnorm_back_body);
}

static void swiglu_body(struct bench *s)
{
    const int64_t widths[] = {1, 7, 16, 43, 344};

    for (int64_t i = 0; i < 100; i++) {
        s->in[0][i * 7] *= 80; /* deep into both tails of the sigmoid */
    }
    for (int i = 0; i < 5; i++) {
        struct swiglu op = {
            .gu = s->in[0],
            .h = s->a[0],
            .dh = s->in[1],
            .dgu = s->a[1],
            .n = 11,
            .f = widths[i],
        };

        poison(s);
        ref.swiglu_fwd(&ref, &op);
        ref.swiglu_bwd(&ref, &op);
        op.h = s->b[0];
        op.dgu = s->b[1];
        s->be.swiglu_fwd(&s->be, &op);
        s->be.swiglu_bwd(&s->be, &op);
        check(s, 0, op.n * op.f, 2e-6);
        check(s, 1, op.n * 2 * op.f, 2e-6);
    }
}

static void fast_swiglu_equals_the_reference(void **state)
{
    (void)state;
    for_each_backend(swiglu_body);
}

static void xent_body(struct bench *s)
{
    const int64_t widths[] = {2, 17, 256, 257};
    uint32_t targets[13];

    for (int i = 0; i < 8; i++) {
        struct xent op = {
            .logits = s->a[0],
            .targets = targets,
            .loss = s->a[1],
            .n = 13,
            .v = widths[i / 2],
            .ld = widths[i / 2] + i % 3, /* of random numbers */
            .grad = i % 2 == 0,
        };

        poison(s);
        start_same(s, 0, op.n * op.ld);
        for (int64_t n = 0; n < op.n; n++) {
            targets[n] = (uint32_t)rng_below(&s->rng, (uint64_t)op.v);
            s->a[0][n * op.ld] = s->b[0][n * op.ld] = (float)n * 8;
        }
        targets[4] = XENT_IGNORE;
        ref.xent(&ref, &op);
        op.logits = s->b[0];
        op.loss = s->b[1];
        s->be.xent(&s->be, &op);
        check(s, 0, op.n * op.ld, 2e-6);
        check(s, 1, op.n, 2e-6);
        assert_true(s->b[1][4] == 0);
        for (int64_t v = op.v; v < op.ld && op.grad; v++) {
            assert_true(s->b[0][v] == 0 && s->b[0][12 * op.ld + v] == 0);
        }
    }
}

static void fast_xent_equals_the_reference(void **state)
{
    (void)state;
    for_each_backend(xent_body);
}

static void try_attention(
    struct bench *s, int64_t b, int64_t t, int64_t heads, int64_t kv, int64_t d)
{
    int64_t out = b * t * heads * d;
    int64_t qkv = b * t * (heads + 2 * kv) * d;
    float *scratch = malloc((size_t)backend_scratch_floats(&s->be, t) * 4);
    struct attention op = {
        .qkv = s->in[0],
        .out = s->a[0],
        .lse = s->a[1],
        .dout = s->in[1],
        .dqkv = s->a[2],
        .scratch = scratch,
        .b = b,
        .t = t,
        .heads = heads,
        .kv_heads = kv,
        .d = d,
    };

    assert_non_null(scratch);
    poison(s);
    for (int64_t i = 0; i < backend_scratch_floats(&s->be, t); i++) {
        scratch[i] = NAN;
    }
    ref.attention_fwd(&ref, &op);
    ref.attention_bwd(&ref, &op);
    op.out = s->b[0];
    op.lse = s->b[1];
    op.dqkv = s->b[2];
    s->be.attention_fwd(&s->be, &op);
    s->be.attention_bwd(&s->be, &op);
    check(s, 0, out, 5e-6);
    check(s, 1, b * heads * t, 5e-6);
    check(s, 2, qkv, 2e-5);
    free(scratch);
}

static void attention_body(struct bench *s)
{
    const int64_t shapes[][5] = {
        /* b, t, heads, kv_heads, d: the tile has 64 rows */
        {1, 1, 1, 1, 2},   {1, 63, 1, 1, 32},  {1, 64, 4, 4, 8},
        {1, 65, 6, 1, 10}, {1, 257, 1, 1, 64}, {2, 5, 2, 1, 6},
        {2, 64, 2, 2, 8},  {2, 65, 4, 2, 10},  {2, 150, 3, 1, 16},
        {3, 129, 4, 4, 18}};

    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++) {
        const int64_t *x = shapes[i];

        try_attention(s, x[0], x[1], x[2], x[3], x[4]);
    }
}

static void fast_attention_equals_the_reference(void **state)
{
    (void)state;
    for_each_backend(attention_body);
}

static void embed_and_rope_body(struct bench *s)
{
    uint32_t tokens[] = {3, 0, 3, 6, 2, 3};
    struct embed e = {.tokens = tokens,
                      .table = s->in[0],
                      .x = s->a[0],
                      .dx = s->in[1],
                      .dtable = s->a[1],
                      .n = 6,
                      .c = 37};
    struct rope r = {.x = s->a[2],
                     .cos = s->in[2],
                     .sin = s->in[3],
                     .n = 6,
                     .t = 3,
                     .ld = 41,
                     .heads = 3,
                     .d = 10,
                     .sign = -1};

    poison(s);
    start_same(s, 1, 7 * 37);
    start_same(s, 2, 6 * 41);
    ref.embed_fwd(&ref, &e);
    ref.embed_bwd(&ref, &e);
    ref.rope(&ref, &r);
    e.x = s->b[0];
    e.dtable = s->b[1];
    r.x = s->b[2];
    s->be.embed_fwd(&s->be, &e);
    s->be.embed_bwd(&s->be, &e);
    s->be.rope(&s->be, &r);
    check(s, 0, 6 * 37, 0);
    check(s, 1, 7 * 37, 0);
    check(s, 2, 6 * 41, 0);
}

static void embedding_and_rope_have_the_same_bits_in_every_set(void **state)
{
    (void)state;
    for_each_backend(embed_and_rope_body);
}

/* Half rotation: channel j pairs with j + D/2, and the way back undoes it. */
static void rope_rotates_halves_and_back(void **state)
{
    float x[4] = {1, 2, 3, 4};
    float cs[2] = {0.6f, 1};
    float sn[2] = {0.8f, 0};
    struct rope op = {.x = x,
                      .cos = cs,
                      .sin = sn,
                      .n = 1,
                      .t = 1,
                      .ld = 4,
                      .heads = 1,
                      .d = 4,
                      .sign = 1};

    (void)state;
    backend_cpu_ref(&ref);
    ref.rope(&ref, &op);
    assert_float_equal(x[0], 1 * 0.6f - 3 * 0.8f, 1e-6f);
    assert_float_equal(x[1], 2, 1e-6f);
    assert_float_equal(x[2], 3 * 0.6f + 1 * 0.8f, 1e-6f);
    assert_float_equal(x[3], 4, 1e-6f);
    op.sign = -1;
    ref.rope(&ref, &op);
    assert_float_equal(x[0], 1, 1e-6f);
    assert_float_equal(x[2], 3, 1e-6f);
}

static void
optimizer_kernel(const struct backend *be, const struct optimizer_op *op, int k)
{
    (k == 0 ? be->adamw : k == 1 ? be->adopt : be->sgdm)(be, op);
}

static void optimizer_body(struct bench *s)
{
    const int64_t sizes[] = {1, 7, 16, SUMSQ_CHUNK, SUMSQ_CHUNK * 2 + 13};

    for (int i = 0; i < 5; i++) {
        double pa[4] = {0};
        double pb[4] = {0};
        struct optimizer_op op = {
            .theta = s->a[0],
            .u = s->a[1],
            .v = s->a[2],
            .grad = s->in[0],
            .n = sizes[i],
            .grad_scale = 0.3f,
            .beta1 = 0.9f,
            .beta2 = 0.95f,
            .one_minus_beta1 = 0.1f,
            .one_minus_beta2 = 0.05f,
            .decay = 1e-3f,
            .step = 1e-2f,
            .rsqrt_bias2 = 1.1f,
            .eps = 1e-8f,
            .limit = i % 2 == 0 ? 1.3f : 0,
        };
        struct sumsq q = {.x = s->in[0], .partial = pa, .n = sizes[i]};

        poison(s);
        for (int k = 0; k < 3; k++) {
            start_same(s, k, op.n);
        }
        for (int64_t j = 0; j < op.n; j++) {
            s->a[2][j] = s->b[2][j] = fabsf(s->a[2][j]);
        }
        for (int k = 0; k < 3; k++) {
            optimizer_kernel(&ref, &op, k);
        }
        ref.sumsq(&ref, &q);
        op.theta = s->b[0];
        op.u = s->b[1];
        op.v = s->b[2];
        q.partial = pb;
        for (int k = 0; k < 3; k++) {
            optimizer_kernel(&s->be, &op, k);
        }
        s->be.sumsq(&s->be, &q);
        for (int k = 0; k < 3; k++) {
            check(s, k, op.n, 0);
        }
        assert_memory_equal(pa, pb, sizeof pa);
        assert_true(pb[0] > 0);
    }
}

static void optimizer_has_the_same_bits_in_every_set(void **state)
{
    (void)state;
    for_each_backend(optimizer_body);
}

/* Moments of a parameter without a gradient: 0, and a NaN stays. */
static void small_moments_body(struct bench *s)
{
    struct optimizer_op op = {.theta = s->b[0],
                              .u = s->b[1],
                              .v = s->b[2],
                              .grad = s->b[3],
                              .n = 37,
                              .grad_scale = 1,
                              .beta1 = 0.9f,
                              .beta2 = 0.95f,
                              .one_minus_beta1 = 0.1f,
                              .one_minus_beta2 = 0.05f,
                              .step = 1e-2f,
                              .rsqrt_bias2 = 1,
                              .eps = 1e-8f,
                              .limit = 1};

    for (int k = 0; k < 3; k++) {
        for (int64_t i = 0; i < op.n; i++) {
            op.theta[i] = 1;
            s->b[3][i] = i == 5 ? NAN : 0;
            op.u[i] = i == 6 ? 1e-37f : i % 2 == 0 ? -1.2e-38f : 1.5e-45f;
            op.v[i] = i == 6 ? 1e-37f : 1.2e-38f;
        }
        optimizer_kernel(&s->be, &op, k);
        for (int64_t i = 0; i < op.n; i++) {
            bool stays = i == 6;

            assert_true(i == 5 ? isnan(op.u[i]) : (op.u[i] != 0) == stays);
            assert_true(k == 2   ? op.v[i] != 0 /* sgdm has none */
                        : i == 5 ? isnan(op.v[i])
                                 : (op.v[i] != 0) == stays);
        }
    }
}

static void moments_do_not_stay_subnormal(void **state)
{
    (void)state;
    for_each_backend(small_moments_body);
}

static void what_softmax_cannot_see_is_zero(void **state)
{
    float x[VF_LANES + 5];
    int64_t n = VF_LANES + 5;
    float sum;

    (void)state;
    for (int64_t i = 0; i < n; i++) {
        x[i] = i % 2 == 0 ? -25.1f : -24.9f;
    }
    x[3] = 0;
    sum = row_exp(x, n, 2, 0);
    assert_true(sum == 1);
    for (int64_t i = 0; i < n; i++) {
        float want = i % 2 == 0 ? 0 : i == 3 ? 1 : expf(-49.8f);

        assert_true(fabsf(x[i] - want) <= 1e-6f * want);
    }
    x[2] = NAN;
    x[n - 1] = NAN;
    sum = row_exp(x, n, 2, 0);
    assert_true(isnan(sum) && isnan(x[2]) && isnan(x[n - 1]));
}

static void exp_is_within_two_ulp_and_keeps_nan(void **state)
{
    double worst = 0;
    vf nan = vf_exp(vf_set(NAN));

    (void)state;
    for (double x = -87; x < 88; x += 0.00037) {
        vf y = vf_exp(vf_set((float)x));
        double want = exp((double)(float)x);
        double ulp = fabs((double)y[0] - want) / (want * 0x1p-23);

        worst = fmax(worst, ulp);
        assert_true(ulp <= 2);
    }
    print_message("worst error of exp: %.2f ulp\n", worst);
    assert_true(isnan(nan[0]));
    assert_true(vf_exp(vf_set(-INFINITY))[0] < 1e-37f);
    assert_true(vf_exp(vf_set(INFINITY))[0] > 1e38f);
}

static void nan_body(struct bench *s)
{
    uint32_t target = 3;
    struct xent x = {.logits = s->b[0],
                     .targets = &target,
                     .loss = s->b[1],
                     .n = 1,
                     .v = 37,
                     .ld = 37,
                     .grad = true};

    start_same(s, 0, 37);
    s->b[0][33] = NAN;
    s->be.xent(&s->be, &x);
    assert_true(isnan(s->b[1][0]));
}

static void nan_in_a_logit_reaches_the_loss(void **state)
{
    (void)state;
    for_each_backend(nan_body);
}

static void bad_backend_requests_are_refused(void **state)
{
    struct backend b;

    (void)state;
    assert_int_equal(backend_cpu(&b, 0), LOCO_ERANGE);
    assert_int_equal(backend_cpu(&b, BACKEND_THREADS_MAX + 1), LOCO_ERANGE);
    assert_int_equal(backend_cpu_isa(&b, 1, "vax"), LOCO_EDEVICE);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(matmul_equals_a_double_sum_for_all_kinds_and_sizes),
        cmocka_unit_test(fast_rmsnorm_equals_the_reference),
        cmocka_unit_test(fast_swiglu_equals_the_reference),
        cmocka_unit_test(fast_xent_equals_the_reference),
        cmocka_unit_test(fast_attention_equals_the_reference),
        cmocka_unit_test(embedding_and_rope_have_the_same_bits_in_every_set),
        cmocka_unit_test(rope_rotates_halves_and_back),
        cmocka_unit_test(optimizer_has_the_same_bits_in_every_set),
        cmocka_unit_test(moments_do_not_stay_subnormal),
        cmocka_unit_test(what_softmax_cannot_see_is_zero),
        cmocka_unit_test(exp_is_within_two_ulp_and_keeps_nan),
        cmocka_unit_test(nan_in_a_logit_reaches_the_loss),
        cmocka_unit_test(bad_backend_requests_are_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
