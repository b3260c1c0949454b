/* question_fuzz.c - any bytes as a line of questions: what passes has the
 * shape that question.h promises, and can be cut into continuations. */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include "proto/base/errmsg.h"
#include "train/data/continuation.h"
#include "train/data/question.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_text(const struct question_text *t)
{
    if (t->bytes == NULL || question_characters(t) > t->len ||
        question_space(t) > t->len) {
        abort();
    }
}

static void check_continuation(const struct continuation_options *opt,
                               const struct question *q,
                               uint32_t choice)
{
    char errmsg[ERRMSG_SIZE];
    struct continuation c;

    if (continuation_encode(&c, opt, &q->context, " ", &q->choices[choice],
                            errmsg) != 0) {
        return;
    }
    if (c.n < 2 || c.n > (size_t)opt->seq + 1 || c.n_scored < 1 ||
        c.n_scored >= c.n) {
        abort();
    }
    continuation_free(&c);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char errmsg[ERRMSG_SIZE];
    struct question q;
    struct tokenizer *t;
    struct continuation_options opt = {.prefix = 10, .seq = 16};

    if (question_parse(&q, (const char *)data, size, errmsg) == 0) {
        if (q.n < 2 || q.n > QUESTION_CHOICES_MAX || q.answer >= q.n) {
            abort();
        }
        check_text(&q.context);
        if (tokenizer_open_bytes(&t, errmsg) == 0 &&
            tokenizer_encoder_open(&opt.encoder, t) == 0) {
            opt.tokenizer = t;
            for (uint32_t i = 0; i < q.n; i++) {
                check_text(&q.choices[i]);
                check_continuation(&opt, &q, i);
            }
            tokenizer_encoder_close(opt.encoder);
        }
        tokenizer_close(t);
    }
    question_close(&q);
    return 0;
}
