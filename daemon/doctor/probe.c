/* probe.c - see doctor/probe.h: the threads, and what asks a daemon. */
#include "daemon/doctor/probe.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include <jansson.h>

#include "daemon/jobs/run_needs.h"
#include "daemon/visit/http.h"
#include "p2p/uv/addr.h"
#include "proto/base/clock.h"
#include "proto/base/err.h"

#define TRANSFER_BYTES (8U << 20)
#define TRANSFER_MS    3000U

/* ---- threads ---------------------------------------------------------- */

/* Shared by the threads and whoever waits; stays where one is late. */
struct board {
    pthread_mutex_t mutex;
    pthread_cond_t done;
    unsigned n_open;
    bool closed; /* nobody waits any more: results are dropped */
};

struct probe {
    struct board *board;
    const struct doctor_options *opt;
    void (*run)(const struct doctor_options *opt, void *fact);
    size_t size;
    void *work, *to; /* the thread's own fact, and where it belongs */
};

/* Every fact begins with its state. */
static void set_state(void *fact, enum fact_state state)
{
    memcpy(fact, &state, sizeof state);
}

static void *probe_thread(void *data)
{
    struct probe *p = data;

    p->run(p->opt, p->work);
    set_state(p->work, FACT_FOUND);
    (void)pthread_mutex_lock(&p->board->mutex);
    if (!p->board->closed) {
        memcpy(p->to, p->work, p->size);
        p->board->n_open--;
        (void)pthread_cond_signal(&p->board->done);
    }
    (void)pthread_mutex_unlock(&p->board->mutex);
    free(p->work);
    free(p);
    return NULL;
}

static void start(struct board *board,
                  const struct doctor_options *opt,
                  void (*run)(const struct doctor_options *, void *),
                  void *fact,
                  size_t size)
{
    struct probe *p = calloc(1, sizeof *p);
    pthread_t thread;

    set_state(fact, FACT_LATE);
    if (p == NULL || (p->work = malloc(size)) == NULL) {
        free(p);
        return;
    }
    *p = (struct probe){board, opt, run, size, p->work, fact};
    memcpy(p->work, fact, size);
    (void)pthread_mutex_lock(&board->mutex);
    board->n_open++;
    (void)pthread_mutex_unlock(&board->mutex);
    if (pthread_create(&thread, NULL, probe_thread, p) != 0) {
        (void)pthread_mutex_lock(&board->mutex);
        board->n_open--;
        (void)pthread_mutex_unlock(&board->mutex);
        free(p->work);
        free(p);
        return;
    }
    (void)pthread_detach(thread);
}

/* True when every thread is done with the board, which is then freed. */
static bool wait_for_all(struct board *board, uint64_t until_ms)
{
    const struct timespec until = {(time_t)(until_ms / 1000),
                                   (long)(until_ms % 1000) * 1000000L};
    bool all;
    int rv = 0;

    (void)pthread_mutex_lock(&board->mutex);
    while (board->n_open > 0 && rv == 0) {
        rv = pthread_cond_timedwait(&board->done, &board->mutex, &until);
    }
    board->closed = true;
    all = board->n_open == 0;
    (void)pthread_mutex_unlock(&board->mutex);
    if (all) {
        free(board);
    }
    return all;
}

static struct board *board_new(void)
{
    struct board *b = calloc(1, sizeof *b);
    pthread_condattr_t attr;

    if (b != NULL) {
        (void)pthread_mutex_init(&b->mutex, NULL);
        (void)pthread_condattr_init(&attr);
        (void)pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
        (void)pthread_cond_init(&b->done, &attr);
        (void)pthread_condattr_destroy(&attr);
    }
    return b;
}

/* ---- the daemon, and its port ------------------------------------------ */

static void copy_text(char *to, size_t size, const json_t *o, const char *key)
{
    const char *text = json_string_value(json_object_get(o, key));

    (void)snprintf(to, size, "%s", text == NULL ? "" : text);
}

/* The fastest edges of the daemon's bandwidth map. */
static void take_rates(struct fact_daemon *d, const json_t *o)
{
    const json_t *list = json_object_get(o, "bandwidth");

    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *e = json_array_get(list, i);
        const char *to = json_string_value(json_object_get(e, "to"));
        uint64_t rate =
            (uint64_t)json_integer_value(json_object_get(e, "bytes_per_s"));
        uint64_t *best = to != NULL && strcmp(to, d->peer_id) == 0
                             ? &d->best_in_bytes_per_s
                             : &d->best_out_bytes_per_s;

        *best = rate > *best ? rate : *best;
    }
}

/* Sum of an object's numbers; *most: the name of the largest. */
static uint64_t sum_of(const json_t *counts, const char **most)
{
    uint64_t n = 0, largest = 0;
    const char *key;
    json_t *value;

    json_object_foreach((json_t *)(uintptr_t)counts, key, value)
    {
        uint64_t v = (uint64_t)json_integer_value(value);

        n += v;
        *most = v > largest ? key : *most;
        largest = v > largest ? v : largest;
    }
    return n;
}

static void take_strangers(struct fact_daemon *d, const json_t *status)
{
    const json_t *o = json_object_get(status, "strangers");
    const json_t *groups = json_object_get(o, "groups");
    const char *why = "";

    d->strangers = (uint32_t)json_integer_value(json_object_get(o, "links"));
    d->overdrawn =
        (uint32_t)json_integer_value(json_object_get(o, "overdrawn"));
    d->n_refused = sum_of(json_object_get(o, "refused"), &why);
    for (size_t i = 0; i < json_array_size(groups); i++) {
        const json_t *g = json_array_get(groups, i);
        uint64_t n = sum_of(json_object_get(g, "refused"), &why);

        if (n > d->n_network_refused) {
            d->n_network_refused = n;
            copy_text(d->network, sizeof d->network, g, "network");
            (void)snprintf(d->why, sizeof d->why, "%s", why);
        }
    }
}

static void probe_daemon(const struct doctor_options *opt, void *fact)
{
    struct fact_daemon *d = fact;
    struct http_daemon at = {0};
    char errmsg[HTTP_ERRMSG_MAX];
    char *body = NULL;
    json_t *o;

    if (opt->control != NULL) {
        (void)snprintf(at.address, sizeof at.address, "%s", opt->control);
        http_token_of_environment(&at);
    } else if (http_of_state(opt->state, &at, errmsg) != 0) {
        return; /* none runs */
    }
    (void)snprintf(d->where, sizeof d->where, "%s", at.address);
    if (http_get(&at, "/api/v1/status", &body, errmsg) != 0) {
        d->stale = true;
        return;
    }
    o = json_loads(body, 0, NULL);
    free(body);
    copy_text(d->run_state, sizeof d->run_state, o, "state");
    copy_text(d->reason, sizeof d->reason, o, "reason");
    copy_text(d->reachability, sizeof d->reachability, o, "reachability");
    copy_text(d->reachability_reason, sizeof d->reachability_reason, o,
              "reachability_reason");
    copy_text(d->peer_id, sizeof d->peer_id, o, "peer_id");
    copy_text(d->run_id, sizeof d->run_id, o, "run_id");
    d->peers_alive =
        (uint32_t)json_integer_value(json_object_get(o, "peers_alive"));
    copy_text(d->listen, sizeof d->listen, o, "listen");
    take_rates(d, o);
    take_strangers(d, o);
    json_decref(o);
}

/* A stranger's handshake with the daemon's own port must show its id. */
static void visit_self(const struct doctor_options *opt,
                       const struct fact_daemon *d,
                       const struct uri_host *listen,
                       struct fact_port *p)
{
    struct contact_options co = {.host = *listen,
                                 .limit_ms = opt->limit_ms / 2};
    struct peer_id self;
    struct contact c;

    if (hex_decode(d->run_id, co.run_id.b, sizeof co.run_id.b) != 0 ||
        hex_decode(d->peer_id, self.b, sizeof self.b) != 0) {
        return;
    }
    if (strcmp(co.host.host, "0.0.0.0") == 0) {
        memcpy(co.host.host, "127.0.0.1", sizeof "127.0.0.1");
    } else if (strcmp(co.host.host, "::") == 0) {
        memcpy(co.host.host, "::1", sizeof "::1");
    }
    contact_visit(&co, &c);
    free(c.manifest);
    p->ours = c.step >= CONTACT_HELLO && id_eq(&c.peer, &self);
}

/* 0 or the errno of listening there; nothing stays bound. */
static int try_listen(const struct uri_host *h)
{
    struct sockaddr_storage sa;
    struct address address;
    socklen_t len;
    int fd, rv = 0, on = 1;

    if (address_parse(h->host, h->port, &address) != 0) {
        return EADDRNOTAVAIL;
    }
    len = address_to_sockaddr(&address, &sa);
    fd = socket(sa.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0) {
        return errno;
    }
    /* A port in TIME_WAIT is free, one that is listened on is not. */
    (void)setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (bind(fd, (const struct sockaddr *)&sa, len) != 0 ||
        listen(fd, 1) != 0) {
        rv = errno;
    }
    (void)close(fd);
    return rv;
}

/* After probe_daemon: is the port free, or held by the daemon that answered? */
static void probe_port(const struct doctor_options *opt,
                       const struct fact_daemon *daemon,
                       struct fact_port *p)
{
    char errmsg[LOCO_ERRMSG_MAX];
    struct uri_host h;

    bool runs = daemon->state == FACT_FOUND;
    const char *listen = runs ? daemon->listen : opt->listen;

    p->state = FACT_NONE;
    if (listen == NULL || uri_host_parse(listen, true, &h, errmsg) != 0) {
        return;
    }
    p->state = FACT_FOUND;
    (void)snprintf(p->listen, sizeof p->listen, "%s", listen);
    p->port = h.port;
    if (runs) {
        visit_self(opt, daemon, &h, p);
    } else {
        p->rc = try_listen(&h);
    }
}

/* ---- the bootstraps --------------------------------------------------- */

static void probe_host(const struct doctor_options *opt, void *fact)
{
    struct fact_host *h = fact;
    struct contact_options co = {
        .host = h->host,
        .run_id = opt->uri->run,
        .limit_ms = h->limit_ms,
        .transfer_bytes = h->wants_transfer ? TRANSFER_BYTES : 0,
        .transfer_ms = TRANSFER_MS,
        .manifest_only = opt->question,
    };

    if (opt->uri->has_peer) {
        co.pin = opt->uri->peer;
    }
    contact_visit(&co, &h->contact);
}

static void start_hosts(struct board *board,
                        const struct doctor_options *opt,
                        struct doctor_facts *f)
{
    uint32_t limit_ms = opt->hosts_ms != 0 ? opt->hosts_ms : opt->limit_ms;
    struct address numeric;

    if (opt->uri == NULL) {
        return;
    }
    f->run_id = opt->uri->run;
    f->n_hosts = opt->uri->n_hosts;
    for (uint32_t i = 0; i < f->n_hosts; i++) {
        struct fact_host *h = &f->host[i];

        h->host = opt->uri->hosts[i];
        h->is_name = address_parse(h->host.host, 0, &numeric) != 0;
        h->pinned = opt->uri->has_peer;
        h->wants_transfer = opt->bandwidth;
        /* It must be able to say where it hung. */
        h->limit_ms = limit_ms - limit_ms / 8;
        start(board, opt, probe_host, h, sizeof *h);
    }
}

/* ---- all -------------------------------------------------------------- */

static int64_t wall_minus_monotonic_ms(void)
{
    return wall_ms() - (int64_t)monotonic_ms();
}

void doctor_take_needs(const struct run_host *host, struct doctor_facts *f)
{
    f->memory.need_bytes = f->manifest.memory_bytes;
    f->memory.least_bytes = f->manifest.memory_least_bytes;
    f->disk.need_bytes = f->manifest.disk_bytes;
    f->driver.need = f->manifest.gpu;
    for (uint32_t i = 0; i < f->n_hosts && f->memory.need_bytes == 0; i++) {
        const struct contact *c = &f->host[i].contact;

        if (f->host[i].state == FACT_FOUND && c->manifest != NULL &&
            hash32_eq(&c->manifest_run, &f->run_id)) {
            struct run_needs needs = run_needs_stated(c->manifest, host);

            f->memory.need_bytes = needs.memory_bytes;
            f->memory.least_bytes = needs.memory_least_bytes;
            f->disk.need_bytes = needs.disk_bytes;
            f->driver.need = needs.gpu;
        }
    }
}

bool doctor_find(const struct doctor_options *opt, struct doctor_facts *f)
{
    bool all;
    int64_t began_ms = wall_minus_monotonic_ms();
    uint64_t now_ms = monotonic_ms();
    struct board *board = board_new(), *hosts = board_new();

    f->limit_ms = opt->limit_ms;
    if (board == NULL || hosts == NULL) {
        free(board);
        free(hosts);
        return true;
    }
    start_hosts(hosts, opt, f);
    start(board, opt, probe_driver, &f->driver, sizeof f->driver);
    start(board, opt, probe_memory, &f->memory, sizeof f->memory);
    start(board, opt, probe_disk, &f->disk, sizeof f->disk);
    start(board, opt, probe_clock, &f->clock, sizeof f->clock);
    start(board, opt, probe_ip, &f->ip, sizeof f->ip);
    start(board, opt, probe_daemon, &f->daemon, sizeof f->daemon);
    if (!opt->question) {
        start(board, opt, probe_manifest, &f->manifest, sizeof f->manifest);
    }
    all = wait_for_all(
        hosts, now_ms + (opt->hosts_ms != 0 ? opt->hosts_ms : opt->limit_ms));
    all = wait_for_all(board, now_ms + opt->limit_ms) && all;
    if (f->daemon.state == FACT_FOUND && f->daemon.run_state[0] == '\0') {
        f->daemon.state = FACT_NONE; /* none runs, or it is stale */
    }
    if (f->manifest.state == FACT_FOUND && f->manifest.source[0] == '\0') {
        f->manifest.state = FACT_NONE;
    }
    if (!opt->question) {
        probe_port(opt, &f->daemon, &f->port);
    }
    f->clock.stepped_ms = wall_minus_monotonic_ms() - began_ms;
    f->driver.cap_bytes = opt->gpu_cap_bytes;
    doctor_take_needs(&opt->host, f);
    return all;
}
