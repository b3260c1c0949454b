/* proof.h - which views are the run's: proofs asked for and given.
 *
 * A view is proven by its chain (p2p/round/chain.h); only members of a proven
 * view are listened to (proof.c).
 */
#ifndef LOCO_DAEMON_NODE_PROOF_H
#define LOCO_DAEMON_NODE_PROOF_H

#include <stdbool.h>
#include <stdint.h>

#include "daemon/node/held.h"
#include "p2p/round/chain.h"
#include "proto/messages.h"

struct node;

/* A view whose chain was verified. */
#define NODE_PROVEN_MAX 4
struct node_proven {
    bool used;
    struct hash32 view, genesis;
    uint32_t n_weak; /* weak ties in its chain */
    struct view_body body;
    uint64_t at_ms;
};

/* A row whose peer could not prove the view that it names. */
struct node_doubt {
    uint64_t who; /* word of its id: rows change hands */
    struct hash32 view;
    uint64_t view_ms;  /* that one is not asked for before */
    uint64_t any_ms;   /* nor any other */
    uint32_t n_failed; /* since it proved one */
};

struct node_proof {
    struct chain chain;       /* of our own view, or the last one */
    struct chain other_chain; /* the last one that was verified */
    uint8_t *chain_bytes, *other_chain_bytes, *bytes;
    uint32_t saved_len; /* in `bytes`: of an earlier life, not checked yet */
    bool chain_dirty;   /* not on disk */
    struct node_proven *proven; /* [NODE_PROVEN_MAX] */
    struct node_doubt *doubts;  /* by row */
    bool has_named; /* a founding that a host of our invitation proved last: */
    struct hash32 named;
    bool asked; /* part by part: */
    int peer;
    struct hash32 view, wanted_view;
    uint32_t got, total;
    uint64_t due_ms;
    bool cut; /* the link may have taken the question or the answer with it */
    uint64_t claim_since_ms; /* somebody names a view; 0: nobody */
    struct hash32 attested;  /* newest commit that signatures show */
};

/* Our invitation names that peer (row): its word counts where nothing is
 * proven. */
bool node_is_named(const struct node *n, int peer);

/* Signatures show this commit. */
void node_proof_attest(struct node *n, const struct hash32 *commit);

int node_proof_open(struct node *n);
void node_proof_close(struct node *n);
/* Nothing is known of any view: we are in another group now. */
void node_proof_forget(struct node *n);
void node_proof_configured(struct node *n);
void node_proof_adopted(struct node *n);
void node_proof_advance(struct node *n);
/* A link to that peer (row) is gone, and with it perhaps what we asked for. */
void node_proof_link_down(struct node *n, int peer);
/* NULL: not proven. */
const struct node_proven *node_proven_view(const struct node *n,
                                           const struct hash32 *view);
/* The proven view that this peer (row) is a member of and names; NULL where it
 * names none, or one of a founding that is not ours. */
const struct node_proven *node_proven_of(const struct node *n, int peer);
/* Whether more than half of our view, or of a proven one of our founding,
 * signed that one. Costs a signature for each of its members. */
bool node_proof_follows(const struct node *n, const struct view_cert *cert);
/* Whether proofs are still waited for. */
bool node_proof_patience(const struct node *n);
/* What more than half of its full members say is the newest commit, and its
 * state; without patience more than half of those linked will do. */
bool node_tip(const struct node *n,
              const struct node_proven *v,
              struct node_point *tip,
              struct hash32 *state);
/* Whether a proof shows that view to be of another founding. */
bool node_proof_is_other(const struct node *n, const struct hash32 *view);
/* We leave our founding for another: our chain does not bind us any more. */
void node_proof_change_founding(struct node *n);
/* Whether we may leave our view for that one; asks for its proof. */
bool node_proof_allows(struct node *n, const struct hash32 *view);

#endif
