/* loader.c - see loader.h. */
#include "train/data/loader.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/backend.h"
#include "proto/base/err.h"
#include "proto/base/errmsg.h"
#include "proto/base/rng.h"

_Static_assert(LOADER_NO_TARGET == XENT_IGNORE, "one value for both");

/* Luby & Rackoff 1988 need four rounds for a strong pseudo-random permutation
 * from good round functions; two more are free. */
#define FEISTEL_ROUNDS 6

uint64_t loader_permute(uint64_t i, uint64_t n, uint64_t key)
{
    unsigned half_bits = 1;
    uint64_t mask;

    assert(i < n);
    while (half_bits < 32 && (n - 1) >> (2 * half_bits) != 0) {
        half_bits++;
    }
    mask = (1ULL << half_bits) - 1;
    do {
        uint64_t left = i >> half_bits;
        uint64_t right = i & mask;

        for (uint64_t round = 0; round < FEISTEL_ROUNDS; round++) {
            uint64_t words[3] = {key, round, right};
            uint64_t mixed = left ^ (rng_mix(words, 3) & mask);
            left = right;
            right = mixed;
        }
        i = left << half_bits | right;
    } while (i >= n);
    return i;
}

uint64_t loader_windows(uint64_t tokens, uint32_t seq)
{
    return tokens == 0 ? 0 : (tokens - 1) / seq;
}

int loader_open(struct loader *l,
                const struct loader_options *opt,
                char *errmsg)
{
    memset(l, 0, sizeof *l);
    if (opt->seq == 0 || opt->batch == 0) {
        return errmsg_invalid(errmsg,
                              "sequence length and batch must not be 0");
    }
    l->first_window = calloc(opt->n_shards + 1, sizeof *l->first_window);
    if (l->first_window == NULL) {
        return errmsg_fail(errmsg, LOCO_ENOMEM, "no memory for %zu shards",
                           opt->n_shards);
    }
    l->opt = *opt;
    for (size_t i = 0; i < opt->n_shards; i++) {
        l->first_window[i] = l->n_windows;
        l->n_windows += loader_windows(opt->shards[i].info.tokens, opt->seq);
    }
    l->first_window[opt->n_shards] = l->n_windows;
    if (l->n_windows == 0) {
        return errmsg_invalid(
            errmsg, "no train shard holds the %u tokens of one window",
            opt->seq + 1);
    }
    return 0;
}

void loader_close(struct loader *l)
{
    free(l->first_window);
    l->first_window = NULL;
    l->n_windows = 0;
}

/* The shard that holds a window: the last one that starts at or before it. */
static size_t shard_of(const struct loader *l, uint64_t window)
{
    size_t low = 0;
    size_t high = l->opt.n_shards; /* first_window[high] > window */

    while (high - low > 1) {
        size_t middle = low + (high - low) / 2;
        if (l->first_window[middle] <= window) {
            low = middle;
        } else {
            high = middle;
        }
    }
    return low;
}

/* The window that a peer's order begins with: the first one of a shard. */
static uint64_t start_of(const struct loader *l)
{
    uint64_t words[2] = {l->opt.seed, l->opt.peer};

    return l->opt.peer == 0
               ? 0
               : l->first_window[rng_mix(words, 2) % l->opt.n_shards];
}

uint64_t loader_window(const struct loader *l, uint64_t step, uint32_t row)
{
    uint64_t n = l->n_windows;
    uint64_t place = step * l->opt.batch + row;
    uint64_t words[3] = {l->opt.seed, l->opt.peer, place / n};
    uint64_t at = (place % n + start_of(l)) % n;
    size_t shard = shard_of(l, at);
    uint64_t first = l->first_window[shard];

    return first + loader_permute(at - first,
                                  l->first_window[shard + 1] - first,
                                  rng_mix(words, 3));
}

static int read_window(const struct loader *l,
                       uint64_t window,
                       uint32_t *tokens,
                       uint32_t *targets)
{
    size_t index = shard_of(l, window);
    const struct shard *s = &l->opt.shards[index];
    uint32_t seq = l->opt.seq;
    uint64_t first = (window - l->first_window[index]) * seq;
    int rv = s->data == NULL ? LOCO_ENOENT : shard_read(s, first, seq, tokens);

    if (rv != 0) {
        return rv;
    }
    memcpy(targets, tokens + 1, (seq - 1) * sizeof *targets);
    return shard_read(s, first + seq, 1, targets + seq - 1);
}

int loader_rows(const struct loader *l,
                uint64_t step,
                uint32_t first_row,
                uint32_t n_rows,
                uint32_t *tokens,
                uint32_t *targets)
{
    size_t seq = l->opt.seq;

    assert(first_row <= l->opt.batch && n_rows <= l->opt.batch - first_row);
    for (uint32_t i = 0; i < n_rows; i++) {
        uint64_t window = loader_window(l, step, first_row + i);
        int rv = read_window(l, window, tokens + i * seq, targets + i * seq);
        if (rv != 0) {
            return rv;
        }
    }
    return 0;
}

int loader_batch(const struct loader *l,
                 uint64_t step,
                 uint32_t *tokens,
                 uint32_t *targets)
{
    return loader_rows(l, step, 0, l->opt.batch, tokens, targets);
}

uint64_t eval_window_count(const struct shard *s, uint32_t seq)
{
    return s->info.tokens / seq + (s->info.tokens % seq != 0);
}

uint64_t eval_windows(uint64_t tokens, uint32_t seq, uint64_t most)
{
    uint64_t windows = tokens / seq + (tokens % seq != 0);

    if (most > 0 && windows > most / seq) {
        windows = most / seq > 0 ? most / seq : 1;
    }
    return windows;
}

int eval_rows(const struct shard *s,
              uint32_t seq,
              uint64_t first,
              uint32_t n_rows,
              uint32_t *tokens,
              uint32_t *targets,
              uint64_t *n_scored)
{
    uint64_t windows = eval_window_count(s, seq);

    assert(seq >= 2);
    *n_scored = 0;
    for (uint32_t i = 0; i < n_rows; i++) {
        uint32_t *in = tokens + (size_t)i * seq;
        uint32_t *out = targets + (size_t)i * seq;
        uint64_t window = first + i;
        uint64_t n = 0; /* tokens of this window */

        if (window < windows) {
            n = s->info.tokens - window * seq;
            n = n < seq ? n : seq;
            int rv = shard_read(s, window * seq, (size_t)n, in);
            if (rv != 0) {
                return rv;
            }
            *n_scored += n - 1;
        }
        for (size_t t = 0; t < seq; t++) {
            if (t >= n) {
                in[t] = 0;
            }
            out[t] = t + 1 < n ? in[t + 1] : LOADER_NO_TARGET;
        }
    }
    return 0;
}
