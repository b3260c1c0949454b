/* clock.h - the monotonic clock and the wall, for shells and commands. Pure
 * cores get the time with their events and never call this. */
#ifndef LOCO_PROTO_BASE_CLOCK_H
#define LOCO_PROTO_BASE_CLOCK_H

#include <stdint.h>
#include <time.h>

static inline uint64_t monotonic_us(void)
{
    struct timespec ts;

    (void)clock_gettime(CLOCK_MONOTONIC, &ts);
    return (uint64_t)ts.tv_sec * 1000000U + (uint64_t)ts.tv_nsec / 1000U;
}

static inline uint64_t monotonic_ms(void)
{
    return monotonic_us() / 1000U;
}

static inline double monotonic_s(void)
{
    struct timespec ts;

    (void)clock_gettime(CLOCK_MONOTONIC, &ts);
    return (double)ts.tv_sec + 1e-9 * (double)ts.tv_nsec;
}

/* Since 1970. */
static inline int64_t wall_ms(void)
{
    struct timespec ts;

    (void)clock_gettime(CLOCK_REALTIME, &ts);
    return (int64_t)ts.tv_sec * 1000 + ts.tv_nsec / 1000000;
}

#endif
