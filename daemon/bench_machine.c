/* bench_machine.c - see bench_internal.h: a machine without a model.
 *
 * TRAIN is a pause, the contribution is always the same; finished pieces of
 * the exchange are decoded while they are in the cache; HASH runs on a worker
 * as in the daemon; APPLY only notes the time and looks at the result.
 */
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "daemon/bench_internal.h"
#include "p2p/exchange.h"
#include "proto/base/err.h"
#include "proto/hash.h"

#define PAUSE_MS     20
#define CHECK_STRIDE 4099 /* every so many elements are checked each round */

static uint64_t cpu_ns(void)
{
    struct timespec t;

    (void)clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (uint64_t)t.tv_sec * 1000000000U + (uint64_t)t.tv_nsec;
}

/* ---- segments --------------------------------------------------------- */

/* Another attempt starts the result anew. */
static uint8_t *wire_of(struct rank *r, const struct segment *s)
{
    if (s->buffer != BUFFER_RING || r->hashing) {
        return NULL;
    }
    if (s->attempt != r->attempt) {
        r->attempt = s->attempt;
        r->decoded = 0;
        r->leaves.on = false;
        if (r->opt.overlap && r->n_leaf_jobs == 0) {
            leaves_begin(&r->leaves);
        }
    }
    return r->wire + r->opt.codec->bytes(s->offset);
}

static size_t on_wire_len(void *self, const struct segment *s)
{
    const struct rank *r = self;

    return r->opt.codec->bytes(s->len);
}

/* Partial sums and results go out from where they lie. */
static const uint8_t *on_lend(void *self, const struct segment *s)
{
    return s->op == SEGMENT_COPY ? wire_of(self, s) : NULL;
}

/* Where what arrives for the own slice waits. */
static uint8_t *lane_of(struct rank *r, const struct segment *s)
{
    return wire_of(r, s) != NULL &&
                   lanes_fit(&r->lanes, r->opt.codec, r->terms.segment_elements,
                             s->lanes, butterfly_slots(s->lanes)) == 0
               ? lanes_at(&r->lanes, s->lane, s->slot)
               : NULL;
}

/* Results come in where they stay. */
static uint8_t *on_place(void *self, const struct segment *s)
{
    if (s->op == SEGMENT_LANE) {
        return lane_of(self, s);
    }
    return s->op == SEGMENT_COPY ? wire_of(self, s) : NULL;
}

static int on_fill(void *self, const struct segment *s, uint8_t *dst)
{
    struct rank *r = self;

    if (wire_of(r, s) == NULL || s->op != SEGMENT_ENCODE) {
        return LOCO_ENOENT;
    }
    return r->opt.codec->encode(dst, r->input + s->offset, s->len,
                                (float)s->scale);
}

/* On the worker; jobs are done in order, so the leaves are its own. */
static void leaf_run(struct worker_job *job)
{
    struct bench_leaf *l = job->data;

    if (l->rank->opt.roam != NULL) {
        l->rank->opt.roam();
    }
    leaves_make(&l->rank->leaves, l->piece, l->rank->wire);
}

static void leaf_done(struct worker_job *job, int status)
{
    struct bench_leaf *l = job->data;

    (void)status;
    l->rank->n_leaf_jobs--;
}

/* Pieces of the hash that are complete now go to the worker. */
static void hash_ahead(struct rank *r, const struct segment *s)
{
    const struct codec *c = r->opt.codec;
    uint64_t ready[LEAVES_STEP_MAX];
    size_t n = leaves_final(&r->leaves, c->bytes(s->offset),
                            c->bytes(s->offset + s->len), ready);

    for (size_t i = 0; i < n; i++) {
        struct bench_leaf *l = &r->leaf_jobs[ready[i]];

        *l = (struct bench_leaf){.rank = r, .piece = ready[i]};
        l->job.data = l;
        r->n_leaf_jobs +=
            worker_submit(&r->workers, &l->job, leaf_run, leaf_done) == 0;
    }
}

/* This rank is the one that something happens to, and now it does. */
static void strike(struct rank *r)
{
    struct bench_place *here;

    if (r->opt.fault == BENCH_FAULT_NONE || r->opt.board == NULL ||
        r->opt.rank + 1 != r->opt.n ||
        r->round != r->opt.warmup + r->opt.rounds ||
        (double)r->decoded < r->opt.fault_at * (double)r->opt.elements) {
        return;
    }
    here = &r->opt.board[r->opt.rank];
    if (atomic_load(&here->struck_ns) == 0) {
        atomic_store(&here->struck_ns, uv_hrtime());
        (void)raise(r->opt.fault == BENCH_FAULT_KILL ? SIGKILL : SIGSTOP);
    }
}

static void reduced(struct rank *r)
{
    if (r->decoded == r->opt.elements) {
        r->now.reduced_ns = uv_hrtime();
        r->now.cpu_ns = cpu_ns() - r->now.cpu_ns;
    }
}

/* What became final may complete the result. */
static void count(struct rank *r, const struct segment *s)
{
    hash_ahead(r, s);
    r->decoded += s->len;
    strike(r);
    reduced(r);
}

static int
take_lane(struct rank *r, const struct segment *s, const uint8_t *src)
{
    uint8_t *at = lane_of(r, s);

    if (at == NULL) {
        return LOCO_ENOENT;
    }
    if (src != at) {
        memcpy(at, src, r->opt.codec->bytes(s->len));
    }
    lanes_keep(&r->lanes, s->attempt, s->lane, s->slot, s->len,
               (float)s->scale);
    return 0;
}

static int on_sum(void *self, struct segment *s)
{
    struct rank *r = self;
    struct lanes_sum sum = {
        .attempt = s->attempt,
        .lane = s->lane,
        .slot = s->slot,
        .n = s->len,
        .own = r->input + s->offset,
        .scale = (float)s->scale,
        .dst = wire_of(r, s),
        .result = r->result + s->offset,
    };
    int rv = sum.dst == NULL ? LOCO_ENOENT : lanes_sum(&r->lanes, &sum);

    s->lane = (uint8_t)sum.bad;
    if (rv == 0) {
        count(r, s);
    }
    return rv;
}

static int
on_take(void *self, const struct segment *s, const uint8_t *src, size_t len)
{
    struct rank *r = self;
    const struct codec *c = r->opt.codec;
    uint8_t *at = wire_of(r, s);
    struct codec_op op = {
        .own = r->input + s->offset,
        .n = s->len,
        .scale = (float)s->scale,
        .result = s->final ? r->result + s->offset : NULL,
    };
    int rv;

    (void)len;
    if (s->op == SEGMENT_LANE) {
        return take_lane(r, s, src);
    }
    if (at == NULL) {
        return LOCO_ENOENT;
    }
    rv = s->op == SEGMENT_ADD ? c->add_op(at, src, &op)
                              : c->decode(op.result, at, s->len);
    if (rv == 0 && s->final) {
        count(r, s);
    }
    return rv;
}

static int on_save(void *self, const uint8_t *bytes, size_t len)
{
    (void)self; /* a benchmark is not restarted */
    (void)bytes;
    (void)len;
    return 0;
}

/* ---- the machine's actions -------------------------------------------- */

static void post(struct rank *r, const struct local_event *event)
{
    (void)shell_post(r->shell, event);
}

static void configure(struct rank *r)
{
    struct local_event e = {.type = LOCAL_CONFIGURED, .terms = &r->terms};
    const struct codec *c = r->opt.codec;
    uint32_t block = exchange_block(r->opt.exchange, c->block);
    uint64_t blocks = r->opt.segment_bytes / c->bytes(block);

    blocks = blocks > 0 ? blocks : 1;
    r->terms = (struct run_terms){
        .n_params = r->opt.elements,
        .block = block,
        .segment_elements = (uint32_t)blocks * block,
        .exchange = r->opt.exchange,
        .period = 1,
        .min_peers = r->opt.n,
        .grace_ms = BENCH_MEET_S * 1000,
        .fork_after_ms = BENCH_MEET_S * 1000,
        .progress_floor_bytes_per_s = 1024,
    };
    r->terms.chunk_segments = RING_CHUNK_SEGMENTS;
    r->terms.segment_wire_bytes = (uint32_t)c->bytes(r->terms.segment_elements);
    post(r, &e);
}

/* Whether all ranks of this machine are between two rounds. */
static bool all_paused(const struct rank *r)
{
    for (uint32_t k = 0; r->opt.board != NULL && k < r->opt.n; k++) {
        if (atomic_load(&r->opt.board[k].paused) < r->round) {
            return false;
        }
    }
    return true;
}

/* The contribution is there. */
static void start_round(uv_timer_t *timer)
{
    struct rank *r = timer->data;
    struct local_event e = {.type = LOCAL_TRAINED, .tokens = 1};
    struct shell_stats net;

    if (!all_paused(r)) {
        (void)uv_timer_start(timer, start_round, 1, 0);
        return;
    }
    e.inner_step = r->round;
    shell_stats(r->shell, &net);
    r->now = (struct bench_sample){.bytes_sent = net.bytes_sent};
    r->now.cpu_ns = cpu_ns();
    r->now.start_ns = uv_hrtime();
    post(r, &e);
}

/* Training is a short pause: nobody contributes while another rank has not
 * finished the round before. */
static void train(struct rank *r)
{
    r->round++;
    if (r->opt.board != NULL) {
        atomic_store(&r->opt.board[r->opt.rank].paused, r->round);
    }
    (void)uv_timer_start(&r->pause, start_round, PAUSE_MS, 0);
}

static void hash_run(struct worker_job *job)
{
    struct rank *r = job->data;

    if (!r->leaves.on) { /* not asked for, or not of this attempt */
        hash_tree(r->wire, r->wire_bytes, &r->hashed.hash);
        return;
    }
    for (uint64_t p = 0; p < r->leaves.n; p++) {
        leaves_make(&r->leaves, p, r->wire); /* those that were not ready */
    }
    hash_tree_root(r->leaves.leaf, (size_t)r->leaves.n, &r->hashed.hash);
}

static void hash_done(struct worker_job *job, int status)
{
    struct rank *r = job->data;

    r->hashing = false;
    if (status == 0) {
        post(r, &r->hashed);
    }
}

static void hash(struct rank *r, const struct action *a)
{
    r->hashed = (struct local_event){
        .type = LOCAL_HASHED,
        .buffer = a->buffer,
        .index = a->index,
        .request = a->request,
    };
    if (a->buffer != BUFFER_RING || a->encode || r->hashing ||
        a->request != r->attempt) {
        r->hashed.rc = LOCO_ENOENT;
        post(r, &r->hashed);
        return;
    }
    r->hashing = true;
    r->hash_job.data = r;
    (void)worker_submit(&r->workers, &r->hash_job, hash_run, hash_done);
}

static void apply(struct rank *r, const struct action *a)
{
    struct local_event e = {.type = LOCAL_APPLIED, .round = a->round};
    struct shell_stats net;

    if (a->rebase || a->buffer != BUFFER_RING || a->round != r->round ||
        r->now.reduced_ns == 0) {
        bench_give_up(
            r, LOCO_ETIMEOUT,
            "round %llu was committed without rank %u: the machine is too "
            "busy, or the network too slow",
            (unsigned long long)a->round, r->opt.rank);
        return;
    }
    r->now.committed_ns = uv_hrtime();
    shell_stats(r->shell, &net);
    r->now.bytes_sent = net.bytes_sent - r->now.bytes_sent;
    if (a->round > r->opt.warmup) {
        r->figures->sample[a->round - r->opt.warmup - 1] = r->now;
    }
    bench_vectors_check(
        r, a->round == r->opt.warmup + r->opt.rounds ? 1 : CHECK_STRIDE);
    /* Any hash does that all ranks have in common. */
    e.params_hash = e.momentum_hash = r->hashed.hash;
    post(r, &e);
}

/* What the attempt before had finished stays. */
static void inherit(struct rank *r, const struct action *a)
{
    struct local_event e = {
        .type = LOCAL_INHERITED, .rc = LOCO_ENOENT, .request = a->request};

    if (r->hashing || a->attempt != r->attempt) {
        post(r, &e);
        return;
    }
    r->attempt = a->request;
    r->decoded = a->segment.offset;
    r->leaves.on = false;
    reduced(r);
}

static void
log_line(const struct rank *r, const struct action *a, const struct out *out)
{
    if (r->opt.verbose) {
        (void)fprintf(stderr, "rank %u: %.*s\n", r->opt.rank, (int)a->len,
                      (const char *)out->bytes + a->bytes);
    }
}

static void on_local(void *self, const struct action *a, const struct out *out)
{
    struct rank *r = self;
    struct local_event e = {.type = LOCAL_LOADED, .round = a->round};

    switch (a->type) {
    case ACTION_CONFIGURE:
        configure(r);
        return;
    case ACTION_LOAD:
        if (!a->from_seed) {
            e.rc = LOCO_ENOENT;
        }
        post(r, &e);
        return;
    case ACTION_TRAIN:
        uv_timer_stop(&r->meet);
        train(r);
        return;
    case ACTION_HASH:
        hash(r, a);
        return;
    case ACTION_APPLY:
        apply(r, a);
        return;
    case ACTION_LOG:
        log_line(r, a, out);
        return;
    case ACTION_STOP:
        uv_stop(&r->loop);
        return;
    case ACTION_INHERIT:
        inherit(r, a);
        return;
    default:
        return; /* nothing to evaluate, keep or write here */
    }
}

struct shell_calls bench_calls(struct rank *r)
{
    return (struct shell_calls){
        .self = r,
        .wire_len = on_wire_len,
        .fill = on_fill,
        .lend = on_lend,
        .place = on_place,
        .take = on_take,
        .sum = on_sum,
        .save = on_save,
        .local = on_local,
    };
}
