/* probation_test.c - whom a member vouches for, and who gets a seat. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "p2p/prefix.h"
#include "p2p/round/probation.h"
#include "p2p/round/seats.h"
#include "p2p/round/view.h"

static struct peer_id id_of(uint32_t i)
{
    struct peer_id id = {.b = {1, (uint8_t)(i >> 8), (uint8_t)i}};

    return id;
}

/* ---- vouching ----------------------------------------------------------- */

static void a_round_counts_once(void **state)
{
    struct probation p = {.row[0].id = 0};
    struct peer_id id = id_of(1), other = id_of(2);

    (void)state;
    for (uint64_t round = 5; round < 8; round++) {
        assert_false(probation_vouches(&p, &id, 3));
        probation_worked(&p, &id, round);
        probation_worked(&p, &id, round);
        probation_worked(&p, &id, round - 1); /* again, and late */
    }
    assert_int_equal(probation_rounds(&p, &id), 3);
    assert_true(probation_vouches(&p, &id, 3));
    assert_false(probation_vouches(&p, &other, 3));
}

static void who_was_full_is_vouched_for_at_once(void **state)
{
    struct probation p = {.row[0].id = 0};
    struct peer_id id = id_of(1);

    (void)state;
    assert_false(probation_was_full(&p, &id));
    probation_full(&p, &id, 9);
    assert_true(probation_was_full(&p, &id));
    assert_true(probation_vouches(&p, &id, 3));
    assert_true(probation_is_due(&p, &id, 3));
}

/* Others may have counted one less; and a view that did not help is not asked
 * for in every round. */
static void a_view_is_asked_for_ever_less_often(void **state)
{
    struct probation p = {.row[0].id = 0};
    struct peer_id id = id_of(1);
    uint32_t asked = 0;

    (void)state;
    for (uint64_t round = 1; round <= 100; round++) {
        probation_worked(&p, &id, round);
        assert_false(round <= 3 && probation_is_due(&p, &id, 3));
        if (probation_is_due(&p, &id, 3)) {
            probation_tried(&p, &id);
            asked++;
        }
    }
    assert_int_equal(asked, 5); /* 4, 8, 16, 32, 64 */
}

/* A crowd of identities does not make a member forget who is full. */
static void who_is_full_is_forgotten_last(void **state)
{
    static struct probation p;
    struct peer_id full = id_of(1), crowd;

    (void)state;
    memset(&p, 0, sizeof p);
    probation_full(&p, &full, 1);
    for (uint32_t i = 2; i < 2000; i++) {
        crowd = id_of(i);
        probation_worked(&p, &crowd, i);
    }
    assert_true(probation_was_full(&p, &full));
    assert_int_equal(probation_rounds(&p, &crowd), 1);
    crowd = id_of(2);
    assert_int_equal(probation_rounds(&p, &crowd), 0);
}

/* ---- seats -------------------------------------------------------------- */

static struct msg_address at(uint8_t a, uint8_t b, uint8_t c, uint8_t d)
{
    struct msg_address m = {.ip = {[12] = a, b, c, d}, .port = 1};

    prefix_map_v4(m.ip);
    return m;
}

/* One more member of epoch 9, there since `joined`. */
static void
add(struct view_body *v, struct msg_address where, bool full, uint64_t joined)
{
    struct view_member *m = &v->members[v->n_members++];

    v->epoch = 9;
    m->public_key[0] = (uint8_t)v->n_members;
    m->address = where;
    m->joined = joined;
    m->full_since = full ? 1 : FULL_NEVER;
}

static void a_quarter_of_the_seats_is_for_probation(void **state)
{
    struct view_body v = {.n_members = 0};
    struct msg_address where = at(10, 0, 0, 1);

    (void)state;
    add(&v, where, true, 1);
    for (uint32_t i = 0; i < VIEW_PROBATION_MAX; i++) {
        assert_int_equal(seats_find(&v, &where, false), v.n_members);
        add(&v, at(10, 0, 0, (uint8_t)i), false, 2);
    }
    assert_int_equal(seats_find(&v, &where, false), -1);
    assert_int_equal(seats_find(&v, &where, true), v.n_members);
}

static void a_newcomer_takes_a_seat_of_the_largest_group(void **state)
{
    struct view_body v = {.n_members = 0};
    struct msg_address crowd = at(89, 1, 2, 77), pair = at(90, 1, 2, 3),
                       lone = at(91, 1, 2, 3), lan = at(192, 168, 0, 9);

    (void)state;
    add(&v, lan, true, 1);
    add(&v, pair, false, 8);
    add(&v, pair, false, 8);
    for (uint32_t i = 0; i < VIEW_PROBATION_MAX - 2; i++) {
        add(&v, at(89, 1, 2, (uint8_t)i), false, i == 5 ? 8 : 7);
    }
    assert_int_equal(seats_find(&v, &lone, false), 8); /* i == 5: the last */
    assert_int_equal(seats_find(&v, &lan, false), 8);  /* a group of its own */
    assert_int_equal(seats_find(&v, &crowd, false), -1);
    assert_int_equal(seats_find(&v, &pair, false), 8);
}

/* Full or not: 16 is what one network may have. */
static void a_network_has_sixteen_seats(void **state)
{
    struct view_body v = {.n_members = 0};
    struct msg_address same = at(89, 1, 2, 200), other = at(89, 1, 3, 1);

    (void)state;
    for (uint32_t i = 0; i < VIEW_PROBATION_MAX; i++) {
        assert_int_equal(seats_find(&v, &same, i % 2 == 0), v.n_members);
        add(&v, at(89, 1, 2, (uint8_t)i), i % 2 == 0, 2);
    }
    assert_int_equal(seats_find(&v, &same, true), -1);
    assert_int_equal(seats_find(&v, &same, false), -1);
    assert_int_equal(seats_find(&v, &other, false), v.n_members);
}

/* Of one founder and newcomers of one other network, one counts. */
static void no_network_joins_its_way_to_more_than_half(void **state)
{
    struct view_body v = {.n_members = 0};
    struct msg_address founder = at(89, 1, 2, 3), lab = at(90, 1, 2, 3),
                       third = at(91, 1, 2, 3), lan = at(10, 0, 0, 1);

    (void)state;
    add(&v, founder, true, 1);
    assert_true(seats_may_count(&v, &lab));
    add(&v, lab, true, 2);
    add(&v, lab, false, 2);
    assert_false(seats_may_count(&v, &lab));
    assert_false(seats_may_count(&v, &founder)); /* half, not more */
    assert_true(seats_may_count(&v, &lan));
    add(&v, third, true, 2);
    assert_true(seats_may_count(&v, &lab)); /* 2 of 4 */
    v.n_members = 0;
    add(&v, founder, true, 1);
    assert_true(seats_may_count(&v, &founder)); /* it decides already */
}

/* Who was full before comes back into a view of 64. */
static void who_is_full_takes_a_seat_of_probation(void **state)
{
    struct view_body v = {.n_members = 0};
    struct msg_address where = at(10, 0, 0, 1);

    (void)state;
    for (uint32_t i = 0; i < VIEW_MEMBERS_MAX - 1; i++) {
        add(&v, where, true, 1);
    }
    assert_int_equal(seats_find(&v, &where, true), VIEW_MEMBERS_MAX - 1);
    add(&v, where, false, 2);
    assert_int_equal(seats_find(&v, &where, true), VIEW_MEMBERS_MAX - 1);
    assert_int_equal(seats_find(&v, &where, false), -1);
    v.members[VIEW_MEMBERS_MAX - 1].full_since = 2;
    assert_int_equal(seats_find(&v, &where, true), -1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_round_counts_once),
        cmocka_unit_test(who_was_full_is_vouched_for_at_once),
        cmocka_unit_test(a_view_is_asked_for_ever_less_often),
        cmocka_unit_test(who_is_full_is_forgotten_last),
        cmocka_unit_test(a_quarter_of_the_seats_is_for_probation),
        cmocka_unit_test(a_newcomer_takes_a_seat_of_the_largest_group),
        cmocka_unit_test(a_network_has_sixteen_seats),
        cmocka_unit_test(no_network_joins_its_way_to_more_than_half),
        cmocka_unit_test(who_is_full_takes_a_seat_of_probation),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
