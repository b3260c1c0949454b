/* reload.c - SIGHUP: settings that change while it runs; see locod.h.
 */
#include "daemon/locod.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "proto/base/err.h"
#include "proto/base/log.h"

/* A peer below the floor of the run counts as broken (machine/config.c). */
static bool caps_fit(const struct daemon *d, const struct config *c)
{
    const struct manifest *run = machine_manifest(d->machine);
    uint64_t floor = run == NULL ? 0 : run->round.progress_floor_bytes_per_s;

    return (c->upload_bytes_per_s == 0 || c->upload_bytes_per_s >= floor) &&
           (c->download_bytes_per_s == 0 || c->download_bytes_per_s >= floor);
}

/* -1: there is no such setting that changes while it runs. */
static int option_of(const char *name)
{
    for (int i = 0; i < CONFIG_OPTION_COUNT; i++) {
        enum config_option o = (enum config_option)i;

        if (config_is_live(o) && strcmp(config_name(o), name) == 0) {
            return i;
        }
    }
    return -1;
}

/* Whether that is a value for it, on its own. */
static int value_check(const char *name, const char *value, char *errmsg)
{
    struct config *scratch = malloc(sizeof *scratch);
    struct courtesy_schedule week;
    int rv = scratch == NULL ? LOCO_ENOMEM : 0;

    if (rv == 0) {
        config_init(scratch);
        rv = config_set(scratch, name, value, CONFIG_FLAG, errmsg);
    }
    if (rv == 0 && strcmp(name, "schedule") == 0) {
        rv = courtesy_schedule_parse(&week, value, errmsg);
    }
    free(scratch);
    return rv;
}

int on_set(void *data,
           const char *name,
           const char *value,
           char errmsg[ERRMSG_SIZE])
{
    struct daemon *d = data;
    int option = option_of(name);

    if (option < 0 || strlen(value) >= LIVE_TEXT_MAX) {
        (void)snprintf(errmsg, ERRMSG_SIZE,
                       "%.40s is not a setting that changes while it runs",
                       name);
        return LOCO_EINVAL;
    }
    if (value_check(name, value, errmsg) != 0) {
        return LOCO_EINVAL;
    }
    (void)pthread_mutex_lock(&d->set_lock);
    (void)snprintf(d->asked.text[option], LIVE_TEXT_MAX, "%s", value);
    d->asked.given[option] = true;
    (void)pthread_mutex_unlock(&d->set_lock);
    (void)kill(getpid(), SIGHUP); /* to the loop's own handler */
    return 0;
}

/* What a person set over the API, on top of the next settings. What was asked
 * for since the last time stays only if the whole then fits. */
static void live_apply(struct daemon *d, const struct live_set *s)
{
    for (int i = 0; i < CONFIG_OPTION_COUNT; i++) {
        if (s->given[i]) {
            (void)config_set(&d->next, config_name((enum config_option)i),
                             s->text[i], CONFIG_FLAG, d->errmsg);
        }
    }
}

static void live_keep(struct live_set *set, const struct live_set *asked)
{
    for (int i = 0; i < CONFIG_OPTION_COUNT; i++) {
        if (asked->given[i]) {
            set->given[i] = true;
            memcpy(set->text[i], asked->text[i], LIVE_TEXT_MAX);
        }
    }
}

static void refuse(struct daemon *d, const char *why)
{
    log_warn("main", "the settings stay as they are: %s", why);
    history_note(&d->notes, HISTORY_REFUSED,
                 "the settings stay as they are: %s", why);
}

/* Whether this run can go on with d->next. */
static bool all_fit(struct daemon *d)
{
    char why[HISTORY_TEXT_MAX];

    if (!caps_fit(d, &d->next)) {
        refuse(d, "this run gives up a peer that is slower than "
                  "round.progress_floor_bytes_per_s");
        return false;
    }
    if (!machine_disk_fits(d->machine, d->next.disk_bytes,
                           (unsigned)d->next.keep)) {
        refuse(d, "this run needs more than disk_bytes with so many "
                  "checkpoints (keep)");
        return false;
    }
    if (!machine_memory_fits(d->machine, d->next.memory_bytes)) {
        (void)snprintf(
            why, sizeof why,
            "as it was begun, this run takes %llu bytes of memory, more than "
            "memory_bytes; after a restart it may do with less",
            (unsigned long long)machine_memory_need(d->machine));
        refuse(d, why);
        return false;
    }
    return true;
}

static void take_over(struct daemon *d)
{
    char now[CONFIG_TEXT_MAX], next[CONFIG_TEXT_MAX];

    for (int i = 0; i < CONFIG_OPTION_COUNT; i++) {
        enum config_option o = (enum config_option)i;

        config_text(&d->config, o, now);
        config_text(&d->next, o, next);
        if (strcmp(now, next) == 0) {
            continue;
        }
        if (config_is_live(o)) {
            log_info("main", "%s is %s now", config_name(o), next);
            history_note(&d->notes, HISTORY_SETTING, "%s is %.120s now",
                         config_name(o), next);
            config_copy(&d->config, &d->next, o);
        } else {
            log_warn("main", "%s will be %s at the next start", config_name(o),
                     next);
        }
    }
}

/* The settings as they are now in file, environment and flags, and as they were
 * asked for; all of them or none. */
static void settings_renew(struct daemon *d)
{
    struct live_set asked;

    (void)pthread_mutex_lock(&d->set_lock);
    asked = d->asked;
    memset(&d->asked, 0, sizeof d->asked);
    (void)pthread_mutex_unlock(&d->set_lock);
    if (config_parse(d->argc, d->argv, &d->next, d->errmsg) != 0) {
        refuse(d, d->errmsg);
        return;
    }
    live_apply(d, &d->set);
    live_apply(d, &asked);
    if (!all_fit(d)) {
        return;
    }
    live_keep(&d->set, &asked);
    take_over(d);
    log_set_level((enum log_level)log_level_parse(d->config.log));
    log_set_json(d->config.log_json);
    machine_configure(d->machine);
    shell_set_caps(d->shell, d->config.upload_bytes_per_s,
                   d->config.download_bytes_per_s);
    guest_configure(&d->guest, &d->config);
}

void reload(struct daemon *d)
{
    settings_renew(d);
    /* Whoever takes a right away is not held up by a mistake elsewhere. */
    tell_revoked(d);
    if (control_access_renew(d->control, d->config.control_hosts, d->errmsg) !=
        0) {
        log_warn("main", "the old tokens hold: %s", d->errmsg);
    }
}
