/* asking.h - who asked for a new view without a cause that we see, and how
 * often a member may.
 *
 * A change of view ends the round in flight, so who could ask for one at any
 * time could stop the run. A member that sees no cause itself takes the word of
 * the one that asks: ASKING_AT_ONCE times, and then once in ASKING_ROUNDS
 * committed rounds. The account belongs to the key and outlives views; it is
 * not on disk. Where there are more accounts than places the one that owes
 * least is forgotten: as many keys as places must have been members and asked.
 *
 * The rest is of one epoch: who asked, in whose name we ask, and which owners
 * of ballots had their turn (ballot_asks.c).
 */
#ifndef LOCO_P2P_ROUND_ASKING_H
#define LOCO_P2P_ROUND_ASKING_H

#include "proto/messages.h"

#define ASKING_AT_ONCE  3
#define ASKING_ROUNDS   10
#define ASKING_ACCOUNTS 128

struct asking_account {
    uint8_t public_key[32];
    uint64_t even_round; /* owes nothing from then on; 0: a free place */
};

struct asking {
    struct asking_account accounts[ASKING_ACCOUNTS];

    uint64_t noted; /* members of the view to be charged when it ends.. */
    uint64_t joins; /* ..but those that let a newcomer in between two rounds */
    bool has_asker;
    struct asker asker; /* whose word made us want a change, or bound us.. */
    uint64_t asker_ms;  /* ..at that time */
    bool has_wish;
    uint64_t wish_round; /* newest commit when we began to want a change */
    uint64_t owners;     /* members that had a turn of ballots.. */
    uint64_t owners_too; /* ..and another one */
    uint64_t higher;     /* members that made us begin a ballot of ours anew */
    uint64_t turn_ms;    /* since when the owner of the last one has its turn */
};

/* Whether that key may ask once more when that commit is the newest. */
bool asking_may(const struct asking *a, const uint8_t key[32], uint64_t round);

/* It did. */
void asking_charge(struct asking *a, const uint8_t key[32], uint64_t round);

/* A view begins at that commit: only the accounts stay. */
void asking_begin(struct asking *a, uint64_t round);

#endif
