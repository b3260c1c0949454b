/* bpe_encode.c - one thread's merging; see bpe.h.
 *
 * Happy path: a word of at most CACHE_KEY bytes is looked up in the cache;
 * what is not there is merged, in a scan over all pairs up to SHORT_MAX bytes
 * and with a heap beyond, and remembered if it is short. Ids collect in a
 * buffer that goes to the caller when it is full.
 *
 * The cache has one place for each hash: a new word takes it over. Its rows
 * are one cache line.
 */
#include "train/data/bpe.h"

#include <stdlib.h>
#include <string.h>

#include "proto/base/err.h"
#include "train/data/bpe_table.h"

#define CACHE_KEY   24
#define CACHE_IDS   9
#define CACHE_SLOTS (1U << 15)
#define SHORT_MAX   32
#define OUT_MAX     8192

struct cached {
    uint64_t key[CACHE_KEY / 8]; /* the word, zeros behind it */
    uint8_t len;                 /* 0: a free row */
    uint8_t n;
    uint16_t unused;
    uint32_t ids[CACHE_IDS];
};

_Static_assert(sizeof(struct cached) == 64, "a row is one cache line");

/* A part of a long word: a token, its neighbours, and the merge with the next
 * one. */
struct part {
    uint32_t id; /* BPE_NONE: swallowed by the one before */
    uint32_t prev, next;
    uint32_t rank; /* BPE_NONE: no merge */
    uint32_t to;
};

struct bpe_work {
    const struct bpe *b;
    struct cached *cache; /* (CACHE_SLOTS) */
    struct part *parts;   /* (room) */
    uint64_t *heap;       /* (3 * room) rank << 32 | part */
    size_t room;
    size_t n_heap;
    size_t n_out;
    uint32_t out[OUT_MAX];
};

struct bpe_work *bpe_work_new(const struct bpe *b)
{
    struct bpe_work *w = malloc(sizeof *w);

    if (w == NULL) {
        return NULL;
    }
    *w = (struct bpe_work){.b = b};
    w->cache = aligned_alloc(64, CACHE_SLOTS * sizeof *w->cache);
    if (w->cache == NULL) {
        free(w);
        return NULL;
    }
    memset(w->cache, 0, CACHE_SLOTS * sizeof *w->cache);
    return w;
}

void bpe_work_free(struct bpe_work *w)
{
    if (w != NULL) {
        free(w->cache);
        free(w->parts);
        free(w->heap);
        free(w);
    }
}

/* ---- output ------------------------------------------------------------- */

int bpe_flush(struct bpe_work *w, bpe_ids_fn take, void *data)
{
    size_t n = w->n_out;

    w->n_out = 0;
    return n == 0 ? 0 : take(data, w->out, n);
}

void bpe_drop(struct bpe_work *w)
{
    w->n_out = 0;
}

int bpe_put(struct bpe_work *w, uint32_t id, bpe_ids_fn take, void *data)
{
    w->out[w->n_out++] = id;
    return w->n_out == OUT_MAX ? bpe_flush(w, take, data) : 0;
}

static int put_all(struct bpe_work *w,
                   const uint32_t *ids,
                   size_t n,
                   bpe_ids_fn take,
                   void *data)
{
    if (n > OUT_MAX - w->n_out) {
        int rv = bpe_flush(w, take, data);

        if (rv != 0) {
            return rv;
        }
    }
    for (size_t i = 0; i < n; i++) {
        w->out[w->n_out + i] = ids[i];
    }
    w->n_out += n;
    return w->n_out == OUT_MAX ? bpe_flush(w, take, data) : 0;
}

/* ---- short words -------------------------------------------------------- */

/* Rank and result of the pair at i; the last place has no pair. */
static void pair_up(const struct bpe *b,
                    const uint32_t *ids,
                    size_t i,
                    uint32_t *rank,
                    uint32_t *to)
{
    const struct bpe_merge *m = bpe_merge_of(b, ids[i], ids[i + 1]);

    rank[i] = m == NULL ? BPE_NONE : m->rank;
    to[i] = m == NULL ? BPE_NONE : m->id;
}

/* ids (SHORT_MAX) = the tokens of a word of at least one byte; how many. */
static size_t merge_short(const struct bpe *b,
                          const uint8_t *word,
                          size_t n,
                          uint32_t ids[SHORT_MAX])
{
    uint32_t rank[SHORT_MAX];
    uint32_t to[SHORT_MAX];

    for (size_t i = 0; i < n; i++) {
        ids[i] = b->byte_id[word[i]];
    }
    for (size_t i = 0; i + 1 < n; i++) {
        pair_up(b, ids, i, rank, to);
    }
    while (n > 1) {
        size_t best = 0;

        for (size_t i = 1; i + 1 < n; i++) {
            best = rank[i] < rank[best] ? i : best;
        }
        if (rank[best] == BPE_NONE) {
            break;
        }
        ids[best] = to[best];
        n--;
        for (size_t i = best + 1; i < n; i++) {
            ids[i] = ids[i + 1];
        }
        for (size_t i = best + 1; i + 1 < n; i++) {
            rank[i] = rank[i + 1];
            to[i] = to[i + 1];
        }
        if (best + 1 < n) {
            pair_up(b, ids, best, rank, to);
        }
        if (best > 0) {
            pair_up(b, ids, best - 1, rank, to);
        }
    }
    return n;
}

/* ---- long words --------------------------------------------------------- */

static void heap_push(struct bpe_work *w, uint64_t key)
{
    size_t i = w->n_heap++;

    while (i > 0 && w->heap[(i - 1) / 2] > key) {
        w->heap[i] = w->heap[(i - 1) / 2];
        i = (i - 1) / 2;
    }
    w->heap[i] = key;
}

static uint64_t heap_pop(struct bpe_work *w)
{
    uint64_t top = w->heap[0];
    uint64_t last = w->heap[--w->n_heap];
    size_t i = 0;

    for (;;) {
        size_t child = 2 * i + 1;

        if (child >= w->n_heap) {
            break;
        }
        if (child + 1 < w->n_heap && w->heap[child + 1] < w->heap[child]) {
            child++;
        }
        if (w->heap[child] >= last) {
            break;
        }
        w->heap[i] = w->heap[child];
        i = child;
    }
    w->heap[i] = last;
    return top;
}

/* The pair that begins at part i, into the heap if it merges. */
static void pair_push(struct bpe_work *w, uint32_t i)
{
    struct part *p = &w->parts[i];
    const struct bpe_merge *m =
        p->next == BPE_NONE ? NULL
                            : bpe_merge_of(w->b, p->id, w->parts[p->next].id);

    p->rank = m == NULL ? BPE_NONE : m->rank;
    p->to = m == NULL ? BPE_NONE : m->id;
    if (m != NULL) {
        heap_push(w, (uint64_t)m->rank << 32 | i);
    }
}

/* One push for each part and two for each merge, of which there are fewer. */
static int make_room(struct bpe_work *w, size_t n)
{
    struct part *parts;
    uint64_t *heap;

    if (n <= w->room) {
        return 0;
    }
    n += n / 2;
    parts = realloc(w->parts, n * sizeof *parts);
    if (parts == NULL) {
        return LOCO_ENOMEM;
    }
    w->parts = parts;
    heap = realloc(w->heap, 3 * n * sizeof *heap);
    if (heap == NULL) {
        return LOCO_ENOMEM;
    }
    w->heap = heap;
    w->room = n;
    return 0;
}

static void merge_long(struct bpe_work *w, const uint8_t *word, uint32_t n)
{
    struct part *p = w->parts;

    w->n_heap = 0;
    for (uint32_t i = 0; i < n; i++) {
        p[i] = (struct part){.id = w->b->byte_id[word[i]],
                             .prev = i == 0 ? BPE_NONE : i - 1,
                             .next = i + 1 == n ? BPE_NONE : i + 1};
    }
    for (uint32_t i = 0; i < n; i++) {
        pair_push(w, i);
    }
    while (w->n_heap > 0) {
        uint64_t key = heap_pop(w);
        uint32_t i = (uint32_t)key;
        uint32_t next;

        /* The pair may have changed since. One rank is one pair of ids. */
        if (p[i].id == BPE_NONE || p[i].rank != (uint32_t)(key >> 32)) {
            continue;
        }
        next = p[i].next;
        p[i].id = p[i].to;
        p[i].next = p[next].next;
        p[next].id = BPE_NONE;
        if (p[i].next != BPE_NONE) {
            p[p[i].next].prev = i;
        }
        pair_push(w, i);
        if (p[i].prev != BPE_NONE) {
            pair_push(w, p[i].prev);
        }
    }
}

static int encode_long(struct bpe_work *w,
                       const uint8_t *word,
                       size_t len,
                       bpe_ids_fn take,
                       void *data)
{
    int rv;

    if (len > BPE_WORD_MAX) {
        return LOCO_ERANGE;
    }
    rv = make_room(w, len);
    if (rv != 0) {
        return rv;
    }
    merge_long(w, word, (uint32_t)len);
    for (uint32_t i = 0; rv == 0 && i != BPE_NONE; i = w->parts[i].next) {
        rv = bpe_put(w, w->parts[i].id, take, data);
    }
    return rv;
}

/* ---- the cache ---------------------------------------------------------- */

static struct cached *
cache_place(struct bpe_work *w, const uint64_t key[CACHE_KEY / 8], size_t len)
{
    uint64_t h = (key[0] ^ len) * HASH64_K1;

    h = (h ^ h >> 29 ^ key[1]) * HASH64_K2;
    h = (h ^ h >> 31 ^ key[2]) * HASH64_K1;
    return &w->cache[(h >> 40) & (CACHE_SLOTS - 1)];
}

static void remember(struct cached *c,
                     const uint64_t key[CACHE_KEY / 8],
                     size_t len,
                     const uint32_t *ids,
                     size_t n)
{
    if (n <= CACHE_IDS) {
        memcpy(c->key, key, sizeof c->key);
        c->len = (uint8_t)len;
        c->n = (uint8_t)n;
        memcpy(c->ids, ids, n * sizeof *ids);
    }
}

static int encode_cached(struct bpe_work *w,
                         const uint8_t *word,
                         size_t len,
                         bpe_ids_fn take,
                         void *data)
{
    uint64_t key[CACHE_KEY / 8] = {0};
    uint32_t ids[SHORT_MAX];
    struct cached *c;
    size_t n = 1;

    memcpy(key, word, len);
    c = cache_place(w, key, len);
    if (c->len == len && memcmp(c->key, key, sizeof key) == 0) {
        return put_all(w, c->ids, c->n, take, data);
    }
    ids[0] = w->b->whole_words ? bpe_find(w->b, word, len) : BPE_NONE;
    if (ids[0] == BPE_NONE) {
        n = merge_short(w->b, word, len, ids);
    }
    remember(c, key, len, ids, n);
    return put_all(w, ids, n, take, data);
}

/* ---- a word ------------------------------------------------------------- */

int bpe_encode(struct bpe_work *w,
               const uint8_t *word,
               size_t len,
               bpe_ids_fn take,
               void *data)
{
    uint32_t ids[SHORT_MAX];
    int rv = 0;

    if (len == 1) {
        return bpe_put(w, w->b->byte_id[word[0]], take, data);
    }
    if (w->b->n_merges == 0 && !w->b->whole_words) {
        for (size_t i = 0; rv == 0 && i < len; i++) {
            rv = bpe_put(w, w->b->byte_id[word[i]], take, data);
        }
        return rv;
    }
    if (len <= CACHE_KEY) {
        return len == 0 ? 0 : encode_cached(w, word, len, take, data);
    }
    if (w->b->whole_words) {
        uint32_t id = bpe_find(w->b, word, len);

        if (id != BPE_NONE) {
            return bpe_put(w, id, take, data);
        }
    }
    if (len <= SHORT_MAX) {
        return put_all(w, ids, merge_short(w->b, word, len, ids), take, data);
    }
    return encode_long(w, word, len, take, data);
}
