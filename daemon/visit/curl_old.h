/* curl_old.h - which protocols a transfer may use, for libcurl before 7.85
 * (Debian 11, against which the wheel is built): it takes a mask instead of
 * their names. */
#ifndef LOCO_DAEMON_VISIT_CURL_OLD_H
#define LOCO_DAEMON_VISIT_CURL_OLD_H

#include <curl/curl.h>
#include <string.h>

/* `names`, separated by commas, of http, https and file; for the first request
 * and for where that is sent on to. */
static inline void curl_allow(CURL *c, const char *names)
{
#if LIBCURL_VERSION_NUM >= 0x075500
    (void)curl_easy_setopt(c, CURLOPT_PROTOCOLS_STR, names);
    (void)curl_easy_setopt(c, CURLOPT_REDIR_PROTOCOLS_STR, names);
#else
    static const struct {
        const char *name;
        long bit;
    } known[] = {{"http", CURLPROTO_HTTP},
                 {"https", CURLPROTO_HTTPS},
                 {"file", CURLPROTO_FILE}};
    long mask = 0;

    while (*names != '\0') {
        size_t len = strcspn(names, ",");

        for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
            if (len == strlen(known[i].name) &&
                strncmp(names, known[i].name, len) == 0) {
                mask |= known[i].bit;
            }
        }
        names += len + (names[len] == ',');
    }
    (void)curl_easy_setopt(c, CURLOPT_PROTOCOLS, mask);
    (void)curl_easy_setopt(c, CURLOPT_REDIR_PROTOCOLS, mask);
#endif
}

#endif
