/* shortlist.c - see shortlist.h. */
#include "p2p/dht/shortlist.h"

#include <assert.h>
#include <string.h>

#include "p2p/prefix.h"

void shortlist_init(struct shortlist *s,
                    const struct peer_id *target,
                    uint32_t prefix_max)
{
    s->target = *target;
    s->prefix_max = prefix_max;
    s->n = 0;
}

/* The farthest entry that may be dropped: a reserve, else one that did not
 * answer, else one that did; never one that is being asked. s->n if none. */
static uint32_t droppable(const struct shortlist *s)
{
    uint32_t answered = s->n;

    for (uint32_t i = s->n; i > 0; i--) {
        if (s->entry[i - 1].reserve && s->entry[i - 1].state == SHORTLIST_NEW) {
            return i - 1;
        }
    }
    for (uint32_t i = s->n; i > 0; i--) {
        uint8_t state = s->entry[i - 1].state;

        if (state != SHORTLIST_ASKED && state != SHORTLIST_ANSWERED) {
            return i - 1;
        }
        if (state == SHORTLIST_ANSWERED && answered == s->n) {
            answered = i - 1;
        }
    }
    return answered;
}

/* Free a place for `id` by dropping a farther entry, or a reserve for one that
 * is none. */
static bool
make_room(struct shortlist *s, const struct peer_id *id, bool reserve)
{
    uint32_t i = droppable(s);

    if (i == s->n || ((reserve || !s->entry[i].reserve) &&
                      id_xor_cmp(&s->target, id, &s->entry[i].id) >= 0)) {
        return false;
    }
    memmove(&s->entry[i], &s->entry[i + 1],
            (s->n - i - 1) * sizeof s->entry[0]);
    s->n--;
    return true;
}

static bool crowded(const struct shortlist *s, const struct address *a)
{
    uint32_t n = 0;

    if (s->prefix_max == 0 || prefix_is_private(a->ip)) {
        return false;
    }
    for (uint32_t i = 0; i < s->n; i++) {
        n += s->entry[i].state != SHORTLIST_FAILED &&
             prefix_eq(s->entry[i].address.ip, a->ip);
    }
    return n >= s->prefix_max;
}

bool shortlist_add(struct shortlist *s,
                   const struct peer_id *id,
                   const struct address *address,
                   uint32_t depth)
{
    uint32_t at;
    bool reserve;

    if (shortlist_find(s, id) != NULL) {
        return false;
    }
    reserve = crowded(s, address);
    if (s->n == SHORTLIST_MAX && !make_room(s, id, reserve)) {
        return false;
    }
    assert(s->n < SHORTLIST_MAX);
    for (at = s->n; at > 0; at--) {
        if (id_xor_cmp(&s->target, &s->entry[at - 1].id, id) < 0) {
            break;
        }
        s->entry[at] = s->entry[at - 1];
    }
    s->entry[at] = (struct shortlist_entry){
        .id = *id,
        .address = *address,
        .state = SHORTLIST_NEW,
        .reserve = reserve,
        .depth = (uint8_t)(depth < UINT8_MAX ? depth : UINT8_MAX)};
    s->n++;
    return true;
}

struct shortlist_entry *shortlist_find(struct shortlist *s,
                                       const struct peer_id *id)
{
    for (uint32_t i = 0; i < s->n; i++) {
        if (id_eq(&s->entry[i].id, id)) {
            return &s->entry[i];
        }
    }
    return NULL;
}

bool shortlist_lists(const struct shortlist *s, const struct address *address)
{
    for (uint32_t i = 0; i < s->n; i++) {
        if (address_eq(&s->entry[i].address, address)) {
            return true;
        }
    }
    return false;
}

struct shortlist_entry *
shortlist_next(struct shortlist *s, uint32_t k, bool *settled)
{
    struct shortlist_entry *spare = NULL;
    uint32_t live = 0;

    *settled = true;
    for (uint32_t i = 0; i < s->n && live < k; i++) {
        struct shortlist_entry *e = &s->entry[i];

        if (e->state == SHORTLIST_FAILED) {
            continue;
        }
        if (e->reserve && e->state == SHORTLIST_NEW) {
            spare = spare == NULL ? e : spare;
            continue;
        }
        live++;
        if (e->state != SHORTLIST_ANSWERED) {
            *settled = false;
        }
        if (e->state == SHORTLIST_NEW) {
            return e;
        }
    }
    if (live < k && spare != NULL) {
        *settled = false;
        return spare;
    }
    return NULL;
}
