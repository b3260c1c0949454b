/* mapping.c - see mapping.h. */
#include "p2p/swarm/mapping.h"

#include <string.h>

#include "p2p/prefix.h"

#define RETRY_MIN_MS 60000U
#define RETRY_MAX_MS 1800000U
/* A router that promises less is asked as if it had promised this. */
#define LEASE_MIN_S 60

void mapping_init(struct mapping *m, uint16_t port, uint64_t now_ms)
{
    memset(m, 0, sizeof *m);
    m->port = m->outer = port;
    m->due_ms = now_ms;
}

enum mapping_do mapping_next(struct mapping *m, uint64_t now_ms)
{
    if (m->asking) {
        return MAPPING_NOTHING;
    }
    if (m->closing) {
        m->asking = m->removing = m->held;
        return m->held ? MAPPING_REMOVE : MAPPING_NOTHING;
    }
    if (now_ms < m->due_ms) {
        return MAPPING_NOTHING;
    }
    m->asking = true;
    return MAPPING_ASK;
}

static uint64_t retry_ms(unsigned failures)
{
    uint64_t ms = RETRY_MIN_MS;

    while (failures-- > 1 && ms < RETRY_MAX_MS) {
        ms *= 2;
    }
    return ms < RETRY_MAX_MS ? ms : RETRY_MAX_MS;
}

/* Loopback, link-local, multicast, reserved: no machine has it from outside. */
static bool is_unicast(const uint8_t ip[16])
{
    if (prefix_is_v4(ip)) {
        return ip[12] > 0 && ip[12] < 224 && ip[12] != 127 &&
               !(ip[12] == 169 && ip[13] == 254);
    }
    return ip[0] != 0 && ip[0] < 0xfe;
}

bool mapping_answer(struct mapping *m,
                    int rc,
                    const struct address *at,
                    uint32_t lease_s,
                    uint64_t now_ms)
{
    struct address outer = *at;
    bool was = m->held;

    if (!is_unicast(outer.ip)) {
        memset(outer.ip, 0, sizeof outer.ip); /* the peers will tell us */
    }
    m->asking = false;
    if (m->removing) {
        m->removing = false;
        m->held = false; /* removed, or we tried */
        return true;
    }
    if (rc != 0 || at->port == 0) {
        m->failures++;
        m->held = false;
        m->due_ms = now_ms + retry_ms(m->failures);
        return was;
    }
    lease_s = lease_s < LEASE_MIN_S       ? LEASE_MIN_S
              : lease_s > MAPPING_LEASE_S ? MAPPING_LEASE_S
                                          : lease_s;
    m->failures = 0;
    m->held = true;
    m->outer = at->port;
    m->due_ms = now_ms + 1000ULL * lease_s / 2;
    if (was && address_eq(&m->at, &outer)) {
        return false;
    }
    m->at = outer;
    return true;
}

void mapping_close(struct mapping *m)
{
    m->closing = true;
}

uint64_t mapping_deadline(const struct mapping *m)
{
    if (m->asking) {
        return CORE_NEVER;
    }
    return m->closing ? (m->held ? 0 : CORE_NEVER) : m->due_ms;
}
