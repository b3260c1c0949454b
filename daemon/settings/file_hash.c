/* file_hash.c - see file_hash.h. */
#include "daemon/settings/file_hash.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "proto/base/err.h"
#include "proto/limits.h"

#define READ_BYTES ((size_t)256 << 10)

static int fail(char *errmsg, int code, const char *path, const char *what)
{
    if (errmsg != NULL) {
        (void)snprintf(errmsg, LOCO_ERRMSG_MAX, "%.180s: %.60s", path, what);
    }
    return code;
}

int file_hash(const char *path, struct hash32 *out, char *errmsg)
{
    struct hash_tree_state *state = malloc(sizeof *state);
    uint8_t *piece = malloc(READ_BYTES);
    FILE *f = NULL;
    size_t len;
    int rv = 0;

    if (state == NULL || piece == NULL) {
        rv = fail(errmsg, LOCO_ENOMEM, path, "out of memory");
        goto end;
    }
    f = fopen(path, "rb");
    if (f == NULL) {
        rv = fail(errmsg, errno == ENOENT ? LOCO_ENOENT : LOCO_EIO, path,
                  strerror(errno));
        goto end;
    }
    hash_tree_init(state);
    while ((len = fread(piece, 1, READ_BYTES, f)) > 0) {
        hash_tree_update(state, piece, len);
    }
    if (ferror(f)) {
        rv = fail(errmsg, LOCO_EIO, path, "cannot be read");
        goto end;
    }
    hash_tree_final(state, out);

end:
    if (f != NULL) {
        (void)fclose(f);
    }
    free(piece);
    free(state);
    return rv;
}

int file_check(const char *path,
               uint64_t bytes,
               const struct hash32 *hash,
               char *errmsg)
{
    struct hash32 is;
    struct stat st;
    int rv;

    if (stat(path, &st) == 0 && (uint64_t)st.st_size != bytes) {
        return fail(errmsg, LOCO_EHASH, path, "has another size");
    }
    rv = file_hash(path, &is, errmsg);
    if (rv == 0 && !hash32_eq(&is, hash)) {
        rv = fail(errmsg, LOCO_EHASH, path, "has another hash");
    }
    return rv;
}
