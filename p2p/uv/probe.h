/* probe.h - see whether a peer listens at an address: connect, know, close.
 *
 * ACTION_PROBE makes a connection of its own from a fresh port, shakes hands
 * as kind PROBE with the expected peer, and closes it; EVENT_PROBED says
 * whether that worked. Shorter than a dial: probe_ms.
 * Internal to p2p/uv; loop thread only.
 */
#ifndef LOCO_P2P_UV_PROBE_H
#define LOCO_P2P_UV_PROBE_H

#include "p2p/core.h"

struct shell;

void probe_dial(struct shell *s, const struct action_probe *probe);

#endif
