/* releases.h - the list of published versions, as its publisher signed it.
 *
 * A *release list* is a JSON object (deploy/release.sh writes it), with its
 * signature beside it in LIST.minisig (minisign.h):
 *
 *     {"loco_releases": 1, "serial": 1795000000, "releases": [
 *       {"version": "0.2.0", "protocols": [8, 8], "files": [
 *         {"arch": "x86_64", "glibc": "2.31",
 *          "name": "loco-0.2.0-linux-x86_64.tar.gz",
 *          "bytes": 9012345, "sha256": "..."}]}]}
 *
 * `serial` grows with every list, so that an older list cannot be played back
 * to who has seen a newer one. `protocols` are the oldest and the newest
 * version of the protocol that the release speaks. A file lies where the list
 * lies. Keys that are not known are left alone: a newer list may have more.
 *
 * How it fails: LOCO_EFORMAT with a sentence in errmsg (LOCO_ERRMSG_MAX).
 * A plain value, about 50 KB.
 */
#ifndef LOCO_DAEMON_RELEASE_RELEASES_H
#define LOCO_DAEMON_RELEASE_RELEASES_H

#include <stddef.h>
#include <stdint.h>

#define RELEASES_MAX        64
#define RELEASE_FILES_MAX   4
#define RELEASES_BYTES_MAX  ((size_t)64 << 10)
#define RELEASE_VERSION_MAX 20 /* "65535.65535.65535" and its NUL */
#define RELEASE_ARCH_MAX    16
#define RELEASE_NAME_MAX    128

/* 0.2.0 -> 0, 2, 0; every part is at most 65535. */
struct version {
    uint16_t part[3];
};

struct release_file {
    char arch[RELEASE_ARCH_MAX]; /* as uname(2) says */
    uint16_t glibc[2];           /* the oldest that it runs on */
    char name[RELEASE_NAME_MAX];
    uint64_t bytes;
    uint8_t sha256[32];
};

struct release {
    char text[RELEASE_VERSION_MAX]; /* of the version */
    struct version version;
    uint32_t oldest, newest; /* versions of the protocol */
    uint32_t n_files;
    struct release_file file[RELEASE_FILES_MAX];
};

struct releases {
    uint64_t serial;
    uint32_t n;
    struct release item[RELEASES_MAX];
};

int version_parse(struct version *v, const char *text);

/* Less than, equal to or greater than 0, as memcmp(3). */
int version_compare(const struct version *a, const struct version *b);

int releases_read(struct releases *r,
                  const char *text,
                  size_t len,
                  char *errmsg);

/* The newest release with a file for this machine, and that file; NULL with a
 * sentence in errmsg. `glibc` as getconf(1) says, "2.36". */
const struct release *releases_choose(const struct releases *r,
                                      const char *arch,
                                      const char *glibc,
                                      const struct release_file **file,
                                      char *errmsg);

#endif
