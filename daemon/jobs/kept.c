/* kept.c - see kept.h. */
#include "daemon/jobs/kept.h"

#include <stdbool.h>
#include <string.h>

static bool is_named(const struct kept_state *s, uint64_t round, uint64_t name)
{
    return s->state != NULL && s->round == round &&
           (name == 0 || s->name == name);
}

struct kept_state *kept_find(struct kept *k, uint64_t round, uint64_t name)
{
    for (uint32_t i = 0; i < KEPT_STATES_MAX; i++) {
        if (is_named(&k->last[i], round, name)) {
            return &k->last[i];
        }
    }
    return is_named(&k->pinned, round, name) ? &k->pinned : NULL;
}

struct kept_state *kept_whole(struct kept *k, uint64_t round, uint64_t name)
{
    struct kept_state *s = kept_find(k, round, name);

    return s != NULL && !s->reduced ? s : NULL;
}

static void *take(struct kept_state *s)
{
    void *state = s->state;

    memset(s, 0, sizeof *s);
    return state;
}

static bool
is_fetched(const struct kept_state *s, uint64_t now_ms, uint64_t lease_ms)
{
    return s->state != NULL && s->asked_ms > 0 &&
           now_ms - s->asked_ms < lease_ms;
}

void kept_reduce(struct kept *k,
                 uint64_t now_ms,
                 uint64_t lease_ms,
                 bool (*reduce)(void *self, void *state),
                 void *self)
{
    bool spared = k->pinned.state != NULL;

    for (uint32_t i = KEPT_STATES_MAX - 1; i >= KEPT_STATES; i--) {
        struct kept_state *s = &k->last[i];

        if (s->state == NULL || s->reduced) {
            continue;
        }
        if (!spared && is_fetched(s, now_ms, lease_ms)) {
            spared = true;
        } else if (reduce(self, s->state)) {
            s->reduced = true;
            s->asked_ms = 0;
        }
    }
}

void kept_push(struct kept *k,
               const struct kept_state *s,
               uint64_t now_ms,
               uint64_t lease_ms,
               void **unpinned,
               void **left)
{
    struct kept_state *last = &k->last[KEPT_STATES + k->more - 1];

    *unpinned = NULL;
    if (!is_fetched(&k->pinned, now_ms, lease_ms)) {
        *unpinned = take(&k->pinned);
    }
    if (k->pinned.state == NULL && is_fetched(last, now_ms, lease_ms)) {
        k->pinned = *last;
        memset(last, 0, sizeof *last);
    }
    *left = take(last);
    memmove(k->last + 1, k->last,
            (KEPT_STATES + k->more - 1) * sizeof k->last[0]);
    k->last[0] = *s;
}

void *kept_leave(struct kept *k, uint64_t now_ms, uint64_t lease_ms)
{
    struct kept_state *last = &k->last[KEPT_STATES + k->more - 1];

    return is_fetched(last, now_ms, lease_ms) ? NULL : take(last);
}

void *kept_pop(struct kept *k)
{
    for (uint32_t i = 0; i < KEPT_STATES_MAX; i++) {
        if (k->last[i].state != NULL) {
            return take(&k->last[i]);
        }
    }
    return take(&k->pinned);
}
