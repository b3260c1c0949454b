/* Every kernel of the plug-in against the references of kernels/cpu: fp32 and
 * bf16, odd sizes, outputs that start as NaN, the same bits in every order of
 * threads. use: test_cuda_kernels [PLUGIN] */
#include "tests/unit/cuda/bench.h"

/* ---- embedding ---------------------------------------------------------- */

static void try_embed(int64_t n, int64_t c, uint32_t vocab)
{
    float *table = random_floats(vocab * c);
    float *dx = random_floats(n * c);
    float *start = random_floats(vocab * c);
    float *want = host_floats(n * c), *got = host_floats(n * c);
    float *want_d = copy_of(start, vocab * c),
          *got_d = copy_of(start, vocab * c);
    uint32_t *tokens = (uint32_t *)host_floats(n);
    struct same_bits fwd = {0}, bwd = {0};
    struct embed op = {.tokens = tokens, .n = n, .c = c};

    for (int64_t i = 0; i < n; i++) {
        tokens[i] = (uint32_t)rng_below(&rng, i % 3 == 0 ? vocab : 2);
    }
    op.table = table;
    op.x = want;
    op.dx = dx;
    op.dtable = want_d;
    ref.embed_fwd(&ref, &op);
    ref.embed_bwd(&ref, &op);
    for (int run = 0; run < RUNS; run++) {
        begin_run(run);
        op.table = up(table, vocab * c);
        op.x = room(n * c);
        op.dx = act_up(dx, n * c);
        op.dtable = up(start, vocab * c);
        gpu.embed_fwd(&gpu, &op);
        gpu.embed_bwd(&gpu, &op);
        act_down(got, op.x, n * c);
        down(got_d, op.dtable, vocab * c);
        done();
        check_close(got, want, n * c, tolerance(), "embed");
        check_close(got_d, want_d, vocab * c, 1e-5, "dtable");
        same_bits(&fwd, got, n * c, "embed");
        same_bits(&bwd, got_d, vocab * c, "dtable");
    }
    forget();
}

static void embeddings(void)
{
    try_embed(1, 1, 2);
    try_embed(6, 37, 7);
    try_embed(300, 64, 5); /* runs of more than a segment */
    try_embed(130, 128, 1000);
    try_embed(500, 24, 3);
}

/* ---- rmsnorm ------------------------------------------------------------ */

static void try_norm(int64_t n, int64_t c, bool add)
{
    float *x = random_floats(n * c), *a = random_floats(n * c);
    float *w = random_floats(c), *dy = random_floats(n * c);
    float *dx = random_floats(n * c), *dw = random_floats(c);
    float *want_x = copy_of(x, n * c), *want_y = copy_of(x, n * c);
    float *want_r = copy_of(x, n), *got = copy_of(x, n * c);
    float *want_dx = copy_of(dx, n * c), *want_dw = copy_of(dw, c);
    struct same_bits bits[5] = {0};
    struct rmsnorm op = {.x = want_x,
                         .w = w,
                         .y = want_y,
                         .rrms = want_r,
                         .n = n,
                         .c = c,
                         .eps = 1e-5f};

    /* The stream is what a store makes of x + add; its norm is of that. */
    for (int64_t i = 0; i < n * c && add; i++) {
        want_x[i] += a[i];
        want_x[i] = gpu.act_bytes == 2 ? round_bf16(want_x[i]) : want_x[i];
    }
    ref.rmsnorm_fwd(&ref, &op);
    op.dy = dy;
    op.dx = want_dx;
    op.dw = want_dw;
    ref.rmsnorm_bwd(&ref, &op);
    ref.rmsnorm_dw(&ref, &op);
    for (int run = 0; run < RUNS; run++) {
        begin_run(run);
        op.x = act_up(x, n * c);
        op.add = add ? act_up(a, n * c) : NULL;
        op.w = up(w, c);
        op.y = room(n * c);
        op.rrms = room(n);
        op.dy = act_up(dy, n * c);
        op.dx = act_up(dx, n * c);
        op.dw = up(dw, c);
        gpu.rmsnorm_fwd(&gpu, &op);
        act_down(got, op.x, n * c);
        check_close(got, want_x, n * c, 0, "stream");
        same_bits(&bits[0], got, n * c, "stream");
        act_down(got, op.y, n * c);
        check_close(got, want_y, n * c, tolerance(), "norm");
        same_bits(&bits[1], got, n * c, "norm");
        down(got, op.rrms, n);
        check_close(got, want_r, n, 1e-6, "rrms");
        same_bits(&bits[2], got, n, "rrms");
        if (run == 2) { /* the two alone are the two together */
            gpu.rmsnorm_bwd(&gpu, &op);
            gpu.rmsnorm_dw(&gpu, &op);
        } else {
            gpu.rmsnorm_back(&gpu, &op);
        }
        act_down(got, op.dx, n * c);
        check_close(got, want_dx, n * c, tolerance(), "dx");
        same_bits(&bits[3], got, n * c, "dx");
        down(got, op.dw, c);
        check_close(got, want_dw, c, 1e-5, "dw");
        if (run < 2) { /* alone, more warps fit: another order of sums */
            same_bits(&bits[4], got, c, "dw");
        }
        done();
    }
    forget();
}

static void norms(void)
{
    const int64_t widths[] = {1, 3, 37, 64, 128, 1024, 1032, 2048, 2056, 3000};

    for (int i = 0; i < 10; i++) {
        try_norm(9, widths[i], i % 2 == 0);
        try_norm(9, widths[i], i % 2 != 0);
    }
    try_norm(1, 256, true);
    try_norm(600, 24, true); /* blocks that make several rows */
    try_norm(2200, 8, true);
}

/* ---- rope, swiglu ------------------------------------------------------- */

static void try_rope(int64_t d, int64_t ld_more, float sign)
{
    int64_t n = 7, t = 3, heads = 3, ld = heads * d + ld_more;
    float *x = random_floats(n * ld), *want = copy_of(x, n * ld);
    float *got = copy_of(x, n * ld);
    float *cs = random_floats(t * d / 2), *sn = random_floats(t * d / 2);
    struct same_bits bits = {0};
    struct rope op = {.x = want,
                      .cos = cs,
                      .sin = sn,
                      .n = n,
                      .t = t,
                      .ld = ld,
                      .heads = heads,
                      .d = d,
                      .sign = sign};

    ref.rope(&ref, &op);
    for (int run = 0; run < RUNS; run++) {
        begin_run(run);
        op.x = act_up(x, n * ld);
        op.cos = up(cs, t * d / 2);
        op.sin = up(sn, t * d / 2);
        gpu.rope(&gpu, &op);
        act_down(got, op.x, n * ld);
        done();
        check_close(got, want, n * ld, tolerance(), "rope");
        same_bits(&bits, got, n * ld, "rope");
    }
    forget();
}

static void try_swiglu(int64_t n, int64_t f)
{
    float *gu = random_floats(n * 2 * f), *dh = random_floats(n * f);
    float *want_h = copy_of(dh, n * f), *want_d = copy_of(gu, n * 2 * f);
    float *got = copy_of(gu, n * 2 * f);
    struct same_bits bits[2] = {0};
    struct swiglu op = {.gu = gu, .h = want_h, .dh = dh, .dgu = want_d, n, f};

    for (int64_t i = 0; i < n * 2 * f; i += 7) {
        gu[i] *= 64; /* into both tails of the sigmoid */
    }
    ref.swiglu_fwd(&ref, &op);
    ref.swiglu_bwd(&ref, &op);
    for (int run = 0; run < RUNS; run++) {
        begin_run(run);
        op.gu = act_up(gu, n * 2 * f);
        op.dh = act_up(dh, n * f);
        op.h = room(n * f);
        op.dgu = room(n * 2 * f);
        gpu.swiglu_fwd(&gpu, &op);
        gpu.swiglu_bwd(&gpu, &op);
        act_down(got, op.h, n * f);
        check_close(got, want_h, n * f, tolerance(), "swiglu");
        same_bits(&bits[0], got, n * f, "swiglu");
        act_down(got, op.dgu, n * 2 * f);
        check_close(got, want_d, n * 2 * f, tolerance(), "dgu");
        same_bits(&bits[1], got, n * 2 * f, "dgu");
        done();
    }
    forget();
}

static void ropes_and_swiglus(void)
{
    const int64_t sizes[] = {2, 10, 32, 48, 64, 80, 128};
    const int64_t widths[] = {1, 7, 16, 344, 2688, 2691};

    for (int i = 0; i < 7; i++) {
        try_rope(sizes[i], 0, 1);
        try_rope(sizes[i], 2 * sizes[i], -1);
        try_rope(sizes[i], 5, -1);
    }
    for (int i = 0; i < 6; i++) {
        try_swiglu(5, widths[i]);
    }
}

/* ---- loss --------------------------------------------------------------- */

/* Rows of ld; what is behind their v logits would be seen in each loss. */
static void try_xent(int64_t v, int64_t ld, bool grad)
{
    int64_t n = 6;
    float *z = random_floats(n * ld), *want = copy_of(z, n * ld);
    float *got = copy_of(z, n * ld);
    float loss[6], got_loss[6];
    uint32_t targets[6];
    struct same_bits bits[2] = {0};
    struct xent op = {
        .targets = targets, .n = n, .v = v, .ld = ld, .grad = grad};

    for (int64_t i = 0; i < n; i++) {
        targets[i] = (uint32_t)rng_below(&rng, (uint64_t)v);
        z[i * ld] = want[i * ld] = (float)i * 8;
        for (int64_t k = v; k < ld; k++) {
            z[i * ld + k] = want[i * ld + k] = grad ? NAN : 1024;
        }
    }
    targets[4] = XENT_IGNORE;
    op.logits = want;
    op.loss = loss;
    ref.xent(&ref, &op);
    for (int run = 0; run < RUNS; run++) {
        begin_run(run);
        op.logits = act_up(z, n * ld);
        op.loss = room(n);
        gpu.xent(&gpu, &op);
        act_down(got, op.logits, n * ld);
        down(got_loss, op.loss, n);
        done();
        check_close(got, want, n * ld, tolerance(), "dlogits");
        check_close(got_loss, loss, n, 1e-5, "loss");
        assert_true(got_loss[4] == 0);
        for (int64_t i = 0; i < n * ld && grad; i++) {
            assert_true(i % ld < v || got[i] == 0);
        }
        same_bits(&bits[0], got, n * ld, "dlogits");
        same_bits(&bits[1], got_loss, n, "loss");
    }
    forget();
}

static void nan_in_a_logit_reaches_its_loss(void)
{
    float z[40] = {0}, loss[2];
    uint32_t targets[2] = {3, 4};
    struct xent op = {
        .targets = targets, .n = 2, .v = 20, .ld = 20, .grad = true};

    z[33] = NAN;
    op.logits = act_up(z, 40);
    op.loss = room(2);
    gpu.xent(&gpu, &op);
    down(loss, op.loss, 2);
    done();
    assert_true(isfinite(loss[0]) && isnan(loss[1]));
}

static void losses(void)
{
    const int64_t widths[] = {2, 17, 256, 257, 4104, 5001, 32000};

    for (int i = 0; i < 7; i++) {
        try_xent(widths[i], widths[i], true);
        try_xent(widths[i], widths[i], false);
    }
    /* rows that are filled up: every end of a vector, whole vectors of nothing,
     * a row of which not all stays in registers, no vectors at all */
    for (int64_t v = 249; v <= 257; v++) {
        try_xent(v, 320, true);
        try_xent(v, 320, false);
    }
    try_xent(32771, 32832, true);
    try_xent(32771, 32832, false);
    try_xent(17, 19, true);
    nan_in_a_logit_reaches_its_loss();
}

/* ---- attention ---------------------------------------------------------- */

/* FNV-1a of what try_attention() saw first. */
static uint64_t attention_bits;

static void add_bits(const float *x, int64_t n)
{
    const unsigned char *p = (const unsigned char *)x;

    for (size_t i = 0; i < (size_t)n * sizeof *x; i++) {
        attention_bits = (attention_bits ^ p[i]) * 0x100000001b3;
    }
}

static void
try_attention(int64_t b, int64_t t, int64_t heads, int64_t kv, int64_t d)
{
    int64_t n_out = b * t * heads * d, n_qkv = b * t * (heads + 2 * kv) * d;
    int64_t n_lse = b * heads * t;
    float *qkv = random_floats(n_qkv), *dout = random_floats(n_out);
    float *want_out = copy_of(dout, n_out), *want_lse = host_floats(n_lse);
    float *want_d = copy_of(qkv, n_qkv), *got = host_floats(n_qkv);
    float *scratch = host_floats(backend_scratch_floats(&ref, t));
    struct same_bits bits[3] = {0};
    struct attention op = {.qkv = qkv,
                           .out = want_out,
                           .lse = want_lse,
                           .dout = dout,
                           .dqkv = want_d,
                           .scratch = scratch,
                           .b = b,
                           .t = t,
                           .heads = heads,
                           .kv_heads = kv,
                           .d = d};

    for (int64_t i = 0; i < n_qkv; i++) {
        qkv[i] *= 2; /* softmax that is not flat */
    }
    ref.attention_fwd(&ref, &op);
    ref.attention_bwd(&ref, &op);
    for (int run = 0; run < RUNS; run++) {
        begin_run(run);
        op.qkv = act_up(qkv, n_qkv);
        op.dout = act_up(dout, n_out);
        op.out = room(n_out);
        op.lse = room(n_lse);
        op.dqkv = room(n_qkv);
        gpu.attention_fwd(&gpu, &op);
        act_down(got, op.out, n_out);
        check_close(got, want_out, n_out, tolerance(), "attention");
        same_bits(&bits[0], got, n_out, "attention");
        down(got, op.lse, n_lse);
        check_close(got, want_lse, n_lse, 1e-4, "lse");
        same_bits(&bits[1], got, n_lse, "lse");
        gpu.attention_bwd(&gpu, &op);
        act_down(got, op.dqkv, n_qkv);
        done();
        check_close(got, want_d, n_qkv, gpu.act_bytes == 2 ? 1.5e-2 : 2e-5,
                    "dqkv");
        same_bits(&bits[2], got, n_qkv, "dqkv");
    }
    attention_bits = 0xcbf29ce484222325;
    add_bits(bits[0].first, n_out);
    add_bits(bits[1].first, n_lse);
    add_bits(bits[2].first, n_qkv);
    forget();
}

static void attentions(void)
{
    const int64_t shapes[][5] = {
        /* b, t, heads, kv_heads, d: tiles of 64 keys, 64 or 128 queries */
        {1, 1, 1, 1, 32},    {2, 5, 2, 1, 64},    {1, 63, 1, 1, 80},
        {1, 64, 2, 2, 128},  {1, 65, 3, 1, 64},   {1, 129, 1, 1, 32},
        {2, 130, 2, 1, 64},  {1, 193, 1, 1, 128}, {1, 140, 2, 1, 80},
        {1, 70, 2, 2, 48},   {1, 40, 2, 1, 8},    {2, 33, 3, 3, 10},
        {1, 66, 4, 2, 18},   {1, 37, 1, 1, 136},  {1, 290, 2, 1, 64},
        {1, 200, 2, 1, 128},
    };

    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++) {
        const int64_t *x = shapes[i];

        try_attention(x[0], x[1], x[2], x[3], x[4]);
    }
}

/* Attention of such a GPU; returns how many bytes of shared memory a block had
 * at most, and leaves attention_bits. */
static uint64_t attention_of(int sm, const int64_t *x)
{
    rng = 7;
    emu->sm = sm;
    emu->shared_most = 0;
    open_gpu(true);
    try_attention(x[0], x[1], x[2], x[3], x[4]);
    backend_close(&gpu);
    backend_close(&ref);
    emu->sm = 90;
    return emu->shared_most;
}

/* The tiles of the GPUs that have no warpgroup products: the same numbers from
 * those with 164 or 228 KB a multiprocessor and from those with 100, where two
 * blocks fit at least, each with the KB that the driver takes. */
static void attention_of_other_gpus(void **state)
{
    const int64_t shapes[][5] = {{2, 5, 2, 1, 64},   {1, 64, 2, 2, 128},
                                 {2, 130, 2, 1, 64}, {1, 193, 1, 1, 128},
                                 {1, 257, 4, 2, 64}, {1, 70, 2, 2, 48},
                                 {1, 140, 2, 1, 80}, {1, 97, 1, 1, 72},
                                 {1, 81, 2, 1, 112}, {1, 200, 2, 1, 32}};
    const uint64_t two = (50 << 10) - 1024; /* bytes of each */
    uint64_t bits, had;

    (void)state;
    open_gpu(true);
    backend_close(&gpu);
    backend_close(&ref);
    if (emu == NULL) {
        return;
    }
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++) {
        had = attention_of(80, shapes[i]);
        assert_true(shapes[i][4] <= 32 || had > two);
        bits = attention_bits;
        had = attention_of(i % 2 == 0 ? 86 : 120, shapes[i]);
        assert_true(had <= two);
        assert_true(attention_bits == bits);
    }
    (void)attention_of(80, shapes[2]);
    bits = attention_bits;
    assert_true(attention_of(100, shapes[2]) > two);
    assert_true(attention_bits == bits);
    assert_true(attention_of(89, shapes[2]) <= two);
    assert_true(attention_bits == bits);
}

/* Sequences are the z of a grid: nothing is launched, and the GPU goes on. */
static void too_many(void)
{
    float *x = room(64);
    struct attention op = {.qkv = x,
                           .out = x,
                           .lse = x,
                           .dout = x,
                           .dqkv = x,
                           .b = 65536,
                           .t = 1,
                           .heads = 1,
                           .kv_heads = 1,
                           .d = 8};

    gpu.attention_fwd(&gpu, &op);
    assert_int_equal(gpu.finish(&gpu), LOCO_ENOMEM);
    gpu.attention_bwd(&gpu, &op);
    assert_int_equal(gpu.finish(&gpu), LOCO_ENOMEM);
    done();
}

/* ---- products ----------------------------------------------------------- */

static void try_matmul(const int64_t *mnk, int kind)
{
    bool act = gpu.act_bytes == 2;
    struct matmul op = {.m = mnk[0],
                        .n = mnk[1],
                        .k = mnk[2],
                        .ta = (kind & 1) != 0,
                        .tb = (kind & 2) != 0,
                        .to_weight = (kind & 1) != 0,
                        .alpha = 0.5f,
                        .beta = (kind & 4) != 0 ? 1.0f : 0.0f};
    int64_t rows_a = op.ta ? op.k : op.m, rows_b = op.tb ? op.n : op.k;
    int64_t n_a, n_b, n_c;
    float *a, *b, *c, *want, *got;
    struct same_bits bits = {0};

    op.lda = (op.ta ? op.m : op.k) + 1;
    op.ldb = (op.tb ? op.k : op.n) + 2;
    op.ldc = op.n + 3;
    n_a = rows_a * op.lda;
    n_b = rows_b * op.ldb;
    n_c = op.m * op.ldc;
    a = random_floats(n_a);
    b = random_floats(n_b);
    c = random_floats(n_c);
    want = copy_of(c, n_c);
    got = copy_of(c, n_c);
    op.a = a;
    op.b = b;
    op.c = want;
    ref.matmul(&ref, &op);
    for (int run = 0; run < RUNS; run++) {
        begin_run(run);
        op.a = act_up(a, n_a);
        op.b = op.to_weight ? act_up(b, n_b) : up(b, n_b);
        if (run > 0 && !op.to_weight) { /* through the copy in bf16 */
            struct theta_copy to = {.memory =
                                        keep(gpu.take(&gpu, 2 * (size_t)n_b))};

            gpu.use_theta(&gpu, op.b, n_b, &to);
        }
        op.c = op.to_weight ? up(c, n_c) : act_up(c, n_c);
        gpu.matmul(&gpu, &op);
        if (op.to_weight || !act) {
            down(got, op.c, n_c);
        } else {
            act_down(got, op.c, n_c);
        }
        gpu.use_theta(&gpu, NULL, 0, NULL);
        done();
        check_close(got, want, n_c, tolerance(), "product");
        if (run > 0) {
            same_bits(&bits, got, n_c, "product");
        }
    }
    forget();
}

static void products(void)
{
    const int64_t sizes[][3] = {{1, 1, 1},    {1, 17, 5},   {5, 1, 70},
                                {33, 65, 7},  {64, 64, 64}, {67, 129, 131},
                                {128, 32, 80}};

    for (int fallback = 0; fallback < (emu != NULL ? 2 : 1); fallback++) {
        for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
            for (int kind = 0; kind < 8; kind++) {
                if (emu != NULL) {
                    emu->no_algorithm = fallback;
                }
                try_matmul(sizes[i], kind);
            }
        }
        gpu.finish(&gpu);
        backend_close(&gpu); /* plans remember what the library knew */
        open_gpu(gpu.act_bytes == 2);
    }
    if (emu != NULL) {
        emu->no_algorithm = 0;
    }
}

/* ---- Muon --------------------------------------------------------------- */

#define MATRICES 7

/* A wide, a tall, a square one, odd sides, one of a row, one that stands still,
 * one of several chunks of the norm; not at the start. */
static const struct muon_matrix matrices[MATRICES] = {
    {8, 16, 40},  {648, 72, 24},  {2376, 32, 32},  {3400, 7, 13},
    {3491, 1, 9}, {3504, 16, 16}, {3760, 270, 260}};

#define ZERO_FROM   3504 /* of this one all is 0 */
#define ZERO_FLOATS 256
#define MUON_FLOATS 73968 /* some after the last */

static void
step_muon(const struct backend *be, struct muon_op op, float *const x[3])
{
    bool device = be == &gpu;

    for (int i = 0; i < MATRICES; i++) {
        int64_t rows = matrices[i].rows, columns = matrices[i].columns;
        size_t bytes = device ? muon_device_bytes(rows, columns, be->act_bytes)
                              : muon_bytes(rows, columns, true);

        op.lane_bytes = bytes > op.lane_bytes ? bytes : op.lane_bytes;
    }
    op.scratch = device ? keep(be->take(be, op.lane_bytes))
                        : aligned_alloc(64, op.lane_bytes);
    assert_non_null(op.scratch);
    op.theta = x[0];
    op.u = x[1];
    op.grad = x[2];
    be->muon(be, &op);
    if (!device) {
        free(op.scratch);
    }
}

/* The copy of theta in bf16 is in step. */
static void check_copy(const uint16_t *copy, const float *theta)
{
    uint16_t *got = (uint16_t *)host_floats(MUON_FLOATS);

    gpu.get(&gpu, got, copy, 2 * MUON_FLOATS);
    for (int64_t i = 0; i < MUON_FLOATS && gpu.act_bytes == 2; i++) {
        float r = round_bf16(theta[i]);
        uint32_t bits;

        memcpy(&bits, &r, 4);
        assert_true(got[i] == bits >> 16);
    }
}

static void steps_of_muon(void)
{
    struct muon_op op = {.matrices = matrices,
                         .n = MATRICES,
                         .lanes = 1,
                         .grad_scale = 0.5f,
                         .beta = 0.95f,
                         .one_minus_beta = 0.05f,
                         .decay = 1e-3f,
                         .lr = 0.5f};
    float *start[3], *want[3], *got = host_floats(MUON_FLOATS);
    struct same_bits bits = {0};

    for (int i = 0; i < 3; i++) {
        start[i] = random_floats(MUON_FLOATS);
        for (int64_t k = 0; k < ZERO_FLOATS && i > 0; k++) {
            start[i][ZERO_FROM + k] = 0;
        }
        want[i] = copy_of(start[i], MUON_FLOATS);
    }
    step_muon(&ref, op, want);
    for (int run = 0; run < RUNS; run++) {
        float *x[3];
        uint16_t *copy = keep(gpu.take(&gpu, 2 * MUON_FLOATS));
        const struct theta_copy to = {.memory = copy};

        begin_run(run);
        for (int i = 0; i < 3; i++) {
            x[i] = up(start[i], MUON_FLOATS);
        }
        gpu.use_theta(&gpu, x[0], MUON_FLOATS, &to);
        if (run > 0) { /* the copy is old, and made again below */
            gpu.put(&gpu, x[0], start[0], sizeof(float));
        }
        step_muon(&gpu, op, x);
        gpu.use_theta(&gpu, x[0], MUON_FLOATS, &to);
        down(got, x[1], MUON_FLOATS);
        assert_memory_equal(got, want[1], MUON_FLOATS * sizeof *got);
        down(got, x[0], MUON_FLOATS);
        check_copy(copy, got);
        gpu.use_theta(&gpu, NULL, 0, NULL);
        done();
        check_close(got, want[0], MUON_FLOATS, 2 * tolerance(), "Muon");
        same_bits(&bits, got, MUON_FLOATS, "Muon");
    }
    forget();
}

/* ---- running ------------------------------------------------------------ */

/* clang-format off */
CASE(embedding_equals_the_reference, embeddings)
CASE(rmsnorm_equals_the_reference, norms)
CASE(rope_and_swiglu_equal_the_reference, ropes_and_swiglus)
CASE(loss_equals_the_reference, losses)
CASE(attention_equals_the_reference, attentions)
CASE(more_sequences_than_a_grid_has_are_no_memory, too_many)
CASE(products_equal_the_reference, products)
CASE(steps_of_muon_equal_the_reference, steps_of_muon)
/* clang-format on */

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(embedding_equals_the_reference),
        cmocka_unit_test(rmsnorm_equals_the_reference),
        cmocka_unit_test(rope_and_swiglu_equal_the_reference),
        cmocka_unit_test(loss_equals_the_reference),
        cmocka_unit_test(attention_equals_the_reference),
        cmocka_unit_test(attention_of_other_gpus),
        cmocka_unit_test(more_sequences_than_a_grid_has_are_no_memory),
        cmocka_unit_test(products_equal_the_reference),
        cmocka_unit_test(steps_of_muon_equal_the_reference),
    };

    plugin_path = argc > 1 ? argv[1] : plugin_path;
    cmocka_set_skip_filter(argc > 2 ? argv[2] : NULL);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
