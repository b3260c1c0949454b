/* conviction.h - what convicts a member of bad work, so that anybody can check
 * it later.
 *
 * Of whom more than half of all full members of a view say that its work is
 * bad, each having made it again (repeat.h), is convicted. Each word is signed
 * (VERDICT), but none says who those members are: whoever has some keys could
 * make a view of them and of anybody. So a *conviction* has the words, the
 * view, and a READY of the accused in that view: the accused signed itself that
 * it works with these members, and then more than half of them spoke. Any READY
 * of that view does, so that nothing is gained by withholding one.
 *
 * What it does not prove: that they are right. More than half of the members
 * put out whom they like, with a conviction or without. In a fork (the view
 * says so) the half is that of its members.
 *
 * `notes` are what a member keeps to make one: READYs of the last views, as
 * they come, and words of open cases.
 *
 * Pure: no clock, no message, no allocation.
 */
#ifndef LOCO_P2P_ROUND_CONVICTION_H
#define LOCO_P2P_ROUND_CONVICTION_H

#include "p2p/round/repeat.h"
#include "proto/messages.h"

/* Views that READYs are kept of. A case takes 24 rounds at most; where each
 * third one has a new view, they are enough. */
#define CONVICTION_VIEWS 8

struct conviction_word {
    uint8_t member;          /* its place in the view, a full one */
    uint8_t sig[SIGN_BYTES]; /* over verdict_body: bad */
};

struct conviction {
    struct view_body view;
    uint8_t accused;      /* its place in the view */
    struct ready ready;   /* of the accused, in that view */
    uint64_t round;       /* of the work.. */
    struct hash32 commit; /* ..that this commit has */
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

struct conviction_view {
    struct hash32 hash; /* of the view */
    struct view_body view;
    uint64_t have; /* bit i: a READY of member i is here */
    struct ready ready[VIEW_MEMBERS_MAX];
};

/* 1 MB where all views are full; zeros to begin with. */
struct conviction_notes {
    uint32_t n_views; /* ever */
    struct conviction_view views[CONVICTION_VIEWS];
    /* By the place of a case (repeat.h) and of who said it, of the view. */
    uint8_t sig[VIEW_MEMBERS_MAX][VIEW_MEMBERS_MAX][SIGN_BYTES];
};

/* A READY of member i of that view, whose signature was checked. */
void conviction_ready(struct conviction_notes *notes,
                      const struct view_body *view,
                      const struct hash32 *hash,
                      uint32_t i,
                      const struct ready *m);

/* A word "bad" counted, signed so. */
void conviction_word(struct conviction_notes *notes,
                     const struct repeat_counted *counted,
                     const uint8_t sig[SIGN_BYTES]);

/* What the last word about that case made. False: no READY of the accused in a
 * view of these members is here. */
bool conviction_make(const struct conviction_notes *notes,
                     const struct repeat_commit *commit,
                     const struct peer_id *accused,
                     const struct repeat_counted *counted,
                     struct conviction *c);

#endif
