/* tokenizer_around.c - the post_processor of a tokenizer.json; see
 * tokenizer_around() in tokenizer.h.
 *
 * Followed are TemplateProcessing, whose `single` is a list of special tokens
 * and the text (A), ByteLevel, which changes no ids, and a Sequence of these.
 * No other is an error: encoding does not need it. It is named, for those who
 * do.
 */
#include <jansson.h>
#include <stdio.h>
#include <string.h>

#include "train/data/tokenizer_inside.h"

/* The first one that is refused gives its name. */
static void refuse(struct tokenizer_around *a, const char *what)
{
    if (a->refused[0] == '\0') {
        memset(a, 0, sizeof *a);
        (void)snprintf(a->refused, sizeof a->refused, "%s",
                       what == NULL || what[0] == '\0' ? "of no type" : what);
    }
}

/* A file's processor on its way. */
struct parser {
    struct tokenizer_around *a;
    uint32_t vocab;
};

/* The ids of a special token of the template, added to one side. */
static bool add_ids(const struct parser *p,
                    bool behind,
                    const json_t *tokens,
                    const char *name)
{
    uint32_t *side = behind ? p->a->after : p->a->before;
    unsigned *n = behind ? &p->a->n_after : &p->a->n_before;
    const json_t *token = name == NULL ? NULL : json_object_get(tokens, name);
    const json_t *ids = json_object_get(token, "ids");
    size_t i;
    const json_t *id;

    if (json_array_size(ids) == 0) {
        return false;
    }
    json_array_foreach(ids, i, id)
    {
        if (!json_is_integer(id) || json_integer_value(id) < 0 ||
            json_integer_value(id) >= (json_int_t)p->vocab ||
            *n == TOKENIZER_AROUND_MAX) {
            return false;
        }
        side[(*n)++] = (uint32_t)json_integer_value(id);
    }
    return true;
}

static bool parse_template(const struct parser *p, const json_t *o)
{
    bool twice = p->a->n_before + p->a->n_after > 0;
    const json_t *pieces = json_object_get(o, "single");
    const json_t *tokens = json_object_get(o, "special_tokens");
    bool behind = false;
    size_t i;
    const json_t *piece;

    json_array_foreach(pieces, i, piece)
    {
        const json_t *special = json_object_get(piece, "SpecialToken");
        const json_t *text = json_object_get(piece, "Sequence");
        const char *id = json_string_value(json_object_get(text, "id"));

        if (special != NULL) {
            id = json_string_value(json_object_get(special, "id"));
            if (!add_ids(p, behind, tokens, id)) {
                return false;
            }
        } else if (id != NULL && strcmp(id, "A") == 0 && !behind) {
            behind = true;
        } else {
            return false;
        }
    }
    return behind && !twice;
}

static void parse_one(const struct parser *p, const json_t *o)
{
    const char *type = json_string_value(json_object_get(o, "type"));

    if (type == NULL || p->a->refused[0] != '\0' ||
        (strcmp(type, "ByteLevel") != 0 &&
         !(strcmp(type, "TemplateProcessing") == 0 && parse_template(p, o)))) {
        refuse(p->a, type);
    }
}

void tokenizer_around_parse(struct tokenizer_around *a,
                            const struct json_t *processor,
                            uint32_t vocab)
{
    const struct parser p = {a, vocab};
    const char *type = json_string_value(json_object_get(processor, "type"));
    size_t i;
    const json_t *o;

    memset(a, 0, sizeof *a);
    if (processor == NULL || json_is_null(processor)) {
        return;
    }
    if (type == NULL || strcmp(type, "Sequence") != 0) {
        parse_one(&p, processor);
        return;
    }
    json_array_foreach(json_object_get(processor, "processors"), i, o)
    {
        parse_one(&p, o);
    }
}
