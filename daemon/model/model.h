/* model.h - a trained model in memory, for the commands that use one.
 *
 * From a state directory or from files (model/source.h), 4 bytes a parameter.
 *
 * Blocking. How it fails: LOCO_ENOENT, LOCO_EFORMAT, LOCO_EINVAL, LOCO_ENOMEM
 * with a sentence in errmsg.
 */
#ifndef LOCO_DAEMON_MODEL_MODEL_H
#define LOCO_DAEMON_MODEL_MODEL_H

#include <stdint.h>

#include "daemon/model/source.h"
#include "proto/base/errmsg.h"
#include "train/model/llama_config.h"
#include "train/model/safetensors.h"

struct model {
    struct llama_config config;
    float *theta;                  /* (llama_numel) */
    uint64_t round;                /* 0 for files */
    char run_id[MODEL_RUN_ID_MAX]; /* empty likewise */
    uint32_t bos, eos;             /* HF_NO_TOKEN: none is known */
    char tokenizer[FILE_PATH_MAX]; /* as in struct model_source */
};

/* model_close afterwards, whatever the result. LOCO_EINVAL: a run whose model
 * is a list of tensors. */
int model_open_state(struct model *m,
                     const char *const *state_dirs,
                     size_t n_dirs,
                     char errmsg[ERRMSG_SIZE]);
int model_open_files(struct model *m,
                     const char *path,
                     char errmsg[ERRMSG_SIZE]);
void model_close(struct model *m); /* idempotent */

#define MODEL_SHARD_BYTES 5000000000U /* Hugging Face's limit of one file */

struct model_export_options {
    enum st_dtype dtype;  /* ST_F32, ST_BF16 or ST_F16 */
    uint64_t shard_bytes; /* of tensors in one file; 0: MODEL_SHARD_BYTES */
};

/* What transformers loads, in `dir`, which is made: config.json,
 * generation_config.json, model.safetensors (or several files and an index),
 * tokenizer.json and tokenizer_config.json where the tokenizer is known, and
 * README.md, a model card. Of a list of tensors: the weights under the names
 * of its layout, tokenizer.json and README.md. The same source gives the same
 * bytes. Memory: some megabytes. */
int model_export(const struct model_source *s,
                 const char *dir,
                 const struct model_export_options *opt,
                 char errmsg[ERRMSG_SIZE]);

/* One fp32 safetensors file with the config in its metadata, and
 * FILE.tokenizer.json where the source has a tokenizer.json: what
 * model_source_files reads. */
int model_import(const struct model_source *s,
                 const char *file,
                 char errmsg[ERRMSG_SIZE]);

/* The text of the model card. NULL: no memory; else the caller frees it. */
char *model_card(const struct model_source *s);

#endif
