/* cmocka.h - as much of cmocka as the tests of this folder use, for other
 * processors than this machine's: nothing has to be installed for them.
 *
 * A failed assertion prints where and ends its test; the group's result is the
 * number of failed tests.
 */
#ifndef LOCO_TESTS_UNIT_KERNELS_CROSS_CMOCKA_H
#define LOCO_TESTS_UNIT_KERNELS_CROSS_CMOCKA_H

#include <math.h>
#include <setjmp.h>
#include <stdio.h>
#include <string.h>

struct CMUnitTest {
    const char *name;
    void (*test)(void **state);
};

static jmp_buf cross_end;

enum { CROSS_RUN, CROSS_FAILED, CROSS_SKIPPED };

static inline void
cross_check(int holds, const char *what, const char *file, int line)
{
    if (!holds) {
        printf("%s:%d: %s\n", file, line, what);
        longjmp(cross_end, CROSS_FAILED);
    }
}

#define CROSS_CHECK(holds) cross_check(holds, #holds, __FILE__, __LINE__)

#define assert_true(x)               CROSS_CHECK((x) ? 1 : 0)
#define assert_false(x)              CROSS_CHECK((x) ? 0 : 1)
#define assert_null(x)               CROSS_CHECK((x) == NULL)
#define assert_non_null(x)           CROSS_CHECK((x) != NULL)
#define assert_int_equal(a, b)       CROSS_CHECK((a) == (b))
#define assert_string_equal(a, b)    CROSS_CHECK(strcmp(a, b) == 0)
#define assert_memory_equal(a, b, n) CROSS_CHECK(memcmp(a, b, n) == 0)
#define assert_float_equal(a, b, e)                                            \
    CROSS_CHECK(fabs((double)(a) - (double)(b)) <= (double)(e))
#define print_message printf
#define skip()        longjmp(cross_end, CROSS_SKIPPED)
#define fail_msg(...)                                                          \
    do {                                                                       \
        printf(__VA_ARGS__);                                                   \
        putchar('\n');                                                         \
        longjmp(cross_end, CROSS_FAILED);                                      \
    } while (0)
#define cmocka_unit_test(f)                                                    \
    {                                                                          \
#f, f                                                                  \
    }
#define cmocka_run_group_tests(tests, setup, teardown)                         \
    cross_run(tests, sizeof(tests) / sizeof((tests)[0]))

static inline int cross_run(const struct CMUnitTest *tests, size_t n)
{
    static const char *const words[] = {"ok", "FAILED", "skipped"};
    volatile int failed = 0;

    for (volatile size_t i = 0; i < n; i++) {
        int result = setjmp(cross_end);

        if (result == CROSS_RUN) {
            tests[i].test(NULL);
        }
        failed += result == CROSS_FAILED;
        printf("%s: %s\n", tests[i].name, words[result]);
    }
    return failed;
}

#endif
