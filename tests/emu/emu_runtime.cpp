/* emu_runtime.cpp - CUDA's runtime without a GPU, and its ways to fail. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/emu/emu.h"

#define GUARD      256
#define GUARD_BYTE 0xa5

struct emu_stream {
    int none;
};
struct emu_event {
    int recorded;
};

/* Before each piece of device memory. */
struct piece {
    size_t bytes;
    unsigned char guard[GUARD - sizeof(size_t)];
};

extern "C" {
__attribute__((visibility("default"))) struct emu_control emu_control = {
    1, 90, (uint64_t)8 << 30, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0};
}

static cudaError_t last_error;

/* "name=N name=N" from the environment: tests only. */
__attribute__((constructor)) static void read_environment(void)
{
    const char *text = getenv("LOCO_EMULATOR");
    static const struct {
        const char *name;
        int64_t *value;
    } words[] = {{"fail_malloc=", &emu_control.fail_malloc},
                 {"fail_launch=", &emu_control.fail_launch},
                 {"hang_after=", &emu_control.hang_after}};
    const char *at;

    if (text == NULL) {
        return;
    }
    for (const auto &w : words) {
        at = strstr(text, w.name);
        if (at != NULL) {
            *w.value = strtoll(at + strlen(w.name), NULL, 10);
        }
    }
    at = strstr(text, "memory_mb=");
    if (at != NULL) {
        emu_control.memory = strtoull(at + 10, NULL, 10) << 20;
    }
    at = strstr(text, "devices=");
    if (at != NULL) {
        emu_control.devices = (int)strtol(at + 8, NULL, 10);
    }
}

/* Counts *n down to an event; true when it happens. */
static bool due(int64_t *n)
{
    return *n > 0 && --*n == 0;
}

static cudaError_t fail(cudaError_t e)
{
    last_error = e;
    return e;
}

static cudaError_t sticky(void)
{
    return (cudaError_t)emu_control.sticky;
}

/* Of emu_launch: true when the kernel does not run. */
int emu_launch_fails(bool configuration)
{
    emu_control.launches++;
    if (emu_control.sticky != 0) {
        (void)fail(sticky());
        return 1;
    }
    if (due(&emu_control.fail_launch)) {
        emu_control.sticky = cudaErrorIllegalAddress;
        (void)fail(cudaErrorIllegalAddress);
        return 1;
    }
    if (due(&emu_control.hang_after)) {
        emu_control.hanging = 1;
    }
    if (configuration) {
        (void)fail(cudaErrorInvalidConfiguration);
        return 1;
    }
    return emu_control.hanging;
}

cudaError_t cudaGetDeviceCount(int *n)
{
    *n = emu_control.devices < 0 ? 0 : emu_control.devices;
    return emu_control.devices < 0    ? cudaErrorInsufficientDriver
           : emu_control.devices == 0 ? cudaErrorNoDevice
                                      : cudaSuccess;
}

cudaError_t cudaSetDevice(int device)
{
    return device < emu_control.devices ? sticky() : cudaErrorInvalidValue;
}

/* A broken context stays so here: the worse of what GPUs do. */
cudaError_t cudaDeviceReset(void)
{
    return sticky();
}

cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp *p, int device)
{
    (void)device;
    memset(p, 0, sizeof *p);
    strcpy(p->name, "emulated GPU");
    p->totalGlobalMem = emu_control.memory;
    p->major = emu_control.sm / 10;
    p->minor = emu_control.sm % 10;
    p->multiProcessorCount = 2;
    return sticky();
}

cudaError_t cudaMemGetInfo(size_t *free_bytes, size_t *total)
{
    *total = emu_control.memory;
    *free_bytes = emu_control.memory - emu_control.used;
    return sticky();
}

cudaError_t cudaRuntimeGetVersion(int *version)
{
    *version = 13000;
    return cudaSuccess;
}

cudaError_t cudaDriverGetVersion(int *version)
{
    *version = 13000;
    return cudaSuccess;
}

cudaError_t cudaMalloc(void **p, size_t bytes)
{
    struct piece *piece;
    size_t all = sizeof *piece + bytes + GUARD;

    emu_control.mallocs++;
    *p = NULL;
    if (emu_control.sticky != 0) {
        return sticky();
    }
    if (due(&emu_control.fail_malloc) ||
        emu_control.used + bytes > emu_control.memory) {
        return fail(cudaErrorMemoryAllocation);
    }
    if (posix_memalign((void **)&piece, 256, all) != 0) {
        return fail(cudaErrorMemoryAllocation);
    }
    memset((void *)piece, GUARD_BYTE, all);
    piece->bytes = bytes;
    *p = piece + 1;
    memset(*p, 0xff, bytes); /* NaN, as fp32 and as bf16 */
    emu_control.used += bytes;
    return cudaSuccess;
}

cudaError_t cudaFree(void *p)
{
    struct piece *piece = (struct piece *)p - 1;
    const unsigned char *after;

    if (p == NULL) {
        return cudaSuccess;
    }
    after = (const unsigned char *)p + piece->bytes;
    for (size_t i = 0; i < GUARD; i++) {
        bool bad = after[i] != GUARD_BYTE ||
                   (i < sizeof piece->guard && piece->guard[i] != GUARD_BYTE);

        if (bad && emu_control.broken++ == 0) {
            fprintf(stderr, "emulator: memory beside %zu bytes was written\n",
                    piece->bytes);
            abort();
        }
    }
    emu_control.used -= piece->bytes;
    emu_control.frees++;
    free(piece);
    return sticky();
}

cudaError_t cudaHostAlloc(void **p, size_t bytes, unsigned flags)
{
    (void)flags;
    *p = malloc(bytes);
    return *p == NULL ? fail(cudaErrorMemoryAllocation) : sticky();
}

cudaError_t cudaFreeHost(void *p)
{
    free(p);
    return sticky();
}

cudaError_t cudaMemcpyAsync(void *to,
                            const void *from,
                            size_t bytes,
                            enum cudaMemcpyKind kind,
                            cudaStream_t stream)
{
    (void)kind;
    (void)stream;
    if (emu_control.sticky == 0 && !emu_control.hanging) {
        memcpy(to, from, bytes);
    }
    return sticky();
}

cudaError_t
cudaMemsetAsync(void *p, int value, size_t bytes, cudaStream_t stream)
{
    (void)stream;
    if (emu_control.sticky == 0 && !emu_control.hanging) {
        memset(p, value, bytes);
    }
    return sticky();
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t *stream, unsigned flags)
{
    (void)flags;
    *stream = (cudaStream_t)calloc(1, sizeof **stream);
    return sticky();
}

cudaError_t cudaStreamDestroy(cudaStream_t stream)
{
    free(stream);
    return sticky();
}

cudaError_t
cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned flags)
{
    (void)stream;
    (void)event;
    (void)flags;
    return sticky();
}

cudaError_t cudaEventCreate(cudaEvent_t *event)
{
    return cudaEventCreateWithFlags(event, 0);
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t *event, unsigned flags)
{
    (void)flags;
    *event = (cudaEvent_t)calloc(1, sizeof **event);
    return sticky();
}

cudaError_t cudaEventDestroy(cudaEvent_t event)
{
    free(event);
    return sticky();
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream)
{
    (void)stream;
    event->recorded = 1;
    return sticky();
}

cudaError_t cudaEventQuery(cudaEvent_t event)
{
    (void)event;
    return emu_control.sticky != 0 ? sticky()
           : emu_control.hanging   ? cudaErrorNotReady
                                   : cudaSuccess;
}

cudaError_t cudaEventElapsedTime(float *ms, cudaEvent_t from, cudaEvent_t to)
{
    (void)from;
    (void)to;
    *ms = 1;
    return sticky();
}

cudaError_t cudaGetLastError(void)
{
    cudaError_t e = emu_control.sticky != 0 ? sticky() : last_error;

    last_error = cudaSuccess;
    return e;
}

const char *cudaGetErrorString(cudaError_t e)
{
    switch (e) {
    case cudaSuccess:
        return "no error";
    case cudaErrorMemoryAllocation:
        return "out of memory";
    case cudaErrorInvalidConfiguration:
        return "invalid configuration argument";
    case cudaErrorInsufficientDriver:
        return "CUDA driver version is insufficient for CUDA runtime version";
    case cudaErrorNoDevice:
        return "no CUDA-capable device is detected";
    case cudaErrorIllegalAddress:
        return "an illegal memory access was encountered";
    default:
        return "another error";
    }
}
