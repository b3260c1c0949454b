/* locod.h - the inside of the daemon's process, for the files of this folder.
 *
 *   main.c            argv, the order of things, exit codes
 *   daemon/state.c     state directory: lock, identity, files; which run
 *   daemon/open.c      node, machine, shell, listening, the home network
 *   daemon/entrance.c  how others join the run that we started
 *   daemon/share.c     the line with which anybody joins
 *   daemon/show.c      status and commands over HTTP
 *   daemon/reload.c  settings that change while it runs
 *   daemon/life.c      the loop, signals, the end
 *   daemon/restart.c   the end that is a beginning: another program follows
 *
 * Everything here runs on the loop thread but on_command() of daemon/show.c.
 * What can go wrong at the start is a row of trouble.def: complain() prints
 * the sentence with the row's id, which deploy/TROUBLESHOOTING.md explains,
 * and returns the row's exit code.
 */
#ifndef LOCO_DAEMON_LOCOD_H
#define LOCO_DAEMON_LOCOD_H

#include <pthread.h>
#include <stdio.h>

#include <uv.h>

#include "daemon/control/control.h"
#include "daemon/control/notify.h"
#include "daemon/control/shown.h"
#include "daemon/control/status_json.h"
#include "daemon/machine/machine.h"
#include "daemon/node/node.h"
#include "daemon/settings/config.h"
#include "daemon/settings/guest.h"
#include "daemon/settings/trouble.h"
#include "p2p/uv/lan.h"
#include "p2p/uv/loop.h"
#include "p2p/uv/mapper.h"
#include "proto/base/file.h"
#include "proto/uri.h"

#define REVOKED_BYTES_MAX 2048

/* Settings of a person at the dashboard: they outdo file and flags until the
 * next start. "": not set. */
#define LIVE_TEXT_MAX 128
struct live_set {
    char text[CONFIG_OPTION_COUNT][LIVE_TEXT_MAX];
    bool given[CONFIG_OPTION_COUNT];
};

struct daemon {
    struct config config, next; /* next: while it is read again */
    int argc;                   /* of the process, for that */
    char **argv;
    struct guest guest;
    int exit_code;
    bool stopping;
    unsigned n_signals;
    /* Set by the HTTP thread: drain, then start again; drain or stop for good,
     * which a wish to start again does not undo. */
    _Atomic bool restart, ending;
    uint64_t ended_ms;  /* since when the run has ended; 0: it has not */
    uint64_t looped_ms; /* when a training loop was here, or none was missed */

    char program[FILE_PATH_MAX]; /* its file; "": not known */
    int lock_fd, identity_fd;    /* held until the process ends */
    struct identity identity;
    struct signer signer;
    struct hash32 run_id;
    char data_dir[FILE_PATH_MAX];   /* where run.yaml is */
    char listen[URI_HOST_MAX + 16]; /* as bound */
    struct device_options device;   /* plugin NULL: the processor */
    uint64_t gpu_bytes;             /* of its memory, free at the start */
    char tuning[FILE_PATH_MAX];     /* of the GPU's products */
    struct node_options node_options;
    uint8_t *manifest, *record, *peers, *chain; /* which it points to */
    pthread_mutex_t set_lock;                   /* of `asked` */
    struct live_set asked; /* over the API, since the last reload */
    struct live_set set;   /* of those, what holds */
    uint8_t revoked[2][REVOKED_BYTES_MAX]; /* what was posted last */

    uv_loop_t loop;
    uv_signal_t sigterm, sigint, sighup;
    uv_timer_t publish;
    struct frame_rule rules[MESSAGE_TYPES_MAX];
    struct node *node;
    struct core core;
    struct machine *machine;
    struct shell *shell;
    struct control *control;
    struct mapper *mapper;
    struct lan_socket *lan;
    struct status_eta eta;
    struct notify notify;
    struct shown *shown;        /* what the HTTP thread may read */
    struct history_notes notes; /* for it */
    /* Of each bootstrap address: which host of the line that it joined with. */
    uint32_t host_of[NODE_BOOTSTRAP_MAX];
    struct status_share share;
    uint64_t share_ms; /* when it was looked for; 0: never */
    unsigned n_open;   /* machine, shell, ..., while closing */
    char errmsg[CONFIG_ERRMSG_MAX];
};

/* main.c */
/* "locod: SENTENCE [ID]" to stderr; the exit code of that trouble. */
int complain(enum trouble what, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));
uint32_t time_scale(void);

/* daemon/state.c; 0 or an exit code after a sentence. */
int state_path(const struct daemon *d, const char *name, char *out);
int lock_state(struct daemon *d);
/* Who holds it, and a word of what that is or does (state_dir.h), for `loco`.
 * Any thread. */
void write_lock(int fd, const char *word);
int load_identity(struct daemon *d);
int load_run(struct daemon *d);
/* Tell the node of run.revoked, in the state directory and beside run.yaml. */
void tell_revoked(struct daemon *d);
/* What an earlier life left: the record of views, peers, the chain. */
void load_past(struct daemon *d);
/* Peers of which evidence/ has a proof that they lied. After open_node(). */
void load_convicts(struct daemon *d);

/* daemon/open.c */
int open_machine(struct daemon *d);
int open_shell(struct daemon *d);
int open_node(struct daemon *d, uint16_t port);
int listen_on(struct daemon *d, uint16_t *bound);
void open_home(struct daemon *d, uint16_t port);
/* Only this machine can reach what we listen on. */
bool listens_on_loopback(const struct daemon *d);

/* daemon/entrance.c; nothing where this daemon did not start the run. */
void tell_entrance(const struct daemon *d, uint16_t port);
/* The router maps a port to us, at that address. */
void tell_outer_address(const struct daemon *d, const struct address *at);

/* Where we listen, or the interfaces where that is everywhere: added to u. */
void own_hosts(const struct daemon *d, struct uri *u);

/* daemon/share.c: d->share, when it is due. */
void look_for_share(struct daemon *d);

/* daemon/show.c */
int open_control(struct daemon *d);
void on_publish(uv_timer_t *timer);

/* daemon/reload.c */
void reload(struct daemon *d);
/* HTTP thread; see control.h. */
int on_set(void *data,
           const char *name,
           const char *value,
           char errmsg[ERRMSG_SIZE]);

/* daemon/restart.c. The file of this program; "": not known. Early: what has
 * taken its name since is another one. */
void find_program(char out[FILE_PATH_MAX]);
/* Returns only where nothing could be started, with an exit code after a
 * sentence. Everything but the lock is closed. */
int start_again(const char *program, char **argv, int lock_fd);

/* daemon/main.c. SIGTERM and SIGINT end the first process of a container, for
 * which the kernel has no default, also where the loop does not handle them. */
void end_on_signals(void);

/* daemon/life.c */
int open_loop(struct daemon *d);
int serve(struct daemon *d);
/* Drain when the training loop that this daemon works for stays away. */
void watch_training_loop(struct daemon *d);
/* Drain where the run has ended, and nobody is to be served its end. */
void watch_end(struct daemon *d, const struct node_status *s);
/* Not from here on, but soon: the loop ends. */
void begin_stop(struct daemon *d);
void close_all(struct daemon *d);

#endif
