/* relay.c - see relay.h. A row is CALLING from the asker's request until the
 * other end came or wait_ms passed, OPEN until the shell says it is over; a
 * meeting is over when the other end came. */
#include "p2p/swarm/relay.h"

#include <string.h>

#include "proto/base/rng.h"

#define HOUR_MS 3600000U

static uint64_t most_foreign(const struct relay *r)
{
    return r->opt.bytes_per_hour / 2;
}

void relay_init(struct relay *r,
                const struct relay_options *opt,
                uint64_t now_ms)
{
    memset(r, 0, sizeof *r);
    r->opt = *opt;
    r->rng = opt->seed;
    r->all.tokens = opt->bytes_per_hour;
    r->foreign.tokens = most_foreign(r);
    r->filled_ms = now_ms;
}

static void fill_purse(struct relay_purse *p, uint64_t most, uint64_t ms)
{
    /* Whole bytes only; what is left of a millisecond's share is given up. */
    p->tokens += most / HOUR_MS * ms + most % HOUR_MS * ms / HOUR_MS;
    if (p->tokens > most) {
        p->tokens = most;
    }
    if (p->tokens >= most / 16) {
        p->spent = false;
    }
}

static void fill(struct relay *r, uint64_t now_ms)
{
    uint64_t ms = now_ms - r->filled_ms;

    ms = ms < HOUR_MS ? ms : HOUR_MS;
    fill_purse(&r->all, r->opt.bytes_per_hour, ms);
    fill_purse(&r->foreign, most_foreign(r), ms);
    r->filled_ms = now_ms;
}

static void spend(struct relay_purse *p, uint64_t n_bytes)
{
    p->tokens -= n_bytes < p->tokens ? n_bytes : p->tokens;
    p->spent = p->spent || p->tokens == 0;
}

static struct relay_pipe *free_row(struct relay *r)
{
    for (int i = 0; i < RELAY_PIPES_MAX; i++) {
        if (r->pipes[i].state == RELAY_FREE) {
            return &r->pipes[i];
        }
    }
    return NULL;
}

bool relay_willing(const struct relay *r)
{
    if (r->opt.bytes_per_hour == 0 || r->all.spent) {
        return false;
    }
    for (int i = 0; i < RELAY_PIPES_MAX; i++) {
        if (r->pipes[i].state == RELAY_FREE) {
            return true;
        }
    }
    return false;
}

static uint32_t n_of(const struct relay *r, const struct peer_id *peer)
{
    uint32_t n = 0;

    for (int i = 0; i < RELAY_PIPES_MAX; i++) {
        const struct relay_pipe *p = &r->pipes[i];

        n += p->state != RELAY_FREE &&
             (id_eq(&p->from, peer) || id_eq(&p->to, peer));
    }
    return n;
}

static bool has_foreign_room(const struct relay *r)
{
    uint32_t n = 0;

    for (int i = 0; i < RELAY_PIPES_MAX; i++) {
        n += r->pipes[i].state != RELAY_FREE && r->pipes[i].foreign;
    }
    return n < RELAY_FOREIGN_MAX && !r->foreign.spent;
}

uint64_t
relay_asked(struct relay *r, const struct relay_ask *ask, uint64_t now_ms)
{
    struct relay_pipe *p = free_row(r);

    fill(r, now_ms);
    if (p == NULL || !relay_willing(r) || id_eq(ask->from, ask->to) ||
        n_of(r, ask->from) >= r->opt.pipes_per_peer ||
        n_of(r, ask->to) >= r->opt.pipes_per_peer ||
        (!ask->member && !has_foreign_room(r))) {
        r->n_refused++;
        return 0;
    }
    *p = (struct relay_pipe){
        .state = RELAY_CALLING,
        .request = ask->request,
        .token = rng_next(&r->rng) | 1,
        .since_ms = now_ms,
        .from = *ask->from,
        .to = *ask->to,
        .foreign = !ask->member,
        .meet = ask->meet,
    };
    return p->token;
}

bool relay_came(struct relay *r,
                uint64_t request,
                const struct peer_id *peer,
                uint64_t token,
                bool meet,
                uint64_t *with)
{
    for (int i = 0; i < RELAY_PIPES_MAX; i++) {
        struct relay_pipe *p = &r->pipes[i];

        if (p->state == RELAY_CALLING && p->token == token && p->meet == meet &&
            id_eq(&p->to, peer)) {
            p->state = RELAY_OPEN;
            p->other_request = request;
            *with = p->request;
            if (meet) {
                memset(p, 0, sizeof *p);
            }
            return true;
        }
    }
    r->n_refused++;
    return false;
}

void relay_moved(struct relay *r,
                 uint64_t request,
                 uint64_t n_bytes,
                 bool ended,
                 uint64_t now_ms)
{
    fill(r, now_ms);
    r->n_bytes += n_bytes;
    spend(&r->all, n_bytes);
    for (int i = 0; i < RELAY_PIPES_MAX; i++) {
        struct relay_pipe *p = &r->pipes[i];

        if (p->state == RELAY_FREE ||
            (p->request != request &&
             (p->state != RELAY_OPEN || p->other_request != request))) {
            continue;
        }
        if (p->foreign) {
            spend(&r->foreign, n_bytes);
        }
        if (ended) {
            memset(p, 0, sizeof *p);
        }
    }
}

bool relay_next_over(struct relay *r, uint64_t now_ms, uint64_t *request)
{
    fill(r, now_ms);
    for (int i = 0; i < RELAY_PIPES_MAX; i++) {
        struct relay_pipe *p = &r->pipes[i];

        if ((p->state == RELAY_CALLING &&
             now_ms - p->since_ms > r->opt.wait_ms) ||
            (p->state == RELAY_OPEN &&
             (r->all.spent || (p->foreign && r->foreign.spent)))) {
            *request = p->request;
            memset(p, 0, sizeof *p);
            return true;
        }
    }
    return false;
}
