/* node_init_test.c - a run that begins from a file: who fetches that, and when.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "tests/unit/daemon/hand.h"

#define PUPPETS 2
#define FILE_AT 1 /* of the shards */

static struct hand *open_hand(bool urls)
{
    struct hand *h = hand_open(PUPPETS);

    h->obedient = false;
    h->terms.n_shards = 2;
    h->terms.shards[FILE_AT] = (struct terms_shard){
        .bytes = 3000, .hash.b[0] = 7, .begins = true, .urls = urls};
    return h;
}

/* Both say that they are in a view of that round, or in none. */
static void say(struct hand *h, bool view, uint64_t ms)
{
    struct heartbeat b = {
        .life = 7, .configured = true, .ready = true, .state = NODE_TRAINING};

    if (view) {
        b.has_view = true;
        b.epoch = 1;
        b.view.b[0] = 1;
        b.round = 10;
        b.commit.b[0] = 2;
    }
    for (uint64_t t = 0; t < ms; t += 100) {
        for (uint32_t p = 0; p < PUPPETS; p++) {
            hand_say(h, p, MESSAGE_HEARTBEAT, &b);
        }
        hand_wait(h, 100);
    }
}

static bool is_fetched(const struct hand *h)
{
    const struct transfer *t = h->in.transfer;

    return t->active && t->object.buffer == BUFFER_SHARD &&
           t->object.index == FILE_AT;
}

static struct node_status status(const struct hand *h)
{
    struct node_status s;

    node_status(h->node, &s);
    return s;
}

static void it_is_fetched_while_no_view_is_in_sight(void **state)
{
    struct hand *h = open_hand(false);

    (void)state;
    say(h, true, 3000);
    assert_false(is_fetched(h));
    assert_int_equal(status(h).shards, 1); /* it is of no use */
    say(h, false, 1000);
    assert_false(is_fetched(h)); /* it may be a moment */
    say(h, false, 2000);
    assert_true(is_fetched(h));
    assert_int_equal(status(h).shards, 2);
    assert_int_equal(status(h).shards_here, 1);
    assert_non_null(strstr(status(h).reason, "begins from"));
    say(h, true, 200); /* nothing proves it */
    assert_true(is_fetched(h));
    assert_int_equal(h->n_jobs[JOB_LOAD], 0);
    hand_close(h);
}

static void who_claims_a_view_now_and_then_does_not_put_it_off(void **state)
{
    struct hand *h = open_hand(false);

    (void)state;
    for (int k = 0; k < 3; k++) {
        say(h, true, 300);
        say(h, false, 900);
    }
    assert_true(is_fetched(h));
    hand_close(h);
    h = open_hand(false);
    say(h, false, 200);
    say(h, true, 21000);
    assert_false(is_fetched(h));
    say(h, false, 200); /* it was wanted long ago: a moment is enough */
    assert_true(is_fetched(h));
    hand_close(h);
}

static void the_run_begins_when_it_is_here(void **state)
{
    struct local_event here = {.type = LOCAL_DOWNLOADED,
                               .downloaded.index = FILE_AT};
    struct hand *h = open_hand(true);

    (void)state;
    say(h, false, 4000);
    assert_int_equal(h->n_jobs[JOB_DOWNLOAD], 1);
    assert_int_equal(h->n_jobs[JOB_LOAD], 0);
    hand_local(h, &here);
    hand_wait(h, 300);
    assert_int_equal(h->n_jobs[JOB_LOAD], 1);
    assert_true(h->last_job[JOB_LOAD].load.from_seed);
    assert_true(h->in.held->loaded);
    hand_close(h);
}

static void a_checkpoint_needs_none_of_it(void **state)
{
    struct hand *h = open_hand(true);

    (void)state;
    h->terms.holds_state = true;
    h->terms.held_round = 3;
    say(h, false, 4000);
    assert_int_equal(h->n_jobs[JOB_DOWNLOAD], 0);
    assert_int_equal(h->n_jobs[JOB_LOAD], 1);
    assert_true(h->last_job[JOB_LOAD].load.from_disk);
    assert_int_equal(status(h).round, 3);
    hand_close(h);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(it_is_fetched_while_no_view_is_in_sight),
        cmocka_unit_test(who_claims_a_view_now_and_then_does_not_put_it_off),
        cmocka_unit_test(the_run_begins_when_it_is_here),
        cmocka_unit_test(a_checkpoint_needs_none_of_it),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
