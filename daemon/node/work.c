/* work.c - see work.h.
 *
 * A commit is noted as it is made, because the view may change before the
 * result is in place, and the ledger of leases that the round began with is
 * then another one. Moments and blocks are served to members of our view only,
 * and to each no more than it can honestly ask for.
 *
 * Whose leases are made again follows from our signature of the commit, which
 * is said to nobody.
 */
#include "daemon/node/internal.h"

#include <string.h>

#include "p2p/round/lease.h"
#include "proto/base/log.h"
#include "proto/base/rng.h"
#include "proto/blocks.h"

#define TELLS        4 /* so often a word is said: others may apply it late */
#define TELL_MS      1000
#define SERVE_ROUNDS 8 /* in so many.. */
#define SERVE_LEASES 4 /* ..a member has the moments of so many leases */

static bool audits(const struct node *n)
{
    return n->terms.audits_work && n->regime->has_views && n->inner->whole;
}

void node_work_open(struct node *n)
{
    work_init(&n->work.core, &n->members, &n->opt.self, n->t.fetch_ms,
              (rng_next(&n->rng) >> 24) << 20);
}

/* ---- commits --------------------------------------------------------------
 */

/* Which positions that member read for its contribution. False: nobody knows,
 * or it made no step. */
static bool find_lease(const struct node *n,
                       const struct plan_member *p,
                       const struct peer_id *id,
                       struct work_maker *m)
{
    const struct view_body *v = &n->ballot.cert.body;

    m->offer = p->offer;
    m->steps = p->last_step - p->first_step <= terms_most_steps(&n->terms)
                   ? (uint32_t)(p->last_step - p->first_step)
                   : 0;
    return p->tokens > 0 && p->lease > 0 && m->steps > 0 &&
           n->text.record.known && !n->text.assumed &&
           lease_of(&n->text.record.commit.plan.body.ledgers[0],
                    n->terms.lease_quota, v, p->index, id_u64(id),
                    hash32_eq(&v->commit, &n->text.record.hash), &m->lease) &&
           m->lease.ranges[0].first + 1 == p->lease &&
           lease_count(&m->lease) >= m->steps;
}

void node_work_committed(struct node *n)
{
    struct work_commit *c = &n->work.next;
    const struct plan_body *p = &n->round.last.plan.body;
    const struct view_body *v = &n->ballot.cert.body;

    c->what.round = 0;
    if (!audits(n) || !n->round.in_plan || p->n_rollback > 0 ||
        p->n_ranges > 0 || !hash32_eq(&p->base, &n->text.record.hash)) {
        return;
    }
    memset(c, 0, sizeof *c);
    c->what.round = p->round;
    c->what.hash = n->round.last_hash;
    c->what.n = v->n_members;
    c->what.full = view_full(v);
    c->elements = terms_elements(&n->terms, p->round);
    c->block = n->terms.block;
    for (uint32_t i = 0; i < v->n_members; i++) {
        c->what.member[i] = id_of_public(v->members[i].public_key);
    }
    for (uint32_t k = 0; k < p->n_members; k++) {
        uint32_t i = p->members[k].index;

        if (i < c->what.n &&
            find_lease(n, &p->members[k], &c->what.member[i], &c->maker[i])) {
            c->what.lease |= 1ULL << i;
        }
    }
}

void node_work_applied(struct node *n)
{
    static const struct audit_names names = {"loco-work-1", "loco-work-2"};
    struct work_commit *c = &n->work.next;
    uint64_t secret;

    if (audits(n) && c->what.round != 0 &&
        hash32_eq(&c->what.hash, &n->held.applied.commit) &&
        node_audit_secret(n, &names, &c->what.hash, &secret)) {
        work_commit(&n->work.core, c, secret);
    }
    c->what.round = 0;
}

void node_work_stop(struct node *n)
{
    struct node_work *w = &n->work;

    work_stop(&w->core, n->out);
    w->next.what.round = 0;
    for (uint32_t i = 0; i < WORK_WORDS; i++) {
        w->words[i].tells = 0;
    }
}

/* ---- moments --------------------------------------------------------------
 */

static void tell(struct node *n, enum message_type type, const void *m)
{
    const struct view_body *v = &n->ballot.cert.body;
    int rows[VIEW_MEMBERS_MAX];

    if (!n->ballot.have) {
        return;
    }
    for (uint32_t i = 0; i < v->n_members; i++) {
        rows[i] = n->ballot.rows[i];
    }
    members_broadcast(&n->members, n->out, rows, v->n_members, type, m);
}

/* To those who are linked: nobody else could fetch them. */
static void tell_moments(struct node *n, struct work_own *o)
{
    for (uint32_t i = 0; n->ballot.have && i < n->ballot.cert.body.n_members;
         i++) {
        int row = n->ballot.rows[i];

        if (row != MEMBERS_NONE && members_linked(&n->members, row)) {
            (void)members_send(&n->members, n->out, row, MESSAGE_MOMENTS,
                               &o->said);
        }
    }
    o->tells--;
    o->tell_ms = n->now + node_scaled(n, TELL_MS);
}

void node_work_announce(struct node *n,
                        const struct report_state *state,
                        bool goes_on)
{
    uint64_t round = state->round + 1;
    struct work_own *o = &n->work.own[round % WORK_OWN];

    if (!audits(n)) {
        return;
    }
    *o = (struct work_own){.said = {.round = round}, .tells = TELLS};
    if (!goes_on && !hash32_is_zero(&state->moments)) {
        o->said.steps = state->moment_steps;
        blocks_offer(&n->opt.self, round, &state->moments, &o->said.root);
    }
    tell_moments(n, o);
}

void node_on_moments(struct node *n, int peer, const struct moments *m)
{
    if (audits(n) && members_is_ours(&n->members, peer)) {
        work_on_moments(&n->work.core, &n->members.peers[peer].id, m,
                        n->held.known.round + 1);
    }
}

/* ---- serving --------------------------------------------------------------
 */

/* Whether that member may have so many bytes more. Each draws us rarely; and
 * how many cases there are others say, each of whom rarely may. */
static bool may_have(struct node *n, int peer, const struct fetch *f)
{
    const struct peer_id *id = &n->members.peers[peer].id;
    struct node_work *w = &n->work;
    uint32_t place = 0;
    uint64_t most = SERVE_LEASES * 4 *
                    (n->terms.n_params + WORK_DRAWS * (uint64_t)n->terms.block);

    for (uint32_t i = 0; i < VIEW_MEMBERS_MAX; i++) {
        if (id_eq(&w->served[i].id, id)) {
            place = i;
            break;
        }
        place = w->served[i].round < w->served[place].round ? i : place;
    }
    if (!id_eq(&w->served[place].id, id) ||
        w->served[place].round + SERVE_ROUNDS <= n->held.known.round) {
        w->served[place].id = *id;
        w->served[place].round = n->held.known.round;
        w->served[place].bytes = 0;
    }
    w->served[place].bytes += 2ULL * f->len;
    return w->served[place].bytes <= most;
}

static bool is_ours(const struct node *n, const struct fetch *f)
{
    const struct work_own *o = &n->work.own[f->index % WORK_OWN];

    return o->said.round == f->index && !hash32_is_zero(&o->said.root) &&
           hash32_eq(&o->said.root, &f->root);
}

bool node_work_serve(struct node *n, int peer, const struct fetch *f)
{
    uint64_t elements = 2 * n->terms.n_params;
    struct action *action;

    if (f->stream != STREAM_WORK || f->buffer != BUFFER_MOMENTS || !audits(n) ||
        !members_is_ours(&n->members, peer) || !is_ours(n, f) || f->len == 0 ||
        f->len > TRANSFER_PART / 2 || f->offset >= elements ||
        f->len > elements - f->offset || f->offset % n->terms.block != 0 ||
        !may_have(n, peer, f)) {
        return false;
    }
    members_fetch_served(&n->members, peer, 2ULL * f->len);
    action = out_add(n->out, ACTION_SEND_SEG);
    if (action != NULL) {
        action->segment = (struct segment){
            .peer = n->members.peers[peer].id,
            .attempt = f->attempt,
            .stream = f->stream,
            .seg = f->seg,
            .buffer = BUFFER_MOMENTS,
            .index = f->index,
            .offset = f->offset,
            .len = f->len,
            .op = SEGMENT_COPY,
            .proven = true,
        };
    }
    return true;
}

void node_work_seg_done(struct node *n, const struct event_seg_done *ev)
{
    if (!ev->sent) {
        work_seg_done(&n->work.core, ev, n->out);
    } else if (ev->rc != 0) {
        node_on_sent_failed(n, ev);
    }
}

/* ---- verdicts -------------------------------------------------------------
 */

static void convict(struct node *n, const struct verdict_body *v)
{
    char name[ID_SHORT_MAX];

    id_short(&v->accused, name);
    out_log(n->out, LOG_WARN,
            "round %llu: more than half of the members made the work of %s "
            "again, and it is not what %s contributed; it is left out",
            (unsigned long long)v->round, name, name);
    node_convict(n, &v->accused);
    n->work.n_convicted++;
    n->work.convicted = v->accused;
}

static void say(struct node *n, const struct verdict_body *v)
{
    struct work_word *word = &n->work.words[n->work.n_words % WORK_WORDS];

    word->said.body = *v;
    if (message_sign(&n->opt.signer, &verdict_body_schema, v, word->said.sig) ==
        0) {
        n->work.n_words++;
        word->tells = TELLS;
        word->tell_ms = n->now;
    }
}

/* Nobody offers anything in the round that we left out: then we do. */
static void come_back(struct node *n)
{
    const struct round *r = &n->round;

    if (r->contributed && r->mine.tokens == 0 && r->phase == ROUND_READY &&
        !r->has_plan && !node_quorum_offered(n)) {
        round_retract(&n->round);
        node_forget_contribution(n);
    }
}

void node_on_repeated(struct node *n, const struct local_event *e)
{
    struct verdict_body v;
    enum repeat_end end;

    if (work_repeated(&n->work.core, e, &v, &end)) {
        if (end == REPEAT_NEW || v.verdict == REPEAT_BAD) {
            char name[ID_SHORT_MAX];

            id_short(&v.accused, name);
            out_log(n->out, LOG_WARN,
                    "round %llu: the work of %s is not what it contributed: "
                    "cosine %.3f, own %.3f, length %.2f",
                    (unsigned long long)v.round, name,
                    (double)e->repeated.cosine, (double)e->repeated.own,
                    (double)e->repeated.length);
        }
        say(n, &v);
        if (end == REPEAT_CONVICTED) {
            convict(n, &v);
        }
    }
    come_back(n);
}

void node_on_verdict(struct node *n, int peer, const struct verdict *m)
{
    const struct view_body *v = &n->ballot.cert.body;
    int at = audits(n) && n->ballot.have
                 ? view_index(v, &n->members.peers[peer].id)
                 : -1;

    if (at < 0) {
        return;
    }
    if (!message_verify(&n->opt.signer, v->members[at].public_key,
                        &verdict_body_schema, &m->body, m->sig)) {
        n->malformed++;
        return;
    }
    if (work_on_verdict(&n->work.core, &n->members.peers[peer].id, &m->body) ==
        REPEAT_CONVICTED) {
        convict(n, &m->body);
    }
}

/* ---- time -----------------------------------------------------------------
 */

bool node_work_leaves_out(struct node *n)
{
    struct job_train *train;

    n->work.left_out = audits(n) && n->terms.lease_quota > 0 &&
                       work_begin_repeat(&n->work.core, n->out);
    if (!n->work.left_out) {
        return false;
    }
    train = node_training_begin(n, node_held_stand(&n->held)->round + 1, 0);
    if (train != NULL) {
        train->idle = true;
        node_lease_none(n);
    }
    return true;
}

static void note_silent(struct node *n)
{
    struct peer_id who;

    while (work_take_silent(&n->work.core, &who)) {
        silence_add(&n->audit.silence, &who, n->held.known.round + 1);
    }
}

void node_work_tick(struct node *n)
{
    struct node_work *w = &n->work;

    if (!audits(n)) {
        return;
    }
    work_tick(&w->core, n->now, n->out);
    note_silent(n);
    for (uint32_t i = 0; i < WORK_OWN; i++) {
        if (w->own[i].tells > 0 && n->now >= w->own[i].tell_ms) {
            tell_moments(n, &w->own[i]);
        }
    }
    for (uint32_t i = 0; i < WORK_WORDS; i++) {
        struct work_word *word = &w->words[i];

        if (word->tells > 0 && n->now >= word->tell_ms) {
            tell(n, MESSAGE_VERDICT, &word->said);
            word->tells--;
            word->tell_ms = n->now + node_scaled(n, TELL_MS);
        }
    }
}

uint64_t node_work_deadline(const struct node *n)
{
    const struct node_work *w = &n->work;
    uint64_t due = work_deadline(&w->core);

    for (uint32_t i = 0; i < WORK_OWN; i++) {
        if (w->own[i].tells > 0 && w->own[i].tell_ms < due) {
            due = w->own[i].tell_ms;
        }
    }
    for (uint32_t i = 0; i < WORK_WORDS; i++) {
        if (w->words[i].tells > 0 && w->words[i].tell_ms < due) {
            due = w->words[i].tell_ms;
        }
    }
    return due;
}

void node_work_status(const struct node *n, struct node_status *s)
{
    const struct work *w = &n->work.core;

    s->audits_work = audits(n);
    s->work_read = w->n_read;
    s->work_bad = w->n_bad;
    s->work_unclear = w->n_unclear;
    s->work_unserved = w->n_unserved;
}
