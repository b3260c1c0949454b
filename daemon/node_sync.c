/* node_sync.c - getting the state that a member must hold.
 *
 * The state follows the *target*: the commit that our view is bound by, or the
 * newest one of the best branch while we have no view. A few commits behind:
 * their reduced bytes one by one (SYNC_WALK, SYNC_COMMIT ..), the same bits
 * that the others applied. Further behind, or another branch: parameters and
 * momentum whole (SYNC_STATE ..); what was committed meanwhile follows one by
 * one. Whatever fails is started again from node_sync_advance().
 *
 * What arrives counts only under the hash that it must have: of a commit's
 * bytes that in its record; of records, the hash that the next one names, up to
 * the target, whose record has the votes (or whose view starts from it); of a
 * state, the one that the members of the proven view name (node_proof.c); in
 * pairs, where there are no views, the one that its owner names.
 */
#include "daemon/node_internal.h"

#include <string.h>

#include "p2p/text.h"
#include "proto/base/err.h"
#include "proto/base/log.h"

#define ASK_MS 1000 /* a small question is asked again after this */

void node_sync_reset(struct node *n)
{
    if (n->transfer.active && n->transfer.object.buffer != BUFFER_SHARD) {
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
        const struct node_proven *v =
            peer == MEMBERS_NONE ? NULL : node_proven_of(n, peer);
        struct hash32 state;

        if (v != NULL) {
            return node_tip(n, v, target, &state) &&
                   (!n->finished || node_point_ahead(target, &n->applied));
        }
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
    return p->beat.ready && node_same_stage(n, p) &&
           p->beat.round == n->target.round &&
           hash32_eq(&p->beat.commit, &n->target.commit);
}

/* It may still have what led to the target; if not, it says so. */
static bool is_past_target(const struct node *n, const struct member *p)
{
    return p->beat.ready && node_same_stage(n, p) &&
           p->beat.round >= n->target.round;
}

/* Who has the state that is fetched, or may: with views everybody who was
 * there; in pairs, where every replica is another, who named it, though it may
 * be further by now, and its copies. */
static bool may_have(const struct node *n, const struct member *p)
{
    return n->terms.pairs ? holds_target(n, p) || (is_past_target(n, p) &&
                                                   id_eq(&p->id, &n->owner))
                          : is_past_target(n, p);
}

/* Pairs: a state's name is its hash, told by one that has it. */
static bool named_state(struct node *n)
{
    int peer = node_pick(n, holds_target);

    if (peer == MEMBERS_NONE || transfer_shuns(&n->transfer, peer)) {
        return false;
    }
    node_pair_owner(n, peer);
    n->expect = n->target.commit;
    return true;
}

/* The state hash that the members of the proven view name; where there is none,
 * or we are in the view, most linked peers of the target commit. */
static bool agreed_state(const struct node *n, struct hash32 *hash)
{
    int best = n->ballot.have ? MEMBERS_NONE : node_best_peer(n);
    const struct node_proven *v =
        best == MEMBERS_NONE ? NULL : node_proven_of(n, best);
    struct node_point tip;
    uint32_t most = 0;

    if (v != NULL) {
        return node_tip(n, v, &tip, hash) && node_point_eq(&tip, &n->target);
    }
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

/* Whether signatures show that the target is a commit of the view that we want
 * to be in: the view begins with it, or its record has the votes. */
static bool is_attested(struct node *n)
{
    int best = n->ballot.have ? MEMBERS_NONE : node_best_peer(n);
    const struct node_proven *v =
        best == MEMBERS_NONE ? NULL : node_proven_of(n, best);
    struct get_commit ask = {.round = n->target.round};
    int peer;

    if (v == NULL || n->target.round == 0 ||
        hash32_eq(&v->body.commit, &n->target.commit) ||
        hash32_eq(&n->attested, &n->target.commit)) {
        return true;
    }
    peer = node_pick(n, holds_target);
    if (n->now >= n->attest_ms && peer != MEMBERS_NONE &&
        agreed_state(n, &n->asked_state)) {
        n->asked = n->target;
        n->attest_ms = n->now + ASK_MS;
        (void)members_send(&n->members, n->out, peer, MESSAGE_GET_COMMIT, &ask);
    }
    return false;
}

/* A record of the view that we want to be in. */
static void attest(struct node *n, const struct commit *c)
{
    const struct node_proven *v = node_proven_view(n, &c->plan.body.view);
    struct hash32 hash;

    if (n->ballot.have || v == NULL) {
        return;
    }
    message_commit_hash(&c->plan.body, &c->result, &hash);
    if (!hash32_eq(&hash, &n->attested) &&
        chain_commit_valid(&v->body, &v->view, c, &n->opt.signer)) {
        n->attested = hash;
        history_add(&n->history, c); /* where that state is, it is here */
    }
}

/* ---- records ------------------------------------------------------- */

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
    history_add(&n->history, c);
    round_begin(&n->round, n->known.round + 1, &n->known.commit, NULL,
                n->known.tokens, n->now, n->out);
}

void node_on_commit_record(struct node *n, const struct commit *c)
{
    struct hash32 hash;

    attest(n, c);
    learn_commit(n, c);
    message_commit_hash(&c->plan.body, &c->result, &hash);
    node_lease_heard(n, c, &hash);
    node_follow_record(n, c);
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
    node_pair_owner(n, MEMBERS_NONE);
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

/* The members go on while the record of their newest commit is on its way here:
 * what was asked for and is attested by now will do, as long as they serve it.
 * Else who comes while rounds are short waits for one that nobody has ended
 * before the answer is here. */
static bool was_attested(struct node *n)
{
    if (n->ballot.have || n->asked.round == 0 ||
        !hash32_eq(&n->attested, &n->asked.commit) ||
        n->asked.round > n->target.round ||
        n->target.round - n->asked.round > 1 ||
        (n->loaded && node_point_eq(&n->asked, &n->applied))) {
        return false;
    }
    n->target = n->asked;
    n->expect = n->asked_state;
    return true;
}

static void start_state(struct node *n)
{
    if (n->terms.pairs ? !named_state(n)
                       : (!is_attested(n) || !agreed_state(n, &n->expect)) &&
                             !was_attested(n)) {
        return;
    }
    n->sync = SYNC_STATE;
    n->sync_since_ms = n->now;
    n->target_spent = SPENT_NOT;
    if (!node_fetch(n, &(struct transfer_object){
                           .buffer = BUFFER_STATE,
                           .leaves = BUFFER_STATE_LEAVES,
                           .index = n->target.round,
                           .root = n->expect,
                           .total = n->terms.state_bytes,
                           .first = n->terms.n_params * sizeof(float),
                       })) {
        n->reason = "the state of the run is too large for this build";
        n->sync = SYNC_IDLE;
    }
}

void node_on_loaded(struct node *n, const struct local_event *e)
{
    if (terms_owned(&n->terms)) { /* moments and counts of an earlier life */
        n->first_step = n->inner_step = e->inner_step;
        return;
    }
    n->applying = false;
    n->sync = SYNC_IDLE;
    if (e->rc == LOCO_ENUMERIC && !id_is_zero(&n->owner)) {
        node_pair_spoiled(n);
        return;
    }
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
    if (terms_staged(&n->terms)) {
        node_forget_contribution(n); /* packed again after the next steps */
    }
    n->loaded = true;
    n->delta_failed = false;
    n->applied = n->target;
    node_lease_find(n);
    n->params_hash = e->params_hash;
    n->momentum_hash = e->momentum_hash;
    n->state_hash = node_state_hash(&e->params_hash, &e->momentum_hash);
    if (n->terms.pairs) {
        node_pair_loaded(n);
        return;
    }
    node_note_state(n, NULL);
    node_in_step(n);
}

/* ---- transfers -------------------------------------------------------- */

/* The state is here, and every piece of it was verified. */
static void state_here(struct node *n)
{
    node_follow_fetched(n);
    transfer_stop(&n->transfer, n->out);
    n->rebase = n->loaded && n->rebase && !n->terms.fleeting &&
                n->target.round - n->applied.round <= 2;
    if (n->loaded && !n->rebase) {
        node_forget_contribution(n);
    }
    load(n, false, false);
}

static void reduced_advance(struct node *n)
{
    struct transfer *t = &n->transfer;
    struct action *a;

    if (!t->finished) {
        if (!node_fetch_sources(n, is_past_target) ||
            transfer_starves(t, n->now)) {
            n->delta_failed = true;
            transfer_stop(t, n->out);
            n->sync = SYNC_IDLE;
        }
        return;
    }
    a = out_add(n->out, ACTION_HASH);
    if (a != NULL) {
        a->buffer = BUFFER_REDUCED;
        a->index = t->object.index;
        n->sync = SYNC_REDUCED_HASH;
    }
}

static void state_transfer_advance(struct node *n)
{
    struct transfer *t = &n->transfer;

    if (t->finished) {
        state_here(n);
    } else if (node_fetch_sources(n, may_have) &&
               !transfer_starves(t, n->now)) {
        n->sync_since_ms = n->now;
    } else if (n->now - n->sync_since_ms >
                   (n->terms.pairs ? ASK_MS : 2ULL * n->t.fetch_ms) ||
               node_pick(n, may_have) == MEMBERS_NONE) {
        transfer_stop(t, n->out);
        n->sync = SYNC_IDLE; /* nobody has it any more: a newer one */
    }
}

void node_on_hashed(struct node *n, const struct local_event *e)
{
    if (e->index != n->target.round || n->sync != SYNC_REDUCED_HASH ||
        e->buffer != BUFFER_REDUCED) {
        return;
    }
    if (e->rc != 0 || !hash32_eq(&e->hash, &n->expect)) {
        if (e->rc == 0) {
            node_name_liar(n, transfer_spoiled(&n->transfer));
        }
        transfer_stop(&n->transfer, n->out);
        n->delta_failed = true;
        n->sync = SYNC_IDLE;
        return;
    }
    node_follow_fetched(n);
    transfer_stop(&n->transfer, n->out);
    node_apply(n, BUFFER_REDUCED, n->target_spent);
}

static void state_advance(struct node *n)
{
    struct node_point target;
    bool heard = n->members.n_bootstrap == 0;

    for (uint32_t i = 0; i < n->members.n_peers && !heard; i++) {
        heard = n->members.peers[i].has_beat;
    }
    if (!find_target(n, &target)) {
        if (!n->loaded && heard && !node_sees_view(n) &&
            node_stage_may_begin(n)) {
            load_own(n);
        }
        return;
    }
    if (n->loaded && node_point_eq(&target, &n->applied)) {
        return;
    }
    n->target = target;
    if (!n->terms.pairs) {
        node_follow_look(n, &target);
    }
    if (n->ballot.have) {
        n->rebase = !n->round.exposed;
    }
    if (!n->loaded || n->delta_failed || n->terms.pairs ||
        target.round <= n->applied.round ||
        target.round - n->applied.round > node_follow_max(n)) {
        if (!node_follow_pauses(n)) {
            start_state(n);
        }
    } else {
        node_follow_next(n);
    }
}

void node_sync_advance(struct node *n)
{
    struct node_point tip;

    if (!n->data_ready) {
        node_data_advance(n);
        return;
    }
    if (!node_is_staged(n)) {
        return;
    }
    if (terms_owned(&n->terms)) {
        n->loaded = true; /* who is in a view reads it from the owners */
        return;
    }
    if (n->sync != SYNC_IDLE && !n->terms.pairs && find_target(n, &tip)) {
        node_follow_look(n, &tip);
    }
    if (n->sync == SYNC_COMMIT || n->sync == SYNC_WALK) {
        node_follow_wait(n);
    } else if (n->sync == SYNC_REDUCED) {
        reduced_advance(n);
    } else if (n->sync == SYNC_STATE) {
        state_transfer_advance(n);
    }
    if (n->sync == SYNC_IDLE && !n->applying) {
        state_advance(n);
    }
    node_lease_advance(n);
    if (n->sync == SYNC_IDLE && text_comes_later(&n->terms)) {
        node_data_advance(n); /* what is missing of the shards, beside it */
    }
}
