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
    dispute_vote(&d, DISPUTE_ACCUSED);
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
    dispute_vote(&d, DISPUTE_ACCUSED);
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
    d.result.b[3] ^= 1; /* about another commit than it voted for */
    dispute_vote(&d, DISPUTE_ACCUSED);
    refused(&d, LOCO_ESIG, "word 0 is not signed");
    dispute_open(&d, &RUN);
    d.plan.b[3] ^= 1;
    dispute_vote(&d, DISPUTE_ACCUSED);
    refused(&d, LOCO_ESIG, "word 0 is not signed");
    dispute_open(&d, &RUN); /* a vote of another round for it */
    d.c.vote.body.round++;
    dispute_need(message_sign(&d.pen[DISPUTE_ACCUSED], &vote_body_schema,
                              &d.c.vote.body, d.c.vote.sig) == 0);
    refused(&d, LOCO_ESIG, "word 0 is not signed");
    dispute_open(&d, &RUN); /* about member 5, as if about another one */
    d.c.accused = 5;
    dispute_words(&d);
    d.c.accused = DISPUTE_ACCUSED;
    refused(&d, LOCO_ESIG, "word 0 is not signed");
}

/* Else keys of a liar would make a view of themselves and of anybody, and words
 * of one view would count in another. */
static void only_the_accused_says_in_which_view_it_works(void **state)
{
    struct dispute d;

    (void)state;
    dispute_open(&d, &RUN);
    dispute_vote(&d, 2);
    refused(&d, LOCO_ESIG, "vote is not signed by the accused");
    dispute_open(&d, &RUN);
    d.c.view.tokens++;
    refused(&d, LOCO_EHASH, "vote is of another view");
    dispute_open(&d, &RUN);
    d.c.view.members[DISPUTE_NEW].full_since = 1;
    refused(&d, LOCO_EHASH, "vote is of another view");
    dispute_open(&d, &RUN);
    d.c.accused = DISPUTE_MEMBERS;
    refused(&d, LOCO_EINVAL, "no full member");
}

/* Who is on probation is in no plan, and a witness neither. */
static void only_who_has_work_in_the_commit_is_convicted(void **state)
{
    struct dispute d;

    (void)state;
    dispute_open(&d, &RUN);
    d.c.accused = DISPUTE_NEW;
    dispute_vote(&d, DISPUTE_NEW);
    dispute_words(&d);
    refused(&d, LOCO_EINVAL, "no full member");
    dispute_open(&d, &RUN);
    memset(&d.result, 0, sizeof d.result);
    dispute_vote(&d, DISPUTE_ACCUSED);
    dispute_words(&d);
    refused(&d, LOCO_EINVAL, "no part in the plan");
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
    dispute_vote(&d, DISPUTE_ACCUSED);
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
    struct commit record;
    struct hash32 hash;
};

/* A commit of the view as it stands, in which all but member 0 have work; its
 * record has their votes. */
static void lay_record(struct keeper *k, uint64_t round)
{
    struct commit *c = &k->record;
    struct plan_body *p = &c->plan.body;

    memset(c, 0, sizeof *c);
    p->epoch = k->d.c.view.epoch;
    p->round = round;
    view_hash(&k->d.c.view, &p->view);
    message_hash(&plan_body_schema, "loco-plan-1", p, &k->d.plan);
    c->result = k->d.result;
    for (uint32_t i = 1; i < DISPUTE_MEMBERS; i++) {
        if (i != DISPUTE_NEW) {
            p->members[p->n_members++].index = (uint8_t)i;
        }
    }
    message_hash(&plan_body_schema, "loco-plan-1", p, &k->d.plan);
    for (uint32_t i = 0; i < p->n_members; i++) {
        uint32_t who = p->members[i].index;

        dispute_vote(&k->d, who);
        memcpy(c->votes[i].public_key, k->d.who[who].public, 32);
        memcpy(c->votes[i].sig, k->d.c.vote.sig, SIGN_BYTES);
    }
    c->n_votes = p->n_members;
    message_commit_hash(p, &c->result, &k->hash);
}

static void make_commit(struct keeper *k, uint64_t round)
{
    struct repeat_commit c = {.round = round,
                              .n = DISPUTE_MEMBERS,
                              .full = view_full(&k->d.c.view),
                              .lease = 1U << DISPUTE_ACCUSED | 1U << 2};

    lay_record(k, round);
    c.hash = k->hash;
    for (uint32_t i = 0; i < DISPUTE_MEMBERS; i++) {
        c.member[i] = k->d.who[i].id;
    }
    conviction_commit(&k->notes, &k->d.c.view, &k->record, &k->hash);
    repeat_commit(&k->repeat, &c);
}

static struct keeper *keeper_of(void)
{
    struct keeper *k = calloc(1, sizeof *k);

    assert_non_null(k);
    dispute_open(&k->d, &RUN);
    repeat_init(&k->repeat);
    make_commit(k, DISPUTE_ROUND);
    return k;
}

/* That member says so of the work of `accused` for the commit of that hash. */
static enum repeat_end say_of(struct keeper *k,
                              uint32_t member,
                              uint8_t verdict,
                              uint32_t accused,
                              const struct hash32 *commit)
{
    const struct peer_id *by = &k->d.who[member].id;
    const struct verdict_body said = {.round = DISPUTE_ROUND,
                                      .commit = *commit,
                                      .accused = k->d.who[accused].id,
                                      .verdict = verdict};
    uint8_t sig[SIGN_BYTES];
    enum repeat_end end =
        verdict == REPEAT_BAD
            ? repeat_accuse(&k->repeat, by, commit, &said.accused)
            : repeat_say(&k->repeat, by, commit, &said.accused, verdict);

    assert_int_equal(
        message_sign(&k->d.pen[member], &verdict_body_schema, &said, sig), 0);
    if (end != REPEAT_NONE && verdict == REPEAT_BAD) {
        conviction_word(&k->notes, &k->repeat.counted, sig);
    }
    return end;
}

static enum repeat_end say(struct keeper *k, uint32_t member, uint8_t verdict)
{
    return say_of(k, member, verdict, DISPUTE_ACCUSED, &k->hash);
}

static bool make(const struct keeper *k, struct conviction *c)
{
    return conviction_make(&k->notes, &k->hash, &k->d.who[DISPUTE_ACCUSED].id,
                           &k->repeat.counted, c);
}

static void assert_convicts(const struct keeper *k, const struct conviction *c)
{
    int rv = conviction_check(c, &RUN, &k->d.verifier, errmsg);

    if (rv != 0) {
        fail_msg("%d: %s", rv, errmsg);
    }
}

/* The words of a case, the last one too, and no other ones. */
static void a_case_that_convicts_makes_a_conviction(void **state)
{
    static struct conviction c;
    struct keeper *k = keeper_of();

    (void)state;
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
    assert_convicts(k, &c);
    assert_int_equal(c.n_words, 3);
    assert_int_equal(c.words[0].member, 2);
    assert_int_equal(c.words[1].member, 3);
    assert_int_equal(c.words[2].member, 5);
    assert_int_equal(c.accused, DISPUTE_ACCUSED);
    assert_int_equal(c.vote.body.round, DISPUTE_ROUND);
    free(k);
}

/* A place is used again: words of the case before are none of the next one. */
static void words_of_another_case_are_not_taken(void **state)
{
    static struct conviction c;
    struct keeper *k = keeper_of();

    (void)state;
    assert_int_equal(say_of(k, 0, REPEAT_BAD, 2, &k->hash), REPEAT_NEW);
    (void)say_of(k, 3, REPEAT_BAD, 2, &k->hash);
    (void)say_of(k, 5, REPEAT_BAD, 2, &k->hash); /* that one is over */
    assert_int_equal(say(k, 5, REPEAT_BAD), REPEAT_NEW);
    k->repeat.counted.bad |= 1U << 3; /* as if one came without a signature */
    assert_false(make(k, &c));
    assert_int_equal(say(k, 3, REPEAT_BAD), REPEAT_OPEN);
    assert_int_equal(say(k, 0, REPEAT_BAD), REPEAT_CONVICTED);
    assert_true(make(k, &c));
    assert_convicts(k, &c);
    free(k);
}

/* Where the next view decided a commit, its record has no votes. */
static void without_the_vote_of_the_accused_there_is_none(void **state)
{
    static struct conviction c;
    struct keeper *k = keeper_of();

    (void)state;
    lay_record(k, DISPUTE_ROUND);
    memset(k->record.votes[0].sig, 0, SIGN_BYTES);
    k->notes.n_commits = 0;
    conviction_commit(&k->notes, &k->d.c.view, &k->record, &k->hash);
    (void)say(k, 5, REPEAT_BAD);
    (void)say(k, 3, REPEAT_BAD);
    assert_int_equal(say(k, 2, REPEAT_BAD), REPEAT_CONVICTED);
    assert_false(make(k, &c));
    lay_record(k, DISPUTE_ROUND);
    k->notes.n_commits = 0;
    conviction_commit(&k->notes, &k->d.c.view, &k->record, &k->hash);
    assert_true(make(k, &c));
    free(k);
}

/* As long as members may speak about it, however often the view changes. */
static void a_commit_is_kept_while_others_follow(void **state)
{
    static struct conviction c;
    struct keeper *k = keeper_of();
    const struct hash32 first = k->hash;

    (void)state;
    (void)say(k, 5, REPEAT_BAD);
    (void)say(k, 3, REPEAT_BAD);
    for (uint32_t i = 1; i < REPEAT_COMMITS; i++) {
        k->d.c.view.epoch++;
        make_commit(k, DISPUTE_ROUND + i);
    }
    k->hash = first;
    assert_int_equal(say(k, 2, REPEAT_BAD), REPEAT_CONVICTED);
    assert_true(make(k, &c));
    assert_int_equal(c.view.epoch, DISPUTE_EPOCH);
    assert_convicts(k, &c);
    make_commit(k, DISPUTE_ROUND + REPEAT_COMMITS);
    k->hash = first;
    assert_false(make(k, &c));
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
        cmocka_unit_test(only_the_accused_says_in_which_view_it_works),
        cmocka_unit_test(only_who_has_work_in_the_commit_is_convicted),
        cmocka_unit_test(another_run_or_no_view_is_refused),
        cmocka_unit_test(one_bit_changed_in_any_byte_is_refused),
        cmocka_unit_test(a_case_that_convicts_makes_a_conviction),
        cmocka_unit_test(words_of_another_case_are_not_taken),
        cmocka_unit_test(without_the_vote_of_the_accused_there_is_none),
        cmocka_unit_test(a_commit_is_kept_while_others_follow),
    };

    dispute_need(sign_start() == 0);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
