/* log.h - leveled log lines for people and for machines.
 *
 * A line is "time level module text". The level is checked before arguments
 * are formatted. Pure cores do not log: they emit log actions, and the shell
 * calls this. Thread-safe: one write(2) per line to stderr.
 *
 * The *event* of a line names the sentence without its values: FNV-1a (32 bits)
 * of the form that was given to printf. Programs filter by it; it changes only
 * with the wording. JSON lines have it always, text from LOG_WARN on, in
 * brackets at the end. tests/log_events.py lists all of a tree and finds two
 * sentences with one number.
 *
 * Of one event LOG_BURST lines pass at once and LOG_PER_S a second for longer;
 * the next one that passes says how many were left out. Not so where LOG_DEBUG
 * is written: then a person wants to see all.
 *
 * Under systemd lines go to the journal, which knows the time: they begin with
 * "<N>", syslog's number of the level (sd-daemon(3)), in place of time and
 * level.
 */
#ifndef LOCO_PROTO_BASE_LOG_H
#define LOCO_PROTO_BASE_LOG_H

#include <stdbool.h>
#include <stdint.h>

#define LOG_BURST 200
#define LOG_PER_S 10

enum log_level { LOG_DEBUG, LOG_INFO, LOG_WARN, LOG_ERROR, LOG_LEVEL_COUNT };

/* Lowest level that is written; LOG_INFO until set. */
void log_set_level(enum log_level level);

/* JSON lines instead of text. */
void log_set_json(bool json);

/* Parse "debug", "info", "warn" or "error"; -1 for anything else. */
int log_level_parse(const char *name);

bool log_enabled(enum log_level level);

/* From now on for journald, if stderr is its stream (JOURNAL_STREAM). */
void log_find_journal(void);

/* "<3>" for LOG_ERROR where lines go to the journal, "" elsewhere: for what is
 * written to stderr in another way. Static string. */
const char *log_prefix(enum log_level level);

uint32_t log_event(const char *form);

/* A line whose text was made elsewhere, with the event of its form. */
void log_write_event(enum log_level level,
                     const char *module,
                     uint32_t event,
                     const char *text);

void log_write(enum log_level level, const char *module, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

#define log_debug(module, ...)                                                 \
    (log_enabled(LOG_DEBUG) ? log_write(LOG_DEBUG, module, __VA_ARGS__)        \
                            : (void)0)
#define log_info(module, ...)                                                  \
    (log_enabled(LOG_INFO) ? log_write(LOG_INFO, module, __VA_ARGS__) : (void)0)
#define log_warn(module, ...)  log_write(LOG_WARN, module, __VA_ARGS__)
#define log_error(module, ...) log_write(LOG_ERROR, module, __VA_ARGS__)

#endif
