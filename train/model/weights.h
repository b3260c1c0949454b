/* weights.h - the tensors of a Llama in one or more safetensors files.
 *
 * A *directory* is what Hugging Face has: config.json, and model.safetensors
 * or model.safetensors.index.json with the files that it names. A *file* is
 * what `loco import` writes: one safetensors file whose metadata "loco_config"
 * is the config.json.
 *
 * Tensors are fp32, bf16 or fp16 and are read as fp32, which holds all of them
 * exactly. Each must have the shape that the config says; one that a plain
 * Llama does not have (a bias) is refused; inv_freq of old files and the head
 * of a tied model are passed over. File names of an index stay inside the
 * directory.
 *
 * Memory: the files are mapped. Pages that were read can be given back
 * (weights_forget), so that a reader of a large model stays small.
 *
 * How it fails: LOCO_EFORMAT, LOCO_EINVAL for a model that we do not have, the
 * codes of file.h, each with a sentence. Reads are pure: any number of
 * threads.
 */
#ifndef LOCO_TRAIN_MODEL_WEIGHTS_H
#define LOCO_TRAIN_MODEL_WEIGHTS_H

#include <stddef.h>
#include <stdint.h>

#include "train/model/hf_config.h"
#include "train/model/safetensors.h"

#define WEIGHTS_FILES_MAX 1024
#define WEIGHTS_META      "loco_config" /* metadata of a single file */

struct weights {
    struct hf_config config;
    struct safetensors *files;
    size_t n_files;
    const struct st_tensor **tensors; /* in the order of llama_tensor */
};

/* weights_close afterwards, whatever the result. */
int weights_open(struct weights *w, const char *path, char *errmsg);
void weights_close(struct weights *w); /* idempotent */

/* The files alone, whatever is in them: a safetensors file, or those of a
 * directory. `config` and `tensors` stay empty. */
int weights_open_files(struct weights *w, const char *path, char *errmsg);

/* out (n) = elements first .. first + n - 1 of tensor i. */
void weights_read(
    const struct weights *w, int i, int64_t first, int64_t n, float *out);

/* The same of any tensor of F32, BF16 or F16. */
void weights_floats(const struct st_tensor *t,
                    int64_t first,
                    int64_t n,
                    float *out);

/* The memory of tensor i is not needed again soon. */
void weights_forget(const struct weights *w, int i);

#endif
