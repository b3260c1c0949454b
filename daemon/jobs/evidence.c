/* evidence.c - where a block lies, and the file that convicts: see evidence.h.
 */
#include "daemon/jobs/evidence.h"

#include <stdlib.h>
#include <string.h>

#include "proto/base/bytes.h"
#include "proto/base/err.h"
#include "proto/blocks.h"
#include "proto/hash.h"

static uint32_t proof_bytes(uint64_t n, uint64_t from, uint64_t to)
{
    return blocks_proof_len(n, from, to) * (uint32_t)ID_BYTES;
}

int evidence_place(const struct codec *codec,
                   uint32_t block,
                   uint64_t elements,
                   uint64_t at,
                   struct evidence_place *p)
{
    uint64_t all, begin, last;

    if (at >= elements || at % block != 0) {
        return LOCO_ERANGE;
    }
    all = codec->bytes((size_t)elements);
    begin = codec->bytes((size_t)at);
    *p = (struct evidence_place){
        .n_blocks = (elements + block - 1) / block,
        .block = at / block,
        .at = at,
        .elements = elements - at < block ? (uint32_t)(elements - at) : block,
        .n_pieces = hash_tree_pieces(all),
        .piece = begin / HASH_PIECE_BYTES,
    };
    p->bytes = (uint32_t)codec->bytes(p->elements);
    p->proof_bytes = proof_bytes(p->n_blocks, p->block, p->block + 1);
    p->end = (begin + p->bytes - 1) / HASH_PIECE_BYTES + 1;
    p->pieces_at = p->piece * HASH_PIECE_BYTES;
    last = p->end * HASH_PIECE_BYTES;
    p->pieces_bytes = (uint32_t)((last < all ? last : all) - p->pieces_at);
    p->pieces_proof_bytes = proof_bytes(p->n_pieces, p->piece, p->end);
    p->begin = (uint32_t)(begin - p->pieces_at);
    return 0;
}

/* A file that grows; bytes NULL: it is only measured. */
struct writer {
    uint8_t *bytes;
    size_t len;
};

static void put(struct writer *w, const void *from, size_t n)
{
    if (w->bytes != NULL && n > 0) {
        memcpy(w->bytes + w->len, from, n);
    }
    w->len += n;
}

static void put_word(struct writer *w, uint32_t v)
{
    uint8_t word[4];

    put_u32(word, v);
    put(w, word, sizeof word);
}

static void put_section(struct writer *w, const void *from, size_t n)
{
    put_word(w, (uint32_t)n);
    put(w, from, n);
}

/* A struct in its encoding. LOCO_ERANGE: it has none. */
static int
put_message(struct writer *w, const struct msg_schema *schema, const void *obj)
{
    uint8_t bytes[FRAME_CONTROL_MAX];
    int n = msg_encode(schema, obj, bytes, sizeof bytes);

    if (n >= 0) {
        put_section(w, bytes, (size_t)n);
    }
    return n < 0 ? n : 0;
}

/* A magic, a version and the manifest. */
static void put_start(struct writer *w,
                      const char *magic,
                      uint32_t version,
                      const uint8_t *manifest,
                      size_t n)
{
    put(w, magic, sizeof EVIDENCE_MAGIC - 1);
    put_word(w, version);
    put_section(w, manifest, n);
}

static int put_all(struct writer *w,
                   const struct evidence *e,
                   const struct evidence_place *p)
{
    uint8_t at[8];
    int rv;

    put_u64(at, p->at);
    put_start(w, EVIDENCE_MAGIC, EVIDENCE_VERSION, e->manifest, e->n_manifest);
    rv = put_message(w, &view_body_schema, e->view);
    rv = rv != 0 ? rv : put_message(w, &plan_body_schema, e->plan);
    rv = rv != 0 ? rv : put_message(w, &vote_schema, e->vote);
    put_word(w, e->accused);
    put(w, at, sizeof at);
    put(w, e->pieces, p->pieces_bytes);
    put(w, e->pieces_proof, p->pieces_proof_bytes);
    for (uint32_t k = 0; k < e->plan->n_members; k++) {
        put(w, e->block[k], p->bytes);
        put(w, e->proof[k], p->proof_bytes);
    }
    return rv;
}

int evidence_write(const struct evidence *e,
                   const struct evidence_place *p,
                   uint8_t **bytes,
                   size_t *len)
{
    struct writer w = {NULL, 0};
    int rv = put_all(&w, e, p);

    if (rv != 0) {
        return rv;
    }
    w.bytes = malloc(w.len);
    if (w.bytes == NULL) {
        return LOCO_ENOMEM;
    }
    w.len = 0;
    (void)put_all(&w, e, p); /* as before: it has only been measured */
    *bytes = w.bytes;
    *len = w.len;
    return 0;
}

int evidence_write_work(const uint8_t *manifest,
                        size_t n_manifest,
                        const uint8_t *conviction,
                        size_t n_conviction,
                        uint8_t **bytes,
                        size_t *len)
{
    struct writer w = {NULL, 0};

    for (int turn = 0; turn < 2; turn++) { /* it is measured, then written */
        w.len = 0;
        put_start(&w, EVIDENCE_WORK_MAGIC, EVIDENCE_WORK_VERSION, manifest,
                  n_manifest);
        put_section(&w, conviction, n_conviction);
        w.bytes = turn == 0 ? malloc(w.len) : w.bytes;
        if (w.bytes == NULL) {
            return LOCO_ENOMEM;
        }
    }
    *bytes = w.bytes;
    *len = w.len;
    return 0;
}
