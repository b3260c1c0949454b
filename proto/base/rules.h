/* rules.h - combinations of settings that are refused: rows of rules.def.
 *
 * Each library asks the conditions that it can see: manifest_refuses(),
 * method_refuses(), and for both together rules_refuse() of
 * daemon/settings/method_manifest.h. The sentence is the same for all:
 *
 *     sync.gamma=0.5, sync.preset=diloco: the pull is towards a partner, and
 *     here all members hold the same anchor; set sync.gamma=0, or
 *     sync.preset=noloco
 *
 * Constant tables, pure functions.
 */
#ifndef LOCO_PROTO_BASE_RULES_H
#define LOCO_PROTO_BASE_RULES_H

#include <stdbool.h>
#include <stddef.h>
#include <string.h>

/* What a condition sees, and who asks it (rules.def). */
enum conflict_scope {
    SCOPE_FORMAT,
    SCOPE_METHOD,
    SCOPE_SETTINGS,
    SCOPE_RUN,
    SCOPE_MACHINE
};

/* clang-format off */
enum conflict_id {
#define REFUSE_FORMAT(name, ...)   CONFLICT_##name,
#define REFUSE_METHOD(name, ...)   CONFLICT_##name,
#define REFUSE_SETTINGS(name, ...) CONFLICT_##name,
#define REFUSE_RUN(name, ...)      CONFLICT_##name,
#define REFUSE_MACHINE(name, ...)  CONFLICT_##name,
#include "proto/base/rules.def"
    CONFLICT_COUNT
};
/* clang-format on */

struct conflict {
    const char *name;
    enum conflict_scope scope;
    const char *settings; /* "a.b, c.d" */
    const char *reason;
    const char *nearest; /* "a.b=1, c.d=e.f", then advice after ", or " */
};

extern const struct conflict conflicts[CONFLICT_COUNT];

/* The value of a setting as text into out[cap]; false: not known here. */
typedef bool (*conflict_value)(const void *self,
                               const char *path,
                               char *out,
                               size_t cap);

/* The sentence into out[cap], cut to fit. `value` may be NULL. */
void conflict_say(enum conflict_id id,
                  conflict_value value,
                  const void *self,
                  char *out,
                  size_t cap);

/* For conditions. */
static inline bool text_is(const char *text, const char *word)
{
    return strcmp(text, word) == 0;
}

/* sync.audit: whether sums are repeated; audits of work come with those. */
static inline bool audit_has_sums(const char *audit)
{
    return text_is(audit, "sums") || text_is(audit, "work");
}

#endif
