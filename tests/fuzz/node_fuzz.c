/* node_fuzz.c - arbitrary events into a whole node that is a member of a view
 * of three: it never crashes, never asserts, never ticks without end, and says
 * no more than fits.
 *
 * The input is a program. Besides raw bytes as messages, the node's own
 * messages come back to it changed and properly signed by a member: what a
 * liar inside the view can say.
 */
#include "proto/base/err.h"
#include "tests/unit/daemon/hand.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define STEPS_MAX 20000

struct input {
    const uint8_t *at, *end;
};

static uint8_t u8(struct input *in)
{
    return in->at < in->end ? *in->at++ : 0;
}

static uint64_t number(struct input *in)
{
    uint64_t x = 0;

    for (uint8_t n = u8(in) % 9; n > 0; n--) {
        x = x << 8 | u8(in);
    }
    return x;
}

/* Where the signature of a message stands, and what it covers. A JOIN proves
 * that its sender holds the state, one in two. */
static void sign_again(struct hand *h, uint32_t p, uint16_t type, void *obj)
{
    if (type == MESSAGE_JOIN && ((struct join *)obj)->body.proof.b[0] % 2 > 0) {
        hand_prove(h, p, &((struct join *)obj)->body);
    }
    switch (type) {
#define SIGNED(NAME, name)                                                     \
    case MESSAGE_##NAME: {                                                     \
        struct name *m = obj;                                                  \
                                                                               \
        hand_sign(h, p, &name##_body_schema, &m->body, m->sig);                \
        return;                                                                \
    }
        SIGNED(GOODBYE, goodbye)
        SIGNED(PROMISE, promise)
        SIGNED(JOIN, join)
        SIGNED(READY, ready)
        SIGNED(PLAN, plan)
        SIGNED(VOTE, vote)
        SIGNED(EVALUATED, evaluated)
        SIGNED(FORWARD, forward)
        SIGNED(PRESENT, present)
#undef SIGNED
    case MESSAGE_ACCEPTED: {
        struct accepted *m = obj;

        hand_sign(h, p, &ballot_body_schema, &m->body, m->sig);
        return;
    }
    default:
        return;
    }
}

/* The last message of this type that the node sent, with some bytes changed,
 * as its own word of puppet p. */
static void echo(struct hand *h, struct input *in)
{
    uint32_t p = u8(in) % h->n_puppets;
    uint16_t type = u8(in), changes = u8(in) % 8;
    const struct hand_message *m = &h->last[type];
    const struct msg_schema *schema = message_schema(type);
    uint8_t *bytes;

    if (m->len == 0 || schema == NULL) {
        return;
    }
    bytes = malloc(m->len);
    hand_check(bytes != NULL);
    memcpy(bytes, m->bytes, m->len);
    while (changes-- > 0) {
        uint32_t at = (uint32_t)u8(in) << 8 | u8(in);

        bytes[at % m->len] = u8(in);
    }
    if (msg_decode(schema, bytes, m->len, h->scratch) == 0) {
        sign_again(h, p, type, h->scratch);
        hand_say(h, p, (enum message_type)type, h->scratch);
    }
    free(bytes);
}

static void raw(struct hand *h, struct input *in)
{
    uint32_t p = u8(in) % h->n_puppets;
    uint16_t type = u8(in);
    size_t n = u8(in), left = (size_t)(in->end - in->at);

    n = n > left ? left : n;
    hand_say_bytes(h, p, type, in->at, n);
    in->at += n;
}

static void segment_done(struct hand *h, struct input *in)
{
    struct event e = {.type = EVENT_SEG_DONE, .seg_done.sent = u8(in) % 2};

    e.seg_done.rc = u8(in) % 3 == 0 ? -30013 : 0;
    e.seg_done.segment.peer = h->puppet[u8(in) % h->n_puppets].id;
    e.seg_done.segment.stream = u8(in) % STREAM_COUNT;
    e.seg_done.segment.attempt =
        u8(in) % 2 == 0 ? h->in.round->exchange.attempt
                        : h->in.transfer->attempt; /* of the last source */
    e.seg_done.segment.seg = (uint32_t)number(in);
    if (h->terms.pairs) {
        e.seg_done.segment.attempt =
            e.seg_done.sent ? h->in.pair->to_attempt : h->in.pair->attempt;
        e.seg_done.segment.seg =
            u8(in) % 2 == 0 ? h->in.pair->got : e.seg_done.segment.seg;
    }
    if (h->in.round->terms.exchange == EXCHANGE_BUTTERFLY) {
        e.seg_done.segment.op = (enum segment_op)(u8(in) % SEGMENT_OP_COUNT);
        e.seg_done.segment.lane = u8(in);
        e.seg_done.segment.seg |= u8(in) % 2 == 0 ? BUTTERFLY_FINAL : 0;
    }
    hand_post(h, &e);
}

/* All numbers are read, whatever the kind has of them: an input stays the
 * program that it was. */
static void payload(struct local_event *l, struct input *in)
{
    uint64_t round = number(in), inner_step = number(in), tokens = number(in);
    enum buffer_kind buffer = (enum buffer_kind)(u8(in) % BUFFER_KIND_COUNT);
    uint64_t index = number(in), request = number(in);

    switch (l->type) {
    case LOCAL_LOADED:
        l->loaded = (struct report_state){
            .round = round, .inner_step = inner_step, .tokens = tokens};
        break;
    case LOCAL_APPLIED:
        l->applied = (struct report_state){
            .round = round, .inner_step = inner_step, .tokens = tokens};
        break;
    case LOCAL_PROGRESS:
        l->progress = (struct report_progress){.inner_step = inner_step,
                                               .tokens = tokens};
        break;
    case LOCAL_TRAINED:
        l->trained = (struct report_trained){
            .round = round, .inner_step = inner_step, .tokens = tokens};
        break;
    case LOCAL_EVALUATED:
        l->evaluated.round = round;
        break;
    case LOCAL_HASHED:
        l->hashed = (struct report_hashed){
            .buffer = buffer, .index = index, .request = request};
        break;
    case LOCAL_INHERITED:
        l->inherited.request = request;
        break;
    case LOCAL_VERIFIED:
        l->verified = (struct report_verified){
            .buffer = buffer, .index = index, .request = request};
        break;
    case LOCAL_DOWNLOADING:
        l->downloading.index = index;
        break;
    case LOCAL_DOWNLOADED:
        l->downloaded.index = index;
        break;
    case LOCAL_AUDITED:
        l->audited = (struct report_audited){
            .round = round, .offset = inner_step, .wrong = tokens % 2 > 0};
        break;
    case LOCAL_PIPED:
        l->piped = (struct report_piped){
            .index = index, .inner_step = inner_step, .tokens = tokens};
        break;
    default:
        break;
    }
}

/* What the machine could report, in any order. */
static void local_event(struct hand *h, struct input *in)
{
    struct local_event l = {.type =
                                (enum local_type)(u8(in) % LOCAL_TYPE_COUNT)};

    if (l.type == LOCAL_CONFIGURED || l.type == LOCAL_DRAIN) {
        return; /* once at the start; the end */
    }
    l.rc = u8(in) % 4 == 0 ? -30007 : 0;
    payload(&l, in);
    hand_local(h, &l);
}

static void link_event(struct hand *h, struct input *in)
{
    uint32_t p = u8(in) % h->n_puppets;
    struct event e = {.type = EVENT_LINK_DOWN, .link_down.link = h->link[p]};

    if (u8(in) % 2 == 0) {
        hand_link(h, p);
    } else if (h->link[p] != 0) {
        h->link[p] = 0;
        hand_post(h, &e);
    }
}

/* What the shell tells of probes and of connections to be carried. */
static void relay_event(struct hand *h, struct input *in)
{
    static const enum event_type types[] = {EVENT_PROBED,      EVENT_RELAY,
                                            EVENT_RELAY_MOVED, EVENT_MET,
                                            EVENT_BULK_MET,    EVENT_PUNCHED};
    struct event e = {.type = types[u8(in) % 6]};
    uint64_t request = number(in);
    int rc = u8(in) % 2 == 0 ? 0 : -30013;
    const struct peer_id *peer = &h->puppet[u8(in) % h->n_puppets].id;
    const struct peer_id *other = &h->puppet[u8(in) % h->n_puppets].id;
    uint64_t token = number(in), n_bytes = number(in);

    if (e.type == EVENT_PROBED) {
        e.probed = (struct event_probed){request, rc};
    } else if (e.type == EVENT_RELAY) {
        e.relay = (struct event_relay){.request = request,
                                       .peer = *peer,
                                       .other = *other,
                                       .token = token,
                                       .meet = n_bytes % 2 == 1};
        e.relay.from.port = (uint16_t)n_bytes;
    } else if (e.type == EVENT_MET) {
        e.met = (struct event_met){
            .meeting = request, .peer = *peer, .relay = *other};
        put_u64(e.met.address.ip + 8, token);
        e.met.address.port = (uint16_t)n_bytes;
        e.met.request = n_bytes >> 16;
    } else if (e.type == EVENT_PUNCHED) {
        e.punched.up = rc == 0;
        put_u64(e.punched.address.ip + 8, token);
        e.punched.address.port = (uint16_t)n_bytes;
    } else if (e.type == EVENT_BULK_MET) {
        e.bulk_met = (struct event_bulk_met){*peer, rc == 0, token % 2 == 1};
    } else {
        e.relay_moved = (struct event_relay_moved){request, n_bytes, rc};
    }
    hand_post(h, &e);
}

/* Runs with audits: that a block of the last commit is wrong. */
static void accuse(struct hand *h, uint32_t p, struct input *in)
{
    const struct audit_commit *c = &h->in.audit->core.commit;
    struct accuse m = {.round = c->round, .commit = c->hash};

    m.offset = number(in) % (2 * h->terms.n_params);
    m.commit.b[0] ^= u8(in) % 8 == 7;
    hand_say(h, p, MESSAGE_ACCUSE, &m);
}

/* A FETCH of our contribution, or of one that we collected. */
static void fetch_offer(struct hand *h, uint32_t p, struct input *in)
{
    const struct node_audit *a = h->in.audit;
    const struct audit_commit *c = &a->core.commit;
    uint8_t which = u8(in);
    struct fetch m = {
        .buffer = BUFFER_OFFER,
        .index = which % 4 < 2 ? a->own[which % 2].round : c->round,
        .offset = which % 4 < 3 ? u8(in) * 8ULL : a->found.offset,
        .len = u8(in) % 20,
        .attempt = number(in),
        .seg = u8(in),
        .stream = which % 16 < 15 ? STREAM_AUDIT : STREAM_FETCH,
        .root = which % 4 < 2 ? a->own[which % 2].offer
                              : c->offer[u8(in) % VIEW_MEMBERS_MAX],
    };

    hand_say(h, p, MESSAGE_FETCH, &m);
}

/* A contribution to the block that is looked at came, or something else. */
static void contribution(struct hand *h, uint32_t p, struct input *in)
{
    const struct audit *a = &h->in.audit->core;
    uint8_t how = u8(in), seg = u8(in) % VIEW_MEMBERS_MAX;
    const struct fetch_no no = {.attempt = a->attempt, .seg = seg};
    struct event e = {.type = EVENT_SEG_DONE};

    e.seg_done.rc = how % 4 == 0 ? LOCO_EHASH : 0;
    e.seg_done.sent = how % 8 == 7;
    e.seg_done.segment = (struct segment){.peer = h->puppet[p].id,
                                          .stream = STREAM_AUDIT,
                                          .attempt = a->attempt,
                                          .seg = seg,
                                          .buffer = BUFFER_OFFER};
    if (how % 4 == 3) {
        hand_say(h, p, MESSAGE_FETCH_NO, &no);
    } else {
        hand_post(h, &e);
    }
}

static void audit_event(struct hand *h, struct input *in)
{
    const struct audit *a = &h->in.audit->core;
    uint8_t what = u8(in);
    uint32_t p = u8(in) % h->n_puppets;
    struct local_event l = {.type = LOCAL_AUDITED,
                            .audited = {.round = a->commit.round,
                                        .offset = a->block.offset,
                                        .wrong = what / 8 % 2 > 0}};

    switch (what % 6) {
    case 0:
        accuse(h, p, in);
        break;
    case 1:
        fetch_offer(h, p, in);
        break;
    case 2:
        contribution(h, p, in);
        break;
    case 3:
        hand_local(h, &l);
        break;
    case 4:
        h->bulk_by_hand = what / 8 % 2 > 0;
        break;
    default:
        h->sums_wrong = what / 8 % 2 > 0;
        break;
    }
}

static void one(struct hand *h, struct input *in)
{
    struct event e = {.type = EVENT_SAVE_FAILED, .save_failed.rc = -30008};

    switch (u8(in) % 10) {
    case 0:
        hand_wait(h, u8(in) * 4U);
        break;
    case 1:
        raw(h, in);
        break;
    case 2:
    case 3:
        echo(h, in);
        break;
    case 4:
        segment_done(h, in);
        break;
    case 5:
        local_event(h, in);
        break;
    case 6:
        link_event(h, in);
        break;
    case 7:
        h->obedient = u8(in) % 2 == 0;
        break;
    case 8:
        if (h->terms.audits) {
            audit_event(h, in);
        } else {
            relay_event(h, in);
        }
        break;
    default:
        if (u8(in) % 2 == 0) {
            hand_post(h, &e);
        } else {
            h->now_ms += number(in) % 100000; /* it slept */
        }
        break;
    }
    hand_drain(h, 64);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct input in = {.at = data, .end = data + size};
    struct hand *h = hand_open(2);

    /* The last byte: the rest stays the program that it was. */
    if (size > 0 && data[size - 1] % 2 == 1) {
        h->terms.exchange = EXCHANGE_BUTTERFLY;
    }
    h->terms.audits = size > 0 && data[size - 1] % 4 == 3;
    h->terms.audits_work = h->terms.audits && data[size - 1] % 8 == 7;
    h->terms.pairs = size > 0 && data[size - 1] % 8 == 2;
    h->terms.min_peers = h->terms.pairs ? 1 : h->terms.min_peers;
    hand_wait(h, 4000);
    hand_check(h->terms.pairs ? h->in.pair->turn > 0 : h->in.ballot->have);
    while (in.at < in.end && h->steps < STEPS_MAX) {
        one(h, &in);
    }
    hand_wait(h, 3000);
    hand_close(h);
    return 0;
}
