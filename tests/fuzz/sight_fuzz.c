/* sight_fuzz.c - the status of a daemon that may be anybody's. What is shown of
 * it is small, of the kinds that are promised, and holds nothing that acts on a
 * terminal or in a page. */
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/watch/sight.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_text(const char *text)
{
    for (const unsigned char *c = (const unsigned char *)text; *c != '\0';
         c++) {
        /* C0, DEL, C1 and, of UTF-8, what turns the writing. */
        if (*c < 0x20 || *c == 0x7f || (*c == 0xc2 && c[1] < 0xa0) ||
            (*c == 0xe2 && c[1] == 0x80 && c[2] >= 0xa8 && c[2] <= 0xae)) {
            abort();
        }
    }
}

static void check_value(json_t *v, int depth)
{
    const char *key;
    json_t *one;

    if (json_is_string(v)) {
        check_text(json_string_value(v));
    } else if (json_is_number(v)) {
        if (!isfinite(json_number_value(v)) || json_number_value(v) < 0) {
            abort();
        }
    } else if (json_is_object(v)) {
        if (depth == 0) {
            abort();
        }
        json_object_foreach(v, key, one)
        {
            check_value(one, depth - 1);
        }
    } else if (!json_is_boolean(v) && !json_is_null(v)) {
        abort();
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char errmsg[ERRMSG_SIZE], out[64], *shown;
    struct sight_sum sum;
    const char *first = NULL;
    json_t *sight = NULL;

    check_text(sight_text((const char *)data, size, out, sizeof out));
    if (strlen(out) >= sizeof out ||
        sight_read((const char *)data, size, &sight, errmsg) != 0) {
        return 0;
    }
    check_value(sight, 2);
    shown = json_dumps(sight, JSON_COMPACT);
    if (shown == NULL || strlen(shown) > SIGHT_BYTES_MAX) {
        abort();
    }
    free(shown);
    sight_sum_begin(&sum);
    sight_sum_add(&sum, sight, true, &first);
    sight_sum_add(&sum, sight, false, &first);
    sight_sum_end(&sum);
    if (!isfinite(sum.speed) || !isfinite(sum.loss)) {
        abort();
    }
    json_decref(sight);
    return 0;
}
