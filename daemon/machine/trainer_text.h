/* trainer_text.h - train shards that come while the trainer trains.
 *
 * The trainer reads a table of its own (train/data/loader.h): shards that are
 * not here have their number of tokens and no data. What comes waits until the
 * next TRAIN, which is the first that may read it.
 *
 * Not safe for two threads: the trainer's mutex guards it.
 */
#ifndef LOCO_DAEMON_MACHINE_TRAINER_TEXT_H
#define LOCO_DAEMON_MACHINE_TRAINER_TEXT_H

#include <stddef.h>

#include "train/data/shard.h"

struct trainer_text {
    size_t n;
    struct shard *shards;         /* (n) what the loader reads */
    const struct shard **arrived; /* (n) borrowed; NULL: nothing new */
};

/* A copy of the table. 0 or LOCO_ENOMEM; trainer_text_close in any case. */
int trainer_text_open(struct trainer_text *t,
                      const struct shard *shards,
                      size_t n);
void trainer_text_close(struct trainer_text *t);

/* This shard is here, until the trainer is closed. */
void trainer_text_add(struct trainer_text *t,
                      size_t slot,
                      const struct shard *shard);

/* On the trainer's thread: read what came, too. */
void trainer_text_take(struct trainer_text *t);

#endif
