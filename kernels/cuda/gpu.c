/* gpu.c - the plug-in's host side: a GPU's life, memory, copies and waits.
 *
 * The happy path: open() finds the GPU and makes two streams, pinned staging
 * memory and cuBLASLt; launchers queue work on g->stream; finish() waits.
 *
 * What can go wrong: no driver, no GPU or one before sm_80 (LOCO_EDEVICE with a
 * sentence); no memory (LOCO_ENOMEM, the GPU stays usable); a CUDA error, which
 * CUDA never forgets, or a wait without an answer for timeout_ms: then the GPU
 * is *broken*, every call returns the same code at once, and close() frees
 * nothing that could block. Nothing here ends the process, waits without a
 * deadline or copies from pageable memory while the device works.
 *
 * No call synchronises the whole device: waits poll one event, first busily
 * (a step of a small model is shorter than a sleep), then with short sleeps.
 * CUDA has no wait with a deadline. A launch on a GPU that hangs blocks when
 * the queue is full, so every launcher asks first whether the GPU is broken.
 * Memory is freed, also pinned memory, only when both streams are idle:
 * cudaFree waits for them without a deadline.
 */
#include "kernels/cuda/gpu.h"

#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "proto/base/err.h"

#define TIMEOUT_MS     120000u
#define SPIN_MS        2.0
#define SM_MIN         80
#define PEERS_MAX      31 /* bits of `met` */
#define DRIVER_ANSWERS "no answer from the GPU"

/* One piece of memory from take() or take_host(). */
struct allocation {
    struct allocation *next;
    void *p;
    size_t bytes;
    bool host;
};

/* ---- errors ------------------------------------------------------------- */

int gpu_fail(struct gpu *g, int code, const char *what, const char *why)
{
    if (g->broken != 0) {
        return g->broken; /* the first sentence stays */
    }
    (void)snprintf(g->message, sizeof g->message, "%s: %s", what, why);
    if (code == LOCO_ECUDA || code == LOCO_ETIMEOUT) {
        g->broken = code;
        gpu_abandon(g);
    }
    return code;
}

int gpu_check(struct gpu *g, cudaError_t e, const char *what)
{
    if (g->broken != 0) {
        return g->broken;
    }
    if (e == cudaSuccess) {
        return 0;
    }
    (void)cudaGetLastError(); /* else a later launch would report it */
    return gpu_fail(g,
                    e == cudaErrorMemoryAllocation ? LOCO_ENOMEM : LOCO_ECUDA,
                    what, cudaGetErrorString(e));
}

int gpu_launched(struct gpu *g, const char *what)
{
    return gpu_check(g, cudaGetLastError(), what);
}

static double now_ms(void)
{
    struct timespec ts;

    (void)clock_gettime(CLOCK_MONOTONIC, &ts);
    return 1e3 * (double)ts.tv_sec + 1e-6 * (double)ts.tv_nsec;
}

int gpu_wait(struct gpu *g, cudaEvent_t event, const char *what)
{
    const struct timespec nap = {.tv_nsec = 50000};
    double limit = g->opt.timeout_ms > 0 ? g->opt.timeout_ms : TIMEOUT_MS;
    double began = now_ms();

    for (;;) {
        cudaError_t e = g->broken != 0 ? cudaSuccess : cudaEventQuery(event);
        double waited = now_ms() - began;

        if (e != cudaErrorNotReady) {
            return gpu_check(g, e, what);
        }
        (void)cudaGetLastError(); /* "not ready" may stay there otherwise */
        if (waited > limit) {
            return gpu_fail(g, LOCO_ETIMEOUT, what, DRIVER_ANSWERS);
        }
        if (waited < SPIN_MS) {
            (void)sched_yield();
        } else {
            (void)nanosleep(&nap, NULL);
        }
    }
}

int gpu_wait_stream(struct gpu *g, const char *what)
{
    int rv = gpu_check(g, cudaEventRecord(g->mark, g->stream), what);

    return rv != 0 ? rv : gpu_wait(g, g->mark, what);
}

/* For what is on the copy stream. */
static int wait_copies(struct gpu *g, const char *what)
{
    int rv = gpu_check(g, cudaEventRecord(g->beside, g->copies), what);

    rv = rv != 0 ? rv : gpu_wait(g, g->beside, what);
    if (rv == 0) {
        g->n_arriving = 0;
    }
    return rv;
}

int gpu_wait_all(struct gpu *g, const char *what)
{
    int rv = wait_copies(g, what);

    return rv != 0 ? rv : gpu_wait_stream(g, what);
}

int gpu_enter(struct gpu *g)
{
    return g->broken != 0
               ? g->broken
               : gpu_check(g, cudaSetDevice(g->opt.ordinal), "set device");
}

/* ---- memory ------------------------------------------------------------- */

static bool over_cap(const struct gpu *g, size_t bytes)
{
    return g->opt.memory_bytes > 0 &&
           (bytes > g->opt.memory_bytes ||
            g->taken_bytes > g->opt.memory_bytes - bytes);
}

static int device_malloc(struct gpu *g, void **p, size_t bytes)
{
    int rv;

    *p = NULL;
    if (over_cap(g, bytes)) {
        return gpu_fail(g, LOCO_ENOMEM, "memory",
                        "the cap on this GPU's memory is reached");
    }
    rv = gpu_check(g, cudaMalloc(p, bytes > 0 ? bytes : 1), "memory");
    if (rv == 0) {
        g->taken_bytes += bytes;
    }
    return rv;
}

/* Of take_host(), of GPUs that hang: nobody can give it back. */
static _Atomic uint64_t hung_bytes;

/* Pinned, so the driver maps it for the GPU at the address that it has here. */
static int host_malloc(struct gpu *g, void **p, size_t bytes)
{
    static const char what[] = "memory of the host";
    int rv = gpu_may_lock(g, bytes, what);
    cudaError_t e;

    rv = rv != 0 ? rv : gpu_wait_all(g, what); /* CUDA may, without an end */
    if (rv != 0) {
        return rv;
    }
    e = cudaHostAlloc(p, bytes > 0 ? bytes : 1, cudaHostAllocMapped);
    return e == cudaSuccess || !gpu_is_refusal(e)
               ? gpu_check(g, e, what)
               : gpu_fail(g, LOCO_ENOMEM, what, cudaGetErrorString(e));
}

uint64_t gpu_host_bytes(const struct gpu *g)
{
    uint64_t sum = atomic_load(&hung_bytes);

    for (const struct allocation *a = g->taken; a != NULL; a = a->next) {
        sum += a->host ? a->bytes : 0;
    }
    return sum;
}

/* Whether take_host() gave p, the first byte of it or a later one. */
static bool is_host(const struct gpu *g, const void *p)
{
    const unsigned char *at = p;

    for (const struct allocation *a = g->taken; a != NULL; a = a->next) {
        const unsigned char *from = a->p;

        if (a->host && at >= from && at < from + a->bytes) {
            return true;
        }
    }
    return false;
}

static int take_either(struct gpu *g, void **p, size_t bytes, bool host)
{
    struct allocation *a;
    int rv = gpu_enter(g);

    *p = NULL;
    if (rv != 0) {
        return rv;
    }
    a = malloc(sizeof *a);
    if (a == NULL) {
        return LOCO_ENOMEM;
    }
    rv = host ? host_malloc(g, &a->p, bytes) : device_malloc(g, &a->p, bytes);
    if (rv != 0) {
        free(a);
        return rv;
    }
    a->bytes = bytes;
    a->host = host;
    a->next = g->taken;
    g->taken = a;
    *p = a->p;
    return 0;
}

static int gpu_take(struct gpu *g, void **p, size_t bytes)
{
    return take_either(g, p, bytes, false);
}

static int gpu_take_host(struct gpu *g, void **p, size_t bytes)
{
    return take_either(g, p, bytes, true);
}

static void gpu_give(struct gpu *g, void *p)
{
    struct allocation **at = &g->taken;

    (void)gpu_enter(g);
    while (*at != NULL && (*at)->p != p) {
        at = &(*at)->next;
    }
    if (*at != NULL) {
        struct allocation *a = *at;

        *at = a->next;
        g->taken_bytes -= a->host ? 0 : a->bytes;
        /* cudaFree waits for the device: never after a hang */
        if (g->broken == 0 && gpu_wait_all(g, "give") == 0) {
            (void)gpu_check(g, a->host ? cudaFreeHost(p) : cudaFree(p), "give");
        }
        if (a->host && g->broken == LOCO_ETIMEOUT) {
            atomic_fetch_add(&hung_bytes, a->bytes);
        }
        free(a);
    }
}

int gpu_slot(struct gpu *g, enum gpu_slot slot, size_t bytes, void **p)
{
    int rv = g->broken;

    if (rv == 0 && g->slot_bytes[slot] < bytes) {
        if (g->slot[slot] != NULL) {
            rv = gpu_wait_all(g, "scratch");
            rv =
                rv != 0 ? rv : gpu_check(g, cudaFree(g->slot[slot]), "scratch");
            g->taken_bytes -= g->slot_bytes[slot];
            g->slot[slot] = NULL;
            g->slot_bytes[slot] = 0;
        }
        rv = rv != 0 ? rv : device_malloc(g, &g->slot[slot], bytes);
        if (rv == 0) {
            g->slot_bytes[slot] = bytes;
        }
    }
    *p = g->slot[slot];
    return rv;
}

void gpu_touched(struct gpu *g, const void *p, size_t bytes)
{
    const unsigned char *from = p;
    const unsigned char *theta = (const unsigned char *)g->theta;

    if (theta != NULL && from < theta + (size_t)g->theta_n * sizeof(float) &&
        theta < from + bytes) {
        g->copy_fresh = false;
    }
}

/* Element i of theta in its copy. */
static unsigned char *copy_at(const struct gpu *g, int64_t i)
{
    int64_t skipped = i < g->copy.at ? 0 : g->copy.zeros;

    return (unsigned char *)g->copy.memory + 2 * (i + skipped);
}

void *gpu_copy_of(const struct gpu *g, const float *p)
{
    return g->copy.memory != NULL && g->copy_fresh && p >= g->theta &&
                   p < g->theta + g->theta_n
               ? copy_at(g, p - g->theta)
               : NULL;
}

int64_t gpu_piece_of(const struct gpu *g, const float *p, int64_t n)
{
    int64_t left = g->copy.at - (p - g->theta);

    return g->copy.memory != NULL && g->copy.zeros > 0 && p >= g->theta &&
                   left > 0 && left < n
               ? left
               : n;
}

static int refresh_part(struct gpu *g, int64_t from, int64_t end)
{
    return from == end ? 0
                       : cuda_round_copy(g, copy_at(g, from), g->theta + from,
                                         end - from);
}

int gpu_refresh_copy(struct gpu *g)
{
    int64_t at = g->copy.at;
    int rv;

    if (g->copy.memory == NULL || g->copy_fresh) {
        return 0;
    }
    rv = refresh_part(g, 0, at);
    rv = rv != 0 ? rv : refresh_part(g, at, g->theta_n);
    if (rv == 0 && g->copy.zeros > 0) {
        unsigned char *zeros = (unsigned char *)g->copy.memory + 2 * at;

        rv = gpu_check(
            g, cudaMemsetAsync(zeros, 0, 2 * (size_t)g->copy.zeros, g->stream),
            "copy of theta");
    }
    g->copy_fresh = rv == 0;
    return rv;
}

static int gpu_use_theta(struct gpu *g,
                         const float *theta,
                         int64_t n,
                         const struct theta_copy *copy)
{
    struct theta_copy c = {NULL, 0, 0};
    int rv = gpu_enter(g);

    if (n == 0 || !g->opt.bf16) {
        theta = NULL;
        n = 0;
    } else if (copy != NULL) {
        c = *copy;
    }
    if (g->theta != theta || g->theta_n != n || g->copy.memory != c.memory ||
        g->copy.at != c.at || g->copy.zeros != c.zeros) {
        g->theta = theta;
        g->theta_n = n;
        g->copy = c;
        g->copy_fresh = false;
    }
    return rv != 0 ? rv : gpu_refresh_copy(g);
}

/* ---- copies ------------------------------------------------------------- */

/* The other half, when the device has read what it last held. */
static int next_half(struct gpu *g)
{
    int rv = gpu_check(g, cudaEventRecord(g->staged[g->stage_at], g->stream),
                       "staging");

    g->stage_busy[g->stage_at] = true;
    g->stage_at = !g->stage_at;
    g->stage_used = 0;
    if (rv == 0 && g->stage_busy[g->stage_at]) {
        rv = gpu_wait(g, g->staged[g->stage_at], "staging");
    }
    g->stage_busy[g->stage_at] = false;
    return rv;
}

static int stage_copy(struct gpu *g, void *to, const void *from, size_t bytes)
{
    size_t done = 0;
    int rv = g->broken;

    while (rv == 0 && done < bytes) {
        size_t part = bytes - done;
        unsigned char *at;

        if (g->stage_used >= STAGE_BYTES) {
            rv = next_half(g);
            continue;
        }
        if (part > STAGE_BYTES - g->stage_used) {
            part = STAGE_BYTES - g->stage_used;
        }
        at = g->stage[g->stage_at] + g->stage_used;
        memcpy(at, (const unsigned char *)from + done, part);
        rv = gpu_check(g,
                       cudaMemcpyAsync((unsigned char *)to + done, at, part,
                                       cudaMemcpyHostToDevice, g->stream),
                       "copy to the GPU");
        g->stage_used += (part + 63) / 64 * 64;
        done += part;
    }
    return rv;
}

int gpu_upload(
    struct gpu *g, enum gpu_slot slot, const void *from, size_t bytes, void **p)
{
    int rv = gpu_slot(g, slot, bytes, p);

    return rv != 0 ? rv : stage_copy(g, *p, from, bytes);
}

/* One of the two is memory of take_host(): after the kernels that use it. */
static int copy_here(struct gpu *g, void *to, const void *from, size_t bytes)
{
    int rv = gpu_wait_stream(g, "memory of the host");

    if (rv == 0) {
        memcpy(to, from, bytes);
    }
    return rv;
}

static int gpu_put(struct gpu *g, void *to, const void *from, size_t bytes)
{
    int rv = gpu_enter(g);

    gpu_touched(g, to, bytes);
    if (rv != 0) {
        return rv;
    }
    if (is_host(g, to)) {
        return copy_here(g, to, from, bytes);
    }
    return gpu_is_registered(g, from, bytes)
               ? gpu_put_registered(g, to, from, bytes)
               : stage_copy(g, to, from, bytes);
}

/* Part i of a download, into half i % 2. */
static int fetch(struct gpu *g, const void *from, size_t bytes, size_t i)
{
    size_t at = i * STAGE_BYTES;
    size_t part = bytes - at < STAGE_BYTES ? bytes - at : STAGE_BYTES;
    int rv;

    if (at >= bytes) {
        return 0;
    }
    rv = gpu_check(g,
                   cudaMemcpyAsync(g->stage[i % 2],
                                   (const unsigned char *)from + at, part,
                                   cudaMemcpyDeviceToHost, g->stream),
                   "copy from the GPU");
    return rv != 0 ? rv
                   : gpu_check(g, cudaEventRecord(g->staged[i % 2], g->stream),
                               "copy from the GPU");
}

int gpu_download(struct gpu *g, void *to, const void *from, size_t bytes)
{
    int rv = gpu_wait_stream(g, "copy from the GPU"); /* staging is free, too */

    g->stage_busy[0] = g->stage_busy[1] = false;
    g->stage_used = 0;
    rv = rv != 0 ? rv : fetch(g, from, bytes, 0);
    for (size_t i = 0; rv == 0 && i * STAGE_BYTES < bytes; i++) {
        size_t at = i * STAGE_BYTES;
        size_t part = bytes - at < STAGE_BYTES ? bytes - at : STAGE_BYTES;

        rv = fetch(g, from, bytes, i + 1);
        rv = rv != 0 ? rv : gpu_wait(g, g->staged[i % 2], "copy from the GPU");
        if (rv == 0) {
            memcpy((unsigned char *)to + at, g->stage[i % 2], part);
        }
    }
    return rv;
}

static int gpu_get(struct gpu *g, void *to, const void *from, size_t bytes)
{
    int rv = gpu_enter(g);

    if (rv != 0) {
        return rv;
    }
    if (is_host(g, from)) {
        return copy_here(g, to, from, bytes);
    }
    return gpu_is_registered(g, to, bytes)
               ? gpu_get_registered(g, to, from, bytes)
               : gpu_download(g, to, from, bytes);
}

static int gpu_clear(struct gpu *g, void *p, size_t bytes)
{
    int rv = gpu_enter(g);

    gpu_touched(g, p, bytes);
    if (rv == 0 && is_host(g, p)) {
        rv = gpu_wait_stream(g, "memory of the host");
        if (rv == 0) {
            memset(p, 0, bytes);
        }
        return rv;
    }
    return rv != 0
               ? rv
               : gpu_check(g, cudaMemsetAsync(p, 0, bytes, g->stream), "clear");
}

static int gpu_copy(struct gpu *g, void *to, const void *from, size_t bytes)
{
    int rv = gpu_enter(g);

    gpu_touched(g, to, bytes);
    return rv != 0
               ? rv
               : gpu_check(g,
                           cudaMemcpyAsync(to, from, bytes,
                                           cudaMemcpyDeviceToDevice, g->stream),
                           "copy on the GPU");
}

/* Whether the two can reach each other's memory by themselves is asked once;
 * where they cannot, or may not (a GPU has at most eight such peers), the
 * driver takes the bytes through the host. An error that stays shows in the
 * copy. */
static void meet(struct gpu *g, const struct gpu *other)
{
    unsigned bit;
    int can = 0;
    cudaError_t e;

    if (other->opt.ordinal >= PEERS_MAX) {
        return;
    }
    bit = 1u << other->opt.ordinal;
    if ((g->met & bit) != 0) {
        return;
    }
    g->met |= bit;
    e = cudaDeviceCanAccessPeer(&can, g->opt.ordinal, other->opt.ordinal);
    if (e == cudaSuccess && can) {
        e = cudaDeviceEnablePeerAccess(other->opt.ordinal, 0);
    }
    if (e != cudaSuccess) {
        (void)cudaGetLastError();
    }
}

static int gpu_copy_from(struct gpu *g,
                         void *to,
                         const struct gpu *other,
                         const void *from,
                         size_t bytes)
{
    int rv = gpu_enter(g);

    if (rv == 0) {
        meet(g, other);
    }
    gpu_touched(g, to, bytes);
    return rv != 0 ? rv
                   : gpu_check(g,
                               cudaMemcpyPeerAsync(to, g->opt.ordinal, from,
                                                   other->opt.ordinal, bytes,
                                                   g->stream),
                               "copy from another GPU");
}

static int gpu_finish(struct gpu *g)
{
    int rv = gpu_enter(g);

    return rv != 0 ? rv : gpu_wait_stream(g, "finish");
}

static int gpu_pin(struct gpu *g, void **p, size_t bytes)
{
    int rv = gpu_enter(g);

    *p = NULL;
    rv = rv != 0 ? rv : gpu_wait_all(g, "pinned memory"); /* as CUDA may */
    return rv != 0 ? rv
                   : gpu_check(g, cudaHostAlloc(p, bytes, cudaHostAllocDefault),
                               "pinned memory");
}

static void gpu_unpin(struct gpu *g, void *p)
{
    /* cudaFreeHost waits for the device, too */
    if (p != NULL && gpu_enter(g) == 0 && gpu_wait_all(g, "unpin") == 0) {
        (void)gpu_check(g, cudaFreeHost(p), "pinned memory");
    }
}

/* The copy stream begins after what is queued now. */
static int copies_follow(struct gpu *g)
{
    int rv = gpu_enter(g);

    rv = rv != 0 ? rv
                 : gpu_check(g, cudaEventRecord(g->beside, g->stream),
                             "copy stream");
    return rv != 0 ? rv
                   : gpu_check(g, cudaStreamWaitEvent(g->copies, g->beside, 0),
                               "copy stream");
}

static int
gpu_put_beside(struct gpu *g, void *to, const void *pinned, size_t bytes)
{
    int rv = copies_follow(g);

    gpu_touched(g, to, bytes);
    return rv != 0
               ? rv
               : gpu_check(g,
                           cudaMemcpyAsync(to, pinned, bytes,
                                           cudaMemcpyHostToDevice, g->copies),
                           "copy stream");
}

/* They are done, and what is queued from now on sees them. */
static int gpu_copies_done(struct gpu *g)
{
    int rv = gpu_enter(g);

    return rv != 0 ? rv : wait_copies(g, "copy stream");
}

static int
gpu_get_beside(struct gpu *g, void *to, const void *from, size_t bytes)
{
    bool registered = gpu_is_registered(g, to, bytes);
    int rv =
        registered && g->n_arriving == ARRIVING_MAX ? gpu_copies_done(g) : 0;

    rv = rv != 0 ? rv : copies_follow(g);
    if (rv == 0 && registered) {
        gpu_arriving(g, to, bytes);
    }
    return rv != 0
               ? rv
               : gpu_check(g,
                           cudaMemcpyAsync(to, from, bytes,
                                           cudaMemcpyDeviceToHost, g->copies),
                           "copy stream");
}

/* ---- life --------------------------------------------------------------- */

static void release(struct gpu *g)
{
    gemm_close(g);
    for (int i = 0; i < SLOT_COUNT; i++) {
        if (g->slot[i] != NULL) {
            (void)cudaFree(g->slot[i]);
        }
    }
    for (int i = 0; i < 2; i++) {
        if (g->stage[i] != NULL) {
            (void)cudaFreeHost(g->stage[i]);
        }
        if (g->staged[i] != NULL) {
            (void)cudaEventDestroy(g->staged[i]);
        }
    }
    if (g->beside != NULL) {
        (void)cudaEventDestroy(g->beside);
    }
    if (g->mark != NULL) {
        (void)cudaEventDestroy(g->mark);
    }
    if (g->copies != NULL) {
        (void)cudaStreamDestroy(g->copies);
    }
    if (g->stream != NULL) {
        (void)cudaStreamDestroy(g->stream);
    }
}

/* After a hang memory and streams go with the process: freeing them, or a
 * reset, may wait for ever. */
static void gpu_close(struct gpu *g)
{
    (void)cudaSetDevice(g->opt.ordinal); /* of a broken one, too */
    while (g->taken != NULL) {
        gpu_give(g, g->taken->p);
    }
    gpu_unregister_all(g);
    if (g->broken == 0 && gpu_wait_all(g, "close") == 0) {
        release(g);
    } else if (g->broken == LOCO_ECUDA) {
        (void)cudaDeviceReset(); /* may give this process a new context */
    }
    (void)cudaGetLastError(); /* else the thread's next GPU would report it */
    gemm_forget(g);
    free(g->host_plan);
    free(g);
}

static int make_stream(struct gpu *g, cudaStream_t *s)
{
    return gpu_check(g, cudaStreamCreateWithFlags(s, cudaStreamNonBlocking),
                     "stream");
}

static int make_event(struct gpu *g, cudaEvent_t *e)
{
    return gpu_check(g, cudaEventCreateWithFlags(e, cudaEventDisableTiming),
                     "event");
}

static int open_streams(struct gpu *g)
{
    int rv = make_stream(g, &g->stream);

    rv = rv != 0 ? rv : make_stream(g, &g->copies);
    rv = rv != 0 ? rv : make_event(g, &g->mark);
    rv = rv != 0 ? rv : make_event(g, &g->beside);
    for (int i = 0; i < 2 && rv == 0; i++) {
        rv = make_event(g, &g->staged[i]);
        if (rv == 0) {
            rv = gpu_check(g,
                           cudaHostAlloc((void **)&g->stage[i], STAGE_BYTES,
                                         cudaHostAllocDefault),
                           "pinned memory");
        }
    }
    return rv;
}

static int find_gpu(struct gpu *g, struct plugin_info *info, char *errmsg)
{
    struct cudaDeviceProp p;
    int n = 0;
    cudaError_t e = cudaGetDeviceCount(&n);

    info->gpus = n;
    if (e == cudaSuccess && n > 0 && n <= g->opt.ordinal) {
        (void)snprintf(errmsg, PLUGIN_ERRMSG,
                       "there is no GPU %d: this machine shows %d, the first "
                       "is 0",
                       g->opt.ordinal, n);
        return LOCO_EDEVICE;
    }
    if (e != cudaSuccess || n <= g->opt.ordinal) {
        (void)snprintf(errmsg, PLUGIN_ERRMSG,
                       "no NVIDIA GPU can be used (%s): `loco doctor` says "
                       "more; or use --device cpu",
                       e == cudaSuccess ? "CUDA shows none"
                                        : cudaGetErrorString(e));
        return LOCO_EDEVICE;
    }
    e = cudaGetDeviceProperties(&p, g->opt.ordinal);
    e = e != cudaSuccess ? e : cudaSetDevice(g->opt.ordinal);
    if (e != cudaSuccess) {
        (void)snprintf(errmsg, PLUGIN_ERRMSG, "the GPU cannot be opened: %s",
                       cudaGetErrorString(e));
        return LOCO_EDEVICE;
    }
    g->sm = 10 * p.major + p.minor;
    g->multiprocessors = p.multiProcessorCount;
    g->shared_bytes = p.sharedMemPerMultiprocessor;
    (void)snprintf(info->name, sizeof info->name, "%.127s", p.name);
    (void)snprintf(info->isa, sizeof info->isa, "sm_%d", g->sm);
    info->multiprocessors = (uint32_t)p.multiProcessorCount;
    if (g->sm < SM_MIN) {
        (void)snprintf(errmsg, PLUGIN_ERRMSG,
                       "%.100s has compute capability %d.%d, loco needs 8.0 "
                       "(Ampere) or later: use --device cpu",
                       p.name, p.major, p.minor);
        return LOCO_EDEVICE;
    }
    return 0;
}

static int fill_info(struct gpu *g, struct plugin_info *info)
{
    size_t free_bytes = 0, total = 0;
    int rv = gpu_check(g, cudaMemGetInfo(&free_bytes, &total), "memory");

    (void)cudaRuntimeGetVersion(&info->runtime_version);
    (void)cudaDriverGetVersion(&info->driver_version);
    info->product_version = gemm_product_version(g);
    info->total_bytes = total;
    info->free_bytes =
        free_bytes > PLUGIN_SPARE_BYTES ? free_bytes - PLUGIN_SPARE_BYTES : 0;
    if (g->opt.memory_bytes > 0 &&
        g->opt.memory_bytes - g->taken_bytes < info->free_bytes) {
        info->free_bytes = g->opt.memory_bytes - g->taken_bytes;
    }
    return rv;
}

static int gpu_open(struct gpu **out,
                    const struct plugin_options *opt,
                    struct plugin_info *info,
                    char *errmsg)
{
    struct gpu *g = calloc(1, sizeof *g);
    int rv;

    memset(info, 0, sizeof *info);
    if (g == NULL) {
        return LOCO_ENOMEM;
    }
    g->opt = *opt;
    rv = find_gpu(g, info, errmsg);
    if (rv == 0) {
        rv = open_streams(g);
        rv = rv != 0 ? rv : gemm_open(g, errmsg);
        rv = rv != 0 ? rv : fill_info(g, info);
        if (rv != 0 && errmsg[0] == '\0') {
            (void)snprintf(errmsg, PLUGIN_ERRMSG, "%.*s", PLUGIN_ERRMSG - 1,
                           g->message);
        }
    }
    if (rv != 0) {
        if (g->broken == 0) {
            release(g);
        }
        gemm_forget(g);
        free(g);
        return rv;
    }
    *out = g;
    return 0;
}

static const char *gpu_message(const struct gpu *g)
{
    return g->message;
}

char *gpu_say(struct gpu *g)
{
    if (g->n_read == g->n_said) {
        g->n_read = g->n_said = 0;
    }
    return g->n_said < SAID_MAX ? g->said[g->n_said++] : NULL;
}

static const char *gpu_said(struct gpu *g)
{
    return g->n_read < g->n_said ? g->said[g->n_read++] : NULL;
}

/* ---- the table ---------------------------------------------------------- */

/* A launch on a GPU that hangs may block when its queue is full. */
#define X(kernel, type, units)                                                 \
    static int guarded_##kernel(struct gpu *g, const struct type *op)          \
    {                                                                          \
        int rv = gpu_enter(g);                                                 \
                                                                               \
        return rv != 0 ? rv : cuda_##kernel(g, op);                            \
    }
PLUGIN_KERNELS(X)
#undef X

/* clang-format off */
static const struct plugin_table table = {
    .abi = PLUGIN_ABI,
    .bytes = sizeof table,
    .version = LOCO_VERSION,
    .open = gpu_open,
    .close = gpu_close,
    .message = gpu_message,
    .said = gpu_said,
    .take = gpu_take,
    .take_host = gpu_take_host,
    .give = gpu_give,
    .put = gpu_put,
    .get = gpu_get,
    .clear = gpu_clear,
    .copy = gpu_copy,
    .copy_from = gpu_copy_from,
    .use_theta = gpu_use_theta,
    .finish = gpu_finish,
    .pin = gpu_pin,
    .unpin = gpu_unpin,
    .host_register = gpu_host_register,
    .host_unregister = gpu_host_unregister,
    .is_registered = gpu_is_registered,
    .put_beside = gpu_put_beside,
    .get_beside = gpu_get_beside,
    .copies_done = gpu_copies_done,
#define X(kernel, type, units) .kernel = guarded_##kernel,
    PLUGIN_KERNELS(X)
#undef X
};
/* clang-format on */

/* The one name that this library shows. */
__attribute__((visibility("default"))) const struct plugin_table *
loco_device_plugin(void);

const struct plugin_table *loco_device_plugin(void)
{
    return &table;
}
