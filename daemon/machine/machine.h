/* machine.h - this machine below a node: model, buffers, files.
 *
 * Executes the jobs that the network shell hands on (p2p/local.h): the manifest
 * becomes a configured trainer, segments find their bytes, hashes are computed
 * on workers, states are saved. Protocol decisions are the node's; what is here
 * is where the bytes are.
 *
 * Threads: everything runs on the loop thread except the trainer and the
 * worker's jobs; both answer with shell_post(). Buffers and who writes them:
 *   wire slots   loop thread; read by a hash job or the trainer's APPLY while
 *                `pins` > 0 or until the next APPLY
 *   in.state     loop thread; read by a hash job, then by the trainer's LOAD;
 *                the node starts no other transfer before the answer
 *   snapshots    made by the trainer, owned by the loop once taken over
 */
#ifndef LOCO_DAEMON_MACHINE_MACHINE_H
#define LOCO_DAEMON_MACHINE_MACHINE_H

#include "daemon/machine/trainer.h"
#include "daemon/node/node.h"
#include "p2p/uv/loop.h"
#include "p2p/uv/worker.h"
#include "proto/manifest.h"

#define MACHINE_PATH_MAX 4096

/* Which URLs of a run are fetched. */
enum machine_urls { URLS_PUBLIC, URLS_ANY, URLS_OFF };

struct machine_options {
    /* Borrowed for the machine's life. The loop thread changes the live ones
     * and then calls machine_configure(). */
    const struct config *settings;
    const char *state_dir; /* borrowed */
    struct peer_id self;
    struct hash32 run_id;
    struct affinity affinity;            /* of the trainer's threads */
    enum backend_dtype dtype;            /* of matrix products */
    const struct device_options *device; /* a GPU; NULL: this processor */
    uint64_t gpu_bytes;                  /* of its memory that were free */
    bool cpu_fallback;                   /* when the GPU fails for good */
    const char *data_dir; /* where shards may lie already; NULL: nowhere */
    enum machine_urls urls;
    bool reference; /* plain C kernels */
    uint32_t time_scale;
};

struct machine;

/* STOP was asked for, or the machine cannot go on: the exit code. Called once,
 * on the loop thread. */
typedef void (*machine_stop_cb)(void *data, int exit_code);

int machine_open(struct machine **machine,
                 uv_loop_t *loop,
                 const struct machine_options *opt,
                 machine_stop_cb on_stop,
                 void *data);

/* What the shell calls. */
struct shell_calls machine_calls(struct machine *m);

/* Before the loop runs. The node is asked for figures of checkpoints. */
void machine_connect(struct machine *m,
                     struct shell *shell,
                     const struct node *node);

/* From here on it tells the shell nothing and does nothing for it. The way to
 * the end: machine_disconnect(), shell_close(), and when that is done
 * machine_close(), for connections receive into the machine's memory. */
void machine_disconnect(struct machine *m);

/* NULL until CONFIGURED. */
const struct manifest *machine_manifest(const struct machine *m);

/* Bytes that came from URLs since the start. */
uint64_t machine_url_bytes(const struct machine *m);

/* Its live settings have changed. */
void machine_configure(struct machine *m);

/* Bytes that the state directory took when they were counted last. */
uint64_t machine_disk_used(const struct machine *m);

/* Whether the run, if there is one, keeps within this. */
bool machine_disk_fits(const struct machine *m, uint64_t quota, unsigned keep);

/* The same for memory_bytes; of the run that there is, 0 before there is one.
 */
bool machine_memory_fits(const struct machine *m, uint64_t bytes);
uint64_t machine_memory_need(const struct machine *m);

/* --trainer socket, and no training loop is connected (TRAINER_SOCKET in the
 * state directory). */
bool machine_waits_for_loop(const struct machine *m);

/* Now and then, on the loop: what was put off. */
void machine_tick(struct machine *m);

/* Stop the trainer, write the last checkpoint, end the workers; `done` when
 * the loop has nothing of ours any more. */
void machine_close(struct machine *m, void (*done)(void *data), void *data);

#endif
