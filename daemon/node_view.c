/* node_view.c - which view we are in: founding, joining, losing, leaving.
 *
 * Without a view: if some linked peer has one, hold its newest commit
 * (node_sync.c) and ask to be let in (JOIN); if nobody has, the peer with the
 * lowest id founds one when enough of them are ready.
 *
 * With a view, heartbeats of others may name another one:
 *   newer and with us in it   -> GET_VIEW, ballot.c adopts it
 *   its ancestors hold ours   -> we were left out: join it
 *   our ancestors hold it     -> that peer was left out; it will see
 *   neither                   -> two branches: more committed tokens win, then
 *                                the lower commit hash, then the higher epoch,
 *                                then the lower view hash; the losers join the
 *                                winner
 */
#include "daemon/node_internal.h"

#include <string.h>

#include "proto/base/err.h"
#include "proto/base/log.h"
#include "proto/hash.h"

#define ASK_MS 500
/* A higher epoch is a lie: some hundred years of views. */
#define EPOCH_HEARD_MAX (UINT32_MAX / 2)
/* Candidates must not change for this before founding. */
#define STABLE_MS 600

int node_best_peer(const struct node *n)
{
    int best = MEMBERS_NONE;

    for (uint32_t i = 0; i < n->members.n_peers; i++) {
        const struct member *p = &n->members.peers[i];
        const struct heartbeat *b;

        if (!p->used || !p->has_beat || p->lost ||
            (!p->beat.has_view && p->beat.state != NODE_FINISHED) ||
            !members_linked(&n->members, (int)i)) {
            continue;
        }
        if (best == MEMBERS_NONE) {
            best = (int)i;
            continue;
        }
        b = &n->members.peers[best].beat;
        if (p->beat.tokens > b->tokens ||
            (p->beat.tokens == b->tokens &&
             hash32_cmp(&p->beat.commit, &b->commit) < 0)) {
            best = (int)i;
        }
    }
    return best;
}

bool node_beat_ahead(const struct node *n, const struct heartbeat *b)
{
    return b->tokens > n->applied.tokens ||
           (b->tokens == n->applied.tokens &&
            hash32_cmp(&b->commit, &n->applied.commit) < 0);
}

/* ---- losses ----------------------------------------------------------- */

static void note_lost(struct node *n,
                      const struct peer_id *id,
                      uint32_t silent_ms,
                      const char *reason)
{
    char text[ID_SHORT_MAX];

    memmove(n->lost + 1, n->lost, (NODE_LOST_MAX - 1) * sizeof n->lost[0]);
    n->lost[0] = (struct node_lost){
        .peer = *id,
        .round = n->known.round,
        .detected_ms = silent_ms,
        .reason = reason,
    };
    n->n_lost += n->n_lost < NODE_LOST_MAX;
    id_short(id, text);
    out_log(n->out, LOG_WARN,
            "lost peer %s after round %llu: %s (%u ms after its last sign)",
            text, (unsigned long long)n->known.round, reason, silent_ms);
}

void node_on_lost(struct node *n, const struct members_lost *lost)
{
    const struct peer_id *id = &n->members.peers[lost->peer].id;
    int at = n->ballot.have ? view_index(&n->ballot.cert.body, id) : -1;

    node_dht_unreachable(n, lost->peer);
    if (at < 0 || (n->ballot.lost >> at & 1)) {
        return;
    }
    note_lost(n, id, lost->silent_ms, lost->reason);
    ballot_lost(&n->ballot, id);
    ballot_want(&n->ballot, BALLOT_WANT_CHANGE, n->now);
}

void node_on_hello(struct node *n, int peer, const struct hello *m)
{
    struct member *p = &n->members.peers[peer];
    int at = n->ballot.have ? view_index(&n->ballot.cert.body, &p->id) : -1;

    memcpy(n->members.observed.ip, m->observed.ip, 16);
    if (p->life != 0 && p->life != m->life) {
        p->has_beat = false;
        if (at >= 0 && !(n->ballot.lost >> at & 1)) {
            note_lost(n, &p->id, 0, "restarted");
            ballot_lost(&n->ballot, &p->id);
            ballot_want(&n->ballot, BALLOT_WANT_CHANGE, n->now);
        }
    }
    p->life = m->life;
}

void node_on_goodbye(struct node *n, int peer, const struct goodbye *m)
{
    struct member *p = &n->members.peers[peer];

    if (!id_eq(&m->body.peer, &p->id) ||
        !hash32_eq(&m->body.run, &n->opt.run_id) ||
        !message_verify(&n->opt.signer, p->public_key, &goodbye_body_schema,
                        &m->body, m->sig)) {
        n->malformed++;
        return;
    }
    p->watched = false;
    p->has_beat = false;
    ballot_departed(&n->ballot, &p->id);
    if (n->ballot.have && view_index(&n->ballot.cert.body, &p->id) >= 0) {
        ballot_want(&n->ballot, BALLOT_WANT_CHANGE, n->now);
    }
}

/* ---- other views ------------------------------------------------------ */

static void ask_view(struct node *n, int peer)
{
    struct get_view ask = {.lineage = true};

    if (n->now >= n->view_ask_ms) {
        n->view_ask_ms = n->now + ASK_MS;
        (void)members_send(&n->members, n->out, peer, MESSAGE_GET_VIEW, &ask);
    }
}

/* Leave our view for that of others. Our displacement since the last commit is
 * kept over the reload unless it is in a ring whose fate we do not know: the
 * others may have committed it without our vote. */
static void leave_view(struct node *n, const char *why)
{
    struct action *a;

    out_log(n->out, LOG_WARN, "leaving view %llu at round %llu: %s",
            (unsigned long long)n->ballot.cert.body.epoch,
            (unsigned long long)n->known.round, why);
    n->rebase = !(n->round.has_plan && n->round.in_plan &&
                  n->round.phase != ROUND_COMMITTED);
    round_freeze(&n->round, n->out);
    ballot_drop_view(&n->ballot, n->now);
    n->round.has_plan = false;
    n->round.phase = ROUND_TRAINING;
    n->known = n->applied;
    n->has_other = false;
    node_sync_reset(n);
    for (uint32_t s = 0; s < STREAM_COUNT; s++) {
        a = out_add(n->out, ACTION_CANCEL);
        if (a != NULL) {
            a->stream = s;
            a->attempt = 0;
        }
    }
}

/* A member that says it has no view has left ours (or restarted): it will not
 * take part. Right after a change it may only not have heard of it yet. */
static void check_still_in(struct node *n, int peer, const struct heartbeat *m)
{
    const struct peer_id *id = &n->members.peers[peer].id;
    int at = view_index(&n->ballot.cert.body, id);

    if (at < 0 || m->has_view || (n->ballot.lost >> at & 1) ||
        n->now - n->ballot.adopted_ms < n->t.dead_ms) {
        return;
    }
    note_lost(n, id, 0, "left the view");
    ballot_lost(&n->ballot, id);
    ballot_want(&n->ballot, BALLOT_WANT_CHANGE, n->now);
}

/* A view that follows one we do not know is entered when at least half of its
 * other members say, each over its own link, that they are in it. Those who
 * join with it do not count: they wait for the same as we. */
static void confirm_view(struct node *n)
{
    const struct view_body *v = &n->ballot.pending.body;
    struct ballot_context c;
    uint32_t there = 0, others = 0;

    if (!n->ballot.has_pending || n->finished) {
        return;
    }
    for (uint32_t i = 0; i < v->n_members; i++) {
        struct peer_id id = view_member_id(&v->members[i]);
        int row = members_find(&n->members, &id);

        if (v->members[i].joined == v->epoch || id_eq(&id, &n->opt.self)) {
            continue;
        }
        others++;
        there += row != MEMBERS_NONE && members_linked(&n->members, row) &&
                 n->members.peers[row].has_beat &&
                 n->members.peers[row].beat.has_view &&
                 hash32_eq(&n->members.peers[row].beat.view,
                           &n->ballot.pending_hash);
    }
    if (there > 0 && 2 * there >= others) {
        c = node_context(n);
        ballot_confirm(&n->ballot, &c);
    }
}

void node_on_beat(struct node *n, int peer, const struct heartbeat *m)
{
    members_beat(&n->members, peer, m, n->now);
    confirm_view(n);
    if (n->ballot.have && n->finished && m->state == NODE_FINISHED &&
        node_beat_ahead(n, m)) {
        leave_view(n, "another branch of the run ended ahead of ours");
        return;
    }
    if (n->ballot.have) {
        check_still_in(n, peer, m);
    }
    if (!n->ballot.have || !m->has_view) {
        return;
    }
    if (hash32_eq(&m->view, &n->ballot.hash)) {
        if (m->round > n->known.round && n->now >= n->commit_ask_ms) {
            struct get_commit ask = {.round = n->known.round + 1};

            n->commit_ask_ms = n->now + ASK_MS;
            (void)members_send(&n->members, n->out, peer, MESSAGE_GET_COMMIT,
                               &ask);
        }
    } else if (!ballot_descends_from(&n->ballot, &m->view)) {
        ask_view(n, peer);
    }
}

void node_on_get_view(struct node *n, int peer, const struct get_view *m)
{
    struct lineage msg = {0};
    uint32_t from;

    if (!n->ballot.have) {
        return;
    }
    (void)members_send(&n->members, n->out, peer, MESSAGE_VIEW,
                       &n->ballot.cert);
    if (!m->lineage) {
        return;
    }
    from = n->ballot.n_lineage > MESSAGE_LINEAGE_MAX
               ? n->ballot.n_lineage - MESSAGE_LINEAGE_MAX
               : 0;
    msg.first_epoch = n->ballot.lineage[from].epoch;
    while (from < n->ballot.n_lineage) {
        msg.hashes[msg.n_hashes++] = n->ballot.lineage[from++].hash;
    }
    (void)members_send(&n->members, n->out, peer, MESSAGE_LINEAGE, &msg);
}

void node_on_view(struct node *n, int peer, const struct view_cert *m)
{
    struct ballot_context c = node_context(n);
    bool next = n->ballot.have && hash32_eq(&m->body.prev, &n->ballot.hash);

    if (!n->finished) {
        ballot_recv(&n->ballot, &c, peer, MESSAGE_VIEW, m);
        confirm_view(n);
    }
    if (n->ballot.adopted || !n->ballot.have ||
        view_index_key(&m->body, n->opt.public_key) >= 0 ||
        view_cert_check(m, next ? &n->ballot.cert.body : NULL,
                        &n->opt.signer) != 0) {
        return;
    }
    n->has_other = true;
    n->other = m->body;
    n->other_peer = peer;
    view_hash(&m->body, &n->other_hash);
}

/* Whether our branch gives way to the other one that we were shown; `b` is the
 * last heartbeat of the peer that showed it. */
static bool loses_to(const struct node *n, const struct heartbeat *b)
{
    const struct view_body *ours = &n->ballot.cert.body;
    const struct view_body *theirs = &n->other;
    bool newer = b->has_view && b->tokens > theirs->tokens;
    uint64_t tokens = newer ? b->tokens : theirs->tokens;
    const struct hash32 *commit = b->has_view ? &b->commit : &theirs->commit;
    int order = hash32_cmp(&n->known.commit, commit);

    if (tokens != n->known.tokens) {
        return tokens > n->known.tokens;
    }
    if (order != 0) {
        return order > 0;
    }
    /* A joiner knows few ancestors: an older view of the same commit is more
     * likely one of them than another branch. */
    if (ours->epoch != theirs->epoch) {
        return ours->epoch < theirs->epoch;
    }
    return hash32_cmp(&n->ballot.hash, &n->other_hash) > 0;
}

void node_on_lineage(struct node *n, int peer, const struct lineage *m)
{
    const struct view_body *ours = &n->ballot.cert.body;
    const struct view_body *theirs = &n->other;
    bool lose;

    if (!n->has_other || peer != n->other_peer || !n->ballot.have) {
        return;
    }
    n->has_other = false;
    for (uint32_t i = 0; i < m->n_hashes; i++) {
        if (hash32_eq(&m->hashes[i], &n->ballot.hash)) {
            leave_view(n, "the others went on without this peer");
            return;
        }
    }
    if (ballot_descends_from(&n->ballot, &n->other_hash)) {
        return;
    }
    lose = loses_to(n, &n->members.peers[peer].beat);
    if (lose) {
        leave_view(n, ours->fork || theirs->fork
                          ? "the cut has healed and the other branch is ahead"
                          : "another branch of the run is ahead");
    }
}

/* ---- founding and joining --------------------------------------------- */

static void found_advance(struct node *n)
{
    struct ballot_context c;
    int rows[VIEW_MEMBERS_MAX];
    uint32_t n_rows = 0, need = n->terms.min_peers;
    uint64_t epoch = 0;
    bool lowest = true;
    struct hash_state h;
    struct hash32 set;

    hash_init(&h, "candidates");
    for (uint32_t i = 0; i < n->members.n_peers; i++) {
        const struct member *p = &n->members.peers[i];

        if (!p->used || !p->has_beat || !p->beat.ready || p->beat.has_view ||
            p->lost || !members_linked(&n->members, (int)i)) {
            continue;
        }
        if (n_rows < VIEW_MEMBERS_MAX - 1) {
            rows[n_rows++] = (int)i;
            hash_update(&h, p->id.b, sizeof p->id.b);
        }
        lowest = lowest && id_cmp(&n->opt.self, &p->id) < 0;
        if (p->beat.epoch > epoch && p->beat.epoch <= EPOCH_HEARD_MAX) {
            epoch = p->beat.epoch;
        }
    }
    hash_final(&h, &set);
    if (!hash32_eq(&set, &n->found_set) || n->found_stable_ms == 0) {
        n->found_set = set;
        n->found_stable_ms = n->now;
        n->doubt_ms = n->now;
    }
    if (n->ballot.restored) {
        const struct view_body *old = &n->ballot.cert.body;

        epoch = old->epoch > epoch ? old->epoch : epoch;
        need = old->n_members / 2 + 1;
        if (n->now - n->doubt_ms >= n->terms.fork_after_ms) {
            need = 1; /* nobody else came back */
        }
    }
    if (!lowest || n_rows + 1 < need ||
        n->now - n->found_stable_ms < STABLE_MS * n->opt.time_scale ||
        (n->members.n_bootstrap > 0 && !n->members.reached)) {
        return;
    }
    c = node_context(n);
    ballot_found(&n->ballot, &c, rows, n_rows, need, epoch + 1);
}

static void join_advance(struct node *n, int best)
{
    struct join msg = {0};
    int rows[LINKS_MAX];
    uint32_t n_rows = 0;

    if (n->now < n->join_ms ||
        !hash32_eq(&n->members.peers[best].beat.commit, &n->applied.commit)) {
        return;
    }
    n->join_ms = n->now + ASK_MS;
    msg.body.run = n->opt.run_id;
    msg.body.view = n->members.peers[best].beat.view;
    msg.body.round = n->applied.round;
    msg.body.commit = n->applied.commit;
    msg.body.state = n->state_hash;
    memcpy(msg.address.ip, n->members.observed.ip, 16);
    msg.address.port = n->members.observed.port;
    if (message_sign(&n->opt.signer, &join_body_schema, &msg.body, msg.sig) !=
        0) {
        return;
    }
    for (uint32_t i = 0; i < n->members.n_peers && n_rows < LINKS_MAX; i++) {
        const struct member *p = &n->members.peers[i];

        if (p->used && p->has_beat && p->beat.has_view && p->n_links > 0) {
            rows[n_rows++] = (int)i;
        }
    }
    members_broadcast(&n->members, n->out, rows, n_rows, MESSAGE_JOIN, &msg);
}

void node_on_join(struct node *n, int peer, const struct join *m)
{
    if (!n->ballot.have || n->finished || n->draining ||
        !hash32_eq(&m->body.run, &n->opt.run_id) ||
        m->body.round != n->known.round ||
        !hash32_eq(&m->body.commit, &n->known.commit) ||
        (node_point_eq(&n->applied, &n->known) &&
         !hash32_eq(&m->body.state, &n->state_hash))) {
        return;
    }
    if (!message_verify(&n->opt.signer, n->members.peers[peer].public_key,
                        &join_body_schema, &m->body, m->sig)) {
        n->malformed++;
        return;
    }
    if (view_index(&n->ballot.cert.body, &n->members.peers[peer].id) < 0) {
        ballot_joiner_add(&n->ballot, peer, m);
    } else { /* it is in already: the VIEW that says so was lost */
        (void)members_send(&n->members, n->out, peer, MESSAGE_VIEW,
                           &n->ballot.cert);
    }
}

void node_on_adopted(struct node *n)
{
    const struct view_body *v = &n->ballot.cert.body;
    struct round *r = &n->round;

    out_log(n->out, LOG_INFO, "view %llu: %u peers, round %llu%s",
            (unsigned long long)v->epoch, v->n_members,
            (unsigned long long)v->round, v->fork ? ", fork" : "");
    n->members.beat_at_ms = n->now; /* who joins waits to hear it */
    node_sync_reset(n);
    if (r->round == v->round && round_decided(r, &v->commit)) {
        node_on_committed(n); /* the view decided our round */
        return;
    }
    if (v->round > n->known.round ||
        (v->round == n->known.round &&
         !hash32_eq(&v->commit, &n->known.commit))) {
        n->known.round = v->round;
        n->known.tokens = v->tokens;
        n->known.commit = v->commit;
    }
    round_begin(r, n->known.round + 1, &n->known.commit,
                node_point_eq(&n->known, &n->applied) && !n->applying
                    ? &n->state_hash
                    : NULL,
                n->known.tokens, n->now, n->out);
}

/* ---- leaving ---------------------------------------------------------- */

/* Others may still need our bytes of the last commit: wait for them, but not
 * longer than the grace period. */
static bool others_hold_commit(const struct node *n)
{
    for (uint32_t i = 0; n->ballot.have && i < n->ballot.cert.body.n_members;
         i++) {
        int row = n->ballot.rows[i];

        if (row != MEMBERS_NONE && !(n->ballot.lost >> i & 1) &&
            n->members.peers[row].has_beat &&
            members_linked(&n->members, row) &&
            n->members.peers[row].beat.round < n->applied.round) {
            return false;
        }
    }
    return true;
}

static void drain_advance(struct node *n)
{
    struct goodbye bye = {.body = {.run = n->opt.run_id, .peer = n->opt.self}};
    uint64_t limit_ms = n->configured ? n->terms.grace_ms : 0;
    bool busy = n->applying || (n->round.has_plan && n->round.in_plan &&
                                n->round.phase != ROUND_COMMITTED);

    if (n->now - n->drain_ms < limit_ms && (busy || !others_hold_commit(n))) {
        return;
    }
    bye.body.epoch = n->ballot.have ? n->ballot.cert.body.epoch : 0;
    if (message_sign(&n->opt.signer, &goodbye_body_schema, &bye.body,
                     bye.sig) == 0) {
        members_tell_all(&n->members, n->out, MESSAGE_GOODBYE, &bye);
    }
    out_log(n->out, LOG_INFO, "drained after round %llu",
            (unsigned long long)n->applied.round);
    node_local_action(n, ACTION_STOP, n->applied.round);
    n->stopped = true;
}

static bool holds_known(const struct node *n, const struct heartbeat *b)
{
    return (b->round == n->known.round &&
            hash32_eq(&b->commit, &n->known.commit)) ||
           (b->round > n->known.round && b->has_view &&
            hash32_eq(&b->view, &n->ballot.hash));
}

/* Whether all members of our view are here and nobody holds the commit that
 * binds us: those who had applied it stopped before they wrote it down. */
static bool commit_is_gone(const struct node *n)
{
    const struct view_body *v = &n->ballot.cert.body;

    if (n->applying || n->known.round <= n->applied.round) {
        return false;
    }
    for (uint32_t i = 0; i < v->n_members; i++) {
        int row = n->ballot.rows[i];

        if ((int)i != n->ballot.self_index &&
            (!members_linked(&n->members, row) ||
             !n->members.peers[row].has_beat)) {
            return false;
        }
    }
    for (uint32_t i = 0; i < n->members.n_peers; i++) {
        const struct member *p = &n->members.peers[i];

        if (p->used && p->has_beat && p->n_links > 0 &&
            holds_known(n, &p->beat)) {
            return false;
        }
    }
    return true;
}

/* The newest round that somebody wrote wins: begin anew from there. */
static void watch_commit(struct node *n)
{
    if (!commit_is_gone(n)) {
        n->gone_ms = 0;
    } else if (n->gone_ms == 0) {
        n->gone_ms = n->now;
    } else if (n->now - n->gone_ms >= n->terms.fork_after_ms) {
        n->gone_ms = 0;
        leave_view(n, "nobody holds the commit that binds it");
    }
}

void node_view_advance(struct node *n)
{
    int best;

    if (n->stopped) {
        return;
    }
    if (n->draining) {
        drain_advance(n);
        return;
    }
    if (n->ballot.have && n->loaded && !n->finished) {
        watch_commit(n);
    }
    if (n->ballot.have || !n->loaded || n->applying || n->finished) {
        return;
    }
    best = node_best_peer(n);
    if (best == MEMBERS_NONE) {
        found_advance(n);
    } else {
        join_advance(n, best);
    }
}
