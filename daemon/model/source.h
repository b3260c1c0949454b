/* source.h - where a model's weights come from, without loading them.
 *
 * Three kinds: a *state directory* (the newest whole checkpoint, its anchor
 * phi, shaped by the run's manifest; several of them, of hosts of all stages,
 * where the model is cut into stages), *files* (an exported or downloaded
 * directory, or one file of `loco import`; train/model/weights.h), and
 * *memory*. Weights are read in pieces as fp32; pages that were read can be
 * given back, so that export and import need little memory, whatever the model.
 *
 * The model is a Llama, or, of a state directory, whatever the run's training
 * loops train: then it is a list of tensors, `tensors` is not empty, and of
 * config only seq may count.
 *
 * Blocking. How it fails: LOCO_ENOENT, LOCO_EFORMAT, LOCO_EINVAL, LOCO_ENOMEM
 * with a sentence in errmsg.
 */
#ifndef LOCO_DAEMON_MODEL_SOURCE_H
#define LOCO_DAEMON_MODEL_SOURCE_H

#include <stdbool.h>
#include <stdint.h>

#include "daemon/model/stages.h"
#include "proto/base/errmsg.h"
#include "proto/base/file.h"
#include "train/model/hf_config.h"
#include "train/model/tensor_list.h"
#include "train/model/weights.h"
#include "train/replica/checkpoint.h"

#define MODEL_RUN_ID_MAX 65
#define MODEL_TEXT_MAX   128

/* What is known of a trained model beside its weights; zero where it is not. */
struct model_facts {
    char run_id[MODEL_RUN_ID_MAX];
    char run_name[MODEL_TEXT_MAX];
    char method[MODEL_TEXT_MAX];
    char licence[MODEL_TEXT_MAX]; /* of the data */
    uint64_t round;
    uint64_t inner_steps; /* of the peer whose checkpoint it is */
    uint64_t tokens;      /* likewise */
};

struct model_source {
    struct hf_config config;
    struct tensor_list tensors; /* n 0: a Llama of `config` */
    struct model_facts facts;
    /* "byte", the path of a tokenizer.json, or "": unknown */
    char tokenizer[FILE_PATH_MAX];
    struct weights weights;
    struct checkpoint checkpoint;
    struct model_stages stages; /* n 0: not of these */
    const float *phi;           /* NULL: in weights, or in stages */
    bool mapped;                /* phi lies in a mapped file */
};

/* model_source_close() afterwards, whatever the result. */
int model_source_state(struct model_source *s,
                       const char *const *state_dirs,
                       size_t n_dirs,
                       char errmsg[ERRMSG_SIZE]);
int model_source_files(struct model_source *s,
                       const char *path,
                       char errmsg[ERRMSG_SIZE]);

/* theta (llama_numel) is borrowed; bytes are the tokens of 256. */
void model_source_memory(struct model_source *s,
                         const struct llama_config *config,
                         const float *theta);
void model_source_close(struct model_source *s); /* idempotent */

/* out (n) = elements first .. first + n - 1 of tensor i of `tensors`, or of the
 * config. */
void model_source_read(
    const struct model_source *s, int i, int64_t first, int64_t n, float *out);

/* The memory of tensor i is not needed again soon. */
void model_source_forget(const struct model_source *s, int i);

#endif
