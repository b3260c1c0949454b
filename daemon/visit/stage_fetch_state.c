/* stage_fetch_state.c - the bytes of a stage's state, from its hosts; see
 * stage_fetch.h. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/node/node.h"
#include "daemon/settings/state_dir.h"
#include "daemon/visit/stage_fetch_internal.h"
#include "proto/base/bytes.h"
#include "proto/base/clock.h"
#include "proto/base/err.h"
#include "proto/base/file.h"
#include "proto/hash.h"
#include "train/replica/checkpoint.h"
#include "train/replica/replica.h"

#define STALL_MS     30000 /* without a piece */
#define FLOOR        65536 /* bytes a second; a fetch below that ends */
#define PIECE_BYTES  262144U
#define WINDOW       8
#define HEADER_BYTES 20 /* of a segment */

/* ---- a state ------------------------------------------------------------ */

static uint32_t piece_len(uint64_t bytes, uint32_t seg)
{
    uint64_t at = (uint64_t)seg * PIECE_BYTES;

    return bytes - at < PIECE_BYTES ? (uint32_t)(bytes - at) : PIECE_BYTES;
}

/* A state that is wanted. */
struct wanted {
    uint64_t round, bytes;
    struct hash32 root;
};

static int ask_piece(struct fetch_host *h, const struct wanted *w, uint32_t seg)
{
    const struct fetch ask = {.buffer = BUFFER_STATE,
                              .index = w->round,
                              .offset = (uint64_t)seg * PIECE_BYTES,
                              .len = piece_len(w->bytes, seg),
                              .attempt = 1,
                              .seg = seg,
                              .stream = STREAM_FETCH,
                              .root = w->root};

    return dialogue_say(h->control, MESSAGE_FETCH, &ask);
}

/* The record that begins a segment; LOCO_ENOENT: the host says that it has no
 * such state. */
static int
await_piece(struct fetch_host *h, struct dialogue *bulk, uint32_t len)
{
    uint64_t until_ms = monotonic_ms() + STALL_MS;
    const uint8_t *bytes = NULL;
    int n;

    for (;;) {
        uint64_t now_ms = monotonic_ms();
        uint8_t type = 0;

        n = dialogue_record(bulk, now_ms + 200, &bytes);
        if (n != LOCO_ETIMEOUT || now_ms >= until_ms) {
            break;
        }
        while (dialogue_recv(h->control, now_ms, &type, &bytes) >= 0) {
            if (type == MESSAGE_FETCH_NO) {
                return LOCO_ENOENT;
            }
        }
    }
    if (n < 0) {
        return n;
    }
    return n == HEADER_BYTES && get_u32(bytes) == len ? 0 : LOCO_EPROTO;
}

/* The next segment: they come in the order asked for. */
static int take_piece(struct fetch_host *h,
                      struct dialogue *bulk,
                      uint8_t *to,
                      uint32_t len)
{
    const uint8_t *bytes = NULL;
    uint32_t got = 0;
    int rv = await_piece(h, bulk, len);

    while (rv == 0 && got < len) {
        int n = dialogue_record(bulk, monotonic_ms() + STALL_MS, &bytes);

        if (n <= 0 || (uint32_t)n > len - got) {
            return n < 0 ? n : LOCO_EPROTO;
        }
        memcpy(to + got, bytes, (size_t)n);
        got += (uint32_t)n;
    }
    return rv;
}

static int fetch_bytes(struct fetching *f,
                       struct fetch_host *h,
                       const struct wanted *w,
                       uint8_t *to)
{
    uint32_t n = (uint32_t)((w->bytes + PIECE_BYTES - 1) / PIECE_BYTES);
    struct dialogue *bulk = NULL;
    uint32_t asked = 0;
    int rv = 0;

    f->deadline_ms = monotonic_ms() + STAGE_VISIT_MS + w->bytes * 1000 / FLOOR;
    if (!stage_visit(f, h) || !stage_dial(f, h, true, &bulk)) {
        rv = LOCO_ECLOSED;
    }
    for (uint32_t got = 0; got < n && rv == 0; got++) {
        while (asked < n && asked < got + WINDOW && rv == 0) {
            rv = ask_piece(h, w, asked++);
        }
        rv = rv != 0 ? rv
                     : take_piece(h, bulk, to + (uint64_t)got * PIECE_BYTES,
                                  piece_len(w->bytes, got));
    }
    dialogue_close(bulk);
    stage_leave(f, h);
    return rv;
}

static bool
has_hash(const uint8_t *state, uint64_t params_bytes, const struct wanted *w)
{
    struct hash32 params, rest, hash;

    hash_tree(state, (size_t)params_bytes, &params);
    hash_tree(state + params_bytes, (size_t)(w->bytes - params_bytes), &rest);
    hash = node_state_hash(&params, &rest);
    return hash32_eq(&hash, &w->root);
}

static int write_stage(const struct fetching *f,
                       uint32_t stage,
                       uint64_t round,
                       uint64_t n,
                       const float *phi,
                       char *errmsg)
{
    char dir[FILE_PATH_MAX], run[ID_HEX_MAX], number[16];
    const struct st_meta extra = {.key = "stage", .value = number};
    const struct checkpoint_state state = {
        .n = n, .phi = phi, .round = round, .run_id = run};
    int rv;

    if (snprintf(dir, sizeof dir,
                 "%s/" STATE_DIR_STAGES "/%u/" STATE_DIR_CHECKPOINTS "/",
                 f->dir, stage + 1) >= (int)sizeof dir) {
        return errmsg_fail(errmsg, LOCO_ERANGE, "path is too long");
    }
    rv = file_make_folders(dir, errmsg);
    hash32_hex(&f->run, run);
    (void)snprintf(number, sizeof number, "%u", stage);
    return rv != 0 ? rv : checkpoint_save(dir, &state, &extra, 1, 2, errmsg);
}

bool stage_is_source(const struct fetching *f,
                     uint32_t i,
                     uint32_t stage,
                     size_t at)
{
    return f->host[i].names[at] && f->host[i].beat.stage == stage + 1;
}

int stage_get(struct fetching *f,
              uint32_t stage,
              size_t at,
              const struct hash32 *root,
              char *errmsg)
{
    struct wanted w = {.round = f->rounds[at], .root = *root};
    struct llama_part part = {0};
    uint64_t n;
    uint8_t *state;
    int rv =
        llama_part_of_stage(&f->model, f->manifest->stages, stage, &part, NULL);

    n = (uint64_t)part.numel;
    w.bytes = replica_state_elements(&f->method, n) * sizeof(float);
    state = rv == 0 ? malloc((size_t)w.bytes) : NULL;
    if (state == NULL) {
        return errmsg_fail(errmsg, LOCO_ENOMEM,
                           "out of memory for the state of stage %u",
                           stage + 1);
    }
    rv = errmsg_fail(errmsg, LOCO_ENOENT,
                     "no host of stage %u gave the state of round %llu that "
                     "it must have",
                     stage + 1, (unsigned long long)w.round);
    for (uint32_t i = 0; i < f->n_hosts && rv == LOCO_ENOENT; i++) {
        if (stage_is_source(f, i, stage, at) &&
            hash32_eq(&f->host[i].state[at], root) &&
            fetch_bytes(f, &f->host[i], &w, state) == 0 &&
            has_hash(state, n * sizeof(float), &w)) {
            rv = write_stage(f, stage, w.round, n, (const float *)(void *)state,
                             errmsg);
            f->bytes += w.bytes;
        }
    }
    free(state);
    return rv;
}
