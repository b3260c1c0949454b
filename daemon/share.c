/* share.c - the line with which anybody can join the run; see locod.h.
 *
 * It holds addresses that other machines can reach, best first: those by which
 * this daemon joined, its own where others can dial it, those of peers that can
 * be dialled. Of addresses that the internet can reach there are at most
 * HOSTS_MAX; only where there is none, those of this network stand in it.
 */
#include "daemon/locod.h"

#include <string.h>

#include "daemon/node/inspect.h"
#include "p2p/prefix.h"
#include "p2p/uv/addr.h"

#define HOSTS_MAX 3 /* a line that fits in a message, a picture on a screen */
#define LOOK_MS   5000 /* between two looks */

enum scope { NOWHERE, NETWORK, INTERNET };

/* Who can use that address. Names without a dot, and those of .local, mean
 * something in one network only. */
static enum scope scope_of(const struct uri_host *h)
{
    struct address a;
    const char *dot = strrchr(h->host, '.');

    if (address_parse(h->host, 1, &a) != 0) {
        return strcmp(h->host, "localhost") == 0           ? NOWHERE
               : dot == NULL || strcmp(dot, ".local") == 0 ? NETWORK
                                                           : INTERNET;
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

    if (r->mapped) {
        add_address(u, &r->mapped_at, wanted);
    }
    if (class == REACH_PUBLIC) {
        add_address(u, &r->seen, wanted);
    }
    if (wanted == INTERNET && class != REACH_UNKNOWN &&
        !reach_is_dialable(class)) {
        return; /* the others say that they do not get through */
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

static void look(struct daemon *d, struct uri *u)
{
    static struct uri joined; /* the loop thread's */

    joined.n_hosts = 0;
    if (d->config.join[0] != '\0') {
        (void)uri_parse(d->config.join, &joined, NULL);
    }
    u->run = d->run_id;
    for (int wanted = INTERNET; wanted > NOWHERE && u->n_hosts == 0; wanted--) {
        for (uint32_t i = 0; i < joined.n_hosts; i++) {
            add(u, &joined.hosts[i], (enum scope)wanted);
        }
        add_own(d, u, (enum scope)wanted);
        add_peers(d, u, (enum scope)wanted);
    }
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
        look(d, &u);
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
            say(s, "internet", "");
        }
    }
}
