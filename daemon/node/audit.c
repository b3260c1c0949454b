/* audit.c - see audit.h.
 *
 * A commit is noted with its view as it is made, because the view may change
 * before the result is in place. Contributions are served to members of our
 * view only: our own ones of the last two commits, and those that we collected
 * to a block that we found wrong.
 *
 * Which blocks are drawn follows from our signature of the commit, which is
 * said to nobody. The generator of this node would not do: its first word is
 * `life`, which each HELLO has, and with one word all others are known.
 */
#include "daemon/node/internal.h"

#include <string.h>

#include "p2p/round/conviction.h"
#include "proto/base/log.h"
#include "proto/base/rng.h"
#include "proto/hash.h"

#define TELLS   5 /* so often a wrong sum is said: others may apply it late */
#define TELL_MS 1000
/* Commits whose contributions are here, without audits of work. */
#define OWN_SUMS      2
#define FETCHED_WIDTH 4 /* bytes of an element at most */

static bool audits(const struct node *n)
{
    return n->terms.audits && n->regime->has_views && n->inner->whole;
}

void node_audit_open(struct node *n)
{
    audit_init(&n->audit.core, &n->members, n->t.fetch_ms,
               (rng_next(&n->rng) >> 24) << 20);
}

/* The plan of the round that was just committed, for audits. */
static void note(const struct node *n, struct audit_commit *c)
{
    const struct round *r = &n->round;
    const struct plan_body *p = &r->last.plan.body;
    double total = (double)plan_tokens(p);

    memset(c, 0, sizeof *c);
    c->round = p->round;
    c->hash = r->last_hash;
    c->rank = r->rank;
    c->shape.cut = (struct ring_shape){
        .elements = terms_elements(&n->terms, p->round),
        .block = n->terms.block,
        .segment_elements = n->terms.segment_elements,
        .chunk_segments = n->terms.chunk_segments,
        .n = p->n_members,
    };
    for (uint32_t k = 0; k < p->n_members; k++) {
        c->shape.share[k] = p->members[k].share;
        c->member[k] = id_of_public(r->plan_keys[k]);
        c->offer[k] = p->members[k].offer;
        c->scale[k] = (double)p->members[k].tokens / total;
    }
}

void node_audit_offered(struct node *n,
                        uint64_t round,
                        const struct hash32 *offer)
{
    if (audits(n)) {
        n->audit.own[round % AUDIT_OWN].round = round;
        n->audit.own[round % AUDIT_OWN].offer = *offer;
    }
}

void node_audit_committed(struct node *n)
{
    struct node_audit *a = &n->audit;
    const struct plan_body *p = &n->round.last.plan.body;
    const struct view_body *made_in = ballot_view_of(&n->ballot, &p->view);

    a->next.commit.round = 0;
    if (made_in == NULL || !audits(n) || !n->round.in_plan ||
        p->n_rollback > 0 || p->n_members < 2 ||
        round_kind(p) != EXCHANGE_BUTTERFLY) {
        return;
    }
    note(n, &a->next.commit);
    a->next.view = *made_in;
    node_audit_offered(n, p->round, &p->members[n->round.rank].offer);
}

bool node_audit_secret(const struct node *n,
                       const struct audit_names *names,
                       const struct hash32 *commit,
                       uint64_t *secret)
{
    const struct signer *s = &n->opt.signer;
    uint8_t sig[SIGN_BYTES];
    struct hash32 draw;

    if (s->sign(s->self, names->sign, commit, sizeof *commit, sig) != 0) {
        return false;
    }
    hash_bytes(names->hash, sig, sizeof sig, &draw);
    *secret = hash32_u64(&draw);
    return true;
}

void node_audit_applied(struct node *n)
{
    static const struct audit_names names = {"loco-audit-1", "loco-audit-2"};
    struct node_audit *a = &n->audit;
    uint64_t secret;

    if (!audits(n)) {
        return;
    }
    if (a->next.commit.round == 0 ||
        !hash32_eq(&a->next.commit.hash, &n->held.applied.commit) ||
        !node_audit_secret(n, &names, &a->next.commit.hash, &secret)) {
        audit_stop(&a->core, n->out); /* not of the same round, or branch */
        return;
    }
    a->view = a->next.view;
    audit_begin(&a->core, &a->next.commit, secret, n->now, n->rounds.round_ms,
                n->out);
    a->next.commit.round = 0;
}

void node_audit_stop(struct node *n)
{
    audit_stop(&n->audit.core, n->out);
    n->audit.next.commit.round = 0;
    n->audit.tells = 0;
    for (uint32_t i = 0; i < AUDIT_OWN; i++) { /* it was given up */
        if (n->audit.own[i].round > n->held.applied.round) {
            n->audit.own[i].round = 0;
        }
    }
}

/* ---- a wrong sum -------------------------------------------------------- */

static void tell_all(struct node *n, const struct accuse *m)
{
    for (uint32_t i = 0; i < n->ballot.cert.body.n_members; i++) {
        int row = n->ballot.rows[i];

        if (row != MEMBERS_NONE && members_linked(&n->members, row)) {
            (void)members_send(&n->members, n->out, row, MESSAGE_ACCUSE, m);
        }
    }
}

static void tell(struct node *n)
{
    struct node_audit *a = &n->audit;

    tell_all(n, &a->found);
    a->tells--;
    a->tell_ms = n->now + node_scaled(n, TELL_MS);
}

struct out_span node_span_of(struct node *n,
                             const struct msg_schema *schema,
                             const void *message)
{
    uint8_t bytes[FRAME_CONTROL_MAX];
    int len = msg_encode(schema, message, bytes, sizeof bytes);
    struct out_span span = {0, 0};

    if (len > 0) {
        span.at = out_bytes(n->out, bytes, (size_t)len);
        span.len = span.at == UINT32_MAX ? 0 : (uint32_t)len;
    }
    return span;
}

/* The vote of the member of that rank, as the record of the commit has it.
 * False: it has none (where the next view decided the round, and that member's
 * signature did not come), or is of another view than the one that was noted.
 */
static bool vote_of(const struct node *n,
                    const struct commit *c,
                    uint32_t k,
                    struct vote *v)
{
    const struct view_body *view = &n->audit.view;
    const struct plan_body *p = &c->plan.body;
    const uint8_t *key = view->members[p->members[k].index].public_key;
    struct hash32 noted;

    *v = (struct vote){.body = {.epoch = p->epoch,
                                .view = p->view,
                                .round = p->round,
                                .result = c->result}};
    view_hash(view, &noted);
    if (!hash32_eq(&noted, &p->view)) {
        return false;
    }
    message_hash(&plan_body_schema, "loco-plan-1", p, &v->body.plan);
    for (uint32_t i = 0; i < c->n_votes; i++) {
        if (memcmp(c->votes[i].public_key, key, 32) == 0) {
            memcpy(v->sig, c->votes[i].sig, SIGN_BYTES);
            return conviction_is_signed(v->sig);
        }
    }
    return false;
}

/* Write down what anybody can check. */
static void keep_evidence(struct node *n, const struct audit_block *b)
{
    struct job_evidence what = {.round = n->audit.core.commit.round,
                                .offset = b->offset,
                                .accused = b->owner};
    struct commit c;
    struct vote vote;
    struct job *job;

    if (!history_get(&n->history, what.round, &c) ||
        b->owner >= c.plan.body.n_members || !vote_of(n, &c, b->owner, &vote)) {
        return;
    }
    what.view = node_span_of(n, &view_body_schema, &n->audit.view);
    what.plan = node_span_of(n, &plan_body_schema, &c.plan.body);
    what.vote = node_span_of(n, &vote_schema, &vote);
    job = out_job(n->out, JOB_EVIDENCE);
    if (job != NULL) {
        job->evidence = what;
    }
}

/* Whether the owner of that sum signed a vote for this plan and result. One
 * that did not may have summed by another plan that the coordinator showed to
 * it. */
static bool has_voted(const struct node *n, const struct audit_block *b)
{
    struct commit c;
    struct vote vote;

    return history_get(&n->history, n->audit.core.commit.round, &c) &&
           b->owner < c.plan.body.n_members && vote_of(n, &c, b->owner, &vote);
}

static void convict(struct node *n, const struct audit_block *b)
{
    struct node_audit *a = &n->audit;
    const struct audit_commit *c = &a->core.commit;
    const struct peer_id *who = &c->member[b->owner];
    bool known = convicts_has(&n->ballot.convicts, who);
    char name[ID_SHORT_MAX];

    id_short(who, name);
    if (!has_voted(n, b)) {
        out_log(n->out, LOG_WARN,
                "round %llu: %s summed wrongly, but did not vote for that; it "
                "rests when more than half say so",
                (unsigned long long)c->round, name);
        rests_add(&a->silence, who, n->held.known.round + 1);
        return;
    }
    out_log(n->out, LOG_WARN,
            "round %llu: %s summed elements %llu to %llu wrongly, and voted "
            "for it; it is left out when more than half have seen that",
            (unsigned long long)c->round, name, (unsigned long long)b->offset,
            (unsigned long long)(b->offset + b->len - 1));
    node_convict(n, who);
    a->n_convicted++;
    a->convicted = *who;
    a->found = (struct accuse){
        .round = c->round, .commit = c->hash, .offset = b->offset};
    a->tells = TELLS;
    tell(n);
    if (!known) { /* one file a liar: few members cannot put it out */
        keep_evidence(n, b);
    }
}

void node_on_audited(struct node *n, const struct local_event *e)
{
    struct audit_block b;

    if (audit_summed(&n->audit.core, e, &b)) {
        convict(n, &b);
    }
}

void node_on_accuse(struct node *n, int peer, const struct accuse *m)
{
    if (audits(n) && members_is_ours(&n->members, peer)) {
        (void)audit_on_accuse(&n->audit.core, peer, m);
    }
}

/* ---- who does not serve ---------------------------------------------------
 */

/* Members whose contribution could not be had are named in READY, and the
 * others are told where to look. */
static void note_silent(struct node *n)
{
    struct node_audit *a = &n->audit;
    struct accuse word;
    bool says;
    uint64_t silent = audit_take_silent(&a->core, &word, &says);

    for (uint32_t i = 0; i < a->core.commit.shape.cut.n; i++) {
        if (silent >> i & 1) {
            rests_add(&a->silence, &a->core.commit.member[i],
                      n->held.known.round + 1);
        }
    }
    if (says) {
        tell_all(n, &word);
    }
}

/* ---- blocks ------------------------------------------------------------- */

void node_audit_seg_done(struct node *n, const struct event_seg_done *ev)
{
    if (!ev->sent) {
        audit_seg_done(&n->audit.core, ev, n->out);
    } else if (ev->rc != 0) {
        node_on_sent_failed(n, ev);
    }
}

/* Whether that contribution is here: our own, or one that we collected.
 * *lane: n where it is ours. */
static bool is_here(const struct node *n, const struct fetch *f, uint32_t *lane)
{
    const struct node_audit *a = &n->audit;
    const struct audit_commit *c = &a->core.commit;
    const uint32_t members = c->shape.cut.n;

    *lane = members;
    if (!n->terms.audits_work && f->index + OWN_SUMS <= n->held.known.round) {
        return false;
    }
    if (a->own[f->index % AUDIT_OWN].round == f->index &&
        hash32_eq(&a->own[f->index % AUDIT_OWN].offer, &f->root)) {
        return true;
    }
    if (f->index != c->round || c->round != a->found.round ||
        f->offset != a->found.offset) {
        return false;
    }
    for (uint32_t i = 0; i < members; i++) {
        if (hash32_eq(&c->offer[i], &f->root)) {
            *lane = i;
            return true;
        }
    }
    return false;
}

/* Whoever asks for what we only voted for holds the commit: the last vote did
 * not come yet, or somebody keeps it from us, so that we seem silent. One
 * question for each of theirs. */
static void ask_commit(struct node *n, int peer, const struct fetch *f)
{
    const struct round *r = &n->round;
    struct get_commit ask = {.round = f->index};

    if (r->phase == ROUND_VOTED && r->round == f->index &&
        f->index == n->held.known.round + 1 &&
        hash32_eq(&r->mine.offer, &f->root)) {
        (void)members_send(&n->members, n->out, peer, MESSAGE_GET_COMMIT, &ask);
    }
}

bool node_audit_serve(struct node *n, int peer, const struct fetch *f)
{
    uint64_t elements;
    struct action *action;
    uint32_t lane;

    if ((f->stream != STREAM_AUDIT &&
         !(f->stream == STREAM_WORK && n->terms.audits_work)) ||
        f->buffer != BUFFER_OFFER || f->index == 0 || !audits(n) ||
        !members_is_ours(&n->members, peer)) {
        return false;
    }
    if (!is_here(n, f, &lane)) {
        ask_commit(n, peer, f);
        return false;
    }
    elements = terms_elements(&n->terms, f->index);
    if (f->len == 0 || f->len > n->terms.block || f->offset >= elements ||
        f->len > elements - f->offset || f->offset % n->terms.block != 0) {
        return false;
    }
    if (f->stream == STREAM_WORK &&
        !node_work_affords(n, peer, f, elements, FETCHED_WIDTH)) {
        return false;
    }
    members_fetch_served(&n->members, peer, FETCHED_WIDTH * (uint64_t)f->len);
    action = out_add(n->out, ACTION_SEND_SEG);
    if (action != NULL) {
        action->segment = (struct segment){
            .peer = n->members.peers[peer].id,
            .attempt = f->attempt,
            .stream = f->stream,
            .seg = f->seg,
            .buffer = BUFFER_OFFER,
            .index = f->index,
            .offset = f->offset,
            .len = f->len,
            .op = lane < n->audit.core.commit.shape.cut.n ? SEGMENT_LANE
                                                          : SEGMENT_COPY,
            .lane = (uint8_t)lane,
            .proven = true,
        };
    }
    return true;
}

void node_audit_tick(struct node *n)
{
    audit_tick(&n->audit.core, n->now, n->out);
    note_silent(n);
    if (n->audit.tells > 0 && n->now >= n->audit.tell_ms) {
        tell(n);
    }
}

uint64_t node_audit_deadline(const struct node *n)
{
    uint64_t due = audit_deadline(&n->audit.core);

    return n->audit.tells > 0 && n->audit.tell_ms < due ? n->audit.tell_ms
                                                        : due;
}

void node_audit_status(const struct node *n, struct node_status *s)
{
    const struct audit *a = &n->audit.core;

    s->audits = audits(n);
    s->audit_sums = a->n_blocks;
    s->audit_wrong = a->n_wrong;
    s->audit_unanswered = a->n_unanswered;
    s->audit_silent = n->audit.silence.n_seen;
    s->convicts = n->ballot.convicts.n;
}
