/* mode.h - the floating-point mode of whoever calls a codec.
 *
 * codec_mode_enter() before any arithmetic, codec_mode_leave() with what it
 * returned after the last. See codec.h, "Same bits everywhere".
 */
#ifndef LOCO_TRAIN_SYNC_CODEC_MODE_H
#define LOCO_TRAIN_SYNC_CODEC_MODE_H

#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

/* Rounding to nearest, no flush to zero, no traps; the low six bits are
 * flags that arithmetic sets. The kernels are other translation units, so no
 * arithmetic of theirs moves past these calls. */
#if defined(__x86_64__)
#define MXCSR_FLAGS   0x3fU
#define MXCSR_DEFAULT 0x1f80U

static inline unsigned codec_mode_enter(void)
{
    unsigned mode = _mm_getcsr();

    if ((mode & ~MXCSR_FLAGS) != MXCSR_DEFAULT) {
        _mm_setcsr(MXCSR_DEFAULT);
    }
    return mode;
}

static inline void codec_mode_leave(unsigned mode)
{
    if ((mode & ~MXCSR_FLAGS) != MXCSR_DEFAULT) {
        _mm_setcsr(mode);
    }
}
#else
static inline unsigned codec_mode_enter(void)
{
    return 0;
}

static inline void codec_mode_leave(unsigned mode)
{
    (void)mode;
}
#endif

#endif
