/* nearest.c - see nearest.h. */
#include "daemon/nearest.h"

#include <string.h>

static size_t min3(size_t a, size_t b, size_t c)
{
    size_t m = a < b ? a : b;

    return m < c ? m : c;
}

size_t nearest_distance(const char *a, const char *b)
{
    size_t n_a = strnlen(a, NEAREST_WORD_MAX + 1);
    size_t n_b = strnlen(b, NEAREST_WORD_MAX + 1);
    size_t d[NEAREST_WORD_MAX + 1][NEAREST_WORD_MAX + 1];

    if (n_a > NEAREST_WORD_MAX || n_b > NEAREST_WORD_MAX) {
        return NEAREST_WORD_MAX + 1;
    }
    for (size_t i = 0; i <= n_a; i++) {
        d[i][0] = i;
    }
    for (size_t j = 0; j <= n_b; j++) {
        d[0][j] = j;
    }
    for (size_t i = 1; i <= n_a; i++) {
        for (size_t j = 1; j <= n_b; j++) {
            size_t replace = a[i - 1] == b[j - 1] ? 0 : 1;

            d[i][j] = min3(d[i - 1][j] + 1, d[i][j - 1] + 1,
                           d[i - 1][j - 1] + replace);
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] &&
                a[i - 2] == b[j - 1] && d[i - 2][j - 2] + 1 < d[i][j]) {
                d[i][j] = d[i - 2][j - 2] + 1;
            }
        }
    }
    return d[n_a][n_b];
}

const char *nearest_word(const char *word, const char *const *words, size_t n)
{
    const char *best = NULL;
    size_t allowed = (strlen(word) + 2) / 3;

    for (size_t i = 0; i < n; i++) {
        size_t distance = nearest_distance(word, words[i]);

        if (distance <= allowed) {
            best = words[i];
            allowed = distance - (distance > 0);
        }
    }
    return best;
}
