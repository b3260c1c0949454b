/* merge.h - AdLoCo's trainers become fewer: who is merged, who gets the nodes.
 *
 * Several trainers run DiLoCo apart, each with its own batch request. Every few
 * outer steps those with the smallest requests are merged into the one of them
 * that asks for most: x_r = sum b_j x_j / sum b_j over the set, weights being
 * the requests (algorithms page 10.4). The nodes of those that ended go where
 * the demand is. Trainers begin from one common state: models that never were
 * equal have no mean worth having.
 *
 * Pure integer arithmetic and one weighted mean; all peers get the same answer
 * from the same numbers.
 */
#ifndef LOCO_TRAIN_SYNC_MERGE_H
#define LOCO_TRAIN_SYNC_MERGE_H

#include <stddef.h>
#include <stdint.h>

/* Which of n trainers merge: `out` gets their indices, ascending, and
 * *representative the one that stays. Returns how many: w, or 0 when n < 2 or
 * w is not 2..n. Ties go to the lower index. */
size_t merge_set(const uint64_t *request,
                 size_t n,
                 size_t w,
                 uint32_t *out,
                 uint32_t *representative);

/* x[i] = sum_j weight_j * part_j[i] / sum weight, for n elements: products and
 * sums in double, in the order given, rounded once. */
void merge_mean(float *x,
                const float *const *parts,
                const uint64_t *weights,
                size_t n_parts,
                size_t n);

/* Nodes per trainer in proportion to demand: the whole parts, at least 1 each,
 * then by highest averages, ties to the lower index. LOCO_EINVAL when there are
 * fewer nodes than trainers. */
int merge_nodes(const uint64_t *demand,
                size_t n,
                uint32_t nodes,
                uint32_t *out);

#endif
