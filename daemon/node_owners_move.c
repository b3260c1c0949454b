/* node_owners_move.c - bytes of slices between members, and the machine's jobs.
 *
 * TAKE posts all segments of what was asked for, on the stream of its slot;
 * when they are here the machine looks at them (CHECK) and the core hears of
 * it. GIVE lets the machine make the bytes of now, and sends them on the stream
 * of the receiver's slot, under its attempt. A slot is not posted while jobs
 * under way still read what came into it before.
 *
 * A GIVE that finds no place, or breaks, is like a lost message: it is asked
 * for again. One that moves nothing for stuck_ms gives its place away.
 */
#include "daemon/node_owners.h"

#include <string.h>

/* Actions that are left to others in one `out`: a call of the core and more. A
 * job that were lost would leave a slice unlike its backup. */
#define ROOM (OWNERS_OUT_MAX + 256)

uint64_t node_owners_job(struct node *n,
                         const struct slice_job *job,
                         uint64_t attempt,
                         const struct peer_id *peer,
                         uint64_t request)
{
    struct node_owners *s = n->owners;
    struct action *a = out_add(n->out, ACTION_SLICE);

    if (a == NULL) {
        return 0; /* cannot be: `out` has room for all of one call */
    }
    a->job = *job;
    a->job.serial = ++s->serial;
    a->attempt = attempt;
    a->request = request;
    a->round = node_owners_round(n);
    if (peer != NULL) {
        a->peer = *peer;
    }
    if (job->slot < STREAM_SLOTS) {
        s->jobs[job->slot]++;
    }
    return s->serial;
}

/* ---- segments --------------------------------------------------------- */

static enum buffer_kind buffer_of(enum owners_what what)
{
    switch (what) {
    case OWNERS_STATE:
        return BUFFER_SLICE;
    case OWNERS_READING:
    case OWNERS_COPY:
        return BUFFER_READING;
    default:
        return BUFFER_PIECE;
    }
}

static uint64_t
elements(const struct run_terms *t, enum owners_what what, uint32_t slice)
{
    uint64_t left = t->n_params - slice * t->slice_elements;
    uint64_t len = left < t->slice_elements ? left : t->slice_elements;

    return what == OWNERS_STATE ? 3 * len : len;
}

static uint32_t segment_of(const struct run_terms *t, enum owners_what what)
{
    return buffer_of(what) == BUFFER_PIECE ? t->segment_elements
                                           : t->slice_segment;
}

static uint32_t
n_segments(const struct run_terms *t, enum owners_what what, uint32_t slice)
{
    uint64_t each = segment_of(t, what);

    return (uint32_t)((elements(t, what, slice) + each - 1) / each);
}

static bool has_room(const struct node *n)
{
    return n->out->n + ROOM < CORE_OUT_MAX;
}

static void name_segment(struct node *n,
                         const struct node_owners_move *m,
                         enum action_type type)
{
    uint64_t each = segment_of(&n->terms, m->what);
    uint64_t rest = elements(&n->terms, m->what, m->slice) - m->named * each;
    struct action *a = out_add(n->out, type);

    if (a == NULL) {
        return; /* cannot be: has_room() */
    }
    a->segment = (struct segment){
        .peer = m->peer,
        .attempt = m->attempt,
        .stream = m->stream,
        .seg = m->named,
        .buffer = buffer_of(m->what),
        .index = m->slice,
        .offset = m->named * each,
        .len = (uint32_t)(rest < each ? rest : each),
        .op = SEGMENT_COPY,
        .slot = (uint8_t)m->slot,
    };
}

/* False: some are left that would not fit this `out`. */
static bool
name_some(struct node *n, struct node_owners_move *m, enum action_type type)
{
    while (m->used && m->ready && m->named < m->total && has_room(n)) {
        name_segment(n, m, type);
        m->named++;
    }
    return !m->used || !m->ready || m->named == m->total;
}

static void check(struct node *n, const struct node_owners_move *m)
{
    const struct slice_job job = {
        .op = SLICE_CHECK, .what = m->what, .slice = m->slice, .slot = m->slot};

    (void)node_owners_job(n, &job, m->attempt, NULL, 0);
}

void node_owners_name(struct node *n)
{
    struct node_owners *s = n->owners;
    bool all = true;

    for (uint32_t k = 0; k < STREAM_SLOTS; k++) {
        struct node_owners_move *m = &s->take[k];

        m->ready = m->ready || s->jobs[k] == 0;
        all = name_some(n, m, ACTION_POST_RECV) && all;
    }
    for (uint32_t k = 0; k < NODE_GIVES_MAX; k++) {
        struct node_owners_move *m = &s->give[k];

        if (m->used && n->now - m->moved_ms >= s->core.opt.stuck_ms) {
            m->used = false;
        }
        all = name_some(n, m, ACTION_SEND_SEG) && all;
    }
    if (!all) {
        n->wake_ms = n->now + 1;
    }
}

/* ---- what the core asks for ------------------------------------------- */

void node_owners_take(struct node *n, const struct owners_action *a)
{
    struct node_owners *s = n->owners;

    s->take[a->slot] = (struct node_owners_move){
        .used = true,
        .peer = s->core.member[a->peer].id,
        .stream = STREAM_OWNERS + a->slot,
        .attempt = a->attempt,
        .what = a->what,
        .slice = a->slice,
        .slot = a->slot,
        .total = n_segments(&n->terms, a->what, a->slice),
        .moved_ms = n->now,
    };
}

void node_owners_drop(struct node *n, const struct owners_action *a)
{
    struct action *c = out_add(n->out, ACTION_CANCEL);

    if (c != NULL) {
        c->stream = STREAM_OWNERS + a->slot;
        c->attempt = a->attempt;
    }
    n->owners->take[a->slot].used = false;
}

/* A place for bytes that go out. What goes into the same slot of the same peer
 * is of no use any more: no more of it is named. */
static struct node_owners_move *
place(struct node_owners *s, const struct peer_id *peer, uint32_t stream)
{
    struct node_owners_move *at = NULL;

    for (uint32_t k = 0; k < NODE_GIVES_MAX; k++) {
        struct node_owners_move *m = &s->give[k];

        if (m->used && m->stream == stream && id_eq(&m->peer, peer)) {
            m->total = m->named;
            m->used = m->done < m->total;
        }
        at = m->used ? at : m;
    }
    return at;
}

void node_owners_give(struct node *n, const struct owners_action *a)
{
    struct node_owners *s = n->owners;
    const struct peer_id *peer = &s->core.member[a->peer].id;
    struct node_owners_move *m = place(s, peer, STREAM_OWNERS + a->slot);
    struct slice_job job = {
        .op = SLICE_GIVE, .what = a->what, .slice = a->slice, .slot = a->from};

    if (m == NULL || a->slot >= STREAM_SLOTS) {
        return;
    }
    job.give = (uint32_t)(m - s->give);
    *m = (struct node_owners_move){
        .used = true,
        .peer = *peer,
        .stream = STREAM_OWNERS + a->slot,
        .attempt = a->attempt,
        .what = a->what,
        .slice = a->slice,
        .slot = job.give,
        .total = n_segments(&n->terms, a->what, a->slice),
        .moved_ms = n->now,
    };
    m->serial = node_owners_job(n, &job, a->attempt, peer, a->task);
}

/* ---- what comes of it ------------------------------------------------- */

static void give_made(struct node *n, const struct slice_job *job, int rc)
{
    struct node_owners_move *m = &n->owners->give[job->give];

    if (m->used && m->serial == job->serial) {
        m->ready = true;
        m->moved_ms = n->now;
        m->used = rc == 0 && m->total > 0;
    }
}

void node_owners_job_done(struct node *n, const struct slice_job *job, int rc)
{
    struct node_owners *s = n->owners;

    if (job->slot < STREAM_SLOTS && s->jobs[job->slot] > 0) {
        s->jobs[job->slot]--;
    }
    if (job->op == SLICE_GIVE && job->give < NODE_GIVES_MAX) {
        give_made(n, job, rc);
    }
}

static void sent(struct node *n, const struct segment *seg)
{
    for (uint32_t k = 0; k < NODE_GIVES_MAX; k++) {
        struct node_owners_move *m = &n->owners->give[k];

        if (m->used && m->stream == seg->stream && m->attempt == seg->attempt &&
            id_eq(&m->peer, &seg->peer)) {
            m->moved_ms = n->now;
            m->done++;
            m->used = m->done < m->total;
            return;
        }
    }
}

void node_owners_seg_done(struct node *n, const struct event *ev)
{
    const struct segment *seg = &ev->segment;
    uint32_t slot = seg->stream - STREAM_OWNERS;
    struct node_owners_move *m = &n->owners->take[slot];

    if (!terms_owned(&n->terms)) {
        return;
    }
    if (ev->sent) {
        sent(n, seg);
        return;
    }
    if (!m->used || m->attempt != seg->attempt || ev->rc != 0) {
        return; /* it is asked for again in its time */
    }
    owners_moved(&n->owners->core, slot, seg->attempt, n->now);
    if (++m->done == m->total) {
        m->used = false;
        check(n, m);
    }
}
