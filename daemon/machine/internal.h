/* internal.h - the inside of machine.h, for the files of this folder.
 *
 *   machine.c     actions, the trainer, stopping
 *   config.c      CONFIGURE: manifest, shards on disk, newest checkpoint
 *   buffers.c     where the bytes of segments are
 *   wire.c        encoded vectors of rounds
 *   hash.c        hashes of buffers
 *   pieces.c      leaf lists, and pieces checked by them
 *   urls.c        shards from URLs
 *   text.c        shards for the trainer
 *   model_files.c layout of a list of tensors, parameters to begin from
 *   disk.c        what all of it takes of the disk
 *   checkpoint.c  the state of the last commit, to disk
 *   past.c        states and reduced bytes of rounds that are over
 *   work.c        the moments of leases, and leases of others made again
 *   pair.c        the bytes of an exchange between two replicas
 *   stage.c       one stage of a model that is cut into several
 */
#ifndef LOCO_DAEMON_MACHINE_INTERNAL_H
#define LOCO_DAEMON_MACHINE_INTERNAL_H

#include <pthread.h>
#include <stdatomic.h>

#include "daemon/jobs/answer.h"
#include "daemon/jobs/audit_room.h"
#include "daemon/jobs/kept.h"
#include "daemon/jobs/leaves.h"
#include "daemon/jobs/offers.h"
#include "daemon/jobs/pace.h"
#include "daemon/jobs/pair_payload.h"
#include "daemon/jobs/pieces.h"
#include "daemon/jobs/reduce.h"
#include "daemon/jobs/run_vector.h"
#include "daemon/jobs/segments.h"
#include "daemon/jobs/wire_slots.h"
#include "daemon/jobs/work_room.h"
#include "daemon/machine/machine.h"
#include "daemon/machine/refuse.h"
#include "train/model/tensor_list.h"
#include "train/replica/checkpoint.h"
#include "train/replica/layout.h"
#include "train/sync/preset.h"

/* What a slot has beside its bytes, so that jobs can read it. */
struct wire_guard {
    pthread_mutex_t lock;  /* held for each piece that a job reads */
    uint64_t version;      /* a job stops when it is another; under lock */
    struct leaves leaves;  /* RING: of its tree hash; made under lock */
    uint64_t leaf_version; /* leaf jobs of another one are void; under lock */
};

struct shard_file {
    bool held;
    bool elsewhere;        /* held, but not in the state directory */
    int fd;                /* of the part being received; -1 */
    struct hash32 *leaves; /* of its pieces, once held */
    struct shard shard;
    size_t slot; /* a train shard's place among them, once there is a trainer */
    char path[MACHINE_PATH_MAX];
};

/* ---- jobs ---------------------------------------------------------------- */

/* A vote waits for a hash, and a hash must not wait for the disk. */
enum job_pool { POOL_WORKERS, POOL_DISK, POOL_URLS };

struct machine_job;

/* What a worker does, and the loop afterwards. */
struct job_kind {
    size_t size; /* of a struct that begins with a machine_job */
    enum job_pool pool;
    void (*run)(struct machine_job *j);
    /* Frees what the job owns. Not 0: it did not run. The answer follows. */
    void (*done)(struct machine_job *j, int status);
};

/* A worker's task: the beginning of a struct for its kind. */
struct machine_job {
    struct worker_job work;
    struct machine *m;
    const struct job_kind *kind;
    bool asked;                /* by the node, which gets ... */
    struct local_event answer; /* ... this, with `rc`, when it is done */
    int rc;
    char errmsg[LOCO_ERRMSG_MAX];
};

/* Of some bytes: a manifest, or a file of the state directory. */
struct bytes_job {
    struct machine_job job;
    uint8_t *bytes;
    size_t len;
};

/* ---- the parts of a machine ---------------------------------------------- */

/* Downloads. Most daemons never need the thread. */
struct machine_downloads {
    struct worker_pool pool;
    bool open;
    int stop; /* eventfd: readable when they are to end; -1 */
};

/* What it takes of this computer, and may: the caps are settings, for the
 * workers (machine_configure()). */
struct machine_use {
    atomic_uint_fast64_t url_bytes, disk_used;
    atomic_uint_fast64_t upload_cap, download_cap, disk_quota, keep, memory_cap;
    atomic_uint_fast64_t checkpoint_percent;
    uint64_t memory_need; /* of the run, or of the stage that is held */
    bool cpu_fallback;    /* as set, and there is memory for it (memory.c) */
};

/* One stage of a model that is cut into several. `replica.part`, `n` and what
 * follows from it are the stage's. */
struct machine_stage {
    const struct codec *activations; /* between stages */
    struct stage_slots slots;        /* n 0: no stage */
    bool held;
    uint32_t number;
    uint32_t wanted;      /* and 1: a move that waits for jobs; 0: none */
    uint64_t tokens_seen; /* by the trainers of the stages before */
};

/* What the model's files say; valid once machine_open_data() was. */
struct machine_model {
    struct tensor_list tensors; /* of all of the model, in the order of theta */
    /* fp32, at any address: the parameters of round 0 of this machine's part,
     * in the mapped shard; NULL until machine_open_init(). */
    const uint8_t *init;
    uint64_t n; /* elements there */
    const char *name;
};

/* The newest checkpoint, as it was found. */
struct machine_found {
    struct checkpoint file; /* mapped while a RESTORE runs */
    bool held;
    float *state, *moments;
    uint8_t *record; /* of that checkpoint's commit, encoded; or NULL */
    uint32_t n_record;
};

/* Vectors of rounds. */
struct machine_wire {
    struct wire_slots slots;
    struct wire_guard guard[WIRE_SLOTS];
    uint64_t given;               /* round of the vector that the trainer got */
    atomic_uint_fast64_t applied; /* and of the last that it has taken over */
    struct reduce reduce;
    struct strays strays; /* of runs with terms.watches */
    float *zeros; /* (n_wire) quorum: the contribution of who has none yet */
    /* (n_wire) With sync.error_feedback: what rounding takes from the
     * contribution of the attempt in flight, in the contribution's unit; the
     * trainer takes it over when the round has committed. */
    float *error;
    struct offers offers;    /* of runs with audits */
    struct offer made;       /* by the trainer, for `offers`; under `mutex` */
    struct audit_room audit; /* the block whose sum is repeated */
};

/* Moments that the last leases of this member began or ended with: of the round
 * under way, of the next one, and of those that others may ask about. Most
 * leases begin with those that the one before ended with, and a lease that is
 * undone with those that it began with before: as many are kept as of leases,
 * each once. */
#define MACHINE_MOMENTS (2 + OFFERS_PAST_MAX)

struct machine_moments {
    struct offer offer;
    unsigned refs; /* under `mutex` */
};

/* What the lease of a round began with. */
struct machine_began {
    uint64_t round; /* 0: none */
    struct hash32 root;
    uint64_t steps; /* of the optimizer */
};

/* Work of others, made again. */
struct machine_work {
    /* Those that were announced last first, NULL: none; under `mutex`. */
    struct machine_moments *moments[MACHINE_MOMENTS];
    struct machine_began began[MACHINE_MOMENTS]; /* by round; the same */
    struct work_room rooms[WORK_ROOMS];
    struct snapshot *bases[WORK_ROOMS]; /* before their rounds; NULL: none */
    /* Of our own lease of that round; NULL: none. */
    struct machine_moments *own[WORK_ROOMS];
    struct machine_moments *undo; /* a LOAD or APPLY puts these back; or NULL */
    uint32_t reading; /* a REPEAT reads this room; WORK_ROOMS: none.. */
    atomic_bool done; /* ..until then.. */
    atomic_bool stop; /* ..and it is to end now */
};

struct machine_pair {
    uint8_t *in;      /* the partner's anchor, then its displacement */
    unsigned hashing; /* jobs that read it */
};

/* What is being fetched. */
struct machine_incoming {
    float *state; /* terms.state_bytes; NULL: none */
    uint64_t round;
    atomic_bool loaded; /* the trainer has taken it over */
    struct pieces list;
    uint8_t *held; /* bit i: piece i was here before */
    unsigned pins; /* jobs reading the list */
};

/* Rounds that are over. */
struct machine_past {
    /* Snapshots. The pinned one has no inner moments, and the older ones of
     * runs with audits of work the parameters alone. */
    struct kept kept;
    struct snapshot *incoming[KEPT_STATES]; /* not looked at yet */
    struct snapshot *spare; /* its memory is that of the next one */
    /* A state without inner moments, for which they were asked; NULL: none. And
     * they, under `mutex`. */
    struct snapshot *asked;
    float *late;
    uint64_t late_steps;
    bool late_here;       /* they came, or could not be had */
    uint64_t n_snapshots; /* made; under `mutex` */
    char *rounds;         /* directory of reduced bytes */
    bool round_saving;
};

struct machine {
    struct machine_options opt;
    uv_loop_t *loop;
    struct worker_pool workers; /* hashes, the manifest */
    struct worker_pool disk;    /* writes, one after the other */
    struct machine_downloads urls;
    struct machine_use use;
    struct shell *shell;
    const struct node *node;
    machine_stop_cb on_stop;
    void *data;
    bool stopped;
    void (*close_done)(void *data);
    void *close_data;
    /* Guards `shell`, past.incoming, past.spare, past.late*, wire.made and
     * work.moments. */
    pthread_mutex_t mutex;

    bool configured;
    struct manifest *manifest;
    struct run_terms terms;
    struct run_vector vector;
    const struct codec *codec;      /* of `vector` */
    enum exchange_kind exchange;    /* the same */
    bool pairs;                     /* random pairs in place of rounds */
    struct replica_options replica; /* shards filled in when they are there */
    uint64_t n;                     /* parameters */
    uint64_t n_wire;                /* elements of the longest round */
    struct shard_file *files;       /* per shard of the manifest */
    struct shard *train;            /* views for the loader */
    uint32_t *token_bytes;          /* [vocab]; NULL: ids are bytes */
    struct machine_model model;
    char *checkpoints; /* directory */

    struct trainer *trainer;
    unsigned n_jobs; /* under way */
    struct machine_stage stage;
    struct machine_found found;
    struct machine_wire wire;
    struct machine_work work;
    struct machine_pair pair;
    struct machine_incoming in;
    struct machine_past past;

    bool saving, closing, final_save;
    /* Of the last snapshot written: a state can change without a new round (the
     * mean at the end of pairs). */
    uint64_t saved_number;
    struct pace save_pace; /* of rounds' checkpoints; uv_now */
    uint64_t saving_ms;    /* when the one under way began, */
    uint64_t asked_ms;     /* and when the last state was asked for */
    uint64_t between_ms;   /* two of them, the longest of late */
};

/* What a job begins with returns 0, or the code that the job is answered with
 * at once. */

/* Any thread. Nothing happens after machine_disconnect(). */
void machine_post(struct machine *m, const struct local_event *ev);

/* A bytes_job of the manifest. */
extern const struct job_kind machine_configure_job;
int machine_open_data(struct machine *m, char *errmsg);
/* machine/text.c. Into the terms: what shards are trained as. */
void machine_read_text(struct machine *m);
/* Shard i has come: the trainer gets it, if there is one. */
void machine_add_text(struct machine *m, uint32_t i);
/* machine/model_files.c. The tensors of the model, checked: into `model` and
 * the trainer's options. */
int machine_open_model(struct machine *m, char *errmsg);
/* Before a LOAD from the seed: what the run begins from, where that is a file,
 * which may have come after the trainer was opened. LOCO_ENOENT: it is not
 * here. */
int machine_open_init(struct machine *m, char *errmsg);
void machine_close_model(struct machine *m);
/* Map the file at `path` and see that it is shard i. *leaves: hashes of its
 * pieces, for free(). LOCO_EHASH, LOCO_EFORMAT, LOCO_ENOMEM, those of file.h.
 */
int machine_shard_open(const struct machine *m,
                       uint32_t i,
                       const char *path,
                       struct shard *shard,
                       struct hash32 **leaves,
                       char *errmsg);

/* machine/wire.c: that of the attempt or round, or a new one. NULL: all are in
 * use, or there is no memory. */
struct wire_slot *
machine_slot_for(struct machine *m, enum wire_use use, uint64_t key);
struct wire_guard *machine_guard(struct machine *m,
                                 const struct wire_slot *slot);
int machine_inherit(struct machine *m, const struct job_inherit *job);
/* The vector of that round goes to the trainer: what is here of those before is
 * of no use, once the trainer has taken over the last of them. */
void machine_wire_give(struct machine *m, uint64_t round);
/* The last commit's vector goes, if its file is written and it is applied. */
void machine_wire_release(struct machine *m);
/* machine/audit.c: announced contributions (daemon/jobs/offers.h). */
/* The trainer made one. On its thread. */
void machine_take_offer(void *self, struct offer *o);
/* The open one is in the commit of that round. */
void machine_spend_offer(struct machine *m, uint64_t round);
/* Write the proof of a segment of the own contribution in flight. */
int machine_prove(struct machine *m, const struct segment *s, uint8_t *proof);
/* Encoded elements of the own contribution in flight, which was announced.
 * NULL: it was not, or has no such part. Borrowed until the next call. */
const uint8_t *
machine_own_encoded(struct machine *m, uint64_t offset, uint64_t len);
/* Whether the contribution itself is not there: what was announced is all that
 * a round takes of it. */
bool machine_sends_offer(const struct machine *m);
/* Whether what a SUM of that segment took as our own contribution is what we
 * announced. If it is not, nobody could repeat the sum, and our vote for it
 * would convict us. LOCO_ENOENT: nothing is announced; LOCO_EHASH. */
int machine_summed_own(struct machine *m, const struct segment *s);
/* Bytes and proof of BUFFER_OFFER. */
int machine_offer_fill(struct machine *m,
                       const struct segment *s,
                       uint8_t *dst);
int machine_offer_take(struct machine *m,
                       const struct segment *s,
                       const uint8_t *src);
int machine_audit(struct machine *m, const struct job *job);
/* machine/work.c: moments that are announced, leases that are made again. */
/* The trainer made them. On its thread. */
void machine_take_moments(void *self,
                          struct offer *o,
                          uint64_t steps,
                          bool ends);
/* Bytes and proof of BUFFER_MOMENTS, which s->name names. */
int machine_moments_fill(struct machine *m,
                         const struct segment *s,
                         uint8_t *dst);
/* A piece of STREAM_WORK. LOCO_EBUSY: all rooms are in use. */
int machine_work_take(struct machine *m,
                      const struct segment *s,
                      const uint8_t *src);
/* The moments with which our lease of that round began, if they are here, into
 * the command, until the next one with such; round 0: none. */
void machine_work_undo(struct machine *m,
                       uint64_t round,
                       struct trainer_command *c);
int machine_repeat(struct machine *m,
                   const struct job *job,
                   const struct out *out);
void machine_work_free(struct machine *m);

/* Rooms that hold this state, of which they read the parameters alone. */
unsigned machine_work_holds(const struct machine *m, const struct snapshot *s);
/* machine/evidence.c: a file about what the last AUDIT found. */
int machine_evidence(struct machine *m,
                     const struct job *job,
                     const struct out *out);
void machine_audit_free(struct machine *m);
/* The piece of the round in flight that `s` names will not change any more. */
void machine_final(struct machine *m, const struct segment *s);
/* Rounds are counted from elsewhere now: no attempt is known any more. */
void machine_leaves_stop(struct machine *m);

/* machine/hash.c */
int machine_hash(struct machine *m, const struct job *job);
void machine_leaves(struct machine *m, struct wire_slot *slot, uint64_t group);

/* machine/pieces.c */

int machine_fill_leaves(struct machine *m,
                        const struct segment *s,
                        uint8_t *dst);
int machine_take_leaves(struct machine *m,
                        const struct segment *s,
                        const uint8_t *src);
int machine_open_part(struct shard_file *f);
/* `used`: it was loaded, or is of no use. */
void machine_state_close(struct machine *m, bool used);
int machine_take_state(struct machine *m,
                       const struct segment *s,
                       const uint8_t *src);
int machine_verify(struct machine *m, const struct job *job);
void machine_keep_leaves(struct machine *m, uint64_t index);

/* machine/urls.c */
/* Whether shard i can be had by URL. The manifest is there. */
bool machine_has_urls(const struct machine *m, uint32_t i);
int machine_download(struct machine *m, const struct job *job);

/* machine/disk.c */
/* LOCO_EDISK: more than this machine allows. The run's terms are there. */
int machine_disk_check(const struct machine *m, char *errmsg);
/* On a worker: what the state directory takes now. */
void machine_disk_measure(struct machine *m);

/* So many bytes of a file: LOCO_EIO where it ends before; LOCO_EDISK where
 * there is no room for them. */
int machine_read_at(int fd, uint64_t at, uint8_t *to, size_t len);
int machine_write_at(int fd, uint64_t at, const uint8_t *from, size_t len);

/* machine/past.c */
/* Take over what the trainer made since the last look. */
void machine_snapshots_collect(struct machine *m);
/* Before a commit: the oldest state makes room for the next one. */
void machine_snapshots_leave(struct machine *m);
/* Of the newest one; NULL: there is none. */
struct snapshot *machine_newest(const struct machine *m);
/* The state that a segment names. */
const struct snapshot *machine_snapshot(struct machine *m,
                                        const struct segment *s);
void machine_snapshots_free(struct machine *m);
/* One owner less. A copy that nobody owns goes to the next that is made; a room
 * is given back. Or NULL. */
void machine_snapshot_drop(struct machine *m, struct snapshot *s);
/* Write the reduced bytes of a round, and forget those too long ago. */
void machine_round_save(struct machine *m,
                        struct wire_slot *slot,
                        uint64_t round);
/* Of the file with them. False: there is none. */
bool machine_round_path(const struct machine *m,
                        uint64_t round,
                        char path[MACHINE_PATH_MAX]);
/* Of all rounds. */
void machine_rounds_forget(const struct machine *m);
/* Some of them, from the file. */
int machine_round_fill(struct machine *m,
                       const struct segment *s,
                       uint8_t *dst);
/* machine/pair.c */
int machine_pair_fill(struct machine *m, const struct segment *s, uint8_t *dst);
uint8_t *machine_pair_at(struct machine *m, const struct segment *s);
int machine_pair_hash(struct machine *m, const struct job *job);
int machine_pair_apply(struct machine *m, const struct job *job);

/* machine/config.c: what follows from replica.part. */
int machine_read_part(struct machine *m, char *errmsg);

/* machine/memory.c: what fits. */
/* Of the whole model or, of stages, of one that fits: else LOCO_ENOMEM, with
 * both figures. */
int machine_memory_check(struct machine *m, char *errmsg);

/* Which stages fit: into the terms. */
void machine_find_stages(struct machine *m);

/* Whether it fits into this process's memory beside a GPU with so many bytes.
 */
bool machine_stage_fits_memory(const struct machine *m,
                               uint32_t stage,
                               uint64_t gpu_bytes);

/* How the replica of that stage, which fits, is to be opened; so many bytes of
 * the GPU's memory are free. */
void machine_stage_room(struct machine *m, uint32_t stage, uint64_t gpu_bytes);

/* Bytes of a GPU's memory: with everything there and kept, and as little as can
 * be, with how that is. */
struct machine_gpu_need {
    uint64_t kept, least;
    const char *how;
};

/* Whether the stage fits into so many; true and zeroes without a GPU. */
bool machine_stage_fits_gpu(const struct machine *m,
                            uint32_t stage,
                            uint64_t have,
                            struct machine_gpu_need *need);

/* machine/stage.c */
/* STAGE. */
void machine_stage_move(struct machine *m, uint32_t stage);
int machine_pipe(struct machine *m, const struct job *job);
void machine_stage_advance(struct machine *m);
size_t machine_stage_len(const struct machine *m, const struct segment *s);
int machine_stage_fill(struct machine *m,
                       const struct segment *s,
                       uint8_t *dst);
int machine_stage_take(struct machine *m,
                       const struct segment *s,
                       const uint8_t *src);

/* machine/buffers.c */
size_t machine_wire_len(void *self, const struct segment *s);
int machine_fill(void *self, const struct segment *s, uint8_t *dst);
const uint8_t *machine_lend(void *self, const struct segment *s);
uint8_t *machine_place(void *self, const struct segment *s);
int machine_take(void *self,
                 const struct segment *s,
                 const uint8_t *src,
                 size_t len);
int machine_sum(void *self, struct segment *s);
void machine_keep(struct machine *m, uint64_t index);

/* machine/checkpoint.c */
/* Before a LOAD, APPLY or PAIR: whether the state that it puts in place may be
 * saved before the next one. */
bool machine_expects_checkpoint(struct machine *m);

/* A state that lacked moments is to be written: say it if there are none. */
void machine_tell_without(const struct snapshot *s);
/* After a round, if it is time for one. */
void machine_round_checkpoint(struct machine *m);
/* If nothing is being saved. A busy disk skips rounds; the last one is always
 * written (machine_close). */
void machine_save_checkpoint(struct machine *m);

/* machine.c */
/* A job of its kind, all zeros but for its head; NULL: no memory. Submitted,
 * its `done` is called whatever happens. `job`: what the node asks for; NULL:
 * nobody waits for it. */
void *machine_job_new(struct machine *m,
                      const struct job_kind *kind,
                      const struct job *job);
void machine_job_submit(struct machine_job *j);
void machine_stop(struct machine *m, int exit_code);
/* LOCO_ENOENT: there is no trainer; LOCO_EFULL. */
int machine_command(struct machine *m, const struct trainer_command *c);

#endif
