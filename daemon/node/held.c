/* held.c - see held.h. */
#include "daemon/node/held.h"

#include <string.h>

#include "daemon/node/node.h"

struct node_point node_point_of(const struct heartbeat *b)
{
    return (struct node_point){b->round, b->tokens, b->commit};
}

bool node_point_eq(const struct node_point *a, const struct node_point *b)
{
    return a->round == b->round && hash32_eq(&a->commit, &b->commit);
}

bool node_point_ahead(const struct node_point *a, const struct node_point *b)
{
    return a->tokens > b->tokens ||
           (a->tokens == b->tokens && hash32_cmp(&a->commit, &b->commit) < 0);
}

void node_held_know(struct node_held *h, const struct node_point *known)
{
    h->known = *known;
}

void node_held_aim(struct node_held *h, const struct node_point *target)
{
    h->target = *target;
}

void node_held_spend(struct node_held *h, enum node_spent spent)
{
    h->target_spent = spent;
}

void node_held_begin(struct node_held *h, const struct hash32 *result)
{
    if (result != NULL) {
        h->target_result = *result;
    }
    h->applying = true;
    h->placed = false;
}

void node_held_place(struct node_held *h)
{
    h->placed = true;
}

const struct node_point *node_held_stand(const struct node_held *h)
{
    return h->applying && h->placed ? &h->target : &h->applied;
}

void node_held_end(struct node_held *h)
{
    h->applying = false;
}

void node_held_take(struct node_held *h, const struct report_state *state)
{
    h->loaded = true;
    h->applied = h->target;
    h->params_hash = state->params_hash;
    h->momentum_hash = state->momentum_hash;
    h->state_hash = node_state_hash(&h->params_hash, &h->momentum_hash);
    h->sample = state->sample;
}

void node_held_name(struct node_held *h, uint64_t round, uint64_t tokens)
{
    h->applied = (struct node_point){round, tokens, h->state_hash};
    h->known = h->applied;
}

void node_held_lose(struct node_held *h)
{
    h->loaded = false;
}

void node_held_forget(struct node_held *h)
{
    struct node_point target = h->target;

    memset(h, 0, sizeof *h);
    h->target = target;
}
