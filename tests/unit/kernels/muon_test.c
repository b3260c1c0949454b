/* A step of Muon: the fast form of every instruction set against the one in
 * double, its bits for each number of threads, and what it does to singular
 * values. Vectors of another program: unit/train/optimizer. */
#include "kernels/backend.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "proto/base/err.h"
#include "proto/base/rng.h"

#define MATRICES_MAX 16
#define LANES_MAX    8

static const char *const isas[] = {"baseline", "neon", "avx2", "avx512"};

/* Matrices one behind the other, and one element that nobody may touch. */
struct bench {
    struct muon_matrix matrices[MATRICES_MAX];
    int64_t n, floats;
    float *theta, *u, *grad;
};

static void open_bench(struct bench *s, const int64_t (*shapes)[2], int64_t n)
{
    uint64_t rng = 5;

    memset(s, 0, sizeof *s);
    for (int64_t i = 0; i < n; i++) {
        s->matrices[s->n++] =
            (struct muon_matrix){s->floats, shapes[i][0], shapes[i][1]};
        s->floats += shapes[i][0] * shapes[i][1];
    }
    s->theta = malloc(((size_t)s->floats + 1) * sizeof(float));
    s->u = malloc(((size_t)s->floats + 1) * sizeof(float));
    s->grad = malloc(((size_t)s->floats + 1) * sizeof(float));
    assert_true(s->theta != NULL && s->u != NULL && s->grad != NULL);
    for (int64_t i = 0; i <= s->floats; i++) {
        s->theta[i] = rng_float(&rng) * 2 - 1;
        s->u[i] = rng_float(&rng) * 2 - 1;
        s->grad[i] = rng_float(&rng) * 2 - 1;
    }
}

static void close_bench(struct bench *s)
{
    free(s->theta);
    free(s->u);
    free(s->grad);
}

/* One step of all matrices. */
static void run(const struct backend *be, struct bench *s, int64_t lanes)
{
    struct muon_op op = {.theta = s->theta,
                         .u = s->u,
                         .grad = s->grad,
                         .matrices = s->matrices,
                         .n = s->n,
                         .lanes = lanes,
                         .grad_scale = 0.5f,
                         .beta = 0.95f,
                         .one_minus_beta = 0.05f,
                         .decay = 0.01f,
                         .lr = 0.02f};

    assert_true(lanes <= LANES_MAX);
    for (int64_t i = 0; i < s->n; i++) {
        size_t bytes = muon_bytes(s->matrices[i].rows, s->matrices[i].columns,
                                  be->scratch == NULL);

        op.lane_bytes = bytes > op.lane_bytes ? bytes : op.lane_bytes;
    }
    op.scratch = aligned_alloc(64, (size_t)lanes * op.lane_bytes);
    assert_non_null(op.scratch);
    memset(op.scratch, 0xff, (size_t)lanes * op.lane_bytes); /* NaN */
    be->muon(be, &op);
    free(op.scratch);
}

/* Every shape that blocks and tiles can end in. */
static const int64_t shapes[][2] = {{1, 1},    {1, 9},    {9, 1},    {3, 7},
                                    {7, 3},    {48, 48},  {49, 49},  {47, 130},
                                    {130, 47}, {96, 257}, {101, 100}};

#define SHAPES ((int64_t)(sizeof shapes / sizeof shapes[0]))

/* How far two are apart, in steps of 0.2 sqrt(most) times the rate. */
static double furthest(const struct bench *a, const struct bench *b)
{
    double worst = 0;

    for (int64_t i = 0; i < a->n; i++) {
        const struct muon_matrix *m = &a->matrices[i];
        int64_t most = m->rows > m->columns ? m->rows : m->columns;
        double rate = 0.02 * 0.2 * sqrt((double)most);

        for (int64_t j = m->offset; j < m->offset + m->rows * m->columns; j++) {
            double x = fabs((double)a->theta[j] - (double)b->theta[j]) / rate;

            if (!(x <= worst)) { /* NaN, too */
                worst = x;
            }
        }
    }
    return worst;
}

static void every_set_agrees_with_the_form_in_double(void **state)
{
    struct backend ref;
    struct bench want, have;
    int ran = 0;

    (void)state;
    backend_cpu_ref(&ref);
    open_bench(&want, shapes, SHAPES);
    run(&ref, &want, 1);
    for (int k = 0; k < 4; k++) {
        struct backend be;
        double worst;

        if (backend_cpu_isa(&be, 1, isas[k]) != 0) {
            continue;
        }
        open_bench(&have, shapes, SHAPES);
        run(&be, &have, 1);
        worst = furthest(&have, &want);
        print_message("%s: at most %.1e of a step away\n", isas[k], worst);
        assert_true(worst < 1e-4);
        assert_memory_equal(have.u, want.u,
                            (size_t)(want.floats + 1) * sizeof(float));
        assert_true(have.theta[want.floats] == want.theta[want.floats]);
        close_bench(&have);
        backend_close(&be);
        ran++;
    }
    assert_true(ran > 0);
    close_bench(&want);
}

/* One thread with one lane against more of both, with bf16 products where the
 * processor has them: Muon's stay fp32. */
static void the_bits_are_those_of_one_thread(void **state)
{
    (void)state;
    for (int k = 0; k < 4; k++) {
        struct backend be;
        struct bench one;

        if (backend_cpu_isa(&be, 1, isas[k]) != 0) {
            continue;
        }
        open_bench(&one, shapes, SHAPES);
        run(&be, &one, 1);
        backend_close(&be);
        for (int threads = 1; threads <= 5; threads++) {
            for (int64_t lanes = 1; lanes <= LANES_MAX; lanes++) {
                struct bench many;

                assert_int_equal(backend_cpu_isa(&be, threads, isas[k]), 0);
                (void)backend_set_dtype(&be, lanes % 2 == 0 ? BACKEND_BF16
                                                            : BACKEND_FP32);
                open_bench(&many, shapes, SHAPES);
                run(&be, &many, lanes);
                assert_memory_equal(one.theta, many.theta,
                                    (size_t)(one.floats + 1) * sizeof(float));
                assert_memory_equal(one.u, many.u,
                                    (size_t)(one.floats + 1) * sizeof(float));
                close_bench(&many);
                backend_close(&be);
            }
        }
        close_bench(&one);
    }
}

/* ---- singular values ---------------------------------------------------- */

#define SIDE 40

/* Eigenvalues of a (n, n) symmetric by Jacobi's rotations, on its diagonal. */
static void rotate(double a[SIDE][SIDE], int n, int p, int q)
{
    double theta = (a[q][q] - a[p][p]) / (2 * a[p][q]);
    double t = (theta < 0 ? -1 : 1) / (fabs(theta) + sqrt(theta * theta + 1));
    double c = 1 / sqrt(t * t + 1), s = t * c;

    for (int k = 0; k < n; k++) {
        double x = a[k][p], y = a[k][q];

        a[k][p] = c * x - s * y;
        a[k][q] = s * x + c * y;
    }
    for (int k = 0; k < n; k++) {
        double x = a[p][k], y = a[q][k];

        a[p][k] = c * x - s * y;
        a[q][k] = s * x + c * y;
    }
}

static void eigenvalues(double a[SIDE][SIDE], int n)
{
    for (int sweep = 0; sweep < 12; sweep++) {
        for (int p = 0; p < n; p++) {
            for (int q = p + 1; q < n; q++) {
                if (fabs(a[p][q]) > 1e-14) {
                    rotate(a, n, p, q);
                }
            }
        }
    }
}

/* Those of the step (rows, columns) that a gradient makes. */
static void
check_singular_values(const struct backend *be, int64_t rows, int64_t columns)
{
    const int64_t shape[1][2] = {{rows, columns}};
    int64_t n = rows < columns ? rows : columns;
    int64_t l = rows < columns ? columns : rows;
    int64_t row = rows < columns ? columns : 1;
    int64_t step = rows < columns ? 1 : columns;
    double a[SIDE][SIDE], least = INFINITY, most = 0, rate;
    struct bench s;

    assert_true(n <= SIDE);
    open_bench(&s, shape, 1);
    memset(s.theta, 0, (size_t)s.floats * sizeof(float));
    memset(s.u, 0, (size_t)s.floats * sizeof(float));
    run(be, &s, 1); /* theta 0, so no decay: theta = - rate x */
    rate = 0.02 * 0.2 * sqrt((double)l);
    for (int64_t i = 0; i < n; i++) {
        for (int64_t j = 0; j < n; j++) {
            a[i][j] = 0;
            for (int64_t k = 0; k < l; k++) {
                a[i][j] += (double)s.theta[i * row + k * step] *
                           (double)s.theta[j * row + k * step];
            }
            a[i][j] /= rate * rate;
        }
    }
    eigenvalues(a, (int)n);
    for (int64_t i = 0; i < n; i++) {
        least = fmin(least, sqrt(a[i][i]));
        most = fmax(most, sqrt(a[i][i]));
    }
    print_message("%s (%d, %d): singular values from %.3f to %.3f\n", be->isa,
                  (int)rows, (int)columns, least, most);
    assert_true(least > 0.6 && most < 1.25);
    close_bench(&s);
}

static void singular_values_come_near_one(void **state)
{
    static const int64_t sides[][2] = {{1, 5},      {8, 8},      {24, 24},
                                       {SIDE, 100}, {100, SIDE}, {17, 300}};
    struct backend be;

    (void)state;
    for (int k = 0; k < 2; k++) {
        backend_cpu_ref(&be);
        if (k == 1) {
            assert_int_equal(backend_cpu(&be, 1), 0);
        }
        for (size_t i = 0; i < sizeof sides / sizeof sides[0]; i++) {
            check_singular_values(&be, sides[i][0], sides[i][1]);
        }
        backend_close(&be);
    }
}

/* ---- what a step must not do --------------------------------------------- */

/* No momentum and no gradient: the decay alone. One of all zeros beside it
 * changes nothing of a matrix that has a gradient. */
static void no_gradient_makes_no_step_and_no_nan(void **state)
{
    struct backend be;
    struct bench s;

    (void)state;
    for (int k = 0; k < 2; k++) {
        backend_cpu_ref(&be);
        if (k == 1) {
            assert_int_equal(backend_cpu(&be, 2), 0);
        }
        open_bench(&s, shapes, SHAPES);
        for (int64_t i = 0; i < s.floats; i++) {
            s.u[i] = s.grad[i] = 0;
            s.theta[i] = 2;
        }
        run(&be, &s, 2);
        for (int64_t i = 0; i < s.floats; i++) {
            assert_true(s.theta[i] == 2 - 0.01f * 2);
            assert_true(s.u[i] == 0);
        }
        close_bench(&s);
        backend_close(&be);
    }
}

/* A row without gradient (a head that nobody reads) stays as it is, and
 * momentum too small to be normal is 0. */
static void what_is_zero_stays_zero(void **state)
{
    const int64_t shape[1][2] = {{6, 40}};
    struct backend be;
    struct bench s;

    (void)state;
    assert_int_equal(backend_cpu(&be, 1), 0);
    open_bench(&s, shape, 1);
    for (int64_t i = 80; i < 120; i++) {
        s.theta[i] = s.grad[i] = 0;
        s.u[i] = 1.2e-38f;
    }
    run(&be, &s, 1);
    for (int64_t i = 0; i < s.floats; i++) {
        bool zero = i >= 80 && i < 120;

        assert_true(isfinite(s.theta[i]));
        assert_true((s.theta[i] == 0) == zero);
        assert_true((s.u[i] == 0) == zero);
    }
    close_bench(&s);
    backend_close(&be);
}

/* The step does not depend on how long the gradient is, down to 1e-7. */
static void the_length_of_the_gradient_does_not_matter(void **state)
{
    const int64_t shape[1][2] = {{12, 30}};
    struct backend be;
    struct bench s[2];

    (void)state;
    assert_int_equal(backend_cpu(&be, 1), 0);
    for (int k = 0; k < 2; k++) {
        open_bench(&s[k], shape, 1);
        for (int64_t i = 0; i < s[k].floats; i++) {
            s[k].u[i] = 0;
            s[k].grad[i] *= k == 0 ? 1 : 1e10f;
        }
        run(&be, &s[k], 1);
    }
    for (int64_t i = 0; i < s[0].floats; i++) {
        assert_true(fabsf(s[0].theta[i] - s[1].theta[i]) < 1e-5f);
    }
    close_bench(&s[0]);
    close_bench(&s[1]);
    backend_close(&be);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_set_agrees_with_the_form_in_double),
        cmocka_unit_test(the_bits_are_those_of_one_thread),
        cmocka_unit_test(singular_values_come_near_one),
        cmocka_unit_test(no_gradient_makes_no_step_and_no_nan),
        cmocka_unit_test(what_is_zero_stays_zero),
        cmocka_unit_test(the_length_of_the_gradient_does_not_matter),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
