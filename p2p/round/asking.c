/* asking.c - accounts of those who ask for a new view; see asking.h. */
#include "p2p/round/asking.h"

#include <string.h>

#define OWES_MOST (ASKING_AT_ONCE * ASKING_ROUNDS)

/* The account of that key, or else the one that it would replace. */
static uint32_t place_of(const struct asking *a, const uint8_t key[32])
{
    uint32_t best = 0;

    for (uint32_t i = 0; i < ASKING_ACCOUNTS; i++) {
        const struct asking_account *at = &a->accounts[i];

        if (at->even_round > 0 && memcmp(at->public_key, key, 32) == 0) {
            return i;
        }
        best = at->even_round < a->accounts[best].even_round ? i : best;
    }
    return best;
}

/* In rounds. */
static uint64_t
owes(const struct asking *a, const uint8_t key[32], uint64_t round)
{
    const struct asking_account *at = &a->accounts[place_of(a, key)];
    bool none = at->even_round <= round || memcmp(at->public_key, key, 32) != 0;

    return none ? 0 : at->even_round - round;
}

bool asking_may(const struct asking *a, const uint8_t key[32], uint64_t round)
{
    return owes(a, key, round) + ASKING_ROUNDS <= OWES_MOST;
}

void asking_charge(struct asking *a, const uint8_t key[32], uint64_t round)
{
    uint64_t due = owes(a, key, round) + ASKING_ROUNDS;
    struct asking_account *at = &a->accounts[place_of(a, key)];

    memcpy(at->public_key, key, 32);
    at->even_round = round + (due < OWES_MOST ? due : OWES_MOST);
}

void asking_begin(struct asking *a, uint64_t round)
{
    uint64_t last =
        round + OWES_MOST; /* another branch may have fewer rounds */

    for (uint32_t i = 0; i < ASKING_ACCOUNTS; i++) {
        if (a->accounts[i].even_round > last) {
            a->accounts[i].even_round = last;
        }
    }
    memset(&a->noted, 0, sizeof *a - offsetof(struct asking, noted));
}
