/* show.c - what the daemon says of itself, and who tells it what to do;
 * see locod.h. */
#include "daemon/locod.h"

#include <signal.h>
#include <string.h>
#include <unistd.h>

#include "daemon/settings/state_dir.h"
#include "proto/base/err.h"
#include "proto/base/errmsg.h"
#include "proto/trainer_msg.h"

static void on_command(void *data, enum control_command command)
{
    struct daemon *d = data;
    struct local_event ev = {.type = LOCAL_DRAIN};

    switch (command) {
    case CONTROL_PAUSE:
    case CONTROL_RESUME:
        guest_by_hand(&d->guest, command == CONTROL_PAUSE);
        return; /* on_publish() does it */
    case CONTROL_RESTART:
        d->restart = !d->ending; /* before it drains: see on_publish() */
        (void)shell_post(d->shell, &ev);
        return;
    case CONTROL_DRAIN:
        d->ending = true;
        d->restart = false;
        write_lock(d->lock_fd, STATE_DIR_LOCK_ENDING);
        (void)shell_post(d->shell, &ev);
        return;
    case CONTROL_RELOAD:
        (void)kill(getpid(), SIGHUP); /* to the loop's own handler */
        return;
    }
}

/* Pause or resume where the person or courtesy.h wants it. */
static void obey_guest(struct daemon *d, uint64_t bytes)
{
    enum guest_order order = guest_update(&d->guest, bytes, shell_now_ms());
    struct local_event ev = {.type = order == GUEST_PAUSE ? LOCAL_PAUSE
                                                          : LOCAL_RESUME};

    if (order != GUEST_NOTHING) {
        (void)shell_post(d->shell, &ev);
    }
}

/* What is in use of the limits of this machine. */
static void show_use(const struct daemon *d, struct status_extra *x)
{
    const struct courtesy_facts *f = &d->guest.facts;

    x->quota_bytes = f->quota_bytes;
    x->month_bytes = f->traffic.bytes;
    x->disk_bytes = machine_disk_used(d->machine);
    x->memory_bytes = machine_memory_need(d->machine);
    x->in_use = courtesy_in_use(f);
    x->on_battery = f->on_battery;
}

void on_publish(uv_timer_t *timer)
{
    struct daemon *d = timer->data;
    const struct manifest *run = machine_manifest(d->machine);
    struct node_status s;
    struct status_extra x = {
        .version = LOCO_VERSION,
        .pid = (uint32_t)getpid(),
        .peer_id = d->identity.id,
        .run_id = d->run_id,
        .run_name = run == NULL ? NULL : run->name,
        .listen = d->listen,
        .stop_tokens = run == NULL ? 0 : run->stop.tokens,
        .settings = &d->config,
    };
    struct history_look look = {
        .status = &s,
        .reason = s.reason,
        .notes = &d->notes,
    };
    char *json;

    node_status(d->node, &s);
    shell_stats(d->shell, &x.net);
    x.net.bytes_received += machine_url_bytes(d->machine);
    obey_guest(d, x.net.bytes_sent + x.net.bytes_received);
    if (s.state == NODE_PAUSED && guest_reason(&d->guest) != NULL) {
        (void)snprintf(s.reason, sizeof s.reason, "%s",
                       guest_reason(&d->guest));
    }
    watch_training_loop(d);
    watch_end(d, &s);
    machine_tick(d->machine);
    if (s.state == NODE_TRAINING && machine_waits_for_loop(d->machine)) {
        (void)snprintf(s.reason, sizeof s.reason,
                       "waiting for a training loop at %.150s/" TRAINER_SOCKET,
                       d->config.state);
        notify_idle(&d->notify, shell_now_ms());
    }
    show_use(d, &x);
    look_for_share(d);
    x.share = &d->share;
    x.eta_s = status_eta_update(&d->eta, status_progress(&s, x.stop_tokens),
                                shell_now_ms());
    if (s.state == NODE_SYNCING &&
        s.catch_up_ms > 0) { /* which knows what is made meanwhile */
        x.eta_s = (double)s.catch_up_ms / 1e3;
    }
    status_edges(&x, node_bandwidth(d->node), &d->identity.id, shell_now_ms());
    json = status_json(&s, &x);
    if (json != NULL) {
        control_publish(d->control, json);
    }
    look.bytes_sent = x.net.bytes_sent;
    look.bytes_received = x.net.bytes_received;
    if (d->restart) {
        notify_restarting(&d->notify);
    }
    control_trains(d->control, notify_update(&d->notify, &s, shell_now_ms()));
    if (shown_update(d->shown, d->node, &look)) {
        control_news(d->control);
    }
}

int open_control(struct daemon *d)
{
    char path[FILE_PATH_MAX], tokens[FILE_PATH_MAX], errmsg[ERRMSG_SIZE],
        line[CONTROL_ADDRESS_MAX + 2];
    const struct control_access access = {
        .tokens_path = tokens,
        .hosts = d->config.control_hosts,
        .always = strcmp(d->config.control_token, "always") == 0,
    };
    int n, rv;

    if (shown_open(&d->shown) != 0) {
        return complain(TROUBLE_RESOURCES, "out of memory");
    }
    if (state_path(d, STATE_DIR_TOKENS, tokens) != 0) {
        return complain(TROUBLE_STATE_DIR, "the state directory's path is "
                                           "long: choose another with --state");
    }
    rv = control_open(&d->control, d->config.control, &access, on_command, d,
                      d->errmsg);
    if (rv != 0) {
        return complain(rv == LOCO_EINVAL  ? TROUBLE_CONTROL
                        : rv == LOCO_EBUSY ? TROUBLE_CONTROL_IN_USE
                                           : TROUBLE_TOKENS,
                        "%s", d->errmsg);
    }
    control_serve(d->control, d->shown);
    control_settings(d->control, on_set);
    n = snprintf(line, sizeof line, "%s\n", control_address(d->control));
    if (state_path(d, STATE_DIR_CONTROL, path) != 0 ||
        file_write_whole(path, line, (size_t)n, errmsg) != 0) {
        return complain(TROUBLE_STATE_DIR, "%s", errmsg);
    }
    return 0;
}
