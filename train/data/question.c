/* question.c - see question.h. */
#include "train/data/question.h"

#include <jansson.h>
#include <stdbool.h>
#include <string.h>

#include "proto/base/err.h"
#include "proto/base/errmsg.h"

static struct question_text text_of(const json_t *value)
{
    return (struct question_text){json_string_value(value),
                                  json_string_length(value)};
}

static int parse_choices(struct question *q, char *errmsg)
{
    const json_t *list = json_object_get(q->line, "choices");
    size_t n = json_array_size(list);

    if (n < 2 || n > QUESTION_CHOICES_MAX) {
        return errmsg_fail(errmsg, LOCO_EFORMAT,
                           "\"choices\" is not a list of 2 to %d texts",
                           QUESTION_CHOICES_MAX);
    }
    for (size_t i = 0; i < n; i++) {
        const json_t *value = json_array_get(list, i);

        if (json_string_length(value) == 0) {
            return errmsg_fail(errmsg, LOCO_EFORMAT,
                               "\"choices\": number %zu, from 0, is %s", i,
                               json_is_string(value) ? "empty" : "no text");
        }
        q->choices[i] = text_of(value);
    }
    q->n = (uint32_t)n;
    return 0;
}

static int parse(struct question *q, char *errmsg)
{
    const json_t *context = json_object_get(q->line, "context");
    const json_t *answer = json_object_get(q->line, "answer");
    int rv;

    if (!json_is_string(context)) {
        return errmsg_fail(errmsg, LOCO_EFORMAT, "%s \"context\", a text",
                           context == NULL ? "there is no"
                                           : "something else is");
    }
    q->context = text_of(context);
    rv = parse_choices(q, errmsg);
    if (rv != 0) {
        return rv;
    }
    if (!json_is_integer(answer) || json_integer_value(answer) < 0 ||
        json_integer_value(answer) >= (json_int_t)q->n) {
        return errmsg_fail(errmsg, LOCO_EFORMAT,
                           "\"answer\" is not 0 to %u, the place of a choice",
                           q->n - 1);
    }
    q->answer = (uint32_t)json_integer_value(answer);
    return 0;
}

int question_parse(struct question *q,
                   const char *line,
                   size_t len,
                   char *errmsg)
{
    json_error_t where = {.text = ""};

    memset(q, 0, sizeof *q);
    if (len > QUESTION_BYTES_MAX) {
        return errmsg_fail(errmsg, LOCO_EFORMAT,
                           "a line of %zu bytes; at most %zu are read", len,
                           QUESTION_BYTES_MAX);
    }
    q->line =
        json_loadb(line, len, JSON_ALLOW_NUL | JSON_REJECT_DUPLICATES, &where);
    if (q->line == NULL) {
        return errmsg_fail(errmsg, LOCO_EFORMAT, "line cannot be read: %.80s",
                           where.text);
    }
    if (!json_is_object(q->line)) {
        return errmsg_fail(errmsg, LOCO_EFORMAT, "not a JSON object");
    }
    return parse(q, errmsg);
}

void question_close(struct question *q)
{
    json_decref(q->line);
    q->line = NULL;
}

static bool is_tail(char byte)
{
    return ((unsigned char)byte & 0xc0) == 0x80;
}

size_t question_characters(const struct question_text *t)
{
    size_t n = 0;

    for (size_t i = 0; i < t->len; i++) {
        n += !is_tail(t->bytes[i]);
    }
    return n;
}

/* The code point that ends before `end`; *len: its bytes. JSON was UTF-8. */
static uint32_t last_point(const struct question_text *t, size_t end, int *len)
{
    uint32_t point = 0;
    unsigned shift = 0;
    size_t at = end;

    while (at > 0 && shift < 18 && is_tail(t->bytes[at - 1])) {
        point |= ((uint32_t)(unsigned char)t->bytes[--at] & 0x3f) << shift;
        shift += 6;
    }
    *len = (int)(end - at) + 1;
    if (at == 0) {
        *len = 0;
        return 0;
    }
    /* A head of k bytes has 7 - k bits of the point; 7 where it is alone. */
    point |= ((uint32_t)(unsigned char)t->bytes[at - 1] &
              (shift == 0 ? 0x7fU : 0x3fU >> (shift / 6)))
             << shift;
    return point;
}

static bool is_space(uint32_t c)
{
    static const uint32_t spaces[] = {0x20,   0x85,   0xa0,   0x1680, 0x2028,
                                      0x2029, 0x202f, 0x205f, 0x3000};

    for (size_t i = 0; i < sizeof spaces / sizeof spaces[0]; i++) {
        if (c == spaces[i]) {
            return true;
        }
    }
    return (c >= 0x09 && c <= 0x0d) || (c >= 0x1c && c <= 0x1f) ||
           (c >= 0x2000 && c <= 0x200a);
}

size_t question_space(const struct question_text *t)
{
    size_t end = t->len;
    int len;

    while (end > 0 && is_space(last_point(t, end, &len)) && len > 0) {
        end -= (size_t)len;
    }
    return t->len - end;
}
