/* rig_jobs.h - jobs that tests of a machine (rig.h) give it often, and the
 * segments of a round. */
#ifndef LOCO_TESTS_UNIT_DAEMON_RIG_JOBS_H
#define LOCO_TESTS_UNIT_DAEMON_RIG_JOBS_H

#include "daemon/jobs/segments.h"
#include "tests/unit/daemon/rig.h"

/* Round 0: the machine's trainer is open afterwards. */
static inline void load_seed(struct rig *g)
{
    struct job job = {.type = JOB_LOAD, .load.from_seed = true};

    assert_int_equal(ask(g, &job, LOCAL_LOADED)->rc, 0);
}

/* The elements of a state, for free(). */
static inline float *make_state(uint64_t n, uint32_t seed)
{
    float *x = malloc(n * sizeof *x);

    assert_non_null(x);
    for (uint64_t i = 0; i < n; i++) {
        x[i] = (float)(i * 7 + seed);
    }
    return x;
}

/* A state of that round comes from others and is put in place; 0 < share: it is
 * mixed with the one that is there. The name of what is there then. The node
 * knows of no such round, so that no checkpoint is written. */
static inline uint64_t
load_state(struct rig *g, uint64_t round, uint32_t seed, double share)
{
    struct job load = {.type = JOB_LOAD,
                       .load = {.round = round, .share = share}};
    struct job save = {.type = JOB_CHECKPOINT, .checkpoint.round = round};
    struct segment s = {.buffer = BUFFER_STATE,
                        .index = round,
                        .len = (uint32_t)g->terms.state_bytes};
    float *x = make_state(s.len / sizeof *x, seed);
    const struct local_event *e;
    struct hash32 hash;

    assert_int_equal(
        g->calls.take(g->calls.self, &s, (const uint8_t *)x, s.len), 0);
    free(x);
    e = ask(g, &load, LOCAL_LOADED);
    assert_int_equal(e->rc, 0);
    assert_true(e->loaded.round == round);
    hash = node_state_hash(&e->loaded.params_hash, &e->loaded.momentum_hash);
    give(g, &save); /* as a node does then */
    return hash32_u64(&hash);
}

static inline void train(struct rig *g, uint64_t round)
{
    struct job job = {.type = JOB_TRAIN,
                      .train = {.round = round, .steps = 1, .members = 1}};

    assert_int_equal(ask(g, &job, LOCAL_TRAINED)->rc, 0);
}

static inline void hash_ring(struct rig *g, uint64_t attempt)
{
    struct job job = {.type = JOB_HASH,
                      .hash = {.buffer = BUFFER_RING, .request = attempt}};

    give(g, &job);
}

/* The same to its end, as a node waits for it before it votes: an answer that
 * comes late would be taken for that of another HASH. */
static inline void hash_whole_ring(struct rig *g, uint64_t attempt)
{
    struct job job = {.type = JOB_HASH,
                      .hash = {.buffer = BUFFER_RING, .request = attempt}};

    assert_int_equal(ask(g, &job, LOCAL_HASHED)->rc, 0);
}

static inline void inherit(struct rig *g, uint64_t from, uint64_t to)
{
    struct job job = {.type = JOB_INHERIT, .inherit = {.from = from, .to = to}};

    give(g, &job);
}

/* The piece of that attempt's vector that begins there. */
static inline struct segment
ring_piece(const struct rig *g, uint64_t attempt, uint64_t at)
{
    uint64_t left = terms_elements(&g->terms, attempt_round(attempt)) - at;

    return (struct segment){.attempt = attempt,
                            .offset = at,
                            .len = left < 1 << 16 ? (uint32_t)left : 1U << 16};
}

/* A segment as a shell receives it; final: its bytes do not change any more. */
static inline void receive_piece(
    struct rig *g, uint64_t attempt, uint64_t at, uint8_t with, bool final)
{
    struct segment s = ring_piece(g, attempt, at);
    size_t len = g->calls.wire_len(g->calls.self, &s);
    uint8_t *to = g->calls.place(g->calls.self, &s);

    s.final = final;
    assert_non_null(to);
    memset(to, with, len);
    assert_int_equal(g->calls.take(g->calls.self, &s, to, len), 0);
}

/* The whole vector of an attempt. */
static inline void receive(struct rig *g, uint64_t attempt, uint8_t with)
{
    uint64_t n = terms_elements(&g->terms, attempt_round(attempt));

    for (uint64_t at = 0; at < n; at += 1 << 16) {
        receive_piece(g, attempt, at, with, false);
    }
}

#endif
