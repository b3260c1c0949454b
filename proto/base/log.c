/* log.c - see log.h. */
#include "proto/base/log.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "proto/base/nearest.h"

#define LOG_LINE_MAX 1024 /* bytes; longer lines are cut */
#define EVENTS_MAX   256  /* a power of two; two in one place share it */

static const char *const level_names[LOG_LEVEL_COUNT] = {
    [LOG_DEBUG] = "debug",
    [LOG_INFO] = "info",
    [LOG_WARN] = "warn",
    [LOG_ERROR] = "error",
};

/* As syslog(3) counts. */
static const char *const prefixes[LOG_LEVEL_COUNT] = {
    [LOG_DEBUG] = "<7>",
    [LOG_INFO] = "<6>",
    [LOG_WARN] = "<4>",
    [LOG_ERROR] = "<3>",
};

/* Lines of one event that may still pass. */
struct budget {
    uint32_t left;
    uint32_t left_out;
    int64_t at_ms; /* when `left` was counted; 0: never yet */
};

/* Process-wide by nature: there is one stderr. */
static atomic_int min_level = LOG_INFO;
static atomic_bool as_json, to_journal;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* of budgets */
static struct budget budgets[EVENTS_MAX];

void log_set_level(enum log_level level)
{
    atomic_store(&min_level, (int)level);
}

void log_set_json(bool json)
{
    atomic_store(&as_json, json);
}

int log_level_parse(const char *name)
{
    return word_place(name, level_names, LOG_LEVEL_COUNT);
}

bool log_enabled(enum log_level level)
{
    return (int)level >= atomic_load(&min_level);
}

/* Append `text` as the inside of a JSON string; control bytes are dropped. */
static size_t json_escape(char *out, size_t cap, const char *text)
{
    size_t n = 0;

    for (; *text != '\0' && n + 3 < cap; text++) {
        if (*text == '"' || *text == '\\') {
            out[n++] = '\\';
        }
        if ((unsigned char)*text >= 0x20) {
            out[n++] = *text;
        }
    }
    out[n] = '\0';
    return n;
}

void log_find_journal(void)
{
    const char *stream = getenv("JOURNAL_STREAM");
    unsigned long long device, inode;
    struct stat st;

    atomic_store(&to_journal,
                 stream != NULL &&
                     sscanf(stream, "%llu:%llu", &device, &inode) == 2 &&
                     fstat(STDERR_FILENO, &st) == 0 && st.st_dev == device &&
                     st.st_ino == inode);
}

const char *log_prefix(enum log_level level)
{
    return atomic_load(&to_journal) ? prefixes[level] : "";
}

uint32_t log_event(const char *form)
{
    uint32_t h = 2166136261U;

    for (; *form != '\0'; form++) {
        h = (h ^ (uint8_t)*form) * 16777619U;
    }
    return h;
}

/* Whether this line may pass; then `left_out` lines before it did not. */
static bool passes(uint32_t event, uint32_t *left_out)
{
    struct budget *b = &budgets[event % EVENTS_MAX];
    struct timespec ts;
    int64_t now_ms, more;
    bool good;

    *left_out = 0;
    if (log_enabled(LOG_DEBUG)) {
        return true;
    }
    (void)clock_gettime(CLOCK_MONOTONIC, &ts);
    now_ms = (int64_t)ts.tv_sec * 1000 + ts.tv_nsec / 1000000;
    (void)pthread_mutex_lock(&lock);
    if (b->at_ms == 0) {
        *b = (struct budget){.left = LOG_BURST, .at_ms = now_ms};
    }
    more = (now_ms - b->at_ms) * LOG_PER_S / 1000;
    if (more > 0) {
        b->left = more >= LOG_BURST - (int64_t)b->left
                      ? LOG_BURST
                      : b->left + (uint32_t)more;
        b->at_ms = now_ms;
    }
    good = b->left > 0;
    if (good) {
        b->left--;
        *left_out = b->left_out;
        b->left_out = 0;
    } else {
        b->left_out++;
    }
    (void)pthread_mutex_unlock(&lock);
    return good;
}

struct parts {
    enum log_level level;
    const char *module, *text;
    uint32_t event, left_out;
    char stamp[40];
};

static int line_json(char *line, size_t cap, const struct parts *p)
{
    char escaped[LOG_LINE_MAX], more[40] = "";

    (void)json_escape(escaped, sizeof escaped, p->text);
    if (p->left_out > 0) {
        (void)snprintf(more, sizeof more, ",\"left_out\":%" PRIu32,
                       p->left_out);
    }
    return snprintf(line, cap,
                    "%s{\"time\":\"%s\",\"level\":\"%s\",\"module\":\"%s\","
                    "\"event\":\"%08" PRIx32 "\"%s,\"text\":\"%s\"}\n",
                    log_prefix(p->level), p->stamp, level_names[p->level],
                    p->module, p->event, more, escaped);
}

static int line_text(char *line, size_t cap, const struct parts *p)
{
    char more[64] = "", event[16] = "";

    if (p->left_out > 0) {
        (void)snprintf(more, sizeof more, " (%" PRIu32 " like it left out)",
                       p->left_out);
    }
    if (p->level >= LOG_WARN) {
        (void)snprintf(event, sizeof event, " [%08" PRIx32 "]", p->event);
    }
    return atomic_load(&to_journal)
               ? snprintf(line, cap, "%s%-6s %s%s%s\n", log_prefix(p->level),
                          p->module, p->text, more, event)
               : snprintf(line, cap, "%s %-5s %-6s %s%s%s\n", p->stamp,
                          level_names[p->level], p->module, p->text, more,
                          event);
}

static void stamp(char out[40])
{
    struct timespec ts;
    struct tm tm;
    size_t n;

    (void)clock_gettime(CLOCK_REALTIME, &ts);
    (void)gmtime_r(&ts.tv_sec, &tm);
    n = strftime(out, 40, "%Y-%m-%dT%H:%M:%S", &tm);
    (void)snprintf(out + n, 40 - n, ".%03ldZ", ts.tv_nsec / 1000000);
}

void log_write_event(enum log_level level,
                     const char *module,
                     uint32_t event,
                     const char *text)
{
    char line[LOG_LINE_MAX + 192];
    struct parts p = {
        .level = level, .module = module, .event = event, .text = text};
    int n;

    if (!log_enabled(level) || !passes(event, &p.left_out)) {
        return;
    }
    stamp(p.stamp);
    n = atomic_load(&as_json) ? line_json(line, sizeof line, &p)
                              : line_text(line, sizeof line, &p);
    if (n > 0) {
        size_t len = (size_t)n < sizeof line ? (size_t)n : sizeof line - 1;
        (void)!write(STDERR_FILENO, line, len);
    }
}

void log_write(enum log_level level, const char *module, const char *fmt, ...)
{
    char text[LOG_LINE_MAX];
    va_list ap;

    if (!log_enabled(level)) {
        return;
    }
    va_start(ap, fmt);
    (void)vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    log_write_event(level, module, log_event(fmt), text);
}
