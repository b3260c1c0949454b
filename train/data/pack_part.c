/* pack_part.c - see pack_part.h.
 *
 * Happy path: a header is written, then each input that reaches into the piece
 * gives its share: bytes as they are, text through the tokenizer, tokens
 * widened and narrowed; then the header once more, now with the counts.
 */
#include "train/data/pack_part.h"

#include "proto/base/bytes.h"
#include "proto/base/err.h"
#include "proto/base/errmsg.h"
#include "proto/base/file.h"

#define CHUNK 4096 /* tokens */

struct part {
    const struct pack_writer *w;
    struct file_out f;
    struct shard_info *info;
};

static int put_ids(void *data, const uint32_t *ids, size_t n)
{
    struct part *p = data;
    uint8_t bytes[4 * CHUNK];
    uint32_t width = p->info->token_bytes;

    for (size_t done = 0; done < n;) {
        size_t m = n - done < CHUNK ? n - done : CHUNK;
        int rv;

        for (size_t i = 0; i < m; i++) {
            if (width == 1) {
                bytes[i] = (uint8_t)ids[done + i];
            } else if (width == 2) {
                put_u16(bytes + 2 * i, (uint16_t)ids[done + i]);
            } else {
                put_u32(bytes + 4 * i, ids[done + i]);
            }
        }
        rv = file_out_write(&p->f, bytes, width * m, p->w->errmsg);
        if (rv != 0) {
            return rv;
        }
        done += m;
    }
    p->info->tokens += n;
    return 0;
}

/* Ready tokens must be ones that the tokenizer knows: their text is counted. */
static int put_tokens(struct part *p,
                      const struct pack_input *item,
                      uint64_t from,
                      uint64_t to)
{
    while (from < to) {
        uint32_t ids[CHUNK];
        size_t n = to - from < CHUNK ? (size_t)(to - from) : CHUNK;
        int rv = shard_read(&item->tokens, from, n, ids);

        for (size_t i = 0; i < n; i++) {
            size_t len = 0;

            if (tokenizer_text(p->w->tokenizer, ids[i], &len) == NULL) {
                return errmsg_fail(p->w->errmsg, LOCO_EFORMAT,
                                   "%.120s: token %u at place %llu is not in "
                                   "the tokenizer's vocabulary of %u",
                                   item->path, ids[i],
                                   (unsigned long long)(from + i),
                                   p->info->vocab);
            }
            p->info->text_bytes += len;
        }
        rv = rv == 0 ? put_ids(p, ids, n) : rv;
        if (rv != 0) {
            return rv;
        }
        from += n;
    }
    return 0;
}

static int put_text(struct part *p,
                    const struct pack_input *item,
                    uint64_t from,
                    uint64_t to)
{
    const uint8_t *text = item->map.data + from;
    size_t len = (size_t)(to - from);
    char problem[ERRMSG_SIZE] = "";
    int rv;

    p->info->text_bytes += len;
    if (p->w->encoder == NULL) {
        p->info->tokens += len;
        return file_out_write(&p->f, text, len, p->w->errmsg);
    }
    rv = tokenizer_encode(p->w->encoder, text, len, put_ids, p, problem);
    return rv == 0 ? 0
                   : errmsg_fail(p->w->errmsg, rv, "%.100s: %.140s", item->path,
                                 problem);
}

static int put_range(struct part *p, uint64_t begin, uint64_t end)
{
    const struct pack_inputs *in = p->w->in;
    uint64_t base = 0;

    for (size_t i = 0; i < in->n && base < end; i++) {
        uint64_t size = in->items[i].units;
        uint64_t from = begin > base ? begin - base : 0;
        uint64_t to = end - base < size ? end - base : size;

        if (from < to) {
            int rv = in->tokens ? put_tokens(p, &in->items[i], from, to)
                                : put_text(p, &in->items[i], from, to);

            if (rv != 0) {
                return rv;
            }
        }
        base += size;
    }
    return 0;
}

int pack_part(const struct pack_writer *w,
              const char *path,
              const struct pack_range *ranges,
              uint64_t n,
              struct shard_info *info)
{
    uint8_t header[SHARD_HEADER_BYTES];
    struct part p = {.w = w, .info = info};
    int rv;

    info->tokens = 0;
    info->text_bytes = 0;
    rv = shard_header_encode(header, info, w->errmsg);
    rv = rv == 0 ? file_out_open(&p.f, path, w->errmsg) : rv;
    if (rv != 0) {
        return rv;
    }
    rv = file_out_write(&p.f, header, sizeof header, w->errmsg);
    for (uint64_t i = 0; rv == 0 && i < n; i++) {
        rv = put_range(&p, ranges[i].begin, ranges[i].end);
    }
    rv = rv == 0 ? shard_header_encode(header, info, w->errmsg) : rv;
    if (rv == 0) {
        rv = file_out_patch(&p.f, 0, header, sizeof header, w->errmsg);
    }
    if (rv != 0) {
        file_out_abort(&p.f);
        return rv;
    }
    return file_out_commit(&p.f, w->errmsg);
}
