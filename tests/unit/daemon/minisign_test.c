/* minisign_test.c - keys and signatures that minisign 0.11 made. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <string.h>

#include "daemon/release/minisign.h"
#include "proto/base/err.h"
#include "proto/limits.h"

static const char file[] = "the same bytes on every machine\n";
static const char key_text[] =
    "untrusted comment: minisign public key C9781E53537231B0\n"
    "RWSwMXJTUx54yWbjCimXTd0/oLU4JvMWa5GPPsaSTo+uh4oSPi4QDZfv\n";
static const char other_key[] =
    "RWRVhW2WfAC+bxgXEENGDplz+bp3XvMVEs/MuNIjoaIlQJPfBmAwtj8p";
static const char signature[] =
    "untrusted comment: signature from minisign secret key\n"
    "RUSwMXJTUx54yScEjTCAGkBzUcPznUmWNWwhu+yYPArP8RVM2PSexNGpWK0jWn/M34/vBEwvry"
    "MyskeDn+shZ5dqgs/kJgKIwwA=\n"
    "trusted comment: loco test vector\n"
    "OTEgstplwC2HQR4W/Zv1BVwquO8/grPRbG3oaB8GgtUjX8mRlHSEEwgV7nzyZLfRLpE5KSE95R"
    "Gr0a3LKJMGAg==\n";
static const char older_form[] =
    "untrusted comment: signature from minisign secret key\n"
    "RWSwMXJTUx54ycklp/TEzGZMGSYuUPRRG11DJTlLp3tk9uX15OTiSPpBJ7iLFEH1aASx2jJdgj"
    "NeGXdYdDJ99g+H3r01TgeGQQ8=\n"
    "trusted comment: older form\n"
    "grMnBkLDKUvXgoxNpGVrOOy1jOiZom/g+n9ap3yvHm8o90yULtmMJV3vNUfHqoA3t0p2zfXqMK"
    "GrcJ6V12swAg==\n";

/* What the whole way says of a signature's text and a file. */
static int verdict(const char *sig, const char *key, const char *bytes)
{
    struct minisign_signature s;
    struct minisign_key k;
    char errmsg[LOCO_ERRMSG_MAX];
    int rv = minisign_signature_parse(&s, sig, strlen(sig), errmsg);

    assert_int_equal(minisign_key_parse(&k, key, errmsg), 0);
    rv = rv == 0 ? minisign_verify(&s, &k, bytes, strlen(bytes), errmsg) : rv;
    assert_true(rv == 0 || strlen(errmsg) > 10);
    return rv;
}

static void what_minisign_signed_is_accepted(void **state)
{
    struct minisign_signature s;
    char errmsg[LOCO_ERRMSG_MAX];

    (void)state;
    assert_int_equal(verdict(signature, key_text, file), 0);
    assert_int_equal(
        minisign_signature_parse(&s, signature, strlen(signature), errmsg), 0);
    assert_string_equal(s.comment, "loco test vector");
}

static void one_other_byte_in_the_file_is_refused(void **state)
{
    char altered[sizeof file];

    (void)state;
    for (size_t i = 0; i + 1 < sizeof file; i++) {
        memcpy(altered, file, sizeof file);
        altered[i] ^= 1;
        assert_int_equal(verdict(signature, key_text, altered), LOCO_ESIG);
    }
    assert_int_equal(verdict(signature, key_text, ""), LOCO_ESIG);
}

static void one_other_character_in_the_signature_is_refused(void **state)
{
    char altered[sizeof signature];
    const char *second = strchr(signature, '\n') + 1;

    (void)state;
    for (size_t i = (size_t)(second - signature); i + 1 < sizeof signature;
         i++) {
        memcpy(altered, signature, sizeof signature);
        altered[i] = altered[i] == 'A' ? 'B' : 'A';
        assert_int_not_equal(verdict(altered, key_text, file), 0);
    }
}

static void a_signature_that_was_cut_is_refused(void **state)
{
    struct minisign_signature s;
    char errmsg[LOCO_ERRMSG_MAX];

    (void)state;
    for (size_t len = 0; len + 2 < sizeof signature; len++) {
        assert_int_equal(minisign_signature_parse(&s, signature, len, errmsg),
                         LOCO_EFORMAT);
    }
}

static void the_older_form_is_refused_by_name(void **state)
{
    struct minisign_signature s;
    char errmsg[LOCO_ERRMSG_MAX];

    (void)state;
    assert_int_equal(
        minisign_signature_parse(&s, older_form, strlen(older_form), errmsg),
        LOCO_EFORMAT);
    assert_non_null(strstr(errmsg, "older form"));
}

static void another_key_is_refused(void **state)
{
    char renamed[sizeof other_key];

    (void)state;
    assert_int_equal(verdict(signature, other_key, file), LOCO_ESIG);
    /* The name of the right key on the wrong one. */
    memcpy(renamed, other_key, sizeof renamed);
    memcpy(renamed, strchr(key_text, '\n') + 1, 13);
    assert_int_equal(verdict(signature, renamed, file), LOCO_ESIG);
}

static void a_text_that_is_no_key_is_refused(void **state)
{
    static const char *const bad[] = {
        "",
        "RW",
        "\n\n",
        "RWSwMXJTUx54yWbjCimXTd0/oLU4JvMWa5GPPsaSTo",
        "XWSwMXJTUx54yWbjCimXTd0/oLU4JvMWa5GPPsaSTo+uh4oSPi4QDZfv",
        "RWSwMXJTUx54yWbjCimXTd0/oLU4JvMWa5GPPsaSTo+uh4oSPi4QDZfvAAAA"};
    struct minisign_key k;
    char errmsg[LOCO_ERRMSG_MAX];

    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        assert_int_equal(minisign_key_parse(&k, bad[i], errmsg), LOCO_EFORMAT);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_minisign_signed_is_accepted),
        cmocka_unit_test(one_other_byte_in_the_file_is_refused),
        cmocka_unit_test(one_other_character_in_the_signature_is_refused),
        cmocka_unit_test(a_signature_that_was_cut_is_refused),
        cmocka_unit_test(the_older_form_is_refused_by_name),
        cmocka_unit_test(another_key_is_refused),
        cmocka_unit_test(a_text_that_is_no_key_is_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
