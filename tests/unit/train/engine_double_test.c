/* engine_double_test.c - the engine in double precision, to 1e-12.
 *
 * The same sources with `float` read as double: what the vectors then differ by
 * is rounding, so 1e-12 shows that every formula is the right one, where 1e-6
 * could hide a small wrong term. System headers come first: they must not see
 * the macro.
 */
#include <assert.h>
#include <float.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <jansson.h>

#define ENGINE_TOLERANCE 1e-12
#ifdef __clang__
#pragma clang diagnostic ignored "-Wkeyword-macro"
#endif
#define float double

#include "tests/unit/train/engine_test.c"
#include "train/sync/delayed.c"
#include "train/sync/engine.c"
#include "train/sync/method.c"
#include "train/sync/mix.c"
#include "train/sync/pair_mean.c"
#include "train/sync/rule.c"
#include "train/sync/slices.c"
#include "train/sync/stream.c"
