/* stream.c - see stream.h. */
#include "train/sync/stream.h"

bool stream_begins(const struct stream *s, uint64_t k, struct stream_turn *t)
{
    uint64_t interval, at;

    if (s->period == 0 || k == 0) {
        return false;
    }
    interval = s->period / s->fragments;
    if (s->overlap == s->period) {
        at = k;
    } else {
        at = k + s->overlap;
    }
    if (at % interval != 0) {
        return false;
    }
    t->number = at / interval - 1;
    t->fragment = (uint32_t)(t->number % s->fragments);
    return true;
}

bool stream_ends(const struct stream *s, uint64_t k, struct stream_turn *t)
{
    uint64_t interval, number;

    if (s->period == 0 || k == 0) {
        return false;
    }
    interval = s->period / s->fragments;
    if (k % interval != 0) {
        return false;
    }
    number = k / interval - 1;
    if (s->overlap == s->period) {
        if (number == 0) {
            return false; /* nothing has come yet */
        }
        number--;
    }
    t->number = number;
    t->fragment = (uint32_t)(number % s->fragments);
    return true;
}

double stream_rate(const struct stream *s)
{
    return s->period == 0 ? 0.0 : 1.0 / (double)s->period;
}
