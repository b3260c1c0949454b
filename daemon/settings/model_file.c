/* model_file.c - see model_file.h. */
#include "daemon/settings/model_file.h"

#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/base/err.h"
#include "proto/base/file.h"
#include "proto/base/nearest.h"

#define MODEL_FILE_MAX 8192

/* X(field, kind, must be there) */
#define MODEL_FIELDS(X)                                                        \
    X(dim, COUNT, true)                                                        \
    X(layers, COUNT, true)                                                     \
    X(heads, COUNT, true)                                                      \
    X(kv_heads, COUNT, false)                                                  \
    X(ffn, COUNT, true)                                                        \
    X(vocab, COUNT, true)                                                      \
    X(seq, COUNT, true)                                                        \
    X(tied, FLAG, false)                                                       \
    X(rope_theta, REAL, false)                                                 \
    X(norm_eps, REAL, false)

enum field_kind { COUNT, FLAG, REAL };

static const struct {
    const char *name;
    enum field_kind kind;
    bool needed;
    size_t offset;
} fields[] = {
#define X(name, kind, needed)                                                  \
    {#name, kind, needed, offsetof(struct llama_config, name)},
    MODEL_FIELDS(X)
#undef X
};

#define N_FIELDS (sizeof fields / sizeof fields[0])

static char *trim(char *text)
{
    char *end;

    while (isspace((unsigned char)*text)) {
        text++;
    }
    end = text + strlen(text);
    while (end > text && isspace((unsigned char)end[-1])) {
        *--end = '\0';
    }
    return text;
}

static bool field_store(size_t i, const char *text, struct llama_config *c)
{
    char *at = (char *)c + fields[i].offset;
    char *end;
    unsigned long count;
    float real;

    errno = 0;
    switch (fields[i].kind) {
    case COUNT:
        count = strtoul(text, &end, 10);
        *(uint32_t *)(void *)at = (uint32_t)count;
        return isdigit((unsigned char)text[0]) && *end == '\0' && errno == 0 &&
               count <= UINT32_MAX;
    case FLAG:
        *(bool *)at = strcmp(text, "true") == 0;
        return strcmp(text, "true") == 0 || strcmp(text, "false") == 0;
    case REAL:
        real = strtof(text, &end);
        *(float *)(void *)at = real;
        return text[0] != '\0' && *end == '\0' && errno == 0 && isfinite(real);
    }
    return false;
}

static int
unknown_key(const char *where, int line, const char *key, char *errmsg)
{
    const char *names[N_FIELDS];
    const char *near;

    for (size_t i = 0; i < N_FIELDS; i++) {
        names[i] = fields[i].name;
    }
    near = nearest_word(key, names, N_FIELDS);
    return errmsg_invalid(errmsg,
                          near == NULL ? "%.120s:%d: unknown key '%.40s'%s"
                                       : "%.120s:%d: unknown key '%.40s'; did "
                                         "you mean '%s'?",
                          where, line, key, near == NULL ? "" : near);
}

/* One line without its newline. */
static int line_read(char *text,
                     const char *where,
                     int line,
                     struct llama_config *c,
                     bool *seen,
                     char *errmsg)
{
    char *comment = strchr(text, '#');
    char *colon;
    char *key;

    if (comment != NULL) {
        *comment = '\0';
    }
    text = trim(text);
    if (text[0] == '\0' || strcmp(text, "---") == 0) {
        return 0;
    }
    colon = strchr(text, ':');
    if (colon == NULL) {
        return errmsg_invalid(errmsg, "%.120s:%d: not a 'key: value' line",
                              where, line);
    }
    *colon = '\0';
    key = trim(text);
    for (size_t i = 0; i < N_FIELDS; i++) {
        if (strcmp(fields[i].name, key) != 0) {
            continue;
        }
        if (seen[i] || !field_store(i, trim(colon + 1), c)) {
            return errmsg_invalid(
                errmsg,
                seen[i] ? "%.120s:%d: '%s' is set twice"
                        : "%.120s:%d: '%s' cannot have this value",
                where, line, key);
        }
        seen[i] = true;
        return 0;
    }
    return unknown_key(where, line, key, errmsg);
}

int model_parse(char *text,
                const char *where,
                struct llama_config *out,
                char errmsg[ERRMSG_SIZE])
{
    bool seen[N_FIELDS] = {false};
    const char *reason = "";
    int line = 0;

    *out = (struct llama_config){
        .tied = true, .rope_theta = 10000.0F, .norm_eps = 1e-5F};
    while (text != NULL) {
        char *newline = strchr(text, '\n');
        int rv;

        if (newline != NULL) {
            *newline++ = '\0';
        }
        rv = line_read(text, where, ++line, out, seen, errmsg);
        if (rv != 0) {
            return rv;
        }
        text = newline;
    }
    for (size_t i = 0; i < N_FIELDS; i++) {
        if (fields[i].needed && !seen[i]) {
            return errmsg_invalid(errmsg, "%.120s: '%s' is missing", where,
                                  fields[i].name);
        }
    }
    if (out->kv_heads == 0) {
        out->kv_heads = out->heads;
    }
    if (llama_config_check(out, &reason) != 0) {
        return errmsg_invalid(errmsg, "%.120s: %.100s", where, reason);
    }
    return 0;
}

static int unknown_model(const char *name, char *errmsg)
{
    char known[160] = "";
    size_t n = 0;

    for (int i = 0; llama_config_name(i) != NULL && n < sizeof known; i++) {
        n += (size_t)snprintf(known + n, sizeof known - n, " %s",
                              llama_config_name(i));
    }
    return errmsg_fail(errmsg, LOCO_ENOENT,
                       "model '%.60s' is neither a file nor one of%s", name,
                       known);
}

int model_find(const char *name_or_path,
               struct llama_config *out,
               char errmsg[ERRMSG_SIZE])
{
    char *text;
    size_t len;
    int rv;

    if (llama_config_named(name_or_path, out) == 0) {
        return 0;
    }
    rv = file_read_whole(name_or_path, MODEL_FILE_MAX, &text, &len, errmsg);
    if (rv == LOCO_ENOENT) {
        return unknown_model(name_or_path, errmsg);
    }
    if (rv != 0) {
        return rv;
    }
    rv = strlen(text) == len
             ? model_parse(text, name_or_path, out, errmsg)
             : errmsg_invalid(errmsg, "%.160s: not a model file", name_or_path);
    free(text);
    return rv;
}
