/* pairs_machine.c - the machine below each peer of the crowd: vectors, codec,
 * steps. See pairs.h. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/sim/pairs.h"
#include "proto/base/err.h"
#include "proto/base/rng.h"
#include "proto/hash.h"
#include "train/sync/pair_mean.h"
#include "train/sync/rule.h"

enum { TIMER_TRAIN = 1, TIMER_APPLY, TIMER_HASH, TIMER_KINDS = 4 };

static const struct rule rule_h = {
    .form = RULE_HEAVY_BALL, .lr = 0.7F, .mu = 0.5F, .gamma = 0.7F};

static size_t floats(const struct pairs *s)
{
    return s->opt.n_params * sizeof(float);
}

int pairs_machine_open(struct pairs *s, uint32_t number)
{
    struct pairs_peer *p = &s->peers[number];
    bool ok;

    p->crowd = s;
    p->number = number;
    p->slow = 1;
    p->phi = calloc(1, floats(s));
    p->m = calloc(1, floats(s));
    p->g = calloc(1, floats(s));
    p->theirs = calloc(2, s->vector_bytes);
    ok = p->phi != NULL && p->m != NULL && p->g != NULL && p->theirs != NULL;
    for (uint32_t k = 0; k < PAIRS_PAST; k++) {
        struct pairs_record *r = &p->past[k];

        r->before = calloc(1, floats(s));
        r->shift = calloc(1, floats(s));
        r->alone = calloc(1, floats(s));
        r->own = calloc(2, s->vector_bytes);
        r->theirs = calloc(2, s->vector_bytes);
        ok = ok && r->before != NULL && r->shift != NULL && r->alone != NULL &&
             r->own != NULL && r->theirs != NULL;
    }
    return ok ? 0 : LOCO_ENOMEM;
}

void pairs_machine_free(struct pairs_peer *p)
{
    free(p->phi);
    free(p->m);
    free(p->g);
    free(p->theirs);
    free(p->members_memory);
    for (uint32_t k = 0; k < PAIRS_PAST; k++) {
        free(p->past[k].before);
        free(p->past[k].shift);
        free(p->past[k].alone);
        free(p->past[k].own);
        free(p->past[k].theirs);
    }
}

/* The first process begins with the run's weights; a later one copies a live
 * replica that it is linked to, or that of itself if it stands alone. */
bool pairs_load(struct pairs *s, uint32_t number)
{
    struct pairs_peer *p = &s->peers[number];
    uint64_t rng = s->opt.seed;

    if (p->lives == 1) {
        for (uint32_t i = 0; i < s->opt.n_params; i++) {
            p->phi[i] = rng_float(&rng) - 0.5F;
        }
        memset(p->m, 0, floats(s));
        return true;
    }
    for (uint32_t i = 0; i < p->members.n_peers; i++) {
        uint32_t q = world_find(s->world, &p->members.peers[i].id);

        if (p->members.peers[i].n_links > 0 && q < s->opt.peers &&
            pairs_healthy(s, q) && s->peers[q].loaded) {
            memcpy(p->phi, s->peers[q].phi, floats(s));
            memcpy(p->m, s->peers[q].m, floats(s));
            p->round = s->peers[q].round;
            return true;
        }
    }
    return false;
}

static void on_died(void *self, uint32_t number)
{
    struct pairs *s = self;
    struct pairs_peer *p = &s->peers[number];
    struct pair_options opt = p->pair.opt;

    s->n_resumed += p->pair.n_resumed;
    s->n_moved_on += p->pair.n_moved_on;
    p->loaded = p->training = p->applying = false;
    p->beat.has_view = false;
    pair_init(&p->pair, &opt, &p->members); /* its core is gone */
    p->round = p->decided_turn = 0;
    p->n_past = 0; /* what it did in that life binds nobody any more */
}

/* ---- segments --------------------------------------------------------- */

static size_t wire_len(void *self, uint32_t peer, const struct segment *seg)
{
    const struct pairs *s = self;

    (void)peer;
    return s->codec->bytes(seg->len);
}

static int
on_fill(void *self, uint32_t peer, const struct segment *seg, uint8_t *dst)
{
    struct pairs *s = self;
    const struct pairs_peer *p = &s->peers[peer];
    const float *from = seg->buffer == BUFFER_ANCHOR ? p->phi : p->g;

    if (seg->index != p->round + 1 && seg->index != p->pair.turn) {
        return LOCO_ENOENT; /* that turn is over */
    }
    if (seg->index == p->round) {
        return LOCO_ENOENT;
    }
    return s->codec->encode(dst, from + seg->offset, seg->len, 1.0F);
}

static int on_take(void *self,
                   uint32_t peer,
                   const struct segment *seg,
                   const uint8_t *src,
                   size_t len)
{
    struct pairs *s = self;
    struct pairs_peer *p = &s->peers[peer];
    size_t at = s->codec->bytes(seg->offset) +
                (seg->buffer == BUFFER_STEP ? s->vector_bytes : 0);

    if (len != s->codec->bytes(seg->len) || at + len > 2 * s->vector_bytes) {
        return LOCO_ERANGE;
    }
    memcpy(p->theirs + at, src, len);
    return 0;
}

/* ---- work ------------------------------------------------------------- */

static void tell(struct pairs *s, uint32_t peer, const struct local_event *e)
{
    struct event event = {.type = EVENT_LOCAL, .local = *e};

    world_post(s->world, peer, &event);
}

/* The replica moves towards 0, with noise of its own. */
static void trained(struct pairs *s, uint32_t number)
{
    struct pairs_peer *p = &s->peers[number];
    uint64_t words[] = {s->opt.seed, p->life, p->round};
    uint64_t rng = rng_mix(words, 3);
    struct local_event e = {.type = LOCAL_TRAINED};

    for (uint32_t i = 0; i < s->opt.n_params; i++) {
        p->g[i] = 0.05F * p->phi[i] + 0.02F * (rng_float(&rng) - 0.5F);
    }
    tell(s, number, &e);
}

static void
own_payload(struct pairs *s, const struct pairs_peer *p, uint8_t *to)
{
    (void)s->codec->encode(to, p->phi, s->opt.n_params, 1.0F);
    (void)s->codec->encode(to + s->vector_bytes, p->g, s->opt.n_params, 1.0F);
}

static void
hashed(struct pairs *s, uint32_t number, uint64_t request, bool first)
{
    struct pairs_peer *p = &s->peers[number];
    uint8_t *both = malloc(4 * s->vector_bytes);
    struct local_event e = {.type = LOCAL_HASHED, .hashed.request = request};

    assert(both != NULL);
    own_payload(s, p, both + (first ? 0 : 2 * s->vector_bytes));
    memcpy(both + (first ? 2 * s->vector_bytes : 0), p->theirs,
           2 * s->vector_bytes);
    hash_bytes("pair", both, 4 * s->vector_bytes, &e.hashed.hash);
    free(both);
    tell(s, number, &e);
}

static struct pairs_record *record_of(struct pairs *s, struct pairs_peer *p)
{
    struct pairs_record *r = &p->past[p->n_past++ % PAIRS_PAST];

    r->with = pair_with_partner(&p->pair);
    r->turn = p->pair.turn;
    r->epoch = p->pair.epoch;
    r->partner = p->pair.end == PAIR_END_ODD
                     ? s->opt.peers
                     : world_find(s->world, &p->pair.peer);
    r->life = p->life;
    r->partner_life = p->pair.peer_life;
    r->end = p->pair.end;
    memcpy(r->before, p->phi, floats(s));
    own_payload(s, p, r->own);
    memcpy(r->theirs, p->theirs, 2 * s->vector_bytes);
    return r;
}

static void applied(struct pairs *s, uint32_t number)
{
    struct pairs_peer *p = &s->peers[number];
    struct pairs_record *r = record_of(s, p);
    struct outer_state state = {.phi = p->phi, .m = p->m};
    const struct pair_mean partner = {
        .codec = s->codec,
        .wire = r->with ? r->theirs : NULL,
        .first = id_cmp(&p->pair.opt.self, &p->pair.peer) < 0,
    };
    struct local_event e = {.type = LOCAL_APPLIED, .applied.round = r->turn};
    size_t n = s->opt.n_params;

    (void)s->codec->decode(s->a, r->own + s->vector_bytes, n);
    for (size_t i = 0; i < n; i++) {
        r->alone[i] = rule_h.mu * p->m[i] + rule_h.lr * s->a[i];
    }
    (void)pair_mean_apply(&partner, &rule_h, &state, &state, p->g, n);
    for (size_t i = 0; i < n; i++) {
        r->shift[i] = r->before[i] - p->phi[i];
    }
    pairs_check_taken(s, number, r);
    p->round = r->turn;
    tell(s, number, &e);
}

static void
on_job(void *self, uint32_t peer, const struct job *job, const struct out *out)
{
    struct pairs *s = self;
    struct pairs_peer *p = &s->peers[peer];
    uint32_t ms = s->opt.work_ms * p->slow;

    (void)out;
    if (job->type == JOB_TRAIN) {
        ms = s->opt.train_ms * p->slow;
        ms += (uint32_t)pairs_draw(s, ms / 8 + 1);
        world_timer(s->world, peer, ms, TIMER_TRAIN);
    } else if (job->type == JOB_PAIR) {
        world_timer(s->world, peer, ms, TIMER_APPLY);
    } else if (job->type == JOB_HASH) {
        world_timer(s->world, peer, ms,
                    TIMER_HASH | (job->hash.first ? TIMER_KINDS : 0) |
                        job->hash.request << 3);
    }
}

static void on_timer(void *self, uint32_t peer, uint64_t token)
{
    struct pairs *s = self;
    uint64_t kind = token % TIMER_KINDS;

    if (kind == TIMER_TRAIN) {
        trained(s, peer);
    } else if (kind == TIMER_APPLY) {
        applied(s, peer);
    } else {
        hashed(s, peer, token >> 3, (token & TIMER_KINDS) != 0);
    }
}

void pairs_machines_serve(struct pairs *s)
{
    const struct world_machines machines = {.self = s,
                                            .wire_len = wire_len,
                                            .fill = on_fill,
                                            .take = on_take,
                                            .local = on_job,
                                            .timer = on_timer,
                                            .died = on_died};

    world_set_machines(s->world, &machines);
}

double pairs_spread(struct pairs *s)
{
    double sum = 0;
    uint32_t n = 0;

    for (uint32_t q = 0; q < s->opt.peers; q++) {
        n += world_alive(s->world, q) && s->peers[q].loaded;
    }
    for (uint32_t i = 0; i < s->opt.n_params && n > 0; i++) {
        double mean = 0;

        for (uint32_t q = 0; q < s->opt.peers; q++) {
            if (world_alive(s->world, q) && s->peers[q].loaded) {
                mean += (double)s->peers[q].phi[i] / n;
            }
        }
        for (uint32_t q = 0; q < s->opt.peers; q++) {
            if (world_alive(s->world, q) && s->peers[q].loaded) {
                double d = (double)s->peers[q].phi[i] - mean;

                sum += d * d / n / s->opt.n_params;
            }
        }
    }
    return sum;
}
