/* inspect.h - what is inside a node, for simulators and tests.
 *
 * Checks look at cores and children, and the daemon shows node_status(). Nobody
 * writes through these pointers: a node changes by events (node_step) and by
 * the verbs of node.h only.
 */
#ifndef LOCO_DAEMON_NODE_INSPECT_H
#define LOCO_DAEMON_NODE_INSPECT_H

#include "daemon/node/admit.h"
#include "daemon/node/audit.h"
#include "daemon/node/data.h"
#include "daemon/node/eval.h"
#include "daemon/node/held.h"
#include "daemon/node/node.h"
#include "daemon/node/pipe.h"
#include "daemon/node/stages.h"
#include "daemon/node/strays.h"
#include "daemon/node/training.h"
#include "daemon/node/twin.h"
#include "daemon/node/work.h"
#include "p2p/pair/pair.h"
#include "p2p/round/ballot.h"
#include "p2p/round/round.h"
#include "p2p/swarm/members.h"
#include "p2p/swarm/reach.h"
#include "p2p/swarm/transfer.h"

struct node_parts {
    const struct run_terms *terms;
    const struct members *members;
    const struct ballot *ballot;
    const struct round *round;
    const struct pair *pair;
    const struct transfer *transfer;
    const struct reach *reach;
    const struct dht *dht;
    const struct node_data *data;
    const struct node_held *held;
    const struct node_training *training;
    const struct node_stages *stages;
    const struct node_pipe *pipe;
    const struct node_eval *eval;
    const struct node_judge *judge;
    const struct node_audit *audit;
    const struct node_work *work;
    const struct node_strays *strays;
    const struct node_admit *admit;
    const struct node_twin *twin;
};

/* Valid until node_close(). */
struct node_parts node_parts(const struct node *node);

#endif
