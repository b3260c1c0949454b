/* agenda.c - see agenda.h. */
#include "daemon/sim/world/agenda.h"

#include <stdlib.h>
#include <string.h>

static uint8_t *at(const struct agenda *a, uint32_t i)
{
    return a->record + i * a->size;
}

static bool sooner(const void *x, const void *y)
{
    struct agenda_key a, b;

    memcpy(&a, x, sizeof a);
    memcpy(&b, y, sizeof b);
    return a.at != b.at ? a.at < b.at : a.order < b.order;
}

bool agenda_put_again(struct agenda *a, const void *record)
{
    uint32_t i = a->n;

    if (i + 1 >= a->room) { /* one more than there are: where one is moved */
        uint32_t room = a->room == 0 ? 1024 : 2 * a->room;
        uint8_t *more = realloc(a->record, room * a->size);

        if (more == NULL) {
            return false;
        }
        a->record = more;
        a->room = room;
    }
    a->n++;
    memcpy(at(a, a->n), record, a->size);
    while (i > 0 && sooner(at(a, a->n), at(a, (i - 1) / 2))) {
        memcpy(at(a, i), at(a, (i - 1) / 2), a->size);
        i = (i - 1) / 2;
    }
    memmove(at(a, i), at(a, a->n), a->size);
    return true;
}

bool agenda_put(struct agenda *a, void *record)
{
    struct agenda_key key;

    memcpy(&key, record, sizeof key);
    key.order = a->order++;
    memcpy(record, &key, sizeof key);
    return agenda_put_again(a, record);
}

uint64_t agenda_when(const struct agenda *a)
{
    struct agenda_key key = {.at = UINT64_MAX};

    if (a->n > 0) {
        memcpy(&key, at(a, 0), sizeof key);
    }
    return key.at;
}

bool agenda_take(struct agenda *a, void *record)
{
    uint32_t i = 0;

    if (a->n == 0) {
        return false;
    }
    memcpy(record, at(a, 0), a->size);
    a->n--;
    for (uint32_t k = 1; k < a->n; k = 2 * i + 1) {
        if (k + 1 < a->n && sooner(at(a, k + 1), at(a, k))) {
            k++;
        }
        if (!sooner(at(a, k), at(a, a->n))) {
            break;
        }
        memcpy(at(a, i), at(a, k), a->size);
        i = k;
    }
    memmove(at(a, i), at(a, a->n), a->size);
    return true;
}

void agenda_free(struct agenda *a)
{
    free(a->record);
    *a = (struct agenda){.size = a->size};
}
