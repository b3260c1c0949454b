/* slice_store.h - the slices of the parameters that a member holds, and what
 * comes and goes of them: the machine's side of ACTION_SLICE (p2p/core.h), in
 * real numbers. What an arrival does to a slice is train/sync/slices.h; who
 * owns what and when is p2p/owners.h.
 *
 * A *slot* has what was received, a *give* what is being sent, the *reading* is
 * all slices as they were read last. Memory: 12 bytes an element of each slice
 * that is held; of every slot and of each give that was used, one slice as it
 * goes over the wire; 4 bytes of every parameter; of each mark that waits for
 * the disk 12 bytes an element.
 *
 * Jobs (slice_store_run) are done one after the other, in the order of the
 * actions. Segments may come and go meanwhile, from one other thread: no slot
 * is written while a job on it is under way (node_owners_move.c). Only a give
 * that was given away may still be read: a lock says for whom it is, and is
 * held while a segment is copied, not while a job makes the bytes.
 *
 * How it fails: LOCO_ENOENT, what is named is not here; LOCO_ERANGE,
 * LOCO_EPROTO, a segment that does not fit; LOCO_ENUMERIC, no numbers, or a
 * step that is not finite; LOCO_ENOMEM. A job that failed leaves held slices as
 * they were, but for a step.
 */
#ifndef LOCO_DAEMON_SLICE_STORE_H
#define LOCO_DAEMON_SLICE_STORE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "p2p/core.h"
#include "train/sync/codec.h"
#include "train/sync/method.h"

#define SLICE_GIVES_MAX 32 /* at a time; as node_owners.h has it */

struct slice_store_options {
    uint64_t n;     /* parameters */
    uint32_t count; /* slices */
    uint64_t each;  /* elements of all but the last; whole blocks */
    const struct codec *codec;
    const struct method *method; /* borrowed */
    /* The parameters that the run begins with: elements [at, at + len). 0, or
     * LOCO_ENOMEM. */
    void *self;
    int (*initial)(void *self, uint64_t at, uint64_t len, float *out);
};

struct slice_store;

/* Memory that slices of `each` of n parameters may take: whoever is alone owns
 * everything. */
static inline uint64_t slice_store_most(uint64_t n, uint64_t each)
{
    uint64_t travels = (STREAM_SLOTS + SLICE_GIVES_MAX) * 3 * each;
    uint64_t held = 3 * n, marks = 3 * n;

    return (held + marks + n + each + travels) * sizeof(float);
}

int slice_store_open(struct slice_store **store,
                     const struct slice_store_options *opt);
void slice_store_close(struct slice_store *s);

/* Elements of a slice. */
uint64_t slice_store_len(const struct slice_store *s, uint32_t slice);

/* Whether a segment is one of slices, and its bytes. */
bool slice_store_is(const struct segment *seg);
size_t slice_store_wire_len(const struct slice_store *s,
                            const struct segment *seg);
int slice_store_fill(struct slice_store *s,
                     const struct segment *seg,
                     uint8_t *dst);
int slice_store_take(struct slice_store *s,
                     const struct segment *seg,
                     const uint8_t *src,
                     size_t len);

/* One job, but READ, which is the trainer's. contribution (n): what the own
 * task has packed. */
int slice_store_run(struct slice_store *s,
                    const struct action *a,
                    const float *contribution);

/* ---- the disk --------------------------------------------------------- */

/* A state and its version, to be written: the caller's, for free(v). */
struct slice_mark {
    uint32_t slice;
    struct slice_version at;
    float *v; /* (3, len) parameters, momentum, sum */
};

/* The next slice in turn whose newest mark (SLICE_MARK) was not taken yet. Any
 * thread. */
bool slice_store_next_mark(struct slice_store *s, struct slice_mark *mark);

/* Before any job: what an earlier life had. LOCO_ENOMEM. */
int slice_store_put(struct slice_store *s,
                    uint32_t slice,
                    const float *phi,
                    const float *m,
                    const float *sum);
void slice_store_put_reading(struct slice_store *s, const float *phi);

/* Versions of the reading, by slice; not while a KEEP may be under way. */
const struct slice_version *slice_store_seen(const struct slice_store *s);

/* (n) */
const float *slice_store_reading(const struct slice_store *s);
/* (3, len) parameters, momentum, sum; NULL: not held. */
const float *slice_store_held(const struct slice_store *s, uint32_t slice);
/* As they came into a slot, or go out of a give. */
const uint8_t *slice_store_slot(const struct slice_store *s, uint32_t slot);
const uint8_t *slice_store_given(const struct slice_store *s, uint32_t give);

/* These parameters as they come out of the wire type of readings. */
int slice_store_as_read(const struct slice_store *s,
                        const float *phi,
                        uint64_t n,
                        float *out);

#endif
