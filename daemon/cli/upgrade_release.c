/* upgrade_release.c - the signed list, the release for this machine, its file;
 * see upgrade.h. */
#include "daemon/cli/upgrade.h"

#include <errno.h>
#include <gnu/libc-version.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "daemon/cli/cli.h"
#include "daemon/release/minisign.h"
#include "daemon/settings/state_dir.h"
#include "daemon/visit/download.h"
#include "daemon/visit/fetch.h"
#include "proto/base/err.h"
#include "proto/base/errmsg.h"
#include "proto/limits.h"

#define STALL_MS 20000

static struct releases releases; /* 50 KB */

/* ---- the list ----------------------------------------------------------- */

static bool is_url(const char *list)
{
    return strstr(list, "://") != NULL;
}

static int
get(const char *list, size_t most, char **text, size_t *size, char *errmsg)
{
    return is_url(list) ? fetch_small(list, most, text, size, errmsg)
                        : file_read_whole(list, most, text, size, errmsg);
}

/* The list, signed by that key; CLI_GO, or an exit code after a sentence. */
static int read_list(const char *list, const struct minisign_key *key)
{
    char errmsg[ERRMSG_SIZE], *text = NULL, *sig = NULL, path[FILE_PATH_MAX];
    struct minisign_signature s;
    size_t size = 0, sig_size = 0;
    bool here;
    int rv;

    if (snprintf(path, sizeof path, "%s.minisig", list) >= (int)sizeof path) {
        return cli_fail(TROUBLE_USAGE, "upgrade: the list's name is too long");
    }
    rv = get(list, RELEASES_BYTES_MAX, &text, &size, errmsg);
    rv = rv == 0 ? get(path, MINISIGN_TEXT_MAX, &sig, &sig_size, errmsg) : rv;
    here = rv == 0;
    rv = here ? minisign_signature_parse(&s, sig, sig_size, errmsg) : rv;
    rv = rv == 0 ? minisign_verify(&s, key, text, size, errmsg) : rv;
    rv = rv == 0 ? releases_read(&releases, text, size, errmsg) : rv;
    free(text);
    free(sig);
    if (rv != 0 && !here) {
        return cli_fail(is_url(list) ? TROUBLE_DOWNLOAD : TROUBLE_FILE,
                        "upgrade: %s", errmsg);
    }
    return rv == 0 ? CLI_GO
                   : cli_fail(TROUBLE_RELEASE, "upgrade: %s is refused: %s",
                              list, errmsg);
}

/* An older list can be a true one, played back by who wants to hide a newer. */
static int check_serial(struct upgrade *u, const char *list)
{
    char errmsg[ERRMSG_SIZE];

    if (releases.serial < u->memory.serial) {
        return cli_fail(TROUBLE_RELEASE,
                        "upgrade: %s is refused: its serial is %llu, and a "
                        "list with %llu was seen: it is an older list",
                        list, (unsigned long long)releases.serial,
                        (unsigned long long)u->memory.serial);
    }
    if (releases.serial == u->memory.serial) {
        return CLI_GO;
    }
    u->memory.serial = releases.serial;
    return upgrade_memory_save(&u->memory, errmsg) == 0
               ? CLI_GO
               : cli_fail(TROUBLE_STATE_DIR, "upgrade: %s", errmsg);
}

/* ---- the choice --------------------------------------------------------- */

static int choose(struct upgrade_offer *o, const char *list)
{
    char errmsg[ERRMSG_SIZE];
    struct utsname name;
    struct version ours;

    if (uname(&name) != 0 || version_parse(&ours, LOCO_VERSION) != 0) {
        return cli_fail(TROUBLE_SYSTEM, "upgrade: this machine or this version "
                                        "has no name");
    }
    o->release = releases_choose(&releases, name.machine,
                                 gnu_get_libc_version(), &o->file, errmsg);
    if (o->release == NULL) {
        return cli_fail(TROUBLE_RELEASE, "upgrade: %s: %s", list, errmsg);
    }
    o->newer = version_compare(&o->release->version, &ours);
    return CLI_GO;
}

int upgrade_offer(struct upgrade *u,
                  const char *list,
                  const char *key,
                  struct upgrade_offer *out)
{
    char errmsg[ERRMSG_SIZE];
    struct minisign_key k;
    int rv;

    if (minisign_key_parse(&k, key, errmsg) != 0) {
        return cli_fail(TROUBLE_RELEASE, "upgrade: %s", errmsg);
    }
    rv = read_list(list, &k);
    rv = rv == CLI_GO ? check_serial(u, list) : rv;
    return rv == CLI_GO ? choose(out, list) : rv;
}

int upgrade_refuse(const struct upgrade *u,
                   const char *list,
                   const struct upgrade_offer *o,
                   bool again,
                   bool other_protocol)
{
    const struct release *r = o->release;
    char run[FILE_PATH_MAX], errmsg[ERRMSG_SIZE];

    if (o->newer < 0) {
        return cli_fail(TROUBLE_RELEASE,
                        "upgrade: %s is refused: its newest release for this "
                        "machine is %s, older than this loco, %s",
                        list, r->text, LOCO_VERSION);
    }
    if (strcmp(u->memory.failed, r->text) == 0 && !again) {
        return cli_fail(TROUBLE_UPGRADE,
                        "upgrade: loco %s did not come up here before; a newer "
                        "release is awaited; --again tries this one once more",
                        r->text);
    }
    if ((r->oldest > PROTO_NEWEST || r->newest < PROTO_OLDEST) &&
        !other_protocol &&
        file_path_join(run, u->state, STATE_DIR_MANIFEST, errmsg) == 0 &&
        access(run, F_OK) == 0) {
        return cli_fail(
            TROUBLE_UPGRADE,
            "upgrade: loco %s speaks versions %u to %u of the protocol, the "
            "run of %s version %d: its peers would refuse it. The run's author "
            "can carry it over (loco run create --init); --other-protocol "
            "upgrades all the same",
            r->text, r->oldest, r->newest, u->state, PROTO_NEWEST);
    }
    return CLI_GO;
}

/* ---- the file ----------------------------------------------------------- */

struct fetched {
    char path[FILE_PATH_MAX];
    const struct release_file *file;
};

static int check_sha256(void *data, char *errmsg)
{
    const struct fetched *f = data;
    uint8_t sum[crypto_hash_sha256_BYTES];
    struct file_map map;
    int rv = file_map_open(&map, f->path, errmsg);

    if (rv != 0) {
        return rv;
    }
    (void)crypto_hash_sha256(sum, map.data, map.size);
    rv = map.size == f->file->bytes && memcmp(sum, f->file->sha256, 32) == 0
             ? 0
             : errmsg_fail(errmsg, LOCO_EHASH,
                           "it is not the file of the list: altered, damaged "
                           "or cut short");
    file_map_close(&map);
    return rv;
}

static void on_progress(void *data, uint64_t bytes)
{
    const struct fetched *f = data;

    if (isatty(STDERR_FILENO)) {
        (void)fprintf(stderr, "\r%s  %.1f of %.1f MB", f->file->name,
                      (double)bytes / 1e6, (double)f->file->bytes / 1e6);
    }
}

/* A file of this machine, into a place of our own: who can write beside the
 * list must not be able to change it between check and use. */
static int copy(struct fetched *f, const char *from, char *errmsg)
{
    struct file_out out;
    uint8_t buf[16384];
    uint64_t left = f->file->bytes;
    FILE *in = fopen(from, "re");
    size_t n = 1;
    int rv;

    if (in == NULL) {
        return errmsg_fail(errmsg, LOCO_ENOENT, "open %.160s: %s", from,
                           strerror(errno));
    }
    rv = file_out_open(&out, f->path, errmsg);
    while (rv == 0 && left > 0 && n > 0) {
        n = fread(buf, 1, left < sizeof buf ? left : sizeof buf, in);
        left -= n;
        rv = file_out_write(&out, buf, n, errmsg);
    }
    (void)fclose(in);
    if (rv != 0) {
        file_out_abort(&out);
        return rv;
    }
    return file_out_commit(&out, errmsg);
}

/* Beside the list, wherever that is. */
static int fetch(struct fetched *f, const struct upgrade *u, const char *list)
{
    char url[FILE_PATH_MAX], errmsg[ERRMSG_SIZE];
    struct download d = {
        .path = f->path,
        .bytes = f->file->bytes,
        .urls = {{url, true}},
        .n_urls = 1,
        .floor_bytes_per_s = 1000,
        .stall_ms = STALL_MS,
        .retry_ms = 500,
        .tries = 4,
        .stop_fd = -1,
        .check = check_sha256,
        .progress = on_progress,
        .data = f,
    };
    struct stat st;
    bool begun;
    int rv;

    file_beside(url, list, f->file->name);
    rv = file_path_join(f->path, u->state, STATE_DIR_RELEASE, errmsg);
    if (!is_url(list)) {
        rv = rv == 0 ? copy(f, url, errmsg) : rv;
        rv = rv == 0 ? check_sha256(f, errmsg) : rv;
    } else {
        begun = rv == 0 && stat(f->path, &st) == 0 && st.st_size > 0;
        rv = rv == 0 ? download(&d, errmsg) : rv;
        if (rv == LOCO_EHASH && begun) {
            rv = download(&d, errmsg); /* it was begun with another release */
        }
        if (isatty(STDERR_FILENO)) {
            (void)fputc('\n', stderr);
        }
    }
    if (rv == 0) {
        return CLI_GO;
    }
    return cli_fail(rv == LOCO_EHASH ? TROUBLE_RELEASE
                    : rv == LOCO_EIO ? TROUBLE_DOWNLOAD
                                     : cli_trouble_of(rv, TROUBLE_FILE),
                    "upgrade: %s: %s", f->file->name, errmsg);
}

int upgrade_put(const struct upgrade *u,
                const char *list,
                const struct upgrade_offer *o)
{
    char hex[crypto_hash_sha256_BYTES * 2 + 1];
    struct fetched f = {.file = o->file};
    const char *const arguments[] = {f.path, "--sha256", hex, NULL};
    int rv = fetch(&f, u, list);

    if (rv != CLI_GO) {
        if (!is_url(list)) {
            (void)unlink(f.path); /* of a download, the next one goes on */
        }
        return rv;
    }
    (void)sodium_bin2hex(hex, sizeof hex, o->file->sha256, 32);
    rv = upgrade_install(u, arguments);
    (void)unlink(f.path);
    return rv;
}
