/* What of a text is given and what is scored. Agreement with the harness
 * itself: tests/interop. */
#include "train/data/continuation.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "proto/base/err.h"
#include "tests/unit/train/tokenizer_make.h"

#define BOS 256U
#define EOS 257U
#define AB  258U /* "ab" */

struct fixture {
    struct tokenizer *t;
    struct continuation_options opt;
    struct continuation c;
    char errmsg[ERRMSG_SIZE];
};

/* Bytes, <s>, </s> and one merge; around a text stands what is said. */
static void open_fixture(struct fixture *f, const char *processor)
{
    json_t *o = make_bytes();

    make_token(o, "<s>");
    make_token(o, "</s>");
    make_added(o, "<s>", BOS, 0);
    make_added(o, "</s>", EOS, 0);
    assert_int_equal(make_merge(o, "a", "b"), AB);
    if (processor != NULL) {
        json_t *p = json_loads(processor, 0, NULL);

        assert_non_null(p);
        json_object_set_new(o, "post_processor", p);
    }
    memset(f, 0, sizeof *f);
    assert_int_equal(make_try(o, &f->t, f->errmsg), 0);
    f->opt = (struct continuation_options){
        .tokenizer = f->t, .prefix = CONTINUATION_NO_PREFIX, .seq = 8};
    assert_int_equal(tokenizer_encoder_open(&f->opt.encoder, f->t), 0);
}

static void close_fixture(struct fixture *f)
{
    continuation_free(&f->c);
    tokenizer_encoder_close(f->opt.encoder);
    tokenizer_close(f->t);
}

static int encode(struct fixture *f,
                  const char *context,
                  const char *del,
                  const char *more)
{
    const struct question_text a = {context, strlen(context)};
    const struct question_text b = {more, strlen(more)};

    continuation_free(&f->c);
    return continuation_encode(&f->c, &f->opt, &a, del, &b, f->errmsg);
}

/* The last n_scored of the n ids that follow are scored. */
static void expect(const struct fixture *f, size_t n_scored, size_t n, ...)
{
    va_list list;

    assert_int_equal(f->c.n, n);
    assert_int_equal(f->c.n_scored, n_scored);
    va_start(list, n);
    for (size_t i = 0; i < n; i++) {
        assert_int_equal(f->c.ids[i], va_arg(list, unsigned));
    }
    va_end(list);
}

static void the_delimiter_and_the_choice_are_scored(void **state)
{
    struct fixture f;

    (void)state;
    open_fixture(&f, NULL);
    assert_int_equal(encode(&f, "xy", " ", "z"), 0);
    expect(&f, 2, 4, 'x', 'y', ' ', 'z');
    assert_int_equal(encode(&f, "xy", "", "z"), 0);
    expect(&f, 1, 3, 'x', 'y', 'z');
    close_fixture(&f);
}

static void white_space_at_the_end_of_the_context_is_scored(void **state)
{
    struct fixture f;

    (void)state;
    open_fixture(&f, NULL);
    assert_int_equal(encode(&f, "xy \n", " ", "z"), 0);
    expect(&f, 4, 6, 'x', 'y', ' ', '\n', ' ', 'z');
    assert_int_equal(encode(&f, " \n", "", "z"), LOCO_EFORMAT);
    assert_non_null(strstr(f.errmsg, "only white space"));
    close_fixture(&f);
}

/* The context has two tokens, "x" and "a"; the whole "x", "ab", "c": what is
 * behind the first two is scored, given the context's own. */
static void a_token_across_the_seam_gives_way_to_the_contexts(void **state)
{
    struct fixture f;

    (void)state;
    open_fixture(&f, NULL);
    assert_int_equal(encode(&f, "xa", "", "bc"), 0);
    expect(&f, 1, 3, 'x', 'a', 'c');
    assert_int_equal(encode(&f, "xa", "", "b"), LOCO_EFORMAT);
    assert_non_null(strstr(f.errmsg, "adds no token"));
    close_fixture(&f);
}

static void an_empty_context_is_the_prefix_token(void **state)
{
    struct fixture f;

    (void)state;
    open_fixture(&f, NULL);
    assert_int_equal(encode(&f, "", " ", "z"), LOCO_EFORMAT);
    assert_non_null(strstr(f.errmsg, "--prefix-token"));
    f.opt.prefix = BOS;
    assert_int_equal(encode(&f, "", " ", "z"), 0);
    expect(&f, 2, 3, BOS, ' ', 'z');
    /* A continuation that begins with it is not given it again. */
    assert_int_equal(encode(&f, "", "", "<s>z"), 0);
    expect(&f, 1, 2, BOS, 'z');
    assert_int_equal(encode(&f, "", "", "<s>"), LOCO_EFORMAT);
    close_fixture(&f);
}

static void what_is_too_long_is_cut_from_the_left(void **state)
{
    struct fixture f;

    (void)state;
    open_fixture(&f, NULL);
    /* 8 tokens are read, the ninth is only found. */
    assert_int_equal(encode(&f, "1234567", "", "xy"), 0);
    expect(&f, 2, 9, '1', '2', '3', '4', '5', '6', '7', 'x', 'y');
    assert_int_equal(encode(&f, "0123456789", "", "xy"), 0);
    expect(&f, 2, 9, '3', '4', '5', '6', '7', '8', '9', 'x', 'y');
    assert_int_equal(encode(&f, "12", "", "stuvwxyz"), 0);
    expect(&f, 8, 9, '2', 's', 't', 'u', 'v', 'w', 'x', 'y', 'z');
    assert_int_equal(encode(&f, "12", "", "rstuvwxyz"), LOCO_EFORMAT);
    assert_non_null(strstr(f.errmsg, "it has 9 tokens, "));
    assert_non_null(strstr(f.errmsg, "the model reads at most 8"));
    close_fixture(&f);
}

#define TEMPLATE(single)                                                       \
    "{\"type\": \"TemplateProcessing\", \"single\": [" single                  \
    "], \"special_tokens\": {\"<s>\": {\"id\": \"<s>\", \"ids\": [256]}, "     \
    "\"</s>\": {\"id\": \"</s>\", \"ids\": [257]}}}"
#define BEFORE "{\"SpecialToken\": {\"id\": \"<s>\", \"type_id\": 0}}"
#define AFTER  "{\"SpecialToken\": {\"id\": \"</s>\", \"type_id\": 0}}"
#define HERE   "{\"Sequence\": {\"id\": \"A\", \"type_id\": 0}}"

/* As Llama 3 has it. */
static void the_tokenizers_own_tokens_stand_around(void **state)
{
    struct fixture f;

    (void)state;
    open_fixture(&f, "{\"type\": \"Sequence\", \"processors\": [{\"type\": "
                     "\"ByteLevel\"}, " TEMPLATE(BEFORE ", " HERE) "]}");
    f.opt.prefix = BOS;
    assert_int_equal(encode(&f, "x", " ", "z"), 0);
    expect(&f, 2, 4, BOS, 'x', ' ', 'z');
    assert_int_equal(encode(&f, "", " ", "z"), 0);
    expect(&f, 2, 3, BOS, ' ', 'z');
    /* White space alone leaves the token that begins a text. */
    assert_int_equal(encode(&f, " ", "", "z"), 0);
    expect(&f, 2, 3, BOS, ' ', 'z');
    /* A text that spells it does not get it twice. */
    assert_int_equal(encode(&f, "<s>x", "", "z"), 0);
    expect(&f, 1, 3, BOS, 'x', 'z');
    close_fixture(&f);

    /* What ends a text is counted in both, so the seam moves: as the harness
     * does it. */
    open_fixture(&f, TEMPLATE(HERE ", " AFTER));
    assert_int_equal(encode(&f, "x", "", "yz"), 0);
    expect(&f, 2, 4, 'x', EOS, 'z', EOS);
    close_fixture(&f);
}

static void an_unknown_post_processor_is_named(void **state)
{
    static const struct {
        const char *processor, *name;
    } cases[] = {
        {"{\"type\": \"ByteLevel\"}", ""},
        {"null", ""},
        {"{\"type\": \"BertProcessing\"}", "BertProcessing"},
        {"{\"type\": \"Sequence\", \"processors\": [" TEMPLATE(
             BEFORE "," HERE) ", {\"type\": \"Other\"}]}",
         "Other"},
        {"{\"type\": \"Sequence\", \"processors\": [" TEMPLATE(
             BEFORE "," HERE) "," TEMPLATE(BEFORE "," HERE) "]}",
         "TemplateProcessing"},
        {TEMPLATE(BEFORE), "TemplateProcessing"},
        {TEMPLATE(HERE "," HERE), "TemplateProcessing"},
        {TEMPLATE(BEFORE "," BEFORE "," BEFORE "," BEFORE "," BEFORE "," HERE),
         "TemplateProcessing"},
        {TEMPLATE("{\"SpecialToken\": {\"id\": \"<x>\"}}," HERE),
         "TemplateProcessing"},
        /* There are 259 tokens. */
        {"{\"type\": \"TemplateProcessing\", \"single\": [" BEFORE ", " HERE
         "], \"special_tokens\": {\"<s>\": {\"ids\": [259]}}}",
         "TemplateProcessing"},
        {"{}", "of no type"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const struct tokenizer_around *a;
        struct fixture f;

        if (strcmp(cases[i].processor, "null") == 0) {
            open_fixture(&f, NULL);
        } else {
            open_fixture(&f, cases[i].processor);
        }
        a = tokenizer_around(f.t);
        assert_string_equal(a->refused, cases[i].name);
        assert_int_equal(a->n_before + a->n_after, 0);
        close_fixture(&f);
    }
}

static void a_row_has_its_targets_one_place_to_the_left(void **state)
{
    static const uint32_t none = CONTINUATION_NOT_SCORED;
    uint32_t ids[] = {5, 6, 7, 8}, tokens[5], targets[5];
    const struct continuation c = {ids, 4, 2};
    const uint32_t want_tokens[] = {5, 6, 7, 0, 0};
    const uint32_t want_targets[] = {none, 7, 8, none, none};

    (void)state;
    continuation_row(&c, 5, tokens, targets);
    assert_memory_equal(tokens, want_tokens, sizeof tokens);
    assert_memory_equal(targets, want_targets, sizeof targets);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_delimiter_and_the_choice_are_scored),
        cmocka_unit_test(white_space_at_the_end_of_the_context_is_scored),
        cmocka_unit_test(a_token_across_the_seam_gives_way_to_the_contexts),
        cmocka_unit_test(an_empty_context_is_the_prefix_token),
        cmocka_unit_test(what_is_too_long_is_cut_from_the_left),
        cmocka_unit_test(the_tokenizers_own_tokens_stand_around),
        cmocka_unit_test(an_unknown_post_processor_is_named),
        cmocka_unit_test(a_row_has_its_targets_one_place_to_the_left),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
