/* preset.h - a named training method as settings of the one sync engine.
 *
 * The rows live in presets.def; a run manifest names one (`sync.preset`) and
 * may override single fields. The answer to an unknown name suggests a preset
 * that is spelt nearly so, or lists them all. Constant tables, no state.
 */
#ifndef LOCO_TRAIN_SYNC_PRESET_H
#define LOCO_TRAIN_SYNC_PRESET_H

#include <stddef.h>

#include "train/sync/method.h"

struct preset {
    const char *name;
    const char *source;    /* the paper */
    const char *optimizer; /* inner.optimizer; NULL: any */
    struct method method;
};

/* 0 and the row; LOCO_ENOENT for an unknown name, with a sentence in `errmsg`
 * (errmsg.h). */
int preset_find(const char *name, const struct preset **out, char *errmsg);

/* The i-th row, for lists and completion; NULL at the end. */
const struct preset *preset_at(size_t i);

#endif
