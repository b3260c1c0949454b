/* method_manifest.h - a run's sync settings as the engine's method, and back.
 *
 * A manifest names a preset and a few numbers; what it cannot say (group, form
 * of the rule, DyLU...) is the preset's. proto knows manifests, train knows
 * methods; they meet here.
 */
#ifndef LOCO_DAEMON_METHOD_MANIFEST_H
#define LOCO_DAEMON_METHOD_MANIFEST_H

#include "proto/manifest.h"
#include "train/sync/preset.h"

/* A setting as people wrote it: 0.7 for 0.7F, which is 0.699999988. */
double manifest_real(float v);

/* The preset's values into a manifest. */
void manifest_from_preset(struct manifest_sync *to, const struct preset *from);

/* The method that a manifest names; checked. 0 or an error with a sentence in
 * errmsg. */
int method_from_manifest(struct method *to,
                         const struct manifest_sync *from,
                         char *errmsg);

/* Whether the inner optimizer has what the method averages; else as below. */
int method_check_inner(const struct method *m,
                       const struct manifest_inner *f,
                       char *errmsg);

/* Whether this build's daemons can train that manifest by its method, which is
 * checked. What `loco run create` refuses to write and a daemon to take part in
 * is this one list. LOCO_EINVAL, and in errmsg a sentence with the reason and
 * the nearest setting that can be. */
int method_check_run(const struct method *m,
                     const struct manifest *f,
                     char *errmsg);

#endif
