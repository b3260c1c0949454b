/* text.h - the text that is ours to train: our lease, and what of it is here.
 *
 * The ledger of leases is in the record of the commit whose state is in place
 * (p2p/round/lease.h). A member reads its lease as far as the text of it is
 * here, and says in READY what is here (p2p/round/text.h).
 */
#ifndef LOCO_DAEMON_NODE_TEXT_H
#define LOCO_DAEMON_NODE_TEXT_H

#include <stdbool.h>
#include <stdint.h>

#include "p2p/core.h"
#include "p2p/round/round.h"
#include "p2p/round/text.h"

struct node;

struct node_text {
    struct round_record record; /* with leases: of what is in place */
    struct round_record before; /* while a state is only placed: of held.applied
                                 */
    bool assumed;               /* nobody had it */
    uint64_t missing_ms;        /* since when it is missing */
    uint64_t ask_ms;            /* it is asked for again after that */
    /* First position of the TRAIN under way, plus 1; 0: none. */
    uint64_t under_way;
    struct text_span span; /* what can be trained */
    bool exchanges;        /* a round's bytes are on their way */
    uint64_t quiet_ms;     /* from a commit to that, last time; 0: not known */
};

/* CONFIGURED: what is held, with its record. */
void node_lease_restored(struct node *n, const struct local_event *e);
/* The state in place has changed. */
void node_lease_find(struct node *n);
/* Whether it is known who holds what after that commit, or no matter. */
bool node_lease_known(const struct node *n);
/* A record came, and its name. */
void node_lease_heard(struct node *n,
                      const struct commit *c,
                      const struct hash32 *hash);
/* Ask for what is missing. */
void node_lease_advance(struct node *n);
/* The TRAIN under way reads nothing. */
void node_lease_none(struct node *n);
/* Into TRAIN: what is ours. */
void node_lease_name(struct node *n, struct job_train *train);

/* Shards, the lease or the record have changed. */
void node_text_look(struct node *n);
/* Whether enough is here to begin: all that is not train text, and the shard
 * that training has reached. */
bool node_text_suffices(const struct node *n);
/* Where training is: the shard of this position is wanted first. */
uint64_t node_text_front(const struct node *n);
/* Shards that come beside the rounds leave the line to these. */
void node_text_make_way(struct node *n);
/* A member that can train nothing of what is its. */
bool node_text_waits(const struct node *n);
/* Whether we can train now, and how many of these steps. Where nothing of our
 * lease is here we offer nothing, with the others who offer something. */
bool node_text_allows(struct node *n, uint32_t *steps);

#endif
