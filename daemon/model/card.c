/* card.c - README.md of an exported model: what it is and where it came
 * from. Every figure is one that the source holds; none is measured here. */
#include "daemon/model/model.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LOAD_LLAMA                                                             \
    "\n    from transformers import AutoModelForCausalLM\n"                    \
    "    AutoModelForCausalLM.from_pretrained(\"DIR\")\n"
#define LOAD_TENSORS                                                           \
    "\nThe names are those of the program that trained it (of a model in "     \
    "several files, load each):\n\n"                                           \
    "    from safetensors.torch import load_file\n"                            \
    "    model.load_state_dict(load_file(\"DIR/model.safetensors\"), "         \
    "strict=False)\n"

static void put_shape(FILE *f, const struct model_source *s)
{
    const struct llama_config *c = &s->config.model;

    if (s->tensors.n > 0) {
        (void)fprintf(f, "| parameters | %" PRIu64 " in %zu tensors |\n",
                      s->tensors.numel, s->tensors.n);
        return;
    }
    (void)fprintf(f,
                  "| parameters | %" PRId64 " |\n"
                  "| architecture | Llama: %u layers, width %u, %u heads (%u "
                  "for keys and values), ffn %u, %s head |\n"
                  "| vocabulary | %u%s |\n"
                  "| context | %u tokens |\n",
                  llama_numel(c), c->layers, c->dim, c->heads, c->kv_heads,
                  c->ffn, c->tied ? "tied" : "own", c->vocab,
                  strcmp(s->tokenizer, "byte") == 0 ? ", tokens are bytes" : "",
                  c->seq);
}

static void put_run(FILE *f, const struct model_facts *facts)
{
    (void)fprintf(f,
                  "| run id | `%s` |\n"
                  "| method | %s |\n"
                  "| rounds committed | %" PRIu64 " |\n"
                  "| tokens, of the exporting peer alone | %" PRIu64
                  " in %" PRIu64 " inner steps |\n"
                  "| licence of the data | %s |\n",
                  facts->run_id, facts->method, facts->round, facts->tokens,
                  facts->inner_steps,
                  facts->licence[0] == '\0' ? "not named" : facts->licence);
}

static void put_head(FILE *f, bool is_llama)
{
    (void)fprintf(f, "---\n%stags:\n%s- loco\n---\n\n",
                  is_llama ? "library_name: transformers\n"
                             "pipeline_tag: text-generation\n"
                           : "",
                  is_llama ? "- llama\n" : "");
}

char *model_card(const struct model_source *s)
{
    const struct model_facts *facts = &s->facts;
    bool trained = facts->run_id[0] != '\0';
    bool is_llama = s->tensors.n == 0;
    char *text = NULL;
    size_t len = 0;
    FILE *f = open_memstream(&text, &len);

    if (f == NULL) {
        return NULL;
    }
    put_head(f, is_llama);
    (void)fprintf(f, "# %s\n\n%s\n\n| | |\n|---|---|\n",
                  trained ? facts->run_name : "Llama",
                  trained ? "Trained by several machines together with loco."
                          : "Written by loco from weights that it did not "
                            "train.");
    put_shape(f, s);
    if (trained) {
        put_run(f, facts);
    }
    (void)fprintf(f, "%s", is_llama ? LOAD_LLAMA : LOAD_TENSORS);
    if (fclose(f) != 0) {
        free(text);
        return NULL;
    }
    return text;
}
