/* doc_value.h - numbers inside documents; shared by doc.c and doc_text.c only.
 *
 * A field of kind DOC_U32 or DOC_U64 lies somewhere in a struct that this code
 * does not know; memcpy moves it without assuming its type.
 */
#ifndef LOCO_PROTO_DOC_VALUE_H
#define LOCO_PROTO_DOC_VALUE_H

#include <string.h>

#include "proto/base/err.h"
#include "proto/doc.h"

/* The number at p, whatever its kind. */
static inline uint64_t doc_load_uint(const struct doc_field *f, const void *p)
{
    uint32_t word;
    uint64_t wide;

    if (f->kind == DOC_U32) {
        memcpy(&word, p, sizeof word);
        return word;
    }
    memcpy(&wide, p, sizeof wide);
    return wide;
}

static inline int doc_store_uint(const struct doc_field *f, uint64_t v, void *p)
{
    uint32_t word = (uint32_t)v;

    if (f->kind == DOC_U64) {
        memcpy(p, &v, sizeof v);
        return 0;
    }
    if (v > UINT32_MAX) {
        return LOCO_EPROTO;
    }
    memcpy(p, &word, sizeof word);
    return 0;
}

#endif
