/* fast.c - the set of one instruction set (LOCO_ISA): fp32, bf16, table.
 *
 * The bits are those of the reference in codec_TYPE.c.
 */
#include "train/sync/codec/simd.h"

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

VF_INLINE vf fp32_elements(const uint8_t *src, size_t i, size_t m, float factor)
{
    (void)factor;
    return vf_load(src + 4 * i, m);
}

int CODEC_KERNEL(fp32_load)(float *x, const uint8_t *src, size_t n)
{
    return load_elements(fp32_elements, x, src, 1.0F, n);
}

int CODEC_KERNEL(fp32_load_add)(float *x,
                                const uint8_t *src,
                                const struct codec_term *t,
                                size_t n,
                                uint32_t *max)
{
    *max = add_elements(fp32_elements, x, src, 1.0F, *t, n);
    return 0;
}

int CODEC_KERNEL(fp32_store)(
    uint8_t *dst, const float *x, float scale, size_t n, uint32_t max)
{
    EACH_VECTOR(i, m, n, {
        vf_store(dst + 4 * i, m, vf_mul(vf_set(scale), vf_load(x + i, m)));
    });
    return max < CODEC_INFINITE_BITS ? 0 : LOCO_ENUMERIC;
}

/* ------------------------------------------------------------------- bf16 */

VF_INLINE vf bf16_elements(const uint8_t *src, size_t i, size_t m, float factor)
{
    (void)factor;
    return vf_from_bits(vi_shift_left(words_load(src + 2 * i, m), 16));
}

int CODEC_KERNEL(bf16_load)(float *x, const uint8_t *src, size_t n)
{
    return load_elements(bf16_elements, x, src, 1.0F, n);
}

int CODEC_KERNEL(bf16_load_add)(float *x,
                                const uint8_t *src,
                                const struct codec_term *t,
                                size_t n,
                                uint32_t *max)
{
    *max = add_elements(bf16_elements, x, src, 1.0F, *t, n);
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

#define ADD_RING(type)      CODEC_KERNEL(type##_load_add)
#define ADD_BUTTERFLY(type) NULL

#define QUOTED2(name) #name
#define QUOTED(name)  QUOTED2(name)

const struct codec_kernels CODEC_KERNEL(codec_kernels) = {
    .isa = QUOTED(LOCO_ISA),
    .measure = measure,
    .gather = gather,
    .subtract = subtract,
    .blocks =
        {
#define CODEC(ID, type, block, head, bits, exchange, ...)                      \
    [CODEC_##ID] = {CODEC_KERNEL(type##_load), ADD_##exchange(type),           \
                    CODEC_KERNEL(type##_store)},
#include "proto/base/codec.def"
        },
};
