/* contact.h - one visit at a peer by a stranger, and what it told us.
 *
 * `loco doctor` finds out whether a bootstrap can be joined by doing what a
 * joining daemon does first: resolve, connect, shake hands, HELLO; then it asks
 * for the manifest and the run's records, and, only if told to, fetches some
 * pieces of a shard to see how fast they come. It joins nothing, says goodbye
 * and leaves nothing behind but a row among those who left.
 *
 * The *step* names how far it got; everything after a failed step is unset.
 * A visit ends by limit_ms, its goodbye a second later at most. Blocking, one
 * thread a visit.
 */
#ifndef LOCO_DAEMON_VISIT_CONTACT_H
#define LOCO_DAEMON_VISIT_CONTACT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "p2p/core.h"
#include "proto/manifest.h"
#include "proto/uri.h"

#define CONTACT_ADDRESSES_MAX 4 /* of one name, tried in order */

enum contact_step {
    CONTACT_RESOLVE,
    CONTACT_CONNECT,
    CONTACT_HANDSHAKE,
    CONTACT_HELLO, /* shaken hands, but then nothing came, or (LOCO_ERUN) the
                      peer speaks other versions of the protocol */
    CONTACT_TALKED
};

struct contact_options {
    struct uri_host host;
    struct hash32 run_id;
    struct peer_id pin; /* zero: anyone */
    uint32_t limit_ms;
    bool manifest_only;      /* records are not asked for */
    uint64_t transfer_bytes; /* 0: no transfer */
    uint32_t transfer_ms;    /* it ends by then */
};

struct contact {
    enum contact_step step; /* the one that failed, or CONTACT_TALKED */
    int rc;                 /* RESOLVE: of getaddrinfo; else negative codes */
    uint32_t n_addresses, resolve_ms, connect_ms;
    struct address address; /* that answered, or the last one tried */
    struct peer_id peer;
    struct address observed; /* how the peer sees us; port 0 */
    uint8_t oldest, newest;  /* versions that the peer speaks */
    bool has_manifest;       /* signature and every value are right */
    struct hash32 manifest_run;
    struct manifest *manifest; /* returned: caller frees with free() */
    char errmsg[256];          /* of a manifest that is not right */
    uint64_t newest_expiry_s;  /* of the run's records there; 0: none */
    uint64_t transfer_bytes, transfer_us; /* 0: none */
    int transfer_rc;
};

/* Fill in *c; never fails as a whole. */
void contact_visit(const struct contact_options *opt, struct contact *c);

#endif
