/* emu_runtime.cpp - CUDA's runtime without a GPU, and its ways to fail. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/emu/emu.h"
#include "tests/emu/emu_runtime.h"

extern "C" {
__attribute__((visibility("default"))) struct emu_control emu_control = {
    1, 90, (uint64_t)8 << 30, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
    0, 0, 0, 0, 0, 0, {0}, {0}, {{0}}, 0, 0, 0, 0};
}

/* Never destroyed: threads may still be in it when the process ends. */
std::recursive_mutex &emu_mutex = *new std::recursive_mutex;

static thread_local cudaError_t last_error;
static thread_local int current; /* GPU */

int emu_device(void)
{
    return current;
}

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
    at = strstr(text, "fault_device=");
    if (at != NULL) {
        emu_control.fault_device = (int)strtol(at + 13, NULL, 10);
    }
}

static bool concerns(int device)
{
    return emu_control.fault_device == 0 ||
           emu_control.fault_device == device + 1;
}

uint64_t emu_memory_of(int device)
{
    return emu_control.memory_of[device] != 0 ? emu_control.memory_of[device]
                                              : emu_control.memory;
}

bool emu_due(int64_t *n)
{
    return *n > 0 && concerns(current) && --*n == 0;
}

bool emu_is_broken(int device)
{
    return emu_control.sticky != 0 && concerns(device);
}

bool emu_is_hanging(int device)
{
    return emu_control.hanging != 0 && concerns(device);
}

bool emu_hangs(void)
{
    return emu_is_hanging(current);
}

cudaError_t emu_fail(cudaError_t e)
{
    last_error = e;
    return e;
}

cudaError_t emu_sticky(void)
{
    return emu_is_broken(current) ? (cudaError_t)emu_control.sticky
                                  : cudaSuccess;
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
    if (emu_sticky() != cudaSuccess) {
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
    EMU_ENTER;

    *n = emu_control.devices < 0 ? 0 : emu_control.devices;
    return emu_control.devices < 0    ? cudaErrorInsufficientDriver
           : emu_control.devices == 0 ? cudaErrorNoDevice
                                      : cudaSuccess;
}

cudaError_t cudaSetDevice(int device)
{
    EMU_ENTER;

    if (device < 0 || device >= emu_control.devices) {
        return cudaErrorInvalidValue;
    }
    current = device;
    return emu_sticky();
}

/* A broken context stays so here: the worse of what GPUs do. What it had
 * registered goes with it. */
cudaError_t cudaDeviceReset(void)
{
    EMU_ENTER;

    emu_forget_registered();
    emu_forget_queues();
    return emu_fail(emu_sticky()); /* stays with the thread */
}

/* KB of shared memory that a multiprocessor has. */
static size_t shared_kb(int sm)
{
    return sm == 80 ? 164 : sm == 90 || sm == 100 ? 228 : 100;
}

cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp *p, int device)
{
    EMU_ENTER;

    memset(p, 0, sizeof *p);
    strcpy(p->name, "emulated GPU");
    p->totalGlobalMem = emu_memory_of(device);
    p->major = emu_control.sm / 10;
    p->minor = emu_control.sm % 10;
    p->multiProcessorCount = 2;
    p->sharedMemPerMultiprocessor = shared_kb(emu_control.sm) << 10;
    return emu_sticky();
}

cudaError_t cudaMemGetInfo(size_t *free_bytes, size_t *total)
{
    EMU_ENTER;

    *total = emu_memory_of(current);
    *free_bytes = *total - emu_control.used_of[current];
    return emu_sticky();
}

cudaError_t cudaRuntimeGetVersion(int *version)
{
    EMU_ENTER;

    *version = 13000;
    return cudaSuccess;
}

cudaError_t cudaDriverGetVersion(int *version)
{
    EMU_ENTER;

    *version = 13000;
    return cudaSuccess;
}

cudaError_t cudaGetLastError(void)
{
    EMU_ENTER;

    cudaError_t e = emu_sticky() != cudaSuccess ? emu_sticky() : last_error;

    last_error = cudaSuccess;
    return e;
}

const char *cudaGetErrorString(cudaError_t e)
{
    EMU_ENTER;

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
