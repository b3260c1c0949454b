/* guest.h - courtesy.h at work in the daemon: settings in, pause and resume
 * out.
 *
 * A person's word comes first: paused by hand stays paused until resumed by
 * hand; resumed by hand, what courtesy.h says holds. guest_by_hand() may be
 * called from any thread, all else from the loop thread.
 *
 * Looks at clock, battery and traffic every GUEST_LOOK_MS, writes the month's
 * traffic every GUEST_SAVE_MS; who uses the machine every GUEST_PRESENCE_MS.
 * For tests LOCO_SYSFS names another /sys, LOCO_ROOT another / for presence.h.
 */
#ifndef LOCO_DAEMON_SETTINGS_GUEST_H
#define LOCO_DAEMON_SETTINGS_GUEST_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "daemon/settings/config.h"
#include "daemon/settings/courtesy.h"

#define GUEST_LOOK_MS     1000
#define GUEST_SAVE_MS     60000
#define GUEST_PRESENCE_MS 5000

struct guest {
    struct courtesy_facts facts;
    atomic_bool by_hand; /* a person paused it */
    bool paused;         /* what was said last */
    char reason[COURTESY_REASON_MAX];
    uint64_t looked_ms, saved_ms, presence_ms;
    int nice;
    bool idle_io;
    char file[CONFIG_TEXT_MAX]; /* of the traffic */
};

enum guest_order { GUEST_NOTHING, GUEST_PAUSE, GUEST_RESUME };

void guest_open(struct guest *g, const char *state_dir);

/* The settings, at first and after each reload. */
void guest_configure(struct guest *g, const struct config *config);

void guest_by_hand(struct guest *g, bool paused);

/* What is to be done at `now_ms`, after `bytes` of traffic since the start. */
enum guest_order guest_update(struct guest *g, uint64_t bytes, uint64_t now_ms);

/* Why it is paused; NULL: it is not. */
const char *guest_reason(const struct guest *g);

/* Write the traffic down. */
void guest_save(struct guest *g);

#endif
