/* sync.c - getting the state that a member must hold.
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
 * state, the one that the members of the proven view name (node/proof.c); in
 * pairs, where there are no views, the one that its owner names.
 */
#include "daemon/node/internal.h"

#include <string.h>

#include "p2p/round/text.h"
#include "proto/base/err.h"
#include "proto/base/log.h"

#define ASK_MS 1000 /* a small question is asked again after this */

void node_sync_reset(struct node *n)
{
    if (n->transfer.active && n->transfer.object.buffer != BUFFER_SHARD) {
        transfer_stop(&n->transfer, n->out);
    }
    n->sync.phase = n->held.applying ? SYNC_LOAD : SYNC_IDLE;
    n->sync.delta_failed = false;
}

void node_sync_busy(struct node *n, bool rebase)
{
    n->sync.rebase = rebase;
    n->sync.phase = SYNC_LOAD;
}

void node_sync_loads(struct node *n)
{
    n->sync.load_rebase = false;
    node_sync_busy(n, false);
}

void node_sync_expect(struct node *n, const struct hash32 *hash)
{
    n->sync.expect = *hash;
}

void node_sync_failed(struct node *n)
{
    n->sync.delta_failed = true;
}

void node_sync_taken(struct node *n)
{
    n->sync.delta_failed = false;
}

void node_sync_keep(struct node *n, bool rebase)
{
    n->sync.rebase = rebase;
}

void node_sync_forget(struct node *n)
{
    n->sync.phase = SYNC_IDLE;
    n->sync.delta_failed = n->sync.rebase = false;
}

/* ---- the target ------------------------------------------------------- */

bool node_sync_holds(const struct node *n, const struct member *p)
{
    return p->beat.ready && node_same_stage(n, p) &&
           p->beat.round == n->held.target.round &&
           hash32_eq(&p->beat.commit, &n->held.target.commit);
}

/* It may still have what led to the target; if not, it says so. */
bool node_sync_is_past(const struct node *n, const struct member *p)
{
    return p->beat.ready && node_same_stage(n, p) &&
           p->beat.round >= n->held.target.round;
}

/* It is linked and holds the target; `ours`: a full member of our view, too. */
static bool says_state(const struct node *n, uint32_t i, bool ours)
{
    const struct member *p = &n->members.peers[i];

    return p->used && p->has_beat && p->n_links > 0 && node_sync_holds(n, p) &&
           (!ours || view_counts(&n->ballot.cert.body, &p->id));
}

/* The state hash that most of these name; false: there are none. */
static bool most_say(const struct node *n, bool ours, struct hash32 *hash)
{
    uint32_t most = 0;

    for (uint32_t i = 0; i < n->members.n_peers; i++) {
        const struct hash32 *state = &n->members.peers[i].beat.state_hash;
        uint32_t votes = 0;

        for (uint32_t k = 0; says_state(n, i, ours) && k < n->members.n_peers;
             k++) {
            votes += says_state(n, k, ours) &&
                     hash32_eq(&n->members.peers[k].beat.state_hash, state);
        }
        if (votes > most) {
            most = votes;
            *hash = *state;
        }
    }
    return most > 0;
}

/* The state hash that the members of the proven view name; where we are in a
 * view, most of its full members that hold the target. Where there is neither
 * most linked peers that do: anybody can say so. */
static bool agreed_state(const struct node *n, struct hash32 *hash)
{
    int best = n->ballot.have ? MEMBERS_NONE : node_best_peer(n);
    const struct node_proven *v =
        best == MEMBERS_NONE ? NULL : node_proven_of(n, best);
    struct node_point tip;

    if (v != NULL) {
        return node_tip(n, v, &tip, hash) &&
               node_point_eq(&tip, &n->held.target);
    }
    return (n->ballot.have && most_say(n, true, hash)) ||
           most_say(n, false, hash);
}

/* Whether signatures show that the target is a commit of the view that we want
 * to be in: the view begins with it, or its record has the votes. */
static bool is_attested(struct node *n)
{
    int best = n->ballot.have ? MEMBERS_NONE : node_best_peer(n);
    const struct node_proven *v =
        best == MEMBERS_NONE ? NULL : node_proven_of(n, best);
    struct get_commit ask = {.round = n->held.target.round};
    int peer;

    if (v == NULL || n->held.target.round == 0 ||
        hash32_eq(&v->body.commit, &n->held.target.commit) ||
        hash32_eq(&n->proof.attested, &n->held.target.commit)) {
        return true;
    }
    peer = node_pick(n, node_sync_holds);
    if (n->now >= n->sync.attest_ms && peer != MEMBERS_NONE &&
        agreed_state(n, &n->sync.asked_state)) {
        n->sync.asked = n->held.target;
        n->sync.attest_ms = n->now + ASK_MS;
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
    if (!hash32_eq(&hash, &n->proof.attested) &&
        chain_commit_valid(&v->body, &v->view, 0, c, &n->opt.signer)) {
        node_proof_attest(n, &hash);
        history_add(&n->history, c); /* where that state is, it is here */
    }
}

/* ---- records ------------------------------------------------------- */

/* Whether that member says that it holds that commit, or a later one, in our
 * view. */
static bool
says_it_holds(const struct node *n, uint32_t member, const struct commit *c)
{
    int row = n->ballot.rows[member];
    const struct heartbeat *beat;
    struct hash32 hash;

    if (row == MEMBERS_NONE || !n->members.peers[row].has_beat) {
        return false;
    }
    beat = &n->members.peers[row].beat;
    message_commit_hash(&c->plan.body, &c->result, &hash);
    return beat->has_view && hash32_eq(&beat->view, &n->ballot.hash) &&
           (beat->round > c->plan.body.round ||
            (beat->round == c->plan.body.round &&
             hash32_eq(&beat->commit, &hash)));
}

/* Whether we gave a closing statement about that round, which says that we do
 * not know its commit. Who then learns of it by a member that kept its vote
 * from all others would be of another mind than the view that follows from
 * these statements. Where too few are left that do not hold it, and can answer,
 * no such view is to be expected. */
static bool is_closed(const struct node *n, const struct commit *c)
{
    const struct view_body *v = &n->ballot.cert.body;
    uint64_t without = ~n->ballot.lost;

    if (!n->round.frozen || c->plan.body.round != n->round.round ||
        !hash32_eq(&c->plan.body.view, &n->ballot.hash)) {
        return false;
    }
    for (uint32_t i = 0; i < v->n_members; i++) {
        if (says_it_holds(n, i, c)) {
            without &= ~(1ULL << i);
        }
    }
    return view_quorum(v, without, n->ballot.departed.mask);
}

/* A commit of our own view that we have not heard of. */
static void learn_commit(struct node *n, const struct commit *c)
{
    const struct plan_body *p = &c->plan.body;
    struct hash32 hash;

    if (!n->ballot.have || is_closed(n, c) ||
        p->round != n->held.known.round + 1 ||
        !hash32_eq(&p->base, &n->held.known.commit) ||
        !round_commit_valid(&n->round, c)) {
        return;
    }
    message_commit_hash(p, &c->result, &hash);
    if (round_decided(&n->round, &hash)) {
        /* We hold its bytes, only votes were lost: whoever asks us next needs
         * these as well. */
        round_learn(&n->round, c, &hash);
        node_on_committed(n);
        return;
    }
    node_held_know(&n->held,
                   &(struct node_point){
                       p->round, p->tokens_before + plan_tokens(p), hash});
    round_learn(&n->round, c, &hash);
    history_add(&n->history, c);
    node_work_committed(n, false);
    node_next_round(n);
}

void node_on_commit(struct node *n, int peer, const struct commit *c)
{
    struct hash32 hash;

    (void)peer; /* the votes prove it, whoever passes it on */
    attest(n, c);
    learn_commit(n, c);
    message_commit_hash(&c->plan.body, &c->result, &hash);
    node_lease_heard(n, c, &hash);
    node_follow_record(n, c);
}

/* ---- a whole state ---------------------------------------------------- */

static void load(struct node *n, bool from_seed, bool from_disk)
{
    struct job *job = out_job(n->out, JOB_LOAD);

    node_quorum_withdraw(n);
    if (job != NULL) {
        job->load.round = n->held.target.round;
        job->load.from_seed = from_seed;
        job->load.from_disk = from_disk;
        job->load.rebase = n->sync.rebase && !from_seed && !from_disk;
        job->load.share = n->held.loaded ? n->pairs.merge_share : 0;
        job->load.anew = n->judge.fetches;
        job->load.undo = job->load.rebase || from_seed || from_disk ||
                                 job->load.anew || !n->held.loaded
                             ? 0
                             : node_work_undo(n);
        n->sync.load_rebase = job->load.rebase;
        node_held_begin(&n->held, NULL);
        n->sync.phase = SYNC_LOAD;
    }
}

/* Nobody is ahead of us: our own beginning. */
static void load_own(struct node *n)
{
    struct node_point own = {0};

    n->sync.rebase = false;
    node_pair_owner(n, MEMBERS_NONE);
    if (n->terms.holds_state) {
        own = (struct node_point){n->terms.held_round, n->terms.held_tokens,
                                  n->terms.held_commit};
        node_training_restart(n, n->terms.held_inner_step);
    }
    node_held_aim(&n->held, &own);
    load(n, !n->terms.holds_state, n->terms.holds_state);
}

/* The members go on while the record of their newest commit is on its way here:
 * what was asked for and is attested by now will do, as long as they serve it.
 * Else who comes while rounds are short waits for one that nobody has ended
 * before the answer is here. */
static bool was_attested(struct node *n)
{
    if (n->ballot.have || n->sync.asked.round == 0 ||
        !hash32_eq(&n->proof.attested, &n->sync.asked.commit) ||
        n->sync.asked.round > n->held.target.round ||
        n->held.target.round - n->sync.asked.round > 1 ||
        (n->held.loaded && node_point_eq(&n->sync.asked, &n->held.applied))) {
        return false;
    }
    node_held_aim(&n->held, &n->sync.asked);
    n->sync.expect = n->sync.asked_state;
    return true;
}

bool node_sync_name_state(struct node *n)
{
    return (is_attested(n) && agreed_state(n, &n->sync.expect)) ||
           was_attested(n);
}

static void start_state(struct node *n)
{
    if (!n->regime->name_state(n)) {
        return;
    }
    n->sync.phase = SYNC_STATE;
    n->sync.since_ms = n->now;
    node_held_spend(&n->held, SPENT_NOT);
    if (!node_fetch(n, &(struct transfer_object){
                           .buffer = BUFFER_STATE,
                           .leaves = BUFFER_STATE_LEAVES,
                           .index = n->held.target.round,
                           .root = n->sync.expect,
                           .total = n->terms.state_bytes,
                           .first = n->terms.n_params * sizeof(float),
                       })) {
        n->reason = "the state of the run is too large for this build";
        n->sync.phase = SYNC_IDLE;
    }
}

void node_on_placed(struct node *n, const struct local_event *e)
{
    if (n->held.applying && n->regime->placed != NULL) {
        n->regime->placed(n, e);
    }
}

void node_on_applied(struct node *n, const struct local_event *e)
{
    node_held_end(&n->held);
    n->sync.phase = SYNC_IDLE;
    n->regime->applied(n, e);
}

void node_on_loaded(struct node *n, const struct local_event *e)
{
    bool back = node_judge_loaded(n, e);

    node_held_end(&n->held);
    n->sync.phase = SYNC_IDLE;
    if (e->rc == LOCO_ENUMERIC && !id_is_zero(&n->pairs.owner)) {
        node_pair_spoiled(n);
        return;
    }
    if (e->rc != 0) {
        n->reason = back ? n->reason : "cannot load the state";
        return;
    }
    if (!n->sync.load_rebase) {
        /* A TRAINED that was under way when we asked for the state is of the
         * displacement that the state has just replaced. Work that reaches no
         * commit is counted, never dropped in silence. */
        node_forget_contribution(n);
        if (node_work_undo(n) != 0) {
            node_training_end(n);
        }
        node_training_drop(n, e->loaded.tokens);
        node_training_restart(n, e->loaded.inner_step);
    }
    if (!n->inner->whole) {
        node_forget_contribution(n); /* packed again after the next steps */
    }
    node_held_take(&n->held, &e->loaded);
    n->sync.delta_failed = false;
    node_lease_find(n);
    n->regime->loaded(n);
    node_work_announce(n, &e->loaded, n->training.active || n->training.packed);
    if (back) {
        node_step_taken(n);
    }
}

/* ---- transfers -------------------------------------------------------- */

/* The state is here, and every piece of it was verified. */
static void state_here(struct node *n)
{
    node_follow_fetched(n);
    transfer_stop(&n->transfer, n->out);
    n->sync.rebase = n->held.loaded && n->sync.rebase && !n->judge.fetches &&
                     !n->terms.single_round &&
                     n->held.target.round - n->held.applied.round <= 2;
    if (n->held.loaded && !n->sync.rebase) {
        node_forget_contribution(n);
    }
    load(n, false, false);
}

static void reduced_advance(struct node *n)
{
    struct transfer *t = &n->transfer;
    struct job *job;

    if (!t->finished) {
        if (!node_fetch_sources(n, node_sync_is_past) ||
            transfer_starves(t, n->now)) {
            n->sync.delta_failed = true;
            transfer_stop(t, n->out);
            n->sync.phase = SYNC_IDLE;
        }
        return;
    }
    job = out_job(n->out, JOB_HASH);
    if (job != NULL) {
        job->hash.buffer = BUFFER_REDUCED;
        job->hash.index = t->object.index;
        n->sync.phase = SYNC_REDUCED_HASH;
    }
}

static void state_transfer_advance(struct node *n)
{
    struct transfer *t = &n->transfer;

    if (t->finished) {
        state_here(n);
    } else if (node_fetch_sources(n, n->regime->may_have) &&
               !transfer_starves(t, n->now)) {
        n->sync.since_ms = n->now;
    } else if (n->now - n->sync.since_ms >
                   (n->regime->has_views ? 2ULL * n->t.fetch_ms : ASK_MS) ||
               node_pick(n, n->regime->may_have) == MEMBERS_NONE) {
        transfer_stop(t, n->out);
        n->sync.phase = SYNC_IDLE; /* nobody has it any more: a newer one */
    }
}

void node_on_hashed(struct node *n, const struct local_event *e)
{
    if (e->hashed.index != n->held.target.round ||
        n->sync.phase != SYNC_REDUCED_HASH ||
        e->hashed.buffer != BUFFER_REDUCED) {
        return;
    }
    if (e->rc != 0 || !hash32_eq(&e->hashed.hash, &n->sync.expect)) {
        if (e->rc == 0) {
            node_name_liar(n, transfer_spoiled(&n->transfer));
        }
        transfer_stop(&n->transfer, n->out);
        n->sync.delta_failed = true;
        n->sync.phase = SYNC_IDLE;
        return;
    }
    node_follow_fetched(n);
    transfer_stop(&n->transfer, n->out);
    node_apply(n, BUFFER_REDUCED, n->held.target_spent);
}

bool node_heard_anybody(const struct node *n)
{
    for (uint32_t i = 0; i < n->members.n_peers; i++) {
        if (n->members.peers[i].has_beat) {
            return true;
        }
    }
    return n->members.n_bootstrap == 0;
}

static void state_advance(struct node *n)
{
    struct node_point target;
    bool follows = n->regime->target(n, &target);
    bool possible = !follows && !n->held.loaded;
    bool begins = possible && node_heard_anybody(n) && !node_sees_view(n) &&
                  node_stage_may_begin(n);
    bool complete =
        node_data_begins(n, possible && !n->terms.holds_state, begins);

    if (!follows) {
        if (begins && (complete || n->terms.holds_state)) {
            load_own(n);
        }
        return;
    }
    if (n->held.loaded && node_point_eq(&target, &n->held.applied)) {
        return;
    }
    node_held_aim(&n->held, &target);
    if (n->regime->has_views) {
        node_follow_look(n, &target);
    }
    if (n->ballot.have) {
        n->sync.rebase = !n->round.exposed;
    }
    if (!n->held.loaded || n->sync.delta_failed || !n->regime->has_views ||
        target.round <= n->held.applied.round ||
        target.round - n->held.applied.round > node_follow_max(n)) {
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

    if (!n->data.ready) {
        node_data_advance(n);
        return;
    }
    if (!node_is_staged(n)) {
        return;
    }
    if (n->sync.phase != SYNC_IDLE && n->regime->has_views &&
        n->regime->target(n, &tip)) {
        node_follow_look(n, &tip);
    }
    if (n->sync.phase == SYNC_COMMIT || n->sync.phase == SYNC_WALK) {
        node_follow_wait(n);
    } else if (n->sync.phase == SYNC_REDUCED) {
        reduced_advance(n);
    } else if (n->sync.phase == SYNC_STATE) {
        state_transfer_advance(n);
    }
    if (n->sync.phase == SYNC_IDLE && !n->held.applying) {
        state_advance(n);
    }
    node_lease_advance(n);
    if (n->sync.phase == SYNC_IDLE &&
        (text_comes_later(&n->terms) || n->data.begin.wanted_ms > 0)) {
        node_data_advance(n); /* what is missing of the shards, beside it */
    }
}
