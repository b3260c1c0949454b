/* bench.c - loco bench train. */
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include <jansson.h>

#include "daemon/cli/cli.h"
#include "daemon/settings/memory_limit.h"
#include "daemon/settings/model_file.h"
#include "proto/base/err.h"
#include "train/replica/bench.h"

struct arguments {
    const char *config, *device, *dtype, *affinity, *isa, *plugin, *tuning;
    const char *optimizer, *gpus;
    uint64_t batch, micro_batch, seq, threads, recompute, steps;
    uint64_t gpu_memory_bytes;
    bool host_moments, dry_run, json;
};

static void print_text(const struct arguments *a,
                       const struct bench_train_result *r)
{
    (void)printf("%s: %lld parameters, %.1f MB of state, %.1f MB workspace\n",
                 a->config, (long long)r->parameters,
                 (double)r->state_bytes / 1e6,
                 (double)r->workspace_bytes / 1e6);
    if (a->dry_run) {
        return;
    }
    (void)printf("%.0f tokens/s, %.2f ms per step (CPU %.2f), %.1f GFLOP/s, "
                 "%.0f %% of a large matrix product's (%d steps, %llu threads, "
                 "%s %s)\n",
                 r->tokens_per_s, r->ms_per_step, r->cpu_ms_per_step,
                 r->flops_per_s / 1e9, r->mfu * 100, r->steps,
                 (unsigned long long)a->threads, r->isa,
                 r->bf16 ? "bf16" : "fp32");
    if (r->gpus > 1) {
        (void)printf("%d GPUs made each gradient\n", r->gpus);
    }
    if (a->host_moments) {
        (void)printf("moments in the host's memory\n");
    }
    if (r->left_out[0] != '\0') {
        (void)printf("%s\n", r->left_out);
    }
    if (r->slow[0] != '\0') {
        (void)printf("%s\n", r->slow);
    }
    if (r->peak_flops_per_s > 0) {
        (void)printf("that product: %.1f GFLOP/s; multiply-adds in registers "
                     "alone: %.1f, of which the steps reach %.0f %%\n",
                     r->product_flops_per_s / 1e9, r->peak_flops_per_s / 1e9,
                     r->flops_per_s / r->peak_flops_per_s * 100);
    }
    (void)printf("peak memory %.1f MB\n", (double)r->max_rss_bytes / 1e6);
}

static int print_json(const struct arguments *a,
                      const struct bench_train_result *r)
{
    json_t *o =
        json_pack("{s:s, s:s, s:I, s:I, s:I}", "config", a->config, "device",
                  a->device, "parameters", (json_int_t)r->parameters,
                  "state_bytes", (json_int_t)r->state_bytes, "workspace_bytes",
                  (json_int_t)r->workspace_bytes);

    if (!a->dry_run) {
        json_object_update_new(
            o,
            json_pack(
                "{s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:i, s:I, s:I, s:I, "
                "s:i, s:b, s:s*, s:s*, s:s*, s:s, s:s}",
                "mfu", r->mfu, "cpu_mfu", r->cpu_mfu, "product_flops_per_s",
                r->product_flops_per_s, "peak_flops_per_s", r->peak_flops_per_s,
                "tokens_per_s", r->tokens_per_s, "ms_per_step", r->ms_per_step,
                "cpu_ms_per_step", r->cpu_ms_per_step, "flops_per_s",
                r->flops_per_s, "steps", r->steps, "max_rss_bytes",
                (json_int_t)r->max_rss_bytes, "threads", (json_int_t)a->threads,
                "micro_batch", (json_int_t)r->micro_batch, "gpus", r->gpus,
                "host_moments", a->host_moments, "slow_product",
                r->slow[0] != '\0' ? r->slow : NULL, "left_out",
                r->left_out[0] != '\0' ? r->left_out : NULL, "gpu",
                r->device[0] != '\0' ? r->device : NULL, "isa", r->isa, "dtype",
                r->bf16 ? "bf16" : "fp32"));
    }
    return cli_print_json(o, JSON_REAL_PRECISION(9));
}

/* Refuse what the machine cannot hold, with the figure, before touching it. A
 * dry run has printed its plan by then. */
static int check_memory(const struct bench_train_result *plan,
                        const struct arguments *a)
{
    uint64_t need = (uint64_t)(plan->state_bytes + plan->workspace_bytes);
    struct memory_limit have;

    memory_limit_read("", &have);
    if (strcmp(a->device, "cuda") == 0) {
        need = (uint64_t)plan->state_bytes / 4; /* theta, on its way there */
        need += a->host_moments ? (uint64_t)plan->state_bytes / 2 : 0;
    }
    if (need <= have.bytes) {
        return LOCO_EXIT_OK;
    }
    return cli_fail(TROUBLE_RESOURCES,
                    "bench train: %s needs %llu MB of memory and %s has %llu "
                    "MB; choose a smaller --micro-batch or --recompute 2",
                    a->config, (unsigned long long)(need >> 20), have.whose,
                    (unsigned long long)(have.bytes >> 20));
}

/* The words of the options. */
static int read_words(struct bench_train_options *bench,
                      const struct arguments *a)
{
    const char *reason;

    if (strcmp(a->device, "cpu") != 0 && strcmp(a->device, "cuda") != 0) {
        return cli_fail(TROUBLE_USAGE, "--device is cpu or cuda, not %s",
                        a->device);
    }
    if (!backend_dtype_named(a->dtype, &bench->dtype)) {
        return cli_fail(TROUBLE_USAGE, "--dtype is fp32, bf16 or auto, not %s",
                        a->dtype);
    }
    if (optimizer_rule_named(a->optimizer, &bench->optimizer) != 0) {
        return cli_fail(
            TROUBLE_USAGE,
            "--optimizer is adamw, adopt, muon, sgdm or sgd, not %s",
            a->optimizer);
    }
    if (affinity_parse(&bench->affinity, a->affinity, bench->threads,
                       &reason) != 0) {
        return cli_fail(TROUBLE_USAGE, "--affinity %s: %s", a->affinity,
                        reason);
    }
    bench->isa = a->isa;
    return LOCO_EXIT_OK;
}

/* A GPU takes bf16 unless fp32 is said. */
static int read_device(struct device_options *device,
                       struct bench_train_options *bench,
                       const struct arguments *a)
{
    struct device_options unused = {.n_others = 0}; /* how many "all" are is
                                                     * not known */
    struct plugin_info info;
    char errmsg[PLUGIN_ERRMSG];
    int rv = 0;

    if (strcmp(a->device, "cuda") != 0) {
        return a->gpus == NULL && !a->host_moments
                   ? LOCO_EXIT_OK
                   : cli_fail(TROUBLE_USAGE, "--%s needs --device cuda",
                              a->gpus != NULL ? "gpus" : "host-moments");
    }
    *device = (struct device_options){
        .plugin = a->plugin,
        .gpu = {.bf16 = strcmp(a->dtype, "fp32") != 0,
                .memory_bytes = a->gpu_memory_bytes,
                .tuning_path = a->tuning},
    };
    bench->device = device;
    if (a->gpus != NULL) {
        rv = a->dry_run
                 ? device_list(strcmp(a->gpus, "all") == 0 ? &unused : device,
                               a->gpus, errmsg)
                 : device_find(device, a->gpus, &info, errmsg);
    }
    return rv == 0 ? LOCO_EXIT_OK
                   : cli_fail(cli_trouble_of(rv, TROUBLE_USAGE),
                              "bench train: %s", errmsg);
}

/* Numbers in range, into the options. */
static int fill_options(struct bench_train_options *bench,
                        const struct arguments *a)
{
    if (a->batch == 0 || a->batch > 4096 || a->micro_batch > a->batch ||
        a->recompute > LLAMA_RECOMPUTE_LAYERS || a->seq > LLAMA_SEQ_MAX ||
        a->threads == 0 || a->threads > BACKEND_THREADS_MAX) {
        return cli_fail(
            TROUBLE_USAGE,
            "--batch is 1 to 4096, --micro-batch at most the batch, --seq at "
            "most %d, --threads 1 to 256, --recompute 0 to 2",
            LLAMA_SEQ_MAX);
    }
    if (a->seq > bench->config.seq) { /* the same model with longer windows */
        bench->config.seq = (uint32_t)a->seq;
    }
    bench->batch = (uint32_t)a->batch;
    bench->seq = (uint32_t)a->seq;
    bench->threads = (int)a->threads;
    bench->micro_batch = (uint32_t)a->micro_batch;
    bench->recompute = (enum llama_recompute)a->recompute;
    bench->host_moments = a->host_moments;
    bench->steps = (int)(a->steps < 10000 ? a->steps : 10000);
    return LOCO_EXIT_OK;
}

static int print_result(const struct arguments *a,
                        const struct bench_train_result *r)
{
    if (a->json) {
        return print_json(a, r);
    }
    print_text(a, r);
    return LOCO_EXIT_OK;
}

/* Count bytes; a dry run prints them. Then whether they can be had. */
static int plan_first(const struct bench_train_options *opt,
                      const struct arguments *a)
{
    struct bench_train_options plan = *opt;
    struct bench_train_result r;
    int rv;

    plan.dry_run = true;
    rv = bench_train(&plan, &r);
    if (rv != 0) {
        return cli_fail(cli_trouble_of(rv, TROUBLE_MODEL), "bench train: %s",
                        loco_strerror(rv));
    }
    if (a->dry_run) {
        rv = print_result(a, &r);
    }
    return rv == LOCO_EXIT_OK ? check_memory(&r, a) : rv;
}

/* The plan, then the steps themselves. */
static int measure(const struct bench_train_options *bench,
                   const struct arguments *a)
{
    struct bench_train_result result;
    int rv;

    rv = plan_first(bench, a);
    if (rv != LOCO_EXIT_OK || a->dry_run) {
        return rv;
    }
    rv = bench_train(bench, &result);
    if (rv != 0 && bench->device != NULL) {
        return cli_fail(cli_trouble_of(rv, TROUBLE_MODEL), "bench train: %s",
                        result.errmsg[0] != '\0' ? result.errmsg
                                                 : loco_strerror(rv));
    }
    if (rv == LOCO_EDEVICE) {
        return cli_fail(TROUBLE_DEVICE,
                        "bench train: this processor or build has no kernels "
                        "for --isa %s --dtype %s; use --isa auto --dtype auto",
                        a->isa != NULL ? a->isa : "auto", a->dtype);
    }
    if (rv != 0) {
        return cli_fail(cli_trouble_of(rv, TROUBLE_MODEL), "bench train: %s",
                        loco_strerror(rv));
    }
    return print_result(a, &result);
}

int cli_bench_train(const struct cli_call *call)
{
    struct arguments a = {.device = "cpu",
                          .dtype = NULL,
                          .affinity = "off",
                          .optimizer = "adamw",
                          .batch = 4,
                          .threads = 1};
    const struct cli_option options[] = {
        {"--config", CLI_TEXT, &a.config, "NAME|FILE", "model to train"},
        {"--batch", CLI_COUNT, &a.batch, "B", "sequences per step (4)"},
        {"--seq", CLI_COUNT, &a.seq, "T", "tokens per sequence (the model's)"},
        {"--threads", CLI_COUNT, &a.threads, "K", "processor threads (1)"},
        {"--affinity", CLI_TEXT, &a.affinity, "off|auto|LIST",
         "processors to bind the threads to (off)"},
        {"--isa", CLI_TEXT, &a.isa, "NAME",
         "kernels: auto, amx, avx512, avx2, neon, baseline, reference (auto)"},
        {"--device", CLI_TEXT, &a.device, "cpu|cuda",
         "device to train on (cpu)"},
        {"--gpus", CLI_TEXT, &a.gpus, "all|LIST",
         "GPUs that share each gradient, such as 0,2-3 (the first)"},
        {"--plugin", CLI_TEXT, &a.plugin, "FILE",
         "the CUDA plug-in (libloco_cuda.so beside this program)"},
        {"--tuning", CLI_TEXT, &a.tuning, "FILE",
         "time the GPU's matrix products and cache the results here (off)"},
        {"--gpu-memory-bytes", CLI_COUNT, &a.gpu_memory_bytes, "N",
         "limit of GPU memory (as much as needed)"},
        {"--steps", CLI_COUNT, &a.steps, "N",
         "steps to time (as many as fit into 5 s)"},
        {"--dtype", CLI_TEXT, &a.dtype, "fp32|bf16|auto",
         "operands of matrix products (fp32; bf16 on a GPU)"},
        {"--optimizer", CLI_TEXT, &a.optimizer, "NAME",
         "adamw, adopt, muon, sgdm, sgd (adamw)"},
        {"--micro-batch", CLI_COUNT, &a.micro_batch, "B",
         "sequences per pass (the whole batch)"},
        {"--recompute", CLI_COUNT, &a.recompute, "LEVEL",
         "activations to recompute: 0 none, 1 branches, 2 layers (0)"},
        {"--host-moments", CLI_FLAG, &a.host_moments, NULL,
         "keep the optimizer's moments in this machine's memory (on the GPU)"},
        {"--dry-run", CLI_FLAG, &a.dry_run, NULL,
         "count parameters and bytes, do not train"},
        {"--json", CLI_FLAG, &a.json, NULL, "print one JSON object"},
    };
    struct bench_train_options bench = {.steps = 0};
    struct device_options device;
    char errmsg[ERRMSG_SIZE];
    int rv = CLI_PARSE(call, options, NULL, 0, 0);

    if (rv != CLI_GO) {
        return rv;
    }
    if (a.config == NULL) {
        return cli_fail(TROUBLE_USAGE, "bench train: --config is missing");
    }
    rv = model_find(a.config, &bench.config, errmsg);
    if (rv != 0) {
        return cli_fail(TROUBLE_MODEL, "%s", errmsg);
    }
    if (fill_options(&bench, &a) != LOCO_EXIT_OK) {
        return LOCO_EXIT_USAGE;
    }
    if (a.dtype == NULL) {
        a.dtype = strcmp(a.device, "cuda") == 0 ? "bf16" : "fp32";
    }
    rv = read_words(&bench, &a);
    if (rv != LOCO_EXIT_OK) {
        return rv;
    }
    rv = read_device(&device, &bench, &a);
    return rv == LOCO_EXIT_OK ? measure(&bench, &a) : rv;
}
