/* node_stage_test.c - one peer's node_stage.c by hand: which stage it takes,
 * when it takes another, and what its machine's answer makes of it. Whole
 * swarms that choose at once are the simulator's (sim stages). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "proto/base/err.h"
#include "tests/unit/daemon/hand.h"

#define STAGES  3
#define SETTLED 2000 /* ms after which a choice is made */

/* The node and three puppets in a run of three stages. Nobody has chosen. */
struct rig {
    struct hand *h;
    struct node *n;
    struct member *puppet[HAND_PUPPETS];
};

static int setup(void **state)
{
    struct rig *r = calloc(1, sizeof *r);

    r->h = hand_open(HAND_PUPPETS);
    r->n = r->h->node;
    hand_drain(r->h, 16); /* links and their first words */
    r->n->terms = r->h->terms;
    r->n->terms.stages = STAGES;
    r->n->terms.stage_fits = 7;
    r->n->terms.min_peers = 4;
    r->n->configured = true;
    r->n->staging = STAGING_NONE;
    r->n->now = r->h->now_ms;
    r->n->stage_ms = r->n->now;
    for (uint32_t p = 0; p < HAND_PUPPETS; p++) {
        int row = members_find(&r->n->members, &r->h->puppet[p].id);

        r->puppet[p] = &r->n->members.peers[row];
        r->puppet[p]->confirmed = true;
        r->puppet[p]->has_beat = true;
    }
    *state = r;
    return 0;
}

static int teardown(void **state)
{
    struct rig *r = *state;

    hand_close(r->h);
    free(r);
    return 0;
}

/* Puppet p has chosen that stage, from 0; `round`: and is in a view of it. */
static void chose(struct rig *r, uint32_t p, uint32_t stage, uint64_t round)
{
    r->puppet[p]->info.stage = (uint16_t)(stage + 1);
    r->puppet[p]->info.round = round;
    r->puppet[p]->info.features = round > 0 ? PEER_IN_VIEW : 0;
}

/* The node looks at the swarm, `ms` later. The stage it asks its machine for,
 * or ROUTE_NONE. */
static uint32_t look(struct rig *r, uint64_t ms)
{
    r->n->now += ms;
    r->n->out = r->h->out;
    r->h->out->n = r->h->out->n_bytes = 0;
    node_stage_advance(r->n);
    for (uint32_t i = 0; i < r->h->out->n; i++) {
        if (r->h->out->action[i].type == ACTION_STAGE) {
            return (uint32_t)r->h->out->action[i].index;
        }
    }
    return ROUTE_NONE;
}

/* Its machine has the stage that it was asked for, or does not. */
static void staged(struct rig *r, int rc)
{
    struct local_event e = {
        .type = LOCAL_STAGED, .index = r->n->stage, .rc = rc};
    struct run_terms terms = r->n->terms;

    e.terms = rc == 0 ? &terms : NULL;
    r->n->out = r->h->out;
    r->h->out->n = r->h->out->n_bytes = 0;
    node_on_staged(r->n, &e);
    r->n->applying = false; /* the seed's weights are made */
}

static void the_stage_with_the_fewest_hosts_is_taken(void **state)
{
    struct rig *r = *state;

    chose(r, 0, 0, 0);
    chose(r, 1, 2, 0);
    chose(r, 2, 0, 0);
    assert_int_equal(look(r, 300), ROUTE_NONE); /* others may choose, too */
    assert_int_equal(look(r, SETTLED), 1);
    assert_int_equal(r->n->staging, STAGING_ASKED);
    assert_int_equal(look(r, SETTLED), ROUTE_NONE); /* once */
}

static void of_equal_ones_the_lower(void **state)
{
    struct rig *r = *state;

    chose(r, 0, 1, 0);
    chose(r, 1, 0, 0);
    chose(r, 2, 2, 0);
    assert_int_equal(look(r, SETTLED), 0);
}

/* Ids below ours that have chosen nothing yet go before: each takes one. */
static void who_has_a_lower_id_chooses_first(void **state)
{
    struct rig *r = *state;

    memset(r->n->opt.self.b, 0xff, sizeof r->n->opt.self.b);
    chose(r, 0, 0, 0);
    assert_int_equal(look(r, SETTLED), 0); /* the others: 1 and 2 */
}

static void a_stage_that_does_not_fit_is_nobodys_choice(void **state)
{
    struct rig *r = *state;

    chose(r, 0, 0, 0);
    chose(r, 1, 2, 0);
    r->n->terms.stage_fits = 5;
    assert_int_equal(look(r, SETTLED), 0);
}

/* Its state is gone: from the seed it would be another model. */
static void a_stage_that_lost_all_its_hosts_is_left_alone(void **state)
{
    struct rig *r = *state;

    chose(r, 0, 0, 4);
    chose(r, 1, 0, 4);
    chose(r, 2, 2, 4);
    assert_int_equal(look(r, SETTLED), 2);
}

static void who_holds_its_state_brings_it_back(void **state)
{
    struct rig *r = *state;

    chose(r, 0, 0, 4);
    chose(r, 1, 2, 4);
    chose(r, 2, 2, 4);
    r->n->terms.holds_state = true;
    r->n->terms.held_stage = 1;
    assert_int_equal(look(r, 300), 1); /* there is nothing to choose */
}

static void a_machine_without_the_memory_takes_another(void **state)
{
    struct rig *r = *state;

    chose(r, 0, 1, 0);
    chose(r, 1, 2, 0);
    chose(r, 2, 2, 0);
    assert_int_equal(look(r, SETTLED), 0);
    staged(r, LOCO_ENOMEM);
    assert_int_equal(r->n->staging, STAGING_NONE);
    assert_int_equal(look(r, SETTLED), 1);
}

static void a_machine_that_fits_none_stops_with_the_reason(void **state)
{
    struct rig *r = *state;

    r->n->terms.stage_fits = 1;
    assert_int_equal(look(r, SETTLED), 0);
    staged(r, LOCO_ENOMEM);
    assert_int_equal(r->h->out->action[0].type, ACTION_STOP);
    assert_int_equal(r->h->out->action[0].rc, LOCO_EXIT_RESOURCES);
    assert_true(r->n->stopped);
}

/* All chose the same at once. The highest id of them moves, and only it. */
static void the_highest_of_the_fullest_stage_takes_another(void **state)
{
    struct rig *r = *state;

    chose(r, 0, 1, 0);
    chose(r, 1, 2, 0);
    assert_int_equal(look(r, SETTLED), 0);
    staged(r, 0);
    assert_int_equal(r->n->staging, STAGING_DONE);
    chose(r, 0, 0, 0);
    chose(r, 1, 0, 0);
    chose(r, 2, 1, 0);
    assert_int_equal(look(r, SETTLED), ROUTE_NONE); /* ours is the lowest */
    memset(r->n->opt.self.b, 0xff, sizeof r->n->opt.self.b);
    assert_int_equal(look(r, 300), 2);
}

/* One host more or less is no reason. */
static void nobody_moves_for_one_host_less(void **state)
{
    struct rig *r = *state;

    memset(r->n->opt.self.b, 0xff, sizeof r->n->opt.self.b);
    chose(r, 0, 1, 0);
    chose(r, 1, 2, 0);
    chose(r, 2, 2, 0);
    assert_int_equal(look(r, SETTLED), 0);
    staged(r, 0);
    chose(r, 2, 0, 0); /* two at stage 0, one at the others */
    assert_int_equal(look(r, SETTLED), ROUTE_NONE);
}

static void who_moves_says_goodbye_and_keeps_nothing(void **state)
{
    struct rig *r = *state;
    struct hash32 group;

    chose(r, 0, 1, 0);
    chose(r, 1, 2, 0);
    assert_int_equal(look(r, SETTLED), 0);
    staged(r, 0);
    group = r->n->group;
    r->n->loaded = true;
    r->n->applied.round = 8;
    r->n->out = r->h->out;
    r->h->out->n = r->h->out->n_bytes = 0;
    node_stage_move(r->n, 2);
    assert_int_equal(r->n->stage, 2);
    assert_int_equal(r->n->staging, STAGING_ASKED);
    assert_false(r->n->loaded);
    assert_int_equal(r->n->applied.round, 0);
    assert_memory_not_equal(&group, &r->n->group, sizeof group);
    for (uint32_t i = 0; i < r->h->out->n; i++) {
        const struct action *a = &r->h->out->action[i];

        if (a->type == ACTION_SEND && a->message == MESSAGE_GOODBYE) {
            return;
        }
    }
    fail_msg("nobody hears that it left its group");
}

/* Until the run has its peers, and each stage its first ones. */
static void no_stage_is_founded_while_another_lacks_hosts(void **state)
{
    struct rig *r = *state;

    r->n->terms.min_peers = 3;
    chose(r, 0, 1, 0);
    chose(r, 1, 1, 0);
    assert_int_equal(look(r, SETTLED), 0);
    staged(r, 0);
    assert_false(node_stage_may_found(r->n));
    assert_non_null(node_stage_wait(r->n));
    chose(r, 2, 2, 0);
    assert_true(node_stage_may_found(r->n));
    r->puppet[2]->lost = true;
    assert_false(node_stage_may_found(r->n));
}

/* Its first host may be silent for a moment only: two foundings would be two
 * chains of one stage. */
static void
who_comes_when_others_have_begun_waits_before_it_founds(void **state)
{
    struct rig *r = *state;
    const char *why;

    r->n->terms.min_peers = 3;
    chose(r, 0, 1, 0);
    chose(r, 1, 2, 0);
    chose(r, 2, 0, 0);
    r->puppet[0]->info.features = r->puppet[1]->info.features = PEER_IN_VIEW;
    r->puppet[2]->lost = true; /* it was in the view of stage 0 */
    assert_int_equal(look(r, SETTLED), 0);
    staged(r, 0);
    assert_false(node_stage_may_found(r->n));
    why = node_stage_wait(r->n);
    assert_non_null(why);
    assert_non_null(strstr(why, "founded anew"));
    r->n->now = r->n->stage_ms + r->n->terms.fork_after_ms - 1;
    assert_false(node_stage_may_found(r->n));
    r->n->now++;
    assert_true(node_stage_may_found(r->n));
}

/* The puppet is in a view that came before the one on our disk. */
static void who_was_left_behind_is_not_waited_for(void **state)
{
    struct rig *r = *state;
    struct member *p = r->puppet[0];
    struct heartbeat b = {.has_view = true, .ready = true, .stage = 1};
    struct view_body *ours = &r->n->ballot.cert.body;

    r->n->terms.holds_state = true;
    r->n->terms.held_stage = 0;
    r->n->terms.held_tokens = 100;
    assert_int_equal(look(r, SETTLED), 0);
    staged(r, 0);
    chose(r, 0, 0, 3);
    r->n->loaded = false;
    r->n->ballot.have = false;
    r->n->ballot.restored = true;
    ours->prev.b[0] = 1;
    r->n->ballot.hash.b[0] = 2;
    b.view.b[0] = 1;
    b.tokens = 100;
    p->beat = b;
    assert_true(node_left_behind(r->n, p));
    assert_false(node_sees_view(r->n));
    assert_true(node_stage_may_begin(r->n));
    p->beat.tokens++; /* it has what our disk has not */
    assert_false(node_left_behind(r->n, p));
    assert_true(node_sees_view(r->n));
    assert_false(node_stage_may_begin(r->n));
    p->beat = b;
    p->beat.view.b[0] = 2; /* our own view: others are still in it */
    assert_true(node_sees_view(r->n));
    p->beat.view.b[0] = 3; /* some other one */
    assert_true(node_sees_view(r->n));
    p->beat = b;
    p->beat.state = NODE_FINISHED; /* the end is something to go by */
    assert_true(node_sees_view(r->n));
    p->beat = b;
    r->n->ballot.restored = false; /* nothing is known of what came before */
    assert_true(node_sees_view(r->n));
}

int main(void)
{
#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(the_stage_with_the_fewest_hosts_is_taken),
        TEST(of_equal_ones_the_lower),
        TEST(who_has_a_lower_id_chooses_first),
        TEST(a_stage_that_does_not_fit_is_nobodys_choice),
        TEST(a_stage_that_lost_all_its_hosts_is_left_alone),
        TEST(who_holds_its_state_brings_it_back),
        TEST(a_machine_without_the_memory_takes_another),
        TEST(a_machine_that_fits_none_stops_with_the_reason),
        TEST(the_highest_of_the_fullest_stage_takes_another),
        TEST(nobody_moves_for_one_host_less),
        TEST(who_moves_says_goodbye_and_keeps_nothing),
        TEST(no_stage_is_founded_while_another_lacks_hosts),
        TEST(who_comes_when_others_have_begun_waits_before_it_founds),
        TEST(who_was_left_behind_is_not_waited_for),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
