/* log.h - leveled log lines for people and for machines.
 *
 * A line is "time level module text". The level is checked before arguments
 * are formatted. Pure cores do not log: they emit log actions, and the shell
 * calls this. Thread-safe: one write(2) per line to stderr.
 */
#ifndef LOCO_PROTO_BASE_LOG_H
#define LOCO_PROTO_BASE_LOG_H

#include <stdbool.h>

enum log_level { LOG_DEBUG, LOG_INFO, LOG_WARN, LOG_ERROR, LOG_LEVEL_COUNT };

/* Lowest level that is written; LOG_INFO until set. */
void log_set_level(enum log_level level);

/* JSON lines instead of text. */
void log_set_json(bool json);

/* Parse "debug", "info", "warn" or "error"; -1 for anything else. */
int log_level_parse(const char *name);

bool log_enabled(enum log_level level);

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
