/* emu_memory.cpp - device memory that only the GPU can touch.
 *
 * Each piece is a mapping of its own with guard bytes around. While nothing
 * runs on the emulated GPU it may be neither read nor written: a program that
 * takes an address of the device for one of its own ends here as it does on a
 * real machine. (The reverse, a kernel that reads the process's memory, is not
 * seen.) Pinned memory is malloc's, with its bounds known.
 *
 * Registered memory is the caller's, by whole pages: what is registered twice,
 * or freed before it is unregistered, is found. The GPU knows the pages, not
 * the addresses: where the process had new ones put in their place, a copy
 * that comes later writes to nothing that anybody reads.
 *
 * After a GPU that broke or hangs the plug-in gives nothing back that is CUDA's,
 * on purpose: what is left is named in tables that no destructor empties, here
 * and in the other files, so that LeakSanitizer sees the leaks of loco alone.
 */
#include <map>
#include <set>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "tests/emu/emu_runtime.h"

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#define POISON(p, n)   ASAN_POISON_MEMORY_REGION(p, n)
#define UNPOISON(p, n) ASAN_UNPOISON_MEMORY_REGION(p, n)
#else
#define POISON(p, n)   ((void)(p), (void)(n))
#define UNPOISON(p, n) ((void)(p), (void)(n))
#endif

#define GUARD      256
#define GUARD_BYTE 0xa5
/* Larger pieces (the workspace of cuBLASLt) begin as zeros: pages that nobody
 * touched cost nothing to protect. */
#define FILL_MAX ((size_t)32 << 20)

struct piece {
    unsigned char *map;
    size_t mapped, bytes;
    int device;
};

static std::map<uintptr_t, struct piece> pieces; /* by the address given out */
static std::map<uintptr_t, size_t> &pinned =
    *new std::map<uintptr_t, size_t>;

struct registered {
    size_t bytes;
    int device; /* whose context knows it */
    std::set<uintptr_t> gone; /* pages that are others by now */
};
static std::map<uintptr_t, struct registered> registered;
static int opened[EMU_DEVICES_MAX]; /* calls of emu_memory_open() */

static void protect_all(int device, int how)
{
    for (const auto &p : pieces) {
        if (p.second.device == device &&
            mprotect(p.second.map, p.second.mapped, how) != 0) {
            emu_give_up("mprotect failed");
        }
    }
}

void emu_memory_open(int device)
{
    for (int d = 0; d < EMU_DEVICES_MAX; d++) {
        if ((device == EMU_ALL || device == d) && opened[d]++ == 0) {
            protect_all(d, PROT_READ | PROT_WRITE);
        }
    }
}

void emu_memory_close(int device)
{
    for (int d = 0; d < EMU_DEVICES_MAX; d++) {
        if ((device == EMU_ALL || device == d) && --opened[d] == 0) {
            protect_all(d, PROT_NONE);
        }
    }
}

template <class M>
static bool inside(const M &map,
                   const void *p,
                   size_t bytes,
                   size_t size_at(const typename M::mapped_type &))
{
    uintptr_t at = (uintptr_t)p;
    auto next = map.upper_bound(at);

    if (next == map.begin()) {
        return false;
    }
    --next;
    return at + bytes <= next->first + size_at(next->second);
}

bool emu_is_device(const void *p, size_t bytes)
{
    return inside(
        pieces, p, bytes, +[](const struct piece &x) { return x.bytes; });
}

bool emu_is_of(int device, const void *p, size_t bytes)
{
    auto next = pieces.upper_bound((uintptr_t)p);

    return emu_is_device(p, bytes) && (--next)->second.device == device;
}

bool emu_is_pinned(const void *p, size_t bytes)
{
    return inside(
        pinned, p, bytes, +[](const size_t &x) { return x; });
}

bool emu_is_registered(const void *p, size_t bytes)
{
    return inside(
        registered, p, bytes,
        +[](const struct registered &x) { return x.bytes; });
}

cudaError_t cudaMalloc(void **p, size_t bytes)
{
    EMU_ENTER;

    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    struct piece x = {};

    emu_control.mallocs++;
    *p = NULL;
    if (emu_sticky() != cudaSuccess) {
        return emu_sticky();
    }
    if (emu_due(&emu_control.fail_malloc) ||
        emu_control.used_of[emu_device()] + bytes >
            emu_memory_of(emu_device())) {
        return emu_fail(cudaErrorMemoryAllocation);
    }
    x.bytes = bytes;
    x.device = emu_device();
    x.mapped = (2 * GUARD + bytes + page - 1) / page * page;
    x.map = (unsigned char *)mmap(NULL, x.mapped, PROT_READ | PROT_WRITE,
                                  MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (x.map == MAP_FAILED) {
        return emu_fail(cudaErrorMemoryAllocation);
    }
    *p = x.map + GUARD;
    memset(x.map, GUARD_BYTE, GUARD);
    if (bytes <= FILL_MAX) {
        memset(x.map + GUARD, 0xff, bytes); /* NaN, as fp32 and as bf16 */
    }
    memset(x.map + GUARD + bytes, GUARD_BYTE, GUARD);
    POISON(x.map, GUARD);
    POISON(x.map + GUARD + bytes, x.mapped - GUARD - bytes);
    if (opened[x.device] == 0 && mprotect(x.map, x.mapped, PROT_NONE) != 0) {
        emu_give_up("mprotect failed");
    }
    pieces[(uintptr_t)*p] = x;
    emu_control.used += bytes;
    emu_control.used_of[x.device] += bytes;
    return cudaSuccess;
}

static void check_guards(const struct piece *x)
{
    const unsigned char *after = x->map + GUARD + x->bytes;

    UNPOISON(x->map, x->mapped);
    for (size_t i = 0; i < GUARD; i++) {
        if (x->map[i] != GUARD_BYTE || after[i] != GUARD_BYTE) {
            fprintf(stderr, "emulator: memory beside %zu bytes was written\n",
                    x->bytes);
            abort();
        }
    }
}

/* Waits for all that is queued, as the real one does. */
cudaError_t cudaFree(void *p)
{
    EMU_ENTER;

    auto found = pieces.find((uintptr_t)p);

    if (p == NULL) {
        return cudaSuccess;
    }
    if (found == pieces.end()) {
        emu_give_up("cudaFree of what cudaMalloc did not give");
    }
    emu_run_all();
    emu_memory_open(found->second.device);
    check_guards(&found->second);
    emu_memory_close(found->second.device);
    emu_control.used -= found->second.bytes;
    emu_control.used_of[found->second.device] -= found->second.bytes;
    emu_control.frees++;
    (void)munmap(found->second.map, found->second.mapped);
    pieces.erase(found);
    return emu_sticky();
}

cudaError_t cudaHostAlloc(void **p, size_t bytes, unsigned flags)
{
    EMU_ENTER;

    (void)flags;
    *p = NULL;
    emu_run_all(); /* as the real one may */
    if (emu_sticky() != cudaSuccess) {
        return emu_sticky();
    }
    if (emu_due(&emu_control.fail_pin)) {
        return emu_fail(emu_control.pin_error != 0
                            ? (cudaError_t)emu_control.pin_error
                            : cudaErrorMemoryAllocation);
    }
    *p = malloc(bytes);
    if (*p == NULL) {
        return emu_fail(cudaErrorMemoryAllocation);
    }
    memset(*p, 0xff, bytes);
    pinned[(uintptr_t)*p] = bytes;
    return cudaSuccess;
}

cudaError_t cudaFreeHost(void *p)
{
    EMU_ENTER;

    emu_run_all();
    if (pinned.erase((uintptr_t)p) == 0) {
        emu_give_up("cudaFreeHost of what cudaHostAlloc did not give");
    }
    free(p);
    return emu_sticky();
}

/* ---- registered memory ---------------------------------------------------
 */

static uintptr_t page_of(uintptr_t at)
{
    return at / (uintptr_t)sysconf(_SC_PAGESIZE) *
           (uintptr_t)sysconf(_SC_PAGESIZE);
}

/* Waits for all that is queued, as the real one may. */
cudaError_t cudaHostRegister(void *p, size_t bytes, unsigned flags)
{
    EMU_ENTER;

    uintptr_t at = (uintptr_t)p;

    (void)flags;
    emu_run_all();
    if (emu_sticky() != cudaSuccess) {
        return emu_sticky();
    }
    if (emu_due(&emu_control.fail_register)) {
        return emu_fail(emu_control.register_error != 0
                            ? (cudaError_t)emu_control.register_error
                            : cudaErrorMemoryAllocation);
    }
    if (page_of(at) != at || page_of(bytes) != bytes || bytes == 0) {
        emu_give_up("cudaHostRegister of parts of pages");
    }
    for (const auto &r : registered) {
        if (at < r.first + r.second.bytes && r.first < at + bytes) {
            return emu_fail(cudaErrorHostMemoryAlreadyRegistered);
        }
    }
    registered[at] = {bytes, emu_device(), {}};
    emu_control.registered += bytes;
    return cudaSuccess;
}

cudaError_t cudaHostUnregister(void *p)
{
    EMU_ENTER;

    auto found = registered.find((uintptr_t)p);

    emu_run_all();
    if (found == registered.end()) {
        return emu_fail(cudaErrorHostMemoryNotRegistered);
    }
    if (msync(p, found->second.bytes, MS_ASYNC) != 0) {
        emu_give_up("memory was freed while it was registered");
    }
    emu_control.registered -= found->second.bytes;
    registered.erase(found);
    return emu_sticky();
}

void emu_forget_registered(void)
{
    for (auto r = registered.begin(); r != registered.end();) {
        if (r->second.device == emu_device()) {
            emu_control.registered -= r->second.bytes;
            r = registered.erase(r);
        } else {
            ++r;
        }
    }
}

void emu_write_host(void *to, const void *from, size_t bytes)
{
    auto r = registered.upper_bound((uintptr_t)to);
    uintptr_t at = (uintptr_t)to, end = at + bytes;
    size_t page = (size_t)sysconf(_SC_PAGESIZE);

    if (r == registered.begin()) {
        return; /* its context is gone, and the copy with it */
    }
    --r;
    while (at < end) {
        uintptr_t next = page_of(at) + page < end ? page_of(at) + page : end;

        if (r->second.gone.count(page_of(at)) == 0) {
            memmove((void *)at,
                    (const unsigned char *)from + (at - (uintptr_t)to),
                    next - at);
        }
        at = next;
    }
}

/* A machine with less memory than this one. */
long emu_sysconf(int name)
{
    return name == _SC_PHYS_PAGES && emu_control.host_pages > 0
               ? (long)emu_control.host_pages
               : sysconf(name);
}

int emu_madvise(void *p, size_t bytes, int advice)
{
    EMU_ENTER;

    uintptr_t end = (uintptr_t)p + bytes;

    for (auto &r : registered) {
        for (uintptr_t at = page_of((uintptr_t)p); at < end;
             at += (uintptr_t)sysconf(_SC_PAGESIZE)) {
            if (at >= r.first && at < r.first + r.second.bytes) {
                r.second.gone.insert(at);
            }
        }
    }
    return madvise(p, bytes, advice);
}
