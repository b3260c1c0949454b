/* dispute.h - members of a view of whom most say that the work of one is bad:
 * for the tests of convictions.
 *
 * Five full members and one on probation have keys of their own. A test changes
 * a part of `c` and signs it anew, by dispute_vote() and dispute_word(). What
 * cannot be made is an abort. Everything is static in this header.
 */
#ifndef LOCO_TESTS_UNIT_P2P_DISPUTE_H
#define LOCO_TESTS_UNIT_P2P_DISPUTE_H

#include <stdlib.h>
#include <string.h>

#include "p2p/round/conviction.h"
#include "p2p/round/view.h"

#define DISPUTE_MEMBERS 6U
#define DISPUTE_FULL    5U
#define DISPUTE_NEW     4U /* the place of who is on probation */
#define DISPUTE_ACCUSED 1U
#define DISPUTE_ROUND   12U
#define DISPUTE_EPOCH   3U

struct dispute {
    struct identity who[DISPUTE_MEMBERS]; /* sorted by id */
    struct signer pen[DISPUTE_MEMBERS];   /* the same */
    struct signer verifier;
    struct hash32 run, plan, result;
    struct conviction c;
};

static inline void dispute_need(bool ok)
{
    if (!ok) {
        abort();
    }
}

static inline int dispute_by_id(const void *a, const void *b)
{
    const struct identity *x = a, *y = b;

    return id_cmp(&x->id, &y->id);
}

/* The vote of that member for the commit, in the view as it stands. */
static inline void dispute_vote(struct dispute *d, uint32_t member)
{
    struct vote_body *v = &d->c.vote.body;

    *v = (struct vote_body){.epoch = d->c.view.epoch,
                            .round = DISPUTE_ROUND,
                            .plan = d->plan,
                            .result = d->result};
    view_hash(&d->c.view, &v->view);
    dispute_need(message_sign(&d->pen[member], &vote_body_schema, v,
                              d->c.vote.sig) == 0);
}

static inline struct hash32 dispute_commit(const struct dispute *d)
{
    struct hash32 hash;

    message_commit_name(&d->c.vote.body.plan, &d->c.vote.body.result, &hash);
    return hash;
}

/* That member's word; `verdict` as in repeat.h. */
static inline void dispute_word(const struct dispute *d,
                                uint32_t member,
                                uint8_t verdict,
                                uint8_t sig[SIGN_BYTES])
{
    const struct verdict_body said = {.round = d->c.vote.body.round,
                                      .commit = dispute_commit(d),
                                      .accused = d->who[d->c.accused].id,
                                      .verdict = verdict};

    dispute_need(
        message_sign(&d->pen[member], &verdict_body_schema, &said, sig) == 0);
}

/* Word k is that of this member. */
static inline void dispute_put(struct dispute *d, uint32_t k, uint32_t member)
{
    d->c.words[k].member = (uint8_t)member;
    dispute_word(d, member, REPEAT_BAD, d->c.words[k].sig);
}

/* Three of five say so: members 0, 2 and 3. */
static inline void dispute_words(struct dispute *d)
{
    d->c.n_words = 3;
    dispute_put(d, 0, 0);
    dispute_put(d, 1, 2);
    dispute_put(d, 2, 3);
}

static inline void dispute_open(struct dispute *d, const struct hash32 *run)
{
    uint8_t seed[SIGN_SEED_BYTES] = {11};
    struct view_body *v = &d->c.view;

    memset(d, 0, sizeof *d);
    for (uint32_t i = 0; i < DISPUTE_MEMBERS; i++) {
        seed[1] = (uint8_t)i;
        dispute_need(identity_generate(&d->who[i], seed) == 0);
    }
    qsort(d->who, DISPUTE_MEMBERS, sizeof d->who[0], dispute_by_id);
    d->verifier = signer_sodium(NULL);
    d->run = v->run = *run;
    d->plan.b[0] = 5;
    d->result.b[0] = 6;
    v->epoch = DISPUTE_EPOCH;
    v->round = DISPUTE_ROUND - 3;
    v->n_members = DISPUTE_MEMBERS;
    for (uint32_t i = 0; i < DISPUTE_MEMBERS; i++) {
        d->pen[i] = signer_sodium(&d->who[i]);
        memcpy(v->members[i].public_key, d->who[i].public, 32);
        v->members[i].joined = 1;
        v->members[i].full_since = i == DISPUTE_NEW ? FULL_NEVER : 1;
    }
    d->c.accused = DISPUTE_ACCUSED;
    dispute_vote(d, DISPUTE_ACCUSED);
    dispute_words(d);
}

#endif
