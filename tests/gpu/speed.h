/* speed.h - what the files of gpu_speed share.
 *
 *   speed.c        single kernels
 *   speed_outer.c  the outer step: bytes out, in, and what is made of them
 */
#ifndef LOCO_TESTS_GPU_SPEED_H
#define LOCO_TESTS_GPU_SPEED_H

#include <stdint.h>

#include "kernels/device.h"

extern struct backend gpu;

double now_ms(void);

/* Ends the program where rv is not 0. */
void must(int rv, const char *what);

/* Device memory with random numbers that are so as bf16 and as fp32, until
 * forget(). */
float *room(int64_t bytes);
void forget(void);

/* By way of pinned memory on the copy stream, fp16 both ways: pack, copy out,
 * copy in, unpack and apply. */
void outer_step(int64_t n);

/* As train/replica/outer.c does it, by registered memory: the displacement out
 * as fp32, the mean in as fp16, the rule, anchor and momentum home. */
void outer_step_of_locod(int64_t n);

#endif
