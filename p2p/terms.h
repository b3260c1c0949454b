/* terms.h - what the protocol cores need to know of a run.
 *
 * The owner of a node derives it from the manifest (and from what it holds on
 * disk) and hands it over with LOCAL_CONFIGURED. Cores never see a model.
 */
#ifndef LOCO_P2P_TERMS_H
#define LOCO_P2P_TERMS_H

#include <stdbool.h>
#include <stdint.h>

#include "proto/id.h"
#include "proto/limits.h"

struct terms_shard {
    uint64_t bytes;
    struct hash32 hash; /* tree hash of the file */
    bool held;          /* already on this machine and verified */
    bool urls;          /* can be had from elsewhere than peers (DOWNLOAD) */
    uint64_t windows; /* that it is trained as; 0: nothing begins without it */
    /* What round 0 begins from: who gets a later state needs none of it. */
    bool begins;
};

/* What one round of a run's cycle is: methods that average several things, each
 * in its own time, or one part of the parameters after the other, have rounds
 * of different lengths. */
struct terms_turn {
    uint64_t elements; /* of the vector that is averaged */
    uint32_t steps;    /* inner steps since the round before */
};

#define TERMS_TURNS_MAX 64

/* How contributions become one vector (exchange.h). In terms: what the run
 * asks for; a plan says what it is (round.h). */
enum exchange_kind { EXCHANGE_RING, EXCHANGE_BUTTERFLY, EXCHANGE_SITES };

struct run_terms {
    uint64_t n_params;
    uint32_t block;            /* codec block: chunks are cut at multiples */
    uint32_t segment_elements; /* elements of one segment, block-aligned */
    uint32_t chunk_segments; /* segments in a chunk or slice, about, at least */
    enum exchange_kind exchange;
    /* BUTTERFLY: contributions are announced block by block, and members repeat
     * some sums of others (p2p/round/audit.h). */
    bool audits;
    bool watches;     /* BUTTERFLY: owners of slices see who strays (rests.h) */
    bool audits_work; /* and some leases of others (p2p/round/repeat.h) */
    bool moments_anew; /* those of the inner optimizer, with each round */
    bool adapts; /* RING: a plan may be a butterfly, where a line is slow */
    uint32_t site_members; /* SITES: of a site at most; 0: any number */
    uint32_t site_rtt_us;  /* SITES: who is this near to each other, and names
                              no site, is one; 0: only named ones */
    uint32_t probation_rounds; /* of newcomers; 0: they count at once */
    bool invited; /* who takes part has an invitation of the author */
    uint8_t author[32];
    bool pairs; /* no rounds of all: turns with a random partner (pair.h) */
    uint32_t period; /* inner steps between two rounds */
    /* Peers read one order of the text, with leases of so many positions
     * (lease.h); 0: each reads an order of its own. */
    uint32_t lease_quota;
    /* Windows of a position, where training may begin before all shards are
     * here (text.h); 0: it may not. */
    uint32_t window_batch;
    uint64_t position_tokens; /* that a position trains */
    /* Of one inner step at most: position_tokens, or more where a batch grows;
     * 0: not known, as of stages. */
    uint64_t step_tokens_most;
    /* Rounds 1 to n_turns, and so on again from the one after n_once; 0: all
     * have n_params elements and `period` steps. */
    uint32_t n_turns, n_once;
    struct terms_turn turns[TERMS_TURNS_MAX];
    /* A contribution is of use only to the round that it was made for, as a
     * gradient is: a commit without it makes it worthless. So is work that
     * others may make again: they must know what it began from. */
    bool single_round;
    /* Rounds are of those who are ready: who is in the middle of a task takes
     * part without weight and goes on with it. */
    bool quorum;
    bool by_speed;      /* quorum: tasks are as long as a machine is fast */
    uint32_t min_peers; /* of the first view */
    uint32_t grace_ms;  /* how long late members are waited for in a round */
    uint32_t fork_after_ms;
    uint32_t progress_floor_bytes_per_s;
    uint32_t segment_wire_bytes; /* of a full segment, for the floor */
    uint64_t stop_rounds;        /* 0: no limit */
    uint64_t stop_tokens;        /* 0: no limit */
    uint32_t eval_every;         /* rounds; 0: never */
    uint32_t rollback_microbits; /* per byte: a state that is worse by more is
                                    taken back; 0: none is */
    uint64_t state_bytes;        /* of BUFFER_STATE */
    uint32_t piece_bytes;        /* of a tree hash (HASH_PIECE_BYTES) */
    uint32_t n_shards;
    struct terms_shard shards[MANIFEST_SHARDS_MAX];
    /* The newest state that this machine holds (a checkpoint), if any. */
    bool holds_state;
    uint64_t held_round;
    uint64_t held_tokens; /* committed by the run up to that round */
    uint64_t held_inner_step;
    struct hash32 held_params_hash, held_momentum_hash;
    struct hash32 held_commit; /* hash of that round's commit record */

    /* Models cut into stages. With more than one, what is said above of
     * parameters, states and what is held is that of a stage, and is valid
     * when LOCAL_STAGED said it. */
    uint32_t stages;        /* 0, 1: the model is not cut */
    uint64_t stage_fits;    /* bit s: this machine has the memory for it */
    uint32_t held_stage;    /* of which the newest held state is */
    uint64_t pipe_seed;     /* of routes */
    uint32_t micro_batches; /* of one step, for each host of stage 0 */
    uint32_t pipe_slots;    /* micro-batches in one host at a time */
    uint32_t cut_elements;  /* of the activations of one micro-batch */
    uint32_t cut_segment;   /* of these in one segment */
    uint32_t eval_micros;   /* micro-batches of held-out windows that make an
                               evaluation; 0: there is no such text */
};

static inline bool terms_staged(const struct run_terms *t)
{
    return t->stages > 1;
}

/* Which of the turns `round` (from 1) is. */
static inline const struct terms_turn *terms_turn(const struct run_terms *t,
                                                  uint64_t round)
{
    uint64_t i = round - 1;

    return &t->turns[i < t->n_once ? i
                                   : t->n_once + (i - t->n_once) %
                                                     (t->n_turns - t->n_once)];
}

/* Elements of the vector of `round`. */
static inline uint64_t terms_elements(const struct run_terms *t, uint64_t round)
{
    return t->n_turns == 0 ? t->n_params : terms_turn(t, round)->elements;
}

/* Where the vectors of all turns are, one behind the other, each from a
 * multiple of TERMS_GRID on, so that blocks of wire types are blocks there:
 * that of turn `turn`, or the end of all. */
#define TERMS_GRID 4096

static inline uint64_t terms_begin(const struct run_terms *t, uint32_t turn)
{
    uint64_t sum = 0;

    for (uint32_t i = 0; i < turn; i++) {
        sum +=
            (t->turns[i].elements + TERMS_GRID - 1) / TERMS_GRID * TERMS_GRID;
    }
    return sum;
}

/* That of `round`. */
static inline uint64_t terms_elements_before(const struct run_terms *t,
                                             uint64_t round)
{
    return t->n_turns == 0
               ? 0
               : terms_begin(t, (uint32_t)(terms_turn(t, round) - t->turns));
}

/* Inner steps between the round before and this one. */
static inline uint32_t terms_steps(const struct run_terms *t, uint64_t round)
{
    return t->n_turns == 0 ? t->period : terms_turn(t, round)->steps;
}

/* Of the longest round. */
static inline uint32_t terms_most_steps(const struct run_terms *t)
{
    uint32_t most = t->n_turns == 0 ? t->period : 0;

    for (uint32_t i = 0; i < t->n_turns; i++) {
        most = t->turns[i].steps > most ? t->turns[i].steps : most;
    }
    return most;
}

#endif
