/* device.c - see device.h. */
#include "kernels/device.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "proto/base/err.h"

#define PATH_SIZE 4096

struct device {
    void *library;
    const struct plugin_table *table;
    struct gpu *gpu;
    struct plugin_info info;
    int failed; /* first code since the last finish() */
};

static void note(struct device *d, int rv)
{
    if (rv != 0 && d->failed == 0) {
        d->failed = rv;
    }
}

/* ---- the table of backend.h --------------------------------------------- */

#define X(kernel, type, units)                                                 \
    static void device_##kernel(const struct backend *b,                       \
                                const struct type *op)                         \
    {                                                                          \
        struct device *d = b->device;                                          \
                                                                               \
        if (d->failed == 0) {                                                  \
            note(d, d->table->kernel(d->gpu, op));                             \
        }                                                                      \
    }
BACKEND_KERNELS(X)
X(rmsnorm_back, rmsnorm, 0)
#undef X

static void *device_take(const struct backend *b, size_t bytes)
{
    struct device *d = b->device;
    void *p = NULL;

    return d->table->take(d->gpu, &p, bytes) == 0 ? p : NULL;
}

static void *device_take_host(const struct backend *b, size_t bytes)
{
    struct device *d = b->device;
    void *p = NULL;

    return d->table->take_host(d->gpu, &p, bytes) == 0 ? p : NULL;
}

static void device_give(const struct backend *b, void *p)
{
    if (p != NULL) {
        b->device->table->give(b->device->gpu, p);
    }
}

static void
device_put(const struct backend *b, void *to, const void *from, size_t bytes)
{
    struct device *d = b->device;

    if (d->failed == 0) {
        note(d, d->table->put(d->gpu, to, from, bytes));
    }
}

static void
device_get(const struct backend *b, void *to, const void *from, size_t bytes)
{
    struct device *d = b->device;

    if (d->failed == 0) {
        note(d, d->table->get(d->gpu, to, from, bytes));
    }
    if (d->failed != 0) {
        memset(to, 0, bytes);
    }
}

static void device_clear(const struct backend *b, void *p, size_t bytes)
{
    struct device *d = b->device;

    if (d->failed == 0) {
        note(d, d->table->clear(d->gpu, p, bytes));
    }
}

static void device_use_theta(const struct backend *b,
                             const float *theta,
                             int64_t n,
                             const struct theta_copy *copy)
{
    struct device *d = b->device;

    if (d->failed == 0) {
        note(d, d->table->use_theta(d->gpu, theta, n, copy));
    }
}

static int device_finish(const struct backend *b)
{
    struct device *d = b->device;
    int rv = d->table->finish(d->gpu);

    rv = d->failed != 0 ? d->failed : rv;
    d->failed = 0;
    return rv;
}

/* ---- opening ------------------------------------------------------------ */

/* The folder that this program was started from, with its last slash. */
static void program_folder(char *out)
{
    ssize_t n = readlink("/proc/self/exe", out, PATH_SIZE - 1);
    char *slash;

    out[n > 0 ? n : 0] = '\0';
    slash = strrchr(out, '/');
    if (slash != NULL) {
        slash[1] = '\0';
    } else {
        out[0] = '\0';
    }
}

static void *open_library(const char *plugin, char *errmsg)
{
    char path[2 * PATH_SIZE];
    char folder[PATH_SIZE];
    void *library;

    if (plugin != NULL && plugin[0] != '\0') {
        library = dlopen(plugin, RTLD_NOW | RTLD_LOCAL);
        if (library == NULL) {
            (void)snprintf(errmsg, PLUGIN_ERRMSG, "cannot load the plug-in: %s",
                           dlerror());
        }
        return library;
    }
    program_folder(folder);
    (void)snprintf(path, sizeof path, "%s%s", folder, PLUGIN_LIBRARY);
    library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (library == NULL && access(path, F_OK) == 0) {
        (void)snprintf(errmsg, PLUGIN_ERRMSG, "cannot load the plug-in: %s",
                       dlerror());
        return NULL;
    }
    if (library == NULL) {
        library = dlopen(PLUGIN_LIBRARY, RTLD_NOW | RTLD_LOCAL);
    }
    if (library == NULL) {
        (void)snprintf(errmsg, PLUGIN_ERRMSG,
                       "there is no " PLUGIN_LIBRARY " beside this program: "
                       "build it with -DLOCO_CUDA=ON, or use --device cpu");
    }
    return library;
}

static const struct plugin_table *read_table(void *library, char *errmsg)
{
    plugin_entry entry;
    const struct plugin_table *t = NULL;

    *(void **)&entry = dlsym(library, PLUGIN_SYMBOL);
    if (entry != NULL) {
        t = entry();
    }
    if (t != NULL && t->abi == PLUGIN_ABI && t->bytes == sizeof *t) {
        return t;
    }
    (void)snprintf(errmsg, PLUGIN_ERRMSG,
                   PLUGIN_LIBRARY " belongs to another build (table %u, this "
                                  "program wants %u): build both together",
                   t == NULL ? 0 : t->abi, PLUGIN_ABI);
    return NULL;
}

/* A chunk of 8,192 rows of 32,000 logits: large products, no more memory than
 * a layer's activations. */
#define DEVICE_HEAD_FLOATS ((int64_t)8192 * 32000)

void backend_device_plan(struct backend *b, bool bf16)
{
    memset(b, 0, sizeof *b);
    b->name = "cuda";
    b->isa = "cuda";
    b->threads = 1;
    b->bf16 = bf16;
    b->act_bytes = bf16 ? 2 : (int)sizeof(float);
    b->head_floats = DEVICE_HEAD_FLOATS;
}

/* The slots of cuda/gpu.h at their largest; the workspace of the products is
 * there since the GPU was opened. A token's rows beyond a segment make parts of
 * sums (embed.cu). */
uint64_t backend_device_launch_bytes(const struct device_launches *l)
{
    uint64_t rows = (uint64_t)l->rows, channels = (uint64_t)l->channels;
    uint64_t tokens = 2 * rows * sizeof(uint32_t);
    uint64_t plan = rows * (sizeof(uint32_t) + 2 * 4 * sizeof(uint32_t)) + 64;
    uint64_t parts =
        (2 * (rows / PLUGIN_EMBED_SEGMENT) + 1) * channels * sizeof(float);
    uint64_t norms = PLUGIN_NORM_BLOCKS * channels * sizeof(float);
    uint64_t sums =
        3 * ((uint64_t)sumsq_chunks(l->parameters) + 1) * sizeof(double);
    uint64_t delta = rows * (uint64_t)l->heads * sizeof(float);

    return tokens + plan + parts + norms + sums + delta;
}

static void fill(struct backend *b, struct device *d, bool bf16)
{
    backend_device_plan(b, bf16);
    b->isa = d->info.isa;
    b->device = d;
#define X(kernel, type, units) b->kernel = device_##kernel;
    BACKEND_KERNELS(X)
#undef X
    b->rmsnorm_back = device_rmsnorm_back;
    b->take = device_take;
    b->take_host = device_take_host;
    b->give = device_give;
    b->put = device_put;
    b->get = device_get;
    b->clear = device_clear;
    b->use_theta = device_use_theta;
    b->finish = device_finish;
}

int backend_device(struct backend *b,
                   const struct device_options *opt,
                   char *errmsg)
{
    struct device *d = calloc(1, sizeof *d);
    int rv = LOCO_EDEVICE;

    memset(b, 0, sizeof *b);
    errmsg[0] = '\0';
    if (d == NULL) {
        return LOCO_ENOMEM;
    }
    d->library = open_library(opt->plugin, errmsg);
    if (d->library == NULL) {
        goto err_after_device;
    }
    d->table = read_table(d->library, errmsg);
    if (d->table == NULL) {
        goto err_after_library;
    }
    /* From here on the library stays loaded: CUDA's runtime does not like to
     * be unloaded. */
    rv = d->table->open(&d->gpu, &opt->gpu, &d->info, errmsg);
    if (rv != 0) {
        goto err_after_device;
    }
    fill(b, d, opt->gpu.bf16);
    return 0;

err_after_library:
    (void)dlclose(d->library);
err_after_device:
    free(d);
    return rv;
}

const struct plugin_info *device_info(const struct device *d)
{
    return &d->info;
}

const char *device_message(const struct device *d)
{
    return d == NULL ? "" : d->table->message(d->gpu);
}

const char *device_said(struct device *d)
{
    return d == NULL ? NULL : d->table->said(d->gpu);
}

const struct plugin_table *device_table(const struct device *d)
{
    return d->table;
}

struct gpu *device_gpu(const struct device *d)
{
    return d->gpu;
}

void device_close(struct device *d)
{
    if (d != NULL) {
        d->table->close(d->gpu);
        free(d);
    }
}
