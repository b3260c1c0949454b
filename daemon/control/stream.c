/* stream.c - GET /api/v1/events: the status as it changes.
 *
 * A stream is a response without an end whose bytes come from reader(). When
 * there is nothing to say its connection is suspended, which costs nothing,
 * until control_news(): at most each CONTROL_STREAM_MS, at once when
 * there is an event. A reader that is slow gets fewer and newer states, never
 * a backlog: each piece is made when it is asked for.
 */
#include "daemon/control/internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PIECE_BYTES 16384 /* of libmicrohttpd's buffer */

struct stream {
    struct control *c;
    struct MHD_Connection *connection;
    bool suspended;    /* under the lock */
    uint64_t renewals; /* of the tokens, when it was let in */
    uint64_t wakes;    /* seen when the last piece was made */
    uint64_t serial;   /* of the status that was sent last */
    struct shown_cursor cursor;
    char *text; /* the piece that is being sent */
    size_t len, off;
};

/* The next piece; false when there is no news or no memory. */
static bool make_piece(struct stream *s)
{
    struct control *c = s->c;
    struct shown *shown;
    char *more = NULL, *text = NULL;
    size_t size = 0;
    FILE *to = open_memstream(&text, &size);

    if (to == NULL) {
        return false;
    }
    (void)pthread_mutex_lock(&c->lock);
    s->wakes = c->wakes;
    shown = c->shown;
    if (c->json != NULL && s->serial != c->serial) {
        if (s->serial == 0) {
            (void)fputs("retry: 1000\n\n", to);
        }
        (void)fprintf(to, "event: status\ndata: %s\n\n", c->json);
        s->serial = c->serial;
    }
    (void)pthread_mutex_unlock(&c->lock);
    if (shown != NULL) {
        more = shown_stream(shown, &s->cursor);
    }
    (void)fputs(more == NULL ? "" : more, to);
    free(more);
    free(s->text);
    s->text = NULL;
    s->len = s->off = 0;
    if (fclose(to) != 0 || size == 0) {
        free(text);
        return false;
    }
    s->text = text;
    s->len = size;
    return true;
}

static ssize_t reader(void *data, uint64_t pos, char *out, size_t max)
{
    struct stream *s = data;
    struct control *c = s->c;
    size_t n;

    (void)pos;
    while (s->off == s->len) {
        bool news = make_piece(s), over, sleeps;

        (void)pthread_mutex_lock(&c->lock);
        over = s->renewals != web_renewals(c->web) || (c->closing && !news);
        /* Nobody woke us since we looked: sleep. Whoever wakes us may be at it
         * before we return, so `suspended` is not looked at again. */
        sleeps = !over && !news && s->wakes == c->wakes;
        s->suspended = sleeps;
        if (sleeps) {
            MHD_suspend_connection(s->connection);
        }
        (void)pthread_mutex_unlock(&c->lock);
        if (over) {
            return MHD_CONTENT_READER_END_OF_STREAM;
        }
        if (sleeps) {
            return 0;
        }
    }
    n = s->len - s->off < max ? s->len - s->off : max;
    memcpy(out, s->text + s->off, n);
    s->off += n;
    return (ssize_t)n;
}

static void on_end(void *data)
{
    struct stream *s = data;
    struct control *c = s->c;

    (void)pthread_mutex_lock(&c->lock);
    for (size_t i = 0; i < CONTROL_STREAMS_MAX; i++) {
        if (c->streams[i] == s) {
            c->streams[i] = NULL;
        }
    }
    (void)pthread_mutex_unlock(&c->lock);
    free(s->text);
    free(s);
}

void control_news(struct control *c)
{
    (void)pthread_mutex_lock(&c->lock);
    c->wakes++;
    for (size_t i = 0; i < CONTROL_STREAMS_MAX; i++) {
        struct stream *s = c->streams[i];

        if (s != NULL && s->suspended) {
            s->suspended = false;
            MHD_resume_connection(s->connection);
        }
    }
    (void)pthread_mutex_unlock(&c->lock);
}

/* False: CONTROL_STREAMS_MAX are open. */
static bool take_slot(struct control *c, struct stream *s)
{
    bool taken = false;

    (void)pthread_mutex_lock(&c->lock);
    for (size_t i = 0; i < CONTROL_STREAMS_MAX && !taken; i++) {
        if (c->streams[i] == NULL) {
            c->streams[i] = s;
            s->renewals = web_admitted(c->web);
            taken = true;
        }
    }
    (void)pthread_mutex_unlock(&c->lock);
    return taken;
}

enum MHD_Result control_get_events(struct control *c,
                                   struct MHD_Connection *connection)
{
    const char *last = MHD_lookup_connection_value(connection, MHD_HEADER_KIND,
                                                   "Last-Event-ID");
    struct stream *s = calloc(1, sizeof *s);
    struct MHD_Response *r;

    if (s == NULL) {
        return MHD_NO;
    }
    s->c = c;
    s->connection = connection;
    s->cursor.event = last == NULL ? 0 : strtoull(last, NULL, 10);
    if (!take_slot(c, s)) {
        free(s);
        return web_answer_text(connection, MHD_HTTP_SERVICE_UNAVAILABLE,
                               "too many event streams are open\n");
    }
    r = MHD_create_response_from_callback(MHD_SIZE_UNKNOWN, PIECE_BYTES, reader,
                                          s, on_end);
    if (r == NULL) {
        on_end(s);
        return MHD_NO;
    }
    (void)MHD_add_response_header(r, MHD_HTTP_HEADER_CONTENT_TYPE,
                                  "text/event-stream");
    (void)MHD_add_response_header(r, MHD_HTTP_HEADER_CACHE_CONTROL, "no-store");
    (void)MHD_add_response_header(r, "X-Content-Type-Options", "nosniff");
    (void)MHD_add_response_header(r, "Cross-Origin-Resource-Policy",
                                  "same-origin");
    return web_answer(connection, MHD_HTTP_OK, r);
}
