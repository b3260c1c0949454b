/* ballot_value.c - the next view, made of closing statements.
 *
 * A function of the promises that were gathered and of the view before: who
 * stays, who comes in and which slot it has (lease.h), which edges rings
 * avoid, whether it is a fork, and the fate of the round in flight, which is
 * the only place where a round can be decided without all its voters.
 */
#include "p2p/round/ballot_internal.h"
#include "p2p/round/lease.h"

#include <assert.h>
#include <string.h>

/* Broken edges go over into the next view, but into every such one not: they
 * may have healed. */
#define EDGES_KEPT 4

/* The fate of the round in flight, from the closing statements of those who
 * are left (`left`: electors); the rule is in ballot.h. */
static void
decide_round(const struct ballot *b, uint64_t left, struct view_body *v)
{
    const struct promise_body *best = NULL;
    bool found = false;

    for (uint32_t i = 0; i < b->n_electors; i++) {
        const struct promise_body *p = &b->promises[i];

        if ((left >> i & 1) &&
            (best == NULL || p->round > best->round ||
             (p->round == best->round &&
              (p->tokens > best->tokens ||
               (p->tokens == best->tokens &&
                hash32_cmp(&p->commit, &best->commit) < 0))))) {
            best = p;
        }
    }
    assert(best != NULL);
    v->round = best->round;
    v->tokens = best->tokens;
    v->commit = best->commit;
    for (uint32_t i = 0; i < b->n_electors && !found; i++) {
        const struct promise_body *p = &b->promises[i];

        if (!(left >> i & 1) || p->round != best->round ||
            p->closing != CLOSING_VOTED) {
            continue;
        }
        found = true;
        for (uint32_t k = 0; k < b->n_electors; k++) {
            const struct promise_body *q = &b->promises[k];

            if ((left >> k & 1) && (p->plan_members >> k & 1) &&
                (q->closing != CLOSING_VOTED ||
                 !hash32_eq(&q->voted, &p->voted))) {
                found = false;
            }
        }
        if (found) {
            v->round = best->round + 1;
            v->tokens = p->plan_tokens;
            v->commit = p->voted;
        }
    }
}

/* ---- members ---------------------------------------------------------- */

static void member_add(struct view_body *v,
                       const uint8_t key[32],
                       const struct msg_address *address,
                       uint64_t joined)
{
    struct view_member *m;

    if (v->n_members == VIEW_MEMBERS_MAX || view_index_key(v, key) >= 0) {
        return;
    }
    m = &v->members[v->n_members++];
    memcpy(m->public_key, key, 32);
    m->address = *address;
    m->joined = joined;
}

static struct msg_address address_of(const struct ballot *b, int row)
{
    const struct address *a = row == MEMBERS_NONE
                                  ? &b->members->observed
                                  : &b->members->peers[row].address;
    struct msg_address out = {.port = a->port};

    memcpy(out.ip, a->ip, sizeof out.ip);
    return out;
}

static void add_joiners(struct ballot *b, struct view_body *v)
{
    for (int k = 0; k < BALLOT_JOINERS_MAX; k++) {
        struct ballot_joiner *j = &b->joiners[k];

        if (ballot_joiner_here(b, j) &&
            ballot_joiner_holds(j, v->round, &v->commit) &&
            !ballot_is_ousted(b, j->public_key, v->round) &&
            ballot_joiner_fits(b, v, j)) {
            member_add(v, j->public_key, &j->address, v->epoch);
        }
    }
}

static void
edge_add(struct view_body *v, const struct peer_id *a, const struct peer_id *b)
{
    int x = view_index(v, a), y = view_index(v, b);

    for (uint32_t e = 0; e < v->n_edges; e++) {
        if (v->edges[e] == (x | y << 8) || v->edges[e] == (y | x << 8)) {
            return;
        }
    }
    if (x >= 0 && y >= 0 && x != y && v->n_edges < 16) {
        v->edges[v->n_edges++] = (uint16_t)(x | y << 8);
    }
}

/* Whether that statement's `broken` counts. Of a butterfly that stood still one
 * says who holds it up; not so one that stopped by itself, which others wait
 * for as well: it was not quiet. */
static bool is_broken(const struct ballot *b, const struct promise_body *p)
{
    bool waits = p->ring_quiet && !p->in_ring;

    for (uint32_t k = 0; k < b->n_electors && waits; k++) {
        if (id_eq(&b->ids[k], &p->broken)) {
            return p->has_broken && b->promises[k].ring_quiet;
        }
    }
    return p->has_broken;
}

/* What elector `to` says, to whom elector i gave something out, if nothing had
 * come there for a while. */
static const struct promise_body *
waiter(const struct ballot *b, uint32_t i, uint32_t to, uint64_t left)
{
    const struct promise_body *q = &b->promises[to % VIEW_MEMBERS_MAX];

    return b->promises[i].in_ring && to != i && to < b->n_electors &&
                   (left >> to & 1) && q->in_ring && q->ring_quiet
               ? q
               : NULL;
}

/* Edges of which rings go around: those that failed a live member twice, and
 * where a ring stood still: what was given out to a member to which nothing
 * came for a while is stuck in between. */
static void
note_edges(const struct ballot *b, uint64_t left, struct view_body *v)
{
    const struct view_body *old = &b->cert.body;

    for (uint32_t e = 0; e < old->n_edges && v->epoch % EDGES_KEPT != 0; e++) {
        edge_add(v, &b->ids[old->edges[e] & 0xff], &b->ids[old->edges[e] >> 8]);
    }
    for (uint32_t i = 0; i < b->n_electors; i++) {
        const struct promise_body *p = &b->promises[i], *q;

        if (!(left >> i & 1)) {
            continue;
        }
        if (is_broken(b, p)) {
            edge_add(v, &b->ids[i], &p->broken);
        }
        q = waiter(b, i, p->ring_next, left);
        if (q != NULL && p->ring_sent > q->ring_got) {
            edge_add(v, &b->ids[i], &b->ids[p->ring_next]);
        }
        q = waiter(b, i, p->gate_next, left);
        if (q != NULL && p->gate_sent > q->gate_got) {
            edge_add(v, &b->ids[i], &b->ids[p->gate_next]);
        }
    }
}

static void mark_fork(const struct ballot *b, struct view_body *v)
{
    const struct view_body *old = &b->cert.body;

    if ((b->mode == VIEW_FOUND && !b->restored) ||
        (b->mode == VIEW_MAJORITY && !old->fork)) {
        return; /* unmarked: its roots are its own members */
    }
    if (old->fork) {
        v->n_roots = old->n_roots;
        memcpy(v->roots, old->roots, sizeof v->roots);
    } else {
        v->n_roots = old->n_members;
        memcpy(v->roots, b->ids, sizeof v->roots[0] * old->n_members);
    }
    v->fork = !view_holds_half(v, v->roots, v->n_roots);
    if (!v->fork) {
        v->n_roots = 0;
    }
}

bool ballot_make_value(struct ballot *b, struct view_body *v)
{
    const struct view_body *old = &b->cert.body;
    uint64_t left = 0;

    memset(v, 0, sizeof *v);
    v->run = b->opt.run;
    v->mode = (uint8_t)b->mode;
    v->epoch = b->mode == VIEW_FOUND ? b->founding.epoch : old->epoch + 1;
    v->prev = b->mode == VIEW_FOUND ? b->opt.run : b->hash;
    v->departed = b->mode == VIEW_FOUND ? 0 : b->departed;
    for (uint32_t i = 0; i < b->n_electors; i++) {
        if ((b->answered >> i & 1) && !b->promises[i].restarted &&
            !(v->departed >> i & 1)) {
            struct msg_address a = address_of(b, b->elector_rows[i]);
            uint64_t joined =
                b->mode == VIEW_FOUND ? v->epoch : old->members[i].joined;

            if (b->mode != VIEW_FOUND && a.port == 0) {
                a = old->members[i].address;
            }
            left |= BIT(i);
            member_add(v, b->elector_keys[i], &a, joined);
        }
    }
    if (left == 0) {
        return false;
    }
    decide_round(b, left, v);
    if (b->mode == VIEW_MAJORITY) {
        add_joiners(b, v);
    }
    (void)view_sort(v);
    if (b->mode != VIEW_FOUND) {
        note_edges(b, left, v);
        ballot_prune(b, v);
    }
    mark_fork(b, v);
    lease_slots(b->mode == VIEW_FOUND ? NULL : old, v);
    return true;
}
