/* peer.c - see peer.h. */
#include "p2p/uv/peer.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "p2p/uv/shell.h"

struct peer *peer_find(const struct shell *s, const struct peer_id *id)
{
    struct peer *p;

    HASH_FIND(hh, s->peers, id, sizeof *id, p);
    return p;
}

static void forget(struct shell *s, struct peer *p)
{
    HASH_DEL(s->peers, p);
    free(p);
}

/* The table is in order of insertion: the first idle one is the oldest. */
static void make_room(struct shell *s)
{
    struct peer *p = s->peers, *next;

    while (p != NULL && HASH_COUNT(s->peers) >= PEERS_IDLE_MAX) {
        next = p->hh.next;
        if (p->n_refs == 0) {
            forget(s, p);
        }
        p = next;
    }
}

struct peer *peer_acquire(struct shell *s, const struct peer_id *id)
{
    struct peer *p = peer_find(s, id);

    if (p == NULL) {
        make_room(s);
        p = shell_alloc(sizeof *p);
        memset(p, 0, sizeof *p);
        p->id = *id;
        HASH_ADD(hh, s->peers, id, sizeof p->id, p);
    }
    p->n_refs++;
    return p;
}

void peer_release(struct shell *s, struct peer *p)
{
    (void)s;
    assert(p->n_refs > 0);
    p->n_refs--;
}

void peer_clear(struct shell *s)
{
    struct peer *p, *next;

    for (p = s->peers; p != NULL; p = next) {
        next = p->hh.next;
        assert(p->n_refs == 0);
        forget(s, p);
    }
}
