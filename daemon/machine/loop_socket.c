/* loop_socket.c - see loop_socket.h. */
#include "daemon/machine/loop_socket.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "proto/base/err.h"
#include "proto/base/errmsg.h"
#include "proto/base/log.h"

#define PAGE    4096U
#define WAITING 4

static int system_fail(char *errmsg, const char *what)
{
    return errmsg_fail(errmsg, errno == ENOSPC ? LOCO_EDISK : LOCO_EIO,
                       "cannot %s: %s", what, strerror(errno));
}

/* ---- the file ---------------------------------------------------------- */

static uint64_t page_up(uint64_t bytes)
{
    return (bytes + PAGE - 1) & ~(uint64_t)(PAGE - 1);
}

static uint64_t layout_bytes(const struct tensor_list *list)
{
    uint64_t bytes = 0;

    for (size_t i = 0; i < list->n; i++) {
        bytes += sizeof(struct trainer_tensor) +
                 trainer_name_room((uint32_t)strlen(list->at[i].name));
    }
    return bytes;
}

static void write_layout(const struct tensor_list *list, uint8_t *to)
{
    for (size_t i = 0; i < list->n; i++) {
        const struct tensor_entry *e = &list->at[i];
        struct trainer_tensor t = {
            .offset = e->offset,
            .numel = e->numel,
            .n_dims = e->n_dims,
            .name_bytes = (uint32_t)strlen(e->name),
        };

        for (unsigned k = 0; k < e->n_dims; k++) {
            t.shape[k] = e->shape[k];
        }
        memcpy(to, &t, sizeof t);
        memcpy(to + sizeof t, e->name, t.name_bytes);
        to += sizeof t + trainer_name_room(t.name_bytes);
    }
}

/* Where everything is, into WELCOME. */
static void place(struct loop_socket *s, const struct loop_socket_options *o)
{
    struct trainer_welcome *w = &s->welcome;
    uint64_t text;

    *w = o->welcome;
    w->version = TRAINER_MSG_VERSION;
    w->n = o->list->numel;
    w->n_tensors = (uint32_t)o->list->n;
    w->layout_at = PAGE;
    w->layout_bytes = layout_bytes(o->list);
    w->theta_at = PAGE + page_up(w->layout_bytes);
    w->bytes = w->theta_at + page_up(w->n * sizeof(float));
    w->tokens_at = w->targets_at = 0;
    text = (uint64_t)w->batch * w->seq * sizeof(uint32_t);
    if (o->has_text) {
        w->tokens_at = w->bytes;
        w->targets_at = w->tokens_at + page_up(text);
        w->bytes = w->targets_at + page_up(text);
    }
}

static int open_file(struct loop_socket *s,
                     const struct loop_socket_options *o,
                     char *errmsg)
{
    const struct trainer_welcome *w = &s->welcome;
    void *at;

    place(s, o);
    s->file = memfd_create("loco-theta", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (s->file < 0 || posix_fallocate(s->file, 0, (off_t)w->bytes) != 0 ||
        fcntl(s->file, F_ADD_SEALS,
              F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0) {
        return system_fail(errmsg, "make memory to share with a training loop");
    }
    at = mmap(NULL, w->bytes, PROT_READ | PROT_WRITE, MAP_SHARED, s->file, 0);
    if (at == MAP_FAILED) {
        return system_fail(errmsg, "map memory to share with a training loop");
    }
    s->shared = at;
    s->theta = (float *)(void *)(s->shared + w->theta_at);
    if (o->has_text) {
        s->tokens = (uint32_t *)(void *)(s->shared + w->tokens_at);
        s->targets = (uint32_t *)(void *)(s->shared + w->targets_at);
    }
    write_layout(o->list, s->shared + w->layout_at);
    return 0;
}

/* ---- the socket -------------------------------------------------------- */

/* A path may be longer than a socket's address: it goes through the directory's
 * descriptor. */
static int bind_in(int fd, int dir)
{
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    int rv;

    (void)snprintf(a.sun_path, sizeof a.sun_path,
                   "/proc/self/fd/%d/" TRAINER_SOCKET, dir);
    rv = bind(fd, (const struct sockaddr *)&a, sizeof a);
    /* Nobody can connect before listen(). */
    return rv != 0 ? rv : fchmodat(dir, TRAINER_SOCKET, 0600, 0);
}

static int open_socket(struct loop_socket *s, const char *dir, char *errmsg)
{
    s->dir = open(dir, O_PATH | O_DIRECTORY | O_CLOEXEC);
    s->listen =
        socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    s->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (s->dir < 0 || s->listen < 0 || s->wake < 0) {
        return system_fail(errmsg, "make a socket for a training loop");
    }
    /* The directory is this daemon's, by its lock: one of an earlier life. */
    (void)unlinkat(s->dir, TRAINER_SOCKET, 0);
    if (bind_in(s->listen, s->dir) != 0 || listen(s->listen, WAITING) != 0) {
        return system_fail(errmsg, "listen for a training loop at "
                                   "STATE/" TRAINER_SOCKET);
    }
    return 0;
}

int loop_socket_open(struct loop_socket *s,
                     const struct loop_socket_options *o,
                     char *errmsg)
{
    int rv;

    *s = (struct loop_socket){
        .dir = -1, .listen = -1, .conn = -1, .wake = -1, .file = -1};
    rv = open_file(s, o, errmsg);
    return rv != 0 ? rv : open_socket(s, o->dir, errmsg);
}

static void close_one(int *fd)
{
    if (*fd >= 0) {
        (void)close(*fd);
    }
    *fd = -1;
}

void loop_socket_close(struct loop_socket *s)
{
    if (s->listen >= 0) {
        (void)unlinkat(s->dir, TRAINER_SOCKET, 0);
    }
    close_one(&s->conn);
    close_one(&s->listen);
    close_one(&s->dir);
    close_one(&s->wake);
    close_one(&s->file);
    if (s->shared != NULL) {
        (void)munmap(s->shared, s->welcome.bytes);
    }
    s->shared = NULL;
    s->theta = NULL;
    s->tokens = s->targets = NULL;
}

void loop_socket_wait(struct loop_socket *s, int timeout_ms)
{
    struct pollfd p[] = {{.fd = s->wake, .events = POLLIN},
                         {.fd = s->listen, .events = POLLIN},
                         {.fd = s->conn, .events = POLLIN}};
    eventfd_t count;

    (void)poll(p, sizeof p / sizeof p[0], timeout_ms);
    (void)eventfd_read(s->wake, &count);
}

void loop_socket_wake(struct loop_socket *s)
{
    (void)eventfd_write(s->wake, 1);
}

/* ---- packets ----------------------------------------------------------- */

/* `file`: -1, or a descriptor that goes with it. */
static int send_packet(int fd, const struct trainer_msg *m, int file)
{
    uint8_t packet[TRAINER_PACKET_MAX];
    union {
        struct cmsghdr head;
        char room[CMSG_SPACE(sizeof(int))];
    } control = {0};
    struct iovec iov = {.iov_base = packet};
    struct msghdr h = {.msg_iov = &iov, .msg_iovlen = 1};
    int n = trainer_msg_encode(m, packet);

    if (n < 0) {
        return n;
    }
    iov.iov_len = (size_t)n;
    if (file >= 0) {
        control.head = (struct cmsghdr){.cmsg_len = CMSG_LEN(sizeof file),
                                        .cmsg_level = SOL_SOCKET,
                                        .cmsg_type = SCM_RIGHTS};
        memcpy(CMSG_DATA(&control.head), &file, sizeof file);
        h.msg_control = &control;
        h.msg_controllen = sizeof control.room;
    }
    /* It waits for a loop that does not read: no more than a few packets of
     * ours are ever on their way. */
    return sendmsg(fd, &h, MSG_NOSIGNAL | MSG_DONTWAIT) < 0 ? LOCO_EIO : 0;
}

void loop_socket_send(struct loop_socket *s, const struct trainer_msg *m)
{
    if (s->conn >= 0 && send_packet(s->conn, m, -1) != 0) {
        (void)shutdown(s->conn, SHUT_RDWR); /* its next read ends it */
    }
}

static void set_text(uint8_t *to, uint16_t *n, const char *text)
{
    size_t len = strlen(text);

    *n = (uint16_t)(len < TRAINER_TEXT_MAX ? len : TRAINER_TEXT_MAX);
    memcpy(to, text, *n);
}

static void refuse(int fd, const char *text)
{
    struct trainer_msg m = {.type = TRAINER_MSG_REFUSED};

    set_text(m.refused.text, &m.refused.n_text, text);
    (void)send_packet(fd, &m, -1);
    (void)close(fd);
}

void loop_socket_dismiss(struct loop_socket *s, uint32_t code, const char *text)
{
    struct trainer_msg m = {.type = TRAINER_MSG_STOP, .stop.code = code};

    set_text(m.stop.text, &m.stop.n_text, text);
    loop_socket_send(s, &m);
    if (s->conn >= 0) {
        (void)shutdown(s->conn, SHUT_RDWR);
    }
}

static bool is_ours(int fd)
{
    struct ucred c;
    socklen_t len = sizeof c;

    return getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &c, &len) == 0 &&
           (c.uid == geteuid() || c.uid == 0);
}

/* The next one that knocks; a second loop is told who is here. */
static void accept_one(struct loop_socket *s)
{
    int fd = accept4(s->listen, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    char text[TRAINER_TEXT_MAX];

    if (fd < 0) {
        return;
    }
    if (!is_ours(fd)) {
        (void)close(fd);
    } else if (s->conn >= 0) {
        (void)snprintf(text, sizeof text,
                       "another training loop (process %u) trains for this "
                       "daemon; end it, or give this one a state directory of "
                       "its own",
                       s->hello.pid);
        refuse(fd, text);
    } else {
        s->conn = fd;
        s->greeted = false;
        s->hello = (struct trainer_hello){0};
    }
}

static enum loop_event leave(struct loop_socket *s)
{
    bool was_here = s->greeted;

    close_one(&s->conn);
    s->greeted = false;
    return was_here ? LOOP_LEFT : LOOP_NOTHING;
}

static enum loop_event greet(struct loop_socket *s, const struct trainer_msg *m)
{
    const struct trainer_msg welcome = {.type = TRAINER_MSG_WELCOME,
                                        .welcome = s->welcome};
    char text[TRAINER_TEXT_MAX];
    int fd = s->conn;

    if (m->type != TRAINER_MSG_HELLO) {
        return leave(s);
    }
    if (m->hello.version != TRAINER_MSG_VERSION) {
        (void)snprintf(text, sizeof text,
                       "the loop's library speaks version %u, this locod "
                       "version %d: install both from one release",
                       m->hello.version, TRAINER_MSG_VERSION);
        s->conn = -1;
        refuse(fd, text);
        return LOOP_NOTHING;
    }
    if (send_packet(s->conn, &welcome, s->file) != 0) {
        return leave(s);
    }
    s->hello = m->hello;
    s->greeted = true;
    return LOOP_ARRIVED;
}

enum loop_event loop_socket_next(struct loop_socket *s, struct trainer_msg *m)
{
    uint8_t packet[TRAINER_PACKET_MAX];
    ssize_t n;

    if (s->conn < 0) {
        accept_one(s);
    }
    if (s->conn < 0) {
        return LOOP_NOTHING;
    }
    n = recv(s->conn, packet, sizeof packet, MSG_DONTWAIT);
    if (n < 0 && (errno == EAGAIN || errno == EINTR)) {
        accept_one(s); /* who comes while one is here */
        return LOOP_NOTHING;
    }
    if (n <= 0 ||
        trainer_msg_decode(packet, (size_t)n, TRAINER_SENDER_LOOP, m) != 0) {
        if (n > 0) {
            log_warn("train",
                     "the training loop (process %u) sent what is no message "
                     "and was closed",
                     s->hello.pid);
        }
        return leave(s);
    }
    return s->greeted ? LOOP_MESSAGE : greet(s, m);
}
