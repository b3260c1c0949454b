/* conn_internal.h - shared by the conn_*.c files; see conn.h. */
#ifndef LOCO_P2P_UV_CONN_INTERNAL_H
#define LOCO_P2P_UV_CONN_INTERNAL_H

#include "p2p/uv/cipher.h"
#include "p2p/uv/shell.h"

#define CONTAINER_OF(p, type, field)                                           \
    ((type *)(void *)((char *)(p)-offsetof(type, field)))

/* conn.c: it is dead for reason rc; the owner is told once. */
void conn_fail(struct conn *c, int rc);

/* conn.c: conn_fail(LOCO_ETIMEOUT) then, unless the timer is stopped. */
void conn_set_deadline(struct conn *c, uint32_t limit_ms);

/* conn.c: a connection without a socket; in the shell's list. */
struct conn *conn_new(struct shell *s,
                      const struct conn_ops *ops,
                      enum connection_kind kind);

/* conn_shake.c: keys for a new connection; begin, once the socket is there;
 * look at what head[] holds. */
void conn_shake_init(struct conn *c);
void conn_start_shaking(struct conn *c);
void conn_read_handshake(struct conn *c);
/* Bytes of the record that is due before the connection is up. */
size_t conn_expects(const struct conn *c);

/* conn_leg.c: the handshake with the relay is through; the answer of the relay
 * is here. 0 or a negative code. */
int conn_leg_ask(struct conn *c);
int conn_leg_ready(struct conn *c);

/* conn_read.c */
int conn_start_reading(struct conn *c);
void conn_stop_reading(struct conn *c);
/* Deliver what is buffered, and read on. */
void conn_go_on(struct conn *c);

/* conn_write.c: queue a copy of bytes[len] as they are. */
int conn_write_copy(struct conn *c, const uint8_t *bytes, size_t len);

#endif
