/* nearest.c - see nearest.h. */
#include "proto/base/nearest.h"

#include <stdio.h>
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

void nearest_start(struct nearest *n, const char *word)
{
    *n = (struct nearest){.word = word, .allowed = (strlen(word) + 2) / 3};
}

void nearest_offer(struct nearest *n, const char *known)
{
    size_t len = strlen(n->known);
    size_t distance = nearest_distance(n->word, known);
    const char *comma = len == 0 ? "" : ", ";

    if (distance <= n->allowed) {
        n->best = known;
        n->allowed = distance - (distance > 0);
    }
    if (len + strlen(comma) + strlen(known) < sizeof n->known) {
        (void)snprintf(n->known + len, sizeof n->known - len, "%s%s", comma,
                       known);
    }
}

const char *nearest_word(const char *word, const char *const *words, size_t n)
{
    struct nearest near;

    nearest_start(&near, word);
    for (size_t i = 0; i < n; i++) {
        nearest_offer(&near, words[i]);
    }
    return near.best;
}

int word_place(const char *word, const char *const *words, int n)
{
    for (int i = 0; i < n; i++) {
        if (strcmp(word, words[i]) == 0) {
            return i;
        }
    }
    return -1;
}
