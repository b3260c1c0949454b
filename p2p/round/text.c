/* text.c - see text.h. */
#include "p2p/round/text.h"

/* Behind this no place is computed: nothing is there. */
#define POSITION_MAX (1ULL << 40)

bool text_comes_later(const struct run_terms *t)
{
    return t->window_batch > 0 && t->lease_quota > 0;
}

/* Of an epoch. */
static uint64_t windows_all(const struct run_terms *t)
{
    uint64_t n = 0;

    for (uint32_t i = 0; i < t->n_shards; i++) {
        n += t->shards[i].windows;
    }
    return n;
}

/* The train shard with that window of an epoch; *first: its first window. */
static uint32_t
shard_with(const struct run_terms *t, uint64_t window, uint64_t *first)
{
    uint32_t i = 0;

    *first = 0;
    while (window - *first >= t->shards[i].windows) {
        *first += t->shards[i++].windows;
    }
    return i;
}

static bool is_here(const struct run_terms *t, uint32_t shard)
{
    return t->shards[shard].held || t->shards[shard].windows == 0;
}

/* Of the train shards. */
static bool all_here(const struct run_terms *t)
{
    for (uint32_t i = 0; i < t->n_shards; i++) {
        if (!is_here(t, i)) {
            return false;
        }
    }
    return true;
}

struct text_span text_span_at(const struct run_terms *t, uint64_t at)
{
    uint64_t all = windows_all(t), place, first, begin, end;
    struct text_span none = {1, 1}, s;
    uint32_t shard;

    if (!text_comes_later(t) || all_here(t)) {
        return (struct text_span){0, 0};
    }
    if (at >= POSITION_MAX) {
        return none;
    }
    place = at * t->window_batch;
    shard = shard_with(t, place % all, &first);
    begin = place - (place % all - first);
    end = begin;
    /* One of them is not here: both walks end. */
    for (uint32_t i = shard; is_here(t, i); i = (i + 1) % t->n_shards) {
        end += t->shards[i].windows;
    }
    for (uint32_t i = shard; end > place && begin > 0;) {
        i = (i + t->n_shards - 1) % t->n_shards;
        if (!is_here(t, i)) {
            break;
        }
        begin -= t->shards[i].windows;
    }
    s.first = (begin + t->window_batch - 1) / t->window_batch;
    s.end = end / t->window_batch;
    return at >= s.first && at < s.end ? s : none;
}

bool text_has(const struct text_span *s, uint64_t at)
{
    return s->end == 0 || (at >= s->first && at < s->end);
}

bool text_suffices(const struct run_terms *t, uint64_t at)
{
    struct text_span s = text_span_at(t, at);
    uint32_t missing = text_missing(t, at);

    return missing == t->n_shards ||
           (text_comes_later(t) && t->shards[missing].windows > 0 &&
            text_has(&s, at));
}

bool text_span_valid(const struct text_span *s)
{
    return s->first <= s->end;
}

uint32_t text_beginning(const struct run_terms *t)
{
    uint32_t i = 0;

    while (i < t->n_shards && (!t->shards[i].begins || t->shards[i].held)) {
        i++;
    }
    return i;
}

uint32_t text_missing(const struct run_terms *t, uint64_t at)
{
    uint64_t all = windows_all(t), first;
    uint32_t i = 0;

    for (i = 0; i < t->n_shards; i++) {
        if (!t->shards[i].held && !t->shards[i].begins &&
            (t->shards[i].windows == 0 || !text_comes_later(t))) {
            return i;
        }
    }
    if (all_here(t)) {
        return t->n_shards;
    }
    i = shard_with(t, at % POSITION_MAX * t->window_batch % all, &first);
    while (is_here(t, i)) {
        i = (i + 1) % t->n_shards;
    }
    return i;
}
