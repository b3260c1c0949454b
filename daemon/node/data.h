/* data.h - what a run is and learns from: manifest and shards.
 *
 * See data.c for the protocol. The manifest comes part by part, from any peer;
 * the machine is configured with it once. Then the shards come, from their URLs
 * or from peers; what round 0 begins from, where this peer begins it.
 */
#ifndef LOCO_DAEMON_NODE_DATA_H
#define LOCO_DAEMON_NODE_DATA_H

#include <stdbool.h>
#include <stdint.h>

#include "p2p/core.h"
#include "proto/messages.h"

struct node;

/* A shard that comes from its URLs. */
struct node_download {
    bool active;
    uint64_t bytes, resumed_bytes; /* here; of them at the first report */
    uint64_t began_ms;             /* since that report; 0: none yet */
    uint32_t failures;             /* in a row */
    uint64_t after_ms;             /* not again before */
};

struct node_data {
    uint8_t *manifest;
    uint32_t manifest_len, manifest_got; /* len 0: unknown */
    uint64_t manifest_ask_ms;
    bool configuring, configured;
    bool ready;
    uint32_t shard; /* being fetched */
    /* Where training was when that began, and how much further it was when the
     * last shard came. */
    uint64_t shard_front, shard_ahead;
    struct node_download download;
    /* What round 0 begins from is missing, and wanted since then; 0: it is not
     * wanted. */
    uint64_t begin_ms;
};

/* LOCO_ENOMEM. */
int node_data_open(struct node *n);
/* Get the manifest, then the shards, until data.ready. */
void node_data_advance(struct node *n);
/* This peer begins with round 0, as far as it can tell now (`wanted`), or does
 * not. False: something is missing for that; where it is wanted it is fetched,
 * else no more of it. */
bool node_data_begins(struct node *n, bool wanted);
/* The shard that is wanted for that; terms.n_shards: none. */
uint32_t node_data_beginning(const struct node *n);
void node_on_configured(struct node *n, const struct local_event *e);
void node_on_downloading(struct node *n, const struct local_event *e);
void node_on_downloaded(struct node *n, const struct local_event *e);

/* The run's terms, or those of our stage. */
void node_take_terms(struct node *n, const struct run_terms *t);

#endif
