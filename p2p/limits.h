/* limits.h - the bounds of the protocol cores, each with its reason. */
#ifndef LOCO_P2P_LIMITS_H
#define LOCO_P2P_LIMITS_H

#include "proto/limits.h"

/* Peers of the run that a node remembers; in a larger run a sample of it. */
#define PEERS_MAX 1024

/* Control links held at once: the group, the active view, DHT traffic. */
#define LINKS_MAX 256

/* Of these, for others than strangers (p2p/swarm/members_strangers.c). */
#define LINKS_RESERVED 96
/* Strangers of one /24 or /48 of the internet. */
#define STRANGERS_OF_GROUP_MAX 8

/* Recent views kept to recognise an ancestor. */
#define LINEAGE_MAX 256

#endif
