/* machine_buffers.c - the bytes behind segments. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "daemon/machine_internal.h"
#include "p2p/butterfly.h"
#include "proto/base/err.h"
#include "proto/base/log.h"
#include "train/errmsg.h"

/* ---- segments --------------------------------------------------------- */

static bool in_elements(const struct segment *s)
{
    return s->buffer == BUFFER_RING || s->buffer == BUFFER_REDUCED ||
           machine_is_pair(s);
}

size_t machine_wire_len(void *self, const struct segment *s)
{
    const struct machine *m = self;

    if (machine_is_stage(s)) {
        return machine_stage_len(m, s);
    }
    if (slice_store_is(s)) {
        return machine_slice_len(m, s);
    }
    return in_elements(s) && m->codec != NULL ? m->codec->bytes(s->len)
                                              : s->len;
}

/* Bounds of a segment from outside against the buffer it names. */
static bool in_bounds(const struct machine *m, const struct segment *s)
{
    uint64_t size;

    if (!m->configured || s->len == 0) {
        return false;
    }
    if (in_elements(s)) {
        if (s->offset % m->codec->block != 0) {
            return false;
        }
        size = terms_elements(&m->terms, s->buffer == BUFFER_RING
                                             ? machine_round_of(s->attempt)
                                             : s->index);
    } else if (s->buffer == BUFFER_STATE) {
        size = m->terms.state_bytes;
    } else if (s->buffer == BUFFER_SHARD && s->index < m->terms.n_shards) {
        size = m->terms.shards[s->index].bytes;
    } else {
        size = machine_leaves_bytes(m, s);
    }
    return s->offset <= size && s->len <= size - s->offset;
}

/* Where a piece of the round in flight lies; NULL: no slot or no model yet. */
static uint8_t *ring_at(struct machine *m, const struct segment *s)
{
    struct wire_slot *slot = s->attempt == m->refused_attempt
                                 ? NULL
                                 : machine_slot_for(m, WIRE_RING, s->attempt);

    return slot == NULL || m->trainer == NULL
               ? NULL
               : slot->bytes + m->codec->bytes(s->offset);
}

/* Where what arrives for the own slice waits. */
static uint8_t *lane_at(struct machine *m, const struct segment *s)
{
    return lanes_fit(&m->lanes, m->codec, m->terms.segment_elements, s->lanes,
                     butterfly_slots(s->lanes)) == 0
               ? lanes_at(&m->lanes, s->lane, s->slot)
               : NULL;
}

static bool is_lane(const struct machine *m, const struct segment *s)
{
    return s->buffer == BUFFER_RING && s->op == SEGMENT_LANE &&
           s->len <= m->terms.segment_elements && in_bounds(m, s);
}

static bool is_ring_copy(const struct machine *m, const struct segment *s)
{
    return s->buffer == BUFFER_RING && s->op == SEGMENT_COPY && in_bounds(m, s);
}

/* Sealed at once; without encryption the bytes would have to outlive us. */
const uint8_t *machine_lend(void *self, const struct segment *s)
{
    struct machine *m = self;

    return m->opt.encryption && is_ring_copy(m, s) ? ring_at(m, s) : NULL;
}

uint8_t *machine_place(void *self, const struct segment *s)
{
    struct machine *m = self;

    if (is_lane(m, s)) {
        return lane_at(m, s);
    }
    if (machine_is_pair(s)) {
        return in_bounds(m, s) ? machine_pair_at(m, s) : NULL;
    }
    return is_ring_copy(m, s) ? ring_at(m, s) : NULL;
}

/* Where the rounding error of the own contribution goes, if it is kept. */
static float *error_at(const struct machine *m, const struct segment *s)
{
    return m->error == NULL ? NULL : m->error + s->offset;
}

/* From the unit of the mean to that of the own contribution. */
static void unscale(float *error, size_t n, float scale)
{
    for (size_t i = 0; error != NULL && i < n; i++) {
        error[i] = scale > 0 ? error[i] / scale : 0;
    }
}

/* Who is in the middle of a task takes part in a round with weight 0: what its
 * trainer may be packing meanwhile is not looked at. */
static const float *own_at(const struct machine *m, const struct segment *s)
{
    return (m->zeros != NULL && s->scale == 0.0
                ? m->zeros
                : trainer_contribution(m->trainer)) +
           s->offset;
}

static struct codec_op own_op(const struct machine *m, const struct segment *s)
{
    return (struct codec_op){
        .own = own_at(m, s),
        .n = s->len,
        .scale = (float)s->scale,
        .next = error_at(m, s),
    };
}

static int fill_ring(struct machine *m, const struct segment *s, uint8_t *dst)
{
    uint8_t *at = ring_at(m, s);

    if (at == NULL) {
        return LOCO_EBUSY;
    }
    if (s->op == SEGMENT_ENCODE) { /* its final bytes will come back */
        struct codec_op op = own_op(m, s);
        int rv = m->codec->encode_op(dst, &op);

        unscale(op.next, s->len, op.scale);
        return rv;
    }
    memcpy(dst, at, m->codec->bytes(s->len));
    return 0;
}

static int fill_shard(struct machine *m, const struct segment *s, uint8_t *dst)
{
    const struct shard_file *f = &m->files[s->index];

    if (!f->held || f->shard.map.data == NULL) {
        return LOCO_ENOENT;
    }
    memcpy(dst, f->shard.map.data + s->offset, s->len);
    return 0;
}

int machine_fill(void *self, const struct segment *s, uint8_t *dst)
{
    struct machine *m = self;
    const struct snapshot *snap;
    struct wire_slot *slot;

    if (machine_is_stage(s)) {
        return machine_stage_fill(m, s, dst);
    }
    if (slice_store_is(s)) {
        return machine_slice_fill(m, s, dst);
    }
    if (!in_bounds(m, s)) {
        return LOCO_ERANGE;
    }
    switch (s->buffer) {
    case BUFFER_RING:
        return fill_ring(m, s, dst);
    case BUFFER_REDUCED:
        slot = machine_slot_find(m, WIRE_REDUCED, s->index);
        if (slot == NULL) {
            return machine_round_fill(m, s, dst);
        }
        memcpy(dst, slot->bytes + m->codec->bytes(s->offset),
               m->codec->bytes(s->len));
        return 0;
    case BUFFER_STATE:
        snap = machine_snapshot(m, s);
        if (snap == NULL) {
            return LOCO_ENOENT;
        }
        memcpy(dst, (const uint8_t *)snap->state + s->offset, s->len);
        return 0;
    case BUFFER_SHARD:
        return fill_shard(m, s, dst);
    case BUFFER_STATE_LEAVES:
    case BUFFER_SHARD_LEAVES:
        return machine_fill_leaves(m, s, dst);
    case BUFFER_ANCHOR:
    case BUFFER_STEP:
        return machine_pair_fill(m, s, dst);
    case BUFFER_FORTH:
    case BUFFER_BACK:
    case BUFFER_PIECE:
    case BUFFER_SLICE:
    case BUFFER_READING:
    case BUFFER_KIND_COUNT:
        break;
    }
    return LOCO_EINVAL;
}

static int
take_lane(struct machine *m, const struct segment *s, const uint8_t *src)
{
    uint8_t *at = is_lane(m, s) ? lane_at(m, s) : NULL;

    if (at == NULL) {
        return LOCO_EBUSY;
    }
    if (src != at) {
        memcpy(at, src, m->codec->bytes(s->len));
    }
    lanes_keep(&m->lanes, s->attempt, s->lane, s->slot, s->len,
               (float)s->scale);
    return 0;
}

int machine_sum(void *self, struct segment *s)
{
    struct machine *m = self;
    struct lanes_sum sum = {
        .attempt = s->attempt,
        .lane = s->lane,
        .slot = s->slot,
        .n = s->len,
        .scale = (float)s->scale,
        .clip = m->clip,
        .next = error_at(m, s),
    };
    int rv;

    if (!in_bounds(m, s) || s->buffer != BUFFER_RING) {
        return LOCO_ERANGE;
    }
    sum.dst = ring_at(m, s);
    if (sum.dst == NULL) {
        return LOCO_EBUSY;
    }
    sum.own = own_at(m, s);
    rv = lanes_sum(&m->lanes, &sum);
    s->lane = (uint8_t)sum.bad;
    if (rv == 0) {
        machine_final(m, s);
    }
    return rv;
}

static int
take_ring(struct machine *m, const struct segment *s, const uint8_t *src)
{
    uint8_t *at = ring_at(m, s);

    if (at == NULL) {
        return LOCO_EBUSY;
    }
    if (s->op == SEGMENT_ADD) {
        struct codec_op op = own_op(m, s);
        int rv = m->codec->add_op(at, src, &op);

        unscale(op.next, s->len, op.scale);
        if (rv == 0) {
            machine_final(m, s);
        }
        return rv;
    }
    if (src != at) {
        memcpy(at, src, m->codec->bytes(s->len));
    }
    machine_final(m, s);
    return 0;
}

static int
take_shard(struct machine *m, const struct segment *s, const uint8_t *src)
{
    struct shard_file *f = &m->files[s->index];
    int rv = machine_open_part(f);

    for (uint32_t done = 0; rv == 0 && done < s->len;) {
        ssize_t n =
            pwrite(f->fd, src + done, s->len - done, (off_t)(s->offset + done));

        if (n < 0 && errno == EINTR) {
            continue;
        }
        if (n <= 0) {
            bool full = errno == ENOSPC || errno == EDQUOT;

            log_error("data", "cannot write %s.part: %s; free some disk space",
                      f->path, strerror(errno));
            if (full) {
                machine_stop(m, LOCO_EXIT_RESOURCES);
            }
            return full ? LOCO_EDISK : LOCO_EIO;
        }
        done += (uint32_t)n;
    }
    return rv;
}

static int
take_pair(struct machine *m, const struct segment *s, const uint8_t *src)
{
    uint8_t *at = machine_pair_at(m, s);

    if (at == NULL) {
        return LOCO_EBUSY;
    }
    if (src != at) {
        memcpy(at, src, m->codec->bytes(s->len));
    }
    return 0;
}

int machine_take(void *self,
                 const struct segment *s,
                 const uint8_t *src,
                 size_t len)
{
    struct machine *m = self;
    struct wire_slot *slot;

    if (machine_is_stage(s)) {
        return len == machine_stage_len(m, s) ? machine_stage_take(m, s, src)
                                              : LOCO_ERANGE;
    }
    if (slice_store_is(s)) {
        return machine_slice_take(m, s, src, len);
    }
    if (!in_bounds(m, s) || len != machine_wire_len(m, s)) {
        return LOCO_ERANGE;
    }
    switch (s->buffer) {
    case BUFFER_RING:
        return s->op == SEGMENT_LANE ? take_lane(m, s, src)
                                     : take_ring(m, s, src);
    case BUFFER_REDUCED:
        slot = machine_slot_for(m, WIRE_FETCHED, s->index);
        if (slot == NULL) {
            return LOCO_EBUSY;
        }
        memcpy(slot->bytes + m->codec->bytes(s->offset), src, len);
        return 0;
    case BUFFER_STATE:
        return machine_take_state(m, s, src);
    case BUFFER_SHARD:
        return take_shard(m, s, src);
    case BUFFER_STATE_LEAVES:
    case BUFFER_SHARD_LEAVES:
        return machine_take_leaves(m, s, src);
    case BUFFER_ANCHOR:
    case BUFFER_STEP:
        return take_pair(m, s, src);
    case BUFFER_FORTH:
    case BUFFER_BACK:
    case BUFFER_PIECE:
    case BUFFER_SLICE:
    case BUFFER_READING:
    case BUFFER_KIND_COUNT:
        break;
    }
    return LOCO_EINVAL;
}

/* A shard is whole and verified: give it its name. Nothing waits for the disk
 * here, as a member does not stand still for that long: every start hashes the
 * file, and one that a power cut has spoilt is fetched again. */
void machine_keep(struct machine *m, uint64_t index)
{
    struct shard_file *f = &m->files[index];
    bool tokenizer = manifest_is_tokenizer(&m->manifest->data, (uint32_t)index);
    char part[MACHINE_PATH_MAX + 8], url[MACHINE_PATH_MAX + 8];
    char errmsg[ERRMSG_SIZE];
    int rv;

    (void)snprintf(part, sizeof part, "%s.part", f->path);
    (void)snprintf(url, sizeof url, "%s.url", f->path);
    machine_keep_leaves(m, index);
    rv = ftruncate(f->fd, (off_t)m->terms.shards[index].bytes);
    if (rv == 0) { /* what a URL left is of no use any more */
        (void)unlink(url);
        rv = rename(part, f->path);
    }
    if (rv != 0) {
        (void)snprintf(errmsg, sizeof errmsg, "%s", strerror(errno));
    } else if ((tokenizer ? file_map_open(&f->shard.map, f->path, errmsg)
                          : shard_open(&f->shard, f->path, errmsg)) == 0) {
        (void)close(f->fd);
        f->fd = -1;
        f->held = true;
        log_info("data", "shard %s is here and verified", f->path);
        machine_add_text(m, (uint32_t)index);
        return;
    }
    log_error("data", "cannot keep shard %s: %s; check the disk", f->path,
              errmsg);
    machine_stop(m, LOCO_EXIT_RESOURCES);
}
