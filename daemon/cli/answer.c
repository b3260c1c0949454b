/* answer.c - see cli/answer.h. */
#include "daemon/cli/answer.h"

#include <stdio.h>

const char *answer_peer(const char *hex, char out[ID_SHORT_MAX])
{
    struct peer_id id;

    (void)snprintf(out, ID_SHORT_MAX, "?");
    if (hex_decode(hex, id.b, sizeof id.b) == 0) {
        id_short(&id, out);
    }
    return out;
}

double answer_rate(const json_t *links, size_t from, size_t to)
{
    for (size_t i = 0; i < json_array_size(links); i++) {
        const json_t *one = json_array_get(links, i);

        if ((size_t)json_integer_value(json_array_get(one, 0)) == from &&
            (size_t)json_integer_value(json_array_get(one, 1)) == to) {
            return json_number_value(json_array_get(one, 2));
        }
    }
    return 0;
}

const char *answer_scaled(double v, const char *unit, char out[24])
{
    static const char prefix[] = {0, 'k', 'M', 'G', 'T'};
    size_t u = 0;

    while (v >= 1000 && u + 1 < sizeof prefix) {
        v /= 1000;
        u++;
    }
    if (u == 0) {
        (void)snprintf(out, 24, "%.0f %s", v, unit);
    } else {
        (void)snprintf(out, 24, "%.1f %c%s", v, prefix[u], unit);
    }
    return out;
}

void answer_bar(double progress, int width, char *out)
{
    int full = (int)(progress * width + 0.5);

    for (int i = 0; i < width; i++) {
        out[i] = i < full ? '#' : '.';
    }
    out[width] = '\0';
}
