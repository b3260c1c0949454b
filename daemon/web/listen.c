/* listen.c - see web/listen.h. */
#include "daemon/web/listen.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netdb.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "proto/base/err.h"
#include "proto/base/errmsg.h"

#define UNIX_PREFIX "unix:"

static int listen_unix(struct web_socket *s,
                       const char *setting,
                       const char *path,
                       char *errmsg)
{
    struct sockaddr_un at = {.sun_family = AF_UNIX};
    mode_t mask;
    int fd, rc;

    if (path[0] == '\0' || strlen(path) >= sizeof at.sun_path) {
        return errmsg_invalid(
            errmsg, "%s unix:%.100s: a socket path has 1 to %zu bytes", setting,
            path, sizeof at.sun_path - 1);
    }
    memcpy(at.sun_path, path, strlen(path) + 1);
    fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0) {
        return errmsg_fail(errmsg, LOCO_EIO, "%s: socket: %s", setting,
                           strerror(errno));
    }
    if (connect(fd, (struct sockaddr *)&at, sizeof at) == 0) {
        (void)close(fd);
        return errmsg_fail(errmsg, LOCO_EBUSY,
                           "%s unix:%.100s: another process serves it", setting,
                           path);
    }
    if (errno == ECONNREFUSED) {
        (void)unlink(path); /* left by a process that is gone */
    }
    mask = umask(077);
    rc = bind(fd, (struct sockaddr *)&at, sizeof at);
    (void)umask(mask);
    if (rc != 0 || listen(fd, WEB_CONNECTIONS_MAX) != 0) {
        rc = errmsg_fail(errmsg, errno == EADDRINUSE ? LOCO_EBUSY : LOCO_EIO,
                         "%s unix:%.100s: %s", setting, path, strerror(errno));
        (void)close(fd);
        return rc;
    }
    (void)snprintf(s->path, sizeof s->path, "%s", path);
    (void)snprintf(s->address, sizeof s->address, UNIX_PREFIX "%s", s->path);
    s->fd = fd;
    return 0;
}

static bool is_loopback(const struct sockaddr *a)
{
    if (a->sa_family == AF_INET) {
        const struct sockaddr_in *in = (const void *)a;

        return ntohl(in->sin_addr.s_addr) >> 24 == 127;
    }
    if (a->sa_family == AF_INET6) {
        const struct sockaddr_in6 *in = (const void *)a;

        return IN6_IS_ADDR_LOOPBACK(&in->sin6_addr);
    }
    return false;
}

/* "[::1]:80" or "127.0.0.1:80" into host and port. */
static bool address_split(const char *address, char host[128], char port[8])
{
    const char *colon = strrchr(address, ':');
    const char *from = address;
    size_t len;

    if (colon == NULL || strlen(colon + 1) == 0 || strlen(colon + 1) > 5 ||
        strspn(colon + 1, "0123456789") != strlen(colon + 1)) {
        return false;
    }
    len = (size_t)(colon - address);
    if (len >= 2 && from[0] == '[' && colon[-1] == ']') {
        from++;
        len -= 2;
    }
    if (len == 0 || len >= 128) {
        return false;
    }
    memcpy(host, from, len);
    host[len] = '\0';
    memcpy(port, colon + 1, strlen(colon + 1) + 1);
    return true;
}

static void address_write(struct web_socket *s)
{
    struct sockaddr_storage at;
    socklen_t len = sizeof at;
    char host[INET6_ADDRSTRLEN];

    memset(&at, 0, sizeof at);
    (void)getsockname(s->fd, (struct sockaddr *)&at, &len);
    if (at.ss_family == AF_INET6) {
        const struct sockaddr_in6 *in = (const void *)&at;

        (void)inet_ntop(AF_INET6, &in->sin6_addr, host, sizeof host);
        s->port = ntohs(in->sin6_port);
        (void)snprintf(s->address, sizeof s->address, "[%s]:%u", host, s->port);
    } else {
        const struct sockaddr_in *in = (const void *)&at;

        (void)inet_ntop(AF_INET, &in->sin_addr, host, sizeof host);
        s->port = ntohs(in->sin_port);
        (void)snprintf(s->address, sizeof s->address, "%s:%u", host, s->port);
    }
}

static int bind_tcp(struct web_socket *s, const struct addrinfo *at)
{
    const int on = 1;
    int fd = socket(at->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);

    if (fd < 0) {
        return -1;
    }
    (void)setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (bind(fd, at->ai_addr, at->ai_addrlen) != 0 ||
        listen(fd, WEB_CONNECTIONS_MAX) != 0) {
        int why = errno;

        (void)close(fd);
        errno = why;
        return -1;
    }
    s->fd = fd;
    address_write(s);
    return 0;
}

static int listen_tcp(struct web_socket *s,
                      const char *setting,
                      const char *address,
                      bool anywhere,
                      char *errmsg)
{
    const struct addrinfo hints = {.ai_socktype = SOCK_STREAM,
                                   .ai_flags = AI_NUMERICSERV};
    struct addrinfo *found = NULL;
    char host[128], port[8];
    int rv = 0;

    if (!address_split(address, host, port) ||
        getaddrinfo(host, port, &hints, &found) != 0 || found == NULL) {
        return errmsg_invalid(errmsg,
                              "%s '%.120s' is not HOST:PORT or unix:PATH",
                              setting, address);
    }
    s->remote = !is_loopback(found->ai_addr);
    if (s->remote && !anywhere) {
        rv = errmsg_invalid(
            errmsg,
            "%s '%.120s' can be reached from other machines: use "
            "127.0.0.1:PORT or unix:PATH",
            setting, address);
    } else if (bind_tcp(s, found) != 0) {
        rv = errmsg_fail(errmsg, errno == EADDRINUSE ? LOCO_EBUSY : LOCO_EIO,
                         "%s %.120s: %s%s", setting, address, strerror(errno),
                         errno == EADDRINUSE ? "; choose another port or 0"
                                             : "");
    }
    freeaddrinfo(found);
    return rv;
}

int web_listen(struct web_socket *s,
               const char *setting,
               const char *address,
               bool anywhere,
               char errmsg[ERRMSG_SIZE])
{
    static const size_t n_prefix = sizeof UNIX_PREFIX - 1;

    return strncmp(address, UNIX_PREFIX, n_prefix) == 0
               ? listen_unix(s, setting, address + n_prefix, errmsg)
               : listen_tcp(s, setting, address, anywhere, errmsg);
}

void web_unlink(const struct web_socket *s)
{
    if (s->path[0] != '\0') {
        (void)unlink(s->path);
    }
}
