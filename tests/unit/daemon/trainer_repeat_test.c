/* trainer_repeat_test.c - a lease made again by another trainer, with real
 * training: honest work is read as good, on other kernels too; lies are not.
 *
 * A maker trains two rounds; its second contribution is audited. The auditor
 * has other kernels, another peer number, and a past of its own. */
#include "daemon/machine/trainer_repeat.h"

#include <math.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "daemon/machine/trainer_moments.h"
#include "p2p/round/repeat.h"
#include "proto/base/err.h"
#include "proto/base/errmsg.h"
#include "proto/base/rng.h"

#define EVENTS_MAX 512
#define STEPS      32
#define BLOCK      4096 /* of fp16 */
#define FIRST      500  /* position of the audited lease */

struct inbox {
    pthread_mutex_t mutex;
    pthread_cond_t wake;
    unsigned n, n_steps;
    struct local_event events[EVENTS_MAX];
    struct snapshot *snapshot;
    struct offer moments; /* the last ones */
};

static uint8_t text[200000];
static struct shard shard;
static const struct peer_id maker_id = {{7}};
static double rate = 1e-3;

static void post(void *self, const struct local_event *event)
{
    struct inbox *in = self;

    (void)pthread_mutex_lock(&in->mutex);
    if (event->type != LOCAL_PROGRESS && in->n < EVENTS_MAX) {
        in->events[in->n++] = *event;
    }
    in->n_steps += event->type == LOCAL_PROGRESS;
    (void)pthread_cond_signal(&in->wake);
    (void)pthread_mutex_unlock(&in->mutex);
}

static void take_snapshot(void *self, struct snapshot *s)
{
    struct inbox *in = self;

    (void)pthread_mutex_lock(&in->mutex);
    snapshot_free(in->snapshot);
    in->snapshot = s;
    (void)pthread_mutex_unlock(&in->mutex);
}

static void take_moments(void *self, struct offer *o, uint64_t steps, bool ends)
{
    struct inbox *in = self;

    (void)steps;
    (void)ends;
    (void)pthread_mutex_lock(&in->mutex);
    offer_free(&in->moments);
    in->moments = *o;
    *o = (struct offer){0};
    (void)pthread_mutex_unlock(&in->mutex);
}

static struct local_event next_event(struct inbox *in)
{
    struct local_event e;

    (void)pthread_mutex_lock(&in->mutex);
    while (in->n == 0) {
        (void)pthread_cond_wait(&in->wake, &in->mutex);
    }
    e = in->events[0];
    memmove(in->events, in->events + 1, --in->n * sizeof in->events[0]);
    (void)pthread_mutex_unlock(&in->mutex);
    return e;
}

static unsigned steps_made(struct inbox *in)
{
    unsigned n;

    (void)pthread_mutex_lock(&in->mutex);
    n = in->n_steps;
    (void)pthread_mutex_unlock(&in->mutex);
    return n;
}

/* So many steps more are made: what is posted now comes in the middle. */
static void after_steps(struct inbox *in, unsigned n)
{
    (void)pthread_mutex_lock(&in->mutex);
    for (n += in->n_steps; in->n_steps < n;) {
        (void)pthread_cond_wait(&in->wake, &in->mutex);
    }
    (void)pthread_mutex_unlock(&in->mutex);
}

static struct local_event expect(struct inbox *in, enum local_type type)
{
    struct local_event e = next_event(in);

    assert_int_equal(e.type, type);
    return e;
}

/* Words of a small language, so that there is something to learn, and each
 * part of it says something else. */
static void write_text(void)
{
    uint64_t rng = 5;
    size_t at = 0;

    while (at < sizeof text) {
        uint64_t word = rng_below(&rng, 400), spell = word * 977 + at / 3000;

        for (uint64_t i = 0; i < 3 + word % 5 && at < sizeof text; i++) {
            text[at++] = (uint8_t)('a' + (spell >> i * 3) % 26);
        }
        if (at < sizeof text) {
            text[at++] = ' ';
        }
    }
    shard_from_text(&shard, text, sizeof text);
}

static struct replica_options replica_with(bool reference, uint64_t peer)
{
    return (struct replica_options){
        .model = {.dim = 32,
                  .layers = 1,
                  .heads = 2,
                  .kv_heads = 2,
                  .ffn = 64,
                  .vocab = 256,
                  .seq = 32,
                  .tied = true,
                  .rope_theta = 10000,
                  .norm_eps = 1e-5f},
        .optimizer = optimizer_defaults(),
        .schedule = {SCHEDULE_CONSTANT, rate, rate, 0, 0, 0},
        .method = {.period = STEPS, .fragments = 1, .rule = {.lr = 1.0F}},
        .codec = codec_find("fp16"),
        .batch = 4,
        .micro_batch = 4,
        .seq = 32,
        .seed = 3,
        .peer = peer,
        .train = &shard,
        .n_train = 1,
        .threads = 1,
        .reference = reference,
    };
}

static struct trainer *open_trainer(struct inbox *in, bool reference)
{
    struct trainer_options opt = {
        .replica = replica_with(reference, reference ? 9 : 8),
        .self = in,
        .post = post,
        .take_snapshot = take_snapshot,
        .take_moments = take_moments,
        .moments_block = BLOCK,
    };
    struct trainer *t = NULL;
    char errmsg[ERRMSG_SIZE];

    *in = (struct inbox){.mutex = PTHREAD_MUTEX_INITIALIZER,
                         .wake = PTHREAD_COND_INITIALIZER};
    assert_int_equal(trainer_open(&t, &opt, errmsg), 0);
    return t;
}

static void close_trainer(struct trainer *t, struct inbox *in)
{
    trainer_close(t);
    snapshot_free(in->snapshot);
    offer_free(&in->moments);
}

static void load(struct trainer *t, struct inbox *in)
{
    const struct trainer_command c = {
        .job = {.type = JOB_LOAD, .load.from_seed = true}};

    assert_true(trainer_post(t, &c));
    assert_int_equal(expect(in, LOCAL_LOADED).rc, 0);
}

static void train(struct trainer *t, uint64_t first, uint32_t steps)
{
    const struct trainer_command c = {
        .job = {.type = JOB_TRAIN, .train.steps = steps},
        .lease = {.n_ranges = 1, .ranges = {{first, steps}}}};

    assert_true(trainer_post(t, &c));
}

/* Its own contribution is the mean of the round. */
static void
apply(struct trainer *t, struct inbox *in, uint64_t round, uint64_t n)
{
    const struct codec *fp16 = codec_find("fp16");
    uint8_t *wire = malloc(fp16->bytes(n));
    const struct trainer_command c = {
        .job = {.type = JOB_APPLY, .apply = {.round = round, .share = 1}},
        .wire = wire};

    assert_non_null(wire);
    assert_int_equal(fp16->encode(wire, trainer_contribution(t), n, 1.0F), 0);
    assert_true(trainer_post(t, &c));
    assert_int_equal(expect(in, LOCAL_APPLIED).rc, 0);
    free(wire);
}

/* ---- what the auditor has ------------------------------------------------ */

struct scene {
    uint64_t n;
    float *base;                 /* the state after round 1 */
    float *sent, *other, *third; /* honest contributions of two leases */
    float *moments, *after;      /* (2n) of the maker, before and after */
    uint64_t moment_steps;
    uint8_t *own; /* (2n) bf16, the auditor's, of other text; NULL: not here */
    struct work_room room;
};

static float *decoded(const struct offer *o)
{
    float *x = malloc(o->elements * sizeof *x);

    assert_non_null(x);
    assert_int_equal(codec_get(CODEC_BF16)->decode(x, o->bytes, o->elements),
                     0);
    return x;
}

static float *copy(const float *x, uint64_t n)
{
    float *y = malloc(n * sizeof *y);

    assert_non_null(y);
    memcpy(y, x, n * sizeof *y);
    return y;
}

/* Piece [from, from + len) of a vector that the maker announced. */
static int deliver(struct work_room *room,
                   const struct offer *o,
                   const struct offer_cut *cut,
                   struct segment s)
{
    uint8_t *bytes =
        malloc(cut->codec->bytes(s.len) + 32 * (size_t)BLOCKS_PROOF_MAX);
    int rv;

    assert_non_null(bytes);
    s.maker = maker_id;
    s.proven = true;
    blocks_offer(&maker_id, s.buffer == BUFFER_MOMENTS ? 0 : s.index,
                 offer_root(o), &s.offer);
    assert_int_equal(offer_fill(o, cut, &s, bytes), 0);
    rv = work_room_take(room, cut, &s, bytes);
    free(bytes);
    return rv;
}

static struct offer_cut cut_of(const char *codec, uint64_t elements)
{
    return (struct offer_cut){codec_find(codec), BLOCK, elements};
}

/* All pieces, of what a maker says that it sent and had. */
static void fill_room(struct scene *s,
                      const float *sent,
                      const float *moments,
                      const float *after)
{
    const struct offer_cut vector = cut_of("fp16", s->n);
    const struct offer_cut both = cut_of("bf16", 2 * s->n);
    const uint64_t blocks = (s->n + BLOCK - 1) / BLOCK;
    struct offer o, m, a;
    uint8_t *mean = malloc(vector.codec->bytes(BLOCK));

    assert_non_null(mean);
    work_room_free(&s->room);
    assert_int_equal(offer_make(&o, &vector, sent), 0);
    assert_int_equal(offer_make(&m, &both, moments), 0);
    assert_int_equal(offer_make(&a, &both, after), 0);
    for (uint64_t at = 0; at < 2 * s->n; at += 4 * BLOCK) {
        uint64_t left = 2 * s->n - at;
        struct segment piece = {
            .buffer = BUFFER_MOMENTS,
            .op = SEGMENT_COPY,
            .index = 2,
            .offset = at,
            .len = (uint32_t)(left < 4 * BLOCK ? left : 4 * BLOCK)};

        assert_false(work_room_is_full(&s->room));
        assert_int_equal(deliver(&s->room, &m, &both, piece), 0);
    }
    for (uint32_t k = 0; k < WORK_BLOCKS; k++) {
        uint64_t at = (k * 5 % blocks) * BLOCK, left = s->n - at;
        uint32_t len = (uint32_t)(left < BLOCK ? left : BLOCK);
        struct segment piece = {.buffer = BUFFER_OFFER,
                                .op = SEGMENT_LANE,
                                .index = 2,
                                .offset = at,
                                .len = len,
                                .lane = (uint8_t)k};
        float result[BLOCK];

        assert_int_equal(deliver(&s->room, &o, &vector, piece), 0);
        for (uint32_t i = 0; i < len; i++) {
            result[i] =
                (s->sent[at + i] + s->other[at + i] + s->third[at + i]) / 3;
        }
        assert_int_equal(vector.codec->encode(mean, result, len, 1.0F), 0);
        assert_int_equal(work_room_mean(&s->room, k, vector.codec, mean), 0);
    }
    for (uint32_t k = 0; k < WORK_BLOCKS; k++) {
        uint64_t at = (k / 2 * 5 % blocks) * BLOCK;
        struct segment piece = {.buffer = BUFFER_MOMENTS,
                                .op = SEGMENT_LANE,
                                .index = 3,
                                .lane = (uint8_t)k};

        piece.offset = k % 2 == 0 ? at : work_v_block(s->n, BLOCK, at);
        piece.len =
            (uint32_t)(2 * s->n - piece.offset < BLOCK ? 2 * s->n - piece.offset
                                                       : BLOCK);
        assert_int_equal(deliver(&s->room, &a, &both, piece), 0);
    }
    assert_true(work_room_is_full(&s->room));
    offer_free(&o);
    offer_free(&m);
    offer_free(&a);
    free(mean);
}

/* What a maker sends in round 2 for `steps` positions from `first` on. Round 1
 * is the same for all of them; what the first call leaves is the scene. */
static float *second_round(struct scene *s, uint64_t first, uint32_t steps)
{
    struct inbox in;
    struct trainer *t = open_trainer(&in, true);
    float *sent;

    load(t, &in);
    s->n = in.snapshot->n;
    train(t, 100, STEPS);
    assert_int_equal(expect(&in, LOCAL_TRAINED).rc, 0);
    apply(t, &in, 1, s->n);
    if (s->base == NULL) {
        s->base = copy(in.snapshot->state, in.snapshot->n_state);
        s->moments = decoded(&in.moments);
        s->moment_steps = in.snapshot->moment_steps;
        assert_int_equal(in.moments.round, 2);
    }
    train(t, first, steps);
    assert_int_equal(expect(&in, LOCAL_TRAINED).rc, 0);
    sent = copy(trainer_contribution(t), s->n);
    if (s->after == NULL) {
        apply(t, &in, 2, s->n);
        s->after = decoded(&in.moments);
    }
    close_trainer(t, &in);
    return sent;
}

/* The moments of a member that trained other text in round 1. */
static uint8_t *own_moments(void)
{
    struct inbox in;
    struct trainer *t = open_trainer(&in, true);
    uint8_t *own;

    load(t, &in);
    train(t, 2300, STEPS);
    assert_int_equal(expect(&in, LOCAL_TRAINED).rc, 0);
    apply(t, &in, 1, in.snapshot->n);
    own = in.moments.bytes;
    in.moments.bytes = NULL;
    close_trainer(t, &in);
    return own;
}

/* A maker that begins its lease with those moments and does all else as it
 * should: what it sends, and `after`, are what a repeat comes to. */
static float *
work_from(const struct scene *s, const float *moments, float **after)
{
    struct inbox in;
    struct trainer *t = open_trainer(&in, true);
    const struct trainer_command c = {
        .job = {.type = JOB_LOAD, .load = {.round = 1, .from_disk = true}},
        .state = s->base,
        .moments = moments,
        .moment_steps = s->moment_steps,
        .inner_step = s->moment_steps,
    };
    float *sent;

    assert_true(trainer_post(t, &c));
    assert_int_equal(expect(&in, LOCAL_LOADED).rc, 0);
    train(t, FIRST, STEPS);
    assert_int_equal(expect(&in, LOCAL_TRAINED).rc, 0);
    sent = copy(trainer_contribution(t), s->n);
    apply(t, &in, 2, s->n);
    *after = decoded(&in.moments);
    close_trainer(t, &in);
    return sent;
}

static void lay(struct scene *s)
{
    *s = (struct scene){0};
    s->sent = second_round(s, FIRST, STEPS);
    s->other = second_round(s, 1500, STEPS);
    s->third = second_round(s, 900, STEPS);
    assert_int_equal(s->moment_steps, STEPS);
}

static void clear(struct scene *s)
{
    free(s->base);
    free(s->sent);
    free(s->other);
    free(s->third);
    free(s->moments);
    free(s->after);
    free(s->own);
    work_room_free(&s->room);
}

/* ---- verdicts ------------------------------------------------------------ */

static struct trainer_command repeat_of(const struct scene *s)
{
    return (struct trainer_command){
        .job = {.type = JOB_REPEAT,
                .repeat = {.round = 2,
                           .maker = maker_id,
                           .steps = STEPS,
                           .moment_steps = s->moment_steps}},
        .lease = {.n_ranges = 2,
                  .ranges = {{FIRST, 10}, {FIRST + 10, STEPS - 10}}},
        .state = s->base,
        .room = &s->room,
        .own = s->own,
        .moment_steps = s->moment_steps,
    };
}

static struct report_repeated read_room(struct scene *s, bool reference)
{
    struct inbox in;
    struct trainer *t = open_trainer(&in, reference);
    const struct trainer_command c = repeat_of(s);
    struct local_event e;

    load(t, &in);
    assert_true(trainer_post(t, &c));
    e = expect(&in, LOCAL_REPEATED);
    assert_int_equal(e.rc, 0);
    assert_int_equal(e.repeated.round, 2);
    assert_true(id_eq(&e.repeated.maker, &maker_id));
    close_trainer(t, &in);
    print_message("cosine %.4f own %.4f length %.3f verdict %d\n",
                  (double)e.repeated.cosine, (double)e.repeated.own,
                  (double)e.repeated.length, e.repeated.verdict);
    return e.repeated;
}

static int verdict_on(struct scene *s, const float *sent)
{
    fill_room(s, sent, s->moments, s->after);
    return read_room(s, false).verdict;
}

static void honest_work_is_good_on_any_kernels(void **state)
{
    struct scene s;
    struct report_repeated r;

    (void)state;
    lay(&s);
    s.own = own_moments();
    fill_room(&s, s.sent, s.moments, s.after);
    for (int i = 0; i < 2; i++) {
        r = read_room(&s, i > 0);
        assert_int_equal(r.verdict, REPEAT_GOOD);
        assert_true(r.cosine > 0.99F && r.own > 0.98F);
    }
    clear(&s);
}

static void lies_are_bad(void **state)
{
    struct scene s;
    float *lie;
    uint64_t rng = 3;

    (void)state;
    lay(&s);
    assert_int_equal(verdict_on(&s, s.other), REPEAT_BAD);
    lie = second_round(&s, FIRST, STEPS / 2);
    for (uint64_t i = 0; i < s.n; i++) {
        lie[i] *= 2;
    }
    assert_int_equal(verdict_on(&s, lie), REPEAT_BAD);
    for (uint64_t i = 0; i < s.n; i++) {
        lie[i] = -s.sent[i];
    }
    assert_int_equal(verdict_on(&s, lie), REPEAT_BAD);
    for (uint64_t i = 0; i < s.n; i++) {
        lie[i] = 1.25F * s.sent[i];
    }
    assert_int_equal(verdict_on(&s, lie), REPEAT_BAD);
    for (uint64_t i = 0; i < s.n; i++) {
        lie[i] = (rng_float(&rng) - 0.5F) * 0.01F;
    }
    assert_int_equal(verdict_on(&s, lie), REPEAT_BAD);
    memset(lie, 0, s.n * sizeof *lie);
    assert_int_equal(verdict_on(&s, lie), REPEAT_BAD);
    free(lie);
    clear(&s);
}

/* Who sends anything can invent moments that lead there, but these are not
 * those with which its next lease begins. */
static void moments_must_go_on_from_lease_to_lease(void **state)
{
    struct scene s;
    float *invented;

    (void)state;
    lay(&s);
    invented = copy(s.moments, 2 * s.n);
    for (uint64_t i = 0; i < s.n; i++) {
        invented[i] = s.other[i];
    }
    fill_room(&s, s.sent, s.moments, invented);
    assert_int_equal(read_room(&s, false).verdict, REPEAT_BAD);
    for (uint64_t i = 0; i < s.n; i++) { /* large, along the lie */
        invented[i] = 1e4F * s.other[i];
        invented[s.n + i] = 1;
    }
    fill_room(&s, s.other, invented, s.after);
    assert_int_equal(read_room(&s, false).verdict, REPEAT_BAD);
    free(invented);
    clear(&s);
}

static void moments_that_lead_nowhere_are_bad(void **state)
{
    struct scene s;
    float *moments;

    (void)state;
    lay(&s);
    moments = copy(s.moments, 2 * s.n);
    for (uint64_t i = 0; i < s.n; i++) {
        moments[i] = 3e38F;
    }
    fill_room(&s, s.sent, moments, s.after);
    assert_int_equal(read_room(&s, false).verdict, REPEAT_BAD);
    free(moments);
    clear(&s);
}

static double dot(const float *x, const float *y, uint64_t n)
{
    double sum = 0;

    for (uint64_t i = 0; i < n; i++) {
        sum += (double)x[i] * (double)y[i];
    }
    return sum;
}

/* All of it goes on as it should, but for where it began: long moments point
 * where the maker likes, and the repeat follows them. */
static void long_moments_are_not_good(void **state)
{
    struct scene s;
    float *moments, *sent, *after;
    double cosine;

    (void)state;
    lay(&s);
    moments = copy(s.moments, 2 * s.n);
    cosine = sqrt(dot(moments, moments, s.n) / dot(s.other, s.other, s.n));
    for (uint64_t i = 0; i < s.n; i++) {
        moments[i] = -6 * (float)cosine * s.other[i];
    }
    sent = work_from(&s, moments, &after);
    cosine = dot(sent, s.sent, s.n) /
             sqrt(dot(sent, sent, s.n) * dot(s.sent, s.sent, s.n));
    print_message("cosine with honest work %.3f\n", cosine);
    assert_true(cosine < 0.9); /* it is a lie */
    fill_room(&s, sent, moments, after);
    assert_int_equal(read_room(&s, false).verdict, REPEAT_GOOD);
    s.own = own_moments(); /* nothing else shows it */
    assert_int_equal(read_room(&s, false).verdict, REPEAT_UNCLEAR);
    free(moments);
    free(sent);
    free(after);
    clear(&s);
}

/* v without its small elements: the same for a cosine, and steps are long. */
static float *without_small_v(const struct scene *s)
{
    float *after = copy(s->after, 2 * s->n), *v = after + s->n, most = 0;
    const float *all = s->after + s->n;
    uint64_t kept = 0;
    double cosine;

    for (uint64_t i = 0; i < s->n; i++) {
        most = v[i] > most ? v[i] : most;
    }
    do {
        kept = 0;
        most /= 2;
        for (uint64_t i = 0; i < s->n; i++) {
            v[i] = all[i] > most ? all[i] : 0;
            kept += v[i] > 0;
        }
        cosine =
            dot(v, all, s->n) / sqrt(dot(v, v, s->n) * dot(all, all, s->n));
    } while (cosine < 1.05 * REPEAT_AFTER);
    print_message("%.1f %% of v, cosine %.2f\n",
                  100 * (double)kept / (double)s->n, cosine);
    assert_true(10 * kept < s->n);
    return after;
}

/* u turned to where the maker likes. */
static float *with_turned_u(const struct scene *s)
{
    float *after = copy(s->after, 2 * s->n);
    double by = sqrt(dot(after, after, s->n) / dot(s->other, s->other, s->n));
    double cosine;

    for (uint64_t i = 0; i < s->n; i++) {
        after[i] -= (float)by * s->other[i];
    }
    cosine = dot(after, s->after, s->n) /
             sqrt(dot(after, after, s->n) * dot(s->after, s->after, s->n));
    print_message("u turned, cosine %.2f\n", cosine);
    assert_true(cosine > 1.05 * REPEAT_AFTER);
    return after;
}

/* What a lease ends with is what the next step is made of, and no more than
 * kernels may change that. */
static void what_the_next_step_is_made_of_goes_on(void **state)
{
    struct scene s;
    float *lie[2];

    (void)state;
    lay(&s);
    lie[0] = without_small_v(&s);
    lie[1] = with_turned_u(&s);
    for (int i = 0; i < 2; i++) {
        fill_room(&s, s.sent, s.moments, lie[i]);
        assert_int_equal(read_room(&s, false).verdict, REPEAT_BAD);
        assert_int_equal(read_room(&s, true).verdict, REPEAT_BAD);
        free(lie[i]);
    }
    clear(&s);
}

/* Inner steps, and what follows each pass. */
static uint32_t n_turns(struct trainer_repeat *r, const struct scene *s)
{
    const struct replica_options opt = replica_with(false, 8);
    const struct trainer_command c = repeat_of(s);
    struct local_event e;
    uint32_t n = 1;
    int rc;

    assert_true(trainer_repeat_begin(r, &opt, &c, &rc));
    while (!trainer_repeat_step(r, &e)) {
        n++;
    }
    assert_int_equal(e.rc, 0);
    assert_int_equal(e.repeated.verdict, REPEAT_UNCLEAR);
    return n;
}

/* Four passes once, then two, until it may have become calm. */
static void a_wild_maker_costs_little(const struct scene *s)
{
    struct trainer_repeat r = {0};

    assert_int_equal(n_turns(&r, s), 4 * (STEPS + 1));
    assert_int_equal(r.wild, 2);
    assert_int_equal(n_turns(&r, s), 2 * (STEPS + 1));
    r.wild = 3; /* of another branch */
    assert_int_equal(n_turns(&r, s), 4 * (STEPS + 1));
    trainer_repeat_close(&r);
}

/* It is as wild with our own moments, so nobody is to blame. */
static void where_training_is_wild_for_all_nothing_can_be_told(void **state)
{
    struct scene s;
    float *lie;

    (void)state;
    rate = 0.1;
    lay(&s);
    s.own = own_moments();
    lie = copy(s.sent, s.n);
    for (uint64_t i = 0; i < s.n; i += 2) {
        lie[i] *= 0.2F;
    }
    assert_int_equal(verdict_on(&s, lie), REPEAT_UNCLEAR);
    a_wild_maker_costs_little(&s);
    rate = 1e-3;
    free(lie);
    clear(&s);
}

static void moments_that_began_anew_are_as_good_as_any(void **state)
{
    struct scene s;
    float *moments, *sent, *after;

    (void)state;
    lay(&s);
    s.own = own_moments();
    moments = copy(s.moments, 2 * s.n);
    memset(moments, 0, 2 * s.n * sizeof *moments);
    s.moment_steps = 0;
    sent = work_from(&s, moments, &after);
    fill_room(&s, sent, moments, after);
    assert_int_equal(read_room(&s, false).verdict, REPEAT_GOOD);
    fill_room(&s, s.sent, s.moments, s.after); /* they are not */
    assert_int_equal(read_room(&s, false).verdict, REPEAT_BAD);
    free(moments);
    free(sent);
    free(after);
    clear(&s);
}

/* ---- beside the trainer's own work --------------------------------------- */

static void its_own_work_is_as_without_it(void **state)
{
    struct scene s;
    struct inbox in;
    struct trainer *t;
    struct trainer_command c;
    float *want;

    (void)state;
    lay(&s);
    fill_room(&s, s.sent, s.moments, s.after);
    c = repeat_of(&s);
    want = second_round(&s, 700, STEPS);
    t = open_trainer(&in, true);
    load(t, &in);
    train(t, 100, STEPS);
    assert_true(trainer_post(t, &c));
    assert_true(trainer_post(t, &c)); /* one at a time */
    assert_int_equal(expect(&in, LOCAL_REPEATED).rc, LOCO_EBUSY);
    assert_int_equal(expect(&in, LOCAL_REPEATED).rc, 0);
    assert_int_equal(expect(&in, LOCAL_TRAINED).rc, 0);
    assert_true(trainer_post(t, &c));
    apply(t, &in, 1, s.n); /* between two of its steps */
    train(t, 700, STEPS);
    assert_int_equal(expect(&in, LOCAL_REPEATED).rc, 0);
    assert_int_equal(expect(&in, LOCAL_TRAINED).rc, 0);
    assert_memory_equal(trainer_contribution(t), want, s.n * sizeof *want);
    assert_true(trainer_post(t, &c));
    close_trainer(t, &in); /* in the middle of one */
    free(want);
    clear(&s);
}

static void what_cannot_be_made_again_is_said(void **state)
{
    struct scene s;
    struct inbox in;
    struct trainer *t;
    struct trainer_command c;
    atomic_bool stop;

    (void)state;
    lay(&s);
    fill_room(&s, s.sent, s.moments, s.after);
    t = open_trainer(&in, true);
    load(t, &in);
    c = repeat_of(&s);
    c.lease.n_ranges = 1; /* shorter than the steps */
    assert_true(trainer_post(t, &c));
    assert_int_equal(expect(&in, LOCAL_REPEATED).rc, LOCO_EINVAL);
    c = repeat_of(&s);
    c.job.repeat.round = 3;
    assert_true(trainer_post(t, &c));
    assert_int_equal(expect(&in, LOCAL_REPEATED).rc, LOCO_EINVAL);
    atomic_store(&stop, true);
    c = repeat_of(&s);
    c.stop = &stop;
    assert_true(trainer_post(t, &c));
    assert_int_equal(expect(&in, LOCAL_REPEATED).rc, LOCO_ECANCELED);
    close_trainer(t, &in);
    clear(&s);
}

/* ---- our own moments ----------------------------------------------------- */

/* A commit without our work: nothing changes but what is undone. */
static struct report_state without_us(struct trainer *t,
                                      struct inbox *in,
                                      uint64_t round,
                                      const struct offer *began)
{
    const struct codec *fp16 = codec_find("fp16");
    uint8_t *wire = calloc(1, fp16->bytes(in->snapshot->n));
    const struct trainer_command c = {
        .job = {.type = JOB_APPLY,
                .apply = {.round = round, .share = 1, .undo = round}},
        .own = began == NULL ? NULL : began->bytes,
        .moment_steps = STEPS,
        .wire = wire};
    struct report_state state;

    assert_non_null(wire);
    assert_true(trainer_post(t, &c));
    state = expect(in, LOCAL_APPLIED).applied;
    free(wire);
    return state;
}

/* The moments that a lease ended with are those that the next one begins with,
 * whatever was trained and dropped between the two. */
static void a_lease_that_is_undone_leaves_no_trace(void **state)
{
    struct inbox in;
    struct trainer *t = open_trainer(&in, false);
    struct hash32 ends;
    struct offer began;
    struct report_state s;
    uint64_t tokens;

    (void)state;
    load(t, &in);
    train(t, 100, STEPS);
    ends = expect(&in, LOCAL_TRAINED).trained.ends;
    assert_int_equal(in.moments.round, 2);
    assert_true(hash32_eq(offer_root(&in.moments), &ends));
    apply(t, &in, 1, in.snapshot->n);
    assert_true(hash32_eq(offer_root(&in.moments), &ends));
    began = in.moments;
    in.moments = (struct offer){0};
    train(t, 500, STEPS);
    tokens = expect(&in, LOCAL_TRAINED).trained.tokens;
    assert_false(hash32_eq(offer_root(&in.moments), &ends));
    for (uint64_t round = 2; round < 4; round++) { /* packed; in the middle */
        s = without_us(t, &in, round, &began);
        assert_false(s.broken);
        assert_true(hash32_eq(&s.moments, &ends));
        assert_int_equal(s.moment_steps, STEPS);
        train(t, 900, STEPS); /* until the commit comes */
        after_steps(&in, 3);
    }
    s = without_us(t, &in, 4, NULL); /* they are not here any more */
    assert_true(s.broken && hash32_is_zero(&s.moments));
    train(t, 900, STEPS);
    assert_int_equal(expect(&in, LOCAL_TRAINED).trained.tokens, tokens);
    offer_free(&began);
    close_trainer(t, &in);
}

/* A state is taken back, or fetched, while a lease is trained: the steps of
 * that lease are of no contribution, and no more of them are made. */
static void a_load_ends_the_lease_under_way(void **state)
{
    struct inbox in;
    struct trainer *t = open_trainer(&in, true);
    struct trainer_command c = {
        .job = {.type = JOB_LOAD, .load = {.round = 1, .anew = true}}};
    struct local_event e;
    float *base, *want;
    unsigned n_steps = 0;

    (void)state;
    load(t, &in);
    train(t, 100, STEPS);
    assert_int_equal(expect(&in, LOCAL_TRAINED).rc, 0);
    apply(t, &in, 1, in.snapshot->n);
    base = copy(in.snapshot->state, in.snapshot->n_state);
    c.state = base;
    assert_true(trainer_post(t, &c));
    assert_int_equal(expect(&in, LOCAL_LOADED).rc, 0);
    train(t, 900, STEPS);
    e = expect(&in, LOCAL_TRAINED);
    want = copy(trainer_contribution(t), in.snapshot->n);
    assert_true(trainer_post(t, &c));
    assert_int_equal(expect(&in, LOCAL_LOADED).rc, 0);
    train(t, 500, STEPS);
    after_steps(&in, 3);
    /* Whenever it waits for the next one it could make a step of that lease. */
    for (int i = 0; i < 20; i++) {
        assert_true(trainer_post(t, &c));
        assert_int_equal(expect(&in, LOCAL_LOADED).rc, 0);
        n_steps = i == 0 ? steps_made(&in) : n_steps;
    }
    assert_int_equal(steps_made(&in), n_steps);
    train(t, 900, STEPS);
    assert_int_equal(expect(&in, LOCAL_TRAINED).trained.tokens,
                     e.trained.tokens);
    assert_int_equal(steps_made(&in) - n_steps, STEPS);
    assert_memory_equal(trainer_contribution(t), want,
                        in.snapshot->n * sizeof *want);
    free(base);
    free(want);
    close_trainer(t, &in);
}

static int is_lost(const struct backend *b)
{
    (void)b;
    return LOCO_ECUDA;
}

/* What a GPU leaves that is lost while they are read is no moments. */
static void moments_of_a_lost_gpu_are_not_announced(void **state)
{
    const struct replica_options opt = replica_with(true, 8);
    struct inbox in = {.mutex = PTHREAD_MUTEX_INITIALIZER};
    const struct trainer_options to = {
        .self = &in, .take_moments = take_moments, .moments_block = BLOCK};
    struct hash32 ends = {{0}};
    struct replica r;
    char errmsg[ERRMSG_SIZE];

    (void)state;
    assert_int_equal(replica_open(&r, &opt, errmsg), 0);
    r.backend.finish = is_lost;
    trainer_moments_end(&to, &r, &ends);
    assert_true(hash32_is_zero(&ends));
    assert_int_equal(in.moments.n, 0);
    replica_close(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_lease_that_is_undone_leaves_no_trace),
        cmocka_unit_test(a_load_ends_the_lease_under_way),
        cmocka_unit_test(moments_of_a_lost_gpu_are_not_announced),
        cmocka_unit_test(honest_work_is_good_on_any_kernels),
        cmocka_unit_test(lies_are_bad),
        cmocka_unit_test(moments_must_go_on_from_lease_to_lease),
        cmocka_unit_test(moments_that_lead_nowhere_are_bad),
        cmocka_unit_test(long_moments_are_not_good),
        cmocka_unit_test(what_the_next_step_is_made_of_goes_on),
        cmocka_unit_test(where_training_is_wild_for_all_nothing_can_be_told),
        cmocka_unit_test(moments_that_began_anew_are_as_good_as_any),
        cmocka_unit_test(its_own_work_is_as_without_it),
        cmocka_unit_test(what_cannot_be_made_again_is_said),
    };

    write_text();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
