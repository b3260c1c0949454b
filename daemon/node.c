/* node.c - a peer as one core: open, step, dispatch. See node_internal.h. */
#include "daemon/node.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/node_internal.h"
#include "proto/base/err.h"
#include "proto/base/log.h"
#include "proto/base/rng.h"
#include "proto/hash.h"

/* Longer without a step: the process slept, and silence proves nothing. */
#define GAP_MS 1000

static const struct node_timing timing_default = {
    .heartbeat_ms = 600,
    .suspect_ms = 1400,
    .dead_ms = 2400,
    .redial_ms = 1000,
    .ballot_ms = 2000,
    .plan_ms = 2000,
    .vote_ms = 3000,
    .hop_ms = 2000,
    .fetch_ms = 5000,
    .tick_ms = 250,
    .hedge_ms = 700,
    .probe_ms = 4000,
    .retest_ms = 300000,
    .upgrade_ms = 30000,
};

size_t node_bytes(void)
{
    struct dht_options opt = dht_options_default();

    return sizeof(struct node) + message_struct_max() + dht_bytes(&opt) +
           MANIFEST_BYTES_MAX + timeline_bytes(NODE_TIMELINE_MIN) +
           bandwidth_bytes(NODE_EDGES_MIN) + node_owners_bytes();
}

static struct node_timing timing_of(const struct node_options *opt)
{
    struct node_timing t = opt->timing;
    uint32_t scale = opt->time_scale > 0 ? opt->time_scale : 1;

#define TAKE(field)                                                            \
    t.field = (t.field != 0 ? t.field : timing_default.field) * scale
    TAKE(heartbeat_ms);
    TAKE(suspect_ms);
    TAKE(dead_ms);
    TAKE(redial_ms);
    TAKE(ballot_ms);
    TAKE(plan_ms);
    TAKE(vote_ms);
    TAKE(hop_ms);
    TAKE(fetch_ms);
    TAKE(hedge_ms);
    TAKE(probe_ms);
    TAKE(retest_ms);
    TAKE(upgrade_ms);
#undef TAKE
    t.tick_ms = t.tick_ms != 0 ? t.tick_ms : timing_default.tick_ms;
    return t;
}

static int open_members(struct node *n)
{
    struct members_options mo = {
        .self = n->opt.self,
        .seed = rng_next(&n->rng),
        .heartbeat_ms = n->t.heartbeat_ms,
        .suspect_ms = n->t.suspect_ms,
        .dead_ms = n->t.dead_ms,
        .redial_ms = n->t.redial_ms,
        .links_wanted = NODE_LINKS_WANTED,
        .hedge_ms = n->t.hedge_ms,
        .upgrade_ms = n->t.upgrade_ms,
        .signer = n->opt.signer,
        .life = n->life,
    };
    static const struct peer_id none;

    n->members_memory = malloc(members_bytes(&mo));
    if (n->members_memory == NULL) {
        return LOCO_ENOMEM;
    }
    members_init(&n->members, &mo, n->members_memory, n->now);
    n->members.observed.port = n->opt.dialable ? n->opt.listen_port : 0;
    n->members.pin = n->opt.pin;
    n->members.has_pin = !id_eq(&n->opt.pin, &none);
    for (unsigned i = 0; i < n->opt.n_bootstrap; i++) {
        members_bootstrap_add(&n->members, &n->opt.bootstrap[i]);
    }
    return 0;
}

static void open_pair(struct node *n)
{
    struct peer_id run;
    struct pair_options po = {
        .self = n->opt.self,
        .life = n->life,
        .first_attempt = (rng_next(&n->rng) >> 24) << 20,
        .hop_ms = n->t.hop_ms,
    };

    memcpy(run.b, n->opt.run_id.b, sizeof run.b);
    po.seed = id_u64(&run);
    pair_init(&n->pair, &po, &n->members);
    n->final_peer = MEMBERS_NONE;
}

static int open_cores(struct node *n)
{
    struct ballot_options bo = {
        .self = n->opt.self,
        .signer = n->opt.signer,
        .run = n->opt.run_id,
        .ballot_ms = n->t.ballot_ms,
        .fork_after_ms = 30000U * n->opt.time_scale,
        .seed = rng_next(&n->rng),
    };
    struct round_options ro = {
        .self = n->opt.self,
        .signer = n->opt.signer,
        .bandwidth = &n->bandwidth,
        .record = &n->record,
        .text = &n->text,
        .site = n->opt.site,
        .plan_ms = n->t.plan_ms,
        .vote_ms = n->t.vote_ms,
        .hop_ms = n->t.hop_ms,
    };

    memcpy(bo.public_key, n->opt.public_key, sizeof bo.public_key);
    if (open_members(n) != 0) {
        return LOCO_ENOMEM;
    }
    ballot_init(&n->ballot, &bo, &n->members, n->now);
    round_init(&n->round, &ro, &n->members, &n->ballot);
    open_pair(n);
    /* Attempts must not repeat those of an earlier life of this process. */
    transfer_init(&n->transfer, &n->members, n->t.fetch_ms,
                  (rng_next(&n->rng) >> 24) << 20);
    return 0;
}

static int open_record(struct node *n)
{
    struct ballot_record *record;
    int rv;

    if (n->opt.record == NULL) {
        return 0;
    }
    record = malloc(sizeof *record);
    if (record == NULL) {
        return LOCO_ENOMEM;
    }
    rv = msg_decode(&ballot_record_schema, n->opt.record, n->opt.record_len,
                    record);
    if (rv == 0) {
        ballot_restore(&n->ballot, record);
    }
    free(record);
    return rv == 0 ? 0 : LOCO_EFORMAT;
}

int node_open(struct node **node,
              const struct node_options *opt,
              uint64_t now_ms)
{
    struct node *n = calloc(1, sizeof *n);
    int rv;

    if (n == NULL) {
        return LOCO_ENOMEM;
    }
    n->opt = *opt;
    n->group = opt->run_id;
    n->opt.time_scale = opt->time_scale > 0 ? opt->time_scale : 1;
    n->opt.oldest = opt->oldest > 0 ? opt->oldest : PROTO_OLDEST;
    n->opt.newest = opt->newest > 0 ? opt->newest : PROTO_NEWEST;
    n->t = timing_of(opt);
    n->now = n->started_ms = n->wake_ms = now_ms;
    n->rng = opt->seed;
    n->life = rng_next(&n->rng) | 1;
    n->scratch = malloc(message_struct_max());
    n->manifest = malloc(MANIFEST_BYTES_MAX);
    if (n->scratch == NULL || n->manifest == NULL) {
        node_close(n);
        return LOCO_ENOMEM;
    }
    rv = open_cores(n);
    rv = rv == 0 ? node_dht_open(n) : rv;
    rv = rv == 0 ? node_timeline_open(n) : rv;
    rv = rv == 0 ? node_bandwidth_open(n) : rv;
    rv = rv == 0 ? node_proof_open(n) : rv;
    rv = rv == 0 ? node_owners_open(n) : rv;
    rv = rv == 0 ? node_reach_open(n) : rv;
    rv = rv == 0 ? open_record(n) : rv;
    if (rv != 0) {
        node_close(n);
        return rv;
    }
    if (opt->manifest != NULL && opt->manifest_len <= MANIFEST_BYTES_MAX) {
        memcpy(n->manifest, opt->manifest, opt->manifest_len);
        n->manifest_len = n->manifest_got = (uint32_t)opt->manifest_len;
    }
    *node = n;
    return 0;
}

void node_close(struct node *n)
{
    if (n == NULL) {
        return;
    }
    node_proof_close(n);
    free(n->owners);
    free(n->bandwidth_memory);
    free(n->timeline_memory);
    free(n->dht_memory);
    free(n->members_memory);
    free(n->probe_memory);
    free(n->manifest);
    free(n->scratch);
    free(n);
}

void node_set_port(struct node *n, uint16_t port)
{
    n->opt.listen_port = port;
    n->members.observed.port = n->opt.dialable ? port : 0;
}

struct hash32 node_state_hash(const struct hash32 *params,
                              const struct hash32 *momentum)
{
    struct hash32 pair[2] = {*params, *momentum}, out;

    hash_bytes("loco-state-1", pair, sizeof pair, &out);
    return out;
}

bool node_point_eq(const struct node_point *a, const struct node_point *b)
{
    return a->round == b->round && hash32_eq(&a->commit, &b->commit);
}

struct ballot_context node_context(struct node *n)
{
    struct ballot_context c = {
        .now_ms = n->now,
        .out = n->out,
        .in_flight = n->round.has_plan && n->round.phase != ROUND_COMMITTED,
        .coordinates = round_coordinates(&n->round),
        .may_found = !n->ballot.have && n->loaded && !n->applying &&
                     n->data_ready && !n->draining && !node_sees_view(n) &&
                     node_stage_may_found(n),
    };

    c.closing.round = n->known.round;
    c.closing.tokens = n->known.tokens;
    c.closing.commit = n->known.commit;
    if (n->ballot.have) {
        round_closing(&n->round, &c.closing);
    }
    if (terms_owned(&n->terms)) {
        node_owners_closing(n, &c);
    }
    return c;
}

struct heartbeat node_heartbeat(struct node *n)
{
    struct heartbeat h = {
        .life = n->life,
        .configured = n->configured,
        .ready = n->loaded && n->data_ready && !n->draining,
        .has_view = n->terms.pairs ? n->loaded && !n->draining : n->ballot.have,
        .epoch = n->ballot.have || n->ballot.restored
                     ? n->ballot.cert.body.epoch
                     : 0,
        .round = n->applied.round,
        .tokens = n->applied.tokens,
        .commit = n->applied.commit,
        .params = n->params_hash,
        .state_hash = n->state_hash,
        .inner_step = n->inner_step,
        .own_tokens = n->own_tokens,
        .tokens_per_s = (uint32_t)n->tokens_per_s,
        .reach = (uint8_t)reach_class(&n->reach),
        .muster = n->muster,
        .queue = (uint16_t)n->queue,
    };

    if (terms_staged(&n->terms) && n->staging != STAGING_NONE) {
        h.stage = (uint16_t)(n->stage + 1);
    }
    h.state = (uint8_t)node_state(n);
    h.relays = reach_is_dialable((enum reach_class)h.reach) &&
               relay_willing(&n->relay);
    if (terms_owned(&n->terms)) {
        h.round = node_owners_round(n);
    }
    if (n->ballot.have) {
        h.view = n->ballot.hash;
        h.fork = n->ballot.cert.body.fork;
    }
    return h;
}

void node_local_action(struct node *n, enum action_type type, uint64_t round)
{
    struct action *a = out_add(n->out, type);

    if (a != NULL) {
        a->round = round;
    }
}

/* ---- events ----------------------------------------------------------- */

static void say_hello(struct node *n, const struct event *ev)
{
    struct hello h = {.life = n->life,
                      .features = n->opt.features,
                      .oldest = n->opt.oldest,
                      .newest = n->opt.newest};
    uint8_t bytes[64];
    int len;

    memcpy(h.observed.ip, ev->address.ip, sizeof h.observed.ip);
    h.observed.port = ev->address.port;
    len = msg_encode(&hello_schema, &h, bytes, sizeof bytes);
    if (len > 0) {
        (void)out_send(n->out, ev->link, MESSAGE_HELLO, bytes, (size_t)len);
    }
}

void node_link_open(struct node *n, const struct event *ev)
{
    int peer;

    if (members_link_up(&n->members, ev, n->out)) {
        peer = members_find(&n->members, &ev->peer);
        node_reach_link_up(n, peer, ev);
        node_dht_link_up(n, peer);
        node_pipe_link_up(n, &ev->peer);
    }
}

void node_link_up(struct node *n, const struct event *ev)
{
    say_hello(n, ev);
    if (!node_twin_link_up(n, ev)) {
        node_link_open(n, ev);
    }
}

static void on_link_up(struct node *n, const struct event *ev)
{
    if (!node_admit_link_up(n, ev)) {
        node_link_up(n, ev);
    }
}

static void on_link_down(struct node *n, const struct event *ev)
{
    int peer;

    if (!node_admit_link_down(n, ev) && !node_twin_link_down(n, ev)) {
        peer = members_link_down(&n->members, ev->link, n->now);
        if (peer != MEMBERS_NONE) {
            transfer_link_down(&n->transfer, peer, n->now, n->out);
        }
    }
}

static void on_dial_failed(struct node *n, const struct event *ev)
{
    members_dial_failed(&n->members, ev);
    if (ev->request < n->members.n_peers) {
        node_dht_unreachable(n, (int)ev->request);
    }
}

static void
to_ballot(struct node *n, int peer, enum message_type type, const void *m)
{
    struct ballot_context c;

    if (n->finished) {
        return; /* nothing is left to be decided */
    }
    c = node_context(n);
    ballot_recv(&n->ballot, &c, peer, type, m);
    if (n->ballot.frozen) {
        round_freeze(&n->round, n->out);
    }
}

static void on_get_commit(struct node *n, int peer, const struct get_commit *m)
{
    struct commit record;

    if (history_get(&n->history, m->round, &record)) {
        (void)members_send(&n->members, n->out, peer, MESSAGE_COMMIT, &record);
    }
}

/* Who can dial whom, and who asks whom to dial. */
static void on_reach_message(struct node *n,
                             int peer,
                             enum message_type type,
                             const void *m)
{
    if (type == MESSAGE_PROBE) {
        node_on_probe(n, peer, m);
    } else if (type == MESSAGE_PROBED) {
        node_on_probed_peer(n, peer, m);
    } else if (type == MESSAGE_CALL) {
        members_on_call(&n->members, peer, m, n->now, n->out);
    } else {
        members_on_called(&n->members, peer, m, n->now, n->out);
    }
}

/* Two processes with one identity. */
static void
on_twin_message(struct node *n, int peer, enum message_type type, const void *m)
{
    if (type == MESSAGE_CLAIM) {
        node_on_claim(n, peer, m);
    } else {
        node_on_present(n, peer, m);
    }
}

/* What linked peers say of themselves, neighbours and rumours. */
static void
on_membership(struct node *n, int peer, enum message_type type, const void *m)
{
    if (type == MESSAGE_HELLO) {
        node_on_hello(n, peer, m);
        return;
    }
    if (type == MESSAGE_HEARTBEAT) {
        node_on_beat(n, peer, m);
        return;
    }
    if (type == MESSAGE_CLAIM || type == MESSAGE_PRESENT) {
        on_twin_message(n, peer, type, m);
        return;
    }
    members_recv(&n->members, peer, type, m, n->out);
    if (type == MESSAGE_PULSE) {
        node_on_pulse(n, peer);
    }
}

/* Views and who is in them. */
static void
on_view_message(struct node *n, int peer, enum message_type type, const void *m)
{
    if (type == MESSAGE_VIEW) {
        node_on_view(n, peer, m);
    } else if (type == MESSAGE_GET_VIEW) {
        node_on_get_view(n, peer, m);
    } else if (type == MESSAGE_LINEAGE) {
        node_on_lineage(n, peer, m);
    } else if (type == MESSAGE_GET_PROOF) {
        node_on_get_proof(n, peer, m);
    } else if (type == MESSAGE_PROOF) {
        node_on_proof(n, peer, m);
    } else if (type == MESSAGE_GOODBYE) {
        node_on_goodbye(n, peer, m);
    } else {
        node_on_join(n, peer, m);
    }
}

/* Objects in pieces. */
static void
on_transfer(struct node *n, int peer, enum message_type type, const void *m)
{
    if (type == MESSAGE_GET_MANIFEST) {
        node_on_get_manifest(n, peer, m);
    } else if (type == MESSAGE_MANIFEST) {
        node_on_manifest(n, peer, m);
    } else if (type == MESSAGE_FETCH) {
        node_on_fetch(n, peer, m);
    } else {
        transfer_refused(&n->transfer, peer, m, n->now, n->out);
    }
}

/* Of a pair, of the steps that stages make together, or of slices. */
static void
on_step_message(struct node *n, int peer, enum message_type type, const void *m)
{
    if (type == MESSAGE_STAGE_EVAL || type == MESSAGE_EVAL_TAKE) {
        node_on_eval_message(n, peer, type, m);
    } else if (type == MESSAGE_OWNERS || type == MESSAGE_OWNERS_HEAD) {
        node_on_owners_message(n, peer, type, m);
    } else if (type != MESSAGE_PAIR && type != MESSAGE_PAIR_HAVE) {
        node_on_stage_message(n, peer, type, m);
    } else if (n->terms.pairs && n->loaded) {
        pair_recv(&n->pair, peer, type, m, n->now, n->out);
    }
}

static void on_forward(struct node *n, int peer, const struct forward *f);

/* Rounds, under way and committed. */
static void on_round_message(struct node *n,
                             int peer,
                             enum message_type type,
                             const void *m)
{
    if (type == MESSAGE_COMMIT) {
        node_on_commit_record(n, m);
    } else if (type == MESSAGE_GET_COMMIT) {
        on_get_commit(n, peer, m);
    } else if (type == MESSAGE_EVALUATED) {
        node_on_evaluated(n, peer, m);
    } else if (type == MESSAGE_BANDWIDTH) {
        node_on_bandwidth(n, peer, m);
    } else {
        round_recv(&n->round, peer, type, m, n->now, n->out);
    }
}

static void
on_message(struct node *n, int peer, enum message_type type, const void *m)
{
    switch (type) {
    case MESSAGE_HELLO:
    case MESSAGE_HEARTBEAT:
    case MESSAGE_PULSE:
    case MESSAGE_NEIGHBOUR:
    case MESSAGE_SHUFFLE:
    case MESSAGE_GOSSIP:
    case MESSAGE_CLAIM:
    case MESSAGE_PRESENT:
        on_membership(n, peer, type, m);
        return;
    case MESSAGE_FORWARD:
        on_forward(n, peer, m);
        return;
    case MESSAGE_GET_MANIFEST:
    case MESSAGE_MANIFEST:
    case MESSAGE_FETCH:
    case MESSAGE_FETCH_NO:
        on_transfer(n, peer, type, m);
        return;
    case MESSAGE_SUSPECT:
    case MESSAGE_PREPARE:
    case MESSAGE_PROMISE:
    case MESSAGE_ACCEPT:
    case MESSAGE_ACCEPTED:
        to_ballot(n, peer, type, m);
        return;
    case MESSAGE_VIEW:
    case MESSAGE_GET_VIEW:
    case MESSAGE_LINEAGE:
    case MESSAGE_GET_PROOF:
    case MESSAGE_PROOF:
    case MESSAGE_JOIN:
    case MESSAGE_GOODBYE:
        on_view_message(n, peer, type, m);
        return;
    case MESSAGE_READY:
    case MESSAGE_PLAN:
    case MESSAGE_VOTE:
    case MESSAGE_COMMIT:
    case MESSAGE_GET_COMMIT:
    case MESSAGE_EVALUATED:
    case MESSAGE_BANDWIDTH:
        on_round_message(n, peer, type, m);
        return;
    case MESSAGE_PAIR:
    case MESSAGE_PAIR_HAVE:
    case MESSAGE_STAGE_HELLO:
    case MESSAGE_STAGE_READY:
    case MESSAGE_STAGE_TAKE:
    case MESSAGE_STAGE_EVAL:
    case MESSAGE_EVAL_TAKE:
    case MESSAGE_OWNERS:
    case MESSAGE_OWNERS_HEAD:
        on_step_message(n, peer, type, m);
        return;
    case MESSAGE_PROBE:
    case MESSAGE_PROBED:
    case MESSAGE_CALL:
    case MESSAGE_CALLED:
        on_reach_message(n, peer, type, m);
        return;
    case MESSAGE_ADMISSION:
    case MESSAGE_REVOCATION:
    case MESSAGE_REFUSED: /* node_admit.c has seen them */
        return;
    }
}

/* What a member without a link to us says over another one. The bytes stand in
 * the scratch memory that the message in them is decoded to. */
static void on_forward(struct node *n, int peer, const struct forward *f)
{
    int from = members_forwarded(&n->members, peer, f, n->out);
    const struct msg_schema *schema = message_schema(f->body.message);
    enum message_type type = (enum message_type)f->body.message;
    uint8_t bytes[MESSAGE_FORWARD_MAX];
    uint32_t len = f->n_bytes;

    if (from == MEMBERS_NONE || schema == NULL) {
        return;
    }
    memcpy(bytes, f->bytes, len);
    if (msg_decode(schema, bytes, len, n->scratch) != 0) {
        n->malformed++;
        return;
    }
    node_note_stale(n, type, n->scratch);
    on_message(n, from, type, n->scratch);
}

static void on_recv(struct node *n, const struct event *ev)
{
    const struct msg_schema *schema = message_schema(ev->message);
    int peer;

    if (node_admit_recv(n, ev) || node_twin_recv(n, ev)) {
        return;
    }
    peer = members_heard(&n->members, ev->link, n->now);
    if (peer == MEMBERS_NONE) {
        return;
    }
    members_used(&n->members, ev->link, ev->message);
    members_round_trip(&n->members, peer, ev->rtt_us);
    if (schema == NULL) {
        node_dht_recv(n, peer, ev);
        return;
    }
    if (msg_decode(schema, ev->bytes, ev->len, n->scratch) != 0) {
        struct action *a = out_add(n->out, ACTION_HANG_UP);

        n->malformed++;
        if (a != NULL) {
            a->link = ev->link;
        }
        return;
    }
    if (ev->message == MESSAGE_HELLO &&
        (!node_admit_version(n, ev->link, &n->members.peers[peer].id,
                             n->scratch) ||
         !node_twin_hello(n, peer, ev->link, n->scratch))) {
        return;
    }
    node_note_stale(n, (enum message_type)ev->message, n->scratch);
    on_message(n, peer, (enum message_type)ev->message, n->scratch);
}

static void on_seg_done(struct node *n, const struct event *ev)
{
    if (ev->rc == 0 && !ev->sent) {
        members_alive(&n->members, &ev->segment.peer, n->now);
        node_bandwidth_note(n, ev);
    }
    if (ev->segment.stream == STREAM_RING) {
        node_timeline_segment(n, ev);
        round_seg_done(&n->round, ev, n->out);
    } else if (ev->segment.stream == STREAM_PAIR) {
        pair_seg_done(&n->pair, ev, n->out);
    } else if (ev->segment.stream == STREAM_PIPE) {
        node_pipe_seg_done(n, ev);
    } else if (ev->segment.stream == STREAM_EVAL) {
        node_eval_seg_done(n, ev);
    } else if (ev->segment.stream >= STREAM_OWNERS) {
        node_owners_seg_done(n, ev);
    } else if (!ev->sent) {
        transfer_seg_done(&n->transfer, ev, n->out);
    } else if (ev->rc != 0) {
        node_on_sent_failed(n, ev);
    }
}

static void on_hashed(struct node *n, const struct local_event *e)
{
    if (e->buffer == BUFFER_RING) {
        round_hashed(&n->round, e->request, e->rc, &e->hash, n->now, n->out);
    } else if (e->buffer == BUFFER_STEP) {
        pair_hashed(&n->pair, e->request, e->rc, &e->hash, n->now, n->out);
    } else {
        node_on_hashed(n, e);
    }
}

/* Of a stage, or of slices. */
static void on_part(struct node *n, const struct local_event *e)
{
    if (e->type == LOCAL_STAGED) {
        node_on_staged(n, e);
    } else if (e->type == LOCAL_SLICED) {
        if (terms_owned(&n->terms)) {
            node_on_sliced(n, e);
        }
    } else if (e->op == PIPE_EVAL_FORWARD || e->op == PIPE_EVAL_SCORE) {
        node_eval_piped(n, e);
    } else {
        node_on_piped(n, e);
    }
}

static void on_local(struct node *n, const struct local_event *e)
{
    switch (e->type) {
    case LOCAL_CONFIGURED:
        node_on_configured(n, e);
        return;
    case LOCAL_LOADED:
        node_on_loaded(n, e);
        return;
    case LOCAL_PROGRESS:
        n->inner_step = e->inner_step;
        n->own_tokens = e->tokens;
        n->loss = e->loss;
        n->tokens_per_s = e->tokens_per_s;
        return;
    case LOCAL_TRAINED:
        node_on_trained(n, e);
        return;
    case LOCAL_APPLIED:
        node_on_applied(n, e);
        return;
    case LOCAL_EVALUATED:
        node_on_evaluated_own(n, e);
        return;
    case LOCAL_HASHED:
        on_hashed(n, e);
        return;
    case LOCAL_VERIFIED:
        node_on_verified(n, e);
        return;
    case LOCAL_DOWNLOADING:
        node_on_downloading(n, e);
        return;
    case LOCAL_DOWNLOADED:
        node_on_downloaded(n, e);
        return;
    case LOCAL_INHERITED:
        round_disinherited(&n->round, e->request, n->out);
        return;
    case LOCAL_PAUSE:
    case LOCAL_RESUME:
        n->paused = e->type == LOCAL_PAUSE;
        n->train_since_ms = n->now; /* a task under way rested, too */
        if (n->paused) {
            node_pipe_leave(n);
        }
        node_local_action(n, n->paused ? ACTION_PAUSE : ACTION_RESUME,
                          n->applied.round);
        return;
    case LOCAL_DRAIN:
        n->draining = true;
        n->drain_ms = n->now;
        return;
    case LOCAL_STAGED:
    case LOCAL_PIPED:
    case LOCAL_SLICED:
        on_part(n, e);
        return;
    case LOCAL_MAPPED:
        node_on_mapped(n, e);
        return;
    case LOCAL_REVOKED:
        node_on_told_revocation(n, e->bytes, e->n_bytes);
        return;
    case LOCAL_NEARBY:
        members_nearby(&n->members, &e->address, n->now);
        return;
    case LOCAL_TYPE_COUNT:
        return;
    }
}

static void on_gap(struct node *n)
{
    members_gap(&n->members, n->now);
    n->ballot.doubt_since_ms = n->now;
    n->gone_ms = 0;
    n->found_stable_ms = 0;
    node_twin_gap(n);
    n->round.progress_ms = n->now;
    transfer_gap(&n->transfer, n->now);
    n->train_since_ms = n->now; /* the trainer stood still, too */
    pair_gap(&n->pair, n->now);
    node_owners_gap(n);
}

/* Take in a commit and a view as soon as they are made: whoever speaks next
 * for this node (ballot.c with our closing statement) must know of them. */
static bool settle(struct node *n)
{
    bool any = n->round.committed || n->ballot.adopted;

    if (n->round.committed) {
        n->round.committed = false;
        node_on_committed(n);
    }
    if (n->ballot.adopted) {
        n->ballot.adopted = false;
        node_on_adopted(n);
    }
    return any;
}

static void ask_for_change(struct node *n)
{
    if (!n->round.want_change) {
        return;
    }
    n->round.want_change = false;
    if (n->ballot.have && n->ballot.want != BALLOT_WANT_CHANGE) {
        out_log(n->out, LOG_WARN, "round %llu: %s; asking for a new view",
                (unsigned long long)n->round.round, n->round.why);
    }
    node_timeline_trouble(n, n->round.why);
    ballot_want(&n->ballot, BALLOT_WANT_CHANGE, n->now);
}

/* Everything that follows from the state as it is now. A view adopted or a
 * commit made on the way starts the next turn; three turns always suffice for
 * one event, and what is left has a deadline. */
static void advance(struct node *n)
{
    bool again = true;

    if (n->configured && n->terms.pairs) {
        node_pair_advance(n);
        return;
    }
    for (int turn = 0; turn < 3 && again; turn++) {
        struct ballot_context c;
        struct members_lost lost;

        (void)settle(n);
        while (members_next_lost(&n->members, &lost)) {
            node_on_lost(n, &lost);
        }
        node_stage_advance(n);
        node_sync_advance(n);
        node_view_advance(n);
        node_pipe_tick(n);
        node_eval_advance(n);
        if (terms_owned(&n->terms)) {
            node_owners_advance(n);
        } else {
            node_round_advance(n);
        }
        round_tick(&n->round, n->now, n->out);
        ask_for_change(n);
        again = settle(n);
        if (!n->finished) {
            c = node_context(n);
            ballot_tick(&n->ballot, &c);
        }
        if (n->ballot.frozen) {
            round_freeze(&n->round, n->out);
        }
        again = settle(n) || again;
    }
    node_proof_advance(n);
}

static void dispatch(struct node *n, const struct event *event)
{
    switch (event->type) {
    case EVENT_TICK:
        break;
    case EVENT_LINK_UP:
        on_link_up(n, event);
        break;
    case EVENT_LINK_DOWN:
        on_link_down(n, event);
        break;
    case EVENT_DIAL_FAILED:
        on_dial_failed(n, event);
        break;
    case EVENT_RECV:
        on_recv(n, event);
        break;
    case EVENT_SEG_DONE:
        on_seg_done(n, event);
        break;
    case EVENT_SAVE_FAILED:
        n->save_failed = true;
        break;
    case EVENT_PROBED:
        node_on_probe_done(n, event);
        break;
    case EVENT_RELAY:
        node_on_relay(n, event);
        break;
    case EVENT_RELAY_MOVED:
        node_on_relay_moved(n, event);
        break;
    case EVENT_LOCAL:
        on_local(n, &event->local);
        break;
    case EVENT_MOVED:
        round_moved(&n->round, n->now);
        break;
    case EVENT_TYPE_COUNT:
        break;
    }
}

static bool saves(const struct out *out)
{
    for (uint32_t i = 0; i < out->n; i++) {
        if (out->action[i].type == ACTION_SAVE) {
            return true;
        }
    }
    return false;
}

void node_step(void *node, const struct event *event, struct out *out)
{
    struct node *n = node;
    struct heartbeat beat;

    out->n = out->n_bytes = out->dropped = 0;
    n->out = out;
    if (n->stopped) {
        n->out = NULL;
        return;
    }
    n->now = event->now_ms;
    n->wall_s = event->wall_s;
    n->wake_ms = n->now + n->t.tick_ms;
    if (n->last_step_ms == 0 && n->ballot.restored) {
        round_bar(&n->round, n->ballot.cert.body.epoch, out);
    }
    if (n->last_step_ms != 0 &&
        n->now - n->last_step_ms > GAP_MS * (uint64_t)n->opt.time_scale) {
        on_gap(n);
    }
    n->last_step_ms = n->now;
    dispatch(n, event);
    node_admit_advance(n);
    node_twin_advance(n);
    advance(n);
    node_timeline_note(n);
    node_bandwidth_advance(n);
    node_text_make_way(n);
    transfer_tick(&n->transfer, n->now, out);
    node_reach_advance(n);
    node_dht_advance(n);
    beat = node_heartbeat(n);
    members_tick(&n->members, n->now, &beat, out);
    if (n->save_failed && event->type != EVENT_SAVE_FAILED) {
        n->save_failed = !saves(out); /* it is tried again */
    }
    if (out->dropped > 0) {
        n->wake_ms = n->now + 1;
    }
    n->out = NULL;
}

static uint64_t earlier(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

uint64_t node_deadline(const void *node)
{
    const struct node *n = node;
    uint64_t due = n->wake_ms;

    if (n->stopped) {
        return CORE_NEVER;
    }
    due = earlier(due, members_deadline(&n->members));
    if (n->terms.pairs) {
        due = earlier(due, pair_deadline(&n->pair));
    } else if (!n->finished) {
        due = earlier(due, ballot_deadline(&n->ballot));
    }
    due = earlier(due, round_deadline(&n->round));
    due = earlier(due, transfer_deadline(&n->transfer));
    due = earlier(due, node_quorum_deadline(n));
    due = earlier(due, node_owners_deadline(n));
    due = earlier(due, node_pipe_deadline(n));
    due = earlier(due, node_eval_deadline(n));
    return earlier(due, node_dht_deadline(n));
}
