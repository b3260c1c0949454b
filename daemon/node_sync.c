/* node_sync.c - getting the state that a member must hold.
 *
 * The state follows the *target*: the commit that our view is bound by, or the
 * newest one of the best branch while we have no view. One commit behind: its
 * reduced bytes (SYNC_COMMIT ..), the same bits the others applied. Further
 * behind, or another branch: parameters and momentum whole (SYNC_STATE ..).
 * Whatever fails is started again from node_sync_advance().
 *
 * What arrives is adopted only if its hash is the one that the peers of the
 * target commit agree on.
 */
#include "daemon/node_internal.h"

#include <string.h>

#include "proto/base/err.h"
#include "proto/base/log.h"

#define SYNC_SOURCES_MAX 6    /* sources of one transfer, then start over */
#define ASK_MS           1000 /* a small question is asked again after this */

void node_sync_reset(struct node *n)
{
    if (n->transfer.active && n->transfer.buffer != BUFFER_SHARD) {
        transfer_stop(&n->transfer, n->out);
    }
    n->sync = n->applying ? SYNC_LOAD : SYNC_IDLE;
    n->delta_failed = false;
}

/* ---- the target ------------------------------------------------------- */

/* What we should hold: false where there is nothing to go by. */
static bool find_target(const struct node *n, struct node_point *target)
{
    const struct heartbeat *best = NULL;

    if (n->terms.pairs) {
        return node_pair_target(n, target);
    }
    if (!n->ballot.have) {
        int peer = node_best_peer(n);

        best = peer == MEMBERS_NONE ? NULL : &n->members.peers[peer].beat;
        if (best != NULL && n->finished && !node_beat_ahead(n, best)) {
            best = NULL; /* our end of the run is the better one */
        }
    } else {
        *target = n->known;
        for (uint32_t i = 0; i < n->ballot.cert.body.n_members; i++) {
            int row = n->ballot.rows[i];
            const struct heartbeat *b;

            if (row == MEMBERS_NONE || !n->members.peers[row].has_beat) {
                continue;
            }
            b = &n->members.peers[row].beat;
            if (b->has_view && hash32_eq(&b->view, &n->ballot.hash) &&
                b->round > target->round + 1 &&
                (best == NULL || b->round > best->round)) {
                best = b;
            }
        }
    }
    if (best != NULL) {
        *target = (struct node_point){.round = best->round,
                                      .tokens = best->tokens,
                                      .commit = best->commit};
    }
    return n->ballot.have || best != NULL;
}

static bool holds_target(const struct node *n, const struct member *p)
{
    return p->beat.ready && p->beat.round == n->target.round &&
           hash32_eq(&p->beat.commit, &n->target.commit);
}

static bool is_past_target(const struct node *n, const struct member *p)
{
    return holds_target(n, p) ||
           (p->beat.ready && p->beat.round == n->target.round + 1);
}

/* The state hash that most linked peers of the target commit name. */
static bool agreed_state(const struct node *n, struct hash32 *hash)
{
    uint32_t most = 0;

    for (uint32_t i = 0; i < n->members.n_peers; i++) {
        const struct member *p = &n->members.peers[i];
        uint32_t votes = 0;

        if (!p->used || !p->has_beat || p->n_links == 0 ||
            !holds_target(n, p)) {
            continue;
        }
        for (uint32_t k = 0; k < n->members.n_peers; k++) {
            const struct member *q = &n->members.peers[k];

            votes += q->used && q->has_beat && q->n_links > 0 &&
                     holds_target(n, q) &&
                     hash32_eq(&q->beat.state_hash, &p->beat.state_hash);
        }
        if (votes > most) {
            most = votes;
            *hash = p->beat.state_hash;
        }
    }
    return most > 0;
}

/* ---- one commit ------------------------------------------------------- */

/* How much of our open contribution is in that commit: parts of it where an
 * attempt that we were in failed, and the next one inherited what was done. */
static enum node_spent spent_in(const struct node *n, const struct commit *c)
{
    const struct ready_body *mine = &n->round.mine;
    uint64_t all = terms_elements(&n->terms, c->plan.body.round);
    bool in_members = false;
    uint64_t share;

    for (uint32_t k = 0; k < c->n_votes && k < c->plan.body.n_members; k++) {
        const struct plan_member *m = &c->plan.body.members[k];

        if (memcmp(c->votes[k].public_key, n->opt.public_key, 32) == 0) {
            in_members = m->first_step == mine->first_step &&
                         m->last_step == mine->last_step;
        }
    }
    share = inherit_share(&c->plan.body, in_members, &n->opt.self,
                          mine->first_step, mine->last_step, all);
    if (!n->round.contributed || share == 0 || node_quorum_idle(n)) {
        /* What it was made from is gone: of no use to any other round. */
        return n->terms.fleeting ? SPENT_PARTLY : SPENT_NOT;
    }
    return share == all ? SPENT_WHOLLY : SPENT_PARTLY;
}

/* A commit of our own view that we have not heard of. */
static void learn_commit(struct node *n, const struct commit *c)
{
    const struct plan_body *p = &c->plan.body;
    struct hash32 hash;

    if (!n->ballot.have || p->round != n->known.round + 1 ||
        !hash32_eq(&p->base, &n->known.commit) ||
        !round_commit_valid(&n->round, c)) {
        return;
    }
    message_commit_hash(p, &c->result, &hash);
    if (round_decided(&n->round, &hash)) {
        node_on_committed(n); /* we hold its bytes, only votes were lost */
        return;
    }
    n->known.round = p->round;
    n->known.tokens = p->tokens_before + plan_tokens(p);
    n->known.commit = hash;
    n->round.last = *c;
    n->round.last_hash = hash;
    n->round.has_last = true;
    round_begin(&n->round, n->known.round + 1, &n->known.commit, NULL,
                n->known.tokens, n->now, n->out);
}

void node_on_commit_record(struct node *n, const struct commit *c)
{
    struct hash32 hash;

    learn_commit(n, c);
    message_commit_hash(&c->plan.body, &c->result, &hash);
    if (n->sync != SYNC_COMMIT || c->plan.body.round != n->target.round ||
        !hash32_eq(&hash, &n->target.commit)) {
        return;
    }
    if (!hash32_eq(&c->plan.body.base, &n->applied.commit)) {
        n->delta_failed = true; /* another branch: take the whole state */
        n->sync = SYNC_IDLE;
        return;
    }
    n->delta = *c;
    n->expect = c->result;
    n->target_spent = spent_in(n, c);
    n->sync = SYNC_REDUCED;
    n->sync_sources = 0;
    transfer_start(&n->transfer, BUFFER_REDUCED, n->target.round,
                   terms_elements(&n->terms, n->target.round),
                   n->terms.segment_elements, n->out);
}

static void start_delta(struct node *n)
{
    struct get_commit ask = {.round = n->target.round};
    int peer = node_pick(n, is_past_target, MEMBERS_NONE);

    if (n->round.has_last && n->round.last.plan.body.round == n->target.round &&
        hash32_eq(&n->round.last_hash, &n->target.commit)) {
        n->sync = SYNC_COMMIT;
        n->sync_since_ms = n->now;
        node_on_commit_record(n, &n->round.last);
        return;
    }
    if (peer != MEMBERS_NONE) {
        n->sync = SYNC_COMMIT;
        n->sync_since_ms = n->now;
        (void)members_send(&n->members, n->out, peer, MESSAGE_GET_COMMIT, &ask);
    }
}

/* ---- a whole state ---------------------------------------------------- */

static void load(struct node *n, bool from_seed, bool from_disk)
{
    struct action *a = out_add(n->out, ACTION_LOAD);

    node_quorum_withdraw(n);
    if (a != NULL) {
        a->round = n->target.round;
        a->from_seed = from_seed;
        a->from_disk = from_disk;
        a->rebase = n->rebase && !from_seed && !from_disk;
        a->share = n->loaded ? n->merge_share : 0;
        n->load_rebase = a->rebase;
        n->applying = true;
        n->sync = SYNC_LOAD;
    }
}

/* Nobody is ahead of us: our own beginning. */
static void load_own(struct node *n)
{
    memset(&n->target, 0, sizeof n->target);
    n->rebase = false;
    if (n->terms.holds_state) {
        n->target.round = n->terms.held_round;
        n->target.tokens = n->terms.held_tokens;
        n->target.commit = n->terms.held_commit;
        n->inner_step = n->first_step = n->terms.held_inner_step;
        load(n, false, true);
    } else {
        load(n, true, false);
    }
}

static void start_state(struct node *n)
{
    if (!agreed_state(n, &n->expect)) {
        return;
    }
    n->sync = SYNC_STATE;
    n->sync_sources = 0;
    n->target_spent = SPENT_NOT;
    transfer_start(&n->transfer, BUFFER_STATE, n->target.round,
                   n->terms.state_bytes, TRANSFER_PIECE, n->out);
}

void node_on_loaded(struct node *n, const struct local_event *e)
{
    n->applying = false;
    n->sync = SYNC_IDLE;
    if (e->rc != 0) {
        n->reason = "cannot load the state";
        return;
    }
    if (!n->load_rebase) {
        /* A TRAINED that was under way when we asked for the state is of the
         * displacement that the state has just replaced. Work that reaches no
         * commit is counted, never dropped in silence. */
        node_forget_contribution(n);
        n->tokens_dropped += e->tokens;
        n->first_step = n->inner_step = e->inner_step;
    }
    n->loaded = true;
    n->delta_failed = false;
    n->applied = n->target;
    n->params_hash = e->params_hash;
    n->momentum_hash = e->momentum_hash;
    n->state_hash = node_state_hash(&e->params_hash, &e->momentum_hash);
    if (n->terms.pairs) {
        node_pair_loaded(n);
        return;
    }
    node_in_step(n);
}

/* ---- transfers -------------------------------------------------------- */

static void transfer_advance(struct node *n)
{
    struct transfer *t = &n->transfer;

    if (t->finished) {
        struct action *a = out_add(n->out, ACTION_HASH);

        if (a != NULL) {
            a->buffer = t->buffer;
            a->index = t->index;
            n->sync =
                n->sync == SYNC_STATE ? SYNC_STATE_HASH : SYNC_REDUCED_HASH;
        }
        return;
    }
    if (t->want_source) {
        int peer =
            node_pick(n, n->sync == SYNC_STATE ? holds_target : is_past_target,
                      MEMBERS_NONE);

        if (peer == MEMBERS_NONE || n->sync_sources++ >= SYNC_SOURCES_MAX) {
            n->delta_failed = n->sync == SYNC_REDUCED;
            transfer_stop(t, n->out);
            n->sync = SYNC_IDLE; /* the target has moved on */
        } else {
            transfer_source(t, peer, n->now, n->out);
        }
    }
}

void node_on_hashed(struct node *n, const struct local_event *e)
{
    struct hash32 state;

    if (e->buffer == BUFFER_SHARD) {
        node_on_shard_hashed(n, e);
        return;
    }
    if (e->index != n->target.round) {
        return;
    }
    if (n->sync == SYNC_REDUCED_HASH && e->buffer == BUFFER_REDUCED) {
        transfer_stop(&n->transfer, n->out);
        if (e->rc != 0 || !hash32_eq(&e->hash, &n->expect)) {
            n->malformed++;
            n->delta_failed = true;
            n->sync = SYNC_IDLE;
            return;
        }
        node_apply(n, BUFFER_REDUCED, n->target_spent);
    } else if (n->sync == SYNC_STATE_HASH && e->buffer == BUFFER_STATE) {
        transfer_stop(&n->transfer, n->out);
        state = node_state_hash(&e->params_hash, &e->momentum_hash);
        if (e->rc != 0 || !hash32_eq(&state, &n->expect)) {
            out_log(n->out, LOG_WARN,
                    "the state of round %llu does not have the hash that the "
                    "run's peers agree on; fetching it again",
                    (unsigned long long)n->target.round);
            n->malformed++;
            n->sync = SYNC_IDLE;
            return;
        }
        n->rebase = n->loaded && n->rebase && !n->terms.fleeting &&
                    n->target.round - n->applied.round <= 2;
        if (n->loaded && !n->rebase) {
            node_forget_contribution(n);
        }
        load(n, false, false);
    }
}

static void state_advance(struct node *n)
{
    struct node_point target;
    bool heard = n->members.n_bootstrap == 0;

    for (uint32_t i = 0; i < n->members.n_peers && !heard; i++) {
        heard = n->members.peers[i].has_beat;
    }
    if (!find_target(n, &target)) {
        if (!n->loaded && heard) {
            load_own(n);
        }
        return;
    }
    if (n->loaded && node_point_eq(&target, &n->applied)) {
        return;
    }
    n->target = target;
    if (n->ballot.have) {
        n->rebase = !n->round.exposed;
    }
    if (n->loaded && target.round == n->applied.round + 1 && !n->delta_failed &&
        !n->terms.pairs) {
        start_delta(n);
    } else {
        start_state(n);
    }
}

void node_sync_advance(struct node *n)
{
    if (!n->data_ready) {
        node_data_advance(n);
        return;
    }
    if (n->sync == SYNC_COMMIT && n->now - n->sync_since_ms > ASK_MS) {
        n->sync = SYNC_IDLE;
        n->delta_failed = true;
    }
    if (n->sync == SYNC_REDUCED || n->sync == SYNC_STATE) {
        transfer_advance(n);
    }
    if (n->sync == SYNC_IDLE && !n->applying) {
        state_advance(n);
    }
}
