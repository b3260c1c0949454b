/* evidence.c - what convicts a member is written down, so that anybody can
 * check it, and this peer knows it after a restart.
 *
 * evidence/ID.evidence in the state directory about a wrong sum, and
 * ID.work.evidence about bad work, the first one against that peer; the file
 * says all that is to be said (daemon/jobs/evidence.h). A worker makes it,
 * because the proof of a piece takes a hash of the whole result, and all
 * signatures are checked before it is kept: one that convicts nobody is a
 * defect here, and is not written.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "daemon/jobs/evidence.h"
#include "daemon/machine/internal.h"
#include "daemon/settings/state_dir.h"
#include "proto/base/err.h"
#include "proto/base/file.h"
#include "proto/base/log.h"
#include "proto/blocks.h"
#include "proto/hash.h"

#define NAME_MAX_BYTES (ID_HEX_MAX + 16)

/* What is written down: copies, but for the result. */
struct evidence_job {
    struct machine_job job;
    uint64_t round;
    struct wire_slot *slot; /* pinned: has the result; NULL: a file has it */
    struct file_map file;
    const uint8_t *result;
    struct evidence_place place;
    struct evidence e;
    struct view_body view;
    struct plan_body plan;
    struct vote vote;
    uint8_t *lanes; /* blocks with their proofs, by rank */
    size_t lane_bytes;
    uint8_t *conviction; /* of bad work, encoded; NULL: it is about a sum */
    size_t n_conviction;
    struct evidence_verdict verdict;
};

/* The proof of the pieces that hold the block; for free(). */
static uint8_t *prove_pieces(const struct evidence_job *j)
{
    const struct machine *m = j->job.m;
    const struct evidence_place *p = &j->place;
    uint64_t all = m->codec->bytes(terms_elements(&m->terms, j->round));
    struct hash32 *nodes = calloc(blocks_nodes(p->n_pieces), sizeof *nodes);
    uint8_t *proof = malloc(p->pieces_proof_bytes + 1U);

    for (uint64_t i = 0; nodes != NULL && i < p->n_pieces; i++) {
        uint64_t at = i * HASH_PIECE_BYTES;
        uint64_t n = all - at < HASH_PIECE_BYTES ? all - at : HASH_PIECE_BYTES;

        hash_tree_leaf(j->result + at, (size_t)n, &nodes[i]);
    }
    if (nodes != NULL && proof != NULL) {
        blocks_build(nodes, p->n_pieces);
        blocks_prove(nodes, p->n_pieces, p->piece, p->end, proof);
    } else {
        free(proof);
        proof = NULL;
    }
    free(nodes);
    return proof;
}

/* The file about a sum, once the manifest is here. */
static int write_sum(struct evidence_job *j, uint8_t **bytes, size_t *len)
{
    uint8_t *proof = prove_pieces(j);
    int rv = LOCO_ENOMEM;

    if (proof != NULL) {
        j->e.pieces = j->result + j->place.pieces_at;
        j->e.pieces_proof = proof;
        rv = evidence_write(&j->e, &j->place, bytes, len);
    }
    free(proof);
    return rv;
}

/* The bytes of the file; for free(). */
static int make_file(struct evidence_job *j, uint8_t **bytes, size_t *len)
{
    const struct machine *m = j->job.m;
    struct signer signer = signer_sodium(NULL);
    char path[MACHINE_PATH_MAX], *manifest = NULL;
    int rv = file_path_join(path, m->opt.state_dir, STATE_DIR_MANIFEST,
                            j->job.errmsg);

    *bytes = NULL;
    rv = rv != 0 ? rv
                 : file_read_whole(path, MANIFEST_BYTES_MAX, &manifest,
                                   &j->e.n_manifest, j->job.errmsg);
    j->e.manifest = (const uint8_t *)manifest;
    if (rv == 0) {
        rv = j->conviction == NULL
                 ? write_sum(j, bytes, len)
                 : evidence_write_work(j->e.manifest, j->e.n_manifest,
                                       j->conviction, j->n_conviction, bytes,
                                       len);
    }
    rv = rv != 0 ? rv
                 : evidence_check(*bytes, *len, &signer, &j->verdict,
                                  j->job.errmsg);
    free(manifest);
    return rv;
}

/* Of the file in the folder. */
static void name_of(const struct evidence_job *j, char name[NAME_MAX_BYTES])
{
    char id[ID_HEX_MAX];

    id_hex(&j->verdict.accused, id);
    (void)snprintf(name, NAME_MAX_BYTES, "%s%s.evidence", id,
                   j->conviction == NULL ? "" : ".work");
}

static int keep_file(struct evidence_job *j, const uint8_t *bytes, size_t len)
{
    char dir[MACHINE_PATH_MAX], path[MACHINE_PATH_MAX], name[NAME_MAX_BYTES];
    int rv = file_path_join(dir, j->job.m->opt.state_dir, STATE_DIR_EVIDENCE,
                            j->job.errmsg);

    if (rv == 0 && mkdir(dir, 0755) != 0 && errno != EEXIST) {
        (void)snprintf(j->job.errmsg, sizeof j->job.errmsg,
                       "cannot make %.180s: %s", dir, strerror(errno));
        return LOCO_EIO;
    }
    name_of(j, name);
    rv = rv == 0 ? file_path_join(path, dir, name, j->job.errmsg) : rv;
    return rv == 0 ? file_write_whole(path, bytes, len, j->job.errmsg) : rv;
}

/* Where the result is. */
static int find_result(struct evidence_job *j)
{
    const struct machine *m = j->job.m;
    uint64_t all = m->codec->bytes(terms_elements(&m->terms, j->round));
    char path[MACHINE_PATH_MAX];
    int rv;

    if (j->conviction != NULL) {
        return 0; /* it is about none */
    }
    if (j->slot != NULL) {
        j->result = j->slot->bytes;
        return 0;
    }
    rv = machine_round_path(m, j->round, path)
             ? file_map_open(&j->file, path, j->job.errmsg)
             : LOCO_ENOENT;
    j->result = j->file.data;
    return rv == 0 && j->file.size != all ? LOCO_ENOENT : rv;
}

static void evidence_run(struct machine_job *job)
{
    struct evidence_job *j = (struct evidence_job *)job;
    uint8_t *bytes = NULL;
    size_t len = 0;

    job->rc = find_result(j);
    job->rc = job->rc == 0 ? make_file(j, &bytes, &len) : job->rc;
    if (job->rc == 0) {
        job->rc = keep_file(j, bytes, len);
    }
    free(bytes);
}

static void evidence_done(struct machine_job *job, int status)
{
    struct evidence_job *j = (struct evidence_job *)job;
    char name[NAME_MAX_BYTES];

    if (status == 0 && job->rc != 0) {
        log_warn("state",
                 "the evidence about round %" PRIu64 " was not written: %s",
                 j->round,
                 job->errmsg[0] != '\0' ? job->errmsg : loco_strerror(job->rc));
    } else if (status == 0) {
        name_of(j, name);
        log_info("state",
                 "what convicts it is in %s/%s; loco verify --evidence FILE "
                 "checks it",
                 STATE_DIR_EVIDENCE, name);
    }
    free(j->conviction);
    free(j->lanes);
    file_map_close(&j->file);
    if (j->slot != NULL) {
        j->slot->pins--;
    }
}

static const struct job_kind evidence_kind = {
    .size = sizeof(struct evidence_job),
    .pool = POOL_DISK,
    .run = evidence_run,
    .done = evidence_done,
};

/* What members sent, out of the room. */
static int copy_lanes(struct machine *m, struct evidence_job *j)
{
    const struct audit_room *room = &m->wire.audit;
    uint32_t n = j->plan.n_members;

    j->lane_bytes = (size_t)j->place.bytes + j->place.proof_bytes;
    j->lanes = malloc(j->lane_bytes * n);
    if (j->lanes == NULL || n > VIEW_MEMBERS_MAX) {
        return LOCO_ENOMEM;
    }
    for (uint32_t k = 0; k < n; k++) {
        const uint8_t *from = audit_room_at(room, j->round, j->place.at, k);
        uint8_t *to = j->lanes + k * j->lane_bytes;

        if (from == NULL || room->lane_bytes != j->lane_bytes) {
            return LOCO_ENOENT;
        }
        memcpy(to, from, j->lane_bytes);
        j->e.block[k] = to;
        j->e.proof[k] = to + j->place.bytes;
    }
    return 0;
}

static int decode(const struct msg_schema *schema,
                  const struct out *out,
                  const struct out_span *span,
                  void *message)
{
    return span->len == 0
               ? LOCO_EINVAL
               : msg_decode(schema, out->bytes + span->at, span->len, message);
}

/* What the node says of it, and the block. */
static int fill_sum(struct machine *m,
                    struct evidence_job *j,
                    const struct job_evidence *what,
                    const struct out *out)
{
    int rv = decode(&view_body_schema, out, &what->view, &j->view);

    rv = rv != 0 ? rv : decode(&plan_body_schema, out, &what->plan, &j->plan);
    rv = rv != 0 ? rv : decode(&vote_schema, out, &what->vote, &j->vote);
    rv = rv != 0 ? rv
                 : evidence_place(m->codec, m->terms.block,
                                  terms_elements(&m->terms, what->round),
                                  what->offset, &j->place);
    j->round = what->round;
    j->e.view = &j->view;
    j->e.plan = &j->plan;
    j->e.vote = &j->vote;
    j->e.accused = what->accused;
    return rv != 0 ? rv : copy_lanes(m, j);
}

static int fill_work(struct evidence_job *j,
                     const struct job_evidence *what,
                     const struct out *out)
{
    j->round = what->round;
    j->n_conviction = what->conviction.len;
    j->conviction = malloc(j->n_conviction);
    if (j->conviction == NULL) {
        return LOCO_ENOMEM;
    }
    memcpy(j->conviction, out->bytes + what->conviction.at, j->n_conviction);
    return 0;
}

static int fill(struct machine *m,
                struct evidence_job *j,
                const struct job_evidence *what,
                const struct out *out)
{
    return what->conviction.len > 0 ? fill_work(j, what, out)
                                    : fill_sum(m, j, what, out);
}

int machine_evidence(struct machine *m,
                     const struct job *job,
                     const struct out *out)
{
    struct wire_slot *slot =
        wire_slots_find(&m->wire.slots, WIRE_REDUCED, job->evidence.round);
    struct evidence_job *j = machine_job_new(m, &evidence_kind, NULL);
    int rv = j == NULL ? LOCO_ENOMEM : 0;

    rv = rv != 0 ? rv : fill(m, j, &job->evidence, out);
    if (rv != 0) {
        log_warn("state",
                 "the evidence about round %" PRIu64 " cannot be written: %s",
                 job->evidence.round, loco_strerror(rv));
        if (j != NULL) {
            free(j->conviction);
            free(j->lanes);
        }
        free(j);
        return 0; /* nobody waits for it */
    }
    j->slot = j->conviction == NULL ? slot : NULL;
    if (j->slot != NULL) {
        slot->pins++;
    }
    machine_job_submit(&j->job);
    return 0;
}
