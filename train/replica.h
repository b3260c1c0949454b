/* replica.h - one peer's copy of the model and all that training changes.
 *
 * Words: *theta* are the live parameters, *phi* the anchor (the parameters of
 * the last commit), *m* the outer momentum, the *contribution* is phi - theta,
 * the pseudo-gradient. DiLoCo (arXiv:2311.08105), algorithm 1:
 *     replica_step     one inner AdamW step on theta            (lines 5 to 8)
 *     replica_pack     contribution = phi - theta               (line 10)
 *     replica_apply    phi, m = rule(phi, m, average); theta = phi  (line 12)
 * or, for a commit that this peer was not part of, *rebase*: theta keeps its
 * displacement, theta = phi_new + (theta - phi_old), and the contribution
 * stays what it was.
 *
 * Learning rates follow the run (round * period + steps since the anchor), the
 * data follows the peer (its own step count), so that a joiner neither warms
 * up again nor repeats another's data.
 *
 * Memory: 4 (theta, phi, m, u, v, grad, contribution) = 28 bytes a parameter
 * and the workspace of llama.h. With a GPU theta, u, v, grad and the workspace
 * lie there; phi, m and the contribution stay in this process, so that a GPU
 * that fails takes nothing with it but the steps since the last commit
 * (replica_recover). Where the GPU's memory does not hold a micro-batch, half
 * of it is tried, down to one sequence; the batch stays what it is.
 *
 * One thread (the trainer). Errors: codes with a sentence in errmsg;
 * LOCO_ENUMERIC when the loss is not finite any more; LOCO_ECUDA,
 * LOCO_ETIMEOUT when the GPU is lost.
 */
#ifndef LOCO_TRAIN_REPLICA_H
#define LOCO_TRAIN_REPLICA_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "kernels/affinity.h"
#include "kernels/backend.h"
#include "kernels/device.h"
#include "train/llama.h"
#include "train/loader.h"
#include "train/optimizer.h"
#include "train/schedule.h"
#include "train/shard.h"
#include "train/sync/codec.h"
#include "train/sync/rule.h"

struct replica_options {
    struct llama_config model;
    struct optimizer_options optimizer;
    struct schedule schedule;
    struct rule rule;
    bool reset_moments; /* after each outer step (favg-reset) */
    const struct codec *codec;
    uint32_t batch, micro_batch, seq;
    uint32_t period;
    uint64_t seed;             /* of the run: initial weights and data */
    uint64_t peer;             /* of this peer: its own order of the data */
    const struct shard *train; /* borrowed for the replica's life */
    size_t n_train;
    const struct shard *val; /* borrowed; NULL: none */
    uint64_t eval_tokens;    /* of the held-out text; 0: all */
    int threads;
    struct affinity affinity; /* of those threads; zeroes: off */
    enum backend_dtype dtype; /* of matrix products; theta stays fp32 */
    enum llama_recompute recompute;
    bool reference; /* plain C kernels: for sanitizers and comparisons */
    /* A GPU; NULL: this processor. Borrowed for the replica's life. */
    const struct device_options *device;
};

struct replica {
    struct replica_options opt;
    uint64_t n;          /* parameters */
    float *theta, *grad; /* in the backend's memory */
    float *phi, *m, *contribution, *average;
    float *spare; /* (n) of this process: grad, or beside a GPU its own */
    uint32_t micro_batch; /* in use */
    struct backend backend;
    struct llama *llama;
    struct optimizer optimizer;
    struct loader loader;
    uint32_t *tokens, *targets; /* (batch, seq) */
    uint64_t round;             /* whose anchor phi is */
    uint64_t inner_step;        /* steps ever made by this peer */
    uint64_t since;             /* steps since the contribution began */
    uint64_t tokens_seen;       /* ever */
    uint64_t tokens_pending;    /* in the contribution */
    bool have_backend, have_optimizer, have_loader;
};

/* Bytes that replica_open would take, for a plan before it is done. */
size_t replica_bytes(const struct replica_options *opt);

/* replica_close afterwards, whatever the result. */
int replica_open(struct replica *r,
                 const struct replica_options *opt,
                 char *errmsg);
void replica_close(struct replica *r);

/* The GPU is lost: open it again, or with `device` false the processor in its
 * place. theta = phi, no moments, nothing pending; then as before. */
int replica_recover(struct replica *r, bool device, char *errmsg);

/* Inner moments: out (2n) = u, then v. */
void replica_moments(const struct replica *r, float *out);

/* Round 0: weights that the run's seed names, no momentum. */
void replica_init(struct replica *r);

/* Parameters and momentum of `round`, as others hold them. With rebase theta
 * keeps its displacement and the contribution stands. */
void replica_load(struct replica *r,
                  uint64_t round,
                  const float *phi,
                  const float *m,
                  bool rebase);

/* Take back an own checkpoint: also inner moments (u, v may be NULL) and
 * counts. */
void replica_restore(struct replica *r,
                     uint64_t round,
                     const float *phi,
                     const float *m,
                     const float *u,
                     const float *v,
                     uint64_t inner_step,
                     uint64_t tokens_seen);

/* One inner step; mean loss in nats per token. */
int replica_step(struct replica *r, float *loss);

/* LOCO_ENUMERIC when training has diverged. */
int replica_pack(struct replica *r);

/* The outer step of `round` from reduced wire bytes. Nothing is changed on
 * failure. */
int replica_apply(struct replica *r,
                  uint64_t round,
                  const uint8_t *wire,
                  bool rebase);

/* Held-out bits per byte of phi (byte tokens: bits per token). LOCO_ENOENT
 * without held-out text. */
int replica_eval(struct replica *r, double *bits_per_byte);

#endif
