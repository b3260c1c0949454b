/* pattern.h - the part of Oniguruma's patterns that PCRE2 reads alike.
 *
 * Tokenizers are trained with one regular-expression library and used with
 * another: where the two read a pattern differently, tokens differ, silently.
 * So this knows what it lets through, and refuses the rest by sentence:
 *
 *   through  literals, . | ( ) [ ] * + ? {n,m}, also lazy and possessive (but
 *            not }+), (?: (?= (?! (?<= (?<! (?> (?i: (?i), \d \D \r \n \t \f,
 *            general categories and scripts as \p{..} and \P{..}, \x.. \x{..}
 * \u...., escaped punctuation written  \s and \S become the 25 characters of
 * Unicode's White_Space: anew     PCRE2's own \s also takes U+180E refused  \w
 * \W \b \B \h \H (other sets of characters), ^ $ (lines there, text here), \A
 * \z \Z \G \K \R \X, back references, names, recursion, conditions, classes in
 * classes, &&
 */
#ifndef LOCO_TRAIN_DATA_PATTERN_H
#define LOCO_TRAIN_DATA_PATTERN_H

#include <stddef.h>

#define PATTERN_MAX 4096 /* bytes of a pattern, written anew, with its NUL */

/* out = the pattern for PCRE2. LOCO_EFORMAT with a sentence. */
int pattern_translate(const char *pattern, char out[PATTERN_MAX], char *errmsg);

#endif
