/* preset.c - see preset.h. */
#include "train/sync/preset.h"

#include <string.h>

#include "proto/base/err.h"
#include "proto/base/errmsg.h"
#include "proto/base/nearest.h"

static const struct preset presets[] = {
#define PRESET(NAME, SOURCE, ...)                                              \
    {.name = NAME, .source = SOURCE, .method = {__VA_ARGS__}},
#define PRESET_MUON(NAME, SOURCE, ...)                                         \
    {.name = NAME,                                                             \
     .source = SOURCE,                                                         \
     .optimizer = "muon",                                                      \
     .method = {__VA_ARGS__}},
#include "train/sync/presets.def"
};
#define N_PRESETS (sizeof presets / sizeof presets[0])

int preset_find(const char *name, const struct preset **out, char *errmsg)
{
    struct nearest near;

    *out = NULL;
    nearest_start(&near, name);
    for (size_t i = 0; i < N_PRESETS; i++) {
        if (strcmp(name, presets[i].name) == 0) {
            *out = &presets[i];
            return 0;
        }
        nearest_offer(&near, presets[i].name);
    }
    if (near.best == NULL) {
        return errmsg_fail(errmsg, LOCO_ENOENT,
                           "unknown preset \"%.40s\"; the presets are %s", name,
                           near.known);
    }
    return errmsg_fail(errmsg, LOCO_ENOENT,
                       "unknown preset \"%.40s\"; did you mean \"%s\"?", name,
                       near.best);
}

const struct preset *preset_at(size_t i)
{
    return i < N_PRESETS ? &presets[i] : NULL;
}
