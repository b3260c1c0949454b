/* life.c - the loop, signals, the end; see locod.h. */
#include "daemon/locod.h"

#include <signal.h>
#include <unistd.h>

#include "daemon/settings/state_dir.h"
#include "proto/base/err.h"
#include "proto/base/log.h"

#define PUBLISH_MS 250

static void on_signal(uv_signal_t *handle, int signum)
{
    struct daemon *d = handle->data;
    struct local_event ev = {.type = LOCAL_DRAIN};

    d->ending = true;
    d->restart = false; /* whoever asked for it, this process is to end */
    write_lock(d->lock_fd, STATE_DIR_LOCK_ENDING);
    if (d->stopping) {
        return; /* and the shell may be closed */
    }
    if (d->n_signals++ > 0) {
        log_warn("main", "second signal: stopping at once");
        d->exit_code = LOCO_EXIT_OK;
        begin_stop(d);
        return;
    }
    log_info("main", "%s: draining; a second signal stops at once",
             signum == SIGTERM ? "SIGTERM" : "SIGINT");
    (void)shell_post(d->shell, &ev);
}

static void on_hup(uv_signal_t *handle, int signum)
{
    struct daemon *d = handle->data;

    (void)signum;
    if (!d->stopping) { /* else what it would tell is closed or was never */
        notify_reloading(&d->notify);
        reload(d);
        notify_reloaded(&d->notify);
    }
}

/* A program that was killed drains nobody: else its locod would be a member
 * without work, and hold disk and memory, for ever. */
void watch_training_loop(struct daemon *d)
{
    struct local_event ev = {.type = LOCAL_DRAIN};
    uint64_t now = shell_now_ms(), grace_ms = d->config.loop_grace_s * 1000;

    if (!machine_waits_for_loop(d->machine)) {
        d->looped_ms = now;
        return;
    }
    if (d->looped_ms == 0 || grace_ms == 0 || now - d->looped_ms < grace_ms) {
        d->looped_ms = d->looped_ms == 0 ? now : d->looped_ms;
        return;
    }
    d->looped_ms = now; /* to be said once */
    log_info("main",
             "no training loop was here for %llu s (--loop-grace-s): draining",
             (unsigned long long)d->config.loop_grace_s);
    (void)shell_post(d->shell, &ev);
}

void watch_end(struct daemon *d, const struct node_status *s)
{
    struct local_event ev = {.type = LOCAL_DRAIN};
    uint64_t now = shell_now_ms(), grace_ms = d->config.end_grace_s * 1000;

    if (s->state != NODE_FINISHED) {
        d->ended_ms = 0;
        return;
    }
    d->ended_ms = d->ended_ms == 0 ? now : d->ended_ms;
    if (grace_ms == 0 || now - d->ended_ms < grace_ms) {
        return;
    }
    d->ended_ms = now; /* to be said once */
    log_info("main", "the run ended %llu s ago (--end-grace-s): draining",
             (unsigned long long)d->config.end_grace_s);
    (void)shell_post(d->shell, &ev);
}

static void on_closed(void *data)
{
    struct daemon *d = data;

    d->n_open--;
}

void begin_stop(struct daemon *d)
{
    char path[FILE_PATH_MAX];

    if (d->stopping) {
        return;
    }
    d->stopping = true;
    if (d->restart) {
        notify_restarting(&d->notify);
    } else {
        notify_stopping(&d->notify);
    }
    if (state_path(d, STATE_DIR_CONTROL, path) == 0) {
        (void)unlink(path);
    }
    uv_stop(&d->loop); /* the rest happens outside of callbacks */
}

static void close_machine(struct daemon *d)
{
    if (d->machine != NULL) {
        d->n_open++;
        machine_close(d->machine, on_closed, d);
    }
}

/* Its connections received into the machine's memory until now. */
static void on_shell_closed(void *data)
{
    on_closed(data);
    close_machine(data);
}

/* Close in the reverse order of opening, running the loop until it is empty.
 * Signals keep their handlers to the end: by default they would kill us. */
void close_all(struct daemon *d)
{
    sigset_t both;

    d->stopping = true; /* after a start that failed, too */
    if (d->control != NULL) {
        control_close(d->control);
    }
    uv_close((uv_handle_t *)&d->publish, NULL);
    if (d->lan != NULL) {
        d->n_open++;
        lan_socket_close(d->lan, on_closed, d);
    }
    if (d->mapper != NULL) {
        d->n_open++;
        mapper_close(d->mapper, on_closed, d);
    }
    if (d->machine != NULL) {
        machine_disconnect(d->machine);
    }
    if (d->shell != NULL) {
        d->n_open++;
        shell_close(d->shell, on_shell_closed, d);
    } else {
        close_machine(d);
    }
    while (d->n_open > 0) {
        (void)uv_run(&d->loop, UV_RUN_ONCE);
    }
    (void)sigemptyset(&both);
    (void)sigaddset(&both, SIGTERM);
    (void)sigaddset(&both, SIGINT);
    (void)sigaddset(&both, SIGHUP);
    (void)sigprocmask(SIG_BLOCK, &both, NULL);
    /* One that was caught, but not yet told to us. */
    (void)uv_run(&d->loop, UV_RUN_NOWAIT);
    uv_close((uv_handle_t *)&d->sigterm, NULL);
    uv_close((uv_handle_t *)&d->sigint, NULL);
    uv_close((uv_handle_t *)&d->sighup, NULL);
    (void)uv_run(&d->loop, UV_RUN_DEFAULT);
    node_close(d->node);
    if (uv_loop_close(&d->loop) != 0) {
        log_error("main", "handles were left open");
    }
}

int open_loop(struct daemon *d)
{
    if (uv_loop_init(&d->loop) != 0 ||
        uv_signal_init(&d->loop, &d->sigterm) != 0 ||
        uv_signal_init(&d->loop, &d->sigint) != 0 ||
        uv_signal_init(&d->loop, &d->sighup) != 0 ||
        uv_timer_init(&d->loop, &d->publish) != 0) {
        return complain(TROUBLE_SYSTEM, "cannot make an event loop");
    }
    d->sigterm.data = d->sigint.data = d->sighup.data = d->publish.data = d;
    (void)signal(SIGPIPE, SIG_IGN);
    /* Before anybody can ask for it: it would end us until then. */
    (void)uv_signal_start(&d->sighup, on_hup, SIGHUP);
    return 0;
}

int serve(struct daemon *d)
{
    char id[ID_HEX_MAX];
    uint16_t port = 0;
    int rv;

    notify_open(&d->notify);
    notify_alive(&d->notify); /* it watches already, if we follow a program */
    guest_open(&d->guest, d->config.state);
    rv = open_machine(d);
    if (rv != 0) {
        return complain(TROUBLE_RESOURCES, "%s", loco_strerror(rv));
    }
    /* The node is told its port, so the shell comes first; the core's self is
     * filled in before the loop runs. */
    rv = open_node(d, 0);
    rv = rv != 0 ? rv : open_shell(d);
    if (rv != 0) {
        return rv;
    }
    machine_connect(d->machine, d->shell, d->node);
    /* Whoever reads STATE/control or the log may end us from then on. */
    (void)uv_signal_start(&d->sigterm, on_signal, SIGTERM);
    (void)uv_signal_start(&d->sigint, on_signal, SIGINT);
    rv = listen_on(d, &port);
    rv = rv != 0 ? rv : open_control(d);
    if (rv != 0) {
        return rv;
    }
    node_set_port(d->node, port);
    open_home(d, port);
    guest_configure(&d->guest, &d->config); /* for all threads that are */
    id_hex(&d->identity.id, id);
    log_info("main", "locod %s, peer %s, port %u, status at %s", LOCO_VERSION,
             id, port, control_address(d->control));
    tell_entrance(d, port);
    tell_revoked(d);
    on_publish(&d->publish);
    (void)uv_timer_start(&d->publish, on_publish, PUBLISH_MS, PUBLISH_MS);
    if (!d->stopping) {
        (void)uv_run(&d->loop, UV_RUN_DEFAULT);
    }
    return d->exit_code;
}
