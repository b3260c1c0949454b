/* file.c - see file.h. */
#include "proto/base/file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "proto/base/err.h"
#include "proto/base/errmsg.h"

static int code_from_errno(int err)
{
    switch (err) {
    case ENOSPC:
    case EDQUOT:
    case EFBIG:
        return LOCO_EDISK;
    case ENOENT:
        return LOCO_ENOENT;
    case ENOMEM:
        return LOCO_ENOMEM;
    default:
        return LOCO_EIO;
    }
}

static int fail_errno(char *errmsg, const char *verb, const char *path)
{
    int err = errno;
    char text[96];

    /* The GNU form may return a static string instead of filling `text`. */
    return errmsg_fail(errmsg, code_from_errno(err), "%s %s: %s", verb, path,
                       strerror_r(err, text, sizeof text));
}

int file_out_open(struct file_out *f, const char *path, char *errmsg)
{
    size_t len = strlen(path);

    if (len + sizeof ".tmp" > sizeof f->tmp_path) {
        return errmsg_fail(errmsg, LOCO_ERANGE, "path is too long");
    }
    memcpy(f->path, path, len + 1);
    memcpy(f->tmp_path, path, len);
    memcpy(f->tmp_path + len, ".tmp", sizeof ".tmp");
    f->n_buf = 0;
    f->paced = 0;
    f->buf = malloc(FILE_BUF_SIZE);
    if (f->buf == NULL) {
        return errmsg_fail(errmsg, LOCO_ENOMEM, "write %s: no memory", path);
    }
    f->fd = open(f->tmp_path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    if (f->fd < 0) {
        int rv = fail_errno(errmsg, "create", f->tmp_path);
        free(f->buf);
        return rv;
    }
    return 0;
}

static int
write_all(struct file_out *f, const uint8_t *data, size_t len, char *errmsg)
{
    while (len > 0) {
        ssize_t n = write(f->fd, data, len);

        if (n < 0) {
            if (errno == EINTR) {
                continue;
            }
            return fail_errno(errmsg, "write", f->tmp_path);
        }
        data += n;
        len -= (size_t)n;
    }
    return 0;
}

static int flush_buf(struct file_out *f, char *errmsg)
{
    int rv = write_all(f, f->buf, f->n_buf, errmsg);

    f->n_buf = 0;
    return rv;
}

int file_out_write(struct file_out *f,
                   const void *data,
                   size_t len,
                   char *errmsg)
{
    if (f->n_buf + len > FILE_BUF_SIZE) {
        int rv = flush_buf(f, errmsg);
        if (rv != 0) {
            return rv;
        }
    }
    if (len >= FILE_BUF_SIZE) {
        return write_all(f, data, len, errmsg);
    }
    if (len > 0) {
        memcpy(f->buf + f->n_buf, data, len);
        f->n_buf += len;
    }
    return 0;
}

/* A hint, and without a wait: to wait would also be to hear what failed on the
 * disk, and the commit's fsync would not hear it again. */
void file_out_pace(struct file_out *f)
{
    off_t end = lseek(f->fd, 0, SEEK_CUR), from = (off_t)f->paced;

    if (end - from < (off_t)FILE_PACE) {
        return;
    }
    (void)sync_file_range(f->fd, from, end - from, SYNC_FILE_RANGE_WRITE);
    if (from > 0) { /* what is there of what earlier calls began */
        (void)posix_fadvise(f->fd, 0, from, POSIX_FADV_DONTNEED);
    }
    f->paced = (uint64_t)end;
}

int file_out_patch(struct file_out *f,
                   uint64_t offset,
                   const void *data,
                   size_t len,
                   char *errmsg)
{
    const uint8_t *p = data;
    int rv = flush_buf(f, errmsg);

    while (rv == 0 && len > 0) {
        ssize_t n = pwrite(f->fd, p, len, (off_t)offset);

        if (n < 0 && errno != EINTR) {
            return fail_errno(errmsg, "write", f->tmp_path);
        }
        if (n > 0) {
            p += n;
            offset += (uint64_t)n;
            len -= (size_t)n;
        }
    }
    return rv;
}

int file_sync_folder(const char *path, char *errmsg)
{
    char folder[FILE_PATH_MAX];
    int fd, rv = 0;

    file_folder(folder, path);
    fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0) {
        return fail_errno(errmsg, "open directory", folder);
    }
    if (fsync(fd) != 0) {
        rv = fail_errno(errmsg, "flush directory", folder);
    }
    (void)close(fd);
    return rv;
}

int file_out_commit(struct file_out *f, char *errmsg)
{
    int rv = flush_buf(f, errmsg);

    if (rv != 0) {
        goto err_after_open;
    }
    if (fsync(f->fd) != 0) {
        rv = fail_errno(errmsg, "flush", f->tmp_path);
        goto err_after_open;
    }
    rv = close(f->fd);
    f->fd = -1;
    if (rv != 0) {
        rv = fail_errno(errmsg, "close", f->tmp_path);
        goto err_after_open;
    }
    if (rename(f->tmp_path, f->path) != 0) {
        rv = fail_errno(errmsg, "rename", f->tmp_path);
        goto err_after_open;
    }
    free(f->buf);
    f->buf = NULL;
    return file_sync_folder(f->path, errmsg);

err_after_open:
    file_out_abort(f);
    return rv;
}

void file_out_abort(struct file_out *f)
{
    if (f->fd >= 0) {
        (void)close(f->fd);
        f->fd = -1;
    }
    (void)unlink(f->tmp_path);
    free(f->buf);
    f->buf = NULL;
}

/* Nobody else reads it before it is whole. */
static int keep_mode(const struct file_out *f, char *errmsg)
{
    struct stat st = {.st_mode = 0600};
    bool is_new = stat(f->path, &st) != 0;

    if (!is_new && fchown(f->fd, st.st_uid, st.st_gid) != 0) {
        st.st_mode &= 0700; /* a group of ours is not the one that might */
    }
    return fchmod(f->fd, st.st_mode & 0777) == 0
               ? 0
               : fail_errno(errmsg, "set the mode of", f->tmp_path);
}

static int write_file(const char *path,
                      const void *data,
                      size_t len,
                      bool is_secret,
                      char *errmsg)
{
    struct file_out f;
    int rv = file_out_open(&f, path, errmsg);

    if (rv != 0) {
        return rv;
    }
    if (is_secret && fchmod(f.fd, 0600) != 0) {
        rv = fail_errno(errmsg, "set the mode of", f.tmp_path);
    }
    rv = rv != 0 ? rv : file_out_write(&f, data, len, errmsg);
    rv = rv != 0 || !is_secret ? rv : keep_mode(&f, errmsg);
    if (rv != 0) {
        file_out_abort(&f);
        return rv;
    }
    return file_out_commit(&f, errmsg);
}

int file_write_whole(const char *path,
                     const void *data,
                     size_t len,
                     char *errmsg)
{
    return write_file(path, data, len, false, errmsg);
}

int file_write_secret(const char *path,
                      const void *data,
                      size_t len,
                      char *errmsg)
{
    return write_file(path, data, len, true, errmsg);
}

int file_read_whole(
    const char *path, size_t most, char **text, size_t *size, char *errmsg)
{
    FILE *f = fopen(path, "re");
    int rv = 0;

    *text = NULL;
    if (f == NULL) {
        return fail_errno(errmsg, "open", path);
    }
    *text = malloc(most + 1);
    if (*text == NULL) {
        rv = errmsg_fail(errmsg, LOCO_ENOMEM, "read %s: no memory", path);
    } else {
        *size = fread(*text, 1, most + 1, f);
        if (ferror(f)) {
            rv = fail_errno(errmsg, "read", path);
        } else if (*size > most) {
            rv = errmsg_invalid(errmsg, "%s has more than %zu bytes", path,
                                most);
        } else {
            (*text)[*size] = '\0';
        }
    }
    (void)fclose(f);
    if (rv != 0) {
        free(*text);
        *text = NULL;
    }
    return rv;
}

int file_map_open(struct file_map *m, const char *path, char *errmsg)
{
    struct stat st;
    void *data;
    int rv = 0;
    int fd = open(path, O_RDONLY | O_CLOEXEC);

    m->data = NULL;
    m->size = 0;
    if (fd < 0) {
        return fail_errno(errmsg, "open", path);
    }
    if (fstat(fd, &st) != 0) {
        rv = fail_errno(errmsg, "stat", path);
        goto out;
    }
    if (!S_ISREG(st.st_mode)) {
        rv = errmsg_fail(errmsg, LOCO_EINVAL, "open %s: not a regular file",
                         path);
        goto out;
    }
    if (st.st_size == 0) {
        goto out;
    }
    data = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_SHARED, fd, 0);
    if (data == MAP_FAILED) {
        rv = fail_errno(errmsg, "map", path);
        goto out;
    }
    m->data = data;
    m->size = (size_t)st.st_size;
out:
    (void)close(fd);
    return rv;
}

void file_map_close(struct file_map *m)
{
    if (m->data != NULL) {
        (void)munmap((void *)(uintptr_t)m->data, m->size);
    }
    m->data = NULL;
    m->size = 0;
}

int file_path_join(char *out, const char *dir, const char *name, char *errmsg)
{
    int len = snprintf(out, FILE_PATH_MAX, "%s/%s", dir, name);

    if (len < 0 || len >= FILE_PATH_MAX) {
        return errmsg_fail(errmsg, LOCO_ERANGE, "path is too long");
    }
    return 0;
}

void file_folder(char *out, const char *path)
{
    const char *slash = strrchr(path, '/');

    (void)snprintf(out, FILE_PATH_MAX, "%.*s",
                   slash == NULL ? 2 : (int)(slash - path) + 1,
                   slash == NULL ? "./" : path);
}

void file_beside(char *out, const char *path, const char *name)
{
    char folder[FILE_PATH_MAX];

    file_folder(folder, path);
    if (snprintf(out, FILE_PATH_MAX, "%s%s", folder, name) >= FILE_PATH_MAX) {
        out[0] = '\0';
    }
}

int file_make_folders(const char *path, char *errmsg)
{
    char above[FILE_PATH_MAX];

    if (snprintf(above, sizeof above, "%s", path) >= FILE_PATH_MAX) {
        return errmsg_fail(errmsg, LOCO_ERANGE, "path is too long");
    }
    for (char *p = above + 1; (p = strchr(p, '/')) != NULL; p++) {
        *p = '\0';
        if (mkdir(above, 0700) != 0 && errno != EEXIST) {
            return fail_errno(errmsg, "make", above);
        }
        *p = '/';
    }
    return 0;
}
