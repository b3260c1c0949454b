/* past.h - a round of the past for a struct pipeline, by messages and time, for
 * pipeline_test.c and stage_test.c: afterwards it knows what a micro-batch
 * takes it. Everything is static in this header. */
#ifndef LOCO_TESTS_UNIT_P2P_PAST_H
#define LOCO_TESTS_UNIT_P2P_PAST_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "p2p/pipeline/pipeline.h"

/* The k-th micro-batch of this step comes and goes through this host. All of it
 * happens at `now_ms`, as does a forward pass that is under way behind it; the
 * backward pass takes `ms` from then on. */
static inline void past_work(struct pipeline *p,
                             uint32_t k,
                             uint64_t now_ms,
                             uint64_t ms,
                             struct pipeline_out *out)
{
    const struct pipeline_micro *m = &p->micro[k];
    uint64_t tag = pipeline_tag(p->attempt, p->step), end_ms = now_ms + ms;
    uint32_t stage = p->host[p->self].stage, micro = m->number;

    assert_int_equal(p->state, PIPELINE_RUN);
    if (stage > 0) {
        pipeline_done(p, PIPELINE_TAKE, tag, micro, now_ms, out);
    }
    if (stage + 1 == p->opt.stages) {
        pipeline_done(p, PIPELINE_SCORE, tag, micro, end_ms, out);
    } else {
        pipeline_done(p, PIPELINE_FORWARD, tag, micro, now_ms, out);
        pipeline_on_take(p, &p->host[m->to].id, p->round, p->step, p->attempt,
                         micro, now_ms, out);
        pipeline_done(p, PIPELINE_GIVE, tag, micro, now_ms, out);
        pipeline_done(p, PIPELINE_TAKE_BACK, tag, micro, now_ms, out);
        for (uint32_t i = 0; i < p->n_micro && m->state == MICRO_BACK; i++) {
            pipeline_done(p, PIPELINE_FORWARD, tag, p->micro[i].number, now_ms,
                          out);
        }
        assert_int_equal(m->state, MICRO_BACKWARD);
        pipeline_done(p, PIPELINE_BACKWARD, tag, micro, end_ms, out);
    }
    if (stage > 0) {
        pipeline_done(p, PIPELINE_GIVE_BACK, tag, micro, end_ms, out);
    }
}

/* A round with those hosts, from `now_ms` on, in which this one has one
 * micro-batch that takes `ms`; 0: none. Returns what the host said before, from
 * the rounds before this one, that a micro-batch takes (us). */
static inline uint32_t past_round(struct pipeline *p,
                                  uint64_t round,
                                  const struct pipeline_host *hosts,
                                  uint32_t n,
                                  uint64_t now_ms,
                                  uint64_t ms)
{
    static struct pipeline_out out;
    struct pipeline_hello own, h;
    const struct pipeline_action *say;

    out.n = 0;
    assert_int_equal(pipeline_begin(p, round, hosts, n, now_ms, &out), 0);
    say = &out.action[out.n - 1];
    assert_int_equal(say->type, PIPELINE_SAY_HELLO);
    pipeline_hello_of(p, say, &own);
    h = own;
    h.cost_us = 0;
    for (uint32_t k = 0; k < n; k++) {
        pipeline_on_hello(p, &hosts[k].id, &h, now_ms, &out);
    }
    if (ms > 0) {
        past_work(p, 0, now_ms, ms, &out);
    }
    return own.cost_us;
}

#endif
