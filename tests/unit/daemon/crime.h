/* crime.h - a round of four members, of whom one may lie about a sum, and the
 * file of evidence that is made of it: for the tests of evidence.
 *
 * The members have keys of their own, their contributions are made by the run's
 * codec, and the plan, the offers and the votes are what members say in a
 * round. A test changes a part and makes the rest anew from there:
 *     manifest -> crime_begin() -> given -> crime_sum() -> result -> plan ->
 *     crime_seal() -> crime_vote() -> crime_file()
 * What cannot be made is an abort. Everything is static in this header: each
 * test is one file.
 */
#ifndef LOCO_TESTS_UNIT_DAEMON_CRIME_H
#define LOCO_TESTS_UNIT_DAEMON_CRIME_H

#include <stdlib.h>
#include <string.h>

#include "daemon/jobs/evidence.h"
#include "daemon/settings/method_manifest.h"
#include "p2p/round/view.h"
#include "proto/base/errmsg.h"
#include "proto/base/rng.h"
#include "proto/blocks.h"
#include "proto/hash.h"
#include "tests/unit/proto/example.h"

#define CRIME_MEMBERS 4U
#define CRIME_ROUND   12U
#define CRIME_EPOCH   3U

struct crime {
    struct identity author, who[CRIME_MEMBERS]; /* sorted by id */
    struct signer pen[CRIME_MEMBERS];           /* the same */
    struct signer verifier;
    struct manifest manifest;
    uint8_t wire[MANIFEST_WIRE_MAX]; /* the manifest */
    size_t n_wire;
    struct hash32 run;
    struct run_vector vector;
    struct run_terms terms;
    uint64_t elements, n_blocks, n_pieces;
    size_t bytes;                        /* of the encoded vector */
    uint8_t *given[CRIME_MEMBERS];       /* contributions, by rank */
    struct hash32 *trees[CRIME_MEMBERS]; /* of their blocks */
    uint8_t *result;
    struct hash32 *tree; /* of its pieces */
    struct view_body view;
    struct plan_body plan;
    struct vote vote;
};

static inline void crime_need(bool ok)
{
    if (!ok) {
        abort();
    }
}

static inline void *crime_room(size_t n)
{
    void *p = calloc(1, n);

    crime_need(p != NULL);
    return p;
}

/* A small model that is trained with audits; `robust` is "" for no clip. */
static inline void
crime_manifest(struct manifest *m, const char *wire, const char *robust)
{
    const struct preset *preset;

    example_manifest(m);
    crime_need(preset_find("opendiloco", &preset, NULL) == 0);
    manifest_from_preset(m, preset);
    m->model.dim = 16;
    m->model.ffn = 32;
    m->model.layers = 1;
    m->model.heads = m->model.kv_heads = 2;
    (void)snprintf(m->sync.wire, sizeof m->sync.wire, "%s", wire);
    m->sync.error_feedback = strcmp(wire, "sparse") == 0;
    (void)snprintf(m->sync.topology, sizeof m->sync.topology, "butterfly");
    (void)snprintf(m->sync.audit, sizeof m->sync.audit, "sums");
    (void)snprintf(m->sync.robust, sizeof m->sync.robust, "%s", robust);
    m->sync.norm_clip = robust[0] == '\0' ? 0 : 1.5;
}

/* The manifest is signed, by the author or by somebody else in its name. */
static inline void crime_sign(struct crime *c, const struct identity *by)
{
    struct signer pen = signer_sodium(by);
    uint8_t sig[SIGN_BYTES];
    int n;

    crime_need(manifest_sign(&c->manifest, &pen, sig) == 0);
    n = manifest_pack(&c->manifest, sig, c->wire, sizeof c->wire);
    crime_need(n > 0 && manifest_run_id(&c->manifest, &c->run) == 0);
    c->n_wire = (size_t)n;
}

static inline int crime_by_id(const void *a, const void *b)
{
    const struct identity *x = a, *y = b;

    return id_cmp(&x->id, &y->id);
}

static inline void crime_members(struct crime *c)
{
    uint8_t seed[SIGN_SEED_BYTES] = {9};

    crime_need(identity_generate(&c->author, seed) == 0);
    for (uint32_t i = 0; i < CRIME_MEMBERS; i++) {
        seed[1] = (uint8_t)(i + 1);
        crime_need(identity_generate(&c->who[i], seed) == 0);
    }
    qsort(c->who, CRIME_MEMBERS, sizeof c->who[0], crime_by_id);
    for (uint32_t i = 0; i < CRIME_MEMBERS; i++) {
        c->pen[i] = signer_sodium(&c->who[i]);
    }
    c->verifier = signer_sodium(NULL);
}

/* A run with audits of work, and no round of it: what dispute.h is about. */
static inline void crime_of_work(struct crime *c, const char *audit)
{
    crime_members(c);
    crime_manifest(&c->manifest, "e3m0", "centred");
    (void)snprintf(c->manifest.sync.audit, sizeof c->manifest.sync.audit, "%s",
                   audit);
    crime_sign(c, &c->author);
}

/* Ranks are not indices, weights and slices are not equal, and one member has
 * no weight. */
static inline void crime_plan(struct crime *c)
{
    static const uint8_t index[CRIME_MEMBERS] = {2, 0, 3, 1};
    static const uint64_t tokens[CRIME_MEMBERS] = {1000, 3000, 0, 2000};
    static const uint32_t share[CRIME_MEMBERS] = {20000, 10000, 20000, 15000};

    c->view.run = c->run;
    c->view.epoch = c->plan.epoch = CRIME_EPOCH;
    c->view.round = CRIME_ROUND - 1;
    c->plan.round = CRIME_ROUND;
    c->view.n_members = c->plan.n_members = CRIME_MEMBERS;
    for (uint32_t i = 0; i < CRIME_MEMBERS; i++) {
        memcpy(c->view.members[i].public_key, c->who[i].public, 32);
        c->plan.members[i] = (struct plan_member){
            .index = index[i], .tokens = tokens[i], .share = share[i]};
    }
}

/* The member that has that rank. */
static inline uint32_t crime_index(const struct crime *c, uint32_t rank)
{
    return c->plan.members[rank].index;
}

/* Contributions of the members, made of a seed. */
static inline void crime_give(struct crime *c)
{
    float *own = crime_room(c->elements * sizeof *own);
    uint64_t rng = 7;

    for (uint32_t k = 0; k < CRIME_MEMBERS; k++) {
        for (uint64_t i = 0; i < c->elements; i++) {
            own[i] =
                ((float)rng_below(&rng, 2001) - 1000) * 1e-5F * (float)(k + 1);
        }
        crime_need(c->vector.codec->encode(c->given[k], own, c->elements, 1) ==
                   0);
    }
    free(own);
}

/* What honest owners make of what is given; false: there is no sum. */
static inline bool crime_sum(struct crime *c)
{
    const uint8_t *terms[CRIME_MEMBERS];
    float scale[CRIME_MEMBERS];
    struct codec_sum s = {.terms = terms,
                          .scale = scale,
                          .n_terms = CRIME_MEMBERS,
                          .n = c->elements,
                          .clip = c->vector.clip,
                          .centred = c->vector.centred};
    double total = 0;

    for (uint32_t k = 0; k < CRIME_MEMBERS; k++) {
        total += (double)c->plan.members[k].tokens;
    }
    for (uint32_t k = 0; k < CRIME_MEMBERS; k++) {
        terms[k] = c->given[k];
        scale[k] = (float)((double)c->plan.members[k].tokens / total);
    }
    return c->vector.codec->sum(c->result, &s) == 0;
}

/* An honest round up to its result. */
static inline void crime_begin(struct crime *c)
{
    crime_sign(c, &c->author);
    crime_need(run_vector_terms(&c->vector, &c->manifest, &c->terms, NULL) ==
               0);
    c->elements = terms_elements(&c->terms, CRIME_ROUND);
    c->n_blocks = (c->elements + c->terms.block - 1) / c->terms.block;
    c->bytes = c->vector.codec->bytes(c->elements);
    c->n_pieces = hash_tree_pieces(c->bytes);
    for (uint32_t k = 0; k < CRIME_MEMBERS; k++) {
        c->given[k] = crime_room(c->bytes);
        c->trees[k] =
            crime_room(blocks_nodes(c->n_blocks) * sizeof *c->trees[k]);
    }
    c->result = crime_room(c->bytes);
    c->tree = crime_room(blocks_nodes(c->n_pieces) * sizeof *c->tree);
    crime_plan(c);
    crime_give(c);
    crime_need(crime_sum(c));
}

static inline struct crime *crime_open(const char *wire, const char *robust)
{
    struct crime *c = crime_room(sizeof *c);

    crime_members(c);
    crime_manifest(&c->manifest, wire, robust);
    crime_begin(c);
    return c;
}

static inline void crime_close(struct crime *c)
{
    for (uint32_t k = 0; k < CRIME_MEMBERS; k++) {
        free(c->given[k]);
        free(c->trees[k]);
    }
    free(c->result);
    free(c->tree);
    free(c);
}

static inline struct evidence_place crime_place(const struct crime *c,
                                                uint64_t block)
{
    struct evidence_place p = {0};

    crime_need(evidence_place(c->vector.codec, c->terms.block, c->elements,
                              block * c->terms.block, &p) == 0);
    return p;
}

/* Where that block begins in an encoded vector. */
static inline size_t crime_at(const struct crime *c, uint64_t block)
{
    return c->vector.codec->bytes(block * c->terms.block);
}

/* The owner of that block puts its own contribution in place of the sum. */
static inline void crime_lie(struct crime *c, uint64_t block, uint32_t owner)
{
    memcpy(c->result + crime_at(c, block), c->given[owner] + crime_at(c, block),
           crime_place(c, block).bytes);
}

/* The offers, and the names of view and plan. */
static inline void crime_seal(struct crime *c)
{
    for (uint32_t k = 0; k < CRIME_MEMBERS; k++) {
        struct hash32 *tree = c->trees[k];

        for (uint64_t b = 0; b < c->n_blocks; b++) {
            hash_tree_leaf(c->given[k] + crime_at(c, b),
                           crime_place(c, b).bytes, &tree[b]);
        }
        blocks_build(tree, c->n_blocks);
        blocks_offer(&c->who[crime_index(c, k)].id, c->plan.round,
                     &tree[blocks_nodes(c->n_blocks) - 1],
                     &c->plan.members[k].offer);
    }
    view_hash(&c->view, &c->plan.view);
}

/* Sign what stands in c->vote, by the member of that rank. */
static inline void crime_sign_vote(struct crime *c, uint32_t rank)
{
    crime_need(message_sign(&c->pen[crime_index(c, rank)], &vote_body_schema,
                            &c->vote.body, c->vote.sig) == 0);
}

/* That member votes for the plan and the result. */
static inline void crime_vote(struct crime *c, uint32_t rank)
{
    struct vote_body *v = &c->vote.body;

    *v = (struct vote_body){
        .epoch = c->plan.epoch, .view = c->plan.view, .round = c->plan.round};
    message_hash(&plan_body_schema, "loco-plan-1", &c->plan, &v->plan);
    hash_tree_keep(c->result, c->bytes, c->tree, &v->result);
    blocks_build(c->tree, c->n_pieces);
    crime_sign_vote(c, rank);
}

/* The file that accuses `rank` with blocks `at` of the contributions, and block
 * `shown` of the result; its bytes are the caller's. */
static inline uint8_t *crime_file_of(const struct crime *c,
                                     uint32_t rank,
                                     uint64_t shown,
                                     uint64_t at,
                                     size_t *len)
{
    const struct evidence_place p = crime_place(c, shown);
    uint8_t proofs[CRIME_MEMBERS + 1][BLOCKS_PROOF_MAX * ID_BYTES] = {{0}};
    struct evidence e = {.manifest = c->wire,
                         .n_manifest = c->n_wire,
                         .view = &c->view,
                         .plan = &c->plan,
                         .vote = &c->vote,
                         .accused = rank,
                         .pieces = c->result + p.pieces_at,
                         .pieces_proof = proofs[CRIME_MEMBERS]};
    uint8_t *bytes;

    blocks_prove(c->tree, c->n_pieces, p.piece, p.end, proofs[CRIME_MEMBERS]);
    for (uint32_t k = 0; k < CRIME_MEMBERS; k++) {
        blocks_prove(c->trees[k], c->n_blocks, at, at + 1, proofs[k]);
        e.block[k] = c->given[k] + crime_at(c, at);
        e.proof[k] = proofs[k];
    }
    crime_need(evidence_write(&e, &p, &bytes, len) == 0);
    return bytes;
}

static inline uint8_t *
crime_file(const struct crime *c, uint32_t rank, uint64_t block, size_t *len)
{
    return crime_file_of(c, rank, block, block, len);
}

#endif
