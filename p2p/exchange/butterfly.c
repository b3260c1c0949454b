/* butterfly.c - see butterfly.h. */
#include "p2p/exchange/butterfly.h"

#include <assert.h>
#include <string.h>

#include "proto/base/err.h"

#define SLOTS_TOGETHER 128U /* segments in all lanes */
#define SLOTS_MIN      2U   /* one arrives while another is summed */
#define SLOTS_MAX      16U

static uint64_t least(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

/* ---- shares ------------------------------------------------------------
 * With share s a member moves 1 + (n - 2) s vectors each way. In time T one of
 * rate B moves T B, so s = (T B - 1) / (n - 2), and the shares sum up to 1. The
 * T that does it is found with the fastest k members as owners, the largest k
 * of which all have a share above 0. */

static double rate_of(const struct butterfly_rate *r)
{
    return (double)least(r->up, r->down);
}

/* Time of the vector when those of at least `slowest` are owners. */
static double
time_with(const struct butterfly_rate *rates, uint32_t n, double slowest)
{
    double sum = 0;
    uint32_t k = 0;

    for (uint32_t i = 0; i < n; i++) {
        if (rate_of(&rates[i]) >= slowest) {
            sum += rate_of(&rates[i]);
            k++;
        }
    }
    return ((double)n - 2 + k) / sum;
}

/* The least rate of an owner, and *time of the owners; 0: not known, or of two,
 * where each sends one vector anyway. */
static double
slowest_owner(const struct butterfly_rate *rates, uint32_t n, double *time)
{
    double least_rate = 0;

    *time = 0;
    for (uint32_t i = 0; i < n; i++) {
        if (n < 3 || rates[i].up == 0 || rates[i].down == 0) {
            return 0;
        }
    }
    for (uint32_t i = 0; i < n; i++) {
        double slowest = rate_of(&rates[i]), t = time_with(rates, n, slowest);

        if (t * slowest >= 1 && (*time == 0 || slowest < least_rate)) {
            *time = t;
            least_rate = slowest;
        }
    }
    return least_rate;
}

double butterfly_time(const struct butterfly_rate *rates, uint32_t n)
{
    double time;

    if (slowest_owner(rates, n, &time) <= 0) {
        return 0;
    }
    for (uint32_t i = 0; i < n; i++) { /* who owns nothing moves one vector */
        double alone = 1 / rate_of(&rates[i]);

        time = alone > time ? alone : time;
    }
    return time;
}

void butterfly_shares(const struct butterfly_rate *rates,
                      uint32_t n,
                      uint32_t *shares)
{
    double time;

    (void)slowest_owner(rates, n, &time);
    for (uint32_t i = 0; i < n; i++) {
        double s = 0;

        shares[i] = 1;
        if (time > 0) {
            s = (time * rate_of(&rates[i]) - 1) / ((double)n - 2);
            s = s > 0 ? s : 0;
            s = s < 1 ? s : 1;
            shares[i] = (uint32_t)(s * BUTTERFLY_SHARE_MAX + 0.5);
        }
    }
}

uint32_t butterfly_slots(uint32_t n)
{
    uint32_t slots = SLOTS_TOGETHER / n;

    slots = slots < SLOTS_MAX ? slots : SLOTS_MAX;
    return slots > SLOTS_MIN ? slots : SLOTS_MIN;
}

/* ---- how the vector is cut --------------------------------------------- */

void butterfly_slice(const struct butterfly_shape *s,
                     uint32_t stripe,
                     uint32_t c,
                     uint64_t *begin,
                     uint64_t *end)
{
    const struct ring_shape *r = &s->cut;
    uint64_t whole = ring_stripe_elements(r);
    uint64_t at = least(r->from + stripe * whole, r->elements);
    uint64_t len = least(whole, r->elements - at);
    uint64_t blocks = (len + r->block - 1) / r->block;
    uint64_t total = 0, before = 0;

    for (uint32_t k = 0; k < r->n; k++) {
        before += k < c ? s->share[k] : 0;
        total += s->share[k];
    }
    *begin = at + least(blocks * before / total * r->block, len);
    *end = at + least(blocks * (before + s->share[c]) / total * r->block, len);
}

uint32_t butterfly_owner(const struct butterfly_shape *s, uint64_t element)
{
    const struct ring_shape *r = &s->cut;
    uint64_t begin, end;
    uint32_t stripe, c = 0;

    if (element < r->from || element >= r->elements) {
        return r->n;
    }
    stripe = (uint32_t)((element - r->from) / ring_stripe_elements(r));
    for (; c < r->n; c++) {
        butterfly_slice(s, stripe, c, &begin, &end);
        if (element >= begin && element < end) {
            break;
        }
    }
    return c;
}

static uint32_t segments_in(const struct butterfly *b, uint64_t elements)
{
    uint32_t whole = b->shape.cut.segment_elements;

    return (uint32_t)((elements + whole - 1) / whole);
}

/* ---- sequences -------------------------------------------------------- */

/* What a cursor walks along: elements [fill, from), then slice `slice`. */
struct sequence {
    uint64_t fill;
    uint32_t slice;
};

static struct sequence slices(const struct butterfly *b, uint32_t slice)
{
    return (struct sequence){.fill = b->shape.cut.from, .slice = slice};
}

/* Final bytes that member `rank` sends us. */
static struct sequence inward(const struct butterfly *b, uint32_t rank)
{
    return (struct sequence){.fill = b->edges[rank].fill_in, .slice = rank};
}

/* Final bytes that we send to it. */
static struct sequence outward(const struct butterfly *b, uint32_t rank)
{
    return (struct sequence){.fill = b->edges[rank].fill_out, .slice = b->rank};
}

static bool at_end(const struct butterfly *b, const struct butterfly_cursor *c)
{
    return c->filled && c->stripe >= b->n_stripes;
}

static void span(const struct butterfly *b,
                 const struct butterfly_cursor *c,
                 const struct sequence *s,
                 uint64_t *begin,
                 uint64_t *end)
{
    if (!c->filled) {
        *begin = s->fill;
        *end = b->shape.cut.from;
        return;
    }
    butterfly_slice(&b->shape, c->stripe, s->slice, begin, end);
}

/* Skip what is empty. */
static void settle(const struct butterfly *b,
                   struct butterfly_cursor *c,
                   const struct sequence *s)
{
    uint64_t begin, end;

    while (!at_end(b, c)) {
        span(b, c, s, &begin, &end);
        if (c->segment < segments_in(b, end - begin)) {
            return;
        }
        c->segment = 0;
        if (c->filled) {
            c->stripe++;
        }
        c->filled = true;
    }
}

static void advance(const struct butterfly *b,
                    struct butterfly_cursor *c,
                    const struct sequence *s)
{
    c->segment++;
    c->number++;
    settle(b, c, s);
}

/* Segments of slices, not of the fill, before the cursor. */
static uint32_t past_fill(const struct butterfly *b,
                          const struct butterfly_cursor *c,
                          const struct sequence *s)
{
    return c->filled ? c->number - segments_in(b, b->shape.cut.from - s->fill)
                     : 0;
}

/* ---- init ------------------------------------------------------------- */

/* The k-th member that lacks inherited elements (or does not), from 0. */
static uint32_t
kth(const struct butterfly_shape *s, bool lacks, uint32_t k, uint32_t *count)
{
    uint32_t found = 0, n = 0;

    for (uint32_t i = 0; i < s->cut.n; i++) {
        if ((s->holds[i] < s->cut.from) == lacks) {
            found = n++ == k ? i : found;
        }
    }
    *count = n;
    return found;
}

/* Who sends whom what is inherited. */
static void deal_fills(struct butterfly *b)
{
    const struct butterfly_shape *s = &b->shape;
    uint32_t n_lack, n_hold;

    for (uint32_t i = 0; i < s->cut.n; i++) {
        b->edges[i].fill_in = b->edges[i].fill_out = s->cut.from;
    }
    (void)kth(s, false, 0, &n_hold);
    assert(n_hold > 0);
    (void)kth(s, true, 0, &n_lack);
    for (uint32_t k = 0; k < n_lack; k++) {
        uint32_t to = kth(s, true, k, &n_lack);
        uint32_t by = kth(s, false, k % n_hold, &n_hold);

        if (to == b->rank) {
            b->edges[by].fill_in = s->holds[to];
        } else if (by == b->rank) {
            b->edges[to].fill_out = s->holds[to];
        }
    }
}

void butterfly_init(struct butterfly *b,
                    const struct butterfly_shape *shape,
                    uint32_t rank)
{
    const struct ring_shape *cut = &shape->cut;
    struct sequence own;

    assert(cut->n >= 2 && cut->n <= VIEW_MEMBERS_MAX && rank < cut->n);
    assert(cut->block > 0 && cut->segment_elements > 0 &&
           cut->segment_elements % cut->block == 0);
    memset(b, 0, sizeof *b);
    b->shape = *shape;
    b->rank = rank;
    b->stripe_elements = ring_stripe_elements(cut);
    b->n_stripes =
        (uint32_t)((cut->elements - cut->from + b->stripe_elements - 1) /
                   b->stripe_elements);
    deal_fills(b);
    own = slices(b, rank);
    settle(b, &b->sum, &own);
    b->done = b->sum;
    for (uint32_t i = 0; i < cut->n; i++) {
        struct butterfly_edge *e = &b->edges[i];
        struct sequence its = slices(b, i), in = inward(b, i);
        struct sequence out = outward(b, i);

        settle(b, &e->give, &its);
        settle(b, &e->want, &own);
        settle(b, &e->tell, &out);
        settle(b, &e->hear, &in);
        e->gave = e->give;
        e->got = e->want;
        e->told = e->tell;
        e->heard = e->hear;
    }
}

/* ---- segments --------------------------------------------------------- */

/* The segment at the cursor, which moves on; NULL when `out` is full. */
static struct segment *emit(struct butterfly *b,
                            enum action_type type,
                            struct butterfly_cursor *c,
                            const struct sequence *s,
                            struct out *out)
{
    struct action *a = out_add(out, type);
    uint64_t begin, end, from;

    if (a != NULL) {
        span(b, c, s, &begin, &end);
        from = begin + (uint64_t)c->segment * b->shape.cut.segment_elements;
        a->segment = (struct segment){
            .attempt = b->attempt,
            .stream = STREAM_RING,
            .seg = c->number,
            .buffer = BUFFER_RING,
            .offset = from,
            .len = (uint32_t)least(end - from, b->shape.cut.segment_elements),
            .op = SEGMENT_COPY,
            .scale = 1,
            .lanes = (uint8_t)b->shape.cut.n,
        };
    }
    advance(b, c, s);
    return a == NULL ? NULL : &a->segment;
}

/* Contributions to our slice that can be taken in, and sums that are due. */
static void pump_sums(struct butterfly *b, struct out *out)
{
    uint32_t n = b->shape.cut.n, slots = butterfly_slots(n);
    uint32_t ready = UINT32_MAX;
    struct sequence own = slices(b, b->rank);
    struct segment *s;

    for (uint32_t i = 0; i < n; i++) {
        struct butterfly_edge *e = &b->edges[i];

        while (i != b->rank && !at_end(b, &e->want) &&
               e->want.number - b->done.number < slots) {
            uint32_t slot = e->want.number % slots;

            s = emit(b, ACTION_POST_RECV, &e->want, &own, out);
            if (s != NULL) {
                s->peer = e->peer;
                s->op = SEGMENT_LANE;
                s->proven = b->proven;
                s->maker = e->peer;
                s->offer = e->offer;
                s->scale = e->scale;
                s->lane = (uint8_t)i;
                s->slot = (uint8_t)slot;
            }
        }
        if (i != b->rank && e->got.number < ready) {
            ready = e->got.number;
        }
    }
    while (!at_end(b, &b->sum) && b->sum.number < ready) {
        uint32_t slot = b->sum.number % slots;

        s = emit(b, ACTION_SUM, &b->sum, &own, out);
        if (s != NULL) {
            s->op = SEGMENT_SUM;
            s->scale = b->scale;
            s->lane = (uint8_t)b->rank;
            s->slot = (uint8_t)slot;
            s->final = true;
        }
    }
}

/* Our contribution to the slice of member i, as far as it has room. */
static void pump_gives(struct butterfly *b, uint32_t i, struct out *out)
{
    struct butterfly_edge *e = &b->edges[i];
    struct sequence its = slices(b, i), in = inward(b, i);
    uint32_t credit =
        past_fill(b, &e->heard, &in) + butterfly_slots(b->shape.cut.n);

    while (!at_end(b, &e->give) && e->give.number < credit &&
           e->give.number - e->gave.number < BUTTERFLY_WINDOW) {
        struct segment *s = emit(b, ACTION_SEND_SEG, &e->give, &its, out);

        if (s != NULL) {
            s->peer = e->peer;
            s->op = SEGMENT_ENCODE;
            s->proven = b->proven;
        }
    }
}

/* Final bytes from and to member i. */
static void pump_finals(struct butterfly *b, uint32_t i, struct out *out)
{
    struct butterfly_edge *e = &b->edges[i];
    struct sequence in = inward(b, i), to = outward(b, i);
    struct segment *s;

    while (!at_end(b, &e->hear) &&
           e->hear.number - e->heard.number < BUTTERFLY_WINDOW) {
        s = emit(b, ACTION_POST_RECV, &e->hear, &in, out);
        if (s != NULL) {
            s->peer = e->peer;
            s->seg |= BUTTERFLY_FINAL;
            s->final = true;
        }
    }
    while (!at_end(b, &e->tell) &&
           (!e->tell.filled || past_fill(b, &e->tell, &to) < b->done.number) &&
           e->tell.number - e->told.number < BUTTERFLY_WINDOW) {
        s = emit(b, ACTION_SEND_SEG, &e->tell, &to, out);
        if (s != NULL) {
            s->peer = e->peer;
            s->seg |= BUTTERFLY_FINAL;
            s->final = true;
        }
    }
}

void butterfly_pump(struct butterfly *b, struct out *out)
{
    uint32_t n = b->shape.cut.n;

    pump_sums(b, out);
    /* Everybody begins with another one, so that none is flooded. */
    for (uint32_t k = 1; k < n; k++) {
        uint32_t i = (b->rank + k) % n;

        pump_finals(b, i, out);
        pump_gives(b, i, out);
    }
}

/* The sequence, and how far it is done and asked for, that an event is of. */
struct place {
    struct sequence sequence;
    struct butterfly_cursor *done;
    const struct butterfly_cursor *limit;
};

static bool
find(struct butterfly *b, const struct event_seg_done *ev, struct place *p)
{
    bool final = (ev->segment.seg & BUTTERFLY_FINAL) != 0;
    uint32_t i = 0;
    struct butterfly_edge *e;

    if (ev->segment.op == SEGMENT_SUM) {
        *p = (struct place){slices(b, b->rank), &b->done, &b->sum};
        return true;
    }
    while (i < b->shape.cut.n &&
           (i == b->rank || !id_eq(&b->edges[i].peer, &ev->segment.peer))) {
        i++;
    }
    if (i == b->shape.cut.n) {
        return false;
    }
    e = &b->edges[i];
    if (ev->sent) {
        *p = final ? (struct place){outward(b, i), &e->told, &e->tell}
                   : (struct place){slices(b, i), &e->gave, &e->give};
    } else {
        *p = final ? (struct place){inward(b, i), &e->heard, &e->hear}
                   : (struct place){slices(b, b->rank), &e->got, &e->want};
    }
    return true;
}

int butterfly_done(struct butterfly *b, const struct event_seg_done *event)
{
    struct place p;

    if (!find(b, event, &p) ||
        (event->segment.seg & ~BUTTERFLY_FINAL) != p.done->number ||
        p.done->number >= p.limit->number) {
        return LOCO_EPROTO;
    }
    b->bytes += event->segment.op == SEGMENT_SUM ? 0 : event->segment.len;
    b->progress++;
    advance(b, p.done, &p.sequence);
    return 0;
}

bool butterfly_finished(const struct butterfly *b)
{
    bool all = at_end(b, &b->done);

    for (uint32_t i = 0; i < b->shape.cut.n && all; i++) {
        const struct butterfly_edge *e = &b->edges[i];

        all = i == b->rank || (at_end(b, &e->gave) && at_end(b, &e->got) &&
                               at_end(b, &e->told) && at_end(b, &e->heard));
    }
    return all;
}

uint64_t butterfly_final(const struct butterfly *b)
{
    const struct ring_shape *cut = &b->shape.cut;
    uint32_t stripe = b->done.stripe;

    for (uint32_t i = 0; i < cut->n; i++) {
        const struct butterfly_edge *e = &b->edges[i];

        if (i == b->rank) {
            continue;
        }
        if (!e->heard.filled) {
            return e->fill_in +
                   (uint64_t)e->heard.segment * cut->segment_elements;
        }
        stripe = e->heard.stripe < stripe ? e->heard.stripe : stripe;
    }
    return least(cut->from + stripe * b->stripe_elements, cut->elements);
}

uint64_t butterfly_progress(const struct butterfly *b)
{
    return b->progress;
}

static uint32_t length(const struct butterfly *b, struct sequence s)
{
    struct butterfly_cursor c = {0};

    settle(b, &c, &s);
    while (!at_end(b, &c)) {
        advance(b, &c, &s);
    }
    return c.number;
}

uint32_t butterfly_segments(const struct butterfly *b, bool sending)
{
    uint32_t n = 0;

    for (uint32_t i = 0; i < b->shape.cut.n; i++) {
        if (i != b->rank) {
            n += length(b, slices(b, sending ? i : b->rank));
            n += length(b, sending ? outward(b, i) : inward(b, i));
        }
    }
    return n;
}

bool butterfly_owes(const struct butterfly *b, const struct peer_id *peer)
{
    for (uint32_t i = 0; i < b->shape.cut.n; i++) {
        const struct butterfly_edge *e = &b->edges[i];

        if (i != b->rank && id_eq(&e->peer, peer)) {
            return !at_end(b, &e->got) || !at_end(b, &e->heard);
        }
    }
    return false;
}

uint64_t butterfly_missing(const struct butterfly *b)
{
    uint64_t mask = 0;

    for (uint32_t i = 0; i < b->shape.cut.n; i++) {
        const struct butterfly_edge *e = &b->edges[i];

        mask |= i != b->rank && e->got.number < e->want.number ? 1ULL << i : 0;
    }
    return mask;
}

uint64_t butterfly_unheard(const struct butterfly *b)
{
    uint64_t mask = 0;

    for (uint32_t i = 0; i < b->shape.cut.n; i++) {
        const struct butterfly_edge *e = &b->edges[i];

        mask |=
            i != b->rank && e->heard.number < e->hear.number ? 1ULL << i : 0;
    }
    return mask;
}

const struct peer_id *butterfly_laggard(const struct butterfly *b, bool *sends)
{
    const struct butterfly_edge *gives = NULL, *takes = NULL, *owes = NULL;

    for (uint32_t i = 0; i < b->shape.cut.n; i++) {
        const struct butterfly_edge *e = &b->edges[i];

        if (i == b->rank) {
            continue;
        }
        if (e->got.number < e->want.number &&
            (gives == NULL || e->got.number < gives->got.number)) {
            gives = e;
        }
        if (e->gave.number < e->give.number &&
            (takes == NULL || e->gave.number < takes->gave.number)) {
            takes = e;
        }
        if (e->heard.number < e->hear.number &&
            (owes == NULL || e->heard.number < owes->heard.number)) {
            owes = e;
        }
    }
    *sends = gives != NULL || takes == NULL;
    if (gives != NULL) {
        return &gives->peer;
    }
    if (takes != NULL) {
        return &takes->peer;
    }
    return owes == NULL ? NULL : &owes->peer;
}
