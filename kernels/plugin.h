/* plugin.h - what libloco_cuda.so hands over: a table of launchers.
 *
 * The plug-in is one shared library with one exported function,
 * loco_device_plugin(). device.h opens it with dlopen, so that a machine
 * without a GPU needs nothing of CUDA. Both sides compare PLUGIN_ABI and the
 * table's size before anything else is read: a plug-in of another build is
 * refused, not called.
 *
 * Every function that can fail returns 0 or a LOCO_E* code and leaves a
 * sentence for plugin_table.message(). LOCO_ENOMEM leaves the device usable;
 * LOCO_ECUDA and LOCO_ETIMEOUT do not: all later calls return the same code at
 * once, and close() gives back what it still can.
 *
 * Launchers queue work on the device's one compute stream and return before it
 * is done. Buffers are device memory from take(), except where backend.h says
 * that they are the caller's. One thread at a time.
 */
#ifndef LOCO_KERNELS_PLUGIN_H
#define LOCO_KERNELS_PLUGIN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "kernels/backend.h"
#include "proto/base/codec_type.h"

#define PLUGIN_ABI     10u
#define PLUGIN_ERRMSG  256
#define PLUGIN_SYMBOL  "loco_device_plugin"
#define PLUGIN_LIBRARY "libloco_cuda.so"

/* What launchers take of the GPU's memory depends on these, and so does the
 * plan made before (device.h): rows of one token that one block of embed_bwd
 * sums, and rows of partial sums of a norm's weights. */
#define PLUGIN_EMBED_SEGMENT 64
#define PLUGIN_NORM_BLOCKS   264

/* One opened GPU; the plug-in's own. */
struct gpu;

struct plugin_options {
    int ordinal;             /* which GPU */
    bool bf16;               /* activations and products; false: fp32, slow */
    uint64_t memory_bytes;   /* most that take() gives in all; 0: no cap */
    uint32_t timeout_ms;     /* of a wait without an answer; 0: 120 s */
    const char *tuning_path; /* where choices of matrix products are kept, so
                              * that a restart makes the same bits; NULL: no
                              * measuring, the library's first choice */
};

/* What stays free on the GPU: the driver loads a kernel, ours or cuBLASLt's,
 * when it first runs, and one of ours that finds no memory then breaks the GPU.
 */
#define PLUGIN_SPARE_BYTES ((uint64_t)512 << 20)

/* What the workspace of products takes under the cap, before free_bytes. */
#define PLUGIN_PRODUCTS_BYTES ((uint64_t)64 << 20)

struct plugin_info {
    char name[128];
    char isa[16]; /* "sm_90" */
    uint64_t total_bytes;
    uint64_t free_bytes; /* now, under the cap, without PLUGIN_SPARE_BYTES */
    uint32_t multiprocessors;
    int gpus; /* that CUDA shows to this process */
    int runtime_version, driver_version, product_version;
};

/* g (n) from wire bytes, and the outer step on it: codec.h and rule.h of
 * train/sync with the same bits. Vectors and bytes are device memory; the
 * layouts are those of codec.h. */
struct wire_op {
    enum codec_id wire;
    uint8_t *bytes;     /* encode: =; decode: read */
    float *x;           /* decode: (n) = */
    const float *phi;   /* encode: (n) */
    const float *theta; /* encode: bytes = enc(scale * (phi - theta)); NULL:
                         * enc(scale * phi) */
    float scale;
    int64_t n;
};

/* Outer rule: rule.h's struct rule, outer_state in and out (out may be in). */
struct outer_op {
    bool heavy_ball;
    float lr, mu, gamma;
    const float *phi, *m, *g;
    const float *mean_phi; /* NULL: no pull */
    float *phi_out;        /* NULL: only whether it would be finite */
    float *m_out;          /* NULL allowed without momentum */
    int64_t n;
};

/* out = phi_new + (theta - phi_old), or = phi_old - theta where phi_new is
 * NULL. */
struct shift_op {
    const float *phi_new, *theta, *phi_old;
    float *out;
    int64_t n;
};

/* theta = phi + keep (theta - phi): mix_toward() of train/sync/mix.h where
 * keep is neither 0 nor 1. */
struct mix_op {
    float *theta;
    const float *phi;
    float keep;
    int64_t n;
};

/* The means of two partners (train/sync/pair_mean.h): out = low / 2 + high / 2,
 * or, with phi, = phi + (high - low) / 2, where low is the own one. out may be
 * any of them. */
struct pair_op {
    const float *phi; /* NULL: of displacements */
    const float *low, *high;
    float *out;
    int64_t n;
};

/* A part of a cycle of delayed Nesterov (train/sync/delayed.h), with the
 * factors of its struct delayed_part. phi_out may be phi; m and sum change in
 * place. */
struct delayed_op {
    float k, size, lr, mu, early, late;
    bool flush;
    const float *g, *phi;
    float *phi_out, *m, *sum;
    int64_t n;
};

/* What train/sync/batch_size.h wants of two halves of a batch: |first|^2,
 * |second|^2, then second += first (rounded as on a processor) and its
 * |second|^2. Sums of chunks in double as sumsq's, added in a fixed order: the
 * same bits every time, not those of the processor. */
struct halves_op {
    const float *first; /* (n) */
    float *second;      /* (n) += */
    double *norms2;     /* (3) =, the caller's memory */
    int64_t n;
};

/* to (n) += from (n): gradients of GPUs that share a batch. */
struct add_op {
    const float *from;
    float *to;
    int64_t n;
};

/* clang-format off */
/* All launchers of kernels, as BACKEND_KERNELS. delayed, and those from encode
 * to halves but for mix, wait: LOCO_ENUMERIC and LOCO_EPROTO as in codec.h and
 * rule.h. */
#define PLUGIN_KERNELS(X)                                                      \
    BACKEND_KERNELS(X)                                                         \
    X(rmsnorm_back, rmsnorm, 0)                                                \
    X(encode, wire_op, 0)                                                      \
    X(decode, wire_op, 0)                                                      \
    X(outer, outer_op, 0)                                                      \
    X(shift, shift_op, 0)                                                      \
    X(mix, mix_op, 0)                                                          \
    X(halves, halves_op, 0)                                                    \
    X(add, add_op, 0)                                                          \
    X(pair, pair_op, 0)                                                        \
    X(delayed, delayed_op, 0)
/* clang-format on */

#ifndef __cplusplus /* members have the names of structs */
struct plugin_table {
    uint32_t abi;
    uint32_t bytes;
    const char *version; /* LOCO_VERSION of the build */

    /* LOCO_EDEVICE: no driver, no such GPU, too old a GPU or no cuBLASLt, with
     * a sentence in errmsg (PLUGIN_ERRMSG); LOCO_ENOMEM, LOCO_ECUDA. */
    int (*open)(struct gpu **gpu,
                const struct plugin_options *opt,
                struct plugin_info *info,
                char *errmsg);
    void (*close)(struct gpu *gpu);
    const char *(*message)(const struct gpu *gpu);
    /* What a person should know though nothing failed, in order and each once:
     * a shape of a product that the library has nothing for. Valid until the
     * next call; NULL: no more. */
    const char *(*said)(struct gpu *gpu);

    int (*take)(struct gpu *gpu, void **p, size_t bytes);
    /* Memory of the host that kernels, put(), get() and clear() take as they
     * take the device's: read and written over PCIe where it lies, so for what
     * a step touches once. Under no cap. LOCO_ENOMEM: the system refuses, or
     * with what is registered it would be more than half of this machine's
     * memory. */
    int (*take_host)(struct gpu *gpu, void **p, size_t bytes);
    void (*give)(struct gpu *gpu, void *p); /* of either */
    int (*put)(struct gpu *gpu, void *to, const void *from, size_t bytes);
    int (*get)(struct gpu *gpu, void *to, const void *from, size_t bytes);
    int (*clear)(struct gpu *gpu, void *p, size_t bytes);
    /* Within the device, in the order of the compute stream. */
    int (*copy)(struct gpu *gpu, void *to, const void *from, size_t bytes);
    /* From another GPU of this process, in the order of this one's compute
     * stream. Nothing that writes to `from` may be under way there: the other
     * has finished. No other call of the other GPU is made, so its thread may
     * use it meanwhile. */
    int (*copy_from)(struct gpu *gpu,
                     void *to,
                     const struct gpu *other,
                     const void *from,
                     size_t bytes);
    int (*use_theta)(struct gpu *gpu,
                     const float *theta,
                     int64_t n,
                     const struct theta_copy *copy);
    int (*finish)(struct gpu *gpu);
    /* Memory of the host that the device reads at full speed. */
    int (*pin)(struct gpu *gpu, void **p, size_t bytes);
    void (*unpin)(struct gpu *gpu, void *p);
    /* The same for memory that the caller has already: whole pages (else
     * LOCO_EINVAL), nothing of it registered before (LOCO_EBUSY), until
     * host_unregister() or close(), which must come before it is freed. put(),
     * get() and the copies beside then move it without a copy in between.
     * LOCO_ENOMEM: the system refuses, or it would be more than half of this
     * machine's memory; everything goes on without. What was on its way into
     * such memory when a GPU broke reads as anything; a GPU that answers
     * later does not write there any more. */
    int (*host_register)(struct gpu *gpu, void *p, size_t bytes);
    void (*host_unregister)(struct gpu *gpu, void *p);
    bool (*is_registered)(const struct gpu *gpu, const void *p, size_t bytes);
    /* Copies between pinned or registered memory and the device on the copy
     * stream, beside whatever is computed meanwhile: after the work queued so
     * far; what is queued later does not wait for them, until copies_done(). */
    int (*put_beside)(struct gpu *gpu,
                      void *to,
                      const void *pinned,
                      size_t bytes);
    int (*get_beside)(struct gpu *gpu,
                      void *pinned,
                      const void *from,
                      size_t bytes);
    int (*copies_done)(struct gpu *gpu);

#define X(kernel, type, units)                                                 \
    int (*kernel)(struct gpu * gpu, const struct type *op);
    PLUGIN_KERNELS(X)
#undef X
};

typedef const struct plugin_table *(*plugin_entry)(void);
#endif

#endif
