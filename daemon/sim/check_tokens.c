/* check_tokens.c - no work is lost in silence. See check.h, I.
 *
 * Per process: what its machine has trained is in commits that it followed, or
 * open (steps since the state in place), or counted by its node as dropped.
 * Nothing else, to the token. A dead process takes its open work with it;
 * nobody counts that. A commit stays followed when its branch later loses to
 * another: the node does not know how much of its past the other branch shares.
 *
 * The node hears of a new state by an event, so nothing is compared between the
 * machine's LOADED or APPLIED and the step that is told of it.
 */
#include <inttypes.h>

#include "daemon/sim/check_internal.h"
#include "daemon/sim/world/internal.h"

/* Tokens of this process that the whole result holds. Work of which only a part
 * was inherited is given up and counted as dropped. */
static uint64_t
named(const struct check *c, const struct commit_seen *s, uint32_t peer)
{
    uint32_t life = local_life(c->local, peer);
    uint64_t tokens = 0, elements = 0;

    for (uint32_t i = 0; i < s->n_parts; i++) {
        const struct part *p = &s->parts[i];

        for (uint32_t k = 0; k < p->n; k++) {
            if (world_find(c->opt.world, &p->in[k].peer) == peer &&
                p->life[k] == life) {
                tokens = p->in[k].tokens;
                elements += p->upto - p->from;
            }
        }
    }
    return elements == local_elements(c->local, s->commit.round, NULL) ? tokens
                                                                       : 0;
}

void check_spent(struct check *c, uint32_t peer, int commit, bool rebase)
{
    struct checked_peer *p = &c->peers[peer];
    uint64_t tokens = named(c, &c->commits[commit], peer);

    if (!rebase) {
        p->spent += tokens;
    }
}

void check_told(struct check *c, uint32_t peer)
{
    if (c->peers[peer].untold > 0) {
        c->peers[peer].untold--;
    }
}

void check_tokens(struct check *c, uint32_t peer, uint64_t dropped)
{
    const struct checked_peer *p = &c->peers[peer];
    uint64_t trained, open;

    if (p->untold > 0 || p->state < 0) {
        return;
    }
    c->count++;
    local_tokens(c->local, peer, &trained, &open);
    if (trained != p->spent + open + dropped) {
        check_fail(c,
                   "I: peer %u trained %" PRIu64 " tokens: %" PRIu64
                   " are in commits that it followed, %" PRIu64
                   " open and %" PRIu64 " counted as dropped",
                   peer, trained, p->spent, open, dropped);
    }
}
