/* speed_outer.c - the outer step of a model, in two ways; see speed.h. */
#include <stdio.h>
#include <sys/mman.h>

#include "proto/base/err.h"
#include "tests/gpu/speed.h"

/* Pack, out, in, unpack, apply, beside the network. */
void outer_step(int64_t n)
{
    const struct plugin_table *t = device_table(gpu.device);
    struct gpu *g = device_gpu(gpu.device);
    size_t bytes = (size_t)n * 2 + (size_t)(n + 4095) / 4096 * 2;
    void *pinned = NULL;
    struct wire_op wire = {.wire = CODEC_FP16,
                           .bytes = (uint8_t *)room((int64_t)bytes),
                           .x = room(n * 4),
                           .phi = room(n * 4),
                           .theta = room(n * 4),
                           .scale = 0.5f,
                           .n = n};
    struct outer_op outer = {.lr = 0.7f,
                             .mu = 0.9f,
                             .phi = wire.phi,
                             .m = room(n * 4),
                             .g = wire.x,
                             .phi_out = room(n * 4),
                             .n = n};
    double at[6];

    outer.m_out = room(n * 4);
    must(t->pin(g, &pinned, bytes), "pinned memory");
    for (int i = 0; i < 2; i++) { /* the first warms up */
        at[0] = now_ms();
        must(t->encode(g, &wire), "encode");
        at[1] = now_ms();
        must(t->get_beside(g, pinned, wire.bytes, bytes), "copy out");
        must(t->copies_done(g), "copy out");
        at[2] = now_ms();
        must(t->put_beside(g, wire.bytes, pinned, bytes), "copy in");
        must(t->copies_done(g), "copy in");
        at[3] = now_ms();
        must(t->decode(g, &wire), "decode");
        must(t->outer(g, &outer), "apply");
        must(gpu.finish(&gpu), "apply");
        at[4] = now_ms();
    }
    (void)printf("  outer step of %.2fB: pack %.1f, out %.1f, in %.1f, apply "
                 "%.1f: %.1f ms\n",
                 (double)n * 1e-9, at[1] - at[0], at[2] - at[1], at[3] - at[2],
                 at[4] - at[3], at[4] - at[0]);
    t->unpin(g, pinned);
    forget();
}

/* ---- the same as locod makes it ----------------------------------------- */

#define PIECE ((int64_t)1 << 22) /* elements, a multiple of every block */

static const struct plugin_table *table;
static struct gpu *device;

static size_t whole_pages(size_t bytes)
{
    return (bytes + 65535) / 65536 * 65536;
}

/* Zeroed pages that the driver knows; NULL: it refuses them, as a container
 * with a small limit of locked memory does. */
static void *host_pages(size_t bytes, double *ms)
{
    double began = now_ms();
    void *p = mmap(NULL, whole_pages(bytes), PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    if (p == MAP_FAILED) {
        return NULL;
    }
    if (table->host_register(device, p, whole_pages(bytes)) != 0) {
        (void)munmap(p, whole_pages(bytes));
        return NULL;
    }
    *ms += now_ms() - began;
    return p;
}

static void give_pages(void *p, size_t bytes)
{
    if (p != NULL) {
        table->host_unregister(device, p);
        (void)munmap(p, whole_pages(bytes));
    }
}

/* All of x (n) to `to`, a piece after the other; with phi the displacement
 * phi - x is made of each while the one before is on its way. */
static void out_in_pieces(
    float *to, const float *x, const float *phi, float *const *piece, int64_t n)
{
    for (int64_t at = 0, i = 0; at < n; at += PIECE, i++) {
        struct shift_op op = {.theta = x + at,
                              .phi_old = phi == NULL ? NULL : phi + at,
                              .out = piece[i % 2],
                              .n = n - at < PIECE ? n - at : PIECE};

        if (phi != NULL) {
            must(table->shift(device, &op), "pack");
        }
        must(table->copies_done(device), "copy out");
        must(table->get_beside(device, to + at, phi != NULL ? op.out : x + at,
                               (size_t)op.n * sizeof(float)),
             "copy out");
    }
    must(table->copies_done(device), "copy out");
}

static size_t fp16_bytes(int64_t n)
{
    return (size_t)n * 2 + (size_t)((n + 4095) / 4096) * 2;
}

/* The mean in, decoded while the next piece is on its way. */
static void
in_by_pieces(float *x, const uint8_t *from, uint8_t *const *wire, int64_t n)
{
    must(table->put_beside(device, wire[0], from,
                           fp16_bytes(n < PIECE ? n : PIECE)),
         "copy in");
    for (int64_t at = 0, i = 0; at < n; at += PIECE, i++) {
        int64_t next = n - at - PIECE < PIECE ? n - at - PIECE : PIECE;
        struct wire_op op = {.wire = CODEC_FP16,
                             .bytes = wire[i % 2],
                             .x = x + at,
                             .n = n - at < PIECE ? n - at : PIECE};

        must(table->copies_done(device), "copy in");
        if (next > 0) {
            must(table->put_beside(device, wire[(i + 1) % 2],
                                   from + fp16_bytes(at + PIECE),
                                   fp16_bytes(next)),
                 "copy in");
        }
        must(table->decode(device, &op), "decode");
    }
}

/* One step; what each part took, in ms from at[0] on. */
static void step_of_locod(double *at,
                          float *const *host,
                          const uint8_t *wire,
                          struct outer_op *rule,
                          float *theta)
{
    int64_t n = rule->n;
    float *piece[2] = {room(PIECE * 4), room(PIECE * 4)};
    uint8_t *in[2] = {(uint8_t *)room((int64_t)fp16_bytes(PIECE)),
                      (uint8_t *)room((int64_t)fp16_bytes(PIECE))};

    at[0] = now_ms();
    out_in_pieces(host[0], theta, rule->phi, piece, n);
    at[1] = now_ms();
    in_by_pieces((float *)(uintptr_t)rule->g, wire, in, n);
    at[2] = now_ms();
    rule->phi_out = rule->m_out = NULL; /* tried, then made */
    must(table->outer(device, rule), "rule");
    rule->phi_out = (float *)(uintptr_t)rule->phi;
    rule->m_out = (float *)(uintptr_t)rule->m;
    must(table->outer(device, rule), "rule");
    must(table->copy(device, theta, rule->phi, (size_t)n * sizeof(float)),
         "theta");
    must(gpu.finish(&gpu), "theta");
    at[3] = now_ms();
    out_in_pieces(host[1], rule->phi, NULL, piece, n);
    out_in_pieces(host[2], rule->m, NULL, piece, n);
    at[4] = now_ms();
}

void outer_step_of_locod(int64_t n)
{
    size_t bytes = (size_t)n * sizeof(float);
    double once = 0, at[5] = {0};
    float *host[3], *theta = room(n * 4);
    struct outer_op rule = {.lr = 0.7f,
                            .mu = 0.9f,
                            .phi = room(n * 4),
                            .m = room(n * 4),
                            .g = room(n * 4),
                            .n = n};
    uint8_t *wire;

    table = device_table(gpu.device);
    device = device_gpu(gpu.device);
    wire = host_pages(fp16_bytes(n), &once);
    for (int i = 0; i < 3; i++) {
        host[i] = host_pages(bytes, &once);
    }
    if (wire == NULL || host[0] == NULL || host[1] == NULL || host[2] == NULL) {
        (void)printf("  outer step of %.2fB in locod: skipped, %s\n",
                     (double)n * 1e-9, device_message(gpu.device));
    } else {
        for (int i = 0; i < 2; i++) { /* the first warms up */
            step_of_locod(at, host, wire, &rule, theta);
        }
        (void)printf("  outer step of %.2fB in locod: pack and out %.1f, in "
                     "and decode %.1f, rule %.1f: %.1f ms; anchor and momentum "
                     "home %.1f ms; registered in %.0f ms, once\n",
                     (double)n * 1e-9, at[1] - at[0], at[2] - at[1],
                     at[3] - at[2], at[3] - at[0], at[4] - at[3], once);
    }
    for (int i = 0; i < 3; i++) {
        give_pages(host[i], bytes);
    }
    give_pages(wire, fp16_bytes(n));
    forget();
}
