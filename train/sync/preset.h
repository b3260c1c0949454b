/* preset.h - a named training method as settings of the one sync engine.
 *
 * The rows live in presets.def; a run manifest names one (`sync.preset`) and
 * may override single fields. Names that the design knows but this build
 * cannot run yet are refused as such, other names with the nearest one that
 * exists. Constant tables, no state.
 */
#ifndef LOCO_TRAIN_SYNC_PRESET_H
#define LOCO_TRAIN_SYNC_PRESET_H

#include <stddef.h>
#include <stdint.h>

#include "train/sync/codec.h"
#include "train/sync/rule.h"

struct preset {
    const char *name;
    enum codec_id wire;
    uint32_t period; /* inner steps between two rounds, default */
    struct rule rule;
    const char *source; /* the paper */
};

/* 0 and the row; LOCO_EINVAL for a method that is not built yet and
 * LOCO_ENOENT for an unknown name, with a sentence in `errmsg` (errmsg.h). */
int preset_find(const char *name, const struct preset **out, char *errmsg);

/* The i-th row that can run, for lists and completion; NULL at the end. */
const struct preset *preset_at(size_t i);

#endif
