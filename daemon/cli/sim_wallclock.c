/* sim_wallclock.c - loco sim wallclock: hours by arithmetic. */
#include <math.h>
#include <stdbool.h>
#include <stdio.h>

#include <jansson.h>

#include "daemon/cli/cli.h"
#include "proto/base/err.h"
#include "proto/base/errmsg.h"
#include "train/lab/wallclock.h"
#include "train/sync/preset.h"

struct arguments {
    double params, tokens, tflops, mfu, bytes, mbit, latency_ms, batch, exposed;
    uint64_t workers, seed;
    bool groups, json;
    bool bytes_set; /* else each wire has its own */
};

/* The method for which all wires are shown. */
#define WIRES_OF "muon-avg"

static const double spreads[] = {0.0, 0.5, 1.0, 1.5, 2.0, 2.5};
static const unsigned levels[] = {2, 4, 6, 8, 10};
static const uint32_t inner[] = {10, 50, 100};

#define N_OF(x) (sizeof(x) / sizeof((x)[0]))

/* ---- hours of every preset, and of every wire --------------------------- */

static struct wallclock of_arguments(const struct arguments *a)
{
    return (struct wallclock){
        .params = a->params,
        .tokens = a->tokens,
        .workers = (double)a->workers,
        .flops_per_s = a->tflops * 1e12,
        .mfu = a->mfu,
        .bytes_per_value = a->bytes,
        .bytes_per_s = a->mbit * 1e6 / 8,
        .latency_s = a->latency_ms / 1e3,
        .batch_tokens = a->batch,
        .exposed = a->exposed,
    };
}

/* Bytes of a value, scales of blocks included. */
static double bytes_of(const struct codec *codec)
{
    const size_t many = 1U << 20;

    return (double)codec->bytes(many) / (double)many;
}

static double hours_of(const struct arguments *a,
                       const struct method *m,
                       const struct codec *codec)
{
    struct wallclock w = of_arguments(a);

    if (!a->bytes_set) {
        w.bytes_per_value = bytes_of(codec);
    }
    return wallclock_run_s(&w, m) / 3600;
}

static int presets(const struct arguments *a, double compute, json_t *rows)
{
    int bad = 0;

    if (!a->json) {
        (void)printf("compute %.2f hours\n\n%-14s %-6s %12s %10s\n", compute,
                     "preset", "wire", "hours", "compute");
    }
    for (size_t i = 0; bad == 0 && preset_at(i) != NULL; i++) {
        const struct preset *p = preset_at(i);
        const struct codec *codec = codec_get(p->method.wire);
        double h = hours_of(a, &p->method, codec);

        bad = json_object_set_new(rows, p->name, json_real(h));
        if (!a->json) {
            (void)printf("%-14s %-6s %12.2f %9.1f%%\n", p->name,
                         a->bytes_set ? "-" : codec->name, h,
                         100 * compute / h);
        }
    }
    return bad;
}

static int wires(const struct arguments *a, double compute, json_t *rows)
{
    const struct preset *recipe;
    int bad = preset_find(WIRES_OF, &recipe, NULL);

    if (!a->json) {
        (void)printf("\n" WIRES_OF
                     " with each wire; bits: sent by a worker per "
                     "parameter and round\n%-14s %-6s %12s %10s\n",
                     "wire", "bits", "hours", "compute");
    }
    for (unsigned i = 0; bad == 0 && i < CODEC_COUNT; i++) {
        const struct codec *codec = codec_get(i);
        double h = hours_of(a, &recipe->method, codec);
        double bits = 16 * bytes_of(codec) * (1 - 1 / (double)a->workers);

        bad = json_object_set_new(
            rows, codec->name, json_pack("{sfsf}", "bits", bits, "hours", h));
        if (!a->json) {
            (void)printf("%-14s %-6.2f %12.2f %9.1f%%\n", codec->name, bits, h,
                         100 * compute / h);
        }
    }
    return bad;
}

static int hours(const struct arguments *a, json_t *out)
{
    const struct wallclock w = of_arguments(a);
    double compute = wallclock_compute_s(&w) / 3600;
    json_t *by_preset = json_object(), *by_wire = json_object();
    int bad = json_object_set_new(out, "hours", by_preset) |
              json_object_set_new(out, "wires", by_wire) |
              json_object_set_new(out, "compute_hours", json_real(compute));

    bad = bad != 0 ? bad : presets(a, compute, by_preset);
    bad = bad != 0 || a->bytes_set ? bad : wires(a, compute, by_wire);
    return bad == 0 ? 0 : cli_fail(TROUBLE_RESOURCES, "out of memory");
}

/* ---- trees, pairs, waiting ---------------------------------------------- */

static int groups(const struct arguments *a, json_t *out)
{
    json_t *tree = json_array(), *wait = json_array();

    if (tree == NULL || wait == NULL ||
        json_object_set_new(out, "tree_over_pair", tree) ||
        json_object_set_new(out, "all_wait_over_pairs", wait)) {
        return cli_fail(TROUBLE_RESOURCES, "out of memory");
    }
    if (!a->json) {
        (void)printf(
            "tree all-reduce over pair averaging\n"
            "std/mean     4 peers     16       64      256     1024\n");
    }
    for (size_t i = 0; i < N_OF(spreads); i++) {
        json_t *row = json_array();

        (void)json_array_append_new(tree, row);
        if (!a->json) {
            (void)printf("%.1f      ", spreads[i]);
        }
        for (size_t k = 0; k < N_OF(levels); k++) {
            double r = wallclock_tree_ratio(spreads[i], levels[k], a->seed);

            (void)json_array_append_new(row, json_real(r));
            if (!a->json) {
                (void)printf("%9.2f", r);
            }
        }
        if (!a->json) {
            (void)putchar('\n');
        }
    }
    if (!a->json) {
        (void)printf("\nall wait for all, over pairs: 1024 peers, inner steps "
                     "log-normal(1, 0.5)\n");
    }
    for (size_t i = 0; i < N_OF(inner); i++) {
        double r =
            wallclock_blocking_ratio(1024, inner[i], 60, 1.0, 0.5, a->seed);

        (void)json_array_append_new(wait, json_real(r));
        if (!a->json) {
            (void)printf("%3u inner steps  %.3f\n", inner[i], r);
        }
    }
    return 0;
}

int cli_sim_wallclock(const struct cli_call *call)
{
    struct arguments a = {.params = 1.7e9,
                          .tokens = 40e9,
                          .tflops = 989,
                          .mfu = 0.4,
                          .mbit = 1000,
                          .latency_ms = 100,
                          .bytes = NAN,
                          .batch = 2e6,
                          .exposed = 1,
                          .workers = 4,
                          .seed = 1};
    const struct cli_option options[] = {
        {"--params", CLI_REAL, &a.params, "P",
         "parameters of the model (1.7e9)"},
        {"--tokens", CLI_REAL, &a.tokens, "D", "tokens of the run (40e9)"},
        {"--workers", CLI_COUNT, &a.workers, "M", "number of workers (4)"},
        {"--tflops", CLI_REAL, &a.tflops, "S",
         "peak TFLOP/s of a worker (989)"},
        {"--mfu", CLI_REAL, &a.mfu, "SHARE",
         "share of the peak that is reached (0.4)"},
        {"--bytes", CLI_REAL, &a.bytes, "B",
         "bytes per value on every wire (default: that wire's own)"},
        {"--mbit", CLI_REAL, &a.mbit, "RATE",
         "bandwidth of a worker, Mbit/s (1000)"},
        {"--latency-ms", CLI_REAL, &a.latency_ms, "MS",
         "latency of a synchronisation (100)"},
        {"--batch", CLI_REAL, &a.batch, "TOKENS",
         "tokens per step of all workers (2e6)"},
        {"--exposed", CLI_REAL, &a.exposed, "SHARE",
         "share of a synchronisation that does not overlap computing (1)"},
        {"--groups", CLI_FLAG, &a.groups, NULL,
         "compare trees and pairs with uneven message times instead"},
        {"--seed", CLI_COUNT, &a.seed, "S", "seed of --groups (1)"},
        {"--json", CLI_FLAG, &a.json, NULL, "print one JSON object"},
    };
    json_t *out;
    int rv = CLI_PARSE(call, options, NULL, 0, 0);

    if (rv != CLI_GO) {
        return rv;
    }
    a.bytes_set = !isnan(a.bytes);
    if (!(a.params > 0) || !(a.tokens > 0) || a.workers == 0 ||
        !(a.tflops > 0) || !(a.mfu > 0) || (a.bytes_set && !(a.bytes > 0)) ||
        !(a.mbit > 0) || !(a.latency_ms >= 0) || !(a.batch > 0) ||
        !(a.exposed >= 0)) {
        return cli_fail(TROUBLE_USAGE,
                        "sim wallclock: all figures must be above 0, "
                        "--latency-ms and --exposed at least 0");
    }
    out = json_object();
    if (out == NULL) {
        return cli_fail(TROUBLE_RESOURCES, "out of memory");
    }
    rv = a.groups ? groups(&a, out) : hours(&a, out);
    if (rv == 0 && a.json) {
        return cli_print_json(out, JSON_REAL_PRECISION(9));
    }
    json_decref(out);
    return rv;
}
