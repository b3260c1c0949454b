/* stages_check.c - what must hold in a run with stages; see stages.h. */
#include "daemon/sim/stages.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/node/inspect.h"

#define STILL_MS 20000 /* nothing happens for that long: there is a reason */
/* Or others wait until a host notices that its own trainer hangs. */
#define STILL_HUNG_MS 60000

void *stages_grow(void *p, uint32_t n, uint32_t *cap, size_t size)
{
    if (n < *cap) {
        return p;
    }
    *cap = *cap == 0 ? 256 : 2 * *cap;
    p = realloc(p, *cap * size);
    if (p == NULL) {
        abort();
    }
    return p;
}

void stages_stepped(void *self, uint32_t peer, const struct local_step *step)
{
    struct stages *s = self;

    for (uint32_t i = 0; i < step->n; i++) {
        s->counts = stages_grow(s->counts, s->n_counts, &s->cap_counts,
                                sizeof *s->counts);
        s->counts[s->n_counts++] =
            (struct stages_count){.peer = peer,
                                  .life = s->c.peers[peer].lives,
                                  .stage = step->stage,
                                  .step = step->step,
                                  .inner = step->inner,
                                  .origin = step->origins[i],
                                  .round = step->round};
    }
}

/* C: somebody else who offered this round, or itself, has counted the same. */
static void check_once(struct stages *s, const struct stages_count *c)
{
    for (uint32_t i = 0; i < s->n_counts; i++) {
        const struct stages_count *d = &s->counts[i];

        if (d != c && d->final && d->round == c->round && d->step == c->step &&
            d->stage == c->stage && d->origin == c->origin) {
            sim_fail(s->c.r,
                     "C: peers %u and %u have both counted micro-batch %x "
                     "of step %u, round %" PRIu64 ", stage %u",
                     d->peer, c->peer, c->origin, c->step, c->round, c->stage);
            return;
        }
    }
}

/* This peer has packed its steps of a round: what it counted in it is final. */
static void note_packed(struct stages *s, uint32_t peer, uint64_t round)
{
    uint32_t life = s->c.peers[peer].lives;

    for (uint32_t i = 0; i < s->n_counts; i++) {
        struct stages_count *c = &s->counts[i];

        if (c->peer == peer && c->life == life && c->round == round &&
            !c->final) {
            check_once(s, c);
            c->final = true;
        }
    }
}

/* A */
static void
note_state(struct stages *s, uint32_t peer, const struct node_status *t)
{
    bool other = false;

    for (uint32_t i = 0; i < s->n_states; i++) {
        const struct stages_state *x = &s->states[i];

        if (x->stage != t->stage || x->round != t->round) {
            continue;
        }
        if (hash32_eq(&x->params, &t->params_hash)) {
            return;
        }
        other = other || !x->lost;
    }
    if (other) {
        sim_fail(s->c.r,
                 "A: peer %u holds other parameters of stage %u, "
                 "round %" PRIu64 " than another one did",
                 peer, t->stage, t->round);
        return;
    }
    s->states =
        stages_grow(s->states, s->n_states, &s->cap_states, sizeof *s->states);
    s->states[s->n_states++] = (struct stages_state){
        .stage = t->stage, .round = t->round, .params = t->params_hash};
}

/* What a majority of those hosts is sure to have on disk: of any more than
 * half of them one has a round as new as this. */
static uint64_t surely_saved(const struct stages *s, uint32_t stage)
{
    uint64_t saved[PIPELINE_HOSTS_MAX], round;
    uint32_t n = 0, at;

    for (uint32_t q = 0; q < s->c.n; q++) {
        round = local_saved_round(s->c.local, q, stage - 1);
        if (round == 0) {
            continue;
        }
        for (at = n++; at > 0 && saved[at - 1] > round; at--) {
            saved[at] = saved[at - 1];
        }
        saved[at] = round;
    }
    return n == 0 ? 0 : saved[n / 2];
}

void stages_newest_died(struct stages *s, uint32_t stage)
{
    uint64_t kept = surely_saved(s, stage);

    for (uint32_t q = 0; q < s->c.n; q++) {
        const struct node_status *t = &s->peers[q].seen;

        if (world_alive(s->c.world, q) && t->stage == stage &&
            t->round > kept) {
            kept = t->round;
        }
    }
    for (uint32_t i = 0; i < s->n_states; i++) {
        struct stages_state *x = &s->states[i];

        x->lost = x->lost || (x->stage == stage && x->round > kept);
    }
    for (uint32_t i = 0; i < s->n_counts; i++) {
        struct stages_count *c = &s->counts[i];

        c->final = c->final && (c->stage != stage - 1 || c->round <= kept);
    }
}

/* R */
static void note_move(struct stages *s, uint32_t peer, uint64_t round)
{
    for (uint32_t i = 0; i < s->n_moves; i++) {
        if (s->move_rounds[i] == round) {
            sim_fail(s->c.r, "R: peer %u moves after round %" PRIu64 ", too",
                     peer, round);
        }
    }
    if (s->n_moves < s->c.n * 64) {
        s->move_rounds[s->n_moves++] = round;
    }
}

/* G */
static void
check_figure(struct stages *s, uint32_t peer, const struct node_eval *e)
{
    double want = local_bits_of(e->bits_round);

    if (!e->has_bits) {
        return;
    }
    if (e->bits > want + 1e-6 || e->bits < want - 1e-6 ||
        e->bits_round > s->c.rounds) {
        sim_fail(s->c.r, "G: peer %u shows %f for round %" PRIu64 ", not %f",
                 peer, e->bits, e->bits_round, want);
    }
    s->evaluated |= e->bits_round < 64 ? 1ULL << e->bits_round : 0;
}

static bool has_changed(const struct node_status *a,
                        const struct node_status *b,
                        uint64_t round)
{
    return a->state != b->state || a->round != b->round ||
           a->inner_step != b->inner_step || a->stage != b->stage ||
           a->fetched_bytes != b->fetched_bytes || round != 0;
}

void stages_check_step(struct crew *c, uint32_t peer, const struct event *event)
{
    struct stages *s = c->self;
    struct stages_peer *p = &s->peers[peer];
    const struct node *n = c->peers[peer].node;
    const struct node_parts in = node_parts(n);
    const struct pipeline *core = &in.pipe->core;
    struct node_status t;

    if (event->type == EVENT_LOCAL && event->local.type == LOCAL_TRAINED &&
        core->round == in.held->applied.round + 1) {
        if (core->state == PIPELINE_FINISHED && core->step != core->opt.steps) {
            sim_fail(s->c.r, "B: peer %u ends a round after %u of %u steps",
                     peer, core->step, core->opt.steps);
        }
        note_packed(s, peer, core->round);
        p->packed = core->round;
    }
    stages_note_commit(s, peer);
    if (in.stages->n_moves != p->moves) {
        p->moves = in.stages->n_moves;
        note_move(s, peer, p->seen.round);
    }
    check_figure(s, peer, in.eval);
    node_status(n, &t);
    if (in.held->loaded && event->type == EVENT_LOCAL && event->local.rc == 0 &&
        (event->local.type == LOCAL_APPLIED ||
         event->local.type == LOCAL_LOADED)) {
        note_state(s, peer, &t);
    }
    /* D is about time without a reason: what it said that it waits for may have
     * taken longer than STILL_MS, and has just come. */
    if (has_changed(&p->seen, &t, 0) || p->seen.reason[0] != '\0') {
        p->seen_ms = world_now(s->c.world);
    }
    p->seen = t;
}

void stages_check_all(void *self)
{
    struct stages *s = self;
    uint64_t now = world_now(s->c.world);
    uint64_t still_ms = s->hung_peer > 0 ? STILL_HUNG_MS : STILL_MS;

    for (uint32_t q = 0; q < s->c.n; q++) {
        struct stages_peer *p = &s->peers[q];

        if (!world_alive(s->c.world, q) || world_frozen(s->c.world, q) ||
            q + 1 == s->hung_peer) {
            p->seen_ms = now;
            continue;
        }
        if (s->lost_stage != 0 && p->seen.stage != s->lost_stage &&
            strstr(p->seen.reason, "has no host") != NULL) {
            s->starved = true;
        }
        if (p->seen.state != NODE_FINISHED && p->seen.reason[0] == '\0' &&
            now - p->seen_ms > still_ms) {
            sim_fail(s->c.r,
                     "D: peer %u is %s at round %" PRIu64 " for %" PRIu64
                     " s and does not say why",
                     q, node_state_name(p->seen.state), p->seen.round,
                     still_ms / 1000);
        }
    }
}

bool stages_finished(void *self, char *why, size_t size)
{
    struct stages *s = self;
    struct hash32 params[ROUTE_STAGES_MAX];
    bool any[ROUTE_STAGES_MAX] = {false}, figure = s->eval_every == 0;
    struct node_status t;

    for (uint32_t q = 0; q < s->c.n; q++) {
        const struct node_eval *e;
        bool same;

        if (!world_alive(s->c.world, q)) {
            continue;
        }
        e = node_parts(s->c.peers[q].node).eval;
        node_status(s->c.peers[q].node, &t);
        /* Who comes back when all is over founds no view any more. */
        figure = figure || t.epoch == 0 ||
                 (e->has_bits && e->bits_round == s->c.rounds);
        if (t.stage > 0 && !any[t.stage - 1]) {
            params[t.stage - 1] = t.params_hash;
            any[t.stage - 1] = true;
        }
        same = t.stage > 0 && hash32_eq(&params[t.stage - 1], &t.params_hash);
        if (t.state != NODE_FINISHED || t.round != s->c.rounds || !same) {
            (void)snprintf(why, size,
                           "peer %u of stage %u is %s at round %" PRIu64
                           " of %" PRIu64 "%s %s",
                           q, t.stage, node_state_name(t.state), t.round,
                           s->c.rounds, same ? "" : ", with other parameters",
                           t.reason);
            return false;
        }
    }
    for (uint32_t k = 0; k < s->stages; k++) {
        if (!any[k]) {
            (void)snprintf(why, size, "stage %u has no host", k + 1);
            return false;
        }
    }
    if (!figure) {
        (void)snprintf(why, size, "nobody has evaluated the last round");
    }
    return figure;
}
