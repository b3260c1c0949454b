/* work_room.c - see work_room.h. */
#include "daemon/jobs/work_room.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "proto/base/err.h"
#include "train/sync/moments.h"

#define MOMENT_BYTES 2    /* bf16 */
#define CHUNK        1024 /* elements that are decoded at a time */

/* ---- memory ------------------------------------------------------------- */

void work_room_free(struct work_room *r)
{
    free(r->have);
    free(r->moments);
    free(r->blocks);
    *r = (struct work_room){0};
}

static uint64_t n_blocks(const struct work_room *r)
{
    return (r->n + r->block - 1) / r->block;
}

static void place_blocks(struct work_room *r)
{
    float *at = r->blocks;

    for (uint32_t k = 0; k < WORK_BLOCKS; k++) {
        r->sent[k] = (struct work_block){.x = at, .mean = at + r->block};
        r->after[k] = (struct work_block){.x = at + 2 * (size_t)r->block};
        at += 3 * (size_t)r->block;
    }
}

static int take_memory(struct work_room *r, uint64_t n, uint32_t block)
{
    if (r->moments != NULL && r->n == n && r->block == block) {
        return 0;
    }
    work_room_free(r);
    r->n = n;
    r->block = block;
    r->moments = malloc((size_t)n * MOMENT_BYTES);
    r->have = malloc((size_t)(n_blocks(r) + 7) / 8);
    r->blocks = malloc(3 * (size_t)WORK_BLOCKS * block * sizeof *r->blocks);
    if (r->moments == NULL || r->have == NULL || r->blocks == NULL) {
        work_room_free(r);
        return LOCO_ENOMEM;
    }
    return 0;
}

/* ---- pieces ------------------------------------------------------------- */

static bool is_after(const struct segment *s)
{
    return s->buffer == BUFFER_MOMENTS && s->op == SEGMENT_LANE;
}

uint64_t work_round(const struct segment *s)
{
    return is_after(s) ? s->index - 1 : s->index;
}

bool work_room_is_of(const struct work_room *r,
                     uint64_t round,
                     uint64_t base,
                     const struct peer_id *maker)
{
    return round != 0 && r->round == round && r->base == base &&
           id_eq(&r->maker, maker);
}

uint32_t work_rooms_find(const struct work_room *rooms,
                         uint64_t round,
                         uint64_t base,
                         const struct peer_id *maker)
{
    uint32_t k = 0;

    while (k < WORK_ROOMS && !work_room_is_of(&rooms[k], round, base, maker)) {
        k++;
    }
    return k;
}

uint32_t work_rooms_free(const struct work_room *rooms,
                         uint64_t round,
                         uint32_t not_this)
{
    uint32_t best = WORK_ROOMS;

    for (uint32_t k = 0; k < WORK_ROOMS; k++) {
        bool is_old = rooms[k].round + REPEAT_COMMITS < round;

        if (k != not_this && (rooms[k].round == 0 || is_old) &&
            (best == WORK_ROOMS || rooms[k].round < rooms[best].round)) {
            best = k;
        }
    }
    return best;
}

/* Elements of the moments, where that piece is of `elements` ones. */
static int
begin(struct work_room *r, const struct segment *s, const struct offer_cut *cut)
{
    uint64_t n =
        s->buffer == BUFFER_MOMENTS ? cut->elements : 2 * cut->elements;
    int rv;

    if (work_room_is_of(r, work_round(s), s->name, &s->maker) && r->n == n) {
        return 0;
    }
    rv = take_memory(r, n, cut->block);
    if (rv != 0) {
        return rv;
    }
    r->round = work_round(s);
    r->base = s->name;
    r->maker = s->maker;
    r->n_have = 0;
    memset(r->have, 0, (size_t)(n_blocks(r) + 7) / 8);
    place_blocks(r);
    return 0;
}

/* Sum of squares of n elements; not finite: some of them are no numbers. */
static double squares_of(const uint8_t *bf16, uint64_t n)
{
    const struct codec *codec = codec_get(CODEC_BF16);
    float x[CHUNK];
    double sum = 0;

    for (uint64_t at = 0; at < n; at += CHUNK) {
        size_t len = n - at < CHUNK ? (size_t)(n - at) : CHUNK;

        if (codec->decode(x, bf16 + MOMENT_BYTES * at, len) != 0) {
            return NAN;
        }
        for (size_t i = 0; i < len; i++) {
            sum += (double)x[i] * (double)x[i];
        }
    }
    return sum;
}

static bool are_numbers(const uint8_t *bf16, uint64_t n)
{
    return isfinite(squares_of(bf16, n));
}

static int
take_moments(struct work_room *r, const struct segment *s, const uint8_t *src)
{
    int rv = are_numbers(src, s->len) ? 0 : LOCO_ENUMERIC;

    if (rv == 0) {
        memcpy(r->moments + MOMENT_BYTES * s->offset, src,
               (size_t)MOMENT_BYTES * s->len);
    }
    for (uint64_t i = s->offset / r->block;
         rv == 0 && i * r->block < s->offset + s->len; i++) {
        r->n_have += (r->have[i / 8] >> (i % 8) & 1) == 0;
        r->have[i / 8] = (uint8_t)(r->have[i / 8] | 1U << (i % 8));
    }
    return rv;
}

static int take_block(struct work_block *b,
                      const struct codec *codec,
                      const struct segment *s,
                      const uint8_t *src)
{
    b->offset = s->offset;
    b->len = s->len;
    b->has_mean = false;
    b->here = codec->decode(b->x, src, s->len) == 0;
    return b->here ? 0 : LOCO_ENUMERIC;
}

int work_room_take(struct work_room *r,
                   const struct offer_cut *cut,
                   const struct segment *s,
                   const uint8_t *src)
{
    bool lane = s->op == SEGMENT_LANE;
    int rv;

    if ((lane && (s->lane >= WORK_BLOCKS || s->len > cut->block)) ||
        (!lane && s->buffer != BUFFER_MOMENTS) || work_round(s) == 0) {
        return LOCO_EINVAL;
    }
    rv = offer_check(cut, s, s->buffer == BUFFER_MOMENTS ? 0 : s->index, src);
    rv = rv == 0 ? begin(r, s, cut) : rv;
    if (rv != 0) {
        return rv;
    }
    if (!lane) {
        return take_moments(r, s, src);
    }
    return take_block(is_after(s) ? &r->after[s->lane] : &r->sent[s->lane],
                      cut->codec, s, src);
}

int work_room_mean(struct work_room *r,
                   uint32_t k,
                   const struct codec *codec,
                   const uint8_t *src)
{
    struct work_block *b = &r->sent[k];
    int rv = b->here ? codec->decode(b->mean, src, b->len) : LOCO_ENOENT;

    b->has_mean = rv == 0;
    return rv;
}

static bool is_usable(const struct work_block *b)
{
    return b->here && b->has_mean;
}

bool work_room_is_full(const struct work_room *r)
{
    bool any = false;

    for (uint32_t k = 0; k < WORK_BLOCKS; k++) {
        any = any || is_usable(&r->sent[k]);
    }
    return r->round != 0 && r->n_have == n_blocks(r) && any;
}

/* ---- reading ------------------------------------------------------------ */

/* Of two vectors: the squares of both, and their product. */
struct sums {
    double xx, rr, xr;
};

static void add(struct sums *s, double x, double r)
{
    s->xx += x * x;
    s->rr += r * r;
    s->xr += x * r;
}

/* Two vectors of nothing are equal. */
static double cosine(const struct sums *s)
{
    if (s->xx == 0 && s->rr == 0) {
        return 1;
    }
    return s->xx > 0 && s->rr > 0 && isfinite(s->xr / sqrt(s->xx * s->rr))
               ? s->xr / sqrt(s->xx * s->rr)
               : 0;
}

struct all_sums {
    struct sums sent, own;          /* what was sent, beside the repeat */
    struct sums wire, own_wire;     /* what the wire leaves of the repeat */
    struct sums steady, own_steady; /* a repeat with other products */
};

static void add_block(struct all_sums *a,
                      const struct work_block *b,
                      const struct work_repeat *w,
                      const float *wire)
{
    for (uint32_t i = 0; i < b->len; i++) {
        double mean = (double)b->mean[i], x = (double)b->x[i];
        double r = (double)w->repeat[b->offset + i], l = (double)wire[i];

        add(&a->sent, x, r);
        add(&a->own, x - mean, r - mean);
        add(&a->wire, l, r);
        add(&a->own_wire, l - mean, r - mean);
        if (w->steady != NULL) {
            double other = (double)w->steady[b->offset + i];

            add(&a->steady, other, r);
            add(&a->own_steady, other - mean, r - mean);
        }
    }
}

static int sum_blocks(const struct work_room *r,
                      const struct work_repeat *w,
                      struct all_sums *a)
{
    float *wire = malloc(r->block * sizeof *wire);
    uint8_t *bytes = malloc(w->codec->bytes(r->block));
    int rv = wire == NULL || bytes == NULL ? LOCO_ENOMEM : 0;

    for (uint32_t k = 0; k < WORK_BLOCKS && rv == 0; k++) {
        const struct work_block *b = &r->sent[k];
        const struct codec_op op = {.own = w->repeat + b->offset,
                                    .n = b->len,
                                    .scale = 1,
                                    .result = wire};

        if (is_usable(b)) {
            rv = w->codec->encode_op(bytes, &op);
            if (rv == 0) {
                add_block(a, b, w, wire);
            }
        }
    }
    free(bytes);
    free(wire);
    return rv;
}

static double length(double squares)
{
    return sqrt(squares);
}

/* How many times as long, or as short, one of two vectors is. Two vectors of
 * nothing are equal. */
static double stretch(double x, double r)
{
    return x == r ? 1 : x > 0 && r > 0 ? fmax(x / r, r / x) : INFINITY;
}

/* What the end of the repeat says of the next moments. Where it is nothing, or
 * no number, that is ours, and says nothing of the maker; but two of nothing
 * are equal. */
static void add_after(const struct sums *s, struct repeat_reading *out)
{
    if (!isfinite(s->rr) || (s->rr == 0 && s->xx != 0)) {
        return;
    }
    out->after = out->has_after ? fmin(out->after, cosine(s)) : cosine(s);
    out->after_stretch =
        fmax(out->after_stretch, stretch(length(s->xx), length(s->rr)));
    out->has_after = true;
}

/* The lesser cosine of both moments. A block that lies in both counts as one of
 * u: that hides nothing, as it is one of many. */
static void read_after(const struct work_room *r,
                       const struct work_repeat *w,
                       struct repeat_reading *out)
{
    struct sums u = {0}, v = {0};
    bool any = false;

    for (uint32_t k = 0; k < WORK_BLOCKS; k++) {
        const struct work_block *b = &r->after[k];

        for (uint32_t i = 0; b->here && i < b->len; i++) {
            add(b->offset < r->n / 2 ? &u : &v, (double)b->x[i],
                (double)w->moments[b->offset + i]);
            any = true;
        }
    }
    if (any) {
        add_after(&u, out);
        add_after(&v, out);
    }
}

/* The elements of parameters that blocks 2k of u and 2k + 1 of v have both. */
static bool
shared_part(const struct work_room *r, uint32_t k, uint64_t *from, uint64_t *n)
{
    const uint64_t half = r->n / 2;
    const struct work_block *u = &r->after[2 * k], *v = &r->after[2 * k + 1];
    uint64_t begin, end, v_end;

    if (!u->here || !v->here || v->offset + v->len <= half) {
        return false;
    }
    begin = v->offset < half ? 0 : v->offset - half;
    v_end = v->offset + v->len - half;
    end = u->offset + u->len < half ? u->offset + u->len : half;
    *from = u->offset > begin ? u->offset : begin;
    end = v_end < end ? v_end : end;
    *n = end > *from ? end - *from : 0;
    return *n > 0;
}

/* What the next step is made of, where both moments of an element are here. */
static void read_next(const struct work_room *r,
                      const struct work_repeat *w,
                      struct repeat_reading *out)
{
    const uint64_t half = r->n / 2;
    uint64_t at, n;

    for (uint32_t k = 0; k < WORK_BLOCKS / 2; k++) {
        const struct work_block *u = &r->after[2 * k];
        const struct work_block *v = &r->after[2 * k + 1];
        struct moments_part x, own, other;
        double agree = 0, next;

        if (!shared_part(r, k, &at, &n)) {
            continue;
        }
        x = (struct moments_part){u->x + (at - u->offset),
                                  v->x + (at + half - v->offset)};
        own = (struct moments_part){w->moments + at, w->moments + half + at};
        if (w->steady_u != NULL) {
            other = (struct moments_part){w->steady_u + at, w->steady_v + at};
            agree = moments_apart(&other, &own, n, w->eps);
        }
        next = repeat_next(moments_apart(&x, &own, n, w->eps), agree);
        if (!isnan(next)) {
            out->next = out->has_next ? fmax(out->next, next) : next;
            out->has_next = true;
        }
    }
}

static double length_of(const uint8_t *bf16, uint64_t n)
{
    return length(squares_of(bf16, n));
}

/* What a mean of so many steps weighs, that began with nothing. */
static double age(double beta, uint64_t steps)
{
    return 1 - pow(beta, (double)steps);
}

bool work_room_settled(double beta2, uint64_t steps)
{
    return (double)steps * (1 - beta2) >= 1;
}

static bool is_length(double x)
{
    return isfinite(x) && x > 0;
}

/* Moments that began anew are nothing, whatever they are said to be. A mean of
 * few gradients is shorter than an old one before it is corrected, and u is
 * longer after that; so u has no least length, and its most is that of the
 * longer one of both corrections. */
bool work_room_stretch(const struct work_room *r,
                       const struct work_own_moments *own,
                       uint64_t steps,
                       double *worst)
{
    const uint64_t n = r->n / 2;
    const double u = length_of(r->moments, n);
    const double v = length_of(r->moments + MOMENT_BYTES * n, n);
    double own_u, own_v;

    if (steps == 0 || (u == 0 && v == 0)) {
        *worst = u == 0 && v == 0 ? 1 : INFINITY;
        return true;
    }
    if (u == 0) {
        return false; /* after ADOPT's first step there is v alone */
    }
    if (own->moments == NULL || own->steps == 0) {
        return false;
    }
    own_u = length_of(own->moments, n) / age(own->beta1, own->steps);
    own_v = length_of(own->moments + MOMENT_BYTES * n, n) /
            age(own->beta2, own->steps);
    if (!is_length(own_u)) {
        return false; /* ours say nothing of the maker's */
    }
    *worst = u / own_u;
    if (is_length(own_v) && work_room_settled(own->beta2, steps) &&
        work_room_settled(own->beta2, own->steps)) {
        *worst = fmax(*worst, stretch(v / age(own->beta2, steps), own_v));
    }
    return true;
}

/* Nearly nothing is left without the result: what is, is rounding. */
static void take_back_result(struct all_sums *a, const struct work_repeat *w)
{
    if (w->leads || a->own.rr < REPEAT_APART * REPEAT_APART * a->sent.rr) {
        a->own = a->sent;
        a->own_wire = a->wire;
        a->own_steady = a->steady;
    }
}

int work_room_read(const struct work_room *r,
                   const struct work_repeat *w,
                   struct repeat_reading *out)
{
    struct all_sums a = {0};
    int rv = sum_blocks(r, w, &a);

    take_back_result(&a, w);
    *out = (struct repeat_reading){
        .cosine = cosine(&a.sent),
        .own = cosine(&a.own),
        .length = a.wire.xx > 0 ? sqrt(a.sent.xx / a.wire.xx) : INFINITY,
        .best = cosine(&a.wire),
        .best_own = cosine(&a.own_wire),
        .has_steady = w->steady != NULL,
        .steady = cosine(&a.own_steady),
    };
    read_after(r, w, out);
    read_next(r, w, out);
    return rv;
}
