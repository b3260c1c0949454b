/* scenario.c - see scenario.h. */
#include "daemon/sim/world/scenario.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/base/err.h"
#include "proto/base/nearest.h"

#define NAMES_MAX 96

void sim_figure(struct sim_result *r,
                const char *name,
                double value,
                enum sim_fold fold)
{
    uint32_t i = 0;

    while (i < r->n_figures && strcmp(r->figure[i].name, name) != 0) {
        i++;
    }
    if (i < SIM_FIGURES_MAX) {
        r->figure[i] = (struct sim_figure){name, value, fold};
        r->n_figures += i == r->n_figures;
    }
}

void sim_fail(struct sim_result *r, const char *fmt, ...)
{
    va_list ap;

    if (r->violations++ > 0) {
        return;
    }
    va_start(ap, fmt);
    (void)vsnprintf(r->violation, sizeof r->violation, fmt, ap);
    va_end(ap);
}

/* ---- --set -------------------------------------------------------------- */

static int setting_bad(struct sim_result *r,
                       const char *text,
                       const struct sim_setting *table,
                       size_t n,
                       const char *path)
{
    const char *names[NAMES_MAX] = {NULL}, *near;
    size_t at;

    for (size_t i = 0; i < n && i < NAMES_MAX; i++) {
        names[i] = table[i].path;
    }
    near = nearest_word(path, names, n < NAMES_MAX ? n : NAMES_MAX);
    if (near != NULL) {
        (void)snprintf(r->violation, sizeof r->violation,
                       "--set %.80s: no such setting; did you mean '%s'?", text,
                       near);
        return LOCO_EINVAL;
    }
    at = (size_t)snprintf(r->violation, sizeof r->violation,
                          "--set %.80s: no such setting; this scenario has",
                          text);
    for (size_t i = 0; i < n && at < sizeof r->violation; i++) {
        at += (size_t)snprintf(r->violation + at, sizeof r->violation - at,
                               " %s", names[i]);
    }
    return LOCO_EINVAL;
}

static int setting_apply(const struct sim_setting *row,
                         const char *text,
                         const char *value,
                         struct sim_result *r)
{
    char *end;
    double x = strtod(value, &end);
    bool whole = row->real == NULL;

    if (end == value || *end != '\0' || !(x >= row->min && x <= row->max) ||
        (whole && x != (double)(uint64_t)x)) {
        (void)snprintf(r->violation, sizeof r->violation,
                       "--set %.80s: %s wants a%s number from %g to %g", text,
                       row->path, whole ? " whole" : "", row->min, row->max);
        return LOCO_EINVAL;
    }
    if (row->real != NULL) {
        *row->real = x;
    } else if (row->u32 != NULL) {
        *row->u32 = (uint32_t)x;
    } else {
        *row->u64 = (uint64_t)x;
    }
    return 0;
}

int sim_settings(const struct sim_options *opt,
                 const struct sim_setting *table,
                 size_t n,
                 struct sim_result *result)
{
    for (size_t k = 0; k < opt->n_set; k++) {
        const char *text = opt->set[k], *eq = strchr(text, '=');
        const struct sim_setting *row = NULL;
        char path[48];

        (void)snprintf(path, sizeof path, "%.*s",
                       eq == NULL ? 40 : (int)(eq - text), text);
        for (size_t i = 0; i < n && row == NULL; i++) {
            row = strcmp(table[i].path, path) == 0 ? &table[i] : NULL;
        }
        if (row == NULL || eq == NULL) {
            return setting_bad(result, text, table, n, path);
        }
        if (setting_apply(row, text, eq + 1, result) != 0) {
            return LOCO_EINVAL;
        }
    }
    return 0;
}
