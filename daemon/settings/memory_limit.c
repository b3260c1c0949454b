/* memory_limit.c - see memory_limit.h. */
#include "daemon/settings/memory_limit.h"

#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/sysinfo.h>

#define PATH_SIZE 4608 /* a line of /proc/self/cgroup and a little */

static void lower(struct memory_limit *limit, uint64_t bytes, const char *whose)
{
    if (bytes < limit->bytes) {
        limit->bytes = bytes;
        limit->whose = whose;
    }
}

/* The number in a file; "max", or no such file: none. */
static void
lower_to_file(struct memory_limit *limit, const char *path, const char *whose)
{
    unsigned long long bytes;
    FILE *f = fopen(path, "re");

    if (f == NULL) {
        return;
    }
    if (fscanf(f, "%llu", &bytes) == 1) {
        lower(limit, bytes, whose);
    }
    (void)fclose(f);
}

/* The group's own limit and those of all above it; `group` is eaten up. */
static void lower_to_group(struct memory_limit *limit,
                           const char *root,
                           const char *mount,
                           const char *file,
                           char *group)
{
    char path[2 * PATH_SIZE];

    for (;;) {
        char *slash = strrchr(group, '/');

        (void)snprintf(path, sizeof path, "%s/sys/fs/cgroup%s%s/%s", root,
                       mount, group, file);
        lower_to_file(limit, path, "this process's control group");
        if (slash == NULL) {
            return;
        }
        *slash = '\0';
    }
}

/* A line is "0::/path" (version 2) or "N:controllers:/path" (version 1). */
static void lower_to_groups(struct memory_limit *limit, const char *root)
{
    char line[PATH_SIZE];
    FILE *f;

    (void)snprintf(line, sizeof line, "%s/proc/self/cgroup", root);
    f = fopen(line, "re");
    if (f == NULL) {
        return;
    }
    while (fgets(line, sizeof line, f) != NULL) {
        char *names = strchr(line, ':');
        char *group = names == NULL ? NULL : strchr(names + 1, ':');

        if (group == NULL) {
            continue;
        }
        *group++ = '\0';
        group[strcspn(group, "\n")] = '\0';
        if (names[1] == '\0') {
            lower_to_group(limit, root, "", "memory.max", group);
        } else if (strstr(names, "memory") != NULL) {
            lower_to_group(limit, root, "/memory", "memory.limit_in_bytes",
                           group);
        }
    }
    (void)fclose(f);
}

void memory_limit_read(const char *root, struct memory_limit *limit)
{
    struct sysinfo info;
    struct rlimit address_space;

    *limit = (struct memory_limit){UINT64_MAX, "this machine"};
    if (sysinfo(&info) == 0) {
        lower(limit, (uint64_t)info.totalram * info.mem_unit, "this machine");
    }
    lower_to_groups(limit, root);
    if (getrlimit(RLIMIT_AS, &address_space) == 0 &&
        address_space.rlim_cur != RLIM_INFINITY) {
        lower(limit, address_space.rlim_cur,
              "this process's address space (ulimit -v)");
    }
}
