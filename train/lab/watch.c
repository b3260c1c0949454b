/* watch.c - owners of slices who see which members stray (train/sync/stray.h).
 *
 * As a run of strangers has it: in each round each member watches the slice of
 * another one, drawn anew; whom at least half of all members name takes a rest
 * (p2p/round/rests.h): 64 rounds, then 128 and 256. Liars name all
 * that are honest, in every round, and nobody else.
 */
#include <stdlib.h>
#include <string.h>

#include "proto/base/err.h"
#include "proto/base/rng.h"
#include "train/lab/internal.h"
#include "train/sync/stray.h"

#define REST_LOG2 6
#define REST_MOST 2 /* 2^8 rounds */

struct lab_watch {
    struct strays of[LAB_PEERS_MAX];
    /* [who][whom]: it is named up to this turn; how often it was. */
    uint64_t named[LAB_PEERS_MAX][LAB_PEERS_MAX];
    uint32_t times[LAB_PEERS_MAX][LAB_PEERS_MAX];
    /* Whose contributions make the average under way; who rests. */
    uint32_t n, who[LAB_PEERS_MAX];
    bool out[LAB_PEERS_MAX];
};

int lab_watch_open(struct lab *lab, uint64_t longest)
{
    const struct lab_options *o = &lab->opt;

    if (!o->centred || !o->butterfly) {
        return 0;
    }
    lab->watch = calloc(1, sizeof *lab->watch);
    for (uint32_t i = 0; i < LAB_PEERS_MAX && lab->watch != NULL; i++) {
        const uint64_t words[] = {o->seed, i, 0x5354524159U /* "STRAY" */};

        strays_open(&lab->watch->of[i], longest, rng_mix(words, 3));
    }
    return lab->watch == NULL ? LOCO_ENOMEM : 0;
}

void lab_watch_close(struct lab *lab)
{
    for (uint32_t i = 0; i < LAB_PEERS_MAX && lab->watch != NULL; i++) {
        strays_free(&lab->watch->of[i]);
    }
    free(lab->watch);
}

static bool
rests(const struct lab *lab, const uint32_t *who, uint32_t n, uint32_t peer)
{
    uint32_t words = 0;

    for (uint32_t i = 0; i < n; i++) {
        if (lab->watch->out[who[i]]) {
            continue; /* the last commit has no word of it */
        }
        words += lab_lies(lab, who[i])
                     ? !lab_lies(lab, peer)
                     : lab->watch->named[who[i]][peer] > lab->turns;
    }
    return 2 * words >= n && words >= 2;
}

uint32_t lab_watch_begin(struct lab *lab,
                         const uint32_t *who,
                         uint32_t n,
                         struct lab_part *parts)
{
    struct lab_watch *w = lab->watch;
    bool out[LAB_PEERS_MAX];
    uint32_t left = 0, stay = n;

    for (uint32_t i = 0; i < n && w != NULL; i++) { /* more than half stay */
        out[i] = 2 * (stay - 1) > n && rests(lab, who, n, who[i]);
        stay -= out[i];
    }
    for (uint32_t i = 0; i < n && w != NULL; i++) {
        w->out[who[i]] = out[i];
        if (!out[i]) {
            parts[left] = parts[i];
            w->who[left++] = who[i];
        }
    }
    if (w != NULL) {
        w->n = left;
    }
    return w != NULL ? left : n;
}

int lab_watch_see(struct lab *lab,
                  const struct codec *codec,
                  uint64_t begin,
                  const struct codec_sum *sum,
                  const uint8_t *encoded)
{
    const uint64_t words[] = {lab->opt.seed, lab->turns};
    struct lab_watch *w = lab->watch;
    const struct stray_sum m = {
        .attempt = lab->turns,
        .offset = begin,
        .n = (uint32_t)sum->n,
        .lanes = sum->n_terms,
        .lane = sum->terms,
        .sum = encoded,
    };
    uint64_t owner;

    if (w == NULL || w->n != sum->n_terms || sum->n == 0) {
        return 0;
    }
    owner = (sum->own_term + rng_mix(words, 2)) % w->n;
    return strays_see(&w->of[w->who[owner]], codec, &m);
}

void lab_watch_end(struct lab *lab)
{
    struct stray_member member[LAB_PEERS_MAX] = {0};
    struct lab_watch *w = lab->watch;

    for (uint32_t i = 0; w != NULL && i < w->n; i++) {
        memcpy(member[i].id, &w->who[i], sizeof w->who[i]);
        member[i].tokens = 1;
    }
    for (uint32_t i = 0; w != NULL && i < w->n; i++) {
        uint32_t who = w->who[i];
        uint64_t named = strays_commit(&w->of[who], lab->turns, member, w->n);

        for (uint32_t k = 0; k < w->n; k++) {
            uint32_t whom = w->who[k];

            if ((named >> k & 1) && whom != who &&
                w->named[who][whom] <= lab->turns) {
                uint32_t *times = &w->times[who][whom];

                w->named[who][whom] =
                    lab->turns + 1 + (1ULL << (REST_LOG2 + *times));
                *times += *times < REST_MOST;
            }
        }
    }
    if (w != NULL) {
        w->n = 0;
    }
}
