/* trainer_loop.h - inner steps that another process makes; the inside of
 * trainer.h.
 *
 * Everything is the trainer's thread's, as with steps of its own; it waits for
 * the loop's packets where it would compute. Shared memory holds theta
 * (loop_socket.h), and the replica works on it in place. Whose it is:
 *
 *   the loop goes    nobody's: its parameters are elsewhere, and newer
 *   GIVE .. GIVEN    the loop writes
 *   held, current    ours: what the loop has, or what it will TAKE
 *   TAKE .. TAKEN    the loop reads
 *
 * So each LOAD, APPLY and PAIR, and packing, first *hold* the loop: it gives
 * its parameters, once, and waits. What was written it takes afterwards. A sync
 * of a method without overlap is then one GIVE and one TAKE: two passes over
 * memory in the loop's process.
 *
 * A loop that leaves takes its steps since the last GIVEN with it
 * (replica_abandon()); the task begins again with the next loop. Until then the
 * node sees a trainer that takes long, and the others go on without it. So it
 * does for a loop that hangs: whoever does not answer a GIVE within two minutes
 * and eight of its longest steps is let go.
 *
 * A loop whose steps count more tokens than the run allows, or that asks for
 * text twice within a step, is dismissed with a sentence.
 */
#ifndef LOCO_DAEMON_MACHINE_TRAINER_LOOP_H
#define LOCO_DAEMON_MACHINE_TRAINER_LOOP_H

#include <stdbool.h>

#include "daemon/machine/trainer.h"

struct trainer_loop;

/* The socket and the memory: sets r->shared_theta. trainer_loop_close()
 * afterwards, whatever the result. Codes with a sentence. */
int trainer_loop_open(struct trainer_loop **loop,
                      const struct trainer_options *opt,
                      struct replica_options *r,
                      char *errmsg);
void trainer_loop_close(struct trainer_loop *loop); /* NULL is allowed */

/* The thread's work until the trainer is closed. */
void trainer_loop_run(struct trainer *t);

/* theta is what the loop has, or newer, and the loop rests. False: it left, or
 * the trainer is closing; its steps are given up. */
bool trainer_loop_hold(struct trainer *t);

/* As replica_eval(), by the loop, with phi; it has its own parameters back
 * before its next step. LOCO_ENOENT: none is here that measures, or it left. */
int trainer_loop_eval(struct trainer *t, uint64_t draw, double *bits_per_byte);

bool trainer_loop_is_here(const struct trainer_loop *loop);

/* Any thread. */
void trainer_loop_wake(struct trainer_loop *loop);

#endif
