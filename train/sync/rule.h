/* rule.h - how an average is applied: the outer step on fp32 vectors.
 *
 * A *rule* takes the averaged pseudo-gradient g = mean(phi - theta_i) ("old
 * minus new") and moves the anchor phi. Rule N is PyTorch's Nesterov SGD, the
 * outer optimizer of DiLoCo (Douillard et al. 2023, Algorithm 1; algorithms
 * page 0.3). Per element, each line one IEEE fp32 operation rounded to nearest:
 *
 *     mu != 0:  a = mu * m      mu == 0:  m = g
 *               m = a + g                 d = lr * g
 *               b = mu * m                phi = phi - d
 *               c = g + b
 *               d = lr * c
 *               phi = phi - d
 *
 * lr = 1, mu = 0 is the plain MEAN: phi - g exactly.
 *
 * Rule H is heavy ball with the rate inside the buffer, and a pull towards the
 * mean anchor of the group: NoLoCo's outer step (arXiv:2506.10911, algorithms
 * page 8.2; its delta is -m, its Delta is -g):
 *
 *     a = mu * m, b = lr * g, m = a + b
 *     gamma != 0:  e = phi - mean_phi, f = gamma * e, m = m + f
 *     phi = phi - m
 *
 * With gamma, rule N subtracts f too: d = d + f before the last line. N and H
 * with equal numbers are different methods.
 *
 * These orders are part of the protocol: all members compute the committed
 * parameters from the same reduced bytes and must get the same bits. No FMA
 * (-ffp-contract=off), no flush to zero.
 *
 * The result may go to other vectors than the input, so that an anchor stays
 * as it is until its round commits; in place is allowed too.
 *
 * How it fails: LOCO_ENUMERIC when a result is not finite; the output vectors
 * are then complete but useless. Pure; memory-bound (5 vectors of traffic).
 */
#ifndef LOCO_TRAIN_SYNC_RULE_H
#define LOCO_TRAIN_SYNC_RULE_H

#include <stddef.h>

enum rule_form { RULE_NESTEROV, RULE_HEAVY_BALL, RULE_FORM_COUNT };

struct rule {
    enum rule_form form;
    float lr;
    float mu;    /* 0: no momentum; the rule still fills m when it is given */
    float gamma; /* pull towards the group's mean anchor; 0: none */
};

/* What an outer step moves. */
struct outer_state {
    float *phi; /* (n) anchor */
    float *m;   /* (n) outer momentum; may be NULL for the plain MEAN */
};

/* out = rule(in, g), without a pull. `out` and `in` may be the same vectors,
 * and out->phi may be g; no other overlap. */
int rule_apply(const struct rule *rule,
               const struct outer_state *out,
               const struct outer_state *in,
               const float *g,
               size_t n);

/* The same with the pull towards mean_phi (n); NULL is rule_apply. */
int rule_apply_pulled(const struct rule *rule,
                      const struct outer_state *out,
                      const struct outer_state *in,
                      const float *g,
                      const float *mean_phi,
                      size_t n);

/* g = phi - theta; LOCO_ENUMERIC when training has diverged. In place on
 * either input is allowed. */
int rule_displacement(float *g, const float *phi, const float *theta, size_t n);

#endif
