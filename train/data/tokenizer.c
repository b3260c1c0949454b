/* tokenizer.c - see tokenizer.h.
 *
 * Happy path of encoding: `between` finds added tokens of one set and hands
 * what lies between them to the next set; behind the last set `utf8_runs` cuts
 * at bytes that are not UTF-8, pretoken_run cuts words, bpe_encode merges, ids
 * go to the caller some thousand at a time.
 */
#include "train/data/tokenizer.h"

#include <stdlib.h>
#include <string.h>

#include "proto/base/err.h"
#include "proto/base/errmsg.h"
#include "proto/base/file.h"
#include "train/data/tokenizer_inside.h"

/* ---- opening ------------------------------------------------------------ */

void tokenizer_close(struct tokenizer *t)
{
    if (t == NULL) {
        return;
    }
    for (unsigned s = 0; s < ADDED_SETS; s++) {
        for (size_t i = 0; i < t->added[s].n; i++) {
            free(t->added[s].tokens[i].text);
        }
        free(t->added[s].tokens);
    }
    pretoken_close(&t->words);
    bpe_close(&t->bpe);
    free(t);
}

int tokenizer_open_memory(struct tokenizer **out,
                          const void *json,
                          size_t size,
                          char *errmsg)
{
    struct tokenizer *t = calloc(1, sizeof *t);
    int rv;

    *out = NULL;
    if (t == NULL) {
        return errmsg_fail(errmsg, LOCO_ENOMEM, "no memory for a tokenizer");
    }
    rv = tokenizer_parse(t, json, size, errmsg);
    if (rv != 0) {
        tokenizer_close(t);
        return rv;
    }
    *out = t;
    return 0;
}

int tokenizer_open(struct tokenizer **out, const char *path, char *errmsg)
{
    char problem[ERRMSG_SIZE] = "";
    struct file_map map;
    int rv;

    *out = NULL;
    rv = file_map_open(&map, path, errmsg);
    if (rv != 0) {
        return rv;
    }
    rv = tokenizer_open_memory(out, map.data, map.size, problem);
    file_map_close(&map);
    return rv == 0 ? 0 : errmsg_fail(errmsg, rv, "%.120s: %s", path, problem);
}

int tokenizer_open_bytes(struct tokenizer **out, char *errmsg)
{
    struct tokenizer *t = calloc(1, sizeof *t);
    int rv;

    *out = NULL;
    if (t == NULL) {
        return errmsg_fail(errmsg, LOCO_ENOMEM, "no memory for a tokenizer");
    }
    t->bytes = true;
    rv = bpe_open(&t->bpe, 256, 256, 0, 0);
    for (uint32_t i = 0; rv == 0 && i < 256; i++) {
        uint8_t byte = (uint8_t)i;

        rv = bpe_add(&t->bpe, i, &byte, 1, true);
    }
    if (rv != 0) {
        tokenizer_close(t);
        return errmsg_fail(errmsg, rv, "no memory for a tokenizer");
    }
    (void)bpe_seal(&t->bpe);
    *out = t;
    return 0;
}

int tokenizer_open_named(struct tokenizer **out, const char *name, char *errmsg)
{
    return strcmp(name, "byte") == 0 ? tokenizer_open_bytes(out, errmsg)
                                     : tokenizer_open(out, name, errmsg);
}

uint32_t tokenizer_vocab(const struct tokenizer *t)
{
    return t->bpe.n_ids;
}

bool tokenizer_is_bytes(const struct tokenizer *t)
{
    return t->bytes;
}

const uint8_t *
tokenizer_text(const struct tokenizer *t, uint32_t id, size_t *len)
{
    return bpe_text(&t->bpe, id, len);
}

bool tokenizer_is_added(const struct tokenizer *t, uint32_t id)
{
    for (unsigned s = 0; s < ADDED_SETS; s++) {
        for (size_t i = 0; i < t->added[s].n; i++) {
            if (t->added[s].tokens[i].id == id) {
                return true;
            }
        }
    }
    return false;
}

const struct tokenizer_around *tokenizer_around(const struct tokenizer *t)
{
    return &t->around;
}

/* ---- UTF-8 -------------------------------------------------------------- */

static bool tail(const uint8_t *p, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if ((p[i] & 0xc0) != 0x80) {
            return false;
        }
    }
    return true;
}

/* Bytes of the character at p, 0 when there is none (RFC 3629: no overlong
 * forms, no surrogates, nothing over U+10FFFF). */
static size_t utf8_character(const uint8_t *p, size_t len)
{
    uint8_t a = p[0];
    uint8_t b = len > 1 ? p[1] : 0;

    if (a < 0x80) {
        return 1;
    }
    if (a >= 0xc2 && a <= 0xdf) {
        return len >= 2 && tail(p + 1, 1) ? 2 : 0;
    }
    if (a >= 0xe0 && a <= 0xef) {
        bool wrong = (a == 0xe0 && b < 0xa0) || (a == 0xed && b > 0x9f);

        return !wrong && len >= 3 && tail(p + 1, 2) ? 3 : 0;
    }
    if (a >= 0xf0 && a <= 0xf4) {
        bool wrong = (a == 0xf0 && b < 0x90) || (a == 0xf4 && b > 0x8f);

        return !wrong && len >= 4 && tail(p + 1, 3) ? 4 : 0;
    }
    return 0;
}

/* How much from p on is UTF-8. */
static size_t utf8_span(const uint8_t *p, size_t len)
{
    size_t at = 0;

    while (at < len) {
        uint64_t word;
        size_t n;

        while (len - at >= sizeof word) { /* ASCII, eight at a time */
            memcpy(&word, p + at, sizeof word);
            if ((word & 0x8080808080808080U) != 0) {
                break;
            }
            at += sizeof word;
        }
        if (at == len) {
            break;
        }
        n = utf8_character(p + at, len - at);
        if (n == 0) {
            break;
        }
        at += n;
    }
    return at;
}

/* ---- encoding ----------------------------------------------------------- */

struct tokenizer_encoder {
    const struct tokenizer *t;
    struct bpe_work *bpe;
    struct pretoken_work *words;
    tokenizer_ids_fn on_ids; /* of the text at work */
    void *data;
    char *errmsg;
};

int tokenizer_encoder_open(struct tokenizer_encoder **out,
                           const struct tokenizer *t)
{
    struct tokenizer_encoder *e = calloc(1, sizeof *e);

    *out = NULL;
    if (e == NULL) {
        return LOCO_ENOMEM;
    }
    e->t = t;
    e->bpe = bpe_work_new(&t->bpe);
    e->words = pretoken_work_new(&t->words);
    if (e->bpe == NULL || e->words == NULL) {
        tokenizer_encoder_close(e);
        return LOCO_ENOMEM;
    }
    *out = e;
    return 0;
}

void tokenizer_encoder_close(struct tokenizer_encoder *e)
{
    if (e != NULL) {
        bpe_work_free(e->bpe);
        pretoken_work_free(e->words);
        free(e);
    }
}

static int on_word(void *data, const uint8_t *word, size_t len)
{
    struct tokenizer_encoder *e = data;
    int rv = bpe_encode(e->bpe, word, len, e->on_ids, e->data);

    if (rv == LOCO_ERANGE) {
        return errmsg_fail(e->errmsg, rv,
                           "the text has %zu bytes without a place where the "
                           "tokenizer would cut; at most %zu are possible",
                           len, BPE_WORD_MAX);
    }
    return rv;
}

static int
utf8_runs(struct tokenizer_encoder *e, const uint8_t *text, size_t len)
{
    size_t at = 0;
    int rv = 0;

    while (rv == 0 && at < len) {
        size_t good = utf8_span(text + at, len - at);
        size_t end = at + good;

        if (good > 0) {
            rv = pretoken_run(e->words, text + at, good, on_word, e, e->errmsg);
        }
        at = end;
        while (end < len && utf8_character(text + end, len - end) == 0) {
            end++;
        }
        if (rv == 0 && end > at) {
            rv = on_word(e, text + at, end - at);
        }
        at = end;
    }
    return rv;
}

/* -1 behind the end, where a token that others go on from sorts. */
static int byte_at(const struct added_token *a, size_t n)
{
    return n < a->len ? a->text[n] : -1;
}

/* The longest token of the set that the text begins with, or NULL. Tokens with
 * the same first n bytes are neighbours: the range shrinks byte by byte. */
static const struct added_token *
added_longest(const struct added_set *set, const uint8_t *text, size_t len)
{
    const struct added_token *found = NULL;
    size_t low = 0;
    size_t high = set->n;

    for (size_t n = 0; low < high; n++) {
        if (set->tokens[low].len == n) { /* the shortest stands first */
            found = n > 0 ? &set->tokens[low] : found;
            low++;
        }
        if (n == len || low == high ||
            byte_at(&set->tokens[low], n) > text[n] ||
            byte_at(&set->tokens[high - 1], n) < text[n]) {
            break;
        }
        while (low < high && byte_at(&set->tokens[low], n) != text[n]) {
            low++;
        }
        while (low < high && byte_at(&set->tokens[high - 1], n) != text[n]) {
            high--;
        }
    }
    return found;
}

/* What no token of sets before `set` is in. */
static int between(struct tokenizer_encoder *e,
                   unsigned set,
                   const uint8_t *text,
                   size_t len)
{
    const struct added_set *s;
    size_t done = 0;
    int rv = 0;

    while (set < ADDED_SETS && e->t->added[set].n == 0) {
        set++;
    }
    if (set == ADDED_SETS) {
        return utf8_runs(e, text, len);
    }
    s = &e->t->added[set];
    for (size_t at = 0; rv == 0 && at < len;) {
        const struct added_token *a =
            s->begins[text[at]] ? added_longest(s, text + at, len - at) : NULL;

        if (a == NULL) {
            at++;
            continue;
        }
        rv = between(e, set + 1, text + done, at - done);
        rv = rv == 0 ? bpe_put(e->bpe, a->id, e->on_ids, e->data) : rv;
        at += a->len;
        done = at;
    }
    return rv == 0 ? between(e, set + 1, text + done, len - done) : rv;
}

int tokenizer_encode(struct tokenizer_encoder *e,
                     const void *text,
                     size_t len,
                     tokenizer_ids_fn on_ids,
                     void *data,
                     char *errmsg)
{
    char problem[ERRMSG_SIZE] = "";
    int rv;

    e->on_ids = on_ids;
    e->data = data;
    e->errmsg = problem;
    rv = between(e, 0, text, len);
    if (rv == 0) {
        return bpe_flush(e->bpe, on_ids, data);
    }
    bpe_drop(e->bpe);
    return errmsg_fail(errmsg, rv, "%s",
                       problem[0] != '\0' ? problem : loco_strerror(rv));
}

/* ---- a short text ------------------------------------------------------- */

struct list {
    uint32_t *ids;
    size_t n, room;
};

static int append(void *data, const uint32_t *ids, size_t n)
{
    struct list *l = data;

    if (n > l->room - l->n) {
        size_t room = 2 * (l->n + n);
        uint32_t *more = realloc(l->ids, room * sizeof *more);

        if (more == NULL) {
            return LOCO_ENOMEM;
        }
        l->ids = more;
        l->room = room;
    }
    memcpy(l->ids + l->n, ids, n * sizeof *ids);
    l->n += n;
    return 0;
}

int tokenizer_encode_all(const struct tokenizer *t,
                         const void *text,
                         size_t len,
                         uint32_t **ids,
                         size_t *n,
                         char *errmsg)
{
    struct tokenizer_encoder *e;
    struct list list = {malloc(64), 0, 16};
    int rv = tokenizer_encoder_open(&e, t);

    *ids = NULL;
    *n = 0;
    if (rv != 0 || list.ids == NULL) {
        rv = errmsg_fail(errmsg, LOCO_ENOMEM, "no memory for an encoder");
    } else {
        rv = tokenizer_encode(e, text, len, append, &list, errmsg);
    }
    tokenizer_encoder_close(e);
    if (rv != 0) {
        free(list.ids);
        return rv;
    }
    *ids = list.ids;
    *n = list.n;
    return 0;
}
