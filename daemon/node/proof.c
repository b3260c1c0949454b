/* proof.c - which views are the run's: asking for proofs, giving them.
 *
 * While we have no view, whatever a peer's heartbeat says is a claim. The view
 * that it names is asked for its chain (p2p/round/chain.h); one that is good
 * makes the view *proven*, and only members of a proven view are listened to,
 * each for itself: what more than half of the full ones say is the newest
 * commit. So neither a stranger nor one member, nor a crowd on probation can
 * name a false one, however high its step.
 *
 * Anybody can found a chain of its own (ids are free). Which founding is the
 * right one is settled by what we had before: the chain on our own disk, else
 * the peers that the invitation names. Only where neither speaks, any will do.
 * If nobody can prove anything for fork_after_ms, a claim is believed as it
 * stands, and that is said.
 *
 * Who is in a view keeps its own chain, gives it to whoever asks, and gets it
 * from another member where its own does not reach.
 */
#include "daemon/node/internal.h"

#include <stdlib.h>
#include <string.h>

#include "proto/base/err.h"
#include "proto/base/log.h"

#define ASK_MS        1000  /* a part of a proof is waited for so long */
#define AGAIN_MS      10000 /* who could not prove its view is asked again */
#define HEARD_ENOUGH  8     /* members of another founding */
#define PARTS_MAX     (CHAIN_BYTES_MAX / MESSAGE_PROOF_MAX)
#define AGAIN_DOUBLED 5 /* so often is it twice as long: 5 min */

static struct chain_rules rules_of(const struct node *n)
{
    return (struct chain_rules){
        .run = n->group,
        .min_peers = node_group_least(n),
        .signer = &n->opt.signer,
    };
}

void node_proof_attest(struct node *n, const struct hash32 *commit)
{
    n->proof.attested = *commit;
}

int node_proof_open(struct node *n)
{
    n->proof.chain_bytes = malloc(CHAIN_BYTES_MAX);
    n->proof.other_chain_bytes = malloc(CHAIN_BYTES_MAX);
    n->proof.bytes = malloc(CHAIN_BYTES_MAX);
    n->proof.proven = calloc(NODE_PROVEN_MAX, sizeof *n->proof.proven);
    n->proof.doubts = calloc(n->members.rows, sizeof *n->proof.doubts);
    if (n->proof.chain_bytes == NULL || n->proof.other_chain_bytes == NULL ||
        n->proof.bytes == NULL || n->proof.proven == NULL ||
        n->proof.doubts == NULL) {
        return LOCO_ENOMEM;
    }
    chain_init(&n->proof.chain, n->proof.chain_bytes);
    chain_init(&n->proof.other_chain, n->proof.other_chain_bytes);
    if (n->opt.chain != NULL && n->opt.chain_len <= CHAIN_BYTES_MAX) {
        memcpy(n->proof.bytes, n->opt.chain, n->opt.chain_len);
        n->proof.saved_len = (uint32_t)n->opt.chain_len;
    }
    return 0;
}

void node_proof_close(struct node *n)
{
    free(n->proof.chain_bytes);
    free(n->proof.other_chain_bytes);
    free(n->proof.bytes);
    free(n->proof.proven);
    free(n->proof.doubts);
}

void node_proof_forget(struct node *n)
{
    chain_init(&n->proof.chain, n->proof.chain_bytes);
    chain_init(&n->proof.other_chain, n->proof.other_chain_bytes);
    memset(n->proof.proven, 0, NODE_PROVEN_MAX * sizeof *n->proof.proven);
    memset(n->proof.doubts, 0, n->members.rows * sizeof *n->proof.doubts);
    memset(&n->proof.attested, 0, sizeof n->proof.attested);
    memset(&n->proof.wanted_view, 0, sizeof n->proof.wanted_view);
    n->proof.asked = n->proof.chain_dirty = n->proof.has_named = false;
    n->proof.saved_len = 0; /* of the group that we were in */
    n->proof.claim_since_ms = 0;
}

/* min_peers is known: what we kept can be checked. */
void node_proof_configured(struct node *n)
{
    struct chain_rules rules = rules_of(n);

    if (n->proof.saved_len > 0 &&
        chain_read(&n->proof.chain, &rules, n->proof.bytes,
                   n->proof.saved_len) != 0) {
        out_log(n->out, LOG_WARN,
                "the chain of views in the state directory is damaged: getting "
                "it again from a member");
    }
    n->proof.saved_len = 0;
}

/* ---- our own chain ------------------------------------------------------ */

static void chain_copy(struct chain *to, const struct chain *from)
{
    uint8_t *bytes = to->bytes;

    memcpy(bytes, from->bytes, from->used);
    *to = *from;
    to->bytes = bytes;
}

void node_proof_adopted(struct node *n)
{
    struct chain_rules rules = rules_of(n);
    const struct node_proven *p;

    if (chain_proves(&n->proof.chain, &n->ballot.hash)) {
        return;
    }
    /* The chain that let us in reaches farther than one of an earlier life. */
    p = node_proven_view(n, &n->ballot.cert.body.prev);
    if (p != NULL && chain_proves(&n->proof.other_chain, &p->view)) {
        chain_copy(&n->proof.chain, &n->proof.other_chain);
    }
    if (chain_extend(&n->proof.chain, &rules, &n->ballot.cert) == 0) {
        n->proof.chain_dirty = true;
    }
}

static void save_chain(struct node *n)
{
    uint32_t at = out_bytes(n->out, n->proof.chain.bytes, n->proof.chain.used);
    struct job *job = at == UINT32_MAX ? NULL : out_job(n->out, JOB_CHAIN);

    if (job != NULL) {
        job->chain.at = at;
        job->chain.len = n->proof.chain.used;
        n->proof.chain_dirty = false;
    }
}

void node_on_get_proof(struct node *n, int peer, const struct get_proof *m)
{
    struct proof part = {.view = m->view, .offset = m->offset};
    uint32_t left;

    if (chain_proves(&n->proof.chain, &m->view) &&
        m->offset < n->proof.chain.used) {
        left = n->proof.chain.used - m->offset;
        part.total = n->proof.chain.used;
        part.n_bytes = left < MESSAGE_PROOF_MAX ? left : MESSAGE_PROOF_MAX;
        memcpy(part.bytes, n->proof.chain.bytes + m->offset, part.n_bytes);
    }
    (void)members_send(&n->members, n->out, peer, MESSAGE_PROOF, &part);
}

/* ---- proofs of others --------------------------------------------------- */

const struct node_proven *node_proven_view(const struct node *n,
                                           const struct hash32 *view)
{
    for (uint32_t i = 0; i < NODE_PROVEN_MAX; i++) {
        if (n->proof.proven[i].used &&
            hash32_eq(&n->proof.proven[i].view, view)) {
            return &n->proof.proven[i];
        }
    }
    return NULL;
}

bool node_is_named(const struct node *n, int peer)
{
    for (unsigned i = 0; i < n->members.n_bootstrap; i++) {
        if (id_eq(&n->members.bootstrap[i].id, &n->members.peers[peer].id)) {
            return true;
        }
    }
    return false;
}

/* Of the peer that has this row now. */
static struct node_doubt *doubt_of(struct node *n, int peer)
{
    struct node_doubt *d = &n->proof.doubts[peer];
    uint64_t who = id_u64(&n->members.peers[peer].id);

    if (d->who != who) {
        *d = (struct node_doubt){.who = who};
    }
    return d;
}

/* Another view of a peer that failed once is asked for at once: it may have
 * been a change. */
static void doubt(struct node *n, int peer, const struct hash32 *view)
{
    struct node_doubt *d = doubt_of(n, peer);
    uint64_t again_ms = node_scaled(n, AGAIN_MS);

    d->view = *view;
    d->view_ms = n->now + again_ms;
    if (d->n_failed > 0) {
        d->any_ms = n->now + (again_ms << (d->n_failed - 1));
    }
    d->n_failed += d->n_failed <= AGAIN_DOUBLED;
}

static void send_ask(struct node *n)
{
    struct get_proof ask = {.view = n->proof.view, .offset = n->proof.got};

    n->proof.cut = false;
    (void)members_send(&n->members, n->out, n->proof.peer, MESSAGE_GET_PROOF,
                       &ask);
}

static void ask_part(struct node *n)
{
    n->proof.due_ms = n->now + node_scaled(n, ASK_MS);
    send_ask(n);
}

void node_proof_link_down(struct node *n, int peer)
{
    n->proof.cut = n->proof.cut || (n->proof.asked && peer == n->proof.peer);
}

/* The founding that ours must descend from; false: any will do. */
static bool anchor(const struct node *n, struct hash32 *genesis)
{
    if (n->proof.chain.n > 0) {
        *genesis = n->proof.chain.link[0].hash;
        return true;
    }
    for (unsigned i = 0; i < n->members.n_bootstrap; i++) {
        int row = members_find(&n->members, &n->members.bootstrap[i].id);
        const struct node_proven *p =
            row == MEMBERS_NONE || !n->members.peers[row].has_beat
                ? NULL
                : node_proven_view(n, &n->members.peers[row].beat.view);

        if (p != NULL) {
            *genesis = p->genesis;
            return true;
        }
    }
    *genesis = n->proof.named; /* their views change: what they proved last */
    return n->proof.has_named;
}

/* Where the next one is kept: not in place of one of our founding, if there is
 * another. */
static struct node_proven *proven_slot(struct node *n)
{
    struct node_proven *p = &n->proof.proven[0];
    struct hash32 ours;
    bool any = !anchor(n, &ours);

    for (uint32_t i = 0; i < NODE_PROVEN_MAX; i++) {
        struct node_proven *q = &n->proof.proven[i];
        bool p_ours = any || hash32_eq(&p->genesis, &ours);
        bool q_ours = any || hash32_eq(&q->genesis, &ours);

        if (p->used &&
            (!q->used || (q_ours != p_ours ? p_ours : q->at_ms < p->at_ms))) {
            p = q;
        }
    }
    return p;
}

static void learn_proven(struct node *n)
{
    const struct hash32 *genesis = &n->proof.other_chain.link[0].hash;
    struct node_proven *p;
    struct view_cert cert;
    struct hash32 ours;

    if (!chain_last(&n->proof.other_chain, &cert)) {
        return;
    }
    if (node_is_named(n, n->proof.peer)) {
        n->proof.has_named = true;
        n->proof.named = *genesis;
    }
    if (anchor(n, &ours) && !hash32_eq(&ours, genesis)) {
        doubt(n, n->proof.peer, &n->proof.view); /* not our run */
    } else {
        doubt_of(n, n->proof.peer)->n_failed = 0;
    }
    p = proven_slot(n);
    p->used = true;
    p->at_ms = n->now;
    p->view = n->proof.view;
    p->genesis = n->proof.other_chain.link[0].hash;
    p->n_weak = chain_n_weak(&n->proof.other_chain);
    p->body = cert.body;
    if (!n->ballot.have) {
        node_learn_members(n, &p->body);
    } else if (hash32_eq(&p->view, &n->ballot.hash)) {
        chain_copy(&n->proof.chain, &n->proof.other_chain);
        n->proof.chain_dirty = true;
    }
}

void node_on_proof(struct node *n, int peer, const struct proof *m)
{
    struct chain_rules rules = rules_of(n);

    if (!n->proof.asked || peer != n->proof.peer ||
        !hash32_eq(&m->view, &n->proof.view) || m->offset != n->proof.got) {
        return;
    }
    if (m->total > CHAIN_BYTES_MAX || m->n_bytes == 0 ||
        m->n_bytes > m->total - m->offset ||
        (PARTS_MAX * m->n_bytes < m->total &&
         m->n_bytes < m->total - m->offset) ||
        (m->offset > 0 && m->total != n->proof.total)) {
        doubt(n, peer, &m->view); /* it has none, or a bad one */
        n->proof.asked = false;
        return;
    }
    memcpy(n->proof.bytes + m->offset, m->bytes, m->n_bytes);
    n->proof.total = m->total;
    n->proof.got += m->n_bytes;
    if (n->proof.got < n->proof.total) {
        ask_part(n);
        return;
    }
    n->proof.asked = false;
    if (chain_read(&n->proof.other_chain, &rules, n->proof.bytes,
                   n->proof.total) != 0 ||
        !chain_proves(&n->proof.other_chain, &m->view)) {
        char text[ID_SHORT_MAX];

        id_short(&n->members.peers[peer].id, text);
        out_log(n->out, LOG_WARN,
                "peer %s names a view that its chain does not prove: ignoring "
                "that peer",
                text);
        n->malformed++;
        doubt(n, peer, &m->view);
        return;
    }
    learn_proven(n);
}

/* A view that we should know more of: anybody's while we have none; our own
 * where our chain does not reach it; another branch's that we might join. */
static bool is_wanted(const struct node *n, const struct member *p)
{
    const struct hash32 *view = &p->beat.view;
    bool ours = n->ballot.have && hash32_eq(view, &n->ballot.hash);

    if (!p->beat.has_view || !node_same_stage(n, p) ||
        node_proven_view(n, view) != NULL) {
        return false;
    }
    if (ours) {
        return !chain_proves(&n->proof.chain, view);
    }
    return !n->ballot.have || hash32_eq(view, &n->proof.wanted_view);
}

/* Who is asked before whom: hosts of our invitation, then who failed less, then
 * whom we dialled. */
static uint32_t urgency(struct node *n, int peer)
{
    return (node_is_named(n, peer) ? 1U << 16 : 0) +
           2 * (AGAIN_DOUBLED + 1 - doubt_of(n, peer)->n_failed) +
           !members_inbound(&n->members, peer);
}

static bool may_ask(struct node *n, int peer)
{
    const struct member *p = &n->members.peers[peer];
    const struct node_doubt *d;

    if (!p->used || !p->has_beat || p->lost ||
        !members_linked(&n->members, peer) || !is_wanted(n, p)) {
        return false;
    }
    d = doubt_of(n, peer);
    return n->now >= d->any_ms &&
           (n->now >= d->view_ms || !hash32_eq(&d->view, &p->beat.view));
}

/* One at a time; a host of our invitation does not wait for others. */
static void look_for_one(struct node *n)
{
    int best = MEMBERS_NONE;
    uint32_t most = 0;

    if (n->proof.asked &&
        (n->members.n_bootstrap == 0 || node_is_named(n, n->proof.peer))) {
        return;
    }
    for (uint32_t i = 0; i < n->members.n_peers; i++) {
        if ((n->proof.asked && !node_is_named(n, (int)i)) ||
            !may_ask(n, (int)i)) {
            continue;
        }
        if (best == MEMBERS_NONE || urgency(n, (int)i) > most) {
            best = (int)i;
            most = urgency(n, best);
        }
    }
    if (best != MEMBERS_NONE) {
        n->proof.asked = true;
        n->proof.peer = best;
        n->proof.view = n->members.peers[best].beat.view;
        n->proof.got = n->proof.total = 0;
        ask_part(n);
    }
}

void node_proof_advance(struct node *n)
{
    if (!n->data.configured || n->stopped || !node_is_staged(n)) {
        return;
    }
    if (n->proof.chain_dirty) {
        save_chain(n);
    }
    if (!node_sees_claim(n)) {
        n->proof.claim_since_ms = 0;
    } else if (n->proof.claim_since_ms == 0) {
        n->proof.claim_since_ms = n->now;
    }
    if (n->proof.asked && n->now >= n->proof.due_ms) {
        doubt(n, n->proof.peer, &n->proof.view);
        n->proof.asked = false;
    }
    /* Who comes back is dialled while it dials: one of the two links is closed,
     * often with this question on it. Unless it is asked again, an honest
     * member is doubted for AGAIN_MS. The deadline stays: nobody holds up
     * others by links that it drops. */
    if (n->proof.asked && n->proof.cut &&
        members_linked(&n->members, n->proof.peer)) {
        send_ask(n);
    }
    look_for_one(n);
}

/* ---- what follows ------------------------------------------------------- */

const struct node_proven *node_proven_of(const struct node *n, int peer)
{
    const struct member *p = &n->members.peers[peer];
    const struct node_proven *v = node_proven_view(n, &p->beat.view);
    struct hash32 genesis;

    if (v == NULL || !p->beat.has_view ||
        view_index_key(&v->body, p->public_key) < 0 ||
        (anchor(n, &genesis) && !hash32_eq(&genesis, &v->genesis))) {
        return NULL;
    }
    return v;
}

bool node_proof_follows(const struct node *n, const struct view_cert *cert)
{
    const struct ballot *b = &n->ballot;
    struct hash32 genesis;
    bool anchored = anchor(n, &genesis);

    if ((b->have || b->restored) &&
        chain_follows(&b->cert.body, &b->hash, cert, &n->opt.signer)) {
        return true;
    }
    for (uint32_t i = 0; i < NODE_PROVEN_MAX && !b->have; i++) {
        const struct node_proven *p = &n->proof.proven[i];

        if (p->used && (!anchored || hash32_eq(&genesis, &p->genesis)) &&
            chain_follows(&p->body, &p->view, cert, &n->opt.signer)) {
            return true;
        }
    }
    return false;
}

bool node_proof_patience(const struct node *n)
{
    return n->regime->has_views &&
           (n->proof.claim_since_ms == 0 ||
            n->now - n->proof.claim_since_ms < n->terms.fork_after_ms);
}

bool node_tip(const struct node *n,
              const struct node_proven *v,
              struct node_point *tip,
              struct hash32 *state)
{
    const struct heartbeat *said[VIEW_MEMBERS_MAX];
    uint32_t n_said = 0, need;

    for (uint32_t i = 0; i < n->members.n_peers; i++) {
        const struct member *p = &n->members.peers[i];

        if (p->used && p->has_beat && p->beat.ready && p->beat.has_view &&
            n_said < VIEW_MEMBERS_MAX && hash32_eq(&p->beat.view, &v->view) &&
            members_linked(&n->members, (int)i) &&
            view_counts(&v->body, &p->id)) {
            said[n_said++] = &p->beat;
        }
    }
    need = node_proof_patience(n) ? view_n_full(&v->body) : n_said;
    for (uint32_t i = 0; i < n_said; i++) {
        uint32_t same = 0;

        for (uint32_t k = 0; k < n_said; k++) {
            same += said[k]->round == said[i]->round &&
                    said[k]->tokens == said[i]->tokens &&
                    hash32_eq(&said[k]->commit, &said[i]->commit) &&
                    hash32_eq(&said[k]->state_hash, &said[i]->state_hash);
        }
        if (2 * same > need) {
            *tip = node_point_of(said[i]);
            *state = said[i]->state_hash;
            return true;
        }
    }
    return false;
}

/* Of one founding, views that are no forks follow each other: an earlier one is
 * where we come from, though we may not know that one. Anybody can show it. One
 * of our own epoch is none of these: an owner signed two values. */
static bool is_earlier(const struct node *n, const struct view_body *v)
{
    const struct view_body *ours = &n->ballot.cert.body;

    return !v->fork && !ours->fork && v->epoch < ours->epoch;
}

/* Whether a host that our invitation names is in that view; `theirs`: and says
 * so over its own link. */
static bool has_named_host(const struct node *n,
                           const struct view_body *v,
                           const struct hash32 *theirs)
{
    for (unsigned i = 0; i < n->members.n_bootstrap; i++) {
        const struct peer_id *id = &n->members.bootstrap[i].id;
        int row = members_find(&n->members, id);

        if (view_index(v, id) >= 0 &&
            (theirs == NULL ||
             (row != MEMBERS_NONE && members_linked(&n->members, row) &&
              n->members.peers[row].has_beat &&
              hash32_eq(&n->members.peers[row].beat.view, theirs)))) {
            return true;
        }
    }
    return false;
}

/* Whether more than half of its members, or HEARD_ENOUGH, say over their own
 * links that they are in it: keys cost nothing. */
static bool is_there(const struct node *n, const struct node_proven *v)
{
    uint32_t heard = 0;

    for (uint32_t i = 0; i < n->members.n_peers; i++) {
        const struct member *p = &n->members.peers[i];

        heard += p->used && p->has_beat && p->beat.has_view &&
                 hash32_eq(&p->beat.view, &v->view) &&
                 members_linked(&n->members, (int)i) &&
                 view_index_key(&v->body, p->public_key) >= 0;
    }
    return 2 * heard > v->body.n_members || heard >= HEARD_ENOUGH;
}

/* Of two foundings before the first commit: that of a host which our invitation
 * names, else the larger one, which must be there. */
static bool founding_wins(const struct node *n, const struct node_proven *v)
{
    const struct view_body *ours = &n->ballot.cert.body;
    bool named = has_named_host(n, &v->body, &v->view);

    if (named != has_named_host(n, ours, NULL)) {
        return named;
    }
    if (!is_there(n, v)) {
        return false;
    }
    return v->body.n_members != ours->n_members
               ? v->body.n_members > ours->n_members
               : hash32_cmp(&n->ballot.hash, &v->view) > 0;
}

bool node_proof_is_other(const struct node *n, const struct hash32 *view)
{
    const struct node_proven *v = node_proven_view(n, view);

    return v != NULL && n->proof.chain.n > 0 &&
           !hash32_eq(&v->genesis, &n->proof.chain.link[0].hash);
}

void node_proof_change_founding(struct node *n)
{
    chain_init(&n->proof.chain, n->proof.chain_bytes);
}

bool node_proof_allows(struct node *n, const struct hash32 *view)
{
    const struct node_proven *v = node_proven_view(n, view);

    n->proof.wanted_view = *view;
    if (n->proof.chain.n == 0) {
        return false; /* ours comes first */
    }
    if (v == NULL) {
        return false;
    }
    return hash32_eq(&v->genesis, &n->proof.chain.link[0].hash)
               ? !is_earlier(n, &v->body)
               : n->held.known.round == 0 && founding_wins(n, v);
}
