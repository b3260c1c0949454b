/* pipeline_test.c - one host's core by hand; whole pipelines with deaths are
 * the simulator's (sim/pipeline_*). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "p2p/pipeline/pipeline.h"
#include "proto/base/err.h"
#include "tests/unit/p2p/past.h"

#define ROUND 5

/* Hosts 0 and 2 hold stage 0, host 1 stage 1, the last. */
static const struct pipeline_host hosts[3] = {
    {{{1}}, 0}, {{{2}}, 1}, {{{3}}, 0}};

static struct pipeline_options options(uint32_t self)
{
    return (struct pipeline_options){.self = hosts[self].id,
                                     .seed = 1,
                                     .stages = 2,
                                     .micro_batches = 1,
                                     .steps = 2,
                                     .slots = 2,
                                     .gather_ms = 100,
                                     .resend_ms = 30};
}

struct fixture {
    struct pipeline p;
    struct pipeline_out out;
    struct pipeline_hello hello; /* as others say it */
};

/* A host of these options, which has begun and waits for the others. */
static void begin_with(struct fixture *f, const struct pipeline_options *opt)
{
    memset(f, 0, sizeof *f);
    assert_int_equal(pipeline_init(&f->p, opt), 0);
    assert_int_equal(pipeline_begin(&f->p, ROUND, hosts, 3, 0, &f->out), 0);
    assert_int_equal(f->p.state, PIPELINE_GATHER);
    f->hello = (struct pipeline_hello){.round = ROUND, .attempt = 1, .n = 3};
    memcpy(f->hello.hosts, hosts, sizeof hosts);
}

static void begin(struct fixture *f, uint32_t self)
{
    struct pipeline_options opt = options(self);

    begin_with(f, &opt);
}

static void hear(struct fixture *f, uint32_t from)
{
    f->out.n = 0;
    pipeline_on_hello(&f->p, &hosts[from].id, &f->hello, 1, &f->out);
}

static void
ready(struct fixture *f, uint32_t from, uint32_t step, uint32_t attempt)
{
    f->out.n = 0;
    pipeline_on_ready(&f->p, &hosts[from].id, ROUND, step, attempt, 1, &f->out);
}

static void
take(struct fixture *f, uint32_t from, uint32_t step, uint32_t micro)
{
    f->out.n = 0;
    pipeline_on_take(&f->p, &hosts[from].id, ROUND, step, f->p.attempt, micro,
                     1, &f->out);
}

static void tick(struct fixture *f, uint64_t now_ms)
{
    f->out.n = 0;
    pipeline_tick(&f->p, now_ms, &f->out);
}

static const struct pipeline_action *find(const struct fixture *f,
                                          enum pipeline_action_type type)
{
    for (uint32_t i = 0; i < f->out.n; i++) {
        if (f->out.action[i].type == type) {
            return &f->out.action[i];
        }
    }
    return NULL;
}

/* An action of the last call comes to its end. */
static void done(struct fixture *f, enum pipeline_action_type type)
{
    const struct pipeline_action *a = find(f, type);
    uint64_t tag;
    uint32_t micro;

    assert_non_null(a);
    tag = a->tag;
    micro = a->micro;
    f->out.n = 0;
    pipeline_done(&f->p, type, tag, micro, 1, &f->out);
}

/* Host 0 up to the READY of its only micro-batch. */
static void hold_with(struct fixture *f, const struct pipeline_options *opt)
{
    uint64_t tag;

    begin_with(f, opt);
    hear(f, 1);
    hear(f, 2);
    assert_int_equal(f->p.state, PIPELINE_RUN);
    done(f, PIPELINE_FORWARD);
    assert_null(find(f, PIPELINE_GIVE)); /* before anybody expects it */
    assert_non_null(find(f, PIPELINE_TAKE_BACK));
    take(f, 1, 0, 0);
    assert_int_equal(find(f, PIPELINE_GIVE)->host, 1);
    tag = find(f, PIPELINE_GIVE)->tag;
    f->out.n = 0;
    /* Its gradient may be here before the send is reported. */
    pipeline_done(&f->p, PIPELINE_TAKE_BACK, tag, 0, 1, &f->out);
    assert_int_equal(f->out.n, 0);
    pipeline_done(&f->p, PIPELINE_GIVE, tag, 0, 1, &f->out);
    done(f, PIPELINE_BACKWARD);
    assert_int_equal(f->p.state, PIPELINE_HELD);
    assert_int_equal(find(f, PIPELINE_SAY_READY)->hosts, 6);
}

static void hold(struct fixture *f)
{
    struct pipeline_options opt = options(0);

    hold_with(f, &opt);
}

static void a_step_is_made_when_all_are_ready(void **state)
{
    struct fixture f;

    (void)state;
    hold(&f);
    ready(&f, 1, 0, 1);
    assert_null(find(&f, PIPELINE_STEP));
    ready(&f, 1, 1, 1); /* ahead of the last READY of this step */
    assert_null(find(&f, PIPELINE_STEP));
    ready(&f, 2, 0, 1);
    assert_int_equal(find(&f, PIPELINE_STEP)->count, 1);
    done(&f, PIPELINE_STEP);
    assert_int_equal(f.p.state, PIPELINE_RUN);
    assert_int_equal(f.p.step, 1);
    assert_int_equal(f.p.ready, 2);
}

static void the_last_stage_scores_and_gives_back(void **state)
{
    struct fixture f;

    (void)state;
    begin(&f, 1);
    hear(&f, 0);
    hear(&f, 2);
    assert_int_equal(f.p.n_micro, 2); /* all of both entries */
    done(&f, PIPELINE_TAKE);
    done(&f, PIPELINE_SCORE);
    assert_non_null(find(&f, PIPELINE_GIVE_BACK));
}

static void a_held_sum_waits_for_what_the_others_say(void **state)
{
    struct fixture f;

    (void)state;
    hold(&f);
    pipeline_lost(&f.p, &hosts[2].id, 1, &f.out);
    assert_int_equal(f.p.state, PIPELINE_GATHER);
    assert_null(find(&f, PIPELINE_CLEAR));
    f.hello.attempt = 2;
    f.hello.n = 2;
    f.hello.step = 1; /* host 1 saw all READY */
    hear(&f, 1);
    assert_int_equal(find(&f, PIPELINE_STEP)->count, 1);
    assert_null(find(&f, PIPELINE_CLEAR));

    hold(&f);
    f.out.n = 0;
    pipeline_lost(&f.p, &hosts[2].id, 1, &f.out);
    f.hello.attempt = 2;
    f.hello.n = 2;
    f.hello.step = 0; /* it did not */
    hear(&f, 1);
    assert_null(find(&f, PIPELINE_STEP));
    assert_non_null(find(&f, PIPELINE_CLEAR));
    assert_int_equal(f.p.state, PIPELINE_RUN);
    assert_int_equal(f.p.step, 0);
}

static void a_ready_of_another_attempt_is_nothing(void **state)
{
    struct fixture f;

    (void)state;
    hold(&f);
    ready(&f, 1, 0, 0);
    ready(&f, 2, 0, 2);
    ready(&f, 1, 7, 1);
    assert_int_equal(f.p.ready, 0);
    assert_int_equal(f.out.n, 0);
}

static void who_does_not_speak_is_left_out(void **state)
{
    struct fixture f;

    (void)state;
    begin(&f, 0);
    hear(&f, 1);
    tick(&f, 99);
    assert_int_equal(f.p.layout, 7);
    assert_int_equal(pipeline_deadline(&f.p), 100);
    tick(&f, 100);
    assert_int_equal(f.p.layout, 3);
    assert_int_equal(find(&f, PIPELINE_SAY_HELLO)->gone, 4);
}

static void a_host_that_the_others_left_out_stops(void **state)
{
    struct fixture f;

    (void)state;
    begin(&f, 2);
    f.hello.attempt = 2;
    f.hello.n = 2;
    hear(&f, 0);
    assert_int_equal(f.p.state, PIPELINE_OUT);
    hold(&f);
    f.hello.attempt = 2;
    f.hello.n = 2;
    f.hello.hosts[0] = hosts[1];
    f.hello.hosts[1] = hosts[2];
    hear(&f, 1);
    assert_int_equal(f.p.state, PIPELINE_OUT);
    assert_non_null(find(&f, PIPELINE_CLEAR));
}

static void a_broken_edge_costs_the_higher_id(void **state)
{
    struct fixture f;

    (void)state;
    begin(&f, 0);
    f.out.n = 0;
    pipeline_cut(&f.p, &hosts[2].id, 1, &f.out);
    assert_int_equal(f.p.state, PIPELINE_GATHER);
    assert_int_equal(f.p.layout, 3);
    begin(&f, 2);
    f.out.n = 0;
    pipeline_cut(&f.p, &hosts[0].id, 1, &f.out);
    assert_int_equal(f.p.state, PIPELINE_OUT);
    assert_int_equal(find(&f, PIPELINE_SAY_HELLO)->hosts, 3);
}

static void a_link_that_comes_back_hears_what_it_missed(void **state)
{
    struct fixture f;

    (void)state;
    hold(&f);
    f.out.n = 0;
    pipeline_linked(&f.p, &hosts[1].id, &f.out);
    assert_int_equal(find(&f, PIPELINE_SAY_HELLO)->hosts, 2);
    assert_int_equal(find(&f, PIPELINE_SAY_READY)->hosts, 2);
}

static void activations_leave_when_they_are_expected(void **state)
{
    static struct fixture f;

    (void)state;
    begin(&f, 0);
    take(&f, 1, 0, 0); /* it has heard all HELLOs, we have not */
    assert_int_equal(f.out.n, 0);
    hear(&f, 1);
    hear(&f, 2);
    done(&f, PIPELINE_FORWARD);
    assert_non_null(find(&f, PIPELINE_GIVE));
    take(&f, 1, 0, 0); /* said again */
    assert_int_equal(f.out.n, 0);

    begin(&f, 0);
    hear(&f, 1);
    hear(&f, 2);
    done(&f, PIPELINE_FORWARD);
    take(&f, 2, 0, 0); /* not the host that it goes to */
    assert_null(find(&f, PIPELINE_GIVE));
    take(&f, 1, 0, PIPELINE_MICRO_MAX);
    assert_null(find(&f, PIPELINE_GIVE));
}

/* A host may be a step ahead of the last READY that we wait for. */
static void a_take_of_the_next_step_is_kept(void **state)
{
    static struct fixture f;

    (void)state;
    hold(&f);
    take(&f, 1, 1, 0);
    ready(&f, 1, 0, 1);
    ready(&f, 2, 0, 1);
    done(&f, PIPELINE_STEP);
    done(&f, PIPELINE_FORWARD);
    assert_non_null(find(&f, PIPELINE_GIVE));
}

static void what_is_waited_for_is_said_again(void **state)
{
    static struct fixture f;

    (void)state;
    begin(&f, 0); /* HELLO, to those who did not answer */
    hear(&f, 2);
    assert_int_equal(pipeline_deadline(&f.p), 30);
    tick(&f, 29);
    assert_int_equal(f.out.n, 0);
    tick(&f, 30);
    assert_int_equal(find(&f, PIPELINE_SAY_HELLO)->hosts, 2);
    assert_int_equal(pipeline_deadline(&f.p), 60);

    begin(&f, 1); /* TAKE, while nothing came */
    hear(&f, 0);
    hear(&f, 2);
    assert_int_equal(find(&f, PIPELINE_SAY_TAKE)->micro, 0);
    tick(&f, 31);
    assert_int_equal(f.out.n, 2);
    assert_int_equal(f.out.action[1].type, PIPELINE_SAY_TAKE);
    assert_int_equal(f.out.action[1].micro, 1);
    assert_int_equal(f.out.action[1].hosts, 4);

    hold(&f); /* READY, to those whose own is not here */
    ready(&f, 2, 0, 1);
    tick(&f, 31);
    assert_int_equal(find(&f, PIPELINE_SAY_READY)->hosts, 2);
}

/* Once in `resend_ms`: two that answer each other come to an end. */
static void who_says_a_thing_twice_hears_ours(void **state)
{
    static struct fixture f;

    (void)state;
    hold(&f);
    hear(&f, 1);
    assert_int_equal(find(&f, PIPELINE_SAY_HELLO)->hosts, 2);
    hear(&f, 1);
    assert_int_equal(f.out.n, 0);
    ready(&f, 2, 0, 1);
    ready(&f, 2, 0, 1);
    assert_int_equal(find(&f, PIPELINE_SAY_READY)->hosts, 4);
    ready(&f, 2, 0, 1);
    assert_int_equal(f.out.n, 0);
    ready(&f, 1, 0, 1);
    done(&f, PIPELINE_STEP);
    ready(&f, 1, 0, 1); /* of the step that we have counted */
    assert_int_equal(find(&f, PIPELINE_SAY_READY)->tag, pipeline_tag(1, 0));
}

/* Its HELLO came before ours could be taken: it had not begun. While we wait
 * for a third it must not take us for silent. */
static void who_gathers_answers_one_who_lacks_its_hello(void **state)
{
    static struct fixture f;

    (void)state;
    begin(&f, 0);
    hear(&f, 1);
    assert_int_equal(f.out.n, 0);
    hear(&f, 1);
    assert_int_equal(f.out.n, 1);
    assert_int_equal(find(&f, PIPELINE_SAY_HELLO)->hosts, 2);
    hear(&f, 1);
    assert_int_equal(f.out.n, 0);
    assert_int_equal(f.p.state, PIPELINE_GATHER);
}

/* Host 1 may have counted the step, and be alive: what host 0 enters when it
 * makes the step with host 3 is not what host 1 had. */
static void what_is_in_doubt_is_not_entered_again(void **state)
{
    static const struct pipeline_host other = {{{4}}, 1};
    const struct pipeline_host both[2] = {hosts[0], other};
    static struct fixture f;

    (void)state;
    hold(&f);
    f.out.n = 0;
    pipeline_lost(&f.p, &hosts[1].id, 2, &f.out); /* nobody has the stage now */
    assert_int_equal(f.p.state, PIPELINE_STARVED);
    f.out.n = 0;
    assert_int_equal(pipeline_begin(&f.p, ROUND, both, 2, 3, &f.out), 0);
    f.hello =
        (struct pipeline_hello){.round = ROUND, .attempt = f.p.attempt, .n = 2};
    memcpy(f.hello.hosts, both, sizeof both);
    f.out.n = 0;
    pipeline_on_hello(&f.p, &other.id, &f.hello, 4, &f.out);
    assert_non_null(find(&f, PIPELINE_CLEAR));
    assert_int_equal(find(&f, PIPELINE_FORWARD)->tag >> 32, f.p.attempt);
    assert_int_equal(find(&f, PIPELINE_FORWARD)->draw, ROUTE_TIMES_MAX);
    f.out.n = 0; /* in the next round it begins anew */
    assert_int_equal(pipeline_begin(&f.p, ROUND + 1, both, 2, 5, &f.out), 0);
    f.hello.round = ROUND + 1;
    f.hello.attempt = f.p.attempt;
    pipeline_on_hello(&f.p, &other.id, &f.hello, 6, &f.out);
    assert_int_equal(find(&f, PIPELINE_FORWARD)->draw, 0);
}

/* Nobody had a READY of it: the same again. */
static void what_nobody_can_have_counted_is_entered_again(void **state)
{
    static struct fixture f;

    (void)state;
    begin(&f, 0);
    hear(&f, 1);
    hear(&f, 2);
    assert_int_equal(find(&f, PIPELINE_FORWARD)->draw, 0);
    f.out.n = 0;
    pipeline_lost(&f.p, &hosts[2].id, 2, &f.out);
    f.hello.attempt = f.p.attempt;
    f.hello.n = 2;
    hear(&f, 1);
    assert_int_equal(find(&f, PIPELINE_FORWARD)->draw, 0);
}

/* A process that was restarted does not know what it entered. */
static void a_restarted_process_enters_others_in_its_first_round(void **state)
{
    static struct fixture f;
    struct pipeline_options opt = options(0);

    (void)state;
    memset(&f, 0, sizeof f);
    opt.first_redraw = 77;
    assert_int_equal(pipeline_init(&f.p, &opt), 0);
    for (uint64_t round = ROUND; round < ROUND + 2; round++) {
        f.out.n = 0;
        assert_int_equal(pipeline_begin(&f.p, round, hosts, 2, 0, &f.out), 0);
        f.hello = (struct pipeline_hello){
            .round = round, .attempt = f.p.attempt, .n = 2};
        memcpy(f.hello.hosts, hosts, 2 * sizeof hosts[0]);
        hear(&f, 1);
        assert_int_equal(find(&f, PIPELINE_FORWARD)->draw,
                         round == ROUND ? 77 * ROUTE_TIMES_MAX : 0);
    }
}

/* Hosts 0 and 2 enter four each. What a micro-batch took each host in the
 * round before, which all say, and what comes of it. */
static void deal(struct fixture *f, uint32_t self, const uint32_t cost_ms[3])
{
    struct pipeline_options opt = options(self);

    memset(f, 0, sizeof *f);
    opt.micro_batches = 4;
    assert_int_equal(pipeline_init(&f->p, &opt), 0);
    (void)past_round(&f->p, ROUND - 1, hosts, 3, 0, cost_ms[self]);
    assert_int_equal(pipeline_begin(&f->p, ROUND, hosts, 3, 0, &f->out), 0);
    assert_int_equal(f->p.cost_us[self], 1000 * cost_ms[self]);
    f->hello = (struct pipeline_hello){.round = ROUND, .attempt = 2, .n = 3};
    memcpy(f->hello.hosts, hosts, sizeof hosts);
    for (uint32_t k = 0; k < 3; k++) {
        f->hello.cost_us = 1000 * cost_ms[k];
        hear(f, k);
    }
    assert_int_equal(f->p.state, PIPELINE_RUN);
}

/* Host 2 takes three times as long as host 0: it enters two of eight. All three
 * know the same routes, and each host's draws are its own first ones. */
static void a_slow_host_has_fewer_and_all_know_which(void **state)
{
    static const uint32_t cost_ms[3] = {1000, 500, 3000};
    static struct fixture f[3];
    uint32_t turn[3] = {0};

    (void)state;
    for (uint32_t k = 0; k < 3; k++) {
        deal(&f[k], k, cost_ms);
    }
    assert_int_equal(f[0].p.n_micro, 6);
    assert_int_equal(f[1].p.n_micro, 8);
    assert_int_equal(f[2].p.n_micro, 2);
    for (uint32_t i = 0; i < 8; i++) {
        uint8_t from = f[1].p.micro[i].from;
        const struct pipeline_micro *m = &f[from].p.micro[turn[from]];

        assert_int_equal(f[1].p.micro[i].number, i);
        assert_int_equal(m->number, i);
        assert_int_equal(m->draw, turn[from]);
        assert_int_equal(m->to, 1);
        turn[from]++;
    }
}

/* What is measured varies by itself, and nothing is known of a newcomer. */
static void hosts_that_are_alike_have_as_many(void **state)
{
    static const uint32_t cost_ms[3][3] = {
        {1000, 500, 1240}, {0, 500, 0}, {1000, 500, 0}};
    static struct fixture f;

    (void)state;
    for (uint32_t i = 0; i < 3; i++) {
        deal(&f, 2, cost_ms[i]);
        assert_int_equal(f.p.n_micro, 4);
    }
}

/* One that says it takes nothing gets eight times its part at most, and not
 * everything of what the others have. */
static void a_made_up_cost_does_not_take_everything(void **state)
{
    static const uint32_t cost_ms[3] = {1, 500, 8000};
    static struct fixture f;

    (void)state;
    deal(&f, 2, cost_ms);
    assert_int_equal(f.p.n_micro, 1);
}

/* Rounds say what a micro-batch takes; a round without work leaves nothing. */
static void a_host_measures_what_a_micro_batch_takes(void **state)
{
    static struct fixture f;

    (void)state;
    begin(&f, 0);
    assert_int_equal(past_round(&f.p, ROUND + 1, hosts, 3, 0, 40), 0);
    assert_int_equal(past_round(&f.p, ROUND + 2, hosts, 3, 100, 30), 40000);
    for (uint32_t k = 1; k < 3; k++) {
        pipeline_on_ready(&f.p, &hosts[k].id, ROUND + 2, 0, f.p.attempt, 130,
                          &f.out);
    }
    f.out.n = 0;
    pipeline_done(&f.p, PIPELINE_STEP, 0, 0, 500, &f.out); /* is not counted */
    past_work(&f.p, 0, 500, 10, &f.out);
    assert_int_equal(past_round(&f.p, ROUND + 3, hosts, 3, 600, 0), 35000);
    assert_int_equal(past_round(&f.p, ROUND + 4, hosts, 3, 700, 0), 0);
}

static void a_made_up_attempt_does_not_end_them_all(void **state)
{
    static struct fixture f;

    (void)state;
    begin(&f, 0);
    f.hello.attempt = UINT32_MAX;
    hear(&f, 1);
    assert_int_equal(f.p.attempt, 1);
    f.hello.attempt = 5000; /* a newcomer follows */
    hear(&f, 1);
    assert_int_equal(f.p.attempt, 5000);
}

/* Nor does it take a host that is out away from the rounds that follow. */
static void a_made_up_attempt_of_a_ready_is_not_taken_up(void **state)
{
    static struct fixture f;

    (void)state;
    begin(&f, 0);
    f.out.n = 0;
    pipeline_leave(&f.p, &f.out);
    assert_int_equal(f.p.attempt, 2);
    ready(&f, 1, 0, UINT32_MAX - 1);
    assert_int_equal(f.p.attempt, 2);
    assert_int_equal(f.out.n, 0);
    ready(&f, 1, 0, 1); /* it does not know that we are out */
    assert_int_equal(find(&f, PIPELINE_SAY_HELLO)->hosts, 2);
    assert_int_equal(f.p.attempt, 3);
}

/* Each has told the other: that is all. */
static void two_hosts_that_leave_at_once_fall_silent(void **state)
{
    static struct fixture f;

    (void)state;
    begin(&f, 0);
    pipeline_leave(&f.p, &f.out);
    hear(&f, 1); /* it goes on with us */
    assert_int_equal(find(&f, PIPELINE_SAY_HELLO)->hosts, 2);
    f.hello.attempt = 2;
    f.hello.n = 2; /* without itself */
    f.hello.hosts[1] = hosts[2];
    hear(&f, 1);
    assert_int_equal(f.out.n, 0);
}

static void strangers_and_nonsense_change_nothing(void **state)
{
    static struct fixture f, before;
    struct peer_id stranger = {{99}};

    (void)state;
    begin(&f, 0);
    tick(&f, 1); /* when all of it comes */
    before = f;
    pipeline_on_hello(&f.p, &stranger, &f.hello, 1, &f.out);
    before.hello.round = f.hello.round = ROUND - 1;
    hear(&f, 1);
    pipeline_on_ready(&f.p, &stranger, ROUND, 0, 1, 1, &f.out);
    pipeline_on_take(&f.p, &stranger, ROUND, 0, 1, 0, 1, &f.out);
    pipeline_lost(&f.p, &stranger, 1, &f.out);
    pipeline_cut(&f.p, &stranger, 1, &f.out);
    for (int type = 0; type < PIPELINE_ACTION_COUNT; type++) {
        pipeline_done(&f.p, (enum pipeline_action_type)type, pipeline_tag(7, 7),
                      0, 1, &f.out);
    }
    assert_int_equal(f.out.n, 0);
    assert_memory_equal(&before, &f, sizeof f);
}

#define TYPE(name) (1U << PIPELINE_##name)

/* Nothing but what is of those types can end now. */
static void nothing_else_ends(struct fixture *f, uint32_t types)
{
    static struct pipeline before;

    before = f->p;
    f->out.n = 0;
    for (uint32_t type = 0; type < PIPELINE_ACTION_COUNT; type++) {
        if ((types >> type & 1) == 0) {
            pipeline_done(&f->p, (enum pipeline_action_type)type,
                          pipeline_tag(1, 0), 0, 1, &f->out);
            assert_int_equal(f->out.n, 0);
            assert_memory_equal(&before, &f->p, sizeof before);
        }
    }
}

static void ends(struct fixture *f, enum pipeline_action_type type)
{
    f->out.n = 0;
    pipeline_done(&f->p, type, pipeline_tag(1, 0), 0, 1, &f->out);
}

/* What the shell reports twice, too early or too late. */
static void only_what_is_under_way_comes_to_an_end(void **state)
{
    static struct fixture f;

    (void)state;
    begin(&f, 0); /* the first stage */
    hear(&f, 1);
    hear(&f, 2);
    nothing_else_ends(&f, TYPE(FORWARD) | TYPE(SCORE));
    ends(&f, PIPELINE_FORWARD);
    nothing_else_ends(&f, TYPE(TAKE_BACK)); /* GIVE: nobody said TAKE */
    take(&f, 1, 0, 0);
    nothing_else_ends(&f, TYPE(GIVE) | TYPE(TAKE_BACK));
    ends(&f, PIPELINE_GIVE);
    nothing_else_ends(&f, TYPE(TAKE_BACK));
    ends(&f, PIPELINE_TAKE_BACK);
    nothing_else_ends(&f, TYPE(BACKWARD));
    ends(&f, PIPELINE_BACKWARD);
    assert_int_equal(f.p.state, PIPELINE_HELD);
    nothing_else_ends(&f, 0);

    begin(&f, 1); /* the last one; another micro-batch is still to come */
    hear(&f, 0);
    hear(&f, 2);
    nothing_else_ends(&f, TYPE(TAKE));
    ends(&f, PIPELINE_TAKE);
    nothing_else_ends(&f, TYPE(FORWARD) | TYPE(SCORE));
    ends(&f, PIPELINE_SCORE);
    nothing_else_ends(&f, TYPE(GIVE_BACK));
    ends(&f, PIPELINE_GIVE_BACK);
    assert_int_equal(f.p.n_done, 1);
    nothing_else_ends(&f, 0);
    assert_int_equal(f.p.state, PIPELINE_RUN);
}

static void options_out_of_range_are_refused(void **state)
{
    static struct pipeline p;
    static struct pipeline_out out;
    struct pipeline_options bad = options(0), good = options(0);
    struct pipeline_host list[2] = {hosts[0], hosts[1]};

    (void)state;
    bad.slots = PIPELINE_SLOTS_MAX + 1;
    assert_int_equal(pipeline_init(&p, &bad), LOCO_EINVAL);
    bad = good;
    bad.stages = 0;
    assert_int_equal(pipeline_init(&p, &bad), LOCO_EINVAL);
    assert_int_equal(pipeline_init(&p, &good), 0);
    assert_int_equal(pipeline_begin(&p, 1, list, 2, 0, &out), 0);
    list[1].stage = 2;
    assert_int_equal(pipeline_begin(&p, 1, list, 2, 0, &out), LOCO_EINVAL);
    list[1] = list[0];
    assert_int_equal(pipeline_begin(&p, 1, list, 2, 0, &out), LOCO_EINVAL);
    list[0].id.b[0] = 0; /* we are not among them */
    assert_int_equal(pipeline_begin(&p, 1, list, 1, 0, &out), LOCO_EINVAL);
    assert_int_equal(pipeline_begin(&p, 1, list, 0, 0, &out), LOCO_EINVAL);
}

/* ---- what one host's word can do --------------------------------------- */

/* Hosts 0, 2 and 4 hold stage 0, hosts 1 and 3 stage 1. */
static const struct pipeline_host five[5] = {
    {{{1}}, 0}, {{{2}}, 1}, {{{3}}, 0}, {{{4}}, 1}, {{{5}}, 0}};

static void begin_five(struct fixture *f, uint32_t self)
{
    struct pipeline_options opt = options(0);

    opt.self = five[self].id;
    opt.steps = 20;
    memset(f, 0, sizeof *f);
    assert_int_equal(pipeline_init(&f->p, &opt), 0);
    assert_int_equal(pipeline_begin(&f->p, ROUND, five, 5, 0, &f->out), 0);
    f->hello = (struct pipeline_hello){.round = ROUND, .attempt = 1, .n = 5};
    memcpy(f->hello.hosts, five, sizeof five);
}

static void hear_step(struct fixture *f, uint32_t from, uint32_t step)
{
    f->out.n = 0;
    f->hello.step = step;
    pipeline_on_hello(&f->p, &five[from].id, &f->hello, 1, &f->out);
}

static void one_host_that_names_the_last_step_is_left_out(void **state)
{
    static struct fixture f;

    (void)state;
    for (uint32_t liar = 1; liar < 5; liar++) {
        begin_five(&f, 0);
        for (uint32_t k = 1; k < 5; k++) {
            hear_step(&f, k, k == liar ? 20 : 0);
        }
        assert_int_equal(f.p.step, 0);
        assert_int_equal(f.p.layout, 31 & ~(1U << liar));
        assert_int_equal(f.p.state, PIPELINE_GATHER);
        assert_int_equal(find(&f, PIPELINE_SAY_HELLO)->gone, 1U << liar);
    }
    begin_five(&f, 0); /* the same of the next step: nobody was HELD */
    for (uint32_t k = 1; k < 5; k++) {
        hear_step(&f, k, k == 2);
    }
    assert_int_equal(f.p.step, 0);
    assert_int_equal(f.p.layout, 31 & ~(1U << 2));
}

static void a_step_that_most_hosts_name_is_taken_over(void **state)
{
    static struct fixture f;

    (void)state;
    begin_five(&f, 0);
    hear_step(&f, 1, 7);
    hear_step(&f, 2, 7);
    hear_step(&f, 3, 0);
    assert_int_equal(f.p.state, PIPELINE_GATHER);
    assert_int_equal(f.p.step, 0);
    hear_step(&f, 4, 8); /* it heard that all of step 7 were HELD */
    assert_int_equal(f.p.state, PIPELINE_RUN);
    assert_int_equal(f.p.step, 8);
}

/* Without them there is no way: both hosts of stage 1. */
static void a_step_that_all_of_a_stage_name_is_taken_over(void **state)
{
    static struct fixture f;

    (void)state;
    begin_five(&f, 0);
    hear_step(&f, 1, 7);
    hear_step(&f, 2, 0);
    hear_step(&f, 3, 7);
    hear_step(&f, 4, 0);
    assert_int_equal(f.p.state, PIPELINE_RUN);
    assert_int_equal(f.p.step, 7);
    begin_five(&f, 1); /* and who is alone ahead goes, not they */
    for (uint32_t k = 0; k < 5; k++) {
        hear_step(&f, k, 7);
    }
    assert_int_equal(f.p.state, PIPELINE_RUN);
    f.out.n = 0; /* the same round goes on */
    assert_int_equal(pipeline_begin(&f.p, ROUND, five, 5, 1, &f.out), 0);
    f.hello.attempt = 2;
    for (uint32_t k = 0; k < 5; k++) {
        assert_int_equal(f.p.state, PIPELINE_GATHER);
        hear_step(&f, k, 0);
    }
    assert_int_equal(f.p.state, PIPELINE_OUT);
    begin_five(&f, 0); /* a step that the round does not have */
    hear_step(&f, 1, 21);
    assert_int_equal(f.p.hello, 0);
}

static void who_leaves_most_of_the_others_out_is_left_out(void **state)
{
    static struct fixture f;

    (void)state;
    begin_five(&f, 0);
    f.hello.n = 2; /* 0 and 1 */
    hear_step(&f, 1, 0);
    assert_int_equal(f.p.layout, 31 & ~2);
    begin_five(&f, 0);
    f.hello.n = 1; /* itself */
    f.hello.hosts[0] = five[1];
    hear_step(&f, 1, 0);
    assert_int_equal(f.p.layout, 31 & ~2);
    assert_int_equal(f.p.state, PIPELINE_GATHER);
    begin_five(&f, 0);
    f.hello.n = 3;
    hear_step(&f, 1, 0);
    assert_int_equal(f.p.layout, 7);
}

static void who_begins_attempt_after_attempt_is_left_out(void **state)
{
    static struct fixture f;
    uint32_t n = 0;

    (void)state;
    begin_five(&f, 0);
    while ((f.p.layout & 2) != 0 && n < 1000) {
        f.hello.attempt = f.p.attempt + 1;
        hear_step(&f, 1, 0);
        n++;
    }
    assert_int_equal(n, 2 * 5 + 8 + 1);
    hear_step(&f, 1, 0); /* nobody listens */
    assert_int_equal(f.out.n, 0);
    assert_int_equal(f.p.layout, 31 & ~2);
}

static void attempts_grow_no_faster_than_rounds(void **state)
{
    static struct fixture f;
    uint32_t most = 4096 + 1024 * ROUND;

    (void)state;
    begin_five(&f, 0);
    f.hello.attempt = most + 1;
    hear_step(&f, 1, 0);
    assert_int_equal(f.p.attempt, 1);
    f.hello.attempt = most;
    hear_step(&f, 1, 0);
    assert_int_equal(f.p.attempt, most);
    f.hello.attempt = most + 64; /* a few losses more are always possible */
    hear_step(&f, 1, 0);
    assert_int_equal(f.p.attempt, most + 64);
}

/* It was taken for dead after the last step, and is not: it lacks our READY. */
static void who_is_finished_answers_one_that_was_lost(void **state)
{
    static struct fixture f;
    struct pipeline_options opt = options(0);

    (void)state;
    opt.steps = 1;
    hold_with(&f, &opt);
    ready(&f, 1, 0, 1);
    ready(&f, 2, 0, 1);
    done(&f, PIPELINE_STEP);
    assert_int_equal(f.p.state, PIPELINE_FINISHED);
    pipeline_lost(&f.p, &hosts[2].id, 2, &f.out);
    ready(&f, 2, 0, 1);
    assert_int_equal(find(&f, PIPELINE_SAY_READY)->tag, pipeline_tag(1, 0));
    assert_int_equal(find(&f, PIPELINE_SAY_READY)->hosts, 4);
}

/* Its leaving was lost on the way, and it waits for us: it is told, once in a
 * while. */
static void one_that_was_left_out_hears_so_again(void **state)
{
    static struct fixture f;

    (void)state;
    hold(&f);
    pipeline_lost(&f.p, &hosts[2].id, 1, &f.out);
    ready(&f, 2, 0, 1);
    assert_int_equal(find(&f, PIPELINE_SAY_HELLO)->hosts, 4);
    ready(&f, 2, 0, 1);
    assert_int_equal(f.out.n, 0);
    ready(&f, 2, 0, f.p.attempt); /* it knows this attempt */
    assert_int_equal(f.out.n, 0);
}

/* ---- own work that is lost ---------------------------------------------- */

static void who_lost_its_work_has_all_begin_the_step_again(void **state)
{
    static struct fixture f;
    uint64_t tag;

    (void)state;
    begin(&f, 0);
    f.out.n = 0;
    pipeline_again(&f.p, 1, &f.out); /* nothing is under way */
    assert_int_equal(f.out.n, 0);
    hear(&f, 1);
    hear(&f, 2);
    assert_int_equal(f.p.state, PIPELINE_RUN);
    tag = find(&f, PIPELINE_FORWARD)->tag;
    f.out.n = 0;
    pipeline_again(&f.p, 2, &f.out);
    assert_int_equal(f.p.state, PIPELINE_GATHER);
    assert_int_equal(f.p.attempt, 2);
    assert_int_equal(f.p.layout, 7);
    assert_int_equal(find(&f, PIPELINE_CANCEL)->tag, tag);
    assert_non_null(find(&f, PIPELINE_CLEAR));
    assert_int_equal(find(&f, PIPELINE_SAY_HELLO)->hosts, 6);
    f.hello.attempt = 2;
    hear(&f, 1);
    hear(&f, 2);
    assert_int_equal(f.p.state, PIPELINE_RUN);
    assert_int_equal(find(&f, PIPELINE_FORWARD)->draw, 0); /* the same tokens */

    hold(&f); /* its sum is complete, and may count elsewhere */
    f.out.n = 0;
    pipeline_again(&f.p, 2, &f.out);
    assert_int_equal(f.out.n, 0);
    assert_int_equal(f.p.state, PIPELINE_HELD);
}

/* ---- own work that hangs ------------------------------------------------ */

static void who_hangs_leaves_and_has_more_patience_then(void **state)
{
    static struct fixture f;
    struct pipeline_options opt = options(0);

    (void)state;
    opt.stall_ms = 1000;
    opt.resend_ms = 0;
    begin_with(&f, &opt);
    hear(&f, 1);
    hear(&f, 2);
    assert_non_null(find(&f, PIPELINE_FORWARD)); /* at 1 ms */
    assert_int_equal(pipeline_deadline(&f.p), 1001);
    tick(&f, 1000);
    assert_int_equal(f.p.state, PIPELINE_RUN);
    tick(&f, 1001);
    assert_int_equal(f.p.state, PIPELINE_OUT);
    assert_int_equal(find(&f, PIPELINE_SAY_HELLO)->hosts, 6);
    assert_int_equal(pipeline_deadline(&f.p), UINT64_MAX);

    f.out.n = 0;
    assert_int_equal(pipeline_begin(&f.p, ROUND + 1, hosts, 3, 2000, &f.out),
                     0);
    f.hello.round = ROUND + 1;
    f.hello.attempt = f.p.attempt;
    hear(&f, 1);
    hear(&f, 2);
    assert_int_equal(f.p.work_ms, 1);
    assert_int_equal(pipeline_deadline(&f.p), 2001);
    f.out.n = 0; /* slow, then: what it took once does not hang */
    pipeline_done(&f.p, PIPELINE_FORWARD, pipeline_tag(f.p.attempt, 0), 0, 501,
                  &f.out);
    assert_int_equal(f.p.longest_ms, 500);
    assert_int_equal(pipeline_deadline(&f.p), UINT64_MAX);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_step_is_made_when_all_are_ready),
        cmocka_unit_test(the_last_stage_scores_and_gives_back),
        cmocka_unit_test(a_held_sum_waits_for_what_the_others_say),
        cmocka_unit_test(a_ready_of_another_attempt_is_nothing),
        cmocka_unit_test(who_does_not_speak_is_left_out),
        cmocka_unit_test(a_host_that_the_others_left_out_stops),
        cmocka_unit_test(a_broken_edge_costs_the_higher_id),
        cmocka_unit_test(a_link_that_comes_back_hears_what_it_missed),
        cmocka_unit_test(activations_leave_when_they_are_expected),
        cmocka_unit_test(a_take_of_the_next_step_is_kept),
        cmocka_unit_test(what_is_waited_for_is_said_again),
        cmocka_unit_test(who_says_a_thing_twice_hears_ours),
        cmocka_unit_test(who_gathers_answers_one_who_lacks_its_hello),
        cmocka_unit_test(what_is_in_doubt_is_not_entered_again),
        cmocka_unit_test(what_nobody_can_have_counted_is_entered_again),
        cmocka_unit_test(a_restarted_process_enters_others_in_its_first_round),
        cmocka_unit_test(a_made_up_attempt_does_not_end_them_all),
        cmocka_unit_test(a_made_up_attempt_of_a_ready_is_not_taken_up),
        cmocka_unit_test(two_hosts_that_leave_at_once_fall_silent),
        cmocka_unit_test(strangers_and_nonsense_change_nothing),
        cmocka_unit_test(only_what_is_under_way_comes_to_an_end),
        cmocka_unit_test(one_host_that_names_the_last_step_is_left_out),
        cmocka_unit_test(a_step_that_most_hosts_name_is_taken_over),
        cmocka_unit_test(a_step_that_all_of_a_stage_name_is_taken_over),
        cmocka_unit_test(who_leaves_most_of_the_others_out_is_left_out),
        cmocka_unit_test(who_begins_attempt_after_attempt_is_left_out),
        cmocka_unit_test(attempts_grow_no_faster_than_rounds),
        cmocka_unit_test(who_is_finished_answers_one_that_was_lost),
        cmocka_unit_test(one_that_was_left_out_hears_so_again),
        cmocka_unit_test(who_lost_its_work_has_all_begin_the_step_again),
        cmocka_unit_test(who_hangs_leaves_and_has_more_patience_then),
        cmocka_unit_test(a_slow_host_has_fewer_and_all_know_which),
        cmocka_unit_test(hosts_that_are_alike_have_as_many),
        cmocka_unit_test(a_made_up_cost_does_not_take_everything),
        cmocka_unit_test(a_host_measures_what_a_micro_batch_takes),
        cmocka_unit_test(options_out_of_range_are_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
