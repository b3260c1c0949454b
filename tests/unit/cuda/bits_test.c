/* What must have the bits of a processor: optimizer steps, wire bytes, outer
 * rules. Against kernels/cpu, train/sync/codec/codec.h and rule.h, on numbers
 * of all sizes. use: test_cuda_bits [PLUGIN] */
#include "tests/unit/cuda/bench.h"

#include "tests/unit/sanitized.h"
#include "train/sync/batch_size.h"
#include "train/sync/codec/codec.h"
#include "train/sync/delayed.h"
#include "train/sync/mix.h"
#include "train/sync/pair_mean.h"
#include "train/sync/rule.h"

static const struct plugin_table *table(void)
{
    return device_table(gpu.device);
}

/* Any magnitude: a random exponent, now and then 0. */
static float any_float(int exponents)
{
    int e = (int)rng_below(&rng, (uint64_t)exponents) - exponents / 2;

    return rng_below(&rng, 20) == 0 ? 0 : ldexpf(rng_float(&rng) * 2 - 1, e);
}

static float *any_floats(int64_t n, int exponents)
{
    float *x = host_floats(n);

    for (int64_t i = 0; i < n; i++) {
        x[i] = any_float(exponents);
    }
    return x;
}

static void
check_bits(const void *got, const void *want, size_t bytes, const char *what)
{
    if (memcmp(got, want, bytes) != 0) {
        fail_msg("%s has other bits than a processor's", what);
    }
}

/* ---- optimizers --------------------------------------------------------- */

static void
rule_of(const struct backend *be, const struct optimizer_op *op, int kind)
{
    (kind == 0 ? be->adamw : kind == 3 ? be->sgdm : be->adopt)(be, op);
}

/* The copy holds theta (n) rounded, and its zeros. */
static void
check_copy(const struct theta_copy *copy, const float *theta, int64_t n)
{
    uint16_t *got = (uint16_t *)host_floats(n + copy->zeros);

    gpu.get(&gpu, got, copy->memory, 2 * (size_t)(n + copy->zeros));
    for (int64_t i = 0; i < n + copy->zeros && gpu.act_bytes == 2; i++) {
        int64_t behind = i - copy->at; /* the end of the head */
        int64_t j = behind < 0 ? i : i - copy->zeros;
        uint32_t bits = 0;
        float r;

        if (behind < 0 || behind >= copy->zeros) {
            r = round_bf16(theta[j]);
            memcpy(&bits, &r, 4);
        }
        if (got[i] != bits >> 16) {
            fail_msg("element %lld of the copy is behind", (long long)i);
        }
    }
}

/* `shift` elements into the buffers, so that no vector is aligned; `zeros` in
 * the middle of the copy. */
static void try_optimizer(int kind, int64_t n, int64_t shift, int64_t zeros)
{
    int64_t all = n + shift;
    float *x[4];
    float *got = host_floats(all);
    struct optimizer_op op = {.n = n,
                              .grad_scale = 0.3f,
                              .beta1 = 0.9f,
                              .beta2 = 0.95f,
                              .one_minus_beta1 = 0.1f,
                              .one_minus_beta2 = 0.05f,
                              .decay = 1e-3f,
                              .step = 1e-2f,
                              .rsqrt_bias2 = 1.1f,
                              .eps = 1e-8f,
                              .limit = kind == 1 ? 0 : 1.3f};
    float *dev[4];
    struct theta_copy copy = {
        .memory = keep(gpu.take(&gpu, 2 * (size_t)(all + zeros))),
        .at = all / 2,
        .zeros = zeros};

    for (int i = 0; i < 4; i++) {
        x[i] = any_floats(all, 60);
        for (int64_t j = 0; j < all && i == 2; j++) {
            x[i][j] = fabsf(x[i][j]); /* v */
        }
        dev[i] = up(x[i], all);
    }
    gpu.use_theta(&gpu, dev[0], all, &copy);
    check_copy(&copy, x[0], all);
    op.theta = dev[0] + shift;
    op.u = dev[1] + shift;
    op.v = dev[2] + shift;
    op.grad = dev[3] + shift;
    rule_of(&gpu, &op, kind);
    op.theta = x[0] + shift;
    op.u = x[1] + shift;
    op.v = x[2] + shift;
    op.grad = x[3] + shift;
    rule_of(&ref, &op, kind);
    for (int i = 0; i < 4; i++) {
        down(got, dev[i], all);
        check_bits(got, x[i], (size_t)all * 4, "an optimizer's step");
    }
    check_copy(&copy, x[0], all);
    gpu.use_theta(&gpu, NULL, 0, NULL);
    done();
    forget();
}

static void optimizers(void)
{
    const int64_t sizes[] = {1, 3, 7, 1024, 5003};

    for (int kind = 0; kind < 4; kind++) {
        for (int i = 0; i < 5; i++) {
            try_optimizer(kind, sizes[i], 0, 0);
            try_optimizer(kind, sizes[i], 0, 5);
            try_optimizer(kind, sizes[i], 1, 64);
            try_optimizer(kind, sizes[i], 4, 64);
        }
    }
}

static void norm_is_the_sum_of_squares(void)
{
    int64_t n = 2 * SUMSQ_CHUNK + 13;
    float *x = random_floats(n);
    double want[3], got[3];
    struct sumsq op = {.x = x, .partial = want, .n = n};

    ref.sumsq(&ref, &op);
    op.x = up(x, n);
    op.partial = got;
    gpu.sumsq(&gpu, &op);
    done();
    for (int i = 0; i < 3; i++) {
        assert_true(fabs(got[i] - want[i]) <= 1e-12 * want[i]);
    }
    forget();
}

/* The norms of two halves and of their sum, and the sum itself. */
static void try_halves(int64_t n)
{
    float *first = random_floats(n), *second = random_floats(n);
    float *want = copy_of(second, n), *got = host_floats(n);
    const struct batch_sample sample =
        batch_sample_of_gradients(first, want, (size_t)n, 3, 5.0);
    struct same_bits norms = {0};
    /* The processor adds one after the other: n roundings at most. */
    double off = 1e-12 + (double)n * 0x1p-53;

    for (int run = 0; run < RUNS; run++) {
        double norms2[3] = {NAN, NAN, NAN};
        struct halves_op op = {.first = up(first, n),
                               .second = up(second, n),
                               .norms2 = norms2,
                               .n = n};
        struct batch_sample made;

        begin_run(run);
        assert_int_equal(table()->halves(device_gpu(gpu.device), &op), 0);
        down(got, op.second, n);
        done();
        check_bits(got, want, (size_t)n * sizeof *got, "the sum of halves");
        made = batch_sample_of_sums(3, norms2, 5.0);
        assert_true(fabs(made.norm2 - sample.norm2) <= off * sample.norm2);
        assert_true(fabs(made.sum_norm2 - sample.sum_norm2) <=
                    off * sample.sum_norm2);
        assert_true(fabs(made.sum_inner2 - sample.sum_inner2) <=
                    100 * off * sample.sum_inner2);
        same_bits(&norms, (const float *)(const void *)norms2, 2 * 3,
                  "the norms of halves");
    }
    forget();
}

static void halves(void)
{
    try_halves(1);
    try_halves(SUMSQ_CHUNK - 1);
    try_halves(2 * SUMSQ_CHUNK + 13);
    /* more partial sums than a block that adds them has threads */
    try_halves(TURNS(257, 3) * (int64_t)SUMSQ_CHUNK + 1);
}

/* ---- wire --------------------------------------------------------------- */

static const float scales[] = {1, 0.25f, 1.0f / 3};

static void try_encode(unsigned id, int64_t n, int exponents, bool minus)
{
    const struct codec *codec = codec_get_portable(id);
    size_t bytes = codec->bytes((size_t)n);
    float *phi = any_floats(n, exponents), *theta = any_floats(n, exponents);
    float *own = copy_of(phi, n);
    uint8_t *want = (uint8_t *)host_floats((int64_t)bytes / 4 + 1);
    uint8_t *got = (uint8_t *)host_floats((int64_t)bytes / 4 + 1);
    float *back = host_floats(n), *got_back = host_floats(n);
    struct wire_op op = {.wire = (enum codec_id)id, .n = n};
    int rv;

    if (minus) {
        (void)rule_displacement(own, phi, theta, (size_t)n);
    }
    for (int s = 0; s < 3; s++) {
        memset(want, 0x11, bytes);
        op.scale = scales[s];
        rv = codec->encode(want, own, (size_t)n, op.scale);
        op.bytes = bytes_up(want, bytes);
        gpu.clear(&gpu, op.bytes, bytes);
        op.phi = up(phi, n);
        op.theta = minus ? up(theta, n) : NULL;
        assert_int_equal(table()->encode(device_gpu(gpu.device), &op), rv);
        gpu.get(&gpu, got, op.bytes, bytes);
        if (rv == 0) {
            check_bits(got, want, bytes, codec->name);
            assert_int_equal(codec->decode(back, want, (size_t)n), 0);
            op.x = room(n);
            assert_int_equal(table()->decode(device_gpu(gpu.device), &op), 0);
            down(got_back, op.x, n);
            check_bits(got_back, back, (size_t)n * 4, codec->name);
        }
        done();
    }
    forget();
}

static void wires(void)
{
    const int64_t sizes[] = {1, 2, 1023, 1024, 1025, 4096, 4097, 9000, 12289};

    for (unsigned id = 0; id < CODEC_COUNT; id++) {
        for (int i = 0; i < 9; i++) {
            try_encode(id, sizes[i], 20, i % 2 == 0);
        }
        try_encode(id, 5000, 250, true); /* all of fp32's range */
        try_encode(id, 5000, 2, false);
        try_encode(id, 3000, 290, false); /* sub-normals, infinities */
    }
}

/* What no encoder writes, and what is not finite, is refused as the codec
 * does. */
static void try_refusal(unsigned id, size_t at, uint8_t byte, int64_t n)
{
    const struct codec *codec = codec_get_portable(id);
    size_t bytes = codec->bytes((size_t)n);
    float *x = random_floats(n);
    uint8_t *wire = (uint8_t *)host_floats((int64_t)bytes / 4 + 1);
    struct wire_op op = {.wire = (enum codec_id)id, .n = n};

    assert_int_equal(codec->encode(wire, x, (size_t)n, 1), 0);
    wire[at] = byte;
    op.bytes = bytes_up(wire, bytes);
    op.x = room(n);
    assert_int_equal(table()->decode(device_gpu(gpu.device), &op),
                     codec->decode(x, wire, (size_t)n));
    done();
    forget();
}

static void refusals(void)
{
    for (int byte = 0; byte < 256; byte += 5) {
        try_refusal(CODEC_FP16, 1, (uint8_t)byte, 77);  /* its exponent */
        try_refusal(CODEC_FP16, 31, (uint8_t)byte, 77); /* Inf, NaN */
        try_refusal(CODEC_BF16, 9, (uint8_t)byte, 77);
        try_refusal(CODEC_FP32, 7, (uint8_t)byte, 77);
        try_refusal(CODEC_INT8, 3, (uint8_t)byte, 77); /* its scale */
        try_refusal(CODEC_INT8, 12, (uint8_t)byte, 77);
        try_refusal(CODEC_E3M0, 3, (uint8_t)byte, 77);
        try_refusal(CODEC_E3M0, 9, (uint8_t)byte, 77);
        try_refusal(CODEC_E3M0, 42, (uint8_t)byte, 77); /* behind an odd end */
        try_refusal(CODEC_INT2, 1, (uint8_t)byte, 77);  /* its levels */
        try_refusal(CODEC_INT2, 3, (uint8_t)byte, 77);
        try_refusal(CODEC_INT2, 23, (uint8_t)byte, 77);  /* behind the end */
        try_refusal(CODEC_SPARSE, 1, (uint8_t)byte, 77); /* its levels */
        try_refusal(CODEC_SPARSE, 8, (uint8_t)byte, 77); /* rank, step */
        try_refusal(CODEC_SPARSE, 9, (uint8_t)byte, 77);
        try_refusal(CODEC_SPARSE, 15, (uint8_t)byte, 77); /* the last word */
        try_refusal(CODEC_SPARSE, 16, (uint8_t)byte, 77);
        try_refusal(CODEC_SPARSE, 23, (uint8_t)byte, 77); /* behind the end */
    }
    try_refusal(CODEC_INT8, 20, 0x80, 77);
}

/* ---- outer rules -------------------------------------------------------- */

static void try_outer(const struct rule *rule, bool pulled, int64_t n)
{
    float *phi = any_floats(n, 30), *m = any_floats(n, 30);
    float *g = any_floats(n, 30), *mean = any_floats(n, 30);
    struct outer_state want = {host_floats(n), host_floats(n)};
    struct outer_state in = {phi, m};
    float *got = host_floats(n);
    struct outer_op op = {.heavy_ball = rule->form == RULE_HEAVY_BALL,
                          .lr = rule->lr,
                          .mu = rule->mu,
                          .gamma = rule->gamma,
                          .n = n};
    int rv =
        rule_apply_pulled(rule, &want, &in, g, pulled ? mean : NULL, (size_t)n);

    op.phi = up(phi, n);
    op.m = up(m, n);
    op.g = up(g, n);
    op.mean_phi = pulled ? up(mean, n) : NULL;
    op.phi_out = room(n);
    op.m_out = room(n);
    assert_int_equal(table()->outer(device_gpu(gpu.device), &op), rv);
    down(got, op.phi_out, n);
    check_bits(got, want.phi, (size_t)n * 4, "an outer step's anchor");
    down(got, op.m_out, n);
    check_bits(got, want.m, (size_t)n * 4, "an outer step's momentum");
    done();
    forget();
}

static void try_shift(int64_t n)
{
    float *a = any_floats(n, 30), *b = any_floats(n, 30),
          *c = any_floats(n, 30);
    float *want = host_floats(n), *got = host_floats(n);
    struct shift_op op = {.n = n};

    op.phi_new = up(a, n);
    op.theta = up(b, n);
    op.phi_old = up(c, n);
    op.out = room(n);
    assert_int_equal(table()->shift(device_gpu(gpu.device), &op), 0);
    for (int64_t i = 0; i < n; i++) {
        want[i] = a[i] + (b[i] - c[i]);
    }
    down(got, op.out, n);
    check_bits(got, want, (size_t)n * 4, "a rebase");
    op.phi_new = NULL;
    assert_int_equal(table()->shift(device_gpu(gpu.device), &op), 0);
    assert_int_equal(rule_displacement(want, c, b, (size_t)n), 0);
    down(got, op.out, n);
    check_bits(got, want, (size_t)n * 4, "a displacement");
    done();
    forget();
}

static void outer_steps(void)
{
    const struct rule rules[] = {
        {RULE_NESTEROV, 1, 0, 0},         {RULE_NESTEROV, 0.7f, 0.9f, 0},
        {RULE_NESTEROV, 0.7f, 0, 0.1f},   {RULE_NESTEROV, 0.7f, 0.9f, 0.1f},
        {RULE_HEAVY_BALL, 0.7f, 0.5f, 0}, {RULE_HEAVY_BALL, 0.7f, 0.5f, 0.9f}};

    for (int i = 0; i < 6; i++) {
        try_outer(&rules[i], false, 1000);
        try_outer(&rules[i], true, 1001);
    }
    try_shift(777);
}

/* Without a place for the result only its verdict comes; nothing is written. */
static void a_trial_writes_nothing(void)
{
    const struct rule rule = {RULE_NESTEROV, 0.7f, 0.9f, 0};
    int64_t n = 300;
    float *phi = any_floats(n, 30), *m = any_floats(n, 30);
    float *g = any_floats(n, 30), *got = host_floats(n);
    struct outer_op op = {.lr = rule.lr, .mu = rule.mu, .n = n};

    op.phi = up(phi, n);
    op.m = up(m, n);
    op.m_out = (float *)(uintptr_t)op.m;
    op.g = up(g, n);
    assert_int_equal(table()->outer(device_gpu(gpu.device), &op), 0);
    down(got, op.m, n);
    check_bits(got, m, (size_t)n * 4, "a trial's momentum");
    g[n - 1] = INFINITY;
    op.g = up(g, n);
    assert_int_equal(table()->outer(device_gpu(gpu.device), &op),
                     LOCO_ENUMERIC);
    done();
    forget();
}

static void try_mix(int64_t n, float keep)
{
    float *theta = any_floats(n, 30), *phi = any_floats(n, 30);
    float *got = host_floats(n);
    struct mix_op op = {.keep = keep, .n = n};

    op.theta = up(theta, n);
    op.phi = up(phi, n);
    assert_int_equal(table()->mix(device_gpu(gpu.device), &op), 0);
    mix_toward(theta, phi, keep, (size_t)n);
    down(got, op.theta, n);
    check_bits(got, theta, (size_t)n * 4, "a mix");
    assert_int_equal(
        table()->copy(device_gpu(gpu.device), op.theta, op.phi, (size_t)n * 4),
        0);
    down(got, op.theta, n);
    check_bits(got, phi, (size_t)n * 4, "a copy");
    done();
    forget();
}

/* Subnormal numbers too: half of a difference, not a difference of halves. */
static void try_pair(int64_t n, int most)
{
    float *phi = any_floats(n, most), *low = any_floats(n, most);
    float *high = any_floats(n, most), *want = host_floats(n);
    float *got = host_floats(n);
    struct pair_op op = {.n = n};

    low[0] = 0x1p-149f;
    high[0] = 0x3p-149f;
    phi[0] = 0;
    op.low = up(low, n);
    op.high = up(high, n);
    op.out = room(n);
    assert_int_equal(table()->pair(device_gpu(gpu.device), &op), 0);
    pair_mean_step(want, low, high, (size_t)n);
    down(got, op.out, n);
    check_bits(got, want, (size_t)n * 4, "a mean displacement");
    op.phi = up(phi, n);
    op.out = (float *)(uintptr_t)op.high;
    assert_int_equal(table()->pair(device_gpu(gpu.device), &op), 0);
    pair_mean_anchor(want, phi, low, high, (size_t)n);
    down(got, op.out, n);
    check_bits(got, want, (size_t)n * 4, "a mean anchor");
    done();
    forget();
}

/* Seven arrivals are cut where cycles of three end, with one there before. */
static void try_delayed(float c, int64_t n)
{
    const struct delayed rule = {0.7f, 0.9f, c};
    float *g = any_floats(n, 30), *got = host_floats(n);
    struct delayed_state s = {
        any_floats(n, 30), any_floats(n, 30), any_floats(n, 30), 3, 3, 1};
    struct delayed_state counts = s;
    struct delayed_op op = {.g = up(g, n), .phi = up(s.phi, n), .n = n};

    op.phi_out = room(n);
    op.m = up(s.m, n);
    op.sum = up(s.sum, n);
    for (uint32_t q = 7; q > 0; op.phi = op.phi_out) {
        const struct delayed_part p = delayed_next(&rule, &counts, &q);

        op.k = p.k;
        op.size = p.size;
        op.lr = p.lr;
        op.mu = p.mu;
        op.early = p.early;
        op.late = p.late;
        op.flush = p.flush;
        assert_int_equal(table()->delayed(device_gpu(gpu.device), &op), 0);
    }
    assert_int_equal(delayed_apply(&rule, &s, &s, g, 7, (size_t)n), 0);
    assert_true(s.size == counts.size && s.count == counts.count);
    down(got, op.phi_out, n);
    check_bits(got, s.phi, (size_t)n * 4, "a delayed step's anchor");
    down(got, op.m, n);
    check_bits(got, s.m, (size_t)n * 4, "a delayed step's momentum");
    down(got, op.sum, n);
    check_bits(got, s.sum, (size_t)n * 4, "a delayed step's sum");
    g[n - 1] = INFINITY;
    op.g = up(g, n);
    assert_int_equal(table()->delayed(device_gpu(gpu.device), &op),
                     LOCO_ENUMERIC);
    done();
    forget();
}

/* Gradients of two GPUs: also from where an address is not one of four. */
static void try_add(int64_t n, int64_t from)
{
    float *to = any_floats(n, 30), *x = any_floats(n, 30);
    float *got = host_floats(n);
    float *there = up(to, n);
    struct add_op op = {.to = there + from, .from = up(x, n), .n = n - from};

    assert_int_equal(table()->add(device_gpu(gpu.device), &op), 0);
    for (int64_t i = from; i < n; i++) {
        to[i] = to[i] + x[i - from];
    }
    down(got, there, n);
    check_bits(got, to, (size_t)n * 4, "a sum");
    done();
    forget();
}

static void sums(void)
{
    try_add(1, 0);
    try_add(1027, 0);
    try_add(1024, 0);
    try_add(1030, 3);
}

static void mixes(void)
{
    try_mix(1, 0.5f);
    try_mix(1025, 0.3f);
    try_pair(1, 30);
    try_pair(1025, 30);
    try_delayed(0, 1);
    try_delayed(0.25f, 1025);
    a_trial_writes_nothing();
}

/* clang-format off */
CASE(optimizer_steps_have_the_bits_of_a_processor, optimizers)
CASE(sums_of_squares_are_those_of_a_processor, norm_is_the_sum_of_squares)
CASE(norms_of_halves_are_those_of_the_batch_test, halves)
CASE(wire_bytes_are_those_of_a_processor, wires)
CASE(bad_wire_bytes_are_refused_as_by_a_processor, refusals)
CASE(outer_steps_have_the_bits_of_a_processor, outer_steps)
CASE(mixes_and_copies_have_the_bits_of_a_processor, mixes)
CASE(sums_of_gradients_have_the_bits_of_a_processor, sums)
/* clang-format on */

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(optimizer_steps_have_the_bits_of_a_processor),
        cmocka_unit_test(sums_of_squares_are_those_of_a_processor),
        cmocka_unit_test(norms_of_halves_are_those_of_the_batch_test),
        cmocka_unit_test(wire_bytes_are_those_of_a_processor),
        cmocka_unit_test(bad_wire_bytes_are_refused_as_by_a_processor),
        cmocka_unit_test(outer_steps_have_the_bits_of_a_processor),
        cmocka_unit_test(mixes_and_copies_have_the_bits_of_a_processor),
        cmocka_unit_test(sums_of_gradients_have_the_bits_of_a_processor),
    };

    plugin_path = argc > 1 ? argv[1] : plugin_path;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
