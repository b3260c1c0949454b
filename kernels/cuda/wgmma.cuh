/* wgmma.cuh - products of a warpgroup on Hopper's tensor cores (sm_90a), by
 * name. PTX ISA, "Asynchronous warpgroup level matrix instructions".
 *
 * A warpgroup is 4 warps, the first a multiple of 4. Together they make
 *
 *   c (64 x 64, fp32) += a (64 x 16, bf16) b (16 x 64, bf16)
 *
 * of which warp w of the 4 has rows 16 w .. 16 w + 15, in fragments as mma.cuh
 * lays them out: a[4] is A, c[n] is C of columns 8 n .. 8 n + 7. b lies in
 * shared memory, in a *slab*: rows of 64 bf16 (128 bytes), whose eight 16-byte
 * pieces are exchanged so that a column of pieces lies in all banks: piece p of
 * row r is at p ^ (r % 8) ("128-byte swizzle"). A slab begins at a multiple of
 * 1,024 bytes. It serves as b in two ways:
 *
 *   SLAB_COLUMNS  row n of the slab is column n of b, k runs along the row
 *   SLAB_ROWS     row k of the slab is row k of b, n runs along the row
 *
 * Products run asynchronously: between wgmma_begin() and the wgmma_wait() that
 * ends them neither c nor a may be touched, nor the slabs be written. What
 * copies wrote is seen after wgmma_fence_copies() by the copying threads and a
 * barrier. wgmma_hold() after a wait keeps the compiler from reading c before.
 */
#ifndef LOCO_KERNELS_CUDA_WGMMA_CUH
#define LOCO_KERNELS_CUDA_WGMMA_CUH

#include "kernels/cuda/mma.cuh"

#define WARPGROUP    128 /* threads */
#define SLAB_WIDTH   64  /* bf16 of a row */
#define SLAB_ALIGN   1024
#define SLAB_COLUMNS false
#define SLAB_ROWS    true

#ifdef LOCO_CUDA_EMULATED
#include "tests/emu/emu_wgmma.h"
#else

__device__ inline uint32_t shared_address(const void *p)
{
    return (uint32_t)__cvta_generic_to_shared(p);
}

/* The accumulators of a product as operands 0 to 31. */
#define WGMMA_C                                                                \
    "{%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,"                  \
    "%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31}, "
#define WGMMA_ROW(c, n)                                                        \
    "+f"(c[n][0]), "+f"(c[n][1]), "+f"(c[n][2]), "+f"(c[n][3])
#define WGMMA_ROWS(c)                                                          \
    WGMMA_ROW(c, 0), WGMMA_ROW(c, 1), WGMMA_ROW(c, 2), WGMMA_ROW(c, 3),        \
        WGMMA_ROW(c, 4), WGMMA_ROW(c, 5), WGMMA_ROW(c, 6), WGMMA_ROW(c, 7)

/* c = a b, or c += a b with `add`; b by its descriptor. */
template <bool ROWS>
__device__ inline void
wgmma_64(float (&c)[8][4], const uint32_t (&a)[4], uint64_t b, bool add)
{
    asm volatile("{\n"
                 ".reg .pred p;\n"
                 "setp.ne.b32 p, %37, 0;\n"
                 "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 " WGMMA_C
                 "{%32,%33,%34,%35}, %36, p, 1, 1, %38;\n"
                 "}\n"
                 : WGMMA_ROWS(c)
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b),
                   "r"((int)add), "n"(ROWS ? 1 : 0));
}

/* The same with a by a descriptor, too: k along its rows. */
template <bool ROWS>
__device__ inline void
wgmma_64_shared(float (&c)[8][4], uint64_t a, uint64_t b, bool add)
{
    asm volatile("{\n"
                 ".reg .pred p;\n"
                 "setp.ne.b32 p, %34, 0;\n"
                 "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 " WGMMA_C
                 "%32, %33, p, 1, 1, 0, %35;\n"
                 "}\n"
                 : WGMMA_ROWS(c)
                 : "l"(a), "l"(b), "r"((int)add), "n"(ROWS ? 1 : 0));
}

/* Before the first product that reads registers written since the last. */
__device__ inline void wgmma_begin()
{
    asm volatile("wgmma.fence.sync.aligned;" : : : "memory");
}

/* The products since the last call are one group. */
__device__ inline void wgmma_commit()
{
    asm volatile("wgmma.commit_group.sync.aligned;" : : : "memory");
}

/* Until at most LEFT groups are on their way. */
template <int LEFT> __device__ inline void wgmma_wait()
{
    asm volatile("wgmma.wait_group.sync.aligned %0;" : : "n"(LEFT) : "memory");
}

template <int N> __device__ inline void wgmma_hold(float (&c)[N][4])
{
#pragma unroll
    for (int n = 0; n < N; n++) {
        asm volatile(""
                     : "+f"(c[n][0]), "+f"(c[n][1]), "+f"(c[n][2]),
                       "+f"(c[n][3])
                     :
                     : "memory");
    }
}

/* Keeps what is made of `a` behind a wait, too: made before, it would take
 * registers that the products need. */
__device__ inline void wgmma_hold_a(uint32_t (&a)[4][4])
{
#pragma unroll
    for (int k = 0; k < 4; k++) {
        asm volatile(""
                     : "+r"(a[k][0]), "+r"(a[k][1]), "+r"(a[k][2]),
                       "+r"(a[k][3])
                     :
                     : "memory");
    }
}

__device__ inline void wgmma_fence_copies()
{
    asm volatile("fence.proxy.async.shared::cta;" : : : "memory");
}

#endif

/* The same number in all lanes, as ptxas must know: it keeps addresses and
 * descriptors in registers of the warp only where nothing diverges. */
__device__ inline int warp_number()
{
    return __shfl_sync(0xffffffffu, (int)threadIdx.x / 32, 0);
}

/* The first slab of a block's dynamic memory, which has SLAB_ALIGN bytes more
 * than it needs. */
__device__ inline bf16 *slabs_in(unsigned char *memory)
{
    uint32_t over = shared_address(memory) % SLAB_ALIGN;

    return (bf16 *)(memory + (over == 0 ? 0 : SLAB_ALIGN - over));
}

/* Where element (row, column) lies; column a multiple of 8 names a piece. */
__device__ inline int slab_at(int row, int column)
{
    return row * SLAB_WIDTH + (column / 8 ^ row % 8) * 8 + column % 8;
}

/* What this thread of THREADS copies of every slab: 8 columns of row `row` and
 * of each THREADS / 8 rows further. */
struct slab_share {
    uint32_t from; /* elements of the matrix */
    int to, row;
};

template <int THREADS> __device__ inline struct slab_share slab_mine(int64_t ld)
{
    int row = (int)threadIdx.x / 8;
    int column = (int)threadIdx.x % 8 * 8;

    static_assert(THREADS % 64 == 0, "the exchange of pieces is by 8 rows");
    return {(uint32_t)row * (uint32_t)ld + (uint32_t)column,
            slab_at(row, column), row};
}

/* Begin to copy ROWS rows of 64 bf16, ld apart; `rows` of them exist, the
 * others become zeros. By all THREADS of the block. */
template <int ROWS, int THREADS>
__device__ inline void slab_load(bf16 *to,
                                 const bf16 *from,
                                 int64_t ld,
                                 const struct slab_share &mine,
                                 int rows)
{
#pragma unroll
    for (int k = 0; k < ROWS * 8 / THREADS; k++) {
        copy_16(to + mine.to + k * THREADS / 8 * SLAB_WIDTH,
                from + k * THREADS / 8 * ld + mine.from,
                mine.row + k * THREADS / 8 < rows);
    }
}

/* A of a warp: the 16 rows and 64 columns at `rows`, whose first row has a
 * number that is a multiple of 8. It is read again for every tile: ptxas 13.0
 * gives fragments that live around a loop of products to others. */
__device__ inline void slab_rows(uint32_t (&a)[4][4], const bf16 *rows)
{
    int lane = threadIdx.x % 32;

#pragma unroll
    for (int step = 0; step < 4; step++) {
        ldmatrix(a[step], rows + slab_at(lane % 16, step * 16 + lane / 16 * 8));
    }
}

/* The lower half of the descriptor of a slab: its address, and the distance
 * between slabs, which 64 columns do not use. A slab that is `bytes` further
 * has bytes / 16 more. */
__device__ inline uint32_t slab_low(const bf16 *slab)
{
    return (shared_address(slab) & 0x3ffff) >> 4 | 1u << 16;
}

/* The descriptor of k 16 step .. of a slab; the upper half is the kind of
 * swizzle and the distance of eight rows. */
template <bool ROWS> __device__ inline uint64_t slab_b(uint32_t low, int step)
{
    constexpr uint32_t HIGH = 1u << 30 | 8 * 2 * SLAB_WIDTH / 16;
    constexpr int STEP = (ROWS ? 16 * 2 * SLAB_WIDTH : 32) / 16;

    return (uint64_t)HIGH << 32 | (low + (uint32_t)(step * STEP));
}

/* c (64, 64) = or += a (64, 64) by a slab: four products. */
template <bool ROWS>
__device__ inline void slab_product(float (&c)[8][4],
                                    const uint32_t (&a)[4][4],
                                    uint32_t low,
                                    bool add)
{
#pragma unroll
    for (int k = 0; k < 4; k++) {
        wgmma_64<ROWS>(c, a[k], slab_b<ROWS>(low, k), add || k > 0);
    }
}

/* The same with a (64, 64) in a slab of which `a` is the lower half. */
template <bool ROWS>
__device__ inline void
slab_product_shared(float (&c)[8][4], uint32_t a, uint32_t low, bool add)
{
#pragma unroll
    for (int k = 0; k < 4; k++) {
        wgmma_64_shared<ROWS>(c, slab_b<SLAB_COLUMNS>(a, k),
                              slab_b<ROWS>(low, k), add || k > 0);
    }
}

/* A of the next product (64 x 64) from the result of one, rounded. */
__device__ inline void slab_a_from(uint32_t (&a)[4][4], const float (&c)[8][4])
{
#pragma unroll
    for (int k = 0; k < 4; k++) {
        a[k][0] = pack_bf16(c[2 * k][0], c[2 * k][1]);
        a[k][1] = pack_bf16(c[2 * k][2], c[2 * k][3]);
        a[k][2] = pack_bf16(c[2 * k + 1][0], c[2 * k + 1][1]);
        a[k][3] = pack_bf16(c[2 * k + 1][2], c[2 * k + 1][3]);
    }
}

#endif
