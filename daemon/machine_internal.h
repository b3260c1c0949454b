/* machine_internal.h - the inside of machine.h, for the machine_*.c files.
 *
 *   machine.c          actions, the trainer, stopping
 *   machine_config.c   CONFIGURE: manifest, shards on disk, newest checkpoint
 *   machine_buffers.c  where the bytes of segments are
 *   machine_wire.c     encoded vectors of rounds
 *   machine_hash.c     hashes of buffers
 *   machine_pieces.c   leaf lists, and pieces checked by them
 *   machine_urls.c     shards from URLs
 *   machine_text.c     shards for the trainer
 *   machine_disk.c     what all of it takes of the disk
 *   machine_past.c     states and reduced bytes of rounds that are over
 *   machine_pair.c     the bytes of an exchange between two replicas
 *   machine_stage.c    one stage of a model that is cut into several
 *   machine_owners.c   slices of the parameters that this machine owns
 *   machine_marks.c    what the disk has of them
 */
#ifndef LOCO_DAEMON_MACHINE_INTERNAL_H
#define LOCO_DAEMON_MACHINE_INTERNAL_H

#include <pthread.h>
#include <stdatomic.h>

#include "daemon/leaves.h"
#include "daemon/machine.h"
#include "daemon/slice_store.h"
#include "train/checkpoint.h"
#include "train/layout.h"
#include "train/sync/lanes.h"
#include "train/sync/preset.h"

#define MACHINE_SEGMENT_BYTES (256U << 10) /* of the wire, at most */

#define WIRE_SLOTS    4 /* in flight, being hashed, last commit, fetched */
#define SNAPSHOTS_MAX 2 /* rounds whose state joiners can fetch */

enum wire_use { WIRE_FREE, WIRE_RING, WIRE_REDUCED, WIRE_FETCHED };

struct wire_slot {
    enum wire_use use;
    uint8_t *bytes;
    size_t room;           /* of them: whole pages, until the trainer is gone */
    uint64_t attempt;      /* RING */
    uint64_t round;        /* REDUCED, FETCHED */
    uint64_t made;         /* order of use: the oldest is taken first */
    uint64_t hashed;       /* order of HASH actions; 0: not hashed */
    unsigned pins;         /* jobs reading it */
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

/* The leaf list of what is being fetched. */
struct incoming {
    enum buffer_kind buffer; /* STATE or SHARD */
    uint64_t index;
    size_t n;
    struct hash32 *leaves;
    uint8_t *held; /* bit i: piece i was here before */
    unsigned pins; /* jobs reading it */
};

/* A worker's task; what is read and written is named by its kind. */
struct machine_job {
    struct worker_job job;
    struct machine *m;
    enum {
        JOB_ROUND,
        JOB_CONFIGURE,
        JOB_HASH,
        JOB_LEAF,
        JOB_VERIFY,
        JOB_CHECKPOINT,
        JOB_PEERS,
        JOB_CHAIN,
        JOB_REVOKED,
        JOB_DOWNLOAD,
        JOB_SLICE,
        JOB_MARK
    } kind;
    int rc;
    /* HASH, LEAF (index: its piece) */
    enum buffer_kind buffer;
    uint64_t index, request;
    struct wire_slot *slot;
    uint64_t version; /* of the slot */
    bool encode;      /* elements from `from` on; STEP: our own first */
    uint64_t from;
    uint64_t elements;         /* of the slot's round */
    const float *contribution; /* the trainer's, alive until closed */
    float *error;              /* machine.error */
    struct hash32 hash, params_hash, momentum_hash;
    /* CONFIGURE, PEERS, CHAIN; VERIFY: pieces held (or NULL) */
    uint8_t *bytes;
    size_t len;
    struct url_job *url;    /* DOWNLOAD */
    struct action action;   /* SLICE */
    struct slice_mark mark; /* MARK */
    /* CHECKPOINT */
    struct snapshot *snapshot;
    char extra_tokens[24], extra_commit[ID_HEX_MAX];
    char extra_numbers[REPLICA_NUMBERS_MAX * sizeof "16777216"];
    char extra_stage[12]; /* "": no pipeline */
    char *extra_slices;   /* versions of owned ones; NULL: none */
    char *extra_record;   /* of its commit, in hex; NULL: none */
    char errmsg[LOCO_ERRMSG_MAX];
};

struct machine {
    struct machine_options opt;
    uv_loop_t *loop;
    struct worker_pool workers; /* hashes, the manifest */
    struct worker_pool disk;    /* writes, one after the other */
    struct worker_pool urls;    /* downloads */
    bool urls_open;
    int url_stop; /* eventfd: readable when they are to end; -1 */
    atomic_uint_fast64_t url_bytes, url_cap, disk_used, disk_quota, keep,
        memory_cap;
    uint64_t memory_need; /* of the run; written before CONFIGURED */
    struct shell *shell;
    const struct node *node;
    machine_stop_cb on_stop;
    void *data;
    bool stopped;
    void (*close_done)(void *data);
    void *close_data;

    bool configured;
    struct manifest *manifest;
    struct run_terms terms;
    const struct codec *codec;
    enum exchange_kind exchange;
    bool pairs;                     /* random pairs in place of rounds */
    struct replica_options replica; /* shards filled in when they are there */
    uint64_t n;                     /* parameters */
    uint64_t n_wire;                /* elements of the longest round */
    struct shard_file *files;       /* per shard of the manifest */
    struct shard *train;            /* views for the loader */
    uint32_t *token_bytes;          /* [vocab]; NULL: ids are bytes */
    char *checkpoints;              /* directory */
    char *rounds;                   /* directory of reduced bytes */

    /* Stages. `replica.part`, `n` and what follows from it are the stage's. */
    const struct codec *activations; /* between stages */
    struct stage_slots slots;        /* n 0: no stage */
    bool staged;
    uint32_t stage;
    uint32_t stage_wanted; /* and 1: a move that waits for jobs; 0: none */
    unsigned n_jobs;       /* under way */

    struct slice_store *slices; /* owners of slices; or NULL */
    float *initial; /* (n) the worker's: what slices are built from; or NULL */
    bool marking;   /* a slice is being written */
    uint64_t n_readings;
    char *read[2]; /* versions of readings, as a checkpoint has them: the one
                      of number k is read[k & 1]; 0: what was restored */

    struct trainer *trainer;
    struct checkpoint restore; /* mapped while a RESTORE runs */
    bool restoring;
    float *restore_state, *restore_moments;
    uint8_t *record; /* of that checkpoint's commit, encoded; or NULL */
    uint32_t n_record;

    struct wire_slot wire[WIRE_SLOTS];
    struct lanes lanes; /* contributions to the own slice (butterfly) */
    float clip;         /* sync.norm_clip */
    float *zeros; /* (n_wire) quorum: the contribution of who has none yet */
    /* (n_wire) With sync.error_feedback: what rounding takes from the
     * contribution of the attempt in flight, in the contribution's unit; the
     * trainer takes it over when the round has committed. */
    float *error;
    uint8_t *pair_in;      /* the partner's anchor, then its displacement */
    unsigned pair_hashing; /* jobs that read it */
    uint64_t n_hashes, n_made;
    uint64_t refused_attempt; /* INHERIT failed for it; 0: none */
    float *state_in;          /* terms.state_bytes, while it is fetched */
    uint64_t state_round;
    struct incoming incoming_leaves;
    atomic_bool state_loaded; /* the trainer has taken it over */

    struct snapshot *snapshots[SNAPSHOTS_MAX]; /* newest first */
    struct snapshot *pinned; /* an older one, while somebody fetches it */
    uint64_t snapshots_asked_ms[SNAPSHOTS_MAX], pinned_asked_ms;
    pthread_mutex_t mutex; /* guards `shell`, `incoming` and `spare` */
    struct snapshot *incoming[SNAPSHOTS_MAX];
    struct snapshot *spare; /* its memory is that of the next one */
    bool saving, closing, final_save, round_saving;
    /* Of the last snapshot made (under `mutex`) and the last one written: a
     * state can change without a new round (the mean at the end of pairs). */
    uint64_t n_snapshots, saved_number;
};

/* Any thread. Nothing happens after machine_disconnect(). */
void machine_post(struct machine *m, const struct local_event *ev);

/* machine_config.c: runs on a worker, then machine_configured on the loop. */
void machine_configure_run(struct machine_job *j);
void machine_configured(struct machine *m, struct machine_job *j);
int machine_open_data(struct machine *m, char *errmsg);
/* machine_text.c. Into the terms: what shards are trained as. */
void machine_read_text(struct machine *m);
/* Shard i has come: the trainer gets it, if there is one. */
void machine_add_text(struct machine *m, uint32_t i);
/* Map the file at `path` and see that it is shard i. *leaves: hashes of its
 * pieces, for free(). LOCO_EHASH, LOCO_EFORMAT, LOCO_ENOMEM, those of file.h.
 */
int machine_shard_open(const struct machine *m,
                       uint32_t i,
                       const char *path,
                       struct shard *shard,
                       struct hash32 **leaves,
                       char *errmsg);

/* The round that an attempt is at. */
static inline uint64_t machine_round_of(uint64_t attempt)
{
    return attempt & 0xffffffff;
}

/* machine_wire.c: NULL where there is none, or no room. */
struct wire_slot *
machine_slot_find(struct machine *m, enum wire_use use, uint64_t key);
struct wire_slot *
machine_slot_for(struct machine *m, enum wire_use use, uint64_t key);
struct wire_slot *machine_slot_applied(struct machine *m,
                                       enum buffer_kind buffer,
                                       uint64_t round);
void machine_inherit(struct machine *m, const struct action *a);
/* The piece of the round in flight that `s` names will not change any more. */
void machine_final(struct machine *m, const struct segment *s);
/* Rounds are counted from elsewhere now: no attempt is known any more. */
void machine_leaves_stop(struct machine *m);

/* machine_hash.c */
void machine_hash(struct machine *m, const struct action *a);
void machine_hash_run(struct machine_job *j);
void machine_leaf(struct machine *m, struct wire_slot *slot, uint64_t piece);
void machine_leaf_run(struct machine_job *j);

/* machine_pieces.c */

/* Bytes of the leaf list that a segment names; 0: it names none. */
uint64_t machine_leaves_bytes(const struct machine *m, const struct segment *s);
int machine_fill_leaves(struct machine *m,
                        const struct segment *s,
                        uint8_t *dst);
int machine_take_leaves(struct machine *m,
                        const struct segment *s,
                        const uint8_t *src);
int machine_open_part(struct shard_file *f);
/* Memory behind a state that is fetched (state_in), as an earlier life left it.
 */
int machine_state_open(struct machine *m);
/* `used`: it was loaded, or is of no use. */
void machine_state_close(struct machine *m, bool used);
int machine_take_state(struct machine *m,
                       const struct segment *s,
                       const uint8_t *src);
void machine_verify(struct machine *m, const struct action *a);
void machine_verify_run(struct machine_job *j);
void machine_verified(struct machine *m, struct machine_job *j);
void machine_keep_leaves(struct machine *m, uint64_t index);

/* machine_urls.c */
/* Whether shard i can be had by URL. The manifest is there. */
bool machine_has_urls(const struct machine *m, uint32_t i);
void machine_download(struct machine *m, const struct action *a);
void machine_download_run(struct machine_job *j);
void machine_downloaded(struct machine *m, struct machine_job *j);

/* machine_disk.c: the run's terms are there. */
uint64_t machine_disk_need(const struct machine *m, unsigned keep);
/* LOCO_EDISK: more than this machine allows. */
int machine_disk_check(const struct machine *m, char *errmsg);
/* On a worker: what the state directory takes now. */
void machine_disk_measure(struct machine *m);

/* machine_past.c */
/* Take over what the trainer made since the last look. */
void machine_snapshots_collect(struct machine *m);
/* The state that a segment names. */
const struct snapshot *machine_snapshot(struct machine *m,
                                        const struct segment *s);
void machine_snapshots_free(struct machine *m);
/* One owner less; the last one's goes to the next that is made. Or NULL. */
void machine_snapshot_drop(struct machine *m, struct snapshot *s);
/* Write the reduced bytes of a round, and forget those too long ago. */
void machine_round_save(struct machine *m,
                        struct wire_slot *slot,
                        uint64_t round);
void machine_round_run(struct machine_job *j);
/* Some of them, from the file. */
int machine_round_fill(struct machine *m,
                       const struct segment *s,
                       uint8_t *dst);
/* machine_pair.c */
bool machine_is_pair(const struct segment *s);
int machine_pair_fill(struct machine *m, const struct segment *s, uint8_t *dst);
uint8_t *machine_pair_at(struct machine *m, const struct segment *s);
void machine_pair_hash(struct machine *m, const struct action *a);
void machine_pair_hash_run(struct machine_job *j);
void machine_pair_apply(struct machine *m, const struct action *a);

/* machine_config.c: what follows from replica.part. */
int machine_read_part(struct machine *m, char *errmsg);
/* Bytes that the machine takes for such a replica. */
uint64_t machine_replica_need(const struct machine *m,
                              const struct replica_options *r);

/* machine_stage.c */
uint64_t machine_stage_need(const struct machine *m, uint32_t stage);
/* STAGE, PIPE. */
void machine_stage_act(struct machine *m, const struct action *a);
void machine_stage_advance(struct machine *m);
bool machine_is_stage(const struct segment *s);
size_t machine_stage_len(const struct machine *m, const struct segment *s);
int machine_stage_fill(struct machine *m,
                       const struct segment *s,
                       uint8_t *dst);
int machine_stage_take(struct machine *m,
                       const struct segment *s,
                       const uint8_t *src);

/* machine_owners.c */
bool machine_owns(const struct machine *m);
/* How the run's parameters are cut. */
void machine_owners_terms(struct machine *m);
/* Bytes that slices of n parameters may take. */
uint64_t machine_owners_need(const struct machine *m, uint64_t n);
int machine_owners_open(struct machine *m);
void machine_owners_free(struct machine *m);
/* SLICE. */
void machine_slice(struct machine *m, const struct action *a);
void machine_slice_run(struct machine_job *j);
void machine_sliced(struct machine *m, struct machine_job *j);
size_t machine_slice_len(const struct machine *m, const struct segment *s);
int machine_slice_fill(struct machine *m,
                       const struct segment *s,
                       uint8_t *dst);
int machine_slice_take(struct machine *m,
                       const struct segment *s,
                       const uint8_t *src,
                       size_t len);

/* machine_marks.c */

/* On the worker that configures: what an earlier life wrote goes into the store
 * and the terms. */
void machine_marks_find(struct machine *m);
/* The next mark that waits, if none is being written. */
void machine_marks_advance(struct machine *m);
void machine_mark_run(struct machine_job *j);
void machine_mark_done(struct machine *m, struct machine_job *j);
/* What was read gets a number: the versions of its slices, for the checkpoint
 * of the snapshot with that number; NULL: not known. The trainer takes one
 * before there is a next. */
uint64_t machine_note_reading(struct machine *m);
const char *machine_reading(const struct machine *m, const struct snapshot *s);
/* Back from a checkpoint. */
void machine_restore_reading(struct machine *m);
uint64_t machine_marks_bytes(const struct machine *m);

/* machine_buffers.c */
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

/* machine.c */
#define MACHINE_TRAINER_NAME 24
/* What a checkpoint calls another trainer's anchor. */
void machine_trainer_name(char name[MACHINE_TRAINER_NAME], size_t trainer);
struct machine_job *machine_job_new(struct machine *m, int kind);
void machine_job_submit(struct machine *m, struct machine_job *j);
void machine_stop(struct machine *m, int exit_code);
/* 0; else the machine stops. */
int machine_start_trainer(struct machine *m);
/* The checkpoint that was found, to the trainer, as that of a round. */
void machine_restore(struct machine *m, uint64_t round);

#endif
