/* alphabet.h - bytes as printable characters, the way GPT-2 writes tokens.
 *
 * A byte-level vocabulary is text in a JSON file, so each byte has a character
 * that prints: 0x21 to 0x7E, 0xA1 to 0xAC and 0xAE to 0xFF stand for
 * themselves, the other 68 bytes for U+0100 onwards in order (Radford et al.
 * 2019, bytes_to_unicode).
 */
#ifndef LOCO_TRAIN_DATA_ALPHABET_H
#define LOCO_TRAIN_DATA_ALPHABET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define ALPHABET_FIRST 0x100 /* of the characters that stand for others */
#define ALPHABET_MORE  68

static inline bool alphabet_prints(unsigned byte)
{
    return (byte >= 0x21 && byte <= 0x7e) || (byte >= 0xa1 && byte <= 0xac) ||
           byte >= 0xae;
}

/* The byte that the n-th of the other characters stands for. */
static inline unsigned alphabet_other(unsigned n)
{
    unsigned byte = 0;

    for (;; byte++) {
        if (!alphabet_prints(byte) && n-- == 0) {
            return byte;
        }
    }
}

/* utf8 = the character of a byte, with a NUL. */
static inline void alphabet_write(unsigned byte, char utf8[3])
{
    unsigned point = byte;

    if (!alphabet_prints(byte)) {
        point = ALPHABET_FIRST;
        for (unsigned b = 0; b < byte; b++) {
            point += !alphabet_prints(b);
        }
    }
    memset(utf8, 0, 3);
    if (point < 0x80) {
        utf8[0] = (char)point;
    } else {
        utf8[0] = (char)(0xc0 | point >> 6);
        utf8[1] = (char)(0x80 | (point & 0x3f));
    }
}

/* bytes (len) = what the characters of text stand for; false when one of them
 * is not of the alphabet. *n: how many. */
static inline bool
alphabet_read(const char *text, size_t len, uint8_t *bytes, size_t *n)
{
    const uint8_t *p = (const uint8_t *)text;

    *n = 0;
    for (size_t i = 0; i < len; i++) {
        unsigned point = p[i];

        if (point >= 0xc2 && point <= 0xdf && i + 1 < len) {
            point = (point & 0x1f) << 6 | (p[++i] & 0x3f);
        } else if (point >= 0x80) {
            return false;
        }
        if (point >= ALPHABET_FIRST + ALPHABET_MORE ||
            (point < ALPHABET_FIRST && !alphabet_prints(point))) {
            return false;
        }
        bytes[(*n)++] = (uint8_t)(point < ALPHABET_FIRST
                                      ? point
                                      : alphabet_other(point - ALPHABET_FIRST));
    }
    return true;
}

#endif
