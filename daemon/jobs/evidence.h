/* evidence.h - what convicts a member, as a file: a wrong sum, or bad work.
 *
 * *A sum.*
 * In a butterfly the owner of a slice adds up the contributions of all members
 * (p2p/exchange/butterfly.h) and signs the result of the round with its vote.
 * What it had to add up was fixed before: the plan, which the vote names, has
 * the offer of each member (proto/blocks.h). So these bytes convict it, before
 * anybody and without a network:
 *
 *     "LOCOEVID", u32 version
 *     four sections of u32 length and bytes: the run's manifest (wire form),
 *         the view_body, the plan_body, the vote of the accused
 *     u32 accused: its rank in the plan; u64 at: the first element of a block
 *     the piece of the encoded result that has the block, or the two, and their
 *         proof in the tree of the result
 *     of each member of the plan in order: its encoded block, and the proof in
 *         the tree of its offer
 *
 * All numbers are little-endian. What is not given a length has the one that
 * follows from what stands before it, and nothing stands behind the end. A vote
 * holds all bytes of a file together: whoever changes one has to make another
 * signature of the accused. PROTOCOL.md has the same for other programs.
 *
 * What it does not prove: that the accused meant it. A processor that adds
 * wrongly is convicted, too.
 *
 * *Work.* More than half of the full members of a view made it again and signed
 * that it is bad, and the accused voted for that commit in that view
 * (p2p/round/conviction.h has what this proves, and what it does not):
 *
 *     "LOCOWORK", u32 version
 *     two sections: the manifest, the conviction
 *
 * Pure. A check takes about 1 MB of memory for its time, and as long as
 * hashing the file; LOCO_ENOMEM. All other refusals have a sentence and one of
 * LOCO_EFORMAT (no such file), LOCO_ESIG, LOCO_EHASH (a proof of something
 * else) and LOCO_EINVAL (it convicts nobody).
 */
#ifndef LOCO_DAEMON_JOBS_EVIDENCE_H
#define LOCO_DAEMON_JOBS_EVIDENCE_H

#include <stddef.h>
#include <stdint.h>

#include "daemon/jobs/run_vector.h"
#include "proto/messages.h"

#define EVIDENCE_MAGIC "LOCOEVID" /* 8 bytes, without the final zero */
/* It changes with the form of a plan, which the file holds. */
#define EVIDENCE_VERSION    2U
#define EVIDENCE_WORK_MAGIC "LOCOWORK"
/* It changes with the form of a view or a vote. */
#define EVIDENCE_WORK_VERSION 1U

/* ---- where a block lies -------------------------------------------------- */

/* Of an encoded vector: a block, its tree of blocks, the pieces that have it.
 */
struct evidence_place {
    uint64_t n_blocks, block; /* of the vector; this one's number */
    uint64_t at;              /* its first element */
    uint32_t elements, bytes; /* of the block, encoded */
    uint32_t proof_bytes;     /* of it in the tree of blocks */
    uint64_t n_pieces;        /* of the vector's tree hash */
    uint64_t piece, end;      /* pieces [piece, end) have the block */
    uint64_t pieces_at;       /* their first byte in the encoded vector */
    uint32_t pieces_bytes, pieces_proof_bytes;
    uint32_t begin; /* of the block in them, bytes */
};

/* The block that begins at element `at` of a vector of `elements`, which is cut
 * in blocks of `block` (run_terms.block). LOCO_ERANGE: none begins there. */
int evidence_place(const struct codec *codec,
                   uint32_t block,
                   uint64_t elements,
                   uint64_t at,
                   struct evidence_place *p);

/* ---- writing ------------------------------------------------------------- */

/* What goes into a file; everything is borrowed for the call. */
struct evidence {
    const uint8_t *manifest; /* wire form */
    size_t n_manifest;
    const struct view_body *view;
    const struct plan_body *plan;
    const struct vote *vote;     /* of the accused */
    uint32_t accused;            /* its rank in the plan */
    const uint8_t *pieces;       /* (pieces_bytes) of the result, encoded */
    const uint8_t *pieces_proof; /* (pieces_proof_bytes) */
    const uint8_t *block[VIEW_MEMBERS_MAX]; /* (bytes) by rank */
    const uint8_t *proof[VIEW_MEMBERS_MAX]; /* (proof_bytes) by rank */
};

/* The file into memory that the caller frees. Nothing is checked: who writes
 * one does evidence_check() first with what came out. LOCO_ENOMEM. */
int evidence_write(const struct evidence *e,
                   const struct evidence_place *p,
                   uint8_t **bytes,
                   size_t *len);

/* The same of bad work. `conviction`: its encoding (conviction_schema). */
int evidence_write_work(const uint8_t *manifest,
                        size_t n_manifest,
                        const uint8_t *conviction,
                        size_t n_conviction,
                        uint8_t **bytes,
                        size_t *len);

/* ---- checking ------------------------------------------------------------ */

enum evidence_finding {
    EVIDENCE_DIFFERS, /* the result is not the sum */
    EVIDENCE_NO_SUM,  /* there is none: a contribution does not decode, or the
                         sum is not finite; an honest owner votes for none */
    EVIDENCE_NO_NUMBERS, /* the result does not decode */
    EVIDENCE_BAD_WORK    /* of most who made it again; about no sum */
};

/* Who lied about what, in which round. */
struct evidence_verdict {
    struct hash32 run;
    uint64_t round, epoch;
    struct peer_id accused;
    uint32_t n_members;  /* of the plan; BAD_WORK: full ones of the view */
    uint64_t first, end; /* elements of the block; BAD_WORK: 0 */
    enum evidence_finding finding;
    uint32_t n_words; /* BAD_WORK: so many of them say so.. */
    struct peer_id member[VIEW_MEMBERS_MAX]; /* ..of these n_members */
    uint32_t n_differ; /* DIFFERS: elements, decoded; 0: only bytes differ */
    double largest;    /* DIFFERS: difference of two decoded elements */
};

/* 0 only where the file convicts; then *verdict is filled. `signer` verifies.
 * errmsg: ERRMSG_SIZE bytes or NULL. */
int evidence_check(const uint8_t *bytes,
                   size_t len,
                   const struct signer *signer,
                   struct evidence_verdict *verdict,
                   char *errmsg);

#endif
