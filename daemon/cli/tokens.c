/* tokens.c - loco data tokenize and detokenize.
 *
 * Ids are read and written as text, one a line (any white space between them
 * when reading), or as little-endian u16 or u32. The input is a file or stdin,
 * the output a file, written new and renamed, or stdout.
 */
#include <ctype.h>
#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/cli/cli.h"
#include "proto/base/bytes.h"
#include "proto/base/err.h"
#include "proto/base/errmsg.h"
#include "proto/base/file.h"
#include "proto/base/nearest.h"
#include "train/data/tokenizer.h"

#define STDIN_MAX ((size_t)1 << 30)

enum ids_format { IDS_TEXT, IDS_U16, IDS_U32 };

struct work {
    const char *tokenizer, *format, *out;
    enum ids_format ids;
    struct tokenizer *t;
    struct file_map in;  /* of a file, or */
    uint8_t *piped;      /* of stdin */
    const uint8_t *data; /* one of the two */
    size_t size;
    struct file_out file;
    bool to_file;
    char errmsg[ERRMSG_SIZE];
};

/* ---- input and output --------------------------------------------------- */

static int read_stdin(struct work *w)
{
    size_t room = 0;

    for (;;) {
        if (w->size == room) {
            uint8_t *more;

            room = 2 * room + 65536;
            more = room > STDIN_MAX ? NULL : realloc(w->piped, room);
            if (more == NULL) {
                return errmsg_fail(
                    w->errmsg, LOCO_ENOMEM,
                    "standard input is too long: name a file instead");
            }
            w->piped = more;
        }
        w->size += fread(w->piped + w->size, 1, room - w->size, stdin);
        if (feof(stdin)) {
            w->data = w->piped;
            return 0;
        }
        if (ferror(stdin)) {
            return errmsg_fail(w->errmsg, LOCO_EIO, "read stdin: %s",
                               strerror(errno));
        }
    }
}

static int open_all(struct work *w, const struct cli_list *words)
{
    int rv = tokenizer_open_named(&w->t, w->tokenizer, w->errmsg);

    if (rv == 0 && (words->n == 0 || strcmp(words->item[0], "-") == 0)) {
        rv = read_stdin(w);
    } else if (rv == 0) {
        rv = file_map_open(&w->in, words->item[0], w->errmsg);
        w->data = w->in.data;
        w->size = w->in.size;
    }
    if (rv == 0 && w->out != NULL) {
        rv = file_out_open(&w->file, w->out, w->errmsg);
        w->to_file = rv == 0;
    }
    return rv;
}

static int put(struct work *w, const void *data, size_t len)
{
    if (w->to_file) {
        return file_out_write(&w->file, data, len, w->errmsg);
    }
    return fwrite(data, 1, len, stdout) == len
               ? 0
               : errmsg_fail(w->errmsg, LOCO_EIO, "write stdout: %s",
                             strerror(errno));
}

static int close_all(struct work *w, int rv)
{
    if (w->to_file && rv == 0) {
        rv = file_out_commit(&w->file, w->errmsg);
    } else if (w->to_file) {
        file_out_abort(&w->file);
    } else if (fflush(stdout) != 0 && rv == 0) {
        rv = errmsg_fail(w->errmsg, LOCO_EIO, "write stdout: %s",
                         strerror(errno));
    }
    tokenizer_close(w->t);
    file_map_close(&w->in);
    free(w->piped);
    return rv;
}

/* ---- tokenize ----------------------------------------------------------- */

static int put_ids(void *data, const uint32_t *ids, size_t n)
{
    struct work *w = data;
    char text[16];
    int rv = 0;

    for (size_t i = 0; rv == 0 && i < n; i++) {
        uint8_t *bytes = (uint8_t *)text;
        int len = w->ids == IDS_U16 ? 2 : 4;

        if (w->ids == IDS_TEXT) {
            len = snprintf(text, sizeof text, "%u\n", ids[i]);
        } else if (w->ids == IDS_U32) {
            put_u32(bytes, ids[i]);
        } else {
            put_u16(bytes, (uint16_t)ids[i]);
        }
        rv = put(w, text, (size_t)len);
    }
    return rv;
}

static int tokenize(struct work *w)
{
    struct tokenizer_encoder *e;
    int rv;

    if (w->ids == IDS_U16 && tokenizer_vocab(w->t) > 1U << 16) {
        return errmsg_fail(w->errmsg, LOCO_EINVAL,
                           "a vocabulary of %u does not fit into u16: use u32",
                           tokenizer_vocab(w->t));
    }
    rv = tokenizer_encoder_open(&e, w->t);
    if (rv != 0) {
        return errmsg_fail(w->errmsg, rv, "no memory for an encoder");
    }
    rv = tokenizer_encode(e, w->data, w->size, put_ids, w, w->errmsg);
    tokenizer_encoder_close(e);
    return rv;
}

/* ---- detokenize --------------------------------------------------------- */

static int put_id(struct work *w, uint64_t id, size_t place)
{
    size_t len = 0;
    const uint8_t *text =
        id <= UINT32_MAX ? tokenizer_text(w->t, (uint32_t)id, &len) : NULL;

    if (text == NULL) {
        return errmsg_fail(w->errmsg, LOCO_EFORMAT,
                           "id %llu, number %zu of the input, is not in the "
                           "vocabulary of %u",
                           (unsigned long long)id, place + 1,
                           tokenizer_vocab(w->t));
    }
    return put(w, text, len);
}

static int detokenize_text(struct work *w)
{
    size_t place = 0;

    for (size_t i = 0; i < w->size;) {
        uint64_t id = 0;
        size_t digits = 0;
        int rv;

        if (isspace(w->data[i])) {
            i++;
            continue;
        }
        for (; i < w->size && isdigit(w->data[i]) && digits < 12; digits++) {
            id = 10 * id + (uint64_t)(w->data[i++] - '0');
        }
        if (digits == 0 || (i < w->size && !isspace(w->data[i]))) {
            return errmsg_fail(
                w->errmsg, LOCO_EFORMAT,
                "byte %zu of the input is not part of a token id", i);
        }
        rv = put_id(w, id, place++);
        if (rv != 0) {
            return rv;
        }
    }
    return 0;
}

static int detokenize(struct work *w)
{
    size_t width = w->ids == IDS_U16 ? 2 : 4;
    int rv = 0;

    if (w->ids == IDS_TEXT) {
        return detokenize_text(w);
    }
    if (w->size % width != 0) {
        return errmsg_fail(w->errmsg, LOCO_EFORMAT,
                           "%zu bytes are not a whole number of ids", w->size);
    }
    for (size_t i = 0; rv == 0 && i < w->size; i += width) {
        const uint8_t *p = w->data + i;

        rv = put_id(w, width == 2 ? get_u16(p) : get_u32(p), i / width);
    }
    return rv;
}

/* ---- commands ----------------------------------------------------------- */

static const char *const formats[] = {
    [IDS_TEXT] = "text", [IDS_U16] = "u16", [IDS_U32] = "u32"};

static int
run(const struct cli_call *call, const char *name, int (*action)(struct work *))
{
    struct work w = {.tokenizer = "byte", .format = "text"};
    struct cli_list words = {0};
    const struct cli_option options[] = {
        {"--tokenizer", CLI_TEXT, &w.tokenizer, "byte|FILE",
         "one token per byte, or a tokenizer.json (byte)"},
        {"--format", CLI_TEXT, &w.format, "NAME",
         "format of the ids: text, u16 or u32 (text)"},
        {"--out", CLI_TEXT, &w.out, "FILE", "file to write (standard output)"},
    };
    int format, rv = CLI_PARSE(call, options, &words, 0, 1);

    if (rv != CLI_GO) {
        return rv;
    }
    format = word_place(w.format, formats, 3);
    if (format < 0) {
        return cli_fail(TROUBLE_USAGE,
                        "%s: --format is text, u16 or u32, not %.40s", name,
                        w.format);
    }
    w.ids = (enum ids_format)format;
    rv = open_all(&w, &words);
    rv = rv == 0 ? action(&w) : rv;
    rv = close_all(&w, rv);
    return rv == 0 ? LOCO_EXIT_OK
                   : cli_fail(cli_trouble_of(rv, TROUBLE_DATA), "%s: %s", name,
                              w.errmsg);
}

int cli_data_tokenize(const struct cli_call *call)
{
    return run(call, "data tokenize", tokenize);
}

int cli_data_detokenize(const struct cli_call *call)
{
    return run(call, "data detokenize", detokenize);
}
