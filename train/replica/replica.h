/* replica.h - one peer's copy of the model and all that training changes.
 *
 * Words: *theta* are the live parameters, *phi* the anchor (the parameters of
 * the last commit), *m* the outer momentum, the *contribution* is the vector of
 * the next round (layout.h): displacements phi - theta, moments, or a gradient,
 * as the method says. DiLoCo (arXiv:2311.08105), algorithm 1:
 *     replica_step     one inner AdamW step on theta            (lines 5 to 8)
 *     replica_pack     contribution = phi - theta               (line 10)
 *     replica_commit   phi, m = rule(phi, m, average); theta = phi  (line 12)
 * or, for a commit that this peer was not part of (share 0), *rebase*: theta
 * keeps its displacement, theta = phi_new + (theta - phi_old), and the
 * contribution stays what it was; where the next round's vector is another one
 * (fragments, moments) it is packed anew. What is packed and what becomes of
 * an average is train/sync/engine.h's.
 *
 * The *state* is what all members of a commit hold alike and a joiner takes:
 * phi, then those of m, u, v that the method shares. Where moments are averaged
 * the state has them as of the last round that had them in it; live ones go on
 * from there. Where gradients are averaged (DDP) an inner step happens when its
 * round commits: replica_step is only the gradient, theta and phi are the same
 * vector, and a commit without this peer makes its gradient worthless.
 *
 * Where rounds overlap with training, steps go on between pack and apply
 * (replica_beside); theta then takes in a part of the new phi (mix.h).
 *
 * In a quorum (AsyncDiLoCo) a task is `task` inner steps from the anchor that
 * it began at; commits without it move phi beside it, nothing else.
 *
 * Where trainers share the rounds (AdLoCo, sync/trainers.h) the state has the
 * anchors of all of them and phi is the first one's; a replica works for one of
 * them at a time, with batches that grow (replica/trainers.h).
 *
 * Learning rates follow the run (cycle.h: the step after which the anchor's
 * round packed, and those since), the data follows the peer: its own step count
 * in an order of its own, or what replica_read() names in the order of all. So
 * a joiner neither warms up again nor repeats another's data. Adam's count of
 * steps follows the run where moments are shared, else the peer.
 *
 * Memory: theta, u, v, grad, the state and what else the method needs, one or
 * two vectors of the longest round (replica_bytes), and the workspace of
 * llama.h. On a processor the state is a *room* that others may hold
 * (replica/state.h), and a commit makes the next one in another. With a GPU
 * theta, grad, the workspace and, where it holds them, u and v lie there, and
 * copies of theta and what
 * else the method reads in this process (replica/device.h); the anchors and the
 * state are here, so that a GPU that fails takes nothing with it but the steps
 * since the last commit (replica_recover); with room for copies of phi and m
 * the outer step is made there (replica/outer.h). Other GPUs of the machine
 * make a part of each gradient (replica/gpus.h). Where the GPU's memory does
 * not hold a micro-batch, half of it is tried, down to one sequence; the batch
 * stays what it is. A stage's micro-batch is that of all its hosts. Where one
 * sequence, or a stage's micro-batch, does not fit, the backward pass makes
 * activations again, or u and v lie in the host's memory (replica/plan.h); one
 * that does not fit even so is refused.
 *
 * A replica of one stage of a pipeline is the same for a slice of the model
 * (`part`, llama_part.h): theta, phi, moments, contributions and states are of
 * that slice. Its inner steps are those of replica/stage.h; replica_step() and
 * replica_eval() refuse it.
 *
 * Where another process makes the inner steps (`shared`) there is no
 * model here, no optimizer and no moments: theta is memory that the process
 * shares, and its owner sees to it that the process rests while it is read or
 * written here (daemon/machine/trainer_loop.h). replica_count_step() takes the
 * place of replica_step(), which refuses it, as replica_eval() does. A model
 * that is a list of tensors has dim 0, and part.numel elements.
 *
 * One thread (the trainer). Errors: codes with a sentence in errmsg;
 * LOCO_ENUMERIC when the loss is not finite any more; LOCO_ECUDA,
 * LOCO_ETIMEOUT when the GPU is lost, LOCO_EDEVICE when nothing could be opened
 * in its place.
 */
#ifndef LOCO_TRAIN_REPLICA_REPLICA_H
#define LOCO_TRAIN_REPLICA_REPLICA_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "kernels/affinity.h"
#include "kernels/backend.h"
#include "kernels/device.h"
#include "train/data/loader.h"
#include "train/data/shard.h"
#include "train/model/llama.h"
#include "train/model/optimizer.h"
#include "train/model/schedule.h"
#include "train/replica/eval.h"
#include "train/replica/layout.h"
#include "train/replica/state_room.h"
#include "train/sync/codec/codec.h"

struct replica_options {
    struct llama_config model;
    /* Of a pipeline: what this replica holds, and how many micro-batches are on
     * their way through it at once. slots 0: no pipeline, the whole model. */
    struct llama_part part;
    uint32_t slots;
    struct optimizer_options optimizer;
    struct schedule schedule;
    struct method method; /* checked */
    uint32_t members;     /* expected in the first round; 0: 1 */
    const struct codec *codec;
    uint32_t batch, micro_batch, seq;
    uint64_t seed; /* of the run: initial weights and data */
    /* Round 0: theta (n of the part) = what the run begins from; an error of
     * it is that of replica_init(). On the trainer's thread. NULL: from the
     * seed. */
    int (*init)(void *self, float *theta);
    void *init_self;
    uint64_t peer;             /* of this peer: its own order of the data */
    const struct shard *train; /* borrowed for the replica's life */
    size_t n_train;
    const struct shard *val; /* borrowed; NULL: none */
    uint64_t eval_tokens;    /* of the held-out text; 0: all */
    uint32_t vocab;          /* every id of the text is below it */
    /* [vocab], borrowed: bytes that each id stands for; NULL: ids are bytes. */
    const uint32_t *token_bytes;
    int threads;
    struct affinity affinity; /* of those threads; zeroes: off */
    enum backend_dtype dtype; /* of matrix products; theta stays fp32 */
    const char *isa;          /* as in backend_cpu_isa(); NULL: "auto" */
    /* By a processor; a GPU makes again what its memory asks for. */
    enum llama_recompute recompute;
    bool reference; /* plain C kernels: for sanitizers and comparisons */
    /* A GPU; NULL: this processor. Borrowed for the replica's life. */
    const struct device_options *device;
    /* Moments stay in the GPU's memory: that of the host was not counted with
     * them (replica/plan.h). */
    bool moments_stay;
    /* Another process makes the inner steps; (n) its parameters, borrowed for
     * the replica's life. */
    bool shared;
    float *shared_theta;
};

#define REPLICA_STATE_MAX                                                      \
    5 /* vectors of a state: at most phi, m, u, v, or                          \
         phi, m, sum, arrivals */

/* Numbers at the end of a state: whole ones, from 0 to below this. */
#define REPLICA_NUMBERS_MAX (2 * TRAINERS_MAX)
#define REPLICA_NUMBERS_END 16777216

/* One of them. */
struct replica_vector {
    float *x;
    uint64_t n;
};

/* What a commit brings beside its bytes. */
struct replica_commit {
    uint64_t round;
    const uint8_t *wire; /* reduced */
    double share;        /* own weight in the mean; 0: was not in it */
    uint32_t arrivals;   /* quorum: contributions in it, */
    uint32_t members;    /* of so many members; 0 for both: no matter */
};

/* Addresses of wire bytes that a GPU is told of. */
#define REPLICA_WIRES_MAX 8

/* Of the GPU (replica/outer_pass.h): pieces of elements, of wire bytes. */
struct replica_passing {
    float *m[2], *sum[2], *own;
    uint8_t *anchor[2], *encoded;
};

/* What is done on a GPU only where it has room (replica/outer.h): the outer
 * step, the norms of the batch test. */
struct replica_outer {
    float *phi, *m;   /* (n), of the GPU */
    float *piece[2];  /* of the GPU */
    uint8_t *wire[2]; /* of the GPU */
    uint8_t *pinned[2];
    struct replica_passing passing;
    uint64_t most; /* elements of a piece */
    bool on;       /* there is memory for it */
    bool current;  /* phi (or the base of a task) and m are the state's */
    float *half;   /* (n), of the GPU: a first half's gradient; NULL: none */
    /* A stage whose outer step is made in this process: phi (n) of the round,
     * of the GPU, for held-out text; NULL: none was read yet. */
    float *eval;
    bool eval_current;
    uint64_t eval_round;
    const uint8_t *wires[REPLICA_WIRES_MAX]; /* tried (replica/host.h) */
    unsigned n_wires;
};

/* One vector of this process, and what must be given back. */
struct replica_memory {
    float *x;
    size_t bytes; /* of pages of its own; 0: malloc's */
};

struct replica {
    struct replica_options opt;
    struct layout layout;
    struct engine engine;     /* its vectors are those here */
    uint64_t n;               /* parameters, of its part */
    uint64_t n_wire;          /* elements of the longest round */
    float *theta, *grad;      /* (n), in the backend's memory; without a
                               * GPU grad is the engine's */
    float *phi;               /* (n); DDP: the engine's theta */
    float *m;                 /* (n); NULL where the method has none */
    float *state_u, *state_v; /* (n) of the state; NULL: not in it */
    float *contribution;      /* (n_wire) */
    float *average; /* (n_wire); NULL: the mean is never decoded whole */
    /* Of the state (replica/state.h); NULL: the vectors are the replica's. And
     * where the next one will be; NULL: none is taken yet. */
    struct state_room *room, *next;
    bool makes_beside;    /* a commit makes the state in `next` */
    float *spare;         /* (n) DDP beside a GPU */
    bool mirrored;        /* the engine has copies: opened with a GPU */
    bool stale;           /* theta, u, v moved since they were made */
    uint32_t micro_batch; /* in use */
    enum llama_recompute recompute;
    /* Of a GPU's memory, bytes when it was opened: what it had, what it needed
     * with all activations kept, and as it was planned. */
    struct {
        uint64_t have, kept, need;
        uint64_t host; /* of the host's memory, for moments; 0: none */
    } planned;
    bool outer_fits; /* the plan has room for its step on the GPU */
    struct replica_outer outer;
    struct backend backend;
    struct gpus *gpus;  /* others beside the first; NULL: none */
    uint32_t gpus_hung; /* bits of others that gave no answer once, */
    bool gpus_alone;    /* and whether the first failed beside them */
    struct llama *llama;
    struct optimizer optimizer;
    struct loader loader;
    uint32_t *tokens, *targets; /* (batch, seq) */
    uint64_t round;             /* whose anchor phi is */
    uint64_t inner_step;        /* steps ever made by this peer */
    bool reads_shared;          /* the next step reads the order of all, */
    uint64_t position;          /* there */
    uint64_t since;             /* steps since that round packed */
    uint64_t tokens_seen;       /* ever */
    uint32_t summed;            /* stage: micro-batches in grad, */
    double loss_sum;            /* and their losses where it scores */
    uint64_t tokens_pending;    /* since the contribution before was packed */
    bool packed;                /* a contribution is open */
    uint64_t packed_since, packed_tokens; /* of it */
    uint32_t task;                        /* quorum: inner steps of a task */
    uint32_t trainer; /* trainers: the one that it works for, */
    uint32_t rows;    /* sequences of its steps in this turn, */
    uint32_t asked;   /* and what the noise of the first one asks for */
    float numbers[REPLICA_NUMBERS_MAX]; /* trainers, in the state */
    float
        arrivals[4]; /* quorum, in the state: size, next, count of delayed.h */
    bool have_backend, have_optimizer, have_loader, have_layout;
    struct replica_memory vectors[16]; /* what is to be freed */
    unsigned n_vectors;
};

/* Elements of the state: phi and what else members share. */
uint64_t replica_state_elements(const struct method *m, uint64_t n);

/* Whether the state has the outer momentum, the moments. */
bool replica_shares_m(const struct method *m);
bool replica_shares_u(const struct method *m);
bool replica_shares_v(const struct method *m);
bool replica_shares_sum(const struct method *m); /* and arrivals */

/* Whether inner steps follow from the parameters of a state alone, and from
 * this peer's own moments: what is behind phi matters to commits only. */
bool replica_begins_with_phi(const struct method *m);

/* What a checkpoint calls the vectors of n elements that a state has behind
 * phi, in order. Numbers follow: what is left of replica_state_elements(). */
struct replica_names {
    size_t n;
    char name[TRAINERS_MAX][24];
};
void replica_state_names(const struct method *m, struct replica_names *out);

/* Bytes that replica_open would take, for a plan before it is done. */
size_t replica_bytes(const struct replica_options *opt);

/* Bytes of this process that a replica with a GPU takes beside these once the
 * processor is in the place of the GPU (replica_recover). */
size_t replica_fallback_bytes(const struct replica_options *opt);

/* replica_close afterwards, whatever the result. */
int replica_open(struct replica *r,
                 const struct replica_options *opt,
                 char *errmsg);
void replica_close(struct replica *r);

/* The GPU is lost: open it again, or with `device` false the processor in its
 * place. At the anchor, with nothing pending and no moments but those of the
 * state; then as before. LOCO_EINVAL for a replica that had no GPU. */
int replica_recover(struct replica *r, bool device, char *errmsg);

/* GPUs that make the gradients; 0 on a processor. And what to say of one that
 * was left out, each once; NULL: nothing. */
int replica_gpus_count(const struct replica *r);
const char *replica_gpus_said(struct replica *r);

/* Wire bytes of commits come from here: so many bytes of whole pages, private
 * ones, which stay until replica_close(); a GPU that makes the outer step is
 * told of them, once for each address. Before each commit: it may be a new GPU.
 * Elsewhere nothing. */
void replica_know_wire(struct replica *r, const uint8_t *wire, size_t bytes);

/* Whether it has inner moments that are not in the state: this peer's alone. */
bool replica_owns_moments(const struct replica *r);

/* Inner moments: out (2n) = u, then v. Else the code of a GPU that is lost:
 * what `out` has means nothing. */
int replica_moments(const struct replica *r, float *out);

/* Round 0: weights that opt.init reads, or that the run's seed names; no
 * momentum. Fails with opt.init only: nothing is to be trained then. */
int replica_init(struct replica *r);

/* The vectors of the state, in order; returns how many. Borrowed until the next
 * call that changes them. */
size_t replica_state(const struct replica *r,
                     struct replica_vector out[REPLICA_STATE_MAX]);

/* The same as one vector of replica_state_elements(), which stays as it is as
 * long as somebody holds it: state_room_drop() it. NULL: this replica's state
 * lies in vectors of its own (replica/state.h). */
struct state_room *replica_hold_state(struct replica *r);

/* Memory for a state to come, which the caller held; NULL is allowed. Without
 * it, or where somebody else holds it too, the replica takes new memory. */
void replica_offer_room(struct replica *r, struct state_room *m);

/* The inner optimizer begins anew; moments of the state are those of the state.
 */
void replica_forget_moments(struct replica *r);

/* Inner moments (n) of an optimizer that made so many steps, in place of our
 * own. Nothing where they begin anew with each round or are of the state. */
void replica_set_moments(struct replica *r,
                         const float *u,
                         const float *v,
                         uint64_t steps);

/* The state of `round` as others hold it: its vectors one behind the other.
 * With rebase theta keeps its displacement and the contribution stands.
 * LOCO_EPROTO: not such a state. LOCO_ENUMERIC: not finite, where nobody has
 * agreed on it (pairs); nothing changed. */
int replica_load(struct replica *r,
                 uint64_t round,
                 const float *state,
                 bool rebase);

/* Take back an own checkpoint: also inner moments where they are not in the
 * state (u, v may be NULL), after so many steps, and counts. */
int replica_restore(struct replica *r,
                    uint64_t round,
                    const float *state,
                    const float *u,
                    const float *v,
                    uint64_t moment_steps,
                    uint64_t inner_step,
                    uint64_t tokens_seen);

/* Number `rank` of `members` begins a task: for which trainer, with which
 * batch. Nothing in the middle of one, or where a run has no trainers. */
void replica_turn(struct replica *r, uint32_t rank, uint32_t members);
/* The optimizer's step with the sum of gradients in grad, of so many positions
 * (DDP: their mean is kept for the round); counts it. Of none nothing moves. */
int replica_take_gradient(struct replica *r, uint64_t positions);

/* The next step reads batch `position` of the order that all peers share; else
 * (shared false, as at first) the one that its count names in an order of its
 * own. */
void replica_read(struct replica *r, bool shared, uint64_t position);

/* One inner step (DDP: its gradient); mean loss in nats per token. */
int replica_step(struct replica *r, float *loss);

/* shared: the other process made one, on so many positions. */
void replica_count_step(struct replica *r, uint64_t positions);

/* shared: the process is gone, and so is what it did since theta was read
 * last: theta and the counts are those of a contribution that is open, else
 * those of the anchor. */
void replica_abandon(struct replica *r);

/* The run is over: theta is the anchor, without steps that no commit has.
 * False: it was that already. */
bool replica_rest(struct replica *r);

/* tokens, targets (batch, seq) of a step, as replica_read() said. LOCO_ENOENT:
 * the run has no text. */
int replica_text(struct replica *r, uint32_t *tokens, uint32_t *targets);

/* The run's inner step that this peer is at: learning rates go by it. */
uint64_t replica_clock(const struct replica *r);

/* Steps to make until the next round packs; steps that may be made after it has
 * packed and before its average is applied. */
uint64_t replica_left(const struct replica *r);
uint64_t replica_beside(const struct replica *r);

/* The contribution to round + 1. LOCO_ENUMERIC when training has diverged. */
int replica_pack(struct replica *r);

/* The same piece by piece, where a contribution is a displacement of all
 * elements and is kept elsewhere: replica.contribution is not written. Read all
 * of the source before anything else. Whether a run and a machine can, and this
 * replica: not one that was opened with a GPU, also when that is gone, as its
 * engine has copies of the parameters. */
bool replica_packs_pieces(const struct replica_options *opt);
bool replica_in_pieces(const struct replica *r);
struct engine_source replica_pack_pieces(struct replica *r);

/* Elements of the contribution to round + 1. */
uint64_t replica_elements(const struct replica *r);

/* Tokens whose work a new anchor replaces: all since the contribution before
 * for a loaded one; for an applied average those that it has, and those made
 * beside where nothing of them is kept. */
uint64_t replica_replaced(const struct replica *r, bool loaded);

/* Nothing is changed on failure. */
int replica_commit(struct replica *r, const struct replica_commit *c);

/* Held-out bits per byte of phi (byte tokens: bits per token), of a few windows
 * that `draw` draws (eval.h), or, with 0, of eval.tokens. LOCO_ENOENT without
 * held-out text. */
int replica_eval(struct replica *r, uint64_t draw, double *bits_per_byte);

/* The same by somebody else, who has the parameters to be measured: it computes
 * the loss of batches of so many rows at most, with this room for them. */
struct replica_measure {
    eval_loss *loss;
    void *self;
    uint32_t rows;
    uint32_t *tokens, *targets; /* (rows, seq) */
};
int replica_eval_by(struct replica *r,
                    const struct replica_measure *by,
                    uint64_t draw,
                    double *bits_per_byte);

#endif
