/* pack.c - see pack.h.
 *
 * Happy path: inputs_open maps every file and adds up the sizes; split_find
 * decides where the held-out part starts; write_part copies one piece of the
 * joined text behind a header, once per shard and once for val; write_index
 * puts data.json last.
 */
#include "train/pack.h"

#include <errno.h>
#include <jansson.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "proto/base/err.h"
#include "train/file.h"
#include "train/shard.h"

#define INDEX_NAME "data.json"

/* The joined text. */
struct inputs {
    struct file_map *files;
    size_t n;
    uint64_t bytes;
};

struct pack {
    struct inputs in;
    const struct pack_options *opt;
    const char *dir;
    json_t *index;
    char *errmsg;
};

static void inputs_close(struct inputs *in)
{
    for (size_t i = 0; i < in->n; i++) {
        file_map_close(&in->files[i]);
    }
    free(in->files);
}

static int
inputs_open(struct inputs *in, const char *const *paths, size_t n, char *errmsg)
{
    in->n = 0;
    in->bytes = 0;
    in->files = calloc(n, sizeof *in->files);
    if (in->files == NULL) {
        return errmsg_fail(errmsg, LOCO_ENOMEM, "no memory for %zu inputs", n);
    }
    for (size_t i = 0; i < n; i++) {
        int rv = file_map_open(&in->files[i], paths[i], errmsg);
        if (rv != 0) {
            inputs_close(in);
            return rv;
        }
        in->n = i + 1;
        in->bytes += in->files[i].size;
    }
    return 0;
}

/* First line start at or after `at` and before the end; 0 when none is. */
static uint64_t line_start_after(const struct inputs *in, uint64_t at)
{
    uint64_t base = 0;

    for (size_t i = 0; i < in->n; i++) {
        const struct file_map *f = &in->files[i];
        /* A line starts behind a newline: look from one byte earlier. */
        uint64_t skip = at > base + 1 ? at - 1 - base : 0;

        if (skip < f->size) {
            const uint8_t *p = f->data + skip;
            const uint8_t *nl = memchr(p, '\n', f->size - skip);
            if (nl != NULL) {
                uint64_t start = base + (uint64_t)(nl - f->data) + 1;
                return start < in->bytes ? start : 0;
            }
        }
        base += f->size;
    }
    return 0;
}

/* Last line start before `at`; 0 when the text has no newline there. */
static uint64_t line_start_before(const struct inputs *in, uint64_t at)
{
    uint64_t base = in->bytes;

    for (size_t i = in->n; i-- > 0;) {
        const struct file_map *f = &in->files[i];
        uint64_t n;

        base -= f->size;
        if (base + 1 >= at) {
            continue;
        }
        n = at - base - 1; /* newlines before byte at - 1 start such lines */
        n = n < f->size ? n : f->size;
        const uint8_t *nl = n == 0 ? NULL : memrchr(f->data, '\n', n);
        if (nl != NULL) {
            return base + (uint64_t)(nl - f->data) + 1;
        }
    }
    return 0;
}

/* Where the held-out part starts: in->bytes when there is none. */
static int split_find(const struct pack *p, uint64_t *out)
{
    uint64_t total = p->in.bytes;
    uint64_t want = p->opt->val_bytes;
    uint64_t at;

    if (want == PACK_VAL_DEFAULT) {
        want = total / 10;
        want = want < PACK_VAL_BYTES_MAX ? want : PACK_VAL_BYTES_MAX;
    }
    *out = total;
    if (want == 0) {
        return 0;
    }
    if (want >= total) {
        return errmsg_fail(p->errmsg, LOCO_EINVAL,
                           "a held-out part of %llu bytes leaves nothing of "
                           "the %llu bytes of text to train on",
                           (unsigned long long)want, (unsigned long long)total);
    }
    at = line_start_after(&p->in, total - want);
    if (at == 0) { /* the last line is longer than that: take all of it */
        at = line_start_before(&p->in, total - want);
    }
    *out = at != 0 ? at : total - want;
    return 0;
}

/* Bytes begin..end of the joined text. */
static int write_range(struct file_out *f,
                       const struct inputs *in,
                       uint64_t begin,
                       uint64_t end,
                       char *errmsg)
{
    uint64_t base = 0;

    for (size_t i = 0; i < in->n && base < end; i++) {
        uint64_t size = in->files[i].size;
        uint64_t from = begin > base ? begin - base : 0;
        uint64_t to = end - base < size ? end - base : size;

        if (from < to) {
            int rv = file_out_write(f, in->files[i].data + from,
                                    (size_t)(to - from), errmsg);
            if (rv != 0) {
                return rv;
            }
        }
        base += size;
    }
    return 0;
}

static void copy_text(char *dst, size_t size, const char *text)
{
    /* One byte too long leaves no NUL: the header check refuses that. */
    memset(dst, 0, size);
    if (text != NULL) {
        memcpy(dst, text, strnlen(text, size));
    }
}

static int write_shard(const struct pack *p,
                       const char *path,
                       uint64_t begin,
                       uint64_t end)
{
    uint8_t header[SHARD_HEADER_BYTES];
    struct file_out f;
    struct shard_info info = {.tokens = end - begin,
                              .text_bytes = end - begin,
                              .vocab = 256,
                              .token_bytes = 1};
    int rv;

    copy_text(info.tokenizer, sizeof info.tokenizer, p->opt->tokenizer);
    copy_text(info.licence, sizeof info.licence, p->opt->licence);
    copy_text(info.source, sizeof info.source, p->opt->source);
    rv = shard_header_encode(header, &info, p->errmsg);
    if (rv != 0) {
        return rv;
    }
    rv = file_out_open(&f, path, p->errmsg);
    if (rv != 0) {
        return rv;
    }
    rv = file_out_write(&f, header, sizeof header, p->errmsg);
    if (rv == 0) {
        rv = write_range(&f, &p->in, begin, end, p->errmsg);
    }
    if (rv != 0) {
        file_out_abort(&f);
        return rv;
    }
    return file_out_commit(&f, p->errmsg);
}

/* Write one file; its row of data.json goes to *row. */
static int write_part(const struct pack *p,
                      const char *name,
                      uint64_t begin,
                      uint64_t end,
                      json_t **row)
{
    char path[FILE_PATH_MAX];
    char hex[PACK_HEX_SIZE];
    json_int_t n = (json_int_t)(end - begin);
    int rv = file_path_join(path, p->dir, name, p->errmsg);

    *row = NULL;
    if (rv == 0) {
        rv = write_shard(p, path, begin, end);
    }
    if (rv != 0) {
        return rv;
    }
    *row = json_pack("{s:s, s:I, s:I, s:I}", "name", name, "bytes",
                     n + SHARD_HEADER_BYTES, "tokens", n, "text_bytes", n);
    if (*row == NULL) {
        return errmsg_fail(p->errmsg, LOCO_ENOMEM, "no memory");
    }
    if (p->opt->hash == NULL) {
        return 0;
    }
    rv = p->opt->hash(p->opt->hash_data, path, hex);
    if (rv == 0) {
        rv = json_object_set_new(*row, "blake2b", json_string(hex)) == 0
                 ? 0
                 : LOCO_ENOMEM;
    }
    if (rv != 0) {
        json_decref(*row);
        *row = NULL;
        return errmsg_fail(p->errmsg, rv, "hash %s: failed", path);
    }
    return 0;
}

static int write_train(struct pack *p, uint64_t split)
{
    uint64_t shards = p->opt->shards;
    json_t *list = json_object_get(p->index, "train");

    for (uint64_t i = 0; i < shards; i++) {
        /* i * split / shards without overflow */
        uint64_t begin = split / shards * i + split % shards * i / shards;
        uint64_t end =
            split / shards * (i + 1) + split % shards * (i + 1) / shards;
        char name[32];
        json_t *row;
        int rv;

        (void)snprintf(name, sizeof name, "train-%04u.ltk", (unsigned)i);
        rv = write_part(p, name, begin, end, &row);
        if (rv != 0) {
            return rv;
        }
        if (json_array_append_new(list, row) != 0) {
            return errmsg_fail(p->errmsg, LOCO_ENOMEM, "no memory");
        }
    }
    return 0;
}

static int write_val(struct pack *p, uint64_t split)
{
    json_t *row;
    int rv;

    if (split == p->in.bytes) {
        return 0;
    }
    rv = write_part(p, "val.ltk", split, p->in.bytes, &row);
    if (rv != 0) {
        return rv;
    }
    if (json_object_set_new(p->index, "val", row) != 0) {
        return errmsg_fail(p->errmsg, LOCO_ENOMEM, "no memory");
    }
    return 0;
}

static int write_index(const struct pack *p, const char *path)
{
    char *text = json_dumps(p->index, JSON_INDENT(2));
    int rv;

    if (text == NULL) {
        return errmsg_fail(p->errmsg, LOCO_ENOMEM, "no memory");
    }
    rv = file_write_whole(path, text, strlen(text), p->errmsg);
    free(text);
    return rv;
}

static int check_options(const struct pack_options *o, size_t n, char *errmsg)
{
    if (n == 0) {
        return errmsg_fail(errmsg, LOCO_EINVAL, "no input files were given");
    }
    if (o->shards < 1 || o->shards > PACK_SHARDS_MAX) {
        return errmsg_fail(errmsg, LOCO_EINVAL,
                           "%u shards asked for; 1 to %d are possible",
                           o->shards, PACK_SHARDS_MAX);
    }
    if (o->tokenizer == NULL || strcmp(o->tokenizer, "byte") != 0) {
        return errmsg_fail(errmsg, LOCO_EINVAL,
                           "tokenizer \"%.40s\" is not built yet; this "
                           "version knows \"byte\"",
                           o->tokenizer == NULL ? "" : o->tokenizer);
    }
    return 0;
}

static int make_dir(const char *dir, char *errmsg)
{
    if (mkdir(dir, 0755) != 0 && errno != EEXIST) {
        return errmsg_fail(errmsg, errno == ENOSPC ? LOCO_EDISK : LOCO_EIO,
                           "make directory %s: %s", dir, strerror(errno));
    }
    return 0;
}

static json_t *index_new(const struct pack_options *o)
{
    return json_pack("{s:i, s:s, s:i, s:s, s:s, s:[], s:n}", "version", 1,
                     "tokenizer", o->tokenizer, "vocab", 256, "source",
                     o->source == NULL ? "" : o->source, "licence",
                     o->licence == NULL ? "" : o->licence, "train", "val");
}

/* Everything after the inputs are open. */
static int pack_write(struct pack *p, struct pack_result *result)
{
    char index_path[FILE_PATH_MAX];
    uint64_t split;
    int rv = split_find(p, &split);

    if (rv != 0) {
        return rv;
    }
    if (split / p->opt->shards < 2) {
        return errmsg_fail(p->errmsg, LOCO_EINVAL,
                           "%llu bytes of text are too few for %u shards",
                           (unsigned long long)split, p->opt->shards);
    }
    rv = file_path_join(index_path, p->dir, INDEX_NAME, p->errmsg);
    if (rv != 0) {
        return rv;
    }
    rv = make_dir(p->dir, p->errmsg);
    if (rv != 0) {
        return rv;
    }
    (void)unlink(index_path);
    rv = write_train(p, split);
    if (rv == 0) {
        rv = write_val(p, split);
    }
    if (rv == 0) {
        rv = write_index(p, index_path);
    }
    result->train_tokens = split;
    result->val_tokens = p->in.bytes - split;
    result->text_bytes = p->in.bytes;
    result->shards = p->opt->shards;
    return rv;
}

int pack_text(const char *const *inputs,
              size_t n,
              const char *out_dir,
              const struct pack_options *options,
              struct pack_result *result)
{
    struct pack p = {.opt = options, .dir = out_dir, .errmsg = result->errmsg};
    int rv;

    memset(result, 0, sizeof *result);
    rv = check_options(options, n, result->errmsg);
    if (rv != 0) {
        return rv;
    }
    rv = inputs_open(&p.in, inputs, n, result->errmsg);
    if (rv != 0) {
        return rv;
    }
    p.index = index_new(options);
    if (p.index == NULL) { /* json_pack refuses text that is not UTF-8 */
        rv = errmsg_fail(result->errmsg, LOCO_EINVAL,
                         "source or licence is not UTF-8 text");
        goto out;
    }
    rv = pack_write(&p, result);
    json_decref(p.index);
out:
    inputs_close(&p.in);
    return rv;
}
