/* evidence_work_test.c - a file about work convicts of whom most say it, and
 * nobody else. What a conviction has to show: unit/p2p/conviction_test.c. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>

#include <cmocka.h>

#include "proto/base/err.h"
#include "tests/unit/daemon/crime.h"
#include "tests/unit/p2p/dispute.h"
#include "tests/unit/sanitized.h"

/* The run whose manifest is in the file, and the members that spoke. */
struct scene {
    struct crime crime;
    struct dispute d;
};

static struct evidence_verdict verdict;
static char errmsg[ERRMSG_SIZE];

static struct scene *scene_of(const char *audit)
{
    struct scene *s = crime_room(sizeof *s);

    crime_of_work(&s->crime, audit);
    dispute_open(&s->d, &s->crime.run);
    return s;
}

static uint8_t *file_of(const struct scene *s, size_t *len)
{
    uint8_t conviction[FRAME_CONTROL_MAX], *bytes;
    int n =
        msg_encode(&conviction_schema, &s->d.c, conviction, sizeof conviction);

    crime_need(n > 0);
    crime_need(evidence_write_work(s->crime.wire, s->crime.n_wire, conviction,
                                   (size_t)n, &bytes, len) == 0);
    return bytes;
}

static int check(const struct scene *s, const uint8_t *bytes, size_t len)
{
    int rv;

    memset(&verdict, 0xff, sizeof verdict);
    errmsg[0] = '\0';
    rv = evidence_check(bytes, len, &s->d.verifier, &verdict, errmsg);
    assert_int_equal(rv == 0, errmsg[0] == '\0');
    return rv;
}

static void refused(const struct scene *s, int code, const char *words)
{
    size_t len;
    uint8_t *bytes = file_of(s, &len);
    int rv = check(s, bytes, len);

    free(bytes);
    if (rv != code || strstr(errmsg, words) == NULL) {
        fail_msg("expected %d and \"%s\", got %d and \"%s\"", code, words, rv,
                 errmsg);
    }
}

static void it_says_who_was_convicted_of_what(void **state)
{
    struct scene *s = scene_of("work");
    size_t len;
    uint8_t *bytes = file_of(s, &len);

    (void)state;
    assert_int_equal(check(s, bytes, len), 0);
    assert_true(hash32_eq(&verdict.run, &s->crime.run));
    assert_true(id_eq(&verdict.accused, &s->d.who[DISPUTE_ACCUSED].id));
    assert_int_equal(verdict.finding, EVIDENCE_BAD_WORK);
    assert_int_equal(verdict.round, DISPUTE_ROUND);
    assert_int_equal(verdict.epoch, DISPUTE_EPOCH);
    assert_int_equal(verdict.n_members, DISPUTE_FULL);
    assert_int_equal(verdict.n_words, 3);
    assert_true(id_eq(&verdict.member[0], &s->d.who[0].id));
    assert_true(id_eq(&verdict.member[DISPUTE_FULL - 1], &s->d.who[5].id));
    assert_int_equal(verdict.end, 0);
    free(bytes);
    free(s);
}

static void what_convicts_nobody_is_refused(void **state)
{
    struct scene *s = scene_of("work");

    (void)state;
    s->d.c.n_words = 2;
    refused(s, LOCO_EINVAL, "2 of 5 full members");
    free(s);
}

static void another_run_is_refused(void **state)
{
    struct scene *s = scene_of("work");

    (void)state;
    s->crime.manifest.sync.norm_clip = 2;
    crime_sign(&s->crime, &s->crime.author);
    refused(s, LOCO_EHASH, "another run");
    free(s);
}

static void a_run_without_audits_of_work_is_refused(void **state)
{
    struct scene *s = scene_of("sums");

    (void)state;
    refused(s, LOCO_EINVAL, "no audits of work");
    free(s);
}

static void one_bit_changed_in_any_byte_is_refused(void **state)
{
    struct scene *s = scene_of("work");
    size_t len;
    uint8_t *bytes = file_of(s, &len);

    (void)state;
    for (size_t i = 0; i < len; i += TURNS(1, 7)) {
        for (unsigned bit = 0; bit < 8; bit++) {
            bytes[i] ^= (uint8_t)(1U << bit);
            if (check(s, bytes, len) == 0) {
                fail_msg("bit %u of byte %zu of %zu changed, and it convicts",
                         bit, i, len);
            }
            bytes[i] ^= (uint8_t)(1U << bit);
        }
    }
    assert_int_equal(check(s, bytes, len), 0);
    free(bytes);
    free(s);
}

static void a_file_that_is_cut_or_goes_on_is_refused(void **state)
{
    struct scene *s = scene_of("work");
    size_t len;
    uint8_t *bytes = file_of(s, &len), *more = crime_room(len + 1);

    (void)state;
    for (size_t n = 0; n < len; n++) {
        assert_int_equal(check(s, bytes, n), LOCO_EFORMAT);
    }
    memcpy(more, bytes, len);
    assert_int_equal(check(s, more, len + 1), LOCO_EFORMAT);
    assert_non_null(strstr(errmsg, "bytes follow the end"));
    more[8] = EVIDENCE_WORK_VERSION + 1;
    assert_int_equal(check(s, more, len), LOCO_EFORMAT);
    assert_non_null(strstr(errmsg, "a newer program"));
    free(more);
    free(bytes);
    free(s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(it_says_who_was_convicted_of_what),
        cmocka_unit_test(what_convicts_nobody_is_refused),
        cmocka_unit_test(another_run_is_refused),
        cmocka_unit_test(a_run_without_audits_of_work_is_refused),
        cmocka_unit_test(one_bit_changed_in_any_byte_is_refused),
        cmocka_unit_test(a_file_that_is_cut_or_goes_on_is_refused),
    };

    crime_need(sign_start() == 0);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
