/* view.c - coming into a view and going: founding, joining, losses,
 * leaving. Other views of the run are node/branch.c's.
 *
 * Without a view: if some linked peer has one, hold its newest commit
 * (node/sync.c) and ask to be let in (JOIN); if nobody has, the peer with the
 * lowest id founds one when enough of them are ready.
 */
#include "daemon/node/internal.h"

#include <string.h>

#include "p2p/prefix.h"
#include "proto/base/err.h"
#include "proto/base/log.h"
#include "proto/hash.h"

#define ASK_MS        500  /* JOIN is said again after this */
#define JOIN_FRESH_MS 2000 /* who said it no longer ago still wants in */
/* A higher epoch is a lie: some hundred years of views. */
#define EPOCH_HEARD_MAX (UINT32_MAX / 2)
/* Candidates must not change for this before founding. */
#define STABLE_MS   600
#define UNLINKED_MS 4000 /* the same where two candidates have no link */
/* Members of a view that a joiner keeps links to, beside its neighbours. */
#define GUESTS_MAX 16
#define MEMBERS_MS 5000 /* they are asked for again after this */

/* ---- losses ----------------------------------------------------------- */

void node_note_lost(struct node *n,
                    const struct peer_id *id,
                    uint32_t silent_ms,
                    const char *reason)
{
    char text[ID_SHORT_MAX];

    memmove(n->lost + 1, n->lost, (NODE_LOST_MAX - 1) * sizeof n->lost[0]);
    n->lost[0] = (struct node_lost){
        .peer = *id,
        .round = n->held.known.round,
        .detected_ms = silent_ms,
        .reason = reason,
    };
    n->n_lost += n->n_lost < NODE_LOST_MAX;
    node_timeline_lost(n, id, reason);
    id_short(id, text);
    out_log(n->out, LOG_WARN,
            "lost peer %s after round %llu: %s (%u ms after its last sign)",
            text, (unsigned long long)n->held.known.round, reason, silent_ms);
}

void node_on_lost(struct node *n, const struct members_lost *lost)
{
    const struct peer_id *id = &n->members.peers[lost->peer].id;
    int at = ballot_index(&n->ballot, id);

    node_dht_unreachable(n, lost->peer);
    if (at < 0 || (n->ballot.lost >> at & 1)) {
        return;
    }
    node_note_lost(n, id, lost->silent_ms, lost->reason);
    ballot_lost(&n->ballot, id);
    ballot_want_without(&n->ballot, id, n->now);
}

void node_on_hello(struct node *n, int peer, const struct hello *m)
{
    struct member *p = &n->members.peers[peer];
    int at = ballot_index(&n->ballot, &p->id);

    node_on_observed(n, &m->observed);
    memcpy(p->sees_us, m->observed.ip, sizeof p->sees_us);
    p->version = m->newest < n->opt.newest ? m->newest : n->opt.newest;
    members_features(&n->members, peer, m->features & n->opt.features);
    if (p->life != 0 && p->life != m->life) {
        p->has_beat = false;
        if (at >= 0 && !(n->ballot.lost >> at & 1)) {
            node_note_lost(n, &p->id, 0, "restarted");
            ballot_lost(&n->ballot, &p->id);
            ballot_want_without(&n->ballot, &p->id, n->now);
        }
    }
    p->life = m->life;
}

/* Goodbye to the run, or, where the model is cut, to our stage for another. */
void node_on_goodbye(struct node *n, int peer, const struct goodbye *m)
{
    struct member *p = &n->members.peers[peer];
    bool all = hash32_eq(&m->body.run, &n->opt.run_id);

    if (!all && !n->inner->whole && !hash32_eq(&m->body.run, &n->group)) {
        return; /* to a stage that is not ours */
    }
    if (!id_eq(&m->body.peer, &p->id) ||
        !(all || hash32_eq(&m->body.run, &n->group)) ||
        !message_verify(&n->opt.signer, p->public_key, &goodbye_body_schema,
                        &m->body, m->sig)) {
        n->malformed++;
        return;
    }
    if (all) {
        members_left(&n->members, peer);
    }
    node_timeline_left(n, &p->id);
    if (hash32_eq(&m->body.run, &n->group)) {
        ballot_departed(&n->ballot, m);
    } else {
        ballot_lost(&n->ballot, &p->id); /* of a stage: it says both */
    }
    ballot_want_without(&n->ballot, &p->id, n->now);
}

void node_convict(struct node *n, const struct peer_id *id)
{
    ballot_convict(&n->ballot, id);
    work_convict(&n->work.core, id);
}

/* ---- founding and joining --------------------------------------------- */

/* A candidate to found, and what decides. */
struct founder {
    uint64_t epoch;  /* of the view that it was in; 0: none */
    uint32_t linked; /* candidates, and itself */
    const struct peer_id *id;
};

static struct founder founder_of(const struct member *p)
{
    uint64_t epoch = p->beat.epoch <= EPOCH_HEARD_MAX ? p->beat.epoch : 0;

    return (struct founder){epoch, p->beat.linked_candidates, &p->id};
}

/* Who was in the newest view founds: it knows whose majority that takes. Then
 * who is linked to more candidates; of equal ones the lowest id. So two who
 * cannot link each other still get into the first view, by one who can link
 * both. */
static bool leads(const struct founder *a, const struct founder *b)
{
    if (a->epoch != b->epoch) {
        return a->epoch > b->epoch;
    }
    return a->linked > b->linked ||
           (a->linked == b->linked && id_cmp(a->id, b->id) < 0);
}

/* Those whose heartbeats matter while we have no view. */
static void keep_guests(struct node *n)
{
    uint32_t kept = 0;

    for (uint32_t i = 0; i < n->members.n_peers && kept < GUESTS_MAX; i++) {
        const struct member *p = &n->members.peers[i];

        if (p->used && p->n_links > 0 && p->has_beat && p->beat.has_view) {
            members_guest(&n->members, (int)i, true);
            n->view.has_guests = true;
            kept++;
        }
    }
}

static void drop_guests(struct node *n)
{
    for (uint32_t i = 0; i < n->members.n_peers && n->view.has_guests; i++) {
        members_guest(&n->members, (int)i, false);
    }
    n->view.has_guests = false;
}

/* To be let in we must be linked to those who decide. */
static void ask_members(struct node *n, int best)
{
    struct get_view ask = {.lineage = false};

    if (n->now >= n->view.members_ask_ms) {
        n->view.members_ask_ms = n->now + MEMBERS_MS;
        (void)members_send(&n->members, n->out, best, MESSAGE_GET_VIEW, &ask);
    }
}

/* How long the candidates must have been the same ones. Some who are not
 * linked to each other yet are given time: in the first view they would be a
 * pair without an edge. */
static uint32_t
stable_ms(const struct node *n, const int *rows, uint32_t n_rows)
{
    for (uint32_t i = 0; i < n_rows; i++) {
        if (n->members.peers[rows[i]].beat.linked_candidates < n_rows + 1) {
            return UNLINKED_MS * n->opt.time_scale;
        }
    }
    return STABLE_MS * n->opt.time_scale;
}

/* The others that could sign a first view: rows of them, and of these who would
 * be first to found it. Returns how many. */
static uint32_t candidates(struct node *n, int *rows, struct founder *first)
{
    struct hash_state h;
    struct hash32 set;
    uint32_t n_rows = 0;

    hash_init(&h, "candidates");
    for (uint32_t i = 0; i < n->members.n_peers; i++) {
        const struct member *p = &n->members.peers[i];
        struct founder at = founder_of(p);

        if (!p->used || !p->has_beat || !p->beat.ready || p->beat.has_view ||
            p->lost || !node_same_stage(n, p) ||
            !members_linked(&n->members, (int)i) ||
            ballot_is_convict(&n->ballot, &p->id)) {
            continue;
        }
        if (n_rows < VIEW_MEMBERS_MAX - 1) {
            rows[n_rows++] = (int)i;
            hash_update(&h, p->id.b, sizeof p->id.b);
        }
        if (first->id == NULL || leads(&at, first)) {
            *first = at;
        }
    }
    hash_final(&h, &set);
    if (!hash32_eq(&set, &n->view.found_set) || n->view.found_stable_ms == 0) {
        n->view.found_set = set;
        n->view.found_stable_ms = n->now;
        n->view.doubt_ms = n->now;
    }
    return n_rows;
}

/* Of the candidates and ourselves, full members of the view that we were in. */
static uint32_t of_old_view(const struct node *n, const int *rows, uint32_t k)
{
    uint32_t there = view_counts(&n->ballot.cert.body, &n->opt.self);

    for (uint32_t i = 0; i < k; i++) {
        there +=
            view_counts(&n->ballot.cert.body, &n->members.peers[rows[i]].id);
    }
    return there;
}

/* Whether a view of these may be: a first one of enough peers, or one that
 * more than half of the last view make, as no other can then follow that one.
 * In doubt for fork_after_ms any who are left may go on; their view is marked
 * (ballot_value.c). */
static bool may_found(const struct node *n,
                      const int *rows,
                      uint32_t n_rows,
                      struct ballot_founding *f)
{
    bool waits = n->now - n->view.doubt_ms < n->terms.fork_after_ms;

    f->least = node_group_min(n);
    f->least_old = 0;
    if (n->ballot.restored) {
        f->least = 1;
        f->least_old = waits ? view_n_full(&n->ballot.cert.body) / 2 + 1 : 0;
        return of_old_view(n, rows, n_rows) >= f->least_old;
    }
    /* Commits, and nobody of those who made them. */
    return n_rows + 1 >= f->least && (n->held.applied.round == 0 || !waits);
}

static void found_advance(struct node *n)
{
    struct ballot_context c;
    int rows[VIEW_MEMBERS_MAX];
    struct ballot_founding f = {0};
    struct founder first = {0}, self = {.id = &n->opt.self};
    uint32_t n_rows = candidates(n, rows, &first);
    bool may = may_found(n, rows, n_rows, &f);

    n->view.linked_candidates = (uint8_t)(n_rows + 1);
    self.linked = n->view.linked_candidates;
    if (n->ballot.restored) {
        self.epoch = n->ballot.cert.body.epoch;
    }
    f.epoch = 1 + (first.epoch > self.epoch ? first.epoch : self.epoch);
    /* Whoever founds needs a link to everybody who is to sign. */
    members_want_links(&n->members,
                       NODE_LINKS_WANTED +
                           (f.least > f.least_old ? f.least : f.least_old));
    if (!may || !node_stage_may_found(n) ||
        (first.id != NULL && leads(&first, &self)) ||
        n->now - n->view.found_stable_ms < stable_ms(n, rows, n_rows) ||
        (n->members.n_bootstrap > 0 && !n->members.reached)) {
        return;
    }
    c = node_context(n);
    ballot_found(&n->ballot, &c, rows, n_rows, &f);
}

/* We hold the newest commit, or the one before and are fetching it: a round can
 * be as short as that takes, and nobody waits for us outside. */
static bool is_in_step(const struct node *n, const struct heartbeat *b)
{
    return hash32_eq(&b->commit, &n->held.applied.commit) ||
           (b->round == n->held.applied.round + 1 &&
            n->held.applied.round > 0 && n->held.target.round == b->round &&
            hash32_eq(&n->held.target.commit, &b->commit) &&
            (n->sync.phase == SYNC_REDUCED ||
             n->sync.phase == SYNC_REDUCED_HASH));
}

/* Each member compares the address with that of our link to it, so it is told
 * what it says of that: one that lies, or sees another address of ours than the
 * others do, spoils our JOIN for itself only. */
static void send_join(struct node *n, int row, struct join *msg)
{
    const uint8_t *ip = n->members.peers[row].sees_us;

    ip = prefix_is_nowhere(ip) ? n->members.observed.ip : ip; /* a relay's */
    memcpy(msg->body.address.ip, ip, sizeof msg->body.address.ip);
    if (message_sign(&n->opt.signer, &join_body_schema, &msg->body, msg->sig) ==
        0) {
        (void)members_send(&n->members, n->out, row, MESSAGE_JOIN, msg);
    }
}

static void join_advance(struct node *n, int best)
{
    struct join msg = {0};
    int rows[LINKS_MAX];
    uint32_t n_rows = 0;

    ask_members(n, best);
    if (n->now < n->view.join_ms ||
        !is_in_step(n, &n->members.peers[best].beat)) {
        return;
    }
    n->view.join_ms = n->now + ASK_MS;
    msg.body.run = n->group;
    msg.body.view = n->members.peers[best].beat.view;
    msg.body.round = n->held.applied.round;
    msg.body.commit = n->held.applied.commit;
    msg.body.state = n->held.state_hash;
    message_join_proof(&msg.body, &n->held.sample, &n->opt.self,
                       &msg.body.proof);
    msg.body.address.port = n->members.observed.port;
    for (uint32_t i = 0; i < n->members.n_peers && n_rows < LINKS_MAX; i++) {
        const struct member *p = &n->members.peers[i];

        if (p->used && p->has_beat && p->beat.has_view && p->n_links > 0 &&
            node_same_stage(n, p)) {
            rows[n_rows++] = (int)i;
            if (msg.body.n_linked < VIEW_MEMBERS_MAX &&
                hash32_eq(&p->beat.view, &msg.body.view)) {
                msg.body.linked[msg.body.n_linked++] =
                    (uint32_t)(id_u64(&p->id) >> 32);
            }
        }
    }
    for (uint32_t i = 0; i < n_rows; i++) {
        send_join(n, rows[i], &msg);
    }
}

/* Whether it names our newest commit, or the one before that. */
static bool names_newest(const struct node *n, const struct join_body *m)
{
    const struct plan_body *p = &n->round.last.plan.body;

    if (m->round == n->held.known.round) {
        return hash32_eq(&m->commit, &n->held.known.commit);
    }
    return m->round > 0 && m->round + 1 == n->held.known.round &&
           n->round.has_last && p->round == n->held.known.round &&
           hash32_eq(&n->round.last_hash, &n->held.known.commit) &&
           hash32_eq(&m->commit, &p->base);
}

/* Whether that peer holds the state that it names. A state of which we cannot
 * say so proves nothing: we have not applied that commit, or came after it. It
 * asks again. A wrong proof of one that we held is forged. */
static bool
holds_state(struct node *n, const struct peer_id *id, const struct join_body *m)
{
    const struct past_state *past = node_past_at(n, m->round);
    struct hash32 proof;

    if (past == NULL || !hash32_eq(&m->commit, &past->commit) ||
        !hash32_eq(&m->state, &past->state)) {
        return false;
    }
    message_join_proof(m, &past->sample, id, &proof);
    if (!hash32_eq(&m->proof, &proof)) {
        n->malformed++;
        members_forged(&n->members, n->heard_link, n->out);
        return false;
    }
    return true;
}

void node_on_join(struct node *n, int peer, const struct join *m)
{
    const struct member *p = &n->members.peers[peer];

    if (!n->ballot.have || n->finished || n->draining ||
        !hash32_eq(&m->body.run, &n->group) || !names_newest(n, &m->body) ||
        !members_may_be_at(&n->members, n->heard_link, m->body.address.ip) ||
        !holds_state(n, &p->id, &m->body)) {
        return;
    }
    if (!message_verify(&n->opt.signer, p->public_key, &join_body_schema,
                        &m->body, m->sig)) {
        n->malformed++;
        return;
    }
    if (ballot_index(&n->ballot, &p->id) < 0) {
        ballot_joiner_add(&n->ballot, peer, m, n->held.known.round,
                          &n->held.known.commit, n->now);
    } else { /* it is in already: the VIEW that says so was lost */
        (void)members_send(&n->members, n->out, peer, MESSAGE_VIEW,
                           &n->ballot.cert);
    }
}

void node_joiners_follow(struct node *n, const struct hash32 *base)
{
    uint64_t fresh_ms = node_scaled(n, JOIN_FRESH_MS);

    ballot_joiners_follow(&n->ballot, base, n->held.known.round,
                          &n->held.known.commit,
                          n->now > fresh_ms ? n->now - fresh_ms : 0);
}

/* The others left somebody out before we noticed anything ourselves. */
static void note_left_out(struct node *n)
{
    struct peer_id ids[VIEW_MEMBERS_MAX];
    uint32_t n_out = ballot_take_left_out(&n->ballot, ids);

    for (uint32_t i = 0; i < n_out; i++) {
        const struct peer_id *id = &ids[i];
        int row = members_find(&n->members, id);
        uint64_t silent_ms =
            row == MEMBERS_NONE ? 0 : n->now - n->members.peers[row].heard_ms;

        node_note_lost(n, id, silent_ms > UINT32_MAX ? 0 : (uint32_t)silent_ms,
                       "left out by the other members");
    }
}

void node_on_adopted(struct node *n)
{
    const struct view_body *v = &n->ballot.cert.body;
    struct round *r = &n->round;

    out_log(n->out, LOG_INFO, "view %llu: %u peers, round %llu%s",
            (unsigned long long)v->epoch, v->n_members,
            (unsigned long long)v->round, v->fork ? ", fork" : "");
    if (v->members[n->ballot.self_index].full_since == v->epoch &&
        v->members[n->ballot.self_index].joined != v->epoch) {
        out_log(n->out, LOG_INFO, "probation is over: this peer's work counts");
    }
    note_left_out(n);
    members_want_links(&n->members, NODE_LINKS_WANTED);
    bandwidth_tell_anew(&n->bandwidth.map);
    n->view.linked_candidates = 0;
    n->view.entered = true;
    node_proof_adopted(n);
    drop_guests(n);
    if (!hash32_eq(&n->held.target.commit, &v->commit)) {
        node_sync_reset(n); /* else it is what we are fetching */
    }
    if (r->round == v->round && round_decided(r, &v->commit)) {
        node_on_committed(n); /* the view decided our round */
        return;
    }
    /* A later one that is not applied here is of the branch that we left. */
    if (v->round > n->held.known.round ||
        (v->round == n->held.known.round &&
         !hash32_eq(&v->commit, &n->held.known.commit)) ||
        (v->round < n->held.known.round && n->held.applied.round <= v->round)) {
        node_held_know(&n->held,
                       &(struct node_point){v->round, v->tokens, v->commit});
    }
    node_quorum_withdraw(n);
    node_next_round(n);
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
            n->members.peers[row].beat.round < n->held.applied.round) {
            return false;
        }
    }
    return true;
}

static void say_goodbye(struct node *n, const struct hash32 *group)
{
    struct goodbye bye = {.body = {.run = *group, .peer = n->opt.self}};

    bye.body.epoch = n->ballot.have ? n->ballot.cert.body.epoch : 0;
    if (message_sign(&n->opt.signer, &goodbye_body_schema, &bye.body,
                     bye.sig) == 0) {
        members_tell_all(&n->members, n->out, MESSAGE_GOODBYE, &bye);
    }
}

static void drain_advance(struct node *n)
{
    uint64_t limit_ms = n->data.configured ? n->terms.grace_ms : 0;
    bool busy = n->held.applying || n->regime->busy(n);

    if (n->now - n->drain_ms < limit_ms && (busy || !others_hold_commit(n))) {
        return;
    }
    if (!hash32_eq(&n->group, &n->opt.run_id)) {
        say_goodbye(n, &n->group); /* which its members show to others */
    }
    say_goodbye(n, &n->opt.run_id);
    out_log(n->out, LOG_INFO, "drained after round %llu",
            (unsigned long long)n->held.applied.round);
    node_stop(n, LOCO_EXIT_OK);
}

/* Who comes back with the end of the run on its disk is in the view again that
 * came to it: nothing is decided there any more, and others believe the members
 * of a proven view, not whoever says that the run is over. */
static void return_to_view(struct node *n)
{
    const struct view_body *v = &n->ballot.cert.body;
    const struct node_point *at = &n->held.applied;

    if (n->view.entered || !n->ballot.restored || !n->terms.holds_state ||
        !hash32_eq(&at->commit, &n->terms.held_commit) ||
        v->round > at->round ||
        (v->round == at->round && !hash32_eq(&v->commit, &at->commit))) {
        return;
    }
    n->view.entered = ballot_return(&n->ballot, n->now);
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
    if (n->finished && n->held.loaded && !n->held.applying) {
        return_to_view(n);
    }
    if (n->ballot.have && n->held.loaded && !n->finished) {
        node_watch_commit(n);
    }
    if (n->ballot.have) {
        n->view.found_stable_ms = 0; /* out of it doubt begins anew */
    }
    if (n->ballot.have || !n->held.loaded || n->held.applying || n->finished ||
        n->training.hangs) {
        return;
    }
    best = node_best_peer(n);
    keep_guests(n);
    if (best != MEMBERS_NONE) {
        join_advance(n, best);
    } else if (!node_sees_view(n)) {
        found_advance(n);
        return;
    }
    n->view.found_stable_ms = 0; /* a view is there: no doubt */
}

void node_view_guest(struct node *n, int peer)
{
    members_guest(&n->members, peer, true);
    n->view.has_guests = true;
}

void node_view_gap(struct node *n)
{
    n->view.found_stable_ms = 0;
}

void node_view_leave(struct node *n)
{
    if (n->held.applied.round > 0) {
        say_goodbye(n, &n->group); /* else we were in none of its rounds */
    }
    n->view.linked_candidates = 0;
    n->view.found_stable_ms = 0;
}
