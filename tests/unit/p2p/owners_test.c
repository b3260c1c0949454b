/* owners_test.c - one member's core by hand; whole groups with deaths are the
 * simulator's (sim/owners_*). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "p2p/owners.h"
#include "proto/base/err.h"
#include "proto/base/rng.h"

#define EPOCH 5

static const struct owners_member members[4] = {
    {{{1}}, 1}, {{{2}}, 1}, {{{3}}, 1}, {{{4}}, 1}};

struct fixture {
    struct owners o;
    struct owners_out out;
    uint64_t now_ms;
};

/* A seed by which slice 0 has this owner and this backup among three. */
static uint64_t seed_of(uint32_t owner, uint32_t backup)
{
    for (uint64_t seed = 0;; seed++) {
        uint32_t a, b;

        owners_holders(seed, 0, members, 3, &a, &b);
        if (a == owner && b == backup) {
            return seed;
        }
    }
}

/* Member 0 of three; one slice. */
static void begin(struct fixture *f, uint32_t owner, uint32_t backup)
{
    struct owners_options opt = {.self = members[0].id,
                                 .seed = seed_of(owner, backup),
                                 .slices = 1,
                                 .records = 1,
                                 .readings = 1,
                                 .pieces = 2,
                                 .mark_every = 1,
                                 .stale_most = 4,
                                 .resend_ms = 100,
                                 .stuck_ms = 1000};

    memset(f, 0, sizeof *f);
    f->now_ms = 10000;
    assert_int_equal(owners_init(&f->o, &opt), 0);
    assert_int_equal(owners_view(&f->o, EPOCH, members, 3, f->now_ms, &f->out),
                     0);
}

static const struct owners_action *find(const struct fixture *f,
                                        enum owners_action_type type)
{
    for (uint32_t i = 0; i < f->out.n; i++) {
        if (f->out.action[i].type == type) {
            return &f->out.action[i];
        }
    }
    return NULL;
}

static const struct owners_message *said(const struct fixture *f,
                                         enum owners_kind kind)
{
    for (uint32_t i = 0; i < f->out.n; i++) {
        const struct owners_action *a = &f->out.action[i];

        if (a->type == OWNERS_SAY && a->message.kind == kind) {
            return &a->message;
        }
    }
    return NULL;
}

static void hear(struct fixture *f, uint32_t from, struct owners_message m)
{
    static const uint64_t none[VIEW_MEMBERS_MAX];

    f->out.n = 0;
    m.epoch = m.epoch == 0 ? f->o.epoch : m.epoch;
    owners_recv(&f->o, &members[from].id, &m, none, f->now_ms, &f->out);
}

static void tick(struct fixture *f, uint64_t ms)
{
    f->out.n = 0;
    f->now_ms += ms;
    owners_tick(&f->o, f->now_ms, &f->out);
}

/* What slot `slot` waits for is here. */
static void taken(struct fixture *f, uint32_t slot, int rc)
{
    f->out.n = 0;
    owners_taken(&f->o, slot, f->o.slot[slot].attempt, rc, f->now_ms, &f->out);
}

/* Everybody but us holds nothing; the backup follows. */
static void open_slice(struct fixture *f)
{
    uint32_t backup = f->o.slice[0].backup;

    for (uint32_t k = 1; k < f->o.n; k++) {
        hear(f, k, (struct owners_message){.kind = OWNERS_HOLDING});
    }
    assert_int_equal(f->o.slice[0].phase, OWNERS_FEED);
    hear(f, backup,
         (struct owners_message){.kind = OWNERS_HELD,
                                 .position = f->o.slice[0].at.position});
    assert_int_equal(f->o.slice[0].phase, OWNERS_OPEN);
}

/* A task of `who`, up to the LOG. */
static void submit(struct fixture *f, uint32_t who, uint64_t task)
{
    const struct owners_message *m;
    uint32_t slot;

    hear(f, who,
         (struct owners_message){.kind = OWNERS_SUBMIT,
                                 .task = task,
                                 .position = f->o.slice[0].at.position});
    m = said(f, OWNERS_WANT);
    assert_non_null(m);
    assert_int_equal(m->what, OWNERS_PIECE);
    slot = m->slot;
    taken(f, slot, 0);
    assert_non_null(said(f, OWNERS_LOG));
    assert_null(said(f, OWNERS_ACK));
    assert_null(find(f, OWNERS_APPLY));
}

static void held(struct fixture *f, uint32_t from)
{
    hear(f, from,
         (struct owners_message){.kind = OWNERS_HELD,
                                 .position = f->o.slice[0].at.position + 1});
}

static void who_dies_is_followed_by_his_backup(void **state)
{
    struct owners_member left[3];
    uint32_t owned[4] = {0};

    (void)state;
    for (uint32_t gone = 0; gone < 4; gone++) {
        uint32_t n = 0;

        for (uint32_t k = 0; k < 4; k++) {
            if (k != gone) {
                left[n++] = members[k];
            }
        }
        for (uint32_t i = 0; i < OWNERS_SLICES_MAX; i++) {
            uint32_t a, b, c, d;

            owners_holders(7, i, members, 4, &a, &b);
            owners_holders(7, i, left, 3, &c, &d);
            assert_true(id_eq(&left[c].id, &members[a == gone ? b : a].id));
            if (a != gone && b != gone) {
                assert_true(id_eq(&left[d].id, &members[b].id));
            }
            owned[a] += gone == 0;
        }
    }
    for (uint32_t k = 0; k < 4; k++) {
        assert_in_range(owned[k], 6, 28); /* of 64 */
    }
}

static void an_arrival_counts_when_both_hold_it(void **state)
{
    struct fixture f;

    (void)state;
    begin(&f, 0, 1);
    assert_non_null(said(&f, OWNERS_ASK));
    open_slice(&f);
    submit(&f, 2, 9);
    hear(&f, 2, (struct owners_message){.kind = OWNERS_HELD, .position = 1});
    assert_int_equal(f.o.malformed, 1); /* it is not the backup */
    hear(&f, 1,
         (struct owners_message){.kind = OWNERS_WANT,
                                 .what = OWNERS_RECORD,
                                 .position = 1,
                                 .attempt = 3});
    assert_int_equal(find(&f, OWNERS_GIVE)->attempt, 3);
    held(&f, 1);
    assert_int_equal(find(&f, OWNERS_APPLY)->task, 9);
    assert_int_equal(said(&f, OWNERS_ACK)->task, 9);
    assert_int_equal(f.o.slice[0].at.position, 1);
    held(&f, 1); /* again */
    assert_int_equal(f.out.n, 0);
}

static void what_is_said_again_is_applied_once(void **state)
{
    const struct owners_message again = {.kind = OWNERS_SUBMIT, .task = 9};
    struct fixture f;

    (void)state;
    begin(&f, 0, 1);
    open_slice(&f);
    submit(&f, 2, 9);
    hear(&f, 2, again); /* under way */
    assert_null(said(&f, OWNERS_WANT));
    held(&f, 1);
    hear(&f, 2, again);
    assert_int_equal(said(&f, OWNERS_ACK)->task, 9);
    assert_null(said(&f, OWNERS_WANT));
    assert_int_equal(f.o.n_applied, 1);
}

static void cycles_follow_the_members_at_a_flush(void **state)
{
    struct owners_member two[2] = {members[0], members[1]};
    struct fixture f;

    (void)state;
    begin(&f, 0, 1);
    open_slice(&f);
    submit(&f, 1, 1);
    held(&f, 1);
    assert_int_equal(find(&f, OWNERS_APPLY)->size, 3);
    f.out.n = 0;
    assert_int_equal(owners_view(&f.o, EPOCH + 1, two, 2, f.now_ms, &f.out), 0);
    assert_int_equal(f.o.slice[0].at.task[1], 1);
    hear(&f, 1,
         (struct owners_message){.kind = OWNERS_HOLDING,
                                 .held = true,
                                 .generation = EPOCH,
                                 .position = 1});
    assert_int_equal(said(&f, OWNERS_FOLLOW)->generation, EPOCH);
    hear(&f, 1, (struct owners_message){.kind = OWNERS_HELD, .position = 1});
    submit(&f, 1, 2);
    held(&f, 1);
    assert_null(find(&f, OWNERS_MARK));
    submit(&f, 1, 3);
    held(&f, 1);
    assert_int_equal(find(&f, OWNERS_APPLY)->size, 3); /* of three still */
    assert_int_equal(find(&f, OWNERS_MARK)->flush, 1);
    assert_int_equal(f.o.slice[0].at.size, 2);
    assert_int_equal(owners_round(&f.o), 1);
}

static void a_view_freezes_and_the_backup_takes_over(void **state)
{
    struct owners_member left[2] = {members[0], members[2]};
    struct fixture f;

    (void)state;
    begin(&f, 1, 0); /* we back up */
    hear(&f, 1, (struct owners_message){.kind = OWNERS_FOLLOW});
    assert_non_null(find(&f, OWNERS_BUILD));
    hear(&f, 1,
         (struct owners_message){.kind = OWNERS_LOG,
                                 .position = 1,
                                 .worker = 2,
                                 .task = 4,
                                 .size = 3});
    assert_int_equal(said(&f, OWNERS_WANT)->what, OWNERS_RECORD);
    taken(&f, 0, 0);
    assert_int_equal(find(&f, OWNERS_APPLY)->peer, 2);
    assert_int_equal(said(&f, OWNERS_HELD)->position, 1);
    f.out.n = 0;
    assert_int_equal(owners_view(&f.o, EPOCH + 1, left, 2, f.now_ms, &f.out),
                     0);
    assert_int_equal(f.o.slice[0].phase, OWNERS_GATHER);
    assert_int_equal(f.o.n_taken_over, 1);
    hear(&f, 2, (struct owners_message){.kind = OWNERS_SUBMIT, .task = 5});
    assert_int_equal(f.out.n, 0); /* frozen */
    hear(&f, 2, (struct owners_message){.kind = OWNERS_HOLDING});
    hear(&f, 2,
         (struct owners_message){.kind = OWNERS_WANT, .what = OWNERS_STATE});
    assert_int_equal(said(&f, OWNERS_HEAD)->position, 1);
    assert_int_equal(f.out.task[1], 4);
    hear(&f, 2, (struct owners_message){.kind = OWNERS_HELD, .position = 1});
    hear(&f, 2, (struct owners_message){.kind = OWNERS_SUBMIT, .task = 4});
    assert_int_equal(said(&f, OWNERS_ACK)->task, 4); /* it was the dead's */
}

static void what_is_stale_or_no_numbers_is_refused(void **state)
{
    struct fixture f;

    (void)state;
    begin(&f, 0, 1);
    open_slice(&f);
    for (uint64_t task = 1; task <= 5; task++) {
        submit(&f, 1, task);
        held(&f, 1);
    }
    hear(&f, 2, (struct owners_message){.kind = OWNERS_SUBMIT, .task = 1});
    assert_true(said(&f, OWNERS_ACK)->refused);
    hear(&f, 2,
         (struct owners_message){
             .kind = OWNERS_SUBMIT, .task = 1, .position = 1});
    assert_non_null(said(&f, OWNERS_WANT));
    taken(&f, said(&f, OWNERS_WANT)->slot, LOCO_ENUMERIC);
    assert_true(said(&f, OWNERS_ACK)->refused);
    assert_int_equal(f.o.n_refused, 2);
    assert_int_equal(f.o.slice[0].at.position, 5);
}

/* It said a long log, and gives another. */
static void a_state_that_is_not_what_was_said_is_not_taken(void **state)
{
    struct fixture f;
    const struct owners_message *want;
    uint32_t slot;

    (void)state;
    begin(&f, 0, 1);
    hear(&f, 2,
         (struct owners_message){.kind = OWNERS_HOLDING,
                                 .held = true,
                                 .generation = EPOCH - 1,
                                 .position = 1000});
    hear(&f, 1,
         (struct owners_message){.kind = OWNERS_HOLDING,
                                 .held = true,
                                 .generation = EPOCH - 1,
                                 .position = 6});
    want = said(&f, OWNERS_WANT);
    assert_int_equal(want->what, OWNERS_STATE);
    slot = want->slot;
    taken(&f, slot, 0);
    hear(&f, 2,
         (struct owners_message){.kind = OWNERS_HEAD,
                                 .slot = slot,
                                 .attempt = f.o.slot[slot].attempt,
                                 .generation = EPOCH - 1,
                                 .position = 3,
                                 .size = 3});
    assert_int_equal(f.o.malformed, 1);
    assert_null(find(&f, OWNERS_LOAD));
    assert_non_null(said(&f, OWNERS_ASK));
    hear(&f, 1,
         (struct owners_message){.kind = OWNERS_HOLDING,
                                 .held = true,
                                 .generation = EPOCH - 1,
                                 .position = 6});
    assert_int_equal(f.o.slice[0].phase, OWNERS_FETCH);
    assert_int_equal(f.o.slice[0].source, 1);
}

static void a_state_of_the_last_epoch_is_its_holders(void **state)
{
    struct fixture f;

    (void)state;
    begin(&f, 0, 1);
    open_slice(&f);
    f.out.n = 0;
    assert_int_equal(owners_view(&f.o, EPOCH + 1, members, 3, f.now_ms, &f.out),
                     0);
    for (uint32_t k = 1; k < 3; k++) {
        hear(&f, k,
             (struct owners_message){.kind = OWNERS_HOLDING,
                                     .held = true,
                                     .generation = EPOCH,
                                     .position = k == 2 ? 1000 : 0});
    }
    assert_int_equal(f.o.malformed, 1);
    assert_int_equal(f.o.slice[0].source, 0);
    assert_int_equal(f.o.slice[0].phase, OWNERS_FEED);
}

static void who_does_nothing_is_named(void **state)
{
    struct fixture f;

    (void)state;
    begin(&f, 0, 1);
    hear(&f, 1, (struct owners_message){.kind = OWNERS_HOLDING});
    tick(&f, 100);
    assert_int_equal(f.out.action[0].to, 1U << 2); /* asked again */
    tick(&f, 900);
    assert_int_equal(find(&f, OWNERS_SUSPECT)->to, 1U << 2);
    hear(&f, 2, (struct owners_message){.kind = OWNERS_HOLDING});
    tick(&f, 1000);
    assert_int_equal(find(&f, OWNERS_SUSPECT)->to, 1U << 1);
    assert_non_null(said(&f, OWNERS_FOLLOW));
}

/* Owner and backup went together, and what was read before stands in. */
static void a_worker_is_told_what_was_lost(void **state)
{
    struct fixture f;
    const struct owners_message *want;

    (void)state;
    begin(&f, 1, 2);
    f.out.n = 0;
    assert_int_equal(owners_submit(&f.o, 7, f.now_ms, &f.out), 0);
    assert_int_equal(said(&f, OWNERS_SUBMIT)->task, 7);
    assert_int_equal(owners_submit(&f.o, 8, f.now_ms, &f.out), LOCO_EINVAL);
    hear(&f, 1, (struct owners_message){.kind = OWNERS_ACK, .task = 6});
    assert_null(find(&f, OWNERS_SUBMITTED));
    hear(&f, 1, (struct owners_message){.kind = OWNERS_ACK, .task = 7});
    assert_int_equal(find(&f, OWNERS_SUBMITTED)->task, 7);
    f.out.n = 0;
    owners_gather(&f.o, f.now_ms, &f.out);
    want = said(&f, OWNERS_WANT);
    assert_int_equal(want->what, OWNERS_READING);
    hear(&f, 1,
         (struct owners_message){.kind = OWNERS_HEAD,
                                 .slot = want->slot,
                                 .attempt = want->attempt,
                                 .generation = EPOCH,
                                 .size = 3});
    taken(&f, 1, 0);
    assert_non_null(find(&f, OWNERS_KEEP));
    assert_non_null(find(&f, OWNERS_GATHERED));
    assert_int_equal(find(&f, OWNERS_LOST)->task, 7);
    assert_int_equal(owners_submit(&f.o, 8, f.now_ms, &f.out), 0);
}

static void a_peer_that_came_back_is_another_worker(void **state)
{
    struct owners_member again[3] = {members[0], members[1], members[2]};
    struct fixture f;

    (void)state;
    begin(&f, 1, 2);
    f.out.n = 0;
    assert_int_equal(owners_submit(&f.o, 7, f.now_ms, &f.out), 0);
    f.out.n = 0;
    again[0].joined = EPOCH + 2;
    assert_int_equal(owners_view(&f.o, EPOCH + 2, again, 3, f.now_ms, &f.out),
                     0);
    assert_int_equal(find(&f, OWNERS_VOID)->task, 7);
    assert_null(said(&f, OWNERS_SUBMIT));
    assert_int_equal(owners_view(&f.o, EPOCH + 2, again, 3, f.now_ms, &f.out),
                     LOCO_EINVAL);
}

static void strangers_and_nonsense_are_dropped(void **state)
{
    struct fixture f;
    struct owners_message m = {.kind = OWNERS_SUBMIT, .task = 1};

    (void)state;
    begin(&f, 0, 1);
    open_slice(&f);
    hear(&f, 3, m); /* no member */
    m.slice = 1;
    hear(&f, 1, m);
    m.slice = 0;
    m.kind = OWNERS_KIND_COUNT;
    hear(&f, 1, m);
    m.kind = OWNERS_LOG; /* we own it */
    hear(&f, 1, m);
    m.kind = OWNERS_SUBMIT;
    m.task = 0;
    hear(&f, 1, m);
    assert_int_equal(f.o.malformed, 5);
    m.task = 1;
    m.epoch = EPOCH + 1;
    hear(&f, 1, m);
    assert_int_equal(f.o.stale, 1);
    assert_int_equal(f.out.n, 0);
}

/* Whatever members say: what a version counts keeps its bounds, and the actions
 * fit. */
static void any_message_leaves_it_in_order(void **state)
{
    struct fixture f;
    uint64_t rng = 1, task[VIEW_MEMBERS_MAX];

    (void)state;
    for (uint32_t who = 0; who < 3; who++) {
        begin(&f, who, (who + 1) % 3);
        for (uint32_t k = 0; k < 200000; k++) {
            struct owners_message m = {
                .kind = (enum owners_kind)rng_below(&rng, OWNERS_KIND_COUNT),
                .epoch = f.o.epoch,
                .what = (enum owners_what)rng_below(&rng, OWNERS_WHAT_COUNT),
                .slot = (uint32_t)rng_below(&rng, 6),
                .attempt = rng_below(&rng, 40),
                .held = rng_below(&rng, 2) != 0,
                .refused = rng_below(&rng, 2) != 0,
                .worker = (uint32_t)rng_below(&rng, 5),
                .task = rng_below(&rng, 9),
                .generation = rng_below(&rng, EPOCH + 3),
                .position = rng_below(&rng, 9),
                .read_generation = rng_below(&rng, EPOCH + 1),
                .read_position = rng_below(&rng, 9),
                .size = (uint32_t)rng_below(&rng, 5),
                .count = (uint32_t)rng_below(&rng, 5),
            };
            const struct owners_version *v = &f.o.slice[0].at;

            for (uint32_t i = 0; i < VIEW_MEMBERS_MAX; i++) {
                task[i] = rng_below(&rng, 9);
            }
            f.out.n = 0;
            f.now_ms += rng_below(&rng, 30);
            owners_recv(&f.o, &members[1 + rng_below(&rng, 2)].id, &m, task,
                        f.now_ms, &f.out);
            taken(&f, (uint32_t)rng_below(&rng, 4), 0);
            if (rng_below(&rng, 20) == 0) {
                tick(&f, 0);
            }
            if (f.o.task == 0) {
                (void)owners_submit(&f.o, 1 + k, f.now_ms, &f.out);
                owners_gather(&f.o, f.now_ms, &f.out);
            }
            if (rng_below(&rng, 1000) == 0) {
                f.out.n = 0;
                assert_int_equal(owners_view(&f.o, f.o.epoch + 1, members, 3,
                                             f.now_ms, &f.out),
                                 0);
            }
            assert_true(f.out.n <= OWNERS_OUT_MAX);
            assert_true(!f.o.slice[0].held || v->count < v->size);
            assert_true(v->size <= VIEW_MEMBERS_MAX);
        }
        assert_int_equal(f.o.n_applied > 0, who != 1); /* neither */
    }
}

static void another_branch_begins_with_nothing(void **state)
{
    struct fixture f;

    (void)state;
    begin(&f, 0, 1);
    open_slice(&f);
    f.out.n = 0;
    owners_reset(&f.o, &f.out);
    assert_non_null(find(&f, OWNERS_FORGET));
    assert_int_equal(owners_deadline(&f.o), UINT64_MAX);
    f.out.n = 0;
    assert_int_equal(owners_view(&f.o, 2, members, 3, f.now_ms, &f.out), 0);
    assert_false(f.o.slice[0].held);
}

static struct owners_version mark(void)
{
    return (struct owners_version){.generation = 3,
                                   .position = 12,
                                   .flush = 4,
                                   .size = 3,
                                   .task = {1, 2, 3}};
}

/* Another life: what is on the disk is newer than the initial weights, older
 * than what anybody holds, and its tasks were of other workers. */
static void a_mark_is_gone_on_from(void **state)
{
    struct owners_version at = mark();
    struct fixture f;

    (void)state;
    begin(&f, 0, 1);
    f.out.n = 0;
    owners_reset(&f.o, &f.out);
    assert_int_equal(owners_restore(&f.o, 0, &at), 0);
    assert_int_equal(owners_view(&f.o, 3, members, 3, f.now_ms, &f.out),
                     LOCO_EINVAL);
    f.out.n = 0;
    assert_int_equal(owners_view(&f.o, 9, members, 3, f.now_ms, &f.out), 0);
    assert_true(f.o.slice[0].held);
    assert_int_equal(f.o.slice[0].source, 0); /* itself, until others say */
    assert_int_equal(f.o.slice[0].position, 12);
    assert_int_equal(f.o.slice[0].at.task[1], 0);
    assert_int_equal(owners_round(&f.o), 4);
    assert_int_equal(owners_restore(&f.o, 0, &at), LOCO_EINVAL);
}

static void what_is_no_mark_is_not_restored(void **state)
{
    struct owners_version at[6] = {mark(), mark(), mark(),
                                   mark(), mark(), mark()};
    struct fixture f;

    (void)state;
    begin(&f, 0, 1);
    f.out.n = 0;
    owners_reset(&f.o, &f.out);
    at[0].generation = 0;
    at[1].count = 3;
    at[2].count = 7;
    at[3].size = 0;
    at[4].size = VIEW_MEMBERS_MAX + 1;
    for (size_t i = 0; i < 5; i++) {
        assert_int_equal(owners_restore(&f.o, 0, &at[i]), LOCO_EINVAL);
    }
    assert_int_equal(owners_restore(&f.o, 1, &at[5]), LOCO_EINVAL);
    assert_int_equal(owners_restore_reading(&f.o, 1, &at[5]), LOCO_EINVAL);
    assert_false(f.o.slice[0].held);
}

/* What was read in another life stands in where nobody holds a state. */
static void a_reading_of_another_life_stands_in(void **state)
{
    struct owners_version at = mark();
    struct fixture f;

    (void)state;
    begin(&f, 0, 1);
    f.out.n = 0;
    owners_reset(&f.o, &f.out);
    at.count = 2; /* in the middle of a cycle */
    assert_int_equal(owners_restore_reading(&f.o, 0, &at), 0);
    f.out.n = 0;
    assert_int_equal(owners_view(&f.o, 9, members, 3, f.now_ms, &f.out), 0);
    assert_false(f.o.slice[0].held);
    assert_true(f.o.slice[0].is_reading);
    assert_int_equal(f.o.slice[0].source, 0);
    assert_int_equal(f.o.slice[0].position, 12);
}

static void options_are_checked(void **state)
{
    struct owners o;
    struct owners_options opt = {.slices = 1,
                                 .records = 1,
                                 .readings = 1,
                                 .pieces = 1,
                                 .resend_ms = 1,
                                 .stuck_ms = 1};

    (void)state;
    assert_int_equal(owners_init(&o, &opt), 0);
    opt.pieces = OWNERS_SLOTS_MAX;
    assert_int_equal(owners_init(&o, &opt), LOCO_EINVAL);
    opt.pieces = 0;
    assert_int_equal(owners_init(&o, &opt), LOCO_EINVAL);
    opt.pieces = 1;
    opt.slices = OWNERS_SLICES_MAX + 1;
    assert_int_equal(owners_init(&o, &opt), LOCO_EINVAL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(who_dies_is_followed_by_his_backup),
        cmocka_unit_test(an_arrival_counts_when_both_hold_it),
        cmocka_unit_test(what_is_said_again_is_applied_once),
        cmocka_unit_test(cycles_follow_the_members_at_a_flush),
        cmocka_unit_test(a_view_freezes_and_the_backup_takes_over),
        cmocka_unit_test(what_is_stale_or_no_numbers_is_refused),
        cmocka_unit_test(a_state_that_is_not_what_was_said_is_not_taken),
        cmocka_unit_test(a_state_of_the_last_epoch_is_its_holders),
        cmocka_unit_test(who_does_nothing_is_named),
        cmocka_unit_test(a_worker_is_told_what_was_lost),
        cmocka_unit_test(a_peer_that_came_back_is_another_worker),
        cmocka_unit_test(strangers_and_nonsense_are_dropped),
        cmocka_unit_test(any_message_leaves_it_in_order),
        cmocka_unit_test(another_branch_begins_with_nothing),
        cmocka_unit_test(a_mark_is_gone_on_from),
        cmocka_unit_test(what_is_no_mark_is_not_restored),
        cmocka_unit_test(a_reading_of_another_life_stands_in),
        cmocka_unit_test(options_are_checked),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
