/* uri.h - the invitation: where a run can be entered, and which run.
 *
 *     loco://HOST:PORT[,HOST:PORT...]/RUNID[?peer=ID][&invite=TOKEN]
 *
 * HOST is a DNS name, an IPv4 address, or an IPv6 address in brackets; up to
 * URI_HOSTS_MAX of them, tried in order. RUNID is the run id in 64 hex digits.
 * `peer` pins the key of whoever answers first: with it a stranger who took
 * over the address is refused. `invite` is the secret that a run for invited
 * peers asks for (invite.h); without `peer` it follows the `?`. Nothing else is
 * in it, so nothing else can be wrong.
 *
 * Pure; malformed text is LOCO_EINVAL with a sentence in errmsg
 * (LOCO_ERRMSG_MAX bytes, may be NULL).
 */
#ifndef LOCO_PROTO_URI_H
#define LOCO_PROTO_URI_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "proto/id.h"
#include "proto/invite.h"
#include "proto/limits.h"

struct uri_host {
    char host[URI_HOST_MAX]; /* without brackets */
    uint16_t port;
    bool ipv6; /* literal address: brackets when formatted */
};

struct uri {
    uint32_t n_hosts;
    struct uri_host hosts[URI_HOSTS_MAX];
    struct hash32 run;
    bool has_peer, has_invite;
    struct peer_id peer;
    struct invite invite;
};

int uri_parse(const char *text, struct uri *u, char *errmsg);

/* The text that uri_parse() reads back; its length, or LOCO_ERANGE. */
int uri_format(const struct uri *u, char *out, size_t cap);

/* One "HOST:PORT", also for addresses outside an invitation. Port 0 is allowed
 * only with `any_port` (listen addresses: the system chooses). */
int uri_host_parse(const char *text,
                   bool any_port,
                   struct uri_host *h,
                   char *errmsg);

/* "HOST:PORT" or "[IPv6]:PORT"; its length, or LOCO_ERANGE. */
int uri_host_format(const struct uri_host *h, char *out, size_t cap);

#endif
