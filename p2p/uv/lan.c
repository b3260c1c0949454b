/* lan.c - see lan.h. */
#include "p2p/uv/lan.h"

#include <net/if.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include <sodium.h>

#include "p2p/swarm/lan.h"
#include "p2p/uv/addr.h"
#include "p2p/uv/loop.h"
#include "proto/base/err.h"

struct lan_socket {
    struct lan core;
    uv_udp_t udp, udp6;
    bool has6; /* udp6 is open */
    uv_timer_t timer;
    unsigned n_handles;
    lan_cb cb;
    void *data;
    lan_close_cb done;
    void *done_data;
    char room[256]; /* a longer datagram is not ours */
};

/* ---- saying ------------------------------------------------------------- */

static void say_on(struct lan_socket *l,
                   const struct sockaddr_in *self,
                   const uint8_t *bytes)
{
    uv_buf_t buf = uv_buf_init((char *)(uintptr_t)bytes, LAN_BYTES);
    struct sockaddr_in to;
    char text[INET_ADDRSTRLEN];

    if (uv_ip4_name(self, text, sizeof text) != 0 ||
        uv_ip4_addr(LAN_GROUP, LAN_PORT, &to) != 0) {
        return;
    }
    /* An interface that came since the last time; joined twice is no harm. */
    (void)uv_udp_set_membership(&l->udp, LAN_GROUP, text, UV_JOIN_GROUP);
    if (uv_udp_set_multicast_interface(&l->udp, text) == 0) {
        (void)uv_udp_try_send(&l->udp, &buf, 1, (const struct sockaddr *)&to);
    }
}

static bool is_link_local(const struct sockaddr_in6 *a)
{
    return a->sin6_addr.s6_addr[0] == 0xfe &&
           (a->sin6_addr.s6_addr[1] & 0xc0) == 0x80;
}

/* libuv wants an interface as an address of it, with a scope. */
static void join6(struct lan_socket *l, const char *name)
{
    char where[8 + IF_NAMESIZE];

    (void)snprintf(where, sizeof where, "::%%%.*s", IF_NAMESIZE, name);
    (void)uv_udp_set_membership(&l->udp6, LAN_GROUP6, where, UV_JOIN_GROUP);
}

/* From that very address, so by a socket of its own, which is no handle of the
 * loop: one datagram that does not wait. */
static void say_on6(struct lan_socket *l,
                    const char *name,
                    const struct sockaddr_in6 *self,
                    const uint8_t *bytes)
{
    struct sockaddr_in6 to, from = *self;
    unsigned scope = if_nametoindex(name);
    int fd, hops = 1;

    if (scope == 0 || uv_ip6_addr(LAN_GROUP6, LAN_PORT, &to) != 0) {
        return;
    }
    join6(l, name);
    if (is_link_local(self)) {
        return;
    }
    fd = socket(AF_INET6, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0) {
        return;
    }
    from.sin6_port = 0;
    to.sin6_scope_id = scope;
    if (bind(fd, (const struct sockaddr *)&from, sizeof from) == 0 &&
        setsockopt(fd, IPPROTO_IPV6, IPV6_MULTICAST_IF, &scope, sizeof scope) ==
            0 &&
        setsockopt(fd, IPPROTO_IPV6, IPV6_MULTICAST_HOPS, &hops, sizeof hops) ==
            0) {
        (void)sendto(fd, bytes, LAN_BYTES, 0, (const struct sockaddr *)&to,
                     sizeof to);
    }
    close(fd);
}

static void say(struct lan_socket *l)
{
    uint8_t bytes[LAN_BYTES];
    uv_interface_address_t *list;
    int n;

    if (!lan_say(&l->core, shell_now_ms(), bytes) ||
        uv_interface_addresses(&list, &n) != 0) {
        return;
    }
    for (int i = 0; i < n; i++) {
        if (list[i].is_internal) {
            continue;
        }
        if (list[i].address.address4.sin_family == AF_INET) {
            say_on(l, &list[i].address.address4, bytes);
        } else if (l->has6 &&
                   list[i].address.address6.sin6_family == AF_INET6) {
            say_on6(l, list[i].name, &list[i].address.address6, bytes);
        }
    }
    uv_free_interface_addresses(list, n);
}

static void arm(struct lan_socket *l);

static void on_timer(uv_timer_t *timer)
{
    struct lan_socket *l = timer->data;

    say(l);
    arm(l);
}

static void arm(struct lan_socket *l)
{
    uint64_t due = lan_deadline(&l->core), now = shell_now_ms();

    uv_timer_start(&l->timer, on_timer, due > now ? due - now : 0, 0);
}

/* ---- hearing ------------------------------------------------------------ */

static void on_alloc(uv_handle_t *handle, size_t hint, uv_buf_t *buf)
{
    struct lan_socket *l = handle->data;

    (void)hint;
    *buf = uv_buf_init(l->room, sizeof l->room);
}

static bool is_on_link(const struct address *from)
{
    uv_interface_address_t *list;
    bool found = false;
    int n;

    if (uv_interface_addresses(&list, &n) != 0) {
        return false;
    }
    for (int i = 0; i < n && !found; i++) {
        struct address own, mask;

        if (address_from_sockaddr((const struct sockaddr *)&list[i].address,
                                  &own) == 0 &&
            address_from_sockaddr((const struct sockaddr *)&list[i].netmask,
                                  &mask) == 0) {
            found = lan_is_near(from->ip, own.ip, mask.ip);
        }
    }
    uv_free_interface_addresses(list, n);
    return found;
}

static void on_datagram(uv_udp_t *udp,
                        ssize_t n,
                        const uv_buf_t *buf,
                        const struct sockaddr *from,
                        unsigned flags)
{
    struct lan_socket *l = udp->data;
    struct address a;
    uint16_t port;

    (void)flags;
    if (n <= 0 || from == NULL || address_from_sockaddr(from, &a) != 0) {
        return;
    }
    if (lan_hear(&l->core, (const uint8_t *)buf->base, (size_t)n,
                 shell_now_ms(), &port) &&
        is_on_link(&a)) {
        a.port = port;
        l->cb(l->data, &a);
        arm(l);
    }
}

/* ---- life --------------------------------------------------------------- */

static void on_closed(uv_handle_t *handle)
{
    struct lan_socket *l = handle->data;
    lan_close_cb done = l->done;
    void *data = l->done_data;

    if (--l->n_handles > 0) {
        return;
    }
    free(l);
    if (done != NULL) {
        done(data);
    }
}

void lan_socket_close(struct lan_socket *l, lan_close_cb done, void *data)
{
    l->done = done;
    l->done_data = data;
    uv_close((uv_handle_t *)&l->udp, on_closed);
    uv_close((uv_handle_t *)&l->udp6, on_closed);
    uv_close((uv_handle_t *)&l->timer, on_closed);
}

static int bind_udp(struct lan_socket *l)
{
    struct sockaddr_in any;
    int rv = uv_ip4_addr("0.0.0.0", LAN_PORT, &any);

    rv = rv != 0 ? rv
                 : uv_udp_bind(&l->udp, (const struct sockaddr *)&any,
                               UV_UDP_REUSEADDR);
    rv = rv != 0 ? rv : uv_udp_set_multicast_ttl(&l->udp, 1);
    /* Other processes on this machine hear us as well. */
    rv = rv != 0 ? rv : uv_udp_set_multicast_loop(&l->udp, 1);
    return rv != 0 ? rv : uv_udp_recv_start(&l->udp, on_alloc, on_datagram);
}

/* False: this machine has no IPv6. */
static bool bind_udp6(struct lan_socket *l)
{
    struct sockaddr_in6 any;

    return uv_ip6_addr("::", LAN_PORT, &any) == 0 &&
           uv_udp_bind(&l->udp6, (const struct sockaddr *)&any,
                       UV_UDP_REUSEADDR | UV_UDP_IPV6ONLY) == 0 &&
           uv_udp_recv_start(&l->udp6, on_alloc, on_datagram) == 0;
}

int lan_socket_open(struct lan_socket **lan,
                    uv_loop_t *loop,
                    const struct hash32 *run,
                    uint16_t port,
                    lan_cb cb,
                    void *data)
{
    struct lan_socket *l = calloc(1, sizeof *l);
    uint64_t instance;
    int rv;

    if (l == NULL) {
        return LOCO_ENOMEM;
    }
    randombytes_buf(&instance, sizeof instance);
    lan_init(&l->core, run, instance, port, shell_now_ms());
    l->cb = cb;
    l->data = data;
    uv_timer_init(loop, &l->timer); /* None can fail: no socket yet. */
    uv_udp_init(loop, &l->udp);
    uv_udp_init(loop, &l->udp6);
    l->timer.data = l->udp.data = l->udp6.data = l;
    l->n_handles = 3;
    l->has6 = bind_udp6(l);
    rv = bind_udp(l);
    if (rv != 0 && !l->has6) {
        lan_socket_close(l, NULL, NULL);
        return rv;
    }
    arm(l);
    *lan = l;
    return 0;
}
