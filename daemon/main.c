/* main.c - locod: argv, the order of things, exit codes.
 *
 * Happy path: config -> state directory (lock, key) -> run (run.yaml or URI)
 * -> node + machine + shell + control -> loop -> drain -> exit.
 * SIGTERM and SIGINT drain; the second one stops at once.
 */
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <curl/curl.h>

#include "daemon/locod.h"
#include "proto/base/err.h"
#include "proto/base/log.h"

int complain(enum trouble what, const char *fmt, ...)
{
    va_list args;

    (void)fprintf(stderr, "%slocod: ", log_prefix(LOG_ERROR));
    va_start(args, fmt);
    (void)vfprintf(stderr, fmt, args);
    va_end(args);
    (void)fprintf(stderr, " [%s]\n", trouble_id(what));
    return trouble_exit(what);
}

uint32_t time_scale(void)
{
    const char *text = getenv("LOCO_TIME_SCALE");
    long n = text == NULL ? 1 : strtol(text, NULL, 10);

    return n >= 1 && n <= 1000 ? (uint32_t)n : 1;
}

static int usage(void)
{
    (void)printf(
        "usage: locod --state DIR --listen HOST:PORT (--run FILE | --join "
        "URI)\n\nTrains a language model together with the other peers of a "
        "run.\n\n");
    config_print_options(stdout);
    return LOCO_EXIT_OK;
}

/* Where a GPU is asked for and there is none: say so before anything else. */
static int check_gpu(struct daemon *d)
{
    struct plugin_info info;
    char errmsg[PLUGIN_ERRMSG];
    int rv;

    if (strcmp(d->config.device, "cpu") == 0) {
        if (strcmp(d->config.gpus, "0") != 0) {
            log_warn("train", "gpus %s: not used; device is cpu, not cuda",
                     d->config.gpus);
        }
        return 0;
    }
    d->device = (struct device_options){
        .plugin = d->config.gpu_plugin,
        .gpu = {.bf16 = strcmp(d->config.dtype, "fp32") != 0,
                .memory_bytes = d->config.gpu_memory_bytes},
    };
    rv = device_find(&d->device, d->config.gpus, &info, errmsg);
    if (rv == LOCO_EINVAL) {
        return complain(TROUBLE_SETTINGS, "%s", errmsg);
    }
    if (rv == 0) {
        d->gpu_bytes = info.free_bytes;
        log_info("train", "%s, %s, %llu MB for training", info.name, info.isa,
                 (unsigned long long)info.free_bytes >> 20);
    }
    return rv == 0 ? 0 : complain(TROUBLE_DEVICE, "%s", errmsg);
}

/* Whoever has the invitation may take part in its place. */
static void check_secrecy(const struct config *c)
{
    struct stat st;

    if (c->source[CONFIG_join] == CONFIG_FILE &&
        strstr(c->join, "invite=") != NULL && stat(c->file, &st) == 0 &&
        (st.st_mode & 0004) != 0) {
        log_warn("main",
                 "%s holds an invitation, and every account of this machine "
                 "can read it: chmod o-rwx %s",
                 c->file, c->file);
    }
}

static int configure(struct daemon *d, int argc, char **argv)
{
    if (config_parse(argc, argv, &d->config, d->errmsg) != 0) {
        return complain(trouble_of_settings(d->config.exit_code), "%s",
                        d->errmsg);
    }
    if (d->config.help || d->config.version) {
        return 0;
    }
    if ((d->config.run[0] == '\0') == (d->config.join[0] == '\0')) {
        return complain(TROUBLE_NO_RUN,
                        "give one of --run FILE (start a run) and --join URI "
                        "(join one)");
    }
    log_set_level((enum log_level)log_level_parse(d->config.log));
    log_set_json(d->config.log_json);
    check_secrecy(&d->config);
    return check_gpu(d);
}

/* Shards are mapped: whoever cuts one short under us (cp over it does) makes
 * the next read of it fail. Nothing can be repaired here. */
static void on_bus(int signum)
{
    static const char text[] =
        "locod: a data file was cut short while it was in use, or its disk "
        "failed: restore the file and start again [configuration]\n";

    (void)signum;
    if (write(STDERR_FILENO, text, sizeof text - 1) < 0) {
        _exit(LOCO_EXIT_FAILURE);
    }
    _exit(LOCO_EXIT_CONFIG);
}

static void on_early_signal(int signum)
{
    _exit(128 + signum);
}

void end_on_signals(void)
{
    if (getpid() == 1) {
        (void)signal(SIGTERM, on_early_signal);
        (void)signal(SIGINT, on_early_signal);
    }
}

int main(int argc, char **argv)
{
    struct daemon *d = calloc(1, sizeof *d);
    char program[FILE_PATH_MAX];
    bool again;
    int rv, lock_fd;

    if (d == NULL || sign_start() != 0) {
        free(d);
        return complain(TROUBLE_RESOURCES,
                        "cannot start: out of memory, or the system "
                        "gives no random numbers");
    }
    d->lock_fd = d->identity_fd = d->notify.fd = -1;
    (void)pthread_mutex_init(&d->set_lock, NULL);
    log_find_journal();
    end_on_signals();
    d->argc = argc;
    d->argv = argv;
    find_program(program);
    memcpy(d->program, program, sizeof program);
    (void)signal(SIGBUS, on_bus);
    (void)curl_global_init(CURL_GLOBAL_DEFAULT); /* before there are threads */
    rv = configure(d, argc, argv);
    if (rv == 0 && (d->config.help || d->config.version)) {
        rv = d->config.help ? usage() : (puts("locod " LOCO_VERSION), 0);
        free(d);
        return rv;
    }
    rv = rv != 0 ? rv : lock_state(d);
    rv = rv != 0 ? rv : load_identity(d);
    rv = rv != 0 ? rv : load_run(d);
    if (rv == 0) {
        load_past(d);
        rv = open_loop(d);
    }
    if (rv == 0) {
        rv = serve(d);
        close_all(d);
        guest_save(&d->guest);
    }
    identity_wipe(&d->identity);
    shown_close(d->shown);
    again = rv == LOCO_EXIT_OK && d->restart;
    if (again) {
        notify_alive(&d->notify); /* the next program needs its time, too */
    }
    notify_close(&d->notify);
    free(d->record);
    free(d->peers);
    free(d->chain);
    free(d->manifest);
    lock_fd = d->lock_fd;
    free(d);
    return again ? start_again(program, argv, lock_fd) : rv;
}
