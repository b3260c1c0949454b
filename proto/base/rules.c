/* rules.c - see rules.h. */
#include "proto/base/rules.h"

#define TEXT_MAX 64

/* clang-format off */
#define ROW(name, scope, settings, reason, nearest)                            \
    [CONFLICT_##name] = {#name, SCOPE_##scope, settings, reason, nearest},
const struct conflict conflicts[CONFLICT_COUNT] = {
#define REFUSE_FORMAT(name, settings, condition, reason, nearest)              \
    ROW(name, FORMAT, settings, reason, nearest)
#define REFUSE_METHOD(name, settings, condition, reason, nearest)              \
    ROW(name, METHOD, settings, reason, nearest)
#define REFUSE_SETTINGS(name, settings, condition, reason, nearest)            \
    ROW(name, SETTINGS, settings, reason, nearest)
#define REFUSE_RUN(name, settings, condition, reason, nearest)                 \
    ROW(name, RUN, settings, reason, nearest)
#define REFUSE_MACHINE(name, settings, condition, reason, nearest)             \
    ROW(name, MACHINE, settings, reason, nearest)
#include "proto/base/rules.def"
};
/* clang-format on */

/* A sentence that grows until it is full. */
struct say {
    char *out;
    size_t cap, n;
    conflict_value value;
    const void *self;
};

static void say(struct say *s, const char *text, size_t len)
{
    for (size_t i = 0; i < len && s->n + 1 < s->cap; i++) {
        s->out[s->n++] = text[i];
    }
    s->out[s->n] = '\0';
}

/* The value of the setting path[len]; false: there is none. */
static bool
value_of(const struct say *s, const char *path, size_t len, char out[TEXT_MAX])
{
    char name[TEXT_MAX];

    if (s->value == NULL || len == 0 || len >= sizeof name) {
        return false;
    }
    memcpy(name, path, len);
    name[len] = '\0';
    return s->value(s->self, name, out, TEXT_MAX);
}

/* "a.b, c.d" with the value of each. */
static void say_settings(struct say *s, const char *settings)
{
    char value[TEXT_MAX];

    while (*settings != '\0') {
        size_t len = strcspn(settings, ",");

        say(s, settings, len);
        if (value_of(s, settings, len, value)) {
            say(s, "=", 1);
            say(s, value, strlen(value));
        }
        settings += len;
        len = strspn(settings, ", ");
        say(s, settings, len);
        settings += len;
    }
}

/* "a.b=1, c.d=e.f" with the value of e.f, where there is such a setting. */
static void say_nearest(struct say *s, const char *text)
{
    char value[TEXT_MAX];

    while (*text != '\0') {
        size_t len = strcspn(text, "=");

        len += text[len] == '=';
        say(s, text, len);
        text += len;
        len = strcspn(text, ", ");
        if (memchr(text, '.', len) != NULL && value_of(s, text, len, value)) {
            say(s, value, strlen(value));
            text += len;
        }
    }
}

void conflict_say(enum conflict_id id,
                  conflict_value value,
                  const void *self,
                  char *out,
                  size_t cap)
{
    const struct conflict *r = &conflicts[id];
    struct say s = {.out = out, .cap = cap, .value = value, .self = self};

    say_settings(&s, r->settings);
    say(&s, ": ", 2);
    say(&s, r->reason, strlen(r->reason));
    say(&s, "; set ", 6);
    say_nearest(&s, r->nearest);
}
