/* errmsg.h - the sentence that goes with an error code.
 *
 * Functions that can fail for a reason a person must read take
 * `char *errmsg`, a buffer of ERRMSG_SIZE bytes or NULL, and leave there what
 * happened and where, without a full stop: the caller may prefix it
 * ("pack corpus: open a.txt: No such file or directory"). The text is written
 * only when the function returns a negative code; a longer one is cut.
 */
#ifndef LOCO_PROTO_BASE_ERRMSG_H
#define LOCO_PROTO_BASE_ERRMSG_H

#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>

#include "proto/base/err.h"

#define ERRMSG_SIZE 256

/* MB for "%llu" of a sentence: of what is there, and of what is needed, so that
 * it never says that 5 of 5 are too few. */
#define ERRMSG_MB(bytes)    ((unsigned long long)((uint64_t)(bytes) >> 20))
#define ERRMSG_MB_UP(bytes) ERRMSG_MB((uint64_t)(bytes) + (1U << 20) - 1)

/* Write the sentence and hand `code` back, so that `return errmsg_fail(...)`
 * reads as one statement. */
__attribute__((format(printf, 3, 4))) static inline int
errmsg_fail(char *errmsg, int code, const char *fmt, ...)
{
    va_list args;

    if (errmsg != NULL) {
        va_start(args, fmt);
        (void)vsnprintf(errmsg, ERRMSG_SIZE, fmt, args);
        va_end(args);
    }
    return code;
}

/* The same for a value that is wrong in what was given. */
#define errmsg_invalid(errmsg, ...)                                            \
    errmsg_fail((errmsg), LOCO_EINVAL, __VA_ARGS__)

#endif
