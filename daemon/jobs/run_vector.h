/* run_vector.h - the vector of a run's rounds, as its manifest has it: how long
 * it is, how it is encoded, cut and summed.
 *
 * Whoever takes part in a round and whoever checks one afterwards (evidence.h)
 * read it here, so that both cut the same blocks.
 *
 * Pure, but for memory that a layout takes for the time of a call. A manifest
 * that this build cannot train is LOCO_EINVAL with a sentence; LOCO_ENOMEM.
 */
#ifndef LOCO_DAEMON_JOBS_RUN_VECTOR_H
#define LOCO_DAEMON_JOBS_RUN_VECTOR_H

#include "p2p/terms.h"
#include "proto/manifest.h"
#include "train/model/llama_part.h"
#include "train/sync/codec/lanes.h"
#include "train/sync/method.h"

#define RUN_SEGMENT_BYTES    (256U << 10) /* of the wire, at most */
#define RUN_SEGMENT_ELEMENTS (1U << 20)   /* the same */

struct run_vector {
    struct method method;
    const struct codec *codec;
    enum exchange_kind exchange; /* what the run asks for */
    float clip;                  /* of a butterfly's sums; 0: none (codec.h) */
    bool centred;                /* the same */
    bool audits;      /* members make parts of the sums of others again.. */
    bool audits_work; /* ..and some leases, where the manifest asks for it */
    bool raw;         /* owners' own contributions: lanes_raw */
};

/* How contributions travel and become one vector. */
int run_vector_read(struct run_vector *v,
                    const struct manifest *f,
                    char *errmsg);

/* Elements of one segment. */
uint32_t run_vector_segment(const struct run_vector *v);

/* How it is cut: `exchange`, `audits`, `block`, the sizes of segments and
 * chunks. */
void run_vector_cut(const struct run_vector *v, struct run_terms *t);

/* How long it is in each round of a cycle, of that part of a model: `n_turns`,
 * `n_once`, `turns`. *most: elements of the longest. */
int run_vector_turns(const struct run_vector *v,
                     const struct llama_config *model,
                     const struct llama_part *part,
                     struct run_terms *t,
                     uint64_t *most,
                     char *errmsg);

/* The three above for a model that is not cut into stages. */
int run_vector_terms(struct run_vector *v,
                     const struct manifest *f,
                     struct run_terms *t,
                     char *errmsg);

#endif
