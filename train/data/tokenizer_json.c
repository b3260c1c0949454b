/* tokenizer_json.c - a tokenizer.json becomes a tokenizer, or a sentence.
 *
 * Happy path: `model_parse` reads vocabulary and merges, `added_parse` the
 * added tokens, `words_parse` the pre-tokenizer. What the file could ask for
 * and this version does not do is looked for by name and refused: a tokenizer
 * that ignored it would train a model on other tokens than its author meant.
 * Left alone are truncation and padding, which concern what is put around a
 * text; post_processor is kept for those who ask (tokenizer_around.c).
 *
 * jansson refuses nesting beyond 2048, duplicate keys and text that is not
 * UTF-8, and keys its tables with a random seed.
 */
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "proto/base/err.h"
#include "proto/base/errmsg.h"
#include "proto/base/hash64.h"
#include "train/data/alphabet.h"
#include "train/data/tokenizer_inside.h"

#define NESTING_MAX 4 /* sequences in sequences */

struct parser {
    struct tokenizer *t;
    json_t *root;
    json_t *model;
    json_t *vocab;
    json_t *merges;
    json_t *added;
    uint64_t seed;
    size_t longest; /* token's text in the file */
    uint8_t *buf;   /* (longest + 1) */
    char *errmsg;
};

#define FAIL(p, ...) errmsg_fail((p)->errmsg, LOCO_EFORMAT, __VA_ARGS__)

static const char *text_of(const json_t *o, const char *key)
{
    const char *text = json_string_value(json_object_get(o, key));

    return text == NULL ? "" : text;
}

/* Absent, null, false, 0 or "". */
static bool is_off(const json_t *value)
{
    return value == NULL || json_is_null(value) || json_is_false(value) ||
           (json_is_number(value) && json_number_value(value) == 0) ||
           (json_is_string(value) && json_string_length(value) == 0);
}

/* ---- the vocabulary ------------------------------------------------------ */

static bool id_of(const json_t *value, uint32_t *id)
{
    json_int_t n = json_integer_value(value);

    *id = (uint32_t)n;
    return json_is_integer(value) && n >= 0 && n < BPE_IDS_MAX;
}

/* Largest id + 1 and bytes of text, and room for the longest of them. */
static int measure(struct parser *p, uint32_t *n_ids, size_t *bytes)
{
    const char *key;
    json_t *value;
    size_t i;
    uint32_t id;

    *n_ids = 0;
    *bytes = 0;
    json_object_foreach(p->vocab, key, value)
    {
        size_t len = strlen(key);

        if (!id_of(value, &id)) {
            return FAIL(p, "the id of token \"%.60s\" is not 0 to %u", key,
                        BPE_IDS_MAX - 1);
        }
        *n_ids = id >= *n_ids ? id + 1 : *n_ids;
        *bytes += len;
        p->longest = len > p->longest ? len : p->longest;
    }
    json_array_foreach(p->added, i, value)
    {
        if (!id_of(json_object_get(value, "id"), &id)) {
            return FAIL(p, "the id of added token \"%.60s\" is not 0 to %u",
                        text_of(value, "content"), BPE_IDS_MAX - 1);
        }
        *n_ids = id >= *n_ids ? id + 1 : *n_ids;
        *bytes += strlen(text_of(value, "content"));
    }
    p->buf = malloc(p->longest + 1);
    return p->buf == NULL
               ? errmsg_fail(p->errmsg, LOCO_ENOMEM, "no memory for a token")
               : 0;
}

static int vocab_fill(struct parser *p)
{
    const char *key;
    json_t *value;

    json_object_foreach(p->vocab, key, value)
    {
        uint32_t id;
        size_t n;
        bool known = id_of(value, &id) &&
                     alphabet_read(key, strlen(key), p->buf, &n) && n > 0;
        int rv = bpe_add(&p->t->bpe, id, known ? p->buf : (const uint8_t *)key,
                         known ? n : strlen(key), known);

        if (rv != 0) {
            return FAIL(p, "token \"%.60s\": its id %u is another token's", key,
                        id);
        }
    }
    return 0;
}

/* ---- merges -------------------------------------------------------------- */

/* The id of one half of a merge; BPE_NONE: not in the vocabulary. */
static uint32_t half(struct parser *p, const char *text, size_t len)
{
    const json_t *value;
    uint32_t id;

    if (len > p->longest) {
        return BPE_NONE;
    }
    memcpy(p->buf, text, len);
    p->buf[len] = '\0';
    value = json_object_get(p->vocab, (const char *)p->buf);
    return value != NULL && id_of(value, &id) ? id : BPE_NONE;
}

/* "a b", or ["a", "b"]: both forms are in use. */
static bool halves(const json_t *merge, const char *text[2], size_t len[2])
{
    const char *both = json_string_value(merge);

    if (both != NULL) {
        const char *space = strchr(both, ' ');

        if (space == NULL || strchr(space + 1, ' ') != NULL) {
            return false;
        }
        text[0] = both;
        len[0] = (size_t)(space - both);
        text[1] = space + 1;
        len[1] = strlen(text[1]);
        return true;
    }
    for (size_t i = 0; i < 2; i++) {
        text[i] = json_string_value(json_array_get(merge, i));
        len[i] = text[i] == NULL ? 0 : strlen(text[i]);
    }
    return json_array_size(merge) == 2 && text[0] != NULL && text[1] != NULL;
}

static int merges_fill(struct parser *p)
{
    json_t *merge;
    size_t i;

    json_array_foreach(p->merges, i, merge)
    {
        const char *text[2];
        size_t len[2];
        uint32_t left;
        uint32_t right;

        if (!halves(merge, text, len)) {
            return FAIL(p, "merge %zu is not a pair of tokens", i);
        }
        left = half(p, text[0], len[0]);
        right = half(p, text[1], len[1]);
        if (left == BPE_NONE || right == BPE_NONE ||
            bpe_add_merge(&p->t->bpe, left, right, (uint32_t)i) != 0) {
            return FAIL(p,
                        "merge %zu, \"%.40s\" and \"%.40s\": one of them or "
                        "the result is not in the vocabulary",
                        i, text[0], text[1]);
        }
    }
    return 0;
}

/* ---- the model ----------------------------------------------------------- */

static int model_check(struct parser *p)
{
    static const char *const unwanted[] = {
        "dropout", "continuing_subword_prefix", "end_of_word_suffix"};
    const char *type = text_of(p->model, "type");

    if (strcmp(type, "BPE") != 0) {
        return FAIL(p,
                    "its model is \"%.40s\"; this version knows byte-level "
                    "BPE only",
                    type);
    }
    for (size_t i = 0; i < sizeof unwanted / sizeof unwanted[0]; i++) {
        if (!is_off(json_object_get(p->model, unwanted[i]))) {
            return FAIL(p,
                        "its model has %s, which byte-level BPE does not "
                        "need and this version does not know",
                        unwanted[i]);
        }
    }
    if (!json_is_object(p->vocab) || !json_is_array(p->merges)) {
        return FAIL(p, "its model has no vocab or no merges");
    }
    return 0;
}

static int model_parse(struct parser *p)
{
    uint32_t n_ids;
    size_t bytes;
    int missing;
    int rv = model_check(p);

    rv = rv == 0 ? measure(p, &n_ids, &bytes) : rv;
    if (rv != 0) {
        return rv;
    }
    rv =
        bpe_open(&p->t->bpe, n_ids, bytes, json_array_size(p->merges), p->seed);
    if (rv != 0) {
        return errmsg_fail(p->errmsg, rv, "no memory for %u tokens", n_ids);
    }
    p->t->bpe.whole_words =
        json_is_true(json_object_get(p->model, "ignore_merges"));
    rv = vocab_fill(p);
    if (rv != 0) {
        return rv;
    }
    missing = bpe_seal(&p->t->bpe);
    if (missing >= 0) {
        return FAIL(p,
                    "its vocabulary has no token for byte 0x%02x: text could "
                    "not come back; is it a byte-level vocabulary?",
                    (unsigned)missing);
    }
    return merges_fill(p);
}

/* ---- added tokens -------------------------------------------------------- */

static int added_check(struct parser *p, const json_t *o)
{
    static const char *const unwanted[] = {"lstrip", "rstrip", "single_word"};

    for (size_t i = 0; i < sizeof unwanted / sizeof unwanted[0]; i++) {
        if (!is_off(json_object_get(o, unwanted[i]))) {
            return FAIL(p,
                        "added token \"%.60s\" asks for %s, which this version "
                        "does not do: spaces would be lost or ids differ",
                        text_of(o, "content"), unwanted[i]);
        }
    }
    return 0;
}

/* Its id decodes to its content, whatever the vocabulary says. */
static int added_decode(struct parser *p, const char *content, uint32_t id)
{
    const uint8_t *bytes = (const uint8_t *)content;
    const json_t *known = json_object_get(p->vocab, content);
    uint32_t same = id;
    size_t len = strlen(content);
    size_t n;
    int rv;

    if ((known != NULL && (!id_of(known, &same) || same != id)) ||
        (known == NULL && bpe_text(&p->t->bpe, id, &n) != NULL)) {
        return FAIL(p, "added token \"%.60s\": its id %u is another token's",
                    content, id);
    }
    rv = known != NULL ? bpe_replace(&p->t->bpe, id, bytes, len)
                       : bpe_add(&p->t->bpe, id, bytes, len, false);
    return rv == 0 ? 0 : FAIL(p, "added token \"%.60s\" is too long", content);
}

static int added_one(struct parser *p, const json_t *o)
{
    const char *content = text_of(o, "content");
    struct added_set *set =
        &p->t->added[json_is_true(json_object_get(o, "normalized")) ? 1 : 0];
    struct added_token *a = &set->tokens[set->n];
    int rv = added_check(p, o);

    if (rv != 0 || content[0] == '\0') { /* an empty one is never found */
        return rv;
    }
    (void)id_of(json_object_get(o, "id"), &a->id);
    rv = added_decode(p, content, a->id);
    if (rv != 0) {
        return rv;
    }
    a->len = strlen(content);
    a->text = (uint8_t *)strdup(content);
    if (a->text == NULL) {
        return errmsg_fail(p->errmsg, LOCO_ENOMEM, "no memory for a token");
    }
    set->begins[a->text[0]] = true;
    set->n++;
    return 0;
}

static int compare_added(const void *a, const void *b)
{
    return strcmp((const char *)((const struct added_token *)a)->text,
                  (const char *)((const struct added_token *)b)->text);
}

static int added_parse(struct parser *p)
{
    size_t n = json_array_size(p->added);
    json_t *o;
    size_t i;

    for (unsigned s = 0; s < ADDED_SETS; s++) {
        p->t->added[s].tokens = calloc(n + 1, sizeof(struct added_token));
        if (p->t->added[s].tokens == NULL) {
            return errmsg_fail(p->errmsg, LOCO_ENOMEM, "no memory");
        }
    }
    json_array_foreach(p->added, i, o)
    {
        int rv = added_one(p, o);

        if (rv != 0) {
            return rv;
        }
    }
    for (unsigned s = 0; s < ADDED_SETS; s++) {
        struct added_set *set = &p->t->added[s];

        qsort(set->tokens, set->n, sizeof *set->tokens, compare_added);
    }
    return 0;
}

/* ---- the pre-tokenizer -------------------------------------------------- */

/* What ByteLevel cuts with `use_regex`: GPT-2's pattern. */
#define GPT2_PATTERN                                                           \
    "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+"        \
    "|\\s+(?!\\S)|\\s+"

static int byte_level(struct parser *p, const json_t *o, bool *last)
{
    int rv = 0;

    *last = true;
    /* Both are true where they are not named. */
    if (!json_is_false(json_object_get(o, "add_prefix_space"))) {
        rv = pretoken_add_prefix(&p->t->words, p->errmsg);
    }
    if (rv == 0 && !json_is_false(json_object_get(o, "use_regex"))) {
        rv = pretoken_add(&p->t->words, PRETOKEN_REGEX, GPT2_PATTERN, false,
                          p->errmsg);
    }
    return rv;
}

static int split(struct parser *p, const json_t *o)
{
    const json_t *pattern = json_object_get(o, "pattern");
    const char *regex = json_string_value(json_object_get(pattern, "Regex"));
    const char *text = json_string_value(json_object_get(pattern, "String"));
    const char *behavior = text_of(o, "behavior");
    bool invert = json_is_true(json_object_get(o, "invert"));
    bool drop = strcmp(behavior, "Removed") == 0 && invert;

    if (strcmp(behavior, "Isolated") != 0 && !drop) {
        return FAIL(p,
                    "its pre-tokenizer Split has the behavior \"%.40s\"%s; "
                    "this version knows Isolated, and Removed with invert",
                    behavior, invert ? " with invert" : "");
    }
    if ((regex == NULL) == (text == NULL)) {
        return FAIL(p, "its pre-tokenizer Split has no pattern");
    }
    return pretoken_add(&p->t->words,
                        regex != NULL ? PRETOKEN_REGEX : PRETOKEN_LITERAL,
                        regex != NULL ? regex : text, drop, p->errmsg);
}

static int digits(struct parser *p, const json_t *o)
{
    bool single = json_is_true(json_object_get(o, "individual_digits"));

    return pretoken_add(&p->t->words, PRETOKEN_REGEX,
                        single ? "\\p{N}" : "\\p{N}+", false, p->errmsg);
}

static int words_parse(struct parser *p, const json_t *o, int depth, bool *last)
{
    const char *type = text_of(o, "type");
    const json_t *list = json_object_get(o, "pretokenizers");

    if (*last) {
        return FAIL(p, "its pre-tokenizer continues after ByteLevel");
    }
    if (strcmp(type, "ByteLevel") == 0) {
        return byte_level(p, o, last);
    }
    if (strcmp(type, "Split") == 0) {
        return split(p, o);
    }
    if (strcmp(type, "Digits") == 0) {
        return digits(p, o);
    }
    if (strcmp(type, "Sequence") != 0 || depth == NESTING_MAX) {
        return FAIL(p,
                    "its pre-tokenizer is \"%.40s\"; this version knows "
                    "ByteLevel, Split, Digits and sequences of them",
                    type);
    }
    for (size_t i = 0; i < json_array_size(list); i++) {
        int rv = words_parse(p, json_array_get(list, i), depth + 1, last);

        if (rv != 0) {
            return rv;
        }
    }
    return 0;
}

/* ---- the file ----------------------------------------------------------- */

static int check_normalizer(struct parser *p)
{
    const json_t *o = json_object_get(p->root, "normalizer");
    const json_t *list = json_object_get(o, "normalizers");

    if (o == NULL || json_is_null(o) ||
        (json_is_array(list) && json_array_size(list) == 0)) {
        return 0;
    }
    return FAIL(p,
                "it has the normalizer \"%.40s\"; this version changes no text "
                "before it is cut, so that it comes back exactly",
                text_of(o, "type"));
}

static int check_decoder(struct parser *p)
{
    const json_t *o = json_object_get(p->root, "decoder");
    const json_t *list = json_object_get(o, "decoders");

    if (json_is_array(list) && json_array_size(list) == 1) {
        o = json_array_get(list, 0);
    }
    return strcmp(text_of(o, "type"), "ByteLevel") == 0
               ? 0
               : FAIL(p, "its decoder is not ByteLevel");
}

static int parse(struct parser *p)
{
    bool last = false;
    int rv = check_normalizer(p);

    p->model = json_object_get(p->root, "model");
    p->vocab = json_object_get(p->model, "vocab");
    p->merges = json_object_get(p->model, "merges");
    p->added = json_object_get(p->root, "added_tokens");
    rv = rv == 0 ? model_parse(p) : rv;
    rv = rv == 0 ? added_parse(p) : rv;
    if (rv == 0) {
        rv =
            words_parse(p, json_object_get(p->root, "pre_tokenizer"), 0, &last);
    }
    if (rv == 0 && !last) {
        return FAIL(p, "its pre-tokenizer does not end with ByteLevel");
    }
    tokenizer_around_parse(&p->t->around,
                           json_object_get(p->root, "post_processor"),
                           tokenizer_vocab(p->t));
    return rv == 0 ? check_decoder(p) : rv;
}

int tokenizer_parse(struct tokenizer *t,
                    const void *json,
                    size_t size,
                    char *errmsg)
{
    struct parser p = {.t = t, .errmsg = errmsg};
    json_error_t where = {.text = ""};
    int rv;

    if (size > TOKENIZER_BYTES_MAX) {
        return errmsg_fail(errmsg, LOCO_EFORMAT,
                           "a tokenizer of more than %zu bytes",
                           TOKENIZER_BYTES_MAX);
    }
    p.seed = hash64(json, size, 0);
    p.root = json_loadb(json, size, JSON_REJECT_DUPLICATES, &where);
    if (!json_is_object(p.root)) {
        rv = errmsg_fail(errmsg, LOCO_EFORMAT, "not a JSON object: %.120s",
                         where.text);
    } else {
        rv = parse(&p);
    }
    free(p.buf);
    json_decref(p.root);
    return rv;
}
