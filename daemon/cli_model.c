/* cli_model.c - loco export, eval, generate. */
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <jansson.h>

#include "daemon/cli.h"
#include "daemon/model.h"
#include "kernels/backend.h"
#include "proto/base/err.h"
#include "train/file.h"
#include "train/generate.h"
#include "train/llama.h"
#include "train/loader.h"

_Static_assert(LOADER_NO_TARGET == LLAMA_IGNORE, "one word for not scored");

/* Sequences of one forward pass: bounds memory, changes no result. */
#define EVAL_ROWS 8

struct source {
    const char *state, *model;
};

static int source_open(struct model *m, const struct source *s)
{
    char errmsg[ERRMSG_SIZE];
    int rv;

    memset(m, 0, sizeof *m);
    if ((s->state == NULL) == (s->model == NULL)) {
        return cli_fail(LOCO_EXIT_USAGE,
                        "give one of --state DIR and --model DIR");
    }
    rv = s->state != NULL ? model_open_state(m, s->state, errmsg)
                          : model_open_export(m, s->model, errmsg);
    return rv == 0 ? 0 : cli_fail(cli_exit_of(rv), "%s", errmsg);
}

/* ---- export ------------------------------------------------------------- */

int cli_export(const struct cli_call *call)
{
    struct source source = {NULL, NULL};
    const char *format = "hf", *out = NULL;
    const struct cli_option options[] = {
        {"--state", CLI_TEXT, &source.state, "DIR", "of the daemon"},
        {"--format", CLI_TEXT, &format, "hf", "Hugging Face (hf)"},
        {"--out", CLI_TEXT, &out, "DIR", "what to write"},
    };
    char errmsg[ERRMSG_SIZE];
    struct model m;
    int rv = CLI_PARSE(call, options, NULL, 0, 0);

    if (rv != CLI_GO) {
        return rv;
    }
    if (source.state == NULL || out == NULL || strcmp(format, "hf") != 0) {
        return cli_fail(LOCO_EXIT_USAGE,
                        "export: --state DIR and --out DIR are needed; the "
                        "only format is hf");
    }
    rv = source_open(&m, &source);
    if (rv == 0) {
        rv = model_export(&m, out, errmsg);
        if (rv != 0) {
            rv = cli_fail(cli_exit_of(rv), "export: %s", errmsg);
        } else {
            (void)printf("%s: round %llu of run %.16s\n", out,
                         (unsigned long long)m.round, m.run_id);
        }
    }
    model_close(&m);
    return rv;
}

/* ---- eval --------------------------------------------------------------- */

struct score {
    double loss_sum; /* nats */
    uint64_t tokens; /* scored; with the byte tokenizer also bytes */
};

/* Rows first .. first + n_rows - 1 of the text's evaluation windows. */
static int score_rows(struct llama *llama,
                      const struct model *m,
                      const struct shard *text,
                      uint64_t first,
                      uint32_t n_rows,
                      struct score *score)
{
    size_t n = (size_t)n_rows * m->config.seq;
    uint32_t *tokens = malloc(2 * n * sizeof *tokens);
    struct llama_batch batch = {
        .tokens = tokens, .b = n_rows, .t = m->config.seq};
    uint64_t n_scored = 0;
    double sum = 0;
    int rv = LOCO_ENOMEM;

    if (tokens != NULL) {
        batch.targets = tokens + n;
        rv = eval_rows(text, m->config.seq, first, n_rows, tokens, tokens + n,
                       &n_scored);
    }
    if (rv == 0) {
        rv = llama_loss(llama, m->theta, &batch, NULL, &sum);
    }
    score->loss_sum += sum;
    score->tokens += n_scored;
    free(tokens);
    return rv;
}

static int score_text(const struct model *m,
                      const struct shard *text,
                      int threads,
                      struct score *score)
{
    uint64_t windows = eval_window_count(text, m->config.seq);
    struct backend backend;
    struct llama *llama = NULL;
    int rv = backend_cpu(&backend, threads);

    if (rv != 0) {
        return rv;
    }
    rv = llama_open(&llama, &m->config, &backend, EVAL_ROWS,
                    LLAMA_RECOMPUTE_LAYERS);
    for (uint64_t i = 0; rv == 0 && i < windows; i += EVAL_ROWS) {
        uint64_t left = windows - i;

        rv = score_rows(llama, m, text, i,
                        left < EVAL_ROWS ? (uint32_t)left : EVAL_ROWS, score);
    }
    llama_close(llama);
    backend_close(&backend);
    return rv;
}

static int print_score(const struct score *s, bool json)
{
    double loss = s->loss_sum / (double)s->tokens;
    double bits = loss / log(2.0);
    json_t *o;

    if (!json) {
        (void)printf("%.4f bits per byte, perplexity %.3f, loss %.4f over "
                     "%llu tokens\n",
                     bits, exp(loss), loss, (unsigned long long)s->tokens);
        return LOCO_EXIT_OK;
    }
    o = json_pack("{s:f, s:f, s:I, s:f}", "bits_per_byte", bits, "perplexity",
                  exp(loss), "tokens", (json_int_t)s->tokens, "loss", loss);
    (void)json_dumpf(o, stdout, JSON_PRESERVE_ORDER | JSON_REAL_PRECISION(9));
    (void)putchar('\n');
    json_decref(o);
    return LOCO_EXIT_OK;
}

static int
eval_file(const struct model *m, const char *path, int threads, bool json)
{
    struct score score = {0, 0};
    char errmsg[ERRMSG_SIZE];
    struct file_map map;
    struct shard text;
    int rv = file_map_open(&map, path, errmsg);

    if (rv != 0) {
        return cli_fail(cli_exit_of(rv), "eval: %s", errmsg);
    }
    shard_from_text(&text, map.data, map.size);
    rv = score_text(m, &text, threads, &score);
    shard_close(&text);
    file_map_close(&map);
    if (rv != 0) {
        return cli_fail(cli_exit_of(rv), "eval: %s", loco_strerror(rv));
    }
    if (score.tokens == 0) {
        return cli_fail(LOCO_EXIT_CONFIG, "eval: %s: too short", path);
    }
    return print_score(&score, json);
}

int cli_eval(const struct cli_call *call)
{
    struct source source = {NULL, NULL};
    const char *text = NULL;
    uint64_t threads = 1;
    bool json = false;
    const struct cli_option options[] = {
        {"--state", CLI_TEXT, &source.state, "DIR", "of a daemon"},
        {"--model", CLI_TEXT, &source.model, "DIR", "or an exported model"},
        {"--text", CLI_TEXT, &text, "FILE", "plain text to score"},
        {"--threads", CLI_COUNT, &threads, "K", "processor threads (1)"},
        {"--json", CLI_FLAG, &json, NULL, "print one JSON object"},
    };
    struct model m;
    int rv = CLI_PARSE(call, options, NULL, 0, 0);

    if (rv != CLI_GO) {
        return rv;
    }
    if (text == NULL || threads == 0 || threads > BACKEND_THREADS_MAX) {
        return cli_fail(LOCO_EXIT_USAGE, text == NULL
                                             ? "eval: --text FILE is missing"
                                             : "eval: --threads is 1 to 256");
    }
    rv = source_open(&m, &source);
    if (rv == 0 && m.config.vocab < 256) {
        rv = cli_fail(LOCO_EXIT_CONFIG, "eval: not a model of bytes");
    }
    if (rv == 0) {
        rv = eval_file(&m, text, (int)threads, json);
    }
    model_close(&m);
    return rv;
}

/* ---- generate ----------------------------------------------------------- */

static int print_token(void *data, uint32_t token)
{
    (void)data;
    (void)putchar((int)(token & 0xff));
    return 0;
}

static int generate_text(const struct model *m,
                         const char *prompt,
                         struct generate_options *opt)
{
    size_t n = strlen(prompt);
    uint32_t *tokens = malloc((n + 1) * sizeof *tokens);
    struct backend backend;
    struct llama *llama = NULL;
    int rv = backend_cpu(&backend, 1);

    if (rv != 0 || tokens == NULL) {
        free(tokens);
        return rv != 0 ? rv : LOCO_ENOMEM;
    }
    for (size_t i = 0; i < n; i++) {
        tokens[i] = (unsigned char)prompt[i];
    }
    opt->prompt = tokens;
    opt->prompt_n = (int64_t)n;
    rv = llama_open(&llama, &m->config, &backend, 1, LLAMA_RECOMPUTE_LAYERS);
    if (rv == 0) {
        (void)fputs(prompt, stdout);
        rv = generate(llama, m->theta, opt, print_token, NULL);
        (void)putchar('\n');
    }
    llama_close(llama);
    backend_close(&backend);
    free(tokens);
    return rv;
}

int cli_generate(const struct cli_call *call)
{
    struct source source = {NULL, NULL};
    struct generate_options opt = {.temperature = 1.0, .top_p = 1.0};
    uint64_t max_tokens = 256, top_k = 0;
    const char *prompt = NULL;
    const struct cli_option options[] = {
        {"--model", CLI_TEXT, &source.model, "DIR", "an exported model"},
        {"--state", CLI_TEXT, &source.state, "DIR", "or that of a daemon"},
        {"--prompt", CLI_TEXT, &prompt, "TEXT", "how it begins"},
        {"--max-tokens", CLI_COUNT, &max_tokens, "N", "to add (256)"},
        {"--seed", CLI_COUNT, &opt.seed, "S", "same seed, same text (0)"},
        {"--temperature", CLI_REAL, &opt.temperature, "X", "0: greedy (1)"},
        {"--top-k", CLI_COUNT, &top_k, "N", "of the N likeliest (0: all)"},
        {"--top-p", CLI_REAL, &opt.top_p, "X", "of the likeliest share (1)"},
    };
    struct model m;
    int rv = CLI_PARSE(call, options, NULL, 0, 0);

    if (rv != CLI_GO) {
        return rv;
    }
    if (prompt == NULL || prompt[0] == '\0' || max_tokens > INT32_MAX ||
        top_k > UINT32_MAX) {
        return cli_fail(LOCO_EXIT_USAGE,
                        "generate: --prompt TEXT is needed, at least one byte");
    }
    opt.max_tokens = (int64_t)max_tokens;
    opt.top_k = (uint32_t)top_k;
    rv = source_open(&m, &source);
    if (rv == 0 && m.config.vocab != 256) {
        rv = cli_fail(LOCO_EXIT_CONFIG, "generate: not a model of bytes");
    }
    if (rv == 0) {
        rv = generate_text(&m, prompt, &opt);
        if (rv != 0) {
            rv = cli_fail(cli_exit_of(rv), "generate: %s", loco_strerror(rv));
        }
    }
    model_close(&m);
    return rv;
}
