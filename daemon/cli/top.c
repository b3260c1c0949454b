/* top.c - loco top: watch daemons live, on this machine and on others.
 *
 * Polls the status of every daemon each TOP_PERIOD_MS. On a terminal
 * the view is drawn in place (for one daemon that of cli/top_live.h, for
 * several a row each); elsewhere one line is printed when something
 * changed, at most one in TOP_LINE_MS. It ends with 1 when none of them answers
 * for --patience seconds. With --until-finished it ends with 0 when every
 * daemon reports `finished`, and with 1 when one of them does not answer.
 */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <jansson.h>

#include "daemon/cli/answer.h"
#include "daemon/cli/cli.h"
#include "daemon/cli/machines.h"
#include "daemon/cli/top_live.h"
#include "proto/base/clock.h"
#include "proto/base/err.h"

#define TOP_PERIOD_MS 500
#define TOP_LINE_MS   10000
#define TOP_SILENT_MS 5000 /* then a row says so */
#define BAR_WIDTH     40

struct row {
    struct machine_name *name; /* and where it answered last */
    json_t *status;            /* the last one that arrived, or NULL */
    uint64_t heard_ms;
    bool finished;
};

struct top {
    struct row row[MACHINES_MAX];
    size_t n;
    bool one_run; /* or none is known */
    bool named;   /* show who a row is by where it is asked */
    uint64_t started_ms;
    bool terminal;
    uint64_t line_ms; /* when the last line was printed */
    size_t n_drawn;   /* lines on the terminal */
};

static double number(const json_t *o, const char *key, double otherwise)
{
    const json_t *v = json_object_get(o, key);

    return json_is_number(v) ? json_number_value(v) : otherwise;
}

static void poll_row(struct row *row)
{
    char errmsg[HTTP_ERRMSG_MAX];
    char *body = NULL;
    json_t *status;

    if (machines_find(row->name, errmsg) != 0 ||
        http_get(&row->name->daemon, "/api/v1/status", &body, errmsg) != 0) {
        return;
    }
    status = json_loads(body, 0, NULL);
    free(body);
    if (!json_is_object(status)) {
        json_decref(status);
        return;
    }
    json_decref(row->status);
    row->status = status;
    row->heard_ms = monotonic_ms();
    row->finished = strcmp(answer_text(status, "state"), "finished") == 0;
}

/* ---- what the daemons say together --------------------------------------- */

/* Of several runs only speed and bytes can be added up. */
static bool is_one_run(const struct top *t)
{
    const char *first = NULL;

    for (size_t i = 0; i < t->n; i++) {
        const char *id =
            json_string_value(json_object_get(t->row[i].status, "run_id"));

        if (id != NULL && first != NULL && strcmp(id, first) != 0) {
            return false;
        }
        first = first == NULL ? id : first;
    }
    return true;
}

struct sum {
    double progress, eta_s, loss, bits, round, speed, sent;
    double alive;
    unsigned n_loss;
};

static void sum_rows(const struct top *t, struct sum *s)
{
    *s = (struct sum){.eta_s = -1, .progress = -1};
    for (size_t i = 0; i < t->n; i++) {
        const json_t *o = t->row[i].status;
        double loss = number(o, "loss", -1), bits;

        if (o == NULL) {
            continue;
        }
        if (number(o, "peers_alive", 0) > s->alive) {
            s->alive = number(o, "peers_alive", 0);
        }
        s->speed += number(o, "tokens_per_s", 0);
        s->sent += number(o, "bytes_sent", 0);
        if (loss >= 0) {
            s->loss += loss;
            s->n_loss++;
        }
        /* The furthest speaks for the run: the others follow at the commit. */
        if (number(o, "round", 0) >= s->round) {
            s->round = number(o, "round", 0);
            bits = number(o, "bits_per_byte", -1);
            s->bits = bits > 0 ? bits : s->bits;
        }
        if (strcmp(answer_text(o, "state"), "syncing") != 0 &&
            number(o, "progress", -1) >= s->progress) {
            s->progress = number(o, "progress", -1);
            s->eta_s = number(o, "eta_s", -1);
        }
    }
    if (s->n_loss > 0) {
        s->loss /= s->n_loss;
    }
}

static void format_time(double s, char out[16])
{
    if (s < 0 || s > 359999) {
        (void)snprintf(out, 16, "--:--");
    } else {
        unsigned whole = (unsigned)(s + 0.5);

        (void)snprintf(out, 16, "%02u:%02u", whole / 60, whole % 60);
    }
}

/* ---- drawing ------------------------------------------------------------- */

static void print_summary(const struct top *t, const struct sum *s)
{
    char eta[16], passed[16], bytes[24], figures[48] = "";
    double progress = s->progress < 0 ? 0 : s->progress;

    if (!t->one_run) {
        (void)printf("%zu daemons of several runs  %.0f tokens/s  %s sent%s",
                     t->n, s->speed, answer_scaled(s->sent, "B", bytes),
                     t->terminal ? "\n\n" : "\n"); /* as high as the other */
        return;
    }
    format_time(s->eta_s, eta);
    format_time((double)(monotonic_ms() - t->started_ms) / 1000.0, passed);
    if (t->terminal) {
        char drawn[BAR_WIDTH + 1];

        answer_bar(progress, BAR_WIDTH, drawn);
        (void)printf("[%s] %3.0f%%  %s, %s left\n", drawn, 100 * progress,
                     passed, eta);
    } else {
        (void)printf("%3.0f%%  %s, %s left  ", 100 * progress, passed, eta);
    }
    if (s->n_loss > 0) {
        (void)snprintf(figures, sizeof figures, "loss %.3f  ", s->loss);
    }
    (void)printf("round %.0f  %s", s->round, figures);
    if (s->bits > 0) {
        (void)printf("held-out bits/byte %.3f  ", s->bits);
    }
    (void)printf("%.0f peers  %.0f tokens/s  %s sent\n", s->alive, s->speed,
                 answer_scaled(s->sent, "B", bytes));
}

/* The end of a row. */
static void print_stage(const json_t *s)
{
    if (json_is_object(s)) {
        (void)printf("  stage %.0f of %.0f  queue %.1f  idle %.0f %%",
                     number(s, "number", 0), number(s, "of", 0),
                     number(s, "queue", 0), 100 * number(s, "idle", 0));
    }
    (void)putchar('\n');
}

static void print_rows(const struct top *t)
{
    uint64_t now = monotonic_ms();

    for (size_t i = 0; i < t->n; i++) {
        const char *label = machines_label(t->row[i].name);
        const json_t *o = t->row[i].status;
        char bytes[24];

        if (o == NULL) {
            (void)printf("  %.40s: %s\n", label,
                         t->named ? "no answer yet" : "starting");
            continue;
        }
        if (now >= t->row[i].heard_ms + TOP_SILENT_MS) {
            (void)printf("  %.40s: no answer for %llu s\n", label,
                         (unsigned long long)(now - t->row[i].heard_ms) / 1000);
            continue;
        }
        if (t->named) {
            (void)printf("  %-*.*s", MACHINES_NAME_WIDTH, MACHINES_NAME_WIDTH,
                         label);
        }
        (void)printf("  %.8s  %-9s step %-7.0f loss %-7.3f %6.0f tokens/s  "
                     "%s",
                     answer_text(o, t->one_run ? "peer_id" : "run_name"),
                     answer_text(o, "state"), number(o, "inner_step", 0),
                     number(o, "loss", 0), number(o, "tokens_per_s", 0),
                     answer_scaled(number(o, "bytes_sent", 0), "B", bytes));
        print_stage(json_object_get(o, "stage"));
    }
}

static void draw(struct top *t, bool last)
{
    struct sum s;
    uint64_t now = monotonic_ms();

    t->one_run = is_one_run(t);
    sum_rows(t, &s);
    if (t->terminal) {
        if (t->n_drawn > 0) {
            (void)printf("\033[%zuA\033[J", t->n_drawn); /* up, clear below */
        }
        if (t->n == 1 && t->row[0].status != NULL) {
            t->n_drawn =
                top_live_draw(&t->row[0].name->daemon, t->row[0].status);
            (void)fflush(stdout);
            return;
        }
        print_summary(t, &s);
        print_rows(t);
        t->n_drawn = 2 + t->n;
    } else if (last || t->line_ms == 0 || now >= t->line_ms + TOP_LINE_MS) {
        print_summary(t, &s);
        t->line_ms = now;
    }
    (void)fflush(stdout);
}

/* ---- loop ---------------------------------------------------------------- */

/* NULL, or a daemon that was silent for too long: one of them where all are
 * waited for, else the last that was left. */
static const struct row *
silent(const struct top *t, uint64_t patience_ms, bool any)
{
    uint64_t now = monotonic_ms();
    const struct row *lost = NULL;
    size_t n = 0;

    for (size_t i = 0; i < t->n; i++) {
        if (now >= t->row[i].heard_ms + patience_ms) {
            lost = &t->row[i];
            n++;
        }
    }
    return any || n == t->n ? lost : NULL;
}

static bool all_finished(const struct top *t)
{
    for (size_t i = 0; i < t->n; i++) {
        if (!t->row[i].finished) {
            return false;
        }
    }
    return true;
}

static int watch(struct top *t, bool until_finished, uint64_t patience_ms)
{
    const struct timespec period = {TOP_PERIOD_MS / 1000,
                                    TOP_PERIOD_MS % 1000 * 1000000L};

    for (;;) {
        const struct row *lost;
        bool done;

        for (size_t i = 0; i < t->n; i++) {
            poll_row(&t->row[i]);
        }
        done = until_finished && all_finished(t);
        draw(t, done);
        if (done) {
            return LOCO_EXIT_OK;
        }
        lost = silent(t, patience_ms, until_finished);
        if (lost != NULL) {
            return cli_fail(TROUBLE_NO_DAEMON,
                            "top: the daemon of %s has not answered for %llu "
                            "s",
                            machines_label(lost->name),
                            (unsigned long long)(patience_ms / 1000));
        }
        (void)nanosleep(&period, NULL);
    }
}

int cli_top(const struct cli_call *call)
{
    static struct machines machines; /* 25 KB */
    const char *file = NULL, *state = NULL;
    struct cli_list words = {0};
    bool until_finished = false;
    uint64_t patience_s = 30;
    const struct cli_option options[] = {
        {"--until-finished", CLI_FLAG, &until_finished, NULL,
         "exit 0 once all daemons report `finished`"},
        {"--patience", CLI_COUNT, &patience_s, "SECONDS",
         "give up when no daemon answers for so long (30)"},
        {"--machines", CLI_TEXT, &file, "FILE",
         "also the daemons of this file, a line each: ADDRESS [TOKEN]"},
    };
    struct top t = {.started_ms = monotonic_ms(), .terminal = isatty(1) == 1};
    int rv = CLI_PARSE(call, options, &words, 0, CLI_LIST_MAX);

    for (size_t i = 0; rv == CLI_GO && i < words.n; i++) {
        rv = machines_add(&machines, words.item[i]);
    }
    rv = rv == CLI_GO && file != NULL ? machines_read(&machines, file) : rv;
    if (rv == CLI_GO && machines.n == 0) {
        rv = cli_state(&state);
        rv = rv == CLI_GO ? machines_add(&machines, state) : rv;
    }
    if (rv != CLI_GO) {
        return rv;
    }
    if (patience_s == 0 || patience_s > 86400) {
        return cli_fail(TROUBLE_USAGE, "top: --patience is 1 to 86400");
    }
    for (t.n = 0; t.n < machines.n; t.n++) {
        t.row[t.n] =
            (struct row){.name = &machines.item[t.n], .heard_ms = t.started_ms};
        t.named = t.named || machines.item[t.n].state_dir == NULL;
    }
    rv = watch(&t, until_finished, patience_s * 1000);
    for (size_t i = 0; i < t.n; i++) {
        json_decref(t.row[i].status);
    }
    return rv;
}
