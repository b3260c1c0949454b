/* relay.c - see relay.h. A row is CALLING from the asker's request until the
 * other end came or wait_ms passed, OPEN until the shell says it is over; that
 * of a meeting is free when the other end came. */
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

/* A kind of rows: pipes, or meetings. */
struct rows {
    struct relay_pipe *row;
    uint32_t n;
};

static struct rows rows_of(struct relay *r, bool meet)
{
    return meet ? (struct rows){r->meetings, RELAY_MEETINGS_MAX}
                : (struct rows){r->pipes, RELAY_PIPES_MAX};
}

static struct relay_pipe *free_row(struct rows rows)
{
    for (uint32_t i = 0; i < rows.n; i++) {
        if (rows.row[i].state == RELAY_FREE) {
            return &rows.row[i];
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

/* Rows that a peer asked for, or (`any`) is an end of. */
static uint32_t n_of(struct rows rows, const struct peer_id *peer, bool any)
{
    uint32_t n = 0;

    for (uint32_t i = 0; i < rows.n; i++) {
        const struct relay_pipe *p = &rows.row[i];

        n += p->state != RELAY_FREE &&
             (id_eq(&p->from, peer) || (any && id_eq(&p->to, peer)));
    }
    return n;
}

static uint32_t n_foreign(struct rows rows)
{
    uint32_t n = 0;

    for (uint32_t i = 0; i < rows.n; i++) {
        n += rows.row[i].state != RELAY_FREE && rows.row[i].foreign;
    }
    return n;
}

static bool may_carry(struct relay *r, const struct relay_ask *ask)
{
    struct rows pipes = rows_of(r, false);

    return relay_willing(r) &&
           n_of(pipes, ask->from, true) < r->opt.pipes_per_peer &&
           n_of(pipes, ask->to, true) < r->opt.pipes_per_peer &&
           (ask->member ||
            (n_foreign(pipes) < RELAY_FOREIGN_MAX && !r->foreign.spent));
}

static bool may_introduce(struct relay *r, const struct relay_ask *ask)
{
    struct rows meetings = rows_of(r, true);

    return r->opt.bytes_per_hour > 0 &&
           n_of(meetings, ask->from, false) < RELAY_MEETINGS_OF_PEER &&
           (ask->member || n_foreign(meetings) < RELAY_MEETINGS_MAX / 2);
}

uint64_t
relay_asked(struct relay *r, const struct relay_ask *ask, uint64_t now_ms)
{
    struct relay_pipe *p = free_row(rows_of(r, ask->meet));

    fill(r, now_ms);
    if (p == NULL || id_eq(ask->from, ask->to) ||
        !(ask->meet ? may_introduce(r, ask) : may_carry(r, ask))) {
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
    struct rows rows = rows_of(r, meet);

    for (uint32_t i = 0; i < rows.n; i++) {
        struct relay_pipe *p = &rows.row[i];

        if (p->state == RELAY_CALLING && p->token == token &&
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

/* The row of that connection, of the asker or of who came; NULL: none. */
static struct relay_pipe *row_of(struct rows rows, uint64_t request)
{
    for (uint32_t i = 0; i < rows.n; i++) {
        struct relay_pipe *p = &rows.row[i];

        if (p->state != RELAY_FREE &&
            (p->request == request ||
             (p->state == RELAY_OPEN && p->other_request == request))) {
            return p;
        }
    }
    return NULL;
}

void relay_moved(struct relay *r,
                 uint64_t request,
                 uint64_t n_bytes,
                 bool ended,
                 uint64_t now_ms)
{
    struct relay_pipe *p = row_of(rows_of(r, false), request);

    fill(r, now_ms);
    r->n_bytes += n_bytes;
    spend(&r->all, n_bytes);
    if (p != NULL && p->foreign) {
        spend(&r->foreign, n_bytes);
    }
    p = p != NULL ? p : row_of(rows_of(r, true), request);
    if (p != NULL && ended) {
        memset(p, 0, sizeof *p);
    }
}

/* Nobody came in time, or the bytes are spent. */
static bool
is_over(const struct relay *r, const struct relay_pipe *p, uint64_t now_ms)
{
    return (p->state == RELAY_CALLING &&
            now_ms - p->since_ms > r->opt.wait_ms) ||
           (p->state == RELAY_OPEN &&
            (r->all.spent || (p->foreign && r->foreign.spent)));
}

bool relay_next_over(struct relay *r, uint64_t now_ms, uint64_t *request)
{
    fill(r, now_ms);
    for (int meet = 0; meet < 2; meet++) {
        struct rows rows = rows_of(r, meet != 0);

        for (uint32_t i = 0; i < rows.n; i++) {
            if (is_over(r, &rows.row[i], now_ms)) {
                *request = rows.row[i].request;
                memset(&rows.row[i], 0, sizeof rows.row[i]);
                return true;
            }
        }
    }
    return false;
}
