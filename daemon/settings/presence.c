/* presence.c - see presence.h. */
#include "daemon/settings/presence.h"

#include <dirent.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#define PATH_SIZE 512
#define CLOCK_S   60 /* what lies further ahead was written by a wrong clock */

static void note(struct presence *p, uint64_t ago_s, const char *what)
{
    if (!p->seen || ago_s < p->ago_s) {
        p->seen = true;
        p->ago_s = ago_s;
        (void)snprintf(p->what, sizeof p->what, "%s", what);
    }
}

/* ---- terminals ---------------------------------------------------------- */

static bool is_number(const char *text)
{
    size_t n = strspn(text, "0123456789");

    return n > 0 && text[n] == '\0';
}

/* All `dir`/`prefix`N; /dev/tty0 is another name of one of them. */
static void look_at_terminals(const char *root,
                              const char *dir,
                              const char *prefix,
                              time_t now,
                              struct presence *p)
{
    char path[PATH_SIZE];
    size_t n = strlen(prefix);
    const struct dirent *e;
    struct stat st;
    DIR *d;

    (void)snprintf(path, sizeof path, "%.200s%s", root, dir);
    d = opendir(path);
    while (d != NULL && (e = readdir(d)) != NULL) {
        if (strncmp(e->d_name, prefix, n) != 0 || !is_number(e->d_name + n) ||
            (n > 0 && strcmp(e->d_name + n, "0") == 0)) {
            continue;
        }
        (void)snprintf(path, sizeof path, "%.200s%s/%.60s", root, dir,
                       e->d_name);
        if (stat(path, &st) == 0 && st.st_atime <= now + CLOCK_S) {
            note(p, st.st_atime < now ? (uint64_t)(now - st.st_atime) : 0,
                 path + strlen(root));
        }
    }
    if (d != NULL) {
        (void)closedir(d);
    }
}

/* ---- screens ------------------------------------------------------------ */

/* Whether a line of the file is one of these, NULL at the end. */
static bool has_line(const char *path, const char *const *wanted)
{
    char line[128];
    bool found = false;
    FILE *f = fopen(path, "re");

    while (f != NULL && !found && fgets(line, sizeof line, f) != NULL) {
        line[strcspn(line, "\n")] = '\0';
        for (const char *const *w = wanted; *w != NULL && !found; w++) {
            found = strcmp(line, *w) == 0;
        }
    }
    if (f != NULL) {
        (void)fclose(f);
    }
    return found;
}

static bool is_desktop(const char *path)
{
    static const char *const graphical[] = {"TYPE=x11", "TYPE=wayland",
                                            "TYPE=mir", NULL};
    static const char *const front[] = {"ACTIVE=1", NULL};
    static const char *const remote[] = {"REMOTE=1", NULL};
    static const char *const user[] = {"CLASS=user", NULL}; /* no greeter */

    return has_line(path, graphical) && has_line(path, front) &&
           has_line(path, user) && !has_line(path, remote);
}

static bool is_lit(const char *path)
{
    static const char *const on[] = {"On", NULL};
    static const char *const connected[] = {"connected", NULL};
    char file[PATH_SIZE];

    (void)snprintf(file, sizeof file, "%.400s/dpms", path);
    if (!has_line(file, on)) {
        return false;
    }
    (void)snprintf(file, sizeof file, "%.400s/status", path);
    return has_line(file, connected);
}

/* Whether one of the entries of the directory is so. */
static bool
any(const char *root, const char *dir, bool (*is_so)(const char *path))
{
    char path[PATH_SIZE];
    const struct dirent *e;
    bool found = false;
    DIR *d;

    (void)snprintf(path, sizeof path, "%.200s%s", root, dir);
    d = opendir(path);
    while (d != NULL && !found && (e = readdir(d)) != NULL) {
        if (e->d_name[0] != '.') {
            (void)snprintf(path, sizeof path, "%.200s%s/%.100s", root, dir,
                           e->d_name);
            found = is_so(path);
        }
    }
    if (d != NULL) {
        (void)closedir(d);
    }
    return found;
}

void presence_look(const char *root, time_t now, struct presence *p)
{
    memset(p, 0, sizeof *p);
    look_at_terminals(root, "/dev", "tty", now, p);
    look_at_terminals(root, "/dev/pts", "", now, p);
    if (any(root, "/run/systemd/sessions", is_desktop) &&
        any(root, "/sys/class/drm", is_lit)) {
        note(p, 0, "a desktop session");
    }
}
