/* http_many.c - see visit/http_many.h. */
#include "daemon/visit/http_many.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include "daemon/visit/http_internal.h"
#include "proto/base/clock.h"
#include "proto/base/err.h"

struct slot {
    CURL *curl; /* NULL: no question */
    struct http_daemon daemon;
    struct http_body body;
    char path[64];
};

struct http_many {
    CURLM *multi;
    size_t n, body_max;
    struct slot slot[];
};

struct http_many *http_many_open(size_t n_slots, size_t body_max)
{
    struct http_many *m = calloc(1, sizeof *m + n_slots * sizeof(struct slot));

    if (m == NULL) {
        return NULL;
    }
    m->multi = curl_multi_init();
    if (m->multi == NULL) {
        free(m);
        return NULL;
    }
    m->n = n_slots;
    m->body_max = body_max;
    return m;
}

int http_many_ask(struct http_many *m,
                  size_t slot,
                  const struct http_daemon *daemon,
                  const char *path)
{
    struct slot *s = &m->slot[slot];

    if (s->curl != NULL) {
        return 0;
    }
    s->curl = curl_easy_init();
    if (s->curl == NULL) {
        return LOCO_ENOMEM;
    }
    s->daemon = *daemon;
    s->body = (struct http_body){.max = m->body_max};
    (void)snprintf(s->path, sizeof s->path, "%s", path);
    http_configure(s->curl, &s->daemon, s->path, false, &s->body);
    (void)curl_easy_setopt(s->curl, CURLOPT_PRIVATE, (void *)s);
    if (curl_multi_add_handle(m->multi, s->curl) != CURLM_OK) {
        curl_easy_cleanup(s->curl);
        s->curl = NULL;
        return LOCO_ENOMEM;
    }
    return 0;
}

static void end(struct http_many *m, struct slot *s)
{
    (void)curl_multi_remove_handle(m->multi, s->curl);
    curl_easy_cleanup(s->curl);
    s->curl = NULL;
    s->body = (struct http_body){.max = m->body_max};
}

/* Whether one is over; then it is taken. */
static bool take(struct http_many *m, struct http_answer *answer)
{
    int left;
    CURLMsg *said = curl_multi_info_read(m->multi, &left);
    struct slot *s = NULL;

    while (said != NULL && said->msg != CURLMSG_DONE) {
        said = curl_multi_info_read(m->multi, &left);
    }
    if (said == NULL) {
        return false;
    }
    (void)curl_easy_getinfo(said->easy_handle, CURLINFO_PRIVATE, (char **)&s);
    *answer = (struct http_answer){.slot = (size_t)(s - m->slot)};
    answer->rv = http_outcome(s->curl, said->data.result, &s->daemon, s->path,
                              &s->body, answer->errmsg);
    answer->body = s->body.bytes;
    answer->len = s->body.len;
    end(m, s);
    return true;
}

int http_many_next(struct http_many *m, int wait_ms, struct http_answer *answer)
{
    uint64_t now = monotonic_ms(), until = now + (uint64_t)wait_ms;
    int running;

    for (;;) {
        (void)curl_multi_perform(m->multi, &running);
        if (take(m, answer)) {
            return 1;
        }
        now = monotonic_ms();
        if (now >= until) {
            return 0;
        }
        /* Also without any question it waits that long, or for a signal. */
        if (curl_multi_poll(m->multi, NULL, 0, (int)(until - now), NULL) !=
            CURLM_OK) {
            return 0;
        }
    }
}

void http_many_close(struct http_many *m)
{
    for (size_t i = 0; i < m->n; i++) {
        if (m->slot[i].curl != NULL) {
            free(m->slot[i].body.bytes);
            end(m, &m->slot[i]);
        }
    }
    (void)curl_multi_cleanup(m->multi);
    free(m);
}
