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

/* How a GPU gets along with its memory, what costs least first.
 *
 * N parameters, T tokens of a step (of several GPUs, of the part of one), F
 * FLOP/s of the model's products, B bytes/s of PCIe each way. A step takes
 * 6 N T / F. Layers made again add 2 N T / F, a third of it; branches a few
 * hundredths. The two moments of AdamW in the host's memory add 8 N / B where
 * reads and writes overlap, at most 16 N / B: less than the layers from T = 8 F
 * / B on. With 20 GB/s that is 8,000 tokens for a card of 20 TFLOP/s, 32,000
 * for one of 80. Estimated, not measured. */
#define TOKENS_FOR_HOST 32768

struct way {
    enum llama_recompute recompute;
    bool host; /* moments in the host's memory */
};

static const struct way ways_of_large[] = {
    {LLAMA_RECOMPUTE_NOTHING, false}, {LLAMA_RECOMPUTE_BRANCHES, false},
    {LLAMA_RECOMPUTE_NOTHING, true},  {LLAMA_RECOMPUTE_BRANCHES, true},
    {LLAMA_RECOMPUTE_LAYERS, false},  {LLAMA_RECOMPUTE_LAYERS, true},
};
static const struct way ways_of_small[] = {
    {LLAMA_RECOMPUTE_NOTHING, false}, {LLAMA_RECOMPUTE_BRANCHES, false},
    {LLAMA_RECOMPUTE_LAYERS, false},  {LLAMA_RECOMPUTE_NOTHING, true},
    {LLAMA_RECOMPUTE_BRANCHES, true}, {LLAMA_RECOMPUTE_LAYERS, true},
};
#define WAYS (sizeof ways_of_large / sizeof ways_of_large[0])

static uint64_t less(uint64_t a, uint64_t b)
{
    return a > b ? a - b : 0;
}

static const struct way *ways_of(const struct replica_options *opt)
{
    const uint64_t gpus = 1 + (uint64_t)opt->device->n_others;
    const uint64_t tokens = (uint64_t)opt->batch * opt->seq / gpus;

    return tokens >= TOKENS_FOR_HOST ? ways_of_large : ways_of_small;
}

/* The first way that fits. with_moments: state_bytes with them on the GPU. */
static void plan_ways(const struct replica_options *opt,
                      uint64_t have_bytes,
                      uint64_t with_moments,
                      uint64_t moments,
                      struct replica_plan *plan)
{
    const uint32_t least = opt->slots > 0 ? opt->micro_batch : 1;
    const struct way *ways = ways_of(opt);

    for (size_t i = 0; i < WAYS && !ways[i].host; i++) {
        plan->stay_bytes =
            with_moments + work_bytes(opt, least, ways[i].recompute);
    }
    for (size_t i = 0; i < WAYS && plan->micro_batch == 0; i++) {
        if (ways[i].host && opt->moments_stay) {
            continue;
        }
        plan->host_bytes = ways[i].host ? moments : 0;
        plan->state_bytes = with_moments - plan->host_bytes;
        (void)plan_work(opt, ways[i].recompute,
                        less(have_bytes, plan->state_bytes), plan);
    }
}

/* Without moments: with as little made again as it must. */
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
    plan_least(opt, less(have_bytes, plan->state_bytes), plan);
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
    const uint64_t state = 4 * n * sizeof(float) + eval + step_bytes(opt) +
                           replica_gpus_piece_bytes(opt, n);

    *plan = (struct replica_plan){
        .kept_bytes = state + work_bytes(opt, stage ? opt->micro_batch : 1,
                                         LLAMA_RECOMPUTE_NOTHING)};
    plan_ways(opt, have_bytes, state, 2 * n * sizeof(float), plan);
    if (plan->micro_batch == 0 || outer == 0) {
        return;
    }
    if (outer <= have_bytes - plan->state_bytes - plan->work_bytes + eval) {
        plan->outer_bytes = outer; /* its copy of phi serves held-out text */
        plan->state_bytes -= eval;
    }
}

const char *replica_plan_least_text(const struct replica_plan *plan)
{
    return plan->host_bytes > 0 ? "with activations recomputed and moments in "
                                  "the host's memory"
                                : "with activations recomputed";
}
