/* eval_task.c - see eval_task.h.
 *
 * Happy path: `read_lines` parses a line and turns each choice into a request;
 * when enough requests are there, `flush` sorts them by length, runs them in
 * batches and counts their questions.
 */
#include "daemon/cli/eval_task.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <jansson.h>

#include "daemon/cli/cli.h"
#include "daemon/cli/task_score.h"
#include "kernels/backend.h"
#include "proto/base/err.h"
#include "proto/base/file.h"
#include "train/data/continuation.h"
#include "train/model/hf_config.h"
#include "train/model/llama.h"

_Static_assert(CONTINUATION_NOT_SCORED == LLAMA_IGNORE, "one word for it");
_Static_assert(CONTINUATION_NO_PREFIX == HF_NO_TOKEN, "one word for it");

/* Tokens of one forward pass, at least one sequence: bounds memory. A window
 * that is longer is there only once a request needs it. */
#define PASS_TOKENS 2048
/* Requests that wait for one another: the more, the closer in length are those
 * that share a pass. One question more always fits. */
#define REQUESTS_ENOUGH 64
#define REQUESTS_MAX    (REQUESTS_ENOUGH + QUESTION_CHOICES_MAX)

/* A question whose choices are requests first .. first + n - 1. */
struct item {
    size_t line;
    size_t first;
    uint32_t n, answer;
};

struct work {
    const struct model *m;
    const struct eval_task *task;
    struct continuation_options opt;
    struct backend backend;
    bool has_backend;
    struct llama *llama;
    uint32_t window;     /* that llama is open for, at most the model's seq */
    uint32_t *room;      /* (2, pass_tokens): tokens, targets */
    int64_t pass_tokens; /* a multiple of the window */
    struct item items[REQUESTS_MAX];
    size_t n_items;
    /* of each request */
    struct continuation requests[REQUESTS_MAX];
    size_t characters[REQUESTS_MAX];
    double log_likelihoods[REQUESTS_MAX];
    size_t n_requests;
    struct task_score score;
    struct file_out samples;
    bool to_samples;
    enum trouble bad; /* what an error of form is about */
    char errmsg[ERRMSG_SIZE];
};

/* ---- the model ---------------------------------------------------------- */

/* Closed before it is opened again: the two never need memory at once. */
static int open_window(struct work *w, uint32_t window)
{
    struct llama_config c = w->m->config;
    uint32_t rows = window < PASS_TOKENS ? PASS_TOKENS / window : 1;
    int rv;

    llama_close(w->llama);
    w->llama = NULL;
    free(w->room);
    w->window = c.seq = window;
    w->pass_tokens = (int64_t)rows * window;
    w->room = malloc((size_t)w->pass_tokens * 2 * sizeof *w->room);
    rv = w->room == NULL ? LOCO_ENOMEM
                         : llama_open(&w->llama, &c, &w->backend, rows,
                                      LLAMA_RECOMPUTE_LAYERS);
    if (rv == LOCO_ENOMEM) {
        return errmsg_fail(w->errmsg, rv,
                           "out of memory for sequences of %u tokens; loco "
                           "import --seq N makes a model that reads fewer",
                           window);
    }
    w->bad = rv == 0 ? w->bad : TROUBLE_MODEL;
    return rv == 0 ? 0 : errmsg_fail(w->errmsg, rv, "%s", loco_strerror(rv));
}

/* Doubled, so that it is seldom done. */
static int widen(struct work *w, size_t tokens)
{
    uint32_t window = w->window;

    while (window < tokens) {
        window = window > w->opt.seq / 2 ? w->opt.seq : 2 * window;
    }
    return window == w->window ? 0 : open_window(w, window);
}

/* ---- scores ------------------------------------------------------------- */

struct place {
    size_t request, tokens;
};

/* The longest first: the first of a batch says how long its rows are. */
static int compare_places(const void *a, const void *b)
{
    const struct place *x = a, *y = b;

    if (x->tokens != y->tokens) {
        return x->tokens < y->tokens ? 1 : -1;
    }
    return x->request < y->request ? -1 : 1;
}

static int score_batch(struct work *w, const struct place *places, int64_t n)
{
    int64_t t = (int64_t)places[0].tokens - 1;
    uint32_t *targets = w->room + w->pass_tokens;
    double losses[REQUESTS_MAX];
    const struct llama_batch batch = {
        .tokens = w->room, .targets = targets, .b = n, .t = t};
    int rv;

    for (int64_t i = 0; i < n; i++) {
        continuation_row(&w->requests[places[i].request], t, w->room + i * t,
                         targets + i * t);
    }
    rv = llama_row_losses(w->llama, w->m->theta, &batch, losses);
    if (rv != 0) {
        w->bad = TROUBLE_MODEL;
        return errmsg_fail(w->errmsg, LOCO_EINVAL,
                           "the model cannot score it: %s", loco_strerror(rv));
    }
    for (int64_t i = 0; i < n; i++) {
        w->log_likelihoods[places[i].request] = -losses[i];
    }
    return 0;
}

static int score_requests(struct work *w)
{
    struct place places[REQUESTS_MAX];
    size_t n = w->n_requests;
    int rv;

    for (size_t i = 0; i < n; i++) {
        places[i] = (struct place){i, w->requests[i].n};
    }
    qsort(places, n, sizeof *places, compare_places);
    rv = n == 0 ? 0 : widen(w, places[0].tokens - 1);
    for (size_t i = 0; rv == 0 && i < n;) {
        size_t fit = (size_t)w->pass_tokens / (places[i].tokens - 1);
        size_t rows = n - i < fit ? n - i : fit;

        rv = score_batch(w, places + i, (int64_t)rows);
        i += rows;
    }
    return rv;
}

/* ---- questions ---------------------------------------------------------- */

static int
write_sample(struct work *w, const struct item *q, const struct task_answers *a)
{
    json_t *scores = json_array(), *tokens = json_array();
    json_t *o =
        json_pack("{s:I, s:I, s:I, s:I}", "line", (json_int_t)q->line, "answer",
                  (json_int_t)q->answer, "picked", (json_int_t)a->picked,
                  "picked_norm", (json_int_t)a->picked_norm);
    char *text;
    int rv;

    for (uint32_t i = 0; i < q->n; i++) {
        json_array_append_new(scores, json_real(a->log_likelihoods[i]));
        json_array_append_new(
            tokens,
            json_integer((json_int_t)w->requests[q->first + i].n_scored));
    }
    json_object_set_new(o, "log_likelihoods", scores);
    json_object_set_new(o, "tokens", tokens);
    text = json_dumps(o, JSON_PRESERVE_ORDER | JSON_REAL_PRECISION(9));
    json_decref(o);
    if (text == NULL) {
        return errmsg_fail(w->errmsg, LOCO_ENOMEM, "out of memory");
    }
    rv = file_out_write(&w->samples, text, strlen(text), w->errmsg);
    rv = rv == 0 ? file_out_write(&w->samples, "\n", 1, w->errmsg) : rv;
    free(text);
    return rv;
}

static void forget(struct work *w)
{
    for (size_t i = 0; i < w->n_requests; i++) {
        continuation_free(&w->requests[i]);
    }
    w->n_requests = w->n_items = 0;
}

static int flush(struct work *w)
{
    int rv = score_requests(w);

    for (size_t i = 0; rv == 0 && i < w->n_items; i++) {
        const struct item *q = &w->items[i];
        struct task_answers a = {
            .n = q->n,
            .answer = q->answer,
            .log_likelihoods = w->log_likelihoods + q->first,
            .characters = w->characters + q->first,
        };

        task_score_add(&w->score, &a);
        rv = w->to_samples ? write_sample(w, q, &a) : 0;
    }
    forget(w);
    return rv;
}

static int add_question(struct work *w, const struct question *q, size_t line)
{
    char problem[ERRMSG_SIZE];

    w->items[w->n_items++] =
        (struct item){line, w->n_requests, q->n, q->answer};
    for (uint32_t i = 0; i < q->n; i++) {
        int rv = continuation_encode(&w->requests[w->n_requests], &w->opt,
                                     &q->context, w->task->delimiter,
                                     &q->choices[i], problem);

        if (rv != 0) {
            return errmsg_fail(w->errmsg, rv, "choice %u, from 0: %.200s", i,
                               problem);
        }
        w->characters[w->n_requests++] = question_characters(&q->choices[i]);
    }
    return 0;
}

static int read_line(struct work *w, const char *p, size_t len, size_t line)
{
    struct question q;
    char problem[ERRMSG_SIZE];
    int rv = question_parse(&q, p, len, w->errmsg);

    rv = rv == 0 ? add_question(w, &q, line) : rv;
    question_close(&q);
    if (rv != 0) {
        (void)snprintf(problem, sizeof problem, "%s", w->errmsg);
        return errmsg_fail(w->errmsg, rv, "%.90s:%zu: %.150s", w->task->path,
                           line, problem);
    }
    return w->n_requests < REQUESTS_ENOUGH ? 0 : flush(w);
}

static void show_progress(const struct work *w, double part)
{
    if (isatty(STDERR_FILENO)) {
        (void)fprintf(stderr, "\r%3.0f%%  %llu questions ", 100 * part,
                      (unsigned long long)w->score.questions);
        (void)fflush(stderr);
    }
}

static void clear_progress(void)
{
    if (isatty(STDERR_FILENO)) {
        (void)fputs("\r\x1b[K", stderr);
    }
}

static int read_lines(struct work *w, const struct file_map *map)
{
    const char *begin = (const char *)map->data;
    const char *end = begin + map->size;
    int rv = 0;
    size_t line = 1;

    for (const char *p = begin; rv == 0 && p < end; line++) {
        const char *newline = memchr(p, '\n', (size_t)(end - p));
        size_t len = (size_t)((newline == NULL ? end : newline) - p);
        size_t blank = 0;

        while (blank < len && strchr(" \t\r", p[blank]) != NULL &&
               p[blank] != '\0') {
            blank++;
        }
        if (blank < len) {
            rv = read_line(w, p, len, line);
        }
        if (w->n_requests == 0) {
            show_progress(w, (double)(p - begin) / (double)map->size);
        }
        p += len + (newline != NULL);
    }
    rv = rv == 0 ? flush(w) : rv;
    clear_progress();
    if (rv == 0 && w->score.questions == 0) {
        rv = errmsg_fail(w->errmsg, LOCO_EFORMAT, "%.160s has no question",
                         w->task->path);
    }
    return rv;
}

/* ---- the command -------------------------------------------------------- */

/* What stands for an empty context: the token that begins a text, else the one
 * that ends it, where the tokenizer treats it as such. */
static uint32_t prefix_of(const struct model *m, const struct tokenizer *t)
{
    if (tokenizer_is_added(t, m->bos)) {
        return m->bos;
    }
    return tokenizer_is_added(t, m->eos) ? m->eos : CONTINUATION_NO_PREFIX;
}

static int check(struct work *w)
{
    const struct tokenizer_around *around = tokenizer_around(w->opt.tokenizer);
    uint64_t prefix = w->task->prefix;

    if (prefix != EVAL_TASK_PREFIX_OF_MODEL && prefix >= w->m->config.vocab) {
        w->bad = TROUBLE_USAGE;
        return errmsg_fail(w->errmsg, LOCO_EFORMAT,
                           "--prefix-token %llu: the model has tokens 0 to %u",
                           (unsigned long long)prefix, w->m->config.vocab - 1);
    }
    if (around->refused[0] != '\0') {
        w->bad = TROUBLE_MODEL;
        return errmsg_fail(
            w->errmsg, LOCO_EFORMAT,
            "the tokenizer puts tokens around a text in a way that this "
            "version does not know (post_processor \"%s\"), so that scores "
            "could not be compared; name another with --tokenizer",
            around->refused);
    }
    w->opt.prefix = prefix != EVAL_TASK_PREFIX_OF_MODEL
                        ? (uint32_t)prefix
                        : prefix_of(w->m, w->opt.tokenizer);
    return 0;
}

static int open_model(struct work *w)
{
    uint32_t seq = w->m->config.seq;
    int rv = backend_cpu(&w->backend, w->task->threads);

    if (rv != 0) {
        return errmsg_fail(w->errmsg, rv, "%s", loco_strerror(rv));
    }
    w->has_backend = true;
    w->opt.seq = seq;
    rv = tokenizer_encoder_open(&w->opt.encoder, w->opt.tokenizer);
    if (rv != 0) {
        return errmsg_fail(w->errmsg, rv, "%s", loco_strerror(rv));
    }
    return open_window(w, seq < PASS_TOKENS ? seq : PASS_TOKENS);
}

static void close_model(struct work *w)
{
    llama_close(w->llama);
    tokenizer_encoder_close(w->opt.encoder);
    if (w->has_backend) {
        backend_close(&w->backend);
    }
    free(w->room);
}

static int run(struct work *w)
{
    struct file_map map;
    int rv = check(w);

    rv = rv == 0 ? file_map_open(&map, w->task->path, w->errmsg) : rv;
    if (rv != 0) {
        return rv;
    }
    rv = open_model(w);
    if (rv == 0 && w->task->samples != NULL) {
        rv = file_out_open(&w->samples, w->task->samples, w->errmsg);
        w->to_samples = rv == 0;
    }
    rv = rv == 0 ? read_lines(w, &map) : rv;
    forget(w);
    if (w->to_samples && rv == 0) {
        rv = file_out_commit(&w->samples, w->errmsg);
    } else if (w->to_samples) {
        file_out_abort(&w->samples);
    }
    close_model(w);
    file_map_close(&map);
    return rv;
}

int eval_task(const struct model *m,
              const struct tokenizer *t,
              const struct eval_task *task)
{
    struct work *w = calloc(1, sizeof *w);
    int rv;

    if (w == NULL) {
        return cli_fail(TROUBLE_RESOURCES, "eval: out of memory");
    }
    w->m = m;
    w->task = task;
    w->opt.tokenizer = t;
    w->bad = TROUBLE_DATA;
    rv = run(w);
    rv = rv == 0 ? task_score_print(&w->score, task->json)
                 : cli_fail(cli_trouble_of(rv, w->bad), "eval: %s", w->errmsg);
    free(w);
    return rv;
}
