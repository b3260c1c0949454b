/* loop_socket.h - the socket and the shared memory of a training loop.
 *
 * A *loop* is another process of this user that makes the inner steps
 * (proto/trainer_msg.h). Here are its connection, one at a time, and the file
 * that it shares with us; what the messages mean is trainer_loop.h's.
 *
 * The file is sealed: a loop can change its bytes at any time, but not its
 * size, so no read of ours can fail. What it writes is believed as little as
 * what a peer sends: theta is checked where a contribution is made of it, and
 * tokens and layout are never read back.
 *
 * Only processes of this user, or root, are let in: the socket has mode 0600,
 * and the system says whose the other end is. A second loop gets a sentence and
 * is closed.
 *
 * One thread, but for loop_socket_wake(). Errors: codes with a sentence.
 */
#ifndef LOCO_DAEMON_MACHINE_LOOP_SOCKET_H
#define LOCO_DAEMON_MACHINE_LOOP_SOCKET_H

#include <stdbool.h>

#include "proto/trainer_msg.h"
#include "train/model/tensor_list.h"

struct loop_socket_options {
    const char *dir;                /* where TRAINER_SOCKET is made */
    const struct tensor_list *list; /* borrowed for loop_socket_open() */
    /* What WELCOME says, but for the places in the file and its size. */
    struct trainer_welcome welcome;
    bool has_text;
    /* For trainer_loop.h: how long a loop may take to answer; 0: two minutes.
     */
    uint32_t hold_ms;
};

struct loop_socket {
    int dir, listen, conn, wake, file; /* -1: not open */
    struct trainer_welcome welcome;
    uint8_t *shared;
    float *theta;               /* (n), in `shared` */
    uint32_t *tokens, *targets; /* (batch, seq); NULL: the run has no text */
    bool greeted;               /* HELLO came, WELCOME went */
    struct trainer_hello hello; /* of the loop that is connected */
};

enum loop_event {
    LOOP_NOTHING,
    LOOP_ARRIVED, /* it said HELLO, and has WELCOME */
    LOOP_MESSAGE, /* in *m */
    LOOP_LEFT     /* the connection ended, by whichever side */
};

/* loop_socket_close() afterwards, whatever the result. */
int loop_socket_open(struct loop_socket *s,
                     const struct loop_socket_options *o,
                     char *errmsg);
void loop_socket_close(struct loop_socket *s); /* idempotent */

/* Wait until something is there, so long at most (-1: for ever). */
void loop_socket_wait(struct loop_socket *s, int timeout_ms);

/* End the wait under way, or the next one. Any thread. */
void loop_socket_wake(struct loop_socket *s);

/* What happened next; never waits. */
enum loop_event loop_socket_next(struct loop_socket *s, struct trainer_msg *m);

/* To the loop; where that fails it is about to be LOOP_LEFT. */
void loop_socket_send(struct loop_socket *s, const struct trainer_msg *m);

/* Send the sentence of a STOP, and let go of the loop. */
void loop_socket_dismiss(struct loop_socket *s,
                         uint32_t code,
                         const char *text);

#endif
