/* Merges, added tokens and round trips on tokenizers made here; what a file
 * may not ask for. Agreement with another implementation: tests/interop. */
#include "train/data/tokenizer.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "proto/base/err.h"
#include "proto/base/rng.h"
#include "tests/unit/train/tokenizer_make.h"

static struct tokenizer *open_made(json_t *o)
{
    char errmsg[ERRMSG_SIZE] = "";
    struct tokenizer *t;

    if (make_try(o, &t, errmsg) != 0) {
        fail_msg("%s", errmsg);
    }
    return t;
}

/* The ids of `text` must be those behind n. */
static void expect(const struct tokenizer *t, const char *text, size_t n, ...)
{
    uint32_t *ids;
    size_t got;
    va_list list;

    assert_int_equal(
        tokenizer_encode_all(t, text, strlen(text), &ids, &got, NULL), 0);
    assert_int_equal(got, n);
    va_start(list, n);
    for (size_t i = 0; i < n; i++) {
        assert_int_equal(ids[i], va_arg(list, unsigned));
    }
    va_end(list);
    free(ids);
}

static void
round_trip(const struct tokenizer *t, const uint8_t *text, size_t len)
{
    uint32_t *ids;
    size_t n;
    size_t at = 0;

    assert_int_equal(tokenizer_encode_all(t, text, len, &ids, &n, NULL), 0);
    for (size_t i = 0; i < n; i++) {
        size_t m = 0;
        const uint8_t *bytes = tokenizer_text(t, ids[i], &m);

        assert_non_null(bytes);
        assert_true(m <= len - at);
        assert_memory_equal(bytes, text + at, m);
        at += m;
    }
    assert_int_equal(at, len);
    free(ids);
}

static void bytes_are_their_own_ids(void **state)
{
    struct tokenizer *t;
    uint8_t all[256];

    (void)state;
    assert_int_equal(tokenizer_open_bytes(&t, NULL), 0);
    assert_int_equal(tokenizer_vocab(t), 256);
    assert_true(tokenizer_is_bytes(t));
    expect(t, "Az\xff", 3, 65U, 122U, 255U);
    for (int i = 0; i < 256; i++) {
        all[i] = (uint8_t)i;
    }
    round_trip(t, all, sizeof all);
    tokenizer_close(t);
}

static void the_lowest_rank_merges_first(void **state)
{
    json_t *o = make_bytes();
    uint32_t bc = make_merge(o, "b", "c");
    uint32_t ab = make_merge(o, "a", "b");
    uint32_t abbc = make_merge(o, "ab", "bc");
    struct tokenizer *t = open_made(o);

    (void)state;
    expect(t, "abc", 2, 97U, bc);
    expect(t, "ab", 1, ab);
    expect(t, "abbc", 1, abbc);
    expect(t, "", 0);
    assert_false(tokenizer_is_bytes(t));
    assert_int_equal(tokenizer_vocab(t), 259);
    tokenizer_close(t);
}

static void of_equal_pairs_the_leftmost_merges(void **state)
{
    json_t *o = make_bytes();
    uint32_t aa = make_merge(o, "a", "a");
    struct tokenizer *t = open_made(o);

    (void)state;
    expect(t, "aaa", 2, aa, 97U);
    expect(t, "aaaaa", 3, aa, aa, 97U);
    tokenizer_close(t);
}

static void merges_may_be_pairs(void **state)
{
    json_t *o = make_bytes();
    json_t *merges = json_object_get(json_object_get(o, "model"), "merges");
    uint32_t xy = make_token(o, "xy");
    struct tokenizer *t;

    (void)state;
    json_array_append_new(merges, json_pack("[s, s]", "x", "y"));
    t = open_made(o);
    expect(t, "xyx", 2, xy, 120U);
    tokenizer_close(t);
}

/* A vocabulary may hold words that no merges lead to. */
static void whole_words_are_taken_only_with_ignore_merges(void **state)
{
    (void)state;
    for (int whole = 0; whole < 2; whole++) {
        json_t *o = make_bytes();
        uint32_t xyz = make_token(o, "xyz");
        uint32_t xy = make_merge(o, "x", "y");
        struct tokenizer *t;

        json_object_set_new(json_object_get(o, "model"), "ignore_merges",
                            json_boolean(whole));
        t = open_made(o);
        if (whole) {
            expect(t, "xyz", 1, xyz);
            expect(t, "xyzz", 3, xy, 122U, 122U);
        } else {
            expect(t, "xyz", 2, xy, 122U);
        }
        tokenizer_close(t);
    }
}

static void added_tokens_are_found_first_and_the_longest_wins(void **state)
{
    json_t *o = make_bytes();
    struct tokenizer *t;

    (void)state;
    make_added(o, "<a", 300, 0);
    make_added(o, "<ab>", 301, 0);
    make_added(o, "bb", 302, 1);
    make_added(o, "\xc3\xa9 x", 303, 0); /* decodes to itself */
    t = open_made(o);
    assert_int_equal(tokenizer_vocab(t), 304);
    expect(t, "<ab><a<", 3, 301U, 300U, 60U);
    expect(t, "<ab", 2, 300U, 98U);
    expect(t, "<abbc", 3, 300U, 302U, 99U);
    expect(t, "\xc3\xa9 x", 1, 303U);
    round_trip(t, (const uint8_t *)"a\xc3\xa9 x<ab>bbc", 12);
    tokenizer_close(t);
}

static void a_prefix_space_goes_before_every_piece(void **state)
{
    json_t *o = make_bytes();
    uint32_t space_a;
    struct tokenizer *t;

    (void)state;
    json_object_set_new(json_object_get(o, "pre_tokenizer"), "add_prefix_space",
                        json_true());
    space_a = make_merge(o, "\xc4\xa0", "a");
    make_added(o, "<s>", 300, 0);
    t = open_made(o);
    expect(t, "a", 1, space_a);
    expect(t, " a", 1, space_a);
    expect(t, "a<s>a", 3, space_a, 300U, space_a);
    expect(t, "", 0);
    tokenizer_close(t);
}

/* What is no UTF-8 is cut off from what is, and comes back. */
static void any_bytes_come_back(void **state)
{
    static const uint8_t odd[] = {0xe2, 0x82, 'a',  0xff, 0xc0, 0x80,
                                  0xed, 0xa0, 0x80, 0xf4, 0x90, 0x80,
                                  0x80, 0xe2, 0x82, 0xac, 0xc3};
    json_t *o = make_bytes();
    uint64_t rng = 5;
    struct tokenizer *t;

    (void)state;
    make_merge(o, "a", "b");
    json_object_set_new(json_object_get(o, "pre_tokenizer"), "use_regex",
                        json_true());
    make_added(o, "<|end|>", 300, 0);
    t = open_made(o);
    round_trip(t, odd, sizeof odd);
    for (int i = 0; i < 500; i++) {
        uint8_t text[200];
        size_t n = (size_t)rng_below(&rng, sizeof text);

        for (size_t k = 0; k < n; k++) {
            static const char some[] = "ab <|end|>\n'sl\xc3\xa9\xff";

            text[k] = rng_below(&rng, 4) == 0
                          ? (uint8_t)rng_next(&rng)
                          : (uint8_t)some[rng_below(&rng, sizeof some - 1)];
        }
        round_trip(t, text, n);
    }
    tokenizer_close(t);
}

/* ---- merging against a plain loop --------------------------------------- */

#define LETTERS 4
#define TOKENS  200
#define LONG    300

/* Token i is text[i]; merges (rank order) make text[LETTERS + rank]. */
struct plain {
    char text[TOKENS][64];
    int left[TOKENS], right[TOKENS];
    int n;
};

static void plain_make(struct plain *p, json_t *o, uint64_t *rng)
{
    for (p->n = 0; p->n < LETTERS; p->n++) {
        p->text[p->n][0] = (char)('a' + p->n);
        p->text[p->n][1] = '\0';
    }
    while (p->n < TOKENS) {
        int a = (int)rng_below(rng, (uint64_t)p->n);
        int b = (int)rng_below(rng, (uint64_t)p->n);
        bool known = strlen(p->text[a]) + strlen(p->text[b]) > 31;
        char joined[sizeof p->text[0]];

        (void)snprintf(joined, sizeof joined, "%.31s%.31s", p->text[a],
                       p->text[b]);
        memcpy(p->text[p->n], joined, sizeof joined);
        for (int i = 0; i < p->n; i++) {
            known |= strcmp(p->text[i], p->text[p->n]) == 0;
        }
        if (!known) {
            p->left[p->n] = a;
            p->right[p->n] = b;
            make_merge(o, p->text[a], p->text[b]);
            p->n++;
        }
    }
}

/* Merge the first pair of the lowest rank, again and again. */
static size_t plain_encode(const struct plain *p, int *ids, size_t n)
{
    for (;;) {
        int best = TOKENS;
        size_t at = 0;

        for (size_t i = 0; i + 1 < n; i++) {
            for (int t = LETTERS; t < best; t++) {
                if (p->left[t] == ids[i] && p->right[t] == ids[i + 1]) {
                    best = t;
                    at = i;
                }
            }
        }
        if (best == TOKENS) {
            return n;
        }
        ids[at] = best;
        memmove(ids + at + 1, ids + at + 2, (n - at - 2) * sizeof *ids);
        n--;
    }
}

static void words_of_any_length_merge_like_a_plain_loop(void **state)
{
    uint64_t rng = 11;

    (void)state;
    for (int round = 0; round < 20; round++) {
        static struct plain p;
        json_t *o = make_bytes();
        struct tokenizer *t;

        plain_make(&p, o, &rng);
        t = open_made(o);
        for (int word = 0; word < 40; word++) {
            char text[LONG];
            int want[LONG];
            size_t len = 1 + (size_t)rng_below(&rng, word % 2 ? 40 : LONG - 1);
            uint32_t *ids;
            size_t n;
            size_t m;

            for (size_t i = 0; i < len; i++) {
                want[i] = (int)rng_below(&rng, LETTERS);
                text[i] = (char)('a' + want[i]);
            }
            m = plain_encode(&p, want, len);
            assert_int_equal(tokenizer_encode_all(t, text, len, &ids, &n, NULL),
                             0);
            assert_int_equal(n, m);
            for (size_t i = 0; i < n; i++) {
                assert_int_equal(ids[i], want[i] < LETTERS
                                             ? (uint32_t)('a' + want[i])
                                             : (uint32_t)(252 + want[i]));
            }
            free(ids);
        }
        tokenizer_close(t);
    }
}

/* ---- refusals ----------------------------------------------------------- */

static void refused(json_t *o, const char *sentence)
{
    char errmsg[ERRMSG_SIZE] = "";
    struct tokenizer *t;

    assert_int_equal(make_try(o, &t, errmsg), LOCO_EFORMAT);
    assert_null(t);
    if (strstr(errmsg, sentence) == NULL) {
        fail_msg("\"%s\" is not in \"%s\"", sentence, errmsg);
    }
}

/* The made file with `json` at root.key, or at model.key. */
static json_t *with(const char *key, const char *json)
{
    json_t *o = make_bytes();
    json_t *value = json_loads(json, JSON_DECODE_ANY, NULL);
    bool model = strncmp(key, "model.", 6) == 0;

    assert_non_null(value);
    json_object_set_new(model ? json_object_get(o, "model") : o,
                        model ? key + 6 : key, value);
    return o;
}

static void what_is_not_supported_is_refused_by_sentence(void **state)
{
    static const struct {
        const char *key, *json, *sentence;
    } rows[] = {
        {"normalizer", "{\"type\": \"NFC\"}", "normalizer \"NFC\""},
        {"decoder", "{\"type\": \"Metaspace\"}", "decoder"},
        {"decoder", "null", "decoder"},
        {"pre_tokenizer", "{\"type\": \"Whitespace\"}", "\"Whitespace\""},
        {"pre_tokenizer", "null", "pre-tokenizer"},
        {"pre_tokenizer", "{\"type\": \"Sequence\", \"pretokenizers\": []}",
         "end with ByteLevel"},
        {"pre_tokenizer",
         "{\"type\": \"Split\", \"pattern\": {\"String\": \" \"},"
         " \"behavior\": \"MergedWithNext\", \"invert\": false}",
         "MergedWithNext"},
        {"pre_tokenizer",
         "{\"type\": \"Split\", \"pattern\": {\"Regex\": \"\\\\w+\"},"
         " \"behavior\": \"Isolated\"}",
         "\\w"},
        {"model.type", "\"Unigram\"", "\"Unigram\""},
        {"model.type", "\"WordPiece\"", "\"WordPiece\""},
        {"model.vocab", "{}", "byte 0x00"},
        {"model.vocab", "[]", "no vocab"},
        {"model.vocab", "{\"a\": -1}", "id of token \"a\""},
        {"model.vocab", "{\"a\": 1048576}", "id of token \"a\""},
        {"model.vocab", "{\"a\": 1.5}", "id of token \"a\""},
        {"model.vocab", "{\"a\": 1, \"b\": 1}", "another token's"},
        {"model.dropout", "0.1", "dropout"},
        {"model.end_of_word_suffix", "\"</w>\"", "end_of_word_suffix"},
        {"model.merges", "[\"a b\"]", "merge 0"},
        {"model.merges", "[\"ab\"]", "merge 0"},
        {"model.merges", "[\"a b c\"]", "merge 0"},
        {"model.merges", "[[\"a\"]]", "merge 0"},
        {"model.merges", "[[\"a\", 1]]", "merge 0"},
        {"model.merges", "[7]", "merge 0"},
        {"model.merges", "{}", "no merges"},
        {"added_tokens", "[{\"id\": 5, \"content\": \"<s>\"}]",
         "another token's"},
        {"added_tokens", "[{\"id\": 5, \"content\": \"a\"}]",
         "another token's"},
        {"added_tokens", "[{\"content\": \"<s>\"}]", "added token \"<s>\""},
        {"added_tokens",
         "[{\"id\": 300, \"content\": \"<s>\", "
         "\"lstrip\": true}]",
         "lstrip"},
        {"added_tokens",
         "[{\"id\": 300, \"content\": \"<s>\", "
         "\"single_word\": true}]",
         "single_word"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        refused(with(rows[i].key, rows[i].json), rows[i].sentence);
    }
}

static void what_is_no_tokenizer_is_one_clear_error(void **state)
{
    static const char *const texts[] = {
        "", "[]", "{", "nul", "{}", "\xff", "{\"model\": 3}"};
    char errmsg[ERRMSG_SIZE];
    struct tokenizer *t;
    char *deep = malloc(100001);

    (void)state;
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        errmsg[0] = '\0';
        assert_int_equal(
            tokenizer_open_memory(&t, texts[i], strlen(texts[i]), errmsg),
            LOCO_EFORMAT);
        assert_true(errmsg[0] != '\0');
    }
    memset(deep, '[', 100000);
    assert_int_equal(tokenizer_open_memory(&t, deep, 100000, errmsg),
                     LOCO_EFORMAT);
    assert_non_null(strstr(errmsg, "depth"));
    free(deep);
}

static void a_word_without_end_is_an_error_and_not_a_hang(void **state)
{
    size_t len = ((size_t)16 << 20) + 1;
    json_t *o = make_bytes();
    struct tokenizer *t;
    char errmsg[ERRMSG_SIZE];
    char *text = malloc(len);
    uint32_t *ids;
    size_t n;

    (void)state;
    make_merge(o, "a", "b");
    t = open_made(o);
    assert_non_null(text);
    memset(text, 'x', len);
    assert_int_equal(tokenizer_encode_all(t, text, len, &ids, &n, errmsg),
                     LOCO_ERANGE);
    assert_non_null(strstr(errmsg, "16777217 bytes"));
    free(text);
    tokenizer_close(t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bytes_are_their_own_ids),
        cmocka_unit_test(the_lowest_rank_merges_first),
        cmocka_unit_test(of_equal_pairs_the_leftmost_merges),
        cmocka_unit_test(merges_may_be_pairs),
        cmocka_unit_test(whole_words_are_taken_only_with_ignore_merges),
        cmocka_unit_test(added_tokens_are_found_first_and_the_longest_wins),
        cmocka_unit_test(a_prefix_space_goes_before_every_piece),
        cmocka_unit_test(any_bytes_come_back),
        cmocka_unit_test(words_of_any_length_merge_like_a_plain_loop),
        cmocka_unit_test(what_is_not_supported_is_refused_by_sentence),
        cmocka_unit_test(what_is_no_tokenizer_is_one_clear_error),
        cmocka_unit_test(a_word_without_end_is_an_error_and_not_a_hang),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
