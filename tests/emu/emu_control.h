/* emu_control.h - what a test can do to the emulated GPU.
 *
 * One object in the emulated plug-in; a test that opened the library finds it
 * by the name "emu_control". The programs of tests/e2e have no such handle:
 * for them the plug-in reads LOCO_EMULATOR when it is loaded, the same fields
 * as words: "hang_after=3 memory_mb=64".
 */
#ifndef LOCO_TESTS_EMU_EMU_CONTROL_H
#define LOCO_TESTS_EMU_EMU_CONTROL_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* GPUs that the emulator can have at most. */
#define EMU_DEVICES_MAX 8

struct emu_control {
    int devices;         /* how many GPUs there are; -1: no driver */
    int sm;              /* compute capability, 90 */
    uint64_t memory;     /* bytes of the GPU */
    int schedule;        /* 0 as numbered, 1 backwards, 2 shuffled */
    int64_t fail_malloc; /* the n-th cudaMalloc from now fails; 0: none */
    int64_t fail_launch; /* the n-th launch from now breaks the GPU; 0: none */
    int64_t hang_after;  /* after n more launches nothing ends; 0: never */
    int no_algorithm;    /* cuBLASLt knows none */
    int early;           /* streams run at once; else as late as they may */
    int64_t fail_beside; /* the n-th copy on a stream that is not the oldest
                          * breaks the GPU; 0: none */
    int64_t fail_pin;    /* the n-th cudaHostAlloc from now fails; 0: none */
    int pin_error;       /* with this cudaError; 0: no memory */
    int64_t host_pages;  /* of this machine's memory; 0: as many as it has */
    int64_t fail_register;  /* the n-th cudaHostRegister from now fails, */
    int64_t register_error; /* with this error; 0: out of memory */
    /* Counts since the start. */
    uint64_t launches, mallocs, frees, products;
    uint64_t unaligned;  /* products with rows that do not begin at 16 bytes */
    uint64_t used;       /* bytes of the GPU's memory taken now */
    uint64_t registered; /* bytes of the process's memory that it knows now */
    uint64_t direct;     /* bytes copied from and to them */
    int sticky;          /* the error that every call returns; 0: none */
    int hanging;
    /* Of several GPUs. Which one a fault is for, 1 the first; 0: for all that
     * are used then, and what breaks or hangs breaks or hangs for all. */
    int fault_device;
    uint64_t memory_of[EMU_DEVICES_MAX]; /* bytes; 0: as `memory` */
    uint64_t used_of[EMU_DEVICES_MAX];   /* bytes taken now */
    uint64_t peer_bytes[EMU_DEVICES_MAX][EMU_DEVICES_MAX]; /* to, from */
    int no_peers;  /* they do not reach each other's memory by themselves */
    uint64_t down; /* bytes copied to this process's memory since the start */
    /* The next product loads kernels of so many bytes, or fails as cuBLASLt
     * does where they are not there; then 0. */
    uint64_t product_loads;
    uint64_t shared_most; /* bytes that a block of any launch had at most */
};

extern struct emu_control emu_control;

#ifdef __cplusplus
}
#endif

#endif
