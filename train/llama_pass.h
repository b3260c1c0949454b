/* llama_pass.h - one micro-batch through the model: the inside of llama.h.
 *
 * struct llama is the workspace that llama.c lays out and llama_pass.c computes
 * in. Nobody else includes this file.
 */
#ifndef LOCO_TRAIN_LLAMA_PASS_H
#define LOCO_TRAIN_LLAMA_PASS_H

#include "train/llama.h"

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

struct llama {
    struct llama_config c;
    const struct backend *be;
    enum llama_recompute recompute;
    int64_t rows_max; /* micro_batch * seq */
    int64_t head_rows;
    int64_t dim, ffn, vocab, qkv_dim;
    int64_t b, t, n; /* of the micro-batch at work */
    bool fresh;      /* its gradient is the first: written, not added */
    struct layer *layers;
    float *cos, *sin;     /* (seq, D/2) */
    float *embed;         /* (N, C) residual stream before layer 0 */
    float *final, *rrms;  /* (N, C), (N): output of the last norm */
    float *logits, *loss; /* (head_rows, V), (N) */
    float *dx, *dnorm;    /* (N, C) */
    float *datt;          /* (N, C) */
    float *dqkv;          /* (N, (H + 2 KV) D) */
    float *dgu, *dh;      /* (N, 2F), (N, F) */
    float *scratch;
    float *copy;   /* backend_copy_bytes() of theta */
    float *arena;  /* all of the above, in the backend's memory */
    float *losses; /* (N) loss in the caller's memory */
};

/* Run the layers on a micro-batch that fits and whose ids are checked; the
 * output of the last norm is in m->final. Targets are not read. */
void pass_forward(struct llama *m,
                  const float *theta,
                  const struct llama_batch *batch);

/* logits (rows, V) = scores from m->final[from .. from + rows). */
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
