/* eval.c - loco eval: how well a model predicts a text, or, with --task,
 * answers questions (eval_task.h).
 *
 * The text is tokenized and cut into disjoint windows of the model's T; a
 * window's first token is given and not scored, nothing is put before it.
 * bits_per_byte divides by the bytes that the scored tokens stand for, so that
 * models with different tokenizers can be compared; perplexity and loss are
 * per token.
 */
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include <jansson.h>

#include "daemon/cli/cli.h"
#include "daemon/cli/eval_task.h"
#include "daemon/cli/source.h"
#include "kernels/backend.h"
#include "proto/base/err.h"
#include "proto/base/file.h"
#include "train/data/loader.h"
#include "train/model/llama.h"

_Static_assert(LOADER_NO_TARGET == LLAMA_IGNORE, "one word for not scored");

/* Tokens of one forward pass, at least one window: bounds memory, changes no
 * result. */
#define EVAL_TOKENS 2048

struct eval {
    struct model m;
    struct tokenizer *t;
    struct shard text; /* as tokens */
    uint32_t *ids;     /* of the text; NULL: they are its bytes */
    double loss_sum;   /* nats */
    uint64_t tokens;   /* scored */
    uint64_t bytes;    /* that they stand for */
};

/* ---- the text ----------------------------------------------------------- */

static int tokenize(struct eval *e, const struct file_map *map, char *errmsg)
{
    size_t n;
    int rv;

    if (tokenizer_is_bytes(e->t)) {
        shard_from_text(&e->text, map->data, map->size);
        return 0;
    }
    rv = tokenizer_encode_all(e->t, map->data, map->size, &e->ids, &n, errmsg);
    return rv != 0 ? rv
                   : shard_open_memory_as(&e->text, (const uint8_t *)e->ids,
                                          n * sizeof *e->ids, SHARD_U32,
                                          e->m.config.vocab, errmsg);
}

/* ---- scores ------------------------------------------------------------- */

static void count_targets(struct eval *e, const uint32_t *targets, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        size_t len = 0;

        if (targets[i] != LOADER_NO_TARGET) {
            (void)tokenizer_text(e->t, targets[i], &len);
            e->bytes += len;
        }
    }
}

/* Windows first .. first + n_rows - 1; room (2, n_rows * T). */
static int score_rows(struct eval *e,
                      struct llama *llama,
                      uint32_t *room,
                      uint64_t first,
                      uint32_t n_rows)
{
    uint32_t seq = e->m.config.seq;
    size_t n = (size_t)n_rows * seq;
    const struct llama_batch batch = {
        .tokens = room, .targets = room + n, .b = n_rows, .t = seq};
    uint64_t n_scored = 0;
    double sum = 0;
    int rv = eval_rows(&e->text, seq, first, n_rows, room, room + n, &n_scored);

    rv = rv == 0 ? llama_loss(llama, e->m.theta, &batch, NULL, &sum) : rv;
    if (rv == 0) {
        count_targets(e, room + n, n);
        e->loss_sum += sum;
        e->tokens += n_scored;
    }
    return rv;
}

static int score_text(struct eval *e, int threads)
{
    uint32_t seq = e->m.config.seq;
    uint32_t rows = seq < EVAL_TOKENS ? EVAL_TOKENS / seq : 1;
    uint64_t windows = eval_window_count(&e->text, seq);
    uint32_t *room = malloc((size_t)2 * rows * seq * sizeof *room);
    struct backend backend;
    struct llama *llama = NULL;
    int rv = backend_cpu(&backend, threads);

    if (rv != 0 || room == NULL) {
        free(room);
        return rv != 0 ? rv : LOCO_ENOMEM;
    }
    rv = llama_open(&llama, &e->m.config, &backend, rows,
                    LLAMA_RECOMPUTE_LAYERS);
    for (uint64_t i = 0; rv == 0 && i < windows; i += rows) {
        uint64_t left = windows - i;

        rv = score_rows(e, llama, room, i, left < rows ? (uint32_t)left : rows);
    }
    llama_close(llama);
    backend_close(&backend);
    free(room);
    return rv;
}

static void print_score(const struct eval *e, bool json)
{
    double loss = e->loss_sum / (double)e->tokens;
    double bits = e->loss_sum / log(2.0) / (double)e->bytes;
    json_t *o;

    if (!json) {
        (void)printf("%.4f bits per byte, perplexity %.3f, loss %.4f over "
                     "%llu tokens\n",
                     bits, exp(loss), loss, (unsigned long long)e->tokens);
        return;
    }
    o = json_pack("{s:f, s:f, s:I, s:f, s:I}", "bits_per_byte", bits,
                  "perplexity", exp(loss), "tokens", (json_int_t)e->tokens,
                  "loss", loss, "bytes", (json_int_t)e->bytes);
    (void)cli_print_json(o, JSON_REAL_PRECISION(9));
}

/* ---- the command -------------------------------------------------------- */

static int eval_file(struct eval *e, const char *path, int threads, bool json)
{
    char errmsg[ERRMSG_SIZE];
    struct file_map map;
    int rv = file_map_open(&map, path, errmsg);

    if (rv == 0) {
        rv = tokenize(e, &map, errmsg);
        if (rv == 0 && e->text.info.tokens < 2) {
            rv = errmsg_fail(errmsg, LOCO_EFORMAT,
                             "%.160s is too short to score", path);
        } else if (rv == 0) {
            rv = score_text(e, threads);
            (void)snprintf(errmsg, sizeof errmsg, "%s", loco_strerror(rv));
        }
        file_map_close(&map);
    }
    if (rv != 0) {
        return cli_fail(cli_trouble_of(rv, TROUBLE_MODEL), "eval: %s", errmsg);
    }
    print_score(e, json);
    return LOCO_EXIT_OK;
}

/* The text of --text, or the questions of --task. */
static int eval_source(const struct cli_source *from,
                       const char *text,
                       const struct eval_task *task)
{
    struct eval e = {.tokens = 0};
    int rv = cli_source_load(&e.m, &e.t, from);

    if (rv != 0) {
        return rv;
    }
    if (task->path != NULL) {
        rv = eval_task(&e.m, e.t, task);
    } else if (e.m.config.seq < 2) {
        rv = cli_fail(
            TROUBLE_MODEL,
            "eval: the model's context is one token: nothing to score");
    } else {
        rv = eval_file(&e, text, task->threads, task->json);
    }
    free(e.ids);
    tokenizer_close(e.t);
    model_close(&e.m);
    return rv;
}

static bool is_same_file(const char *a, const char *b)
{
    struct stat x, y;

    return strcmp(a, b) == 0 || (stat(a, &x) == 0 && stat(b, &y) == 0 &&
                                 x.st_dev == y.st_dev && x.st_ino == y.st_ino);
}

/* Whether a file_out of `out` would write over `in`, at its end or before. */
static bool overwrites(const char *out, const char *in)
{
    char tmp[FILE_PATH_MAX];

    (void)snprintf(tmp, sizeof tmp, "%s.tmp", out);
    return is_same_file(out, in) || is_same_file(tmp, in);
}

int cli_eval(const struct cli_call *call)
{
    struct cli_source from = {.model = NULL};
    struct eval_task task = {.prefix = EVAL_TASK_PREFIX_OF_MODEL};
    const char *text = NULL;
    uint64_t threads = 1;
    const struct cli_option options[] = {
        {"--state", CLI_LIST, &from.state, "DIR",
         "state directory of a daemon; with stages, repeat it for each stage"},
        {"--model", CLI_TEXT, &from.model, "DIR|FILE",
         "or a model that was exported, downloaded or imported"},
        {"--text", CLI_TEXT, &text, "FILE", "plain text to score"},
        {"--task", CLI_TEXT, &task.path, "FILE",
         "or multiple-choice questions, one JSON object a line: \"context\", "
         "\"choices\", \"answer\" (from 0)"},
        {"--delimiter", CLI_TEXT, &task.delimiter, "TEXT",
         "of a task: text between context and choice (one space)"},
        {"--prefix-token", CLI_COUNT, &task.prefix, "ID",
         "of a task: token for an empty context (the model's BOS or EOS)"},
        {"--samples", CLI_TEXT, &task.samples, "FILE",
         "of a task: write what each choice scored"},
        {"--tokenizer", CLI_TEXT, &from.tokenizer, "byte|FILE",
         "tokenizer to use instead of the model's"},
        {"--threads", CLI_COUNT, &threads, "K", "processor threads (1)"},
        {"--json", CLI_FLAG, &task.json, NULL, "print one JSON object"},
    };
    int rv = CLI_PARSE(call, options, NULL, 0, 0);

    if (rv != CLI_GO) {
        return rv;
    }
    if ((text == NULL) == (task.path == NULL)) {
        return cli_fail(TROUBLE_USAGE,
                        "eval: give either --text FILE or --task FILE");
    }
    if (text != NULL && (task.samples != NULL || task.delimiter != NULL ||
                         task.prefix != EVAL_TASK_PREFIX_OF_MODEL)) {
        return cli_fail(TROUBLE_USAGE, "eval: --samples, --delimiter and "
                                       "--prefix-token belong to --task");
    }
    if (task.samples != NULL && overwrites(task.samples, task.path)) {
        return cli_fail(TROUBLE_USAGE,
                        "eval: --samples would overwrite the file of --task");
    }
    if (threads == 0 || threads > BACKEND_THREADS_MAX) {
        return cli_fail(TROUBLE_USAGE, "eval: --threads is 1 to 256");
    }
    task.threads = (int)threads;
    task.delimiter = task.delimiter == NULL ? " " : task.delimiter;
    return eval_source(&from, text, &task);
}
