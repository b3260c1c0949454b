/* words_test.c - the published vectors of BIP 39, and what people mistype. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <string.h>

#include "daemon/cli/words.h"
#include "proto/base/bytes.h"
#include "proto/base/err.h"
#include "proto/id.h"

/* github.com/trezor/python-mnemonic, vectors.json, those of 256 bits. */
static const struct {
    const char *secret, *words;
} vectors[] = {
    {"0000000000000000000000000000000000000000000000000000000000000000",
     "abandon abandon abandon abandon abandon abandon abandon abandon abandon "
     "abandon abandon abandon abandon abandon abandon abandon abandon abandon "
     "abandon abandon abandon abandon abandon art"},
    {"8080808080808080808080808080808080808080808080808080808080808080",
     "letter advice cage absurd amount doctor acoustic avoid letter advice "
     "cage absurd amount doctor acoustic avoid letter advice cage absurd "
     "amount doctor acoustic bless"},
    {"ffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff",
     "zoo zoo zoo zoo zoo zoo zoo zoo zoo zoo zoo zoo zoo zoo zoo zoo zoo zoo "
     "zoo zoo zoo zoo zoo vote"},
    {"68a79eaca2324873eacc50cb9c6eca8cc68ea5d936f98787c60c7ebc74e6ce7c",
     "hamster diagram private dutch cause delay private meat slide toddler "
     "razor book happy fancy gospel tennis maple dilemma loan word shrug "
     "inflict delay length"},
    {"f585c11aec520db57dd353c69554b21a89b20fb0650966fa0a9d6f74fd989d8f",
     "void come effort suffer camp survey warrior heavy shoot primary clutch "
     "crush open amazing screen patrol group space point ten exist slush "
     "involve unfold"},
};

static void the_published_vectors_hold_both_ways(void **state)
{
    char text[WORDS_TEXT_MAX], errmsg[WORDS_ERRMSG_MAX];
    uint8_t secret[32], back[32];

    (void)state;
    for (size_t i = 0; i < sizeof vectors / sizeof vectors[0]; i++) {
        assert_int_equal(hex_decode(vectors[i].secret, secret, 32), 0);
        words_encode(secret, text);
        assert_string_equal(text, vectors[i].words);
        assert_int_equal(words_decode(text, back, errmsg), 0);
        assert_memory_equal(back, secret, 32);
    }
}

static void case_line_breaks_and_short_words_are_forgiven(void **state)
{
    char errmsg[WORDS_ERRMSG_MAX];
    uint8_t secret[32], right[32];

    (void)state;
    assert_int_equal(hex_decode(vectors[3].secret, right, 32), 0);
    assert_int_equal(
        words_decode("  HAMS diagram priv dutch\ncause dela private meat\n"
                     "slide todd razor book happy fanc gosp tenn mapl dile "
                     "loan word shru infl dela leng\n",
                     secret, errmsg),
        0);
    assert_memory_equal(secret, right, 32);
}

static void mistakes_are_named_by_their_place(void **state)
{
    static const struct {
        const char *text, *says;
    } cases[] = {
        {"", "0 words of 24"},
        {"zoo zoo", "2 words of 24"},
        {"zoo zoo hamsterr", "word 3 is not in the list; did you mean "
                             "'hamster'?"},
        {"zoo qqqqqqqq", "word 2 is not in the list"},
        {"zoo qqqqqqqqqqqqqqqqqqqqqqqqqqqq", "word 2 is not in the list"},
        {"zoo zoo zoo zoo zoo zoo zoo zoo zoo zoo zoo zoo zoo zoo zoo zoo zoo "
         "zoo zoo zoo zoo zoo zoo zoo",
         "order is wrong"},
        {"zoo zoo zoo zoo zoo zoo zoo zoo zoo zoo zoo zoo zoo zoo zoo zoo zoo "
         "zoo zoo zoo zoo zoo zoo vote zoo",
         "more than 24"},
    };
    char errmsg[WORDS_ERRMSG_MAX];
    uint8_t secret[32];

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        errmsg[0] = '\0';
        assert_int_equal(words_decode(cases[i].text, secret, errmsg),
                         LOCO_EINVAL);
        if (strstr(errmsg, cases[i].says) == NULL) {
            fail_msg("'%s' is not in: %s", cases[i].says, errmsg);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_published_vectors_hold_both_ways),
        cmocka_unit_test(case_line_breaks_and_short_words_are_forgiven),
        cmocka_unit_test(mistakes_are_named_by_their_place),
    };

    return cmocka_run_group_tests_name("words", tests, NULL, NULL);
}
