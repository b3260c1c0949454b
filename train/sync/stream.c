/* stream.c - see stream.h. */
#include "train/sync/stream.h"

#include <stddef.h>

#include "proto/base/err.h"

static int refuse(const char **reason, const char *why)
{
    if (reason != NULL) {
        *reason = why;
    }
    return LOCO_EINVAL;
}

int stream_check(const struct stream *s, const char **reason)
{
    if (s->period == 0) {
        return 0;
    }
    if (s->fragments == 0 || s->period % s->fragments != 0) {
        return refuse(reason, "the number of fragments must divide the period: "
                              "each is synchronised once in it; choose a "
                              "divisor or 1");
    }
    if (s->overlap == s->period && s->fragments == 1) {
        return 0;
    }
    if (s->overlap >= s->period / s->fragments) {
        return refuse(reason, "the overlap must be below period / fragments, "
                              "or turns would overtake each other; lower it, "
                              "or set it to the period with one fragment for "
                              "the eager form");
    }
    if (s->overlap > 0 && s->tensor != STREAM_PARAMETERS) {
        return refuse(reason, "only the parameters may overlap with training: "
                              "a gradient or a moment that is late belongs to "
                              "a step that is over; set overlap to 0");
    }
    return 0;
}

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
