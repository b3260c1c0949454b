/* local_buffer.c - the bytes that segments name. See local.h. */
#include "tests/sim/local_internal.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/node.h"
#include "daemon/slice_store.h"
#include "p2p/butterfly.h"
#include "proto/base/err.h"
#include "proto/hash.h"
#include "tests/sim/world_internal.h"

/* Rounds whose wire bytes are kept; two, so that one can be put in place while
 * the one before is fetched. */
static uint32_t n_reduced(const struct local *l)
{
    uint64_t n = 2 * l->state_bytes / local_round_bytes(l, 1);

    return n > LOCAL_REDUCED ? LOCAL_REDUCED : n < 2 ? 2 : (uint32_t)n;
}

/* Slot of a round's wire bytes; `make` evicts the oldest. */
struct local_reduced *
local_reduced_at(struct local *l, struct machine *m, uint64_t index, bool make)
{
    struct local_reduced *oldest = &m->reduced[0];

    for (uint32_t k = 0; k < n_reduced(l); k++) {
        struct local_reduced *r = &m->reduced[k];

        if (r->used && r->index == index) {
            return r;
        }
        if (!r->used || (oldest->used && r->index < oldest->index)) {
            oldest = r;
        }
    }
    if (!make) {
        return NULL;
    }
    if (oldest->bytes == NULL) {
        oldest->bytes = world_alloc(l->vector_bytes);
    }
    memset(oldest->bytes, 0, l->vector_bytes);
    oldest->used = true;
    oldest->complete = false;
    oldest->index = index;
    return oldest;
}

/* Wire bytes of that attempt; the oldest give way, with bytes that no codec
 * wrote: who relies on what was there before shows. */
uint8_t *local_ring_at(struct local *l, struct machine *m, uint64_t attempt)
{
    struct local_ring *at = &m->rings[0];

    for (uint32_t k = 0; k < LOCAL_RINGS; k++) {
        if (m->rings[k].attempt == attempt) {
            return m->rings[k].bytes;
        }
        at = m->rings[k].attempt < at->attempt ? &m->rings[k] : at;
    }
    if (at->bytes == NULL) {
        at->bytes = world_alloc(l->vector_bytes);
    }
    memset(at->bytes, 0xa5, l->vector_bytes);
    at->attempt = attempt;
    return at->bytes;
}

bool local_inherit(struct machine *m, uint64_t from, uint64_t to)
{
    struct local_ring *kept = NULL;

    for (uint32_t k = 0; k < LOCAL_RINGS; k++) {
        struct local_ring *r = &m->rings[k];

        kept = r->attempt == from ? r : kept;
        r->attempt = r->attempt == to ? 0 : r->attempt; /* another branch's */
    }
    if (kept == NULL || m->forgets) {
        m->forgets = false;
        m->ring_refused = to;
        return false;
    }
    kept->attempt = to;
    return true;
}

static bool is_named(const struct local_state *s, uint64_t round, uint64_t name)
{
    return s->used && s->round == round && (name == 0 || s->name == name);
}

const uint8_t *local_state_at(const struct local *l,
                              const struct machine *m,
                              uint64_t round,
                              uint64_t name)
{
    (void)l;
    for (uint32_t k = 0; k < LOCAL_STATES; k++) {
        if (is_named(&m->states[k], round, name)) {
            return m->states[k].bytes;
        }
    }
    if (is_named(&m->pinned, round, name)) {
        return m->pinned.bytes;
    }
    return is_named(&m->disk.state, round, name) ? m->disk.state.bytes : NULL;
}

/* Somebody fetches it. */
static void note_asked(struct local *l, struct machine *m, uint64_t round)
{
    for (uint32_t k = 0; k < LOCAL_STATES; k++) {
        if (is_named(&m->states[k], round, 0)) {
            m->states[k].asked_ms = world_now(l->world);
            return;
        }
    }
    if (is_named(&m->pinned, round, 0)) {
        m->pinned.asked_ms = world_now(l->world);
    }
}

uint64_t local_state_name(const struct machine *m, uint64_t round)
{
    for (uint32_t k = 0; k < LOCAL_STATES; k++) {
        if (is_named(&m->states[k], round, 0)) {
            return m->states[k].name;
        }
    }
    return 0;
}

static bool is_asked(const struct local *l, const struct local_state *s)
{
    return s->used && s->asked_ms > 0 &&
           world_now(l->world) - s->asked_ms < LOCAL_PIN_MS;
}

/* It leaves its place: kept if it is being fetched, one at a time. */
static void retire(struct local *l, struct machine *m, struct local_state *s)
{
    struct local_state before = m->pinned;

    if (is_asked(l, s) && !is_asked(l, &m->pinned)) {
        m->pinned = *s;
        *s = before;
    } else if (!is_asked(l, &m->pinned)) {
        m->pinned.used = false;
    }
}

/* Keep the anchor and momentum of now as the state of `round`. */
void local_state_keep(struct local *l, struct machine *m, uint64_t round)
{
    struct local_state *at = &m->states[0];
    size_t half = l->state_bytes / 2;
    struct hash32 params, momentum, hash;

    for (uint32_t k = 0; k < LOCAL_STATES; k++) {
        struct local_state *s = &m->states[k];

        if (s->used && s->round == round) {
            at = s;
            break;
        }
        if (!s->used || (at->used && s->round < at->round)) {
            at = s;
        }
    }
    if (at->round != round) {
        retire(l, m, at);
    }
    if (at->bytes == NULL) {
        at->bytes = world_alloc(l->state_bytes);
    }
    at->used = true;
    at->round = round;
    at->asked_ms = 0;
    memcpy(at->bytes, m->phi, half);
    memcpy(at->bytes + half, m->m, half);
    local_hash_state(l, at->bytes, &params, &momentum);
    hash = node_state_hash(&params, &momentum);
    at->name = hash32_u64(&hash);
}

void local_hash_state(const struct local *l,
                      const uint8_t *state,
                      struct hash32 *params,
                      struct hash32 *momentum)
{
    size_t half = l->state_bytes / 2;

    local_tree(l, state, half, params);
    local_tree(l, state + half, half, momentum);
}

/* A rounding error, in the unit of the own contribution. */
static void unscale(float *error, size_t n, float scale)
{
    for (size_t i = 0; i < n; i++) {
        error[i] = scale > 0 ? error[i] / scale : 0;
    }
}

static int encode_own(struct local *l,
                      struct machine *m,
                      uint64_t at,
                      uint64_t n,
                      float scale,
                      uint8_t *dst)
{
    struct codec_op op = {.own = m->contribution + at,
                          .n = n,
                          .scale = scale,
                          .next = m->error + at};
    int rc = l->codec->encode_op(dst, &op);

    unscale(op.next, n, scale);
    return rc;
}

int local_hash_buffer(struct local *l,
                      struct machine *m,
                      const struct action *a,
                      struct local_event *e)
{
    struct local_reduced *r;
    uint8_t *ring;
    uint64_t n;
    int rc = 0;

    switch (a->buffer) {
    case BUFFER_RING:
        if (a->request == m->ring_refused) {
            return LOCO_ENOENT;
        }
        ring = local_ring_at(l, m, a->request);
        m->ring_hashed = a->request;
        n = local_elements(l, local_round_of(a->request), NULL);
        if (a->encode && a->segment.offset < n) {
            uint64_t at = a->segment.offset;

            rc = encode_own(l, m, at, n - at, 1, ring + l->codec->bytes(at));
        }
        hash_tree(ring, l->codec->bytes(n), &e->hash);
        return rc;
    case BUFFER_REDUCED:
        r = local_reduced_at(l, m, a->index, false);
        if (r == NULL) {
            return LOCO_ENOENT;
        }
        hash_tree(r->bytes, local_round_bytes(l, a->index), &e->hash);
        return 0;
    case BUFFER_STEP:
        return local_pair_hash(l, m, a->first, &e->hash);
    default:
        break;
    }
    return LOCO_EINVAL;
}

static bool is_pair(const struct segment *seg)
{
    return seg->buffer == BUFFER_ANCHOR || seg->buffer == BUFFER_STEP;
}

static bool in_elements(const struct segment *seg)
{
    return seg->buffer == BUFFER_RING || seg->buffer == BUFFER_REDUCED ||
           is_pair(seg);
}

size_t local_wire_len(void *self, uint32_t peer, const struct segment *seg)
{
    const struct local *l = self;

    (void)peer;
    if (local_is_cut(seg)) {
        return local_cut_bytes(seg);
    }
    if (slice_store_is(seg)) {
        return local_owned_bytes(&l->machines[peer], seg);
    }
    return in_elements(seg) ? l->codec->bytes(seg->len) : seg->len;
}

/* Where a segment lies in its buffer, in bytes; LOCO_ERANGE outside of it. */
static int place(const struct local *l, const struct segment *seg, size_t *at)
{
    uint64_t round =
        seg->buffer == BUFFER_RING ? local_round_of(seg->attempt) : seg->index;
    uint64_t total = seg->buffer == BUFFER_STATE   ? l->state_bytes
                     : seg->buffer == BUFFER_SHARD ? l->opt.shard_bytes
                     : in_elements(seg) && round > 0
                         ? local_elements(l, round, NULL)
                     : in_elements(seg) ? 0
                                        : local_leaves_bytes(l, seg);

    if (seg->offset > total || seg->len > total - seg->offset ||
        (in_elements(seg) && seg->offset % l->codec->block != 0)) {
        return LOCO_ERANGE;
    }
    *at = in_elements(seg) ? l->codec->bytes(seg->offset) : seg->offset;
    return 0;
}

/* The bytes of a buffer to be sent, from its start; NULL: not held. */
static const uint8_t *
source(struct local *l, struct machine *m, const struct segment *seg)
{
    struct local_reduced *r;

    switch (seg->buffer) {
    case BUFFER_RING:
        return local_ring_at(l, m, seg->attempt);
    case BUFFER_REDUCED:
        r = local_reduced_at(l, m, seg->index, false);
        return r != NULL && r->complete ? r->bytes : NULL;
    case BUFFER_STATE:
        return local_state_at(l, m, seg->index, seg->name);
    case BUFFER_SHARD:
        return seg->index < l->opt.n_shards && m->held[seg->index]
                   ? l->shards[seg->index]
                   : NULL;
    default:
        break;
    }
    return NULL;
}

/* Some bytes of a leaf list. */
static int fill_leaves(struct local *l,
                       struct machine *m,
                       const struct segment *seg,
                       uint8_t *dst)
{
    struct segment of = *seg;
    const uint8_t *object;
    uint8_t *leaves;

    of.buffer =
        seg->buffer == BUFFER_STATE_LEAVES ? BUFFER_STATE : BUFFER_SHARD;
    object = source(l, m, &of);
    if (object == NULL) {
        return LOCO_ENOENT;
    }
    leaves = local_leaves_make(l, object, of.buffer);
    memcpy(dst, leaves + seg->offset, seg->len);
    free(leaves);
    return 0;
}

static bool is_refused(const struct machine *m, const struct segment *seg)
{
    return seg->buffer == BUFFER_RING && seg->attempt == m->ring_refused &&
           m->ring_refused != 0;
}

int local_fill(void *self,
               uint32_t peer,
               const struct segment *seg,
               uint8_t *dst)
{
    struct local *l = self;
    struct machine *m = &l->machines[peer];
    const uint8_t *from;
    size_t at;
    int rc;

    if (local_is_cut(seg)) {
        return m->staged ? local_cut_fill(l, m, seg, dst) : LOCO_ENOENT;
    }
    if (slice_store_is(seg)) {
        return local_owned_fill(m, seg, dst);
    }
    rc = place(l, seg, &at);
    if (rc != 0 || m->terms == NULL || is_refused(m, seg)) {
        return rc != 0 ? rc : LOCO_ENOENT;
    }
    if (seg->op == SEGMENT_ENCODE) {
        assert(seg->buffer == BUFFER_RING);
        rc = encode_own(l, m, seg->offset, seg->len, (float)seg->scale, dst);
        if (m->poisoned && seg->seg % 2 == 0) {
            memset(dst, 0xff, local_wire_len(l, peer, seg));
        }
        return rc;
    }
    if (is_pair(seg)) {
        return local_pair_fill(l, m, seg, dst);
    }
    if (seg->buffer == BUFFER_STATE_LEAVES ||
        seg->buffer == BUFFER_SHARD_LEAVES) {
        return fill_leaves(l, m, seg, dst);
    }
    from = source(l, m, seg);
    if (from == NULL) {
        return LOCO_ENOENT;
    }
    if (seg->buffer == BUFFER_STATE) {
        note_asked(l, m, seg->index);
    }
    memcpy(dst, from + at, local_wire_len(l, peer, seg));
    if (m->spoiled && seg->buffer != BUFFER_RING) {
        dst[seg->len / 2] ^= 1;
    }
    return 0;
}

/* The buffer that takes received bytes, from its start. */
static uint8_t *
target(struct local *l, struct machine *m, const struct segment *seg)
{
    struct local_reduced *r;

    switch (seg->buffer) {
    case BUFFER_RING:
        return local_ring_at(l, m, seg->attempt);
    case BUFFER_REDUCED:
        r = local_reduced_at(l, m, seg->index, true);
        return r->complete ? NULL : r->bytes;
    case BUFFER_STATE:
        if (m->incoming.bytes == NULL) {
            m->incoming.bytes = world_alloc(l->state_bytes);
        }
        if (!m->incoming.used || m->incoming.round != seg->index) {
            memset(m->incoming.bytes, 0, l->state_bytes);
        }
        m->incoming.used = true;
        m->incoming.round = seg->index;
        return m->incoming.bytes;
    case BUFFER_SHARD:
        if (seg->index >= l->opt.n_shards) {
            return NULL;
        }
        m->shard_segs++;
        m->shard_segs_both += m->url_busy > 0;
        if (m->shard_in[seg->index] == NULL) {
            m->shard_in[seg->index] = world_alloc(l->opt.shard_bytes);
        }
        return m->shard_in[seg->index];
    case BUFFER_STATE_LEAVES:
    case BUFFER_SHARD_LEAVES:
        return local_leaves_in(l, m, seg);
    case BUFFER_ANCHOR:
    case BUFFER_STEP:
        return local_pair_in(l, m, seg);
    case BUFFER_FORTH:
    case BUFFER_BACK:
    case BUFFER_PIECE:
    case BUFFER_SLICE:
    case BUFFER_READING:
    case BUFFER_KIND_COUNT:
        break;
    }
    return NULL;
}

static int add_own(struct local *l,
                   struct machine *m,
                   const struct segment *seg,
                   uint8_t *at,
                   const uint8_t *src)
{
    struct codec_op op = {.own = m->contribution + seg->offset,
                          .n = seg->len,
                          .scale = (float)seg->scale,
                          .next = m->error + seg->offset};
    int rc = l->codec->add_op(at, src, &op);

    unscale(op.next, op.n, op.scale);
    return rc;
}

static int take_lane(struct local *l,
                     struct machine *m,
                     const struct segment *seg,
                     const uint8_t *src,
                     size_t len)
{
    int rc = lanes_fit(&m->lanes, l->codec, l->opt.segment_elements, seg->lanes,
                       butterfly_slots(seg->lanes));
    uint8_t *at = rc == 0 ? lanes_at(&m->lanes, seg->lane, seg->slot) : NULL;

    if (at == NULL) {
        return rc != 0 ? rc : LOCO_EINVAL;
    }
    memcpy(at, src, len);
    lanes_keep(&m->lanes, seg->attempt, seg->lane, seg->slot, seg->len,
               (float)seg->scale);
    return 0;
}

int local_sum(void *self, uint32_t peer, struct segment *seg)
{
    struct local *l = self;
    struct machine *m = &l->machines[peer];
    struct lanes_sum s = {
        .attempt = seg->attempt,
        .lane = seg->lane,
        .slot = seg->slot,
        .n = seg->len,
        .scale = (float)seg->scale,
        .clip = l->opt.norm_clip,
    };
    size_t at;
    int rc = place(l, seg, &at);

    if (rc != 0 || m->terms == NULL || is_refused(m, seg)) {
        return rc != 0 ? rc : LOCO_ENOENT;
    }
    s.own = m->contribution + seg->offset;
    s.next = m->error + seg->offset;
    s.dst = local_ring_at(l, m, seg->attempt) + at;
    rc = lanes_sum(&m->lanes, &s);
    seg->lane = (uint8_t)s.bad;
    return rc;
}

int local_take(void *self,
               uint32_t peer,
               const struct segment *seg,
               const uint8_t *src,
               size_t len)
{
    struct local *l = self;
    struct machine *m = &l->machines[peer];
    uint8_t *to;
    size_t at;
    int rc;

    if (local_is_cut(seg)) {
        return !m->staged || len != local_cut_bytes(seg)
                   ? LOCO_EPROTO
                   : local_cut_take(l, m, seg, src);
    }
    if (slice_store_is(seg)) {
        return local_owned_take(m, seg, src, len);
    }
    rc = place(l, seg, &at);

    if (rc != 0 || m->terms == NULL || is_refused(m, seg)) {
        return rc != 0 ? rc : LOCO_ENOENT;
    }
    if (len != local_wire_len(l, peer, seg)) {
        return LOCO_EPROTO;
    }
    if (seg->op == SEGMENT_LANE) {
        return take_lane(l, m, seg, src, len);
    }
    to = target(l, m, seg);
    if (to == NULL) {
        return LOCO_EINVAL;
    }
    if (seg->op == SEGMENT_ADD) {
        assert(seg->buffer == BUFFER_RING);
        return add_own(l, m, seg, to + at, src);
    }
    memcpy(to + at, src, len);
    return 0;
}

void local_poison(struct local *l, uint32_t peer, bool on)
{
    l->machines[peer].poisoned = on;
}

void local_spoil(struct local *l, uint32_t peer, bool on)
{
    l->machines[peer].spoiled = on;
}

void local_forget(struct local *l, uint32_t peer)
{
    l->machines[peer].forgets = true;
}

uint64_t local_elements(const struct local *l, uint64_t round, uint64_t *first)
{
    uint64_t n = l->opt.n_params, block = l->opt.block;
    uint64_t f = l->opt.fragments > 1 ? l->opt.fragments : 1;
    uint64_t per = ((n + f - 1) / f + block - 1) / block * block;
    uint64_t at = (round - 1) % f * per;

    if (first != NULL) {
        *first = at;
    }
    if (l->trainers.count > 0) {
        return trainers_elements(&l->trainers, round);
    }
    return at >= n ? 0 : per < n - at ? per : n - at;
}

uint64_t local_most(const struct local_options *opt)
{
    const struct trainers t = {
        .count = opt->trainers,
        .block = opt->block,
        .n = opt->trainers > 0 ? opt->n_params / opt->trainers : 0};

    return t.count > 0 ? trainers_most(&t) : opt->n_params;
}

size_t local_state_bytes(const struct local *l)
{
    return l->state_bytes;
}

size_t local_vector_bytes(const struct local *l)
{
    return l->vector_bytes;
}
