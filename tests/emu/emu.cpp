/* emu.cpp - blocks of fibers: see emu.h. */
#include "tests/emu/emu.h"
#include "kernels/cuda/mma.cuh"
#include "tests/emu/emu_runtime.h"

#include <algorithm>
#include <map>
#include <stdio.h>
#include <vector>

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#define STACK_BYTES (160 << 10)
#else
#define STACK_BYTES (96 << 10)
#endif
#ifndef __x86_64__
#include <ucontext.h>
#endif

#define THREADS_MAX EMU_THREADS_MAX
#define WARP        32
#define GUARD       64
#define GUARD_BYTE  0xa5
#define SHARED_FREE (48u << 10) /* what a block gets unasked */

/* What a block can ask for: of Hopper, or of the smallest GPU that we serve. */
static unsigned shared_max(void)
{
    return (emu_control.sm == 90 ? 227u : 99u) << 10;
}

/* A copy that has not happened yet. */
struct late_copy {
    void *to;
    const void *from;
    unsigned bytes;
    bool inside;
};

enum waits { RUNS, AT_WARP, AT_BARRIER, ENDED };

struct fiber {
    dim3 index;
    enum waits state;
    unsigned exchanges; /* made by this thread */
    std::vector<late_copy> open;
    std::vector<std::vector<late_copy>> groups;
    bool unfenced; /* copies came that wgmma does not see yet */
    unsigned char *stack;
#ifdef __x86_64__
    void *sp;
#else
    ucontext_t context;
#endif
    void *fake; /* AddressSanitizer's */
};

struct warp {
    unsigned arrived[2];
    unsigned char slot[2][WARP][EMU_SLOT];
};

struct emu_place emu_here;

static struct fiber fibers[THREADS_MAX];
static struct warp warps[THREADS_MAX / WARP];
static unsigned n_threads, n_barrier, n_ended;
static struct fiber *current;
static unsigned char *shared_memory;
static size_t shared_bytes;
static const std::function<void()> *kernel_body;
static uint64_t shuffle_state = 1;
static std::map<const void *, int> shared_limits;
#ifdef __x86_64__
static void *main_sp;
#else
static ucontext_t main_context;
#endif
#if defined(__SANITIZE_ADDRESS__)
static void *main_fake;
static const void *main_stack;
static size_t main_stack_bytes;
#endif

static void give_up(const char *why)
{
    fprintf(stderr, "emulator: %s (block %u %u %u, thread %u of %u)\n", why,
            emu_here.block.x, emu_here.block.y, emu_here.block.z,
            current == NULL ? 0 : (unsigned)(current - fibers), n_threads);
    abort();
}

/* ---- switching ------------------------------------------------------------
 */

#ifdef __x86_64__
/* Save what a call must keep, change stacks, take up the other's. */
extern "C" void emu_switch(void **save, void *load);
asm(".text\n"
    ".globl emu_switch\n"
    ".hidden emu_switch\n"
    ".type emu_switch,@function\n"
    "emu_switch:\n"
    "    pushq %rbp\n    pushq %rbx\n    pushq %r12\n"
    "    pushq %r13\n    pushq %r14\n    pushq %r15\n"
    "    movq %rsp, (%rdi)\n"
    "    movq %rsi, %rsp\n"
    "    popq %r15\n    popq %r14\n    popq %r13\n"
    "    popq %r12\n    popq %rbx\n    popq %rbp\n"
    "    ret\n"
    ".size emu_switch,.-emu_switch\n");
#endif

static void to_fiber(struct fiber *f)
{
    current = f;
    emu_here.thread = f->index;
#if defined(__SANITIZE_ADDRESS__)
    __sanitizer_start_switch_fiber(&main_fake, f->stack, STACK_BYTES);
#endif
#ifdef __x86_64__
    emu_switch(&main_sp, f->sp);
#else
    swapcontext(&main_context, &f->context);
#endif
#if defined(__SANITIZE_ADDRESS__)
    __sanitizer_finish_switch_fiber(main_fake, NULL, NULL);
#endif
    current = NULL;
}

static void to_main(void)
{
    struct fiber *f = current;

#if defined(__SANITIZE_ADDRESS__)
    __sanitizer_start_switch_fiber(f->state == ENDED ? NULL : &f->fake,
                                   main_stack, main_stack_bytes);
#endif
#ifdef __x86_64__
    emu_switch(&f->sp, main_sp);
#else
    swapcontext(&f->context, &main_context);
#endif
#if defined(__SANITIZE_ADDRESS__)
    __sanitizer_finish_switch_fiber(f->fake, &main_stack, &main_stack_bytes);
#endif
}

static void fiber_main(void)
{
#if defined(__SANITIZE_ADDRESS__)
    __sanitizer_finish_switch_fiber(NULL, &main_stack, &main_stack_bytes);
#endif
    (*kernel_body)();
    if (!current->open.empty() || !current->groups.empty()) {
        give_up("a thread ended with copies that nobody waited for");
    }
    if (emu_wgmma_open()) {
        give_up("a thread ended with products that nobody waited for");
    }
    current->state = ENDED;
    n_ended++;
    to_main();
    give_up("a fiber that ended went on");
}

static void fiber_begin(struct fiber *f)
{
    if (f->stack == NULL) {
        f->stack = (unsigned char *)aligned_alloc(64, STACK_BYTES);
    }
#if defined(__SANITIZE_ADDRESS__)
    /* the frames that ended with the last block's fiber */
    ASAN_UNPOISON_MEMORY_REGION(f->stack, STACK_BYTES);
#endif
    f->state = RUNS;
    f->exchanges = 0;
    f->open.clear();
    f->groups.clear();
    f->unfenced = false;
#ifdef __x86_64__
    void **sp = (void **)(f->stack + STACK_BYTES);

    *--sp = NULL; /* fiber_main returns to nobody; keeps the stack aligned */
    *--sp = (void *)fiber_main;
    sp -= 6;
    memset(sp, 0, 6 * sizeof *sp);
    f->sp = sp;
#else
    getcontext(&f->context);
    f->context.uc_stack.ss_sp = f->stack;
    f->context.uc_stack.ss_size = STACK_BYTES;
    makecontext(&f->context, fiber_main, 0);
#endif
}

/* ---- what a whole block or warp waits for ----------------------------------
 */

int emu_lane(void)
{
    return (int)((unsigned)(current - fibers) % WARP);
}

int emu_thread(void)
{
    return (int)(current - fibers);
}

static unsigned warp_lanes(unsigned warp)
{
    unsigned left = n_threads - warp * WARP;

    return left < WARP ? left : WARP;
}

const unsigned char *emu_exchange(const void *mine, size_t bytes)
{
    struct fiber *f = current;
    unsigned at = (unsigned)(f - fibers);
    struct warp *w = &warps[at / WARP];
    unsigned turn = f->exchanges++ % 2;
    unsigned lanes = warp_lanes(at / WARP);

    if (bytes > EMU_SLOT) {
        give_up("too large an exchange");
    }
    memcpy(w->slot[turn][at % WARP], mine, bytes);
    if (++w->arrived[turn] == lanes) {
        w->arrived[!turn] = 0; /* everybody has read that one */
    } else {
        f->state = AT_WARP;
        while (w->arrived[turn] != lanes) {
            to_main();
        }
        f->state = RUNS;
    }
    return &w->slot[turn][0][0];
}

void __syncthreads(void)
{
    struct fiber *f = current;

    f->state = AT_BARRIER;
    n_barrier++;
    to_main();
    if (f->state != RUNS) {
        give_up("a barrier opened too early");
    }
}

/* Everybody who has not ended is there: open it. */
static bool open_barrier(void)
{
    if (n_barrier == 0 || n_barrier + n_ended < n_threads) {
        return false;
    }
    for (unsigned i = 0; i < n_threads; i++) {
        if (fibers[i].state == AT_BARRIER) {
            fibers[i].state = RUNS;
        }
    }
    n_barrier = 0;
    return true;
}

static bool may_run(unsigned i)
{
    struct fiber *f = &fibers[i];

    return f->state == RUNS ||
           (f->state == AT_WARP &&
            warps[i / WARP].arrived[(f->exchanges - 1) % 2] ==
                warp_lanes(i / WARP));
}

/* ---- asynchronous copies ---------------------------------------------------
 */

void emu_copy_16(void *to, const void *from, bool inside)
{
    if (((uintptr_t)to | (uintptr_t)from) % 16 != 0) {
        give_up("cp.async wants addresses on 16 bytes");
    }
    current->open.push_back({to, from, 16, inside});
}

void emu_copy_4(void *to, const void *from, bool inside)
{
    if (((uintptr_t)to | (uintptr_t)from) % 4 != 0) {
        give_up("cp.async wants addresses on 4 bytes");
    }
    current->open.push_back({to, from, 4, inside});
}

void emu_copies_commit(void)
{
    current->groups.push_back(current->open);
    current->open.clear();
}

void emu_copies_wait(int left)
{
    std::vector<std::vector<late_copy>> &groups = current->groups;

    while ((int)groups.size() > left) {
        for (const late_copy &c : groups.front()) {
            if (c.inside) {
                memcpy(c.to, c.from, c.bytes);
            } else {
                memset(c.to, 0, c.bytes);
            }
            current->unfenced = true;
        }
        groups.erase(groups.begin());
    }
}

void emu_fence_copies(void)
{
    current->unfenced = false;
}

bool emu_copies_unfenced(void)
{
    for (unsigned i = 0; i < n_threads; i++) {
        if (fibers[i].unfenced) {
            return true;
        }
    }
    return false;
}

/* ---- tensor cores ----------------------------------------------------------
 */

static float low(uint32_t x)
{
    return __uint_as_float(x << 16);
}

static float high(uint32_t x)
{
    return __uint_as_float(x & 0xffff0000u);
}

/* PTX ISA, mma.m16n8k16: for fragment A, row = groupID for a0, a1, a4, a5 and
 * groupID + 8 otherwise, col = threadID_in_group * 2 + (i & 1), + 8 for i >= 4;
 * for B, row = threadID_in_group * 2 + (i & 1), + 8 for i >= 2, col = groupID;
 * for C, row = groupID (+ 8 for i >= 2), col = threadID_in_group * 2 + (i & 1).
 */
void emu_mma(float *c, const uint32_t *a, uint32_t b0, uint32_t b1)
{
    uint32_t mine[6] = {a[0], a[1], a[2], a[3], b0, b1};
    const unsigned char *all = emu_exchange(mine, sizeof mine);
    float full_a[16][16];
    float full_b[16][8];
    int lane = emu_lane();

    for (int l = 0; l < WARP; l++) {
        uint32_t r[6];
        int group = l >> 2;
        int in_group = l & 3;

        memcpy(r, all + l * EMU_SLOT, sizeof r);
        for (int i = 0; i < 8; i++) {
            bool lower_rows = i < 2 || (i >= 4 && i < 6);
            int row = lower_rows ? group : group + 8;
            int col = in_group * 2 + (i & 1) + (i >= 4 ? 8 : 0);

            full_a[row][col] = i & 1 ? high(r[i / 2]) : low(r[i / 2]);
        }
        for (int i = 0; i < 4; i++) {
            int row = in_group * 2 + (i & 1) + (i >= 2 ? 8 : 0);

            full_b[row][group] = i & 1 ? high(r[4 + i / 2]) : low(r[4 + i / 2]);
        }
    }
    for (int i = 0; i < 4; i++) {
        int row = (lane >> 2) + (i >= 2 ? 8 : 0);
        int col = (lane & 3) * 2 + (i & 1);
        double sum = 0;

        for (int k = 0; k < 16; k++) {
            sum += (double)full_a[row][k] * (double)full_b[k][col];
        }
        c[i] = (float)((double)c[i] + sum);
    }
}

/* PTX ISA, ldmatrix: thread i of a group of eight gives the address of row i;
 * thread T gets of row T / 4 the elements T % 4 * 2 and the next; .trans loads
 * the matrix in column-major. */
void emu_ldmatrix(uint32_t *r, const void *row, bool trans)
{
    const unsigned char *all = emu_exchange(&row, sizeof row);
    int lane = emu_lane();

    if ((uintptr_t)row % 16 != 0) {
        give_up("ldmatrix wants rows on 16 bytes");
    }
    for (int matrix = 0; matrix < 4; matrix++) {
        uint16_t pair[2];

        for (int i = 0; i < 2; i++) {
            int element_row = trans ? lane % 4 * 2 + i : lane / 4;
            int element_col = trans ? lane / 4 : lane % 4 * 2 + i;
            const uint16_t *from;

            memcpy(&from, all + (matrix * 8 + element_row) * EMU_SLOT,
                   sizeof from);
            pair[i] = from[element_col];
        }
        r[matrix] = pair[0] | (uint32_t)pair[1] << 16;
    }
}

/* ---- binary16, by arithmetic and not by proto/base/half.h ------------------
 */

uint16_t half_bits(float x)
{
    double a = fabs((double)x);
    uint16_t sign = signbit(x) ? 0x8000 : 0;
    int e;
    double units;

    if (isnan(x)) {
        return 0x7fff;
    }
    if (a == 0) {
        return sign;
    }
    (void)frexp(a, &e); /* a in [2^(e-1), 2^e) */
    e = e - 1 < -14 ? -14 : e - 1;
    units = nearbyint(ldexp(a, 10 - e)); /* ties to even */
    if (units >= 2048) {
        units /= 2;
        e++;
    }
    if (e > 15) {
        return sign | 0x7c00;
    }
    return (uint16_t)(sign + (units < 1024 ? (int)units
                                           : (e + 14) * 1024 + (int)units));
}

float half_value(uint16_t h)
{
    int e = h >> 10 & 31;
    double m = h & 1023;
    double a = e == 31  ? (m == 0 ? INFINITY : NAN)
               : e == 0 ? ldexp(m, -24)
                        : ldexp(1024 + m, e - 25);

    return (float)(h & 0x8000 ? -a : a);
}

/* ---- launches --------------------------------------------------------------
 */

unsigned char *emu_shared(void)
{
    return shared_memory;
}

size_t emu_shared_bytes(void)
{
    return shared_bytes;
}

static void take_shared(size_t bytes)
{
    void *p = NULL;

    shared_bytes = bytes;
    if (posix_memalign(&p, 128, bytes + GUARD) != 0) {
        give_up("no memory");
    }
    shared_memory = (unsigned char *)p;
    memset(shared_memory, 0xff, bytes);
    memset(shared_memory + bytes, GUARD_BYTE, GUARD);
}

static void give_shared(size_t bytes)
{
    for (size_t i = 0; i < GUARD; i++) {
        if (shared_memory[bytes + i] != GUARD_BYTE) {
            give_up("shared memory was written past its end");
        }
    }
    free(shared_memory);
    shared_memory = NULL;
}

/* 0 .. n in the order of the schedule. */
static void order_of(std::vector<unsigned> &order, unsigned n)
{
    order.resize(n);
    for (unsigned i = 0; i < n; i++) {
        order[i] = emu_control.schedule == 1 ? n - 1 - i : i;
    }
    for (unsigned i = n; emu_control.schedule == 2 && i > 1; i--) {
        shuffle_state =
            shuffle_state * 6364136223846793005u + 1442695040888963407u;
        std::swap(order[i - 1], order[(shuffle_state >> 33) % i]);
    }
}

static void run_block(dim3 threads, size_t shared)
{
    std::vector<unsigned> order;

    n_threads = threads.x * threads.y * threads.z;
    n_barrier = n_ended = 0;
    memset(warps, 0, sizeof warps);
    take_shared(shared);
    for (unsigned i = 0; i < n_threads; i++) {
        fibers[i].index = dim3(i % threads.x, i / threads.x % threads.y,
                               i / threads.x / threads.y);
        fiber_begin(&fibers[i]);
    }
    order_of(order, n_threads);
    while (n_ended < n_threads) {
        bool moved = false;

        for (unsigned i : order) {
            if (may_run(i)) {
                to_fiber(&fibers[i]);
                moved = true;
            }
        }
        if (!moved && !open_barrier()) {
            give_up("threads wait for each other at different places");
        }
        if (emu_control.schedule == 2) {
            order_of(order, n_threads);
        }
    }
    give_shared(shared);
}

static bool configured(const void *kernel, dim3 grid, dim3 block, size_t shared)
{
    auto limit = shared_limits.find(kernel);
    uint64_t threads = (uint64_t)block.x * block.y * block.z;

    return grid.x > 0 && grid.y > 0 && grid.z > 0 && grid.x <= 0x7fffffffu &&
           grid.y <= 65535 && grid.z <= 65535 && threads > 0 &&
           threads <= THREADS_MAX && block.z <= 64 && shared <= shared_max() &&
           (shared <= SHARED_FREE ||
            (limit != shared_limits.end() && shared <= (size_t)limit->second));
}

static void run_grid(dim3 grid,
                     dim3 block,
                     size_t shared,
                     const std::function<void()> &body)
{
    std::vector<unsigned> order;

    kernel_body = &body;
    emu_here.threads = block;
    emu_here.blocks = grid;
    order_of(order, grid.x * grid.y * grid.z);
    for (unsigned i : order) {
        emu_here.block =
            dim3(i % grid.x, i / grid.x % grid.y, i / grid.x / grid.y);
        run_block(block, shared);
    }
}

int emu_launch_fails(bool configuration);

void emu_launch(const void *kernel,
                dim3 grid,
                dim3 block,
                size_t shared,
                cudaStream_t stream,
                const std::function<void()> &body)
{
    EMU_ENTER;

    if (emu_launch_fails(!configured(kernel, grid, block, shared))) {
        return;
    }
    emu_control.shared_most =
        std::max<uint64_t>(emu_control.shared_most, shared);
    emu_queue(stream, [=] { run_grid(grid, block, shared, body); });
}

cudaError_t
cudaFuncSetAttribute(const void *kernel, enum cudaFuncAttribute a, int value)
{
    EMU_ENTER;

    if (emu_sticky() != cudaSuccess) {
        return emu_sticky();
    }
    if (a != cudaFuncAttributeMaxDynamicSharedMemorySize ||
        (unsigned)value > shared_max()) {
        return cudaErrorInvalidValue;
    }
    shared_limits[kernel] = value;
    return cudaSuccess;
}
