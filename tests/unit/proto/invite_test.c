/* invite_test.c - invitations: made, written, read, shown by one peer. */
#include "tests/unit/proto/suite.h"

#include <stdio.h>
#include <string.h>

#include "proto/base/err.h"
#include "proto/invite.h"
#include "proto/messages.h"

static struct identity author, guest, other;
static struct hash32 run;

static struct invite made(void)
{
    struct invite in;

    assert_int_equal(invite_make(&author, &run, 7, 1800000000, &in), 0);
    return in;
}

/* As a member does (daemon/node/admit.c). */
static bool holds(const struct admission *a, const struct peer_id *peer)
{
    struct signer s = signer_sodium(NULL);
    struct admission_body proof = {.run = run, .peer = *peer};

    return message_verify(&s, author.public, &invitation_body_schema,
                          &a->invitation.body, a->invitation.sig) &&
           message_verify(&s, a->invitation.body.key, &admission_body_schema,
                          &proof, a->proof);
}

static void what_is_written_is_read_back(void **state)
{
    struct invite in = made(), back;
    char text[INVITE_TEXT_MAX], again[INVITE_TEXT_MAX];

    (void)state;
    invite_format(&in, text);
    assert_int_equal(strlen(text), 144);
    assert_int_equal(strspn(text, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqr"
                                  "stuvwxyz0123456789-_"),
                     144);
    assert_int_equal(invite_parse(text, &back), 0);
    invite_format(&back, again);
    assert_string_equal(text, again);
    assert_int_equal(back.number, 7);
    assert_int_equal(back.expiry_s, 1800000000);
}

static void other_text_is_refused(void **state)
{
    struct invite in = made(), back;
    char text[INVITE_TEXT_MAX + 8];

    (void)state;
    invite_format(&in, text);
    text[143] = '\0';
    assert_int_equal(invite_parse(text, &back), LOCO_EINVAL);
    invite_format(&in, text);
    (void)snprintf(text + 144, 2, "A");
    assert_int_equal(invite_parse(text, &back), LOCO_EINVAL);
    for (const char *c = "=+/ \n&\x80"; *c != '\0'; c++) {
        invite_format(&in, text);
        text[50] = *c;
        assert_int_equal(invite_parse(text, &back), LOCO_EINVAL);
    }
    assert_int_equal(invite_parse("", &back), LOCO_EINVAL);
}

static void an_admission_names_one_peer_and_holds_no_secret(void **state)
{
    struct invite in = made();
    struct admission a;
    uint8_t bytes[1024];
    int n;

    (void)state;
    assert_int_equal(invite_admission(&in, &run, &guest.id, &a), 0);
    assert_true(holds(&a, &guest.id));
    assert_false(holds(&a, &other.id));
    assert_int_equal(a.invitation.body.number, 7);
    n = msg_encode(&admission_schema, &a, bytes, sizeof bytes);
    assert_true(n > 0);
    for (int i = 0; i + (int)sizeof in.seed <= n; i++) {
        assert_memory_not_equal(bytes + i, in.seed, sizeof in.seed);
    }
}

static void what_was_altered_does_not_hold(void **state)
{
    struct invite in = made();
    struct admission a;

    (void)state;
    in.number++;
    assert_int_equal(invite_admission(&in, &run, &guest.id, &a), 0);
    assert_false(holds(&a, &guest.id));
    in = made();
    in.expiry_s = 0;
    assert_int_equal(invite_admission(&in, &run, &guest.id, &a), 0);
    assert_false(holds(&a, &guest.id));
    in = made();
    in.seed[0] ^= 1; /* another secret than the one that was signed */
    assert_int_equal(invite_admission(&in, &run, &guest.id, &a), 0);
    assert_false(holds(&a, &guest.id));
}

int main(void)
{
    static const uint8_t seeds[3][SIGN_SEED_BYTES] = {{1}, {2}, {3}};
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_written_is_read_back),
        cmocka_unit_test(other_text_is_refused),
        cmocka_unit_test(an_admission_names_one_peer_and_holds_no_secret),
        cmocka_unit_test(what_was_altered_does_not_hold),
    };

    if (sign_start() != 0 || identity_generate(&author, seeds[0]) != 0 ||
        identity_generate(&guest, seeds[1]) != 0 ||
        identity_generate(&other, seeds[2]) != 0) {
        return 1;
    }
    memset(run.b, 0x22, sizeof run.b);
    return cmocka_run_group_tests_name("proto/invite", tests, NULL, NULL);
}
