/* wire.h - one direction of one link: a queue, a rate, a distance, bad luck.
 *
 * Cost: O(1) a packet (O(reordered packets) where reordering is asked for).
 * A packet that enters at time t leaves the sender's interface when the ones
 * before it and itself have been sent at `rate`, and arrives `delay` plus
 * jitter later. The interface is a *virtual finish time*, not a bucket of
 * tokens: free_at_ns says when the last byte of all that was accepted will have
 * been sent, with the remainder of the division carried on, so that any number
 * of bytes takes exactly bytes * 8 / rate seconds however the packets came.
 *
 * Words: *bytes* of a packet are those of IP, of all its segments; `overhead`
 * is added to each for the rate (14: an Ethernet header, as the kernel's own
 * shapers count); *ns* are nanoseconds of a monotonic clock; 0 as a rate means
 * no limit.
 *
 * Jitter alone never reorders: nobody arrives before the one in front.
 * Losses take their share of the rate, as noise on a real line does; a cut
 * takes nothing, and what is under way when it comes never arrives.
 * A change of rate or delay holds for packets that enter after it.
 *
 * Pure: no sockets, no clock. Packets are the caller's memory, in this wire's
 * hands between wire_enter() and wire_leave().
 */
#ifndef LOCO_TESTS_NETLAB_WIRE_H
#define LOCO_TESTS_NETLAB_WIRE_H

#include "tests/netlab/packet.h"

#define WIRE_NEVER INT64_MAX

struct wire_options {
    uint64_t rate_bps;    /* bits per second; 0: no limit */
    int64_t delay_ns;     /* one way */
    int64_t jitter_ns;    /* uniform in 0..jitter, on top */
    double loss;          /* probability, 0..1 */
    uint64_t queue_bytes; /* 0: no limit but queue_ns */
    int64_t queue_ns;     /* drop what would wait longer; 0: no limit */
    uint32_t overhead;    /* bytes a packet beside those of IP */
    bool cut, reorder;
};

struct wire_count {
    uint64_t packets, bytes; /* arrived */
    uint64_t dropped_queue, dropped_loss, dropped_cut;
};

struct wire {
    struct wire_options opt;
    struct wire_count count;
    uint64_t rng;
    int64_t free_at_ns;
    uint64_t remainder; /* of the division by rate, in bit * 1e9 */
    int64_t last_at_ns; /* arrival of the packet that entered last */
    struct packet *head, *tail;
};

/* 100 ms of queue, 14 bytes of overhead, nothing else. */
void wire_init(struct wire *w, uint64_t seed);

/* New properties from now on. */
void wire_set(struct wire *w, const struct wire_options *opt);

/* Whether a super-packet may enter as it is; if not, its segments must, one by
 * one: some may be lost and others not. */
bool wire_takes_whole(const struct wire *w,
                      const struct packet *p,
                      int64_t now_ns);

/* True: the wire has taken the packet (p->at_ns is set). False: it is dropped
 * and counted, and still the caller's. */
bool wire_enter(struct wire *w, struct packet *p, int64_t now_ns);

/* Arrival of the next packet or WIRE_NEVER. */
int64_t wire_due(const struct wire *w);

/* The next packet with at_ns <= now_ns; NULL: there is none. `*dropped`: it is
 * lost to a cut; either way it is the caller's again. */
struct packet *wire_leave(struct wire *w, int64_t now_ns, bool *dropped);

#endif
