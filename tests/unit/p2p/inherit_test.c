/* inherit_test.c - what a failed attempt leaves, who may claim it, and what a
 * plan may say of it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "p2p/round/inherit.h"

#define ELEMENTS 1003U
#define BLOCK    8U

static struct peer_id peer(uint8_t k)
{
    return (struct peer_id){.b = {k}};
}

static struct hash32 plan_hash(uint8_t k)
{
    return (struct hash32){.b = {k}};
}

/* A plan of the first n members: member k made 10 steps, weighs 100 + k. */
static struct plan_body plan_of(uint32_t n)
{
    struct plan_body p = {.n_members = n};

    for (uint32_t k = 0; k < n; k++) {
        p.members[k] = (struct plan_member){.index = (uint8_t)k,
                                            .tokens = 100 + k,
                                            .first_step = 10,
                                            .last_step = 20};
    }
    return p;
}

static void failed(struct inherit *h,
                   const struct plan_body *p,
                   uint8_t hash,
                   uint64_t final)
{
    struct peer_id ids[VIEW_MEMBERS_MAX];
    struct hash32 of = plan_hash(hash);

    for (uint32_t k = 0; k < p->n_members; k++) {
        ids[k] = peer((uint8_t)(p->members[k].index + 1));
    }
    inherit_keep(h, p, &of, ids, final, hash);
}

static const struct peer_id ids[VIEW_MEMBERS_MAX] = {
    {.b = {1}}, {.b = {2}}, {.b = {3}}, {.b = {4}}};

static bool
fits(const struct inherit *h, const struct plan_body *p, uint32_t rank)
{
    return inherit_fits(h, p, rank < p->n_members ? &ids[rank] : NULL, rank,
                        ELEMENTS, BLOCK);
}

static struct view_member members[VIEW_MEMBERS_MAX]; /* when they joined */

/* The coordinator's part: whose claims and contributions, who may be in. */
static uint64_t
choose(const struct inherit *h, struct ready_body *r, struct plan_body *p)
{
    uint64_t ready = 0;

    for (uint32_t k = 0; k < p->n_members; k++) {
        struct ready_body *m = &r[p->members[k].index];

        m->tokens = p->members[k].tokens;
        m->first_step = p->members[k].first_step;
        m->last_step = p->members[k].last_step;
        m->lease = p->members[k].lease;
        ready |= 1ULL << p->members[k].index;
    }
    ready = inherit_choose(h, r, ids, members, ready, p);
    inherit_holds(r, p);
    return ready;
}

/* READY of n members: member k holds final[k] elements of plan 1. */
static void
readies_of(struct ready_body *r, struct inherit *h, const uint64_t *final)
{
    struct plan_body first = plan_of(4);

    memset(r, 0, VIEW_MEMBERS_MAX * sizeof *r);
    for (uint32_t k = 0; k < 3; k++) {
        memset(&h[k], 0, sizeof h[k]);
        failed(&h[k], &first, 1, final[k]);
        inherit_claims(&h[k], &r[k]);
    }
}

static void the_longest_claim_is_inherited_and_holds_are_true(void **state)
{
    static struct ready_body r[VIEW_MEMBERS_MAX];
    struct inherit h[3];
    const uint64_t final[] = {0, 640, 320};
    struct plan_body p = plan_of(3);

    (void)state;
    readies_of(r, h, final);
    (void)choose(&h[0], r, &p); /* it holds nothing, but knows the plan */
    assert_int_equal(p.n_ranges, 1);
    assert_int_equal(inherit_total(&p), 640);
    assert_int_equal(p.ranges[0].n_contributors, 4); /* the dead one, too */
    assert_int_equal(p.ranges[0].contributors[3].tokens, 103);
    for (uint32_t k = 0; k < 3; k++) {
        assert_int_equal(p.members[k].holds, final[k]);
        assert_true(fits(&h[k], &p, k));
    }
}

static void who_was_not_in_the_ring_waits_for_the_next_round(void **state)
{
    static struct ready_body r[VIEW_MEMBERS_MAX];
    struct inherit h[3];
    const uint64_t final[] = {80, 640, 320};
    struct plan_body p = plan_of(3), late = plan_of(3);

    (void)state;
    readies_of(r, h, final);
    assert_int_equal(choose(&h[0], r, &p), 7);
    late.members[2].last_step = 30; /* it has packed anew */
    assert_int_equal(choose(&h[0], r, &late), 3);
    assert_false(fits(&h[2], &late, 2));
    late = plan_of(3);
    late.members[2].first_step = 9; /* of other steps */
    assert_int_equal(choose(&h[0], r, &late), 3);
    late = plan_of(3);
    late.members[2].lease = 1; /* of other text */
    assert_int_equal(choose(&h[0], r, &late), 3);
    late = plan_of(3);
    late.members[1].index = 9; /* a stranger */
    assert_int_equal(choose(&h[0], r, &late), 5);
}

/* Its process began anew since, at the same step: what is final is the work of
 * the one before. */
static void who_joined_since_waits_for_the_next_round(void **state)
{
    static struct ready_body r[VIEW_MEMBERS_MAX];
    struct inherit h[3];
    const uint64_t final[] = {80, 640, 320};
    struct plan_body p = plan_of(3);

    (void)state;
    readies_of(r, h, final);
    members[2].joined = plan_of(4).epoch;
    assert_int_equal(choose(&h[0], r, &p), 7);
    members[2].joined++;
    assert_int_equal(choose(&h[0], r, &p), 3);
    members[2].joined = 0;
}

/* Or one liar could stop every plan: chosen for its claim, then left out for
 * its steps, and nobody holds what the plan inherits. */
static void a_claim_without_the_contribution_is_not_chosen(void **state)
{
    static struct ready_body r[VIEW_MEMBERS_MAX];
    struct inherit h[3];
    const uint64_t final[] = {80, 640, 320};
    struct plan_body p = plan_of(3);

    (void)state;
    readies_of(r, h, final);
    p.members[1].last_step = 21; /* it holds most, and packed anew */
    assert_int_equal(choose(&h[0], r, &p), 5);
    assert_int_equal(inherit_total(&p), 320);
}

/* It has claimed most, and is not there any more. */
static void a_claim_of_who_is_not_ready_is_not_chosen(void **state)
{
    static struct ready_body r[VIEW_MEMBERS_MAX];
    struct inherit h[3];
    const uint64_t final[] = {80, 640, 320};
    struct plan_body p = plan_of(3), q = plan_of(2);

    (void)state;
    readies_of(r, h, final);
    assert_int_equal(choose(&h[0], r, &p), 7);
    q.members[1] = p.members[2];
    assert_int_equal(choose(&h[0], r, &q), 5);
    assert_int_equal(inherit_total(&q), 320);
}

static void claims_of_an_unknown_plan_are_not_inherited(void **state)
{
    static struct ready_body r[VIEW_MEMBERS_MAX];
    struct inherit h[3], stranger = {0};
    const uint64_t final[] = {0, 640, 320};
    struct plan_body p = plan_of(3);

    (void)state;
    readies_of(r, h, final);
    (void)choose(&stranger, r, &p);
    assert_int_equal(p.n_ranges, 0);
    for (uint32_t k = 0; k < 3; k++) {
        assert_int_equal(p.members[k].holds, 0);
        /* Everybody starts again, whoever holds what. */
        assert_true(fits(&h[k], &p, k));
    }
}

static void
a_second_failure_adds_a_range_and_cuts_what_was_not_here(void **state)
{
    static struct ready_body r[VIEW_MEMBERS_MAX];
    struct inherit h[3];
    const uint64_t final[] = {0, 640, 320};
    struct plan_body p = plan_of(3), q = plan_of(2);

    (void)state;
    readies_of(r, h, final);
    (void)choose(&h[0], r, &p);
    failed(&h[0], &p, 2, 400); /* was still getting the inherited part */
    failed(&h[1], &p, 2, 800);
    failed(&h[2], &p, 2, 720);
    assert_int_equal(h[0].n, 1);
    assert_int_equal(h[0].ranges[0].upto, 400);
    assert_int_equal(h[1].n, 2);
    for (uint32_t k = 0; k < 3; k++) {
        inherit_claims(&h[k], &r[k]);
        assert_true(inherit_claims_valid(&r[k], ELEMENTS, BLOCK));
    }
    (void)choose(&h[1], r, &q); /* members 0 and 1 are left */
    assert_int_equal(q.n_ranges, 2);
    assert_int_equal(q.ranges[0].upto, 640);
    assert_int_equal(q.ranges[1].upto, 800);
    assert_int_equal(q.ranges[1].n_contributors, 3);
    assert_int_equal(q.members[0].holds, 400);
    assert_int_equal(q.members[1].holds, 800);
    (void)choose(&h[0], r, &q); /* this one never saw the second ring end */
    assert_int_equal(inherit_total(&q), 640);
    assert_int_equal(q.members[1].holds, 640);
}

static void more_failures_than_ranges_do_the_rest_again(void **state)
{
    static struct ready_body r[VIEW_MEMBERS_MAX];
    struct inherit h = {0};
    struct plan_body p = plan_of(1);

    (void)state;
    for (uint8_t k = 1; k <= ROUND_RANGES_MAX + 2; k++) {
        failed(&h, &p, k, 80U * k);
        assert_true(h.n <= ROUND_RANGES_MAX);
        inherit_claims(&h, &r[0]);
        (void)choose(&h, r, &p);
        assert_true(fits(&h, &p, 0));
    }
    assert_int_equal(inherit_total(&p), 80 * ROUND_RANGES_MAX);
}

static void false_plans_do_not_fit(void **state)
{
    static struct ready_body r[VIEW_MEMBERS_MAX];
    struct inherit h[3];
    const uint64_t final[] = {80, 640, 320};
    struct plan_body good = plan_of(3), p;

    (void)state;
    readies_of(r, h, final);
    (void)choose(&h[0], r, &good);
    assert_true(fits(&h[1], &good, 1));
    p = good;
    p.members[0].holds = 88; /* more than it has */
    assert_false(fits(&h[0], &p, 0));
    assert_true(fits(&h[1], &p, 1)); /* cannot know */
    p = good;
    p.members[0].holds = 72; /* less: then it would be written over */
    assert_false(fits(&h[0], &p, 0));
    p = good;
    p.members[0].holds = 84; /* inside a block */
    assert_false(fits(&h[1], &p, 1));
    p = good;
    p.ranges[0].contributors[3].tokens++;
    assert_false(fits(&h[1], &p, 1));
    p = good;
    p.ranges[0].upto = 648; /* nobody holds it all */
    assert_false(fits(&h[1], &p, 1));
    p = good;
    p.ranges[0].upto = 644; /* inside a block */
    p.members[1].holds = 644;
    assert_false(fits(&h[0], &p, 0));
    p = good;
    p.ranges[0].upto = p.members[1].holds = ELEMENTS + BLOCK;
    assert_false(fits(&h[0], &p, 0));
    p = good;
    p.ranges[1] = p.ranges[0]; /* does not grow */
    p.n_ranges = 2;
    assert_false(fits(&h[1], &p, 1));
    p = good;
    p.ranges[0].n_contributors = 0;
    assert_false(fits(&h[2], &p, UINT32_MAX));
}

static void false_claims_are_refused(void **state)
{
    struct ready_body r = {.n_claims = 2,
                           .claims = {{.upto = 80}, {.upto = 160}}};

    (void)state;
    assert_true(inherit_claims_valid(&r, ELEMENTS, BLOCK));
    r.claims[1].upto = 80;
    assert_false(inherit_claims_valid(&r, ELEMENTS, BLOCK));
    r.claims[1].upto = 81;
    assert_false(inherit_claims_valid(&r, ELEMENTS, BLOCK));
    r.claims[1].upto = ELEMENTS;
    assert_true(inherit_claims_valid(&r, ELEMENTS, BLOCK));
    r.claims[1].upto = ELEMENTS + 5;
    assert_false(inherit_claims_valid(&r, ELEMENTS, BLOCK));
    r.claims[0].upto = 0;
    assert_false(inherit_claims_valid(&r, ELEMENTS, BLOCK));
}

static void a_share_counts_the_elements_that_hold_these_steps(void **state)
{
    static struct ready_body r[VIEW_MEMBERS_MAX];
    struct inherit h[3];
    const uint64_t final[] = {80, 640, 320};
    struct plan_body p = plan_of(3);
    struct peer_id dead = peer(4), left = peer(1), other = peer(9);

    (void)state;
    readies_of(r, h, final);
    (void)choose(&h[0], r, &p);
    assert_int_equal(inherit_share(&p, false, &dead, 10, 20, ELEMENTS), 640);
    assert_int_equal(inherit_share(&p, false, &dead, 20, 30, ELEMENTS), 0);
    assert_int_equal(inherit_share(&p, false, &dead, 19, 30, ELEMENTS), 640);
    assert_int_equal(inherit_share(&p, false, &dead, 5, 10, ELEMENTS), 0);
    assert_int_equal(inherit_share(&p, true, &left, 10, 20, ELEMENTS),
                     ELEMENTS);
    assert_int_equal(inherit_share(&p, true, &other, 10, 20, ELEMENTS),
                     ELEMENTS - 640);
    assert_int_equal(inherit_share(&p, false, &other, 10, 20, ELEMENTS), 0);
    /* Of ranges that no such vector has none is. */
    assert_int_equal(inherit_share(&p, true, &dead, 10, 20, 639), 0);
    p.ranges[1] = p.ranges[0];
    p.n_ranges = 2;
    assert_int_equal(inherit_share(&p, true, &dead, 10, 20, ELEMENTS), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_longest_claim_is_inherited_and_holds_are_true),
        cmocka_unit_test(who_was_not_in_the_ring_waits_for_the_next_round),
        cmocka_unit_test(who_joined_since_waits_for_the_next_round),
        cmocka_unit_test(a_claim_without_the_contribution_is_not_chosen),
        cmocka_unit_test(a_claim_of_who_is_not_ready_is_not_chosen),
        cmocka_unit_test(claims_of_an_unknown_plan_are_not_inherited),
        cmocka_unit_test(
            a_second_failure_adds_a_range_and_cuts_what_was_not_here),
        cmocka_unit_test(more_failures_than_ranges_do_the_rest_again),
        cmocka_unit_test(false_plans_do_not_fit),
        cmocka_unit_test(false_claims_are_refused),
        cmocka_unit_test(a_share_counts_the_elements_that_hold_these_steps),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
