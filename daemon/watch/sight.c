/* sight.c - see watch/sight.h. */
#include "daemon/watch/sight.h"

#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "proto/base/err.h"

#define COUNT_MAX 9007199254740991 /* 2^53 - 1: what a page counts to */
#define KEY_MAX   32

enum kind {
    TEXT,  /* `limit`: bytes; cut */
    WHOLE, /* the same, but null where it is longer */
    HEX,   /* of so many digits */
    FLAG,
    COUNT,
    REAL,  /* from 0 to `limit` */
    OBJECT /* of the rows after it that begin with its key; null: not there */
};

/* A key of daemon/API.md each. */
static const struct row {
    const char *key;
    enum kind kind;
    double limit;
} rows[] = {
    {"version", TEXT, 32},
    {"pid", COUNT, 0},
    {"state", TEXT, 16},
    {"reason", TEXT, SIGHT_REASON_MAX},
    {"fork", FLAG, 0},
    {"peer_id", HEX, 64},
    {"run_id", HEX, 64},
    {"run_name", TEXT, 64},
    {"round", COUNT, 0},
    {"rounds_committed", COUNT, 0},
    {"rounds_aborted", COUNT, 0},
    {"rollbacks", COUNT, 0},
    {"inner_step", COUNT, 0},
    {"tokens", COUNT, 0},
    {"tokens_per_s", REAL, 1e12},
    {"loss", REAL, 1e6},
    {"bits_per_byte", REAL, 1e6},
    {"bits_per_byte_before", REAL, 1e6},
    {"peers_alive", COUNT, 0},
    {"peers_in_round", COUNT, 0},
    {"peers_on_probation", COUNT, 0},
    {"bytes_sent", COUNT, 0},
    {"bytes_received", COUNT, 0},
    {"last_round_ms", COUNT, 0},
    {"progress", REAL, 1},
    {"eta_s", REAL, 1e10},
    {"reachability", TEXT, 16},
    {"reachability_reason", TEXT, SIGHT_REASON_MAX},
    {"params_hash", HEX, 64},
    {"probation", OBJECT, 0},
    {"probation.offered", COUNT, 0},
    {"probation.of", COUNT, 0},
    {"probation.left_s", REAL, 1e10},
    {"links", OBJECT, 0},
    {"links.dialled", COUNT, 0},
    {"links.accepted", COUNT, 0},
    {"links.relayed", COUNT, 0},
    {"fetch", OBJECT, 0},
    {"fetch.bytes", COUNT, 0},
    {"fetch.of_bytes", COUNT, 0},
    {"fetch.bytes_per_s", COUNT, 0},
    {"shards", OBJECT, 0},
    {"shards.here", COUNT, 0},
    {"shards.of", COUNT, 0},
    {"stage", OBJECT, 0},
    {"stage.number", COUNT, 0},
    {"stage.of", COUNT, 0},
    {"stage.queue", REAL, 1e9},
    {"stage.idle", REAL, 1},
    {"share", OBJECT, 0},
    {"share.uri", WHOLE, 2600},
    {"share.scope", TEXT, 16},
    {"share.reason", TEXT, SIGHT_REASON_MAX},
    {"caps", OBJECT, 0},
    {"caps.upload_bytes_per_s", COUNT, 0},
    {"caps.download_bytes_per_s", COUNT, 0},
    {"caps.bytes_per_month", COUNT, 0},
    {"caps.bytes_this_month", COUNT, 0},
    {"caps.cpu_percent", COUNT, 0},
};

/* Those of one entry of `peers_lost`. */
static const struct row lost_rows[] = {
    {"peer_id", HEX, 64},
    {"round", COUNT, 0},
    {"reason", TEXT, SIGHT_REASON_MAX},
};

#define N_OF(array) (sizeof(array) / sizeof((array)[0]))

/* ---- texts -------------------------------------------------------------- */

/* The character that begins at text[0] of `len` bytes: its bytes, and *point;
 * 0: it is no UTF-8. */
static size_t character(const char *text, size_t len, uint32_t *point)
{
    static const uint32_t least[] = {0, 0, 0x80, 0x800, 0x10000};
    const uint8_t *b = (const uint8_t *)text;
    size_t n = b[0] < 0x80             ? 1
               : (b[0] & 0xe0) == 0xc0 ? 2
               : (b[0] & 0xf0) == 0xe0 ? 3
               : (b[0] & 0xf8) == 0xf0 ? 4
                                       : 0;

    if (n == 0 || n > len) {
        return 0;
    }
    *point = n == 1 ? b[0] : b[0] & (0x7fU >> n);
    for (size_t i = 1; i < n; i++) {
        if ((b[i] & 0xc0) != 0x80) {
            return 0;
        }
        *point = *point << 6 | (b[i] & 0x3f);
    }
    return *point < least[n] || *point > 0x10ffff ||
                   (*point >= 0xd800 && *point < 0xe000)
               ? 0
               : n;
}

/* Not for people: controls, what turns the direction of writing, what cannot be
 * seen, and marks above and below letters, which can be piled up. */
static bool is_hidden(uint32_t c)
{
    static const struct {
        uint32_t from, to;
    } hidden[] = {
        {0, 0x1f},        {0x7f, 0x9f},     {0xad, 0xad},
        {0x300, 0x36f},   {0x61c, 0x61c},   {0x115f, 0x1160},
        {0x180e, 0x180e}, {0x1ab0, 0x1aff}, {0x1dc0, 0x1dff},
        {0x200b, 0x200f}, {0x2028, 0x202e}, {0x2060, 0x206f},
        {0x20d0, 0x20ff}, {0x3164, 0x3164}, {0xe000, 0xf8ff},
        {0xfe00, 0xfe0f}, {0xfe20, 0xfe2f}, {0xfeff, 0xfeff},
        {0xfff0, 0xfffb}, {0xfffe, 0xffff}, {0xe0000, 0x10ffff},
    };

    for (size_t i = 0; i < N_OF(hidden); i++) {
        if (c >= hidden[i].from && c <= hidden[i].to) {
            return true;
        }
    }
    return false;
}

const char *sight_text(const char *text, size_t len, char *out, size_t size)
{
    size_t at = 0, to = 0;

    while (at < len) {
        uint32_t c = 0;
        size_t n = character(text + at, len - at, &c);
        bool shown = n > 0 && !is_hidden(c);

        if (to + (shown ? n : 1) >= size) {
            break;
        }
        if (shown) {
            memcpy(out + to, text + at, n);
            to += n;
        } else {
            out[to++] = '?';
        }
        at += n > 0 ? n : 1;
    }
    out[to] = '\0';
    return out;
}

/* ---- values ------------------------------------------------------------- */

static json_t *text_of(const json_t *v, size_t limit, bool whole)
{
    char out[4096];

    if (!json_is_string(v) || (whole && json_string_length(v) >= limit)) {
        return json_null();
    }
    limit = limit < sizeof out ? limit : sizeof out;
    return json_string(
        sight_text(json_string_value(v), json_string_length(v), out, limit));
}

static json_t *value_of(const json_t *v, const struct row *row)
{
    const char *text = json_string_value(v);
    double real = json_number_value(v);

    switch (row->kind) {
    case TEXT:
        return text_of(v, (size_t)row->limit, false);
    case WHOLE:
        return text_of(v, (size_t)row->limit, true);
    case HEX:
        return text != NULL && json_string_length(v) == (size_t)row->limit &&
                       strspn(text, "0123456789abcdef") == (size_t)row->limit
                   ? json_string(text)
                   : json_null();
    case FLAG:
        return json_is_boolean(v) ? json_boolean(json_is_true(v)) : json_null();
    case COUNT:
        return json_is_integer(v) && json_integer_value(v) >= 0 &&
                       json_integer_value(v) <= COUNT_MAX
                   ? json_integer(json_integer_value(v))
                   : json_null();
    case REAL:
        return json_is_number(v) && isfinite(real) && real >= 0 &&
                       real <= row->limit
                   ? json_real(real)
                   : json_null();
    case OBJECT:
        break;
    }
    return json_is_object(v) ? json_object() : json_null();
}

/* Where the key of a row lies: in one of its objects, or in `o` itself; *last
 * is the key there. NULL: the object is not there. */
static json_t *place(const json_t *o, const char *key, const char **last)
{
    const char *dot = strchr(key, '.');
    char name[KEY_MAX] = "";

    *last = dot == NULL ? key : dot + 1;
    if (dot == NULL) {
        return (json_t *)(uintptr_t)o;
    }
    memcpy(name, key, (size_t)(dot - key));
    return json_object_get(o, name);
}

static json_t *
object_of(const json_t *from, const struct row *row, size_t n_rows)
{
    json_t *to = json_object();

    for (size_t i = 0; to != NULL && i < n_rows; i++) {
        const char *last;
        json_t *in = place(to, row[i].key, &last);
        const json_t *of = place(from, row[i].key, &last);

        if (json_is_object(in)) {
            json_object_set_new(in, last,
                                value_of(json_object_get(of, last), &row[i]));
        }
    }
    return to;
}

static json_t *last_lost(const json_t *list)
{
    const json_t *last = NULL;

    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *one = json_array_get(list, i);

        if (json_is_object(one) &&
            (last == NULL ||
             json_integer_value(json_object_get(one, "round")) >=
                 json_integer_value(json_object_get(last, "round")))) {
            last = one;
        }
    }
    return last == NULL ? json_null()
                        : object_of(last, lost_rows, N_OF(lost_rows));
}

int sight_read(const char *text,
               size_t len,
               json_t **sight,
               char errmsg[ERRMSG_SIZE])
{
    json_t *answer = json_loadb(text, len, JSON_REJECT_DUPLICATES, NULL);
    bool is_status = json_is_string(json_object_get(answer, "state"));

    *sight = is_status ? object_of(answer, rows, N_OF(rows)) : NULL;
    if (*sight != NULL) {
        json_object_set_new(*sight, "lost",
                            last_lost(json_object_get(answer, "peers_lost")));
    }
    json_decref(answer);
    return *sight != NULL ? 0
                          : errmsg_fail(errmsg, LOCO_EFORMAT,
                                        "the answer is not the status of a "
                                        "daemon");
}

/* ---- together ----------------------------------------------------------- */

static double number(const json_t *o, const char *key, double otherwise)
{
    const json_t *v = json_object_get(o, key);

    return json_is_number(v) ? json_number_value(v) : otherwise;
}

void sight_sum_begin(struct sight_sum *s)
{
    *s = (struct sight_sum){.one_run = true,
                            .progress = -1,
                            .eta_s = -1,
                            .bits = -1,
                            .round = -1,
                            .peers = -1};
}

void sight_sum_add(struct sight_sum *s,
                   const json_t *sight,
                   bool answers,
                   const char **first_run)
{
    const char *run = json_string_value(json_object_get(sight, "run_id"));
    const char *state = json_string_value(json_object_get(sight, "state"));
    double loss = number(sight, "loss", -1), bits;

    if (sight == NULL) {
        return;
    }
    *first_run = *first_run == NULL ? run : *first_run;
    s->one_run = s->one_run && (run == NULL || strcmp(run, *first_run) == 0);
    s->sent += number(sight, "bytes_sent", 0);
    s->received += number(sight, "bytes_received", 0);
    if (!answers) {
        return;
    }
    s->n_answer++;
    s->peers = fmax(s->peers, number(sight, "peers_alive", -1));
    s->speed += number(sight, "tokens_per_s", 0);
    if (loss >= 0) {
        s->loss += loss;
        s->n_loss++;
    }
    /* The furthest speaks for the run: the others follow at the commit. */
    if (number(sight, "round", -1) >= s->round) {
        s->round = number(sight, "round", -1);
        bits = number(sight, "bits_per_byte", -1);
        s->bits = bits > 0 ? bits : s->bits;
    }
    if (state != NULL && strcmp(state, "syncing") != 0 &&
        number(sight, "progress", -1) >= s->progress) {
        s->progress = number(sight, "progress", -1);
        s->eta_s = number(sight, "eta_s", -1);
    }
}

void sight_sum_end(struct sight_sum *s)
{
    s->loss = s->n_loss > 0 ? s->loss / s->n_loss : -1;
}
