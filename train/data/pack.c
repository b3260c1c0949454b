/* pack.c - see pack.h.
 *
 * Happy path: the tokenizer is opened, pack_inputs_open maps every file and
 * adds up the sizes; split_find decides where the held-out part starts;
 * pack_part writes one piece, once per shard and once for val; write_index
 * puts data.json last.
 */
#include "train/data/pack.h"

#include <errno.h>
#include <jansson.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "proto/base/err.h"
#include "proto/base/file.h"
#include "train/data/pack_part.h"

#define INDEX_NAME     "data.json"
#define TOKENIZER_NAME "tokenizer.json"
#define STRIPES_MAX    65536 /* of one shard: then they are longer */

struct pack {
    struct pack_inputs in;
    struct pack_writer writer;
    struct tokenizer *tokenizer;
    struct shard_info info; /* what all shards have in common */
    const struct pack_options *opt;
    const char *dir;
    json_t *index;
    struct pack_result *result;
    char *errmsg;
};

/* ---- cuts ---------------------------------------------------------------- */

/* Where the held-out part starts: the end when there is none. */
static int split_find(const struct pack *p, uint64_t *out)
{
    uint64_t total = p->in.units;
    uint32_t unit = p->in.tokens ? p->info.token_bytes : 1;
    uint64_t want = p->opt->val_bytes / unit;
    uint64_t at;

    if (p->opt->val_bytes == PACK_VAL_DEFAULT) {
        want = total / 10;
        want =
            want < PACK_VAL_BYTES_MAX / unit ? want : PACK_VAL_BYTES_MAX / unit;
        want = want > PACK_VAL_MIN ? want : PACK_VAL_MIN;
    }
    *out = total;
    if (want == 0) {
        return 0;
    }
    if (want >= total) {
        return errmsg_fail(p->errmsg, LOCO_EINVAL,
                           "a held-out part of %llu %s leaves nothing of the "
                           "%llu to train on",
                           (unsigned long long)want,
                           p->in.tokens ? "tokens" : "bytes of text",
                           (unsigned long long)total);
    }
    at = p->in.tokens ? 0 : pack_line_after(&p->in, total - want);
    if (at == 0 && !p->in.tokens) { /* the last line is longer than that */
        at = pack_line_before(&p->in, total - want);
    }
    *out = at != 0 ? at : total - want;
    return 0;
}

/* Stripes of one shard. */
static uint64_t stripes_of(const struct pack *p, uint64_t split)
{
    uint64_t size = p->opt->stripe > 0 ? p->opt->stripe : PACK_STRIPE;
    uint64_t n = p->opt->shards > 1 ? split / p->opt->shards / size : 1;

    return n < 1 ? 1 : n > STRIPES_MAX ? STRIPES_MAX : n;
}

/* Where piece i of n begins. */
static uint64_t
cut(const struct pack *p, uint64_t split, uint64_t i, uint64_t n)
{
    /* i * split / n without overflow */
    uint64_t at = split / n * i + split % n * i / n;
    bool anywhere = p->writer.encoder == NULL && n == p->opt->shards;
    uint64_t line;

    if (i == 0 || i == n || p->in.tokens || anywhere) {
        return at;
    }
    line = pack_line_after(&p->in, at);
    return line != 0 && line < split ? line : at;
}

/* ---- files --------------------------------------------------------------- */

/* Add "key": hash of the file to a row; nothing without a callback. */
static int
add_hash(const struct pack *p, json_t *row, const char *key, const char *path)
{
    char hex[PACK_HEX_SIZE];
    int rv;

    if (p->opt->hash == NULL) {
        return 0;
    }
    rv = p->opt->hash(p->opt->hash_data, path, hex);
    if (rv == 0 && json_object_set_new(row, key, json_string(hex)) != 0) {
        rv = LOCO_ENOMEM;
    }
    return rv == 0 ? 0 : errmsg_fail(p->errmsg, rv, "hash %s: failed", path);
}

/* Write one file, of at least tokens_min; its row of data.json goes to *row. */
static int write_part(const struct pack *p,
                      const char *name,
                      uint64_t tokens_min,
                      const struct pack_range *ranges,
                      uint64_t n,
                      json_t **row,
                      uint64_t *tokens)
{
    char path[FILE_PATH_MAX];
    struct shard_info info = p->info;
    int rv = file_path_join(path, p->dir, name, p->errmsg);

    *row = NULL;
    rv = rv == 0 ? pack_part(&p->writer, path, ranges, n, &info) : rv;
    if (rv == 0 && info.tokens < tokens_min) {
        rv = errmsg_fail(p->errmsg, LOCO_EINVAL,
                         "%s would have %llu tokens, and needs at least %llu: "
                         "pack more text, or fewer shards",
                         name, (unsigned long long)info.tokens,
                         (unsigned long long)tokens_min);
    }
    if (rv != 0) {
        return rv;
    }
    *tokens += info.tokens;
    p->result->text_bytes += info.text_bytes;
    *row = json_pack(
        "{s:s, s:I, s:I, s:I}", "name", name, "bytes",
        (json_int_t)(info.tokens * info.token_bytes + SHARD_HEADER_BYTES),
        "tokens", (json_int_t)info.tokens, "text_bytes",
        (json_int_t)info.text_bytes);
    if (*row == NULL) {
        return errmsg_fail(p->errmsg, LOCO_ENOMEM, "no memory");
    }
    rv = add_hash(p, *row, "blake2b", path);
    if (rv != 0) {
        json_decref(*row);
        *row = NULL;
    }
    return rv;
}

/* Shard i gets stripes i, i + shards, ..; `ranges`: room for them. */
static int write_shard(struct pack *p,
                       uint64_t split,
                       uint64_t i,
                       struct pack_range *ranges)
{
    uint64_t each = stripes_of(p, split), n = each * p->opt->shards;
    json_t *row;
    char name[32];
    int rv;

    for (uint64_t k = 0; k < each; k++) {
        uint64_t at = k * p->opt->shards + i;

        ranges[k].begin = cut(p, split, at, n);
        ranges[k].end = cut(p, split, at + 1, n);
    }
    (void)snprintf(name, sizeof name, "train-%04u.ltk", (unsigned)i);
    rv = write_part(p, name, PACK_TRAIN_MIN, ranges, each, &row,
                    &p->result->train_tokens);
    if (rv == 0 &&
        json_array_append_new(json_object_get(p->index, "train"), row) != 0) {
        rv = errmsg_fail(p->errmsg, LOCO_ENOMEM, "no memory");
    }
    return rv;
}

static int write_train(struct pack *p, uint64_t split)
{
    struct pack_range *ranges = calloc(stripes_of(p, split), sizeof *ranges);
    int rv =
        ranges == NULL ? errmsg_fail(p->errmsg, LOCO_ENOMEM, "no memory") : 0;

    for (uint64_t i = 0; i < p->opt->shards && rv == 0; i++) {
        rv = write_shard(p, split, i, ranges);
    }
    free(ranges);
    return rv;
}

static int write_val(struct pack *p, uint64_t split)
{
    json_t *row;
    int rv;

    if (split == p->in.units) {
        return 0;
    }
    rv = write_part(p, "val.ltk", PACK_VAL_MIN,
                    &(struct pack_range){split, p->in.units}, 1, &row,
                    &p->result->val_tokens);
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

/* The tokenizer's file goes where the shards are: who has one needs both. */
static int write_tokenizer(struct pack *p)
{
    char path[FILE_PATH_MAX];
    const char *hex;
    struct file_map map;
    int rv = file_path_join(path, p->dir, TOKENIZER_NAME, p->errmsg);

    if (rv != 0 || tokenizer_is_bytes(p->tokenizer)) {
        return rv;
    }
    rv = file_map_open(&map, p->opt->tokenizer, p->errmsg);
    if (rv == 0) {
        rv = file_write_whole(path, map.data, map.size, p->errmsg);
        file_map_close(&map);
    }
    rv = rv == 0 ? add_hash(p, p->index, "tokenizer_blake2b", path) : rv;
    hex = json_string_value(json_object_get(p->index, "tokenizer_blake2b"));
    if (rv == 0 && hex != NULL) {
        (void)snprintf(p->info.tokenizer, sizeof p->info.tokenizer,
                       "blake2b:%.32s", hex);
    }
    return rv;
}

/* ---- options ------------------------------------------------------------- */

static int check_options(const struct pack_options *o, size_t n, char *errmsg)
{
    if (n == 0) {
        return errmsg_invalid(errmsg, "no input files were given");
    }
    if (o->shards < 1 || o->shards > PACK_SHARDS_MAX) {
        return errmsg_invalid(errmsg,
                              "%u shards asked for; 1 to %d are possible",
                              o->shards, PACK_SHARDS_MAX);
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

static void copy_text(char *dst, size_t size, const char *text)
{
    /* One byte too long leaves no NUL: the header check refuses that. */
    memset(dst, 0, size);
    if (text != NULL) {
        memcpy(dst, text, strnlen(text, size));
    }
}

static int open_tokenizer(struct pack *p)
{
    int rv = tokenizer_open_named(
        &p->tokenizer, p->opt->tokenizer == NULL ? "byte" : p->opt->tokenizer,
        p->errmsg);
    bool bytes = rv == 0 && tokenizer_is_bytes(p->tokenizer);

    if (rv == 0 && !bytes) {
        rv = tokenizer_encoder_open(&p->writer.encoder, p->tokenizer);
        if (rv != 0) {
            return errmsg_fail(p->errmsg, rv, "no memory for a tokenizer");
        }
    }
    if (rv != 0) {
        return rv;
    }
    p->writer.tokenizer = p->tokenizer;
    p->info.vocab = tokenizer_vocab(p->tokenizer);
    p->info.token_bytes = bytes ? 1 : p->info.vocab <= 1U << 16 ? 2 : 4;
    p->result->vocab = p->info.vocab;
    copy_text(p->info.tokenizer, sizeof p->info.tokenizer,
              bytes ? "byte" : TOKENIZER_NAME);
    copy_text(p->info.licence, sizeof p->info.licence, p->opt->licence);
    copy_text(p->info.source, sizeof p->info.source, p->opt->source);
    return 0;
}

static int make_index(struct pack *p)
{
    const struct pack_options *o = p->opt;

    p->index = json_pack(
        "{s:i, s:s, s:I, s:s, s:s, s:[], s:n}", "version", 1, "tokenizer",
        tokenizer_is_bytes(p->tokenizer) ? "byte" : TOKENIZER_NAME, "vocab",
        (json_int_t)p->info.vocab, "source", o->source == NULL ? "" : o->source,
        "licence", o->licence == NULL ? "" : o->licence, "train", "val");
    return p->index != NULL
               ? 0 /* json_pack refuses text that is not UTF-8 */
               : errmsg_fail(p->errmsg, LOCO_EINVAL,
                             "source or licence is not UTF-8 text");
}

/* ---- all of it ---------------------------------------------------------- */

/* Everything after the inputs are open. */
static int pack_write(struct pack *p)
{
    char index_path[FILE_PATH_MAX];
    uint64_t split;
    int rv = split_find(p, &split);

    if (rv != 0) {
        return rv;
    }
    if (split / p->opt->shards < PACK_TRAIN_MIN) {
        return errmsg_fail(p->errmsg, LOCO_EINVAL,
                           "%llu %s to train on are too few for %u shard%s: "
                           "training needs at least %d tokens in each",
                           (unsigned long long)split,
                           p->in.tokens ? "tokens" : "bytes of text",
                           p->opt->shards, p->opt->shards == 1 ? "" : "s",
                           PACK_TRAIN_MIN);
    }
    rv = file_path_join(index_path, p->dir, INDEX_NAME, p->errmsg);
    if (rv != 0) {
        return rv;
    }
    (void)unlink(index_path);
    rv = write_tokenizer(p);
    rv = rv == 0 ? write_train(p, split) : rv;
    rv = rv == 0 ? write_val(p, split) : rv;
    rv = rv == 0 ? write_index(p, index_path) : rv;
    p->result->shards = p->opt->shards;
    return rv;
}

static int pack_all(struct pack *p, const char *const *inputs, size_t n)
{
    int rv = check_options(p->opt, n, p->errmsg);

    rv = rv == 0 ? open_tokenizer(p) : rv;
    rv = rv == 0 ? make_index(p) : rv;
    rv = rv == 0 ? make_dir(p->dir, p->errmsg) : rv;
    if (rv == 0) {
        rv = pack_inputs_open(&p->in, inputs, n, p->opt, p->info.vocab, p->dir,
                              p->errmsg);
    }
    return rv == 0 ? pack_write(p) : rv;
}

int pack_text(const char *const *inputs,
              size_t n,
              const char *out_dir,
              const struct pack_options *options,
              struct pack_result *result)
{
    struct pack p = {.opt = options,
                     .dir = out_dir,
                     .result = result,
                     .errmsg = result->errmsg};
    int rv;

    memset(result, 0, sizeof *result);
    p.writer.in = &p.in;
    p.writer.errmsg = p.errmsg;
    rv = pack_all(&p, inputs, n);
    json_decref(p.index);
    pack_inputs_close(&p.in);
    tokenizer_encoder_close(p.writer.encoder);
    tokenizer_close(p.tokenizer);
    return rv;
}
