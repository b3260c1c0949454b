/* dialogue.h - one authenticated connection for a command, blocking.
 *
 * What p2p/uv does on a loop, for a program that asks one peer a few questions
 * and ends: connect, shake hands (p2p/link/handshake.h), then frames (control)
 * or records (bulk), proto/PROTOCOL.md 5, 11 and 12. Every call ends by the
 * deadline that was given when the dialogue was opened.
 *
 * The caller shows an identity of its own, made for the occasion: two
 * connections of one identity would displace a daemon's.
 *
 * How it fails: dialogue_open says at which step and with what code; -errno of
 * the system, or LOCO_ETIMEOUT, LOCO_ECLOSED, LOCO_ERUN, LOCO_ESIG,
 * LOCO_EPROTO. One thread a dialogue; it is about 130 KB.
 */
#ifndef LOCO_DAEMON_VISIT_DIALOGUE_H
#define LOCO_DAEMON_VISIT_DIALOGUE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "p2p/core.h"
#include "proto/sign.h"

struct dialogue;

enum dialogue_step { DIALOGUE_CONNECT, DIALOGUE_HANDSHAKE, DIALOGUE_UP };

struct dialogue_options {
    struct address address;
    struct hash32 run_id;
    uint16_t version;
    const struct signer *signer; /* borrowed for the dialogue's life */
    struct peer_id expected;     /* zero: anyone */
    bool bulk;
    uint64_t deadline_ms; /* of monotonic_ms() */
};

/* DIALOGUE_UP: *dialogue is returned, caller closes it. Else *rc says why that
 * step failed. */
enum dialogue_step dialogue_open(struct dialogue **dialogue,
                                 const struct dialogue_options *opt,
                                 int *rc);

void dialogue_close(struct dialogue *d); /* NULL is allowed */

/* Say goodbye as `self`, and close when the peer has closed: else we would be
 * thought alive until we are missed. A second at most, whatever the deadline.
 * NULL is allowed. */
void dialogue_leave(struct dialogue *d, const struct peer_id *self);

/* Who is at the other end: proven. */
const struct peer_id *dialogue_peer(const struct dialogue *d);

/* Send one message, of proto/messages.h or proto/dht_msg.h: 0 or a negative
 * code. */
int dialogue_say(struct dialogue *d, uint16_t type, const void *message);

/* The next control frame, borrowed until the next call: its length, or a
 * negative code; LOCO_ETIMEOUT when none came by `until_ms`. */
int dialogue_recv(struct dialogue *d,
                  uint64_t until_ms,
                  uint8_t *type,
                  const uint8_t **bytes);

/* The plain bytes of the next record, borrowed until the next call. */
int dialogue_record(struct dialogue *d,
                    uint64_t until_ms,
                    const uint8_t **bytes);

#endif
