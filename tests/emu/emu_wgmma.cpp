/* emu_wgmma.cpp - products of a warpgroup: see emu_wgmma.h. */
#include "tests/emu/emu_wgmma.h"
#include "kernels/cuda/mma.cuh"
#include "tests/emu/emu_runtime.h"

#include <vector>

#define WARP 32
/* Where the block's dynamic memory begins: no multiple of 1,024, so that a
 * kernel that does not align its slabs is seen. */
#define SHARED_BEGIN 128

/* One lane's part of a product that has not happened yet. */
struct product {
    float *c;
    float a[16][16]; /* the warp's rows, from registers */
    uint64_t in_a;   /* or from shared memory */
    uint64_t b;
    bool shared, rows, add;
};

struct queue {
    std::vector<product> open;
    std::vector<std::vector<product>> groups;
};

static struct queue queues[EMU_THREADS_MAX];

uint32_t emu_shared_address(const void *p)
{
    return (uint32_t)((const unsigned char *)p - emu_shared()) + SHARED_BEGIN;
}

static float value(uint16_t bits)
{
    return __uint_as_float((uint32_t)bits << 16);
}

/* A as mma.m16n8k16 has it: a0 (g, 2t), a1 (g + 8, 2t), a2 (g, 2t + 8), a3
 * (g + 8, 2t + 8). */
static void gather(struct product *p, const uint32_t *a)
{
    const unsigned char *all = emu_exchange(a, 4 * sizeof *a);

    for (int lane = 0; lane < WARP; lane++) {
        uint16_t pairs[4][2];

        memcpy(pairs, all + lane * EMU_SLOT, sizeof pairs);
        for (int i = 0; i < 8; i++) {
            int row = lane / 4 + (i / 2 % 2) * 8;
            int column = lane % 4 * 2 + i % 2 + i / 4 * 8;

            p->a[row][column] = value(pairs[i / 2][i % 2]);
        }
    }
}

static void ask(struct product *p, float *c, uint64_t b, bool rows, bool add)
{
    if (emu_copies_unfenced()) {
        emu_give_up("a product before wgmma_fence_copies() of all threads");
    }
    if (b >> 62 != 1 || (p->shared && p->in_a >> 62 != 1)) {
        emu_give_up("a descriptor of another swizzle");
    }
    p->c = c;
    p->b = b;
    p->rows = rows;
    p->add = add;
    queues[emu_thread()].open.push_back(*p);
}

void emu_wgmma(float *c, const uint32_t *a, uint64_t b, bool rows, bool add)
{
    struct product p = {};

    gather(&p, a);
    ask(&p, c, b, rows, add);
}

void emu_wgmma_shared(float *c, uint64_t a, uint64_t b, bool rows, bool add)
{
    struct product p = {};

    p.shared = true;
    p.in_a = a;
    ask(&p, c, b, rows, add);
}

void emu_wgmma_commit(void)
{
    struct queue *q = &queues[emu_thread()];

    q->groups.push_back(q->open);
    q->open.clear();
}

/* Element (k, n) of b. Its distances are in 16 bytes; bits 4 to 6 of an address
 * are exchanged by bits 7 to 9. */
static float element(uint64_t b, bool rows, int k, int n)
{
    uint32_t start = (uint32_t)(b & 0x3fff) << 4;
    uint32_t eight = (uint32_t)(b >> 32 & 0x3fff) << 4;
    uint32_t at = rows ? start + k / 8 * eight + k % 8 * 128 + n * 2
                       : start + n / 8 * eight + n % 8 * 128 + k * 2;
    uint16_t bits;

    at ^= (at >> 7 & 7) << 4;
    if (at < SHARED_BEGIN || at + 2 > SHARED_BEGIN + emu_shared_bytes()) {
        emu_give_up("a descriptor outside shared memory");
    }
    memcpy(&bits, emu_shared() + (at - SHARED_BEGIN), sizeof bits);
    return value(bits);
}

/* Element (row, k) of a; the warp's rows are 16 of the warpgroup's 64. */
static float left(const struct product *p, int row, int k)
{
    int warp = emu_thread() / WARP % 4;

    return p->shared ? element(p->in_a, false, k, warp * 16 + row)
                     : p->a[row][k];
}

/* This lane's elements: (g, 8 n + 2t), (.., + 1), (g + 8, ..), (.., + 1). */
static void happen(const struct product *p)
{
    int lane = emu_lane();

    for (int i = 0; i < 32; i++) {
        int row = lane / 4 + i / 2 % 2 * 8;
        int column = i / 4 * 8 + lane % 4 * 2 + i % 2;
        double sum = 0;

        for (int k = 0; k < 16; k++) {
            sum += (double)left(p, row, k) * element(p->b, p->rows, k, column);
        }
        p->c[i] = (float)(p->add ? p->c[i] + sum : sum);
    }
}

void emu_wgmma_wait(int left)
{
    struct queue *q = &queues[emu_thread()];

    while ((int)q->groups.size() > left) {
        for (const struct product &p : q->groups.front()) {
            happen(&p);
        }
        q->groups.erase(q->groups.begin());
    }
}

bool emu_wgmma_open(void)
{
    struct queue *q = &queues[emu_thread()];

    return !q->open.empty() || !q->groups.empty();
}
