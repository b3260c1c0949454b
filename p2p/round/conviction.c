/* conviction.c - see conviction.h. */
#include "p2p/round/conviction.h"

#include <string.h>

#include "p2p/round/view.h"
#include "proto/base/err.h"
#include "proto/base/errmsg.h"

MSG_PART(conviction_word,
         MSG_FIELD_U8(struct conviction_word, member),
         MSG_FIELD_FIXED(struct conviction_word, sig));

MSG_DEFINE(conviction,
           MSG_FIELD_STRUCT(struct conviction, view, view_body_schema),
           MSG_FIELD_U8(struct conviction, accused),
           MSG_FIELD_STRUCT(struct conviction, vote, vote_schema),
           MSG_ARRAY_STRUCT(
               struct conviction, words, n_words, conviction_word_schema));

/* ---- checking ------------------------------------------------------------
 */

/* The accused signed that it made the commit with these members. */
static int check_vote(const struct conviction *c,
                      const struct signer *signer,
                      char *errmsg)
{
    const struct vote_body *v = &c->vote.body;
    struct hash32 hash;

    if (c->accused >= c->view.n_members ||
        !view_is_full(&c->view, c->accused)) {
        return errmsg_invalid(errmsg,
                              "the accused is no full member of the view");
    }
    view_hash(&c->view, &hash);
    if (!hash32_eq(&v->view, &hash) || v->epoch != c->view.epoch) {
        return errmsg_fail(errmsg, LOCO_EHASH,
                           "the vote is of another view than the one shown");
    }
    if (hash32_is_zero(&v->result)) {
        return errmsg_invalid(errmsg,
                              "the accused has no part in the plan: it voted "
                              "as a witness");
    }
    if (!message_verify(signer, c->view.members[c->accused].public_key,
                        &vote_body_schema, v, c->vote.sig)) {
        return errmsg_fail(errmsg, LOCO_ESIG,
                           "the vote is not signed by the accused");
    }
    return 0;
}

/* Words of distinct full members, not of the accused. */
static int check_words(const struct conviction *c,
                       const struct signer *signer,
                       char *errmsg)
{
    struct verdict_body said = {
        .round = c->vote.body.round,
        .accused = view_member_id(&c->view.members[c->accused]),
        .verdict = REPEAT_BAD,
    };

    message_commit_name(&c->vote.body.plan, &c->vote.body.result, &said.commit);
    for (uint32_t k = 0; k < c->n_words; k++) {
        const struct conviction_word *w = &c->words[k];

        if (w->member >= c->view.n_members || w->member == c->accused ||
            !view_is_full(&c->view, w->member) ||
            (k > 0 && w->member <= c->words[k - 1].member)) {
            return errmsg_invalid(errmsg,
                                  "word %u is of a member that has "
                                  "none, or stands there before",
                                  k);
        }
        if (!message_verify(signer, c->view.members[w->member].public_key,
                            &verdict_body_schema, &said, w->sig)) {
            return errmsg_fail(errmsg, LOCO_ESIG,
                               "word %u is not signed by who says it", k);
        }
    }
    return 0;
}

int conviction_check(const struct conviction *c,
                     const struct hash32 *run,
                     const struct signer *signer,
                     char *errmsg)
{
    uint32_t full = view_n_full(&c->view);
    int rv;

    if (!hash32_eq(&c->view.run, run)) {
        return errmsg_fail(errmsg, LOCO_EHASH,
                           "the view is of another run than the manifest");
    }
    if (!view_well_formed(&c->view)) {
        return errmsg_invalid(errmsg, "the view is none that members make");
    }
    rv = check_vote(c, signer, errmsg);
    rv = rv != 0 ? rv : check_words(c, signer, errmsg);
    if (rv == 0 && (full < REPEAT_FULL_MIN || 2 * c->n_words <= full)) {
        return errmsg_invalid(errmsg,
                              "%u of %u full members say that the work is bad: "
                              "that convicts nobody",
                              c->n_words, full);
    }
    return rv;
}

/* ---- notes ---------------------------------------------------------------
 */

bool conviction_is_signed(const uint8_t sig[SIGN_BYTES])
{
    static const uint8_t none[SIGN_BYTES];

    return memcmp(sig, none, sizeof none) != 0;
}

void conviction_commit(struct conviction_notes *notes,
                       const struct view_body *view,
                       const struct commit *record,
                       const struct hash32 *hash)
{
    const struct plan_body *p = &record->plan.body;
    struct conviction_commit *c =
        &notes->commits[notes->n_commits % REPEAT_COMMITS];

    notes->n_commits++;
    c->hash = *hash;
    c->view = *view;
    c->vote = (struct vote_body){.epoch = p->epoch,
                                 .view = p->view,
                                 .round = p->round,
                                 .result = record->result};
    message_hash(&plan_body_schema, "loco-plan-1", p, &c->vote.plan);
    c->voted = 0;
    for (uint32_t k = 0; k < record->n_votes && k < p->n_members; k++) {
        int at = view_index_key(view, record->votes[k].public_key);

        if (at >= 0 && conviction_is_signed(record->votes[k].sig)) {
            c->voted |= 1ULL << at;
            memcpy(c->sig[at], record->votes[k].sig, SIGN_BYTES);
        }
    }
}

void conviction_word(struct conviction_notes *notes,
                     const struct repeat_counted *counted,
                     const uint8_t sig[SIGN_BYTES])
{
    const uint64_t bit = 1ULL << counted->speaker;

    if (counted->bad == bit) { /* it opened the case: its place is new */
        notes->words[counted->place].have = 0;
    }
    notes->words[counted->place].have |= bit;
    memcpy(notes->words[counted->place].sig[counted->speaker], sig, SIGN_BYTES);
}

/* NULL: it is not here. */
static const struct conviction_commit *
find_commit(const struct conviction_notes *notes, const struct hash32 *hash)
{
    for (uint32_t i = 0; i < REPEAT_COMMITS && i < notes->n_commits; i++) {
        if (hash32_eq(&notes->commits[i].hash, hash)) {
            return &notes->commits[i];
        }
    }
    return NULL;
}

bool conviction_make(const struct conviction_notes *notes,
                     const struct hash32 *commit,
                     const struct peer_id *accused,
                     const struct repeat_counted *counted,
                     struct conviction *c)
{
    const struct conviction_commit *of = find_commit(notes, commit);
    int at = of == NULL ? -1 : view_index(&of->view, accused);

    if (at < 0 || !(of->voted >> at & 1) ||
        (counted->bad & ~notes->words[counted->place].have) != 0) {
        return false;
    }
    memset(c, 0, sizeof *c);
    c->view = of->view;
    c->accused = (uint8_t)at;
    c->vote.body = of->vote;
    memcpy(c->vote.sig, of->sig[at], SIGN_BYTES);
    for (uint32_t i = 0; i < of->view.n_members; i++) {
        if (counted->bad >> i & 1) {
            struct conviction_word *w = &c->words[c->n_words++];

            w->member = (uint8_t)i;
            memcpy(w->sig, notes->words[counted->place].sig[i], SIGN_BYTES);
        }
    }
    return true;
}
