/* pretoken.c - see pretoken.h. The only file that includes pcre2.h.
 *
 * Happy path: pretoken_run hands the text to stage 0; a pattern stage walks
 * over its matches and hands each piece to the next stage at once, so that no
 * list of pieces is ever made; behind the last stage stands the caller.
 *
 * PCRE2 is told that the text is UTF-8 and does not check again: the caller
 * has. A match has limits of its own; a pattern that needs more on some text
 * is an error and not a long wait.
 */
#include "train/data/pretoken.h"

#include <stdlib.h>
#include <string.h>

#include "proto/base/err.h"
#include "proto/base/errmsg.h"
#include "train/data/pattern.h"

#ifdef LOCO_PCRE2
#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#define MATCH_LIMIT   1000000 /* steps of one match */
#define HEAP_LIMIT_KB 65536
#define JIT_STACK_MIN ((size_t)32 << 10)
#define JIT_STACK_MAX ((size_t)1 << 20)
#endif

struct pretoken_work {
    const struct pretoken *p;
    uint8_t *prefixed[PRETOKEN_STAGES_MAX]; /* a piece with its space */
    size_t room[PRETOKEN_STAGES_MAX];
    char *errmsg; /* of the run */
    pretoken_word_fn on_word;
    void *data;
#ifdef LOCO_PCRE2
    pcre2_match_context *context;
    pcre2_match_data *match;
    pcre2_jit_stack *stack;
#endif
};

/* ---- making a chain ----------------------------------------------------- */

static struct pretoken_stage *stage_new(struct pretoken *p, char *errmsg)
{
    if (p->n == PRETOKEN_STAGES_MAX) {
        (void)errmsg_fail(errmsg, LOCO_EFULL,
                          "the pre-tokenizer has more than %d stages",
                          PRETOKEN_STAGES_MAX);
        return NULL;
    }
    p->stages[p->n] = (struct pretoken_stage){0};
    return &p->stages[p->n++];
}

int pretoken_add_prefix(struct pretoken *p, char *errmsg)
{
    return stage_new(p, errmsg) == NULL ? LOCO_EFULL : 0;
}

#ifdef LOCO_PCRE2

static int compile(struct pretoken_stage *s,
                   enum pretoken_kind kind,
                   const char *pattern,
                   char *errmsg)
{
    uint32_t options =
        PCRE2_UTF | PCRE2_NO_UTF_CHECK |
        (kind == PRETOKEN_LITERAL ? PCRE2_LITERAL
                                  : PCRE2_UCP | PCRE2_NEVER_BACKSLASH_C);
    pcre2_compile_context *context = pcre2_compile_context_create(NULL);
    PCRE2_UCHAR text[120];
    PCRE2_SIZE at = 0;
    int code = 0;

    if (context == NULL) {
        return errmsg_fail(errmsg, LOCO_ENOMEM, "no memory for a pattern");
    }
    /* What "." does not match, whatever the library was built with. */
    (void)pcre2_set_newline(context, PCRE2_NEWLINE_LF);
    s->pattern = pcre2_compile((PCRE2_SPTR)pattern, PCRE2_ZERO_TERMINATED,
                               options, &code, &at, context);
    pcre2_compile_context_free(context);
    if (s->pattern == NULL) {
        (void)pcre2_get_error_message(code, text, sizeof text);
        return errmsg_fail(errmsg, LOCO_EFORMAT,
                           "the pattern is not valid at byte %zu: %s",
                           (size_t)at, (const char *)text);
    }
    /* Without it (a hardened system) the interpreter gives the same words. */
    s->jit = pcre2_jit_compile(s->pattern, PCRE2_JIT_COMPLETE) == 0;
    return 0;
}

int pretoken_add(struct pretoken *p,
                 enum pretoken_kind kind,
                 const char *pattern,
                 bool drop_gaps,
                 char *errmsg)
{
    struct pretoken_stage *s = stage_new(p, errmsg);
    char translated[PATTERN_MAX];
    int rv = 0;

    if (s == NULL) {
        return LOCO_EFULL;
    }
    s->drop_gaps = drop_gaps;
    if (kind == PRETOKEN_REGEX) {
        rv = pattern_translate(pattern, translated, errmsg);
        pattern = translated;
    } else if (pattern[0] == '\0' || strlen(pattern) >= PATTERN_MAX) {
        rv = errmsg_fail(errmsg, LOCO_EFORMAT,
                         "the pattern is empty or longer than %d bytes",
                         PATTERN_MAX);
    }
    rv = rv == 0 ? compile(s, kind, pattern, errmsg) : rv;
    if (rv != 0) {
        p->n--;
    }
    return rv;
}

void pretoken_close(struct pretoken *p)
{
    for (unsigned i = 0; i < p->n; i++) {
        pcre2_code_free(p->stages[i].pattern);
    }
    p->n = 0;
}

#else

int pretoken_add(struct pretoken *p,
                 enum pretoken_kind kind,
                 const char *pattern,
                 bool drop_gaps,
                 char *errmsg)
{
    (void)p;
    (void)kind;
    (void)pattern;
    (void)drop_gaps;
    return errmsg_invalid(errmsg,
                          "this loco was built without PCRE2, which the "
                          "tokenizer's patterns need");
}

void pretoken_close(struct pretoken *p)
{
    p->n = 0;
}

#endif

/* ---- one thread's memory ------------------------------------------------ */

void pretoken_work_free(struct pretoken_work *w)
{
    if (w == NULL) {
        return;
    }
    for (unsigned i = 0; i < PRETOKEN_STAGES_MAX; i++) {
        free(w->prefixed[i]);
    }
#ifdef LOCO_PCRE2
    pcre2_jit_stack_free(w->stack);
    pcre2_match_data_free(w->match);
    pcre2_match_context_free(w->context);
#endif
    free(w);
}

struct pretoken_work *pretoken_work_new(const struct pretoken *p)
{
    struct pretoken_work *w = calloc(1, sizeof *w);

    if (w == NULL) {
        return NULL;
    }
    w->p = p;
#ifdef LOCO_PCRE2
    w->context = pcre2_match_context_create(NULL);
    w->match = pcre2_match_data_create(1, NULL);
    w->stack = pcre2_jit_stack_create(JIT_STACK_MIN, JIT_STACK_MAX, NULL);
    if (w->context == NULL || w->match == NULL) {
        pretoken_work_free(w);
        return NULL;
    }
    (void)pcre2_set_match_limit(w->context, MATCH_LIMIT);
    (void)pcre2_set_heap_limit(w->context, HEAP_LIMIT_KB);
    pcre2_jit_stack_assign(w->context, NULL, w->stack);
#endif
    return w;
}

/* ---- running it --------------------------------------------------------- */

static int
piece(struct pretoken_work *w, unsigned stage, const uint8_t *text, size_t len);

static int
prefix(struct pretoken_work *w, unsigned stage, const uint8_t *text, size_t len)
{
    uint8_t *copy = w->prefixed[stage];

    if (text[0] == ' ') {
        return piece(w, stage + 1, text, len);
    }
    if (len + 1 > w->room[stage]) {
        copy = realloc(copy, len + len / 2 + 64);
        if (copy == NULL) {
            return errmsg_fail(w->errmsg, LOCO_ENOMEM,
                               "no memory for a piece of %zu bytes", len);
        }
        w->prefixed[stage] = copy;
        w->room[stage] = len + len / 2 + 64;
    }
    copy[0] = ' ';
    memcpy(copy + 1, text, len);
    return piece(w, stage + 1, copy, len + 1);
}

#ifdef LOCO_PCRE2

/* The next match in text[from .. len): 1 and its place, 0, or an error. */
static int next_match(const struct pretoken_work *w,
                      const struct pretoken_stage *s,
                      const uint8_t *text,
                      size_t len,
                      size_t from,
                      size_t place[2])
{
    const PCRE2_SIZE *at = pcre2_get_ovector_pointer(w->match);
    int rc = s->jit ? pcre2_jit_match(s->pattern, text, len, from,
                                      PCRE2_NO_UTF_CHECK, w->match, w->context)
                    : pcre2_match(s->pattern, text, len, from,
                                  PCRE2_NO_UTF_CHECK, w->match, w->context);

    if (rc == PCRE2_ERROR_NOMATCH) {
        return 0;
    }
    if (rc < 0 || at[0] < from || at[1] < at[0]) {
        return errmsg_fail(w->errmsg, LOCO_EFORMAT,
                           "the tokenizer's pattern is too slow for this text "
                           "(PCRE2 error %d at byte %zu of a piece)",
                           rc, from);
    }
    place[0] = at[0];
    place[1] = at[1];
    return 1;
}

static size_t next_character(const uint8_t *text, size_t len, size_t at)
{
    do {
        at++;
    } while (at < len && (text[at] & 0xc0) == 0x80);
    return at;
}

static int matches(struct pretoken_work *w,
                   unsigned stage,
                   const uint8_t *text,
                   size_t len)
{
    const struct pretoken_stage *s = &w->p->stages[stage];
    size_t done = 0; /* where the last piece ended */
    size_t from = 0;
    int rv = 0;

    while (rv == 0 && from < len) {
        size_t at[2] = {len, len};
        int found = next_match(w, s, text, len, from, at);

        if (found < 0) {
            return found;
        }
        if (at[0] > done && !s->drop_gaps) {
            rv = piece(w, stage + 1, text + done, at[0] - done);
        }
        if (rv == 0 && at[1] > at[0]) {
            rv = piece(w, stage + 1, text + at[0], at[1] - at[0]);
        }
        done = at[1];
        /* An empty match cuts and moves on by a character. */
        from = at[1] > at[0] ? at[1] : next_character(text, len, at[1]);
    }
    if (rv == 0 && done < len && !s->drop_gaps) {
        rv = piece(w, stage + 1, text + done, len - done);
    }
    return rv;
}

#else

static int matches(struct pretoken_work *w,
                   unsigned stage,
                   const uint8_t *text,
                   size_t len)
{
    return piece(w, stage + 1, text, len); /* no such stage exists */
}

#endif

static int
piece(struct pretoken_work *w, unsigned stage, const uint8_t *text, size_t len)
{
    if (stage == w->p->n) {
        return w->on_word(w->data, text, len);
    }
    return w->p->stages[stage].pattern == NULL ? prefix(w, stage, text, len)
                                               : matches(w, stage, text, len);
}

int pretoken_run(struct pretoken_work *w,
                 const uint8_t *text,
                 size_t len,
                 pretoken_word_fn on_word,
                 void *data,
                 char *errmsg)
{
    w->on_word = on_word;
    w->data = data;
    w->errmsg = errmsg;
    return piece(w, 0, text, len);
}
