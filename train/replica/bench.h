/* bench.h - how fast this machine trains a model: `loco bench train`.
 *
 * Times whole steps (forward, backward, clip, optimizer) on random tokens after
 * two that warm caches and JIT. The figure is that of the median step. Several
 * GPUs (device->n_others) share each gradient as in a replica (gpus.h).
 */
#ifndef LOCO_TRAIN_REPLICA_BENCH_H
#define LOCO_TRAIN_REPLICA_BENCH_H

#include <stdbool.h>
#include <stdint.h>

#include "kernels/affinity.h"
#include "kernels/backend.h"
#include "kernels/device.h"
#include "train/model/llama.h"
#include "train/model/llama_config.h"
#include "train/model/optimizer.h"

struct bench_train_options {
    struct llama_config config;
    uint32_t batch;       /* sequences of a step */
    uint32_t micro_batch; /* of those, in one pass; 0: all */
    uint32_t seq;         /* 0: the model's */
    int threads;
    struct affinity affinity; /* of those threads; zeroes: off */
    const char *isa;          /* as in backend_cpu_isa(); NULL: "auto" */
    int steps; /* timed ones; 0: as many as fit into 5 s, at least 3 */
    enum backend_dtype dtype;
    enum llama_recompute recompute;
    enum optimizer_rule optimizer; /* the steps'; 0: AdamW */
    bool host_moments; /* of a GPU: in the host's memory (backend.h) */
    bool dry_run;      /* only count parameters and bytes */
    const struct device_options *device; /* a GPU; NULL: this processor */
};

struct bench_train_result {
    int64_t parameters;
    int64_t workspace_bytes; /* activations and scratch */
    int64_t state_bytes;     /* theta, gradient, two moments */
    int steps;
    double tokens_per_s;
    double ms_per_step;
    double cpu_ms_per_step; /* of all threads, the cheapest step: comparable
                             * on a machine that others use too */
    double flops_per_s;     /* by llama_flops_per_token() */
    /* The best large matrix product with the same kernels, dtype and threads,
     * and what share of it whole steps reach: the median step in wall time,
     * the cheapest in CPU time. */
    double product_flops_per_s;
    double peak_flops_per_s; /* backend_peak_flops() */
    double mfu, cpu_mfu;     /* of several GPUs: of as many such products */
    int64_t max_rss_bytes;
    double loss;              /* mean of the last step, nats per token */
    const char *isa;          /* static text */
    bool bf16;                /* what dtype came to */
    uint32_t micro_batch;     /* in use; of several GPUs on the first */
    int gpus;                 /* that made each gradient; 0: none */
    char device[128];         /* the GPU's name; "" */
    char slow[PLUGIN_ERRMSG]; /* the first product that the GPU's library lacks;
                               * "" */
    char errmsg[PLUGIN_ERRMSG];   /* of a GPU that failed; "" */
    char left_out[PLUGIN_ERRMSG]; /* what was said of the first of several GPUs
                                   * that is left out; "" */
};

/* On a GPU the micro-batch is halved until it fits, and a step's time is that
 * of the GPU being done. LOCO_EINVAL for options out of range, LOCO_EDEVICE for
 * a set of kernels or a dtype that this processor lacks, LOCO_ENOMEM,
 * LOCO_ENUMERIC. */
int bench_train(const struct bench_train_options *opt,
                struct bench_train_result *result);

#endif
