/* internal.h - a loop's end of the connection, for the files of this folder.
 *
 *   loco.c     the handle: options, failures, what is known of the run
 *   loop.c     what the loop is told, and what it answers
 *   link.c     the socket: dial, greet, send, receive; what is lost
 *   shared.c   the file of shared memory, checked before it is believed
 *   layout.c   the list of tensors
 *   spawn.c    a locod of our own
 *
 * Functions return 0 or a negative enum loco_failure after link_fail() unless
 * they say otherwise.
 */
#ifndef LOCO_DAEMON_CLIENT_INTERNAL_H
#define LOCO_DAEMON_CLIENT_INTERNAL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "daemon/client/layout.h"
#include "daemon/client/loco.h"
#include "daemon/client/shared.h"
#include "proto/trainer_msg.h"

#define DIAL_EVERY_MS  50
#define SEND_WAIT_MS   10000 /* for a daemon that does not read */
#define CLOSE_WAIT_MS  60000
#define PATIENCE_MS    60000 /* start_ms, reconnect_ms where nobody says */
#define STATE_PATH_MAX 4096

enum link_state {
    LINK_DOWN,    /* nobody listens yet, or not any more */
    LINK_GREETED, /* connected, HELLO sent */
    LINK_UP,      /* WELCOME came, the memory is mapped */
    LINK_ENDED,   /* STOP came, or our locod has ended well */
    LINK_FAILED,
    LINK_LEFT /* loco_stop() */
};

/* What the loop owes the daemon before it may hear more. */
enum due { DUE_NOTHING, DUE_GIVEN, DUE_TAKEN, DUE_SCORE, DUE_SCORED };

struct child {
    pid_t pid;    /* 0: none runs */
    bool mine;    /* one was started by this handle */
    bool welcome; /* it has welcomed us */
    bool stopped; /* SIGTERM was sent */
    bool in_use;  /* one ended as another locod has the directory */
};

struct loco {
    pid_t owner; /* the process that opened it */
    struct loco_options options;
    char *state, *join, *run, *locod, *locod_log, **locod_args;
    uint8_t name[TRAINER_NAME_MAX];
    uint8_t n_name;
    char errmsg[LOCO_ERRMSG_MAX];

    enum link_state link;
    int failure; /* in LINK_FAILED */
    int fd;
    bool was_up;
    uint64_t down_since_ms;
    struct child child;

    struct trainer_welcome welcome; /* of the last WELCOME, once it was up */
    struct layout layout;
    struct shared shared;

    /* The loop. */
    uint64_t steps_left, inner_step;
    enum due due;
    double nats;            /* DUE_SCORED */
    bool reading, has_text; /* READ is under way; TEXT is in `text` */
    bool has_pending;
    struct trainer_msg pending; /* came while the loop waited for TEXT */
    struct trainer_rows text;
    uint32_t *text_tokens, *held_tokens; /* (2, batch, seq): then targets */
    uint32_t end_code;
    char end_text[TRAINER_TEXT_MAX + 1];
};

/* loco.c */
uint64_t now_ms(void);
/* A final failure with its sentence; returns it. */
int link_fail(struct loco *l, int failure, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
/* A mistake of the caller. */
int wrong_call(struct loco *l, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));
void link_log(const struct loco *l, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));
/* First in every call: is this the process that opened it, does it work? */
int enter(struct loco *l);

/* link.c */
/* Once more, or until the deadline: 1: up; 0: not yet; negative. In LINK_ENDED
 * 0 at once. */
int link_up(struct loco *l, uint64_t deadline_ms);
/* 1: a message; 0: none yet; LOCO_FAIL_TIMEOUT: the connection is lost, and
 * nothing failed; another negative code: a failure. *memory: the descriptor
 * that came with it, or -1; closed where NULL. */
int link_receive(struct loco *l, struct trainer_msg *m, int *memory);
/* 1: sent; 0: the daemon does not read; LOCO_FAIL_TIMEOUT: it is gone, but what
 * it said before may still be received. */
int link_send(struct loco *l, const struct trainer_msg *m);
/* Whether poll's `events` came; false at the deadline or when a signal came,
 * which *interrupted says. */
bool link_wait(const struct loco *l,
               short events,
               uint64_t deadline_ms,
               bool *interrupted);
/* The connection is gone; what was under way is void. */
void link_lost(struct loco *l);
void link_end(struct loco *l, uint32_t code, const void *text, size_t len);

/* spawn.c */
/* Start locod, if that was wanted and none of ours runs. */
int child_start(struct loco *l);
/* Whether ours has ended, and what follows from it. */
int child_look(struct loco *l);

/* The last line that locod wrote; "" where there is none. */
#define LAST_LINE_MAX 160
void child_last_line(struct loco *l, char out[LAST_LINE_MAX]);
/* SIGTERM, once; 1: none runs (any more); 0: it runs at the deadline. */
int child_stop(struct loco *l, uint64_t deadline_ms);
/* May one be started? */
bool child_wanted(const struct loco *l);

#endif
