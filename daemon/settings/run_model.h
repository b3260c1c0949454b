/* run_model.h - the model that a run's manifest names.
 *
 * Pure.
 */
#ifndef LOCO_DAEMON_SETTINGS_RUN_MODEL_H
#define LOCO_DAEMON_SETTINGS_RUN_MODEL_H

#include "proto/manifest.h"
#include "train/model/llama_part.h"

/* Not checked. */
struct llama_config run_model(const struct manifest_model *m);

/* The same, checked, and all of its parameters as one part. A list of tensors
 * is a config of zeros (who sees dim 0 knows), in a part of that many elements.
 * LOCO_EINVAL with what is wrong in *reason (static text; may be NULL). */
int run_model_whole(const struct manifest *m,
                    struct llama_config *model,
                    struct llama_part *whole,
                    const char **reason);

#endif
