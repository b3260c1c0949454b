/* nearest.h - "did you mean": the known word closest to a mistyped one.
 *
 * Distance is that of Damerau and Levenshtein (optimal string alignment):
 * insertions, deletions, replacements and swaps of neighbours, one each. Words
 * above NEAREST_WORD_MAX bytes have no neighbours. Pure; O(length^2) a word.
 */
#ifndef LOCO_PROTO_BASE_NEAREST_H
#define LOCO_PROTO_BASE_NEAREST_H

#include <stddef.h>

#define NEAREST_WORD_MAX 48
#define NEAREST_LIST_MAX 192

/* A mistyped word beside the known words, which are offered one by one. */
struct nearest {
    const char *word;
    /* The closest word so far; NULL when none is close enough to be a slip: at
     * most a third of its letters, at least one, wrong. */
    const char *best;
    size_t allowed;               /* edits; a further word needs fewer */
    char known[NEAREST_LIST_MAX]; /* all words, "a, b, c", while they fit */
};

void nearest_start(struct nearest *n, const char *word);
void nearest_offer(struct nearest *n, const char *known);

/* Edits between two words; NEAREST_WORD_MAX + 1 when one is too long. */
size_t nearest_distance(const char *a, const char *b);

/* The word of words[n] closest to `word`; NULL as `best` above. */
const char *nearest_word(const char *word, const char *const *words, size_t n);

/* The place of `word` itself in words[n]; -1: it is none of them. */
int word_place(const char *word, const char *const *words, int n);

#endif
