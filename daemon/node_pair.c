/* node_pair.c - runs whose replicas average in random pairs (p2p/pair.h).
 *
 * No view and no rounds of all: a peer that holds a state takes part, which its
 * heartbeats and rumours say (has_view). TRAIN(period) beside the anchor's
 * bytes -> TRAINED -> pair_pack .. decided -> APPLY of STEP, with the partner
 * or alone -> the next turn. The state's name is its own hash: every replica
 * has another one.
 *
 * Coming in: a peer that restarts with a state at most PAIR_BEHIND turns old
 * goes on from it; anybody else copies the replica of a linked peer, checked
 * against the hash that its owner told over its authenticated link.
 *
 * The end: after the last turn all replicas become one mean, weighted by their
 * tokens. The live peers, sorted by id, are the nodes of a binomial tree:
 * number i fetches the states of i + 1, i + 2, i + 4 .. up to the lowest bit
 * set in i, each when that peer has done the same, and mixes them in. Number 0
 * then holds the whole, and everybody copies it from whoever has it. Who is not
 * ready in time is left out, and copies the whole as well. `muster` in the
 * heartbeat says how far a peer is. Who dies costs its replica, and if it held
 * others' these may count twice or not at all: the result is a mean of replicas
 * in any case, and the same bits for all.
 */
#include "daemon/node_internal.h"

#include <string.h>

#include "proto/base/log.h"

#define PAIR_BEHIND  2     /* turns; older states are not worth keeping */
#define FINAL_MIN_MS 10000 /* the least that a branch of the tree is given */

/* heartbeat.muster at the end of a run of pairs. */
enum { FINAL_NONE, FINAL_PART, FINAL_WHOLE };

/* ---- the state -------------------------------------------------------- */

static const struct heartbeat *best_beat(const struct node *n)
{
    int peer = node_best_peer(n);

    return peer == MEMBERS_NONE ? NULL : &n->members.peers[peer].beat;
}

static struct node_point point_of(const struct heartbeat *b)
{
    return (struct node_point){
        .round = b->round, .tokens = b->tokens, .commit = b->commit};
}

/* Whether the state that we want is still there, and not ours already. */
static bool is_worth_it(const struct node *n)
{
    const struct member *p = &n->members.peers[n->final_peer];
    unsigned muster = n->merge_share > 0 ? FINAL_PART : FINAL_WHOLE;

    return p->used && p->has_beat && p->n_links > 0 && p->beat.ready &&
           !transfer_shuns(&n->transfer, n->final_peer) &&
           p->beat.muster == muster && p->beat.round >= n->terms.stop_rounds &&
           !hash32_eq(&p->beat.commit, &n->applied.commit);
}

bool node_pair_target(const struct node *n, struct node_point *target)
{
    const struct heartbeat *best;

    if (n->loaded) {
        if (n->final_peer == MEMBERS_NONE || !is_worth_it(n)) {
            return false;
        }
        *target = point_of(&n->members.peers[n->final_peer].beat);
        return true;
    }
    best = best_beat(n);
    if (best == NULL || (n->terms.holds_state && best->muster != FINAL_WHOLE &&
                         n->terms.held_round + PAIR_BEHIND >= best->round)) {
        return false; /* our own */
    }
    *target = point_of(best);
    return true;
}

/* What is asked for is the hash of its newest heartbeat, so that these must
 * come even where it is no neighbour. */
void node_pair_owner(struct node *n, int peer)
{
    int before = members_find(&n->members, &n->owner);

    if (before == peer) {
        return;
    }
    if (before != MEMBERS_NONE) {
        members_guest(&n->members, before, false);
    }
    memset(&n->owner, 0, sizeof n->owner);
    if (peer != MEMBERS_NONE) {
        members_guest(&n->members, peer, true);
        n->owner = n->members.peers[peer].id;
    }
}

void node_pair_loaded(struct node *n)
{
    bool whole = n->final_peer != MEMBERS_NONE && n->merge_share <= 0;

    node_pair_owner(n, MEMBERS_NONE);
    if (n->merge_share > 0) {
        n->applied.round = n->merged.round;
        n->applied.tokens = n->merged.tokens;
    }
    n->merge_share = 0;
    n->final_peer = MEMBERS_NONE;
    n->applied.commit = n->state_hash;
    n->known = n->applied;
    node_note_state(n, NULL);
    if (whole) {
        out_log(n->out, LOG_INFO, "the mean of all replicas is here");
        n->muster = FINAL_WHOLE;
        node_step_taken(n);
    }
}

void node_pair_spoiled(struct node *n)
{
    int owner = members_find(&n->members, &n->owner);
    char name[ID_SHORT_MAX];

    n->malformed++;
    if (owner != MEMBERS_NONE) {
        n->n_shunned++;
        transfer_shun(&n->transfer, owner);
        id_short(&n->owner, name);
        out_log(n->out, LOG_WARN,
                "the replica of %s is not finite; nothing more is fetched "
                "from it",
                name);
    }
    node_pair_owner(n, MEMBERS_NONE);
    n->merge_share = 0;
    n->final_peer = MEMBERS_NONE;
}

/* ---- turns ------------------------------------------------------------ */

static void begin_turn(struct node *n)
{
    struct action *a;

    if (n->applied.round == 0 &&
        pair_n_members(&n->pair) < n->terms.min_peers) {
        return;
    }
    if (!n->has_before && n->applied.round == 0) {
        node_evaluate(n);
    }
    a = out_add(n->out, ACTION_TRAIN);
    if (a == NULL) {
        return;
    }
    a->round = n->applied.round + 1;
    a->steps = n->terms.period;
    n->training = true;
    n->turn_ms = n->now;
    pair_begin(&n->pair, n->applied.round + 1, n->terms.stop_rounds, n->now,
               n->out);
}

static void take_step(struct node *n)
{
    struct action *a = out_add(n->out, ACTION_APPLY);

    if (a != NULL) {
        a->buffer = BUFFER_STEP;
        a->round = a->index = n->pair.turn;
        a->alone = !pair_with_partner(&n->pair) || n->step_failed;
        a->first = id_cmp(&n->opt.self, &n->pair.peer) < 0;
        n->applying = true;
    }
}

/* A partner that left us without an answer is worth a line in the status. */
static void note_partner(struct node *n)
{
    const struct pair *p = &n->pair;
    int row = members_find(&n->members, &p->peer);

    if (p->end == PAIR_END_ODD || row == MEMBERS_NONE || p->linked ||
        p->end == PAIR_END_BOTH || p->end == PAIR_END_PASSED) {
        return;
    }
    node_note_lost(n, &p->peer, (uint32_t)(n->now - p->down_ms),
                   "its partner in a pair could not reach it");
}

void node_pair_trained(struct node *n, const struct local_event *e)
{
    n->packed = true;
    n->turn_tokens = e->tokens;
    pair_pack(&n->pair, n->now, n->out);
}

/* With what the partner sent the step is not finite: take it alone. If that is
 * not finite either, this replica is lost: copy another. */
static void step_failed(struct node *n)
{
    if (pair_with_partner(&n->pair) && !n->step_failed) {
        n->step_failed = true;
        n->pair.malformed++;
        return;
    }
    n->step_failed = false;
    out_log(n->out, LOG_ERROR,
            "turn %llu: training has diverged here; taking the replica of "
            "another peer, or the last checkpoint",
            (unsigned long long)n->pair.turn);
    pair_finish(&n->pair, n->out);
    n->tokens_dropped += n->turn_tokens;
    n->packed = n->loaded = false;
}

void node_pair_applied(struct node *n, const struct local_event *e)
{
    const struct pair *p = &n->pair;
    char name[ID_SHORT_MAX] = "";
    bool with = pair_with_partner(p) && !n->step_failed;

    if (e->rc != 0) {
        step_failed(n);
        return;
    }
    n->step_failed = false;

    n->params_hash = e->params_hash;
    n->momentum_hash = e->momentum_hash;
    n->state_hash = node_state_hash(&e->params_hash, &e->momentum_hash);
    n->applied.round = p->turn;
    n->applied.tokens += n->turn_tokens;
    n->applied.commit = n->state_hash;
    n->known = n->applied;
    node_note_state(n, NULL);
    n->first_step = n->inner_step;
    n->packed = false;
    n->n_committed += with;
    n->n_byes += !with;
    n->round_ms = n->now - n->turn_ms;
    if (with) {
        id_short(&p->peer, name);
    }
    out_log(n->out, LOG_INFO, "turn %llu %s%s%s", (unsigned long long)p->turn,
            pair_end_text(p->end), with ? ": " : "", name);
    note_partner(n);
    pair_finish(&n->pair, n->out);
    node_step_taken(n);
}

bool node_pair_evaluates(const struct node *n)
{
    uint64_t every = n->terms.eval_every;
    uint32_t n_members = n->pair.list.n > 0 ? n->pair.list.n : 1;

    return every != 0 && (n->applied.round % every == 0 || node_run_over(n)) &&
           (n->applied.round / every) % n_members == n->pair.list.self;
}

static void turn_advance(struct node *n)
{
    if (n->pair.phase == PAIR_IDLE) {
        if (!n->paused && !n->training) {
            begin_turn(n);
        }
        return;
    }
    pair_tick(&n->pair, n->now, n->out);
    if (n->pair.phase == PAIR_DECIDED) {
        take_step(n);
    }
}

/* ---- the end ---------------------------------------------------------- */

static bool is_mixed_in(const struct node *n, const struct peer_id *id)
{
    for (uint32_t i = 0; i < n->n_mixed; i++) {
        if (id_eq(&n->mixed[i], id)) {
            return true;
        }
    }
    return false;
}

static void mixed_in(struct node *n, const struct peer_id *id)
{
    if (n->n_mixed < NODE_MIXED_MAX) {
        n->mixed[n->n_mixed++] = *id;
    }
    n->final_ms = n->now;
}

/* The next branch below us that is not mixed in: row; MEMBERS_NONE: no more. */
static int next_branch(const struct node *n)
{
    const struct pair_list *l = &n->pair.list;

    for (uint32_t step = 1; step < l->n && (l->self & step) == 0; step <<= 1) {
        if (l->self + step < l->n) {
            int row = l->rows[l->self + step];

            if (!is_mixed_in(n, &n->members.peers[row].id)) {
                return row;
            }
        }
    }
    return MEMBERS_NONE;
}

static uint64_t branch_limit_ms(const struct node *n)
{
    return n->terms.grace_ms + 2 * n->round_ms +
           (uint64_t)FINAL_MIN_MS * n->opt.time_scale;
}

/* The best linked peer with the whole; of equal ones any. */
static int whole_at(const struct node *n)
{
    const struct heartbeat *best = NULL;
    int at = MEMBERS_NONE;

    for (uint32_t i = 0; i < n->members.n_peers; i++) {
        const struct member *p = &n->members.peers[i];
        int order;

        if (!p->used || !p->has_beat || p->n_links == 0 ||
            transfer_shuns(&n->transfer, (int)i) ||
            p->beat.muster != FINAL_WHOLE || !p->beat.ready ||
            p->beat.round < n->terms.stop_rounds) {
            continue;
        }
        order = best == NULL ? -1 : hash32_cmp(&p->beat.commit, &best->commit);
        if (best == NULL || p->beat.tokens > best->tokens ||
            (p->beat.tokens == best->tokens && order < 0)) {
            best = &p->beat;
            at = (int)i;
        }
    }
    return at;
}

/* True: there is a whole, and we hold it or are about to. */
static bool copy_whole(struct node *n)
{
    int at = whole_at(n);
    const struct heartbeat *b =
        at == MEMBERS_NONE ? NULL : &n->members.peers[at].beat;

    if (b == NULL) {
        return n->muster == FINAL_WHOLE;
    }
    if (hash32_eq(&b->commit, &n->applied.commit)) {
        n->muster = FINAL_WHOLE;
    } else if (n->muster != FINAL_WHOLE || node_beat_ahead(n, b)) {
        n->final_peer = at;
        n->merge_share = 0;
    }
    return true;
}

/* A branch that says it is done is fetched and mixed in, by tokens. */
static void fetch_branch(struct node *n, int row)
{
    const struct member *p = &n->members.peers[row];
    double ours = (double)n->applied.tokens, theirs = (double)p->beat.tokens;
    char name[ID_SHORT_MAX];

    members_guest(&n->members, row, true);
    if (p->has_beat && p->n_links > 0 && p->beat.ready &&
        p->beat.muster == FINAL_PART && p->beat.tokens > 0 &&
        p->beat.round >= n->terms.stop_rounds) {
        if (hash32_eq(&p->beat.commit, &n->applied.commit)) {
            mixed_in(n, &p->id); /* a copy of ours: it came late */
            return;
        }
        n->final_peer = row;
        n->merge_share = theirs / (ours + theirs); /* whatever they say */
        n->merged = n->applied;
        n->merged.tokens += p->beat.tokens;
        id_short(&p->id, name);
        out_log(n->out, LOG_INFO, "mixing in the replica of %s, share %.3f",
                name, n->merge_share);
        mixed_in(n, &p->id);
    } else if (n->now - n->final_ms >= branch_limit_ms(n)) {
        members_guest(&n->members, row, false);
        mixed_in(n, &p->id); /* it is too late */
    }
}

static void final_advance(struct node *n)
{
    int row;

    if (n->final_peer != MEMBERS_NONE) {
        if (n->sync == SYNC_IDLE && !is_worth_it(n)) {
            n->final_peer = MEMBERS_NONE;
            n->merge_share = 0;
        }
        return;
    }
    if (n->final_ms == 0) {
        n->final_ms = n->now;
    }
    if (copy_whole(n)) {
        n->finished = n->muster == FINAL_WHOLE;
        return;
    }
    pair_look_again(&n->pair);
    row = next_branch(n);
    if (row != MEMBERS_NONE) {
        fetch_branch(n, row);
    } else if (n->pair.list.self == 0 ||
               n->now - n->final_ms >= 8 * branch_limit_ms(n)) {
        out_log(n->out, LOG_INFO, "the mean of all replicas is made");
        n->muster = FINAL_WHOLE; /* or the root does not come */
        n->finished = true;
        node_step_taken(n);
    } else {
        n->muster = FINAL_PART;
    }
}

/* ---- a node of such a run --------------------------------------------- */

void node_pair_advance(struct node *n)
{
    struct members_lost lost;

    while (members_next_lost(&n->members, &lost)) {
        node_dht_unreachable(n, lost.peer);
    }
    node_sync_advance(n);
    if (n->stopped || n->draining) {
        if (n->pair.phase != PAIR_IDLE && !n->applying) {
            turn_advance(n); /* what is under way */
        }
        node_view_advance(n); /* goodbye */
        return;
    }
    if (!n->loaded || n->applying) {
        return;
    }
    if (node_run_over(n)) {
        final_advance(n);
    } else {
        n->finished = false;
        turn_advance(n);
    }
}

/* Whether a goodbye now would leave a partner with half of our payload. */
bool node_pair_busy(const struct node *n)
{
    return n->pair.phase >= PAIR_HASHING ||
           (n->pair.phase == PAIR_MOVING && n->pair.packed);
}
