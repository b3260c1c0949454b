/* history.c - see history.h. */
#include "p2p/round/history.h"

#include <string.h>

static void drop_oldest(struct history *h)
{
    uint32_t len = h->entry[0].len;

    h->used -= len;
    memmove(h->bytes, h->bytes + len, h->used);
    h->n--;
    memmove(h->entry, h->entry + 1, h->n * sizeof h->entry[0]);
    for (uint32_t i = 0; i < h->n; i++) {
        h->entry[i].at -= len;
    }
}

void history_clear(struct history *h)
{
    h->n = h->used = 0;
}

void history_add(struct history *h, const struct commit *c)
{
    uint8_t bytes[FRAME_CONTROL_MAX];
    uint64_t round = c->plan.body.round;
    int len = msg_encode(&commit_schema, c, bytes, sizeof bytes);

    if (len < 0) {
        return;
    }
    while (h->n > 0 && h->entry[h->n - 1].round >= round) {
        h->used -= h->entry[--h->n].len;
    }
    while (h->n == HISTORY_MAX || h->used + (uint32_t)len > HISTORY_BYTES) {
        drop_oldest(h);
    }
    memcpy(h->bytes + h->used, bytes, (size_t)len);
    h->entry[h->n].round = round;
    h->entry[h->n].at = h->used;
    h->entry[h->n].len = (uint32_t)len;
    h->used += (uint32_t)len;
    h->n++;
}

bool history_get(const struct history *h, uint64_t round, struct commit *c)
{
    for (uint32_t i = 0; i < h->n; i++) {
        if (h->entry[i].round == round) {
            return msg_decode(&commit_schema, h->bytes + h->entry[i].at,
                              h->entry[i].len, c) == 0;
        }
    }
    return false;
}
