/* fast_matmul.c - matmul.c in blocks that stay in the caches.
 *
 * For each slice of BLOCK_K products: a block of op(a), up to BLOCK_M rows, is
 * copied so that the rows of one tile lie together (it stays in the second
 * cache); panels of op(b), two vectors wide, are copied too (one at work stays
 * in the first cache, up to BLOCK_N columns of them in the third) and meet
 * every tile of the block. A tile of c, up to TILE_ROWS rows of two vectors,
 * is summed in registers (Goto & van de Geijn 2008).
 *
 * Tiles of a block differ by at most one row, so that the last is not a
 * sliver. Where op(a) meets few columns it is read in place instead.
 *
 * Compiled once more with LOCO_BF16: the operands are then rounded to bf16 as
 * they are packed, see slot.h. How a tile is packed and made: tile.h.
 *
 * Each element of c is one sum over k in order within a slice, the slices
 * added in order: the same bits however rows and columns are shared out over
 * threads.
 */
#if defined(LOCO_AMX)
#include "kernels/cpu/tile_amx.h"
#elif defined(LOCO_BFMMLA)
#include "kernels/cpu/tile_bfmmla.h"
#else
#include "kernels/cpu/tile_vector.h"
#endif

/* A row-major op(a) is read in place up to this many columns; one that is
 * transposed lies across the rows and is read in place for two panels only. */
#define IN_PLACE_COLUMNS        256
#define IN_PLACE_COLUMNS_ACROSS (2 * PANEL_COLUMNS)

/* A c above this size (1 MB) is fetched before its sums are ready. */
#define FETCH_FLOATS (1 << 18)

/* Rows of op(a)' that are packed together: its rows are read in order. */
#define PACK_DEPTH (GROUP_K > 8 ? GROUP_K : 8)

/* One slice of k, a block of rows, all columns of this worker. */
struct block {
    const struct matmul *op;
    int64_t i0, rows;
    int64_t tiles, height, taller; /* the first `taller` have a row more */
    int64_t k0, depth;
    int64_t slots; /* that `depth` takes */
    float beta;
    const float *a; /* packed or in place */
    bool packed;
    float *b; /* (slots, PANEL_COLUMNS) */
};

_Static_assert(sizeof(float) * (BLOCK_A + BLOCK_K * BLOCK_N) <= MATMUL_SCRATCH,
               "the blocks fit into a worker's scratch");

static int64_t at_most(int64_t x, int64_t most)
{
    return x < most ? x : most;
}

/* Tiles of one height or one row less: the first row of tile t. */
static int64_t tile_row(const struct block *s, int64_t t)
{
    return t * s->height + at_most(t, s->taller);
}

static void cut_rows(struct block *s, int64_t rows)
{
    s->rows = rows;
    s->tiles = (rows + TILE_ROWS - 1) / TILE_ROWS;
    s->height = rows / s->tiles;
    s->taller = rows % s->tiles;
}

/* Where tile t is packed. */
static int64_t tile_at(const struct block *s, int64_t t)
{
    return t * TILE_WIDTH * s->slots;
}

/* The part of every tile that rows k to k + depth of a' fill. */
static void pack_a_rows(const struct block *s, float *to, int64_t k)
{
    const struct matmul *op = s->op;
    const float *from = op->a + (s->k0 + k) * op->lda + s->i0;

    for (int64_t t = 0; t < s->tiles; t++) {
        int64_t i = tile_row(s, t);
        int64_t rows = tile_row(s, t + 1) - i;

        pack_tile_rows(to + tile_at(s, t) + k / SLOT_K * TILE_WIDTH, TILE_WIDTH,
                       from + i, op->lda, rows,
                       at_most(s->depth - k, PACK_DEPTH));
    }
}

static void pack_a(struct block *s, float *to)
{
    const struct matmul *op = s->op;

    s->a = to;
    s->packed = true;
    if (op->ta) {
        for (int64_t k = 0; k < s->depth; k += PACK_DEPTH) {
            pack_a_rows(s, to, k);
        }
        return;
    }
    for (int64_t t = 0; t < s->tiles; t++) {
        int64_t i = tile_row(s, t);
        int64_t rows = tile_row(s, t + 1) - i;

        pack_tile_transposed(to + tile_at(s, t), TILE_WIDTH,
                             op->a + (s->i0 + i) * op->lda + s->k0, op->lda,
                             rows, s->depth);
    }
}

static void pack_b(struct block *s, int64_t j, int64_t columns)
{
    const struct matmul *op = s->op;

    if (op->tb) {
        pack_panel_transposed(s->b, PANEL_COLUMNS, op->b + j * op->ldb + s->k0,
                              op->ldb, columns, s->depth);
    } else {
        pack_panel_rows(s->b, PANEL_COLUMNS, op->b + s->k0 * op->ldb + j,
                        op->ldb, columns, s->depth);
    }
}

/* All rows of the block times one packed panel of b. */
static void multiply_panel(const struct block *s, int64_t j, int64_t columns)
{
    const struct matmul *op = s->op;
    struct tile t = {
        .b = s->b,
        .row = s->packed || op->ta ? 1 : op->lda,
        .slots = s->slots,
        .ldc = op->ldc,
        .columns = columns,
        .alpha = op->alpha,
        .beta = s->beta,
        .fetch = op->m * op->n > FETCH_FLOATS,
    };

    for (int64_t i = 0; i < s->tiles; i++) {
        int64_t from = tile_row(s, i);
        int64_t rows = tile_row(s, i + 1) - from;

        if (op->upper && j + columns <= s->i0 + from) {
            break; /* this tile and those below are left of the diagonal */
        }
        if (s->packed) {
            t.a = s->a + tile_at(s, i);
            t.step = TILE_WIDTH;
        } else {
            t.a = s->a + from * t.row;
            t.step = op->ta ? op->lda : 1;
        }
        t.c = op->c + (s->i0 + from) * op->ldc + j;
        multiply_tile(&t, rows);
    }
}

static void take_a(struct block *s, float *scratch, int64_t columns)
{
    const struct matmul *op = s->op;

    if (SLOT_K > 1 ||
        columns > (op->ta ? IN_PLACE_COLUMNS_ACROSS : IN_PLACE_COLUMNS)) {
        pack_a(s, scratch);
        return;
    }
    s->packed = false;
    s->a = op->ta ? op->a + s->k0 * op->lda + s->i0
                  : op->a + s->i0 * op->lda + s->k0;
}

/* One slice of k of the columns from j to j_end, all rows of the part. The
 * panels of b are packed by the first block of rows and stay for the others. */
static void multiply_slice(struct block *s,
                           const struct matmul_part *p,
                           float *scratch,
                           int64_t j0,
                           int64_t j_end)
{
    for (s->i0 = p->i; s->i0 < p->i_end; s->i0 += s->rows) {
        cut_rows(s, at_most(p->i_end - s->i0, BLOCK_M));
        s->b = scratch + BLOCK_A;
        take_a(s, scratch, j_end - j0);
        for (int64_t j = j0; j < j_end; j += PANEL_COLUMNS) {
            int64_t columns = at_most(j_end - j, PANEL_COLUMNS);

            if (s->i0 == p->i) {
                pack_b(s, j, columns);
            }
            multiply_panel(s, j, columns);
            s->b += s->slots * PANEL_COLUMNS;
        }
    }
}

/* Slices of one depth where BLOCK_K does not divide k, whole vectors each. */
static int64_t slice_depth(int64_t k)
{
    int64_t most = BLOCK_K * SLOT_K;
    int64_t step = VF_LANES * SLOT_K;
    int64_t slices = (k + most - 1) / most;

    return at_most((k / slices + step) / step * step, most);
}

void MATMUL_NAME(LOCO_ISA)(const struct matmul *op, struct kernel_range r)
{
    struct matmul_part p = matmul_part(op, r);
    int64_t depth = slice_depth(op->k);
    struct block s = {.op = op};

    tiles_open();
    for (int64_t j = p.j; j < p.j_end; j += BLOCK_N) {
        for (s.k0 = 0; s.k0 < op->k; s.k0 += depth) {
            s.depth = at_most(op->k - s.k0, depth);
            s.slots = (s.depth + GROUP_K - 1) / GROUP_K * SLOT_GROUP;
            s.beta = s.k0 == 0 ? op->beta : 1;
            multiply_slice(&s, &p, r.scratch, j, at_most(p.j_end, j + BLOCK_N));
        }
    }
    tiles_close();
}
