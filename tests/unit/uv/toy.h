/* toy.h - shells with a toy core, for the tests of p2p/uv.
 *
 * A *toy* is a core that emits the actions a test queued for it and writes
 * down the events it gets; a *node* is one toy with identity, shell and one
 * block of memory that its segments name by byte offset. Several nodes share
 * one loop. A *raw* client speaks to a shell from a plain socket.
 */
#ifndef LOCO_TESTS_UNIT_UV_TOY_H
#define LOCO_TESTS_UNIT_UV_TOY_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <uv.h>

#include "p2p/link/handshake.h"
#include "p2p/uv/addr.h"
#include "p2p/uv/loop.h"
#include "proto/base/err.h"
#include "proto/frame.h"
#include "proto/limits.h"
#include "proto/sign.h"

#define TOY_QUEUE_MAX 16384
#define TOY_LOG_MAX   16384
#define TOY_MEMORY    (4U << 20)
#define HANG_S        60 /* only a test that hangs gets here */

struct toy_log {
    struct event event; /* bytes: NULL */
    uint32_t first;     /* RECV: first four bytes */
};

struct toy {
    struct action *queue; /* SEND: `bytes` is the fill pattern */
    uint32_t n_queue, at;
    struct toy_log *log;
    uint32_t n_log;
    uint32_t counts[EVENT_TYPE_COUNT];
    uint32_t n_ticks;
    bool busy;    /* always due */
    bool anybody; /* messages are not our pattern */
};

struct node {
    struct identity id;
    struct signer signer;
    struct toy toy;
    struct shell *shell;
    uint16_t port;
    uint8_t *memory;
    uint32_t n_filled, n_taken;
    bool in_place; /* lends and takes segments where they lie */
    uint32_t n_lent, n_placed;
    int take_rc, save_rc, sum_rc;
    uint32_t n_saved, n_local;
    uv_sem_t *disk; /* each save waits for it; NULL: a fast one */
    bool closing, closed;
};

#define TOY_UNBOUND 9 /* may overtake what waits for the disk */

static const struct frame_rule toy_rules[] = {
    [1] = {.bytes_max = 64, .delivery = FRAME_WHOLE},
    [2] = {.bytes_max = FRAME_CONTROL_MAX, .delivery = FRAME_WHOLE},
    [TOY_UNBOUND] = {.bytes_max = 64, .delivery = FRAME_WHOLE, .unbound = true},
};
#define TOY_RULES (sizeof toy_rules / sizeof toy_rules[0])

/* ---- the core --------------------------------------------------------- */

/* The bytes of an action that has some; NULL: none. */
static inline struct out_span *toy_span(struct action *a)
{
    return a->type == ACTION_SEND   ? &a->send.bytes
           : a->type == ACTION_SAVE ? &a->save
                                    : NULL;
}

static inline void toy_emit(struct toy *t, struct out *out)
{
    static uint8_t body[FRAME_CONTROL_MAX];

    while (t->at < t->n_queue && out->n < CORE_OUT_MAX / 2) {
        struct action *q = &t->queue[t->at], *a;
        const struct out_span *fill = toy_span(q);
        uint32_t at = 0;

        if (fill != NULL) {
            memset(body, (int)fill->at, fill->len);
            if (fill->len >= 4) {
                put_u32(body, fill->at);
            }
            at = out_bytes(out, body, fill->len);
            if (at == UINT32_MAX) {
                out->dropped = 0;
                return; /* goes with the next tick */
            }
        }
        a = out_add(out, q->type);
        *a = *q;
        if (fill != NULL) {
            toy_span(a)->at = at;
        }
        t->at++;
    }
}

static inline void
toy_step(void *self, const struct event *event, struct out *out)
{
    struct toy *t = self;

    t->counts[event->type]++;
    if (event->type != EVENT_TICK) {
        struct toy_log *l = &t->log[t->n_log++];

        assert_true(t->n_log < TOY_LOG_MAX);
        l->event = *event;
        if (event->type == EVENT_RECV) {
            l->event.recv.bytes = NULL;
        }
        if (event->type == EVENT_RECV && event->recv.len >= 4) {
            l->first = get_u32(event->recv.bytes);
        }
        for (size_t i = 4;
             event->type == EVENT_RECV && !t->anybody && i < event->recv.len;
             i++) {
            assert_int_equal(event->recv.bytes[i], (uint8_t)l->first);
        }
    }
    toy_emit(t, out);
}

static inline uint64_t toy_deadline(const void *self)
{
    const struct toy *t = self;

    return t->busy || t->at < t->n_queue ? 0 : CORE_NEVER;
}

/* Queue one action; the caller fills the rest in. */
static inline struct action *node_act(struct node *n, enum action_type type)
{
    struct action *a = &n->toy.queue[n->toy.n_queue++];

    assert_true(n->toy.n_queue < TOY_QUEUE_MAX);
    memset(a, 0, sizeof *a);
    a->type = type;
    return a;
}

/* ---- what the owner of a shell provides ------------------------------- */

static inline size_t toy_wire_len(void *self, const struct segment *segment)
{
    (void)self;
    return segment->len;
}

static inline int
toy_fill(void *self, const struct segment *segment, uint8_t *dst)
{
    struct node *n = self;

    n->n_filled++;
    memcpy(dst, n->memory + segment->offset, segment->len);
    return 0;
}

static inline const uint8_t *toy_lend(void *self, const struct segment *segment)
{
    struct node *n = self;

    n->n_lent += n->in_place;
    return n->in_place ? n->memory + segment->offset : NULL;
}

static inline uint8_t *toy_place(void *self, const struct segment *segment)
{
    struct node *n = self;

    n->n_placed += n->in_place;
    return n->in_place ? n->memory + segment->offset : NULL;
}

static inline int toy_sum(void *self, struct segment *segment)
{
    struct node *n = self;

    segment->lane = n->sum_rc != 0 ? 3 : segment->lane;
    return n->sum_rc;
}

static inline int toy_take(void *self,
                           const struct segment *segment,
                           const uint8_t *src,
                           size_t len)
{
    struct node *n = self;

    n->n_taken++;
    assert_int_equal(len, segment->len);
    if (n->in_place) {
        assert_ptr_equal(src, n->memory + segment->offset);
    } else if (n->take_rc == 0) {
        memcpy(n->memory + segment->offset, src, len);
    }
    return n->take_rc;
}

static inline int toy_save(void *self, const uint8_t *bytes, size_t len)
{
    struct node *n = self;

    (void)bytes;
    (void)len;
    if (n->disk != NULL) {
        uv_sem_wait(n->disk);
    }
    n->n_saved++;
    return n->save_rc;
}

static inline void
toy_local(void *self, const struct job *job, const struct out *out)
{
    struct node *n = self;

    (void)job;
    (void)out;
    n->n_local++;
}

/* ---- nodes ------------------------------------------------------------ */

/* Identity and options; node_open() then takes them. */
static inline struct shell_options node_init(struct node *n, uint8_t seed)
{
    struct shell_options opt;
    uint8_t bytes[32];

    memset(n, 0, sizeof *n);
    memset(bytes, seed, sizeof bytes);
    assert_int_equal(identity_generate(&n->id, bytes), 0);
    n->signer = signer_sodium(&n->id);
    n->toy.queue = calloc(TOY_QUEUE_MAX, sizeof *n->toy.queue);
    n->toy.log = calloc(TOY_LOG_MAX, sizeof *n->toy.log);
    n->memory = calloc(1, TOY_MEMORY);
    shell_options_default(&opt);
    opt.signer = &n->signer;
    opt.rules = toy_rules;
    opt.n_rules = TOY_RULES;
    opt.handshake_ms = 30000; /* tests of deadlines make it short, */
    /* of strangers these: a toy core trusts all */
    opt.stranger_queue_bytes_max = opt.link_queue_bytes_max;
    opt.strangers_queue_bytes_max = UINT32_MAX;
    opt.strangers_paced = false;
    opt.stranger_slabs = 0;
    opt.accepts_per_s = 10000;
    opt.arrivals.all.each_us = 1;
    return opt;
}

static inline void
node_open(struct node *n, uv_loop_t *loop, const struct shell_options *opt)
{
    struct core core = {&n->toy, toy_step, toy_deadline};
    struct shell_calls calls = {
        .self = n,
        .wire_len = toy_wire_len,
        .fill = toy_fill,
        .lend = toy_lend,
        .place = toy_place,
        .take = toy_take,
        .sum = toy_sum,
        .save = toy_save,
        .local = toy_local,
    };

    assert_int_equal(shell_open(&n->shell, loop, &core, opt, &calls), 0);
    assert_int_equal(shell_listen(n->shell, "127.0.0.1", 0, &n->port), 0);
}

static inline void node_start(struct node *n, uv_loop_t *loop, uint8_t seed)
{
    struct shell_options opt = node_init(n, seed);

    node_open(n, loop, &opt);
}

static inline struct shell_stats node_stats(const struct node *n)
{
    struct shell_stats stats;

    shell_stats(n->shell, &stats);
    return stats;
}

static inline void node_on_closed(void *data)
{
    ((struct node *)data)->closed = true;
}

static inline struct address loopback(uint16_t port)
{
    struct address a;

    assert_int_equal(address_parse("127.0.0.1", port, &a), 0);
    return a;
}

/* Run the loop until `cond` holds. */
static inline uint64_t hang_at(void)
{
    return uv_hrtime() + HANG_S * 1000000000ULL;
}

#define RUN_UNTIL(loop, cond)                                                  \
    do {                                                                       \
        uint64_t hang_ns_ = hang_at();                                         \
        while (!(cond)) {                                                      \
            uv_run((loop), UV_RUN_NOWAIT);                                     \
            if (uv_hrtime() > hang_ns_) {                                      \
                fail_msg("never: %s", #cond);                                  \
            }                                                                  \
        }                                                                      \
    } while (0)

/* A few turns in which nothing more must happen. */
static inline void run_quiet(uv_loop_t *loop)
{
    for (int i = 0; i < 200; i++) {
        uv_run(loop, UV_RUN_NOWAIT);
    }
}

static inline void node_close(struct node *n, uv_loop_t *loop)
{
    if (!n->closing) {
        n->closing = true;
        shell_close(n->shell, node_on_closed, n);
    }
    RUN_UNTIL(loop, n->closed);
    free(n->toy.queue);
    free(n->toy.log);
    free(n->memory);
}

static inline void loop_end(uv_loop_t *loop)
{
    assert_int_equal(uv_run(loop, UV_RUN_NOWAIT), 0);
    assert_int_equal(uv_loop_close(loop), 0);
}

/* The i-th event of a type; NULL when there are not so many. */
static inline const struct toy_log *
node_event(const struct node *n, enum event_type type, uint32_t i)
{
    for (uint32_t at = 0; at < n->toy.n_log; at++) {
        if (n->toy.log[at].event.type == type && i-- == 0) {
            return &n->toy.log[at];
        }
    }
    return NULL;
}

static inline void dial(struct node *from,
                        const struct node *to,
                        const struct peer_id *expected,
                        uint64_t request)
{
    struct action *a = node_act(from, ACTION_DIAL);

    a->dial.address = loopback(to->port);
    a->dial.request = request;
    if (expected != NULL) {
        a->dial.peer = *expected;
    }
}

/* A link from a to b; returns its number at a. */
static inline uint32_t
connect_nodes(struct node *a, struct node *b, uv_loop_t *loop)
{
    uint32_t up_a = a->toy.counts[EVENT_LINK_UP];
    uint32_t up_b = b->toy.counts[EVENT_LINK_UP];

    dial(a, b, &b->id.id, 7);
    RUN_UNTIL(loop, a->toy.counts[EVENT_LINK_UP] > up_a &&
                        b->toy.counts[EVENT_LINK_UP] > up_b);
    return node_event(a, EVENT_LINK_UP, up_a)->event.link_up.link;
}

static inline void send_message(struct node *n,
                                uint32_t link,
                                uint16_t message,
                                uint32_t pattern,
                                uint32_t len)
{
    struct action *a = node_act(n, ACTION_SEND);

    a->send.link = link;
    a->send.message = message;
    a->send.bytes.at = pattern;
    a->send.bytes.len = len;
}

static inline void segment_act(struct node *n,
                               enum action_type type,
                               const struct node *peer,
                               uint64_t attempt,
                               uint32_t seg,
                               uint64_t offset,
                               uint32_t len)
{
    struct segment *s = &node_act(n, type)->segment;

    s->peer = peer->id.id;
    s->attempt = attempt;
    s->seg = seg;
    s->offset = offset;
    s->len = len;
}

/* ---- raw clients ------------------------------------------------------ */

struct raw {
    int fd;
    struct handshake shake;
    struct noise_cipher send, recv;
};

static inline void raw_connect(struct raw *r, uint16_t port)
{
    struct sockaddr_storage ss;
    struct address a = loopback(port);
    socklen_t len = address_to_sockaddr(&a, &ss);

    r->fd = socket(AF_INET, SOCK_STREAM, 0);
    assert_true(r->fd >= 0);
    assert_int_equal(connect(r->fd, (struct sockaddr *)&ss, len), 0);
}

/* Everything, while the loop turns; false when the other side closed. */
static inline bool
raw_write(struct raw *r, uv_loop_t *loop, const void *p, size_t len)
{
    uint64_t hang_ns = hang_at();
    size_t at = 0;

    while (at < len) {
        ssize_t n = send(r->fd, (const uint8_t *)p + at, len - at,
                         MSG_DONTWAIT | MSG_NOSIGNAL);

        if (n > 0) {
            at += (size_t)n;
        } else if (errno != EAGAIN) {
            return false;
        }
        uv_run(loop, UV_RUN_NOWAIT);
        assert_true(uv_hrtime() < hang_ns);
    }
    return true;
}

/* Exactly len bytes; false at the end of the stream. */
static inline bool raw_read(struct raw *r, uv_loop_t *loop, void *p, size_t len)
{
    uint64_t hang_ns = hang_at();
    size_t at = 0;

    while (at < len) {
        ssize_t n = recv(r->fd, (uint8_t *)p + at, len - at, MSG_DONTWAIT);

        if (n > 0) {
            at += (size_t)n;
        } else if (n == 0 || errno != EAGAIN) {
            return false;
        }
        uv_run(loop, UV_RUN_NOWAIT);
        assert_true(uv_hrtime() < hang_ns);
    }
    return true;
}

/* The other side closed without another byte. */
static inline bool raw_is_closed(struct raw *r, uv_loop_t *loop)
{
    uint8_t byte;

    return !raw_read(r, loop, &byte, 1);
}

/* Shake hands as `signer` with these feature bits. */
static inline void raw_shake_features(struct raw *r,
                                      uv_loop_t *loop,
                                      const struct signer *signer,
                                      enum connection_kind kind,
                                      uint64_t features)
{
    struct handshake_options opt = {
        .signer = signer, .version = HANDSHAKE_VERSION, .features = features};
    uint8_t ephemeral[32], wire[4 + HANDSHAKE_MESSAGE_MAX];
    int n;

    memset(opt.static_secret, 11, sizeof opt.static_secret);
    memset(ephemeral, 12, sizeof ephemeral);
    handshake_init(&r->shake, &opt, ephemeral, kind, NULL);
    n = handshake_write(&r->shake, wire + 4);
    put_u32(wire, (uint32_t)n);
    assert_true(raw_write(r, loop, wire, (size_t)n + 4));
    assert_true(raw_read(r, loop, wire, HANDSHAKE_2_BYTES + 4));
    assert_int_equal(handshake_read(&r->shake, wire + 4, HANDSHAKE_2_BYTES), 0);
    n = handshake_write(&r->shake, wire + 4);
    put_u32(wire, (uint32_t)n);
    assert_true(raw_write(r, loop, wire, (size_t)n + 4));
    assert_true(handshake_done(&r->shake));
    r->send = r->shake.noise.send;
    r->recv = r->shake.noise.recv;
}

static inline void raw_shake(struct raw *r,
                             uv_loop_t *loop,
                             const struct signer *signer,
                             enum connection_kind kind)
{
    raw_shake_features(r, loop, signer, kind, 0);
}

/* One sealed record of plain[len] into out; returns its bytes. */
static inline size_t
raw_seal(struct raw *r, const void *plain, size_t len, uint8_t *out)
{
    int n = noise_seal(&r->send, plain, len, out + 4);

    put_u32(out, (uint32_t)n);
    return (size_t)n + 4;
}

#endif
