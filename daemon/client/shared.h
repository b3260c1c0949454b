/* shared.h - the memory that a loop shares with its daemon.
 *
 * WELCOME says where things lie in the file that comes with it. shared_check()
 * believes nothing of that: every part must lie in the file, be aligned, and
 * overlap no other. It is pure; shared_map() maps what it has accepted.
 */
#ifndef LOCO_DAEMON_CLIENT_SHARED_H
#define LOCO_DAEMON_CLIENT_SHARED_H

#include <stddef.h>
#include <stdint.h>

#include "proto/trainer_msg.h"

struct shared {
    uint8_t *map; /* NULL: nothing is mapped */
    size_t bytes;
    float *theta;                     /* (n) */
    const uint32_t *tokens, *targets; /* (batch, seq), or NULL */
};

/* `file_bytes`: the file's real size. 0, or LOCO_FAIL_PROTOCOL with a sentence
 * in errmsg (LOCO_ERRMSG_MAX). */
int shared_check(const struct trainer_welcome *w,
                 uint64_t file_bytes,
                 char *errmsg);

/* 0 or LOCO_FAIL_SYSTEM, LOCO_FAIL_PROTOCOL. `fd` stays open. */
int shared_map(struct shared *out,
               const struct trainer_welcome *w,
               int fd,
               char *errmsg);

void shared_unmap(struct shared *s);

/* Copy rows of text: out (2, rows, seq), tokens then targets. 0, or
 * LOCO_FAIL_PROTOCOL: more rows than the file has, or a token outside of the
 * vocabulary. */
int shared_text(const struct shared *s,
                const struct trainer_welcome *w,
                uint32_t rows,
                uint32_t *out,
                char *errmsg);

#endif
