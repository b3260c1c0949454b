/* check_internal.h - what the check*.c files share; nobody else includes it.
 *
 *   check.c         open, per step (A, D, F, G), the end (E)
 *   check_tree.c    the state tree: what anchors ever were (A, B, C, D)
 *   check_lease.c   which text was trained (W)
 *   check_centre.c  the shares of a robust mean again (B)
 *   check_replay.c  contributions, and the ring over them again (B)
 *   check_tokens.c  where the work went (I)
 */
#ifndef LOCO_DAEMON_SIM_CHECK_INTERNAL_H
#define LOCO_DAEMON_SIM_CHECK_INTERNAL_H

#include "daemon/sim/check.h"
#include "train/sync/codec/codec.h"

#define CONTRIBUTIONS_KEPT 64 /* per peer */
#define CHECK_LATE         0x8000U

struct contribution {
    bool used;
    uint32_t life;
    uint64_t first, last, tokens;
    struct lease lease;
    float *values;
};

/* Elements of a result that one ring made: an inherited range, or, as the last
 * part, what the commit's own plan reduced. */
struct part {
    uint64_t from, upto;
    uint32_t kinds; /* bit: what its exchange may have been */
    uint32_t n;
    struct contributor in[VIEW_MEMBERS_MAX]; /* in ring order */
    uint32_t life[VIEW_MEMBERS_MAX];         /* of each contribution */
};

struct commit_seen {
    struct node_commit commit;
    uint32_t n_parts;
    struct part parts[ROUND_RANGES_MAX + 1];
    bool verified;
};

struct state {
    uint64_t round;
    struct hash32 params;
    int parent; /* -1: initial */
    int commit; /* in commits; -1: initial */
    /* Who trained each position, first: peer + 1; 0: nobody in this branch.
     * CHECK_LATE: when it had been given back. */
    uint16_t *trained;
    uint32_t n_trained;
    uint32_t waits; /* commits in a row after which the same is returned */
};

struct view_seen {
    struct hash32 view;
    uint64_t round;
    struct hash32 params;
};

struct checked_peer {
    struct contribution kept[CONTRIBUTIONS_KEPT];
    uint32_t n_kept;
    int state;    /* in states; -1: none */
    int sum_of;   /* state that `sum` is of; -1: none */
    uint64_t sum; /* local_params_sum() when the hash was seen to be right */
    struct hash32 last_plan;
    uint32_t steps;
    uint64_t spent;  /* tokens of this life in commits that it applied */
    uint32_t untold; /* new states that its node has not heard of yet */
};

struct check {
    struct check_options opt;
    struct local *local;
    const struct codec *codec;
    bool forks_allowed;
    uint64_t count;
    char violation[CHECK_TEXT_MAX];
    struct checked_peer *peers;
    struct commit_seen *commits;
    uint32_t n_commits, cap_commits;
    struct state *states;
    uint32_t n_states, cap_states;
    struct view_seen *views;
    uint32_t n_views, cap_views;
    uint8_t *oracle;
    uint64_t twice, unleased;
};

/* Of struct local_watch, with self = struct check. */
void check_contributed(void *self, const struct local_contribution *k);
void check_applied(void *self, uint32_t peer, const struct local_applied *a);
void check_loaded(void *self,
                  uint32_t peer,
                  uint64_t round,
                  const struct hash32 *params);

/* Room for one more element. */
void *check_reserve(void *p, uint32_t n, uint32_t *cap, size_t size);

/* Newest first: a restarted process may number its steps anew. `older` names
 * how many that match to pass over. */
const struct contribution *check_contribution(const struct check *c,
                                              uint32_t peer,
                                              uint64_t last,
                                              uint32_t older);

/* The lower median of the q of members with weight, by counting; 0: none. */
double check_median(const double *q, const float *w, uint32_t n);

/* The contributions to a block: n of `len` elements, `stride` apart. */
struct check_crowd {
    uint32_t n;
    uint64_t len, stride;
    const float *in;
    double clip;
};

/* w[k], a member's share of the tokens, becomes what it counts in the centre.
 */
void check_centre(const struct check_crowd *c, float *w);

/* B: the wire bytes that somebody applies for this commit. */
void check_replay(struct check *c, struct commit_seen *s, const uint8_t *bytes);

/* W: a new state, whose commit was replayed. */
void check_leases(struct check *c, int state);

/* An outer step of this commit; with rebase nothing of the peer is in it. */
void check_spent(struct check *c, uint32_t peer, int commit, bool rebase);

/* I: a node that says `dropped`. */
void check_tokens(struct check *c, uint32_t peer, uint64_t dropped);

/* Take in the last commit that the node of this peer speaks of. */
void check_note_commit(struct check *c, uint32_t peer);

#endif
