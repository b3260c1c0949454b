/* base_test.c - errors, little-endian words, randomness, log lines. */
#include "tests/unit/proto/suite.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "proto/base/bytes.h"
#include "proto/base/err.h"
#include "proto/base/log.h"
#include "proto/base/nearest.h"
#include "proto/base/rng.h"

static void every_code_is_its_own_and_has_a_text(void **state)
{
    static const int codes[] = {
#define X(name, code, text) name,
        LOCO_ERR_MAP(X)
#undef X
    };

    (void)state;
    for (size_t i = 0; i < N_OF(codes); i++) {
        assert_true(codes[i] <= -30001);
        assert_string_not_equal(loco_strerror(codes[i]), "unknown error");
        for (size_t j = 0; j < i; j++) {
            assert_int_not_equal(codes[i], codes[j]);
            assert_string_not_equal(loco_strerror(codes[i]),
                                    loco_strerror(codes[j]));
        }
    }
    assert_string_equal(loco_strerror(0), "ok");
    assert_string_equal(loco_strerror(-4095), "unknown error");
}

static void words_are_little_endian_on_every_host(void **state)
{
    static const uint8_t want[8] = {8, 7, 6, 5, 4, 3, 2, 0xf1};
    uint8_t bytes[8];

    (void)state;
    put_u64(bytes, 0xf102030405060708U);
    assert_memory_equal(bytes, want, 8);
    assert_true(get_u64(want) == 0xf102030405060708U);
    assert_int_equal(get_u32(want), 0x05060708);
    assert_int_equal(get_u16(want), 0x0708);
    put_u32(bytes, 0xf1020304U);
    assert_int_equal(get_u32(bytes), 0xf1020304U);
    put_u16(bytes, 0xfedcU);
    assert_int_equal(get_u16(bytes), 0xfedcU);
}

static void randomness_equals_the_published_vectors(void **state)
{
    static const uint64_t zero[3] = {0xe220a8397b1dcdafU, 0x6e789e6aa1b965f4U,
                                     0x06c45d188009454fU};
    static const uint64_t other[3] = {0x599ed017fb08fc85U, 0x2c73f08458540fa5U,
                                      0x883ebce5a3f27c77U};
    static const uint64_t words[3] = {42, 1, 0};
    uint64_t a = 0, b = 1234567;

    (void)state;
    for (int i = 0; i < 3; i++) {
        assert_true(rng_next(&a) == zero[i]);
        assert_true(rng_next(&b) == other[i]);
    }
    assert_true(rng_mix(words, 3) == 0x7747f4ced3bb64edU);
}

static void permutations_equal_the_published_vectors(void **state)
{
    static const uint32_t want8[8] = {1, 4, 5, 2, 6, 0, 3, 7};
    static const uint32_t want5[5] = {4, 1, 3, 0, 2};
    uint32_t p[8];

    (void)state;
    rng_perm(p, 8, 7);
    assert_memory_equal(p, want8, sizeof want8);
    rng_perm(p, 5, 7);
    assert_memory_equal(p, want5, sizeof want5);
    rng_perm(p, 1, 7);
    assert_int_equal(p[0], 0);
    rng_perm(p, 0, 7); /* touches nothing */
    assert_int_equal(p[0], 0);
}

static void below_n_every_value_comes_about_equally_often(void **state)
{
    unsigned counts[7] = {0};
    uint64_t s = 1;

    (void)state;
    for (int i = 0; i < 70000; i++) {
        uint64_t x = rng_below(&s, 7);

        assert_true(x < 7);
        counts[x]++;
    }
    for (int i = 0; i < 7; i++) {
        /* 6 standard deviations of a binomial: 6 * sqrt(70000 / 7 * 6/7) */
        assert_in_range(counts[i], 10000 - 556, 10000 + 556);
    }
    assert_true(rng_below(&s, 1) == 0);
    for (int i = 0; i < 1000; i++) {
        float f = rng_float(&s);

        assert_true(f >= 0.0f && f < 1.0f);
    }
}

/* What log_write() put on stderr. */
static void capture(char *out, size_t cap, enum log_level level, const char *t)
{
    int saved = dup(STDERR_FILENO), fds[2];
    ssize_t n;

    assert_int_equal(pipe(fds), 0);
    assert_true(dup2(fds[1], STDERR_FILENO) >= 0);
    log_write(level, "test", "%s", t);
    assert_true(dup2(saved, STDERR_FILENO) >= 0);
    (void)close(fds[1]);
    n = read(fds[0], out, cap - 1);
    out[n > 0 ? n : 0] = '\0';
    (void)close(fds[0]);
    (void)close(saved);
}

static void log_lines_below_the_level_are_not_written(void **state)
{
    char line[256];

    (void)state;
    log_set_level(LOG_WARN);
    capture(line, sizeof line, LOG_INFO, "quiet");
    assert_string_equal(line, "");
    capture(line, sizeof line, LOG_ERROR, "loud");
    assert_non_null(strstr(line, "Z error test   loud ["));
    log_set_level(LOG_INFO);
    assert_int_equal(log_level_parse("debug"), LOG_DEBUG);
    assert_int_equal(log_level_parse("loud"), -1);
    assert_true(log_enabled(LOG_INFO));
    assert_false(log_enabled(LOG_DEBUG));
}

static void json_lines_escape_quotes_and_drop_control_bytes(void **state)
{
    char line[256];

    (void)state;
    log_set_json(true);
    capture(line, sizeof line, LOG_INFO, "a \"b\" \\ c\nd");
    log_set_json(false);
    assert_non_null(strstr(line, "\"event\":\""));
    assert_non_null(strstr(line, "\"text\":\"a \\\"b\\\" \\\\ cd\"}\n"));
}

static void a_log_line_too_long_is_cut_and_still_json(void **state)
{
    char text[3000], line[4096];

    (void)state;
    memset(text, '"', sizeof text - 1);
    text[sizeof text - 1] = '\0';
    log_set_json(true);
    capture(line, sizeof line, LOG_INFO, text);
    log_set_json(false);
    assert_in_range(strlen(line), 900, 1200);
    assert_string_equal(line + strlen(line) - 3, "\"}\n");
}

/* A file in the place of stderr. */
struct away {
    FILE *f;
    int saved;
    char text[1 << 16];
};

static void go_away(struct away *a)
{
    a->f = tmpfile();
    assert_non_null(a->f);
    a->saved = dup(STDERR_FILENO);
    assert_true(dup2(fileno(a->f), STDERR_FILENO) >= 0);
}

static void look(struct away *a)
{
    size_t n;

    rewind(a->f);
    n = fread(a->text, 1, sizeof a->text - 1, a->f);
    a->text[n] = '\0';
}

static void come_back(struct away *a)
{
    assert_true(dup2(a->saved, STDERR_FILENO) >= 0);
    (void)close(a->saved);
    (void)fclose(a->f);
}

static unsigned count(const char *text, const char *what)
{
    unsigned n = 0;

    for (; (text = strstr(text, what)) != NULL; text += strlen(what)) {
        n++;
    }
    return n;
}

static void the_journal_gets_levels_and_no_time(void **state)
{
    static struct away a;
    char stream[64];
    struct stat st;

    (void)state;
    go_away(&a);
    assert_int_equal(fstat(STDERR_FILENO, &st), 0);
    (void)snprintf(stream, sizeof stream, "%llu:%llu",
                   (unsigned long long)st.st_dev,
                   (unsigned long long)st.st_ino);
    assert_int_equal(setenv("JOURNAL_STREAM", stream, 1), 0);
    log_find_journal();
    log_warn("test", "a warning");
    log_set_json(true);
    log_info("test", "json");
    log_set_json(false);
    assert_string_equal(log_prefix(LOG_ERROR), "<3>");
    /* Somebody's else, inherited: our stderr is a file now. */
    assert_int_equal(setenv("JOURNAL_STREAM", "8:1", 1), 0);
    log_find_journal();
    log_warn("test", "to a file");
    assert_string_equal(log_prefix(LOG_ERROR), "");
    assert_int_equal(unsetenv("JOURNAL_STREAM"), 0);
    look(&a);
    come_back(&a);
    assert_int_equal(strncmp(a.text, "<4>test   a warning [", 21), 0);
    assert_non_null(strstr(a.text, "\n<6>{\"time\":\""));
    assert_non_null(strstr(a.text, "\n20"));
}

static void the_event_is_of_the_form_not_of_its_values(void **state)
{
    static struct away a;
    char event[16];

    (void)state;
    /* FNV-1a, from its authors' list of vectors. */
    assert_int_equal(log_event(""), 0x811c9dc5);
    assert_int_equal(log_event("foobar"), 0xbf9cf968);
    go_away(&a);
    for (int i = 1; i <= 3; i++) {
        log_warn("test", "%d of them", i);
    }
    look(&a);
    come_back(&a);
    (void)snprintf(event, sizeof event, "[%08x]", log_event("%d of them"));
    assert_int_equal(count(a.text, event), 3);
}

static void a_flood_of_one_event_is_cut_and_counted(void **state)
{
    static struct away a;
    struct timespec end, now;
    unsigned more = LOG_BURST;

    (void)state;
    go_away(&a);
    for (unsigned i = 0; i < LOG_BURST + 50; i++) {
        log_info("test", "flood %d", i);
    }
    log_info("test", "another event");
    look(&a);
    assert_true(count(a.text, "test   flood") >= LOG_BURST);
    assert_int_equal(count(a.text, "another event"), 1);
    (void)clock_gettime(CLOCK_MONOTONIC, &end);
    while (strstr(a.text, "like it left out") == NULL) {
        for (int i = 0; i < 50; i++) {
            log_info("test", "flood %d", more++);
        }
        look(&a);
        (void)clock_gettime(CLOCK_MONOTONIC, &now);
        assert_true(now.tv_sec < end.tv_sec + 60);
    }
    come_back(&a);
}

/* Two events that are counted together do not let each other pass. */
static void two_events_in_turn_are_cut_too(void **state)
{
    static struct away a;

    (void)state;
    go_away(&a);
    for (unsigned i = 0; i < 2 * LOG_BURST; i++) {
        log_write_event(LOG_INFO, "test", 1000, "tick");
        log_write_event(LOG_INFO, "test", 1000 + 256, "tock");
    }
    look(&a);
    come_back(&a);
    assert_in_range(count(a.text, "tick") + count(a.text, "tock"), LOG_BURST,
                    3 * LOG_BURST);
}

static void nothing_is_left_out_where_all_is_asked_for(void **state)
{
    static struct away a;

    (void)state;
    log_set_level(LOG_DEBUG);
    go_away(&a);
    for (unsigned i = 0; i < 3 * LOG_BURST; i++) {
        log_debug("test", "all %d", i);
    }
    look(&a);
    come_back(&a);
    log_set_level(LOG_INFO);
    assert_int_equal(count(a.text, "test   all"), 3 * LOG_BURST);
}

static void nearest_word_finds_slips_and_nothing_else(void **state)
{
    static const char *const words[] = {"status", "start", "stop"};

    (void)state;
    assert_string_equal(nearest_word("stauts", words, 3), "status");
    assert_string_equal(nearest_word("stop", words, 3), "stop");
    assert_string_equal(nearest_word("sotp", words, 3), "stop");
    assert_null(nearest_word("xyzzy", words, 3));
    assert_null(nearest_word("", words, 3));
    assert_int_equal(nearest_distance("", "abc"), 3);
    assert_int_equal(nearest_distance("ab", "ba"), 1);
    assert_int_equal(nearest_distance("kitten", "sitting"), 3);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_code_is_its_own_and_has_a_text),
        cmocka_unit_test(words_are_little_endian_on_every_host),
        cmocka_unit_test(randomness_equals_the_published_vectors),
        cmocka_unit_test(permutations_equal_the_published_vectors),
        cmocka_unit_test(below_n_every_value_comes_about_equally_often),
        cmocka_unit_test(log_lines_below_the_level_are_not_written),
        cmocka_unit_test(json_lines_escape_quotes_and_drop_control_bytes),
        cmocka_unit_test(a_log_line_too_long_is_cut_and_still_json),
        cmocka_unit_test(the_journal_gets_levels_and_no_time),
        cmocka_unit_test(the_event_is_of_the_form_not_of_its_values),
        cmocka_unit_test(a_flood_of_one_event_is_cut_and_counted),
        cmocka_unit_test(two_events_in_turn_are_cut_too),
        cmocka_unit_test(nothing_is_left_out_where_all_is_asked_for),
        cmocka_unit_test(nearest_word_finds_slips_and_nothing_else),
    };

    return cmocka_run_group_tests_name("proto/base", tests, NULL, NULL);
}
