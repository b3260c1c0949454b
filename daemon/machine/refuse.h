/* refuse.h - whether this machine refuses a run for its settings.
 *
 * The rules are rows of proto/base/rules.def (REFUSE_MACHINE); config.c asks
 * them before a run is configured.
 */
#ifndef LOCO_DAEMON_MACHINE_REFUSE_H
#define LOCO_DAEMON_MACHINE_REFUSE_H

#include <stdbool.h>
#include <stdint.h>

#include "proto/base/rules.h"
#include "proto/manifest.h"

/* Settings that a run can be refused for; a worker's copy. */
struct machine_limits {
    bool encryption;
    uint64_t upload_bytes_per_s, download_bytes_per_s;
};

/* config.c: whether a rule refuses the run with this machine's settings
 * (REFUSE_MACHINE of rules.def). */
bool machine_refuses(enum conflict_id id,
                     const struct manifest *f,
                     const struct machine_limits *o);
/* Tensor data travels without encryption only where the run and this machine
 * both say so: either alone is a misunderstanding that a person must clear. 0,
 * or LOCO_EINVAL with the sentence of a rule. */
int machine_check(const struct manifest *f,
                  const struct machine_limits *o,
                  char *errmsg);

#endif
