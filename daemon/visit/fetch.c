/* fetch.c - see fetch.h. */
#include "daemon/visit/fetch.h"

#include <curl/curl.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/visit/curl_old.h"
#include "proto/base/err.h"
#include "proto/base/errmsg.h"

#define REDIRECTS_MAX 5L

struct room {
    char *text;
    size_t len, most;
    bool full;
};

static size_t on_bytes(char *bytes, size_t size, size_t n, void *data)
{
    struct room *r = data;

    r->full = size * n > r->most - r->len;
    if (r->full) {
        return 0; /* libcurl ends the transfer */
    }
    memcpy(r->text + r->len, bytes, size * n);
    r->len += size * n;
    return size * n;
}

static void configure(CURL *c, const char *url, struct room *r, char *why)
{
    (void)curl_easy_setopt(c, CURLOPT_URL, url);
    curl_allow(c, "http,https,file");
    (void)curl_easy_setopt(c, CURLOPT_FOLLOWLOCATION, 1L);
    (void)curl_easy_setopt(c, CURLOPT_MAXREDIRS, REDIRECTS_MAX);
    (void)curl_easy_setopt(c, CURLOPT_FAILONERROR, 1L);
    (void)curl_easy_setopt(c, CURLOPT_NOSIGNAL, 1L);
    (void)curl_easy_setopt(c, CURLOPT_TIMEOUT_MS, FETCH_TIMEOUT_MS);
    (void)curl_easy_setopt(c, CURLOPT_USERAGENT, "loco/" LOCO_VERSION);
    (void)curl_easy_setopt(c, CURLOPT_ERRORBUFFER, why);
    (void)curl_easy_setopt(c, CURLOPT_WRITEFUNCTION, on_bytes);
    (void)curl_easy_setopt(c, CURLOPT_WRITEDATA, r);
}

static int judge(const struct room *r,
                 CURL *c,
                 CURLcode rc,
                 const char *url,
                 const char *why,
                 char *errmsg)
{
    long code = 0;

    (void)curl_easy_getinfo(c, CURLINFO_RESPONSE_CODE, &code);
    if (r->full) {
        return errmsg_fail(errmsg, LOCO_ERANGE,
                           "%.160s has more than %zu bytes", url, r->most);
    }
    if (rc == CURLE_OK) {
        return 0;
    }
    return errmsg_fail(
        errmsg,
        code == 404 || code == 410 || rc == CURLE_FILE_COULDNT_READ_FILE
            ? LOCO_ENOENT
            : LOCO_EIO,
        "%.140s: %.100s", url, why[0] != '\0' ? why : curl_easy_strerror(rc));
}

int fetch_small(
    const char *url, size_t most, char **text, size_t *size, char *errmsg)
{
    struct room r = {.text = malloc(most + 1), .most = most};
    char why[CURL_ERROR_SIZE] = "";
    CURL *c = curl_easy_init();
    int rv = LOCO_ENOMEM;

    *text = NULL;
    if (r.text == NULL || c == NULL) {
        (void)errmsg_fail(errmsg, rv, "out of memory");
    } else {
        configure(c, url, &r, why);
        rv = judge(&r, c, curl_easy_perform(c), url, why, errmsg);
    }
    curl_easy_cleanup(c);
    if (rv != 0) {
        free(r.text);
        return rv;
    }
    r.text[r.len] = '\0';
    *text = r.text;
    *size = r.len;
    return 0;
}
