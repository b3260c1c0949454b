/* open.c - the parts of the daemon and how they fit; see locod.h. */
#include "daemon/locod.h"

#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "daemon/settings/state_dir.h"
#include "p2p/prefix.h"
#include "p2p/uv/addr.h"
#include "proto/base/err.h"
#include "proto/base/log.h"
#include "proto/messages.h"

/* A view of 64 has 4032 directed edges; 100 bytes each. */
#define MAP_EDGES 8192

static void on_machine_stop(void *data, int exit_code)
{
    struct daemon *d = data;

    d->exit_code = exit_code;
    if (exit_code != LOCO_EXIT_OK) {
        (void)complain(
            exit_code == LOCO_EXIT_CONFIG         ? TROUBLE_MANIFEST
            : exit_code == LOCO_EXIT_IDENTITY     ? TROUBLE_IDENTITY_TWICE
            : exit_code == LOCO_EXIT_NETWORK      ? TROUBLE_UNREACHABLE
            : exit_code == LOCO_EXIT_INCOMPATIBLE ? TROUBLE_INCOMPATIBLE
            : exit_code == LOCO_EXIT_DEVICE       ? TROUBLE_DEVICE
            : exit_code == LOCO_EXIT_RESOURCES    ? TROUBLE_RESOURCES
                                                  : TROUBLE_SYSTEM,
            "it stops; the log above says why");
    }
    begin_stop(d);
}

int open_machine(struct daemon *d)
{
    struct machine_options mo = {
        .settings = &d->config,
        .state_dir = d->config.state,
        .self = d->identity.id,
        .run_id = d->run_id,
        .data_dir = d->config.run[0] != '\0' ? d->data_dir : NULL,
        .urls = strcmp(d->config.data_urls, "off") == 0   ? URLS_OFF
                : strcmp(d->config.data_urls, "any") == 0 ? URLS_ANY
                                                          : URLS_PUBLIC,
        .reference = getenv("LOCO_REFERENCE_KERNELS") != NULL,
        .time_scale = time_scale(),
    };
    const char *reason;

    if (d->device.plugin != NULL) {
        mo.device = &d->device;
        mo.gpu_bytes = d->gpu_bytes;
        mo.cpu_fallback = strcmp(d->config.gpu_fallback, "cpu") == 0;
        if (state_path(d, STATE_DIR_TUNING, d->tuning) == 0) {
            d->device.gpu.tuning_path = d->tuning;
        }
    }
    (void)backend_dtype_named(d->config.dtype, &mo.dtype); /* checked */
    if (affinity_parse(&mo.affinity, d->config.affinity, (int)d->config.threads,
                       &reason) != 0) {
        return complain(TROUBLE_SETTINGS, "%s", reason);
    }
    if (mo.reference) {
        log_warn("train", "LOCO_REFERENCE_KERNELS is set: training with the "
                          "slow reference kernels");
    }
    return machine_open(&d->machine, &d->loop, &mo, on_machine_stop, d);
}

/* Descriptors of all that is no connection; of all together. */
#define FILES_MAX       256
#define DESCRIPTORS_MAX 4096

/* How many connections may wait for their handshake: what they hold, files and
 * members cannot have. */
static uint32_t waiting_max(const struct shell_options *so)
{
    rlim_t rest, others = so->conns_max + FILES_MAX;
    struct rlimit n;

    if (getrlimit(RLIMIT_NOFILE, &n) != 0) {
        return 1;
    }
    if (n.rlim_cur < DESCRIPTORS_MAX) {
        n.rlim_cur =
            n.rlim_max < DESCRIPTORS_MAX ? n.rlim_max : DESCRIPTORS_MAX;
        (void)setrlimit(RLIMIT_NOFILE, &n);
        (void)getrlimit(RLIMIT_NOFILE, &n);
    }
    rest = n.rlim_cur > others ? n.rlim_cur - others : 1;
    return rest < so->arrivals.waiting_max ? (uint32_t)rest
                                           : so->arrivals.waiting_max;
}

int open_shell(struct daemon *d)
{
    struct shell_options so;
    struct shell_calls calls = machine_calls(d->machine);
    uint32_t scale = time_scale();

    shell_options_default(&so);
    message_frame_rules(d->rules);
    so.signer = &d->signer;
    so.run_id = d->run_id;
    so.version = HANDSHAKE_VERSION;
    so.rules = d->rules;
    so.n_rules = MESSAGE_TYPES_MAX;
    so.handshake_ms *= scale;
    so.arrivals.waiting_max = waiting_max(&so);
    so.linger_ms *= scale;
    so.unposted_ms *= scale;
    so.upload_bytes_per_s = d->config.upload_bytes_per_s;
    so.download_bytes_per_s = d->config.download_bytes_per_s;
    so.probe_ms *= scale;
    so.punch_ms *= scale;
    if (d->config.relay_rate > 0) {
        so.relay_bytes_per_s = d->config.relay_rate << 10;
    }
    so.plain_bulk = !d->config.encryption; /* machine/config.c checks the run */
    d->core = (struct core){
        .self = d->node,
        .step = node_step,
        .deadline = node_deadline,
    };
    return shell_open(&d->shell, &d->loop, &d->core, &so, &calls);
}

int listen_on(struct daemon *d, uint16_t *bound)
{
    struct uri_host h;
    char errmsg[LOCO_ERRMSG_MAX];
    int rv = uri_host_parse(d->config.listen, true, &h, errmsg);

    if (rv != 0) {
        return complain(TROUBLE_ADDRESS, "%s", errmsg);
    }
    rv = shell_listen(d->shell, h.host, h.port, bound);
    if (rv == UV_EADDRINUSE) {
        return complain(TROUBLE_PORT_IN_USE,
                        "port %u is in use: stop what listens there, or "
                        "choose another with --listen HOST:PORT",
                        h.port);
    }
    if (rv != 0) {
        return complain(TROUBLE_LISTEN,
                        "cannot listen on %s: %s; --listen takes an address "
                        "of this machine",
                        d->config.listen,
                        rv > -30000 ? uv_strerror(rv) : loco_strerror(rv));
    }
    h.port = *bound;
    (void)uri_host_format(&h, d->listen, sizeof d->listen);
    return 0;
}

/* Newcomers get a tenth of the upload cap and of the month's traffic, measured
 * over a long time. */
static void limit_strangers(const struct config *c, struct node_options *o)
{
    uint64_t month = c->quota * 1000000000U / 10;
    uint64_t mean = month / (30 * 86400U) + 1;

    o->stranger_bytes_per_s = c->upload_bytes_per_s / 10;
    if (c->quota > 0) {
        o->stranger_burst_bytes = month;
        if (o->stranger_bytes_per_s == 0 || o->stranger_bytes_per_s > mean) {
            o->stranger_bytes_per_s = mean < 1000000 ? mean : 1000000;
        }
    }
}

int open_node(struct daemon *d, uint16_t port)
{
    struct node_options *o = &d->node_options;
    int rv;

    o->self = d->identity.id;
    memcpy(o->public_key, d->identity.public, sizeof o->public_key);
    o->signer = d->signer;
    o->run_id = d->run_id;
    o->dialable = true;
    o->listen_port = port;
    o->features = d->config.punch ? HELLO_FEATURES : 0;
    o->relay_bytes_per_hour = d->config.relay << 20;
    limit_strangers(&d->config, o);
    o->site = (uint32_t)d->config.site;
    o->rounds = d->config.rounds;
    o->time_scale = time_scale();
    o->timeline = SHOWN_ROUNDS;
    o->edges = MAP_EDGES;
    if (uv_random(NULL, NULL, &o->seed, sizeof o->seed, 0, NULL) != 0) {
        return complain(TROUBLE_SYSTEM, "this machine has no randomness");
    }
    rv = node_open(&d->node, o, shell_now_ms());
    if (rv == LOCO_EFORMAT) {
        return complain(TROUBLE_STATE_DAMAGED,
                        "view.record in the state directory is damaged: "
                        "remove it to join as a newcomer");
    }
    if (rv != 0) {
        return complain(TROUBLE_RESOURCES, "%s", loco_strerror(rv));
    }
    load_convicts(d);
    return 0;
}

/* ---- the home network --------------------------------------------------- */

static void on_mapping(void *data, int rc, const struct address *at)
{
    struct daemon *d = data;
    struct local_event ev = {.type = LOCAL_MAPPED, .rc = rc};

    if (rc == 0) {
        ev.mapped.address = *at;
        tell_outer_address(d, at);
    }
    shell_told_port(d->shell, ev.mapped.address.port);
    (void)shell_post(d->shell, &ev);
}

static void on_nearby(void *data, const struct address *at)
{
    struct daemon *d = data;
    struct local_event ev = {.type = LOCAL_NEARBY, .nearby.address = *at};

    (void)shell_post(d->shell, &ev);
}

bool listens_on_loopback(const struct daemon *d)
{
    struct uri_host h;
    char errmsg[LOCO_ERRMSG_MAX];
    struct address a;

    if (uri_host_parse(d->config.listen, true, &h, errmsg) != 0 ||
        address_parse(h.host, 1, &a) != 0) {
        return false;
    }
    return (prefix_is_v4(a.ip) && a.ip[12] == 127) ||
           strcmp(h.host, "::1") == 0;
}

/* Neither holds up the start; without them the daemon does its work. */
void open_home(struct daemon *d, uint16_t port)
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
            log_warn("net", "cannot look for peers on this LAN: %s",
                     rv > -30000 ? uv_strerror(rv) : loco_strerror(rv));
        }
    }
}
