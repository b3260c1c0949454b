/* stage_wire_fuzz.c - any bytes as a piece of activations or of a gradient.
 *
 * Byte 0 chooses the wire type, byte 1 the direction and the rows at most, the
 * rest is the piece, in a block of its own size. What is taken has labels of
 * the vocabulary and is finite.
 */
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "train/model/llama.h"
#include "train/replica/stage_wire.h"

#define HEAD  2
#define DIM   6
#define ROWS  64
#define VOCAB 256

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(int holds)
{
    if (!holds) {
        abort();
    }
}

static size_t bytes_of(const struct stage_wire *w, int forth, uint32_t rows)
{
    return forth ? stage_wire_forth_bytes(w, rows)
                 : stage_wire_back_bytes(w, rows);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct stage_wire w = {NULL, DIM, VOCAB};
    static float x[ROWS * DIM];
    static uint32_t labels[ROWS];
    uint8_t *piece;
    uint32_t rows;
    int forth, rv;

    if (size < HEAD) {
        return 0;
    }
    w.codec = codec_get(data[0] % CODEC_COUNT);
    forth = data[1] & 1;
    rows = 1 + data[1] / 2 % ROWS;
    while (rows > 1 && bytes_of(&w, forth, rows) > size - HEAD) {
        rows--;
    }
    if (bytes_of(&w, forth, rows) > size - HEAD) {
        return 0;
    }
    piece = malloc(bytes_of(&w, forth, rows));
    check(piece != NULL);
    memcpy(piece, data + HEAD, bytes_of(&w, forth, rows));
    rv = forth ? stage_wire_get_forth(&w, piece, x, labels, rows)
               : stage_wire_get_back(&w, piece, x, rows);
    for (uint32_t i = 0; rv == 0 && i < rows * DIM; i++) {
        check(isfinite(x[i]));
    }
    for (uint32_t i = 0; rv == 0 && forth && i < rows; i++) {
        check(labels[i] < VOCAB || labels[i] == LLAMA_IGNORE);
    }
    free(piece);
    return 0;
}
