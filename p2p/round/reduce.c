/* reduce.c - from a plan to the reduced bytes, and what is kept of them
 * when the attempt fails. See round.h. */

#include "p2p/round/internal.h"
#include "proto/base/err.h"
#include "proto/base/log.h"

/* All bytes are here: hash them. */
static void reduced(struct round *r, struct out *out)
{
    struct job *job;

    r->phase = ROUND_HASHING;
    round_cancel(r->exchange.attempt, out); /* late duplicates are dropped */
    job = out_job(out, JOB_HASH);
    if (job != NULL) {
        job->hash.buffer = BUFFER_RING;
        job->hash.index = r->round;
        job->hash.request = r->exchange.attempt;
    }
}

/* The wire buffer of the attempt before is this one's. */
static void take_over(struct round *r, struct out *out)
{
    uint64_t holds = r->plan.body.members[r->rank].holds;
    struct job *job;

    if (holds > 0) {
        job = out_job(out, JOB_INHERIT);
        if (job == NULL) {
            r->spoiled = true;
            return;
        }
        job->inherit.from = r->kept.attempt;
        job->inherit.to = r->exchange.attempt;
        job->inherit.elements = holds;
        inherit_move(&r->kept, holds, r->exchange.attempt);
    }
}

/* Nobody to exchange with: encode the rest, then hash. */
static void alone(struct round *r, struct out *out)
{
    struct job *job;

    r->phase = ROUND_HASHING;
    take_over(r, out);
    job = out_job(out, JOB_HASH);
    if (job != NULL) {
        job->hash.buffer = BUFFER_RING;
        job->hash.index = r->round;
        job->hash.request = r->exchange.attempt;
        job->hash.encode = true;
        job->hash.from = inherit_total(&r->plan.body);
    }
}

/* The plan in the words of an exchange. */
static struct exchange_plan exchange_plan(const struct round *r)
{
    const struct plan_body *p = &r->plan.body;
    struct exchange_plan x = {
        .kind = round_kind(p),
        .attempt = round_attempt(r->epoch, r->round),
        .proven = r->terms.audits,
        .cut = {.elements = terms_elements(&r->terms, r->round),
                .from = inherit_total(p),
                .block = r->terms.block,
                .segment_elements = r->terms.segment_elements,
                .chunk_segments = r->terms.chunk_segments,
                .n = p->n_members},
        .rank = r->rank,
    };
    double total = (double)plan_tokens(p);

    for (uint32_t k = 0; k < p->n_members; k++) {
        x.members[k] = (struct exchange_member){
            .peer = r->ballot->ids[p->members[k].index],
            .scale = (double)p->members[k].tokens / total,
            .holds = p->members[k].holds,
            .share = p->members[k].share,
            .gateway = p->members[k].gateway,
            .offer = p->members[k].offer,
        };
    }
    return x;
}

/* Data connections to those whom we send something. */
static void open_bulks(const struct round *r,
                       const struct exchange_plan *x,
                       struct out *out)
{
    for (uint32_t k = 0; k < x->cut.n; k++) {
        int row = r->ballot->rows[r->plan.body.members[k].index];

        if (exchange_sends_to(x, k)) {
            members_bulk_open(r->members, out, row);
        }
    }
}

static void expose(struct round *r)
{
    uint32_t at = r->n_exposed++ % ROUND_EXPOSED_MAX;

    r->exposed = true;
    r->exposed_in[at].view = r->plan.body.view;
    r->exposed_in[at].index = r->plan.body.members[r->rank].index;
}

bool round_is_exposed_in(const struct round *r, const struct plan_body *plan)
{
    for (uint32_t i = 0; i < r->n_exposed && i < ROUND_EXPOSED_MAX; i++) {
        for (uint32_t k = 0; k < plan->n_members; k++) {
            if (hash32_eq(&r->exposed_in[i].view, &plan->view) &&
                r->exposed_in[i].index == plan->members[k].index) {
                return true;
            }
        }
    }
    return false;
}

void round_reduce(struct round *r, uint64_t now_ms, struct out *out)
{
    struct exchange_plan plan = exchange_plan(r);

    r->phase = ROUND_REDUCING;
    r->progress_ms = r->moved_ms = now_ms;
    r->quiet = false;
    r->exchange_progress = 0;
    expose(r);
    r->exchange.attempt = plan.attempt;
    if (plan.cut.n == 1) {
        alone(r, out);
        return;
    }
    exchange_init(&r->exchange, &plan);
    open_bulks(r, &plan, out);
    take_over(r, out);
    if (exchange_finished(&r->exchange)) {
        reduced(r, out); /* all of it was inherited, and is here */
        return;
    }
    exchange_pump(&r->exchange, out);
}

/* Who is to blame for bytes that are no numbers; NULL: nobody can tell. */
static const struct peer_id *
culprit(const struct round *r, const struct segment *s, bool sent)
{
    if (s->op == SEGMENT_SUM) {
        return s->lane < r->plan.body.n_members
                   ? &r->ballot->ids[r->plan.body.members[s->lane].index]
                   : NULL;
    }
    return sent && s->op == SEGMENT_ENCODE ? &r->opt.self : NULL;
}

/* Whose contribution or sum cannot be used stays out of this round. */
static void reject(struct round *r,
                   const struct peer_id *peer,
                   const char *what,
                   const char *why,
                   struct out *out)
{
    char name[ID_SHORT_MAX];

    r->has_rejected = true;
    r->rejected = *peer;
    r->spoiled = true; /* all of the result has the same contributors */
    id_short(peer, name);
    out_log(out, LOG_WARN,
            "round %llu: %s of %s%s is not %s; the round begins again without "
            "that peer",
            (unsigned long long)r->round, what, name,
            id_eq(peer, &r->opt.self) ? ", our own," : "", why);
}

/* Final bytes as the owner of a slice sends them. What a ring adds up here at
 * its last hop has come through the hands of all. */
static bool is_sum(const struct segment *s)
{
    return s->final && s->op == SEGMENT_COPY && (s->seg & BUTTERFLY_FINAL) != 0;
}

static void
seg_failed(struct round *r, const struct event_seg_done *ev, struct out *out)
{
    bool sum = ev->segment.op == SEGMENT_SUM;
    bool unusable = ev->rc == LOCO_ENUMERIC || (sum && ev->rc == LOCO_EPROTO);
    bool other = !ev->sent && ev->segment.proven && ev->rc == LOCO_EHASH;
    bool result = !ev->sent && is_sum(&ev->segment) &&
                  (ev->rc == LOCO_ENUMERIC || ev->rc == LOCO_EPROTO);
    const struct peer_id *peer = culprit(r, &ev->segment, ev->sent);
    int row;

    if (other) {
        reject(r, &ev->segment.peer, "the contribution", "what it announced",
               out);
    } else if (result) {
        reject(r, &ev->segment.peer, "the sum", "made of finite numbers", out);
    } else if (unusable && peer != NULL) {
        reject(r, peer, "the contribution", "made of finite numbers", out);
    } else if (!sum) {
        row = members_find(r->members, &ev->segment.peer);
        r->n_broken = row == r->broken ? r->n_broken + 1 : 1;
        r->broken = row;
    }
    round_change(r, other      ? "a contribution is not what was announced"
                    : result   ? "a sum is not finite"
                    : unusable ? "a contribution is not finite"
                    : sum      ? "contributions cannot be summed here"
                               : "a data connection failed");
}

void round_seg_done(struct round *r,
                    const struct event_seg_done *ev,
                    struct out *out)
{
    if (r->phase != ROUND_REDUCING || r->frozen ||
        ev->segment.attempt != r->exchange.attempt) {
        return;
    }
    if (ev->rc != 0 || exchange_done(&r->exchange, ev) != 0) {
        seg_failed(r, ev, out);
        return;
    }
    if (!exchange_finished(&r->exchange)) {
        exchange_pump(&r->exchange, out);
        return;
    }
    reduced(r, out);
}

void round_keep(struct round *r)
{
    struct peer_id ids[VIEW_MEMBERS_MAX];

    if (r->spoiled || r->terms.audits || r->idle.untrue != 0 ||
        round_votes_differ(r)) {
        r->kept.n = 0;
        return;
    }

    if (!r->in_plan || r->plan.body.n_members < 2 ||
        r->plan.body.n_rollback > 0) {
        return; /* the buffer is as the attempt before left it */
    }
    for (uint32_t k = 0; k < r->plan.body.n_members; k++) {
        ids[k] = id_of_public(r->plan_keys[k]);
    }
    inherit_keep(&r->kept, &r->plan.body, &r->plan_hash, ids,
                 exchange_final(&r->exchange), r->exchange.attempt);
}

void round_disinherited(struct round *r, uint64_t attempt, struct out *out)
{
    if (!r->in_plan || attempt != r->exchange.attempt ||
        (r->phase != ROUND_REDUCING && r->phase != ROUND_HASHING)) {
        return;
    }
    r->spoiled = true;
    r->phase = ROUND_READY; /* neither exchange nor hash goes on */
    round_cancel(attempt, out);
    round_change(r, "this peer lost what earlier attempts had finished");
}
