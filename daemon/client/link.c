/* link.c - the socket of a loop: dial, greet, send, receive.
 *
 * Sockets never block; poll() waits. The state directory's path may be longer
 * than a socket's address: then it is named by a descriptor of the directory.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "daemon/client/internal.h"

#define MEMORY_FDS 4 /* that a packet may bring; one is expected */

bool link_wait(const struct loco *l,
               short events,
               uint64_t deadline_ms,
               bool *interrupted)
{
    uint64_t now = now_ms();
    uint64_t left = deadline_ms > now ? deadline_ms - now : 0;
    struct pollfd p = {.fd = l->fd, .events = events};
    int n = poll(&p, 1, left > INT32_MAX ? INT32_MAX : (int)left);

    *interrupted = n < 0 && errno == EINTR;
    return n > 0;
}

void link_lost(struct loco *l)
{
    if (l->fd >= 0) {
        (void)close(l->fd);
        l->fd = -1;
    }
    if (l->link == LINK_UP) {
        l->down_since_ms = now_ms();
    }
    if (l->link == LINK_UP || l->link == LINK_GREETED) {
        l->link = LINK_DOWN;
    }
    l->steps_left = 0;
    l->due = DUE_NOTHING;
    l->reading = l->has_text = l->has_pending = false;
}

void link_end(struct loco *l, uint32_t code, const void *text, size_t len)
{
    link_lost(l);
    l->link = LINK_ENDED;
    l->end_code = code;
    (void)snprintf(l->end_text, sizeof l->end_text, "%.*s", (int)len,
                   (const char *)text);
}

/* ---- packets ------------------------------------------------------------ */

int link_send(struct loco *l, const struct trainer_msg *m)
{
    uint8_t packet[TRAINER_PACKET_MAX];
    int n = trainer_msg_encode(m, packet);
    ssize_t sent;

    if (n < 0) {
        return link_fail(l, LOCO_FAIL_PROTOCOL,
                         "a message to locod cannot be written");
    }
    do {
        sent = send(l->fd, packet, (size_t)n, MSG_NOSIGNAL | MSG_DONTWAIT);
    } while (sent < 0 && errno == EINTR);
    if (sent >= 0) {
        return 1;
    }
    if (errno == EAGAIN || errno == ENOBUFS) {
        return 0;
    }
    /* EPIPE, ECONNRESET: what it said before it went may still be there. */
    return LOCO_FAIL_TIMEOUT;
}

/* The first descriptor that came; the others are closed. */
static int take_memory(struct msghdr *h)
{
    int fds[MEMORY_FDS], fd = -1;

    for (struct cmsghdr *c = CMSG_FIRSTHDR(h); c != NULL;
         c = CMSG_NXTHDR(h, c)) {
        size_t n = (c->cmsg_len - CMSG_LEN(0)) / sizeof fds[0];

        if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS ||
            n > MEMORY_FDS) {
            continue;
        }
        memcpy(fds, CMSG_DATA(c), n * sizeof fds[0]);
        for (size_t i = 0; i < n; i++) {
            if (fd < 0) {
                fd = fds[i];
            } else {
                (void)close(fds[i]);
            }
        }
    }
    return fd;
}

int link_receive(struct loco *l, struct trainer_msg *m, int *memory)
{
    union {
        struct cmsghdr align;
        uint8_t room[CMSG_SPACE(MEMORY_FDS * sizeof(int))];
    } control;
    uint8_t packet[TRAINER_PACKET_MAX];
    struct iovec io = {.iov_base = packet, .iov_len = sizeof packet};
    struct msghdr h = {.msg_iov = &io,
                       .msg_iovlen = 1,
                       .msg_control = &control,
                       .msg_controllen = sizeof control};
    ssize_t n;
    int fd, tries = 0;

    /* A peer that closed with packets unread is told once, before those that
     * it sent: STOP may be among them. */
    do {
        n = recvmsg(l->fd, &h, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    } while (n < 0 &&
             (errno == EINTR || (errno == ECONNRESET && tries++ == 0)));
    if (n < 0 && errno == EAGAIN) {
        return 0;
    }
    if (n <= 0) {
        return LOCO_FAIL_TIMEOUT;
    }
    fd = take_memory(&h);
    if (memory != NULL) {
        *memory = fd;
    } else if (fd >= 0) {
        (void)close(fd);
    }
    if ((h.msg_flags & MSG_TRUNC) == 0 &&
        trainer_msg_decode(packet, (size_t)n, TRAINER_SENDER_DAEMON, m) == 0) {
        return 1;
    }
    if (memory != NULL && fd >= 0) {
        (void)close(fd);
        *memory = -1;
    }
    return link_fail(l, LOCO_FAIL_PROTOCOL,
                     "locod in %.120s sends what this library does not "
                     "understand: install the same release of both",
                     l->state);
}

/* ---- the beginning ------------------------------------------------------ */

/* 0 and the address; *dir is to be closed then, where not -1. */
static int
socket_address(const struct loco *l, struct sockaddr_un *at, int *dir)
{
    int n;

    memset(at, 0, sizeof *at);
    at->sun_family = AF_UNIX;
    *dir = -1;
    n = snprintf(at->sun_path, sizeof at->sun_path, "%s/" TRAINER_SOCKET,
                 l->state);
    if (n > 0 && (size_t)n < sizeof at->sun_path) {
        return 0;
    }
    *dir = open(l->state, O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (*dir < 0) {
        return -1;
    }
    (void)snprintf(at->sun_path, sizeof at->sun_path,
                   "/proc/self/fd/%d/" TRAINER_SOCKET, *dir);
    return 0;
}

/* 1: l->fd is connected; 0: nobody listens (yet); negative errno. */
static int dial(struct loco *l)
{
    struct sockaddr_un at;
    int dir, rv = 0;

    if (socket_address(l, &at, &dir) != 0) {
        return errno == ENOENT ? 0 : -errno;
    }
    l->fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (l->fd < 0 ||
        connect(l->fd, (const struct sockaddr *)&at, sizeof at) != 0) {
        rv = errno;
    }
    if (dir >= 0) {
        (void)close(dir);
    }
    if (rv == 0) {
        return 1;
    }
    if (l->fd >= 0) {
        (void)close(l->fd);
        l->fd = -1;
    }
    return rv == ENOENT || rv == ECONNREFUSED || rv == EAGAIN || rv == EINTR
               ? 0
               : -rv;
}

/* Another account's daemon could read and change the parameters. */
static bool same_user(int fd)
{
    struct ucred who = {0};
    socklen_t size = sizeof who;

    return getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &who, &size) == 0 &&
           who.uid == geteuid();
}

static int greet(struct loco *l)
{
    struct trainer_msg m = {.type = TRAINER_MSG_HELLO,
                            .hello = {.version = TRAINER_MSG_VERSION,
                                      .pid = (uint32_t)l->owner,
                                      .measures = l->options.measures != 0,
                                      .n_name = l->n_name}};

    if (!same_user(l->fd)) {
        return link_fail(l, LOCO_FAIL_REFUSED,
                         "the locod in %.150s runs as another user: run both "
                         "as the same one",
                         l->state);
    }
    memcpy(m.hello.name, l->name, l->n_name);
    l->link = LINK_GREETED;
    if (link_send(l, &m) != 1) {
        link_lost(l);
    }
    return 0;
}

static int too_late(struct loco *l)
{
    const char *state = l->state;

    if (l->was_up) {
        return link_fail(l, LOCO_FAIL_TIMEOUT,
                         "locod in %.120s went away and did not come back "
                         "within %u s: see its log, start it again",
                         state, l->options.reconnect_ms / 1000);
    }
    if (l->child.in_use) {
        return link_fail(l, LOCO_FAIL_NO_DAEMON,
                         "the locod in %.100s does not serve training loops: "
                         "start it with --trainer socket, or use another "
                         "state directory",
                         state);
    }
    return link_fail(l, LOCO_FAIL_NO_DAEMON,
                     "no locod listens in %.120s after %u s: start one with "
                     "--trainer socket, or see its log",
                     state, l->options.start_ms / 1000);
}

/* A locod that this handle started listens when it has its parameters, which a
 * newcomer may fetch for hours: as long as it lives it is waited for. */
static void say_waiting(struct loco *l)
{
    char line[LAST_LINE_MAX];

    child_last_line(l, line);
    link_log(l,
             "locod, process %ld, has no parameters to train from yet; it "
             "said: %s",
             (long)l->child.pid, line);
}

/* In LINK_DOWN: one attempt. */
static int try_dial(struct loco *l)
{
    uint64_t patience =
        l->was_up ? l->options.reconnect_ms : l->options.start_ms;
    int rv = dial(l);

    if (rv < 0) {
        return link_fail(l, LOCO_FAIL_SYSTEM,
                         "cannot connect to the locod in %.120s: %s", l->state,
                         strerror(-rv));
    }
    if (rv > 0) {
        return greet(l);
    }
    rv = child_look(l);
    if (rv != 0 || l->link != LINK_DOWN) {
        return rv;
    }
    if (now_ms() - l->down_since_ms >= patience) {
        if (l->was_up || l->child.pid == 0) {
            return too_late(l);
        }
        l->down_since_ms = now_ms();
        say_waiting(l);
    }
    if (!l->was_up && l->child.pid == 0 && !child_wanted(l)) {
        return l->child.in_use || l->options.join != NULL ||
                       l->options.run != NULL
                   ? 0
                   : link_fail(l, LOCO_FAIL_NO_DAEMON,
                               "no locod runs on %.120s, and nothing says "
                               "which run: give join or run, or start it",
                               l->state);
    }
    return child_start(l);
}

/* ---- WELCOME ------------------------------------------------------------ */

/* A run that came back must be the one that the loop knows. */
static int same_run(struct loco *l,
                    const struct trainer_welcome *w,
                    const struct layout *layout)
{
    if (memcmp(&w->run_id, &l->welcome.run_id, sizeof w->run_id) == 0 &&
        w->n == l->welcome.n && w->batch == l->welcome.batch &&
        w->seq == l->welcome.seq && w->vocab == l->welcome.vocab &&
        (w->tokens_at != 0) == (l->welcome.tokens_at != 0) &&
        layout_equal(layout, &l->layout)) {
        return 0;
    }
    return link_fail(l, LOCO_FAIL_OTHER_RUN,
                     "the locod in %.120s trains another run now: start the "
                     "loop again",
                     l->state);
}

/* The run id of loco://.../RUNID, where it has one; uri.h. */
static bool invited_to(const char *uri, const struct hash32 *run)
{
    const char *at = strstr(uri, "://");
    char hex[ID_HEX_MAX];

    at = at == NULL ? NULL : strchr(at + 3, '/');
    if (at == NULL || strspn(at + 1, "0123456789abcdef") != ID_HEX_MAX - 1) {
        return true; /* locod says what is wrong with it */
    }
    for (size_t i = 0; i < ID_BYTES; i++) {
        (void)snprintf(hex + 2 * i, 3, "%02x", run->b[i]);
    }
    return memcmp(at + 1, hex, ID_HEX_MAX - 1) == 0;
}

/* Memory for the texts, outside of what the daemon can change. */
static int text_room(struct loco *l, const struct trainer_welcome *w)
{
    size_t n = 2 * (size_t)w->batch * w->seq;

    if (w->tokens_at == 0 || l->text_tokens != NULL) {
        return 0;
    }
    l->text_tokens = calloc(n, sizeof l->text_tokens[0]);
    l->held_tokens = calloc(n, sizeof l->held_tokens[0]);
    return l->text_tokens != NULL && l->held_tokens != NULL
               ? 0
               : link_fail(l, LOCO_FAIL_MEMORY, "out of memory");
}

static int take_layout(struct loco *l,
                       const struct trainer_welcome *w,
                       const struct shared *s)
{
    struct layout layout;
    char why[LOCO_ERRMSG_MAX];
    int rv = layout_read(&layout, s->map + w->layout_at,
                         (size_t)w->layout_bytes, w->n_tensors, w->n, why);

    if (rv != 0) {
        return link_fail(l, rv, "%s", why);
    }
    if (l->was_up) {
        rv = same_run(l, w, &layout);
        layout_free(&layout);
        return rv;
    }
    l->layout = layout;
    return text_room(l, w);
}

static int welcomed(struct loco *l, const struct trainer_welcome *w, int memory)
{
    char why[LOCO_ERRMSG_MAX];
    struct shared s;
    int rv;

    if (memory < 0) {
        return link_fail(l, LOCO_FAIL_PROTOCOL,
                         "locod in %.150s shares no memory", l->state);
    }
    if (l->join != NULL && !invited_to(l->join, &w->run_id)) {
        return link_fail(l, LOCO_FAIL_OTHER_RUN,
                         "the locod in %.120s trains another run than you "
                         "join: use another state directory",
                         l->state);
    }
    rv = shared_map(&s, w, memory, why);
    if (rv != 0) {
        return link_fail(l, rv, "%s", why);
    }
    rv = take_layout(l, w, &s);
    if (rv != 0) {
        shared_unmap(&s);
        return rv;
    }
    if (l->was_up) {
        link_log(l, "locod in %s is back", l->state);
    }
    shared_unmap(&l->shared);
    l->shared = s;
    l->welcome = *w;
    l->link = LINK_UP;
    l->was_up = true;
    l->child.welcome = l->child.pid != 0;
    return 0;
}

/* In LINK_GREETED: 1: the state has changed; 0: no answer yet. */
static int greeted(struct loco *l)
{
    struct trainer_msg m;
    int memory = -1, rv = link_receive(l, &m, &memory);

    if (rv == LOCO_FAIL_TIMEOUT) {
        link_lost(l);
        return 1;
    }
    if (rv <= 0) {
        return rv;
    }
    if (m.type == TRAINER_MSG_WELCOME) {
        rv = welcomed(l, &m.welcome, memory);
    } else if (m.type == TRAINER_MSG_REFUSED) {
        rv = link_fail(l, LOCO_FAIL_REFUSED, "locod refused this loop: %.*s",
                       (int)m.refused.n_text, (const char *)m.refused.text);
    } else if (m.type == TRAINER_MSG_STOP) {
        link_end(l, m.stop.code, m.stop.text, m.stop.n_text);
    } else {
        rv = link_fail(l, LOCO_FAIL_PROTOCOL, "locod in %.150s does not greet",
                       l->state);
    }
    if (memory >= 0) {
        (void)close(memory);
    }
    return rv != 0 ? rv : 1;
}

int link_up(struct loco *l, uint64_t deadline_ms)
{
    bool interrupted = false;

    for (;;) {
        uint64_t soon = now_ms() + DIAL_EVERY_MS;
        enum link_state before = l->link;
        int rv = 0;

        if (l->link == LINK_UP || l->link == LINK_ENDED) {
            return l->link == LINK_UP;
        }
        rv = l->link == LINK_DOWN ? try_dial(l) : greeted(l);
        if (rv < 0) {
            return rv;
        }
        if (l->link != before && l->link != LINK_DOWN) {
            continue;
        }
        if (now_ms() >= deadline_ms || interrupted) {
            return 0;
        }
        if (l->link == LINK_DOWN && soon > deadline_ms) {
            soon = deadline_ms;
        }
        (void)link_wait(l, POLLIN, l->link == LINK_DOWN ? soon : deadline_ms,
                        &interrupted);
        if (interrupted) {
            return 0;
        }
    }
}
