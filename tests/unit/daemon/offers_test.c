/* offers_test.c - what is announced binds each piece that is sent: its maker,
 * its round, its place and each of its bytes. And which round asks for which
 * contribution. */
#include <math.h>

#include "daemon/jobs/reduce.h"
#include "daemon/jobs/segments.h"
#include "tests/unit/daemon/announced.h"

#define MOST 5U /* blocks of a piece */

/* Odd vectors of one block to a dozen. */
static uint64_t length(const struct offer_cut *cut, int k)
{
    const uint64_t block = cut->block;
    const uint64_t lengths[] = {1,
                                block - 1,
                                block,
                                block + 1,
                                5 * block + 3,
                                7 * block - 5,
                                12 * block + block / 2 + 1};

    return k < (int)(sizeof lengths / sizeof lengths[0]) ? lengths[k] : 0;
}

static int check_bytes(const struct announced *a,
                       const struct segment *s,
                       const uint8_t *bytes)
{
    return offer_check(&a->cut, s, a->round, bytes);
}

/* ---- pieces -------------------------------------------------------------- */

/* What the exchange would send of the same elements. */
static void same_as_encoded(const struct announced *a,
                            const struct segment *s,
                            const uint8_t *bytes)
{
    const struct reduce r = {.codec = a->cut.codec};
    const struct reduce_vectors v = {.own = a->own};
    struct segment send = *s;
    uint8_t *again = malloc(a->cut.codec->bytes(s->len));

    assert_non_null(again);
    send.scale = 1;
    assert_int_equal(reduce_encode(&r, &v, &send, again), 0);
    assert_memory_equal(bytes, again, a->cut.codec->bytes(s->len));
    free(again);
}

static void each_piece_is_what_its_maker_announced(void **state)
{
    uint32_t pieces = 0;

    (void)state;
    for (unsigned id = 0; id < CODEC_COUNT; id++) {
        struct offer_cut cut = announced_cut(id, 1);

        for (int k = 0; (cut.elements = length(&cut, k)) > 0; k++) {
            struct announced a;
            uint64_t n = announced_blocks(&cut);

            announced_open(&a, &cut, 3, 17);
            for (uint64_t from = 0; from < n; from++) {
                for (uint64_t to = from + 1; to <= n && to - from <= MOST;
                     to++) {
                    struct segment s = announced_piece(&a, from, to);
                    uint8_t *bytes = announced_bytes(&a, &s);

                    assert_int_equal(check_bytes(&a, &s, bytes), 0);
                    same_as_encoded(&a, &s, bytes);
                    free(bytes);
                    pieces++;
                }
            }
            announced_close(&a);
        }
    }
    assert_true(pieces > CODEC_COUNT * 50);
}

static int bring_own(void *self, uint64_t at, uint64_t n, float *out)
{
    const float *own = self;

    memcpy(out, own + at, n * sizeof *out);
    return 0;
}

static int bring_error(void *self, uint64_t at, uint64_t n, float *out)
{
    uint64_t *left = self;

    (void)at;
    memset(out, 0, n * sizeof *out);
    return (*left)-- > 0 ? 0 : LOCO_ENUMERIC;
}

/* A vector that nobody has as a whole is announced window by window. */
static void windows_make_the_offer_of_the_whole(void **state)
{
    (void)state;
    for (unsigned id = 0; id < CODEC_COUNT; id++) {
        struct offer_cut cut = announced_cut(id, 3 * ENGINE_WINDOW + 13);
        struct engine_source source = {bring_own, NULL};
        struct announced a;
        struct offer o;
        uint64_t left = 2;

        announced_open(&a, &cut, 3, 17);
        source.self = a.own;
        assert_int_equal(offer_make_from(&o, &cut, &source), 0);
        assert_memory_equal(o.bytes, a.offer.bytes,
                            cut.codec->bytes(cut.elements));
        assert_true(hash32_eq(offer_root(&o), offer_root(&a.offer)));
        assert_ptr_equal(offer_at(&o, &cut, 0, cut.elements), o.bytes);
        assert_null(offer_at(&o, &cut, 0, cut.elements + 1));
        assert_null(offer_at(&o, &cut, 1, cut.block));
        assert_null(offer_at(&o, &cut, cut.block, UINT64_MAX));
        offer_free(&o);
        source = (struct engine_source){bring_error, &left};
        assert_int_equal(offer_make_from(&o, &cut, &source), LOCO_ENUMERIC);
        assert_null(o.bytes);
        announced_close(&a);
    }
}

static void another_maker_round_or_place_is_refused(void **state)
{
    (void)state;
    for (unsigned id = 0; id < CODEC_COUNT; id++) {
        struct offer_cut cut = announced_cut(id, 1);
        struct announced a;

        cut.elements = 12 * cut.block + 7;
        announced_open(&a, &cut, 3, 17);
        for (uint64_t to = 5; to < 5 + MOST; to++) {
            struct segment s = announced_piece(&a, 4, to), other = s;
            uint8_t *bytes = announced_bytes(&a, &s);

            assert_int_equal(check_bytes(&a, &s, bytes), 0);
            assert_int_equal(offer_check(&cut, &s, 18, bytes), LOCO_EHASH);
            other.maker.b[0]++;
            assert_int_equal(check_bytes(&a, &other, bytes), LOCO_EHASH);
            other = s;
            other.offer.b[31] ^= 0x80;
            assert_int_equal(check_bytes(&a, &other, bytes), LOCO_EHASH);
            for (uint64_t at = 0; at + (to - 4) <= 12; at++) {
                other = s;
                other.offset = at * cut.block;
                assert_int_equal(check_bytes(&a, &other, bytes),
                                 at == 4 ? 0 : LOCO_EHASH);
            }
            free(bytes);
        }
        announced_close(&a);
    }
}

/* The maker itself cannot send another vector, not by one bit. */
static void another_byte_of_a_piece_or_of_its_proof_is_refused(void **state)
{
    (void)state;
    for (unsigned id = 0; id < CODEC_COUNT; id++) {
        struct offer_cut cut = announced_cut(id, 1);
        struct announced a;
        struct segment s;
        uint8_t *bytes;
        size_t len, all;

        cut.elements = 9 * cut.block + 201;
        announced_open(&a, &cut, 3, 17);
        for (uint64_t from = 7; from < 9; from++) { /* whole, then short */
            s = announced_piece(&a, from, 2 * from - 6);
            bytes = announced_bytes(&a, &s);
            len = cut.codec->bytes(s.len);
            all = len + offer_proof_bytes(&cut, &s);
            assert_true(all > len && (all - len) % 32 == 0);
            for (size_t i = 0; i < all; i += i >= len ? 1 : 1 + len / 150) {
                bytes[i] ^= (uint8_t)(1U << i % 8);
                assert_int_equal(check_bytes(&a, &s, bytes), LOCO_EHASH);
                bytes[i] ^= (uint8_t)(1U << i % 8);
            }
            assert_int_equal(check_bytes(&a, &s, bytes), 0);
            free(bytes);
        }
        announced_close(&a);
    }
}

static void what_is_not_of_the_vector_has_no_proof(void **state)
{
    struct offer_cut cut = announced_cut(CODEC_INT8, 5000), other = cut;
    uint8_t proof[PROOF_ROOM];
    struct announced a;
    struct segment s;

    (void)state;
    announced_open(&a, &cut, 1, 1);
    s = announced_piece(&a, 1, 3);
    assert_int_equal(offer_prove(&a.offer, &cut, &s, proof), 0);
    other.elements = 5001; /* of another round's length */
    assert_int_equal(offer_prove(&a.offer, &other, &s, proof), LOCO_ERANGE);
    s.offset++;
    assert_int_equal(offer_prove(&a.offer, &cut, &s, proof), LOCO_ERANGE);
    s = announced_piece(&a, 4, 5);
    assert_int_equal(offer_prove(&a.offer, &cut, &s, proof), 0);
    s.len++;
    assert_int_equal(offer_prove(&a.offer, &cut, &s, proof), LOCO_ERANGE);
    s.len = 0;
    assert_int_equal(offer_prove(&a.offer, &cut, &s, proof), LOCO_ERANGE);
    announced_close(&a);
}

static void what_is_not_finite_has_no_offer(void **state)
{
    const float bad[] = {INFINITY, -INFINITY, NAN};

    (void)state;
    for (unsigned id = 0; id < CODEC_COUNT; id++) {
        struct offer_cut cut = announced_cut(id, 3 * CODEC_BLOCK_MAX + 1);
        float *own = announced_vector(cut.elements, 5);

        for (int k = 0; k < 3; k++) {
            struct offer o = {.n = 9};

            own[cut.elements - 1 - (unsigned)k] = bad[k];
            assert_int_equal(offer_make(&o, &cut, own), LOCO_ENUMERIC);
            assert_int_equal(o.n, 0);
            assert_null(o.bytes);
            assert_null(o.nodes);
            own[cut.elements - 1 - (unsigned)k] = 0;
        }
        free(own);
    }
}

/* ---- lengths ------------------------------------------------------------- */

/* The bytes that offer_fill() writes, counted: those that differ from what was
 * there, for two things that were there. */
static size_t written(const struct announced *a, const struct segment *s)
{
    size_t room = a->cut.codec->bytes(s->len) + PROOF_ROOM, last = 0;
    uint8_t *bytes = malloc(room);

    assert_non_null(bytes);
    for (int fill = 0; fill < 2; fill++) {
        uint8_t was = fill ? 0x55 : 0xaa;

        memset(bytes, was, room);
        assert_int_equal(offer_fill(&a->offer, &a->cut, s, bytes), 0);
        for (size_t i = last; i < room; i++) {
            last = bytes[i] != was ? i + 1 : last;
        }
    }
    free(bytes);
    return last;
}

/* Rounds of two lengths: the proof is as long as the tree of the round that the
 * segment is of is deep. */
static void the_wire_has_room_for_bytes_and_proof(void **state)
{
    struct run_terms t = {.n_turns = 2, .segment_elements = 2048};

    (void)state;
    t.turns[0].elements = 40000;
    t.turns[1].elements = 3000;
    for (unsigned id = 0; id < CODEC_COUNT; id++) {
        for (uint64_t round = 1; round <= 2; round++) {
            struct offer_cut cut =
                announced_cut(id, t.turns[round - 1].elements);
            struct announced a;
            struct segment s, plain;

            t.block = cut.block;
            announced_open(&a, &cut, 3, round);
            for (uint64_t k = 0; k < announced_blocks(&cut); k++) {
                s = announced_piece(&a, k, k + 1);
                assert_int_equal(segment_wire_len(&t, cut.codec, &s),
                                 written(&a, &s));
                plain = s;
                plain.proven = false;
                assert_int_equal(segment_wire_len(&t, cut.codec, &plain),
                                 cut.codec->bytes(s.len));
                s.buffer = BUFFER_RING; /* on its way to the owner */
                s.index = 0;
                s.attempt = 7ULL << 32 | round;
                assert_int_equal(segment_wire_len(&t, cut.codec, &s),
                                 written(&a, &s));
            }
            announced_close(&a);
        }
    }
}

/* ---- which round has which ----------------------------------------------- */

/* A contribution of its own for each mark; open it. */
static struct hash32 open_one(struct offers *s, uint8_t mark)
{
    const struct offer_cut cut = announced_cut(CODEC_INT8, 2000);
    struct announced a;
    struct hash32 root;

    announced_open(&a, &cut, mark, 1);
    root = *offer_root(&a.offer);
    offers_open(s, &a.offer);
    assert_int_equal(a.offer.n, 0); /* it went over */
    announced_close(&a);
    return root;
}

static bool is(const struct offers *s, uint64_t round, const struct hash32 *h)
{
    const struct offer *o = offers_find(s, round);

    return o != NULL && hash32_eq(offer_root(o), h);
}

static void the_last_two_commits_can_be_asked_for(void **state)
{
    struct offers s = {0};
    struct hash32 one, two, three;

    (void)state;
    assert_null(offers_find(&s, 0));
    assert_null(offers_find(&s, 1));
    one = open_one(&s, 1);
    assert_true(is(&s, 0, &one));
    assert_true(is(&s, 4, &one)); /* a commit has it that is not here yet */
    offers_spend(&s, 4);
    assert_null(offers_find(&s, 5));
    assert_true(is(&s, 4, &one));
    two = open_one(&s, 2);
    assert_true(is(&s, 0, &two));
    assert_true(is(&s, 4, &one));
    offers_spend(&s, 5);
    assert_true(is(&s, 4, &one));
    assert_true(is(&s, 5, &two));
    three = open_one(&s, 3);
    offers_spend(&s, 7);
    assert_null(offers_find(&s, 4)); /* the oldest went */
    assert_null(offers_find(&s, 6));
    assert_true(is(&s, 5, &two));
    assert_true(is(&s, 7, &three));
    offers_free(&s);
}

static void what_is_packed_again_takes_the_place_of_what_is_open(void **state)
{
    struct offers s = {0};
    struct hash32 one, two;

    (void)state;
    one = open_one(&s, 1);
    two = open_one(&s, 2);
    assert_false(hash32_eq(&one, &two));
    assert_true(is(&s, 0, &two));
    offers_spend(&s, 1);
    assert_true(is(&s, 1, &two));
    offers_free(&s);
}

/* A branch that lost: the same contribution goes into the next commit. */
static void a_commit_that_was_lost_again_leaves_its_contribution(void **state)
{
    struct offers s = {0};
    struct hash32 one, two;

    (void)state;
    offers_spend(&s, 3); /* with nothing there: nothing is there */
    assert_null(offers_find(&s, 3));
    one = open_one(&s, 1);
    offers_spend(&s, 4);
    two = open_one(&s, 2);
    offers_spend(&s, 5);
    assert_true(is(&s, 0, &two));
    offers_spend(&s, 6); /* of round 5 nobody knows any more */
    assert_null(offers_find(&s, 5));
    assert_true(is(&s, 6, &two));
    assert_true(is(&s, 4, &one));
    offers_free(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_piece_is_what_its_maker_announced),
        cmocka_unit_test(windows_make_the_offer_of_the_whole),
        cmocka_unit_test(another_maker_round_or_place_is_refused),
        cmocka_unit_test(another_byte_of_a_piece_or_of_its_proof_is_refused),
        cmocka_unit_test(what_is_not_of_the_vector_has_no_proof),
        cmocka_unit_test(what_is_not_finite_has_no_offer),
        cmocka_unit_test(the_wire_has_room_for_bytes_and_proof),
        cmocka_unit_test(the_last_two_commits_can_be_asked_for),
        cmocka_unit_test(what_is_packed_again_takes_the_place_of_what_is_open),
        cmocka_unit_test(a_commit_that_was_lost_again_leaves_its_contribution),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
