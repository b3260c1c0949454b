/* control.h - the daemon's status and commands over HTTP, for this machine.
 *
 *   GET  /                 what this is, for a person's browser
 *   GET  /api/v1/status    the status object (status_json.h)
 *   GET  /api/v1/rounds    the last rounds (rounds_json.h); ?round=N one of
 * them GET  /healthz          200 "ok" while the loop publishes, else 503 GET
 * /metrics          the same figures for Prometheus POST /api/v1/pause,
 * /api/v1/resume, /api/v1/drain
 *
 * One thread of libmicrohttpd, asleep in epoll while nobody asks. The loop
 * thread hands over finished JSON; requests read that snapshot and never touch
 * the node. Commands go to a callback that must be safe to call from the HTTP
 * thread (it posts to the loop's mailbox).
 *
 * Who may ask: only this machine. The address must be a loopback one or a
 * Unix socket (mode 0600). Against web pages that the user's browser has open:
 * a Host header that is not this address (DNS rebinding) and an Origin header
 * of another site (cross-site POST) are answered 403. Everybody who can reach
 * the loopback address of this machine can pause the daemon.
 *
 * Bounds: CONTROL_CONNECTIONS_MAX connections, closed after
 * CONTROL_IDLE_S of silence; bodies are read and thrown away.
 */
#ifndef LOCO_DAEMON_CONTROL_H
#define LOCO_DAEMON_CONTROL_H

#include <stdbool.h>
#include <stdint.h>

#define CONTROL_ERRMSG_MAX      256
#define CONTROL_ADDRESS_MAX     256
#define CONTROL_CONNECTIONS_MAX 32
#define CONTROL_IDLE_S          20

/* /healthz turns to 503 when nothing was published for so long: publish at
 * least every few seconds, changed or not. */
#define CONTROL_STALE_MS 15000

enum control_command { CONTROL_PAUSE, CONTROL_RESUME, CONTROL_DRAIN };

/* Called on the HTTP thread. */
typedef void (*control_command_cb)(void *data, enum control_command command);

/* Called on the HTTP thread: the rounds as JSON from malloc, taken; `round` 0:
 * all. NULL: not now. */
typedef char *(*control_rounds_cb)(void *data, uint64_t round);

struct control;

/* Listen at "HOST:PORT" (port 0: a free one) or "unix:PATH" (an old socket
 * file that nobody listens on is replaced) and serve. LOCO_EINVAL: not an
 * address, or not a local one; LOCO_EBUSY: in use; LOCO_EIO; LOCO_ENOMEM. */
int control_open(struct control **control,
                 const char *address,
                 control_command_cb on_command,
                 void *data,
                 char errmsg[CONTROL_ERRMSG_MAX]);

/* "127.0.0.1:41234" or "unix:/run/loco": the address that was bound, as
 * written to STATE/control for `loco status --state DIR`. */
const char *control_address(const struct control *control);

/* The next snapshot; `json` comes from malloc and is taken. Loop thread. */
void control_publish(struct control *control, char *json);

/* From now on /api/v1/rounds is answered by `make`, with the `data` of
 * control_open(). */
void control_serve_rounds(struct control *control, control_rounds_cb make);

/* Stops the thread; after this the callback is not called again. */
void control_close(struct control *control);

#endif
