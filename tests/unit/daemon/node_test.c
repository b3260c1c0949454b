/* node_test.c - a whole node among peers that do their part, and among liars.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "daemon/node/rounds.h"
#include "daemon/node/text.h"
#include "proto/base/err.h"
#include "tests/unit/daemon/hand.h"

static struct node_status status(const struct hand *h)
{
    struct node_status s;

    node_status(h->node, &s);
    return s;
}

static struct hand *in_a_view(uint32_t n_puppets)
{
    struct hand *h = hand_open(n_puppets);

    h->terms.stop_rounds = 1000000;
    hand_wait(h, 5000);
    assert_true(h->in.ballot->have);
    assert_int_equal(h->in.ballot->cert.body.n_members, n_puppets + 1);
    return h;
}

static void a_node_founds_a_view_with_peers_that_are_ready(void **state)
{
    (void)state;
    for (uint32_t n = 1; n <= HAND_PUPPETS; n++) {
        hand_close(in_a_view(n));
    }
}

static void rounds_commit_while_everybody_does_their_part(void **state)
{
    struct hand *h = in_a_view(2);

    (void)state;
    hand_wait(h, 20000);
    assert_true(status(h).round > 5);
    assert_int_equal(status(h).rounds_aborted, 0);
    assert_int_equal(status(h).malformed, 0);
    assert_int_equal(h->n_applied, status(h).round);
    assert_int_equal(h->overflow, 0);
    hand_close(h);
}

static void a_silent_member_is_lost_and_the_others_go_on(void **state)
{
    struct hand *h = in_a_view(3);
    uint64_t before;

    (void)state;
    h->link[1] = 0; /* its link stays up at the node, and says nothing */
    hand_wait(h, 3000);
    assert_true(status(h).n_lost >= 1);
    assert_true(id_eq(&status(h).lost[0].peer, &h->puppet[1].id));
    hand_wait(h, 10000);
    assert_int_equal(h->in.ballot->cert.body.n_members, 3);
    assert_false(status(h).fork);
    before = status(h).round;
    hand_wait(h, 5000);
    assert_true(status(h).round > before);
    hand_close(h);
}

static void bytes_that_are_no_message_close_their_link(void **state)
{
    struct hand *h = in_a_view(2);
    static const uint8_t junk[] = {0xc1, 0xff, 0x00};
    uint32_t before = h->n_hang_ups;

    (void)state;
    hand_say_bytes(h, 0, MESSAGE_READY, junk, sizeof junk);
    hand_drain(h, 1);
    assert_int_equal(h->n_hang_ups, before + 1);
    assert_int_equal(status(h).malformed, 1);
    hand_close(h);
}

static void epochs_that_nobody_reached_do_not_stop_the_founding(void **state)
{
    struct hand *h = hand_open(2);
    struct heartbeat b = hand_beat(h);

    (void)state;
    b.epoch = UINT64_MAX;
    for (int i = 0; i < 100 && !h->in.ballot->have; i++) {
        hand_say(h, 0, MESSAGE_HEARTBEAT, &b);
        hand_wait(h, 100);
    }
    assert_true(h->in.ballot->have);
    assert_int_equal(h->in.ballot->cert.body.epoch, 1);
    hand_close(h);
}

/* A view that a liar made up: itself as the old member, the node as the new
 * one, signed by itself alone. */
static void a_view_that_one_peer_made_up_is_not_entered(void **state)
{
    struct hand *h = in_a_view(2);
    struct view_cert c = {.ballot = 3, .n_sigs = 1};
    struct ballot_body body = {.ballot = 3};
    struct hash32 hash = h->in.ballot->hash;

    (void)state;
    h->obedient = false;
    c.body.epoch = 9;
    c.body.prev.b[0] = 77;
    c.body.n_members = 3;
    memcpy(c.body.members[0].public_key, h->puppet[0].public, 32);
    memcpy(c.body.members[1].public_key, h->self.public, 32);
    memcpy(c.body.members[2].public_key, h->puppet[1].public, 32);
    c.body.members[0].joined = c.body.members[2].joined = 1;
    c.body.members[1].joined = 9;
    assert_int_equal(view_sort(&c.body), 0);
    view_hash(&c.body, &body.view);
    memcpy(c.sigs[0].public_key, h->puppet[0].public, 32);
    hand_sign(h, 0, &ballot_body_schema, &body, c.sigs[0].sig);
    hand_say(h, 0, MESSAGE_VIEW, &c);
    hand_wait(h, 300);
    assert_true(hash32_eq(&h->in.ballot->hash, &hash));
    /* A forged signature is not even considered. */
    c.sigs[0].sig[0] ^= 1;
    hand_say(h, 0, MESSAGE_VIEW, &c);
    hand_wait(h, 10);
    assert_int_equal(status(h).malformed, 1);
    hand_close(h);
}

/* Well signed, by a member, but said elsewhere or before. */
static void what_belongs_to_another_view_round_or_run_is_counted(void **state)
{
    struct hand *h = in_a_view(2);
    struct goodbye bye = {.body = {.peer = h->puppet[0].id, .run = {{5}}}};
    struct join join = {.body = {.run = {{5}}}};
    struct vote votes[3] = {0};
    uint64_t stale, before;

    (void)state;
    hand_wait(h, 10000);
    stale = status(h).stale;
    before = status(h).round;
    assert_true(before > 2);
    for (int k = 0; k < 3; k++) {
        votes[k].body.epoch = h->in.ballot->cert.body.epoch + (k == 0);
        votes[k].body.view = h->in.ballot->hash;
        votes[k].body.view.b[3] ^= k == 1;
        votes[k].body.round = h->in.round->round - (k == 2);
        hand_sign(h, 0, &vote_body_schema, &votes[k].body, votes[k].sig);
        hand_say(h, 0, MESSAGE_VOTE, &votes[k]);
    }
    hand_sign(h, 0, &goodbye_body_schema, &bye.body, bye.sig);
    hand_say(h, 0, MESSAGE_GOODBYE, &bye);
    hand_sign(h, 0, &join_body_schema, &join.body, join.sig);
    hand_say(h, 0, MESSAGE_JOIN, &join);
    hand_drain(h, 5);
    assert_int_equal(status(h).stale, stale + 5);
    hand_wait(h, 10000);
    assert_true(status(h).round > before + 2); /* and nothing came of it */
    assert_int_equal(status(h).rounds_aborted, 0);
    assert_int_equal(status(h).n_lost, 0);
    hand_close(h);
}

static void an_evaluation_of_a_round_to_come_is_not_shown(void **state)
{
    struct hand *h = in_a_view(2);
    struct evaluated m = {.body = {.round = 1ULL << 62, .microbits = 1}};

    (void)state;
    hand_sign(h, 0, &evaluated_body_schema, &m.body, m.sig);
    hand_say(h, 0, MESSAGE_EVALUATED, &m);
    hand_wait(h, 3000);
    assert_true(status(h).bits_per_byte > 2.9);
    hand_close(h);
}

static void only_what_is_held_is_served(void **state)
{
    struct hand *h = in_a_view(2);
    struct fetch bad[] = {
        {.buffer = 200, .len = 10},
        {.buffer = BUFFER_RING, .len = 10},
        {.buffer = BUFFER_SHARD, .index = 1, .len = 10},
        {.buffer = BUFFER_SHARD, .index = UINT64_MAX, .len = 10},
        {.buffer = BUFFER_SHARD, .offset = 1000, .len = 10},
        {.buffer = BUFFER_SHARD, .len = 0},
        {.buffer = BUFFER_SHARD, .len = UINT32_MAX},
        {.buffer = BUFFER_STATE, .index = UINT64_MAX, .len = 10},
        {.buffer = BUFFER_STATE, .len = 10}, /* of another root */
        {.buffer = BUFFER_SHARD, .len = 10, .root = {{1}}},
        {.buffer = BUFFER_STATE_LEAVES, .len = 10},
        {.buffer = BUFFER_SHARD, .len = 10}, /* streams that have no fetch */
        {.buffer = BUFFER_SHARD, .len = 10},
        {.buffer = BUFFER_SHARD, .len = 10},
    };
    const uint32_t other[] = {STREAM_RING, STREAM_PAIR, STREAM_COUNT};
    const unsigned n_bad = sizeof bad / sizeof bad[0];
    struct fetch good = {
        .buffer = BUFFER_SHARD, .len = 1000, .stream = STREAM_FETCH};
    uint32_t segs, no;

    (void)state;
    h->obedient = false;
    segs = h->n_send_segs;
    no = h->n_sent[MESSAGE_FETCH_NO];
    for (unsigned k = 0; k < n_bad; k++) {
        bad[k].stream = k < n_bad - 3 ? STREAM_FETCH + STREAM_FETCHES - 1
                                      : (uint8_t)other[k + 3 - n_bad];
        hand_say(h, 0, MESSAGE_FETCH, &bad[k]);
        hand_drain(h, 1);
    }
    assert_int_equal(h->n_send_segs, segs);
    assert_int_equal(h->n_sent[MESSAGE_FETCH_NO], no + n_bad);
    hand_say(h, 0, MESSAGE_FETCH, &good);
    hand_drain(h, 1);
    assert_int_equal(h->n_send_segs, segs + 1);
    good.buffer = BUFFER_STATE;
    good.index = h->in.held->applied.round;
    good.root = h->in.held->state_hash;
    hand_say(h, 0, MESSAGE_FETCH, &good);
    hand_drain(h, 2); /* the end of the first one, too */
    assert_int_equal(h->n_send_segs, segs + 2);
    hand_close(h);
}

static void a_member_that_missed_its_view_is_sent_it_again(void **state)
{
    struct hand *h = in_a_view(2);
    struct join m = {0};
    uint32_t before = h->n_sent[MESSAGE_VIEW];

    (void)state;
    m.body.round = h->in.held->known.round;
    m.body.commit = h->in.held->known.commit;
    m.body.state = h->in.held->state_hash;
    hand_prove(h, 0, &m.body);
    hand_sign(h, 0, &join_body_schema, &m.body, m.sig);
    hand_say(h, 0, MESSAGE_JOIN, &m);
    hand_drain(h, 1);
    assert_int_equal(h->n_sent[MESSAGE_VIEW], before + 1);
    hand_close(h);
}

/* Tokens of PROGRESS are those of earlier lives too: after a restart from a
 * checkpoint nothing has been thrown away yet. */
static void only_work_that_a_state_replaced_counts_as_dropped(void **state)
{
    struct hand *h = in_a_view(2);
    struct local_event e = {.type = LOCAL_PROGRESS, .progress.tokens = 1000000};

    (void)state;
    hand_wait(h, 5000);
    assert_true(status(h).round > 0);
    hand_local(h, &e);
    e = (struct local_event){.type = LOCAL_LOADED, .loaded.tokens = 128};
    hand_local(h, &e);
    hand_drain(h, UINT32_MAX);
    assert_int_equal(status(h).tokens, 1000000);
    assert_int_equal(status(h).tokens_dropped, 128);
    hand_close(h);
}

static void a_finished_run_rests(void **state)
{
    struct hand *h = hand_open(2);
    uint64_t steps;

    (void)state;
    h->terms.stop_rounds = 3;
    hand_wait(h, 30000);
    assert_int_equal(status(h).state, NODE_FINISHED);
    assert_int_equal(status(h).round, 3);
    steps = h->steps;
    hand_wait(h, 10000);
    assert_true(h->steps - steps < 1000); /* heartbeats and little else */
    /* The machine was told, once. */
    assert_int_equal(h->n_jobs[JOB_OVER], 1);
    hand_close(h);
}

/* ---- reachability ------------------------------------------------------- */

static void a_probe_goes_where_the_asker_is_and_not_often(void **state)
{
    struct hand *h = in_a_view(2);
    struct event done = {.type = EVENT_PROBED};
    struct probe ask = {.request = 4711};
    struct probed got;
    const struct action *a = &h->last_action[ACTION_PROBE];

    (void)state;
    hand_say(h, 1, MESSAGE_PROBE, &ask);
    hand_drain(h, HAND_EVENTS);
    assert_int_equal(h->n_actions[ACTION_PROBE], 1);
    assert_true(id_eq(&a->probe.peer, &h->puppet[1].id));
    assert_int_equal(a->probe.address.port, 4002); /* as its link says */
    done.probed.request = a->probe.request;
    hand_post(h, &done);
    hand_drain(h, HAND_EVENTS);
    assert_int_equal(h->n_sent[MESSAGE_PROBED], 1);
    assert_int_equal(h->last_to[MESSAGE_PROBED], h->link[1]);
    assert_int_equal(msg_decode(&probed_schema, h->last[MESSAGE_PROBED].bytes,
                                h->last[MESSAGE_PROBED].len, &got),
                     0);
    assert_true(got.reached && got.request == 4711 && got.address.port == 4002);
    hand_post(h, &done); /* once */
    for (int i = 0; i < 200; i++) {
        hand_say(h, 1, MESSAGE_PROBE, &ask);
        hand_drain(h, HAND_EVENTS);
        done.probed.request = a->probe.request;
        hand_post(h, &done);
        hand_drain(h, HAND_EVENTS);
    }
    assert_int_equal(h->n_actions[ACTION_PROBE], 3);
    hand_close(h);
}

static void probe_answers(struct hand *h, bool reached)
{
    struct probed m = {.reached = reached};
    struct probe asked;

    hand_check(msg_decode(&probe_schema, h->last[MESSAGE_PROBE].bytes,
                          h->last[MESSAGE_PROBE].len, &asked) == 0);
    for (uint32_t p = 0; p < h->n_puppets; p++) {
        for (unsigned i = 0; i < h->in.reach->n_tests; i++) {
            m.request = h->in.reach->tests[i].request;
            hand_say(h, p, MESSAGE_PROBED, &m);
        }
    }
    hand_drain(h, HAND_EVENTS);
}

static void a_node_believes_the_peers_that_it_asked(void **state)
{
    struct hand *h = hand_open(2);
    struct heartbeat beat;

    (void)state;
    hand_wait(h, 1000);
    assert_int_equal(h->n_sent[MESSAGE_PROBE], 2);
    assert_int_equal(status(h).reach, REACH_UNKNOWN);
    probe_answers(h, false);
    assert_int_equal(status(h).reach, REACH_RESTRICTED);
    hand_wait(h, 1000);
    assert_int_equal(msg_decode(&heartbeat_schema,
                                h->last[MESSAGE_HEARTBEAT].bytes,
                                h->last[MESSAGE_HEARTBEAT].len, &beat),
                     0);
    assert_int_equal(beat.reach, REACH_RESTRICTED);
    assert_false(beat.relays); /* nobody could come to it */
    assert_false(h->in.dht->opt.server);
    hand_close(h);

    h = hand_open(2);
    hand_wait(h, 1000);
    probe_answers(h, true);
    hand_wait(h, 1000);
    assert_int_equal(status(h).reach, REACH_PUBLIC);
    assert_int_equal(msg_decode(&heartbeat_schema,
                                h->last[MESSAGE_HEARTBEAT].bytes,
                                h->last[MESSAGE_HEARTBEAT].len, &beat),
                     0);
    assert_true(beat.reach == REACH_PUBLIC && beat.relays);
    assert_true(h->in.dht->opt.server);
    hand_close(h);
}

static void a_relay_calls_and_joins_whom_it_knows(void **state)
{
    struct hand *h = in_a_view(2);
    struct event ask = {.type = EVENT_RELAY, .relay.request = 1};
    struct called call;

    (void)state;
    ask.relay.peer = h->puppet[0].id;
    ask.relay.other = h->puppet[1].id;
    hand_post(h, &ask);
    hand_drain(h, HAND_EVENTS);
    assert_int_equal(h->n_sent[MESSAGE_CALLED], 1);
    assert_int_equal(h->last_to[MESSAGE_CALLED], h->link[1]);
    assert_int_equal(msg_decode(&called_schema, h->last[MESSAGE_CALLED].bytes,
                                h->last[MESSAGE_CALLED].len, &call),
                     0);
    assert_true(id_eq(&call.from, &h->puppet[0].id) && call.token != 0);
    ask.relay.peer = h->puppet[1].id;
    ask.relay.request = 2;
    ask.relay.token = call.token + 2; /* a guess */
    hand_post(h, &ask);
    hand_drain(h, HAND_EVENTS);
    assert_int_equal(h->n_actions[ACTION_RELAY_JOIN], 0);
    assert_int_equal(h->last_action[ACTION_RELAY_REFUSE].relay_refuse.request,
                     2);
    ask.relay.request = 3;
    ask.relay.token = call.token;
    hand_post(h, &ask);
    hand_drain(h, HAND_EVENTS);
    assert_int_equal(h->n_actions[ACTION_RELAY_JOIN], 1);
    assert_int_equal(h->last_action[ACTION_RELAY_JOIN].relay_join.request, 1);
    assert_int_equal(h->last_action[ACTION_RELAY_JOIN].relay_join.other_request,
                     3);
    ask.relay.request = 4; /* for somebody who is not here */
    ask.relay.token = 0;
    ask.relay.other = h->self.id;
    hand_post(h, &ask);
    hand_drain(h, HAND_EVENTS);
    assert_int_equal(h->last_action[ACTION_RELAY_REFUSE].relay_refuse.request,
                     4);
    hand_close(h);
}

/* What the relay says to the one that is called. */
static struct called called_of(struct hand *h)
{
    struct called call = {0};

    hand_check(msg_decode(&called_schema, h->last[MESSAGE_CALLED].bytes,
                          h->last[MESSAGE_CALLED].len, &call) == 0);
    return call;
}

static void a_relay_introduces_those_who_know_meetings(void **state)
{
    const struct hand_options opt = {.node = {.features = HELLO_MEETS}};
    struct hand *h = hand_open_as(2, &opt);
    struct hello hello = {.features = HELLO_MEETS,
                          .oldest = PROTO_OLDEST,
                          .newest = PROTO_NEWEST};
    struct event ask = {.type = EVENT_RELAY};
    struct called call;
    uint32_t n = 0;

    (void)state;
    hand_wait(h, 5000);
    ask.relay.peer = h->puppet[0].id;
    ask.relay.other = h->puppet[1].id;
    ask.relay.meet = true;
    ask.relay.from.ip[15] = 7;
    ask.relay.from.port = 4000;
    ask.relay.request = 1;
    hand_post(h, &ask); /* both are of the version before */
    hand_drain(h, HAND_EVENTS);
    assert_int_equal(h->n_sent[MESSAGE_CALLED], 0);
    assert_int_equal(h->last_action[ACTION_RELAY_REFUSE].relay_refuse.request,
                     1);
    for (uint32_t p = 0; p < 2; p++) {
        hello.life = h->life;
        hand_say(h, p, MESSAGE_HELLO, &hello);
    }
    ask.relay.request = 2;
    hand_post(h, &ask);
    hand_drain(h, HAND_EVENTS);
    call = called_of(h);
    assert_true(call.token != 0 && call.address.port == 4000);
    assert_int_equal(call.address.ip[15], 7);
    ask.relay.peer = h->puppet[1].id;
    ask.relay.other = h->puppet[0].id;
    ask.relay.request = 3;
    ask.relay.token = call.token;
    hand_post(h, &ask);
    hand_drain(h, HAND_EVENTS);
    assert_true(h->last_action[ACTION_RELAY_JOIN].relay_join.meet);
    assert_int_equal(h->last_action[ACTION_RELAY_JOIN].relay_join.request, 2);
    /* One that asks without end is not heard for ever. */
    ask.relay.token = 0;
    for (uint64_t i = 0; i < 1000; i++) {
        uint32_t before = h->n_sent[MESSAGE_CALLED];

        ask.relay.request = 10 + i;
        hand_post(h, &ask);
        hand_drain(h, HAND_EVENTS);
        n += h->n_sent[MESSAGE_CALLED] - before;
    }
    assert_true(n > 0 && n <= 128);
    hand_close(h);
}

static void a_spent_relay_closes_what_it_carries(void **state)
{
    struct hand *h = in_a_view(2);
    struct event ask = {.type = EVENT_RELAY, .relay.request = 1};
    struct event moved = {.type = EVENT_RELAY_MOVED, .relay_moved.request = 1};
    struct called call;

    (void)state;
    ask.relay.peer = h->puppet[0].id;
    ask.relay.other = h->puppet[1].id;
    hand_post(h, &ask);
    hand_drain(h, HAND_EVENTS);
    hand_check(msg_decode(&called_schema, h->last[MESSAGE_CALLED].bytes,
                          h->last[MESSAGE_CALLED].len, &call) == 0);
    ask.relay.peer = h->puppet[1].id;
    ask.relay.request = 2;
    ask.relay.token = call.token;
    hand_post(h, &ask);
    moved.relay_moved.n_bytes = 1 << 19;
    hand_post(h, &moved);
    hand_drain(h, HAND_EVENTS);
    assert_int_equal(h->n_actions[ACTION_RELAY_REFUSE], 0);
    moved.relay_moved.n_bytes = 1 << 20;
    hand_post(h, &moved);
    hand_drain(h, HAND_EVENTS);
    assert_int_equal(h->last_action[ACTION_RELAY_REFUSE].relay_refuse.request,
                     1);
    assert_int_equal(status(h).bytes_relayed, 3 << 19);
    hand_close(h);
}

/* One who says no is not the swarm, and says it once on a link. */
static void a_refusal_shows_while_nobody_lets_us_in(void **state)
{
    struct hand *h = in_a_view(2);
    struct refused no = {.reason = REFUSAL_EXPIRED};
    uint32_t before = h->n_hang_ups;

    (void)state;
    h->obedient = false;
    hand_say(h, 0, MESSAGE_REFUSED, &no);
    hand_drain(h, HAND_EVENTS);
    assert_int_equal(h->n_hang_ups, before + 1);
    assert_null(strstr(status(h).reason, "expired"));
    hand_say(h, 1, MESSAGE_REFUSED, &no);
    hand_drain(h, HAND_EVENTS);
    assert_non_null(strstr(status(h).reason, "expired"));
    hand_link(h, 1);
    no.reason = REFUSAL_NONE;
    hand_say(h, 1, MESSAGE_REFUSED, &no);
    hand_drain(h, HAND_EVENTS);
    assert_int_equal(h->in.admit->refusal, REFUSAL_INVALID);
    assert_true(status(h).reason[0] != '\0');
    assert_false(h->stopped); /* it knows the run */
    hand_close(h);
}

/* The end of a run of pairs: a peer says that it holds the mean of all, whose
 * hash is right and which is no numbers. */
static void a_mean_that_is_no_numbers_is_asked_for_once(void **state)
{
    struct hand *h = hand_open(1);
    struct heartbeat b = hand_beat(h);
    const struct hash32 zero = {{0}}; /* the roots of what is verified here */
    uint32_t loads;

    (void)state;
    h->obedient = false;
    h->terms.pairs = true;
    h->terms.min_peers = 1;
    h->terms.stop_rounds = 1;
    hand_wait(h, 1000);
    assert_true(h->in.held->loaded);
    loads = h->n_jobs[JOB_LOAD];
    h->load_rc = LOCO_ENUMERIC;
    b.has_view = true;
    b.round = 1;
    b.tokens = UINT64_MAX / 2;
    b.end_phase = END_WHOLE;
    b.commit = b.state_hash = node_state_hash(&zero, &zero);
    for (int k = 0; k < 60; k++) {
        hand_say(h, 0, MESSAGE_HEARTBEAT, &b);
        hand_wait(h, 500);
    }
    assert_int_equal(h->n_jobs[JOB_LOAD], loads + 1);
    assert_int_equal(status(h).sources_shunned, 1);
    assert_int_equal(status(h).round, 1);
    assert_int_equal(status(h).state, NODE_FINISHED);
    hand_close(h);
}

/* Nobody else is to blame for what is on our own disk. */
static void an_own_state_that_cannot_be_loaded_is_said(void **state)
{
    struct hand *h = hand_open(1);

    (void)state;
    h->obedient = false;
    h->terms.pairs = h->terms.holds_state = true;
    h->terms.held_round = 3;
    h->load_rc = LOCO_ENUMERIC;
    hand_wait(h, 1000);
    assert_false(h->in.held->loaded);
    assert_string_equal(status(h).reason, "cannot load the state");
    assert_int_equal(status(h).sources_shunned, 0);
    hand_close(h);
}

/* A checkpoint of a version without leases, and somebody who has the record
 * after all. */
static void a_state_without_its_record_begins_the_text_anew(void **state)
{
    struct commit *c = calloc(1, sizeof *c);
    struct hand *h = hand_open(1);
    const struct ledger *ledger =
        h->in.round->opt.record->commit.plan.body.ledgers;
    struct heartbeat b;

    (void)state;
    assert_non_null(c);
    c->plan.body.round = 7;
    c->plan.body.n_ledgers = 1;
    c->plan.body.ledgers[0].next = 100;
    message_commit_hash(&c->plan.body, &c->result, &h->terms.held_commit);
    h->terms.holds_state = true;
    h->terms.held_round = 7;
    h->terms.lease_quota = 5;
    hand_wait(h, 1000);
    assert_int_equal(status(h).round, 7);
    b = hand_beat(h);
    hand_say(h, 0, MESSAGE_HEARTBEAT, &b); /* the other one holds it too */
    hand_wait(h, 2000);
    assert_false(node_lease_known(h->node)); /* somebody may have it */
    assert_true(h->n_sent[MESSAGE_GET_COMMIT] > 0);
    assert_null(node_base(h->node));
    hand_wait(h, 5000);
    assert_true(node_lease_known(h->node));
    assert_int_equal(ledger->next, 7 * 5 * VIEW_MEMBERS_MAX);
    assert_null(node_record(h->node)); /* none that could be saved */
    hand_say(h, 0, MESSAGE_COMMIT, c);
    hand_wait(h, 10);
    assert_int_equal(ledger->next, 100);
    assert_non_null(node_record(h->node));
    assert_non_null(node_base(h->node));
    hand_close(h);
    free(c);
}

/* A puppet has finished its task. */
static void offer(struct hand *h, uint32_t p)
{
    const struct round *r = h->in.round;
    struct ready m = {.body = {.epoch = r->epoch,
                               .view = h->in.ballot->hash,
                               .round = r->round,
                               .tokens = h->tokens,
                               .last_step = 5,
                               .state = r->state}};

    hand_sign(h, p, &ready_body_schema, &m.body, m.sig);
    hand_say(h, p, MESSAGE_READY, &m);
}

/* A commit without our work, while a step of ours is under way: rounds are of
 * those who are ready. What is made of parameters goes on from the mean; a
 * gradient, whose parameters are gone, is dropped. */
static void a_commit_in_the_middle_of_a_step_ends_a_gradient(void **state)
{
    (void)state;
    for (int single_round = 0; single_round < 2; single_round++) {
        struct hand *h = hand_open(2);

        h->terms.quorum = true;
        h->terms.single_round = single_round == 1;
        h->tokens = 64;
        h->train_ms = 60000;
        hand_wait(h, 5000);
        offer(h, 0);
        offer(h, 1);
        hand_wait(h, 2000);
        assert_true(h->training);
        assert_int_equal(h->n_applied, 1);
        assert_int_equal(h->in.held->target_spent,
                         single_round ? SPENT_PARTLY : SPENT_NOT);
        assert_int_equal(h->last_job[JOB_APPLY].apply.rebase, !single_round);
        hand_close(h);
    }
}

/* The same where others may make work again: what the task made is undone, and
 * the next lease begins. A gradient's task goes on with other parameters. */
static void work_in_no_commit_is_undone_where_it_is_audited(void **state)
{
    (void)state;
    for (int audits = 0; audits < 2; audits++) {
        struct hand *h = hand_open(2);
        uint32_t n_trains;

        h->terms.quorum = h->terms.single_round = true;
        h->terms.audits_work = audits == 1;
        h->tokens = 64;
        h->train_ms = 60000;
        hand_wait(h, 5000);
        n_trains = h->n_jobs[JOB_TRAIN];
        offer(h, 0);
        offer(h, 1);
        hand_wait(h, 2000);
        assert_int_equal(h->n_applied, 1);
        assert_int_equal(h->last_job[JOB_APPLY].apply.undo, audits);
        assert_int_equal(h->n_jobs[JOB_TRAIN] - n_trains, audits);
        hand_close(h);
    }
}

/* The same where the next text of ours is in a shard that is not here: we are
 * in the round of the others without weight. */
static void who_waits_for_its_text_goes_on_from_the_mean(void **state)
{
    (void)state;
    for (int single_round = 0; single_round < 2; single_round++) {
        struct hand *h = hand_open(2);

        h->terms.single_round = single_round == 1;
        h->terms.lease_quota = h->terms.period;
        h->terms.window_batch = 1;
        h->terms.n_shards = 2;
        h->terms.shards[0].windows = 3 * h->terms.period; /* all of round 1 */
        h->terms.shards[1].windows = h->terms.shards[1].bytes = 1000;
        h->tokens = 64;
        for (int t = 0; t < 60 && h->n_applied == 0; t++) {
            hand_wait(h, 1000); /* until the node makes the plan: its ledger */
        }
        assert_int_equal(h->in.held->target_spent, SPENT_WHOLLY);
        assert_true(h->in.held->applied.round == 1 && !h->training);
        offer(h, 0);
        offer(h, 1);
        hand_wait(h, 2000);
        assert_int_equal(h->n_applied, 2);
        assert_int_equal(h->in.held->target_spent,
                         single_round ? SPENT_PARTLY : SPENT_NOT);
        assert_int_equal(h->last_job[JOB_APPLY].apply.rebase, !single_round);
        hand_close(h);
    }
}

/* Training goes on as soon as the new state is in place; others are told of it,
 * and asked to go on from it, under its hash. */
static void the_next_steps_do_not_wait_for_hashes(void **state)
{
    struct hand *h = in_a_view(2);
    struct node_status before;

    (void)state;
    for (int t = 0; t < 60 && h->n_applied == 0; t++) {
        hand_wait(h, 1000);
    }
    h->hashes_later = true;
    before = status(h);
    for (int t = 0; t < 60 && !h->in.held->placed; t++) {
        hand_wait(h, 100);
    }
    assert_true(h->in.held->applying && h->in.held->placed);
    assert_true(h->in.held->known.round > h->in.held->applied.round);
    assert_int_equal(h->last_job[JOB_TRAIN].train.round,
                     h->in.held->known.round + 1);
    assert_true(h->training && h->in.training->active);
    hand_wait(h, 10000); /* READY waits for the hash, and so do the others */
    assert_false(h->training);
    assert_int_equal(status(h).round, h->in.held->applied.round);
    assert_int_equal(h->in.held->known.round, h->in.held->applied.round + 1);
    assert_true(h->in.round->contributed);
    h->hashes_later = false;
    hand_local(h, &h->applied);
    hand_wait(h, 10000);
    assert_true(status(h).round > before.round + 2);
    assert_int_equal(status(h).tokens_dropped, 0);
    hand_close(h);
}

/* Whose turn it is to measure the new state does not train from it before. */
static void who_measures_a_state_waits_for_it(void **state)
{
    struct hand *h = hand_open(2);
    uint32_t n_trains;

    (void)state;
    h->terms.stop_rounds = 1000000;
    h->terms.rollback_microbits = 500000; /* each measures each state */
    h->hashes_later = true;
    for (int t = 0; t < 60 && h->n_applied == 0; t++) {
        hand_wait(h, 1000);
    }
    n_trains = h->n_jobs[JOB_TRAIN];
    hand_wait(h, 5000);
    assert_true(h->in.held->applying && !h->in.held->placed);
    assert_int_equal(h->n_jobs[JOB_TRAIN], n_trains);
    hand_local(h, &h->applied);
    hand_wait(h, 10);
    assert_int_equal(h->n_jobs[JOB_TRAIN], n_trains + 1);
    hand_close(h);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_node_founds_a_view_with_peers_that_are_ready),
        cmocka_unit_test(rounds_commit_while_everybody_does_their_part),
        cmocka_unit_test(a_silent_member_is_lost_and_the_others_go_on),
        cmocka_unit_test(bytes_that_are_no_message_close_their_link),
        cmocka_unit_test(epochs_that_nobody_reached_do_not_stop_the_founding),
        cmocka_unit_test(a_view_that_one_peer_made_up_is_not_entered),
        cmocka_unit_test(what_belongs_to_another_view_round_or_run_is_counted),
        cmocka_unit_test(an_evaluation_of_a_round_to_come_is_not_shown),
        cmocka_unit_test(only_what_is_held_is_served),
        cmocka_unit_test(a_member_that_missed_its_view_is_sent_it_again),
        cmocka_unit_test(only_work_that_a_state_replaced_counts_as_dropped),
        cmocka_unit_test(a_finished_run_rests),
        cmocka_unit_test(a_probe_goes_where_the_asker_is_and_not_often),
        cmocka_unit_test(a_node_believes_the_peers_that_it_asked),
        cmocka_unit_test(a_relay_calls_and_joins_whom_it_knows),
        cmocka_unit_test(a_relay_introduces_those_who_know_meetings),
        cmocka_unit_test(a_spent_relay_closes_what_it_carries),
        cmocka_unit_test(a_refusal_shows_while_nobody_lets_us_in),
        cmocka_unit_test(a_mean_that_is_no_numbers_is_asked_for_once),
        cmocka_unit_test(an_own_state_that_cannot_be_loaded_is_said),
        cmocka_unit_test(a_state_without_its_record_begins_the_text_anew),
        cmocka_unit_test(a_commit_in_the_middle_of_a_step_ends_a_gradient),
        cmocka_unit_test(work_in_no_commit_is_undone_where_it_is_audited),
        cmocka_unit_test(who_waits_for_its_text_goes_on_from_the_mean),
        cmocka_unit_test(the_next_steps_do_not_wait_for_hashes),
        cmocka_unit_test(who_measures_a_state_waits_for_it),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
