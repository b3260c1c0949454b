/* err.h - the one table of error codes.
 *
 * Functions return 0 or a negative code. libuv's codes pass through unchanged
 * (they lie above -5000); ours start at -30001, so the ranges never meet.
 * Foreign errors (sodium, msgpack, curl, CUDA) are translated at the call.
 *
 * Three classes: a *local bug* is an assert; a *bad peer* (EPROTO, ESTALE,
 * ESIG) drops the link and is counted; the *environment* (ENOMEM, EDISK, EIO)
 * is returned to somebody who can retry or tell a person.
 */
#ifndef LOCO_PROTO_BASE_ERR_H
#define LOCO_PROTO_BASE_ERR_H

/* clang-format off */
#define LOCO_ERR_MAP(X)                                                        \
    X(LOCO_ENOMEM,   -30001, "out of memory")                                  \
    X(LOCO_EPROTO,   -30002, "peer broke the protocol")                        \
    X(LOCO_ESTALE,   -30003, "message belongs to an older epoch")              \
    X(LOCO_ESIG,     -30004, "signature does not verify")                      \
    X(LOCO_EINVAL,   -30005, "invalid value")                                  \
    X(LOCO_ERANGE,   -30006, "value out of range")                             \
    X(LOCO_EIO,      -30007, "input/output error")                             \
    X(LOCO_EDISK,    -30008, "disk full")                                      \
    X(LOCO_EFORMAT,  -30009, "file is malformed")                              \
    X(LOCO_EHASH,    -30010, "hash does not match")                            \
    X(LOCO_ENOENT,   -30011, "not found")                                      \
    X(LOCO_ETIMEOUT, -30012, "deadline passed")                                \
    X(LOCO_ECLOSED,  -30013, "closed")                                         \
    X(LOCO_EBUSY,    -30014, "busy")                                           \
    X(LOCO_ELOCKED,  -30015, "in use by another process")                      \
    X(LOCO_EDEVICE,  -30016, "no such device")                                 \
    X(LOCO_ECUDA,    -30017, "CUDA call failed")                               \
    X(LOCO_ERUN,     -30018, "belongs to another run or protocol version")     \
    X(LOCO_EFULL,    -30019, "table is full")                                  \
    X(LOCO_ECANCELED,-30020, "cancelled")                                      \
    X(LOCO_ENUMERIC, -30021, "not a finite number")                            \
    X(LOCO_ETWIN,    -30022, "another process with our own identity")
/* clang-format on */

enum loco_err {
#define X(name, code, text) name = code,
    LOCO_ERR_MAP(X)
#undef X
};

/* The exit codes that scripts rely on; deploy/TROUBLESHOOTING.md has them. */
enum loco_exit {
    LOCO_EXIT_OK = 0,
    LOCO_EXIT_FAILURE = 1,
    LOCO_EXIT_USAGE = 2,
    LOCO_EXIT_CONFIG = 3,
    LOCO_EXIT_STATE = 4,
    LOCO_EXIT_IDENTITY = 5,
    LOCO_EXIT_NETWORK = 6,
    LOCO_EXIT_INCOMPATIBLE = 7,
    LOCO_EXIT_DEVICE = 8,
    LOCO_EXIT_RESOURCES = 9
};

/* Text of a loco code; "unknown error" for any other number. Static string. */
const char *loco_strerror(int err);

#endif
