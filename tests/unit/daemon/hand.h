/* hand.h - one real node and puppets around it, for node_test.c and
 * tests/fuzz/node_fuzz.c.
 *
 * The node runs as it is. Its machine answers every job at once (a model of
 * nothing: hashes are numbers) but training, which takes HAND_TRAIN_MS; its
 * data connections carry every segment at once, and its dials fail. A puppet is
 * a linked peer of which only the messages exist; while `obedient` it founds,
 * contributes, plans and votes as the node expects, so that rounds commit. The
 * node has the lowest id: it is the one that founds.
 *
 * Everything is static in this header. Failures abort().
 */
#ifndef LOCO_TESTS_UNIT_DAEMON_HAND_H
#define LOCO_TESTS_UNIT_DAEMON_HAND_H

#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/node_internal.h"
#include "p2p/view.h"

#define HAND_PUPPETS 3
#define HAND_EVENTS  8192
#define HAND_TYPES   256

#define HAND_TRAIN_MS 500

struct hand_message {
    size_t len;
    uint8_t *bytes;
};

struct hand {
    struct node *node;
    struct identity self, puppet[HAND_PUPPETS];
    struct signer pen, puppet_pen[HAND_PUPPETS];
    uint32_t n_puppets;
    uint32_t link[HAND_PUPPETS], next_link;
    struct run_terms terms;
    uint64_t now_ms, steps;
    bool obedient;
    struct out *out;
    void *scratch;
    struct event queue[HAND_EVENTS];
    uint32_t head, tail, overflow;
    uint64_t last_round; /* of which the puppets have voted */
    uint32_t n_sent[HAND_TYPES], n_send_segs, n_hang_ups, n_applied;
    struct hand_message last[HAND_TYPES]; /* that the node sent, by type */
    uint32_t last_to[HAND_TYPES];         /* over this link */
    uint32_t n_actions[ACTION_TYPE_COUNT];
    struct action last_action[ACTION_TYPE_COUNT];
    bool stopped, training;
    int load_rc; /* what a LOAD ends with */
    uint64_t trained_ms;
    struct local_event trained;
};

static inline void hand_check(bool good)
{
    if (!good) {
        abort();
    }
}

static inline void hand_post(struct hand *h, const struct event *e)
{
    if (h->tail - h->head == HAND_EVENTS) {
        h->overflow++;
        return;
    }
    h->queue[h->tail++ % HAND_EVENTS] = *e;
}

static inline void hand_local(struct hand *h, const struct local_event *l)
{
    struct event e = {.type = EVENT_LOCAL, .local = *l};

    hand_post(h, &e);
}

/* Queue a message of a puppet. The bytes live until it is delivered. */
static inline void hand_say_bytes(
    struct hand *h, uint32_t p, uint16_t type, const void *b, size_t n)
{
    struct event e = {
        .type = EVENT_RECV, .link = h->link[p], .message = type, .len = n};
    uint8_t *copy = malloc(n + 1);

    hand_check(copy != NULL);
    memcpy(copy, b, n);
    e.bytes = copy;
    if (h->link[p] == 0 || h->tail - h->head == HAND_EVENTS) {
        free(copy);
        return;
    }
    hand_post(h, &e);
}

static inline void
hand_say(struct hand *h, uint32_t p, enum message_type type, const void *obj)
{
    uint8_t *bytes = malloc(FRAME_CONTROL_MAX);
    int n;

    hand_check(bytes != NULL);
    n = msg_encode(message_schema((uint16_t)type), obj, bytes,
                   FRAME_CONTROL_MAX);
    if (n >= 0) {
        hand_say_bytes(h, p, (uint16_t)type, bytes, (size_t)n);
    }
    free(bytes);
}

static inline void hand_sign(struct hand *h,
                             uint32_t p,
                             const struct msg_schema *schema,
                             const void *body,
                             uint8_t *sig)
{
    hand_check(message_sign(&h->puppet_pen[p], schema, body, sig) == 0);
}

/* ---- what a good puppet does ------------------------------------------- */

static inline struct heartbeat hand_beat(const struct hand *h)
{
    const struct node *n = h->node;
    struct heartbeat b = {.life = 7, .configured = true, .ready = true};

    b.state = NODE_TRAINING;
    b.muster = (uint8_t)(h->n_puppets + 1); /* all are linked to all */
    b.has_view = n->ballot.have;
    b.epoch = n->ballot.have ? n->ballot.cert.body.epoch : 0;
    b.view = n->ballot.hash;
    b.round = n->applied.round;
    b.tokens = n->applied.tokens;
    b.commit = n->applied.commit;
    b.params = n->params_hash;
    b.state_hash = n->state_hash;
    return b;
}

static inline void hand_answer_prepare(struct hand *h, uint32_t p)
{
    const struct prepare *q = h->scratch;
    struct promise m = {.body = {.epoch = q->epoch,
                                 .view = q->view,
                                 .mode = q->mode,
                                 .ballot = q->ballot}};

    m.body.round = h->node->known.round;
    m.body.tokens = h->node->known.tokens;
    m.body.commit = h->node->known.commit;
    hand_sign(h, p, &promise_body_schema, &m.body, m.sig);
    hand_say(h, p, MESSAGE_PROMISE, &m);
}

static inline void hand_answer_accept(struct hand *h, uint32_t p)
{
    const struct accept *q = h->scratch;
    struct accepted m = {.epoch = q->epoch, .view = q->view};

    m.body.ballot = q->ballot;
    view_hash(&q->value, &m.body.view);
    hand_sign(h, p, &ballot_body_schema, &m.body, m.sig);
    hand_say(h, p, MESSAGE_ACCEPTED, &m);
}

/* Index of puppet p in the node's view, -1: none. */
static inline int hand_index(const struct hand *h, uint32_t p)
{
    return view_index_key(&h->node->ballot.cert.body, h->puppet[p].public);
}

static inline void hand_plan(struct hand *h, uint32_t p)
{
    const struct round *r = &h->node->round;
    const struct view_body *v = &h->node->ballot.cert.body;
    struct plan m = {.body = {.epoch = r->epoch,
                              .view = h->node->ballot.hash,
                              .round = r->round,
                              .base = r->base,
                              .state = r->state,
                              .tokens_before = r->tokens_before,
                              .n_members = v->n_members}};

    for (uint32_t k = 0; k < v->n_members; k++) {
        m.body.members[k] =
            (struct plan_member){.index = (uint8_t)k,
                                 .tokens = r->mine.tokens,
                                 .first_step = r->mine.first_step,
                                 .last_step = r->mine.last_step};
    }
    hand_sign(h, p, &plan_body_schema, &m.body, m.sig);
    hand_say(h, p, MESSAGE_PLAN, &m);
}

static inline void hand_answer_ready(struct hand *h, uint32_t p)
{
    const struct ready *q = h->scratch;
    struct ready m = {.body = q->body};

    if (!h->node->ballot.have || hand_index(h, p) < 0) {
        return;
    }
    hand_sign(h, p, &ready_body_schema, &m.body, m.sig);
    hand_say(h, p, MESSAGE_READY, &m);
    if ((uint32_t)hand_index(h, p) ==
        view_coordinator(&h->node->ballot.cert.body, m.body.round)) {
        hand_plan(h, p);
    }
}

static inline void hand_answer_vote(struct hand *h, uint32_t p)
{
    const struct vote *q = h->scratch;
    struct vote m = {.body = q->body};

    hand_sign(h, p, &vote_body_schema, &m.body, m.sig);
    hand_say(h, p, MESSAGE_VOTE, &m);
}

static inline void
hand_answer(struct hand *h, uint32_t p, const struct action *a)
{
    const struct msg_schema *schema = message_schema(a->message);

    if (schema == NULL) {
        return;
    }
    hand_check(
        msg_decode(schema, h->out->bytes + a->bytes, a->len, h->scratch) == 0);
    if (a->message == MESSAGE_HEARTBEAT || a->message == MESSAGE_PULSE) {
        struct heartbeat b = hand_beat(h);

        hand_say(h, p, MESSAGE_HEARTBEAT, &b);
    } else if (a->message == MESSAGE_PREPARE) {
        hand_answer_prepare(h, p);
    } else if (a->message == MESSAGE_ACCEPT) {
        hand_answer_accept(h, p);
    } else if (a->message == MESSAGE_READY) {
        hand_answer_ready(h, p);
    } else if (a->message == MESSAGE_VOTE) {
        hand_answer_vote(h, p);
    }
}

/* ---- the machine --------------------------------------------------------- */

static inline void hand_job(struct hand *h, const struct action *a)
{
    struct local_event l = {.round = a->round,
                            .buffer = a->buffer,
                            .index = a->index,
                            .request = a->request};

    l.params_hash.b[0] = (uint8_t)a->round;
    l.momentum_hash.b[1] = (uint8_t)a->round;
    l.hash.b[2] = 1;
    switch (a->type) {
    case ACTION_CONFIGURE:
        l.type = LOCAL_CONFIGURED;
        l.terms = &h->terms;
        break;
    case ACTION_LOAD:
        l.type = LOCAL_LOADED;
        l.rc = h->load_rc;
        break;
    case ACTION_TRAIN:
        l.type = LOCAL_TRAINED;
        l.inner_step = h->node->inner_step + a->steps;
        l.tokens = 64ULL * a->steps;
        h->training = true;
        h->trained_ms = h->now_ms + HAND_TRAIN_MS;
        h->trained = l;
        return;
    case ACTION_APPLY:
        l.type = LOCAL_APPLIED;
        h->n_applied++;
        break;
    case ACTION_EVAL:
        l.type = LOCAL_EVALUATED;
        l.bits_per_byte = 3;
        break;
    case ACTION_HASH:
        l.type = LOCAL_HASHED;
        break;
    case ACTION_VERIFY:
        l.type = LOCAL_VERIFIED;
        break;
    default:
        return;
    }
    hand_local(h, &l);
}

static inline uint32_t hand_puppet_of(const struct hand *h, uint32_t link)
{
    uint32_t p = 0;

    while (p < h->n_puppets && h->link[p] != link) {
        p++;
    }
    return p;
}

static inline void hand_keep(struct hand *h, const struct action *a)
{
    struct hand_message *m = &h->last[a->message % HAND_TYPES];
    uint8_t *bytes = realloc(m->bytes, a->len + 1U);

    hand_check(bytes != NULL);
    memcpy(bytes, h->out->bytes + a->bytes, a->len);
    m->bytes = bytes;
    m->len = a->len;
    h->last_to[a->message % HAND_TYPES] = a->link;
    h->n_sent[a->message % HAND_TYPES]++;
}

static inline void hand_action(struct hand *h, const struct action *a)
{
    struct event e = {0};
    uint32_t p;

    h->n_actions[a->type]++;
    h->last_action[a->type] = *a;
    switch (a->type) {
    case ACTION_SEND:
        hand_keep(h, a);
        p = hand_puppet_of(h, a->link);
        if (p < h->n_puppets && h->obedient) {
            hand_answer(h, p, a);
        }
        return;
    case ACTION_HANG_UP:
        h->n_hang_ups++;
        p = hand_puppet_of(h, a->link);
        if (p < h->n_puppets) {
            h->link[p] = 0;
        }
        e.type = EVENT_LINK_DOWN;
        e.link = a->link;
        hand_post(h, &e);
        return;
    case ACTION_DIAL:
        e.type = EVENT_DIAL_FAILED;
        e.request = a->request;
        e.address = a->address;
        e.rc = -111;
        hand_post(h, &e);
        return;
    case ACTION_POST_RECV:
    case ACTION_SEND_SEG:
        h->n_send_segs += a->type == ACTION_SEND_SEG;
        e.type = EVENT_SEG_DONE;
        e.sent = a->type == ACTION_SEND_SEG;
        e.segment = a->segment;
        hand_post(h, &e);
        return;
    case ACTION_STOP:
        h->stopped = true;
        return;
    default:
        hand_job(h, a);
        return;
    }
}

/* One event into the node; what it answers is carried out or queued. */
static inline void hand_step(struct hand *h, const struct event *event)
{
    struct event e = *event;

    e.now_ms = h->now_ms;
    e.wall_s = 1700000000U + h->now_ms / 1000;
    h->steps++;
    node_step(h->node, &e, h->out);
    hand_check(h->out->n <= CORE_OUT_MAX &&
               h->out->n_bytes <= CORE_OUT_BYTES_MAX);
    for (uint32_t i = 0; i < h->out->n; i++) {
        hand_action(h, &h->out->action[i]);
    }
    if (e.type == EVENT_RECV) {
        free((void *)(uintptr_t)e.bytes);
    }
}

/* At most `n` queued events. */
static inline void hand_drain(struct hand *h, uint32_t n)
{
    while (h->head != h->tail && n-- > 0) {
        struct event e = h->queue[h->head++ % HAND_EVENTS];

        hand_step(h, &e);
    }
}

/* Let `ms` pass: ticks when they are due, never without end. */
static inline void hand_wait(struct hand *h, uint64_t ms)
{
    uint64_t end = h->now_ms + ms;
    struct event tick = {.type = EVENT_TICK};
    uint32_t same = 0;

    for (;;) {
        uint64_t due;

        hand_drain(h, HAND_EVENTS);
        due = node_deadline(h->node);
        if (h->training && h->trained_ms <= due && h->trained_ms <= end) {
            h->training = false;
            h->now_ms = h->trained_ms > h->now_ms ? h->trained_ms : h->now_ms;
            hand_local(h, &h->trained);
            continue;
        }
        if (due > end) {
            break;
        }
        if (due > h->now_ms) {
            h->now_ms = due;
            same = 0;
        }
        hand_check(same++ < 200); /* ticks without end in one millisecond */
        hand_step(h, &tick);
    }
    h->now_ms = end;
}

static inline void hand_link(struct hand *h, uint32_t p)
{
    struct event e = {.type = EVENT_LINK_UP,
                      .link = ++h->next_link,
                      .inbound = true,
                      .peer = h->puppet[p].id,
                      .address = {.port = (uint16_t)(4001 + p)}};
    struct hello hello = {
        .life = 7, .oldest = PROTO_OLDEST, .newest = PROTO_NEWEST};
    struct heartbeat b;

    memcpy(e.public_key, h->puppet[p].public, 32);
    h->link[p] = e.link;
    hand_post(h, &e);
    hand_say(h, p, MESSAGE_HELLO, &hello);
    b = hand_beat(h);
    hand_say(h, p, MESSAGE_HEARTBEAT, &b);
}

static inline void hand_terms(struct run_terms *t, uint32_t n)
{
    memset(t, 0, sizeof *t);
    t->n_params = 256;
    t->block = 16;
    t->segment_elements = 64;
    t->period = 5;
    t->min_peers = n;
    t->grace_ms = 2000;
    t->fork_after_ms = 30000;
    t->progress_floor_bytes_per_s = 1000;
    t->segment_wire_bytes = 128;
    t->state_bytes = 2048;
    t->piece_bytes = 1024;
    t->eval_every = 2;
    t->n_shards = 1;
    t->shards[0].bytes = 1000;
    t->shards[0].held = true;
}

/* A node and n_puppets linked peers; nothing has happened yet. */
static inline struct hand *hand_open(uint32_t n_puppets)
{
    static const uint8_t manifest[] = "a manifest";
    struct hand *h = calloc(1, sizeof *h);
    struct node_options o = {.dialable = true,
                             .listen_port = 4000,
                             .relay_bytes_per_hour = 1 << 20,
                             .seed = 1,
                             .manifest = manifest,
                             .manifest_len = sizeof manifest,
                             .time_scale = 1};
    uint64_t number = 0;

    hand_check(h != NULL);
    h->n_puppets = n_puppets;
    h->obedient = true;
    h->now_ms = 1000;
    h->out = calloc(1, sizeof *h->out);
    h->scratch = malloc(message_struct_max());
    hand_check(h->out != NULL && h->scratch != NULL);
    hand_terms(&h->terms, n_puppets + 1);
    identity_fake(&h->self, number);
    for (uint32_t p = 0; p < n_puppets; p++) {
        do {
            identity_fake(&h->puppet[p], ++number);
        } while (id_cmp(&h->puppet[p].id, &h->self.id) < 0);
        h->puppet_pen[p] = signer_keyed(&h->puppet[p]);
    }
    h->pen = signer_keyed(&h->self);
    o.self = h->self.id;
    memcpy(o.public_key, h->self.public, 32);
    o.signer = h->pen;
    hand_check(node_open(&h->node, &o, h->now_ms) == 0);
    for (uint32_t p = 0; p < n_puppets; p++) {
        hand_link(h, p);
    }
    return h;
}

static inline void hand_close(struct hand *h)
{
    while (h->head != h->tail) {
        struct event *e = &h->queue[h->head++ % HAND_EVENTS];

        if (e->type == EVENT_RECV) {
            free((void *)(uintptr_t)e->bytes);
        }
    }
    for (uint32_t k = 0; k < HAND_TYPES; k++) {
        free(h->last[k].bytes);
    }
    node_close(h->node);
    free(h->out);
    free(h->scratch);
    free(h);
}

#endif
