/* plan.c - see replica/plan.h. */
#include "train/replica/plan.h"

#include "train/replica/device.h"
#include "train/replica/gpus.h"
#include "train/replica/outer.h"

/* Of a micro-batch of `rows` sequences; of a stage: of all in its slots. */
static uint64_t work_bytes(const struct replica_options *opt,
                           uint32_t rows,
                           enum llama_recompute recompute)
{
    const struct llama_room room = replica_room(opt, rows, recompute);
    const struct llama_config *c = &opt->model;
    const struct device_launches l = {
        .rows = (int64_t)rows * c->seq,
        .channels = c->dim,
        .heads = c->heads,
        .parameters = room.part.numel,
    };
    struct backend be;

    backend_device_plan(&be, opt->device->gpu.bf16);
    return llama_room_bytes(c, &be, &room) + backend_device_launch_bytes(&l);
}

/* Of an optimizer's step, beside its moments. */
static uint64_t step_bytes(const struct replica_options *opt)
{
    const struct llama_room room =
        replica_room(opt, opt->micro_batch, LLAMA_RECOMPUTE_NOTHING);
    struct backend be;

    backend_device_plan(&be, opt->device->gpu.bf16);
    return optimizer_device_bytes(&opt->optimizer, &opt->model, &room.part,
                                  be.act_bytes);
}

/* The largest micro-batch that fits so; false: none does. */
static bool plan_work(const struct replica_options *opt,
                      enum llama_recompute recompute,
                      uint64_t left,
                      struct replica_plan *plan)
{
    plan->recompute = recompute;
    for (uint32_t rows = replica_gpus_rows(opt); rows > 0;
         rows = opt->slots > 0 ? 0 : rows / 2) {
        plan->work_bytes = work_bytes(opt, rows, recompute);
        if (plan->work_bytes <= left) {
            plan->micro_batch = rows;
            return true;
        }
    }
    return false;
}

/* The same with as little made again as it must. */
static void plan_least(const struct replica_options *opt,
                       uint64_t left,
                       struct replica_plan *plan)
{
    for (int level = LLAMA_RECOMPUTE_NOTHING;
         level <= LLAMA_RECOMPUTE_LAYERS &&
         !plan_work(opt, (enum llama_recompute)level, left, plan);
         level++) {
    }
}

void replica_plan_part(const struct replica_options *opt,
                       uint64_t have_bytes,
                       struct replica_plan *plan)
{
    const uint64_t n =
        (uint64_t)replica_room(opt, opt->micro_batch, LLAMA_RECOMPUTE_NOTHING)
            .part.numel;

    *plan =
        (struct replica_plan){.state_bytes = 2 * n * sizeof(float) +
                                             replica_gpus_piece_bytes(opt, n)};
    plan_least(opt,
               have_bytes > plan->state_bytes ? have_bytes - plan->state_bytes
                                              : 0,
               plan);
}

void replica_plan(const struct replica_options *opt,
                  uint64_t have_bytes,
                  struct replica_plan *plan)
{
    const bool stage = opt->slots > 0;
    const uint64_t n =
        (uint64_t)replica_room(opt, opt->micro_batch, LLAMA_RECOMPUTE_NOTHING)
            .part.numel;
    const uint64_t outer = replica_outer_bytes(opt, n);
    const uint64_t eval = stage ? n * sizeof(float) : 0;
    uint64_t left;

    *plan = (struct replica_plan){
        .state_bytes = 4 * n * sizeof(float) + eval + step_bytes(opt) +
                       replica_gpus_piece_bytes(opt, n)};
    left = have_bytes > plan->state_bytes ? have_bytes - plan->state_bytes : 0;
    plan->kept_bytes =
        work_bytes(opt, stage ? opt->micro_batch : 1, LLAMA_RECOMPUTE_NOTHING);
    plan_least(opt, left, plan);
    if (plan->micro_batch == 0 || outer == 0) {
        return;
    }
    if (outer <= left - plan->work_bytes + eval) {
        plan->outer_bytes = outer; /* its copy of phi serves held-out text */
        plan->state_bytes -= eval;
    }
}
