/* stray.c - see stray.h. */
#include "train/sync/stray.h"

#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "proto/base/err.h"
#include "proto/base/rng.h"
#include "train/sync/codec/centre.h"

#define PATH         ((size_t)STRAY_PIECES * STRAY_PIECE)
#define STRAY_CLIP   1.5
#define FADE         0.95F /* of a path, for each round that shows a place */
#define ALONG_ROUNDS 8     /* so many last ones count in `along` */
#define ALONG_MOST   4.0   /* that a round counts, forth or back */
#define FAR          1.75  /* squared, beside the typical */
#define ALONG_ABOVE  0.6   /* more than 1, after ALONG_ROUNDS rounds; */
#define ALONG_BELOW  0.7   /* less; fewer rounds are less sure */
#define SHOWN_LEAST  2     /* rounds */
#define LATE_ROUNDS  2
#define PAIRS_MOST                                                             \
    (1U << 24) /* elements of two members compared in a round                  \
                */

void strays_open(struct strays *s, uint64_t elements, uint64_t seed)
{
    uint64_t places = elements / STRAY_PIECE;
    uint64_t n = places < STRAY_PIECES ? places : STRAY_PIECES;

    strays_free(s);
    s->n_pieces = (uint32_t)n;
    for (uint64_t i = 0; i < n; i++) { /* one of each n-th part */
        uint64_t from = places / n * i + places % n * i / n;
        uint64_t to = places / n * (i + 1) + places % n * (i + 1) / n;

        s->piece[i] = (from + rng_below(&seed, to - from)) * STRAY_PIECE;
    }
}

void strays_free(struct strays *s)
{
    for (uint32_t i = 0; i < s->n_rows; i++) {
        free(s->row[i].path);
    }
    free(s->now);
    *s = (struct strays){0};
}

/* ---- what a round shows ---------------------------------------------------
 */

/* Piece `seen` of a lane; that behind the last one is the mean. */
static float *shown(const struct strays *s, uint32_t seen, uint32_t lane)
{
    return s->now + ((size_t)seen * (s->lanes + 1) + lane) * STRAY_PIECE;
}

static int make_room(struct strays *s)
{
    size_t one = (size_t)(s->lanes + 1) * STRAY_PIECE;
    size_t want = s->n_seen < 8 ? 8 : 2 * (size_t)s->n_seen;
    float *now;

    if ((s->n_seen + 1) * one <= s->room) {
        return 0;
    }
    now = realloc(s->now, want * one * sizeof *now);
    if (now == NULL) {
        return LOCO_ENOMEM;
    }
    s->now = now;
    s->room = (uint32_t)(want * one);
    return 0;
}

/* The elements from `at` on of an encoded segment of n; the block that has them
 * is decoded. */
static int decode_piece(const struct codec *codec,
                        const uint8_t *src,
                        uint64_t at,
                        uint32_t n,
                        float *dst)
{
    float x[CODEC_BLOCK_MAX];
    size_t block = codec->block > 1 ? codec->block : STRAY_PIECE;
    size_t first = (size_t)at / block * block;
    size_t len = n - first < block ? n - first : block;
    int rv = codec->decode(x, src + codec->bytes(first), len);

    memcpy(dst, x + (at - first), STRAY_PIECE * sizeof *dst);
    return rv;
}

static int see_piece(struct strays *s,
                     const struct codec *codec,
                     const struct stray_sum *m,
                     uint32_t piece)
{
    uint64_t at = s->piece[piece] - m->offset;
    int rv = make_room(s);

    for (uint32_t i = 0; i < m->lanes && rv == 0; i++) {
        rv = decode_piece(codec, m->lane[i], at, m->n, shown(s, s->n_seen, i));
    }
    rv = rv == 0 ? decode_piece(codec, m->sum, at, m->n,
                                shown(s, s->n_seen, m->lanes))
                 : rv;
    if (rv == 0) {
        s->seen[s->n_seen++] = (uint16_t)piece;
    }
    return rv;
}

int strays_see(struct strays *s,
               const struct codec *codec,
               const struct stray_sum *sum)
{
    int rv = 0;

    if (sum->lanes > CODEC_TERMS_MAX) {
        return LOCO_EINVAL;
    }
    if (sum->attempt != s->attempt || sum->lanes != s->lanes) {
        s->attempt = sum->attempt;
        s->lanes = sum->lanes;
        s->n_seen = 0;
    }
    for (uint32_t i = 0; i < s->n_pieces && rv == 0; i++) {
        if (s->n_seen < STRAY_PIECES && sum->offset % STRAY_PIECE == 0 &&
            s->piece[i] >= sum->offset &&
            s->piece[i] + STRAY_PIECE <= sum->offset + sum->n) {
            rv = see_piece(s, codec, sum, i);
        }
    }
    return rv;
}

/* ---- what follows ------------------------------------------------------ */

/* The members of the round that contributed, of which there are n. */
struct voices {
    uint32_t n, lane[CODEC_TERMS_MAX];
    struct stray_row *row[CODEC_TERMS_MAX];
    double t[CODEC_TERMS_MAX];     /* tokens, beside those of the others */
    double far[CODEC_TERMS_MAX];   /* from the mean in this round, squared */
    double along[CODEC_TERMS_MAX]; /* <v, c> / t in this round */
};

static double median(const double *of, uint32_t n)
{
    double x[CODEC_TERMS_MAX];

    memcpy(x, of, n * sizeof *x);
    return centre_median(x, n);
}

/* The mean of the lower and the upper median: lies may be on either side. */
static double middle(const double *of, uint32_t n)
{
    double x[CODEC_TERMS_MAX], low;

    memcpy(x, of, n * sizeof *x);
    low = centre_median(x, n);
    return n == 0 ? 0 : (low + x[n / 2]) / 2;
}

static void begin_anew(struct stray_row *row)
{
    memset(row->path, 0, PATH * sizeof *row->path);
    memset(row->age, 0, sizeof row->age);
    row->along = row->far = 1;
    row->shown = row->late = 0;
}

static struct stray_row *find(struct strays *s, const uint8_t *id)
{
    for (uint32_t i = 0; i < s->n_rows; i++) {
        if (memcmp(s->row[i].id, id, STRAY_ID) == 0) {
            s->row[i].last = s->n_rounds;
            return &s->row[i];
        }
    }
    return NULL;
}

/* If need be in place of who was away the longest. */
static struct stray_row *make(struct strays *s, const uint8_t *id)
{
    struct stray_row *row = &s->row[0];

    for (uint32_t i = 1; i < s->n_rows; i++) {
        row = s->row[i].last < row->last ? &s->row[i] : row;
    }
    if (s->n_rows < CODEC_TERMS_MAX) {
        row = &s->row[s->n_rows];
        row->path = malloc(PATH * sizeof *row->path);
        if (row->path == NULL) {
            return NULL;
        }
        s->n_rows++;
    }
    memcpy(row->id, id, STRAY_ID);
    row->last = s->n_rounds;
    begin_anew(row);
    return row;
}

/* With c = sum(w v) and weights w as the tokens, a member that has t times the
 * typical tokens contributes t c, and noise of sqrt(t). */
static bool find_voices(struct strays *s,
                        const struct stray_member *m,
                        uint32_t n,
                        struct voices *v)
{
    double sum = 0, squares = 0;

    for (uint32_t i = 0; i < n; i++) {
        sum += (double)m[i].tokens;
        squares += (double)m[i].tokens * (double)m[i].tokens;
    }
    for (uint32_t i = 0; i < n; i++) {
        if (m[i].tokens == 0) {
            continue;
        }
        v->lane[v->n] = i;
        v->t[v->n] = (double)m[i].tokens * sum / squares;
        v->row[v->n++] = find(s, m[i].id);
    }
    for (uint32_t k = 0; k < v->n; k++) { /* the others have a row that stays */
        if (v->row[k] == NULL) {
            v->row[k] = make(s, m[v->lane[k]].id);
        }
        if (v->row[k] == NULL) {
            return false;
        }
    }
    return v->n >= STRAY_LEAST;
}

static void measure(const struct strays *s, struct voices *v)
{
    for (uint32_t k = 0; k < v->n; k++) {
        v->far[k] = v->along[k] = 0;
        for (uint32_t p = 0; p < s->n_seen; p++) {
            const float *x = shown(s, p, v->lane[k]);
            const float *c = shown(s, p, s->lanes);

            for (uint32_t i = 0; i < STRAY_PIECE; i++) {
                double d = (double)x[i] - v->t[k] * (double)c[i];

                v->far[k] += d * d / v->t[k];
                v->along[k] += (double)x[i] * (double)c[i] / v->t[k];
            }
        }
    }
}

/* The round adds to the path of voice k: to each place that it shows about 1,
 * squared, where it is noise. */
static void go_on(struct strays *s, const struct voices *v, uint32_t k)
{
    double typical = sqrt(median(v->far, v->n)), own = sqrt(v->far[k]);
    double most = STRAY_CLIP * typical;
    double unit =
        typical * sqrt(v->t[k] / s->n_seen) * (own > most ? own / most : 1);
    struct stray_row *row = v->row[k];

    for (uint32_t p = 0; p < s->n_seen; p++) {
        float *path = row->path + (size_t)s->seen[p] * STRAY_PIECE;
        float *age = &row->age[s->seen[p]];
        const float *x = shown(s, p, v->lane[k]);
        const float *c = shown(s, p, s->lanes);

        *age = FADE * FADE * *age + 1;
        for (uint32_t i = 0; i < STRAY_PIECE; i++) {
            double d = (double)x[i] - v->t[k] * (double)c[i];

            path[i] = FADE * path[i] + (float)(d / unit);
        }
    }
}

static void go_along(const struct voices *v, uint32_t k)
{
    double typical = middle(v->along, v->n), x;
    uint32_t n =
        v->row[k]->shown < ALONG_ROUNDS ? v->row[k]->shown : ALONG_ROUNDS - 1;

    if (typical > 0) {
        x = fmin(fmax(v->along[k] / typical, -ALONG_MOST), ALONG_MOST);
        v->row[k]->along += (x - v->row[k]->along) / (n + 1);
    }
}

/* Places are compared up to a limit: all of them with few members, other ones
 * in each round with many. */
static uint32_t compared(const struct strays *s,
                         const struct voices *v,
                         uint32_t place[STRAY_PIECES])
{
    size_t most = PAIRS_MOST / STRAY_PIECE / (v->n * (v->n - 1) / 2);
    uint32_t n = most < s->n_pieces ? (uint32_t)most : s->n_pieces;

    for (uint32_t p = 0; p < n; p++) {
        place[p] = (uint32_t)((s->n_rounds * n + p) % s->n_pieces);
    }
    return n;
}

/* How far the path of each is from most others, beside what noise makes of
 * paths of their ages. Of paths twice as old as most nothing is told: noise of
 * rounds that follow each other is a little alike. */
static void compare(const struct strays *s, const struct voices *v)
{
    double d[CODEC_TERMS_MAX][CODEC_TERMS_MAX], age[CODEC_TERMS_MAX];
    double reach[CODEC_TERMS_MAX], typical, old;
    uint32_t place[STRAY_PIECES], n = compared(s, v, place);

    for (uint32_t k = 0; k < v->n; k++) {
        age[k] = 0;
        for (uint32_t p = 0; p < n; p++) {
            age[k] += (double)v->row[k]->age[place[p]];
        }
    }
    for (uint32_t k = 0; k < v->n; k++) {
        for (uint32_t j = k + 1; j < v->n; j++) {
            double sum = 0, both = age[k] + age[j];

            for (uint32_t p = 0; p < n; p++) {
                size_t at = (size_t)place[p] * STRAY_PIECE;

                sum += centre_apart(v->row[k]->path + at, v->row[j]->path + at,
                                    STRAY_PIECE);
            }
            d[k][j - 1] = d[j][k] = both > 0 ? sum / both : 1;
        }
    }
    for (uint32_t k = 0; k < v->n; k++) {
        reach[k] = median(d[k], v->n - 1);
    }
    typical = median(reach, v->n);
    old = 2 * middle(age, v->n);
    for (uint32_t k = 0; k < v->n; k++) {
        v->row[k]->far = typical > 0 && age[k] <= old ? reach[k] / typical : 1;
    }
}

/* It was out of bounds in LATE_ROUNDS rounds that follow each other. */
static bool is_astray(struct stray_row *row)
{
    double n = row->shown < ALONG_ROUNDS ? row->shown : ALONG_ROUNDS;
    double unsure = sqrt(ALONG_ROUNDS / n);
    bool out = row->far > FAR || row->along > 1 + ALONG_ABOVE * unsure ||
               row->along < 1 - ALONG_BELOW * unsure;

    row->late = row->shown >= SHOWN_LEAST && out ? row->late + 1 : 0;
    return row->late >= LATE_ROUNDS;
}

uint64_t strays_commit(struct strays *s,
                       uint64_t attempt,
                       const struct stray_member *member,
                       uint32_t n)
{
    struct voices v = {0};
    uint64_t strays = 0;

    if (s->n_seen == 0 || s->attempt != attempt || s->lanes != n) {
        return 0;
    }
    s->n_rounds++;
    if (!find_voices(s, member, n, &v)) {
        s->n_seen = 0;
        return 0;
    }
    measure(s, &v);
    if (median(v.far, v.n) <= 0) {
        s->n_seen = 0;
        return 0; /* most sent the mean itself */
    }
    for (uint32_t k = 0; k < v.n; k++) {
        go_on(s, &v, k);
        go_along(&v, k);
        v.row[k]->shown++;
    }
    s->n_seen = 0;
    compare(s, &v);
    for (uint32_t k = 0; k < v.n; k++) {
        struct stray_row *row = v.row[k];

        if (is_astray(row)) {
            strays |= 1ULL << v.lane[k];
            begin_anew(row);
        }
    }
    return strays;
}
