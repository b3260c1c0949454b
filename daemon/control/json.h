/* json.h - numbers and names as the API's documents write them. */
#ifndef LOCO_DAEMON_CONTROL_JSON_H
#define LOCO_DAEMON_CONTROL_JSON_H

#include <jansson.h>
#include <math.h>
#include <stdint.h>

#include "proto/id.h"

static inline json_t *json_of_count(uint64_t v)
{
    return json_integer(v > INT64_MAX ? INT64_MAX : (json_int_t)v);
}

/* null where it is not finite: JSON has no such number. */
static inline json_t *json_of_real(double v)
{
    return isfinite(v) ? json_real(v) : json_null();
}

static inline json_t *json_of_id(const struct peer_id *id)
{
    char hex[ID_HEX_MAX];

    id_hex(id, hex);
    return json_string(hex);
}

#endif
