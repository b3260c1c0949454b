/* moments_chain_test.c - a GPU that is lost before, behind, or around what a
 * member contributes. */
#include "daemon/machine/moments_chain.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

static void a_gpu_that_is_lost_twice_breaks_both_chains(void **state)
{
    struct moments_chain c = {0};

    (void)state;
    assert_false(chain_pack(&c));
    assert_false(chain_next(&c));
    chain_break(&c);
    assert_true(chain_pack(&c));
    assert_false(chain_next(&c)); /* the next lease goes on with this one's */
    assert_false(chain_pack(&c));
    chain_break(&c);
    assert_true(chain_next(&c)); /* behind it */
    assert_false(chain_pack(&c));
    assert_false(chain_next(&c));
    chain_break(&c);
    assert_true(chain_pack(&c));
    chain_break(&c);
    assert_true(chain_next(&c)); /* twice */
    chain_break(&c);
    assert_true(chain_pack(&c));
    assert_true(chain_pack(&c)); /* packed again, with more steps */
    assert_false(chain_next(&c));
    chain_break(&c);
    chain_mend(&c); /* undone: the next lease begins as this one did */
    assert_false(chain_next(&c));
    assert_false(chain_pack(&c));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_gpu_that_is_lost_twice_breaks_both_chains),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
