/* memory.c - whether the run fits into this machine, and how.
 *
 * Where memory does not suffice for all activations the backward pass makes
 * some again (enum llama_recompute): the same bits, a longer step. That is
 * chosen here for a processor, by the replica for a GPU (replica/plan.h), which
 * may put moments into this process's memory, too: they are counted, and stay
 * with the GPU where there is no room for them. A run is refused where that
 * does not suffice either.
 *
 * A GPU may be lost, and the processor takes its place (gpu_fallback): what it
 * needs then is counted from the start. Where only the GPU's part fits, the run
 * is not refused: a machine that loses its GPU leaves it.
 */
#include <stdio.h>

#include "daemon/jobs/run_needs.h"
#include "daemon/machine/internal.h"
#include "daemon/settings/memory_limit.h"
#include "proto/base/err.h"
#include "proto/base/errmsg.h"
#include "proto/base/log.h"
#include "train/replica/plan.h"

static void read_limit(const struct machine *m, struct memory_limit *have)
{
    uint64_t cap = atomic_load(&m->use.memory_cap);

    memory_limit_read("", have);
    if (cap > 0 && cap < have->bytes) {
        have->bytes = cap;
        have->whose = "the setting memory_bytes";
    }
}

/* ---- this process ------------------------------------------------------- */

/* How a replica is opened so that it fits. */
struct room {
    uint64_t need; /* bytes */
    uint64_t kept; /* with all activations kept, and the fallback */
    enum llama_recompute recompute;
    bool cpu_fallback;
    bool moments_stay; /* in the GPU's memory */
};

/* Of the moments of a GPU with so many bytes, bytes here. `fits`: it holds the
 * rest. */
static uint64_t
moments_here(const struct replica_options *r, uint64_t gpu_bytes, bool *fits)
{
    struct replica_plan plan;

    *fits = true;
    if (r->device == NULL || r->shared) {
        return 0;
    }
    replica_plan(r, gpu_bytes, &plan);
    *fits = plan.micro_batch > 0;
    return *fits ? plan.host_bytes : 0;
}

static uint64_t
need_of(const struct machine *m, const struct replica_options *r, bool fallback)
{
    uint64_t n = (uint64_t)r->part.numel;
    /* A round's vector is longer where moments go with the parameters. */
    uint64_t wire = m->n_wire / m->n * n + m->n_wire % m->n;
    uint64_t need =
        run_memory(&m->vector, r, wire, m->manifest->sync.error_feedback);

    if (r->slots > 0) {
        need += stage_slots_bytes(r->slots + EVAL_SLOTS,
                                  r->micro_batch * r->seq, r->model.dim);
    }
    return need + (fallback ? replica_fallback_bytes(r) : 0);
}

/* The first level of activations kept that fits. `moments`: bytes of the GPU's
 * that are here. */
static struct room find_level(const struct machine *m,
                              const struct replica_options *options,
                              uint64_t have,
                              uint64_t moments,
                              bool fallback)
{
    struct replica_options r = *options;
    struct room room = {.cpu_fallback = fallback};

    for (int level = LLAMA_RECOMPUTE_NOTHING; level <= LLAMA_RECOMPUTE_LAYERS;
         level++) {
        r.recompute = room.recompute = (enum llama_recompute)level;
        room.need = need_of(m, &r, fallback) + moments;
        room.kept = level == LLAMA_RECOMPUTE_NOTHING ? room.need : room.kept;
        if (room.need <= have) {
            break;
        }
    }
    return room;
}

/* In so many bytes, with a GPU of so many; as little as can be where that is
 * too much. Moments are here only where they are counted (a GPU that is too
 * small even so is left to the replica, which has the words). What is given up
 * first: moments here, as far as the GPU holds the run so, then the processor's
 * place. */
static struct room find_room(const struct machine *m,
                             const struct replica_options *options,
                             uint64_t have,
                             uint64_t gpu_bytes)
{
    const bool wants =
        options->device != NULL && !options->shared && m->opt.cpu_fallback;
    struct replica_options r = *options;
    struct room room = {0};
    uint64_t here, kept = 0;
    bool fits, may_stay;

    r.moments_stay = true;
    (void)moments_here(&r, gpu_bytes, &may_stay);
    r.moments_stay = false;
    here = moments_here(&r, gpu_bytes, &fits);
    for (int i = wants ? 0 : 2; i < 4; i++) {
        const bool stay = i % 2 == 1;

        if (stay && (here == 0 || !may_stay)) {
            continue;
        }
        room = find_level(m, &r, have, stay ? 0 : here, i < 2);
        room.moments_stay = stay || (here == 0 && fits);
        room.kept = kept = kept == 0 ? room.kept : kept;
        if (room.need <= have) {
            break;
        }
    }
    return room;
}

static void take(struct machine *m, const struct room *room)
{
    struct memory_limit have;

    m->replica.recompute = room->recompute;
    m->replica.moments_stay = room->moments_stay;
    m->use.cpu_fallback = room->cpu_fallback;
    m->use.memory_need = room->need;
    read_limit(m, &have);
    if (m->replica.device != NULL && m->opt.cpu_fallback &&
        !room->cpu_fallback) {
        log_warn("train",
                 "a GPU that is lost ends this machine's part in the run: the "
                 "processor in its place needs %llu MB of memory, and %s has "
                 "%llu MB",
                 ERRMSG_MB_UP(room->kept), have.whose, ERRMSG_MB(have.bytes));
    } else if (room->recompute != LLAMA_RECOMPUTE_NOTHING) {
        log_warn("train",
                 "%sthe backward pass recomputes %s: with all activations kept "
                 "the run needs %llu MB of memory, so %llu MB, and %s has %llu "
                 "MB",
                 m->replica.device == NULL ? "" : "once the GPU is lost, ",
                 llama_recompute_text(room->recompute),
                 ERRMSG_MB_UP(room->kept), ERRMSG_MB_UP(room->need), have.whose,
                 ERRMSG_MB(have.bytes));
    }
}

/* ---- stages ------------------------------------------------------------- */

static bool
options_of(const struct machine *m, uint32_t stage, struct replica_options *r)
{
    *r = m->replica;
    return llama_part_of_stage(&r->model, m->terms.stages, stage, &r->part,
                               NULL) == 0;
}

bool machine_stage_fits_gpu(const struct machine *m,
                            uint32_t stage,
                            uint64_t have,
                            struct machine_gpu_need *need)
{
    struct replica_options r;
    struct replica_plan plan;

    *need = (struct machine_gpu_need){.how = ""};
    if (m->replica.device == NULL) {
        return true;
    }
    if (!options_of(m, stage, &r)) {
        need->kept = need->least = UINT64_MAX;
        return false;
    }
    r.moments_stay = false; /* there is a word on memory for itself */
    replica_plan(&r, have, &plan);
    need->kept = plan.kept_bytes;
    need->least = plan.state_bytes + plan.work_bytes;
    need->how = replica_plan_least_text(&plan);
    return plan.micro_batch > 0;
}

bool machine_stage_fits_memory(const struct machine *m,
                               uint32_t stage,
                               uint64_t gpu_bytes)
{
    struct replica_options r;
    struct memory_limit have;

    read_limit(m, &have);
    return options_of(m, stage, &r) &&
           find_room(m, &r, have.bytes, gpu_bytes).need <= have.bytes;
}

void machine_stage_room(struct machine *m, uint32_t stage, uint64_t gpu_bytes)
{
    struct replica_options r;
    struct memory_limit have;
    struct room room;

    read_limit(m, &have);
    if (options_of(m, stage, &r)) {
        room = find_room(m, &r, have.bytes, gpu_bytes);
        take(m, &room);
    }
}

/* Which fit, into memory of so many bytes and into the GPU's; that which needs
 * least, and what one of those that fit into the memory needs of the GPU's. */
static struct room
find_stages(struct machine *m, uint64_t have, struct machine_gpu_need *gpu_need)
{
    struct room least = {.need = UINT64_MAX, .kept = UINT64_MAX};

    *gpu_need = (struct machine_gpu_need){UINT64_MAX, UINT64_MAX, ""};
    m->terms.stage_fits = 0;
    for (uint32_t s = 0; s < m->terms.stages; s++) {
        struct machine_gpu_need of_gpu;
        struct replica_options r;
        struct room room;

        if (!options_of(m, s, &r)) {
            continue;
        }
        room = find_room(m, &r, have, m->opt.gpu_bytes);
        if (machine_stage_fits_gpu(m, s, m->opt.gpu_bytes, &of_gpu) &&
            room.need <= have) {
            m->terms.stage_fits |= 1ULL << s;
        }
        least = room.need < least.need ? room : least;
        if (room.need <= have && of_gpu.least < gpu_need->least) {
            *gpu_need = of_gpu;
        }
    }
    return least;
}

void machine_find_stages(struct machine *m)
{
    struct machine_gpu_need gpu_need;
    struct memory_limit have;

    read_limit(m, &have);
    (void)find_stages(m, have.bytes, &gpu_need);
}

/* ---- the run ------------------------------------------------------------ */

static int
refuse(const struct room *room, const struct memory_limit *have, char *errmsg)
{
    char again[64] = "";

    if (room->need < room->kept) {
        (void)snprintf(again, sizeof again, ", at least %llu MB,",
                       ERRMSG_MB_UP(room->need));
    }
    return errmsg_fail(errmsg, LOCO_ENOMEM,
                       "the run needs %llu MB of memory%s and %s has %llu MB; "
                       "choose a smaller inner.micro_batch or another machine",
                       ERRMSG_MB_UP(room->kept), again, have->whose,
                       ERRMSG_MB(have->bytes));
}

static int refuse_gpu(const struct machine *m,
                      const struct machine_gpu_need *need,
                      char *errmsg)
{
    return errmsg_fail(errmsg, LOCO_ENOMEM,
                       "no stage of the run fits here: of those that fit into "
                       "memory the least needs %llu MB of the GPU's, %llu MB "
                       "%s, and %llu MB may be used "
                       "(%s); use --device cpu, or a GPU with more",
                       ERRMSG_MB_UP(need->kept), ERRMSG_MB_UP(need->least),
                       need->how, ERRMSG_MB(m->opt.gpu_bytes),
                       m->opt.device->gpu.memory_bytes > 0
                           ? "the setting gpu_memory_bytes"
                           : "what was free at the start");
}

int machine_memory_check(struct machine *m, char *errmsg)
{
    struct machine_gpu_need gpu_need = {0};
    const bool staged = m->terms.stages > 1;
    struct memory_limit have;
    struct room room;

    read_limit(m, &have);
    room = staged ? find_stages(m, have.bytes, &gpu_need)
                  : find_room(m, &m->replica, have.bytes, m->opt.gpu_bytes);
    m->use.memory_need = room.need;
    if (room.need > have.bytes) {
        return refuse(&room, &have, errmsg);
    }
    if (staged && m->terms.stage_fits == 0) {
        return refuse_gpu(m, &gpu_need, errmsg);
    }
    if (!staged) {
        take(m, &room);
    }
    return 0;
}

uint64_t machine_memory_need(const struct machine *m)
{
    return m->configured ? m->use.memory_need : 0;
}

bool machine_memory_fits(const struct machine *m, uint64_t bytes)
{
    return bytes == 0 || machine_memory_need(m) <= bytes;
}
