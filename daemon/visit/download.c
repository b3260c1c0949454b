/* download.c - see download.h.
 *
 * Happy path: open the file, ask for the rest of it, look at the answer's
 * status and length when its first byte comes (accept), write, check.
 *
 * A server can lie in its status, its length, its ranges and its bytes: the
 * first three are compared here, the last is the caller's hash. Whatever it
 * sends, no more than `bytes` are written.
 */
#include "daemon/visit/download.h"

#include <curl/curl.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

#include "daemon/visit/curl_old.h"
#include "p2p/prefix.h"
#include "p2p/uv/addr.h"
#include "proto/base/clock.h"
#include "proto/base/err.h"
#include "proto/base/errmsg.h"
#include "proto/base/log.h"

#define REDIRECTS_MAX    5
#define HEADER_BYTES_MAX (64U << 10)
#define PAUSE_MAX_MS     60000
#define WORTH_BYTES      (1U << 20) /* a try that brings less is one in vain */

/* What comes of one URL. */
enum verdict {
    RIGHT,  /* all bytes are here */
    AGAIN,  /* try it again later */
    BROKEN, /* it does not have the file */
    ENDED,  /* stopped, or this machine cannot go on: `rc` */
};

struct request {
    const struct download *d;
    const struct download_url *url;
    CURL *curl;
    int fd;
    uint64_t have;     /* bytes in the file */
    uint64_t from;     /* first byte that was asked for */
    uint64_t range_at; /* of the answer's Content-Range; UINT64_MAX: none */
    uint64_t range_of; /* its total; UINT64_MAX: not said */
    size_t header_bytes;
    bool accepted; /* the answer was looked at */
    uint64_t told_ms;
    enum verdict verdict;
    int rc;
    char trouble[160]; /* why; "": curl says */
};

/* Whether somebody ends it within so many milliseconds. */
static bool stops_within(const struct download *d, uint64_t ms)
{
    struct pollfd p = {.fd = d->stop_fd, .events = POLLIN};
    uint64_t until = monotonic_ms() + ms, now;
    int n;

    do {
        now = monotonic_ms();
        n = poll(&p, 1, now < until ? (int)(until - now) : 0);
    } while (n < 0 && errno == EINTR);
    return n > 0;
}

/* ---- the answer --------------------------------------------------------- */

#define GIVE_UP(r, verdict_, ...)                                              \
    ((r)->verdict = (verdict_),                                                \
     (void)snprintf((r)->trouble, sizeof(r)->trouble, __VA_ARGS__), (size_t)0)

/* "bytes 5-9/10" */
static void content_range(struct request *r, const char *text)
{
    uint64_t from, to, total;

    if (sscanf(text, " bytes %" SCNu64 "-%" SCNu64 "/%" SCNu64, &from, &to,
               &total) == 3) {
        r->range_at = from;
        r->range_of = total;
    } else if (sscanf(text, " bytes %" SCNu64 "-%" SCNu64 "/*", &from, &to) ==
               2) {
        r->range_at = from;
        r->range_of = UINT64_MAX;
    }
}

static size_t on_header(char *bytes, size_t size, size_t n, void *data)
{
    static const char name[] = "Content-Range:";
    struct request *r = data;
    char line[128];
    size_t len = size * n;

    r->header_bytes += len;
    if (r->header_bytes > HEADER_BYTES_MAX) {
        return GIVE_UP(r, BROKEN, "it sends headers without end");
    }
    if (len >= 5 && memcmp(bytes, "HTTP/", 5) == 0) {
        r->range_at = r->range_of = UINT64_MAX; /* of a redirect, maybe */
    }
    if (len > sizeof name && len < sizeof line &&
        strncasecmp(bytes, name, sizeof name - 1) == 0) {
        memcpy(line, bytes, len);
        line[len] = '\0';
        content_range(r, line + sizeof name - 1);
    }
    return len;
}

static bool empty_file(struct request *r)
{
    r->have = r->from = 0;
    return ftruncate(r->fd, 0) == 0;
}

/* The first byte is here: is this the answer to what was asked? */
static size_t accept_answer(struct request *r)
{
    curl_off_t length = -1;
    uint64_t want;
    long code = 0;

    (void)curl_easy_getinfo(r->curl, CURLINFO_RESPONSE_CODE, &code);
    (void)curl_easy_getinfo(r->curl, CURLINFO_CONTENT_LENGTH_DOWNLOAD_T,
                            &length);
    if (code != 0 && code != 200 && code != 206) {
        return GIVE_UP(r, BROKEN, "it answers with status %ld", code);
    }
    if (code == 206 && (r->from == 0 || r->range_at != r->from)) {
        return GIVE_UP(r, BROKEN, "it answers with another range");
    }
    if (code == 206 && r->range_of != UINT64_MAX &&
        r->range_of != r->d->bytes) {
        return GIVE_UP(r, BROKEN,
                       "its file has %" PRIu64 " bytes, not %" PRIu64,
                       r->range_of, r->d->bytes);
    }
    if (code == 200 && r->from > 0 && !empty_file(r)) { /* it has no ranges */
        r->rc = LOCO_EIO;
        return GIVE_UP(r, ENDED, "%s", strerror(errno));
    }
    want = r->d->bytes - r->from;
    if (length >= 0 && (uint64_t)length != want) {
        return GIVE_UP(r, BROKEN,
                       "it announces %lld bytes where %" PRIu64
                       " are missing of the file",
                       (long long)length, want);
    }
    r->accepted = true;
    return 1;
}

static bool write_all(struct request *r, const char *bytes, size_t len)
{
    while (len > 0) {
        ssize_t n = pwrite(r->fd, bytes, len, (off_t)r->have);

        if (n < 0 && errno == EINTR) {
            continue;
        }
        if (n <= 0) {
            return false;
        }
        bytes += n;
        len -= (size_t)n;
        r->have += (uint64_t)n;
    }
    return true;
}

static size_t on_bytes(char *bytes, size_t size, size_t n, void *data)
{
    struct request *r = data;
    size_t len = size * n;

    if (!r->accepted && accept_answer(r) == 0) {
        return 0;
    }
    if (len > r->d->bytes - r->have) {
        return GIVE_UP(r, BROKEN,
                       "it sends more than the %" PRIu64 " bytes "
                       "of the file",
                       r->d->bytes);
    }
    if (!write_all(r, bytes, len)) {
        r->rc = errno == ENOSPC || errno == EDQUOT ? LOCO_EDISK : LOCO_EIO;
        return GIVE_UP(r, ENDED, "cannot write %.100s: %s", r->d->path,
                       strerror(errno));
    }
    return len;
}

static int on_progress(void *data,
                       curl_off_t total,
                       curl_off_t now,
                       curl_off_t up_total,
                       curl_off_t up_now)
{
    struct request *r = data;
    uint64_t ms = monotonic_ms();

    (void)total;
    (void)now;
    (void)up_total;
    (void)up_now;
    if (r->d->progress != NULL && ms - r->told_ms >= 100) {
        r->told_ms = ms;
        r->d->progress(r->d->data, r->have);
    }
    return stops_within(r->d, 0) ? 1 : 0;
}

/* ---- whom we connect to ------------------------------------------------- */

static bool has_proxy(void)
{
    static const char *const names[] = {
        "http_proxy", "https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY"};

    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        const char *value = getenv(names[i]);

        if (value != NULL && value[0] != '\0') {
            return true;
        }
    }
    return false;
}

/* An address of the internet: not of this machine, its LAN or many at once. */
static bool is_public(const struct address *a)
{
    static const uint8_t zero[16] = {0};
    static const uint8_t nat64[12] = {0, 0x64, 0xff, 0x9b};
    struct address inner = *a;

    if (memcmp(a->ip, nat64, sizeof nat64) == 0) {
        prefix_map_v4(inner.ip);
    }
    if (prefix_is_v4(inner.ip) && (inner.ip[12] == 0 || inner.ip[12] >= 224)) {
        return false;
    }
    return !prefix_is_private(inner.ip) && memcmp(a->ip, zero, 16) != 0 &&
           a->ip[0] != 0xff;
}

static curl_socket_t
on_socket(void *data, curlsocktype purpose, struct curl_sockaddr *to)
{
    struct request *r = data;
    bool free_choice = r->url->ours || r->d->private_too || has_proxy();
    struct address a;

    (void)purpose;
    if (!free_choice &&
        (address_from_sockaddr(&to->addr, &a) != 0 || !is_public(&a))) {
        (void)GIVE_UP(r, BROKEN,
                      "it leads to an address of this machine or its network, "
                      "which a run may not name (data_urls: any allows it)");
        return CURL_SOCKET_BAD;
    }
    return socket(to->family, to->socktype | SOCK_CLOEXEC, to->protocol);
}

/* ---- one request -------------------------------------------------------- */

static const char *schemes(const struct download_url *u)
{
    if (strncmp(u->text, "https:", 6) == 0) {
        return "https"; /* and stays so behind a redirect */
    }
    return u->ours && strncmp(u->text, "file:", 5) == 0 ? "file" : "http,https";
}

static void set_limits(CURL *c, const struct download *d)
{
    uint64_t floor = d->floor_bytes_per_s;

    if (d->bytes_per_s > 0) {
        floor = floor < d->bytes_per_s / 2 ? floor : d->bytes_per_s / 2;
        (void)curl_easy_setopt(c, CURLOPT_MAX_RECV_SPEED_LARGE,
                               (curl_off_t)d->bytes_per_s);
    }
    floor = floor < INT32_MAX ? floor : INT32_MAX;
    (void)curl_easy_setopt(c, CURLOPT_CONNECTTIMEOUT_MS, (long)d->stall_ms);
    (void)curl_easy_setopt(c, CURLOPT_LOW_SPEED_LIMIT,
                           floor > 0 ? (long)floor : 1L);
    (void)curl_easy_setopt(c, CURLOPT_LOW_SPEED_TIME,
                           (long)(d->stall_ms + 999) / 1000);
}

static void configure(struct request *r, char *why)
{
    const char *allowed = schemes(r->url);
    CURL *c = r->curl;
    char range[32];

    curl_easy_reset(c);
    /* Each connection is looked at by on_socket, for the URL that makes it. */
    (void)curl_easy_setopt(c, CURLOPT_FRESH_CONNECT, 1L);
    (void)curl_easy_setopt(c, CURLOPT_URL, r->url->text);
    curl_allow(c, allowed);
    (void)curl_easy_setopt(c, CURLOPT_FOLLOWLOCATION, 1L);
    (void)curl_easy_setopt(c, CURLOPT_MAXREDIRS, (long)REDIRECTS_MAX);
    (void)curl_easy_setopt(c, CURLOPT_FAILONERROR, 1L);
    (void)curl_easy_setopt(c, CURLOPT_NOSIGNAL, 1L);
    (void)curl_easy_setopt(c, CURLOPT_USERAGENT, "loco/" LOCO_VERSION);
    (void)curl_easy_setopt(c, CURLOPT_ERRORBUFFER, why);
    (void)curl_easy_setopt(c, CURLOPT_HEADERFUNCTION, on_header);
    (void)curl_easy_setopt(c, CURLOPT_HEADERDATA, r);
    (void)curl_easy_setopt(c, CURLOPT_WRITEFUNCTION, on_bytes);
    (void)curl_easy_setopt(c, CURLOPT_WRITEDATA, r);
    (void)curl_easy_setopt(c, CURLOPT_OPENSOCKETFUNCTION, on_socket);
    (void)curl_easy_setopt(c, CURLOPT_OPENSOCKETDATA, r);
    (void)curl_easy_setopt(c, CURLOPT_NOPROGRESS, 0L);
    (void)curl_easy_setopt(c, CURLOPT_XFERINFOFUNCTION, on_progress);
    (void)curl_easy_setopt(c, CURLOPT_XFERINFODATA, r);
    set_limits(c, r->d);
    if (r->from > 0) {
        (void)snprintf(range, sizeof range, "%" PRIu64 "-", r->from);
        (void)curl_easy_setopt(c, CURLOPT_RANGE, range); /* copied */
    }
}

/* libcurl's code, where none of our own functions has ended the request. */
static enum verdict judge(struct request *r, CURLcode rc)
{
    long code = 0;

    (void)curl_easy_getinfo(r->curl, CURLINFO_RESPONSE_CODE, &code);
    switch (rc) {
    case CURLE_OK:
        return r->have == r->d->bytes ? RIGHT : AGAIN;
    case CURLE_HTTP_RETURNED_ERROR:
        if (code == 416 && r->from > 0) {
            return empty_file(r) ? AGAIN : BROKEN; /* it has less than we */
        }
        return code >= 500 || code == 408 || code == 425 || code == 429
                   ? AGAIN
                   : BROKEN;
    case CURLE_TOO_MANY_REDIRECTS:
    case CURLE_UNSUPPORTED_PROTOCOL:
    case CURLE_URL_MALFORMAT:
    case CURLE_PEER_FAILED_VERIFICATION:
    case CURLE_SSL_CACERT_BADFILE:
    case CURLE_FILE_COULDNT_READ_FILE:
    case CURLE_BAD_DOWNLOAD_RESUME:
        return BROKEN;
    default:
        return AGAIN; /* nobody answers, it broke off, it was too slow */
    }
}

static void ask(struct request *r)
{
    char why[CURL_ERROR_SIZE] = "";
    CURLcode rc;

    r->from = r->have;
    r->range_at = r->range_of = UINT64_MAX;
    r->header_bytes = 0;
    r->accepted = false;
    r->trouble[0] = '\0';
    configure(r, why);
    rc = curl_easy_perform(r->curl);
    if (stops_within(r->d, 0)) {
        r->verdict = ENDED;
        r->rc = LOCO_ECLOSED;
        (void)snprintf(r->trouble, sizeof r->trouble, "stopped");
    } else if (r->trouble[0] == '\0') {
        r->verdict = judge(r, rc);
        (void)snprintf(r->trouble, sizeof r->trouble, "%.159s",
                       why[0] != '\0'   ? why
                       : rc != CURLE_OK ? curl_easy_strerror(rc)
                       : r->verdict != RIGHT
                           ? "it ended before the end of the file"
                           : "");
    }
}

/* ---- all of them -------------------------------------------------------- */

/* How long to wait before try number `n` in vain is followed by another. */
static uint64_t pause_ms(const struct request *r, uint32_t n)
{
    uint64_t ms = (uint64_t)r->d->retry_ms << (n < 16 ? n - 1 : 15);
    curl_off_t asked_s = 0;

    (void)curl_easy_getinfo(r->curl, CURLINFO_RETRY_AFTER, &asked_s);
    if (asked_s > 0) {
        ms = asked_s < PAUSE_MAX_MS / 1000 ? (uint64_t)asked_s * 1000
                                           : PAUSE_MAX_MS;
    }
    return ms < PAUSE_MAX_MS ? ms : PAUSE_MAX_MS;
}

/* Ask one URL until all is here or there is no use. */
static void try_url(struct request *r)
{
    uint32_t in_vain = 0;

    r->verdict = r->have == r->d->bytes ? RIGHT : AGAIN;
    while (r->verdict == AGAIN) {
        uint64_t before = r->have;

        ask(r);
        in_vain = r->have >= before + WORTH_BYTES ? 0 : in_vain + 1;
        if (r->verdict != AGAIN) {
            break;
        }
        if (in_vain >= r->d->tries) {
            r->verdict = BROKEN;
        } else if (stops_within(r->d, pause_ms(r, in_vain > 0 ? in_vain : 1))) {
            r->verdict = ENDED;
            r->rc = LOCO_ECLOSED;
        }
    }
}

/* All bytes are here. True: they are the file. */
static bool is_right(struct request *r, char *errmsg)
{
    if (fsync(r->fd) != 0) {
        r->rc = errno == ENOSPC || errno == EDQUOT ? LOCO_EDISK : LOCO_EIO;
        r->verdict = ENDED;
        (void)snprintf(r->trouble, sizeof r->trouble, "cannot write %.100s: %s",
                       r->d->path, strerror(errno));
        return false;
    }
    r->rc = r->d->check(r->d->data, errmsg);
    if (r->rc == LOCO_EHASH) {
        (void)empty_file(r);
        (void)snprintf(r->trouble, sizeof r->trouble,
                       "the bytes do not have the hash of the file");
        return false;
    }
    if (r->rc != 0) {
        r->verdict = ENDED;
        (void)snprintf(r->trouble, sizeof r->trouble, "%.159s", errmsg);
    }
    return r->rc == 0;
}

/* 0, or an error; `hash`: some URL sent other bytes. */
static int try_all(struct request *r, char *errmsg, bool *hash)
{
    int rv = LOCO_EIO;

    for (uint32_t i = 0; i < r->d->n_urls; i++) {
        bool mixed = r->have > 0; /* with bytes of somebody else */

        r->url = &r->d->urls[i];
        try_url(r);
        if (r->verdict == RIGHT && is_right(r, errmsg)) {
            return 0;
        }
        if (r->verdict == ENDED) {
            (void)errmsg_fail(errmsg, r->rc, "%s", r->trouble);
            return r->rc;
        }
        *hash = *hash || r->verdict == RIGHT;
        rv = errmsg_fail(errmsg, *hash ? LOCO_EHASH : LOCO_EIO, "%.80s: %s",
                         r->url->text, r->trouble);
        log_warn("data", "%s", errmsg);
        i -= mixed && r->verdict == RIGHT; /* from the start, alone */
    }
    return rv;
}

int download(const struct download *d, char *errmsg)
{
    struct request r = {.d = d};
    struct stat st;
    bool hash = false;
    int rv;

    r.fd = open(d->path, O_RDWR | O_CREAT | O_CLOEXEC, 0644);
    if (r.fd < 0 || fstat(r.fd, &st) != 0) {
        rv = errmsg_fail(errmsg, LOCO_EIO, "cannot open %.150s: %s", d->path,
                         strerror(errno));
        goto out;
    }
    r.have = (uint64_t)st.st_size;
    if (r.have > d->bytes) {
        (void)empty_file(&r);
    }
    r.curl = curl_easy_init();
    rv = r.curl == NULL ? errmsg_fail(errmsg, LOCO_ENOMEM, "out of memory")
                        : try_all(&r, errmsg, &hash);
    curl_easy_cleanup(r.curl);
out:
    if (r.fd >= 0) {
        (void)close(r.fd);
    }
    return rv;
}
