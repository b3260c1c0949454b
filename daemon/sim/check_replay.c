/* check_replay.c - the exchange of a commit again, from what its members
 * packed.
 *
 * Every contribution is kept as it was packed. The first time that somebody
 * applies a commit, its wire bytes must be those of the same roundings in the
 * same order over the contributions that it names, part by part where it
 * inherited ranges of attempts that failed. See check.h, B.
 */
#include "daemon/sim/check_internal.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/sim/sim_internal.h"
#include "daemon/sim/world/internal.h"
#include "p2p/exchange/sites.h"

void check_contributed(void *self, const struct local_contribution *k)
{
    struct check *c = self;
    struct checked_peer *p = &c->peers[k->peer];
    struct contribution *at = &p->kept[p->n_kept++ % CONTRIBUTIONS_KEPT];
    size_t bytes = c->opt.n_params * sizeof *at->values;

    if (at->values == NULL) {
        at->values = world_alloc(bytes);
    }
    memset(at->values, 0, bytes);
    memcpy(at->values, k->values, k->n * sizeof *at->values);
    at->used = true;
    at->life = k->life;
    at->first = k->first_step;
    at->last = k->last_step;
    at->tokens = k->tokens;
    at->lease = *k->lease;
}

const struct contribution *check_contribution(const struct check *c,
                                              uint32_t peer,
                                              uint64_t last,
                                              uint32_t older)
{
    const struct checked_peer *p = &c->peers[peer];

    for (uint32_t k = 1; k <= CONTRIBUTIONS_KEPT && k <= p->n_kept; k++) {
        const struct contribution *at =
            &p->kept[(p->n_kept - k) % CONTRIBUTIONS_KEPT];

        if (at->used && at->last == last && older-- == 0) {
            return at;
        }
    }
    return NULL;
}

/* What an exchange of n members that nobody remembers may have been. */
static uint32_t kinds_of(const struct check *c, uint32_t n)
{
    uint32_t ring = 1U << EXCHANGE_RING, butterfly = 1U << EXCHANGE_BUTTERFLY;

    if (n == 1) {
        return ring;
    }
    switch (c->opt.exchange) {
    case EXCHANGE_RING:
        return n > 2 ? ring | butterfly : ring;
    case EXCHANGE_BUTTERFLY:
        return butterfly;
    case EXCHANGE_SITES:
        return n > 2 ? ring | 1U << EXCHANGE_SITES : ring;
    }
    return ring;
}

/* The parts of a commit: inherited ranges, then its own exchange. */
static void split_parts(const struct check *c, struct commit_seen *s)
{
    const struct node_commit *m = &s->commit;
    struct part *p = s->parts;
    uint64_t at = 0;

    for (uint32_t i = 0; i < m->n_ranges; i++, p++) {
        p->from = at;
        p->upto = at = m->ranges[i].upto;
        p->n = m->ranges[i].n_contributors;
        p->kinds = kinds_of(c, p->n);
        memcpy(p->in, m->ranges[i].contributors, sizeof p->in);
    }
    p->from = at;
    p->upto = local_elements(c->local, m->round, NULL);
    p->n = m->n;
    p->kinds = m->n == 1 ? 1U << EXCHANGE_RING : 1U << m->kind;
    for (uint32_t k = 0; k < m->n; k++) {
        p->in[k] = (struct contributor){.peer = m->member[k],
                                        .tokens = m->weight[k],
                                        .first_step = m->first_step[k],
                                        .last_step = m->last_step[k],
                                        .lease = m->lease[k]};
    }
    s->n_parts = m->n_ranges + 1;
}

/* What contributor k of a part put in. NULL: nothing, with weight 0. */
static const float *
input_of(struct check *c, uint64_t round, struct part *p, uint32_t k)
{
    const struct contributor *x = &p->in[k];
    uint32_t peer = world_find(c->opt.world, &x->peer);
    const struct contribution *in;

    if (peer == c->opt.n_peers) {
        check_fail(c, "B: a commit of round %" PRIu64 " names a stranger",
                   round);
        return NULL;
    }
    in = check_contribution(c, peer, x->last_step, 0);
    if (in == NULL || x->tokens == 0) {
        if (x->tokens != 0) {
            check_fail(c,
                       "B: the commit of round %" PRIu64 " names a "
                       "contribution of peer %u up to step %" PRIu64
                       " that it never made",
                       round, peer, x->last_step);
        }
        return NULL;
    }
    p->life[k] = in->life;
    if (in->first != x->first_step) {
        check_fail(c,
                   "C: the commit of round %" PRIu64 " names steps %" PRIu64
                   "..%" PRIu64 " of peer %u; they were %" PRIu64 "..%" PRIu64,
                   round, x->first_step, x->last_step, peer, in->first,
                   in->last);
    }
    if (in->tokens != x->tokens) {
        check_fail(c,
                   "B: the commit of round %" PRIu64 " weighs peer %u with "
                   "%" PRIu64 " tokens; they were %" PRIu64,
                   round, peer, x->tokens, in->tokens);
    }
    return in->values;
}

static void replay_chunk(struct check *c,
                         const struct part *p,
                         const float *const *in,
                         const struct ring_shape *shape,
                         uint32_t stripe,
                         uint32_t chunk,
                         double total)
{
    uint64_t begin, end;

    ring_chunk(shape, stripe, chunk, &begin, &end);
    end = end < p->upto ? end : p->upto; /* the rest was reduced again */
    for (uint32_t hop = 0; hop < p->n && begin < end; hop++) {
        uint32_t k = (chunk + hop) % p->n;
        float scale = (float)((double)p->in[k].tokens / total);
        uint8_t *at = c->oracle + c->codec->bytes(begin);
        int rc = hop == 0
                     ? c->codec->encode(at, in[k] + begin, end - begin, scale)
                     : c->codec->add(at, at, in[k] + begin, end - begin, scale);

        if (rc != 0) {
            check_fail(c, "B: a replay fails with %d", rc);
        }
    }
}

static double total_of(const struct part *p)
{
    double total = 0;

    for (uint32_t k = 0; k < p->n; k++) {
        total += (double)p->in[k].tokens;
    }
    return total;
}

/* One slice, member by member as its partial sum visits them. */
static void replay_walk(struct check *c,
                        const struct part *p,
                        const float *const *in,
                        const struct sites_shape *shape,
                        uint32_t stripe,
                        uint32_t slice)
{
    struct ring_shape cut = sites_slices(shape);
    struct walk_hop hops[WALK_HOPS_MAX];
    uint32_t n = walk_of(&shape->sites, slice, hops);
    uint64_t begin, end;
    uint8_t *at;
    int rc;

    ring_chunk(&cut, stripe, slice, &begin, &end);
    end = end < p->upto ? end : p->upto;
    if (begin >= end) {
        return;
    }
    at = c->oracle + c->codec->bytes(begin);
    rc = c->codec->encode(
        at, in[hops[0].from] + begin, end - begin,
        (float)((double)p->in[hops[0].from].tokens / total_of(p)));
    for (uint32_t k = 0; k < n && rc == 0; k++) {
        uint32_t to = hops[k].to;
        float scale = (float)((double)p->in[to].tokens / total_of(p));

        rc = hops[k].adds
                 ? c->codec->add(at, at, in[to] + begin, end - begin, scale)
                 : 0;
    }
    if (rc != 0) {
        check_fail(c, "B: a replay fails with %d", rc);
    }
}

static void replay_ring(struct check *c,
                        const struct part *p,
                        const float *const *in,
                        uint64_t elements)
{
    struct ring_shape shape = {.elements = elements,
                               .from = p->from,
                               .block = c->opt.block,
                               .segment_elements = c->opt.segment_elements,
                               .chunk_segments = 1,
                               .n = p->n};
    double total = total_of(p);

    for (uint32_t stripe = 0;
         p->from + stripe * ring_stripe_elements(&shape) < p->upto; stripe++) {
        for (uint32_t chunk = 0; chunk < p->n; chunk++) {
            replay_chunk(c, p, in, &shape, stripe, chunk, total);
        }
    }
}

/* The same where the plan is of two levels: members of a site stand together,
 * its gateway first, and a slice walks through them. */
static void replay_sites(struct check *c,
                         const struct part *p,
                         const float *const *in,
                         uint64_t elements)
{
    struct sites_shape shape = {
        .cut = {.elements = elements,
                .from = p->from,
                .block = c->opt.block,
                .segment_elements = c->opt.segment_elements,
                .chunk_segments = 1,
                .n = p->n}};
    bool gateway[VIEW_MEMBERS_MAX];
    uint32_t last = 0;
    struct ring_shape cut;

    for (uint32_t k = 0; k < p->n; k++) {
        uint32_t site =
            sim_site(c->opt.sim, world_find(c->opt.world, &p->in[k].peer));

        gateway[k] = k == 0 || site != last;
        last = site;
    }
    (void)walk_sites_of(gateway, p->n, &shape.sites);
    cut = sites_slices(&shape);
    for (uint32_t stripe = 0;
         p->from + stripe * ring_stripe_elements(&cut) < p->upto; stripe++) {
        for (uint32_t slice = 0; slice < cut.n; slice++) {
            replay_walk(c, p, in, &shape, stripe, slice);
        }
    }
}

static double norm_of(const float *x, uint64_t n)
{
    double sum = 0;

    for (uint64_t i = 0; i < n; i++) {
        sum += (double)x[i] * (double)x[i];
    }
    return sum;
}

/* w_k such that nobody is longer than `clip` medians. */
static void limit(const double *q, float *w, uint32_t n, double clip)
{
    double most = check_median(q, w, n) * clip * clip;

    for (uint32_t k = 0; k < n && most > 0; k++) {
        if (q[k] > most) {
            w[k] = (float)((double)w[k] * sqrt(most / q[k]));
        }
    }
}

/* sum = the weighted sum of the contributions to a block, in[k] (block elements
 * each); those longer than norm_clip medians count less. */
static void sum_up(const struct check *c,
                   const struct part *p,
                   const float *in,
                   uint64_t n,
                   float *sum)
{
    double q[VIEW_MEMBERS_MAX], clip = (double)c->opt.norm_clip;
    float w[VIEW_MEMBERS_MAX] = {0};

    for (uint32_t k = 0; k < p->n; k++) {
        w[k] = (float)((double)p->in[k].tokens / total_of(p));
        q[k] = norm_of(in + k * c->opt.block, n);
    }
    if (clip > 0 && c->opt.centred) {
        check_centre(&(struct check_crowd){p->n, n, c->opt.block, in, clip}, w);
    } else if (clip > 0) {
        limit(q, w, p->n, clip);
    }
    for (uint32_t k = 0; k < p->n; k++) {
        for (uint64_t i = 0; i < n; i++) {
            float x = w[k] * in[k * c->opt.block + i];

            sum[i] = k == 0 ? x : x + sum[i];
        }
    }
}

#define NOBODY UINT32_MAX

/* Block by block, whoever owned it: each contribution through the codec, but
 * for that of `raw`, the weighted sum in the order of the plan through it once
 * more. Written with the reference's encode and decode only. */
static void replay_block(struct check *c,
                         const struct part *p,
                         const float *const *in,
                         uint64_t at,
                         uint64_t n,
                         uint32_t raw,
                         float *decoded)
{
    const struct codec *codec = codec_get_portable(c->opt.codec);
    uint8_t *to = c->oracle + codec->bytes(at);
    float *sum = decoded + p->n * c->opt.block;
    int rc = 0;

    for (uint32_t k = 0; k < p->n && rc == 0; k++) {
        float *x = decoded + k * c->opt.block;

        rc = codec->encode(to, in[k] + at, n, 1);
        rc = rc == 0 ? codec->decode(x, to, n) : rc;
        if (k == raw) {
            memcpy(x, in[k] + at, n * sizeof *x);
        }
    }
    sum_up(c, p, decoded, n, sum);
    rc = rc == 0 ? codec->encode(to, sum, n, 1) : rc;
    if (rc != 0) {
        check_fail(c, "B: a replay fails with %d", rc);
    }
}

/* `bytes`: the result, which says whose contribution was not encoded. */
static void replay_butterfly(struct check *c,
                             const struct part *p,
                             const float *const *in,
                             const uint8_t *bytes)
{
    uint64_t block = c->opt.block;
    float *decoded = world_alloc((p->n + 1) * block * sizeof *decoded);

    for (uint64_t at = p->from, n; at < p->upto; at += n) {
        size_t first = c->codec->bytes(at);
        uint32_t raw = c->opt.raw ? 0 : NOBODY;

        n = p->upto - at < block ? p->upto - at : block;
        do {
            replay_block(c, p, in, at, n, raw, decoded);
        } while (memcmp(c->oracle + first, bytes + first,
                        c->codec->bytes(at + n) - first) != 0 &&
                 raw != NOBODY && ++raw < p->n);
    }
    free(decoded);
}

static void replay(struct check *c,
                   const struct part *p,
                   const float *const *in,
                   uint64_t elements,
                   const uint8_t *bytes,
                   enum exchange_kind kind)
{
    switch (kind) {
    case EXCHANGE_RING:
        replay_ring(c, p, in, elements);
        return;
    case EXCHANGE_BUTTERFLY:
        replay_butterfly(c, p, in, bytes);
        return;
    case EXCHANGE_SITES:
        replay_sites(c, p, in, elements);
        return;
    }
}

/* Replay the exchange that made this part, as far as it is in the result: what
 * the commit's plan was, or, of an inherited part, what the terms allow. */
static bool replay_is(struct check *c,
                      const struct part *p,
                      const float *const *in,
                      uint64_t elements,
                      const uint8_t *bytes)
{
    static const enum exchange_kind kinds[] = {
        EXCHANGE_RING, EXCHANGE_BUTTERFLY, EXCHANGE_SITES};
    size_t begin = c->codec->bytes(p->from), end = c->codec->bytes(p->upto);

    for (uint32_t k = 0; k < 3; k++) {
        if ((p->kinds >> kinds[k] & 1) == 0) {
            continue;
        }
        replay(c, p, in, elements, bytes, kinds[k]);
        if (memcmp(c->oracle + begin, bytes + begin, end - begin) == 0) {
            return true;
        }
    }
    return false;
}

/* The second newest contribution with the step numbers of this one. */
static const struct contribution *older_of(const struct check *c,
                                           const struct contributor *x)
{
    uint32_t peer = world_find(c->opt.world, &x->peer);
    const struct contribution *in = NULL;

    if (peer != c->opt.n_peers) {
        in = check_contribution(c, peer, x->last_step, 1);
    }
    return in != NULL && in->first == x->first_step && in->tokens == x->tokens
               ? in
               : NULL;
}

/* Of so many contributors at most, every combination is tried. */
#define OLDER_MAX 8

/* A commit that waited in a cut may name steps that a restarted process made
 * again since: try the older of the two, in every combination of those who
 * have an older one. */
static bool replay_is_older(struct check *c,
                            struct part *p,
                            const float *const *in,
                            uint64_t elements,
                            const uint8_t *bytes)
{
    const struct contribution *older[OLDER_MAX] = {NULL};
    uint32_t of[OLDER_MAX] = {0}, n = 0;

    for (uint32_t k = 0; k < p->n && n < OLDER_MAX; k++) {
        older[n] = older_of(c, &p->in[k]);
        of[n] = k;
        n += older[n] != NULL;
    }
    for (uint32_t pick = 1; pick < 1U << n; pick++) {
        const float *other[VIEW_MEMBERS_MAX];
        uint32_t life[VIEW_MEMBERS_MAX];

        memcpy(other, in, sizeof other);
        memcpy(life, p->life, sizeof life);
        for (uint32_t k = 0; k < n; k++) {
            if (pick >> k & 1) {
                other[of[k]] = older[k]->values;
                life[of[k]] = older[k]->life;
            }
        }
        if (replay_is(c, p, other, elements, bytes)) {
            memcpy(p->life, life, sizeof life);
            return true;
        }
    }
    return false;
}

void check_replay(struct check *c, struct commit_seen *s, const uint8_t *bytes)
{
    float *zeros = world_alloc(c->opt.n_params * sizeof *zeros);
    uint64_t n = local_elements(c->local, s->commit.round, NULL);

    split_parts(c, s);
    for (uint32_t i = 0; i < s->n_parts; i++) {
        struct part *p = &s->parts[i];
        const float *in[VIEW_MEMBERS_MAX] = {NULL};

        for (uint32_t k = 0; k < p->n; k++) {
            in[k] = input_of(c, s->commit.round, p, k);
            in[k] = in[k] == NULL ? zeros : in[k];
        }
        if (!c->opt.missums && !replay_is(c, p, in, n, bytes) &&
            !replay_is_older(c, p, in, n, bytes)) {
            check_fail(c,
                       "B: elements %" PRIu64 "..%" PRIu64 " of round %" PRIu64
                       " (epoch %" PRIu64 ") are not the replay of the "
                       "exchange of their %u contributors",
                       p->from, p->upto, s->commit.round, s->commit.epoch,
                       p->n);
        }
    }
    free(zeros);
    s->verified = true;
}
