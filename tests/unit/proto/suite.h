/* suite.h - what every unit test of proto/ begins with: cmocka's own headers
 * in the order it wants, and a test's name as the sentence that must hold. */
#ifndef LOCO_TESTS_UNIT_PROTO_SUITE_H
#define LOCO_TESTS_UNIT_PROTO_SUITE_H

/* clang-format off */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
/* clang-format on */

#define N_OF(a) (sizeof(a) / sizeof((a)[0]))

#endif
