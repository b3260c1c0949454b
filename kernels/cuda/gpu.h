/* gpu.h - the inside of the plug-in: one opened GPU.
 *
 * gpu.c owns it; gemm.c and the launchers of the .cu files use it. A launcher
 * checks its shapes, launches on g->stream and ends with
 * `return gpu_launched(g, "name")`.
 */
#ifndef LOCO_KERNELS_CUDA_GPU_H
#define LOCO_KERNELS_CUDA_GPU_H

#include <cuda_runtime_api.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif
#include "kernels/plugin.h"

/* Device memory of the launchers' own, grown when a larger one is wanted; each
 * use may overwrite what it holds, in the order of the stream. */
enum gpu_slot {
    SLOT_TOKENS,
    SLOT_TARGETS,
    SLOT_EMBED_PLAN,
    SLOT_EMBED_PARTS,
    SLOT_NORM_PARTS,
    SLOT_SUMSQ,
    SLOT_DELTA,
    SLOT_FLAGS,
    SLOT_WORKSPACE, /* of cuBLASLt */
    SLOT_COUNT
};

#define STAGE_BYTES ((size_t)4 << 20) /* one of two pinned halves */

#define ARRIVING_MAX 4

/* Sentences that wait to be read; more are not kept. */
#define SAID_MAX 8

struct gemm;
struct registration;

/* Memory of the caller that the device is writing to. */
struct arriving {
    unsigned char *to;
    size_t bytes;
};

struct gpu {
    struct plugin_options opt;
    cudaStream_t stream; /* all compute */
    cudaStream_t copies; /* put_beside, get_beside */
    cudaEvent_t mark;    /* for waits on `stream` */
    cudaEvent_t beside;  /* for waits between the two */
    unsigned char *stage[2];
    cudaEvent_t staged[2]; /* when the device has read that half */
    bool stage_busy[2];
    int stage_at; /* the half being filled */
    size_t stage_used;
    void *slot[SLOT_COUNT];
    size_t slot_bytes[SLOT_COUNT];
    uint64_t taken_bytes; /* by take() and slots; the cap counts them */
    struct allocation *taken;
    struct registration *registered; /* registered.c */
    struct arriving arriving[ARRIVING_MAX];
    int n_arriving;
    /* use_theta() */
    const float *theta;
    int64_t theta_n;
    struct theta_copy copy; /* no memory: none */
    bool copy_fresh;
    struct gemm *gemm;
    uint32_t *host_plan; /* embed_bwd's, grown when needed */
    size_t host_plan_bytes;
    unsigned met; /* bits of the GPUs whose memory this one was told of */
    int multiprocessors;
    size_t shared_bytes; /* of a multiprocessor, all of its blocks together */
    int sm;              /* 90: compute capability 9.0 */
    int broken;          /* 0, or what every call returns from now on */
    char message[PLUGIN_ERRMSG];
    char said[SAID_MAX][PLUGIN_ERRMSG]; /* plugin.h */
    int n_said, n_read;
};

/* 0, or the code of a CUDA error with its sentence. */
int gpu_check(struct gpu *g, cudaError_t e, const char *what);
int gpu_launched(struct gpu *g, const char *what);

/* Room for one more sentence; NULL: none. */
char *gpu_say(struct gpu *g);

/* A sentence and its code; LOCO_ECUDA and LOCO_ETIMEOUT break the GPU. */
int gpu_fail(struct gpu *g, int code, const char *what, const char *why);

/* At least that many bytes in *p. */
int gpu_slot(struct gpu *g, enum gpu_slot slot, size_t bytes, void **p);

/* `bytes` of the caller's memory into a slot, in the stream's order; the
 * caller's memory is free when this returns. */
int gpu_upload(struct gpu *g,
               enum gpu_slot slot,
               const void *from,
               size_t bytes,
               void **p);

/* From device memory to the caller's; waits. */
int gpu_download(struct gpu *g, void *to, const void *from, size_t bytes);

/* Wait for an event; LOCO_ETIMEOUT after opt.timeout_ms. */
int gpu_wait(struct gpu *g, cudaEvent_t event, const char *what);

/* Everything queued on the compute stream so far is done. */
int gpu_wait_stream(struct gpu *g, const char *what);

/* Everything on both streams is done: before calls of CUDA that would wait for
 * it without a deadline. */
int gpu_wait_all(struct gpu *g, const char *what);

/* Bytes of the host's memory that take_host() gave, with those that GPUs which
 * hang still hold. */
uint64_t gpu_host_bytes(const struct gpu *g);

/* Locked pages cannot be swapped: LOCO_ENOMEM where with `bytes` more of them
 * more than half of this machine's memory would be. */
int gpu_may_lock(struct gpu *g, size_t bytes, const char *what);

/* To lock pages was refused, and the GPU is as it was; CUDA has forgotten it.
 */
bool gpu_is_refusal(cudaError_t e);

/* The trainer's thread may not be the one that opened the GPU. */
int gpu_enter(struct gpu *g);

/* ---- registered.c: memory of the caller that the driver knows -------------
 * (plugin.h: host_register) */
int gpu_host_register(struct gpu *g, void *p, size_t bytes);
void gpu_host_unregister(struct gpu *g, void *p);
void gpu_unregister_all(struct gpu *g);
bool gpu_is_registered(const struct gpu *g, const void *p, size_t bytes);

/* Copies by way of nothing; they wait. */
int gpu_put_registered(struct gpu *g, void *to, const void *from, size_t bytes);
int gpu_get_registered(struct gpu *g, void *to, const void *from, size_t bytes);

/* A copy to registered memory is on its way; there is room for it. */
void gpu_arriving(struct gpu *g, void *to, size_t bytes);

/* The GPU is given up: what it still writes goes to pages that are nobody's. */
void gpu_abandon(struct gpu *g);

/* Somebody wrote [p, p + bytes): the bf16 copy may be old. */
void gpu_touched(struct gpu *g, const void *p, size_t bytes);

/* The bf16 copy of theta + i where `theta` + i is p and it is in step; NULL. */
void *gpu_copy_of(const struct gpu *g, const float *p);

/* How many of n elements from p on the copy has without its zeros between. */
int64_t gpu_piece_of(const struct gpu *g, const float *p, int64_t n);

/* Bring the copy up to date; 0 where there is none. */
int gpu_refresh_copy(struct gpu *g);

int gemm_open(struct gpu *g, char *errmsg);
void gemm_close(struct gpu *g);
/* Only what is this process's: the GPU broke, or hangs. */
void gemm_forget(struct gpu *g);
int gemm_product_version(const struct gpu *g);

/* ---- launchers ---------------------------------------------------------- */
#define X(kernel, type, units)                                                 \
    int cuda_##kernel(struct gpu *g, const struct type *op);
PLUGIN_KERNELS(X)
#undef X
/* matmul without cuBLASLt: any shape, slow. */
int cuda_matmul_plain(struct gpu *g, const struct matmul *op);
/* *norm2: device memory until the next sum, |x|^2 of x (n) */
int gpu_norm2(struct gpu *g, const float *x, int64_t n, double **norm2);
/* to (n) bf16 = from (n), wherever they begin */
int cuda_round_copy(struct gpu *g, void *to, const float *from, int64_t n);
/* attention by warpgroup products: sm_90, bf16, heads of 64 (and 128, forward),
 * what flash_serves() says */
int cuda_attention_fwd_hopper(struct gpu *g, const struct attention *op);
int cuda_attention_dkv_hopper(struct gpu *g,
                              const struct attention *op,
                              const float *delta);
int cuda_attention_dq_hopper(struct gpu *g,
                             const struct attention *op,
                             const float *delta);

/* attention that takes any head size up to 256, slow */
int cuda_attention_fwd_plain(struct gpu *g, const struct attention *op);
int cuda_attention_bwd_plain(struct gpu *g, const struct attention *op);
/* Sequences and heads are the y and z of a grid, which end at 65,535.
 * LOCO_ENOMEM where there are more: the caller tries a smaller micro-batch. */
int cuda_attention_fits(struct gpu *g, const struct attention *op);
/* delta (B, H, T) = sum of dout * out */
int cuda_attention_delta(struct gpu *g,
                         const struct attention *op,
                         float *delta);

#ifdef __cplusplus
}
#endif

#endif
