/* word.h - unsigned numbers inside structs that the caller describes; shared by
 * msg.c, doc.c and doc_text.c only.
 *
 * A number of 1, 2, 4 or 8 bytes lies somewhere in a struct that this code does
 * not know; memcpy moves it without assuming its type.
 */
#ifndef LOCO_PROTO_WORD_H
#define LOCO_PROTO_WORD_H

#include <stdint.h>
#include <string.h>

#include "proto/base/err.h"

static inline uint64_t word_load(const void *p, size_t size)
{
    uint16_t half;
    uint32_t word;
    uint64_t wide;

    switch (size) {
    case 1:
        return *(const uint8_t *)p;
    case 2:
        memcpy(&half, p, sizeof half);
        return half;
    case 4:
        memcpy(&word, p, sizeof word);
        return word;
    default:
        memcpy(&wide, p, sizeof wide);
        return wide;
    }
}

/* LOCO_EPROTO where v does not fit. */
static inline int word_store(void *p, size_t size, uint64_t v)
{
    uint16_t half = (uint16_t)v;
    uint32_t word = (uint32_t)v;

    if (size < 8 && v >> (8 * size) != 0) {
        return LOCO_EPROTO;
    }
    switch (size) {
    case 1:
        *(uint8_t *)p = (uint8_t)v;
        break;
    case 2:
        memcpy(p, &half, sizeof half);
        break;
    case 4:
        memcpy(p, &word, sizeof word);
        break;
    default:
        memcpy(p, &v, sizeof v);
        break;
    }
    return 0;
}

#endif
