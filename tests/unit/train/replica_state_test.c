/* replica_state_test.c - the memory of states: one that is held stays as it is,
 * one that nobody holds is used again, and a replica takes what it says. */
#include "train/replica/replica.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "proto/base/err.h"
#include "tests/unit/train/short_method.h"
#include "tests/unit/train/small_run.h"
#include "train/replica/pair.h"

#define SEQ    16
#define ROUNDS 5

static uint8_t text[SMALL_TEXT];
static struct shard shard;
static char errmsg[ERRMSG_SIZE];

static const char *const presets[] = {
    "opendiloco", "favg-keep", "streaming", "eager",    "async-dn",  "noloco",
    "local-adam", "desloc",    "adloco",    "muon-avg", "favg-reset"};
#define N_PRESETS (sizeof presets / sizeof presets[0])

static int setup(void **state)
{
    (void)state;
    small_text(text, &shard);
    return 0;
}

static struct replica_options options(const struct method *m)
{
    return (struct replica_options){
        .model = small_model(2, SEQ),
        .optimizer = optimizer_defaults(),
        .schedule = {SCHEDULE_CONSTANT, 3e-3, 3e-3, 0, 0, 0},
        .method = *m,
        .members = 1,
        .codec = codec_get(m->wire),
        .batch = 4,
        .micro_batch = 4,
        .seq = SEQ,
        .seed = 11,
        .peer = 3,
        .train = &shard,
        .n_train = 1,
        .threads = 1,
        .reference = true,
    };
}

static void open_one(struct replica *r, const char *preset)
{
    const struct method m = method_of(preset);
    const struct replica_options o = options(&m);

    assert_int_equal(replica_open(r, &o, errmsg), 0);
    assert_int_equal(replica_init(r), 0);
}

static void steps(struct replica *r)
{
    float loss;

    replica_turn(r, 0, 1);
    for (uint64_t n = replica_left(r); n > 0; n--) {
        assert_int_equal(replica_step(r, &loss), 0);
    }
    assert_int_equal(replica_pack(r), 0);
    for (uint64_t n = replica_beside(r); n > 0; n--) {
        assert_int_equal(replica_step(r, &loss), 0);
    }
}

/* A round of this peer alone. */
static int round_alone(struct replica *r, double share)
{
    const struct codec *c = r->opt.codec;
    uint64_t n = replica_elements(r);
    uint8_t *wire;
    int rv;

    if (r->opt.method.group == METHOD_PAIR) {
        return replica_apply_pair(r, r->round + 1, NULL, true);
    }
    wire = malloc(c->bytes(n));
    assert_non_null(wire);
    assert_int_equal(c->encode(wire, r->contribution, n, 1), 0);
    rv = replica_commit(
        r, &(struct replica_commit){r->round + 1, wire, share, 1, 1});
    free(wire);
    return rv;
}

static float *copy_of(const struct state_room *m)
{
    float *x = malloc(m->n * sizeof *x);

    assert_non_null(x);
    memcpy(x, m->x, m->n * sizeof *x);
    return x;
}

static void a_state_that_is_held_stays_as_it_is(void **state)
{
    (void)state;
    for (size_t k = 0; k < N_PRESETS; k++) {
        struct replica r;

        open_one(&r, presets[k]);
        for (int i = 0; i < ROUNDS; i++) {
            struct state_room *held = replica_hold_state(&r);
            float *was;

            assert_non_null(held);
            assert_int_equal(held->n,
                             replica_state_elements(&r.opt.method, r.n));
            was = copy_of(held);
            steps(&r);
            /* Also where the others went on without this peer. */
            assert_int_equal(round_alone(&r, i == 2 ? 0 : 1), 0);
            assert_memory_equal(held->x, was, held->n * sizeof(float));
            assert_memory_not_equal(r.room->x, was, held->n * sizeof(float));
            assert_ptr_equal(r.phi, r.room->x);
            free(was);
            state_room_drop(held);
        }
        replica_close(&r);
    }
}

/* Also what a LOAD puts in place, and round 0 again. */
static void neither_a_load_nor_a_start_changes_it(void **state)
{
    (void)state;
    for (size_t k = 0; k < N_PRESETS; k++) {
        struct state_room *first, *second;
        float *began, *went;
        struct replica r;

        open_one(&r, presets[k]);
        first = replica_hold_state(&r);
        began = copy_of(first);
        steps(&r);
        assert_int_equal(round_alone(&r, 1), 0);
        second = replica_hold_state(&r);
        went = copy_of(second);
        assert_int_equal(replica_load(&r, 0, began, false), 0);
        assert_memory_equal(second->x, went, second->n * sizeof(float));
        assert_memory_equal(first->x, began, first->n * sizeof(float));
        assert_memory_equal(r.phi, began, r.n * sizeof(float));
        assert_int_equal(replica_load(&r, 1, went, true), 0);
        assert_memory_equal(r.phi, went, r.n * sizeof(float));
        state_room_drop(first);
        first = replica_hold_state(&r);
        assert_int_equal(replica_init(&r), 0);
        assert_memory_equal(first->x, went, first->n * sizeof(float));
        assert_memory_equal(r.phi, began, r.n * sizeof(float));
        free(began);
        free(went);
        state_room_drop(first);
        state_room_drop(second);
        replica_close(&r);
    }
}

static void memory_that_nobody_holds_is_used_again(void **state)
{
    struct state_room *held, *other = state_room_take(5), *shared;
    const float *first, *second;
    struct replica r;

    (void)state;
    open_one(&r, "opendiloco");
    first = r.room->x;
    steps(&r);
    assert_int_equal(round_alone(&r, 1), 0);
    second = r.room->x;
    for (int i = 0; i < 4; i++) { /* two are enough */
        steps(&r);
        assert_int_equal(round_alone(&r, 1), 0);
        assert_ptr_equal(r.room->x, i % 2 == 0 ? first : second);
    }
    held = replica_hold_state(&r);
    steps(&r);
    assert_int_equal(round_alone(&r, 1), 0);
    assert_null(r.next); /* it is held */
    replica_offer_room(&r, other);
    assert_null(r.next); /* of another length */
    shared = state_room_hold(held);
    replica_offer_room(&r, shared);
    assert_null(r.next); /* somebody else holds it */
    first = held->x;
    replica_offer_room(&r, held);
    replica_offer_room(&r, NULL);
    steps(&r);
    assert_int_equal(round_alone(&r, 1), 0);
    assert_ptr_equal(r.room->x, first);
    replica_close(&r);
}

static void a_mean_that_is_not_finite_changes_nothing(void **state)
{
    (void)state;
    for (size_t k = 0; k < N_PRESETS; k++) {
        struct state_room *held;
        const float *at;
        struct replica r;
        uint64_t n;
        uint8_t *wire;

        open_one(&r, presets[k]);
        if (r.opt.method.group == METHOD_PAIR) {
            replica_close(&r);
            continue;
        }
        steps(&r);
        n = replica_elements(&r);
        wire = malloc(r.opt.codec->bytes(n));
        assert_non_null(wire);
        memset(wire, 0xff, r.opt.codec->bytes(n)); /* NaN */
        held = replica_hold_state(&r);
        at = copy_of(held);
        assert_true(replica_commit(
                        &r, &(struct replica_commit){1, wire, 1, 1, 1}) != 0);
        assert_memory_equal(held->x, at, held->n * sizeof(float));
        assert_memory_equal(r.phi, at, r.n * sizeof(float));
        assert_int_equal(r.round, 0);
        assert_int_equal(round_alone(&r, 1), 0);
        free((void *)(uintptr_t)at);
        free(wire);
        state_room_drop(held);
        replica_close(&r);
    }
}

/* What is announced block by block has the bits of a contribution. */
static void pieces_are_the_contribution(void **state)
{
    float out[ENGINE_WINDOW];
    struct engine_source source;
    struct replica r;
    float *whole;

    (void)state;
    open_one(&r, "opendiloco");
    assert_true(replica_in_pieces(&r));
    r.mirrored = true; /* as after a GPU that was lost */
    assert_false(replica_in_pieces(&r));
    r.mirrored = false;
    steps(&r);
    whole = malloc(r.n * sizeof *whole);
    assert_non_null(whole);
    memcpy(whole, r.contribution, r.n * sizeof *whole);
    source = replica_pack_pieces(&r);
    for (uint64_t at = 0; at < r.n; at += ENGINE_WINDOW) {
        uint64_t n = r.n - at < ENGINE_WINDOW ? r.n - at : ENGINE_WINDOW;

        assert_int_equal(source.bring(source.self, at, n, out), 0);
        assert_memory_equal(out, whole + at, n * sizeof *out);
    }
    free(whole);
    replica_close(&r);
    open_one(&r, "streaming");
    assert_false(replica_packs_pieces(&r.opt));
    replica_close(&r);
    open_one(&r, "async-dn");
    assert_false(replica_packs_pieces(&r.opt));
    replica_close(&r);
}

/* Vectors of a replica whose steps another process makes; all are large enough
 * for pages of their own, whose length is known. */
static uint64_t bytes_taken(const struct replica *r)
{
    uint64_t sum = r->n * sizeof(float) + r->room->n * sizeof(float);

    for (unsigned i = 0; i < r->n_vectors; i++) {
        assert_true(r->vectors[i].bytes > 0);
        sum += r->vectors[i].bytes;
    }
    return sum;
}

static void a_replica_takes_what_it_says(void **state)
{
    /* In vectors of n elements: theta, phi, and m, next m, sum, base, sent,
     * own, its m, contribution, average where there are such. */
    static const struct {
        const char *preset;
        double vectors;
    } want[] = {{"opendiloco", 4},  /* theta, phi, m, contribution */
                {"favg-keep", 3},   /* theta, phi, contribution */
                {"muon-avg", 3},    /* (the residual is the trainer's) */
                {"streaming", 4.5}, /* and m, next m, of a half each 3 */
                {"async-dn", 7},    /* and sum, base, average */
                {"eager", 7}};      /* and m, sent, own, its m */

    (void)state;
    for (size_t k = 0; k < sizeof want / sizeof want[0]; k++) {
        const struct method m = method_of(want[k].preset);
        struct replica_options o = options(&m);
        struct replica r;
        uint64_t n;
        double got;

        o.model.dim = 128;
        o.model.ffn = 1024;
        o.model.layers = 4;
        llama_part_whole(&o.model, &o.part);
        n = (uint64_t)o.part.numel;
        o.shared = true;
        o.shared_theta = calloc(n, sizeof(float));
        assert_non_null(o.shared_theta);
        assert_int_equal(replica_open(&r, &o, errmsg), 0);
        assert_int_equal(bytes_taken(&r) / 64, replica_bytes(&o) / 64);
        got = (double)replica_bytes(&o) / (double)(n * sizeof(float));
        assert_true(got > want[k].vectors - 0.1);
        assert_true(got < want[k].vectors + 0.1);
        replica_close(&r);
        free(o.shared_theta);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_state_that_is_held_stays_as_it_is),
        cmocka_unit_test(neither_a_load_nor_a_start_changes_it),
        cmocka_unit_test(memory_that_nobody_holds_is_used_again),
        cmocka_unit_test(a_mean_that_is_not_finite_changes_nothing),
        cmocka_unit_test(pieces_are_the_contribution),
        cmocka_unit_test(a_replica_takes_what_it_says),
    };

    return cmocka_run_group_tests(tests, setup, NULL);
}
