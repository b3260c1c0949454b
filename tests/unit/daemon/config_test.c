/* config_test.c - settings from file, environment and command line. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <ctype.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "daemon/settings/config.h"
#include "kernels/sets.h"
#include "proto/base/err.h"

#define ARGS_MAX 16

static struct config config;
static char errmsg[CONFIG_ERRMSG_MAX];

/* config_parse over words that end with NULL. */
static int parse(const char *first, ...)
{
    char *argv[ARGS_MAX] = {(char *)(uintptr_t) "locod"};
    const char *word = first;
    int argc = 1;
    va_list args;

    va_start(args, first);
    while (word != NULL) {
        assert_true(argc < ARGS_MAX);
        argv[argc++] = (char *)(uintptr_t)word;
        word = va_arg(args, const char *);
    }
    va_end(args);
    errmsg[0] = '\0';
    return config_parse(argc, argv, &config, errmsg);
}

static int yaml(const char *text)
{
    errmsg[0] = '\0';
    config_init(&config);
    return config_read_yaml(&config, text, strlen(text), "locod.yaml", errmsg);
}

static void assert_says(const char *part)
{
    if (strstr(errmsg, part) == NULL) {
        fail_msg("'%s' does not say '%s'", errmsg, part);
    }
}

/* A world without settings: no HOME, no XDG, no LOCO_*. */
static int clean_environment(void **state)
{
    (void)state;
    assert_int_equal(clearenv(), 0);
    assert_int_equal(setenv("XDG_CONFIG_HOME", "/nonexistent", 1), 0);
    assert_int_equal(setenv("XDG_STATE_HOME", "/nonexistent", 1), 0);
    return 0;
}

static void defaults_hold_without_any_setting(void **state)
{
    (void)state;
    assert_int_equal(parse(NULL), 0);
    assert_int_equal(config.exit_code, LOCO_EXIT_OK);
    assert_string_equal(config.listen, "0.0.0.0:7700");
    assert_string_equal(config.state, "/nonexistent/loco");
    assert_string_equal(config.device, "cpu");
    assert_int_equal(config.threads, 1);
    assert_int_equal(config.rounds, 0);
    assert_false(config.log_json);
    assert_int_equal(config.source[CONFIG_listen], CONFIG_DEFAULT);
}

/* Threads copy and hash beside a GPU, and train when it is lost. */
static void beside_a_gpu_each_processor_has_a_thread(void **state)
{
    cpu_set_t set;
    int n;

    (void)state;
    assert_int_equal(sched_getaffinity(0, sizeof set, &set), 0);
    n = CPU_COUNT(&set);
    assert_true(n >= 1);
    assert_int_equal(parse("--device", "cuda", NULL), 0);
    assert_int_equal(config.threads, n < 256 ? n : 256);
    assert_int_equal(parse("--device", "cuda", "--threads", "1", NULL), 0);
    assert_int_equal(config.threads, 1);
    assert_int_equal(parse("--device", "cuda", "--affinity", "0", NULL), 0);
    assert_int_equal(config.threads, 1); /* a list of one */
}

static void flags_take_both_forms_and_dashes(void **state)
{
    (void)state;
    assert_int_equal(parse("--threads", "4", "--rounds=7", "--log-json", NULL),
                     0);
    assert_int_equal(config.threads, 4);
    assert_int_equal(config.rounds, 7);
    assert_true(config.log_json);
    assert_int_equal(parse("--log-json=off", NULL), 0);
    assert_false(config.log_json);
}

/* A container has no other place for them. */
static void every_setting_may_come_from_the_environment(void **state)
{
    char name[64], value[CONFIG_TEXT_MAX];

    (void)state;
    for (int i = 0; i < CONFIG_OPTION_COUNT; i++) {
        enum config_option o = (enum config_option)i;
        size_t len;

        config_init(&config);
        config_text(&config, o, value);
        len = (size_t)snprintf(name, sizeof name, "LOCO_%s", config_name(o));
        for (size_t at = 0; at < len; at++) {
            name[at] = (char)toupper((unsigned char)name[at]);
        }
        /* Its default, or a word where that is empty. */
        assert_int_equal(
            setenv(name, value[0] == '\0' ? "file:///x" : value, 1), 0);
        assert_int_equal(parse(NULL), 0);
        assert_int_equal(config.source[o], CONFIG_ENVIRONMENT);
        assert_int_equal(unsetenv(name), 0);
    }
}

static void flags_override_environment_overrides_file(void **state)
{
    char path[] = "/tmp/loco-config-XXXXXX";
    int fd = mkstemp(path);
    static const char text[] = "threads: 2\nlog: warn\nrounds: 5\n";

    (void)state;
    assert_true(fd >= 0);
    assert_int_equal(write(fd, text, sizeof text - 1), sizeof text - 1);
    assert_int_equal(close(fd), 0);
    assert_int_equal(setenv("LOCO_LOG", "error", 1), 0);
    assert_int_equal(setenv("LOCO_ROUNDS", "6", 1), 0);
    assert_int_equal(parse("--config", path, "--rounds", "7", NULL), 0);
    assert_int_equal(config.threads, 2);
    assert_string_equal(config.log, "error");
    assert_int_equal(config.rounds, 7);
    assert_int_equal(config.source[CONFIG_threads], CONFIG_FILE);
    assert_int_equal(config.source[CONFIG_log], CONFIG_ENVIRONMENT);
    assert_int_equal(config.source[CONFIG_rounds], CONFIG_FLAG);
    assert_string_equal(config.file, path);
    assert_int_equal(unlink(path), 0);
}

static void unknown_flag_is_usage_and_names_the_nearest(void **state)
{
    (void)state;
    assert_int_equal(parse("--lsiten", "x", NULL), LOCO_EINVAL);
    assert_int_equal(config.exit_code, LOCO_EXIT_USAGE);
    assert_says("lsiten");
    assert_says("'listen'");
    assert_int_equal(parse("stray", NULL), LOCO_EINVAL);
    assert_int_equal(config.exit_code, LOCO_EXIT_USAGE);
    assert_int_equal(parse("--threads", NULL), LOCO_EINVAL);
    assert_says("value");
}

static void unknown_key_names_line_and_nearest(void **state)
{
    (void)state;
    assert_int_equal(yaml("threads: 1\n\nthraeds: 2\n"), LOCO_EINVAL);
    assert_says("locod.yaml:3:");
    assert_says("'threads'");
    assert_int_equal(yaml("zzzzzzzz: 2\n"), LOCO_EINVAL);
    assert_null(strstr(errmsg, "did you mean"));
}

static void wrong_file_is_a_configuration_error(void **state)
{
    (void)state;
    assert_int_equal(parse("--config", "/nonexistent/x.yaml", NULL),
                     LOCO_ENOENT);
    assert_int_equal(config.exit_code, LOCO_EXIT_CONFIG);
    assert_int_equal(setenv("LOCO_THREADS", "none", 1), 0);
    assert_int_equal(parse(NULL), LOCO_EINVAL);
    assert_int_equal(config.exit_code, LOCO_EXIT_CONFIG);
    assert_says("LOCO_THREADS");
}

static void values_out_of_range_are_refused(void **state)
{
    static const char *const bad[] = {
        "threads: 0\n",
        "threads: 257\n",
        "threads: -1\n",
        "threads: 1.5\n",
        "threads: ' 1'\n",
        "threads: ''\n",
        "rounds: 99999999999999999999999\n",
        "device: tpu\n",
        "device: ''\n",
        "log: warning\n",
        "log_json: maybe\n",
        "threads: [1, 2]\n",
        "- threads\n",
        "threads: 1\nthreads: 2\n",
        "threads: {\n",
        "threads: 1: 2\n",
    };

    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        if (yaml(bad[i]) != LOCO_EINVAL) {
            fail_msg("accepted: %s", bad[i]);
        }
        assert_says("locod.yaml");
        assert_int_equal(config.threads, 1);
    }
    assert_int_equal(yaml(""), 0);
    assert_int_equal(yaml("# nothing\n"), 0);
    assert_int_equal(yaml("threads: 256\nlog_json: true\n"), 0);
    assert_true(config.log_json);
}

static void isa_takes_auto_and_every_set_of_kernels(void **state)
{
    size_t n;
    const struct kernel_set *sets = kernel_sets(&n);

    (void)state;
    for (size_t i = 0; i <= n; i++) {
        const char *name = i < n ? sets[i].name : "auto";

        assert_int_equal(parse("--isa", name, NULL), 0);
        assert_string_equal(config.isa, name);
    }
    assert_int_not_equal(parse("--isa", "vax", NULL), 0);
    assert_says("isa");
}

static void a_mistake_in_the_file_shows_though_a_flag_hides_it(void **state)
{
    (void)state;
    config_init(&config);
    assert_int_equal(config_set(&config, "threads", "8", CONFIG_FLAG, errmsg),
                     0);
    assert_int_equal(
        config_set(&config, "threads", "many", CONFIG_FILE, errmsg),
        LOCO_EINVAL);
    assert_int_equal(config_set(&config, "threads", "2", CONFIG_FILE, errmsg),
                     0);
    assert_int_equal(config.threads, 8);
}

static void run_and_join_exclude_each_other(void **state)
{
    (void)state;
    assert_int_equal(parse("--run", "a", "--join", "b", NULL), LOCO_EINVAL);
    assert_says("join");
}

static void help_wins_over_mistakes(void **state)
{
    (void)state;
    assert_int_equal(parse("--bogus", "--help", NULL), 0);
    assert_true(config.help);
    assert_int_equal(parse("--version", NULL), 0);
    assert_true(config.version);
}

static void text_of_every_option_reads_back(void **state)
{
    char text[CONFIG_TEXT_MAX];

    (void)state;
    config_init(&config);
    for (int i = 0; i < CONFIG_OPTION_COUNT; i++) {
        enum config_option option = (enum config_option)i;

        config_text(&config, option, text);
        assert_int_equal(
            config_set(&config, config_name(option), text, CONFIG_FLAG, errmsg),
            0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
#define TEST(name) cmocka_unit_test_setup(name, clean_environment)
        TEST(defaults_hold_without_any_setting),
        TEST(beside_a_gpu_each_processor_has_a_thread),
        TEST(flags_take_both_forms_and_dashes),
        TEST(every_setting_may_come_from_the_environment),
        TEST(flags_override_environment_overrides_file),
        TEST(unknown_flag_is_usage_and_names_the_nearest),
        TEST(unknown_key_names_line_and_nearest),
        TEST(wrong_file_is_a_configuration_error),
        TEST(values_out_of_range_are_refused),
        TEST(isa_takes_auto_and_every_set_of_kernels),
        TEST(a_mistake_in_the_file_shows_though_a_flag_hides_it),
        TEST(run_and_join_exclude_each_other),
        TEST(help_wins_over_mistakes),
        TEST(text_of_every_option_reads_back),
#undef TEST
    };

    return cmocka_run_group_tests_name("config", tests, NULL, NULL);
}
