/* branch.c - other views of the run, and which of them to be in.
 *
 * With a view, heartbeats of others may name another one:
 *   newer and with us in it   -> GET_VIEW, ballot_view.c adopts it
 *   its ancestors hold ours   -> we were left out: join it
 *   our ancestors hold it     -> that peer was left out; it will see
 *   neither                   -> two branches: a view that is no fork wins
 *                                over one that is, then more members of the
 *                                last view before the fork, then more committed
 *                                tokens, then the lower commit hash, then the
 *                                higher epoch, then the lower view hash; the
 *                                losers join the winner
 *
 * Whoever is in a view believes none of it: only for a view that more than half
 * of ours signed, or whose chain is proven, it leaves its own.
 */
#include "daemon/node/internal.h"

#include <string.h>

#include "p2p/round/chain.h"
#include "proto/base/log.h"

#define ASK_MS 500 /* a view is asked for again after this */

/* One of those that led to the view that we were in before a restart. */
static bool is_ancestor(const struct node *n, const struct hash32 *view)
{
    bool found = hash32_eq(view, &n->ballot.cert.body.prev);

    for (uint32_t i = 0; i < n->proof.chain.n && !found; i++) {
        found = hash32_eq(view, &n->proof.chain.link[i].hash);
    }
    return found && !hash32_eq(view, &n->ballot.hash);
}

/* They can: node/view.c, may_found. */
bool node_can_go_on(const struct node *n)
{
    const struct view_body *v = &n->ballot.cert.body;
    uint32_t here = view_counts(v, &n->opt.self);

    for (uint32_t i = 0; i < n->members.n_peers; i++) {
        const struct member *p = &n->members.peers[i];

        here += p->used && p->has_beat && !p->lost && !p->beat.has_view &&
                p->beat.state != NODE_FINISHED &&
                members_linked(&n->members, (int)i) && view_counts(v, &p->id);
    }
    return 2 * here > view_n_full(v);
}

/* It was left out and does not know (frozen, say). There is no branch to wait
 * for: it would go on from where it stood, in a view of its own, and what was
 * committed since would be lost with us here to bring it. But where we are too
 * few to go on, it is the one who can take that from us. */
bool node_left_behind(const struct node *n, const struct member *p)
{
    uint64_t tokens = n->held.loaded         ? n->held.applied.tokens
                      : n->terms.holds_state ? n->terms.held_tokens
                                             : 0;

    return n->ballot.restored && p->has_beat && p->beat.has_view &&
           p->beat.state != NODE_FINISHED && p->beat.tokens <= tokens &&
           is_ancestor(n, &p->beat.view) && node_can_go_on(n);
}

/* It says that it has a view, or the end of the run. */
static bool claims_view(const struct node *n, int peer)
{
    const struct member *p = &n->members.peers[peer];

    return p->used && p->has_beat && !p->lost && node_same_stage(n, p) &&
           (p->beat.has_view || p->beat.state == NODE_FINISHED) &&
           members_linked(&n->members, peer) && !node_left_behind(n, p);
}

bool node_sees_claim(const struct node *n)
{
    for (uint32_t i = 0; i < n->members.n_peers; i++) {
        if (claims_view(n, (int)i)) {
            return true;
        }
    }
    return false;
}

/* Anybody can claim a view, and would keep us from founding one for ever: a
 * claim counts until there was time to prove it. */
bool node_sees_view(const struct node *n)
{
    bool young = !n->regime->has_views || node_proof_patience(n);

    for (uint32_t i = 0; i < n->members.n_peers; i++) {
        if (claims_view(n, (int)i) && (young || node_is_named(n, (int)i) ||
                                       node_proven_of(n, (int)i) != NULL)) {
            return true;
        }
    }
    return false;
}

/* What proven views stand for: what their members say together, or, until they
 * do, what the view began with. */
static void stand_for(const struct node *n,
                      struct node_point at[NODE_PROVEN_MAX])
{
    for (uint32_t i = 0; i < NODE_PROVEN_MAX; i++) {
        const struct node_proven *v = &n->proof.proven[i];
        struct hash32 state;

        if (v->used && !node_tip(n, v, &at[i], &state)) {
            at[i] = (struct node_point){v->body.round, v->body.tokens,
                                        v->body.commit};
        }
    }
}

/* Proven before not, then without weak ties, then the better branch. Of the
 * members of one proven view one that says what most say. What is not proven
 * counts after a while, and of the hosts in our invitation only. */
int node_best_peer(const struct node *n)
{
    int best = MEMBERS_NONE;
    uint32_t best_rank = 0;
    struct node_point best_at = {0}, stands[NODE_PROVEN_MAX];

    stand_for(n, stands);
    for (uint32_t i = 0; i < n->members.n_peers; i++) {
        const struct heartbeat *b = &n->members.peers[i].beat;
        const struct node_proven *v;
        struct node_point at;
        uint32_t rank;

        if (!claims_view(n, (int)i) ||
            (!n->regime->has_views && transfer_shuns(&n->transfer, (int)i))) {
            continue; /* the only one that has its replica, and spoils it */
        }
        v = node_proven_of(n, (int)i);
        if (v == NULL && n->regime->has_views &&
            (node_proof_patience(n) || !node_is_named(n, (int)i))) {
            continue;
        }
        at = v != NULL ? stands[v - n->proof.proven] : node_point_of(b);
        rank = v == NULL ? 0 : 2 + 2 * (v->n_weak == 0);
        rank += v != NULL && hash32_eq(&b->commit, &at.commit);
        if (best == MEMBERS_NONE || rank > best_rank ||
            (rank == best_rank && node_point_ahead(&at, &best_at))) {
            best = (int)i;
            best_rank = rank;
            best_at = at;
        }
    }
    return best;
}

/* How many members of the last view before the fork are in it: nobody can
 * invent one of these. A view that is no fork holds more than half of them. */
static uint32_t n_roots_of(const struct view_body *v)
{
    uint32_t n = 0;

    for (uint32_t i = 0; v->fork && i < v->n_roots; i++) {
        n += view_index(v, &v->roots[i]) >= 0;
    }
    return v->fork ? n : UINT32_MAX;
}

/* The view that we are in, or were in. */
bool node_tip_ahead(const struct node *n,
                    const struct node_proven *v,
                    const struct node_point *tip)
{
    const struct view_body *b = &n->ballot.cert.body;
    bool known = n->ballot.have || n->ballot.restored;
    uint32_t ours = known ? n_roots_of(b) : 0;
    uint32_t theirs = n_roots_of(&v->body);

    /* Views of one founding that are no forks follow each other: more than half
     * of the earlier one went on in the later. */
    if (known && !b->fork && !v->body.fork && b->epoch != v->body.epoch) {
        return v->body.epoch > b->epoch;
    }
    return ours != theirs ? theirs > ours
                          : node_point_ahead(tip, &n->held.applied);
}

bool node_beat_ahead(const struct node *n, const struct heartbeat *b)
{
    struct node_point theirs = node_point_of(b);

    return node_point_ahead(&theirs, &n->held.applied);
}

/* ---- giving up a view ------------------------------------------------- */

/* The attempts of rounds, that is. All others only grow, whatever view we are
 * in: without its bound what a source still sends of a fetch that was stopped
 * would stand unposted before all else on its connection. */
void node_cancel_rounds(struct node *n)
{
    node_cancel(n, STREAM_RING, 0);
}

/* For a view of others, or none. Our displacement since the last commit is
 * kept over the reload unless it was in a ring: the others may have committed
 * it, or the part of it that was done, without us. */
void node_leave_view(struct node *n, const char *why)
{
    out_log(n->out, LOG_WARN, "leaving view %llu at round %llu: %s",
            (unsigned long long)n->ballot.cert.body.epoch,
            (unsigned long long)n->held.known.round, why);
    node_sync_keep(n, !n->round.exposed);
    round_leave(&n->round, n->out);
    ballot_drop_view(&n->ballot, n->now);
    node_held_know(&n->held, &n->held.applied);
    n->branch.has_other = false;
    node_sync_reset(n);
    node_pipe_leave(n);
    node_audit_stop(n);
    node_work_stop(n);
    node_cancel_rounds(n);
}

static bool holds_known(const struct node *n, const struct heartbeat *b)
{
    return (b->round == n->held.known.round &&
            hash32_eq(&b->commit, &n->held.known.commit)) ||
           (b->round > n->held.known.round && b->has_view &&
            hash32_eq(&b->view, &n->ballot.hash));
}

/* Whether all members of our view are here and nobody holds the commit that
 * binds us: those who had applied it stopped before they wrote it down. */
static bool commit_is_gone(const struct node *n)
{
    const struct view_body *v = &n->ballot.cert.body;

    if (n->held.applying || n->held.known.round <= n->held.applied.round) {
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

void node_watch_commit(struct node *n)
{
    if (!commit_is_gone(n)) {
        n->branch.gone_ms = 0;
    } else if (n->branch.gone_ms == 0) {
        n->branch.gone_ms = n->now;
    } else if (n->now - n->branch.gone_ms >= n->terms.fork_after_ms) {
        n->branch.gone_ms = 0;
        node_leave_view(n, "no member holds the commit that the view names");
    }
}

/* ---- views of others -------------------------------------------------- */

static void ask_view(struct node *n, int peer)
{
    struct get_view ask = {.lineage = true};

    if (n->now >= n->branch.view_ask_ms) {
        n->branch.view_ask_ms = n->now + ASK_MS;
        n->branch.asked = peer;
        (void)members_send(&n->members, n->out, peer, MESSAGE_GET_VIEW, &ask);
    }
}

/* A member that says it has no view has left ours (or restarted): it will not
 * take part. Right after a change it may only not have heard of it yet. */
static void check_still_in(struct node *n, int peer, const struct heartbeat *m)
{
    const struct peer_id *id = &n->members.peers[peer].id;
    int at = ballot_index(&n->ballot, id);

    if (at < 0 || m->has_view || (n->ballot.lost >> at & 1) ||
        n->now - n->ballot.adopted_ms < n->t.dead_ms) {
        return;
    }
    node_note_lost(n, id, 0, "left the view");
    ballot_lost(&n->ballot, id);
    ballot_want_without(&n->ballot, id, n->now);
}

/* Whether that peer (row) is here and says that it is in the pending view. */
static bool is_in_pending(const struct node *n, int row)
{
    const struct heartbeat *b =
        row == MEMBERS_NONE ? NULL : &n->members.peers[row].beat;

    return b != NULL && members_linked(&n->members, row) &&
           n->members.peers[row].has_beat && b->has_view &&
           hash32_eq(&b->view, &n->ballot.pending_hash);
}

/* Whether the pending view is the run's: two keys can make one that names us,
 * and say that they are in it. Where nothing can be proven, a host of our
 * invitation is in it. */
static bool may_enter(struct node *n)
{
    const struct node_proven *v = node_proven_view(n, &n->ballot.pending_hash);

    if (n->branch.follows || n->ballot.have) {
        return n->branch.follows ||
               (node_proof_allows(n, &n->ballot.pending_hash) &&
                !node_proof_is_other(n, &n->ballot.pending_hash));
    }
    for (uint32_t i = 0; i < n->members.n_peers; i++) {
        if (is_in_pending(n, (int)i) &&
            (v == NULL ? !node_proof_patience(n) && node_is_named(n, (int)i)
                       : node_proven_of(n, (int)i) == v)) {
            return true;
        }
    }
    return false;
}

/* A view that follows one we do not know is entered when it is the run's and at
 * least half of its other members say, each over its own link, that they are in
 * it. Those who join with it do not count: they wait for the same as we. */
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

        if (!view_counted_before(v, i) || id_eq(&id, &n->opt.self)) {
            continue;
        }
        others++;
        there += is_in_pending(n, row);
    }
    if (there > 0 && 2 * there >= others && may_enter(n)) {
        c = node_context(n);
        ballot_confirm(&n->ballot, &c);
    }
}

/* It says that its last heartbeat still holds. */
void node_on_pulse(struct node *n, int peer, const struct pulse *m)
{
    struct heartbeat last;

    members_on_pulse(&n->members, peer, m, n->out);
    last = n->members.peers[peer].beat;
    if (n->members.peers[peer].has_beat && !n->members.peers[peer].behind) {
        node_on_heartbeat(n, peer, &last);
    }
}

void node_learn_members(struct node *n, const struct view_body *v)
{
    for (uint32_t i = 0; i < v->n_members; i++) {
        struct peer_id id = view_member_id(&v->members[i]);
        struct address a = {.port = v->members[i].address.port};
        int row;

        memcpy(a.ip, v->members[i].address.ip, sizeof a.ip);
        row = members_learn_here(&n->members, &id, &a, n->now);
        if (row != MEMBERS_NONE) {
            node_view_guest(n, row);
        }
    }
}

/* It was a member with us, of this view or of the last one that was no fork, or
 * our invitation names it: anybody else can say what it likes of the end. */
static bool took_part(const struct node *n, int peer)
{
    const struct view_body *v = &n->ballot.cert.body;
    const struct peer_id *id = &n->members.peers[peer].id;

    for (uint32_t i = 0; i < v->n_roots; i++) {
        if (id_eq(&v->roots[i], id)) {
            return true;
        }
    }
    return view_index(v, id) >= 0 || node_is_named(n, peer);
}

/* Who has finished and started again has no view that would prove anything:
 * then more of those that took part say that end than say ours. */
static bool more_ended_there(const struct node *n, const struct heartbeat *m)
{
    uint32_t there = 0, here = 1;

    for (uint32_t i = 0; i < n->members.n_peers; i++) {
        const struct member *p = &n->members.peers[i];

        if (p->used && p->has_beat && p->beat.state == NODE_FINISHED &&
            node_same_stage(n, p) && members_linked(&n->members, (int)i) &&
            took_part(n, (int)i)) {
            there += hash32_eq(&p->beat.commit, &m->commit);
            here += hash32_eq(&p->beat.commit, &n->held.applied.commit);
        }
    }
    return there > here;
}

/* Whether the branch that this heartbeat is of has really come to a better end:
 * anybody can say so. Its view is proven to be of our founding, and what its
 * members say together is ahead of us. */
static bool ended_ahead(struct node *n, const struct heartbeat *m)
{
    const struct node_proven *v;
    struct node_point tip;
    struct hash32 state;

    if (!m->has_view) {
        return node_beat_ahead(n, m) && more_ended_there(n, m);
    }
    if (hash32_eq(&m->view, &n->ballot.hash) ||
        !node_proof_allows(n, &m->view)) {
        return false;
    }
    v = node_proven_view(n, &m->view);
    return node_tip(n, v, &tip, &state) && node_tip_ahead(n, v, &tip);
}

/* A member of our view that holds a commit that we do not, as it says. */
static bool is_ahead(const struct node *n, const struct member *p)
{
    return p->used && p->has_beat && p->n_links > 0 && p->beat.has_view &&
           hash32_eq(&p->beat.view, &n->ballot.hash) &&
           ballot_index(&n->ballot, &p->id) >= 0 &&
           p->beat.round > n->held.known.round;
}

/* Any of those, or one that says so at the right times and has nothing is asked
 * each time. */
static void ask_commit(struct node *n)
{
    struct get_commit ask = {.round = n->held.known.round + 1};
    int peer = node_pick(n, is_ahead);

    if (peer != MEMBERS_NONE) {
        n->branch.commit_ask_ms = n->now + ASK_MS;
        (void)members_send(&n->members, n->out, peer, MESSAGE_GET_COMMIT, &ask);
    }
}

void node_on_heartbeat(struct node *n, int peer, const struct heartbeat *m)
{
    uint8_t was = n->members.peers[peer].way.reach;

    node_twin_accepted(n);
    members_beat(&n->members, peer, m, n->now);
    if (was != m->reach) {
        node_dht_seen(n, peer);
    }
    confirm_view(n);
    if (n->ballot.have && n->finished && m->state == NODE_FINISHED &&
        node_same_stage(n, &n->members.peers[peer]) && ended_ahead(n, m)) {
        node_leave_view(n, "another branch of the run ended ahead of ours");
        return;
    }
    if (n->ballot.have) {
        check_still_in(n, peer, m);
    }
    if (!n->ballot.have || !m->has_view ||
        !node_same_stage(n, &n->members.peers[peer])) {
        return;
    }
    if (hash32_eq(&m->view, &n->ballot.hash)) {
        if (m->round > n->held.known.round &&
            n->now >= n->branch.commit_ask_ms) {
            ask_commit(n);
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

/* The view of a peer that we asked, and we are not in it. More than half of our
 * own view signed it: the others went on. Else it is kept until the LINEAGE
 * that comes with it. */
static void consider(struct node *n, int peer, const struct view_cert *m)
{
    const struct view_body *ours = &n->ballot.cert.body;

    if (m->body.epoch > ours->epoch &&
        chain_follows(ours, &n->ballot.hash, m, &n->opt.signer)) {
        node_leave_view(n, "the others went on without this peer");
        return;
    }
    n->branch.has_other = true;
    n->branch.other = m->body;
    n->branch.other_peer = peer;
    view_hash(&m->body, &n->branch.other_hash);
}

/* One that names us. What is known to be the run's waits for its members; it
 * does not give way to what anybody can make up. */
static void take_view(struct node *n, const struct view_cert *m)
{
    struct ballot_context c = node_context(n);
    bool ours = n->ballot.have && hash32_eq(&m->body.prev, &n->ballot.hash);
    bool follows = !ours && node_proof_follows(n, m);
    struct hash32 hash;

    view_hash(&m->body, &hash);
    if (ours || follows || !n->ballot.has_pending || !n->branch.follows) {
        ballot_on_view(&n->ballot, &c, m);
        if (n->ballot.has_pending &&
            hash32_eq(&hash, &n->ballot.pending_hash)) {
            n->branch.follows = follows;
        }
    }
    confirm_view(n);
}

/* Whether more than half of our view say that they are in it. */
static bool most_are_in(const struct node *n)
{
    const struct ballot *b = &n->ballot;
    uint64_t mask = 1ULL << b->self_index;

    for (uint32_t i = 0; i < b->cert.body.n_members; i++) {
        const struct member *p =
            b->rows[i] == MEMBERS_NONE ? NULL : &n->members.peers[b->rows[i]];

        mask |= p != NULL && p->has_beat && p->beat.has_view &&
                        members_linked(&n->members, b->rows[i]) &&
                        hash32_eq(&p->beat.view, &b->hash)
                    ? 1ULL << i
                    : 0;
    }
    return view_quorum(&b->cert.body, mask, b->departed.mask);
}

/* It names us, too, but does not follow ours: an owner signed two values. Those
 * who can go on in ours do, and the others follow them. */
static bool is_twin(const struct node *n,
                    const struct view_body *v,
                    const struct hash32 *hash)
{
    return v->epoch == n->ballot.cert.body.epoch &&
           !hash32_eq(hash, &n->ballot.hash) && !most_are_in(n);
}

void node_on_view_cert(struct node *n, int peer, const struct view_cert *m)
{
    bool asked = n->branch.asked == peer;
    struct hash32 hash;

    if (!n->finished && view_index_key(&m->body, n->opt.public_key) >= 0) {
        take_view(n, m);
    }
    if (!hash32_eq(&m->body.run, &n->group) || !view_well_formed(&m->body)) {
        return;
    }
    view_hash(&m->body, &hash);
    if (!n->ballot.have && n->held.loaded && !n->finished &&
        (node_proven_view(n, &hash) != NULL ||
         (node_is_named(n, peer) && !node_proof_patience(n)))) {
        node_learn_members(n, &m->body);
    }
    if (asked && !n->ballot.adopted && n->ballot.have &&
        (view_index_key(&m->body, n->opt.public_key) < 0 ||
         is_twin(n, &m->body, &hash))) {
        consider(n, peer, m);
    }
}

/* Whether our branch gives way to the other one that we were shown; `b` is the
 * last heartbeat of the peer that showed it. */
static bool loses_to(const struct node *n, const struct heartbeat *b)
{
    const struct view_body *ours = &n->ballot.cert.body;
    const struct view_body *theirs = &n->branch.other;
    bool newer = b->has_view && b->tokens > theirs->tokens;
    uint64_t tokens = newer ? b->tokens : theirs->tokens;
    const struct hash32 *commit = b->has_view ? &b->commit : &theirs->commit;
    int order = hash32_cmp(&n->held.known.commit, commit);
    uint32_t our_roots = n_roots_of(ours), their_roots = n_roots_of(theirs);

    if (our_roots != their_roots) {
        return their_roots > our_roots;
    }
    if (tokens != n->held.known.tokens) {
        return tokens > n->held.known.tokens;
    }
    if (order != 0) {
        return order > 0;
    }
    /* A joiner knows few ancestors: an older view of the same commit is more
     * likely one of them than another branch. */
    if (ours->epoch != theirs->epoch) {
        return ours->epoch < theirs->epoch;
    }
    return hash32_cmp(&n->ballot.hash, &n->branch.other_hash) > 0;
}

/* A hint: what it says of the past is asked for as a proof. */
void node_on_lineage(struct node *n, int peer, const struct lineage *m)
{
    const struct view_body *ours = &n->ballot.cert.body;
    const struct view_body *theirs = &n->branch.other;
    bool names_ours = false, loses;

    if (!n->branch.has_other || peer != n->branch.other_peer ||
        !n->ballot.have) {
        return;
    }
    n->branch.has_other = false;
    n->branch.asked = MEMBERS_NONE;
    for (uint32_t i = 0; i < m->n_hashes && theirs->epoch > ours->epoch; i++) {
        names_ours = names_ours || hash32_eq(&m->hashes[i], &n->ballot.hash);
    }
    if (ballot_descends_from(&n->ballot, &n->branch.other_hash)) {
        return;
    }
    loses = names_ours ? n_roots_of(theirs) >= n_roots_of(ours)
                       : loses_to(n, &n->members.peers[peer].beat);
    /* Before the first commit it may be of another founding: that has an order
     * of its own. */
    if ((loses || n->held.known.round == 0) &&
        node_proof_allows(n, &n->branch.other_hash) &&
        (loses || node_proof_is_other(n, &n->branch.other_hash))) {
        if (node_proof_is_other(n, &n->branch.other_hash)) {
            node_proof_change_founding(n);
        }
        node_leave_view(n, names_ours ? "the others went on without this peer"
                           : ours->fork || theirs->fork
                               ? "the cut has healed and the other branch is "
                                 "ahead"
                               : "another branch of the run is ahead");
    }
}

void node_branch_gap(struct node *n)
{
    n->branch.gone_ms = 0;
}

void node_branch_forget(struct node *n)
{
    n->branch.has_other = false;
    n->branch.asked = MEMBERS_NONE;
    n->branch.gone_ms = 0;
}
