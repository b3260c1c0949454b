/* top_live.c - see cli/top_live.h. */
#include "daemon/cli/top_live.h"

#include <math.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "daemon/cli/answer.h"
#include "daemon/visit/http.h"

#define CURVE_ROWS  7
#define EVENTS      4
#define BAR_WIDTH   36
#define COLUMNS_MAX 240

enum colour { PLAIN, DIM, BOLD, GOOD, WARN, BAD };

struct screen {
    int columns;
    size_t rows, n_lines;
    bool colours;
};

__attribute__((format(printf, 3, 4))) static void
put(struct screen *s, enum colour colour, const char *fmt, ...)
{
    static const char *const codes[] = {
        [PLAIN] = "",        [DIM] = "\033[2m",   [BOLD] = "\033[1m",
        [GOOD] = "\033[32m", [WARN] = "\033[33m", [BAD] = "\033[31m",
    };
    char line[COLUMNS_MAX + 1];
    va_list args;

    if (s->n_lines + 1 >= s->rows) {
        return; /* the last row stays empty for the cursor */
    }
    va_start(args, fmt);
    (void)vsnprintf(line, sizeof line, fmt, args);
    va_end(args);
    for (char *c = line; *c != '\0'; c++) {
        *c = (unsigned char)*c < 0x20 || (unsigned char)*c > 0x7e ? '?' : *c;
    }
    line[s->columns - 1] = '\0';
    if (s->colours && colour != PLAIN) {
        (void)printf("%s%s\033[0m\n", codes[colour], line);
    } else {
        (void)printf("%s\n", line);
    }
    s->n_lines++;
}

static struct screen screen_now(void)
{
    struct screen s = {.columns = 80, .rows = 24};
    const char *off = getenv("NO_COLOR"), *term = getenv("TERM");
    struct winsize w;

    if (ioctl(1, TIOCGWINSZ, &w) == 0 && w.ws_col > 20 && w.ws_row > 4) {
        s.columns = w.ws_col;
        s.rows = w.ws_row;
    }
    s.columns = s.columns > COLUMNS_MAX ? COLUMNS_MAX : s.columns;
    s.colours = (off == NULL || off[0] == '\0') &&
                (term == NULL || strcmp(term, "dumb") != 0);
    return s;
}

/* ---- words --------------------------------------------------------------- */

static const char *duration(double ms, char out[24])
{
    if (ms < 1000) {
        (void)snprintf(out, 24, "%.0f ms", ms);
    } else if (ms < 120e3) {
        (void)snprintf(out, 24, "%.1f s", ms / 1e3);
    } else if (ms < 7200e3) {
        (void)snprintf(out, 24, "%.0f min", ms / 60e3);
    } else {
        (void)snprintf(out, 24, "%.1f h", ms / 3600e3);
    }
    return out;
}

static json_t *ask(const struct http_daemon *daemon, const char *path)
{
    char errmsg[HTTP_ERRMSG_MAX], *body = NULL;
    json_t *o;

    if (http_get(daemon, path, &body, errmsg) != 0) {
        return NULL;
    }
    o = json_loads(body, 0, NULL);
    free(body);
    return o;
}

/* ---- parts --------------------------------------------------------------- */

static void draw_head(struct screen *s, const json_t *o)
{
    const char *state = answer_text(o, "state"),
               *reason = answer_text(o, "reason");
    bool fork = json_is_true(json_object_get(o, "fork"));
    const json_t *bits = json_object_get(o, "bits_per_byte");
    char held[32] = "-", left[24] = "unknown";
    double progress = answer_number(o, "progress");
    char bar[BAR_WIDTH + 1];

    answer_bar(progress, BAR_WIDTH, bar);
    if (json_is_number(json_object_get(o, "eta_s"))) {
        (void)duration(1000 * answer_number(o, "eta_s"), left);
    }
    if (json_is_number(bits)) {
        (void)snprintf(held, sizeof held, "%.4f", json_number_value(bits));
    }
    put(s, BOLD, "%s  peer %.16s", answer_text(o, "run_name"),
        answer_text(o, "peer_id"));
    put(s,
        fork                             ? BAD
        : strcmp(state, "paused") == 0   ? WARN
        : strcmp(state, "draining") == 0 ? WARN
                                         : GOOD,
        "%s%s%s%s", state, fork ? " (fork)" : "", reason[0] == '\0' ? "" : ": ",
        reason);
    put(s, PLAIN, "[%s] %.1f%%, %s left", bar, 100 * progress, left);
    put(s, PLAIN,
        "round %.0f  loss %.4f  held-out bits/byte %s  %.0f tokens/s  "
        "%.0f peers, %.0f in the round",
        answer_number(o, "round"), answer_number(o, "loss"), held,
        answer_number(o, "tokens_per_s"), answer_number(o, "peers_alive"),
        answer_number(o, "peers_in_round"));
}

/* What is left until the work of a newcomer counts. */
static void draw_probation(struct screen *s, const json_t *o)
{
    const json_t *p = json_object_get(o, "probation");
    double left_s = answer_number(p, "left_s");
    char left[24], about[48] = "";

    if (!json_is_object(p)) {
        return;
    }
    if (left_s > 0) {
        (void)snprintf(about, sizeof about, ", in about %s",
                       duration(1000 * left_s, left));
    }
    put(s, WARN,
        "on probation: %.0f of %.0f rounds offered, then its work counts%s",
        answer_number(p, "offered"), answer_number(p, "of"), about);
}

static const char *cap(const json_t *caps, const char *key, char out[40])
{
    const json_t *value = json_object_get(caps, key);
    char rate[24];

    out[0] = '\0';
    if (json_is_integer(value)) {
        (void)snprintf(out, 40, " (at most %s)",
                       answer_scaled(json_number_value(value), "B/s", rate));
    }
    return out;
}

/* What went this month against what may, where there is a quota. */
static const char *month(const json_t *caps, char out[80])
{
    const json_t *most = json_object_get(caps, "bytes_per_month");
    char used[24], of[24];

    out[0] = '\0';
    if (json_is_integer(most)) {
        (void)snprintf(
            out, 80, ", this month %s of %s",
            answer_scaled(answer_number(caps, "bytes_this_month"), "B", used),
            answer_scaled(json_number_value(most), "B", of));
    }
    return out;
}

static void draw_bytes(struct screen *s, const json_t *o)
{
    const json_t *caps = json_object_get(o, "caps");
    char sent[24], got[24], up[40], down[40], quota[80];

    put(s, PLAIN, "sent %s%s, received %s%s%s, reached: %s",
        answer_scaled(answer_number(o, "bytes_sent"), "B", sent),
        cap(caps, "upload_bytes_per_s", up),
        answer_scaled(answer_number(o, "bytes_received"), "B", got),
        cap(caps, "download_bytes_per_s", down), month(caps, quota),
        answer_text(o, "reachability"));
}

/* The line for others, where it fits whole: half an address is of no use. */
static void draw_share(struct screen *s, const json_t *o)
{
    const json_t *share = json_object_get(o, "share");
    const char *uri = json_string_value(json_object_get(share, "uri"));

    if (uri == NULL) {
        return;
    }
    if (strlen("others: loco join ") + strlen(uri) < (size_t)s->columns) {
        put(s, PLAIN, "others: loco join %s", uri);
    } else {
        put(s, PLAIN, "others join with the line of: loco run share");
    }
}

/* The loss over the samples, the newest at the right. */
static void draw_curve(struct screen *s, const json_t *history)
{
    const json_t *loss =
        json_object_get(json_object_get(history, "samples"), "loss");
    size_t n = json_array_size(loss);
    size_t width = (size_t)s->columns - 12;
    double low = INFINITY, high = -INFINITY;
    char rows[CURVE_ROWS][COLUMNS_MAX];

    width = width > 100 ? 100 : width;
    for (size_t i = 0; i < n; i++) {
        if (json_is_number(json_array_get(loss, i))) {
            double v = json_number_value(json_array_get(loss, i));

            low = v < low ? v : low;
            high = v > high ? v : high;
        }
    }
    if (!isfinite(low)) {
        return;
    }
    memset(rows, ' ', sizeof rows);
    for (size_t x = 0; x < width; x++) {
        const json_t *v = json_array_get(
            loss, n >= width ? x * (n - 1) / (width - 1) : x * n / width);
        double at = json_number_value(v);

        if (json_is_number(v)) {
            int y =
                high > low
                    ? (int)((high - at) / (high - low) * (CURVE_ROWS - 1) + 0.5)
                    : CURVE_ROWS / 2;

            rows[y][x] = '*';
        }
    }
    put(s, DIM, "loss since the start");
    for (int y = 0; y < CURVE_ROWS; y++) {
        double value = high - (high - low) * y / (CURVE_ROWS - 1);

        put(s, PLAIN, "%8.3f |%.*s", value, (int)width, rows[y]);
    }
}

/* One letter a share of the time; fills out[BAR_WIDTH + 1]. */
static double phase_bar(const json_t *round, char *out)
{
    static const char *const names[] = {"train", "wait", "plan", "reduce",
                                        "hash",  "vote", "apply"};
    const json_t *ms = json_object_get(round, "phase_ms");
    double sum = 0, passed = 0;
    size_t at = 0;

    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        sum += answer_number(ms, names[i]);
    }
    for (size_t i = 0; sum > 0 && i < sizeof names / sizeof names[0]; i++) {
        passed += answer_number(ms, names[i]);
        for (; at < (size_t)(passed / sum * BAR_WIDTH + 0.5); at++) {
            out[at] = names[i][0];
        }
    }
    out[at] = '\0';
    return sum;
}

static void draw_rounds(struct screen *s, const json_t *answer)
{
    const json_t *list = json_object_get(answer, "rounds");
    char bar[BAR_WIDTH + 2], took[24], waited[24], who[ID_SHORT_MAX];

    if (json_array_size(list) == 0) {
        return;
    }
    put(s, DIM,
        "rounds: train, wait, plan, reduce, hash, vote, apply, by their "
        "initials");
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *r = json_array_get(list, i);
        const json_t *w = json_object_get(r, "waited_for");
        const json_t *reason = json_object_get(r, "reason");
        double ms = phase_bar(r, bar);

        if (json_is_string(reason)) {
            put(s, BAD, "%7.0f %-9s %s", answer_number(r, "round"),
                answer_text(r, "outcome"), json_string_value(reason));
        } else if (json_is_object(w)) {
            put(s, PLAIN, "%7.0f %-9s %-*s %8s  waited %s for %s",
                answer_number(r, "round"), answer_text(r, "outcome"), BAR_WIDTH,
                bar, duration(ms, took),
                duration(answer_number(w, "ms"), waited),
                answer_peer(answer_text(w, "peer_id"), who));
        } else {
            put(s, PLAIN, "%7.0f %-9s %-*s %8s", answer_number(r, "round"),
                answer_text(r, "outcome"), BAR_WIDTH, bar, duration(ms, took));
        }
    }
}

static void draw_peers(struct screen *s, const json_t *answer, size_t most)
{
    const json_t *peers = json_object_get(answer, "peers");
    const json_t *links = json_object_get(answer, "links");
    size_t n = json_array_size(peers);
    char out[24], in[24], speed[24];

    put(s, DIM, "%-14s %-9s %-10s %-10s %12s %13s %13s %7s", "peer", "state",
        "link", "reached", "speed", "to it", "from it", "rounds");
    for (size_t i = 0; i < n && i < most; i++) {
        const json_t *p = json_array_get(peers, i);
        bool self = json_is_true(json_object_get(p, "self"));
        const char *state = answer_text(p, "state");
        double to = answer_rate(links, 0, i), from = answer_rate(links, i, 0);

        put(s,
            strcmp(state, "lost") == 0      ? BAD
            : strcmp(state, "suspect") == 0 ? WARN
                                            : PLAIN,
            "%-14s %-9s %-10s %-10s %12s %13s %13s %7.0f",
            answer_text(p, "short"), state,
            self ? "this peer" : answer_text(p, "link"),
            answer_text(p, "reachability"),
            answer_scaled(answer_number(p, "tokens_per_s"), "tok/s", speed),
            to > 0 ? answer_scaled(8 * to, "bit/s", out) : "-",
            from > 0 ? answer_scaled(8 * from, "bit/s", in) : "-",
            answer_number(p, "rounds"));
    }
    if (n > most) {
        put(s, DIM, "and %zu more: loco peers", n - most);
    }
}

static void draw_events(struct screen *s, const json_t *history)
{
    const json_t *list = json_object_get(history, "events");
    size_t n = json_array_size(list);

    for (size_t i = n > EVENTS ? n - EVENTS : 0; i < n; i++) {
        const json_t *e = json_array_get(list, i);
        const char *kind = answer_text(e, "kind");
        bool bad =
            strcmp(kind, "peer_lost") == 0 ||
            strcmp(kind, "round_failed") == 0 || strcmp(kind, "fork") == 0 ||
            strcmp(kind, "rolled_back") == 0 || strcmp(kind, "convicted") == 0;

        put(s, bad ? BAD : DIM, "* %s", answer_text(e, "text"));
    }
}

size_t top_live_draw(const struct http_daemon *daemon, const json_t *status)
{
    struct screen s = screen_now();
    json_t *history = ask(daemon, "/api/v1/history");
    json_t *peers = ask(daemon, "/api/v1/peers");
    json_t *rounds = ask(daemon, s.rows < 30 ? "/api/v1/rounds?last=3"
                                             : "/api/v1/rounds?last=6");
    size_t taken = 7 + 2 + EVENTS + (s.rows < 30 ? 4 : 7);

    draw_head(&s, status);
    draw_probation(&s, status);
    draw_bytes(&s, status);
    draw_share(&s, status);
    if (s.rows >= 30) {
        draw_curve(&s, history);
        taken += CURVE_ROWS + 1;
    }
    draw_rounds(&s, rounds);
    draw_peers(&s, peers, s.rows > taken + 2 ? s.rows - taken : 2);
    draw_events(&s, history);
    json_decref(history);
    json_decref(peers);
    json_decref(rounds);
    return s.n_lines;
}
