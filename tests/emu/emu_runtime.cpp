/* emu_runtime.cpp - CUDA's runtime without a GPU, and its ways to fail. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/emu/emu.h"
#include "tests/emu/emu_runtime.h"

extern "C" {
__attribute__((visibility("default"))) struct emu_control emu_control = {
    1, 90, (uint64_t)8 << 30, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
    0, 0};
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
                 {"fail_beside=", &emu_control.fail_beside},
                 {"fail_register=", &emu_control.fail_register},
                 {"register_error=", &emu_control.register_error},
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

bool emu_due(int64_t *n)
{
    return *n > 0 && --*n == 0;
}

cudaError_t emu_fail(cudaError_t e)
{
    last_error = e;
    return e;
}

cudaError_t emu_sticky(void)
{
    return (cudaError_t)emu_control.sticky;
}

void emu_give_up(const char *why)
{
    fprintf(stderr, "emulator: %s\n", why);
    abort();
}

/* Of emu_launch: true when the kernel does not run. */
int emu_launch_fails(bool configuration)
{
    emu_control.launches++;
    if (emu_control.sticky != 0) {
        (void)emu_fail(emu_sticky());
        return 1;
    }
    if (emu_due(&emu_control.fail_launch)) {
        emu_control.sticky = cudaErrorIllegalAddress;
        (void)emu_fail(cudaErrorIllegalAddress);
        return 1;
    }
    if (emu_due(&emu_control.hang_after)) {
        emu_control.hanging = 1;
    }
    if (configuration) {
        (void)emu_fail(cudaErrorInvalidConfiguration);
        return 1;
    }
    return 0;
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
    return device < emu_control.devices ? emu_sticky() : cudaErrorInvalidValue;
}

/* A broken context stays so here: the worse of what GPUs do. What it had
 * registered goes with it. */
cudaError_t cudaDeviceReset(void)
{
    emu_forget_registered();
    return emu_sticky();
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
    return emu_sticky();
}

cudaError_t cudaMemGetInfo(size_t *free_bytes, size_t *total)
{
    *total = emu_control.memory;
    *free_bytes = emu_control.memory - emu_control.used;
    return emu_sticky();
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

cudaError_t cudaGetLastError(void)
{
    cudaError_t e = emu_control.sticky != 0 ? emu_sticky() : last_error;

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
    case cudaErrorNotReady:
        return "device not ready";
    case cudaErrorIllegalAddress:
        return "an illegal memory access was encountered";
    default:
        return "another error";
    }
}
