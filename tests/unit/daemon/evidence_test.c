/* evidence_test.c - a file convicts who signed a wrong sum, and nobody else. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>

#include <cmocka.h>

#include "p2p/exchange/butterfly.h"
#include "proto/base/err.h"
#include "tests/unit/daemon/crime.h"
#include "tests/unit/sanitized.h"

static const char *const wires[] = {"fp32", "fp16", "int8",
                                    "e3m0", "int2", "sparse"};
static const char *const robusts[] = {"", "clip", "centred"};

/* `sparse` goes with none of the clips (rules.def). */
static size_t robusts_of(const char *wire)
{
    return strcmp(wire, "sparse") == 0 ? 1 : sizeof robusts / sizeof robusts[0];
}

static struct evidence_verdict verdict;
static char errmsg[ERRMSG_SIZE];

/* What the file that accuses `rank` of that block comes to. */
static int try_file(const struct crime *c, uint32_t rank, uint64_t block)
{
    size_t len;
    uint8_t *bytes = crime_file(c, rank, block, &len);
    int rv;

    memset(&verdict, 0xff, sizeof verdict);
    errmsg[0] = '\0';
    rv = evidence_check(bytes, len, &c->verifier, &verdict, errmsg);
    free(bytes);
    return rv;
}

/* It is refused with that code, in a sentence that says this. */
static void refused(int rv, int code, const char *words)
{
    if (rv != code || strstr(errmsg, words) == NULL) {
        fail_msg("expected %d and \"%s\", got %d and \"%s\"", code, words, rv,
                 errmsg);
    }
}

/* Who owns that block, by the slices themselves. */
static uint32_t owner_of(const struct crime *c, uint64_t block)
{
    struct butterfly_shape s = {
        .cut = {.elements = c->elements,
                .block = c->terms.block,
                .segment_elements = c->terms.segment_elements,
                .chunk_segments = c->terms.chunk_segments,
                .n = CRIME_MEMBERS}};
    uint64_t at = block * c->terms.block, begin, end;

    for (uint32_t k = 0; k < CRIME_MEMBERS; k++) {
        s.share[k] = c->plan.members[k].share;
    }
    for (uint32_t stripe = 0;; stripe++) {
        for (uint32_t k = 0; k < CRIME_MEMBERS; k++) {
            butterfly_slice(&s, stripe, k, &begin, &end);
            if (at >= begin && at < end) {
                return k;
            }
        }
    }
}

/* A round in which the owner of the first block lied about it. */
static struct crime *crime_of(const char *wire, const char *robust)
{
    struct crime *c = crime_open(wire, robust);

    crime_lie(c, 0, owner_of(c, 0));
    crime_seal(c);
    crime_vote(c, owner_of(c, 0));
    return c;
}

static void assert_convicts(const struct crime *c, uint32_t rank, uint64_t b)
{
    const struct evidence_place p = crime_place(c, b);

    assert_int_equal(try_file(c, rank, b), 0);
    assert_true(hash32_eq(&verdict.run, &c->run));
    assert_true(id_eq(&verdict.accused, &c->who[crime_index(c, rank)].id));
    assert_int_equal(verdict.round, CRIME_ROUND);
    assert_int_equal(verdict.epoch, CRIME_EPOCH);
    assert_int_equal(verdict.n_members, CRIME_MEMBERS);
    assert_int_equal(verdict.first, b * c->terms.block);
    assert_int_equal(verdict.end, p.at + p.elements);
}

static void all_accusations(const char *wire, const char *robust)
{
    struct crime *c = crime_open(wire, robust);

    for (uint64_t b = 0; b < c->n_blocks; b++) {
        uint32_t owner = owner_of(c, b);

        assert_true(crime_sum(c));
        crime_lie(c, b, owner);
        crime_seal(c);
        for (uint32_t k = 0; k < CRIME_MEMBERS; k++) {
            crime_vote(c, k);
            if (k == owner) {
                assert_convicts(c, k, b);
                assert_int_equal(verdict.finding, EVIDENCE_DIFFERS);
                assert_in_range(verdict.n_differ, 1,
                                crime_place(c, b).elements);
                assert_true(verdict.largest > 0 && verdict.largest < 1);
            } else {
                refused(try_file(c, k, b), LOCO_EINVAL, "does not own");
                refused(try_file(c, owner, b), LOCO_ESIG, "not signed");
            }
        }
    }
    crime_close(c);
}

static void a_wrong_sum_convicts_its_owner_and_nobody_else(void **state)
{
    (void)state;
    for (size_t w = 0; w < sizeof wires / sizeof wires[0]; w++) {
        for (size_t r = 0; r < robusts_of(wires[w]); r++) {
            all_accusations(wires[w], robusts[r]);
        }
    }
}

static void a_right_sum_convicts_nobody(void **state)
{
    (void)state;
    for (size_t w = 0; w < sizeof wires / sizeof wires[0]; w++) {
        for (size_t r = 0; r < robusts_of(wires[w]); r++) {
            struct crime *c = crime_open(wires[w], robusts[r]);

            crime_seal(c);
            for (uint64_t b = 0; b < c->n_blocks; b++) {
                crime_vote(c, owner_of(c, b));
                refused(try_file(c, owner_of(c, b), b), LOCO_EINVAL,
                        "the sum is right");
            }
            crime_close(c);
        }
    }
}

/* A lie about the last block does not make the others wrong. */
static void a_right_block_of_a_wrong_result_convicts_nobody(void **state)
{
    struct crime *c = crime_open("int8", "centred");
    uint64_t last = c->n_blocks - 1;

    (void)state;
    crime_lie(c, last, owner_of(c, last));
    crime_seal(c);
    for (uint64_t b = 0; b < last; b++) {
        crime_vote(c, owner_of(c, b));
        refused(try_file(c, owner_of(c, b), b), LOCO_EINVAL,
                "the sum is right");
    }
    crime_close(c);
}

/* ---- every byte -----------------------------------------------------------
 */

static void change_bytes(const char *wire, size_t step)
{
    struct crime *c = crime_of(wire, "centred");
    size_t len;
    uint8_t *bytes = crime_file(c, owner_of(c, 0), 0, &len);

    assert_int_equal(evidence_check(bytes, len, &c->verifier, &verdict, errmsg),
                     0);
    for (size_t i = 0; i < len; i += step) {
        bytes[i] ^= (uint8_t)(1U << (i / step % 8));
        if (evidence_check(bytes, len, &c->verifier, &verdict, errmsg) == 0) {
            fail_msg("%s: a changed byte %zu of %zu passed", wire, i, len);
        }
        bytes[i] ^= (uint8_t)(1U << (i / step % 8));
    }
    free(bytes);
    crime_close(c);
}

/* All bytes where a block is short; the parts before it are the same. */
static void one_bit_changed_in_any_byte_is_refused(void **state)
{
    (void)state;
    change_bytes("e3m0", TURNS(1, 29));
    change_bytes("int8", TURNS(7, 203));
    change_bytes("fp16", TURNS(13, 401));
    change_bytes("fp32", TURNS(13, 401));
}

static void a_file_that_is_cut_or_goes_on_is_refused(void **state)
{
    struct crime *c = crime_of("e3m0", "");
    size_t len;
    uint8_t *bytes = crime_file(c, owner_of(c, 0), 0, &len);
    uint8_t *more = crime_room(len + 1);

    (void)state;
    for (size_t n = 0; n < len; n += TURNS(1, 29)) {
        int rv = evidence_check(bytes, n, &c->verifier, &verdict, errmsg);

        assert_int_equal(rv, LOCO_EFORMAT);
    }
    memcpy(more, bytes, len);
    refused(evidence_check(more, len + 1, &c->verifier, &verdict, errmsg),
            LOCO_EFORMAT, "bytes follow the end");
    for (uint8_t version = 0; version < 4; version++) {
        bytes[8] = version;
        if (version != EVIDENCE_VERSION) {
            refused(evidence_check(bytes, len, &c->verifier, &verdict, errmsg),
                    LOCO_EFORMAT, version < 2 ? "an older" : "a newer");
        }
    }
    free(more);
    free(bytes);
    crime_close(c);
}

/* ---- parts of something else ----------------------------------------------
 */

static void another_manifest_is_refused(void **state)
{
    struct crime *c = crime_of("int8", "centred");
    uint32_t owner = owner_of(c, 0);

    (void)state;
    c->manifest.sync.norm_clip = 2;
    crime_sign(c, &c->author);
    refused(try_file(c, owner, 0), LOCO_EHASH, "another run");
    c->manifest.sync.norm_clip = 1.5;
    crime_sign(c, &c->author);
    assert_int_equal(try_file(c, owner, 0), 0);
    c->wire[c->n_wire - 1] ^= 1; /* of the author's signature */
    refused(try_file(c, owner, 0), LOCO_ESIG, "manifest");
    crime_close(c);
}

static void a_proof_of_another_place_is_refused(void **state)
{
    struct crime *c = crime_of("int8", "");
    uint32_t owner = owner_of(c, 0);
    size_t len;
    uint8_t *bytes = crime_file_of(c, owner, 0, 1, &len);

    (void)state;
    refused(evidence_check(bytes, len, &c->verifier, &verdict, errmsg),
            LOCO_EHASH, "not the one that it offered");
    free(bytes);
    crime_lie(c, 1, owner); /* after the vote */
    refused(try_file(c, owner, 0), LOCO_EHASH, "not of the result");
    crime_close(c);
}

/* An offer counts for its maker and its round alone. */
static void an_offer_of_another_member_or_round_is_refused(void **state)
{
    struct crime *c = crime_of("int8", "");
    uint32_t owner = owner_of(c, 0), other = (owner + 1) % CRIME_MEMBERS;
    struct hash32 offer = c->plan.members[other].offer;

    (void)state;
    c->plan.members[other].offer = c->plan.members[owner].offer;
    crime_vote(c, owner);
    refused(try_file(c, owner, 0), LOCO_EHASH, "offered");
    c->plan.members[other].offer = offer;
    c->plan.round++;
    crime_vote(c, owner);
    refused(try_file(c, owner, 0), LOCO_EHASH, "offered");
    crime_close(c);
}

static void parts_that_do_not_name_each_other_are_refused(void **state)
{
    struct crime *c = crime_of("int8", "");
    uint32_t owner = owner_of(c, 0);

    (void)state;
    c->vote.body.round++;
    crime_sign_vote(c, owner);
    refused(try_file(c, owner, 0), LOCO_EHASH, "for another plan");
    crime_vote(c, owner);
    c->vote.body.epoch++;
    crime_sign_vote(c, owner);
    refused(try_file(c, owner, 0), LOCO_EHASH, "for another plan");
    crime_vote(c, owner);
    c->vote.body.view.b[0] ^= 1;
    crime_sign_vote(c, owner);
    refused(try_file(c, owner, 0), LOCO_EHASH, "for another plan");
    crime_vote(c, owner);
    c->plan.members[0].tokens++;
    refused(try_file(c, owner, 0), LOCO_EHASH, "for another plan");
    c->view.tokens++;
    refused(try_file(c, owner, 0), LOCO_EHASH, "of another view");
    crime_seal(c);
    c->plan.epoch++;
    crime_vote(c, owner);
    refused(try_file(c, owner, 0), LOCO_EHASH, "of another view");
    crime_close(c);
}

/* ---- plans and runs that no owner answers for ------------------------------
 */

/* The plan, changed so and voted for by the owner of the first block. */
static void
refused_plan(void (*change)(struct plan_body *p), int code, const char *words)
{
    struct crime *c = crime_of("int8", "");
    uint32_t owner = owner_of(c, 0);

    change(&c->plan);
    crime_vote(c, owner);
    refused(try_file(c, owner, 0), code, words);
    crime_close(c);
}

static void make_outsider(struct plan_body *p)
{
    p->members[3].index = CRIME_MEMBERS;
}

static void make_double(struct plan_body *p)
{
    p->members[3].index = p->members[2].index;
}

static void make_greedy(struct plan_body *p)
{
    p->members[3].share = BUTTERFLY_SHARE_MAX + 1;
}

static void make_weightless(struct plan_body *p)
{
    for (uint32_t k = 0; k < p->n_members; k++) {
        p->members[k].tokens = 0;
    }
}

static void make_heavy(struct plan_body *p)
{
    p->members[0].tokens = (1ULL << 48) + 1;
}

static void make_first(struct plan_body *p)
{
    p->round = 0;
}

static void make_ring(struct plan_body *p)
{
    for (uint32_t k = 0; k < p->n_members; k++) {
        p->members[k].share = 0;
    }
}

static void make_sites(struct plan_body *p)
{
    p->members[0].gateway = true;
}

static void make_heir(struct plan_body *p)
{
    p->n_ranges = 1;
    p->ranges[0].upto = 1024;
}

static void make_rollback(struct plan_body *p)
{
    p->n_rollback = 1;
}

static void plans_that_sum_nothing_here_are_refused(void **state)
{
    (void)state;
    refused_plan(make_outsider, LOCO_EFORMAT, "none of the view");
    refused_plan(make_double, LOCO_EFORMAT, "one twice");
    refused_plan(make_greedy, LOCO_EFORMAT, "no possible share");
    refused_plan(make_heavy, LOCO_EFORMAT, "no possible share");
    refused_plan(make_weightless, LOCO_EFORMAT, "nothing is summed");
    refused_plan(make_first, LOCO_EFORMAT, "nothing is summed");
    refused_plan(make_ring, LOCO_EINVAL, "makes none");
    refused_plan(make_sites, LOCO_EINVAL, "makes none");
    refused_plan(make_heir, LOCO_EINVAL, "takes over sums");
    refused_plan(make_rollback, LOCO_EINVAL, "takes over sums");
}

/* The whole round in another run, whose members promised no audits. */
static void a_run_without_audits_is_refused(void **state)
{
    static const char *const words[] = {"", "off"};

    (void)state;
    for (size_t i = 0; i < 2; i++) {
        struct crime *c = crime_of("int8", "");
        uint32_t owner = owner_of(c, 0);

        memset(c->manifest.sync.audit, 0, sizeof c->manifest.sync.audit);
        memcpy(c->manifest.sync.audit, words[i], strlen(words[i]));
        crime_sign(c, &c->author);
        c->view.run = c->run;
        crime_seal(c);
        crime_vote(c, owner);
        refused(try_file(c, owner, 0), LOCO_EINVAL, "no audits");
        crime_close(c);
    }
}

/* ---- bytes that are no numbers ----------------------------------------------
 */

/* An honest owner that cannot sum votes for nothing. */
static void who_votes_although_there_is_no_sum_is_convicted(void **state)
{
    struct crime *c = crime_open("int8", "");
    uint32_t owner = owner_of(c, 0);

    (void)state;
    c->given[(owner + 1) % CRIME_MEMBERS][4] = 0x80; /* no encoder's code */
    assert_false(crime_sum(c));
    crime_seal(c);
    crime_vote(c, owner);
    assert_convicts(c, owner, 0);
    assert_int_equal(verdict.finding, EVIDENCE_NO_SUM);
    assert_int_equal(verdict.n_differ, 0);
    crime_close(c);
}

static void a_result_that_is_no_number_convicts(void **state)
{
    struct crime *c = crime_open("fp32", "centred");
    uint32_t owner = owner_of(c, 0);

    (void)state;
    memset(c->result, 0xff, 4);
    crime_seal(c);
    crime_vote(c, owner);
    assert_convicts(c, owner, 0);
    assert_int_equal(verdict.finding, EVIDENCE_NO_NUMBERS);
    crime_close(c);
}

/* The bytes count: minus zero is another result than zero. */
static void other_bytes_of_the_same_numbers_convict(void **state)
{
    struct crime *c = crime_open("fp32", "");
    uint32_t owner = owner_of(c, 0);

    (void)state;
    for (uint32_t k = 0; k < CRIME_MEMBERS; k++) {
        memset(c->given[k], 0, 4);
    }
    assert_true(crime_sum(c));
    c->result[3] ^= 0x80;
    crime_seal(c);
    crime_vote(c, owner);
    assert_convicts(c, owner, 0);
    assert_int_equal(verdict.finding, EVIDENCE_DIFFERS);
    assert_int_equal(verdict.n_differ, 0);
    crime_close(c);
}

/* ---- long vectors ----------------------------------------------------------
 */

/* Blocks of fp16 are no divisors of a piece: one lies across the first two of
 * three pieces, whose proof then has the third. */
static void a_block_across_two_pieces_convicts(void **state)
{
    struct crime *c = crime_room(sizeof *c);
    struct evidence_place p;
    uint64_t b = 0;
    uint32_t owner;

    (void)state;
    crime_members(c);
    crime_manifest(&c->manifest, "fp16", "");
    c->manifest.model.dim = c->manifest.model.ffn = 256;
    c->manifest.model.layers = 3;
    crime_begin(c);
    assert_int_equal(c->n_pieces, 3);
    do {
        p = crime_place(c, b++);
    } while (p.end - p.piece < 2);
    assert_int_equal(p.block, b - 1);
    assert_int_equal(p.pieces_bytes, 2 * HASH_PIECE_BYTES);
    assert_int_equal(p.pieces_proof_bytes, ID_BYTES);
    owner = owner_of(c, p.block);
    crime_lie(c, p.block, owner);
    crime_seal(c);
    crime_vote(c, owner);
    assert_convicts(c, owner, p.block);
    assert_int_equal(verdict.finding, EVIDENCE_DIFFERS);
    c->tree[4].b[0] ^= 1; /* the third piece, one level up */
    refused(try_file(c, owner, p.block), LOCO_EHASH, "not of the result");
    c->tree[4].b[0] ^= 1; /* the third piece, one level up */
    c->result[HASH_PIECE_BYTES] ^= 1;
    refused(try_file(c, owner, p.block), LOCO_EHASH, "not of the result");
    crime_close(c);
}

static void only_a_block_of_the_vector_has_a_place(void **state)
{
    const struct codec *codec = codec_find("fp32");
    struct evidence_place p;

    (void)state;
    assert_int_equal(evidence_place(codec, 1024, 2500, 2048, &p), 0);
    assert_int_equal(p.elements, 452);
    assert_int_equal(p.bytes, 452 * 4);
    assert_int_equal(p.n_blocks, 3);
    assert_int_equal(evidence_place(codec, 1024, 2500, 2500, &p), LOCO_ERANGE);
    assert_int_equal(evidence_place(codec, 1024, 2500, 3072, &p), LOCO_ERANGE);
    assert_int_equal(evidence_place(codec, 1024, 2500, 1023, &p), LOCO_ERANGE);
    assert_int_equal(evidence_place(codec, 1024, 2500, UINT64_MAX - 1023, &p),
                     LOCO_ERANGE);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_wrong_sum_convicts_its_owner_and_nobody_else),
        cmocka_unit_test(a_right_sum_convicts_nobody),
        cmocka_unit_test(a_right_block_of_a_wrong_result_convicts_nobody),
        cmocka_unit_test(one_bit_changed_in_any_byte_is_refused),
        cmocka_unit_test(a_file_that_is_cut_or_goes_on_is_refused),
        cmocka_unit_test(another_manifest_is_refused),
        cmocka_unit_test(a_proof_of_another_place_is_refused),
        cmocka_unit_test(an_offer_of_another_member_or_round_is_refused),
        cmocka_unit_test(parts_that_do_not_name_each_other_are_refused),
        cmocka_unit_test(plans_that_sum_nothing_here_are_refused),
        cmocka_unit_test(a_run_without_audits_is_refused),
        cmocka_unit_test(who_votes_although_there_is_no_sum_is_convicted),
        cmocka_unit_test(a_result_that_is_no_number_convicts),
        cmocka_unit_test(other_bytes_of_the_same_numbers_convict),
        cmocka_unit_test(a_block_across_two_pieces_convicts),
        cmocka_unit_test(only_a_block_of_the_vector_has_a_place),
    };

    crime_need(sign_start() == 0);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
