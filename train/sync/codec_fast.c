/* codec_fast.c - the set of one instruction set (LOCO_ISA): fp32, bf16, table.
 *
 * The bits are those of the reference in codec_TYPE.c.
 */
#include "train/sync/codec_simd.h"

static uint32_t measure(const float *x, float scale, size_t n)
{
    vi max = vi_set(0);

    EACH_VECTOR(i, m, n, {
        vf v = vf_mul(vf_set(scale), vf_load(x + i, m));

        max = vi_max(max, vi_magnitude(v));
    });
    return vi_max_lane(max);
}

static uint32_t gather(float *x, const struct codec_term *t, size_t n)
{
    const struct codec_term term = *t;
    vi max = vi_set(0);

    EACH_VECTOR(i, m, n, {
        vf v = vf_term(term, i, m);

        vf_store(x + i, m, v);
        max = vi_max(max, vi_magnitude(v));
    });
    return vi_max_lane(max);
}

static void subtract(float *out, const float *x, const float *y, size_t n)
{
    EACH_VECTOR(i, m, n, {
        vf_store(out + i, m, vf_sub(vf_load(x + i, m), vf_load(y + i, m)));
    });
}

/* ------------------------------------------------------------------- fp32 */

VF_INLINE vf fp32_elements(const uint8_t *src, size_t m)
{
    uint8_t part[4 * VF_LANES];
    const uint8_t *p = readable(part, src, 4 * m, sizeof part);

    return vf_load_whole((const float *)(const void *)p);
}

int CODEC_KERNEL(fp32_load)(float *x, const uint8_t *src, size_t n)
{
    vi max = vi_set(0);

    EACH_VECTOR(i, m, n, {
        vf v = fp32_elements(src + 4 * i, m);

        vf_store(x + i, m, v);
        max = vi_max(max, vi_magnitude(v));
    });
    return finite_or_error(max);
}

int CODEC_KERNEL(fp32_load_add)(float *x,
                                const uint8_t *src,
                                const struct codec_term *t,
                                size_t n,
                                uint32_t *max_out)
{
    const struct codec_term term = *t;
    vi max = vi_set(0);

    EACH_VECTOR(i, m, n, {
        vf v = vf_add(fp32_elements(src + 4 * i, m), vf_term(term, i, m));

        vf_store(x + i, m, v);
        max = vi_max(max, vi_magnitude(v));
    });
    *max_out = vi_max_lane(max);
    return 0;
}

int CODEC_KERNEL(fp32_store)(
    uint8_t *dst, const float *x, float scale, size_t n, uint32_t max)
{
    EACH_VECTOR(i, m, n, {
        uint8_t part[4 * VF_LANES];
        uint8_t *p = m == VF_LANES ? dst + 4 * i : part;

        vf_store_whole((float *)(void *)p,
                       vf_mul(vf_set(scale), vf_load(x + i, m)));
        if (m != VF_LANES) {
            memcpy(dst + 4 * i, part, 4 * m);
        }
    });
    return max < CODEC_INFINITE_BITS ? 0 : LOCO_ENUMERIC;
}

/* ------------------------------------------------------------------- bf16 */

VF_INLINE vf bf16_elements(const uint8_t *src, size_t m)
{
    return vf_from_bits(vi_shift_left(words_load(src, m), 16));
}

int CODEC_KERNEL(bf16_load)(float *x, const uint8_t *src, size_t n)
{
    vi max = vi_set(0);

    EACH_VECTOR(i, m, n, {
        vf v = bf16_elements(src + 2 * i, m);

        vf_store(x + i, m, v);
        max = vi_max(max, vi_magnitude(v));
    });
    return finite_or_error(max);
}

int CODEC_KERNEL(bf16_load_add)(float *x,
                                const uint8_t *src,
                                const struct codec_term *t,
                                size_t n,
                                uint32_t *max_out)
{
    const struct codec_term term = *t;
    vi max = vi_set(0);

    EACH_VECTOR(i, m, n, {
        vf v = vf_add(bf16_elements(src + 2 * i, m), vf_term(term, i, m));

        vf_store(x + i, m, v);
        max = vi_max(max, vi_magnitude(v));
    });
    *max_out = vi_max_lane(max);
    return 0;
}

int CODEC_KERNEL(bf16_store)(
    uint8_t *dst, const float *x, float scale, size_t n, uint32_t max)
{
    if (max >= CODEC_BF16_TOO_LARGE) {
        return LOCO_ENUMERIC;
    }
    EACH_VECTOR(i, m, n, {
        vi bits = vi_bits(vf_mul(vf_set(scale), vf_load(x + i, m)));
        vi odd = vi_and(vi_shift_right(bits, 16), vi_set(1));

        bits = vi_add(bits, vi_add(vi_set(0x7fff), odd));
        words_store(dst + 2 * i, m, vi_shift_right(bits, 16));
    });
    return 0;
}

/* ------------------------------------------------------------------ table */

#define LOAD(type)  CODEC_KERNEL(type##_load)
#define ADD(type)   CODEC_KERNEL(type##_load_add)
#define STORE(type) CODEC_KERNEL(type##_store)

#define QUOTED2(name) #name
#define QUOTED(name)  QUOTED2(name)

const struct codec_kernels CODEC_KERNEL(codec_kernels) = {
    .isa = QUOTED(LOCO_ISA),
    .measure = measure,
    .gather = gather,
    .subtract = subtract,
    .blocks =
        {
            [CODEC_FP32] = {LOAD(fp32), ADD(fp32), STORE(fp32)},
            [CODEC_BF16] = {LOAD(bf16), ADD(bf16), STORE(bf16)},
            [CODEC_FP16] = {LOAD(fp16), ADD(fp16), STORE(fp16)},
            [CODEC_INT8] = {.load = LOAD(int8), .store = STORE(int8)},
            [CODEC_E3M0] = {.load = LOAD(e3m0), .store = STORE(e3m0)},
        },
};
