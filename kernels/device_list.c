/* device_list.c - the list that names GPUs: all, or numbers and ranges. See
 * device.h. */
#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "kernels/device.h"
#include "proto/base/err.h"

static const char *append(struct device_options *opt, int *n, int ordinal)
{
    if (*n == DEVICE_GPUS_MAX) {
        return "at most 16 GPUs train together";
    }
    for (int i = 0; i < *n; i++) {
        if (ordinal == (i == 0 ? opt->gpu.ordinal : opt->others[i - 1])) {
            return "a GPU is named twice";
        }
    }
    if (*n == 0) {
        opt->gpu.ordinal = ordinal;
    } else {
        opt->others[*n - 1] = ordinal;
    }
    opt->n_others = *n;
    ++*n;
    return NULL;
}

/* A number at *text, which moves behind it; -1: none. */
static int number(const char **text)
{
    int n = isdigit((unsigned char)**text) ? 0 : -1;

    while (isdigit((unsigned char)**text) && n < 1000) {
        n = 10 * n + (*(*text)++ - '0');
    }
    return n;
}

int device_choose(struct device_options *opt,
                  const char *text,
                  int shown,
                  const char **reason)
{
    const char *wrong = NULL;
    int n = 0;

    opt->n_others = 0;
    if (strcmp(text, "all") == 0) {
        for (int i = 0; i < shown && i < DEVICE_GPUS_MAX; i++) {
            (void)append(opt, &n, i);
        }
        return 0;
    }
    do {
        int first = number(&text), last = first;

        if (*text == '-') {
            text++;
            last = number(&text);
        }
        if (first < 0 || last < first || (*text != ',' && *text != '\0')) {
            wrong = "it is all, or a list such as 0,2-3";
        } else if (last >= shown) {
            wrong = "this machine shows fewer GPUs; the first is 0";
        }
        for (int i = first; i <= last && wrong == NULL; i++) {
            wrong = append(opt, &n, i);
        }
    } while (wrong == NULL && *text++ == ',');
    *reason = wrong;
    return wrong == NULL ? 0 : LOCO_EINVAL;
}

#define GPUS_NAMED 1000 /* numbers of GPUs are below it */

static int
choose(struct device_options *opt, const char *text, int shown, char *errmsg)
{
    const char *reason = NULL;
    int rv = device_choose(opt, text, shown, &reason);

    if (rv != 0) {
        (void)snprintf(errmsg, PLUGIN_ERRMSG, "gpus %.64s: %s", text, reason);
    }
    return rv;
}

int device_list(struct device_options *opt, const char *text, char *errmsg)
{
    return choose(opt, text, GPUS_NAMED, errmsg);
}

/* How many there are is known once one is open. */
int device_find(struct device_options *opt,
                const char *text,
                struct plugin_info *info,
                char *errmsg)
{
    struct backend probe;
    int rv = device_list(opt, text, errmsg);

    if (rv != 0) {
        return rv;
    }
    rv = backend_device(&probe, opt, errmsg);
    if (rv != 0) {
        return rv;
    }
    *info = *device_info(probe.device);
    backend_close(&probe);
    return choose(opt, text, info->gpus, errmsg);
}
