/* sets.h - the sets of kernels for a processor (sets.def), and which one to
 * take.
 *
 * "auto" takes the first row that this processor has, of those whose every path
 * has run on real or emulated hardware. Any other row is taken by its name
 * only.
 */
#ifndef LOCO_KERNELS_SETS_H
#define LOCO_KERNELS_SETS_H

#include <stdbool.h>
#include <stddef.h>

struct cpu_kernels;

/* On what the tests of a path have run. */
enum set_ran {
    SET_RAN_real,
    SET_RAN_emulated,
    SET_RAN_model,
};

struct kernel_set {
    const char *name;
    const char *fp32, *bf16; /* instructions of products; bf16 NULL: none */
    enum set_ran fp32_ran, bf16_ran;
};

/* All rows, those of other processors included. */
const struct kernel_set *kernel_sets(size_t *n);

/* What "auto" takes of what `has` finds; NULL: nothing. */
const struct kernel_set *
kernel_set_auto(bool (*has)(const struct kernel_set *set));

/* In this build, on this processor and system. A set with registers that Linux
 * gives only on demand asks for them. */
bool kernel_set_here(const struct kernel_set *set);

/* The same of its products in bf16. */
bool kernel_set_bf16_here(const struct kernel_set *set);

/* By name, or "auto". NULL: there is no such set, or it is not here. */
const struct kernel_set *kernel_set_named(const char *name);

/* Of a set that is here. */
const struct cpu_kernels *kernel_set_cpu(const struct kernel_set *set);

#endif
