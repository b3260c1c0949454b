/* trainer_msg.h - what a training loop of its own and its daemon say to each
 * other.
 *
 * A *loop* is a process of the same user that trains a model with whatever it
 * likes; locod brings network, rounds and commits. They talk over a Unix socket
 * of packets (SOCK_SEQPACKET, STATE/trainer.sock, mode 0600). A packet is the
 * type, one byte, then the message in msg.h's encoding. Vectors lie in a file
 * of shared memory that comes with WELCOME, described below.
 *
 * One loop at a time. It is either *held* (it waits for the daemon) or *goes*
 * (it makes inner steps that GO allowed); it is held at first.
 *
 *   loop                             daemon
 *   HELLO ------------------------->
 *         <------------------------- WELCOME with the file, or REFUSED
 *         <------------------------- TAKE: theta are the parameters
 *   TAKEN ------------------------->
 *         <------------------------- GO: so many steps
 *   STEP, once for each ----------->
 *         <------------------------- GIVE: your parameters, please
 *   GIVEN ------------------------->   theta are the parameters; it is held
 *         <------------------------- TAKE or GO
 *
 * A loop that has made the steps of a GO is held. GIVE may also come while it
 * goes: it is answered between two steps, and the rest of the GO is void. READ
 * asks for the text of the next step; the answer is TEXT. A held loop that said
 * in HELLO that it can measure gets WINDOWS, batches of held-out text; it
 * answers each with SCORED, its loss with the parameters that it has. STOP ends
 * it. Whoever leaves closes the socket; the steps since the last GIVEN are then
 * lost, and nothing else.
 *
 * The file: a page of zeros, then at the places that WELCOME names
 *   layout   the tensors, in the order of theta: struct trainer_tensor, then
 *            its name, zeros up to a multiple of 8; the next one
 *   theta    (n) fp32
 *   tokens, targets   (batch * seq) uint32, where the run has a text
 *
 * How it fails: a packet that is none of these ends the connection.
 */
#ifndef LOCO_PROTO_TRAINER_MSG_H
#define LOCO_PROTO_TRAINER_MSG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "proto/id.h"
#include "proto/msg.h"

/* Of these messages. Both sides say theirs; another one is refused. */
#define TRAINER_MSG_VERSION 1

#define TRAINER_PACKET_MAX 4096
#define TRAINER_TEXT_MAX   512 /* sentences */
#define TRAINER_NAME_MAX   64
#define TRAINER_DIMS_MAX   8

/* As a target: this position is not scored. */
#define TRAINER_NO_TARGET UINT32_MAX

/* One tensor in the layout; `name_bytes` bytes of name follow. */
struct trainer_tensor {
    uint64_t offset, numel; /* elements, in theta */
    uint64_t shape[TRAINER_DIMS_MAX];
    uint32_t n_dims, name_bytes;
};

struct trainer_hello {
    uint16_t version;
    uint32_t pid;
    bool measures; /* it answers WINDOWS */
    uint8_t n_name;
    uint8_t name[TRAINER_NAME_MAX]; /* of the program, for people */
};

struct trainer_welcome {
    uint16_t version;
    struct hash32 run_id;
    uint64_t bytes; /* of the file */
    uint64_t n;     /* elements of theta */
    uint32_t n_tensors;
    uint64_t layout_at, layout_bytes, theta_at;
    uint64_t tokens_at, targets_at; /* 0: the run has no text */
    uint32_t batch, seq, vocab;
    uint64_t tokens_most; /* that a STEP may count */
    uint32_t period;      /* inner steps between two rounds */
    uint8_t n_run_name, n_preset;
    uint8_t run_name[TRAINER_NAME_MAX], preset[TRAINER_NAME_MAX];
};

struct trainer_refused {
    uint16_t n_text;
    uint8_t text[TRAINER_TEXT_MAX]; /* a sentence */
};

/* Make up to so many inner steps. */
struct trainer_go {
    uint64_t steps;
    uint64_t inner_step; /* made so far by this peer: what to log, or to set a
                            learning rate by */
};

struct trainer_give {
    uint64_t round; /* for which they are wanted */
};

/* theta is new. */
struct trainer_take {
    uint64_t round;  /* of the commit that it is of */
    bool reset;      /* the inner optimizer begins anew */
    uint64_t clock;  /* the run's inner step: learning rates go by it */
    uint64_t tokens; /* that all peers of the run trained, as this one knows */
};

/* One inner step. `loss`: mean nats, the bits of a double. */
struct trainer_step {
    uint64_t tokens;
    uint64_t loss;
};

/* GIVEN, TAKEN, READ say nothing more. */
struct trainer_empty {
    uint8_t zero;
};

/* tokens and targets are those of the next step that has no text yet. */
struct trainer_rows {
    uint64_t position; /* in the order of all, or the peer's own */
    uint32_t rows;
    bool own;
};

/* tokens and targets are held-out text, TRAINER_NO_TARGET where a position is
 * not scored. */
struct trainer_windows {
    uint32_t rows;
};

/* Of the last WINDOWS: the sum over scored targets in nats, the bits of a
 * double. */
struct trainer_scored {
    uint64_t nats;
};

struct trainer_stop {
    uint32_t code; /* 0: the run has ended, or the daemon was told to stop */
    uint16_t n_text;
    uint8_t text[TRAINER_TEXT_MAX];
};

/* X(number, NAME, struct, who sends it). Never renumber. */
/* clang-format off */
#define TRAINER_MESSAGES(X)                                                    \
    X(1,  HELLO,   trainer_hello,   LOOP)                                      \
    X(2,  WELCOME, trainer_welcome, DAEMON)                                    \
    X(3,  REFUSED, trainer_refused, DAEMON)                                    \
    X(4,  GO,      trainer_go,      DAEMON)                                    \
    X(5,  GIVE,    trainer_give,    DAEMON)                                    \
    X(6,  GIVEN,   trainer_empty,   LOOP)                                      \
    X(7,  TAKE,    trainer_take,    DAEMON)                                    \
    X(8,  TAKEN,   trainer_empty,   LOOP)                                      \
    X(9,  STEP,    trainer_step,    LOOP)                                      \
    X(10, READ,    trainer_empty,   LOOP)                                      \
    X(11, TEXT,    trainer_rows,    DAEMON)                                    \
    X(12, WINDOWS, trainer_windows, DAEMON)                                    \
    X(13, SCORED,  trainer_scored,  LOOP)                                      \
    X(14, STOP,    trainer_stop,    DAEMON)
/* clang-format on */

enum trainer_msg_type {
#define X(number, name, type, sender) TRAINER_MSG_##name = (number),
    TRAINER_MESSAGES(X)
#undef X
};

enum trainer_msg_sender { TRAINER_SENDER_LOOP, TRAINER_SENDER_DAEMON };

struct trainer_msg {
    enum trainer_msg_type type;
    union {
        struct trainer_hello hello;
        struct trainer_welcome welcome;
        struct trainer_refused refused;
        struct trainer_go go;
        struct trainer_give give;
        struct trainer_take take;
        struct trainer_step step;
        struct trainer_empty empty;
        struct trainer_rows text;
        struct trainer_windows windows;
        struct trainer_scored scored;
        struct trainer_stop stop;
    };
};

/* The packet's bytes (at most TRAINER_PACKET_MAX), or a negative code: a local
 * bug. */
int trainer_msg_encode(const struct trainer_msg *m,
                       uint8_t out[TRAINER_PACKET_MAX]);

/* A packet that `sender` sent: 0 or LOCO_EPROTO. */
int trainer_msg_decode(const uint8_t *in,
                       size_t len,
                       enum trainer_msg_sender sender,
                       struct trainer_msg *m);

/* Bytes of a name in a layout, with its zeros. */
static inline size_t trainer_name_room(uint32_t name_bytes)
{
    return ((size_t)name_bytes + 7) & ~(size_t)7;
}

/* Where loops find the daemon, in its state directory. */
#define TRAINER_SOCKET "trainer.sock"

#endif
