/* shard.c - see shard.h. */
#include "train/data/shard.h"

#include <stdbool.h>
#include <string.h>

#include "proto/base/bytes.h"
#include "proto/base/err.h"
#include "proto/base/errmsg.h"

#define VERSION 1

/* Offsets of the header's fields. */
enum {
    AT_MAGIC = 0,
    AT_VERSION = 8,
    AT_HEADER_SIZE = 12,
    AT_TOKENS = 16,
    AT_TEXT_BYTES = 24,
    AT_VOCAB = 32,
    AT_TOKEN_BYTES = 36,
    AT_TOKENIZER = 40,
    AT_LICENCE = AT_TOKENIZER + SHARD_TOKENIZER_SIZE,
    AT_SOURCE = AT_LICENCE + SHARD_LICENCE_SIZE,
    AT_ZERO = AT_SOURCE + SHARD_SOURCE_SIZE,
};

static const uint8_t magic[8] = {'L', 'O', 'C', 'O', '-', 'L', 'T', 'K'};

static bool all_zero(const uint8_t *p, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (p[i] != 0) {
            return false;
        }
    }
    return true;
}

/* A text field: no control characters, then NULs up to its end. */
static bool text_is_valid(const char *text, size_t size)
{
    size_t len = strnlen(text, size);

    for (size_t i = 0; i < len; i++) {
        unsigned char c = (unsigned char)text[i];
        if (c < 0x20 || c == 0x7f) {
            return false;
        }
    }
    return len < size && all_zero((const uint8_t *)text + len, size - len);
}

/* What is wrong with the fields, or NULL. */
static const char *info_problem(const struct shard_info *info)
{
    uint32_t b = info->token_bytes;

    if (b != 1 && b != 2 && b != 4) {
        return "bytes per token are not 1, 2 or 4";
    }
    if (info->vocab == 0 || info->vocab > SHARD_VOCAB_MAX) {
        return "the vocabulary is empty or too large";
    }
    if (b < 4 && info->vocab > 1U << (8 * b)) {
        return "the vocabulary does not fit in a token";
    }
    if (info->tokens > (UINT64_MAX - SHARD_HEADER_BYTES) / b) {
        return "the number of tokens is impossible";
    }
    if (!text_is_valid(info->tokenizer, sizeof info->tokenizer) ||
        info->tokenizer[0] == '\0') {
        return "the tokenizer's name is too long or not a text";
    }
    if (!text_is_valid(info->licence, sizeof info->licence)) {
        return "the licence is too long or not a text";
    }
    if (!text_is_valid(info->source, sizeof info->source)) {
        return "the source is too long or not a text";
    }
    return NULL;
}

int shard_header_encode(uint8_t out[SHARD_HEADER_BYTES],
                        const struct shard_info *info,
                        char *errmsg)
{
    const char *problem = info_problem(info);

    if (problem != NULL) {
        return errmsg_invalid(errmsg, "shard header: %s", problem);
    }
    memset(out, 0, SHARD_HEADER_BYTES);
    memcpy(out + AT_MAGIC, magic, sizeof magic);
    put_u32(out + AT_VERSION, VERSION);
    put_u32(out + AT_HEADER_SIZE, SHARD_HEADER_BYTES);
    put_u64(out + AT_TOKENS, info->tokens);
    put_u64(out + AT_TEXT_BYTES, info->text_bytes);
    put_u32(out + AT_VOCAB, info->vocab);
    put_u32(out + AT_TOKEN_BYTES, info->token_bytes);
    memcpy(out + AT_TOKENIZER, info->tokenizer, sizeof info->tokenizer);
    memcpy(out + AT_LICENCE, info->licence, sizeof info->licence);
    memcpy(out + AT_SOURCE, info->source, sizeof info->source);
    return 0;
}

/* What is wrong with the header or the file's size, or NULL. */
static const char *
decode_header(struct shard_info *info, const uint8_t *file, size_t size)
{
    const char *problem;

    if (size < SHARD_HEADER_BYTES) {
        return "it is shorter than a header";
    }
    if (memcmp(file + AT_MAGIC, magic, sizeof magic) != 0) {
        return "it is not an .ltk file";
    }
    if (get_u32(file + AT_VERSION) != VERSION ||
        get_u32(file + AT_HEADER_SIZE) != SHARD_HEADER_BYTES) {
        return "its version is unknown";
    }
    info->tokens = get_u64(file + AT_TOKENS);
    info->text_bytes = get_u64(file + AT_TEXT_BYTES);
    info->vocab = get_u32(file + AT_VOCAB);
    info->token_bytes = get_u32(file + AT_TOKEN_BYTES);
    memcpy(info->tokenizer, file + AT_TOKENIZER, sizeof info->tokenizer);
    memcpy(info->licence, file + AT_LICENCE, sizeof info->licence);
    memcpy(info->source, file + AT_SOURCE, sizeof info->source);
    problem = info_problem(info);
    if (problem != NULL) {
        return problem;
    }
    if (!all_zero(file + AT_ZERO, SHARD_HEADER_BYTES - AT_ZERO)) {
        return "reserved bytes are not zero";
    }
    if (size - SHARD_HEADER_BYTES != info->tokens * info->token_bytes) {
        return "its size does not match its number of tokens";
    }
    return NULL;
}

int shard_open_memory(struct shard *s,
                      const uint8_t *file,
                      size_t size,
                      char *errmsg)
{
    const char *problem;

    memset(s, 0, sizeof *s);
    problem = decode_header(&s->info, file, size);
    if (problem != NULL) {
        return errmsg_fail(errmsg, LOCO_EFORMAT, "shard: %s", problem);
    }
    s->data = file + SHARD_HEADER_BYTES;
    return 0;
}

/* ---- other people's files ------------------------------------------------ */

#define LLMC_HEADER_BYTES 1024

/* Each magic number has its version and width of a token. */
static const struct {
    uint32_t magic, version, token_bytes;
} llmc_kinds[] = {{20240520, 1, 2}, {20240801, 7, 4}};

#define LLMC_KINDS (sizeof llmc_kinds / sizeof llmc_kinds[0])

static const char *
decode_llmc(struct shard_info *info, const uint8_t *file, size_t size)
{
    if (size < LLMC_HEADER_BYTES) {
        return "it is shorter than a header of llm.c";
    }
    for (size_t i = 0; i < LLMC_KINDS; i++) {
        if (get_u32(file) != llmc_kinds[i].magic) {
            continue;
        }
        if (get_u32(file + 4) != llmc_kinds[i].version) {
            return "its version is unknown";
        }
        info->token_bytes = llmc_kinds[i].token_bytes;
        info->tokens = get_u32(file + 8);
        if (size - LLMC_HEADER_BYTES != info->tokens * info->token_bytes) {
            return "its size does not match its number of tokens";
        }
        return NULL;
    }
    return "it is not a token file of llm.c (20240520 or 20240801)";
}

bool shard_is_llmc(const char *path)
{
    struct file_map map;
    bool found = false;

    if (file_map_open(&map, path, NULL) != 0) {
        return false;
    }
    for (size_t i = 0; map.size >= 4 && i < LLMC_KINDS; i++) {
        found |= get_u32(map.data) == llmc_kinds[i].magic;
    }
    file_map_close(&map);
    return found;
}

static const char *decode_raw(struct shard_info *info, size_t size)
{
    info->tokens = size / info->token_bytes;
    return size % info->token_bytes == 0
               ? NULL
               : "its size is no multiple of a token's";
}

int shard_open_memory_as(struct shard *s,
                         const uint8_t *file,
                         size_t size,
                         enum shard_format format,
                         uint32_t vocab,
                         char *errmsg)
{
    const char *problem = NULL;

    if (format == SHARD_LTK) {
        return shard_open_memory(s, file, size, errmsg);
    }
    memset(s, 0, sizeof *s);
    if (vocab == 0 || vocab > SHARD_VOCAB_MAX) {
        return errmsg_invalid(errmsg, "a vocabulary of %u", vocab);
    }
    s->info.vocab = vocab;
    s->info.token_bytes = format == SHARD_U16 ? 2 : 4;
    s->data = file;
    if (format == SHARD_LLMC) {
        problem = decode_llmc(&s->info, file, size);
        s->data = problem == NULL ? file + LLMC_HEADER_BYTES : NULL;
    } else {
        problem = decode_raw(&s->info, size);
    }
    if (problem != NULL) {
        s->info.tokens = 0;
        return errmsg_fail(errmsg, LOCO_EFORMAT, "tokens: %s", problem);
    }
    return 0;
}

/* ---- files --------------------------------------------------------------- */

int shard_open_as(struct shard *s,
                  const char *path,
                  enum shard_format format,
                  uint32_t vocab,
                  char *errmsg)
{
    char problem[ERRMSG_SIZE];
    struct file_map map;
    int rv;

    memset(s, 0, sizeof *s);
    rv = file_map_open(&map, path, errmsg);
    if (rv != 0) {
        return rv;
    }
    rv = shard_open_memory_as(s, map.data, map.size, format, vocab, problem);
    if (rv != 0) {
        file_map_close(&map);
        return errmsg_fail(errmsg, rv, "%s: %s", path, problem);
    }
    s->map = map;
    return 0;
}

int shard_open(struct shard *s, const char *path, char *errmsg)
{
    return shard_open_as(s, path, SHARD_LTK, 0, errmsg);
}

void shard_from_text(struct shard *s, const void *text, size_t len)
{
    memset(s, 0, sizeof *s);
    s->info.tokens = len;
    s->info.text_bytes = len;
    s->info.vocab = 256;
    s->info.token_bytes = 1;
    memcpy(s->info.tokenizer, "byte", sizeof "byte");
    s->data = text;
}

void shard_close(struct shard *s)
{
    file_map_close(&s->map);
    s->data = NULL;
    s->info.tokens = 0;
}

/* Widen n tokens and return the largest id. */
static uint32_t
widen(const uint8_t *p, uint32_t token_bytes, size_t n, uint32_t *out)
{
    uint32_t max = 0;

    for (size_t i = 0; i < n; i++) {
        uint32_t id = token_bytes == 1   ? p[i]
                      : token_bytes == 2 ? get_u16(p + 2 * i)
                                         : get_u32(p + 4 * i);
        out[i] = id;
        max = id > max ? id : max;
    }
    return max;
}

int shard_read(const struct shard *s, uint64_t first, size_t n, uint32_t *out)
{
    const uint8_t *p;

    if (first > s->info.tokens || n > s->info.tokens - first) {
        return LOCO_ERANGE;
    }
    if (n == 0) {
        return 0;
    }
    p = s->data + first * s->info.token_bytes;
    if (widen(p, s->info.token_bytes, n, out) >= s->info.vocab) {
        return LOCO_EFORMAT;
    }
    return 0;
}
