/* stage_test.c - pipelines with real gradients, hosts in one process: the core
 * of p2p/pipeline/pipeline.h, slots and trainers as the daemon has them; bytes,
 * messages and computing in any order that a network allows, from a seed.
 *
 * The oracle is independent of all of these: it takes from the hosts only who
 * took part in each step that counted, draws the routes anew, passes every
 * micro-batch through replicas of its own, one after the other, and makes the
 * step. A micro-batch that was counted twice, or not, or elsewhere, moves other
 * parameters than those. */
#include "daemon/machine/trainer_stage.h"
#include "p2p/pipeline/pipeline.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "proto/base/err.h"
#include "proto/base/errmsg.h"
#include "proto/base/rng.h"
#include "tests/unit/p2p/past.h"

#define TEXT   4000
#define SEQ    8
#define DIM    8
#define STAGES 3
#define HOSTS  6
#define MICRO  2 /* of a step, per host of the first stage */
#define SLOTS  2
#define STEPS  3
#define ROUND  4
#define QUEUE  256
#define POSTS  64

/* Draws of one step, beside which redraws begin. */
#define DRAWS (MICRO * ROUTE_TIMES_MAX)

static uint8_t text[TEXT];
static struct shard shard;
static char errmsg[ERRMSG_SIZE];

static int setup(void **state)
{
    uint64_t rng = 8;

    (void)state;
    for (size_t i = 0; i < TEXT; i++) {
        text[i] = (uint8_t)('a' + rng_below(&rng, 20));
    }
    shard_from_text(&shard, text, TEXT);
    return 0;
}

static struct replica_options options(uint32_t stage, uint32_t host)
{
    struct replica_options o = {
        .model = {.dim = DIM,
                  .layers = STAGES,
                  .heads = 2,
                  .kv_heads = 1,
                  .ffn = 12,
                  .vocab = 256,
                  .seq = SEQ,
                  .rope_theta = 10000,
                  .norm_eps = 1e-5F},
        .optimizer = {.beta1 = 0.9,
                      .beta2 = 0.9,
                      .eps = 1e-8,
                      .rule = OPTIMIZER_SGD},
        .schedule = {SCHEDULE_CONSTANT, 0.5, 0.5, 0, 0, 0},
        .method = {.period = STEPS, .fragments = 1, .rule = {.lr = 1}},
        .codec = codec_find("fp32"),
        .batch = MICRO,
        .micro_batch = 1,
        .seq = SEQ,
        .slots = SLOTS,
        .seed = 5,
        .peer = host + 1,
        .train = &shard,
        .n_train = 1,
        .threads = 1,
        .reference = true,
    };

    assert_int_equal(
        llama_part_of_stage(&o.model, STAGES, stage, &o.part, NULL), 0);
    return o;
}

/* ---- the world --------------------------------------------------------- */

enum what { MESSAGE, DATA, SENT, COMPUTE, LOST };

struct item {
    enum what what;
    uint32_t from;
    struct pipeline_action action;
    struct pipeline_hello hello;
    uint8_t *bytes;
};

/* In order within itself. */
struct queue {
    uint32_t n;
    struct item item[QUEUE];
};

struct post {
    uint64_t tag;
    uint32_t micro, from, slot;
    bool back;
};

struct host {
    struct pipeline p;
    struct replica r;
    struct stage_slots slots;
    struct trainer_stage t;
    struct queue trainer;
    struct queue message[HOSTS], data[HOSTS]; /* by sender */
    struct post posts[POSTS];
    uint32_t n_posts;
    uint64_t cancelled;
    uint64_t layout[STEPS]; /* of what it counted */
    uint64_t held_layout;
    uint32_t redraw[STEPS]; /* of what it entered last */
    bool counted[STEPS];
    bool dead, ended;
};

struct world {
    bool unequal; /* hosts know what they take: cost_ms() */
    struct pipeline_host list[HOSTS];
    struct host host[HOSTS];
    uint64_t rng, now_ms;
    uint32_t events;
    const char *codec;
};

static void push(struct queue *q, const struct item *i)
{
    assert_true(q->n < QUEUE);
    q->item[q->n++] = *i;
}

static struct item pop(struct queue *q)
{
    struct item first = q->item[0];

    q->n--;
    memmove(q->item, q->item + 1, q->n * sizeof q->item[0]);
    return first;
}

static struct stage_piece piece_of(uint64_t tag, uint32_t slot, bool forth)
{
    return (struct stage_piece){
        .tag = tag, .slot = slot, .rows = SEQ, .forth = forth};
}

static void say(struct world *w, uint32_t me, const struct pipeline_action *a)
{
    struct item i = {.what = MESSAGE, .from = me, .action = *a};

    if (a->type == PIPELINE_SAY_HELLO) {
        pipeline_hello_of(&w->host[me].p, a, &i.hello);
    }
    for (uint32_t k = 0; k < HOSTS; k++) {
        if (((a->hosts | a->gone) >> k & 1) != 0 && !w->host[k].dead) {
            push(&w->host[k].message[me], &i);
        }
    }
}

static void give(struct world *w, uint32_t me, const struct pipeline_action *a)
{
    struct host *h = &w->host[me];
    struct item i = {.what = DATA, .from = me, .action = *a};
    struct stage_piece p = piece_of(a->tag, a->slot, a->type == PIPELINE_GIVE);

    i.bytes = malloc(stage_slots_len(&h->slots, &p));
    assert_non_null(i.bytes);
    assert_int_equal(stage_slots_fill(&h->slots, &p, i.bytes), 0);
    if (w->host[a->host].dead) {
        free(i.bytes);
    } else {
        push(&w->host[a->host].data[me], &i);
    }
    i.what = SENT;
    i.bytes = NULL;
    push(&h->message[me], &i);
}

static void act(struct world *w, uint32_t me, const struct pipeline_action *a)
{
    struct host *h = &w->host[me];
    struct item i = {.what = COMPUTE, .action = *a};

    switch (a->type) {
    case PIPELINE_SAY_READY:
        h->held_layout = h->p.layout;
        say(w, me, a);
        break;
    case PIPELINE_SAY_HELLO:
    case PIPELINE_SAY_TAKE:
        say(w, me, a);
        break;
    case PIPELINE_CANCEL:
        h->cancelled = a->tag;
        h->n_posts = 0;
        break;
    case PIPELINE_TAKE:
    case PIPELINE_TAKE_BACK:
        assert_true(h->n_posts < POSTS);
        h->posts[h->n_posts++] = (struct post){
            a->tag, a->micro, a->host, a->slot, a->type == PIPELINE_TAKE_BACK};
        break;
    case PIPELINE_GIVE:
    case PIPELINE_GIVE_BACK:
        give(w, me, a);
        break;
    case PIPELINE_STEP:
        h->counted[pipeline_tag_step(a->tag)] = true;
        h->layout[pipeline_tag_step(a->tag)] = h->held_layout;
        push(&h->trainer, &i);
        break;
    case PIPELINE_END:
        h->ended = true;
        break;
    case PIPELINE_FORWARD:
        h->redraw[pipeline_tag_step(a->tag)] = a->draw / DRAWS;
        push(&h->trainer, &i);
        break;
    default:
        push(&h->trainer, &i);
        break;
    }
}

static void act_all(struct world *w, uint32_t me, const struct pipeline_out *o)
{
    for (uint32_t k = 0; k < o->n; k++) {
        act(w, me, &o->action[k]);
    }
}

/* ---- what happens ------------------------------------------------------ */

static void
message(struct world *w, struct host *h, struct item *i, struct pipeline_out *o)
{
    const struct peer_id *id = &w->list[i->from].id;
    const struct pipeline_action *a = &i->action;
    uint32_t step = pipeline_tag_step(a->tag);
    uint32_t attempt = pipeline_tag_attempt(a->tag);

    if (i->what == LOST) {
        pipeline_lost(&h->p, id, w->now_ms, o);
    } else if (i->what == SENT) {
        pipeline_done(&h->p, a->type, a->tag, a->micro, w->now_ms, o);
    } else if (a->type == PIPELINE_SAY_HELLO) {
        pipeline_on_hello(&h->p, id, &i->hello, w->now_ms, o);
    } else if (a->type == PIPELINE_SAY_READY) {
        pipeline_on_ready(&h->p, id, ROUND, step, attempt, w->now_ms, o);
    } else {
        pipeline_on_take(&h->p, id, ROUND, step, attempt, a->micro, w->now_ms,
                         o);
    }
}

static void
data(struct world *w, struct host *h, struct item *i, struct pipeline_out *o)
{
    bool back = i->action.type == PIPELINE_GIVE_BACK;
    struct stage_piece p;
    uint32_t k = 0;

    while (k < h->n_posts &&
           !(h->posts[k].tag == i->action.tag && h->posts[k].back == back &&
             h->posts[k].micro == i->action.micro &&
             h->posts[k].from == i->from)) {
        k++;
    }
    if (k == h->n_posts) { /* what is not posted closes a connection */
        assert_true(i->action.tag <= h->cancelled);
    } else {
        p = piece_of(i->action.tag, h->posts[k].slot, !back);
        assert_int_equal(stage_slots_take(&h->slots, &p, i->bytes), 0);
        h->posts[k] = h->posts[--h->n_posts];
        pipeline_done(&h->p, back ? PIPELINE_TAKE_BACK : PIPELINE_TAKE,
                      i->action.tag, i->action.micro, w->now_ms, o);
    }
    free(i->bytes);
}

static enum pipe_op op_of(enum pipeline_action_type type)
{
    return type == PIPELINE_FORWARD    ? PIPE_FORWARD
           : type == PIPELINE_SCORE    ? PIPE_SCORE
           : type == PIPELINE_BACKWARD ? PIPE_BACKWARD
           : type == PIPELINE_STEP     ? PIPE_STEP
                                       : PIPE_CLEAR;
}

static void
compute(struct world *w, struct host *h, struct item *i, struct pipeline_out *o)
{
    const struct pipeline_action *a = &i->action;
    const struct job_pipe c = {.op = op_of(a->type),
                               .attempt = a->tag,
                               .index = a->micro,
                               .slot = a->slot,
                               .round = ROUND,
                               .step = pipeline_tag_step(a->tag),
                               .count = a->type == PIPELINE_STEP ? a->count
                                                                 : a->draw};
    float loss;
    int rv = trainer_stage_run(&h->t, &h->r, &c, &loss);

    /* Of an attempt that is over its slot may be another's. */
    assert_true(rv == 0 || (rv == LOCO_ESTALE && a->tag <= h->cancelled));
    if (a->type != PIPELINE_CLEAR) {
        pipeline_done(&h->p, a->type, a->tag, a->micro, w->now_ms, o);
    }
}

static struct queue *queue_at(struct host *h, uint32_t k)
{
    return k == 0 ? &h->trainer
                  : (k <= HOSTS ? &h->message[k - 1] : &h->data[k - 1 - HOSTS]);
}

static bool any(const struct world *w)
{
    for (uint32_t i = 0; i < HOSTS; i++) {
        for (uint32_t k = 0; k <= 2 * HOSTS; k++) {
            struct host *h = (struct host *)(uintptr_t)&w->host[i];

            if (!h->dead && queue_at(h, k)->n > 0) {
                return true;
            }
        }
    }
    return false;
}

/* One thing of one queue. False: nothing is left to happen. */
static bool happen(struct world *w)
{
    static struct pipeline_out out;
    uint32_t me = (uint32_t)rng_below(&w->rng, HOSTS);
    struct host *h = &w->host[me];
    struct queue *q = queue_at(h, (uint32_t)rng_below(&w->rng, 2 * HOSTS + 1));
    struct item i;

    if (h->dead || q->n == 0) {
        return any(w);
    }
    i = pop(q);
    out.n = 0;
    w->events++;
    w->now_ms++;
    if (i.what == COMPUTE) {
        compute(w, h, &i, &out);
    } else if (i.what == DATA) {
        data(w, h, &i, &out);
    } else {
        message(w, h, &i, &out);
    }
    act_all(w, me, &out);
    return true;
}

/* The others notice one by one; what it sent before still comes. */
static void kill_host(struct world *w, uint32_t victim)
{
    const struct item lost = {.what = LOST, .from = victim};
    struct host *h = &w->host[victim];

    h->dead = true;
    for (uint32_t i = 0; i < HOSTS; i++) {
        while (h->data[i].n > 0) {
            free(pop(&h->data[i]).bytes);
        }
        if (i != victim) {
            push(&w->host[i].message[victim], &lost);
        }
    }
}

/* Of a micro-batch in the round before, where hosts are not alike. */
static uint32_t cost_ms(uint32_t host)
{
    return host < STAGES ? 1 : 3;
}

/* ---- the oracle -------------------------------------------------------- */

struct oracle {
    struct replica r[HOSTS];
    uint32_t count[HOSTS];
};

/* What a wire type makes of x. */
static void travel(const struct world *w, float *x)
{
    const struct codec *c = codec_find(w->codec);
    uint8_t wire[4 * SEQ * DIM + 8];

    assert_int_equal(c->encode(wire, x, SEQ * DIM, 1.0F), 0);
    assert_int_equal(c->decode(x, wire, SEQ * DIM), 0);
}

static void pass(const struct world *w,
                 struct oracle *o,
                 uint32_t step,
                 uint32_t turn,
                 const uint32_t *path)
{
    uint32_t tokens[SEQ], targets[SEQ];
    float x[SEQ * DIM];
    const float *y = NULL;
    uint32_t draw = w->host[path[0]].redraw[step] * DRAWS + turn, s;

    assert_int_equal(replica_stage_tokens(&o->r[path[0]],
                                          (ROUND - 1) * STEPS + step, draw,
                                          tokens, targets),
                     0);
    for (s = 0; s + 1 < STAGES; s++) {
        assert_int_equal(replica_stage_forward(&o->r[path[s]], 0,
                                               s == 0 ? tokens : NULL,
                                               s == 0 ? NULL : x, &y),
                         0);
        memcpy(x, y, sizeof x);
        travel(w, x);
    }
    assert_int_equal(replica_stage_score(&o->r[path[s]], NULL, targets, x, &y),
                     0);
    o->count[path[s]]++;
    while (s-- > 0) {
        memcpy(x, y, sizeof x);
        travel(w, x);
        assert_int_equal(replica_stage_backward(&o->r[path[s]], 0,
                                                s == 0 ? tokens : NULL, x, &y),
                         0);
        o->count[path[s]]++;
    }
}

/* Of hosts that are not alike: the ways of all micro-batches of a step. */
static void pass_dealt(const struct world *w,
                       struct oracle *o,
                       const struct route_draw *draw,
                       const uint32_t *n,
                       uint32_t of[STAGES][HOSTS])
{
    uint8_t host[STAGES][HOSTS * MICRO];
    uint32_t turn[HOSTS] = {0}, path[STAGES], cost[HOSTS];

    for (uint32_t s = 0; s < STAGES; s++) {
        for (uint32_t i = 0; i < n[s]; i++) {
            cost[i] = 1000 * cost_ms(of[s][i]);
        }
        route_deal(draw, s, cost, n[s], n[0] * MICRO, host[s]);
    }
    for (uint32_t i = 0; i < n[0] * MICRO; i++) {
        for (uint32_t s = 0; s < STAGES; s++) {
            path[s] = of[s][host[s][i]];
        }
        pass(w, o, (uint32_t)draw->step, turn[path[0]]++, path);
    }
}

/* All micro-batches of a step among the hosts of `layout`. */
static void oracle_step(const struct world *w,
                        struct oracle *o,
                        uint32_t step,
                        uint64_t layout)
{
    const struct route_draw draw = {.seed = 5, .epoch = ROUND, .step = step};
    uint32_t n[STAGES] = {0}, of[STAGES][HOSTS], path[STAGES];
    float loss;

    memset(o->count, 0, sizeof o->count);
    for (uint32_t k = 0; k < HOSTS; k++) {
        if ((layout >> k & 1) != 0) {
            of[w->list[k].stage][n[w->list[k].stage]++] = k;
        }
    }
    if (w->unequal) {
        pass_dealt(w, o, &draw, n, of);
    }
    for (uint32_t turn = 0; turn < MICRO && !w->unequal; turn++) {
        for (uint32_t entry = 0; entry < n[0]; entry++) {
            route_path(&draw, turn, n, STAGES, entry, path);
            for (uint32_t s = 0; s < STAGES; s++) {
                path[s] = of[s][path[s]];
            }
            pass(w, o, step, turn, path);
        }
    }
    for (uint32_t k = 0; k < HOSTS; k++) {
        if ((layout >> k & 1) != 0) {
            assert_int_equal(replica_stage_step(&o->r[k],
                                                (uint32_t)o->r[k].since,
                                                o->count[k], &loss),
                             0);
        }
    }
}

/* Largest difference, in parts of the largest movement. */
static double difference(const struct replica *a, const struct replica *b)
{
    double most = 0, moved = 0;

    for (uint64_t i = 0; i < a->n; i++) {
        most = fmax(most, fabs((double)a->theta[i] - (double)b->theta[i]));
        moved = fmax(moved, fabs((double)a->theta[i] - (double)a->phi[i]));
    }
    /* A slow host may have had nothing to do. */
    assert_true(moved > 0 || b->tokens_seen == 0);
    return moved > 0 ? most / moved : most;
}

static void check(const struct world *w, const struct host *survivor)
{
    /* Where 16 bits are rounded another last bit may be another number. */
    double limit = strcmp(w->codec, "fp32") == 0 ? 1e-5 : 2e-2;
    struct oracle *o = calloc(1, sizeof *o);

    assert_non_null(o);
    for (uint32_t k = 0; k < HOSTS; k++) {
        struct replica_options opt = options(w->list[k].stage, k);

        assert_int_equal(replica_open(&o->r[k], &opt, errmsg), 0);
        replica_init(&o->r[k]);
    }
    for (uint32_t step = 0; step < STEPS; step++) {
        assert_true(survivor->counted[step]);
        oracle_step(w, o, step, survivor->layout[step]);
    }
    for (uint32_t k = 0; k < HOSTS; k++) {
        const struct host *h = &w->host[k];

        if (!h->dead) {
            assert_true(h->ended);
            assert_int_equal(h->r.inner_step, STEPS);
            assert_true(difference(&o->r[k], &h->r) < limit);
        }
        replica_close(&o->r[k]);
    }
    free(o);
}

/* ---- tests ------------------------------------------------------------- */

static void begin(struct world *w, uint32_t k)
{
    static struct pipeline_out out;
    struct host *h = &w->host[k];
    struct replica_options o = options(w->list[k].stage, k);
    const struct stage_wire wire = {codec_find(w->codec), DIM, 256};
    const struct pipeline_options po = {.self = w->list[k].id,
                                        .seed = 5,
                                        .stages = STAGES,
                                        .micro_batches = MICRO,
                                        .steps = STEPS,
                                        .slots = SLOTS,
                                        .gather_ms = 1000000};

    assert_int_equal(replica_open(&h->r, &o, errmsg), 0);
    replica_init(&h->r);
    assert_int_equal(stage_slots_open(&h->slots, &wire, SLOTS, SEQ), 0);
    assert_int_equal(trainer_stage_open(&h->t, &h->slots), 0);
    assert_int_equal(pipeline_init(&h->p, &po), 0);
    if (w->unequal) { /* as a round before would have it */
        (void)past_round(&h->p, ROUND - 1, w->list, HOSTS, 0, cost_ms(k));
    }
    out.n = 0;
    assert_int_equal(pipeline_begin(&h->p, ROUND, w->list, HOSTS, 0, &out), 0);
    act_all(w, k, &out);
}

static struct world *open_world(uint64_t seed, const char *codec, bool unequal)
{
    struct world *w = calloc(1, sizeof *w);

    assert_non_null(w);
    w->rng = seed;
    w->codec = codec;
    w->unequal = unequal;
    for (uint32_t k = 0; k < HOSTS; k++) {
        w->list[k].id.b[0] = (uint8_t)(k + 1);
        w->list[k].stage = k % STAGES;
    }
    for (uint32_t k = 0; k < HOSTS; k++) {
        begin(w, k);
    }
    return w;
}

static void close_world(struct world *w)
{
    for (uint32_t k = 0; k < HOSTS; k++) {
        struct host *h = &w->host[k];

        for (uint32_t i = 0; i < HOSTS; i++) {
            while (h->data[i].n > 0) {
                free(pop(&h->data[i]).bytes);
            }
        }
        trainer_stage_close(&h->t);
        stage_slots_close(&h->slots);
        replica_close(&h->r);
    }
    free(w);
}

static void the_step_is_that_of_the_micro_batches_named_done(void **state)
{
    static const char *const codecs[] = {"fp32", "bf16", "fp16", "int8"};

    (void)state;
    for (uint64_t seed = 1; seed <= 8; seed++) {
        struct world *w = open_world(seed, codecs[seed % 4], false);

        while (happen(w)) {
        }
        check(w, &w->host[0]);
        close_world(w);
    }
}

/* Hosts 3 to 5 take three times as long: they have a quarter of each step, and
 * one of stage 0 enters more than its part of the others'. */
static void hosts_that_are_not_alike_share_by_speed(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 8; seed++) {
        struct world *w = open_world(seed, "fp32", true);

        while (happen(w)) {
        }
        for (uint32_t k = 0; k < HOSTS; k++) {
            assert_int_equal(w->host[k].r.tokens_seen,
                             STEPS * SEQ * (k < STAGES ? 3 : 1));
        }
        check(w, &w->host[0]);
        close_world(w);
    }
}

/* One host dies after a number of events: the others' steps are whole, of
 * those who took part. Hosts k and k + 3 hold one stage, so none starves. */
static void a_host_that_dies_takes_its_micro_batches_with_it(void **state)
{
    uint32_t shorter = 0;

    (void)state;
    for (uint64_t seed = 1; seed <= 40; seed++) {
        struct world *w = open_world(seed, "fp32", seed % 2 == 0);
        uint32_t victim = (uint32_t)(seed % HOSTS);
        uint32_t at = 20 + (uint32_t)seed * 9;
        const struct host *survivor = &w->host[(victim + 1) % HOSTS];

        while (w->events < at && happen(w)) {
        }
        kill_host(w, victim);
        while (happen(w)) {
        }
        for (uint32_t s = 0; s < STEPS; s++) {
            shorter += (survivor->layout[s] >> victim & 1) == 0;
        }
        check(w, survivor);
        close_world(w);
    }
    assert_true(shorter > 20 && shorter < 40 * STEPS);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_step_is_that_of_the_micro_batches_named_done),
        cmocka_unit_test(hosts_that_are_not_alike_share_by_speed),
        cmocka_unit_test(a_host_that_dies_takes_its_micro_batches_with_it),
    };

    return cmocka_run_group_tests(tests, setup, NULL);
}
