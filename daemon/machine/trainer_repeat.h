/* trainer_repeat.h - the lease of another member, made again; the inside of
 * trainer.h.
 *
 * A REPEAT trains a second replica, from the state before the round and with
 * the maker's moments, and reads what comes of it beside what the maker sent
 * (daemon/jobs/work_room.h). Its steps come before those of a TRAIN; a LOAD or
 * APPLY is done between two of them. Where the reading is bad the lease is made
 * once more with products of the other kind, so that a round too wild to tell
 * is known; and where it is wild, twice more with our own moments, so that a
 * maker which chose wild ones is known (p2p/round/repeat.h). That is training's
 * own doing where it is wild for us, too: then it is not tried again for
 * REPEAT_WILD_ROUNDS, and what is wild costs two passes, not four.
 *
 * Memory: that of a second replica, while it lasts; for moments 8 bytes a
 * parameter where it begins, and 12 for the second time. Everything is the
 * trainer's thread's. Not with a training loop of its own, and not for stages.
 */
#ifndef LOCO_DAEMON_MACHINE_TRAINER_REPEAT_H
#define LOCO_DAEMON_MACHINE_TRAINER_REPEAT_H

#include "daemon/machine/trainer.h"

#define REPEAT_WILD_ROUNDS 8

/* A pass: with the maker's moments, with products of the other kind; then both
 * with our own moments. */
enum { REPEAT_FIRST, REPEAT_OTHER, REPEAT_OWN_FIRST };

struct trainer_repeat {
    bool active;
    struct trainer_command command;
    struct replica_options opt;
    struct device_options device; /* of opt: the first GPU alone */
    struct replica ghost;         /* the second one */
    bool open;
    uint32_t made;               /* steps */
    unsigned pass;               /* REPEAT_FIRST.. */
    enum backend_dtype dtype[2]; /* of passes, by turns */
    float *first; /* (n) what came of it the first time, then its moments */
    struct repeat_reading reading;
    uint64_t wild; /* the last round that was wild with our own moments, too */
};

/* `opt`: of the trainer's own replica. False: it cannot be begun (*rc). */
bool trainer_repeat_begin(struct trainer_repeat *r,
                          const struct replica_options *opt,
                          const struct trainer_command *command,
                          int *rc);

/* One inner step of it. True: it is done, and this is its answer. */
bool trainer_repeat_step(struct trainer_repeat *r, struct local_event *answer);

void trainer_repeat_close(struct trainer_repeat *r);

#endif
