/* embed.cu - a row of the table for each token; the gradient goes back there.
 *
 *   tokens (N)  table (V, C) fp32  x, dx (N, C)  dtable (V, C) fp32
 *
 * Forward: one warp a row, 16-byte stores; bound by memory.
 *
 * Backward without atomics, the same bits every time: the host sorts the
 * positions by token (counting sort, stable; a fraction of a millisecond for
 * 65,536) and cuts each token's run into segments of at most SEGMENT rows, so
 * that a frequent token does not keep one block busy alone. A block sums one
 * segment in order. A token's only segment goes straight to the table; of
 * several the sums are kept and added in order by embed_join.
 */
#include <stdlib.h>
#include <string.h>

#include "kernels/cuda/common.cuh"
#include "proto/base/err.h"

#define WARPS   4
#define SEGMENT PLUGIN_EMBED_SEGMENT

/* Rows order[first .. first + rows) belong to one token. */
struct segment {
    uint32_t first, rows, token;
    uint32_t part; /* where the sum is kept; ALONE: nowhere */
};
/* Parts of one token, to be added in order. */
struct join {
    uint32_t token, first, parts, unused;
};
#define ALONE UINT32_MAX

template <class T, int V>
__global__ void embed_fwd_kernel(
    T *x, const float *table, const uint32_t *tokens, int64_t n, int64_t c)
{
    int64_t row = (int64_t)blockIdx.x * WARPS + threadIdx.x / WARP;
    const float *from;

    if (row >= n) {
        return;
    }
    from = table + tokens[row] * c;
    for (int64_t i = threadIdx.x % WARP * V; i < c; i += WARP * V) {
        float f[V];

        load(f, from + i);
        store(x + row * c + i, f);
    }
}

/* Block (segment, columns): one column vector a thread. */
template <class T, int V>
__global__ void embed_bwd_kernel(float *dtable,
                                 float *parts,
                                 const T *dx,
                                 const uint32_t *order,
                                 const struct segment *segments,
                                 int64_t c)
{
    const struct segment s = segments[blockIdx.x];
    int64_t i = ((int64_t)blockIdx.y * blockDim.x + threadIdx.x) * V;
    float sum[V] = {0};
    float f[V];

    if (i >= c) {
        return;
    }
    for (uint32_t k = 0; k < s.rows; k++) {
        load(f, dx + order[s.first + k] * c + i);
        for (int v = 0; v < V; v++) {
            sum[v] += f[v];
        }
    }
    if (s.part != ALONE) {
        store(parts + s.part * c + i, sum);
        return;
    }
    load(f, dtable + s.token * c + i);
    for (int v = 0; v < V; v++) {
        f[v] += sum[v];
    }
    store(dtable + s.token * c + i, f);
}

template <int V>
__global__ void embed_join_kernel(float *dtable,
                                  const float *parts,
                                  const struct join *joins,
                                  int64_t c)
{
    const struct join j = joins[blockIdx.x];
    int64_t i = ((int64_t)blockIdx.y * blockDim.x + threadIdx.x) * V;
    float sum[V] = {0};
    float f[V];

    if (i >= c) {
        return;
    }
    for (uint32_t k = 0; k < j.parts; k++) {
        load(f, parts + (j.first + k) * c + i);
        for (int v = 0; v < V; v++) {
            sum[v] += f[v];
        }
    }
    load(f, dtable + j.token * c + i);
    for (int v = 0; v < V; v++) {
        f[v] += sum[v];
    }
    store(dtable + j.token * c + i, f);
}

template <class T, int V>
static int
embed_fwd(struct gpu *g, const struct embed *op, const uint32_t *tokens)
{
    auto kernel = embed_fwd_kernel<T, V>;
    T *x = (T *)op->x;
    const float *table = op->table;
    int64_t n = op->n;
    int64_t c = op->c;

    LAUNCH(kernel, (unsigned)blocks_for(n, WARPS), WARPS * WARP, 0, g->stream,
           x, table, tokens, n, c);
    return gpu_launched(g, "embed_fwd");
}

int cuda_embed_fwd(struct gpu *g, const struct embed *op)
{
    bool wide = op->c % 8 == 0 && aligned(op->x) && aligned(op->table);
    void *tokens = NULL;
    int rv = gpu_upload(g, SLOT_TOKENS, op->tokens,
                        (size_t)op->n * sizeof *op->tokens, &tokens);

    if (rv != 0) {
        return rv;
    }
    return FOR_TYPE(g, wide, embed_fwd, g, op, (uint32_t *)tokens);
}

/* ---- the plan of a backward pass, on the host --------------------------- */

struct plan {
    uint32_t *order;         /* (n) */
    struct segment *segment; /* (n_segments) */
    struct join *join;       /* (n_joins) */
    uint32_t n_segments, n_joins, n_parts;
    size_t bytes; /* of all three, one after the other */
};

/* 16-byte words for n, and for the counts of tokens behind them. */
static uint32_t *plan_memory(struct gpu *g, int64_t n, uint32_t top)
{
    size_t want = (size_t)n * (sizeof(uint32_t) + sizeof(struct segment) +
                               sizeof(struct join)) +
                  ((size_t)top + 2) * sizeof(uint32_t) + 64;

    if (g->host_plan_bytes < want) {
        free(g->host_plan);
        g->host_plan = (uint32_t *)malloc(want);
        g->host_plan_bytes = g->host_plan == NULL ? 0 : want;
    }
    return g->host_plan;
}

/* starts[0 .. top] begin as 0 and become the end of each token's run. */
static void sort_positions(uint32_t *order,
                           uint32_t *starts,
                           uint32_t top,
                           const struct embed *op)
{
    uint32_t sum = 0;

    for (int64_t i = 0; i < op->n; i++) {
        starts[op->tokens[i]]++;
    }
    for (uint32_t t = 0; t <= top; t++) {
        uint32_t count = starts[t];

        starts[t] = sum;
        sum += count;
    }
    for (int64_t i = 0; i < op->n; i++) {
        order[starts[op->tokens[i]]++] = (uint32_t)i;
    }
}

static void add_token(struct plan *p, uint32_t token, uint32_t at, uint32_t end)
{
    uint32_t parts = (end - at + SEGMENT - 1) / SEGMENT;

    if (parts > 1) {
        p->join[p->n_joins++] = {token, p->n_parts, parts, 0};
    }
    for (; at < end; at += SEGMENT) {
        uint32_t rows = end - at < SEGMENT ? end - at : SEGMENT;

        p->segment[p->n_segments++] = {at, rows, token,
                                       parts > 1 ? p->n_parts++ : ALONE};
    }
}

static int make_plan(struct gpu *g, const struct embed *op, struct plan *p)
{
    uint32_t top = 0;
    uint32_t *memory;
    uint32_t *starts;
    int64_t words = (op->n + 3) / 4 * 4; /* segments lie on 16 bytes */

    for (int64_t i = 0; i < op->n; i++) {
        top = op->tokens[i] > top ? op->tokens[i] : top;
    }
    memory = plan_memory(g, words, top);
    if (memory == NULL) {
        return gpu_fail(g, LOCO_ENOMEM, "embed_bwd",
                        "no memory to sort tokens");
    }
    p->order = memory;
    p->segment = (struct segment *)(memory + words);
    p->join = (struct join *)(p->segment + op->n);
    starts = (uint32_t *)(p->join + op->n);
    memset(starts, 0, ((size_t)top + 1) * sizeof *starts);
    sort_positions(p->order, starts, top, op);
    for (uint32_t t = 0; t <= top; t++) {
        uint32_t begin = t == 0 ? 0 : starts[t - 1];

        if (starts[t] > begin) {
            add_token(p, t, begin, starts[t]);
        }
    }
    /* joins follow the segments in one upload */
    memmove(p->segment + p->n_segments, p->join, p->n_joins * sizeof *p->join);
    p->join = (struct join *)(p->segment + p->n_segments);
    p->bytes = (size_t)((unsigned char *)(p->join + p->n_joins) -
                        (unsigned char *)memory);
    return 0;
}

template <class T, int V>
static int embed_bwd(struct gpu *g,
                     const struct embed *op,
                     const struct plan *p,
                     const unsigned char *plan)
{
    auto kernel = embed_bwd_kernel<T, V>;
    auto join = embed_join_kernel<V>;
    int64_t c = op->c;
    unsigned threads = c / V < 128 ? (unsigned)((c / V + 31) / 32 * 32) : 128;
    unsigned columns = (unsigned)blocks_for(c, (int64_t)threads * V);
    const uint32_t *order = (const uint32_t *)plan;
    const struct segment *segments =
        (const struct segment *)(plan + ((unsigned char *)p->segment -
                                         (unsigned char *)p->order));
    const struct join *joins = (const struct join *)(segments + p->n_segments);
    const T *dx = (const T *)op->dx;
    float *dtable = op->dtable;
    float *parts = NULL;
    int rv = gpu_slot(g, SLOT_EMBED_PARTS,
                      ((size_t)p->n_parts * (size_t)c + 1) * sizeof *parts,
                      (void **)&parts);

    if (rv != 0) {
        return rv;
    }
    LAUNCH(kernel, dim3(p->n_segments, columns), threads, 0, g->stream, dtable,
           parts, dx, order, segments, c);
    rv = gpu_launched(g, "embed_bwd");
    if (rv != 0 || p->n_joins == 0) {
        return rv;
    }
    LAUNCH(join, dim3(p->n_joins, columns), threads, 0, g->stream, dtable,
           parts, joins, c);
    return gpu_launched(g, "embed_join");
}

int cuda_embed_bwd(struct gpu *g, const struct embed *op)
{
    bool wide = op->c % 8 == 0 && aligned(op->dx) && aligned(op->dtable);
    struct plan p = {};
    void *plan = NULL;
    const unsigned char *at;
    int rv = make_plan(g, op, &p);

    rv = rv == 0 ? gpu_upload(g, SLOT_EMBED_PLAN, p.order, p.bytes, &plan) : rv;
    if (rv != 0) {
        return rv;
    }
    at = (const unsigned char *)plan;
    return FOR_TYPE(g, wide, embed_bwd, g, op, &p, at);
}
