/* main.c - locod: argv, files, signals, exit codes around one node.
 *
 * Happy path: config -> state directory (lock, key) -> run (run.yaml or URI)
 * -> node + machine + shell + control -> loop -> drain -> exit.
 * SIGTERM and SIGINT drain; the second one stops at once.
 */
#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <uv.h>

#include "daemon/config.h"
#include "daemon/control.h"
#include "daemon/guest.h"
#include "daemon/machine.h"
#include "daemon/node.h"
#include "daemon/notify.h"
#include "daemon/run_yaml.h"
#include "daemon/shown.h"
#include "daemon/state_dir.h"
#include "daemon/status_json.h"
#include "p2p/uv/addr.h"
#include "p2p/uv/lan.h"
#include "p2p/uv/loop.h"
#include "p2p/uv/mapper.h"
#include "proto/base/err.h"
#include "proto/base/log.h"
#include "proto/dht_msg.h"
#include "proto/messages.h"
#include "proto/uri.h"
#include "train/errmsg.h"
#include "train/file.h"

#define PUBLISH_MS 250
#define RULES_MAX  256
/* A view of 64 has 4032 directed edges; 100 bytes each. */
#define MAP_EDGES 8192

struct daemon {
    struct config config, next; /* next: while it is read again */
    int argc;                   /* of the process, for that */
    char **argv;
    struct guest guest;
    int exit_code;
    bool stopping;
    unsigned n_signals;

    int lock_fd;
    struct identity identity;
    struct signer signer;
    struct hash32 run_id;
    char data_dir[FILE_PATH_MAX];   /* where run.yaml is */
    char listen[URI_HOST_MAX + 16]; /* as bound */
    struct device_options device;   /* plugin NULL: the processor */
    char tuning[FILE_PATH_MAX];     /* of the GPU's products */
    uint8_t *manifest;
    size_t manifest_len;
    uint8_t *record;
    size_t record_len;
    uint8_t *peers;
    size_t peers_len;
    uint8_t *chain;
    size_t chain_len;
    struct node_options node_options;

    uv_loop_t loop;
    uv_signal_t sigterm, sigint, sighup;
    uv_timer_t publish;
    struct frame_rule rules[RULES_MAX];
    struct node *node;
    struct core core;
    struct machine *machine;
    struct shell *shell;
    struct control *control;
    struct mapper *mapper;
    struct lan_socket *lan;
    struct status_eta eta;
    struct notify notify;
    struct shown *shown; /* what the HTTP thread may read */
    unsigned n_open;     /* machine, shell, ..., while closing */
    char errmsg[CONFIG_ERRMSG_MAX];
};

static int complain(int exit_code, const char *what)
{
    (void)fprintf(stderr, "locod: %s\n", what);
    return exit_code;
}

/* ---- state directory -------------------------------------------------- */

static int state_path(const struct daemon *d, const char *name, char *out)
{
    char errmsg[ERRMSG_SIZE];

    return file_path_join(out, d->config.state, name, errmsg);
}

/* mkdir -p, mode 0700 for what is new. */
static int make_state_dir(struct daemon *d)
{
    char path[CONFIG_TEXT_MAX];

    (void)snprintf(path, sizeof path, "%s", d->config.state);
    for (char *p = path + 1;; p++) {
        if (*p == '/' || *p == '\0') {
            char was = *p;

            *p = '\0';
            if (mkdir(path, 0700) != 0 && errno != EEXIST) {
                (void)fprintf(stderr,
                              "locod: cannot make the state directory %s: "
                              "%s; choose another with --state\n",
                              path, strerror(errno));
                return LOCO_EXIT_STATE;
            }
            if (was == '\0') {
                return 0;
            }
            *p = was;
        }
    }
}

static int lock_state(struct daemon *d)
{
    char path[FILE_PATH_MAX];

    if (make_state_dir(d) != 0 || state_path(d, STATE_DIR_LOCK, path) != 0) {
        return LOCO_EXIT_STATE;
    }
    d->lock_fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (d->lock_fd < 0 || flock(d->lock_fd, LOCK_EX | LOCK_NB) != 0) {
        (void)fprintf(stderr,
                      "locod: the state directory %s is in use by another "
                      "locod: stop that one, or give this one its own with "
                      "--state\n",
                      d->config.state);
        return LOCO_EXIT_STATE;
    }
    return 0;
}

static int load_identity(struct daemon *d)
{
    char path[FILE_PATH_MAX], errmsg[LOCO_ERRMSG_MAX];
    int rv = state_path(d, STATE_DIR_KEY, path);

    if (rv != 0) {
        return complain(LOCO_EXIT_STATE, "the state directory's path is long");
    }
    rv = identity_load(&d->identity, path, errmsg);
    if (rv == LOCO_ENOENT) {
        rv = identity_generate(&d->identity, NULL);
        rv = rv == 0 ? identity_save(&d->identity, path, errmsg) : rv;
    }
    if (rv != 0) {
        return complain(LOCO_EXIT_IDENTITY, errmsg);
    }
    d->signer = signer_sodium(&d->identity);
    return 0;
}

/* A whole small file into memory; NULL where there is none. */
static uint8_t *read_file(const struct daemon *d, const char *name, size_t *len)
{
    char path[FILE_PATH_MAX], errmsg[ERRMSG_SIZE];
    struct file_map map;
    uint8_t *bytes = NULL;

    if (state_path(d, name, path) != 0 ||
        file_map_open(&map, path, errmsg) != 0) {
        return NULL;
    }
    if (map.size > 0) {
        bytes = malloc(map.size);
    }
    if (bytes != NULL) {
        memcpy(bytes, map.data, map.size);
        *len = map.size;
    }
    file_map_close(&map);
    return bytes;
}

/* ---- the run ---------------------------------------------------------- */

static int run_from_file(struct daemon *d)
{
    struct run_yaml *r = malloc(sizeof *r);
    char errmsg[LOCO_ERRMSG_MAX];
    const char *slash;
    int n;

    d->manifest = malloc(MANIFEST_WIRE_MAX);
    if (r == NULL || d->manifest == NULL) {
        free(r);
        return complain(LOCO_EXIT_RESOURCES, "out of memory");
    }
    if (run_yaml_load(d->config.run, RUN_YAML_SIGNED, r, errmsg) != 0) {
        free(r);
        return complain(LOCO_EXIT_CONFIG, errmsg);
    }
    d->run_id = r->run_id;
    slash = strrchr(d->config.run, '/');
    (void)snprintf(d->data_dir, sizeof d->data_dir, "%.*s",
                   slash == NULL ? 1 : (int)(slash - d->config.run) + 1,
                   slash == NULL ? "." : d->config.run);
    n = manifest_pack(&r->manifest, r->signature, d->manifest,
                      MANIFEST_WIRE_MAX);
    free(r);
    if (n < 0) {
        return complain(LOCO_EXIT_CONFIG, loco_strerror(n));
    }
    d->manifest_len = (size_t)n;
    return 0;
}

static int resolve(const struct uri_host *h, struct address *out)
{
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM}, *list;
    char port[8];
    int rv;

    (void)snprintf(port, sizeof port, "%u", h->port);
    if (getaddrinfo(h->host, port, &hints, &list) != 0) {
        return LOCO_ENOENT;
    }
    rv = address_from_sockaddr(list->ai_addr, out);
    freeaddrinfo(list);
    return rv;
}

static int run_from_uri(struct daemon *d)
{
    struct node_options *o = &d->node_options;
    char errmsg[LOCO_ERRMSG_MAX];
    struct uri *u = malloc(sizeof *u);

    if (u == NULL || uri_parse(d->config.join, u, errmsg) != 0) {
        free(u);
        return complain(LOCO_EXIT_USAGE, errmsg);
    }
    d->run_id = u->run;
    o->pin = u->peer;
    for (uint32_t i = 0; i < u->n_hosts; i++) {
        if (o->n_bootstrap == NODE_BOOTSTRAP_MAX) {
            break;
        }
        if (resolve(&u->hosts[i], &o->bootstrap[o->n_bootstrap]) == 0) {
            o->n_bootstrap++;
        } else {
            (void)fprintf(stderr, "locod: cannot resolve the bootstrap %s\n",
                          u->hosts[i].host);
        }
    }
    free(u);
    if (o->n_bootstrap == 0) {
        return complain(LOCO_EXIT_NETWORK,
                        "no bootstrap address can be resolved: check the name "
                        "in the URI and this machine's DNS");
    }
    d->manifest = read_file(d, STATE_DIR_MANIFEST, &d->manifest_len);
    return 0;
}

/* ---- composition ------------------------------------------------------ */

static void set_rules(struct daemon *d)
{
    for (uint16_t type = 0; type < RULES_MAX; type++) {
        const struct msg_schema *s = message_schema(type);
        size_t max = 0;

        s = s != NULL ? s : dht_msg_schema(type);
        if (s != NULL) {
            max = msg_bytes_max(s);
            d->rules[type].delivery = FRAME_WHOLE;
            d->rules[type].bytes_max =
                (uint32_t)(max < FRAME_CONTROL_MAX ? max : FRAME_CONTROL_MAX);
        }
    }
}

static uint32_t time_scale(void)
{
    const char *text = getenv("LOCO_TIME_SCALE");
    long n = text == NULL ? 1 : strtol(text, NULL, 10);

    return n >= 1 && n <= 1000 ? (uint32_t)n : 1;
}

static void begin_stop(struct daemon *d);

static void on_machine_stop(void *data, int exit_code)
{
    struct daemon *d = data;

    d->exit_code = exit_code;
    begin_stop(d);
}

static int open_machine(struct daemon *d)
{
    struct machine_options mo = {
        .state_dir = d->config.state,
        .self = d->identity.id,
        .run_id = d->run_id,
        .threads = (int)d->config.threads,
        .data_dir = d->config.run[0] != '\0' ? d->data_dir : NULL,
        .reference = getenv("LOCO_REFERENCE_KERNELS") != NULL,
        .time_scale = time_scale(),
        .encryption = d->config.encryption,
        .upload_bytes_per_s = d->config.upload_bytes_per_s,
        .download_bytes_per_s = d->config.download_bytes_per_s,
    };
    const char *reason;

    if (d->device.plugin != NULL) {
        mo.device = &d->device;
        mo.cpu_fallback = strcmp(d->config.gpu_fallback, "cpu") == 0;
        if (state_path(d, STATE_DIR_TUNING, d->tuning) == 0) {
            d->device.gpu.tuning_path = d->tuning;
        }
    }
    (void)backend_dtype_named(d->config.dtype, &mo.dtype); /* checked */
    if (affinity_parse(&mo.affinity, d->config.affinity, mo.threads, &reason) !=
        0) {
        return complain(LOCO_EXIT_CONFIG, reason);
    }
    if (mo.reference) {
        log_warn("train", "LOCO_REFERENCE_KERNELS is set: training with the "
                          "slow reference kernels");
    }
    return machine_open(&d->machine, &d->loop, &mo, on_machine_stop, d);
}

static int open_shell(struct daemon *d)
{
    struct shell_options so;
    struct shell_calls calls = machine_calls(d->machine);
    uint32_t scale = time_scale();

    shell_options_default(&so);
    set_rules(d);
    so.signer = &d->signer;
    so.run_id = d->run_id;
    so.version = PROTO_VERSION;
    so.rules = d->rules;
    so.n_rules = RULES_MAX;
    so.handshake_ms *= scale;
    so.linger_ms *= scale;
    so.unposted_ms *= scale;
    so.upload_bytes_per_s = d->config.upload_bytes_per_s;
    so.download_bytes_per_s = d->config.download_bytes_per_s;
    so.probe_ms *= scale;
    if (d->config.relay_rate > 0) {
        so.relay_bytes_per_s = d->config.relay_rate << 10;
    }
    so.plain_bulk = !d->config.encryption; /* machine_config.c checks the run */
    d->core = (struct core){
        .self = d->node,
        .step = node_step,
        .deadline = node_deadline,
    };
    return shell_open(&d->shell, &d->loop, &d->core, &so, &calls);
}

static int listen_on(struct daemon *d, uint16_t *bound)
{
    struct uri_host h;
    char errmsg[LOCO_ERRMSG_MAX];
    int rv = uri_host_parse(d->config.listen, true, &h, errmsg);

    if (rv != 0) {
        return complain(LOCO_EXIT_USAGE, errmsg);
    }
    rv = shell_listen(d->shell, h.host, h.port, bound);
    if (rv == UV_EADDRINUSE) {
        (void)fprintf(stderr,
                      "locod: port %u is in use: stop what listens there, or "
                      "choose another with --listen HOST:PORT\n",
                      h.port);
        return LOCO_EXIT_NETWORK;
    }
    if (rv != 0) {
        (void)fprintf(stderr, "locod: cannot listen on %s: %s\n",
                      d->config.listen,
                      rv > -30000 ? uv_strerror(rv) : loco_strerror(rv));
        return LOCO_EXIT_NETWORK;
    }
    h.port = *bound;
    (void)uri_host_format(&h, d->listen, sizeof d->listen);
    return 0;
}

static int open_node(struct daemon *d, uint16_t port)
{
    struct node_options *o = &d->node_options;
    int rv;

    o->self = d->identity.id;
    memcpy(o->public_key, d->identity.public, sizeof o->public_key);
    o->signer = d->signer;
    o->run_id = d->run_id;
    o->dialable = true;
    o->listen_port = port;
    o->relay_bytes_per_hour = d->config.relay << 20;
    o->site = (uint32_t)d->config.site;
    o->rounds = d->config.rounds;
    o->manifest = d->manifest;
    o->manifest_len = d->manifest_len;
    o->record = d->record;
    o->record_len = d->record_len;
    o->peers = d->peers;
    o->peers_len = d->peers_len;
    o->chain = d->chain;
    o->chain_len = d->chain_len;
    o->time_scale = time_scale();
    o->timeline = SHOWN_ROUNDS;
    o->edges = MAP_EDGES;
    if (uv_random(NULL, NULL, &o->seed, sizeof o->seed, 0, NULL) != 0) {
        return complain(LOCO_EXIT_FAILURE, "this machine has no randomness");
    }
    rv = node_open(&d->node, o, shell_now_ms());
    if (rv == LOCO_EFORMAT) {
        return complain(LOCO_EXIT_STATE,
                        "view.record in the state directory is damaged: "
                        "remove it to join as a newcomer");
    }
    return rv == 0 ? 0 : complain(LOCO_EXIT_RESOURCES, loco_strerror(rv));
}

/* ---- control and status ----------------------------------------------- */

static void on_command(void *data, enum control_command command)
{
    struct daemon *d = data;
    struct local_event ev = {.type = LOCAL_DRAIN};

    switch (command) {
    case CONTROL_PAUSE:
    case CONTROL_RESUME:
        guest_by_hand(&d->guest, command == CONTROL_PAUSE);
        return; /* on_publish() does it */
    case CONTROL_DRAIN:
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

static void on_publish(uv_timer_t *timer)
{
    struct daemon *d = timer->data;
    const struct manifest *run = machine_manifest(d->machine);
    struct node_status s;
    struct shell_stats net;
    struct status_extra x = {
        .version = LOCO_VERSION,
        .peer_id = d->identity.id,
        .run_id = d->run_id,
        .run_name = run == NULL ? NULL : run->name,
        .listen = d->listen,
        .stop_tokens = run == NULL ? 0 : run->stop.tokens,
        .cap_threads = d->config.threads,
        .cap_rounds = d->config.rounds,
        .cap_upload_bytes_per_s = d->config.upload_bytes_per_s,
        .cap_download_bytes_per_s = d->config.download_bytes_per_s,
        .cap_month_bytes = d->guest.facts.quota_bytes,
        .month_bytes = d->guest.facts.traffic.bytes,
        .schedule = d->config.schedule,
        .battery = d->config.battery,
        .on_battery = d->guest.facts.on_battery,
    };
    struct history_look look = {
        .status = &s,
        .reason = s.reason,
    };
    char *json;

    node_status(d->node, &s);
    shell_stats(d->shell, &net);
    obey_guest(d, net.bytes_sent + net.bytes_received);
    if (s.state == NODE_PAUSED && guest_reason(&d->guest) != NULL) {
        (void)snprintf(s.reason, sizeof s.reason, "%s",
                       guest_reason(&d->guest));
    }
    x.bytes_sent = net.bytes_sent;
    x.bytes_received = net.bytes_received;
    x.refused = (struct status_refused){
        .connections = net.accepts_refused,
        .pauses = net.accept_pauses,
        .handshakes = net.handshakes_failed,
        .frames = net.frames_refused,
        .segments = net.segments_refused,
        .queues = net.links_full,
    };
    x.eta_s = status_eta_update(&d->eta, status_progress(&s, x.stop_tokens),
                                shell_now_ms());
    status_edges(&x, node_bandwidth(d->node), &d->identity.id, shell_now_ms());
    json = status_json(&s, &x);
    if (json != NULL) {
        control_publish(d->control, json);
    }
    look.bytes_sent = net.bytes_sent;
    look.bytes_received = net.bytes_received;
    notify_update(&d->notify, &s, shell_now_ms());
    if (shown_update(d->shown, d->node, &look)) {
        control_news(d->control);
    }
}

static int open_control(struct daemon *d)
{
    char path[FILE_PATH_MAX], errmsg[ERRMSG_SIZE],
        line[CONTROL_ADDRESS_MAX + 2];
    int n, rv;

    if (shown_open(&d->shown) != 0) {
        return complain(LOCO_EXIT_RESOURCES, "out of memory");
    }
    rv = control_open(&d->control, d->config.control, on_command, d, d->errmsg);
    if (rv != 0) {
        return complain(rv == LOCO_EINVAL ? LOCO_EXIT_CONFIG
                                          : LOCO_EXIT_NETWORK,
                        d->errmsg);
    }
    control_serve(d->control, d->shown);
    n = snprintf(line, sizeof line, "%s\n", control_address(d->control));
    if (state_path(d, STATE_DIR_CONTROL, path) != 0 ||
        file_write_whole(path, line, (size_t)n, errmsg) != 0) {
        return complain(LOCO_EXIT_STATE, errmsg);
    }
    return 0;
}

/* ---- the home network --------------------------------------------------- */

static void on_mapping(void *data, int rc, const struct address *at)
{
    struct daemon *d = data;
    struct local_event ev = {.type = LOCAL_MAPPED, .rc = rc};

    if (rc == 0) {
        ev.address = *at;
    }
    shell_told_port(d->shell, ev.address.port);
    (void)shell_post(d->shell, &ev);
}

static void on_nearby(void *data, const struct address *at)
{
    struct daemon *d = data;
    struct local_event ev = {.type = LOCAL_NEARBY, .address = *at};

    (void)shell_post(d->shell, &ev);
}

/* Whether anybody but this machine can reach what we listen on. */
static bool listens_on_loopback(const struct daemon *d)
{
    struct uri_host h;
    char errmsg[LOCO_ERRMSG_MAX];
    struct address a;
    bool v4 = false;

    if (uri_host_parse(d->config.listen, true, &h, errmsg) != 0 ||
        address_parse(h.host, 1, &a) != 0) {
        return false;
    }
    v4 = a.ip[10] == 0xff && a.ip[12] == 127;
    return v4 || strcmp(h.host, "::1") == 0;
}

/* Neither holds up the start; without them the daemon does its work. */
static void open_home(struct daemon *d, uint16_t port)
{
    int rv;

    if (listens_on_loopback(d)) {
        return;
    }
    if (strcmp(d->config.mapping, "auto") == 0 &&
        mapper_open(&d->mapper, &d->loop, port, on_mapping, d) != 0) {
        log_warn("net", "no thread to ask the router for a port");
    }
    if (d->config.lan) {
        rv = lan_socket_open(&d->lan, &d->loop, &d->run_id, port, on_nearby, d);
        if (rv != 0) {
            log_warn("net", "peers on this LAN are not looked for: %s",
                     rv > -30000 ? uv_strerror(rv) : loco_strerror(rv));
        }
    }
}

/* ---- life ------------------------------------------------------------- */

static void on_signal(uv_signal_t *handle, int signum)
{
    struct daemon *d = handle->data;
    struct local_event ev = {.type = LOCAL_DRAIN};

    if (d->n_signals++ > 0) {
        log_warn("main", "second signal: stopping at once");
        d->exit_code = LOCO_EXIT_OK;
        begin_stop(d);
        return;
    }
    log_info("main", "%s: draining; a second one stops at once",
             signum == SIGTERM ? "SIGTERM" : "SIGINT");
    (void)shell_post(d->shell, &ev);
}

/* Settings that change while it runs; the others at the next start. */
static const enum config_option live[] = {
    CONFIG_log,
    CONFIG_log_json,
    CONFIG_schedule,
    CONFIG_battery,
    CONFIG_quota,
    CONFIG_nice,
    CONFIG_idle_io,
    CONFIG_upload_bytes_per_s,
    CONFIG_download_bytes_per_s,
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

static void reload(struct daemon *d)
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
    shell_set_caps(d->shell, d->config.upload_bytes_per_s,
                   d->config.download_bytes_per_s);
    guest_configure(&d->guest, &d->config);
}

static void on_hup(uv_signal_t *handle, int signum)
{
    (void)signum;
    reload(handle->data);
}

static void on_closed(void *data)
{
    struct daemon *d = data;

    d->n_open--;
}

static void begin_stop(struct daemon *d)
{
    char path[FILE_PATH_MAX];

    if (d->stopping) {
        return;
    }
    d->stopping = true;
    notify_stopping(&d->notify);
    if (state_path(d, STATE_DIR_CONTROL, path) == 0) {
        (void)unlink(path);
    }
    uv_stop(&d->loop); /* the rest happens outside of callbacks */
}

/* Close in the reverse order of opening, running the loop until it is empty.
 * Signals keep their handlers to the end: by default they would kill us. */
static void close_all(struct daemon *d)
{
    sigset_t both;

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
        d->n_open++;
        machine_close(d->machine, on_closed, d);
    }
    while (d->n_open > 0) {
        (void)uv_run(&d->loop, UV_RUN_ONCE);
    }
    if (d->shell != NULL) {
        d->n_open++;
        shell_close(d->shell, on_closed, d);
    }
    while (d->n_open > 0) {
        (void)uv_run(&d->loop, UV_RUN_ONCE);
    }
    (void)sigemptyset(&both);
    (void)sigaddset(&both, SIGTERM);
    (void)sigaddset(&both, SIGINT);
    (void)sigaddset(&both, SIGHUP);
    (void)sigprocmask(SIG_BLOCK, &both, NULL);
    uv_close((uv_handle_t *)&d->sigterm, NULL);
    uv_close((uv_handle_t *)&d->sigint, NULL);
    uv_close((uv_handle_t *)&d->sighup, NULL);
    (void)uv_run(&d->loop, UV_RUN_DEFAULT);
    node_close(d->node);
    if (uv_loop_close(&d->loop) != 0) {
        log_error("main", "handles were left open");
    }
}

static int open_loop(struct daemon *d)
{
    if (uv_loop_init(&d->loop) != 0 ||
        uv_signal_init(&d->loop, &d->sigterm) != 0 ||
        uv_signal_init(&d->loop, &d->sigint) != 0 ||
        uv_signal_init(&d->loop, &d->sighup) != 0 ||
        uv_timer_init(&d->loop, &d->publish) != 0) {
        return complain(LOCO_EXIT_FAILURE, "cannot make an event loop");
    }
    d->sigterm.data = d->sigint.data = d->sighup.data = d->publish.data = d;
    (void)signal(SIGPIPE, SIG_IGN);
    /* Before anybody can ask for it: it would end us until then. */
    (void)uv_signal_start(&d->sighup, on_hup, SIGHUP);
    return 0;
}

static int serve(struct daemon *d)
{
    char id[ID_HEX_MAX];
    uint16_t port = 0;
    int rv;

    notify_open(&d->notify);
    guest_open(&d->guest, d->config.state);
    rv = open_machine(d);
    if (rv != 0) {
        return complain(LOCO_EXIT_RESOURCES, loco_strerror(rv));
    }
    /* The node is told its port, so the shell comes first; the core's self is
     * filled in before the loop runs. */
    rv = open_node(d, 0);
    rv = rv != 0 ? rv : open_shell(d);
    if (rv != 0) {
        return rv;
    }
    machine_connect(d->machine, d->shell, d->node);
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
    on_publish(&d->publish);
    (void)uv_timer_start(&d->publish, on_publish, PUBLISH_MS, PUBLISH_MS);
    (void)uv_signal_start(&d->sigterm, on_signal, SIGTERM);
    (void)uv_signal_start(&d->sigint, on_signal, SIGINT);
    if (!d->stopping) {
        (void)uv_run(&d->loop, UV_RUN_DEFAULT);
    }
    return d->exit_code;
}

static int usage(const struct daemon *d)
{
    (void)printf(
        "usage: locod --state DIR --listen HOST:PORT (--run FILE | --join "
        "URI)\n\nTrains a language model together with the other peers of a "
        "run.\n\n");
    config_print_options(stdout);
    (void)d;
    return LOCO_EXIT_OK;
}

/* Where a GPU is asked for and there is none: say so before anything else. */
static int check_gpu(struct daemon *d)
{
    struct backend probe;
    char errmsg[PLUGIN_ERRMSG];

    if (strcmp(d->config.device, "cpu") == 0) {
        return 0;
    }
    d->device = (struct device_options){
        .plugin = d->config.gpu_plugin,
        .gpu = {.bf16 = strcmp(d->config.dtype, "fp32") != 0,
                .memory_bytes = d->config.gpu_memory_bytes},
    };
    if (backend_device(&probe, &d->device, errmsg) != 0) {
        return complain(LOCO_EXIT_DEVICE, errmsg);
    }
    log_info("train", "%s, %s, %llu MB free", device_info(probe.device)->name,
             device_info(probe.device)->isa,
             (unsigned long long)device_info(probe.device)->free_bytes >> 20);
    backend_close(&probe);
    return 0;
}

static int configure(struct daemon *d, int argc, char **argv)
{
    if (config_parse(argc, argv, &d->config, d->errmsg) != 0) {
        return complain(d->config.exit_code, d->errmsg);
    }
    if (d->config.help || d->config.version) {
        return 0;
    }
    if ((d->config.run[0] == '\0') == (d->config.join[0] == '\0')) {
        return complain(LOCO_EXIT_USAGE,
                        "give one of --run FILE (start a run) and --join URI "
                        "(join one)");
    }
    log_set_level((enum log_level)log_level_parse(d->config.log));
    log_set_json(d->config.log_json);
    return check_gpu(d);
}

int main(int argc, char **argv)
{
    struct daemon *d = calloc(1, sizeof *d);
    int rv;

    if (d == NULL || sign_start() != 0) {
        free(d);
        return complain(LOCO_EXIT_RESOURCES,
                        "cannot start: out of memory, or the system "
                        "gives no random numbers");
    }
    d->lock_fd = d->notify.fd = -1;
    d->argc = argc;
    d->argv = argv;
    rv = configure(d, argc, argv);
    if (rv == 0 && (d->config.help || d->config.version)) {
        rv = d->config.help ? usage(d) : (puts("locod " LOCO_VERSION), 0);
        free(d);
        return rv;
    }
    rv = rv != 0 ? rv : lock_state(d);
    rv = rv != 0 ? rv : load_identity(d);
    if (rv == 0) {
        rv = d->config.run[0] != '\0' ? run_from_file(d) : run_from_uri(d);
    }
    if (rv == 0) {
        d->record = read_file(d, STATE_DIR_RECORD, &d->record_len);
        d->peers = read_file(d, STATE_DIR_PEERS, &d->peers_len);
        d->chain = read_file(d, STATE_DIR_CHAIN, &d->chain_len);
        rv = open_loop(d);
    }
    if (rv == 0) {
        rv = serve(d);
        close_all(d);
        guest_close(&d->guest);
    }
    identity_wipe(&d->identity);
    shown_close(d->shown);
    notify_close(&d->notify);
    free(d->record);
    free(d->peers);
    free(d->chain);
    free(d->manifest);
    free(d);
    return rv;
}
