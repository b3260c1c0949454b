/* conviction_test.c - what most say of a member's work convicts it, whoever
 * reads it, and nothing less does; and what a member keeps to make that. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>

#include <cmocka.h>

#include "p2p/round/conviction.h"
#include "proto/base/err.h"
#include "proto/base/errmsg.h"
#include "tests/unit/p2p/dispute.h"
#include "tests/unit/sanitized.h"

static const struct hash32 RUN = {{42}};
static char errmsg[ERRMSG_SIZE];

static int check(const struct dispute *d)
{
    int rv;

    errmsg[0] = '\0';
    rv = conviction_check(&d->c, &d->run, &d->verifier, errmsg);
    assert_int_equal(rv == 0, errmsg[0] == '\0');
    return rv;
}

static void refused(const struct dispute *d, int code, const char *words)
{
    int rv = check(d);

    if (rv != code || strstr(errmsg, words) == NULL) {
        fail_msg("expected %d and \"%s\", got %d and \"%s\"", code, words, rv,
                 errmsg);
    }
}

/* ---- what convicts ------------------------------------------------------ */

static void the_words_of_most_convict(void **state)
{
    struct dispute d;

    (void)state;
    dispute_open(&d, &RUN);
    assert_int_equal(check(&d), 0);
    d.c.n_words = 4; /* and one more */
    dispute_put(&d, 3, 5);
    assert_int_equal(check(&d), 0);
}

static void half_convict_nobody(void **state)
{
    struct dispute d;

    (void)state;
    dispute_open(&d, &RUN);
    d.c.n_words = 2;
    refused(&d, LOCO_EINVAL, "2 of 5 full members");
    d.c.n_words = 0;
    refused(&d, LOCO_EINVAL, "0 of 5 full members");
    dispute_open(&d, &RUN); /* two full members cannot convict each other */
    for (uint32_t i = 2; i < DISPUTE_MEMBERS; i++) {
        d.c.view.members[i].full_since = FULL_NEVER;
    }
    dispute_ready(&d, DISPUTE_ACCUSED);
    d.c.n_words = 1;
    refused(&d, LOCO_EINVAL, "1 of 2 full members");
}

/* Of six full members three are no more than half. */
static void who_is_full_counts_in_the_whole(void **state)
{
    struct dispute d;

    (void)state;
    dispute_open(&d, &RUN);
    d.c.view.members[DISPUTE_NEW].full_since = 1;
    dispute_ready(&d, DISPUTE_ACCUSED);
    refused(&d, LOCO_EINVAL, "3 of 6 full members");
}

static void words_count_once_and_of_full_members_alone(void **state)
{
    static const uint8_t none[] = {DISPUTE_NEW, DISPUTE_ACCUSED,
                                   DISPUTE_MEMBERS, 255};
    struct dispute d;

    (void)state;
    dispute_open(&d, &RUN);
    d.c.words[2] = d.c.words[1];
    refused(&d, LOCO_EINVAL, "stands there before");
    dispute_put(&d, 2, 0); /* not ascending */
    refused(&d, LOCO_EINVAL, "stands there before");
    for (size_t i = 0; i < sizeof none; i++) {
        dispute_open(&d, &RUN);
        dispute_put(&d, 0, none[i] < DISPUTE_MEMBERS ? none[i] : 0);
        d.c.words[0].member = none[i];
        refused(&d, LOCO_EINVAL, "has none");
    }
}

static void words_about_something_else_are_refused(void **state)
{
    struct dispute d;

    (void)state;
    dispute_open(&d, &RUN);
    dispute_word(&d, 2, REPEAT_GOOD, d.c.words[1].sig);
    refused(&d, LOCO_ESIG, "word 1 is not signed");
    dispute_word(&d, 3, REPEAT_BAD, d.c.words[1].sig); /* of another one */
    refused(&d, LOCO_ESIG, "word 1 is not signed");
    dispute_open(&d, &RUN);
    d.c.round++;
    refused(&d, LOCO_ESIG, "word 0 is not signed");
    dispute_open(&d, &RUN);
    d.c.commit.b[3] ^= 1;
    refused(&d, LOCO_ESIG, "word 0 is not signed");
    dispute_open(&d, &RUN); /* about member 5, as if about another one */
    d.c.accused = 5;
    dispute_words(&d);
    d.c.accused = DISPUTE_ACCUSED;
    refused(&d, LOCO_ESIG, "word 0 is not signed");
}

/* Keys of a liar make no view of anybody else. */
static void only_the_accused_says_in_which_view_it_is(void **state)
{
    struct dispute d;

    (void)state;
    dispute_open(&d, &RUN);
    dispute_ready(&d, 2);
    refused(&d, LOCO_ESIG, "READY is not signed by the accused");
    dispute_open(&d, &RUN);
    d.c.view.tokens++;
    refused(&d, LOCO_EHASH, "READY is of another view");
    dispute_open(&d, &RUN);
    d.c.view.members[DISPUTE_NEW].full_since = 1;
    refused(&d, LOCO_EHASH, "READY is of another view");
    dispute_open(&d, &RUN);
    d.c.accused = DISPUTE_MEMBERS;
    refused(&d, LOCO_EINVAL, "no member");
}

static void another_run_or_no_view_is_refused(void **state)
{
    struct dispute d;

    (void)state;
    dispute_open(&d, &RUN);
    d.run.b[1] ^= 1;
    refused(&d, LOCO_EHASH, "another run");
    dispute_open(&d, &RUN);
    d.c.view.members[0] = d.c.view.members[1]; /* one twice */
    dispute_ready(&d, DISPUTE_ACCUSED);
    refused(&d, LOCO_EINVAL, "none that members make");
}

/* Whatever is not signed is named by what is. */
static void one_bit_changed_in_any_byte_is_refused(void **state)
{
    static struct conviction c;
    uint8_t bytes[FRAME_CONTROL_MAX];
    struct dispute d;
    int n;

    (void)state;
    dispute_open(&d, &RUN);
    n = msg_encode(&conviction_schema, &d.c, bytes, sizeof bytes);
    assert_true(n > 0);
    for (int i = 0; i < n; i += TURNS(1, 7)) {
        for (int bit = 0; bit < 8; bit += TURNS(1, 3)) {
            bytes[i] ^= (uint8_t)(1U << bit);
            if (msg_decode(&conviction_schema, bytes, (size_t)n, &c) == 0 &&
                conviction_check(&c, &RUN, &d.verifier, NULL) == 0) {
                fail_msg("bit %d of byte %d of %d changed, and it convicts",
                         bit, i, n);
            }
            bytes[i] ^= (uint8_t)(1U << bit);
        }
    }
}

/* ---- what is kept ------------------------------------------------------- */

struct keeper {
    struct dispute d;
    struct repeat repeat;
    struct conviction_notes notes;
};

static struct repeat_commit commit_of(const struct dispute *d)
{
    struct repeat_commit c = {.round = d->c.round,
                              .hash = d->c.commit,
                              .n = DISPUTE_MEMBERS,
                              .full = view_full(&d->c.view),
                              .lease = 1U << DISPUTE_ACCUSED};

    for (uint32_t i = 0; i < DISPUTE_MEMBERS; i++) {
        c.member[i] = d->who[i].id;
    }
    return c;
}

static struct keeper *keeper_of(void)
{
    struct keeper *k = calloc(1, sizeof *k);
    struct repeat_commit commit;

    assert_non_null(k);
    dispute_open(&k->d, &RUN);
    commit = commit_of(&k->d);
    repeat_init(&k->repeat);
    repeat_commit(&k->repeat, &commit);
    return k;
}

static void hear_ready(struct keeper *k, uint32_t member)
{
    dispute_ready(&k->d, member);
    conviction_ready(&k->notes, &k->d.c.view, &k->d.c.ready.body.view, member,
                     &k->d.c.ready);
}

static enum repeat_end say(struct keeper *k, uint32_t member, uint8_t verdict)
{
    const struct peer_id *by = &k->d.who[member].id;
    const struct peer_id *accused = &k->d.who[DISPUTE_ACCUSED].id;
    uint8_t sig[SIGN_BYTES];
    enum repeat_end end =
        verdict == REPEAT_BAD
            ? repeat_accuse(&k->repeat, by, &k->d.c.commit, accused)
            : repeat_say(&k->repeat, by, &k->d.c.commit, accused, verdict);

    dispute_word(&k->d, member, verdict, sig);
    if (end != REPEAT_NONE) {
        conviction_word(&k->notes, &k->repeat.counted, sig);
    }
    return end;
}

static bool make(const struct keeper *k, struct conviction *c)
{
    const struct repeat_commit *commit =
        repeat_commit_of(&k->repeat, &k->d.c.commit);

    assert_non_null(commit);
    return conviction_make(&k->notes, commit, &k->d.who[DISPUTE_ACCUSED].id,
                           &k->repeat.counted, c);
}

/* The words of a case, the last one too, and no other ones. */
static void a_case_that_convicts_makes_a_conviction(void **state)
{
    static struct conviction c;
    struct keeper *k = keeper_of();

    (void)state;
    hear_ready(k, DISPUTE_ACCUSED);
    hear_ready(k, 0);
    assert_int_equal(say(k, 5, REPEAT_BAD), REPEAT_NEW);
    assert_int_equal(say(k, 0, REPEAT_UNCLEAR), REPEAT_OPEN);
    assert_int_equal(say(k, DISPUTE_NEW, REPEAT_BAD), REPEAT_NONE);
    assert_int_equal(say(k, 5, REPEAT_BAD), REPEAT_NONE); /* twice */
    assert_int_equal(say(k, 3, REPEAT_BAD), REPEAT_OPEN);
    assert_true(make(k, &c));
    assert_int_equal(conviction_check(&c, &RUN, &k->d.verifier, errmsg),
                     LOCO_EINVAL); /* two are too few */
    assert_int_equal(say(k, 2, REPEAT_BAD), REPEAT_CONVICTED);
    assert_true(make(k, &c));
    assert_int_equal(conviction_check(&c, &RUN, &k->d.verifier, errmsg), 0);
    assert_int_equal(c.n_words, 3);
    assert_int_equal(c.words[0].member, 2);
    assert_int_equal(c.words[1].member, 3);
    assert_int_equal(c.words[2].member, 5);
    assert_int_equal(c.accused, DISPUTE_ACCUSED);
    assert_int_equal(c.round, DISPUTE_ROUND);
    free(k);
}

static void without_a_word_of_the_accused_there_is_none(void **state)
{
    static struct conviction c;
    struct keeper *k = keeper_of();

    (void)state;
    hear_ready(k, 0);
    (void)say(k, 5, REPEAT_BAD);
    (void)say(k, 3, REPEAT_BAD);
    assert_int_equal(say(k, 2, REPEAT_BAD), REPEAT_CONVICTED);
    assert_false(make(k, &c));
    hear_ready(k, DISPUTE_ACCUSED);
    assert_true(make(k, &c));
    free(k);
}

/* The view may change until most have spoken. */
static void a_view_is_kept_while_others_follow(void **state)
{
    static struct conviction c;
    struct keeper *k = keeper_of();

    (void)state;
    hear_ready(k, DISPUTE_ACCUSED);
    (void)say(k, 5, REPEAT_BAD);
    (void)say(k, 3, REPEAT_BAD);
    k->d.c.view.members[0].full_since = FULL_NEVER; /* other ones count */
    for (uint32_t i = 1; i < CONVICTION_VIEWS; i++) {
        k->d.c.view.epoch++;
        hear_ready(k, DISPUTE_ACCUSED);
        hear_ready(k, DISPUTE_ACCUSED); /* once more: of the same view */
    }
    assert_int_equal(say(k, 2, REPEAT_BAD), REPEAT_CONVICTED);
    assert_true(make(k, &c));
    assert_int_equal(c.view.epoch, DISPUTE_EPOCH);
    assert_int_equal(conviction_check(&c, &RUN, &k->d.verifier, errmsg), 0);
    k->d.c.view.epoch++;
    hear_ready(k, DISPUTE_ACCUSED);
    assert_false(make(k, &c)); /* too many views ago */
    free(k);
}

/* A view of the same members that count is as good. */
static void a_later_view_of_the_same_members_serves(void **state)
{
    static struct conviction c;
    struct keeper *k = keeper_of();

    (void)state;
    k->d.c.view.epoch++;
    k->d.c.view.tokens = 99;
    hear_ready(k, DISPUTE_ACCUSED);
    (void)say(k, 5, REPEAT_BAD);
    (void)say(k, 3, REPEAT_BAD);
    assert_int_equal(say(k, 2, REPEAT_BAD), REPEAT_CONVICTED);
    assert_true(make(k, &c));
    assert_int_equal(c.view.tokens, 99);
    assert_int_equal(conviction_check(&c, &RUN, &k->d.verifier, errmsg), 0);
    free(k);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_words_of_most_convict),
        cmocka_unit_test(half_convict_nobody),
        cmocka_unit_test(who_is_full_counts_in_the_whole),
        cmocka_unit_test(words_count_once_and_of_full_members_alone),
        cmocka_unit_test(words_about_something_else_are_refused),
        cmocka_unit_test(only_the_accused_says_in_which_view_it_is),
        cmocka_unit_test(another_run_or_no_view_is_refused),
        cmocka_unit_test(one_bit_changed_in_any_byte_is_refused),
        cmocka_unit_test(a_case_that_convicts_makes_a_conviction),
        cmocka_unit_test(without_a_word_of_the_accused_there_is_none),
        cmocka_unit_test(a_view_is_kept_while_others_follow),
        cmocka_unit_test(a_later_view_of_the_same_members_serves),
    };

    dispute_need(sign_start() == 0);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
