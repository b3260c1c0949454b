/* net.c - see doctor.h: what the facts about the network mean. */
#include <errno.h>
#include <netdb.h>
#include <stdio.h>
#include <string.h>

#include "daemon/doctor/internal.h"
#include "p2p/prefix.h"
#include "proto/base/err.h"
#include "proto/messages.h"

/* Less than this a second makes every round of any model slow. */
#define SLOW_BYTES_PER_S 100000

/* ---- addresses -------------------------------------------------------- */

/* RFC 6598: between a provider's NAT and its customers. */
static bool is_cgnat(const struct address *a)
{
    return prefix_is_v4(a->ip) && a->ip[12] == 100 && (a->ip[13] & 0xc0) == 64;
}

/* Only of use inside: also RFC 5737's first block, which laboratories use. */
static bool is_private(const struct address *a)
{
    const uint8_t *v4 = a->ip + 12;

    return prefix_is_private(a->ip) ||
           (prefix_is_v4(a->ip) && v4[0] == 192 && v4[1] == 0 && v4[2] == 2);
}

static bool is_loopback(const struct address *a)
{
    static const uint8_t v6_loopback[16] = {[15] = 1};

    return prefix_is_v4(a->ip) ? a->ip[12] == 127
                               : memcmp(a->ip, v6_loopback, 16) == 0;
}

/* The address without its port. */
static const char *ip_text(const struct address *a, char out[ADDRESS_TEXT_MAX])
{
    struct address bare = *a;
    char *end;

    bare.port = 0;
    address_text(&bare, out);
    end = strrchr(out, ':');
    if (end != NULL) {
        *end = '\0';
    }
    return out;
}

/* ---- dns -------------------------------------------------------------- */

void doctor_judge_dns(const struct doctor_facts *f, struct doctor_line *l)
{
    const struct fact_host *failed = NULL;
    uint32_t n_names = 0, n_good = 0, slowest_ms = 0;

    for (uint32_t i = 0; i < f->n_hosts; i++) {
        const struct fact_host *h = &f->host[i];

        if (!h->is_name) {
            continue;
        }
        n_names++;
        if (h->state == FACT_FOUND && h->contact.step != CONTACT_RESOLVE) {
            n_good++;
            if (h->contact.resolve_ms > slowest_ms) {
                slowest_ms = h->contact.resolve_ms;
            }
        } else {
            failed = h;
        }
    }
    if (f->n_hosts == 0) {
        doctor_say(l, DOCTOR_UNCHECKED, "there is no host name to resolve");
        doctor_fix(l, "Give --join URI to check its host names.");
    } else if (n_names == 0) {
        doctor_say(l, DOCTOR_OK, "not needed: the URI holds addresses only");
    } else if (failed == NULL) {
        doctor_say(l, DOCTOR_OK, "%u name%s of the URI resolved in %u ms",
                   n_names, n_names == 1 ? "" : "s", slowest_ms);
    } else {
        doctor_say(l, n_good > 0 ? DOCTOR_WARNING : DOCTOR_PROBLEM,
                   "cannot resolve %s: %s", failed->host.host,
                   failed->state == FACT_LATE
                       ? "no answer in time"
                       : gai_strerror(failed->contact.rc));
        doctor_fix(l, failed->state == FACT_FOUND &&
                              failed->contact.rc == EAI_NONAME
                          ? "Check how that name is spelt in the URI, or ask "
                            "for an invitation with an address in it."
                          : "Check that this machine is online and that the "
                            "servers in /etc/resolv.conf answer.");
    }
}

/* ---- ipv6 ------------------------------------------------------------- */

void doctor_judge_ipv6(const struct doctor_facts *f, struct doctor_line *l)
{
    const struct fact_ip *ip = &f->ip;
    char text[ADDRESS_TEXT_MAX];

    if (doctor_late(f, ip->state, l)) {
        return;
    }
    if (!ip->v4_route && !ip->v6_route) {
        doctor_say(l, DOCTOR_PROBLEM,
                   "this machine has no route to the "
                   "internet, neither IPv4 nor IPv6");
        doctor_fix(l, "Connect it to a network: ip route shows what it has.");
    } else if (ip->v6_address && ip->v6_route) {
        doctor_say(l, DOCTOR_OK, "address %s%s", ip_text(&ip->v6, text),
                   ip->v4_route ? "" : "; there is no IPv4");
    } else if (ip->v6_address) {
        doctor_say(l, DOCTOR_WARNING,
                   "there is a global IPv6 address, but no "
                   "route: dialling IPv6 peers fails");
        doctor_fix(l, "Repair the default route (ip -6 route), or switch IPv6 "
                      "off on this machine.");
    } else {
        doctor_say(l, DOCTOR_OK, "no IPv6 here; IPv4 is enough");
    }
}

/* ---- nat -------------------------------------------------------------- */

static void nat_fix(const struct doctor_facts *f, struct doctor_line *l)
{
    if (f->ip.state == FACT_FOUND && is_cgnat(&f->ip.v4)) {
        doctor_fix(l, "The provider shares one address among customers "
                      "(CGNAT), which no setting here changes: use IPv6, or "
                      "ask the provider for a public address.");
        return;
    }
    if (f->port.port == 0) {
        doctor_fix(l, "Listen on a fixed port (--listen HOST:PORT) and forward "
                      "it on the router to this machine, or switch on UPnP or "
                      "NAT-PMP there.");
        return;
    }
    doctor_fix(l,
               "Forward TCP port %u on the router to this machine, or "
               "switch on UPnP or NAT-PMP there.",
               f->port.port);
}

/* As the daemon itself found out with the help of its peers. */
static void nat_of_daemon(const struct doctor_facts *f, struct doctor_line *l)
{
    const struct fact_daemon *d = &f->daemon;
    bool open = strcmp(d->reachability, "public") == 0 ||
                strcmp(d->reachability, "mapped") == 0;

    doctor_say(l, open ? DOCTOR_OK : DOCTOR_WARNING,
               "the daemon's reachability is %s%s%s", d->reachability,
               d->reachability_reason[0] == '\0' ? "" : ": ",
               d->reachability_reason);
    if (!open) {
        nat_fix(f, l);
    }
}

static void nat_of_peer(const struct doctor_facts *f,
                        const struct fact_host *h,
                        struct doctor_line *l)
{
    const struct address *seen = &h->contact.observed;
    const struct address *own = prefix_is_v4(seen->ip) ? &f->ip.v4 : &f->ip.v6;
    char a[ADDRESS_TEXT_MAX], b[ADDRESS_TEXT_MAX];

    if (is_loopback(seen)) {
        doctor_say(
            l, DOCTOR_OK,
            "%s is this machine: no NAT between; other peers are not tested",
            h->host.host);
    } else if (memcmp(seen->ip, own->ip, sizeof own->ip) == 0) {
        doctor_say(l, DOCTOR_OK,
                   "no NAT towards %s, which sees our address %s%s",
                   h->host.host, ip_text(seen, a),
                   is_private(seen) ? " (of the local network)" : "");
    } else {
        doctor_say(l, DOCTOR_WARNING,
                   "%s sees %s, but this machine is %s: behind a NAT it can "
                   "dial others, and others cannot dial it",
                   h->host.host, ip_text(seen, a), ip_text(own, b));
        nat_fix(f, l);
    }
}

void doctor_judge_nat(const struct doctor_facts *f, struct doctor_line *l)
{
    char text[ADDRESS_TEXT_MAX];

    if (f->daemon.state == FACT_FOUND && f->daemon.reachability[0] != '\0' &&
        strcmp(f->daemon.reachability, "unknown") != 0) {
        nat_of_daemon(f, l);
        return;
    }
    if (doctor_late(f, f->ip.state, l)) {
        return;
    }
    for (uint32_t i = 0; i < f->n_hosts; i++) {
        if (f->host[i].state == FACT_FOUND &&
            f->host[i].contact.step == CONTACT_TALKED) {
            nat_of_peer(f, &f->host[i], l);
            return;
        }
    }
    if (f->ip.v4_route && !is_private(&f->ip.v4)) {
        doctor_say(l, DOCTOR_OK, "no NAT: %s is a public address",
                   ip_text(&f->ip.v4, text));
    } else if (f->ip.v4_route) {
        doctor_say(l, DOCTOR_WARNING,
                   "%s is a %s address: peers elsewhere cannot dial this "
                   "machine unless its router lets them",
                   ip_text(&f->ip.v4, text),
                   is_cgnat(&f->ip.v4) ? "CGNAT" : "private");
        nat_fix(f, l);
    } else if (f->ip.v6_route) {
        doctor_say(l, DOCTOR_OK, "no NAT: this machine uses IPv6");
    } else {
        doctor_say(l, DOCTOR_UNCHECKED, "there is no network");
        doctor_fix(l, "See the line ipv6.");
    }
}

/* ---- port ------------------------------------------------------------- */

static void port_of_daemon(const struct doctor_facts *f, struct doctor_line *l)
{
    const struct fact_port *p = &f->port;
    bool unknown = f->daemon.reachability[0] == '\0' ||
                   strcmp(f->daemon.reachability, "unknown") == 0;

    if (p->ours) {
        doctor_say(l, DOCTOR_OK,
                   "%u: the running daemon answers there; from outside: %s",
                   p->port, unknown ? "not known yet" : f->daemon.reachability);
        return;
    }
    doctor_say(
        l, DOCTOR_PROBLEM,
        "%u: the running daemon listens there, but does not answer a handshake",
        p->port);
    doctor_fix(l,
               "Check this machine's firewall for TCP port %u, also for "
               "connections to itself (nft list ruleset).",
               p->port);
}

void doctor_judge_port(const struct doctor_facts *f, struct doctor_line *l)
{
    const struct fact_port *p = &f->port;

    if (doctor_late(f, p->state, l)) {
        return;
    }
    if (p->state == FACT_NONE) {
        doctor_say(l, DOCTOR_UNCHECKED,
                   "the address to listen on is not known");
        doctor_fix(l, "Give --listen HOST:PORT.");
    } else if (f->daemon.state == FACT_FOUND) {
        port_of_daemon(f, l);
    } else if (p->rc == 0) {
        doctor_say(l, DOCTOR_OK, "%s is free", p->listen);
    } else if (p->rc == EADDRINUSE) {
        doctor_say(l, DOCTOR_PROBLEM, "%s is in use by another program",
                   p->listen);
        doctor_fix(l,
                   "Stop it (ss -ltnp 'sport = :%u' shows which one it is), "
                   "or choose another port with --listen HOST:PORT.",
                   p->port);
    } else if (p->rc == EACCES) {
        doctor_say(l, DOCTOR_PROBLEM, "this user may not listen on %s",
                   p->listen);
        doctor_fix(l, "Choose a port above 1023 with --listen HOST:PORT.");
    } else if (p->rc == EADDRNOTAVAIL) {
        doctor_say(l, DOCTOR_PROBLEM, "%s is not an address of this machine",
                   p->listen);
        doctor_fix(l, "Listen on all of them: --listen 0.0.0.0:%u.", p->port);
    } else {
        doctor_say(l, DOCTOR_PROBLEM, "cannot listen on %s: %s", p->listen,
                   strerror(p->rc));
        doctor_fix(l, "Choose another address with --listen HOST:PORT.");
    }
}

/* ---- bandwidth -------------------------------------------------------- */

static void bandwidth_measured(const struct doctor_facts *f,
                               const struct fact_host *h,
                               struct doctor_line *l)
{
    const struct contact *c = &h->contact;
    uint64_t us = c->transfer_us > 0 ? c->transfer_us : 1;
    uint64_t rate = c->transfer_bytes * 1000000U / us;
    uint64_t floor = f->manifest.floor_bytes_per_s;
    char a[DOCTOR_BYTES_MAX], b[DOCTOR_BYTES_MAX], d[DOCTOR_BYTES_MAX];

    if (floor == 0 && c->has_manifest) {
        floor = c->manifest->round.progress_floor_bytes_per_s;
    }
    doctor_say(l, DOCTOR_OK, "%s/s from %s (%s in %.2f s)",
               doctor_bytes(rate, a), h->host.host,
               doctor_bytes(c->transfer_bytes, b), (double)us / 1e6);
    if (rate < floor) {
        l->level = DOCTOR_PROBLEM;
        doctor_fix(l,
                   "The run counts a peer below %s/s as gone: stop other "
                   "transfers, use a cable instead of wireless, or join a "
                   "run with a lower round.progress_floor_bytes_per_s.",
                   doctor_bytes(floor, d));
    } else if (rate < SLOW_BYTES_PER_S) {
        l->level = DOCTOR_WARNING;
        doctor_fix(l, "Rounds will wait for this peer: stop other transfers, "
                      "or use a cable instead of wireless.");
    }
}

/* What the daemon learnt from its rounds. */
static void bandwidth_of_daemon(const struct doctor_facts *f,
                                struct doctor_line *l)
{
    uint64_t in = f->daemon.best_in_bytes_per_s;
    uint64_t out = f->daemon.best_out_bytes_per_s;
    uint64_t floor = f->manifest.floor_bytes_per_s;
    char a[DOCTOR_BYTES_MAX], b[DOCTOR_BYTES_MAX], c[DOCTOR_BYTES_MAX];

    doctor_say(l, DOCTOR_OK,
               "in the rounds so far the daemon received at up to %s/s and "
               "sent at up to %s/s",
               in == 0 ? "?" : doctor_bytes(in, a),
               out == 0 ? "?" : doctor_bytes(out, b));
    if ((in != 0 && in < floor) || (out != 0 && out < floor)) {
        l->level = DOCTOR_WARNING;
        doctor_fix(l,
                   "The run counts a peer below %s/s as gone: stop other "
                   "transfers, or raise upload_bytes_per_s and "
                   "download_bytes_per_s.",
                   doctor_bytes(floor, c));
    }
}

void doctor_judge_bandwidth(const struct doctor_facts *f, struct doctor_line *l)
{
    const struct fact_host *failed = NULL;

    for (uint32_t i = 0; i < f->n_hosts; i++) {
        const struct fact_host *h = &f->host[i];

        if (h->state != FACT_FOUND || !h->wants_transfer ||
            h->contact.step != CONTACT_TALKED) {
            continue;
        }
        if (h->contact.transfer_bytes > 0) {
            bandwidth_measured(f, h, l);
            return;
        }
        failed = h;
    }
    if (failed != NULL) {
        doctor_say(l, DOCTOR_WARNING, "%s sent no piece of a shard: %s",
                   failed->host.host,
                   loco_strerror(failed->contact.transfer_rc));
        doctor_fix(l, "It may still be fetching the data itself: try again, or "
                      "name another peer of the run.");
        return;
    }
    if (f->daemon.state == FACT_FOUND &&
        (f->daemon.best_in_bytes_per_s | f->daemon.best_out_bytes_per_s) != 0) {
        bandwidth_of_daemon(f, l);
        return;
    }
    doctor_say(l, DOCTOR_UNCHECKED, "it is measured only on request");
    doctor_fix(l, "Give --bandwidth and --join URI to fetch at most 8 MB in 3 "
                  "s from that peer.");
}

/* ---- bootstrap -------------------------------------------------------- */

#define HOST_TEXT_MAX (URI_HOST_MAX + 16)

/* "HOST:PORT", an IPv6 address in brackets. */
static void host_text(const struct fact_host *h, char out[HOST_TEXT_MAX])
{
    if (uri_host_format(&h->host, out, HOST_TEXT_MAX) < 0) {
        (void)snprintf(out, HOST_TEXT_MAX, "%s", h->host.host);
    }
}

static void connect_failed(const struct fact_host *h, struct doctor_line *l)
{
    int rc = h->contact.rc;
    char host[HOST_TEXT_MAX];

    host_text(h, host);

    if (rc == -ECONNREFUSED) {
        doctor_say(l, DOCTOR_PROBLEM,
                   "%s refuses connections: nothing "
                   "listens there",
                   host);
        doctor_fix(l, "Check the port in the URI, and ask whether that peer is "
                      "running; any other peer of the run is as good.");
    } else if (rc == LOCO_ETIMEOUT || rc == -ETIMEDOUT) {
        doctor_say(l, DOCTOR_PROBLEM, "%s does not answer within %.1f s", host,
                   (double)h->limit_ms / 1000.0);
        doctor_fix(l, "The host is off, the address is wrong, or a firewall "
                      "drops the connection: ask for the address of another "
                      "peer of the run.");
    } else {
        doctor_say(l, DOCTOR_PROBLEM, "%s cannot be reached: %s", host,
                   rc > -30000 && rc < 0 ? strerror(-rc) : loco_strerror(rc));
        doctor_fix(l, "Check this machine's network (ip route); an IPv6 "
                      "address needs IPv6 here.");
    }
}

static void handshake_failed(const struct fact_host *h, struct doctor_line *l)
{
    char host[HOST_TEXT_MAX];

    host_text(h, host);

    switch (h->contact.rc) {
    case LOCO_ERUN:
        doctor_say(l, DOCTOR_PROBLEM,
                   "%s is a loco peer, but of another run or protocol "
                   "version (ours is %d)",
                   host, PROTO_VERSION);
        doctor_fix(l, "Compare the run id in the URI with what loco status "
                      "shows there; if they are the same, update the older "
                      "program.");
        return;
    case LOCO_ESIG:
        doctor_say(l, DOCTOR_PROBLEM,
                   "%s is not the peer that the URI "
                   "names",
                   host);
        doctor_fix(l, "Somebody else answers at that address, or the peer has "
                      "a new key: ask for a new invitation.");
        return;
    case LOCO_EPROTO:
        doctor_say(l, DOCTOR_PROBLEM,
                   "the program that answers at %s is not a loco peer", host);
        doctor_fix(l, "Check the port in the URI.");
        return;
    case LOCO_ECLOSED:
        doctor_say(l, DOCTOR_PROBLEM,
                   "%s closes the connection during the handshake", host);
        doctor_fix(
            l, "It is not a loco peer, or it has too many connections: check "
               "the port in the URI, or try another peer of the run.");
        return;
    case LOCO_ETIMEOUT:
        doctor_say(l, DOCTOR_PROBLEM,
                   "%s accepts the connection, but sends nothing", host);
        doctor_fix(l, "It is not a loco peer, or it hangs: check the port in "
                      "the URI, or try another peer of the run.");
        return;
    default:
        doctor_say(l, DOCTOR_PROBLEM, "the handshake with %s fails: %s", host,
                   h->contact.rc > -30000 ? strerror(-h->contact.rc)
                                          : loco_strerror(h->contact.rc));
        doctor_fix(l, "Try again, or another peer of the run.");
    }
}

static void hello_failed(const struct fact_host *h, struct doctor_line *l)
{
    char theirs[HELLO_VERSIONS_MAX], ours[HELLO_VERSIONS_MAX];

    if (h->contact.rc == LOCO_ERUN) {
        hello_versions(h->contact.oldest, h->contact.newest, theirs);
        hello_versions(PROTO_OLDEST, PROTO_NEWEST, ours);
        doctor_say(l, DOCTOR_PROBLEM,
                   "%s speaks %s of the protocol, this program %s",
                   h->host.host, theirs, ours);
        doctor_fix(l, "Update the older of the two.");
        return;
    }
    doctor_say(
        l, DOCTOR_PROBLEM,
        "%s completes the handshake, then closes the link or sends nothing",
        h->host.host);
    doctor_fix(l, "It may be full or stopping: try another peer of the run.");
}

static void bootstrap_failed(const struct doctor_facts *f,
                             const struct fact_host *h,
                             struct doctor_line *l)
{
    char host[HOST_TEXT_MAX];

    host_text(h, host);
    if (doctor_late(f, h->state, l)) {
        l->level = DOCTOR_PROBLEM;
        doctor_fix(l,
                   "%s may be off, or a name server hangs: ask for the "
                   "address of another peer of the run.",
                   h->host.host);
        return;
    }
    switch (h->contact.step) {
    case CONTACT_RESOLVE:
        doctor_say(l, DOCTOR_PROBLEM, "the name %s cannot be resolved",
                   h->host.host);
        doctor_fix(l, "See the line dns.");
        return;
    case CONTACT_CONNECT:
        connect_failed(h, l);
        return;
    case CONTACT_HANDSHAKE:
        handshake_failed(h, l);
        return;
    case CONTACT_HELLO:
        hello_failed(h, l);
        return;
    case CONTACT_TALKED:
        return;
    }
}

/* Of several, the line names the first that fails; the others count. */
static void none_answers(const struct doctor_facts *f, struct doctor_line *l)
{
    char text[DOCTOR_TEXT_MAX];
    size_t len = 0;

    if (f->n_hosts < 2) {
        return;
    }
    (void)snprintf(text, sizeof text, "none of %u answers: ", f->n_hosts);
    len = strlen(text);
    (void)snprintf(text + len, sizeof text - len, "%.300s", l->what);
    memcpy(l->what, text, sizeof text);
}

void doctor_judge_bootstrap(const struct doctor_facts *f, struct doctor_line *l)
{
    const struct fact_host *good = NULL, *bad = NULL;
    char brief[ID_SHORT_MAX], host[HOST_TEXT_MAX];
    uint32_t n_good = 0;

    if (f->n_hosts == 0) {
        doctor_say(l, DOCTOR_UNCHECKED, "no bootstrap was given");
        doctor_fix(l, "Give --join URI.");
        return;
    }
    for (uint32_t i = 0; i < f->n_hosts; i++) {
        const struct fact_host *h = &f->host[i];

        if (h->state == FACT_FOUND && h->contact.step == CONTACT_TALKED) {
            good = good == NULL ? h : good;
            n_good++;
        } else if (bad == NULL) {
            bad = h;
        }
    }
    if (good == NULL) {
        bootstrap_failed(f, bad, l);
        none_answers(f, l);
        return;
    }
    id_short(&good->contact.peer, brief);
    host_text(good, host);
    doctor_say(l, bad == NULL ? DOCTOR_OK : DOCTOR_WARNING,
               "%u of %u answer; %s is peer %s of this run, linked in %u ms",
               n_good, f->n_hosts, host, brief, good->contact.connect_ms);
    if (bad != NULL) {
        struct doctor_line why = {0};

        bootstrap_failed(f, bad, &why);
        doctor_fix(l, "One is enough, but %s.", why.what);
    }
}
