/* work_test.c - audits of work: who is drawn, what is asked for, whose turn it
 * is to make a lease again, and who is named silent. No bytes move here. */
#include "p2p/round/work.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "p2p/round/lease.h"
#include "proto/base/err.h"
#include "proto/blocks.h"
#include "proto/sign.h"
#include "tests/unit/p2p/linked.h"

#define WAIT_MS  6400
#define BLOCK    64U
#define ELEMENTS 100000U /* of a contribution: two parts of moments */
#define PARTS    2U
#define MEMBERS  5U
#define SELF     1U /* our place */
#define STEPS    8U

struct fixture {
    struct members m;
    struct work w;
    struct out out;
    struct identity self, peer[MEMBERS];
    struct work_commit c; /* the next one */
    uint64_t now_ms;
    struct segment asked[WORK_WINDOW]; /* posted, not arrived */
    uint32_t n_asked, n_cancels, n_stops;
    uint32_t n_jobs;
    struct job_repeat job;
};

static void collect(struct fixture *f)
{
    for (uint32_t i = 0; i < f->out.n; i++) {
        const struct action *a = &f->out.action[i];

        if (a->type == ACTION_POST_RECV) {
            assert_true(f->n_asked < WORK_WINDOW);
            f->asked[f->n_asked++] = a->segment;
        } else if (a->type == ACTION_CANCEL) {
            f->n_cancels++;
            f->n_asked = 0;
        } else if (a->type == ACTION_JOB && a->job.type == JOB_REPEAT) {
            f->n_stops += a->job.repeat.stop;
            f->n_jobs += !a->job.repeat.stop;
            f->job = a->job.repeat.stop ? f->job : a->job.repeat;
        }
    }
    f->out.n = f->out.n_bytes = 0;
}

/* The lease whose pieces come, else the first one that is looked into. */
static struct work_task *busy(struct fixture *f)
{
    uint32_t k = f->w.active < WORK_ROOMS ? f->w.active : 0;

    for (; f->w.active == WORK_ROOMS && k + 1 < WORK_ROOMS; k++) {
        if (f->w.task[k].phase != WORK_IDLE) {
            break;
        }
    }
    return &f->w.task[k];
}

static struct hash32 name(uint32_t what, uint64_t round, uint32_t who)
{
    return (struct hash32){
        .b = {(uint8_t)(1 + what), (uint8_t)round, (uint8_t)(1 + who)}};
}

/* A lease of that one begins with no moments at all. */
static void begin_anew(struct fixture *f, uint32_t who)
{
    f->c.maker[who].moment_steps = 0;
    blocks_offer(&f->c.what.member[who], 0, &f->c.zeros,
                 &f->c.maker[who].moments);
}

/* All work, and all can be made again. */
static void lay_commit(struct fixture *f, uint64_t round)
{
    struct work_commit *c = &f->c;

    memset(c, 0, sizeof *c);
    c->what.round = round;
    c->what.hash = name(0, round, 0);
    c->before = name(0, round - 1, 0);
    c->zeros = name(7, 0, 0);
    c->what.n = MEMBERS;
    c->what.full = c->what.lease = (1U << MEMBERS) - 1;
    c->base = name(1, round, 0);
    c->elements = ELEMENTS;
    c->block = BLOCK;
    for (uint32_t i = 0; i < MEMBERS; i++) {
        c->what.member[i] = i == SELF ? f->self.id : f->peer[i].id;
        c->maker[i] = (struct work_maker){
            .works = true,
            .owes = true,
            .offer = name(2, round, i),
            .moments = name(3, round, i),
            .ends = name(3, round + 1, i),
            .moment_steps = STEPS * (round - 1),
            .steps = STEPS,
            .lease = {.n_ranges = 1, .ranges = {{100 * round + i, STEPS}}}};
        if (round == 1) {
            begin_anew(f, i);
        }
    }
}

/* By a number that draws nobody. */
static void commit(struct fixture *f)
{
    uint64_t secret = 1;
    uint32_t whom;

    while (repeat_draw(&f->w.commit[0].what, SELF, secret, &whom)) {
        secret++;
    }
    work_follow(&f->w, &f->c);
    work_commit(&f->w, &f->c, secret, &f->out);
    collect(f);
    lay_commit(f, f->c.what.round + 1);
}

/* We have no part in it, and have its record. */
static void commit_without_us(struct fixture *f)
{
    work_follow(&f->w, &f->c);
    lay_commit(f, f->c.what.round + 1);
}

/* One that draws that member, of the commit before. */
static void commit_drawing(struct fixture *f, uint32_t whom)
{
    uint32_t got = MEMBERS;

    for (uint64_t secret = 1;; secret++) {
        if (repeat_draw(&f->w.commit[0].what, SELF, secret, &got) &&
            got == whom) {
            work_follow(&f->w, &f->c);
            work_commit(&f->w, &f->c, secret, &f->out);
            break;
        }
    }
    collect(f);
    lay_commit(f, f->c.what.round + 1);
}

static void tick(struct fixture *f, uint64_t after_ms)
{
    f->now_ms += after_ms;
    work_tick(&f->w, f->now_ms, &f->out);
    collect(f);
}

static void arrive(struct fixture *f, uint32_t k, int rc)
{
    struct event_seg_done done = {.segment = f->asked[k], .rc = rc};

    memmove(f->asked + k, f->asked + k + 1,
            (--f->n_asked - k) * sizeof f->asked[0]);
    work_seg_done(&f->w, &done, &f->out);
    collect(f);
}

/* All pieces come; how many that were. */
static uint32_t all_arrive(struct fixture *f)
{
    uint32_t n = 0;

    for (tick(f, 1); f->n_asked > 0; tick(f, 1)) {
        arrive(f, 0, 0);
        n++;
    }
    assert_int_equal(busy(f)->phase, WORK_WAITING);
    return n;
}

static bool begin_in(struct fixture *f, uint64_t round)
{
    bool begun = work_begin_repeat(&f->w, round, &f->out);

    collect(f);
    return begun;
}

static uint32_t n_tasks(const struct fixture *f, bool is_case)
{
    uint32_t n = 0;

    for (uint32_t k = 0; k < WORK_ROOMS; k++) {
        n += f->w.task[k].phase != WORK_IDLE && f->w.task[k].is_case == is_case;
    }
    return n;
}

static bool answered(struct fixture *f, int rc, uint8_t verdict)
{
    const struct local_event e = {.type = LOCAL_REPEATED,
                                  .rc = rc,
                                  .repeated = {.round = f->job.round,
                                               .maker = f->job.maker,
                                               .verdict = verdict}};
    bool ours = work_repeated(&f->w, &e, &f->out);

    collect(f);
    return ours;
}

static bool repeated(struct fixture *f, uint8_t verdict)
{
    return answered(f, 0, verdict);
}

/* That member accuses that one, for that commit. */
static enum repeat_end
hears(struct fixture *f, uint32_t speaker, uint32_t accused, uint64_t round)
{
    const struct verdict_body v = {.round = round,
                                   .commit = name(0, round, 0),
                                   .accused = f->peer[accused].id,
                                   .verdict = REPEAT_BAD};

    return work_on_verdict(&f->w, &f->peer[speaker].id, &v);
}

static bool is_silent(struct fixture *f, uint32_t who)
{
    struct peer_id id;

    return work_take_silent(&f->w, &id) && id_eq(&id, &f->peer[who].id);
}

static int open_fixture(void **state)
{
    struct members_options opt = {.seed = 1};
    struct fixture *f = calloc(1, sizeof *f + members_bytes(&opt));

    assert_non_null(f);
    linked_open(&f->m, f + 1, &f->self, f->peer, MEMBERS, &f->out);
    work_init(&f->w, &f->m, &f->self.id, WAIT_MS, 7ULL << 20);
    f->out.n = f->out.n_bytes = 0;
    lay_commit(f, 1);
    *state = f;
    return 0;
}

static int close_fixture(void **state)
{
    free(*state);
    return 0;
}

/* ---- draws --------------------------------------------------------------- */

/* Who made the newest commit late may not have it yet. */
static void nobody_is_asked_before_the_next_commit(void **state)
{
    struct fixture *f = *state;

    commit(f);
    tick(f, 10);
    assert_int_equal(f->n_asked, 0);
    commit_drawing(f, 3);
    tick(f, 10);
    assert_int_equal(f->n_asked, WORK_WINDOW);
    assert_int_equal(busy(f)->about.what.round, 1);
    assert_true(id_eq(&f->asked[0].peer, &f->peer[3].id));
    assert_int_equal(f->asked[0].index, 1);
    assert_int_equal(f->asked[0].name, hash32_u64(&busy(f)->about.base));
    /* First what is read beside the result, which is not kept for long. */
    assert_true(hash32_eq(&f->asked[0].offer, &f->w.commit[1].maker[3].offer));
    for (uint32_t i = 0; i < WORK_DRAWS; i++) {
        assert_int_equal(f->asked[0].buffer, BUFFER_OFFER);
        arrive(f, 0, 0);
        tick(f, 1);
    }
    assert_true(
        hash32_eq(&f->asked[0].offer, &f->w.commit[1].maker[3].moments));
    for (uint32_t i = 0; i < PARTS; i++) {
        assert_int_equal(f->asked[0].index, 1);
        arrive(f, 0, 0);
        tick(f, 1);
    }
    assert_int_equal(f->asked[0].index, 2); /* then those that it ended with */
    assert_true(hash32_eq(&f->asked[0].offer, &f->w.commit[1].maker[3].ends));
    assert_int_equal(all_arrive(f), WORK_DRAWS);
    assert_true(begin_in(f, 3));
    assert_int_equal(f->job.round, 1);
    assert_int_equal(f->job.base, hash32_u64(&busy(f)->about.base));
    assert_int_equal(f->job.moment_steps, 0);
}

static void a_missing_commit_breaks_the_chain(void **state)
{
    struct fixture *f = *state;

    commit(f);
    lay_commit(f, 3); /* nobody told us of the second one */
    for (uint64_t secret = 1; secret < 400; secret++) {
        f->c.maker[3].moment_steps += secret;
        work_follow(&f->w, &f->c);
        work_commit(&f->w, &f->c, secret, &f->out);
        assert_int_equal(f->w.drawn[1], 0);
        lay_commit(f, f->c.what.round + 2);
    }
    assert_int_equal(f->w.n_silent, 0);
}

/* Or it would choose moments once a seat. It may have been out of the view. */
static void who_joins_again_goes_on_with_its_moments(void **state)
{
    struct fixture *f = *state;

    commit(f);
    f->c.what.member[3] = f->self.id;
    f->c.what.member[3].b[0] ^= 1; /* another one in its place */
    commit(f);
    f->c.maker[3].moment_steps = 77; /* from an old checkpoint */
    commit(f);
    assert_false(f->w.commit[0].what.lease >> 3 & 1);
    assert_int_equal(f->w.n_silent, 0); /* excused */
    f->c.what.member[3].b[0] ^= 1;
    commit(f);
    f->c.maker[3].moment_steps = 78; /* and again */
    commit(f);
    assert_false(f->w.commit[0].what.lease >> 3 & 1);
    assert_true(is_silent(f, 3));
}

static void spoil(struct fixture *f, uint32_t who)
{
    f->c.what.lease &= ~(1ULL << who);
}

/* A lease of member 3 that begins with these moments, after so many steps.
 * Whether it goes on; no member is asked twice within WORK_EXCUSE rounds. */
static bool
begins_with(struct fixture *f, struct hash32 moments, uint64_t steps)
{
    f->c.maker[3].moments = moments;
    f->c.maker[3].moment_steps = steps;
    commit(f);
    return f->w.commit[0].what.lease >> 3 & 1;
}

static void miss(struct fixture *f, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        f->c.maker[3].works = f->c.maker[3].owes = false;
        f->c.what.lease &= ~(1ULL << 3);
        commit(f);
    }
}

/* Whoever misses every second commit, or more, is held to its moments. */
static void moments_go_on_over_any_gap(void **state)
{
    struct fixture *f = *state;

    commit(f);
    miss(f, 1);
    assert_true(begins_with(f, name(3, 2, 3), STEPS)); /* round 3 */
    miss(f, 12);
    assert_true(begins_with(f, name(3, 4, 3), 2 * STEPS)); /* 16 */
    miss(f, 1);
    assert_false(begins_with(f, name(3, 4, 3), 3 * STEPS)); /* 18, excused */
    assert_int_equal(f->w.n_silent, 0);
    miss(f, 3);
    assert_false(begins_with(f, name(3, 18, 3), 4 * STEPS)); /* 22 */
    assert_true(is_silent(f, 3));
    miss(f, 1);
    assert_false(begins_with(f, name(3, 23, 3), 4 * STEPS)); /* 24: steps */
    assert_true(is_silent(f, 3));
    miss(f, 5);
    assert_true(begins_with(f, name(3, 25, 3), 5 * STEPS)); /* 30 */
}

/* Or whoever says that it begins anew would choose what it begins with. */
static void moments_of_no_step_are_nothing(void **state)
{
    struct fixture *f = *state;

    assert_false(begins_with(f, name(9, 9, 9), 0)); /* its first lease */
    assert_int_equal(f->w.n_silent, 0);             /* excused */
    assert_false(begins_with(f, name(9, 9, 9), 0));
    assert_true(is_silent(f, 3));
    begin_anew(f, 2); /* of somebody else */
    assert_false(begins_with(f, f->c.maker[2].moments, 0));
    assert_true(is_silent(f, 3));
}

/* Young moments are wild, so whoever has old ones may not choose them often. It
 * is audited all the same. */
static void who_begins_anew_needs_an_excuse(void **state)
{
    struct fixture *f = *state;

    commit(f);
    begin_anew(f, 3);
    assert_true(begins_with(f, f->c.maker[3].moments, 0));
    assert_int_equal(f->w.n_silent, 0);
    begin_anew(f, 3); /* as that lease began */
    assert_true(begins_with(f, f->c.maker[3].moments, 0));
    assert_int_equal(f->w.n_silent, 0);
    begin_anew(f, 3);
    assert_true(begins_with(f, f->c.maker[3].moments, 0));
    assert_true(is_silent(f, 3));
    assert_true(begins_with(f, name(3, 5, 3), STEPS)); /* and goes on */
    for (uint32_t i = 0; i < 2; i++) { /* as the method does it */
        f->c.anew = true;
        begin_anew(f, 3);
        assert_true(begins_with(f, f->c.maker[3].moments, 0));
    }
    assert_int_equal(f->w.n_silent, 0);
}

/* Two coordinators that lie leave each half of the members out once. */
static void chains_are_followed_without_us(void **state)
{
    struct fixture *f = *state;

    commit(f);
    commit_without_us(f);
    assert_false(begins_with(f, name(9, 9, 9), 2 * STEPS)); /* excused */
    commit_without_us(f);
    assert_int_equal(f->w.n_silent, 0);
    f->c.maker[3].moments = name(9, 9, 9);
    commit_without_us(f);
    assert_true(is_silent(f, 3)); /* by all, in the plan or not */
    assert_true(begins_with(f, name(3, 6, 3), 5 * STEPS));
    assert_int_equal(f->w.n_silent, 0);
}

/* All begin with other moments then. */
static void a_state_that_is_taken_back_ends_all_chains(void **state)
{
    struct fixture *f = *state;

    commit(f);
    commit(f);
    f->c.takes_back = true;
    commit_without_us(f);
    assert_true(begins_with(f, name(9, 9, 9), 77));
    assert_int_equal(f->w.n_silent, 0);
    assert_false(begins_with(f, name(9, 9, 8), 77));
}

/* It slept while its work was taken, and does not know that it was. */
static void who_does_not_know_of_its_last_lease_begins_as_that_did(void **state)
{
    struct fixture *f = *state;

    commit(f);
    assert_true(begins_with(f, name(3, 2, 3), STEPS));
    miss(f, 2);
    assert_true(begins_with(f, name(3, 2, 3), STEPS)); /* once more */
    assert_false(begins_with(f, name(3, 2, 3), 2 * STEPS));
    assert_int_equal(f->w.n_silent, 0);
}

/* A lost GPU named no moments, and its optimizer begins anew. */
static void what_was_lost_is_begun_anew(void **state)
{
    struct fixture *f = *state;
    const struct hash32 none = {{0}};

    commit(f);
    commit(f);
    f->c.maker[3].ends = none;
    spoil(f, 3);
    commit(f);
    assert_int_equal(f->w.n_silent, 0); /* excused */
    begin_anew(f, 3);
    assert_true(begins_with(f, f->c.maker[3].moments, 0));
    assert_int_equal(f->w.n_silent, 0);
}

/* Who chose its moments once, and says in each round that it slept. */
static void who_sleeps_each_time_needs_an_excuse(void **state)
{
    struct fixture *f = *state;

    commit(f);
    assert_true(begins_with(f, name(3, 2, 3), STEPS));
    assert_true(begins_with(f, name(3, 2, 3), STEPS));
    assert_false(begins_with(f, name(3, 2, 3), STEPS));
    assert_int_equal(f->w.n_silent, 0); /* excused */
    miss(f, 2);
    assert_false(begins_with(f, name(3, 2, 3), STEPS)); /* over a gap, too */
    assert_true(is_silent(f, 3));
    assert_true(begins_with(f, name(3, 8, 3), 2 * STEPS)); /* and goes on */
    assert_true(begins_with(f, name(3, 8, 3), 2 * STEPS)); /* sleeps once */
    assert_int_equal(f->w.n_silent, 0);
}

/* The plan's members are in each part of it. */
static void a_commit_that_inherits_is_part_of_the_chain(void **state)
{
    struct fixture *f = *state;

    commit(f);
    f->c.inherits = true;
    commit(f);
    assert_int_equal(f->w.commit[0].what.lease, 0);
    assert_true(begins_with(f, name(3, 3, 3), 2 * STEPS));
    f->c.inherits = true;
    assert_false(begins_with(f, name(3, 9, 3), 3 * STEPS));
    commit(f);
    assert_int_equal(f->w.n_silent, 0); /* excused */
    f->c.inherits = true;
    assert_false(begins_with(f, name(3, 9, 3), 5 * STEPS));
    assert_true(is_silent(f, 3));
}

/* ---- silence ------------------------------------------------------------- */

static void who_works_of_no_lease_is_silent_but_once(void **state)
{
    struct fixture *f = *state;

    spoil(f, 2);
    commit(f); /* its first lease; excused */
    assert_int_equal(f->w.n_silent, 0);
    for (uint32_t i = 1; i < WORK_EXCUSE; i++) {
        spoil(f, 2);
        commit(f);
        assert_true(is_silent(f, 2));
        assert_int_equal(f->w.n_silent, 0);
    }
    spoil(f, 2);
    commit(f);
    assert_int_equal(f->w.n_silent, 0); /* once in so many rounds */
    spoil(f, 2);
    f->c.maker[2].owes = false; /* the ledger is not known here */
    commit(f);
    spoil(f, 2);
    f->c.maker[2].works = f->c.maker[2].owes = false;
    commit(f);
    assert_int_equal(f->w.n_silent, 0);
    spoil(f, 2); /* a round without it is no excuse */
    commit(f);
    assert_true(is_silent(f, 2));
}

/* Of five, three whose moments do not go on; two are too few for that. */
static void what_befalls_most_is_nobodys_fault(void **state)
{
    struct fixture *f = *state;

    commit(f);
    for (uint32_t i = 0; i < 6; i++) {
        for (uint32_t who = 2; who < MEMBERS; who++) {
            f->c.maker[who].moment_steps += 1 + i;
        }
        commit(f);
        assert_int_equal(f->w.n_silent, 0);
    }
    for (uint32_t i = 0; i < 2; i++) {
        f->c.maker[3].moment_steps += 50 + 10 * i;
        f->c.maker[4].moment_steps += 50 + 10 * i;
        f->c.maker[2].moment_steps += 6; /* goes on */
        commit(f);
        assert_int_equal(f->w.n_silent, i == 0 ? 0 : 2);
    }
}

/* A plan's part of member 2, that says: there is no text for me here. */
static struct plan_member textless(uint64_t lease, uint64_t steps)
{
    return (struct plan_member){
        .index = 2,
        .tokens = 64 * steps,
        .last_step = steps,
        .lease = lease,
        .text = {1, 1},
        .n_moments = 1,
        .moments = {{.root = name(3, 9, 2), .ends = name(3, 10, 2)}}};
}

/* The ledger takes its lease from it, but whoever works owes one. */
static void who_says_that_it_has_no_text_owes_a_lease(void **state)
{
    struct view_body v = {.n_members = MEMBERS};
    const uint64_t holders[MEMBERS] = {11, 12, 13, 14, 15};
    struct text_span texts[MEMBERS] = {{0}};
    const struct lease_commit settle = {
        .quota = 2 * STEPS, .view = &v, .holders = holders, .texts = texts};
    struct ledger ledger = {0};
    struct work_maker m = {0};
    struct plan_member p;
    struct lease lease;

    (void)state;
    lease_settle(&ledger, &settle);
    assert_true(lease_of(&ledger, 2 * STEPS, &v, 2, 13, false, &lease));
    p = textless(1 + lease.ranges[0].first, STEPS);
    assert_true(work_describe(&m, &p, &lease, STEPS)); /* it had one */
    texts[2] = p.text;
    lease_settle(&ledger, &settle);
    assert_false(lease_of(&ledger, 2 * STEPS, &v, 2, 13, false, &lease));
    assert_false(work_describe(&m, &p, &lease, STEPS));
    assert_true(m.works && m.owes);
    p = textless(0, STEPS);
    assert_false(work_describe(&m, &p, &lease, STEPS));
    assert_true(m.owes);
    assert_false(work_describe(&m, &p, NULL, STEPS)); /* who knows? */
    assert_false(m.owes);
    p.tokens = 0;
    assert_false(work_describe(&m, &p, &lease, STEPS));
    assert_false(m.owes); /* it says so, and makes no step */
}

/* A short lease allows as many steps, and no more. */
static void who_works_beyond_a_short_lease_owes_one(void **state)
{
    const struct lease lease = {.n_ranges = 1, .ranges = {{40, 3}}};
    struct plan_member p = textless(41, 3);
    struct work_maker m = {0};

    (void)state;
    assert_true(work_describe(&m, &p, &lease, STEPS));
    p = textless(41, 4);
    assert_false(work_describe(&m, &p, &lease, STEPS));
    assert_true(m.owes);
    p = textless(41, STEPS + 1); /* more than the longest round */
    assert_false(work_describe(&m, &p, &lease, STEPS));
    assert_true(m.owes);
}

static void an_optimizer_makes_as_many_steps_as_its_lease(void **state)
{
    struct fixture *f = *state;

    commit(f);
    f->c.maker[2].moment_steps++;
    commit(f);
    assert_int_equal(f->w.commit[0].what.lease & 4, 0);
    assert_int_equal(f->w.n_silent, 0); /* excused */
    f->c.maker[2].moment_steps += 2;
    commit(f);
    assert_true(is_silent(f, 2));
    f->c.maker[2].moment_steps += 2;
    commit(f);
    assert_int_equal(f->w.n_silent, 0);
    assert_int_not_equal(f->w.commit[0].what.lease & 4, 0);
}

/* ---- pieces -------------------------------------------------------------- */

static void what_is_refused_is_asked_for_from_there_on(void **state)
{
    struct fixture *f = *state;
    struct fetch_no no;
    uint32_t n = 0;

    commit(f);
    commit_drawing(f, 3);
    tick(f, 10);
    for (; n < PARTS + 3; n++) { /* in order */
        arrive(f, 0, 0);
        tick(f, 1);
    }
    assert_int_equal(f->asked[0].seg, PARTS + 3);
    no = (struct fetch_no){.attempt = f->w.attempt, .seg = f->asked[2].seg};
    work_refused(&f->w, members_find(&f->m, &f->peer[3].id), &no, &f->out);
    collect(f);
    assert_int_equal(f->n_cancels, 1);
    tick(f, 1);
    assert_int_equal(f->n_asked, 0); /* later */
    tick(f, WAIT_MS);
    assert_int_equal(f->asked[0].seg, PARTS + 3); /* not from the first piece */
    assert_int_equal(all_arrive(f), PARTS + 2 * WORK_DRAWS - n);
}

/* It is in use by a repeat that was stopped: the maker serves, and asks for
 * nothing in return. */
static void a_room_in_use_here_is_not_the_makers_fault(void **state)
{
    struct fixture *f = *state;
    uint32_t n = 0;

    commit(f);
    commit_drawing(f, 3);
    for (tick(f, 10); n < 12; n++) { /* more often than it may refuse */
        assert_int_equal(f->asked[0].seg, 0);
        arrive(f, 0, LOCO_EBUSY);
        tick(f, 1);
        assert_int_equal(f->n_asked, 0); /* later */
        tick(f, WAIT_MS / 64);
    }
    assert_int_equal(all_arrive(f), PARTS + 2 * WORK_DRAWS);
    commit_drawing(f, 4);
    assert_true(begin_in(f, 3));
    assert_true(repeated(f, REPEAT_GOOD));
    for (tick(f, 10); busy(f)->phase == WORK_FETCHING; tick(f, WAIT_MS / 64)) {
        arrive(f, 0, LOCO_EBUSY);
        n++;
        tick(f, 1);
    }
    assert_in_range(n, 12 + 64, 12 + 66); /* not for ever */
    assert_int_equal(f->w.n_unserved, 0);
    assert_int_equal(f->w.n_silent, 0);
}

static void who_does_not_serve_is_silent(void **state)
{
    struct fixture *f = *state;

    commit(f);
    commit_drawing(f, 3);
    tick(f, 10);
    tick(f, WAIT_MS);
    assert_int_equal(busy(f)->phase, WORK_IDLE);
    assert_int_equal(f->w.n_unserved, 1);
    assert_int_equal(f->n_stops, 1);
    assert_true(is_silent(f, 3));
}

static void without_the_state_nothing_more_is_fetched(void **state)
{
    struct fixture *f = *state;

    commit(f);
    commit_drawing(f, 3);
    tick(f, 10);
    arrive(f, 0, LOCO_ENOENT);
    assert_int_equal(busy(f)->phase, WORK_IDLE);
    assert_int_equal(f->n_asked, 0);
    assert_int_equal(f->w.n_silent, 0); /* it is not to blame */
    assert_int_equal(f->w.n_words, 0);
}

static void what_an_audit_asks_for_is_what_is_served(void **state)
{
    struct fixture *f = *state;
    uint64_t bytes = 0;

    commit(f);
    commit_drawing(f, 3);
    for (tick(f, 1); f->n_asked > 0; tick(f, 1)) {
        const struct segment *s = &f->asked[0];
        bool sent = s->buffer == BUFFER_OFFER;

        bytes += work_piece_bytes(sent ? ELEMENTS : 2 * ELEMENTS, BLOCK,
                                  sent ? 4 : 2, s->offset, s->len);
        arrive(f, 0, 0);
    }
    assert_true(bytes > 2 * 2 * ELEMENTS + 32 * 32);
    assert_true(bytes <= work_lease_bytes(ELEMENTS, BLOCK));
    assert_true(work_lease_bytes(ELEMENTS, BLOCK) < bytes * 11 / 10);
}

/* ---- cases --------------------------------------------------------------- */

static void in_a_case_each_waits_for_its_turn(void **state)
{
    struct fixture *f = *state;

    commit(f);
    commit(f);
    assert_int_equal(hears(f, 0, 3, 1), REPEAT_NEW);
    (void)all_arrive(f);
    assert_true(busy(f)->is_case);
    for (uint64_t round = 3; round < 3 + 2 * MEMBERS; round++) {
        if (round % MEMBERS != SELF) {
            assert_false(begin_in(f, round));
        }
    }
    assert_int_equal(f->n_jobs, 0);
    assert_true(begin_in(f, MEMBERS + SELF));
    assert_int_equal(f->n_jobs, 1);
    assert_true(begin_in(f, MEMBERS + SELF + 1)); /* while it lasts */
}

static void a_case_about_the_newest_commit_waits_for_the_next(void **state)
{
    struct fixture *f = *state;

    commit(f);
    assert_int_equal(hears(f, 0, 3, 1), REPEAT_NEW);
    tick(f, 10);
    assert_int_equal(f->n_asked, 0);
    commit(f);
    tick(f, 10);
    assert_int_equal(f->n_asked, WORK_WINDOW);
}

static void a_case_comes_before_a_draw(void **state)
{
    struct fixture *f = *state;

    commit(f);
    commit_drawing(f, 2);
    tick(f, 10);
    assert_true(id_eq(&f->asked[0].peer, &f->peer[2].id));
    assert_int_equal(hears(f, 0, 3, 1), REPEAT_NEW);
    tick(f, 10);
    assert_true(busy(f)->is_case);
    assert_int_equal(f->n_cancels, 1);
    assert_true(id_eq(&f->asked[0].peer, &f->peer[3].id));
}

/* A friend of the maker sees the FETCH: the case comes first, and no more. */
static void an_accusation_ends_no_audit(void **state)
{
    struct fixture *f = *state;

    commit(f);
    commit_drawing(f, 2);
    tick(f, 10);
    arrive(f, 0, 0);
    assert_int_equal(hears(f, 0, 3, 1), REPEAT_NEW);
    tick(f, 10);
    assert_true(id_eq(&f->asked[0].peer, &f->peer[3].id));
    /* What is here of the other one stays. */
    assert_int_equal(all_arrive(f), 2 * (PARTS + 2 * WORK_DRAWS) - 1);
    assert_true(begin_in(f, SELF + MEMBERS + 1)); /* not our turn in a case */
    assert_true(id_eq(&f->job.maker, &f->peer[2].id));
    assert_true(repeated(f, REPEAT_GOOD));
    assert_true(begin_in(f, SELF + 2 * MEMBERS));
    assert_true(id_eq(&f->job.maker, &f->peer[3].id));
}

/* What is here is made again, though nobody serves it any more. */
static void who_waits_for_its_turn_says_nothing_before(void **state)
{
    struct fixture *f = *state;

    commit(f);
    commit(f);
    assert_int_equal(hears(f, 0, 3, 1), REPEAT_NEW);
    (void)all_arrive(f);
    for (uint32_t i = 0; i < WORK_COMMITS + 2; i++) {
        commit(f);
        tick(f, 10);
    }
    assert_int_equal(f->w.n_words, 0);
    assert_true(begin_in(f, SELF + 2 * MEMBERS));
}

static void two_cases_have_a_room_each(void **state)
{
    struct fixture *f = *state;
    struct work_word word;

    commit(f);
    commit(f);
    assert_int_equal(hears(f, 0, 3, 1), REPEAT_NEW);
    assert_int_equal(hears(f, 2, 4, 1), REPEAT_NEW);
    assert_int_equal(all_arrive(f), 2 * (PARTS + 2 * WORK_DRAWS));
    assert_int_equal(f->w.n_words, 0); /* nothing is said without looking */
    for (uint64_t turn = 1; turn < 3; turn++) {
        assert_true(begin_in(f, SELF + turn * MEMBERS));
        assert_true(begin_in(f, SELF + turn * MEMBERS)); /* while it lasts */
        assert_int_equal(f->n_jobs, turn);
        /* All begin with the same one, so that it ends soon. */
        assert_true(id_eq(&f->job.maker, &f->peer[2 + turn].id));
        assert_true(repeated(f, REPEAT_BAD));
        assert_true(work_take_word(&f->w, &word));
        assert_int_equal(word.body.verdict, REPEAT_BAD);
        assert_int_equal(word.end, REPEAT_OPEN);
    }
}

/* A drawn lease of which a case waits is no case yet, or some of them would
 * keep one that is looked into out of its room. */
static void cases_that_wait_take_no_room(void **state)
{
    struct fixture *f = *state;

    commit(f);
    commit_drawing(f, 3);
    tick(f, 10);
    assert_false(busy(f)->is_case);
    assert_int_equal(hears(f, 0, 2, 1), REPEAT_NEW);
    assert_int_equal(hears(f, 2, 4, 1), REPEAT_NEW);
    assert_int_equal(hears(f, 4, 3, 1), REPEAT_WAITS);
    tick(f, 10);
    commit_drawing(f, 2);
    tick(f, 10);
    assert_int_equal(n_tasks(f, true), REPEAT_CASES_MAX);
    assert_int_equal(n_tasks(f, false), 1);
    assert_int_equal(f->w.drawn[1], 2 + 1); /* when there is room */
}

/* The machine has not let go of one that was given up: later. */
static void a_repeat_that_finds_the_trainer_busy_waits(void **state)
{
    struct fixture *f = *state;

    commit(f);
    commit(f);
    assert_int_equal(hears(f, 0, 3, 1), REPEAT_NEW);
    (void)all_arrive(f);
    assert_true(begin_in(f, SELF + 2 * MEMBERS));
    assert_true(answered(f, LOCO_EBUSY, REPEAT_UNCLEAR));
    assert_int_equal(f->w.n_words, 0);
    assert_int_equal(f->n_stops, 0);
    assert_true(begin_in(f, SELF + 3 * MEMBERS));
    assert_true(repeated(f, REPEAT_BAD));
    assert_int_equal(f->w.n_words, 1);
}

/* What was put off comes when its time has come, though a drawn lease has the
 * line. */
static void a_case_that_was_put_off_is_waited_for(void **state)
{
    struct fixture *f = *state;

    commit(f);
    commit_drawing(f, 2);
    assert_int_equal(hears(f, 0, 3, 1), REPEAT_NEW);
    tick(f, 10);
    arrive(f, 0, LOCO_EHASH);
    tick(f, 1);
    assert_true(id_eq(&f->asked[0].peer, &f->peer[2].id));
    assert_int_equal(work_deadline(&f->w), f->now_ms + WAIT_MS / 64);
    tick(f, WAIT_MS / 64);
    assert_true(id_eq(&f->asked[0].peer, &f->peer[3].id));
}

static void who_serves_nothing_is_silent_though_another_waits(void **state)
{
    struct fixture *f = *state;

    commit(f);
    commit(f);
    assert_int_equal(hears(f, 0, 3, 1), REPEAT_NEW);
    assert_int_equal(hears(f, 2, 4, 1), REPEAT_NEW);
    tick(f, 1);
    tick(f, WAIT_MS);
    assert_true(is_silent(f, 3));
    assert_true(id_eq(&f->asked[0].peer, &f->peer[4].id));
}

/* One that serves a piece now and then keeps no other case from its turn. */
static void each_has_the_line_for_a_while(void **state)
{
    struct fixture *f = *state;
    uint32_t n = 0;

    commit(f);
    commit(f);
    assert_int_equal(hears(f, 0, 3, 1), REPEAT_NEW);
    assert_int_equal(hears(f, 2, 4, 1), REPEAT_NEW);
    tick(f, 1);
    assert_true(id_eq(&f->asked[0].peer, &f->peer[3].id));
    for (; id_eq(&f->asked[0].peer, &f->peer[3].id); n++) {
        arrive(f, 0, 0);
        tick(f, WAIT_MS / 4);
    }
    assert_int_equal(n, 4);
    assert_int_equal(f->n_cancels, 1);
    for (n = 0; id_eq(&f->asked[0].peer, &f->peer[4].id); n++) {
        arrive(f, 0, 0);
        tick(f, 1);
    }
    assert_int_equal(n, PARTS + 2 * WORK_DRAWS); /* in one turn */
    assert_int_equal(f->asked[0].seg, 4);
}

static void assert_word(struct fixture *f, uint8_t verdict)
{
    struct work_word word;

    assert_true(work_take_word(&f->w, &word));
    assert_int_equal(word.body.verdict, verdict);
    assert_true(id_eq(&word.body.accused, &f->peer[3].id));
    assert_false(work_take_word(&f->w, &word));
}

static void who_cannot_read_in_a_case_says_so(void **state)
{
    struct fixture *f = *state;

    commit(f);
    commit(f);
    assert_int_equal(hears(f, 0, 3, 1), REPEAT_NEW);
    tick(f, 10);
    arrive(f, 0, LOCO_ENOENT);
    assert_word(f, REPEAT_UNCLEAR);
    for (uint32_t i = 0; i < WORK_COMMITS; i++) {
        commit(f);
    }
    assert_int_equal(hears(f, 2, 3, 2), REPEAT_NONE); /* gone everywhere */
    tick(f, 10);
    assert_int_equal(f->w.n_words, 0);
    lay_commit(f, f->c.what.round + 1); /* one never came here */
    commit(f);
    assert_int_equal(hears(f, 2, 3, f->c.what.round - 3), REPEAT_NEW);
    tick(f, 10);
    assert_word(f, REPEAT_UNCLEAR);
    assert_int_equal(f->n_asked, 0);
}

static void bad_work_is_said_and_named(void **state)
{
    struct fixture *f = *state;

    commit(f);
    commit_drawing(f, 3);
    (void)all_arrive(f);
    assert_true(begin_in(f, 3));
    assert_true(repeated(f, REPEAT_BAD));
    assert_word(f, REPEAT_BAD);
    assert_true(is_silent(f, 3));
    assert_int_equal(f->n_stops, 1); /* the state is let go */
    assert_false(repeated(f, REPEAT_BAD));
    assert_int_equal(hears(f, 0, 3, 1), REPEAT_OPEN);
    assert_int_equal(hears(f, 2, 3, 1), REPEAT_CONVICTED);
}

/* Our own case is over, or was not looked at: others may accuse later. */
static void what_was_read_is_said_without_a_second_repeat(void **state)
{
    struct fixture *f = *state;

    commit(f);
    commit_drawing(f, 3);
    (void)all_arrive(f);
    assert_true(begin_in(f, 3));
    assert_true(repeated(f, REPEAT_GOOD));
    assert_int_equal(f->w.n_words, 0); /* nobody asked */
    assert_int_equal(hears(f, 0, 3, 1), REPEAT_NEW);
    tick(f, 10);
    assert_word(f, REPEAT_GOOD);
    assert_int_equal(f->n_asked, 0);
    assert_int_equal(f->n_jobs, 1);
}

/* We accused in vain, and may not for a while: but who lies once lies again. */
static void bad_work_that_finds_no_case_is_looked_for_again(void **state)
{
    struct fixture *f = *state;
    struct work_word word;

    commit(f);
    commit_drawing(f, 2);
    (void)all_arrive(f);
    assert_true(begin_in(f, 3));
    assert_true(repeated(f, REPEAT_BAD));
    assert_true(work_take_word(&f->w, &word));
    assert_int_equal(word.end, REPEAT_NEW);
    commit_drawing(f, 3);
    (void)all_arrive(f);
    assert_true(begin_in(f, 4));
    assert_true(repeated(f, REPEAT_BAD)); /* our first case is still open */
    assert_int_equal(f->w.n_words, 0);
    commit(f); /* nobody is drawn by lot */
    assert_int_equal(f->w.drawn[1], 0);
    assert_int_equal(hears(f, 0, 2, 1), REPEAT_OPEN);
    assert_int_equal(hears(f, 4, 2, 1), REPEAT_CONVICTED);
    commit(f);
    tick(f, 10);
    assert_true(id_eq(&f->asked[0].peer, &f->peer[3].id));
    assert_int_equal(busy(f)->about.what.round, 4);
    commit(f);
    assert_int_equal(f->w.drawn[1], 0); /* once */
}

/* Others have nothing of it any more, and would say that they cannot tell; and
 * we may open no case for a while then. */
static void what_is_read_too_late_is_looked_for_again(void **state)
{
    struct fixture *f = *state;

    commit(f);
    commit_drawing(f, 3);
    (void)all_arrive(f);
    for (uint32_t age = 1; age < REPEAT_FRESH; age++) {
        commit(f);
    }
    assert_true(begin_in(f, f->c.what.round + 1));
    assert_true(repeated(f, REPEAT_BAD));
    assert_int_equal(f->w.n_words, 0);
    assert_true(is_silent(f, 3));
    commit(f); /* nobody is drawn by lot */
    (void)all_arrive(f);
    assert_int_equal(busy(f)->about.what.round, f->c.what.round - 2);
    assert_true(begin_in(f, f->c.what.round + 1));
    assert_true(repeated(f, REPEAT_BAD));
    assert_word(f, REPEAT_BAD); /* in time */
    assert_int_equal(hears(f, 0, 3, f->c.what.round - 2), REPEAT_OPEN);
}

/* A word of others in a case that is open counts, however late it is. */
static void in_a_case_no_word_is_too_late(void **state)
{
    struct fixture *f = *state;

    commit(f);
    commit(f);
    assert_int_equal(hears(f, 0, 3, 1), REPEAT_NEW);
    (void)all_arrive(f);
    for (uint32_t age = 1; age <= REPEAT_FRESH; age++) {
        commit(f);
    }
    assert_int_equal(hears(f, 2, 3, 1), REPEAT_OPEN);
    assert_true(begin_in(f, SELF + 2 * MEMBERS));
    assert_true(repeated(f, REPEAT_BAD));
    assert_word(f, REPEAT_BAD);
}

/* Signed of another round it would spoil the evidence. */
static void a_word_names_the_round_of_its_commit(void **state)
{
    struct fixture *f = *state;
    struct verdict_body v = {.round = 2,
                             .commit = name(0, 1, 0),
                             .accused = f->peer[3].id,
                             .verdict = REPEAT_BAD};

    commit(f);
    commit(f);
    assert_int_equal(work_on_verdict(&f->w, &f->peer[0].id, &v), REPEAT_NONE);
    v.round = 1;
    assert_int_equal(work_on_verdict(&f->w, &f->peer[0].id, &v), REPEAT_NEW);
}

/* While it leaves it serves nobody: who accused it again would pay. */
static void a_convict_is_neither_drawn_nor_accused(void **state)
{
    struct fixture *f = *state;

    commit(f);
    commit_drawing(f, 3);
    (void)all_arrive(f);
    assert_true(begin_in(f, 3));
    work_convict(&f->w, &f->peer[3].id);
    assert_true(repeated(f, REPEAT_BAD));
    assert_int_equal(f->w.n_words, 0);
    assert_int_equal(f->w.n_looks, 0);
    for (uint64_t secret = 1; secret < 400; secret++) {
        work_follow(&f->w, &f->c);
        work_commit(&f->w, &f->c, secret, &f->out);
        collect(f);
        assert_int_not_equal(f->w.drawn[1], 3 + 1);
        lay_commit(f, f->c.what.round + 1);
    }
}

/* We hold a proof that others may not have: without our word they would be no
 * more than half, and with our proof alone neither. */
static void in_a_case_of_others_we_speak_of_a_convict(void **state)
{
    struct fixture *f = *state;

    work_convict(&f->w, &f->peer[3].id);
    commit(f);
    commit(f);
    assert_int_equal(hears(f, 0, 3, 1), REPEAT_NEW);
    (void)all_arrive(f);
    assert_true(begin_in(f, SELF + MEMBERS));
    assert_true(repeated(f, REPEAT_BAD));
    assert_word(f, REPEAT_BAD);
    assert_int_equal(hears(f, 2, 3, 1), REPEAT_CONVICTED);
}

/* It is out by the first: who accused it of something else does not pay. */
static void who_is_convicted_has_no_other_case(void **state)
{
    struct fixture *f = *state;

    commit(f);
    commit(f);
    assert_int_equal(hears(f, 0, 3, 1), REPEAT_NEW);
    commit(f);
    assert_int_equal(hears(f, 4, 3, 2), REPEAT_NEW);
    assert_int_equal(hears(f, 2, 3, 1), REPEAT_OPEN);
    assert_int_equal(hears(f, 4, 3, 1), REPEAT_CONVICTED);
    assert_int_equal(hears(f, 2, 3, 2), REPEAT_NONE);
    for (uint32_t i = 0; i < REPEAT_COMMITS; i++) {
        commit(f);
    }
    assert_int_equal(hears(f, 4, 2, f->c.what.round - 2), REPEAT_NEW);
}

static void a_repeat_stops_when_its_case_ends(void **state)
{
    struct fixture *f = *state;

    commit(f);
    commit(f);
    assert_int_equal(hears(f, 0, 3, 1), REPEAT_NEW);
    (void)all_arrive(f);
    assert_true(begin_in(f, SELF + MEMBERS));
    assert_int_equal(hears(f, 2, 3, 1), REPEAT_OPEN);
    assert_int_equal(hears(f, 4, 3, 1), REPEAT_CONVICTED);
    tick(f, 10);
    assert_int_equal(f->n_stops, 1);
    assert_int_equal(busy(f)->phase, WORK_IDLE);
    assert_false(repeated(f, REPEAT_GOOD)); /* it came too late */
    assert_int_equal(f->w.n_words, 0);
}

static void nothing_is_left_of_a_group_that_is_left(void **state)
{
    struct fixture *f = *state;

    commit(f);
    commit_drawing(f, 3);
    tick(f, 10);
    work_stop(&f->w, &f->out);
    collect(f);
    assert_int_equal(f->n_cancels, 1);
    assert_int_equal(f->n_stops, 1);
    tick(f, 10);
    assert_int_equal(f->n_asked, 0);
    assert_int_equal(hears(f, 0, 3, 1), REPEAT_NONE);
    assert_int_equal(work_deadline(&f->w), CORE_NEVER);
}

#define TEST(test)                                                             \
    cmocka_unit_test_setup_teardown(test, open_fixture, close_fixture)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(nobody_is_asked_before_the_next_commit),
        TEST(moments_go_on_over_any_gap),
        TEST(moments_of_no_step_are_nothing),
        TEST(who_begins_anew_needs_an_excuse),
        TEST(what_was_lost_is_begun_anew),
        TEST(who_sleeps_each_time_needs_an_excuse),
        TEST(chains_are_followed_without_us),
        TEST(a_state_that_is_taken_back_ends_all_chains),
        TEST(who_does_not_know_of_its_last_lease_begins_as_that_did),
        TEST(a_commit_that_inherits_is_part_of_the_chain),
        TEST(a_missing_commit_breaks_the_chain),
        TEST(who_joins_again_goes_on_with_its_moments),
        TEST(what_befalls_most_is_nobodys_fault),
        TEST(who_works_of_no_lease_is_silent_but_once),
        TEST(who_says_that_it_has_no_text_owes_a_lease),
        TEST(who_works_beyond_a_short_lease_owes_one),
        TEST(an_optimizer_makes_as_many_steps_as_its_lease),
        TEST(what_is_refused_is_asked_for_from_there_on),
        TEST(a_room_in_use_here_is_not_the_makers_fault),
        TEST(who_does_not_serve_is_silent),
        TEST(without_the_state_nothing_more_is_fetched),
        TEST(what_an_audit_asks_for_is_what_is_served),
        TEST(in_a_case_each_waits_for_its_turn),
        TEST(a_case_about_the_newest_commit_waits_for_the_next),
        TEST(a_case_comes_before_a_draw),
        TEST(an_accusation_ends_no_audit),
        TEST(who_waits_for_its_turn_says_nothing_before),
        TEST(two_cases_have_a_room_each),
        TEST(cases_that_wait_take_no_room),
        TEST(a_repeat_that_finds_the_trainer_busy_waits),
        TEST(a_case_that_was_put_off_is_waited_for),
        TEST(who_serves_nothing_is_silent_though_another_waits),
        TEST(each_has_the_line_for_a_while),
        TEST(who_cannot_read_in_a_case_says_so),
        TEST(bad_work_is_said_and_named),
        TEST(what_was_read_is_said_without_a_second_repeat),
        TEST(bad_work_that_finds_no_case_is_looked_for_again),
        TEST(what_is_read_too_late_is_looked_for_again),
        TEST(in_a_case_no_word_is_too_late),
        TEST(a_word_names_the_round_of_its_commit),
        TEST(a_convict_is_neither_drawn_nor_accused),
        TEST(in_a_case_of_others_we_speak_of_a_convict),
        TEST(who_is_convicted_has_no_other_case),
        TEST(a_repeat_stops_when_its_case_ends),
        TEST(nothing_is_left_of_a_group_that_is_left),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
