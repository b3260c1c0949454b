/* fetch.c - bytes in pieces: fetching them for node/data.c and
 * node/sync.c, and serving them to others.
 *
 * A fetch has several sources, whichever linked peers its owner wants. One that
 * served a piece without the hash that it must have is named and asked for
 * nothing more. What is asked for is named by its root, too: a peer of another
 * branch that holds something else under the same round says so (FETCH_NO), and
 * nobody takes it for a liar.
 */
#include "daemon/node/internal.h"

#include <string.h>

#include "proto/base/err.h"
#include "proto/base/log.h"
#include "proto/base/rng.h"

/* ---- from whom ---------------------------------------------------------- */

/* Newcomers that may fetch everything at once. */
#define BURST_NEWCOMERS 16

/* Whether the view says that data does not pass between that peer and us. */
static bool is_broken(const struct node *n, int peer)
{
    const struct view_body *v = &n->ballot.cert.body;
    int x = n->ballot.self_index, y = -1;

    for (uint32_t i = 0; n->ballot.have && v->n_edges > 0 && i < v->n_members;
         i++) {
        y = n->ballot.rows[i] == peer ? (int)i : y;
    }
    for (uint32_t e = 0; y >= 0 && e < v->n_edges; e++) {
        if (v->edges[e] == (x | y << 8) || v->edges[e] == (y | x << 8)) {
            return true;
        }
    }
    return false;
}

/* One time in so many anybody may be picked for a question. */
#define ANYBODY_ONE_IN 4

/* Whoever is in a view of the run, or named by our invitation: a thousand
 * others can say that they have what we want. */
static bool is_trusted(const struct node *n, int peer)
{
    return !n->regime->has_views || members_is_ours(&n->members, peer) ||
           node_proven_of(n, peer) != NULL;
}

/* `source`: that the running transfer may have; `trusted`: of those only. */
static int pick_of(struct node *n, node_want *want, bool source, bool trusted)
{
    int at = MEMBERS_NONE, bad = MEMBERS_NONE;
    uint32_t seen = 0;

    for (uint32_t i = 0; i < n->members.n_peers; i++) {
        const struct member *p = &n->members.peers[i];

        if (!p->used || !p->has_beat || !members_linked(&n->members, (int)i) ||
            !want(n, p) || (trusted && !is_trusted(n, (int)i)) ||
            (source && !transfer_may(&n->transfer, (int)i, n->now))) {
            continue;
        }
        if (is_broken(n, (int)i)) {
            bad = (int)i; /* rather than nobody */
        } else if (rng_below(&n->rng, ++seen) == 0) {
            at = (int)i;
        }
    }
    return at == MEMBERS_NONE ? bad : at;
}

/* Who served a false piece, or nothing, is no source any more; a question may
 * stay without an answer. */
static int pick(struct node *n, node_want *want, bool source)
{
    bool anybody = !source && rng_below(&n->rng, ANYBODY_ONE_IN) == 0;
    int at = anybody ? MEMBERS_NONE : pick_of(n, want, source, true);

    if (at != MEMBERS_NONE ||
        (source && transfer_n_sources(&n->transfer) > 0)) {
        return at;
    }
    return pick_of(n, want, source, false);
}

int node_pick(struct node *n, node_want *want)
{
    return pick(n, want, false);
}

/* ---- fetching ----------------------------------------------------------- */

bool node_fetch(struct node *n, struct transfer_object *o)
{
    const struct run_terms *t = &n->terms;

    if (o->leaves != BUFFER_KIND_COUNT) {
        o->piece = t->piece_bytes;
        o->part = o->piece < TRANSFER_PART ? o->piece : TRANSFER_PART;
        o->sources = TRANSFER_SOURCES;
    } else { /* checked as a whole: one at a time, to know whose they are */
        o->piece = o->part = t->segment_elements;
        o->sources = 1;
    }
    o->floor_bytes_per_s = t->progress_floor_bytes_per_s;
    return transfer_start(&n->transfer, o, n->now, n->out);
}

bool node_fetch_sources(struct node *n, node_want *want)
{
    while (transfer_wants(&n->transfer)) {
        int peer = pick(n, want, true);

        if (peer == MEMBERS_NONE) {
            break;
        }
        transfer_source(&n->transfer, peer, n->now, n->out);
    }
    return transfer_n_sources(&n->transfer) > 0;
}

void node_name_liar(struct node *n, int peer)
{
    char text[ID_SHORT_MAX];

    n->malformed++;
    if (peer == MEMBERS_NONE) {
        return;
    }
    n->fetches.n_shunned++;
    id_short(&n->members.peers[peer].id, text);
    out_log(n->out, LOG_WARN,
            "peer %s served bytes that do not have the hash that they must "
            "have; nothing more is fetched from it",
            text);
}

/* Whether a leaf list is that of what we fetch. */
static bool leaves_fit(const struct node *n, const struct local_event *e)
{
    struct hash32 root = e->verified.hash;

    if (e->verified.buffer == BUFFER_STATE) {
        root = node_state_hash(&e->verified.params_hash,
                               &e->verified.momentum_hash);
    }
    return hash32_eq(&root, &n->transfer.object.root);
}

void node_on_verified(struct node *n, const struct local_event *e)
{
    struct transfer *t = &n->transfer;
    uint32_t piece = (uint32_t)e->verified.request;
    int rc = e->rc;

    if (!t->active || t->finished ||
        e->verified.request >> 32 != t->generation) {
        return;
    }
    if (piece == TRANSFER_LEAVES && rc == 0) {
        rc = leaves_fit(n, e) ? 0 : LOCO_EHASH;
        if (rc == 0 && e->verified.held != NULL) {
            transfer_held(t, e->verified.held);
        }
    }
    if (rc == LOCO_EHASH) {
        node_name_liar(
            n, transfer_verified(t, e->verified.request, rc, n->now, n->out));
    } else {
        (void)transfer_verified(t, e->verified.request, rc, n->now, n->out);
    }
}

/* ---- serving ---------------------------------------------------------- */

void node_note_state(struct node *n, const struct hash32 *result)
{
    struct past_state p = {.round = n->held.applied.round,
                           .commit = n->held.applied.commit,
                           .state = n->held.state_hash,
                           .sample = n->held.sample};
    uint32_t kept = 0;

    if (result != NULL) {
        p.result = *result;
    }
    for (uint32_t i = 0; i < n->fetches.n_past;
         i++) { /* of a branch that was left */
        if (n->fetches.past[i].round < p.round) {
            n->fetches.past[kept++] = n->fetches.past[i];
        }
    }
    if (kept == NODE_PAST_MAX) {
        memmove(n->fetches.past, n->fetches.past + 1,
                (kept - 1) * sizeof n->fetches.past[0]);
        kept--;
    }
    n->fetches.past[kept] = p;
    n->fetches.n_past = kept + 1;
}

const struct past_state *node_past_at(const struct node *n, uint64_t round)
{
    for (uint32_t i = 0; i < n->fetches.n_past; i++) {
        if (n->fetches.past[i].round == round) {
            return &n->fetches.past[i];
        }
    }
    return NULL;
}

static void refuse(struct node *n, int peer, const struct fetch *f)
{
    struct fetch_no no = {.attempt = f->attempt, .seg = f->seg};

    (void)members_send(&n->members, n->out, peer, MESSAGE_FETCH_NO, &no);
}

static bool is_held(const struct node *n, const struct fetch *f)
{
    const struct past_state *past = node_past_at(n, f->index);
    const struct terms_shard *s;
    bool any = hash32_is_zero(&f->root);

    switch (f->buffer) {
    case BUFFER_SHARD:
    case BUFFER_SHARD_LEAVES:
        if (!n->data.configured || f->index >= n->terms.n_shards) {
            return false;
        }
        s = &n->terms.shards[f->index];
        return s->held && f->offset < s->bytes &&
               (any || hash32_eq(&s->hash, &f->root));
    case BUFFER_STATE:
    case BUFFER_STATE_LEAVES:
        return n->held.loaded && past != NULL &&
               hash32_eq(&past->state, &f->root);
    case BUFFER_REDUCED:
        return n->held.loaded && past != NULL &&
               hash32_eq(&past->result, &f->root);
    default:
        return false;
    }
}

static uint64_t bytes_of(const struct fetch *f)
{
    return f->buffer == BUFFER_REDUCED ? 4ULL * f->len : f->len;
}

/* Whether that many bytes more are for a peer that is no member. They cost the
 * month's traffic whenever it asks, so the limit holds at any time; it is one
 * of hours, so that an honest newcomer comes in as fast as the line is. One
 * group of addresses cannot use up what is for all. Before the first view
 * everybody is a newcomer. */
static bool affords(struct node *n, int peer, const struct fetch *f)
{
    uint64_t bytes = bytes_of(f);
    uint64_t burst = n->opt.stranger_burst_bytes, all = n->terms.state_bytes;
    struct peer_id group = members_group(&n->members, peer);

    if (!n->ballot.have || members_is_ours(&n->members, peer) ||
        (!n->inner->whole && n->members.peers[peer].guest)) {
        return true;
    }
    for (uint32_t i = 0; i < n->terms.n_shards; i++) {
        all += n->terms.shards[i].bytes;
    }
    burst = burst == 0 || burst > BURST_NEWCOMERS * all ? BURST_NEWCOMERS * all
                                                        : burst;
    if (budget_fill(&n->fetches.strangers, &group, n->opt.stranger_bytes_per_s,
                    burst, bytes, n->now)) {
        return true;
    }
    members_fetch_refused(&n->members, peer);
    return false;
}

void node_on_fetch(struct node *n, int peer, const struct fetch *f)
{
    uint32_t most =
        f->buffer == BUFFER_REDUCED ? n->terms.segment_elements : TRANSFER_PART;
    struct action *a;

    if (f->buffer == BUFFER_OFFER || f->buffer == BUFFER_MOMENTS) {
        if (!node_audit_serve(n, peer, f) && !node_work_serve(n, peer, f)) {
            refuse(n, peer, f);
        }
        return;
    }
    if (f->stream < STREAM_FETCH ||
        f->stream >= STREAM_FETCH + STREAM_FETCHES || f->len == 0 ||
        f->len > most || !is_held(n, f) || !affords(n, peer, f)) {
        refuse(n, peer, f);
        return;
    }
    members_fetch_served(&n->members, peer, bytes_of(f));
    a = out_add(n->out, ACTION_SEND_SEG);
    if (a != NULL) {
        a->segment = (struct segment){
            .peer = n->members.peers[peer].id,
            .attempt = f->attempt,
            .stream = f->stream,
            .seg = f->seg,
            .buffer = (enum buffer_kind)f->buffer,
            .index = f->index,
            .name = hash32_u64(&f->root),
            .offset = f->offset,
            .len = f->len,
            .op = SEGMENT_COPY,
        };
    }
}

void node_on_sent_failed(struct node *n, const struct event_seg_done *ev)
{
    struct fetch f = {.attempt = ev->segment.attempt, .seg = ev->segment.seg};
    int peer = members_find(&n->members, &ev->segment.peer);

    if (peer != MEMBERS_NONE) {
        refuse(n, peer, &f);
    }
}

void node_fetches_shunned(struct node *n)
{
    n->fetches.n_shunned++;
}

void node_fetches_forget(struct node *n)
{
    n->fetches.n_past = 0;
}
