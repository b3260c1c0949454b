/* hf_config.h - Hugging Face's config.json and our model's shape.
 *
 * Reading takes a plain Llama and nothing else: what a file asks for beyond it
 * (other activations, biases, scaled rotary angles, heads of another size,
 * quantised weights) is refused by a sentence, since a model that ignored it
 * would answer, wrongly. rope_theta stands in two places: transformers 4 reads
 * the top level, transformers 5 "rope_parameters"; both are read, and must
 * agree where both are there. Absent keys have LlamaConfig's defaults.
 *
 * Writing names rope_theta in both.
 *
 * How it fails: LOCO_EFORMAT for what is no such JSON, LOCO_EINVAL for a model
 * that we do not have, each with a sentence.
 */
#ifndef LOCO_TRAIN_MODEL_HF_CONFIG_H
#define LOCO_TRAIN_MODEL_HF_CONFIG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "train/model/llama_config.h"

#define HF_NO_TOKEN UINT32_MAX

struct hf_config {
    struct llama_config model;
    bool tied_unsaid;  /* the file does not say whether the head is tied */
    uint32_t bos, eos; /* HF_NO_TOKEN: none named; of several the first */
};

int hf_config_parse(struct hf_config *out,
                    const void *json,
                    size_t size,
                    char *errmsg);

/* The text of a config.json, whose weights have the dtype `torch_dtype`
 * ("float32", "bfloat16"). The same config gives the same bytes. NULL: no
 * memory; else the caller frees it. */
char *hf_config_text(const struct hf_config *c, const char *torch_dtype);

/* The text of its generation_config.json, likewise. */
char *hf_generation_text(const struct hf_config *c);

#endif
