/* share.c - the line with which anybody can join the run; see locod.h.
 *
 * It holds addresses that other machines can reach, best first: those by which
 * this daemon joined, if their peers are still there; its own where others can
 * dial it; those of peers that can be dialled. One place is kept for one that
 * is no joined one. Of addresses that the internet can reach there are at most
 * HOSTS_MAX; only where there is none, those of this network stand in it. As
 * long as nobody could try them, its own count, and the reason says so.
 */
#include "daemon/locod.h"

#include <string.h>
#include <strings.h>

#include "daemon/node/inspect.h"
#include "p2p/prefix.h"
#include "p2p/uv/addr.h"

#define HOSTS_MAX 3 /* a line that fits in a message, a picture on a screen */
#define LOOK_MS   5000 /* between two looks */

enum scope { NOWHERE, NETWORK, INTERNET };

static bool ends_in(const char *name, size_t len, const char *end)
{
    size_t n = strlen(end);

    return len >= n && strncasecmp(name + len - n, end, n) == 0;
}

/* Names without a dot, and those of some domains, mean something in one network
 * only; localhost in one machine. */
static enum scope scope_of_name(const char *name)
{
    static const char *const here[] = {".lan",  ".local",     ".internal",
                                       ".home", ".home.arpa", ".localdomain"};
    size_t len = strlen(name);

    len -= len > 0 && name[len - 1] == '.' ? 1 : 0; /* of the root */
    if ((len == strlen("localhost") && ends_in(name, len, "localhost")) ||
        ends_in(name, len, ".localhost")) {
        return NOWHERE;
    }
    for (size_t i = 0; i < sizeof here / sizeof here[0]; i++) {
        if (ends_in(name, len, here[i])) {
            return NETWORK;
        }
    }
    return memchr(name, '.', len) == NULL ? NETWORK : INTERNET;
}

/* Who can use that address. */
static enum scope scope_of(const struct uri_host *h)
{
    struct address a;

    if (address_parse(h->host, 1, &a) != 0) {
        return scope_of_name(h->host);
    }
    if (prefix_is_nowhere(a.ip) ||
        (prefix_is_v4(a.ip) && (a.ip[12] == 127 || a.ip[12] == 0 ||
                                (a.ip[12] == 169 && a.ip[13] == 254))) ||
        strcmp(h->host, "::1") == 0 ||
        (!prefix_is_v4(a.ip) && a.ip[0] == 0xfe && (a.ip[1] & 0xc0) == 0x80)) {
        return NOWHERE;
    }
    return reach_is_global(&a) ? INTERNET : NETWORK;
}

static void add(struct uri *u, const struct uri_host *h, enum scope wanted)
{
    bool there = u->n_hosts == HOSTS_MAX || h->port == 0;

    for (uint32_t i = 0; i < u->n_hosts && !there; i++) {
        there = u->hosts[i].port == h->port &&
                strcmp(u->hosts[i].host, h->host) == 0;
    }
    if (!there && scope_of(h) == wanted) {
        u->hosts[u->n_hosts++] = *h;
    }
}

static void
add_address(struct uri *u, const struct address *at, enum scope wanted)
{
    char text[ADDRESS_TEXT_MAX];
    struct uri_host h;

    address_text(at, text);
    if (at->port != 0 && uri_host_parse(text, false, &h, NULL) == 0) {
        add(u, &h, wanted);
    }
}

/* Where others can dial this daemon, as far as is known. */
static void add_own(const struct daemon *d, struct uri *u, enum scope wanted)
{
    const struct reach *r = node_parts(d->node).reach;
    enum reach_class class = reach_class(r);
    struct uri own = {.n_hosts = 0};

    if (wanted == INTERNET && class != REACH_UNKNOWN &&
        !reach_is_dialable(class)) {
        return; /* the others say that they do not get through */
    }
    if (r->mapped) {
        add_address(u, &r->mapped_at, wanted);
    }
    if (class == REACH_PUBLIC) {
        add_address(u, &r->seen, wanted);
    }
    own_hosts(d, &own);
    for (uint32_t i = 0; i < own.n_hosts; i++) {
        add(u, &own.hosts[i], wanted);
    }
}

static void add_peers(const struct daemon *d, struct uri *u, enum scope wanted)
{
    const struct members *m = node_parts(d->node).members;

    for (uint32_t i = 0; i < m->n_peers && u->n_hosts < HOSTS_MAX; i++) {
        const struct member *p = &m->peers[i];

        if (p->used && p->state == PEER_ALIVE && !p->hearsay &&
            reach_is_dialable((enum reach_class)p->info.reach)) {
            add_address(u, &p->address, wanted);
        }
    }
}

/* Whether this daemon got through to that host of the line that it joined with,
 * and who answered there is not gone. */
static bool is_there(const struct daemon *d, uint32_t host)
{
    const struct members *m = node_parts(d->node).members;

    for (unsigned i = 0; i < m->n_bootstrap; i++) {
        const struct members_bootstrap *b = &m->bootstrap[i];
        int row = d->host_of[i] == host && b->reached ? members_find(m, &b->id)
                                                      : MEMBERS_NONE;

        if (row != MEMBERS_NONE && (m->peers[row].state == PEER_ALIVE ||
                                    m->peers[row].state == PEER_SUSPECT)) {
            return true;
        }
    }
    return false;
}

static void add_joined(const struct daemon *d,
                       const struct uri *joined,
                       struct uri *u,
                       enum scope wanted,
                       uint32_t most)
{
    for (uint32_t i = 0; i < joined->n_hosts && u->n_hosts < most; i++) {
        if (is_there(d, i)) {
            add(u, &joined->hosts[i], wanted);
        }
    }
}

/* True: nobody has tried yet whether its addresses can be reached. */
static bool look(struct daemon *d, struct uri *u)
{
    static struct uri joined; /* the loop thread's */
    bool untried = false;
    uint32_t proven;

    joined.n_hosts = 0;
    if (d->config.join[0] != '\0') {
        (void)uri_parse(d->config.join, &joined, NULL);
    }
    u->run = d->run_id;
    for (int wanted = INTERNET; wanted > NOWHERE && u->n_hosts == 0; wanted--) {
        add_joined(d, &joined, u, (enum scope)wanted, HOSTS_MAX - 1);
        proven = u->n_hosts;
        add_own(d, u, (enum scope)wanted);
        untried = proven == 0 && u->n_hosts > 0;
        proven = u->n_hosts;
        add_peers(d, u, (enum scope)wanted);
        untried = untried && proven == u->n_hosts;
        add_joined(d, &joined, u, (enum scope)wanted, HOSTS_MAX);
    }
    return untried && reach_class(node_parts(d->node).reach) == REACH_UNKNOWN;
}

static void say(struct status_share *s, const char *scope, const char *reason)
{
    s->scope = scope;
    s->reason = reason;
}

void look_for_share(struct daemon *d)
{
    const struct manifest *run = machine_manifest(d->machine);
    struct status_share *s = &d->share;
    static struct uri u;

    if (run != NULL && d->share_ms != 0 &&
        shell_now_ms() < d->share_ms + LOOK_MS) {
        return;
    }
    d->share_ms = run == NULL ? 0 : shell_now_ms();
    u = (struct uri){.n_hosts = 0};
    s->uri[0] = '\0';
    if (run == NULL) {
        say(s, NULL, "the run is not known yet");
    } else if (run->invited || d->node_options.has_admission) {
        say(s, NULL,
            "the run is for invited peers: its author makes a line "
            "for each one with loco run invite");
    } else {
        bool untried = look(d, &u);

        if (u.n_hosts == 0 || uri_format(&u, s->uri, sizeof s->uri) < 0) {
            s->uri[0] = '\0';
            say(s, NULL,
                "no address is known at which other machines can "
                "reach the run; --listen 0.0.0.0:7700 makes this "
                "peer one that they can");
        } else if (scope_of(&u.hosts[0]) == NETWORK) {
            say(s, "network",
                "only machines of this network can use it: "
                "forward a TCP port of the router to this peer, "
                "and others can, too");
        } else {
            say(s, "internet",
                untried ? "nobody has tried yet whether this peer can be "
                          "reached from outside"
                        : "");
        }
    }
}
