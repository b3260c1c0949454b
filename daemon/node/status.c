/* status.c - what others may see of a node: people its status, simulators and
 * tests its parts.
 *
 * The phase is where a peer is in the life of a run (node.h). It is looked at
 * once, at the end of a step, and holds until the end of the next one:
 * heartbeats, people and tests see the same.
 */
#include "daemon/node/inspect.h"

#include <stdio.h>
#include <string.h>

#include "daemon/node/internal.h"

/* ---- the phase ---------------------------------------------------------- */

static const char *const state_names[NODE_STATE_COUNT] = {
    [NODE_STARTING] = "starting", [NODE_WAITING] = "waiting",
    [NODE_JOINING] = "joining",   [NODE_SYNCING] = "syncing",
    [NODE_TRAINING] = "training", [NODE_AVERAGING] = "averaging",
    [NODE_PAUSED] = "paused",     [NODE_DRAINING] = "draining",
    [NODE_FINISHED] = "finished",
};

const char *node_state_name(enum node_state state)
{
    return state < NODE_STATE_COUNT ? state_names[state] : "?";
}

enum node_state node_state(const struct node *n)
{
    return n->phase;
}

/* What an operator or the end of the run says goes first, then what is missing
 * to take part, then what the regime is at. */
static enum node_state next(const struct node *n)
{
    if (n->draining) {
        return NODE_DRAINING;
    }
    if (n->finished) {
        return NODE_FINISHED;
    }
    if (n->training.paused) {
        return NODE_PAUSED;
    }
    if (!n->data.configured) {
        return n->opt.n_bootstrap > 0 ? NODE_JOINING : NODE_STARTING;
    }
    if (!n->data.ready || !n->held.loaded || n->sync.phase == SYNC_STATE) {
        return n->held.loaded || n->transfer.active || n->data.download.active
                   ? NODE_SYNCING
                   : NODE_STARTING;
    }
    return n->regime->state(n);
}

void node_phase_advance(struct node *n)
{
    n->phase = next(n);
}

/* ---- the status --------------------------------------------------------- */

/* What the inner steps wait for; false: nothing. */
static bool inner_reason(const struct node *n, struct node_status *s)
{
    uint32_t stage = UINT32_MAX;
    const char *text = n->inner->wait(n);

    if (text == NULL) {
        text = s->state == NODE_WAITING ? node_pipe_wait(n, &stage) : NULL;
    }
    if (text == NULL) {
        return false;
    }
    if (stage == UINT32_MAX) {
        (void)snprintf(s->reason, sizeof s->reason, "%s", text);
    } else {
        (void)snprintf(s->reason, sizeof s->reason, "stage %u of %u %s",
                       stage + 1, n->terms.stages, text);
    }
    return true;
}

/* Of a peer outside the view: how far behind it is, whatever its reason says.
 */
static void follow_of(const struct node *n, struct node_status *s)
{
    struct node_follow_speed f;

    if (n->finished) {
        return;
    }
    node_follow_speed(n, &f);
    s->rounds_behind = f.behind;
    s->catch_up_ms =
        n->sync.phase == SYNC_STATE || f.behind > 1 ? f.left_ms : 0;
}

/* Whether it can catch up. False: there is nothing to say. */
static bool follow_reason(const struct node *n, struct node_status *s)
{
    struct node_follow_speed f;

    node_follow_speed(n, &f);
    if (f.slow) {
        (void)snprintf(
            s->reason, sizeof s->reason,
            "this connection is too slow for the run: fetching a round takes "
            "%.1f s, and the others make a round every %.1f s",
            (double)f.wire_ms / 1e3, (double)f.round_ms / 1e3);
    } else if (n->held.loaded && f.behind > 1) {
        (void)snprintf(s->reason, sizeof s->reason,
                       "%u rounds behind: fetching them one by one", f.behind);
    }
    return s->reason[0] != '\0';
}

/* We are in the view and do not count yet. Who has offered enough counts from
 * the view that the next round's end brings. */
static void probation_of(const struct node *n, struct node_status *s)
{
    const struct ballot *b = &n->ballot;
    uint32_t done = probation_rounds(&b->probation, &n->opt.self);
    uint32_t all = b->opt.probation_rounds;

    if (!b->have || n->finished ||
        view_is_full(&b->cert.body, (uint32_t)b->self_index)) {
        return;
    }
    s->probation_all = all;
    s->probation_done = done < all ? done : all;
    s->probation_left_ms =
        (uint64_t)(all - s->probation_done + 1) * n->rounds.round_ms;
}

/* False: we count. */
static bool probation_reason(struct node_status *s)
{
    if (s->probation_all == 0) {
        return false;
    }
    (void)snprintf(s->reason, sizeof s->reason,
                   "on probation: offered work for %u of %u rounds, after "
                   "which it counts",
                   s->probation_done, s->probation_all);
    return true;
}

/* Rounds are made without us. NULL: they are not. */
static const char *rests_reason(const struct node *n)
{
    static const char *const why[] = {
        [ROUND_RESTS_SILENT] =
            "left out of some rounds: most members waited in vain for what "
            "this peer sends. If it goes on, look at its line: loco doctor",
        [ROUND_RESTS_ASTRAY] =
            "left out for many rounds: by the word of half of the members its "
            "work goes another way than theirs. Look at its data and memory",
        [ROUND_RESTS_REJECTED] =
            "left out of a round: members could not use what this peer sent. "
            "If it goes on, look at its memory and line: loco doctor"};

    return n->ballot.have && !n->finished ? why[n->round.rests] : NULL;
}

static void reason_of(const struct node *n, struct node_status *s)
{
    const char *text = n->reason != NULL         ? n->reason
                       : node_refusal(n) != NULL ? node_refusal(n)
                                                 : node_twin_reason(n);

    if (text == NULL && !n->draining && !n->finished && inner_reason(n, s)) {
        return;
    }
    if (text == NULL && !n->ballot.have && !n->finished &&
        follow_reason(n, s)) {
        return;
    }
    if (text == NULL && n->save_failed) {
        text = "cannot write the state directory";
    }
    if (text == NULL && s->state == NODE_WAITING) {
        (void)snprintf(s->reason, sizeof s->reason,
                       "waiting for peers: %u of %u are here", s->peers_alive,
                       n->terms.min_peers);
        return;
    }
    if (text == NULL && n->ballot.have && !ballot_sees_majority(&n->ballot) &&
        !n->finished) {
        text = "no majority of the view can be reached: waiting for one until "
               "round.fork_after_ms";
    } else if (text == NULL && s->state == NODE_JOINING &&
               !n->data.configured) {
        text = "looking for a peer of the run";
    } else if (text == NULL && s->state == NODE_JOINING) {
        text = "waiting to be admitted after this round";
    } else if (text == NULL && node_text_waits(n)) {
        text = "takes part without weight until the next data shard is here";
    } else if (text == NULL && n->data.download.active && !n->data.ready) {
        text = "fetching data from its URLs";
    } else if (text == NULL && n->data.begin.fetched) {
        text = "fetching the file that the run begins from";
    } else if (text == NULL && s->state == NODE_STARTING &&
               n->data.configured && n->data.ready) {
        text = "waiting until most members of a view name the same state";
    } else if (text == NULL && s->state == NODE_SYNCING) {
        text = "fetching data and state from peers";
    } else if (text == NULL && n->judge.asks) {
        text = "the last round made the model worse: asking the others to take "
               "it back";
    } else if (text == NULL && n->ballot.have && n->held.loaded &&
               !n->held.applying && !node_lease_known(n)) {
        text = "asking for the record of the newest commit";
    } else if (text == NULL && probation_reason(s)) {
        return;
    }
    text = text == NULL ? rests_reason(n) : text;
    (void)snprintf(s->reason, sizeof s->reason, "%s", text == NULL ? "" : text);
}

static void download_of(const struct node *n, struct node_status *s)
{
    const struct node_download *d = &n->data.download;
    uint64_t ms = n->now - d->began_ms;

    s->fetched_bytes = d->bytes;
    s->fetch_total_bytes = n->terms.shards[n->data.shard].bytes;
    s->fetch_by_url = true;
    if (d->began_ms > 0 && ms > 0 && d->bytes > d->resumed_bytes) {
        s->fetch_bytes_per_s = (d->bytes - d->resumed_bytes) * 1000 / ms;
    }
}

static void progress_of(const struct node *n, struct node_status *s)
{
    const struct transfer *t = &n->transfer;
    uint64_t ms = n->now - t->started_ms;

    s->sources_shunned = n->fetches.n_shunned;
    if (n->data.download.active) {
        download_of(n, s);
    }
    if (!t->active) {
        return;
    }
    s->fetched_bytes = node_fetched_bytes(n, transfer_units(t));
    s->fetch_total_bytes = node_fetched_bytes(n, t->object.total);
    s->fetch_sources = transfer_n_sources(t);
    if (ms > 0) {
        s->fetch_bytes_per_s =
            node_fetched_bytes(n, transfer_units(t) - t->resumed_units) * 1000 /
            ms;
    }
}

static double round_trained(const struct node *n)
{
    uint32_t steps = terms_steps(&n->terms, n->held.applied.round + 1);
    uint64_t made = n->training.inner_step - n->training.first_step;

    return steps == 0 ? 0 : made < steps ? (double)made / (double)steps : 1;
}

static void shards_of(const struct node *n, struct node_status *s)
{
    uint64_t left = 0;
    bool coming =
        n->data.download.active ||
        (n->transfer.active && n->transfer.object.buffer == BUFFER_SHARD);

    if (!n->data.configured) {
        return;
    }
    for (uint32_t i = 0; i < n->terms.n_shards; i++) {
        const struct terms_shard *t = &n->terms.shards[i];

        if (t->held || !t->begins || i == node_data_beginning(n)) {
            s->shards++; /* else of no use here */
            s->shards_here += t->held;
            left += t->held ? 0 : t->bytes;
        }
    }
    if (coming && s->fetch_bytes_per_s > 0 && left >= s->fetched_bytes) {
        s->shards_left_ms =
            (left - s->fetched_bytes) * 1000 / s->fetch_bytes_per_s;
    }
}

/* A run that ended in a fork is whole again when more than half of the last
 * unmarked view holds the same end. */
static bool still_forked(const struct node *n)
{
    const struct view_body *v = &n->ballot.cert.body;
    uint32_t same = 0;

    if (!n->ballot.have || !v->fork) {
        return false;
    }
    for (uint32_t i = 0; i < v->n_roots; i++) {
        int row = members_find(&n->members, &v->roots[i]);
        bool linked = row != MEMBERS_NONE && n->members.peers[row].has_beat &&
                      members_linked(&n->members, row);

        same += id_eq(&v->roots[i], &n->opt.self) ||
                (linked && hash32_eq(&n->members.peers[row].beat.commit,
                                     &n->held.applied.commit));
    }
    return !n->finished || 2 * same <= v->n_roots;
}

static void reach_of(const struct node *n, struct node_status *s)
{
    s->reach = reach_class(&n->reach.core);
    reach_reason(&n->reach.core, s->reach_reason);
    s->bytes_relayed = n->reach.relay.n_bytes;
    for (int i = 0; i < LINKS_MAX; i++) {
        const struct members_link *l = &n->members.links[i];

        if (l->used && !l->closing) {
            s->links_relayed += l->relayed;
            s->links_punched += l->punched;
            s->links_accepted += !l->relayed && !l->punched && l->inbound;
            s->links_dialled += !l->relayed && !l->punched && !l->inbound;
        }
    }
}

static void strangers_of(const struct node *n, struct node_status *s)
{
    const struct members_counts *c = &n->members.counts;

    s->stranger_signatures = c->stranger_signatures;
    s->stranger_frames = c->stranger_frames;
    s->stranger_dials = c->stranger_dials;
    memcpy(s->stranger_refused, c->stranger_refused,
           sizeof s->stranger_refused);
    s->n_strangers =
        members_strangers(&n->members, s->strangers, NODE_STRANGERS_MAX);
    for (uint32_t i = 0; i < s->n_strangers; i++) {
        s->stranger_links += s->strangers[i].n_links;
        s->strangers_overdrawn += s->strangers[i].n_overdrawn;
    }
}

void node_status(const struct node *n, struct node_status *s)
{
    memset(s, 0, sizeof *s);
    s->state = node_state(n);
    s->fork = still_forked(n);
    s->replicas_equal =
        (n->regime->has_views || n->finished) && n->inner->whole;
    s->epoch = n->ballot.have ? n->ballot.cert.body.epoch : 0;
    s->round = n->held.applied.round;
    s->stages = terms_staged(&n->terms) ? n->terms.stages : 0;
    s->stage = s->stages > 0 && n->stages.staging != STAGING_NONE
                   ? n->stages.own + 1
                   : 0;
    s->stage_moves = n->stages.n_moves;
    if (s->stages > 0) {
        node_stage_hosts(n, s->stage_hosts);
    }
    s->queue = (float)n->pipe.queue.mean / NODE_QUEUE_UNIT;
    s->idle = (float)n->pipe.idle_permille / 1000;
    s->inner_step = n->training.inner_step;
    s->tokens = n->training.own_tokens;
    s->tokens_dropped = n->training.tokens_dropped;
    s->run_tokens = n->held.applied.tokens;
    if (n->ballot.have) {
        s->view_hash = n->ballot.hash;
    }
    s->params_hash = n->held.params_hash;
    s->commit_hash = n->held.applied.commit;
    s->loss = n->training.loss;
    s->tokens_per_s = n->training.tokens_per_s;
    s->bits_per_byte = n->eval.has_bits ? n->eval.bits : 0;
    s->bits_per_byte_before = n->eval.has_before ? n->eval.bits_before : 0;
    s->peers_alive = members_n_alive(&n->members) + 1;
    s->peers_in_round = n->regime->n_members(n);
    if (n->ballot.have) {
        s->peers_on_probation =
            n->ballot.cert.body.n_members - view_n_full(&n->ballot.cert.body);
    }
    s->rounds_committed = n->rounds.n_committed;
    s->rollbacks = n->judge.n_rollback;
    node_audit_status(n, s);
    node_strays_status(n, s);
    node_work_status(n, s);
    s->rounds_aborted = n->round.n_aborted + n->pairs.n_byes;
    s->elements_inherited = n->round.n_inherited;
    s->last_round_ms = n->rounds.round_ms;
    s->n_lost = n->n_lost;
    memcpy(s->lost, n->lost, sizeof s->lost);
    s->stop_rounds = n->terms.stop_rounds;
    s->round_trained = n->data.configured ? round_trained(n) : 0;
    s->malformed = n->malformed + n->ballot.malformed + n->round.malformed +
                   n->pair.malformed;
    s->stale = n->stale;
    s->forwards_refused = n->members.counts.refused;
    s->strangers_refused = n->members.counts.strangers;
    strangers_of(n, s);
    s->relays_refused = n->reach.relay.n_refused;
    s->probes_refused = n->reach.probes_refused;
    s->dht_contacts = n->dht.core.table.n;
    s->dht_records = n->dht.core.store.n;
    s->dht = n->dht.core.counts;
    reach_of(n, s);
    progress_of(n, s);
    shards_of(n, s);
    follow_of(n, s);
    probation_of(n, s);
    reason_of(n, s);
}

const struct node_commit *node_last_commit(const struct node *n)
{
    return n->rounds.has_last ? &n->rounds.last : NULL;
}

struct node_parts node_parts(const struct node *n)
{
    return (struct node_parts){
        .terms = &n->terms,
        .members = &n->members,
        .ballot = &n->ballot,
        .round = &n->round,
        .pair = &n->pair,
        .transfer = &n->transfer,
        .reach = &n->reach.core,
        .dht = &n->dht.core,
        .data = &n->data,
        .held = &n->held,
        .training = &n->training,
        .stages = &n->stages,
        .pipe = &n->pipe,
        .eval = &n->eval,
        .judge = &n->judge,
        .audit = &n->audit,
        .work = &n->work,
        .strays = &n->strays,
        .admit = &n->admit,
        .twin = &n->twin,
    };
}
