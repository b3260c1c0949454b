/* download.h - one file from one of several URLs: whole and checked, or not.
 *
 * The URLs are tried in order, with libcurl. What is at `path` is a *prefix* of
 * the file, of an earlier try or an earlier life: only what is missing is asked
 * for (an HTTP range). A URL whose server does not answer, breaks off or is too
 * slow is tried again after a pause that doubles; one that answers something
 * else than the file (not found, another length, redirects without end) is not.
 * When `bytes` bytes are here, `check` says whether they are the file; if not,
 * they are deleted, and the URL that sent all of them counts as broken.
 *
 * Who names a URL: the *run* (a manifest from the network) may name public
 * HTTP and HTTPS servers only, whatever a name resolves to and a redirect says;
 * this machine's *operator* may name any, and file://. Proxies are libcurl's
 * (http_proxy, https_proxy, no_proxy ..); where one is set it is the proxy that
 * decides whom it connects to.
 *
 * Blocking: call it on a thread of its own. How it fails, with a sentence in
 * errmsg: LOCO_EHASH (some server sent other bytes, none the right ones),
 * LOCO_EDISK, LOCO_ECLOSED (`stop_fd`), LOCO_EIO, LOCO_ENOMEM.
 */
#ifndef LOCO_DAEMON_VISIT_DOWNLOAD_H
#define LOCO_DAEMON_VISIT_DOWNLOAD_H

#include <stdbool.h>
#include <stdint.h>

#include "proto/limits.h"

#define DOWNLOAD_URLS_MAX (MANIFEST_URLS_MAX + 1)

struct download_url {
    const char *text;
    bool ours; /* the operator's */
};

struct download {
    const char *path; /* where the bytes go */
    uint64_t bytes;   /* of the whole file, not 0 */
    struct download_url urls[DOWNLOAD_URLS_MAX];
    uint32_t n_urls;
    bool private_too;           /* the run may name addresses of this LAN */
    uint64_t bytes_per_s;       /* cap; 0: none */
    uint64_t floor_bytes_per_s; /* slower for stall_ms is given up */
    uint32_t stall_ms;
    uint32_t retry_ms; /* the first pause */
    uint32_t tries;    /* of a URL in a row that bring nothing */
    int stop_fd;       /* readable: end at once; -1: nobody says so. Borrowed */
    /* 0, or LOCO_EHASH: these are not the bytes of the file. */
    int (*check)(void *data, char *errmsg);
    /* So many bytes are here now. At most every 100 ms, NULL: nobody asks. */
    void (*progress)(void *data, uint64_t bytes);
    void *data;
};

/* errmsg: LOCO_ERRMSG_MAX bytes. `path` is left as it is on failure, for the
 * next call. */
int download(const struct download *d, char *errmsg);

#endif
