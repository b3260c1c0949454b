/* pipeline_test.c - whole pipelines in virtual time: hosts that compute for
 * random times, links that delay, hosts that die, freeze or lose an edge.
 *
 * The oracle: a host's sum has each micro-batch of its routes once; hosts that
 * stay together count the same steps from the same attempts; of one attempt no
 * micro-batch is counted by two hosts of a stage, and where all its hosts
 * count, all micro-batches are.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "p2p/pipeline.h"
#include "proto/base/err.h"
#include "proto/base/rng.h"

#define HOSTS_MAX  12
#define STEPS_MAX  6
#define MICRO      64 /* numbers of one step at most */
#define EVENTS_MAX 60000
#define POSTS_MAX  256
#define GATHER_MS  2000
#define END_MS     400000

/* ---- the world -------------------------------------------------------- */

enum what { HELLO, READY, DATA, COMPUTED, LOST, CUT, LINKED, TICK, KILL, THAW };

struct happening {
    uint64_t at, order;
    enum what what;
    uint32_t host, from; /* positions in the world */
    struct pipeline_hello *hello;
    struct pipeline_action action;
    uint64_t round;
    uint32_t step, attempt;
};

/* A segment that is expected, or that is here and not expected yet. */
struct post {
    bool expected, back;
    uint64_t tag;
    uint32_t micro, from;
};

struct record {
    bool counted;
    uint32_t attempt; /* under which the sum was made */
    uint64_t layout;
    uint64_t numbers; /* bit k: micro-batch k */
};

struct host {
    struct pipeline p;
    bool dead, frozen;
    uint64_t busy_until, ticked;
    uint64_t sum;         /* bit k: micro-batch k is in the gradient */
    uint32_t sum_attempt; /* that began it */
    uint64_t sum_layout;
    struct post posts[POSTS_MAX];
    uint32_t n_posts;
    uint64_t cancelled; /* tags up to this are dropped */
    uint32_t most_slots;
    struct record steps[STEPS_MAX];
    bool ended;
};

struct world {
    uint64_t rng, now, order;
    uint32_t n;
    struct pipeline_host list[HOSTS_MAX];
    struct host host[HOSTS_MAX];
    struct happening *queue; /* a binary heap */
    uint32_t n_queue;
    uint64_t last[HOSTS_MAX][HOSTS_MAX]; /* links keep the order */
    struct pipeline_options opt;
};

static bool sooner(const struct happening *a, const struct happening *b)
{
    return a->at != b->at ? a->at < b->at : a->order < b->order;
}

static void push(struct world *w, struct happening h)
{
    uint32_t i = w->n_queue++;

    assert_true(w->n_queue < EVENTS_MAX);
    h.order = w->order++;
    while (i > 0 && sooner(&h, &w->queue[(i - 1) / 2])) {
        w->queue[i] = w->queue[(i - 1) / 2];
        i = (i - 1) / 2;
    }
    w->queue[i] = h;
}

static struct happening pop(struct world *w)
{
    struct happening first = w->queue[0], last = w->queue[--w->n_queue];
    uint32_t i = 0;

    for (;;) {
        uint32_t k = 2 * i + 1;

        if (k >= w->n_queue) {
            break;
        }
        if (k + 1 < w->n_queue && sooner(&w->queue[k + 1], &w->queue[k])) {
            k++;
        }
        if (!sooner(&w->queue[k], &last)) {
            break;
        }
        w->queue[i] = w->queue[k];
        i = k;
    }
    w->queue[i] = last;
    return first;
}

static uint64_t below(struct world *w, uint64_t n)
{
    return rng_below(&w->rng, n);
}

/* When what leaves now arrives: in order on each link. */
static uint64_t arrival(struct world *w, uint32_t from, uint32_t to)
{
    uint64_t at = w->now + 1 + below(w, 60);

    at = at > w->last[from][to] ? at : w->last[from][to];
    w->last[from][to] = at;
    return at;
}

/* ---- what hosts do ---------------------------------------------------- */

static uint32_t of(const struct world *w, const struct host *h, uint32_t k)
{
    for (uint32_t i = 0; i < w->n; i++) {
        if (id_eq(&w->list[i].id, &h->p.host[k].id)) {
            return i;
        }
    }
    fail();
    return 0;
}

static void run(struct world *w, uint32_t me, const struct pipeline_out *out);

static void say(struct world *w, uint32_t me, const struct pipeline_action *a)
{
    struct host *h = &w->host[me];

    for (uint32_t k = 0; k < h->p.n; k++) {
        struct happening e = {.what =
                                  a->type == PIPELINE_SAY_HELLO ? HELLO : READY,
                              .from = me,
                              .round = h->p.round,
                              .step = (uint32_t)a->tag,
                              .attempt = (uint32_t)(a->tag >> 32)};

        if (((a->hosts | a->gone) >> k & 1) == 0) {
            continue;
        }
        e.host = of(w, h, k);
        e.at = arrival(w, me, e.host);
        if (e.what == HELLO) {
            e.hello = malloc(sizeof *e.hello);
            assert_non_null(e.hello);
            pipeline_hello_of(&h->p, a, e.hello);
        }
        push(w, e);
    }
}

/* Segments meet their postings; tags up to `cancelled` meet nothing. */
static bool meet(struct host *h, const struct post *p)
{
    for (uint32_t i = 0; i < h->n_posts; i++) {
        const struct post *q = &h->posts[i];

        if (q->expected != p->expected && q->back == p->back &&
            q->tag == p->tag && q->micro == p->micro && q->from == p->from) {
            h->posts[i] = h->posts[--h->n_posts];
            return true;
        }
    }
    assert_true(h->n_posts < POSTS_MAX);
    h->posts[h->n_posts++] = *p;
    return false;
}

static void done_later(struct world *w,
                       uint32_t me,
                       const struct pipeline_action *a,
                       uint64_t at)
{
    push(w, (struct happening){
                .what = COMPUTED, .host = me, .at = at, .action = *a});
}

static void post(struct world *w, uint32_t me, const struct pipeline_action *a)
{
    struct host *h = &w->host[me];
    struct post p = {.expected = true,
                     .back = a->type == PIPELINE_TAKE_BACK,
                     .tag = a->tag,
                     .micro = a->micro,
                     .from = of(w, h, a->host)};

    if (meet(h, &p)) {
        done_later(w, me, a, w->now);
    }
}

static void give(struct world *w, uint32_t me, const struct pipeline_action *a)
{
    uint32_t to = of(w, &w->host[me], a->host);
    uint64_t at = arrival(w, me, to);

    push(w, (struct happening){
                .what = DATA, .host = to, .from = me, .at = at, .action = *a});
    done_later(w, me, a, w->now + 1 + below(w, 40));
}

/* The trainer takes commands in order, one after the other. */
static void
compute(struct world *w, uint32_t me, const struct pipeline_action *a)
{
    struct host *h = &w->host[me];

    h->busy_until = h->busy_until > w->now ? h->busy_until : w->now;
    h->busy_until += 1 + below(w, 30);
    done_later(w, me, a, h->busy_until);
}

static void cancel(struct host *h, uint64_t tag)
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

static void count(struct world *w, uint32_t me, const struct pipeline_action *a)
{
    struct host *h = &w->host[me];
    uint32_t step = (uint32_t)a->tag;
    struct record *r = &h->steps[step];

    /* Its tag is that of the attempt that decides; the sum is older or the
     * same. */
    assert_true(step < STEPS_MAX && !r->counted);
    assert_int_equal(a->count, __builtin_popcountll(h->sum));
    *r = (struct record){true, h->sum_attempt, h->sum_layout, h->sum};
    h->sum = 0;
    compute(w, me, a);
}

static void add_to_sum(struct host *h, const struct pipeline_action *a)
{
    assert_true(a->micro < MICRO);
    if (h->sum == 0) {
        h->sum_attempt = (uint32_t)(a->tag >> 32);
        h->sum_layout = h->p.layout;
    }
    assert_int_equal(h->sum_attempt, a->tag >> 32);
    assert_int_equal(h->sum >> a->micro & 1, 0);
    h->sum |= 1ULL << a->micro;
}

/* Commands reach the trainer in order, so its sum may be kept as of then. */
static void run(struct world *w, uint32_t me, const struct pipeline_out *out)
{
    struct host *h = &w->host[me];

    assert_true(out->n <= PIPELINE_OUT_MAX);
    for (uint32_t i = 0; i < out->n; i++) {
        const struct pipeline_action *a = &out->action[i];

        switch (a->type) {
        case PIPELINE_SAY_HELLO:
        case PIPELINE_SAY_READY:
            say(w, me, a);
            break;
        case PIPELINE_CANCEL:
            cancel(h, a->tag);
            break;
        case PIPELINE_CLEAR:
            h->sum = 0;
            break;
        case PIPELINE_TAKE:
        case PIPELINE_TAKE_BACK:
            assert_true(a->slot < w->opt.slots);
            post(w, me, a);
            break;
        case PIPELINE_GIVE:
        case PIPELINE_GIVE_BACK:
            give(w, me, a);
            break;
        case PIPELINE_SCORE:
        case PIPELINE_BACKWARD:
            add_to_sum(h, a);
            compute(w, me, a);
            break;
        case PIPELINE_FORWARD:
            compute(w, me, a);
            break;
        case PIPELINE_STEP:
            count(w, me, a);
            break;
        case PIPELINE_END:
            assert_false(h->ended);
            h->ended = true;
            break;
        default:
            fail();
        }
    }
}

static void data(struct world *w, struct happening *e, struct pipeline_out *out)
{
    struct host *h = &w->host[e->host];
    struct pipeline_action done = e->action;
    struct post p = {.back = e->action.type == PIPELINE_GIVE_BACK,
                     .tag = e->action.tag,
                     .micro = e->action.micro,
                     .from = e->from};

    if (p.tag <= h->cancelled || !meet(h, &p)) {
        return;
    }
    done.type = p.back ? PIPELINE_TAKE_BACK : PIPELINE_TAKE;
    pipeline_done(&h->p, done.type, done.tag, done.micro, w->now, out);
}

static void step_host(struct world *w, struct happening *e)
{
    static struct pipeline_out out;
    struct host *h = &w->host[e->host];
    const struct peer_id *from = &w->list[e->from].id;

    out.n = 0;
    switch (e->what) {
    case HELLO:
        pipeline_on_hello(&h->p, from, e->hello, w->now, &out);
        break;
    case READY:
        pipeline_on_ready(&h->p, from, e->round, e->step, e->attempt, w->now,
                          &out);
        break;
    case DATA:
        data(w, e, &out);
        break;
    case COMPUTED:
        pipeline_done(&h->p, e->action.type, e->action.tag, e->action.micro,
                      w->now, &out);
        break;
    case LOST:
        pipeline_lost(&h->p, from, w->now, &out);
        break;
    case CUT:
        pipeline_cut(&h->p, from, w->now, &out);
        break;
    case LINKED:
        pipeline_linked(&h->p, from, &out);
        break;
    case TICK:
        pipeline_tick(&h->p, w->now, &out);
        break;
    default:
        fail();
    }
    run(w, e->host, &out);
}

/* Dead, or silent for so long that all others think so: each notices when it
 * does. */
static void notice(struct world *w, uint32_t victim)
{
    for (uint32_t i = 0; i < w->n; i++) {
        if (i != victim) {
            push(w, (struct happening){.what = LOST,
                                       .host = i,
                                       .from = victim,
                                       .at = w->now + 1 + below(w, 3000)});
        }
    }
}

static void happen(struct world *w, struct happening *e)
{
    struct host *h = &w->host[e->host];

    w->now = e->at;
    if (e->what == KILL && !h->dead) {
        h->dead = e->step == 0;
        h->frozen = e->step != 0;
        notice(w, e->host);
        if (h->frozen) {
            push(w, (struct happening){.what = THAW,
                                       .host = e->host,
                                       .at = w->now + 500 + below(w, 6000)});
        }
    } else if (e->what == THAW) {
        h->frozen = false;
    } else if (h->frozen) {
        e->at = w->now + 100; /* waits in its sockets */
        push(w, *e);
        return;
    } else if (e->what != KILL && !h->dead) {
        step_host(w, e);
    }
    free(e->hello);
}

static void set_tick(struct world *w, uint32_t i)
{
    struct host *h = &w->host[i];
    uint64_t at = pipeline_deadline(&h->p);

    if (at != UINT64_MAX && h->ticked != at) {
        h->ticked = at;
        push(w, (struct happening){
                    .what = TICK, .host = i, .at = at > w->now ? at : w->now});
    }
}

static void run_world(struct world *w)
{
    while (w->n_queue > 0 && w->now < END_MS) {
        struct happening e = pop(w);
        uint32_t i = e.host;

        happen(w, &e);
        set_tick(w, i);
    }
}

/* hosts[s] of stage s, mixed up by id. */
static struct world *open_world(uint64_t seed,
                                const uint32_t *hosts,
                                uint32_t stages,
                                uint32_t micro_batches,
                                uint32_t slots)
{
    struct world *w = calloc(1, sizeof *w);
    static struct pipeline_out out;
    uint32_t order[HOSTS_MAX];
    uint32_t stage = 0, left = hosts[0];

    assert_non_null(w);
    w->queue = calloc(EVENTS_MAX, sizeof *w->queue);
    assert_non_null(w->queue);
    w->rng = seed * 7919 + 1;
    for (uint32_t s = 0; s < stages; s++) {
        w->n += hosts[s];
    }
    rng_perm(order, w->n, rng_next(&w->rng));
    for (uint32_t i = 0; i < w->n; i++) {
        while (left == 0) {
            left = hosts[++stage];
        }
        left--;
        w->list[order[i]].stage = stage;
    }
    for (uint32_t i = 0; i < w->n; i++) {
        w->list[i].id.b[0] = (uint8_t)(10 * i + 1);
    }
    w->opt = (struct pipeline_options){.seed = seed,
                                       .stages = stages,
                                       .micro_batches = micro_batches,
                                       .steps = STEPS_MAX,
                                       .slots = slots,
                                       .gather_ms = GATHER_MS};
    for (uint32_t i = 0; i < w->n; i++) {
        w->opt.self = w->list[i].id;
        assert_int_equal(pipeline_init(&w->host[i].p, &w->opt), 0);
    }
    for (uint32_t i = 0; i < w->n; i++) {
        w->now = below(w, 300);
        out.n = 0;
        assert_int_equal(
            pipeline_begin(&w->host[i].p, 5, w->list, w->n, w->now, &out), 0);
        run(w, i, &out);
        set_tick(w, i);
    }
    return w;
}

static void close_world(struct world *w)
{
    while (w->n_queue > 0) {
        struct happening e = pop(w);

        free(e.hello);
    }
    free(w->queue);
    free(w);
}

/* ---- the oracle ------------------------------------------------------- */

static bool takes_part(const struct host *h)
{
    return !h->dead && h->p.state != PIPELINE_OUT &&
           h->p.state != PIPELINE_STARVED;
}

static uint64_t all_numbers(const struct world *w, uint64_t layout)
{
    uint32_t entries = 0;

    for (uint32_t k = 0; k < w->n; k++) {
        entries += (layout >> k & 1) && w->list[k].stage == 0;
    }
    entries *= w->opt.micro_batches;
    return entries == 64 ? UINT64_MAX : (1ULL << entries) - 1;
}

/* Of one step: hosts that counted it from the same attempt. */
static void check_attempt(const struct world *w, uint32_t step, uint32_t first)
{
    const struct record *r = &w->host[first].steps[step];
    uint64_t counted = 0;

    for (uint32_t s = 0; s < w->opt.stages; s++) {
        uint64_t sum = 0;

        for (uint32_t i = 0; i < w->n; i++) {
            const struct record *q = &w->host[i].steps[step];

            if (q->counted && w->list[i].stage == s &&
                q->attempt == r->attempt && q->layout == r->layout) {
                assert_int_equal(sum & q->numbers, 0);
                sum |= q->numbers;
                counted |= 1ULL << i;
            }
        }
        assert_int_equal(sum & ~all_numbers(w, r->layout), 0);
        if ((counted & r->layout) == r->layout) {
            assert_int_equal(sum, all_numbers(w, r->layout));
        }
    }
}

static void show(const struct world *w)
{
    for (uint32_t i = 0; i < w->n; i++) {
        const struct pipeline *p = &w->host[i].p;

        print_message("host %u stage %u%s: state %d step %u attempt %u layout "
                      "%lx hello %lx ready %lx held %d stepping %d, %u of %u "
                      "done, %u placed, computing %d\n",
                      i, w->list[i].stage, w->host[i].dead ? " dead" : "",
                      (int)p->state, p->step, p->attempt,
                      (unsigned long)p->layout, (unsigned long)p->hello,
                      (unsigned long)p->ready, p->held, p->stepping, p->n_done,
                      p->n_micro, p->n_placed, p->computing);
    }
    print_message("at %lu ms, %u events left\n", (unsigned long)w->now,
                  w->n_queue);
}

static void check_world(const struct world *w)
{
    for (uint32_t step = 0; step < STEPS_MAX; step++) {
        int first = -1;

        for (uint32_t i = 0; i < w->n; i++) {
            const struct host *h = &w->host[i];

            if (h->steps[step].counted) {
                check_attempt(w, step, i);
            }
            if (!takes_part(h)) {
                continue;
            }
            if (!h->steps[step].counted) {
                show(w);
                fail_msg("host %u did not count step %u", i, step);
            }
            if (first < 0) {
                first = (int)i;
            }
            /* Sums of nothing name no attempt. */
            if (h->steps[step].numbers != 0 &&
                w->host[first].steps[step].numbers != 0) {
                assert_int_equal(h->steps[step].attempt,
                                 w->host[first].steps[step].attempt);
            }
        }
    }
    for (uint32_t i = 0; i < w->n; i++) {
        if (takes_part(&w->host[i])) {
            assert_int_equal(w->host[i].p.state, PIPELINE_FINISHED);
            assert_true(w->host[i].ended);
        }
    }
}

static uint32_t count_state(const struct world *w, enum pipeline_state state)
{
    uint32_t n = 0;

    for (uint32_t i = 0; i < w->n; i++) {
        n += !w->host[i].dead && w->host[i].p.state == state;
    }
    return n;
}

/* ---- tests ------------------------------------------------------------ */

static const uint32_t shapes[][4] = {
    {1, 1, 0, 0}, {2, 2, 0, 0}, {3, 3, 3, 0}, {2, 3, 1, 0},
    {4, 1, 2, 0}, {1, 3, 0, 0}, {2, 2, 2, 2}, {3, 2, 3, 2},
};

#define SHAPES (sizeof shapes / sizeof shapes[0])

static uint32_t stages_of(const uint32_t *shape)
{
    uint32_t n = 0;

    while (n < 4 && shape[n] > 0) {
        n++;
    }
    return n;
}

static void every_micro_batch_counts_once_where_nobody_dies(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < 20 * SHAPES; seed++) {
        const uint32_t *shape = shapes[seed % SHAPES];
        uint32_t slots = 1 + (uint32_t)(seed / SHAPES % 4);
        struct world *w = open_world(seed, shape, stages_of(shape),
                                     1 + (uint32_t)seed % 5, slots);

        run_world(w);
        check_world(w);
        assert_int_equal(count_state(w, PIPELINE_FINISHED), w->n);
        for (uint32_t i = 0; i < w->n; i++) {
            for (uint32_t s = 0; s < STEPS_MAX; s++) {
                assert_int_equal(w->host[i].p.attempt, w->host[0].p.attempt);
            }
        }
        close_world(w);
    }
}

static void one_host_with_the_whole_model_needs_nobody(void **state)
{
    static const uint32_t shape[] = {1};
    struct world *w = open_world(3, shape, 1, 4, 2);

    (void)state;
    run_world(w);
    check_world(w);
    assert_int_equal(w->host[0].steps[0].numbers, 15);
    close_world(w);
}

/* step 0: dies; 1: freezes for a while. */
static void strike(struct world *w, uint32_t victim, uint64_t at, uint32_t how)
{
    push(w, (struct happening){
                .what = KILL, .host = victim, .at = at, .step = how});
}

static void who_stays_counts_the_same_when_one_dies_or_freezes(void **state)
{
    uint32_t outs = 0, finished = 0;

    (void)state;
    for (uint64_t seed = 0; seed < 2000; seed++) {
        const uint32_t *shape = shapes[seed % SHAPES];
        struct world *w =
            open_world(seed, shape, stages_of(shape),
                       1 + (uint32_t)seed / 7 % 4, 1 + (uint32_t)seed / 5 % 3);

        strike(w, (uint32_t)below(w, w->n), below(w, 3000), seed & 1);
        run_world(w);
        check_world(w);
        outs += count_state(w, PIPELINE_OUT);
        finished += count_state(w, PIPELINE_FINISHED);
        close_world(w);
    }
    /* Most worlds have a second host of each stage and go on. */
    assert_true(finished > 4000 && outs > 0);
}

static void several_deaths_and_cut_edges_are_survived(void **state)
{
    uint32_t finished = 0;

    (void)state;
    for (uint64_t seed = 0; seed < 1500; seed++) {
        const uint32_t *shape = shapes[seed % SHAPES];
        struct world *w =
            open_world(seed, shape, stages_of(shape),
                       1 + (uint32_t)seed / 7 % 4, 1 + (uint32_t)seed / 5 % 3);

        for (uint32_t i = 0; i < 1 + seed % 3; i++) {
            strike(w, (uint32_t)below(w, w->n), below(w, 4000),
                   (uint32_t)below(w, 2));
        }
        for (uint32_t i = 0; i < seed % 2; i++) {
            uint32_t a = (uint32_t)below(w, w->n);
            uint32_t b = (uint32_t)below(w, w->n);
            uint64_t at = below(w, 4000);

            if (a != b) {
                push(w, (struct happening){
                            .what = CUT, .host = a, .from = b, .at = at});
                push(w, (struct happening){.what = CUT,
                                           .host = b,
                                           .from = a,
                                           .at = at + below(w, 500)});
            }
        }
        run_world(w);
        check_world(w);
        finished += count_state(w, PIPELINE_FINISHED);
        close_world(w);
    }
    assert_true(finished > 2000);
}

static void a_stage_without_hosts_starves_the_others(void **state)
{
    static const uint32_t shape[] = {2, 1, 2};

    (void)state;
    for (uint64_t seed = 0; seed < 50; seed++) {
        struct world *w = open_world(seed, shape, 3, 3, 2);
        uint32_t only = 0;

        while (w->list[only].stage != 1) {
            only++;
        }
        strike(w, only, below(w, 300), 0);
        run_world(w);
        assert_true(count_state(w, PIPELINE_STARVED) +
                        count_state(w, PIPELINE_FINISHED) ==
                    4);
        close_world(w);
    }
}

/* A death after the last READY went out to some: those who saw all count, and
 * the others learn it from their HELLO. */
static void a_step_that_one_host_counted_counts_for_all(void **state)
{
    uint32_t decided = 0;

    (void)state;
    for (uint64_t seed = 0; seed < 3000; seed++) {
        static const uint32_t shape[] = {2, 2};
        struct world *w = open_world(seed, shape, 2, 1, 1);

        strike(w, (uint32_t)below(w, 4), below(w, 1200), 0);
        while (w->n_queue > 0 && w->now < END_MS) {
            struct happening e = pop(w);
            uint32_t i = e.host;
            bool held =
                w->host[i].p.held && w->host[i].p.state == PIPELINE_GATHER;

            happen(w, &e);
            decided += held && w->host[i].p.stepping;
            set_tick(w, i);
        }
        check_world(w);
        close_world(w);
    }
    assert_true(decided > 10); /* the case was met */
}

static void strangers_and_nonsense_change_nothing(void **state)
{
    static const uint32_t shape[] = {2, 2};
    struct world *w = open_world(1, shape, 2, 2, 2);
    static struct pipeline_out out;
    struct pipeline before = w->host[0].p;
    struct pipeline_hello h;
    struct peer_id stranger = {{99}};

    (void)state;
    pipeline_hello_of(&w->host[1].p,
                      &(struct pipeline_action){.tag = pipeline_tag(1, 0)}, &h);
    out.n = 0;
    pipeline_on_hello(&w->host[0].p, &stranger, &h, 1, &out);
    h.round = 4;
    pipeline_on_hello(&w->host[0].p, &w->list[1].id, &h, 1, &out);
    pipeline_on_ready(&w->host[0].p, &stranger, 5, 0, 1, 1, &out);
    pipeline_on_ready(&w->host[0].p, &w->list[1].id, 5, 9, 1, 1, &out);
    /* Of an attempt that is over: its sender has given that sum up. */
    pipeline_on_ready(&w->host[0].p, &w->list[1].id, 5, 0, 0, 1, &out);
    pipeline_on_ready(&w->host[0].p, &w->list[1].id, 5, 0, 2, 1, &out);
    pipeline_lost(&w->host[0].p, &stranger, 1, &out);
    pipeline_cut(&w->host[0].p, &stranger, 1, &out);
    for (int type = 0; type < PIPELINE_ACTION_COUNT; type++) {
        pipeline_done(&w->host[0].p, (enum pipeline_action_type)type,
                      pipeline_tag(7, 7), 0, 1, &out);
    }
    assert_int_equal(out.n, 0);
    assert_memory_equal(&before, &w->host[0].p, sizeof before);
    close_world(w);
}

static void options_out_of_range_are_refused(void **state)
{
    static struct pipeline p;
    static struct pipeline_out out;
    struct pipeline_options good = {.stages = 2,
                                    .micro_batches = 4,
                                    .steps = 2,
                                    .slots = 2,
                                    .gather_ms = 10};
    struct pipeline_options bad = good;
    struct pipeline_host hosts[2] = {{.id = {{1}}}, {.id = {{2}}, .stage = 1}};

    (void)state;
    good.self = hosts[0].id;
    bad.slots = PIPELINE_SLOTS_MAX + 1;
    assert_int_equal(pipeline_init(&p, &bad), LOCO_EINVAL);
    bad = good;
    bad.stages = 0;
    assert_int_equal(pipeline_init(&p, &bad), LOCO_EINVAL);
    assert_int_equal(pipeline_init(&p, &good), 0);
    assert_int_equal(pipeline_begin(&p, 1, hosts, 2, 0, &out), 0);
    hosts[1].stage = 2;
    assert_int_equal(pipeline_begin(&p, 1, hosts, 2, 0, &out), LOCO_EINVAL);
    hosts[1] = hosts[0];
    assert_int_equal(pipeline_begin(&p, 1, hosts, 2, 0, &out), LOCO_EINVAL);
    hosts[0].id.b[0] = 0; /* we are not among them */
    assert_int_equal(pipeline_begin(&p, 1, hosts, 1, 0, &out), LOCO_EINVAL);
    assert_int_equal(pipeline_begin(&p, 1, hosts, 0, 0, &out), LOCO_EINVAL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_micro_batch_counts_once_where_nobody_dies),
        cmocka_unit_test(one_host_with_the_whole_model_needs_nobody),
        cmocka_unit_test(who_stays_counts_the_same_when_one_dies_or_freezes),
        cmocka_unit_test(several_deaths_and_cut_edges_are_survived),
        cmocka_unit_test(a_stage_without_hosts_starves_the_others),
        cmocka_unit_test(a_step_that_one_host_counted_counts_for_all),
        cmocka_unit_test(strangers_and_nonsense_change_nothing),
        cmocka_unit_test(options_out_of_range_are_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
