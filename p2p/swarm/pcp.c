/* pcp.c - see pcp.h. */
#include "p2p/swarm/pcp.h"

#include <string.h>

#include "proto/base/err.h"

#define VERSION      2
#define OPCODE_MAP   1
#define ANSWER       0x80 /* the bit that tells answers from questions */
#define PROTOCOL_TCP 6

#define RESULT_UNSUPP_VERSION 1

/* Offsets in both, in questions, in answers. */
#define AT_LIFETIME 4
#define AT_CLIENT   8
#define AT_RESULT   3
#define AT_NONCE    24
#define AT_PROTOCOL 36
#define AT_INNER    40
#define AT_OUTER    42
#define AT_ADDRESS  44

static void put_be16(uint8_t *p, uint16_t v)
{
    p[0] = (uint8_t)(v >> 8);
    p[1] = (uint8_t)v;
}

static uint16_t get_be16(const uint8_t *p)
{
    return (uint16_t)((unsigned)p[0] << 8 | p[1]);
}

static uint32_t get_be32(const uint8_t *p)
{
    return (uint32_t)get_be16(p) << 16 | get_be16(p + 2);
}

void pcp_map_encode(const struct pcp_map *ask, uint8_t out[PCP_MAP_BYTES])
{
    memset(out, 0, PCP_MAP_BYTES);
    out[0] = VERSION;
    out[1] = OPCODE_MAP;
    put_be16(out + AT_LIFETIME, (uint16_t)(ask->lease_s >> 16));
    put_be16(out + AT_LIFETIME + 2, (uint16_t)ask->lease_s);
    memcpy(out + AT_CLIENT, ask->client, sizeof ask->client);
    memcpy(out + AT_NONCE, ask->nonce, sizeof ask->nonce);
    out[AT_PROTOCOL] = PROTOCOL_TCP;
    put_be16(out + AT_INNER, ask->inner);
    put_be16(out + AT_OUTER, ask->lease_s > 0 ? ask->outer : 0);
    out[AT_ADDRESS + 10] = out[AT_ADDRESS + 11] = 0xff; /* no IPv4 in mind */
}

int pcp_map_decode(const struct pcp_map *ask,
                   const uint8_t *bytes,
                   size_t len,
                   struct pcp_mapped *out)
{
    memset(out, 0, sizeof *out);
    /* The 8 bytes that NAT-PMP says to any other version (RFC 6886, 3.5). */
    if (len >= 8 && len <= PCP_BYTES_MAX && bytes[0] == 0 &&
        (bytes[1] & ANSWER) != 0) {
        return LOCO_ENOENT;
    }
    if (len < 24 || len > PCP_BYTES_MAX || bytes[0] != VERSION ||
        bytes[1] != (ANSWER | OPCODE_MAP)) {
        return LOCO_EPROTO;
    }
    out->result = bytes[AT_RESULT];
    if (out->result == RESULT_UNSUPP_VERSION) {
        return LOCO_ENOENT;
    }
    if (len < PCP_MAP_BYTES ||
        memcmp(bytes + AT_NONCE, ask->nonce, sizeof ask->nonce) != 0 ||
        bytes[AT_PROTOCOL] != PROTOCOL_TCP ||
        get_be16(bytes + AT_INNER) != ask->inner) {
        return LOCO_EPROTO;
    }
    if (out->result != 0) {
        return LOCO_EBUSY;
    }
    out->lease_s = get_be32(bytes + AT_LIFETIME);
    memcpy(out->at.ip, bytes + AT_ADDRESS, sizeof out->at.ip);
    out->at.port = get_be16(bytes + AT_OUTER);
    return ask->lease_s > 0 && out->at.port == 0 ? LOCO_EPROTO : 0;
}
