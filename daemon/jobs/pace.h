/* pace.h - something costly that is done after every round, where it takes no
 * more than a share of the time.
 *
 *     pace_want -> (true: do it, pace_done) | (false: put off -> pace_due)
 *
 * After one that took W the next begins W (100 - percent) / percent later at
 * the earliest; one that took less than PACE_CHEAP_MS is followed by no pause.
 * What is wanted meanwhile is put off, never forgotten: pace_due() is asked now
 * and then. After the pause it waits up to PACE_PATIENCE_MS for the next
 * round's end, because then no member waits for this machine; pace_now() waits
 * for neither. Pure: times are
 * the caller's, in milliseconds.
 */
#ifndef LOCO_DAEMON_JOBS_PACE_H
#define LOCO_DAEMON_JOBS_PACE_H

#include <stdbool.h>
#include <stdint.h>

#define PACE_CHEAP_MS    500
#define PACE_PATIENCE_MS 30000

struct pace {         /* zeros: nothing was done yet */
    uint64_t next_ms; /* none before */
    bool owed;        /* wanted, and put off */
};

/* It is wanted. True: now; false: it is owed. `busy`: one is under way. */
bool pace_want(struct pace *p, uint64_t now_ms, bool busy);

/* Before a round's end, so that it can be prepared: whether one may be done
 * behind it, or as due before the end after it, which is expected so long
 * later. `under_way_ms`: for how long one has been; PACE_IDLE: none is. One
 * that is under way ends before a round that is far off. */
#define PACE_IDLE UINT64_MAX
bool pace_expects(const struct pace *p,
                  uint64_t now_ms,
                  uint64_t under_way_ms,
                  uint64_t later_ms);

/* One is owed, and no round came to do it behind: now, not owed any more. */
bool pace_due(struct pace *p, uint64_t now_ms, bool busy);

/* One is owed, and nothing that it could slow goes on: now, without the pause
 * and without a round to do it behind. */
bool pace_now(struct pace *p, bool busy);

/* One ended that took so long. percent: 1 to 100, of the time. */
void pace_done(struct pace *p,
               uint64_t now_ms,
               uint64_t took_ms,
               uint64_t percent);

/* The pause under way is over: it is of another percentage. */
void pace_again(struct pace *p);

#endif
