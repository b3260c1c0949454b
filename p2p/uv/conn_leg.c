/* conn_leg.c - see conn.h: the way of a connection through a relay.
 *
 * Happy path: handshake with the relay -> conn_leg_ask() says whom we want, or
 * which call we come for -> the relay finds the other end and says ready ->
 * conn_leg_ready(): the socket is a pipe to the other end now, and the two of
 * us shake hands as if it had just been connected. What was agreed with the
 * relay is forgotten: it holds no key of what follows.
 *
 *   a: DIAL {relay r} ---- TCP, handshake, "I want b" ---> r: EVENT_RELAY
 *                                 the core of r tells b (CALLED, a token)
 *   b: RELAY_COME {token} - TCP, handshake, the token ---> r: EVENT_RELAY
 *                                 the core of r says RELAY_JOIN
 *   a <--------------- ready ---------------- r --------- ready ---------> b
 *   a =========== handshake, then records: r only copies bytes ========== b
 *
 * Both ends then have an ordinary connection, a link or a bulk one; `relay` in
 * LINK_UP is the only difference. A leg to a meeting goes on in punch.c.
 */
#include <string.h>

#include <sodium.h>

#include "p2p/link/ask.h"
#include "p2p/uv/conn_internal.h"
#include "p2p/uv/punch.h"

int conn_leg_ask(struct conn *c)
{
    struct ask ask = {
        .other = c->expected, .token = c->token, .meet = c->meets};
    uint8_t plain[ASK_BYTES];
    uint8_t record[RECORD_HEAD_BYTES + ASK_BYTES + NOISE_TAG_BYTES];
    int n;

    c->send = c->shake.noise.send;
    c->recv = c->shake.noise.recv;
    handshake_wipe(&c->shake);
    ask_write(&ask, plain);
    n = conn_seal(c, plain, sizeof plain, record);
    if (n < 0) {
        return n;
    }
    c->leg = LEG_WAITING;
    conn_set_deadline(c, c->shell->opt.handshake_ms);
    return conn_write_copy(c, record, (size_t)n);
}

int conn_leg_ready(struct conn *c)
{
    uint8_t plain[READY_BYTES];
    int n;

    if (c->meets) {
        return punch_met(c);
    }
    n = noise_open(&c->recv, c->head + RECORD_HEAD_BYTES,
                   sizeof plain + NOISE_TAG_BYTES, plain);
    n = n < 0 ? n : ready_read(plain);
    if (n < 0) {
        return n;
    }
    sodium_memzero(&c->send, sizeof c->send);
    sodium_memzero(&c->recv, sizeof c->recv);
    c->leg = LEG_THROUGH;
    memset(&c->address, 0, sizeof c->address); /* was the relay's */
    if (c->token != 0) {
        c->inbound = true;
        c->kind = CONNECTION_NONE;
        c->shell->stats.half_open++;
    }
    conn_shake_init(c);
    conn_set_deadline(c, c->shell->opt.handshake_ms);
    conn_start_shaking(c);
    return 0;
}
