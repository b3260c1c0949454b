/* entrance.c - the line with which others join the run that this daemon
 * starts; see locod.h.
 *
 * At the start only the addresses of this machine's interfaces are known. The
 * address that a router shows to the world follows when the router maps a port;
 * until then the log says that it is missing.
 */
#include "daemon/locod.h"

#include <string.h>

#include "p2p/swarm/reach.h"
#include "p2p/uv/addr.h"
#include "proto/base/log.h"

/* A machine with bridges has many: no line of a log may be that long. */
#define ENTRANCES_MAX 3
#define COMMAND_MAX   (FILE_PATH_MAX + URI_TEXT_MAX)

static bool is_global(const struct uri_host *h)
{
    struct address a;

    return address_parse(h->host, h->port, &a) != 0 || /* a name */
           reach_is_global(&a);
}

/* False: others cannot dial it. Link-local addresses mean something only
 * together with an interface. */
static bool
host_of(const uv_interface_address_t *i, bool with_ipv6, struct uri_host *h)
{
    const struct sockaddr_in6 *in6 = &i->address.address6;

    h->ipv6 = in6->sin6_family == AF_INET6;
    if (i->is_internal || (h->ipv6 && !with_ipv6) ||
        (h->ipv6 && IN6_IS_ADDR_LINKLOCAL(&in6->sin6_addr))) {
        return false;
    }
    return (h->ipv6 ? uv_ip6_name(in6, h->host, sizeof h->host)
                    : uv_ip4_name(&i->address.address4, h->host,
                                  sizeof h->host)) == 0;
}

/* Global addresses first: joining tries them in order. */
static void add_interfaces(struct uri *u, uint16_t port, bool with_ipv6)
{
    uv_interface_address_t *list;
    int n;

    if (uv_interface_addresses(&list, &n) != 0) {
        return;
    }
    for (int pass = 0; pass < 2; pass++) {
        for (int i = 0; i < n && u->n_hosts < ENTRANCES_MAX; i++) {
            struct uri_host h = {.port = port};

            if (host_of(&list[i], with_ipv6, &h) &&
                is_global(&h) == (pass == 0)) {
                u->hosts[u->n_hosts++] = h;
            }
        }
    }
    uv_free_interface_addresses(list, n);
}

/* What a person types on another machine; for a run for invited peers, what
 * the author types on this one. */
static void
command_of(const struct daemon *d, const struct uri *u, char out[COMMAND_MAX])
{
    char host[URI_HOST_MAX + 16] = "", text[URI_TEXT_MAX] = "";

    if (d->node_options.has_admission) {
        (void)uri_host_format(&u->hosts[0], host, sizeof host);
        (void)snprintf(out, COMMAND_MAX,
                       "the line that this prints: loco run invite %s "
                       "--host %s",
                       d->config.run, host);
    } else {
        (void)uri_format(u, text, sizeof text);
        (void)snprintf(out, COMMAND_MAX, "loco join %s", text);
    }
}

void own_hosts(const struct daemon *d, struct uri *u)
{
    struct uri_host listen;

    if (uri_host_parse(d->listen, false, &listen, NULL) != 0) {
        return;
    }
    if (strcmp(listen.host, "0.0.0.0") == 0 || strcmp(listen.host, "::") == 0) {
        add_interfaces(u, listen.port, listen.ipv6);
    } else {
        u->hosts[u->n_hosts++] = listen;
    }
}

void tell_entrance(const struct daemon *d, uint16_t port)
{
    struct uri u = {.run = d->run_id};
    char command[COMMAND_MAX], run[ID_HEX_MAX];

    if (d->config.run[0] == '\0') {
        return;
    }
    own_hosts(d, &u);
    if (u.n_hosts == 0) {
        hash32_hex(&d->run_id, run);
        log_info("main",
                 "this machine has no address in a network yet; once it has "
                 "one, others join with: loco join loco://ADDRESS:%u/%s",
                 port, run);
        return;
    }
    command_of(d, &u, command);
    if (listens_on_loopback(d)) {
        log_info("main", "others on this machine join with: %s", command);
    } else if (is_global(&u.hosts[0])) {
        log_info("main", "others join with: %s", command);
    } else {
        log_info("main", "others on this network join with: %s", command);
        log_info("main",
                 "others elsewhere need the router's outer address, which is "
                 "not known yet; if the router maps no port by itself, "
                 "forward its TCP port %u to this machine",
                 port);
    }
}

void tell_outer_address(const struct daemon *d, const struct address *at)
{
    struct uri u = {.n_hosts = 1, .run = d->run_id};
    char text[ADDRESS_TEXT_MAX], command[COMMAND_MAX];

    address_text(at, text);
    if (d->config.run[0] != '\0' && reach_is_global(at) &&
        uri_host_parse(text, false, &u.hosts[0], NULL) == 0) {
        command_of(d, &u, command);
        log_info("main", "others elsewhere join with: %s", command);
    }
}
