/* affinity.c - see affinity.h. */
#include "kernels/affinity.h"

#include <ctype.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>

#include "proto/base/err.h"

#ifdef __linux__
/* Processors this process may use, in order; how many of them fit. */
static int allowed(int cpu[BACKEND_THREADS_MAX], cpu_set_t *set)
{
    int n = 0;

    CPU_ZERO(set);
    if (sched_getaffinity(0, sizeof *set, set) != 0) {
        return 0;
    }
    for (int i = 0; i < CPU_SETSIZE && n < BACKEND_THREADS_MAX; i++) {
        if (CPU_ISSET(i, set)) {
            cpu[n++] = i;
        }
    }
    return n;
}

/* A number below CPU_SETSIZE at *text, which moves behind it; -1: none. */
static int number(const char **text)
{
    char *end;
    long n;

    if (!isdigit((unsigned char)**text)) {
        return -1;
    }
    n = strtol(*text, &end, 10);
    *text = end;
    return n < CPU_SETSIZE ? (int)n : -1;
}

/* Processors first to last into the list. */
static const char *
append(struct affinity *a, int first, int last, const cpu_set_t *set)
{
    if (first < 0 || last < first) {
        return "affinity is off, auto or a list such as 0,2,4-7";
    }
    for (int i = first; i <= last; i++) {
        if (!CPU_ISSET(i, set)) {
            return "affinity names a processor that this process may not use "
                   "(see nproc, taskset -p)";
        }
        if (a->n < BACKEND_THREADS_MAX) {
            a->cpu[a->n++] = i;
        }
    }
    return NULL;
}

static const char *
parse_list(struct affinity *a, const char *text, const cpu_set_t *set)
{
    for (;;) {
        int first = number(&text);
        int last = first;
        const char *fault;

        if (*text == '-') {
            text++;
            last = number(&text);
        }
        fault = append(a, first, last, set);
        if (fault != NULL || *text == '\0') {
            return fault;
        }
        if (*text++ != ',') {
            return append(a, -1, -1, set);
        }
    }
}

static const char *parse(struct affinity *a, const char *text, int threads)
{
    cpu_set_t set;
    int n = allowed(a->cpu, &set);
    const char *fault;

    if (strcmp(text, "auto") == 0) {
        a->n = n == threads ? n : 0;
        return NULL;
    }
    fault = parse_list(a, text, &set);
    if (fault == NULL && a->n < threads) {
        fault = "affinity lists fewer processors than there are threads";
    }
    a->n = fault == NULL ? threads : 0;
    return fault;
}
#else
static const char *parse(struct affinity *a, const char *text, int threads)
{
    (void)a;
    (void)threads;
    return strcmp(text, "auto") == 0
               ? NULL
               : "threads cannot be pinned on this system: affinity is off";
}
#endif

int affinity_parse(struct affinity *a,
                   const char *text,
                   int threads,
                   const char **reason)
{
    const char *fault = NULL;

    a->n = 0;
    if (strcmp(text, "off") != 0) {
        fault = parse(a, text, threads);
    }
    if (reason != NULL) {
        *reason = fault;
    }
    return fault == NULL ? 0 : LOCO_EINVAL;
}
