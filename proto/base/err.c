/* err.c - see err.h. */
#include "proto/base/err.h"

const char *loco_strerror(int err)
{
    switch (err) {
#define X(name, code, text)                                                    \
    case name:                                                                 \
        return text;
        LOCO_ERR_MAP(X)
#undef X
    case 0:
        return "ok";
    default:
        return "unknown error";
    }
}
