/* mapping.c - see mapping.h. */
#include "p2p/swarm/mapping.h"

#include <string.h>

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

bool mapping_answer(struct mapping *m,
                    int rc,
                    const struct address *at,
                    uint32_t lease_s,
                    uint64_t now_ms)
{
    bool was = m->held;

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
    if (was && address_eq(&m->at, at)) {
        return false;
    }
    m->at = *at;
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
