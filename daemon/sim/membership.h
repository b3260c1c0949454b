/* membership.h - a crowd of real membership cores (p2p/swarm/members.h),
 * without DHT, views and rounds: a thousand peers for minutes of virtual time.
 *
 * Each peer is a small core around struct members that says HELLO and passes
 * messages on, as daemon/node/node.c does. Groups of up to `group` peers watch
 * each other as the members of a view do.
 *
 *   membership  peers die (some come back), others freeze (some wake).
 *               Measured: who learns of it when; false alarms; bytes of an
 *               idle peer
 *   partition   the crowd is cut into parts (or in one direction only) and
 *               healed. Measured: until the first link over the cut, until
 *               everybody knows everybody again
 *
 * A crowd larger than the tables (`rows`) is known to each peer in part. Who
 * has a row for a peer must learn of its death; how true and how even the
 * samples are is measured.
 *
 * What must hold, all the time: no `out` overflows, no deadline spins, no more
 * neighbours than allowed, links bounded. In `membership`: whoever is dead or
 * frozen is known to the others of its group within 3 s; while nothing happens
 * and no packet is lost, hardly a rumour is told. At the end: all live
 * peers know all live peers (or have a table full of them, of which at most one
 * in fifty is gone, and everybody is in some table), every neighbourhood is
 * mutual, nobody is alone.
 */
#ifndef LOCO_DAEMON_SIM_MEMBERSHIP_H
#define LOCO_DAEMON_SIM_MEMBERSHIP_H

#include <stdbool.h>
#include <stdint.h>

struct membership_options {
    bool partition;
    uint32_t peers;            /* 0: 200 */
    uint32_t group;            /* 0: 16; 1: none */
    uint32_t rows;             /* of a table; 0: PEERS_MAX, 256 above 2,000 */
    uint32_t faults;           /* membership: deaths and freezes; 0: 20 */
    uint32_t loss_per_million; /* packets sent again by TCP */
    uint32_t parts;            /* partition: 0: 2. 1: one direction of a half */
    uint64_t cut_ms;           /* partition: 0: 60 s */
    uint64_t seed;
};

/* What was measured. */
struct membership_result {
    double idle_bytes_per_s; /* sent, mean over peers */
    double idle_bytes_per_s_max;
    double links, neighbours; /* mean, idle */
    uint32_t group_ms_max;    /* fault to the last of its group that knew */
    uint32_t all_ms_median, all_ms_p99, all_ms_max; /* fault to each peer */
    uint32_t faults, unknown;      /* pairs (fault, peer) that never knew */
    uint64_t false_alarms;         /* live peers declared dead, or lost */
    double peer_days;              /* in which they happened */
    double stale_share;            /* of the rows thought alive at the end */
    double known_by_mean;          /* tables that have a live peer, */
    uint32_t known_by_min;         /* and the least for any */
    uint64_t noticed_ms, whole_ms; /* partition: after the heal */
    double by_type[32];
};

#endif
