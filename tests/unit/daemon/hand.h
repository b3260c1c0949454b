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
 * The node is looked at by `in`, and changed by events only: what a test says
 * goes through hand_say(), hand_local() or hand_post(), and hand_wait().
 *
 * Everything is static in this header. Failures abort().
 */
#ifndef LOCO_TESTS_UNIT_DAEMON_HAND_H
#define LOCO_TESTS_UNIT_DAEMON_HAND_H

#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/node/inspect.h"
#include "p2p/round/view.h"
#include "proto/messages.h"

#define HAND_PUPPETS 3
#define HAND_EVENTS  8192
#define HAND_TYPES   256

#define HAND_TRAIN_MS 500

#define HAND_LOG       4096 /* actions */
#define HAND_LOG_BYTES (1 << 16)

/* How a node begins, where not as hand_open() has it. */
struct hand_options {
    struct node_options node;
    bool highest; /* its id is above those of all puppets */
};

struct hand_message {
    size_t len;
    uint8_t *bytes;
};

struct hand {
    struct node *node;
    struct node_parts in;
    struct identity self, puppet[HAND_PUPPETS];
    struct signer pen, puppet_pen[HAND_PUPPETS];
    uint64_t n_verified; /* signatures, by the node */
    uint32_t n_puppets;
    uint32_t link[HAND_PUPPETS], next_link;
    struct address from[HAND_PUPPETS]; /* of which they link; zero: none */
    struct run_terms terms;
    uint64_t now_ms, steps;
    bool obedient;
    uint64_t life; /* in the puppets' HELLO */
    /* Puppet p says this heartbeat; without it, one of the node's own state in
     * that stage (0: none). */
    uint16_t stage[HAND_PUPPETS];
    bool has_beat[HAND_PUPPETS];
    struct heartbeat beat[HAND_PUPPETS];
    uint64_t tokens;   /* in the puppets' READY; 0: as the node's */
    uint64_t train_ms; /* of a task */
    bool bulk_by_hand; /* segments are done when a test says so */
    bool sums_wrong;   /* what an AUDIT finds.. */
    bool sums_by_hand; /* ..unless a test says so */
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
    uint32_t n_jobs[JOB_TYPE_COUNT];
    struct job last_job[JOB_TYPE_COUNT];
    struct action *log; /* since hand_forget(); bytes of messages: `said` */
    uint32_t n_log, n_said;
    uint8_t *said;
    bool stopped, training;
    bool hashes_later;          /* an APPLY is answered with PLACED ... */
    struct local_event applied; /* ... and later, by the test, with this */
    int load_rc;                /* what a LOAD ends with */
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
    struct event e = {.type = EVENT_RECV,
                      .recv.link = h->link[p],
                      .recv.message = type,
                      .recv.len = n};
    uint8_t *copy = malloc(n + 1);

    hand_check(copy != NULL);
    memcpy(copy, b, n);
    e.recv.bytes = copy;
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
    const struct ballot *view = h->in.ballot;
    const struct node_held *held = h->in.held;
    struct heartbeat b = {.life = 7, .configured = true, .ready = true};

    b.state = NODE_TRAINING;
    b.linked_candidates = (uint8_t)(h->n_puppets + 1); /* all to all */
    b.has_view = view->have;
    b.epoch = view->have ? view->cert.body.epoch : 0;
    b.view = view->hash;
    b.round = held->applied.round;
    b.tokens = held->applied.tokens;
    b.commit = held->applied.commit;
    b.params = held->params_hash;
    b.state_hash = held->state_hash;
    return b;
}

static inline void hand_say_beat(struct hand *h, uint32_t p)
{
    struct heartbeat b = h->has_beat[p] ? h->beat[p] : hand_beat(h);

    if (!h->has_beat[p] && h->stage[p] > 0) {
        b.stage = h->stage[p];
        b.linked_candidates = 2; /* the node and this one */
    }
    hand_say(h, p, MESSAGE_HEARTBEAT, &b);
}

/* From now on puppet p says this one. */
static inline void
hand_set_beat(struct hand *h, uint32_t p, const struct heartbeat *b)
{
    h->has_beat[p] = true;
    h->beat[p] = *b;
    hand_say_beat(h, p);
}

static inline void hand_answer_prepare(struct hand *h, uint32_t p)
{
    const struct prepare *q = h->scratch;
    struct promise m = {.body = {.epoch = q->epoch,
                                 .view = q->view,
                                 .mode = q->mode,
                                 .ballot = q->ballot},
                        .joiners_linked = UINT32_MAX};

    m.body.said.edges = UINT64_MAX;
    m.body.said.round = h->in.held->known.round;
    m.body.said.tokens = h->in.held->known.tokens;
    m.body.said.commit = h->in.held->known.commit;
    hand_sign(h, p, &promise_body_schema, &m.body, m.sig);
    hand_say(h, p, MESSAGE_PROMISE, &m);
}

static inline void hand_answer_accept(struct hand *h, uint32_t p)
{
    const struct accept *q = h->scratch;
    struct accepted m = {.epoch = q->epoch, .view = q->view};

    m.body.ballot = q->ballot;
    view_hash(&q->of.proposal.value, &m.body.view);
    hand_sign(h, p, &ballot_body_schema, &m.body, m.sig);
    hand_say(h, p, MESSAGE_ACCEPTED, &m);
}

/* Index of puppet p in the node's view, -1: none. */
static inline int hand_index(const struct hand *h, uint32_t p)
{
    return view_index_key(&h->in.ballot->cert.body, h->puppet[p].public);
}

/* What a member announces with audits: the node (0), or another one. */
static inline struct hash32 hand_offer(const struct hand *h, uint32_t which)
{
    struct hash32 offer = h->in.round->mine.offer;

    offer.b[0] ^= h->terms.audits ? (uint8_t)which : 0;
    return offer;
}

static inline void hand_plan(struct hand *h, uint32_t p)
{
    const struct round *r = h->in.round;
    const struct view_body *v = &h->in.ballot->cert.body;
    struct plan m = {.body = {.epoch = r->epoch,
                              .view = h->in.ballot->hash,
                              .round = r->round,
                              .base = r->base,
                              .state = r->state,
                              .tokens_before = r->tokens_before,
                              .n_members = v->n_members}};

    for (uint32_t k = 0; k < v->n_members; k++) {
        bool other = (int)k != h->in.ballot->self_index;

        m.body.members[k] = (struct plan_member){
            .index = (uint8_t)k,
            .tokens = other && h->tokens > 0 ? h->tokens : r->mine.tokens,
            .first_step = r->mine.first_step,
            .last_step = r->mine.last_step,
            .share = h->terms.exchange == EXCHANGE_BUTTERFLY,
            .offer = hand_offer(h, other ? k + 1 : 0)};
    }
    hand_sign(h, p, &plan_body_schema, &m.body, m.sig);
    hand_say(h, p, MESSAGE_PLAN, &m);
}

static inline void hand_answer_ready(struct hand *h, uint32_t p)
{
    const struct ready *q = h->scratch;
    struct ready m = {.body = q->body};

    if (!h->in.ballot->have || hand_index(h, p) < 0) {
        return;
    }
    m.body.tokens = h->tokens > 0 ? h->tokens : m.body.tokens;
    m.body.offer = hand_offer(h, (uint32_t)hand_index(h, p) + 1);
    hand_sign(h, p, &ready_body_schema, &m.body, m.sig);
    hand_say(h, p, MESSAGE_READY, &m);
    if ((uint32_t)hand_index(h, p) ==
        view_coordinator(&h->in.ballot->cert.body, m.body.round)) {
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
hand_answer(struct hand *h, uint32_t p, const struct action_send *m)
{
    const struct msg_schema *schema = message_schema(m->message);

    if (schema == NULL) {
        return;
    }
    hand_check(msg_decode(schema, h->out->bytes + m->bytes.at, m->bytes.len,
                          h->scratch) == 0);
    if (m->message == MESSAGE_HEARTBEAT || m->message == MESSAGE_PULSE) {
        hand_say_beat(h, p);
    } else if (m->message == MESSAGE_PREPARE) {
        hand_answer_prepare(h, p);
    } else if (m->message == MESSAGE_ACCEPT) {
        hand_answer_accept(h, p);
    } else if (m->message == MESSAGE_READY) {
        hand_answer_ready(h, p);
    } else if (m->message == MESSAGE_VOTE) {
        hand_answer_vote(h, p);
    }
}

/* ---- the machine --------------------------------------------------------- */

/* After a LOAD or an APPLY. */
static inline struct report_state hand_state(uint64_t round)
{
    struct report_state s = {.round = round};

    s.params_hash.b[0] = (uint8_t)round;
    s.momentum_hash.b[1] = (uint8_t)round;
    s.sample.b[2] = (uint8_t)round;
    return s;
}

/* Puppet p proves that it holds the state of the round that this JOIN names. */
static inline void
hand_prove(const struct hand *h, uint32_t p, struct join_body *j)
{
    const struct report_state s = hand_state(j->round);

    message_join_proof(j, &s.sample, &h->puppet[p].id, &j->proof);
}

static inline void hand_train(struct hand *h, const struct job_train *job)
{
    h->training = true;
    h->trained_ms = h->now_ms + h->train_ms;
    h->trained = (struct local_event){
        .type = LOCAL_TRAINED,
        .trained = {.round = job->round,
                    .inner_step = h->in.training->inner_step + job->steps,
                    .tokens = 64ULL * job->steps}};
}

static inline void hand_job(struct hand *h, const struct job *job)
{
    struct local_event l = {0};

    h->n_jobs[job->type]++;
    h->last_job[job->type] = *job;
    switch (job->type) {
    case JOB_CONFIGURE:
        l.type = LOCAL_CONFIGURED;
        l.configured.terms = &h->terms;
        break;
    case JOB_LOAD:
        l.type = LOCAL_LOADED;
        l.rc = h->load_rc;
        l.loaded = hand_state(job->load.round);
        break;
    case JOB_TRAIN:
        hand_train(h, &job->train);
        return;
    case JOB_APPLY:
    case JOB_PAIR:
        l.type = LOCAL_APPLIED;
        l.applied = hand_state(job->type == JOB_PAIR ? job->pair.turn
                                                     : job->apply.round);
        h->n_applied++;
        h->applied = l;
        if (h->hashes_later) {
            l = (struct local_event){.type = LOCAL_PLACED,
                                     .placed.round = l.applied.round};
        }
        break;
    case JOB_EVAL:
        l.type = LOCAL_EVALUATED;
        l.evaluated = (struct report_evaluated){.round = job->eval.round,
                                                .draw = job->eval.draw,
                                                .bits_per_byte = 3};
        break;
    case JOB_HASH:
        l.type = LOCAL_HASHED;
        l.hashed = (struct report_hashed){.buffer = job->hash.buffer,
                                          .index = job->hash.index,
                                          .request = job->hash.request,
                                          .hash.b[2] = 1};
        break;
    case JOB_VERIFY:
        l.type = LOCAL_VERIFIED;
        l.verified = (struct report_verified){.buffer = job->verify.buffer,
                                              .index = job->verify.index,
                                              .request = job->verify.request,
                                              .hash.b[2] = 1};
        break;
    case JOB_AUDIT:
        if (h->sums_by_hand) {
            return;
        }
        l.type = LOCAL_AUDITED;
        l.audited = (struct report_audited){.round = job->audit.round,
                                            .offset = job->audit.offset,
                                            .wrong = h->sums_wrong};
        break;
    case JOB_STOP:
        h->stopped = true;
        return;
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

static inline void hand_keep(struct hand *h, const struct action_send *send)
{
    struct hand_message *m = &h->last[send->message % HAND_TYPES];
    uint8_t *bytes = realloc(m->bytes, send->bytes.len + 1U);

    hand_check(bytes != NULL);
    memcpy(bytes, h->out->bytes + send->bytes.at, send->bytes.len);
    m->bytes = bytes;
    m->len = send->bytes.len;
    h->last_to[send->message % HAND_TYPES] = send->link;
    h->n_sent[send->message % HAND_TYPES]++;
}

static inline void hand_forget(struct hand *h)
{
    h->n_log = h->n_said = 0;
}

static inline void hand_log(struct hand *h, const struct action *a)
{
    struct action *copy = &h->log[h->n_log];

    if (h->n_log == HAND_LOG) {
        return;
    }
    *copy = *a;
    if (a->type == ACTION_SEND) {
        if (h->n_said + a->send.bytes.len > HAND_LOG_BYTES) {
            return;
        }
        memcpy(h->said + h->n_said, h->out->bytes + a->send.bytes.at,
               a->send.bytes.len);
        copy->send.bytes.at = h->n_said;
        h->n_said += a->send.bytes.len;
    }
    h->n_log++;
}

/* The k-th action of that type in the log; NULL: there is none. */
static inline const struct action *
hand_find(const struct hand *h, enum action_type type, uint32_t k)
{
    for (uint32_t i = 0; i < h->n_log; i++) {
        if (h->log[i].type == type && k-- == 0) {
            return &h->log[i];
        }
    }
    return NULL;
}

static inline uint32_t hand_count(const struct hand *h, enum action_type type)
{
    uint32_t n = 0;

    while (hand_find(h, type, n) != NULL) {
        n++;
    }
    return n;
}

/* The first job of that type in the log; NULL: there is none. */
static inline const struct job *hand_find_job(const struct hand *h,
                                              enum job_type type)
{
    for (uint32_t i = 0; i < h->n_log; i++) {
        if (h->log[i].type == ACTION_JOB && h->log[i].job.type == type) {
            return &h->log[i].job;
        }
    }
    return NULL;
}

/* The k-th message of that type in the log that went to puppet p, into `m`. */
static inline bool hand_heard(
    struct hand *h, uint32_t p, enum message_type type, uint32_t k, void *m)
{
    for (uint32_t i = 0; i < h->n_log; i++) {
        const struct action *a = &h->log[i];

        if (a->type == ACTION_SEND && a->send.message == (uint16_t)type &&
            hand_puppet_of(h, a->send.link) == p && k-- == 0) {
            hand_check(msg_decode(message_schema((uint16_t)type),
                                  h->said + a->send.bytes.at, a->send.bytes.len,
                                  m) == 0);
            return true;
        }
    }
    return false;
}

static inline void hand_action(struct hand *h, const struct action *a)
{
    struct event e = {0};
    uint32_t p;

    hand_log(h, a);
    h->n_actions[a->type]++;
    h->last_action[a->type] = *a;
    switch (a->type) {
    case ACTION_SEND:
        hand_keep(h, &a->send);
        p = hand_puppet_of(h, a->send.link);
        if (p < h->n_puppets && h->obedient) {
            hand_answer(h, p, &a->send);
        }
        return;
    case ACTION_HANG_UP:
        h->n_hang_ups++;
        p = hand_puppet_of(h, a->hang_up.link);
        if (p < h->n_puppets) {
            h->link[p] = 0;
        }
        e.type = EVENT_LINK_DOWN;
        e.link_down.link = a->hang_up.link;
        hand_post(h, &e);
        return;
    case ACTION_DIAL:
        e.type = EVENT_DIAL_FAILED;
        e.dial_failed.request = a->dial.request;
        e.dial_failed.address = a->dial.address;
        e.dial_failed.rc = -111;
        hand_post(h, &e);
        return;
    case ACTION_POST_RECV:
    case ACTION_SEND_SEG:
    case ACTION_SUM:
        h->n_send_segs += a->type == ACTION_SEND_SEG;
        if (h->bulk_by_hand) {
            return;
        }
        e.type = EVENT_SEG_DONE;
        e.seg_done.sent = a->type == ACTION_SEND_SEG;
        e.seg_done.segment = a->segment;
        hand_post(h, &e);
        return;
    case ACTION_JOB:
        hand_job(h, &a->job);
        return;
    default:
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
        free((void *)(uintptr_t)e.recv.bytes);
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

/* As hand_wait(), and then a tick, whether one is due or not. */
static inline void hand_pass(struct hand *h, uint64_t ms)
{
    const struct event tick = {.type = EVENT_TICK};

    hand_wait(h, ms);
    hand_step(h, &tick);
    hand_drain(h, HAND_EVENTS);
}

static inline void hand_link(struct hand *h, uint32_t p)
{
    struct event e = {.type = EVENT_LINK_UP,
                      .link_up.link = ++h->next_link,
                      .link_up.inbound = true,
                      .link_up.peer = h->puppet[p].id,
                      .link_up.address = h->from[p]};
    struct hello hello = {
        .life = h->life, .oldest = PROTO_OLDEST, .newest = PROTO_NEWEST};

    e.link_up.address.port = (uint16_t)(4001 + p);
    memcpy(e.link_up.public_key, h->puppet[p].public, 32);
    h->link[p] = e.link_up.link;
    hand_post(h, &e);
    hand_say(h, p, MESSAGE_HELLO, &hello);
    hand_say_beat(h, p);
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

/* The node and its puppets, who they are. */
static inline void hand_identify(struct hand *h, bool highest)
{
    uint64_t number = 0;

    identity_fake(&h->self, number);
    for (uint32_t p = 0; p < h->n_puppets; p++) {
        do {
            identity_fake(&h->puppet[p], ++number);
        } while ((id_cmp(&h->puppet[p].id, &h->self.id) > 0) == highest);
        h->puppet_pen[p] = signer_keyed(&h->puppet[p]);
    }
    h->pen = signer_keyed(&h->self);
}

static inline int hand_pen_sign(void *self,
                                const char *domain,
                                const void *bytes,
                                size_t len,
                                uint8_t sig[SIGN_BYTES])
{
    const struct hand *h = self;

    return h->pen.sign(h->pen.self, domain, bytes, len, sig);
}

static inline bool hand_pen_verify(void *self,
                                   const uint8_t public[SIGN_PUBLIC_BYTES],
                                   const char *domain,
                                   const void *bytes,
                                   size_t len,
                                   const uint8_t sig[SIGN_BYTES])
{
    struct hand *h = self;

    h->n_verified++;
    return h->pen.verify(h->pen.self, public, domain, bytes, len, sig);
}

/* A node and n_puppets linked peers; nothing has happened yet. */
static inline struct hand *hand_open_as(uint32_t n_puppets,
                                        const struct hand_options *opt)
{
    static const uint8_t manifest[] = "a manifest";
    struct hand *h = calloc(1, sizeof *h);
    struct node_options o = opt->node;

    hand_check(h != NULL);
    h->n_puppets = n_puppets;
    h->obedient = true;
    h->now_ms = 1000;
    h->life = 7;
    h->train_ms = HAND_TRAIN_MS;
    h->out = calloc(1, sizeof *h->out);
    h->scratch = malloc(message_struct_max());
    h->log = calloc(HAND_LOG, sizeof *h->log);
    h->said = malloc(HAND_LOG_BYTES);
    hand_check(h->out != NULL && h->scratch != NULL && h->log != NULL &&
               h->said != NULL);
    hand_terms(&h->terms, n_puppets + 1);
    hand_identify(h, opt->highest);
    o.dialable = true;
    o.listen_port = 4000;
    o.relay_bytes_per_hour = 1 << 20;
    o.seed = 1;
    o.manifest = manifest;
    o.manifest_len = sizeof manifest;
    o.time_scale = 1;
    o.self = h->self.id;
    memcpy(o.public_key, h->self.public, 32);
    o.signer = (struct signer){.self = h,
                               .public = h->pen.public,
                               .sign = hand_pen_sign,
                               .verify = hand_pen_verify};
    hand_check(node_open(&h->node, &o, h->now_ms) == 0);
    h->in = node_parts(h->node);
    for (uint32_t p = 0; p < n_puppets; p++) {
        hand_link(h, p);
    }
    return h;
}

static inline struct hand *hand_open(uint32_t n_puppets)
{
    const struct hand_options opt = {.highest = false};

    return hand_open_as(n_puppets, &opt);
}

static inline void hand_close(struct hand *h)
{
    while (h->head != h->tail) {
        struct event *e = &h->queue[h->head++ % HAND_EVENTS];

        if (e->type == EVENT_RECV) {
            free((void *)(uintptr_t)e->recv.bytes);
        }
    }
    for (uint32_t k = 0; k < HAND_TYPES; k++) {
        free(h->last[k].bytes);
    }
    node_close(h->node);
    free(h->out);
    free(h->scratch);
    free(h->log);
    free(h->said);
    free(h);
}

#endif
