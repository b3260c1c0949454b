/* run_init.h - the weights that a run begins from: loco run create --init.
 *
 * A directory that Hugging Face's from_pretrained() reads and whose model is a
 * plain Llama, or a file of loco import, makes a run of that Llama: the
 * built-in trainer and training loops of their own can both be its members. Any
 * other safetensors file, or such a directory under --model tensors (one file,
 * or several with their index), makes a run whose model is the list of its
 * tensors, for training loops of their own. Weights are F32, F16 or BF16 and
 * finite; the run's are F32.
 *
 * Functions print their sentence and return a LOCO_EXIT code.
 */
#ifndef LOCO_DAEMON_CLI_RUN_INIT_H
#define LOCO_DAEMON_CLI_RUN_INIT_H

#include "daemon/cli/cli.h"
#include "proto/manifest.h"
#include "train/model/tensor_list.h"
#include "train/model/weights.h"

struct run_init {
    struct weights weights; /* the files */
    struct tensor_list tensors;
    struct st_tensor
        *given; /* (tensors.n) not of a Llama: those in the files */
    const struct st_tensor **from; /* (tensors.n), as they are there */
    bool is_llama;
};

/* run_init_close() afterwards, whatever the result. */
int run_init_open(struct run_init *init, const char *path, bool as_tensors);
void run_init_close(struct run_init *init); /* idempotent */

/* m->model of a list of tensors; text: there is text to train on. */
void run_init_tensors(const struct run_init *init,
                      struct manifest *m,
                      bool text);

/* The run's files beside `out`, and their shards in m->data. */
int run_init_write(const struct run_init *init,
                   struct manifest *m,
                   const struct cli_list *bases,
                   const char *out);

#endif
