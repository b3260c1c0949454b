/* rounds_json.h - the timeline of rounds (p2p/round/timeline.h) as JSON.
 *
 * GET /api/v1/rounds: {"rounds": [one per attempt, newest first]};
 * with ?round=N only its attempts, oldest first, and each with its members.
 * The fields are listed in daemon/README.md. Times are milliseconds since the
 * attempt began, `*_ms` of a phase its duration; null: it was not reached.
 *
 * Pure apart from allocation. NULL when memory is out.
 */
#ifndef LOCO_DAEMON_CONTROL_ROUNDS_JSON_H
#define LOCO_DAEMON_CONTROL_ROUNDS_JSON_H

#include "p2p/round/timeline.h"

/* `round` 0: all; `last`: at most so many, 0: all. Returned: caller frees with
 * free(). */
char *rounds_json(const struct timeline *t,
                  uint64_t round,
                  uint64_t last,
                  uint64_t now_ms);

#endif
