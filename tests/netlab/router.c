/* The router of the network laboratory; what it is: router.h, what it is told:
 * control.h (standard input, answers on standard output; ends with its input).
 *
 * use: loco_netlab [--seed N]
 *
 * Happy path, once a turn: what is due by now moves one wire on (hop()), at
 * the time it was due, not at the time we noticed; then each readable
 * interface is read empty (take()), which starts packets on their first wire.
 * A turn begins at most every TURN_NS: that bounds the work at high rates, and
 * is all the jitter that the router adds by itself, beside being scheduled
 * late. So it asks for real-time priority; what it does between two turns is
 * short.
 *
 * What can go wrong: an interface that refuses a packet (it is down), no
 * route, no memory. Each drops the packet and is counted in "stats".
 */
#include "tests/netlab/router.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/if_tun.h>
#include <net/if.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#include "tests/netlab/control.h"

#define TURN_NS         INT64_C(100000)
#define READS_A_TURN    256 /* of one interface; then the others' turn */
#define HELD_BYTES_MAX  (256u << 20) /* 20 s of 100 Mbit/s */
#define CONTROL         UINT32_MAX
#define TUN_QUEUE       4000 /* packets a host may send at once */
#define CONTROL_LINE    1024
#define PRIORITY        10 /* real-time; any is above all that has none */
#define LOOPBACK_DEVICE "lo"
#define TUN_DEVICE      "net0"

static int64_t now_ns(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

/* ---- packets ---------------------------------------------------------- */

static void packet_drop(struct router *r, struct packet *p)
{
    r->held_bytes -= sizeof *p + p->len;
    free(p);
}

/* NULL: more is held than we want to; counted. */
static struct packet *packet_keep(struct router *r, struct packet *p)
{
    if (p == NULL || r->held_bytes >= HELD_BYTES_MAX) {
        r->no_memory++;
        free(p);
        return NULL;
    }
    r->held_bytes += sizeof *p + p->len;
    return p;
}

static void enter(struct router *r, struct wire *w, struct packet *p, int64_t t)
{
    if (p->segments == 1 || wire_takes_whole(w, p, t)) {
        if (!wire_enter(w, p, t)) {
            packet_drop(r, p);
        }
        return;
    }
    for (unsigned i = 0; i < p->segments; i++) {
        struct packet *s = packet_keep(r, packet_segment(p, i));

        if (s != NULL && !wire_enter(w, s, t)) {
            packet_drop(r, s);
        }
    }
    packet_drop(r, p);
}

/* The packet stands at a node: onto the next wire, or out when it is there. */
static void forward(struct router *r, struct packet *p, uint16_t at, int64_t t)
{
    struct topology *top = &r->topology;
    uint16_t way = top->next[at][p->to];

    if (at == p->to) {
        struct iovec v[2] = {{&p->offload, sizeof p->offload},
                             {p->bytes, p->len}};

        r->refused += writev(top->nodes[at].tun_fd, v, 2) < 0;
        packet_drop(r, p);
    } else if (way == NOWHERE) {
        r->unrouted++;
        packet_drop(r, p);
    } else {
        enter(r, &top->links[way].wire, p, t);
    }
}

/* The wire whose next packet arrives first; its time or WIRE_NEVER. */
static int64_t first_due(struct topology *t, struct link **link)
{
    int64_t first = WIRE_NEVER;

    for (unsigned i = 0; i < t->n_links; i++) {
        int64_t due = wire_due(&t->links[i].wire);

        if (due < first) {
            first = due;
            *link = &t->links[i];
        }
    }
    return first;
}

/* All arrivals up to now, in the order of time. */
static void hop(struct router *r, int64_t now)
{
    struct link *link = NULL;
    struct packet *p;
    bool dropped;

    while (first_due(&r->topology, &link) <= now) {
        p = wire_leave(&link->wire, now, &dropped);
        if (dropped) {
            packet_drop(r, p);
        } else {
            forward(r, p, link->to, p->at_ns);
        }
    }
}

/* Read one interface empty. */
static void take(struct router *r, uint16_t node, int64_t now)
{
    static uint8_t bytes[PACKET_BYTES_MAX];
    struct topology *top = &r->topology;
    struct virtio_net_hdr offload;
    struct iovec v[2] = {{&offload, sizeof offload}, {bytes, sizeof bytes}};
    struct packet *p;

    for (int i = 0; i < READS_A_TURN; i++) {
        ssize_t n = readv(top->nodes[node].tun_fd, v, 2);
        size_t len = (size_t)n - sizeof offload;
        uint16_t to;

        if (n <= (ssize_t)sizeof offload) {
            return;
        }
        to = topology_route(top, bytes, len);
        if (to == NOWHERE || top->nodes[to].tun_fd < 0) {
            r->unrouted++;
            continue;
        }
        p = packet_keep(r, packet_new(&offload, bytes, len));
        if (p != NULL) {
            p->to = to;
            forward(r, p, node, now);
        }
    }
}

/* ---- namespaces ------------------------------------------------------- */

/* Flags (and for an interface of ours its size) of a device in the namespace
 * that we are in. */
static bool device_up(const char *name, unsigned mtu)
{
    struct ifreq q = {0};
    int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    bool done = fd >= 0;

    memcpy(q.ifr_name, name, strlen(name));
    if (done && mtu != 0) {
        q.ifr_mtu = (int)mtu;
        done = ioctl(fd, SIOCSIFMTU, &q) == 0;
        q.ifr_qlen = TUN_QUEUE;
        done = done && ioctl(fd, SIOCSIFTXQLEN, &q) == 0;
    }
    q.ifr_flags = IFF_UP;
    done = done && ioctl(fd, SIOCSIFFLAGS, &q) == 0;
    if (fd >= 0) {
        close(fd);
    }
    return done;
}

static int tun_open(void)
{
    struct ifreq q = {.ifr_flags = IFF_TUN | IFF_NO_PI | IFF_VNET_HDR};
    int fd = open("/dev/net/tun", O_RDWR | O_NONBLOCK | O_CLOEXEC);

    memcpy(q.ifr_name, TUN_DEVICE, sizeof TUN_DEVICE);
    /* TCP in super-packets, without sums: see packet.h. */
    if (fd >= 0 &&
        (ioctl(fd, TUNSETIFF, &q) != 0 ||
         ioctl(fd, TUNSETOFFLOAD, TUN_F_CSUM | TUN_F_TSO4 | TUN_F_TSO6) != 0)) {
        close(fd);
        return -1;
    }
    return fd;
}

static void space_close(struct node *n)
{
    int saved = errno;

    if (n->tun_fd >= 0) {
        close(n->tun_fd);
    }
    if (n->space_fd >= 0) {
        close(n->space_fd);
    }
    n->tun_fd = n->space_fd = -1;
    errno = saved;
}

bool router_space(struct router *r, uint16_t node, unsigned mtu)
{
    struct node *n = &r->topology.nodes[node];
    struct epoll_event e = {.events = EPOLLIN, .data.u32 = node};
    bool done = unshare(CLONE_NEWNET) == 0;

    if (done) {
        n->space_fd = open("/proc/thread-self/ns/net", O_RDONLY | O_CLOEXEC);
        done = n->space_fd >= 0 && device_up(LOOPBACK_DEVICE, 0);
    }
    if (done && mtu != 0) {
        n->tun_fd = tun_open();
        done = n->tun_fd >= 0 && device_up(TUN_DEVICE, mtu) &&
               epoll_ctl(r->epoll_fd, EPOLL_CTL_ADD, n->tun_fd, &e) == 0;
    }
    if (!done) {
        space_close(n);
        snprintf(r->topology.why, sizeof r->topology.why,
                 "network namespace or TUN device: %s", strerror(errno));
    }
    if (setns(r->home_fd, CLONE_NEWNET) != 0) {
        perror("loco_netlab: back to its own namespace");
        exit(1); /* it would make all that follows in the wrong place */
    }
    return done;
}

/* ---- the loop --------------------------------------------------------- */

/* Lines that have come; false: the input has ended. */
static bool control_read(struct router *r)
{
    static char line[CONTROL_LINE];
    static size_t len;
    ssize_t n = read(STDIN_FILENO, line + len, sizeof line - 1 - len);
    char *end;

    if (n <= 0) {
        return n < 0 && (errno == EINTR || errno == EAGAIN);
    }
    len += (size_t)n;
    line[len] = '\0';
    while ((end = strchr(line, '\n')) != NULL) {
        *end = '\0';
        control_line(r, line, stdout);
        len -= (size_t)(end + 1 - line);
        memmove(line, end + 1, len + 1);
    }
    fflush(stdout);
    return len < sizeof line - 1;
}

/* Nothing to do before `due`, and no turn before `turn`. */
static int wait_for_work(struct router *r,
                         int64_t due,
                         int64_t turn,
                         struct epoll_event *events,
                         int n)
{
    struct timespec t = {.tv_sec = turn / 1000000000,
                         .tv_nsec = turn % 1000000000};
    int64_t left;

    clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &t, NULL);
    if (due == WIRE_NEVER) {
        return epoll_wait(r->epoll_fd, events, n, -1);
    }
    left = due - now_ns();
    left = left < 0 ? 0 : left;
    t.tv_sec = left / 1000000000;
    t.tv_nsec = left % 1000000000;
    return epoll_pwait2(r->epoll_fd, events, n, &t, NULL);
}

static void serve(struct router *r)
{
    struct epoll_event events[NODES_MAX + 1];
    int64_t now = now_ns();
    struct link *link = NULL;

    for (;;) {
        int n = wait_for_work(r, first_due(&r->topology, &link), now + TURN_NS,
                              events, NODES_MAX + 1);

        now = now_ns();
        hop(r, now);
        for (int i = 0; i < n; i++) {
            if (events[i].data.u32 != CONTROL) {
                take(r, (uint16_t)events[i].data.u32, now);
            } else if (!control_read(r)) {
                return;
            }
        }
    }
}

/* Best effort: without it the laboratory works, with more jitter. */
static void be_punctual(void)
{
    struct sched_param p = {.sched_priority = PRIORITY};

    (void)sched_setscheduler(0, SCHED_RR | SCHED_RESET_ON_FORK, &p);
    (void)prctl(PR_SET_TIMERSLACK, 1UL, 0UL, 0UL, 0UL);
}

int main(int argc, char **argv)
{
    static struct router router;
    struct epoll_event e = {.events = EPOLLIN, .data.u32 = CONTROL};
    uint64_t seed = 1;

    if (argc == 3 && strcmp(argv[1], "--seed") == 0) {
        seed = strtoull(argv[2], NULL, 10);
    } else if (argc != 1) {
        fputs("use: loco_netlab [--seed N]\n", stderr);
        return 2;
    }
    topology_init(&router.topology, seed);
    router.epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    router.home_fd = open("/proc/thread-self/ns/net", O_RDONLY | O_CLOEXEC);
    if (router.epoll_fd < 0 || router.home_fd < 0 ||
        epoll_ctl(router.epoll_fd, EPOLL_CTL_ADD, STDIN_FILENO, &e) != 0) {
        perror("loco_netlab: epoll");
        return 1;
    }
    be_punctual();
    serve(&router);
    return 0;
}
