/* llama_pass.h - one micro-batch through the model: the inside of llama.h.
 *
 * struct llama is the workspace that llama.c lays out and llama_pass.c computes
 * in. Only they and llama_stage.c include this file, and decode.c for the
 * product of a layer.
 *
 * The workspace is that of a part of the model (llama_part.h); layers are
 * counted from the part's first. What a micro-batch keeps for its backward
 * pass lies in a slot. A whole model needs one; a stage of a pipeline has
 * several micro-batches on their way and a slot for each.
 */
#ifndef LOCO_TRAIN_MODEL_LLAMA_PASS_H
#define LOCO_TRAIN_MODEL_LLAMA_PASS_H

#include "train/model/llama.h"
#include "train/model/llama_part.h"

/* Kept per layer for the backward pass; what is recomputed lies in buffers
 * that all layers share. */
struct layer {
    float *x1, *x2;       /* (N, C) normed inputs of the two branches */
    float *rrms1, *rrms2; /* (N) */
    float *qkv;           /* (N, (H + 2 KV) D) after rope */
    float *att;           /* (N, C) */
    float *lse;           /* (B, H, T) */
    float *mid;           /* (N, C) residual stream between the branches */
    float *gu;            /* (N, 2F) */
    float *h;             /* (N, F) */
    float *out;           /* (N, C) residual stream after the layer */
};

/* What one micro-batch keeps. */
struct llama_slot {
    struct layer *layers;
    float *embed;    /* (N, C) residual stream before the first layer */
    int64_t b, t, n; /* its shape */
};

struct llama {
    struct llama_config c;
    struct llama_part part;
    const struct backend *be;
    enum llama_recompute recompute;
    int64_t rows_max; /* micro_batch * seq */
    int64_t head_rows;
    int64_t dim, ffn, vocab, qkv_dim;
    int64_t logits_ld; /* of a row of V logits: backend_logits_ld() */
    int64_t head_out;  /* rows of the head that products read: V, or logits_ld
                        * where there are zeros in its copy behind them */
    struct llama_slot *slots; /* (n_slots, and one more with `pass`) */
    uint32_t n_slots;
    bool pass;
    int64_t b, t, n;      /* of the micro-batch at work */
    bool fresh;           /* its gradient is the first: written, not added */
    struct layer *layers; /* of its slot */
    float *cos, *sin;     /* (seq, D/2) */
    float *embed;         /* of its slot */
    float *final, *rrms;  /* (N, C), (N): output of the last norm */
    float *logits, *loss; /* (head_rows, logits_ld), (N) */
    float *dx, *dnorm;    /* (N, C) */
    float *datt;          /* (N, C) */
    float *dqkv;          /* (N, (H + 2 KV) D) */
    float *dgu, *dh;      /* (N, 2F), (N, F) */
    float *scratch;
    float *copy;              /* of the part's theta: pass_use_theta() */
    float *arena;             /* all of the above, in the backend's memory */
    float *losses;            /* (N) loss in the caller's memory */
    float *edge;              /* (N, C) a stage's output there, of a device */
    uint16_t *edge_act;       /* (N, C) the same as bf16, with bf16 */
    struct layer *layers_all; /* (of each slot, part.layers) */
};

/* y (n, out) = x (n, in) W' */
void pass_project(const struct backend *be,
                  float *y,
                  const float *x,
                  const float *w,
                  int64_t n,
                  int64_t in,
                  int64_t out);

/* The zeros in the copy of the part's theta (backend.h). */
int64_t pass_copy_zeros(const struct llama *m);

/* Products read theta, or its copy, from now on. */
void pass_use_theta(const struct llama *m, const float *theta);

/* Work on the micro-batch of a slot. */
void pass_select(struct llama *m, uint32_t slot);

/* Run a part on a micro-batch that fits and whose ids are checked. Where the
 * part does not embed, m->embed holds its input already. Its output is
 * m->final after the last norm, or, where it does not score, the residual
 * stream in the last layer's `out`. */
void pass_layers(struct llama *m,
                 const float *theta,
                 const uint32_t *tokens,
                 int64_t b,
                 int64_t t);

/* From m->final to the losses; with grad also to m->dnorm. */
void pass_score(struct llama *m,
                const float *theta,
                const uint32_t *targets,
                float *grad);

/* The same without a gradient for rows from .. end - 1 only. */
void pass_score_rows(struct llama *m,
                     const float *theta,
                     const uint32_t *targets,
                     int64_t from,
                     int64_t end);

/* What these two found, in m->losses: waits for a device. */
void pass_get_losses(const struct llama *m);

/* The sum of what pass_score() found, likewise. */
double pass_loss_sum(const struct llama *m);

/* grad += the gradient of the part's parameters. Where the part scores it
 * begins with m->dnorm, else with m->dx, the gradient of its output. m->dx
 * becomes the gradient of its input (of the embedding's rows where the part
 * embeds: these are added to grad too). */
void pass_backward(struct llama *m,
                   const float *theta,
                   const uint32_t *tokens,
                   float *grad);

/* m->rrms (N) of m->dx: 0 or NaN of a row that is not finite, or so large that
 * its squares are not. m->dnorm is spent. */
void pass_dx_rrms(const struct llama *m, const float *theta);

/* Run the layers on a micro-batch that fits and whose ids are checked; the
 * output of the last norm is in m->final. Targets are not read. */
void pass_forward(struct llama *m,
                  const float *theta,
                  const struct llama_batch *batch);

/* logits (rows, logits_ld) = scores from m->final[from .. from + rows); what
 * lies behind V in a row is 0 or was not written. */
void pass_logits(const struct llama *m,
                 const float *theta,
                 int64_t from,
                 int64_t rows,
                 float *logits);

/* pass_forward, then the sum of losses. With grad (numel): grad += the
 * gradient of that sum; = where m->fresh. */
double pass_loss(struct llama *m,
                 const float *theta,
                 const struct llama_batch *batch,
                 float *grad);

#endif
