/* node_sync.c - getting what a member must hold: manifest, shards, state.
 *
 * Manifest and shards come first and once. The state follows the *target*: the
 * commit that our view is bound by, or the newest one of the best branch while
 * we have no view. One commit behind: its reduced bytes (SYNC_COMMIT ..), the
 * same bits the others applied. Further behind, or another branch: parameters
 * and momentum whole (SYNC_STATE ..). Whatever fails is started again from
 * node_sync_advance().
 *
 * What arrives is adopted only if its hash is the one that the peers of the
 * target commit agree on.
 */
#include "daemon/node_internal.h"

#include <string.h>

#include "proto/base/err.h"
#include "proto/base/log.h"
#include "proto/base/rng.h"
#include "proto/hash.h"

#define SYNC_SOURCES_MAX 6    /* sources of one transfer, then start over */
#define ASK_MS           1000 /* a small question is asked again after this */

/* A linked peer that satisfies `want`, chosen at random; MEMBERS_NONE. */
static int pick(struct node *n,
                bool (*want)(const struct node *n, const struct member *p),
                int except)
{
    int at = MEMBERS_NONE;
    uint32_t seen = 0;

    for (uint32_t i = 0; i < n->members.n_peers; i++) {
        const struct member *p = &n->members.peers[i];

        if (p->used && p->has_beat && (int)i != except &&
            members_linked(&n->members, (int)i) && want(n, p) &&
            rng_below(&n->rng, ++seen) == 0) {
            at = (int)i;
        }
    }
    return at == MEMBERS_NONE && except != MEMBERS_NONE
               ? pick(n, want, MEMBERS_NONE)
               : at;
}

/* ---- manifest --------------------------------------------------------- */

static bool has_manifest(const struct node *n, const struct member *p)
{
    (void)n;
    return p->beat.configured;
}

void node_on_get_manifest(struct node *n,
                          int peer,
                          const struct get_manifest *m)
{
    struct manifest_part part = {.offset = m->offset};

    if (!n->configured || m->offset >= n->manifest_len) {
        return;
    }
    part.total = n->manifest_len;
    part.n_bytes = n->manifest_len - m->offset;
    if (part.n_bytes > MESSAGE_MANIFEST_MAX) {
        part.n_bytes = MESSAGE_MANIFEST_MAX;
    }
    memcpy(part.bytes, n->manifest + m->offset, part.n_bytes);
    (void)members_send(&n->members, n->out, peer, MESSAGE_MANIFEST, &part);
}

void node_on_manifest(struct node *n, int peer, const struct manifest_part *m)
{
    if (n->configured || n->configuring || m->offset != n->manifest_got ||
        m->total > MANIFEST_BYTES_MAX || m->total < m->offset ||
        m->n_bytes > m->total - m->offset || m->n_bytes == 0 ||
        (m->offset > 0 && m->total != n->manifest_len)) {
        return;
    }
    memcpy(n->manifest + m->offset, m->bytes, m->n_bytes);
    n->manifest_len = m->total;
    n->manifest_got += m->n_bytes;
    n->manifest_ask_ms = n->now;
    if (n->manifest_got < n->manifest_len) {
        struct get_manifest next = {.offset = n->manifest_got};

        n->manifest_ask_ms = n->now + ASK_MS;
        (void)members_send(&n->members, n->out, peer, MESSAGE_GET_MANIFEST,
                           &next);
    }
}

static void manifest_advance(struct node *n)
{
    struct get_manifest ask = {0};
    struct action *a;
    int peer;

    if (n->configuring) {
        return;
    }
    if (n->manifest_len > 0 && n->manifest_got == n->manifest_len) {
        uint32_t at = out_bytes(n->out, n->manifest, n->manifest_len);

        a = at == UINT32_MAX ? NULL : out_add(n->out, ACTION_CONFIGURE);
        if (a != NULL) {
            a->bytes = at;
            a->len = n->manifest_len;
            n->configuring = true;
        }
        return;
    }
    peer = pick(n, has_manifest, MEMBERS_NONE);
    if (peer == MEMBERS_NONE || n->now < n->manifest_ask_ms) {
        return;
    }
    n->manifest_ask_ms = n->now + ASK_MS;
    n->manifest_got = n->manifest_len = 0;
    (void)members_send(&n->members, n->out, peer, MESSAGE_GET_MANIFEST, &ask);
}

void node_on_configured(struct node *n, const struct local_event *e)
{
    n->configuring = false;
    if (e->rc == LOCO_EHASH || e->rc == LOCO_ESIG) {
        n->malformed++; /* that peer lied: ask another one */
        n->manifest_got = n->manifest_len = 0;
        return;
    }
    if (e->rc != 0 || e->terms == NULL) {
        struct action *a = out_add(n->out, ACTION_STOP);

        if (a != NULL) {
            a->rc =
                e->rc == LOCO_ENOMEM ? LOCO_EXIT_RESOURCES : LOCO_EXIT_CONFIG;
        }
        n->stopped = true;
        return;
    }
    n->terms = *e->terms;
    n->terms.grace_ms *= n->opt.time_scale;
    n->terms.fork_after_ms *= n->opt.time_scale;
    n->ballot.opt.fork_after_ms = n->terms.fork_after_ms;
    round_configure(&n->round, &n->terms);
    n->configured = true;
}

/* ---- shards ----------------------------------------------------------- */

static bool is_ready(const struct node *n, const struct member *p)
{
    (void)n;
    return p->beat.ready;
}

static void shards_advance(struct node *n)
{
    struct transfer *t = &n->transfer;
    int peer;

    while (n->shard < n->terms.n_shards && n->terms.shards[n->shard].held) {
        n->shard++;
    }
    if (n->shard == n->terms.n_shards) {
        n->data_ready = true;
        return;
    }
    if (n->shard_hashing) {
        return;
    }
    if (!t->active || t->buffer != BUFFER_SHARD || t->index != n->shard) {
        transfer_start(t, BUFFER_SHARD, n->shard,
                       n->terms.shards[n->shard].bytes, TRANSFER_PIECE, n->out);
    }
    if (t->finished) {
        struct action *a = out_add(n->out, ACTION_HASH);

        if (a != NULL) {
            a->buffer = BUFFER_SHARD;
            a->index = n->shard;
            n->shard_hashing = true;
        }
    } else if (t->want_source) {
        peer = pick(n, is_ready, MEMBERS_NONE);
        if (peer != MEMBERS_NONE) {
            transfer_source(t, peer, n->now, n->out);
        }
    }
}

static void on_shard_hashed(struct node *n, const struct local_event *e)
{
    struct terms_shard *s = &n->terms.shards[n->shard];

    n->shard_hashing = false;
    transfer_stop(&n->transfer, n->out);
    if (e->index != n->shard || e->rc != 0 || !hash32_eq(&e->hash, &s->hash)) {
        out_log(n->out, LOG_WARN,
                "shard %u does not have the manifest's hash; fetching it again",
                n->shard);
        n->malformed++;
        return;
    }
    s->held = true;
    {
        struct action *a = out_add(n->out, ACTION_KEEP);

        if (a != NULL) {
            a->buffer = BUFFER_SHARD;
            a->index = n->shard;
        }
    }
}

/* ---- serving ---------------------------------------------------------- */

static void refuse(struct node *n, int peer, const struct fetch *f)
{
    struct fetch_no no = {.attempt = f->attempt, .seg = f->seg};

    (void)members_send(&n->members, n->out, peer, MESSAGE_FETCH_NO, &no);
}

void node_on_fetch(struct node *n, int peer, const struct fetch *f)
{
    struct action *a;
    bool have = false;

    if (f->buffer == BUFFER_SHARD) {
        have = n->configured && f->index < n->terms.n_shards &&
               n->terms.shards[f->index].held &&
               f->offset < n->terms.shards[f->index].bytes;
    } else if (f->buffer == BUFFER_STATE || f->buffer == BUFFER_REDUCED) {
        have = n->loaded && f->index <= n->applied.round;
    }
    if (!have || f->len == 0 || f->len > TRANSFER_PIECE) {
        refuse(n, peer, f);
        return;
    }
    a = out_add(n->out, ACTION_SEND_SEG);
    if (a != NULL) {
        a->segment = (struct segment){
            .peer = n->members.peers[peer].id,
            .attempt = f->attempt,
            .stream = STREAM_FETCH,
            .seg = f->seg,
            .buffer = (enum buffer_kind)f->buffer,
            .index = f->index,
            .offset = f->offset,
            .len = f->len,
            .op = SEGMENT_COPY,
        };
    }
}

void node_on_sent_failed(struct node *n, const struct event *ev)
{
    struct fetch f = {.attempt = ev->segment.attempt, .seg = ev->segment.seg};
    int peer = members_find(&n->members, &ev->segment.peer);

    if (peer != MEMBERS_NONE) {
        refuse(n, peer, &f);
    }
}

/* ---- state ------------------------------------------------------------ */

void node_sync_reset(struct node *n)
{
    if (n->transfer.active && n->transfer.buffer != BUFFER_SHARD) {
        transfer_stop(&n->transfer, n->out);
    }
    n->sync = n->applying ? SYNC_LOAD : SYNC_IDLE;
    n->delta_failed = false;
}

/* What we should hold: false where there is nothing to go by. */
static bool find_target(const struct node *n, struct node_point *target)
{
    const struct heartbeat *best = NULL;

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

static void load(struct node *n, bool from_seed, bool from_disk)
{
    struct action *a = out_add(n->out, ACTION_LOAD);

    if (a != NULL) {
        a->round = n->target.round;
        a->from_seed = from_seed;
        a->from_disk = from_disk;
        a->rebase = n->rebase && !from_seed && !from_disk;
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

static void start_delta(struct node *n)
{
    struct get_commit ask = {.round = n->target.round};
    int peer = pick(n, is_past_target, MEMBERS_NONE);

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

/* Whether our open contribution is in that commit. */
static bool named_in(const struct node *n, const struct commit *c)
{
    for (uint32_t k = 0; k < c->n_votes && k < c->plan.body.n_members; k++) {
        const struct plan_member *m = &c->plan.body.members[k];

        if (memcmp(c->votes[k].public_key, n->opt.public_key, 32) == 0) {
            return m->first_step == n->round.mine.first_step &&
                   m->last_step == n->round.mine.last_step;
        }
    }
    return false;
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
    n->known.tokens = p->tokens_before;
    for (uint32_t k = 0; k < p->n_members; k++) {
        n->known.tokens += p->members[k].tokens;
    }
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
    n->target_in_plan = n->round.contributed && named_in(n, c);
    n->sync = SYNC_REDUCED;
    n->sync_sources = 0;
    transfer_start(&n->transfer, BUFFER_REDUCED, n->target.round,
                   n->terms.n_params, n->terms.segment_elements, n->out);
}

static void start_state(struct node *n)
{
    if (!agreed_state(n, &n->expect)) {
        return;
    }
    n->sync = SYNC_STATE;
    n->sync_sources = 0;
    n->target_in_plan = false;
    transfer_start(&n->transfer, BUFFER_STATE, n->target.round,
                   n->terms.state_bytes, TRANSFER_PIECE, n->out);
}

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
            pick(n, n->sync == SYNC_STATE ? holds_target : is_past_target,
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
        on_shard_hashed(n, e);
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
        node_apply(n, BUFFER_REDUCED, n->target_in_plan);
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
        n->rebase =
            n->loaded && n->rebase && n->target.round - n->applied.round <= 2;
        if (n->loaded && !n->rebase) {
            node_drop_contribution(n);
        }
        load(n, false, false);
    }
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
         * displacement that the state has just replaced. */
        if (n->loaded) {
            node_drop_contribution(n);
        }
        n->first_step = n->inner_step = e->inner_step;
    }
    n->loaded = true;
    n->delta_failed = false;
    n->applied = n->target;
    n->params_hash = e->params_hash;
    n->momentum_hash = e->momentum_hash;
    n->state_hash = node_state_hash(&e->params_hash, &e->momentum_hash);
    node_in_step(n);
}

/* Reached nobody: say why and stop, as scripts expect. Once a peer of the run
 * was reached, or an earlier life knew some, we keep trying. */
static void unreachable_advance(struct node *n)
{
    uint64_t patience_ms = 10000ULL * n->opt.time_scale;
    bool all_foreign = n->members.n_bootstrap > 0;
    char where[ADDRESS_TEXT_MAX];
    struct action *a;

    if (n->members.reached || n->members.n_bootstrap == 0 ||
        n->members.n_peers > 0) {
        return;
    }
    for (unsigned i = 0; i < n->members.n_bootstrap; i++) {
        const struct members_bootstrap *b = &n->members.bootstrap[i];

        if (b->failures == 0 ||
            (n->now - n->started_ms < patience_ms && b->rc != LOCO_ERUN)) {
            return;
        }
        all_foreign = all_foreign && b->rc == LOCO_ERUN;
    }
    address_text(&n->members.bootstrap[0].address, where);
    out_log(n->out, LOG_ERROR, "bootstrap %s %s", where,
            all_foreign
                ? "answers, but not for this run or protocol: check the run "
                  "id in the URI"
                : "cannot be reached: check the address, and that its peer "
                  "runs and its port is open");
    a = out_add(n->out, ACTION_STOP);
    if (a != NULL) {
        a->rc = all_foreign ? LOCO_EXIT_INCOMPATIBLE : LOCO_EXIT_NETWORK;
        n->stopped = true;
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
        n->rebase = n->round.phase != ROUND_VOTED;
    }
    if (n->loaded && target.round == n->applied.round + 1 && !n->delta_failed) {
        start_delta(n);
    } else {
        start_state(n);
    }
}

void node_sync_advance(struct node *n)
{
    if (!n->configured) {
        manifest_advance(n);
        unreachable_advance(n);
        return;
    }
    if (!n->data_ready) {
        shards_advance(n);
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
