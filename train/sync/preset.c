/* preset.c - see preset.h. */
#include "train/sync/preset.h"

#include <string.h>

#include "proto/base/err.h"
#include "train/errmsg.h"

#define NAME_MAX_COMPARED 31

static const struct preset presets[] = {
#define PRESET(NAME, SOURCE, ...)                                              \
    {.name = NAME, .source = SOURCE, .method = {__VA_ARGS__}},
#include "train/sync/presets.def"
};
#define N_PRESETS (sizeof presets / sizeof presets[0])

static size_t min3(size_t a, size_t b, size_t c)
{
    size_t m = a < b ? a : b;

    return m < c ? m : c;
}

/* Levenshtein 1966, one row of the table; names beyond the limit are cut. */
static size_t edit_distance(const char *a, const char *b)
{
    size_t row[NAME_MAX_COMPARED + 1];
    size_t a_len = strnlen(a, NAME_MAX_COMPARED);
    size_t b_len = strnlen(b, NAME_MAX_COMPARED);

    for (size_t j = 0; j <= b_len; j++) {
        row[j] = j;
    }
    for (size_t i = 1; i <= a_len; i++) {
        size_t diagonal = row[0];

        row[0] = i;
        for (size_t j = 1; j <= b_len; j++) {
            size_t above = row[j];
            size_t replace = diagonal + (a[i - 1] != b[j - 1]);

            row[j] = min3(above + 1, row[j - 1] + 1, replace);
            diagonal = above;
        }
    }
    return row[b_len];
}

static const char *nearest_name(const char *name)
{
    const char *best = presets[0].name;
    size_t best_distance = edit_distance(name, best);

    for (size_t i = 1; i < N_PRESETS; i++) {
        size_t d = edit_distance(name, presets[i].name);
        if (d < best_distance) {
            best_distance = d;
            best = presets[i].name;
        }
    }
    return best;
}

int preset_find(const char *name, const struct preset **out, char *errmsg)
{
    *out = NULL;
    for (size_t i = 0; i < N_PRESETS; i++) {
        if (strcmp(name, presets[i].name) == 0) {
            *out = &presets[i];
            return 0;
        }
    }
    return errmsg_fail(errmsg, LOCO_ENOENT,
                       "unknown preset \"%.40s\"; did you mean \"%s\"?", name,
                       nearest_name(name));
}

const struct preset *preset_at(size_t i)
{
    return i < N_PRESETS ? &presets[i] : NULL;
}
