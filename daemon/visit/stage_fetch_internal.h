/* stage_fetch_internal.h - between stage_fetch.c, stage_fetch_visit.c (what a
 * host says, and what of it can be believed) and stage_fetch_state.c (the bytes
 * of a stage). */
#ifndef LOCO_DAEMON_VISIT_STAGE_FETCH_INTERNAL_H
#define LOCO_DAEMON_VISIT_STAGE_FETCH_INTERNAL_H

#include "daemon/settings/method_manifest.h"
#include "daemon/visit/dialogue.h"
#include "daemon/visit/stage_fetch.h"
#include "p2p/round/chain.h"
#include "p2p/swarm/peers.h"
#include "proto/manifest.h"
#include "train/model/llama_part.h"

#define STAGE_VISIT_MS   15000 /* to learn what a host holds */
#define STAGE_ROUNDS_MAX 4     /* of ours, newest first, that are tried */

struct fetch_host {
    struct dialogue *control;
    struct address address;
    struct peer_id id;
    struct heartbeat beat;
    struct view_body view; /* proven */
    struct hash32 view_hash;
    bool proven;
    bool names[STAGE_ROUNDS_MAX]; /* its state after that round of ours */
    struct hash32 state[STAGE_ROUNDS_MAX];
};

struct fetching {
    const char *dir;
    struct manifest *manifest;
    struct llama_config model;
    struct method method;
    struct hash32 run;
    struct identity self;
    struct signer signer;
    const struct invite *invite; /* NULL: none */
    struct admission admission;  /* shown first, in a run for invited peers */
    enum refusal refusal;        /* what a host said last */
    uint64_t rounds[STAGE_ROUNDS_MAX]; /* that this directory has */
    size_t n_rounds;
    struct fetch_host host[PEERS_CACHE_MAX];
    uint32_t n_hosts;
    uint64_t deadline_ms;   /* of the dialogues that are opened */
    uint8_t *chain, *proof; /* (CHAIN_BYTES_MAX) */
    void *in;               /* any message */
    uint64_t bytes;
};

/* ---- stage_fetch_visit.c ------------------------------------------------ */

/* A connection of that kind to the host. */
bool stage_dial(struct fetching *f,
                struct fetch_host *h,
                bool bulk,
                struct dialogue **d);

/* Greet, and ask what it holds: it is a host of some stage. To be left again,
 * whatever came of it. */
bool stage_visit(struct fetching *f, struct fetch_host *h);
void stage_leave(struct fetching *f, struct fetch_host *h);

/* What a host holds of our rounds: whether its view is proven, and what it
 * names. */
void stage_learn(struct fetching *f, struct fetch_host *h);

/* ---- stage_fetch_state.c ------------------------------------------------ */

/* Whether that host names a state of the stage after round `at` of ours. */
bool stage_is_source(const struct fetching *f,
                     uint32_t i,
                     uint32_t stage,
                     size_t at);

/* The state of a stage with that hash, after round `at` of ours, from one of
 * its hosts after the other; written to the directory. */
int stage_get(struct fetching *f,
              uint32_t stage,
              size_t at,
              const struct hash32 *root,
              char *errmsg);

#endif
