/* cmocka.h - the little of cmocka that the tests of the plug-in use, for a
 * machine that does not have it.
 */
#ifndef LOCO_TESTS_GPU_SHIM_CMOCKA_H
#define LOCO_TESTS_GPU_SHIM_CMOCKA_H

#include <setjmp.h>
#include <stdio.h>
#include <string.h>

struct CMUnitTest {
    const char *name;
    void (*body)(void **state);
    int (*setup)(void **state);
};

static jmp_buf shim_out;

#define fail_msg(...)                                                          \
    do {                                                                       \
        (void)printf("ERROR: " __VA_ARGS__);                                   \
        (void)printf(" (%s:%d)\n", __FILE__, __LINE__);                        \
        longjmp(shim_out, 1);                                                  \
    } while (0)

#define assert_true(c)                                                         \
    do {                                                                       \
        if (!(c)) {                                                            \
            fail_msg("%s", #c);                                                \
        }                                                                      \
    } while (0)

#define assert_int_equal(a, b)                                                 \
    do {                                                                       \
        long long shim_a = (long long)(a);                                     \
        long long shim_b = (long long)(b);                                     \
                                                                               \
        if (shim_a != shim_b) {                                                \
            fail_msg("%s is %lld, not %lld", #a, shim_a, shim_b);              \
        }                                                                      \
    } while (0)

#define assert_non_null(p) assert_true((p) != NULL)
#define assert_null(p)     assert_true((p) == NULL)
#define assert_false(c)    assert_true(!(c))
#define assert_memory_equal(a, b, n)                                           \
    assert_true(memcmp((a), (b), (size_t)(n)) == 0)

#define cmocka_unit_test_setup(f, before)                                      \
    {                                                                          \
#f, f, before                                                          \
    }
#define cmocka_unit_test(f) cmocka_unit_test_setup(f, NULL)

#define cmocka_run_group_tests(tests, setup, teardown)                         \
    shim_run(tests, (int)(sizeof(tests) / sizeof((tests)[0])), setup)

static const char *shim_skip; /* no test with this name; no pattern */

static inline void cmocka_set_skip_filter(const char *name)
{
    shim_skip = name;
}

static inline int
shim_run(const struct CMUnitTest *tests, int n, int (*setup)(void **state))
{
    volatile int failed = 0;
    void *none = NULL;

    if (setjmp(shim_out) != 0 || (setup != NULL && setup(&none) != 0)) {
        (void)printf("ERROR: the tests cannot begin\n");
        return 1;
    }
    for (volatile int i = 0; i < n; i++) {
        void *state = NULL;

        if (shim_skip != NULL && strcmp(shim_skip, tests[i].name) == 0) {
            (void)printf("skip    %s\n", tests[i].name);
            continue;
        }
        if (setjmp(shim_out) == 0) {
            if (tests[i].setup != NULL) {
                (void)tests[i].setup(&state);
            }
            tests[i].body(&state);
            (void)printf("ok      %s\n", tests[i].name);
        } else {
            (void)printf("FAILED  %s\n", tests[i].name);
            failed++;
        }
        (void)fflush(stdout);
    }
    return failed;
}

#endif
