/* plan.c - see replica/plan.h. */
#include "train/replica/plan.h"

#include "train/replica/outer.h"

/* Of a micro-batch of `rows` sequences. */
static uint64_t work_bytes(const struct replica_options *opt, uint32_t rows)
{
    const struct llama_config *c = &opt->model;
    const struct device_launches l = {
        .rows = (int64_t)rows * c->seq,
        .channels = c->dim,
        .heads = c->heads,
        .parameters = llama_numel(c),
    };
    struct backend be;

    backend_device_plan(&be, opt->device->gpu.bf16);
    return llama_workspace_bytes(c, &be, rows, opt->recompute) +
           backend_device_launch_bytes(&l);
}

/* Of an optimizer's step, beside its moments. */
static uint64_t step_bytes(const struct replica_options *opt)
{
    struct llama_part whole;
    struct backend be;

    backend_device_plan(&be, opt->device->gpu.bf16);
    llama_part_whole(&opt->model, &whole);
    return optimizer_device_bytes(&opt->optimizer, &opt->model, &whole,
                                  be.act_bytes);
}

void replica_plan(const struct replica_options *opt,
                  uint64_t have_bytes,
                  struct replica_plan *plan)
{
    uint64_t n = (uint64_t)llama_numel(&opt->model), left;
    uint64_t outer = replica_outer_bytes(opt, n);

    *plan = (struct replica_plan){.state_bytes =
                                      4 * n * sizeof(float) + step_bytes(opt)};
    left = have_bytes > plan->state_bytes ? have_bytes - plan->state_bytes : 0;
    for (uint32_t rows = opt->micro_batch; rows > 0; rows /= 2) {
        plan->work_bytes = work_bytes(opt, rows);
        if (plan->work_bytes <= left) {
            plan->micro_batch = rows;
            break;
        }
    }
    if (plan->micro_batch > 0 && outer <= left - plan->work_bytes) {
        plan->outer_bytes = outer;
    }
}
