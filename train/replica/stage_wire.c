/* stage_wire.c - see stage_wire.h. */
#include "train/replica/stage_wire.h"

#include "proto/base/bytes.h"
#include "proto/base/err.h"
#include "train/model/llama.h"

#define LABEL_BYTES 4

static size_t numel(const struct stage_wire *w, uint32_t rows)
{
    return (size_t)rows * w->dim;
}

size_t stage_wire_back_bytes(const struct stage_wire *w, uint32_t rows)
{
    return w->codec->bytes(numel(w, rows));
}

size_t stage_wire_forth_bytes(const struct stage_wire *w, uint32_t rows)
{
    return (size_t)rows * LABEL_BYTES + stage_wire_back_bytes(w, rows);
}

int stage_wire_put_forth(const struct stage_wire *w,
                         uint8_t *dst,
                         const float *x,
                         const uint32_t *labels,
                         uint32_t rows)
{
    for (uint32_t i = 0; i < rows; i++) {
        put_u32(dst + (size_t)i * LABEL_BYTES, labels[i]);
    }
    return stage_wire_put_back(w, dst + (size_t)rows * LABEL_BYTES, x, rows);
}

int stage_wire_get_forth(const struct stage_wire *w,
                         const uint8_t *src,
                         float *x,
                         uint32_t *labels,
                         uint32_t rows)
{
    for (uint32_t i = 0; i < rows; i++) {
        labels[i] = get_u32(src + (size_t)i * LABEL_BYTES);
        if (labels[i] >= w->vocab && labels[i] != LLAMA_IGNORE) {
            return LOCO_EPROTO;
        }
    }
    return stage_wire_get_back(w, src + (size_t)rows * LABEL_BYTES, x, rows);
}

int stage_wire_put_back(const struct stage_wire *w,
                        uint8_t *dst,
                        const float *dx,
                        uint32_t rows)
{
    return w->codec->encode(dst, dx, numel(w, rows), 1.0F);
}

int stage_wire_get_back(const struct stage_wire *w,
                        const uint8_t *src,
                        float *dx,
                        uint32_t rows)
{
    return w->codec->decode(dx, src, numel(w, rows));
}
