/* question.h - a multiple-choice question: one line of JSON.
 *
 *   {"context": "The river", "choices": ["runs.", "reads."], "answer": 0}
 *
 * `context` is what the model is given, possibly empty; `choices` are 2 to
 * QUESTION_CHOICES_MAX texts that may follow, none of them empty; `answer` is
 * the place of the right one, from 0. Other keys are left alone, but the whole
 * line has to be JSON that can be read: no key twice in an object, no NaN or
 * Infinity, no number beyond 64 bits.
 *
 * Texts are UTF-8, point into the parsed line and may hold NULs.
 *
 * How it fails: LOCO_EFORMAT with a sentence that names the key; LOCO_ENOMEM.
 */
#ifndef LOCO_TRAIN_DATA_QUESTION_H
#define LOCO_TRAIN_DATA_QUESTION_H

#include <stddef.h>
#include <stdint.h>

#define QUESTION_BYTES_MAX   ((size_t)1 << 20) /* of a line */
#define QUESTION_CHOICES_MAX 64

struct question_text {
    const char *bytes;
    size_t len;
};

struct json_t;
struct question {
    struct question_text context;
    struct question_text choices[QUESTION_CHOICES_MAX];
    uint32_t n; /* choices */
    uint32_t answer;
    struct json_t *line; /* owns the texts */
};

/* question_close() afterwards, whatever the result. */
int question_parse(struct question *q,
                   const char *line,
                   size_t len,
                   char *errmsg);
void question_close(struct question *q); /* idempotent */

/* Code points. */
size_t question_characters(const struct question_text *t);

/* Bytes of white space at its end: what Python's str.rstrip() takes away, the
 * spaces of Unicode included. */
size_t question_space(const struct question_text *t);

#endif
