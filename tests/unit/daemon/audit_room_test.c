/* audit_room_test.c - the sum of a block, repeated: beside what the owner of a
 * slice makes of the same contributions (daemon/jobs/reduce.h), bit for bit. */
#include "daemon/jobs/audit_room.h"
#include "daemon/jobs/reduce.h"
#include "proto/hash.h"
#include "tests/unit/daemon/announced.h"

#define ROUND   17
#define ATTEMPT (5ULL << 32 | ROUND)
#define BLOCKS  3 /* of a vector; the last one is short */

/* n members, what they announced, and the result that their owner made. */
struct table {
    uint32_t n, rank; /* ours: who repeats sums */
    struct offer_cut cut;
    struct announced *member;
    struct offers offers; /* our own one, as spent */
    struct audit_room room;
    struct audit_sum sum;
    uint8_t *result;
};

static double scale_of(const struct table *t, uint32_t lane)
{
    return (lane + 1.0) / (t->n * (t->n + 1.0) / 2);
}

static struct segment lane_of(const struct table *t, uint32_t lane, uint64_t k)
{
    struct segment s = announced_piece(&t->member[lane], k, k + 1);

    s.op = SEGMENT_LANE;
    s.lane = (uint8_t)lane;
    s.lanes = (uint8_t)t->n;
    s.scale = scale_of(t, lane);
    return s;
}

/* The owner sums the whole vector as one segment. */
static void own_sum(struct table *t, uint32_t owner)
{
    struct reduce r = {.codec = t->cut.codec,
                       .segment_elements = (uint32_t)t->cut.elements,
                       .clip = t->sum.clip,
                       .centred = t->sum.centred};
    const struct reduce_vectors v = {.own = t->member[owner].own};

    for (uint32_t i = 0; i <= t->n; i++) {
        struct segment s = announced_piece(&t->member[i % t->n], 0, BLOCKS);
        uint8_t *bytes = announced_bytes(&t->member[i % t->n], &s);

        s.attempt = ATTEMPT;
        s.lane = (uint8_t)(i < t->n ? i : owner);
        s.lanes = (uint8_t)t->n;
        s.scale = scale_of(t, s.lane);
        if (i < t->n && i != owner) {
            assert_int_equal(reduce_keep(&r, &s, bytes), 0);
        } else if (i == t->n) {
            assert_int_equal(reduce_sum(&r, &v, &s, t->result), 0);
        }
        free(bytes);
    }
    lanes_free(&r.lanes);
}

static void
lay(struct table *t, unsigned codec, uint32_t n, float clip, bool centred)
{
    struct offer_cut cut = announced_cut(codec, 1);
    struct announced mine;

    cut.elements = BLOCKS * cut.block - 77;
    *t = (struct table){.n = n,
                        .rank = n / 2,
                        .cut = cut,
                        .member = calloc(n, sizeof *t->member),
                        .result = malloc(cut.codec->bytes(cut.elements)),
                        .sum = {cut.codec, clip, centred, NULL}};
    assert_true(t->member != NULL && t->result != NULL);
    for (uint32_t i = 0; i < n; i++) {
        announced_open(&t->member[i], &cut, (uint8_t)(i + 1), ROUND);
    }
    announced_open(&mine, &cut, (uint8_t)(t->rank + 1), ROUND);
    offers_open(&t->offers, &mine.offer);
    offers_spend(&t->offers, ROUND);
    announced_close(&mine);
    own_sum(t, n - 1);
}

static void clear(struct table *t)
{
    for (uint32_t i = 0; i < t->n; i++) {
        announced_close(&t->member[i]);
    }
    free(t->member);
    free(t->result);
    offers_free(&t->offers);
    audit_room_free(&t->room);
}

static int take(struct table *t, uint32_t lane, uint64_t k)
{
    struct segment s = lane_of(t, lane, k);
    uint8_t *bytes = announced_bytes(&t->member[lane], &s);
    int rv = audit_room_take(&t->room, &t->cut, &s, bytes);

    free(bytes);
    return rv;
}

static int own(struct table *t, uint64_t k)
{
    const struct segment s = lane_of(t, t->rank, k);

    return audit_room_own(&t->room, &t->cut, &t->offers, &s);
}

/* All contributions to block k, our own one last as in an audit. */
static void collect(struct table *t, uint64_t k)
{
    for (uint32_t i = 0; i < t->n; i++) {
        assert_int_equal(i == t->rank ? 0 : take(t, i, k), 0);
    }
    assert_int_equal(own(t, k), 0);
}

/* Whether the room says that block k of the result is wrong. */
static bool is_wrong(struct table *t, uint64_t k)
{
    bool wrong;

    t->sum.result = t->result + k * t->cut.codec->bytes(t->cut.block);
    for (int was = 0; was < 2; was++) {
        wrong = was;
        assert_int_equal(audit_room_sum(&t->room, &t->sum, &wrong), 0);
    }
    return wrong;
}

static size_t bytes_of(const struct table *t, uint64_t k)
{
    return t->cut.codec->bytes(lane_of(t, 0, k).len);
}

static void
with_each(const uint32_t *counts, int n_counts, void (*look)(struct table *t))
{
    for (unsigned codec = 0; codec < CODEC_COUNT; codec++) {
        for (int i = 0; i < n_counts; i++) {
            for (int way = 0; way < 3; way++) {
                struct table t;

                lay(&t, codec, counts[i], way == 0 ? 0 : 0.8F, way == 2);
                look(&t);
                clear(&t);
            }
        }
    }
}

/* ---- right and wrong ----------------------------------------------------- */

static void look_at_each_block(struct table *t)
{
    uint8_t *block = t->result;

    for (uint64_t k = 0; k < BLOCKS; k++) {
        size_t len = bytes_of(t, k), places[] = {0, len / 2, len - 1};

        collect(t, k);
        assert_false(is_wrong(t, k));
        for (int i = 0; i < 3; i++) {
            block[places[i]] ^= 1;
            assert_true(is_wrong(t, k));
            block[places[i]] ^= 1;
        }
        assert_false(is_wrong(t, k));
        block += len;
    }
}

static void a_right_sum_is_right_and_one_other_byte_is_wrong(void **state)
{
    static const uint32_t counts[] = {2, 3, 64};

    (void)state;
    with_each(counts, 3, look_at_each_block);
}

/* The ways to sum differ, or the test above would say nothing of clips. */
static void a_sum_made_in_another_way_is_wrong(void **state)
{
    (void)state;
    for (unsigned codec = 0; codec < CODEC_COUNT; codec++) {
        struct table t;

        lay(&t, codec, 5, 0.8F, true);
        collect(&t, 1);
        assert_false(is_wrong(&t, 1));
        t.sum.centred = false;
        assert_true(is_wrong(&t, 1));
        t.sum.clip = 0;
        assert_true(is_wrong(&t, 1));
        clear(&t);
    }
}

/* With another weight than the plan's it is another sum. */
static void a_weight_is_part_of_the_sum(void **state)
{
    struct table t;
    struct segment s;
    uint8_t *bytes;

    (void)state;
    lay(&t, CODEC_FP32, 3, 0, false);
    collect(&t, 0);
    s = lane_of(&t, 2, 0);
    bytes = announced_bytes(&t.member[2], &s);
    s.scale /= 2;
    assert_int_equal(audit_room_take(&t.room, &t.cut, &s, bytes), 0);
    assert_true(is_wrong(&t, 0));
    free(bytes);
    clear(&t);
}

/* Announced and proven, and all the same no numbers: an honest owner had sent
 * no sum of them. */
static void what_does_not_decode_has_no_right_sum(void **state)
{
    (void)state;
    for (unsigned codec = 0; codec < CODEC_COUNT; codec++) {
        struct table t;
        struct offer *o;
        size_t len;

        lay(&t, codec, 3, 0, false);
        o = &t.member[2].offer;
        len = t.cut.codec->bytes(t.cut.block);
        memset(o->bytes + len, 0xff, len); /* block 1 */
        hash_tree_leaf(o->bytes + len, len, &o->nodes[1]);
        blocks_build(o->nodes, o->n);
        blocks_offer(&t.member[2].maker, ROUND, offer_root(o),
                     &t.member[2].root);
        collect(&t, 0);
        assert_false(is_wrong(&t, 0));
        collect(&t, 1);
        assert_true(is_wrong(&t, 1));
        clear(&t);
    }
}

/* ---- lanes --------------------------------------------------------------- */

static void leave_out_each_lane(struct table *t)
{
    for (uint32_t out = 0; out < t->n; out++) {
        uint64_t k = out % BLOCKS; /* another one each time: it is empty */
        bool wrong;

        for (uint32_t i = 0; i < t->n; i++) {
            assert_int_equal(i == out ? 0 : take(t, i, k), 0);
        }
        assert_int_equal(audit_room_sum(&t->room, &t->sum, &wrong),
                         LOCO_ENOENT);
        assert_int_equal(take(t, out, k), 0);
        assert_false(is_wrong(t, k));
    }
}

static void no_sum_without_each_lane(void **state)
{
    static const uint32_t counts[] = {2, 3, 64};
    struct audit_room empty = {0};
    struct audit_sum sum = {.codec = codec_get(CODEC_INT8)};
    bool wrong;

    (void)state;
    assert_int_equal(audit_room_sum(&empty, &sum, &wrong), LOCO_ENOENT);
    with_each(counts, 3, leave_out_each_lane);
}

static bool has(const struct table *t, uint64_t round, uint64_t k, uint32_t i)
{
    return audit_room_at(&t->room, round, k * t->cut.block, i) != NULL;
}

static void lanes_are_kept_as_they_came(void **state)
{
    struct table t;

    (void)state;
    lay(&t, CODEC_FP16, 3, 0, false);
    collect(&t, 2);
    for (uint32_t i = 0; i < 3; i++) {
        const struct segment s = lane_of(&t, i, 2);
        uint8_t *bytes = announced_bytes(&t.member[i], &s);

        assert_true(has(&t, ROUND, 2, i));
        assert_memory_equal(
            audit_room_at(&t.room, ROUND, 2ULL * t.cut.block, i), bytes,
            t.cut.codec->bytes(s.len) + offer_proof_bytes(&t.cut, &s));
        free(bytes);
    }
    assert_false(has(&t, ROUND, 2, 3));
    assert_false(has(&t, ROUND, 2, 64 + 1));
    assert_false(has(&t, ROUND, 1, 0));
    assert_false(has(&t, ROUND + 1, 2, 0));
    clear(&t);
}

static void a_lane_of_another_block_empties_the_room(void **state)
{
    struct table t;
    struct segment s;
    uint8_t *bytes;
    bool wrong;

    (void)state;
    lay(&t, CODEC_INT8, 3, 0, false);
    collect(&t, 0);
    assert_int_equal(take(&t, 2, 1), 0);
    for (uint32_t i = 0; i < 3; i++) {
        assert_false(has(&t, ROUND, 0, i));
        assert_int_equal(has(&t, ROUND, 1, i), i == 2);
    }
    assert_int_equal(audit_room_sum(&t.room, &t.sum, &wrong), LOCO_ENOENT);
    collect(&t, 1);
    s = announced_piece(&t.member[0], 1, 3); /* from there, but longer */
    s.lanes = 3;
    bytes = announced_bytes(&t.member[0], &s);
    assert_int_equal(audit_room_take(&t.room, &t.cut, &s, bytes), 0);
    assert_true(has(&t, ROUND, 1, 0));
    assert_false(has(&t, ROUND, 1, 1));
    assert_memory_equal(audit_room_at(&t.room, ROUND, s.offset, 0), bytes,
                        t.cut.codec->bytes(s.len));
    s.lanes = 2; /* of fewer members */
    s.lane = 1;
    assert_int_equal(audit_room_take(&t.room, &t.cut, &s, bytes), 0);
    assert_false(has(&t, ROUND, 1, 0));
    assert_true(has(&t, ROUND, 1, 1));
    free(bytes);
    collect(&t, 1);
    assert_int_equal(own(&t, 2), 0); /* our own one empties it, too */
    assert_false(has(&t, ROUND, 1, 0));
    assert_true(has(&t, ROUND, 2, t.rank));
    clear(&t);
}

static void what_was_not_announced_leaves_the_room_as_it_is(void **state)
{
    struct table t;
    struct segment s;
    uint8_t *bytes;

    (void)state;
    lay(&t, CODEC_INT8, 3, 0, false);
    collect(&t, 0);
    for (uint64_t k = 0; k < 2; k++) {
        s = lane_of(&t, 0, k);
        bytes = announced_bytes(&t.member[0], &s);
        bytes[20] ^= 4;
        assert_int_equal(audit_room_take(&t.room, &t.cut, &s, bytes),
                         LOCO_EHASH);
        free(bytes);
        assert_false(is_wrong(&t, 0));
    }
    clear(&t);
}

static void there_are_as_many_lanes_as_members(void **state)
{
    struct table t;
    struct segment s;
    uint8_t *bytes;

    (void)state;
    lay(&t, CODEC_INT8, 3, 0, false);
    collect(&t, 0);
    s = lane_of(&t, 1, 0);
    bytes = announced_bytes(&t.member[1], &s);
    s.lane = 3;
    assert_int_equal(audit_room_take(&t.room, &t.cut, &s, bytes), LOCO_EINVAL);
    assert_int_equal(audit_room_own(&t.room, &t.cut, &t.offers, &s),
                     LOCO_EINVAL);
    s.lane = 0;
    s.lanes = 0;
    assert_int_equal(audit_room_take(&t.room, &t.cut, &s, bytes), LOCO_EINVAL);
    s.lanes = CODEC_TERMS_MAX + 1;
    assert_int_equal(audit_room_take(&t.room, &t.cut, &s, bytes), LOCO_EINVAL);
    assert_int_equal(audit_room_own(&t.room, &t.cut, &t.offers, &s),
                     LOCO_EINVAL);
    assert_false(is_wrong(&t, 0)); /* and nothing has changed */
    free(bytes);
    clear(&t);
}

static void a_contribution_of_long_ago_is_not_here(void **state)
{
    struct table t;
    struct segment s;

    (void)state;
    lay(&t, CODEC_INT8, 3, 0, false);
    s = lane_of(&t, t.rank, 0);
    s.index = ROUND - 1;
    assert_int_equal(audit_room_own(&t.room, &t.cut, &t.offers, &s),
                     LOCO_ENOENT);
    assert_int_equal(own(&t, 0), 0);
    clear(&t);
}

/* What lies here may be made anew since. To sum that would convict an honest
 * owner. */
static void the_own_contribution_counts_as_it_was_announced(void **state)
{
    struct table t;
    struct announced other;
    bool wrong;

    (void)state;
    lay(&t, CODEC_INT8, 3, 0, false);
    collect(&t, 0);
    assert_false(is_wrong(&t, 0));
    announced_open(&other, &t.cut, 9, ROUND);
    offers_open(&t.offers, &other.offer);
    offers_spend(&t.offers, ROUND);
    assert_int_equal(own(&t, 0), LOCO_EHASH);
    assert_false(has(&t, ROUND, 0, t.rank));
    assert_int_equal(audit_room_sum(&t.room, &t.sum, &wrong), LOCO_ENOENT);
    announced_close(&other);
    clear(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_right_sum_is_right_and_one_other_byte_is_wrong),
        cmocka_unit_test(a_sum_made_in_another_way_is_wrong),
        cmocka_unit_test(a_weight_is_part_of_the_sum),
        cmocka_unit_test(what_does_not_decode_has_no_right_sum),
        cmocka_unit_test(no_sum_without_each_lane),
        cmocka_unit_test(lanes_are_kept_as_they_came),
        cmocka_unit_test(a_lane_of_another_block_empties_the_room),
        cmocka_unit_test(what_was_not_announced_leaves_the_room_as_it_is),
        cmocka_unit_test(there_are_as_many_lanes_as_members),
        cmocka_unit_test(a_contribution_of_long_ago_is_not_here),
        cmocka_unit_test(the_own_contribution_counts_as_it_was_announced),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
