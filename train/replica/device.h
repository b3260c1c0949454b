/* device.h - where a replica's vectors lie: a GPU's memory or this
 * process's; the inside of replica.h. Only replica*.c include this file.
 *
 * theta, grad, u, v and the workspace are in the backend's memory. The engine
 * (train/sync/engine.h) reads and writes them as memory of this process:
 *   - on a processor its pointers are the backend's own, and nothing here costs
 *     anything;
 *   - beside a GPU it has *mirrors* of theta, and of grad, u, v where the
 *     method needs them (replica_shares_u). They are read back before the
 *     engine reads (replica_fetch) and written after it wrote (replica_put_*).
 *     A replica that opened with a GPU keeps them when the processor takes
 *     over.
 *
 * A failed put is kept by the backend and told by the next step. A failed fetch
 * is told at once; the mirrors are then rubbish until replica_recover(), but
 * for those that replica_fetch_step() reads. Without a backend (lost, and
 * nothing could be opened in its place) the mirrors alone go on.
 */
#ifndef LOCO_TRAIN_REPLICA_DEVICE_H
#define LOCO_TRAIN_REPLICA_DEVICE_H

#include "train/replica/replica.h"

/* Vectors of n elements that a GPU's replica has in this process. */
size_t replica_mirrors(const struct method *m);
bool replica_mirrors_grad(const struct method *m);

/* Of the model's workspace. */
struct llama_room replica_room(const struct replica_options *opt,
                               uint32_t micro_batch,
                               enum llama_recompute recompute);

/* The backend and all that lies in its memory. After a failure close. */
int replica_open_work(struct replica *r, char *errmsg);
void replica_close_work(struct replica *r);

/* The memory of the outer step goes, then the workspace for half of the
 * micro-batch comes, then one that keeps fewer activations; false: there is no
 * smaller one (a stage's slots would go with it), or this is no GPU. */
bool replica_lower_micro_batch(struct replica *r);

/* A stage's workspace, without what its slots held, comes anew with fewer
 * activations kept; false: none was given up, or there is no memory for it even
 * so, and the replica has no workspace any more. */
bool replica_recompute_more(struct replica *r);

/* The engine's theta, u, v = the backend's, where steps were made since. */
int replica_fetch(struct replica *r);

/* The engine's grad = the backend's. */
int replica_fetch_grad(struct replica *r);

/* After a step of gradient averaging: theta, u, v, all of them or, on failure,
 * none. They are the state there. */
int replica_fetch_step(struct replica *r);

/* The backend's theta, grad = the engine's. */
void replica_put_theta(struct replica *r);
void replica_put_grad(struct replica *r);

/* Live moments and their mirrors = u, v; NULL: stay as they are. */
void replica_put_moments(struct replica *r, const float *u, const float *v);

/* Live moments, their mirrors and the count of steps = 0. */
void replica_clear_moments(struct replica *r);

/* phi, m, the mean's memory and the gradient's = the engine's, of which some
 * have changed places (engine.exchanges). */
void replica_exchanged(struct replica *r);

/* phi where the model can read it; a GPU's grad is spent. */
const float *replica_phi_for_model(struct replica *r);

/* The same of a stage, whose grad is a sum under way: a GPU has a copy of phi
 * for it (replica/plan.h). LOCO_ENOMEM, or what the GPU has failed with. */
int replica_phi_for_stage(struct replica *r, const float **phi);

#endif
