/* model.h - a trained model from disk, for the commands that use one.
 *
 * Two sources: a state directory (the newest whole checkpoint, its anchor phi,
 * shaped by the run's manifest) and an exported model (config.json and
 * model.safetensors with Hugging Face's names, fp32).
 *
 * Memory: 4 bytes a parameter. Blocking. How it fails: LOCO_ENOENT,
 * LOCO_EFORMAT, LOCO_EINVAL, LOCO_ENOMEM with a sentence in errmsg.
 */
#ifndef LOCO_DAEMON_MODEL_H
#define LOCO_DAEMON_MODEL_H

#include <stdint.h>

#include "train/errmsg.h"
#include "train/llama_config.h"

#define MODEL_RUN_ID_MAX 65

struct model {
    struct llama_config config;
    float *theta;                  /* (llama_numel) */
    uint64_t round;                /* 0 for an exported model */
    char run_id[MODEL_RUN_ID_MAX]; /* empty likewise */
};

/* model_close afterwards, whatever the result. */
int model_open_state(struct model *m,
                     const char *state_dir,
                     char errmsg[ERRMSG_SIZE]);
int model_open_export(struct model *m,
                      const char *dir,
                      char errmsg[ERRMSG_SIZE]);
void model_close(struct model *m); /* idempotent */

/* Write config.json, model.safetensors and, for a byte model, tokenizer.json
 * into `dir`, which is made. The same model gives the same bytes. */
int model_export(const struct model *m,
                 const char *dir,
                 char errmsg[ERRMSG_SIZE]);

#endif
