/* fetch.h - a small file by a URL that this machine's operator named.
 *
 * http, https and file; up to 5 redirects; libcurl's proxies; FETCH_TIMEOUT_MS
 * in all. For files that are believed only with a signature or a hash. A large
 * file is download.h's.
 *
 * How it fails, with a sentence in errmsg (LOCO_ERRMSG_MAX): LOCO_ENOENT (the
 * server says that it has no such file), LOCO_ERANGE (more than `most` bytes),
 * LOCO_ENOMEM, LOCO_EIO.
 */
#ifndef LOCO_DAEMON_VISIT_FETCH_H
#define LOCO_DAEMON_VISIT_FETCH_H

#include <stddef.h>

#define FETCH_TIMEOUT_MS 60000L

/* *text has a NUL behind its *size bytes; caller frees with free(). Blocking.
 * *text is NULL on failure. */
int fetch_small(
    const char *url, size_t most, char **text, size_t *size, char *errmsg);

#endif
