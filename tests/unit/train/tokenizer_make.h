/* tokenizer_make.h - a small tokenizer.json, built by a test as it needs it.
 *
 * Ids 0 to 255 are the bytes; tokens that are added follow. Every function
 * changes the object in place; make_try() hands it to the reader.
 */
#ifndef LOCO_TESTS_UNIT_TRAIN_TOKENIZER_MAKE_H
#define LOCO_TESTS_UNIT_TRAIN_TOKENIZER_MAKE_H

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "proto/base/errmsg.h"
#include "train/data/alphabet.h"
#include "train/data/tokenizer.h"

static inline json_t *make_bytes(void)
{
    json_t *vocab = json_object();

    for (unsigned byte = 0; byte < 256; byte++) {
        char utf8[3];

        alphabet_write(byte, utf8);
        json_object_set_new(vocab, utf8, json_integer(byte));
    }
    return json_pack(
        "{s:s, s:n, s:{s:s, s:b, s:b}, s:{s:s}, s:[], s:{s:s, s:o, s:[]}}",
        "version", "1.0", "normalizer", "pre_tokenizer", "type", "ByteLevel",
        "add_prefix_space", 0, "use_regex", 0, "decoder", "type", "ByteLevel",
        "added_tokens", "model", "type", "BPE", "vocab", vocab, "merges");
}

static inline json_t *make_vocab(json_t *o)
{
    return json_object_get(json_object_get(o, "model"), "vocab");
}

/* A token with the next id; its text in the byte alphabet. */
static inline uint32_t make_token(json_t *o, const char *text)
{
    uint32_t id = (uint32_t)json_object_size(make_vocab(o));

    json_object_set_new(make_vocab(o), text, json_integer(id));
    return id;
}

/* left and right merge; the result becomes a token if it is none yet. */
static inline uint32_t
make_merge(json_t *o, const char *left, const char *right)
{
    json_t *merges = json_object_get(json_object_get(o, "model"), "merges");
    char both[256];
    json_t *id;

    (void)snprintf(both, sizeof both, "%s %s", left, right);
    json_array_append_new(merges, json_string(both));
    (void)snprintf(both, sizeof both, "%s%s", left, right);
    id = json_object_get(make_vocab(o), both);
    return id != NULL ? (uint32_t)json_integer_value(id) : make_token(o, both);
}

static inline void make_added(json_t *o, const char *text, int id, int normal)
{
    json_array_append_new(json_object_get(o, "added_tokens"),
                          json_pack("{s:i, s:s, s:b, s:b, s:b, s:b, s:b}", "id",
                                    id, "content", text, "single_word", 0,
                                    "lstrip", 0, "rstrip", 0, "normalized",
                                    normal, "special", 1));
}

/* Takes the object; the code of tokenizer_open_memory. */
static inline int make_try(json_t *o, struct tokenizer **t, char *errmsg)
{
    char *text = json_dumps(o, 0);
    int rv = tokenizer_open_memory(t, text, strlen(text), errmsg);

    free(text);
    json_decref(o);
    return rv;
}

#endif
