/* short_method.h - presets for tests of a few steps. Include cmocka before it.
 */
#ifndef LOCO_TESTS_UNIT_TRAIN_SHORT_METHOD_H
#define LOCO_TESTS_UNIT_TRAIN_SHORT_METHOD_H

#include "proto/base/errmsg.h"
#include "train/sync/preset.h"

/* A preset with periods that fit into a few steps, on an exact wire. */
static inline struct method method_of(const char *name)
{
    char errmsg[ERRMSG_SIZE] = "";
    const struct preset *p;
    struct method m;

    if (preset_find(name, &p, errmsg) != 0) {
        fail_msg("%s", errmsg);
    }
    m = p->method;
    m.wire = CODEC_FP32;
    m.period = m.gradients ? 0 : m.fragments > 1 ? 6 : 4;
    m.fragments = m.fragments > 1 ? 2 : 1;
    m.overlap = m.eager ? m.period : m.overlap;
    if (m.period_u > 0 && m.period_u != m.period_v) {
        m.period_u = 6; /* no multiple of 4: rounds with moments only */
        m.period_v = 12;
    } else if (m.period_u > 0) {
        m.period_u = m.period_v = 4;
    }
    if (method_check(&m, errmsg) != 0) {
        fail_msg("%s: %s", name, errmsg);
    }
    return m;
}

#endif
