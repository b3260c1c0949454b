/* internal.h - between pipeline.c, pipeline/micro.c and
 * pipeline/routing.c. */
#ifndef LOCO_P2P_PIPELINE_INTERNAL_H
#define LOCO_P2P_PIPELINE_INTERNAL_H

#include "p2p/pipeline/pipeline.h"

struct pipeline_action *pipeline_add(struct pipeline *p,
                                     struct pipeline_out *out,
                                     enum pipeline_action_type type);

/* Find the routes of p->step through this host and begin with them. */
void pipeline_run(struct pipeline *p, struct pipeline_out *out);

/* p->micro: those of p->step that come by here, by number. */
void pipeline_list_routes(struct pipeline *p);

/* Something of micro-batch `number` is complete. */
void pipeline_micro_done(struct pipeline *p,
                         enum pipeline_action_type type,
                         uint32_t number,
                         struct pipeline_out *out);

/* The machine has done what it was told. */
void pipeline_worked(struct pipeline *p);

/* TAKE again for all that is awaited. */
void pipeline_take_again(struct pipeline *p, struct pipeline_out *out);

/* Host k has a place for micro-batch `number` of this step. */
void pipeline_asked(struct pipeline *p,
                    uint32_t k,
                    uint32_t number,
                    struct pipeline_out *out);

/* Look whether the step is complete. */
void pipeline_settle(struct pipeline *p, struct pipeline_out *out);

#endif
