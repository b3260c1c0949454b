/* conviction.h - what convicts a member of bad work, so that anybody can check
 * it later.
 *
 * Of whom more than half of all full members of a view say that its work is
 * bad, each having made it again (repeat.h), is convicted. Each word is signed
 * (VERDICT) and names a commit. A *conviction* has the words, the view, and the
 * vote of the accused for that commit: a vote names its view, its plan and its
 * result, and these two make the name of the commit. So the accused signed
 * itself that it made this commit with these members. No commit is made
 * without the votes of all whose work is in it, and its record has them; so a
 * liar whose work is to count cannot withhold that.
 *
 * What it does not prove: that those who speak are right; more than half of the
 * members put out whom they like, with a conviction or without. Nor that the
 * view is the run's: a newcomer that meets nobody but liars votes in a view
 * that they made. So who takes a conviction of others asks whether it was a
 * member of that view itself (daemon/convicts.c).
 *
 * A commit that the next view decided has no votes: there is no conviction of
 * its work.
 *
 * Pure: no clock, no message, no allocation.
 */
#ifndef LOCO_P2P_ROUND_CONVICTION_H
#define LOCO_P2P_ROUND_CONVICTION_H

#include "p2p/round/repeat.h"
#include "proto/messages.h"

struct conviction_word {
    uint8_t member;          /* its place in the view, a full one */
    uint8_t sig[SIGN_BYTES]; /* over verdict_body: bad */
};

struct conviction {
    struct view_body view;
    uint8_t accused;  /* its place in the view, a full member */
    struct vote vote; /* of the accused, for the commit */
    uint32_t n_words;
    struct conviction_word words[VIEW_MEMBERS_MAX]; /* ascending by member */
};

extern const struct msg_schema conviction_schema;

/* 0: it convicts. Else LOCO_EHASH (a part is of something else), LOCO_ESIG or
 * LOCO_EINVAL (too few words, or of who has none), and a sentence. errmsg:
 * ERRMSG_SIZE bytes or NULL. */
int conviction_check(const struct conviction *c,
                     const struct hash32 *run,
                     const struct signer *signer,
                     char *errmsg);

/* ---- notes -------------------------------------------------------------- */

/* A commit, the view that made it, and who voted for it. */
struct conviction_commit {
    struct hash32 hash;
    struct view_body view;
    struct vote_body vote; /* of each member of the plan */
    uint64_t voted;        /* bit i: sig[i] is that of member i of the view */
    uint8_t sig[VIEW_MEMBERS_MAX][SIGN_BYTES];
};

/* What a member keeps to make convictions: the commits about which it may hear
 * words, and the words "bad" of open cases. 0.5 MB, zeros to begin with; who
 * makes no audits of work touches none of it. */
struct conviction_notes {
    uint32_t n_commits; /* ever */
    struct conviction_commit commits[REPEAT_COMMITS];
    /* By the place of a case (repeat.h), and of who said it in the view. */
    struct {
        uint64_t have;
        uint8_t sig[VIEW_MEMBERS_MAX][SIGN_BYTES];
    } words[VIEW_MEMBERS_MAX];
};

/* Whether a vote in a record has its signature: where a view decided the round
 * only those have it that came here. */
bool conviction_is_signed(const uint8_t sig[SIGN_BYTES]);

/* The record of a commit of that view, whose hash is `hash`. */
void conviction_commit(struct conviction_notes *notes,
                       const struct view_body *view,
                       const struct commit *record,
                       const struct hash32 *hash);

/* A word "bad" counted, signed so. */
void conviction_word(struct conviction_notes *notes,
                     const struct repeat_counted *counted,
                     const uint8_t sig[SIGN_BYTES]);

/* What the last word about that case made. False: the vote of the accused is
 * not here, nor is a word of all who count. */
bool conviction_make(const struct conviction_notes *notes,
                     const struct hash32 *commit,
                     const struct peer_id *accused,
                     const struct repeat_counted *counted,
                     struct conviction *c);

#endif
