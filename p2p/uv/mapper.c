/* mapper.c - see mapper.h. One job at a time: mapping_next() -> worker runs
 * portmap_ask() -> mapping_answer() -> the timer is set to the next one. */
#include "p2p/uv/mapper.h"

#include <stdlib.h>
#include <string.h>

#include <sodium.h>

#include "p2p/swarm/mapping.h"
#include "p2p/uv/loop.h"
#include "p2p/uv/portmap.h"
#include "p2p/uv/worker.h"
#include "proto/base/err.h"
#include "proto/base/log.h"

struct mapper {
    struct mapping core;
    struct worker_pool pool;
    struct worker_job job;
    struct portmap ask;   /* the worker's while the job runs */
    enum portmap_way way; /* of what is held */
    uint8_t nonce[PCP_NONCE_BYTES];
    int rc;
    uv_timer_t timer;
    mapper_cb cb;
    void *data;
    bool closing;
    mapper_close_cb done;
    void *done_data;
};

static void go_on(struct mapper *m);

static void run(struct worker_job *job)
{
    struct mapper *m = job->data;

    m->rc = portmap_ask(&m->ask);
}

static void say(const struct mapper *m)
{
    char at[ADDRESS_TEXT_MAX];

    if (m->core.held) {
        address_text(&m->core.at, at);
        log_info("net", "the router maps %s to us (%s)", at,
                 portmap_way_name(m->way));
    } else {
        log_info("net", "no router maps a port to us: %s",
                 m->rc == LOCO_ENOENT ? "none answers" : "it refuses");
    }
}

static void on_done(struct worker_job *job, int status)
{
    struct mapper *m = job->data;
    bool first = m->core.failures == 0 && !m->core.held, changed;

    changed = mapping_answer(&m->core, status != 0 ? status : m->rc, &m->ask.at,
                             m->ask.lease_s, shell_now_ms());
    m->way = m->core.held ? m->ask.way : PORTMAP_NONE;
    if (!m->closing && (changed || first)) {
        say(m);
    }
    if (changed && !m->closing) {
        m->cb(m->data, m->core.held ? 0 : m->rc, &m->core.at);
    }
    go_on(m);
}

static void on_timer(uv_timer_t *timer)
{
    go_on(timer->data);
}

static void on_timer_closed(uv_handle_t *handle)
{
    struct mapper *m = handle->data;
    mapper_close_cb done = m->done;
    void *data = m->done_data;

    free(m);
    done(data);
}

static void on_pool_closed(struct worker_pool *pool)
{
    struct mapper *m = pool->data;

    uv_close((uv_handle_t *)&m->timer, on_timer_closed);
}

static void go_on(struct mapper *m)
{
    uint64_t now_ms = shell_now_ms(), due;
    enum mapping_do what = mapping_next(&m->core, now_ms);

    if (what != MAPPING_NOTHING) {
        m->ask = (struct portmap){
            .inner = m->core.port,
            .outer = m->core.outer,
            .lease_s = what == MAPPING_ASK ? MAPPING_LEASE_S : 0,
            .way = m->way,
        };
        memcpy(m->ask.nonce, m->nonce, sizeof m->nonce);
        m->rc = LOCO_ECANCELED;
        if (worker_submit(&m->pool, &m->job, run, on_done) != 0) {
            (void)mapping_answer(&m->core, LOCO_ECLOSED, &m->ask.at, 0, now_ms);
        }
        return;
    }
    if (m->closing && !m->core.asking) {
        worker_close(&m->pool, on_pool_closed);
        return;
    }
    due = mapping_deadline(&m->core);
    if (due != CORE_NEVER) {
        uv_timer_start(&m->timer, on_timer, due > now_ms ? due - now_ms : 0, 0);
    }
}

int mapper_open(struct mapper **mapper,
                uv_loop_t *loop,
                uint16_t port,
                mapper_cb cb,
                void *data)
{
    struct mapper *m = calloc(1, sizeof *m);
    int rv;

    if (m == NULL) {
        return LOCO_ENOMEM;
    }
    rv = worker_open(&m->pool, loop, 1, 0);
    if (rv != 0) {
        free(m);
        return rv;
    }
    mapping_init(&m->core, port, shell_now_ms());
    randombytes_buf(m->nonce, sizeof m->nonce);
    uv_timer_init(loop, &m->timer); /* Cannot fail. */
    m->timer.data = m->pool.data = m->job.data = m;
    m->cb = cb;
    m->data = data;
    *mapper = m;
    go_on(m);
    return 0;
}

void mapper_close(struct mapper *m, mapper_close_cb done, void *data)
{
    m->closing = true;
    m->done = done;
    m->done_data = data;
    uv_timer_stop(&m->timer);
    mapping_close(&m->core);
    go_on(m);
}
