/* msg_test.c - schemas with every kind of field, nested; hostile bytes. */
#include "tests/unit/proto/suite.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "proto/base/err.h"
#include "proto/base/rng.h"
#include "proto/id.h"
#include "proto/msg.h"

#define LEAVES_MAX 3

struct leaf {
    struct peer_id id;
    uint16_t n_data;
    uint8_t data[300];
};

struct tree {
    uint8_t u8;
    uint16_t u16;
    uint32_t u32;
    uint64_t u64;
    bool yes;
    struct leaf one;
    uint32_t n_leaves;
    struct leaf leaves[LEAVES_MAX];
    uint8_t n_words;
    uint64_t words[5];
    uint32_t n_ids;
    struct hash32 ids[2];
    uint8_t n_flags;
    bool flags[4];
};

static const struct msg_field leaf_fields[] = {
    MSG_FIELD_FIXED(struct leaf, id),
    MSG_FIELD_BYTES(struct leaf, data, n_data),
};
static const struct msg_schema leaf_schema =
    MSG_SCHEMA(struct leaf, leaf_fields);

static const struct msg_field tree_fields[] = {
    MSG_FIELD_U8(struct tree, u8),
    MSG_FIELD_U16(struct tree, u16),
    MSG_FIELD_U32(struct tree, u32),
    MSG_FIELD_U64(struct tree, u64),
    MSG_FIELD_BOOL(struct tree, yes),
    MSG_FIELD_STRUCT(struct tree, one, leaf_schema),
    MSG_ARRAY_STRUCT(struct tree, leaves, n_leaves, leaf_schema),
    MSG_ARRAY_U64(struct tree, words, n_words),
    MSG_ARRAY_FIXED(struct tree, ids, n_ids),
    MSG_ARRAY_BOOL(struct tree, flags, n_flags),
};
static const struct msg_schema tree_schema =
    MSG_SCHEMA(struct tree, tree_fields);

static void fill_leaf(struct leaf *l, uint64_t *rng)
{
    for (int i = 0; i < ID_BYTES; i++) {
        l->id.b[i] = (uint8_t)rng_next(rng);
    }
    l->n_data = (uint16_t)rng_below(rng, sizeof l->data + 1);
    memset(l->data, 9, l->n_data);
}

/* A random tree whose unused bytes are zero, as decoding leaves them. */
static void fill_tree(struct tree *t, uint64_t seed)
{
    uint64_t rng = seed;

    memset(t, 0, sizeof *t);
    t->u8 = (uint8_t)rng_next(&rng);
    t->u16 = (uint16_t)(rng_next(&rng) >> rng_below(&rng, 64));
    t->u32 = (uint32_t)(rng_next(&rng) >> rng_below(&rng, 64));
    t->u64 = rng_next(&rng) >> rng_below(&rng, 64);
    t->yes = seed % 3 == 0;
    fill_leaf(&t->one, &rng);
    t->n_leaves = (uint32_t)rng_below(&rng, LEAVES_MAX + 1);
    for (uint32_t i = 0; i < t->n_leaves; i++) {
        fill_leaf(&t->leaves[i], &rng);
    }
    t->n_words = (uint8_t)rng_below(&rng, 6);
    for (unsigned i = 0; i < t->n_words; i++) {
        t->words[i] = rng_next(&rng);
    }
    t->n_ids = (uint32_t)rng_below(&rng, 3);
    for (uint32_t i = 0; i < t->n_ids; i++) {
        t->ids[i].b[31] = 1;
    }
    t->n_flags = 4;
    t->flags[seed % 4] = true;
}

static uint8_t buf[8192];

static void every_object_is_read_back_bit_for_bit(void **state)
{
    struct tree t, back;

    (void)state;
    for (uint64_t seed = 0; seed < 500; seed++) {
        int n;

        fill_tree(&t, seed);
        n = msg_encode(&tree_schema, &t, buf, sizeof buf);
        assert_true(n > 0 && (size_t)n <= msg_bytes_max(&tree_schema));
        memset(&back, 0xaa, sizeof back);
        assert_int_equal(msg_decode(&tree_schema, buf, (size_t)n, &back), 0);
        assert_memory_equal(&t, &back, sizeof t);
    }
}

static void the_longest_object_takes_exactly_the_maximum(void **state)
{
    struct tree t = {.u8 = 255,
                     .u16 = UINT16_MAX,
                     .u32 = UINT32_MAX,
                     .u64 = UINT64_MAX,
                     .n_leaves = LEAVES_MAX,
                     .n_words = 5,
                     .n_ids = 2,
                     .n_flags = 4};
    size_t max = msg_bytes_max(&tree_schema);
    int n;

    (void)state;
    t.one.n_data = 300;
    for (int i = 0; i < LEAVES_MAX; i++) {
        t.leaves[i] = t.one;
    }
    memset(t.words, 255, sizeof t.words);
    n = msg_encode(&tree_schema, &t, buf, sizeof buf);
    assert_int_equal(n, max);
    assert_int_equal(msg_encode(&tree_schema, &t, buf, max), n);
    for (size_t cap = 0; cap < max; cap++) {
        assert_int_equal(msg_encode(&tree_schema, &t, buf, cap), LOCO_ERANGE);
    }
}

static void every_truncation_and_any_tail_is_refused(void **state)
{
    static const struct tree zero;
    struct tree t, back;
    int n;

    (void)state;
    fill_tree(&t, 77);
    n = msg_encode(&tree_schema, &t, buf, sizeof buf);
    assert_true(n > 0);
    for (int len = 0; len < n; len++) {
        /* A copy of its own length, so that reading past it is found. */
        uint8_t *copy = malloc((size_t)len + 1);

        assert_non_null(copy);
        memcpy(copy, buf, (size_t)len);
        assert_int_equal(msg_decode(&tree_schema, copy, (size_t)len, &back),
                         LOCO_EPROTO);
        assert_memory_equal(&back, &zero, sizeof zero);
        free(copy);
    }
    buf[n] = 0;
    assert_int_equal(msg_decode(&tree_schema, buf, (size_t)n + 1, &back),
                     LOCO_EPROTO);
}

static void a_changed_byte_is_refused_or_another_object(void **state)
{
    struct tree t, back;
    uint8_t again[sizeof buf];
    int n;

    (void)state;
    fill_tree(&t, 78);
    n = msg_encode(&tree_schema, &t, buf, sizeof buf);
    for (int i = 0; i < n; i++) {
        for (int bit = 0; bit < 8; bit++) {
            buf[i] ^= (uint8_t)(1U << bit);
            if (msg_decode(&tree_schema, buf, (size_t)n, &back) == 0) {
                assert_int_equal(
                    msg_encode(&tree_schema, &back, again, sizeof again), n);
                assert_memory_equal(again, buf, (size_t)n);
                assert_memory_not_equal(&back, &t, sizeof t);
            }
            buf[i] ^= (uint8_t)(1U << bit);
        }
    }
}

struct pair {
    uint8_t n;
    uint16_t values[2];
};

static const struct msg_field pair_fields[] = {
    MSG_ARRAY_U16(struct pair, values, n),
};
static const struct msg_schema pair_schema =
    MSG_SCHEMA(struct pair, pair_fields);

static void hostile_bytes_are_refused(void **state)
{
    static const struct {
        uint8_t len, bytes[12];
    } rows[] = {
        {1, {0x90}},                                  /* no field */
        {3, {0x92, 0x90, 0x90}},                      /* one too many */
        {2, {0x91, 0x80}},                            /* a map */
        {2, {0x91, 0xc0}},                            /* nil */
        {5, {0x91, 0x93, 1, 2, 3}},                   /* above the maximum */
        {6, {0x91, 0xdd, 255, 255, 255, 255}},        /* far above it */
        {4, {0x91, 0xdc, 0, 1}},                      /* longer form */
        {7, {0x91, 0x91, 0xce, 0, 1, 0, 0}},          /* too large for u16 */
        {3, {0x91, 0x91, 0xff}},                      /* negative */
        {5, {0x91, 0x91, 0xcd, 0, 5}},                /* longer integer */
        {3, {0x91, 0x91, 0xc3}},                      /* bool for a number */
        {12, {0x91, 0x91, 0xcb, 0, 0, 0, 0, 0, 0, 0}} /* float */
    };
    static const uint8_t good[] = {0x91, 0x92, 7, 0xcd, 1, 0};
    struct pair p;

    (void)state;
    for (size_t k = 0; k < N_OF(rows); k++) {
        assert_int_equal(
            msg_decode(&pair_schema, rows[k].bytes, rows[k].len, &p),
            LOCO_EPROTO);
    }
    assert_int_equal(msg_decode(&pair_schema, good, sizeof good, &p), 0);
    assert_int_equal(p.n, 2);
    assert_int_equal(p.values[0], 7);
    assert_int_equal(p.values[1], 256);
}

static void deep_nesting_is_refused_without_recursion(void **state)
{
    struct tree back;

    (void)state;
    memset(buf, 0x91, sizeof buf); /* [[[[[ ... */
    assert_int_equal(msg_decode(&tree_schema, buf, sizeof buf, &back),
                     LOCO_EPROTO);
    assert_int_equal(msg_decode(&pair_schema, buf, sizeof buf, &back),
                     LOCO_EPROTO);
}

static void objects_that_break_their_bounds_are_not_sent(void **state)
{
    struct tree t;

    (void)state;
    fill_tree(&t, 5);
    t.n_leaves = LEAVES_MAX + 1;
    assert_int_equal(msg_encode(&tree_schema, &t, buf, sizeof buf),
                     LOCO_ERANGE);
    fill_tree(&t, 5);
    t.one.n_data = 301;
    assert_int_equal(msg_encode(&tree_schema, &t, buf, sizeof buf),
                     LOCO_ERANGE);
}

static void wrong_tables_are_found(void **state)
{
    struct msg_field f = tree_fields[8];
    struct msg_schema s = tree_schema;

    (void)state;
    assert_true(msg_schema_ok(&tree_schema));
    assert_true(msg_schema_ok(&leaf_schema));
    s.fields = &f;
    s.n_fields = 1;
    assert_true(msg_schema_ok(&s));
    f.offset = s.size - 1;
    assert_false(msg_schema_ok(&s));
    f = tree_fields[7];
    f.max = 256; /* does not fit the 8-bit count */
    f.size = 1;
    assert_false(msg_schema_ok(&s));
    f = tree_fields[5];
    f.sub = &s; /* endless */
    f.size = s.size;
    f.offset = 0;
    assert_false(msg_schema_ok(&s));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_object_is_read_back_bit_for_bit),
        cmocka_unit_test(the_longest_object_takes_exactly_the_maximum),
        cmocka_unit_test(every_truncation_and_any_tail_is_refused),
        cmocka_unit_test(a_changed_byte_is_refused_or_another_object),
        cmocka_unit_test(hostile_bytes_are_refused),
        cmocka_unit_test(deep_nesting_is_refused_without_recursion),
        cmocka_unit_test(objects_that_break_their_bounds_are_not_sent),
        cmocka_unit_test(wrong_tables_are_found),
    };

    return cmocka_run_group_tests_name("proto/msg", tests, NULL, NULL);
}
