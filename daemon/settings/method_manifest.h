/* method_manifest.h - a run's sync settings as the engine's method, and back.
 *
 * A manifest names a preset and a few numbers; what it cannot say (group, form
 * of the rule, DyLU...) is the preset's. proto knows manifests, train knows
 * methods; they meet here.
 */
#ifndef LOCO_DAEMON_SETTINGS_METHOD_MANIFEST_H
#define LOCO_DAEMON_SETTINGS_METHOD_MANIFEST_H

#include "proto/manifest.h"
#include "train/sync/preset.h"

/* A setting as people wrote it: 0.7 for 0.7F, which is 0.699999988. */
double manifest_real(float v);

/* The preset's values into a manifest. */
void manifest_from_preset(struct manifest *f, const struct preset *from);

/* Whether this rule refuses the manifest, whose method is `m`; any scope but
 * SCOPE_MACHINE. FORMAT: its values alone must be right (doc_check). */
bool rules_refuse(enum conflict_id id,
                  const struct method *m,
                  const struct manifest *f);

/* 0, or LOCO_EINVAL and the sentence of the first rule that refuses it, with
 * the reason and the nearest valid setting. SCOPE_SETTINGS as `most`: what
 * the laboratory can play; SCOPE_RUN: what peers can train.
 * manifest_validate() asks the rules of the format. */
int rules_check(const struct method *m,
                const struct manifest *f,
                enum conflict_scope most,
                char *errmsg);

/* The method that a manifest names, checked so. What `loco run create` refuses
 * to write and a daemon to take part in is this one list. 0 or an error with a
 * sentence in errmsg. */
int method_from_manifest(struct method *to,
                         const struct manifest *f,
                         enum conflict_scope most,
                         char *errmsg);

#endif
