/* node_branch_test.c - a node in a view, and what others say of it, of other
 * views and of other ends of the run. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "p2p/prefix.h"
#include "p2p/round/chain.h"
#include "tests/unit/daemon/hand.h"

static struct node_status status(const struct hand *h)
{
    struct node_status s;

    node_status(h->node, &s);
    return s;
}

/* In a view with the first n puppets; a third one is linked and in none. */
static struct hand *in_a_view_until(uint32_t n, uint64_t stop_rounds)
{
    struct hand *h = hand_open(HAND_PUPPETS);
    struct heartbeat b = hand_beat(h);

    h->train_ms = stop_rounds == 0 ? 600000 : h->train_ms; /* no round yet */
    h->terms.min_peers = n + 1;
    h->terms.stop_rounds = stop_rounds;
    b.linked_candidates = (uint8_t)(n + 1);
    for (uint32_t p = 0; p < HAND_PUPPETS; p++) {
        b.ready = p < n;
        hand_set_beat(h, p, &b);
    }
    for (int t = 0; t < 50 && !h->in.ballot->have; t++) {
        hand_wait(h, 100);
    }
    assert_true(h->in.ballot->have);
    for (uint32_t p = 0; p < n; p++) {
        h->has_beat[p] = false; /* from now on as the node's own */
    }
    hand_wait(h, 3000);
    assert_int_equal(h->in.ballot->cert.body.n_members, n + 1);
    return h;
}

static struct hand *in_a_view(uint32_t n)
{
    return in_a_view_until(n, 1000000);
}

/* ---- goodbyes ------------------------------------------------------------ */

static void only_who_goes_says_goodbye(void **state)
{
    (void)state;
    for (int how = 0; how < 4; how++) {
        struct hand *h = in_a_view(2);
        struct goodbye m = {.body = {.epoch = 1, .peer = h->puppet[0].id}};
        uint32_t pen = how == 2;

        m.body.peer = h->puppet[how == 1].id; /* of somebody else */
        hand_sign(h, pen, &goodbye_body_schema, &m.body, m.sig);
        m.sig[0] ^= how == 3;
        hand_say(h, 0, MESSAGE_GOODBYE, &m);
        hand_drain(h, 1);
        assert_int_equal(status(h).malformed, how != 0);
        assert_int_equal(h->in.ballot->departed.mask != 0, how == 0);
        hand_wait(h, 20000);
        assert_int_equal(hand_index(h, 0) >= 0, how != 0);
        hand_close(h);
    }
}

/* ---- who wants to be let in ---------------------------------------------- */

/* What a peer holds. */
struct holding {
    uint64_t round;
    struct hash32 commit, state;
};

static struct holding holding_of(const struct hand *h)
{
    const struct node_held *held = h->in.held;

    return (struct holding){held->applied.round, held->applied.commit,
                            held->state_hash};
}

/* No round is committed any more; what the node holds, and held before. */
static void rest(struct hand *h, struct holding *now, struct holding *before)
{
    *now = *before = holding_of(h);
    h->train_ms = 60000;
    for (int t = 0; t < 30; t++) {
        hand_wait(h, 100);
        *before = now->round != h->in.held->applied.round ? *now : *before;
        *now = holding_of(h);
    }
    assert_int_equal(before->round + 1, now->round);
}

/* Puppet 2 says that it holds that. */
static void
ask_to_join(struct hand *h, const struct holding *holds, struct join *m)
{
    m->body.n_linked = 3;
    m->body.linked[0] = (uint32_t)(id_u64(&h->self.id) >> 32);
    m->body.linked[1] = (uint32_t)(id_u64(&h->puppet[0].id) >> 32);
    m->body.linked[2] = (uint32_t)(id_u64(&h->puppet[1].id) >> 32);
    m->body.view = h->in.ballot->hash;
    m->body.round = holds->round;
    m->body.commit = holds->commit;
    m->body.state = holds->state;
    hand_prove(h, 2, &m->body);
}

static bool joins(struct hand *h, struct join *m)
{
    hand_sign(h, 2, &join_body_schema, &m->body, m->sig);
    for (int t = 0; t < 10; t++) {
        hand_say(h, 2, MESSAGE_JOIN, m);
        hand_wait(h, 500);
    }
    assert_int_equal(h->in.ballot->cert.body.epoch > 1, hand_index(h, 2) >= 0);
    return hand_index(h, 2) >= 0;
}

static bool gets_in(struct hand *h, const struct holding *holds, struct join *m)
{
    ask_to_join(h, holds, m);
    return joins(h, m);
}

/* Puppet 2 is linked anew, from that IPv4 address. */
static void comes_from(struct hand *h, const uint8_t ip[4])
{
    struct event e = {.type = EVENT_LINK_DOWN, .link_down.link = h->link[2]};

    h->link[2] = 0;
    hand_post(h, &e);
    hand_drain(h, 1);
    memcpy(&h->from[2].ip[12], ip, 4);
    prefix_map_v4(h->from[2].ip);
    hand_link(h, 2);
    hand_wait(h, 100);
}

/* Seats are of address groups, so nobody names one that it is not of. */
static void who_joins_is_at_the_address_that_it_names(void **state)
{
    static const uint8_t ips[][4] = {
        {89, 1, 2, 3}, {89, 1, 2, 4}, {89, 1, 3, 3}, {10, 0, 0, 1}};

    (void)state;
    for (int private = 0; private < 2; private ++) {
        for (int how = 0; how < 4; how++) {
            struct hand *h = in_a_view(2);
            struct holding now, before;
            struct join m = {.body.round = 0};

            rest(h, &now, &before);
            comes_from(h, ips[private ? 3 : 0]);
            memcpy(&m.body.address.ip[12], ips[how], 4);
            prefix_map_v4(m.body.address.ip);
            assert_int_equal(gets_in(h, &now, &m), private || how < 2);
            hand_close(h);
        }
    }
}

static void who_joins_holds_what_the_members_hold(void **state)
{
    (void)state;
    for (int how = 0; how < 10; how++) {
        struct hand *h = in_a_view(2);
        struct holding now, before, holds;
        struct join m = {.body.round = 0};

        rest(h, &now, &before);
        holds = how < 6 ? now : before; /* it is about to apply the newest */
        m.body.run.b[0] ^= how == 1;
        holds.round += how == 2;
        holds.commit.b[0] ^= how == 3 || how == 7;
        holds.state.b[0] ^= how == 4 || how == 8;
        holds.round -= how == 5 || how == 9;
        assert_int_equal(gets_in(h, &holds, &m), how == 0 || how == 6);
        assert_int_equal(status(h).malformed, 0);
        hand_close(h);
    }
}

/* All else is right: the state, and who signed. */
static void who_does_not_hold_the_state_does_not_join(void **state)
{
    (void)state;
    for (int how = 0; how < 12; how++) {
        struct hand *h = in_a_view(2);
        uint32_t link = h->link[2];
        struct holding now, before;
        struct join m = {.body.round = 0};
        struct hash32 sample;
        uint64_t verified;

        rest(h, &now, &before);
        ask_to_join(h, how < 6 ? &now : &before, &m);
        sample = hand_state(m.body.round).sample;
        switch (how % 6) {
        case 1: /* of no state */
            memset(&sample, 0, sizeof sample);
            break;
        case 2: /* of another state of the run */
            sample = hand_state(m.body.round - 1).sample;
            break;
        case 3: /* what others have said */
            message_join_proof(&m.body, &sample, &h->puppet[1].id,
                               &m.body.proof);
            break;
        case 4:
            m.body.view.b[0] ^= 1;
            break;
        case 5:
            m.body.proof.b[31] ^= 1;
            break;
        default:
            break;
        }
        if (how % 6 == 1 || how % 6 == 2) {
            message_join_proof(&m.body, &sample, &h->puppet[2].id,
                               &m.body.proof);
        }
        verified = h->n_verified;
        assert_int_equal(joins(h, &m), how % 6 == 0);
        if (how % 6 != 0) {
            assert_int_equal(h->n_verified, verified);
            assert_int_equal(status(h).malformed, 3);
            assert_int_equal(h->last_action[ACTION_HANG_UP].hang_up.link, link);
        }
        hand_close(h);
    }
}

static void a_join_is_signed_by_who_joins(void **state)
{
    struct hand *h = in_a_view(2);
    struct holding now, before;
    struct join m = {.body.round = 0};

    (void)state;
    rest(h, &now, &before);
    ask_to_join(h, &now, &m);
    hand_sign(h, 1, &join_body_schema, &m.body, m.sig);
    hand_say(h, 2, MESSAGE_JOIN, &m);
    hand_wait(h, 3000);
    assert_int_equal(status(h).malformed, 1);
    assert_int_equal(h->in.ballot->cert.body.epoch, 1);
    hand_close(h);
}

/* A process that began anew does not know what the one before it did. */
static void a_member_of_another_life_is_lost(void **state)
{
    struct hand *h = in_a_view(2);
    struct hello hello = {
        .life = h->life, .oldest = PROTO_OLDEST, .newest = PROTO_NEWEST};

    (void)state;
    hand_say(h, 0, MESSAGE_HELLO, &hello);
    hand_drain(h, 1);
    assert_int_equal(h->in.ballot->lost, 0);
    hello.life++;
    hand_say(h, 0, MESSAGE_HELLO, &hello);
    hand_drain(h, 1);
    assert_int_equal(h->in.ballot->lost, 1 << hand_index(h, 0));
    assert_int_equal(status(h).n_lost, 1);
    hello.life++; /* it is, already */
    hand_say(h, 0, MESSAGE_HELLO, &hello);
    hello.life++; /* nor does a stranger count */
    hand_say(h, 2, MESSAGE_HELLO, &hello);
    hand_drain(h, 2);
    assert_int_equal(status(h).n_lost, 1);
    hand_close(h);
}

/* ---- views of others ----------------------------------------------------- */

static void add_member(struct view_body *v, const uint8_t key[32], uint64_t at)
{
    struct view_member *m = &v->members[v->n_members++];

    memcpy(m->public_key, key, 32);
    m->joined = at;
}

/* Signed by the puppets in `who`. */
static void sign_view(struct hand *h, struct view_cert *c, uint32_t who)
{
    struct ballot_body b = {.ballot = c->ballot};

    view_hash(&c->body, &b.view);
    c->n_sigs = 0;
    for (uint32_t p = 0; p < HAND_PUPPETS; p++) {
        if (who >> p & 1) {
            memcpy(c->sigs[c->n_sigs].public_key, h->puppet[p].public, 32);
            hand_sign(h, p, &ballot_body_schema, &b, c->sigs[c->n_sigs++].sig);
        }
    }
}

/* Of the puppets in `who`, who all sign it, and of the node as a new member. */
static struct view_cert view_of(struct hand *h,
                                uint64_t epoch,
                                enum view_mode mode,
                                uint32_t who,
                                bool and_us)
{
    struct view_cert c = {.ballot = 3};

    c.body.epoch = epoch;
    c.body.mode = (uint8_t)mode;
    c.body.prev.b[0] = 77;
    c.body.round = h->in.held->known.round;
    c.body.tokens = h->in.held->known.tokens;
    c.body.commit = h->in.held->known.commit;
    for (uint32_t p = 0; p < HAND_PUPPETS; p++) {
        if (who >> p & 1) {
            add_member(&c.body, h->puppet[p].public, 1);
        }
    }
    if (and_us) {
        add_member(&c.body, h->self.public, epoch);
    }
    assert_int_equal(view_sort(&c.body), 0);
    sign_view(h, &c, who);
    return c;
}

/* Signatures show that somebody made it; that it is the run's its members say,
 * each over its own link. */
static void a_view_is_entered_when_half_of_its_members_are_in_it(void **state)
{
    struct hand *h = in_a_view(2);
    struct view_cert c;
    struct heartbeat b;
    struct hash32 hash;

    (void)state;
    h->obedient = false;
    c = view_of(h, 9, VIEW_MAJORITY, 7, true);
    view_hash(&c.body, &hash);
    hand_say(h, 0, MESSAGE_VIEW, &c);
    hand_wait(h, 10);
    assert_true(h->in.ballot->has_pending);
    b = hand_beat(h);
    b.view = hash;
    b.epoch = 9;
    hand_set_beat(h, 0, &b); /* one of three */
    b.view.b[0] ^= 1;
    hand_set_beat(h, 1, &b); /* another view */
    b.view = hash;
    b.has_view = false;
    hand_set_beat(h, 2, &b);
    hand_wait(h, 10);
    assert_int_equal(h->in.ballot->cert.body.epoch, 1);
    b.has_view = true;
    hand_set_beat(h, 2, &b);
    hand_wait(h, 10);
    assert_true(hash32_eq(&h->in.ballot->hash, &hash));
    hand_close(h);
}

/* Who joins with it waits for the same as we. */
static void who_joins_with_a_view_does_not_vouch_for_it(void **state)
{
    struct hand *h = in_a_view(2);
    struct view_cert c;
    struct heartbeat b;

    (void)state;
    h->obedient = false;
    c = view_of(h, 9, VIEW_MAJORITY, 1, true);
    add_member(&c.body, h->puppet[1].public, 9);
    add_member(&c.body, h->puppet[2].public, 9);
    assert_int_equal(view_sort(&c.body), 0);
    sign_view(h, &c, 3);
    hand_say(h, 0, MESSAGE_VIEW, &c);
    hand_wait(h, 10);
    assert_true(h->in.ballot->has_pending);
    b = hand_beat(h);
    view_hash(&c.body, &b.view);
    b.epoch = 9;
    hand_set_beat(h, 1, &b);
    hand_set_beat(h, 2, &b);
    hand_wait(h, 10);
    assert_int_equal(h->in.ballot->cert.body.epoch, 1);
    hand_set_beat(h, 0, &b);
    hand_wait(h, 10);
    assert_int_equal(h->in.ballot->cert.body.epoch, 9);
    hand_close(h);
}

/* Two of them made it, and say that they are in it; one of the two is of our
 * view of three. It may be the run's, and is asked for its proof. */
static void two_keys_do_not_take_us_into_their_view(void **state)
{
    struct hand *h = in_a_view(2);
    struct view_cert c;
    struct heartbeat b;

    (void)state;
    h->obedient = false;
    c = view_of(h, 9, VIEW_MAJORITY, 6, true);
    hand_say(h, 2, MESSAGE_VIEW, &c);
    hand_wait(h, 10);
    assert_true(h->in.ballot->has_pending);
    b = hand_beat(h);
    view_hash(&c.body, &b.view);
    b.epoch = 9;
    hand_set_beat(h, 1, &b);
    hand_set_beat(h, 2, &b);
    hand_wait(h, 3000);
    assert_int_equal(h->in.ballot->cert.body.epoch, 1);
    assert_true(h->n_sent[MESSAGE_GET_PROOF] > 0);
    hand_close(h);
}

/* A later one that anybody can make up does not take the place of the one that
 * most of our view signed. */
static void a_made_up_view_does_not_displace_the_one_that_waits(void **state)
{
    struct hand *h = in_a_view(2);
    struct view_cert c, made_up;
    struct heartbeat b;

    (void)state;
    h->obedient = false;
    c = view_of(h, 9, VIEW_MAJORITY, 3, true);
    made_up = view_of(h, 10, VIEW_MAJORITY, 4, true);
    hand_say(h, 0, MESSAGE_VIEW, &c);
    hand_say(h, 2, MESSAGE_VIEW, &made_up);
    hand_drain(h, 2);
    b = hand_beat(h);
    view_hash(&c.body, &b.view);
    b.epoch = 9;
    hand_set_beat(h, 0, &b);
    hand_set_beat(h, 1, &b);
    hand_wait(h, 10);
    assert_int_equal(h->in.ballot->cert.body.epoch, 9);
    hand_close(h);
}

/* Puppet 2 names a later view without us, signed by `who`, and the node asks
 * for it; `from` shows it, and says that ours led to it. */
static bool stays(
    uint32_t from, bool named, uint32_t who, bool of_this_run, uint32_t *asked)
{
    struct hand *h = in_a_view(2);
    struct heartbeat b = hand_beat(h);
    struct lineage m = {.first_epoch = 1, .n_hashes = 1};
    struct view_cert c;
    bool have;

    h->obedient = false;
    c = view_of(h, 9, VIEW_MAJORITY, 7, false);
    m.hashes[0] = h->in.ballot->hash;
    c.body.run.b[0] ^= !of_this_run;
    sign_view(h, &c, who);
    if (named) {
        b.epoch = 9;
        view_hash(&c.body, &b.view);
        hand_set_beat(h, 2, &b);
    }
    hand_say(h, from, MESSAGE_VIEW, &c);
    hand_say(h, from, MESSAGE_LINEAGE, &m);
    hand_drain(h, 4);
    hand_wait(h, 10);
    have = h->in.ballot->have;
    *asked = h->n_sent[MESSAGE_GET_PROOF];
    hand_close(h);
    return have;
}

/* Puppets 0 and 1 are in our view, puppet 2 is nobody: what it says of the past
 * moves nobody. */
static void who_was_left_out_sees_that_most_of_its_view_went_on(void **state)
{
    uint32_t asked;

    (void)state;
    assert_false(stays(2, true, 7, true, &asked));
    assert_false(stays(2, true, 3, true, &asked));
    assert_true(stays(2, true, 4, true, &asked));  /* signed by nobody of it */
    assert_int_equal(asked, 1);                    /* for a proof */
    assert_true(stays(2, true, 5, true, &asked));  /* by one of three */
    assert_true(stays(2, false, 7, true, &asked)); /* nobody asked for it */
    assert_true(stays(1, true, 7, true, &asked));  /* but another one */
    assert_true(stays(2, true, 7, false, &asked)); /* another run's */
}

/* It has more tokens than ours, and nobody proves that it is of this run. */
static void a_branch_that_is_ahead_is_followed_when_it_is_proven(void **state)
{
    struct hand *h = in_a_view(2);
    struct lineage m = {.first_epoch = 9, .n_hashes = 1};
    struct heartbeat b = hand_beat(h);
    struct view_cert c;

    (void)state;
    h->obedient = false;
    c = view_of(h, 9, VIEW_MAJORITY, 4, false);
    view_hash(&c.body, &b.view);
    b.epoch = 9;
    b.round += 100;
    b.tokens *= 100;
    b.commit.b[0] ^= 1;
    hand_set_beat(h, 2, &b);
    hand_say(h, 2, MESSAGE_VIEW, &c);
    hand_say(h, 2, MESSAGE_LINEAGE, &m);
    hand_drain(h, HAND_EVENTS);
    hand_wait(h, 100);
    assert_true(h->in.ballot->have);
    assert_int_equal(h->n_sent[MESSAGE_GET_PROOF], 1);
    assert_int_equal(h->last_to[MESSAGE_GET_PROOF], h->link[2]);
    hand_close(h);
}

/* Marked as a fork of the founding `from`. */
static void mark_fork(struct view_body *v, const struct view_body *from)
{
    v->fork = true;
    v->n_roots = from->n_members;
    for (uint32_t i = 0; i < from->n_members; i++) {
        v->roots[i] = view_member_id(&from->members[i]);
    }
}

/* Both others are gone, for so long that the node goes on alone. */
static void fork_alone(struct hand *h)
{
    for (uint32_t p = 0; p < 2; p++) {
        struct event e = {.type = EVENT_LINK_DOWN,
                          .link_down.link = h->link[p]};

        h->link[p] = 0;
        hand_post(h, &e);
    }
    hand_wait(h, 3 * h->terms.fork_after_ms);
    assert_true(h->in.ballot->have && h->in.ballot->cert.body.fork);
    assert_int_equal(h->in.ballot->cert.body.n_members, 1);
    h->train_ms = 600000; /* it commits by itself: no more of that */
    hand_wait(h, 3000);
    if (h->link[2] == 0) {
        hand_link(h, 2);
    }
}

/* Puppet 2 shows `c`, says `m` of it, and proves that it ties to `genesis`.
 * Whether the node leaves its view for it. */
static bool follows(struct hand *h,
                    const struct view_cert *genesis,
                    const struct view_cert *c,
                    const struct lineage *m)
{
    static uint8_t bytes[CHAIN_BYTES_MAX];
    const struct chain_rules rules = {.min_peers = 3, .signer = &h->pen};
    struct heartbeat b = hand_beat(h);
    struct proof proof = {.offset = 0};
    struct chain chain;

    chain_init(&chain, bytes);
    assert_int_equal(chain_extend(&chain, &rules, genesis), 0);
    assert_int_equal(chain_extend(&chain, &rules, c), 0);
    view_hash(&c->body, &proof.view);
    proof.total = proof.n_bytes = chain.used;
    memcpy(proof.bytes, bytes, chain.used);
    b.view = proof.view;
    b.epoch = c->body.epoch;
    b.tokens = c->body.tokens;
    b.commit = c->body.commit;
    for (int k = 0; k < 4; k++) {
        uint32_t asked = h->n_sent[MESSAGE_GET_PROOF];

        b.number++;
        hand_set_beat(h, 2, &b);
        hand_drain(h, HAND_EVENTS);
        hand_say(h, 2, MESSAGE_VIEW, c);
        hand_say(h, 2, MESSAGE_LINEAGE, m);
        hand_wait(h, 10);
        if (h->n_sent[MESSAGE_GET_PROOF] > asked) {
            hand_say(h, 2, MESSAGE_PROOF, &proof);
        }
        hand_wait(h, 600);
    }
    assert_int_equal(status(h).malformed, 0);
    return !h->in.ballot->have;
}

/* Puppet 0 of our founding went on with puppet 2 in a fork, as far as `tokens`
 * and `commit` say. Whether the node gives way; `alone`: it is in a fork, too,
 * and holds one of three roots, as they do. */
static bool gives_way(bool alone, int tokens, int commit)
{
    struct hand *h = in_a_view(2);
    const struct view_cert genesis = h->in.ballot->cert;
    const struct lineage m = {.first_epoch = 9, .n_hashes = 1};
    struct view_cert c;
    bool left;

    h->obedient = false;
    if (alone) {
        fork_alone(h);
    }
    c = view_of(h, 9, VIEW_FORK, 5, false);
    c.body.tokens += (uint64_t)tokens;
    if (commit != 0) { /* the lowest or the highest one */
        memset(c.body.commit.b, commit < 0 ? 0 : 0xff, sizeof c.body.commit.b);
    }
    mark_fork(&c.body, &genesis.body);
    sign_view(h, &c, 5);
    left = follows(h, &genesis, &c, &m);
    hand_close(h);
    return left;
}

/* Puppets 1 and 2 founded the run apart, with `n_invented` keys that have no
 * links, while the node did with puppet 0; `both` say so, else puppet 2 does.
 * Whether the node leaves its founding for theirs, before the first commit. */
static bool changes_founding(uint32_t n_invented, bool both)
{
    static uint8_t bytes[CHAIN_BYTES_MAX];
    struct hand *h = in_a_view_until(1, 0);
    const struct chain_rules rules = {.min_peers = 2, .signer = &h->pen};
    const struct lineage m = {.first_epoch = 9, .n_hashes = 1};
    struct view_cert c = view_of(h, 9, VIEW_FOUND, 6, false);
    struct ballot_body b = {.ballot = c.ballot};
    struct heartbeat beat = hand_beat(h);
    struct proof proof = {.offset = 0};
    struct identity invented[VIEW_MEMBERS_MAX];
    struct chain chain;
    bool left;

    h->obedient = false;
    assert_int_equal(h->in.held->known.round, 0);
    c.body.prev = (struct hash32){{0}}; /* the run */
    for (uint32_t k = 0; k < n_invented; k++) {
        identity_fake(&invented[k], 9000 + k);
        add_member(&c.body, invented[k].public, 9);
    }
    assert_int_equal(view_sort(&c.body), 0);
    sign_view(h, &c, 6);
    view_hash(&c.body, &b.view);
    for (uint32_t k = 0; k < n_invented; k++) {
        struct signer pen = signer_keyed(&invented[k]);

        memcpy(c.sigs[c.n_sigs].public_key, invented[k].public, 32);
        assert_int_equal(
            message_sign(&pen, &ballot_body_schema, &b, c.sigs[c.n_sigs++].sig),
            0);
    }
    chain_init(&chain, bytes);
    assert_int_equal(chain_extend(&chain, &rules, &c), 0);
    proof.view = beat.view = b.view;
    proof.total = proof.n_bytes = chain.used;
    memcpy(proof.bytes, bytes, chain.used);
    beat.epoch = 9;
    beat.tokens = 1000000; /* says the liar */
    for (int k = 0; k < 4; k++) {
        uint32_t asked = h->n_sent[MESSAGE_GET_PROOF];

        beat.number++;
        hand_set_beat(h, 2, &beat);
        if (both) {
            hand_set_beat(h, 1, &beat);
        }
        hand_drain(h, HAND_EVENTS);
        hand_say(h, 2, MESSAGE_VIEW, &c);
        hand_say(h, 2, MESSAGE_LINEAGE, &m);
        hand_wait(h, 10);
        if (h->n_sent[MESSAGE_GET_PROOF] > asked) {
            hand_say(h, hand_puppet_of(h, h->last_to[MESSAGE_GET_PROOF]),
                     MESSAGE_PROOF, &proof);
        }
        hand_wait(h, 600);
    }
    assert_int_equal(status(h).malformed, 0);
    left = !h->in.ballot->have;
    hand_wait(h, 3000);
    assert_int_equal(h->n_sent[MESSAGE_JOIN] > 0, left);
    hand_close(h);
    return left;
}

static void who_founded_with_invented_keys_moves_nobody(void **state)
{
    (void)state;
    assert_false(changes_founding(12, false));
    assert_false(changes_founding(12, true));
    assert_false(changes_founding(1, false));
}

static void of_two_foundings_that_are_there_the_larger_wins(void **state)
{
    (void)state;
    assert_true(changes_founding(1, true));
}

/* The node is in the third view of its run with puppets 0 and 1. These two made
 * another one, in which there are so many more tokens. Whether the node gives
 * way; `led`: it is said that theirs led to ours; `named`: the node is in
 * theirs, too; `gone`: nobody else says that it is in ours. */
static bool
gives_way_to(uint64_t epoch, int tokens, bool led, bool named, bool gone)
{
    struct hand *h = in_a_view(2);
    const struct view_cert genesis = h->in.ballot->cert;
    struct event down = {.type = EVENT_LINK_DOWN};
    struct lineage m = {.first_epoch = 1, .n_hashes = 1};
    struct holding now, before;
    struct join join = {.body.round = 0};
    struct view_cert c;
    bool left;

    rest(h, &now, &before);
    assert_true(gets_in(h, &now, &join)); /* puppet 2 comes.. */
    down.link_down.link = h->link[2];
    h->link[2] = 0;
    hand_post(h, &down); /* ..and goes */
    hand_wait(h, 20000);
    hand_link(h, 2);
    assert_int_equal(h->in.ballot->cert.body.epoch, 3);
    h->obedient = false;
    c = view_of(h, epoch, VIEW_MAJORITY, 3, named);
    c.body.tokens += (uint64_t)tokens;
    sign_view(h, &c, 3);
    m.hashes[0] = h->in.ballot->hash;
    m.hashes[0].b[0] ^= !led;
    for (uint32_t p = 0; p < 2 && gone; p++) {
        struct heartbeat b = hand_beat(h);

        view_hash(&genesis.body, &b.view);
        hand_set_beat(h, p, &b);
    }
    left = follows(h, &genesis, &c, &m);
    hand_close(h);
    return left;
}

/* A newcomer knows few views before its own, and anybody can show one. */
static void no_earlier_view_of_the_run_is_followed(void **state)
{
    (void)state;
    assert_false(gives_way_to(2, 1000000, true, false, true));
    assert_false(gives_way_to(2, 1000000, false, false, true));
    assert_false(gives_way_to(2, 1000000, false, true, true));
}

/* An owner that signs two values makes them. Nobody is lost then, and neither
 * side has more than half for another view: one has to give way. */
static void of_two_views_of_one_epoch_the_better_one_is_followed(void **state)
{
    (void)state;
    assert_true(gives_way_to(3, 1000000, false, false, true));
    assert_false(gives_way_to(3, -1, false, false, true));
    assert_false(gives_way_to(3, -1, true, false, true)); /* it cannot have */
    assert_true(gives_way_to(3, 1000000, false, true, true));
    assert_false(gives_way_to(3, -1, false, true, true));
    assert_false(gives_way_to(3, 1000000, false, true, false)); /* we go on */
}

static void of_two_forks_the_one_with_more_work_wins(void **state)
{
    (void)state;
    assert_true(gives_way(true, 1, 0));
    assert_false(gives_way(true, -1, 0));
    assert_true(gives_way(true, 0, -1)); /* of equal ones the lower commit */
    assert_false(gives_way(true, 0, 1));
    assert_false(gives_way(true, -1, -1));
}

/* Whoever forks alone can claim any number of tokens. */
static void no_fork_wins_over_a_view_that_is_none(void **state)
{
    (void)state;
    assert_false(gives_way(false, 1, 0));
    assert_false(gives_way(false, 1000000, -1));
}

/* ---- the end ------------------------------------------------------------- */

/* The node has finished; the puppets say that they have, too: bit p of `other`
 * another end, `more`: one with more tokens; `view`: in some view. */
static bool keeps_its_end(uint32_t other, bool more, bool view)
{
    struct hand *h = hand_open(2);
    bool have;

    h->terms.stop_rounds = 3;
    hand_wait(h, 30000);
    assert_int_equal(status(h).state, NODE_FINISHED);
    assert_true(h->in.ballot->have);
    for (uint32_t p = 0; p < 2; p++) {
        struct heartbeat b = hand_beat(h);

        b.state = NODE_FINISHED;
        b.has_view = view;
        if (other >> p & 1) {
            b.tokens = more ? b.tokens + 1 : b.tokens - 1;
            b.commit.b[0] ^= 0x80;
            b.view.b[0] ^= view;
        }
        hand_set_beat(h, p, &b);
    }
    for (uint32_t p = 0; p < 2; p++) {
        hand_say_beat(h, p);
    }
    hand_drain(h, HAND_EVENTS);
    have = h->in.ballot->have;
    hand_close(h);
    return have;
}

static void an_end_is_given_up_for_a_better_one_of_most(void **state)
{
    (void)state;
    assert_false(keeps_its_end(3, true, false));
    assert_true(keeps_its_end(1, true, false));  /* one of two says so */
    assert_true(keeps_its_end(3, false, false)); /* ours is better */
    assert_true(keeps_its_end(3, true, true));   /* of a view: to be proven */
}

/* They are more than all who took part in it. */
static void strangers_do_not_say_where_a_run_ended(void **state)
{
    struct hand *h = in_a_view_until(1, 3);
    struct heartbeat b;

    (void)state;
    hand_wait(h, 30000);
    assert_int_equal(status(h).state, NODE_FINISHED);
    b = hand_beat(h);
    hand_set_beat(h, 0, &b); /* it has not finished */
    b.state = NODE_FINISHED;
    b.has_view = false;
    b.tokens++;
    b.commit.b[0] ^= 0x80;
    for (uint32_t k = 0; k < 6; k++) {
        hand_set_beat(h, 1 + k % 2, &b);
    }
    hand_drain(h, 6);
    assert_true(h->in.ballot->have);
    hand_close(h);
}

static void who_trains_does_not_stop_for_an_end_that_others_name(void **state)
{
    struct hand *h = in_a_view(2);
    struct heartbeat b = hand_beat(h);

    (void)state;
    b.state = NODE_FINISHED;
    b.has_view = false;
    b.tokens++;
    b.commit.b[0] ^= 0x80;
    for (uint32_t k = 0; k < 4; k++) {
        hand_set_beat(h, k % 2, &b);
    }
    hand_drain(h, 4);
    assert_true(h->in.ballot->have);
    hand_close(h);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(only_who_goes_says_goodbye),
        cmocka_unit_test(who_joins_is_at_the_address_that_it_names),
        cmocka_unit_test(who_joins_holds_what_the_members_hold),
        cmocka_unit_test(who_does_not_hold_the_state_does_not_join),
        cmocka_unit_test(a_join_is_signed_by_who_joins),
        cmocka_unit_test(a_member_of_another_life_is_lost),
        cmocka_unit_test(a_view_is_entered_when_half_of_its_members_are_in_it),
        cmocka_unit_test(who_joins_with_a_view_does_not_vouch_for_it),
        cmocka_unit_test(two_keys_do_not_take_us_into_their_view),
        cmocka_unit_test(a_made_up_view_does_not_displace_the_one_that_waits),
        cmocka_unit_test(who_was_left_out_sees_that_most_of_its_view_went_on),
        cmocka_unit_test(a_branch_that_is_ahead_is_followed_when_it_is_proven),
        cmocka_unit_test(of_two_forks_the_one_with_more_work_wins),
        cmocka_unit_test(no_fork_wins_over_a_view_that_is_none),
        cmocka_unit_test(who_founded_with_invented_keys_moves_nobody),
        cmocka_unit_test(of_two_foundings_that_are_there_the_larger_wins),
        cmocka_unit_test(no_earlier_view_of_the_run_is_followed),
        cmocka_unit_test(of_two_views_of_one_epoch_the_better_one_is_followed),
        cmocka_unit_test(an_end_is_given_up_for_a_better_one_of_most),
        cmocka_unit_test(strangers_do_not_say_where_a_run_ended),
        cmocka_unit_test(who_trains_does_not_stop_for_an_end_that_others_name),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
