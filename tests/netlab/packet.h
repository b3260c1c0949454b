/* packet.h - what travels: one IP packet, or many segments of TCP as one.
 *
 * The kernel hands over TCP in *super-packets*: one header, up to 64 kB, to be
 * cut into segments of `gso_size` by the network card (TSO). To carry those
 * whole is what makes hundreds of Mbit/s cheap; a wire counts them as the
 * segments that they stand for, and where one of them may get lost the
 * super-packet is cut here as the card would.
 *
 * Memory: one allocation a packet, of its size.
 */
#ifndef LOCO_TESTS_NETLAB_PACKET_H
#define LOCO_TESTS_NETLAB_PACKET_H

#include <linux/virtio_net.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define PACKET_BYTES_MAX 65535

struct packet {
    struct packet *next;
    int64_t at_ns;       /* arrives at the far end of the wire it is on */
    uint32_t len;        /* of bytes */
    uint32_t wire_bytes; /* of IP, with the headers of all segments */
    uint16_t segments;
    uint16_t to;                   /* the router's business */
    struct virtio_net_hdr offload; /* what is left to a network card */
    uint8_t bytes[];               /* from the IP header on */
};

/* A packet as the kernel gave it; NULL: no memory. */
struct packet *packet_new(const struct virtio_net_hdr *offload,
                          const uint8_t *bytes,
                          size_t len);

/* Segment i < segments of a super-packet, ready to be sent; NULL: no memory. */
struct packet *packet_segment(const struct packet *p, unsigned i);

#endif
