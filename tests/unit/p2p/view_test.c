/* view_test.c - quorums, ties, and certificates that do not convince. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "p2p/round/view.h"
#include "proto/base/err.h"

#define PEERS 8U

static struct identity who[PEERS];
static struct signer pen[PEERS];

static int start(void **state)
{
    (void)state;
    for (uint64_t i = 0; i < PEERS; i++) {
        identity_fake(&who[i], 100 + i);
        pen[i] = signer_keyed(&who[i]);
    }
    return 0;
}

/* A view of the first n peers, sorted. */
static struct view_body view_of(uint32_t n, uint64_t epoch, enum view_mode mode)
{
    struct view_body v = {
        .epoch = epoch, .mode = (uint8_t)mode, .n_members = n};

    for (uint32_t i = 0; i < n; i++) {
        memcpy(v.members[i].public_key, who[i].public, 32);
        v.members[i].joined = 1;
    }
    assert_int_equal(view_sort(&v), 0);
    return v;
}

/* Identity behind a member. */
static uint32_t person(const struct view_body *v, uint32_t member)
{
    for (uint32_t i = 0; i < PEERS; i++) {
        if (memcmp(who[i].public, v->members[member].public_key, 32) == 0) {
            return i;
        }
    }
    fail_msg("no such member");
    return 0;
}

static void sign_as(struct view_cert *c, uint32_t person_index, uint64_t ballot)
{
    struct ballot_body b = {.ballot = ballot};
    struct view_signature *s = &c->sigs[c->n_sigs++];

    view_hash(&c->body, &b.view);
    memcpy(s->public_key, who[person_index].public, 32);
    assert_int_equal(
        message_sign(&pen[person_index], &ballot_body_schema, &b, s->sig), 0);
}

/* Members `mask` of `prev` sign the view that follows it. */
static struct view_cert
cert_of(const struct view_body *prev, struct view_body body, uint64_t mask)
{
    struct view_cert c = {.body = body, .ballot = 5};

    for (uint32_t i = 0; i < prev->n_members; i++) {
        if (mask >> i & 1) {
            sign_as(&c, person(prev, i), 5);
        }
    }
    return c;
}

static void more_than_half_is_a_quorum(void **state)
{
    struct view_body v = view_of(5, 1, VIEW_MAJORITY);

    (void)state;
    assert_true(view_quorum(&v, 0x7, 0));
    assert_true(view_quorum(&v, 0x1c, 0));
    assert_false(view_quorum(&v, 0x3, 0));
    assert_false(view_quorum(&v, 0, 0));
}

static void of_two_halves_the_one_with_the_lowest_id_is_more(void **state)
{
    struct view_body v = view_of(4, 1, VIEW_MAJORITY);

    (void)state;
    assert_true(view_quorum(&v, 0x3, 0));
    assert_true(view_quorum(&v, 0x9, 0));
    assert_false(view_quorum(&v, 0xc, 0));
    /* Exactly one of a set and its complement is a quorum. */
    for (uint64_t mask = 0; mask < 16; mask++) {
        assert_int_not_equal(view_quorum(&v, mask, 0),
                             view_quorum(&v, ~mask & 0xf, 0));
    }
}

/* Any two share more than may lie. */
static void two_byzantine_quorums_share_an_honest_member(void **state)
{
    (void)state;
    for (uint32_t n = 1; n <= 8; n++) {
        struct view_body v = view_of(n, 1, VIEW_MAJORITY);
        uint64_t all = (1ULL << n) - 1;
        int liars = (int)(n - 1) / 3, least = 64;

        for (uint64_t a = 1; a <= all; a++) {
            if (view_byzantine_quorum(&v, a, 0)) {
                int have = __builtin_popcountll(a);

                least = have < least ? have : least;
                assert_true(view_quorum(&v, a, 0));
            }
        }
        assert_true(2 * least - (int)n > liars);
        assert_true((int)n - least >= liars); /* so many may be silent */
    }
}

static void who_said_goodbye_is_in_no_byzantine_quorum(void **state)
{
    struct view_body v = view_of(5, 1, VIEW_MAJORITY);

    (void)state;
    assert_false(view_byzantine_quorum(&v, 0x7, 0));
    assert_true(view_byzantine_quorum(&v, 0x7, 0x10)); /* 3 of 4 */
    assert_false(view_byzantine_quorum(&v, 0x13, 0x10));
    assert_false(view_byzantine_quorum(&v, 0x1f, 0x1f));
}

static void who_said_goodbye_does_not_count(void **state)
{
    struct view_body v = view_of(4, 1, VIEW_MAJORITY);

    (void)state;
    assert_true(view_quorum(&v, 0xc, 0x1)); /* 2 of 3 */
    assert_true(view_quorum(&v, 0x2, 0x5)); /* half, lowest of those left */
    assert_false(view_quorum(&v, 0x8, 0x5));
    assert_false(view_quorum(&v, 0xf, 0xf)); /* nobody is left to ask */
}

static void a_majority_of_the_view_before_makes_a_certificate(void **state)
{
    struct view_body prev = view_of(5, 1, VIEW_MAJORITY);
    struct view_body next = view_of(4, 2, VIEW_MAJORITY);
    struct view_cert c = cert_of(&prev, next, 0x7);

    (void)state;
    assert_int_equal(view_cert_check(&c, &prev, &pen[0]), 0);
    c = cert_of(&prev, next, 0x3);
    assert_int_equal(view_cert_check(&c, &prev, &pen[0]), LOCO_ESIG);
}

/* That member of `prev` says goodbye in that epoch. */
static void
part(struct view_cert *c, const struct view_body *prev, uint32_t i, uint64_t at)
{
    struct parting *p = &c->partings[c->n_partings++];
    struct goodbye_body b = {.run = prev->run, .epoch = at};

    b.peer = view_member_id(&prev->members[i]);
    p->member = (uint8_t)i;
    p->epoch = at;
    assert_int_equal(
        message_sign(&pen[person(prev, i)], &goodbye_body_schema, &b, p->sig),
        0);
}

/* One member of four could make any view it likes, and of all that left none
 * would be left to sign. */
static void nobody_says_goodbye_for_others(void **state)
{
    struct view_body prev = view_of(4, 3, VIEW_MAJORITY);
    struct view_body next = view_of(4, 4, VIEW_MAJORITY);
    struct view_cert c, good;

    (void)state;
    prev.members[1].joined = 3;
    next.departed = 0xe;
    c = cert_of(&prev, next, 0x1);
    assert_int_equal(view_cert_check(&c, &prev, &pen[0]), LOCO_ESIG);
    c.body.departed = 0xf;
    c.n_sigs = 0;
    assert_int_equal(view_cert_check(&c, &prev, &pen[0]), LOCO_ESIG);
    c = cert_of(&prev, next, 0x1);
    part(&c, &prev, 1, 3);
    part(&c, &prev, 2, 1);
    part(&c, &prev, 3, 3);
    good = c;
    assert_int_equal(view_cert_check(&c, &prev, &pen[0]), 0);
    c.n_partings--; /* one of them said nothing */
    assert_int_equal(view_cert_check(&c, &prev, &pen[0]), LOCO_ESIG);
    part(&c, &prev, 2, 3);
    assert_int_equal(view_cert_check(&c, &prev, &pen[0]), LOCO_ESIG);
    c = good;
    c.partings[2].sig[3] ^= 1;
    assert_int_equal(view_cert_check(&c, &prev, &pen[0]), LOCO_ESIG);
    c = good;
    c.partings[2].member = 200;
    assert_int_equal(view_cert_check(&c, &prev, &pen[0]), LOCO_ESIG);
    c = good;
    c.n_partings = 0;
    part(&c, &prev, 1, 2); /* and came back in epoch 3 */
    part(&c, &prev, 2, 1);
    part(&c, &prev, 3, 3);
    assert_int_equal(view_cert_check(&c, &prev, &pen[0]), LOCO_ESIG);
}

static uint32_t n_verified;

static bool count_verify(void *self,
                         const uint8_t public[SIGN_PUBLIC_BYTES],
                         const char *domain,
                         const void *bytes,
                         size_t len,
                         const uint8_t sig[SIGN_BYTES])
{
    n_verified++;
    return pen[0].verify(self, public, domain, bytes, len, sig);
}

/* Who sends a view chooses how many goodbyes it shows. */
static void a_forged_goodbye_costs_one_signature(void **state)
{
    struct view_body prev = view_of(4, 3, VIEW_MAJORITY);
    struct view_cert c = cert_of(&prev, view_of(4, 4, VIEW_MAJORITY), 0x1);
    struct signer counting = pen[0];

    (void)state;
    counting.verify = count_verify;
    part(&c, &prev, 1, 3);
    for (int k = 0; k < 20; k++) {
        part(&c, &prev, 2, 3);
        c.partings[c.n_partings - 1].sig[3] ^= 1;
    }
    n_verified = 0;
    assert_int_equal(view_parted(&prev, c.partings, c.n_partings, &counting),
                     0x2);
    assert_int_equal(n_verified, 2);
}

static void a_doubled_signature_counts_once(void **state)
{
    struct view_body prev = view_of(5, 1, VIEW_MAJORITY);
    struct view_cert c = cert_of(&prev, view_of(4, 2, VIEW_MAJORITY), 0x3);

    (void)state;
    c.sigs[c.n_sigs++] = c.sigs[0];
    c.sigs[c.n_sigs++] = c.sigs[1];
    assert_int_equal(view_cert_check(&c, &prev, &pen[0]), LOCO_ESIG);
}

static void a_forged_signature_spoils_the_certificate(void **state)
{
    struct view_body prev = view_of(5, 1, VIEW_MAJORITY);
    struct view_cert c = cert_of(&prev, view_of(4, 2, VIEW_MAJORITY), 0x1f);

    (void)state;
    c.sigs[1].sig[7] ^= 1;
    assert_int_equal(view_cert_check(&c, &prev, &pen[0]), LOCO_ESIG);
}

static void a_signature_of_another_ballot_does_not_count(void **state)
{
    struct view_body prev = view_of(3, 1, VIEW_MAJORITY);
    struct view_cert c = cert_of(&prev, view_of(3, 2, VIEW_MAJORITY), 0x1);

    (void)state;
    sign_as(&c, person(&prev, 1), 6);
    sign_as(&c, person(&prev, 2), 4);
    assert_int_equal(view_cert_check(&c, &prev, &pen[0]), LOCO_ESIG);
}

static void a_changed_body_invalidates_its_signatures(void **state)
{
    struct view_body prev = view_of(3, 1, VIEW_MAJORITY);
    struct view_cert c = cert_of(&prev, view_of(3, 2, VIEW_MAJORITY), 0x7);

    (void)state;
    c.body.round++;
    assert_int_equal(view_cert_check(&c, &prev, &pen[0]), LOCO_ESIG);
}

static void strangers_do_not_count(void **state)
{
    struct view_body prev = view_of(3, 1, VIEW_MAJORITY);
    struct view_cert c = cert_of(&prev, view_of(3, 2, VIEW_MAJORITY), 0x1);

    (void)state;
    sign_as(&c, 5, 5);
    sign_as(&c, 6, 5);
    sign_as(&c, 7, 5);
    assert_int_equal(view_cert_check(&c, &prev, &pen[0]), LOCO_ESIG);
}

static void forks_and_first_views_need_every_member(void **state)
{
    (void)state;
    for (int mode = VIEW_FORK; mode <= VIEW_FOUND; mode++) {
        struct view_body v = view_of(3, 2, (enum view_mode)mode);
        struct view_cert c = cert_of(&v, v, 0x7);

        assert_int_equal(view_cert_check(&c, NULL, &pen[0]), 0);
        c = cert_of(&v, v, 0x3);
        assert_int_equal(view_cert_check(&c, NULL, &pen[0]), LOCO_ESIG);
    }
}

/* View 2 has left peer `out` of the three out; it signed all the same. */
static void without_the_view_before_any_signer_of_it_counts(void **state)
{
    struct view_body prev = view_of(3, 1, VIEW_MAJORITY);
    struct view_body next = view_of(2, 2, VIEW_MAJORITY);
    struct view_cert c = {.body = next, .ballot = 5};

    (void)state;
    sign_as(&c, 1, 5);
    sign_as(&c, 2, 5);
    assert_int_equal(view_cert_check(&c, &prev, &pen[0]), 0);
    assert_int_equal(view_cert_check(&c, NULL, &pen[0]), 0);
    c.sigs[1].sig[0] ^= 1;
    assert_int_equal(view_cert_check(&c, NULL, &pen[0]), LOCO_ESIG);
    c = (struct view_cert){.body = next, .ballot = 5};
    sign_as(&c, 2, 5); /* nobody of the view itself */
    assert_int_equal(view_cert_check(&c, NULL, &pen[0]), LOCO_ESIG);
    c = (struct view_cert){.body = view_of(5, 2, VIEW_MAJORITY), .ballot = 5};
    sign_as(&c, 1, 5);
    sign_as(&c, 1, 5);
    sign_as(&c, 1, 5); /* one of five, three times */
    assert_int_equal(view_cert_check(&c, NULL, &pen[0]), LOCO_ESIG);
}

static void bodies_from_outside_must_be_well_formed(void **state)
{
    struct view_body v = view_of(3, 2, VIEW_MAJORITY), bad = v;

    (void)state;
    assert_true(view_well_formed(&v));
    bad.members[1] = bad.members[0];
    assert_false(view_well_formed(&bad));
    bad = v;
    bad.members[0] = v.members[1];
    bad.members[1] = v.members[0];
    assert_false(view_well_formed(&bad));
    bad = v;
    bad.mode = VIEW_MODE_COUNT;
    assert_false(view_well_formed(&bad));
    bad = v;
    bad.epoch = 0;
    assert_false(view_well_formed(&bad));
    bad.epoch = 1ULL << 32; /* would not fit the number of an attempt */
    assert_false(view_well_formed(&bad));
    bad = v;
    bad.n_members = 0;
    assert_false(view_well_formed(&bad));
    bad = v;
    bad.n_edges = 1;
    bad.edges[0] = 3 << 8;
    assert_false(view_well_formed(&bad));
    bad = v;
    bad.slots = 2;
    bad.members[0].slot = 1;
    bad.members[2].slot = 2;
    assert_true(view_well_formed(&bad));
    bad.members[1].slot = 2; /* two would read the same text */
    assert_false(view_well_formed(&bad));
}

static void a_member_cannot_stand_twice(void **state)
{
    struct view_body v = view_of(3, 1, VIEW_MAJORITY);

    (void)state;
    v.members[2] = v.members[0];
    assert_int_equal(view_sort(&v), LOCO_EPROTO);
}

static void roles_pass_to_every_member(void **state)
{
    struct view_body v = view_of(5, 1, VIEW_MAJORITY);
    uint32_t ballots = 0, rounds = 0;

    (void)state;
    for (uint64_t k = 0; k < 100; k++) {
        ballots |= 1U << view_ballot_owner(&v, k);
        rounds |= 1U << view_coordinator(&v, k);
        assert_true(view_ballot_owner(&v, k) < 5);
    }
    assert_int_equal(ballots, 0x1f);
    assert_int_equal(rounds, 0x1f);
}

static void who_made_no_plan_makes_not_the_next_one_either(void **state)
{
    struct view_body v = view_of(5, 1, VIEW_MAJORITY);

    (void)state;
    for (uint64_t round = 0; round < 100; round++) {
        uint32_t before = view_coordinator(&v, round);

        v.epoch++;
        assert_int_not_equal(view_coordinator(&v, round), before);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(more_than_half_is_a_quorum),
        cmocka_unit_test(who_made_no_plan_makes_not_the_next_one_either),
        cmocka_unit_test(of_two_halves_the_one_with_the_lowest_id_is_more),
        cmocka_unit_test(two_byzantine_quorums_share_an_honest_member),
        cmocka_unit_test(who_said_goodbye_is_in_no_byzantine_quorum),
        cmocka_unit_test(who_said_goodbye_does_not_count),
        cmocka_unit_test(a_majority_of_the_view_before_makes_a_certificate),
        cmocka_unit_test(a_forged_goodbye_costs_one_signature),
        cmocka_unit_test(a_doubled_signature_counts_once),
        cmocka_unit_test(nobody_says_goodbye_for_others),
        cmocka_unit_test(a_forged_signature_spoils_the_certificate),
        cmocka_unit_test(a_signature_of_another_ballot_does_not_count),
        cmocka_unit_test(a_changed_body_invalidates_its_signatures),
        cmocka_unit_test(strangers_do_not_count),
        cmocka_unit_test(forks_and_first_views_need_every_member),
        cmocka_unit_test(without_the_view_before_any_signer_of_it_counts),
        cmocka_unit_test(bodies_from_outside_must_be_well_formed),
        cmocka_unit_test(a_member_cannot_stand_twice),
        cmocka_unit_test(roles_pass_to_every_member),
    };

    return cmocka_run_group_tests(tests, start, NULL);
}
