/* sight.h - what another machine's daemon says of itself, made fit to be shown.
 *
 * The answer to GET /api/v1/status comes from a machine that may be anybody's:
 * it can be of any size and shape. A *sight* is a JSON object of our making,
 * with the same keys: those that are shown to people, each of one type and
 * within bounds; what the answer lacks, or has of another type or size, is
 * null. Texts are UTF-8 without control characters, marks that turn the
 * direction of writing, or invisible ones; a text that is too long is cut. So a
 * sight can be written to a terminal or into a page, and is at most
 * SIGHT_BYTES_MAX as JSON. What it *says* is still the daemon's word alone.
 *
 * `lost` is the entry of `peers_lost` with the highest round, or null.
 *
 * Pure: no sockets, no clocks. How it fails: LOCO_EFORMAT with a sentence.
 */
#ifndef LOCO_DAEMON_WATCH_SIGHT_H
#define LOCO_DAEMON_WATCH_SIGHT_H

#include <stdbool.h>
#include <stddef.h>

#include <jansson.h>

#include "proto/base/errmsg.h"

#define SIGHT_BYTES_MAX  16384
#define SIGHT_REASON_MAX 256 /* bytes of a sentence, with its NUL */

/* *sight is new. */
int sight_read(const char *text,
               size_t len,
               json_t **sight,
               char errmsg[ERRMSG_SIZE]);

/* Any bytes as a text that can be shown, at most size - 1 of them, and a NUL;
 * returns `out`. What cannot be shown becomes "?". */
const char *sight_text(const char *text, size_t len, char *out, size_t size);

/* What several machines say together. Figures that nobody has are negative.
 * Of several runs only speed and bytes mean anything. */
struct sight_sum {
    bool one_run; /* or none is known */
    double progress, eta_s, loss, bits, round, peers;
    double speed, sent, received;
    unsigned n_answer, n_loss;
};

void sight_sum_begin(struct sight_sum *s);
/* NULL: nothing is known of that machine. Bytes are counted also of one that
 * does not answer now, speed and peers are not. `first_run`: NULL at first. */
void sight_sum_add(struct sight_sum *s,
                   const json_t *sight,
                   bool answers,
                   const char **first_run);
void sight_sum_end(struct sight_sum *s);

#endif
