/* tmpdir.h - a directory that a test fills and that goes away with it. */
#ifndef LOCO_TESTS_UNIT_TRAIN_TMPDIR_H
#define LOCO_TESTS_UNIT_TRAIN_TMPDIR_H

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct tmpdir {
    char path[64];
    char file[512]; /* of the last tmpdir_file */
};

static inline void tmpdir_make(struct tmpdir *t)
{
    memcpy(t->path, "/tmp/loco-test-XXXXXX", 22);
    if (mkdtemp(t->path) == NULL) {
        abort();
    }
}

/* Full path of a name in it; valid until the next call. */
static inline const char *tmpdir_file(struct tmpdir *t, const char *name)
{
    (void)snprintf(t->file, sizeof t->file, "%s/%s", t->path, name);
    return t->file;
}

/* Number of entries. */
static inline unsigned tmpdir_count(const struct tmpdir *t)
{
    DIR *d = opendir(t->path);
    struct dirent *e;
    unsigned n = 0;

    if (d == NULL) {
        abort();
    }
    while ((e = readdir(d)) != NULL) {
        n += e->d_name[0] != '.';
    }
    (void)closedir(d);
    return n;
}

static inline void
tmpdir_put(struct tmpdir *t, const char *name, const void *data, size_t len)
{
    FILE *f = fopen(tmpdir_file(t, name), "wb");

    if (f == NULL || fwrite(data, 1, len, f) != len || fclose(f) != 0) {
        abort();
    }
}

/* The file's bytes; caller frees. */
static inline char *tmpdir_get(struct tmpdir *t, const char *name, size_t *len)
{
    FILE *f = fopen(tmpdir_file(t, name), "rb");
    size_t room = (size_t)1 << 22;
    char *data = malloc(room);

    if (f == NULL || data == NULL) {
        abort();
    }
    *len = fread(data, 1, room - 1, f);
    data[*len] = '\0';
    (void)fclose(f);
    return data;
}

static inline void tmpdir_remove(struct tmpdir *t)
{
    DIR *d = opendir(t->path);
    struct dirent *e;

    while (d != NULL && (e = readdir(d)) != NULL) {
        (void)unlink(tmpdir_file(t, e->d_name));
    }
    if (d != NULL) {
        (void)closedir(d);
    }
    (void)rmdir(t->path);
}

#endif
