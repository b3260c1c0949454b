/* release_fuzz.c - a list of releases, a signature and a key, as a server could
 * send them. What is accepted can be used: names stay in their folder, texts
 * end, a signature of nothing verifies nothing. */
#include <stdlib.h>
#include <string.h>

#include "daemon/release/minisign.h"
#include "daemon/release/releases.h"
#include "proto/limits.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static struct releases r;

static void check_list(const char *text, size_t size)
{
    char errmsg[LOCO_ERRMSG_MAX];
    const struct release_file *file = NULL;
    const struct release *best;

    if (releases_read(&r, text, size, errmsg) != 0) {
        return;
    }
    best = releases_choose(&r, "x86_64", "2.36", &file, errmsg);
    for (uint32_t i = 0; i < r.n; i++) {
        if (r.item[i].n_files == 0 || r.item[i].oldest > r.item[i].newest ||
            strchr(r.item[i].file[0].name, '/') != NULL ||
            strlen(r.item[i].file[0].name) == 0) {
            abort();
        }
    }
    if (best != NULL &&
        (file < best->file || file >= best->file + best->n_files)) {
        abort();
    }
}

static void check_signature(const char *text, size_t size)
{
    char errmsg[LOCO_ERRMSG_MAX], line[MINISIGN_TEXT_MAX];
    struct minisign_signature s;
    struct minisign_key key;

    if (size >= sizeof line) {
        return;
    }
    memcpy(line, text, size);
    line[size] = '\0';
    (void)minisign_key_parse(&key, line, errmsg);
    if (minisign_signature_parse(&s, text, size, errmsg) != 0) {
        return;
    }
    if (memchr(s.comment, '\0', sizeof s.comment) == NULL) {
        abort();
    }
    /* A key of zeros: nobody has signed with it. */
    memset(&key, 0, sizeof key);
    memcpy(key.name, s.name, sizeof key.name);
    if (minisign_verify(&s, &key, text, size, errmsg) == 0) {
        abort();
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    check_list((const char *)data, size);
    check_signature((const char *)data, size);
    return 0;
}
