/* node.c - a peer as one core: open, step, dispatch. See node/internal.h. */
#include "daemon/node/node.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/node/internal.h"
#include "proto/base/err.h"
#include "proto/base/log.h"
#include "proto/base/rng.h"
#include "proto/hash.h"

/* Longer without a step: the process slept, and silence proves nothing. */
#define GAP_MS 1000
/* Served to strangers, where no option says so. */
#define STRANGER_BYTES_PER_S 1000000

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
    .punch_ms = 60000,
    .punch_max_ms = 3600000,
};

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
    TAKE(punch_ms);
    TAKE(punch_max_ms);
#undef TAKE
    t.tick_ms = t.tick_ms != 0 ? t.tick_ms : timing_default.tick_ms;
    return t;
}

/* ---- signatures -------------------------------------------------------- */

static int pen_sign(void *self,
                    const char *domain,
                    const void *bytes,
                    size_t len,
                    uint8_t sig[SIGN_BYTES])
{
    const struct node *n = self;

    return n->pen.sign(n->pen.self, domain, bytes, len, sig);
}

/* Whoever made us verify a signature pays for it. */
static bool pen_verify(void *self,
                       const uint8_t public[SIGN_PUBLIC_BYTES],
                       const char *domain,
                       const void *bytes,
                       size_t len,
                       const uint8_t sig[SIGN_BYTES])
{
    struct node *n = self;
    bool good = n->pen.verify(n->pen.self, public, domain, bytes, len, sig);

    if (n->heard_link != 0) {
        members_verified(&n->members, n->heard_link, public, good, n->out);
    }
    return good;
}

static void open_pen(struct node *n)
{
    n->pen = n->opt.signer;
    n->opt.signer = (struct signer){.self = n,
                                    .public = n->pen.public,
                                    .sign = pen_sign,
                                    .verify = pen_verify};
}

/* ---- life -------------------------------------------------------------- */

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
        .punch_ms = n->t.punch_ms,
        .punch_max_ms = n->t.punch_max_ms,
        .signer = n->opt.signer,
        .life = n->life,
        .pin = n->opt.pin,
        .port = n->opt.dialable ? n->opt.listen_port : 0,
    };

    n->members_memory = malloc(members_bytes(&mo));
    if (n->members_memory == NULL) {
        return LOCO_ENOMEM;
    }
    members_init(&n->members, &mo, n->members_memory, n->now);
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
    node_pair_open(n);
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
        .bandwidth = &n->bandwidth.map,
        .record = &n->text.record,
        .text = &n->text.span,
        .silence = &n->audit.silence,
        .astray = &n->strays.rests,
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
    node_audit_open(n);
    node_work_open(n);
    node_strays_open(n);
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
    open_pen(n);
    n->group = opt->run_id;
    n->regime = &regime_rounds;
    n->inner = &inner_machine;
    n->opt.time_scale = opt->time_scale > 0 ? opt->time_scale : 1;
    if (n->opt.stranger_bytes_per_s == 0) {
        n->opt.stranger_bytes_per_s = STRANGER_BYTES_PER_S;
    }
    n->opt.oldest = opt->oldest > 0 ? opt->oldest : PROTO_OLDEST;
    n->opt.newest = opt->newest > 0 ? opt->newest : PROTO_NEWEST;
    n->t = timing_of(opt);
    n->now = n->started_ms = n->wake_ms = now_ms;
    n->rng = opt->seed;
    n->life = rng_next(&n->rng) | 1;
    n->scratch = malloc(message_struct_max());
    rv = n->scratch == NULL ? LOCO_ENOMEM : node_data_open(n);
    rv = rv == 0 ? open_cores(n) : rv;
    rv = rv == 0 ? node_dht_open(n) : rv;
    rv = rv == 0 ? node_timeline_open(n) : rv;
    rv = rv == 0 ? node_bandwidth_open(n) : rv;
    rv = rv == 0 ? node_proof_open(n) : rv;
    rv = rv == 0 ? node_reach_open(n) : rv;
    rv = rv == 0 ? open_record(n) : rv;
    if (rv != 0) {
        node_close(n);
        return rv;
    }
    node_branch_forget(n);
    node_phase_advance(n);
    *node = n;
    return 0;
}

void node_close(struct node *n)
{
    if (n == NULL) {
        return;
    }
    node_proof_close(n);
    free(n->bandwidth.memory);
    free(n->timeline.memory);
    free(n->dht.memory);
    free(n->members_memory);
    free(n->reach.probe_memory);
    free(n->reach.meet_memory);
    free(n->data.manifest);
    free(n->scratch);
    free(n);
}

void node_set_port(struct node *n, uint16_t port)
{
    n->opt.listen_port = port;
    members_set_port(&n->members, n->opt.dialable ? port : 0);
}

struct hash32 node_state_hash(const struct hash32 *params,
                              const struct hash32 *momentum)
{
    struct hash32 pair[2] = {*params, *momentum}, out;

    hash_bytes("loco-state-1", pair, sizeof pair, &out);
    return out;
}

struct ballot_context node_context(struct node *n)
{
    struct ballot_context c = {
        .now_ms = n->now,
        .out = n->out,
        .in_flight = n->round.has_plan && n->round.phase != ROUND_COMMITTED,
        .late = round_is_late(&n->round, n->now),
        .past = n->fetches.past,
        .n_past = n->fetches.n_past,
        .coordinates = round_coordinates(&n->round),
        .may_found = !n->ballot.have && n->held.loaded && !n->held.applying &&
                     n->data.ready && !n->draining && !node_sees_view(n) &&
                     node_stage_may_found(n),
    };

    c.closing.round = n->held.known.round;
    c.closing.tokens = n->held.known.tokens;
    c.closing.commit = n->held.known.commit;
    if (n->round.has_last &&
        n->round.last.plan.body.round == n->held.known.round) {
        c.base = n->round.last.plan.body.base;
    }
    if (n->ballot.have) {
        round_closing(&n->round, &c.closing);
    }
    return c;
}

static struct heartbeat heartbeat_of(const struct node *n)
{
    struct heartbeat h = {
        .life = n->life,
        .configured = n->data.configured,
        .ready = n->held.loaded && n->data.ready && !n->draining,
        .has_view = n->regime->takes_part(n),
        .epoch = n->ballot.have || n->ballot.restored
                     ? n->ballot.cert.body.epoch
                     : 0,
        .round = n->held.applied.round,
        .tokens = n->held.applied.tokens,
        .commit = n->held.applied.commit,
        .params = n->held.params_hash,
        .state_hash = n->held.state_hash,
        .inner_step = n->training.inner_step,
        .tokens_per_s = (uint32_t)n->training.tokens_per_s,
        .reach = (uint8_t)reach_class(&n->reach.core),
        .linked_candidates = n->view.linked_candidates,
        .end_phase = (uint8_t)n->pairs.end_phase,
        .queue = (uint16_t)n->pipe.queue.mean,
    };

    if (n->stages.staging != STAGING_NONE) {
        h.stage = (uint16_t)(n->stages.own + 1);
    }
    h.state = (uint8_t)node_state(n);
    h.relays = reach_is_dialable((enum reach_class)h.reach) &&
               relay_willing(&n->reach.relay);
    if (n->ballot.have) {
        h.view = n->ballot.hash;
        h.fork = n->ballot.cert.body.fork;
    }
    return h;
}

void node_say(struct node *n,
              uint32_t link,
              enum message_type type,
              const void *message)
{
    uint8_t bytes[2048]; /* REVOCATION is the longest */
    int len = msg_encode(message_schema((uint16_t)type), message, bytes,
                         sizeof bytes);

    if (len > 0) {
        (void)out_send(n->out, link, (uint16_t)type, bytes, (size_t)len);
    }
}

void node_cancel(struct node *n, uint32_t stream, uint64_t attempt)
{
    struct action *a = out_add(n->out, ACTION_CANCEL);

    if (a != NULL) {
        a->cancel.stream = stream;
        a->cancel.attempt = attempt;
    }
}

void node_stop(struct node *n, int exit_code)
{
    struct job *job = out_job(n->out, JOB_STOP);

    if (job != NULL) {
        job->stop.exit_code = exit_code;
        n->stopped = true;
    }
}

/* ---- events ----------------------------------------------------------- */

static void say_hello(struct node *n, const struct event_link_up *ev)
{
    struct hello h = {.life = n->life,
                      .features = n->opt.features,
                      .oldest = n->opt.oldest,
                      .newest = n->opt.newest};

    memcpy(h.observed.ip, ev->address.ip, sizeof h.observed.ip);
    h.observed.port = ev->address.port;
    node_say(n, ev->link, MESSAGE_HELLO, &h);
}

void node_link_open(struct node *n, const struct event_link_up *ev)
{
    int peer;

    if (members_link_up(&n->members, ev, n->now, n->out)) {
        peer = members_find(&n->members, &ev->peer);
        node_reach_link_up(n, peer, ev);
        node_dht_link_up(n, peer);
        node_pipe_link_up(n, &ev->peer);
    }
}

void node_link_up(struct node *n, const struct event_link_up *ev)
{
    say_hello(n, ev);
    if (!node_twin_link_up(n, ev)) {
        node_link_open(n, ev);
    }
}

static void on_link_up(struct node *n, const struct event *event)
{
    const struct event_link_up *ev = &event->link_up;

    if (!node_admit_link_up(n, ev)) {
        node_link_up(n, ev);
    }
}

static void on_link_down(struct node *n, const struct event *event)
{
    const struct event_link_down *ev = &event->link_down;
    int peer;

    if (ev->rc == LOCO_EBUSY) {
        members_link_full(&n->members, ev->link);
    }
    if (!node_admit_link_down(n, ev) && !node_twin_link_down(n, ev)) {
        peer = members_link_down(&n->members, ev->link, n->now);
        if (peer != MEMBERS_NONE) {
            transfer_link_down(&n->transfer, peer, n->now, n->out);
            node_proof_link_down(n, peer);
        }
    }
}

static void on_dial_failed(struct node *n, const struct event *event)
{
    const struct event_dial_failed *ev = &event->dial_failed;

    members_dial_failed(&n->members, ev->request, ev->rc, n->now);
    if (ev->request < n->members.n_peers) {
        node_dht_unreachable(n, (int)ev->request);
    }
}

static void on_seg_done(struct node *n, const struct event *event)
{
    const struct event_seg_done *ev = &event->seg_done;

    if (ev->rc == 0 && !ev->sent) {
        members_alive(&n->members, &ev->segment.peer, n->now);
        node_bandwidth_note(n, ev);
    }
    if (ev->segment.stream == STREAM_RING) {
        node_timeline_segment(n, ev);
        round_seg_done(&n->round, ev, n->out);
    } else if (ev->segment.stream == STREAM_PAIR) {
        pair_seg_done(&n->pair, ev, n->now, n->out);
    } else if (ev->segment.stream == STREAM_PIPE) {
        node_pipe_seg_done(n, ev);
    } else if (ev->segment.stream == STREAM_EVAL) {
        node_eval_seg_done(n, ev);
    } else if (ev->segment.stream == STREAM_AUDIT) {
        node_audit_seg_done(n, ev);
    } else if (ev->segment.stream == STREAM_WORK) {
        node_work_seg_done(n, ev);
    } else if (!ev->sent) {
        transfer_seg_done(&n->transfer, ev, n->now, n->out);
    } else if (ev->rc != 0) {
        node_on_sent_failed(n, ev);
    }
}

static void on_hashed(struct node *n, const struct local_event *e)
{
    if (e->hashed.buffer == BUFFER_RING) {
        round_hashed(&n->round, e->hashed.request, e->rc, &e->hashed.hash,
                     n->now, n->out);
    } else if (e->hashed.buffer == BUFFER_STEP) {
        pair_hashed(&n->pair, e->hashed.request, e->rc, &e->hashed.hash, n->now,
                    n->out);
    } else {
        node_on_hashed(n, e);
    }
}

static void on_stage_local(struct node *n, const struct local_event *e)
{
    if (e->type == LOCAL_STAGED) {
        node_on_staged(n, e);
    } else if (e->rc == LOCO_EDEVICE) {
        node_device_lost(n);
    } else if (e->piped.op == PIPE_EVAL_FORWARD ||
               e->piped.op == PIPE_EVAL_SCORE) {
        if (e->rc == LOCO_ECUDA || e->rc == LOCO_ETIMEOUT) {
            node_pipe_broken(n);
        }
        node_eval_piped(n, e);
    } else {
        node_on_piped(n, e);
    }
}

static void begin_drain(struct node *n)
{
    n->draining = true;
    n->drain_ms = n->now;
}

static void on_state(struct node *n, const struct local_event *e)
{
    if (e->type == LOCAL_LOADED) {
        node_on_loaded(n, e);
    } else if (e->type == LOCAL_PLACED) {
        node_on_placed(n, e);
    } else {
        node_on_applied(n, e);
    }
}

static void on_audit_local(struct node *n, const struct local_event *e)
{
    if (e->type == LOCAL_AUDITED) {
        node_on_audited(n, e);
    } else if (e->type == LOCAL_STRAYS) {
        node_on_strays(n, e);
    } else {
        node_on_repeated(n, e);
    }
}

static void on_local(struct node *n, const struct event *ev)
{
    const struct local_event *e = &ev->local;

    switch (e->type) {
    case LOCAL_CONFIGURED:
        node_on_configured(n, e);
        return;
    case LOCAL_LOADED:
    case LOCAL_PLACED:
    case LOCAL_APPLIED:
        on_state(n, e);
        return;
    case LOCAL_PROGRESS:
        node_on_progress(n, e);
        return;
    case LOCAL_TRAINED:
        node_on_trained(n, e);
        return;
    case LOCAL_EVALUATED:
        if (!node_judge_measured(n, e)) {
            node_on_evaluated_own(n, e);
        }
        return;
    case LOCAL_AUDITED:
    case LOCAL_STRAYS:
    case LOCAL_REPEATED:
        on_audit_local(n, e);
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
        round_disinherited(&n->round, e->inherited.request, n->out);
        return;
    case LOCAL_PAUSE:
    case LOCAL_RESUME:
        node_on_pause(n, e->type == LOCAL_PAUSE);
        return;
    case LOCAL_DRAIN:
        begin_drain(n);
        return;
    case LOCAL_STAGED:
    case LOCAL_PIPED:
        on_stage_local(n, e);
        return;
    case LOCAL_MAPPED:
        node_on_mapped(n, e);
        return;
    case LOCAL_REVOKED:
        node_on_told_revocation(n, e->revoked.bytes, e->revoked.n_bytes);
        return;
    case LOCAL_NEARBY:
        members_nearby(&n->members, &e->nearby.address, n->now);
        return;
    case LOCAL_TYPE_COUNT:
        return;
    }
}

static void on_gap(struct node *n)
{
    members_gap(&n->members, n->now);
    ballot_gap(&n->ballot, n->now);
    node_branch_gap(n);
    node_view_gap(n);
    node_twin_gap(n);
    round_gap(&n->round, n->now);
    transfer_gap(&n->transfer, n->now);
    node_training_gap(n);
    pair_gap(&n->pair, n->now);
}

static void on_save_failed(struct node *n, const struct event *ev)
{
    (void)ev;
    n->save_failed = true;
    ballot_save_failed(&n->ballot);
}

static void on_moved(struct node *n, const struct event *ev)
{
    (void)ev;
    round_moved(&n->round, n->now);
}

/* What follows from a state follows after every event. */
static void on_tick(struct node *n, const struct event *ev)
{
    (void)n;
    (void)ev;
}

static void (*const on_event[EVENT_TYPE_COUNT])(struct node *,
                                                const struct event *) = {
    [EVENT_TICK] = on_tick,
    [EVENT_LINK_UP] = on_link_up,
    [EVENT_LINK_DOWN] = on_link_down,
    [EVENT_DIAL_FAILED] = on_dial_failed,
    [EVENT_RECV] = node_on_recv,
    [EVENT_SEG_DONE] = on_seg_done,
    [EVENT_SAVE_FAILED] = on_save_failed,
    [EVENT_PROBED] = node_on_probe_done,
    [EVENT_RELAY] = node_on_relay,
    [EVENT_RELAY_MOVED] = node_on_relay_moved,
    [EVENT_MET] = node_on_met,
    [EVENT_BULK_MET] = node_on_bulk_met,
    [EVENT_PUNCHED] = node_on_punched,
    [EVENT_LOCAL] = on_local,
    [EVENT_MOVED] = on_moved,
};

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
    uint32_t n_said;

    out->n = out->n_bytes = out->dropped = 0;
    if (n->stopped || !node_affords(n, event)) {
        return;
    }
    n->out = out;
    n->now = event->now_ms;
    n->wall_s = event->wall_s;
    n->wake_ms = n->now + n->t.tick_ms;
    if (n->last_step_ms == 0 && n->ballot.restored) {
        round_cancel_epoch(&n->round, n->ballot.cert.body.epoch, out);
    }
    if (n->last_step_ms != 0 &&
        n->now - n->last_step_ms > node_scaled(n, GAP_MS)) {
        on_gap(n);
    }
    n->last_step_ms = n->now;
    on_event[event->type](n, event);
    n_said = out->n;
    node_admit_advance(n);
    node_twin_advance(n);
    n->regime->advance(n);
    node_timeline_note(n);
    node_bandwidth_advance(n);
    node_text_make_way(n);
    transfer_tick(&n->transfer, n->now, out);
    node_reach_advance(n);
    node_dht_advance(n);
    node_phase_advance(n);
    beat = heartbeat_of(n);
    members_tick(&n->members, n->now, &beat, out);
    node_answered(n, event, n_said);
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
    due = earlier(due, n->regime->deadline(n));
    due = earlier(due, transfer_deadline(&n->transfer));
    return earlier(due, node_dht_deadline(n));
}
