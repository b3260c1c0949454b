/* device.h - a GPU as a backend: opens the plug-in and fills the table.
 *
 * The happy path: backend_device() finds libloco_cuda.so beside the program
 * (or where the caller says), checks that it is of this build, opens a GPU and
 * fills a struct backend whose entries call the plug-in and remember the first
 * code that is not 0 for finish().
 *
 * No plug-in, no driver, no GPU: LOCO_EDEVICE with a sentence that says what is
 * missing and what to do. Nothing of CUDA is loaded before that.
 */
#ifndef LOCO_KERNELS_DEVICE_H
#define LOCO_KERNELS_DEVICE_H

#include "kernels/backend.h"
#include "kernels/plugin.h"

/* GPUs that train together in one process. */
#define DEVICE_GPUS_MAX 16

struct device_options {
    const char *plugin; /* file; NULL or "": beside the program, then where the
                         * system looks for libraries */
    struct plugin_options gpu;
    /* Other GPUs that make a part of each gradient (train/replica/gpus.h). */
    int others[DEVICE_GPUS_MAX - 1];
    int n_others;
};

/* gpu.ordinal and others = "all" of `shown` GPUs, or a list such as 0,2-3, the
 * first of which has the replica. LOCO_EINVAL with what is wrong in *reason
 * (static text). */
int device_choose(struct device_options *opt,
                  const char *text,
                  int shown,
                  const char **reason);

/* The same whatever the machine shows: whether the text is such a list. errmsg
 * as below. */
int device_list(struct device_options *opt, const char *text, char *errmsg);

/* The same of the GPUs that this machine shows, for which the first one named
 * is opened and closed again: *info is of that. errmsg as below. LOCO_EINVAL
 * for the text, else what backend_device() returns. */
int device_find(struct device_options *opt,
                const char *text,
                struct plugin_info *info,
                char *errmsg);

/* errmsg holds PLUGIN_ERRMSG bytes. backend_close() afterwards where it
 * returned 0. LOCO_EDEVICE, LOCO_ENOMEM, LOCO_ECUDA. */
int backend_device(struct backend *b,
                   const struct device_options *opt,
                   char *errmsg);

/* Fill only what sizes depend on, for a plan before a GPU is opened. */
void backend_device_plan(struct backend *b, bool bf16);

/* What launchers take beside the buffers that they are given, at most. */
struct device_launches {
    int64_t rows; /* of a micro-batch: B T */
    int64_t channels, heads, parameters;
};
uint64_t backend_device_launch_bytes(const struct device_launches *l);

/* What was opened; free_bytes is of that moment. */
const struct plugin_info *device_info(const struct device *d);

/* What a person should know (plugin.h, said); NULL: no more, or no device. */
const char *device_said(struct device *d);

/* What went wrong last, as a sentence; "" where nothing did, and for NULL. */
const char *device_message(const struct device *d);

/* The plug-in's functions that backend.h has no row for. */
const struct plugin_table *device_table(const struct device *d);
struct gpu *device_gpu(const struct device *d);

/* For backend_close(). NULL is allowed. */
void device_close(struct device *d);

#endif
