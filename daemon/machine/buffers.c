/* buffers.c - the bytes behind segments. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "daemon/machine/internal.h"
#include "proto/base/err.h"
#include "proto/base/errmsg.h"
#include "proto/base/file.h"
#include "proto/base/log.h"
#include "proto/base/pages.h"

/* ---- segments --------------------------------------------------------- */

size_t machine_wire_len(void *self, const struct segment *s)
{
    const struct machine *m = self;

    if (segment_is_stage(s)) {
        return machine_stage_len(m, s);
    }
    return m->codec == NULL ? s->len : segment_wire_len(&m->terms, m->codec, s);
}

/* Where a segment from outside lies in the buffer that it names. */
static int place(const struct machine *m, const struct segment *s, size_t *at)
{
    return m->configured ? segment_place(&m->terms, m->codec, s, at)
                         : LOCO_ERANGE;
}

/* Where a piece of the round in flight lies; NULL: outside, no slot or no model
 * yet. */
static uint8_t *ring_at(struct machine *m, const struct segment *s)
{
    struct wire_slot *slot;
    size_t at;

    if (s->buffer != BUFFER_RING || place(m, s, &at) != 0 ||
        s->attempt == m->wire.slots.refused) {
        return NULL;
    }
    slot = machine_slot_for(m, WIRE_RING, s->attempt);
    return slot == NULL || m->trainer == NULL ? NULL : slot->bytes + at;
}

/* Sealed at once; without encryption the bytes would have to outlive us. */
const uint8_t *machine_lend(void *self, const struct segment *s)
{
    struct machine *m = self;

    return m->opt.settings->encryption && s->op == SEGMENT_COPY ? ring_at(m, s)
                                                                : NULL;
}

uint8_t *machine_place(void *self, const struct segment *s)
{
    struct machine *m = self;
    size_t at;

    if (segment_is_pair(s)) {
        return place(m, s, &at) == 0 ? machine_pair_at(m, s) : NULL;
    }
    if (s->proven) {
        return NULL; /* it is checked before it goes anywhere */
    }
    if (s->buffer == BUFFER_RING && s->op == SEGMENT_LANE) {
        return place(m, s, &at) == 0 ? reduce_lane(&m->wire.reduce, s) : NULL;
    }
    return s->op == SEGMENT_COPY ? ring_at(m, s) : NULL;
}

/* Who is in the middle of a task takes part in a round with weight 0: what its
 * trainer may be packing meanwhile is not looked at. */
static struct reduce_vectors vectors(const struct machine *m,
                                     const struct segment *s)
{
    bool none = m->wire.zeros != NULL && s->scale == 0.0;

    return (struct reduce_vectors){
        .own = none ? m->wire.zeros : trainer_contribution(m->trainer),
        .error = m->wire.error,
    };
}

/* The own part of a sum, encoded. */
static int encode(struct machine *m, const struct segment *s, uint8_t *dst)
{
    const struct reduce_vectors v = vectors(m, s);
    const uint8_t *own;

    if (!machine_sends_offer(m)) {
        return reduce_encode(&m->wire.reduce, &v, s, dst);
    }
    own = machine_own_encoded(m, s->offset, s->len);
    if (own == NULL || s->scale != 1) { /* a butterfly sends it unscaled */
        return LOCO_ENOENT;
    }
    memcpy(dst, own, m->codec->bytes(s->len));
    return 0;
}

static int fill_ring(struct machine *m, const struct segment *s, uint8_t *dst)
{
    const uint8_t *at = ring_at(m, s);
    int rv;

    if (at == NULL) {
        return LOCO_EBUSY;
    }
    if (s->op == SEGMENT_ENCODE) { /* its final bytes will come back */
        rv = encode(m, s, dst);
        return rv == 0 && s->proven
                   ? machine_prove(m, s, dst + m->codec->bytes(s->len))
                   : rv;
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
    if (!manifest_is_text(&m->manifest->data, (uint32_t)s->index)) {
        pages_forget(f->shard.map.data + s->offset, s->len); /* weights */
    }
    return 0;
}

int machine_fill(void *self, const struct segment *s, uint8_t *dst)
{
    struct machine *m = self;
    const struct snapshot *snap;
    const struct wire_slot *slot;
    size_t at;

    if (segment_is_stage(s)) {
        return machine_stage_fill(m, s, dst);
    }
    if (place(m, s, &at) != 0) {
        return LOCO_ERANGE;
    }
    switch (s->buffer) {
    case BUFFER_RING:
        return fill_ring(m, s, dst);
    case BUFFER_REDUCED:
        slot = wire_slots_find(&m->wire.slots, WIRE_REDUCED, s->index);
        if (slot == NULL) {
            return machine_round_fill(m, s, dst);
        }
        memcpy(dst, slot->bytes + at, m->codec->bytes(s->len));
        return 0;
    case BUFFER_STATE:
        snap = machine_snapshot(m, s);
        if (snap == NULL) {
            return LOCO_ENOENT;
        }
        memcpy(dst, (const uint8_t *)snap->state + at, s->len);
        return 0;
    case BUFFER_SHARD:
        return fill_shard(m, s, dst);
    case BUFFER_STATE_LEAVES:
    case BUFFER_SHARD_LEAVES:
        return machine_fill_leaves(m, s, dst);
    case BUFFER_OFFER:
        return machine_offer_fill(m, s, dst);
    case BUFFER_MOMENTS:
        return machine_moments_fill(m, s, dst);
    case BUFFER_ANCHOR:
    case BUFFER_STEP:
        return machine_pair_fill(m, s, dst);
    case BUFFER_FORTH:
    case BUFFER_BACK:
    case BUFFER_KIND_COUNT:
        break;
    }
    return LOCO_EINVAL;
}

int machine_sum(void *self, struct segment *s)
{
    struct machine *m = self;
    const struct segment own = *s;
    struct reduce_vectors v;
    uint8_t *dst;
    size_t at;
    int rv;

    if (s->buffer != BUFFER_RING || place(m, s, &at) != 0) {
        return LOCO_ERANGE;
    }
    dst = ring_at(m, s);
    if (dst == NULL) {
        return LOCO_EBUSY;
    }
    v = vectors(m, s);
    if (machine_sends_offer(m)) {
        v.encoded = machine_own_encoded(m, s->offset, s->len);
        if (v.encoded == NULL) {
            return LOCO_ENOENT;
        }
    }
    m->wire.reduce.before = terms_elements_before(&m->terms, segment_round(s));
    rv = reduce_sum(&m->wire.reduce, &v, s, dst);
    rv = rv == 0 && m->terms.audits ? machine_summed_own(m, &own) : rv;
    if (rv == 0) {
        machine_final(m, s);
    }
    return rv;
}

/* What came, to where it stays; it may be there already. */
static int copy_to(uint8_t *at, const uint8_t *src, size_t len)
{
    if (at == NULL) {
        return LOCO_EBUSY;
    }
    if (src != at) {
        memcpy(at, src, len);
    }
    return 0;
}

static int take_ring(struct machine *m,
                     const struct segment *s,
                     const uint8_t *src,
                     size_t len)
{
    uint8_t *at;
    struct reduce_vectors v;
    int rv;

    if (s->op == SEGMENT_LANE) {
        const struct offer_cut cut = segment_cut(&m->terms, m->codec, s);

        rv = s->proven ? offer_check(&cut, s, segment_round(s), src) : 0;
        return rv == 0 ? reduce_keep(&m->wire.reduce, s, src) : rv;
    }
    rv = segment_is_result(s) ? reduce_usable(&m->wire.reduce, s, src) : 0;
    if (rv != 0) {
        return rv;
    }
    at = ring_at(m, s);
    if (at != NULL && s->op == SEGMENT_ADD) {
        v = vectors(m, s);
        rv = reduce_add(&m->wire.reduce, &v, s, at, src);
    } else {
        rv = copy_to(at, src, len);
    }
    if (rv == 0) {
        machine_final(m, s);
    }
    return rv;
}

static int
take_shard(struct machine *m, const struct segment *s, const uint8_t *src)
{
    struct shard_file *f = &m->files[s->index];
    int rv = machine_open_part(f);

    if (rv != 0) {
        return rv;
    }
    rv = machine_write_at(f->fd, s->offset, src, s->len);
    if (rv != 0) {
        log_error("data", "cannot write %s.part: %s; free some disk space",
                  f->path, strerror(errno));
    }
    if (rv == LOCO_EDISK) {
        machine_stop(m, LOCO_EXIT_RESOURCES);
    }
    return rv;
}

int machine_take(void *self,
                 const struct segment *s,
                 const uint8_t *src,
                 size_t len)
{
    struct machine *m = self;
    struct wire_slot *slot;
    size_t at;

    if (segment_is_stage(s)) {
        return len == machine_stage_len(m, s) ? machine_stage_take(m, s, src)
                                              : LOCO_ERANGE;
    }
    if (place(m, s, &at) != 0 || len != machine_wire_len(m, s)) {
        return LOCO_ERANGE;
    }
    switch (s->buffer) {
    case BUFFER_RING:
        return take_ring(m, s, src, len);
    case BUFFER_REDUCED:
        slot = machine_slot_for(m, WIRE_FETCHED, s->index);
        return copy_to(slot == NULL ? NULL : slot->bytes + at, src, len);
    case BUFFER_STATE:
        return machine_take_state(m, s, src);
    case BUFFER_SHARD:
        return take_shard(m, s, src);
    case BUFFER_STATE_LEAVES:
    case BUFFER_SHARD_LEAVES:
        return machine_take_leaves(m, s, src);
    case BUFFER_OFFER:
        return s->stream == STREAM_WORK ? machine_work_take(m, s, src)
                                        : machine_offer_take(m, s, src);
    case BUFFER_MOMENTS:
        return machine_work_take(m, s, src);
    case BUFFER_ANCHOR:
    case BUFFER_STEP:
        return copy_to(machine_pair_at(m, s), src, len);
    case BUFFER_FORTH:
    case BUFFER_BACK:
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
    bool text = manifest_is_text(&m->manifest->data, (uint32_t)index);
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
    } else if ((text ? shard_open(&f->shard, f->path, errmsg)
                     : file_map_open(&f->shard.map, f->path, errmsg)) == 0) {
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
