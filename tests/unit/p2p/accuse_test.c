/* accuse_test.c - which accusations are looked at, where, and what they cost.
 */
#include "tests/unit/p2p/audits.h"

static void accusations_that_are_none_are_not_looked_at(void **state)
{
    struct fixture *f = *state;

    assert_false(accuse(f, peer_of(0), 0, 0)); /* there is no commit */
    begin_idle(f);
    assert_false(accuse(f, peer_of(0), 6, block_of(f, 2))); /* another one */
    assert_false(accuse(f, STRANGER, 5, block_of(f, 2)));
    assert_false(accuse(f, peer_of(0), 5, block_of(f, RANK))); /* of us */
    assert_false(accuse(f, peer_of(0), 5, block_of(f, 0)));    /* of itself */
    assert_false(accuse(f, peer_of(0), 5, 1001));
    assert_false(accuse(f, peer_of(0), 5, UINT64_MAX));
    tick(f, 10);
    assert_int_equal(f->n_asked, 0);
    assert_true(accuse(f, peer_of(0), 5, block_of(f, 2))); /* it may still */
}

static void what_it_accuses_of_is_fetched_from_the_accuser(void **state)
{
    struct fixture *f = *state;
    const int accuser = peer_of(3);
    struct audit_block b;
    uint32_t seen = 0;

    begin_idle(f);
    members_link_down(&f->m, (uint32_t)peer_of(4) + 1, f->now_ms);
    assert_true(accuse(f, accuser, 5, block_of(f, 2) + 1));
    assert_int_equal(f->n_asked, 0);
    tick(f, 10);
    assert_int_equal(f->n_asked, MEMBERS - 1); /* whoever else is away */
    for (uint32_t k = 0; k < f->n_asked; k++) {
        seen |= 1U << f->asked[k].lane;
        assert_true(id_eq(&f->asked[k].peer, &f->peer[accuser].id));
        assert_int_equal(f->asked[k].offset, block_of(f, 2));
    }
    assert_int_equal(seen, 0x1f & ~(1U << RANK));
    all_arrive(f);
    assert_true(answer(f, true, &b));
    assert_int_equal(b.owner, 2);
    assert_int_equal(b.source, f->row[accuser]);
    assert_int_equal(f->a.n_wrong, 1);
    assert_int_equal(f->a.n_false, 0);
}

static void a_false_accusation_costs_fetches_and_counts(void **state)
{
    struct fixture *f = *state;
    const int accuser = peer_of(3);
    struct audit_block b;

    begin_idle(f);
    assert_true(accuse(f, accuser, 5, block_of(f, 2)));
    tick(f, 10);
    all_arrive(f);
    assert_false(answer(f, false, &b));
    assert_int_equal(f->a.n_false, 1);
    assert_int_equal(f->a.n_wrong, 0);
    assert_false(accuse(f, accuser, 5, block_of(f, 2))); /* once a commit */
    assert_false(accuse(f, accuser, 5, block_of(f, 4)));
    tick(f, 10);
    assert_int_equal(f->n_asked, 0);
    assert_true(accuse(f, peer_of(4), 5, block_of(f, 2))); /* another one */
    tick(f, 10);
    assert_true(id_eq(&f->asked[0].peer, &f->peer[peer_of(4)].id));
}

/* Its lane is one of those that the accuser sends, so it has no say. */
static void the_accused_cannot_refuse_what_the_accuser_sends(void **state)
{
    struct fixture *f = *state;
    const int accuser = peer_of(3);

    begin_idle(f);
    assert_true(accuse(f, accuser, 5, block_of(f, 2)));
    tick(f, 10);
    refuse(f, peer_of(2), f->a.attempt, 2);
    assert_int_equal(f->a.phase, AUDIT_FETCHING);
    assert_int_equal(unanswered(f), 0);
    refuse(f, accuser, f->a.attempt, 2); /* it can */
    assert_int_equal(unanswered(f), 1);
    assert_int_equal(f->n_cancels, 1);
}

static void
an_accuser_whose_blocks_do_not_come_may_say_it_once_more(void **state)
{
    struct fixture *f = *state;
    const int accuser = peer_of(3);

    begin_idle(f);
    for (int turn = 0; turn < 2; turn++) {
        assert_true(accuse(f, accuser, 5, block_of(f, 2)));
        tick(f, 10);
        refuse(f, accuser, f->a.attempt, 2);
        assert_int_equal(unanswered(f), turn + 1);
    }
    assert_false(accuse(f, accuser, 5, block_of(f, 2)));
    tick(f, 10);
    assert_int_equal(f->n_asked, 0);
    assert_true(accuse(f, peer_of(4), 5, block_of(f, 2))); /* another member */
}

static void accusations_and_draws_take_turns(void **state)
{
    struct fixture *f = *state;
    struct audit_block b;
    uint64_t drawn;

    begin(f, 5);
    tick(f, 10);
    drawn = f->asked[0].offset;
    assert_true(accuse(f, peer_of(3), 5, block_of(f, 2)));
    assert_true(accuse(f, peer_of(4), 5, block_of(f, 2)));
    tick(f, 10);
    assert_int_equal(f->asked[0].offset, drawn); /* one block at a time */
    assert_int_equal(f->a.block.source, MEMBERS_NONE);
    for (uint32_t left = 2;; left--) {
        all_arrive(f);
        assert_false(answer(f, false, &b));
        tick(f, 10);
        if (left == 0) {
            break;
        }
        assert_int_equal(f->a.left, left);
        assert_int_equal(f->asked[0].offset, block_of(f, 2));
        assert_true(f->a.block.source == f->row[peer_of(3)] ||
                    f->a.block.source == f->row[peer_of(4)]);
        all_arrive(f);
        assert_false(answer(f, false, &b));
        tick(f, 10);
        assert_int_equal(f->a.left, left - 1);
        assert_int_equal(f->a.block.source, MEMBERS_NONE);
    }
    assert_int_equal(f->n_asked, 0);
    assert_int_equal(f->a.n_false, 2);
    assert_int_equal(f->a.n_blocks, 5);
}

/* Liars accuse first and send nothing; a true accusation comes after theirs,
 * and is not lost for that. */
static void silent_accusers_hold_up_no_true_accusation_for_good(void **state)
{
    struct fixture *f = *state;
    struct audit_block b;
    uint64_t from;

    begin_idle(f);
    assert_true(accuse(f, peer_of(3), 5, block_of(f, 2)));
    assert_true(accuse(f, peer_of(4), 5, block_of(f, 2)));
    tick(f, 10);
    assert_true(accuse(f, peer_of(0), 5, block_of(f, 2))); /* the true one */
    assert_false(accuse(f, peer_of(0), 5, block_of(f, 2)));
    from = f->now_ms;
    while (f->a.block.source != f->row[peer_of(0)]) {
        assert_true(f->now_ms - from < 3 * WAIT_MS);
        tick(f, WAIT_MS);
    }
    all_arrive(f);
    assert_true(answer(f, true, &b));
    assert_int_equal(b.owner, 2);
}

/* Or whoever accuses first would always be looked at first. */
static void which_of_several_accusations_is_next_is_drawn(void **state)
{
    struct fixture *f = *state;
    uint32_t first[MEMBERS] = {0};

    for (uint64_t secret = 1; secret <= 300; secret++) {
        begin(f, secret);
        for (uint32_t rank = 2; rank < MEMBERS; rank++) {
            assert_true(accuse(f, peer_of(rank), 5, block_of(f, 0)));
        }
        tick(f, 1);
        for (uint32_t rank = 0; rank < MEMBERS; rank++) {
            first[rank] +=
                rank != RANK && f->a.block.source == f->row[peer_of(rank)];
        }
    }
    for (uint32_t rank = 2; rank < MEMBERS; rank++) {
        assert_true(first[rank] > 60 && first[rank] < 140);
    }
}

static void who_accuses_and_is_gone_is_unanswered(void **state)
{
    struct fixture *f = *state;

    begin_idle(f);
    assert_true(accuse(f, peer_of(3), 5, block_of(f, 2)));
    members_link_down(&f->m, (uint32_t)peer_of(3) + 1, f->now_ms);
    tick(f, 10);
    assert_int_equal(f->n_asked, 0);
    assert_int_equal(unanswered(f), 1);
    assert_int_equal(f->a.n_false, 0); /* its line may be down */
}

/* Its row may be that of another peer by then. */
static void who_accuses_and_is_forgotten_is_unanswered(void **state)
{
    struct fixture *f = *state;
    int row = f->row[peer_of(3)];

    begin_idle(f);
    assert_true(accuse(f, peer_of(3), 5, block_of(f, 2)));
    f->m.peers[row].id = (struct peer_id){.b = {99}};
    tick(f, 10);
    assert_int_equal(f->n_asked, 0);
    assert_int_equal(unanswered(f), 1);
    f->m.peers[row].id = f->peer[peer_of(3)].id;
}

int main(void)
{
#define WITH(test)                                                             \
    cmocka_unit_test_setup_teardown(test, open_fixture, close_fixture)
    const struct CMUnitTest tests[] = {
        WITH(accusations_that_are_none_are_not_looked_at),
        WITH(what_it_accuses_of_is_fetched_from_the_accuser),
        WITH(a_false_accusation_costs_fetches_and_counts),
        WITH(the_accused_cannot_refuse_what_the_accuser_sends),
        WITH(an_accuser_whose_blocks_do_not_come_may_say_it_once_more),
        WITH(accusations_and_draws_take_turns),
        WITH(silent_accusers_hold_up_no_true_accusation_for_good),
        WITH(which_of_several_accusations_is_next_is_drawn),
        WITH(who_accuses_and_is_gone_is_unanswered),
        WITH(who_accuses_and_is_forgotten_is_unanswered),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
