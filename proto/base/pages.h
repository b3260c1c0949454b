/* pages.h - large memory in pages of its own, and pages that are given back.
 *
 * A vector of a model is written from end to end in each round. In pages of
 * 4 KB that costs a fault each (4 us in a virtual machine: 0.3 s for 256 MB)
 * and misses of the address cache; so the system is asked for pages of 2 MB
 * where a whole one lies in the memory. It is advice: where it is refused all
 * is slower and nothing else differs.
 */
#ifndef LOCO_PROTO_BASE_PAGES_H
#define LOCO_PROTO_BASE_PAGES_H

#include <stddef.h>

/* So many bytes in whole pages. */
size_t pages_whole(size_t bytes);

/* Zeros, from the start of a page on, nobody else's on the last one; memory is
 * taken as it is written. NULL: there is none. */
void *pages_take(size_t bytes);

/* The same bytes again. NULL is allowed. */
void pages_give(void *p, size_t bytes);

/* Large pages for memory that comes from elsewhere; may be any. */
void pages_prefer_large(void *p, size_t bytes);

/* Pages that lie wholly in it are given back, addresses stay: memory of a
 * process reads as zeros then, that of a mapped file is read from the disk. */
void pages_forget(const void *begin, size_t bytes);

/* The system may take them while it lacks memory, and what they hold is lost
 * then; where it need not, writing to them again costs no fault. Only memory of
 * a process. */
void pages_lend(void *p, size_t bytes);

#endif
