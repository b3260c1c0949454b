/* local_internal.h - one machine; shared by local.c (jobs) and
 * local_buffer.c (bytes of segments). See local.h. */
#ifndef LOCO_TESTS_SIM_LOCAL_INTERNAL_H
#define LOCO_TESTS_SIM_LOCAL_INTERNAL_H

#include "p2p/terms.h"
#include "tests/sim/local.h"
#include "train/sync/codec.h"

struct local_op {
    bool used;
    struct action action;
    uint64_t serial;
    uint8_t *snapshot; /* CHECKPOINT: the state as of the action */
    uint64_t snapshot_step, snapshot_tokens;
    struct hash32 snapshot_commit;
};

struct local_reduced {
    bool used, complete;
    uint64_t index;
    uint8_t *bytes;
};

struct local_state {
    bool used;
    uint64_t round;
    uint8_t *bytes; /* phi, then m */
};

struct local_disk {
    struct local_state state;
    uint64_t inner_step, tokens;
    struct hash32 commit;
    bool shards[LOCAL_SHARDS];
};

struct machine {
    struct run_terms *terms;
    float *phi, *m, *theta, *contribution; /* (n_params) */
    uint8_t *ring;
    struct local_reduced reduced[LOCAL_REDUCED];
    struct local_state states[LOCAL_STATES];
    struct local_state incoming;
    uint8_t *shard_in[LOCAL_SHARDS];
    bool held[LOCAL_SHARDS]; /* readable: on disk or kept */
    uint64_t inner_step, base_step, tokens, round;
    uint32_t steps_left, train_gen, slow, life;
    bool training;
    uint64_t busy_until_ms;
    struct local_op ops[LOCAL_OPS];
    struct local_disk disk;
};

struct local {
    struct local_options opt;
    struct local_calls calls;
    struct world *world;
    const struct codec *codec;
    size_t vector_bytes, state_bytes;
    uint64_t serial;
    struct machine *machines;
    uint8_t *shards[LOCAL_SHARDS]; /* as the manifest names them */
    struct hash32 shard_hash[LOCAL_SHARDS];
    float *scratch; /* (n_params) */
};

/* local_buffer.c */
struct local_reduced *
local_reduced_at(struct local *l, struct machine *m, uint64_t index, bool make);
const uint8_t *
local_state_at(const struct local *l, const struct machine *m, uint64_t round);
void local_state_keep(struct local *l, struct machine *m, uint64_t round);
int local_hash_buffer(struct local *l,
                      struct machine *m,
                      const struct action *a,
                      struct local_event *e);
void local_hash_state(const struct local *l,
                      const uint8_t *state,
                      struct hash32 *params,
                      struct hash32 *momentum);

#endif
