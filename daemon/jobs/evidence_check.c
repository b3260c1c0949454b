/* evidence_check.c - whether a file about a sum convicts: see evidence.h.
 *
 * The order is that of the file, from what names other parts to what is named:
 * the manifest gives the run, the view names the run, the plan the view, the
 * vote the plan and the result, the plan the offers. Hashes are made of the
 * bytes that stand in the file, so that no other spelling of a part passes.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/jobs/evidence_file.h"
#include "p2p/exchange/exchange.h"
#include "p2p/round/round.h"
#include "p2p/round/view.h"
#include "proto/base/bytes.h"
#include "proto/base/err.h"
#include "proto/base/errmsg.h"
#include "proto/blocks.h"
#include "proto/hash.h"

/* Bytes of the longest block. */
#define BLOCK_BYTES_MAX (CODEC_BLOCK_MAX * sizeof(float))

/* What the file says. */
struct trial {
    struct evidence_file file;
    struct view_body view;
    struct plan_body plan;
    struct vote vote;
    struct hash32 view_hash, plan_hash; /* of the parts above */
    struct run_vector vector;
    struct run_terms terms;
    uint64_t elements; /* of the vector of that round */
    uint32_t accused;
    struct evidence_place place;
    const uint8_t *said;                    /* the block in the result */
    const uint8_t *block[VIEW_MEMBERS_MAX]; /* the contributions */
    uint8_t sum[BLOCK_BYTES_MAX];
    float of_sum[CODEC_BLOCK_MAX], of_said[CODEC_BLOCK_MAX];
};

/* ---- what was signed ----------------------------------------------------- */

static int read_parts(struct trial *t)
{
    struct evidence_file *f = &t->file;
    int rv = evidence_read_start(f, EVIDENCE_MAGIC, EVIDENCE_VERSION);

    rv = rv != 0 ? rv
                 : evidence_read_part(f, &view_body_schema, "loco-view-1",
                                      &t->view, &t->view_hash);
    rv = rv != 0 ? rv
                 : evidence_read_part(f, &plan_body_schema, "loco-plan-1",
                                      &t->plan, &t->plan_hash);
    return rv != 0 ? rv
                   : evidence_read_part(f, &vote_schema, NULL, &t->vote, NULL);
}

/* Each part is the one that the next names. */
static int check_names(struct trial *t)
{
    const struct vote_body *vote = &t->vote.body;
    const struct plan_body *plan = &t->plan;

    if (!hash32_eq(&t->view.run, &t->file.run)) {
        return errmsg_fail(t->file.errmsg, LOCO_EHASH,
                           "the view is of another run than the manifest");
    }
    if (!hash32_eq(&plan->view, &t->view_hash) ||
        plan->epoch != t->view.epoch) {
        return errmsg_fail(t->file.errmsg, LOCO_EHASH,
                           "the plan is of another view than the one shown");
    }
    if (!hash32_eq(&vote->plan, &t->plan_hash) ||
        !hash32_eq(&vote->view, &t->view_hash) || vote->epoch != plan->epoch ||
        vote->round != plan->round) {
        return errmsg_fail(t->file.errmsg, LOCO_EHASH,
                           "the vote is for another plan than the one shown");
    }
    return 0;
}

/* Members of the plan: distinct ones of the view, with weights and shares. */
static int check_members(struct trial *t)
{
    const struct plan_body *p = &t->plan;
    uint64_t seen = 0;

    for (uint32_t k = 0; k < p->n_members; k++) {
        const struct plan_member *m = &p->members[k];

        if (m->index >= t->view.n_members || (seen >> m->index & 1) != 0 ||
            m->share > BUTTERFLY_SHARE_MAX || m->tokens > ROUND_TOKENS_MAX) {
            return evidence_malformed(
                &t->file, "the plan names a member that is none of the "
                          "view, or one twice, or no possible share");
        }
        seen |= 1ULL << m->index;
    }
    return p->round > 0 && p->n_members >= 2 && plan_tokens(p) > 0
               ? 0
               : evidence_malformed(
                     &t->file, "the plan is one in which nothing is summed");
}

static const struct view_member *member(const struct trial *t, uint32_t rank)
{
    return &t->view.members[t->plan.members[rank].index];
}

/* Who is accused, and that it voted so. */
static int read_accused(struct trial *t)
{
    const uint8_t *word = evidence_take(&t->file, 4);

    if (word == NULL) {
        return evidence_malformed(
            &t->file, "the file ends before it names who is accused");
    }
    t->accused = get_u32(word);
    if (t->accused >= t->plan.n_members) {
        return evidence_malformed(&t->file,
                                  "the accused has no part in the plan");
    }
    if (!message_verify(t->file.signer, member(t, t->accused)->public_key,
                        &vote_body_schema, &t->vote.body, t->vote.sig)) {
        return errmsg_fail(t->file.errmsg, LOCO_ESIG,
                           "the vote is not signed by the accused");
    }
    return 0;
}

/* ---- what was to be summed ----------------------------------------------- */

/* Whether owners of slices answer for sums in that round. */
static int check_run(struct trial *t)
{
    int rv = run_vector_terms(&t->vector, &t->file.manifest, &t->terms,
                              t->file.errmsg);

    if (rv != 0) {
        return rv;
    }
    if (!t->terms.audits || t->terms.exchange != EXCHANGE_BUTTERFLY) {
        return errmsg_invalid(t->file.errmsg, "the run has no audits of sums "
                                              "(sync.audit): no member of it "
                                              "answers for a sum");
    }
    if (t->plan.n_ranges > 0 || t->plan.n_rollback > 0 ||
        round_kind(&t->plan) != EXCHANGE_BUTTERFLY) {
        return errmsg_invalid(t->file.errmsg, "the plan takes over sums of an "
                                              "earlier one, or makes none: its "
                                              "members do not answer for them");
    }
    t->elements = terms_elements(&t->terms, t->plan.round);
    return 0;
}

/* Where the block lies, and that the accused owns it. */
static int read_place(struct trial *t)
{
    const struct plan_body *p = &t->plan;
    struct butterfly_shape shape = {
        .cut = {.elements = t->elements,
                .block = t->terms.block,
                .segment_elements = t->terms.segment_elements,
                .chunk_segments = t->terms.chunk_segments,
                .n = p->n_members}};
    const uint8_t *word = evidence_take(&t->file, 8);

    if (word == NULL) {
        return evidence_malformed(&t->file,
                                  "the file ends before it names the block");
    }
    if (evidence_place(t->vector.codec, t->terms.block, t->elements,
                       get_u64(word), &t->place) != 0) {
        return evidence_malformed(
            &t->file, "no block of the vector begins at that element");
    }
    for (uint32_t k = 0; k < p->n_members; k++) {
        shape.share[k] = p->members[k].share;
    }
    if (butterfly_owner(&shape, t->place.at) != t->accused) {
        return errmsg_invalid(t->file.errmsg,
                              "the accused does not own the block "
                              "that is shown");
    }
    return 0;
}

/* The block in the result that the accused voted for. */
static int read_result(struct trial *t)
{
    const struct evidence_place *p = &t->place;
    const uint8_t *pieces = evidence_take(&t->file, p->pieces_bytes);
    const uint8_t *proof = evidence_take(&t->file, p->pieces_proof_bytes);
    struct hash32 leaves[2], root;

    if (pieces == NULL || proof == NULL) {
        return evidence_malformed(
            &t->file, "the file ends within the pieces of the result");
    }
    for (uint64_t i = 0; i < p->end - p->piece; i++) {
        uint64_t at = i * HASH_PIECE_BYTES;
        uint64_t n = p->pieces_bytes - at;

        hash_tree_leaf(pieces + at, n < HASH_PIECE_BYTES ? n : HASH_PIECE_BYTES,
                       &leaves[i]);
    }
    blocks_root(leaves, p->n_pieces, p->piece, p->end, proof, &root);
    if (!hash32_eq(&root, &t->vote.body.result)) {
        return errmsg_fail(t->file.errmsg, LOCO_EHASH,
                           "the pieces are not of the result that the accused "
                           "voted for");
    }
    t->said = pieces + p->begin;
    return 0;
}

/* The blocks that the offers in the plan have there. */
static int read_blocks(struct trial *t)
{
    const struct evidence_place *p = &t->place;

    for (uint32_t k = 0; k < t->plan.n_members; k++) {
        const struct peer_id id = view_member_id(member(t, k));
        const uint8_t *block = evidence_take(&t->file, p->bytes);
        const uint8_t *proof = evidence_take(&t->file, p->proof_bytes);
        struct hash32 leaf, root, offer;

        if (block == NULL || proof == NULL) {
            return evidence_malformed(&t->file,
                                      "the file ends within the contributions");
        }
        hash_tree_leaf(block, p->bytes, &leaf);
        blocks_root(&leaf, p->n_blocks, p->block, p->block + 1, proof, &root);
        blocks_offer(&id, t->plan.round, &root, &offer);
        if (!hash32_eq(&offer, &t->plan.members[k].offer)) {
            return errmsg_fail(t->file.errmsg, LOCO_EHASH,
                               "the contribution of member %u of the plan is "
                               "not the one that it offered",
                               k);
        }
        t->block[k] = block;
    }
    return t->file.left == 0
               ? 0
               : evidence_malformed(&t->file, "bytes follow the end");
}

/* ---- the verdict --------------------------------------------------------- */

/* The sum that an honest owner makes; its error where there is none. */
static int make_sum(struct trial *t)
{
    const struct plan_body *p = &t->plan;
    double total = (double)plan_tokens(p);
    float scale[VIEW_MEMBERS_MAX];
    struct codec_sum s = {
        .terms = t->block,
        .scale = scale,
        .n_terms = p->n_members,
        .n = t->place.elements,
        .clip = t->vector.clip,
        .centred = t->vector.centred,
    };

    for (uint32_t k = 0; k < p->n_members; k++) {
        scale[k] = (float)((double)p->members[k].tokens / total);
    }
    return t->vector.codec->sum(t->sum, &s);
}

/* How far the result is from the sum. */
static void compare(struct trial *t, struct evidence_verdict *v)
{
    const struct codec *c = t->vector.codec;
    uint32_t n = t->place.elements;

    v->finding = EVIDENCE_DIFFERS;
    if (c->decode(t->of_said, t->said, n) != 0 ||
        c->decode(t->of_sum, t->sum, n) != 0) {
        v->finding = EVIDENCE_NO_NUMBERS;
        return;
    }
    for (uint32_t i = 0; i < n; i++) {
        double far = fabs((double)t->of_said[i] - (double)t->of_sum[i]);

        v->n_differ += far > 0 ? 1 : 0;
        v->largest = far > v->largest ? far : v->largest;
    }
}

static int judge(struct trial *t, struct evidence_verdict *v)
{
    *v = (struct evidence_verdict){
        .run = t->file.run,
        .round = t->plan.round,
        .epoch = t->plan.epoch,
        .accused = view_member_id(member(t, t->accused)),
        .n_members = t->plan.n_members,
        .first = t->place.at,
        .end = t->place.at + t->place.elements,
    };
    if (make_sum(t) != 0) {
        v->finding = EVIDENCE_NO_SUM;
        return 0;
    }
    if (memcmp(t->sum, t->said, t->place.bytes) == 0) {
        *v = (struct evidence_verdict){0};
        return errmsg_invalid(t->file.errmsg,
                              "the sum is right: this convicts nobody");
    }
    compare(t, v);
    return 0;
}

static int check_sum(struct trial *t, struct evidence_verdict *verdict)
{
    int rv = read_parts(t);

    rv = rv != 0 ? rv : check_names(t);
    rv = rv != 0 ? rv : check_members(t);
    rv = rv != 0 ? rv : read_accused(t);
    rv = rv != 0 ? rv : check_run(t);
    rv = rv != 0 ? rv : read_place(t);
    rv = rv != 0 ? rv : read_result(t);
    rv = rv != 0 ? rv : read_blocks(t);
    rv = rv != 0 ? rv : judge(t, verdict);
    return rv;
}

static bool is_of_work(const uint8_t *bytes, size_t len)
{
    const size_t n = sizeof EVIDENCE_WORK_MAGIC - 1;

    return len >= n && memcmp(bytes, EVIDENCE_WORK_MAGIC, n) == 0;
}

int evidence_check(const uint8_t *bytes,
                   size_t len,
                   const struct signer *signer,
                   struct evidence_verdict *verdict,
                   char *errmsg)
{
    struct trial *t = calloc(1, sizeof *t);
    int rv;

    if (t == NULL) {
        return errmsg_fail(errmsg, LOCO_ENOMEM, "out of memory");
    }
    t->file.at = bytes;
    t->file.left = len;
    t->file.signer = signer;
    t->file.errmsg = errmsg;
    rv = is_of_work(bytes, len) ? evidence_check_work(&t->file, verdict)
                                : check_sum(t, verdict);
    free(t);
    return rv;
}
