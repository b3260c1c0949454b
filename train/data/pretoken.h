/* pretoken.h - cut text into words, before merges: a chain of patterns.
 *
 * The chain is what a tokenizer.json calls its pre-tokenizer: each stage cuts
 * every piece that the stage before it left, and sees nothing but that piece.
 * What comes out of the last stage is a *word*: merges never cross its ends.
 *
 * A pattern stage isolates its matches: the text of a match is a piece, and so
 * is the text between two matches. Patterns are regular expressions as
 * Hugging Face writes them (Oniguruma's dialect), run by PCRE2 with its JIT
 * compiler where the system allows one. pattern.h says which part of the
 * dialect means the same in both; the rest is refused.
 *
 * A *prefix* stage puts a space before a piece that does not begin with one.
 *
 * How it fails: LOCO_EFORMAT with a sentence for a pattern that is refused or
 * that took too long on a text, LOCO_EINVAL in a build without PCRE2,
 * LOCO_EFULL, LOCO_ENOMEM. A chain is immutable once it is made: any number of
 * threads, each with a pretoken_work of its own.
 */
#ifndef LOCO_TRAIN_DATA_PRETOKEN_H
#define LOCO_TRAIN_DATA_PRETOKEN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define PRETOKEN_STAGES_MAX 8

struct pretoken_stage {
    void *pattern; /* compiled; NULL: a prefix stage */
    bool jit;
    bool drop_gaps; /* text between matches is no piece: it is gone */
};

struct pretoken {
    struct pretoken_stage stages[PRETOKEN_STAGES_MAX];
    unsigned n;
};

enum pretoken_kind {
    PRETOKEN_REGEX,
    PRETOKEN_LITERAL, /* the pattern is the text itself */
};

/* A zeroed struct pretoken is the empty chain: the text is one word. */
int pretoken_add(struct pretoken *p,
                 enum pretoken_kind kind,
                 const char *pattern,
                 bool drop_gaps,
                 char *errmsg);
int pretoken_add_prefix(struct pretoken *p, char *errmsg);
void pretoken_close(struct pretoken *p); /* idempotent */

/* One word of at least one byte, borrowed for the call. Any return but 0 ends
 * the run. */
typedef int (*pretoken_word_fn)(void *data, const uint8_t *word, size_t len);

struct pretoken_work;

/* NULL: no memory. */
struct pretoken_work *pretoken_work_new(const struct pretoken *p);
void pretoken_work_free(struct pretoken_work *w); /* NULL is allowed */

/* Cut `text`, which must be UTF-8, of at least one byte. */
int pretoken_run(struct pretoken_work *w,
                 const uint8_t *text,
                 size_t len,
                 pretoken_word_fn on_word,
                 void *data,
                 char *errmsg);

#endif
