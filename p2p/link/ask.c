/* ask.c - see ask.h. */
#include "p2p/link/ask.h"

#include <string.h>

#include "proto/base/bytes.h"
#include "proto/base/err.h"

#define ASK_TOKEN ID_BYTES
#define ASK_MEET  (ID_BYTES + 8)
#define MET_PORT  16
#define MET_ZEROS 18

void ask_write(const struct ask *a, uint8_t out[ASK_BYTES])
{
    memcpy(out, a->other.b, ID_BYTES);
    put_u64(out + ASK_TOKEN, a->token);
    put_u64(out + ASK_MEET, a->meet);
}

int ask_read(const uint8_t in[ASK_BYTES], struct ask *a)
{
    uint64_t meet = get_u64(in + ASK_MEET);

    if (meet > 1) {
        return LOCO_EPROTO;
    }
    memcpy(a->other.b, in, ID_BYTES);
    a->token = get_u64(in + ASK_TOKEN);
    a->meet = meet == 1;
    return 0;
}

void ready_write(uint8_t out[READY_BYTES])
{
    put_u64(out, 0);
}

int ready_read(const uint8_t in[READY_BYTES])
{
    return get_u64(in) == 0 ? 0 : LOCO_EPROTO;
}

void met_write(const struct met *m, uint8_t out[MET_BYTES])
{
    memset(out, 0, MET_BYTES);
    memcpy(out, m->ip, sizeof m->ip);
    put_u16(out + MET_PORT, m->port);
}

int met_read(const uint8_t in[MET_BYTES], struct met *m)
{
    uint16_t port = get_u16(in + MET_PORT);

    for (unsigned i = MET_ZEROS; i < MET_BYTES; i++) {
        if (in[i] != 0) {
            return LOCO_EPROTO;
        }
    }
    if (port == 0) {
        return LOCO_EPROTO;
    }
    memcpy(m->ip, in, sizeof m->ip);
    m->port = port;
    return 0;
}
