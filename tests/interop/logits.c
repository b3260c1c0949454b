/* logits.c - our logits of a model's files, for other implementations to
 * compare with.
 *
 * use: loco_logits MODEL PROMPTS OUT
 *
 * PROMPTS has the token ids of one prompt in each line; OUT gets, for each, the
 * fp32 logits of the token behind it, once from the whole window and once from
 * the decoder with its cache.
 */
#include <stdio.h>
#include <stdlib.h>

#include "daemon/model/model.h"
#include "kernels/backend.h"
#include "train/model/decode.h"
#include "train/model/llama.h"

#define LINE_MAX_BYTES 65536

struct run {
    struct model m;
    struct backend be;
    struct llama *llama;
    struct decoder *d;
    float *logits;
    uint32_t *tokens;
};

static int64_t parse(char *line, uint32_t *tokens, int64_t most)
{
    int64_t n = 0;
    char *end;

    for (char *p = line; n < most; p = end) {
        unsigned long id = strtoul(p, &end, 10);

        if (end == p) {
            break;
        }
        tokens[n++] = (uint32_t)id;
    }
    return n;
}

static int one(struct run *r, int64_t n, FILE *out)
{
    size_t v = r->m.config.vocab;

    if (llama_logits(r->llama, r->m.theta, r->tokens, n, r->logits) != 0 ||
        fwrite(r->logits, sizeof(float), v, out) != v) {
        return 1;
    }
    decoder_reset(r->d);
    return decoder_read(r->d, r->tokens, n, r->logits) != 0 ||
           fwrite(r->logits, sizeof(float), v, out) != v;
}

int main(int argc, char **argv)
{
    static char line[LINE_MAX_BYTES];
    char errmsg[ERRMSG_SIZE] = "";
    struct run r = {.llama = NULL};
    FILE *in = argc == 4 ? fopen(argv[2], "r") : NULL;
    FILE *out = argc == 4 ? fopen(argv[3], "wb") : NULL;
    int rv = in == NULL || out == NULL;

    if (rv != 0 || model_open_files(&r.m, argv[1], errmsg) != 0) {
        (void)fprintf(stderr, "use: loco_logits MODEL PROMPTS OUT\n%s\n",
                      errmsg);
        return 2;
    }
    r.logits = malloc(r.m.config.vocab * sizeof *r.logits);
    r.tokens = malloc(r.m.config.seq * sizeof *r.tokens);
    rv = backend_cpu(&r.be, 1) != 0 ||
         llama_open(&r.llama, &r.m.config, &r.be, 1, LLAMA_RECOMPUTE_LAYERS) !=
             0 ||
         decoder_open(&r.d, &r.m.config, &r.be, r.m.theta) != 0;
    while (rv == 0 && fgets(line, sizeof line, in) != NULL) {
        rv = one(&r, parse(line, r.tokens, r.m.config.seq), out);
    }
    (void)fclose(in);
    return fclose(out) != 0 || rv != 0;
}
