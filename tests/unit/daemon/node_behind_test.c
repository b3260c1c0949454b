/* node_behind_test.c - a member that its view has left behind: which commit it
 * takes for theirs, and which state. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "tests/unit/daemon/hand.h"

#define AHEAD 20 /* rounds: too many to follow one by one */

/* In a first view with the puppets in `who` (bits), in which no round ends. */
static struct hand *in_a_view(uint32_t who)
{
    struct hand *h = hand_open(HAND_PUPPETS);
    struct heartbeat b = hand_beat(h);
    uint32_t n = (uint32_t)__builtin_popcount(who) + 1;

    h->train_ms = 600000;
    h->terms.min_peers = n;
    b.linked_candidates = (uint8_t)n;
    for (uint32_t p = 0; p < HAND_PUPPETS; p++) {
        b.ready = who >> p & 1;
        hand_set_beat(h, p, &b);
    }
    for (int t = 0; t < 50 && !h->in.ballot->have; t++) {
        hand_wait(h, 100);
    }
    assert_int_equal(h->in.ballot->cert.body.n_members, n);
    for (uint32_t p = 0; p < HAND_PUPPETS; p++) {
        h->has_beat[p] = !(who >> p & 1); /* members say what the node does */
    }
    hand_wait(h, 3000);
    return h;
}

/* Of our view, and far ahead. */
static struct heartbeat ahead(const struct hand *h)
{
    struct heartbeat b = hand_beat(h);

    b.number = 99;
    b.round = AHEAD;
    b.tokens = 5000;
    b.commit.b[0] = 0x77;
    b.state_hash.b[0] = 0x55;
    return b;
}

/* Members 0 and 1 of three, and puppet 2, who is no member, say where they are:
 * `second` what the member says otherwise than the first one. */
enum second { SAME, SILENT, COMMIT, TOKENS, VIEW, STRANGER, LATER };

static uint64_t target_of(enum second second, bool swap)
{
    struct hand *h = in_a_view(3);
    struct heartbeat b = ahead(h), other = b;
    struct node_point target;

    other.commit.b[0] ^= second == COMMIT;
    other.tokens += second == TOKENS ? 1ULL << 40 : 0;
    other.view.b[0] ^= second == VIEW;
    other.round += second == LATER;
    hand_set_beat(h, swap, &b);
    if (second != SILENT) {
        hand_set_beat(h, second == STRANGER ? 2 : !swap, &other);
    }
    h->obedient = false;
    hand_wait(h, 100);
    target = h->in.held->target;
    assert_true(target.round == 0 || (target.tokens == b.tokens &&
                                      hash32_eq(&target.commit, &b.commit)));
    hand_close(h);
    return target.round;
}

/* One of them could say so of any state, and with a true one of any tokens: the
 * next plan of all others would then be wrong to us. */
static void where_a_view_is_more_than_half_of_it_say(void **state)
{
    (void)state;
    for (int swap = 0; swap < 2; swap++) {
        assert_int_equal(target_of(SAME, swap), AHEAD);
        assert_int_equal(target_of(SILENT, swap), 0);
        assert_int_equal(target_of(COMMIT, swap), 0);
        assert_int_equal(target_of(TOKENS, swap), 0);
        assert_int_equal(target_of(VIEW, swap), 0);
        assert_int_equal(target_of(STRANGER, swap), 0);
        assert_int_equal(target_of(LATER, swap), 0);
    }
}

/* What is one round ahead comes with the votes. */
static void the_next_commit_is_not_taken_on_anybodys_word(void **state)
{
    struct hand *h = in_a_view(3);
    struct heartbeat b = ahead(h);

    (void)state;
    b.round = 1;
    hand_set_beat(h, 0, &b);
    hand_set_beat(h, 1, &b);
    hand_wait(h, 100);
    assert_int_equal(h->in.held->target.round, 0);
    assert_true(h->n_sent[MESSAGE_GET_COMMIT] > 0);
    hand_close(h);
}

/* Puppet 0, who is no member, names another state of that commit than member 1
 * does; member 2 serves nothing. Without members who serve, anybody may: they
 * were there before they died. */
static void of_which_state_a_commit_is_members_say(void **state)
{
    (void)state;
    for (int alone = 0; alone < 2; alone++) {
        struct hand *h = in_a_view(6);
        struct heartbeat b = ahead(h), lie = b;
        const struct transfer *t = h->in.transfer;

        h->obedient = false;
        lie.state_hash.b[0] = 0x66;
        lie.has_view = false;
        hand_set_beat(h, 0, &lie);
        b.ready = false;
        hand_set_beat(h, 2, &b);
        b.ready = !alone;
        hand_set_beat(h, 1, &b);
        hand_wait(h, 100);
        assert_int_equal(t->object.index, AHEAD);
        assert_int_equal(t->object.root.b[0], alone ? 0x66 : 0x55);
        hand_close(h);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(where_a_view_is_more_than_half_of_it_say),
        cmocka_unit_test(the_next_commit_is_not_taken_on_anybodys_word),
        cmocka_unit_test(of_which_state_a_commit_is_members_say),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
