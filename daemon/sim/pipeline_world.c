/* pipeline_world.c - see pipeline_world.h. */
#include "daemon/sim/pipeline_world.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "proto/base/rng.h"

#define ROUND 5 /* of all hosts; any number */

#define KNOWN_WORK 100 /* micro-batches of the round before */

enum what {
    HELLO,
    READY,
    WANT,
    DATA,
    DONE,
    LOST,
    CUT,
    TICK,
    STRIKE,
    THAW,
    AGAIN
};

struct pw_event {
    struct agenda_key key;
    enum what what;
    uint32_t host, from;
    uint64_t arg; /* STRIKE: freeze_ms */
    struct pipeline_action action;
    struct pipeline_hello *hello;
};

void pw_fail(struct pipeline_world *w, const char *fmt, ...)
{
    va_list args;

    if (w->why[0] != '\0') {
        return;
    }
    va_start(args, fmt);
    (void)vsnprintf(w->why, sizeof w->why, fmt, args);
    va_end(args);
}

static bool set_has(const struct pw_set *s, uint32_t k)
{
    return (s->word[k / 64] >> k % 64 & 1) != 0;
}

uint32_t pw_set_count(const struct pw_set *s)
{
    uint32_t n = 0;

    for (size_t i = 0; i < PW_SET_WORDS; i++) {
        n += (uint32_t)__builtin_popcountll(s->word[i]);
    }
    return n;
}

uint64_t pw_below(struct pipeline_world *w, uint64_t n)
{
    return rng_below(&w->rng, n);
}

/* Log-normal with this median, by Box and Muller. */
static double spread(struct pipeline_world *w, double median, double sigma)
{
    double u = 1.0 - (double)rng_float(&w->rng);
    double v = (double)rng_float(&w->rng);
    double normal = sqrt(-2.0 * log(u)) * cos(2.0 * 3.14159265358979 * v);

    return median * exp(sigma * normal);
}

/* ---- the queue -------------------------------------------------------- */

static void push(struct pipeline_world *w, struct pw_event e)
{
    if (!agenda_put(&w->agenda, &e)) {
        pw_fail(w, "out of memory");
        free(e.hello);
    }
}

/* ---- what hosts do ---------------------------------------------------- */

/* When a message that leaves at `us` is there: in order on each link. */
static uint64_t
arrival(struct pipeline_world *w, uint32_t from, uint32_t to, uint64_t us)
{
    uint64_t *last = &w->host[from].last_us[to];
    uint64_t at =
        us + 1 + (uint64_t)(1e3 * spread(w, w->opt.link_ms, w->opt.link_sigma));

    *last = at > *last ? at : *last;
    return *last;
}

static void
say(struct pipeline_world *w, uint32_t me, const struct pipeline_action *a)
{
    for (uint32_t k = 0; k < w->opt.hosts; k++) {
        struct pw_event e = {
            .what = READY, .host = k, .from = me, .action = *a};

        if (((a->hosts | a->gone) >> k & 1) == 0 ||
            (w->opt.lose > 0 && pw_below(w, 1000) < w->opt.lose)) {
            continue;
        }
        e.key.at = arrival(w, me, k, w->now_us);
        if (a->type == PIPELINE_SAY_TAKE) {
            e.what = WANT;
        } else if (a->type == PIPELINE_SAY_HELLO) {
            e.what = HELLO;
            e.hello = malloc(sizeof *e.hello);
            if (e.hello == NULL) {
                pw_fail(w, "out of memory");
                return;
            }
            pipeline_hello_of(&w->host[me].p, a, e.hello);
        }
        push(w, e);
    }
}

static void done_at(struct pipeline_world *w,
                    uint32_t me,
                    const struct pipeline_action *a,
                    uint64_t at_us)
{
    push(w, (struct pw_event){
                .what = DONE, .host = me, .key.at = at_us, .action = *a});
}

/* A segment meets its posting, which is there before it: else it would stand
 * in front of others on its connection. */
static bool
meet(struct pipeline_world *w, struct pw_host *h, const struct pw_post *p)
{
    w->checked++;
    for (uint32_t i = 0; i < h->n_posts; i++) {
        const struct pw_post *q = &h->posts[i];

        if (q->back == p->back && q->tag == p->tag && q->micro == p->micro &&
            q->from == p->from) {
            h->posts[i] = h->posts[--h->n_posts];
            return true;
        }
    }
    pw_fail(w, "host %u sends micro-batch %u, which is not expected", p->from,
            p->micro);
    return false;
}

static void
expect(struct pipeline_world *w, struct pw_host *h, const struct pw_post *p)
{
    if (h->n_posts == h->room_posts) {
        uint32_t room = h->n_posts == 0 ? 64 : 2 * h->n_posts;
        struct pw_post *more = realloc(h->posts, room * sizeof *more);

        if (more == NULL) {
            pw_fail(w, "out of memory");
            return;
        }
        h->posts = more;
        h->room_posts = room;
    }
    h->posts[h->n_posts++] = *p;
}

static void
take(struct pipeline_world *w, uint32_t me, const struct pipeline_action *a)
{
    struct pw_post p = {.back = a->type == PIPELINE_TAKE_BACK,
                        .tag = a->tag,
                        .micro = a->micro,
                        .from = a->host};

    if (a->slot >= w->opt.slots) {
        pw_fail(w, "host %u takes into slot %u of %u", me, a->slot,
                w->opt.slots);
    }
    expect(w, &w->host[me], &p);
}

/* One after the other through the uplink. */
static void
give(struct pipeline_world *w, uint32_t me, const struct pipeline_action *a)
{
    struct pw_host *h = &w->host[me];
    uint64_t *until = &h->uplink_until_us;

    *until = *until > w->now_us ? *until : w->now_us;
    *until += 1 + (uint64_t)(1e3 * w->opt.transfer_ms);
    push(w, (struct pw_event){.what = DATA,
                              .host = a->host,
                              .from = me,
                              .key.at = arrival(w, me, a->host, *until),
                              .action = *a});
    done_at(w, me, a, *until);
}

/* The trainer takes commands in order, one after the other. */
static void
compute(struct pipeline_world *w, uint32_t me, const struct pipeline_action *a)
{
    struct pw_host *h = &w->host[me];
    double forward =
        h->slowness * spread(w, w->opt.compute_ms, w->opt.compute_sigma);
    double cost = a->type == PIPELINE_FORWARD ? forward
                  : a->type == PIPELINE_SCORE ? forward * (1 + w->opt.backward)
                  : a->type == PIPELINE_BACKWARD ? forward * w->opt.backward
                                                 : forward / 10;
    uint64_t us = 1 + (uint64_t)(1e3 * cost);

    h->busy_until_us =
        h->busy_until_us > w->now_us ? h->busy_until_us : w->now_us;
    h->busy_until_us += us;
    h->busy_us += us;
    done_at(w, me, a, h->busy_until_us);
}

static void cancel(struct pw_host *h, uint64_t tag)
{
    uint32_t kept = 0;

    h->cancelled = tag;
    for (uint32_t i = 0; i < h->n_posts; i++) {
        if (h->posts[i].tag > tag) {
            h->posts[kept++] = h->posts[i];
        }
    }
    h->n_posts = kept;
}

static void clear(struct pw_host *h)
{
    h->wasted += pw_set_count(&h->sum);
    h->sum = (struct pw_set){{0}};
}

/* Commands reach the trainer in order, so its sum may be kept as of when they
 * were given. */
static void add_to_sum(struct pipeline_world *w,
                       uint32_t me,
                       const struct pipeline_action *a)
{
    struct pw_host *h = &w->host[me];
    uint32_t attempt = pipeline_tag_attempt(a->tag);

    w->checked++;
    if (pw_set_count(&h->sum) == 0) {
        h->sum_attempt = attempt;
        h->sum_layout = h->p.layout;
    }
    if (a->micro >= PIPELINE_MICRO_MAX || set_has(&h->sum, a->micro)) {
        pw_fail(w, "host %u sums micro-batch %u twice", me, a->micro);
    } else if (h->sum_attempt != attempt) {
        pw_fail(w, "host %u sums up attempts %u and %u", me, h->sum_attempt,
                attempt);
    } else {
        h->sum.word[a->micro / 64] |= 1ULL << a->micro % 64;
        h->passes++;
    }
}

static void
count(struct pipeline_world *w, uint32_t me, const struct pipeline_action *a)
{
    struct pw_host *h = &w->host[me];
    uint32_t step = pipeline_tag_step(a->tag);

    w->checked++;
    if (step >= w->opt.steps || h->steps[step].counted) {
        pw_fail(w, "host %u counts step %u twice", me, step);
        return;
    }
    if (a->count != pw_set_count(&h->sum)) {
        pw_fail(w, "host %u: %u in the sum of step %u, not %u", me,
                pw_set_count(&h->sum), step, a->count);
    }
    h->steps[step] =
        (struct pw_record){true, h->sum_attempt, h->sum_layout, h->sum};
    h->sum = (struct pw_set){{0}};
    compute(w, me, a);
}

static void
act(struct pipeline_world *w, uint32_t me, const struct pipeline_action *a)
{
    struct pw_host *h = &w->host[me];

    switch (a->type) {
    case PIPELINE_SAY_HELLO:
    case PIPELINE_SAY_READY:
    case PIPELINE_SAY_TAKE:
        say(w, me, a);
        break;
    case PIPELINE_CANCEL:
        cancel(h, a->tag);
        break;
    case PIPELINE_CLEAR:
        clear(h);
        break;
    case PIPELINE_TAKE:
    case PIPELINE_TAKE_BACK:
        take(w, me, a);
        break;
    case PIPELINE_GIVE:
    case PIPELINE_GIVE_BACK:
        give(w, me, a);
        break;
    case PIPELINE_SCORE:
    case PIPELINE_BACKWARD:
        add_to_sum(w, me, a);
        compute(w, me, a);
        break;
    case PIPELINE_STEP:
        count(w, me, a);
        break;
    case PIPELINE_END:
        h->ended = true;
        h->ended_us = w->now_us;
        break;
    default:
        compute(w, me, a);
    }
}

static void run(struct pipeline_world *w, uint32_t me, struct pipeline_out *out)
{
    if (out->n > PIPELINE_OUT_MAX) {
        pw_fail(w, "host %u has %u actions at once", me, out->n);
        return;
    }
    for (uint32_t i = 0; i < out->n; i++) {
        act(w, me, &out->action[i]);
    }
}

/* ---- events ----------------------------------------------------------- */

static void data(struct pipeline_world *w,
                 const struct pw_event *e,
                 struct pipeline_out *out)
{
    struct pw_host *h = &w->host[e->host];
    struct pw_post p = {.back = e->action.type == PIPELINE_GIVE_BACK,
                        .tag = e->action.tag,
                        .micro = e->action.micro,
                        .from = e->from};

    if (p.tag > h->cancelled && meet(w, h, &p)) {
        pipeline_done(&h->p, p.back ? PIPELINE_TAKE_BACK : PIPELINE_TAKE, p.tag,
                      p.micro, w->now_us / 1000, out);
    }
}

static void step_host(struct pipeline_world *w, const struct pw_event *e)
{
    static struct pipeline_out out;
    struct pipeline *p = &w->host[e->host].p;
    const struct peer_id *from = &w->list[e->from].id;
    uint64_t now_ms = w->now_us / 1000;
    bool waited = p->held && p->state == PIPELINE_GATHER;

    out.n = 0;
    switch (e->what) {
    case HELLO:
        pipeline_on_hello(p, from, e->hello, now_ms, &out);
        break;
    case READY:
        pipeline_on_ready(p, from, ROUND, pipeline_tag_step(e->action.tag),
                          pipeline_tag_attempt(e->action.tag), now_ms, &out);
        break;
    case WANT:
        pipeline_on_take(p, from, ROUND, pipeline_tag_step(e->action.tag),
                         pipeline_tag_attempt(e->action.tag), e->action.micro,
                         now_ms, &out);
        break;
    case DATA:
        data(w, e, &out);
        break;
    case DONE:
        pipeline_done(p, e->action.type, e->action.tag, e->action.micro, now_ms,
                      &out);
        break;
    case LOST:
        pipeline_lost(p, from, now_ms, &out);
        break;
    case CUT:
        pipeline_cut(p, from, now_ms, &out);
        break;
    case AGAIN:
        pipeline_again(p, now_ms, &out);
        break;
    default:
        pipeline_tick(p, now_ms, &out);
        break;
    }
    w->decided += waited && p->stepping;
    run(w, e->host, &out);
}

/* Dead, or silent for so long that the others think so: each notices when it
 * does. */
static void strike(struct pipeline_world *w, const struct pw_event *e)
{
    struct pw_host *h = &w->host[e->host];

    if (h->dead) {
        return;
    }
    h->dead = e->arg == 0;
    h->frozen = e->arg != 0;
    for (uint32_t i = 0; i < w->opt.hosts; i++) {
        uint64_t late = pw_below(w, w->opt.notice_ms) * 1000;

        if (i != e->host) {
            push(w, (struct pw_event){.what = LOST,
                                      .host = i,
                                      .from = e->host,
                                      .key.at = w->now_us + 1 + late});
        }
    }
    if (h->frozen) {
        push(w, (struct pw_event){.what = THAW,
                                  .host = e->host,
                                  .key.at = w->now_us + e->arg * 1000});
    }
}

static void happen(struct pipeline_world *w, struct pw_event *e)
{
    struct pw_host *h = &w->host[e->host];
    uint64_t words[4] = {w->hash, e->key.at, (uint64_t)e->what, e->host};

    w->now_us = e->key.at;
    w->hash = rng_mix(words, 4);
    if (e->what == STRIKE) {
        strike(w, e);
    } else if (e->what == THAW) {
        h->frozen = false;
    } else if (h->frozen) {
        e->key.at = w->now_us + 100000; /* waits in its sockets */
        push(w, *e);
        return;
    } else if (!h->dead) {
        step_host(w, e);
    }
    free(e->hello);
}

static void set_tick(struct pipeline_world *w, uint32_t i)
{
    struct pw_host *h = &w->host[i];
    uint64_t at = pipeline_deadline(&h->p);

    if (at != UINT64_MAX && h->ticked != at && !h->dead) {
        h->ticked = at;
        at = at * 1000 > w->now_us ? at * 1000 : w->now_us;
        push(w, (struct pw_event){.what = TICK, .host = i, .key.at = at});
    }
}

void pw_run(struct pipeline_world *w)
{
    struct pw_event e;

    while (w->why[0] == '\0' && agenda_take(&w->agenda, &e)) {
        uint32_t i = e.host;

        happen(w, &e);
        set_tick(w, i);
        if (w->now_us > w->opt.end_ms * 1000) {
            pw_fail(w, "not at an end after %llu s",
                    (unsigned long long)w->opt.end_ms / 1000);
        }
    }
}

void pw_strike(struct pipeline_world *w,
               uint32_t host,
               uint64_t at_ms,
               uint64_t freeze_ms)
{
    push(w, (struct pw_event){.what = STRIKE,
                              .host = host,
                              .key.at = at_ms * 1000,
                              .arg = freeze_ms});
}

void pw_cut(struct pipeline_world *w, uint32_t a, uint32_t b, uint64_t at_ms)
{
    push(w, (struct pw_event){
                .what = CUT, .host = a, .from = b, .key.at = at_ms * 1000});
    push(w, (struct pw_event){.what = CUT,
                              .host = b,
                              .from = a,
                              .key.at = (at_ms + pw_below(w, 500)) * 1000});
}

void pw_lose_work(struct pipeline_world *w, uint32_t host, uint64_t at_ms)
{
    push(w, (struct pw_event){
                .what = AGAIN, .host = host, .key.at = at_ms * 1000});
}

/* ---- the beginning and the end ---------------------------------------- */

/* Stages in turn, then mixed up. */
static void deal_stages(struct pipeline_world *w)
{
    uint32_t order[PIPELINE_HOSTS_MAX];

    rng_perm(order, w->opt.hosts, rng_next(&w->rng));
    for (uint32_t i = 0; i < w->opt.hosts; i++) {
        w->list[order[i]].stage = i % w->opt.stages;
        w->list[i].id.b[0] = (uint8_t)(i / 64 + 1);
        w->list[i].id.b[1] = (uint8_t)(3 * i + 1);
    }
}

/* As if there had been a round before. */
static void know_speed(struct pipeline_world *w, uint32_t i)
{
    struct pw_host *h = &w->host[i];

    if (!w->opt.blind) {
        h->p.own_stage = w->list[i].stage;
        h->p.n_worked = KNOWN_WORK;
        h->p.worked_ms = (uint64_t)(KNOWN_WORK * h->slowness *
                                    w->opt.compute_ms * (1 + w->opt.backward));
    }
}

static bool begin(struct pipeline_world *w, uint32_t i)
{
    static struct pipeline_out out;
    struct pw_host *h = &w->host[i];
    const struct pipeline_options opt = {
        .self = w->list[i].id,
        .seed = w->opt.seed,
        .stages = w->opt.stages,
        .micro_batches = w->opt.micro_batches,
        .steps = w->opt.steps,
        .slots = w->opt.slots,
        .gather_ms = w->opt.gather_ms,
        .resend_ms = w->opt.gather_ms / 10,
        .fixed = w->opt.fixed != 0,
    };

    h->slowness = spread(w, 1, w->opt.unequal);
    h->steps = calloc(w->opt.steps, sizeof *h->steps);
    if (h->steps == NULL) {
        return false;
    }
    out.n = 0;
    w->now_us = pw_below(w, 300000);
    if (pipeline_init(&h->p, &opt) != 0) {
        pw_fail(w, "the core refused these options");
        return true;
    }
    know_speed(w, i);
    if (pipeline_begin(&h->p, ROUND, w->list, w->opt.hosts, w->now_us / 1000,
                       &out) != 0) {
        pw_fail(w, "the core refused these options");
        return true;
    }
    run(w, i, &out);
    set_tick(w, i);
    return true;
}

struct pipeline_world *pw_open(const struct pw_options *opt)
{
    const uint64_t words[2] = {opt->seed, 0x706970656c696e65};
    struct pipeline_world *w = calloc(1, sizeof *w);

    if (w == NULL) {
        return NULL;
    }
    w->opt = *opt;
    w->agenda.size = sizeof(struct pw_event);
    w->rng = rng_mix(words, 2);
    w->host = calloc(opt->hosts, sizeof *w->host);
    if (w->host == NULL) {
        pw_close(w);
        return NULL;
    }
    deal_stages(w);
    for (uint32_t i = 0; i < opt->hosts; i++) {
        if (!begin(w, i)) {
            pw_close(w);
            return NULL;
        }
    }
    w->now_us = 0;
    return w;
}

void pw_close(struct pipeline_world *w)
{
    struct pw_event e;

    while (agenda_take(&w->agenda, &e)) {
        free(e.hello);
    }
    agenda_free(&w->agenda);
    for (uint32_t i = 0; w->host != NULL && i < w->opt.hosts; i++) {
        free(w->host[i].posts);
        free(w->host[i].steps);
    }
    free(w->host);
    free(w);
}
