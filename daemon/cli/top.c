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
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <jansson.h>

#include "daemon/cli/answer.h"
#include "daemon/cli/cli.h"
#include "daemon/cli/machines.h"
#include "daemon/cli/top_live.h"
#include "daemon/watch/sight.h"
#include "proto/base/clock.h"
#include "proto/base/err.h"

#define TOP_PERIOD_MS 500
#define TOP_LINE_MS   10000
#define TOP_SILENT_MS 5000 /* then a row says so */
#define BAR_WIDTH     40

struct top {
    struct watch *watch;
    bool named; /* show who a row is by where it is asked */
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

static void sum_rows(const struct top *t, struct sight_sum *s)
{
    const char *first = NULL;

    sight_sum_begin(s);
    for (size_t i = 0; i < watch_n(t->watch); i++) {
        const struct watched *r = watch_row(t->watch, i);

        sight_sum_add(s, r->status, r->answers, &first);
    }
    sight_sum_end(s);
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

static void print_summary(const struct top *t, const struct sight_sum *s)
{
    char eta[16], passed[16], bytes[24], figures[48] = "";
    double progress = s->progress < 0 ? 0 : s->progress;

    if (!s->one_run) {
        (void)printf("%zu daemons of several runs  %.0f tokens/s  %s sent%s",
                     watch_n(t->watch), s->speed,
                     answer_scaled(s->sent, "B", bytes),
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
    (void)printf("round %.0f  %s", s->round < 0 ? 0 : s->round, figures);
    if (s->bits > 0) {
        (void)printf("held-out bits/byte %.3f  ", s->bits);
    }
    (void)printf("%.0f peers  %.0f tokens/s  %s sent\n",
                 s->peers < 0 ? 0 : s->peers, s->speed,
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

/* A row of its own, however narrow the terminal is: it is drawn over. */
static void print_silence(const struct top *t, const struct watched *r)
{
    char text[sizeof r->trouble + 160], silence[48];
    struct winsize w;
    size_t columns = 80;
    uint64_t silent_s = (monotonic_ms() - r->heard_ms) / 1000;

    if (ioctl(1, TIOCGWINSZ, &w) == 0 && w.ws_col > 20) {
        columns = w.ws_col;
    }
    (void)snprintf(silence, sizeof silence, "no answer for %llu s",
                   (unsigned long long)silent_s);
    (void)snprintf(text, sizeof text, "  %.40s: %s%s%s", r->label,
                   r->status != NULL ? silence
                   : t->named        ? "no answer yet"
                                     : "starting",
                   r->trouble[0] != '\0' ? ": " : "", r->trouble);
    (void)printf("%.*s\n", (int)columns - 1, text);
}

static void print_rows(const struct top *t, bool one_run)
{
    uint64_t now = monotonic_ms();

    for (size_t i = 0; i < watch_n(t->watch); i++) {
        const struct watched *r = watch_row(t->watch, i);
        const char *label = r->label;
        const json_t *o = r->status;
        char bytes[24];

        if (o == NULL || now >= r->heard_ms + TOP_SILENT_MS) {
            print_silence(t, r);
            continue;
        }
        if (t->named) {
            (void)printf("  %-*.*s", MACHINES_NAME_WIDTH, MACHINES_NAME_WIDTH,
                         label);
        }
        (void)printf("  %.8s  %-9s step %-7.0f loss %-7.3f %6.0f tokens/s  "
                     "%s",
                     answer_text(o, one_run ? "peer_id" : "run_name"),
                     answer_text(o, "state"), number(o, "inner_step", 0),
                     number(o, "loss", 0), number(o, "tokens_per_s", 0),
                     answer_scaled(number(o, "bytes_sent", 0), "B", bytes));
        print_stage(json_object_get(o, "stage"));
    }
}

static void draw(struct top *t, bool last)
{
    const struct watched *first = watch_row(t->watch, 0);
    struct sight_sum s;
    uint64_t now = monotonic_ms();

    sum_rows(t, &s);
    if (t->terminal) {
        if (t->n_drawn > 0) {
            (void)printf("\033[%zuA\033[J", t->n_drawn); /* up, clear below */
        }
        if (watch_n(t->watch) == 1 && first->status != NULL) {
            t->n_drawn = top_live_draw(&first->daemon, first->status);
            if (now >= first->heard_ms + TOP_SILENT_MS) {
                print_silence(t, first);
                t->n_drawn++;
            }
            (void)fflush(stdout);
            return;
        }
        print_summary(t, &s);
        print_rows(t, s.one_run);
        t->n_drawn = 2 + watch_n(t->watch);
    } else if (last || t->line_ms == 0 || now >= t->line_ms + TOP_LINE_MS) {
        print_summary(t, &s);
        t->line_ms = now;
    }
    (void)fflush(stdout);
}

/* ---- loop ---------------------------------------------------------------- */

/* NULL, or a daemon that was silent for too long: one of them where all are
 * waited for, else the last that was left. */
static const struct watched *
silent(const struct top *t, uint64_t patience_ms, bool any)
{
    uint64_t now = monotonic_ms();
    const struct watched *lost = NULL;
    size_t n = 0;

    for (size_t i = 0; i < watch_n(t->watch); i++) {
        const struct watched *r = watch_row(t->watch, i);

        if (now >= r->heard_ms + patience_ms) {
            lost = r;
            n++;
        }
    }
    return any || n == watch_n(t->watch) ? lost : NULL;
}

static bool all_finished(const struct top *t)
{
    for (size_t i = 0; i < watch_n(t->watch); i++) {
        if (strcmp(answer_text(watch_row(t->watch, i)->status, "state"),
                   "finished") != 0) {
            return false;
        }
    }
    return true;
}

/* Answers until the next picture; the first is drawn when all have answered or
 * failed. */
static void listen_ms(struct top *t, uint64_t ms, bool first)
{
    uint64_t now = monotonic_ms(), until = now + ms;

    for (; now < until && !(first && watch_settled(t->watch));
         now = monotonic_ms()) {
        (void)watch_step(t->watch, (int)(until - now));
    }
}

static int watch(struct top *t, bool until_finished, uint64_t patience_ms)
{
    listen_ms(t, TOP_PERIOD_MS, true);
    for (;;) {
        const struct watched *lost;
        bool done = until_finished && all_finished(t);

        draw(t, done);
        if (done) {
            return LOCO_EXIT_OK;
        }
        lost = silent(t, patience_ms, until_finished);
        if (lost != NULL) {
            return cli_fail(
                TROUBLE_NO_DAEMON,
                "top: the daemon of %s has not answered for %llu "
                "s%s%s",
                lost->label, (unsigned long long)(patience_ms / 1000),
                lost->trouble[0] != '\0' ? ": " : "", lost->trouble);
        }
        listen_ms(t, TOP_PERIOD_MS, false);
    }
}

int cli_top(const struct cli_call *call)
{
    static struct machines machines; /* 25 KB */
    const char *file = NULL;
    struct cli_list words = {0};
    bool until_finished = false;
    uint64_t patience_s = 30;
    const struct cli_option options[] = {
        {"--until-finished", CLI_FLAG, &until_finished, NULL,
         "exit 0 once all daemons report `finished`"},
        {"--patience", CLI_COUNT, &patience_s, "SECONDS",
         "give up when no daemon answers for so long (30)"},
        {"--machines", CLI_TEXT, &file, "FILE",
         "also the daemons of this file, a line each: ADDRESS [TOKEN [NAME]]"},
    };
    struct top t = {.started_ms = monotonic_ms(), .terminal = isatty(1) == 1};
    int rv = CLI_PARSE(call, options, &words, 0, CLI_LIST_MAX);

    rv = rv == CLI_GO ? machines_of(&machines, &words, file) : rv;
    if (rv != CLI_GO) {
        return rv;
    }
    if (patience_s == 0 || patience_s > 86400) {
        return cli_fail(TROUBLE_USAGE, "top: --patience is 1 to 86400");
    }
    for (size_t i = 0; i < machines.n; i++) {
        t.named = t.named || machines.item[i].state_dir == NULL;
    }
    t.watch = watch_open(machines.item, machines.n, TOP_PERIOD_MS, false);
    if (t.watch == NULL) {
        return cli_fail(TROUBLE_RESOURCES, "top: out of memory");
    }
    rv = watch(&t, until_finished, patience_s * 1000);
    watch_close(t.watch);
    return rv;
}
