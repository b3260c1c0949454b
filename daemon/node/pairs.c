/* pairs.c - the regime of pairs: replicas average two by two
 * (p2p/pair/pair.h).
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
 * ready in time is left out, and copies the whole as well. `end_phase` in the
 * heartbeat says how far a peer is. Who dies costs its replica, and if it held
 * others' these may count twice or not at all: the result is a mean of replicas
 * in any case, and the same bits for all.
 */
#include "daemon/node/internal.h"

#include <string.h>

#include "proto/base/log.h"

#define PAIR_BEHIND  2     /* turns; older states are not worth keeping */
#define FINAL_MIN_MS 10000 /* the least that a branch of the tree is given */

void node_pair_open(struct node *n)
{
    n->pairs.final_peer = MEMBERS_NONE;
}

/* ---- the state -------------------------------------------------------- */

static const struct heartbeat *best_beat(const struct node *n)
{
    int peer = node_best_peer(n);

    return peer == MEMBERS_NONE ? NULL : &n->members.peers[peer].beat;
}

/* Whether the state that we want is still there, and not ours already. */
static bool is_worth_it(const struct node *n)
{
    const struct member *p = &n->members.peers[n->pairs.final_peer];
    enum end_phase phase = n->pairs.merge_share > 0 ? END_PART : END_WHOLE;

    return p->used && p->has_beat && p->n_links > 0 && p->beat.ready &&
           !transfer_shuns(&n->transfer, n->pairs.final_peer) &&
           p->beat.end_phase == phase &&
           p->beat.round >= n->terms.stop_rounds &&
           !hash32_eq(&p->beat.commit, &n->held.applied.commit);
}

static bool pairs_target(const struct node *n, struct node_point *target)
{
    const struct heartbeat *best;

    if (n->held.loaded) {
        if (n->pairs.final_peer == MEMBERS_NONE || !is_worth_it(n)) {
            return false;
        }
        *target = node_point_of(&n->members.peers[n->pairs.final_peer].beat);
        return true;
    }
    best = best_beat(n);
    if (best == NULL || (n->terms.holds_state && best->end_phase != END_WHOLE &&
                         n->terms.held_round + PAIR_BEHIND >= best->round)) {
        return false; /* our own */
    }
    *target = node_point_of(best);
    return true;
}

/* What is asked for is the hash of its newest heartbeat, so that these must
 * come even where it is no neighbour. */
void node_pair_owner(struct node *n, int peer)
{
    int before = members_find(&n->members, &n->pairs.owner);

    if (before == peer) {
        return;
    }
    if (before != MEMBERS_NONE) {
        members_guest(&n->members, before, false);
    }
    memset(&n->pairs.owner, 0, sizeof n->pairs.owner);
    if (peer != MEMBERS_NONE) {
        members_guest(&n->members, peer, true);
        n->pairs.owner = n->members.peers[peer].id;
    }
}

static void pairs_loaded(struct node *n)
{
    const struct node_point *at;
    bool whole =
        n->pairs.final_peer != MEMBERS_NONE && n->pairs.merge_share <= 0;

    node_pair_owner(n, MEMBERS_NONE);
    at = n->pairs.merge_share > 0 ? &n->pairs.merged : &n->held.applied;
    node_held_name(&n->held, at->round, at->tokens);
    n->pairs.merge_share = 0;
    n->pairs.final_peer = MEMBERS_NONE;
    node_note_state(n, NULL);
    if (whole) {
        out_log(n->out, LOG_INFO, "the mean of all replicas is here");
        n->pairs.end_phase = END_WHOLE;
        node_step_taken(n);
    }
}

void node_pair_spoiled(struct node *n)
{
    int owner = members_find(&n->members, &n->pairs.owner);
    char name[ID_SHORT_MAX];

    n->malformed++;
    if (owner != MEMBERS_NONE) {
        node_fetches_shunned(n);
        transfer_shun(&n->transfer, owner);
        id_short(&n->pairs.owner, name);
        out_log(n->out, LOG_WARN,
                "the replica of %s is not finite; nothing more is fetched "
                "from it",
                name);
    }
    node_pair_owner(n, MEMBERS_NONE);
    n->pairs.merge_share = 0;
    n->pairs.final_peer = MEMBERS_NONE;
}

/* ---- turns ------------------------------------------------------------ */

static void begin_turn(struct node *n)
{
    if (n->held.applied.round == 0 &&
        pair_n_members(&n->pair) < n->terms.min_peers) {
        return;
    }
    if (!n->eval.has_before && n->held.applied.round == 0) {
        node_evaluate(n);
    }
    if (node_training_begin(n, n->held.applied.round + 1, n->terms.period) ==
        NULL) {
        return;
    }
    n->pairs.turn_ms = n->now;
    pair_begin(&n->pair, n->held.applied.round + 1, n->terms.stop_rounds,
               n->now, n->out);
}

static void take_step(struct node *n)
{
    struct job *job = out_job(n->out, JOB_PAIR);

    if (job != NULL) {
        job->pair.turn = n->pair.turn;
        job->pair.alone = !pair_with_partner(&n->pair) || n->pairs.step_failed;
        job->pair.first = id_cmp(&n->opt.self, &n->pair.peer) < 0;
        node_held_begin(&n->held, NULL);
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

static void pairs_trained(struct node *n, const struct local_event *e)
{
    node_training_packed(n);
    n->pairs.turn_tokens = e->trained.tokens;
    pair_pack(&n->pair, n->now, n->out);
}

/* With what the partner sent the step is not finite: take it alone. If that is
 * not finite either, this replica is lost: copy another. */
static void step_failed(struct node *n)
{
    if (pair_with_partner(&n->pair) && !n->pairs.step_failed) {
        n->pairs.step_failed = true;
        n->malformed++;
        return;
    }
    n->pairs.step_failed = false;
    out_log(n->out, LOG_ERROR,
            "turn %llu: training has diverged here; taking the replica of "
            "another peer, or the last checkpoint",
            (unsigned long long)n->pair.turn);
    pair_finish(&n->pair, n->out);
    node_training_drop(n, n->pairs.turn_tokens);
    node_training_forget(n);
    node_held_lose(&n->held);
}

static void pairs_applied(struct node *n, const struct local_event *e)
{
    const struct pair *p = &n->pair;
    uint64_t tokens = n->held.applied.tokens + n->pairs.turn_tokens;
    char name[ID_SHORT_MAX] = "";
    bool with = pair_with_partner(p) && !n->pairs.step_failed;

    if (e->rc != 0) {
        step_failed(n);
        return;
    }
    n->pairs.step_failed = false;
    node_held_take(&n->held, &e->applied);
    node_held_name(&n->held, p->turn, tokens);
    node_note_state(n, NULL);
    node_training_first(n, n->training.inner_step);
    node_training_forget(n);
    node_rounds_count(n, with, n->now - n->pairs.turn_ms);
    n->pairs.n_byes += !with;
    if (with) {
        id_short(&p->peer, name);
    }
    out_log(n->out, LOG_INFO, "turn %llu %s%s%s", (unsigned long long)p->turn,
            pair_end_text(p->end), with ? ": " : "", name);
    note_partner(n);
    pair_finish(&n->pair, n->out);
    node_step_taken(n);
}

static bool pairs_evaluates(const struct node *n, const struct node_point *p)
{
    uint64_t every = n->terms.eval_every;
    uint32_t n_members = n->pair.list.n > 0 ? n->pair.list.n : 1;

    return every != 0 && (p->round % every == 0 || node_run_over(n)) &&
           (p->round / every) % n_members == n->pair.list.self;
}

static void turn_advance(struct node *n)
{
    if (n->pair.phase == PAIR_IDLE) {
        if (!n->training.paused && !n->training.active) {
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
    for (uint32_t i = 0; i < n->pairs.n_mixed; i++) {
        if (id_eq(&n->pairs.mixed[i], id)) {
            return true;
        }
    }
    return false;
}

static void mixed_in(struct node *n, const struct peer_id *id)
{
    if (n->pairs.n_mixed < NODE_MIXED_MAX) {
        n->pairs.mixed[n->pairs.n_mixed++] = *id;
    }
    n->pairs.final_ms = n->now;
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
    return n->terms.grace_ms + 2 * n->rounds.round_ms +
           node_scaled(n, FINAL_MIN_MS);
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
            p->beat.end_phase != END_WHOLE || !p->beat.ready ||
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
        return n->pairs.end_phase == END_WHOLE;
    }
    if (hash32_eq(&b->commit, &n->held.applied.commit)) {
        n->pairs.end_phase = END_WHOLE;
    } else if (n->pairs.end_phase != END_WHOLE || node_beat_ahead(n, b)) {
        n->pairs.final_peer = at;
        n->pairs.merge_share = 0;
    }
    return true;
}

/* A branch that says it is done is fetched and mixed in, by tokens. */
static void fetch_branch(struct node *n, int row)
{
    const struct member *p = &n->members.peers[row];
    double ours = (double)n->held.applied.tokens,
           theirs = (double)p->beat.tokens;
    char name[ID_SHORT_MAX];

    members_guest(&n->members, row, true);
    if (p->has_beat && p->n_links > 0 && p->beat.ready &&
        p->beat.end_phase == END_PART && p->beat.tokens > 0 &&
        p->beat.round >= n->terms.stop_rounds) {
        if (hash32_eq(&p->beat.commit, &n->held.applied.commit)) {
            mixed_in(n, &p->id); /* a copy of ours: it came late */
            return;
        }
        n->pairs.final_peer = row;
        n->pairs.merge_share = theirs / (ours + theirs); /* whatever they say */
        n->pairs.merged = n->held.applied;
        n->pairs.merged.tokens += p->beat.tokens;
        id_short(&p->id, name);
        out_log(n->out, LOG_INFO, "mixing in the replica of %s, share %.3f",
                name, n->pairs.merge_share);
        mixed_in(n, &p->id);
    } else if (n->now - n->pairs.final_ms >= branch_limit_ms(n)) {
        members_guest(&n->members, row, false);
        mixed_in(n, &p->id); /* it is too late */
    }
}

static void final_advance(struct node *n)
{
    int row;

    if (n->pairs.final_peer != MEMBERS_NONE) {
        if (n->sync.phase == SYNC_IDLE && !is_worth_it(n)) {
            n->pairs.final_peer = MEMBERS_NONE;
            n->pairs.merge_share = 0;
        }
        return;
    }
    if (n->pairs.final_ms == 0) {
        n->pairs.final_ms = n->now;
    }
    if (copy_whole(n)) {
        node_training_finish(n, n->pairs.end_phase == END_WHOLE);
        return;
    }
    pair_look_again(&n->pair);
    row = next_branch(n);
    if (row != MEMBERS_NONE) {
        fetch_branch(n, row);
    } else if (n->pair.list.self == 0 ||
               n->now - n->pairs.final_ms >= 8 * branch_limit_ms(n)) {
        out_log(n->out, LOG_INFO, "the mean of all replicas is made");
        n->pairs.end_phase = END_WHOLE; /* or the root does not come */
        n->finished = true;
        node_step_taken(n);
    } else {
        n->pairs.end_phase = END_PART;
    }
}

/* ---- the regime --------------------------------------------------------- */

static void pairs_advance(struct node *n)
{
    struct members_lost lost;

    while (members_next_lost(&n->members, &lost)) {
        node_dht_unreachable(n, lost.peer);
    }
    node_sync_advance(n);
    if (n->stopped || n->draining) {
        if (n->pair.phase != PAIR_IDLE && !n->held.applying) {
            turn_advance(n); /* what is under way */
        }
        node_view_advance(n); /* goodbye */
        return;
    }
    if (!n->held.loaded || n->held.applying) {
        return;
    }
    if (node_run_over(n)) {
        final_advance(n);
    } else {
        node_training_finish(n, false);
        turn_advance(n);
    }
}

/* Whether a goodbye now would leave a partner with half of our payload. */
static bool pairs_busy(const struct node *n)
{
    return n->pair.phase >= PAIR_HASHING ||
           (n->pair.phase == PAIR_MOVING && n->pair.packed);
}

/* A state's name is its hash, told by one that has it. */
static bool pairs_name_state(struct node *n)
{
    int peer = node_pick(n, node_sync_holds);

    if (peer == MEMBERS_NONE || transfer_shuns(&n->transfer, peer)) {
        return false;
    }
    node_pair_owner(n, peer);
    node_sync_expect(n, &n->held.target.commit);
    return true;
}

/* Every replica is another: who named it, though it may be further by now, and
 * its copies. */
static bool pairs_may_have(const struct node *n, const struct member *p)
{
    return node_sync_holds(n, p) ||
           (node_sync_is_past(n, p) && id_eq(&p->id, &n->pairs.owner));
}

static uint64_t pairs_deadline(const struct node *n)
{
    return pair_deadline(&n->pair);
}

static bool pairs_takes_part(const struct node *n)
{
    return n->held.loaded && !n->draining;
}

static uint32_t pairs_n_members(const struct node *n)
{
    return n->pair.list.n;
}

static enum node_state pairs_state(const struct node *n)
{
    if (n->pair.phase == PAIR_IDLE && !n->held.applying && !node_run_over(n)) {
        return NODE_WAITING;
    }
    return n->training.active ? NODE_TRAINING : NODE_AVERAGING;
}

const struct regime regime_pairs = {
    .has_views = false,
    .advance = pairs_advance,
    .deadline = pairs_deadline,
    .trained = pairs_trained,
    .applied = pairs_applied,
    .loaded = pairs_loaded,
    .target = pairs_target,
    .name_state = pairs_name_state,
    .may_have = pairs_may_have,
    .evaluates = pairs_evaluates,
    .busy = pairs_busy,
    .takes_part = pairs_takes_part,
    .n_members = pairs_n_members,
    .state = pairs_state,
};
