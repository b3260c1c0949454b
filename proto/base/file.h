/* file.h - write a file so that it is there whole or not at all.
 *
 * A *file_out* collects bytes in PATH.tmp; file_out_commit flushes them to
 * the disk, renames the temporary name to PATH and flushes the directory.
 * After a crash at any instant PATH is the old file or the new one. A leftover
 * PATH.tmp is overwritten by the next attempt.
 *
 * A *file_map* is a whole file, read-only, in memory (mmap).
 *
 * How it fails: LOCO_EDISK when there is no room (ENOSPC, EDQUOT, EFBIG),
 * LOCO_ENOENT, LOCO_ENOMEM, LOCO_EIO for the rest, each with a sentence that
 * names the file. After an error the temporary file is gone once
 * file_out_abort was called, and PATH is untouched.
 *
 * Blocking: call from workers or commands, never from the loop thread. One
 * thread at a time per object.
 */
#ifndef LOCO_PROTO_BASE_FILE_H
#define LOCO_PROTO_BASE_FILE_H

#include <stddef.h>
#include <stdint.h>

#define FILE_PATH_MAX 4096 /* including the NUL and ".tmp" */
#define FILE_BUF_SIZE ((size_t)256 << 10)

struct file_out {
    int fd;
    uint64_t paced; /* bytes on their way to the disk: file_out_pace() */
    size_t n_buf;
    uint8_t *buf; /* (FILE_BUF_SIZE) */
    char path[FILE_PATH_MAX];
    char tmp_path[FILE_PATH_MAX];
};

/* After 0, exactly one of commit and abort must follow. */
int file_out_open(struct file_out *f, const char *path, char *errmsg);

/* Append; after an error only file_out_abort is allowed. */
int file_out_write(struct file_out *f,
                   const void *data,
                   size_t len,
                   char *errmsg);

/* Between two writes of a large file that is not read again soon: what was
 * appended goes to the disk from now on, and the system's copy of what is there
 * is given back. Else gigabytes gather in memory that others need, and are
 * flushed at once by the commit. Does nothing for less than FILE_PACE bytes. */
#define FILE_PACE ((size_t)16 << 20)
void file_out_pace(struct file_out *f);

/* Write over `len` bytes that were appended at `offset`: a header whose
 * figures are known only behind the data. */
int file_out_patch(struct file_out *f,
                   uint64_t offset,
                   const void *data,
                   size_t len,
                   char *errmsg);

/* The file is complete and safe on 0. On an error it has been aborted; only
 * when the last step, flushing the directory, failed is the new file there. */
int file_out_commit(struct file_out *f, char *errmsg);

void file_out_abort(struct file_out *f);

/* A small file in one call. */
int file_write_whole(const char *path,
                     const void *data,
                     size_t len,
                     char *errmsg);

/* A whole file, as file_write_whole() has it. It keeps the mode of the file
 * whose place it takes, and its owners where this user may give them; a new one
 * gets mode 0600. For what may hold a secret. */
int file_write_secret(const char *path,
                      const void *data,
                      size_t len,
                      char *errmsg);

/* A small file with a NUL behind it, which *size does not count; caller frees
 * with free(). LOCO_EINVAL: it has more than `most` bytes. */
int file_read_whole(
    const char *path, size_t most, char **text, size_t *size, char *errmsg);

struct file_map {
    const uint8_t *data; /* NULL for an empty file */
    size_t size;
};

int file_map_open(struct file_map *m, const char *path, char *errmsg);
void file_map_close(struct file_map *m); /* idempotent */

/* dir + "/" + name into out[FILE_PATH_MAX]; LOCO_ERANGE when too long. */
int file_path_join(char *out, const char *dir, const char *name, char *errmsg);

/* The folder of a file with its last slash, into out[FILE_PATH_MAX]; "./" where
 * the path names none. */
void file_folder(char *out, const char *path);

/* `name` in the folder of `path`, into out[FILE_PATH_MAX]; "", which no file
 * has for its name, where that is too long. */
void file_beside(char *out, const char *path, const char *name);

/* Make the folders above the last slash of `path`, mode 0700 where they are
 * new. */
int file_make_folders(const char *path, char *errmsg);

/* Flush the folder of a file: a new name is durable once its folder is. */
int file_sync_folder(const char *path, char *errmsg);

#endif
