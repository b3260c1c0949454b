/* continuation.c - see continuation.h. */
#include "train/data/continuation.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "proto/base/err.h"
#include "proto/base/errmsg.h"

/* Ids that grow. */
struct list {
    uint32_t *ids;
    size_t n, room;
};

static int list_add(void *data, const uint32_t *ids, size_t n)
{
    struct list *l = data;

    if (l->n + n > l->room) {
        size_t room = 2 * l->room + n + 64;
        uint32_t *more = realloc(l->ids, room * sizeof *more);

        if (more == NULL) {
            return LOCO_ENOMEM;
        }
        l->ids = more;
        l->room = room;
    }
    if (n > 0) {
        memcpy(l->ids + l->n, ids, n * sizeof *ids);
    }
    l->n += n;
    return 0;
}

static int encode(const struct continuation_options *opt,
                  struct list *l,
                  const struct question_text *text,
                  char *errmsg)
{
    return tokenizer_encode(opt->encoder, text->bytes, text->len, list_add, l,
                            errmsg);
}

/* A text that begins with the prefix token's has it already. */
static bool has_prefix(const struct continuation_options *opt,
                       const struct question_text *text)
{
    size_t len = 0;
    const uint8_t *prefix =
        opt->prefix == CONTINUATION_NO_PREFIX
            ? NULL
            : tokenizer_text(opt->tokenizer, opt->prefix, &len);

    return prefix != NULL && text->len >= len &&
           memcmp(text->bytes, prefix, len) == 0;
}

/* With what the tokenizer puts around. */
static int encode_whole(const struct continuation_options *opt,
                        struct list *l,
                        const struct question_text *text,
                        char *errmsg)
{
    static const struct tokenizer_around none = {.n_before = 0};
    const struct tokenizer_around *around =
        has_prefix(opt, text) ? &none : tokenizer_around(opt->tokenizer);
    int rv = list_add(l, around->before, around->n_before);

    rv = rv == 0 ? encode(opt, l, text, errmsg) : rv;
    return rv == 0 ? list_add(l, around->after, around->n_after) : rv;
}

/* all = the ids of the context alone, *given of them, and of those of both the
 * ones behind so many. Where a token goes across the seam this is not the whole
 * text's; the harness does the same. */
static int encode_both(const struct continuation_options *opt,
                       const struct question_text *context,
                       const struct question_text *both,
                       struct list *all,
                       size_t *given,
                       char *errmsg)
{
    struct list whole = {.n = 0};
    const struct question_text stripped = {
        context->bytes, context->len - question_space(context)};
    int rv = encode_whole(opt, all, &stripped, errmsg);

    *given = all->n;
    rv = rv == 0 ? encode_whole(opt, &whole, both, errmsg) : rv;
    if (rv == 0 && whole.n > *given) {
        rv = list_add(all, whole.ids + *given, whole.n - *given);
    }
    free(whole.ids);
    return rv;
}

static int encode_alone(const struct continuation_options *opt,
                        const struct question_text *text,
                        struct list *all,
                        size_t *given,
                        char *errmsg)
{
    int rv;

    if (opt->prefix == CONTINUATION_NO_PREFIX) {
        return errmsg_fail(errmsg, LOCO_EFORMAT,
                           "the context is empty and the model names no token "
                           "that begins a text: name one with --prefix-token");
    }
    *given = 1;
    rv = list_add(all, &opt->prefix, 1);
    rv = rv == 0 ? encode(opt, all, text, errmsg) : rv;
    if (rv == 0 && all->n > 1 && all->ids[1] == opt->prefix) {
        all->n--;
        memmove(all->ids, all->ids + 1, all->n * sizeof *all->ids);
    }
    return rv;
}

/* What the model reads, and one token more, which it only has to find. */
static int cut(struct continuation *c,
               const struct continuation_options *opt,
               struct list *all,
               size_t given,
               char *errmsg)
{
    size_t scored = all->n > given ? all->n - given : 0;
    size_t most = (size_t)opt->seq + 1;
    size_t from = all->n > most ? all->n - most : 0;
    uint32_t *fit;

    if (given == 0) {
        return errmsg_fail(errmsg, LOCO_EFORMAT,
                           "the context is only white space: leave it empty, "
                           "or begin it with a word");
    }
    if (scored == 0) {
        return errmsg_fail(errmsg, LOCO_EFORMAT,
                           "it adds no token to those of the context, so there "
                           "is nothing to score");
    }
    if (scored > opt->seq) {
        return errmsg_fail(errmsg, LOCO_EFORMAT,
                           "it has %zu tokens, those of the delimiter and of "
                           "white space before it counted; the model reads at "
                           "most %u",
                           scored, opt->seq);
    }
    if (from > 0) {
        memmove(all->ids, all->ids + from, most * sizeof *all->ids);
        all->n = most;
    }
    fit = realloc(all->ids, all->n * sizeof *all->ids);
    *c = (struct continuation){fit == NULL ? all->ids : fit, all->n, scored};
    return 0;
}

int continuation_encode(struct continuation *c,
                        const struct continuation_options *opt,
                        const struct question_text *context,
                        const char *delimiter,
                        const struct question_text *text,
                        char *errmsg)
{
    size_t more = strlen(delimiter);
    size_t len = context->len + more + text->len;
    char *joined = malloc(len + 1);
    const struct question_text both = {joined, len};
    struct list all = {.n = 0};
    size_t given = 0;
    int rv;

    memset(c, 0, sizeof *c);
    if (joined == NULL) {
        return errmsg_fail(errmsg, LOCO_ENOMEM, "out of memory");
    }
    memcpy(joined, context->bytes, context->len);
    memcpy(joined + context->len, delimiter, more);
    memcpy(joined + context->len + more, text->bytes, text->len);
    (void)errmsg_fail(errmsg, LOCO_ENOMEM, "out of memory");
    rv = context->len == 0
             ? encode_alone(opt, &both, &all, &given, errmsg)
             : encode_both(opt, context, &both, &all, &given, errmsg);
    rv = rv == 0 ? cut(c, opt, &all, given, errmsg) : rv;
    if (rv != 0) {
        free(all.ids);
    }
    free(joined);
    return rv;
}

void continuation_free(struct continuation *c)
{
    free(c->ids);
    memset(c, 0, sizeof *c);
}

void continuation_row(const struct continuation *c,
                      int64_t t,
                      uint32_t *tokens,
                      uint32_t *targets)
{
    size_t read = c->n - 1;

    for (size_t i = 0; i < (size_t)t; i++) {
        tokens[i] = i < read ? c->ids[i] : 0;
        targets[i] = i < read && i >= read - c->n_scored
                         ? c->ids[i + 1]
                         : CONTINUATION_NOT_SCORED;
    }
}
