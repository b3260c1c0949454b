/* buffer.c - the bytes that segments name. See local.h. */
#include "daemon/sim/machine/internal.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/node/node.h"
#include "daemon/sim/world/internal.h"
#include "proto/base/err.h"
#include "proto/base/rng.h"
#include "proto/hash.h"
#include "proto/sample.h"

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

/* Wire bytes of an attempt; others give way, with bytes that no codec wrote:
 * who relies on what was there before shows. */
static struct wire_slot *
ring(const struct local *l, struct machine *m, uint64_t attempt)
{
    struct wire_slot *s = wire_slots_find(&m->wire, WIRE_RING, attempt);

    if (s != NULL) {
        return s;
    }
    s = wire_slots_choose(&m->wire);
    if (s->bytes == NULL) {
        s->bytes = world_alloc(l->vector_bytes);
    }
    memset(s->bytes, 0xa5, l->vector_bytes);
    wire_slots_begin(&m->wire, s, WIRE_RING, attempt);
    return s;
}

bool local_inherit(struct machine *m, uint64_t from, uint64_t to)
{
    bool forgets = m->forgets;

    m->forgets = false;
    return wire_slots_inherit(&m->wire, forgets ? 0 : from, to) != NULL;
}

const uint8_t *local_state_at(struct machine *m, uint64_t round, uint64_t name)
{
    const struct kept_state *kept = kept_find(&m->states, round, name);
    const struct local_state *disk = &m->disk.state;

    if (kept != NULL) {
        return kept->state;
    }
    return disk->used && disk->round == round &&
                   (name == 0 || disk->name == name)
               ? disk->bytes
               : NULL;
}

void local_states_forget(struct machine *m)
{
    void *state;

    while ((state = kept_pop(&m->states)) != NULL) {
        free(state);
    }
}

/* Keep the anchor and momentum of now as the state of `round`, in place of
 * another one of that round, which is of a branch that was left. */
void local_state_keep(struct local *l, struct machine *m, uint64_t round)
{
    size_t half = l->state_bytes / 2;
    struct kept_state *same = kept_find(&m->states, round, 0);
    struct kept_state s = {.state = world_alloc(l->state_bytes),
                           .round = round};
    struct hash32 params, momentum, hash;
    void *unpinned = NULL, *left;

    memcpy(s.state, m->phi, half);
    memcpy((uint8_t *)s.state + half, m->m, half);
    local_hash_state(l, s.state, &params, &momentum);
    hash = node_state_hash(&params, &momentum);
    s.name = hash32_u64(&hash);
    if (same != NULL && same != &m->states.pinned) {
        left = same->state;
        *same = s;
    } else {
        kept_push(&m->states, &s, world_now(l->world), LOCAL_PIN_MS, &unpinned,
                  &left);
    }
    free(unpinned);
    free(left);
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

void local_hash_anchor(const struct local *l,
                       const struct machine *m,
                       struct report_state *report)
{
    const size_t half = l->state_bytes / 2;
    const struct sample_part parts[] = {{m->phi, half}, {m->m, half}};
    struct hash32 state;

    local_tree(l, m->phi, half, &report->params_hash);
    local_tree(l, m->m, half, &report->momentum_hash);
    state = node_state_hash(&report->params_hash, &report->momentum_hash);
    sample_state(&state, parts, 2, &report->sample);
}

static struct reduce_vectors vectors(const struct machine *m)
{
    return (struct reduce_vectors){.own = m->contribution, .error = m->error};
}

/* The own contribution from an element of the vector on. */
static int
encode_rest(struct machine *m, uint64_t from, uint64_t n, uint8_t *dst)
{
    const struct reduce_vectors v = vectors(m);
    const struct segment s = {
        .offset = from, .len = (uint32_t)(n - from), .scale = 1};

    return from < n ? reduce_encode(&m->reduce, &v, &s, dst) : 0;
}

int local_hash_buffer(struct local *l,
                      struct machine *m,
                      const struct job_hash *job,
                      struct report_hashed *report)
{
    struct pair_payload own;
    struct local_reduced *r;
    struct wire_slot *slot;
    uint64_t n;
    int rc = 0;

    switch (job->buffer) {
    case BUFFER_RING:
        if (job->request == m->wire.refused) {
            return LOCO_ENOENT;
        }
        slot = ring(l, m, job->request);
        wire_slots_hashed(&m->wire, slot);
        n = local_elements(l, attempt_round(job->request), NULL);
        if (job->encode) {
            uint64_t from = job->from;

            rc = encode_rest(m, from, n, slot->bytes + l->codec->bytes(from));
        }
        hash_tree(slot->bytes, l->codec->bytes(n), &report->hash);
        return rc;
    case BUFFER_REDUCED:
        r = local_reduced_at(l, m, job->index, false);
        if (r == NULL) {
            return LOCO_ENOENT;
        }
        hash_tree(r->bytes, local_round_bytes(l, job->index), &report->hash);
        return 0;
    case BUFFER_STEP:
        if (m->pair_in == NULL) {
            return LOCO_ENOENT;
        }
        own = local_pair_own(l, m);
        return pair_payload_hash(&own, m->pair_in, job->first, &report->hash);
    default:
        break;
    }
    return LOCO_EINVAL;
}

static size_t wire_len(void *self, uint32_t peer, const struct segment *seg)
{
    const struct local *l = self;

    if (segment_is_stage(seg)) {
        return local_cut_bytes(seg);
    }
    return segment_wire_len(l->machines[peer].terms, l->codec, seg);
}

static bool is_refused(const struct machine *m, const struct segment *seg)
{
    return seg->buffer == BUFFER_RING && seg->attempt == m->wire.refused &&
           m->wire.refused != 0;
}

/* Where a segment lies in its buffer, in bytes. */
static int place(const struct local *l,
                 const struct machine *m,
                 const struct segment *seg,
                 size_t *at)
{
    if (m->terms == NULL || is_refused(m, seg)) {
        return LOCO_ENOENT;
    }
    return segment_place(m->terms, l->codec, seg, at);
}

/* The bytes of a buffer to be sent, from its start; NULL: not held. */
static const uint8_t *
source(struct local *l, struct machine *m, const struct segment *seg)
{
    struct local_reduced *r;

    switch (seg->buffer) {
    case BUFFER_RING:
        return ring(l, m, seg->attempt)->bytes;
    case BUFFER_REDUCED:
        r = local_reduced_at(l, m, seg->index, false);
        return r != NULL && r->complete ? r->bytes : NULL;
    case BUFFER_STATE:
        return local_state_at(m, seg->index, seg->name);
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
    struct hash32 *leaves;

    of.buffer = pieces_object_kind(seg->buffer);
    object = source(l, m, &of);
    if (object == NULL) {
        return LOCO_ENOENT;
    }
    leaves = local_leaves_make(m, object, &of);
    memcpy(dst, (const uint8_t *)leaves + seg->offset, seg->len);
    free(leaves);
    return 0;
}

static int prove(const struct local *l,
                 const struct machine *m,
                 const struct segment *seg,
                 uint8_t *proof)
{
    const struct offer_cut cut = segment_cut(m->terms, l->codec, seg);
    const struct offer *o = offers_find(&m->offers, 0);

    return o == NULL ? LOCO_ENOENT : offer_prove(o, &cut, seg, proof);
}

static int
on_fill(void *self, uint32_t peer, const struct segment *seg, uint8_t *dst)
{
    struct local *l = self;
    struct machine *m = &l->machines[peer];
    struct pair_payload own;
    struct reduce_vectors v;
    struct kept_state *kept;
    const uint8_t *from;
    size_t at;
    int rc;

    if (segment_is_stage(seg)) {
        return m->staged ? local_cut_fill(l, m, seg, dst) : LOCO_ENOENT;
    }
    rc = place(l, m, seg, &at);
    if (rc != 0) {
        return rc;
    }
    if (seg->op == SEGMENT_ENCODE) {
        assert(seg->buffer == BUFFER_RING);
        v = vectors(m);
        rc = reduce_encode(&m->reduce, &v, seg, dst);
        if (rc == 0 && seg->proven) {
            rc = prove(l, m, seg, dst + l->codec->bytes(seg->len));
        }
        if (m->poisoned && seg->seg % 2 == 0) {
            memset(dst, 0xff, wire_len(l, peer, seg));
        }
        return rc;
    }
    if (segment_is_pair(seg)) {
        own = local_pair_own(l, m);
        return m->round < seg->index ? pair_payload_fill(&own, seg, dst)
                                     : LOCO_ENOENT; /* that step is taken */
    }
    if (seg->buffer == BUFFER_OFFER) {
        return local_offer_fill(l, m, seg, dst);
    }
    if (seg->buffer == BUFFER_MOMENTS) {
        return local_moments_fill(l, m, seg, dst);
    }
    if (segment_is_leaves(seg)) {
        return fill_leaves(l, m, seg, dst);
    }
    from = source(l, m, seg);
    if (from == NULL) {
        return LOCO_ENOENT;
    }
    kept = kept_find(&m->states, seg->index, seg->name);
    if (seg->buffer == BUFFER_STATE && kept != NULL) {
        kept->asked_ms = world_now(l->world);
    }
    memcpy(dst, from + at, wire_len(l, peer, seg));
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
        return ring(l, m, seg->attempt)->bytes;
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
        m->disk.began = m->disk.began || m->terms->shards[seg->index].begins;
        if (m->shard_in[seg->index] == NULL) {
            m->shard_in[seg->index] = world_alloc(l->opt.shard_bytes);
        }
        return m->shard_in[seg->index];
    case BUFFER_ANCHOR:
    case BUFFER_STEP:
        return local_pair_in(l, m);
    case BUFFER_STATE_LEAVES:
    case BUFFER_SHARD_LEAVES:
    case BUFFER_FORTH:
    case BUFFER_BACK:
    case BUFFER_OFFER:
    case BUFFER_MOMENTS:
    case BUFFER_KIND_COUNT:
        break;
    }
    return NULL;
}

/* As machine_summed_own(). */
static int
summed_own(const struct local *l, struct machine *m, const struct segment *own)
{
    const struct offer_cut cut = segment_cut(m->terms, l->codec, own);
    const struct offer *o = offers_find(&m->offers, 0);
    const uint8_t *lane = reduce_lane(&m->reduce, own);

    return o == NULL || lane == NULL       ? LOCO_ENOENT
           : offer_has(o, &cut, own, lane) ? 0
                                           : LOCO_EHASH;
}

/* Of who sums wrong: in each round other ones. */
static bool sums_wrong(const struct local *l, const struct segment *s)
{
    uint64_t words[] = {s->attempt, s->seg};

    return l->opt.missum_percent == 0 ||
           rng_mix(words, 2) % 100 < l->opt.missum_percent;
}

static int on_sum(void *self, uint32_t peer, struct segment *seg)
{
    struct local *l = self;
    struct machine *m = &l->machines[peer];
    const struct segment own = *seg;
    const struct reduce_vectors v = vectors(m);
    size_t at;
    int rc = place(l, m, seg, &at);
    uint8_t *dst;

    if (rc != 0) {
        return rc;
    }
    dst = ring(l, m, seg->attempt)->bytes + at;
    rc = reduce_sum(&m->reduce, &v, seg, dst);
    rc = rc == 0 && m->terms->audits ? summed_own(l, m, &own) : rc;
    if (rc == 0 && m->missums && sums_wrong(l, &own)) {
        m->n_missums++;
        dst[l->codec->bytes(seg->len) / 2] ^= 1; /* in a number's low bits */
    }
    return rc;
}

/* What came, to where it lies. */
static int put(struct local *l,
               struct machine *m,
               const struct segment *seg,
               const uint8_t *src,
               size_t at)
{
    const struct offer_cut cut = segment_cut(m->terms, l->codec, seg);
    const struct reduce_vectors v = vectors(m);
    uint8_t *to;
    int rc;

    if (seg->stream == STREAM_WORK) {
        return local_work_take(m, &cut, seg, src);
    }
    if (seg->buffer == BUFFER_OFFER) {
        return audit_room_take(&m->audit, &cut, seg, src);
    }
    if (seg->op == SEGMENT_LANE) {
        rc = seg->proven ? offer_check(&cut, seg, segment_round(seg), src) : 0;
        return rc == 0 ? reduce_keep(&m->reduce, seg, src) : rc;
    }
    if (segment_is_leaves(seg)) {
        return pieces_take(&m->leaves, m->terms, seg, src);
    }
    if (segment_is_result(seg)) {
        rc = reduce_usable(&m->reduce, seg, src);
        if (rc != 0) {
            return rc;
        }
    }
    to = target(l, m, seg);
    if (to == NULL) {
        return LOCO_EINVAL;
    }
    at = segment_is_pair(seg) ? pair_payload_at(l->codec, l->opt.n_params, seg)
                              : at;
    if (seg->op == SEGMENT_ADD) {
        assert(seg->buffer == BUFFER_RING);
        return reduce_add(&m->reduce, &v, seg, to + at, src);
    }
    memcpy(to + at, src, segment_wire_len(m->terms, l->codec, seg));
    return 0;
}

static int on_take(void *self,
                   uint32_t peer,
                   const struct segment *seg,
                   const uint8_t *src,
                   size_t len)
{
    struct local *l = self;
    struct machine *m = &l->machines[peer];
    size_t at;
    int rc;

    if (segment_is_stage(seg)) {
        return !m->staged || len != local_cut_bytes(seg)
                   ? LOCO_EPROTO
                   : local_cut_take(l, m, seg, src);
    }
    rc = place(l, m, seg, &at);
    if (rc == 0 && len != wire_len(l, peer, seg)) {
        rc = LOCO_EPROTO;
    }
    return rc != 0 ? rc : put(l, m, seg, src, at);
}

void local_serve_segments(struct world_machines *machines)
{
    machines->wire_len = wire_len;
    machines->fill = on_fill;
    machines->take = on_take;
    machines->sum = on_sum;
}

void local_poison(struct local *l, uint32_t peer, bool on)
{
    l->machines[peer].poisoned = on;
}

void local_ruin(struct local *l, uint32_t peer, bool on)
{
    l->machines[peer].ruins = on;
}

void local_misjudge(struct local *l, uint32_t peer, bool on)
{
    l->machines[peer].misjudges = on;
}

void local_missum(struct local *l, uint32_t peer, bool on)
{
    l->machines[peer].missums = on;
}

uint64_t local_missums(const struct local *l, uint32_t peer)
{
    return l->machines[peer].n_missums;
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
