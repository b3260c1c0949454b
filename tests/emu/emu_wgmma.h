/* emu_wgmma.h - the instructions of kernels/cuda/wgmma.cuh on a processor.
 *
 * Products happen as late as they may, at the wait: a slab that is written too
 * early, or a result that is read before its wait, gives other numbers. A
 * descriptor is read as the PTX ISA writes it ("Shared memory matrix layout",
 * 128-byte swizzle), a second time and not from wgmma.cuh. Each warp makes its
 * 16 rows by itself: that all four take part is not checked.
 */
#ifndef LOCO_TESTS_EMU_EMU_WGMMA_H
#define LOCO_TESTS_EMU_EMU_WGMMA_H

#include "tests/emu/emu.h"

uint32_t emu_shared_address(const void *p);
void emu_wgmma(float *c, const uint32_t *a, uint64_t b, bool rows, bool add);
void emu_wgmma_shared(float *c, uint64_t a, uint64_t b, bool rows, bool add);
void emu_wgmma_commit(void);
void emu_wgmma_wait(int left);
void emu_fence_copies(void);

static inline uint32_t shared_address(const void *p)
{
    return emu_shared_address(p);
}

template <bool ROWS>
static inline void
wgmma_64(float (&c)[8][4], const uint32_t (&a)[4], uint64_t b, bool add)
{
    emu_wgmma(&c[0][0], a, b, ROWS, add);
}

template <bool ROWS>
static inline void
wgmma_64_shared(float (&c)[8][4], uint64_t a, uint64_t b, bool add)
{
    emu_wgmma_shared(&c[0][0], a, b, ROWS, add);
}

static inline void wgmma_begin()
{
}

static inline void wgmma_commit()
{
    emu_wgmma_commit();
}

template <int LEFT> static inline void wgmma_wait()
{
    emu_wgmma_wait(LEFT);
}

template <int N> static inline void wgmma_hold(float (&)[N][4])
{
}

static inline void wgmma_hold_a(uint32_t (&)[4][4])
{
}

static inline void wgmma_fence_copies()
{
    emu_fence_copies();
}

#endif
