/* pace.c - see pace.h. */
#include "daemon/jobs/pace.h"

static bool settle(struct pace *p, bool now)
{
    p->owed = p->owed && !now;
    return now;
}

bool pace_due(struct pace *p, uint64_t now_ms, bool busy)
{
    return settle(p,
                  p->owed && !busy && now_ms >= p->next_ms + PACE_PATIENCE_MS);
}

bool pace_now(struct pace *p, bool busy)
{
    return settle(p, p->owed && !busy);
}

bool pace_want(struct pace *p, uint64_t now_ms, bool busy)
{
    p->owed = true;
    return settle(p, !busy && now_ms >= p->next_ms);
}

bool pace_expects(const struct pace *p,
                  uint64_t now_ms,
                  uint64_t under_way_ms,
                  uint64_t later_ms)
{
    if (under_way_ms != PACE_IDLE) { /* a pause follows, unless it is cheap */
        return under_way_ms < PACE_CHEAP_MS || later_ms > PACE_PATIENCE_MS;
    }
    return now_ms >= p->next_ms ||
           now_ms + later_ms >= p->next_ms + PACE_PATIENCE_MS;
}

void pace_done(struct pace *p,
               uint64_t now_ms,
               uint64_t took_ms,
               uint64_t percent)
{
    p->next_ms = took_ms < PACE_CHEAP_MS
                     ? now_ms
                     : now_ms + took_ms * (100 - percent) / percent;
}

void pace_again(struct pace *p)
{
    p->next_ms = 0;
}
