/* guest.c - see guest.h. */
#include "daemon/settings/guest.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/settings/state_dir.h"
#include "proto/base/clock.h"
#include "proto/base/errmsg.h"
#include "proto/base/file.h"
#include "proto/base/log.h"

void guest_open(struct guest *g, const char *state_dir)
{
    char text[64] = "", errmsg[ERRMSG_SIZE];
    FILE *f;

    memset(&g->facts, 0, sizeof g->facts);
    atomic_init(&g->by_hand, false);
    if (file_path_join(g->file, state_dir, STATE_DIR_TRAFFIC, errmsg) != 0) {
        return;
    }
    f = fopen(g->file, "re");
    if (f != NULL) {
        if (fgets(text, sizeof text, f) == NULL ||
            !courtesy_traffic_read(&g->facts.traffic, text)) {
            log_warn("main",
                     "%s is damaged: the month's traffic is counted "
                     "from 0",
                     g->file);
        }
        (void)fclose(f);
    }
}

void guest_configure(struct guest *g, const struct config *config)
{
    char errmsg[COURTESY_ERRMSG_MAX];
    bool idle_io = config->idle_io;
    int nice = (int)config->nice;

    /* config_check() has read it before. */
    (void)courtesy_schedule_parse(&g->facts.schedule, config->schedule, errmsg);
    g->facts.battery_pauses = strcmp(config->battery, "pause") == 0;
    g->facts.quota_bytes = config->quota * 1000000000U;
    g->facts.idle_minutes = config->idle_minutes;
    g->looked_ms = g->presence_ms = 0;
    if ((nice != g->nice || idle_io != g->idle_io) &&
        courtesy_be_nice(nice, idle_io) != 0) {
        log_warn("main",
                 "this system does not allow nice %d, idle_io %s; a lower nice "
                 "takes effect at the next start",
                 nice, idle_io ? "on" : "off");
    }
    g->nice = nice;
    g->idle_io = idle_io;
}

void guest_by_hand(struct guest *g, bool paused)
{
    atomic_store(&g->by_hand, paused);
}

void guest_save(struct guest *g)
{
    char text[40], errmsg[ERRMSG_SIZE];

    if (g->file[0] == '\0' || g->facts.traffic.year == 0) {
        return;
    }
    courtesy_traffic_print(&g->facts.traffic, text);
    if (file_write_whole(g->file, text, strlen(text), errmsg) != 0) {
        log_warn("main", "cannot write the month's traffic: %s", errmsg);
    }
}

static void look(struct guest *g, uint64_t bytes, uint64_t now_ms)
{
    const char *sys = getenv("LOCO_SYSFS"), *root = getenv("LOCO_ROOT");
    time_t now = (time_t)(wall_ms() / 1000);

    (void)localtime_r(&now, &g->facts.local);
    g->facts.on_battery = courtesy_on_battery(sys == NULL ? "/sys" : sys);
    courtesy_traffic_count(&g->facts.traffic, bytes, &g->facts.local);
    if (g->facts.idle_minutes > 0 &&
        (g->presence_ms == 0 || now_ms >= g->presence_ms + GUEST_PRESENCE_MS)) {
        g->presence_ms = now_ms;
        presence_look(root == NULL ? "" : root, now, &g->facts.presence);
    }
}

enum guest_order guest_update(struct guest *g, uint64_t bytes, uint64_t now_ms)
{
    bool by_hand = atomic_load(&g->by_hand), pause;

    if (g->looked_ms == 0 || now_ms >= g->looked_ms + GUEST_LOOK_MS) {
        g->looked_ms = now_ms;
        look(g, bytes, now_ms);
    }
    if (g->saved_ms == 0 || now_ms >= g->saved_ms + GUEST_SAVE_MS) {
        g->saved_ms = now_ms;
        guest_save(g);
    }
    pause = courtesy_pauses(&g->facts, g->reason) || by_hand;
    if (by_hand) {
        (void)snprintf(g->reason, sizeof g->reason,
                       "by hand, until loco resume");
    }
    if (pause == g->paused) {
        return GUEST_NOTHING;
    }
    g->paused = pause;
    if (pause) {
        log_info("main", "paused: %s", g->reason);
    } else {
        log_info("main", "training may go on");
    }
    return pause ? GUEST_PAUSE : GUEST_RESUME;
}

const char *guest_reason(const struct guest *g)
{
    return g->paused ? g->reason : NULL;
}
