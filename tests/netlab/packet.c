/* packet.c - see packet.h. The cut of a super-packet: each segment has its own
 * sequence number and IP identification; FIN and PSH stand on the last one
 * only, CWR on the first (RFC 3168, 6.1.2). The checksum of TCP stays with the
 * card: its field holds the sum over the pseudo header (RFC 9293, 3.1).
 */
#include "tests/netlab/packet.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#define TCP_FIN 0x01
#define TCP_PSH 0x08
#define TCP_CWR 0x80

static void put16(uint8_t *at, uint32_t value)
{
    at[0] = (uint8_t)(value >> 8);
    at[1] = (uint8_t)value;
}

static uint32_t get16(const uint8_t *at)
{
    return (uint32_t)at[0] << 8 | at[1];
}

/* Bytes of the IP and of both headers; 0, 0 when this is no plain TCP. */
static void headers(const uint8_t *bytes, size_t len, size_t *ip, size_t *all)
{
    size_t tcp = 0;

    *ip = *all = 0;
    if (len >= 40 && bytes[0] >> 4 == 4 && bytes[9] == 6) {
        tcp = (size_t)(bytes[0] & 15) * 4;
    } else if (len >= 60 && bytes[0] >> 4 == 6 && bytes[6] == 6) {
        tcp = 40;
    }
    if (tcp >= 20 && tcp + 20 <= len) {
        size_t end = tcp + (size_t)(bytes[tcp + 12] >> 4) * 4;

        if (end >= tcp + 20 && end <= len) {
            *ip = tcp;
            *all = end;
        }
    }
}

/* One packet whose bytes are still to be written; NULL: no memory. */
static struct packet *make(const struct virtio_net_hdr *offload, size_t len)
{
    struct packet *p = malloc(sizeof *p + len);

    if (p != NULL) {
        memset(p, 0, sizeof *p);
        p->len = p->wire_bytes = (uint32_t)len;
        p->segments = 1;
        p->offload = *offload;
    }
    return p;
}

struct packet *packet_new(const struct virtio_net_hdr *offload,
                          const uint8_t *bytes,
                          size_t len)
{
    struct packet *p = make(offload, len);
    size_t ip, all;

    if (p == NULL) {
        return NULL;
    }
    memcpy(p->bytes, bytes, len);
    if (offload->gso_type != VIRTIO_NET_HDR_GSO_NONE && offload->gso_size > 0) {
        headers(bytes, len, &ip, &all);
        if (all > 0 && len > all) {
            size_t n = (len - all + offload->gso_size - 1) / offload->gso_size;

            p->segments = (uint16_t)n;
            p->wire_bytes = (uint32_t)(len + (n - 1) * all);
        }
    }
    return p;
}

/* One's complement sum of 16 bit words, len even. */
static uint32_t sum16(uint32_t sum, const uint8_t *at, size_t len)
{
    for (size_t i = 0; i < len; i += 2) {
        sum += get16(at + i);
    }
    return sum;
}

static uint32_t fold(uint32_t sum)
{
    sum = (sum & 0xffff) + (sum >> 16);
    return (sum & 0xffff) + (sum >> 16);
}

/* Lengths, identification and sums of segment i with `len` bytes in all. */
static void ip_fix(uint8_t *b, unsigned i, size_t ip, size_t len)
{
    uint32_t pseudo = 6 + (uint32_t)(len - ip);

    if (b[0] >> 4 == 4) {
        put16(b + 2, (uint32_t)len);
        put16(b + 4, get16(b + 4) + i);
        put16(b + 10, 0);
        put16(b + 10, ~fold(sum16(0, b, ip)));
        pseudo = sum16(pseudo, b + 12, 8);
    } else {
        put16(b + 4, (uint32_t)(len - ip));
        pseudo = sum16(pseudo, b + 8, 32);
    }
    put16(b + ip + 16, fold(pseudo));
}

struct packet *packet_segment(const struct packet *p, unsigned i)
{
    size_t ip, all, part = p->offload.gso_size, from = i * part, len;
    struct virtio_net_hdr offload = {0};
    struct packet *s;
    uint32_t seq;

    assert(p->segments > 1 && i < p->segments);
    headers(p->bytes, p->len, &ip, &all);
    len = p->len - all - from < part ? p->len - all - from : part;
    offload.flags = VIRTIO_NET_HDR_F_NEEDS_CSUM;
    offload.csum_start = (uint16_t)ip;
    offload.csum_offset = 16;
    s = make(&offload, all + len);
    if (s == NULL) {
        return NULL;
    }
    memcpy(s->bytes, p->bytes, all);
    memcpy(s->bytes + all, p->bytes + all + from, len);
    s->to = p->to;
    seq = get16(s->bytes + ip + 4) << 16 | get16(s->bytes + ip + 6);
    seq += (uint32_t)from;
    put16(s->bytes + ip + 4, seq >> 16);
    put16(s->bytes + ip + 6, seq);
    if (i > 0) {
        s->bytes[ip + 13] &= (uint8_t)~TCP_CWR;
    }
    if (i + 1u < p->segments) {
        s->bytes[ip + 13] &= (uint8_t) ~(TCP_FIN | TCP_PSH);
    }
    ip_fix(s->bytes, i, ip, all + len);
    return s;
}
