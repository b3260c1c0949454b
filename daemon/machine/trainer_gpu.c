/* trainer_gpu.c - a GPU that the trainer loses, and what its log says of GPUs.
 * On the trainer's thread. */
#include "daemon/machine/trainer_internal.h"
#include "proto/base/err.h"
#include "proto/base/errmsg.h"
#include "proto/base/log.h"

bool trainer_lost_gpu(const struct trainer *t, int rc)
{
    return t->replica.opt.device != NULL &&
           (rc == LOCO_ECUDA || rc == LOCO_ETIMEOUT || rc == LOCO_ENOMEM);
}

/* What a GPU's memory did not suffice for; of a processor the machine has said
 * it (memory.c). */
static void log_memory(const struct trainer *t)
{
    const struct replica *r = &t->replica;

    if (r->opt.device != NULL && r->planned.host > 0) {
        log_warn("train",
                 "the optimizer's moments, %llu MB, lie in this machine's "
                 "memory, as the GPU does not hold them beside what a step "
                 "needs: each inner step reads and writes them over PCIe",
                 ERRMSG_MB_UP(r->planned.host));
    }
    if (r->opt.device != NULL && r->recompute != LLAMA_RECOMPUTE_NOTHING) {
        log_warn("train",
                 "the backward pass recomputes %s: with all activations kept "
                 "the run needs %llu MB of the GPU's memory, so %llu MB, and "
                 "%llu MB may be used",
                 llama_recompute_text(r->recompute),
                 ERRMSG_MB_UP(r->planned.kept), ERRMSG_MB_UP(r->planned.need),
                 ERRMSG_MB(r->planned.have));
    }
}

/* Others beside the first one that failed, or could not be opened; what the
 * first one has to say. */
void trainer_log_said(struct trainer *t)
{
    const char *said;

    while ((said = replica_gpus_said(&t->replica)) != NULL) {
        log_warn("train", "%s", said);
    }
    while ((said = device_said(t->replica.backend.device)) != NULL) {
        log_warn("train", "%s", said);
    }
}

/* Of several that were opened: how many make the gradients. */
static void log_several(struct trainer *t)
{
    const struct replica_options *opt = &t->replica.opt;

    if (opt->device == NULL || opt->device->n_others == 0 || opt->shared) {
        return;
    }
    if (opt->slots > 0) {
        log_warn("train", "a stage lives on the first GPU; the others rest");
        return;
    }
    trainer_log_said(t);
    log_info("train", "%d GPUs make each gradient of %u sequences",
             replica_gpus_count(&t->replica), opt->batch);
}

void trainer_log_gpus(struct trainer *t)
{
    log_several(t);
    log_memory(t);
}

bool trainer_recover(struct trainer *t, int rc)
{
    char errmsg[ERRMSG_SIZE] = "";
    bool again = rc != LOCO_ENOMEM && !t->gpu_lost_before;
    int rv = LOCO_EDEVICE;

    publisher_wait(t->publisher);
    log_error("train", "the GPU failed (%s): %s", loco_strerror(rc),
              device_message(t->replica.backend.device));
    t->gpu_lost_before = true;
    chain_break(&t->chain);
    t->n_leased = 0;
    if (again) {
        rv = replica_recover(&t->replica, true, errmsg);
        log_warn("train", "opening it again: %s", rv == 0 ? "done" : errmsg);
        if (rv == 0) {
            trainer_log_gpus(t);
        }
    }
    if (rv != 0 && t->opt.cpu_fallback) {
        rv = replica_recover(&t->replica, false, errmsg);
        log_warn("train", "continuing on the processor: %s",
                 rv == 0 ? "done" : errmsg);
    }
    return rv == 0;
}

int trainer_find_device(struct trainer *t)
{
    char errmsg[ERRMSG_SIZE] = "";

    if (t->replica.have_backend && t->replica.llama != NULL) {
        return 0;
    }
    if (replica_recover(&t->replica, true, errmsg) != 0) {
        log_error("train", "the GPU is lost, and cannot be opened again: %s",
                  errmsg);
        return LOCO_EDEVICE;
    }
    log_warn("train", "the GPU was lost, and is open again");
    trainer_log_gpus(t);
    return 0;
}
