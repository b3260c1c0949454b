/* inspect.h - what is inside a DHT node, for simulators and tests. */
#ifndef LOCO_P2P_DHT_INSPECT_H
#define LOCO_P2P_DHT_INSPECT_H

#include "p2p/dht/dht.h"

/* Lookup i, below opt.lookups_max, has ended by then; 0: it does not run. */
uint64_t dht_lookup_deadline(const struct dht *d, uint32_t i);

#endif
