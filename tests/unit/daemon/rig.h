/* rig.h - a machine (daemon/machine/machine.h) on a shell of its own, with a
 * node that is told nothing: what the machine reports is kept. For
 * machine_test.c, machine_pieces_test.c and machine_stage_test.c.
 *
 *     make_rig -> the test sets manifest and settings, add_text ->
 *     start_rig (opened and configured) -> jobs -> close_rig
 *
 * The state directory and the files in it are real. A rig that was stopped may
 * be started again: the same directory, another life. The directories of a test
 * go away with its teardown (CASE), even if it failed.
 */
#ifndef LOCO_TESTS_UNIT_DAEMON_RIG_H
#define LOCO_TESTS_UNIT_DAEMON_RIG_H

#include <ftw.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "daemon/machine/machine.h"
#include "daemon/settings/method_manifest.h"
#include "daemon/settings/state_dir.h"
#include "proto/base/err.h"
#include "proto/base/errmsg.h"
#include "proto/hash.h"

#define HANG_S   60 /* only a test that hangs gets here */
#define TOLD_MAX 16

/* The model, and its parameters beside the embedding: of a layer, and the last
 * norm. */
#define RIG_DIM  16
#define RIG_SEQ  16
#define RIG_FFN  16
#define RIG_REST ((uint64_t)RIG_DIM * (3 + 4 * RIG_DIM + 3 * RIG_FFN))

struct rig {
    char dir[128]; /* the state directory */
    struct config settings;
    struct manifest manifest;
    uint32_t time_scale;
    const struct device_options *device; /* a GPU with so much memory; NULL */
    uint64_t gpu_bytes;
    bool cpu_fallback; /* where that GPU fails */
    int configured_rc; /* what CONFIGURED is to say */
    uv_loop_t loop;
    struct shell *shell;
    struct node *node; /* asked for figures of checkpoints */
    struct machine *m;
    struct shell_calls calls;
    struct identity id;
    struct signer signer;
    struct frame_rule rule;
    struct run_terms terms; /* as CONFIGURED or STAGED said it last */
    /* Reports but PROGRESS and DOWNLOADING, which are counted only. */
    struct local_event told[TOLD_MAX];
    uint32_t n_told, n_counted;
    uint64_t tokens; /* trained, as PROGRESS said it last */
    bool shell_closing, shell_closed, machine_closing, machine_closed;
};

/* ---- directories --------------------------------------------------------- */

static char rigs_dir[] = "/tmp/loco-rig-XXXXXX";
static unsigned n_rigs;

static inline int make_rigs_dir(void **state)
{
    (void)state;
    memcpy(rigs_dir + sizeof rigs_dir - 7, "XXXXXX", 6);
    n_rigs = 0;
    return mkdtemp(rigs_dir) == NULL ? -1 : 0;
}

static inline int
remove_one(const char *path, const struct stat *st, int kind, struct FTW *at)
{
    (void)st;
    (void)kind;
    (void)at;
    return remove(path);
}

static inline int remove_rigs_dir(void **state)
{
    (void)state;
    return nftw(rigs_dir, remove_one, 8, FTW_DEPTH | FTW_PHYS);
}

#define CASE(f)                                                                \
    cmocka_unit_test_setup_teardown(f, make_rigs_dir, remove_rigs_dir)

/* Full path of a name in the state directory; valid until the next call. */
static inline const char *rig_path(const struct rig *g, const char *name)
{
    static char path[512];

    (void)snprintf(path, sizeof path, "%s/%s", g->dir, name);
    return path;
}

static inline bool is_there(const struct rig *g, const char *name)
{
    return access(rig_path(g, name), F_OK) == 0;
}

static inline void
put_file(const struct rig *g, const char *name, const void *bytes, size_t len)
{
    FILE *f = fopen(rig_path(g, name), "wb");

    assert_non_null(f);
    assert_int_equal(fwrite(bytes, 1, len, f), len);
    assert_int_equal(fclose(f), 0);
}

/* ---- the run ------------------------------------------------------------- */

/* Its one round is a step of one sequence; no text yet. */
static inline struct rig *make_rig(const char *preset)
{
    struct rig *g = calloc(1, sizeof *g);
    const struct preset *p;
    struct manifest *f;

    assert_non_null(g);
    (void)snprintf(g->dir, sizeof g->dir, "%s/%u", rigs_dir, n_rigs++);
    assert_int_equal(mkdir(g->dir, 0700), 0);
    assert_int_equal(mkdir(rig_path(g, STATE_DIR_SHARDS), 0700), 0);
    assert_int_equal(mkdir(rig_path(g, STATE_DIR_ROUNDS), 0700), 0);
    config_init(&g->settings);
    g->settings.threads = 1;
    g->time_scale = 1;
    f = &g->manifest;
    manifest_default(f);
    assert_int_equal(preset_find(preset, &p, NULL), 0);
    manifest_from_preset(f, p);
    f->sync.period = 1;
    (void)snprintf(f->name, sizeof f->name, "rig");
    (void)snprintf(f->data.tokenizer, sizeof f->data.tokenizer, "byte");
    f->model.dim = RIG_DIM;
    f->model.ffn = RIG_FFN;
    f->model.heads = f->model.kv_heads = 2;
    f->model.layers = 1;
    f->model.seq = f->inner.seq = RIG_SEQ;
    f->model.tied = true;
    f->model.vocab = 256;
    f->inner.batch = f->inner.micro_batch = 1;
    f->inner.warmup = 0;
    return g;
}

/* So many parameters: the vocabulary is as large as it takes. */
static inline void set_size(struct rig *g, uint64_t n)
{
    g->manifest.model.vocab = (uint32_t)((n - RIG_REST) / RIG_DIM);
}

static inline void set_wire(struct rig *g, const char *wire)
{
    struct manifest_sync *s = &g->manifest.sync;
    const char *topology = codec_adds(codec_find(wire)) ? "ring" : "butterfly";

    (void)snprintf(s->wire, sizeof s->wire, "%s", wire);
    (void)snprintf(s->topology, sizeof s->topology, "%s", topology);
}

/* A shard of the run; where its file is, is another matter. */
static inline struct manifest_shard *
name_shard(struct rig *g, const char *name, const void *bytes, size_t len)
{
    struct manifest_data *data = &g->manifest.data;
    struct manifest_shard *s = &data->shards[data->n_shards++];

    (void)snprintf(s->name, sizeof s->name, "%s", name);
    s->bytes = len;
    s->tokens = len > SHARD_HEADER_BYTES ? len - SHARD_HEADER_BYTES : 1;
    hash_tree(bytes, len, &s->blake2b);
    return s;
}

#define TEXT_TOKENS 2000
#define TEXT_BYTES  (SHARD_HEADER_BYTES + TEXT_TOKENS)

/* The file of a shard of byte tokens. */
static inline void make_text(uint8_t file[TEXT_BYTES])
{
    const struct shard_info info = {.tokens = TEXT_TOKENS,
                                    .text_bytes = TEXT_TOKENS,
                                    .vocab = 256,
                                    .token_bytes = 1,
                                    .tokenizer = "byte",
                                    .licence = "CC0-1.0",
                                    .source = "rig.h"};
    char errmsg[ERRMSG_SIZE];

    assert_int_equal(shard_header_encode(file, &info, errmsg), 0);
    for (size_t i = 0; i < TEXT_TOKENS; i++) {
        file[SHARD_HEADER_BYTES + i] = (uint8_t)('a' + i * i % 23);
    }
}

/* Text that is here. */
static inline void add_text(struct rig *g, const char *name, bool val)
{
    uint8_t file[TEXT_BYTES];
    char path[128];

    make_text(file);
    name_shard(g, name, file, sizeof file)->val = val;
    (void)snprintf(path, sizeof path, STATE_DIR_SHARDS "/%s", name);
    put_file(g, path, file, sizeof file);
}

/* ---- events -------------------------------------------------------------- */

static inline void step(void *self, const struct event *event, struct out *out)
{
    struct rig *g = self;
    const struct local_event *e = &event->local;

    (void)out;
    if (event->type != EVENT_LOCAL) {
        return;
    }
    g->n_counted++;
    if (e->type == LOCAL_PROGRESS || e->type == LOCAL_DOWNLOADING) {
        g->tokens = e->type == LOCAL_PROGRESS ? e->progress.tokens : g->tokens;
        return;
    }
    if (e->rc == 0 && e->type == LOCAL_CONFIGURED) {
        g->terms = *e->configured.terms;
    } else if (e->rc == 0 && e->type == LOCAL_STAGED) {
        g->terms = *e->staged.terms;
    }
    assert_true(g->n_told < TOLD_MAX);
    g->told[g->n_told++] = *e;
}

static inline uint64_t deadline(const void *self)
{
    (void)self;
    return CORE_NEVER;
}

static inline void on_stop(void *data, int exit_code)
{
    (void)data;
    fail_msg("the machine stops with %d", exit_code);
}

/* Let the loop run until the flag is set, or (NULL) so much was told. */
static inline void until(struct rig *g, const bool *flag, uint32_t told)
{
    uint64_t hang_ns = uv_hrtime() + HANG_S * 1000000000ULL;

    while (flag == NULL ? g->n_told < told : !*flag) {
        (void)uv_run(&g->loop, UV_RUN_NOWAIT);
        assert_true(uv_hrtime() < hang_ns);
    }
}

static inline void give(struct rig *g, const struct job *job)
{
    g->calls.local(g->calls.self, job, NULL);
}

/* What the machine says to a job, the first of this type; all that was told
 * before is forgotten. */
static inline const struct local_event *
ask(struct rig *g, const struct job *job, enum local_type type)
{
    g->n_told = 0;
    give(g, job);
    for (uint32_t i = 0;; i++) {
        until(g, NULL, i + 1);
        if (g->told[i].type == type) {
            return &g->told[i];
        }
    }
}

/* ---- its life ------------------------------------------------------------ */

static inline void configure(struct rig *g, const uint8_t sig[SIGN_BYTES])
{
    struct out *out = calloc(1, sizeof *out);
    uint8_t *wire = malloc(MANIFEST_WIRE_MAX);
    struct job job = {.type = JOB_CONFIGURE};
    int n;

    assert_true(out != NULL && wire != NULL);
    n = manifest_pack(&g->manifest, sig, wire, MANIFEST_WIRE_MAX);
    assert_true(n > 0);
    job.configure.at = out_bytes(out, wire, (size_t)n);
    job.configure.len = (uint32_t)n;
    g->n_told = 0;
    g->calls.local(g->calls.self, &job, out);
    until(g, NULL, 1);
    assert_int_equal(g->told[0].type, LOCAL_CONFIGURED);
    assert_int_equal(g->told[0].rc, g->configured_rc);
    free(wire);
    free(out);
}

static inline void open_node(struct rig *g, const struct hash32 *run)
{
    struct node_options opt = {.self = g->id.id,
                               .signer = g->signer,
                               .run_id = *run,
                               .seed = 1,
                               .time_scale = 1};

    memcpy(opt.public_key, g->id.public, sizeof opt.public_key);
    assert_int_equal(node_open(&g->node, &opt, 0), 0);
}

/* Signed, opened and configured. */
static inline void start_rig(struct rig *g)
{
    static const uint8_t seed[SIGN_SEED_BYTES] = {7};
    struct core core = {g, step, deadline};
    struct machine_options opt = {.state_dir = g->dir,
                                  .settings = &g->settings,
                                  .reference = true,
                                  .time_scale = g->time_scale,
                                  .device = g->device,
                                  .gpu_bytes = g->gpu_bytes,
                                  .cpu_fallback = g->cpu_fallback};
    struct shell_options so;
    uint8_t sig[SIGN_BYTES];

    assert_int_equal(identity_generate(&g->id, seed), 0);
    g->signer = signer_sodium(&g->id);
    assert_int_equal(manifest_sign(&g->manifest, &g->signer, sig), 0);
    assert_int_equal(manifest_run_id(&g->manifest, &opt.run_id), 0);
    opt.self = g->id.id;
    open_node(g, &opt.run_id);
    g->shell_closing = g->shell_closed = false;
    g->machine_closing = g->machine_closed = false;
    assert_int_equal(uv_loop_init(&g->loop), 0);
    assert_int_equal(machine_open(&g->m, &g->loop, &opt, on_stop, g), 0);
    g->calls = machine_calls(g->m);
    shell_options_default(&so);
    so.signer = &g->signer;
    so.rules = &g->rule;
    so.n_rules = 1;
    assert_int_equal(shell_open(&g->shell, &g->loop, &core, &so, &g->calls), 0);
    machine_connect(g->m, g->shell, g->node);
    configure(g, sig);
}

static inline void set_flag(void *data)
{
    *(bool *)data = true;
}

static inline void close_shell(struct rig *g)
{
    if (!g->shell_closing) {
        g->shell_closing = true;
        shell_close(g->shell, set_flag, &g->shell_closed);
    }
    until(g, &g->shell_closed, 0);
}

static inline void begin_to_close_machine(struct rig *g)
{
    g->machine_closing = true;
    machine_close(g->m, set_flag, &g->machine_closed);
}

/* As the daemon does; whatever the test has done of it is not done again. */
static inline void stop_rig(struct rig *g)
{
    if (!g->machine_closing) {
        machine_disconnect(g->m);
    }
    close_shell(g);
    if (!g->machine_closing) {
        begin_to_close_machine(g);
    }
    until(g, &g->machine_closed, 0);
    (void)uv_run(&g->loop, UV_RUN_DEFAULT);
    assert_int_equal(uv_loop_close(&g->loop), 0);
    node_close(g->node);
}

static inline void close_rig(struct rig *g)
{
    stop_rig(g);
    free(g);
}

#endif
