/* loco.h - let a training loop of your own be a peer of a loco run.
 *
 * Your process keeps model, optimizer and device. A daemon, locod, on the same
 * machine has the network, the rounds and the checkpoints. This library talks
 * to it over a socket in the daemon's state directory; the parameters lie in
 * memory that both share. It starts a locod where none runs.
 *
 * Your loop does what loco_next() says:
 *
 *     struct loco_options o = {.size = sizeof o, .join = "loco://..."};
 *     struct loco_todo t;
 *     struct loco *l;
 *     char why[LOCO_ERRMSG_MAX];
 *     int rv;
 *
 *     if (loco_open(&l, &o, why) != 0) { ... }
 *     while ((rv = loco_next(l, 200, &t)) >= 0 && rv != LOCO_END) {
 *         if (rv == LOCO_TAKE) { copy loco_theta(l) into the model }
 *         if (rv == LOCO_GIVE) { copy the model into loco_theta(l) }
 *         if (rv == LOCO_GO)   { one step; loco_step(l, tokens, loss) }
 *     }
 *     loco_close(l);
 *
 * Vectors. theta has loco_info.n elements, float, in the processor's order of
 * bytes: all tensors of the run, one after the other, each row by row (the
 * last dimension varies fastest). loco_tensor() names them.
 *
 * Errors. A function that can fail returns a negative enum loco_failure;
 * loco_errmsg() is then a sentence for people: what happened, where, what to
 * do. LOCO_FAIL_VALUE is a mistake of the call and changes nothing. Any other
 * failure is final: the same sentence follows until loco_close().
 *
 * Threads. One thread at a time may use a handle; it may be another one for
 * each call. Handles do not know of each other. Nothing here may be called in
 * a signal handler. After fork() the child may only call loco_close(), which
 * lets go of its copy; every other call fails with a sentence.
 *
 * Signals. No call raises SIGPIPE. loco_next(), loco_ready(), loco_read() and
 * loco_stop() return early when a signal handler ran: as if time were up.
 *
 * Versions. Structs begin with their size, or end with reserved zeros; a
 * program built with an older header runs with a newer library.
 */
#ifndef LOCO_DAEMON_CLIENT_LOCO_H
#define LOCO_DAEMON_CLIENT_LOCO_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define LOCO_API __attribute__((visibility("default")))

/* Bytes of a sentence, with its NUL. */
#define LOCO_ERRMSG_MAX 256

#define LOCO_DIMS_MAX 8

/* As a target: this position is not scored. */
#define LOCO_NO_TARGET UINT32_MAX

struct loco; /* one loop at one daemon */

enum loco_failure {
    LOCO_FAIL_MEMORY = -30001,
    LOCO_FAIL_PROTOCOL = -30002, /* the daemon says what it must not */
    LOCO_FAIL_VALUE = -30005,    /* a mistake of the caller */
    LOCO_FAIL_SYSTEM = -30007,   /* the operating system refused */
    LOCO_FAIL_NO_DAEMON = -30011,
    LOCO_FAIL_TIMEOUT = -30012, /* the daemon went away, or did not come */
    LOCO_FAIL_REFUSED = -30014, /* the daemon does not want this loop */
    LOCO_FAIL_OTHER_RUN = -30018,
    LOCO_FAIL_FORK = -30020 /* called in a child of fork() */
};

/* What loco_next() returns. Negative: enum loco_failure. */
enum loco_action {
    LOCO_WAIT = 0,  /* nothing within the time: call again */
    LOCO_GO = 1,    /* make one inner step, then loco_step() */
    LOCO_GIVE = 2,  /* write your parameters to loco_theta(), call again */
    LOCO_TAKE = 3,  /* loco_theta() has new parameters: read, call again */
    LOCO_SCORE = 4, /* measure the loss of held-out text: loco_scored() */
    LOCO_END = 5    /* the run has ended, or the daemon was told to stop */
};

/* Zero in any member but `size` means its default. The library copies what it
 * needs: strings need not outlive loco_open(). */
struct loco_options {
    size_t size; /* sizeof(struct loco_options) */
    /* The daemon's state directory. NULL: $LOCO_STATE, else locod's own
     * default, $XDG_STATE_HOME/loco or ~/.local/state/loco. */
    const char *state;
    /* How a locod is started where none runs; at most one of both: join the
     * run behind loco://..., or start the run of this run.yaml. Both NULL:
     * none is started. */
    const char *join;
    const char *run;
    /* More arguments for it, a list that ends with NULL. */
    const char *const *locod_args;
    /* The program. NULL: $LOCO_LOCOD, else `locod` beside this library or in
     * ../bin from there, else in PATH. */
    const char *locod;
    /* Where its output is appended. NULL: locod.log in the state directory;
     * "": not redirected. */
    const char *locod_log;
    /* Of your program, for people; at most 64 bytes count. */
    const char *name;
    /* How long until a daemon listens, milliseconds. 0: 60 000. One that this
     * handle started is waited for as long as it lives, since it may fetch a
     * large state first; `log` hears what it does. */
    uint32_t start_ms;
    /* How long a daemon that vanished is waited for. 0: 60 000. */
    uint32_t reconnect_ms;
    /* Not 0: this loop answers LOCO_SCORE. */
    int measures;
    /* Not 0: a locod that this handle started goes on after loco_close().
     * 0: it drains then, and also when your process was killed and 10 minutes
     * passed without another loop; --loop-grace-s in locod_args sets another
     * time. */
    int keep;
    /* Sentences about what the library does: started a daemon, lost it, found
     * it. Called by the thread that is in a call. NULL: none. */
    void (*log)(void *data, const char *sentence);
    void *data;
};

/* The run, once loco_ready() returned 1. */
struct loco_info {
    uint8_t run_id[32];
    char run_name[65], preset[65];
    uint64_t n;           /* elements of theta */
    uint32_t n_tensors;   /* of them */
    uint32_t batch, seq;  /* most rows of a text; positions of a row */
    uint32_t vocab;       /* tokens and targets are below; 0: no text */
    uint64_t tokens_most; /* that one loco_step() may count */
    uint32_t period;      /* inner steps between two rounds */
    int32_t started_pid;  /* of the locod that this handle started; 0: none */
    uint64_t reserved[8];
};

/* One tensor of the run, or of the caller's model (for loco_check()). */
struct loco_tensor {
    const char *name; /* of the run: until loco_close() */
    uint32_t n_dims;  /* 0: a single number */
    uint32_t zero;
    uint64_t shape[LOCO_DIMS_MAX];
    uint64_t offset, numel; /* elements, in theta; loco_check() ignores both */
};

struct loco_todo {
    /* LOCO_GO: inner steps that may still be made before the next round, and
     * how many this peer has made: a learning rate may go by the latter. */
    uint64_t steps, inner_step;
    /* LOCO_GIVE: the round. LOCO_TAKE: the round of these parameters, whether
     * the inner optimizer must begin anew (1), the run's inner step, and the
     * tokens that all peers have trained, as far as known here. */
    uint64_t round, clock, run_tokens;
    int32_t reset;
    /* LOCO_END: 0, or the exit code of locod. */
    uint32_t code;
    const char *text; /* LOCO_END: a sentence, until loco_close() */
    /* LOCO_SCORE: (rows, seq); targets may be LOCO_NO_TARGET. Until the next
     * loco_next(). */
    uint32_t rows, seq;
    const uint32_t *tokens, *targets;
    uint64_t reserved[4];
};

/* The text of one step: (rows, seq) tokens, and for each the token that
 * follows it (or LOCO_NO_TARGET). Valid until the next loco_read(). */
struct loco_text {
    uint32_t rows, seq;
    const uint32_t *tokens, *targets;
    uint64_t position; /* in the order of the run, or of the peer's own text */
    int32_t own;       /* 1: the peer's own text */
    uint32_t zero;
    uint64_t reserved[4];
};

/* Find the daemon of the state directory, or start one. Returns at once; the
 * first loco_ready() or loco_next() waits. errmsg: LOCO_ERRMSG_MAX bytes or
 * NULL. On failure *l is NULL. */
LOCO_API int
loco_open(struct loco **l, const struct loco_options *o, char *errmsg);

/* Wait until the daemon knows the run: 1; 0: not yet; negative: a failure. */
LOCO_API int loco_ready(struct loco *l, uint32_t timeout_ms);

/* The sentence of the last failure of this handle; "" when there was none.
 * Until the next call. */
LOCO_API const char *loco_errmsg(const struct loco *l);

/* 0, or LOCO_FAIL_VALUE before loco_ready() returned 1. */
LOCO_API int loco_info(struct loco *l, struct loco_info *out);

/* Tensor i of loco_info.n_tensors, in the order of theta. */
LOCO_API int loco_tensor(struct loco *l, uint32_t i, struct loco_tensor *out);

/* Whether the caller's tensors are those of the run: the same names with the
 * same shapes, in any order. LOCO_FAIL_VALUE: loco_errmsg() names the first
 * difference. */
LOCO_API int
loco_check(struct loco *l, const struct loco_tensor *mine, uint32_t n);

/* The shared vector, (n) floats; NULL before loco_ready() returned 1. Yours to
 * write between LOCO_GIVE and the next loco_next(), to read between LOCO_TAKE
 * and the next. A daemon that came back brings new memory: ask again after
 * each loco_next(). NaN and infinity are refused by the daemon. */
LOCO_API float *loco_theta(struct loco *l);

/* What to do now. LOCO_GO is answered at once; otherwise up to timeout_ms. A
 * daemon that vanished is waited for, and started again where this handle had
 * started it: LOCO_WAIT meanwhile, and LOCO_FAIL_TIMEOUT after reconnect_ms;
 * when it is back, LOCO_TAKE brings the state of the last commit. */
LOCO_API int
loco_next(struct loco *l, uint32_t timeout_ms, struct loco_todo *todo);

/* One inner step was made, with so many tokens (or samples) and this mean loss
 * (nats; NaN when unknown). Only after LOCO_GO, and as often as it allowed. A
 * step for a daemon that vanished is lost without a failure. */
LOCO_API int loco_step(struct loco *l, uint64_t tokens, double loss);

/* The text of the next step: 1; 0: not within the time, or loco_next() has
 * something to say first. LOCO_FAIL_VALUE: the run has no text. */
LOCO_API int
loco_read(struct loco *l, uint32_t timeout_ms, struct loco_text *out);

/* The answer to LOCO_SCORE: the sum of the losses over all targets that are
 * not LOCO_NO_TARGET, in nats. loco_next() sends it. */
LOCO_API int loco_scored(struct loco *l, double nats);

/* Leave: steps since the last LOCO_GIVE are lost. A locod that this handle
 * started is asked to drain (SIGTERM), unless `keep`. 1: nothing left to wait
 * for; 0: it drains still, call again. Only loco_close() may follow. */
LOCO_API int loco_stop(struct loco *l, uint32_t timeout_ms);

/* As `keep`, set late; locod still ends after 10 minutes without a loop. For a
 * program that failed and will be started again. */
LOCO_API void loco_keep(struct loco *l);

/* loco_stop() with up to 60 seconds, then free. NULL is nothing. */
LOCO_API void loco_close(struct loco *l);

#ifdef __cplusplus
}
#endif

#endif
