/* tensor_list.h - a model as a list of named tensors: which names, which
 * shapes, where each lies in one flat fp32 vector theta.
 *
 * The daemon averages theta and needs no more of a model that somebody else
 * trains; the list is what a training loop compares its own parameters with.
 * It comes from a *layout file*, which is the JSON header of a safetensors file
 * (name -> dtype F32, shape, data_offsets) without its size word; from a
 * safetensors file; or from the shape of a Llama, under Hugging Face's names.
 * The order of theta is that of data_offsets: theta is the data of a file with
 * that header.
 *
 * Bounds, since a layout comes with a stranger's run: TENSOR_LIST_MAX tensors,
 * names of 1 to TENSOR_NAME_MAX - 1 characters of printable ASCII (they are
 * shown on terminals), SAFETENSORS_DIMS_MAX dimensions, TENSOR_NUMEL_MAX
 * elements in all, no holes, no name twice. A scalar (no dimensions) is one
 * element. An empty tensor (a dimension of 0) is refused: nothing of it could
 * be trained or averaged. A list has at least one tensor.
 *
 * How it fails: LOCO_EFORMAT for bad bytes, LOCO_EINVAL for tensors that a list
 * cannot have, LOCO_ENOMEM, each with a sentence that names the first one. A
 * list is immutable: any number of threads.
 */
#ifndef LOCO_TRAIN_MODEL_TENSOR_LIST_H
#define LOCO_TRAIN_MODEL_TENSOR_LIST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "train/model/llama_config.h"
#include "train/model/safetensors.h"

#define TENSOR_LIST_MAX   65536
#define TENSOR_NAME_MAX   256                    /* with its zero */
#define TENSOR_NUMEL_MAX  1000000000000ULL       /* 4 TB as fp32 */
#define TENSOR_LAYOUT_MAX SAFETENSORS_HEADER_MAX /* bytes of a layout file */

struct tensor_entry {
    const char *name;
    uint64_t offset, numel; /* elements, in theta */
    uint64_t shape[SAFETENSORS_DIMS_MAX];
    unsigned n_dims; /* 0: a scalar */
};

struct tensor_list {
    size_t n;
    struct tensor_entry *at; /* (n), by offset */
    uint64_t numel;          /* of theta */
    char *names;             /* what the entries' names lie in */
};

/* tensor_list_free afterwards, whatever the result; of all of them. */

/* The order of theta of a checked config. */
int tensor_list_of_llama(struct tensor_list *l, const struct llama_config *c);

/* The text of a layout file. */
int tensor_list_parse(struct tensor_list *l,
                      const uint8_t *text,
                      size_t len,
                      char *errmsg);

/* The tensors of a file in its order; all are F32. */
int tensor_list_of_file(struct tensor_list *l,
                        const struct safetensors *st,
                        char *errmsg);

/* The same of tensors of any type, in the order given. */
int tensor_list_of_tensors(struct tensor_list *l,
                           const struct st_tensor *tensors,
                           size_t n,
                           char *errmsg);

void tensor_list_free(struct tensor_list *l); /* idempotent */

/* LOCO_EINVAL and the first difference: "tensor NAME is 3 x 4 in A and 4 x 3 in
 * B". `a`, `b`: what the two are called. */
int tensor_list_same(const struct tensor_list *l,
                     const char *a,
                     const struct tensor_list *other,
                     const char *b,
                     char *errmsg);

/* "3 x 4", or "a scalar", into out (TENSOR_SHAPE_TEXT). */
#define TENSOR_SHAPE_TEXT (SAFETENSORS_DIMS_MAX * 23)
void tensor_shape_text(const struct tensor_entry *t, char *out);

/* The layout file's text, which tensor_list_parse() reads back: the same list
 * gives the same bytes. NULL: no memory; else the caller frees it. */
char *tensor_list_text(const struct tensor_list *l);

#endif
