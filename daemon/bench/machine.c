/* machine.c - see bench/internal.h: a machine without a model.
 *
 * TRAIN is a pause, the contribution is always the same; HASH runs on a worker
 * as in the daemon; APPLY only notes the time and looks at the result.
 */
#include <stdio.h>

#include "daemon/bench/internal.h"
#include "p2p/exchange/exchange.h"
#include "proto/base/err.h"

#define PAUSE_MS     20
#define CHECK_STRIDE 4099 /* every so many elements are checked each round */

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

static void answer(struct rank *r, const struct job *job, int rc)
{
    struct local_event e = job_answer(job, rc);

    post(r, &e);
}

static void configure(struct rank *r, const struct job *job)
{
    struct local_event e = job_answer(job, 0);
    const struct codec *c = r->opt.codec;
    uint32_t block = exchange_block(r->opt.exchange, c->block);
    uint64_t blocks = r->opt.segment_bytes / c->bytes(block);

    blocks = blocks > 0 ? blocks : 1;
    r->terms = (struct run_terms){
        .n_params = r->opt.elements,
        .block = block,
        .segment_elements = (uint32_t)blocks * block,
        .exchange = r->opt.exchange,
        .adapts = r->opt.adapts,
        .period = 1,
        .min_peers = r->opt.n,
        .grace_ms = BENCH_MEET_S * 1000,
        .fork_after_ms = BENCH_MEET_S * 1000,
        .progress_floor_bytes_per_s = 1024,
    };
    r->terms.chunk_segments = RING_CHUNK_SEGMENTS;
    r->terms.segment_wire_bytes = (uint32_t)c->bytes(r->terms.segment_elements);
    r->reduce.codec = c;
    r->reduce.segment_elements = r->terms.segment_elements;
    e.configured.terms = &r->terms;
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
    struct local_event e = {.type = LOCAL_TRAINED, .trained.tokens = 1};
    struct shell_stats net;

    if (!all_paused(r)) {
        (void)uv_timer_start(timer, start_round, 1, 0);
        return;
    }
    e.trained.inner_step = r->round;
    shell_stats(r->shell, &net);
    r->now = (struct bench_sample){.bytes_sent = net.bytes_sent};
    r->now.cpu_ns = bench_cpu_ns();
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

    r->answer.rc = bench_wire_hash(r, &r->answer.hashed.hash);
}

static void hash_done(struct worker_job *job, int status)
{
    struct rank *r = job->data;

    r->hashing = false;
    if (status == 0) {
        post(r, &r->answer);
    }
}

static void hash(struct rank *r, const struct job *job)
{
    if (job->hash.buffer != BUFFER_RING || job->hash.encode || r->hashing ||
        job->hash.request != r->attempt) {
        answer(r, job, LOCO_ENOENT);
        return;
    }
    r->answer = job_answer(job, 0);
    r->hashing = true;
    r->hash_job.data = r;
    (void)worker_submit(&r->workers, &r->hash_job, hash_run, hash_done);
}

static void apply(struct rank *r, const struct job *job)
{
    struct local_event e = job_answer(job, 0);
    uint64_t round = job->apply.round;
    struct shell_stats net;

    if (job->apply.rebase || job->apply.buffer != BUFFER_RING ||
        round != r->round || r->now.reduced_ns == 0) {
        bench_give_up(
            r, LOCO_ETIMEOUT,
            "round %llu was committed without rank %u: the machine is too "
            "busy, or the network too slow",
            (unsigned long long)round, r->opt.rank);
        return;
    }
    r->now.committed_ns = uv_hrtime();
    shell_stats(r->shell, &net);
    r->now.bytes_sent = net.bytes_sent - r->now.bytes_sent;
    if (round > r->opt.warmup) {
        r->figures->sample[round - r->opt.warmup - 1] = r->now;
    }
    bench_vectors_check(
        r, round == r->opt.warmup + r->opt.rounds ? 1 : CHECK_STRIDE);
    /* Any hash does that all ranks have in common. */
    e.applied.params_hash = e.applied.momentum_hash = r->answer.hashed.hash;
    post(r, &e);
}

/* What the attempt before had finished stays. */
static void inherit(struct rank *r, const struct job *job)
{
    if (r->hashing || job->inherit.from != r->attempt) {
        answer(r, job, LOCO_ENOENT);
        return;
    }
    r->attempt = job->inherit.to;
    r->decoded = job->inherit.elements;
    r->leaves.on = false;
    bench_wire_reduced(r);
}

static void log_line(const struct rank *r,
                     const struct out_span *text,
                     const struct out *out)
{
    if (r->opt.verbose) {
        (void)fprintf(stderr, "rank %u: %.*s\n", r->opt.rank, (int)text->len,
                      (const char *)out->bytes + text->at);
    }
}

static void on_local(void *self, const struct job *job, const struct out *out)
{
    struct rank *r = self;

    switch (job->type) {
    case JOB_CONFIGURE:
        configure(r, job);
        return;
    case JOB_LOAD:
        answer(r, job, job->load.from_seed ? 0 : LOCO_ENOENT);
        return;
    case JOB_TRAIN:
        uv_timer_stop(&r->meet);
        train(r);
        return;
    case JOB_HASH:
        hash(r, job);
        return;
    case JOB_APPLY:
        apply(r, job);
        return;
    case JOB_LOG:
        log_line(r, &job->log.text, out);
        return;
    case JOB_STOP:
        uv_stop(&r->loop);
        return;
    case JOB_INHERIT:
        inherit(r, job);
        return;
    default:
        return; /* nothing to evaluate, keep or write here */
    }
}

struct shell_calls bench_calls(struct rank *r)
{
    struct shell_calls calls = {
        .self = r,
        .save = on_save,
        .local = on_local,
    };

    bench_wire_calls(&calls);
    return calls;
}
