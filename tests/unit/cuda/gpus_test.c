/* Several GPUs make one gradient: it is the one that one GPU makes, the same
 * bits every time, and a GPU that fails takes no token with it. Needs the
 * emulator, which has as many GPUs as it is told. */
#include "tests/unit/cuda/bench.h"

#include "proto/base/errmsg.h"
#include "train/replica/bench.h"
#include "train/replica/gpus.h"
#include "train/replica/outer.h"
#include "train/replica/plan.h"
#include "train/replica/trainers.h"

/* What a gradient and theta differ by where one GPU made them: fp32 sums in
 * another order. A step moves theta by 1e-2 of its length. */
#define CLOSE 1e-5

/* A GPU that hangs is waited for so long, once; the others answer sooner on any
 * machine. */
#define TIMEOUT_MS 10000

/* Of cuBLASLt, there before the plan is made. */
#define PRODUCTS ((uint64_t)64 << 20)

static char errmsg[ERRMSG_SIZE];
static struct device_options device, first; /* several; one */

/* `gpus` of them, a batch of so many sequences. */
static struct replica_options options(int gpus, uint32_t batch)
{
    struct replica_options opt = small_replica();
    struct device_options *d = gpus == 1 ? &first : &device;

    *d =
        (struct device_options){.plugin = plugin_path,
                                .gpu = {.bf16 = true, .timeout_ms = TIMEOUT_MS},
                                .n_others = gpus - 1};
    for (int i = 1; i < gpus; i++) {
        d->others[i - 1] = i;
    }
    opt.device = d;
    opt.method = (struct method){
        .period = 4, .rule = {.lr = 1, .mu = 0.5f}, .fragments = 1};
    opt.codec = codec_find("fp16");
    opt.batch = batch;
    opt.micro_batch = 2;
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

static int renew(void **state)
{
    (void)state;
    emu->devices = 4;
    emu->sm = 90;
    emu_as_new();
    set_text();
    return 0;
}

static void open_replica(struct replica *r, const struct replica_options *opt)
{
    if (replica_open(r, opt, errmsg) != 0) {
        fail_msg("%s", errmsg);
    }
    assert_int_equal(replica_init(r), 0);
}

/* The gradient of the next batch, as it lies on the first GPU. */
static float *gradient_of(struct replica *r, double *sum)
{
    float *x = malloc(r->n * sizeof *x);

    assert_non_null(x);
    assert_int_equal(replica_gradient(r, 0, r->opt.batch, sum), 0);
    r->backend.get(&r->backend, x, r->grad, r->n * sizeof *x);
    assert_int_equal(r->backend.finish(&r->backend), 0);
    return x;
}

/* theta after so many steps. */
static float *trained(struct replica *r, int steps)
{
    float *x = malloc(r->n * sizeof *x);
    float loss;

    assert_non_null(x);
    for (int i = 0; i < steps; i++) {
        assert_int_equal(replica_step(r, &loss), 0);
    }
    r->backend.get(&r->backend, x, r->theta, r->n * sizeof *x);
    assert_int_equal(r->backend.finish(&r->backend), 0);
    return x;
}

/* |a - b| / |a| */
static double distance(const float *a, const float *b, uint64_t n)
{
    double d = 0, norm = 0;

    for (uint64_t i = 0; i < n; i++) {
        d += pow((double)a[i] - b[i], 2);
        norm += pow(a[i], 2);
    }
    return sqrt(d / norm);
}

static void a_gradient_is_the_one_of_one_gpu(void **state)
{
    double want_sum, sum;
    float *want;
    struct replica one;
    struct replica_options alone = options(1, 7);

    (void)state;
    open_replica(&one, &alone);
    assert_int_equal(replica_gpus_count(&one), 1);
    want = gradient_of(&one, &want_sum);
    for (int gpus = 2; gpus <= 4; gpus++) {
        struct replica_options opt = options(gpus, 7);
        struct replica r;
        float *got;

        open_replica(&r, &opt);
        assert_int_equal(replica_gpus_count(&r), gpus);
        assert_null(replica_gpus_said(&r));
        memset(emu->peer_bytes, 0, sizeof emu->peer_bytes);
        got = gradient_of(&r, &sum);
        assert_true(emu->peer_bytes[0][gpus - 1] > 0);
        assert_true(distance(want, got, r.n) < CLOSE);
        assert_true(fabs(sum - want_sum) < 1e-4 * want_sum);
        free(got);
        replica_close(&r);
    }
    free(want);
    replica_close(&one);
}

/* Gradients behind steps: theta goes to the others each time, and their bf16
 * copies of it with it. */
static void gradients_follow_theta(void **state)
{
    struct replica_options alone = options(1, 6), opt = options(3, 6);
    struct replica one, r;

    (void)state;
    open_replica(&one, &alone);
    open_replica(&r, &opt);
    for (int step = 0; step < 4; step++) {
        double want_sum, sum;
        float *want = gradient_of(&one, &want_sum);
        float *got = gradient_of(&r, &sum);

        assert_true(distance(want, got, r.n) < CLOSE * (step + 1));
        free(got);
        free(want);
        free(trained(&one, 1));
        free(trained(&r, 1));
    }
    replica_close(&r);
    replica_close(&one);
}

/* Steps, in each order of the emulator's, each launch at once and as late as it
 * may: one theta, near that of one GPU. */
static void steps_have_the_same_bits_every_time(void **state)
{
    struct replica_options alone = options(1, 6);
    struct replica one;
    float *near, *want = NULL;
    uint64_t n;

    (void)state;
    open_replica(&one, &alone);
    near = trained(&one, 4);
    n = one.n;
    replica_close(&one);
    for (int schedule = 0; schedule < 3; schedule++) {
        struct replica_options opt = options(3, 6);
        struct replica r;
        float *got;

        emu->schedule = schedule;
        emu->early = schedule == 1;
        open_replica(&r, &opt);
        got = trained(&r, 4);
        assert_int_equal(r.tokens_seen, 4 * 6 * r.opt.seq);
        if (want == NULL) {
            want = got;
            assert_true(distance(near, want, n) < CLOSE);
        } else {
            assert_memory_equal(got, want, n * sizeof *got);
            free(got);
        }
        replica_close(&r);
    }
    free(want);
    free(near);
}

/* Fewer sequences than GPUs: the last ones rest. */
static void a_small_batch_leaves_gpus_idle(void **state)
{
    struct replica_options alone = options(1, 2), opt;
    struct replica one, r;
    float *want, *got;
    double want_sum, sum;

    (void)state;
    open_replica(&one, &alone);
    want = gradient_of(&one, &want_sum);
    replica_close(&one);
    opt = options(4, 2);
    open_replica(&r, &opt);
    got = gradient_of(&r, &sum);
    assert_true(distance(want, got, r.n) < CLOSE);
    assert_true(fabs(sum - want_sum) < 1e-4 * want_sum);
    free(got);
    free(want);
    replica_close(&r);
}

/* Bytes between each two of C GPUs for a batch. Theta: slice c from the first
 * into c, the others' slices from these. The gradient: slice c from all into c;
 * the first takes the sums. Slices are whole units of 1,024. */
static void each_link_carries_its_slices(void **state)
{
    (void)state;
    for (uint64_t c = 2; c <= 4; c++) {
        struct replica_options opt = options((int)c, 8);
        struct replica r;
        double sum, slice;

        open_replica(&r, &opt);
        memset(emu->peer_bytes, 0, sizeof emu->peer_bytes);
        free(gradient_of(&r, &sum));
        slice = (double)r.n * sizeof(float) / (double)c;
        for (uint64_t to = 0; to < c; to++) {
            for (uint64_t from = 0; from < c; from++) {
                double bytes = (double)emu->peer_bytes[to][from];
                double want = to == from ? 0 : to == 0 ? 2 : from == 0 ? 3 : 2;

                assert_true(fabs(bytes - want * slice) <= want * 4096);
            }
        }
        replica_close(&r);
    }
}

/* Another GPU than the first breaks or hangs at some moment of a step: the step
 * is made, the GPU is named once, and what comes later goes without it. */
static void try_fault(int gpus, int64_t *fault, int64_t n, int number)
{
    struct replica_options opt = options(gpus, 6), alone = options(1, 6);
    struct replica r, one;
    float *want, *got;
    const char *said;
    char name[32];

    open_replica(&r, &opt);
    emu->fault_device = number + 1;
    *fault = n;
    got = trained(&r, 1);
    if (*fault != 0) {
        fail_msg("GPU %d of %d: %lld left of %lld", number, gpus,
                 (long long)*fault, (long long)n);
    }
    said = replica_gpus_said(&r);
    assert_non_null(said);
    (void)snprintf(name, sizeof name, "GPU %d is left out", number);
    assert_non_null(strstr(said, name));
    assert_null(replica_gpus_said(&r));
    assert_int_equal(replica_gpus_count(&r), gpus - 1);
    assert_int_equal(r.tokens_seen, 6 * r.opt.seq);
    free(trained(&r, 1)); /* and goes on */
    emu->sticky = emu->hanging = emu->fault_device = 0;
    open_replica(&one, &alone);
    want = trained(&one, 1);
    assert_true(distance(want, got, one.n) < CLOSE);
    free(want);
    free(got);
    replica_close(&one);
    replica_close(&r);
}

static void a_gpu_that_breaks_takes_no_token_with_it(void **state)
{
    (void)state;
    for (int64_t n = 1; n < 23; n += 5) {
        (void)renew(NULL);
        try_fault(3, &emu->fail_launch, n, 1 + (int)(n % 2));
    }
    /* Of two: the one that is left makes no phases any more. */
    (void)renew(NULL);
    try_fault(2, &emu->fail_launch, 20, 1);
    (void)renew(NULL);
    try_fault(3, &emu->hang_after, 5, 2);
}

/* One that gave no answer is not opened again, whatever happens to the first.
 */
static void a_gpu_that_hung_is_not_opened_again(void **state)
{
    struct replica_options opt = options(3, 6);
    struct replica r;

    (void)state;
    device.gpu.timeout_ms = 500;
    open_replica(&r, &opt);
    emu->fault_device = 3;
    emu->hang_after = 5;
    free(trained(&r, 1));
    assert_int_equal(replica_gpus_count(&r), 2);
    emu->hanging = emu->fault_device = 0;
    assert_int_equal(replica_recover(&r, true, errmsg), 0);
    assert_int_equal(replica_gpus_count(&r), 2);
    free(trained(&r, 1));
    replica_close(&r);
}

/* A launcher of another GPU that finds no memory: half of the micro-batch, not
 * the end of its part. */
static void no_memory_lowers_the_micro_batch(void **state)
{
    struct replica_options opt = options(3, 6), alone = options(1, 6);
    struct replica r, one;
    float *want, *got;

    (void)state;
    open_replica(&one, &alone);
    want = trained(&one, 1);
    open_replica(&r, &opt);
    assert_int_equal(replica_gpus_micro_batch(&r, 1), 2);
    emu->fault_device = 2;
    emu->fail_malloc = 1;
    got = trained(&r, 1);
    assert_int_equal(emu->fail_malloc, 0);
    assert_null(replica_gpus_said(&r));
    assert_int_equal(replica_gpus_count(&r), 3);
    assert_int_equal(replica_gpus_micro_batch(&r, 1), 1);
    assert_true(distance(want, got, r.n) < CLOSE);
    free(got);
    free(want);
    replica_close(&r);
    replica_close(&one);
}

/* GPUs that do not reach each other's memory by themselves: through the host.
 */
static void gpus_without_peer_access_work(void **state)
{
    struct replica_options opt = options(3, 6);
    struct replica r;

    (void)state;
    emu->no_peers = 1;
    open_replica(&r, &opt);
    free(trained(&r, 2));
    assert_int_equal(replica_gpus_count(&r), 3);
    assert_null(replica_gpus_said(&r));
    replica_close(&r);
}

/* Another process makes the steps, or the model is cut: nothing is opened. */
static void others_rest_where_no_whole_model_is_trained(void **state)
{
    struct replica_options opt = options(3, 6);

    (void)state;
    assert_true(replica_gpus_piece_bytes(&opt, 100) > 0);
    assert_int_equal(replica_gpus_rows(&opt), 2);
    opt.shared = true;
    assert_int_equal(replica_gpus_piece_bytes(&opt, 100), 0);
    opt.shared = false;
    opt.slots = 1;
    assert_int_equal(replica_gpus_piece_bytes(&opt, 100), 0);
    assert_int_equal(replica_gpus_rows(&opt), opt.micro_batch);
}

static void a_gpu_that_cannot_be_opened_is_left_out(void **state)
{
    struct replica_options opt = options(3, 6);
    struct replica_plan plan;
    struct replica r;
    const char *said;

    (void)state;
    replica_plan_part(&opt, UINT64_MAX, &plan);
    assert_true(plan.micro_batch == 2 && plan.outer_bytes == 0);
    emu->memory_of[1] = emu->used_of[1] + PRODUCTS + PLUGIN_SPARE_BYTES + 100;
    device.others[1] = 9;
    open_replica(&r, &opt);
    assert_int_equal(replica_gpus_count(&r), 1);
    said = replica_gpus_said(&r);
    assert_non_null(said);
    assert_non_null(strstr(said,
                           "GPU 1 is left out: its memory does not hold one "
                           "sequence"));
    said = replica_gpus_said(&r);
    assert_non_null(said);
    assert_non_null(strstr(said, "there is no GPU 9: this machine shows 4"));
    assert_null(replica_gpus_said(&r));
    free(trained(&r, 2));
    replica_close(&r);
}

/* Less memory on one of them: its part is made in smaller micro-batches. */
static void a_smaller_gpu_makes_its_part_in_smaller_steps(void **state)
{
    struct replica_options opt = options(2, 8), alone;
    struct replica_plan plan, less;
    struct replica r, one;
    float *want, *got;
    uint64_t have, before = emu->used_of[1];

    (void)state;
    opt.micro_batch = 4;
    replica_plan_part(&opt, UINT64_MAX, &plan);
    have = plan.state_bytes + plan.work_bytes - 1;
    replica_plan_part(&opt, have, &less);
    assert_true(less.micro_batch == 2 &&
                less.recompute == LLAMA_RECOMPUTE_NOTHING);
    emu->memory_of[1] = before + PRODUCTS + PLUGIN_SPARE_BYTES + have;
    open_replica(&r, &opt);
    assert_int_equal(replica_gpus_count(&r), 2);
    got = trained(&r, 2);
    assert_true(emu->used_of[1] - before <= PRODUCTS + have);
    assert_null(replica_gpus_said(&r));
    alone = options(1, 8);
    open_replica(&one, &alone);
    want = trained(&one, 2);
    assert_true(distance(want, got, r.n) < CLOSE);
    free(want);
    free(got);
    replica_close(&one);
    replica_close(&r);
}

/* The first one fails: as a replica of one GPU, and all are opened again. */
static void the_first_gpu_is_recovered_with_the_others(void **state)
{
    struct replica_options opt = options(3, 6);
    struct replica r;
    float loss;

    (void)state;
    open_replica(&r, &opt);
    free(trained(&r, 1));
    emu->fault_device = 1;
    emu->fail_launch = 4;
    assert_int_equal(replica_step(&r, &loss), LOCO_ECUDA);
    emu->sticky = emu->fault_device = 0;
    assert_int_equal(replica_recover(&r, true, errmsg), 0);
    assert_int_equal(replica_gpus_count(&r), 3);
    free(trained(&r, 1));
    assert_int_equal(replica_recover(&r, false, errmsg), 0);
    assert_int_equal(replica_gpus_count(&r), 0);
    assert_int_equal(replica_step(&r, &loss), 0);
    replica_close(&r);
}

static void all_memory_comes_back(void **state)
{
    uint64_t used = emu->used;
    struct replica_options opt = options(4, 8);
    struct replica r;

    (void)state;
    open_replica(&r, &opt);
    free(trained(&r, 4));
    assert_int_equal(replica_pack(&r), 0);
    assert_true(emu->used_of[3] > 0);
    replica_close(&r);
    assert_int_equal(emu->used, used);
}

static void a_list_of_gpus_is_read(void **state)
{
    static const struct {
        const char *text;
        int shown, first, n;
        int others[3];
    } right[] = {
        {"0", 1, 0, 1, {0}},         {"all", 1, 0, 1, {0}},
        {"all", 4, 0, 4, {1, 2, 3}}, {"2", 4, 2, 1, {0}},
        {"3,0-1", 4, 3, 3, {0, 1}},  {"1-3", 4, 1, 3, {2, 3}},
    };
    static const char *const wrong[] = {
        "",      "x", "0,",   "0-", "1-0", "0,0",
        "0-2,1", "4", "0,,1", "-1", "0 1", "99999999999999999999"};
    struct device_options d = {0};
    const char *why = NULL;

    (void)state;
    for (size_t i = 0; i < sizeof right / sizeof right[0]; i++) {
        assert_int_equal(device_choose(&d, right[i].text, right[i].shown, &why),
                         0);
        assert_int_equal(d.gpu.ordinal, right[i].first);
        assert_int_equal(d.n_others, right[i].n - 1);
        for (int k = 0; k < d.n_others; k++) {
            assert_int_equal(d.others[k], right[i].others[k]);
        }
    }
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        why = NULL;
        assert_int_equal(device_choose(&d, wrong[i], 4, &why), LOCO_EINVAL);
        assert_non_null(why);
    }
}

/* `loco bench train --gpus`: the same losses, steps by all of them, and one
 * that is left out is named. */
static void a_benchmark_shares_its_steps(void **state)
{
    struct bench_train_options opt = {.config = small_replica().model,
                                      .batch = 6,
                                      .micro_batch = 2,
                                      .threads = 1,
                                      .steps = 2};
    struct bench_train_result one, all;
    struct device_options *d = &device;
    struct plugin_info info;

    (void)state;
    opt.device = options(1, 6).device;
    assert_int_equal(bench_train(&opt, &one), 0);
    assert_int_equal(one.gpus, 1);
    opt.device = options(1, 6).device;
    *d = first;
    assert_int_equal(device_find(d, "1,0,2-3", &info, errmsg), 0);
    assert_true(info.gpus == 4 && d->n_others == 3 && d->gpu.ordinal == 1);
    opt.device = d;
    assert_int_equal(bench_train(&opt, &all), 0);
    assert_true(all.gpus == 4 && all.micro_batch == 2);
    assert_string_equal(all.left_out, "");
    assert_true(fabs(all.loss - one.loss) < 1e-4);
    assert_true(fabs(all.mfu * 4 * all.product_flops_per_s / all.flops_per_s -
                     1) < 1e-9);
    d->others[2] = 7;
    assert_int_equal(bench_train(&opt, &all), 0);
    assert_int_equal(all.gpus, 3);
    assert_non_null(strstr(all.left_out, "GPU 7 is left out: there is no GPU"));
    /* One sequence of them: three rest. */
    d->others[2] = 3;
    opt.batch = opt.micro_batch = 1;
    assert_int_equal(bench_train(&opt, &all), 0);
    assert_int_equal(all.gpus, 1);
    /* One that is lost meanwhile: the steps of the others are timed anew. */
    opt.batch = 6;
    opt.micro_batch = 2;
    emu->fault_device = 3;
    emu->fail_launch = 50;
    assert_int_equal(bench_train(&opt, &all), 0);
    emu->fault_device = emu->sticky = 0;
    assert_true(all.gpus == 3 && all.steps == 2);
    assert_non_null(strstr(all.left_out, "GPU 2 is left out: "));
    assert_int_equal(device_list(d, "0,7", errmsg), 0);
    assert_int_equal(device_list(d, "0,,7", errmsg), LOCO_EINVAL);
    assert_int_equal(device_find(d, "0,7", &info, errmsg), LOCO_EINVAL);
    assert_non_null(strstr(errmsg, "gpus 0,7: this machine shows fewer GPUs"));
    assert_int_equal(device_find(d, "x", &info, errmsg), LOCO_EINVAL);
    assert_int_equal(device_find(d, "7", &info, errmsg), LOCO_EDEVICE);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(a_gradient_is_the_one_of_one_gpu, renew),
        cmocka_unit_test_setup(gradients_follow_theta, renew),
        cmocka_unit_test_setup(steps_have_the_same_bits_every_time, renew),
        cmocka_unit_test_setup(a_small_batch_leaves_gpus_idle, renew),
        cmocka_unit_test_setup(each_link_carries_its_slices, renew),
        cmocka_unit_test_setup(a_gpu_that_breaks_takes_no_token_with_it, renew),
        cmocka_unit_test_setup(a_gpu_that_hung_is_not_opened_again, renew),
        cmocka_unit_test_setup(no_memory_lowers_the_micro_batch, renew),
        cmocka_unit_test_setup(gpus_without_peer_access_work, renew),
        cmocka_unit_test_setup(others_rest_where_no_whole_model_is_trained,
                               renew),
        cmocka_unit_test_setup(a_gpu_that_cannot_be_opened_is_left_out, renew),
        cmocka_unit_test_setup(a_smaller_gpu_makes_its_part_in_smaller_steps,
                               renew),
        cmocka_unit_test_setup(the_first_gpu_is_recovered_with_the_others,
                               renew),
        cmocka_unit_test_setup(all_memory_comes_back, renew),
        cmocka_unit_test(a_list_of_gpus_is_read),
        cmocka_unit_test_setup(a_benchmark_shares_its_steps, renew),
    };

    return cmocka_run_group_tests(tests, setup, NULL);
}
