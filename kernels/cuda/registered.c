/* registered.c - memory of the caller that the driver knows.
 *
 * A copy between the GPU and memory of this process goes through pinned halves
 * of 4 MB by one thread (gpu.c), some 10 GB/s. Memory that was registered is
 * read and written by the GPU itself, at the speed of PCIe: 25 to 50 GB/s. The
 * happy path: the replica registers the vectors that travel in each outer step,
 * once, and unregisters them before they are freed.
 *
 * What can go wrong:
 *   - the system refuses (no support, a limit, no memory): LOCO_ENOMEM, and the
 *     copies go as before. Locked pages cannot be swapped, so more than half of
 *     the machine's memory is never asked for;
 *   - freed while registered: the driver would go on writing to pages that are
 *     somebody else's address now. close() unregisters what is left, and the
 *     caller closes first;
 *   - the GPU breaks while a copy into such memory is under way: it may arrive
 *     minutes later, when the processor has long computed something else there.
 *     Nothing can call it back, so the pages that it goes to are given up:
 *     MADV_DONTNEED puts new ones in their place, and the old ones belong to
 *     the driver alone. So only private, anonymous memory may be registered.
 *     After a broken GPU nothing is unregistered; a reset or the end of the
 *     process does it.
 *
 * A fork while copies run could divide such pages in the wrong way; a process
 * with a GPU does not fork (posix_spawn is no fork).
 */
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "kernels/cuda/gpu.h"
#include "proto/base/err.h"

#ifdef LOCO_CUDA_EMULATED
#define madvise emu_madvise
#define sysconf emu_sysconf
#endif

/* Between two waits: 64 MB take 3 ms, and 0.3 s on the slowest of lanes. */
#define PIECE_BYTES ((size_t)64 << 20)

struct registration {
    struct registration *next;
    unsigned char *p;
    size_t bytes;
};

static size_t page_bytes(void)
{
    return (size_t)sysconf(_SC_PAGESIZE);
}

/* The machine's; 0: not known. */
static uint64_t memory_bytes(void)
{
    long pages = sysconf(_SC_PHYS_PAGES);

    return pages > 0 ? (uint64_t)pages * page_bytes() : 0;
}

static struct registration **
overlapping(struct gpu *g, const void *p, size_t bytes)
{
    struct registration **at = &g->registered;
    const unsigned char *from = p;

    while (*at != NULL &&
           (from + bytes <= (*at)->p || (*at)->p + (*at)->bytes <= from)) {
        at = &(*at)->next;
    }
    return at;
}

bool gpu_is_registered(const struct gpu *g, const void *p, size_t bytes)
{
    const struct registration *r = g->registered;
    const unsigned char *from = p;

    while (r != NULL && (from < r->p || from + bytes > r->p + r->bytes)) {
        r = r->next;
    }
    return r != NULL;
}

static uint64_t registered_bytes(const struct gpu *g)
{
    uint64_t sum = 0;

    for (const struct registration *r = g->registered; r != NULL; r = r->next) {
        sum += r->bytes;
    }
    return sum;
}

int gpu_may_lock(struct gpu *g, size_t bytes, const char *what)
{
    return registered_bytes(g) + gpu_host_bytes(g) + bytes > memory_bytes() / 2
               ? gpu_fail(g, LOCO_ENOMEM, what,
                          "more than half of this machine's memory")
               : 0;
}

bool gpu_is_refusal(cudaError_t e)
{
    bool refusal =
        e == cudaErrorMemoryAllocation || e == cudaErrorInvalidValue ||
        e == cudaErrorOperatingSystem || e == cudaErrorNotPermitted ||
        e == cudaErrorNotSupported || e == cudaErrorHostMemoryAlreadyRegistered;

    if (refusal) {
        (void)cudaGetLastError(); /* else a later launch would report it */
    }
    return refusal;
}

int gpu_host_register(struct gpu *g, void *p, size_t bytes)
{
    static const char what[] = "registered memory";
    size_t page = page_bytes();
    struct registration *r;
    int rv = gpu_enter(g);
    cudaError_t e;

    if (rv != 0) {
        return rv;
    }
    if (bytes == 0 || (uintptr_t)p % page != 0 || bytes % page != 0) {
        return gpu_fail(g, LOCO_EINVAL, what, "not whole pages");
    }
    if (*overlapping(g, p, bytes) != NULL) {
        return gpu_fail(g, LOCO_EBUSY, what, "registered already");
    }
    rv = gpu_may_lock(g, bytes, what);
    if (rv != 0) {
        return rv;
    }
    rv = gpu_wait_all(g, what); /* cudaHostRegister may do so without an end */
    if (rv != 0) {
        return rv;
    }
    r = malloc(sizeof *r);
    if (r == NULL) {
        return LOCO_ENOMEM;
    }
    e = cudaHostRegister(p, bytes, cudaHostRegisterDefault);
    if (e != cudaSuccess) {
        free(r);
        if (!gpu_is_refusal(e)) {
            return gpu_check(g, e, what);
        }
        return gpu_fail(g, LOCO_ENOMEM, what, cudaGetErrorString(e));
    }
    *r = (struct registration){g->registered, p, bytes};
    g->registered = r;
    return 0;
}

/* cudaHostUnregister may wait for the device: never after a hang. */
static void drop(struct gpu *g, struct registration **at)
{
    struct registration *r = *at;

    *at = r->next;
    if (gpu_enter(g) == 0 && gpu_wait_all(g, "unregister") == 0) {
        (void)gpu_check(g, cudaHostUnregister(r->p), "unregister");
    }
    free(r);
}

void gpu_host_unregister(struct gpu *g, void *p)
{
    struct registration **at = overlapping(g, p, 1);

    if (*at != NULL && (*at)->p == p) {
        drop(g, at);
    }
}

void gpu_unregister_all(struct gpu *g)
{
    while (g->registered != NULL) {
        drop(g, &g->registered);
    }
}

/* ---- copies ------------------------------------------------------------- */

void gpu_arriving(struct gpu *g, void *to, size_t bytes)
{
    g->arriving[g->n_arriving++] = (struct arriving){to, bytes};
}

void gpu_abandon(struct gpu *g)
{
    size_t page = page_bytes();

    for (int i = 0; i < g->n_arriving; i++) {
        uintptr_t from = (uintptr_t)g->arriving[i].to / page * page;
        uintptr_t end = (uintptr_t)g->arriving[i].to + g->arriving[i].bytes;

        end = (end + page - 1) / page * page;
        (void)madvise((void *)from, end - from, MADV_DONTNEED);
    }
    g->n_arriving = 0;
}

int gpu_put_registered(struct gpu *g, void *to, const void *from, size_t bytes)
{
    int rv = 0;

    for (size_t at = 0; at < bytes && rv == 0; at += PIECE_BYTES) {
        size_t n = bytes - at < PIECE_BYTES ? bytes - at : PIECE_BYTES;

        rv = gpu_check(g,
                       cudaMemcpyAsync((unsigned char *)to + at,
                                       (const unsigned char *)from + at, n,
                                       cudaMemcpyHostToDevice, g->stream),
                       "copy to the GPU");
        rv = rv != 0 ? rv : gpu_wait_stream(g, "copy to the GPU");
    }
    return rv;
}

int gpu_get_registered(struct gpu *g, void *to, const void *from, size_t bytes)
{
    /* Of those beside, which are kept for when they fail. */
    int rv = g->n_arriving == ARRIVING_MAX
                 ? gpu_wait_all(g, "copy from the GPU")
                 : 0;

    for (size_t at = 0; at < bytes && rv == 0; at += PIECE_BYTES) {
        size_t n = bytes - at < PIECE_BYTES ? bytes - at : PIECE_BYTES;
        unsigned char *part = (unsigned char *)to + at;

        gpu_arriving(g, part, n);
        rv = gpu_check(g,
                       cudaMemcpyAsync(part, (const unsigned char *)from + at,
                                       n, cudaMemcpyDeviceToHost, g->stream),
                       "copy from the GPU");
        rv = rv != 0 ? rv : gpu_wait_stream(g, "copy from the GPU");
        if (rv == 0) {
            g->n_arriving--;
        }
    }
    return rv;
}
