/* codec_fuzz.c - any bytes as an encoded vector: decode, add, sum.
 *
 * Byte 0 chooses the codec, bytes 1 and 2 how many elements at most, the rest
 * is the wire. All instruction sets must agree on the error and on every bit;
 * what decodes is finite, and those of a butterfly encode it again. The wire
 * lies in a block of its own size, so that reading past its end is seen.
 */
#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "train/sync/codec/codec.h"

#define HEAD 3

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void *need(size_t bytes)
{
    void *p = calloc(1, bytes == 0 ? 1 : bytes);

    if (p == NULL) {
        abort();
    }
    return p;
}

static void check(int holds)
{
    if (!holds) {
        abort();
    }
}

/* The bytes as a contribution beside an honest one of zeros. */
static void sum_forms(const struct codec *c,
                      const struct codec *spec,
                      const uint8_t *wire,
                      size_t n)
{
    static const float scale[] = {0.25F, 0.75F};
    size_t bytes = c->bytes(n);
    float *zeros = need(n * sizeof *zeros);
    uint8_t *honest = need(bytes), *a = need(bytes), *b = need(bytes);
    const uint8_t *const terms[] = {honest, wire};
    struct codec_sum s = {
        .terms = terms, .scale = scale, .n_terms = 2, .n = n, .clip = 2};
    struct codec_sum t = s;
    int rv;

    check(spec->encode(honest, zeros, n, 1.0F) == 0);
    rv = spec->sum(a, &s);
    check(c->sum(b, &t) == rv && s.bad == t.bad);
    check(rv != 0 || memcmp(a, b, bytes) == 0);
    check(rv == 0 || s.bad == 1); /* the honest one is never blamed */
    free(zeros);
    free(honest);
    free(a);
    free(b);
}

/* An encoding of n elements by one form, against what the reference gave. */
static void run_form(const struct codec *c,
                     const struct codec *spec,
                     const uint8_t *wire,
                     size_t n)
{
    size_t bytes = c->bytes(n);
    float *x = need(n * sizeof *x);
    float *y = need(n * sizeof *y);
    uint8_t *a = need(bytes);
    uint8_t *b = need(bytes);
    int rv = spec->decode(x, wire, n);

    check(c->decode(y, wire, n) == rv);
    if (rv == 0) {
        check(memcmp(x, y, n * sizeof *x) == 0);
        for (size_t i = 0; i < n; i++) {
            check(isfinite(x[i]));
        }
        rv = spec->encode(a, x, n, 1.0F);
        check(c->encode(b, x, n, 1.0F) == rv);
        check(codec_adds(c) || rv == 0);
        check(rv != 0 || memcmp(a, b, bytes) == 0);
    }
    if (codec_adds(c)) {
        memset(x, 0, n * sizeof *x);
        rv = spec->add(a, wire, x, n, 1.0F);
        check(c->add(b, wire, x, n, 1.0F) == rv);
        check(rv != 0 || memcmp(a, b, bytes) == 0);
    }
    sum_forms(c, spec, wire, n);
    free(x);
    free(y);
    free(a);
    free(b);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char *const isas[] = {"portable", "avx2", "avx512"};
    const struct codec *spec;
    uint8_t *wire;
    size_t n;

    if (size < HEAD) {
        return 0;
    }
    spec = codec_get_portable(data[0] % CODEC_COUNT);
    n = (data[1] | (size_t)data[2] << 8) % (2 * CODEC_FP16_BLOCK + 100);
    while (spec->bytes(n) > size - HEAD) {
        n -= (n + 7) / 8;
    }
    wire = need(spec->bytes(n));
    memcpy(wire, data + HEAD, spec->bytes(n));
    for (size_t i = 0; i < sizeof isas / sizeof isas[0]; i++) {
        const struct codec *c = codec_get_isa(spec->id, isas[i]);

        if (c != NULL) {
            run_form(c, spec, wire, n);
        }
    }
    free(wire);
    return 0;
}
