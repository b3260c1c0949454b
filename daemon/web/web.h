/* web.h - an HTTP server for people: who may ask, how much, and pages.
 *
 * One thread of libmicrohttpd, asleep in epoll while nobody asks. Each request
 * that is admitted goes to one function (`on_ask`), on that thread. Two
 * programs serve something by it: locod (control/control.h) and `loco page`
 * (watch/page.h).
 *
 * Who may ask: this machine, at a loopback address or a Unix socket (mode
 * 0600). At any other address, or where the opener says so, whoever shows a
 * token (control_tokens.h). Against web pages that the user's browser has open:
 * a Host header that is not ours (DNS rebinding) and an Origin header of
 * another site (cross-site POST) are answered 403 (access.c).
 *
 * Bounds: WEB_CONNECTIONS_MAX connections, WEB_PER_ADDRESS_MAX of one address
 * beyond this machine, closed after WEB_IDLE_S of silence; a request of
 * WEB_REQUEST_MAX bytes; no request needs a body: a small one is read and
 * thrown away, with a larger one the connection is closed. Of connections and
 * requests 500 together are served in a second, and 500 at once; then all wait.
 */
#ifndef LOCO_DAEMON_WEB_WEB_H
#define LOCO_DAEMON_WEB_WEB_H

#include <microhttpd.h>
#include <stdbool.h>
#include <stdint.h>

#include "proto/base/errmsg.h"

#define WEB_CONNECTIONS_MAX 256
#define WEB_PER_ADDRESS_MAX 12
#define WEB_REQUEST_MAX     (32U << 10)
#define WEB_IDLE_S          10

struct web;

/* Answers a request: `path` without what follows a question mark. */
typedef enum MHD_Result (*web_ask_cb)(void *data,
                                      struct MHD_Connection *connection,
                                      const char *path,
                                      const char *method);

/* NULL members: nothing of the kind. */
struct web_terms {
    const char *name;        /* of the program, in sentences */
    const char *setting;     /* that the address is from */
    const char *advice;      /* where a token is to be had, for who has none */
    bool anywhere;           /* also at addresses that other machines reach */
    bool always;             /* ask for a token on this machine, too */
    const char *tokens_path; /* made when it is needed and not there */
    const char *token;       /* instead of a file: the one token, to read */
    const char *hosts;       /* names for us, with commas between */
};

/* Listen at "HOST:PORT" (port 0: a free one) or "unix:PATH" (an old socket
 * file that nobody listens on is replaced) and serve. LOCO_EINVAL: not an
 * address, or one that `terms` does not allow; LOCO_EBUSY: in use; LOCO_EIO,
 * LOCO_EFORMAT: the tokens; LOCO_ENOMEM. */
int web_open(struct web **web,
             const char *address,
             const struct web_terms *terms,
             web_ask_cb on_ask,
             void *data,
             char errmsg[ERRMSG_SIZE]);

/* "127.0.0.1:41234" or "unix:/run/loco": the address that was bound. */
const char *web_address(const struct web *web);

/* Whether a token is asked for. */
bool web_guarded(const struct web *web);

/* Read the tokens again, and take these hosts. Any thread; after an error (a
 * sentence) the old tokens hold. `others`: tokens changed. */
int web_renew(struct web *web,
              const char *hosts,
              bool *others,
              char errmsg[ERRMSG_SIZE]);

/* Counts how often the tokens became others; web_admitted(): what it was when
 * the request that is being answered was let in (HTTP thread). */
uint64_t web_renewals(struct web *web);
uint64_t web_admitted(struct web *web);

/* Stops the thread; after this `on_ask` is not called again. */
void web_close(struct web *web);

/* ---- answers ------------------------------------------------------------ */

/* Bytes in a response that is not cached; NULL: out of memory. */
struct MHD_Response *web_response(const char *type,
                                  const char *bytes,
                                  size_t len,
                                  enum MHD_ResponseMemoryMode mode);

/* Queue it, and drop our reference. */
enum MHD_Result web_answer(struct MHD_Connection *connection,
                           unsigned code,
                           struct MHD_Response *r);

/* Static text. */
enum MHD_Result web_answer_text(struct MHD_Connection *connection,
                                unsigned code,
                                const char *text);

/* JSON from malloc, taken; NULL: 503. */
enum MHD_Result web_answer_json(struct MHD_Connection *connection, char *json);

/* ---- pages -------------------------------------------------------------- */

/* A file that is part of the program (web_files() in CMakeLists.txt). A page of
 * ours loads nothing from elsewhere, and its Content-Security-Policy forbids
 * it. */
struct web_file {
    const char *path, *type, *bytes, *end;
};

#define WEB_BYTES_OF(name)                                                     \
    extern const char page_##name[];                                           \
    extern const char page_##name##_end[]

/* A row of struct web_file. */
#define WEB_FILE(path, type, name)                                             \
    {                                                                          \
        path, type "; charset=utf-8", page_##name, page_##name##_end           \
    }

/* What all pages share: page/page.css and page/page.js. */
WEB_BYTES_OF(style);
WEB_BYTES_OF(words);
#define WEB_FILES_SHARED                                                       \
    WEB_FILE("/page.css", "text/css", style),                                  \
        WEB_FILE("/page.js", "text/javascript", words)

/* NULL: no file has that path. */
const struct web_file *
web_file_find(const struct web_file *files, size_t n, const char *path);

/* To GET; another method is refused. */
enum MHD_Result web_answer_file(struct MHD_Connection *connection,
                                const struct web_file *file,
                                const char *method);

#endif
