/* rank.c - see bench/rank.h.
 *
 * Happy path: memory -> shell, node -> (loop) CONFIGURE, LOAD, then per round
 * TRAIN -> segments -> HASH -> APPLY, after the last one STOP.
 *
 * What can go wrong: no memory; the port is taken; the others never come
 * (BENCH_MEET_S); a round that commits without this rank. Each ends the loop
 * with a sentence.
 */
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "daemon/bench/internal.h"
#include "p2p/uv/addr.h"
#include "proto/base/err.h"
#include "proto/base/log.h"
#include "proto/messages.h"

/* A benchmark shares its machine with others: nobody is lost because it had to
 * wait for a processor. */
static const struct node_timing timing_patient = {
    .suspect_ms = 20000,
    .dead_ms = 40000,
    .redial_ms = 10000,
    .plan_ms = 30000,
    .vote_ms = 60000,
    .hop_ms = 30000,
};

void bench_give_up(struct rank *r, int rc, const char *fmt, ...)
{
    va_list args;

    if (r->rc == 0) {
        r->rc = rc;
        va_start(args, fmt);
        (void)vsnprintf(r->figures->error, BENCH_ERROR_MAX, fmt, args);
        va_end(args);
    }
    uv_stop(&r->loop);
}

/* ---- life ------------------------------------------------------------- */

static void on_meet(uv_timer_t *timer)
{
    struct rank *r = timer->data;

    bench_give_up(
        r, LOCO_ETIMEOUT,
        "the ranks did not meet within %d s: are all %u of them running, "
        "and can they reach each other?",
        BENCH_MEET_S, r->opt.n);
}

static int open_node(struct rank *r)
{
    static const uint8_t manifest[] = "loco bench allreduce";
    struct node_options o = {
        .self = r->identity.id,
        .signer = r->signer,
        .run_id = r->opt.run_id,
        .dialable = true,
        .manifest = manifest,
        .manifest_len = sizeof manifest,
        .timing = r->opt.fault != BENCH_FAULT_NONE ? (struct node_timing){0}
                                                   : timing_patient,
        .edges = 4 * BENCH_PEERS_MAX * BENCH_PEERS_MAX,
        .rounds = r->opt.warmup + r->opt.rounds,
        .site =
            r->opt.sites > 0 ? 1 + r->opt.rank * r->opt.sites / r->opt.n : 0,
        .seed = r->opt.rank + 1,
    };

    memcpy(o.public_key, r->identity.public, sizeof o.public_key);
    for (uint32_t k = 0; k < r->opt.n && o.n_bootstrap < NODE_BOOTSTRAP_MAX;
         k++) {
        if (k != r->opt.rank && (r->opt.board == NULL || k == 0)) {
            o.bootstrap[o.n_bootstrap++] = r->opt.address[k];
        }
    }
    return node_open(&r->node, &o, shell_now_ms());
}

static int open_shell(struct rank *r)
{
    struct core core = {.step = node_step, .deadline = node_deadline};
    struct shell_options so;
    struct shell_calls calls = bench_calls(r);

    core.self = r->node;
    shell_options_default(&so);
    message_frame_rules(r->rules);
    so.signer = &r->signer;
    so.run_id = r->opt.run_id;
    so.rules = r->rules;
    so.n_rules = MESSAGE_TYPES_MAX;
    so.handshake_ms = BENCH_MEET_S * 1000;
    so.plain_bulk = !r->opt.encrypted;
    so.aes_bulk = so.aes_bulk && !r->opt.no_aes;
    return shell_open(&r->shell, &r->loop, &core, &so, &calls);
}

/* Listen, tell the others where, and wait for rank 0 to do the same. */
static int meet(struct rank *r)
{
    uint16_t port = 0;
    int rv = shell_listen(r->shell, r->opt.host, r->opt.port, &port);

    if (rv != 0) {
        bench_give_up(r, rv, "cannot listen on %s port %u: %s", r->opt.host,
                      r->opt.port,
                      rv > -30000 ? uv_strerror(rv) : loco_strerror(rv));
        return rv;
    }
    node_set_port(r->node, port);
    (void)uv_timer_start(&r->meet, on_meet, BENCH_MEET_S * 1000ULL, 0);
    if (r->opt.board != NULL) {
        atomic_store(&r->opt.board[r->opt.rank].port, port);
    }
    return 0;
}

static void on_closed(void *data)
{
    ((struct rank *)data)->n_open--;
}

static void on_workers_closed(struct worker_pool *pool)
{
    on_closed(pool->data);
}

static int serve(struct rank *r)
{
    struct node_status *s = malloc(sizeof *s);
    int rv = s == NULL ? LOCO_ENOMEM : worker_open(&r->workers, &r->loop, 1, 0);

    if (rv == 0) {
        r->n_open++;
        rv = open_node(r);
    }
    rv = rv == 0 ? open_shell(r) : rv;
    if (rv == 0) {
        r->n_open++;
        rv = meet(r);
    }
    if (rv == 0 && r->rc == 0) {
        (void)uv_run(&r->loop, UV_RUN_DEFAULT);
        node_status(r->node, s);
        r->figures->rounds_aborted = s->rounds_aborted;
    } else {
        bench_give_up(r, rv, "cannot start: %s", loco_strerror(rv));
    }
    free(s);
    return r->rc;
}

static void close_all(struct rank *r)
{
    bool workers = r->n_open > 0;

    if (workers) { /* a job that ends posts to the shell */
        worker_close(&r->workers, on_workers_closed);
        while (r->n_open > (r->shell != NULL)) {
            (void)uv_run(&r->loop, UV_RUN_ONCE);
        }
    }
    if (r->shell != NULL) {
        shell_close(r->shell, on_closed, r);
    }
    uv_close((uv_handle_t *)&r->meet, NULL);
    uv_close((uv_handle_t *)&r->pause, NULL);
    while (r->n_open > 0) {
        (void)uv_run(&r->loop, UV_RUN_ONCE);
    }
    (void)uv_run(&r->loop, UV_RUN_DEFAULT);
    node_close(r->node);
    (void)uv_loop_close(&r->loop);
}

/* With shared ports: wait until rank 0 listens. */
static int find_first(struct rank *r)
{
    if (r->opt.board == NULL || r->opt.rank == 0) {
        return 0;
    }
    for (int i = 0; i < BENCH_MEET_S * 1000; i++) {
        uint32_t port = atomic_load(&r->opt.board[0].port);

        if (port != 0) {
            return address_parse(r->opt.host, (uint16_t)port,
                                 &r->opt.address[0]);
        }
        (void)usleep(1000);
    }
    bench_give_up(r, LOCO_ETIMEOUT, "rank 0 did not start");
    return LOCO_ETIMEOUT;
}

int bench_rank(const struct bench_rank_options *opt,
               struct bench_figures *figures)
{
    struct rank *r = calloc(1, sizeof *r);
    struct rusage usage;
    int rv;

    if (r == NULL) {
        return LOCO_ENOMEM;
    }
    (void)signal(SIGPIPE, SIG_IGN); /* a rank that dies is an error code */
    r->opt = *opt;
    r->figures = figures;
    r->workers.data = r;
    rv = uv_loop_init(&r->loop);
    if (rv != 0) {
        free(r);
        return rv;
    }
    (void)uv_timer_init(&r->loop, &r->meet);
    (void)uv_timer_init(&r->loop, &r->pause);
    r->meet.data = r->pause.data = r;
    log_set_level(opt->verbose ? LOG_DEBUG : LOG_ERROR);
    rv = identity_generate(&r->identity, NULL);
    r->signer = signer_sodium(&r->identity);
    rv = rv == 0 ? bench_vectors_make(r) : rv;
    rv = rv == 0 ? find_first(r) : rv;
    rv = rv == 0 ? serve(r) : rv;
    close_all(r);
    (void)getrusage(RUSAGE_SELF, &usage);
    figures->max_rss_bytes = (uint64_t)usage.ru_maxrss * 1024;
    bench_vectors_free(r);
    identity_wipe(&r->identity);
    free(r);
    return rv;
}
