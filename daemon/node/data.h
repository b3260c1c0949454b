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
    struct node_beginning {
        /* What round 0 begins from is missing: since the first moment without a
         * view in sight; 0: not wanted. */
        uint64_t wanted_ms;
        uint64_t clear_ms; /* such moments in all, up to the one since which */
        uint64_t clear_since_ms; /* there is none in sight; 0: there is one */
        bool fetched;            /* it is being fetched */
    } begin;
};

/* LOCO_ENOMEM. */
int node_data_open(struct node *n);
/* Get the manifest, then the shards, until data.ready. */
void node_data_advance(struct node *n);
/* May this peer still begin with round 0 (`possible`: no state to follow, none
 * of its own), and with no view in sight (`clear`)? False: what that begins
 * from is missing. It is fetched as long as it is possible. */
bool node_data_begins(struct node *n, bool possible, bool clear);
/* The shard that is wanted for that; terms.n_shards: none. */
uint32_t node_data_beginning(const struct node *n);
void node_on_configured(struct node *n, const struct local_event *e);
void node_on_downloading(struct node *n, const struct local_event *e);
void node_on_downloaded(struct node *n, const struct local_event *e);

/* The run's terms, or those of our stage. */
void node_take_terms(struct node *n, const struct run_terms *t);

#endif
