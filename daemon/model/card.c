/* card.c - README.md of an exported model: what it is and where it came
 * from. Every figure is one that the source holds; none is measured here. */
#include "daemon/model/model.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void put_shape(FILE *f, const struct model_source *s)
{
    const struct llama_config *c = &s->config.model;

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

char *model_card(const struct model_source *s)
{
    const struct model_facts *facts = &s->facts;
    bool trained = facts->run_id[0] != '\0';
    char *text = NULL;
    size_t len = 0;
    FILE *f = open_memstream(&text, &len);

    if (f == NULL) {
        return NULL;
    }
    (void)fprintf(f,
                  "---\nlibrary_name: transformers\n"
                  "pipeline_tag: text-generation\n"
                  "tags:\n- llama\n- loco\n---\n\n# %s\n\n%s\n\n"
                  "| | |\n|---|---|\n",
                  trained ? facts->run_name : "Llama",
                  trained ? "Trained by several machines together with loco."
                          : "Written by loco from weights that it did not "
                            "train.");
    put_shape(f, s);
    if (trained) {
        put_run(f, facts);
    }
    (void)fprintf(f, "\n    from transformers import AutoModelForCausalLM\n"
                     "    AutoModelForCausalLM.from_pretrained(\"DIR\")\n");
    if (fclose(f) != 0) {
        free(text);
        return NULL;
    }
    return text;
}
