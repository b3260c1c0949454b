/* pages.c - see pages.h. */
#include "proto/base/pages.h"

#include <stdint.h>
#include <sys/mman.h>
#include <unistd.h>

#define LARGE_BYTES ((size_t)2 << 20)

static size_t page_bytes(void)
{
    return (size_t)sysconf(_SC_PAGESIZE);
}

/* Advice about all whole units in those bytes. */
static int advise(const void *begin, size_t bytes, size_t unit, int advice)
{
    uintptr_t from = ((uintptr_t)begin + unit - 1) / unit * unit;
    uintptr_t to = ((uintptr_t)begin + bytes) / unit * unit;

    return from < to ? madvise((void *)from, to - from, advice) : 0;
}

size_t pages_whole(size_t bytes)
{
    size_t page = page_bytes();

    return (bytes + page - 1) / page * page;
}

void *pages_take(size_t bytes)
{
    void *p = mmap(NULL, pages_whole(bytes), PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    if (p == MAP_FAILED) {
        return NULL;
    }
    pages_prefer_large(p, bytes);
    return p;
}

void pages_give(void *p, size_t bytes)
{
    if (p != NULL) {
        (void)munmap(p, pages_whole(bytes));
    }
}

void pages_prefer_large(void *p, size_t bytes)
{
#ifdef MADV_HUGEPAGE
    (void)advise(p, bytes, LARGE_BYTES, MADV_HUGEPAGE);
#else
    (void)p;
    (void)bytes;
#endif
}

void pages_forget(const void *begin, size_t bytes)
{
    (void)advise(begin, bytes, page_bytes(), MADV_DONTNEED);
}

void pages_lend(void *p, size_t bytes)
{
#ifdef MADV_FREE
    if (advise(p, bytes, page_bytes(), MADV_FREE) == 0) {
        return;
    }
#endif
    pages_forget(p, bytes); /* not in each sandbox */
}
