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
           MSG_FIELD_STRUCT(struct conviction, ready, ready_schema),
           MSG_FIELD_U64(struct conviction, round),
           MSG_FIELD_FIXED(struct conviction, commit),
           MSG_ARRAY_STRUCT(
               struct conviction, words, n_words, conviction_word_schema));

/* ---- checking ------------------------------------------------------------
 */

/* The accused signed that it is in that view. */
static int check_ready(const struct conviction *c,
                       const struct signer *signer,
                       char *errmsg)
{
    const struct ready_body *r = &c->ready.body;
    struct hash32 hash;

    if (c->accused >= c->view.n_members) {
        return errmsg_invalid(errmsg, "the accused is no member of the view");
    }
    view_hash(&c->view, &hash);
    if (!hash32_eq(&r->view, &hash) || r->epoch != c->view.epoch) {
        return errmsg_fail(errmsg, LOCO_EHASH,
                           "the READY is of another view than the one shown");
    }
    if (!message_verify(signer, c->view.members[c->accused].public_key,
                        &ready_body_schema, r, c->ready.sig)) {
        return errmsg_fail(errmsg, LOCO_ESIG,
                           "the READY is not signed by the accused");
    }
    return 0;
}

/* Words of distinct full members, not of the accused. */
static int check_words(const struct conviction *c,
                       const struct signer *signer,
                       char *errmsg)
{
    const struct verdict_body said = {
        .round = c->round,
        .commit = c->commit,
        .accused = view_member_id(&c->view.members[c->accused]),
        .verdict = REPEAT_BAD,
    };

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
    rv = check_ready(c, signer, errmsg);
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

/* The notes of a view; `i` views ago. */
static uint32_t place_of(const struct conviction_notes *notes, uint32_t i)
{
    return (notes->n_views - 1 - i) % CONVICTION_VIEWS;
}

void conviction_ready(struct conviction_notes *notes,
                      const struct view_body *view,
                      const struct hash32 *hash,
                      uint32_t i,
                      const struct ready *m)
{
    struct conviction_view *v = &notes->views[place_of(notes, 0)];

    if (notes->n_views == 0 || !hash32_eq(&v->hash, hash)) {
        notes->n_views++;
        v = &notes->views[place_of(notes, 0)];
        v->hash = *hash;
        v->view = *view;
        v->have = 0;
    }
    if (!(v->have >> i & 1)) {
        v->have |= 1ULL << i;
        v->ready[i] = *m;
    }
}

void conviction_word(struct conviction_notes *notes,
                     const struct repeat_counted *counted,
                     const uint8_t sig[SIGN_BYTES])
{
    memcpy(notes->sig[counted->place][counted->speaker], sig, SIGN_BYTES);
}

/* Whether the same members count in both. */
static bool is_of(const struct view_body *v, const struct repeat_commit *c)
{
    if (v->n_members != c->n || view_full(v) != c->full) {
        return false;
    }
    for (uint32_t i = 0; i < c->n; i++) {
        const struct peer_id id = view_member_id(&v->members[i]);

        if (!id_eq(&id, &c->member[i])) {
            return false;
        }
    }
    return true;
}

/* NULL: none. */
static const struct conviction_view *find_view(const struct conviction_notes *n,
                                               const struct repeat_commit *c,
                                               uint32_t accused)
{
    for (uint32_t i = 0; i < CONVICTION_VIEWS && i < n->n_views; i++) {
        const struct conviction_view *v = &n->views[place_of(n, i)];

        if ((v->have >> accused & 1) && is_of(&v->view, c)) {
            return v;
        }
    }
    return NULL;
}

bool conviction_make(const struct conviction_notes *notes,
                     const struct repeat_commit *commit,
                     const struct peer_id *accused,
                     const struct repeat_counted *counted,
                     struct conviction *c)
{
    const struct conviction_view *v;
    uint32_t at = 0;

    while (at < commit->n && !id_eq(&commit->member[at], accused)) {
        at++;
    }
    v = at < commit->n ? find_view(notes, commit, at) : NULL;
    if (v == NULL) {
        return false;
    }
    memset(c, 0, sizeof *c);
    c->view = v->view;
    c->accused = (uint8_t)at;
    c->ready = v->ready[at];
    c->round = commit->round;
    c->commit = commit->hash;
    for (uint32_t i = 0; i < commit->n; i++) {
        if (counted->bad >> i & 1) {
            struct conviction_word *w = &c->words[c->n_words++];

            w->member = (uint8_t)i;
            memcpy(w->sig, notes->sig[counted->place][i], SIGN_BYTES);
        }
    }
    return true;
}
