/* text.h - which positions of the run's text can be trained with the shards
 * that are here.
 *
 * The order of the run reads one train shard after the other, in the order of
 * the manifest, and begins again at the end (train/data/loader.h, peer 0). So
 * what some shards hold is a few *spans* of positions, and whoever knows where
 * the others are knows which shard it needs next.
 *
 * A position is terms.window_batch windows. The last position of a span may
 * need windows of the next shard; it is not in it, unless that is here too.
 *
 * Pure functions of the terms, no failure.
 */
#ifndef LOCO_P2P_ROUND_TEXT_H
#define LOCO_P2P_ROUND_TEXT_H

#include "p2p/terms.h"
#include "proto/messages.h"

/* Whether training may begin before all shards are here. */
bool text_comes_later(const struct run_terms *t);

/* The span with position `at`; {0, 0}: all text is here; {1, 1}: that of `at`
 * is not. */
struct text_span text_span_at(const struct run_terms *t, uint64_t at);

bool text_has(const struct text_span *s, uint64_t at);

/* What a member may say. */
bool text_span_valid(const struct text_span *s);

/* The first shard that is not here, of those that nothing begins without, else
 * from position `at` on; terms.n_shards: all are. What round 0 begins from is
 * none of them: who begins there asks for it (text_beginning). */
uint32_t text_missing(const struct run_terms *t, uint64_t at);

/* The shard that is missing to begin with round 0; terms.n_shards: none. */
uint32_t text_beginning(const struct run_terms *t);

/* Whether a process may begin: all is here, or what nothing begins without and
 * the text of position `at`. */
bool text_suffices(const struct run_terms *t, uint64_t at);

#endif
