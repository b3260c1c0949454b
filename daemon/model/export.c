/* export.c - a model as Hugging Face transformers reads it; see model.h.
 *
 * Happy path: the tensors are dealt out to files of at most shard_bytes, each
 * is streamed (read, narrowed, written, given back), then the small files
 * follow. config.json comes last: a directory that has one is whole. A list of
 * tensors has no config.json, README.md comes last there.
 *
 * A byte tokenizer is byte-level BPE without merges: the 256 bytes are 256
 * tokens, id = byte value.
 */
#include "daemon/model/model.h"

#include <errno.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "proto/base/bytes.h"
#include "proto/base/err.h"
#include "proto/base/file.h"
#include "proto/base/half.h"
#include "train/data/alphabet.h"
#include "train/data/tokenizer.h"

#define SINGLE         "model.safetensors"
#define INDEX          SINGLE ".index.json"
#define NAME_MAX_BYTES 64

/* One tensor on its way; st_tensor.data points to it. */
struct item {
    int i;    /* of the list */
    int file; /* that it goes to */
};

struct export
{
    const struct model_source *s;
    const char *dir;
    enum st_dtype dtype;
    uint64_t shard_bytes;
    struct tensor_list llama; /* empty, or of s->config */
    const struct tensor_list *list;
    int count;
    struct item *items;        /* (count) */
    struct st_tensor *tensors; /* (count) */
    int n_files;
    uint64_t total;
    char *errmsg;
};

/* ---- small files -------------------------------------------------------- */

static int text_save(const struct export *e, const char *name, char *text)
{
    char path[FILE_PATH_MAX];
    int rv = file_path_join(path, e->dir, name, e->errmsg);

    if (text == NULL) {
        return errmsg_fail(e->errmsg, LOCO_ENOMEM, "out of memory");
    }
    rv = rv == 0 ? file_write_whole(path, text, strlen(text), e->errmsg) : rv;
    free(text);
    return rv;
}

static int json_save(const struct export *e, const char *name, json_t *o)
{
    char *text = json_dumps(o, JSON_INDENT(2) | JSON_PRESERVE_ORDER);

    json_decref(o);
    return text_save(e, name, text);
}

static int copy_file(const char *from, const char *to, char *errmsg)
{
    struct file_map map;
    int rv = file_map_open(&map, from, errmsg);

    if (rv == 0) {
        rv = file_write_whole(to, map.data, map.size, errmsg);
        file_map_close(&map);
    }
    return rv;
}

/* {"!": 33, ...}: every byte's character and its id. */
static json_t *vocabulary(void)
{
    json_t *vocab = json_object();

    for (unsigned byte = 0; byte < 256; byte++) {
        char utf8[3];

        alphabet_write(byte, utf8);
        json_object_set_new(vocab, utf8, json_integer(byte));
    }
    return vocab;
}

static json_t *byte_level(void)
{
    return json_pack("{s:s, s:b, s:b, s:b}", "type", "ByteLevel",
                     "add_prefix_space", 0, "trim_offsets", 1, "use_regex", 0);
}

static json_t *byte_tokenizer(void)
{
    json_t *o = json_pack(
        "{s:s, s:n, s:n, s:[], s:n, s:o, s:n, s:o}", "version", "1.0",
        "truncation", "padding", "added_tokens", "normalizer", "pre_tokenizer",
        byte_level(), "post_processor", "decoder", byte_level());

    json_object_set_new(o, "model",
                        json_pack("{s:s, s:n, s:n, s:n, s:n, s:b, s:b, s:b, "
                                  "s:o, s:[]}",
                                  "type", "BPE", "dropout", "unk_token",
                                  "continuing_subword_prefix",
                                  "end_of_word_suffix", "fuse_unk", 0,
                                  "byte_fallback", 0, "ignore_merges", 0,
                                  "vocab", vocabulary(), "merges"));
    return o;
}

/* An id that is no added token stays unnamed: a name would make the tokenizer
 * cut it out of texts. */
static void
name_token(json_t *o, const char *key, const struct tokenizer *t, uint32_t id)
{
    size_t len = 0;

    if (tokenizer_is_added(t, id)) {
        const uint8_t *text = tokenizer_text(t, id, &len);

        json_object_set_new(o, key, json_stringn((const char *)text, len));
    }
}

/* The tokens that begin and end a text, by the config: lm-evaluation-harness
 * puts the first one before a text without context. A tokenizer that this
 * version cannot read has its file alone. */
static void name_tokens(const struct export *e, json_t *o)
{
    const struct hf_config *c = &e->s->config;
    struct tokenizer *t;

    if ((c->bos != HF_NO_TOKEN || c->eos != HF_NO_TOKEN) &&
        tokenizer_open_named(&t, e->s->tokenizer, NULL) == 0) {
        name_token(o, "bos_token", t, c->bos);
        name_token(o, "eos_token", t, c->eos);
        tokenizer_close(t);
    }
}

static int save_tokenizer(const struct export *e)
{
    json_t *o;
    char path[FILE_PATH_MAX];
    int rv;

    if (e->s->tokenizer[0] == '\0') {
        return 0;
    }
    if (strcmp(e->s->tokenizer, "byte") == 0) {
        rv = json_save(e, "tokenizer.json", byte_tokenizer());
    } else {
        rv = file_path_join(path, e->dir, "tokenizer.json", e->errmsg);
        rv = rv == 0 ? copy_file(e->s->tokenizer, path, e->errmsg) : rv;
    }
    if (rv != 0 || e->s->tensors.n > 0) {
        return rv;
    }
    /* Else the model's type would choose a tokenizer with rules of its own. */
    o = json_pack("{s:s, s:b, s:I}", "tokenizer_class",
                  "PreTrainedTokenizerFast", "clean_up_tokenization_spaces", 0,
                  "model_max_length", (json_int_t)e->s->config.model.seq);
    name_tokens(e, o);
    return json_save(e, "tokenizer_config.json", o);
}

/* ---- weights ------------------------------------------------------------ */

static uint16_t bf16_of(float x)
{
    uint32_t bits = float_bits(x);

    if ((bits & 0x7fffffffU) > 0x7f800000U) {
        return (uint16_t)(bits >> 16 | 0x40U); /* a NaN stays one */
    }
    return (uint16_t)((bits + 0x7fffU + (bits >> 16 & 1U)) >> 16);
}

static unsigned width_of(enum st_dtype dtype)
{
    return dtype == ST_F32 ? 4 : 2;
}

/* Elements are read 4,096 at a time where they are narrowed. */
static void narrow(const struct export *e,
                   const struct item *item,
                   int64_t first,
                   int64_t n,
                   uint8_t *out)
{
    float wide[4096];

    while (n > 0) {
        int64_t m = n < 4096 ? n : 4096;

        model_source_read(e->s, item->i, first, m, wide);
        for (int64_t k = 0; k < m; k++) {
            put_u16(out + 2 * k, e->dtype == ST_BF16
                                     ? bf16_of(wide[k])
                                     : half_from_float(wide[k]));
        }
        out += 2 * m;
        first += m;
        n -= m;
    }
}

static int fill(void *data,
                const struct st_tensor *t,
                uint64_t offset,
                void *out,
                size_t bytes,
                char *errmsg)
{
    const struct export *e = data;
    const struct item *item = t->data;
    unsigned width = width_of(e->dtype);
    int64_t first = (int64_t)(offset / width);
    int64_t n = (int64_t)(bytes / width);

    (void)errmsg;
    if (e->dtype == ST_F32) {
        model_source_read(e->s, item->i, first, n, out);
    } else {
        narrow(e, item, first, n, out);
    }
    if (offset + bytes == t->bytes) {
        model_source_forget(e->s, item->i);
    }
    return 0;
}

static int name_tensors(struct export *e)
{
    e->list = e->s->tensors.n > 0 ? &e->s->tensors : &e->llama;
    return e->s->tensors.n > 0
               ? 0
               : tensor_list_of_llama(&e->llama, &e->s->config.model);
}

/* Every tensor with its name, shape and file. */
static int deal(struct export *e)
{
    uint64_t in_file = 0;

    if (name_tensors(e) != 0) {
        return errmsg_fail(e->errmsg, LOCO_ENOMEM, "out of memory");
    }
    e->count = (int)e->list->n;
    e->items = calloc((size_t)e->count, sizeof *e->items);
    e->tensors = calloc((size_t)e->count, sizeof *e->tensors);
    if (e->items == NULL || e->tensors == NULL) {
        return errmsg_fail(e->errmsg, LOCO_ENOMEM, "out of memory");
    }
    for (int i = 0; i < e->count; i++) {
        const struct tensor_entry *v = &e->list->at[i];
        uint64_t bytes = v->numel * width_of(e->dtype);

        if (i > 0 && in_file + bytes > e->shard_bytes) {
            e->n_files++;
            in_file = 0;
        }
        in_file += bytes;
        e->total += bytes;
        e->items[i].i = i;
        e->items[i].file = e->n_files;
        e->tensors[i] = (struct st_tensor){
            .name = v->name,
            .dtype = e->dtype,
            .n_dims = v->n_dims,
            .data = &e->items[i],
            .bytes = bytes,
        };
        memcpy(e->tensors[i].shape, v->shape, sizeof v->shape);
    }
    e->n_files++;
    return 0;
}

static void file_name(const struct export *e, int file, char *name)
{
    if (e->n_files == 1) {
        (void)snprintf(name, NAME_MAX_BYTES, SINGLE);
    } else {
        (void)snprintf(name, NAME_MAX_BYTES, "model-%05d-of-%05d.safetensors",
                       file + 1, e->n_files);
    }
}

static int save_index(const struct export *e)
{
    json_t *map = json_object();

    for (int i = 0; i < e->count; i++) {
        char name[NAME_MAX_BYTES];

        file_name(e, e->items[i].file, name);
        json_object_set_new(map, e->list->at[i].name, json_string(name));
    }
    return json_save(e, INDEX,
                     json_pack("{s:{s:I}, s:o}", "metadata", "total_size",
                               (json_int_t)e->total, "weight_map", map));
}

/* An older export must not be taken for a part of this one. */
static void remove_other(const struct export *e)
{
    char path[FILE_PATH_MAX];

    if (file_path_join(path, e->dir, e->n_files == 1 ? INDEX : SINGLE, NULL) ==
        0) {
        (void)unlink(path);
    }
}

static int save_weights(struct export *e)
{
    int rv = deal(e);
    int at = 0;

    for (int file = 0; rv == 0 && file < e->n_files; file++) {
        char path[FILE_PATH_MAX], name[NAME_MAX_BYTES];
        int end = at;

        while (end < e->count && e->items[end].file == file) {
            end++;
        }
        file_name(e, file, name);
        rv = file_path_join(path, e->dir, name, e->errmsg);
        if (rv == 0) {
            rv = safetensors_stream(path, e->tensors + at, (size_t)(end - at),
                                    NULL, 0, fill, e, e->errmsg);
        }
        at = end;
    }
    if (rv == 0 && e->n_files > 1) {
        rv = save_index(e);
    }
    if (rv == 0) {
        remove_other(e);
    }
    return rv;
}

/* ---- all of it ---------------------------------------------------------- */

/* What transformers makes the model of. */
static int save_config(const struct export *e)
{
    const struct hf_config *c = &e->s->config;
    const char *dtype = e->dtype == ST_F32    ? "float32"
                        : e->dtype == ST_BF16 ? "bfloat16"
                                              : "float16";
    int rv = text_save(e, "generation_config.json", hf_generation_text(c));

    rv = rv == 0 ? text_save(e, "README.md", model_card(e->s)) : rv;
    return rv == 0 ? text_save(e, "config.json", hf_config_text(c, dtype)) : rv;
}

static int export_all(struct export *e)
{
    int rv;

    if (mkdir(e->dir, 0777) != 0 && errno != EEXIST) {
        return errmsg_fail(e->errmsg, errno == ENOSPC ? LOCO_EDISK : LOCO_EIO,
                           "make %.180s: %s", e->dir, strerror(errno));
    }
    rv = save_weights(e);
    rv = rv == 0 ? save_tokenizer(e) : rv;
    if (rv != 0) {
        return rv;
    }
    return e->s->tensors.n > 0 ? text_save(e, "README.md", model_card(e->s))
                               : save_config(e);
}

static void free_all(struct export *e)
{
    free(e->items);
    free(e->tensors);
    tensor_list_free(&e->llama);
}

int model_export(const struct model_source *s,
                 const char *dir,
                 const struct model_export_options *opt,
                 char errmsg[ERRMSG_SIZE])
{
    struct export e = {
        .s = s,
        .dir = dir,
        .dtype = opt->dtype,
        .shard_bytes =
            opt->shard_bytes == 0 ? MODEL_SHARD_BYTES : opt->shard_bytes,
        .errmsg = errmsg,
    };
    int rv = export_all(&e);

    free_all(&e);
    return rv;
}

/* ---- import ------------------------------------------------------------- */

int model_import(const struct model_source *s,
                 const char *file,
                 char errmsg[ERRMSG_SIZE])
{
    struct export e = {
        .s = s, .dtype = ST_F32, .shard_bytes = UINT64_MAX, .errmsg = errmsg};
    char *config = hf_config_text(&s->config, "float32");
    const struct st_meta meta = {WEIGHTS_META, config};
    char path[FILE_PATH_MAX];
    int n = snprintf(path, sizeof path, "%s.tokenizer.json", file);
    int rv = config == NULL ? LOCO_ENOMEM : deal(&e);

    if (rv == 0) {
        rv = safetensors_stream(file, e.tensors, (size_t)e.count, &meta, 1,
                                fill, &e, errmsg);
    }
    if (rv == 0 && n > 0 && (size_t)n < sizeof path &&
        s->tokenizer[0] != '\0' && strcmp(s->tokenizer, "byte") != 0) {
        rv = copy_file(s->tokenizer, path, errmsg);
    }
    free(config);
    free_all(&e);
    return rv;
}
