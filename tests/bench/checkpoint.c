/* checkpoint.c - what a checkpoint costs the trainer, and what the disk.
 *
 * use: bench_checkpoint [DIR [WIDTH [THREADS]]]
 *
 * A Llama of 4 layers and that width (768: 31 M parameters, a state of 0.25
 * GB). Per commit the trainer's thread copies the state and its own moments
 * (snapshot_make) and hashes the state (snapshot_hash), with the threads that
 * train with it; a worker writes the file beside it (checkpoint_save). The
 * first copy goes to fresh memory, the others to that of the one before.
 * Figures are seconds of processor time of one thread, which hold on a busy
 * machine; with more THREADS, and of the file, of wall time, which hold on an
 * idle one.
 */
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <time.h>

#include "daemon/machine/snapshot.h"
#include "proto/base/errmsg.h"
#include "train/replica/checkpoint.h"
#include "train/sync/preset.h"

static double seconds(clockid_t clock)
{
    struct timespec t;

    (void)clock_gettime(clock, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static struct shard text_shard(void)
{
    static uint8_t text[1 << 16];
    struct shard s;

    for (size_t i = 0; i < sizeof text; i++) {
        text[i] = (uint8_t)(i * 2654435761U >> 24);
    }
    shard_from_text(&s, text, sizeof text);
    return s;
}

static struct replica_options
options(const struct shard *shard, uint32_t width, int threads)
{
    const struct preset *p;
    char errmsg[ERRMSG_SIZE];

    if (preset_find("opendiloco", &p, errmsg) != 0) {
        exit(1);
    }
    return (struct replica_options){
        .model = {.dim = width,
                  .layers = 4,
                  .heads = 4,
                  .kv_heads = 4,
                  .ffn = 3 * width,
                  .vocab = 256,
                  .seq = 128,
                  .tied = true,
                  .rope_theta = 10000,
                  .norm_eps = 1e-5f},
        .optimizer = optimizer_defaults(),
        .schedule = {SCHEDULE_CONSTANT, 1e-3, 1e-3, 0, 0, 0},
        .method = p->method,
        .members = 2,
        .codec = codec_get(p->method.wire),
        .batch = 8,
        .micro_batch = 8,
        .seq = 128,
        .train = shard,
        .n_train = 1,
        .threads = threads,
    };
}

static int save(const struct snapshot *s, const char *dir)
{
    const struct checkpoint_vector more[] = {{"m", s->state + s->n},
                                             {"adam_u", s->moments},
                                             {"adam_v", s->moments + s->n}};
    struct checkpoint_state state = {
        .n = s->n,
        .phi = s->state,
        .more = more,
        .n_more = 3,
        .round = 1,
        .run_id = "0",
    };
    struct checkpoint c;
    char errmsg[ERRMSG_SIZE] = "";
    double wall = seconds(CLOCK_MONOTONIC),
           cpu = seconds(CLOCK_THREAD_CPUTIME_ID);
    int rv = checkpoint_save(dir, &state, NULL, 0, 1, errmsg);

    if (rv == 0) {
        (void)printf("  written: %.3f s of processor, %.3f s in all\n",
                     seconds(CLOCK_THREAD_CPUTIME_ID) - cpu,
                     seconds(CLOCK_MONOTONIC) - wall);
        wall = seconds(CLOCK_MONOTONIC);
        cpu = seconds(CLOCK_THREAD_CPUTIME_ID);
        rv = checkpoint_open_newest(&c, dir, errmsg);
        (void)printf("  read and checked: %.3f s of processor, %.3f s in all\n",
                     seconds(CLOCK_THREAD_CPUTIME_ID) - cpu,
                     seconds(CLOCK_MONOTONIC) - wall);
        checkpoint_close(&c);
    }
    if (rv != 0) {
        (void)fprintf(stderr, "%s\n", errmsg);
    }
    return rv;
}

int main(int argc, char **argv)
{
    const char *dir = argc > 1 ? argv[1] : "bench-checkpoint";
    uint32_t width = argc > 2 ? (uint32_t)strtoul(argv[2], NULL, 10) : 768;
    struct shard shard = text_shard();
    int threads = argc > 3 ? (int)strtol(argv[3], NULL, 10) : 1;
    clockid_t clock = threads > 1 ? CLOCK_MONOTONIC : CLOCK_THREAD_CPUTIME_ID;
    struct replica_options opt = options(&shard, width, threads);
    struct hash32 params, rest;
    struct replica r;
    char errmsg[ERRMSG_SIZE];
    struct snapshot *s = NULL;
    double gb, at[5];
    float loss;
    int rv;

    (void)mkdir(dir, 0777);
    if (replica_open(&r, &opt, errmsg) != 0) {
        (void)fprintf(stderr, "%s\n", errmsg);
        return 1;
    }
    replica_init(&r);
    (void)replica_step(&r, &loss); /* touches everything once */
    for (int turn = 0; turn < 3; turn++) {
        at[0] = seconds(clock);
        (void)replica_step(&r, &loss);
        at[1] = seconds(clock);
        s = snapshot_make(&r, s);
        at[2] = seconds(clock);
        if (s == NULL) {
            return 1;
        }
        snapshot_hash(&r, s, &params, &rest);
        at[3] = seconds(clock);
        gb = (double)s->n_state * sizeof(float) * 1e-9;
        (void)printf("%.1f M parameters, a state of %.3f GB, a file of %.3f "
                     "GB\n"
                     "  inner step of 1,024 tokens: %.3f s\n"
                     "  copy: %.3f s, %.3f s/GB of state\n"
                     "  hash: %.3f s, %.3f s/GB of state\n",
                     (double)s->n * 1e-6, gb,
                     gb + 2.0 * (double)s->n * sizeof(float) * 1e-9,
                     at[1] - at[0], at[2] - at[1], (at[2] - at[1]) / gb,
                     at[3] - at[2], (at[3] - at[2]) / gb);
        rv = turn == 2 ? save(s, dir) : 0;
    }
    snapshot_free(s);
    replica_close(&r);
    return rv == 0 ? 0 : 1;
}
