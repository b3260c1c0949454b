/* locod_settings.c - SIGHUP: settings that change while it runs; see locod.h.
 */
#include "daemon/locod.h"

#include <string.h>

#include "proto/base/log.h"

/* Settings that change while it runs; the others at the next start. */
static const enum config_option live[] = {
    CONFIG_control_hosts,
    CONFIG_log,
    CONFIG_log_json,
    CONFIG_schedule,
    CONFIG_battery,
    CONFIG_quota,
    CONFIG_nice,
    CONFIG_idle_io,
    CONFIG_upload_bytes_per_s,
    CONFIG_download_bytes_per_s,
    CONFIG_keep,
    CONFIG_disk_bytes,
};

static bool is_live(int option)
{
    for (size_t i = 0; i < sizeof live / sizeof live[0]; i++) {
        if ((int)live[i] == option) {
            return true;
        }
    }
    return false;
}

/* A peer below the floor of the run counts as broken (machine_config.c). */
static bool caps_fit(const struct daemon *d, const struct config *c)
{
    const struct manifest *run = machine_manifest(d->machine);
    uint64_t floor = run == NULL ? 0 : run->round.progress_floor_bytes_per_s;

    return (c->upload_bytes_per_s == 0 || c->upload_bytes_per_s >= floor) &&
           (c->download_bytes_per_s == 0 || c->download_bytes_per_s >= floor);
}

void reload(struct daemon *d)
{
    char now[CONFIG_TEXT_MAX], next[CONFIG_TEXT_MAX];

    if (config_parse(d->argc, d->argv, &d->next, d->errmsg) != 0) {
        log_warn("main", "the settings stay as they are: %s", d->errmsg);
        return;
    }
    if (!caps_fit(d, &d->next)) {
        log_warn("main", "the settings stay as they are: in this run a peer "
                         "below round.progress_floor_bytes_per_s is given up");
        return;
    }
    if (!machine_disk_fits(d->machine, d->next.disk_bytes,
                           (unsigned)d->next.keep)) {
        log_warn("main", "the settings stay as they are: this run needs more "
                         "than disk_bytes with so many checkpoints (keep)");
        return;
    }
    for (int i = 0; i < CONFIG_OPTION_COUNT; i++) {
        enum config_option o = (enum config_option)i;

        config_text(&d->config, o, now);
        config_text(&d->next, o, next);
        if (strcmp(now, next) == 0) {
            continue;
        }
        if (is_live(i)) {
            log_info("main", "%s is %s now", config_name(o), next);
            config_copy(&d->config, &d->next, o);
        } else {
            log_warn("main", "%s will be %s at the next start", config_name(o),
                     next);
        }
    }
    log_set_level((enum log_level)log_level_parse(d->config.log));
    log_set_json(d->config.log_json);
    machine_set_disk(d->machine, d->config.disk_bytes,
                     (unsigned)d->config.keep);
    machine_set_cap(d->machine, d->config.download_bytes_per_s);
    shell_set_caps(d->shell, d->config.upload_bytes_per_s,
                   d->config.download_bytes_per_s);
    guest_configure(&d->guest, &d->config);
    tell_revoked(d);
    if (control_access_renew(d->control, d->config.control_hosts, d->errmsg) !=
        0) {
        log_warn("main", "the old tokens hold: %s", d->errmsg);
    }
}
