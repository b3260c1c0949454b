/* stage_wire_test.c - what crosses a cut of the model. */
#include "train/replica/stage_wire.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "proto/base/err.h"
#include "proto/base/rng.h"
#include "train/model/llama.h"

#define ROWS  37
#define DIM   24
#define VOCAB 300

static const char *const types[] = {"fp32", "bf16", "fp16", "int8"};
/* Of the largest value of all. */
static const double errors[] = {0, 1.0 / 256, 1.0 / 1024, 1.0 / 200};

struct fixture {
    struct stage_wire w;
    float x[ROWS * DIM], y[ROWS * DIM];
    uint32_t labels[ROWS], read[ROWS];
    uint8_t *wire; /* exactly as long as said */
    size_t bytes;
};

static void begin(struct fixture *f, const char *type, size_t bytes_of_labels)
{
    uint64_t rng = 9;

    memset(f, 0, sizeof *f);
    f->w = (struct stage_wire){codec_find(type), DIM, VOCAB};
    for (int i = 0; i < ROWS * DIM; i++) {
        f->x[i] = 2 * rng_float(&rng) - 1;
    }
    for (int i = 0; i < ROWS; i++) {
        f->labels[i] = i == 3 ? LLAMA_IGNORE : (uint32_t)rng_below(&rng, VOCAB);
    }
    f->bytes = f->w.codec->bytes(ROWS * DIM) + bytes_of_labels;
    f->wire = malloc(f->bytes);
    assert_non_null(f->wire);
}

static void expect_near(const struct fixture *f, double error)
{
    for (int i = 0; i < ROWS * DIM; i++) {
        assert_true(fabs((double)f->x[i] - (double)f->y[i]) <= error);
    }
}

static void activations_and_labels_come_as_they_left(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof types / sizeof types[0]; i++) {
        struct fixture f;

        begin(&f, types[i], 4 * ROWS);
        assert_int_equal(stage_wire_forth_bytes(&f.w, ROWS), f.bytes);
        assert_int_equal(
            stage_wire_put_forth(&f.w, f.wire, f.x, f.labels, ROWS), 0);
        assert_int_equal(stage_wire_get_forth(&f.w, f.wire, f.y, f.read, ROWS),
                         0);
        assert_memory_equal(f.labels, f.read, sizeof f.labels);
        expect_near(&f, errors[i]);
        free(f.wire);
    }
}

/* Gradients are small: blocks and floats keep what 16 plain bits would not. */
static void gradients_of_any_size_come_back(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof types / sizeof types[0]; i++) {
        struct fixture f;

        begin(&f, types[i], 0);
        for (int k = 0; k < ROWS * DIM; k++) {
            f.x[k] *= 1e-9F;
        }
        assert_int_equal(stage_wire_back_bytes(&f.w, ROWS), f.bytes);
        assert_int_equal(stage_wire_put_back(&f.w, f.wire, f.x, ROWS), 0);
        assert_int_equal(stage_wire_get_back(&f.w, f.wire, f.y, ROWS), 0);
        expect_near(&f, errors[i] * 1e-9);
        free(f.wire);
    }
}

static void a_label_outside_the_vocabulary_is_refused(void **state)
{
    struct fixture f;

    (void)state;
    begin(&f, "bf16", 4 * ROWS);
    assert_int_equal(stage_wire_put_forth(&f.w, f.wire, f.x, f.labels, ROWS),
                     0);
    memset(f.wire + 4 * 5, 0xfe, 4);
    assert_int_equal(stage_wire_get_forth(&f.w, f.wire, f.y, f.read, ROWS),
                     LOCO_EPROTO);
    free(f.wire);
}

static void what_is_not_finite_is_refused(void **state)
{
    struct fixture f;

    (void)state;
    begin(&f, "fp32", 4 * ROWS);
    assert_int_equal(stage_wire_put_forth(&f.w, f.wire, f.x, f.labels, ROWS),
                     0);
    memset(f.wire + f.bytes - 4, 0xff, 4);
    assert_int_equal(stage_wire_get_forth(&f.w, f.wire, f.y, f.read, ROWS),
                     LOCO_ENUMERIC);
    f.x[7] = INFINITY;
    assert_int_equal(stage_wire_put_back(&f.w, f.wire, f.x, ROWS),
                     LOCO_ENUMERIC);
    free(f.wire);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(activations_and_labels_come_as_they_left),
        cmocka_unit_test(gradients_of_any_size_come_back),
        cmocka_unit_test(a_label_outside_the_vocabulary_is_refused),
        cmocka_unit_test(what_is_not_finite_is_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
