/* gpus.c - see replica/gpus.h.
 *
 * A batch goes in phases (each()): one thread for each GPU, which meet at the
 * end of a phase. What one GPU reads of another was finished there in the phase
 * before, so no event has to pass between them.
 */
#include "train/replica/gpus.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/device.h"
#include "kernels/pool.h"
#include "proto/base/err.h"
#include "train/replica/device.h"
#include "train/replica/plan.h"

/* Slices begin where vectors of a GPU may. */
#define SLICE_UNIT 1024

struct card {
    struct gpus *all;
    int number;                    /* 0: the first, which has the replica */
    const struct backend *backend; /* &own, or the replica's */
    struct backend own;
    struct llama *llama; /* of number > 0 */
    uint32_t micro_batch;
    enum llama_recompute recompute;
    float *theta, *grad; /* (n) of the GPU */
    float *piece;        /* (piece) of the GPU; NULL: not taken yet */
    char *tuning;        /* its file of choices; NULL: none */
    bool open;           /* there is a backend, and it did not fail */
    /* Of this batch. */
    bool works;
    struct llama_batch part;
    uint64_t at, len; /* its slice */
    double sum;
    int rv;
};

struct gpus {
    struct replica *r;
    struct pool *pool;
    void (*phase)(struct card *c);
    int n; /* cards */
    int at_work[DEVICE_GPUS_MAX];
    int n_at_work; /* in this batch */
    struct card cards[DEVICE_GPUS_MAX];
    char said[DEVICE_GPUS_MAX][PLUGIN_ERRMSG + 64]; /* for the log, in order */
    int n_said, n_told;
};

static bool has_others(const struct replica_options *opt)
{
    return opt->device != NULL && opt->device->n_others > 0 &&
           opt->slots == 0 && !opt->shared;
}

uint64_t replica_gpus_piece_bytes(const struct replica_options *opt, uint64_t n)
{
    uint64_t piece = n < GPUS_PIECE ? n : GPUS_PIECE;

    return has_others(opt) ? piece * sizeof(float) : 0;
}

uint32_t replica_gpus_rows(const struct replica_options *opt)
{
    uint32_t gpus = has_others(opt) ? 1 + (uint32_t)opt->device->n_others : 1;
    uint32_t part = (opt->batch + gpus - 1) / gpus;

    return gpus > 1 && part < opt->micro_batch ? part : opt->micro_batch;
}

uint32_t replica_gpus_micro_batch(const struct replica *r, int number)
{
    const struct gpus *g = r->gpus;

    return number == 0 || g == NULL ? r->micro_batch
           : g->cards[number].open  ? g->cards[number].micro_batch
                                    : 0;
}

const char *replica_gpus_said(struct replica *r)
{
    struct gpus *g = r->gpus;

    return g == NULL || g->n_told == g->n_said ? NULL : g->said[g->n_told++];
}

int replica_gpus_at_work(const struct replica *r)
{
    return r->gpus != NULL ? r->gpus->n_at_work : replica_gpus_count(r);
}

int replica_gpus_count(const struct replica *r)
{
    int n = r->opt.device == NULL || !r->have_backend ? 0 : 1;

    for (int i = 1; r->gpus != NULL && i < r->gpus->n; i++) {
        n += r->gpus->cards[i].open;
    }
    return n;
}

/* ---- opening ------------------------------------------------------------ */

static int ordinal_of(const struct card *c)
{
    const struct device_options *d = c->all->r->opt.device;

    return c->number == 0 ? d->gpu.ordinal : d->others[c->number - 1];
}

/* A card says one thing at most: that it is left out. */
static void say(struct card *c, const char *why)
{
    struct gpus *g = c->all;

    (void)snprintf(g->said[g->n_said], sizeof g->said[0],
                   "GPU %d is left out: %s", ordinal_of(c), why);
    g->n_said++;
}

static int take_piece(struct card *c)
{
    const struct backend *be = c->backend;

    if (c->piece == NULL) {
        c->piece = be->take(
            be, replica_gpus_piece_bytes(&c->all->r->opt, c->all->r->n));
    }
    return c->piece == NULL ? LOCO_ENOMEM : 0;
}

/* A smaller workspace than that; false: there is none. */
static bool shrink(struct card *c)
{
    if (c->micro_batch > 1) {
        c->micro_batch /= 2;
        return true;
    }
    if (c->recompute < LLAMA_RECOMPUTE_LAYERS) {
        c->recompute++;
        return true;
    }
    return false;
}

/* One workspace after the other until one fits. */
static int open_llama(struct card *c)
{
    const struct replica_options *opt = &c->all->r->opt;
    struct llama_room room;
    int rv;

    do {
        room = replica_room(opt, c->micro_batch, c->recompute);
        rv = llama_open_room(&c->llama, &opt->model, c->backend, &room);
    } while (rv == LOCO_ENOMEM && shrink(c));
    return rv;
}

/* Less of it, after a launcher found no memory. */
static int lower(struct card *c)
{
    llama_close(c->llama);
    c->llama = NULL;
    return shrink(c) ? open_llama(c) : LOCO_ENOMEM;
}

static int take_memory(struct card *c)
{
    const struct replica *r = c->all->r;
    const struct backend *be = c->backend;
    struct replica_plan plan;

    replica_plan_part(&r->opt, device_info(be->device)->free_bytes, &plan);
    c->micro_batch = plan.micro_batch;
    c->recompute = plan.recompute;
    c->theta = be->take(be, r->n * sizeof(float));
    c->grad = be->take(be, r->n * sizeof(float));
    if (plan.micro_batch == 0 || c->theta == NULL || c->grad == NULL ||
        take_piece(c) != 0) {
        return LOCO_ENOMEM;
    }
    return open_llama(c);
}

static void close_card(struct card *c)
{
    const struct backend *be = c->backend;

    if (c->open) {
        be->give(be, c->piece);
    }
    if (c->open && c->number > 0) {
        llama_close(c->llama);
        be->give(be, c->grad);
        be->give(be, c->theta);
        backend_close(&c->own);
    }
    free(c->tuning);
    c->tuning = NULL;
    c->open = false;
}

#define PATTERN 1024 /* elements */

/* From one GPU to the other; LOCO_EPROTO: other bytes arrive. */
static int
try_copy(const struct card *to, const struct card *from, uint32_t seed)
{
    const struct device *d = to->backend->device;
    uint32_t sent[PATTERN], got[PATTERN];
    uint64_t n = replica_gpus_piece_bytes(&to->all->r->opt, to->all->r->n);
    size_t bytes = n < sizeof sent ? (size_t)n : sizeof sent;
    int rv;

    for (uint32_t i = 0; i < PATTERN; i++) {
        sent[i] = seed + i * 0x9e3779b9U;
    }
    to->backend->clear(to->backend, to->piece, bytes);
    from->backend->put(from->backend, from->piece, sent, bytes);
    rv = from->backend->finish(from->backend);
    rv = rv != 0 ? rv : to->backend->finish(to->backend);
    rv = rv != 0 ? rv
                 : device_table(d)->copy_from(device_gpu(d), to->piece,
                                              device_gpu(from->backend->device),
                                              from->piece, bytes);
    to->backend->get(to->backend, got, to->piece, bytes);
    rv = rv != 0 ? rv : to->backend->finish(to->backend);
    return rv != 0 ? rv : memcmp(sent, got, bytes) != 0 ? LOCO_EPROTO : 0;
}

/* Machines exist whose GPUs say that they reach each other, and read other
 * bytes: where addresses of the bus are translated wrongly. Both ways, with
 * the first. */
static int check_copies(const struct card *c)
{
    const struct card *first = &c->all->cards[0];
    int rv = try_copy(c, first, 1);

    return rv != 0 ? rv : try_copy(first, c, 2);
}

/* A file for each: GPUs that measure the same product at the same time may
 * choose differently, and the bits of each shall be the same after a restart.
 * NULL: it measures nothing. */
static char *tuning_of(const char *path, int ordinal)
{
    size_t size = strlen(path) + 16;
    char *own = malloc(size);

    if (own != NULL) {
        (void)snprintf(own, size, "%s.%d", path, ordinal);
    }
    return own;
}

static void open_card(struct card *c)
{
    struct device_options opt = *c->all->r->opt.device;
    char why[PLUGIN_ERRMSG] = "";
    int rv;

    opt.gpu.ordinal = ordinal_of(c);
    if (opt.gpu.tuning_path != NULL) {
        opt.gpu.tuning_path = c->tuning =
            tuning_of(opt.gpu.tuning_path, opt.gpu.ordinal);
    }
    c->backend = &c->own;
    rv = backend_device(&c->own, &opt, why);
    c->open = rv == 0;
    rv = rv != 0 ? rv : take_memory(c);
    rv = rv != 0 ? rv : check_copies(c);
    if (rv == LOCO_EPROTO) {
        (void)snprintf(why, sizeof why,
                       "what it copies from another GPU, or that one from it, "
                       "arrives as other bytes");
    }
    if (rv == LOCO_ENOMEM) {
        (void)snprintf(why, sizeof why,
                       "its memory does not hold one sequence of the model");
    }
    if (rv != 0 && why[0] == '\0' && c->open) {
        (void)snprintf(why, sizeof why, "%s", device_message(c->own.device));
    }
    if (rv != 0) {
        close_card(c);
        say(c, why[0] == '\0' ? loco_strerror(rv) : why);
    }
}

static int open_first(struct card *c)
{
    c->backend = &c->all->r->backend;
    c->open = true;
    return take_piece(c);
}

int replica_gpus_open(struct replica *r)
{
    struct gpus *g;

    if (!has_others(&r->opt) || r->gpus_alone) {
        return 0;
    }
    g = r->gpus = calloc(1, sizeof *g);
    if (g == NULL) {
        return LOCO_ENOMEM;
    }
    g->r = r;
    g->n = 1 + r->opt.device->n_others;
    for (int i = 0; i < g->n; i++) {
        g->cards[i].all = g;
        g->cards[i].number = i;
    }
    if (open_first(&g->cards[0]) != 0) {
        (void)snprintf(g->said[g->n_said++], sizeof g->said[0],
                       "the other GPUs are left out: GPU %d has no memory for "
                       "what they send",
                       ordinal_of(&g->cards[0]));
        return 0; /* nobody else is open */
    }
    for (int i = 1; i < g->n; i++) {
        if ((r->gpus_hung & 1U << i) == 0) { /* opening it may never end */
            open_card(&g->cards[i]);
        }
    }
    return pool_open(&g->pool, g->n, NULL);
}

void replica_gpus_close(struct replica *r)
{
    struct gpus *g = r->gpus;

    if (g == NULL) {
        return;
    }
    pool_close(g->pool);
    for (int i = g->n; i-- > 0;) {
        close_card(&g->cards[i]);
    }
    free(g);
    r->gpus = NULL;
}

/* ---- phases ------------------------------------------------------------- */

/* A code that is the card's own: it cannot go on, the others can. */
static bool is_loss(int rv)
{
    return rv == LOCO_ECUDA || rv == LOCO_ETIMEOUT || rv == LOCO_ENOMEM;
}

/* A thread keeps to its GPU: CUDA's last error is the thread's. */
static void job(void *arg, int worker)
{
    struct gpus *g = arg;
    struct card *c = &g->cards[worker];

    if (c->works && c->rv == 0) {
        g->phase(c);
    }
}

/* All that are at work; 0, or the first one's code, else one that is nobody's
 * own. What others have failed with is in their rv. */
static int each(struct gpus *g, void (*phase)(struct card *c))
{
    int rv;

    g->phase = phase;
    pool_run(g->pool, job, g);
    rv = g->cards[0].rv;
    for (int i = 1; i < g->n_at_work && rv == 0; i++) {
        const struct card *c = &g->cards[g->at_work[i]];

        rv = is_loss(c->rv) ? 0 : c->rv;
    }
    return rv;
}

/* [at, at + len) of another card's vector into this one's. */
static int
copy(const struct card *to, float *x, const struct card *from, const float *y)
{
    const struct device *d = to->backend->device;

    return from->len == 0
               ? 0
               : device_table(d)->copy_from(device_gpu(d), x + from->at,
                                            device_gpu(from->backend->device),
                                            y + from->at,
                                            from->len * sizeof(float));
}

static int finish(const struct card *c)
{
    return c->backend->finish(c->backend);
}

/* The end of a phase. Also where it failed: nothing of this GPU is under way
 * when another one that failed gives its memory back. */
static int ended(const struct card *c, int rv)
{
    int end = finish(c);

    return rv != 0 ? rv : end;
}

static void scatter(struct card *c)
{
    struct card first = c->all->cards[0];

    if (c->number > 0) {
        first.at = c->at;
        first.len = c->len;
        c->rv = ended(c, copy(c, c->theta, &first, first.theta));
    }
}

static void gather(struct card *c)
{
    const struct gpus *g = c->all;

    for (int i = 0; c->number > 0 && i < g->n_at_work && c->rv == 0; i++) {
        const struct card *from = &g->cards[g->at_work[i]];

        if (from != c) {
            c->rv = copy(c, c->theta, from, from->theta);
        }
    }
    c->rv = ended(c, c->rv);
}

static void compute(struct card *c)
{
    const struct replica *r = c->all->r;
    int rv;

    do {
        rv = llama_gradient(c->number == 0 ? r->llama : c->llama, c->theta,
                            &c->part, c->grad, &c->sum);
    } while (rv == LOCO_ENOMEM && c->number > 0 && lower(c) == 0);
    c->rv = ended(c, rv);
}

/* The others' gradients of this card's slice, piece by piece. */
static void reduce(struct card *c)
{
    const struct gpus *g = c->all;
    const struct device *d = c->backend->device;
    const struct plugin_table *t = device_table(d);

    for (int i = 0; i < g->n_at_work; i++) {
        const struct card *from = &g->cards[g->at_work[i]];

        for (uint64_t k = 0; from != c && k < c->len && c->rv == 0;
             k += GPUS_PIECE) {
            uint64_t n = c->len - k < GPUS_PIECE ? c->len - k : GPUS_PIECE;
            const struct add_op add = {
                .from = c->piece, .to = c->grad + c->at + k, .n = (int64_t)n};

            c->rv = t->copy_from(device_gpu(d), c->piece,
                                 device_gpu(from->backend->device),
                                 from->grad + c->at + k, n * sizeof(float));
            c->rv = c->rv != 0 ? c->rv : t->add(device_gpu(d), &add);
        }
    }
    c->rv = ended(c, c->rv);
}

/* The first waits for what it reads: the others write it in their next batch.
 */
static void collect(struct card *c)
{
    const struct gpus *g = c->all;

    for (int i = 1; c->number == 0 && i < g->n_at_work && c->rv == 0; i++) {
        const struct card *from = &g->cards[g->at_work[i]];

        c->rv = copy(c, c->grad, from, from->grad);
    }
    c->rv = ended(c, c->rv);
}

/* ---- a batch ------------------------------------------------------------ */

/* Who works, on which sequences and which slice. */
static void cut(struct gpus *g, const struct llama_batch *batch)
{
    int64_t row = 0;
    uint64_t units = (g->r->n + SLICE_UNIT - 1) / SLICE_UNIT, at = 0;

    g->n_at_work = 0;
    for (int i = 0; i < g->n; i++) {
        struct card *c = &g->cards[i];

        c->works = c->open && g->n_at_work < batch->b;
        if (c->works) {
            g->at_work[g->n_at_work++] = i;
        }
    }
    for (int i = 0; i < g->n_at_work; i++) {
        struct card *c = &g->cards[g->at_work[i]];
        uint64_t end = units * (uint64_t)(i + 1) / (uint64_t)g->n_at_work;
        int64_t rows = batch->b / g->n_at_work + (i < batch->b % g->n_at_work);

        end = end * SLICE_UNIT < g->r->n ? end * SLICE_UNIT : g->r->n;
        c->at = at;
        c->len = end - at;
        at = end;
        c->part = *batch;
        c->part.tokens = batch->tokens + row * batch->t;
        c->part.targets = batch->targets + row * batch->t;
        c->part.b = rows;
        row += rows;
        c->rv = 0;
        c->sum = 0;
    }
}

/* Whoever failed is left out; whether there was one. */
static bool lose(struct gpus *g)
{
    bool any = false;

    for (int i = 1; i < g->n_at_work; i++) {
        struct card *c = &g->cards[g->at_work[i]];

        if (is_loss(c->rv)) {
            const char *why = device_message(c->own.device);

            say(c, why[0] == '\0' ? loco_strerror(c->rv) : why);
            if (c->rv == LOCO_ETIMEOUT) {
                g->r->gpus_hung |= 1U << c->number;
            }
            close_card(c);
            any = true;
        }
    }
    return any;
}

/* Until the sum is on the first; stops where somebody failed. Where the first
 * did while it read the others, the fault may be theirs: the next time it works
 * alone. */
static int make(struct gpus *g)
{
    static void (*const phases[])(struct card *) = {scatter, gather, compute,
                                                    reduce, collect};
    int rv = finish(&g->cards[0]); /* theta as the last step left it */

    for (size_t i = 0; i < sizeof phases / sizeof phases[0] && rv == 0; i++) {
        rv = each(g, phases[i]);
        if (is_loss(rv) && (phases[i] == reduce || phases[i] == collect)) {
            g->r->gpus_alone = true;
        }
        for (int k = 1; k < g->n_at_work; k++) {
            if (g->cards[g->at_work[k]].rv != 0) {
                return rv;
            }
        }
    }
    return rv;
}

int replica_gpus_gradient(struct replica *r,
                          const struct llama_batch *batch,
                          double *sum)
{
    struct gpus *g = r->gpus;
    int rv;

    g->cards[0].theta = r->theta;
    g->cards[0].grad = r->grad;
    do {
        cut(g, batch);
        if (g->n_at_work <= 1) {
            return llama_gradient(r->llama, r->theta, batch, r->grad, sum);
        }
        rv = make(g);
    } while (lose(g) && rv == 0);
    *sum = 0;
    for (int i = 0; i < g->n_at_work; i++) {
        *sum += g->cards[g->at_work[i]].sum;
    }
    return rv;
}
