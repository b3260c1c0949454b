/* tokenizer_inside.h - what a tokenizer is made of.
 *
 * tokenizer_json.c and tokenizer_around.c fill it in, tokenizer.c uses it.
 * Nobody else includes this file.
 */
#ifndef LOCO_TRAIN_DATA_TOKENIZER_INSIDE_H
#define LOCO_TRAIN_DATA_TOKENIZER_INSIDE_H

#include "train/data/bpe.h"
#include "train/data/pretoken.h"
#include "train/data/tokenizer.h"

/* Text that is one token wherever it stands. */
struct added_token {
    uint8_t *text;
    size_t len;
    uint32_t id;
};

/* Sorted by text, so that tokens with one beginning stand together. */
struct added_set {
    struct added_token *tokens;
    size_t n;
    bool begins[256]; /* some token begins with this byte */
};

/* Those marked `normalized: false` are looked for first, in the whole text;
 * the others in what lies between. */
#define ADDED_SETS 2

struct tokenizer {
    bool bytes;
    struct bpe bpe;
    struct pretoken words;
    struct added_set added[ADDED_SETS];
    struct tokenizer_around around;
};

/* Fill a zeroed tokenizer from a tokenizer.json. */
int tokenizer_parse(struct tokenizer *t,
                    const void *json,
                    size_t size,
                    char *errmsg);

/* The `post_processor` of a tokenizer.json; NULL: it has none. */
struct json_t;
void tokenizer_around_parse(struct tokenizer_around *a,
                            const struct json_t *processor,
                            uint32_t vocab);

#endif
