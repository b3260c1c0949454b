/* node_stage_test.c - one peer's node/stages.c by hand: which stage it takes,
 * when it takes another, and what its machine's answer makes of it. Whole
 * swarms that choose at once are the simulator's (sim stages). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "daemon/node/branch.h"
#include "proto/base/err.h"
#include "tests/unit/daemon/hand.h"

#define STAGES  3
#define SETTLED 2000  /* ms after which a choice is made */
#define FOUNDED 10000 /* ms after which who may found a view has one */

/* The node and three puppets in a run of three stages. Nobody has chosen, and
 * nothing has happened yet. */
static struct hand *open_as(const struct hand_options *opt)
{
    const struct heartbeat none = {.life = 7, .configured = true};
    struct hand *h = hand_open_as(HAND_PUPPETS, opt);

    h->terms.stages = STAGES;
    h->terms.stage_fits = 7;
    h->terms.min_peers = 4;
    h->terms.micro_batches = 1;
    h->terms.pipe_slots = 2;
    h->terms.cut_elements = h->terms.cut_segment = 16;
    for (uint32_t p = 0; p < HAND_PUPPETS; p++) {
        hand_set_beat(h, p, &none);
    }
    return h;
}

static int setup(void **state)
{
    const struct hand_options opt = {.highest = false};

    *state = open_as(&opt);
    return 0;
}

static int setup_highest(void **state)
{
    const struct hand_options opt = {.highest = true};

    *state = open_as(&opt);
    return 0;
}

static int teardown(void **state)
{
    hand_close(*state);
    return 0;
}

static void
says(struct hand *h, uint32_t p, uint32_t stage, uint64_t round, bool in_view)
{
    const struct heartbeat b = {.life = 7,
                                .configured = true,
                                .has_view = in_view,
                                .round = round,
                                .stage = (uint16_t)(stage + 1)};

    hand_set_beat(h, p, &b);
}

/* Puppet p has chosen that stage, from 0; `round`: and is in a view of it. */
static void chose(struct hand *h, uint32_t p, uint32_t stage, uint64_t round)
{
    says(h, p, stage, round, round > 0);
}

/* `ms` pass. The stage that the node asks its machine for, or ROUTE_NONE. */
static uint32_t look(struct hand *h, uint64_t ms)
{
    const struct job *job;

    hand_forget(h);
    hand_wait(h, ms);
    job = hand_find_job(h, JOB_STAGE);
    return job == NULL ? ROUTE_NONE : job->stage.stage;
}

/* Its machine has the stage that it was asked for, or does not. */
static void staged(struct hand *h, int rc)
{
    const struct event e = {
        .type = EVENT_LOCAL,
        .local = {.type = LOCAL_STAGED,
                  .rc = rc,
                  .staged = {.stage = h->last_job[JOB_STAGE].stage.stage,
                             .terms = rc == 0 ? &h->terms : NULL}}};

    hand_forget(h);
    hand_step(h, &e);
}

static void leaves(struct hand *h, uint32_t p)
{
    struct goodbye m = {.body.peer = h->puppet[p].id};

    hand_sign(h, p, &goodbye_body_schema, &m.body, m.sig);
    hand_say(h, p, MESSAGE_GOODBYE, &m);
    h->link[p] = 0;
}

static void the_stage_with_the_fewest_hosts_is_taken(void **state)
{
    struct hand *h = *state;

    chose(h, 0, 0, 0);
    chose(h, 1, 2, 0);
    chose(h, 2, 0, 0);
    assert_int_equal(look(h, 300), ROUTE_NONE); /* others may choose, too */
    assert_int_equal(look(h, SETTLED), 1);
    assert_int_equal(h->in.stages->staging, STAGING_ASKED);
    assert_int_equal(look(h, SETTLED), ROUTE_NONE); /* once */
}

static void of_equal_ones_the_lower(void **state)
{
    struct hand *h = *state;

    chose(h, 0, 1, 0);
    chose(h, 1, 0, 0);
    chose(h, 2, 2, 0);
    assert_int_equal(look(h, SETTLED), 0);
}

/* Ids below ours that have chosen nothing yet go before: each takes one. */
static void who_has_a_lower_id_chooses_first(void **state)
{
    struct hand *h = *state;

    chose(h, 0, 0, 0);
    assert_int_equal(look(h, SETTLED), 0); /* the others: 1 and 2 */
}

static void a_stage_that_does_not_fit_is_nobodys_choice(void **state)
{
    struct hand *h = *state;

    chose(h, 0, 0, 0);
    chose(h, 1, 2, 0);
    h->terms.stage_fits = 5;
    assert_int_equal(look(h, SETTLED), 0);
}

/* Its state is gone: from the seed it would be another model. */
static void a_stage_that_lost_all_its_hosts_is_left_alone(void **state)
{
    struct hand *h = *state;

    chose(h, 0, 0, 4);
    chose(h, 1, 0, 4);
    chose(h, 2, 2, 4);
    assert_int_equal(look(h, SETTLED), 2);
}

static void who_holds_its_state_brings_it_back(void **state)
{
    struct hand *h = *state;

    chose(h, 0, 0, 4);
    chose(h, 1, 2, 4);
    chose(h, 2, 2, 4);
    h->terms.holds_state = true;
    h->terms.held_stage = 1;
    assert_int_equal(look(h, 300), 1); /* there is nothing to choose */
}

static void a_machine_without_the_memory_takes_another(void **state)
{
    struct hand *h = *state;

    chose(h, 0, 1, 0);
    chose(h, 1, 2, 0);
    chose(h, 2, 2, 0);
    assert_int_equal(look(h, SETTLED), 0);
    staged(h, LOCO_ENOMEM);
    assert_int_equal(h->in.stages->staging, STAGING_NONE);
    assert_int_equal(look(h, SETTLED), 1);
}

static void a_machine_that_fits_none_stops_with_the_reason(void **state)
{
    struct hand *h = *state;

    h->terms.stage_fits = 1;
    assert_int_equal(look(h, SETTLED), 0);
    staged(h, LOCO_ENOMEM);
    assert_true(h->stopped);
    assert_int_equal(h->last_job[JOB_STOP].stop.exit_code, LOCO_EXIT_RESOURCES);
}

static void a_machine_whose_gpu_is_gone_stops_with_the_reason(void **state)
{
    struct hand *h = *state;

    h->terms.stage_fits = 1;
    assert_int_equal(look(h, SETTLED), 0);
    staged(h, LOCO_EDEVICE);
    assert_true(h->stopped);
    assert_int_equal(h->last_job[JOB_STOP].stop.exit_code, LOCO_EXIT_DEVICE);
}

/* All chose the same at once. */
static void all_choose_stage_0(struct hand *h)
{
    chose(h, 0, 1, 0);
    chose(h, 1, 2, 0);
    assert_int_equal(look(h, SETTLED), 0);
    staged(h, 0);
    assert_int_equal(h->in.stages->staging, STAGING_DONE);
    chose(h, 0, 0, 0);
    chose(h, 1, 0, 0);
    chose(h, 2, 1, 0);
}

static void the_highest_of_the_fullest_stage_takes_another(void **state)
{
    struct hand *h = *state;

    all_choose_stage_0(h);
    assert_int_equal(look(h, SETTLED), 2);
}

static void only_the_highest_moves(void **state)
{
    struct hand *h = *state;

    all_choose_stage_0(h);
    assert_int_equal(look(h, SETTLED), ROUTE_NONE); /* ours is the lowest */
}

/* One host more or less is no reason. */
static void nobody_moves_for_one_host_less(void **state)
{
    struct hand *h = *state;

    h->terms.min_peers = 5; /* nobody is in a view */
    chose(h, 0, 1, 0);
    chose(h, 1, 2, 0);
    chose(h, 2, 2, 0);
    assert_int_equal(look(h, SETTLED), 0);
    staged(h, 0);
    chose(h, 2, 0, 0); /* two at stage 0, one at the others */
    assert_int_equal(look(h, FOUNDED), ROUTE_NONE);
    assert_false(h->in.ballot->have);
}

/* Until the run has its peers, and each stage its first ones. */
static void no_stage_is_founded_while_another_lacks_hosts(void **state)
{
    struct hand *h = *state;

    h->terms.min_peers = 3;
    chose(h, 0, 1, 0);
    chose(h, 1, 1, 0);
    assert_int_equal(look(h, SETTLED), 0);
    staged(h, 0);
    assert_int_equal(look(h, FOUNDED), ROUTE_NONE);
    assert_false(h->in.ballot->have);
    assert_non_null(node_stage_wait(h->node));
    chose(h, 2, 2, 0);
    hand_wait(h, FOUNDED);
    assert_true(h->in.ballot->have);
}

static void a_host_that_is_lost_is_none(void **state)
{
    struct hand *h = *state;

    h->terms.min_peers = 3;
    chose(h, 0, 1, 0);
    chose(h, 1, 1, 0);
    chose(h, 2, 2, 0);
    leaves(h, 2);
    assert_int_equal(look(h, SETTLED), 0);
    staged(h, 0);
    hand_wait(h, FOUNDED);
    assert_false(h->in.ballot->have);
    assert_false(node_stage_may_found(h->node));
}

/* Its first host may be silent for a moment only: two foundings would be two
 * chains of one stage. */
static void
who_comes_when_others_have_begun_waits_before_it_founds(void **state)
{
    struct hand *h = *state;
    const char *why;

    h->terms.min_peers = 3;
    says(h, 0, 1, 0, true);
    says(h, 1, 2, 0, true);
    says(h, 2, 0, 0, true);
    leaves(h, 2);
    assert_int_equal(look(h, SETTLED), 0);
    staged(h, 0);
    assert_false(node_stage_may_found(h->node));
    why = node_stage_wait(h->node);
    assert_non_null(why);
    assert_non_null(strstr(why, "before founding it again"));
    hand_wait(h,
              h->in.stages->chosen_ms + h->terms.fork_after_ms - 1 - h->now_ms);
    assert_false(h->in.ballot->have);
    assert_false(node_stage_may_found(h->node));
    hand_wait(h, FOUNDED);
    assert_true(h->in.ballot->have);
}

/* ---- who was left behind ------------------------------------------------ */

/* The view that the disk of the node holds: it is alone in it. */
static struct view_body last_view(const struct hand *h)
{
    const struct hash32 run = {{0}};
    struct view_body v = {
        .run = node_group_of(&run, 0), .epoch = 2, .n_members = 1};

    v.prev.b[0] = 1;
    memcpy(v.members[0].public_key, h->self.public, 32);
    v.members[0].joined = 1;
    return v;
}

/* Whether a node that held that view, and 100 tokens of its stage, waits for
 * puppet 0, who says `b`. */
static bool waits_for(const struct heartbeat *b, bool restored)
{
    static uint8_t bytes[FRAME_CONTROL_MAX];
    struct ballot_record *record = calloc(1, sizeof *record);
    struct hand_options opt = {.node.record = restored ? bytes : NULL};
    struct hand *h = hand_open(0);
    const struct member *p;
    bool waits;
    int n;

    assert_non_null(record);
    record->n_certs = 1;
    record->certs[0].body = last_view(h);
    n = msg_encode(&ballot_record_schema, record, bytes, sizeof bytes);
    assert_true(n > 0);
    opt.node.record_len = (size_t)n;
    hand_close(h);
    h = open_as(&opt);
    h->terms.holds_state = true;
    h->terms.held_tokens = 100;
    hand_set_beat(h, 0, b);
    assert_int_equal(look(h, 300), 0);
    staged(h, 0);
    p = &h->in.members->peers[members_find(h->in.members, &h->puppet[0].id)];
    waits = node_sees_view(h->node);
    assert_int_equal(node_left_behind(h->node, p), !waits);
    assert_int_equal(node_stage_may_begin(h->node), !waits);
    hand_close(h);
    free(record);
    return waits;
}

/* The puppet is in a view that came before the one on our disk. */
static void who_was_left_behind_is_not_waited_for(void **state)
{
    const struct heartbeat behind = {.life = 7,
                                     .has_view = true,
                                     .ready = true,
                                     .stage = 1,
                                     .tokens = 100,
                                     .view.b = {1}};
    struct heartbeat b = behind;
    struct view_body ours = last_view(*state);

    assert_false(waits_for(&b, true));
    b.tokens++; /* it has what our disk has not */
    assert_true(waits_for(&b, true));
    b = behind;
    view_hash(&ours, &b.view); /* our own view: others are still in it */
    assert_true(waits_for(&b, true));
    b.view.b[0] ^= 1; /* some other one */
    assert_true(waits_for(&b, true));
    b = behind;
    b.state = NODE_FINISHED; /* the end is something to go by */
    assert_true(waits_for(&b, true));
    /* Nothing is known of what came before. */
    assert_true(waits_for(&behind, false));
}

int main(void)
{
#define TEST(f)    cmocka_unit_test_setup_teardown(f, setup, teardown)
#define HIGHEST(f) cmocka_unit_test_setup_teardown(f, setup_highest, teardown)
    const struct CMUnitTest tests[] = {
        TEST(the_stage_with_the_fewest_hosts_is_taken),
        TEST(of_equal_ones_the_lower),
        HIGHEST(who_has_a_lower_id_chooses_first),
        TEST(a_stage_that_does_not_fit_is_nobodys_choice),
        TEST(a_stage_that_lost_all_its_hosts_is_left_alone),
        TEST(who_holds_its_state_brings_it_back),
        TEST(a_machine_without_the_memory_takes_another),
        TEST(a_machine_that_fits_none_stops_with_the_reason),
        TEST(a_machine_whose_gpu_is_gone_stops_with_the_reason),
        HIGHEST(the_highest_of_the_fullest_stage_takes_another),
        TEST(only_the_highest_moves),
        HIGHEST(nobody_moves_for_one_host_less),
        TEST(no_stage_is_founded_while_another_lacks_hosts),
        TEST(a_host_that_is_lost_is_none),
        TEST(who_comes_when_others_have_begun_waits_before_it_founds),
        TEST(who_was_left_behind_is_not_waited_for),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
