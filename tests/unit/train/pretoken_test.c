/* Words of the two patterns that most tokenizers use, chains of stages, and
 * which patterns are refused. */
#include "train/data/pretoken.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "proto/base/err.h"
#include "proto/base/errmsg.h"
#include "train/data/pattern.h"

#define GPT2                                                                   \
    "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+"        \
    "|\\s+(?!\\S)|\\s+"
#define LLAMA3                                                                 \
    "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}"   \
    "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"

static char words[1024];

static int on_word(void *data, const uint8_t *word, size_t len)
{
    size_t n = strlen(words);

    (void)data;
    assert_true(len > 0 && n + len + 1 < sizeof words);
    memcpy(words + n, word, len);
    memcpy(words + n + len, "|", 2);
    return 0;
}

static void cut(const struct pretoken *p, const char *text, const char *want)
{
    struct pretoken_work *w = pretoken_work_new(p);
    char errmsg[ERRMSG_SIZE] = "";

    assert_non_null(w);
    words[0] = '\0';
    if (pretoken_run(w, (const uint8_t *)text, strlen(text), on_word, NULL,
                     errmsg) != 0) {
        fail_msg("%s", errmsg);
    }
    assert_string_equal(words, want);
    pretoken_work_free(w);
}

static void add(struct pretoken *p, const char *pattern)
{
    char errmsg[ERRMSG_SIZE] = "";

    if (pretoken_add(p, PRETOKEN_REGEX, pattern, false, errmsg) != 0) {
        fail_msg("%s", errmsg);
    }
}

static void gpt2_words(void **state)
{
    struct pretoken p = {0};

    (void)state;
    add(&p, GPT2);
    cut(&p, "Hello world's  end", "Hello| world|'s| | end|");
    cut(&p, "I'LL we'll 12345 x2", "I|'|LL| we|'ll| 12345| x|2|");
    cut(&p, "a\n\n b  \n", "a|\n\n| b|  \n|");
    cut(&p, "\xc3\xa9t\xc3\xa9 \xe6\x97\xa5\xe6\x9c\xac!",
        "\xc3\xa9t\xc3\xa9| \xe6\x97\xa5\xe6\x9c\xac|!|");
    /* NBSP is a space; U+180E, no longer, is not. */
    cut(&p, "a\xc2\xa0z", "a|\xc2\xa0|z|");
    cut(&p, "a\xe1\xa0\x8ez", "a|\xe1\xa0\x8e|z|");
    cut(&p, "   ", "   |");
    pretoken_close(&p);
}

static void llama3_words(void **state)
{
    struct pretoken p = {0};

    (void)state;
    add(&p, LLAMA3);
    cut(&p, "I'LL 1234567 x", "I|'LL| |123|456|7| x|");
    cut(&p, "a.b (c)\n\n d", "a|.b| (|c|)\n\n| d|");
    cut(&p, "x  \r\n y", "x|  \r\n| y|");
    cut(&p, "it\xe2\x80\x99s", "it|\xe2\x80\x99s|");
    pretoken_close(&p);
}

static void a_stage_sees_only_its_piece(void **state)
{
    struct pretoken p = {0};
    char errmsg[ERRMSG_SIZE];

    (void)state;
    assert_int_equal(pretoken_add(&p, PRETOKEN_LITERAL, ".", false, errmsg), 0);
    /* "b" behind the cut is not followed by anything. */
    add(&p, "b(?!\\.)");
    cut(&p, "ab.bb", "a|b|.|b|b|");
    pretoken_close(&p);
}

static void gaps_are_dropped_where_asked_for(void **state)
{
    struct pretoken p = {0};
    char errmsg[ERRMSG_SIZE];

    (void)state;
    assert_int_equal(pretoken_add(&p, PRETOKEN_REGEX, "\\p{L}+", true, errmsg),
                     0);
    cut(&p, "--ab12cd!", "ab|cd|");
    cut(&p, "12", "");
    pretoken_close(&p);
}

static void a_prefix_is_a_space_before_what_has_none(void **state)
{
    struct pretoken p = {0};
    char errmsg[ERRMSG_SIZE];

    (void)state;
    assert_int_equal(pretoken_add_prefix(&p, errmsg), 0);
    cut(&p, "a b", " a b|");
    cut(&p, " a b", " a b|");
    pretoken_close(&p);
}

static void an_empty_match_cuts_and_goes_on(void **state)
{
    struct pretoken p = {0};

    (void)state;
    add(&p, "x*");
    cut(&p, "axx\xc3\xa9", "a|xx|\xc3\xa9|");
    pretoken_close(&p);
}

static void a_hostile_pattern_is_an_error_and_not_a_hang(void **state)
{
    struct pretoken p = {0};
    struct pretoken_work *w;
    char errmsg[ERRMSG_SIZE] = "";
    char text[64];

    (void)state;
    add(&p, "(?:a?){30}(?:a*)*b|(a+)+c");
    w = pretoken_work_new(&p);
    memset(text, 'a', sizeof text);
    assert_int_equal(pretoken_run(w, (const uint8_t *)text, sizeof text,
                                  on_word, NULL, errmsg),
                     LOCO_EFORMAT);
    assert_non_null(strstr(errmsg, "too slow"));
    pretoken_work_free(w);
    pretoken_close(&p);
}

static void the_chain_has_an_end(void **state)
{
    struct pretoken p = {0};
    char errmsg[ERRMSG_SIZE];

    (void)state;
    for (int i = 0; i < PRETOKEN_STAGES_MAX; i++) {
        add(&p, "a");
    }
    assert_int_equal(pretoken_add(&p, PRETOKEN_REGEX, "a", false, errmsg),
                     LOCO_EFULL);
    pretoken_close(&p);
}

static void patterns_are_written_anew_or_refused(void **state)
{
    static const struct {
        const char *from, *to; /* NULL: refused */
    } rows[] = {
        {"a|\\.(?=b)", "a|\\.(?=b)"},
        {"\\p{L}\\P{Nd}\\p{^Lu}", "\\p{L}\\P{Nd}\\p{^Lu}"},
        {"\\p{Greek}", "\\p{sc:Greek}"},
        {"[^\\S\\n]", "[^\\P{White_Space}\\n]"},
        {"\\u00e9\\x41\\x{1F600}", "\\x{00e9}\\x{41}\\x{1F600}"},
        {"[a-z&]", "[a-z&]"},
        {"x{1,3}?y++", "x{1,3}?y++"},
        {"\\w", NULL},
        {"\\bx", NULL},
        {"\\h", NULL},
        {"^a", NULL},
        {"a$", NULL},
        {"(?<n>a)", NULL},
        {"(a)\\1", NULL},
        {"(?R)", NULL},
        {"(*UTF)a", NULL},
        {"(?m:.)", NULL},
        {"[[:alpha:]]", NULL},
        {"[a&&b]", NULL},
        {"[]a]", NULL},
        {"[a", NULL},
        {"a{2}+", NULL},
        {"a\\", NULL},
        {"\\p{", NULL},
        {"\\pL", NULL},
        {"\\x{}", NULL},
        {"\\u12", NULL},
    };

    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        char out[PATTERN_MAX], errmsg[ERRMSG_SIZE] = "";
        int rv = pattern_translate(rows[i].from, out, errmsg);

        if (rv != (rows[i].to == NULL ? LOCO_EFORMAT : 0) ||
            (rv == 0 && strcmp(out, rows[i].to) != 0)) {
            fail_msg("%s: %d %s", rows[i].from, rv, rv == 0 ? out : errmsg);
        }
    }
}

static void what_pcre2_cannot_read_is_a_sentence(void **state)
{
    struct pretoken p = {0};
    char errmsg[ERRMSG_SIZE] = "";

    (void)state;
    assert_int_equal(pretoken_add(&p, PRETOKEN_REGEX, "a(", false, errmsg),
                     LOCO_EFORMAT);
    assert_non_null(strstr(errmsg, "byte 2"));
    assert_int_equal(
        pretoken_add(&p, PRETOKEN_REGEX, "\\p{Klingon}", false, errmsg),
        LOCO_EFORMAT);
    assert_int_equal(pretoken_add(&p, PRETOKEN_LITERAL, "", false, errmsg),
                     LOCO_EFORMAT);
    assert_int_equal(p.n, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gpt2_words),
        cmocka_unit_test(llama3_words),
        cmocka_unit_test(a_stage_sees_only_its_piece),
        cmocka_unit_test(gaps_are_dropped_where_asked_for),
        cmocka_unit_test(a_prefix_is_a_space_before_what_has_none),
        cmocka_unit_test(an_empty_match_cuts_and_goes_on),
        cmocka_unit_test(a_hostile_pattern_is_an_error_and_not_a_hang),
        cmocka_unit_test(the_chain_has_an_end),
        cmocka_unit_test(patterns_are_written_anew_or_refused),
        cmocka_unit_test(what_pcre2_cannot_read_is_a_sentence),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
