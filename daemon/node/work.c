/* work.c - see work.h.
 *
 * A commit is noted as it is made, because the view may change before the
 * result is in place, and the ledger of leases that the round began with is
 * then another one. Moments and blocks are served to full members of our view,
 * and to each no more than it can honestly ask for.
 *
 * Whose leases are made again follows from our signature of the commit, which
 * is said to nobody.
 */
#include "daemon/node/internal.h"

#include <string.h>

#include "p2p/round/lease.h"
#include "p2p/round/text.h"
#include "proto/base/log.h"
#include "proto/base/rng.h"
#include "proto/blocks.h"
#include "proto/hash.h"

#define TELLS        4 /* so often a word is said: others may apply it late */
#define TELL_MS      1000
#define SERVE_ROUNDS 8 /* in so many.. */
#define SERVE_LEASES 4 /* ..a member has what so many audits ask for */
#define MOMENT_BYTES 2 /* bf16 */

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

/* True: the work of that member can be made again. */
static bool find_lease(const struct node *n,
                       const struct view_body *v,
                       const struct plan_body *plan,
                       const struct plan_member *p,
                       const struct peer_id *id,
                       struct work_maker *m)
{
    const struct round_record *r = &n->text.record;
    const bool known =
        r->known && !n->text.assumed && hash32_eq(&plan->base, &r->hash);
    struct lease lease;

    (void)lease_of(&r->commit.plan.body.ledgers[0], n->terms.lease_quota, v,
                   p->index, id_u64(id), hash32_eq(&v->commit, &r->hash),
                   &lease);
    return work_describe(m, p, known ? &lease : NULL,
                         terms_most_steps(&n->terms));
}

/* Whether the result of the round is mostly that member's. */
static bool leads(const struct plan_body *plan, const struct plan_member *p)
{
    double all = 0;

    for (uint32_t k = 0; k < plan->n_members; k++) {
        all += (double)plan->members[k].tokens;
    }
    return (double)p->tokens > REPEAT_SHARE * all;
}

/* The root over the blocks of so many zeros in bf16. */
static void zeros_of(uint64_t elements, uint32_t block, struct hash32 *root)
{
    static const uint8_t zeros[MOMENT_BYTES * WORK_BLOCK_MAX];
    uint64_t n;
    struct hash32 leaf, last;

    if (elements == 0 || block == 0 || block > WORK_BLOCK_MAX) {
        *root = (struct hash32){{0}};
        return;
    }
    n = (elements + block - 1) / block;
    hash_tree_leaf(zeros, (size_t)MOMENT_BYTES * block, &leaf);
    hash_tree_leaf(zeros, MOMENT_BYTES * (size_t)(elements - (n - 1) * block),
                   &last);
    blocks_same(&leaf, &last, n, root);
}

/* What the last commit says of work. `made_in`: the view of its plan; NULL: it
 * is not known here, so nothing can be told of its members. */
static void describe(const struct node *n,
                     const struct view_body *made_in,
                     struct work_commit *c)
{
    const struct plan_body *p = &n->round.last.plan.body;
    const struct view_body *v =
        made_in != NULL ? made_in : &n->ballot.cert.body;

    memset(c, 0, sizeof *c);
    c->what.round = p->round;
    c->what.hash = n->round.last_hash;
    c->what.n = v->n_members;
    c->what.full = view_full(v);
    c->what.every = n->opt.audit_every;
    c->before = p->base;
    c->inherits = p->n_ranges > 0;
    c->takes_back = p->n_rollback > 0 || made_in == NULL;
    c->anew = n->terms.moments_anew;
    c->base = n->held.state_hash;
    c->elements = terms_elements(&n->terms, p->round);
    c->block = n->terms.block;
    zeros_of(2 * n->terms.n_params, n->terms.block, &c->zeros);
    for (uint32_t i = 0; i < v->n_members; i++) {
        c->what.member[i] = id_of_public(v->members[i].public_key);
    }
    for (uint32_t k = 0; k < p->n_members && made_in != NULL; k++) {
        uint32_t i = p->members[k].index;

        if (i >= c->what.n) {
            continue;
        }
        c->maker[i].leads = leads(p, &p->members[k]);
        if (find_lease(n, v, p, &p->members[k], &c->what.member[i],
                       &c->maker[i])) {
            c->what.lease |= 1ULL << i;
        }
    }
}

void node_work_committed(struct node *n, bool decided)
{
    const bool with_us =
        decided && n->round.in_plan &&
        hash32_eq(&n->round.last.plan.body.base, &n->text.record.hash);
    struct work_commit *c = with_us ? &n->work.next : &n->work.heard;
    const struct view_body *v =
        ballot_view_of(&n->ballot, &n->round.last.plan.body.view);

    if (!audits(n)) {
        n->work.next.what.round = 0;
        return;
    }
    describe(n, v, c);
    if (with_us && v != NULL) {
        conviction_commit(&n->work.notes, v, &n->round.last,
                          &n->round.last_hash);
    }
    work_follow(&n->work.core, c);
    if (c->takes_back) {
        n->work.next.what.round = 0;
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
        work_commit(&n->work.core, c, secret, n->out);
    }
    c->what.round = 0;
}

void node_work_stop(struct node *n)
{
    struct node_work *w = &n->work;

    work_stop(&w->core, n->out);
    w->next.what.round = 0;
    for (uint32_t i = 0; i < WORK_SAID; i++) {
        w->words[i].tells = 0;
    }
}

/* ---- moments --------------------------------------------------------------
 */

/* Moments that others may ask for as those of that round. They have two places:
 * a lease that is undone here may be in a commit. */
static const struct work_own *own(struct node *n,
                                  enum work_own_kind kind,
                                  uint64_t round,
                                  const struct hash32 *blocks)
{
    struct work_own *o = &n->work.own[kind][round % WORK_OWN];

    o->round = round;
    o->blocks = *blocks;
    blocks_offer(&n->opt.self, 0, blocks, &o->root);
    return o;
}

uint64_t node_work_undo(const struct node *n)
{
    return audits(n) ? n->held.applied.round + 1 : 0;
}

void node_work_trained(struct node *n, const struct hash32 *ends)
{
    if (audits(n) && !hash32_is_zero(ends)) {
        (void)own(n, WORK_ENDED, node_held_stand(&n->held)->round + 2, ends);
    }
}

void node_work_announce(struct node *n,
                        const struct report_state *state,
                        bool goes_on)
{
    struct moments m = {.steps = state->moment_steps};
    struct hash32 hash;

    if (!audits(n)) {
        return;
    }
    if (goes_on || state->broken || hash32_is_zero(&state->moments)) {
        round_moments(&n->round, NULL, NULL);
        return;
    }
    m.root = own(n, WORK_BEGAN, state->round + 1, &state->moments)->root;
    hash = node_state_hash(&state->params_hash, &state->momentum_hash);
    round_moments(&n->round, &m, &hash);
}

/* ---- serving --------------------------------------------------------------
 */

/* Whether that member may have so many bytes more for audits of our work. Each
 * draws us rarely; and how many cases there are others say, each of whom rarely
 * may. */
static bool may_have(struct node *n, int peer, uint64_t bytes)
{
    const struct peer_id *id = &n->members.peers[peer].id;
    struct node_work *w = &n->work;
    uint32_t place = 0;
    uint32_t every =
        n->opt.audit_every == 0 ? REPEAT_EVERY : n->opt.audit_every;
    uint64_t most = (REPEAT_EVERY + every - 1) / every * SERVE_LEASES *
                    work_lease_bytes(n->terms.n_params, n->terms.block);

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
    if (w->served[place].bytes + bytes > most) {
        return false;
    }
    w->served[place].bytes += bytes;
    return true;
}

bool node_work_affords(struct node *n,
                       int peer,
                       const struct fetch *f,
                       uint64_t elements,
                       uint32_t width)
{
    const struct peer_id *id = &n->members.peers[peer].id;

    return audits(n) && n->ballot.have &&
           view_counts(&n->ballot.cert.body, id) &&
           may_have(n, peer,
                    work_piece_bytes(elements, n->terms.block, width, f->offset,
                                     f->len));
}

/* NULL: they are not, or of long ago. */
static const struct work_own *find_own(const struct node *n,
                                       const struct fetch *f)
{
    for (int kind = 0; kind < WORK_OWN_KINDS; kind++) {
        const struct work_own *o = &n->work.own[kind][f->index % WORK_OWN];

        if (o->round != 0 && o->round == f->index &&
            hash32_eq(&o->root, &f->root)) {
            return o;
        }
    }
    return NULL;
}

bool node_work_serve(struct node *n, int peer, const struct fetch *f)
{
    const struct work_own *o = find_own(n, f);
    uint64_t elements = 2 * n->terms.n_params;
    struct action *action;

    if (o == NULL || f->stream != STREAM_WORK || f->buffer != BUFFER_MOMENTS ||
        !audits(n) || !members_is_ours(&n->members, peer) || f->len == 0 ||
        f->len > TRANSFER_PART / MOMENT_BYTES || f->offset >= elements ||
        f->len > elements - f->offset || f->offset % n->terms.block != 0 ||
        !node_work_affords(n, peer, f, elements, MOMENT_BYTES)) {
        return false;
    }
    members_fetch_served(&n->members, peer, MOMENT_BYTES * (uint64_t)f->len);
    action = out_add(n->out, ACTION_SEND_SEG);
    if (action != NULL) {
        action->segment = (struct segment){
            .peer = n->members.peers[peer].id,
            .attempt = f->attempt,
            .stream = f->stream,
            .seg = f->seg,
            .buffer = BUFFER_MOMENTS,
            .index = f->index,
            .name = hash32_u64(&o->blocks),
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

/* Write down what anybody can check. */
static void keep_evidence(struct node *n,
                          const struct verdict_body *v,
                          const struct repeat_counted *counted)
{
    struct job_evidence what = {.round = v->round};
    struct conviction c;
    struct job *job = NULL;

    if (conviction_make(&n->work.notes, &v->commit, &v->accused, counted, &c)) {
        what.conviction = node_span_of(n, &conviction_schema, &c);
        job = what.conviction.len == 0 ? NULL : out_job(n->out, JOB_EVIDENCE);
    }
    if (job == NULL) {
        out_log(n->out, LOG_WARN,
                "round %llu: no evidence about that can be kept: its vote, or "
                "a signed word, is not here",
                (unsigned long long)v->round);
        return;
    }
    job->evidence = what;
    (void)convicts_add(&n->work.written, &v->accused);
}

/* It may be convicted again, by its work of another round: that counts once. */
static void convict(struct node *n,
                    const struct verdict_body *v,
                    const struct repeat_counted *counted)
{
    const bool known = convicts_has(&n->ballot.convicts, &v->accused);
    char name[ID_SHORT_MAX];

    id_short(&v->accused, name);
    out_log(n->out, known ? LOG_DEBUG : LOG_WARN,
            "round %llu: more than half of the members made the work of %s "
            "again, and it is not what %s contributed; it is left out",
            (unsigned long long)v->round, name, name);
    node_convict(n, &v->accused);
    n->work.n_convicted += known ? 0 : 1;
    n->work.convicted = v->accused;
    if (!id_eq(&v->accused, &n->opt.self) &&
        !convicts_has(&n->work.written, &v->accused)) {
        keep_evidence(n, v, counted);
    }
}

static void tell(struct node *n, const struct verdict *m)
{
    const struct view_body *v = &n->ballot.cert.body;
    int rows[VIEW_MEMBERS_MAX];

    if (!n->ballot.have) {
        return;
    }
    for (uint32_t i = 0; i < v->n_members; i++) {
        rows[i] = n->ballot.rows[i];
    }
    members_broadcast(&n->members, n->out, rows, v->n_members, MESSAGE_VERDICT,
                      m);
}

static void say(struct node *n, const struct work_word *w)
{
    struct work_said *word = &n->work.words[n->work.n_words % WORK_SAID];

    word->said.body = w->body;
    if (message_sign(&n->opt.signer, &verdict_body_schema, &w->body,
                     word->said.sig) == 0) {
        if (w->body.verdict == REPEAT_BAD) {
            conviction_word(&n->work.notes, &w->counted, word->said.sig);
        }
        n->work.n_words++;
        word->tells = TELLS;
        word->tell_ms = n->now;
    }
}

void node_on_repeated(struct node *n, const struct local_event *e)
{
    const struct report_repeated *r = &e->repeated;
    char name[ID_SHORT_MAX];

    if (work_repeated(&n->work.core, e, n->out) && e->rc == 0 &&
        r->verdict == REPEAT_BAD) {
        id_short(&r->maker, name);
        out_log(n->out, LOG_WARN,
                "round %llu: the work of %s is not what it contributed: cosine "
                "%.3f, own %.3f, length %.2f",
                (unsigned long long)r->round, name, (double)r->cosine,
                (double)r->own, (double)r->length);
    }
}

static void log_word(struct node *n,
                     const struct peer_id *speaker,
                     const struct verdict_body *v)
{
    static const char *const words[] = {[REPEAT_UNCLEAR] = "cannot tell",
                                        [REPEAT_GOOD] = "good",
                                        [REPEAT_BAD] = "bad"};
    char who[ID_SHORT_MAX], name[ID_SHORT_MAX];

    if (v->verdict <= REPEAT_BAD && words[v->verdict] != NULL) {
        id_short(speaker, who);
        id_short(&v->accused, name);
        out_log(n->out, LOG_DEBUG, "round %llu: %s says of the work of %s: %s",
                (unsigned long long)v->round, who, name, words[v->verdict]);
    }
}

static void say_words(struct node *n)
{
    struct work_word w;

    while (work_take_word(&n->work.core, &w)) {
        log_word(n, &n->opt.self, &w.body);
        say(n, &w);
        if (w.end == REPEAT_CONVICTED) {
            convict(n, &w.body, &w.counted);
        }
    }
}

void node_on_verdict(struct node *n, int peer, const struct verdict *m)
{
    const struct view_body *v = &n->ballot.cert.body;
    const struct repeat_counted *counted = &n->work.core.repeat.counted;
    enum repeat_end end;
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
    log_word(n, &n->members.peers[peer].id, &m->body);
    say_words(n); /* our own ones, that counted before */
    end = work_on_verdict(&n->work.core, &n->members.peers[peer].id, &m->body);
    if (end != REPEAT_NONE && m->body.verdict == REPEAT_BAD) {
        conviction_word(&n->work.notes, counted, m->sig);
    }
    if (end == REPEAT_CONVICTED) {
        convict(n, &m->body, counted);
    }
}

/* ---- time -----------------------------------------------------------------
 */

/* A member that could have trained, and left the round out. */
static bool is_left_out(const struct node *n, uint32_t i)
{
    const struct ready_body *r = &n->round.readies[i];
    bool has_text = !text_comes_later(&n->terms) || r->text.first < r->text.end;

    return (n->round.ready >> i & 1) && r->tokens == 0 && r->n_rollback == 0 &&
           has_text;
}

/* Members before us that say that they left the round out: they come back
 * first. Who says nothing is not waited for. */
static uint32_t n_before(const struct node *n)
{
    uint32_t count = 0;

    for (uint32_t i = 0; i < (uint32_t)n->ballot.self_index; i++) {
        count +=
            view_is_full(&n->ballot.cert.body, i) && is_left_out(n, i) ? 1 : 0;
    }
    return count;
}

/* As long as a member that came back may take until it says so: it may be no
 * slower than twice our slowest step, or it may be a liar, or rest. */
static uint64_t back_patience_ms(const struct node *n)
{
    return n->terms.grace_ms +
           2 * n->training.step_ms * terms_steps(&n->terms, n->round.round);
}

/* More than half are ready, and nobody has anything: no plan is possible, and
 * members that left the round out train for it after all, one after the other,
 * until there is something. The first one begins at once where each is ready,
 * or after the grace. What it takes back here is in no plan, unless somebody
 * was that late: then that attempt fails, and the next one has its work.
 * CORE_NEVER: it is not our turn. */
static uint64_t back_ms(const struct node *n)
{
    const struct round *r = &n->round;
    const struct view_body *v = &n->ballot.cert.body;
    uint64_t late;

    if (!n->work.left_out || !n->ballot.have || !r->contributed ||
        r->mine.tokens > 0 || r->phase != ROUND_READY || r->has_plan ||
        r->quorum_ms == 0 || n->training.paused ||
        work_is_repeating(&n->work.core) || round_has_work(r) ||
        !view_is_full(v, (uint32_t)n->ballot.self_index)) {
        return CORE_NEVER;
    }
    late = view_full(v) & ~n->ballot.departed.mask & ~r->ready;
    return r->quorum_ms + (late == 0 ? 0 : n->terms.grace_ms) +
           n_before(n) * back_patience_ms(n);
}

static void come_back(struct node *n)
{
    if (n->now >= back_ms(n)) {
        n->work.left_out = false;
        n->work.needed = n->round.round;
        n->work.n_back++;
        round_retract(&n->round);
        node_forget_contribution(n);
    }
}

bool node_work_leaves_out(struct node *n)
{
    const uint64_t round = node_held_stand(&n->held)->round + 1;
    struct job_train *train;

    n->work.left_out = audits(n) && n->terms.lease_quota > 0 &&
                       n->work.needed != round &&
                       work_begin_repeat(&n->work.core, round, n->out);
    if (!n->work.left_out) {
        return false;
    }
    train = node_training_begin(n, round, 0);
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
        rests_add(&n->audit.silence, &who, n->held.known.round + 1);
    }
}

void node_work_tick(struct node *n)
{
    struct node_work *w = &n->work;

    if (!audits(n)) {
        return;
    }
    work_tick(&w->core, n->now, n->out);
    say_words(n);
    note_silent(n);
    come_back(n);
    for (uint32_t i = 0; i < WORK_SAID; i++) {
        struct work_said *word = &w->words[i];

        if (word->tells > 0 && n->now >= word->tell_ms) {
            tell(n, &word->said);
            word->tells--;
            word->tell_ms = n->now + node_scaled(n, TELL_MS);
        }
    }
}

uint64_t node_work_deadline(const struct node *n)
{
    const struct node_work *w = &n->work;
    uint64_t due = work_deadline(&w->core), back = back_ms(n);

    for (uint32_t i = 0; i < WORK_SAID; i++) {
        if (w->words[i].tells > 0 && w->words[i].tell_ms < due) {
            due = w->words[i].tell_ms;
        }
    }
    return back < due ? back : due;
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
