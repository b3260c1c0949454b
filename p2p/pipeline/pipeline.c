/* pipeline.c - see pipeline.h: who is there, what is agreed. The way of a
 * micro-batch through this host is in pipeline/micro.c. */
#include "p2p/pipeline/internal.h"

#include <string.h>

#include "proto/base/err.h"

#define BIT(k) (1ULL << (k))

/* How far an attempt may be ahead of ours: without a bound one made-up number
 * would be the last. At once so many; a newcomer meets hosts whose numbers grew
 * with the rounds that they saw. */
#define ATTEMPTS_NEAR  64
#define ATTEMPTS_FIRST 4096
#define ATTEMPTS_ROUND 1024 /* more for each round of the run */

/* Stalls double the patience, up to 2^this. */
#define STALLS_MAX 6

struct pipeline_action *pipeline_add(struct pipeline *p,
                                     struct pipeline_out *out,
                                     enum pipeline_action_type type)
{
    struct pipeline_action *a = &out->action[out->n++];

    *a = (struct pipeline_action){.type = type,
                                  .tag = pipeline_tag(p->attempt, p->step)};
    return a;
}

uint64_t pipeline_tag(uint32_t attempt, uint32_t step)
{
    return (uint64_t)attempt << 32 | step;
}

uint32_t pipeline_tag_attempt(uint64_t tag)
{
    return (uint32_t)(tag >> 32);
}

uint32_t pipeline_tag_step(uint64_t tag)
{
    return (uint32_t)tag;
}

int pipeline_init(struct pipeline *p, const struct pipeline_options *opt)
{
    if (opt->stages == 0 || opt->stages > ROUTE_STAGES_MAX ||
        opt->micro_batches == 0 || opt->micro_batches > PIPELINE_MICRO_MAX ||
        opt->steps == 0 || opt->slots == 0 || opt->slots > PIPELINE_SLOTS_MAX) {
        return LOCO_EINVAL;
    }
    memset(p, 0, sizeof *p);
    p->opt = *opt;
    return 0;
}

/* ---- gathering -------------------------------------------------------- */

static bool active(const struct pipeline *p)
{
    return p->state == PIPELINE_GATHER || p->state == PIPELINE_RUN ||
           p->state == PIPELINE_HELD;
}

static uint64_t all_stages(const struct pipeline *p)
{
    return p->opt.stages == 64 ? UINT64_MAX : BIT(p->opt.stages) - 1;
}

static bool starved(const struct pipeline *p)
{
    uint64_t served = 0;

    for (uint32_t k = 0; k < p->n; k++) {
        if (p->layout & BIT(k)) {
            served |= BIT(p->host[k].stage);
        }
    }
    return served != all_stages(p);
}

static void say_again_later(struct pipeline *p)
{
    p->resend_at_ms = p->now_ms + p->opt.resend_ms;
    p->answered_ms = p->now_ms;
    p->answered = 0;
}

static void say_hello(struct pipeline *p,
                      struct pipeline_out *out,
                      uint64_t hosts,
                      uint64_t gone)
{
    struct pipeline_action *a = pipeline_add(p, out, PIPELINE_SAY_HELLO);

    a->hosts = hosts & ~BIT(p->self);
    a->gone = gone & ~BIT(p->self);
}

/* What was under way is void. A complete sum stays until all have spoken. */
static void stop(struct pipeline *p, struct pipeline_out *out)
{
    if (p->state == PIPELINE_RUN || p->state == PIPELINE_HELD) {
        (void)pipeline_add(p, out, PIPELINE_CANCEL);
        if (!p->held) {
            (void)pipeline_add(p, out, PIPELINE_CLEAR);
        }
        p->computing = false;
        p->n_micro = 0;
    }
}

/* Gather for `attempt` with the hosts of `layout`; those of `gone` are told. */
static void gather(struct pipeline *p,
                   struct pipeline_out *out,
                   uint32_t attempt,
                   uint64_t layout,
                   uint64_t now_ms)
{
    uint64_t gone = p->layout & ~layout;

    stop(p, out);
    p->attempt = attempt;
    p->layout = layout;
    p->hello = 0;
    p->said[p->self] = p->step;
    p->cost_us[p->self] = p->own_cost_us;
    p->ready = 0;
    p->ready_next = 0;
    memset(p->asked, (int)PIPELINE_NOBODY, sizeof p->asked);
    p->state = PIPELINE_GATHER;
    p->deadline_ms = now_ms + p->opt.gather_ms;
    say_again_later(p);
    if (starved(p)) {
        p->state = PIPELINE_STARVED; /* a sum that is held stays so */
    }
    say_hello(p, out, layout, gone);
}

/* Where the redraws of a step begin. */
static uint32_t first_redraw(const struct pipeline *p)
{
    return p->round == p->first_round ? p->opt.first_redraw : 0;
}

/* A complete sum is void here. Who heard our READY may have counted the step,
 * so what we enter in its place is something else. */
static void discard(struct pipeline *p, struct pipeline_out *out)
{
    if (p->held) {
        p->held = false;
        p->redraw++;
        (void)pipeline_add(p, out, PIPELINE_CLEAR);
    }
}

static void go_out(struct pipeline *p, struct pipeline_out *out)
{
    stop(p, out);
    discard(p, out);
    p->state = PIPELINE_OUT;
}

/* Host k goes on with us, and we do not: our word was lost. */
static void say_out(struct pipeline *p,
                    uint32_t k,
                    uint32_t attempt,
                    struct pipeline_out *out)
{
    p->attempt = (attempt > p->attempt ? attempt : p->attempt) + 1;
    p->layout &= ~BIT(p->self);
    say_hello(p, out, BIT(k), 0);
}

/* Everybody counted the step: so do we. */
static void count_step(struct pipeline *p, struct pipeline_out *out)
{
    struct pipeline_action *a = pipeline_add(p, out, PIPELINE_STEP);

    a->count = p->held_count;
    p->held = false;
    p->stepping = true;
    p->work_ms = p->now_ms;
    p->step++;
    p->redraw = first_redraw(p);
    p->ready = p->ready_next;
    p->ready_next = 0;
    memcpy(p->asked[0], p->asked[1], sizeof p->asked[0]);
    memset(p->asked[1], (int)PIPELINE_NOBODY, sizeof p->asked[1]);
}

/* Where nothing is awaited any more the next step begins, or the round ends. */
static void go_on(struct pipeline *p, struct pipeline_out *out)
{
    if (p->stepping) {
        return;
    }
    if (p->step == p->opt.steps) {
        p->state = PIPELINE_FINISHED;
        (void)pipeline_add(p, out, PIPELINE_END);
        return;
    }
    p->state = PIPELINE_RUN;
    p->rejoins = false;
    say_again_later(p);
    pipeline_run(p, out);
}

/* Host k says again what we know of it: what we said last may be lost. Once in
 * a while, or two would answer each other for ever. */
static bool answers(struct pipeline *p, uint32_t k)
{
    bool due;

    if (p->opt.resend_ms > 0 &&
        p->now_ms >= p->answered_ms + p->opt.resend_ms) {
        p->answered_ms = p->now_ms;
        p->answered = 0;
    }
    due = !(p->answered & BIT(k));

    p->answered |= BIT(k);
    return due;
}

/* ---- which step comes next -------------------------------------------- */

/* More than half of the layout has come to that step, or all hosts of a stage:
 * without these there is no way. */
static bool is_reached(const struct pipeline *p, uint32_t step)
{
    uint64_t there = 0, behind = 0; /* hosts; stages */

    for (uint32_t k = 0; k < p->n; k++) {
        if ((p->layout & BIT(k)) == 0) {
            continue;
        }
        if (p->said[k] >= step) {
            there |= BIT(k);
        } else {
            behind |= BIT(p->host[k].stage);
        }
    }
    return 2 * __builtin_popcountll(there) > __builtin_popcountll(p->layout) ||
           behind != all_stages(p);
}

/* All have spoken, so all who heard the same come to the same. */
static uint32_t agreed_step(const struct pipeline *p)
{
    uint32_t step = 0;

    for (uint32_t k = 0; k < p->n; k++) {
        if ((p->layout & BIT(k)) != 0 && p->said[k] > step &&
            is_reached(p, p->said[k])) {
            step = p->said[k];
        }
    }
    return step;
}

/* Hosts of the layout that name a step after `step`. */
static uint64_t ahead_of(const struct pipeline *p, uint64_t step)
{
    uint64_t hosts = 0;

    for (uint32_t k = 0; k < p->n; k++) {
        hosts |= p->said[k] > step ? BIT(k) : 0;
    }
    return hosts & p->layout;
}

/* Others made steps that this host did not: who has run nothing since
 * pipeline_begin goes on with them, and what it held is void. Else it has
 * another past than they. */
static void
catch_up(struct pipeline *p, uint32_t step, struct pipeline_out *out)
{
    if (!p->rejoins) {
        go_out(p, out);
        return;
    }
    discard(p, out);
    p->step = step;
    p->redraw = first_redraw(p);
    go_on(p, out);
}

/* The layout without some that are not where the others are. */
static void
leave_out(struct pipeline *p, uint64_t hosts, struct pipeline_out *out)
{
    gather(p, out, p->attempt + 1, p->layout & ~hosts, p->now_ms);
}

/* All are at `step` or before, some at the one after it, `leaders`. One word is
 * enough where it can be true: who named the next step heard that all of the
 * last one were HELD. */
static void follow(struct pipeline *p,
                   uint32_t step,
                   uint64_t leaders,
                   struct pipeline_out *out)
{
    if (p->step > step) {
        discard(p, out); /* of the step after it: nobody counted that */
        go_on(p, out);
    } else if (p->step == step && p->held) {
        count_step(p, out);
        go_on(p, out);
    } else if (p->step == step) {
        leave_out(p, leaders, out); /* it was not: we were not */
    } else {
        catch_up(p, step + 1, out);
    }
}

/* All have said the same: decide about a sum that is held, then go. */
static void if_gathered(struct pipeline *p, struct pipeline_out *out)
{
    uint32_t step;
    uint64_t leaders, far;

    if (p->state != PIPELINE_GATHER || (p->hello | BIT(p->self)) != p->layout) {
        return;
    }
    step = agreed_step(p);
    leaders = ahead_of(p, step);
    far = ahead_of(p, step + 1ULL);
    if ((far & BIT(p->self)) != 0) {
        go_out(p, out);
    } else if (far != 0) {
        leave_out(p, far, out);
    } else if (leaders != 0) {
        follow(p, step, leaders, out);
    } else if (p->step < step && !(p->held && p->step + 1 == step)) {
        catch_up(p, step, out);
    } else {
        if (p->step < step) {
            count_step(p, out);
        }
        discard(p, out);
        go_on(p, out);
    }
}

/* ---- lists of hosts --------------------------------------------------- */

static int position(const struct pipeline *p, const struct peer_id *id)
{
    for (uint32_t k = 0; k < p->n; k++) {
        if (id_eq(&p->host[k].id, id)) {
            return (int)k;
        }
    }
    return -1;
}

/* See ATTEMPTS_NEAR. */
static bool is_made_up(const struct pipeline *p, uint32_t attempt)
{
    return attempt > UINT32_MAX / 2 || /* numbers never run out */
           (attempt > (uint64_t)p->attempt + ATTEMPTS_NEAR &&
            attempt > ATTEMPTS_FIRST + ATTEMPTS_ROUND * p->round);
}

/* The hosts of a HELLO that we know too, with the same stage. */
static uint64_t common(const struct pipeline *p, const struct pipeline_hello *h)
{
    uint64_t mask = 0;

    for (uint32_t i = 0; i < h->n && i < PIPELINE_HOSTS_MAX; i++) {
        int k = position(p, &h->hosts[i].id);

        if (k >= 0 && p->host[k].stage == h->hosts[i].stage) {
            mask |= BIT(k);
        }
    }
    return mask;
}

void pipeline_hello_of(const struct pipeline *p,
                       const struct pipeline_action *a,
                       struct pipeline_hello *h)
{
    memset(h, 0, sizeof *h);
    h->round = p->round;
    h->step = pipeline_tag_step(a->tag);
    h->attempt = pipeline_tag_attempt(a->tag);
    h->cost_us = p->cost_us[p->self];
    for (uint32_t k = 0; k < p->n; k++) {
        if (p->layout & BIT(k)) {
            h->hosts[h->n++] = p->host[k];
        }
    }
}

static int check_hosts(const struct pipeline *p,
                       const struct pipeline_host *hosts,
                       uint32_t n)
{
    uint32_t entering = 0;
    bool found = false;

    if (n == 0 || n > PIPELINE_HOSTS_MAX) {
        return LOCO_EINVAL;
    }
    for (uint32_t k = 0; k < n; k++) {
        if (hosts[k].stage >= p->opt.stages ||
            (k > 0 && id_cmp(&hosts[k - 1].id, &hosts[k].id) >= 0)) {
            return LOCO_EINVAL;
        }
        entering += hosts[k].stage == 0;
        found = found || id_eq(&hosts[k].id, &p->opt.self);
    }
    /* All of them through one host, where a stage has only one. */
    return found && entering * p->opt.micro_batches <= PIPELINE_MICRO_MAX
               ? 0
               : LOCO_EINVAL;
}

/* What the round that is over says of this machine. Who had nothing to do is
 * not known any more: it is tried again. */
static void weigh_work(struct pipeline *p)
{
    uint32_t stage = p->host[p->self].stage;
    uint64_t mean = 0;

    if (stage == p->own_stage && p->n_worked > 0) {
        mean = 1000 * p->worked_ms / p->n_worked;
        mean = p->own_cost_us == 0 ? mean : (3ULL * p->own_cost_us + mean) / 4;
        mean = mean == 0 ? 1 : mean;
    }
    p->own_cost_us = mean < UINT32_MAX ? (uint32_t)mean : UINT32_MAX;
    p->own_stage = stage;
    p->worked_ms = 0;
    p->n_worked = 0;
}

int pipeline_begin(struct pipeline *p,
                   uint64_t round,
                   const struct pipeline_host *hosts,
                   uint32_t n,
                   uint64_t now_ms,
                   struct pipeline_out *out)
{
    int rv = check_hosts(p, hosts, n);
    bool again = p->round == round && p->n > 0;

    if (rv != 0) {
        return rv;
    }
    p->now_ms = now_ms;
    stop(p, out);
    if (p->held && !again) {
        (void)pipeline_add(p, out, PIPELINE_CLEAR);
    }
    memcpy(p->host, hosts, n * sizeof hosts[0]);
    p->n = n;
    p->self = (uint32_t)position(p, &p->opt.self);
    p->layout = n == 64 ? UINT64_MAX : BIT(n) - 1;
    p->round = round;
    if (!again) {
        p->first_round = p->first_round == 0 ? round : p->first_round;
        p->step = 0;
        p->redraw = first_redraw(p);
        p->held = false;
        weigh_work(p);
    }
    p->rejoins = true;
    p->stepping = false;
    memset(p->raised, 0, sizeof p->raised);
    p->state = PIPELINE_IDLE;
    gather(p, out, p->attempt + 1, p->layout, now_ms);
    if_gathered(p, out); /* a host that has all stages to itself */
    return 0;
}

/* Most of us are not in that list: who says so is cut off, or wants to be
 * alone. */
static bool lacks_most(const struct pipeline *p, uint64_t theirs)
{
    return 2 * __builtin_popcountll(p->layout & ~theirs) >
           __builtin_popcountll(p->layout);
}

/* Host k wants another attempt. More of these than each host could have a loss
 * for, or a list without most of the others: then it is left out itself. */
static bool is_obeyed(struct pipeline *p, uint32_t k, uint64_t theirs)
{
    p->raised[k]++;
    return !lacks_most(p, theirs) && p->raised[k] <= 2 * p->n + 8;
}

/* A HELLO of our attempt or a later one from host k, who takes part in it. */
static void take_hello(struct pipeline *p,
                       uint32_t k,
                       const struct pipeline_hello *h,
                       uint64_t now_ms,
                       struct pipeline_out *out)
{
    uint64_t theirs = common(p, h);
    bool same = theirs == p->layout &&
                h->n == (uint32_t)__builtin_popcountll(p->layout);

    if ((!same || h->attempt > p->attempt) && !is_obeyed(p, k, theirs)) {
        leave_out(p, BIT(k), out);
        if_gathered(p, out);
        return;
    }
    if (!same) {
        gather(p, out, h->attempt + 1, theirs & p->layout, now_ms);
        return;
    }
    if (h->attempt > p->attempt) {
        gather(p, out, h->attempt, p->layout, now_ms);
    } else if ((p->hello & BIT(k)) && answers(p, k)) {
        say_hello(p, out, BIT(k), 0); /* said twice: it lacks ours */
    }
    if ((p->hello & BIT(k)) == 0) {
        p->said[k] = h->step;
        p->cost_us[k] = h->cost_us;
    }
    p->hello |= BIT(k);
    if_gathered(p, out);
}

/* Host k speaks of an attempt before ours, in which it is not any more: that it
 * was left out was lost on the way. It waits for ever if nobody says so. */
static void tell_lost(struct pipeline *p,
                      int k,
                      uint64_t round,
                      uint32_t attempt,
                      struct pipeline_out *out)
{
    if (k >= 0 && (uint32_t)k != p->self && round == p->round &&
        attempt < p->attempt && (p->layout & BIT(k)) == 0 &&
        p->state != PIPELINE_OUT && answers(p, (uint32_t)k)) {
        say_hello(p, out, BIT(k), 0);
    }
}

void pipeline_on_hello(struct pipeline *p,
                       const struct peer_id *id,
                       const struct pipeline_hello *h,
                       uint64_t now_ms,
                       struct pipeline_out *out)
{
    int k = position(p, id);

    p->now_ms = now_ms;
    tell_lost(p, k, h->round, h->attempt, out);
    if (k < 0 || (uint32_t)k == p->self || h->round != p->round ||
        is_made_up(p, h->attempt) || h->step > p->opt.steps ||
        !(p->layout & BIT(k))) {
        return;
    }
    if (p->state == PIPELINE_FINISHED) {
        /* The others may not know yet that the last step counts; or they took
         * us for dead and make it again. */
        if (!(common(p, h) & BIT(p->self))) {
            p->state = PIPELINE_OUT;
        } else if (h->attempt > p->attempt) {
            p->attempt = h->attempt;
            p->layout &= common(p, h) | BIT(p->self);
            say_hello(p, out, p->layout, 0);
        } else if (h->attempt == p->attempt && h->step < p->step) {
            say_hello(p, out, BIT(k), 0); /* ours may have been lost */
        }
        return;
    }
    /* Not to one that is out, too: two would answer each other for ever. */
    if (p->state == PIPELINE_OUT && (common(p, h) & BIT(p->self)) &&
        (common(p, h) & BIT(k))) {
        say_out(p, (uint32_t)k, h->attempt, out);
    }
    if (!active(p)) {
        return;
    }
    if (h->attempt < p->attempt) {
        if (p->state == PIPELINE_GATHER) {
            say_hello(p, out, BIT(k), 0); /* ours may have been lost */
        }
        return;
    }
    if (h->attempt == p->attempt && p->state != PIPELINE_GATHER) {
        if (answers(p, (uint32_t)k)) { /* said twice: it lacks ours */
            say_hello(p, out, BIT(k), 0);
        }
        return;
    }
    if (!(common(p, h) & BIT(p->self)) && !lacks_most(p, common(p, h))) {
        go_out(p, out);
        return;
    }
    take_hello(p, (uint32_t)k, h, now_ms, out);
}

/* ---- the end of a step ------------------------------------------------ */

/* The own part may be complete, or the last READY may be there. */
void pipeline_settle(struct pipeline *p, struct pipeline_out *out)
{
    if (p->state == PIPELINE_RUN && p->n_done == p->n_micro) {
        struct pipeline_action *a = pipeline_add(p, out, PIPELINE_SAY_READY);

        a->hosts = p->layout & ~BIT(p->self);
        say_again_later(p);
        p->state = PIPELINE_HELD;
        p->held = true;
        p->held_count = p->n_micro;
    }
    if (p->state == PIPELINE_HELD && p->held &&
        (p->ready | BIT(p->self)) == p->layout) {
        count_step(p, out);
    }
}

/* Whether a READY or TAKE of the host at `k` is of the attempt that we are in.
 * Who says one to a host that is out does not know that. */
static bool concerns(struct pipeline *p,
                     int k,
                     uint64_t round,
                     uint32_t attempt,
                     struct pipeline_out *out)
{
    tell_lost(p, k, round, attempt, out);
    if (k < 0 || (uint32_t)k == p->self || !(p->layout & BIT(k)) ||
        round != p->round || is_made_up(p, attempt)) {
        return false;
    }
    if (p->state == PIPELINE_OUT) {
        say_out(p, (uint32_t)k, attempt, out);
        return false;
    }
    return attempt == p->attempt;
}

/* READY of a step again, or of one that we have counted. */
static void ready_again(struct pipeline *p,
                        uint32_t k,
                        uint32_t step,
                        struct pipeline_out *out)
{
    bool counted = step + 1 == p->step;
    bool held = step == p->step && p->state == PIPELINE_HELD && p->held;
    struct pipeline_action *a;

    if ((counted || (held && (p->ready & BIT(k)) != 0)) && answers(p, k)) {
        a = pipeline_add(p, out, PIPELINE_SAY_READY);
        a->tag = pipeline_tag(p->attempt, step);
        a->hosts = BIT(k);
    }
}

void pipeline_on_ready(struct pipeline *p,
                       const struct peer_id *id,
                       uint64_t round,
                       uint32_t step,
                       uint32_t attempt,
                       uint64_t now_ms,
                       struct pipeline_out *out)
{
    int k = position(p, id);

    p->now_ms = now_ms;
    if (!concerns(p, k, round, attempt, out)) {
        return;
    }
    ready_again(p, (uint32_t)k, step, out);
    if (step == p->step) {
        p->ready |= BIT(k);
    } else if (step == p->step + 1) {
        p->ready_next |= BIT(k);
    }
    pipeline_settle(p, out);
}

void pipeline_on_take(struct pipeline *p,
                      const struct peer_id *id,
                      uint64_t round,
                      uint32_t step,
                      uint32_t attempt,
                      uint32_t micro,
                      uint64_t now_ms,
                      struct pipeline_out *out)
{
    int k = position(p, id);

    p->now_ms = now_ms;
    if (!concerns(p, k, round, attempt, out) || !active(p) ||
        micro >= PIPELINE_MICRO_MAX) {
        return;
    }
    if (step == p->step && p->state == PIPELINE_RUN) {
        pipeline_asked(p, (uint32_t)k, micro, out);
    } else if (step == p->step || step == p->step + 1) {
        p->asked[step - p->step][micro] = (uint8_t)k;
    }
}

void pipeline_linked(struct pipeline *p,
                     const struct peer_id *id,
                     struct pipeline_out *out)
{
    int k = position(p, id);

    if (k < 0 || (uint32_t)k == p->self || !(p->layout & BIT(k)) ||
        !active(p)) {
        return;
    }
    say_hello(p, out, BIT(k), 0);
    if (p->state == PIPELINE_HELD && !p->stepping) {
        pipeline_add(p, out, PIPELINE_SAY_READY)->hosts = BIT(k);
    } else if (p->state == PIPELINE_RUN) {
        pipeline_take_again(p, out);
    }
}

/* ---- losses ----------------------------------------------------------- */

void pipeline_lost(struct pipeline *p,
                   const struct peer_id *id,
                   uint64_t now_ms,
                   struct pipeline_out *out)
{
    int k = position(p, id);

    p->now_ms = now_ms;
    if (k < 0 || (uint32_t)k == p->self || !(p->layout & BIT(k))) {
        return;
    }
    if (active(p)) {
        gather(p, out, p->attempt + 1, p->layout & ~BIT(k), now_ms);
        if_gathered(p, out);
    } else if (p->state != PIPELINE_FINISHED) {
        p->layout &= ~BIT(k); /* else it may be back, and lack our last READY */
    }
}

/* A sum that is HELD is not lost, and counts where all are READY. */
void pipeline_again(struct pipeline *p,
                    uint64_t now_ms,
                    struct pipeline_out *out)
{
    p->now_ms = now_ms;
    if (p->state == PIPELINE_RUN) {
        gather(p, out, p->attempt + 1, p->layout, now_ms);
        if_gathered(p, out);
    }
}

void pipeline_leave(struct pipeline *p, struct pipeline_out *out)
{
    uint64_t others = p->layout & ~BIT(p->self);

    if (!active(p)) {
        return;
    }
    go_out(p, out);
    p->layout = others;
    p->attempt++;
    say_hello(p, out, others, 0);
}

void pipeline_cut(struct pipeline *p,
                  const struct peer_id *id,
                  uint64_t now_ms,
                  struct pipeline_out *out)
{
    int k = position(p, id);

    if (k < 0 || !(p->layout & BIT(k)) || !active(p)) {
        return;
    }
    if (id_cmp(id, &p->opt.self) > 0) {
        pipeline_lost(p, id, now_ms, out);
    } else {
        pipeline_leave(p, out);
    }
}

static uint64_t gather_deadline(const struct pipeline *p)
{
    return p->state == PIPELINE_GATHER && !p->stepping ? p->deadline_ms
                                                       : UINT64_MAX;
}

/* Own work hangs then. What it took before, eight times, is no reason. */
static uint64_t stall_deadline(const struct pipeline *p)
{
    if (!active(p) || p->opt.stall_ms == 0 || (!p->computing && !p->stepping)) {
        return UINT64_MAX;
    }
    return p->work_ms + ((uint64_t)p->opt.stall_ms << p->n_stalls) +
           8 * p->longest_ms;
}

bool pipeline_hangs(const struct pipeline *p, uint64_t now_ms)
{
    return now_ms >= stall_deadline(p);
}

uint64_t pipeline_deadline(const struct pipeline *p)
{
    uint64_t due = gather_deadline(p), stall = stall_deadline(p);

    due = stall < due ? stall : due;
    return active(p) && p->opt.resend_ms > 0 && p->resend_at_ms < due
               ? p->resend_at_ms
               : due;
}

/* What others may wait for because a message was lost. */
static void say_again(struct pipeline *p, struct pipeline_out *out)
{
    uint64_t others = p->layout & ~BIT(p->self);

    say_again_later(p);
    if (p->state == PIPELINE_GATHER) {
        say_hello(p, out, others & ~p->hello, 0);
    } else if (p->state == PIPELINE_RUN) {
        pipeline_take_again(p, out);
    } else if (!p->stepping) {
        pipeline_add(p, out, PIPELINE_SAY_READY)->hosts = others & ~p->ready;
    }
}

void pipeline_tick(struct pipeline *p,
                   uint64_t now_ms,
                   struct pipeline_out *out)
{
    p->now_ms = now_ms;
    if (now_ms < pipeline_deadline(p)) {
        return;
    }
    if (pipeline_hangs(p, now_ms)) {
        p->n_stalls += p->n_stalls < STALLS_MAX;
        pipeline_leave(p, out);
        return;
    }
    if (now_ms < gather_deadline(p)) {
        say_again(p, out);
        return;
    }
    gather(p, out, p->attempt + 1, p->hello | BIT(p->self), now_ms);
    if_gathered(p, out);
}

/* ---- what is done ----------------------------------------------------- */

void pipeline_worked(struct pipeline *p)
{
    uint64_t ms = p->now_ms - p->work_ms;

    p->longest_ms = ms > p->longest_ms ? ms : p->longest_ms;
    p->worked_ms += p->computing ? ms : 0; /* not the optimizer's */
    p->computing = false;
}

void pipeline_done(struct pipeline *p,
                   enum pipeline_action_type type,
                   uint64_t tag,
                   uint32_t micro,
                   uint64_t now_ms,
                   struct pipeline_out *out)
{
    p->now_ms = now_ms;
    if (type == PIPELINE_STEP) {
        if (p->stepping) {
            pipeline_worked(p);
            p->stepping = false;
            if (p->state == PIPELINE_HELD) {
                go_on(p, out);
            } else {
                if_gathered(p, out);
            }
        }
        return;
    }
    if (p->state == PIPELINE_RUN && tag == pipeline_tag(p->attempt, p->step)) {
        pipeline_micro_done(p, type, micro, out);
    }
}
