/* node_outside_test.c - a node that is in no view yet, and what it believes of
 * the peers that are in one: their view is proven, most of them say the same.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "p2p/prefix.h"
#include "p2p/round/chain.h"
#include "tests/unit/daemon/hand.h"

#define MEMBERS 3
#define ROUND   10

/* The puppets have founded a view without the node. */
struct fixture {
    struct hand *h;
    struct view_cert cert;
    struct hash32 view;
    struct chain chain;
    uint8_t bytes[CHAIN_BYTES_MAX];
    uint32_t part;       /* of a proof in one message */
    struct proof answer; /* .. which says this but for the bytes; */
    bool silent;         /* or does not come */
    uint32_t n_asked[MEMBERS], n_seen;
    struct heartbeat beat[MEMBERS];
};

static struct node_status status(const struct fixture *f)
{
    struct node_status s;

    node_status(f->h->node, &s);
    return s;
}

/* A commit of that round, which says so in its first byte. */
static struct heartbeat beat_at(const struct fixture *f, uint64_t round)
{
    struct heartbeat b = {.life = f->h->life,
                          .state = NODE_TRAINING,
                          .configured = true,
                          .ready = true,
                          .has_view = true,
                          .epoch = 1,
                          .view = f->view,
                          .round = round,
                          .tokens = 1000 * round};

    b.commit.b[0] = (uint8_t)round;
    b.state_hash.b[1] = (uint8_t)round;
    return b;
}

/* The puppets from `first` on found a view; `salt` tells it from another. */
static void found(struct fixture *f, uint32_t first, uint16_t salt)
{
    struct ballot_body b = {.ballot = 1};
    struct view_cert *c = &f->cert;
    const struct chain_rules rules = {.min_peers = 2, .signer = &f->h->pen};

    memset(c, 0, sizeof *c);
    c->ballot = 1;
    c->body.epoch = 1;
    c->body.mode = VIEW_FOUND;
    for (uint32_t p = first; p < MEMBERS; p++) {
        struct view_member *m = &c->body.members[c->body.n_members++];

        memcpy(m->public_key, f->h->puppet[p].public, 32);
        m->address.port = salt;
    }
    assert_int_equal(view_sort(&c->body), 0);
    view_hash(&c->body, &b.view);
    for (uint32_t p = first; p < MEMBERS; p++) {
        struct view_signature *s = &c->sigs[c->n_sigs++];

        memcpy(s->public_key, f->h->puppet[p].public, 32);
        hand_sign(f->h, p, &ballot_body_schema, &b, s->sig);
    }
    f->view = b.view;
    chain_init(&f->chain, f->bytes);
    assert_int_equal(chain_extend(&f->chain, &rules, c), 0);
    f->part = f->chain.used;
    f->answer = (struct proof){.view = f->view, .total = f->chain.used};
    for (uint32_t p = 0; p < MEMBERS; p++) {
        f->beat[p] = beat_at(f, ROUND);
    }
}

static struct fixture *open_with(const struct hand_options *opt)
{
    struct fixture *f = calloc(1, sizeof *f);

    assert_non_null(f);
    f->h = hand_open_as(MEMBERS, opt);
    f->h->obedient = false;
    f->h->terms.min_peers = MEMBERS;
    found(f, 0, 1);
    return f;
}

static struct fixture *open_fixture(void)
{
    const struct hand_options opt = {.highest = false};

    return open_with(&opt);
}

static void close_fixture(struct fixture *f)
{
    hand_close(f->h);
    free(f);
}

/* Puppet p gives a part of the proof. */
static void give(struct fixture *f, uint32_t p, uint32_t offset)
{
    struct proof m = f->answer;
    uint32_t left = offset < f->chain.used ? f->chain.used - offset : 0;

    m.offset = offset;
    m.n_bytes = left < f->part ? left : f->part;
    memcpy(m.bytes, f->bytes + offset, m.n_bytes);
    hand_say(f->h, p, MESSAGE_PROOF, &m);
}

/* Proofs that were asked for are given. */
static void answer(struct fixture *f)
{
    const struct hand_message *last = &f->h->last[MESSAGE_GET_PROOF];
    uint32_t p = hand_puppet_of(f->h, f->h->last_to[MESSAGE_GET_PROOF]);
    struct get_proof ask;

    if (f->h->n_sent[MESSAGE_GET_PROOF] == f->n_seen) {
        return;
    }
    assert_int_equal(f->h->n_sent[MESSAGE_GET_PROOF], ++f->n_seen);
    assert_int_equal(
        msg_decode(&get_proof_schema, last->bytes, last->len, &ask), 0);
    assert_true(p < MEMBERS && hash32_eq(&ask.view, &f->beat[p].view));
    f->n_asked[p]++;
    if (!f->silent) {
        give(f, p, ask.offset);
    }
}

static void pass(struct fixture *f, uint64_t ms)
{
    for (uint64_t t = 0; t < ms; t += 50) {
        for (uint32_t p = 0; p < MEMBERS && t % 100 == 0; p++) {
            hand_say(f->h, p, MESSAGE_HEARTBEAT, &f->beat[p]);
        }
        hand_wait(f->h, 50);
        answer(f);
    }
}

static const struct node_point *target(const struct fixture *f)
{
    return &f->h->in.held->target;
}

/* ---- what most members say ---------------------------------------------- */

static void the_newest_commit_is_what_most_members_name(void **state)
{
    struct fixture *f = open_fixture();

    (void)state;
    f->beat[0] = beat_at(f, ROUND + 90); /* it lies */
    pass(f, 3000);
    assert_int_equal(f->n_seen, 1); /* one proof is enough */
    assert_int_equal(target(f)->round, ROUND);
    assert_int_equal(target(f)->commit.b[0], ROUND);
    f->beat[1].commit.b[5] = 1; /* now nobody says the same */
    f->beat[2].tokens++;
    f->beat[1].round = f->beat[2].round = ROUND + 1;
    pass(f, 3000);
    assert_int_equal(target(f)->round, ROUND);
    f->beat[1] = f->beat[2] = beat_at(f, ROUND + 1);
    pass(f, 3000);
    assert_int_equal(target(f)->round, ROUND + 1);
    close_fixture(f);
}

/* The next view, in which only puppet 0 is full. */
static void go_on_probation(struct fixture *f)
{
    const struct chain_rules rules = {.min_peers = 2, .signer = &f->h->pen};
    struct ballot_body b = {.ballot = 2};
    struct view_cert *c = &f->cert;

    c->ballot = b.ballot;
    c->body.mode = VIEW_MAJORITY;
    c->body.epoch = 2;
    c->body.prev = f->view;
    for (uint32_t i = 0; i < MEMBERS; i++) {
        bool full = memcmp(c->body.members[i].public_key,
                           f->h->puppet[0].public, 32) == 0;

        c->body.members[i].full_since = full ? 1 : FULL_NEVER;
    }
    view_hash(&c->body, &b.view);
    c->n_sigs = 0;
    for (uint32_t p = 0; p < MEMBERS; p++) {
        struct view_signature *s = &c->sigs[c->n_sigs++];

        memcpy(s->public_key, f->h->puppet[p].public, 32);
        hand_sign(f->h, p, &ballot_body_schema, &b, s->sig);
    }
    f->view = b.view;
    assert_int_equal(chain_extend(&f->chain, &rules, c), 0);
    f->part = f->chain.used;
    f->answer = (struct proof){.view = f->view, .total = f->chain.used};
    for (uint32_t p = 0; p < MEMBERS; p++) {
        f->beat[p] = beat_at(f, ROUND);
        f->beat[p].epoch = 2;
    }
}

/* Sixteen of one machine can be on probation beside a few founders. */
static void who_is_on_probation_does_not_say_what_a_view_holds(void **state)
{
    struct fixture *f = open_fixture();

    (void)state;
    go_on_probation(f);
    f->beat[1] = f->beat[2] = beat_at(f, ROUND + 5);
    pass(f, 3000);
    assert_int_equal(target(f)->round, ROUND);
    close_fixture(f);
}

static void how_far_behind_it_is_shows_whatever_the_reason(void **state)
{
    struct refused no = {.reason = REFUSAL_EXPIRED};
    struct fixture *f = open_fixture();

    (void)state;
    pass(f, 3000);
    assert_non_null(strstr(status(f).reason, "most members of a view"));
    assert_int_equal(status(f).rounds_behind, ROUND);
    for (uint32_t p = 0; p < MEMBERS; p++) {
        hand_say(f->h, p, MESSAGE_REFUSED, &no);
    }
    hand_wait(f->h, 100);
    assert_non_null(strstr(status(f).reason, "expired"));
    assert_int_equal(status(f).rounds_behind, ROUND);
    close_fixture(f);

    f = open_fixture(); /* with a state of its own */
    f->h->terms.holds_state = true;
    f->h->terms.held_round = 3;
    hand_wait(f->h, 1000);
    assert_int_equal(status(f).round, 3);
    assert_int_equal(status(f).rounds_behind, 0);
    pass(f, 1000);
    assert_non_null(strstr(status(f).reason, "7 rounds behind"));
    assert_int_equal(status(f).rounds_behind, ROUND - 3);
    close_fixture(f);
}

/* What one of two that agree says otherwise is not agreed on. */
static void a_commit_is_the_same_in_everything(void **state)
{
    (void)state;
    for (int odd = 0; odd < 7; odd++) {
        struct fixture *f = open_fixture();
        struct heartbeat *b = &f->beat[1];

        f->beat[0] = beat_at(f, ROUND + 90);
        b->round += odd == 1;
        b->tokens += odd == 2;
        b->commit.b[9] ^= odd == 3;
        b->state_hash.b[9] ^= odd == 4;
        b->ready = odd != 5;
        b->view.b[9] ^= odd == 6;
        pass(f, 2000);
        assert_int_equal(target(f)->round, odd == 0 ? ROUND : 0);
        close_fixture(f);
    }
}

/* Puppet 0 is in no view of the run, and says what member 1 says. */
static void a_stranger_does_not_speak_for_a_view(void **state)
{
    struct fixture *f = open_fixture();

    (void)state;
    f->h->terms.min_peers = 2;
    found(f, 1, 1);
    f->beat[0] = f->beat[1] = beat_at(f, ROUND + 90);
    pass(f, 3000);
    assert_true(f->n_seen > 0);
    assert_int_equal(target(f)->round, 0);
    f->beat[1] = beat_at(f, ROUND);
    pass(f, 3000);
    assert_int_equal(target(f)->round, ROUND);
    close_fixture(f);
}

/* However much it claims to be ahead. */
static void a_view_that_is_proven_goes_before_one_that_is_not(void **state)
{
    struct fixture *f = open_fixture();

    (void)state;
    f->h->terms.min_peers = 2;
    found(f, 1, 1);
    f->beat[0] = beat_at(f, ROUND + 90);
    f->beat[0].view.b[0] ^= 1;
    pass(f, f->h->terms.fork_after_ms + 3000); /* patience changes nothing */
    assert_true(f->n_asked[0] > 0);
    assert_int_equal(target(f)->round, ROUND);
    close_fixture(f);
}

/* ---- where we are -------------------------------------------------------- */

/* Puppet p says at which IPv4 address it sees us: 89.1.last.1. */
static void sees_us(struct fixture *f, uint32_t p, uint8_t last)
{
    struct hello m = {.life = f->h->life,
                      .oldest = PROTO_OLDEST,
                      .newest = PROTO_NEWEST,
                      .observed = {.ip = {[12] = 89, 1, last, 1}}};

    prefix_map_v4(m.observed.ip);
    hand_say(f->h, p, MESSAGE_HELLO, &m);
}

/* Members compare what a JOIN names with the link that it comes over. So one
 * that lies of what it sees, or sees another address of ours, keeps us out of
 * no view: each is told what it sees itself. */
static void a_join_names_the_address_that_its_reader_sees(void **state)
{
    struct fixture *f = open_fixture();
    struct join m;

    (void)state;
    for (uint32_t p = 0; p < MEMBERS; p++) {
        f->beat[p] = beat_at(f, 0);
        f->beat[p].has_view = false; /* the node begins by itself */
        sees_us(f, p, (uint8_t)(p + 1));
    }
    pass(f, 1000);
    assert_true(f->h->in.held->loaded);
    for (uint32_t p = 0; p < MEMBERS; p++) {
        f->beat[p] = beat_at(f, 0);
    }
    for (int t = 0; t < 30 && f->h->n_sent[MESSAGE_JOIN] == 0; t++) {
        pass(f, 100);
    }
    hand_forget(f->h);
    pass(f, 600);
    for (uint32_t p = 0; p < MEMBERS; p++) {
        assert_true(hand_heard(f->h, p, MESSAGE_JOIN, 0, &m));
        assert_int_equal(m.body.address.ip[14], p + 1);
        assert_true(message_verify(&f->h->pen, f->h->self.public,
                                   &join_body_schema, &m.body, m.sig));
    }
    close_fixture(f);
}

/* ---- the newest commit -------------------------------------------------- */

/* The record of a commit of that view; each of its members votes for it. */
static struct commit *record_of(struct fixture *f, uint32_t n_members)
{
    struct commit *c = calloc(1, sizeof *c);
    struct plan_body *p = &c->plan.body;
    struct vote_body vote = {.epoch = 1, .view = f->view, .round = ROUND};

    assert_non_null(c);
    p->epoch = 1;
    p->view = f->view;
    p->round = ROUND;
    p->n_members = n_members;
    c->result.b[0] = 3;
    c->n_votes = n_members;
    for (uint32_t k = 0; k < n_members; k++) {
        p->members[k].index = (uint8_t)k;
        p->members[k].tokens = 64;
    }
    vote.result = c->result;
    message_hash(&plan_body_schema, "loco-plan-1", p, &vote.plan);
    for (uint32_t k = 0; k < n_members; k++) {
        for (uint32_t q = 0; q < MEMBERS; q++) {
            if (memcmp(f->h->puppet[q].public,
                       f->cert.body.members[k].public_key, 32) == 0) {
                memcpy(c->votes[k].public_key, f->h->puppet[q].public, 32);
                hand_sign(f->h, q, &vote_body_schema, &vote, c->votes[k].sig);
            }
        }
    }
    return c;
}

/* What all members name is no commit until signatures show it. */
static void a_state_is_fetched_when_votes_show_its_commit(void **state)
{
    (void)state;
    for (int how = 0; how < 4; how++) {
        struct fixture *f = open_fixture();
        struct commit *c = record_of(f, how == 1 ? 1 : MEMBERS);
        struct hash32 hash;

        c->votes[MEMBERS - 1].sig[0] ^= how == 2;
        message_commit_hash(&c->plan.body, &c->result, &hash);
        for (uint32_t p = 0; p < MEMBERS; p++) {
            f->beat[p].commit = hash;
            f->beat[p].commit.b[0] ^= how == 3; /* they name another one */
        }
        pass(f, 2000);
        assert_true(f->h->n_sent[MESSAGE_GET_COMMIT] > 0);
        assert_int_equal(f->h->n_sent[MESSAGE_FETCH], 0);
        hand_say(f->h, 1, MESSAGE_COMMIT, c);
        pass(f, 2000);
        assert_int_equal(f->h->n_sent[MESSAGE_FETCH] > 0, how == 0);
        close_fixture(f);
        free(c);
    }
}

/* ---- proofs ------------------------------------------------------------- */

static void a_proof_comes_part_by_part(void **state)
{
    struct fixture *f = open_fixture();

    (void)state;
    f->part = f->chain.used / 4 + 1;
    pass(f, 2000);
    assert_int_equal(f->n_seen, 4);
    assert_int_equal(target(f)->round, ROUND);
    assert_int_equal(status(f).malformed, 0);
    close_fixture(f);
}

/* It would be asked for part after part. */
static void who_gives_a_proof_in_drops_is_not_waited_for(void **state)
{
    struct fixture *f = open_fixture();

    (void)state;
    f->part = f->chain.used / 9;
    pass(f, 2000);
    assert_int_equal(f->n_seen, MEMBERS); /* each of them once */
    assert_int_equal(target(f)->round, 0);
    close_fixture(f);
}

/* The puppet that is asked for a proof before all others. */
static uint32_t asked_first(struct fixture *f)
{
    while (f->n_seen == 0) {
        pass(f, 50);
    }
    return f->n_asked[0] > 0 ? 0 : f->n_asked[1] > 0 ? 1 : 2;
}

/* Who was asked is heard: the others, and what nobody asked for, are not. */
static void only_the_part_that_was_asked_for_is_taken(void **state)
{
    struct fixture *f = open_fixture();
    uint32_t asked, other;

    (void)state;
    f->part = f->chain.used / 2 + 1;
    f->silent = true;
    asked = asked_first(f);
    other = (asked + 1) % MEMBERS;
    f->bytes[0] ^= 1; /* rubbish */
    give(f, other, 0);
    f->answer.view.b[0] ^= 1;
    give(f, asked, 0);
    f->answer.view.b[0] ^= 1;
    give(f, asked, f->part);
    f->bytes[0] ^= 1;
    give(f, asked, 0);
    pass(f, 50);       /* the other half is asked for */
    give(f, asked, 0); /* said again */
    give(f, asked, f->part);
    hand_wait(f->h, 1);
    give(f, asked, 0); /* nobody asks any more */
    pass(f, 500);
    assert_int_equal(f->n_seen, 2);
    assert_int_equal(status(f).malformed, 0);
    assert_int_equal(target(f)->round, ROUND);
    close_fixture(f);
}

/* Whoever answers like that is not asked again at once; nor is it a reason to
 * close a link. */
static void who_has_no_proof_is_left_alone_for_a_while(void **state)
{
    (void)state;
    for (int how = 0; how < 4; how++) {
        struct fixture *f = open_fixture();

        f->part = how == 0 ? 0 : f->chain.used / 2; /* nothing is in it */
        f->answer.total = how == 1   ? CHAIN_BYTES_MAX + 1
                          : how == 2 ? f->part - 1
                                     : f->answer.total;
        f->silent = how == 3;
        pass(f, 5000);
        for (uint32_t p = 0; p < MEMBERS; p++) {
            assert_int_equal(f->n_asked[p], 1);
        }
        pass(f, 9000);
        for (uint32_t p = 0; p < MEMBERS; p++) {
            assert_int_equal(f->n_asked[p], 2);
        }
        assert_int_equal(target(f)->round, 0);
        assert_int_equal(status(f).malformed, 0);
        assert_int_equal(f->h->n_hang_ups, 0);
        close_fixture(f);
    }
}

/* Puppet p's link ends, and it comes again. */
static void link_anew(struct fixture *f, uint32_t p)
{
    struct event down = {.type = EVENT_LINK_DOWN,
                         .link_down.link = f->h->link[p]};

    hand_post(f->h, &down);
    hand_drain(f->h, HAND_EVENTS);
    hand_link(f->h, p);
    hand_drain(f->h, HAND_EVENTS);
}

/* Of two that dial each other one link is closed, with the question on it. */
static void a_question_that_a_link_took_with_it_is_asked_anew(void **state)
{
    struct fixture *f = open_fixture();
    uint32_t asked;

    (void)state;
    f->silent = true;
    asked = asked_first(f);
    f->silent = false;
    link_anew(f, asked);
    answer(f);
    pass(f, 200);
    assert_int_equal(f->n_asked[asked], 2);
    assert_int_equal(f->n_seen, 2); /* nobody else */
    assert_int_equal(target(f)->round, ROUND);
    close_fixture(f);
}

static void who_drops_its_links_is_not_waited_for_longer(void **state)
{
    struct fixture *f = open_fixture();
    uint32_t asked;

    (void)state;
    f->silent = true;
    asked = asked_first(f);
    for (uint32_t k = 0; k < 12; k++) {
        link_anew(f, asked);
        answer(f);
        pass(f, 100);
    }
    assert_true(f->n_asked[asked] > 5);
    assert_true(f->n_seen > f->n_asked[asked]); /* another one, too */
    close_fixture(f);
}

/* The second part is of another length than the first one said. */
static void a_proof_does_not_grow_on_its_way(void **state)
{
    struct fixture *f = open_fixture();
    uint32_t asked;

    (void)state;
    f->part = f->chain.used / 2 + 1;
    f->silent = true;
    asked = asked_first(f);
    give(f, asked, 0);
    pass(f, 50);
    f->answer.total++;
    give(f, asked, f->part);
    pass(f, 200);
    assert_int_equal(target(f)->round, 0);
    assert_int_equal(f->n_asked[asked], 2); /* and not for more of it */
    f->answer.total--;
    f->silent = false;
    pass(f, 3000); /* another one has it */
    assert_int_equal(target(f)->round, ROUND);
    close_fixture(f);
}

/* It is good, but the view that the peer names is not its end. */
static void a_chain_proves_its_own_view_only(void **state)
{
    struct fixture *f = open_fixture();

    (void)state;
    for (uint32_t p = 0; p < MEMBERS; p++) {
        f->beat[p].view.b[0] ^= 1;
    }
    f->answer.view.b[0] ^= 1;
    pass(f, 2000);
    assert_int_equal(status(f).malformed, MEMBERS);
    assert_int_equal(target(f)->round, 0);
    close_fixture(f);
}

/* Ids are free: anybody can found a run of the same name. */
static void a_founding_that_is_not_ours_is_not_followed(void **state)
{
    struct fixture *ours = open_fixture(), *f;
    struct hand_options opt = {
        .node = {.chain = ours->bytes, .chain_len = ours->chain.used}};

    (void)state;
    f = open_with(&opt);
    found(f, 0, 2);
    pass(f, 3000);
    assert_int_equal(f->n_seen, 1);
    assert_int_equal(target(f)->round, 0);
    found(f, 0, 1);
    pass(f, 3000);
    assert_int_equal(target(f)->round, ROUND);
    close_fixture(f);
    close_fixture(ours);
}

/* Puppet 0 answers where the invitation says that a host is. */
static void answer_invitation(struct fixture *f)
{
    const struct event tick = {.type = EVENT_TICK};
    struct hello hello = {
        .life = f->h->life, .oldest = PROTO_OLDEST, .newest = PROTO_NEWEST};
    struct event e = {.type = EVENT_LINK_UP,
                      .link_up.link = 900,
                      .link_up.peer = f->h->puppet[0].id,
                      .link_up.address.port = 4001};

    hand_step(f->h, &tick); /* nobody is linked yet */
    assert_true(f->h->n_actions[ACTION_DIAL] > 0);
    e.link_up.request = f->h->last_action[ACTION_DIAL].dial.request;
    memcpy(e.link_up.public_key, f->h->puppet[0].public, 32);
    f->h->link[0] = 900;
    hand_post(f->h, &e);
    hand_say(f->h, 0, MESSAGE_HELLO, &hello);
    hand_drain(f->h, HAND_EVENTS); /* its other link ends before it is asked */
}

/* Whether the node goes by a claim that nobody proves. */
static bool is_believed(bool invited)
{
    struct hand_options opt = {.node = {.n_bootstrap = invited}};
    struct fixture *f;
    bool believed;

    opt.node.bootstrap[0].port = 7700;
    f = open_with(&opt);
    f->silent = true;
    if (invited) {
        answer_invitation(f);
    }
    pass(f, f->h->terms.fork_after_ms - 2000);
    assert_int_equal(target(f)->round, 0);
    pass(f, 4000);
    believed = target(f)->round == ROUND;
    close_fixture(f);
    return believed;
}

static void who_proves_nothing_is_believed_if_our_invitation_names_it(void **s)
{
    (void)s;
    assert_true(is_believed(true));
    assert_false(is_believed(false));
}

/* ---- founding ------------------------------------------------------------ */

/* Whether the node founds a view when two others, in none, say that they are
 * linked to so many, themselves counted, and were in a view of that epoch. */
static bool founds(bool highest, uint8_t linked, uint64_t epoch)
{
    const struct hand_options opt = {.highest = highest};
    struct hand *h = hand_open_as(2, &opt);
    struct heartbeat b = hand_beat(h);
    bool asks;

    h->obedient = false;
    b.linked_candidates = linked;
    b.epoch = epoch;
    for (int t = 0; t < 20; t++) {
        hand_set_beat(h, 0, &b);
        hand_set_beat(h, 1, &b);
        hand_wait(h, 500);
    }
    asks = h->n_sent[MESSAGE_PREPARE] > 0;
    hand_close(h);
    return asks;
}

static void who_founds_a_view_is_agreed_by_all(void **state)
{
    (void)state;
    assert_true(founds(false, 3, 0)); /* all the same: the lowest id */
    assert_false(founds(true, 3, 0));
    assert_true(founds(true, 2, 0));   /* they do not reach all */
    assert_false(founds(false, 4, 0)); /* they reach one more */
    assert_false(founds(false, 3, 5)); /* they know whose majority it takes */
}

/* ---- our own proof ------------------------------------------------------ */

static struct proof asked_for(struct hand *h, struct get_proof *ask)
{
    const struct hand_message *last = &h->last[MESSAGE_PROOF];
    struct proof m;

    hand_say(h, 0, MESSAGE_GET_PROOF, ask);
    hand_drain(h, HAND_EVENTS);
    assert_int_equal(msg_decode(&proof_schema, last->bytes, last->len, &m), 0);
    return m;
}

static void a_member_proves_its_view_to_whoever_asks(void **state)
{
    static uint8_t bytes[CHAIN_BYTES_MAX];
    struct hand *h = hand_open(2);
    const struct chain_rules rules = {.min_peers = 3, .signer = &h->pen};
    struct get_proof ask = {.offset = 0};
    struct heartbeat b;
    struct chain c;
    struct proof m;

    (void)state;
    hand_wait(h, 5000);
    assert_true(h->in.ballot->have);
    ask.view = h->in.ballot->hash;
    m = asked_for(h, &ask);
    assert_int_equal(m.n_bytes, m.total);
    chain_init(&c, bytes);
    assert_int_equal(chain_read(&c, &rules, m.bytes, m.n_bytes), 0);
    assert_true(chain_proves(&c, &ask.view));
    for (ask.offset = m.total; ask.offset < m.total + 2; ask.offset++) {
        assert_int_equal(asked_for(h, &ask).n_bytes, 0);
    }
    ask.offset = 0;
    ask.view.b[0] ^= 1; /* it cannot prove that one */
    assert_int_equal(asked_for(h, &ask).total, 0);
    b = hand_beat(h);
    b.view = ask.view; /* nor does it want to know more of it */
    hand_set_beat(h, 1, &b);
    hand_wait(h, 1000);
    assert_int_equal(h->n_sent[MESSAGE_GET_PROOF], 0);
    hand_close(h);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_newest_commit_is_what_most_members_name),
        cmocka_unit_test(who_is_on_probation_does_not_say_what_a_view_holds),
        cmocka_unit_test(how_far_behind_it_is_shows_whatever_the_reason),
        cmocka_unit_test(a_commit_is_the_same_in_everything),
        cmocka_unit_test(a_stranger_does_not_speak_for_a_view),
        cmocka_unit_test(a_view_that_is_proven_goes_before_one_that_is_not),
        cmocka_unit_test(a_join_names_the_address_that_its_reader_sees),
        cmocka_unit_test(a_state_is_fetched_when_votes_show_its_commit),
        cmocka_unit_test(a_proof_comes_part_by_part),
        cmocka_unit_test(who_gives_a_proof_in_drops_is_not_waited_for),
        cmocka_unit_test(only_the_part_that_was_asked_for_is_taken),
        cmocka_unit_test(who_has_no_proof_is_left_alone_for_a_while),
        cmocka_unit_test(a_question_that_a_link_took_with_it_is_asked_anew),
        cmocka_unit_test(who_drops_its_links_is_not_waited_for_longer),
        cmocka_unit_test(a_proof_does_not_grow_on_its_way),
        cmocka_unit_test(a_chain_proves_its_own_view_only),
        cmocka_unit_test(a_founding_that_is_not_ours_is_not_followed),
        cmocka_unit_test(
            who_proves_nothing_is_believed_if_our_invitation_names_it),
        cmocka_unit_test(who_founds_a_view_is_agreed_by_all),
        cmocka_unit_test(a_member_proves_its_view_to_whoever_asks),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
