/* convicts.c - see convicts.h. */
#include "p2p/round/convicts.h"

#include <string.h>

bool convicts_has(const struct convicts *c, const struct peer_id *id)
{
    for (uint32_t k = 0; k < c->n; k++) {
        if (id_eq(&c->row[k].id, id)) {
            return true;
        }
    }
    return false;
}

bool convicts_add(struct convicts *c, const struct peer_id *id)
{
    if (convicts_has(c, id)) {
        return false;
    }
    if (c->n == CONVICTS_MAX) {
        memmove(c->row, c->row + 1, (CONVICTS_MAX - 1) * sizeof c->row[0]);
        c->n--;
    }
    c->row[c->n++] = (struct convict){.id = *id};
    return true;
}

uint64_t
convicts_mask(const struct convicts *c, const struct peer_id *ids, uint32_t n)
{
    uint64_t mask = 0;

    for (uint32_t i = 0; i < n && c->n > 0; i++) {
        mask |= convicts_has(c, &ids[i]) ? 1ULL << i : 0;
    }
    return mask;
}
