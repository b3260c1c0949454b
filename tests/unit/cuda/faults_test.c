/* What the host side does when the GPU fails: no driver, no GPU, an old one,
 * no memory at any moment, a broken context, no answer; and what a replica
 * makes of it. Needs the emulator: it injects all of these. */
#include <dirent.h>
#include <unistd.h>

#include "tests/unit/cuda/bench.h"

#include "proto/base/errmsg.h"
#include "train/replica/device.h"
#include "train/replica/outer.h"
#include "train/replica/plan.h"
#include "train/replica/replica.h"
#include "train/sync/preset.h"

static char errmsg[ERRMSG_SIZE];
static struct device_options device;

static struct replica_options options(uint32_t batch)
{
    struct replica_options opt = small_replica();

    device = (struct device_options){.plugin = plugin_path,
                                     .gpu = {.bf16 = true, .timeout_ms = 50}};
    opt.device = &device;
    opt.method = (struct method){
        .period = 4, .rule = {.lr = 1, .mu = 0.5f}, .fragments = 1};
    opt.codec = codec_find("fp16");
    opt.batch = opt.micro_batch = batch;
    return opt;
}

static int setup(void **state)
{
    (void)state;
    open_text();
    open_gpu(true);
    backend_close(&gpu);
    return emu == NULL ? -1 : 0;
}

/* A GPU as new. */
static int renew(void **state)
{
    (void)state;
    emu->devices = 1;
    emu->sm = 90;
    emu_as_new();
    set_text();
    return 0;
}

static int try_open(void)
{
    struct plugin_options opt = {.bf16 = true};
    int rv = open_gpu_with(&gpu, &opt, errmsg);

    if (rv == 0) {
        backend_close(&gpu);
    }
    return rv;
}

static void what_is_missing_is_said(void **state)
{
    (void)state;
    emu->devices = -1;
    assert_int_equal(try_open(), LOCO_EDEVICE);
    assert_non_null(strstr(errmsg, "driver"));
    emu->devices = 0;
    assert_int_equal(try_open(), LOCO_EDEVICE);
    assert_non_null(strstr(errmsg, "no NVIDIA GPU can be used"));
    emu->devices = 1;
    emu->sm = 75;
    assert_int_equal(try_open(), LOCO_EDEVICE);
    assert_non_null(strstr(errmsg, "compute capability 7.5"));
    assert_non_null(strstr(errmsg, "--device cpu"));
}

static void a_missing_or_foreign_plugin_is_said(void **state)
{
    struct backend b;
    struct device_options d = {.plugin = "/nowhere/libloco_cuda.so"};

    (void)state;
    assert_int_equal(backend_device(&b, &d, errmsg), LOCO_EDEVICE);
    assert_non_null(strstr(errmsg, "cannot load the plug-in"));
    d.plugin = "libm.so.6";
    assert_int_equal(backend_device(&b, &d, errmsg), LOCO_EDEVICE);
    assert_non_null(strstr(errmsg, "another build"));
}

/* Every allocation of an opening fails once; nothing is lost. */
static void memory_that_runs_out_while_opening_is_given_back(void **state)
{
    uint64_t used = emu->used;
    struct replica r;
    struct replica_options opt = options(4);
    int rv = LOCO_ENOMEM;
    int n = 0;

    (void)state;
    opt.micro_batch = 1; /* no smaller one to fall back to */
    while (rv != 0) {
        emu->fail_malloc = ++n;
        rv = replica_open(&r, &opt, errmsg);
        assert_true(rv == 0 || rv == LOCO_ENOMEM);
        replica_close(&r);
        assert_int_equal(emu->used, used);
    }
    assert_true(n > 5);
}

static void out_of_memory_lowers_the_micro_batch(void **state)
{
    struct replica_options opt = options(8);
    struct replica_plan plan;
    struct replica r, whole;
    float loss, want;

    (void)state;
    assert_int_equal(replica_open(&whole, &opt, errmsg), 0);
    replica_init(&whole);
    assert_int_equal(replica_step(&whole, &want), 0);
    assert_int_equal(whole.micro_batch, 8);
    /* All but a little of what eight sequences take. */
    replica_plan(&opt, UINT64_MAX, &plan);
    emu->memory = emu->used - plan.outer_bytes - 20000 + PLUGIN_SPARE_BYTES;
    replica_close(&whole);
    assert_int_equal(replica_open(&r, &opt, errmsg), 0);
    assert_true(r.micro_batch < 8 && r.micro_batch > 0);
    replica_init(&r);
    assert_int_equal(replica_step(&r, &loss), 0);
    assert_true(fabsf(loss - want) < 1e-2f * want); /* the batch is the same */
    /* ... and in the middle of a step */
    emu->memory = (uint64_t)8 << 30;
    replica_close(&r);
    assert_int_equal(replica_open(&r, &opt, errmsg), 0);
    replica_init(&r);
    replica_outer_close(&r); /* that memory would go first */
    emu->fail_malloc = 1;    /* the first scratch of a launcher */
    assert_int_equal(replica_step(&r, &loss), 0);
    assert_int_equal(r.micro_batch, 4);
    assert_true(fabsf(loss - want) < 1e-2f * want);
    replica_close(&r);
}

/* The plan is what is taken, at its most; a GPU without that much gets half of
 * the micro-batch at once, and one that has no room for a sequence is refused
 * with both numbers before anything is taken. */
static void what_is_planned_is_what_is_taken(void **state)
{
    struct replica_options opt = options(8);
    struct replica_plan plan, half;
    struct replica r;
    uint64_t before = emu->used, all, mallocs;
    float loss;

    (void)state;
    opt.moments_stay = true;
    memset(text, 'a', sizeof text); /* one token: the most parts of sums */
    replica_plan(&opt, UINT64_MAX, &plan);
    all = plan.state_bytes + plan.work_bytes + plan.outer_bytes;
    assert_true(plan.micro_batch == 8 && plan.outer_bytes > 0);
    assert_int_equal(replica_open(&r, &opt, errmsg), 0);
    replica_init(&r);
    for (int i = 0; i < 4; i++) {
        assert_int_equal(replica_step(&r, &loss), 0);
    }
    assert_int_equal(replica_pack(&r), 0);
    assert_true(r.outer.on);
    before += 64 << 20; /* of the products, there before the plan is made */
    assert_true(emu->used - before <= all);
    assert_true(emu->used - before >= all / 10 * 9);
    replica_close(&r);
    /* without a byte of it */
    replica_plan(&opt, all - 1, &half);
    assert_true(half.micro_batch == 8 && half.outer_bytes == 0);
    replica_plan(&opt, plan.state_bytes + plan.work_bytes - 1, &half);
    assert_int_equal(half.micro_batch, 4);
    replica_plan(&opt, plan.state_bytes, &half);
    assert_int_equal(half.micro_batch, 0);
    emu->memory = emu->used + ((uint64_t)64 << 20) + plan.state_bytes +
                  plan.work_bytes / 8 + PLUGIN_SPARE_BYTES - 1;
    mallocs = emu->mallocs;
    assert_int_equal(replica_open(&r, &opt, errmsg), LOCO_ENOMEM);
    assert_int_equal(emu->mallocs, mallocs + 1); /* that of the products */
    assert_non_null(strstr(errmsg, "one sequence of 16 tokens needs"));
    replica_close(&r);
}

static void open_alone(struct replica *r, const struct replica_options *opt)
{
    if (replica_open(r, opt, errmsg) != 0) {
        fail_msg("%s", errmsg);
    }
    assert_int_equal(r->micro_batch, 1);
    assert_int_equal(replica_init(r), 0);
}

/* theta, u, v. */
static float *moved(struct replica *r)
{
    float *x = malloc(3 * r->n * sizeof *x);

    assert_non_null(x);
    r->backend.get(&r->backend, x, r->theta, r->n * sizeof *x);
    replica_moments(r, x + r->n);
    return x;
}

struct way {
    enum llama_recompute recompute;
    bool host; /* moments in the host's memory */
};

/* A round of a replica that keeps all activations, and of one that has the
 * memory only for that way. */
static void same_round(const struct replica_options *opt,
                       uint64_t have,
                       const struct way *way)
{
    struct replica all, less;
    float loss, same, *want, *got;

    open_alone(&all, opt);
    assert_int_equal(all.recompute, LLAMA_RECOMPUTE_NOTHING);
    emu->memory = emu->used + ((uint64_t)64 << 20) + have + PLUGIN_SPARE_BYTES;
    open_alone(&less, opt);
    assert_int_equal(less.recompute, way->recompute);
    assert_true((less.planned.host > 0) == way->host);
    assert_true(emu->memory - emu->used >= PLUGIN_SPARE_BYTES);
    emu->memory = (uint64_t)8 << 30;
    for (int i = 0; i < 4; i++) {
        assert_int_equal(replica_step(&all, &loss), 0);
        assert_int_equal(replica_step(&less, &same), 0);
        assert_true(loss == same);
    }
    want = moved(&all);
    got = moved(&less);
    assert_memory_equal(got, want, 3 * all.n * sizeof *got);
    free(got);
    free(want);
    assert_int_equal(replica_pack(&all), 0);
    assert_int_equal(replica_pack(&less), 0);
    assert_memory_equal(less.contribution, all.contribution,
                        all.n * sizeof(float));
    replica_close(&less);
    replica_close(&all);
}

/* Where one sequence does not fit activations are made again, as few as it
 * takes, or moments lie in the host's memory, and no bit is another one; a run
 * is refused where none of this suffices, with both figures. */
static void what_does_not_fit_is_made_again(void **state)
{
    static const enum optimizer_rule rules[] = {
        OPTIMIZER_ADAMW, OPTIMIZER_ADOPT, OPTIMIZER_MUON};
    /* In the order of a step of few tokens, and each needs less. */
    static const struct way ways[] = {
        {LLAMA_RECOMPUTE_BRANCHES, false}, {LLAMA_RECOMPUTE_LAYERS, false},
        {LLAMA_RECOMPUTE_NOTHING, true},   {LLAMA_RECOMPUTE_BRANCHES, true},
        {LLAMA_RECOMPUTE_LAYERS, true},
    };

    (void)state;
    for (size_t i = 0; i < sizeof rules / sizeof rules[0]; i++) {
        struct replica_options opt = options(2);
        struct replica_plan plan;
        struct replica r;
        uint64_t have;

        opt.model.layers = 3;
        opt.micro_batch = 1;
        opt.optimizer.rule = rules[i];
        replica_plan(&opt, UINT64_MAX, &plan);
        assert_int_equal(plan.recompute, LLAMA_RECOMPUTE_NOTHING);
        have = plan.state_bytes + plan.work_bytes;
        for (size_t k = 0; k < sizeof ways / sizeof ways[0]; k++) {
            replica_plan(&opt, have - 1, &plan);
            assert_int_equal(plan.recompute, ways[k].recompute);
            assert_true((plan.host_bytes > 0) == ways[k].host);
            assert_int_equal(plan.micro_batch, 1);
            assert_true(plan.state_bytes + plan.work_bytes < have);
            have = plan.state_bytes + plan.work_bytes;
            same_round(&opt, have, &ways[k]);
        }
        emu->memory =
            emu->used + ((uint64_t)64 << 20) + have + PLUGIN_SPARE_BYTES - 1;
        assert_int_equal(replica_open(&r, &opt, errmsg), LOCO_ENOMEM);
        assert_non_null(strstr(errmsg, " MB with activations recomputed and "
                                       "moments in the host's memory; "));
        replica_close(&r);
        emu->memory = (uint64_t)8 << 30;
    }
}

/* A step of many tokens: to read and write the moments over PCIe costs less
 * than whole layers once more. Where the host has no memory for them they stay,
 * and the layers are made again. */
static void moments_go_before_layers_where_a_step_is_long(void **state)
{
    struct replica_options opt = options(1);
    struct replica_plan plan, stay;
    struct replica r;
    uint64_t have;

    (void)state;
    opt.model.layers = 3;
    opt.batch = 32768 / opt.seq;
    replica_plan(&opt, 0, &plan);
    replica_plan(&opt, plan.kept_bytes - 1, &plan);
    assert_int_equal(plan.recompute, LLAMA_RECOMPUTE_BRANCHES);
    have = plan.state_bytes + plan.work_bytes - 1;
    replica_plan(&opt, have, &plan);
    assert_int_equal(plan.recompute, LLAMA_RECOMPUTE_NOTHING);
    assert_true(plan.host_bytes == 8 * (uint64_t)llama_numel(&opt.model));
    opt.batch--; /* below it the layers */
    replica_plan(&opt, have, &stay);
    assert_int_equal(stay.recompute, LLAMA_RECOMPUTE_LAYERS);
    assert_int_equal(stay.host_bytes, 0);
    opt.batch++;

    /* The GPU pins two pieces when it is opened. */
    for (int n = 3; n < 5; n++) {
        uint64_t used = emu->used;

        emu->memory = used + ((uint64_t)64 << 20) + have + PLUGIN_SPARE_BYTES;
        emu->fail_pin = n;
        emu->pin_error = n == 3 ? 0 : 801; /* no memory; not supported */
        assert_int_equal(replica_open(&r, &opt, errmsg), 0);
        assert_int_equal(r.recompute, LLAMA_RECOMPUTE_LAYERS);
        assert_true(r.planned.host == 0 && !r.opt.moments_stay);
        replica_close(&r);
        assert_int_equal(emu->used, used);
        emu->memory = used + ((uint64_t)64 << 20) + plan.state_bytes +
                      plan.work_bytes + PLUGIN_SPARE_BYTES;
        emu->fail_pin = n; /* and no way is left */
        assert_int_equal(replica_open(&r, &opt, errmsg), LOCO_ENOMEM);
        assert_non_null(
            strstr(errmsg, "and neither has this machine's memory ("));
        replica_close(&r);
        assert_int_equal(emu->used, used);
        emu->memory = (uint64_t)8 << 30;
    }
}

/* Memory of the host that a GPU uses as its own: kernels, copies both ways and
 * zeros, under no cap, never more than half of the machine's. */
static void the_hosts_memory_is_used_like_the_gpus(void **state)
{
    struct plugin_options opt = {
        .bf16 = true, .memory_bytes = 70u << 20, .timeout_ms = 20};
    float here[1024], back[1024], *host, *own;
    struct add_op add = {.n = 1024};

    (void)state;
    for (int i = 0; i < 1024; i++) {
        here[i] = (float)i;
    }
    assert_int_equal(open_gpu_with(&gpu, &opt, errmsg), 0);
    host = gpu.take_host(&gpu, (size_t)16 << 20); /* beyond the cap */
    own = gpu.take(&gpu, sizeof here);
    assert_true(host != NULL && own != NULL);
    gpu.clear(&gpu, host, sizeof here);
    gpu.put(&gpu, own, here, sizeof here);
    add.from = own;
    add.to = host;
    assert_int_equal(
        device_table(gpu.device)->add(device_gpu(gpu.device), &add), 0);
    gpu.get(&gpu, back, host, sizeof back);
    assert_memory_equal(back, here, sizeof here);
    gpu.put(&gpu, host + 512, here, sizeof here / 2); /* after the sum */
    add.from = host;
    add.to = own;
    assert_int_equal(
        device_table(gpu.device)->add(device_gpu(gpu.device), &add), 0);
    gpu.clear(&gpu, host, sizeof here); /* which was read before */
    gpu.get(&gpu, back, own, sizeof back);
    for (int i = 0; i < 1024; i++) {
        assert_true(back[i] == (float)(i < 512 ? 2 * i : i + i - 512));
    }
    gpu.get(&gpu, back, host, sizeof back);
    assert_true(back[0] == 0 && back[1023] == 0);
    assert_null(gpu.take_host(&gpu, (size_t)1 << 50));
    assert_non_null(strstr(device_message(gpu.device),
                           "more than half of this machine's memory"));
    gpu.give(&gpu, host);
    assert_int_equal(gpu.finish(&gpu), 0);
    backend_close(&gpu);
}

/* Each shape that cuBLASLt has nothing for is said, once. */
static void a_slow_product_is_said_once(void **state)
{
    struct replica_options opt = options(1);
    struct device *d;
    struct replica r;
    const char *said;
    float loss;
    int n = 0;

    (void)state;
    emu->no_algorithm = 1;
    assert_int_equal(replica_open(&r, &opt, errmsg), 0);
    replica_init(&r);
    d = r.backend.device;
    assert_int_equal(replica_step(&r, &loss), 0);
    while ((said = device_said(d)) != NULL) {
        assert_non_null(strstr(said, "cuBLASLt has no product of "));
        assert_non_null(strstr(said, " in bf16 on this GPU"));
        n++;
    }
    assert_int_equal(n, 8); /* of more shapes, as many as are kept */
    for (int i = 0; i < 2; i++) {
        assert_int_equal(replica_step(&r, &loss), 0);
        assert_null(device_said(d));
    }
    replica_close(&r);
    emu->no_algorithm = 0;
    assert_int_equal(replica_open(&r, &opt, errmsg), 0);
    replica_init(&r);
    assert_int_equal(replica_step(&r, &loss), 0);
    assert_null(device_said(r.backend.device));
    replica_close(&r);
    assert_null(device_said(NULL));
}

/* No more of it than half of the machine's memory, with what is registered and
 * with what a GPU that hangs still holds; and nothing waits for one. */
static void the_hosts_memory_is_half_of_it_at_most(void **state)
{
    struct plugin_options opt = {.bf16 = true, .timeout_ms = 20};
    const struct plugin_table *table;
    const size_t mb = (size_t)1 << 20;
    float back[16], *host;
    void *pages = aligned_alloc(2 * mb, 2 * mb);

    (void)state;
    assert_non_null(pages);
    assert_int_equal(open_gpu_with(&gpu, &opt, errmsg), 0);
    table = device_table(gpu.device);
    emu->host_pages = (int64_t)(8 * mb) / sysconf(_SC_PAGESIZE);
    host = gpu.take_host(&gpu, 3 * mb);
    assert_non_null(host);
    assert_null(gpu.take_host(&gpu, 2 * mb));
    assert_int_equal(
        table->host_register(device_gpu(gpu.device), pages, 2 * mb),
        LOCO_ENOMEM);
    gpu.give(&gpu, host);
    assert_int_equal(
        table->host_register(device_gpu(gpu.device), pages, 2 * mb), 0);
    assert_null(gpu.take_host(&gpu, 3 * mb));
    table->host_unregister(device_gpu(gpu.device), pages);
    free(pages);
    assert_int_equal(gpu.finish(&gpu), 0);

    host = gpu.take_host(&gpu, 3 * mb);
    assert_non_null(host);
    emu->hanging = 1;
    gpu.put(&gpu, host, back, sizeof back);
    assert_int_equal(gpu.finish(&gpu), LOCO_ETIMEOUT);
    gpu.get(&gpu, back, host, sizeof back);
    assert_true(back[1] == 0);
    gpu.give(&gpu, host);
    backend_close(&gpu);
    emu->hanging = 0;
    assert_int_equal(open_gpu_with(&gpu, &opt, errmsg), 0);
    assert_null(gpu.take_host(&gpu, 2 * mb));
    backend_close(&gpu);
    emu->host_pages = 0;
}

/* A step, one in which the GPU breaks or hangs, and one after it was opened
 * again, when it had so much memory free (0: plenty). */
static void break_and_go_on(struct replica *r, bool hang, uint64_t memory)
{
    float loss;

    emu->memory = (uint64_t)8 << 30;
    assert_int_equal(replica_step(r, &loss), 0);
    emu->fail_launch = hang ? 0 : 5;
    emu->hang_after = hang ? 3 : 0;
    assert_int_equal(replica_step(r, &loss), hang ? LOCO_ETIMEOUT : LOCO_ECUDA);
    emu->sticky = emu->hanging = 0;
    if (memory > 0) { /* what broke keeps its own here */
        emu->memory = emu->used + memory;
    }
    if (replica_recover(r, true, errmsg) != 0) {
        fail_msg("%s", errmsg);
    }
    emu->memory = (uint64_t)8 << 30;
    assert_int_equal(replica_step(r, &loss), 0);
}

/* Moments in the host's memory are as whole after a GPU that broke or hung as
 * those of a GPU. Of one that hangs nothing comes back, so after it they are on
 * the GPU. */
static void moments_in_the_hosts_memory_are_recovered(void **state)
{
    static const char *const presets[] = {"localsgd", "ddp", "local-adam"};

    (void)state;
    for (size_t i = 0; i < 2 * sizeof presets / sizeof presets[0]; i++) {
        const bool hang = i % 2 == 1;
        struct replica_options opt = options(1);
        const struct preset *p;
        struct replica_plan plan;
        struct replica all, less;
        uint64_t small;
        float *want, *got;

        assert_int_equal(preset_find(presets[i / 2], &p, NULL), 0);
        opt.method = p->method;
        opt.method.period = 4;
        opt.model.layers = 3;
        replica_plan(&opt, UINT64_MAX, &plan);
        open_alone(&all, &opt);
        break_and_go_on(&all, hang, 0);
        small = ((uint64_t)64 << 20) + plan.stay_bytes - 1 + PLUGIN_SPARE_BYTES;
        emu->memory = emu->used + small;
        open_alone(&less, &opt);
        assert_true(less.planned.host > 0 && all.planned.host == 0);
        break_and_go_on(&less, hang, hang ? 0 : small);
        assert_true((less.planned.host > 0) == !hang);
        assert_true(less.opt.moments_stay == hang);
        want = moved(&all);
        got = moved(&less);
        assert_memory_equal(got, want, 3 * all.n * sizeof *got);
        free(got);
        free(want);
        replica_close(&less);
        replica_close(&all);
        (void)renew(NULL);
    }
}

/* Half of the micro-batch first: it costs less. And the largest one that fits
 * once activations are made again. */
static void a_smaller_micro_batch_is_tried_first(void **state)
{
    struct replica_options opt = options(4);
    struct replica_plan plan;
    struct replica r;
    float loss;

    (void)state;
    opt.model.layers = 3;
    replica_plan(&opt, 0, &plan);
    replica_plan(&opt, plan.kept_bytes, &plan);
    assert_int_equal(plan.recompute, LLAMA_RECOMPUTE_NOTHING);
    assert_int_equal(plan.micro_batch, 1);
    replica_plan(&opt, plan.kept_bytes - 1, &plan);
    assert_true(plan.recompute > LLAMA_RECOMPUTE_NOTHING);

    /* The same in the middle of a step. */
    assert_int_equal(replica_open(&r, &opt, errmsg), 0);
    replica_init(&r);
    assert_int_equal(replica_step(&r, &loss), 0);
    for (int i = 0; i < 3; i++) { /* the outer step's memory, 2, 1 */
        assert_true(replica_lower_micro_batch(&r));
        assert_int_equal(r.recompute, LLAMA_RECOMPUTE_NOTHING);
    }
    assert_int_equal(r.micro_batch, 1);
    assert_true(replica_lower_micro_batch(&r));
    assert_int_equal(r.recompute, LLAMA_RECOMPUTE_BRANCHES);
    assert_true(replica_lower_micro_batch(&r));
    assert_false(replica_lower_micro_batch(&r));
    assert_int_equal(replica_step(&r, &loss), 0);
    replica_close(&r);
}

/* Kernels are loaded when they first run: what they take is known before the
 * outer step takes what is left, and makes the micro-batch smaller. */
static void kernels_that_need_memory_lower_the_micro_batch(void **state)
{
    struct replica_options opt = options(8);
    struct replica_plan plan;
    struct replica r;
    float loss, want;

    (void)state;
    assert_int_equal(replica_open(&r, &opt, errmsg), 0);
    replica_init(&r);
    assert_int_equal(replica_step(&r, &want), 0);
    replica_close(&r);
    replica_plan(&opt, UINT64_MAX, &plan);
    memset(emu->used_of, 0, sizeof emu->used_of);
    emu->memory = PLUGIN_PRODUCTS_BYTES + plan.state_bytes + plan.work_bytes +
                  plan.outer_bytes + PLUGIN_SPARE_BYTES;
    emu->product_loads =
        PLUGIN_SPARE_BYTES + plan.outer_bytes + plan.work_bytes / 4;
    assert_int_equal(replica_open(&r, &opt, errmsg), 0);
    assert_int_equal(r.micro_batch, 8);
    assert_true(r.outer.on);
    replica_init(&r);
    assert_int_equal(replica_step(&r, &loss), 0);
    assert_int_equal(emu->product_loads, 0);
    assert_true(r.micro_batch < 8);
    assert_false(r.outer.on); /* the kernels have that memory */
    assert_true(fabsf(loss - want) < 1e-2f * want);
    replica_close(&r);
    emu->product_loads = 0;
    memset(emu->used_of, 0, sizeof emu->used_of);
}

static void the_cap_on_memory_holds(void **state)
{
    struct plugin_options opt = {.bf16 = true, .memory_bytes = 70u << 20};
    void *p;

    (void)state;
    assert_int_equal(open_gpu_with(&gpu, &opt, errmsg), 0);
    assert_true(device_info(gpu.device)->free_bytes <= 70u << 20);
    p = gpu.take(&gpu, 4u << 20);
    assert_non_null(p);
    assert_null(gpu.take(&gpu, 8u << 20)); /* cuBLASLt's 64 MB count, too */
    assert_non_null(strstr(device_message(gpu.device), "cap"));
    gpu.give(&gpu, p);
    p = gpu.take(&gpu, 5u << 20);
    assert_non_null(p);
    gpu.give(&gpu, p);
    backend_close(&gpu);
}

/* Each launch of a step breaks the GPU once: the step says so, and what comes
 * after on another backend is as if it had not been. */
static void a_broken_gpu_ends_the_step_and_not_the_process(void **state)
{
    struct replica_options opt = options(2);
    float loss;
    int rv = LOCO_ECUDA;

    (void)state;
    for (int n = 1; rv == LOCO_ECUDA && n < 500; n += 3) {
        struct replica r;

        (void)renew(NULL);
        assert_int_equal(replica_open(&r, &opt, errmsg), 0);
        replica_init(&r);
        emu->fail_launch = n;
        rv = replica_step(&r, &loss);
        if (rv != 0) {
            assert_int_equal(rv, LOCO_ECUDA);
            assert_non_null(strstr(device_message(r.backend.device),
                                   "illegal memory access"));
            assert_int_equal(replica_step(&r, &loss), LOCO_ECUDA);
            assert_int_equal(replica_recover(&r, false, errmsg), 0);
            assert_int_equal(replica_step(&r, &loss), 0);
            assert_true(isfinite(loss));
            assert_int_equal(r.tokens_pending, 32);
            assert_false(replica_in_pieces(&r)); /* it has no bits of these */
        }
        emu->fail_launch = 0; /* of the steps that passed */
        emu->sticky = 0;
        replica_close(&r);
    }
    assert_int_equal(rv, 0); /* a step has fewer launches than that */
}

static void a_gpu_that_does_not_answer_is_left_after_the_deadline(void **state)
{
    struct replica_options opt = options(2);
    struct replica r;
    float loss;

    (void)state;
    assert_int_equal(replica_open(&r, &opt, errmsg), 0);
    replica_init(&r);
    assert_int_equal(replica_step(&r, &loss), 0);
    emu->hang_after = 3;
    assert_int_equal(replica_step(&r, &loss), LOCO_ETIMEOUT);
    assert_non_null(strstr(device_message(r.backend.device), "no answer"));
    emu->hanging = 0; /* it answers again */
    assert_int_equal(replica_recover(&r, true, errmsg), 0);
    assert_int_equal(replica_step(&r, &loss), 0);
    assert_true(isfinite(loss));
    replica_close(&r);
}

/* Where the processor would be asked to take over but nothing can be opened,
 * every call says so; none crashes. */
static void a_replica_without_a_backend_refuses(void **state)
{
    struct replica_options opt = options(2);
    struct replica r;
    float loss, *shared;
    double bits;

    (void)state;
    assert_int_equal(replica_open(&r, &opt, errmsg), 0);
    replica_init(&r);
    emu->devices = 0;
    assert_int_equal(replica_recover(&r, true, errmsg), LOCO_EDEVICE);
    assert_int_equal(replica_step(&r, &loss), LOCO_EDEVICE);
    assert_int_equal(replica_pack(&r), LOCO_EDEVICE);
    assert_int_equal(replica_eval(&r, 0, &bits), LOCO_EDEVICE);
    replica_init(&r);
    shared = state_of(&r);
    assert_int_equal(replica_load(&r, 1, shared, false), 0);
    free(shared);
    emu->devices = 1;
    assert_int_equal(replica_recover(&r, true, errmsg), 0);
    assert_int_equal(replica_step(&r, &loss), 0);
    replica_close(&r);
}

static int threads_now(void)
{
    DIR *d = opendir("/proc/self/task");
    int n = 0;

    assert_non_null(d);
    while (readdir(d) != NULL) {
        n++;
    }
    assert_int_equal(closedir(d), 0);
    return n;
}

/* Copies and hashes of the state are made by threads of the process (snapshot.h
 * of the daemon), beside a GPU, too; they end with it. */
static void what_lies_here_has_threads_beside_a_gpu(void **state)
{
    struct replica_options opt = options(2);
    struct replica r;
    int before = threads_now();

    (void)state;
    opt.threads = 3;
    opt.reference = false;
    for (int lost = 0; lost < 2; lost++) {
        assert_int_equal(replica_open(&r, &opt, errmsg), 0);
        assert_non_null(r.backend.pool);
        assert_int_equal(threads_now(), before + 2);
        if (lost != 0) {
            assert_int_equal(replica_recover(&r, false, errmsg), 0);
            assert_int_equal(threads_now(), before + 2);
        }
        replica_close(&r);
        assert_int_equal(threads_now(), before);
    }
}

/* A round on the GPU: the contribution, the outer step, moments and back. */
static void a_round_runs_on_the_gpu(void **state)
{
    struct replica_options opt = options(2);
    struct replica r, same;
    float loss;
    float *moments, *shared;
    uint8_t *wire;

    (void)state;
    assert_int_equal(replica_open(&r, &opt, errmsg), 0);
    replica_init(&r);
    for (int i = 0; i < 4; i++) {
        assert_int_equal(replica_step(&r, &loss), 0);
    }
    assert_int_equal(replica_pack(&r), 0);
    wire = malloc(opt.codec->bytes(r.n_wire));
    moments = malloc(2 * r.n * sizeof *moments);
    assert_true(wire != NULL && moments != NULL);
    assert_int_equal(
        opt.codec->encode(wire, r.contribution, replica_elements(&r), 1), 0);
    assert_int_equal(
        replica_commit(&r, &(struct replica_commit){1, wire, 1, 1, 1}), 0);
    replica_moments(&r, moments);
    assert_true(norm_of(moments, NULL, (int64_t)r.n) > 0);
    assert_int_equal(replica_open(&same, &opt, errmsg), 0);
    shared = state_of(&r);
    assert_int_equal(replica_restore(&same, 1, shared, moments, moments + r.n,
                                     r.optimizer.t, r.inner_step,
                                     r.tokens_seen),
                     0);
    free(shared);
    for (int i = 0; i < 2; i++) { /* go on alike, bit by bit */
        float other;

        assert_int_equal(replica_step(&r, &loss), 0);
        assert_int_equal(replica_step(&same, &other), 0);
        assert_true(loss == other);
    }
    free(moments);
    free(wire);
    replica_close(&same);
    replica_close(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(what_is_missing_is_said, renew),
        cmocka_unit_test_setup(a_missing_or_foreign_plugin_is_said, renew),
        cmocka_unit_test_setup(memory_that_runs_out_while_opening_is_given_back,
                               renew),
        cmocka_unit_test_setup(out_of_memory_lowers_the_micro_batch, renew),
        cmocka_unit_test_setup(what_is_planned_is_what_is_taken, renew),
        cmocka_unit_test_setup(what_does_not_fit_is_made_again, renew),
        cmocka_unit_test_setup(moments_go_before_layers_where_a_step_is_long,
                               renew),
        cmocka_unit_test_setup(the_hosts_memory_is_used_like_the_gpus, renew),
        cmocka_unit_test_setup(a_slow_product_is_said_once, renew),
        cmocka_unit_test_setup(the_hosts_memory_is_half_of_it_at_most, renew),
        cmocka_unit_test_setup(moments_in_the_hosts_memory_are_recovered,
                               renew),
        cmocka_unit_test_setup(a_smaller_micro_batch_is_tried_first, renew),
        cmocka_unit_test_setup(kernels_that_need_memory_lower_the_micro_batch,
                               renew),
        cmocka_unit_test_setup(the_cap_on_memory_holds, renew),
        cmocka_unit_test_setup(a_broken_gpu_ends_the_step_and_not_the_process,
                               renew),
        cmocka_unit_test_setup(
            a_gpu_that_does_not_answer_is_left_after_the_deadline, renew),
        cmocka_unit_test_setup(a_replica_without_a_backend_refuses, renew),
        cmocka_unit_test_setup(a_round_runs_on_the_gpu, renew),
        cmocka_unit_test_setup(what_lies_here_has_threads_beside_a_gpu, renew),
    };

    return cmocka_run_group_tests(tests, setup, NULL);
}
