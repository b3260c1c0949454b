/* log.c - see log.h. */
#include "proto/base/log.h"

#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define LOG_LINE_MAX 1024 /* bytes; longer lines are cut */

static const char *const level_names[LOG_LEVEL_COUNT] = {
    [LOG_DEBUG] = "debug",
    [LOG_INFO] = "info",
    [LOG_WARN] = "warn",
    [LOG_ERROR] = "error",
};

/* Process-wide by nature: there is one stderr. */
static atomic_int min_level = LOG_INFO;
static atomic_bool as_json;

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
    for (int i = 0; i < LOG_LEVEL_COUNT; i++) {
        if (strcmp(name, level_names[i]) == 0) {
            return i;
        }
    }
    return -1;
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

void log_write(enum log_level level, const char *module, const char *fmt, ...)
{
    char text[LOG_LINE_MAX], escaped[LOG_LINE_MAX], line[LOG_LINE_MAX + 96];
    char stamp[40];
    struct timespec ts;
    struct tm tm;
    va_list ap;
    int n;

    if (!log_enabled(level)) {
        return;
    }
    va_start(ap, fmt);
    (void)vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    (void)clock_gettime(CLOCK_REALTIME, &ts);
    (void)gmtime_r(&ts.tv_sec, &tm);
    (void)strftime(stamp, sizeof stamp, "%Y-%m-%dT%H:%M:%S", &tm);
    if (atomic_load(&as_json)) {
        (void)json_escape(escaped, sizeof escaped, text);
        n = snprintf(line, sizeof line,
                     "{\"time\":\"%s.%03ldZ\",\"level\":\"%s\","
                     "\"module\":\"%s\",\"text\":\"%s\"}\n",
                     stamp, ts.tv_nsec / 1000000, level_names[level], module,
                     escaped);
    } else {
        n = snprintf(line, sizeof line, "%s.%03ldZ %-5s %-6s %s\n", stamp,
                     ts.tv_nsec / 1000000, level_names[level], module, text);
    }
    if (n > 0) {
        size_t len = (size_t)n < sizeof line ? (size_t)n : sizeof line - 1;
        (void)!write(STDERR_FILENO, line, len);
    }
}
