/* watch.c - see watch/watch.h. */
#include "daemon/watch/watch.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/visit/http_many.h"
#include "daemon/watch/sight.h"
#include "proto/base/clock.h"

#define UNIX_PREFIX "unix:"

struct row {
    struct watched shown;
    const struct watch_name *name;
    uint64_t due_ms;
    bool settled;
};

struct watch {
    struct http_many *http;
    uint64_t period_ms;
    bool public;
    size_t n;
    struct row row[];
};

struct watch *watch_open(const struct watch_name *names,
                         size_t n,
                         uint64_t period_ms,
                         bool public)
{
    struct watch *w = calloc(1, sizeof *w + n * sizeof(struct row));

    if (w == NULL) {
        return NULL;
    }
    w->http = http_many_open(n, WATCH_BODY_MAX);
    if (w->http == NULL) {
        free(w);
        return NULL;
    }
    w->n = n;
    w->period_ms = period_ms;
    w->public = public;
    for (size_t i = 0; i < n; i++) {
        w->row[i].name = &names[i];
        w->row[i].shown.label = names[i].name[0] != '\0' ? names[i].name
                                : names[i].state_dir != NULL
                                    ? names[i].state_dir
                                    : names[i].daemon.address;
        w->row[i].shown.heard_ms = monotonic_ms();
        w->row[i].shown.since_ms = wall_ms();
    }
    return w;
}

/* ---- asking ------------------------------------------------------------- */

static bool is_private(const struct http_daemon *daemon)
{
    return daemon->token[0] != '\0' ||
           strncmp(daemon->address, UNIX_PREFIX, sizeof UNIX_PREFIX - 1) == 0;
}

bool watch_is_private(const struct watch_name *name)
{
    struct http_daemon daemon = name->daemon;
    char errmsg[HTTP_ERRMSG_MAX];

    return (name->state_dir != NULL &&
            http_of_state_to_read(name->state_dir, &daemon, errmsg) != 0) ||
           is_private(&daemon);
}

static void set_answers(struct watched *r, bool answers)
{
    if (r->answers != answers) {
        r->since_ms = wall_ms();
    }
    r->answers = answers;
}

static void failed(struct row *row, const char *why)
{
    struct watched *r = &row->shown;

    (void)sight_text(why, strlen(why), r->trouble, sizeof r->trouble);
    r->trouble_ms = wall_ms();
    set_answers(r, false);
    row->settled = true;
}

/* Whether it failed at once. */
static bool ask(struct watch *w, size_t i)
{
    struct row *row = &w->row[i];
    char errmsg[HTTP_ERRMSG_MAX];
    int rv = 0;

    row->due_ms = monotonic_ms() + w->period_ms;
    if (row->name->state_dir == NULL) {
        row->shown.daemon = row->name->daemon;
    } else {
        rv = http_of_state_to_read(row->name->state_dir, &row->shown.daemon,
                                   errmsg);
    }
    if (rv == 0 && w->public && is_private(&row->shown.daemon)) {
        rv = -1;
        json_decref(row->shown.status);
        row->shown.status = NULL;
        (void)snprintf(errmsg, sizeof errmsg,
                       "it is not for every account of this machine any more: "
                       "start again, with a password");
    }
    if (rv == 0) {
        rv = http_many_ask(w->http, i, &row->shown.daemon, "/api/v1/status");
        (void)snprintf(errmsg, sizeof errmsg, "out of memory");
    }
    if (rv != 0) {
        failed(row, errmsg);
    }
    return rv != 0;
}

static void take(struct watch *w, const struct http_answer *a)
{
    struct row *row = &w->row[a->slot];
    char errmsg[ERRMSG_SIZE] = "it sent an empty answer";
    json_t *sight = NULL;

    if (a->rv != 0) {
        failed(row, a->errmsg);
    } else if (a->body == NULL ||
               sight_read(a->body, a->len, &sight, errmsg) != 0) {
        failed(row, errmsg);
    } else {
        json_decref(row->shown.status);
        row->shown.status = sight;
        row->shown.heard_ms = monotonic_ms();
        set_answers(&row->shown, true);
        row->settled = true;
    }
    /* One that took long is not asked again at once. */
    if (row->due_ms < monotonic_ms() + w->period_ms / 2) {
        row->due_ms = monotonic_ms() + w->period_ms / 2;
    }
}

bool watch_step(struct watch *w, int wait_ms)
{
    uint64_t now = monotonic_ms(), next = now + (uint64_t)wait_ms;
    struct http_answer answer;
    bool changed = false;

    for (size_t i = 0; i < w->n; i++) {
        if (now >= w->row[i].due_ms) {
            changed = ask(w, i) || changed;
        }
        next = w->row[i].due_ms < next ? w->row[i].due_ms : next;
    }
    if (changed) {
        next = now;
    }
    if (http_many_next(w->http, next > now ? (int)(next - now) : 0, &answer) !=
        0) {
        take(w, &answer);
        free(answer.body);
        changed = true;
    }
    return changed;
}

bool watch_settled(const struct watch *w)
{
    for (size_t i = 0; i < w->n; i++) {
        if (!w->row[i].settled) {
            return false;
        }
    }
    return true;
}

size_t watch_n(const struct watch *w)
{
    return w->n;
}

const struct watched *watch_row(const struct watch *w, size_t i)
{
    return &w->row[i].shown;
}

/* ---- as JSON ------------------------------------------------------------ */

/* null where nobody has it. */
static json_t *figure(double v)
{
    return v < 0 ? json_null() : json_real(v);
}

static json_t *totals(const struct watch *w)
{
    const char *first = NULL;
    struct sight_sum s;

    sight_sum_begin(&s);
    for (size_t i = 0; i < w->n; i++) {
        sight_sum_add(&s, w->row[i].shown.status, w->row[i].shown.answers,
                      &first);
    }
    sight_sum_end(&s);
    return json_pack(
        "{s:I, s:I, s:b, s:o, s:o, s:o, s:o, s:o, s:o, s:f, s:f, s:f}",
        "machines", (json_int_t)w->n, "answering", (json_int_t)s.n_answer,
        "one_run", s.one_run, "round", figure(s.one_run ? s.round : -1), "loss",
        figure(s.one_run ? s.loss : -1), "bits_per_byte",
        figure(s.one_run ? s.bits : -1), "peers_alive",
        figure(s.one_run ? s.peers : -1), "progress",
        figure(s.one_run ? s.progress : -1), "eta_s",
        figure(s.one_run ? s.eta_s : -1), "tokens_per_s", s.speed, "bytes_sent",
        s.sent, "bytes_received", s.received);
}

static json_t *machine(const struct row *row)
{
    const struct watched *r = &row->shown;
    bool reached =
        r->daemon.address[0] != '\0' &&
        strncmp(r->daemon.address, UNIX_PREFIX, sizeof UNIX_PREFIX - 1) != 0;
    char label[512], address[HTTP_ADDRESS_MAX];

    return json_pack(
        "{s:s, s:s?, s:b, s:b, s:f, s:s?, s:o, s:O?}", "name",
        sight_text(r->label, strlen(r->label), label, sizeof label), "address",
        reached ? sight_text(r->daemon.address, strlen(r->daemon.address),
                             address, sizeof address)
                : NULL,
        "asked", row->settled, "answers", r->answers, "since_s",
        (double)r->since_ms / 1000, "trouble",
        r->trouble[0] == '\0' ? NULL : r->trouble, "trouble_s",
        r->trouble_ms == 0 ? json_null()
                           : json_real((double)r->trouble_ms / 1000),
        "status", r->status);
}

char *watch_json(const struct watch *w)
{
    json_t *list = json_array(), *o = NULL;
    char *text;

    for (size_t i = 0; list != NULL && i < w->n; i++) {
        json_array_append_new(list, machine(&w->row[i]));
    }
    o = json_pack("{s:o, s:o}", "totals", totals(w), "machines", list);
    text = o == NULL ? NULL : json_dumps(o, JSON_COMPACT);
    json_decref(o);
    return text;
}

void watch_close(struct watch *w)
{
    for (size_t i = 0; i < w->n; i++) {
        json_decref(w->row[i].shown.status);
    }
    http_many_close(w->http);
    free(w);
}
