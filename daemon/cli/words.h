/* words.h - 32 secret bytes as 24 words that a person can write down.
 *
 * BIP 39 (Palatinus et al. 2013) for 256 bits, without its passphrase: the
 * bytes and 8 bits of their SHA-256 are 24 numbers of 11 bits, each a word of
 * the English list. The check finds 255 of 256 wrong sentences; four letters
 * of a word are enough.
 *
 * Pure; the texts hold a secret: wipe them (sodium_memzero).
 */
#ifndef LOCO_DAEMON_CLI_WORDS_H
#define LOCO_DAEMON_CLI_WORDS_H

#include <stdint.h>

#define WORDS_COUNT      24
#define WORDS_TEXT_MAX   (WORDS_COUNT * 9) /* 8 letters and a blank each */
#define WORDS_ERRMSG_MAX 128

void words_encode(const uint8_t secret[32], char out[WORDS_TEXT_MAX]);

/* Blanks and line breaks between the words, upper case as lower. LOCO_EINVAL
 * with a sentence that names the place, and what was meant where it is clear,
 * but never the other words. */
int words_decode(const char *text,
                 uint8_t secret[32],
                 char errmsg[WORDS_ERRMSG_MAX]);

#endif
