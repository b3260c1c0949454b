/* control.h - the daemon's status and commands over HTTP, for this machine.
 *
 *   GET  /                 the dashboard (daemon/control/dashboard/)
 *   GET  /api/v1/status    the status object (status_json.h)
 *   GET  /api/v1/rounds    the last rounds (rounds_json.h); ?round=N one of
 *                          them, ?last=N so many attempts
 *   GET  /api/v1/peers     the peers and the speed of their links (shown.h)
 *   GET  /api/v1/share     the line with which others join, as a QR code, too
 *   GET  /api/v1/history   the curves since the start, the last events
 *   GET  /api/v1/events    all of it as it changes: server-sent events
 *   GET  /healthz          200 "ok" while the loop publishes and the trainer
 *                          goes on, else 503
 *   GET  /metrics          the same figures for Prometheus
 *   POST /api/v1/pause, /api/v1/resume, /api/v1/drain
 *   POST /api/v1/reload    read the settings again, as SIGHUP
 *   POST /api/v1/set?name=NAME&value=VALUE
 *                          one of the settings that change live, until the
 *                          next start
 *
 * By one thread of web/web.h, which says who may ask and how much. The loop
 * thread hands over finished JSON; requests read that snapshot and never touch
 * the node. Commands go to a callback that must be safe to call from the HTTP
 * thread (it posts to the loop's mailbox).
 *
 * Everybody who can reach the loopback address of this machine can pause and
 * drain the daemon and change its live settings where no token is asked for.
 */
#ifndef LOCO_DAEMON_CONTROL_CONTROL_H
#define LOCO_DAEMON_CONTROL_CONTROL_H

#include <stdbool.h>
#include <stdint.h>

#include "proto/base/errmsg.h"

#define CONTROL_ADDRESS_MAX 256  /* of web/web.h */
#define CONTROL_STREAMS_MAX 8    /* of the connections */
#define CONTROL_STREAM_MS   1000 /* between two states on a stream */

/* /healthz turns to 503 when nothing was published for so long: publish at
 * least every few seconds, changed or not. */
#define CONTROL_STALE_MS 15000

enum control_command {
    CONTROL_PAUSE,
    CONTROL_RESUME,
    CONTROL_DRAIN,
    CONTROL_RESTART, /* drain, then start again as what is installed now */
    CONTROL_RELOAD   /* the settings */
};

/* Called on the HTTP thread. */
typedef void (*control_command_cb)(void *data, enum control_command command);

/* Called on the HTTP thread: 0, or LOCO_EINVAL with a sentence. */
typedef int (*control_set_cb)(void *data,
                              const char *name,
                              const char *value,
                              char errmsg[ERRMSG_SIZE]);

struct control;
struct shown;

/* Beyond this machine. NULL members: nothing of the kind. */
struct control_access {
    const char *tokens_path; /* made when it is needed and not there */
    const char *hosts;       /* our names, with commas between */
    bool always;             /* ask for a token on this machine, too */
};

/* Listen at "HOST:PORT" (port 0: a free one) or "unix:PATH" (an old socket
 * file that nobody listens on is replaced) and serve. `access` NULL: this
 * machine only. LOCO_EINVAL: not an address, or not a local one; LOCO_EBUSY: in
 * use; LOCO_EIO, LOCO_EFORMAT: the tokens; LOCO_ENOMEM. */
int control_open(struct control **control,
                 const char *address,
                 const struct control_access *access,
                 control_command_cb on_command,
                 void *data,
                 char errmsg[ERRMSG_SIZE]);

/* Read the tokens again, and take these hosts. Any thread; after an error
 * (a sentence) the old tokens hold. */
int control_access_renew(struct control *control,
                         const char *hosts,
                         char errmsg[ERRMSG_SIZE]);

/* "127.0.0.1:41234" or "unix:/run/loco": the address that was bound, as
 * written to STATE/control for `loco status --state DIR`. */
const char *control_address(const struct control *control);

/* The next snapshot; `json` comes from malloc and is taken. Loop thread. */
void control_publish(struct control *control, char *json);

/* Whether the trainer goes on, where it is to: of /healthz. Loop thread. */
void control_trains(struct control *control, bool trains);

/* Something happened that readers of the stream should see at once: let each
 * look for news. Any thread, without the lock. */
void control_news(struct control *control);

/* From now on rounds, peers, history and events are answered from `shown`,
 * which is borrowed until control_close(). */
void control_serve(struct control *control, struct shown *shown);

/* Who takes settings, with the data of control_open(); NULL: nobody. */
void control_settings(struct control *control, control_set_cb on_set);

/* Stops the thread; after this the callback is not called again. */
void control_close(struct control *control);

#endif
