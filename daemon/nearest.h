/* nearest.h - "did you mean": the known word closest to a mistyped one.
 *
 * Distance is that of Damerau and Levenshtein (optimal string alignment):
 * insertions, deletions, replacements and swaps of neighbours, one each. Words
 * above NEAREST_WORD_MAX bytes have no neighbours. Pure; O(length^2) a word.
 */
#ifndef LOCO_DAEMON_NEAREST_H
#define LOCO_DAEMON_NEAREST_H

#include <stddef.h>

#define NEAREST_WORD_MAX 48

/* Edits between two words; NEAREST_WORD_MAX + 1 when one is too long. */
size_t nearest_distance(const char *a, const char *b);

/* The word of words[n] closest to `word`, NULL when none is close enough to
 * be a slip: at most a third of its letters, at least one, wrong. */
const char *nearest_word(const char *word, const char *const *words, size_t n);

#endif
