/* node_status.c - what a person may see of a node. */
#include <stdio.h>
#include <string.h>

#include "daemon/node_internal.h"

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

/* Which slices are whose is one truth: half of a view never goes on alone. */
static bool owners_wait(const struct node *n)
{
    return terms_owned(&n->terms) && n->ballot.have &&
           !ballot_sees_majority(&n->ballot);
}

enum node_state node_state(const struct node *n)
{
    uint32_t stage;

    if (n->draining) {
        return NODE_DRAINING;
    }
    if (n->finished || node_owners_ended(n)) {
        return NODE_FINISHED;
    }
    if (n->paused) {
        return NODE_PAUSED;
    }
    if (!n->configured) {
        return n->opt.n_bootstrap > 0 ? NODE_JOINING : NODE_STARTING;
    }
    if (!n->data_ready || !n->loaded || n->sync == SYNC_STATE) {
        return n->loaded || n->transfer.active || n->download.active
                   ? NODE_SYNCING
                   : NODE_STARTING;
    }
    if (n->terms.pairs) {
        return n->pair.phase == PAIR_IDLE && !n->applying && !node_run_over(n)
                   ? NODE_WAITING
               : n->training ? NODE_TRAINING
                             : NODE_AVERAGING;
    }
    if (!n->ballot.have) {
        return node_sees_view(n) ? NODE_JOINING : NODE_WAITING;
    }
    if (owners_wait(n)) {
        return NODE_WAITING;
    }
    if (n->round.phase != ROUND_TRAINING || n->applying ||
        (terms_owned(&n->terms) && node_owners_averages(n))) {
        return NODE_AVERAGING;
    }
    return terms_staged(&n->terms) && node_pipe_wait(n, &stage) != NULL
               ? NODE_WAITING
               : NODE_TRAINING;
}

/* Why a run with stages stands still; false: it does not, or not for that. */
static bool stage_reason(const struct node *n, struct node_status *s)
{
    uint32_t stage = UINT32_MAX;
    const char *text = node_stage_wait(n);

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

/* On its way in: how far it is, and whether it can. False: there is nothing to
 * be said. */
static bool follow_of(const struct node *n, struct node_status *s)
{
    struct node_follow_speed f;

    node_follow_speed(n, &f);
    s->rounds_behind = f.behind;
    s->catch_up_ms = n->sync == SYNC_STATE || f.behind > 1 ? f.left_ms : 0;
    if (f.slow) {
        (void)snprintf(
            s->reason, sizeof s->reason,
            "this line is too slow for the run: the bytes of a round take %.1f "
            "s, and the others make one each %.1f s",
            (double)f.wire_ms / 1e3, (double)f.round_ms / 1e3);
    } else if (n->loaded && f.behind > 1) {
        (void)snprintf(s->reason, sizeof s->reason,
                       "%u rounds behind: fetching them one by one", f.behind);
    }
    return s->reason[0] != '\0';
}

static void reason_of(const struct node *n, struct node_status *s)
{
    const char *text = n->reason != NULL         ? n->reason
                       : node_refusal(n) != NULL ? node_refusal(n)
                                                 : node_twin_reason(n);

    if (text == NULL && n->configured && terms_staged(&n->terms) &&
        !n->draining && !n->finished && stage_reason(n, s)) {
        return;
    }

    if (text == NULL && n->hangs && !n->ballot.have) {
        text = "this machine does not answer: the other trains without it";
    }
    if (text == NULL && !n->ballot.have && !n->finished && follow_of(n, s)) {
        return;
    }
    if (text == NULL && n->save_failed) {
        text = "cannot write the state directory";
    }
    if (text == NULL && s->state == NODE_WAITING && owners_wait(n)) {
        text = "less than half of the view can be reached, and a slice has "
               "one owner: waiting for the others; if they are gone for good, "
               "restart all that are left: they go on from their disks";
    }
    if (text == NULL && s->state == NODE_WAITING) {
        (void)snprintf(s->reason, sizeof s->reason,
                       "waiting for peers: %u of %u are here", s->peers_alive,
                       n->terms.min_peers);
        return;
    }
    if (text == NULL && n->ballot.have && !ballot_sees_majority(&n->ballot) &&
        !n->finished) {
        text = "less than half of the view can be reached: in doubt until "
               "round.fork_after_ms";
    } else if (text == NULL && s->state == NODE_JOINING && !n->configured) {
        text = "looking for a peer of the run";
    } else if (text == NULL && s->state == NODE_JOINING) {
        text = "asking to be let in at the next boundary";
    } else if (text == NULL && node_text_waits(n)) {
        text = "takes part without weight until the next data shard is here";
    } else if (text == NULL && n->download.active && !n->data_ready) {
        text = "fetching data from its URLs";
    } else if (text == NULL && s->state == NODE_STARTING && n->configured &&
               n->data_ready) {
        text = "waiting for a state that most members of a view vouch for";
    } else if (text == NULL && s->state == NODE_SYNCING) {
        text = "fetching data and state from peers";
    } else if (text == NULL && n->ballot.have && n->loaded && !n->applying &&
               !node_lease_known(n)) {
        text = "asking for the record of the newest commit";
    }
    (void)snprintf(s->reason, sizeof s->reason, "%s", text == NULL ? "" : text);
}

static void download_of(const struct node *n, struct node_status *s)
{
    const struct node_download *d = &n->download;
    uint64_t ms = n->now - d->began_ms;

    s->fetched_bytes = d->bytes;
    s->fetch_total_bytes = n->terms.shards[n->shard].bytes;
    s->fetch_by_url = true;
    if (d->began_ms > 0 && ms > 0 && d->bytes > d->resumed_bytes) {
        s->fetch_bytes_per_s = (d->bytes - d->resumed_bytes) * 1000 / ms;
    }
}

static void progress_of(const struct node *n, struct node_status *s)
{
    const struct transfer *t = &n->transfer;
    uint64_t ms = n->now - t->started_ms;

    s->sources_shunned = n->n_shunned;
    if (n->download.active) {
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

static void shards_of(const struct node *n, struct node_status *s)
{
    uint64_t left = 0;
    bool coming =
        n->download.active ||
        (n->transfer.active && n->transfer.object.buffer == BUFFER_SHARD);

    if (!n->configured) {
        return;
    }
    s->shards = n->terms.n_shards;
    for (uint32_t i = 0; i < n->terms.n_shards; i++) {
        s->shards_here += n->terms.shards[i].held;
        left += n->terms.shards[i].held ? 0 : n->terms.shards[i].bytes;
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
                                     &n->applied.commit));
    }
    return !n->finished || 2 * same <= v->n_roots;
}

static void reach_of(const struct node *n, struct node_status *s)
{
    s->reach = reach_class(&n->reach);
    reach_reason(&n->reach, s->reach_reason);
    s->bytes_relayed = n->relay.n_bytes;
    for (int i = 0; i < LINKS_MAX; i++) {
        const struct members_link *l = &n->members.links[i];

        if (l->used && !l->closing) {
            s->links_relayed += l->relayed;
            s->links_accepted += !l->relayed && l->inbound;
            s->links_dialled += !l->relayed && !l->inbound;
        }
    }
}

void node_status(const struct node *n, struct node_status *s)
{
    memset(s, 0, sizeof *s);
    s->state = node_state(n);
    s->fork = still_forked(n);
    s->replicas_equal = (!n->terms.pairs || n->finished) &&
                        !terms_staged(&n->terms) &&
                        (!terms_owned(&n->terms) || node_owners_ended(n));
    s->epoch = n->ballot.have ? n->ballot.cert.body.epoch : 0;
    s->round = terms_owned(&n->terms) ? node_owners_round(n) : n->applied.round;
    s->stages = terms_staged(&n->terms) ? n->terms.stages : 0;
    s->stage = s->stages > 0 && n->staging != STAGING_NONE ? n->stage + 1 : 0;
    s->stage_moves = n->n_moves;
    node_stage_hosts(n, s->stage_hosts);
    s->queue = (float)n->queue / NODE_QUEUE_UNIT;
    s->idle = (float)n->idle_permille / 1000;
    s->inner_step = n->inner_step;
    s->tokens = n->own_tokens;
    s->tokens_dropped = n->tokens_dropped;
    s->run_tokens =
        terms_owned(&n->terms) ? node_owners_tokens(n) : n->applied.tokens;
    if (n->ballot.have) {
        s->view_hash = n->ballot.hash;
    }
    s->params_hash = n->params_hash;
    s->commit_hash = n->applied.commit;
    s->loss = n->loss;
    s->tokens_per_s = n->tokens_per_s;
    s->bits_per_byte = n->has_bits ? n->bits : 0;
    s->bits_per_byte_before = n->has_before ? n->bits_before : 0;
    s->peers_alive = members_n_alive(&n->members) + 1;
    s->peers_in_round = n->terms.pairs   ? n->pair.list.n
                        : n->ballot.have ? n->ballot.cert.body.n_members
                                         : 0;
    s->rounds_committed = n->n_committed;
    s->rounds_aborted = n->round.n_aborted + n->n_byes;
    s->elements_inherited = n->round.n_inherited;
    s->last_round_ms = n->round_ms;
    s->n_lost = n->n_lost;
    memcpy(s->lost, n->lost, sizeof s->lost);
    s->stop_rounds = n->terms.stop_rounds;
    s->malformed = n->malformed + n->ballot.malformed + n->round.malformed +
                   n->pair.malformed;
    s->stale = n->stale;
    if (terms_owned(&n->terms)) {
        s->malformed += (uint32_t)node_owners(n)->malformed;
        s->stale += node_owners(n)->stale;
    }
    s->forwards_refused = n->members.counts.refused;
    s->relays_refused = n->relay.n_refused;
    s->probes_refused = n->probes_refused;
    s->dht_contacts = n->dht.table.n;
    s->dht_records = n->dht.store.n;
    s->dht = n->dht.counts;
    reach_of(n, s);
    progress_of(n, s);
    shards_of(n, s);
    reason_of(n, s);
}

const struct node_commit *node_last_commit(const struct node *n)
{
    return n->has_commit ? &n->last_commit : NULL;
}
